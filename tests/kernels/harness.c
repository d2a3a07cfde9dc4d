/* SPDX-License-Identifier: MIT */
#include "tests/kernels/harness.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#if defined(__SANITIZE_ADDRESS__)
#define HR_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HR_ASAN 1
#endif
#endif
#ifdef HR_ASAN
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(at, bytes) ((void)(at), (void)(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(at, bytes) ((void)(at), (void)(bytes))
#endif

uint64_t hr_random_next(hr_random *random) {
  uint64_t z = random->state += 0x9e3779b97f4a7c15u;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}

size_t hr_random_below(hr_random *random, size_t n) {
  return (size_t)(hr_random_next(random) >> 32) % n;
}

float hr_random_unit(hr_random *random) {
  return (float)((int32_t)(hr_random_next(random) >> 32) >> 8) * 0x1p-23f;
}

static float float_of(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

static uint32_t bits_of(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

static const uint32_t tiny_bits[] = {0x00000000, 0x80000000, 0x00000001, 0x80000001, 0x007fffff,
                                     0x807fffff, 0x00800000, 0x80800000, 0x0d7fffff, 0x0d800000};
static const uint32_t huge_bits[] = {0x7f800000, 0xff800000, 0x7f7fffff, 0xff7fffff, 0x477fe000,
                                     0xc77fe000, 0x7e800000, 0x42b17217, 0xc2aeac4f, 0xff800000};
static const uint32_t nan_bits[] = {0x7fc00000, 0xffc00000, 0x7f800001, 0xffbfffff};

static float one_float(hr_random *random, hr_values values) {
  float plain = hr_random_unit(random) * 4.0f;
  uint32_t bits = (uint32_t)hr_random_next(random);
  bool rare = hr_random_below(random, 24) == 0;
  switch (values) {
    case HR_VALUES_PLAIN: return plain;
    case HR_VALUES_WIDE:
      return float_of((bits & 0x7f800000u) == 0x7f800000u ? bits & 0x83ffffffu : bits);
    case HR_VALUES_TINY: return float_of(tiny_bits[bits % 10]);
    case HR_VALUES_INFINITE: return rare ? float_of(huge_bits[bits % 10]) : plain;
    case HR_VALUES_NAN: return rare ? float_of(nan_bits[bits % 4]) : plain;
    case HR_VALUES_ANY: return float_of(bits);
    case HR_VALUES_KINDS: break;
  }
  return 0.0f;
}

void hr_fill_floats(hr_random *random, float *x, size_t n, hr_values values) {
  for (size_t i = 0; i < n; i++) {
    float v = one_float(random, values);
    memcpy((char *)x + i * sizeof v, &v, sizeof v);
  }
}

static const uint16_t tiny_halves[] = {0x0000, 0x8000, 0x0001, 0x8001, 0x03ff, 0x83ff, 0x0400};
static const uint16_t huge_halves[] = {0x7bff, 0xfbff, 0x7c00, 0xfc00, 0x7bfe};
static const uint16_t nan_halves[] = {0x7e00, 0xfe00, 0x7c01, 0xffff};

void hr_fill_halves(hr_random *random, uint16_t *x, size_t n, hr_values values) {
  for (size_t i = 0; i < n; i++) {
    uint16_t bits = (uint16_t)hr_random_next(random);
    uint16_t plain = (uint16_t)((bits & 0x83ffu) | (0x2c00u + (bits >> 10 & 3u) * 0x0400u));
    bool rare = hr_random_below(random, 24) == 0;
    switch (values) {
      case HR_VALUES_PLAIN: x[i] = plain; break;
      case HR_VALUES_WIDE:
        x[i] = (bits & 0x7c00u) == 0x7c00u ? (uint16_t)(bits & 0xbfffu) : bits;
        break;
      case HR_VALUES_TINY: x[i] = tiny_halves[bits % 7]; break;
      case HR_VALUES_INFINITE: x[i] = rare ? huge_halves[bits % 5] : plain; break;
      case HR_VALUES_NAN: x[i] = rare ? nan_halves[bits % 4] : plain; break;
      default: x[i] = bits; break;
    }
  }
}

/* Guard bytes make NaN of whatever reads them as floats. */
enum { GUARD = 128, GUARD_BYTE = 0xff };

static void *take(size_t bytes) {
  void *block = aligned_alloc(64, (bytes + 63) / 64 * 64);
  if (!block) {
    fputs("out of memory\n", stderr);
    exit(2);
  }
  return block;
}

hr_buffer hr_buffer_new(size_t bytes, size_t shift) {
  hr_buffer b = {.bytes = bytes};
  b.block = take(bytes + shift + 2 * GUARD);
  memset(b.block, GUARD_BYTE, bytes + shift + 2 * GUARD);
  b.data = b.block + GUARD + shift;
  b.copy = take(bytes + 1);
  ASAN_POISON_MEMORY_REGION(b.block, GUARD + shift);
  ASAN_POISON_MEMORY_REGION((unsigned char *)b.data + bytes, GUARD);
  return b;
}

void hr_buffer_free(hr_buffer *b) {
  ASAN_UNPOISON_MEMORY_REGION(b->block, (size_t)((unsigned char *)b->data - b->block));
  ASAN_UNPOISON_MEMORY_REGION((unsigned char *)b->data + b->bytes, GUARD);
  free(b->block);
  free(b->copy);
}

void hr_buffer_keep(hr_buffer *b) {
  memcpy(b->copy, b->data, b->bytes);
}

void hr_buffer_same(hr_buffer *to, const hr_buffer *from) {
  memcpy(to->data, from->data, to->bytes < from->bytes ? to->bytes : from->bytes);
}

bool hr_buffer_changed(const hr_buffer *b) {
  return memcmp(b->copy, b->data, b->bytes) != 0;
}

bool hr_buffer_guards_hurt(const hr_buffer *b) {
  unsigned char *data = b->data, *end = data + b->bytes;
  bool hurt = false;
  ASAN_UNPOISON_MEMORY_REGION(b->block, (size_t)(data - b->block));
  ASAN_UNPOISON_MEMORY_REGION(end, GUARD);
  for (const unsigned char *p = b->block; p < data; p++) hurt |= *p != GUARD_BYTE;
  for (const unsigned char *p = end; p < end + GUARD; p++) hurt |= *p != GUARD_BYTE;
  ASAN_POISON_MEMORY_REGION(b->block, (size_t)(data - b->block));
  ASAN_POISON_MEMORY_REGION(end, GUARD);
  return hurt;
}

hr_case hr_case_new(hr_report *report, const char *variant, uint64_t seed, const char *shape, ...) {
  hr_case c = {.report = report, .variant = variant, .seed = seed};
  va_list args;
  va_start(args, shape);
  vsnprintf(c.shape, sizeof c.shape, shape, args);
  va_end(args);
  report->cases++;
  return c;
}

void hr_case_run(hr_case *c, hr_call_fn *call, const void *ref, const void *tested) {
  call(ref);
  call(tested);
  c->call = call;
  c->ref = ref;
  c->tested = tested;
}

void hr_case_fail(hr_case *c, const char *what, ...) {
  char detail[160];
  va_list args;
  va_start(args, what);
  vsnprintf(detail, sizeof detail, what, args);
  va_end(args);
  c->report->failures++;
  size_t used = strlen(c->report->text), room = sizeof c->report->text - used;
  char line[512];
  int length = snprintf(line, sizeof line, "%s: seed %llu, %s: %s\n", c->variant,
                        (unsigned long long)c->seed, c->shape, detail);
  if (length > 0 && (size_t)length < room) memcpy(c->report->text + used, line, (size_t)length + 1);
}

static void expect_guards(hr_case *c, const char *name, const hr_buffer *b) {
  if (hr_buffer_guards_hurt(b)) hr_case_fail(c, "wrote outside %s", name);
}

void hr_expect_floats(hr_case *c, const char *name, const hr_buffer *ref, const hr_buffer *tested) {
  size_t n = ref->bytes / sizeof(float);
  for (size_t i = 0; i < n; i++) {
    float a, b;
    memcpy(&a, (const char *)ref->data + i * sizeof a, sizeof a);
    memcpy(&b, (const char *)tested->data + i * sizeof b, sizeof b);
    if (bits_of(a) == bits_of(b) || (isnan(a) && isnan(b))) continue;
    hr_case_fail(c, "%s[%zu] is %08x (%g), not %08x (%g)", name, i, bits_of(b), (double)b,
                 bits_of(a), (double)a);
    break;
  }
  expect_guards(c, name, tested);
}

void hr_expect_halves(hr_case *c, const char *name, bool brain, const hr_buffer *ref,
                      const hr_buffer *tested) {
  unsigned infinity = brain ? 0x7f80u : 0x7c00u;
  for (size_t i = 0; i < ref->bytes / 2; i++) {
    uint16_t a, b;
    memcpy(&a, (const char *)ref->data + i * 2, 2);
    memcpy(&b, (const char *)tested->data + i * 2, 2);
    if (a == b || ((a & 0x7fffu) > infinity && (b & 0x7fffu) > infinity)) continue;
    hr_case_fail(c, "%s[%zu] is %04x, not %04x", name, i, b, a);
    break;
  }
  expect_guards(c, name, tested);
}

void hr_expect_bytes(hr_case *c, const char *name, const hr_buffer *ref, const hr_buffer *tested,
                     size_t bytes) {
  const unsigned char *a = ref->data, *b = tested->data;
  for (size_t i = 0; i < bytes; i++)
    if (a[i] != b[i]) {
      hr_case_fail(c, "%s: byte %zu is %02x, not %02x", name, i, b[i], a[i]);
      break;
    }
  expect_guards(c, name, tested);
}

void hr_expect_kept(hr_case *c, const char *name, const hr_buffer *input) {
  if (hr_buffer_changed(input)) hr_case_fail(c, "changed its input %s", name);
  expect_guards(c, name, input);
}

static double seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Seconds of one call, of as many as two milliseconds take. */
static double time_calls(hr_call_fn *call, const void *operands) {
  size_t calls = 0;
  double start = seconds(), spent;
  do {
    call(operands);
    calls++;
    spent = seconds() - start;
  } while (spent < 2e-3);
  return spent / (double)calls;
}

void hr_case_end(hr_case *c) {
  enum { ROUNDS = 5 };
  hr_benchmark *b = c->report->benchmark;
  if (!b || c->seed != HR_TYPICAL || b->count == HR_MOST_SLOTS) return;
  b->variant[b->count++] = c->variant;
  if (!b->run) return;
  double ref = INFINITY, tested = INFINITY;
  for (int round = 0; round < ROUNDS; round++) { /* in turn */
    ref = fmin(ref, time_calls(c->call, c->ref));
    tested = fmin(tested, time_calls(c->call, c->tested));
  }
  printf("  %-28s %10.0f ns   portable %10.0f ns   %6.1f x   %s\n", c->variant, tested * 1e9,
         ref * 1e9, ref / tested, c->shape);
}
