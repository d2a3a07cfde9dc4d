/* SPDX-License-Identifier: MIT
 * From token ids to the first rows: embedding, position, type. */
#include <string.h>

#include "block/pass.h"

/* Row `row` of a matrix in panels, widened: the embedding of a token. */
static void panel_row(const hr_pass *pass, const hr_matrix *m, size_t row, float *out) {
  const char *panel = (const char *)m->panels + row / HR_PANEL_ROWS * hr_panel_bytes(m->type, m->k);
  size_t lane = row % HR_PANEL_ROWS;
  if (m->type == HR_PANEL_F32) {
    const float *w = (const float *)(const void *)panel;
    for (size_t k = 0; k < m->k; k++) out[k] = w[k * HR_PANEL_ROWS + lane];
  } else if (m->type == HR_PANEL_Q8) {
    for (size_t b = 0; b < hr_q8_blocks(m->k); b++) {
      float scale;
      pass->kernels->widen_f16((const uint16_t *)(const void *)(panel + hr_q8_scales_at(b)) + lane,
                               &scale, 1);
      const int8_t *w = (const int8_t *)panel + hr_q8_weights_at(b) + lane * HR_Q8_GROUP;
      size_t end = hr_min_size(m->k - b * HR_Q8_BLOCK, HR_Q8_BLOCK);
      for (size_t k = 0; k < end; k++) {
        size_t at = k / HR_Q8_GROUP * HR_PANEL_ROWS * HR_Q8_GROUP + k % HR_Q8_GROUP;
        out[b * HR_Q8_BLOCK + k] = scale * (float)w[at];
      }
    }
  } else {
    const uint16_t *w = (const uint16_t *)(const void *)panel;
    hr_widen_fn *widen =
        m->type == HR_PANEL_F16 ? pass->kernels->widen_f16 : pass->kernels->widen_bf16;
    uint16_t part[64];
    for (size_t k = 0; k < m->k; k += 64) {
      size_t n = hr_min_size(m->k - k, 64);
      for (size_t i = 0; i < n; i++) part[i] = w[(k + i) * HR_PANEL_ROWS + lane];
      widen(part, out + k, n);
    }
  }
}

/* What depends on where a row stands: an embedding to add, or angles for later. */
static void place_row(const hr_pass *pass, size_t row, float *x) {
  const hr_transformer *model = pass->model;
  const hr_description *d = &model->description;
  hr_workspace *ws = pass->ws;
  uint32_t position = (uint32_t)hr_position_of(hr_span_of_row(pass, row), row);
  size_t half = d->rope_width / 2;
  switch (d->position) {
    case HR_POSITION_SINUSOIDAL:
      hr_sinusoid(ws->frequency, d->width, position, ws->normed + row * ws->x_stride);
      pass->kernels->add(x, ws->normed + row * ws->x_stride, d->width);
      break;
    case HR_POSITION_LEARNED:
      pass->kernels->add(
          x, model->position_embedding + (size_t)(position + d->position_offset) * d->width,
          d->width);
      break;
    case HR_POSITION_ROPE:
      hr_angles(ws->frequency, half, position, ws->cos + row * half, ws->sin + row * half);
      if (ws->rope_magnitude != 1.0f) {
        pass->kernels->scale(ws->cos + row * half, ws->rope_magnitude, half);
        pass->kernels->scale(ws->sin + row * half, ws->rope_magnitude, half);
      }
      break;
    case HR_POSITION_NONE:
    case HR_POSITION_ALIBI: break;
  }
}

static void embed_row(const hr_pass *pass, size_t row) {
  const hr_transformer *model = pass->model;
  const hr_description *d = &model->description;
  float *x = pass->ws->x + row * pass->ws->x_stride;
  size_t of_request = hr_request_row(hr_span_of_row(pass, row), row);
  panel_row(pass, &model->token_embedding, (size_t)pass->request->ids[of_request], x);
  if (d->embedding_scale != 1.0f) pass->kernels->scale(x, d->embedding_scale, d->width);
  place_row(pass, row, x);
  if (model->type_embedding) {
    size_t type = pass->request->types ? (size_t)pass->request->types[of_request] : 0;
    pass->kernels->add(x, model->type_embedding + type * d->width, d->width);
  }
  if (model->embedding_norm.gain) hr_norm_row(pass, &model->embedding_norm, x, d->width, x);
}

/* The residual stream as it was given; angles are still to be known. */
static void take_row(const hr_pass *pass, size_t row) {
  const hr_description *d = &pass->model->description;
  float *x = pass->ws->x + row * pass->ws->x_stride;
  memcpy(x, pass->request->stretch->stream + row * d->width, d->width * sizeof *x);
  if (d->position == HR_POSITION_ROPE) place_row(pass, row, x);
}

void hr_embed(hr_pass *pass, unsigned thread, unsigned threads) {
  const hr_description *d = &pass->model->description;
  hr_workspace *ws = pass->ws;
  bool given = pass->request->stretch && pass->request->stretch->stream;
  hr_step step = hr_begin_step(pass, thread, threads, pass->rows,
                               d->width * 4 * sizeof(float));
  for (hr_range run; hr_next_run(&step, &run);)
    for (size_t r = run.begin; r < run.end; r++) {
      if (given)
        take_row(pass, r);
      else
        embed_row(pass, r);
    }
  hr_end_step(pass, thread, HR_PART_EMBEDDING);
  hr_part_streams(pass, thread);
  hr_show(pass, thread, "embedding", 0, ws->x, pass->rows, d->width, ws->x_stride);
}
