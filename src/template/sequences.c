/* SPDX-License-Identifier: MIT
 * Filters on lists and dicts. */
#include <string.h>

#include "template/builtins.h"

/* --- Attributes by path ------------------------------------------------------------ */

static hr_datum path_part(hr_text part) {
  int64_t index = 0;
  if (part.length == 0 || part.length > 9) return hr_text_datum(part);
  for (size_t i = 0; i < part.length; i++) {
    if (part.bytes[i] < '0' || part.bytes[i] > '9') return hr_text_datum(part);
    index = index * 10 + (part.bytes[i] - '0');
  }
  return hr_int(index);
}

static hr_datum step(hr_machine *m, hr_datum d, hr_datum part, const hr_datum *otherwise) {
  d = hr_item(m, d, part);
  return d.kind == HR_UNDEFINED && otherwise ? *otherwise : d;
}

hr_datum hr_follow(hr_machine *m, hr_datum d, hr_datum path, const hr_datum *otherwise) {
  if (!hr_machine_step(m, 0) || !hr_given(path) || path.kind == HR_NONE) return d;
  if (path.kind != HR_TEXT_DATUM) return step(m, d, path, otherwise);
  for (hr_text rest = path.text; hr_machine_step(m, 0);) {
    size_t dot = hr_text_find(m, rest, HR_TEXT("."), 0);
    bool last = dot == SIZE_MAX;
    d = step(m, d, path_part(hr_text_part(rest, 0, last ? rest.length : dot)), otherwise);
    if (last) break;
    rest = hr_text_part(rest, dot + 1, rest.length);
  }
  return d;
}

/* --- Order --------------------------------------------------------------------------- */

static hr_datum without_case(hr_machine *m, hr_datum d) {
  return d.kind == HR_TEXT_DATUM ? hr_text_datum(hr_change_case(m, d.text, HR_LOWER)) : d;
}

/* What an element is ordered or compared by. "a,b" is both of them. */
static hr_datum key_of(hr_machine *m, hr_datum d, hr_datum attribute, bool fold, bool many) {
  size_t comma = many && attribute.kind == HR_TEXT_DATUM
                     ? hr_text_find(m, attribute.text, HR_TEXT(","), 0)
                     : SIZE_MAX;
  if (comma == SIZE_MAX) {
    d = hr_follow(m, d, attribute, NULL);
    return fold ? without_case(m, d) : d;
  }
  const hr_list *names = hr_split(m, attribute.text, HR_TEXT(","), -1, false);
  hr_list *keys = hr_list_new(m, 2);
  for (size_t i = 0; names && i < names->count && !m->failed; i++)
    hr_list_add(m, keys, key_of(m, d, names->item[i], fold, false));
  return hr_list_datum(HR_TUPLE, keys);
}

/* What is equal needs no order: none beside none. */
static int order_of_keys(hr_machine *m, hr_datum a, hr_datum b) {
  return hr_equal(m, a, b) ? 0 : hr_compare(m, a, b);
}

/* Merges two sorted halves of [from, to) in order; ties keep their places. */
static void merge(hr_machine *m, const hr_datum *keys, size_t *order, size_t *scratch, size_t from,
                  size_t middle, size_t to, bool down) {
  size_t left = from, right = middle;
  for (size_t i = from; i < to && !m->failed; i++) {
    bool take_left = left < middle;
    if (take_left && right < to) {
      int c = order_of_keys(m, keys[order[right]], keys[order[left]]);
      take_left = down ? c <= 0 : c >= 0;
    }
    scratch[i] = order[take_left ? left++ : right++];
  }
  memcpy(order + from, scratch + from, (to - from) * sizeof *order);
}

/* The list in the order of its keys. */
static hr_datum sorted(hr_machine *m, const hr_list *list, const hr_datum *keys, bool down) {
  size_t n = list->count;
  size_t *order = hr_machine_alloc(m, n, sizeof *order);
  size_t *scratch = hr_machine_alloc(m, n, sizeof *scratch);
  hr_list *result = hr_list_new(m, n);
  if (m->failed) return hr_none();
  for (size_t i = 0; i < n; i++) order[i] = i;
  for (size_t width = 1; width < n; width *= 2)
    for (size_t from = 0; from + width < n; from += 2 * width)
      merge(m, keys, order, scratch, from, from + width,
            from + 2 * width < n ? from + 2 * width : n, down);
  for (size_t i = 0; i < n && !m->failed; i++) hr_list_add(m, result, list->item[order[i]]);
  return hr_list_datum(HR_LIST, result);
}

static hr_datum *keys_of(hr_machine *m, const hr_list *list, hr_datum attribute, bool fold) {
  hr_datum *keys = list ? hr_machine_alloc(m, list->count, sizeof *keys) : NULL;
  for (size_t i = 0; keys && i < list->count && !m->failed; i++)
    keys[i] = key_of(m, list->item[i], attribute, fold, true);
  return keys;
}

HR_BUILTIN(filter_sort) {
  const hr_list *list = hr_elements(m, self);
  hr_datum *keys = keys_of(m, list, args[2], !hr_truth(args[1]));
  return keys ? sorted(m, list, keys, hr_truth(args[0])) : hr_none();
}

HR_BUILTIN(filter_dictsort) {
  if (self.kind != HR_DICT) return hr_machine_fail(m, "'dictsort' needs a dict");
  hr_text by = hr_text_or(m, args[1], "key");
  if (!hr_text_is(by, "key") && !hr_text_is(by, "value"))
    return hr_machine_fail(m, "'dictsort' sorts by key or value");
  hr_list *pairs = hr_list_new(m, self.dict->count);
  for (size_t i = 0; i < self.dict->count && !m->failed; i++)
    hr_list_add(m, pairs, hr_pair(m, self.dict->key[i], self.dict->value[i]));
  hr_datum *keys = keys_of(m, pairs, hr_int(hr_text_is(by, "value")), !hr_truth(args[0]));
  return keys ? sorted(m, pairs, keys, hr_truth(args[2])) : hr_none();
}

static hr_datum extreme(hr_machine *m, hr_datum self, const hr_datum *args, int wanted) {
  const hr_list *list = hr_elements(m, self);
  hr_datum *keys = keys_of(m, list, args[1], !hr_truth(args[0]));
  if (!keys) return hr_none();
  if (list->count == 0) return hr_undefined(HR_TEXT("an element of an empty list"));
  size_t best = 0;
  for (size_t i = 1; i < list->count && !m->failed; i++) {
    int order = hr_compare(m, keys[i], keys[best]);
    if (wanted < 0 ? order < 0 : order > 0) best = i;
  }
  return list->item[best];
}

HR_BUILTIN(filter_min) {
  return extreme(m, self, args, -1);
}

HR_BUILTIN(filter_max) {
  return extreme(m, self, args, 1);
}

HR_BUILTIN(filter_unique) {
  const hr_list *list = hr_elements(m, self);
  hr_list *seen = hr_list_new(m, 0), *result = hr_list_new(m, 0);
  for (size_t i = 0; list && i < list->count && !m->failed; i++) {
    hr_datum key = key_of(m, list->item[i], args[1], !hr_truth(args[0]), false);
    if (hr_contains(m, hr_list_datum(HR_LIST, seen), key)) continue;
    hr_list_add(m, seen, key);
    hr_list_add(m, result, list->item[i]);
  }
  return hr_list_datum(HR_STREAM, result);
}

HR_BUILTIN(filter_reverse) {
  if (self.kind != HR_TEXT_DATUM && !hr_is_sequence(self) && self.kind != HR_STREAM &&
      self.kind != HR_DICT && self.kind != HR_UNDEFINED)
    return hr_machine_fail(m, "a '%s' can't be reversed", hr_kind_name(self));
  const hr_list *list = hr_elements(m, self);
  hr_list *result = hr_list_new(m, list ? list->count : 0);
  hr_builder b = {.machine = m};
  for (size_t i = list ? list->count : 0; i-- > 0 && !m->failed;) {
    if (self.kind == HR_TEXT_DATUM)
      hr_add_text(&b, list->item[i].text);
    else
      hr_list_add(m, result, list->item[i]);
  }
  if (self.kind == HR_TEXT_DATUM) return hr_text_datum(hr_built(&b));
  return hr_list_datum(HR_STREAM, result);
}

/* --- Choosing elements ------------------------------------------------------------------ */

/* map, select and their like take anything that is false for an empty list. */
static hr_list *elements_or_none(hr_machine *m, hr_datum d) {
  return hr_truth(d) ? hr_elements(m, d) : hr_list_new(m, 0);
}

/* A call's arguments from some place on. */
static hr_call rest_of(const hr_call *call, size_t from) {
  hr_call rest = *call;
  rest.item += from;
  rest.count -= from;
  return rest;
}

/* The elements for which a test holds, or does not. skip: arguments before the
 * name of the test; attribute: what of an element is tested. */
static hr_datum choose(hr_machine *m, hr_datum self, const hr_call *call, size_t skip,
                       hr_datum attribute, bool wanted) {
  const hr_builtin *test = NULL;
  hr_call rest = {0};
  if (call->count > skip) {
    hr_text name = hr_text_or(m, call->item[skip], "");
    test = hr_find_test(name);
    if (!test) return hr_machine_fail(m, "test '%.*s' is not supported", HR_SHOW(name));
    rest = rest_of(call, skip + 1);
  }
  const hr_list *list = elements_or_none(m, self);
  hr_list *result = hr_list_new(m, 0);
  for (size_t i = 0; list && i < list->count && !m->failed; i++) {
    hr_datum d = hr_follow(m, list->item[i], attribute, NULL);
    if (test) d = hr_call_builtin(m, test, "test", d, &rest);
    if (hr_truth(d) == wanted) hr_list_add(m, result, list->item[i]);
  }
  return hr_list_datum(HR_STREAM, result);
}

static const hr_datum absent = {.kind = HR_ABSENT};

HR_BUILTIN(filter_select) {
  return choose(m, self, call, 0, absent, true);
}

HR_BUILTIN(filter_reject) {
  return choose(m, self, call, 0, absent, false);
}

static hr_datum choose_by(hr_machine *m, hr_datum self, const hr_call *call, bool wanted) {
  if (call->count == 0) return hr_machine_fail(m, "the name of an attribute is needed");
  return choose(m, self, call, 1, call->item[0], wanted);
}

HR_BUILTIN(filter_selectattr) {
  return choose_by(m, self, call, true);
}

HR_BUILTIN(filter_rejectattr) {
  return choose_by(m, self, call, false);
}

static hr_datum map_one(hr_machine *m, hr_datum d, const hr_call *call, const hr_datum *attribute) {
  if (!attribute) {
    hr_call rest = rest_of(call, 1);
    return hr_call_builtin(m, hr_find_filter(call->item[0].text), "filter", d, &rest);
  }
  return hr_follow(m, d, *attribute, hr_dict_find_name(m, call->named, HR_TEXT("default")));
}

HR_BUILTIN(filter_map) {
  const hr_datum *attribute =
      call->count ? NULL : hr_dict_find_name(m, call->named, HR_TEXT("attribute"));
  if (!attribute) {
    hr_text name = hr_text_or(m, call->count ? call->item[0] : absent, "");
    if (!hr_find_filter(name))
      return hr_machine_fail(m, "filter '%.*s' is not supported", HR_SHOW(name));
  }
  const hr_list *list = elements_or_none(m, self);
  hr_list *result = hr_list_new(m, list ? list->count : 0);
  for (size_t i = 0; list && i < list->count && !m->failed; i++)
    hr_list_add(m, result, map_one(m, list->item[i], call, attribute));
  return hr_list_datum(HR_STREAM, result);
}

/* --- Whole sequences ---------------------------------------------------------------------- */

HR_BUILTIN(filter_join) {
  const hr_list *list = hr_elements(m, self);
  hr_text between = hr_given(args[0]) ? hr_to_text(m, args[0]) : HR_TEXT("");
  hr_builder b = {.machine = m};
  for (size_t i = 0; list && i < list->count && !m->failed; i++) {
    if (i) hr_add_text(&b, between);
    hr_add_text(&b, hr_to_text(m, hr_follow(m, list->item[i], args[1], NULL)));
  }
  return hr_text_datum(hr_built(&b));
}

HR_BUILTIN(filter_first) {
  if (self.kind == HR_STREAM && self.list->next < self.list->count)
    return self.list->item[self.list->next++];
  const hr_list *list = hr_elements(m, self);
  if (list && list->count) return list->item[0];
  return hr_undefined(HR_TEXT("the first element of an empty list"));
}

HR_BUILTIN(filter_last) {
  if (self.kind == HR_STREAM) return hr_machine_fail(m, "a 'generator' has no last element");
  const hr_list *list = hr_elements(m, self);
  if (list && list->count) return list->item[list->count - 1];
  return hr_undefined(HR_TEXT("the last element of an empty list"));
}

HR_BUILTIN(filter_list) {
  const hr_list *list = hr_elements(m, self);
  hr_list *copy = hr_list_new(m, list ? list->count : 0);
  for (size_t i = 0; list && i < list->count && !m->failed; i++)
    hr_list_add(m, copy, list->item[i]);
  return hr_list_datum(HR_LIST, copy);
}

HR_BUILTIN(filter_items) {
  if (self.kind == HR_UNDEFINED) return hr_list_datum(HR_STREAM, hr_list_new(m, 0));
  if (self.kind != HR_DICT) return hr_machine_fail(m, "'items' needs a dict");
  hr_list *list = hr_list_new(m, self.dict->count);
  for (size_t i = 0; i < self.dict->count && !m->failed; i++)
    hr_list_add(m, list, hr_pair(m, self.dict->key[i], self.dict->value[i]));
  return hr_list_datum(HR_STREAM, list);
}

static bool add_number(hr_machine *m, hr_datum *sum, hr_datum d) {
  if (!hr_is_number(d) || !hr_is_number(*sum)) {
    if (d.kind == HR_UNDEFINED) hr_fail_undefined(m, d);
    hr_machine_fail(m, "'sum' of a '%s' is not supported", hr_kind_name(d));
  } else if (sum->kind == HR_REAL || d.kind == HR_REAL) {
    *sum = hr_real(hr_number(*sum) + hr_number(d));
  } else {
    int64_t a = hr_truncate(m, *sum).integer, total;
    if (__builtin_add_overflow(a, hr_truncate(m, d).integer, &total))
      hr_machine_fail(m, "a number is too large");
    else
      *sum = hr_int(total);
  }
  return !m->failed;
}

HR_BUILTIN(filter_sum) {
  const hr_list *list = hr_elements(m, self);
  hr_datum sum = hr_given(args[1]) ? args[1] : hr_int(0);
  for (size_t i = 0; list && i < list->count; i++)
    if (!add_number(m, &sum, hr_follow(m, list->item[i], args[0], NULL))) break;
  return sum;
}

HR_BUILTIN(filter_batch) {
  const hr_list *list = hr_elements(m, self);
  int64_t width = hr_whole_or(m, args[0], 1);
  hr_list *result = hr_list_new(m, 0), *row = NULL;
  if (width < 1) return hr_machine_fail(m, "'batch' needs a number above 0");
  for (size_t i = 0; list && i < list->count && !m->failed; i++) {
    if (i % (size_t)width == 0) {
      row = hr_list_new(m, 0);
      hr_list_add(m, result, hr_list_datum(HR_LIST, row));
    }
    hr_list_add(m, row, list->item[i]);
  }
  bool fill = row && hr_given(args[1]) && args[1].kind != HR_NONE;
  while (fill && !m->failed && row->count < (size_t)width) hr_list_add(m, row, args[1]);
  return hr_list_datum(HR_STREAM, result);
}

static const hr_builtin filters[] = {
    {"join", filter_join, 0, "d attribute"},
    {"first", filter_first, 0, ""},
    {"last", filter_last, 0, ""},
    {"list", filter_list, 0, ""},
    {"items", filter_items, 0, ""},
    {"map", filter_map, 0, "*"},
    {"select", filter_select, 0, "*"},
    {"reject", filter_reject, 0, "*"},
    {"selectattr", filter_selectattr, 0, "*"},
    {"rejectattr", filter_rejectattr, 0, "*"},
    {"sort", filter_sort, 0, "reverse case_sensitive attribute"},
    {"dictsort", filter_dictsort, 0, "case_sensitive by reverse"},
    {"unique", filter_unique, 0, "case_sensitive attribute"},
    {"min", filter_min, 0, "case_sensitive attribute"},
    {"max", filter_max, 0, "case_sensitive attribute"},
    {"sum", filter_sum, 0, "attribute start"},
    {"reverse", filter_reverse, 0, ""},
    {"batch", filter_batch, 1, "linecount fill_with"},
};

const hr_builtin *hr_find_sequence_filter(hr_text name) {
  return HR_FIND(filters, name);
}
