/* SPDX-License-Identifier: MIT
 * Bytes that grow. */
#ifndef HR_CLI_BYTES_H
#define HR_CLI_BYTES_H

#include <stdbool.h>
#include <stddef.h>

typedef struct cli_bytes {
  char *data;
  size_t used, capacity;
} cli_bytes;

/* False when memory is out; the bytes so far stay. */
bool cli_bytes_add(cli_bytes *bytes, const char *data, size_t count);
void cli_bytes_free(cli_bytes *bytes);

#endif
