/* SPDX-License-Identifier: MIT
 * Attention of queries to one block of keys and values. Scores have a lane for
 * each key, value sums one for each element: both are chains over columns, as
 * in a matrix product. Four queries share what is read from the cache. */
#include "kernels/neon/neon.h"
#include "kernels/neon/neon_elementary.h"

enum { TOGETHER = 4 };

/* Visible keys, counted from the block's start. */
typedef struct range {
  size_t first, end;
} range;

static range visible(const hr_attend *a, const hr_query *query) {
  size_t base = (size_t)a->block * HR_KEY_BLOCK;
  range v = {query->first > base ? query->first - base : 0,
             query->end > base ? query->end - base : 0};
  if (v.end > HR_KEY_BLOCK) v.end = HR_KEY_BLOCK;
  return v;
}

/* Softcap and ALiBi bias of 16 scores. */
static void bend(const hr_attend *a, const hr_query *query, size_t position, float *s) {
  float distance[HR_LANES];
  for (size_t lane = 0; lane < HR_LANES; lane++) {
    int64_t d = (int64_t)query->position - (int64_t)(position + lane);
    distance[lane] = (float)(d < 0 ? -d : d);
  }
  for (int i = 0; i < HR_QUADS; i++) {
    float32x4_t t = vld1q_f32(s + 4 * i);
    if (a->cap != 0.0f)
      t = vmulq_n_f32(hr_neon_tanh(vdivq_f32(t, vdupq_n_f32(a->cap))), a->cap);
    t = vfmaq_n_f32(t, vld1q_f32(distance + 4 * i), -query->slope);
    vst1q_f32(s + 4 * i, t);
  }
}

/* Scores of some sixteens of a panel's keys, from key j of the block on. */
HR_INLINE void score_sixteens(const hr_attend *a, hr_panel_type type, int sixteens, int rows,
                              const float *const *q, size_t j, float (*s)[HR_KEY_BLOCK]) {
  size_t at = hr_key_at(a->width, j);
  hr_neon_columns m = {(const char *)a->keys + at * (type == HR_PANEL_F32 ? 4 : 2), HR_KEY_PANEL,
                       HR_LANES};
  float32x4_t c[TOGETHER][HR_QUADS];
  HR_UNROLL for (int t = 0; t < sixteens * rows; t++)
    HR_UNROLL for (int i = 0; i < HR_QUADS; i++) c[t][i] = vdupq_n_f32(0.0f);
  hr_neon_chain(type, sixteens, rows, m, q, a->width, c);
  HR_UNROLL for (int p = 0; p < sixteens; p++)
    HR_UNROLL for (int r = 0; r < rows; r++)
      HR_UNROLL for (int i = 0; i < HR_QUADS; i++)
        vst1q_f32(&s[r][j + (size_t)(HR_LANES * p + 4 * i)], c[p * rows + r][i]);
}

/* Scores of the sixteens that hold the keys of all. */
HR_INLINE void scores(const hr_attend *a, hr_panel_type type, int rows, const hr_query *query,
                      range all, float (*s)[HR_KEY_BLOCK]) {
  const float *q[TOGETHER];
  size_t begin = all.first / HR_LANES * HR_LANES;
  size_t j = rows == 1 ? all.first / HR_KEY_PANEL * HR_KEY_PANEL : begin;
  HR_UNROLL for (int r = 0; r < rows; r++) q[r] = query[r].q;
  for (; rows == 1 && j + 48 < all.end; j += 64)
    score_sixteens(a, type, TOGETHER / rows, rows, q, j, s);
  for (; j < all.end; j += HR_LANES) score_sixteens(a, type, 1, rows, q, j, s);
  for (int r = 0; r < rows; r++) {
    if (a->cap == 0.0f && hr_float_bits(query[r].slope) == 0) continue; /* adds -0 to each */
    for (j = begin; j < all.end; j += HR_LANES)
      bend(a, &query[r], (size_t)a->block * HR_KEY_BLOCK + j, s[r] + j);
  }
}

/* Scores of one query to exponentials. What the sixteens hold besides its visible
 * keys becomes -infinity, whose exponential adds +0 to the sum (or NaN, when
 * the sum is NaN anyway). */
static void softmax(const hr_query *query, range v, float *s) {
  size_t begin = v.first / HR_LANES * HR_LANES, end = hr_round_up(v.end, HR_LANES);
  float32x4_t lanes[HR_QUADS];
  for (size_t j = begin; j < v.first; j++) s[j] = -__builtin_inff();
  for (size_t j = v.end; j < end; j++) s[j] = -__builtin_inff();
  hr_neon_exponentials(s + begin, end - begin, query->max, lanes);
  *query->sum = hr_neon_fold16(lanes);
}

/* Adds the values of keys v to the queries' outputs, panels x 16 elements from i on. */
HR_INLINE void value_columns(const hr_attend *a, hr_panel_type type, int panels, int rows, range v,
                             const hr_query *query, size_t i, float (*s)[HR_KEY_BLOCK]) {
  size_t padded = hr_round_up(a->width, HR_LANES);
  size_t at = v.first * padded + i;
  hr_neon_columns m = {(const char *)a->values + at * (type == HR_PANEL_F32 ? 4 : 2), padded,
                       HR_LANES};
  const float *p[TOGETHER];
  float32x4_t c[TOGETHER][HR_QUADS];
  HR_UNROLL for (int r = 0; r < rows; r++) p[r] = s[r] + v.first;
  HR_UNROLL for (int t = 0; t < panels * rows; t++)
    HR_UNROLL for (int l = 0; l < HR_QUADS; l++)
      c[t][l] = vld1q_f32(query[t % rows].out + i + HR_LANES * (t / rows) + 4 * l);
  hr_neon_chain(type, panels, rows, m, p, v.end - v.first, c);
  HR_UNROLL for (int t = 0; t < panels * rows; t++)
    HR_UNROLL for (int l = 0; l < HR_QUADS; l++)
      vst1q_f32(query[t % rows].out + i + HR_LANES * (t / rows) + 4 * l, c[t][l]);
}

HR_INLINE void values(const hr_attend *a, hr_panel_type type, int rows, range v,
                      const hr_query *query, float (*s)[HR_KEY_BLOCK]) {
  size_t padded = hr_round_up(a->width, HR_LANES), i = 0;
  if (v.first >= v.end) return;
  for (; rows == 1 && i + 64 <= padded; i += 64)
    value_columns(a, type, TOGETHER / rows, rows, v, query, i, s);
  for (; i < padded; i += HR_LANES) value_columns(a, type, 1, rows, v, query, i, s);
}

HR_INLINE void attend_one(const hr_attend *a, hr_panel_type type, const hr_query *query) {
  float s[1][HR_KEY_BLOCK];
  range v = visible(a, query);
  memset(query->out, 0, hr_round_up(a->width, HR_LANES) * sizeof *query->out);
  *query->max = -__builtin_inff();
  *query->sum = 0.0f;
  if (v.first >= v.end) return;
  scores(a, type, 1, query, v, s);
  softmax(query, v, s[0]);
  values(a, type, 1, v, query, s);
}

/* The keys that all four see, and those that any of them sees. False when they
 * are better taken one by one. */
static bool overlap(const range v[TOGETHER], range *common, range *all) {
  *common = *all = v[0];
  for (int r = 1; r < TOGETHER; r++) {
    if (v[r].first > common->first) common->first = v[r].first;
    if (v[r].end < common->end) common->end = v[r].end;
    if (v[r].first < all->first) all->first = v[r].first;
    if (v[r].end > all->end) all->end = v[r].end;
  }
  return common->first < common->end && 2 * (common->end - common->first) >= all->end - all->first;
}

/* Keys that only some see are added by one query at a time, before and after
 * those that all see, so that each query adds its own in ascending order. */
HR_INLINE bool attend_four(const hr_attend *a, hr_panel_type type, const hr_query *query) {
  float s[TOGETHER][HR_KEY_BLOCK];
  range v[TOGETHER], common, all;
  for (int r = 0; r < TOGETHER; r++) v[r] = visible(a, &query[r]);
  if (!overlap(v, &common, &all)) return false;
  scores(a, type, TOGETHER, query, all, s);
  for (int r = 0; r < TOGETHER; r++) {
    memset(query[r].out, 0, hr_round_up(a->width, HR_LANES) * sizeof *query[r].out);
    softmax(&query[r], v[r], s[r]);
    values(a, type, 1, (range){v[r].first, common.first}, &query[r], s + r);
  }
  values(a, type, TOGETHER, common, query, s);
  for (int r = 0; r < TOGETHER; r++)
    values(a, type, 1, (range){common.end, v[r].end}, &query[r], s + r);
  return true;
}

HR_INLINE void attend(const hr_attend *a, hr_panel_type type) {
  size_t i = 0;
  while (i < a->count) {
    size_t n = a->count - i < TOGETHER ? 1 : TOGETHER;
    if (n == 1 || !attend_four(a, type, a->queries + i))
      for (size_t r = 0; r < n; r++) attend_one(a, type, a->queries + i + r);
    i += n;
  }
}

void hr_attend_f32__neon(const hr_attend *a) {
  attend(a, HR_PANEL_F32);
}
void hr_attend_f16__neon(const hr_attend *a) {
  attend(a, HR_PANEL_F16);
}

void hr_attend_merge__neon(size_t queries, float *m, float *l, float *o, const float *bm,
                           const float *bl, const float *bo, size_t n) {
  for (size_t q = 0; q < queries; q++, o += n, bo += n) {
    hr_merge_factors by = hr_merge_sums(&m[q], &l[q], bm[q], bl[q]);
    for (size_t i = 0; i < n; i += 4) {
      float32x4_t running = vmulq_n_f32(vld1q_f32(o + i), by.running);
      vst1q_f32(o + i, vfmaq_n_f32(running, vld1q_f32(bo + i), by.later));
    }
  }
}

void hr_attend_join__neon(size_t blocks, float *m, float *l, float *o, size_t n) {
  for (size_t b = 1; b < blocks; b++)
    hr_attend_merge__neon(1, m, l, o, m + b, l + b, o + b * n, n);
}
