/* SPDX-License-Identifier: MIT
 * The ends of a pass: the final norm with hidden states, pooler and classifier;
 * the language-model head with logits, their scale and cap. */
#include <string.h>

#include "block/pass.h"

/* One row of each text through one matrix. */
static void project_texts(hr_pass *pass, unsigned thread, unsigned threads, const hr_matrix *m,
                          const float *x, size_t x_stride, float *y) {
  const hr_matrix *matrices[] = {m};
  hr_input input = hr_prepare(pass, thread, threads, NULL, x, x_stride, pass->spans, m->k,
                              matrices, 1);
  const hr_projection to = {m, y, m->n};
  hr_project(pass, thread, threads, &input, &to, 1, false);
  hr_end_step(pass, thread, HR_PART_HEAD);
}

/* The first row of each text, side by side, through the pooler. */
static void pool_first_rows(hr_pass *pass, unsigned thread, unsigned threads) {
  const hr_transformer *model = pass->model;
  const hr_description *d = &model->description;
  const hr_request *request = pass->request;
  hr_workspace *ws = pass->ws;
  bool pooler = model->pooler.panels != NULL;
  float *first = pooler ? ws->sub : request->pooled;
  size_t stride = pooler ? ws->x_stride : d->width;
  if (thread == 0)
    for (size_t i = 0; i < pass->spans; i++)
      memcpy(first + i * stride, request->hidden + pass->span[i].first_row * d->width,
             d->width * sizeof *first);
  hr_end_step(pass, thread, HR_PART_HEAD);
  if (!pooler) return;
  project_texts(pass, thread, threads, &model->pooler, first, stride, request->pooled);
  if (thread == 0) {
    float *y = request->pooled;
    if (d->pooler == HR_POOLER_TANH)
      pass->kernels->tanh(y, y, pass->spans * d->width);
    else
      pass->kernels->relu(y, NULL, y, pass->spans * d->width);
  }
  hr_end_step(pass, thread, HR_PART_HEAD);
}

static void hidden_row(const hr_pass *pass, unsigned thread, size_t row) {
  const hr_transformer *model = pass->model;
  size_t width = model->description.width;
  const float *x = hr_stream(pass, thread) + row * pass->ws->x_stride;
  float *to = pass->request->hidden + row * width;
  if (model->final_norm.gain)
    hr_norm_row(pass, &model->final_norm, x, width, to);
  else
    memcpy(to, x, width * sizeof *x);
}

void hr_hidden(hr_pass *pass, unsigned thread, unsigned threads) {
  const hr_transformer *model = pass->model;
  const hr_request *request = pass->request;
  hr_step step = hr_begin_step(pass, thread, threads, pass->rows,
                               model->description.width * 2 * sizeof(float));
  for (hr_range run; hr_next_run(&step, &run);)
    for (size_t r = run.begin; r < run.end; r++) hidden_row(pass, thread, r);
  hr_end_step(pass, thread, HR_PART_HEAD);
  if (!request->pooled) return;
  pool_first_rows(pass, thread, threads);
  if (request->scores)
    project_texts(pass, thread, threads, &model->classifier, request->pooled,
                  model->description.width, request->scores);
}

/* Scale and cap. */
static void bend_logits(const hr_pass *pass, float *logits, size_t n) {
  const hr_description *d = &pass->model->description;
  if (d->logit_scale != 1.0f) pass->kernels->scale(logits, d->logit_scale, n);
  if (d->logit_cap == 0.0f) return;
  pass->kernels->divide(logits, d->logit_cap, n);
  pass->kernels->tanh(logits, logits, n);
  pass->kernels->scale(logits, d->logit_cap, n);
}

void hr_head(hr_pass *pass, unsigned thread, unsigned threads) {
  const hr_transformer *model = pass->model;
  const hr_description *d = &model->description;
  const hr_request *request = pass->request;
  size_t rows = pass->rows;
  const hr_matrix *matrices[] = {&model->head};
  hr_input input = hr_prepare(pass, thread, threads, &model->final_norm,
                              hr_stream(pass, thread), pass->ws->x_stride, rows, d->width,
                              matrices, 1);
  const hr_projection to = {&model->head, request->logits, d->vocab};
  hr_project(pass, thread, threads, &input, &to, 1, false);
  hr_show(pass, thread, "final_norm", d->layers, input.x, rows, d->width, input.x_stride);

  if (d->logit_scale == 1.0f && d->logit_cap == 0.0f) return;
  hr_end_step(pass, thread, HR_PART_HEAD);
  hr_step step = hr_begin_step(pass, thread, threads, rows * d->vocab, 2 * sizeof(float));
  for (hr_range run; hr_next_run(&step, &run);)
    bend_logits(pass, request->logits + run.begin, run.end - run.begin);
}
