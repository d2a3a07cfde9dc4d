/* SPDX-License-Identifier: MIT
 * Text of templates: what Python's str does, with each byte's origin kept. */
#include <string.h>
#include <utf8proc.h>

#include "template/case_table.h"
#include "template/datum.h"

/* --- Building ------------------------------------------------------------------ */

static bool grow(hr_builder *b, size_t more) {
  if (b->machine->failed) return false;
  if (more <= b->capacity - b->length) return true;
  size_t capacity = (b->length + more) * 2;
  char *bytes = hr_machine_alloc(b->machine, capacity, 1);
  unsigned char *data = b->data ? hr_machine_alloc(b->machine, capacity, 1) : NULL;
  if (!bytes || (b->data && !data)) return false;
  if (b->length) {
    memcpy(bytes, b->bytes, b->length);
    if (data) memcpy(data, b->data, b->length);
  }
  b->bytes = bytes;
  b->data = data;
  b->capacity = capacity;
  return true;
}

void hr_add_text(hr_builder *b, hr_text text) {
  if (text.length == 0 || !hr_machine_step(b->machine, text.length) || !grow(b, text.length))
    return;
  if (text.data && !b->data) {
    b->data = hr_machine_alloc(b->machine, b->capacity, 1);
    if (!b->data) return;
  }
  memcpy(b->bytes + b->length, text.bytes, text.length);
  if (text.data) memcpy(b->data + b->length, text.data, text.length);
  b->length += text.length;
}

void hr_add_literal(hr_builder *b, const char *text) {
  hr_add_text(b, (hr_text){.bytes = text, .length = strlen(text)});
}

void hr_add_code_point(hr_builder *b, int32_t code_point, bool is_data) {
  static const unsigned char data[4] = {1, 1, 1, 1};
  unsigned char bytes[4];
  utf8proc_ssize_t n = utf8proc_encode_char(code_point, bytes);
  hr_add_text(b, (hr_text){(const char *)bytes, is_data ? data : NULL, (size_t)n});
}

hr_text hr_built(const hr_builder *b) {
  return (hr_text){b->bytes ? b->bytes : "", b->data, b->length};
}

hr_text hr_concat(hr_machine *m, hr_text a, hr_text b) {
  hr_builder built = {.machine = m};
  if (!grow(&built, a.length + b.length)) return (hr_text){.bytes = ""};
  hr_add_text(&built, a);
  hr_add_text(&built, b);
  return hr_built(&built);
}

hr_text hr_data_text(hr_machine *m, const char *bytes, size_t length) {
  char *copy = hr_machine_alloc(m, length + 1, 1);
  unsigned char *data = hr_machine_alloc(m, length + 1, 1);
  if (!copy || !data) return (hr_text){.bytes = ""};
  if (length) memcpy(copy, bytes, length);
  memset(data, 1, length);
  return (hr_text){copy, data, length};
}

/* --- Comparing and cutting --------------------------------------------------------- */

bool hr_text_equal(hr_text a, hr_text b) {
  return a.length == b.length && (a.length == 0 || memcmp(a.bytes, b.bytes, a.length) == 0);
}

bool hr_name_is(hr_machine *m, hr_text name, hr_text wanted) {
  hr_machine_work(m, 1 + (name.length == wanted.length ? name.length : 0));
  return hr_text_equal(name, wanted);
}

bool hr_text_is(hr_text a, const char *literal) {
  return hr_text_equal(a, (hr_text){.bytes = literal, .length = strlen(literal)});
}

hr_text hr_text_part(hr_text text, size_t from, size_t to) {
  return (hr_text){text.bytes + from, text.data ? text.data + from : NULL, to - from};
}

int32_t hr_code_point(const char *bytes, size_t length, size_t *size) {
  utf8proc_int32_t c;
  *size = 1;
  if (!((unsigned char)bytes[0] & 0x80)) return (unsigned char)bytes[0];
  utf8proc_ssize_t n =
      utf8proc_iterate((const utf8proc_uint8_t *)bytes, (utf8proc_ssize_t)length, &c);
  if (n <= 0) return -1;
  *size = (size_t)n;
  return c;
}

size_t hr_characters(hr_machine *m, hr_text text) {
  size_t count = 0, size;
  if (!hr_machine_work(m, text.length)) return 0;
  for (size_t i = 0; i < text.length; i += size, count++)
    hr_code_point(text.bytes + i, text.length - i, &size);
  return count;
}

bool hr_is_space(int32_t c) {
  if (c < 0x80) return (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x20);
  return c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 ||
         c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

/* The code point that ends at text[end - 1]. */
static int32_t last_code_point(hr_text text, size_t end, size_t *size) {
  size_t start = end - 1;
  while (start > 0 && end - start < 4 && ((unsigned char)text.bytes[start] & 0xc0) == 0x80) start--;
  int32_t c = hr_code_point(text.bytes + start, end - start, size);
  if (start + *size == end) return c;
  *size = 1;
  return -1;
}

hr_text hr_strip(hr_text text, bool left, bool right) {
  size_t from = 0, to = text.length, size;
  while (left && from < to && hr_is_space(hr_code_point(text.bytes + from, to - from, &size)))
    from += size;
  while (right && to > from && hr_is_space(last_code_point(text, to, &size))) to -= size;
  return hr_text_part(text, from, to);
}

size_t hr_text_find(hr_machine *m, hr_text text, hr_text part, size_t from) {
  if (from > text.length || part.length > text.length - from) return SIZE_MAX;
  if (part.length == 0) return from;
  const char *at = memmem(text.bytes + from, text.length - from, part.bytes, part.length);
  size_t begin = at ? (size_t)(at - text.bytes) : text.length;
  return hr_machine_work(m, begin - from + part.length) && at ? begin : SIZE_MAX;
}

/* With nothing to look for, new text goes between all characters. */
static hr_text replace_nothing(hr_machine *m, hr_text text, hr_text new_text, int64_t most) {
  hr_builder b = {.machine = m};
  size_t i = 0;
  for (; !m->failed && most != 0; most--) {
    hr_add_text(&b, new_text);
    if (i == text.length) break;
    size_t size;
    hr_code_point(text.bytes + i, text.length - i, &size);
    hr_add_text(&b, hr_text_part(text, i, i + size));
    i += size;
  }
  hr_add_text(&b, hr_text_part(text, i, text.length));
  return hr_built(&b);
}

hr_text hr_replace(hr_machine *m, hr_text text, hr_text old, hr_text new_text, int64_t most) {
  if (most < 0) most = INT64_MAX;
  if (old.length == 0) return replace_nothing(m, text, new_text, most);
  hr_builder b = {.machine = m};
  size_t from = 0;
  while (most-- > 0 && hr_machine_step(m, 0)) {
    size_t at = hr_text_find(m, text, old, from);
    if (at == SIZE_MAX) break;
    hr_add_text(&b, hr_text_part(text, from, at));
    hr_add_text(&b, new_text);
    from = at + old.length;
  }
  if (from == 0) return text;
  hr_add_text(&b, hr_text_part(text, from, text.length));
  return hr_built(&b);
}

/* --- Splitting ------------------------------------------------------------------------- */

static void add_part(hr_machine *m, hr_list *list, hr_text text, size_t from, size_t to) {
  hr_list_add(m, list, hr_text_datum(hr_text_part(text, from, to)));
}

static void reverse(hr_list *list) {
  for (size_t i = 0; list && i < list->count / 2; i++) {
    hr_datum other = list->item[list->count - 1 - i];
    list->item[list->count - 1 - i] = list->item[i];
    list->item[i] = other;
  }
}

/* Words between white space. */
static void split_words(hr_machine *m, hr_list *list, hr_text text, int64_t most) {
  text = hr_strip(text, true, false);
  while (text.length && hr_machine_step(m, 0)) {
    size_t end = 0, size = 0;
    while (end < text.length &&
           !hr_is_space(hr_code_point(text.bytes + end, text.length - end, &size)))
      end += size;
    if (most-- == 0) {
      add_part(m, list, hr_strip(text, false, true), 0, hr_strip(text, false, true).length);
      return;
    }
    add_part(m, list, text, 0, end);
    text = hr_strip(hr_text_part(text, end, text.length), true, false);
  }
}

static void split_words_right(hr_machine *m, hr_list *list, hr_text text, int64_t most) {
  text = hr_strip(text, false, true);
  while (text.length && hr_machine_step(m, 0)) {
    size_t begin = text.length, size = 0;
    while (begin > 0 && !hr_is_space(last_code_point(text, begin, &size))) begin -= size;
    if (most-- == 0) {
      hr_text rest = hr_strip(text, true, false);
      add_part(m, list, rest, 0, rest.length);
      break;
    }
    add_part(m, list, text, begin, text.length);
    text = hr_strip(hr_text_part(text, 0, begin), false, true);
  }
  reverse(list);
}

static void split_at(hr_machine *m, hr_list *list, hr_text text, hr_text separator, int64_t most) {
  size_t from = 0, at;
  while (most-- != 0 && hr_machine_step(m, 0) &&
         (at = hr_text_find(m, text, separator, from)) != SIZE_MAX) {
    add_part(m, list, text, from, at);
    from = at + separator.length;
  }
  add_part(m, list, text, from, text.length);
}

static void split_at_right(hr_machine *m, hr_list *list, hr_text text, hr_text separator,
                           int64_t most) {
  size_t end = text.length, at = end;
  while (most != 0 && at >= separator.length && hr_machine_step(m, separator.length)) {
    at--;
    if (at + separator.length > end ||
        memcmp(text.bytes + at, separator.bytes, separator.length) != 0) {
      if (at == 0) break;
      continue;
    }
    add_part(m, list, text, at + separator.length, end);
    end = at;
    most--;
    if (at == 0) break;
  }
  add_part(m, list, text, 0, end);
  reverse(list);
}

hr_list *hr_split(hr_machine *m, hr_text text, hr_text separator, int64_t most, bool from_right) {
  hr_list *list = hr_list_new(m, 4);
  if (most < 0) most = INT64_MAX;
  if (!hr_machine_step(m, text.length)) return list;
  if (separator.length == 0)
    (from_right ? split_words_right : split_words)(m, list, text, most);
  else
    (from_right ? split_at_right : split_at)(m, list, text, separator, most);
  return list;
}

static bool is_line_end(int32_t c) {
  return (c >= 0x0a && c <= 0x0d) || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
}

hr_list *hr_split_lines(hr_machine *m, hr_text text) {
  hr_list *list = hr_list_new(m, 4);
  size_t from = 0, size;
  hr_machine_step(m, text.length);
  for (size_t i = 0; i < text.length && !m->failed;) {
    int32_t c = hr_code_point(text.bytes + i, text.length - i, &size);
    size_t end = i;
    i += size;
    if (!is_line_end(c)) continue;
    if (c == '\r' && i < text.length && text.bytes[i] == '\n') i++;
    add_part(m, list, text, from, end);
    from = i;
  }
  if (from < text.length) add_part(m, list, text, from, text.length);
  return list;
}

/* --- Case ---------------------------------------------------------------------------- */

bool hr_is_letter_or_digit(int32_t c) {
  if (c < 0) return false;
  utf8proc_category_t k = utf8proc_category(c);
  return (k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO) || k == UTF8PROC_CATEGORY_ND;
}

bool hr_is_cased(int32_t c) {
  if (c < 0) return false;
  return utf8proc_toupper(c) != c || utf8proc_tolower(c) != c || utf8proc_totitle(c) != c ||
         utf8proc_category(c) == UTF8PROC_CATEGORY_LL ||
         utf8proc_category(c) == UTF8PROC_CATEGORY_LU ||
         utf8proc_category(c) == UTF8PROC_CATEGORY_LT;
}

static void add_upper(hr_builder *b, int32_t c, bool is_data, bool title) {
  /* Greek letters with an iota below have a title form of their own. */
  if (title && c >= 0x1f80 && c < 0x2000 && utf8proc_totitle(c) != utf8proc_toupper(c)) {
    hr_add_code_point(b, utf8proc_totitle(c), is_data);
    return;
  }
  for (size_t i = 0; c >= 0x80 && i < sizeof hr_long_upper / sizeof *hr_long_upper; i++) {
    if (hr_long_upper[i].from != c) continue;
    for (size_t k = 0; k < 3 && hr_long_upper[i].to[k]; k++) {
      int32_t part = hr_long_upper[i].to[k];
      hr_add_code_point(b, title && k ? utf8proc_tolower(part) : part, is_data);
    }
    return;
  }
  hr_add_code_point(b, title ? utf8proc_totitle(c) : utf8proc_toupper(c), is_data);
}

/* A sigma at the end of a word has a form of its own. */
static bool is_final_sigma(hr_text text, size_t at, bool after_cased) {
  size_t size;
  for (size_t i = at + 2; i < text.length; i += size) {
    int32_t c = hr_code_point(text.bytes + i, text.length - i, &size);
    if (c >= 0 && utf8proc_category(c) == UTF8PROC_CATEGORY_MN) continue;
    return after_cased && !hr_is_cased(c);
  }
  return after_cased;
}

static void add_lower(hr_builder *b, hr_text text, size_t at, int32_t c, bool is_data,
                      bool after_cased) {
  if (c == 0x3a3 && is_final_sigma(text, at, after_cased)) {
    hr_add_code_point(b, 0x3c2, is_data);
  } else if (c == 0x130) { /* I with dot: the dot stays */
    hr_add_code_point(b, 'i', is_data);
    hr_add_code_point(b, 0x307, is_data);
  } else {
    hr_add_code_point(b, utf8proc_tolower(c), is_data);
  }
}

hr_text hr_change_case(hr_machine *m, hr_text text, hr_case to) {
  hr_builder b = {.machine = m};
  size_t size;
  bool after_cased = false;
  for (size_t i = 0; i < text.length && !m->failed; i += size) {
    int32_t c = hr_code_point(text.bytes + i, text.length - i, &size);
    bool is_data = text.data && text.data[i];
    bool first = to == HR_CAPITAL ? i == 0 : to == HR_TITLE && !after_cased;
    if (c < 0)
      hr_add_text(&b, hr_text_part(text, i, i + size));
    else if (to == HR_UPPER || first)
      add_upper(&b, c, is_data, first);
    else
      add_lower(&b, text, i, c, is_data, after_cased);
    after_cased = hr_is_cased(c);
  }
  return hr_built(&b);
}

/* --- Formatting ------------------------------------------------------------------------ */

/* %s, %d, %r and %%: what templates use. */
hr_datum hr_percent(hr_machine *m, hr_text format, hr_datum arguments) {
  hr_builder b = {.machine = m};
  size_t used = 0, count = arguments.kind == HR_TUPLE ? arguments.list->count : 1;
  for (size_t i = 0; i < format.length && !m->failed; i++) {
    if (format.bytes[i] != '%') {
      hr_add_text(&b, hr_text_part(format, i, i + 1));
      continue;
    }
    char kind = ++i < format.length ? format.bytes[i] : '\0';
    if (kind == '%') {
      hr_add_literal(&b, "%");
      continue;
    }
    if (!kind || !strchr("sdir", kind))
      return hr_machine_fail(m, "a format other than %%s, %%d, %%i, %%r and %%%% is not supported");
    if (used == count) return hr_machine_fail(m, "not enough arguments for the format");
    hr_datum d = arguments.kind == HR_TUPLE ? arguments.list->item[used] : arguments;
    used++;
    if ((kind == 'd' || kind == 'i') && !hr_is_number(d))
      return hr_machine_fail(m, "%%%c needs a number, not '%s'", kind, hr_kind_name(d));
    if (kind == 'd' || kind == 'i') d = hr_truncate(m, d);
    if (kind == 'r')
      hr_add_repr(&b, d);
    else
      hr_add_text(&b, hr_to_text(m, d));
  }
  if (used < count && !(arguments.kind == HR_DICT && used == 0) && arguments.kind != HR_LIST)
    return hr_machine_fail(m, "not all arguments of the format were used");
  return hr_text_datum(hr_built(&b));
}
