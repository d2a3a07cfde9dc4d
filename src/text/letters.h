/* SPDX-License-Identifier: MIT
 * In byte-level BPE every byte is written as a visible letter: itself where it
 * is one in Latin-1, else the next free one from U+0100 on. */
#ifndef HR_TEXT_LETTERS_H
#define HR_TEXT_LETTERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static inline bool hr_is_own_letter(unsigned byte) {
  return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

/* The bytes that are not their own letter are, in order, 0x00-0x20, 0x7f-0xa0 and 0xad. */
static inline uint32_t hr_letter_of_byte(unsigned byte) {
  if (hr_is_own_letter(byte)) return byte;
  if (byte <= 0x20) return 0x100 + byte;
  return byte == 0xad ? 0x143 : 0x121 + byte - 0x7f;
}

/* -1: it is the letter of no byte. */
static inline int hr_byte_of_letter(uint32_t code) {
  if (code < 0x100) return hr_is_own_letter(code) ? (int)code : -1;
  if (code <= 0x120) return (int)(code - 0x100);
  if (code <= 0x142) return (int)(code - 0x121 + 0x7f);
  return code == 0x143 ? 0xad : -1;
}

#endif
