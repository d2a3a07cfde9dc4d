/* SPDX-License-Identifier: MIT
 * SentencePiece's unigram model: of all ways to cut a text into tokens, the one
 * with the greatest sum of scores. */
#include <float.h>
#include <string.h>

#include "base/memory.h"
#include "text/tokenizer_impl.h"
#include "text/utf8_stream.h"

/* What a character that is no token costs beyond the worst token. */
#define UNKNOWN_PENALTY 10.0f

hr_status hr_unigram_prepare(hr_tokenizer *t, const hr_vocab *vocab, hr_error *err) {
  float worst = FLT_MAX, best = -FLT_MAX;
  if (!hr_trie_init(&t->trie)) return hr_fail_memory(err, vocab->where, 0);
  for (size_t i = 0; i < t->count; i++) {
    hr_piece piece = hr_token_bytes(t, (int32_t)i);
    if (t->kinds[i] == HR_TOKEN_NORMAL && t->scores[i] < worst) worst = t->scores[i];
    if (t->kinds[i] == HR_TOKEN_NORMAL && t->scores[i] > best) best = t->scores[i];
    if (piece.length == 0 || (t->kinds[i] != HR_TOKEN_NORMAL && t->kinds[i] != HR_TOKEN_USER))
      continue;
    if (!hr_trie_add(&t->trie, piece.text, piece.length, (int32_t)i))
      return hr_fail_memory(err, vocab->where, t->trie.count * 2 * sizeof(int32_t));
  }
  t->unknown_score = (worst == FLT_MAX ? 0 : worst) - UNKNOWN_PENALTY;
  t->best_score = best == -FLT_MAX ? 0 : best;
  return HR_OK;
}

/* The best way found so far to reach a position. */
typedef struct hr_best {
  double score;
  uint32_t from;
  int32_t id; /* -1: a character that is no token */
} hr_best;

static void offer(const hr_tokenizer *t, hr_best *best, size_t from, size_t to, double score,
                  int32_t id) {
  double sum = best[from].score + score;
  if (t->single_precision) sum = (double)(float)sum;
  if (sum > best[to].score) best[to] = (hr_best){.score = sum, .from = (uint32_t)from, .id = id};
}

/* A user-defined token is always worth taking. */
static double score_of(const hr_tokenizer *t, int32_t id, size_t length) {
  if (t->kinds[id] != HR_TOKEN_USER) return (double)t->scores[id];
  return t->inline_users ? (double)(float)((double)((float)length * t->best_score) - 0.1) : 0;
}

static void extend(const hr_tokenizer *t, const char *text, size_t length, size_t from,
                   hr_best *best) {
  size_t character = hr_utf8_length(text + from, length - from);
  if (character == 0) character = 1;
  bool character_is_token = false;
  int32_t node = 0;
  for (size_t i = from; i < length; i++) {
    node = hr_trie_step(&t->trie, node, text[i]);
    if (node == 0) break;
    int32_t id = hr_trie_id(&t->trie, node);
    if (id < 0) continue;
    offer(t, best, from, i + 1, score_of(t, id, i + 1 - from), id);
    if (i + 1 - from == character) character_is_token = true;
  }
  if (!character_is_token) offer(t, best, from, from + character, (double)t->unknown_score, -1);
}

/* Turns the links around: best[at].from becomes the position after. */
static void reverse(hr_best *best, size_t length) {
  uint32_t at = (uint32_t)length, after = at;
  while (at > 0) {
    uint32_t from = best[at].from;
    best[at].from = after;
    after = at;
    at = from;
  }
  best[0].from = after;
}

static hr_status emit(hr_encoder *encoder, const char *text, size_t length, int32_t id) {
  if (id < 0) return hr_encoder_emit_character(encoder, text, length);
  encoder->after_unknown = false;
  return hr_encoder_emit(encoder, id);
}

static hr_best *room_for(hr_encoder *encoder, size_t count) {
  void *block = encoder->best;
  if (!hr_grow(&block, &encoder->best_capacity, count, sizeof *encoder->best)) return NULL;
  encoder->best = block;
  for (size_t i = 0; i < count; i++) encoder->best[i] = (hr_best){.score = i ? -DBL_MAX : 0};
  return encoder->best;
}

hr_status hr_unigram_encode(hr_encoder *encoder, const char *text, size_t length) {
  if (length >= UINT32_MAX)
    return hr_fail(encoder->err, HR_ERROR_USAGE,
                   "the normalized text has %zu bytes, too many to tokenize", length);
  hr_best *best = room_for(encoder, length + 1);
  if (!best) return hr_encoder_memory(encoder, (length + 1) * sizeof *best);
  for (size_t i = 0; i < length; i++)
    if (i == 0 || best[i].score > -DBL_MAX) extend(encoder->tokenizer, text, length, i, best);
  if (best[length].score == -DBL_MAX) /* in single precision sums may end at -infinity */
    return hr_fail(encoder->err, HR_ERROR_FILE,
                   "the scores of the vocabulary are too low for their sum over %zu bytes of text",
                   length);
  reverse(best, length);
  hr_status status = HR_OK;
  for (size_t at = 0; at < length && status == HR_OK; at = best[at].from)
    status = emit(encoder, text + at, best[at].from - at, best[best[at].from].id);
  return status;
}
