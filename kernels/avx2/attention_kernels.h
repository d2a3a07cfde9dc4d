/* SPDX-License-Identifier: MIT
 * Attention's products, scores and sums of values, for the tier whose file includes this and says
 * its tile: ROWS (up to 12) queries together, ACCUMULATORS registers of sixteen lanes; WEIGH,
 * the function between them (attention_weights.h); and what FETCH_ROWS queries and more fetch:
 * what lies NEAR bytes behind what is read, into the first cache, and, if FAR is not 0, into the
 * second the block that comes next. Arithmetic: kernels/kernels.h. */
#include <string.h>

#include "kernels/avx2/lanes.h"

typedef enum cache_type { CACHE_F32, CACHE_F16 } cache_type;

HR_INLINE lanes cached16(cache_type type, const void *cache, size_t at) {
  if (type == CACHE_F32) return lanes_load((const float *)cache + at);
  return lanes_load_half((const uint16_t *)cache + at);
}

HR_INLINE size_t cached_bytes(cache_type type, size_t n) {
  return n * (type == CACHE_F32 ? sizeof(float) : sizeof(uint16_t));
}

/* What is fetched next. With few queries the memory sets the pace: with every n elements that are
 * read, as many are fetched of what comes next. */
typedef struct fetching {
  /* Into the first cache: keys, values and mostly the next block's keys are one stream. NEAR is
   * not a multiple of 4 KiB: else what is fetched would take the places, in the sets of that
   * cache, of what is read. */
  const char *near;
  const char *far, *far_end; /* into the second, of the next block; at its end no more */
} fetching;

/* Queries that are worked on together, what each sees of the block, counted
 * from the block's start, and what they all see. */
typedef struct group {
  size_t count, base, padded;
  const hr_query *query[ROWS];
  size_t first[ROWS], end[ROWS];
  size_t first_any, end_any, first_all, end_all;
  bool leads; /* the first group of the block's */
  fetching ahead;
  _Alignas(64) float s[ROWS][HR_KEY_BLOCK];
} group;

/* What to fetch while reading from there, if `next`, some bytes, is what the next block has in its
 * place: once, as much as is read here. Where the queries see a block in part nothing lies
 * behind. */
HR_INLINE void look_ahead(const hr_attend *a, group *g, const char *from, const char *next,
                          size_t bytes) {
  g->ahead.near = g->end_any == HR_KEY_BLOCK ? from + NEAR : from;
  if (!FAR) return;
  bool fetched = g->leads && a->next_count > 0;
  g->ahead.far = fetched ? next : from;
  g->ahead.far_end = fetched ? next + bytes : from;
}

HR_INLINE void fetch(cache_type type, size_t rows, fetching *a, size_t n) {
  if (rows < FETCH_ROWS) return;
  for (size_t i = 0; i < cached_bytes(type, n); i += 64) {
    _mm_prefetch(a->near + i, _MM_HINT_T0);
    if (FAR) _mm_prefetch(a->far + i, _MM_HINT_T1);
  }
  a->near += cached_bytes(type, n);
  if (FAR) a->far += a->far < a->far_end ? cached_bytes(type, n) : 0;
}

enum { PARTS = 8 };

/* How many sixteens of keys or of a value side by side use the accumulators best. */
HR_INLINE size_t side_by_side(size_t rows, size_t most) {
  while (most > 1 && rows * most > ACCUMULATORS) most /= 2;
  return most;
}

/* One element of some sixteens of a panel's keys against one of each query. */
HR_INLINE void score_step(cache_type type, const char *key, size_t parts, size_t rows,
                          const float *const *q, size_t i, lanes c[ROWS][PARTS]) {
  lanes k[PARTS];
  HR_UNROLL for (size_t p = 0; p < parts; p++)
    k[p] = cached16(type, key, i * HR_KEY_PANEL + p * 16);
  HR_UNROLL for (size_t r = 0; r < rows; r++) {
    lanes v = parts == 1 ? lanes_set(q[r][i]) : lanes_spread(q[r] + i);
    HR_UNROLL for (size_t p = 0; p < parts; p++) c[r][p] = lanes_fma(v, k[p], c[r][p]);
  }
}

/* Scores of the keys j .. j + 16 * parts - 1, which lie in one panel. */
HR_INLINE void score_tile(const hr_attend *a, cache_type type, size_t parts, size_t rows, group *g,
                          size_t j) {
  lanes c[ROWS][PARTS];
  const float *q[ROWS];
  fetching ahead = g->ahead;
  const char *key = (const char *)a->keys + cached_bytes(type, hr_key_at(a->width, j));
  HR_UNROLL for (size_t r = 0; r < rows; r++) {
    q[r] = g->query[r]->q;
    HR_UNROLL for (size_t p = 0; p < parts; p++) c[r][p] = lanes_set(0.0f);
  }
  /* Two elements a turn are faster, but compilers spill where single sums fill the registers. */
  size_t i = 0, n = parts == 1 && rows > 1 ? 1 : 2;
  for (; i + n <= a->width; i += n) {
    fetch(type, rows, &ahead, n * parts * 16);
    HR_UNROLL for (size_t e = 0; e < n; e++) score_step(type, key, parts, rows, q, i + e, c);
  }
  if (i < a->width) score_step(type, key, parts, rows, q, i, c);
  HR_UNROLL for (size_t r = 0; r < rows; r++)
    HR_UNROLL for (size_t p = 0; p < parts; p++) lanes_store(g->s[r] + j + p * 16, c[r][p]);
  g->ahead = ahead;
}

/* All keys that some query sees; what lies outside a query's range is computed and never read. */
HR_INLINE void scores(const hr_attend *a, cache_type type, size_t rows, group *g) {
  size_t most = side_by_side(rows, 4), j = g->first_any / (16 * most) * (16 * most);
  look_ahead(a, g, (const char *)a->keys + cached_bytes(type, j * a->width), a->next_keys,
             cached_bytes(type, hr_round_up(a->next_count, HR_KEY_PANEL) * a->width));
  if (most >= 4)
    for (; j + 48 < g->end_any; j += 64) score_tile(a, type, 4, rows, g, j);
  if (most >= 2)
    for (; j + 16 < g->end_any; j += 32) score_tile(a, type, 2, rows, g, j);
  for (; j < g->end_any; j += 16) score_tile(a, type, 1, rows, g, j);
}

/* Some sixteens of one key's value by each query's p_j. Whichever are fewer wait in registers. */
HR_INLINE void value_step(cache_type type, const char *value, size_t parts, size_t rows,
                          const float *s, lanes c[ROWS][PARTS]) {
  lanes v[PARTS], w[ROWS];
  if (rows < parts) {
    HR_UNROLL for (size_t r = 0; r < rows; r++) w[r] = lanes_spread(s + r * HR_KEY_BLOCK);
    HR_UNROLL for (size_t p = 0; p < parts; p++) {
      v[p] = cached16(type, value, p * 16);
      HR_UNROLL for (size_t r = 0; r < rows; r++) c[r][p] = lanes_fma(w[r], v[p], c[r][p]);
    }
    return;
  }
  HR_UNROLL for (size_t p = 0; p < parts; p++) v[p] = cached16(type, value, p * 16);
  HR_UNROLL for (size_t r = 0; r < rows; r++) {
    w[r] = lanes_spread(s + r * HR_KEY_BLOCK);
    HR_UNROLL for (size_t p = 0; p < parts; p++) c[r][p] = lanes_fma(w[r], v[p], c[r][p]);
  }
}

/* Adds p_j * v_j of the keys begin .. end - 1 to some sixteens of the outputs. */
HR_INLINE void value_tile(const hr_attend *a, cache_type type, size_t parts, size_t rows,
                          const hr_query *const *query, const float *s, group *g, size_t begin,
                          size_t end, size_t i) {
  lanes c[ROWS][PARTS];
  fetching ahead = g->ahead;
  const char *value = (const char *)a->values + cached_bytes(type, begin * g->padded + i);
  const size_t step = cached_bytes(type, g->padded);
  HR_UNROLL for (size_t r = 0; r < rows; r++)
    HR_UNROLL for (size_t p = 0; p < parts; p++) c[r][p] = lanes_load(query[r]->out + i + p * 16);
  for (size_t j = begin; j < end; j++, value += step) {
    fetch(type, rows, &ahead, parts * 16);
    value_step(type, value, parts, rows, s + j, c);
  }
  HR_UNROLL for (size_t r = 0; r < rows; r++)
    HR_UNROLL for (size_t p = 0; p < parts; p++) lanes_store(query[r]->out + i + p * 16, c[r][p]);
  g->ahead = ahead;
}

/* The same for the whole width. */
HR_INLINE void values(const hr_attend *a, cache_type type, size_t rows,
                      const hr_query *const *query, const float *s, group *g, size_t begin,
                      size_t end) {
  size_t i = 0, most = side_by_side(rows, PARTS);
  if (begin >= end) return;
  if (most >= 8)
    for (; i + 128 <= g->padded; i += 128) value_tile(a, type, 8, rows, query, s, g, begin, end, i);
  if (most >= 4)
    for (; i + 64 <= g->padded; i += 64) value_tile(a, type, 4, rows, query, s, g, begin, end, i);
  if (most >= 2)
    for (; i + 32 <= g->padded; i += 32) value_tile(a, type, 2, rows, query, s, g, begin, end, i);
  for (; i < g->padded; i += 16) value_tile(a, type, 1, rows, query, s, g, begin, end, i);
}

/* The visible keys of a query ascend: first those that not all queries of the
 * group see, then the common ones, then the rest. */
HR_INLINE void all_values(const hr_attend *a, cache_type type, size_t rows, group *g) {
  bool common = g->first_all < g->end_all;
  look_ahead(a, g, (const char *)a->values + cached_bytes(type, g->first_any * g->padded),
             a->next_values, cached_bytes(type, a->next_count * g->padded));
  for (size_t r = 0; r < rows; r++) {
    memset(g->query[r]->out, 0, g->padded * sizeof(float));
    values(a, type, 1, &g->query[r], g->s[r], g, g->first[r], common ? g->first_all : g->end[r]);
  }
  if (!common) return;
  values(a, type, rows, g->query, g->s[0], g, g->first_all, g->end_all);
  for (size_t r = 0; r < rows; r++)
    values(a, type, 1, &g->query[r], g->s[r], g, g->end_all, g->end[r]);
}

/* From scores to p_j, their largest and their sum, of some queries: row by row of s the scores of
 * the keys first .. end - 1, counted from the block's start. */
void WEIGH(const hr_attend *a, size_t rows, const hr_query *const *query, const size_t *first,
           const size_t *end, float (*s)[HR_KEY_BLOCK]);

HR_INLINE void attend_tile(const hr_attend *a, cache_type type, size_t rows, group *g) {
  scores(a, type, rows, g);
  WEIGH(a, rows, g->query, g->first, g->end, g->s);
  all_values(a, type, rows, g);
}

/* Adds a query to the group, or gives it the results of one that sees nothing. */
HR_INLINE void group_add(group *g, const hr_query *query) {
  size_t first = query->first > g->base ? query->first - g->base : 0;
  size_t end = query->end > g->base ? query->end - g->base : 0;
  if (end > HR_KEY_BLOCK) end = HR_KEY_BLOCK;
  if (first >= end) {
    memset(query->out, 0, g->padded * sizeof(float));
    *query->max = -__builtin_inff();
    *query->sum = 0.0f;
    return;
  }
  size_t r = g->count++;
  g->query[r] = query;
  g->first[r] = first;
  g->end[r] = end;
  if (r == 0 || first < g->first_any) g->first_any = first;
  if (r == 0 || first > g->first_all) g->first_all = first;
  if (r == 0 || end > g->end_any) g->end_any = end;
  if (r == 0 || end < g->end_all) g->end_all = end;
}

HR_INLINE void attend(const hr_attend *a, cache_type type) {
  group g;
  g.base = (size_t)a->block * HR_KEY_BLOCK;
  g.padded = hr_round_up(a->width, 16);
  for (size_t i = 0, n; i < a->count; i += n) {
    n = tile_rows(a->count - i, ROWS);
    g.count = 0;
    g.leads = i == 0;
    for (size_t r = 0; r < n; r++) group_add(&g, &a->queries[i + r]);
    switch (g.count) {
#define ROWS_CASE(rows) \
  case rows: attend_tile(a, type, rows <= ROWS ? rows : ROWS, &g); break;
      ROWS_CASE(1)
      ROWS_CASE(2)
      ROWS_CASE(3)
      ROWS_CASE(4)
      ROWS_CASE(5)
      ROWS_CASE(6)
#if ROWS > 6
      ROWS_CASE(7)
      ROWS_CASE(8)
      ROWS_CASE(9)
      ROWS_CASE(10)
      ROWS_CASE(11)
      ROWS_CASE(12)
#endif
#undef ROWS_CASE
      default: break; /* no query sees the block */
    }
  }
}
