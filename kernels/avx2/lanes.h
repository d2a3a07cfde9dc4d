/* SPDX-License-Identifier: MIT
 * Sixteen floats, the width in which the arithmetic is defined: one AVX-512
 * register or two AVX2 ones (with HR_HALVES these with AVX-512 too). The row, activation and
 * attention kernels are written on these, once for both. */
#ifndef HR_KERNELS_AVX2_LANES_H
#define HR_KERNELS_AVX2_LANES_H

#include <immintrin.h>

#include "kernels/avx2/x86.h"

#if defined(__AVX512F__) && !defined(HR_HALVES)

typedef __m512 lanes;
typedef __m512i ints;
typedef __mmask16 mask; /* one bit a lane */

HR_INLINE lanes lanes_set(float x) { return _mm512_set1_ps(x); }
HR_INLINE lanes lanes_load(const float *x) { return _mm512_loadu_ps(x); }
/* One number (four bytes) in all lanes, in a register: else it is read again as
 * an operand of each instruction that uses it. */
HR_INLINE lanes lanes_spread(const float *x) {
  lanes v = _mm512_set1_ps(*x);
  HR_IN_REGISTER(v);
  return v;
}
HR_INLINE ints ints_spread(const int8_t *x) {
  int32_t four;
  __builtin_memcpy(&four, x, 4);
  ints v = _mm512_set1_epi32(four);
  HR_IN_REGISTER(v);
  return v;
}
HR_INLINE void lanes_store(float *y, lanes v) { _mm512_storeu_ps(y, v); }
HR_INLINE mask mask_first(size_t n) { return (mask)((1u << n) - 1u); }
HR_INLINE mask mask_not(mask a, mask b) { return (mask)(a & ~b); }
/* Lanes outside the mask are +0 and their memory is not touched. */
HR_INLINE lanes lanes_load_part(const float *x, mask m) { return _mm512_maskz_loadu_ps(m, x); }
HR_INLINE void lanes_store_part(float *y, lanes v, mask m) { _mm512_mask_storeu_ps(y, m, v); }

HR_INLINE lanes lanes_add(lanes a, lanes b) { return _mm512_add_ps(a, b); }
HR_INLINE lanes lanes_sub(lanes a, lanes b) { return _mm512_sub_ps(a, b); }
HR_INLINE lanes lanes_mul(lanes a, lanes b) { return _mm512_mul_ps(a, b); }
HR_INLINE lanes lanes_div(lanes a, lanes b) { return _mm512_div_ps(a, b); }
HR_INLINE lanes lanes_fma(lanes a, lanes b, lanes c) { return _mm512_fmadd_ps(a, b, c); }
HR_INLINE lanes lanes_fnma(lanes a, lanes b, lanes c) { return _mm512_fnmadd_ps(a, b, c); }
/* a > b ? a : b and a < b ? a : b, for NaN and zeros too. */
HR_INLINE lanes lanes_max(lanes a, lanes b) { return _mm512_max_ps(a, b); }
HR_INLINE lanes lanes_min(lanes a, lanes b) { return _mm512_min_ps(a, b); }

HR_INLINE mask lanes_less(lanes a, lanes b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
HR_INLINE mask lanes_at_least(lanes a, lanes b) { return _mm512_cmp_ps_mask(a, b, _CMP_GE_OQ); }
HR_INLINE mask lanes_is_nan(lanes a) { return _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q); }
HR_INLINE lanes lanes_select(mask m, lanes yes, lanes no) { return _mm512_mask_mov_ps(no, m, yes); }
HR_INLINE lanes lanes_keep(mask m, lanes v) { return _mm512_maskz_mov_ps(m, v); } /* others +0 */
HR_INLINE lanes lanes_drop(mask m, lanes v) { return _mm512_maskz_mov_ps((mask)~m, v); }

HR_INLINE ints lanes_bits(lanes v) { return _mm512_castps_si512(v); }
HR_INLINE lanes lanes_of_bits(ints v) { return _mm512_castsi512_ps(v); }
HR_INLINE ints ints_set(int32_t x) { return _mm512_set1_epi32(x); }
HR_INLINE ints ints_add(ints a, ints b) { return _mm512_add_epi32(a, b); }
HR_INLINE ints ints_sub(ints a, ints b) { return _mm512_sub_epi32(a, b); }
HR_INLINE ints ints_and(ints a, ints b) { return _mm512_and_si512(a, b); }
HR_INLINE ints ints_or(ints a, ints b) { return _mm512_or_si512(a, b); }
HR_INLINE ints ints_max(ints a, ints b) { return _mm512_max_epi32(a, b); }
HR_INLINE ints ints_abs(ints a) { return _mm512_abs_epi32(a); }
#define ints_shift_left(a, n) _mm512_slli_epi32(a, n)
#define ints_shift_right(a, n) _mm512_srli_epi32(a, n)
HR_INLINE lanes lanes_of_ints(ints a) { return _mm512_cvtepi32_ps(a); }
/* p * 2^n where that is a normal number; NaN for NaN. The low bits of t are n. */
HR_INLINE lanes lanes_times_power(lanes p, lanes n, lanes t) {
  (void)t;
  return _mm512_scalef_ps(p, n);
}
HR_INLINE ints ints_count(void) {
  return _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}

HR_INLINE lanes lanes_load_half(const uint16_t *x) {
  return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)x));
}
HR_INLINE lanes lanes_load_brain(const uint16_t *x) {
  __m256i h = _mm256_loadu_si256((const __m256i *)(const void *)x);
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}
/* Sixteen 16-bit numbers: rounded to fp16; the low halves of ints. */
HR_INLINE __m256i lanes_to_half(lanes v) {
  return _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
HR_INLINE __m256i ints_to_16(ints v) { return _mm512_cvtepi32_epi16(v); }
/* To nearest even, of what an int32 holds. */
HR_INLINE ints ints_of_lanes(lanes v) { return _mm512_cvtps_epi32(v); }
/* Four times sixteen, each within -128..127, as bytes; the sums of four such bytes. */
HR_INLINE ints ints_to_8(ints a, ints b, ints c, ints d) {
  const __m512i at = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  ints words = _mm512_packs_epi16(_mm512_packs_epi32(a, b), _mm512_packs_epi32(c, d));
  return _mm512_permutexvar_epi32(at, words);
}
HR_INLINE ints ints_sum_bytes(ints bytes) {
  return _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_set1_epi8(1), bytes);
}
/* At a multiple of 32. */
HR_INLINE void ints_store(void *at, ints a) { _mm512_storeu_si512(at, a); }

HR_INLINE __m256 lanes_low(lanes v) { return _mm512_castps512_ps256(v); }
HR_INLINE __m256 lanes_high(lanes v) { return _mm512_extractf32x8_ps(v, 1); }
HR_INLINE __m256i ints_low(ints v) { return _mm512_castsi512_si256(v); }
HR_INLINE __m256i ints_high(ints v) { return _mm512_extracti64x4_epi64(v, 1); }

/* Pairs (2i, 2i + 1): exchanged; each of 8 numbers twice; a * b -+ c. */
HR_INLINE lanes lanes_swap_pairs(lanes v) { return _mm512_permute_ps(v, 0xb1); }
HR_INLINE lanes lanes_load_twice(const float *x) {
  const __m512i at = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
  return _mm512_permutexvar_ps(at, _mm512_castps256_ps512(_mm256_loadu_ps(x)));
}
HR_INLINE lanes lanes_fma_sub_add(lanes a, lanes b, lanes c) { return _mm512_fmaddsub_ps(a, b, c); }

#else

typedef struct lanes {
  __m256 low, high;
} lanes;
typedef struct ints {
  __m256i low, high;
} ints;
typedef ints mask; /* all bits of a lane or none */

HR_INLINE lanes lanes_set(float x) { return (lanes){_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
HR_INLINE lanes lanes_load(const float *x) {
  return (lanes){_mm256_loadu_ps(x), _mm256_loadu_ps(x + 8)};
}
/* One number (four bytes) in all lanes. */
HR_INLINE lanes lanes_spread(const float *x) { return lanes_set(*x); }
HR_INLINE ints ints_load(const void *at) {
  const __m256i *v = (const __m256i *)at;
  return (ints){_mm256_load_si256(v), _mm256_load_si256(v + 1)};
}
HR_INLINE void ints_store(void *at, ints a) {
  _mm256_store_si256((__m256i *)at, a.low);
  _mm256_store_si256((__m256i *)at + 1, a.high);
}
HR_INLINE ints ints_spread(const int8_t *x) {
  int32_t four;
  __builtin_memcpy(&four, x, 4);
  return (ints){_mm256_set1_epi32(four), _mm256_set1_epi32(four)};
}
HR_INLINE void lanes_store(float *y, lanes v) {
  _mm256_storeu_ps(y, v.low);
  _mm256_storeu_ps(y + 8, v.high);
}
HR_INLINE ints ints_count(void) {
  return (ints){_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7),
                _mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15)};
}
HR_INLINE mask mask_first(size_t n) {
  __m256i limit = _mm256_set1_epi32((int)n);
  ints count = ints_count();
  return (mask){_mm256_cmpgt_epi32(limit, count.low), _mm256_cmpgt_epi32(limit, count.high)};
}
HR_INLINE mask mask_not(mask a, mask b) {
  return (mask){_mm256_andnot_si256(b.low, a.low), _mm256_andnot_si256(b.high, a.high)};
}
/* Lanes outside the mask are +0 and their memory is not touched. */
HR_INLINE lanes lanes_load_part(const float *x, mask m) {
  return (lanes){_mm256_maskload_ps(x, m.low), _mm256_maskload_ps(x + 8, m.high)};
}
HR_INLINE void lanes_store_part(float *y, lanes v, mask m) {
  _mm256_maskstore_ps(y, m.low, v.low);
  _mm256_maskstore_ps(y + 8, m.high, v.high);
}

#define HR_LANES_2(name, instruction)                                                  \
  HR_INLINE lanes name(lanes a, lanes b) {                                             \
    return (lanes){instruction(a.low, b.low), instruction(a.high, b.high)};            \
  }
#define HR_LANES_3(name, instruction)                                                  \
  HR_INLINE lanes name(lanes a, lanes b, lanes c) {                                    \
    return (lanes){instruction(a.low, b.low, c.low), instruction(a.high, b.high, c.high)}; \
  }
#define HR_INTS_2(name, instruction)                                                   \
  HR_INLINE ints name(ints a, ints b) {                                                \
    return (ints){instruction(a.low, b.low), instruction(a.high, b.high)};             \
  }
HR_LANES_2(lanes_add, _mm256_add_ps)
HR_LANES_2(lanes_sub, _mm256_sub_ps)
HR_LANES_2(lanes_mul, _mm256_mul_ps)
HR_LANES_2(lanes_div, _mm256_div_ps)
HR_LANES_3(lanes_fma, _mm256_fmadd_ps)
HR_LANES_3(lanes_fnma, _mm256_fnmadd_ps)
/* a > b ? a : b and a < b ? a : b, for NaN and zeros too. */
HR_LANES_2(lanes_max, _mm256_max_ps)
HR_LANES_2(lanes_min, _mm256_min_ps)
HR_LANES_3(lanes_fma_sub_add, _mm256_fmaddsub_ps)
HR_INTS_2(ints_add, _mm256_add_epi32)
HR_INTS_2(ints_sub, _mm256_sub_epi32)
HR_INTS_2(ints_and, _mm256_and_si256)
HR_INTS_2(ints_or, _mm256_or_si256)
HR_INTS_2(ints_max, _mm256_max_epi32)

HR_INLINE ints lanes_bits(lanes v) {
  return (ints){_mm256_castps_si256(v.low), _mm256_castps_si256(v.high)};
}
HR_INLINE lanes lanes_of_bits(ints v) {
  return (lanes){_mm256_castsi256_ps(v.low), _mm256_castsi256_ps(v.high)};
}
#define HR_COMPARE(a, b, how) \
  lanes_bits((lanes){_mm256_cmp_ps(a.low, b.low, how), _mm256_cmp_ps(a.high, b.high, how)})
HR_INLINE mask lanes_less(lanes a, lanes b) { return HR_COMPARE(a, b, _CMP_LT_OQ); }
HR_INLINE mask lanes_at_least(lanes a, lanes b) { return HR_COMPARE(a, b, _CMP_GE_OQ); }
HR_INLINE mask lanes_is_nan(lanes a) { return HR_COMPARE(a, a, _CMP_UNORD_Q); }
HR_INLINE lanes lanes_select(mask m, lanes yes, lanes no) {
  lanes by = lanes_of_bits(m);
  return (lanes){_mm256_blendv_ps(no.low, yes.low, by.low),
                 _mm256_blendv_ps(no.high, yes.high, by.high)};
}
HR_INLINE lanes lanes_keep(mask m, lanes v) { /* others +0 */
  return lanes_of_bits(ints_and(m, lanes_bits(v)));
}
HR_INLINE lanes lanes_drop(mask m, lanes v) {
  lanes by = lanes_of_bits(m);
  return (lanes){_mm256_andnot_ps(by.low, v.low), _mm256_andnot_ps(by.high, v.high)};
}

HR_INLINE ints ints_set(int32_t x) { return (ints){_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
HR_INLINE ints ints_abs(ints a) {
  return (ints){_mm256_abs_epi32(a.low), _mm256_abs_epi32(a.high)};
}
#define ints_shift_left(a, n) ((ints){_mm256_slli_epi32(a.low, n), _mm256_slli_epi32(a.high, n)})
#define ints_shift_right(a, n) ((ints){_mm256_srli_epi32(a.low, n), _mm256_srli_epi32(a.high, n)})
HR_INLINE lanes lanes_of_ints(ints a) {
  return (lanes){_mm256_cvtepi32_ps(a.low), _mm256_cvtepi32_ps(a.high)};
}
/* p * 2^n where that is a normal number; NaN for NaN. The low bits of t are n. */
HR_INLINE lanes lanes_times_power(lanes p, lanes n, lanes t) {
  (void)n;
  ints y = ints_add(lanes_bits(p), ints_shift_left(lanes_bits(t), 23));
  return lanes_of_bits(ints_or(y, lanes_is_nan(p)));
}

HR_INLINE lanes lanes_load_half(const uint16_t *x) {
  return (lanes){_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)x)),
                 _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(x + 8)))};
}
HR_INLINE lanes lanes_load_brain(const uint16_t *x) {
  ints v = {_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)x)),
            _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)(x + 8)))};
  return lanes_of_bits(ints_shift_left(v, 16));
}
/* Sixteen 16-bit numbers: rounded to fp16; the low halves of ints below 2^16. */
HR_INLINE __m256i lanes_to_half(lanes v) {
  return _mm256_set_m128i(_mm256_cvtps_ph(v.high, _MM_FROUND_TO_NEAREST_INT),
                          _mm256_cvtps_ph(v.low, _MM_FROUND_TO_NEAREST_INT));
}
HR_INLINE __m256i ints_to_16(ints v) {
  return _mm256_permute4x64_epi64(_mm256_packus_epi32(v.low, v.high), 0xd8);
}
/* To nearest even, of what an int32 holds. */
HR_INLINE ints ints_of_lanes(lanes v) {
  return (ints){_mm256_cvtps_epi32(v.low), _mm256_cvtps_epi32(v.high)};
}
/* Four times sixteen, each within -128..127, as bytes; the sums of four such bytes. */
HR_INLINE __m256i ints_pair_to_8(ints a, ints b) {
  __m256i words = _mm256_packs_epi16(_mm256_packs_epi32(a.low, a.high),
                                     _mm256_packs_epi32(b.low, b.high));
  return _mm256_permutevar8x32_epi32(words, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}
HR_INLINE ints ints_to_8(ints a, ints b, ints c, ints d) {
  return (ints){ints_pair_to_8(a, b), ints_pair_to_8(c, d)};
}
HR_INLINE __m256i ints_half_sum_bytes(__m256i bytes) {
  return _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_set1_epi8(1), bytes),
                           _mm256_set1_epi16(1));
}
HR_INLINE ints ints_sum_bytes(ints bytes) {
  return (ints){ints_half_sum_bytes(bytes.low), ints_half_sum_bytes(bytes.high)};
}

HR_INLINE __m256 lanes_low(lanes v) { return v.low; }
HR_INLINE __m256 lanes_high(lanes v) { return v.high; }
HR_INLINE __m256i ints_low(ints v) { return v.low; }
HR_INLINE __m256i ints_high(ints v) { return v.high; }

/* Pairs (2i, 2i + 1): exchanged; each of 8 numbers twice. */
HR_INLINE lanes lanes_swap_pairs(lanes v) {
  return (lanes){_mm256_permute_ps(v.low, 0xb1), _mm256_permute_ps(v.high, 0xb1)};
}
HR_INLINE lanes lanes_load_twice(const float *x) {
  __m256 v = _mm256_loadu_ps(x);
  return (lanes){_mm256_permutevar8x32_ps(v, _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3)),
                 _mm256_permutevar8x32_ps(v, _mm256_setr_epi32(4, 4, 5, 5, 6, 6, 7, 7))};
}

#endif

HR_INLINE lanes lanes_abs(lanes v) {
  return lanes_of_bits(ints_and(lanes_bits(v), ints_set(0x7fffffff)));
}
HR_INLINE lanes lanes_with_sign(lanes magnitude, lanes sign) {
  return lanes_of_bits(ints_or(lanes_bits(lanes_abs(magnitude)),
                               ints_and(lanes_bits(sign), ints_set(INT32_MIN))));
}

/* Lanes of the sixteen from at on that lie in first .. end - 1. */
HR_INLINE mask mask_between(size_t first, size_t end, size_t at) {
  mask before_end = mask_first(end - at < 16 ? end - at : 16);
  return first > at ? mask_not(before_end, mask_first(first - at)) : before_end;
}

HR_INLINE size_t part_of(size_t n, size_t i) { return n - i < 16 ? n - i : 16; }

/* Rows of the next tile when `rows` are left: as even as the tile's height allows. */
HR_INLINE size_t tile_rows(size_t rows, size_t most) {
  size_t tiles = (rows + most - 1) / most;
  return (rows + tiles - 1) / tiles;
}

HR_INLINE lanes lanes_load_up_to(const float *x, size_t n) {
  return n < 16 ? lanes_load_part(x, mask_first(n)) : lanes_load(x);
}
HR_INLINE void lanes_store_up_to(float *y, lanes v, size_t n) {
  if (n < 16)
    lanes_store_part(y, v, mask_first(n));
  else
    lanes_store(y, v);
}

/* Lanes i and i + 8, then i and i + 4, i and i + 2, i and i + 1. */
HR_INLINE float lanes_fold_add(lanes v) {
  __m256 a = _mm256_add_ps(lanes_low(v), lanes_high(v));
  __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  b = _mm_add_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}
/* The largest of lanes without NaN, its zero being +0. */
HR_INLINE float lanes_fold_max(lanes v) {
  __m256 a = _mm256_max_ps(lanes_low(v), lanes_high(v));
  __m128 b = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  b = _mm_max_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_max_ss(b, _mm_movehdup_ps(b))) + 0.0f;
}
HR_INLINE int32_t ints_fold_max(ints v) {
  __m256i a = _mm256_max_epi32(ints_low(v), ints_high(v));
  __m128i b = _mm_max_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
  b = _mm_max_epi32(b, _mm_shuffle_epi32(b, 0x4e));
  return _mm_cvtsi128_si32(_mm_max_epi32(b, _mm_shuffle_epi32(b, 0xb1)));
}

#endif
