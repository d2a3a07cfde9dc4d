/* SPDX-License-Identifier: MIT
 * From rows to products: norm and quantize the input once, then cut the outputs
 * over the threads. */
#include "block/pass.h"

static bool any_quantized(const hr_matrix *const *matrices, size_t count) {
  for (size_t i = 0; i < count; i++)
    if (matrices[i]->panels && matrices[i]->type == HR_PANEL_Q8) return true;
  return false;
}

hr_input hr_prepare(hr_pass *pass, unsigned thread, unsigned threads, const hr_norm_weights *norm,
                    const float *x, size_t stride, size_t rows, size_t k,
                    const hr_matrix *const *matrices, size_t count) {
  hr_workspace *ws = pass->ws;
  bool normed = norm && norm->gain, quantized = any_quantized(matrices, count);
  bool alone = rows == 1;
  hr_private *own = &ws->private[thread];
  hr_input input = {.x = x, .x_stride = stride, .rows = rows};
  if (normed) {
    input.x = alone ? own->row : ws->normed;
    input.x_stride = ws->x_stride;
  }
  if (quantized) input.quantized = alone ? own->quantized : ws->quantized;

  size_t row_bytes = hr_q8_row_bytes(k);
  hr_range share = alone ? (hr_range){0, 1} : hr_share(rows, thread, threads);
  for (size_t r = share.begin; r < share.end; r++) {
    const float *from = x + r * stride;
    if (normed) {
      float *to = (float *)input.x + r * input.x_stride;
      hr_norm_row(pass, norm, from, k, to);
      from = to;
    }
    if (quantized) pass->kernels->quantize(from, k, (char *)input.quantized + r * row_bytes);
  }
  if (!alone && (normed || quantized)) hr_team_barrier(pass->team, thread);
  return input;
}

/* Outputs first..end of one matrix for rows of the input. */
static void project_part(const hr_pass *pass, const hr_input *input, const hr_projection *to,
                         hr_range panels, hr_range rows, bool add) {
  const hr_matrix *m = to->matrix;
  size_t first = panels.begin * HR_PANEL_ROWS;
  size_t end = hr_min_size(panels.end * HR_PANEL_ROWS, m->n);
  bool quantized = m->type == HR_PANEL_Q8;
  size_t stride = quantized ? hr_q8_row_bytes(m->k) : input->x_stride * sizeof(float);
  const char *x = quantized ? input->quantized : (const void *)input->x;
  hr_product product = {
      .panels = (const char *)m->panels + panels.begin * hr_panel_bytes(m->type, m->k),
      .x = x + rows.begin * stride,
      .x_stride = stride,
      .k = m->k,
      .n = end - first,
      .rows = rows.end - rows.begin,
      .bias = m->bias ? m->bias + first : NULL,
      .y = to->y + rows.begin * to->y_stride + first,
      .y_stride = to->y_stride,
      .add = add,
  };
  hr_kernels_product(pass->kernels, m->type, product.rows)(&product);
}

static size_t panels_of(const hr_matrix *m) {
  return ((size_t)m->n + HR_PANEL_ROWS - 1) / HR_PANEL_ROWS;
}

hr_cut hr_cut_product(size_t panels, size_t rows, unsigned thread, unsigned threads) {
  unsigned parts = 1; /* of the rows; part p belongs to threads p, p + parts, ... */
  if (panels < threads) parts = (unsigned)hr_min_size(rows, (threads + panels - 1) / panels);
  unsigned part = thread % parts, sharing = (threads - part + parts - 1) / parts;
  return (hr_cut){.panels = hr_share(panels, thread / parts, sharing),
                  .rows = hr_share(rows, part, parts)};
}

void hr_project(hr_pass *pass, unsigned thread, unsigned threads, const hr_input *input,
                const hr_projection *projection, size_t count, bool add) {
  size_t panels = 0, before = 0;
  for (size_t i = 0; i < count; i++) panels += panels_of(projection[i].matrix);
  hr_cut cut = hr_cut_product(panels, input->rows, thread, threads);
  for (size_t i = 0; i < count; i++) {
    size_t n = panels_of(projection[i].matrix);
    size_t begin = cut.panels.begin > before ? cut.panels.begin - before : 0;
    size_t end = cut.panels.end > before ? hr_min_size(cut.panels.end - before, n) : 0;
    if (begin < end && cut.rows.begin < cut.rows.end)
      project_part(pass, input, &projection[i], (hr_range){begin, end}, cut.rows, add);
    before += n;
  }
}
