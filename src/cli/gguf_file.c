/* SPDX-License-Identifier: MIT
 * The form is told in src/model/gguf.c. */
#include "gguf_file.h"

#include <errno.h>
#include <string.h>

#include "base/text.h"
#include "bytes.h"
#include "model/source_internal.h"

enum { TYPE_U32 = 4, ALIGNMENT = 32, QUANTIZATION_VERSION = 2 };

static size_t alignment_of(const hr_source *source) {
  uint64_t alignment = ALIGNMENT;
  bool found;
  hr_error err;
  if (hr_source_u64(source, "general.alignment", &alignment, &found, &err) != HR_OK || !found)
    return ALIGNMENT;
  return (size_t)alignment; /* was checked when the file was opened */
}

static size_t padding(size_t bytes, size_t alignment) {
  return (alignment - bytes % alignment) % alignment;
}

static bool put_u32(cli_bytes *to, uint32_t x) {
  return cli_bytes_add(to, (const char *)&x, sizeof x);
}

static bool put_u64(cli_bytes *to, uint64_t x) {
  return cli_bytes_add(to, (const char *)&x, sizeof x);
}

static bool put_string(cli_bytes *to, const char *text) {
  return put_u64(to, strlen(text)) && cli_bytes_add(to, text, strlen(text));
}

/* --- Values -------------------------------------------------------------------- */

/* Said anew, or true of a file in parts only. */
static bool is_replaced(const char *key) {
  return strcmp(key, "general.file_type") == 0 ||
         strcmp(key, "general.quantization_version") == 0 || hr_starts_with(key, "split.");
}

/* What llama.cpp calls a file by the type that most of its weights have. */
static uint32_t file_type(const hr_source *source, const hr_format *format) {
  static const uint32_t numbers[HR_FORMAT_COUNT] = {
      [HR_FORMAT_F32] = 0,  [HR_FORMAT_F16] = 1,  [HR_FORMAT_BF16] = 32, [HR_FORMAT_Q8_0] = 7,
      [HR_FORMAT_Q4_0] = 2, [HR_FORMAT_Q4_1] = 3, [HR_FORMAT_Q5_0] = 8,  [HR_FORMAT_Q5_1] = 9,
      [HR_FORMAT_Q2_K] = 10, [HR_FORMAT_Q3_K] = 12, [HR_FORMAT_Q4_K] = 15,
      [HR_FORMAT_Q5_K] = 17, [HR_FORMAT_Q6_K] = 18, [HR_FORMAT_IQ4_NL] = 25};
  size_t elements[HR_FORMAT_COUNT] = {0}, most = 0;
  for (size_t i = 0; i < hr_source_tensor_count(source); i++) {
    const hr_tensor *t = hr_source_tensor_at(source, i);
    size_t count = 1;
    for (unsigned d = 0; d < t->dims; d++) count *= t->dim[d];
    elements[format[i]] += count;
  }
  for (size_t f = 1; f < HR_FORMAT_COUNT; f++)
    if (elements[f] > elements[most]) most = f;
  return numbers[most];
}

static bool any_blocks(const hr_source *source, const hr_format *format) {
  for (size_t i = 0; i < hr_source_tensor_count(source); i++)
    if (hr_format_get(format[i])->block_elements > 1) return true;
  return false;
}

typedef struct copying {
  cli_bytes *to;
  size_t kept;
  bool failed;
} copying;

static void count_value(void *arg, const char *key, const void *data, size_t bytes) {
  copying *c = arg;
  (void)data, (void)bytes;
  c->kept += !is_replaced(key);
}

/* data: the key, its type and the value, as they stand in the file. */
static void copy_value(void *arg, const char *key, const void *data, size_t bytes) {
  copying *c = arg;
  if (!is_replaced(key) && !cli_bytes_add(c->to, data, bytes)) c->failed = true;
}

static bool put_values(cli_bytes *to, const hr_source *source, const hr_format *format) {
  copying c = {.to = to};
  bool blocks = any_blocks(source, format);
  hr_gguf_visit_raw(source, count_value, &c);
  bool good = put_u64(to, c.kept + 1 + blocks);
  hr_gguf_visit_raw(source, copy_value, &c);
  good = good && !c.failed && put_string(to, "general.file_type") && put_u32(to, TYPE_U32) &&
         put_u32(to, file_type(source, format));
  if (blocks)
    good = good && put_string(to, "general.quantization_version") && put_u32(to, TYPE_U32) &&
           put_u32(to, QUANTIZATION_VERSION);
  return good;
}

/* --- Tensors ------------------------------------------------------------------- */

static bool put_tensors(cli_bytes *to, const hr_source *source, const hr_format *format,
                        size_t alignment) {
  size_t offset = 0;
  bool good = true;
  for (size_t i = 0; good && i < hr_source_tensor_count(source); i++) {
    const hr_tensor *t = hr_source_tensor_at(source, i);
    size_t count = 1, bytes = 0;
    good = put_string(to, t->name) && put_u32(to, t->dims);
    for (unsigned d = t->dims; good && d-- > 0;) {
      good = put_u64(to, t->dim[d]);
      count *= t->dim[d];
    }
    good = good && put_u32(to, hr_format_get(format[i])->gguf_type) && put_u64(to, offset) &&
           hr_format_bytes(format[i], count, &bytes);
    offset += bytes + padding(bytes, alignment);
  }
  return good;
}

static bool put_zeros(cli_save *save, size_t count) {
  static const char zeros[64];
  bool good = true;
  for (size_t n; count && good; count -= n) {
    n = count < sizeof zeros ? count : sizeof zeros;
    good = cli_save_write(save, zeros, n);
  }
  return good;
}

bool cli_gguf_begin(cli_save *save, const hr_source *source, const hr_format *format) {
  size_t alignment = alignment_of(source);
  cli_bytes head = {0};
  bool good = cli_bytes_add(&head, "GGUF", 4) && put_u32(&head, 3) &&
              put_u64(&head, hr_source_tensor_count(source)) &&
              put_values(&head, source, format) && put_tensors(&head, source, format, alignment);
  if (!good) save->error = ENOMEM;
  if (good) cli_save_write(save, head.data, head.used);
  put_zeros(save, padding(head.used, alignment));
  cli_bytes_free(&head);
  return !save->error;
}

bool cli_gguf_put(cli_save *save, const hr_source *source, const void *data, size_t bytes) {
  return cli_save_write(save, data, bytes) && put_zeros(save, padding(bytes, alignment_of(source)));
}
