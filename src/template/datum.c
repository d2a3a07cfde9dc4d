/* SPDX-License-Identifier: MIT */
#include "template/datum.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

/* --- Failing --------------------------------------------------------------------- */

hr_datum hr_machine_fail(hr_machine *m, const char *format, ...) {
  if (!m->failed) {
    char what[400];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    m->failed = true;
    m->status = hr_fail(m->err, HR_ERROR_FILE, "%s, line %u: %s", m->name, m->line, what);
  }
  return (hr_datum){.kind = HR_UNDEFINED};
}

void *hr_machine_alloc(hr_machine *m, size_t count, size_t size) {
  size_t bytes;
  if (m->failed) return NULL;
  if (__builtin_mul_overflow(count, size, &bytes)) bytes = SIZE_MAX;
  void *block = hr_arena_alloc(&m->arena, bytes);
  if (block) return block;
  if (m->arena.over_limit) {
    hr_machine_fail(m, "needs more than %zu MiB", m->arena.limit >> 20);
  } else {
    m->failed = true;
    m->status = hr_fail(m->err, HR_ERROR_MEMORY, "%s: no memory to render it", m->name);
  }
  return NULL;
}

bool hr_machine_work(hr_machine *m, size_t bytes) {
  m->work += bytes;
  if (m->work > (uint64_t)HR_TEMPLATE_STEPS * HR_STEP_BYTES)
    hr_machine_fail(m, "takes more than %d steps", HR_TEMPLATE_STEPS);
  return !m->failed;
}

bool hr_machine_step(hr_machine *m, size_t bytes) {
  return hr_machine_work(m, HR_STEP_BYTES + bytes);
}

bool hr_machine_enter(hr_machine *m) {
  if (m->depth >= HR_TEMPLATE_DEPTH) hr_machine_fail(m, "is nested too deeply");
  if (!m->failed) m->depth++;
  return !m->failed;
}

void hr_machine_leave(hr_machine *m) {
  m->depth--;
}

/* --- Lists and dicts ---------------------------------------------------------------- */

hr_list *hr_list_new(hr_machine *m, size_t capacity) {
  hr_list *list = hr_machine_alloc(m, 1, sizeof *list);
  hr_datum *item = hr_machine_alloc(m, capacity, sizeof *item);
  if (!list || !item) return NULL;
  *list = (hr_list){.item = item, .capacity = capacity};
  return list;
}

/* Room for one more of what a block holds. */
static void *room(hr_machine *m, void *block, size_t count, size_t *capacity) {
  if (count < *capacity) return block;
  *capacity = count * 2 + 4;
  hr_datum *grown = hr_machine_alloc(m, *capacity, sizeof *grown);
  if (grown && count) memcpy(grown, block, count * sizeof *grown);
  return grown;
}

void hr_list_add(hr_machine *m, hr_list *list, hr_datum item) {
  if (m->failed || !list || !hr_machine_step(m, 0)) return;
  hr_datum *items = room(m, list->item, list->count, &list->capacity);
  if (!items) return;
  list->item = items;
  list->item[list->count++] = item;
}

hr_datum hr_pair(hr_machine *m, hr_datum a, hr_datum b) {
  hr_list *list = hr_list_new(m, 2);
  hr_list_add(m, list, a);
  hr_list_add(m, list, b);
  return hr_list_datum(HR_TUPLE, list);
}

hr_dict *hr_dict_new(hr_machine *m) {
  return hr_machine_alloc(m, 1, sizeof(hr_dict));
}

static bool is_hashable(hr_machine *m, hr_datum d) {
  if (d.kind != HR_TUPLE) return d.kind != HR_LIST && d.kind != HR_DICT;
  if (!hr_machine_enter(m)) return false;
  size_t i = 0;
  while (i < d.list->count && hr_machine_step(m, 0) && is_hashable(m, d.list->item[i])) i++;
  hr_machine_leave(m);
  return i == d.list->count;
}

const hr_datum *hr_dict_find(hr_machine *m, const hr_dict *dict, hr_datum key) {
  if (!dict) return NULL;
  if (!is_hashable(m, key)) {
    hr_machine_fail(m, "a '%s' can't be a key", hr_kind_name(key));
    return NULL;
  }
  for (size_t i = 0; i < dict->count && hr_machine_step(m, 0); i++)
    if (hr_equal(m, dict->key[i], key)) return &dict->value[i];
  return NULL;
}

const hr_datum *hr_dict_find_name(hr_machine *m, const hr_dict *dict, hr_text name) {
  for (size_t i = 0; dict && i < dict->count; i++)
    if (dict->key[i].kind == HR_TEXT_DATUM && hr_name_is(m, dict->key[i].text, name))
      return &dict->value[i];
  return NULL;
}

void hr_dict_set(hr_machine *m, hr_dict *dict, hr_datum key, hr_datum value) {
  if (!dict) return;
  const hr_datum *old = hr_dict_find(m, dict, key);
  if (m->failed) return;
  if (old) {
    dict->value[old - dict->value] = value;
    return;
  }
  size_t capacity = dict->capacity;
  hr_datum *keys = room(m, dict->key, dict->count, &capacity);
  hr_datum *values = room(m, dict->value, dict->count, &dict->capacity);
  if (!keys || !values) return;
  dict->key = keys;
  dict->value = values;
  dict->key[dict->count] = key;
  dict->value[dict->count++] = value;
}

/* --- Asking ----------------------------------------------------------------------------- */

bool hr_is_number(hr_datum d) {
  return d.kind == HR_BOOL || d.kind == HR_INT || d.kind == HR_REAL;
}

double hr_number(hr_datum d) {
  if (d.kind == HR_BOOL) return d.truth;
  return d.kind == HR_INT ? (double)d.integer : d.kind == HR_REAL ? d.real : 0.0;
}

hr_datum hr_truncate(hr_machine *m, hr_datum d) {
  if (d.kind == HR_BOOL) return hr_int(d.truth);
  if (d.kind != HR_REAL) return d;
  if (d.real > -0x1p63 && d.real < 0x1p63) return hr_int((int64_t)d.real);
  return hr_machine_fail(m, "a number is too large for a whole number");
}

const char *hr_kind_name(hr_datum d) {
  switch (d.kind) {
    case HR_UNDEFINED:
    case HR_ABSENT: return "undefined";
    case HR_NONE: return "none";
    case HR_BOOL: return "bool";
    case HR_INT: return "int";
    case HR_REAL: return "float";
    case HR_TEXT_DATUM: return "str";
    case HR_LIST: return "list";
    case HR_TUPLE: return "tuple";
    case HR_STREAM: return "generator";
    case HR_DICT: return "dict";
    case HR_NAMESPACE: return "namespace";
    case HR_FUNCTION: return "function";
    case HR_MACRO: return "macro";
    case HR_LOOP: return "loop";
    case HR_CYCLER: return "cycler";
  }
  return "value";
}

bool hr_truth(hr_datum d) {
  switch (d.kind) {
    case HR_UNDEFINED:
    case HR_ABSENT:
    case HR_NONE: return false;
    case HR_BOOL: return d.truth;
    case HR_INT: return d.integer != 0;
    case HR_REAL: return d.real != 0;
    case HR_TEXT_DATUM: return d.text.length > 0;
    case HR_LIST:
    case HR_TUPLE: return d.list->count > 0;
    case HR_DICT: return d.dict->count > 0;
    default: return true;
  }
}

static bool equal_lists(hr_machine *m, const hr_list *a, const hr_list *b) {
  if (a->count != b->count) return false;
  for (size_t i = 0; i < a->count && !m->failed; i++)
    if (!hr_equal(m, a->item[i], b->item[i])) return false;
  return true;
}

static bool equal_dicts(hr_machine *m, const hr_dict *a, const hr_dict *b) {
  if (a->count != b->count) return false;
  for (size_t i = 0; i < a->count && !m->failed; i++) {
    const hr_datum *other = hr_dict_find(m, b, a->key[i]);
    if (!other || !hr_equal(m, a->value[i], *other)) return false;
  }
  return true;
}

static bool equal_inside(hr_machine *m, hr_datum a, hr_datum b) {
  if (!hr_machine_enter(m)) return false;
  bool equal = a.kind == HR_DICT ? equal_dicts(m, a.dict, b.dict) : equal_lists(m, a.list, b.list);
  hr_machine_leave(m);
  return equal;
}

bool hr_equal(hr_machine *m, hr_datum a, hr_datum b) {
  if (!hr_machine_step(m, a.kind == HR_TEXT_DATUM ? a.text.length : 0)) return false;
  if (a.kind != HR_REAL && b.kind != HR_REAL && hr_is_number(a) && hr_is_number(b))
    return hr_truncate(m, a).integer == hr_truncate(m, b).integer;
  if (hr_is_number(a) && hr_is_number(b)) return hr_number(a) == hr_number(b);
  if (a.kind != b.kind) return false;
  switch (a.kind) {
    case HR_UNDEFINED:
    case HR_NONE: return true;
    case HR_TEXT_DATUM: return hr_text_equal(a.text, b.text);
    case HR_LIST:
    case HR_TUPLE:
    case HR_DICT: return equal_inside(m, a, b);
    case HR_FUNCTION: return a.function == b.function;
    case HR_MACRO: return a.macro == b.macro;
    case HR_LOOP: return a.loop == b.loop;
    case HR_STREAM:
    case HR_CYCLER: return a.list == b.list;
    case HR_NAMESPACE: return a.dict == b.dict;
    default: return false;
  }
}

static int order_of(double a, double b) {
  return a < b ? -1 : a > b;
}

static int compare_texts(hr_text a, hr_text b) {
  size_t n = a.length < b.length ? a.length : b.length;
  int order = n ? memcmp(a.bytes, b.bytes, n) : 0;
  return order ? order : order_of((double)a.length, (double)b.length);
}

static int compare_lists(hr_machine *m, const hr_list *a, const hr_list *b) {
  if (!hr_machine_enter(m)) return 0;
  size_t i = 0;
  int order = 0;
  while (i < a->count && i < b->count && !m->failed && hr_equal(m, a->item[i], b->item[i])) i++;
  if (!m->failed && i < a->count && i < b->count) order = hr_compare(m, a->item[i], b->item[i]);
  else order = order_of((double)a->count, (double)b->count);
  hr_machine_leave(m);
  return order;
}

int hr_compare(hr_machine *m, hr_datum a, hr_datum b) {
  if (!hr_machine_step(m, a.kind == HR_TEXT_DATUM ? a.text.length : 0)) return 0;
  if (a.kind == HR_INT && b.kind == HR_INT)
    return a.integer < b.integer ? -1 : a.integer > b.integer;
  if (hr_is_number(a) && hr_is_number(b)) return order_of(hr_number(a), hr_number(b));
  if (a.kind == HR_TEXT_DATUM && b.kind == HR_TEXT_DATUM) return compare_texts(a.text, b.text);
  if (a.kind == b.kind && hr_is_sequence(a)) return compare_lists(m, a.list, b.list);
  if (a.kind == HR_UNDEFINED) hr_fail_undefined(m, a);
  if (b.kind == HR_UNDEFINED) hr_fail_undefined(m, b);
  hr_machine_fail(m, "'%s' and '%s' have no order", hr_kind_name(a), hr_kind_name(b));
  return 0;
}

bool hr_contains(hr_machine *m, hr_datum d, hr_datum item) {
  if (d.kind == HR_DICT) return hr_dict_find(m, d.dict, item) != NULL;
  if (d.kind == HR_TEXT_DATUM) {
    if (item.kind == HR_UNDEFINED) hr_fail_undefined(m, item);
    if (item.kind != HR_TEXT_DATUM)
      hr_machine_fail(m, "a '%s' can't be in a 'str'", hr_kind_name(item));
    return !m->failed && hr_text_find(m, d.text, item.text, 0) != SIZE_MAX;
  }
  if (d.kind == HR_INT || d.kind == HR_BOOL || d.kind == HR_REAL || d.kind == HR_NONE) {
    hr_machine_fail(m, "nothing can be in a '%s'", hr_kind_name(d));
    return false;
  }
  const hr_list *list = hr_elements(m, d);
  for (size_t i = 0; list && i < list->count && !m->failed; i++)
    if (hr_equal(m, list->item[i], item)) return true;
  return false;
}

static hr_list *characters(hr_machine *m, hr_text text) {
  hr_list *list = hr_list_new(m, text.length);
  size_t size;
  for (size_t i = 0; i < text.length && !m->failed; i += size) {
    hr_code_point(text.bytes + i, text.length - i, &size);
    hr_list_add(m, list, hr_text_datum(hr_text_part(text, i, i + size)));
  }
  return list;
}

/* What is left of a stream. */
static hr_list *drain(hr_machine *m, hr_list *stream) {
  hr_list *list = hr_list_new(m, 0);
  if (!list) return NULL;
  list->item = stream->item + stream->next;
  list->count = list->capacity = stream->count - stream->next;
  stream->next = stream->count;
  return list;
}

hr_list *hr_elements(hr_machine *m, hr_datum d) {
  if (m->failed) return NULL;
  switch (d.kind) {
    case HR_LIST:
    case HR_TUPLE: return d.list;
    case HR_STREAM: return drain(m, d.list);
    case HR_TEXT_DATUM: return characters(m, d.text);
    case HR_UNDEFINED: return hr_list_new(m, 0);
    case HR_DICT: {
      hr_list *list = hr_list_new(m, d.dict->count);
      for (size_t i = 0; i < d.dict->count; i++) hr_list_add(m, list, d.dict->key[i]);
      return list;
    }
    default:
      hr_machine_fail(m, "a '%s' can't be gone through", hr_kind_name(d));
      return NULL;
  }
}

size_t hr_length(hr_machine *m, hr_datum d) {
  switch (d.kind) {
    case HR_LIST:
    case HR_TUPLE: return d.list->count;
    case HR_DICT: return d.dict->count;
    case HR_TEXT_DATUM: return hr_characters(m, d.text);
    case HR_UNDEFINED: return 0;
    case HR_LOOP: return d.loop->items->count;
    default:
      hr_machine_fail(m, "a '%s' has no length", hr_kind_name(d));
      return 0;
  }
}

/* --- As text ---------------------------------------------------------------------------- */

/* The fewest digits that give the number back, and where the point is: the
 * number is 0.DIGITS * 10^point. Free of the locale. */
static int shortest_digits(double x, char digits[32], int *point) {
  char text[48];
  int precision = 0;
  do
    snprintf(text, sizeof text, "%.*e", precision, x);
  while (strtod(text, NULL) != x && ++precision < 17);
  int n = 0;
  const char *c = text;
  for (; *c != 'e'; c++)
    if (*c >= '0' && *c <= '9') digits[n++] = *c;
  *point = atoi(c + 1) + 1;
  while (n > 1 && digits[n - 1] == '0') n--;
  digits[n] = '\0';
  return n;
}

/* Digits with a point in front of digits[point], and a zero on the side that has none. */
static void place_point(char *to, const char *digits, int n, int point) {
  for (int i = point < 1 ? point - 1 : 0; i < n || i <= point; i++) {
    if (i == point) *to++ = '.';
    *to++ = i >= 0 && i < n ? digits[i] : '0';
  }
  *to = '\0';
}

/* As Python's repr and JSON write it: an exponent below 1e-4 and from 1e16 on. */
static void add_real(hr_builder *b, double x, bool json) {
  char digits[32], text[64];
  int point;
  if (isnan(x)) return hr_add_literal(b, json ? "NaN" : "nan");
  if (isinf(x)) return hr_add_literal(b, json ? (x < 0 ? "-Infinity" : "Infinity")
                                              : (x < 0 ? "-inf" : "inf"));
  if (signbit(x)) hr_add_literal(b, "-");
  int n = shortest_digits(fabs(x), digits, &point);
  hr_machine_step(b->machine, (size_t)n * HR_STEP_BYTES); /* each digit took a try */
  if (x == 0) point = 1;
  if (point > -4 && point <= 16) {
    place_point(text, digits, n, point);
  } else {
    snprintf(text, sizeof text, "%c%s%se%c%02d", digits[0], n > 1 ? "." : "", digits + 1,
             point > 0 ? '+' : '-', abs(point - 1));
  }
  hr_add_literal(b, text);
}

/* Python's str.isprintable. */
static bool is_printable(int32_t c) {
  if (c < 0) return false;
  switch (utf8proc_category(c)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP: return false;
    case UTF8PROC_CATEGORY_ZS: return c == ' ';
    default: return true;
  }
}

static void add_quoted(hr_builder *b, hr_text text) {
  bool single = text.length && memchr(text.bytes, '\'', text.length);
  bool both = single && memchr(text.bytes, '"', text.length);
  char quote = single && !both ? '"' : '\'';
  const char mark[] = {quote, '\0'};
  size_t size;
  hr_add_literal(b, mark);
  for (size_t i = 0; i < text.length && !b->machine->failed; i += size) {
    int32_t c = hr_code_point(text.bytes + i, text.length - i, &size);
    char escape[16];
    if (c == quote || c == '\\')
      snprintf(escape, sizeof escape, "\\%c", (char)c);
    else if (c == '\n' || c == '\r' || c == '\t')
      snprintf(escape, sizeof escape, "\\%c", c == '\n' ? 'n' : c == '\r' ? 'r' : 't');
    else if (is_printable(c)) {
      hr_add_text(b, hr_text_part(text, i, i + size));
      continue;
    } else if (c < 0x100)
      snprintf(escape, sizeof escape, "\\x%02x", (unsigned char)(c < 0 ? text.bytes[i] : c));
    else
      snprintf(escape, sizeof escape, c < 0x10000 ? "\\u%04x" : "\\U%08x", (unsigned)c);
    hr_add_literal(b, escape);
  }
  hr_add_literal(b, mark);
}

static void add_list(hr_builder *b, hr_datum d) {
  bool tuple = d.kind == HR_TUPLE;
  hr_add_literal(b, tuple ? "(" : "[");
  for (size_t i = 0; i < d.list->count && !b->machine->failed; i++) {
    if (i) hr_add_literal(b, ", ");
    hr_add_repr(b, d.list->item[i]);
  }
  if (tuple && d.list->count == 1) hr_add_literal(b, ",");
  hr_add_literal(b, tuple ? ")" : "]");
}

static void add_dict(hr_builder *b, const hr_dict *dict) {
  hr_add_literal(b, "{");
  for (size_t i = 0; i < dict->count && !b->machine->failed; i++) {
    if (i) hr_add_literal(b, ", ");
    hr_add_repr(b, dict->key[i]);
    hr_add_literal(b, ": ");
    hr_add_repr(b, dict->value[i]);
  }
  hr_add_literal(b, "}");
}

static void add_plain(hr_builder *b, hr_datum d) {
  char number[32];
  switch (d.kind) {
    case HR_UNDEFINED:
    case HR_ABSENT: break;
    case HR_NONE: hr_add_literal(b, "None"); break;
    case HR_BOOL: hr_add_literal(b, d.truth ? "True" : "False"); break;
    case HR_INT:
      snprintf(number, sizeof number, "%lld", (long long)d.integer);
      hr_add_literal(b, number);
      break;
    case HR_REAL: add_real(b, d.real, false); break;
    case HR_TEXT_DATUM: hr_add_text(b, d.text); break;
    case HR_LIST:
    case HR_TUPLE: add_list(b, d); break;
    case HR_DICT: add_dict(b, d.dict); break;
    default: hr_machine_fail(b->machine, "a '%s' can't be printed", hr_kind_name(d));
  }
}

void hr_add_repr(hr_builder *b, hr_datum d) {
  if (!hr_machine_step(b->machine, 0) || !hr_machine_enter(b->machine)) return;
  if (d.kind == HR_TEXT_DATUM)
    add_quoted(b, d.text);
  else if (d.kind == HR_UNDEFINED)
    hr_add_literal(b, "Undefined");
  else
    add_plain(b, d);
  hr_machine_leave(b->machine);
}

hr_text hr_to_text(hr_machine *m, hr_datum d) {
  if (d.kind == HR_TEXT_DATUM) return d.text;
  hr_builder b = {.machine = m};
  add_plain(&b, d);
  return hr_built(&b);
}

/* --- JSON --------------------------------------------------------------------------------- */

static void add_json_text(hr_builder *b, hr_text text) {
  static const char plain[] = "\"\\\b\f\n\r\t", letter[] = "\"\\bfnrt";
  size_t from = 0;
  hr_add_literal(b, "\"");
  for (size_t i = 0; i < text.length && !b->machine->failed; i++) {
    unsigned char c = (unsigned char)text.bytes[i];
    if (c >= 0x20 && c != '"' && c != '\\') continue;
    hr_add_text(b, hr_text_part(text, from, i));
    from = i + 1;
    char escape[8];
    const char *found = c ? strchr(plain, c) : NULL;
    if (found)
      snprintf(escape, sizeof escape, "\\%c", letter[found - plain]);
    else
      snprintf(escape, sizeof escape, "\\u%04x", c);
    hr_add_literal(b, escape);
  }
  hr_add_text(b, hr_text_part(text, from, text.length));
  hr_add_literal(b, "\"");
}

static void add_json_break(hr_builder *b, const hr_json_style *style, unsigned level) {
  if (!style->indented) return;
  hr_add_literal(b, "\n");
  for (unsigned i = 0; i < level && style->indent.length; i++) hr_add_text(b, style->indent);
}

static void add_json_list(hr_builder *b, const hr_list *list, const hr_json_style *style,
                          unsigned level) {
  if (list->count == 0) return hr_add_literal(b, "[]");
  hr_add_literal(b, "[");
  for (size_t i = 0; i < list->count && !b->machine->failed; i++) {
    if (i) hr_add_text(b, style->item_separator);
    add_json_break(b, style, level + 1);
    hr_add_json(b, list->item[i], style, level + 1);
  }
  add_json_break(b, style, level);
  hr_add_literal(b, "]");
}

/* The keys of JSON are texts: numbers and constants become what JSON calls them. */
static void add_json_key(hr_builder *b, hr_datum key, const hr_json_style *style) {
  if (key.kind == HR_TEXT_DATUM) return add_json_text(b, key.text);
  hr_add_literal(b, "\"");
  if (hr_is_number(key) || key.kind == HR_NONE)
    hr_add_json(b, key, style, 0);
  else
    hr_machine_fail(b->machine, "a '%s' can't be a key in JSON", hr_kind_name(key));
  hr_add_literal(b, "\"");
}

/* The order of a dict's members by key. NULL after a failure. */
static size_t *sorted_members(hr_machine *m, const hr_dict *dict) {
  size_t *order = hr_machine_alloc(m, dict->count, sizeof *order);
  for (size_t i = 0; order && i < dict->count; i++) {
    size_t k = i;
    for (; k > 0 && hr_compare(m, dict->key[order[k - 1]], dict->key[i]) > 0; k--)
      order[k] = order[k - 1];
    order[k] = i;
  }
  return m->failed ? NULL : order;
}

static void add_json_dict(hr_builder *b, const hr_dict *dict, const hr_json_style *style,
                          unsigned level) {
  if (dict->count == 0) return hr_add_literal(b, "{}");
  size_t *order = style->sort_keys ? sorted_members(b->machine, dict) : NULL;
  hr_add_literal(b, "{");
  for (size_t i = 0; i < dict->count && !b->machine->failed; i++) {
    size_t at = order ? order[i] : i;
    if (i) hr_add_text(b, style->item_separator);
    add_json_break(b, style, level + 1);
    add_json_key(b, dict->key[at], style);
    hr_add_text(b, style->key_separator);
    hr_add_json(b, dict->value[at], style, level + 1);
  }
  add_json_break(b, style, level);
  hr_add_literal(b, "}");
}

void hr_add_json(hr_builder *b, hr_datum d, const hr_json_style *style, unsigned level) {
  if (!hr_machine_step(b->machine, 0) || !hr_machine_enter(b->machine)) return;
  switch (d.kind) {
    case HR_NONE: hr_add_literal(b, "null"); break;
    case HR_BOOL: hr_add_literal(b, d.truth ? "true" : "false"); break;
    case HR_INT: add_plain(b, d); break;
    case HR_REAL: add_real(b, d.real, true); break;
    case HR_TEXT_DATUM: add_json_text(b, d.text); break;
    case HR_LIST:
    case HR_TUPLE: add_json_list(b, d.list, style, level); break;
    case HR_DICT: add_json_dict(b, d.dict, style, level); break;
    default: hr_machine_fail(b->machine, "a '%s' can't be written as JSON", hr_kind_name(d));
  }
  hr_machine_leave(b->machine);
}

static hr_datum from_json_list(hr_machine *m, const json_t *json,
                               hr_datum (*element)(hr_machine *m, const json_t *json)) {
  size_t count = json_array_size(json);
  hr_list *list = hr_list_new(m, count);
  for (size_t i = 0; i < count && !m->failed; i++)
    hr_list_add(m, list, element(m, json_array_get(json, i)));
  return hr_list_datum(HR_LIST, list);
}

/* The role of a message is the program's word. */
static hr_datum from_json_dict(hr_machine *m, const json_t *json, bool message) {
  hr_dict *dict = hr_dict_new(m);
  if (!dict) return (hr_datum){.kind = HR_UNDEFINED};
  for (void *at = json_object_iter((json_t *)json); at && !m->failed;
       at = json_object_iter_next((json_t *)json, at)) {
    const char *key = json_object_iter_key(at);
    hr_datum value = hr_from_json(m, json_object_iter_value(at));
    if (message && strcmp(key, "role") == 0 && value.kind == HR_TEXT_DATUM) value.text.data = NULL;
    hr_dict_set(m, dict, hr_text_datum(hr_data_text(m, key, strlen(key))), value);
  }
  return (hr_datum){.kind = HR_DICT, .dict = dict};
}

static hr_datum message_from_json(hr_machine *m, const json_t *json) {
  return json_is_object(json) ? from_json_dict(m, json, true) : hr_from_json(m, json);
}

hr_datum hr_messages_from_json(hr_machine *m, const json_t *json) {
  return json_is_array(json) ? from_json_list(m, json, message_from_json) : hr_from_json(m, json);
}

hr_datum hr_from_json(hr_machine *m, const json_t *json) {
  hr_datum d = hr_none();
  if (!hr_machine_step(m, 0) || !hr_machine_enter(m)) return d;
  switch (json_typeof(json)) {
    case JSON_OBJECT: d = from_json_dict(m, json, false); break;
    case JSON_ARRAY: d = from_json_list(m, json, hr_from_json); break;
    case JSON_STRING:
      d = hr_text_datum(hr_data_text(m, json_string_value(json), json_string_length(json)));
      break;
    case JSON_INTEGER: d = hr_int(json_integer_value(json)); break;
    case JSON_REAL: d = hr_real(json_real_value(json)); break;
    case JSON_TRUE:
    case JSON_FALSE: d = hr_bool(json_is_true(json)); break;
    case JSON_NULL: break;
  }
  hr_machine_leave(m);
  return d;
}

/* --- Scopes --------------------------------------------------------------------------------- */

hr_scope *hr_scope_new(hr_machine *m, hr_scope *outer) {
  hr_scope *scope = hr_machine_alloc(m, 1, sizeof *scope);
  if (!scope) return NULL;
  scope->outer = outer;
  scope->in_macro = outer && outer->in_macro;
  return scope;
}

/* NULL when this scope itself has none of that name. */
static hr_variable *own_variable(hr_machine *m, const hr_scope *scope, hr_text name) {
  hr_variable *v = scope->variables;
  while (v && !hr_name_is(m, v->name, name)) v = v->next;
  return v;
}

void hr_scope_set(hr_machine *m, hr_scope *scope, hr_text name, hr_datum value) {
  if (!scope) return;
  hr_variable *v = own_variable(m, scope, name);
  if (v) {
    v->value = value;
    return;
  }
  v = hr_machine_alloc(m, 1, sizeof *v);
  if (!v) return;
  *v = (hr_variable){.next = scope->variables, .name = name, .value = value};
  scope->variables = v;
}

const hr_datum *hr_scope_find(hr_machine *m, const hr_scope *scope, hr_text name) {
  for (; scope && hr_machine_work(m, 1); scope = scope->outer) {
    const hr_variable *v = own_variable(m, scope, name);
    if (v) return &v->value;
  }
  return NULL;
}
