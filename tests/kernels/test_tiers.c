/* SPDX-License-Identifier: MIT
 * Every tier that this CPU has against the definition, bit for bit. */
#include <criterion/criterion.h>
#include <stdio.h>

#include "kernels/select.h"
#include "tests/kernels/checks.h"

/* All families of one tier. */
static void check_tier(const hr_tier *tier) {
  hr_kernels ref, tested;
  cr_assert(hr_kernels_select(&ref, 0, NULL));
  if (!hr_kernels_select(&tested, hr_cpu_features(), tier->name)) {
    fprintf(stderr, "%s: skipped, this CPU lacks it\n", tier->name);
    return;
  }
  size_t count;
  const hr_family *family = hr_families(&count);
  for (size_t i = 0; i < count; i++, family++) {
    hr_report report = {0};
    bool passed = family->check(&ref, &tested, &report);
    cr_log_info("%s: %s: %zu cases", tier->name, family->name, report.cases);
    cr_expect(passed, "%s: %s: %zu failures, the first:\n%s", tier->name, family->name,
              report.failures, report.text);
  }
}

static void check_tier_at(size_t i) {
  size_t count;
  const hr_tier *tiers = hr_tiers(&count);
  if (i < count) check_tier(&tiers[i]);
}

/* A test for each place in the list of tiers, so that they run side by side. */
Test(kernels, tier_0) {
  check_tier_at(0);
}
Test(kernels, tier_1) {
  check_tier_at(1);
}
Test(kernels, tier_2) {
  check_tier_at(2);
}
Test(kernels, tier_3) {
  check_tier_at(3);
}
Test(kernels, no_tier_without_a_test) {
  size_t count;
  hr_tiers(&count);
  cr_assert(count <= 4, "add a test for the new tier above");
}

Test(kernels, wrong_kernels_are_caught) {
  hr_report report = {0};
  cr_assert(hr_check_the_checks(&report), "%s", report.text);
  cr_assert(report.cases > 100);
}
