/* SPDX-License-Identifier: MIT
 * What the int8 products of all three tiers share. */
#ifndef HR_KERNELS_NEON_Q8_H
#define HR_KERNELS_NEON_Q8_H

#include "kernels/neon/neon_tile.h"

/* The parts of one quantized row. */
typedef struct hr_neon_q8_row {
  const int8_t *q;
  const float *scales;
} hr_neon_q8_row;

static inline hr_neon_q8_row hr_neon_q8_row_at(const hr_product *p, size_t row) {
  const char *x = hr_neon_row(p, row);
  return (hr_neon_q8_row){(const int8_t *)x,
                          (const float *)(const void *)(x + hr_q8_row_scales_at(p->k))};
}

static inline const char *hr_neon_q8_panel(const hr_product *p, size_t first) {
  return (const char *)p->panels + first / HR_PANEL_ROWS * hr_panel_bytes(HR_PANEL_Q8, p->k);
}

/* Integer sums that start from these bits, read as floats, are MAGIC + sum: a
 * block's sum stays below 2^22, half of what the mantissa has room for. One
 * exact subtraction then converts, where scvtf occupies two slots of one pipe. */
#define HR_NEON_MAGIC 0x1.8p23f
#define HR_NEON_MAGIC_BITS 0x4b400000

#endif
