/* SPDX-License-Identifier: MIT
 * BERT's tokenizer: the text is normalized and cut into words and punctuation;
 * each word is covered by the longest tokens from its start on. */
#include <string.h>
#include <utf8proc.h>

#include "text/tokenizer_impl.h"
#include "text/utf8_stream.h"

/* A longer word is unknown as a whole. */
#define MAX_WORD_CHARACTERS 100
/* A space, which marks the start of a word, and the characters. */
#define WORD_BYTES (1 + 4 * MAX_WORD_CHARACTERS)
/* No character decomposes into more than 4; lower case can add one to each. */
#define MAX_DECOMPOSED 16

typedef struct word {
  hr_encoder *encoder;
  size_t characters; /* also those that had no room in text */
  size_t bytes;
  char text[WORD_BYTES];
} word;

static bool is_space(int32_t code) {
  static const int32_t single[] = {' ', 0x85, 0xa0, 0x1680, 0x2028, 0x2029, 0x202f, 0x205f, 0x3000};
  for (size_t i = 0; i < sizeof single / sizeof *single; i++)
    if (code == single[i]) return true;
  return (code >= '\t' && code <= '\r') || (code >= 0x2000 && code <= 0x200a);
}

static bool is_control(int32_t code) {
  if (code == '\t' || code == '\n' || code == '\r') return false;
  utf8proc_category_t category = utf8proc_category(code);
  return category == UTF8PROC_CATEGORY_CC || category == UTF8PROC_CATEGORY_CF ||
         category == UTF8PROC_CATEGORY_CO;
}

static bool is_punctuation(int32_t code) {
  if (code < 0x80)
    return (code >= 0x21 && code <= 0x2f) || (code >= 0x3a && code <= 0x40) ||
           (code >= 0x5b && code <= 0x60) || (code >= 0x7b && code <= 0x7e);
  utf8proc_category_t category = utf8proc_category(code);
  return category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO;
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

/* The longest token at the start of text; -1: none. */
static int32_t longest_token(const hr_tokenizer *t, const char *text, size_t length,
                             size_t *bytes) {
  for (*bytes = length < t->longest ? length : t->longest; *bytes > 0; --*bytes) {
    int32_t id = hr_byte_map_find(&t->map, text, *bytes);
    if (id >= 0) return id;
  }
  return -1;
}

/* Gives out the tokens of the word, or the unknown token when some part of it is none. */
static hr_status finish_word(word *w) {
  hr_encoder *encoder = w->encoder;
  size_t first = encoder->count, at = 0;
  if (w->characters == 0) return HR_OK;
  bool known = w->characters <= MAX_WORD_CHARACTERS;
  while (known && at < w->bytes) {
    size_t bytes;
    int32_t id = longest_token(encoder->tokenizer, w->text + at, w->bytes - at, &bytes);
    known = id >= 0;
    hr_status status = known ? hr_encoder_emit(encoder, id) : HR_OK;
    if (status != HR_OK) return status;
    at += bytes;
  }
  w->characters = 0;
  w->bytes = 1;
  if (known) return HR_OK;
  encoder->count = first;
  return hr_encoder_emit_unknown(encoder, w->text[1]);
}

static void add_character(word *w, int32_t code) {
  if (w->characters++ < MAX_WORD_CHARACTERS)
    w->bytes += hr_utf8_encode((uint32_t)code, w->text + w->bytes);
}

static hr_status add_normalized(word *w, int32_t code) {
  if (!is_punctuation(code)) {
    add_character(w, code);
    return HR_OK;
  }
  hr_status status = finish_word(w);
  if (status != HR_OK) return status;
  add_character(w, code);
  return finish_word(w);
}

static hr_status add_lower(word *w, int32_t code) {
  if (w->encoder->tokenizer->keep_case) return add_normalized(w, code);
  if (code == 0x130) { /* the one letter whose small form is two characters */
    hr_status status = add_normalized(w, 'i');
    return status == HR_OK ? add_normalized(w, 0x307) : status;
  }
  return add_normalized(w, utf8proc_tolower(code));
}

static hr_status add_letter(word *w, int32_t code) {
  if (w->encoder->tokenizer->keep_accents) return add_lower(w, code);
  int32_t parts[MAX_DECOMPOSED];
  int boundary = 0;
  utf8proc_ssize_t count =
      utf8proc_decompose_char(code, parts, MAX_DECOMPOSED, UTF8PROC_DECOMPOSE, &boundary);
  if (count < 0 || count > MAX_DECOMPOSED) return add_lower(w, code);
  hr_status status = HR_OK;
  for (utf8proc_ssize_t i = 0; i < count && status == HR_OK; i++)
    if (utf8proc_category(parts[i]) != UTF8PROC_CATEGORY_MN) status = add_lower(w, parts[i]);
  return status;
}

static hr_status add_code(word *w, int32_t code) {
  const hr_tokenizer *t = w->encoder->tokenizer;
  if (!t->keep_control && (code == 0 || code == 0xfffd || is_control(code))) return HR_OK;
  if (is_space(code)) return finish_word(w);
  if (t->keep_cjk || !is_cjk(code)) return add_letter(w, code);
  hr_status status = finish_word(w);
  if (status == HR_OK) status = add_letter(w, code);
  return status == HR_OK ? finish_word(w) : status;
}

hr_status hr_wordpiece_encode(hr_encoder *encoder, const char *text, size_t length) {
  word w = {.encoder = encoder, .bytes = 1, .text = " "};
  hr_status status = HR_OK;
  for (size_t i = 0; i < length && status == HR_OK;) {
    size_t bytes = hr_utf8_length(text + i, length - i);
    status = add_code(&w, bytes ? (int32_t)hr_utf8_decode(text + i, bytes) : 0xfffd);
    i += bytes ? bytes : 1;
  }
  return status == HR_OK ? finish_word(&w) : status;
}
