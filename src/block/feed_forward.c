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
  __builtin_unreachable(); /* a description holds one of them */
}

/* What is done with a tile of up and gate. */
typedef enum tile_work { MULTIPLY = 1, ACTIVATE = 2, BOTH = 3 } tile_work;

static void activate_tile(const hr_pass *pass, hr_tile tile) {
  const hr_description *d = &pass->model->description;
  const hr_workspace *ws = pass->ws;
  hr_activation_fn *activate = activation_of(pass->kernels, d->activation);
  size_t first = tile.panels.begin * HR_PANEL_ROWS;
  size_t n = hr_min_size(tile.panels.end * HR_PANEL_ROWS, d->ffn_width) - first;
  for (size_t r = tile.rows.begin; r < tile.rows.end; r++) {
    float *u = ws->up + r * ws->ffn_stride + first;
    const float *g = ws->gate + r * ws->ffn_stride + first;
    activate(d->gated ? g : u, d->gated ? u : NULL, u, n);
  }
}

/* The same tile of gate and up in the same thread, and the activation at once,
 * while they are in its cache. */
static void run_up(hr_pass *pass, unsigned thread, unsigned threads, const hr_layer *layer,
                   const hr_input *input, tile_work work) {
  const hr_workspace *ws = pass->ws;
  bool gated = pass->model->description.gated;
  const hr_projection up = {&layer->up, ws->up, ws->ffn_stride};
  const hr_projection gate = {&layer->gate, ws->gate, ws->ffn_stride};
  hr_product_step step =
      hr_begin_product(pass, thread, threads, input->rows, &up, 1, gated ? 2 : 1);
  for (hr_tile tile; hr_next_tile(&step, &tile);) {
    if (work & MULTIPLY) hr_multiply(pass, input, &up, 1, tile, false);
    if (work & MULTIPLY && gated) hr_multiply(pass, input, &gate, 1, tile, false);
    if (work & ACTIVATE) activate_tile(pass, tile);
  }
  hr_end_step(pass, thread, HR_PART_UP);
}

void hr_feed_forward_up(hr_pass *pass, unsigned thread, unsigned threads, const hr_layer *layer) {
  const hr_description *d = &pass->model->description;
  hr_workspace *ws = pass->ws;
  size_t rows = pass->request->rows;
  const hr_matrix *matrices[] = {&layer->up, &layer->gate};
  const hr_norm_weights *norm =
      d->parallel && !layer->ffn_norm.gain ? &layer->attention_norm : &layer->ffn_norm;
  hr_input input = hr_prepare(pass, thread, threads, norm, hr_stream(pass, thread), ws->x_stride,
                              rows, d->width, matrices, d->gated ? 2 : 1);
  uint32_t index = hr_layer_index(pass, layer);
  hr_show(pass, thread, "ffn_input", index, input.x, rows, d->width, input.x_stride);
  if (!ws->tap) {
    run_up(pass, thread, threads, layer, &input, BOTH);
    return;
  }
  run_up(pass, thread, threads, layer, &input, MULTIPLY);
  hr_show(pass, thread, "ffn_up", index, ws->up, rows, d->ffn_width, ws->ffn_stride);
  if (d->gated)
    hr_show(pass, thread, "ffn_gate", index, ws->gate, rows, d->ffn_width, ws->ffn_stride);
  run_up(pass, thread, threads, layer, &input, ACTIVATE);
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
