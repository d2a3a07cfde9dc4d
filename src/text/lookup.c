/* SPDX-License-Identifier: MIT */
#include "text/lookup.h"

#include <string.h>

#include "base/memory.h"

bool hr_grow(void **block, size_t *capacity, size_t needed, size_t size) {
  if (needed <= *capacity) return true;
  size_t next = *capacity < 32 ? 32 : *capacity;
  while (next < needed)
    if (!hr_mul_size(next, 2, &next)) return false;
  void *bigger = hr_realloc(*block, next, size);
  if (!bigger) return false;
  *block = bigger;
  *capacity = next;
  return true;
}

/* Slots that a key is looked for in. With half of them taken by keys that were not chosen
 * for it, the longest way in a million is some 70. */
#define MOST_PROBES 512

/* At most half of the slots are ever taken. */
static bool slots_for(size_t count, size_t size, void **slots, size_t *mask) {
  size_t n = 16;
  while (n / 2 < count)
    if (!hr_mul_size(n, 2, &n)) return false;
  *slots = hr_calloc(n, size);
  *mask = n - 1;
  return *slots != NULL;
}

static uint64_t mix(uint64_t h) {
  h *= UINT64_C(0x9e3779b97f4a7c15);
  return h ^ h >> 29;
}

static uint64_t hash_bytes(const char *key, size_t length) {
  uint64_t h = length, word;
  for (; length >= sizeof word; key += sizeof word, length -= sizeof word) {
    memcpy(&word, key, sizeof word);
    h = mix(h ^ word);
  }
  word = 0;
  if (length) memcpy(&word, key, length);
  return mix(mix(h ^ word));
}

/* --- Bytes to id ----------------------------------------------------------- */

struct hr_byte_slot {
  const char *key;
  uint32_t length;
  int32_t id; /* one more than the id: 0 is a free slot */
};

bool hr_byte_map_init(hr_byte_map *map, size_t count) {
  void *slots = NULL;
  bool ok = slots_for(count, sizeof *map->slots, &slots, &map->mask);
  map->slots = slots;
  return ok;
}

void hr_byte_map_clear(hr_byte_map *map) {
  hr_free(map->slots);
  *map = (hr_byte_map){0};
}

/* That of the key, or a free one; NULL: neither is near. */
static struct hr_byte_slot *byte_slot(const hr_byte_map *map, const char *key, size_t length) {
  size_t first = (size_t)hash_bytes(key, length);
  for (size_t i = 0; i < MOST_PROBES; i++) {
    struct hr_byte_slot *slot = &map->slots[(first + i) & map->mask];
    if (slot->id == 0) return slot;
    if (slot->length == length && memcmp(slot->key, key, length) == 0) return slot;
  }
  return NULL;
}

void hr_byte_map_add(hr_byte_map *map, const char *key, size_t length, int32_t id) {
  struct hr_byte_slot *slot = byte_slot(map, key, length);
  if (!slot)
    map->crowded = true;
  else if (slot->id == 0)
    *slot = (struct hr_byte_slot){.key = key, .length = (uint32_t)length, .id = id + 1};
}

int32_t hr_byte_map_find(const hr_byte_map *map, const char *key, size_t length) {
  const struct hr_byte_slot *slot = byte_slot(map, key, length);
  return slot ? slot->id - 1 : -1;
}

/* --- Pairs ----------------------------------------------------------------- */

struct hr_pair_slot {
  int32_t left, right;
  uint32_t rank;
  int32_t whole; /* one more than the id: 0 is a free slot */
};

bool hr_pair_map_init(hr_pair_map *map, size_t count) {
  void *slots = NULL;
  bool ok = slots_for(count, sizeof *map->slots, &slots, &map->mask);
  map->slots = slots;
  return ok;
}

void hr_pair_map_clear(hr_pair_map *map) {
  hr_free(map->slots);
  *map = (hr_pair_map){0};
}

/* That of the pair, or a free one; NULL: neither is near. */
static struct hr_pair_slot *pair_slot(const hr_pair_map *map, int32_t left, int32_t right) {
  uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
  size_t first = (size_t)mix(mix(key));
  for (size_t i = 0; i < MOST_PROBES; i++) {
    struct hr_pair_slot *slot = &map->slots[(first + i) & map->mask];
    if (slot->whole == 0 || (slot->left == left && slot->right == right)) return slot;
  }
  return NULL;
}

void hr_pair_map_add(hr_pair_map *map, int32_t left, int32_t right, uint32_t rank, int32_t whole) {
  struct hr_pair_slot *slot = pair_slot(map, left, right);
  if (!slot)
    map->crowded = true;
  else if (slot->whole == 0)
    *slot = (struct hr_pair_slot){.left = left, .right = right, .rank = rank, .whole = whole + 1};
}

bool hr_pair_map_find(const hr_pair_map *map, int32_t left, int32_t right, uint32_t *rank,
                      int32_t *whole) {
  const struct hr_pair_slot *slot = pair_slot(map, left, right);
  if (!slot || slot->whole == 0) return false;
  *rank = slot->rank;
  *whole = slot->whole - 1;
  return true;
}

/* --- Trie ------------------------------------------------------------------ */

struct hr_trie_node {
  int32_t child, sibling; /* 0: none */
  int32_t id;
  char byte;
};

bool hr_trie_init(hr_trie *trie) {
  *trie = (hr_trie){0};
  void *nodes = NULL;
  if (!hr_grow(&nodes, &trie->capacity, 1, sizeof *trie->nodes)) return false;
  trie->nodes = nodes;
  trie->nodes[0] = (struct hr_trie_node){.id = -1};
  trie->count = 1;
  return true;
}

void hr_trie_clear(hr_trie *trie) {
  hr_free(trie->nodes);
  *trie = (hr_trie){0};
}

int32_t hr_trie_step(const hr_trie *trie, int32_t node, char byte) {
  if (node == 0) return trie->first[(uint8_t)byte];
  int32_t child = trie->nodes[node].child;
  while (child != 0 && trie->nodes[child].byte != byte) child = trie->nodes[child].sibling;
  return child;
}

int32_t hr_trie_id(const hr_trie *trie, int32_t node) {
  return trie->nodes[node].id;
}

static int32_t add_node(hr_trie *trie, int32_t parent, char byte) {
  void *nodes = trie->nodes;
  if (trie->count >= INT32_MAX) return 0;
  if (!hr_grow(&nodes, &trie->capacity, trie->count + 1, sizeof *trie->nodes)) return 0;
  trie->nodes = nodes;
  int32_t node = (int32_t)trie->count++;
  int32_t *link = parent == 0 ? &trie->first[(uint8_t)byte] : &trie->nodes[parent].child;
  trie->nodes[node] = (struct hr_trie_node){.sibling = *link, .id = -1, .byte = byte};
  *link = node;
  return node;
}

bool hr_trie_add(hr_trie *trie, const char *key, size_t length, int32_t id) {
  int32_t node = 0;
  for (size_t i = 0; i < length; i++) {
    int32_t next = hr_trie_step(trie, node, key[i]);
    if (next == 0) next = add_node(trie, node, key[i]);
    if (next == 0) return false;
    node = next;
  }
  if (trie->nodes[node].id < 0) trie->nodes[node].id = id;
  return true;
}
