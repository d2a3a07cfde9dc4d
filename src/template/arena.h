/* SPDX-License-Identifier: MIT
 * Memory that is freed all at once. Blocks are zeroed. */
#ifndef HR_TEMPLATE_ARENA_H
#define HR_TEMPLATE_ARENA_H

#include <stdbool.h>
#include <stddef.h>

typedef struct hr_arena_chunk hr_arena_chunk;

typedef struct hr_arena {
  hr_arena_chunk *chunk; /* the newest */
  size_t used, limit;    /* bytes of all chunks */
  bool over_limit;       /* why the last allocation failed: the limit, not the system */
} hr_arena;

/* NULL when memory is out or the limit is reached. */
void *hr_arena_alloc(hr_arena *arena, size_t bytes);
void hr_arena_finish(hr_arena *arena);

#endif
