/* SPDX-License-Identifier: MIT
 * Rounding that makes good its own errors: what one column of a matrix gets wrong on the
 * inputs of a text is taken off by the columns that are still to be rounded (Frantar et
 * al., "GPTQ", arXiv 2210.17323, after "Optimal Brain Surgeon"). */
#ifndef HR_QUANT_COMPENSATE_H
#define HR_QUANT_COMPENSATE_H

#include "quant/convert.h"

/* From sum [k][k], that over rows x of x x^T (its upper triangle counts), to the upper
 * triangular u [k][k] with h^-1 = u^T u, where h is the sum with `damp` times the mean of
 * its diagonal added to the diagonal. sum is overwritten. A column whose input was always
 * zero is left to itself. False when h is not positive definite or not finite, or memory
 * is out. */
bool hr_compensation(double *sum, size_t k, double damp, float *u);

/* What inputs that are not those of the model any more (x~ in place of x, for what is
 * before them has been rounded already) ask of a matrix: from drift [k][k], the sum of
 * x~ (x - x~)^T, and u of the sum of x~ x~^T, shift [k][k] such that w + w shift gives for
 * x~ what w gives for x, as nearly as least squares can, w being a row. drift is
 * overwritten. False when memory is out. */
bool hr_compensation_shift(double *drift, size_t k, const float *u, float *shift);

/* Rounds one row of k values (a multiple of 32) to int8 blocks so that the error on the
 * inputs is small. Each block takes, of the scales tried, the one for which the rounding
 * of its columns in turn adds least to that error. x is overwritten. False as
 * hr_quantize_block is, and when compensation has led to a value that is not finite. */
bool hr_quantize_row_compensated(float *x, size_t k, const float *u, hr_scale_search search,
                                 hr_q8_file_block *blocks);

/* row += row shift, with shift as above; work: room for k. */
void hr_shift_row(float *row, size_t k, const float *shift, float *work);

#endif
