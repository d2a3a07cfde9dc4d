/* SPDX-License-Identifier: MIT */
#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

hr_status hr_fail(hr_error *err, hr_status status, const char *format, ...) {
  if (err) {
    va_list args;
    va_start(args, format);
    int length = vsnprintf(err->message, sizeof err->message, format, args);
    va_end(args);
    if (length < 0) err->message[0] = '\0';
    if ((size_t)length >= sizeof err->message)
      memcpy(err->message + sizeof err->message - 4, "...", 4);
    err->status = status;
  }
  return status;
}

hr_status hr_fail_memory(hr_error *err, const char *what, size_t bytes) {
  return hr_fail(err, HR_ERROR_MEMORY, "%s: no memory for %zu bytes", what, bytes);
}
