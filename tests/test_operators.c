/* SPDX-License-Identifier: MIT
 * Single operators against PyTorch in double precision, on every tier of this CPU. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "block/position.h"
#include "kernels/select.h"
#include "tests/support/arrays.h"
#include "tests/support/measure.h"

static arrays fixture;

static void read_fixture(void) {
  fixture = arrays_read(HEADROW_SOURCE_ROOT "/tests/fixtures/operators.safetensors");
}
static void drop_fixture(void) {
  arrays_finish(&fixture);
}

TestSuite(operators, .init = read_fixture, .fini = drop_fixture);

/* The tiers that this CPU has; false when there are no more. */
static bool next_tier(size_t *tier, hr_kernels *kernels) {
  size_t count;
  const hr_tier *tiers = hr_tiers(&count);
  while (*tier < count)
    if (hr_kernels_select(kernels, hr_cpu_features(), tiers[(*tier)++].name)) return true;
  return false;
}

static void compare(const char *isa, const char *name, const float *x, double tolerance) {
  const array *e = arrays_need(&fixture, name);
  double d = distance_to(x, e->value, e->count);
  cr_assert(d < tolerance, "%s (%s) is off by %g of its range", name, isa, d);
}

Test(operators, norms) {
  const array *x = arrays_need(&fixture, "norm_x");
  float *in = array_floats(x), *gain = array_floats(arrays_need(&fixture, "norm_gain"));
  float *shift = array_floats(arrays_need(&fixture, "norm_shift"));
  float *out = array_floats(x);
  size_t n = x->dim[1], tier = 0;
  hr_kernels k;
  while (next_tier(&tier, &k)) {
    for (size_t i = 0; i < x->count; i += n) k.layer_norm(in + i, n, gain, shift, 1e-5f, out + i);
    compare(k.isa, "layer_norm", out, 2e-6);
    for (size_t i = 0; i < x->count; i += n) k.layer_norm(in + i, n, NULL, NULL, 1e-5f, out + i);
    compare(k.isa, "layer_norm_plain", out, 2e-6);
    for (size_t i = 0; i < x->count; i += n) k.rms_norm(in + i, n, gain, 1e-5f, out + i);
    compare(k.isa, "rms_norm", out, 1e-6);
    for (size_t i = 0; i < x->count; i += n) k.rms_norm(in + i, n, NULL, 1e-5f, out + i);
    compare(k.isa, "rms_norm_plain", out, 1e-6);
  }
  free(in);
  free(gain);
  free(shift);
  free(out);
}

Test(operators, softmax) {
  const array *x = arrays_need(&fixture, "softmax_x");
  size_t n = x->dim[1], tier = 0;
  hr_kernels k;
  while (next_tier(&tier, &k)) {
    float *out = array_floats(x);
    for (size_t i = 0; i < x->count; i += n) {
      double sum = 0;
      k.softmax(out + i, n);
      for (size_t j = 0; j < n; j++) sum += (double)out[i + j];
      cr_assert(fabs(sum - 1) < 1e-6);
    }
    compare(k.isa, "softmax", out, 1e-6);
    free(out);
  }
}

Test(operators, activations) {
  const array *x = arrays_need(&fixture, "activation_x");
  float *in = array_floats(x), *out = array_floats(x), *up = array_floats(x);
  size_t tier = 0;
  hr_kernels k;
  while (next_tier(&tier, &k)) {
    const struct { const char *name; hr_activation_fn *f; } functions[] = {
        {"relu", k.relu}, {"relu2", k.relu2}, {"silu", k.silu}, {"gelu_erf", k.gelu_erf},
        {"gelu_tanh", k.gelu_tanh}, {"gelu_quick", k.gelu_quick}};
    const struct { const char *name; hr_map_fn *f; } maps[] = {
        {"exp", k.exp}, {"tanh", k.tanh}, {"erf", k.erf}, {"sigmoid", k.sigmoid}};
    for (size_t i = 0; i < 6; i++) {
      functions[i].f(in, NULL, out, x->count);
      compare(k.isa, functions[i].name, out, 1e-6);
      for (size_t j = 0; j < x->count; j++) up[j] = 2; /* exact */
      functions[i].f(in, up, out, x->count);
      for (size_t j = 0; j < x->count; j++) out[j] /= 2;
      compare(k.isa, functions[i].name, out, 1e-6);
    }
    for (size_t i = 0; i < 4; i++) {
      maps[i].f(in, out, x->count);
      compare(k.isa, maps[i].name, out, 1e-6);
    }
  }
  free(in);
  free(out);
  free(up);
}

/* Not of the range but of each value, so that small ones count. */
Test(operators, exponentials_and_sigmoids_are_close_for_each_value) {
  const array *x = arrays_need(&fixture, "activation_x");
  float *in = array_floats(x), *out = array_floats(x);
  size_t tier = 0;
  hr_kernels k;
  while (next_tier(&tier, &k)) {
    const struct { const char *name; hr_map_fn *f; } maps[] = {
        {"exp", k.exp}, {"tanh", k.tanh}, {"erf", k.erf}, {"sigmoid", k.sigmoid}};
    for (size_t i = 0; i < 4; i++) {
      const array *e = arrays_need(&fixture, maps[i].name);
      maps[i].f(in, out, x->count);
      for (size_t j = 0; j < x->count; j++)
        cr_assert(fabs((double)out[j] - e->value[j]) <= 1e-6 * fabs(e->value[j]) + 1e-37,
                  "%s(%g) is %.9g and not %.9g (%s)", maps[i].name, x->value[j], (double)out[j],
                  e->value[j], k.isa);
    }
  }
  free(in);
  free(out);
}

/* --- Attention ------------------------------------------------------------- */

enum { KEYS = 300, BLOCKS = 2, WIDTH = 10, QUERIES = 6, PADDED = 16 };

typedef struct cache {
  _Alignas(64) struct {
    float keys[HR_KEY_BLOCK * WIDTH], values[HR_KEY_BLOCK * PADDED];
  } block[BLOCKS];
  float query[QUERIES * WIDTH];
  uint32_t end[QUERIES];
} cache;

static void fill_cache(const hr_kernels *k, cache *c) {
  float *keys = array_floats(arrays_need(&fixture, "attention_k"));
  float *values = array_floats(arrays_need(&fixture, "attention_v"));
  const array *q = arrays_need(&fixture, "attention_q");
  const array *e = arrays_need(&fixture, "attention_end");
  memset(c, 0, sizeof *c);
  for (size_t j = 0; j < KEYS; j++) {
    size_t block = j / HR_KEY_BLOCK, at = j % HR_KEY_BLOCK;
    k->store_key_f32(keys + j * WIDTH, WIDTH, c->block[block].keys, at);
    k->store_value_f32(values + j * WIDTH, WIDTH, c->block[block].values, at);
  }
  for (size_t i = 0; i < q->count; i++) c->query[i] = (float)q->value[i];
  for (size_t i = 0; i < QUERIES; i++) {
    k->scale(c->query + i * WIDTH, (float)(1 / sqrt(WIDTH)), WIDTH);
    c->end[i] = (uint32_t)e->value[i];
  }
  free(keys);
  free(values);
}

typedef struct attention {
  bool full;
  uint32_t window; /* 0: none */
  float slope, cap;
} attention;

/* Both blocks of keys and their merging, as a pass does it. */
static void attend(const hr_kernels *k, const cache *c, const attention *how, float *to) {
  for (size_t i = 0; i < QUERIES; i++) {
    float most[BLOCKS], sum[BLOCKS], out[BLOCKS][PADDED];
    hr_query q = {.q = c->query + i * WIDTH, .position = (int32_t)c->end[i] - 1,
                  .slope = how->slope, .end = how->full ? KEYS : c->end[i]};
    if (how->window && c->end[i] > how->window) q.first = c->end[i] - how->window;
    for (uint32_t b = 0; b < BLOCKS; b++) {
      q.max = &most[b];
      q.sum = &sum[b];
      q.out = out[b];
      k->attend_f32(&(hr_attend){.keys = c->block[b].keys, .values = c->block[b].values,
                                 .width = WIDTH, .block = b, .cap = how->cap, .queries = &q,
                                 .count = 1});
    }
    if (q.end > HR_KEY_BLOCK)
      k->attend_merge(1, &most[0], &sum[0], out[0], &most[1], &sum[1], out[1], PADDED);
    k->divide(out[0], sum[0], WIDTH);
    memcpy(to + i * WIDTH, out[0], WIDTH * sizeof *to);
  }
}

Test(operators, attention) {
  static const struct { const char *name; attention how; } cases[] = {
      {"attention_full", {.full = true}},
      {"attention_causal", {0}},
      {"attention_window", {.window = 100}},
      {"attention_alibi", {.slope = 0.0625f}},
      {"attention_alibi_full", {.full = true, .slope = 0.0625f}},
      {"attention_cap", {.cap = 2}}};
  size_t tier = 0;
  hr_kernels k;
  cache c;
  float out[QUERIES * WIDTH];
  while (next_tier(&tier, &k)) {
    fill_cache(&k, &c);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
      attend(&k, &c, &cases[i].how, out);
      compare(k.isa, cases[i].name, out, 1e-6);
    }
  }
}

enum { HEAD = 16, POSITIONS = 64 };

/* Row `position` of values is this number throughout; keys are alike, so each weighs the same. */
static float value_at(size_t position) {
  return (float)position - 3;
}

/* Room for positions in either type, where all that no one may see is NaN. */
typedef struct hidden_cache {
  _Alignas(64) uint8_t keys[POSITIONS * HEAD * 4], values[POSITIONS * HEAD * 4];
} hidden_cache;

static void hide_all_but(const hr_kernels *k, bool half, size_t begin, size_t end,
                         hidden_cache *c) {
  float key[HEAD], value[HEAD];
  memset(c, 0xff, sizeof *c); /* NaN as fp16 and as fp32 */
  for (size_t p = begin; p < end; p++) {
    for (size_t i = 0; i < HEAD; i++) {
      key[i] = (float)i / HEAD;
      value[i] = value_at(p);
    }
    (half ? k->store_key_f16 : k->store_key_f32)(key, HEAD, c->keys, p);
    (half ? k->store_value_f16 : k->store_value_f32)(value, HEAD, c->values, p);
  }
}

Test(operators, a_query_that_sees_no_key_gets_zeros_and_hidden_ones_are_not_touched) {
  static hidden_cache c;
  static const struct {
    uint32_t begin, end;
  } seen[] = {{5, 5}, {5, 9}, {0, 0}, {300, 310}, {8, 9}};
  enum { LOOKERS = sizeof seen / sizeof *seen };
  size_t tier = 0;
  hr_kernels k;
  while (next_tier(&tier, &k))
    for (int half = 0; half < 2; half++) {
      _Alignas(64) float q[HEAD], out[LOOKERS][HEAD], max[LOOKERS], sum[LOOKERS];
      hr_query query[LOOKERS];
      hide_all_but(&k, half, 5, 9, &c);
      for (size_t i = 0; i < HEAD; i++) q[i] = 1 - (float)i / 8;
      for (size_t n = 0; n < LOOKERS; n++) {
        query[n] = (hr_query){.q = q, .first = seen[n].begin, .end = seen[n].end,
                              .position = 9, .max = &max[n],
                              .sum = &sum[n], .out = out[n]};
        for (size_t i = 0; i < HEAD; i++) out[n][i] = NAN;
      }
      hr_attend attend = {.keys = c.keys, .values = c.values, .width = HEAD,
                          .queries = query, .count = LOOKERS};
      (half ? k.attend_f16 : k.attend_f32)(&attend);
      for (size_t n = 0; n < LOOKERS; n++) {
        size_t count = n == 3 ? 0 : seen[n].end - seen[n].begin; /* those are in another block */
        double expected = 0;
        for (size_t p = 0; p < count; p++) expected += (double)value_at(seen[n].begin + p);
        cr_expect(count ? isfinite(max[n]) : max[n] == -INFINITY, "%s: %g", k.isa, (double)max[n]);
        cr_expect_eq(sum[n], (float)count, "%s, query %zu: %g", k.isa, n, (double)sum[n]);
        for (size_t i = 0; i < HEAD; i++)
          cr_expect_eq(out[n][i], (float)expected, "%s, query %zu: %g", k.isa, n,
                       (double)out[n][i]);
      }
      /* and one that saw none there takes nothing away from what it saw before */
      float m = 2, l = 3, o[HEAD];
      for (size_t i = 0; i < HEAD; i++) o[i] = (float)i;
      k.attend_merge(1, &m, &l, o, &max[0], &sum[0], out[0], HEAD);
      cr_expect(m == 2 && l == 3, "%s: %g %g", k.isa, (double)m, (double)l);
      for (size_t i = 0; i < HEAD; i++) cr_expect_eq(o[i], (float)i);
    }
}

/* --- Positions --------------------------------------------------------------- */

Test(operators, rope_in_both_pairings) {
  const array *x = arrays_need(&fixture, "rope_pairs_x");
  size_t width = x->dim[1], tier = 0;
  hr_frequency f[16];
  hr_frequencies(10000, width, f);
  hr_kernels k;
  while (next_tier(&tier, &k)) {
    float *pairs = array_floats(x), *halves = array_floats(arrays_need(&fixture, "rope_halves_x"));
    for (uint32_t p = 0; p < x->dim[0]; p++) {
      float c[16], s[16];
      hr_angles(f, width / 2, p, c, s);
      k.rope_pairs(pairs + p * width, c, s, width / 2);
      k.rope_halves(halves + p * width, c, s, width / 2);
    }
    compare(k.isa, "rope_pairs", pairs, 1e-6);
    compare(k.isa, "rope_halves", halves, 1e-6);
    free(pairs);
    free(halves);
  }
}

Test(operators, sinusoid) {
  const array *e = arrays_need(&fixture, "sinusoid");
  size_t width = e->dim[1];
  float *out = array_floats(e);
  hr_frequency f[16];
  hr_frequencies(10000, width, f);
  for (uint32_t p = 0; p < e->dim[0]; p++) hr_sinusoid(f, width, p, out + p * width);
  compare("all", "sinusoid", out, 1e-7);
  free(out);
}

Test(operators, alibi_slopes) {
  static const size_t heads[] = {1, 2, 3, 6, 8, 12, 16, 40};
  for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
    char name[32];
    float slope[40];
    snprintf(name, sizeof name, "slopes_%zu", heads[i]);
    hr_alibi_slopes(heads[i], 8, slope);
    const array *e = arrays_need(&fixture, name);
    cr_assert(e->count == heads[i]);
    for (size_t h = 0; h < heads[i]; h++)
      cr_assert(fabs((double)slope[h] - e->value[h]) < 1e-7 * e->value[h]);
  }
}
