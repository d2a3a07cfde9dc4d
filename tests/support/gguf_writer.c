/* SPDX-License-Identifier: MIT */
#include "tests/support/gguf_writer.h"

#include <stdlib.h>
#include <string.h>

static void make_room(gguf_buffer *buffer, size_t size) {
  if (buffer->capacity - buffer->size >= size) return;
  buffer->capacity = (buffer->size + size) * 2;
  buffer->data = realloc(buffer->data, buffer->capacity);
  if (!buffer->data) abort();
}

void gguf_append(gguf_buffer *buffer, const void *data, size_t size) {
  make_room(buffer, size);
  if (size) memcpy(buffer->data + buffer->size, data, size);
  buffer->size += size;
}

void gguf_append_u32(gguf_buffer *buffer, uint32_t value) {
  gguf_append(buffer, &value, sizeof value);
}

void gguf_append_u64(gguf_buffer *buffer, uint64_t value) {
  gguf_append(buffer, &value, sizeof value);
}

void gguf_append_string(gguf_buffer *buffer, const char *text, size_t length) {
  gguf_append_u64(buffer, length);
  gguf_append(buffer, text, length);
}

static void align(gguf_buffer *buffer, size_t alignment) {
  while (alignment && buffer->size % alignment) gguf_append(buffer, "", 1);
}

void gguf_writer_init(gguf_writer *w) {
  *w = (gguf_writer){.version = 3, .alignment = 32};
}

void gguf_put_raw(gguf_writer *w, const char *key, uint32_t type, const void *data, size_t size) {
  gguf_append_string(&w->values, key, strlen(key));
  gguf_append_u32(&w->values, type);
  gguf_append(&w->values, data, size);
  w->value_count++;
}

void gguf_put_u32(gguf_writer *w, const char *key, uint32_t value) {
  gguf_put_raw(w, key, GGUF_U32, &value, sizeof value);
}

void gguf_put_u64(gguf_writer *w, const char *key, uint64_t value) {
  gguf_put_raw(w, key, GGUF_U64, &value, sizeof value);
}

void gguf_put_i32(gguf_writer *w, const char *key, int32_t value) {
  gguf_put_raw(w, key, GGUF_I32, &value, sizeof value);
}

void gguf_put_f32(gguf_writer *w, const char *key, float value) {
  gguf_put_raw(w, key, GGUF_F32, &value, sizeof value);
}

void gguf_put_bool(gguf_writer *w, const char *key, bool value) {
  gguf_put_raw(w, key, GGUF_BOOL, value ? "\1" : "\0", 1);
}

void gguf_put_string(gguf_writer *w, const char *key, const char *text) {
  gguf_put_raw(w, key, GGUF_STRING, NULL, 0);
  gguf_append_string(&w->values, text, strlen(text));
}

static size_t width_of(uint32_t type) {
  switch (type) {
    case GGUF_U8:
    case GGUF_I8:
    case GGUF_BOOL: return 1;
    case GGUF_U16:
    case GGUF_I16: return 2;
    case GGUF_U32:
    case GGUF_I32:
    case GGUF_F32: return 4;
    case GGUF_U64:
    case GGUF_I64:
    case GGUF_F64: return 8;
    default: abort();
  }
}

void gguf_put_array(gguf_writer *w, const char *key, uint32_t type, const void *data,
                    size_t count) {
  gguf_put_raw(w, key, GGUF_ARRAY, NULL, 0);
  gguf_append_u32(&w->values, type);
  gguf_append_u64(&w->values, count);
  gguf_append(&w->values, data, count * width_of(type));
}

void gguf_put_strings(gguf_writer *w, const char *key, const char *const *text, size_t count) {
  gguf_put_raw(w, key, GGUF_ARRAY, NULL, 0);
  gguf_append_u32(&w->values, GGUF_STRING);
  gguf_append_u64(&w->values, count);
  for (size_t i = 0; i < count; i++) gguf_append_string(&w->values, text[i], strlen(text[i]));
}

void gguf_put_tensor_info(gguf_writer *w, const char *name, uint32_t type, uint32_t dims,
                          const uint64_t *dim, uint64_t offset) {
  gguf_append_string(&w->tensors, name, strlen(name));
  gguf_append_u32(&w->tensors, dims);
  for (uint32_t i = 0; i < dims; i++) gguf_append_u64(&w->tensors, dim[i]);
  gguf_append_u32(&w->tensors, type);
  gguf_append_u64(&w->tensors, offset);
  w->tensor_count++;
}

void gguf_put_tensor(gguf_writer *w, const char *name, uint32_t type, uint32_t dims,
                     const uint64_t *dim, const void *data, size_t bytes) {
  align(&w->data, w->alignment);
  gguf_put_tensor_info(w, name, type, dims, dim, w->data.size);
  gguf_append(&w->data, data, bytes);
}

unsigned char *gguf_writer_finish(gguf_writer *w, size_t *size) {
  gguf_buffer file = {0};
  gguf_append(&file, "GGUF", 4);
  gguf_append_u32(&file, w->version);
  gguf_append_u64(&file, w->tensor_count);
  gguf_append_u64(&file, w->value_count);
  gguf_append(&file, w->values.data, w->values.size);
  gguf_append(&file, w->tensors.data, w->tensors.size);
  if (w->data.size) align(&file, w->alignment);
  gguf_append(&file, w->data.data, w->data.size);
  free(w->values.data);
  free(w->tensors.data);
  free(w->data.data);
  gguf_writer_init(w);
  /* exactly as long as the file, so that a checker of memory sees a read behind it */
  unsigned char *exact = malloc(file.size);
  if (!exact) abort();
  memcpy(exact, file.data, file.size);
  free(file.data);
  *size = file.size;
  return exact;
}
