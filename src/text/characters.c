/* SPDX-License-Identifier: MIT
 * BPE of characters: of all neighbours that together are a token, those with
 * the best score are joined first (SentencePiece), or those of the first merge. */
#include <string.h>

#include "text/tokenizer_impl.h"
#include "text/utf8_stream.h"

/* Order of joining: a number that falls as the score rises. */
static uint32_t order_of(float score) {
  uint32_t bits;
  score += 0.0f; /* -0 and 0 are the same score */
  memcpy(&bits, &score, sizeof bits);
  return bits & UINT32_C(0x80000000) ? bits : ~bits & UINT32_C(0x7fffffff);
}

typedef struct spm_text {
  const hr_tokenizer *tokenizer;
  const char *text;
} spm_text;

/* A user-defined token inside a text is taken as it is. */
static bool is_frozen(const hr_tokenizer *t, const hr_symbol *symbol) {
  return t->inline_users && symbol->id >= 0 && t->kinds[symbol->id] == HR_TOKEN_USER;
}

static bool join_by_score(const void *arg, const hr_symbol *left, const hr_symbol *right,
                          uint32_t *order, int32_t *id) {
  const spm_text *spm = arg;
  const hr_tokenizer *t = spm->tokenizer;
  size_t length = (size_t)left->length + right->length;
  if (length > t->longest || is_frozen(t, left) || is_frozen(t, right)) return false;
  *id = hr_byte_map_find(&t->map, spm->text + left->start, length);
  if (*id < 0) return false;
  *order = order_of(t->scores[*id]);
  return true;
}

/* Unused tokens take part in joining but are given out as what they were joined
 * from, and so are special ones, which text never becomes. */
static bool in_parts(const hr_tokenizer *t, int32_t id) {
  return t->kinds[id] == HR_TOKEN_UNUSED || hr_token_is_special(t, id);
}

static hr_status emit_part(hr_encoder *encoder, const char *text, size_t start, size_t length,
                           int32_t id, int32_t part) {
  while (id >= 0 && part >= 0 && in_parts(encoder->tokenizer, id)) {
    const hr_symbol *right = &encoder->merger.symbols[part];
    size_t left_length = right->start - start;
    hr_status status = emit_part(encoder, text, start, left_length, right->previous, right->next);
    if (status != HR_OK) return status;
    start = right->start;
    length -= left_length;
    id = right->id;
    part = right->part;
  }
  if (id < 0) return hr_encoder_emit_character(encoder, text + start, length);
  encoder->after_unknown = false;
  return hr_encoder_emit(encoder, id);
}

hr_status hr_encoder_emit_symbols(hr_encoder *encoder, const char *text) {
  const hr_merger *merger = &encoder->merger;
  hr_status status = HR_OK;
  for (int32_t i = 0; i >= 0 && status == HR_OK; i = merger->symbols[i].next) {
    const hr_symbol *symbol = &merger->symbols[i];
    status = emit_part(encoder, text, symbol->start, symbol->length, symbol->id, symbol->part);
  }
  return status;
}

/* Joins the symbols gathered so far and gives out what they became. */
static hr_status encode_symbols(hr_encoder *encoder, const char *text) {
  const hr_tokenizer *t = encoder->tokenizer;
  hr_merger *merger = &encoder->merger;
  size_t length = merger->count;
  spm_text spm = {t, text};
  bool by_score = t->kind == HR_VOCAB_SPM;
  if (!(by_score ? hr_merger_run(merger, join_by_score, &spm)
                 : hr_merger_run(merger, hr_join_by_rank, t)))
    return hr_encoder_memory(encoder, length * sizeof *merger->heap);
  hr_status status = hr_encoder_emit_symbols(encoder, text);
  merger->count = 0;
  return status;
}

/* Where two bytes meet that no token has side by side, nothing can be joined:
 * most texts fall into words there, and short rows are much quicker. */
static bool may_join(const hr_tokenizer *t, char left, char right) {
  return t->neighbours[(uint8_t)left][(uint8_t)right / 8] >> ((uint8_t)right % 8) & 1;
}

/* The longest user-defined token that text starts with; 0 bytes: none. */
static size_t find_user(const hr_tokenizer *t, const char *text, size_t length, int32_t *id) {
  size_t found = 0;
  int32_t node = 0;
  for (size_t i = 0; i < length; i++) {
    node = hr_trie_step(&t->users, node, text[i]);
    if (node == 0) break;
    if (hr_trie_id(&t->users, node) < 0) continue;
    *id = hr_trie_id(&t->users, node);
    found = i + 1;
  }
  return found;
}

/* The next symbol: a user-defined token or a character. */
static size_t next_symbol(const hr_tokenizer *t, const char *text, size_t length, int32_t *id) {
  size_t bytes = t->inline_users ? find_user(t, text, length, id) : 0;
  if (bytes) return bytes;
  bytes = hr_utf8_length(text, length);
  if (bytes == 0) bytes = 1;
  *id = hr_byte_map_find(&t->map, text, bytes);
  if (*id >= 0 && hr_token_is_special(t, *id)) *id = -1;
  return bytes;
}

hr_status hr_characters_encode(hr_encoder *encoder, const char *text, size_t length) {
  const hr_tokenizer *t = encoder->tokenizer;
  hr_merger *merger = &encoder->merger;
  hr_status status = HR_OK;
  merger->count = 0;
  for (size_t i = 0; i < length && status == HR_OK;) {
    int32_t id;
    size_t bytes = next_symbol(t, text + i, length - i, &id);
    if (merger->count > 0 && !may_join(t, text[i - 1], text[i]))
      status = encode_symbols(encoder, text);
    if (status == HR_OK && !hr_merger_add(merger, i, bytes, id))
      status = hr_encoder_memory(encoder, length * sizeof *merger->symbols);
    i += bytes;
  }
  return status == HR_OK && merger->count > 0 ? encode_symbols(encoder, text) : status;
}

void hr_characters_prepare(hr_tokenizer *t) {
  for (size_t i = 0; i < t->count; i++) {
    hr_piece piece = hr_token_bytes(t, (int32_t)i);
    if (t->kinds[i] == HR_TOKEN_BYTE) continue;
    if (t->kind == HR_VOCAB_SPM && hr_token_is_special(t, (int32_t)i)) continue;
    for (size_t k = 1; k < piece.length; k++) {
      uint8_t left = (uint8_t)piece.text[k - 1], right = (uint8_t)piece.text[k];
      t->neighbours[left][right / 8] |= (uint8_t)(1u << right % 8);
    }
  }
}
