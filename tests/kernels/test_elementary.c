/* SPDX-License-Identifier: MIT
 * The definition itself: how far exp, tanh, erf and sigmoid are from the true
 * values, and the conversions and the fma against independent ones. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "kernels/portable/elementary.h"
#include "kernels/portable/half.h"
#include "tests/kernels/elementary_error.h"

static void measure(const hr_elementary *f) {
  enum { PRIME = 1021 }; /* all last digits */
  hr_elementary_error e = hr_elementary_measure(f, 0, (uint64_t)1 << 32, PRIME);
  fprintf(stderr, "%s: at most %.3f ulp, at %a\n", f->name, e.worst, (double)e.at);
  cr_expect(e.worst <= f->bound, "%s: %.3f ulp at %a", f->name, e.worst, (double)e.at);
  cr_expect(e.arguments > 1000000, "%s: %llu arguments", f->name,
            (unsigned long long)e.arguments);
}

Test(elementary, exp_within_1_ulp) {
  measure(&hr_elementary_functions[0]);
}
Test(elementary, tanh_within_one_and_a_half_ulp) {
  measure(&hr_elementary_functions[1]);
}
Test(elementary, erf_within_one_and_a_half_ulp) {
  measure(&hr_elementary_functions[2]);
}
Test(elementary, sigmoid_within_one_and_a_half_ulp) {
  measure(&hr_elementary_functions[3]);
}

Test(elementary, edges) {
  const float infinity = __builtin_inff();
  cr_expect_eq(hr_exp(0.0f), 1.0f);
  cr_expect_eq(hr_exp(infinity), infinity);
  cr_expect_eq(hr_float_bits(hr_exp(-infinity)), 0u);
  cr_expect_eq(hr_float_bits(hr_exp(-88.0f)), 0u);
  cr_expect(isfinite(hr_exp(HR_EXP_OVERFLOW)));
  cr_expect_eq(hr_exp(nextafterf(HR_EXP_OVERFLOW, infinity)), infinity);
  cr_expect(hr_exp(HR_EXP_UNDERFLOW) >= 0x1p-126f);
  cr_expect_eq(hr_tanh(infinity), 1.0f);
  cr_expect_eq(hr_tanh(-infinity), -1.0f);
  cr_expect_eq(hr_float_bits(hr_tanh(-0.0f)), 0u); /* the sequence gives +0 */
  cr_expect_eq(hr_float_bits(hr_tanh(0.0f)), 0u);
  cr_expect_eq(hr_erf(infinity), 1.0f);
  cr_expect_eq(hr_erf(4.0f), 1.0f);
  cr_expect_eq(hr_erf(-infinity), -hr_erf(infinity));
  cr_expect_eq(hr_float_bits(hr_erf(-0.0f)), 0x80000000u);
  cr_expect_eq(hr_sigmoid(0.0f), 0.5f);
  cr_expect_eq(hr_sigmoid(infinity), 1.0f);
  cr_expect_eq(hr_float_bits(hr_sigmoid(-infinity)), 0u);
  for (size_t i = 0; i < HR_ELEMENTARY_FUNCTIONS; i++)
    cr_expect(isnan(hr_elementary_functions[i].function(__builtin_nanf(""))));
}

/* fp16 from its definition, in binary64. */
static double half_value(unsigned h) {
  int exponent = (int)(h >> 10 & 31u);
  double fraction = (double)(h & 1023u) / 1024;
  double magnitude = exponent == 31 ? (h & 1023u ? (double)NAN : (double)INFINITY)
                     : exponent ? ldexp(1 + fraction, exponent - 15) : ldexp(fraction, -14);
  return h & 0x8000u ? -magnitude : magnitude;
}

Test(conversion, all_halves_widen) {
  for (unsigned h = 0; h < 65536; h++) {
    double truth = half_value(h), got = (double)hr_widen_half((uint16_t)h);
    cr_assert(isnan(truth) ? isnan(got) : got == truth && signbit(got) == signbit(truth), "%04x",
              h);
    uint32_t brain = hr_float_bits(hr_widen_brain((uint16_t)h));
    cr_assert_eq(brain, h << 16);
  }
}

/* Every number narrows to itself; the middle between neighbours to the even
 * one; a hair beside the middle to the nearer one. */
Test(conversion, halves_narrow_to_the_nearest) {
  for (unsigned h = 0; h < 0x7c00; h++) {
    unsigned up = h + 1, even = h & 1 ? up : h;
    float low = (float)half_value(h);
    float high =
        up == 0x7c00 ? 65536.0f : (float)half_value(up); /* infinity begins half a step on */
    float middle = (low + high) / 2;
    cr_assert_eq(hr_narrow_half(low), h);
    cr_assert_eq(hr_narrow_half(middle), even, "%a", (double)middle);
    cr_assert_eq(hr_narrow_half(nextafterf(middle, 0)), h);
    cr_assert_eq(hr_narrow_half(nextafterf(middle, 1e9f)), up);
    cr_assert_eq(hr_narrow_half(-middle), even | 0x8000u);
  }
  cr_assert_eq(hr_narrow_half(INFINITY), 0x7c00);
  cr_assert_eq(hr_narrow_half(-1e30f), 0xfc00);
  cr_assert_eq(hr_narrow_half(0x1p-149f), 0);
  cr_assert((hr_narrow_half(NAN) & 0x7fff) > 0x7c00);
}

Test(conversion, brains_narrow_to_the_nearest) {
  for (uint32_t b = 0; b < 0x7f80; b++) {
    uint32_t even = b & 1 ? b + 1 : b;
    cr_assert_eq(hr_narrow_brain(hr_float_from_bits(b << 16)), b);
    cr_assert_eq(hr_narrow_brain(hr_float_from_bits(b << 16 | 0x8000u)), even);
    cr_assert_eq(hr_narrow_brain(hr_float_from_bits(b << 16 | 0x7fffu)), b);
    cr_assert_eq(hr_narrow_brain(hr_float_from_bits(b << 16 | 0x8001u)), b + 1);
    cr_assert_eq(hr_narrow_brain(hr_float_from_bits(b << 16 | 0x80008000u)), even | 0x8000u);
  }
  cr_assert_eq(hr_narrow_brain(INFINITY), 0x7f80);
  cr_assert((hr_narrow_brain(hr_float_from_bits(0x7f800001u)) & 0x7fff) > 0x7f80);
}

/* The fma of targets without the instruction, against the C library's. */
Test(fma, is_the_librarys) {
  uint64_t state = 1;
  for (int i = 0; i < 4000000; i++) {
    uint32_t u[3];
    for (int j = 0; j < 3; j++) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      u[j] = (uint32_t)(state >> 32);
      /* Near exponents, or few bits, so that ties and cancellation occur. */
      if (i & 1) u[j] = (u[j] & 0x81ffffffu) | 0x3e000000u;
      if (i & 2) u[j] &= 0xfffff000u;
      if (i & 4) u[j] = (u[j] & 0xffff0000u) | (i & 8 ? 1u : 0u);
    }
    float a = hr_float_from_bits(u[0]), b = hr_float_from_bits(u[1]), c = hr_float_from_bits(u[2]);
    float truth = fmaf(a, b, c), got = hr_fmaf(a, b, c), odd = hr_fmaf_to_odd(a, b, c);
    cr_assert(isnan(truth) ? isnan(got) : hr_float_bits(got) == hr_float_bits(truth),
              "fma(%a, %a, %a) is %a, not %a", (double)a, (double)b, (double)c, (double)got,
              (double)truth);
    cr_assert(isnan(truth) ? isnan(odd) : hr_float_bits(odd) == hr_float_bits(truth),
              "to odd: fma(%a, %a, %a) is %a, not %a", (double)a, (double)b, (double)c, (double)odd,
              (double)truth);
  }
}

/* The same for integers times numbers: with few bits there are ties, with small
 * exponents results below the normal range. */
Test(fma, of_integers_is_the_librarys) {
  uint64_t state = 2;
  for (int i = 0; i < 400000; i++) {
    int32_t a[HR_LANES];
    float b[HR_LANES], c[HR_LANES], got[HR_LANES];
    for (int lane = 0; lane < HR_LANES; lane++) {
      uint32_t u[3];
      for (int j = 0; j < 3; j++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        u[j] = (uint32_t)(state >> 32);
        if (i & 2) u[j] = (u[j] & 0x81ffffffu) | (i & 1 ? 0x3e000000u : 0u);
        if (j && i & 4) u[j] &= 0xfffff000u;
        if (j && i & 8) u[j] = (u[j] & 0xffff0000u) | (i & 16 ? 1u : 0u);
      }
      a[lane] = (int32_t)(u[0] % 1040385u) - 520192;
      b[lane] = hr_float_from_bits(u[1]);
      c[lane] = got[lane] = hr_float_from_bits(u[2]);
    }
    hr_fma16_integers(a, b, got);
    for (int lane = 0; lane < HR_LANES; lane++) {
      float truth = fmaf((float)a[lane], b[lane], c[lane]);
      cr_assert(isnan(truth) ? isnan(got[lane]) : hr_float_bits(got[lane]) == hr_float_bits(truth),
                "fma(%d, %a, %a) is %a, not %a", a[lane], (double)b[lane], (double)c[lane],
                (double)got[lane], (double)truth);
    }
  }
}
