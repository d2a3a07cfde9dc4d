/* SPDX-License-Identifier: MIT */
#include "text/tokenizer.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "text/tokenizer_impl.h"

/* Positions inside a text are 32 bits wide. */
#define MAX_TEXT ((size_t)1 << 30)

/* --- Creation -------------------------------------------------------------- */

size_t hr_copy_spaced(const char *text, size_t length, char *out) {
  char *to = out;
  for (size_t i = 0; i < length;) {
    if (length - i >= HR_SPACE_MARK_BYTES &&
        memcmp(text + i, HR_SPACE_MARK, HR_SPACE_MARK_BYTES) == 0) {
      *to++ = ' ';
      i += HR_SPACE_MARK_BYTES;
    } else {
      *to++ = text[i++];
    }
  }
  return (size_t)(to - out);
}

static int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

/* The byte that a token such as <0x0A> stands for; -1: it is none. */
static int byte_of(hr_piece piece) {
  if (piece.length != 6 || memcmp(piece.text, "<0x", 3) != 0 || piece.text[5] != '>') return -1;
  int high = hex_digit(piece.text[3]), low = hex_digit(piece.text[4]);
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

static bool has_byte_kind(const hr_vocab *vocab) {
  for (size_t i = 0; vocab->kinds && i < vocab->count; i++)
    if (vocab->kinds[i] == HR_TOKEN_BYTE) return true;
  return false;
}

/* Files that don't tell kinds apart leave it to the ids and the looks of a token. */
static hr_token_kind kind_of(const hr_vocab *vocab, size_t i, bool bytes_are_marked) {
  int32_t kind = vocab->kinds ? vocab->kinds[i] : HR_TOKEN_NORMAL;
  int32_t id = (int32_t)i;
  if (kind < HR_TOKEN_NORMAL || kind > HR_TOKEN_BYTE) kind = HR_TOKEN_NORMAL;
  if (!vocab->kinds && id == vocab->unknown) return HR_TOKEN_UNKNOWN;
  if (!vocab->kinds && (id == vocab->bos || id == vocab->eos)) return HR_TOKEN_CONTROL;
  if (kind == HR_TOKEN_NORMAL && !bytes_are_marked && vocab->kind == HR_VOCAB_SPM &&
      byte_of(vocab->tokens[i]) >= 0)
    return HR_TOKEN_BYTE;
  return (hr_token_kind)kind;
}

static size_t decode_raw(hr_piece piece, char *out) {
  if (piece.length) memcpy(out, piece.text, piece.length);
  return piece.length;
}

/* Writes the bytes that a token stands for, at most as many as its text has. */
static size_t decode_token(const hr_vocab *vocab, hr_token_kind kind, hr_piece piece, char *out) {
  if (kind == HR_TOKEN_CONTROL || kind == HR_TOKEN_UNKNOWN) return decode_raw(piece, out);
  if (kind == HR_TOKEN_BYTE && byte_of(piece) >= 0) {
    *out = (char)byte_of(piece);
    return 1;
  }
  if (vocab->kind != HR_VOCAB_BPE) return hr_copy_spaced(piece.text, piece.length, out);
  if (kind == HR_TOKEN_USER) return decode_raw(piece, out);
  size_t length = hr_bpe_decode(piece.text, piece.length, out);
  return length == SIZE_MAX ? decode_raw(piece, out) : length;
}

static hr_status check_id(const hr_vocab *vocab, int32_t id, const char *name, hr_error *err) {
  if (id >= -1 && (id < 0 || (size_t)id < vocab->count)) return HR_OK;
  return hr_fail(err, HR_ERROR_FILE, "%s: the id of the %s token is %d, expected less than %zu",
                 vocab->where, name, id, vocab->count);
}

static hr_status check_vocab(const hr_vocab *vocab, size_t *bytes, hr_error *err) {
  if (vocab->count == 0 || vocab->count >= INT32_MAX)
    return hr_fail(err, HR_ERROR_FILE, "%s: the vocabulary has %zu tokens, expected 1 to %d",
                   vocab->where, vocab->count, INT32_MAX - 1);
  *bytes = 1;
  for (size_t i = 0; i < vocab->count; i++) {
    size_t length = vocab->tokens[i].length;
    if (length >= MAX_TEXT || !hr_add_size(*bytes, length, bytes))
      return hr_fail(err, HR_ERROR_FILE, "%s: token %zu has %zu bytes, expected less than %zu",
                     vocab->where, i, length, MAX_TEXT);
    if (vocab->scores && isnan(vocab->scores[i]))
      return hr_fail(err, HR_ERROR_FILE, "%s: the score of token %zu is not a number", vocab->where,
                     i);
  }
  if ((vocab->kind == HR_VOCAB_SPM || vocab->kind == HR_VOCAB_UNIGRAM) && !vocab->scores)
    return hr_fail(err, HR_ERROR_FILE, "%s: the vocabulary has no scores, which its kind needs",
                   vocab->where);
  hr_status status = check_id(vocab, vocab->bos, "BOS", err);
  if (status == HR_OK) status = check_id(vocab, vocab->eos, "EOS", err);
  if (status == HR_OK) status = check_id(vocab, vocab->unknown, "unknown", err);
  return status;
}

static void fill_pool(hr_tokenizer *t, const hr_vocab *vocab) {
  bool bytes_are_marked = has_byte_kind(vocab);
  for (size_t i = 0; i < vocab->count; i++) {
    hr_token_kind kind = kind_of(vocab, i, bytes_are_marked);
    size_t length = decode_token(vocab, kind, vocab->tokens[i], t->pool + t->start[i]);
    t->kinds[i] = (uint8_t)kind;
    t->start[i + 1] = t->start[i] + length;
    if (length > t->longest) t->longest = length;
    if (kind == HR_TOKEN_BYTE && length == 1 && t->kind != HR_VOCAB_BPE)
      t->byte_id[(uint8_t)t->pool[t->start[i]]] = (int32_t)i;
  }
}

static void map_kinds(hr_tokenizer *t, unsigned kinds) {
  for (size_t i = t->count; i-- > 0;) {
    hr_piece piece = hr_token_bytes(t, (int32_t)i);
    if ((kinds >> t->kinds[i] & 1) && piece.length)
      hr_byte_map_add(&t->map, piece.text, piece.length, (int32_t)i);
  }
}

/* Where two tokens stand for the same bytes, an ordinary one is found. Special
 * ones are there for BPE's merges, which may name any token. */
static void fill_map(hr_tokenizer *t) {
  map_kinds(t, 1u << HR_TOKEN_NORMAL | 1u << HR_TOKEN_UNUSED);
  map_kinds(t, 1u << HR_TOKEN_USER);
  if (t->kind == HR_VOCAB_BPE) map_kinds(t, 1u << HR_TOKEN_CONTROL | 1u << HR_TOKEN_UNKNOWN);
}

static bool fill_specials(hr_tokenizer *t) {
  if (!hr_trie_init(&t->specials)) return false;
  for (size_t i = 0; i < t->count; i++) {
    int32_t id = (int32_t)i;
    hr_piece piece = hr_token_bytes(t, id);
    if (piece.length == 0 || !(hr_token_is_special(t, id) || t->kinds[i] == HR_TOKEN_USER))
      continue;
    if (!hr_trie_add(&t->specials, piece.text, piece.length, id)) return false;
  }
  return true;
}

static bool copy_scores(hr_tokenizer *t, const hr_vocab *vocab) {
  if (!vocab->scores) return true;
  t->scores = hr_calloc(t->count, sizeof *t->scores);
  if (t->scores) memcpy(t->scores, vocab->scores, t->count * sizeof *t->scores);
  return t->scores != NULL;
}

static hr_status fill(hr_tokenizer *t, const hr_vocab *vocab, hr_error *err) {
  size_t bytes = 0;
  hr_status status = check_vocab(vocab, &bytes, err);
  if (status != HR_OK) return status;
  t->where = hr_strndup(vocab->where, strlen(vocab->where));
  t->pool = hr_calloc(bytes, 1);
  t->start = hr_calloc(t->count + 1, sizeof *t->start);
  t->kinds = hr_calloc(t->count, sizeof *t->kinds);
  if (!t->where || !t->pool || !t->start || !t->kinds || !copy_scores(t, vocab) ||
      !hr_byte_map_init(&t->map, t->count))
    return hr_fail_memory(err, vocab->where, bytes);
  fill_pool(t, vocab);
  fill_map(t);
  if (!fill_specials(t)) return hr_fail_memory(err, vocab->where, bytes);
  if (t->kind == HR_VOCAB_SPM) hr_spm_prepare(t);
  if (t->kind == HR_VOCAB_BPE) return hr_bpe_prepare(t, vocab, err);
  if (t->kind == HR_VOCAB_UNIGRAM) return hr_unigram_prepare(t, vocab, err);
  return HR_OK;
}

hr_tokenizer *hr_tokenizer_create(const hr_vocab *vocab, hr_error *err) {
  hr_tokenizer *t = hr_calloc(1, sizeof *t);
  if (!t) {
    hr_fail_memory(err, vocab->where, sizeof *t);
    return NULL;
  }
  *t = (hr_tokenizer){.kind = vocab->kind,
                      .count = vocab->count,
                      .bos = vocab->bos,
                      .eos = vocab->eos,
                      .unknown = vocab->unknown,
                      .add_bos = vocab->add_bos,
                      .add_eos = vocab->add_eos,
                      .add_space_prefix = vocab->add_space_prefix,
                      .ignore_merges = vocab->ignore_merges,
                      .keep_case = vocab->keep_case,
                      .keep_accents = vocab->keep_accents,
                      .keep_cjk = vocab->keep_cjk,
                      .keep_control = vocab->keep_control,
                      .merge_spaces = vocab->merge_spaces};
  memset(t->byte_id, 0xff, sizeof t->byte_id);
  if (fill(t, vocab, err) == HR_OK) return t;
  hr_tokenizer_free(t);
  return NULL;
}

void hr_tokenizer_free(hr_tokenizer *t) {
  if (!t) return;
  hr_cutter_free(t->cutter);
  hr_pair_map_clear(&t->merges);
  hr_trie_clear(&t->trie);
  hr_trie_clear(&t->specials);
  hr_byte_map_clear(&t->map);
  hr_free(t->charsmap);
  hr_free(t->replacements);
  hr_free(t->scores);
  hr_free(t->kinds);
  hr_free(t->start);
  hr_free(t->pool);
  hr_free(t->where);
  hr_free(t);
}

/* --- Ids to text ----------------------------------------------------------- */

hr_piece hr_tokenizer_text(const hr_tokenizer *t, int32_t id, bool with_special) {
  if (hr_token_is_special(t, id) && !with_special) return (hr_piece){.text = "", .length = 0};
  return hr_token_bytes(t, id);
}

bool hr_tokenizer_strips_first_space(const hr_tokenizer *t) {
  if (t->kind == HR_VOCAB_WORDPIECE) return true;
  return t->kind != HR_VOCAB_BPE && t->add_space_prefix;
}

/* --- Text to ids ----------------------------------------------------------- */

hr_status hr_encoder_memory(hr_encoder *encoder, size_t bytes) {
  return hr_fail_memory(encoder->err, encoder->tokenizer->where, bytes);
}

hr_status hr_encoder_scratch(hr_encoder *encoder, size_t bytes) {
  void *scratch = encoder->scratch;
  if (!hr_grow(&scratch, &encoder->scratch_capacity, bytes, 1))
    return hr_encoder_memory(encoder, bytes);
  encoder->scratch = scratch;
  return HR_OK;
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

/* The longest special token that text starts with; -1: none. */
static int32_t match_special(const hr_tokenizer *t, const char *text, size_t length, unsigned flags,
                             size_t *bytes) {
  int32_t found = -1, node = 0;
  for (size_t i = 0; i < length; i++) {
    node = hr_trie_step(&t->specials, node, text[i]);
    if (node == 0) break;
    int32_t id = hr_trie_id(&t->specials, node);
    if (id < 0 || (hr_token_is_special(t, id) && !(flags & HR_TOKENIZE_PARSE_SPECIAL))) continue;
    found = id;
    *bytes = i + 1;
  }
  return found;
}

static hr_status encode_plain(hr_encoder *encoder, const char *text, size_t length) {
  if (length == 0) return HR_OK;
  hr_status status = HR_ERROR_FILE;
  encoder->after_unknown = false;
  switch (encoder->tokenizer->kind) {
    case HR_VOCAB_SPM:
      status = hr_spm_encode(encoder, text, length);
      break;
    case HR_VOCAB_BPE:
      status = hr_bpe_encode(encoder, text, length);
      break;
    case HR_VOCAB_WORDPIECE:
      status = hr_wordpiece_encode(encoder, text, length);
      break;
    case HR_VOCAB_UNIGRAM:
      status = hr_unigram_encode(encoder, text, length);
      break;
  }
  encoder->after_special = false;
  return status;
}

static hr_status encode_text(hr_encoder *encoder, const char *text, size_t length, unsigned flags) {
  size_t begin = 0, at = 0;
  while (at < length) {
    size_t bytes = 0;
    int32_t id = match_special(encoder->tokenizer, text + at, length - at, flags, &bytes);
    if (id < 0) {
      at++;
      continue;
    }
    hr_status status = encode_plain(encoder, text + begin, at - begin);
    if (status == HR_OK) status = hr_encoder_emit(encoder, id);
    if (status != HR_OK) return status;
    encoder->after_special = true;
    begin = at += bytes;
  }
  return encode_plain(encoder, text + begin, length - begin);
}

static hr_status encode_all(hr_encoder *encoder, const char *text, size_t length, unsigned flags) {
  const hr_tokenizer *t = encoder->tokenizer;
  bool around = flags & HR_TOKENIZE_SPECIAL;
  size_t bytes;
  hr_status status = HR_OK;
  /* A template may have written BOS already: there is never a second one. */
  if (around && t->add_bos && t->bos >= 0 &&
      match_special(t, text, length, flags, &bytes) != t->bos)
    status = hr_encoder_emit(encoder, t->bos);
  if (status == HR_OK) status = encode_text(encoder, text, length, flags);
  if (status == HR_OK && around && t->add_eos && t->eos >= 0)
    status = hr_encoder_emit(encoder, t->eos);
  return status;
}

hr_status hr_tokenizer_encode(const hr_tokenizer *t, const char *text, size_t length,
                              unsigned flags, int32_t **ids, size_t *count, hr_error *err) {
  *ids = NULL;
  *count = 0;
  if (length > MAX_TEXT)
    return hr_fail(err, HR_ERROR_USAGE,
                   "the text has %zu bytes, at most %zu can be tokenized at once", length,
                   MAX_TEXT);
  hr_encoder encoder = {.tokenizer = t, .err = err, .after_special = true};
  hr_status status = encode_all(&encoder, text, length, flags);
  if (status == HR_OK && !encoder.ids && !(encoder.ids = hr_calloc(1, sizeof *encoder.ids)))
    status = hr_encoder_memory(&encoder, sizeof *encoder.ids);
  hr_merger_clear(&encoder.merger);
  hr_cut_free(encoder.cut);
  hr_free(encoder.scratch);
  if (status != HR_OK) {
    hr_free(encoder.ids);
    return status;
  }
  *ids = encoder.ids;
  *count = encoder.count;
  return HR_OK;
}
