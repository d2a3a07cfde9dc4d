/* SPDX-License-Identifier: MIT
 * Hidden states of whole texts, what an encoder makes of their first rows, and one
 * vector for each. */
#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "engine/engine.h"
#include "sched/fpenv.h"

/* What a call made. */
struct hr_encoded {
  size_t texts;
  size_t *first_row; /* [texts + 1] */
  float *hidden;     /* [rows][width] */
  float *pooled;     /* [texts][width]; NULL: no encoder */
  float *scores;     /* [texts][classes]; NULL: no classifier */
  int32_t *ids, *types; /* [rows of a pass] side by side */
  hr_text *pass;        /* [rows of a pass] its texts */
};

static const hr_description *description_of(const hr_session *s) {
  return &s->model->loaded.transformer.description;
}

static void free_encoded(struct hr_encoded *e) {
  if (!e) return;
  hr_free(e->first_row);
  hr_free(e->hidden);
  hr_free(e->pooled);
  hr_free(e->scores);
  hr_free(e->ids);
  hr_free(e->pass);
  hr_free(e);
}

void hr_session_forget_encoded(hr_session *s) {
  free_encoded(s->encoded);
  s->encoded = NULL;
}

static hr_status check_text(const hr_session *s, const hr_tokens *text, hr_error *err) {
  hr_status status = hr_session_check_ids(s, 0, text->ids, text->count, err);
  if (status != HR_OK) return status;
  uint32_t most = description_of(s)->types;
  for (size_t i = 0; text->types && i < text->count; i++) {
    int32_t type = text->types[i];
    if (type != 0 && (type < 0 || (uint32_t)type >= most))
      return hr_fail(err, HR_ERROR_USAGE,
                     "segment type %d of token %zu is not known, expected 0 to %u", type, i,
                     most ? most - 1 : 0);
  }
  return HR_OK;
}

static void *rows_of(size_t rows, size_t width, size_t size) {
  size_t count;
  return hr_mul_size(rows, width, &count) ? hr_calloc(count, size) : NULL;
}

static struct hr_encoded *make_room(const hr_session *s, const hr_tokens *texts, size_t count,
                                    hr_error *err) {
  const hr_description *d = description_of(s);
  struct hr_encoded *e = hr_calloc(1, sizeof *e);
  bool good = e && (e->first_row = rows_of(count + 1, 1, sizeof *e->first_row)) != NULL;
  for (size_t i = 0; good && i < count; i++) {
    e->first_row[i + 1] = e->first_row[i] + texts[i].count;
    good = e->first_row[i + 1] >= texts[i].count;
  }
  good = good && (e->hidden = rows_of(e->first_row[count], d->width, sizeof(float))) &&
         (e->ids = rows_of(s->chunk, 2, sizeof *e->ids)) &&
         (e->pass = rows_of(s->chunk, 1, sizeof *e->pass));
  if (good && d->headless) {
    good = (e->pooled = rows_of(count, d->width, sizeof(float))) != NULL;
    if (good && d->classes)
      good = (e->scores = rows_of(count, d->classes, sizeof(float))) != NULL;
  }
  if (good) {
    e->types = e->ids + s->chunk;
    e->texts = count;
    return e;
  }
  hr_fail_memory(err, "hidden states",
                 e && e->first_row ? e->first_row[count] * d->width * sizeof(float) : 0);
  free_encoded(e);
  return NULL;
}

/* Where what is made of the texts from that one on goes; NULL: nowhere. */
static float *pooled_of(const hr_session *s, size_t text) {
  float *pooled = s->encoded->pooled;
  return pooled ? pooled + text * description_of(s)->width : NULL;
}

static float *scores_of(const hr_session *s, size_t text) {
  float *scores = s->encoded->scores;
  return scores ? scores + text * description_of(s)->classes : NULL;
}

static hr_status tell_progress(const hr_session *s, size_t done, size_t rows, hr_error *err) {
  if (done == rows || !s->progress || s->progress(s->progress_data, (double)done / (double)rows))
    return HR_OK;
  return hr_fail(err, HR_ERROR_CANCELLED, "evaluation was cancelled after %zu of %zu tokens", done,
                 rows);
}

/* A text longer than a pass, which only causal models have: piece by piece. What is made of
 * its first row comes with the first. */
static hr_status run_in_chunks(hr_session *s, const hr_tokens *text, size_t index, hr_error *err) {
  struct hr_encoded *e = s->encoded;
  size_t width = description_of(s)->width;
  for (size_t done = 0; done < text->count;) {
    size_t n = text->count - done < s->chunk ? text->count - done : s->chunk;
    const hr_request request = {.ids = text->ids + done,
                                .rows = n,
                                .start = done,
                                .logits_from = n,
                                .types = text->types ? text->types + done : NULL,
                                .hidden = e->hidden + (e->first_row[index] + done) * width,
                                .pooled = done == 0 ? pooled_of(s, index) : NULL,
                                .scores = done == 0 ? scores_of(s, index) : NULL};
    hr_status status = hr_session_forward(s, &request, err);
    if (status != HR_OK) return status;
    done += n;
    status = tell_progress(s, e->first_row[index] + done, e->first_row[e->texts], err);
    if (status != HR_OK) return status;
  }
  return HR_OK;
}

/* Lays texts side by side while they fit a pass and the cache; how many did. */
static size_t fill_pass(const hr_session *s, const hr_tokens *texts, size_t count,
                        hr_request *request) {
  struct hr_encoded *e = s->encoded;
  size_t n = 0, slot = 0;
  for (; n < count && texts[n].count <= s->chunk - request->rows &&
         hr_round_up(texts[n].count, HR_KEY_PANEL) <= s->cache.capacity - slot;
       n++) {
    const hr_tokens *t = &texts[n];
    memcpy(e->ids + request->rows, t->ids, t->count * sizeof *e->ids);
    if (t->types)
      memcpy(e->types + request->rows, t->types, t->count * sizeof *e->types);
    else
      memset(e->types + request->rows, 0, t->count * sizeof *e->types);
    e->pass[n] = (hr_text){
        .rows = t->count, .slot = slot, .room = hr_round_up(t->count, HR_KEY_PANEL)};
    request->rows += t->count;
    slot += e->pass[n].room;
  }
  return n;
}

static hr_status run_texts(hr_session *s, const hr_tokens *texts, hr_error *err) {
  struct hr_encoded *e = s->encoded;
  const hr_description *d = description_of(s);
  for (size_t i = 0; i < e->texts;) {
    hr_request request = {.ids = e->ids, .types = e->types, .texts = e->pass,
                          .hidden = e->hidden + e->first_row[i] * d->width};
    size_t n = fill_pass(s, texts + i, e->texts - i, &request);
    hr_status status;
    if (n == 0) {
      status = run_in_chunks(s, &texts[i], i, err);
      i++;
    } else {
      request.text_count = n;
      request.logits_from = request.rows;
      request.pooled = pooled_of(s, i);
      request.scores = scores_of(s, i);
      status = hr_session_forward(s, &request, err);
      i += n;
    }
    if (status == HR_OK) status = tell_progress(s, e->first_row[i], e->first_row[e->texts], err);
    if (status != HR_OK) return status;
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

static hr_status encode(hr_session *s, const hr_tokens *texts, size_t count, hr_error *err) {
  const hr_description *d = description_of(s);
  if (count == 0)
    return hr_fail(err, HR_ERROR_USAGE, "no texts to encode, expected at least one");
  for (size_t i = 0; i < count; i++) {
    hr_status status = check_text(s, &texts[i], err);
    if (status != HR_OK) return status;
  }
  s->encoded = make_room(s, texts, count, err);
  if (!s->encoded) return HR_ERROR_MEMORY;
  const struct hr_encoded *e = s->encoded;
  hr_status status = run_texts(s, texts, err);
  if (status == HR_OK)
    status = check_finite(e->hidden, e->first_row[count] * d->width, "hidden state", err);
  if (status == HR_OK)
    status = check_finite(e->pooled, count * d->width, "element of the pooled rows", err);
  return status == HR_OK ? check_finite(e->scores, count * d->classes, "score", err) : status;
}

hr_status hr_session_encode(hr_session *s, const hr_tokens *texts, size_t count, hr_error *err) {
  HR_FPENV_OWN;
  s->logits_rows = 0;
  memset(s->position, 0, s->sequences * sizeof *s->position);
  hr_session_forget_encoded(s);
  hr_status status = encode(s, texts, count, err);
  if (status != HR_OK)
    hr_session_forget_encoded(s);
  else if (count == 1)
    s->position[0] = texts[0].count;
  return status;
}

const float *hr_session_hidden(const hr_session *s, size_t text, size_t row) {
  const struct hr_encoded *e = s->encoded;
  if (!e || text >= e->texts || row >= e->first_row[text + 1] - e->first_row[text]) return NULL;
  return e->hidden + (e->first_row[text] + row) * description_of(s)->width;
}

const float *hr_session_pooled(const hr_session *s, size_t text) {
  const struct hr_encoded *e = s->encoded;
  return e && text < e->texts ? pooled_of(s, text) : NULL;
}

const float *hr_session_scores(const hr_session *s, size_t text) {
  const struct hr_encoded *e = s->encoded;
  return e && text < e->texts ? scores_of(s, text) : NULL;
}

/* --- One vector for a text -------------------------------------------------- */

static void mean_rows(const float *x, size_t rows, size_t width, float *out) {
  memcpy(out, x, width * sizeof *out);
  for (size_t r = 1; r < rows; r++)
    for (size_t k = 0; k < width; k++) out[k] += x[r * width + k];
  for (size_t k = 0; k < width; k++) out[k] /= (float)rows;
}

static void to_unit_length(float *x, size_t n) {
  double sum = 0;
  for (size_t k = 0; k < n; k++) sum += (double)x[k] * (double)x[k];
  if (sum == 0) return;
  double length = sqrt(sum);
  for (size_t k = 0; k < n; k++) x[k] = (float)((double)x[k] / length);
}

hr_status hr_session_embedding(const hr_session *s, size_t text, hr_pooling pooling,
                               bool normalize, float *out, hr_error *err) {
  HR_FPENV_OWN;
  const struct hr_encoded *e = s->encoded;
  size_t width = description_of(s)->width;
  if (!e || text >= e->texts)
    return hr_fail(err, HR_ERROR_USAGE, "text %zu has not been encoded, expected one of %zu", text,
                   e ? e->texts : 0);
  size_t rows = e->first_row[text + 1] - e->first_row[text];
  const float *x = e->hidden + e->first_row[text] * width;
  switch (pooling) {
    case HR_POOLING_MEAN: mean_rows(x, rows, width, out); break;
    case HR_POOLING_CLS: memcpy(out, x, width * sizeof *out); break;
    case HR_POOLING_LAST: memcpy(out, x + (rows - 1) * width, width * sizeof *out); break;
    case HR_POOLING_NONE:
    default:
      return hr_fail(err, HR_ERROR_USAGE, "pooling is %d, expected mean, cls or last",
                     (int)pooling);
  }
  if (normalize) to_unit_length(out, width);
  return HR_OK;
}
