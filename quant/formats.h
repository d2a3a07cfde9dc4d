/* SPDX-License-Identifier: MIT
 * The number formats of tensors in files: a row of a table each. */
#ifndef HR_QUANT_FORMATS_H
#define HR_QUANT_FORMATS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/layout.h"

/* GGUF's numbers are in the table, not here. */
typedef enum hr_format {
  HR_FORMAT_F32,
  HR_FORMAT_F16,
  HR_FORMAT_BF16,
  HR_FORMAT_Q8_0,
  HR_FORMAT_Q4_0,
  HR_FORMAT_Q4_1,
  HR_FORMAT_Q5_0,
  HR_FORMAT_Q5_1,
  HR_FORMAT_Q2_K,
  HR_FORMAT_Q3_K,
  HR_FORMAT_Q4_K,
  HR_FORMAT_Q5_K,
  HR_FORMAT_Q6_K,
  HR_FORMAT_IQ4_NL,
  HR_FORMAT_COUNT
} hr_format;

typedef struct hr_format_info {
  const char *name;      /* "Q8_0" */
  uint32_t gguf_type;    /* the number in a GGUF file */
  size_t block_elements; /* a row's length is a multiple of this */
  size_t block_bytes;
  /* Widens count elements (a multiple of block_elements) to float: the value that
   * the format defines, in fp32. src needs no alignment. */
  void (*widen)(const void *src, float *dst, size_t count);
  /* The same values as int8 blocks; NULL where these can't hold them exactly. */
  void (*to_q8)(const void *src, hr_q8_file_block *dst, size_t count);
} hr_format_info;

const hr_format_info *hr_format_get(hr_format format);
/* false when no format has that number; *name is then what others call it ("IQ4_XS") or NULL. */
bool hr_format_from_gguf(uint32_t gguf_type, hr_format *format, const char **name);

/* All formats, for messages about others. */
#define HR_FORMAT_NAMES \
  "F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K or IQ4_NL"

/* Bytes of count elements; false when count is no multiple of the block or the size overflows. */
bool hr_format_bytes(hr_format format, size_t count, size_t *bytes);

#endif
