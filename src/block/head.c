/* SPDX-License-Identifier: MIT
 * The language-model head: final norm, logits, their scale and cap. */
#include "block/pass.h"

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
