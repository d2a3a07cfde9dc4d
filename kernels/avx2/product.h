/* SPDX-License-Identifier: MIT
 * What all products share: the end of an output, and addresses. */
#ifndef HR_KERNELS_AVX2_PRODUCT_H
#define HR_KERNELS_AVX2_PRODUCT_H

#include "kernels/avx2/lanes.h"

/* bias, what y held, and the store of a panel's valid outputs. */
HR_INLINE void product_finish(const hr_product *p, size_t first, size_t row, lanes t) {
  size_t n = p->n - first;
  float *y = p->y + row * p->y_stride + first;
  if (p->bias) t = lanes_add(t, lanes_load_up_to(p->bias + first, n));
  if (p->add) t = lanes_add(lanes_load_up_to(y, n), t);
  lanes_store_up_to(y, t, n);
}

/* The places of a tile's outputs, fetched for writing while its sums are made: a store that
 * misses holds up those behind it. */
HR_INLINE void product_reach(const hr_product *p, size_t panels, size_t rows, size_t first,
                             size_t row) {
  for (size_t r = row; r < row + rows; r++)
    for (size_t i = 0; i < panels; i++)
      __builtin_prefetch(p->y + r * p->y_stride + first + i * HR_PANEL_ROWS, 1, 3);
}

HR_INLINE const char *product_panel(const hr_product *p, hr_panel_type type, size_t first) {
  return (const char *)p->panels + first / HR_PANEL_ROWS * hr_panel_bytes(type, p->k);
}
HR_INLINE const char *product_row(const hr_product *p, size_t row) {
  return (const char *)p->x + row * p->x_stride;
}
HR_INLINE size_t product_panels(const hr_product *p) {
  return (p->n + HR_PANEL_ROWS - 1) / HR_PANEL_ROWS;
}

#endif
