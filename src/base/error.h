/* SPDX-License-Identifier: MIT
 * Errors: a code and one sentence, written where the fault is seen. */
#ifndef HR_BASE_ERROR_H
#define HR_BASE_ERROR_H

#include <headrow/headrow.h>

/* Fills *err (which may be NULL) and returns status, so that a function can end
 * with `return hr_fail(err, HR_ERROR_FILE, "%s: ...", path)`. A message that is
 * too long is cut and ends in "...". */
hr_status hr_fail(hr_error *err, hr_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The sentence for a failed allocation. */
hr_status hr_fail_memory(hr_error *err, const char *what, size_t bytes);

/* Returns from a function with the status of a call that failed. */
#define HR_TRY(call)                      \
  do {                                    \
    hr_status status_ = (call);           \
    if (status_ != HR_OK) return status_; \
  } while (0)

#endif
