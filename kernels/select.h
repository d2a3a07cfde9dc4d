/* SPDX-License-Identifier: MIT
 * From what the CPU has to a table of kernels. */
#ifndef HR_KERNELS_SELECT_H
#define HR_KERNELS_SELECT_H

#include "kernels/kernels.h"

/* Features that a tier can ask for. Bits of one architecture only are ever set. */
enum {
  HR_CPU_AVX2 = 1u << 0, /* AVX2, FMA and F16C, and the system keeps ymm */
  HR_CPU_AVXVNNI = 1u << 1,
  HR_CPU_AVX512VNNI = 1u << 2, /* AVX-512 F, BW, DQ, VL and VNNI, and the system keeps zmm */
  HR_CPU_ZEN3 = 1u << 3, /* AMD's family 19h, Zen 3 and 4: how it is built, not what it has */
  HR_CPU_NEON = 1u << 8,
  HR_CPU_DOTPROD = 1u << 9,
  HR_CPU_I8MM = 1u << 10
};

/* What the instructions CPUID and XGETBV answer. */
typedef struct hr_x86_words {
  uint32_t max_leaf;               /* leaf 0, eax */
  uint32_t maker[3];               /* leaf 0, ebx, edx, ecx: twelve letters */
  uint32_t leaf1_eax, leaf1_ecx;
  uint32_t leaf7_ebx, leaf7_ecx;
  uint32_t leaf7_1_eax;
  uint64_t xcr0;                   /* 0 when OSXSAVE is not set */
} hr_x86_words;

/* Pure functions from the machine's words to feature bits. */
uint32_t hr_cpu_from_x86(const hr_x86_words *words);
uint32_t hr_cpu_from_arm64(uint64_t hwcap, uint64_t hwcap2);

/* The features of the CPU that this runs on. */
uint32_t hr_cpu_features(void);

/* A feature bit and what it is called. */
typedef struct hr_cpu_feature {
  uint32_t bit;
  const char *name;
} hr_cpu_feature;

/* All features there are, of every architecture; *count of them. */
const hr_cpu_feature *hr_cpu_feature_list(size_t *count);

/* One row for each tier of this build, lowest first. */
typedef struct hr_tier {
  const char *name;
  uint32_t needs; /* feature bits: without them it can't run */
  uint32_t suits; /* without these it is no faster: taken only when it is named */
  void (*fill)(hr_kernels *table);
} hr_tier;

/* Tiers built in; *count of them. The first is "portable" and needs nothing. */
const hr_tier *hr_tiers(size_t *count);

/* Fills the table from the portable tier up: every tier whose features are all there and which
 * suits the CPU, up to the one named by highest (NULL: no limit), which is taken in any case. False
 * when the name is unknown or its features are missing: the table is then untouched. */
bool hr_kernels_select(hr_kernels *table, uint32_t features, const char *highest);

/* Names of the tiers that the features allow, as "portable, avx2", into text. */
void hr_kernels_available(uint32_t features, char *text, size_t capacity);

#endif
