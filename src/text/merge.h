/* SPDX-License-Identifier: MIT
 * Byte-pair encoding: neighbours are joined, the best pair first. */
#ifndef HR_TEXT_MERGE_H
#define HR_TEXT_MERGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A piece of the text: text[start, start + length). Of an absorbed symbol,
 * whose length is 0, `previous` and `part` tell what its left neighbour was
 * before: its id and its own last absorbed symbol. */
typedef struct hr_symbol {
  uint32_t start, length;
  int32_t id;             /* -1: no token */
  int32_t previous, next; /* neighbours; -1: none */
  int32_t part;           /* the symbol absorbed last; -1: none */
} hr_symbol;

/* Two symbols that could become one. */
typedef struct hr_pair {
  uint64_t key;    /* order, then the left symbol: the smallest is joined first */
  uint32_t length; /* of both together: tells whether either has grown since */
  int32_t id;      /* of the joined symbol */
} hr_pair;

/* Buffers that are used again and again. */
typedef struct hr_merger {
  hr_symbol *symbols;
  size_t count, capacity;
  hr_pair *heap;
  size_t pairs, heap_capacity;
} hr_merger;

/* Tells what two symbols become and in what order (smallest first, leftmost of
 * equal ones); false when they don't join. */
typedef bool hr_join_fn(const void *arg, const hr_symbol *left, const hr_symbol *right,
                        uint32_t *order, int32_t *id);

/* Appends a symbol to the row. False when memory is out. */
bool hr_merger_add(hr_merger *merger, size_t start, size_t length, int32_t id);
/* Joins until nothing joins. Symbol 0 and the chain of `next` are the result.
 * False when memory is out. */
bool hr_merger_run(hr_merger *merger, hr_join_fn *join, const void *arg);
void hr_merger_clear(hr_merger *merger);

#endif
