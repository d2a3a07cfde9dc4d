/* SPDX-License-Identifier: MIT
 * Checks of kernels against the portable definition. One function a family runs
 * every slot of the family; the same functions serve the test program, the plain
 * driver that runs under an emulator, and as benchmarks. Nothing here knows an
 * instruction set. */
#ifndef HR_TESTS_KERNELS_CHECKS_H
#define HR_TESTS_KERNELS_CHECKS_H

#include <stdbool.h>
#include <stddef.h>

#include "kernels/kernels.h"

/* The slots whose typical case was checked. With `run` each is timed, too, and a line is printed
 * for it. A glance, not a measurement: perf/kernels.c measures. */
enum { HR_MOST_SLOTS = 64 };
typedef struct hr_benchmark {
  bool run;
  size_t count;
  const char *variant[HR_MOST_SLOTS];
} hr_benchmark;

/* What a check found. Each line of text names the variant, the shape and the
 * seed of one difference; only the first few are kept. */
typedef struct hr_report {
  bool own;        /* set by the caller: check the slots that both tables share, too */
  hr_benchmark *benchmark; /* set by the caller; NULL: not wanted */
  size_t cases;    /* calls compared */
  size_t failures;
  char text[2048];
} hr_report;

/* True when every case gave the bits of ref (any NaN equals any other), stayed
 * inside its outputs and left its inputs alone. Slots that tested shares with
 * ref are passed over, unless report->own: so the definition is checked, in place
 * against apart, at other addresses, its guards and its inputs. */
typedef bool hr_check_fn(const hr_kernels *ref, const hr_kernels *tested, hr_report *report);

typedef struct hr_family {
  const char *name;
  hr_check_fn *check;
} hr_family;

const hr_family *hr_families(size_t *count);

hr_check_fn hr_check_product, hr_check_pack, hr_check_quantize, hr_check_norm, hr_check_attention,
    hr_check_store, hr_check_rope, hr_check_activation, hr_check_elementary, hr_check_softmax,
    hr_check_arithmetic, hr_check_conversion;

/* After all families: the function of a slot without a typical case, which no benchmark would
 * time; NULL when there is none. Slots that were passed over, those shared with ref unless `own`,
 * need none. */
const char *hr_slot_untimed(const hr_benchmark *benchmark, const hr_kernels *ref,
                            const hr_kernels *tested, bool own);

/* Runs the checks with deliberately wrong kernels. True when each one is
 * caught and named; else what went unnoticed is in the report. */
bool hr_check_the_checks(hr_report *report);

#endif
