/* SPDX-License-Identifier: MIT
 * Rows into panels by transposing squares. Panels with missing rows are left to
 * portable. Sources need no alignment: they are read as bytes. */
#include "kernels/neon/neon.h"
#include "kernels/neon/neon_tile.h"
#include "kernels/portable/portable.h"

/* 4 rows of 4 words at src + r * stride to 4 quads at out + c * step bytes. */
HR_INLINE void transpose4(const uint8_t *src, size_t stride, uint8_t *out, size_t step) {
  uint32x4_t r[4];
  HR_UNROLL for (int i = 0; i < 4; i++)
    r[i] = vreinterpretq_u32_u8(vld1q_u8(src + (size_t)i * stride));
  uint64x2_t a = vreinterpretq_u64_u32(vtrn1q_u32(r[0], r[1]));
  uint64x2_t b = vreinterpretq_u64_u32(vtrn2q_u32(r[0], r[1]));
  uint64x2_t c = vreinterpretq_u64_u32(vtrn1q_u32(r[2], r[3]));
  uint64x2_t d = vreinterpretq_u64_u32(vtrn2q_u32(r[2], r[3]));
  vst1q_u8(out, vreinterpretq_u8_u64(vtrn1q_u64(a, c)));
  vst1q_u8(out + step, vreinterpretq_u8_u64(vtrn1q_u64(b, d)));
  vst1q_u8(out + 2 * step, vreinterpretq_u8_u64(vtrn2q_u64(a, c)));
  vst1q_u8(out + 3 * step, vreinterpretq_u8_u64(vtrn2q_u64(b, d)));
}

/* 8 rows of 4 halves at src + r * stride to 4 registers of 8 halves. */
HR_INLINE void transpose8(const uint8_t *src, size_t stride, uint8_t *out, size_t step) {
  uint16x8_t r[4];
  HR_UNROLL for (int i = 0; i < 4; i++) { /* rows i and i + 4 */
    uint8x8_t low = vld1_u8(src + (size_t)i * stride);
    uint8x8_t high = vld1_u8(src + (size_t)(i + 4) * stride);
    r[i] = vreinterpretq_u16_u8(vcombine_u8(low, high));
  }
  uint32x4_t a = vreinterpretq_u32_u16(vtrn1q_u16(r[0], r[1]));
  uint32x4_t b = vreinterpretq_u32_u16(vtrn2q_u16(r[0], r[1]));
  uint32x4_t c = vreinterpretq_u32_u16(vtrn1q_u16(r[2], r[3]));
  uint32x4_t d = vreinterpretq_u32_u16(vtrn2q_u16(r[2], r[3]));
  vst1q_u8(out, vreinterpretq_u8_u32(vtrn1q_u32(a, c)));
  vst1q_u8(out + step, vreinterpretq_u8_u32(vtrn1q_u32(b, d)));
  vst1q_u8(out + 2 * step, vreinterpretq_u8_u32(vtrn2q_u32(a, c)));
  vst1q_u8(out + 3 * step, vreinterpretq_u8_u32(vtrn2q_u32(b, d)));
}

/* Columns past the last four. */
static void pack_rest(const uint8_t *src, size_t stride, size_t from, size_t k, size_t size,
                      uint8_t *out) {
  for (size_t i = from; i < k; i++)
    for (size_t r = 0; r < HR_PANEL_ROWS; r++)
      memcpy(out + (i * HR_PANEL_ROWS + r) * size, src + r * stride + i * size, size);
}

void hr_pack_f32__neon(const void *src, size_t stride, size_t rows, size_t k, void *panel) {
  if (rows < HR_PANEL_ROWS) {
    hr_pack_f32__portable(src, stride, rows, k, panel);
    return;
  }
  const uint8_t *from = src;
  uint8_t *out = panel;
  size_t i = 0;
  for (; i + 4 <= k; i += 4)
    for (size_t r = 0; r < HR_PANEL_ROWS; r += 4)
      transpose4(from + r * stride + i * 4, stride, out + (i * HR_PANEL_ROWS + r) * 4, 64);
  pack_rest(from, stride, i, k, 4, out);
}

static void pack_halves(const uint8_t *src, size_t stride, size_t k, uint8_t *out) {
  size_t i = 0;
  for (; i + 4 <= k; i += 4)
    for (size_t r = 0; r < HR_PANEL_ROWS; r += 8)
      transpose8(src + r * stride + i * 2, stride, out + (i * HR_PANEL_ROWS + r) * 2, 32);
  pack_rest(src, stride, i, k, 2, out);
}

void hr_pack_f16__neon(const void *src, size_t stride, size_t rows, size_t k, void *panel) {
  if (rows < HR_PANEL_ROWS)
    hr_pack_f16__portable(src, stride, rows, k, panel);
  else
    pack_halves(src, stride, k, panel);
}
void hr_pack_bf16__neon(const void *src, size_t stride, size_t rows, size_t k, void *panel) {
  if (rows < HR_PANEL_ROWS)
    hr_pack_bf16__portable(src, stride, rows, k, panel);
  else
    pack_halves(src, stride, k, panel);
}

/* A group of columns is a word: blocks are transposed by fours of both. */
void hr_pack_q8__neon(const void *src, size_t stride, size_t rows, size_t k, void *panel) {
  if (rows < HR_PANEL_ROWS) {
    hr_pack_q8__portable(src, stride, rows, k, panel);
    return;
  }
  uint8_t *out = panel;
  for (size_t b = 0; b < hr_q8_blocks(k); b++) {
    const uint8_t *block = (const uint8_t *)src + b * sizeof(hr_q8_file_block);
    uint8_t *w = out + hr_q8_weights_at(b);
    for (size_t r = 0; r < HR_PANEL_ROWS; r++)
      memcpy(out + hr_q8_scales_at(b) + r * 2, block + r * stride, 2);
    for (size_t r = 0; r < HR_PANEL_ROWS; r += 4)
      for (size_t half = 0; half < 2; half++)
        transpose4(block + r * stride + 2 + 16 * half, stride, w + half * 256 + r * 4, 64);
  }
  size_t nb = hr_q8_blocks(k);
  if (nb & 1) memset(out + hr_q8_scales_at(nb), 0, HR_Q8_SCALES_BYTES / 2);
}
