/* SPDX-License-Identifier: MIT
 * The aarch64 tiers: what each of them overrides. Every tier is a library of its
 * own, compiled for just the features that its name says. */
#ifndef HR_KERNELS_NEON_H
#define HR_KERNELS_NEON_H

#include "kernels/kernels.h"

/* Armv8.0, which every aarch64 CPU has. */
#define HR_NEON_SLOTS(X)               \
  X(hr_product_fn, product_f32)        \
  X(hr_product_fn, product_f16)        \
  X(hr_product_fn, product_bf16)       \
  X(hr_product_fn, product_q8)         \
  X(hr_product_fn, product_one_f32)    \
  X(hr_product_fn, product_one_f16)    \
  X(hr_product_fn, product_one_bf16)   \
  X(hr_product_fn, product_one_q8)     \
  X(hr_pack_fn, pack_f32)              \
  X(hr_pack_fn, pack_f16)              \
  X(hr_pack_fn, pack_bf16)             \
  X(hr_pack_fn, pack_q8)               \
  X(hr_quantize_fn, quantize)          \
  X(hr_rms_norm_fn, rms_norm)          \
  X(hr_layer_norm_fn, layer_norm)      \
  X(hr_attend_fn, attend_f32)          \
  X(hr_attend_fn, attend_f16)          \
  X(hr_attend_merge_fn, attend_merge)  \
  X(hr_attend_join_fn, attend_join)    \
  X(hr_store_fn, store_key_f16)        \
  X(hr_store_fn, store_value_f16)      \
  X(hr_rope_fn, rope_pairs)            \
  X(hr_rope_fn, rope_halves)           \
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

#define HR_SLOT(type, slot) type hr_##slot##__neon;
HR_NEON_SLOTS(HR_SLOT)
#undef HR_SLOT

/* Armv8.2 with the dot product instructions. */
hr_product_fn hr_product_q8__dotprod, hr_product_one_q8__dotprod;

/* The same with int8 matrix multiplication. One row gains nothing from it. */
hr_product_fn hr_product_q8__i8mm;

void hr_neon_fill(hr_kernels *table);
void hr_dotprod_fill(hr_kernels *table);
void hr_i8mm_fill(hr_kernels *table);

#endif
