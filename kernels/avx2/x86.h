/* SPDX-License-Identifier: MIT
 * Kernels of the x86 tiers. A tier defines only some of these; its table file
 * says which. */
#ifndef HR_KERNELS_AVX2_X86_H
#define HR_KERNELS_AVX2_X86_H

#include "kernels/kernels.h"

#define HR_SLOT(type, slot) \
  type hr_##slot##__avx2, hr_##slot##__zen3, hr_##slot##__avxvnni, hr_##slot##__avx512vnni, \
      hr_##slot##__zen4;
HR_KERNEL_SLOTS(HR_SLOT)
#undef HR_SLOT

/* What the tiers with kernels of their own width override: all but packing. */
#define HR_X86_SLOTS(X) \
  X(product_f32)                      \
  X(product_f16)                      \
  X(product_bf16)                     \
  X(product_q8)                       \
  X(product_one_f32)                  \
  X(product_one_f16)                  \
  X(product_one_bf16)                 \
  X(product_one_q8)                   \
  X(quantize)                         \
  X(grid_errors)                      \
  X(rms_norm)                         \
  X(layer_norm)                       \
  X(attend_f32)                       \
  X(attend_f16)                       \
  X(attend_merge)                     \
  X(attend_join)                      \
  X(store_key_f32)                    \
  X(store_key_f16)                    \
  X(store_value_f32)                  \
  X(store_value_f16)                  \
  X(rope_pairs)                       \
  X(rope_halves)                      \
  X(relu)                             \
  X(relu2)                            \
  X(silu)                             \
  X(gelu_erf)                         \
  X(gelu_tanh)                        \
  X(gelu_quick)                       \
  X(exp)                              \
  X(tanh)                             \
  X(erf)                              \
  X(sigmoid)                          \
  X(softmax)                          \
  X(add)                              \
  X(scale)                            \
  X(divide)                           \
  X(widen_f16)                        \
  X(widen_bf16)                       \
  X(narrow_f16)                       \
  X(narrow_bf16)

void hr_avx2_fill(hr_kernels *table);
void hr_avxvnni_fill(hr_kernels *table);
void hr_zen3_fill(hr_kernels *table);
void hr_avx512vnni_fill(hr_kernels *table);
void hr_zen4_fill(hr_kernels *table);

/* Loops whose count is a constant and whose arrays are registers: clang makes these of them only
 * when it is told that nothing of the loop stays. */
#ifdef __clang__
#define HR_UNROLL _Pragma("clang loop unroll(full)")
#else
#define HR_UNROLL _Pragma("GCC unroll 32")
#endif
#define HR_INLINE __attribute__((always_inline)) static inline

/* Makes the compiler have a value in a register here and now. */
#define HR_IN_REGISTER(v) __asm__("" : "+v"(v))
/* The same for an address: else it is made anew from its parts wherever it is used. */
#define HR_IN_POINTER(at) __asm__("" : "+r"(at))

#endif
