/* SPDX-License-Identifier: MIT */
#include "quant/compensate.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "kernels/portable/half.h"

/* h = r r^T with r upper triangular: Cholesky's decomposition from the last column on. A
 * copy of each column goes into the unused triangle, where it lies in one piece. */
static bool factor_from_the_end(double *h, size_t k) {
  for (size_t j = k; j-- > 0;) {
    double *column = h + j * k, diagonal = column[j];
    if (!(diagonal > 0) || !isfinite(diagonal)) return false;
    column[j] = sqrt(diagonal);
    for (size_t i = 0; i < j; i++) column[i] = h[i * k + j] /= column[j];
    for (size_t i = 0; i < j; i++)
      for (size_t c = i; c < j; c++) h[i * k + c] -= column[i] * column[c];
  }
  return true;
}

/* In place: the inverse of an upper triangular matrix is one too. sum: room for k. */
static void invert_upper(double *r, size_t k, double *sum) {
  for (size_t i = k; i-- > 0;) {
    double *row = r + i * k, inverse = 1 / row[i];
    memset(sum, 0, k * sizeof *sum);
    for (size_t c = i + 1; c < k; c++)
      for (size_t j = c; j < k; j++) sum[j] += row[c] * r[c * k + j];
    row[i] = inverse;
    for (size_t j = i + 1; j < k; j++) row[j] = -inverse * sum[j];
  }
}

bool hr_compensation(double *sum, size_t k, double damp, float *u) {
  double mean = 0, *row = hr_calloc(k, sizeof *row);
  for (size_t i = 0; i < k; i++) mean += sum[i * k + i] / (double)k;
  if (!(mean > 0)) mean = 1; /* no input was ever seen: plain rounding */
  for (size_t i = 0; i < k; i++) sum[i * k + i] += damp * mean;
  bool done = row && factor_from_the_end(sum, k);
  if (done) invert_upper(sum, k, row);
  hr_free(row);
  for (size_t i = 0; i < k; i++)
    for (size_t j = 0; j < k; j++) u[i * k + j] = j < i ? 0.0f : (float)sum[i * k + j];
  return done;
}

/* The transpose is kept, which a row is multiplied with in pieces that lie together.
 * h^-1 = u^T u: u from the left, row i reading those from i on; then u^T, row i reading
 * those up to i, from the last on. */
bool hr_compensation_shift(double *drift, size_t k, const float *u, float *shift) {
  double *row = hr_calloc(k, sizeof *row);
  for (size_t i = 0; row && i < k; i++) {
    memset(row, 0, k * sizeof *row);
    for (size_t j = i; j < k; j++) {
      double a = (double)u[i * k + j];
      for (size_t c = 0; c < k; c++) row[c] += a * drift[j * k + c];
    }
    memcpy(drift + i * k, row, k * sizeof *row);
  }
  for (size_t i = k; row && i-- > 0;) {
    memset(row, 0, k * sizeof *row);
    for (size_t j = 0; j <= i; j++) {
      double a = (double)u[j * k + i];
      for (size_t c = 0; c < k; c++) row[c] += a * drift[j * k + c];
    }
    for (size_t c = 0; c < k; c++) shift[c * k + i] = (float)row[c];
  }
  bool done = row != NULL;
  hr_free(row);
  return done;
}

void hr_shift_row(float *row, size_t k, const float *shift, float *work) {
  memset(work, 0, k * sizeof *work);
  for (size_t j = 0; j < k; j++)
    for (size_t i = 0; i < k; i++) work[i] += row[j] * shift[j * k + i];
  for (size_t i = 0; i < k; i++) row[i] += work[i];
}

/* Rounds the 32 columns of a block at a scale in turn; error[i] is what column i got
 * wrong over u[i][i]. u is at the block's first row and column. Gives the sum of
 * squares: what the block adds to the error on the inputs. */
static float round_block(const float *x, const float *u, size_t k, float scale, float *error,
                         int8_t *q) {
  float left[HR_Q8_BLOCK], inverse = 1.0f / scale, sum = 0;
  memcpy(left, x, sizeof left);
  for (int i = 0; i < HR_Q8_BLOCK; i++) {
    const float *row = u + (size_t)i * k;
    float value = hr_round_to_int8(left[i] * inverse);
    q[i] = (int8_t)value;
    error[i] = (left[i] - scale * value) / row[i];
    sum += error[i] * error[i];
    for (int j = i + 1; j < HR_Q8_BLOCK; j++) left[j] -= error[i] * row[j];
  }
  return sum;
}

/* The best scale for a block; error as above. */
static bool choose_block(const float *x, const float *u, size_t k, hr_scale_search search,
                         hr_q8_file_block *block, float *error) {
  float least = INFINITY, tried[HR_Q8_BLOCK];
  int8_t q[HR_Q8_BLOCK];
  bool fits = false;
  float extreme = hr_block_extreme(x);
  *block = (hr_q8_file_block){0};
  if (!isfinite(extreme)) return false;
  for (int i = 0; i < HR_Q8_BLOCK; i++)
    error[i] = x[i] / u[(size_t)i * k + (size_t)i]; /* of zeros, where no scale is chosen */
  for (unsigned t = 0; t < search.tries; t++) {
    uint16_t half = hr_search_scale(extreme, search, t);
    if ((half & 0x7c00) == 0x7c00) continue;
    fits = true;
    if ((half & 0x7fff) == 0) continue;
    float sum = round_block(x, u, k, hr_widen_half(half), tried, q);
    if (!(sum < least)) continue;
    least = sum;
    block->scale = half;
    memcpy(block->q, q, sizeof q);
    memcpy(error, tried, sizeof tried);
  }
  return fits;
}

bool hr_quantize_row_compensated(float *x, size_t k, const float *u, hr_scale_search search,
                                 hr_q8_file_block *blocks) {
  for (size_t first = 0; first < k; first += HR_Q8_BLOCK) {
    float error[HR_Q8_BLOCK];
    const float *corner = u + first * k + first;
    if (!choose_block(x + first, corner, k, search, &blocks[first / HR_Q8_BLOCK], error))
      return false;
    for (size_t i = 0; i < HR_Q8_BLOCK; i++) {
      const float *row = u + (first + i) * k;
      for (size_t j = first + HR_Q8_BLOCK; j < k; j++) x[j] -= error[i] * row[j];
    }
  }
  return true;
}
