/* SPDX-License-Identifier: MIT
 * Steps that rewrite a piece of text: Unicode's normal forms, case, accents,
 * spaces, BERT's and SentencePiece's normalizers. */
#include <string.h>
#include <utf8proc.h>

#include "base/memory.h"
#include "text/letters.h"
#include "text/steps_impl.h"
#include "text/utf8_stream.h"

#define SPACE_MARK "\xe2\x96\x81" /* U+2581, SentencePiece's space */
#define REPLACEMENT "\xef\xbf\xbd"
#define STRAY (-1)

/* --- Characters ------------------------------------------------------------ */

/* The code point that text starts with and its bytes; STRAY and 1 for a byte
 * that starts none. */
static int32_t next_code(const char *text, size_t length, size_t *bytes) {
  *bytes = hr_utf8_length(text, length);
  if (*bytes) return (int32_t)hr_utf8_decode(text, *bytes);
  *bytes = 1;
  return STRAY;
}

static bool put_code(hr_pieces *p, int32_t code) {
  char text[4];
  return hr_buffer_put(&p->next, text, hr_utf8_encode((uint32_t)code, text));
}

static bool put(hr_pieces *p, const char *text, size_t length) {
  return hr_buffer_put(&p->next, text, length);
}

/* Unicode's White_Space. */
static bool is_space(int32_t code) {
  static const int32_t single[] = {' ', 0x85, 0xa0, 0x1680, 0x2028, 0x2029, 0x202f, 0x205f, 0x3000};
  for (size_t i = 0; i < sizeof single / sizeof *single; i++)
    if (code == single[i]) return true;
  return (code >= '\t' && code <= '\r') || (code >= 0x2000 && code <= 0x200a);
}

static bool is_nonspacing_mark(int32_t code) {
  return utf8proc_category(code) == UTF8PROC_CATEGORY_MN;
}

/* U+0130 is the one letter whose small form is two characters. */
static bool put_lower(hr_pieces *p, int32_t code) {
  if (code == 0x130) return put(p, "i\xcc\x87", 3);
  return put_code(p, utf8proc_tolower(code));
}

/* --- Simple ones ----------------------------------------------------------- */

static bool prepend(hr_pieces *p, const hr_compiled *s, const char *text, size_t length,
                    bool first) {
  (void)first;
  return put(p, s->step.content.text, s->step.content.length) && put(p, text, length);
}

static bool prefix_space(hr_pieces *p, const hr_compiled *s, const char *text, size_t length,
                         bool first) {
  (void)s, (void)first;
  return (length && *text == ' ' ? true : put(p, " ", 1)) && put(p, text, length);
}

static bool strip(hr_pieces *p, const hr_compiled *s, const char *text, size_t length, bool first) {
  (void)first;
  size_t start = length, end = 0, bytes;
  for (size_t i = 0; i < length; i += bytes) {
    if (is_space(next_code(text + i, length - i, &bytes))) continue;
    if (start == length) start = i;
    end = i + bytes;
  }
  if (!(s->step.flags & HR_STRIP_LEFT)) start = 0;
  if (!(s->step.flags & HR_STRIP_RIGHT)) end = length;
  return start >= end || put(p, text + start, end - start);
}

/* Rewrites code points one by one; stray bytes stay. */
static bool each_code(hr_pieces *p, const char *text, size_t length,
                      bool (*rewrite)(hr_pieces *, int32_t)) {
  bool ok = true;
  size_t bytes;
  for (size_t i = 0; i < length && ok; i += bytes) {
    int32_t code = next_code(text + i, length - i, &bytes);
    ok = code == STRAY ? put(p, text + i, 1) : rewrite(p, code);
  }
  return ok;
}

static bool lowercase(hr_pieces *p, const hr_compiled *s, const char *text, size_t length,
                      bool first) {
  (void)s, (void)first;
  return each_code(p, text, length, put_lower);
}

/* Marks that take room (Mc) and those around a letter (Me) too, which BERT's leaves. */
static bool put_unless_mark(hr_pieces *p, int32_t code) {
  utf8proc_category_t category = utf8proc_category(code);
  return category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_MC ||
         category == UTF8PROC_CATEGORY_ME || put_code(p, code);
}

static bool strip_accents(hr_pieces *p, const hr_compiled *s, const char *text, size_t length,
                          bool first) {
  (void)s, (void)first;
  return each_code(p, text, length, put_unless_mark);
}

/* What machine translation drops (control characters, but for white space) and
 * what it takes for a space. */
static bool put_nmt(hr_pieces *p, int32_t code) {
  bool dropped = (code >= 0x1 && code <= 0x8) || code == 0xb || (code >= 0xe && code <= 0x1f) ||
                 code == 0x7f || code == 0x8f || code == 0x9f;
  bool space = code == 0x9 || code == 0xa || code == 0xc || code == 0xd || code == 0x1680 ||
               (code >= 0x200b && code <= 0x200f) || code == 0x2028 || code == 0x2029 ||
               code == 0x2581 || code == 0xfeff || code == 0xfffd;
  return dropped || put_code(p, space ? ' ' : code);
}

static bool nmt(hr_pieces *p, const hr_compiled *s, const char *text, size_t length, bool first) {
  (void)s, (void)first;
  return each_code(p, text, length, put_nmt);
}

static bool metaspace(hr_pieces *p, const hr_compiled *s, const char *text, size_t length,
                      bool first) {
  size_t mark = strlen(SPACE_MARK);
  bool has_one =
      length > 0 && (*text == ' ' || (length >= mark && !memcmp(text, SPACE_MARK, mark)));
  bool wants_one =
      (s->step.flags & HR_METASPACE_ALWAYS) || ((s->step.flags & HR_METASPACE_FIRST) && first);
  bool ok = has_one || !wants_one || put(p, SPACE_MARK, mark);
  for (size_t i = 0; i < length && ok; i++)
    ok = text[i] == ' ' ? put(p, SPACE_MARK, mark) : put(p, text + i, 1);
  return ok;
}

static bool letters(hr_pieces *p, const hr_compiled *s, const char *text, size_t length,
                    bool first) {
  (void)s, (void)first;
  bool ok = true;
  for (size_t i = 0; i < length && ok; i++)
    ok = put_code(p, (int32_t)hr_letter_of_byte((uint8_t)text[i]));
  return ok;
}

static bool put_byte(hr_pieces *p, int32_t code) {
  int byte = hr_byte_of_letter((uint32_t)code);
  return byte < 0 ? put_code(p, code) : put(p, &(char){(char)byte}, 1);
}

static bool bytes_of_letters(hr_pieces *p, const hr_compiled *s, const char *text, size_t length,
                             bool first) {
  (void)s, (void)first;
  return each_code(p, text, length, put_byte);
}

static bool cleanup(hr_pieces *p, const hr_compiled *s, const char *text, size_t length,
                    bool first) {
  static const char *const unspaced[] = {" .",  " ?",  " !",   " ,",  " n't",
                                         " 'm", " 's", " 've", " 're"};
  (void)s, (void)first;
  bool ok = true;
  for (size_t i = 0; i < length && ok; i++) {
    bool drop = false;
    for (size_t k = 0; k < sizeof unspaced / sizeof *unspaced && text[i] == ' '; k++) {
      size_t n = strlen(unspaced[k]);
      drop |= length - i >= n && memcmp(text + i, unspaced[k], n) == 0;
    }
    ok = drop || put(p, text + i, 1);
  }
  return ok;
}

/* --- Normal forms ---------------------------------------------------------- */

static bool add_codes(hr_pieces *p, size_t *count, int32_t code, utf8proc_option_t options) {
  for (;;) {
    int boundary = 0;
    size_t room = p->code_capacity - *count;
    utf8proc_ssize_t n = utf8proc_decompose_char(
        code, p->codes ? p->codes + *count : NULL,
        room > INT16_MAX ? INT16_MAX : (utf8proc_ssize_t)room, options, &boundary);
    if (n < 0) n = 1; /* nothing assigned is refused */
    if ((size_t)n <= room) {
      *count += (size_t)n;
      return true;
    }
    void *codes = p->codes;
    if (!hr_grow(&codes, &p->code_capacity, *count + (size_t)n, sizeof *p->codes)) return false;
    p->codes = codes;
  }
}

static unsigned combining_class(int32_t code) {
  return (unsigned)utf8proc_get_property(code)->combining_class;
}

/* Marks in the order of their class, those of one class as they came. Runs may
 * be as long as the text: counted, not compared. The upper half of buffer is free. */
static void order_run(int32_t *codes, size_t count, int32_t *spare) {
  size_t at[257] = {0};
  for (size_t i = 0; i < count; i++) at[combining_class(codes[i]) % 256 + 1]++;
  for (unsigned class = 1; class <= 256; class ++) at[class] += at[class - 1];
  for (size_t i = 0; i < count; i++) spare[at[combining_class(codes[i]) % 256]++] = codes[i];
  memcpy(codes, spare, count * sizeof *codes);
}

static bool order_marks(hr_pieces *p, size_t count) {
  void *codes = p->codes;
  if (!hr_grow(&codes, &p->code_capacity, 2 * count, sizeof *p->codes)) return false;
  p->codes = codes;
  for (size_t i = 0, end; i < count; i = end) {
    end = i + 1;
    if (combining_class(p->codes[i]) == 0) continue;
    while (end < count && combining_class(p->codes[end])) end++;
    if (end - i > 1) order_run(p->codes + i, end - i, p->codes + count);
  }
  return true;
}

/* Text without stray bytes. */
static bool put_normal_form(hr_pieces *p, const char *text, size_t length, bool compose,
                            bool compatible) {
  utf8proc_option_t options = UTF8PROC_DECOMPOSE | (compatible ? UTF8PROC_COMPAT : 0);
  size_t count = 0, bytes;
  for (size_t i = 0; i < length; i += bytes)
    if (!add_codes(p, &count, next_code(text + i, length - i, &bytes), options)) return false;
  if (count == 0) return true;
  if (!order_marks(p, count)) return false;
  utf8proc_ssize_t left = (utf8proc_ssize_t)count;
  if (compose) left = utf8proc_normalize_utf32(p->codes, left, UTF8PROC_COMPOSE);
  for (utf8proc_ssize_t i = 0; i < left; i++)
    if (!put_code(p, p->codes[i])) return false;
  return true;
}

static bool is_ascii(const char *text, size_t length) {
  for (size_t i = 0; i < length; i++)
    if ((uint8_t)text[i] >= 0x80) return false;
  return true;
}

static bool normal_form(hr_pieces *p, const hr_compiled *s, const char *text, size_t length,
                        bool first) {
  hr_step_kind kind = s->step.kind;
  (void)first;
  if (is_ascii(text, length)) return put(p, text, length);
  bool ok = true;
  for (size_t i = 0, end; i < length && ok; i = end) {
    size_t bytes = 0;
    for (end = i; end < length; end += bytes)
      if ((bytes = hr_utf8_length(text + end, length - end)) == 0) break;
    ok = put_normal_form(p, text + i, end - i, kind == HR_STEP_NFC || kind == HR_STEP_NFKC,
                         kind == HR_STEP_NFKC || kind == HR_STEP_NFKD);
    if (ok && end < length) ok = put(p, text + end++, 1);
  }
  return ok;
}

/* --- BERT ------------------------------------------------------------------ */

/* No character decomposes into more than 4. */
#define MAX_DECOMPOSED 16

static bool is_control(int32_t code) {
  if (code == '\t' || code == '\n' || code == '\r') return false;
  utf8proc_category_t category = utf8proc_category(code);
  return category == UTF8PROC_CATEGORY_CC || category == UTF8PROC_CATEGORY_CF ||
         category == UTF8PROC_CATEGORY_CO;
}

/* The blocks of ideographs that BERT takes as words of one character. The gap
 * before 0x2b920 is in the reference too. */
static bool is_cjk(int32_t code) {
  static const int32_t blocks[][2] = {{0x4e00, 0x9fff},   {0x3400, 0x4dbf},   {0x20000, 0x2a6df},
                                      {0x2a700, 0x2b73f}, {0x2b740, 0x2b81f}, {0x2b920, 0x2ceaf},
                                      {0xf900, 0xfaff},   {0x2f800, 0x2fa1f}};
  for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
    if (code >= blocks[i][0] && code <= blocks[i][1]) return true;
  return false;
}

static bool put_cased(hr_pieces *p, unsigned flags, int32_t code) {
  return flags & HR_BERT_KEEP_CASE ? put_code(p, code) : put_lower(p, code);
}

static bool put_bert_letter(hr_pieces *p, unsigned flags, int32_t code) {
  if (flags & HR_BERT_KEEP_ACCENTS) return put_cased(p, flags, code);
  int32_t parts[MAX_DECOMPOSED];
  int boundary = 0;
  utf8proc_ssize_t count =
      utf8proc_decompose_char(code, parts, MAX_DECOMPOSED, UTF8PROC_DECOMPOSE, &boundary);
  if (count < 0 || count > MAX_DECOMPOSED) return put_cased(p, flags, code);
  bool ok = true;
  for (utf8proc_ssize_t i = 0; i < count && ok; i++)
    if (!is_nonspacing_mark(parts[i])) ok = put_cased(p, flags, parts[i]);
  return ok;
}

static bool put_bert(hr_pieces *p, unsigned flags, int32_t code) {
  bool clean = !(flags & HR_BERT_KEEP_CONTROL);
  if (clean && (code == 0 || code == 0xfffd || is_control(code))) return true;
  if (clean && is_space(code)) return put(p, " ", 1);
  if ((flags & HR_BERT_KEEP_CJK) || !is_cjk(code)) return put_bert_letter(p, flags, code);
  return put(p, " ", 1) && put_bert_letter(p, flags, code) && put(p, " ", 1);
}

static bool bert(hr_pieces *p, const hr_compiled *s, const char *text, size_t length, bool first) {
  (void)first;
  bool ok = true;
  size_t bytes;
  for (size_t i = 0; i < length && ok; i += bytes) {
    int32_t code = next_code(text + i, length - i, &bytes);
    ok = put_bert(p, s->step.flags, code == STRAY ? 0xfffd : code);
  }
  return ok;
}

/* --- SentencePiece's table ------------------------------------------------- */

/* Keys are a few characters long. */
#define MAX_KEY 256

static uint32_t u32_at(const uint8_t *b) {
  return b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

/* The size in bytes of a double array (32-bit units, little-endian), that
 * array, and the strings that its values point to. */
hr_status hr_charsmap_read(hr_charsmap *map, hr_piece table, const char *where, hr_error *err) {
  const uint8_t *from = (const uint8_t *)table.text;
  size_t bytes = table.length;
  if (bytes == 0) return HR_OK;
  uint32_t size = bytes >= 4 ? u32_at(from) : 0;
  if (bytes < 4 || size % 4 != 0 || size == 0 || size >= bytes - 4)
    return hr_fail(
        err, HR_ERROR_FILE,
        "%s: the table that normalizes text has %zu bytes, of which %u are its first part", where,
        bytes, size);
  map->count = size / 4;
  map->bytes = bytes - 4 - size;
  map->units = hr_calloc(map->count, sizeof *map->units);
  map->strings = hr_strndup((const char *)from + 4 + size, map->bytes);
  if (!map->units || !map->strings) return hr_fail_memory(err, where, bytes);
  for (size_t i = 0; i < map->count; i++) map->units[i] = u32_at(from + 4 + 4 * i);
  return HR_OK;
}

void hr_charsmap_clear(hr_charsmap *map) {
  hr_free(map->units);
  hr_free(map->strings);
  *map = (hr_charsmap){0};
}

static uint32_t unit_at(const hr_charsmap *map, uint32_t node) {
  return node < map->count ? map->units[node] : UINT32_C(0x80000000); /* no byte's label */
}

static uint32_t unit_offset(uint32_t unit) {
  return unit >> 10 << (unit >> 6 & 8);
}

/* The longest key, or the shortest, that text starts with: its length and what
 * stands for it; 0 when there is none. */
static size_t find_key(const hr_charsmap *map, const char *text, size_t length, bool longest,
                       const char **replacement) {
  size_t found = 0;
  if (map->count == 0) return 0;
  uint32_t node = unit_offset(map->units[0]);
  for (size_t i = 0; i < length && i < MAX_KEY && text[i] != '\0'; i++) {
    node ^= (uint8_t)text[i];
    uint32_t unit = unit_at(map, node);
    if ((unit & UINT32_C(0x800000ff)) != (uint8_t)text[i]) break;
    node ^= unit_offset(unit);
    uint32_t value = unit_at(map, node) & UINT32_C(0x7fffffff);
    if (!(unit >> 8 & 1) || value >= map->bytes) continue;
    *replacement = map->strings + value;
    found = i + 1;
    if (!longest) break;
  }
  return found;
}

static bool put_mapped(hr_pieces *p, const hr_charsmap *map, const char *text, size_t length,
                       bool *mapped) {
  const char *replacement = NULL;
  *mapped = find_key(map, text, length, false, &replacement) > 0;
  return *mapped ? put(p, replacement, strlen(replacement)) : true;
}

/* Short graphemes are looked up whole, else character by character. A key that
 * one starts with stands for all of it: so does the library that other readers
 * of these tables use. */
static bool charsmap(hr_pieces *p, const hr_compiled *s, const char *text, size_t length,
                     bool first) {
  enum { SHORT = 6 };
  (void)first;
  bool ok = true, mapped;
  for (size_t i = 0, end; i < length && ok; i = end) {
    size_t bytes;
    utf8proc_int32_t state = 0;
    int32_t code = next_code(text + i, length - i, &bytes);
    end = i + bytes;
    while (code != STRAY && end < length) {
      int32_t after = next_code(text + end, length - end, &bytes);
      if (after == STRAY || utf8proc_grapheme_break_stateful(code, after, &state)) break;
      code = after;
      end += bytes;
    }
    mapped = false;
    if (end - i < SHORT) ok = put_mapped(p, &s->charsmap, text + i, end - i, &mapped);
    for (size_t k = i; k < end && ok && !mapped; k += bytes) {
      bool one;
      next_code(text + k, end - k, &bytes);
      ok = put_mapped(p, &s->charsmap, text + k, bytes, &one) && (one || put(p, text + k, bytes));
    }
  }
  return ok;
}

/* --- SentencePiece --------------------------------------------------------- */

/* The longest kept key that text starts with; 0: none. */
static size_t kept_key(const hr_trie *keep, const char *text, size_t length) {
  size_t found = 0;
  int32_t node = 0;
  for (size_t i = 0; keep && i < length; i++) {
    node = hr_trie_step(keep, node, text[i]);
    if (node == 0) break;
    if (hr_trie_id(keep, node) >= 0) found = i + 1;
  }
  return found;
}

/* The next thing that is normalized as one: the bytes it takes, and what they become. */
static size_t next_unit(const hr_compiled *s, const char *text, size_t length, hr_piece *unit) {
  size_t used = kept_key(s->keep, text, length);
  if (used) {
    *unit = (hr_piece){text, used};
    return used;
  }
  const char *replacement = NULL;
  used = find_key(&s->charsmap, text, length, true, &replacement);
  if (used) {
    *unit = (hr_piece){replacement, strlen(replacement)};
    return used;
  }
  used = hr_utf8_length(text, length);
  *unit = used ? (hr_piece){text, used} : (hr_piece){REPLACEMENT, 3};
  return used ? used : 1;
}

static bool put_spaced(hr_pieces *p, const hr_compiled *s, hr_piece text) {
  bool ok = true;
  for (size_t i = 0; i < text.length && ok; i++)
    ok = text.text[i] == ' ' && !(s->step.flags & HR_SPM_KEEP_SPACES)
             ? put(p, SPACE_MARK, strlen(SPACE_MARK))
             : put(p, text.text + i, 1);
  return ok;
}

static void drop_last_spaces(hr_pieces *p, const hr_compiled *s, size_t start) {
  const char *space = s->step.flags & HR_SPM_KEEP_SPACES ? " " : SPACE_MARK;
  size_t bytes = strlen(space);
  hr_buffer *out = &p->next;
  while (out->length - start >= bytes && memcmp(out->text + out->length - bytes, space, bytes) == 0)
    out->length -= bytes;
}

static bool sentencepiece(hr_pieces *p, const hr_compiled *s, const char *text, size_t length,
                          bool first) {
  unsigned flags = s->step.flags;
  bool merge = flags & HR_SPM_MERGE_SPACES, after_space = merge, ok = true;
  const hr_piece space = {" ", 1};
  size_t start = p->next.length, i = 0, used;
  hr_piece unit;
  (void)first;
  for (; merge && i < length; i += used) {
    used = next_unit(s, text + i, length - i, &unit);
    if (unit.length != 1 || *unit.text != ' ') break;
  }
  if (i == length) return true;
  if ((flags & HR_SPM_PREFIX) && !(flags & HR_SPM_SUFFIX)) ok = put_spaced(p, s, space);
  for (; i < length && ok; i += used) {
    used = next_unit(s, text + i, length - i, &unit);
    for (; after_space && unit.length && *unit.text == ' '; unit.length--) unit.text++;
    if (unit.length == 0) continue;
    ok = put_spaced(p, s, unit);
    after_space = merge && unit.text[unit.length - 1] == ' ';
  }
  if (merge) drop_last_spaces(p, s, start);
  if (ok && (flags & HR_SPM_PREFIX) && (flags & HR_SPM_SUFFIX)) ok = put_spaced(p, s, space);
  return ok;
}

/* --- By kind --------------------------------------------------------------- */

hr_rewrite_fn *hr_rewriter(hr_step_kind kind) {
  switch (kind) {
    case HR_STEP_PREPEND:
      return prepend;
    case HR_STEP_STRIP:
      return strip;
    case HR_STEP_LOWERCASE:
      return lowercase;
    case HR_STEP_STRIP_ACCENTS:
      return strip_accents;
    case HR_STEP_NFC:
    case HR_STEP_NFD:
    case HR_STEP_NFKC:
    case HR_STEP_NFKD:
      return normal_form;
    case HR_STEP_NMT:
      return nmt;
    case HR_STEP_BERT:
      return bert;
    case HR_STEP_CHARSMAP:
      return charsmap;
    case HR_STEP_SENTENCEPIECE:
      return sentencepiece;
    case HR_STEP_METASPACE:
      return metaspace;
    case HR_STEP_PREFIX_SPACE:
      return prefix_space;
    case HR_STEP_LETTERS:
      return letters;
    case HR_STEP_BYTES:
      return bytes_of_letters;
    case HR_STEP_CLEANUP:
      return cleanup;
    case HR_STEP_REPLACE:
    case HR_STEP_SPLIT:
      break;
  }
  return NULL;
}
