/* SPDX-License-Identifier: MIT
 * What GGUF and safetensors have in common: files, and tensors found by their names. */
#include "model/source_internal.h"

#include <stdio.h>
#include <string.h>

#define NAME_BLOCK_BYTES ((size_t)16 << 10)

struct hr_source_names {
  hr_source_names *next;
  size_t used, capacity;
  char bytes[];
};

const char *hr_source_quote(char buffer[HR_QUOTE_BYTES], const char *text, size_t length) {
  size_t n = 0;
  for (size_t i = 0; i < length; i++) {
    unsigned char c = (unsigned char)text[i];
    if (n + 8 > HR_QUOTE_BYTES) { /* "\xNN" and "..." with a NUL */
      memcpy(buffer + n, "...", 3);
      n += 3;
      break;
    }
    if (c >= 0x20 && c < 0x7f) {
      buffer[n++] = (char)c;
    } else {
      snprintf(buffer + n, 5, "\\x%02x", c);
      n += 4;
    }
  }
  buffer[n] = '\0';
  return buffer;
}

/* --- Sorting and finding ----------------------------------------------------
 * Names come from files that may be made to hurt, so a sorted index is used
 * where a hash table could be driven into its worst case. */

static void sift_down(uint32_t *index, size_t root, size_t count, hr_source_order_fn *order,
                      const void *base) {
  for (size_t child; (child = 2 * root + 1) < count; root = child) {
    if (child + 1 < count && order(base, index[child], index[child + 1]) < 0) child++;
    if (order(base, index[root], index[child]) >= 0) return;
    uint32_t moved = index[root];
    index[root] = index[child];
    index[child] = moved;
  }
}

void hr_source_sort(uint32_t *index, size_t count, hr_source_order_fn *order, const void *base) {
  for (size_t root = count / 2; root-- > 0;) sift_down(index, root, count, order, base);
  for (size_t last = count; last-- > 1;) {
    uint32_t largest = index[0];
    index[0] = index[last];
    index[last] = largest;
    sift_down(index, 0, last, order, base);
  }
}

static int order_by_name(const void *base, uint32_t a, uint32_t b) {
  const hr_source_entry *entries = base;
  return strcmp(entries[a].tensor.name, entries[b].tensor.name);
}

static int order_by_place(const void *base, uint32_t a, uint32_t b) {
  const hr_source_entry *x = (const hr_source_entry *)base + a;
  const hr_source_entry *y = (const hr_source_entry *)base + b;
  if (x->file != y->file) return x->file < y->file ? -1 : 1;
  uintptr_t from = (uintptr_t)x->tensor.data, other = (uintptr_t)y->tensor.data;
  return from < other ? -1 : from > other;
}

const hr_source_entry *hr_source_search(const hr_source_entry *entries, const uint32_t *by_name,
                                        size_t count, const char *name) {
  size_t low = 0, high = count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    const hr_source_entry *entry = &entries[by_name[middle]];
    int order = strcmp(entry->tensor.name, name);
    if (order == 0) return entry;
    if (order < 0)
      low = middle + 1;
    else
      high = middle;
  }
  return NULL;
}

const hr_source_entry *hr_source_find_entry(const hr_source *source, const char *name) {
  return hr_source_search(source->entries, source->by_name, source->entry_count, name);
}

/* --- Filling a source ------------------------------------------------------ */

hr_status hr_source_add_file(hr_source *source, hr_file_map *map, const char *path, size_t *index,
                             hr_error *err) {
  size_t count = source->file_count;
  hr_source_file *files = hr_realloc(source->files, count + 1, sizeof *files);
  if (files) source->files = files;
  char *kept = files ? hr_strndup(path, strlen(path)) : NULL;
  if (!kept) {
    hr_file_map_close(map);
    return hr_fail_memory(err, path, sizeof *files);
  }
  files[count] = (hr_source_file){.map = *map, .path = kept};
  *map = (hr_file_map){0};
  source->file_count = count + 1;
  if (index) *index = count;
  return HR_OK;
}

void hr_source_remove_files(hr_source *source) {
  for (size_t i = 0; i < source->file_count; i++) {
    hr_file_map_close(&source->files[i].map);
    hr_free(source->files[i].path);
  }
  source->file_count = 0;
  source->entry_count = 0;
}

hr_status hr_source_reserve_entries(hr_source *source, size_t count, hr_error *err) {
  if (count <= source->entry_capacity) return HR_OK;
  hr_source_entry *entries = hr_realloc(source->entries, count, sizeof *entries);
  if (!entries) return hr_fail_memory(err, source->path, count * sizeof *entries);
  source->entries = entries;
  source->entry_capacity = count;
  return HR_OK;
}

hr_status hr_source_add_entry(hr_source *source, const hr_source_entry *entry, hr_error *err) {
  if (source->entry_count == HR_SOURCE_MAX_TENSORS)
    return hr_fail(err, HR_ERROR_FILE, "%s: holds more than %zu tensors", source->path,
                   HR_SOURCE_MAX_TENSORS);
  if (source->entry_count == source->entry_capacity) {
    hr_status status = hr_source_reserve_entries(source, source->entry_capacity * 2 + 16, err);
    if (status != HR_OK) return status;
  }
  source->entries[source->entry_count++] = *entry;
  return HR_OK;
}

const char *hr_source_keep_name(hr_source *source, const char *name, size_t length, hr_error *err) {
  hr_source_names *block = source->names;
  if (!block || block->capacity - block->used <= length) {
    size_t capacity = length < NAME_BLOCK_BYTES ? NAME_BLOCK_BYTES : length + 1;
    block = hr_calloc(sizeof *block + capacity, 1);
    if (!block) {
      hr_fail_memory(err, source->path, capacity);
      return NULL;
    }
    block->capacity = capacity;
    block->next = source->names;
    source->names = block;
  }
  char *kept = block->bytes + block->used;
  if (length) memcpy(kept, name, length);
  kept[length] = '\0';
  block->used += length + 1;
  return kept;
}

static hr_status check_names(const hr_source *source, hr_error *err) {
  for (size_t i = 1; i < source->entry_count; i++) {
    const hr_source_entry *entry = &source->entries[source->by_name[i]];
    const char *name = entry->tensor.name;
    if (strcmp(source->entries[source->by_name[i - 1]].tensor.name, name) == 0)
      return hr_fail(err, HR_ERROR_FILE, "%s: tensor '%s' occurs twice",
                     source->files[entry->file].path, HR_QUOTE(name, strlen(name)));
  }
  return HR_OK;
}

/* index is room for all entries. */
static hr_status check_overlap(const hr_source *source, uint32_t *index, hr_error *err) {
  size_t count = 0;
  for (size_t i = 0; i < source->entry_count; i++)
    if (source->entries[i].tensor.data && source->entries[i].tensor.bytes)
      index[count++] = (uint32_t)i;
  hr_source_sort(index, count, order_by_place, source->entries);
  for (size_t i = 1; i < count; i++) {
    const hr_source_entry *a = &source->entries[index[i - 1]], *b = &source->entries[index[i]];
    if (a->file != b->file) continue;
    if ((uintptr_t)b->tensor.data - (uintptr_t)a->tensor.data >= a->tensor.bytes) continue;
    return hr_fail(err, HR_ERROR_FILE, "%s: the data of tensors '%s' and '%s' overlap",
                   source->files[a->file].path, HR_QUOTE(a->tensor.name, strlen(a->tensor.name)),
                   HR_QUOTE(b->tensor.name, strlen(b->tensor.name)));
  }
  return HR_OK;
}

hr_status hr_source_index_entries(hr_source *source, hr_error *err) {
  size_t count = source->entry_count;
  source->by_name = hr_calloc(count, sizeof *source->by_name);
  source->readable = hr_calloc(count, sizeof *source->readable);
  if (!source->by_name || !source->readable)
    return hr_fail_memory(err, source->path, count * sizeof *source->by_name);
  for (size_t i = 0; i < count; i++) source->by_name[i] = (uint32_t)i;
  hr_source_sort(source->by_name, count, order_by_name, source->entries);
  hr_status status = check_names(source, err);
  if (status == HR_OK) status = check_overlap(source, source->readable, err);
  if (status != HR_OK) return status;
  for (size_t i = 0; i < count; i++)
    if (!source->entries[i].refused) source->readable[source->readable_count++] = (uint32_t)i;
  return HR_OK;
}

void hr_source_close(hr_source *source) {
  if (!source) return;
  if (source->ops) source->ops->finish(source);
  hr_source_remove_files(source);
  hr_packed_free(source->packed);
  while (source->names) {
    hr_source_names *block = source->names;
    source->names = block->next;
    hr_free(block);
  }
  hr_free(source->files);
  hr_free(source->entries);
  hr_free(source->by_name);
  hr_free(source->readable);
  hr_free(source->tokenizer);
  hr_free(source->path);
  hr_free(source);
}

/* --- Tensors --------------------------------------------------------------- */

hr_source_kind hr_source_get_kind(const hr_source *source) {
  return source->kind;
}

const char *hr_source_path(const hr_source *source) {
  return source->path;
}

size_t hr_source_tensor_count(const hr_source *source) {
  return source->readable_count;
}

const hr_tensor *hr_source_tensor_at(const hr_source *source, size_t index) {
  return &source->entries[source->readable[index]].tensor;
}

bool hr_source_is_vocabulary(const hr_source *source) {
  return source->entry_count == 0 && !source->has_weights;
}

size_t hr_source_index_of(const hr_source *source, const hr_tensor *tensor) {
  size_t low = 0, high = source->readable_count;
  while (high - low > 1) { /* entries lie in the order of their numbers */
    size_t middle = low + (high - low) / 2;
    if (hr_source_tensor_at(source, middle) <= tensor)
      low = middle;
    else
      high = middle;
  }
  return low;
}

const hr_tensor *hr_source_find_tensor(const hr_source *source, const char *name) {
  const hr_source_entry *entry = hr_source_find_entry(source, name);
  return entry && !entry->refused ? &entry->tensor : NULL;
}

size_t hr_source_refused_count(const hr_source *source) {
  return source->entry_count - source->readable_count;
}

hr_status hr_source_visit_refused(const hr_source *source, hr_source_member_fn *visit, void *arg,
                                  hr_error *err) {
  hr_status status = HR_OK;
  for (size_t i = 0; i < source->entry_count && status == HR_OK; i++)
    if (source->entries[i].refused) status = visit(arg, source->entries[i].tensor.name, err);
  return status;
}

const char *hr_source_refused_type(const hr_source *source, const char *name) {
  const hr_source_entry *entry = hr_source_find_entry(source, name);
  return entry ? entry->refused : NULL;
}

const hr_tensor *hr_source_need_tensor(const hr_source *source, const char *name, hr_error *err) {
  const hr_source_entry *entry = hr_source_find_entry(source, name);
  if (entry && !entry->refused) return &entry->tensor;
  if (entry)
    hr_fail(err, HR_ERROR_FILE, "%s: tensor '%s' has type %s, expected " HR_FORMAT_NAMES,
            source->files[entry->file].path, HR_QUOTE(name, strlen(name)), entry->refused);
  else
    hr_fail(err, HR_ERROR_FILE, "%s: tensor '%s' is missing", source->path,
            HR_QUOTE(name, strlen(name)));
  return NULL;
}

void hr_source_drop(const hr_source *source, const hr_tensor *tensor, size_t offset,
                    size_t bytes) {
  const hr_source_entry *entry = (const hr_source_entry *)tensor;
  const hr_file_map *map = &source->files[entry->file].map;
  if (!tensor->data || offset > tensor->bytes) return;
  if (bytes > tensor->bytes - offset) bytes = tensor->bytes - offset;
  hr_file_map_drop(map, (size_t)((const unsigned char *)tensor->data - map->data) + offset, bytes);
}
