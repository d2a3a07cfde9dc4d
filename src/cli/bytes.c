/* SPDX-License-Identifier: MIT */
#include "bytes.h"

#include <stdlib.h>
#include <string.h>

bool cli_bytes_add(cli_bytes *bytes, const char *data, size_t count) {
  if (count > bytes->capacity - bytes->used) {
    size_t capacity;
    if (__builtin_add_overflow(bytes->used, count, &capacity)) return false;
    if (__builtin_mul_overflow(capacity, 2u, &capacity)) return false;
    char *grown = realloc(bytes->data, capacity);
    if (!grown) return false;
    bytes->data = grown;
    bytes->capacity = capacity;
  }
  if (count) memcpy(bytes->data + bytes->used, data, count);
  bytes->used += count;
  return true;
}

void cli_bytes_free(cli_bytes *bytes) {
  free(bytes->data);
  *bytes = (cli_bytes){0};
}
