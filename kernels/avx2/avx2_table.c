/* SPDX-License-Identifier: MIT */
#include "kernels/avx2/x86.h"

#define SET(slot) HR_KERNEL_SET(table, slot, avx2)

void hr_avx2_fill(hr_kernels *table) {
  SET(product_f32);
  SET(product_f16);
  SET(product_bf16);
  SET(product_q8);
  SET(product_one_f32);
  SET(product_one_f16);
  SET(product_one_bf16);
  SET(product_one_q8);
  SET(quantize);
  SET(rms_norm);
  SET(layer_norm);
  SET(attend_f32);
  SET(attend_f16);
  SET(attend_merge);
  SET(store_key_f32);
  SET(store_key_f16);
  SET(store_value_f32);
  SET(store_value_f16);
  SET(rope_pairs);
  SET(rope_halves);
  SET(relu);
  SET(relu2);
  SET(silu);
  SET(gelu_erf);
  SET(gelu_tanh);
  SET(gelu_quick);
  SET(exp);
  SET(tanh);
  SET(erf);
  SET(sigmoid);
  SET(softmax);
  SET(add);
  SET(scale);
  SET(divide);
  SET(widen_f16);
  SET(widen_bf16);
  SET(narrow_f16);
  SET(narrow_bf16);
}
