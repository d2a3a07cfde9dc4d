/* SPDX-License-Identifier: MIT
 * The feed-forward network: down(act(up(x))), or gated: down(act(gate(x)) * up(x)). */
#include "block/pass.h"

static hr_activation_fn *activation_of(const hr_kernels *k, hr_activation activation) {
  switch (activation) {
    case HR_ACTIVATION_RELU: return k->relu;
    case HR_ACTIVATION_RELU2: return k->relu2;
    case HR_ACTIVATION_SILU: return k->silu;
    case HR_ACTIVATION_GELU_ERF: return k->gelu_erf;
    case HR_ACTIVATION_GELU_TANH: return k->gelu_tanh;
    case HR_ACTIVATION_GELU_QUICK: return k->gelu_quick;
  }
  return k->relu;
}

/* Each thread computes the same columns of gate and up and applies the
 * activation to them at once, while they are in its cache. */
void hr_feed_forward_up(hr_pass *pass, unsigned thread, unsigned threads, const hr_layer *layer) {
  const hr_description *d = &pass->model->description;
  hr_workspace *ws = pass->ws;
  size_t rows = pass->request->rows;
  const hr_matrix *matrices[] = {&layer->up, &layer->gate};
  const hr_norm_weights *norm =
      d->parallel && !layer->ffn_norm.gain ? &layer->attention_norm : &layer->ffn_norm;
  hr_input input = hr_prepare(pass, thread, threads, norm, ws->x, ws->x_stride, rows, d->width,
                              matrices, d->gated ? 2 : 1);
  uint32_t index = hr_layer_index(pass, layer);
  hr_show(pass, thread, "ffn_input", index, input.x, rows, d->width, input.x_stride);
  const hr_projection up = {&layer->up, ws->up, ws->ffn_stride};
  const hr_projection gate = {&layer->gate, ws->gate, ws->ffn_stride};
  hr_project(pass, thread, threads, &input, &up, 1, false);
  if (d->gated) hr_project(pass, thread, threads, &input, &gate, 1, false);
  hr_show(pass, thread, "ffn_up", index, ws->up, rows, d->ffn_width, ws->ffn_stride);
  if (d->gated)
    hr_show(pass, thread, "ffn_gate", index, ws->gate, rows, d->ffn_width, ws->ffn_stride);

  size_t panels = hr_round_up(d->ffn_width, HR_PANEL_ROWS) / HR_PANEL_ROWS;
  hr_cut cut = hr_cut_product(panels, rows, thread, threads);
  size_t first = cut.panels.begin * HR_PANEL_ROWS;
  size_t end = hr_min_size(cut.panels.end * HR_PANEL_ROWS, d->ffn_width);
  hr_activation_fn *activate = activation_of(pass->kernels, d->activation);
  for (size_t r = cut.rows.begin; r < cut.rows.end && first < end; r++) {
    float *u = ws->up + r * ws->ffn_stride + first;
    const float *g = ws->gate + r * ws->ffn_stride + first;
    activate(d->gated ? g : u, d->gated ? u : NULL, u, end - first);
  }
  hr_team_barrier(pass->team, thread);
}

void hr_feed_forward_down(hr_pass *pass, unsigned thread, unsigned threads, const hr_layer *layer) {
  const hr_description *d = &pass->model->description;
  hr_workspace *ws = pass->ws;
  const hr_matrix *matrices[] = {&layer->down};
  hr_input input = hr_prepare(pass, thread, threads, NULL, ws->up, ws->ffn_stride,
                              pass->request->rows, d->ffn_width, matrices, 1);
  bool add;
  const hr_projection to = {&layer->down, hr_residual_target(pass, &add), ws->x_stride};
  hr_project(pass, thread, threads, &input, &to, 1, add);
}
