/* SPDX-License-Identifier: MIT
 * The loops are wholly in assembly: a compiler that spills a register would
 * put loads between the instructions, and the peak would be too low. */
#include "perf/limits.h"

#include <string.h>

#include "kernels/select.h"

#define REPEAT_10(one) one(0) one(1) one(2) one(3) one(4) one(5) one(6) one(7) one(8) one(9)

/* Reads a step at a time, and behind it does some groups of fma, by turns three with registers of
 * their own: with those of one, each would wait for the group before. */
#define BESIDE(name, begin, taken, one, two, three, end, ...)                            \
  static void name(const char *at, size_t length, size_t groups, size_t ahead) {         \
    __asm__ volatile(begin : : : "memory", __VA_ARGS__);                                 \
    for (const char *stop = at + length; at < stop; at += PERF_READ_STEP) {              \
      __asm__ volatile(taken : : "r"(at) : "memory", __VA_ARGS__);                       \
      for (size_t i = 0; ahead && i < PERF_READ_STEP; i += 64)                           \
        __builtin_prefetch(at + ahead + i);                                              \
      size_t left = groups;                                                              \
      for (; left >= 3; left -= 3)                                                       \
        __asm__ volatile(one two three : : : "memory", __VA_ARGS__);                     \
      if (left > 0) __asm__ volatile(one : : : "memory", __VA_ARGS__);                   \
      if (left > 1) __asm__ volatile(two : : : "memory", __VA_ARGS__);                   \
    }                                                                                    \
    __asm__ volatile(end : : : "memory", __VA_ARGS__);                                   \
  }

#if defined(__x86_64__)
/* Ten or twelve independent sums. Two pipes with a latency of four ask for eight, but Zen 5 keeps
 * them full with twelve only (ten: 0.97 of it, twenty: 1.00). Registers 10, 11, 14 and 15, with
 * ten sums 12 and 13 too, are operands and scratch. */
#define LOOP(name, repeat, one)                                                             \
  static void name(size_t n) {                                                              \
    __asm__ volatile(REPEAT_10(ZERO) ZERO(10) ZERO(11) ZERO(12) ZERO(13) ZERO(14) ZERO(15)  \
                     "1:\n\t" repeat(one) "dec %0\n\tjnz 1b\n\tvzeroupper"                   \
                     : "+r"(n)                                                              \
                     :                                                                      \
                     : "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7",\
                       "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14",         \
                       "xmm15");                                                            \
  }
#define ZERO(r) "vpxor %%xmm" #r ",%%xmm" #r ",%%xmm" #r "\n\t"
#define FMA_ZMM(r) "vfmadd231ps %%zmm10,%%zmm11,%%zmm" #r "\n\t"
#define FMA_YMM(r) "vfmadd231ps %%ymm10,%%ymm11,%%ymm" #r "\n\t"
#define DOT_ZMM(r) "vpdpbusd %%zmm10,%%zmm11,%%zmm" #r "\n\t"
#define DOT_YMM(r) "%{vex%} vpdpbusd %%ymm10,%%ymm11,%%ymm" #r "\n\t"
#define MADD_YMM(r)                                                            \
  "vpmaddubsw %%ymm10,%%ymm11,%%ymm12\n\tvpmaddwd %%ymm12,%%ymm13,%%ymm14\n\t" \
  "vpaddd %%ymm14,%%ymm" #r ",%%ymm" #r "\n\t"
#define REPEAT_12(one) REPEAT_10(one) one(12) one(13)
LOOP(fma_zmm, REPEAT_12, FMA_ZMM)
LOOP(fma_ymm, REPEAT_12, FMA_YMM)
LOOP(dot_zmm, REPEAT_12, DOT_ZMM)
LOOP(dot_ymm, REPEAT_12, DOT_YMM)
LOOP(madd_ymm, REPEAT_10, MADD_YMM)

/* The q8 product's own instructions for a tile and one block of 32 columns: eight groups
 * of four columns, then each sum to float, times two scales, added. */
#define ONCE(body) body(0)
#define TIMES(n, body) ".rept " #n "\n\t" body ".endr\n\t"
#define SCALE(v, t, r)                                                           \
  "vcvtdq2ps %%" v #r ",%%" v #t "\n\tvmulps %%" v "10,%%" v "11,%%" v #r "\n\t" \
  "vfmadd231ps %%" v #t ",%%" v "11,%%" v #r "\n\t"
#define SCALE_YMM(r) SCALE("ymm", 15, r)
#define SCALE_START_YMM(r) SCALE("ymm", 14, r) "vmovaps %%ymm11,%%ymm" #r "\n\t"
#define SCALE_START_ZMM(r) SCALE("zmm", 14, r) "vmovaps %%zmm11,%%zmm" #r "\n\t"
#define FLIP_YMM "vpxor %%ymm10,%%ymm11,%%ymm10\n\t"
#define FLIP_ZMM "vpxord %%zmm10,%%zmm11,%%zmm10\n\t"
#define EXACT_YMM                                                                \
  "vpsignb %%ymm10,%%ymm11,%%ymm13\n\tvpmaddubsw %%ymm13,%%ymm12,%%ymm13\n\t"
#define EXACT_START_YMM(r) EXACT_YMM "vpmaddwd %%ymm13,%%ymm14,%%ymm" #r "\n\t"
#define EXACT_ADD_YMM(r) \
  EXACT_YMM "vpmaddwd %%ymm13,%%ymm14,%%ymm13\n\tvpaddd %%ymm13,%%ymm" #r ",%%ymm" #r "\n\t"
#define TILE_AVX2(unused)                                                        \
  REPEAT_10(EXACT_START_YMM) TIMES(7, REPEAT_10(EXACT_ADD_YMM)) REPEAT_10(SCALE_YMM)
/* By words: sixteen steps of two columns. */
#define WORDS_START_YMM(r) "vpmaddwd %%ymm10,%%ymm11,%%ymm" #r "\n\t"
#define WORDS_ADD_YMM(r) \
  "vpmaddwd %%ymm10,%%ymm11,%%ymm14\n\tvpaddd %%ymm14,%%ymm" #r ",%%ymm" #r "\n\t"
#define TILE_ZEN3(unused) \
  REPEAT_12(WORDS_START_YMM) TIMES(15, REPEAT_12(WORDS_ADD_YMM)) REPEAT_12(SCALE_YMM)
#define TILE_AVXVNNI(unused) \
  TIMES(8, FLIP_YMM FLIP_YMM REPEAT_12(DOT_YMM)) REPEAT_12(SCALE_START_YMM)
#define TILE_AVX512(unused) \
  TIMES(8, FLIP_ZMM FLIP_ZMM REPEAT_10(DOT_ZMM)) REPEAT_10(SCALE_START_ZMM)
LOOP(tile_avx2, ONCE, TILE_AVX2)
LOOP(tile_zen3, ONCE, TILE_ZEN3)
LOOP(tile_avxvnni, ONCE, TILE_AVXVNNI)
LOOP(tile_avx512, ONCE, TILE_AVX512)

/* Attention's own instructions: for a query and a register of keys the largest score, the
 * exponential of the difference to it, the sum, and 128 fmas for scores and values. A register
 * stands for all constants, those from 16 on are no compiler's here. */
#define HORNER(v, p) TIMES(6, "vfmadd213ps %%" v "10,%%" v "14,%%" v p "\n\t")
#define REDUCE(v, n)                                                                      \
  "vmaxps %%" v "10,%%" v "10,%%" v "15\n\tvsubps %%" v "10,%%" v "10,%%" v "14\n\t"       \
  "vfmadd213ps %%" v "10,%%" v "14,%%" v "15\n\tvsubps %%" v "10,%%" v "15,%%" v n "\n\t"   \
  TIMES(2, "vfnmadd231ps %%" v "10,%%" v n ",%%" v "14\n\t")
#define EXP_ZMM                                                                          \
  REDUCE("zmm", "15") "vpxord %%zmm16,%%zmm16,%%zmm16\n\t" HORNER("zmm", "16")           \
  "vcmpltps %%zmm10,%%zmm14,%%k1\n\tvscalefps %%zmm15,%%zmm16,%%zmm16%{%%k1%}%{z%}\n\t" \
  "vaddps %%zmm16,%%zmm10,%%zmm17\n\t"
#define EXP_YMM                                                                       \
  REDUCE("ymm", "11") "vpxor %%ymm11,%%ymm11,%%ymm11\n\t" HORNER("ymm", "11")         \
  "vpslld $23,%%ymm15,%%ymm15\n\tvpaddd %%ymm15,%%ymm11,%%ymm15\n\t"                 \
  "vcmpunordps %%ymm11,%%ymm11,%%ymm11\n\tvorps %%ymm15,%%ymm11,%%ymm15\n\t"         \
  "vcmpltps %%ymm10,%%ymm14,%%ymm14\n\tvandnps %%ymm15,%%ymm14,%%ymm15\n\t"          \
  "vaddps %%ymm15,%%ymm10,%%ymm11\n\t"
#define SUM_ZMM(r) "vfmadd231ps %%zmm10,%%zmm10,%%zmm" #r "\n\t"
#define SUM_YMM(r) "vfmadd231ps %%ymm10,%%ymm10,%%ymm" #r "\n\t"
#define ATTEND(exp, one)                                                          \
  exp TIMES(10, REPEAT_12(one)) exp TIMES(11, REPEAT_12(one)) exp TIMES(11, REPEAT_12(one))
#define ATTEND_ZMM(unused) ATTEND(EXP_ZMM, SUM_ZMM)
#define ATTEND_YMM(unused) ATTEND(EXP_YMM, SUM_YMM)
LOOP(attend_zmm, ONCE, ATTEND_ZMM)
LOOP(attend_ymm, ONCE, ATTEND_YMM)

#define TAKE_YMM(r, at) "vmovaps " #at "(%0),%%ymm" #r "\n\tvmovaps 32+" #at "(%0),%%ymm" #r "\n\t"
#define TAKE_ZMM(r, at) "vmovaps " #at "(%0),%%zmm" #r "\n\tvmovaps 64+" #at "(%0),%%zmm" #r "\n\t"
#define TAKE_4_YMM(r) TAKE_YMM(r, 0) TAKE_YMM(r, 64) TAKE_YMM(r, 128) TAKE_YMM(r, 192)
#define ALL_16                                                                           \
  "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", \
      "xmm11", "xmm12", "xmm13", "xmm14", "xmm15"
BESIDE(beside_ymm, "vzeroall", TAKE_4_YMM(0),
       FMA_YMM(2) FMA_YMM(3) FMA_YMM(4) FMA_YMM(5), FMA_YMM(6) FMA_YMM(7) FMA_YMM(8) FMA_YMM(9),
       FMA_YMM(12) FMA_YMM(13) FMA_YMM(14) FMA_YMM(15), "vzeroupper", ALL_16)
BESIDE(beside_zmm, "vzeroall", TAKE_ZMM(0, 0) TAKE_ZMM(0, 128),
       FMA_ZMM(2) FMA_ZMM(3) FMA_ZMM(4) FMA_ZMM(5), FMA_ZMM(6) FMA_ZMM(7) FMA_ZMM(8) FMA_ZMM(9),
       FMA_ZMM(12) FMA_ZMM(13) FMA_ZMM(14) FMA_ZMM(15), "vzeroupper", ALL_16)

/* What is read goes where no instruction of a tile waits for it. */
#define BESIDE_TILE(name, taken, tile) \
  BESIDE(name, "vzeroall", taken, tile(0), tile(0), tile(0), "vzeroupper", ALL_16)
BESIDE_TILE(beside_tile_avx2, TAKE_4_YMM(15), TILE_AVX2)
BESIDE_TILE(beside_tile_zen3, TAKE_4_YMM(15), TILE_ZEN3)
BESIDE_TILE(beside_tile_avxvnni, TAKE_4_YMM(15), TILE_AVXVNNI)
BESIDE_TILE(beside_tile_avx512, TAKE_ZMM(15, 0) TAKE_ZMM(15, 128), TILE_AVX512)

static const perf_peaks all[] = {
    {"avx2", HR_CPU_AVX2, madd_ymm, 320, fma_ymm, 96, tile_avx2, 2560, beside_ymm, 32,
     beside_tile_avx2, attend_ymm, 3072},
    {"zen3", HR_CPU_ZEN3, madd_ymm, 320, fma_ymm, 96, tile_zen3, 3072, beside_ymm, 32,
     beside_tile_zen3, attend_ymm, 3072},
    {"avxvnni", HR_CPU_AVXVNNI, dot_ymm, 384, fma_ymm, 96, tile_avxvnni, 3072, beside_ymm, 32,
     beside_tile_avxvnni, attend_ymm, 3072},
    {"avx512vnni", HR_CPU_AVX512VNNI, dot_zmm, 768, fma_zmm, 192, tile_avx512, 5120, beside_zmm,
     64, beside_tile_avx512, attend_zmm, 6144},
};
#elif defined(__aarch64__)
/* Twenty sums, for cores with four pipes and a latency of four. */
#define REPEAT_20(one)                                                                     \
  REPEAT_10(one) one(10) one(11) one(12) one(13) one(14) one(15) one(16) one(17) one(18) one(19)
#define LOOP(name, repeat, one)                                                                 \
  static void name(size_t n) {                                                                  \
    __asm__ volatile(REPEAT_20(ZERO) ZERO(20) ZERO(21) ZERO(22) ZERO(23) "1:\n\t"               \
                     repeat(one) "subs %0, %0, #1\n\tb.ne 1b"                                   \
                     : "+r"(n)                                                                  \
                     :                                                                          \
                     : "cc", "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", \
                       "v11", "v12", "v13", "v14", "v15", "v16", "v17", "v18", "v19", "v20",    \
                       "v21", "v22", "v23");                                                    \
  }
#define ZERO(r) "movi v" #r ".4s, #0\n\t"
#define FMA(r) "fmla v" #r ".4s, v20.4s, v21.4s\n\t"
/* sdot and smmla v<r>.4s, v20.16b, v21.16b as words: assemblers disagree on how
 * to allow what the target of the build lacks. */
#define SDOT(r) ".inst 0x4e959680 + " #r "\n\t"
#define SMMLA(r) ".inst 0x4e95a680 + " #r "\n\t"
/* Armv8.0: two widening multiplies share one widening addition, 16 products.
 * Ten at a time step by step, since cores without reordering wait otherwise. */
#define MULTIPLY(r) "smull v1" #r ".8h, v20.8b, v21.8b\n\t"
#define MULTIPLY_ADD(r) "smlal2 v1" #r ".8h, v20.16b, v21.16b\n\t"
#define WIDEN_ADD(r) "sadalp v" #r ".4s, v1" #r ".8h\n\t"
#define REPEAT_WIDEN(one) REPEAT_10(MULTIPLY) REPEAT_10(MULTIPLY_ADD) REPEAT_10(one)
LOOP(fma_neon, REPEAT_20, FMA)
LOOP(widen_neon, REPEAT_WIDEN, WIDEN_ADD)
LOOP(dot_neon, REPEAT_20, SDOT)
LOOP(matrix_neon, REPEAT_20, SMMLA)

#define TAKE(at) "ldp q22, q23, [%0, #" #at "]\n\tldp q24, q25, [%0, #32 + " #at "]\n\t"
BESIDE(beside_neon, REPEAT_20(ZERO) ZERO(20) ZERO(21), TAKE(0) TAKE(64) TAKE(128) TAKE(192),
       FMA(0) FMA(1) FMA(2) FMA(3) FMA(4) FMA(5), FMA(6) FMA(7) FMA(8) FMA(9) FMA(10) FMA(11),
       FMA(12) FMA(13) FMA(14) FMA(15) FMA(16) FMA(17), "", "v0", "v1", "v2", "v3", "v4", "v5",
       "v6", "v7", "v8", "v9", "v10", "v11", "v12", "v13", "v14", "v15", "v16", "v17", "v18",
       "v19", "v20", "v21", "v22", "v23", "v24", "v25")

static const perf_peaks all[] = {
    {"neon", HR_CPU_NEON, widen_neon, 160, fma_neon, 80, NULL, 0, beside_neon, 24, NULL, NULL, 0},
    {"dotprod", HR_CPU_DOTPROD, dot_neon, 320, fma_neon, 80, NULL, 0, beside_neon, 24, NULL, NULL,
     0},
    {"i8mm", HR_CPU_I8MM, matrix_neon, 640, fma_neon, 80, NULL, 0, beside_neon, 24, NULL, NULL, 0},
};
#else
static const perf_peaks all[] = {{NULL, ~0u, NULL, 0, NULL, 0, NULL, 0, NULL, 0, NULL, NULL, 0}};
#endif

const perf_peaks *perf_peaks_of(const char *name) {
  size_t tiers;
  const hr_tier *tier = hr_tiers(&tiers);
  uint32_t features = 0;
  for (size_t i = 0; i < tiers; i++)
    if (strcmp(tier[i].name, name) == 0) features = tier[i].needs | tier[i].suits;
  const perf_peaks *best = NULL;
  for (size_t i = 0; i < sizeof all / sizeof *all; i++)
    if (!(all[i].needs & ~features)) best = &all[i];
  return best;
}

/* One step of one stream, with what every CPU of the architecture has. */
static inline void read_step(const char *at) {
#if defined(__aarch64__)
  __asm__ volatile(
      "ldp q0, q1, [%0]\n\tldp q2, q3, [%0, #32]\n\tldp q4, q5, [%0, #64]\n\t"
      "ldp q6, q7, [%0, #96]\n\tldp q0, q1, [%0, #128]\n\tldp q2, q3, [%0, #160]\n\t"
      "ldp q4, q5, [%0, #192]\n\tldp q6, q7, [%0, #224]"
      :
      : "r"(at)
      : "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "memory");
#elif defined(__x86_64__)
#define LOAD(r) "movaps 16*" #r "(%0),%%xmm" #r "\n\tmovaps 128+16*" #r "(%0),%%xmm" #r "\n\t"
  __asm__ volatile(
      LOAD(0) LOAD(1) LOAD(2) LOAD(3) LOAD(4) LOAD(5) LOAD(6) LOAD(7)
      :
      : "r"(at)
      : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "memory");
#else
  const uint64_t *word = (const void *)at;
  uint64_t sum = 0;
  for (size_t i = 0; i < PERF_READ_STEP / sizeof *word; i++) sum += word[i];
  __asm__ volatile("" : : "r"(sum));
#endif
}

#if defined(__x86_64__)
static inline void read_step_ymm(const char *at) {
  __asm__ volatile(
      "vmovaps (%0),%%ymm0\n\tvmovaps 32(%0),%%ymm1\n\tvmovaps 64(%0),%%ymm2\n\t"
      "vmovaps 96(%0),%%ymm3\n\tvmovaps 128(%0),%%ymm4\n\tvmovaps 160(%0),%%ymm5\n\t"
      "vmovaps 192(%0),%%ymm6\n\tvmovaps 224(%0),%%ymm7"
      :
      : "r"(at)
      : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "memory");
}

static inline void read_step_zmm(const char *at) {
  __asm__ volatile(
      "vmovaps (%0),%%zmm0\n\tvmovaps 64(%0),%%zmm1\n\tvmovaps 128(%0),%%zmm2\n\t"
      "vmovaps 192(%0),%%zmm3"
      :
      : "r"(at)
      : "xmm0", "xmm1", "xmm2", "xmm3", "memory");
}
#endif

size_t perf_read_widths(uint32_t features, size_t width[PERF_MOST_WIDTHS]) {
  size_t count = 0;
#if defined(__x86_64__)
  if (features & HR_CPU_AVX2) width[count++] = 32;
  if (features & HR_CPU_AVX512VNNI) width[count++] = 64;
#endif
  (void)features;
  if (!count) width[count++] = 16;
  return count;
}

/* As many streams of one kind of step. */
#define READ(step)                                           \
  for (; at < end; at += PERF_READ_STEP)                     \
    for (size_t s = 0; s < streams; s++) step(at + s * stride);

void perf_read(const char *at, size_t length, size_t stride, size_t streams, size_t width) {
  const char *end = at + length;
#if defined(__x86_64__)
  if (width == 64) {
    READ(read_step_zmm)
    __asm__ volatile("vzeroupper");
  } else if (width == 32) {
    READ(read_step_ymm)
    __asm__ volatile("vzeroupper");
  }
#endif
  (void)width;
  READ(read_step)
}
