/* SPDX-License-Identifier: MIT
 * Filters on single values. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "template/builtins.h"

/* --- Text ------------------------------------------------------------------------- */

HR_BUILTIN(filter_string) {
  return hr_text_datum(hr_to_text(m, self));
}

HR_BUILTIN(filter_upper) {
  return hr_text_datum(hr_change_case(m, hr_to_text(m, self), HR_UPPER));
}

HR_BUILTIN(filter_lower) {
  return hr_text_datum(hr_change_case(m, hr_to_text(m, self), HR_LOWER));
}

HR_BUILTIN(filter_capitalize) {
  return hr_text_datum(hr_change_case(m, hr_to_text(m, self), HR_CAPITAL));
}

/* Words begin after blanks, dashes and opening brackets. */
static bool begins_word(int32_t c) {
  return hr_is_space(c) || (c > 0 && c < 0x80 && strchr("-({[<", c));
}

/* Bytes up to the next character that begins a word, or up to one that doesn't. */
static size_t run_length(hr_text text, size_t from, bool separators) {
  size_t at = from, size;
  while (at < text.length &&
         begins_word(hr_code_point(text.bytes + at, text.length - at, &size)) == separators)
    at += size;
  return at - from;
}

HR_BUILTIN(filter_title) {
  hr_text text = hr_to_text(m, self);
  hr_builder b = {.machine = m};
  for (size_t at = 0; at < text.length && !m->failed;) {
    size_t gap = run_length(text, at, true), word = run_length(text, at + gap, false), first = 0;
    hr_add_text(&b, hr_text_part(text, at, at + gap));
    at += gap;
    if (word) hr_code_point(text.bytes + at, word, &first);
    hr_add_text(&b, hr_change_case(m, hr_text_part(text, at, at + first), HR_UPPER));
    hr_add_text(&b, hr_change_case(m, hr_text_part(text, at + first, at + word), HR_LOWER));
    at += word;
  }
  return hr_text_datum(hr_built(&b));
}

HR_BUILTIN(filter_trim) {
  hr_datum text = hr_text_datum(hr_to_text(m, self));
  hr_call strip = {.item = args, .count = hr_given(args[0]) && args[0].kind != HR_NONE};
  return hr_call_builtin(m, hr_find_method(text, HR_TEXT("strip")), "filter", text, &strip);
}

HR_BUILTIN(filter_replace) {
  hr_text old = hr_to_text(m, args[0]), by = hr_to_text(m, args[1]);
  int64_t most = args[2].kind == HR_NONE ? -1 : hr_whole_or(m, args[2], -1);
  return hr_text_datum(hr_replace(m, hr_to_text(m, self), old, by, most));
}

static hr_text spaces(hr_machine *m, int64_t count) {
  hr_builder b = {.machine = m};
  for (; count > 0 && !m->failed; count--) hr_add_literal(&b, " ");
  return hr_built(&b);
}

HR_BUILTIN(filter_indent) {
  hr_text text = hr_text_or(m, self, "");
  hr_text by = args[0].kind == HR_TEXT_DATUM ? args[0].text : spaces(m, hr_whole_or(m, args[0], 4));
  bool first = hr_truth(args[1]), blank = hr_truth(args[2]);
  hr_builder b = {.machine = m};
  const hr_list *lines = hr_split_lines(m, hr_concat(m, text, HR_TEXT("\n")));
  for (size_t i = 0; lines && i < lines->count && !m->failed; i++) {
    hr_text line = lines->item[i].text;
    if (i) hr_add_literal(&b, "\n");
    if (i ? blank || line.length : first) hr_add_text(&b, by);
    hr_add_text(&b, line);
  }
  return hr_text_datum(hr_built(&b));
}

HR_BUILTIN(filter_escape) {
  static const char special[] = "&<>'\"";
  static const char *const entity[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
  hr_text text = hr_to_text(m, self);
  hr_builder b = {.machine = m};
  size_t from = 0;
  for (size_t i = 0; i < text.length && !m->failed; i++) {
    const char *found = text.bytes[i] ? strchr(special, text.bytes[i]) : NULL;
    if (!found) continue;
    hr_add_text(&b, hr_text_part(text, from, i));
    hr_add_literal(&b, entity[found - special]);
    from = i + 1;
  }
  hr_add_text(&b, hr_text_part(text, from, text.length));
  return hr_text_datum(hr_built(&b));
}

HR_BUILTIN(filter_center) {
  hr_text text = hr_to_text(m, self);
  int64_t width = hr_whole_or(m, args[0], 80), gap = hr_gap(m, text, width);
  if (gap == 0 || m->failed) return hr_text_datum(text);
  int64_t left = gap / 2 + (gap & width & 1);
  hr_text padded = hr_concat(m, spaces(m, left), text);
  return hr_text_datum(hr_concat(m, padded, spaces(m, gap - left)));
}

HR_BUILTIN(filter_format) {
  hr_list *list = hr_list_new(m, call->count);
  if (call->named) return hr_machine_fail(m, "named arguments of 'format' are not supported");
  for (size_t i = 0; i < call->count; i++) hr_list_add(m, list, call->item[i]);
  hr_datum arguments = hr_list_datum(HR_TUPLE, list);
  return m->failed ? arguments : hr_percent(m, hr_to_text(m, self), arguments);
}

/* The bytes of the first characters. */
static size_t prefix_bytes(hr_text text, int64_t characters) {
  size_t at = 0, size;
  for (; characters > 0 && at < text.length; characters--, at += size)
    hr_code_point(text.bytes + at, text.length - at, &size);
  return at;
}

HR_BUILTIN(filter_truncate) {
  hr_text text = hr_text_or(m, self, ""), end = hr_text_or(m, args[2], "...");
  int64_t length = hr_whole_or(m, args[0], 255), leeway = hr_whole_or(m, args[3], 5);
  int64_t reserved = (int64_t)hr_characters(m, end);
  if (length < reserved) return hr_machine_fail(m, "'truncate' leaves no room for its end");
  if (leeway < 0) return hr_machine_fail(m, "the leeway of 'truncate' is below 0");
  if ((int64_t)hr_characters(m, text) - length <= leeway) return hr_text_datum(text);
  hr_text cut = hr_text_part(text, 0, prefix_bytes(text, length - reserved));
  const char *blank = cut.length ? memrchr(cut.bytes, ' ', cut.length) : NULL;
  if (!hr_truth(args[1]) && blank) cut.length = (size_t)(blank - cut.bytes);
  return hr_text_datum(hr_concat(m, cut, end));
}

/* Runs of letters, digits and underscores. */
HR_BUILTIN(filter_wordcount) {
  hr_text text = hr_to_text(m, self);
  int64_t words = 0;
  bool inside = false;
  size_t size;
  hr_machine_work(m, text.length);
  for (size_t i = 0; i < text.length; i += size) {
    int32_t c = hr_code_point(text.bytes + i, text.length - i, &size);
    bool part = c == '_' || hr_is_letter_or_digit(c);
    words += part && !inside;
    inside = part;
  }
  return hr_int(words);
}

/* --- Numbers ------------------------------------------------------------------------ */

/* Digits of a base with single underscores between them. */
static bool read_digits(hr_text text, int base, int64_t *value) {
  bool underscore = true;
  *value = 0;
  for (size_t i = 0; i < text.length; i++) {
    char c = text.bytes[i];
    if (c == '_' && !underscore) {
      underscore = true;
      continue;
    }
    int digit = c >= '0' && c <= '9' ? c - '0' : (c | 0x20) >= 'a' && (c | 0x20) <= 'z'
                                                     ? (c | 0x20) - 'a' + 10
                                                     : 99;
    if (digit >= base || __builtin_mul_overflow(*value, base, value) ||
        __builtin_add_overflow(*value, digit, value))
      return false;
    underscore = false;
  }
  return text.length > 0 && !underscore;
}

static bool read_integer(hr_text text, int base, int64_t *value) {
  text = hr_strip(text, true, true);
  bool minus = text.length && text.bytes[0] == '-';
  if (text.length && (minus || text.bytes[0] == '+')) text = hr_text_part(text, 1, text.length);
  if (text.length > 2 && text.bytes[0] == '0') {
    char mark = text.bytes[1] | 0x20;
    if ((base == 16 && mark == 'x') || (base == 8 && mark == 'o') || (base == 2 && mark == 'b'))
      text = hr_text_part(text, 2, text.length);
  }
  if (!read_digits(text, base, value)) return false;
  if (minus) *value = -*value;
  return true;
}

/* Python's float() of digits, a point and an exponent, in any locale. */
static bool read_real(hr_text text, double *value) {
  char number[128] = "";
  size_t n = 0;
  text = hr_strip(text, true, true);
  if (text.length > sizeof number / 2) return false;
  bool digit = false;
  for (size_t i = 0; i < text.length; i++) {
    char c = text.bytes[i];
    bool is_digit = c >= '0' && c <= '9';
    if (c == '+' && i == 0) continue;
    if (c == '.' && !digit) number[n++] = '0';
    /* JSON has no leading zeros. */
    if (is_digit && n && number[n - 1] == '0' && (n == 1 || number[n - 2] == '-')) n--;
    number[n++] = c;
    if (c == '.' && (i + 1 == text.length || (text.bytes[i + 1] | 0x20) == 'e')) {
      if (!digit) return false;
      number[n++] = '0';
    }
    digit |= is_digit;
  }
  json_t *json = json_loadb(number, n, JSON_DECODE_ANY | JSON_DECODE_INT_AS_REAL, NULL);
  bool good = json_is_real(json);
  *value = json_number_value(json);
  json_decref(json);
  return good;
}

HR_BUILTIN(filter_int) {
  int64_t value, base = hr_whole_or(m, args[1], 10);
  double real;
  if (base < 2 || base > 36) return hr_machine_fail(m, "the base of 'int' is not 2 to 36");
  hr_datum otherwise = hr_given(args[0]) ? args[0] : hr_int(0);
  if (self.kind == HR_UNDEFINED) return hr_fail_undefined(m, self);
  if (hr_is_number(self))
    return self.kind == HR_REAL && !isfinite(self.real) ? otherwise : hr_truncate(m, self);
  if (self.kind != HR_TEXT_DATUM || !hr_machine_work(m, self.text.length)) return otherwise;
  if (read_integer(self.text, (int)base, &value)) return hr_int(value);
  return read_real(self.text, &real) ? hr_truncate(m, hr_real(real)) : otherwise;
}

HR_BUILTIN(filter_float) {
  double real;
  if (self.kind == HR_UNDEFINED) return hr_fail_undefined(m, self);
  if (hr_is_number(self)) return hr_real(hr_number(self));
  bool text = self.kind == HR_TEXT_DATUM && hr_machine_work(m, self.text.length);
  if (text && read_real(self.text, &real)) return hr_real(real);
  return hr_given(args[0]) ? args[0] : hr_real(0);
}

HR_BUILTIN(filter_abs) {
  if (!hr_is_number(self)) return hr_machine_fail(m, "'abs' needs a number");
  if (self.kind == HR_REAL) return hr_real(fabs(self.real));
  int64_t value = hr_truncate(m, self).integer;
  if (value == INT64_MIN) return hr_machine_fail(m, "a number is too large");
  return hr_int(value < 0 ? -value : value);
}

/* To a number of decimal places as printing does it, which is exact. */
HR_BUILTIN(filter_round) {
  char text[400];
  int64_t places = hr_whole_or(m, args[0], 0);
  hr_text way = hr_text_or(m, args[1], "common");
  if (!hr_is_number(self)) return hr_machine_fail(m, "'round' needs a number");
  if (places < 0 || places > 15)
    return hr_machine_fail(m, "'round' to other than 0 to 15 places is not supported");
  double x = hr_number(self), scale = 1;
  if (hr_text_is(way, "common")) {
    if (self.kind != HR_REAL) return hr_truncate(m, self);
    snprintf(text, sizeof text, "%.*f", (int)places, x);
    return hr_real(strtod(text, NULL));
  }
  for (int64_t i = 0; i < places; i++) scale *= 10;
  if (hr_text_is(way, "ceil")) return hr_real(ceil(x * scale) / scale);
  if (hr_text_is(way, "floor")) return hr_real(floor(x * scale) / scale);
  return hr_machine_fail(m, "'round' knows common, ceil and floor");
}

/* --- The rest --------------------------------------------------------------------------- */

HR_BUILTIN(filter_default) {
  bool replaces = self.kind == HR_UNDEFINED || (hr_truth(args[1]) && !hr_truth(self));
  if (!replaces) return self;
  return hr_given(args[0]) ? args[0] : hr_literal("");
}

HR_BUILTIN(filter_safe) {
  return hr_text_datum(hr_to_text(m, self));
}

HR_BUILTIN(filter_length) {
  return hr_int((int64_t)hr_length(m, self));
}

HR_BUILTIN(filter_attr) {
  return hr_attribute(m, self, hr_text_or(m, args[0], ""));
}

static hr_text separator(hr_machine *m, hr_datum d, size_t which, const char *otherwise) {
  if (!hr_given(d) || d.kind == HR_NONE) return hr_literal(otherwise).text;
  const hr_list *pair = hr_is_sequence(d) && d.list->count == 2 ? d.list : NULL;
  if (!pair) hr_machine_fail(m, "the separators of 'tojson' are two texts");
  return pair ? hr_text_or(m, pair->item[which], "") : HR_TEXT("");
}

HR_BUILTIN(filter_tojson) {
  hr_datum indent = args[0];
  bool indented = hr_given(indent) && indent.kind != HR_NONE;
  hr_json_style style = {.indented = indented, .sort_keys = hr_truth(args[3])};
  style.item_separator = separator(m, args[2], 0, indented ? "," : ", ");
  style.key_separator = separator(m, args[2], 1, ": ");
  if (indented && indent.kind == HR_TEXT_DATUM) style.indent = indent.text;
  else if (indented) style.indent = spaces(m, hr_whole_or(m, indent, 0));
  if (hr_truth(args[1])) return hr_machine_fail(m, "ensure_ascii of 'tojson' is not supported");
  hr_builder b = {.machine = m};
  hr_add_json(&b, self, &style, 0);
  return hr_text_datum(hr_built(&b));
}

static const hr_builtin filters[] = {
    {"string", filter_string, 0, ""},
    {"upper", filter_upper, 0, ""},
    {"lower", filter_lower, 0, ""},
    {"capitalize", filter_capitalize, 0, ""},
    {"title", filter_title, 0, ""},
    {"trim", filter_trim, 0, "chars"},
    {"replace", filter_replace, 2, "old new count"},
    {"indent", filter_indent, 0, "width first blank"},
    {"escape", filter_escape, 0, ""},
    {"e", filter_escape, 0, ""},
    {"center", filter_center, 0, "width"},
    {"format", filter_format, 0, "*"},
    {"truncate", filter_truncate, 0, "length killwords end leeway"},
    {"wordcount", filter_wordcount, 0, ""},
    {"int", filter_int, 0, "default base"},
    {"float", filter_float, 0, "default"},
    {"abs", filter_abs, 0, ""},
    {"round", filter_round, 0, "precision method"},
    {"default", filter_default, 0, "default_value boolean"},
    {"d", filter_default, 0, "default_value boolean"},
    {"safe", filter_safe, 0, ""},
    {"length", filter_length, 0, ""},
    {"count", filter_length, 0, ""},
    {"attr", filter_attr, 1, "name"},
    {"tojson", filter_tojson, 0, "indent ensure_ascii separators sort_keys"},
};

const hr_builtin *hr_find_filter(hr_text name) {
  const hr_builtin *found = HR_FIND(filters, name);
  return found ? found : hr_find_sequence_filter(name);
}
