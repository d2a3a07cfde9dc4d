/* SPDX-License-Identifier: MIT
 * SentencePiece's BPE: of all neighbours that together are a token, those with
 * the best score are joined first. */
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

static bool join(const void *arg, const hr_symbol *left, const hr_symbol *right, uint32_t *order,
                 int32_t *id) {
  const spm_text *spm = arg;
  size_t length = (size_t)left->length + right->length;
  if (length > spm->tokenizer->longest) return false;
  *id = hr_byte_map_find(&spm->tokenizer->map, spm->text + left->start, length);
  if (*id < 0) return false;
  *order = order_of(spm->tokenizer->scores[*id]);
  return true;
}

static bool has_bytes(const hr_tokenizer *t, const char *text, size_t length) {
  for (size_t i = 0; i < length; i++)
    if (t->byte_id[(uint8_t)text[i]] < 0) return false;
  return true;
}

/* A character that is no token: its bytes, else the unknown token, one for a
 * run of such characters. */
static hr_status emit_untold(hr_encoder *encoder, const char *text, size_t length) {
  const hr_tokenizer *t = encoder->tokenizer;
  hr_status status = HR_OK;
  bool unknown = !has_bytes(t, text, length);
  if (unknown && !encoder->after_unknown) status = hr_encoder_emit_unknown(encoder, text[0]);
  for (size_t i = 0; !unknown && status == HR_OK && i < length; i++)
    status = hr_encoder_emit(encoder, t->byte_id[(uint8_t)text[i]]);
  encoder->after_unknown = unknown;
  return status;
}

/* Unused tokens take part in joining but are given out as what they were joined from. */
static hr_status emit_symbol(hr_encoder *encoder, const char *text, size_t start, size_t length,
                             int32_t id, int32_t part) {
  while (id >= 0 && part >= 0 && encoder->tokenizer->kinds[id] == HR_TOKEN_UNUSED) {
    const hr_symbol *right = &encoder->merger.symbols[part];
    size_t left_length = right->start - start;
    hr_status status = emit_symbol(encoder, text, start, left_length, right->previous, right->next);
    if (status != HR_OK) return status;
    start = right->start;
    length -= left_length;
    id = right->id;
    part = right->part;
  }
  if (id < 0) return emit_untold(encoder, text + start, length);
  encoder->after_unknown = false;
  return hr_encoder_emit(encoder, id);
}

/* Joins the symbols gathered so far and gives out what they became. */
static hr_status encode_symbols(hr_encoder *encoder, const char *text) {
  hr_merger *merger = &encoder->merger;
  size_t length = merger->count;
  spm_text spm = {encoder->tokenizer, text};
  if (!hr_merger_run(merger, join, &spm))
    return hr_encoder_memory(encoder, length * sizeof *merger->heap);
  hr_status status = HR_OK;
  for (int32_t i = 0; i >= 0 && status == HR_OK; i = merger->symbols[i].next) {
    const hr_symbol *symbol = &merger->symbols[i];
    status = emit_symbol(encoder, text, symbol->start, symbol->length, symbol->id, symbol->part);
  }
  merger->count = 0;
  return status;
}

/* Where two bytes meet that no token has side by side, nothing can be joined:
 * most texts fall into words there, and short rows are much quicker. */
static bool may_join(const hr_tokenizer *t, char left, char right) {
  return t->neighbours[(uint8_t)left][(uint8_t)right / 8] >> ((uint8_t)right % 8) & 1;
}

static hr_status encode_spaced(hr_encoder *encoder, const char *text, size_t length) {
  const hr_tokenizer *t = encoder->tokenizer;
  hr_merger *merger = &encoder->merger;
  hr_status status = HR_OK;
  merger->count = 0;
  for (size_t i = 0; i < length && status == HR_OK;) {
    size_t bytes = hr_utf8_length(text + i, length - i);
    if (bytes == 0) bytes = 1;
    if (merger->count > 0 && !may_join(t, text[i - 1], text[i]))
      status = encode_symbols(encoder, text);
    int32_t id = hr_byte_map_find(&t->map, text + i, bytes);
    if (status == HR_OK && !hr_merger_add(merger, i, bytes, id))
      status = hr_encoder_memory(encoder, length * sizeof *merger->symbols);
    i += bytes;
  }
  return status == HR_OK && merger->count > 0 ? encode_symbols(encoder, text) : status;
}

void hr_spm_prepare(hr_tokenizer *t) {
  for (size_t i = 0; i < t->count; i++) {
    hr_piece piece = hr_token_bytes(t, (int32_t)i);
    if (t->kinds[i] == HR_TOKEN_BYTE || hr_token_is_special(t, (int32_t)i)) continue;
    for (size_t k = 1; k < piece.length; k++) {
      uint8_t left = (uint8_t)piece.text[k - 1], right = (uint8_t)piece.text[k];
      t->neighbours[left][right / 8] |= (uint8_t)(1u << right % 8);
    }
  }
}

hr_status hr_spm_encode(hr_encoder *encoder, const char *text, size_t length) {
  hr_status status = hr_encoder_scratch(encoder, length + 1);
  if (status != HR_OK) return status;
  size_t prefix = encoder->tokenizer->add_space_prefix && encoder->after_special;
  if (prefix) encoder->scratch[0] = ' ';
  size_t spaced = hr_copy_spaced(text, length, encoder->scratch + prefix);
  return encode_spaced(encoder, encoder->scratch, prefix + spaced);
}
