/* SPDX-License-Identifier: MIT
 * What the checks stand on: repeatable numbers, guarded buffers, reports. */
#ifndef HR_TESTS_KERNELS_HARNESS_H
#define HR_TESTS_KERNELS_HARNESS_H

#include <stdint.h>

#include "tests/kernels/checks.h"

/* Repeatable random numbers (splitmix64). */
typedef struct hr_random {
  uint64_t state;
} hr_random;

uint64_t hr_random_next(hr_random *random);
size_t hr_random_below(hr_random *random, size_t n);
float hr_random_unit(hr_random *random); /* -1 .. 1 */

/* What floats an input is made of. */
typedef enum hr_values {
  HR_VALUES_PLAIN,     /* around 1 */
  HR_VALUES_WIDE,      /* any finite float */
  HR_VALUES_TINY,      /* zeros of both signs, denormals, the smallest normals */
  HR_VALUES_INFINITE,  /* plain, a few infinities and huge numbers */
  HR_VALUES_NAN,       /* plain, a few NaN */
  HR_VALUES_ANY,       /* any bits */
  HR_VALUES_KINDS
} hr_values;

void hr_fill_floats(hr_random *random, float *x, size_t n, hr_values values);
void hr_fill_halves(hr_random *random, uint16_t *x, size_t n, hr_values values);

/* Memory with guard bytes on both sides; data starts `shift` bytes after a
 * 64-byte boundary. A copy of what it holds can be kept and compared. */
typedef struct hr_buffer {
  void *data;
  size_t bytes;
  unsigned char *block, *copy;
} hr_buffer;

hr_buffer hr_buffer_new(size_t bytes, size_t shift);
void hr_buffer_free(hr_buffer *buffer);
void hr_buffer_keep(hr_buffer *buffer);               /* remembers the contents */
void hr_buffer_same(hr_buffer *to, const hr_buffer *from); /* copies the contents */
bool hr_buffer_changed(const hr_buffer *buffer);      /* since they were remembered */
bool hr_buffer_guards_hurt(const hr_buffer *buffer);

/* Whether a slot is passed over: shared is that both tables have the same function there. */
static inline bool hr_passed_over(const hr_report *report, bool shared) {
  return shared && !report->own;
}

/* A call of a slot: operands hold the function and what it is given. */
typedef void hr_call_fn(const void *operands);

/* The seed of a slot's typical case: a shape as a model has it, plain values, and operands
 * that repeated calls do not drive out of the ordinary. It is checked as all others are, and
 * is what a benchmark times. */
enum { HR_TYPICAL = 0 };

/* One comparison in progress: the variant under test, its seed and its shape. */
typedef struct hr_case {
  hr_report *report;
  const char *variant;
  uint64_t seed;
  char shape[160];
  hr_call_fn *call;
  const void *ref, *tested; /* operands */
} hr_case;

hr_case hr_case_new(hr_report *report, const char *variant, uint64_t seed, const char *shape, ...)
    __attribute__((format(printf, 4, 5)));
/* Makes the call once with either operands: those of the definition, and those of the variant
 * under test. Both stay valid until the end. */
void hr_case_run(hr_case *c, hr_call_fn *call, const void *ref, const void *tested);
/* After all expectations: in a benchmark, times the calls of a typical case. */
void hr_case_end(hr_case *c);
void hr_case_fail(hr_case *c, const char *what, ...) __attribute__((format(printf, 2, 3)));

/* Fail the case when outputs differ, guards are hurt or an input changed. */
void hr_expect_floats(hr_case *c, const char *name, const hr_buffer *ref, const hr_buffer *tested);
void hr_expect_halves(hr_case *c, const char *name, bool brain, const hr_buffer *ref,
                      const hr_buffer *tested);
void hr_expect_bytes(hr_case *c, const char *name, const hr_buffer *ref, const hr_buffer *tested,
                     size_t bytes);
void hr_expect_kept(hr_case *c, const char *name, const hr_buffer *input);

#endif
