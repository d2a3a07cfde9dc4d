/* SPDX-License-Identifier: MIT
 * Safetensors: a u64 length, a JSON object of that length that gives each
 * tensor's type, shape and byte range, then the data. The values of the model
 * are in config.json beside it. A model in several files has an index:
 * {"weight_map": {tensor: file}}. */
#include "base/text.h"
#include "model/json.h"
#include "model/source_internal.h"

#include <stdio.h>
#include <string.h>

#define HEADER_BYTES ((uint64_t)100 << 20)
#define CONFIG_BYTES ((size_t)64 << 20)
#define NAME_BYTES 1000
#define SHARDS 4096
#define VISIT_DEPTH 4

static const char extension[] = ".safetensors";
static const char index_extension[] = ".safetensors.index.json";

/* Files that say more, and what goes before their keys: how rows become one vector, and how long
 * a text may be. All but the tokenizer's are those of sentence-transformers. */
static const struct {
  const char *prefix, *name;
  const char *only; /* of its keys; NULL: all */
} beside_config[] = {
    {"1_Pooling", "1_Pooling/config.json", NULL},
    {"sentence_bert_config", "sentence_bert_config.json", NULL},
    {"tokenizer_config", "tokenizer_config.json", "model_max_length"},
    {"config_sentence_transformers", "config_sentence_transformers.json", "default_prompt_name"},
};
enum { BESIDE = sizeof beside_config / sizeof *beside_config };

typedef struct values {
  json_t *config;
  json_t *beside[BESIDE]; /* NULL: there is no such file */
  char *path;
} values;

/* --- JSON files ------------------------------------------------------------ */

static json_t *parse_file(const char *path, hr_error *err) {
  hr_file_map map;
  json_t *json = NULL;
  if (hr_file_map_open(&map, path, err) != HR_OK) return NULL;
  if (map.bytes > CONFIG_BYTES)
    hr_fail(err, HR_ERROR_FILE, "%s: has %zu bytes, expected at most %zu", path, map.bytes,
            CONFIG_BYTES);
  else if (hr_source_check_start(&map, path, err) == HR_OK)
    json = hr_json_parse(path, "the file ", map.data, map.bytes, 0, err);
  hr_file_map_close(&map);
  return json;
}

/* --- Values ---------------------------------------------------------------- */

static void load(const json_t *json, hr_value *value) {
  *value = (hr_value){.kind = HR_VALUE_OTHER, .type = "null"};
  switch (json_typeof(json)) {
    case JSON_OBJECT:
      value->kind = HR_VALUE_OBJECT;
      value->type = "object";
      value->length = json_object_size(json);
      value->cursor = json;
      break;
    case JSON_ARRAY:
      value->kind = HR_VALUE_ARRAY;
      value->type = "array";
      value->length = json_array_size(json);
      value->cursor = json;
      break;
    case JSON_STRING:
      value->kind = HR_VALUE_STRING;
      value->type = "string";
      value->text = json_string_value(json);
      value->length = json_string_length(json);
      break;
    case JSON_INTEGER:
      value->kind = HR_VALUE_INT;
      value->type = "integer";
      value->sint = json_integer_value(json);
      break;
    case JSON_REAL:
      value->kind = HR_VALUE_REAL;
      value->type = "real number";
      value->real = json_real_value(json);
      break;
    case JSON_TRUE:
    case JSON_FALSE:
      value->kind = HR_VALUE_BOOL;
      value->type = "bool";
      value->truth = json_is_true(json);
      break;
    case JSON_NULL: break;
  }
}

static bool find_value(const hr_source *source, const char *key, hr_value *value, bool *null) {
  const values *own = source->values;
  const json_t *json = own->config;
  const char *whole = key;
  *null = false;
  for (size_t i = 0; i < BESIDE; i++) {
    size_t n = strlen(beside_config[i].prefix);
    if (strncmp(key, beside_config[i].prefix, n) != 0 || key[n] != '.') continue;
    json = own->beside[i];
    key += n + 1;
    break;
  }
  for (const char *dot; (dot = strchr(key, '.')); key = dot + 1) {
    char outer[128];
    size_t length = (size_t)(dot - key);
    if (length >= sizeof outer) return false;
    memcpy(outer, key, length);
    outer[length] = '\0';
    json = json_object_get(json, outer);
    if (!json || json_is_null(json)) return false;
    if (json_is_object(json)) continue;
    load(json, value);
    value->kind = HR_VALUE_NO_OBJECT;
    value->outer = (size_t)(dot - whole);
    return true;
  }
  json = json_object_get(json, key);
  *null = json_is_null(json);
  if (!json || *null) return false;
  load(json, value);
  return true;
}

static bool st_lookup(const hr_source *source, const char *key, hr_value *value) {
  bool null;
  return find_value(source, key, value, &null);
}

static bool st_is_null(const hr_source *source, const char *key) {
  hr_value ignored;
  bool null;
  return !find_value(source, key, &ignored, &null) && null;
}

static void st_next(hr_value *array, hr_value *element) {
  load(json_array_get(array->cursor, array->at++), element);
}

static hr_status st_members(const hr_value *object, hr_source_member_fn *visit, void *arg,
                            hr_error *err) {
  const char *name;
  json_t *member;
  hr_status status = HR_OK;
  json_object_foreach((json_t *)(uintptr_t)object->cursor, name, member) {
    if (!json_is_null(member)) status = visit(arg, name, err);
    if (status != HR_OK) break;
  }
  return status;
}

static void visit_object(const hr_source *source, json_t *object, const char *outer, int depth,
                         hr_source_visit_fn *visit, void *arg) {
  const char *name;
  json_t *json;
  json_object_foreach(object, name, json) {
    char key[256], text[HR_SOURCE_SHOW_BYTES];
    hr_value value;
    snprintf(key, sizeof key, "%s%s%s", outer, *outer ? "." : "", name);
    load(json, &value);
    if (json_is_object(json) && json_object_size(json) && depth < VISIT_DEPTH)
      visit_object(source, json, key, depth + 1, visit, arg);
    else
      visit(arg, key, value.type, hr_source_show(source, value, text));
  }
}

static void st_visit(const hr_source *source, hr_source_visit_fn *visit, void *arg) {
  const values *own = source->values;
  visit_object(source, own->config, "", 1, visit, arg);
  for (size_t i = 0; i < BESIDE; i++)
    if (own->beside[i])
      visit_object(source, own->beside[i], beside_config[i].prefix, 1, visit, arg);
}

static void st_finish(hr_source *source) {
  values *own = source->values;
  if (!own) return;
  json_decref(own->config);
  for (size_t i = 0; i < BESIDE; i++) json_decref(own->beside[i]);
  hr_free(own->path);
  hr_free(own);
  source->values = NULL;
}

static const hr_source_ops ops = {st_lookup, st_is_null, st_next, st_visit, st_members, st_finish};

/* --- Paths ----------------------------------------------------------------- */

/* Bytes of path up to and with the last slash. */
static size_t folder_length(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash ? (size_t)(slash - path) + 1 : 0;
}

/* Bytes of path without the extension, or 0. */
static size_t stem_length(const char *path, const char *end) {
  return hr_ends_with(path, end) ? strlen(path) - strlen(end) : 0;
}

/* The first length bytes of path, then name. NULL with an error when memory is out. */
static char *beside(const char *path, size_t length, const char *name, hr_error *err) {
  char *joined = hr_asprintf("%.*s%s", (int)length, path, name);
  if (!joined) hr_fail_memory(err, path, length + strlen(name) + 1);
  return joined;
}

/* config.json beside path, or NAME_config.json for NAME.safetensors. */
static char *find_config(const char *path, hr_error *err) {
  char *config = beside(path, folder_length(path), "config.json", err);
  if (!config || hr_source_file_exists(config)) return config;
  hr_free(config);
  size_t stem = stem_length(path, extension);
  if (!stem) stem = stem_length(path, index_extension);
  config = stem ? beside(path, stem, "_config.json", err) : NULL;
  if (stem && !config) return NULL;
  if (config && hr_source_file_exists(config)) return config;
  hr_free(config);
  hr_fail(err, HR_ERROR_FILE, "%s: has no config.json beside it", path);
  return NULL;
}

static hr_status check_module(const char *path, const json_t *module, hr_error *err) {
  static const char *const known[] = {"Transformer", "Pooling", "Normalize"};
  const char *type = json_string_value(json_object_get(module, "type"));
  const char *dot = type ? strrchr(type, '.') : NULL, *name = dot ? dot + 1 : type;
  for (size_t i = 0; name && i < sizeof known / sizeof *known; i++)
    if (strcmp(name, known[i]) == 0) return HR_OK;
  return hr_fail(err, HR_ERROR_FILE,
                 "%s: has a module of type '%s', which is not known, expected Transformer, Pooling "
                 "or Normalize",
                 path, type ? HR_QUOTE(type, strlen(type)) : "");
}

/* What sentence-transformers puts behind the model: a matrix more would make another vector. */
static hr_status check_modules(const char *path, hr_error *err) {
  hr_file_map map;
  json_error_t fault;
  hr_status status = hr_file_map_open(&map, path, err);
  if (status != HR_OK) return status;
  json_t *list = json_loadb((const char *)map.data, map.bytes, JSON_REJECT_DUPLICATES, &fault);
  hr_file_map_close(&map);
  if (!json_is_array(list))
    status = hr_fail(err, HR_ERROR_FILE, "%s: is no JSON array, expected a list of modules", path);
  for (size_t i = 0; status == HR_OK && i < json_array_size(list); i++)
    status = check_module(path, json_array_get(list, i), err);
  json_decref(list);
  return status;
}

static hr_status read_modules(const char *path, hr_error *err) {
  char *modules = beside(path, folder_length(path), "modules.json", err);
  if (!modules) return HR_ERROR_MEMORY;
  hr_status status = hr_source_file_exists(modules) ? check_modules(modules, err) : HR_OK;
  hr_free(modules);
  return status;
}

/* An object with one member of another; takes the other. NULL: memory is out. */
static json_t *keep_one(json_t *object, const char *key) {
  json_t *kept = json_object(), *value = json_object_get(object, key);
  if (kept && value && json_object_set(kept, key, value) != 0) {
    json_decref(kept);
    kept = NULL;
  }
  json_decref(object);
  return kept;
}

/* Integers become real numbers: tokenizers name lengths that no machine has. where and what
 * are for messages. */
static json_t *parse_map(const hr_file_map *map, const char *where, const char *what,
                         const char *only, hr_error *err) {
  if (hr_source_check_start(map, where, err) != HR_OK) return NULL;
  json_t *json = hr_json_parse(where, what, map->data, map->bytes,
                               JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, err);
  if (!json || !only) return json;
  json = keep_one(json, only);
  if (!json) hr_fail_memory(err, where, map->bytes);
  return json;
}

static hr_status parse_beside(hr_source *source, size_t i, hr_error *err) {
  const char *name = beside_config[i].name, *config = source->values_path;
  values *own = source->values;
  hr_file_map map;
  bool found;
  char what[64];
  hr_status status = hr_source_open_beside(source, name, &map, &found, err);
  if (status != HR_OK || !found) return status;
  snprintf(what, sizeof what, "the %s ", name);
  char *where = source->packed ? NULL : beside(config, folder_length(config), name, err);
  if (source->packed || where)
    own->beside[i] = parse_map(&map, where ? where : source->path, where ? "" : what,
                               beside_config[i].only, err);
  hr_file_map_close(&map);
  hr_free(where);
  return own->beside[i] ? HR_OK : err->status;
}

static hr_status read_beside(hr_source *source, hr_error *err) {
  hr_status status = HR_OK;
  for (size_t i = 0; i < BESIDE && status == HR_OK; i++) status = parse_beside(source, i, err);
  return status;
}

static hr_status read_config(hr_source *source, const char *path, hr_error *err) {
  values *own = hr_calloc(1, sizeof *own);
  source->kind = HR_SOURCE_SAFETENSORS;
  source->values = own;
  source->ops = &ops;
  if (!own) return hr_fail_memory(err, path, sizeof *own);
  own->path = find_config(path, err);
  if (!own->path) return err->status;
  source->values_path = own->path;
  own->config = parse_file(own->path, err);
  if (!own->config) return err->status;
  hr_status status = read_modules(path, err);
  return status == HR_OK ? read_beside(source, err) : status;
}

/* Up to where the names of a model's files differ: "x/" of x/tokenizer.json, "x/NAME_" of
 * x/NAME_tokenizer.json and of x/NAME.model. NULL with an error when memory is out. */
static char *config_beside_tokenizer(const char *path, hr_error *err) {
  static const char *const names[] = {"tokenizer.json", "tokenizer.model"};
  size_t length = strlen(path);
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (hr_ends_with(path, names[i]))
      return beside(path, length - strlen(names[i]), "config.json", err);
  const char *dot = strrchr(path, '.');
  return beside(path, dot ? (size_t)(dot - path) : length, "_config.json", err);
}

hr_status hr_safetensors_read_tokenizer(hr_source *source, const char *path, hr_error *err) {
  values *own = hr_calloc(1, sizeof *own);
  source->kind = HR_SOURCE_SAFETENSORS;
  source->values = own;
  source->ops = &ops;
  source->tokenizer = hr_strndup(path, strlen(path));
  if (!own || !source->tokenizer) return hr_fail_memory(err, path, sizeof *own);
  own->path = config_beside_tokenizer(path, err);
  if (!own->path) return HR_ERROR_MEMORY;
  source->values_path = own->path;
  own->config = hr_source_file_exists(own->path) ? parse_file(own->path, err) : json_object();
  return own->config ? HR_OK : err->status;
}

/* --- Files beside it --------------------------------------------------------- */

hr_status hr_source_open_beside(const hr_source *source, const char *name, hr_file_map *map,
                                bool *found, hr_error *err) {
  static const char config[] = "config.json";
  const char *beside_it = source->values_path;
  *map = (hr_file_map){0};
  *found = source->packed && hr_packed_companion(source, name, map);
  if (source->packed || !hr_ends_with(beside_it, config)) return HR_OK;
  /* what is in a folder of its own has no part of the model's name */
  size_t kept = strchr(name, '/') ? folder_length(beside_it) : stem_length(beside_it, config);
  char *path = beside(beside_it, kept, name, err);
  if (!path) return HR_ERROR_MEMORY;
  *found = hr_source_file_exists(path);
  hr_status status = *found ? hr_file_map_open(map, path, err) : HR_OK;
  hr_free(path);
  return status;
}

static hr_status parse_packed(const hr_source *source, const char *name, json_t **json,
                              hr_error *err) {
  hr_file_map map;
  char what[64];
  if (!hr_packed_companion(source, name, &map)) return HR_OK;
  snprintf(what, sizeof what, "the %s ", name);
  *json = hr_json_parse(source->path, what, map.data, map.bytes, 0, err);
  return *json ? HR_OK : err->status;
}

hr_status hr_safetensors_read_packed(hr_source *source, hr_error *err) {
  values *own = hr_calloc(1, sizeof *own);
  if (!own) return hr_fail_memory(err, source->path, sizeof *own);
  source->ops->finish(source);
  source->kind = HR_SOURCE_SAFETENSORS;
  source->values = own;
  source->ops = &ops;
  hr_status status = parse_packed(source, "config.json", &own->config, err);
  return status == HR_OK ? read_beside(source, err) : status;
}

/* --- Tensors --------------------------------------------------------------- */

typedef struct dtype {
  const char *name;
  unsigned bits;
  int format; /* an hr_format, or -1 */
} dtype;

static const dtype dtypes[] = {
    {"F32", 32, HR_FORMAT_F32}, {"F16", 16, HR_FORMAT_F16}, {"BF16", 16, HR_FORMAT_BF16},
    {"F64", 64, -1},     {"I64", 64, -1},     {"U64", 64, -1},     {"I32", 32, -1},
    {"U32", 32, -1},     {"I16", 16, -1},     {"U16", 16, -1},     {"I8", 8, -1},
    {"U8", 8, -1},       {"BOOL", 8, -1},     {"C64", 64, -1},     {"F8_E4M3", 8, -1},
    {"F8_E5M2", 8, -1},  {"F8_E8M0", 8, -1},  {"F6_E2M3", 6, -1},  {"F6_E3M2", 6, -1},
    {"F4", 4, -1},
};

static const dtype *find_dtype(const char *name) {
  for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
    if (strcmp(dtypes[i].name, name) == 0) return &dtypes[i];
  return NULL;
}

/* What reading a file's header needs at hand. */
typedef struct header {
  hr_source *source;
  const hr_source_file *file;
  size_t index; /* of the file */
  size_t start; /* of the data in the file */
  hr_error *err;
} header;

static hr_status fail_tensor(const header *h, const char *name, const char *fault) {
  return hr_fail(h->err, HR_ERROR_FILE, "%s: tensor '%s' %s", h->file->path,
                 HR_QUOTE(name, strlen(name)), fault);
}

static hr_status refuse(header *h, hr_source_entry *entry, const char *type, const char *why) {
  char text[HR_QUOTE_BYTES + 64];
  snprintf(text, sizeof text, "%s%s", HR_QUOTE(type, strlen(type)), why);
  entry->refused = hr_source_keep_name(h->source, text, strlen(text), h->err);
  return entry->refused ? HR_OK : HR_ERROR_MEMORY;
}

/* The product of the shape, and the dimensions where they fit. */
static hr_status read_shape(header *h, const json_t *shape, hr_tensor *tensor, size_t *elements) {
  if (!json_is_array(shape)) return fail_tensor(h, tensor->name, "has no array 'shape'");
  size_t dims = json_array_size(shape);
  *elements = 1;
  for (size_t i = 0; i < dims; i++) {
    const json_t *dim = json_array_get(shape, i);
    if (!json_is_integer(dim) || json_integer_value(dim) < 0)
      return fail_tensor(h, tensor->name, "has a dimension that is no whole number, 0 or more");
    if ((uint64_t)json_integer_value(dim) > SIZE_MAX ||
        !hr_mul_size(*elements, (size_t)json_integer_value(dim), elements))
      return fail_tensor(h, tensor->name, "has a shape whose product overflows");
    if (i < HR_TENSOR_DIMS) tensor->dim[i] = (size_t)json_integer_value(dim);
  }
  tensor->dims = (unsigned)(dims < HR_TENSOR_DIMS ? dims : HR_TENSOR_DIMS);
  return HR_OK;
}

/* The byte range, still without a look at how long the file is. */
static hr_status read_range(header *h, const json_t *range, hr_source_entry *entry) {
  const char *name = entry->tensor.name;
  const json_t *begin = json_array_get(range, 0), *end = json_array_get(range, 1);
  if (json_array_size(range) != 2 || !json_is_integer(begin) || !json_is_integer(end))
    return fail_tensor(h, name, "has no 'data_offsets' of two whole numbers");
  json_int_t from = json_integer_value(begin), to = json_integer_value(end);
  if (from < 0 || from > to)
    return hr_fail(h->err, HR_ERROR_FILE, "%s: tensor '%s' has data_offsets [%lld, %lld], which "
                   "are no range",
                   h->file->path, HR_QUOTE(name, strlen(name)), (long long)from, (long long)to);
  if ((uint64_t)to > SIZE_MAX - h->start)
    return fail_tensor(h, name, "has data_offsets outside of any file");
  entry->offset = (uint64_t)from;
  entry->tensor.bytes = (size_t)(to - from);
  return HR_OK;
}

/* Type and shape must give the range's bytes. Types without a reader go on as
 * refused entries, after the same checks. */
static hr_status match_type(header *h, const char *type, size_t dims, size_t elements,
                            hr_source_entry *entry) {
  hr_tensor *tensor = &entry->tensor;
  const dtype *known = find_dtype(type);
  if (!known) return refuse(h, entry, type, " (unknown)");
  size_t bits;
  if (!hr_mul_size(elements, known->bits, &bits))
    return fail_tensor(h, tensor->name, "has a size in bytes that overflows");
  if (bits % 8 || bits / 8 != tensor->bytes)
    return hr_fail(h->err, HR_ERROR_FILE,
                   "%s: tensor '%s' has %zu elements of type %s, but data_offsets of %zu bytes",
                   h->file->path, HR_QUOTE(tensor->name, strlen(tensor->name)), elements, type,
                   tensor->bytes);
  if (known->format < 0) return refuse(h, entry, type, "");
  if (dims > HR_TENSOR_DIMS) return refuse(h, entry, type, " with more than 4 dimensions");
  if (elements == 0) return refuse(h, entry, type, " without elements");
  tensor->format = (hr_format)known->format;
  return HR_OK;
}

static hr_status read_tensor(header *h, const char *name, const json_t *json) {
  hr_source_entry entry = {.file = h->index};
  size_t length = strlen(name), elements = 0;
  if (length == 0 || length > NAME_BYTES)
    return hr_fail(h->err, HR_ERROR_FILE, "%s: a tensor's name has %zu bytes, expected 1 to %d",
                   h->file->path, length, NAME_BYTES);
  if (!json_is_object(json)) return fail_tensor(h, name, "is no JSON object");
  const char *type = json_string_value(json_object_get(json, "dtype"));
  const json_t *shape = json_object_get(json, "shape");
  if (!type) return fail_tensor(h, name, "has no string 'dtype'");
  entry.tensor.name = hr_source_keep_name(h->source, name, length, h->err);
  if (!entry.tensor.name) return HR_ERROR_MEMORY;
  hr_status status = read_shape(h, shape, &entry.tensor, &elements);
  if (status == HR_OK) status = read_range(h, json_object_get(json, "data_offsets"), &entry);
  if (status == HR_OK) status = match_type(h, type, json_array_size(shape), elements, &entry);
  return status == HR_OK ? hr_source_add_entry(h->source, &entry, h->err) : status;
}

/* Places the entries from first on; names the first that the file does not hold. */
static hr_status place_tensors(const header *h, size_t first) {
  const hr_file_map *map = &h->file->map;
  const hr_tensor *cut = NULL;
  size_t needed = 0;
  for (size_t i = first; i < h->source->entry_count; i++) {
    hr_source_entry *entry = &h->source->entries[i];
    size_t from = h->start + (size_t)entry->offset; /* read_range saw that this fits */
    size_t end = from + entry->tensor.bytes;
    if (end > needed) needed = end;
    if (end <= map->bytes)
      entry->tensor.data = map->data + from;
    else if (!cut)
      cut = &entry->tensor;
  }
  if (!cut) return HR_OK;
  return hr_fail(h->err, HR_ERROR_FILE,
                 "%s: is cut short or damaged: the data of tensor '%s' need %zu bytes; the whole "
                 "file needs %zu bytes and has %zu",
                 h->file->path, HR_QUOTE(cut->name, strlen(cut->name)), cut->bytes, needed,
                 map->bytes);
}

static hr_status read_header(header *h, json_t *json) {
  const char *name;
  json_t *tensor;
  size_t first = h->source->entry_count;
  json_object_foreach(json, name, tensor) {
    if (strcmp(name, "__metadata__") == 0) continue; /* free text of whoever wrote the file */
    hr_status status = read_tensor(h, name, tensor);
    if (status != HR_OK) return status;
  }
  return place_tensors(h, first);
}

static hr_status header_length(const hr_file_map *map, const char *path, size_t *length,
                               hr_error *err) {
  uint64_t bytes;
  if (map->bytes < sizeof bytes)
    return hr_fail(err, HR_ERROR_FILE,
                   "%s: is cut short: its %zu bytes are too few for a safetensors header", path,
                   map->bytes);
  memcpy(&bytes, map->data, sizeof bytes);
  if (bytes > HEADER_BYTES)
    return hr_fail(err, HR_ERROR_FILE, "%s: the header claims %llu bytes, expected at most %llu",
                   path, (unsigned long long)bytes, (unsigned long long)HEADER_BYTES);
  if (bytes > map->bytes - sizeof bytes)
    return hr_fail(err, HR_ERROR_FILE,
                   "%s: is cut short or damaged: the header needs %llu bytes, but the file has %zu",
                   path, (unsigned long long)bytes, map->bytes);
  *length = (size_t)bytes;
  return HR_OK;
}

/* Adds a mapped file and its tensors. Takes over the map, on failure too. */
static hr_status add_tensors(hr_source *source, const char *path, hr_file_map *map,
                             hr_error *err) {
  header h = {.source = source, .err = err};
  size_t length = 0;
  hr_status status = hr_source_add_file(source, map, path, &h.index, err);
  if (status != HR_OK) return status;
  h.file = &source->files[h.index];
  status = hr_source_check_start(&h.file->map, path, err);
  if (status == HR_OK) status = header_length(&h.file->map, path, &length, err);
  if (status != HR_OK) return status;
  h.start = sizeof(uint64_t) + length;
  json_t *json = hr_json_parse(path, "the header ", h.file->map.data + sizeof(uint64_t), length, 0,
                               err);
  if (!json) return err->status;
  status = read_header(&h, json);
  json_decref(json);
  return status;
}

/* --- Models in several files ----------------------------------------------- */

/* For NAME-00001-of-00003.safetensors the bytes of NAME, else 0. */
static size_t shard_stem(const char *path) {
  static const char pattern[] = "-00000-of-00000";
  size_t stem = stem_length(path, extension), tail = sizeof pattern - 1;
  if (stem <= tail) return 0;
  for (size_t i = 0; i < tail; i++) {
    char c = path[stem - tail + i];
    if (pattern[i] == '0' ? c < '0' || c > '9' : c != pattern[i]) return 0;
  }
  return stem - tail;
}

/* A plain file name: an index must not lead out of its folder. */
static bool plain_name(const char *name) {
  return *name && strlen(name) <= 255 && !strpbrk(name, "/\\") && strcmp(name, ".") != 0 &&
         strcmp(name, "..") != 0;
}

static const hr_source_file *find_shard(const hr_source *source, const char *name) {
  for (size_t i = 0; i < source->file_count; i++)
    if (strcmp(source->files[i].path + folder_length(source->files[i].path), name) == 0)
      return &source->files[i];
  return NULL;
}

static hr_status add_shard(hr_source *source, const char *index, const char *name, hr_error *err) {
  if (source->file_count == SHARDS)
    return hr_fail(err, HR_ERROR_FILE, "%s: names more than %d files", index, SHARDS);
  char *path = beside(index, folder_length(index), name, err);
  if (!path) return HR_ERROR_MEMORY;
  hr_status status;
  hr_file_map map;
  if (!hr_source_file_exists(path))
    status = hr_fail(err, HR_ERROR_FILE, "%s: names the file '%s', which is missing", index,
                     HR_QUOTE(name, strlen(name)));
  else
    status = hr_file_map_open(&map, path, err);
  if (status == HR_OK) status = add_tensors(source, path, &map, err);
  hr_free(path);
  return status;
}

static hr_status add_shards(hr_source *source, const char *index, json_t *map, hr_error *err) {
  const char *tensor;
  json_t *file;
  hr_status status = HR_OK;
  json_object_foreach(map, tensor, file) {
    const char *name = json_string_value(file);
    if (!name || !plain_name(name))
      return hr_fail(err, HR_ERROR_FILE,
                     "%s: tensor '%s' is said to be in '%s', expected the name of a file beside it",
                     index, HR_QUOTE(tensor, strlen(tensor)),
                     name ? HR_QUOTE(name, strlen(name)) : "something that is no string");
    if (find_shard(source, name)) continue;
    status = add_shard(source, index, name, err);
    if (status != HR_OK) return status;
  }
  return status;
}

/* Every tensor that the index names must be in the file that it names. */
static hr_status check_shards(const hr_source *source, const char *index, json_t *map,
                              hr_error *err) {
  const char *name;
  json_t *file;
  json_object_foreach(map, name, file) {
    const hr_source_entry *entry = hr_source_find_entry(source, name);
    const hr_source_file *named = find_shard(source, json_string_value(file));
    if (!entry || &source->files[entry->file] != named)
      return hr_fail(err, HR_ERROR_FILE, "%s: tensor '%s' is not in the file '%s' that is named "
                     "for it",
                     index, HR_QUOTE(name, strlen(name)),
                     HR_QUOTE(json_string_value(file), json_string_length(file)));
  }
  return HR_OK;
}

hr_status hr_safetensors_read_index(hr_source *source, const char *path, hr_error *err) {
  json_t *json = parse_file(path, err);
  if (!json) return err->status;
  json_t *map = json_object_get(json, "weight_map");
  hr_status status = HR_OK;
  if (!json_is_object(map))
    status = hr_fail(err, HR_ERROR_FILE, "%s: has no object 'weight_map'", path);
  if (status == HR_OK) status = read_config(source, path, err);
  if (status == HR_OK) status = add_shards(source, path, map, err);
  if (status == HR_OK) status = hr_source_index_entries(source, err);
  if (status == HR_OK) status = check_shards(source, path, map, err);
  json_decref(json);
  return status;
}

/* One file of several stands for all of them, where the index is beside it. */
static hr_status read_shard(hr_source *source, const char *path, size_t stem, hr_error *err) {
  char *index = beside(path, stem, index_extension, err);
  if (!index) return HR_ERROR_MEMORY;
  hr_status status;
  if (hr_source_file_exists(index))
    status = hr_safetensors_read_index(source, index, err);
  else
    status = hr_fail(err, HR_ERROR_FILE,
                     "%s: is one file of several, and the index %s is missing", path, index);
  hr_free(index);
  return status;
}

hr_status hr_safetensors_read_file(hr_source *source, const char *path, hr_file_map *map,
                                   hr_error *err) {
  size_t stem = shard_stem(path);
  if (stem) {
    hr_file_map_close(map);
    return read_shard(source, path, stem, err);
  }
  hr_status status = add_tensors(source, path, map, err);
  if (status == HR_OK) status = hr_source_index_entries(source, err);
  if (status == HR_OK) status = read_config(source, path, err);
  return status;
}
