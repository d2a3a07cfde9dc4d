/* SPDX-License-Identifier: MIT
 * How weights, quantized activations and the KV cache lie in memory. One
 * layout serves every back-end.
 *
 * Weights: panels of 16 output rows. Rows past the last one are zero.
 *   f32, f16, bf16   element (row r, column k) of a panel at k * 16 + r;
 *                    columns are never padded.
 *   q8               columns in blocks of 32, zero-padded; blocks in pairs of
 *                    1,088 bytes (17 cache lines):
 *                      64 bytes   16 fp16 scales of the first block, 16 of the second
 *                      512 bytes  first block: 8 groups of 64 bytes; a group is
 *                                 16 rows x 4 columns, byte r * 4 + (k mod 4)
 *                      512 bytes  second block
 *                    A last single block takes the first 576 bytes of a pair.
 *
 * Quantized activations, one row of K columns in nb = ceil(K / 32) blocks:
 *   nb * 32 int8       values, -127..127, zeros past K
 *   nb * 4  float      scales
 *   nb * 4  int32      offsets: -128 * sum of the block's values, the start
 *                      value for kernels that use the weights as w + 128
 *   rounded up to 64 bytes.
 *
 * KV cache of one text and one key/value head, width d, room for P positions (a multiple of
 * 64): blocks of 256 positions, the last of what is left, one behind the other, so that all is
 * one stream for the CPU to read ahead in. A block of n positions:
 *   keys     n * d elements, panels of 64 positions: element (position j, i) at
 *            (j / 64) * 64 d + i * 64 + j mod 64
 *   values   n rows of d rounded up to 16; the rest of a row is zero
 */
#ifndef HR_KERNELS_LAYOUT_H
#define HR_KERNELS_LAYOUT_H

#include <stddef.h>
#include <stdint.h>

enum {
  HR_PANEL_LAYOUT = 1,  /* number of this layout of weights, which packed files carry */
  HR_PANEL_ROWS = 16,   /* output rows of a weight panel */
  HR_KEY_PANEL = 64,    /* keys of a key panel */
  HR_Q8_BLOCK = 32,     /* columns that share a scale */
  HR_Q8_GROUP = 4,      /* columns of a group */
  HR_CHAIN = 512,       /* columns of one fma chain in the float products */
  HR_KEY_BLOCK = 256,   /* keys of one attention block */
  HR_LANES = 16         /* partial sums of a reduction */
};

/* Types that a panel can hold. */
typedef enum hr_panel_type {
  HR_PANEL_F32,
  HR_PANEL_F16,
  HR_PANEL_BF16,
  HR_PANEL_Q8,
  HR_PANEL_TYPES
} hr_panel_type;

/* A block as a Q8_0 file holds it: value = scale * q. */
typedef struct hr_q8_file_block {
  uint16_t scale; /* fp16 */
  int8_t q[HR_Q8_BLOCK];
} hr_q8_file_block;
_Static_assert(sizeof(hr_q8_file_block) == 34, "a Q8_0 block is 34 bytes");

enum { HR_Q8_SCALES_BYTES = 64, HR_Q8_BLOCK_BYTES = 512, HR_Q8_PAIR_BYTES = 1088 };

static inline size_t hr_round_up(size_t n, size_t step) {
  return (n + step - 1) / step * step;
}

static inline size_t hr_q8_blocks(size_t k) {
  return (k + HR_Q8_BLOCK - 1) / HR_Q8_BLOCK;
}

/* Bytes of one panel of k columns. Fits when 64 * (k + 64) does. */
static inline size_t hr_panel_bytes(hr_panel_type type, size_t k) {
  switch (type) {
    case HR_PANEL_F32: return k * HR_PANEL_ROWS * 4;
    case HR_PANEL_F16:
    case HR_PANEL_BF16: return k * HR_PANEL_ROWS * 2;
    case HR_PANEL_Q8: {
      size_t nb = hr_q8_blocks(k);
      return nb / 2 * HR_Q8_PAIR_BYTES + (nb & 1) * (HR_Q8_SCALES_BYTES + HR_Q8_BLOCK_BYTES);
    }
    case HR_PANEL_TYPES: break;
  }
  return 0;
}

/* Where block b of a q8 panel has its 512 bytes of weights and its 16 scales. */
static inline size_t hr_q8_weights_at(size_t b) {
  return b / 2 * HR_Q8_PAIR_BYTES + HR_Q8_SCALES_BYTES + (b & 1) * HR_Q8_BLOCK_BYTES;
}
static inline size_t hr_q8_scales_at(size_t b) {
  return b / 2 * HR_Q8_PAIR_BYTES + (b & 1) * (HR_Q8_SCALES_BYTES / 2);
}

/* Bytes of one quantized row, and where its parts begin. */
static inline size_t hr_q8_row_bytes(size_t k) {
  return hr_round_up(hr_q8_blocks(k) * (HR_Q8_BLOCK + 8), 64);
}
static inline size_t hr_q8_row_scales_at(size_t k) {
  return hr_q8_blocks(k) * HR_Q8_BLOCK;
}
static inline size_t hr_q8_row_offsets_at(size_t k) {
  return hr_q8_blocks(k) * (HR_Q8_BLOCK + 4);
}

/* The place of key j's first element among the keys of its block; the next ones follow at steps
 * of HR_KEY_PANEL. */
static inline size_t hr_key_at(size_t width, size_t j) {
  return j / HR_KEY_PANEL * HR_KEY_PANEL * width + j % HR_KEY_PANEL;
}

#endif
