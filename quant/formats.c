/* SPDX-License-Identifier: MIT */
#include "quant/formats.h"

#include <string.h>

#include "kernels/portable/half.h"
#include "quant/block_formats.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "files are little-endian and are used in place: this machine would have to swap them"
#endif

static void widen_f32(const void *src, float *dst, size_t count) {
  if (count) memcpy(dst, src, count * sizeof *dst);
}

static void widen_f16(const void *src, float *dst, size_t count) {
  const unsigned char *from = src;
  for (size_t i = 0; i < count; i++) {
    uint16_t half;
    memcpy(&half, from + 2 * i, sizeof half);
    dst[i] = hr_widen_half(half);
  }
}

static void widen_bf16(const void *src, float *dst, size_t count) {
  const unsigned char *from = src;
  for (size_t i = 0; i < count; i++) {
    uint16_t top;
    memcpy(&top, from + 2 * i, sizeof top);
    dst[i] = hr_widen_brain(top);
  }
}

static void copy_q8_0(const void *src, hr_q8_file_block *dst, size_t count) {
  memcpy(dst, src, count / HR_Q8_BLOCK * sizeof *dst);
}

static const hr_format_info formats[HR_FORMAT_COUNT] = {
    [HR_FORMAT_F32] = {"F32", 0, 1, 4, widen_f32, NULL},
    [HR_FORMAT_F16] = {"F16", 1, 1, 2, widen_f16, NULL},
    [HR_FORMAT_BF16] = {"BF16", 30, 1, 2, widen_bf16, NULL},
    [HR_FORMAT_Q8_0] = {"Q8_0", 8, 32, 34, hr_widen_q8_0, copy_q8_0},
    [HR_FORMAT_Q4_0] = {"Q4_0", 2, 32, 18, hr_widen_q4_0, hr_q8_from_q4_0},
    [HR_FORMAT_Q4_1] = {"Q4_1", 3, 32, 20, hr_widen_q4_1, NULL},
    [HR_FORMAT_Q5_0] = {"Q5_0", 6, 32, 22, hr_widen_q5_0, hr_q8_from_q5_0},
    [HR_FORMAT_Q5_1] = {"Q5_1", 7, 32, 24, hr_widen_q5_1, NULL},
    [HR_FORMAT_Q2_K] = {"Q2_K", 10, 256, 84, hr_widen_q2_k, NULL},
    [HR_FORMAT_Q3_K] = {"Q3_K", 11, 256, 110, hr_widen_q3_k, NULL},
    [HR_FORMAT_Q4_K] = {"Q4_K", 12, 256, 144, hr_widen_q4_k, NULL},
    [HR_FORMAT_Q5_K] = {"Q5_K", 13, 256, 176, hr_widen_q5_k, NULL},
    [HR_FORMAT_Q6_K] = {"Q6_K", 14, 256, 210, hr_widen_q6_k, NULL},
    [HR_FORMAT_IQ4_NL] = {"IQ4_NL", 20, 32, 18, hr_widen_iq4_nl, hr_q8_from_iq4_nl},
};

/* What the numbers of GGUF are called, for messages. */
static const char *const gguf_names[] = {
    [0] = "F32",         [1] = "F16",         [2] = "Q4_0",        [3] = "Q4_1",
    [4] = "Q4_2",        [5] = "Q4_3",        [6] = "Q5_0",        [7] = "Q5_1",
    [8] = "Q8_0",        [9] = "Q8_1",        [10] = "Q2_K",       [11] = "Q3_K",
    [12] = "Q4_K",       [13] = "Q5_K",       [14] = "Q6_K",       [15] = "Q8_K",
    [16] = "IQ2_XXS",    [17] = "IQ2_XS",     [18] = "IQ3_XXS",    [19] = "IQ1_S",
    [20] = "IQ4_NL",     [21] = "IQ3_S",      [22] = "IQ2_S",      [23] = "IQ4_XS",
    [24] = "I8",         [25] = "I16",        [26] = "I32",        [27] = "I64",
    [28] = "F64",        [29] = "IQ1_M",      [30] = "BF16",       [31] = "Q4_0_4_4",
    [32] = "Q4_0_4_8",   [33] = "Q4_0_8_8",   [34] = "TQ1_0",      [35] = "TQ2_0",
    [36] = "IQ4_NL_4_4", [37] = "IQ4_NL_4_8", [38] = "IQ4_NL_8_8", [39] = "MXFP4",
    [40] = "NVFP4",
};

const hr_format_info *hr_format_get(hr_format format) {
  return &formats[format];
}

bool hr_format_from_gguf(uint32_t gguf_type, hr_format *format, const char **name) {
  for (unsigned i = 0; i < HR_FORMAT_COUNT; i++) {
    if (formats[i].gguf_type != gguf_type) continue;
    *format = (hr_format)i;
    if (name) *name = formats[i].name;
    return true;
  }
  if (name)
    *name = gguf_type < sizeof gguf_names / sizeof *gguf_names ? gguf_names[gguf_type] : NULL;
  return false;
}

bool hr_format_bytes(hr_format format, size_t count, size_t *bytes) {
  const hr_format_info *info = &formats[format];
  if (count % info->block_elements) return false;
  return !__builtin_mul_overflow(count / info->block_elements, info->block_bytes, bytes);
}
