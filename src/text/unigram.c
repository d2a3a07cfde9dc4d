/* SPDX-License-Identifier: MIT
 * SentencePiece's unigram model: of all ways to cut the normalized text into
 * tokens, the one with the greatest sum of scores. */
#include <float.h>
#include <string.h>

#include "base/memory.h"
#include "text/tokenizer_impl.h"
#include "text/utf8_stream.h"

/* What a character that is no token costs beyond the worst token. */
#define UNKNOWN_PENALTY 10.0f
/* Keys of the normalization are a few characters long. */
#define MAX_KEY 256

/* --- Creation -------------------------------------------------------------- */

/* The normalization is a table from SentencePiece: the size in bytes of a
 * double array (32-bit units, little-endian), that array, and the strings that
 * its values point to. */
static hr_status read_charsmap(hr_tokenizer *t, const hr_vocab *vocab, hr_error *err) {
  const uint8_t *from = vocab->charsmap;
  size_t bytes = vocab->charsmap_bytes;
  if (!from || bytes == 0) return HR_OK;
  uint32_t size = 0;
  if (bytes >= 4)
    size = from[0] | (uint32_t)from[1] << 8 | (uint32_t)from[2] << 16 | (uint32_t)from[3] << 24;
  if (bytes < 4 || size % 4 != 0 || size == 0 || size >= bytes - 4)
    return hr_fail(
        err, HR_ERROR_FILE,
        "%s: the table that normalizes text has %zu bytes, of which %u are its first part",
        vocab->where, bytes, size);
  t->charsmap_units = size / 4;
  t->replacement_bytes = bytes - 4 - size;
  t->charsmap = hr_calloc(t->charsmap_units, sizeof *t->charsmap);
  t->replacements = hr_strndup((const char *)from + 4 + size, t->replacement_bytes);
  if (!t->charsmap || !t->replacements) return hr_fail_memory(err, vocab->where, bytes);
  for (size_t i = 0; i < t->charsmap_units; i++) {
    const uint8_t *b = from + 4 + 4 * i;
    t->charsmap[i] = b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
  }
  return HR_OK;
}

hr_status hr_unigram_prepare(hr_tokenizer *t, const hr_vocab *vocab, hr_error *err) {
  float worst = FLT_MAX;
  if (!hr_trie_init(&t->trie)) return hr_fail_memory(err, vocab->where, 0);
  for (size_t i = 0; i < t->count; i++) {
    hr_piece piece = hr_token_bytes(t, (int32_t)i);
    if (t->kinds[i] == HR_TOKEN_NORMAL && t->scores[i] < worst) worst = t->scores[i];
    if (piece.length == 0 || (t->kinds[i] != HR_TOKEN_NORMAL && t->kinds[i] != HR_TOKEN_USER))
      continue;
    if (!hr_trie_add(&t->trie, piece.text, piece.length, (int32_t)i))
      return hr_fail_memory(err, vocab->where, t->trie.count * 2 * sizeof(int32_t));
  }
  t->unknown_score = (worst == FLT_MAX ? 0 : worst) - UNKNOWN_PENALTY;
  return read_charsmap(t, vocab, err);
}

/* --- Normalization --------------------------------------------------------- */

static uint32_t unit_at(const hr_tokenizer *t, uint32_t node) {
  return node < t->charsmap_units ? t->charsmap[node] : UINT32_C(0x80000000); /* no byte's label */
}

static uint32_t unit_offset(uint32_t unit) {
  return unit >> 10 << (unit >> 6 & 8);
}

/* The longest key of the normalization that text starts with: its length and
 * what stands for it; 0 when there is none. */
static size_t find_replacement(const hr_tokenizer *t, const char *text, size_t length,
                               const char **replacement) {
  size_t found = 0;
  if (t->charsmap_units == 0) return 0;
  uint32_t node = unit_offset(t->charsmap[0]);
  for (size_t i = 0; i < length && i < MAX_KEY && text[i] != '\0'; i++) {
    node ^= (uint8_t)text[i];
    uint32_t unit = unit_at(t, node);
    if ((unit & UINT32_C(0x800000ff)) != (uint8_t)text[i]) break;
    node ^= unit_offset(unit);
    uint32_t value = unit_at(t, node) & UINT32_C(0x7fffffff);
    if (!(unit >> 8 & 1) || value >= t->replacement_bytes) continue;
    *replacement = t->replacements + value;
    found = i + 1;
  }
  return found;
}

/* What is written, and whether the last of it was a space of the text. */
typedef struct normalizer {
  hr_encoder *encoder;
  size_t length;
  bool after_space;
} normalizer;

static hr_status write_bytes(normalizer *n, const char *text, size_t length) {
  bool merge = n->encoder->tokenizer->merge_spaces;
  while (merge && n->after_space && length > 0 && *text == ' ') {
    text++;
    length--;
  }
  if (length == 0) return HR_OK;
  hr_status status = hr_encoder_scratch(n->encoder, n->length + length);
  if (status != HR_OK) return status;
  n->length += hr_copy_spaced(text, length, n->encoder->scratch + n->length);
  n->after_space = text[length - 1] == ' ';
  return HR_OK;
}

static hr_status normalize(normalizer *n, const char *text, size_t length) {
  const hr_tokenizer *t = n->encoder->tokenizer;
  hr_status status = t->add_space_prefix ? write_bytes(n, " ", 1) : HR_OK;
  n->after_space = true; /* spaces at the start go too */
  for (size_t i = 0; i < length && status == HR_OK;) {
    const char *piece = text + i;
    size_t used = find_replacement(t, text + i, length - i, &piece), bytes = used;
    if (used)
      bytes = strlen(piece);
    else
      used = bytes = hr_utf8_length(text + i, length - i);
    if (used == 0) { /* a stray byte */
      piece = "\xef\xbf\xbd";
      bytes = 3;
      used = 1;
    }
    status = write_bytes(n, piece, bytes);
    i += used;
  }
  while (t->merge_spaces && n->length > 0 && n->encoder->scratch[n->length - 1] == ' ') n->length--;
  return status;
}

/* --- The best cut ---------------------------------------------------------- */

/* The best way found so far to reach a position. */
typedef struct step {
  double score;
  uint32_t from;
  int32_t id; /* -1: a character that is no token */
} step;

static void offer(step *to, double score, size_t from, int32_t id) {
  if (score > to->score) *to = (step){.score = score, .from = (uint32_t)from, .id = id};
}

static void extend(const hr_tokenizer *t, const char *text, size_t length, size_t from,
                   step *steps) {
  size_t character = hr_utf8_length(text + from, length - from);
  if (character == 0) character = 1;
  bool character_is_token = false;
  int32_t node = 0;
  for (size_t i = from; i < length; i++) {
    node = hr_trie_step(&t->trie, node, text[i]);
    if (node == 0) break;
    int32_t id = hr_trie_id(&t->trie, node);
    if (id < 0) continue;
    double score = t->kinds[id] == HR_TOKEN_USER ? 0 : (double)t->scores[id];
    offer(&steps[i + 1], steps[from].score + score, from, id);
    if (i + 1 - from == character) character_is_token = true;
  }
  if (!character_is_token)
    offer(&steps[from + character], steps[from].score + (double)t->unknown_score, from, -1);
}

/* Turns the links around: steps[at].from becomes the position after. */
static void reverse(step *steps, size_t length) {
  uint32_t at = (uint32_t)length, after = at;
  while (at > 0) {
    uint32_t from = steps[at].from;
    steps[at].from = after;
    after = at;
    at = from;
  }
  steps[0].from = after;
}

static bool has_bytes(const hr_tokenizer *t, const char *text, size_t length) {
  for (size_t i = 0; i < length; i++)
    if (t->byte_id[(uint8_t)text[i]] < 0) return false;
  return true;
}

static hr_status emit(hr_encoder *encoder, const char *text, size_t length, int32_t id) {
  const hr_tokenizer *t = encoder->tokenizer;
  bool unknown = id < 0 && !has_bytes(t, text, length);
  bool repeated = unknown && encoder->after_unknown;
  encoder->after_unknown = unknown;
  if (id >= 0) return hr_encoder_emit(encoder, id);
  if (repeated) return HR_OK;
  if (unknown) return hr_encoder_emit_unknown(encoder, text[0]);
  hr_status status = HR_OK;
  for (size_t i = 0; i < length && status == HR_OK; i++)
    status = hr_encoder_emit(encoder, t->byte_id[(uint8_t)text[i]]);
  return status;
}

static hr_status encode_normalized(hr_encoder *encoder, const char *text, size_t length) {
  step *steps = hr_calloc(length + 1, sizeof *steps);
  if (!steps) return hr_encoder_memory(encoder, (length + 1) * sizeof *steps);
  for (size_t i = 1; i <= length; i++) steps[i].score = -DBL_MAX;
  for (size_t i = 0; i < length; i++)
    if (i == 0 || steps[i].score > -DBL_MAX) extend(encoder->tokenizer, text, length, i, steps);
  reverse(steps, length);
  hr_status status = HR_OK;
  for (size_t at = 0; at < length && status == HR_OK; at = steps[at].from)
    status = emit(encoder, text + at, steps[at].from - at, steps[steps[at].from].id);
  hr_free(steps);
  return status;
}

hr_status hr_unigram_encode(hr_encoder *encoder, const char *text, size_t length) {
  normalizer n = {.encoder = encoder};
  hr_status status = normalize(&n, text, length);
  if (status != HR_OK || n.length == 0) return status;
  if (n.length >= UINT32_MAX)
    return hr_fail(encoder->err, HR_ERROR_USAGE,
                   "the normalized text has %zu bytes, too many to tokenize", n.length);
  return encode_normalized(encoder, encoder->scratch, n.length);
}
