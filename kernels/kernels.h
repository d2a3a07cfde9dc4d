/* SPDX-License-Identifier: MIT
 * What a back-end offers: one table of function pointers.
 *
 * Kernels are stateless: they allocate nothing, start no thread, read no
 * environment and do no input or output. kernels/portable fills every slot and
 * *is* the definition of the arithmetic (docs/numerics.md); a tier overrides
 * the slots that it does better and must give the same bits, any NaN counting
 * as any other. Kernels run with round-to-nearest and without flush-to-zero.
 *
 * In the formulas fma(a, b, c) is one IEEE binary32 operation, a "chain" is a
 * sequence of fma whose last operand is the result before, and sum16 is: lane
 * i mod 16 takes element i, ascending; then lanes i and i + 8 are added, then
 * i and i + 4, i and i + 2, i and i + 1.
 *
 * The step by which a caller may split a slot's work over calls, with the same bits:
 *   products            outputs by 16 (a panel), rows by 1; never columns
 *   packing             by a panel of 16 rows
 *   quantize            by a row, and columns by 32 (a block)
 *   grid_errors         scales by 1
 *   norms, softmax      by a row
 *   attend              queries by 1; a call is one block of keys of one head
 *   attend_merge        queries by 1, elements by 16, each call with the old m and l
 *   attend_join         not
 *   stores              by a key or value
 *   rope_pairs          pairs by 1; rope_halves by a head
 *   activations, maps, add, scale, divide, conversions   elements by 1
 * Floats and halves that a slot takes may lie at any alignment of theirs; panels, quantized
 * rows and what a cache holds of a head begin at multiples of 64 bytes. Counts and lengths are at
 * least 1 but where 0 is said to do. Outputs lie apart from inputs but where one may be the other,
 * then the whole of it. Any float may be any number, an infinity or NaN. Of the stack a kernel's
 * arrays take HR_KERNEL_ARRAYS bytes at most, which those of int8 products come near.
 */
#ifndef HR_KERNELS_KERNELS_H
#define HR_KERNELS_KERNELS_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/layout.h"

enum { HR_KERNEL_ARRAYS = 120 << 10 };

/* A rectangle of a matrix product: y[r][i] = sum over k of w[i][k] * x[r][k],
 * for outputs 0 <= i < n and rows 0 <= r < rows. A caller may cut a product
 * along n in steps of 16 (a panel) and along rows in steps of 1; k is whole.
 * With one row the strides mean nothing.
 *
 * t = the sum; with bias t = t + bias[i]; with add t = y[r][i] + t; y = t.
 *
 * The sum, float panels (x is float): columns in chunks of 512, ascending;
 * c = chain over the chunk from +0, c = fma(w, x, c) with w widened exactly;
 * sum = the first chunk's c, then sum = sum + c.
 *
 * The sum, q8 panels (x is quantized rows, see layout.h): one chain over the
 * blocks from +0: sum = fma((float)s, ws * xs, sum), where s is the exact
 * integer sum over the block's 32 columns of w * q, ws the widened fp16 scale
 * of the weights, xs the scale of the activations. */
typedef struct hr_product {
  const void *panels; /* 64-byte aligned; panel p at p * hr_panel_bytes(type, k) */
  const void *x;      /* float rows: any alignment; quantized rows: 64-byte aligned */
  size_t x_stride;    /* bytes from row to row */
  size_t k;           /* columns */
  size_t n;           /* outputs; the last panel may be used in part */
  size_t rows;
  const float *bias;  /* [n] or NULL */
  float *y;
  size_t y_stride;    /* floats from row to row; nothing past column n is touched */
  bool add;           /* add to what y holds */
  const void *next;   /* panels of this type and as many columns that are read after this call,
                         or NULL; they may be fetched into a cache meanwhile */
} hr_product;

typedef void hr_product_fn(const hr_product *product);

/* Packs up to 16 rows of k columns, in the file's form, row r at src + r *
 * stride (bytes, no alignment), into one panel, all hr_panel_bytes of it; missing rows
 * become zero, and so do the scales of a missing second block. Every bit is kept, those of
 * NaN too. q8: rows of hr_q8_file_block, k a multiple of 32. */
typedef void hr_pack_fn(const void *src, size_t stride, size_t rows, size_t k, void *panel);

/* Quantizes columns begin .. end - 1 of a row of k into the form in layout.h, offsets too; x is
 * column begin. begin is a multiple of 32, end one too or k. Per block of 32: m =
 * largest magnitude (as unsigned integers of the bits without sign). m infinite or NaN: scale
 * NaN, values 0. m below 2^-100: scale 0, values 0. Else scale = m / 127, value =
 * round-to-nearest-even(x * (127 / m)). A last short block is as if filled with
 * zeros. What lies between the offsets and the row's end means nothing. */
typedef void hr_quantize_fn(const float *x, size_t k, size_t begin, size_t end, void *row);

/* How far a block of 32 weights is from an int8 grid, for each of `count` scales, which may be
 * 0 of them: inverse = 1 / scale; q = (x * inverse + R) - R with R = 1.5 * 2^23, x * inverse to
 * nearest even where it is below 2^22; q > -128 ? q : -128, then q < 127 ? q : 127;
 * e = x - scale * q, error = the sum of e * e, or of weight * (e * e) where weight (32
 * values) is not NULL: eight sums, sum j over i mod 8 = j, ascending from +0; then
 * ((0 + 4) + (2 + 6)) + ((1 + 5) + (3 + 7)). */
typedef void hr_grid_errors_fn(const float *x, const float *weight, const float *scales,
                               size_t count, float *errors);

/* y = (x * r) * gain with r = 1 / sqrt(sum16(x * x by fma) / n + eps). y may be
 * x. gain may be NULL: y = x * r. */
typedef void hr_rms_norm_fn(const float *x, size_t n, const float *gain, float eps, float *y);

/* mean = sum16(x) / n; d = x - mean; r = 1 / sqrt(sum16(d * d by fma) / n + eps);
 * t = d * r; y = t, t * gain, t + shift or fma(t, gain, shift) as gain and shift
 * are NULL or not. y may be x. */
typedef void hr_layer_norm_fn(const float *x, size_t n, const float *gain, const float *shift,
                              float eps, float *y);

/* One query of attention: a token row of one head. */
typedef struct hr_query {
  const float *q;     /* [width], already multiplied by the score scale */
  uint32_t first;     /* visible keys: cache positions first <= j < end */
  uint32_t end;
  int32_t position;   /* of the query, for the ALiBi distance */
  float slope;        /* ALiBi slope of the head, 0 without */
  float *max;         /* results for one block of keys: m, l (one float each) */
  float *sum;
  float *out;         /* o, [value width rounded up to 16] */
} hr_query;

/* Attention of several queries to one block of keys of one key/value head.
 * Visible keys are those of [first, end) that lie in the block; a query that
 * sees none gets max -infinity, sum 0 and out zero.
 *   s_j = chain over i ascending of fma(q_i, k_ji, s) from +0
 *   with cap: s = cap * tanh(s / cap);  then s = fma(-slope, |position - j|, s), where the
 *   distance is exact and then rounded to binary32
 *   max = the largest visible s, in ascending order `s > m ? s : m` from -infinity, plus +0
 *   p_j = exp(s_j - max);  sum = sum16 over visible j with lane j mod 16
 *   out_i = chain over visible j ascending of fma(p_j, v_ji, out) from +0 */
typedef struct hr_attend {
  const void *keys;     /* of the block, see layout.h; what is read ahead lies behind them */
  const void *values;
  const void *next_keys;   /* of the block that is likely to come next, which a kernel may fetch */
  const void *next_values; /* meanwhile: */
  uint32_t next_count;     /* so many of its first keys; 0: not known, those may be NULL */
  uint32_t width;       /* d */
  uint32_t block;       /* keys block * 256 .. block * 256 + 255 */
  float cap;            /* 0: none */
  const hr_query *queries;
  size_t count;
} hr_attend;

typedef void hr_attend_fn(const hr_attend *attend);

/* Merges a later block's results (bm, bl, bo) of some queries into running ones, each with n
 * elements of o, a multiple of 16, query behind query: m' = bm > m ? bm : m; a = exp(m - m'),
 * b = exp(bm - m'); l = fma(bl, b, l * a); o = fma(bo, b, o * a). */
typedef void hr_attend_merge_fn(size_t queries, float *m, float *l, float *o, const float *bm,
                                const float *bl, const float *bo, size_t n);

/* Merges the results of some blocks of one query, at least one, m[blocks], l[blocks] and
 * o[blocks][n], n a multiple of 16, into those of the first: each later one as attend_merge does,
 * ascending. The later ones stay as they are. */
typedef void hr_attend_join_fn(size_t blocks, float *m, float *l, float *o, size_t n);

/* Puts one key (value) of width floats into the keys (values) of a block, at a position counted
 * from the block's first, rounded to the cache's type to nearest even. What lies past a value's
 * width is not touched. */
typedef void hr_store_fn(const float *x, size_t width, void *block, size_t position);

/* Rotates pairs of x, [2 * half], in place by the angles of one position: c = cos[i], s = sin[i],
 *   y0 = fma(x0, c, -(x1 * s));  y1 = fma(x1, c, x0 * s)
 * for pairs (2i, 2i + 1) or (i, i + half), 0 <= i < half. */
typedef void hr_rope_fn(float *x, const float *cos, const float *sin, size_t half);

/* y[i] = f(x[i]), or the rounded f(x[i]) * up[i] when up is not NULL. y may be x or up.
 *   sigmoid, exp, tanh, erf: the sequences in kernels/portable/elementary.h
 *   relu x < 0 ? 0 : x + 0   relu2 relu(x) * relu(x)   silu x * sigmoid(x)
 *   gelu_erf  (0.5 * x) * (1 + erf(x * 0.70710678))
 *   gelu_tanh x * sigmoid(2 u), u = 0.79788456 * fma(0.044715 * x, x * x, x), the tanh form
 *             in other words; gelu_quick x * sigmoid(1.702 * x) */
typedef void hr_activation_fn(const float *x, const float *up, float *y, size_t n);

/* y[i] = f(x[i]); y may be x. */
typedef void hr_map_fn(const float *x, float *y, size_t n);

/* In place: x[i] = exp(x[i] - m) / s, m = largest x by `x > m ? x : m` from -infinity plus
 * +0, s = sum16 of the exponentials. */
typedef void hr_softmax_fn(float *x, size_t n);

/* y[i] = y[i] + x[i];  y[i] = y[i] * factor;  y[i] = y[i] / divisor. */
typedef void hr_add_fn(float *y, const float *x, size_t n);
typedef void hr_scale_fn(float *y, float factor, size_t n);

/* Conversions of fp16 or bf16, to nearest even; widening is exact. Beyond the largest is infinity,
 * below the smallest normal number are fp16's and bf16's denormals. */
typedef void hr_widen_fn(const uint16_t *x, float *y, size_t n);
typedef void hr_narrow_fn(const float *x, uint16_t *y, size_t n);

/* Every slot: X(type, name). */
#define HR_KERNEL_SLOTS(X)             \
  X(hr_product_fn, product_f32)        \
  X(hr_product_fn, product_f16)        \
  X(hr_product_fn, product_bf16)       \
  X(hr_product_fn, product_q8)         \
  X(hr_product_fn, product_one_f32)  /* the same for rows == 1 */ \
  X(hr_product_fn, product_one_f16)    \
  X(hr_product_fn, product_one_bf16)   \
  X(hr_product_fn, product_one_q8)     \
  X(hr_pack_fn, pack_f32)              \
  X(hr_pack_fn, pack_f16)              \
  X(hr_pack_fn, pack_bf16)             \
  X(hr_pack_fn, pack_q8)               \
  X(hr_quantize_fn, quantize)          \
  X(hr_grid_errors_fn, grid_errors)    \
  X(hr_rms_norm_fn, rms_norm)          \
  X(hr_layer_norm_fn, layer_norm)      \
  X(hr_attend_fn, attend_f32)          \
  X(hr_attend_fn, attend_f16)          \
  X(hr_attend_merge_fn, attend_merge)  \
  X(hr_attend_join_fn, attend_join)    \
  X(hr_store_fn, store_key_f32)        \
  X(hr_store_fn, store_key_f16)        \
  X(hr_store_fn, store_value_f32)      \
  X(hr_store_fn, store_value_f16)      \
  X(hr_rope_fn, rope_pairs)          /* (2i, 2i + 1) */ \
  X(hr_rope_fn, rope_halves)         /* (i, i + half) */ \
  X(hr_activation_fn, relu)            \
  X(hr_activation_fn, relu2)           \
  X(hr_activation_fn, silu)            \
  X(hr_activation_fn, gelu_erf)        \
  X(hr_activation_fn, gelu_tanh)       \
  X(hr_activation_fn, gelu_quick)      \
  X(hr_map_fn, exp)                    \
  X(hr_map_fn, tanh)                   \
  X(hr_map_fn, erf)                    \
  X(hr_map_fn, sigmoid)                \
  X(hr_softmax_fn, softmax)            \
  X(hr_add_fn, add)                    \
  X(hr_scale_fn, scale)                \
  X(hr_scale_fn, divide)               \
  X(hr_widen_fn, widen_f16)            \
  X(hr_widen_fn, widen_bf16)           \
  X(hr_narrow_fn, narrow_f16)          \
  X(hr_narrow_fn, narrow_bf16)

typedef struct hr_kernels {
  const char *isa; /* the highest tier that is in the table */
#define HR_SLOT(type, slot) type *slot;
  HR_KERNEL_SLOTS(HR_SLOT)
#undef HR_SLOT
  struct { /* name of the function in each slot, "product_q8__avx2" */
#define HR_SLOT(type, slot) const char *slot;
    HR_KERNEL_SLOTS(HR_SLOT)
#undef HR_SLOT
  } name;
} hr_kernels;

/* Puts <slot>__<tier> into a slot and notes its name. */
#define HR_KERNEL_SET(table, slot, tier)          \
  do {                                            \
    (table)->slot = hr_##slot##__##tier;          \
    (table)->name.slot = #slot "__" #tier;        \
  } while (0)

/* The slot for a panel type, for one row or for many. */
static inline hr_product_fn *hr_kernels_product(const hr_kernels *t, hr_panel_type type,
                                                size_t rows) {
  switch (type) {
    case HR_PANEL_F32: return rows == 1 ? t->product_one_f32 : t->product_f32;
    case HR_PANEL_F16: return rows == 1 ? t->product_one_f16 : t->product_f16;
    case HR_PANEL_BF16: return rows == 1 ? t->product_one_bf16 : t->product_bf16;
    case HR_PANEL_Q8: return rows == 1 ? t->product_one_q8 : t->product_q8;
    case HR_PANEL_TYPES: break;
  }
  return 0;
}

static inline hr_pack_fn *hr_kernels_pack(const hr_kernels *t, hr_panel_type type) {
  switch (type) {
    case HR_PANEL_F32: return t->pack_f32;
    case HR_PANEL_F16: return t->pack_f16;
    case HR_PANEL_BF16: return t->pack_bf16;
    case HR_PANEL_Q8: return t->pack_q8;
    case HR_PANEL_TYPES: break;
  }
  return 0;
}

#endif
