/* SPDX-License-Identifier: MIT
 * Rows of a file's tensor into panels of the type wanted. */
#ifndef HR_QUANT_CONVERT_H
#define HR_QUANT_CONVERT_H

#include "kernels/kernels.h"
#include "quant/formats.h"

/* Where the rows (outputs) of a matrix are. */
typedef struct hr_panel_source {
  hr_format format;
  const void *data;
  size_t columns;   /* of the tensor as stored */
  size_t first_row; /* output that counts as row 0 */
  bool transposed;  /* stored [inputs][outputs]; float formats only */
} hr_panel_source;

/* Bytes of scratch that hr_pack_panel needs for rows of k columns. */
size_t hr_panel_scratch_bytes(size_t k);

/* Packs outputs row..row + rows (at most 16) into one panel, converting where
 * the panel's type is another than the file's: to f16 by rounding to nearest
 * even, to q8 by the blocks of hr_quantize_block. False when a finite value does
 * not fit fp16; *bad_row is then the output that holds it. */
bool hr_pack_panel(const hr_kernels *kernels, const hr_panel_source *from, size_t row, size_t rows,
                   size_t k, hr_panel_type type, void *scratch, void *panel, size_t *bad_row);

/* 32 values as a Q8_0 file holds them: scale = largest magnitude / 127 rounded
 * to fp16, q = round(x * (127 / largest)), halves away from zero. */
void hr_quantize_block(const float *x, hr_q8_file_block *block);

#endif
