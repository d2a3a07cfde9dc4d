/* SPDX-License-Identifier: MIT
 * Waiting for another thread: look at a word for a bounded time, then sleep.
 *
 * A word is a count in its upper 31 bits and, in bit 0, "somebody sleeps". The
 * sleeper sets the bit with the very compare-exchange that proves the count has
 * not moved, and whoever moves the count clears it in one exchange, so a wake-up
 * can't be lost and no system call is made while nobody sleeps. */
#ifndef HR_SCHED_WAIT_H
#define HR_SCHED_WAIT_H

#include <linux/futex.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

typedef struct hr_word {
  _Atomic uint32_t value;
} hr_word;

#define HR_WORD_ASLEEP 1u
#define HR_WORD_STEP 2u

static inline void hr_cpu_relax(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  /* yield is a no-op on most cores; isb holds the pipeline for some ten ns. */
  __asm__ volatile("isb" : : : "memory");
#else
  __asm__ volatile("" : : : "memory");
#endif
}

static inline uint64_t hr_clock_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec;
}

/* The count, to be handed to hr_word_wait. */
static inline uint32_t hr_word_read(hr_word *word) {
  return atomic_load_explicit(&word->value, memory_order_acquire) & ~HR_WORD_ASLEEP;
}

/* Moves the count and wakes who sleeps. One thread at a time may do so. */
static inline void hr_word_advance(hr_word *word) {
  uint32_t next = (atomic_load_explicit(&word->value, memory_order_relaxed) & ~HR_WORD_ASLEEP) +
                  HR_WORD_STEP;
  uint32_t old = atomic_exchange_explicit(&word->value, next, memory_order_acq_rel);
  if (old & HR_WORD_ASLEEP)
    (void)syscall(SYS_futex, &word->value, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}

static inline void hr_word_sleep(hr_word *word, uint32_t seen) {
  for (;;) {
    uint32_t now = seen;
    if (!atomic_compare_exchange_strong_explicit(&word->value, &now, seen | HR_WORD_ASLEEP,
                                                 memory_order_acquire, memory_order_acquire) &&
        now != (seen | HR_WORD_ASLEEP))
      return;
    (void)syscall(SYS_futex, &word->value, FUTEX_WAIT_PRIVATE, seen | HR_WORD_ASLEEP, NULL, NULL,
                  0);
  }
}

/* Returns once the count differs from seen; looks for about spin_ns first. The
 * bound is a time: a pause instruction takes 1 to 140 cycles, so a count of
 * them says nothing. */
static inline void hr_word_wait(hr_word *word, uint32_t seen, uint64_t spin_ns) {
  enum { LOOKS = 32, /* between two readings of the clock */
         TURNS = 16 };
  uint64_t start = 0;
  /* Who must not spin stands back a few times: where threads share a CPU, that lets
   * the others of the team come to the same point for a tenth of what sleeping costs. */
  for (int i = 0; spin_ns == 0 && i < TURNS; i++) {
    if (hr_word_read(word) != seen) return;
    sched_yield();
  }
  for (;;) {
    for (int i = 0; i < LOOKS; i++) {
      if (hr_word_read(word) != seen) return;
      if (spin_ns == 0) break;
      hr_cpu_relax();
    }
    if (spin_ns == 0) break;
    uint64_t now = hr_clock_ns();
    if (start == 0) start = now;
    if (now - start >= spin_ns) break;
  }
  hr_word_sleep(word, seen);
}

#endif
