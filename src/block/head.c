/* SPDX-License-Identifier: MIT
 * The ends of a pass: the final norm with hidden states, pooler and classifier;
 * the language-model head with logits, their scale and cap. */
#include <string.h>

#include "block/pass.h"

/* Outputs of one row through one matrix, shared out; a barrier before and after. */
static void project_row(hr_pass *pass, unsigned thread, unsigned threads, const hr_matrix *m,
                        const float *x, float *y) {
  const hr_matrix *matrices[] = {m};
  hr_team_barrier(pass->team, thread);
  hr_input input = hr_prepare(pass, thread, threads, NULL, x, m->k, 1, m->k, matrices, 1);
  const hr_projection to = {m, y, m->n};
  hr_project(pass, thread, threads, &input, &to, 1, false);
  hr_team_barrier(pass->team, thread);
}

static void pool_first_row(hr_pass *pass, unsigned thread, unsigned threads) {
  const hr_transformer *model = pass->model;
  const hr_description *d = &model->description;
  const hr_request *request = pass->request;
  if (model->pooler.panels)
    project_row(pass, thread, threads, &model->pooler, request->hidden, request->pooled);
  if (thread == 0) {
    float *y = request->pooled;
    if (!model->pooler.panels)
      memcpy(y, request->hidden, d->width * sizeof *y);
    else if (d->pooler == HR_POOLER_TANH)
      pass->kernels->tanh(y, y, d->width);
    else
      pass->kernels->relu(y, NULL, y, d->width);
  }
}

void hr_hidden(hr_pass *pass, unsigned thread, unsigned threads) {
  const hr_transformer *model = pass->model;
  const hr_request *request = pass->request;
  size_t width = model->description.width;
  hr_range rows = hr_share(request->rows, thread, threads);
  for (size_t r = rows.begin; r < rows.end; r++) {
    const float *x = pass->ws->x + r * pass->ws->x_stride;
    if (model->final_norm.gain)
      hr_norm_row(pass, &model->final_norm, x, width, request->hidden + r * width);
    else
      memcpy(request->hidden + r * width, x, width * sizeof *x);
  }
  if (!request->pooled) return;
  hr_team_barrier(pass->team, thread);
  pool_first_row(pass, thread, threads);
  if (request->scores)
    project_row(pass, thread, threads, &model->classifier, request->pooled, request->scores);
}

void hr_head(hr_pass *pass, unsigned thread, unsigned threads) {
  const hr_transformer *model = pass->model;
  const hr_description *d = &model->description;
  const hr_request *request = pass->request;
  hr_workspace *ws = pass->ws;
  size_t rows = request->rows - request->logits_from;
  if (rows == 0) return;

  const hr_matrix *matrices[] = {&model->head};
  hr_input input = hr_prepare(pass, thread, threads, &model->final_norm,
                              ws->x + request->logits_from * ws->x_stride, ws->x_stride, rows,
                              d->width, matrices, 1);
  const hr_projection to = {&model->head, request->logits, d->vocab};
  hr_project(pass, thread, threads, &input, &to, 1, false);
  hr_show(pass, thread, "final_norm", d->layers, input.x, rows, d->width, input.x_stride);

  if (d->logit_scale == 1.0f && d->logit_cap == 0.0f) return;
  hr_team_barrier(pass->team, thread);
  hr_range share = hr_share(rows * d->vocab, thread, threads);
  float *logits = request->logits + share.begin;
  size_t n = share.end - share.begin;
  if (d->logit_scale != 1.0f) pass->kernels->scale(logits, d->logit_scale, n);
  if (d->logit_cap != 0.0f) {
    pass->kernels->divide(logits, d->logit_cap, n);
    pass->kernels->tanh(logits, logits, n);
    pass->kernels->scale(logits, d->logit_cap, n);
  }
}
