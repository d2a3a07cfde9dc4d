/* SPDX-License-Identifier: MIT
 * Hidden states of a whole text, and what an encoder makes of its first row. */
#include <math.h>

#include "base/memory.h"
#include "engine/engine.h"

static const hr_description *description_of(const hr_session *s) {
  return &s->model->loaded.transformer.description;
}

static hr_status check_types(const hr_session *s, const int32_t *types, size_t count,
                             hr_error *err) {
  uint32_t most = description_of(s)->types;
  for (size_t i = 0; types && i < count; i++)
    if (types[i] != 0 && (types[i] < 0 || (uint32_t)types[i] >= most))
      return hr_fail(err, HR_ERROR_USAGE,
                     "segment type %d of token %zu is not known, expected 0 to %u", types[i], i,
                     most ? most - 1 : 0);
  return HR_OK;
}

static hr_status make_room(hr_session *s, size_t rows, hr_error *err) {
  const hr_description *d = description_of(s);
  if (d->headless && !s->pooled) {
    s->pooled = hr_calloc((size_t)d->width + d->classes, sizeof *s->pooled);
    if (!s->pooled) return hr_fail_memory(err, "scores", (size_t)d->width + d->classes);
    s->scores = d->classes ? s->pooled + d->width : NULL;
  }
  if (rows <= s->hidden_capacity) return HR_OK;
  size_t floats;
  float *hidden = NULL;
  if (hr_mul_size(rows, d->width, &floats)) hidden = hr_realloc(s->hidden, floats, sizeof *hidden);
  if (!hidden) return hr_fail_memory(err, "hidden states", rows * d->width * sizeof *hidden);
  s->hidden = hidden;
  s->hidden_capacity = rows;
  return HR_OK;
}

static hr_status run_chunks(hr_session *s, const int32_t *ids, const int32_t *types, size_t count,
                            hr_error *err) {
  size_t width = description_of(s)->width;
  for (size_t done = 0; done < count;) {
    size_t n = count - done < s->chunk ? count - done : s->chunk;
    hr_request request = {.ids = ids + done,
                          .rows = n,
                          .start = s->position,
                          .logits_from = n,
                          .types = types ? types + done : NULL,
                          .hidden = s->hidden + done * width};
    if (done == 0) {
      request.pooled = s->pooled;
      request.scores = s->scores;
    }
    unsigned threads = n == 1 ? hr_team_threads(s->team) : hr_team_threads_batch(s->team);
    hr_status status = hr_forward(s->workspace, s->team, threads, &s->cache, &request, err);
    if (status != HR_OK) return status;
    done += n;
    s->position += n;
    if (done < count && s->progress && !s->progress(s->progress_data, (double)done / (double)count))
      return hr_fail(err, HR_ERROR_CANCELLED, "evaluation was cancelled after %zu of %zu tokens",
                     done, count);
  }
  return HR_OK;
}

static hr_status check_finite(const float *x, size_t count, const char *what, hr_error *err) {
  for (size_t i = 0; x && i < count; i++)
    if (!isfinite(x[i]))
      return hr_fail(err, HR_ERROR_NUMERIC, "%s %zu is %s, expected a finite number", what, i,
                     isnan(x[i]) ? "NaN" : "infinite");
  return HR_OK;
}

hr_status hr_session_encode(hr_session *s, const int32_t *ids, const int32_t *types, size_t count,
                            hr_error *err) {
  const hr_description *d = description_of(s);
  s->logits_rows = s->hidden_rows = s->position = 0;
  s->has_pooled = false;
  hr_status status = hr_session_check_ids(s, ids, count, err);
  if (status == HR_OK) status = check_types(s, types, count, err);
  if (status == HR_OK) status = make_room(s, count, err);
  if (status == HR_OK) status = run_chunks(s, ids, types, count, err);
  if (status == HR_OK) status = check_finite(s->hidden, count * d->width, "hidden state", err);
  if (status == HR_OK) status = check_finite(s->scores, d->classes, "score", err);
  if (status != HR_OK) {
    s->position = 0;
    return status;
  }
  s->hidden_rows = count;
  s->has_pooled = s->pooled != NULL;
  return HR_OK;
}

const float *hr_session_hidden(const hr_session *s, size_t row) {
  return row < s->hidden_rows ? s->hidden + row * description_of(s)->width : NULL;
}

const float *hr_session_pooled(const hr_session *s) {
  return s->has_pooled ? s->pooled : NULL;
}

const float *hr_session_scores(const hr_session *s) {
  return s->has_pooled ? s->scores : NULL;
}
