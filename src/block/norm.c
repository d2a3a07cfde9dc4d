/* SPDX-License-Identifier: MIT
 * Norm and residual: where they stand in a block. */
#include <string.h>

#include "block/pass.h"

void hr_norm_row(const hr_pass *pass, const hr_norm_weights *norm, const float *x, size_t n,
                 float *y) {
  const hr_description *d = &pass->model->description;
  if (d->norm == HR_NORM_RMS)
    pass->kernels->rms_norm(x, n, norm->gain, d->norm_eps, y);
  else
    pass->kernels->layer_norm(x, n, norm->gain, norm->shift, d->norm_eps, y);
}

void hr_part_streams(const hr_pass *pass, unsigned thread) {
  float *x = hr_stream(pass, thread);
  if (x != pass->ws->x) memcpy(x, pass->ws->x, pass->model->description.width * sizeof *x);
}

/* Where one stream is for all threads the product adds straight to it, unless its
 * result is to be normed first. */
float *hr_residual_target(const hr_pass *pass, bool *add) {
  bool aside =
      pass->model->description.norm_place == HR_NORM_AROUND || hr_streams_apart(pass);
  *add = !aside;
  return aside ? pass->ws->sub : pass->ws->x;
}

/* What a sub-layer has given, sub, joins a thread's own stream. */
static void join_stream(const hr_pass *pass, unsigned thread, const hr_norm_weights *post) {
  const hr_description *d = &pass->model->description;
  float *x = hr_stream(pass, thread), *row = pass->ws->private[thread].row;
  const float *sub = pass->ws->sub;
  bool around = d->norm_place == HR_NORM_AROUND;
  if (around && post->gain) {
    hr_norm_row(pass, post, sub, d->width, row);
    sub = row;
  }
  pass->kernels->add(x, sub, d->width);
  if (!around) hr_norm_row(pass, post, x, d->width, x);
  hr_mark(pass, thread, HR_PART_NORM);
}

void hr_residual(hr_pass *pass, unsigned thread, unsigned threads, const hr_norm_weights *post,
                 hr_part part, const hr_matrix *next) {
  const hr_description *d = &pass->model->description;
  hr_workspace *ws = pass->ws;
  hr_end_step_before(pass, thread, threads, part, next);
  if (d->norm_place == HR_NORM_BEFORE) return;
  if (hr_streams_apart(pass)) {
    join_stream(pass, thread, post);
    return;
  }

  hr_step step =
      hr_begin_step(pass, thread, threads, pass->rows, d->width * 3 * sizeof(float));
  for (hr_range run; hr_next_run(&step, &run);)
    for (size_t r = run.begin; r < run.end; r++) {
      float *x = ws->x + r * ws->x_stride, *sub = ws->sub + r * ws->x_stride;
      if (d->norm_place == HR_NORM_AFTER) {
        hr_norm_row(pass, post, x, d->width, x);
      } else {
        if (post->gain) hr_norm_row(pass, post, sub, d->width, sub);
        pass->kernels->add(x, sub, d->width);
      }
    }
  hr_end_step(pass, thread, HR_PART_NORM);
}
