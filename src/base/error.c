/* SPDX-License-Identifier: MIT */
#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* One line, whatever a name from a file or a path holds: control bytes become \xNN. */
static void put_line(char *message, size_t room, const char *text) {
  size_t used = 0;
  bool cut = false;
  for (; *text && !cut; text++) {
    unsigned char c = (unsigned char)*text;
    bool plain = c >= 0x20 && c != 0x7f;
    if (used + (plain ? 1 : 4) >= room) {
      cut = true;
    } else if (plain) {
      message[used++] = *text;
    } else {
      snprintf(message + used, room - used, "\\x%02x", c);
      used += 4;
    }
  }
  message[used] = '\0';
  if (cut) memcpy(message + (used < room - 4 ? used : room - 4), "...", 4);
}

hr_status hr_fail(hr_error *err, hr_status status, const char *format, ...) {
  if (err) {
    char text[sizeof err->message + 1];
    va_list args;
    va_start(args, format);
    if (vsnprintf(text, sizeof text, format, args) < 0) text[0] = '\0';
    va_end(args);
    put_line(err->message, sizeof err->message, text);
    err->status = status;
  }
  return status;
}

hr_status hr_fail_memory(hr_error *err, const char *what, size_t bytes) {
  return hr_fail(err, HR_ERROR_MEMORY, "%s: no memory for %zu bytes", what, bytes);
}
