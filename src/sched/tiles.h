/* SPDX-License-Identifier: MIT
 * Tiles of one step of a pass, handed out without a lock: each thread owns a
 * range of them, cut by its share of the speed, and takes from the front; a
 * thread that has none left steals from the back of another's range.
 *
 * Rules. A step uses one pool; the steps of a pass take turns with two:
 *
 *     reset(pool 0) for step 0                   (before the pass, or at its start)
 *     for each step s:
 *       reset(pool (s + 1) % 2) for step s + 1   (each thread, its own range)
 *       while next(pool s % 2): compute the tile
 *       barrier
 *
 * 1. Every thread of the pass resets its own range, all with the same count,
 *    threads and shares, and calls next until it says false.
 * 2. Between the last next of one use of a pool and the first reset for its
 *    following use lies a barrier. With two pools that is the barrier that the
 *    steps need anyway, and no other one is.
 * 3. A reset before the barrier in front of its step lets others steal from a
 *    thread that is late; a reset after it is right too, but a range that isn't
 *    there yet can't be stolen.
 *
 * Who computes a tile never changes its bits, so tests set seed to steal at random. */
#ifndef HR_SCHED_TILES_H
#define HR_SCHED_TILES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

typedef struct hr_tiles_range {
  _Alignas(64) _Atomic uint64_t range; /* begin in the low half, end in the high one */
  uint32_t random;                     /* state of the owner's random numbers */
  char pad[128 - 12];
} hr_tiles_range;

typedef struct hr_tiles {
  hr_tiles_range *of; /* one a thread */
  unsigned threads;   /* how many there are */
  uint32_t seed;      /* not 0: steal at random; set between passes */
} hr_tiles;

/* A thief looks at no more than this many others, the next ones: with very many
 * threads a look at all would cost more than the tile is worth. */
#define HR_TILES_WINDOW 16u

/* Room for that many threads; hr_tiles_finish gives it back. */
hr_status hr_tiles_init(hr_tiles *tiles, unsigned threads, hr_error *err);
void hr_tiles_finish(hr_tiles *tiles);

/* Where the range of a thread begins; that of `threads` is count. shares holds
 * running sums of the threads' weights, threads + 1 of them from 0 on; NULL:
 * all alike. */
static inline uint32_t hr_tiles_begin(unsigned thread, unsigned threads, uint32_t count,
                                      const uint32_t *shares) {
  if (!shares) return (uint32_t)((uint64_t)count * thread / threads);
  return (uint32_t)((uint64_t)count * shares[thread] / shares[threads]);
}

/* Fills the thread's own range for a step of count tiles. */
static inline void hr_tiles_reset(hr_tiles *tiles, unsigned thread, unsigned threads,
                                  uint32_t count, const uint32_t *shares) {
  uint64_t begin = hr_tiles_begin(thread, threads, count, shares);
  uint64_t end = hr_tiles_begin(thread + 1, threads, count, shares);
  hr_tiles_range *own = &tiles->of[thread];
  if (tiles->seed && !own->random) own->random = tiles->seed * 2654435761u + thread * 40503u + 1;
  atomic_store_explicit(&own->range, end << 32 | begin, memory_order_release);
}

static inline uint32_t hr_tiles_left(uint64_t range) {
  return (uint32_t)(range >> 32) - (uint32_t)range;
}

static inline bool hr_tiles_take_front(hr_tiles_range *r, uint32_t *tile) {
  uint64_t now = atomic_load_explicit(&r->range, memory_order_acquire);
  while (hr_tiles_left(now)) {
    if (!atomic_compare_exchange_weak_explicit(&r->range, &now, now + 1, memory_order_acq_rel,
                                               memory_order_acquire))
      continue;
    *tile = (uint32_t)now;
    return true;
  }
  return false;
}

static inline bool hr_tiles_take_back(hr_tiles_range *r, uint32_t *tile) {
  uint64_t now = atomic_load_explicit(&r->range, memory_order_acquire);
  while (hr_tiles_left(now)) {
    if (!atomic_compare_exchange_weak_explicit(&r->range, &now, now - (UINT64_C(1) << 32),
                                               memory_order_acq_rel, memory_order_acquire))
      continue;
    *tile = (uint32_t)(now >> 32) - 1;
    return true;
  }
  return false;
}

/* From the next threads' fullest range; false when all of them are empty. */
bool hr_tiles_steal(hr_tiles *tiles, unsigned thread, unsigned threads, uint32_t *tile);
/* Now and then a tile of somebody else although the own range has some. */
bool hr_tiles_steal_at_random(hr_tiles *tiles, unsigned thread, unsigned threads, uint32_t *tile);

/* The thread's next tile; false when it has no more to do in this step. */
static inline bool hr_tiles_next(hr_tiles *tiles, unsigned thread, unsigned threads,
                                 uint32_t *tile) {
  if (__builtin_expect(tiles->seed != 0, 0) &&
      hr_tiles_steal_at_random(tiles, thread, threads, tile))
    return true;
  return hr_tiles_take_front(&tiles->of[thread], tile) ||
         hr_tiles_steal(tiles, thread, threads, tile);
}

#endif
