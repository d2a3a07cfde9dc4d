/* SPDX-License-Identifier: MIT */
#include "text/merge.h"

#include "base/memory.h"
#include "text/lookup.h"

bool hr_merger_add(hr_merger *merger, size_t start, size_t length, int32_t id) {
  void *symbols = merger->symbols;
  if (!hr_grow(&symbols, &merger->capacity, merger->count + 1, sizeof *merger->symbols))
    return false;
  merger->symbols = symbols;
  int32_t index = (int32_t)merger->count++;
  if (index > 0) merger->symbols[index - 1].next = index;
  merger->symbols[index] = (hr_symbol){.start = (uint32_t)start,
                                       .length = (uint32_t)length,
                                       .id = id,
                                       .previous = index - 1,
                                       .next = -1,
                                       .part = -1};
  return true;
}

/* A heap of four children a node: they share a cache line, and it is half as
 * deep as one of two, which counts when a text is one long word. */
#define CHILDREN 4

static bool push(hr_merger *merger, hr_pair pair) {
  void *heap = merger->heap;
  if (!hr_grow(&heap, &merger->heap_capacity, merger->pairs + 1, sizeof *merger->heap))
    return false;
  merger->heap = heap;
  size_t i = merger->pairs++;
  for (; i > 0 && pair.key < merger->heap[(i - 1) / CHILDREN].key; i = (i - 1) / CHILDREN)
    merger->heap[i] = merger->heap[(i - 1) / CHILDREN];
  merger->heap[i] = pair;
  return true;
}

static hr_pair pop(hr_merger *merger) {
  hr_pair *heap = merger->heap, top = heap[0], last = heap[--merger->pairs];
  size_t i = 0;
  for (size_t first; (first = CHILDREN * i + 1) < merger->pairs;) {
    size_t end = first + CHILDREN < merger->pairs ? first + CHILDREN : merger->pairs, best = first;
    for (size_t child = first + 1; child < end; child++)
      if (heap[child].key < heap[best].key) best = child;
    if (heap[best].key >= last.key) break;
    heap[i] = heap[best];
    i = best;
  }
  heap[i] = last;
  return top;
}

static bool offer(hr_merger *merger, int32_t left, int32_t right, hr_join_fn *join,
                  const void *arg) {
  if (left < 0 || right < 0) return true;
  const hr_symbol *a = &merger->symbols[left], *b = &merger->symbols[right];
  uint32_t order;
  int32_t id;
  if (!join(arg, a, b, &order, &id)) return true;
  return push(merger, (hr_pair){.key = (uint64_t)order << 32 | (uint32_t)left,
                                .length = a->length + b->length,
                                .id = id});
}

static void absorb(hr_merger *merger, hr_symbol *left, int32_t right_index, int32_t id) {
  hr_symbol *right = &merger->symbols[right_index];
  left->length += right->length;
  left->next = right->next;
  if (right->next >= 0) merger->symbols[right->next].previous = (int32_t)(left - merger->symbols);
  right->length = 0;
  right->previous = left->id;
  right->next = left->part;
  left->id = id;
  left->part = right_index;
}

bool hr_merger_run(hr_merger *merger, hr_join_fn *join, const void *arg) {
  merger->pairs = 0;
  for (size_t i = 1; i < merger->count; i++)
    if (!offer(merger, (int32_t)i - 1, (int32_t)i, join, arg)) return false;
  while (merger->pairs > 0) {
    hr_pair pair = pop(merger);
    int32_t index = (int32_t)(uint32_t)pair.key;
    hr_symbol *left = &merger->symbols[index];
    if (left->length == 0 || left->next < 0) continue;
    if (left->length + merger->symbols[left->next].length != pair.length) continue;
    absorb(merger, left, left->next, pair.id);
    if (!offer(merger, left->previous, index, join, arg) ||
        !offer(merger, index, left->next, join, arg))
      return false;
  }
  return true;
}

void hr_merger_clear(hr_merger *merger) {
  hr_free(merger->symbols);
  hr_free(merger->heap);
  *merger = (hr_merger){0};
}
