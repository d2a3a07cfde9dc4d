/* SPDX-License-Identifier: MIT */
#include "sched/tiles.h"

#include "base/memory.h"

hr_status hr_tiles_init(hr_tiles *tiles, unsigned threads, hr_error *err) {
  size_t bytes = threads * sizeof *tiles->of;
  *tiles = (hr_tiles){.of = hr_alloc_pages(bytes), .threads = threads};
  return tiles->of ? HR_OK : hr_fail_memory(err, "tiles", bytes);
}

void hr_tiles_finish(hr_tiles *tiles) {
  hr_free_pages(tiles->of, tiles->threads * sizeof *tiles->of);
  *tiles = (hr_tiles){0};
}

bool hr_tiles_steal(hr_tiles *tiles, unsigned thread, unsigned threads, uint32_t *tile) {
  unsigned window = threads - 1 < HR_TILES_WINDOW ? threads - 1 : HR_TILES_WINDOW;
  for (;;) {
    hr_tiles_range *fullest = NULL;
    uint32_t most = 0;
    for (unsigned i = 1; i <= window; i++) {
      unsigned other = thread + i < threads ? thread + i : thread + i - threads;
      hr_tiles_range *r = &tiles->of[other];
      uint32_t left = hr_tiles_left(atomic_load_explicit(&r->range, memory_order_relaxed));
      if (left > most) {
        most = left;
        fullest = r;
      }
    }
    if (!fullest) return false;
    if (hr_tiles_take_back(fullest, tile)) return true;
  }
}

bool hr_tiles_steal_at_random(hr_tiles *tiles, unsigned thread, unsigned threads, uint32_t *tile) {
  uint32_t r = tiles->of[thread].random;
  r ^= r << 13;
  r ^= r >> 17;
  r ^= r << 5;
  tiles->of[thread].random = r;
  return r & 1 && hr_tiles_take_back(&tiles->of[(r >> 8) % threads], tile);
}
