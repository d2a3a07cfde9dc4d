/* SPDX-License-Identifier: MIT
 * Number formats: what the bytes of a file mean, and what is left of it in panels. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/portable/half.h"
#include "kernels/select.h"
#include "model/source.h"
#include "quant/compensate.h"
#include "quant/convert.h"
#include "quant/measures.h"
#include "tests/support/arrays.h"

#define FIXTURES HEADROW_SOURCE_ROOT "/tests/fixtures/"

/* --- Values ---------------------------------------------------------------------- */

static hr_source *open_source(const char *path) {
  hr_error err = {0};
  hr_source *source = hr_source_open(path, &err);
  cr_assert(source, "%s", err.message);
  return source;
}

/* All elements of a tensor; to be freed. */
static float *values_of(const hr_tensor *t, size_t *count) {
  *count = 1;
  for (unsigned i = 0; i < t->dims; i++) *count *= t->dim[i];
  float *x = malloc(*count * sizeof *x);
  cr_assert(x);
  hr_format_get(t->format)->widen(t->data, x, *count);
  return x;
}

/* Bit for bit, but for the sign of a zero, which a file's own zero may have. */
static void check_values(const char *name, const float *x, const double *expected, size_t count) {
  for (size_t i = 0; i < count; i++)
    cr_assert((double)x[i] == expected[i], "%s: value %zu is %.9g, expected %.9g", name, i,
              (double)x[i], expected[i]);
}

Test(formats, every_block_format_has_the_values_of_its_description) {
  hr_source *source = open_source(FIXTURES "formats.gguf");
  arrays expected = arrays_read(FIXTURES "formats_expected.safetensors");
  cr_assert_eq(expected.count, hr_source_tensor_count(source));
  cr_assert_eq(expected.count, HR_FORMAT_COUNT - 3, "all but the three float formats");
  for (size_t i = 0; i < expected.count; i++) {
    const hr_tensor *t = hr_source_tensor_at(source, i);
    const array *a = arrays_need(&expected, t->name);
    cr_assert_str_eq(hr_format_get(t->format)->name, t->name);
    size_t count;
    float *x = values_of(t, &count);
    cr_assert_eq(count, a->count);
    check_values(t->name, x, a->value, count);
    free(x);
  }
  arrays_finish(&expected);
  hr_source_close(source);
}

Test(formats, values_of_another_implementation) {
  const char *data = getenv("HEADROW_TEST_DATA");
  if (!data || !*data) cr_skip_test("HEADROW_TEST_DATA is not set");
  char path[512];
  snprintf(path, sizeof path, "%s/fixtures/tiny_kquant_ref.json", data);
  json_t *all = json_read(path), *list, *dequantized = json_object_get(all, "dequant");
  snprintf(path, sizeof path, "%s/fixtures/tiny_kquant.gguf", data);
  hr_source *source = open_source(path);
  const char *name;
  size_t seen = 0;
  json_object_foreach(dequantized, name, list) {
    char tensor[64];
    snprintf(tensor, sizeof tensor, "kq.%s.weight", name);
    const hr_tensor *t = hr_source_find_tensor(source, tensor);
    cr_assert(t, "%s", tensor);
    array expected = array_from_json(list);
    size_t count;
    float *x = values_of(t, &count);
    cr_assert_eq(count, expected.count);
    check_values(name, x, expected.value, count);
    free(x);
    array_finish(&expected);
    seen++;
  }
  cr_assert_eq(seen, 4);
  hr_source_close(source);
  json_decref(all);
}

/* --- Panels ---------------------------------------------------------------------- */

enum { COLUMNS = 256, PANEL_BYTES = COLUMNS / HR_Q8_BLOCK * HR_Q8_PAIR_BYTES / 2 };

/* Value (row, column) of a panel of int8 blocks, by kernels/layout.h. */
static double panel_value(const char *panel, size_t row, size_t column) {
  size_t block = column / HR_Q8_BLOCK, inside = column % HR_Q8_BLOCK;
  uint16_t scale;
  memcpy(&scale, panel + hr_q8_scales_at(block) + row * 2, sizeof scale);
  int8_t q = (int8_t)panel[hr_q8_weights_at(block) +
                           (inside / HR_Q8_GROUP * HR_PANEL_ROWS + row) * HR_Q8_GROUP +
                           inside % HR_Q8_GROUP];
  return (double)hr_widen_half(scale) * q;
}

static const hr_kernels *kernels(void) {
  static hr_kernels table;
  if (!table.isa) cr_assert(hr_kernels_select(&table, hr_cpu_features(), NULL));
  return &table;
}

static void pack(const hr_tensor *t, size_t rows, char *panel) {
  void *scratch = malloc(hr_panel_scratch_bytes(COLUMNS));
  const hr_panel_source from = {.format = t->format, .data = t->data, .columns = COLUMNS};
  size_t bad;
  cr_assert(hr_pack_panel(kernels(), &from, 0, rows, COLUMNS, HR_PANEL_Q8, scratch, panel, &bad),
            "%s: row %zu", t->name, bad);
  free(scratch);
}

/* Those whose value is an fp16 scale times a whole number lose nothing as int8. Of
 * the others a value is off by at most 0.6 steps of 1/127 of the block's largest, and
 * where scales are denormal numbers of fp16 by 128 times half the distance of those. */
Test(panels, int8_holds_what_a_block_format_means) {
  hr_source *source = open_source(FIXTURES "formats.gguf");
  arrays expected = arrays_read(FIXTURES "formats_expected.safetensors");
  static char panel[PANEL_BYTES] __attribute__((aligned(64)));
  size_t exact = 0;
  for (size_t i = 0; i < expected.count; i++) {
    const hr_tensor *t = hr_source_tensor_at(source, i);
    const double *x = arrays_need(&expected, t->name)->value;
    size_t rows = t->dim[0] / COLUMNS;
    pack(t, rows, panel);
    bool same = true;
    for (size_t r = 0; r < rows; r++)
      for (size_t b = 0; b < COLUMNS; b += HR_Q8_BLOCK) {
        double most = 0;
        for (size_t k = 0; k < HR_Q8_BLOCK; k++) most = fmax(most, fabs(x[r * COLUMNS + b + k]));
        for (size_t k = 0; k < HR_Q8_BLOCK; k++) {
          double e = panel_value(panel, r, b + k) - x[r * COLUMNS + b + k];
          if (e != 0) same = false;
          cr_assert(fabs(e) <= most / 127 * 0.6 + 0x1p-18, "%s: %g is off by %g of %g", t->name,
                    x[r * COLUMNS + b + k], e, most);
        }
      }
    cr_expect_eq(same, hr_format_get(t->format)->to_q8 != NULL, "%s", t->name);
    exact += same;
  }
  cr_expect_eq(exact, 4, "Q8_0, Q4_0, Q5_0 and IQ4_NL");
  arrays_finish(&expected);
  hr_source_close(source);
}

/* --- One block ------------------------------------------------------------------- */

static double error_of(const hr_q8_file_block *block, const float *x, const float *weight) {
  double sum = 0, scale = (double)hr_widen_half(block->scale);
  for (size_t i = 0; i < HR_Q8_BLOCK; i++) {
    double e = (double)x[i] - scale * block->q[i];
    sum += (weight ? (double)weight[i] : 1.0) * e * e;
  }
  return sum;
}

/* Numbers with a bell's shape: sums of twelve of a linear generator. */
static void fill(float *x, size_t count, uint32_t seed) {
  for (size_t i = 0; i < count; i++) {
    float sum = -6.0f;
    for (int j = 0; j < 12; j++) {
      seed = seed * 1664525u + 1013904223u;
      sum += (float)(seed >> 8) * 0x1p-24f;
    }
    x[i] = sum * 0.05f;
  }
}

static const hr_scale_search few_tries = {120.0f, 9}, many_tries = {112.0f, 69};

/* A grid search over scales in double precision gives 0.80 and 0.75 of the plain
 * error with these, for values of a normal distribution. */
Test(blocks, a_search_for_the_scale_loses_less) {
  double plain = 0, few = 0, many = 0, weighted = 0, plain_weighted = 0;
  float x[HR_Q8_BLOCK], weight[HR_Q8_BLOCK];
  hr_q8_file_block block;
  for (uint32_t i = 0; i < 4000; i++) {
    fill(x, HR_Q8_BLOCK, i);
    for (size_t j = 0; j < HR_Q8_BLOCK; j++) weight[j] = j % 8 == i % 8 ? 8.0f : 0.25f;
    cr_assert(hr_quantize_block(x, &block));
    plain += error_of(&block, x, NULL);
    plain_weighted += error_of(&block, x, weight);
    cr_assert(hr_quantize_block_best(kernels(), x, NULL, few_tries, &block));
    few += error_of(&block, x, NULL);
    cr_assert(hr_quantize_block_best(kernels(), x, NULL, many_tries, &block));
    many += error_of(&block, x, NULL);
    cr_assert(hr_quantize_block_best(kernels(), x, weight, many_tries, &block));
    weighted += error_of(&block, x, weight);
  }
  cr_expect_lt(few, 0.82 * plain, "%g", few / plain);
  cr_expect_lt(many, 0.77 * plain, "%g", many / plain);
  cr_expect_lt(weighted, 0.7 * plain_weighted, "few weights that count leave more to choose");
}

Test(blocks, of_every_kind) {
  hr_q8_file_block block;
  float x[HR_Q8_BLOCK] = {0};
  cr_expect(hr_quantize_block_best(kernels(), x, NULL, few_tries, &block));
  cr_expect_eq(error_of(&block, x, NULL), 0.0);
  for (size_t i = 0; i < HR_Q8_BLOCK; i++) x[i] = 1.0f; /* 128 steps of 2^-7 */
  cr_expect(hr_quantize_block_best(kernels(), x, NULL, few_tries, &block));
  cr_expect_eq(error_of(&block, x, NULL), 0.0);
  x[5] = 1000.0f; /* ones below half a step, lost as they must be; the outlier stays */
  cr_expect(hr_quantize_block_best(kernels(), x, NULL, few_tries, &block));
  cr_expect_lt(error_of(&block, x, NULL), 31.0 + 1.0);
  x[5] = 65504.0f * 120; /* its scale fits fp16 for the larger numbers of steps only */
  cr_expect(hr_quantize_block_best(kernels(), x, NULL, few_tries, &block));
  x[5] = 65504.0f * 130;
  cr_expect(!hr_quantize_block_best(kernels(), x, NULL, few_tries, &block));
  x[5] = 1e-9f;
  for (size_t i = 0; i < HR_Q8_BLOCK; i++) x[i] = 1e-9f; /* below every fp16 scale */
  cr_expect(hr_quantize_block_best(kernels(), x, NULL, few_tries, &block));
  cr_expect_eq(block.scale & 0x7fff, 0);
  static const float faults[] = {NAN, INFINITY, -INFINITY};
  for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
    x[31] = faults[i];
    cr_expect(!hr_quantize_block_best(kernels(), x, NULL, few_tries, &block));
  }
}

/* --- Rounding that makes good its errors ------------------------------------------- */

enum { INPUTS = 64, SAMPLES = 300 };

/* Inputs whose columns depend on each other, and the sum of their outer products. */
static void make_inputs(double *sum) {
  static float x[SAMPLES][INPUTS];
  memset(sum, 0, INPUTS * INPUTS * sizeof *sum);
  for (uint32_t s = 0; s < SAMPLES; s++) {
    fill(x[s], INPUTS, 1000 + s);
    for (size_t i = 1; i < INPUTS; i++) x[s][i] += 0.9f * x[s][i - 1];
    for (size_t i = 0; i < INPUTS; i++)
      for (size_t j = 0; j < INPUTS; j++) sum[i * INPUTS + j] += (double)x[s][i] * (double)x[s][j];
  }
}

Test(compensation, u_is_the_factor_of_the_inverse) {
  static double sum[INPUTS * INPUTS], h[INPUTS * INPUTS];
  static float u[INPUTS * INPUTS];
  make_inputs(sum);
  double mean = 0;
  for (size_t i = 0; i < INPUTS; i++) mean += sum[i * INPUTS + i] / INPUTS;
  memcpy(h, sum, sizeof h);
  for (size_t i = 0; i < INPUTS; i++) h[i * INPUTS + i] += 0.01 * mean;
  cr_assert(hr_compensation(sum, INPUTS, 0.01, u));
  for (size_t i = 0; i < INPUTS; i++)
    for (size_t j = 0; j < INPUTS; j++) { /* (u^T u) h = 1 */
      double one = 0;
      for (size_t a = 0; a < INPUTS; a++)
        for (size_t b = 0; b <= i && b <= a; b++)
          one += (double)u[b * INPUTS + i] * (double)u[b * INPUTS + a] * h[a * INPUTS + j];
      cr_assert(fabs(one - (i == j)) < 1e-4, "%zu, %zu: %g", i, j, one);
    }
  memset(sum, 0, sizeof sum);
  cr_expect(hr_compensation(sum, INPUTS, 0.01, u), "inputs that are always zero");
  sum[0] = -1;
  sum[1] = NAN;
  cr_expect(!hr_compensation(sum, INPUTS, 0.01, u));
}

/* What the shift adds to a row solves the normal equations: (shift row) h = drift row. */
Test(compensation, a_shift_makes_good_what_its_inputs_have_lost) {
  static double sum[INPUTS * INPUTS], h[INPUTS * INPUTS], drift[INPUTS * INPUTS];
  static float u[INPUTS * INPUTS], shift[INPUTS * INPUTS], values[INPUTS * INPUTS];
  make_inputs(sum);
  double mean = 0, largest = 0;
  for (size_t i = 0; i < INPUTS; i++) mean += sum[i * INPUTS + i] / INPUTS;
  memcpy(h, sum, sizeof h);
  for (size_t i = 0; i < INPUTS; i++) h[i * INPUTS + i] += 0.01 * mean;
  for (size_t i = 0; i < INPUTS; i++) fill(values + i * INPUTS, INPUTS, (uint32_t)i + 1000);
  for (size_t i = 0; i < INPUTS * INPUTS; i++) drift[i] = (double)values[i];
  cr_assert(hr_compensation(sum, INPUTS, 0.01, u));
  cr_assert(hr_compensation_shift(drift, INPUTS, u, shift));
  float row[INPUTS], moved[INPUTS], work[INPUTS];
  fill(row, INPUTS, 7);
  memcpy(moved, row, sizeof row);
  hr_shift_row(moved, INPUTS, shift, work);
  for (size_t i = 0; i < INPUTS; i++) {
    double left = 0, right = 0, part = 0;
    for (size_t j = 0; j < INPUTS; j++) {
      left += ((double)moved[j] - (double)row[j]) * h[j < i ? j * INPUTS + i : i * INPUTS + j];
      right += (double)values[i * INPUTS + j] * (double)row[j];
      part += fabs((double)values[i * INPUTS + j] * (double)row[j]);
    }
    largest = fmax(largest, fabs(left - right) / part);
  }
  cr_expect_lt(largest, 1e-3, "%g", largest);
}

static double error_on_inputs(const double *h, const float *w, const hr_q8_file_block *blocks) {
  double e[INPUTS], sum = 0;
  for (size_t i = 0; i < INPUTS; i++)
    e[i] = (double)w[i] - (double)hr_widen_half(blocks[i / HR_Q8_BLOCK].scale) *
                              blocks[i / HR_Q8_BLOCK].q[i % HR_Q8_BLOCK];
  for (size_t i = 0; i < INPUTS; i++)
    for (size_t j = 0; j < INPUTS; j++) sum += e[i] * h[i * INPUTS + j] * e[j];
  return sum;
}

Test(compensation, outputs_are_closer_than_with_the_best_scales_alone) {
  static double sum[INPUTS * INPUTS], h[INPUTS * INPUTS];
  static float u[INPUTS * INPUTS];
  make_inputs(h);
  memcpy(sum, h, sizeof sum);
  cr_assert(hr_compensation(sum, INPUTS, 0.01, u));
  double plain = 0, compensated = 0;
  for (uint32_t row = 0; row < 200; row++) {
    float w[INPUTS], copy[INPUTS];
    hr_q8_file_block blocks[INPUTS / HR_Q8_BLOCK];
    fill(w, INPUTS, row);
    for (size_t b = 0; b < INPUTS / HR_Q8_BLOCK; b++) {
      const float *block = w + b * HR_Q8_BLOCK;
      cr_assert(hr_quantize_block_best(kernels(), block, NULL, many_tries, &blocks[b]));
    }
    plain += error_on_inputs(h, w, blocks);
    memcpy(copy, w, sizeof w);
    cr_assert(hr_quantize_row_compensated(copy, INPUTS, u, many_tries, blocks));
    compensated += error_on_inputs(h, w, blocks);
  }
  cr_expect_lt(compensated, 0.5 * plain, "%g", compensated / plain);
  float bad[INPUTS] = {[40] = NAN};
  hr_q8_file_block blocks[INPUTS / HR_Q8_BLOCK];
  cr_expect(!hr_quantize_row_compensated(bad, INPUTS, u, many_tries, blocks));
}

/* --- Measures -------------------------------------------------------------------- */

static void check_close(double x, double expected, double relative, const char *what) {
  cr_assert(fabs(x - expected) <= relative * fabs(expected), "%s is %.17g, expected %.17g", what, x,
            expected);
}

Test(measures, formulas) {
  arrays all = arrays_read(FIXTURES "measures_expected.safetensors");
  const array *p = arrays_need(&all, "p"), *divergence = arrays_need(&all, "divergence");
  const array *x = arrays_need(&all, "x");
  float *a = array_floats(p), *b = array_floats(arrays_need(&all, "q"));
  size_t rows = p->dim[0], vocab = p->dim[1];
  for (size_t r = 0; r < rows; r++) {
    const float *row = a + r * vocab;
    check_close(hr_log_sum_exp(row, vocab), arrays_need(&all, "log_sum_exp")->value[r], 1e-13,
                "log sum exp");
    check_close(hr_divergence(row, b + r * vocab, vocab), divergence->value[r], 1e-9, "divergence");
    cr_assert_eq(hr_divergence(row, row, vocab), 0.0);
  }
  uint32_t *cluster = (uint32_t *)array_ids(arrays_need(&all, "cluster"));
  hr_estimate mean = hr_mean(x->value, cluster, x->count);
  check_close(mean.value, arrays_need(&all, "mean")->value[0], 1e-13, "mean");
  check_close(mean.error, arrays_need(&all, "error")->value[0], 1e-12, "error");
  static const double shares[] = {0.5, 0.99};
  for (size_t i = 0; i < 2; i++) {
    hr_estimate q;
    cr_assert(hr_quantile(x->value, cluster, x->count, shares[i], &q));
    cr_assert_eq(q.value, arrays_need(&all, "quantiles")->value[i]);
    cr_assert(q.error > 0);
  }
  free(a);
  free(b);
  free(cluster);
  arrays_finish(&all);
}

/* Distributions that are sure of one token, far beyond what exp can hold: with p = (1, e^-g)
 * and q = (e^-h, 1) in the limit the divergence is h, and 0 where they agree. */
Test(measures, divergence_of_what_is_certain) {
  static const float gaps[] = {0.5f, 30, 800, 2000, 1e5f, 1e30f};
  for (size_t i = 2; i < sizeof gaps / sizeof *gaps; i++) {
    const float first[] = {gaps[i], 0, 0}, second[] = {0, gaps[i], 0}, half[] = {gaps[i] / 2, 0, 0};
    check_close(hr_divergence(first, second, 3), (double)gaps[i], 1e-12, "opposite");
    cr_assert_float_eq(hr_divergence(first, half, 3), 0.0, 1e-12);
  }
  for (size_t i = 0; i < 2; i++) { /* by the definition, which two tokens still allow */
    const float a[] = {gaps[i], 0}, b[] = {0, gaps[i]};
    double p = 1 / (1 + exp(-(double)gaps[i])), expected = (2 * p - 1) * (double)gaps[i];
    check_close(hr_divergence(a, b, 2), expected, 1e-12, "two tokens");
  }
}

Test(measures, errors_of_a_mean) {
  enum { COUNT = 4096 };
  static double x[COUNT];
  static uint32_t alone[COUNT], eight[COUNT], one[COUNT];
  float value[COUNT / 8];
  fill(value, COUNT / 8, 7);
  for (uint32_t i = 0; i < COUNT; i++) {
    x[i] = (double)value[i / 8]; /* eight neighbours say the same */
    alone[i] = i;
    eight[i] = i / 8;
  }
  double blind = hr_mean(x, alone, COUNT).error, seeing = hr_mean(x, eight, COUNT).error;
  check_close(seeing / blind, sqrt(8.0), 0.01, "what blocks of eight equal values do");
  cr_expect_lt(hr_mean(x, one, COUNT).error, 0.0, "one cluster tells nothing");
  for (uint32_t i = 0; i < COUNT; i++) x[i] = 2;
  hr_estimate constant;
  cr_assert(hr_quantile(x, eight, COUNT, 0.99, &constant));
  cr_expect(constant.value == 2 && constant.error == 0);
  cr_expect_eq(hr_mean(x, eight, COUNT).error, 0.0);
  cr_expect_eq(hr_cluster_tokens(100), 16);
  cr_expect_eq(hr_cluster_tokens(2000), 100);
  cr_expect_eq(hr_cluster_tokens(1000000), 256);
}

Test(measures, the_largest) {
  static const float a[] = {1, 5, -9, 5, 2}, b[] = {1, 4.5f, -6, 5, 2};
  cr_expect_eq(hr_top(a, 5), 1, "the first of equals");
  cr_expect_eq(hr_largest_difference(a, b, 5), 3.0);
}
