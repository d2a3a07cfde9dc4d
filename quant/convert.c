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

static void widen_row(const hr_panel_source *from, size_t row, size_t k, float *out) {
  const hr_format_info *format = hr_format_get(from->format);
  const char *data = from->data;
  if (!from->transposed) {
    format->widen(data + row * (from->columns / format->block_elements) * format->block_bytes, out,
                  k);
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

/* A widened row in the form that pack_* of the type reads; false as above. */
static bool reform_row(const float *x, size_t k, hr_panel_type type, void *out) {
  hr_q8_file_block *blocks = out;
  switch (type) {
    case HR_PANEL_F16: return narrow_row(x, k, out);
    case HR_PANEL_BF16:
      for (size_t i = 0; i < k; i++) ((uint16_t *)out)[i] = hr_narrow_brain(x[i]);
      return true;
    case HR_PANEL_Q8:
      for (size_t b = 0; b < k / HR_Q8_BLOCK; b++) {
        if (!hr_quantize_block(x + b * HR_Q8_BLOCK, &blocks[b])) return false;
      }
      return true;
    case HR_PANEL_F32:
    case HR_PANEL_TYPES: break;
  }
  memcpy(out, x, k * sizeof *x);
  return true;
}

bool hr_pack_panel(const hr_kernels *kernels, const hr_panel_source *from, size_t row, size_t rows,
                   size_t k, hr_panel_type type, void *scratch, void *panel, size_t *bad_row) {
  hr_pack_fn *pack = hr_kernels_pack(kernels, type);
  const hr_format_info *format = hr_format_get(from->format);
  size_t first = from->first_row + row;
  if (same_form(from->format, type) && !from->transposed) {
    size_t stride = from->columns / format->block_elements * format->block_bytes;
    pack((const char *)from->data + first * stride, stride, rows, k, panel);
    return true;
  }
  size_t stride = hr_round_up(k, HR_Q8_BLOCK) * sizeof(float);
  float *wide = scratch;
  char *formed = (char *)scratch + stride;
  for (size_t r = 0; r < rows; r++) {
    widen_row(from, first + r, k, wide);
    if (!reform_row(wide, k, type, formed + r * stride)) {
      *bad_row = first + r;
      return false;
    }
  }
  pack(formed, stride, rows, k, panel);
  return true;
}
