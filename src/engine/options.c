/* SPDX-License-Identifier: MIT */
#include "engine/options.h"

#include <string.h>

#include "base/error.h"

/* No options will ever be as large: a greater size is one that was never set. */
enum { MOST_BYTES = 4096 };

void hr_options_fill(void *options, size_t size, const void *defaults, size_t known) {
  memset(options, 0, size);
  memcpy(options, defaults, size < known ? size : known);
  memcpy(options, &size, size < sizeof size ? size : sizeof size);
}

hr_status hr_options_check_size(const void *options, size_t known, const char *type,
                                hr_error *err) {
  size_t size;
  memcpy(&size, options, sizeof size);
  if (size >= sizeof size && size <= MOST_BYTES) return HR_OK;
  return hr_fail(err, HR_ERROR_USAGE, "%s: size is %zu, expected %zu; use %s_init", type, size,
                 known, type);
}

hr_status hr_options_take(void *taken, size_t known, const void *options, const char *type,
                          hr_error *err) {
  if (!options) return HR_OK;
  hr_status status = hr_options_check_size(options, known, type, err);
  if (status != HR_OK) return status;
  size_t size;
  memcpy(&size, options, sizeof size);
  for (size_t i = known; i < size; i++)
    if (((const char *)options)[i] != 0)
      return hr_fail(
          err, HR_ERROR_USAGE,
          "%s: byte %zu is set, expected zeros after the %zu that headrow %s knows", type, i,
          known, hr_version());
  memcpy(taken, options, size < known ? size : known);
  memcpy(taken, &known, sizeof known);
  return HR_OK;
}
