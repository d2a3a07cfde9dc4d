/* SPDX-License-Identifier: MIT
 * The families under a clock: one call of a typical size, in cache. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/kernels/harness.h"

/* Room for the largest call below, and the operands of all of them. */
enum { K = 576, N = 64, ROWS = 40, KEYS = 256, WIDTH = 64, QUERIES = 12 };

typedef struct bench {
  float *x, *y, *up;
  uint16_t *half;
  void *panels, *rows, *keys, *values;
  hr_query queries[QUERIES];
} bench;

static void *floats(hr_random *random, size_t n) {
  float *x = aligned_alloc(64, (n * 4 + 63) / 64 * 64);
  if (!x) exit(2);
  hr_fill_floats(random, x, n, HR_VALUES_PLAIN);
  return x;
}

static bench *bench_data(const hr_kernels *ref) {
  static bench b;
  if (b.x) return &b;
  hr_random random = {1};
  b.x = floats(&random, (size_t)ROWS * K);
  b.y = floats(&random, (size_t)ROWS * K);
  b.up = floats(&random, (size_t)ROWS * K);
  b.half = floats(&random, K);
  b.panels = floats(&random, (size_t)N * K);
  b.rows = floats(&random, (size_t)ROWS * K);
  b.keys = floats(&random, KEYS * WIDTH);
  b.values = floats(&random, KEYS * WIDTH);
  hr_fill_halves(&random, b.panels, (size_t)N * K * 2, HR_VALUES_PLAIN);
  hr_fill_halves(&random, b.keys, KEYS * WIDTH * 2, HR_VALUES_PLAIN);
  hr_fill_halves(&random, b.values, KEYS * WIDTH * 2, HR_VALUES_PLAIN);
  for (size_t r = 0; r < ROWS; r++)
    ref->quantize(b.x + r * K, K, (char *)b.rows + r * hr_q8_row_bytes(K));
  for (size_t i = 0; i < QUERIES; i++)
    b.queries[i] = (hr_query){.q = b.x + i * WIDTH,
                              .end = KEYS,
                              .max = b.y + i,
                              .sum = b.y + 32 + i,
                              .out = b.y + 64 + i * WIDTH};
  return &b;
}

static hr_product product_of(const bench *b, hr_panel_type type, size_t rows) {
  bool q8 = type == HR_PANEL_Q8;
  return (hr_product){.panels = b->panels, .x = q8 ? b->rows : (const void *)b->x,
                      .x_stride = q8 ? hr_q8_row_bytes(K) : K * 4, .k = K, .n = N, .rows = rows,
                      .y = b->y, .y_stride = N};
}

/* SLOT(name, call) makes a function of `call`, which uses t, the table, and b, the data. */
#define SLOT(slot, ...)                                                         \
  static void time_##slot(const void *table, void *data) {                      \
    const hr_kernels *t = table;                                                \
    bench *b = data;                                                            \
    __VA_ARGS__;                                                                \
  }
#define PRODUCT(slot, type, rows)                \
  SLOT(slot, {                                   \
    hr_product p = product_of(b, type, rows);    \
    t->slot(&p);                                 \
  })
#define ATTEND(slot)                                                                          \
  SLOT(slot, {                                                                                \
    hr_attend a = {.keys = b->keys, .values = b->values, .width = WIDTH, .queries = b->queries, \
                   .count = QUERIES};                                                         \
    t->slot(&a);                                                                              \
  })

PRODUCT(product_f32, HR_PANEL_F32, ROWS)
PRODUCT(product_f16, HR_PANEL_F16, ROWS)
PRODUCT(product_bf16, HR_PANEL_BF16, ROWS)
PRODUCT(product_q8, HR_PANEL_Q8, ROWS)
PRODUCT(product_one_f32, HR_PANEL_F32, 1)
PRODUCT(product_one_f16, HR_PANEL_F16, 1)
PRODUCT(product_one_bf16, HR_PANEL_BF16, 1)
PRODUCT(product_one_q8, HR_PANEL_Q8, 1)
SLOT(pack_f32, t->pack_f32(b->x, K * 4, 16, K, b->y))
SLOT(pack_f16, t->pack_f16(b->x, K * 2, 16, K, b->y))
SLOT(pack_q8, t->pack_q8(b->x, K / 32 * 34, 16, K, b->y))
SLOT(quantize, t->quantize(b->x, K, b->y))
SLOT(grid_errors, t->grid_errors(b->x, NULL, b->up, 64, b->y))
SLOT(rms_norm, t->rms_norm(b->x, K, b->up, 1e-5f, b->y))
SLOT(layer_norm, t->layer_norm(b->x, K, b->up, b->up, 1e-5f, b->y))
ATTEND(attend_f32)
ATTEND(attend_f16)
SLOT(rope_pairs, t->rope_pairs(memcpy(b->y, b->x, K * 4), b->up, b->up, K / 2))
SLOT(rope_halves, t->rope_halves(memcpy(b->y, b->x, K * 4), b->up, b->up, K / 2))
SLOT(relu, t->relu(b->x, b->up, b->y, K))
SLOT(silu, t->silu(b->x, b->up, b->y, K))
SLOT(gelu_erf, t->gelu_erf(b->x, NULL, b->y, K))
SLOT(gelu_tanh, t->gelu_tanh(b->x, NULL, b->y, K))
SLOT(gelu_quick, t->gelu_quick(b->x, NULL, b->y, K))
SLOT(exp, t->exp(b->x, b->y, K))
SLOT(tanh, t->tanh(b->x, b->y, K))
SLOT(erf, t->erf(b->x, b->y, K))
SLOT(sigmoid, t->sigmoid(b->x, b->y, K))
SLOT(softmax, t->softmax(memcpy(b->y, b->x, K * 4), K))
SLOT(add, t->add(memcpy(b->y, b->x, K * 4), b->up, K))
SLOT(divide, t->divide(memcpy(b->y, b->x, K * 4), 3.0f, K))
SLOT(widen_f16, t->widen_f16(b->half, b->y, K))
SLOT(narrow_f16, t->narrow_f16(b->x, (uint16_t *)(void *)b->y, K))
SLOT(narrow_bf16, t->narrow_bf16(b->x, (uint16_t *)(void *)b->y, K))

static void report(const char *name, void (*call)(const void *, void *), const hr_kernels *ref,
                   const hr_kernels *tested) {
  bench *b = bench_data(ref);
  double slow = hr_time(call, ref, b), fast = hr_time(call, tested, b);
  printf("  %-28s %10.0f ns   portable %10.0f ns   %6.1f x\n", name, fast * 1e9, slow * 1e9,
         slow / fast);
}
#define REPORT(slot) report(tested->name.slot, time_##slot, ref, tested)

void hr_bench_product(const hr_kernels *ref, const hr_kernels *tested) {
  REPORT(product_f32);
  REPORT(product_f16);
  REPORT(product_bf16);
  REPORT(product_q8);
  REPORT(product_one_f32);
  REPORT(product_one_f16);
  REPORT(product_one_bf16);
  REPORT(product_one_q8);
}
void hr_bench_pack(const hr_kernels *ref, const hr_kernels *tested) {
  REPORT(pack_f32);
  REPORT(pack_f16);
  REPORT(pack_q8);
}
void hr_bench_quantize(const hr_kernels *ref, const hr_kernels *tested) {
  REPORT(quantize);
  REPORT(grid_errors);
}
void hr_bench_norm(const hr_kernels *ref, const hr_kernels *tested) {
  REPORT(rms_norm);
  REPORT(layer_norm);
}
void hr_bench_attention(const hr_kernels *ref, const hr_kernels *tested) {
  REPORT(attend_f32);
  REPORT(attend_f16);
}
void hr_bench_rope(const hr_kernels *ref, const hr_kernels *tested) {
  REPORT(rope_pairs);
  REPORT(rope_halves);
}
void hr_bench_activation(const hr_kernels *ref, const hr_kernels *tested) {
  REPORT(relu);
  REPORT(silu);
  REPORT(gelu_erf);
  REPORT(gelu_tanh);
  REPORT(gelu_quick);
}
void hr_bench_elementary(const hr_kernels *ref, const hr_kernels *tested) {
  REPORT(exp);
  REPORT(tanh);
  REPORT(erf);
  REPORT(sigmoid);
}
void hr_bench_softmax(const hr_kernels *ref, const hr_kernels *tested) {
  REPORT(softmax);
}
void hr_bench_arithmetic(const hr_kernels *ref, const hr_kernels *tested) {
  REPORT(add);
  REPORT(divide);
}
void hr_bench_conversion(const hr_kernels *ref, const hr_kernels *tested) {
  REPORT(widen_f16);
  REPORT(narrow_f16);
  REPORT(narrow_bf16);
}
