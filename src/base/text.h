/* SPDX-License-Identifier: MIT
 * How a text begins and ends: names of files, tensors and keys. */
#ifndef HR_BASE_TEXT_H
#define HR_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

static inline bool hr_starts_with(const char *text, const char *start) {
  return strncmp(text, start, strlen(start)) == 0;
}

/* Of a text of length bytes, which needs no NUL. */
static inline bool hr_bytes_end_with(const char *text, size_t length, const char *end) {
  size_t tail = strlen(end);
  return length >= tail && memcmp(text + length - tail, end, tail) == 0;
}

static inline bool hr_ends_with(const char *text, const char *end) {
  return hr_bytes_end_with(text, strlen(text), end);
}

#endif
