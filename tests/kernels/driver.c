/* SPDX-License-Identifier: MIT
 * The kernel checks as a plain program, for emulators and for a quick look:
 *   driver [--isa NAME] [--bench] [FAMILY...]
 *   driver --default      (the tier that this CPU gets by itself)
 * One line for each tier and family, and with --bench one for each slot; status 1 when
 * anything differs. */
#include <stdio.h>
#include <string.h>

#include "kernels/select.h"
#include "tests/kernels/checks.h"

typedef struct options {
  const char *isa;
  bool bench, tell_default;
  char **families; /* none: all */
  int count;
} options;

static bool wanted(const options *o, const char *family) {
  for (int i = 0; i < o->count; i++)
    if (strcmp(o->families[i], family) == 0) return true;
  return o->count == 0;
}

/* Each slot is in the benchmark: timed, or passed over, which is said here. */
static bool complete(const hr_benchmark *b, const hr_kernels *ref, const hr_kernels *tested,
                     bool own) {
#define SLOT(type, slot)                                    \
  if (b->run && !own && ref->slot == tested->slot)          \
    printf("  %-28s portable's\n", tested->name.slot);
  HR_KERNEL_SLOTS(SLOT)
#undef SLOT
  const char *missing = hr_slot_untimed(b, ref, tested, own);
  if (missing) printf("%-12s FAIL: no typical case of %s\n", tested->isa, missing);
  return !missing;
}

static bool run_tier(const options *o, const hr_kernels *ref, const hr_kernels *tested) {
  size_t count;
  bool good = true, own = strcmp(ref->isa, tested->isa) == 0;
  hr_benchmark benchmark = {.run = o->bench};
  const hr_family *family = hr_families(&count);
  for (size_t i = 0; i < count; i++, family++) {
    if (!wanted(o, family->name)) continue;
    hr_report report = {.own = own, .benchmark = &benchmark};
    bool passed = family->check(ref, tested, &report);
    const char *note = own            ? ", beside itself"
                       : report.cases ? ""
                                      : ", all of them portable's";
    printf("%-12s %-12s %s  %zu cases%s\n", tested->isa, family->name, passed ? "ok  " : "FAIL",
           report.cases, note);
    if (!passed) printf("%zu failures, the first:\n%s", report.failures, report.text);
    fflush(stdout);
    good &= passed;
  }
  return (o->count || complete(&benchmark, ref, tested, own)) && good;
}

static bool run_self_test(const options *o) {
  if (o->isa || o->count) return true;
  hr_report report = {0};
  bool passed = hr_check_the_checks(&report);
  printf("%-12s %-12s %s  %zu cases\n%s", "-", "self-test", passed ? "ok  " : "FAIL", report.cases,
         report.text);
  return passed;
}

static int usage(void) {
  char names[200];
  hr_kernels_available(hr_cpu_features(), names, sizeof names);
  fprintf(stderr,
          "usage: driver [--isa NAME] [--bench] [FAMILY...]\n       driver --default\n"
          "tiers here: %s\n",
          names);
  return 2;
}

int main(int argc, char **argv) {
  options o = {0};
  int at = 1;
  for (; at < argc && argv[at][0] == '-'; at++) {
    if (strcmp(argv[at], "--default") == 0)
      o.tell_default = true;
    else if (strcmp(argv[at], "--bench") == 0)
      o.bench = true;
    else if (strcmp(argv[at], "--isa") == 0 && at + 1 < argc)
      o.isa = argv[++at];
    else
      return usage();
  }
  o.families = argv + at;
  o.count = argc - at;

  uint32_t features = hr_cpu_features();
  hr_kernels ref, tested;
  if (o.tell_default) {
    hr_kernels_select(&ref, features, NULL);
    puts(ref.isa);
    return 0;
  }
  hr_kernels_select(&ref, 0, NULL);
  if (o.isa && !hr_kernels_select(&tested, features, o.isa)) return usage();
  bool good = run_self_test(&o);
  size_t count;
  const hr_tier *tier = hr_tiers(&count);
  for (size_t i = 0; i < count; i++, tier++) {
    if (o.isa && strcmp(o.isa, tier->name) != 0) continue;
    if (!hr_kernels_select(&tested, features, tier->name))
      printf("%-12s skipped: this CPU lacks it\n", tier->name);
    else
      good &= run_tier(&o, &ref, &tested);
  }
  return good ? 0 : 1;
}
