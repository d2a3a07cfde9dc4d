/* SPDX-License-Identifier: MIT
 * The floating-point environment of a pass: round to nearest, nothing flushed
 * to zero, nothing trapped. A host built with fast-math flags, or one that
 * changed the rounding, must not change a result. */
#ifndef HR_SCHED_FPENV_H
#define HR_SCHED_FPENV_H

#include <fenv.h>
#include <stdint.h>

#if defined(__x86_64__) || defined(__i386__)
#include <xmmintrin.h>

typedef struct hr_fpenv {
  uint32_t mxcsr;
} hr_fpenv;

/* All exceptions masked, no sticky flag, nearest, FTZ (bit 15) and DAZ (bit 6) off. */
#define HR_FPENV_MXCSR 0x1f80u

static inline hr_fpenv hr_fpenv_enter(void) {
  hr_fpenv old = {_mm_getcsr()};
  if (old.mxcsr != HR_FPENV_MXCSR) _mm_setcsr(HR_FPENV_MXCSR);
  return old;
}

static inline void hr_fpenv_leave(hr_fpenv old) {
  _mm_setcsr(old.mxcsr);
}

#elif defined(__aarch64__)

typedef struct hr_fpenv {
  uint64_t fpcr, fpsr;
} hr_fpenv;

/* FPCR 0 is: nearest, FZ, FZ16 and AH off, NaN operands kept, no traps. */
static inline hr_fpenv hr_fpenv_enter(void) {
  hr_fpenv old;
  __asm__ volatile("mrs %0, fpcr" : "=r"(old.fpcr));
  __asm__ volatile("mrs %0, fpsr" : "=r"(old.fpsr));
  if (old.fpcr != 0) __asm__ volatile("msr fpcr, %0" : : "r"(UINT64_C(0)));
  return old;
}

static inline void hr_fpenv_leave(hr_fpenv old) {
  __asm__ volatile("msr fpcr, %0" : : "r"(old.fpcr));
  __asm__ volatile("msr fpsr, %0" : : "r"(old.fpsr));
}

#else

/* What C itself offers; flushing to zero is out of its reach. */
typedef struct hr_fpenv {
  fenv_t env;
} hr_fpenv;

static inline hr_fpenv hr_fpenv_enter(void) {
  hr_fpenv old;
  (void)feholdexcept(&old.env);
  (void)fesetround(FE_TONEAREST);
  return old;
}

static inline void hr_fpenv_leave(hr_fpenv old) {
  (void)fesetenv(&old.env);
}

#endif

static inline void hr_fpenv_end(hr_fpenv *old) {
  hr_fpenv_leave(*old);
}

/* A declaration: from here to the end of the block the environment is ours. For the doors of
 * the library, through which a host's own comes in. */
#define HR_FPENV_OWN \
  __attribute__((cleanup(hr_fpenv_end), unused)) hr_fpenv host_fpenv = hr_fpenv_enter()

#endif
