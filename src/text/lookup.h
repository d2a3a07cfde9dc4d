/* SPDX-License-Identifier: MIT
 * Finding tokens: by their bytes, by their parts, and as prefixes of a text. */
#ifndef HR_TEXT_LOOKUP_H
#define HR_TEXT_LOOKUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Makes room for `needed` objects of `size` bytes in a block that grows by
 * doubling. False when memory is out; the block stays. */
bool hr_grow(void **block, size_t *capacity, size_t needed, size_t size);

/* Bytes to id. The keys belong to the caller and outlive the map. Keys of a file may be
 * chosen so that all fall on one place: those that would lie too far from theirs are left
 * out, and the map is then of no use. */
typedef struct hr_byte_map {
  struct hr_byte_slot *slots;
  size_t mask;
  bool crowded;
} hr_byte_map;

/* Room for count keys. */
bool hr_byte_map_init(hr_byte_map *map, size_t count);
void hr_byte_map_clear(hr_byte_map *map);
/* The first id of a key stays. */
void hr_byte_map_add(hr_byte_map *map, const char *key, size_t length, int32_t id);
/* -1: not there. */
int32_t hr_byte_map_find(const hr_byte_map *map, const char *key, size_t length);

/* What two neighbouring tokens become: BPE's merges. */
typedef struct hr_pair_map {
  struct hr_pair_slot *slots;
  size_t mask;
  bool crowded;
} hr_pair_map;

bool hr_pair_map_init(hr_pair_map *map, size_t count);
void hr_pair_map_clear(hr_pair_map *map);
/* The first rank of a pair stays. */
void hr_pair_map_add(hr_pair_map *map, int32_t left, int32_t right, uint32_t rank, int32_t whole);
bool hr_pair_map_find(const hr_pair_map *map, int32_t left, int32_t right, uint32_t *rank,
                      int32_t *whole);

/* A tree of bytes. Node 0 is the root. */
typedef struct hr_trie {
  struct hr_trie_node *nodes;
  size_t count, capacity;
  int32_t first[256]; /* children of the root */
} hr_trie;

bool hr_trie_init(hr_trie *trie);
void hr_trie_clear(hr_trie *trie);
/* The first id of a key stays. False when memory is out. */
bool hr_trie_add(hr_trie *trie, const char *key, size_t length, int32_t id);
/* The node reached from `node` by a byte; 0 when there is none. */
int32_t hr_trie_step(const hr_trie *trie, int32_t node, char byte);
/* The id whose key ends at this node; -1: none does. */
int32_t hr_trie_id(const hr_trie *trie, int32_t node);

#endif
