/* SPDX-License-Identifier: MIT
 * Several sequences of a session in the same passes. */
#include <string.h>

#include "base/memory.h"
#include "engine/engine.h"
#include "sched/fpenv.h"

/* What a pass is put together in. */
struct hr_batch {
  int32_t *ids;   /* [rows of a pass] pieces one behind the other */
  hr_text *texts; /* [rows of a pass] */
  size_t *wanted; /* [rows of a pass] rows whose logits are wanted */
  size_t *before; /* [sequences] positions before a call */
  bool *taken;    /* [sequences] by a piece of a call */
};

/* The next token of a call. */
typedef struct cursor {
  size_t piece, token;
} cursor;

void hr_batch_free(struct hr_batch *b) {
  if (!b) return;
  hr_free(b->ids);
  hr_free(b->texts);
  hr_free(b->wanted);
  hr_free(b->before);
  hr_free(b->taken);
  hr_free(b);
}

static hr_status make_batch(hr_session *s, hr_error *err) {
  if (s->batch) return HR_OK;
  struct hr_batch *b = hr_calloc(1, sizeof *b);
  bool good = b && (b->ids = hr_calloc(s->chunk, sizeof *b->ids)) &&
              (b->texts = hr_calloc(s->chunk, sizeof *b->texts)) &&
              (b->wanted = hr_calloc(s->chunk, sizeof *b->wanted)) &&
              (b->before = hr_calloc(s->sequences, sizeof *b->before)) &&
              (b->taken = hr_calloc(s->sequences, sizeof *b->taken));
  if (!good) {
    hr_batch_free(b);
    return hr_fail_memory(err, "sequences", s->chunk * sizeof *b->texts);
  }
  s->batch = b;
  return HR_OK;
}

static hr_status check_piece(hr_session *s, const hr_batch_piece *p, hr_error *err) {
  bool *taken = s->batch->taken;
  if (p->sequence >= s->sequences)
    return hr_fail(err, HR_ERROR_USAGE, "sequence %zu is not there, expected 0 to %zu",
                   p->sequence, s->sequences - 1);
  if (taken[p->sequence])
    return hr_fail(err, HR_ERROR_USAGE, "sequence %zu has two pieces, expected one at most",
                   p->sequence);
  taken[p->sequence] = true;
  return hr_session_check_ids(s, s->position[p->sequence], p->ids, p->count, err);
}

static hr_status check_pieces(hr_session *s, const hr_batch_piece *pieces, size_t count,
                              hr_error *err) {
  if (s->model->loaded.transformer.description.mask == HR_MASK_FULL)
    return hr_fail(err, HR_ERROR_USAGE,
                   "a model that sees both ways takes texts as a whole, expected "
                   "hr_session_encode");
  if (count == 0)
    return hr_fail(err, HR_ERROR_USAGE, "no tokens to evaluate, expected at least one");
  memset(s->batch->taken, 0, s->sequences * sizeof *s->batch->taken);
  hr_status status = HR_OK;
  for (size_t i = 0; status == HR_OK && i < count; i++) status = check_piece(s, &pieces[i], err);
  return status;
}

/* As many tokens as a pass takes; only its last piece can be cut. */
static void fill_pass(const hr_session *s, const hr_batch_piece *pieces, size_t count,
                      hr_logits_rows rows, cursor *at, hr_request *request) {
  struct hr_batch *b = s->batch;
  while (at->piece < count && request->rows < s->chunk) {
    const hr_batch_piece *p = &pieces[at->piece];
    size_t left = p->count - at->token, room = s->chunk - request->rows;
    size_t n = left < room ? left : room;
    memcpy(b->ids + request->rows, p->ids + at->token, n * sizeof *b->ids);
    b->texts[request->text_count++] = (hr_text){
        .rows = n, .start = s->position[p->sequence], .slot = p->sequence * s->cache.room,
        .room = s->cache.room};
    request->rows += n;
    if (rows == HR_LOGITS_ALL)
      for (size_t r = request->rows - n; r < request->rows; r++)
        b->wanted[request->logits_count++] = r;
    if (rows == HR_LOGITS_LAST && n == left)
      b->wanted[request->logits_count++] = request->rows - 1;
    *at = n == left ? (cursor){at->piece + 1, 0} : (cursor){at->piece, at->token + n};
  }
}

/* Moves the sequences of a pass on, from the piece that it began with. */
static void move_on(hr_session *s, const hr_batch_piece *pieces, const hr_request *request) {
  for (size_t i = 0; i < request->text_count; i++)
    s->position[pieces[i].sequence] += request->texts[i].rows;
}

static hr_status run_passes(hr_session *s, const hr_batch_piece *pieces, size_t count,
                            hr_logits_rows rows, size_t tokens, hr_error *err) {
  struct hr_batch *b = s->batch;
  size_t done = 0, logits = 0;
  for (cursor at = {0}; at.piece < count;) {
    hr_request request = {.ids = b->ids, .texts = b->texts, .logits_rows = b->wanted};
    if (s->logits) request.logits = s->logits + logits * hr_model_vocab_size(s->model);
    const hr_batch_piece *first = &pieces[at.piece];
    fill_pass(s, pieces, count, rows, &at, &request);
    hr_status status = hr_session_forward(s, &request, err);
    if (status != HR_OK) return status;
    move_on(s, first, &request);
    logits += request.logits_count;
    done += request.rows;
    if (at.piece < count && s->progress &&
        !s->progress(s->progress_data, (double)done / (double)tokens))
      return hr_fail(err, HR_ERROR_CANCELLED, "evaluation was cancelled after %zu of %zu tokens",
                     done, tokens);
  }
  return HR_OK;
}

static hr_status check_logits(const hr_session *s, const hr_batch_piece *pieces, size_t count,
                              hr_logits_rows rows, hr_error *err) {
  size_t row = 0;
  hr_status status = HR_OK;
  for (size_t i = 0; rows != HR_LOGITS_NONE && i < count; i++) {
    size_t end = s->position[pieces[i].sequence], n = rows == HR_LOGITS_ALL ? pieces[i].count : 1;
    for (size_t r = 0; status == HR_OK && r < n; r++)
      status = hr_session_check_logits(s, row + r, end - n + r, err);
    row += n;
  }
  return status;
}

hr_status hr_session_eval_batch(hr_session *s, const hr_batch_piece *pieces, size_t count,
                                hr_logits_rows rows, hr_error *err) {
  HR_FPENV_OWN;
  s->logits_rows = 0;
  hr_session_forget_encoded(s);
  hr_status status = hr_session_check_rows(s, rows, err);
  if (status == HR_OK) status = make_batch(s, err);
  if (status == HR_OK) status = check_pieces(s, pieces, count, err);
  if (status != HR_OK) return status;
  size_t tokens = 0;
  for (size_t i = 0; i < count; i++) tokens += pieces[i].count;
  size_t wanted = rows == HR_LOGITS_ALL ? tokens : rows == HR_LOGITS_LAST ? count : 0;
  status = hr_session_make_room(s, wanted, err);
  if (status != HR_OK) return status;
  memcpy(s->batch->before, s->position, s->sequences * sizeof *s->position);
  status = run_passes(s, pieces, count, rows, tokens, err);
  if (status == HR_ERROR_CANCELLED) return status;
  if (status == HR_OK) status = check_logits(s, pieces, count, rows, err);
  if (status == HR_OK)
    s->logits_rows = wanted;
  else
    memcpy(s->position, s->batch->before, s->sequences * sizeof *s->position);
  return status;
}
