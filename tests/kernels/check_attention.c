/* SPDX-License-Identifier: MIT
 * Attention over a block of keys, the merging of blocks, stores to the cache
 * and rotary positions. */
#include <string.h>

#include "tests/kernels/harness.h"

/* As many of each as are coprime, so that the seeds meet every pair. */
static const uint32_t widths[] = {1,  2,  15, 16,  17,  31,  32,  33,  48,  63,  64, 65,
                                  80, 96, 100, 127, 128, 129, 130, 255, 256, 257, 272};
static const size_t counts[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 14, 15, 16, 17, 24, 25, 29};
enum { WIDTHS = sizeof widths / sizeof *widths, COUNTS = sizeof counts / sizeof *counts };
enum { MOST_QUERIES = 32, SEEDS = WIDTHS * COUNTS };

/* A block of one head's cache, queries over it and room for their results. */
typedef struct scene {
  hr_attend_fn *slot;
  hr_attend attend;
  bool typical;
  uint32_t filled;    /* keys of the cache */
  uint32_t positions; /* of the block: room for so many */
  hr_buffer keys, values, q, out, scalars;
  hr_query queries[MOST_QUERIES];
} scene;

/* Ranges of visible keys: the whole cache, causal, a sliding window, any. */
static void set_ranges(hr_random *random, scene *s) {
  uint32_t filled = s->filled;
  size_t kind = s->typical ? 0 : hr_random_below(random, 4);
  uint32_t start = (uint32_t)hr_random_below(random, filled);
  for (uint32_t i = 0; i < s->attend.count; i++) {
    hr_query *q = &s->queries[i];
    uint32_t reach = start + i + 1 < filled ? start + i + 1 : filled;
    q->first = 0;
    q->end = filled;
    if (kind == 1) q->end = reach;
    if (kind == 2) {
      q->end = reach;
      q->first = reach > 40 ? reach - 40 : 0;
    }
    if (kind == 3) {
      q->first = (uint32_t)hr_random_below(random, filled + 1);
      q->end = (uint32_t)hr_random_below(random, filled + 1);
    }
    q->position = (int32_t)hr_random_below(random, 1000) - (hr_random_below(random, 9) ? 0 : 500);
    if (hr_random_below(random, 40) == 0) q->position = i & 1 ? INT32_MIN : INT32_MAX;
  }
}

static void set_queries(hr_random *random, scene *s) {
  static const float slopes[] = {0.0f, 0.0f, 0.5f, 0.00390625f, 0.7071f, -0.0f};
  size_t padded = hr_round_up(s->attend.width, 16);
  float slope = slopes[hr_random_below(random, 6)];
  for (size_t i = 0; i < s->attend.count; i++) {
    hr_query *q = &s->queries[i];
    q->q = (float *)s->q.data + i * s->attend.width;
    q->slope = hr_random_below(random, 2) ? slope : slopes[hr_random_below(random, 6)];
    if (s->typical) q->slope = 0.0f;
    q->max = (float *)s->scalars.data + i * 2;
    q->sum = (float *)s->scalars.data + i * 2 + 1;
    q->out = (float *)s->out.data + i * padded;
  }
}

static void fill_cache(hr_random *random, hr_buffer *b, bool half, hr_values values) {
  if (half)
    hr_fill_halves(random, b->data, b->bytes / 2, values);
  else
    hr_fill_floats(random, b->data, b->bytes / 4, values);
}

/* What lies past a value's width is zero. */
static void clear_padding(scene *s, bool half) {
  size_t width = s->attend.width, padded = hr_round_up(width, 16), size = half ? 2 : 4;
  for (size_t j = 0; j < s->positions; j++)
    memset((char *)s->values.data + (j * padded + width) * size, 0, (padded - width) * size);
}

/* What a scene is drawn with: its typical form, or from the seed. */
static void set_shape(hr_random *random, scene *s, uint64_t seed, hr_values kinds[3]) {
  static const float caps[] = {0.0f, 0.0f, 0.0f, 30.0f, 2.0f};
  for (size_t i = 0; i < 3; i++) /* keys, values, queries */
    kinds[i] = seed != HR_TYPICAL && seed % (3 + i) == 0
                   ? (hr_values)hr_random_below(random, HR_VALUES_KINDS)
                   : HR_VALUES_PLAIN;
  s->typical = seed == HR_TYPICAL;
  s->filled = HR_KEY_BLOCK;
  s->attend = (hr_attend){.width = 64, .count = 12};
  if (s->typical) return;
  s->filled = 1 + (uint32_t)hr_random_below(random, seed % 7 ? 290 : 600);
  s->attend = (hr_attend){.width = widths[seed % WIDTHS],
                          .block = (uint32_t)hr_random_below(random, 2 + (s->filled - 1) / 256),
                          .cap = caps[hr_random_below(random, 5)],
                          .count = counts[seed % COUNTS]};
  if (seed % 6 && s->attend.block * 256 >= s->filled) s->attend.block = 0;
}

/* Results lie anywhere floats may lie. */
static void scene_new(scene *s, hr_attend_fn *slot, uint64_t seed, bool half, size_t shift) {
  hr_random random = {seed};
  hr_values kinds[3];
  set_shape(&random, s, seed, kinds);
  s->slot = slot;
  uint32_t base = s->attend.block * HR_KEY_BLOCK, left = s->filled > base ? s->filled - base : 1;
  s->positions = (uint32_t)hr_round_up(left < HR_KEY_BLOCK ? left : HR_KEY_BLOCK, HR_KEY_PANEL);
  size_t width = s->attend.width, padded = hr_round_up(width, 16), size = half ? 2 : 4;
  size_t count = s->attend.count;
  s->keys = hr_buffer_new(s->positions * width * size, 0);
  s->values = hr_buffer_new(s->positions * padded * size, 0);
  s->q = hr_buffer_new(count * width * 4, 4);
  s->out = hr_buffer_new(count * padded * 4, shift);
  s->scalars = hr_buffer_new(count * 2 * 4, shift);
  fill_cache(&random, &s->keys, half, kinds[0]);
  fill_cache(&random, &s->values, half, kinds[1]);
  clear_padding(s, half);
  hr_fill_floats(&random, s->q.data, count * width, kinds[2]);
  hr_buffer_keep(&s->keys);
  hr_buffer_keep(&s->values);
  hr_buffer_keep(&s->q);
  set_ranges(&random, s);
  set_queries(&random, s);
  s->attend.keys = s->keys.data;
  s->attend.values = s->values.data;
  s->attend.next_keys = s->keys.data; /* what is fetched makes no difference */
  s->attend.next_values = s->values.data;
  s->attend.next_count = (uint32_t)hr_random_below(&random, s->positions + 1);
  s->attend.queries = s->queries;
}

static void scene_free(scene *s) {
  hr_buffer_free(&s->keys);
  hr_buffer_free(&s->values);
  hr_buffer_free(&s->q);
  hr_buffer_free(&s->out);
  hr_buffer_free(&s->scalars);
}

static void call_attend(const void *operands) {
  const scene *s = operands;
  s->slot(&s->attend);
}

static void check_attend_slot(hr_attend_fn *of_ref, hr_attend_fn *tested, const char *name,
                              bool half, hr_report *report) {
  if (hr_passed_over(report, of_ref == tested)) return;
  static scene a, b; /* the same scene twice */
  for (uint64_t seed = HR_TYPICAL; seed <= SEEDS; seed++) {
    scene_new(&a, of_ref, seed, half, 0);
    scene_new(&b, tested, seed, half, 4 * (seed % 16));
    hr_case c = hr_case_new(report, name, seed, "width=%u block=%u count=%zu positions=%u cap=%g",
                            b.attend.width, b.attend.block, b.attend.count, b.positions,
                            (double)b.attend.cap);
    hr_case_run(&c, call_attend, &a, &b);
    hr_expect_floats(&c, "max and sum", &a.scalars, &b.scalars);
    hr_expect_floats(&c, "out", &a.out, &b.out);
    hr_expect_kept(&c, "keys", &b.keys);
    hr_expect_kept(&c, "values", &b.values);
    hr_expect_kept(&c, "q", &b.q);
    hr_case_end(&c);
    scene_free(&a);
    scene_free(&b);
  }
}

typedef struct merge_call {
  hr_attend_merge_fn *slot;
  float *m, *l, *o;
  const float *bm, *bl, *bo;
  size_t queries, n;
} merge_call;

static void call_merge(const void *operands) {
  const merge_call *o = operands;
  o->slot(o->queries, o->m, o->l, o->o, o->bm, o->bl, o->bo, o->n);
}

/* Maxima of a query and of a later block: either or both may have seen no key, or an infinite or
 * no number. */
static void fill_maxima(hr_random *random, uint64_t seed, float *m, float *bm) {
  static const float maxima[] = {0.0f, 1.5f, -3.25f, 90.0f, -90.0f, 3e38f, -3e38f, 1e-30f};
  *m = maxima[hr_random_below(random, 8)];
  *bm = maxima[hr_random_below(random, 8)];
  if (seed % 5 == 0) *(seed % 2 ? m : bm) = -__builtin_inff();
  if (seed % 7 == 0) *m = *bm;
  if (seed % 11 == 0) *(seed % 2 ? m : bm) = __builtin_inff();
  if (seed % 13 == 0) *(seed % 2 ? m : bm) = __builtin_nanf("");
  if (seed == HR_TYPICAL) *m = *bm = 0.0f;
}

static void check_merge(const hr_kernels *ref, const hr_kernels *tested, hr_report *report) {
  if (hr_passed_over(report, ref->attend_merge == tested->attend_merge)) return;
  for (uint64_t seed = HR_TYPICAL; seed <= 400; seed++) {
    hr_random random = {seed};
    size_t n = seed == HR_TYPICAL ? 64 : 16 * (1 + seed % 9);
    size_t queries = seed == HR_TYPICAL ? 36 : seed % 3 ? 1 + seed % 17 : 1 + seed % 50;
    size_t bytes = queries * n * 4, scalars = queries * 4;
    hr_values sums = seed % 4 ? HR_VALUES_PLAIN : (hr_values)(seed / 4 % HR_VALUES_KINDS);
    hr_buffer expected = hr_buffer_new(bytes, 4), o = hr_buffer_new(bytes, 4);
    hr_buffer block = hr_buffer_new(bytes, 8);
    /* m and l: the running one and the block's. */
    hr_buffer expected_m = hr_buffer_new(scalars, 4), m = hr_buffer_new(scalars, 8);
    hr_buffer expected_l = hr_buffer_new(scalars, 4), l = hr_buffer_new(scalars, 8);
    hr_buffer bm = hr_buffer_new(scalars, 4), bl = hr_buffer_new(scalars, 4);
    for (size_t q = 0; q < queries; q++)
      fill_maxima(&random, q ? seed + q : seed, (float *)m.data + q, (float *)bm.data + q);
    hr_fill_floats(&random, l.data, queries, sums);
    hr_fill_floats(&random, bl.data, queries, sums);
    hr_fill_floats(&random, o.data, queries * n, (hr_values)(seed % HR_VALUES_KINDS));
    hr_fill_floats(&random, block.data, queries * n, (hr_values)(seed / 6 % HR_VALUES_KINDS));
    hr_buffer_same(&expected, &o);
    hr_buffer_same(&expected_m, &m);
    hr_buffer_same(&expected_l, &l);
    hr_buffer_keep(&block);
    hr_buffer_keep(&bm);
    hr_buffer_keep(&bl);
    merge_call a = {ref->attend_merge, expected_m.data, expected_l.data, expected.data, bm.data,
                    bl.data, block.data, queries, n};
    merge_call b = {tested->attend_merge, m.data, l.data, o.data, bm.data,
                    bl.data, block.data, queries, n};
    hr_case c = hr_case_new(report, tested->name.attend_merge, seed,
                            "queries=%zu n=%zu m=%g bm=%g", queries, n, (double)*a.m,
                            (double)*a.bm);
    hr_case_run(&c, call_merge, &a, &b);
    hr_expect_floats(&c, "o", &expected, &o);
    hr_expect_floats(&c, "m", &expected_m, &m);
    hr_expect_floats(&c, "l", &expected_l, &l);
    hr_expect_kept(&c, "bo", &block);
    hr_expect_kept(&c, "bm", &bm);
    hr_expect_kept(&c, "bl", &bl);
    hr_case_end(&c);
    hr_buffer *all[] = {&expected, &o, &block, &expected_m, &m, &bm, &expected_l, &l, &bl};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) hr_buffer_free(all[i]);
  }
}

typedef struct join_call {
  hr_attend_join_fn *slot;
  float *m, *l, *o;
  size_t blocks, n;
} join_call;

static void call_join(const void *operands) {
  const join_call *o = operands;
  o->slot(o->blocks, o->m, o->l, o->o, o->n);
}

/* Maxima of some or all blocks that saw no key, or an infinite or no number. One of the latter two
 * makes all that follows no number, so that most calls have none. */
static void set_maxima(hr_random *random, uint64_t seed, float *m, size_t blocks) {
  static const float maxima[] = {90.0f, -90.0f, 3e38f, -3e38f};
  size_t at = hr_random_below(random, blocks);
  for (size_t b = 0; b < blocks; b++)
    if (seed % 2) m[b] = b % 3 ? maxima[hr_random_below(random, 4)] : -__builtin_inff();
  if (seed % 9 == 1) m[at] = __builtin_inff();
  if (seed % 9 == 4) m[at] = __builtin_nanf("");
  for (size_t b = 0; b < at && seed % 7 == 0; b++) m[b] = -__builtin_inff();
}

/* What the later blocks' places hold afterwards is the same too: nothing was written there. */
static void check_join(const hr_kernels *ref, const hr_kernels *tested, hr_report *report) {
  if (hr_passed_over(report, ref->attend_join == tested->attend_join)) return;
  for (uint64_t seed = HR_TYPICAL; seed <= 400; seed++) {
    hr_random random = {seed};
    size_t n = seed == HR_TYPICAL ? 64 : 16 * (1 + seed % 9);
    size_t blocks = seed == HR_TYPICAL ? 17 : 1 + seed % 50;
    hr_values sums = seed % 4 ? HR_VALUES_PLAIN : (hr_values)(seed / 4 % HR_VALUES_KINDS);
    hr_values outs = seed % 5 ? HR_VALUES_PLAIN : (hr_values)(seed / 5 % HR_VALUES_KINDS);
    hr_buffer o[2], m[2], l[2];
    for (size_t i = 0; i < 2; i++) {
      o[i] = hr_buffer_new(blocks * n * 4, i ? 4 : 0);
      m[i] = hr_buffer_new(blocks * 4, i ? 4 : 8);
      l[i] = hr_buffer_new(blocks * 4, i ? 8 : 4);
    }
    hr_fill_floats(&random, m[1].data, blocks, HR_VALUES_PLAIN);
    if (seed % 3 == 1) set_maxima(&random, seed, m[1].data, blocks);
    hr_fill_floats(&random, l[1].data, blocks, sums);
    hr_fill_floats(&random, o[1].data, blocks * n, outs);
    hr_buffer_same(&o[0], &o[1]);
    hr_buffer_same(&m[0], &m[1]);
    hr_buffer_same(&l[0], &l[1]);
    join_call a = {ref->attend_join, m[0].data, l[0].data, o[0].data, blocks, n};
    join_call b = {tested->attend_join, m[1].data, l[1].data, o[1].data, blocks, n};
    hr_case c = hr_case_new(report, tested->name.attend_join, seed, "blocks=%zu n=%zu m=%g",
                            blocks, n, (double)*a.m);
    hr_case_run(&c, call_join, &a, &b);
    hr_expect_floats(&c, "o", &o[0], &o[1]);
    hr_expect_floats(&c, "m", &m[0], &m[1]);
    hr_expect_floats(&c, "l", &l[0], &l[1]);
    hr_case_end(&c);
    for (size_t i = 0; i < 2; i++) {
      hr_buffer_free(&o[i]);
      hr_buffer_free(&m[i]);
      hr_buffer_free(&l[i]);
    }
  }
}

bool hr_check_attention(const hr_kernels *ref, const hr_kernels *tested, hr_report *report) {
  check_attend_slot(ref->attend_f32, tested->attend_f32, tested->name.attend_f32, false, report);
  check_attend_slot(ref->attend_f16, tested->attend_f16, tested->name.attend_f16, true, report);
  check_merge(ref, tested, report);
  check_join(ref, tested, report);
  return report->failures == 0;
}

typedef struct store_call {
  hr_store_fn *slot;
  const float *x;
  size_t width;
  void *block;
  size_t position;
} store_call;

static void call_store(const void *operands) {
  const store_call *o = operands;
  o->slot(o->x, o->width, o->block, o->position);
}

static void check_store_slot(hr_store_fn *of_ref, hr_store_fn *tested, const char *name, bool half,
                             hr_report *report) {
  if (hr_passed_over(report, of_ref == tested)) return;
  for (uint64_t seed = HR_TYPICAL; seed <= 390; seed++) {
    hr_random random = {seed};
    size_t width = seed == HR_TYPICAL ? 64 : 1 + (seed - 1) % 130;
    size_t padded = hr_round_up(width, 16), room = 2 * HR_KEY_PANEL;
    size_t position = hr_random_below(&random, room), size = half ? 2 : 4;
    hr_buffer x = hr_buffer_new(width * 4, 4);
    hr_buffer expected = hr_buffer_new(room * padded * size, 0);
    hr_buffer block = hr_buffer_new(expected.bytes, 0);
    hr_fill_floats(&random, x.data, width, (hr_values)(seed % HR_VALUES_KINDS));
    hr_buffer_keep(&x);
    memset(expected.data, 0x11, expected.bytes);
    hr_buffer_same(&block, &expected);
    store_call a = {of_ref, x.data, width, expected.data, position}, b = a;
    b.slot = tested;
    b.block = block.data;
    hr_case c = hr_case_new(report, name, seed, "width=%zu position=%zu", width, position);
    hr_case_run(&c, call_store, &a, &b);
    if (half)
      hr_expect_halves(&c, "block", false, &expected, &block);
    else
      hr_expect_floats(&c, "block", &expected, &block);
    hr_expect_kept(&c, "x", &x);
    hr_case_end(&c);
    hr_buffer_free(&x);
    hr_buffer_free(&expected);
    hr_buffer_free(&block);
  }
}

bool hr_check_store(const hr_kernels *ref, const hr_kernels *tested, hr_report *report) {
#define SLOT(slot, half) check_store_slot(ref->slot, tested->slot, tested->name.slot, half, report)
  SLOT(store_key_f32, false);
  SLOT(store_key_f16, true);
  SLOT(store_value_f32, false);
  SLOT(store_value_f16, true);
#undef SLOT
  return report->failures == 0;
}

typedef struct rope_call {
  hr_rope_fn *slot;
  float *x;
  const float *cosines, *sines;
  size_t half;
} rope_call;

static void call_rope(const void *operands) {
  const rope_call *o = operands;
  o->slot(o->x, o->cosines, o->sines, o->half);
}

/* Those of an angle, which leave the sizes of pairs alone; plain or hostile numbers. */
static void fill_angles(hr_random *random, uint64_t seed, float *cosines, float *sines,
                        size_t half) {
  hr_values kind = HR_VALUES_PLAIN;
  if (seed % 8 == 0) kind = HR_VALUES_TINY;
  if (seed % 8 == 1) kind = (hr_values)hr_random_below(random, HR_VALUES_KINDS);
  hr_fill_floats(random, cosines, half, seed % 8 ? kind : HR_VALUES_PLAIN);
  hr_fill_floats(random, sines, half, kind);
  for (size_t i = 0; seed == HR_TYPICAL && i < half; i++) {
    const float cosine = 0.6f, sine = 0.8f;
    memcpy(&cosines[i], &cosine, 4);
    memcpy(&sines[i], &sine, 4);
  }
}

static void check_rope_slot(hr_rope_fn *of_ref, hr_rope_fn *tested, const char *name,
                            hr_report *report) {
  if (hr_passed_over(report, of_ref == tested)) return;
  for (uint64_t seed = HR_TYPICAL; seed <= 420; seed++) {
    hr_random random = {seed};
    size_t half = seed == HR_TYPICAL ? 64 : 1 + (seed - 1) % 70;
    hr_buffer expected = hr_buffer_new(half * 8, 4), x = hr_buffer_new(half * 8, 4);
    hr_buffer cosines = hr_buffer_new(half * 4, 4), sines = hr_buffer_new(half * 4, 8);
    hr_fill_floats(&random, expected.data, half * 2, (hr_values)(seed % HR_VALUES_KINDS));
    fill_angles(&random, seed, cosines.data, sines.data, half);
    hr_buffer_same(&x, &expected);
    hr_buffer_keep(&cosines);
    hr_buffer_keep(&sines);
    rope_call a = {of_ref, expected.data, cosines.data, sines.data, half}, b = a;
    b.slot = tested;
    b.x = x.data;
    hr_case c = hr_case_new(report, name, seed, "half=%zu", half);
    hr_case_run(&c, call_rope, &a, &b);
    hr_expect_floats(&c, "x", &expected, &x);
    hr_expect_kept(&c, "cos", &cosines);
    hr_expect_kept(&c, "sin", &sines);
    hr_case_end(&c);
    hr_buffer_free(&expected);
    hr_buffer_free(&x);
    hr_buffer_free(&cosines);
    hr_buffer_free(&sines);
  }
}

bool hr_check_rope(const hr_kernels *ref, const hr_kernels *tested, hr_report *report) {
  check_rope_slot(ref->rope_pairs, tested->rope_pairs, tested->name.rope_pairs, report);
  check_rope_slot(ref->rope_halves, tested->rope_halves, tested->name.rope_halves, report);
  return report->failures == 0;
}
