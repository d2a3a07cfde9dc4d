/* SPDX-License-Identifier: MIT
 * Bytes in, whole code points out. */
#ifndef HR_TEXT_UTF8_STREAM_H
#define HR_TEXT_UTF8_STREAM_H

#include <stddef.h>
#include <stdint.h>

/* The length of the longest prefix of text that does not end inside a code
 * point: bytes after it may yet become one. Bytes that can't start or continue
 * a code point count as whole. The rest is at most 3 bytes. */
size_t hr_utf8_whole(const char *text, size_t length);

/* The number of bytes (1 to 4) of the code point that text starts with; 0 when
 * it starts with none: a stray or cut sequence, an overlong form, a surrogate,
 * something above U+10FFFF, or nothing at all. */
size_t hr_utf8_length(const char *text, size_t length);

/* The code point of a sequence that hr_utf8_length measured. */
uint32_t hr_utf8_decode(const char *text, size_t bytes);

/* Writes a code point (at most U+10FFFF) as 1 to 4 bytes and returns how many. */
size_t hr_utf8_encode(uint32_t code, char out[4]);

#endif
