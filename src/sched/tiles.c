/* SPDX-License-Identifier: MIT */
#include "sched/tiles.h"

void hr_tiles_clear(hr_tiles *tiles) {
  for (unsigned i = 0; i < tiles->threads; i++)
    atomic_store_explicit(&tiles->of[i].word, 0, memory_order_relaxed);
}

bool hr_tiles_steal(const hr_tiles_step *s, hr_tiles_run *run) {
  unsigned window = s->threads - 1 < HR_TILES_WINDOW ? s->threads - 1 : HR_TILES_WINDOW;
  for (;;) {
    unsigned fullest = s->thread;
    uint32_t most = 0;
    for (unsigned i = 1; i <= window; i++) {
      unsigned other = s->thread + i < s->threads ? s->thread + i : s->thread + i - s->threads;
      hr_tiles_range *r = &s->tiles->of[other];
      hr_tiles_run left =
          hr_tiles_left(s, other, atomic_load_explicit(&r->word, memory_order_relaxed));
      if (left.end - left.begin > most) {
        most = left.end - left.begin;
        fullest = other;
      }
    }
    if (most == 0) return false;
    if (hr_tiles_take(s, fullest, false, run)) return true;
  }
}

bool hr_tiles_steal_at_random(const hr_tiles_step *s, hr_tiles_run *run) {
  uint32_t *state = &s->tiles->of[s->thread].random, r = *state;
  if (r == 0) r = s->tiles->seed * 2654435761u + s->thread * 40503u + 1;
  r ^= r << 13;
  r ^= r >> 17;
  r ^= r << 5;
  *state = r;
  return r & 1 && hr_tiles_take(s, (r >> 8) % s->threads, r & 2, run);
}
