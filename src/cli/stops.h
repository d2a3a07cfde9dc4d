/* SPDX-License-Identifier: MIT
 * Stop texts in a stream: what could still become one is held back. */
#ifndef HR_CLI_STOPS_H
#define HR_CLI_STOPS_H

#include "bytes.h"
#include "options.h"

typedef struct cli_stops {
  const cli_texts *texts;
  cli_bytes held; /* may be the start of a stop text */
} cli_stops;

/* Adds bytes of the stream to *ready as far as they are known to be no part of a
 * stop text. The first stop text to be complete wins, and of several that end
 * together the longest: the result does not depend on how the stream is cut.
 * *stopped is then true and nothing more is to be added. False: out of memory. */
bool cli_stops_add(cli_stops *stops, const char *text, size_t length, cli_bytes *ready,
                   bool *stopped);
/* At the end of the stream what was held back is text like any other. */
bool cli_stops_end(cli_stops *stops, cli_bytes *ready);

#endif
