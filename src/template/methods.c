/* SPDX-License-Identifier: MIT
 * Methods: what Python's str, list and dict offer, and those of `loop` and cyclers. */
#include <string.h>
#include <utf8proc.h>

#include "template/builtins.h"

/* --- Stripping and asking ------------------------------------------------------------ */

static bool has_character(hr_machine *m, hr_text set, hr_text character) {
  return hr_text_find(m, set, character, 0) != SIZE_MAX;
}

/* Without the characters of a set at the ends. */
static hr_datum strip_set(hr_machine *m, hr_datum self, hr_text set, bool left, bool right) {
  hr_list *list = hr_elements(m, self);
  size_t from = 0, to = list ? list->count : 0;
  if (!list) return hr_none();
  while (left && from < to && has_character(m, set, list->item[from].text)) from++;
  while (right && to > from && has_character(m, set, list->item[to - 1].text)) to--;
  if (from == to) return hr_literal("");
  size_t begin = (size_t)(list->item[from].text.bytes - self.text.bytes);
  size_t end = (size_t)(list->item[to - 1].text.bytes - self.text.bytes) +
               list->item[to - 1].text.length;
  return hr_text_datum(hr_text_part(self.text, begin, end));
}

static hr_datum strip(hr_machine *m, hr_datum self, hr_datum set, bool left, bool right) {
  if (hr_given(set) && set.kind != HR_NONE)
    return strip_set(m, self, hr_text_or(m, set, ""), left, right);
  hr_text text = hr_strip(self.text, left, right);
  hr_machine_work(m, self.text.length - text.length);
  return hr_text_datum(text);
}

HR_BUILTIN(text_strip) {
  return strip(m, self, args[0], true, true);
}

HR_BUILTIN(text_lstrip) {
  return strip(m, self, args[0], true, false);
}

HR_BUILTIN(text_rstrip) {
  return strip(m, self, args[0], false, true);
}

static bool affix_is(hr_machine *m, hr_text text, hr_text part, bool at_start) {
  if (part.length > text.length || !hr_machine_work(m, part.length)) return false;
  size_t from = at_start ? 0 : text.length - part.length;
  return hr_text_equal(hr_text_part(text, from, from + part.length), part);
}

/* part may be a tuple: any of them. */
static hr_datum has_affix(hr_machine *m, hr_text text, hr_datum part, bool at_start) {
  if (part.kind != HR_TUPLE) return hr_bool(affix_is(m, text, hr_text_or(m, part, ""), at_start));
  for (size_t i = 0; i < part.list->count && hr_machine_step(m, 0); i++)
    if (affix_is(m, text, hr_text_or(m, part.list->item[i], ""), at_start)) return hr_bool(true);
  return hr_bool(false);
}

HR_BUILTIN(text_startswith) {
  return has_affix(m, self.text, args[0], true);
}

HR_BUILTIN(text_endswith) {
  return has_affix(m, self.text, args[0], false);
}

HR_BUILTIN(text_removeprefix) {
  hr_text part = hr_text_or(m, args[0], "");
  bool there = affix_is(m, self.text, part, true);
  return hr_text_datum(hr_text_part(self.text, there ? part.length : 0, self.text.length));
}

HR_BUILTIN(text_removesuffix) {
  hr_text part = hr_text_or(m, args[0], "");
  bool there = affix_is(m, self.text, part, false);
  return hr_text_datum(hr_text_part(self.text, 0, self.text.length - (there ? part.length : 0)));
}

/* Counted in characters, -1: not there. */
static int64_t find(hr_machine *m, hr_text text, hr_datum part, bool last) {
  hr_text wanted = hr_text_or(m, part, "");
  size_t at = hr_text_find(m, text, wanted, 0), next = at;
  while (last && next != SIZE_MAX && hr_machine_step(m, 0)) {
    at = next;
    next = hr_text_find(m, text, wanted, at + 1);
  }
  return at == SIZE_MAX ? -1 : (int64_t)hr_characters(m, hr_text_part(text, 0, at));
}

HR_BUILTIN(text_find) {
  return hr_int(find(m, self.text, args[0], false));
}

HR_BUILTIN(text_rfind) {
  return hr_int(find(m, self.text, args[0], true));
}

HR_BUILTIN(text_index) {
  int64_t at = find(m, self.text, args[0], false);
  return at < 0 ? hr_machine_fail(m, "substring not found") : hr_int(at);
}

HR_BUILTIN(text_count) {
  hr_text part = hr_text_or(m, args[0], "");
  int64_t count = 0;
  if (part.length == 0) return hr_int((int64_t)hr_characters(m, self.text) + 1);
  for (size_t at = 0;
       hr_machine_step(m, 0) && (at = hr_text_find(m, self.text, part, at)) != SIZE_MAX;
       at += part.length)
    count++;
  return hr_int(count);
}

typedef bool class_fn(int32_t code_point);

static bool is_letter(int32_t c) {
  return utf8proc_category(c) != UTF8PROC_CATEGORY_ND && hr_is_letter_or_digit(c);
}

static bool is_digit(int32_t c) {
  return utf8proc_category(c) == UTF8PROC_CATEGORY_ND;
}

static hr_datum all_of(hr_machine *m, hr_text text, class_fn *is) {
  size_t size;
  hr_machine_work(m, text.length);
  for (size_t i = 0; i < text.length; i += size) {
    int32_t c = hr_code_point(text.bytes + i, text.length - i, &size);
    if (c < 0 || !is(c)) return hr_bool(false);
  }
  return hr_bool(text.length > 0);
}

HR_BUILTIN(text_isalpha) {
  return all_of(m, self.text, is_letter);
}

HR_BUILTIN(text_isdigit) {
  return all_of(m, self.text, is_digit);
}

HR_BUILTIN(text_isalnum) {
  return all_of(m, self.text, hr_is_letter_or_digit);
}

HR_BUILTIN(text_isspace) {
  return all_of(m, self.text, hr_is_space);
}

static hr_datum test_of(hr_machine *m, hr_text name, hr_datum self) {
  hr_call none = {0};
  return hr_call_builtin(m, hr_find_test(name), "method", self, &none);
}

HR_BUILTIN(text_isupper) {
  return test_of(m, HR_TEXT("upper"), self);
}

HR_BUILTIN(text_islower) {
  return test_of(m, HR_TEXT("lower"), self);
}

/* --- Changing ------------------------------------------------------------------------ */

HR_BUILTIN(text_upper) {
  return hr_text_datum(hr_change_case(m, self.text, HR_UPPER));
}

HR_BUILTIN(text_lower) {
  return hr_text_datum(hr_change_case(m, self.text, HR_LOWER));
}

HR_BUILTIN(text_title) {
  return hr_text_datum(hr_change_case(m, self.text, HR_TITLE));
}

HR_BUILTIN(text_capitalize) {
  return hr_text_datum(hr_change_case(m, self.text, HR_CAPITAL));
}

HR_BUILTIN(text_replace) {
  hr_text old = hr_text_or(m, args[0], ""), by = hr_text_or(m, args[1], "");
  return hr_text_datum(hr_replace(m, self.text, old, by, hr_whole_or(m, args[2], -1)));
}

static hr_datum split(hr_machine *m, hr_text text, const hr_datum *args, bool from_right) {
  bool at_space = !hr_given(args[0]) || args[0].kind == HR_NONE;
  hr_text separator = at_space ? HR_TEXT("") : hr_text_or(m, args[0], "");
  if (!at_space && separator.length == 0) return hr_machine_fail(m, "empty separator");
  return hr_list_datum(HR_LIST,
                       hr_split(m, text, separator, hr_whole_or(m, args[1], -1), from_right));
}

HR_BUILTIN(text_split) {
  return split(m, self.text, args, false);
}

HR_BUILTIN(text_rsplit) {
  return split(m, self.text, args, true);
}

HR_BUILTIN(text_splitlines) {
  if (hr_truth(args[0])) return hr_machine_fail(m, "'splitlines' with ends is not supported");
  return hr_list_datum(HR_LIST, hr_split_lines(m, self.text));
}

HR_BUILTIN(text_join) {
  const hr_list *list = hr_elements(m, args[0]);
  hr_builder b = {.machine = m};
  for (size_t i = 0; list && i < list->count && hr_machine_step(m, 0); i++) {
    if (i) hr_add_text(&b, self.text);
    hr_add_text(&b, hr_text_or(m, list->item[i], ""));
  }
  return hr_text_datum(hr_built(&b));
}

/* Three parts around the separator, which is first or last. */
static hr_datum partition(hr_machine *m, hr_text text, hr_datum by, bool last) {
  hr_text separator = hr_text_or(m, by, "");
  if (separator.length == 0) return hr_machine_fail(m, "empty separator");
  const hr_list *parts = hr_split(m, text, separator, 1, last);
  hr_datum empty = hr_literal("");
  hr_list *three = hr_list_new(m, 3);
  if (m->failed) return empty;
  bool found = parts->count == 2;
  hr_list_add(m, three, found || !last ? parts->item[0] : empty);
  hr_list_add(m, three, found ? hr_text_datum(separator) : empty);
  hr_list_add(m, three, found ? parts->item[1] : last ? parts->item[0] : empty);
  return hr_list_datum(HR_TUPLE, three);
}

HR_BUILTIN(text_partition) {
  return partition(m, self.text, args[0], false);
}

HR_BUILTIN(text_rpartition) {
  return partition(m, self.text, args[0], true);
}

static void add_fill(hr_builder *b, hr_text fill, int64_t count) {
  for (; count > 0 && !b->machine->failed; count--) hr_add_text(b, fill);
}

/* Filled up to a width on the left, the right or both. */
static hr_datum justify(hr_machine *m, hr_text text, const hr_datum *args, bool left, bool right) {
  hr_text fill = hr_text_or(m, args[1], " ");
  int64_t width = hr_whole_or(m, args[0], 0), gap = hr_gap(m, text, width);
  if (hr_characters(m, fill) != 1) return hr_machine_fail(m, "the filling is not one character");
  if (gap == 0) return hr_text_datum(text);
  int64_t before = left && right ? gap / 2 + (gap & width & 1) : left ? gap : 0;
  hr_builder b = {.machine = m};
  add_fill(&b, fill, before);
  hr_add_text(&b, text);
  add_fill(&b, fill, gap - before);
  return hr_text_datum(hr_built(&b));
}

HR_BUILTIN(text_ljust) {
  return justify(m, self.text, args, false, true);
}

HR_BUILTIN(text_rjust) {
  return justify(m, self.text, args, true, false);
}

HR_BUILTIN(text_center) {
  return justify(m, self.text, args, true, true);
}

HR_BUILTIN(text_zfill) {
  bool sign = self.text.length && (self.text.bytes[0] == '-' || self.text.bytes[0] == '+');
  int64_t gap = hr_gap(m, self.text, hr_whole_or(m, args[0], 0));
  hr_builder b = {.machine = m};
  hr_add_text(&b, hr_text_part(self.text, 0, sign));
  add_fill(&b, HR_TEXT("0"), gap);
  hr_add_text(&b, hr_text_part(self.text, sign, self.text.length));
  return hr_text_datum(hr_built(&b));
}

/* The value for "{}", "{0}" or "{name}". */
static hr_datum format_value(hr_machine *m, hr_text field, const hr_call *call, size_t *next) {
  const hr_datum *named = hr_dict_find_name(m, call->named, field);
  size_t index = 0;
  if (named) return *named;
  if (field.length == 0) index = (*next)++;
  for (size_t i = 0; i < field.length; i++) {
    if (field.bytes[i] < '0' || field.bytes[i] > '9' || i > 3)
      return hr_machine_fail(m, "the field '{%.*s}' of 'format' is not supported", HR_SHOW(field));
    index = index * 10 + (size_t)(field.bytes[i] - '0');
  }
  if (index >= call->count) return hr_machine_fail(m, "not enough arguments for 'format'");
  return call->item[index];
}

HR_BUILTIN(text_format) {
  hr_text text = self.text;
  hr_builder b = {.machine = m};
  size_t next = 0;
  for (size_t i = 0; i < text.length && !m->failed; i++) {
    char c = text.bytes[i];
    bool brace = c == '{' || c == '}';
    if (brace && i + 1 < text.length && text.bytes[i + 1] == c) i++; /* doubled: itself */
    else if (c == '}') return hr_machine_fail(m, "a single '}' in a format");
    else if (c == '{') {
      size_t end = hr_text_find(m, text, HR_TEXT("}"), i);
      if (end == SIZE_MAX) return hr_machine_fail(m, "a single '{' in a format");
      hr_datum value = format_value(m, hr_text_part(text, i + 1, end), call, &next);
      hr_add_text(&b, hr_to_text(m, value));
      i = end;
      continue;
    }
    hr_add_text(&b, hr_text_part(text, i, i + 1));
  }
  return hr_text_datum(hr_built(&b));
}

static const hr_builtin text_methods[] = {
    {"strip", text_strip, 0, "chars"},
    {"lstrip", text_lstrip, 0, "chars"},
    {"rstrip", text_rstrip, 0, "chars"},
    {"startswith", text_startswith, 1, "prefix"},
    {"endswith", text_endswith, 1, "suffix"},
    {"removeprefix", text_removeprefix, 1, "prefix"},
    {"removesuffix", text_removesuffix, 1, "suffix"},
    {"find", text_find, 1, "sub"},
    {"rfind", text_rfind, 1, "sub"},
    {"index", text_index, 1, "sub"},
    {"count", text_count, 1, "sub"},
    {"isalpha", text_isalpha, 0, ""},
    {"isdigit", text_isdigit, 0, ""},
    {"isdecimal", text_isdigit, 0, ""},
    {"isalnum", text_isalnum, 0, ""},
    {"isspace", text_isspace, 0, ""},
    {"isupper", text_isupper, 0, ""},
    {"islower", text_islower, 0, ""},
    {"upper", text_upper, 0, ""},
    {"lower", text_lower, 0, ""},
    {"title", text_title, 0, ""},
    {"capitalize", text_capitalize, 0, ""},
    {"replace", text_replace, 2, "old new count"},
    {"split", text_split, 0, "sep maxsplit"},
    {"rsplit", text_rsplit, 0, "sep maxsplit"},
    {"splitlines", text_splitlines, 0, "keepends"},
    {"join", text_join, 1, "iterable"},
    {"partition", text_partition, 1, "sep"},
    {"rpartition", text_rpartition, 1, "sep"},
    {"ljust", text_ljust, 1, "width fillchar"},
    {"rjust", text_rjust, 1, "width fillchar"},
    {"center", text_center, 1, "width fillchar"},
    {"zfill", text_zfill, 1, "width"},
    {"format", text_format, 0, "*"},
};

/* --- Dicts and lists --------------------------------------------------------------------- */

HR_BUILTIN(dict_get) {
  const hr_datum *value = hr_dict_find(m, self.dict, args[0]);
  if (value) return *value;
  return hr_given(args[1]) ? args[1] : hr_none();
}

HR_BUILTIN(dict_items) {
  hr_list *list = hr_list_new(m, self.dict->count);
  for (size_t i = 0; i < self.dict->count && !m->failed; i++)
    hr_list_add(m, list, hr_pair(m, self.dict->key[i], self.dict->value[i]));
  return hr_list_datum(HR_LIST, list);
}

static hr_datum list_of(hr_machine *m, const hr_datum *item, size_t count) {
  hr_list *list = hr_list_new(m, count);
  for (size_t i = 0; i < count && !m->failed; i++) hr_list_add(m, list, item[i]);
  return hr_list_datum(HR_LIST, list);
}

HR_BUILTIN(dict_keys) {
  return list_of(m, self.dict->key, self.dict->count);
}

HR_BUILTIN(dict_values) {
  return list_of(m, self.dict->value, self.dict->count);
}

static const hr_builtin dict_methods[] = {
    {"get", dict_get, 1, "key default"},
    {"items", dict_items, 0, ""},
    {"keys", dict_keys, 0, ""},
    {"values", dict_values, 0, ""},
};

HR_BUILTIN(list_count) {
  int64_t count = 0;
  for (size_t i = 0; i < self.list->count && !m->failed; i++)
    count += hr_equal(m, self.list->item[i], args[0]);
  return hr_int(count);
}

HR_BUILTIN(list_index) {
  for (size_t i = 0; i < self.list->count && !m->failed; i++)
    if (hr_equal(m, self.list->item[i], args[0])) return hr_int((int64_t)i);
  return hr_machine_fail(m, "the value is not in the list");
}

static const hr_builtin list_methods[] = {
    {"count", list_count, 1, "value"},
    {"index", list_index, 1, "value"},
};

/* --- Loops ------------------------------------------------------------------------------- */

HR_BUILTIN(loop_cycle) {
  if (call->count == 0 || call->named) return hr_machine_fail(m, "'cycle' needs values");
  return call->item[self.loop->index % call->count];
}

HR_BUILTIN(loop_changed) {
  hr_datum now = list_of(m, call->item, call->count);
  const hr_list *before = self.loop->last_changed;
  if (m->failed) return now;
  bool same = before && hr_equal(m, hr_list_datum(HR_LIST, self.loop->last_changed), now);
  self.loop->last_changed = now.list;
  return hr_bool(!same);
}

static const hr_builtin loop_methods[] = {
    {"cycle", loop_cycle, 0, "*"},
    {"changed", loop_changed, 0, "*"},
};

/* --- Cyclers ----------------------------------------------------------------------------- */

HR_BUILTIN(cycler_next) {
  hr_datum current = self.list->item[self.list->next];
  self.list->next = (self.list->next + 1) % self.list->count;
  return current;
}

HR_BUILTIN(cycler_reset) {
  self.list->next = 0;
  return hr_none();
}

static const hr_builtin cycler_methods[] = {
    {"next", cycler_next, 0, ""},
    {"reset", cycler_reset, 0, ""},
};

const hr_builtin *hr_find_method(hr_datum d, hr_text name) {
  switch (d.kind) {
    case HR_TEXT_DATUM: return HR_FIND(text_methods, name);
    case HR_DICT: return HR_FIND(dict_methods, name);
    case HR_LIST:
    case HR_TUPLE: return HR_FIND(list_methods, name);
    case HR_LOOP: return HR_FIND(loop_methods, name);
    case HR_CYCLER: return HR_FIND(cycler_methods, name);
    default: return NULL;
  }
}
