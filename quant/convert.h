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
  size_t run, step; /* rows lie in runs of so many, one every step outputs; 0: one after another */
  bool transposed;  /* stored [inputs][outputs]; float formats only */
} hr_panel_source;

/* Bytes of scratch that hr_pack_panel needs for rows of k columns. */
size_t hr_panel_scratch_bytes(size_t k);

/* Packs outputs row..row + rows (at most 16) into one panel, converting where
 * the panel's type is another than the file's: to f16 by rounding to nearest
 * even, to q8 exactly where the format allows it (hr_format_info.to_q8), from other
 * block formats by hr_quantize_block_best, from floats by hr_quantize_block. False
 * when a value is NaN or infinite or does not fit the type; *bad_row is then its output. */
bool hr_pack_panel(const hr_kernels *kernels, const hr_panel_source *from, size_t row, size_t rows,
                   size_t k, hr_panel_type type, void *scratch, void *panel, size_t *bad_row);

/* Output `row` of the tensor (row 0 is first_row), k values widened. */
void hr_source_row(const hr_panel_source *from, size_t row, size_t k, float *out);
/* Row `row` out of panels of rows of k columns: the values that products use. */
void hr_panel_row(hr_panel_type type, const void *panels, size_t k, size_t row, float *out);

/* 32 values as a Q8_0 file holds them: s = largest magnitude / 127, scale = s
 * rounded to fp16, q = round(x * (1 / s)), halves away from zero; zeros where the
 * scale rounds to zero. False when a value is NaN or infinite, or the scale does
 * not fit fp16. */
bool hr_quantize_block(const float *x, hr_q8_file_block *block);

/* Scales to try for a block: the largest magnitude becomes 128, ..., fewest steps. */
typedef struct hr_scale_search {
  float fewest;   /* 64 to 127 */
  unsigned tries; /* 2 to HR_MOST_TRIES */
} hr_scale_search;
enum { HR_MOST_TRIES = 72 };

/* The value of largest magnitude of a block, the first of equals; NaN when one is NaN. */
float hr_block_extreme(const float *x);
/* Scale number `try` (from 0) for a block of that extreme, as fp16: infinite where it does
 * not fit, zero where it is too small. */
uint16_t hr_search_scale(float extreme, hr_scale_search search, unsigned try);

/* The same with the scale, of those tried, of least sum of weight * error^2; all
 * weights 1 where weight (32 values, none negative) is NULL. Scales may be negative:
 * the largest magnitude goes where int8 has -128. */
bool hr_quantize_block_best(const hr_kernels *kernels, const float *x, const float *weight,
                            hr_scale_search search, hr_q8_file_block *block);

/* To nearest even within -128..127; x below 2^22 in magnitude. */
static inline float hr_round_to_int8(float x) {
  float q = (x + 0x1.8p23f) - 0x1.8p23f;
  q = q > -128.0f ? q : -128.0f; /* a NaN too */
  return q < 127.0f ? q : 127.0f;
}

#endif
