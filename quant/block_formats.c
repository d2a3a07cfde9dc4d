/* SPDX-License-Identifier: MIT
 * Blocks of 32 values (Q4_0 ... Q8_0, IQ4_NL) and of 256 (the K formats), byte
 * by byte as GGUF files hold them. No block is aligned.
 *
 * A value is d * q, d * q + m, d * scale * q or d * scale * q - dmin * m, its
 * products taken from the left in fp32. Those of the scales with each other and with q
 * are exact (11 + 6 + 6 bits at most), but for Q6_K's last (11 + 8 + 6). */
#include "quant/block_formats.h"

#include <string.h>

#include "kernels/portable/half.h"

enum { BLOCK = 32, SUPER = 256 };

static float half_at(const uint8_t *from) {
  uint16_t half;
  memcpy(&half, from, sizeof half);
  return hr_widen_half(half);
}

static uint32_t word_at(const uint8_t *from) {
  uint32_t word;
  memcpy(&word, from, sizeof word);
  return word;
}

/* --- Blocks of 32 -----------------------------------------------------------
 * Byte i of a block's nibbles holds values i (low) and i + 16 (high). */

static unsigned nibble(const uint8_t *nibbles, unsigned i) {
  return i < 16 ? nibbles[i] & 15u : nibbles[i - 16] >> 4;
}

/* With a fifth bit of each value in a word. */
static unsigned five_bits(const uint8_t *nibbles, uint32_t high, unsigned i) {
  return nibble(nibbles, i) | (high >> i & 1u) << 4;
}

enum { Q4_0_BYTES = 18, Q4_1_BYTES = 20, Q5_0_BYTES = 22, Q5_1_BYTES = 24 };

void hr_q8_from_q4_0(const void *src, hr_q8_file_block *dst, size_t count) {
  const uint8_t *from = src;
  for (size_t b = 0; b < count / BLOCK; b++, from += Q4_0_BYTES) {
    memcpy(&dst[b].scale, from, 2);
    for (unsigned i = 0; i < BLOCK; i++) dst[b].q[i] = (int8_t)((int)nibble(from + 2, i) - 8);
  }
}

void hr_q8_from_q5_0(const void *src, hr_q8_file_block *dst, size_t count) {
  const uint8_t *from = src;
  for (size_t b = 0; b < count / BLOCK; b++, from += Q5_0_BYTES) {
    uint32_t high = word_at(from + 2);
    memcpy(&dst[b].scale, from, 2);
    for (unsigned i = 0; i < BLOCK; i++)
      dst[b].q[i] = (int8_t)((int)five_bits(from + 6, high, i) - 16);
  }
}

/* Levels that lie as the weights of a trained model do: close near zero. */
static const int8_t iq4_nl_levels[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                         1,    13,   25,  38,  53,  69,  89,  113};

void hr_q8_from_iq4_nl(const void *src, hr_q8_file_block *dst, size_t count) {
  const uint8_t *from = src;
  for (size_t b = 0; b < count / BLOCK; b++, from += Q4_0_BYTES) {
    memcpy(&dst[b].scale, from, 2);
    for (unsigned i = 0; i < BLOCK; i++) dst[b].q[i] = iq4_nl_levels[nibble(from + 2, i)];
  }
}

static void widen_block(const hr_q8_file_block *block, float *dst) {
  float scale = hr_widen_half(block->scale);
  for (unsigned i = 0; i < BLOCK; i++) dst[i] = scale * (float)block->q[i];
}

typedef void to_q8_fn(const void *src, hr_q8_file_block *dst, size_t count);

static void widen_as_q8(to_q8_fn *to_q8, size_t bytes, const void *src, float *dst, size_t count) {
  const uint8_t *from = src;
  hr_q8_file_block block;
  for (size_t i = 0; i < count; i += BLOCK, from += bytes) {
    to_q8(from, &block, BLOCK);
    widen_block(&block, dst + i);
  }
}

void hr_widen_q4_0(const void *src, float *dst, size_t count) {
  widen_as_q8(hr_q8_from_q4_0, Q4_0_BYTES, src, dst, count);
}
void hr_widen_q5_0(const void *src, float *dst, size_t count) {
  widen_as_q8(hr_q8_from_q5_0, Q5_0_BYTES, src, dst, count);
}
void hr_widen_iq4_nl(const void *src, float *dst, size_t count) {
  widen_as_q8(hr_q8_from_iq4_nl, Q4_0_BYTES, src, dst, count);
}

/* 11 bits of scale times 8 bits of value fit in 24: exact. */
void hr_widen_q8_0(const void *src, float *dst, size_t count) {
  const uint8_t *from = src;
  hr_q8_file_block block;
  for (size_t i = 0; i < count; i += BLOCK, from += sizeof block) {
    memcpy(&block, from, sizeof block);
    widen_block(&block, dst + i);
  }
}

void hr_widen_q4_1(const void *src, float *dst, size_t count) {
  const uint8_t *from = src;
  for (size_t b = 0; b < count / BLOCK; b++, from += Q4_1_BYTES, dst += BLOCK) {
    float scale = half_at(from), minimum = half_at(from + 2);
    for (unsigned i = 0; i < BLOCK; i++) dst[i] = scale * (float)nibble(from + 4, i) + minimum;
  }
}

void hr_widen_q5_1(const void *src, float *dst, size_t count) {
  const uint8_t *from = src;
  for (size_t b = 0; b < count / BLOCK; b++, from += Q5_1_BYTES, dst += BLOCK) {
    float scale = half_at(from), minimum = half_at(from + 2);
    uint32_t high = word_at(from + 4);
    for (unsigned i = 0; i < BLOCK; i++)
      dst[i] = scale * (float)five_bits(from + 8, high, i) + minimum;
  }
}

/* --- Blocks of 256 ----------------------------------------------------------
 * The low bits of a value lie in "planes": 128 values (64 in Q4_K and Q5_K) share
 * 32 bytes, the first 32 of them in the lowest bits, the next in the bits above. */

/* 16 bytes of scale and minimum (4 bits each), 64 of values (2 bits), d, dmin. */
enum { Q2_K_BYTES = 84 };

void hr_widen_q2_k(const void *src, float *dst, size_t count) {
  const uint8_t *from = src;
  for (size_t b = 0; b < count / SUPER; b++, from += Q2_K_BYTES, dst += SUPER) {
    const uint8_t *bits = from + 16;
    float d = half_at(from + 80), dmin = half_at(from + 82);
    for (unsigned i = 0; i < SUPER; i++) {
      uint8_t both = from[i / 16];
      unsigned q = bits[i / 128 * 32 + i % 32] >> (i / 32 % 4 * 2) & 3u;
      dst[i] = d * (float)(both & 15) * (float)q - dmin * (float)(both >> 4);
    }
  }
}

/* 32 bytes of a third bit (of value i: bit i / 32 of byte i mod 32), 64 of values
 * (2 bits), 12 of scales (6 bits), d. */
enum { Q3_K_BYTES = 110 };

/* Scale i: its low four bits in a nibble of bytes 0 to 7, two more in bytes 8 to 11. */
static int q3_k_scale(const uint8_t *scales, unsigned i) {
  unsigned low = i < 8 ? scales[i] & 15u : scales[i - 8] >> 4;
  unsigned high = scales[8 + i % 4] >> (i / 4 * 2) & 3u;
  return (int)(low | high << 4) - 32;
}

void hr_widen_q3_k(const void *src, float *dst, size_t count) {
  const uint8_t *from = src;
  for (size_t b = 0; b < count / SUPER; b++, from += Q3_K_BYTES, dst += SUPER) {
    const uint8_t *bits = from + 32;
    float d = half_at(from + 108);
    for (unsigned i = 0; i < SUPER; i++) {
      unsigned low = bits[i / 128 * 32 + i % 32] >> (i / 32 % 4 * 2) & 3u;
      unsigned high = from[i % 32] >> (i / 32) & 1u;
      int q = (int)(low | high << 2) - 4;
      dst[i] = d * (float)q3_k_scale(from + 96, i / 16) * (float)q;
    }
  }
}

/* d, dmin, 12 bytes of scales and minima (6 bits each), in Q5_K 32 of a fifth bit,
 * 128 of values (4 bits). */
enum { Q4_K_BYTES = 144, Q5_K_BYTES = 176 };

typedef struct scale_min {
  unsigned scale, min;
} scale_min;

/* The first four scales and minima are the low six bits of a byte each; the
 * others have four bits in bytes 8 to 11 and two at the top of bytes 0 to 7. */
static scale_min scale_min_at(const uint8_t *packed, unsigned i) {
  if (i < 4) return (scale_min){packed[i] & 63u, packed[i + 4] & 63u};
  unsigned low = packed[i + 4], scale_top = packed[i - 4] >> 6, min_top = packed[i] >> 6;
  return (scale_min){(low & 15u) | scale_top << 4, low >> 4 | min_top << 4};
}

/* high: the 32 bytes of fifth bits, or NULL. */
static void widen_32_with_min(const uint8_t *block, const uint8_t *nibbles, const uint8_t *high,
                              unsigned part, float *dst) {
  scale_min s = scale_min_at(block + 4, part);
  float scale = half_at(block) * (float)s.scale, minimum = half_at(block + 2) * (float)s.min;
  for (unsigned i = 0; i < 32; i++) {
    unsigned q = nibbles[part / 2 * 32 + i] >> (part % 2 * 4) & 15u;
    if (high) q |= (high[i] >> part & 1u) << 4;
    dst[i] = scale * (float)q - minimum;
  }
}

void hr_widen_q4_k(const void *src, float *dst, size_t count) {
  const uint8_t *from = src;
  for (size_t b = 0; b < count / SUPER; b++, from += Q4_K_BYTES, dst += SUPER)
    for (unsigned part = 0; part < 8; part++)
      widen_32_with_min(from, from + 16, NULL, part, dst + part * 32);
}

void hr_widen_q5_k(const void *src, float *dst, size_t count) {
  const uint8_t *from = src;
  for (size_t b = 0; b < count / SUPER; b++, from += Q5_K_BYTES, dst += SUPER)
    for (unsigned part = 0; part < 8; part++)
      widen_32_with_min(from, from + 48, from + 16, part, dst + part * 32);
}

/* 128 bytes of low nibbles, 64 of two more bits, 16 signed scales, d. */
enum { Q6_K_BYTES = 210 };

void hr_widen_q6_k(const void *src, float *dst, size_t count) {
  const uint8_t *from = src;
  for (size_t b = 0; b < count / SUPER; b++, from += Q6_K_BYTES, dst += SUPER) {
    const uint8_t *high = from + 128, *scales = from + 192;
    float d = half_at(from + 208);
    for (unsigned i = 0; i < SUPER; i++) {
      unsigned low = from[i / 128 * 64 + i % 64] >> (i / 64 % 2 * 4) & 15u;
      unsigned top = high[i / 128 * 32 + i % 32] >> (i / 32 % 4 * 2) & 3u;
      int q = (int)(low | top << 4) - 32;
      dst[i] = d * (float)(int8_t)scales[i / 16] * (float)q;
    }
  }
}
