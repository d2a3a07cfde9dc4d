/* SPDX-License-Identifier: MIT
 * What a machine can do at most: loops that touch registers only, and a plain
 * reading of memory. They know no threads and no clock: the caller runs them on
 * as many cores as it wants and takes the time. */
#ifndef HR_PERF_LIMITS_H
#define HR_PERF_LIMITS_H

#include <stddef.h>
#include <stdint.h>

typedef void perf_beside_fn(const char *at, size_t length, size_t groups, size_t ahead);

/* Loops of one set of instructions, with the multiply-adds of one turn: int8
 * products, and the widest fp32 fma; and what the q8 product can reach of the first,
 * all that it does to a tile but without memory (NULL where there is none). */
typedef struct perf_peaks {
  const char *name; /* of the tier that brought them */
  uint32_t needs;   /* the feature that they are, or that tells which CPUs want them so */
  void (*dot)(size_t turns);
  double dot_work;
  void (*fma)(size_t turns);
  double fma_work;
  void (*tile)(size_t turns);
  double tile_work;
  /* Plain reading of length bytes, a multiple of PERF_READ_STEP, at a multiple of 64, with so many
   * groups of such fma after each step: how well the two overlap here. ahead: how many bytes
   * ahead that is fetched; 0: the CPU finds out by itself. */
  perf_beside_fn *beside;
  double beside_work; /* multiply-adds of a group */
  perf_beside_fn *tile_beside; /* the same with groups of what tile does in a turn, or NULL */
  /* All that attention of many rows does for some queries and a register of keys each with heads of
   * PERF_ATTEND_WIDTH, but without memory: scores, maxima, exponentials, sums; or NULL. */
  void (*attend)(size_t turns);
  double attend_work; /* multiply-adds of scores and value sums */
} perf_peaks;
enum { PERF_ATTEND_WIDTH = 64 };

/* The best of what a kernel tier may use, by the features that it needs and suits, so that a new
 * one has peaks at once; where its name is another one's, say so beside the figures. NULL for the
 * portable tier, which is no machine's limit. The CPU must have what the tier needs. */
const perf_peaks *perf_peaks_of(const char *tier);

/* Bytes of one load that the CPU has beside the narrowest, for its features (kernels/select.h):
 * which of them reads fastest differs, so that a limit is the best of all. Returns how many. */
enum { PERF_MOST_WIDTHS = 2 };
size_t perf_read_widths(uint32_t features, size_t width[PERF_MOST_WIDTHS]);

/* Reads length bytes (a multiple of PERF_READ_STEP) at each of at, at + stride,
 * ...: that many streams side by side, at most PERF_MOST_STREAMS. at and stride
 * are multiples of 64. width: one of perf_read_widths. */
enum { PERF_READ_STEP = 256, PERF_MOST_STREAMS = 4 };
void perf_read(const char *at, size_t length, size_t stride, size_t streams, size_t width);

#endif
