/* SPDX-License-Identifier: MIT */
#include "text/utf8_stream.h"

#include <stdbool.h>

/* Bytes that a sequence with this first byte has; 0 when none starts so. */
static size_t announced(uint8_t lead) {
  if (lead < 0x80) return 1;
  if (lead < 0xc2) return 0; /* continuation bytes, and C0 and C1, which only overlong forms use */
  if (lead < 0xe0) return 2;
  if (lead < 0xf0) return 3;
  return lead < 0xf5 ? 4 : 0;
}

/* The second byte's range depends on the first: this is where overlong forms,
 * surrogates and values above U+10FFFF are seen. */
static bool second_fits(uint8_t lead, uint8_t second) {
  uint8_t low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
  uint8_t high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
  return second >= low && second <= high;
}

/* How many of the `bytes` bytes at text fit the sequence that the first announces. */
static size_t fitting(const char *text, size_t bytes) {
  if (bytes < 2 || !second_fits((uint8_t)text[0], (uint8_t)text[1])) return 1;
  size_t n = 2;
  while (n < bytes && ((uint8_t)text[n] & 0xc0) == 0x80) n++;
  return n;
}

size_t hr_utf8_length(const char *text, size_t length) {
  if (length == 0) return 0;
  size_t bytes = announced((uint8_t)text[0]);
  if (bytes <= 1) return bytes;
  return bytes <= length && fitting(text, bytes) == bytes ? bytes : 0;
}

size_t hr_utf8_whole(const char *text, size_t length) {
  for (size_t back = 1; back <= 3 && back <= length; back++) {
    const char *at = text + length - back;
    if (((uint8_t)*at & 0xc0) == 0x80) continue;
    bool may_grow = announced((uint8_t)*at) > back && fitting(at, back) == back;
    return may_grow ? length - back : length;
  }
  return length;
}

uint32_t hr_utf8_decode(const char *text, size_t bytes) {
  static const uint8_t lead_mask[5] = {0, 0x7f, 0x1f, 0x0f, 0x07};
  uint32_t code = (uint8_t)text[0] & lead_mask[bytes];
  for (size_t i = 1; i < bytes; i++) code = code << 6 | ((uint8_t)text[i] & 0x3f);
  return code;
}

size_t hr_utf8_encode(uint32_t code, char out[4]) {
  if (code < 0x80) {
    out[0] = (char)code;
    return 1;
  }
  size_t bytes = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
  static const uint8_t lead[5] = {0, 0, 0xc0, 0xe0, 0xf0};
  for (size_t i = bytes - 1; i > 0; i--) {
    out[i] = (char)(0x80 | (code & 0x3f));
    code >>= 6;
  }
  out[0] = (char)(lead[bytes] | code);
  return bytes;
}
