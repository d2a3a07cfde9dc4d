/* SPDX-License-Identifier: MIT
 * GGUF, versions 2 and 3, little-endian:
 *
 *   "GGUF", u32 version, u64 tensors, u64 values
 *   values:  string key, u32 type, value
 *   tensors: string name, u32 dims, u64 dim[dims] (innermost first), u32 type, u64 offset
 *   padding, then the data; offsets count from there
 *
 * A string is a u64 length and that many bytes; an array a u32 type, a u64
 * count and the elements. Every number is checked against what is left of the
 * file before it is used, so that nothing is allocated or walked for a claim
 * that the file can't hold. Addition of sizes is checked where it may wrap. */
#include "base/text.h"
#include "model/packed.h"
#include "model/source_internal.h"

#include <stdio.h>
#include <string.h>

#define KEY_BYTES 65535
#define NAME_BYTES 255
#define ALIGNMENT_MAX ((uint32_t)1 << 20)
#define ALIGNMENT_DEFAULT 32
#define ARRAY_DEPTH 4
#define PARTS 4096

enum {
  TYPE_U8, TYPE_I8, TYPE_U16, TYPE_I16, TYPE_U32, TYPE_I32, TYPE_F32, TYPE_BOOL,
  TYPE_STRING, TYPE_ARRAY, TYPE_U64, TYPE_I64, TYPE_F64, TYPE_COUNT
};

typedef struct gguf_type {
  const char *name, *array_name;
  size_t bytes;   /* 0: varies */
  size_t minimum; /* bytes that the shortest value takes */
} gguf_type;

static const gguf_type types[TYPE_COUNT] = {
    [TYPE_U8] = {"uint8", "array of uint8", 1, 1},
    [TYPE_I8] = {"int8", "array of int8", 1, 1},
    [TYPE_U16] = {"uint16", "array of uint16", 2, 2},
    [TYPE_I16] = {"int16", "array of int16", 2, 2},
    [TYPE_U32] = {"uint32", "array of uint32", 4, 4},
    [TYPE_I32] = {"int32", "array of int32", 4, 4},
    [TYPE_F32] = {"float32", "array of float32", 4, 4},
    [TYPE_BOOL] = {"bool", "array of bool", 1, 1},
    [TYPE_STRING] = {"string", "array of string", 0, 8},
    [TYPE_ARRAY] = {"array", "array of arrays", 0, 12},
    [TYPE_U64] = {"uint64", "array of uint64", 8, 8},
    [TYPE_I64] = {"int64", "array of int64", 8, 8},
    [TYPE_F64] = {"float64", "array of float64", 8, 8},
};

typedef struct gguf_value {
  const char *key;
  uint32_t type;
  uint32_t element;          /* of an array */
  size_t count;              /* of an array */
  const unsigned char *data; /* the value, or the first element */
  const unsigned char *start; /* of the key's length, and how many bytes follow in all */
  size_t bytes;
} gguf_value;

typedef struct gguf_values {
  size_t count;
  gguf_value *item;
  uint32_t *by_key;
} gguf_values;

/* Where reading is, for messages: "tensor 3 of 20", with a name once it is known. */
typedef struct reader {
  hr_source *source;
  const char *path;     /* of the file */
  size_t file;          /* its index in the source */
  gguf_values *values;  /* where its values go */
  const unsigned char *data;
  size_t bytes, at;
  const char *part; /* "key", "tensor" */
  size_t number, of;
  const char *name; /* NULL: not read yet */
  hr_error *err;
} reader;

#define PLACE_BYTES (HR_QUOTE_BYTES + 80)
#define PLACE(r) place((r), (char[PLACE_BYTES]){0})

static const char *place(const reader *r, char buffer[PLACE_BYTES]) {
  if (r->name)
    snprintf(buffer, PLACE_BYTES, "%s '%s'", r->part, HR_QUOTE(r->name, strlen(r->name)));
  else if (r->of)
    snprintf(buffer, PLACE_BYTES, "%s %zu of %zu", r->part, r->number, r->of);
  else
    snprintf(buffer, PLACE_BYTES, "%s", r->part);
  return buffer;
}

static hr_status fail_short(const reader *r, const char *what, uint64_t bytes) {
  hr_fail(r->err, HR_ERROR_FILE,
          "%s: is cut short or damaged: the %s of %s needs %llu bytes, but %zu are left of the "
          "file's %zu",
          r->path, what, PLACE(r), (unsigned long long)bytes, r->bytes - r->at, r->bytes);
  return HR_ERROR_FILE;
}

/* Moves over bytes, which were checked or are checked here. */
static hr_status take(reader *r, const char *what, size_t bytes, const unsigned char **data) {
  *data = r->data;
  if (bytes > r->bytes - r->at) return fail_short(r, what, bytes);
  *data = r->data + r->at;
  r->at += bytes;
  return HR_OK;
}

static hr_status take_u32(reader *r, const char *what, uint32_t *value) {
  const unsigned char *data;
  *value = 0;
  if (take(r, what, sizeof *value, &data) != HR_OK) return HR_ERROR_FILE;
  memcpy(value, data, sizeof *value);
  return HR_OK;
}

static hr_status take_u64(reader *r, const char *what, uint64_t *value) {
  const unsigned char *data;
  *value = 0;
  if (take(r, what, sizeof *value, &data) != HR_OK) return HR_ERROR_FILE;
  memcpy(value, data, sizeof *value);
  return HR_OK;
}

static hr_status take_string(reader *r, const char *what, const char **text, size_t *length) {
  uint64_t bytes;
  const unsigned char *data;
  hr_status status = take_u64(r, what, &bytes);
  if (status != HR_OK) return status;
  if (bytes > r->bytes - r->at) return fail_short(r, what, bytes);
  status = take(r, what, (size_t)bytes, &data);
  *text = (const char *)data;
  *length = (size_t)bytes;
  return status;
}

/* A key or tensor name: kept with a NUL behind it, so it must hold none. */
static hr_status take_name(reader *r, size_t limit, const char **name) {
  const char *text = NULL;
  size_t length = 0;
  hr_status status = take_string(r, "name", &text, &length);
  if (status != HR_OK) return status;
  if (length == 0 || length > limit)
    return hr_fail(r->err, HR_ERROR_FILE, "%s: the name of %s has %zu bytes, expected 1 to %zu",
                   r->path, PLACE(r), length, limit);
  if (memchr(text, 0, length))
    return hr_fail(r->err, HR_ERROR_FILE, "%s: the name '%s' of %s holds a zero byte",
                   r->path, HR_QUOTE(text, length), PLACE(r));
  *name = hr_source_keep_name(r->source, text, length, r->err);
  if (!*name) return HR_ERROR_MEMORY;
  r->name = *name;
  return HR_OK;
}

/* --- Values ---------------------------------------------------------------- */

static hr_status skip_array(reader *r, uint32_t *element, size_t *count,
                            const unsigned char **first, unsigned depth);

static hr_status skip_elements(reader *r, uint32_t element, size_t count, unsigned depth) {
  hr_status status = HR_OK;
  if (element == TYPE_STRING) {
    const char *text;
    size_t length;
    for (size_t i = 0; status == HR_OK && i < count; i++)
      status = take_string(r, "string", &text, &length);
  } else {
    uint32_t inner;
    size_t inner_count;
    const unsigned char *first;
    for (size_t i = 0; status == HR_OK && i < count; i++)
      status = skip_array(r, &inner, &inner_count, &first, depth + 1);
  }
  return status;
}

static hr_status skip_array(reader *r, uint32_t *element, size_t *count,
                            const unsigned char **first, unsigned depth) {
  uint64_t claimed;
  if (depth == ARRAY_DEPTH)
    return hr_fail(r->err, HR_ERROR_FILE, "%s: %s has arrays in arrays more than %d deep",
                   r->path, PLACE(r), ARRAY_DEPTH);
  hr_status status = take_u32(r, "array", element);
  if (status == HR_OK) status = take_u64(r, "array", &claimed);
  if (status != HR_OK) return status;
  if (*element >= TYPE_COUNT)
    return hr_fail(r->err, HR_ERROR_FILE, "%s: %s is an array of the unknown type %u",
                   r->path, PLACE(r), *element);
  size_t left = r->bytes - r->at;
  if (claimed > left / types[*element].minimum)
    return hr_fail(r->err, HR_ERROR_FILE,
                   "%s: is cut short or damaged: %s claims %llu elements of type %s, but %zu bytes "
                   "are left of the file's %zu",
                   r->path, PLACE(r), (unsigned long long)claimed, types[*element].name,
                   left, r->bytes);
  *count = (size_t)claimed;
  *first = r->data + r->at;
  size_t width = types[*element].bytes;
  if (width) return take(r, "array", *count * width, first); /* the product was bounded above */
  return skip_elements(r, *element, *count, depth);
}

static hr_status read_value(reader *r, gguf_value *value) {
  hr_status status = take_name(r, KEY_BYTES, &value->key);
  if (status == HR_OK) status = take_u32(r, "type", &value->type);
  if (status != HR_OK) return status;
  if (value->type >= TYPE_COUNT)
    return hr_fail(r->err, HR_ERROR_FILE, "%s: key '%s' has the unknown type %u", r->path,
                   HR_QUOTE(value->key, strlen(value->key)), value->type);
  if (value->type == TYPE_ARRAY)
    return skip_array(r, &value->element, &value->count, &value->data, 0);
  if (value->type != TYPE_STRING) return take(r, "value", types[value->type].bytes, &value->data);
  const char *text;
  value->data = r->data + r->at;
  return take_string(r, "value", &text, &value->count);
}

static int order_by_key(const void *base, uint32_t a, uint32_t b) {
  const gguf_value *values = base;
  return strcmp(values[a].key, values[b].key);
}

static const gguf_value *find_value(const gguf_values *values, const char *key) {
  size_t low = 0, high = values->count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    const gguf_value *value = &values->item[values->by_key[middle]];
    int order = strcmp(value->key, key);
    if (order == 0) return value;
    if (order < 0)
      low = middle + 1;
    else
      high = middle;
  }
  return NULL;
}

static hr_status index_values(const reader *r) {
  gguf_values *values = r->values;
  for (size_t i = 0; i < values->count; i++) values->by_key[i] = (uint32_t)i;
  hr_source_sort(values->by_key, values->count, order_by_key, values->item);
  for (size_t i = 1; i < values->count; i++) {
    const char *key = values->item[values->by_key[i]].key;
    if (strcmp(values->item[values->by_key[i - 1]].key, key) == 0)
      return hr_fail(r->err, HR_ERROR_FILE, "%s: key '%s' occurs twice", r->path,
                     HR_QUOTE(key, strlen(key)));
  }
  return HR_OK;
}

static hr_status read_values(reader *r, size_t count) {
  gguf_values *values = r->values;
  values->item = hr_calloc(count, sizeof *values->item);
  values->by_key = hr_calloc(count, sizeof *values->by_key);
  if (!values->item || !values->by_key)
    return hr_fail_memory(r->err, r->path, count * sizeof *values->item);
  r->part = "key";
  r->of = count;
  for (size_t i = 0; i < count; i++) {
    r->number = i + 1;
    r->name = NULL;
    size_t start = r->at;
    hr_status status = read_value(r, &values->item[i]);
    if (status != HR_OK) return status;
    values->item[i].start = r->data + start;
    values->item[i].bytes = r->at - start;
    values->count = i + 1;
  }
  return index_values(r);
}

static void load_scalar(uint32_t type, const unsigned char *data, hr_value *value) {
  union {
    uint8_t u8; int8_t i8; uint16_t u16; int16_t i16; uint32_t u32; int32_t i32;
    float f32; uint64_t u64; int64_t i64; double f64;
  } raw;
  memcpy(&raw, data, types[type].bytes);
  *value = (hr_value){.kind = HR_VALUE_UINT, .type = types[type].name};
  switch (type) {
    case TYPE_U8: value->uint = raw.u8; break;
    case TYPE_U16: value->uint = raw.u16; break;
    case TYPE_U32: value->uint = raw.u32; break;
    case TYPE_U64: value->uint = raw.u64; break;
    case TYPE_I8: value->kind = HR_VALUE_INT, value->sint = raw.i8; break;
    case TYPE_I16: value->kind = HR_VALUE_INT, value->sint = raw.i16; break;
    case TYPE_I32: value->kind = HR_VALUE_INT, value->sint = raw.i32; break;
    case TYPE_I64: value->kind = HR_VALUE_INT, value->sint = raw.i64; break;
    case TYPE_F32: value->kind = HR_VALUE_REAL, value->real = (double)raw.f32; break;
    case TYPE_F64: value->kind = HR_VALUE_REAL, value->real = raw.f64; break;
    case TYPE_BOOL: value->kind = HR_VALUE_BOOL, value->truth = raw.u8 != 0; break;
    default: value->kind = HR_VALUE_OTHER; break;
  }
}

/* data is at the length; what it says was checked when the file was opened. */
static const unsigned char *load_string(const unsigned char *data, hr_value *value) {
  uint64_t length;
  memcpy(&length, data, sizeof length);
  *value = (hr_value){.kind = HR_VALUE_STRING, .type = types[TYPE_STRING].name};
  value->text = (const char *)data + sizeof length;
  value->length = (size_t)length;
  return data + sizeof length + length;
}

static void load(const gguf_value *from, hr_value *value) {
  if (from->type == TYPE_STRING) {
    load_string(from->data, value);
  } else if (from->type != TYPE_ARRAY) {
    load_scalar(from->type, from->data, value);
  } else {
    *value = (hr_value){.kind = HR_VALUE_ARRAY, .type = types[from->element].array_name};
    value->length = from->count;
    value->cursor = from->data;
    value->element = from->element;
  }
}

static bool gguf_lookup(const hr_source *source, const char *key, hr_value *value) {
  const gguf_value *found = find_value(source->values, key);
  if (found) load(found, value);
  return found != NULL;
}

static void gguf_next(hr_value *array, hr_value *element) {
  const unsigned char *data = array->cursor;
  if (array->element == TYPE_STRING) {
    array->cursor = load_string(data, element);
  } else if (array->element == TYPE_ARRAY) {
    *element = (hr_value){.kind = HR_VALUE_OTHER, .type = types[TYPE_ARRAY].name};
  } else {
    load_scalar(array->element, data, element);
    array->cursor = data + types[array->element].bytes;
  }
}

static void gguf_visit(const hr_source *source, hr_source_visit_fn *visit, void *arg) {
  const gguf_values *values = source->values;
  for (size_t i = 0; i < values->count; i++) {
    hr_value value;
    load(&values->item[i], &value);
    char text[HR_SOURCE_SHOW_BYTES];
    visit(arg, values->item[i].key, value.type, hr_source_show(source, value, text));
  }
}

void hr_gguf_visit_raw(const hr_source *source, hr_gguf_raw_fn *visit, void *arg) {
  const gguf_values *values = source->values;
  for (size_t i = 0; i < values->count; i++)
    visit(arg, values->item[i].key, values->item[i].start, values->item[i].bytes);
}

static void free_values(gguf_values *values) {
  if (!values) return;
  hr_free(values->item);
  hr_free(values->by_key);
  hr_free(values);
}

static void gguf_finish(hr_source *source) {
  free_values(source->values);
  source->values = NULL;
}

static const hr_source_ops ops = {gguf_lookup, NULL, gguf_next, gguf_visit, NULL, gguf_finish};

/* --- Tensors --------------------------------------------------------------- */

/* Plain numbers that no weight is made of: kept aside, see hr_source_refused_type. */
static size_t plain_bytes(uint32_t type) {
  switch (type) {
    case 24: return 1; /* I8 */
    case 25: return 2; /* I16 */
    case 26: return 4; /* I32 */
    case 27:           /* I64 */
    case 28: return 8; /* F64 */
    default: return 0;
  }
}

static hr_status read_dims(reader *r, hr_tensor *tensor, size_t *elements) {
  uint32_t dims;
  hr_status status = take_u32(r, "number of dimensions", &dims);
  if (status != HR_OK) return status;
  if (dims < 1 || dims > HR_TENSOR_DIMS)
    return hr_fail(r->err, HR_ERROR_FILE, "%s: %s has %u dimensions, expected 1 to %d",
                   r->path, PLACE(r), dims, HR_TENSOR_DIMS);
  tensor->dims = dims;
  *elements = 1;
  for (uint32_t i = 0; i < dims; i++) {
    uint64_t dim;
    status = take_u64(r, "dimensions", &dim);
    if (status != HR_OK) return status;
    if (dim == 0)
      return hr_fail(r->err, HR_ERROR_FILE, "%s: dimension %u of %s is 0", r->path, i,
                     PLACE(r));
    if (dim > SIZE_MAX || !hr_mul_size(*elements, (size_t)dim, elements))
      return hr_fail(r->err, HR_ERROR_FILE,
                     "%s: the dimensions of %s are too large: their product overflows at %llu",
                     r->path, PLACE(r), (unsigned long long)dim);
    tensor->dim[dims - 1 - i] = (size_t)dim;
  }
  return HR_OK;
}

/* Panels of a packed file; rows are padded to whole panels. */
static bool panel_bytes(const hr_tensor *t, hr_panel_type type, size_t *bytes) {
  size_t k = t->dim[1], padded, limit;
  if (!hr_add_size(k, 64, &padded) || !hr_mul_size(padded, 64, &limit)) return false;
  size_t panels = t->dim[0] / HR_PANEL_ROWS + (t->dim[0] % HR_PANEL_ROWS != 0);
  return hr_mul_size(panels, hr_panel_bytes(type, k), bytes);
}

static hr_status read_type(reader *r, hr_source_entry *entry, size_t elements) {
  hr_tensor *tensor = &entry->tensor;
  uint32_t type;
  const char *name;
  hr_status status = take_u32(r, "type", &type);
  if (status != HR_OK) return status;
  bool fits;
  entry->is_panels = hr_panel_from_gguf(type, &entry->panels);
  if (entry->is_panels) {
    entry->refused = "headrow panels";
    if (tensor->dims != 2)
      return hr_fail(r->err, HR_ERROR_FILE, "%s: %s holds panels in %u dimensions, expected 2",
                     r->path, PLACE(r), tensor->dims);
    fits = panel_bytes(tensor, entry->panels, &tensor->bytes);
  } else if (hr_format_from_gguf(type, &tensor->format, &name)) {
    size_t block = hr_format_get(tensor->format)->block_elements;
    size_t row = tensor->dim[tensor->dims - 1];
    if (row % block)
      return hr_fail(r->err, HR_ERROR_FILE,
                     "%s: %s has rows of %zu elements, expected a multiple of %zu for type %s",
                     r->path, PLACE(r), row, block, name);
    fits = hr_format_bytes(tensor->format, elements, &tensor->bytes);
  } else if (plain_bytes(type)) {
    entry->refused = name;
    fits = hr_mul_size(elements, plain_bytes(type), &tensor->bytes);
  } else if (name) {
    return hr_fail(r->err, HR_ERROR_FILE, "%s: %s has type %s, expected " HR_FORMAT_NAMES,
                   r->path, PLACE(r), name);
  } else {
    return hr_fail(r->err, HR_ERROR_FILE,
                   "%s: %s has the unknown type %u, expected " HR_FORMAT_NAMES,
                   r->path, PLACE(r), type);
  }
  if (fits) return HR_OK;
  return hr_fail(r->err, HR_ERROR_FILE, "%s: the size in bytes of the %zu elements of %s overflows",
                 r->path, elements, PLACE(r));
}

static hr_status read_tensor(reader *r, uint32_t alignment) {
  hr_source_entry entry = {.file = r->file};
  size_t elements = 0;
  hr_status status = take_name(r, NAME_BYTES, &entry.tensor.name);
  if (status == HR_OK) status = read_dims(r, &entry.tensor, &elements);
  if (status == HR_OK) status = read_type(r, &entry, elements);
  if (status == HR_OK) status = take_u64(r, "offset", &entry.offset);
  if (status != HR_OK) return status;
  if (entry.offset % alignment)
    return hr_fail(r->err, HR_ERROR_FILE,
                   "%s: %s: offset %llu is no multiple of the alignment %u", r->path,
                   PLACE(r), (unsigned long long)entry.offset, alignment);
  return hr_source_add_entry(r->source, &entry, r->err);
}

/* Turns offsets into places. The message of a file that is cut short names the
 * first tensor that misses something, and what the whole file would need. */
static hr_status place_tensors(reader *r, size_t first, uint32_t alignment) {
  hr_source *source = r->source;
  size_t start = 0, needed = 0;
  const hr_source_entry *cut = NULL;
  bool fits = hr_add_size(r->at, alignment - 1, &start);
  start -= start % alignment;
  for (size_t i = first; i < source->entry_count; i++) {
    hr_source_entry *entry = &source->entries[i];
    hr_tensor *tensor = &entry->tensor;
    size_t from, end;
    r->name = tensor->name;
    if (!fits || entry->offset > SIZE_MAX || !hr_add_size(start, (size_t)entry->offset, &from) ||
        !hr_add_size(from, tensor->bytes, &end))
      return hr_fail(r->err, HR_ERROR_FILE,
                     "%s: %s: offset %llu and size %zu lie outside of any file", r->path,
                     PLACE(r), (unsigned long long)entry->offset, tensor->bytes);
    if (end > needed) needed = end;
    if (end <= r->bytes)
      tensor->data = r->data + from;
    else if (!cut)
      cut = entry;
  }
  if (!cut) return HR_OK;
  r->name = cut->tensor.name;
  return hr_fail(r->err, HR_ERROR_FILE,
                 "%s: is cut short or damaged: the data of %s need %zu bytes at offset %llu; the "
                 "whole file needs %zu bytes and has %zu",
                 r->path, PLACE(r), cut->tensor.bytes, (unsigned long long)cut->offset,
                 needed, r->bytes);
}

static hr_status read_tensors(reader *r, size_t count, uint32_t alignment) {
  size_t first = r->source->entry_count;
  hr_status status = hr_source_reserve_entries(r->source, first + count, r->err);
  r->part = "tensor";
  r->of = count;
  for (size_t i = 0; status == HR_OK && i < count; i++) {
    r->number = i + 1;
    r->name = NULL;
    status = read_tensor(r, alignment);
  }
  return status == HR_OK ? place_tensors(r, first, alignment) : status;
}

/* --- One file -------------------------------------------------------------- */

static hr_status read_version(reader *r) {
  const unsigned char *magic;
  uint32_t version;
  hr_status status = take(r, "magic number", 4, &magic);
  if (status == HR_OK) status = take_u32(r, "version", &version);
  if (status != HR_OK) return status;
  if (version == 2 || version == 3) return HR_OK;
  if (version && (version & 0xffffff) == 0) /* a small number, its bytes swapped */
    return hr_fail(r->err, HR_ERROR_FILE,
                   "%s: is a big-endian GGUF file; only little-endian is read", r->path);
  return hr_fail(r->err, HR_ERROR_FILE, "%s: is GGUF version %u, expected 2 or 3",
                 r->path, version);
}

/* smallest: bytes that each takes at least. */
static hr_status check_count(const reader *r, const char *what, uint64_t count, size_t smallest,
                             size_t limit) {
  if (count > (r->bytes - r->at) / smallest)
    return hr_fail(r->err, HR_ERROR_FILE,
                   "%s: is cut short or damaged: it claims %llu %s, but %zu bytes are left of its "
                   "%zu",
                   r->path, (unsigned long long)count, what, r->bytes - r->at, r->bytes);
  if (count > limit)
    return hr_fail(r->err, HR_ERROR_FILE, "%s: holds %llu %s, expected at most %zu",
                   r->path, (unsigned long long)count, what, limit);
  return HR_OK;
}

static hr_status read_alignment(const reader *r, uint32_t *alignment) {
  const gguf_value *value = find_value(r->values, "general.alignment");
  *alignment = ALIGNMENT_DEFAULT;
  if (!value) return HR_OK;
  if (value->type != TYPE_U32)
    return hr_fail(r->err, HR_ERROR_FILE,
                   "%s: key 'general.alignment' has type %s, expected uint32", r->path,
                   types[value->type].name);
  memcpy(alignment, value->data, sizeof *alignment);
  if (*alignment && !(*alignment & (*alignment - 1)) && *alignment <= ALIGNMENT_MAX) return HR_OK;
  return hr_fail(r->err, HR_ERROR_FILE,
                 "%s: key 'general.alignment' is %u, expected a power of two of at most %u",
                 r->path, *alignment, ALIGNMENT_MAX);
}

static hr_status read_file(hr_source *source, size_t index, gguf_values *values, hr_error *err) {
  const hr_source_file *file = &source->files[index];
  reader r = {.source = source, .path = file->path, .file = index, .values = values,
              .data = file->map.data, .bytes = file->map.bytes, .part = "the header", .err = err};
  uint64_t tensors = 0, count = 0;
  uint32_t alignment;
  hr_status status = read_version(&r);
  if (status == HR_OK) status = take_u64(&r, "number of tensors", &tensors);
  if (status == HR_OK) status = take_u64(&r, "number of keys", &count);
  /* name, dims, dim, type, offset; key, type, value */
  if (status == HR_OK) status = check_count(&r, "tensors", tensors, 33, HR_SOURCE_MAX_TENSORS);
  if (status == HR_OK) status = check_count(&r, "keys", count, 14, HR_SOURCE_MAX_VALUES);
  if (status == HR_OK) status = read_values(&r, (size_t)count);
  if (status == HR_OK) status = read_alignment(&r, &alignment);
  if (status == HR_OK) status = check_count(&r, "tensors", tensors, 33, HR_SOURCE_MAX_TENSORS);
  if (status == HR_OK) status = read_tensors(&r, (size_t)tensors, alignment);
  return status;
}

/* --- Models in several files -----------------------------------------------
 * NAME-00001-of-00003.gguf and so on. Each says which part of how many it is;
 * the first has the model's values. */

typedef struct split {
  uint64_t part, parts, tensors; /* from 0; 1 part where nothing is said; 0 tensors likewise */
} split;

static hr_status read_split_number(const gguf_values *values, const char *path, const char *key,
                                   uint64_t *number, hr_error *err) {
  hr_value value;
  const gguf_value *found = find_value(values, key);
  if (!found) return HR_OK;
  load(found, &value);
  if (value.kind == HR_VALUE_INT && value.sint >= 0) {
    value.kind = HR_VALUE_UINT;
    value.uint = (uint64_t)value.sint;
  }
  if (value.kind != HR_VALUE_UINT)
    return hr_fail(err, HR_ERROR_FILE,
                   "%s: key '%s' has type %s, expected a whole number, 0 or more", path, key,
                   value.type);
  *number = value.uint;
  return HR_OK;
}

static hr_status read_split(const gguf_values *values, const char *path, split *s, hr_error *err) {
  *s = (split){.parts = 1};
  hr_status status = read_split_number(values, path, "split.count", &s->parts, err);
  if (status == HR_OK) status = read_split_number(values, path, "split.no", &s->part, err);
  if (status == HR_OK)
    status = read_split_number(values, path, "split.tensors.count", &s->tensors, err);
  return status;
}

/* NAME of NAME-00002-of-00003.gguf for part 1 of 3, to be freed. */
static hr_status split_name(const char *path, const split *s, char **name, hr_error *err) {
  char end[64];
  snprintf(end, sizeof end, "-%05u-of-%05u.gguf", (unsigned)s->part + 1, (unsigned)s->parts);
  if (!hr_ends_with(path, end))
    return hr_fail(err, HR_ERROR_FILE,
                   "%s: is part %u of a model split into %u files: its name should end in '%s'",
                   path, (unsigned)s->part + 1, (unsigned)s->parts, end);
  size_t length = strlen(path) - strlen(end);
  *name = hr_strndup(path, length);
  return *name ? HR_OK : hr_fail_memory(err, path, length);
}

/* Checks that a part is the one that its name says. */
static hr_status check_part(const gguf_values *values, const char *path, const split *wanted,
                            hr_error *err) {
  split s;
  hr_status status = read_split(values, path, &s, err);
  if (status != HR_OK || (s.part == wanted->part && s.parts == wanted->parts)) return status;
  return hr_fail(err, HR_ERROR_FILE, "%s: is part %llu of %llu, expected part %llu of %llu", path,
                 (unsigned long long)s.part + 1, (unsigned long long)s.parts,
                 (unsigned long long)wanted->part + 1, (unsigned long long)wanted->parts);
}

static hr_status add_part(hr_source *source, const char *path, const split *wanted,
                          gguf_values *values, hr_error *err) {
  hr_file_map map;
  size_t index;
  if (!hr_source_file_exists(path))
    return hr_fail(err, HR_ERROR_FILE, "%s: is missing, a part of a model split into %llu files",
                   path, (unsigned long long)wanted->parts);
  hr_status status = hr_file_map_open(&map, path, err);
  if (status == HR_OK) status = hr_source_add_file(source, &map, path, &index, err);
  if (status != HR_OK) return status;
  const hr_file_map *kept = &source->files[index].map;
  status = hr_source_check_start(kept, path, err);
  if (status == HR_OK && (kept->bytes < 4 || memcmp(kept->data, "GGUF", 4) != 0))
    status = hr_fail(err, HR_ERROR_FILE, "%s: is no GGUF file", path);
  if (status == HR_OK) status = read_file(source, index, values, err);
  if (status == HR_OK) status = check_part(values, path, wanted, err);
  return status;
}

static hr_status add_parts(hr_source *source, const char *name, split s, hr_error *err) {
  hr_status status = HR_OK;
  size_t bytes = strlen(name) + 40;
  char *path = hr_calloc(bytes, 1);
  if (!path) return hr_fail_memory(err, name, bytes);
  for (s.part = 0; status == HR_OK && s.part < s.parts; s.part++) {
    gguf_values *values = s.part ? hr_calloc(1, sizeof *values) : source->values;
    snprintf(path, bytes, "%s-%05u-of-%05u.gguf", name, (unsigned)s.part + 1, (unsigned)s.parts);
    status = values ? add_part(source, path, &s, values, err)
                    : hr_fail_memory(err, path, sizeof *values);
    if (s.part) free_values(values);
  }
  hr_free(path);
  return status;
}

/* Starts again from the first part, whichever part was given. */
static hr_status read_parts(hr_source *source, const split *s, hr_error *err) {
  char *name = NULL;
  gguf_values *values = source->values;
  hr_status status = split_name(source->files[0].path, s, &name, err);
  if (status != HR_OK) return status;
  hr_free(values->item);
  hr_free(values->by_key);
  *values = (gguf_values){0};
  hr_source_remove_files(source);
  status = add_parts(source, name, *s, err);
  hr_free(name);
  if (status == HR_OK && s->tensors && s->tensors != source->entry_count)
    status = hr_fail(err, HR_ERROR_FILE, "%s: its %llu parts hold %zu tensors, expected %llu",
                     source->path, (unsigned long long)s->parts, source->entry_count,
                     (unsigned long long)s->tensors);
  return status;
}

hr_status hr_gguf_read(hr_source *source, hr_error *err) {
  split s = {0};
  const char *path = source->files[0].path;
  source->kind = HR_SOURCE_GGUF;
  source->ops = &ops;
  source->values = hr_calloc(1, sizeof(gguf_values));
  if (!source->values) return hr_fail_memory(err, source->path, sizeof(gguf_values));
  hr_status status = read_file(source, 0, source->values, err);
  if (status == HR_OK) status = read_split(source->values, path, &s, err);
  if (status == HR_OK && s.parts > 1) {
    if (s.part >= s.parts || s.parts > PARTS || !source->files[0].map.mapped)
      return hr_fail(err, HR_ERROR_FILE,
                     "%s: is part %llu of a model split into %llu files, which can't be read; "
                     "merge them into one file first",
                     path, (unsigned long long)s.part + 1, (unsigned long long)s.parts);
    status = read_parts(source, &s, err);
  }
  if (status == HR_OK) status = hr_source_index_entries(source, err);
  if (status == HR_OK) source->values_path = source->files[0].path;
  return status == HR_OK ? hr_packed_read(source, err) : status;
}
