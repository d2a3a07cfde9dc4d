/* SPDX-License-Identifier: MIT
 * What GGUF and safetensors have in common: files, names, values, and finding
 * out which of the two a path is. */
#include "model/source_internal.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "base/text.h"

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

/* --- Opening --------------------------------------------------------------- */

bool hr_source_file_exists(const char *path) {
  struct stat st;
  return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

static bool starts_with(const hr_file_map *map, const char *start, size_t length) {
  return map->bytes >= length && memcmp(map->data, start, length) == 0;
}

static bool is_web_page(const hr_file_map *map) {
  size_t at = starts_with(map, "\xef\xbb\xbf", 3) ? 3 : 0;
  while (at < map->bytes && at < 256 && strchr(" \t\r\n", map->data[at]) && map->data[at]) at++;
  const char *text = (const char *)map->data + at;
  size_t rest = map->bytes - at;
  return (rest >= 9 && strncasecmp(text, "<!doctype", 9) == 0) ||
         (rest >= 5 && strncasecmp(text, "<html", 5) == 0);
}

static bool looks_like_safetensors(const hr_file_map *map) {
  uint64_t header;
  if (map->bytes < 10) return false;
  memcpy(&header, map->data, sizeof header);
  return header <= map->bytes - 8 && map->data[8] == '{';
}

/* Protocols 2 to 5, then a first opcode that pickles of checkpoints have. */
static bool is_pickle(const hr_file_map *map) {
  return map->bytes >= 3 && map->data[0] == 0x80 && map->data[1] >= 2 && map->data[1] <= 5 &&
         memchr("}](c\x8a\x95", map->data[2], 6);
}

hr_status hr_source_check_start(const hr_file_map *map, const char *path, hr_error *err) {
  if (map->bytes == 0) return hr_fail(err, HR_ERROR_FILE, "%s: is empty", path);
  if (is_web_page(map))
    return hr_fail(err, HR_ERROR_FILE,
                   "%s: is an HTML page, not a model: the download gave an error or login page",
                   path);
  if (starts_with(map, "version https://git-lfs", 23))
    return hr_fail(err, HR_ERROR_FILE,
                   "%s: is a Git LFS pointer, not the model itself: run 'git lfs pull' to get it",
                   path);
  if (starts_with(map, "PK\3\4", 4))
    return hr_fail(err, HR_ERROR_FILE,
                   "%s: is a zip archive such as a PyTorch checkpoint, expected GGUF or "
                   "safetensors",
                   path);
  if (is_pickle(map) && !looks_like_safetensors(map)) /* its length may look like one */
    return hr_fail(err, HR_ERROR_FILE,
                   "%s: is a Python pickle such as a PyTorch checkpoint, expected GGUF or "
                   "safetensors",
                   path);
  return HR_OK;
}

/* Says why a file that is neither GGUF nor safetensors isn't one. */
static hr_status refuse_unknown(const hr_file_map *map, const char *path, hr_error *err) {
  static const char old[][5] = {"lmgg", "fmgg", "tjgg", "algg"};
  for (size_t i = 0; i < sizeof old / sizeof *old; i++)
    if (starts_with(map, old[i], 4))
      return hr_fail(err, HR_ERROR_FILE, "%s: is a GGML file from before GGUF; convert it to GGUF",
                     path);
  if (starts_with(map, "FUGG", 4))
    return hr_fail(err, HR_ERROR_FILE, "%s: is a big-endian GGUF file; only little-endian is read",
                   path);
  size_t shown = map->bytes < 8 ? map->bytes : 8;
  return hr_fail(err, HR_ERROR_FILE,
                 "%s: is no model file: its %zu bytes start with '%s', expected GGUF or "
                 "safetensors",
                 path, map->bytes, HR_QUOTE((const char *)map->data, shown));
}

static hr_status read_file(hr_source *source, const char *path, hr_error *err) {
  hr_file_map map;
  hr_status status = hr_file_map_open(&map, path, err);
  if (status != HR_OK) return status;
  if (starts_with(&map, "GGUF", 4)) {
    status = hr_source_add_file(source, &map, path, NULL, err);
    return status == HR_OK ? hr_gguf_read(source, err) : status;
  }
  status = hr_source_check_start(&map, path, err);
  if (status == HR_OK && (hr_ends_with(path, ".safetensors") || looks_like_safetensors(&map)))
    return hr_safetensors_read_file(source, path, &map, err);
  if (status == HR_OK) status = refuse_unknown(&map, path, err);
  hr_file_map_close(&map);
  return status;
}

/* FOLDER/name, to be freed. NULL with an error when memory is out. */
static char *join(const char *folder, const char *name, hr_error *err) {
  const char *slash = *folder && !hr_ends_with(folder, "/") ? "/" : "";
  char *joined = hr_asprintf("%s%s%s", folder, slash, name);
  if (!joined) hr_fail_memory(err, folder, strlen(folder) + strlen(slash) + strlen(name) + 1);
  return joined;
}

/* The only GGUF file of a folder, to be freed; NULL with status HR_OK when there is none. */
static char *only_gguf(const char *folder, hr_status *status, hr_error *err) {
  char *found = NULL;
  *status = HR_OK;
  DIR *dir = opendir(folder);
  if (!dir) {
    *status = hr_fail(err, HR_ERROR_FILE, "%s: can't be listed: %s", folder, strerror(errno));
    return NULL;
  }
  for (struct dirent *item; *status == HR_OK && (item = readdir(dir));) {
    if (!hr_ends_with(item->d_name, ".gguf")) continue;
    if (found) {
      *status = hr_fail(err, HR_ERROR_FILE, "%s: is a folder of several GGUF files; name one",
                        folder);
      break;
    }
    found = hr_strndup(item->d_name, strlen(item->d_name));
    if (!found) *status = hr_fail_memory(err, folder, strlen(item->d_name));
  }
  closedir(dir);
  char *path = *status == HR_OK && found ? join(folder, found, err) : NULL;
  if (*status == HR_OK && found && !path) *status = HR_ERROR_MEMORY;
  hr_free(found);
  return path;
}

static hr_status refuse_folder(const char *folder, hr_error *err) {
  static const char *const others[] = {"pytorch_model.bin", "pytorch_model.bin.index.json",
                                       "tf_model.h5", "flax_model.msgpack", "model.onnx"};
  for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
    char *path = join(folder, others[i], err);
    if (!path) return HR_ERROR_MEMORY;
    bool there = hr_source_file_exists(path);
    hr_free(path);
    if (there)
      return hr_fail(err, HR_ERROR_FILE,
                     "%s: is a folder with %s, which can't be read; expected model.safetensors",
                     folder, others[i]);
  }
  return hr_fail(err, HR_ERROR_FILE,
                 "%s: is a folder without a model: expected model.safetensors, "
                 "model.safetensors.index.json or a .gguf file",
                 folder);
}

static hr_status read_folder(hr_source *source, const char *folder, hr_error *err) {
  hr_status status = HR_OK;
  char *whole = join(folder, "model.safetensors", err);
  char *index = whole ? join(folder, "model.safetensors.index.json", err) : NULL;
  char *gguf = NULL;
  if (!index) {
    status = HR_ERROR_MEMORY;
  } else if (hr_source_file_exists(whole)) {
    status = read_file(source, whole, err);
  } else if (hr_source_file_exists(index)) {
    status = hr_safetensors_read_index(source, index, err);
  } else if ((gguf = only_gguf(folder, &status, err))) {
    status = read_file(source, gguf, err);
  } else if (status == HR_OK) {
    status = refuse_folder(folder, err);
  }
  hr_free(gguf);
  hr_free(index);
  hr_free(whole);
  return status;
}

static hr_source *create(const char *path, hr_error *err) {
  hr_source *source = hr_calloc(1, sizeof *source);
  if (source) source->path = hr_strndup(path, strlen(path));
  if (source && source->path) {
    source->values_path = source->path;
    return source;
  }
  hr_free(source);
  hr_fail_memory(err, path, sizeof *source);
  return NULL;
}

static hr_source *finish_open(hr_source *source, hr_status status) {
  if (status == HR_OK) return source;
  hr_source_close(source);
  return NULL;
}

static bool is_folder(const char *path) {
  struct stat st;
  return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

hr_source *hr_source_open(const char *path, hr_error *err) {
  hr_error local; /* readers look at the status in it */
  if (!err) err = &local;
  hr_source *source = create(path, err);
  if (!source) return NULL;
  hr_status status;
  if (is_folder(path))
    status = read_folder(source, path, err);
  else if (hr_ends_with(path, ".safetensors.index.json"))
    status = hr_safetensors_read_index(source, path, err);
  else
    status = read_file(source, path, err);
  return finish_open(source, status);
}

/* A tokenizer by its usual name in a folder, to be freed; NULL: none. */
static char *find_tokenizer(const char *folder, hr_error *err) {
  static const char *const names[] = {"tokenizer.json", "tokenizer.model"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    char *path = join(folder, names[i], err);
    if (path && hr_source_file_exists(path)) return path;
    hr_free(path);
  }
  return NULL;
}

/* That could not be opened: the folder has more than a vocabulary. */
static bool claims_weights(const char *folder) {
  static const char *const names[] = {"model.safetensors", "model.safetensors.index.json"};
  bool claims = false;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    char *path = join(folder, names[i], NULL);
    claims = claims || (path && hr_source_file_exists(path));
    hr_free(path);
  }
  return claims;
}

/* By the name; what is in a GGUF file is told by its start. */
static bool is_tokenizer(const char *path) {
  hr_file_map map;
  hr_error ignored;
  if (!hr_ends_with(path, ".model") && !hr_ends_with(path, ".json")) return false;
  if (hr_ends_with(path, ".safetensors.index.json")) return false;
  if (hr_file_map_open(&map, path, &ignored) != HR_OK) return false;
  bool gguf = starts_with(&map, "GGUF", 4);
  hr_file_map_close(&map);
  return !gguf;
}

static hr_source *open_tokenizer(const char *path, const char *file, hr_error *err) {
  hr_source *source = create(path, err);
  return source ? finish_open(source, hr_safetensors_read_tokenizer(source, file, err)) : NULL;
}

hr_source *hr_source_open_vocabulary(const char *path, hr_error *err) {
  hr_error local, attempt;
  if (!err) err = &local;
  if (is_tokenizer(path)) return open_tokenizer(path, path, err);
  hr_source *source = hr_source_open(path, &attempt);
  if (source) return source;
  char *file = is_folder(path) ? find_tokenizer(path, &attempt) : NULL;
  if (!file) {
    *err = attempt;
    return NULL;
  }
  source = open_tokenizer(path, file, err);
  if (source) source->has_weights = claims_weights(path);
  hr_free(file);
  return source;
}

hr_source *hr_source_open_memory(const void *data, size_t bytes, const char *name, hr_error *err) {
  hr_error local;
  if (!err) err = &local;
  hr_source *source = create(name, err);
  if (!source) return NULL;
  hr_file_map map = {.data = data, .bytes = bytes, .mapped = false};
  hr_status status;
  if (starts_with(&map, "GGUF", 4)) {
    status = hr_source_add_file(source, &map, name, NULL, err);
    if (status == HR_OK) status = hr_gguf_read(source, err);
  } else {
    status = hr_source_check_start(&map, name, err);
    if (status == HR_OK) status = refuse_unknown(&map, name, err);
  }
  return finish_open(source, status);
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

/* --- Values ---------------------------------------------------------------- */

static hr_status fail_type(const hr_source *source, const char *key, const hr_value *value,
                           const char *expected, hr_error *err) {
  bool outer = value->kind == HR_VALUE_NO_OBJECT;
  return hr_fail(err, HR_ERROR_FILE, "%s: key '%s' has type %s, expected %s", source->values_path,
                 HR_QUOTE(key, outer ? value->outer : strlen(key)), value->type,
                 outer ? "an object" : expected);
}

static hr_status fail_range(const hr_source *source, const char *key, const hr_value *value,
                            const char *expected, hr_error *err) {
  char text[40];
  if (value->kind == HR_VALUE_UINT)
    snprintf(text, sizeof text, "%llu", (unsigned long long)value->uint);
  else if (value->kind == HR_VALUE_INT)
    snprintf(text, sizeof text, "%lld", (long long)value->sint);
  else
    snprintf(text, sizeof text, "%g", value->real);
  return hr_fail(err, HR_ERROR_FILE, "%s: key '%s' is %s, expected %s", source->values_path,
                 HR_QUOTE(key, strlen(key)), text, expected);
}

static bool is_number(const hr_value *value) {
  return value->kind == HR_VALUE_UINT || value->kind == HR_VALUE_INT ||
         value->kind == HR_VALUE_REAL;
}

static bool to_u64(const hr_value *value, uint64_t *out) {
  if (value->kind == HR_VALUE_UINT) {
    *out = value->uint;
    return true;
  }
  if (value->kind == HR_VALUE_INT) {
    *out = (uint64_t)value->sint;
    return value->sint >= 0;
  }
  /* written so that a NaN fails */
  if (!(value->real >= 0 && value->real < 0x1p64 && value->real == trunc(value->real)))
    return false;
  *out = (uint64_t)value->real;
  return true;
}

static bool to_i64(const hr_value *value, int64_t *out) {
  if (value->kind == HR_VALUE_UINT) {
    *out = (int64_t)value->uint;
    return value->uint <= INT64_MAX;
  }
  if (value->kind == HR_VALUE_INT) {
    *out = value->sint;
    return true;
  }
  if (!(value->real >= -0x1p63 && value->real < 0x1p63 && value->real == trunc(value->real)))
    return false;
  *out = (int64_t)value->real;
  return true;
}

static double to_f64(const hr_value *value) {
  if (value->kind == HR_VALUE_UINT) return (double)value->uint;
  if (value->kind == HR_VALUE_INT) return (double)value->sint;
  return value->real;
}

hr_status hr_source_u64(const hr_source *source, const char *key, uint64_t *value, bool *found,
                        hr_error *err) {
  hr_value raw;
  *found = false;
  if (!source->ops->lookup(source, key, &raw)) return HR_OK;
  if (!is_number(&raw)) return fail_type(source, key, &raw, "a whole number", err);
  if (!to_u64(&raw, value)) return fail_range(source, key, &raw, "a whole number, 0 or more", err);
  *found = true;
  return HR_OK;
}

hr_status hr_source_i64(const hr_source *source, const char *key, int64_t *value, bool *found,
                        hr_error *err) {
  hr_value raw;
  *found = false;
  if (!source->ops->lookup(source, key, &raw)) return HR_OK;
  if (!is_number(&raw)) return fail_type(source, key, &raw, "a whole number", err);
  if (!to_i64(&raw, value))
    return fail_range(source, key, &raw, "a whole number of 64 bits with a sign", err);
  *found = true;
  return HR_OK;
}

hr_status hr_source_f64(const hr_source *source, const char *key, double *value, bool *found,
                        hr_error *err) {
  hr_value raw;
  *found = false;
  if (!source->ops->lookup(source, key, &raw)) return HR_OK;
  if (!is_number(&raw)) return fail_type(source, key, &raw, "a number", err);
  if (!isfinite(to_f64(&raw))) return fail_range(source, key, &raw, "a finite number", err);
  *value = to_f64(&raw);
  *found = true;
  return HR_OK;
}

hr_status hr_source_bool(const hr_source *source, const char *key, bool *value, bool *found,
                         hr_error *err) {
  hr_value raw;
  *found = false;
  if (!source->ops->lookup(source, key, &raw)) return HR_OK;
  if (raw.kind != HR_VALUE_BOOL) return fail_type(source, key, &raw, "true or false", err);
  *value = raw.truth;
  *found = true;
  return HR_OK;
}

hr_status hr_source_string(const hr_source *source, const char *key, const char **text,
                           size_t *length, bool *found, hr_error *err) {
  hr_value raw;
  *found = false;
  if (!source->ops->lookup(source, key, &raw)) return HR_OK;
  if (raw.kind != HR_VALUE_STRING) return fail_type(source, key, &raw, "a string", err);
  *text = raw.text;
  *length = raw.length;
  *found = true;
  return HR_OK;
}

bool hr_source_is_null(const hr_source *source, const char *key) {
  return source->ops->is_null && source->ops->is_null(source, key);
}

bool hr_source_is_array(const hr_source *source, const char *key) {
  hr_value raw;
  return source->ops->lookup(source, key, &raw) && raw.kind == HR_VALUE_ARRAY;
}

hr_status hr_source_array_length(const hr_source *source, const char *key, size_t *count,
                                 bool *found, hr_error *err) {
  hr_value raw;
  *found = false;
  if (!source->ops->lookup(source, key, &raw)) return HR_OK;
  if (raw.kind != HR_VALUE_ARRAY) return fail_type(source, key, &raw, "an array", err);
  *count = raw.length;
  *found = true;
  return HR_OK;
}

hr_status hr_source_members(const hr_source *source, const char *key, hr_source_member_fn *visit,
                            void *arg, bool *found, hr_error *err) {
  hr_value raw;
  *found = false;
  if (!source->ops->lookup(source, key, &raw)) return HR_OK;
  if (raw.kind != HR_VALUE_OBJECT) return fail_type(source, key, &raw, "an object", err);
  *found = true;
  return source->ops->members(&raw, visit, arg, err);
}

static hr_status start_array(const hr_source *source, const char *key, size_t count,
                             hr_value *array, hr_error *err) {
  if (!source->ops->lookup(source, key, array))
    return hr_fail(err, HR_ERROR_FILE, "%s: key '%s' is missing, expected an array",
                   source->values_path, HR_QUOTE(key, strlen(key)));
  if (array->kind != HR_VALUE_ARRAY) return fail_type(source, key, array, "an array", err);
  if (array->length != count)
    return hr_fail(err, HR_ERROR_FILE, "%s: key '%s' has %zu elements, expected %zu",
                   source->values_path, HR_QUOTE(key, strlen(key)), array->length, count);
  return HR_OK;
}

static hr_status fail_element(const hr_source *source, const char *key, size_t index,
                              const hr_value *element, const char *expected, hr_error *err) {
  return hr_fail(err, HR_ERROR_FILE, "%s: element %zu of key '%s' has type %s, expected %s",
                 source->values_path, index, HR_QUOTE(key, strlen(key)), element->type, expected);
}

hr_status hr_source_array_i64(const hr_source *source, const char *key, int64_t *out, size_t count,
                              hr_error *err) {
  hr_value array, element;
  hr_status status = start_array(source, key, count, &array, err);
  for (size_t i = 0; status == HR_OK && i < count; i++) {
    source->ops->next(&array, &element);
    if (!is_number(&element))
      status = fail_element(source, key, i, &element, "a whole number", err);
    else if (!to_i64(&element, &out[i]))
      status = hr_fail(err, HR_ERROR_FILE, "%s: element %zu of key '%s' is %g, expected a whole "
                       "number of 64 bits with a sign",
                       source->values_path, i, HR_QUOTE(key, strlen(key)), to_f64(&element));
  }
  return status;
}

hr_status hr_source_array_f64(const hr_source *source, const char *key, double *out, size_t count,
                              hr_error *err) {
  hr_value array, element;
  hr_status status = start_array(source, key, count, &array, err);
  for (size_t i = 0; status == HR_OK && i < count; i++) {
    source->ops->next(&array, &element);
    if (!is_number(&element))
      status = fail_element(source, key, i, &element, "a number", err);
    else
      out[i] = to_f64(&element);
  }
  return status;
}

hr_status hr_source_array_strings(const hr_source *source, const char *key, const char **text,
                                  size_t *length, size_t count, hr_error *err) {
  hr_value array, element;
  hr_status status = start_array(source, key, count, &array, err);
  for (size_t i = 0; status == HR_OK && i < count; i++) {
    source->ops->next(&array, &element);
    if (element.kind != HR_VALUE_STRING) {
      status = fail_element(source, key, i, &element, "a string", err);
    } else {
      text[i] = element.text;
      length[i] = element.length;
    }
  }
  return status;
}

static size_t show_one(const hr_value *value, char *buffer, size_t room) {
  int n = 0;
  switch (value->kind) {
    case HR_VALUE_UINT: n = snprintf(buffer, room, "%llu", (unsigned long long)value->uint); break;
    case HR_VALUE_INT: n = snprintf(buffer, room, "%lld", (long long)value->sint); break;
    case HR_VALUE_REAL: n = snprintf(buffer, room, "%.9g", value->real); break;
    case HR_VALUE_BOOL: n = snprintf(buffer, room, "%s", value->truth ? "true" : "false"); break;
    case HR_VALUE_STRING:
      n = snprintf(buffer, room, "\"%s\"", HR_QUOTE(value->text, value->length));
      break;
    case HR_VALUE_ARRAY:
    case HR_VALUE_OBJECT:
    case HR_VALUE_NO_OBJECT:
    case HR_VALUE_OTHER: n = snprintf(buffer, room, "(%s)", value->type); break;
  }
  return n < 0 ? 0 : (size_t)n < room ? (size_t)n : room - 1;
}

const char *hr_source_show(const hr_source *source, hr_value value,
                           char buffer[HR_SOURCE_SHOW_BYTES]) {
  if (value.kind != HR_VALUE_ARRAY) {
    show_one(&value, buffer, HR_SOURCE_SHOW_BYTES);
    return buffer;
  }
  size_t n = (size_t)snprintf(buffer, HR_SOURCE_SHOW_BYTES, "%zu: [", value.length);
  for (size_t i = 0; i < value.length; i++) {
    char text[HR_SOURCE_SHOW_BYTES];
    hr_value element;
    source->ops->next(&value, &element);
    size_t length = show_one(&element, text, sizeof text);
    if (i == 6 || n + length + 8 > HR_SOURCE_SHOW_BYTES) {
      n += (size_t)snprintf(buffer + n, HR_SOURCE_SHOW_BYTES - n, i ? ", ..." : "...");
      break;
    }
    n += (size_t)snprintf(buffer + n, HR_SOURCE_SHOW_BYTES - n, "%s%s", i ? ", " : "", text);
  }
  snprintf(buffer + n, HR_SOURCE_SHOW_BYTES - n, "]");
  return buffer;
}

void hr_source_visit_values(const hr_source *source, hr_source_visit_fn *visit, void *arg) {
  source->ops->visit(source, visit, arg);
}
