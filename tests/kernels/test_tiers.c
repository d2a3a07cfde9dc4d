/* SPDX-License-Identifier: MIT
 * Every tier that this CPU has against the definition, bit for bit. */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <stdio.h>

#include "kernels/select.h"
#include "tests/kernels/checks.h"

static void free_places(struct criterion_test_params *params) {
  cr_free(params->params);
}

/* One test for each row of the list of tiers, by its place. */
ParameterizedTestParameters(kernels, every_tier_equals_portable) {
  size_t count;
  hr_tiers(&count);
  size_t *place = cr_malloc(count * sizeof *place);
  for (size_t i = 0; i < count; i++) place[i] = i;
  return cr_make_param_array(size_t, place, count, free_places);
}

/* All families of one tier. Portable has only itself beside it: in place against apart,
 * its guards and its inputs. */
ParameterizedTest(size_t *place, kernels, every_tier_equals_portable) {
  size_t count;
  const hr_tier *tier = &hr_tiers(&count)[*place];
  hr_kernels ref, tested;
  cr_assert(hr_kernels_select(&ref, 0, NULL));
  if (!hr_kernels_select(&tested, hr_cpu_features(), tier->name)) {
    fprintf(stderr, "%s: skipped, this CPU lacks it\n", tier->name);
    return;
  }
  size_t all = 0;
  bool own = *place == 0;
  hr_benchmark benchmark = {0};
  const hr_family *family = hr_families(&count);
  for (size_t i = 0; i < count; i++, family++) {
    hr_report report = {.own = own, .benchmark = &benchmark};
    bool passed = family->check(&ref, &tested, &report);
    cr_log_info("%s: %s: %zu cases", tier->name, family->name, report.cases);
    cr_expect(passed, "%s: %s: %zu failures, the first:\n%s", tier->name, family->name,
              report.failures, report.text);
    cr_expect(report.cases > 0 || !report.own, "%s: nothing checked", family->name);
    all += report.cases;
  }
  cr_expect(all > 0, "%s: nothing checked", tier->name);
  const char *missing = hr_slot_untimed(&benchmark, &ref, &tested, own);
  cr_expect_null(missing, "%s has no typical case that a benchmark could time",
                 missing ? missing : "nothing");
}

Test(kernels, wrong_kernels_are_caught) {
  hr_report report = {0};
  cr_assert(hr_check_the_checks(&report), "%s", report.text);
  cr_assert(report.cases > 100);
}
