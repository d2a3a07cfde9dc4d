/* SPDX-License-Identifier: MIT
 * Private to quant/: the formats that hold several values under one scale. */
#ifndef HR_QUANT_BLOCK_FORMATS_H
#define HR_QUANT_BLOCK_FORMATS_H

#include "kernels/layout.h"

/* Values of count elements, as hr_format_info.widen. */
void hr_widen_q4_0(const void *src, float *dst, size_t count);
void hr_widen_q4_1(const void *src, float *dst, size_t count);
void hr_widen_q5_0(const void *src, float *dst, size_t count);
void hr_widen_q5_1(const void *src, float *dst, size_t count);
void hr_widen_q8_0(const void *src, float *dst, size_t count);
void hr_widen_q2_k(const void *src, float *dst, size_t count);
void hr_widen_q3_k(const void *src, float *dst, size_t count);
void hr_widen_q4_k(const void *src, float *dst, size_t count);
void hr_widen_q5_k(const void *src, float *dst, size_t count);
void hr_widen_q6_k(const void *src, float *dst, size_t count);
void hr_widen_iq4_nl(const void *src, float *dst, size_t count);

/* The same values as int8 blocks, for the formats whose value is an fp16 scale
 * times a whole number: nothing is lost. */
void hr_q8_from_q4_0(const void *src, hr_q8_file_block *dst, size_t count);
void hr_q8_from_q5_0(const void *src, hr_q8_file_block *dst, size_t count);
void hr_q8_from_iq4_nl(const void *src, hr_q8_file_block *dst, size_t count);

#endif
