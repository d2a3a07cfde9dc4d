/* SPDX-License-Identifier: MIT
 * Small GGUF files in memory, good ones and bad ones, for tests. Runs out of
 * memory by abort(). */
#ifndef HR_TESTS_GGUF_WRITER_H
#define HR_TESTS_GGUF_WRITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* As the file numbers them. */
enum {
  GGUF_U8, GGUF_I8, GGUF_U16, GGUF_I16, GGUF_U32, GGUF_I32, GGUF_F32, GGUF_BOOL,
  GGUF_STRING, GGUF_ARRAY, GGUF_U64, GGUF_I64, GGUF_F64
};
enum { GGUF_TENSOR_F32 = 0, GGUF_TENSOR_F16 = 1, GGUF_TENSOR_Q8_0 = 8, GGUF_TENSOR_BF16 = 30 };

typedef struct gguf_buffer {
  unsigned char *data;
  size_t size, capacity;
} gguf_buffer;

void gguf_append(gguf_buffer *buffer, const void *data, size_t size);
void gguf_append_u32(gguf_buffer *buffer, uint32_t value);
void gguf_append_u64(gguf_buffer *buffer, uint64_t value);
/* A length and the bytes. */
void gguf_append_string(gguf_buffer *buffer, const char *text, size_t length);

typedef struct gguf_writer {
  gguf_buffer values, tensors, data;
  uint64_t value_count, tensor_count; /* may be set to a lie before gguf_writer_finish */
  uint32_t version;
  uint32_t alignment; /* where tensors are put; the key is written by the test that wants it */
} gguf_writer;

/* Version 3, alignment 32, empty. */
void gguf_writer_init(gguf_writer *w);

void gguf_put_u32(gguf_writer *w, const char *key, uint32_t value);
void gguf_put_u64(gguf_writer *w, const char *key, uint64_t value);
void gguf_put_i32(gguf_writer *w, const char *key, int32_t value);
void gguf_put_f32(gguf_writer *w, const char *key, float value);
void gguf_put_bool(gguf_writer *w, const char *key, bool value);
void gguf_put_string(gguf_writer *w, const char *key, const char *text);
/* count elements of a type of fixed width, taken from data as they are. */
void gguf_put_array(gguf_writer *w, const char *key, uint32_t type, const void *data, size_t count);
void gguf_put_strings(gguf_writer *w, const char *key, const char *const *text, size_t count);
/* A value of any type whose bytes are given. */
void gguf_put_raw(gguf_writer *w, const char *key, uint32_t type, const void *data, size_t size);

/* Dimensions in the file's order, innermost first; the data follows the last tensor's, aligned. */
void gguf_put_tensor(gguf_writer *w, const char *name, uint32_t type, uint32_t dims,
                     const uint64_t *dim, const void *data, size_t bytes);
/* Only the description, with any numbers. */
void gguf_put_tensor_info(gguf_writer *w, const char *name, uint32_t type, uint32_t dims,
                          const uint64_t *dim, uint64_t offset);

/* The file, to be freed with free(). Nothing is behind the last tensor's data,
 * and nothing behind the descriptions when there are no tensors. The writer is
 * empty afterwards. */
unsigned char *gguf_writer_finish(gguf_writer *w, size_t *size);

#endif
