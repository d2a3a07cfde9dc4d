/* SPDX-License-Identifier: MIT */
#include "kernels/select.h"

#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif

void hr_portable_fill(hr_kernels *table);
#if defined(__x86_64__)
void hr_avx2_fill(hr_kernels *table);
void hr_zen3_fill(hr_kernels *table);
void hr_avxvnni_fill(hr_kernels *table);
void hr_avx512vnni_fill(hr_kernels *table);
void hr_zen4_fill(hr_kernels *table);
#elif defined(__aarch64__)
void hr_neon_fill(hr_kernels *table);
void hr_dotprod_fill(hr_kernels *table);
void hr_i8mm_fill(hr_kernels *table);
#endif

static const hr_tier tiers[] = {
    {"portable", 0, 0, hr_portable_fill},
#if defined(__x86_64__)
    {"avx2", HR_CPU_AVX2, 0, hr_avx2_fill},
    {"zen3", HR_CPU_AVX2, HR_CPU_ZEN3, hr_zen3_fill},
    {"avxvnni", HR_CPU_AVX2 | HR_CPU_AVXVNNI, 0, hr_avxvnni_fill},
    {"avx512vnni", HR_CPU_AVX2 | HR_CPU_AVX512VNNI, 0, hr_avx512vnni_fill},
    {"zen4", HR_CPU_AVX2 | HR_CPU_AVX512VNNI, HR_CPU_ZEN3, hr_zen4_fill},
#elif defined(__aarch64__)
    {"neon", HR_CPU_NEON, 0, hr_neon_fill},
    {"dotprod", HR_CPU_NEON | HR_CPU_DOTPROD, 0, hr_dotprod_fill},
    {"i8mm", HR_CPU_NEON | HR_CPU_DOTPROD | HR_CPU_I8MM, 0, hr_i8mm_fill},
#endif
};

enum { TIER_COUNT = sizeof tiers / sizeof *tiers };

const hr_tier *hr_tiers(size_t *count) {
  *count = TIER_COUNT;
  return tiers;
}

static const hr_cpu_feature feature_list[] = {
    {HR_CPU_AVX2, "avx2"}, {HR_CPU_AVXVNNI, "avxvnni"}, {HR_CPU_AVX512VNNI, "avx512vnni"},
    {HR_CPU_ZEN3, "zen3"},
    {HR_CPU_NEON, "neon"}, {HR_CPU_DOTPROD, "dotprod"}, {HR_CPU_I8MM, "i8mm"},
};

const hr_cpu_feature *hr_cpu_feature_list(size_t *count) {
  *count = sizeof feature_list / sizeof *feature_list;
  return feature_list;
}

/* The family is the sum of both its fields where the first is at its end. */
static bool is_zen3(const hr_x86_words *w) {
  uint32_t family = w->leaf1_eax >> 8 & 0xf;
  if (family == 0xf) family += w->leaf1_eax >> 20 & 0xff;
  return memcmp(w->maker, "AuthenticAMD", sizeof w->maker) == 0 && family == 0x19;
}

/* Bit numbers from the vendors' manuals. */
uint32_t hr_cpu_from_x86(const hr_x86_words *w) {
  enum { FMA = 12, OSXSAVE = 27, AVX = 28, F16C = 29 };                       /* leaf 1, ecx */
  enum { AVX2 = 5, AVX512F = 16, AVX512DQ = 17, AVX512BW = 30, AVX512VL = 31 }; /* leaf 7, ebx */
  enum { AVX512_VNNI = 11 };                                                  /* leaf 7, ecx */
  enum { AVX_VNNI = 4 };                                                      /* leaf 7.1, eax */
  const uint64_t ymm_state = 0x6, zmm_state = 0xe6;

  if (w->max_leaf < 7 || !(w->leaf1_ecx >> OSXSAVE & 1)) return 0;
  if ((w->xcr0 & ymm_state) != ymm_state) return 0;
  const uint32_t leaf1 = 1u << FMA | 1u << AVX | 1u << F16C;
  if ((w->leaf1_ecx & leaf1) != leaf1 || !(w->leaf7_ebx >> AVX2 & 1)) return 0;

  uint32_t features = HR_CPU_AVX2 | (is_zen3(w) ? HR_CPU_ZEN3 : 0u);
  if (w->leaf7_1_eax >> AVX_VNNI & 1) features |= HR_CPU_AVXVNNI;
  const uint32_t avx512 = 1u << AVX512F | 1u << AVX512DQ | 1u << AVX512BW | 1u << AVX512VL;
  if ((w->xcr0 & zmm_state) == zmm_state && (w->leaf7_ebx & avx512) == avx512 &&
      (w->leaf7_ecx >> AVX512_VNNI & 1))
    features |= HR_CPU_AVX512VNNI;
  return features;
}

uint32_t hr_cpu_from_arm64(uint64_t hwcap, uint64_t hwcap2) {
  enum { ASIMD = 1, ASIMDDP = 20 }; /* HWCAP */
  enum { I8MM = 13 };               /* HWCAP2 */
  if (!(hwcap >> ASIMD & 1)) return 0;
  uint32_t features = HR_CPU_NEON;
  if (hwcap >> ASIMDDP & 1) features |= HR_CPU_DOTPROD;
  if (hwcap2 >> I8MM & 1) features |= HR_CPU_I8MM;
  return features;
}

uint32_t hr_cpu_features(void) {
#if defined(__x86_64__)
  hr_x86_words w = {0};
  uint32_t a, b, c, d;
  __cpuid(0, w.max_leaf, w.maker[0], w.maker[2], w.maker[1]);
  if (w.max_leaf < 7) return 0;
  __cpuid(1, w.leaf1_eax, b, w.leaf1_ecx, d);
  __cpuid_count(7, 0, a, w.leaf7_ebx, w.leaf7_ecx, d);
  if (a >= 1) __cpuid_count(7, 1, w.leaf7_1_eax, b, c, d);
  if (w.leaf1_ecx >> 27 & 1) {
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    w.xcr0 = (uint64_t)high << 32 | low;
  }
  return hr_cpu_from_x86(&w);
#elif defined(__aarch64__)
  return hr_cpu_from_arm64(getauxval(AT_HWCAP), getauxval(AT_HWCAP2));
#else
  return 0;
#endif
}

bool hr_kernels_select(hr_kernels *table, uint32_t features, const char *highest) {
  size_t last = TIER_COUNT - 1;
  if (highest) {
    for (last = 0; last < TIER_COUNT && strcmp(tiers[last].name, highest) != 0;) last++;
    if (last == TIER_COUNT || (tiers[last].needs & ~features)) return false;
  }
  for (size_t i = 0; i <= last; i++) {
    if (tiers[i].needs & ~features) continue;
    bool is_named = highest && i == last;
    if (!is_named && (tiers[i].suits & ~features)) continue;
    tiers[i].fill(table);
    table->isa = tiers[i].name;
  }
  return true;
}

void hr_kernels_available(uint32_t features, char *text, size_t capacity) {
  size_t used = 0;
  if (capacity) text[0] = '\0';
  for (size_t i = 0; i < TIER_COUNT; i++) {
    if (tiers[i].needs & ~features) continue;
    const char *separator = used ? ", " : "";
    size_t need = strlen(separator) + strlen(tiers[i].name);
    if (used + need + 1 > capacity) return;
    memcpy(text + used, separator, strlen(separator));
    memcpy(text + used + strlen(separator), tiers[i].name, strlen(tiers[i].name) + 1);
    used += need;
  }
}
