/* SPDX-License-Identifier: MIT
 * Tiles of one step of a pass, handed out without a lock: each thread owns a
 * range of them, cut by its share of the speed, and takes from its front; a
 * thread that has none left steals from the back of another's range.
 *
 *     hr_tiles_clear(tiles)                     (the caller, before the pass)
 *     for each step, numbers ascending by one from 1, every thread of the pass:
 *       hr_tiles_step s = {tiles, number, count, ...}
 *       while (hr_tiles_next(&s, &run)) compute tiles run.begin <= i < run.end
 *       barrier
 *
 * A range carries the number of its step. One that still has the number of the
 * step before is of a thread that has not begun, and means all that the thread
 * owns by its share: others may steal from it at once, so that a thread that is
 * late holds nobody up. Nothing has to be filled in before a step, and the
 * barrier that steps need anyway is the only one.
 *
 * Who computes a tile never changes its bits, so tests set seed to steal at
 * random. */
#ifndef HR_SCHED_TILES_H
#define HR_SCHED_TILES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct hr_tiles_range {
  _Alignas(64) _Atomic uint64_t word; /* number of the step, begin, end: 20, 22, 22 bits */
  uint32_t random;                    /* state of the owner's random numbers */
  char pad[128 - 12];
} hr_tiles_range;

typedef struct hr_tiles {
  hr_tiles_range *of; /* one a thread, zeros at first; the caller's memory */
  unsigned threads;   /* how many there are */
  uint32_t seed;      /* not 0: steal at random; set between passes */
} hr_tiles;

enum { HR_TILES_INDEX_BITS = 22 };
#define HR_TILES_INDEX_MASK ((UINT64_C(1) << HR_TILES_INDEX_BITS) - 1)
/* Tiles that a step can have at most. */
#define HR_TILES_MOST ((uint32_t)HR_TILES_INDEX_MASK)

/* A thief looks at no more than this many others, the next ones: with very many
 * threads a look at all would cost more than the tile is worth. */
#define HR_TILES_WINDOW 16u

typedef struct hr_tiles_run {
  uint32_t begin, end;
} hr_tiles_run;

/* A step as one thread sees it. */
typedef struct hr_tiles_step {
  hr_tiles *tiles;
  const uint32_t *shares; /* running sums of the threads' weights, threads + 1 of them
                             from 0 on; NULL: all alike */
  uint32_t number;        /* the same for all threads */
  uint32_t count;         /* tiles, at most HR_TILES_MOST */
  unsigned thread, threads;
  bool single; /* hand out one at a time: tiles that differ much in their cost */
  bool still;  /* so little work that stealing costs more than it brings */
  bool taken;  /* false at first */
} hr_tiles_step;

/* Forgets the steps of the pass before. */
void hr_tiles_clear(hr_tiles *tiles);

/* Where the range of a thread begins; that of `threads` is count. */
static inline uint32_t hr_tiles_begin(unsigned thread, unsigned threads, uint32_t count,
                                      const uint32_t *shares) {
  if (!shares) return (uint32_t)((uint64_t)count * thread / threads);
  return (uint32_t)((uint64_t)count * shares[thread] / shares[threads]);
}

/* What a thread owns at the start of a step. */
static inline hr_tiles_run hr_tiles_share(const hr_tiles_step *s, unsigned thread) {
  return (hr_tiles_run){hr_tiles_begin(thread, s->threads, s->count, s->shares),
                        hr_tiles_begin(thread + 1, s->threads, s->count, s->shares)};
}

static inline uint64_t hr_tiles_stamp(const hr_tiles_step *s) {
  return (uint64_t)s->number << (2 * HR_TILES_INDEX_BITS);
}

/* What is left of a thread's range, by the word that was read. */
static inline hr_tiles_run hr_tiles_left(const hr_tiles_step *s, unsigned thread, uint64_t word) {
  uint64_t indexes = word ^ hr_tiles_stamp(s);
  if (indexes >> (2 * HR_TILES_INDEX_BITS)) return hr_tiles_share(s, thread);
  return (hr_tiles_run){(uint32_t)(indexes >> HR_TILES_INDEX_BITS),
                        (uint32_t)(indexes & HR_TILES_INDEX_MASK)};
}

/* Takes from one end of a thread's range: half of what is left, so that runs are
 * long at first and the tail is fine; false when nothing is left. The order of
 * other memory is the barriers' affair. */
static inline bool hr_tiles_take(const hr_tiles_step *s, unsigned thread, bool front,
                                 hr_tiles_run *run) {
  _Atomic uint64_t *word = &s->tiles->of[thread].word;
  uint64_t now = atomic_load_explicit(word, memory_order_relaxed), next;
  do {
    hr_tiles_run left = hr_tiles_left(s, thread, now);
    if (left.begin == left.end) return false;
    uint32_t n = s->single ? 1 : (left.end - left.begin + 1) / 2;
    *run = front ? (hr_tiles_run){left.begin, left.begin + n}
                 : (hr_tiles_run){left.end - n, left.end};
    if (front)
      left.begin += n;
    else
      left.end -= n;
    next = hr_tiles_stamp(s) | (uint64_t)left.begin << HR_TILES_INDEX_BITS | left.end;
  } while (!atomic_compare_exchange_weak_explicit(word, &now, next, memory_order_relaxed,
                                                  memory_order_relaxed));
  return true;
}

/* From the next threads' fullest range; false when all of them are empty. */
bool hr_tiles_steal(const hr_tiles_step *step, hr_tiles_run *run);
/* Now and then tiles of somebody else although the own range has some. */
bool hr_tiles_steal_at_random(const hr_tiles_step *step, hr_tiles_run *run);

/* The thread's share in one run. */
static inline bool hr_tiles_take_share(hr_tiles_step *s, hr_tiles_run *run) {
  if (s->taken) return false;
  s->taken = true;
  *run = hr_tiles_share(s, s->thread);
  return run->begin != run->end;
}

/* The thread's next tiles; false when it has no more to do in this step. */
static inline bool hr_tiles_next(hr_tiles_step *s, hr_tiles_run *run) {
  bool forced = __builtin_expect(s->tiles->seed != 0, 0);
  if (!forced && (s->still || s->threads == 1)) return hr_tiles_take_share(s, run);
  if (forced && hr_tiles_steal_at_random(s, run)) return true;
  return hr_tiles_take(s, s->thread, true, run) || hr_tiles_steal(s, run);
}

#endif
