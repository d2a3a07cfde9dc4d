/* SPDX-License-Identifier: MIT
 * Norm and residual: where they stand in a block. */
#include "block/pass.h"

void hr_norm_row(const hr_pass *pass, const hr_norm_weights *norm, const float *x, size_t n,
                 float *y) {
  const hr_description *d = &pass->model->description;
  if (d->norm == HR_NORM_RMS)
    pass->kernels->rms_norm(x, n, norm->gain, d->norm_eps, y);
  else
    pass->kernels->layer_norm(x, n, norm->gain, norm->shift, d->norm_eps, y);
}

/* Before and after: the product adds straight to x. Around: it goes to a buffer
 * of its own, to be normed first. */
float *hr_residual_target(const hr_pass *pass, bool *add) {
  bool around = pass->model->description.norm_place == HR_NORM_AROUND;
  *add = !around;
  return around ? pass->ws->sub : pass->ws->x;
}

void hr_residual(hr_pass *pass, unsigned thread, unsigned threads, const hr_norm_weights *post,
                 hr_part part) {
  const hr_description *d = &pass->model->description;
  hr_workspace *ws = pass->ws;
  hr_end_step(pass, thread, part);
  if (d->norm_place == HR_NORM_BEFORE) return;

  hr_step step =
      hr_begin_step(pass, thread, threads, pass->request->rows, d->width * 3 * sizeof(float));
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
