/* SPDX-License-Identifier: MIT
 * Rows as files hold them into panels. Sources need no alignment. */
#include "kernels/portable/portable.h"

#include <string.h>

static void pack_elements(const void *src, size_t stride, size_t rows, size_t k, void *panel,
                          size_t size) {
  unsigned char *out = panel;
  for (size_t i = 0; i < k; i++)
    for (size_t r = 0; r < HR_PANEL_ROWS; r++, out += size) {
      if (r < rows)
        memcpy(out, (const unsigned char *)src + r * stride + i * size, size);
      else
        memset(out, 0, size);
    }
}

void hr_pack_f32__portable(const void *src, size_t stride, size_t rows, size_t k, void *panel) {
  pack_elements(src, stride, rows, k, panel, 4);
}
void hr_pack_f16__portable(const void *src, size_t stride, size_t rows, size_t k, void *panel) {
  pack_elements(src, stride, rows, k, panel, 2);
}
void hr_pack_bf16__portable(const void *src, size_t stride, size_t rows, size_t k, void *panel) {
  pack_elements(src, stride, rows, k, panel, 2);
}

/* From rows of Q8_0 blocks; k is a multiple of 32, as in a Q8_0 file. */
void hr_pack_q8__portable(const void *src, size_t stride, size_t rows, size_t k, void *panel) {
  unsigned char *out = panel;
  memset(panel, 0, hr_panel_bytes(HR_PANEL_Q8, k));
  for (size_t r = 0; r < rows; r++) {
    const unsigned char *row = (const unsigned char *)src + r * stride;
    for (size_t b = 0; b < hr_q8_blocks(k); b++) {
      const unsigned char *block = row + b * sizeof(hr_q8_file_block);
      memcpy(out + hr_q8_scales_at(b) + r * 2, block, 2);
      for (size_t g = 0; g < HR_Q8_BLOCK / HR_Q8_GROUP; g++)
        memcpy(out + hr_q8_weights_at(b) + (g * HR_PANEL_ROWS + r) * HR_Q8_GROUP,
               block + 2 + g * HR_Q8_GROUP, HR_Q8_GROUP);
    }
  }
}
