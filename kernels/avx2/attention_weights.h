/* SPDX-License-Identifier: MIT
 * Attention's weights, from scores to exponentials, and the merging of blocks, for the tier whose
 * file includes attention_kernels.h, where WEIGH is declared, and says KERNEL(slot). Arithmetic:
 * kernels/kernels.h. */
#include "kernels/avx2/elementary.h"

/* |position - j| of sixteen keys from j on. */
HR_INLINE lanes distances(int32_t position, size_t j) {
  const int32_t near = 1 << 30;
  if (position > -near && position < near && j < (size_t)near)
    return lanes_of_ints(ints_abs(ints_sub(ints_set(position - (int32_t)j), ints_count())));
  float d[16];
  for (size_t lane = 0; lane < 16; lane++) {
    int64_t distance = (int64_t)position - (int64_t)(j + lane);
    d[lane] = (float)(distance < 0 ? -distance : distance);
  }
  return lanes_load(d);
}

/* Cap and ALiBi. */
HR_INLINE void bend_scores(const hr_attend *a, const hr_query *query, size_t base, size_t first,
                           size_t end, float *s) {
  lanes cap = lanes_set(a->cap), slope = lanes_set(query->slope);
  for (size_t j = first / 16 * 16; j < end; j += 16) {
    lanes t = lanes_load(s + j);
    if (a->cap != 0.0f) t = lanes_mul(cap, lanes_tanh(lanes_div(t, cap)));
    lanes_store(s + j, lanes_fnma(slope, distances(query->position, base + j), t));
  }
}

/* Sixteen scores from j on: all, or those in first .. end - 1. */
HR_INLINE lanes largest_of(lanes m, const float *s, size_t j, bool all, size_t first, size_t end) {
  lanes t = lanes_load(s + j);
  if (!all) t = lanes_select(mask_between(first, end, j), t, lanes_set(-__builtin_inff()));
  return lanes_max(t, m);
}

/* The largest score that a query sees. */
static float largest_score(size_t first, size_t end, const float *s) {
  lanes m = lanes_set(-__builtin_inff());
  size_t j = first / 16 * 16;
  if (j < first) m = largest_of(m, s, j, false, first, end), j += 16;
  for (; j + 16 <= end; j += 16) m = largest_of(m, s, j, true, first, end);
  if (j < end) m = largest_of(m, s, j, false, first, end);
  return lanes_fold_max(m);
}

/* p_j of some sixteens of scores that are all seen, and the sum. */
HR_INLINE lanes soften_all(lanes sum, lanes largest, float *s, size_t count) {
  lanes e[EXPS];
  HR_UNROLL for (size_t i = 0; i < count; i++) e[i] = lanes_sub(lanes_load(s + i * 16), largest);
  lanes_exps_below(count, e);
  HR_UNROLL for (size_t i = 0; i < count; i++) {
    lanes_store(s + i * 16, e[i]);
    sum = lanes_add(sum, e[i]);
  }
  return sum;
}

/* The same of sixteen from j on of which first .. end - 1 are seen. A lane of the sum is never
 * -0, so that adding the +0 of a key outside the range leaves it as it is. */
HR_INLINE lanes soften_part(lanes sum, lanes largest, float *s, size_t j, size_t first,
                            size_t end) {
  lanes e = lanes_exp_below(lanes_sub(lanes_load(s + j), largest));
  lanes_store(s + j, e);
  return lanes_add(sum, lanes_keep(mask_between(first, end, j), e));
}

/* From scores to p_j and their sum. */
static float soften(size_t first, size_t end, float largest, float *s) {
  lanes m = lanes_set(largest), sum = lanes_set(0.0f);
  size_t j = first / 16 * 16;
  if (j < first) sum = soften_part(sum, m, s, j, first, end), j += 16;
  for (; j + EXPS * 16 <= end; j += EXPS * 16) sum = soften_all(sum, m, s + j, EXPS);
  for (; j + 16 <= end; j += 16) sum = soften_all(sum, m, s + j, 1);
  if (j < end) sum = soften_part(sum, m, s, j, first, end);
  return lanes_fold_add(sum);
}

void WEIGH(const hr_attend *a, size_t rows, const hr_query *const *query, const size_t *first,
           const size_t *end, float (*s)[HR_KEY_BLOCK]) {
  size_t base = (size_t)a->block * HR_KEY_BLOCK;
  for (size_t r = 0; r < rows; r++) {
    if (a->cap != 0.0f || query[r]->slope != 0.0f)
      bend_scores(a, query[r], base, first[r], end[r], s[r]);
    *query[r]->max = largest_score(first[r], end[r], s[r]);
  }
  for (size_t r = 0; r < rows; r++)
    *query[r]->sum = soften(first[r], end[r], *query[r]->max, s[r]);
}

/* Up to sixteen queries: the factors of each, then its elements. */
HR_INLINE void merge_some(size_t queries, float *m, float *l, float *o, const float *bm,
                          const float *bl, const float *bo, size_t n) {
  _Alignas(64) float a[16], b[16];
  lanes running = lanes_load_up_to(m, queries), later = lanes_load_up_to(bm, queries);
  lanes larger = lanes_max(later, running);
  lanes by_a = lanes_exp_below(lanes_sub(running, larger));
  lanes by_b = lanes_exp_below(lanes_sub(later, larger));
  lanes_store(a, by_a);
  lanes_store(b, by_b);
  lanes_store_up_to(m, larger, queries);
  lanes sum = lanes_mul(lanes_load_up_to(l, queries), by_a);
  lanes_store_up_to(l, lanes_fma(lanes_load_up_to(bl, queries), by_b, sum), queries);
  for (size_t q = 0; q < queries; q++, o += n, bo += n) {
    by_a = lanes_spread(a + q);
    by_b = lanes_spread(b + q);
    for (size_t i = 0; i < n; i += 16)
      lanes_store(o + i, lanes_fma(lanes_load(bo + i), by_b, lanes_mul(lanes_load(o + i), by_a)));
  }
}

void KERNEL(attend_merge)(size_t queries, float *m, float *l, float *o, const float *bm,
                          const float *bl, const float *bo, size_t n) {
  for (size_t q = 0, some; q < queries; q += some) {
    some = queries - q < 16 ? queries - q : 16;
    merge_some(some, m + q, l + q, o + q * n, bm + q, bl + q, bo + q * n, n);
  }
}

/* Up to sixteen later blocks: all their factors at once, because only the maxima wait for each
 * other. */
HR_INLINE void join_some(size_t later, float *m, float *l, float *o, const float *bm,
                         const float *bl, const float *bo, size_t n) {
  _Alignas(64) float running[16] = {0}, larger[16] = {0}, a[16], b[16];
  float most = *m, sum = *l;
  for (size_t i = 0; i < later; i++) {
    running[i] = most;
    most = bm[i] > most ? bm[i] : most;
    larger[i] = most;
  }
  lanes top = lanes_load(larger);
  lanes_store(a, lanes_exp_below(lanes_sub(lanes_load(running), top)));
  lanes_store(b, lanes_exp_below(lanes_sub(lanes_load_up_to(bm, later), top)));
  for (size_t i = 0; i < later; i++) sum = __builtin_fmaf(bl[i], b[i], sum * a[i]);
  *m = most;
  *l = sum;
  for (size_t j = 0; j < n; j += 16) {
    lanes c = lanes_load(o + j);
    for (size_t i = 0; i < later; i++)
      c = lanes_fma(lanes_load(bo + i * n + j), lanes_spread(b + i),
                    lanes_mul(c, lanes_spread(a + i)));
    lanes_store(o + j, c);
  }
}

void KERNEL(attend_join)(size_t blocks, float *m, float *l, float *o, size_t n) {
  for (size_t b = 1, some; b < blocks; b += some) {
    some = blocks - b < 16 ? blocks - b : 16;
    join_some(some, m, l, o, m + b, l + b, o + b * n, n);
  }
}
