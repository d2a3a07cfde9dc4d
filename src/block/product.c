/* SPDX-License-Identifier: MIT
 * From rows to products: norm and quantize the input once, then cut the outputs
 * over the threads. */
#include "block/pass.h"

static bool any_quantized(const hr_matrix *const *matrices, size_t count) {
  for (size_t i = 0; i < count; i++)
    if (matrices[i]->panels && matrices[i]->type == HR_PANEL_Q8) return true;
  return false;
}

/* norm or quantized may be NULL: not wanted. */
static void prepare_row(const hr_pass *pass, const hr_norm_weights *norm, const float *x, size_t k,
                        float *normed, void *quantized) {
  if (norm) hr_norm_row(pass, norm, x, k, normed);
  if (quantized) pass->kernels->quantize(norm ? normed : x, k, 0, k, quantized);
}

static hr_input prepare_rows(hr_pass *pass, unsigned thread, unsigned threads,
                             const hr_norm_weights *norm, const float *x, size_t stride,
                             size_t rows, size_t k, const hr_matrix *const *matrices,
                             size_t count) {
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

  if (!normed && !quantized) return input;
  if (alone) {
    prepare_row(pass, normed ? norm : NULL, x, k, own->row, quantized ? own->quantized : NULL);
    hr_mark(pass, thread, HR_PART_NORM);
    return input;
  }
  size_t row_bytes = hr_q8_row_bytes(k);
  hr_step step = hr_begin_step(pass, thread, threads, rows, k * 2 * sizeof(float));
  for (hr_range run; hr_next_run(&step, &run);)
    for (size_t r = run.begin; r < run.end; r++)
      prepare_row(pass, normed ? norm : NULL, x + r * stride, k, ws->normed + r * ws->x_stride,
                  quantized ? ws->quantized + r * row_bytes : NULL);
  hr_end_step(pass, thread, HR_PART_NORM);
  return input;
}

/* The tap needs no barrier: the first thread calls it before its own part of the
 * product, and no one writes into the rows before all have ended theirs. */
hr_input hr_prepare(hr_pass *pass, unsigned thread, unsigned threads, const hr_norm_weights *norm,
                    const float *x, size_t stride, size_t rows, size_t k,
                    const hr_matrix *const *matrices, size_t count) {
  hr_input input = prepare_rows(pass, thread, threads, norm, x, stride, rows, k, matrices, count);
  const hr_workspace *ws = pass->ws;
  if (ws->input_tap && thread == 0)
    ws->input_tap(ws->input_tap_arg, matrices, count, input.x, rows, k, input.x_stride);
  return input;
}

const void *hr_panel(const hr_matrix *m, size_t index) {
  return (const char *)m->panels + index * hr_panel_bytes(m->type, m->k);
}

void hr_multiply_part(const hr_pass *pass, const hr_input *input, const hr_matrix *m,
                      hr_tile tile, float *y, size_t y_stride, bool add) {
  hr_range panels = tile.panels, rows = tile.rows;
  size_t first = panels.begin * HR_PANEL_ROWS;
  size_t end = hr_min_size(panels.end * HR_PANEL_ROWS, m->n);
  bool quantized = m->type == HR_PANEL_Q8;
  size_t stride = quantized ? hr_q8_row_bytes(m->k) : input->x_stride * sizeof(float);
  const char *x = quantized ? input->quantized : (const void *)input->x;
  hr_product product = {
      .panels = hr_panel(m, panels.begin),
      .x = x + rows.begin * stride,
      .x_stride = stride,
      .k = m->k,
      .n = end - first,
      .rows = rows.end - rows.begin,
      .bias = m->bias ? m->bias + first : NULL,
      .y = y,
      .y_stride = y_stride,
      .add = add,
      .next = tile.next,
  };
  hr_kernels_product(pass->kernels, m->type, product.rows)(&product);
}

static size_t panels_of(const hr_matrix *m) {
  return ((size_t)m->n + HR_PANEL_ROWS - 1) / HR_PANEL_ROWS;
}

static size_t divide_up(size_t a, size_t b) {
  return (a + b - 1) / b;
}

/* With OWN_ROWS rows for each of a few threads what one step writes the next one finds in the same
 * thread's caches, which may be far from others', and each reads all weights, which as many rows
 * pay for. */
bool hr_splits_by_rows(size_t rows, unsigned threads) {
  enum { OWN_ROWS = 128, FEW_THREADS = 4 };
  return threads > 1 && threads <= FEW_THREADS && rows / threads >= OWN_ROWS;
}

/* One row: a column is as short as pays for a call, 16 KiB of weights. Many: two
 * panels, which the kernels take side by side. Fewer columns than eight a thread
 * leave no fine tail: those of few rows get narrower, those of many are cut into
 * bands of rows, at least 32 for a call, and so are those that take long, 20 us by AVX-512 VNNI.
 * The bands of rows that are each thread's own are theirs. */
static void cut_product(hr_product_step *s, size_t k, size_t panel_bytes, unsigned threads) {
  enum { CALL_BYTES = 16 << 10, PAIR = 2, TAIL = 8, FEW_ROWS = 32, BAND_MACS = 8 << 20 };
  _Static_assert(PAIR * HR_PANEL_ROWS % HR_Q8_BLOCK == 0, "for hr_quantizes_at_once");
  s->wide = s->rows == 1 ? CALL_BYTES / panel_bytes : PAIR;
  if (s->rows < HR_MANY_ROWS) s->wide = hr_min_size(s->wide, s->panels / (threads * TAIL));
  if (s->wide == 0) s->wide = 1;
  size_t columns = divide_up(s->panels, s->wide);
  size_t bands = columns ? divide_up(threads * TAIL, columns) : 1;
  size_t by_work = s->rows * k * PAIR * HR_PANEL_ROWS / BAND_MACS;
  s->bands = hr_min_size(bands > by_work ? bands : by_work, s->rows / FEW_ROWS);
  if (threads == 1 || s->bands == 0) s->bands = 1;
  s->by_rows = hr_splits_by_rows(s->rows, threads);
  if (s->by_rows) {
    size_t each = divide_up(s->bands, threads), most = s->rows / FEW_ROWS / threads;
    s->bands = hr_min_size(each, most) * threads;
  }
}

/* Cuts the outputs of matrices side by side. Returns the bytes of a panel. */
static size_t cut_outputs(hr_product_step *s, unsigned threads, const hr_projection *projection,
                          size_t count) {
  size_t bytes = 1;
  for (size_t i = 0; i < count; i++) {
    const hr_matrix *m = projection[i].matrix;
    size_t panel = hr_panel_bytes(m->type, m->k);
    if (panel > bytes) bytes = panel;
    s->panels += panels_of(m);
  }
  cut_product(s, projection->matrix->k, bytes, threads);
  return bytes;
}

hr_product_step hr_begin_product(hr_pass *pass, unsigned thread, unsigned threads, size_t rows,
                                 const hr_projection *projection, size_t count, size_t times) {
  enum { MACS_OF_A_BYTE = 8 }; /* about as many take as long as reading one */
  hr_product_step s = {.rows = rows};
  size_t bytes = cut_outputs(&s, threads, projection, count);
  bytes += rows * projection->matrix->k * HR_PANEL_ROWS / MACS_OF_A_BYTE;
  s.step = hr_begin_step(pass, thread, threads, divide_up(s.panels, s.wide) * s.bands,
                         bytes * s.wide / s.bands * times);
  return s;
}

static const hr_layer *layer_of(const hr_transformer *t, const hr_matrix *m) {
  size_t index = ((uintptr_t)m - (uintptr_t)t->layer) / sizeof *t->layer; /* huge outside */
  return index < t->description.layers ? &t->layer[index] : NULL;
}

/* The steps are those of hr_attention_inputs, hr_feed_forward_up and of all others,
 * which are over one matrix. */
void hr_panels_of_thread(const hr_transformer *t, const hr_matrix *m, unsigned thread,
                         unsigned threads, const uint32_t *shares, size_t *begin, size_t *end) {
  const hr_layer *layer = layer_of(t, m);
  hr_projection side[] = {{.matrix = m}, {.matrix = NULL}, {.matrix = NULL}};
  size_t count = 1, before = 0;
  if (layer && m == &layer->gate) side[0].matrix = &layer->up;
  if (layer && (m == &layer->query || m == &layer->key || m == &layer->value)) {
    side[0].matrix = &layer->query;
    side[1].matrix = &layer->key;
    side[2].matrix = &layer->value;
    count = 3;
  }
  for (size_t i = 0; i < count && side[i].matrix != m && count > 1; i++)
    before += panels_of(side[i].matrix);
  hr_product_step s = {.rows = 1};
  cut_outputs(&s, threads, side, count);
  uint32_t columns = (uint32_t)divide_up(s.panels, s.wide);
  size_t of_m = panels_of(m), at[2];
  for (unsigned i = 0; i < 2; i++) {
    at[i] = hr_min_size(hr_tiles_begin(thread + i, threads, columns, shares) * s.wide, s.panels);
    at[i] = at[i] > before ? hr_min_size(at[i] - before, of_m) : 0;
  }
  *begin = at[0];
  *end = at[1];
}

const void *hr_first_panels(const hr_pass *pass, unsigned thread, unsigned threads,
                            const hr_matrix *m, size_t *bytes) {
  enum { MOST = 64 << 10 }; /* a part of the smallest second caches */
  const hr_layer *layer = layer_of(pass->model, m);
  size_t count = layer && m == &layer->query ? 3 : 1;
  const hr_matrix *const side[] = {m, layer ? &layer->key : NULL, layer ? &layer->value : NULL};
  for (size_t i = 0; i < count; i++) {
    size_t begin, end;
    hr_panels_of_thread(pass->model, side[i], thread, threads, pass->shares, &begin, &end);
    if (begin == end) continue;
    const hr_matrix *first = side[i];
    *bytes = hr_min_size((end - begin) * hr_panel_bytes(first->type, first->k), MOST);
    return hr_panel(first, begin);
  }
  return NULL;
}

bool hr_next_tile(hr_product_step *s, hr_tile *tile) {
  if (s->run.begin == s->run.end && !hr_next_run(&s->step, &s->run)) return false;
  size_t inner = s->by_rows ? divide_up(s->panels, s->wide) : s->bands;
  size_t left = s->run.end - s->run.begin, at = s->run.begin / inner, within = s->run.begin % inner;
  size_t count = left / inner, some = inner;
  if (within > 0 || count == 0) { /* a part of one column or band */
    count = 1;
    some = hr_min_size(inner - within, left);
  }
  hr_range outer = {at, at + count}, parts = {within, within + some};
  hr_range columns = s->by_rows ? parts : outer, bands = s->by_rows ? outer : parts;
  *tile = (hr_tile){
      .panels = {columns.begin * s->wide, hr_min_size(columns.end * s->wide, s->panels)},
      .rows = {s->rows * bands.begin / s->bands, s->rows * bands.end / s->bands},
  };
  s->run.begin += count * some;
  return true;
}

void hr_multiply(const hr_pass *pass, const hr_input *input, const hr_projection *projection,
                 size_t count, hr_tile tile, bool add) {
  size_t before = 0;
  for (size_t i = 0; i < count; i++) {
    size_t n = panels_of(projection[i].matrix);
    size_t begin = tile.panels.begin > before ? tile.panels.begin - before : 0;
    size_t end = tile.panels.end > before ? hr_min_size(tile.panels.end - before, n) : 0;
    const hr_projection *to = &projection[i];
    before += n;
    if (begin >= end) continue;
    hr_tile part = {.panels = {begin, end}, .rows = tile.rows};
    float *y = to->y + part.rows.begin * to->y_stride + begin * HR_PANEL_ROWS;
    hr_multiply_part(pass, input, to->matrix, part, y, to->y_stride, add);
  }
}

void hr_project(hr_pass *pass, unsigned thread, unsigned threads, const hr_input *input,
                const hr_projection *projection, size_t count, bool add) {
  hr_product_step step =
      hr_begin_product(pass, thread, threads, input->rows, projection, count, 1);
  for (hr_tile tile; hr_next_tile(&step, &tile);)
    hr_multiply(pass, input, projection, count, tile, add);
}
