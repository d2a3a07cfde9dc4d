/* SPDX-License-Identifier: MIT
 * From a path to a source: what kind of file it names, which files of a folder are the
 * model or its tokenizer, and what is said of those that are neither. */
#include "model/source_internal.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "base/text.h"

/* --- What a file is ------------------------------------------------------- */

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

/* --- Folders -------------------------------------------------------------- */

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

/* --- Opening -------------------------------------------------------------- */

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
