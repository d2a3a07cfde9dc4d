/* SPDX-License-Identifier: MIT */
#include "quant/convert.h"

#include <math.h>
#include <string.h>

#include "kernels/portable/half.h"

/* One row widened (16 of them at most), then the row in the panel's file form. */
size_t hr_panel_scratch_bytes(size_t k) {
  size_t padded = hr_round_up(k, HR_Q8_BLOCK);
  return padded * sizeof(float) * (HR_PANEL_ROWS + 1);
}

bool hr_quantize_block(const float *x, hr_q8_file_block *block) {
  uint32_t bits = 0;
  for (int i = 0; i < HR_Q8_BLOCK; i++) {
    uint32_t a = hr_float_bits(x[i]) & 0x7fffffffu;
    bits = a > bits ? a : bits;
  }
  float scale = hr_float_from_bits(bits) / 127.0f;
  *block = (hr_q8_file_block){.scale = hr_narrow_half(scale)};
  if ((block->scale & 0x7c00) == 0x7c00) return false;
  if (block->scale == 0) return true; /* too small for an fp16 scale: zeros */
  float inverse = 1.0f / scale;
  for (int i = 0; i < HR_Q8_BLOCK; i++) block->q[i] = (int8_t)roundf(x[i] * inverse);
  return true;
}

/* --- Searching for a scale ---------------------------------------------------
 * The largest magnitude of a block need not be 127 steps: on a slightly coarser
 * grid the other values may fall better. It is put on the side where int8 has
 * -128. */

#define MOST_STEPS 128.0f

float hr_block_extreme(const float *x) {
  uint32_t most = 0;
  size_t at = 0;
  for (size_t i = 0; i < HR_Q8_BLOCK; i++) {
    uint32_t a = hr_float_bits(x[i]) & 0x7fffffffu;
    most = a > most ? a : most;
  }
  while (at < HR_Q8_BLOCK - 1 && (hr_float_bits(x[at]) & 0x7fffffffu) != most) at++;
  return most ? x[at] : 0.0f;
}

uint16_t hr_search_scale(float extreme, hr_scale_search search, unsigned try) {
  float step = (MOST_STEPS - search.fewest) / (float)(search.tries - 1);
  return hr_narrow_half(-extreme / (MOST_STEPS - (float)try * step));
}

bool hr_quantize_block_best(const hr_kernels *kernels, const float *x, const float *weight,
                            hr_scale_search search, hr_q8_file_block *block) {
  float extreme = hr_block_extreme(x), scales[HR_MOST_TRIES] = {0}, errors[HR_MOST_TRIES];
  uint16_t halves[HR_MOST_TRIES];
  size_t count = 0;
  *block = (hr_q8_file_block){0};
  if (!isfinite(extreme)) return false;
  bool fits = false;
  for (unsigned t = 0; t < search.tries; t++) {
    uint16_t half = hr_search_scale(extreme, search, t);
    if ((half & 0x7c00) == 0x7c00) continue;
    fits = true;
    if ((half & 0x7fff) == 0) continue; /* too small for an fp16 scale: zeros */
    halves[count] = half;
    scales[count++] = hr_widen_half(half);
  }
  kernels->grid_errors(x, weight, scales, count, errors);
  float least = INFINITY, chosen = 0.0f;
  for (size_t i = 0; i < count; i++) {
    if (errors[i] >= least) continue;
    least = errors[i];
    chosen = scales[i];
    block->scale = halves[i];
  }
  float inverse = chosen != 0.0f ? 1.0f / chosen : 0.0f;
  for (int i = 0; i < HR_Q8_BLOCK; i++) block->q[i] = (int8_t)hr_round_to_int8(x[i] * inverse);
  return fits;
}

/* --- Panels ----------------------------------------------------------------- */

/* The output of the tensor that is row i. */
static size_t output_of(const hr_panel_source *from, size_t i) {
  return from->first_row + (from->run ? i / from->run * from->step + i % from->run : i);
}

/* Where a row of a matrix that is not transposed begins. */
static const void *row_of(const hr_panel_source *from, size_t row) {
  const hr_format_info *format = hr_format_get(from->format);
  return (const char *)from->data +
         row * (from->columns / format->block_elements) * format->block_bytes;
}

static void widen_row(const hr_panel_source *from, size_t row, size_t k, float *out) {
  const hr_format_info *format = hr_format_get(from->format);
  const char *data = from->data;
  if (!from->transposed) {
    format->widen(row_of(from, row), out, k);
    return;
  }
  for (size_t i = 0; i < k; i++)
    format->widen(data + (i * from->columns + row) * format->block_bytes, out + i, 1);
}

/* False when a finite value becomes infinite. */
static bool narrow_row(const float *x, size_t k, uint16_t *out) {
  bool fits = true;
  for (size_t i = 0; i < k; i++) {
    out[i] = hr_narrow_half(x[i]);
    if ((out[i] & 0x7fff) == 0x7c00 && isfinite(x[i])) fits = false;
  }
  return fits;
}

static bool same_form(hr_format format, hr_panel_type type) {
  return (format == HR_FORMAT_F32 && type == HR_PANEL_F32) ||
         (format == HR_FORMAT_F16 && type == HR_PANEL_F16) ||
         (format == HR_FORMAT_BF16 && type == HR_PANEL_BF16) ||
         (format == HR_FORMAT_Q8_0 && type == HR_PANEL_Q8);
}

/* What is tried for a block at load: 20 % off the squared error; 69 scales would take
 * off 25 %, and the time of all other steps together several times over. */
static const hr_scale_search load_search = {.fewest = 120.0f, .tries = 9};

/* Plain for the float formats, as a Q8_0 file of the model has it; with a search
 * where the values have gone through a format of few levels already. */
static bool quantize_at_load(const hr_kernels *kernels, hr_format format, const float *x,
                             hr_q8_file_block *block) {
  return hr_format_get(format)->block_elements == 1
             ? hr_quantize_block(x, block)
             : hr_quantize_block_best(kernels, x, NULL, load_search, block);
}

/* A widened row in the form that pack_* of the type reads; false as above. */
static bool reform_row(const hr_kernels *kernels, hr_format format, const float *x, size_t k,
                       hr_panel_type type, void *out) {
  hr_q8_file_block *blocks = out;
  switch (type) {
    case HR_PANEL_F16: return narrow_row(x, k, out);
    case HR_PANEL_BF16:
      for (size_t i = 0; i < k; i++) ((uint16_t *)out)[i] = hr_narrow_brain(x[i]);
      return true;
    case HR_PANEL_Q8:
      for (size_t b = 0; b < k / HR_Q8_BLOCK; b++) {
        if (!quantize_at_load(kernels, format, x + b * HR_Q8_BLOCK, &blocks[b])) return false;
      }
      return true;
    case HR_PANEL_F32:
    case HR_PANEL_TYPES: break;
  }
  memcpy(out, x, k * sizeof *x);
  return true;
}

/* Numbers whose exponent is all ones are NaN or infinite; carried on by one, such an
 * exponent fills the sign bit. */
static bool all_finite_words(const uint32_t *x, size_t count) {
  uint32_t carried = 0;
  for (size_t i = 0; i < count; i++) carried |= (x[i] & 0x7f800000u) + 0x00800000u;
  return !(carried & 0x80000000u);
}

static bool all_finite_halves(const uint16_t *x, size_t count, uint16_t exponent, uint16_t unit) {
  uint16_t carried = 0;
  for (size_t i = 0; i < count; i++) carried |= (uint16_t)((x[i] & exponent) + unit);
  return !(carried & 0x8000u);
}

enum { HALF_EXPONENT = 0x7c00, HALF_UNIT = 0x0400, BRAIN_EXPONENT = 0x7f80, BRAIN_UNIT = 0x0080 };

static bool all_finite_scales(const char *panel, size_t k) {
  bool finite = true;
  for (size_t b = 0; b < k / HR_Q8_BLOCK; b++)
    finite &= all_finite_halves((const uint16_t *)(const void *)(panel + hr_q8_scales_at(b)),
                                HR_PANEL_ROWS, HALF_EXPONENT, HALF_UNIT);
  return finite;
}

static bool all_finite_panel(hr_panel_type type, const void *panel, size_t k) {
  switch (type) {
    case HR_PANEL_F32: return all_finite_words(panel, k * HR_PANEL_ROWS);
    case HR_PANEL_F16:
      return all_finite_halves(panel, k * HR_PANEL_ROWS, HALF_EXPONENT, HALF_UNIT);
    case HR_PANEL_BF16:
      return all_finite_halves(panel, k * HR_PANEL_ROWS, BRAIN_EXPONENT, BRAIN_UNIT);
    case HR_PANEL_Q8: return all_finite_scales(panel, k);
    case HR_PANEL_TYPES: break;
  }
  return true;
}

/* The first row of a panel that holds a NaN or an infinity. */
static size_t faulty_row(hr_panel_type type, const void *panel, size_t rows, size_t k,
                         float *wide) {
  for (size_t r = 0; r < rows; r++) {
    hr_panel_row(type, panel, k, r, wide);
    for (size_t i = 0; i < k; i++)
      if (!isfinite(wide[i])) return r;
  }
  return 0;
}

/* False, with the row in *bad_row, when a value does not fit. */
static bool form_panel(const hr_kernels *kernels, const hr_panel_source *from, size_t row,
                       size_t rows, size_t k, hr_panel_type type, void *scratch, void *panel,
                       size_t *bad_row) {
  hr_pack_fn *pack = hr_kernels_pack(kernels, type);
  const hr_format_info *format = hr_format_get(from->format);
  size_t first = output_of(from, row);
  bool together = output_of(from, row + rows - 1) == first + rows - 1;
  if (same_form(from->format, type) && !from->transposed && together) {
    size_t stride = from->columns / format->block_elements * format->block_bytes;
    pack(row_of(from, first), stride, rows, k, panel);
    return true;
  }
  size_t stride = hr_round_up(k, HR_Q8_BLOCK) * sizeof(float);
  float *wide = scratch;
  char *formed = (char *)scratch + stride;
  for (size_t r = 0; r < rows; r++) {
    void *row_out = formed + r * stride;
    size_t output = output_of(from, row + r);
    if (type == HR_PANEL_Q8 && format->to_q8) {
      format->to_q8(row_of(from, output), row_out, k);
      continue;
    }
    widen_row(from, output, k, wide);
    if (!reform_row(kernels, from->format, wide, k, type, row_out)) {
      *bad_row = output;
      return false;
    }
  }
  pack(formed, stride, rows, k, panel);
  return true;
}

bool hr_pack_panel(const hr_kernels *kernels, const hr_panel_source *from, size_t row, size_t rows,
                   size_t k, hr_panel_type type, void *scratch, void *panel, size_t *bad_row) {
  if (!form_panel(kernels, from, row, rows, k, type, scratch, panel, bad_row)) return false;
  if (all_finite_panel(type, panel, k)) return true;
  *bad_row = output_of(from, row + faulty_row(type, panel, rows, k, scratch));
  return false;
}

void hr_source_row(const hr_panel_source *from, size_t row, size_t k, float *out) {
  widen_row(from, output_of(from, row), k, out);
}

static void q8_panel_row(const char *panel, size_t k, size_t row, float *out) {
  for (size_t i = 0; i < k; i++) {
    size_t block = i / HR_Q8_BLOCK, inside = i % HR_Q8_BLOCK;
    uint16_t scale;
    memcpy(&scale, panel + hr_q8_scales_at(block) + row * sizeof scale, sizeof scale);
    int8_t q = (int8_t)panel[hr_q8_weights_at(block) +
                             (inside / HR_Q8_GROUP * HR_PANEL_ROWS + row) * HR_Q8_GROUP +
                             inside % HR_Q8_GROUP];
    out[i] = hr_widen_half(scale) * (float)q;
  }
}

void hr_panel_row(hr_panel_type type, const void *panels, size_t k, size_t row, float *out) {
  const char *panel =
      (const char *)panels + row / HR_PANEL_ROWS * hr_panel_bytes(type, k);
  row %= HR_PANEL_ROWS;
  const float *wide = (const float *)(const void *)panel + row;
  const uint16_t *half = (const uint16_t *)(const void *)panel + row;
  switch (type) {
    case HR_PANEL_F32:
      for (size_t i = 0; i < k; i++) out[i] = wide[i * HR_PANEL_ROWS];
      break;
    case HR_PANEL_F16:
      for (size_t i = 0; i < k; i++) out[i] = hr_widen_half(half[i * HR_PANEL_ROWS]);
      break;
    case HR_PANEL_BF16:
      for (size_t i = 0; i < k; i++) out[i] = hr_widen_brain(half[i * HR_PANEL_ROWS]);
      break;
    case HR_PANEL_Q8: q8_panel_row(panel, k, row, out); break;
    case HR_PANEL_TYPES: break;
  }
}
