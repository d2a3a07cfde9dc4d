/* SPDX-License-Identifier: MIT
 * How far the definition's exp, tanh, erf and sigmoid are from the true values. */
#ifndef HR_TESTS_KERNELS_ELEMENTARY_ERROR_H
#define HR_TESTS_KERNELS_ELEMENTARY_ERROR_H

#include <stdint.h>

typedef struct hr_elementary {
  const char *name;
  float (*function)(float);
  long double (*truth)(long double);
  float lowest, highest; /* arguments beyond have results that overflow or are below the normal
                            range: exp is defined there (infinity, zero), sigmoid follows it */
  double bound;          /* units in the last place */
} hr_elementary;

enum { HR_ELEMENTARY_FUNCTIONS = 4 };
extern const hr_elementary hr_elementary_functions[HR_ELEMENTARY_FUNCTIONS];

typedef struct hr_elementary_error {
  double worst; /* units of the last place that a float of the true value's size has */
  float at;
  uint64_t arguments; /* compared */
} hr_elementary_error;

/* The arguments with the bits from, from + step, ... below `to`, but for those out of the
 * function's range and NaN. */
hr_elementary_error hr_elementary_measure(const hr_elementary *f, uint64_t from, uint64_t to,
                                          uint64_t step);

#endif
