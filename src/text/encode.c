/* SPDX-License-Identifier: MIT
 * Text to ids: special tokens are found, what is between them is normalized and
 * cut, and the model turns each piece into ids. */
#include <string.h>
#include <utf8proc.h>

#include "base/memory.h"
#include "text/tokenizer_impl.h"
#include "text/utf8_stream.h"

/* Positions inside a text are 32 bits wide. */
#define MAX_TEXT ((size_t)1 << 30)

/* --- Giving out ids -------------------------------------------------------- */

hr_status hr_encoder_memory(hr_encoder *encoder, size_t bytes) {
  return hr_fail_memory(encoder->err, encoder->tokenizer->where, bytes);
}

hr_status hr_encoder_emit(hr_encoder *encoder, int32_t id) {
  void *ids = encoder->ids;
  size_t needed = encoder->count + 1;
  if (!hr_grow(&ids, &encoder->capacity, needed, sizeof *encoder->ids))
    return hr_encoder_memory(encoder, needed * sizeof *encoder->ids);
  encoder->ids = ids;
  encoder->ids[encoder->count++] = id;
  return HR_OK;
}

hr_status hr_encoder_emit_unknown(hr_encoder *encoder, char byte) {
  const hr_tokenizer *t = encoder->tokenizer;
  if (t->unknown >= 0) return hr_encoder_emit(encoder, t->unknown);
  return hr_fail(encoder->err, HR_ERROR_FILE,
                 "%s: the vocabulary has neither a token for the byte 0x%02x nor an unknown token",
                 t->where, (uint8_t)byte);
}

static bool has_bytes(const hr_tokenizer *t, const char *text, size_t length) {
  for (size_t i = 0; i < length; i++)
    if (t->byte_id[(uint8_t)text[i]] < 0) return false;
  return true;
}

hr_status hr_encoder_emit_character(hr_encoder *encoder, const char *text, size_t length) {
  const hr_tokenizer *t = encoder->tokenizer;
  hr_status status = HR_OK;
  bool unknown = !has_bytes(t, text, length);
  bool fused = encoder->after_unknown && t->fuse_unknown;
  if (unknown && !fused) status = hr_encoder_emit_unknown(encoder, text[0]);
  for (size_t i = 0; !unknown && status == HR_OK && i < length; i++)
    status = hr_encoder_emit(encoder, t->byte_id[(uint8_t)text[i]]);
  encoder->after_unknown = unknown;
  return status;
}

/* --- Text between special tokens ------------------------------------------- */

/* A piece that no step is going to cut any more. */
static hr_status encode_piece(hr_encoder *encoder, const char *text, size_t length) {
  const hr_tokenizer *t = encoder->tokenizer;
  encoder->after_unknown = false;
  if (t->ignore_merges && length <= t->longest) {
    int32_t id = hr_byte_map_find(&t->map, text, length);
    if (id >= 0 && !hr_token_is_special(t, id)) return hr_encoder_emit(encoder, id);
  }
  switch (t->kind) {
    case HR_VOCAB_SPM:
      return hr_characters_encode(encoder, text, length);
    case HR_VOCAB_BPE:
      return t->byte_level ? hr_bytes_encode(encoder, text, length)
                           : hr_characters_encode(encoder, text, length);
    case HR_VOCAB_WORDPIECE:
      return hr_wordpiece_encode(encoder, text, length);
    case HR_VOCAB_UNIGRAM:
      return hr_unigram_encode(encoder, text, length);
  }
  return HR_OK;
}

/* A stretch of normalized text. first: nothing came before it. */
static hr_status encode_normalized(hr_encoder *encoder, const char *text, size_t length,
                                   bool first) {
  hr_pieces *pieces = &encoder->pieces;
  if (!hr_pieces_load(pieces, text, length)) return hr_encoder_memory(encoder, length);
  hr_status status = hr_steps_run(encoder->tokenizer->pre_tokenizer, pieces, first, encoder->err);
  for (size_t i = 0; i < pieces->count && status == HR_OK; i++)
    status =
        encode_piece(encoder, pieces->now.text + pieces->spans[i].start, pieces->spans[i].length);
  return status;
}

/* --- Special tokens -------------------------------------------------------- */

typedef hr_status encode_fn(hr_encoder *encoder, const char *text, size_t length, bool first);

static bool is_space(int32_t code) {
  utf8proc_category_t category = utf8proc_category(code);
  return (code >= '\t' && code <= '\r') || code == 0x85 || category == UTF8PROC_CATEGORY_ZS ||
         category == UTF8PROC_CATEGORY_ZL || category == UTF8PROC_CATEGORY_ZP;
}

/* Letters, marks, digits and what connects them. */
static bool is_word(int32_t code) {
  utf8proc_category_t category = utf8proc_category(code);
  return (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_NL) ||
         category == UTF8PROC_CATEGORY_PC;
}

/* Whether the character that ends at `end` is one of a kind; *bytes it has. */
static bool ends_with(const char *text, size_t start, size_t end, bool (*kind)(int32_t),
                      size_t *bytes) {
  for (*bytes = 1; *bytes <= 4 && *bytes <= end - start; ++*bytes)
    if (hr_utf8_length(text + end - *bytes, *bytes) == *bytes)
      return kind((int32_t)hr_utf8_decode(text + end - *bytes, *bytes));
  return false;
}

static bool starts_with(const char *text, size_t length, bool (*kind)(int32_t), size_t *bytes) {
  *bytes = hr_utf8_length(text, length);
  return *bytes && kind((int32_t)hr_utf8_decode(text, *bytes));
}

/* A user's text may not be taken for a template's markers, nor for what a text begins
 * and ends with: some vocabularies have those as user-defined tokens. */
static bool is_marker(const hr_tokenizer *t, int32_t id) {
  hr_piece piece = hr_token_bytes(t, id);
  return hr_token_is_special(t, id) || hr_token_is_guard(t, id) ||
         (piece.length > 4 && memcmp(piece.text, "<|", 2) == 0 &&
          memcmp(piece.text + piece.length - 2, "|>", 2) == 0);
}

/* The longest special token that text starts with; -1: none. */
static int32_t match_special(const hr_encoder *encoder, const hr_trie *trie, const char *text,
                             size_t length, size_t *bytes) {
  const hr_tokenizer *t = encoder->tokenizer;
  bool parse = encoder->flags & HR_TOKENIZE_PARSE_SPECIAL;
  const unsigned char *data = encoder->data ? encoder->data + (text - encoder->marked) : NULL;
  bool is_data = encoder->all_data;
  int32_t found = -1, node = 0;
  for (size_t i = 0; i < length; i++) {
    node = hr_trie_step(trie, node, text[i]);
    if (node == 0) break;
    int32_t id = hr_trie_id(trie, node);
    is_data |= data && data[i];
    if (id < 0 || (is_data ? is_marker(t, id) : hr_token_is_special(t, id) && !parse)) continue;
    found = id;
    *bytes = i + 1;
  }
  return found;
}

/* The special token at text[at], in the text from `begin` on, and the stretch
 * that it takes. A token that may not stand inside a word is none there. */
static int32_t find_special(const hr_encoder *encoder, const hr_trie *trie, const char *text,
                            size_t length, size_t begin, size_t at, hr_text_span *taken) {
  size_t bytes = 0, step;
  int32_t id = match_special(encoder, trie, text + at, length - at, &bytes);
  if (id < 0) return -1;
  unsigned asks = encoder->tokenizer->added ? encoder->tokenizer->added[id] : 0;
  size_t start = at, end = at + bytes;
  if ((asks & HR_ADDED_SINGLE_WORD) && (ends_with(text, 0, start, is_word, &step) ||
                                        starts_with(text + end, length - end, is_word, &step)))
    return -1;
  while ((asks & HR_ADDED_LSTRIP) && ends_with(text, begin, start, is_space, &step)) start -= step;
  while ((asks & HR_ADDED_RSTRIP) && starts_with(text + end, length - end, is_space, &step))
    end += step;
  *taken = (hr_text_span){start, end - start};
  return id;
}

static hr_status emit_special(hr_encoder *encoder, int32_t id, bool first) {
  if (first && encoder->count == 0) encoder->first_special = id;
  return hr_encoder_emit(encoder, id);
}

/* Gives out the special tokens in a text; what is between them goes to `rest`. */
static hr_status split_specials(hr_encoder *encoder, const hr_trie *trie, encode_fn *rest,
                                const char *text, size_t length, bool first) {
  size_t begin = 0;
  for (size_t at = 0; at < length;) {
    hr_text_span taken;
    int32_t id = find_special(encoder, trie, text, length, begin, at, &taken);
    if (id < 0) {
      at++;
      continue;
    }
    hr_status status = HR_OK;
    if (taken.start > begin)
      status = rest(encoder, text + begin, taken.start - begin, first && begin == 0);
    if (status == HR_OK) status = emit_special(encoder, id, first);
    if (status != HR_OK) return status;
    begin = at = taken.start + taken.length;
  }
  return begin < length ? rest(encoder, text + begin, length - begin, first && begin == 0) : HR_OK;
}

/* Which bytes of the normalized text are a user's. Where normalizing changed it
 * nobody knows, and all count as such. */
static void follow_data(hr_encoder *encoder, const char *text, size_t length) {
  if (!encoder->data) return;
  const hr_pieces *normal = &encoder->normal;
  bool same = normal->now.length == length && memcmp(normal->now.text, text, length) == 0;
  encoder->data = same ? encoder->data + (text - encoder->marked) : NULL;
  encoder->marked = normal->now.text;
  encoder->all_data = !same;
}

static hr_status encode_plain(hr_encoder *encoder, const char *text, size_t length, bool first) {
  const hr_tokenizer *t = encoder->tokenizer;
  hr_pieces *normal = &encoder->normal;
  if (!hr_pieces_load(normal, text, length)) return hr_encoder_memory(encoder, length);
  hr_status status = hr_steps_run(t->normalizer, normal, first, encoder->err);
  if (status != HR_OK || normal->now.length == 0) return status;
  const unsigned char *data = encoder->data;
  const char *marked = encoder->marked;
  follow_data(encoder, text, length);
  status = split_specials(encoder, &t->normalized, encode_normalized, normal->now.text,
                          normal->now.length, first);
  encoder->data = data;
  encoder->marked = marked;
  encoder->all_data = false;
  return status;
}

/* --- The whole ------------------------------------------------------------- */

/* A template may have written BOS already: there is never a second one. */
static hr_status put_before(hr_encoder *encoder) {
  const hr_template *around = &encoder->tokenizer->around;
  size_t n = around->before_count, count = encoder->count;
  if (n == 0 || encoder->first_special == around->before[0]) return HR_OK;
  for (size_t i = 0; i < n; i++) {
    hr_status status = hr_encoder_emit(encoder, around->before[i]);
    if (status != HR_OK) return status;
  }
  memmove(encoder->ids + n, encoder->ids, count * sizeof *encoder->ids);
  memcpy(encoder->ids, around->before, n * sizeof *encoder->ids);
  return HR_OK;
}

static hr_status put_after(hr_encoder *encoder) {
  const hr_template *around = &encoder->tokenizer->around;
  hr_status status = HR_OK;
  for (size_t i = 0; i < around->after_count && status == HR_OK; i++)
    status = hr_encoder_emit(encoder, around->after[i]);
  return status;
}

/* *ids is the caller's. */
static hr_status finish(hr_encoder *encoder, hr_status status, int32_t **ids, size_t *count) {
  if (status == HR_OK && !encoder->ids && !(encoder->ids = hr_calloc(1, sizeof *encoder->ids)))
    status = hr_encoder_memory(encoder, sizeof *encoder->ids);
  hr_pieces_clear(&encoder->normal);
  hr_pieces_clear(&encoder->pieces);
  hr_merger_clear(&encoder->merger);
  hr_free(encoder->word.text);
  hr_free(encoder->best);
  if (status != HR_OK) {
    hr_free(encoder->ids);
    return status;
  }
  *ids = encoder->ids;
  *count = encoder->count;
  return HR_OK;
}

static hr_status encode_all(hr_encoder *encoder, const char *text, size_t length, int32_t **ids,
                            size_t *count) {
  *ids = NULL;
  *count = 0;
  if (length > MAX_TEXT)
    return hr_fail(encoder->err, HR_ERROR_USAGE,
                   "the text has %zu bytes, at most %zu can be tokenized at once", length,
                   MAX_TEXT);
  encoder->first_special = -1;
  hr_status status =
      split_specials(encoder, &encoder->tokenizer->specials, encode_plain, text, length, true);
  if (status == HR_OK && (encoder->flags & HR_TOKENIZE_SPECIAL)) status = put_before(encoder);
  if (status == HR_OK && (encoder->flags & HR_TOKENIZE_SPECIAL) && !encoder->marked)
    status = put_after(encoder);
  return finish(encoder, status, ids, count);
}

hr_status hr_tokenizer_encode(const hr_tokenizer *t, const char *text, size_t length,
                              unsigned flags, int32_t **ids, size_t *count, hr_error *err) {
  hr_encoder encoder = {.tokenizer = t, .err = err, .flags = flags};
  return encode_all(&encoder, text, length, ids, count);
}

hr_status hr_tokenizer_encode_chat(const hr_tokenizer *t, const char *text,
                                   const unsigned char *data, size_t length, int32_t **ids,
                                   size_t *count, hr_error *err) {
  hr_encoder encoder = {.tokenizer = t,
                        .err = err,
                        .flags = HR_TOKENIZE_SPECIAL | HR_TOKENIZE_PARSE_SPECIAL,
                        .data = data,
                        .marked = text};
  return encode_all(&encoder, text, length, ids, count);
}

/* --- Two texts -------------------------------------------------------------- */

static int32_t *put(int32_t *to, const int32_t *ids, size_t count) {
  memcpy(to, ids, count * sizeof *to);
  return to + count;
}

hr_status hr_tokenizer_encode_pair(const hr_tokenizer *t, hr_piece first, hr_piece second,
                                   int32_t **ids, int32_t **types, size_t *count, hr_error *err) {
  const hr_template *around = &t->around;
  int32_t *a = NULL, *b = NULL;
  size_t a_count, b_count;
  *ids = *types = NULL;
  *count = 0;
  if (!around->pairs)
    return hr_fail(err, HR_ERROR_FILE,
                   "the tokenizer does not say how two texts are put together, expected tokens "
                   "around them as BERT has");
  hr_status status = hr_tokenizer_encode(t, first.text, first.length, 0, &a, &a_count, err);
  if (status == HR_OK)
    status = hr_tokenizer_encode(t, second.text, second.length, 0, &b, &b_count, err);
  if (status == HR_OK) {
    size_t front = around->before_count + a_count + around->between_count;
    size_t all = front + b_count + around->after_count;
    *ids = hr_calloc(all + 1, sizeof **ids); /* each text is far below a size_t */
    *types = hr_calloc(all + 1, sizeof **types);
    if (*ids && *types) {
      int32_t *end = put(*ids, around->before, around->before_count);
      end = put(put(end, a, a_count), around->between, around->between_count);
      put(put(end, b, b_count), around->after, around->after_count);
      for (size_t i = front; i < all && around->second_type; i++) (*types)[i] = 1;
      *count = all;
    } else {
      status = hr_fail_memory(err, "tokens of two texts", all * 2 * sizeof **ids);
      hr_free(*ids);
      hr_free(*types);
      *ids = *types = NULL;
    }
  }
  hr_free(a);
  hr_free(b);
  return status;
}
