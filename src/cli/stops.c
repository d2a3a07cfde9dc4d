/* SPDX-License-Identifier: MIT */
#include "stops.h"

#include <string.h>

/* Length of the longest stop text that the held bytes end in; 0: none. */
static size_t complete(const cli_stops *s) {
  size_t best = 0;
  for (size_t i = 0; i < s->texts->count; i++) {
    size_t n = strlen(s->texts->item[i]);
    if (n <= s->held.used && n > best &&
        memcmp(s->held.data + s->held.used - n, s->texts->item[i], n) == 0)
      best = n;
  }
  return best;
}

/* Length of the longest end of the held bytes that a stop text starts with. */
static size_t promising(const cli_stops *s) {
  size_t best = 0;
  for (size_t i = 0; i < s->texts->count; i++) {
    size_t n = strlen(s->texts->item[i]) - 1;
    if (n > s->held.used) n = s->held.used;
    while (n > best && memcmp(s->held.data + s->held.used - n, s->texts->item[i], n) != 0) n--;
    if (n > best) best = n;
  }
  return best;
}

/* Hands out all held bytes but the last `keep`. */
static bool release(cli_stops *s, size_t keep, cli_bytes *ready) {
  size_t n = s->held.used - keep;
  if (!cli_bytes_add(ready, s->held.data, n)) return false;
  if (n) memmove(s->held.data, s->held.data + n, keep);
  s->held.used = keep;
  return true;
}

bool cli_stops_add(cli_stops *s, const char *text, size_t length, cli_bytes *ready, bool *stopped) {
  *stopped = false;
  if (s->texts->count == 0) return cli_bytes_add(ready, text, length);
  for (size_t i = 0; i < length; i++) {
    if (!cli_bytes_add(&s->held, text + i, 1)) return false;
    size_t match = complete(s);
    if (match) {
      *stopped = true;
      s->held.used -= match;
      return release(s, 0, ready);
    }
    if (!release(s, promising(s), ready)) return false;
  }
  return true;
}

bool cli_stops_end(cli_stops *s, cli_bytes *ready) {
  return release(s, 0, ready);
}
