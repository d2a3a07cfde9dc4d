/* SPDX-License-Identifier: MIT
 * Reading packed files. The GGUF reader has found their tensors and checked
 * sizes, places and names; they become the parts, and the tensors of the model
 * that was packed take their place, as descriptions without data. So whatever
 * plans a load sees the source's own names and shapes. */
#include "model/packed.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "model/load_internal.h"
#include "model/packed_internal.h"
#include "model/source_internal.h"

enum { MOST_FILES = 64 };

struct hr_packed {
  hr_source_entry *part;
  uint32_t *by_name;
  size_t count;
  hr_weights weights;
  const char **file_name; /* files within it, of a safetensors model */
  size_t *name_length;
  const char **file;
  size_t *file_bytes;
  size_t file_count;
};

/* --- Names and numbers --------------------------------------------------------- */

/* "HR" and a number that stays the type's own. */
#define PANEL_TYPES_FROM ((uint32_t)0x48520000)

static const struct {
  uint32_t number;
  const char *name;
} panel_types[HR_PANEL_TYPES] = {
    [HR_PANEL_F32] = {PANEL_TYPES_FROM + 1, "F32"},
    [HR_PANEL_F16] = {PANEL_TYPES_FROM + 2, "F16"},
    [HR_PANEL_BF16] = {PANEL_TYPES_FROM + 3, "BF16"},
    [HR_PANEL_Q8] = {PANEL_TYPES_FROM + 4, "Q8_0"},
};

const char *const hr_weights_names[HR_WEIGHTS_NAMES] = {
    [HR_WEIGHTS_NATIVE] = "native",
    [HR_WEIGHTS_F32] = "f32",
    [HR_WEIGHTS_F16] = "f16",
    [HR_WEIGHTS_Q8_0] = "q8_0",
};

const char *hr_panel_name(hr_panel_type type) {
  return panel_types[type].name;
}

uint32_t hr_panel_gguf_type(hr_panel_type type) {
  return panel_types[type].number;
}

bool hr_panel_from_gguf(uint32_t number, hr_panel_type *type) {
  for (int i = 0; i < HR_PANEL_TYPES; i++) {
    if (panel_types[i].number != number) continue;
    *type = (hr_panel_type)i;
    return true;
  }
  return false;
}

void hr_part_name(char name[HR_PART_NAME_BYTES], const hr_load_item *item) {
  const hr_outputs *o = &item->outputs;
  const char *tensor = item->tensor->name;
  if (o->run)
    snprintf(name, HR_PART_NAME_BYTES, "%s[%zu:%zu:%zu/%zu]", tensor, o->first, o->count, o->run,
             o->step);
  else if (o->count == o->total)
    snprintf(name, HR_PART_NAME_BYTES, "%s", tensor);
  else
    snprintf(name, HR_PART_NAME_BYTES, "%s[%zu:%zu]", tensor, o->first, o->count);
}

/* --- Parts --------------------------------------------------------------------- */

bool hr_source_is_packed(const hr_source *source) {
  return source->packed != NULL;
}

hr_weights hr_packed_weights(const hr_source *source) {
  return source->packed ? source->packed->weights : HR_WEIGHTS_NATIVE;
}

bool hr_packed_find(const hr_source *source, const char *name, hr_packed_part *part) {
  const hr_packed *p = source->packed;
  const hr_source_entry *e =
      p ? hr_source_search(p->part, p->by_name, p->count, name) : NULL;
  if (!e) return false;
  *part = (hr_packed_part){.panels = e->is_panels, .type = e->panels, .bytes = e->tensor.bytes,
                           .data = e->tensor.data, .rows = 1};
  if (e->is_panels) part->rows = e->tensor.dim[0];
  part->columns = e->tensor.dim[e->tensor.dims - 1];
  return true;
}

void hr_packed_free(hr_packed *packed) {
  if (!packed) return;
  hr_free(packed->part);
  hr_free(packed->by_name);
  hr_free(packed->file_name);
  hr_free(packed->name_length);
  hr_free(packed->file);
  hr_free(packed->file_bytes);
  hr_free(packed);
}

static hr_status check_part(const hr_source *source, const hr_source_entry *e, hr_error *err) {
  const char *path = source->files[e->file].path;
  const hr_tensor *t = &e->tensor;
  bool row = !e->refused && t->format == HR_FORMAT_F32 && t->dims == 1;
  if (!e->is_panels && !row)
    return hr_fail(err, HR_ERROR_FILE,
                   "%s: the packed tensor '%s' holds neither panels nor a row of F32, expected one "
                   "of them",
                   path, HR_QUOTE(t->name, strlen(t->name)));
  if ((uintptr_t)t->data % HR_PART_ALIGNMENT == 0) return HR_OK;
  return hr_fail(err, HR_ERROR_FILE,
                 "%s: the packed tensor '%s' begins at no multiple of %zu bytes, expected one in "
                 "the file and in memory",
                 path, HR_QUOTE(t->name, strlen(t->name)), HR_PART_ALIGNMENT);
}

/* The source's entries become the parts. */
static hr_status take_parts(hr_source *source, hr_packed *p, hr_error *err) {
  p->part = source->entries;
  p->by_name = source->by_name;
  p->count = source->entry_count;
  hr_free(source->readable);
  source->entries = NULL;
  source->by_name = source->readable = NULL;
  source->entry_count = source->entry_capacity = source->readable_count = 0;
  for (size_t i = 0; i < p->count; i++) HR_TRY(check_part(source, &p->part[i], err));
  return HR_OK;
}

/* --- The tensors that were packed ------------------------------------------------ */

typedef struct description {
  const char **name;
  size_t *length;
  int64_t *type, *dim;
} description;

/* The shape is what plans and counts are made from: it must be one that a file can hold. */
static hr_status add_tensor(hr_source *source, const description *d, size_t index,
                            hr_error *err) {
  hr_source_entry entry = {0};
  hr_tensor *t = &entry.tensor;
  const char *text = d->name[index];
  size_t length = d->length[index], elements = 1;
  const int64_t *dim = d->dim + index * HR_TENSOR_DIMS;
  bool good = length > 0 && length <= 255 && !memchr(text, 0, length) && dim[0] > 0;
  for (; good && t->dims < HR_TENSOR_DIMS && dim[t->dims]; t->dims++) {
    good = dim[t->dims] > 0 && (uint64_t)dim[t->dims] <= SIZE_MAX &&
           hr_mul_size(elements, (size_t)dim[t->dims], &elements);
    t->dim[t->dims] = (size_t)dim[t->dims];
  }
  good = good && d->type[index] >= 0 && d->type[index] <= UINT32_MAX &&
         hr_format_from_gguf((uint32_t)d->type[index], &t->format, NULL) &&
         hr_format_bytes(t->format, t->dim[t->dims - 1], &t->bytes) &&
         hr_format_bytes(t->format, elements, &t->bytes);
  if (!good)
    return hr_fail(err, HR_ERROR_FILE,
                   "%s: the description of tensor %zu, '%s', that was packed is damaged",
                   source->path, index, HR_QUOTE(text, length));
  t->name = hr_source_keep_name(source, text, length, err);
  return t->name ? hr_source_add_entry(source, &entry, err) : HR_ERROR_MEMORY;
}

static hr_status read_arrays(const hr_source *source, const description *d, size_t count,
                             hr_error *err) {
  if (!d->name || !d->length || !d->type || !d->dim)
    return hr_fail_memory(err, source->path, count * (sizeof *d->name + sizeof *d->type));
  HR_TRY(hr_source_array_strings(source, HR_PACKED_NAMES, d->name, d->length, count, err));
  HR_TRY(hr_source_array_i64(source, HR_PACKED_TYPES, d->type, count, err));
  return hr_source_array_i64(source, HR_PACKED_SHAPES, d->dim, count * HR_TENSOR_DIMS, err);
}

static hr_status add_tensors(hr_source *source, hr_error *err) {
  size_t count = 0;
  bool found;
  HR_TRY(hr_source_array_length(source, HR_PACKED_NAMES, &count, &found, err));
  if (count > HR_SOURCE_MAX_TENSORS)
    return hr_fail(err, HR_ERROR_FILE, "%s: was packed from %zu tensors, expected at most %zu",
                   source->path, count, HR_SOURCE_MAX_TENSORS);
  description d = {.name = hr_calloc(count, sizeof *d.name),
                   .length = hr_calloc(count, sizeof *d.length),
                   .type = hr_calloc(count, sizeof *d.type),
                   .dim = hr_calloc(count, HR_TENSOR_DIMS * sizeof *d.dim)};
  hr_status status = read_arrays(source, &d, count, err);
  for (size_t i = 0; status == HR_OK && i < count; i++)
    status = add_tensor(source, &d, i, err);
  hr_free(d.name);
  hr_free(d.length);
  hr_free(d.type);
  hr_free(d.dim);
  return status == HR_OK ? hr_source_index_entries(source, err) : status;
}

/* --- Values -------------------------------------------------------------------- */

static hr_status need_text(const hr_source *source, const char *key, const char **text,
                           size_t *length, hr_error *err) {
  bool found;
  HR_TRY(hr_source_string(source, key, text, length, &found, err));
  if (found) return HR_OK;
  return hr_fail(err, HR_ERROR_FILE, "%s: key '%s' is missing, expected it in a packed file",
                 source->path, key);
}

static hr_status read_weights(const hr_source *source, hr_packed *p, hr_error *err) {
  const char *text;
  size_t length;
  HR_TRY(need_text(source, HR_PACKED_WEIGHTS, &text, &length, err));
  for (int i = 0; i < HR_WEIGHTS_NAMES; i++) {
    if (strlen(hr_weights_names[i]) != length || memcmp(hr_weights_names[i], text, length) != 0)
      continue;
    p->weights = (hr_weights)i;
    return HR_OK;
  }
  return hr_fail(err, HR_ERROR_FILE,
                 "%s: is packed with weights '%s', expected native, f32, f16 or "
                 "q8_0",
                 source->path, HR_QUOTE(text, length));
}

bool hr_packed_companion(const hr_source *source, const char *name, hr_file_map *map) {
  const hr_packed *p = source->packed;
  for (size_t i = 0; p && i < p->file_count; i++) {
    if (p->name_length[i] != strlen(name) || memcmp(p->file_name[i], name, strlen(name)) != 0)
      continue;
    *map = (hr_file_map){.data = (const unsigned char *)p->file[i], .bytes = p->file_bytes[i]};
    return true;
  }
  return false;
}

/* A safetensors model brings the files beside it along; its config.json is read
 * in place of the keys. */
static hr_status read_files(hr_source *source, hr_packed *p, hr_error *err) {
  size_t count;
  bool found;
  hr_file_map config;
  HR_TRY(hr_source_array_length(source, HR_PACKED_FILE_NAMES, &count, &found, err));
  if (!found) return HR_OK;
  if (count > MOST_FILES)
    return hr_fail(err, HR_ERROR_FILE, "%s: has %zu files within it, expected at most %d",
                   source->path, count, MOST_FILES);
  p->file_name = hr_calloc(count, sizeof *p->file_name);
  p->name_length = hr_calloc(count, sizeof *p->name_length);
  p->file = hr_calloc(count, sizeof *p->file);
  p->file_bytes = hr_calloc(count, sizeof *p->file_bytes);
  if (!p->file_name || !p->name_length || !p->file || !p->file_bytes)
    return hr_fail_memory(err, source->path, count * sizeof *p->file);
  HR_TRY(hr_source_array_strings(source, HR_PACKED_FILE_NAMES, p->file_name, p->name_length, count,
                                 err));
  HR_TRY(hr_source_array_strings(source, HR_PACKED_FILES, p->file, p->file_bytes, count, err));
  p->file_count = count;
  if (hr_packed_companion(source, "config.json", &config))
    return hr_safetensors_read_packed(source, err);
  return hr_fail(err, HR_ERROR_FILE,
                 "%s: holds no config.json, expected one of a safetensors model", source->path);
}

static hr_status check_layout(const hr_source *source, bool *packed, hr_error *err) {
  uint64_t layout = 0;
  HR_TRY(hr_source_u64(source, HR_PACKED_LAYOUT, &layout, packed, err));
  if (!*packed || layout == HR_PANEL_LAYOUT) return HR_OK;
  return hr_fail(
      err, HR_ERROR_FILE,
      "%s: is packed in layout %llu, expected layout %d; pack its source again with this "
      "version",
      source->path, (unsigned long long)layout, HR_PANEL_LAYOUT);
}

hr_status hr_packed_read(hr_source *source, hr_error *err) {
  bool packed;
  HR_TRY(check_layout(source, &packed, err));
  if (!packed) return HR_OK;
  source->packed = hr_calloc(1, sizeof *source->packed);
  if (!source->packed) return hr_fail_memory(err, source->path, sizeof *source->packed);
  HR_TRY(take_parts(source, source->packed, err));
  HR_TRY(read_weights(source, source->packed, err));
  HR_TRY(add_tensors(source, err));
  return read_files(source, source->packed, err);
}
