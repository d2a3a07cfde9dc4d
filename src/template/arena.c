/* SPDX-License-Identifier: MIT */
#include "template/arena.h"

#include <stdalign.h>
#include <stdint.h>

#include "base/memory.h"

enum { CHUNK = 1 << 14 };

struct hr_arena_chunk {
  hr_arena_chunk *older;
  size_t used, size;
  alignas(max_align_t) unsigned char bytes[];
};

static hr_arena_chunk *add_chunk(hr_arena *arena, size_t bytes) {
  size_t size = bytes > CHUNK ? bytes : CHUNK;
  arena->over_limit = size > arena->limit - arena->used;
  if (arena->over_limit) return NULL;
  hr_arena_chunk *chunk = hr_calloc(1, sizeof *chunk + size);
  if (!chunk) return NULL;
  chunk->older = arena->chunk;
  chunk->size = size;
  arena->chunk = chunk;
  arena->used += size;
  return chunk;
}

void *hr_arena_alloc(hr_arena *arena, size_t bytes) {
  const size_t unit = alignof(max_align_t);
  if (bytes > arena->limit) {
    arena->over_limit = true;
    return NULL;
  }
  bytes = (bytes + unit - 1) / unit * unit;
  hr_arena_chunk *chunk = arena->chunk;
  if (!chunk || bytes > chunk->size - chunk->used) chunk = add_chunk(arena, bytes);
  if (!chunk) return NULL;
  void *block = chunk->bytes + chunk->used;
  chunk->used += bytes;
  return block;
}

void hr_arena_finish(hr_arena *arena) {
  while (arena->chunk) {
    hr_arena_chunk *older = arena->chunk->older;
    hr_free(arena->chunk);
    arena->chunk = older;
  }
  arena->used = 0;
}
