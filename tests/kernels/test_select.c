/* SPDX-License-Identifier: MIT
 * From feature words to tiers. */
#include <criterion/criterion.h>
#include <string.h>

#include "kernels/select.h"

enum {
  LEAF1_AVX = 1u << 28 | 1u << 27,            /* and OSXSAVE */
  LEAF1_HASWELL = LEAF1_AVX | 1u << 12 | 1u << 29, /* and FMA, F16C */
  LEAF7_AVX2 = 1u << 5,
  LEAF7_SKX = 1u << 16 | 1u << 17 | 1u << 30 | LEAF7_AVX2, /* and AVX-512 F, DQ, BW */
  LEAF7C_VNNI = 1u << 11,
  LEAF71_AVXVNNI = 1u << 4
};
#define LEAF7_VL (1u << 31)
/* "AuthenticAMD" and "GenuineIntel" as the leaf 0 has them in ebx, edx and ecx. */
#define AMD {0x68747541, 0x69746e65, 0x444d4163}
#define INTEL {0x756e6547, 0x49656e69, 0x6c65746e}
#define YMM 0x7u
#define ZMM 0xe7u

static const struct {
  const char *name;
  hr_x86_words words;
  uint32_t expected;
} x86[] = {
    {"Core 2", {.max_leaf = 10, .leaf1_ecx = 0x0000e3bd}, 0},
    {"Nehalem", {.max_leaf = 11, .leaf1_ecx = 0x009ce3bd}, 0},
    {"Sandy Bridge", {.max_leaf = 13, .leaf1_ecx = LEAF1_AVX, .xcr0 = YMM}, 0},
    {"Haswell", {.max_leaf = 13, .leaf1_ecx = LEAF1_HASWELL, .leaf7_ebx = LEAF7_AVX2, .xcr0 = YMM},
     HR_CPU_AVX2},
    {"Zen 2", {.max_leaf = 16, .maker = AMD, .leaf1_eax = 0x00870f10, .leaf1_ecx = LEAF1_HASWELL,
               .leaf7_ebx = LEAF7_AVX2, .xcr0 = YMM},
     HR_CPU_AVX2},
    {"Skylake-X", {.max_leaf = 22, .leaf1_ecx = LEAF1_HASWELL, .leaf7_ebx = LEAF7_SKX | LEAF7_VL,
                   .xcr0 = ZMM},
     HR_CPU_AVX2},
    {"Cascade Lake", {.max_leaf = 22, .leaf1_ecx = LEAF1_HASWELL,
                      .leaf7_ebx = LEAF7_SKX | LEAF7_VL, .leaf7_ecx = LEAF7C_VNNI, .xcr0 = ZMM},
     HR_CPU_AVX2 | HR_CPU_AVX512VNNI},
    {"Alder Lake P", {.max_leaf = 32, .leaf1_ecx = LEAF1_HASWELL, .leaf7_ebx = LEAF7_AVX2,
                      .leaf7_1_eax = LEAF71_AVXVNNI, .xcr0 = YMM},
     HR_CPU_AVX2 | HR_CPU_AVXVNNI},
    {"Alder Lake E", {.max_leaf = 32, .leaf1_ecx = LEAF1_HASWELL, .leaf7_ebx = LEAF7_AVX2,
                      .leaf7_1_eax = LEAF71_AVXVNNI, .xcr0 = YMM | 0x200u},
     HR_CPU_AVX2 | HR_CPU_AVXVNNI},
    {"Zen 3", {.max_leaf = 16, .maker = AMD, .leaf1_eax = 0x00a20f10, .leaf1_ecx = LEAF1_HASWELL,
               .leaf7_ebx = LEAF7_AVX2, .xcr0 = YMM},
     HR_CPU_AVX2 | HR_CPU_ZEN3},
    {"Zen 4", {.max_leaf = 16, .maker = AMD, .leaf1_eax = 0x00a10f11, .leaf1_ecx = LEAF1_HASWELL,
               .leaf7_ebx = LEAF7_SKX | LEAF7_VL,
               .leaf7_ecx = LEAF7C_VNNI, .leaf7_1_eax = 1u << 5, .xcr0 = ZMM},
     HR_CPU_AVX2 | HR_CPU_AVX512VNNI | HR_CPU_ZEN3},
    {"Zen 5", {.max_leaf = 16, .maker = AMD, .leaf1_eax = 0x00b40f40, .leaf1_ecx = LEAF1_HASWELL,
               .leaf7_ebx = LEAF7_SKX | LEAF7_VL,
               .leaf7_ecx = LEAF7C_VNNI, .leaf7_1_eax = LEAF71_AVXVNNI | 1u << 5, .xcr0 = ZMM},
     HR_CPU_AVX2 | HR_CPU_AVXVNNI | HR_CPU_AVX512VNNI},
    {"a family of that number of another maker",
     {.max_leaf = 16, .maker = INTEL, .leaf1_eax = 0x00a20f10, .leaf1_ecx = LEAF1_HASWELL,
      .leaf7_ebx = LEAF7_AVX2, .xcr0 = YMM},
     HR_CPU_AVX2},
    {"Zen 3 under a hypervisor that hides AVX",
     {.max_leaf = 16, .maker = AMD, .leaf1_eax = 0x00a20f10,
      .leaf1_ecx = LEAF1_HASWELL & ~(1u << 28), .leaf7_ebx = LEAF7_AVX2, .xcr0 = 0x3},
     0},
    {"system without OSXSAVE", {.max_leaf = 16, .leaf1_ecx = LEAF1_HASWELL & ~(1u << 27),
                                .leaf7_ebx = LEAF7_SKX | LEAF7_VL, .leaf7_ecx = LEAF7C_VNNI},
     0},
    {"hypervisor that hides AVX", {.max_leaf = 16, .leaf1_ecx = LEAF1_HASWELL & ~(1u << 28),
                                   .leaf7_ebx = LEAF7_AVX2, .xcr0 = 0x3},
     0},
    {"system that keeps no ymm", {.max_leaf = 16, .leaf1_ecx = LEAF1_HASWELL,
                                  .leaf7_ebx = LEAF7_SKX | LEAF7_VL, .leaf7_ecx = LEAF7C_VNNI,
                                  .xcr0 = 0x3},
     0},
    {"system that keeps no zmm", {.max_leaf = 16, .leaf1_ecx = LEAF1_HASWELL,
                                  .leaf7_ebx = LEAF7_SKX | LEAF7_VL, .leaf7_ecx = LEAF7C_VNNI,
                                  .xcr0 = YMM},
     HR_CPU_AVX2},
    {"AVX-512 without VL", {.max_leaf = 16, .leaf1_ecx = LEAF1_HASWELL, .leaf7_ebx = LEAF7_SKX,
                            .leaf7_ecx = LEAF7C_VNNI, .xcr0 = ZMM},
     HR_CPU_AVX2},
    {"AVX2 without F16C", {.max_leaf = 16, .leaf1_ecx = LEAF1_HASWELL & ~(1u << 29),
                           .leaf7_ebx = LEAF7_AVX2, .xcr0 = YMM},
     0},
    {"short CPUID", {.max_leaf = 6, .leaf1_ecx = LEAF1_HASWELL, .leaf7_ebx = LEAF7_AVX2,
                     .xcr0 = YMM},
     0},
};

/* The tier that a machine of these features ends with, where its tiers are built in. */
static void expect_tier(const char *name, uint32_t features, uint32_t bit, const char *tier) {
  hr_kernels table;
  size_t tiers, i = 0;
  const hr_tier *list = hr_tiers(&tiers);
  while (i < tiers && strcmp(list[i].name, tier) != 0) i++;
  if (i == tiers || !(features & bit)) return;
  cr_assert(hr_kernels_select(&table, features, NULL));
  cr_expect_str_eq(table.isa, tier, "%s", name);
}

Test(select, x86_words) {
  for (size_t i = 0; i < sizeof x86 / sizeof *x86; i++) {
    uint32_t features = hr_cpu_from_x86(&x86[i].words);
    cr_expect_eq(features, x86[i].expected, "%s: %#x, not %#x", x86[i].name, features,
                 x86[i].expected);
    uint32_t no_vnni = features & ~(uint32_t)(HR_CPU_AVXVNNI | HR_CPU_AVX512VNNI);
    bool zen3 = features & HR_CPU_ZEN3;
    expect_tier(x86[i].name, features, HR_CPU_AVX512VNNI, zen3 ? "zen4" : "avx512vnni");
    expect_tier(x86[i].name, features & ~(uint32_t)HR_CPU_AVX512VNNI, HR_CPU_AVXVNNI, "avxvnni");
    expect_tier(x86[i].name, no_vnni, HR_CPU_AVX2, zen3 ? "zen3" : "avx2");
  }
}

/* Words as Linux reports them. */
static const struct {
  const char *name;
  uint64_t hwcap, hwcap2;
  uint32_t expected;
} arm64[] = {
    {"Cortex-A53", 0x8ff, 0, HR_CPU_NEON},
    {"Cortex-A72", 0x8ff, 0, HR_CPU_NEON},
    {"Cortex-A72 without crypto", 0x887, 0, HR_CPU_NEON},
    {"Cortex-A76", 0x10111fff & ~0x10000000ull, 0, HR_CPU_NEON | HR_CPU_DOTPROD},
    {"Neoverse N1", 0x10119fff & ~0x8000ull, 0, HR_CPU_NEON | HR_CPU_DOTPROD},
    {"Neoverse V1", 0x1ff7fffff, 0x1ff01 | 1u << 13, HR_CPU_NEON | HR_CPU_DOTPROD | HR_CPU_I8MM},
    {"Neoverse N2", 0xeff7ffff, 0x3f3ff, HR_CPU_NEON | HR_CPU_DOTPROD | HR_CPU_I8MM},
    {"Neoverse V2", 0xefffffff, 0x3f3ff, HR_CPU_NEON | HR_CPU_DOTPROD | HR_CPU_I8MM},
    {"Apple M1", 0xefbfffff & ~(1ull << 22), 0x181, HR_CPU_NEON | HR_CPU_DOTPROD},
    {"no Advanced SIMD", 0x1, 1u << 13, 0},
};

Test(select, arm64_words) {
  for (size_t i = 0; i < sizeof arm64 / sizeof *arm64; i++) {
    uint32_t features = hr_cpu_from_arm64(arm64[i].hwcap, arm64[i].hwcap2);
    cr_expect_eq(features, arm64[i].expected, "%s: %#x, not %#x", arm64[i].name, features,
                 arm64[i].expected);
    uint32_t no_i8mm = features & ~(uint32_t)HR_CPU_I8MM;
    expect_tier(arm64[i].name, features, HR_CPU_I8MM, "i8mm");
    expect_tier(arm64[i].name, no_i8mm, HR_CPU_DOTPROD, "dotprod");
    expect_tier(arm64[i].name, no_i8mm & ~(uint32_t)HR_CPU_DOTPROD, HR_CPU_NEON, "neon");
  }
}

Test(select, names) {
  size_t count;
  const hr_tier *tier = hr_tiers(&count);
  hr_kernels table, before;
  memset(&table, 0x5a, sizeof table);
  before = table;
  cr_expect(!hr_kernels_select(&table, UINT32_MAX, "mmx"), "an unknown name");
  cr_expect(!hr_kernels_select(&table, UINT32_MAX, ""), "an empty name");
  for (size_t i = 1; i < count; i++)
    cr_expect(!hr_kernels_select(&table, 0, tier[i].name), "%s without its features", tier[i].name);
  cr_expect(memcmp(&table, &before, sizeof table) == 0, "a refusal leaves the table alone");
  for (size_t i = 0; i < count; i++) {
    cr_expect(hr_kernels_select(&table, UINT32_MAX, tier[i].name));
    cr_expect_str_eq(table.isa, tier[i].name);
  }
  cr_expect(hr_kernels_select(&table, 0, NULL));
  cr_expect_str_eq(table.isa, "portable");
}

/* What suits another CPU is taken when it is named, and nothing of it otherwise. */
Test(select, named_though_unsuited) {
  size_t count;
  const hr_tier *tier = hr_tiers(&count);
  for (size_t i = 0; i < count; i++) {
    hr_kernels alone, named, without;
    if (!tier[i].suits) continue;
    cr_expect(hr_kernels_select(&named, tier[i].needs, tier[i].name));
    cr_expect_str_eq(named.isa, tier[i].name);
    cr_expect(hr_kernels_select(&alone, tier[i].needs, NULL));
    cr_expect_str_neq(alone.isa, tier[i].name);
    cr_expect(hr_kernels_select(&without, tier[i].needs, alone.isa));
    cr_expect(memcmp(&alone, &without, sizeof alone) == 0, "%s", tier[i].name);
  }
}

Test(select, every_slot_is_filled_and_named) {
  size_t count;
  const hr_tier *tier = hr_tiers(&count);
  for (size_t i = 0; i < count; i++) {
    hr_kernels table = {0};
    cr_assert(hr_kernels_select(&table, UINT32_MAX, tier[i].name));
#define HR_SLOT(type, slot)                                                               \
  cr_expect(table.slot && table.name.slot && strncmp(table.name.slot, #slot "__",        \
                                                     strlen(#slot "__")) == 0,           \
            "%s: " #slot, tier[i].name);
    HR_KERNEL_SLOTS(HR_SLOT)
#undef HR_SLOT
  }
}

/* Every feature that a tier needs, or that a machine's words can give, has one bit and a name. */
Test(select, features_are_named) {
  size_t features, tiers;
  const hr_cpu_feature *feature = hr_cpu_feature_list(&features);
  const hr_tier *tier = hr_tiers(&tiers);
  const hr_x86_words words = {.max_leaf = UINT32_MAX, .maker = AMD, .leaf1_eax = 0x00a10f11,
                              .leaf1_ecx = UINT32_MAX, .leaf7_ebx = UINT32_MAX,
                              .leaf7_ecx = UINT32_MAX, .leaf7_1_eax = UINT32_MAX,
                              .xcr0 = UINT64_MAX};
  uint32_t named = 0;
  for (size_t i = 0; i < features; i++) {
    cr_expect(feature[i].bit && !(feature[i].bit & (feature[i].bit - 1)), "%s", feature[i].name);
    cr_expect(!(named & feature[i].bit), "%s has another's bit", feature[i].name);
    named |= feature[i].bit;
  }
  uint32_t found = hr_cpu_from_x86(&words) | hr_cpu_from_arm64(UINT64_MAX, UINT64_MAX);
  cr_expect_eq(named, found);
  for (size_t i = 0; i < tiers; i++)
    cr_expect(!((tier[i].needs | tier[i].suits) & ~named), "%s", tier[i].name);
}

Test(select, available) {
  char text[100];
  hr_kernels_available(0, text, sizeof text);
  cr_expect_str_eq(text, "portable");
  hr_kernels_available(0, text, 4);
  cr_expect_str_eq(text, "");
#if defined(__x86_64__)
  hr_kernels_available(HR_CPU_AVX2 | HR_CPU_AVX512VNNI, text, sizeof text);
  cr_expect_str_eq(text, "portable, avx2, zen3, avx512vnni, zen4");
#elif defined(__aarch64__)
  hr_kernels_available(HR_CPU_NEON | HR_CPU_DOTPROD, text, sizeof text);
  cr_expect_str_eq(text, "portable, neon, dotprod");
#endif
}
