/* SPDX-License-Identifier: MIT
 * The table of families, and the proof that the checks can fail. */
#include "tests/kernels/checks.h"

#include <stdio.h>
#include <string.h>

#include "kernels/select.h"

static const hr_family families[] = {
    {"product", hr_check_product},
    {"pack", hr_check_pack},
    {"quantize", hr_check_quantize},
    {"norm", hr_check_norm},
    {"attention", hr_check_attention},
    {"store", hr_check_store},
    {"rope", hr_check_rope},
    {"activation", hr_check_activation},
    {"elementary", hr_check_elementary},
    {"softmax", hr_check_softmax},
    {"arithmetic", hr_check_arithmetic},
    {"conversion", hr_check_conversion},
};

const hr_family *hr_families(size_t *count) {
  *count = sizeof families / sizeof *families;
  return families;
}

#define COUNT(type, slot) +1
_Static_assert(0 HR_KERNEL_SLOTS(COUNT) <= HR_MOST_SLOTS, "a benchmark has room for every slot");
#undef COUNT

static bool is_in(const hr_benchmark *b, const char *variant) {
  for (size_t i = 0; i < b->count; i++)
    if (strcmp(b->variant[i], variant) == 0) return true;
  return false;
}

const char *hr_slot_untimed(const hr_benchmark *benchmark, const hr_kernels *ref,
                            const hr_kernels *tested, bool own) {
#define SLOT(type, slot)                                                                 \
  if ((own || ref->slot != tested->slot) && !is_in(benchmark, tested->name.slot))        \
    return tested->name.slot;
  HR_KERNEL_SLOTS(SLOT)
#undef SLOT
  return NULL;
}

/* Kernels with one fault each. They do what the definition does and then break
 * one thing: the last bit of one number, a byte past the end, an input. */
static hr_kernels right;

static void flip(void *at) {
  *(unsigned char *)at ^= 1;
}

static void wrong_product(const hr_product *p) {
  right.product_q8(p);
  if (p->rows == 13) flip(p->y + 12 * p->y_stride + p->n - 1);
}
static void wrong_beyond_2048_columns(const hr_product *p) {
  right.product_f32(p);
  if (p->k > 2048) flip(p->y);
}
static void wrong_from_row_80(const hr_product *p) {
  right.product_q8(p);
  for (size_t r = 80; r < p->rows; r++) flip(p->y + r * p->y_stride);
}
static void wrong_in_a_full_row_block(const hr_product *p) {
  right.product_q8(p);
  if (p->k == 2080 && p->rows > 140) flip(p->y + 140 * p->y_stride);
}
static void wrong_beside_four_panels(const hr_product *p) {
  right.product_f32(p);
  if (p->k > 512 && p->n > 48 && p->rows == 5) flip(p->y + 48);
}
static void wrong_in_place(const float *x, const float *up, float *y, size_t n) {
  right.silu(x, up, y, n);
  if (y == x) flip(y + n - 1);
}
static void wrong_pack(const void *src, size_t stride, size_t rows, size_t k, void *panel) {
  right.pack_f16(src, stride, rows, k, panel);
  if (k == 33) flip(panel);
}
static void wrong_quantize(const float *x, size_t k, size_t begin, size_t end, void *row) {
  right.quantize(x, k, begin, end, row);
  if (k == 65) flip((char *)row + 64);
}
static void wrong_grid(const float *x, const float *weight, const float *scales, size_t count,
                       float *errors) {
  right.grid_errors(x, weight, scales, count, errors);
  if (weight && count == 5) flip(errors + 4);
}
static void wrong_norm(const float *x, size_t n, const float *gain, float eps, float *y) {
  right.rms_norm(x, n, gain, eps, y);
  flip(y + n - 1);
}
static void wrong_attend(const hr_attend *a) {
  right.attend_f16(a);
  if (a->width == 80) flip(a->queries[a->count - 1].sum);
}
static void wrong_in_wide_heads(const hr_attend *a) {
  right.attend_f32(a);
  if (a->width > 256 && a->count) flip(a->queries[0].out + 256);
}
static void wrong_from_block_17(size_t blocks, float *m, float *l, float *o, size_t n) {
  right.attend_join(blocks, m, l, o, n);
  if (blocks > 17) flip(o + n - 1);
}
static void wrong_store(const float *x, size_t width, void *block, size_t position) {
  right.store_value_f16(x, width, block, position);
  if (width % 16) ((uint16_t *)block)[position * hr_round_up(width, 16) + width] = 1;
}
static void wrong_rope(float *x, const float *cosines, const float *sines, size_t half) {
  right.rope_pairs(x, cosines, sines, half);
  x[2 * half] = 0.0f; /* past the end */
}
static void wrong_activation(const float *x, const float *up, float *y, size_t n) {
  right.silu(x, up, y, n);
  if (y != x) flip((float *)(uintptr_t)(const void *)x + n - 1);
}
static void wrong_map(const float *x, float *y, size_t n) {
  right.exp(x, y, n);
  for (size_t i = 0; i < n; i++)
    if (y[i] == 0.0f) y[i] = -0.0f;
}
static void wrong_softmax(float *x, size_t n) {
  right.softmax(x, n);
  flip(x);
}
static void wrong_add(float *y, const float *x, size_t n) {
  right.add(y, x, n);
  if (n == 33) flip(y + 32);
}
static void wrong_narrow(const float *x, uint16_t *y, size_t n) {
  right.narrow_bf16(x, y, n);
  if (n == 1) y[-1] = 0;
}

static void note_failure(hr_report *report, const char *what, const char *variant) {
  report->failures++;
  size_t used = strlen(report->text);
  snprintf(report->text + used, sizeof report->text - used, "%s %s\n", variant, what);
}

/* The family must fail, and the report must name the variant, a shape (by the part
 * given) and a seed. */
static void expect_caught(const char *family, const hr_kernels *ref, const hr_kernels *wrong,
                          const char *variant, const char *shape, hr_report *report) {
  for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
    if (strcmp(families[i].name, family) != 0) continue;
    hr_report inner = {.own = ref == wrong};
    bool passed = families[i].check(ref, wrong, &inner);
    report->cases += inner.cases;
    char start[64];
    snprintf(start, sizeof start, "%s: seed ", variant);
    if (!passed && strncmp(inner.text, start, strlen(start)) == 0 && strstr(inner.text, shape))
      continue;
    note_failure(report, "was not caught", variant);
  }
}

/* A slot whose typical case is missing must be named; others must not be. */
static void expect_missed(hr_report *report) {
  hr_benchmark b = {0};
#define ALL_BUT_RELU2(type, slot) \
  if (strcmp(#slot, "relu2") != 0) b.variant[b.count++] = right.name.slot;
  HR_KERNEL_SLOTS(ALL_BUT_RELU2)
#undef ALL_BUT_RELU2
  const char *missed = hr_slot_untimed(&b, &right, &right, true);
  if (!missed || strcmp(missed, right.name.relu2) != 0)
    note_failure(report, "was not missed in a benchmark without it", right.name.relu2);
  if (hr_slot_untimed(&b, &right, &right, false))
    note_failure(report, "was missed, though it was passed over", right.name.relu2);
}

bool hr_check_the_checks(hr_report *report) {
  hr_kernels_select(&right, 0, NULL);
  expect_missed(report);
#define WRONG_BESIDE(ref, family, slot, function, shape)                \
  do {                                                                  \
    hr_kernels wrong = right;                                           \
    wrong.slot = function;                                              \
    wrong.name.slot = #function;                                        \
    expect_caught(family, ref, &wrong, wrong.name.slot, shape, report); \
  } while (0)
#define WRONG(family, slot, function, shape) \
  WRONG_BESIDE(&right, family, slot, function, shape)
  WRONG("product", product_q8, wrong_product, "rows=13 ");
  WRONG("product", product_f32, wrong_beyond_2048_columns, "k=2049 ");
  WRONG("product", product_q8, wrong_from_row_80, "rows=130 ");
  WRONG("product", product_q8, wrong_in_a_full_row_block, "rows=145 ");
  WRONG("product", product_f32, wrong_beside_four_panels, "rows=5 ");
  WRONG("pack", pack_f16, wrong_pack, "k=33 ");
  WRONG("quantize", quantize, wrong_quantize, "k=65 ");
  WRONG("quantize", grid_errors, wrong_grid, "count=5 weighted=1 ");
  WRONG("norm", rms_norm, wrong_norm, "n=");
  WRONG("attention", attend_f16, wrong_attend, "width=80 ");
  WRONG("attention", attend_f32, wrong_in_wide_heads, "width=2");
  WRONG("attention", attend_join, wrong_from_block_17, "blocks=18 ");
  WRONG("store", store_value_f16, wrong_store, "width=");
  WRONG("rope", rope_pairs, wrong_rope, "half=");
  WRONG("activation", silu, wrong_activation, "n=");
  WRONG("elementary", exp, wrong_map, "n=");
  WRONG("softmax", softmax, wrong_softmax, "n=");
  WRONG("arithmetic", add, wrong_add, "n=33");
  WRONG("conversion", narrow_bf16, wrong_narrow, "n=1");
  /* A definition with a fault, which has only itself beside it. */
  WRONG_BESIDE(&wrong, "activation", silu, wrong_in_place, "place=1");
  WRONG_BESIDE(&wrong, "activation", silu, wrong_activation, "place=0");
  WRONG_BESIDE(&wrong, "rope", rope_pairs, wrong_rope, "half=");
#undef WRONG
#undef WRONG_BESIDE
  return report->failures == 0;
}
