/* SPDX-License-Identifier: MIT
 * Writing packed files. */
#include <string.h>

#include "base/text.h"
#include "model/load_internal.h"
#include "model/packed.h"
#include "model/packed_internal.h"
#include "model/source_internal.h"

/* As GGUF numbers them. */
enum { TYPE_U32 = 4, TYPE_STRING = 8, TYPE_ARRAY = 9, TYPE_U64 = 10 };

/* Bytes as they will stand in the file; once memory is out, nothing is added. */
typedef struct buffer {
  unsigned char *data;
  size_t used, capacity;
  bool no_memory;
} buffer;

static void put(buffer *b, const void *data, size_t bytes) {
  if (b->capacity - b->used < bytes && !b->no_memory) {
    size_t capacity;
    unsigned char *grown = NULL;
    if (hr_add_size(b->used, bytes, &capacity) && hr_mul_size(capacity, 2, &capacity))
      grown = hr_realloc(b->data, capacity, 1);
    b->no_memory = !grown;
    if (grown) {
      b->data = grown;
      b->capacity = capacity;
    }
  }
  if (b->no_memory) return;
  if (bytes) memcpy(b->data + b->used, data, bytes);
  b->used += bytes;
}

static void put_u32(buffer *b, uint32_t n) {
  put(b, &n, sizeof n);
}

static void put_u64(buffer *b, uint64_t n) {
  put(b, &n, sizeof n);
}

static void put_text(buffer *b, const char *text, size_t length) {
  put_u64(b, length);
  put(b, text, length);
}

/* --- Values -------------------------------------------------------------------- */

typedef struct values {
  buffer bytes;
  uint64_t count;
} values;

static buffer *begin_value(values *v, const char *key, uint32_t type) {
  put_text(&v->bytes, key, strlen(key));
  put_u32(&v->bytes, type);
  v->count++;
  return &v->bytes;
}

static void begin_array(values *v, const char *key, uint32_t type, size_t count) {
  buffer *b = begin_value(v, key, TYPE_ARRAY);
  put_u32(b, type);
  put_u64(b, count);
}

/* What says how the source's own file is made is not true of this one. */
static void copy_value(void *arg, const char *key, const void *bytes, size_t count) {
  values *v = arg;
  if (strcmp(key, "general.alignment") == 0 || hr_starts_with(key, "split.") ||
      hr_starts_with(key, HR_PACKED_PREFIX))
    return;
  put(&v->bytes, bytes, count);
  v->count++;
}

static void put_tensors(values *v, const hr_source *source) {
  size_t count = hr_source_tensor_count(source);
  begin_array(v, HR_PACKED_NAMES, TYPE_STRING, count);
  for (size_t i = 0; i < count; i++) {
    const char *name = hr_source_tensor_at(source, i)->name;
    put_text(&v->bytes, name, strlen(name));
  }
  begin_array(v, HR_PACKED_TYPES, TYPE_U32, count);
  for (size_t i = 0; i < count; i++)
    put_u32(&v->bytes, hr_format_get(hr_source_tensor_at(source, i)->format)->gguf_type);
  begin_array(v, HR_PACKED_SHAPES, TYPE_U64, count * HR_TENSOR_DIMS);
  for (size_t i = 0; i < count; i++) {
    const hr_tensor *t = hr_source_tensor_at(source, i);
    for (unsigned j = 0; j < HR_TENSOR_DIMS; j++) put_u64(&v->bytes, j < t->dims ? t->dim[j] : 0);
  }
}

/* What may lie beside a safetensors model and is read with it. */
static const char *const companions[] = {
    "config.json",           "1_Pooling/config.json",   "tokenizer.json",
    "tokenizer.model",       "tokenizer_config.json",   "special_tokens_map.json",
    "generation_config.json", "chat_template.jinja",   "sentence_bert_config.json",
    "config_sentence_transformers.json",
};
enum { COMPANIONS = sizeof companions / sizeof *companions };

static void put_maps(values *v, const hr_file_map maps[COMPANIONS], const bool found[COMPANIONS]) {
  size_t count = 0;
  for (size_t i = 0; i < COMPANIONS; i++) count += found[i];
  begin_array(v, HR_PACKED_FILE_NAMES, TYPE_STRING, count);
  for (size_t i = 0; i < COMPANIONS; i++)
    if (found[i]) put_text(&v->bytes, companions[i], strlen(companions[i]));
  begin_array(v, HR_PACKED_FILES, TYPE_STRING, count);
  for (size_t i = 0; i < COMPANIONS; i++)
    if (found[i]) put_text(&v->bytes, (const char *)maps[i].data, maps[i].bytes);
}

static hr_status put_files(values *v, const hr_source *source, hr_error *err) {
  hr_file_map maps[COMPANIONS] = {0};
  bool found[COMPANIONS] = {false};
  hr_status status = HR_OK;
  for (size_t i = 0; i < COMPANIONS && status == HR_OK; i++)
    status = hr_source_open_beside(source, companions[i], &maps[i], &found[i], err);
  if (status == HR_OK) put_maps(v, maps, found);
  for (size_t i = 0; i < COMPANIONS; i++) hr_file_map_close(&maps[i]);
  return status;
}

static hr_status put_values(values *v, const hr_source *source, hr_weights weights,
                            hr_error *err) {
  put_u32(begin_value(v, "general.alignment", TYPE_U32), (uint32_t)HR_PART_ALIGNMENT);
  put_u32(begin_value(v, HR_PACKED_LAYOUT, TYPE_U32), HR_PANEL_LAYOUT);
  const char *name = hr_weights_names[weights];
  put_text(begin_value(v, HR_PACKED_WEIGHTS, TYPE_STRING), name, strlen(name));
  if (hr_source_get_kind(source) == HR_SOURCE_GGUF) {
    hr_gguf_visit_raw(source, copy_value, v);
  } else {
    hr_status status = put_files(v, source, err);
    if (status != HR_OK) return status;
  }
  put_tensors(v, source);
  return HR_OK;
}

enum { TENSOR_COUNT_AT = 8 }; /* after magic and version */

/* --- The header ------------------------------------------------------------------ */

/* Offsets count from the end of the header, the items' from the start of the
 * section of weights, which is `gap` bytes further on. */
static void put_item(buffer *b, const hr_load_item *it, uint64_t gap) {
  char name[HR_PART_NAME_BYTES];
  hr_part_name(name, it);
  put_text(b, name, strlen(name));
  put_u32(b, it->matrix ? 2 : 1);
  put_u64(b, it->matrix ? it->matrix->k : it->count);
  if (it->matrix) put_u64(b, it->matrix->n);
  put_u32(b, it->matrix ? hr_panel_gguf_type(it->matrix->type)
                        : hr_format_get(HR_FORMAT_F32)->gguf_type);
  put_u64(b, gap + it->offset);
}

/* Two norms may be one tensor of the source. */
static bool is_listed(const hr_loaded *planned, size_t index) {
  const hr_load_item *it = &planned->items[index];
  for (size_t i = 0; i < index; i++) {
    const hr_load_item *other = &planned->items[i];
    if (other->tensor == it->tensor && !other->matrix == !it->matrix &&
        other->plus_one == it->plus_one && other->outputs.first == it->outputs.first &&
        other->outputs.count == it->outputs.count)
      return true;
  }
  return false;
}

/* Numbers that come from a value of the source follow from it again. */
static uint64_t put_items(buffer *b, const hr_loaded *planned, uint64_t gap) {
  uint64_t count = 0;
  for (size_t i = 0; i < planned->item_count; i++) {
    if (!planned->items[i].tensor || is_listed(planned, i)) continue;
    put_item(b, &planned->items[i], gap);
    count++;
  }
  return count;
}

static void put_header(buffer *b, const values *v, const hr_loaded *planned) {
  put(b, "GGUF", 4);
  put_u32(b, 3);
  put_u64(b, 0); /* tensors, known below */
  put_u64(b, v->count);
  put(b, v->bytes.data, v->bytes.used);
  size_t start = b->used;
  uint64_t count = put_items(b, planned, 0); /* once for the length */
  size_t end = hr_round_up(b->used, HR_PART_ALIGNMENT);
  size_t section = hr_round_up(end, HR_SECTION_ALIGNMENT);
  if (b->no_memory) return;
  memcpy(b->data + TENSOR_COUNT_AT, &count, sizeof count);
  b->used = start;
  put_items(b, planned, section - end);
  static const unsigned char zeros[4096];
  while (b->used < section && !b->no_memory) {
    size_t left = section - b->used;
    put(b, zeros, left < sizeof zeros ? left : sizeof zeros);
  }
}

hr_status hr_packed_file_init(hr_packed_file *file, const hr_source *source, hr_weights weights,
                              const hr_loaded *planned, hr_error *err) {
  *file = (hr_packed_file){0};
  if (hr_source_is_packed(source))
    return hr_fail(err, HR_ERROR_FILE, "%s: is packed already, expected a model that is not",
                   hr_source_path(source));
  values v = {0};
  buffer b = {0};
  hr_status status = put_values(&v, source, weights, err);
  b.no_memory = v.bytes.no_memory;
  if (status == HR_OK) put_header(&b, &v, planned);
  hr_free(v.bytes.data);
  file->header = b.data;
  file->header_bytes = b.used;
  if (status != HR_OK) return status;
  if (b.no_memory || !hr_add_size(b.used, planned->weight_bytes, &file->bytes))
    return hr_fail_memory(err, "header of the packed file", b.used);
  return HR_OK;
}

/* --- The weights ----------------------------------------------------------------- */

static size_t largest(const hr_loaded *planned) {
  size_t most = 0;
  for (size_t i = 0; i < planned->item_count; i++)
    if (planned->items[i].bytes > most) most = planned->items[i].bytes;
  return hr_round_up(most, HR_PART_ALIGNMENT);
}

static hr_status write_items(const hr_source *source, const hr_loaded *planned, char *block,
                             const hr_kernels *kernels, const hr_load_options *options,
                             hr_sink_fn *sink, void *arg, hr_error *err) {
  for (size_t i = 0; i < planned->item_count; i++) {
    size_t bytes = planned->items[i].bytes, padded = hr_round_up(bytes, HR_PART_ALIGNMENT);
    hr_status status = hr_load_items(source, planned, i, 1, block, kernels, options, err);
    if (status != HR_OK) return status;
    memset(block + bytes, 0, padded - bytes);
    if (!sink(arg, block, padded))
      return hr_fail(err, HR_ERROR_CANCELLED, "%s: packing was cancelled", hr_source_path(source));
  }
  return HR_OK;
}

hr_status hr_packed_file_write(const hr_packed_file *file, const hr_source *source,
                               const hr_loaded *planned, const hr_kernels *kernels,
                               const hr_load_options *options, hr_sink_fn *sink, void *arg,
                               hr_error *err) {
  size_t bytes = largest(planned);
  char *block = hr_alloc_pages(bytes);
  if (!block) return hr_fail_memory(err, "the largest matrix", bytes);
  hr_status status = HR_OK;
  if (!sink(arg, file->header, file->header_bytes))
    status = hr_fail(err, HR_ERROR_CANCELLED, "%s: packing was cancelled", hr_source_path(source));
  if (status == HR_OK)
    status = write_items(source, planned, block, kernels, options, sink, arg, err);
  hr_free_pages(block, bytes);
  return status;
}

void hr_packed_file_finish(hr_packed_file *file) {
  hr_free(file->header);
  *file = (hr_packed_file){0};
}
