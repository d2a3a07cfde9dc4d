/* SPDX-License-Identifier: MIT
 * Matrix products, packing and the quantizing of activations. */
#include <stdio.h>
#include <string.h>

#include "tests/kernels/harness.h"

/* Sizes on both sides of every tile that a back-end may use. */
static const size_t ks[] = {1,   2,   7,   31,  32,  33,  63,   64,   65,  96,
                            160, 480, 511, 512, 513, 544, 1024, 1056, 1100};
static const size_t ns[] = {1, 3, 15, 16, 17, 31, 32, 33, 48, 49, 63, 64, 65, 79, 80, 97, 130};
static const size_t row_counts[] = {1, 2,  3,  4,  5,  6,  7,  8,  9, 10,
                                    11, 12, 13, 14, 15, 16, 17, 19, 20, 33, 65};
enum { KS = sizeof ks / sizeof *ks, NS = sizeof ns / sizeof *ns };
enum { ROW_COUNTS = sizeof row_counts / sizeof *row_counts };

typedef struct shape {
  size_t k, n, rows;
  bool plain; /* no hostile values: among many columns they leave little but NaN */
} shape;

/* Columns, rows or both go beyond what a back-end does at once, or fill it nearly: the x86
 * tiers keep the sums of up to 153 rows (AVX2 307, Zen 3 70) of int8 between chunks of 64 (32, 16)
 * blocks, and of 120 rows of floats between the columns that 256 KiB of panels hold. */
static const size_t large[][3] = {{2048, 17, 11}, {2049, 33, 12},  {2080, 16, 66},
                                  {2080, 33, 145}, {1056, 17, 290}, {4128, 33, 130},
                                  {4200, 5, 23},   {33, 17, 4200},  {3100, 17, 250},
                                  {6200, 33, 119}, {12320, 17, 13}, {5600, 33, 140},
                                  {1024, 145, 70}};
enum { LARGE = sizeof large / sizeof *large };
/* Panels side by side, for every number of rows that might have them. */
enum { FEW = 12, FEW_N = 80, FEW_K = 2100 };

/* All n x rows with a short k, all k x rows with one or two panels, a mix, then the
 * large ones. False after the last. */
static bool next_shape(size_t i, bool one_row, shape *s) {
  size_t counts = one_row ? 1 : ROW_COUNTS, plane = NS * counts, edge = KS * counts;
  if (i < plane) {
    *s = (shape){i % 3 ? 33 : 5, ns[i % NS], row_counts[i / NS], false};
  } else if (i < plane + edge) {
    i -= plane;
    *s = (shape){ks[i % KS], i % 3 ? 16 : 33, row_counts[i / KS], false};
  } else if (i < plane + edge + 60) {
    hr_random r = {i};
    *s = (shape){ks[hr_random_below(&r, KS)], ns[hr_random_below(&r, NS)],
                 row_counts[hr_random_below(&r, counts)], false};
  } else if (i < plane + edge + 60 + LARGE) {
    const size_t *at = large[i - plane - edge - 60];
    *s = (shape){at[0], at[1], one_row ? 1 : at[2], true};
  } else if (i < plane + edge + 60 + LARGE + FEW) {
    *s = (shape){FEW_K, FEW_N, one_row ? 1 : i - plane - edge - 60 - LARGE + 1, true};
  } else {
    return false;
  }
  return true;
}

static size_t element_bytes(hr_panel_type type) {
  return type == HR_PANEL_F32 ? 4 : 2;
}

/* Weights of a q8 block: all of one kind at a time, so that the largest sums
 * of the largest products occur, or one -128 that visits every position. */
static void fill_q8(hr_random *random, int8_t *q, size_t block) {
  size_t kind = hr_random_below(random, 6);
  for (size_t i = 0; i < HR_Q8_BLOCK; i++) {
    int any = (int)(hr_random_next(random) & 255) - 128;
    switch (kind) {
      case 0: q[i] = -128; break;
      case 1: q[i] = 127; break;
      case 2: q[i] = 0; break;
      case 3: q[i] = i == block % HR_Q8_BLOCK ? -128 : 0; break;
      case 4: q[i] = i & 1 ? -128 : 127; break;
      default: q[i] = (int8_t)any; break;
    }
  }
}

/* One row of weights in the file's form. */
static void fill_weights(hr_random *random, hr_panel_type type, unsigned char *row, size_t k,
                         hr_values values) {
  if (type == HR_PANEL_F32) {
    hr_fill_floats(random, (float *)(void *)row, k, values);
  } else if (type == HR_PANEL_F16 || type == HR_PANEL_BF16) {
    hr_fill_halves(random, (uint16_t *)(void *)row, k, values);
    /* Plain as bf16: the same bits mean other numbers, so shift them to about 1. */
    for (size_t i = 0; type == HR_PANEL_BF16 && values == HR_VALUES_PLAIN && i < k; i++)
      ((uint16_t *)(void *)row)[i] = (uint16_t)(((uint16_t *)(void *)row)[i] + 0x1000u);
  } else {
    for (size_t b = 0; b < hr_q8_blocks(k); b++) {
      hr_q8_file_block block;
      hr_fill_halves(random, &block.scale, 1, values);
      fill_q8(random, block.q, b);
      memcpy(row + b * sizeof block, &block, sizeof block);
    }
  }
}

static size_t file_row_bytes(hr_panel_type type, size_t k) {
  return type == HR_PANEL_Q8 ? hr_q8_blocks(k) * sizeof(hr_q8_file_block) : k * element_bytes(type);
}

/* Panels of n outputs, packed by the definition. */
static hr_buffer new_panels(const hr_kernels *ref, hr_random *random, hr_panel_type type, shape s,
                            hr_values values) {
  size_t row_bytes = file_row_bytes(type, s.k), panel_bytes = hr_panel_bytes(type, s.k);
  size_t panels = (s.n + HR_PANEL_ROWS - 1) / HR_PANEL_ROWS;
  hr_buffer file = hr_buffer_new(row_bytes * HR_PANEL_ROWS, 0);
  hr_buffer b = hr_buffer_new(panels * panel_bytes, 0);
  for (size_t p = 0; p < panels; p++) {
    size_t rows = s.n - p * HR_PANEL_ROWS;
    if (rows > HR_PANEL_ROWS) rows = HR_PANEL_ROWS;
    for (size_t r = 0; r < rows; r++)
      fill_weights(random, type, (unsigned char *)file.data + r * row_bytes, s.k, values);
    hr_kernels_pack(ref, type)(file.data, row_bytes, rows, s.k,
                               (char *)b.data + p * panel_bytes);
  }
  hr_buffer_free(&file);
  hr_buffer_keep(&b);
  return b;
}

/* A quantized row as the definition lays it out, with values and scales that
 * the quantizer itself would seldom give. */
static void fill_quantized(hr_random *random, unsigned char *row, size_t k, hr_values values) {
  size_t blocks = hr_q8_blocks(k);
  int8_t *q = (int8_t *)row;
  float *scales = (float *)(void *)(row + hr_q8_row_scales_at(k));
  int32_t *offsets = (int32_t *)(void *)(row + hr_q8_row_offsets_at(k));
  for (size_t b = 0; b < blocks; b++) {
    size_t kind = hr_random_below(random, 5);
    int32_t sum = 0;
    for (size_t i = 0; i < HR_Q8_BLOCK; i++, q++) {
      int any = (int)hr_random_below(random, 255) - 127;
      int value = kind == 0 ? 127 : kind == 1 ? -127 : kind == 2 ? 0 : any;
      if (kind == 3) value = i & 1 ? -127 : 127;
      *q = (int8_t)(b * HR_Q8_BLOCK + i < k ? value : 0);
      sum += *q;
    }
    offsets[b] = -128 * sum;
  }
  hr_fill_floats(random, scales, blocks, values);
}

static hr_buffer new_x(hr_random *random, hr_panel_type type, shape s, size_t stride,
                       hr_values values) {
  bool q8 = type == HR_PANEL_Q8;
  size_t last = q8 ? stride : s.k * sizeof(float);
  hr_buffer b = hr_buffer_new(stride * (s.rows - 1) + last, q8 ? 0 : 4);
  for (size_t r = 0; r < s.rows; r++) {
    unsigned char *row = (unsigned char *)b.data + r * stride;
    if (q8)
      fill_quantized(random, row, s.k, values);
    else
      hr_fill_floats(random, (float *)(void *)row, s.k, values);
  }
  hr_buffer_keep(&b);
  return b;
}

/* Hostile ones one time in so many, whatever the shape. */
static hr_values some_values(hr_random *random, size_t times) {
  if (hr_random_below(random, times)) return HR_VALUES_PLAIN;
  return (hr_values)hr_random_below(random, HR_VALUES_KINDS);
}

typedef struct product_call {
  hr_product_fn *slot;
  hr_product product;
} product_call;

static void call_product(const void *operands) {
  const product_call *o = operands;
  o->slot(&o->product);
}

static void check_one(const hr_kernels *ref, hr_product_fn *of_ref, hr_product_fn *tested,
                      const char *name, hr_panel_type type, shape s, uint64_t seed,
                      hr_report *report) {
  hr_random random = {seed};
  hr_values weights = s.plain ? HR_VALUES_PLAIN : some_values(&random, 3);
  hr_values acts = s.plain ? HR_VALUES_PLAIN : some_values(&random, 4);
  size_t gap = hr_random_below(&random, 4), options = hr_random_below(&random, 4);
  bool biased = options & 1, add = options >> 1 && seed != HR_TYPICAL;
  size_t x_stride = type == HR_PANEL_Q8 ? hr_q8_row_bytes(s.k) + gap * 64 : (s.k + gap) * 4;
  size_t y_stride = s.n + hr_random_below(&random, 20);
  hr_buffer panels = new_panels(ref, &random, type, s, weights);
  hr_buffer x = new_x(&random, type, s, x_stride, acts);
  hr_buffer bias = hr_buffer_new(s.n * 4, 4);
  hr_buffer y =
      hr_buffer_new((y_stride * (s.rows - 1) + s.n) * 4, 4 * hr_random_below(&random, 16));
  hr_buffer expected = hr_buffer_new(y.bytes, 0);
  hr_fill_floats(&random, bias.data, s.n, acts);
  hr_fill_floats(&random, y.data, y.bytes / 4, acts);
  hr_buffer_keep(&bias);
  hr_buffer_same(&expected, &y);

  product_call a = {of_ref, {.panels = panels.data, .x = x.data, .x_stride = x_stride, .k = s.k,
                             .n = s.n, .rows = s.rows, .bias = biased ? bias.data : NULL,
                             .y = expected.data, .y_stride = y_stride, .add = add,
                             .next = seed % 2 ? x.data : NULL}}, b;
  if (s.rows == 1 && seed % 2) a.product.x_stride = a.product.y_stride = 0;
  b = a;
  b.slot = tested;
  b.product.y = y.data;
  hr_case c = hr_case_new(report, name, seed, "k=%zu n=%zu rows=%zu bias=%d add=%d weights=%d x=%d",
                          s.k, s.n, s.rows, biased, add, (int)weights, (int)acts);
  hr_case_run(&c, call_product, &a, &b);
  hr_expect_floats(&c, "y", &expected, &y);
  hr_expect_kept(&c, "panels", &panels);
  hr_expect_kept(&c, "x", &x);
  hr_expect_kept(&c, "bias", &bias);
  hr_case_end(&c);
  hr_buffer_free(&panels);
  hr_buffer_free(&x);
  hr_buffer_free(&bias);
  hr_buffer_free(&y);
  hr_buffer_free(&expected);
}

static void check_slot(const hr_kernels *ref, hr_product_fn *of_ref, hr_product_fn *tested,
                       const char *name, hr_panel_type type, bool one_row, hr_report *report) {
  if (hr_passed_over(report, of_ref == tested)) return;
  shape s = {576, 64, one_row ? 1 : 40, true};
  check_one(ref, of_ref, tested, name, type, s, HR_TYPICAL, report);
  for (size_t i = 0; next_shape(i, one_row, &s); i++) {
    check_one(ref, of_ref, tested, name, type, s, i + 1, report);
    /* One row is few shapes: more seeds of each. */
    for (uint64_t more = 1; one_row && more < 4; more++)
      check_one(ref, of_ref, tested, name, type, s, i + 1 + more * 1000, report);
  }
}

bool hr_check_product(const hr_kernels *ref, const hr_kernels *tested, hr_report *report) {
#define SLOT(slot, type, one_row) \
  check_slot(ref, ref->slot, tested->slot, tested->name.slot, type, one_row, report)
  SLOT(product_f32, HR_PANEL_F32, false);
  SLOT(product_f16, HR_PANEL_F16, false);
  SLOT(product_bf16, HR_PANEL_BF16, false);
  SLOT(product_q8, HR_PANEL_Q8, false);
  SLOT(product_one_f32, HR_PANEL_F32, true);
  SLOT(product_one_f16, HR_PANEL_F16, true);
  SLOT(product_one_bf16, HR_PANEL_BF16, true);
  SLOT(product_one_q8, HR_PANEL_Q8, true);
#undef SLOT
  /* Sixty-four rows that 384 KiB do not hold: the x86 tiers take 256 outputs a chunk. */
  if (ref->product_q8 != tested->product_q8)
    check_one(ref, ref->product_q8, tested->product_q8, tested->name.product_q8, HR_PANEL_Q8,
              (shape){6560, 300, 64, true}, 1, report);
  return report->failures == 0;
}

typedef struct pack_call {
  hr_pack_fn *slot;
  const void *src;
  size_t stride, rows, k;
  void *panel;
} pack_call;

static void call_pack(const void *operands) {
  const pack_call *o = operands;
  o->slot(o->src, o->stride, o->rows, o->k, o->panel);
}

/* A panel by the words of kernels/layout.h, element by element. */
static void lay_out_panel(hr_panel_type type, const pack_call *c, unsigned char *panel) {
  size_t bytes = type == HR_PANEL_F32 ? 4 : 2;
  memset(panel, 0, hr_panel_bytes(type, c->k));
  for (size_t r = 0; r < c->rows; r++) {
    const unsigned char *row = (const unsigned char *)c->src + r * c->stride;
    for (size_t k = 0; k < c->k; k++) {
      if (type != HR_PANEL_Q8) {
        memcpy(panel + (k * 16 + r) * bytes, row + k * bytes, bytes);
        continue;
      }
      unsigned char *pair = panel + k / 64 * 1088;
      const unsigned char *block = row + k / 32 * 34;
      size_t second = k / 32 % 2, group = k % 32 / 4;
      memcpy(pair + second * 32 + r * 2, block, 2);
      pair[64 + second * 512 + group * 64 + r * 4 + k % 4] = block[2 + k % 32];
    }
  }
}

static void check_pack_slot(hr_pack_fn *of_ref, hr_pack_fn *tested, const char *name,
                            hr_panel_type type, hr_report *report) {
  if (hr_passed_over(report, of_ref == tested)) return;
  for (uint64_t seed = HR_TYPICAL; seed <= KS * HR_PANEL_ROWS; seed++) {
    hr_random random = {seed};
    bool typical = seed == HR_TYPICAL;
    size_t k = typical ? 576 : ks[seed % KS];
    size_t rows = typical ? HR_PANEL_ROWS : 1 + seed / KS % HR_PANEL_ROWS;
    if (type == HR_PANEL_Q8) k = hr_round_up(k, HR_Q8_BLOCK);
    size_t row_bytes = file_row_bytes(type, k), stride = row_bytes + hr_random_below(&random, 5);
    hr_buffer src = hr_buffer_new(stride * (rows - 1) + row_bytes, hr_random_below(&random, 4));
    for (size_t i = 0; i < src.bytes; i++)
      ((unsigned char *)src.data)[i] = (unsigned char)hr_random_next(&random);
    hr_buffer_keep(&src);
    hr_buffer expected = hr_buffer_new(hr_panel_bytes(type, k), 0);
    hr_buffer panel = hr_buffer_new(expected.bytes, 0), laid = hr_buffer_new(expected.bytes, 0);
    pack_call a = {of_ref, src.data, stride, rows, k, expected.data}, b = a;
    b.slot = tested;
    b.panel = panel.data;
    hr_case c = hr_case_new(report, name, seed, "k=%zu rows=%zu stride=%zu", k, rows, stride);
    hr_case_run(&c, call_pack, &a, &b);
    lay_out_panel(type, &b, laid.data);
    hr_expect_bytes(&c, "panel", &expected, &panel, panel.bytes);
    hr_expect_bytes(&c, "panel by its layout", &laid, &panel, panel.bytes);
    hr_expect_kept(&c, "src", &src);
    hr_case_end(&c);
    hr_buffer_free(&src);
    hr_buffer_free(&expected);
    hr_buffer_free(&panel);
    hr_buffer_free(&laid);
  }
}

bool hr_check_pack(const hr_kernels *ref, const hr_kernels *tested, hr_report *report) {
#define SLOT(slot, type) check_pack_slot(ref->slot, tested->slot, tested->name.slot, type, report)
  SLOT(pack_f32, HR_PANEL_F32);
  SLOT(pack_f16, HR_PANEL_F16);
  SLOT(pack_bf16, HR_PANEL_BF16);
  SLOT(pack_q8, HR_PANEL_Q8);
#undef SLOT
  return report->failures == 0;
}

/* Blocks that sit on the quantizer's edges. */
static void sharpen(hr_random *random, float *x, size_t k) {
  static const float largest[] = {0x1p-100f, 0x1.fffffep-101f, 0x1p-149f, 127.0f, 254.0f,
                                  0x1.fffffep127f, 1.0f, 0x1p127f};
  float m = largest[hr_random_below(random, 8)];
  for (size_t i = 0; i < k; i++) /* multiples of half a step: ties */
    x[i] = m * ((float)((int)hr_random_below(random, 509) - 254) / 254.0f);
  x[hr_random_below(random, k)] = hr_random_next(random) & 1 ? m : -m;
}

static void expect_quantized(hr_case *c, size_t k, const hr_buffer *expected, hr_buffer *row) {
  /* Any NaN scale equals any other. */
  for (size_t b = 0; b < hr_q8_blocks(k); b++) {
    char *at = (char *)row->data + hr_q8_row_scales_at(k) + b * 4;
    const char *want = (const char *)expected->data + hr_q8_row_scales_at(k) + b * 4;
    float a, e;
    memcpy(&a, at, 4);
    memcpy(&e, want, 4);
    if (a != a && e != e) memcpy(at, want, 4);
  }
  hr_expect_bytes(c, "row", expected, row, hr_q8_blocks(k) * (HR_Q8_BLOCK + 8));
}

typedef struct grid_call {
  hr_grid_errors_fn *slot;
  const float *x, *weight, *scales;
  size_t count;
  float *errors;
} grid_call;

static void call_grid(const void *operands) {
  const grid_call *o = operands;
  o->slot(o->x, o->weight, o->scales, o->count, o->errors);
}

/* Scales from far too fine, so that values are clipped, to far too coarse, of both signs; every
 * fourth time anything at all. */
static void check_grid_errors(const hr_kernels *ref, const hr_kernels *tested, hr_report *report) {
  if (hr_passed_over(report, ref->grid_errors == tested->grid_errors)) return;
  static const float sizes[] = {1.0f, 0x1p-20f, 0x1p-100f, 0x1p120f};
  for (uint64_t seed = HR_TYPICAL; seed <= 400; seed++) {
    hr_random random = {seed};
    size_t count = hr_random_below(&random, 12), place = 4 * hr_random_below(&random, 16);
    bool typical = seed == HR_TYPICAL, weighted = typical || seed % 3;
    if (typical) count = 16;
    hr_buffer x = hr_buffer_new(HR_Q8_BLOCK * 4, place), weight = hr_buffer_new(x.bytes, 4);
    hr_buffer scales = hr_buffer_new(count * 4, 4), expected = hr_buffer_new(count * 4, 4);
    hr_buffer errors = hr_buffer_new(count * 4, 4);
    float size = sizes[typical ? 0 : hr_random_below(&random, 4)], *v = x.data, *w = weight.data;
    for (size_t i = 0; i < HR_Q8_BLOCK; i++) { /* multiples of half a step of the first: ties */
      v[i] = size * 0.5f * (float)((int)hr_random_below(&random, 600) - 300);
      w[i] = (float)hr_random_below(&random, 1000) * 0.125f;
    }
    for (size_t i = 0; i < count; i++) {
      float s = size * (i ? (float)(1 + hr_random_below(&random, 4000)) * 0x1p-9f : 1.0f);
      ((float *)scales.data)[i] = hr_random_next(&random) & 1 ? s : -s;
    }
    if (!typical && seed % 4 == 0) {
      hr_fill_floats(&random, v, HR_Q8_BLOCK, (hr_values)(seed / 4 % HR_VALUES_KINDS));
      hr_fill_floats(&random, w, HR_Q8_BLOCK, (hr_values)(seed / 24 % HR_VALUES_KINDS));
      hr_fill_floats(&random, scales.data, count, some_values(&random, 2));
    }
    hr_buffer_keep(&x);
    hr_buffer_keep(&weight);
    hr_buffer_keep(&scales);
    grid_call a = {ref->grid_errors, v, weighted ? w : NULL, scales.data, count, expected.data};
    grid_call b = a;
    b.slot = tested->grid_errors;
    b.errors = errors.data;
    hr_case c = hr_case_new(report, tested->name.grid_errors, seed, "count=%zu weighted=%d size=%g",
                            count, weighted, (double)size);
    hr_case_run(&c, call_grid, &a, &b);
    hr_expect_floats(&c, "errors", &expected, &errors);
    hr_expect_kept(&c, "x", &x);
    hr_expect_kept(&c, "weight", &weight);
    hr_expect_kept(&c, "scales", &scales);
    hr_case_end(&c);
    hr_buffer_free(&x);
    hr_buffer_free(&weight);
    hr_buffer_free(&scales);
    hr_buffer_free(&expected);
    hr_buffer_free(&errors);
  }
}

typedef struct quantize_call {
  hr_quantize_fn *slot;
  const float *x;
  size_t k, part; /* columns of a call */
  float *copy;    /* [k] */
  void *row;
} quantize_call;

/* The last columns first, and NaN behind each call's own: what one does to others' shows. */
static void call_quantize(const void *operands) {
  const quantize_call *o = operands;
  if (o->part == o->k) {
    o->slot(o->x, o->k, 0, o->k, o->row);
    return;
  }
  for (size_t end = o->k, begin; end > 0; end = begin) {
    begin = (end - 1) / o->part * o->part;
    for (size_t i = 0; i < o->k; i++)
      o->copy[i] = i < end - begin ? o->x[begin + i] : __builtin_nanf("");
    o->slot(o->copy, o->k, begin, end, o->row);
  }
}

bool hr_check_quantize(const hr_kernels *ref, const hr_kernels *tested, hr_report *report) {
  check_grid_errors(ref, tested, report);
  if (hr_passed_over(report, ref->quantize == tested->quantize)) return report->failures == 0;
  for (uint64_t seed = HR_TYPICAL; seed <= 40 * KS; seed++) {
    hr_random random = {seed};
    size_t k = seed == HR_TYPICAL ? 576 : ks[seed % KS];
    hr_buffer x = hr_buffer_new(k * 4, 4);
    size_t kind = seed / KS % (HR_VALUES_KINDS + 2);
    if (kind < HR_VALUES_KINDS)
      hr_fill_floats(&random, x.data, k, (hr_values)kind);
    else
      sharpen(&random, x.data, k);
    hr_buffer_keep(&x);
    hr_buffer expected = hr_buffer_new(hr_q8_row_bytes(k), 0);
    hr_buffer row = hr_buffer_new(expected.bytes, 0);
    size_t part = seed % 3 != 1 ? k : (1 + seed % 20) * HR_Q8_BLOCK;
    hr_buffer copy = hr_buffer_new(k * 4, 4);
    quantize_call a = {ref->quantize, x.data, k, k, copy.data, expected.data};
    quantize_call b = {tested->quantize, x.data, k, part, copy.data, row.data};
    hr_case c = hr_case_new(report, tested->name.quantize, seed, "k=%zu part=%zu kind=%zu", k,
                            part, kind);
    hr_case_run(&c, call_quantize, &a, &b);
    expect_quantized(&c, k, &expected, &row);
    hr_expect_kept(&c, "x", &x);
    hr_case_end(&c);
    hr_buffer_free(&x);
    hr_buffer_free(&copy);
    hr_buffer_free(&expected);
    hr_buffer_free(&row);
  }
  return report->failures == 0;
}
