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

/* The rows that down reads, where they are quantized at once: in the place of the floats that
 * are not kept. A row of floats is never shorter. */
static char *activated_row(const hr_workspace *ws, size_t row, size_t width) {
  return (char *)ws->up + row * hr_q8_row_bytes(width);
}

/* A piece of a tile, HR_PIECE_ROWS x HR_PIECE_WIDTH at most: multiplied, activated, and quantized
 * for a q8 down, all while it is in this thread's cache. */
static void run_piece(const hr_pass *pass, unsigned thread, const hr_layer *layer,
                      const hr_input *input, hr_tile piece) {
  const hr_description *d = &pass->model->description;
  const hr_workspace *ws = pass->ws;
  const hr_private *own = &ws->private[thread];
  bool quantize = hr_quantizes_at_once(pass, &layer->down);
  size_t first = piece.panels.begin * HR_PANEL_ROWS, row = piece.rows.begin;
  size_t end = hr_min_size(piece.panels.end * HR_PANEL_ROWS, d->ffn_width);
  float *up = quantize ? own->up : ws->up + row * ws->ffn_stride + first;
  size_t stride = quantize ? HR_PIECE_WIDTH : ws->ffn_stride;
  const void *next = piece.next;
  if (d->gated) piece.next = hr_panel(&layer->gate, piece.panels.begin);
  hr_multiply_part(pass, input, &layer->up, piece, up, stride, false);
  piece.next = next;
  if (d->gated)
    hr_multiply_part(pass, input, &layer->gate, piece, own->gate, HR_PIECE_WIDTH, false);

  hr_activation_fn *activate = activation_of(pass->kernels, d->activation);
  const float *gate = own->gate;
  for (; row < piece.rows.end; row++, up += stride, gate += HR_PIECE_WIDTH) {
    activate(d->gated ? gate : up, d->gated ? up : NULL, up, end - first);
    if (quantize)
      pass->kernels->quantize(up, d->ffn_width, first, end, activated_row(ws, row, d->ffn_width));
  }
}

static void run_pieces(const hr_pass *pass, unsigned thread, const hr_layer *layer,
                       const hr_input *input, hr_tile tile) {
  enum { PANELS = HR_PIECE_WIDTH / HR_PANEL_ROWS };
  size_t rows = tile.rows.end - tile.rows.begin;
  size_t bands = (rows + HR_PIECE_ROWS - 1) / HR_PIECE_ROWS;
  for (size_t band = 0; band < bands; band++) {
    hr_tile piece = {.rows = {tile.rows.begin + rows * band / bands,
                              tile.rows.begin + rows * (band + 1) / bands}};
    for (size_t p = tile.panels.begin; p < tile.panels.end; p = piece.panels.end) {
      piece.panels = (hr_range){p, hr_min_size(p + PANELS, tile.panels.end)};
      bool last = piece.panels.end == tile.panels.end;
      piece.next = hr_panel(&layer->up, last ? tile.panels.begin : piece.panels.end);
      if (last && band + 1 == bands) piece.next = NULL;
      run_piece(pass, thread, layer, input, piece);
    }
  }
}

/* The same tile of gate and up in the same thread, and the activation at once. */
static void run_up(hr_pass *pass, unsigned thread, unsigned threads, const hr_layer *layer,
                   const hr_input *input, tile_work work) {
  const hr_workspace *ws = pass->ws;
  bool gated = pass->model->description.gated;
  bool in_pieces = work == BOTH && input->rows >= HR_MANY_ROWS;
  const hr_projection up = {&layer->up, ws->up, ws->ffn_stride};
  const hr_projection gate = {&layer->gate, ws->gate, ws->ffn_stride};
  hr_product_step step =
      hr_begin_product(pass, thread, threads, input->rows, &up, 1, gated ? 2 : 1);
  for (hr_tile tile; hr_next_tile(&step, &tile);) {
    if (in_pieces) {
      run_pieces(pass, thread, layer, input, tile);
      continue;
    }
    if (work & MULTIPLY) hr_multiply(pass, input, &up, 1, tile, false);
    if (work & MULTIPLY && gated) hr_multiply(pass, input, &gate, 1, tile, false);
    if (work & ACTIVATE) activate_tile(pass, tile);
  }
  hr_end_step_before(pass, thread, threads, HR_PART_UP,
                     pass->model->description.parallel ? NULL : &layer->down);
}

void hr_feed_forward_up(hr_pass *pass, unsigned thread, unsigned threads, const hr_layer *layer) {
  const hr_description *d = &pass->model->description;
  hr_workspace *ws = pass->ws;
  size_t rows = pass->rows;
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
  size_t rows = pass->rows;
  hr_input input = {.quantized = activated_row(ws, 0, d->ffn_width), .rows = rows};
  if (!hr_quantizes_at_once(pass, &layer->down))
    input = hr_prepare(pass, thread, threads, NULL, ws->up, ws->ffn_stride, rows, d->ffn_width,
                       matrices, 1);
  bool add;
  const hr_projection to = {&layer->down, hr_residual_target(pass, &add), ws->x_stride};
  hr_project(pass, thread, threads, &input, &to, 1, add);
}
