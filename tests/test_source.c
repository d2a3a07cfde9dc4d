/* SPDX-License-Identifier: MIT
 * Files in: what is read from good ones, and what is said of bad ones. */
#include "base/memory.h"
#include "model/source.h"
#include "model/vocab.h"
#include "tests/support/gguf_writer.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#if defined __SANITIZE_ADDRESS__
#define LEAK_CHECK 1
#elif defined __has_feature
#if __has_feature(address_sanitizer)
#define LEAK_CHECK 1
#endif
#endif
#ifdef LEAK_CHECK
#include <sanitizer/lsan_interface.h>
#define CHECK_LEAKS() cr_assert(__lsan_do_recoverable_leak_check() == 0)
#else
#define CHECK_LEAKS() ((void)0)
#endif

/* --- Helpers --------------------------------------------------------------- */

/* An exact copy in memory of its own, so that reads behind it are seen. */
static unsigned char *copy_of(const void *data, size_t size) {
  unsigned char *copy = malloc(size ? size : 1);
  cr_assert(copy);
  if (size) memcpy(copy, data, size);
  return copy;
}

/* Opening fails with a sentence that starts with the name and holds every part. */
static void expect_error(const hr_error *err, const char *name, const char *part) {
  size_t length = strlen(name);
  cr_assert(err->status == HR_ERROR_FILE, "status %d: %s", (int)err->status, err->message);
  cr_assert(strncmp(err->message, name, length) == 0 && err->message[length] == ':',
            "'%s' should start with '%s:'", err->message, name);
  cr_assert(strstr(err->message, part), "'%s' should hold '%s'", err->message, part);
}

static void expect_bad(const void *data, size_t size, const char *part) {
  hr_error err = {0};
  hr_source *source = hr_source_open_memory(data, size, "mem.gguf", &err);
  cr_assert(!source, "opened, expected '%s'", part);
  expect_error(&err, "mem.gguf", part);
  cr_assert(!hr_source_open_memory(data, size, "mem.gguf", NULL));
}

/* Ends the writer. */
static void expect_bad_writer(gguf_writer *w, const char *part) {
  size_t size;
  unsigned char *data = gguf_writer_finish(w, &size);
  expect_bad(data, size, part);
  free(data);
}

static hr_source *open_writer(gguf_writer *w, unsigned char **data) {
  size_t size;
  hr_error err = {0};
  *data = gguf_writer_finish(w, &size);
  hr_source *source = hr_source_open_memory(*data, size, "mem.gguf", &err);
  cr_assert(source, "%s", err.message);
  return source;
}

static void count_value(void *arg, const char *key, const char *type, const char *value) {
  cr_assert(key && type && value);
  cr_assert(strlen(value) < 200);
  ++*(size_t *)arg;
}

/* Touches all that a source offers; bad bytes may give errors, never more than that. */
static void walk(const hr_source *source) {
  size_t values = 0, sum = 0;
  hr_source_visit_values(source, count_value, &values);
  for (size_t i = 0; i < hr_source_tensor_count(source); i++) {
    const hr_tensor *t = hr_source_tensor_at(source, i);
    const unsigned char *bytes = t->data;
    cr_assert(t->bytes > 0);
    sum += (size_t)bytes[0] + bytes[t->bytes - 1];
    cr_assert(hr_source_find_tensor(source, t->name) == t);
    hr_source_drop(source, t, 0, t->bytes);
  }
  hr_vocab_storage storage;
  hr_vocab vocab;
  bool found;
  hr_error err;
  hr_status status = hr_vocab_read(source, &storage, &vocab, &found, &err);
  cr_assert(!found || status == HR_OK);
  for (size_t i = 0; found && i < vocab.count; i++)
    for (size_t k = 0; k < vocab.tokens[i].length; k++)
      sum += (unsigned char)vocab.tokens[i].text[k];
  hr_vocab_storage_finish(&storage);
  cr_assert(sum != SIZE_MAX); /* the reads are not left out */
}

/* Bytes that may be anything: opens or does not. */
static bool survives(const void *data, size_t size) {
  hr_error err = {0};
  unsigned char *copy = copy_of(data, size);
  hr_source *source = hr_source_open_memory(copy, size, "mem.gguf", &err);
  if (source)
    walk(source);
  else
    cr_assert(err.status == HR_ERROR_FILE && strncmp(err.message, "mem.gguf: ", 10) == 0, "%s",
              err.message);
  hr_source_close(source);
  free(copy);
  return source != NULL;
}

static const float floats[64] = {1, 2, 3, 4, 5, 6, 7, 8};

/* A file with a bit of everything. */
static void write_sample(gguf_writer *w) {
  static const char *const tokens[] = {"<unk>", "<s>", "</s>", "<|im_end|>", "a"};
  static const float scores[] = {0, 0, 0, 0, -1};
  static const int32_t kinds[] = {2, 3, 3, 1, 1};
  static const unsigned char q8[34 * 2] = {0, 0x3c, 1, 2, 3};
  gguf_writer_init(w);
  gguf_put_string(w, "general.architecture", "llama");
  gguf_put_u32(w, "general.alignment", 32);
  gguf_put_string(w, "tokenizer.ggml.model", "llama");
  gguf_put_strings(w, "tokenizer.ggml.tokens", tokens, 5);
  gguf_put_array(w, "tokenizer.ggml.scores", GGUF_F32, scores, 5);
  gguf_put_array(w, "tokenizer.ggml.token_type", GGUF_I32, kinds, 5);
  gguf_put_u32(w, "tokenizer.ggml.bos_token_id", 1);
  gguf_put_tensor(w, "a", GGUF_TENSOR_F32, 2, (uint64_t[]){3, 2}, floats, 24);
  gguf_put_tensor(w, "b", GGUF_TENSOR_F16, 1, (uint64_t[]){4}, floats, 8);
  gguf_put_tensor(w, "c", GGUF_TENSOR_Q8_0, 2, (uint64_t[]){32, 2}, q8, sizeof q8);
}

/* --- Formats --------------------------------------------------------------- */

static float half_by_formula(uint16_t half) {
  int exponent = half >> 10 & 31, fraction = half & 1023;
  double value = exponent == 31 ? (fraction ? (double)NAN : (double)INFINITY)
                 : exponent     ? ldexp(1024 + fraction, exponent - 25)
                                : ldexp(fraction, -24);
  return (float)(half & 0x8000 ? -value : value);
}

static bool same_float(float a, float b) {
  return (isnan(a) && isnan(b)) || memcmp(&a, &b, sizeof a) == 0;
}

Test(formats, every_half_and_bfloat) {
  for (uint32_t i = 0; i < 65536; i++) {
    uint16_t bits = (uint16_t)i;
    uint32_t wide = i << 16;
    float f16, bf16, expected;
    hr_format_get(HR_FORMAT_F16)->widen(&bits, &f16, 1);
    cr_assert(same_float(f16, half_by_formula(bits)), "F16 %04x gives %a", i, (double)f16);
    hr_format_get(HR_FORMAT_BF16)->widen(&bits, &bf16, 1);
    memcpy(&expected, &wide, sizeof wide);
    cr_assert(same_float(bf16, expected), "BF16 %04x gives %a", i, (double)bf16);
  }
}

Test(formats, q8_0) {
  unsigned char block[1 + 2 * 34] = {0}; /* read from an odd address */
  float out[64];
  const uint16_t scales[] = {0x3555, 0x0001};
  for (size_t b = 0; b < 2; b++) {
    memcpy(block + 1 + 34 * b, &scales[b], 2);
    for (int i = 0; i < 32; i++) block[1 + 34 * b + 2 + (size_t)i] = (unsigned char)(i * 8 - 128);
  }
  hr_format_get(HR_FORMAT_Q8_0)->widen(block + 1, out, 64);
  for (int i = 0; i < 64; i++) {
    double expected = (double)half_by_formula(scales[i / 32]) * (i % 32 * 8 - 128);
    cr_assert(out[i] == (float)expected && (double)(float)expected == expected);
  }
}

Test(formats, table) {
  static const struct { hr_format format; uint32_t type; const char *name; } expected[] = {
      {HR_FORMAT_F32, 0, "F32"}, {HR_FORMAT_F16, 1, "F16"}, {HR_FORMAT_BF16, 30, "BF16"},
      {HR_FORMAT_Q8_0, 8, "Q8_0"}, {HR_FORMAT_Q4_K, 12, "Q4_K"}, {HR_FORMAT_IQ4_NL, 20, "IQ4_NL"}};
  hr_format format;
  const char *name;
  size_t bytes;
  for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
    cr_assert(hr_format_from_gguf(expected[i].type, &format, &name));
    cr_assert(format == expected[i].format);
    cr_assert_str_eq(name, expected[i].name);
    cr_assert_str_eq(hr_format_get(format)->name, name);
  }
  cr_assert(!hr_format_from_gguf(15, &format, &name));
  cr_assert_str_eq(name, "Q8_K");
  cr_assert(!hr_format_from_gguf(23, &format, &name));
  cr_assert_str_eq(name, "IQ4_XS");
  cr_assert(!hr_format_from_gguf(UINT32_MAX, &format, &name) && !name);
  cr_assert(hr_format_bytes(HR_FORMAT_Q8_0, 64, &bytes) && bytes == 68);
  cr_assert(!hr_format_bytes(HR_FORMAT_Q8_0, 33, &bytes));
  cr_assert(!hr_format_bytes(HR_FORMAT_F32, SIZE_MAX / 2, &bytes));
  cr_assert(!hr_format_bytes(HR_FORMAT_Q8_0, SIZE_MAX / 32 * 32, &bytes));
  float bits[2];
  hr_format_get(HR_FORMAT_F32)->widen(floats, bits, 2);
  cr_assert(bits[0] == 1 && bits[1] == 2);
}

/* --- GGUF: good files ------------------------------------------------------ */

Test(gguf, tensors) {
  gguf_writer w;
  unsigned char *data;
  write_sample(&w);
  hr_source *source = open_writer(&w, &data);
  cr_assert(hr_source_get_kind(source) == HR_SOURCE_GGUF);
  cr_assert_str_eq(hr_source_path(source), "mem.gguf");
  cr_assert(hr_source_tensor_count(source) == 3);
  const hr_tensor *a = hr_source_tensor_at(source, 0), *b = hr_source_tensor_at(source, 1);
  const hr_tensor *c = hr_source_find_tensor(source, "c");
  cr_assert(c == hr_source_tensor_at(source, 2));
  cr_assert_str_eq(a->name, "a");
  /* outermost first: 2 rows of 3 */
  cr_assert(a->format == HR_FORMAT_F32 && a->dims == 2 && a->dim[0] == 2 && a->dim[1] == 3);
  cr_assert(a->bytes == 24 && memcmp(a->data, floats, 24) == 0);
  cr_assert(b->format == HR_FORMAT_F16 && b->dims == 1 && b->dim[0] == 4 && b->bytes == 8);
  cr_assert(c->format == HR_FORMAT_Q8_0 && c->dim[0] == 2 && c->dim[1] == 32 && c->bytes == 68);
  cr_assert(hr_source_find_tensor(source, "") == NULL);
  cr_assert(hr_source_find_tensor(source, "d") == NULL);
  cr_assert(hr_source_refused_type(source, "a") == NULL);
  hr_error err;
  cr_assert(hr_source_need_tensor(source, "a", &err) == a);
  cr_assert(hr_source_need_tensor(source, "d", &err) == NULL);
  expect_error(&err, "mem.gguf", "tensor 'd' is missing");
  walk(source);
  hr_source_close(source);
  free(data);
  CHECK_LEAKS();
}

Test(gguf, many_tensors_are_found) {
  enum { COUNT = 3000 };
  gguf_writer w;
  unsigned char *data;
  char name[32];
  gguf_writer_init(&w);
  for (unsigned i = 0; i < COUNT; i++) {
    snprintf(name, sizeof name, "blk.%u.weight", i * 7919 % COUNT);
    gguf_put_tensor(&w, name, GGUF_TENSOR_F32, 1, (uint64_t[]){1}, floats, 4);
  }
  hr_source *source = open_writer(&w, &data);
  for (unsigned i = 0; i < COUNT; i++) {
    snprintf(name, sizeof name, "blk.%u.weight", i);
    const hr_tensor *t = hr_source_find_tensor(source, name);
    cr_assert(t && strcmp(t->name, name) == 0);
  }
  hr_source_close(source);
  free(data);
}

Test(gguf, values) {
  gguf_writer w;
  unsigned char *data;
  hr_error err;
  bool found, truth;
  uint64_t u;
  int64_t s;
  double f;
  const char *text;
  size_t length;
  gguf_writer_init(&w);
  gguf_put_raw(&w, "u8", GGUF_U8, "\xff", 1);
  gguf_put_raw(&w, "i8", GGUF_I8, "\xff", 1);
  gguf_put_raw(&w, "u16", GGUF_U16, "\xfe\xff", 2);
  gguf_put_raw(&w, "i16", GGUF_I16, "\xfe\xff", 2);
  gguf_put_u32(&w, "u32", UINT32_MAX);
  gguf_put_i32(&w, "i32", -5);
  gguf_put_f32(&w, "f32", 0.5f);
  gguf_put_f32(&w, "whole", 10000.0f);
  gguf_put_f32(&w, "nan", NAN);
  gguf_put_bool(&w, "yes", true);
  gguf_put_bool(&w, "no", false);
  gguf_put_string(&w, "text", "h\xc3\xa9llo\n");
  gguf_put_string(&w, "empty", "");
  gguf_put_u64(&w, "u64", UINT64_MAX);
  gguf_put_raw(&w, "i64", GGUF_I64, &(int64_t){INT64_MIN}, 8);
  gguf_put_raw(&w, "f64", GGUF_F64, &(double){1e-5}, 8);
  hr_source *source = open_writer(&w, &data);

  static const struct { const char *key; int64_t value; } wholes[] = {
      {"u8", 255}, {"i8", -1}, {"u16", 65534}, {"i16", -2}, {"u32", UINT32_MAX}, {"i32", -5},
      {"i64", INT64_MIN}, {"whole", 10000}};
  for (size_t i = 0; i < sizeof wholes / sizeof *wholes; i++) {
    cr_assert(hr_source_i64(source, wholes[i].key, &s, &found, &err) == HR_OK && found);
    cr_assert(s == wholes[i].value, "%s", wholes[i].key);
    cr_assert(hr_source_f64(source, wholes[i].key, &f, &found, &err) == HR_OK && found);
    cr_assert(f == (double)wholes[i].value);
    bool fits = wholes[i].value >= 0;
    cr_assert((hr_source_u64(source, wholes[i].key, &u, &found, &err) == HR_OK) == fits);
    cr_assert(found == fits && (!fits || u == (uint64_t)wholes[i].value));
  }
  cr_assert(hr_source_u64(source, "u64", &u, &found, &err) == HR_OK && found && u == UINT64_MAX);
  cr_assert(hr_source_i64(source, "u64", &s, &found, &err) == HR_ERROR_FILE && !found);
  expect_error(&err, "mem.gguf", "key 'u64' is 18446744073709551615, expected a whole number of");
  cr_assert(hr_source_u64(source, "i32", &u, &found, &err) == HR_ERROR_FILE && !found);
  expect_error(&err, "mem.gguf", "key 'i32' is -5, expected a whole number, 0 or more");
  cr_assert(hr_source_u64(source, "f32", &u, &found, &err) == HR_ERROR_FILE);
  expect_error(&err, "mem.gguf", "key 'f32' is 0.5, expected a whole number");
  cr_assert(hr_source_u64(source, "nan", &u, &found, &err) == HR_ERROR_FILE);
  cr_assert(hr_source_i64(source, "nan", &s, &found, &err) == HR_ERROR_FILE);
  cr_assert(hr_source_f64(source, "nan", &f, &found, &err) == HR_ERROR_FILE);
  expect_error(&err, "mem.gguf", "expected a finite number");
  cr_assert(hr_source_f64(source, "f32", &f, &found, &err) == HR_OK && found && f == 0.5);
  cr_assert(hr_source_f64(source, "f64", &f, &found, &err) == HR_OK && found && f == 1e-5);
  cr_assert(hr_source_bool(source, "yes", &truth, &found, &err) == HR_OK && found && truth);
  cr_assert(hr_source_bool(source, "no", &truth, &found, &err) == HR_OK && found && !truth);
  cr_assert(hr_source_string(source, "text", &text, &length, &found, &err) == HR_OK && found);
  cr_assert(length == 7 && memcmp(text, "h\xc3\xa9llo\n", 7) == 0);
  cr_assert(hr_source_string(source, "empty", &text, &length, &found, &err) == HR_OK && found);
  cr_assert(length == 0);

  cr_assert(hr_source_u64(source, "text", &u, &found, &err) == HR_ERROR_FILE);
  expect_error(&err, "mem.gguf", "key 'text' has type string, expected a whole number");
  cr_assert(hr_source_f64(source, "yes", &f, &found, &err) == HR_ERROR_FILE);
  expect_error(&err, "mem.gguf", "key 'yes' has type bool, expected a number");
  cr_assert(hr_source_bool(source, "u8", &truth, &found, &err) == HR_ERROR_FILE);
  expect_error(&err, "mem.gguf", "key 'u8' has type uint8, expected true or false");
  cr_assert(hr_source_string(source, "u8", &text, &length, &found, &err) == HR_ERROR_FILE);
  cr_assert(hr_source_array_length(source, "u8", &length, &found, &err) == HR_ERROR_FILE);
  expect_error(&err, "mem.gguf", "key 'u8' has type uint8, expected an array");
  cr_assert(hr_source_u64(source, "absent", &u, &found, &err) == HR_OK && !found);
  cr_assert(hr_source_bool(source, "absent", &truth, &found, &err) == HR_OK && !found);
  cr_assert(hr_source_string(source, "absent", &text, &length, &found, NULL) == HR_OK && !found);

  size_t count = 0;
  hr_source_visit_values(source, count_value, &count);
  cr_assert(count == 16);
  hr_source_close(source);
  free(data);
  CHECK_LEAKS();
}

/* An array of two arrays of one uint8 each, depth levels deep. */
static void put_nested(gguf_writer *w, const char *key, unsigned depth) {
  gguf_put_raw(w, key, GGUF_ARRAY, NULL, 0);
  for (unsigned i = 1; i < depth; i++) {
    gguf_append_u32(&w->values, GGUF_ARRAY);
    gguf_append_u64(&w->values, 1);
  }
  gguf_append_u32(&w->values, GGUF_U8);
  gguf_append_u64(&w->values, 1);
  gguf_append(&w->values, "\7", 1);
}

Test(gguf, arrays) {
  static const char *const strings[] = {"one", "", "three"};
  gguf_writer w;
  unsigned char *data;
  hr_error err;
  bool found;
  size_t count, length[3];
  int64_t s[3];
  double f[3];
  const char *text[3];
  gguf_writer_init(&w);
  gguf_put_strings(&w, "strings", strings, 3);
  gguf_put_array(&w, "i32", GGUF_I32, (int32_t[]){-1, 2, 3}, 3);
  gguf_put_array(&w, "u64", GGUF_U64, (uint64_t[]){1, 2, UINT64_MAX}, 3);
  gguf_put_array(&w, "f32", GGUF_F32, (float[]){1, 0.5f, -INFINITY}, 3);
  gguf_put_array(&w, "bool", GGUF_BOOL, "\1\0\1", 3);
  gguf_put_array(&w, "empty", GGUF_U8, NULL, 0);
  put_nested(&w, "nested", 3);
  gguf_put_u32(&w, "after", 9);
  hr_source *source = open_writer(&w, &data);

  cr_assert(hr_source_is_array(source, "i32") && !hr_source_is_array(source, "after"));
  cr_assert(!hr_source_is_array(source, "absent"));
  cr_assert(hr_source_array_length(source, "strings", &count, &found, &err) == HR_OK && found);
  cr_assert(count == 3);
  cr_assert(hr_source_array_strings(source, "strings", text, length, 3, &err) == HR_OK);
  for (size_t i = 0; i < 3; i++)
    cr_assert(length[i] == strlen(strings[i]) && memcmp(text[i], strings[i], length[i]) == 0);
  cr_assert(hr_source_array_i64(source, "i32", s, 3, &err) == HR_OK);
  cr_assert(s[0] == -1 && s[1] == 2 && s[2] == 3);
  cr_assert(hr_source_array_f64(source, "i32", f, 3, &err) == HR_OK && f[0] == -1);
  cr_assert(hr_source_array_f64(source, "f32", f, 3, &err) == HR_OK);
  cr_assert(f[1] == 0.5 && isinf(f[2]));
  cr_assert(hr_source_array_i64(source, "empty", s, 0, &err) == HR_OK);

  cr_assert(hr_source_array_i64(source, "u64", s, 3, &err) == HR_ERROR_FILE);
  expect_error(&err, "mem.gguf", "element 2 of key 'u64'");
  cr_assert(hr_source_array_i64(source, "f32", s, 3, &err) == HR_ERROR_FILE);
  expect_error(&err, "mem.gguf", "element 1 of key 'f32' is 0.5, expected a whole number");
  cr_assert(hr_source_array_i64(source, "strings", s, 3, &err) == HR_ERROR_FILE);
  expect_error(&err, "mem.gguf", "element 0 of key 'strings' has type string");
  cr_assert(hr_source_array_f64(source, "bool", f, 3, &err) == HR_ERROR_FILE);
  cr_assert(hr_source_array_strings(source, "i32", text, length, 3, &err) == HR_ERROR_FILE);
  expect_error(&err, "mem.gguf", "has type int32, expected a string");
  cr_assert(hr_source_array_i64(source, "i32", s, 2, &err) == HR_ERROR_FILE);
  expect_error(&err, "mem.gguf", "key 'i32' has 3 elements, expected 2");
  cr_assert(hr_source_array_i64(source, "absent", s, 2, &err) == HR_ERROR_FILE);
  expect_error(&err, "mem.gguf", "key 'absent' is missing");
  cr_assert(hr_source_array_i64(source, "nested", s, 1, &err) == HR_ERROR_FILE);
  expect_error(&err, "mem.gguf", "element 0 of key 'nested' has type array");
  uint64_t u;
  cr_assert(hr_source_u64(source, "i32", &u, &found, &err) == HR_ERROR_FILE);
  expect_error(&err, "mem.gguf", "key 'i32' has type array of int32, expected a whole number");
  cr_assert(hr_source_u64(source, "after", &u, &found, &err) == HR_OK && u == 9);
  walk(source);
  hr_source_close(source);
  free(data);

  gguf_writer_init(&w);
  put_nested(&w, "deep", 5);
  expect_bad_writer(&w, "key 'deep' has arrays in arrays more than 4 deep");
  CHECK_LEAKS();
}

Test(gguf, versions_alignments_and_plain_types) {
  static const uint32_t alignments[] = {1, 2, 8, 64, 4096};
  gguf_writer w;
  unsigned char *data;
  for (size_t i = 0; i < sizeof alignments / sizeof *alignments; i++) {
    gguf_writer_init(&w);
    w.version = 2 + (uint32_t)i % 2;
    w.alignment = alignments[i];
    gguf_put_u32(&w, "general.alignment", alignments[i]);
    gguf_put_tensor(&w, "x", GGUF_TENSOR_F32, 1, (uint64_t[]){3}, floats, 12);
    gguf_put_tensor(&w, "y", GGUF_TENSOR_F32, 1, (uint64_t[]){2}, floats, 8);
    hr_source *source = open_writer(&w, &data);
    cr_assert(memcmp(hr_source_find_tensor(source, "y")->data, floats, 8) == 0);
    hr_source_close(source);
    free(data);
  }
  /* tensors of plain numbers are kept aside */
  gguf_writer_init(&w);
  gguf_put_tensor(&w, "ids", 27, 1, (uint64_t[]){3}, floats, 24);
  gguf_put_tensor(&w, "x", GGUF_TENSOR_F32, 1, (uint64_t[]){3}, floats, 12);
  hr_source *source = open_writer(&w, &data);
  hr_error err;
  cr_assert(hr_source_tensor_count(source) == 1);
  cr_assert(!hr_source_find_tensor(source, "ids"));
  cr_assert_str_eq(hr_source_refused_type(source, "ids"), "I64");
  cr_assert(!hr_source_need_tensor(source, "ids", &err));
  expect_error(&err, "mem.gguf", "tensor 'ids' has type I64, expected F32");
  hr_source_close(source);
  free(data);
  CHECK_LEAKS();
}

/* --- GGUF: bad files ------------------------------------------------------- */

Test(gguf_bad, starts) {
  static const struct { const char *bytes; size_t size; const char *part; } files[] = {
      {"", 0, "is empty"},
      {"GG", 2, "is no model file: its 2 bytes start with 'GG'"},
      {"GGUF", 4, "is cut short or damaged: the version of the header needs 4 bytes"},
      {"GGUF\3\0\0\0\0\0", 10, "the number of tensors of the header needs 8 bytes"},
      {"<!DOCTYPE html><html>", 21, "is an HTML page"},
      {" \r\n<HTML><body>", 15, "is an HTML page"},
      {"\xef\xbb\xbf<!doctype html>", 18, "is an HTML page"},
      {"version https://git-lfs.github.com/spec/v1\noid", 46, "is a Git LFS pointer"},
      {"PK\3\4abcdefgh", 12, "is a zip archive such as a PyTorch checkpoint"},
      {"\x80\2}q\0X", 6, "is a Python pickle"},
      {"\x80\2\x8a\nl\xfc\x9c", 7, "is a Python pickle"},
      {"lmgg\1\0\0\0", 8, "is a GGML file from before GGUF"},
      {"tjgg\3\0\0\0", 8, "is a GGML file from before GGUF"},
      {"FUGG\0\0\0\3", 8, "is a big-endian GGUF file"},
      {"GGUF\0\0\0\3", 8, "is a big-endian GGUF file"},
      {"GGUF\1\0\0\0", 8, "is GGUF version 1, expected 2 or 3"},
      {"GGUF\4\0\0\0", 8, "is GGUF version 4, expected 2 or 3"},
      {"GGUF\0\0\0\0", 8, "is GGUF version 0, expected 2 or 3"},
      {"hello\x1b[31m world", 16, "start with 'hello\\x1b[3'"},
  };
  for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
    unsigned char *copy = copy_of(files[i].bytes, files[i].size);
    expect_bad(copy, files[i].size, files[i].part);
    free(copy);
  }
  CHECK_LEAKS();
}

/* A small file that claims a lot must fail at once and without memory. */
Test(gguf_bad, counts) {
  static const uint64_t lies[] = {100, (uint64_t)1 << 32, (uint64_t)1 << 60, UINT64_MAX};
  gguf_writer w;
  for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
    gguf_writer_init(&w);
    w.tensor_count = lies[i];
    expect_bad_writer(&w, "tensors, but 0 bytes are left");
    gguf_writer_init(&w);
    w.value_count = lies[i];
    expect_bad_writer(&w, "keys, but 0 bytes are left");
    hr_memory_fail_at(0);
    gguf_writer_init(&w);
    gguf_put_u32(&w, "key", 1);
    w.tensor_count = lies[i];
    expect_bad_writer(&w, "tensors, but");
    /* two opens; each has the source and two strings, the file, the values */
    cr_assert(hr_memory_fail_at(0) < 12);
    gguf_writer_init(&w);
    gguf_put_raw(&w, "array", GGUF_ARRAY, NULL, 0);
    gguf_append_u32(&w.values, GGUF_U16);
    gguf_append_u64(&w.values, lies[i]);
    expect_bad_writer(&w, "key 'array' claims");
    gguf_writer_init(&w);
    gguf_put_raw(&w, "array", GGUF_ARRAY, NULL, 0);
    gguf_append_u32(&w.values, GGUF_ARRAY);
    gguf_append_u64(&w.values, lies[i]);
    expect_bad_writer(&w, "elements of type array, but 0 bytes are left");
    gguf_writer_init(&w);
    gguf_put_raw(&w, "text", GGUF_STRING, &lies[i], 8);
    expect_bad_writer(&w, "the value of key 'text' needs");
  }
  gguf_writer_init(&w);
  gguf_put_raw(&w, "array", GGUF_ARRAY, NULL, 0);
  gguf_append_u32(&w.values, GGUF_STRING);
  gguf_append_u64(&w.values, 1);
  gguf_append_u64(&w.values, UINT64_MAX - 7);
  expect_bad_writer(&w, "the string of key 'array' needs 18446744073709551608 bytes, but 0 are");
  gguf_writer_init(&w);
  gguf_put_u32(&w, "a", 1);
  gguf_put_u32(&w, "b", 1);
  w.value_count = 1; /* the second key is then read as a tensor */
  w.tensor_count = 0;
  size_t size;
  unsigned char *data = gguf_writer_finish(&w, &size);
  cr_assert(survives(data, size));
  free(data);
  CHECK_LEAKS();
}

Test(gguf_bad, keys) {
  gguf_writer w;
  gguf_writer_init(&w);
  gguf_put_u32(&w, "", 1);
  expect_bad_writer(&w, "the name of key 1 of 1 has 0 bytes");
  gguf_writer_init(&w);
  gguf_put_u32(&w, "twice", 1);
  gguf_put_u32(&w, "other", 1);
  gguf_put_u32(&w, "twice", 1);
  expect_bad_writer(&w, "key 'twice' occurs twice");
  gguf_writer_init(&w);
  gguf_put_raw(&w, "odd", 13, "", 0);
  expect_bad_writer(&w, "key 'odd' has the unknown type 13");
  gguf_writer_init(&w);
  gguf_put_raw(&w, "odd", GGUF_ARRAY, "\x0d\0\0\0\0\0\0\0\0\0\0\0", 12);
  expect_bad_writer(&w, "key 'odd' is an array of the unknown type 13");
  gguf_writer_init(&w);
  gguf_append_string(&w.values, "nul\0key", 7);
  gguf_append_u32(&w.values, GGUF_U8);
  gguf_append(&w.values, "", 1);
  w.value_count = 1;
  expect_bad_writer(&w, "the name 'nul\\x00key' of key 1 of 1 holds a zero byte");
  char *name = calloc(65537, 1);
  cr_assert(name);
  memset(name, 'k', 65536);
  gguf_writer_init(&w);
  gguf_put_u32(&w, name, 1);
  expect_bad_writer(&w, "the name of key 1 of 1 has 65536 bytes, expected 1 to 65535");
  name[65535] = '\0';
  gguf_writer_init(&w);
  gguf_put_u32(&w, name, 1);
  gguf_put_u32(&w, name, 1);
  expect_bad_writer(&w, "...' occurs twice");
  name[256] = '\0';
  gguf_writer_init(&w);
  gguf_put_tensor(&w, name, GGUF_TENSOR_F32, 1, (uint64_t[]){1}, floats, 4);
  expect_bad_writer(&w, "the name of tensor 1 of 1 has 256 bytes, expected 1 to 255");
  free(name);
  gguf_writer_init(&w);
  gguf_put_u32(&w, "split.count", 3);
  gguf_put_u32(&w, "split.no", 1);
  expect_bad_writer(&w, "is part 2 of a model split into 3 files");
  CHECK_LEAKS();
}

Test(gguf_bad, alignments) {
  static const uint32_t bad[] = {0, 3, 33, 48, (uint32_t)1 << 21, (uint32_t)1 << 31, UINT32_MAX};
  gguf_writer w;
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    char part[80];
    snprintf(part, sizeof part, "key 'general.alignment' is %u, expected a power of two", bad[i]);
    gguf_writer_init(&w);
    gguf_put_u32(&w, "general.alignment", bad[i]);
    gguf_put_tensor(&w, "x", GGUF_TENSOR_F32, 1, (uint64_t[]){1}, floats, 4);
    expect_bad_writer(&w, part);
  }
  gguf_writer_init(&w);
  gguf_put_u64(&w, "general.alignment", 32);
  expect_bad_writer(&w, "key 'general.alignment' has type uint64, expected uint32");
  gguf_writer_init(&w);
  gguf_put_strings(&w, "general.alignment", (const char *const[]){"32"}, 1);
  expect_bad_writer(&w, "key 'general.alignment' has type array, expected uint32");
  CHECK_LEAKS();
}

/* One tensor described by numbers, over a data section of 64 bytes. */
static void expect_bad_tensor(uint32_t type, uint32_t dims, const uint64_t *dim, uint64_t offset,
                              const char *part) {
  gguf_writer w;
  gguf_writer_init(&w);
  gguf_put_tensor_info(&w, "blk.0.attn_q.weight", type, dims, dim, offset);
  gguf_append(&w.data, floats, 64);
  expect_bad_writer(&w, part);
}

Test(gguf_bad, tensors) {
  const uint64_t big = (uint64_t)1 << 63, half = (uint64_t)1 << 32;
  const uint64_t one[256] = {1};
  expect_bad_tensor(0, 0, one, 0, "tensor 'blk.0.attn_q.weight' has 0 dimensions, expected 1 to 4");
  expect_bad_tensor(0, 5, one, 0, "has 5 dimensions, expected 1 to 4");
  expect_bad_tensor(0, 255, one, 0, "has 255 dimensions, expected 1 to 4");
  expect_bad_tensor(0, 2, (uint64_t[]){3, 0}, 0, "dimension 1 of tensor 'blk.0.attn_q.weight' is");
  expect_bad_tensor(0, 2, (uint64_t[]){half, half}, 0, "their product overflows");
  expect_bad_tensor(0, 2, (uint64_t[]){big, 2}, 0, "their product overflows");
  expect_bad_tensor(0, 4, (uint64_t[]){65536, 65536, 65536, 65536}, 0, "their product overflows");
  expect_bad_tensor(0, 3, (uint64_t[]){big, 2, 3}, 0, "their product overflows");
  expect_bad_tensor(0, 1, &big, 0, "the size in bytes of the 9223372036854775808 elements of");
  expect_bad_tensor(0, 1, (uint64_t[]){(uint64_t)1 << 62}, 0, "overflows");
  expect_bad_tensor(1, 1, (uint64_t[]){UINT64_MAX}, 0, "overflows");
  expect_bad_tensor(27, 1, (uint64_t[]){(uint64_t)1 << 61}, 0, "overflows");
  expect_bad_tensor(8, 1, (uint64_t[]){UINT64_MAX - 31}, 0, "overflows");
  expect_bad_tensor(8, 2, (uint64_t[]){33, 32}, 0,
                    "has rows of 33 elements, expected a multiple of 32 for type Q8_0");
  expect_bad_tensor(0, 1, (uint64_t[]){4}, 123,
                    "tensor 'blk.0.attn_q.weight': offset 123 is no multiple of the alignment 32");
  expect_bad_tensor(0, 1, (uint64_t[]){4}, 64, "is cut short or damaged: the data of tensor "
                    "'blk.0.attn_q.weight' need 16 bytes at offset 64; the whole file needs");
  expect_bad_tensor(0, 1, (uint64_t[]){17}, 0, "is cut short or damaged: the data of tensor");
  expect_bad_tensor(0, 1, (uint64_t[]){4}, big, "need 16 bytes at offset 9223372036854775808");
  expect_bad_tensor(0, 1, (uint64_t[]){4}, UINT64_MAX - 31, "lie outside of any file");
  expect_bad_tensor(0, 1, (uint64_t[]){(uint64_t)1 << 61}, big, "lie outside of any file");
  expect_bad_tensor(0, 1, (uint64_t[]){((uint64_t)1 << 62) - 1}, 32, "lie outside of any file");
  static const struct { uint32_t type; const char *name; } types[] = {
      {9, "Q8_1"}, {16, "IQ2_XXS"}, {23, "IQ4_XS"}, {34, "TQ1_0"}, {39, "MXFP4"}};
  for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
    char part[120];
    snprintf(part, sizeof part, "tensor 'blk.0.attn_q.weight' has type %s, expected F32, F16, BF16",
             types[i].name);
    expect_bad_tensor(types[i].type, 1, (uint64_t[]){256}, 0, part);
  }
  expect_bad_tensor(999, 1, one, 0, "tensor 'blk.0.attn_q.weight' has the unknown type 999");
  expect_bad_tensor(UINT32_MAX, 1, one, 0, "has the unknown type 4294967295");
  CHECK_LEAKS();
}

Test(gguf_bad, tensors_together) {
  gguf_writer w;
  gguf_writer_init(&w);
  gguf_put_tensor(&w, "twice", GGUF_TENSOR_F32, 1, (uint64_t[]){1}, floats, 4);
  gguf_put_tensor(&w, "other", GGUF_TENSOR_F32, 1, (uint64_t[]){1}, floats, 4);
  gguf_put_tensor(&w, "twice", GGUF_TENSOR_F32, 1, (uint64_t[]){1}, floats, 4);
  expect_bad_writer(&w, "tensor 'twice' occurs twice");
  gguf_writer_init(&w);
  gguf_put_tensor_info(&w, "late", GGUF_TENSOR_F32, 1, (uint64_t[]){8}, 32);
  gguf_put_tensor_info(&w, "early", GGUF_TENSOR_F32, 1, (uint64_t[]){9}, 0);
  gguf_append(&w.data, floats, 64);
  expect_bad_writer(&w, "the data of tensors 'early' and 'late' overlap");
  gguf_writer_init(&w);
  gguf_put_tensor_info(&w, "a", GGUF_TENSOR_F32, 1, (uint64_t[]){8}, 32);
  gguf_put_tensor_info(&w, "b", GGUF_TENSOR_F32, 1, (uint64_t[]){8}, 32);
  gguf_append(&w.data, floats, 64);
  expect_bad_writer(&w, "overlap");
  gguf_writer_init(&w);
  gguf_append_string(&w.tensors, "a\0b", 3);
  gguf_append_u32(&w.tensors, 1);
  gguf_append_u64(&w.tensors, 1);
  gguf_append_u32(&w.tensors, 0);
  gguf_append_u64(&w.tensors, 0);
  w.tensor_count = 1;
  expect_bad_writer(&w, "the name 'a\\x00b' of tensor 1 of 1 holds a zero byte");
  CHECK_LEAKS();
}

Test(gguf_bad, cut_at_every_byte) {
  gguf_writer w;
  size_t size;
  write_sample(&w);
  unsigned char *data = gguf_writer_finish(&w, &size);
  cr_assert(survives(data, size));
  for (size_t cut = 0; cut < size; cut++) {
    unsigned char *copy = copy_of(data, cut);
    expect_bad(copy, cut, "");
    free(copy);
  }
  /* in the data, the message names the tensor and both sizes */
  char part[120];
  snprintf(part, sizeof part, "the data of tensor 'c' need 68 bytes at offset 64; the whole file "
           "needs %zu bytes and has %zu", size, size - 1);
  expect_bad(data, size - 1, part);
  free(data);
  CHECK_LEAKS();
}

Test(gguf_bad, every_field_replaced) {
  static const uint64_t values[] = {0, 1, 2, 0x7f, 0xff, 0x7fffffff, 0x80000000, 0xfffffffe,
                                    0xffffffff, 0x100000000, INT64_MAX, (uint64_t)1 << 63,
                                    UINT64_MAX - 1, UINT64_MAX};
  gguf_writer w;
  size_t size, opened = 0;
  write_sample(&w);
  unsigned char *data = gguf_writer_finish(&w, &size);
  for (size_t at = 0; at < size; at++) {
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
      for (size_t width = 1; width <= 8; width *= 2) {
        unsigned char saved[8];
        if (width > size - at) break;
        memcpy(saved, data + at, width);
        memcpy(data + at, &values[i], width);
        opened += survives(data, size);
        memcpy(data + at, saved, width);
      }
    }
  }
  cr_assert(opened > 0);
  free(data);
  CHECK_LEAKS();
}

Test(gguf_bad, random_damage) {
  gguf_writer w;
  size_t size;
  uint64_t state = 88172645463325252u;
  write_sample(&w);
  unsigned char *data = gguf_writer_finish(&w, &size);
  unsigned char *copy = malloc(size);
  cr_assert(copy);
  for (int round = 0; round < 20000; round++) {
    memcpy(copy, data, size);
    for (int change = round % 4; change >= 0; change--) {
      state ^= state << 13;
      state ^= state >> 7;
      state ^= state << 17;
      copy[state % size] = (unsigned char)(state >> 32);
    }
    survives(copy, size);
  }
  free(copy);
  free(data);
}

Test(gguf_bad, memory_runs_out) {
  gguf_writer w;
  size_t size;
  write_sample(&w);
  unsigned char *data = gguf_writer_finish(&w, &size);
  hr_source *source = NULL;
  size_t n = 0;
  while (!source && ++n < 1000) {
    hr_error err = {0};
    hr_memory_fail_at(n);
    source = hr_source_open_memory(data, size, "mem.gguf", &err);
    hr_memory_fail_at(0);
    cr_assert(source || err.status == HR_ERROR_MEMORY, "%s", err.message);
  }
  cr_assert(source && n > 5);
  hr_status status = HR_ERROR_MEMORY;
  for (n = 1; status != HR_OK && n < 1000; n++) {
    hr_error err = {0};
    hr_vocab_storage storage;
    hr_vocab vocab;
    bool found;
    hr_memory_fail_at(n);
    status = hr_vocab_read(source, &storage, &vocab, &found, &err);
    hr_memory_fail_at(0);
    cr_assert(status == HR_OK || (status == HR_ERROR_MEMORY && err.status == status && !found));
    hr_vocab_storage_finish(&storage);
  }
  cr_assert(status == HR_OK && n > 5);
  hr_source_close(source);
  free(data);
  CHECK_LEAKS();
}

/* --- Folders and files ----------------------------------------------------- */

/* A folder of its own for a test, and the files put into it. */
typedef struct folder {
  char path[64];
  char file[192];
} folder;

static void make_folder(folder *f) {
  strcpy(f->path, "/tmp/headrow-source-XXXXXX");
  cr_assert(mkdtemp(f->path));
}

static const char *in_folder(folder *f, const char *name) {
  snprintf(f->file, sizeof f->file, "%s/%s", f->path, name);
  return f->file;
}

static void put_file(folder *f, const char *name, const void *data, size_t size) {
  FILE *file = fopen(in_folder(f, name), "wb");
  cr_assert(file);
  cr_assert(fwrite(data, 1, size, file) == size);
  cr_assert(fclose(file) == 0);
}

static void put_text(folder *f, const char *name, const char *text) {
  put_file(f, name, text, strlen(text));
}

static void remove_file(folder *f, const char *name) {
  cr_assert(unlink(in_folder(f, name)) == 0);
}

static void remove_folder(folder *f) {
  DIR *dir = opendir(f->path);
  cr_assert(dir);
  for (struct dirent *item; (item = readdir(dir));)
    if (item->d_name[0] != '.') remove_file(f, item->d_name);
  closedir(dir);
  cr_assert(rmdir(f->path) == 0);
}

/* Every allocation of an open fails once. */
static void expect_memory_errors(const char *path) {
  hr_source *source = NULL;
  size_t n = 0;
  while (!source && ++n < 1000) {
    hr_error err = {0};
    hr_memory_fail_at(n);
    source = hr_source_open(path, &err);
    hr_memory_fail_at(0);
    cr_assert(source || err.status == HR_ERROR_MEMORY, "%s", err.message);
  }
  cr_assert(source && n > 10, "%zu", n);
  hr_source_close(source);
}

static hr_source *open_good(const char *path) {
  hr_error err = {0};
  hr_source *source = hr_source_open(path, &err);
  cr_assert(source, "%s", err.message);
  return source;
}

/* Opening path fails; the message starts with the name of a file in the
 * folder, or the folder itself for NULL. */
static void expect_bad_path(folder *f, const char *path, const char *name, const char *part) {
  hr_error err = {0};
  char full[192];
  snprintf(full, sizeof full, "%s%s%s", f->path, path ? "/" : "", path ? path : "");
  hr_source *source = hr_source_open(full, &err);
  cr_assert(!source, "opened, expected '%s'", part);
  expect_error(&err, name ? in_folder(f, name) : f->path, part);
}

Test(folders, files_and_folders) {
  folder f;
  gguf_writer w;
  size_t size;
  make_folder(&f);
  expect_bad_path(&f, "absent.gguf", "absent.gguf", "can't be opened: No such file");
  expect_bad_path(&f, NULL, NULL, "is a folder without a model");
  put_text(&f, "pytorch_model.bin", "PK\3\4");
  expect_bad_path(&f, NULL, NULL, "is a folder with pytorch_model.bin, which can't be read");
  put_text(&f, "empty.gguf", "");
  expect_bad_path(&f, "empty.gguf", "empty.gguf", "is empty");
  put_text(&f, "page.safetensors", "<!DOCTYPE html><html></html>");
  expect_bad_path(&f, "page.safetensors", "page.safetensors", "is an HTML page");
  remove_file(&f, "empty.gguf");
  write_sample(&w);
  unsigned char *data = gguf_writer_finish(&w, &size);
  put_file(&f, "one.gguf", data, size);
  hr_source *source = open_good(f.file);
  walk(source);
  hr_source_close(source);
  source = open_good(f.path);
  cr_assert(hr_source_tensor_count(source) == 3);
  cr_assert_str_eq(hr_source_path(source), f.path);
  hr_source_close(source);
  expect_memory_errors(f.path);
  put_file(&f, "one.gguf", data, size - 1); /* the message names the file, not the folder */
  expect_bad_path(&f, NULL, "one.gguf", "is cut short or damaged");
  put_file(&f, "two.gguf", data, size);
  expect_bad_path(&f, NULL, NULL, "is a folder of several GGUF files");
  free(data);
  remove_folder(&f);
  hr_source_close(NULL);
  CHECK_LEAKS();
}

/* Part of NAME-0000N-of-0000M.gguf; the first has a value, each a tensor. */
static void put_part(folder *f, unsigned file, unsigned part, unsigned parts, unsigned tensors) {
  gguf_writer w;
  size_t size;
  char name[40];
  gguf_writer_init(&w);
  if (part == 0) gguf_put_u32(&w, "answer", 42);
  gguf_put_raw(&w, "split.no", GGUF_U16, &(uint16_t){(uint16_t)part}, 2);
  gguf_put_raw(&w, "split.count", GGUF_U16, &(uint16_t){(uint16_t)parts}, 2);
  gguf_put_i32(&w, "split.tensors.count", (int32_t)tensors);
  snprintf(name, sizeof name, "t%u", part);
  gguf_put_tensor(&w, name, GGUF_TENSOR_F32, 1, (uint64_t[]){1}, &floats[part], 4);
  unsigned char *data = gguf_writer_finish(&w, &size);
  snprintf(name, sizeof name, "m-%05u-of-%05u.gguf", file + 1, parts);
  put_file(f, name, data, size);
  free(data);
}

Test(folders, gguf_in_parts) {
  folder f;
  make_folder(&f);
  for (unsigned i = 0; i < 3; i++) put_part(&f, i, i, 3, 3);
  static const char *const names[] = {"m-00001-of-00003.gguf", "m-00002-of-00003.gguf",
                                      "m-00003-of-00003.gguf"};
  for (size_t i = 0; i < 3; i++) {
    uint64_t answer;
    bool found;
    hr_source *source = open_good(in_folder(&f, names[i]));
    cr_assert(hr_source_tensor_count(source) == 3);
    cr_assert(memcmp(hr_source_find_tensor(source, "t2")->data, &floats[2], 4) == 0);
    cr_assert(hr_source_u64(source, "answer", &answer, &found, NULL) == HR_OK && found);
    cr_assert(answer == 42);
    walk(source);
    hr_source_close(source);
    expect_memory_errors(in_folder(&f, names[i]));
  }
  put_part(&f, 1, 2, 3, 3);
  expect_bad_path(&f, names[0], names[1], "is part 3 of 3, expected part 2 of 3");
  expect_bad_path(&f, names[1], names[1], "its name should end in '-00003-of-00003.gguf'");
  put_part(&f, 1, 1, 3, 3);
  put_part(&f, 0, 0, 3, 4);
  expect_bad_path(&f, names[0], names[0], "its 3 parts hold 3 tensors, expected 4");
  put_part(&f, 0, 0, 3, 3);
  put_text(&f, names[1], "<html>");
  expect_bad_path(&f, names[2], names[1], "is an HTML page");
  put_text(&f, names[1], "GGU");
  expect_bad_path(&f, names[2], names[1], "is no GGUF file");
  put_text(&f, names[1], "GGUF");
  expect_bad_path(&f, names[2], names[1], "is cut short or damaged");
  remove_file(&f, names[1]);
  expect_bad_path(&f, names[0], names[1], "is missing, a part of a model split into 3 files");
  remove_folder(&f);
  CHECK_LEAKS();
}

/* --- Safetensors ----------------------------------------------------------- */

static const char config[] =
    "{\"model_type\": \"llama\", \"hidden\": 64, \"eps\": 1e-05, \"theta\": 10000.0, \"tie\": true,"
    " \"nothing\": null, \"negative\": -3, \"rope\": {\"factor\": 8, \"type\": \"linear\","
    " \"deep\": {\"x\": 1}}, \"list\": [1, 2.0, 3], \"mixed\": [1.5, \"a\"], \"names\": [\"A\"]}";

/* A file of this header and 64 bytes of data. */
static void put_safetensors(folder *f, const char *name, const char *header) {
  unsigned char file[4096];
  uint64_t length = strlen(header);
  cr_assert(8 + length + 64 <= sizeof file);
  memcpy(file, &length, 8);
  memcpy(file + 8, header, length);
  memcpy(file + 8 + length, floats, 64);
  put_file(f, name, file, 8 + length + 64);
}

#define TENSOR(name, type, shape, begin, end)                                                \
  "\"" name "\":{\"dtype\":\"" type "\",\"shape\":" shape ",\"data_offsets\":[" begin "," end "]}"

Test(safetensors, good_file) {
  folder f;
  make_folder(&f);
  put_text(&f, "config.json", config);
  put_safetensors(&f, "model.safetensors",
                  "{\"__metadata__\":{\"format\":\"pt\"},"
                  TENSOR("w", "F32", "[2,3]", "0", "24") ","
                  TENSOR("h", "BF16", "[4]", "24", "32") ","
                  TENSOR("mask", "BOOL", "[1,2,2]", "32", "36") ","
                  TENSOR("scalar", "F16", "[]", "36", "38") ","
                  TENSOR("none", "F32", "[0,4]", "38", "38") ","
                  TENSOR("five", "F16", "[1,1,1,1,2]", "38", "42") ","
                  TENSOR("new", "F7", "[3]", "42", "44") "   }  ");
  hr_error err;
  hr_source *source = open_good(f.path);
  cr_assert(hr_source_get_kind(source) == HR_SOURCE_SAFETENSORS);
  cr_assert(hr_source_tensor_count(source) == 3);
  const hr_tensor *w = hr_source_find_tensor(source, "w");
  cr_assert(w && w->format == HR_FORMAT_F32 && w->dims == 2 && w->dim[0] == 2 && w->dim[1] == 3);
  cr_assert(w->bytes == 24 && memcmp(w->data, floats, 24) == 0);
  const hr_tensor *h = hr_source_find_tensor(source, "h");
  cr_assert(h && h->format == HR_FORMAT_BF16 && h->dims == 1 && h->dim[0] == 4);
  const hr_tensor *scalar = hr_source_find_tensor(source, "scalar");
  cr_assert(scalar && scalar->dims == 0 && scalar->bytes == 2);
  cr_assert(!hr_source_find_tensor(source, "mask"));
  cr_assert_str_eq(hr_source_refused_type(source, "mask"), "BOOL");
  cr_assert_str_eq(hr_source_refused_type(source, "none"), "F32 without elements");
  cr_assert_str_eq(hr_source_refused_type(source, "five"), "F16 with more than 4 dimensions");
  cr_assert_str_eq(hr_source_refused_type(source, "new"), "F7 (unknown)");
  cr_assert(!hr_source_need_tensor(source, "new", &err));
  expect_error(&err, in_folder(&f, "model.safetensors"), "tensor 'new' has type F7 (unknown)");

  bool found, truth;
  uint64_t u;
  int64_t s;
  double d[3];
  const char *text;
  size_t length;
  cr_assert(hr_source_string(source, "model_type", &text, &length, &found, &err) == HR_OK && found);
  cr_assert(length == 5 && memcmp(text, "llama", 5) == 0);
  cr_assert(hr_source_u64(source, "hidden", &u, &found, &err) == HR_OK && found && u == 64);
  cr_assert(hr_source_f64(source, "hidden", d, &found, &err) == HR_OK && found && d[0] == 64);
  cr_assert(hr_source_f64(source, "eps", d, &found, &err) == HR_OK && found && d[0] == 1e-05);
  cr_assert(hr_source_u64(source, "theta", &u, &found, &err) == HR_OK && found && u == 10000);
  cr_assert(hr_source_bool(source, "tie", &truth, &found, &err) == HR_OK && found && truth);
  cr_assert(hr_source_bool(source, "nothing", &truth, &found, &err) == HR_OK && !found);
  cr_assert(hr_source_i64(source, "negative", &s, &found, &err) == HR_OK && found && s == -3);
  cr_assert(hr_source_u64(source, "rope.factor", &u, &found, &err) == HR_OK && found && u == 8);
  cr_assert(hr_source_u64(source, "rope.deep.x", &u, &found, &err) == HR_OK && found && u == 1);
  cr_assert(hr_source_u64(source, "rope.absent", &u, &found, &err) == HR_OK && !found);
  cr_assert(hr_source_u64(source, "hidden.absent", &u, &found, &err) == HR_ERROR_FILE);
  expect_error(&err, in_folder(&f, "config.json"), "'hidden' has type integer, expected an object");
  cr_assert(hr_source_u64(source, "list.0", &u, &found, &err) == HR_ERROR_FILE);
  expect_error(&err, in_folder(&f, "config.json"), "'list' has type array, expected an object");
  cr_assert(hr_source_u64(source, "", &u, &found, &err) == HR_OK && !found);
  cr_assert(hr_source_array_length(source, "list", &length, &found, &err) == HR_OK && length == 3);
  cr_assert(hr_source_array_f64(source, "list", d, 3, &err) == HR_OK && d[1] == 2);
  cr_assert(hr_source_array_i64(source, "list", (int64_t[3]){0}, 3, &err) == HR_OK);
  cr_assert(hr_source_array_f64(source, "mixed", d, 2, &err) == HR_ERROR_FILE);
  expect_error(&err, in_folder(&f, "config.json"), "element 1 of key 'mixed' has type string");
  cr_assert(hr_source_array_strings(source, "names", &text, &length, 1, &err) == HR_OK);
  cr_assert(hr_source_u64(source, "rope", &u, &found, &err) == HR_ERROR_FILE);
  expect_error(&err, in_folder(&f, "config.json"), "key 'rope' has type object");
  size_t count = 0;
  hr_source_visit_values(source, count_value, &count);
  cr_assert(count == 13);
  walk(source);
  hr_source_close(source);

  /* the same file by its own name, and by a name of its own beside NAME_config.json */
  hr_source_close(open_good(in_folder(&f, "model.safetensors")));
  folder to = f;
  cr_assert(rename(in_folder(&f, "model.safetensors"), in_folder(&to, "tiny.safetensors")) == 0);
  remove_file(&f, "config.json");
  expect_bad_path(&f, "tiny.safetensors", "tiny.safetensors", "has no config.json beside it");
  put_text(&f, "tiny_config.json", config);
  hr_source_close(open_good(in_folder(&f, "tiny.safetensors")));
  remove_folder(&f);
  CHECK_LEAKS();
}

Test(safetensors, bad_headers) {
  static const struct { const char *header, *part; } files[] = {
      {"", "the header is no valid JSON"},
      {"[]", "the header is a JSON array, expected an object"},
      {"{", "the header is no valid JSON: line 1"},
      {"{} x", "the header is no valid JSON"},
      {"{" TENSOR("a", "F32", "[1]", "0", "4") "," TENSOR("a", "F32", "[1]", "4", "8") "}",
       "duplicate object key"},
      {"{\"a\":5}", "tensor 'a' is no JSON object"},
      {"{\"\":{}}", "a tensor's name has 0 bytes"},
      {"{\"a\":{}}", "tensor 'a' has no string 'dtype'"},
      {"{\"a\":{\"dtype\":7}}", "tensor 'a' has no string 'dtype'"},
      {"{\"a\":{\"dtype\":\"F32\"}}", "tensor 'a' has no array 'shape'"},
      {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", "has no 'data_offsets' of two whole numbers"},
      {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,8]}}",
       "has no 'data_offsets' of two whole numbers"},
      {"{" TENSOR("a", "F32", "[1]", "0", "4.0") "}", "has no 'data_offsets' of two whole numbers"},
      {"{" TENSOR("a", "F32", "[1.0]", "0", "4") "}", "has a dimension that is no whole number"},
      {"{" TENSOR("a", "F32", "[-1]", "0", "4") "}", "has a dimension that is no whole number"},
      {"{" TENSOR("a", "F32", "[4294967296,4294967296,2]", "0", "4") "}", "product overflows"},
      {"{" TENSOR("a", "F32", "[4611686018427387904]", "0", "4") "}", "overflows"},
      {"{" TENSOR("a", "F32", "[1]", "8", "4") "}", "has data_offsets [8, 4], which are no range"},
      {"{" TENSOR("a", "F32", "[1]", "-4", "0") "}", "has data_offsets [-4, 0]"},
      {"{" TENSOR("a", "F32", "[3]", "0", "8") "}",
       "tensor 'a' has 3 elements of type F32, but data_offsets of 8 bytes"},
      {"{" TENSOR("a", "I64", "[3]", "0", "8") "}", "tensor 'a' has 3 elements of type I64"},
      {"{" TENSOR("a", "F4", "[3]", "0", "1") "}", "tensor 'a' has 3 elements of type F4"},
      {"{" TENSOR("a", "F7", "[3]", "8", "4") "}", "has data_offsets [8, 4]"},
      {"{" TENSOR("a", "F32", "[1]", "64", "68") "}",
       "the data of tensor 'a' need 4 bytes; the whole file needs"},
      {"{" TENSOR("a", "F7", "[1]", "64", "68") "}", "the data of tensor 'a' need 4 bytes; the"},
      {"{" TENSOR("a", "U8", "[9223372036854775807]", "0", "9223372036854775807") "}",
       "has a size in bytes that overflows"},
      {"{" TENSOR("a", "U8", "[1152921504606846975]", "0", "1152921504606846975") "}",
       "the data of tensor 'a' need 1152921504606846975 bytes"},
      {"{" TENSOR("a", "F7", "[1]", "0", "9223372036854775807") "}",
       "the data of tensor 'a' need 9223372036854775807 bytes"},
      {"{" TENSOR("a", "F32", "[18446744073709551615]", "0", "4") "}", "no valid JSON"},
      {"{" TENSOR("a", "F32", "[2]", "0", "8") "," TENSOR("b", "F32", "[1]", "4", "8") "}",
       "the data of tensors 'a' and 'b' overlap"},
      {"{" TENSOR("a", "F32", "[1]", "0", "4") "," TENSOR("b", "I32", "[1]", "0", "4") "}",
       "overlap"},
      {"{\"a\\u0000b\":{}}", "no valid JSON"},
      {"{\"a\xff\":{}}", "no valid JSON"},
  };
  folder f;
  make_folder(&f);
  put_text(&f, "config.json", "{}");
  for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
    put_safetensors(&f, "x.safetensors", files[i].header);
    expect_bad_path(&f, "x.safetensors", "x.safetensors", files[i].part);
  }
  static const struct { uint64_t length; const char *part; } lengths[] = {
      {65, "the header needs 65 bytes, but the file has 72"},
      {UINT64_MAX, "the header claims 18446744073709551615 bytes"},
      {(uint64_t)1 << 63, "the header claims 9223372036854775808 bytes"},
      {UINT64_MAX - 7, "the header claims"},
      {0, "the header is no valid JSON"},
  };
  for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
    unsigned char file[72] = {0};
    memcpy(file, &lengths[i].length, 8);
    put_file(&f, "x.safetensors", file, sizeof file);
    expect_bad_path(&f, "x.safetensors", "x.safetensors", lengths[i].part);
  }
  /* gaps are nobody's loss */
  put_safetensors(&f, "x.safetensors", "{" TENSOR("a", "F32", "[1]", "8", "12") "}");
  hr_source_close(open_good(f.file));
  remove_folder(&f);
  CHECK_LEAKS();
}

Test(safetensors, deep_nesting) {
  enum { DEPTH = 200000 };
  folder f;
  make_folder(&f);
  put_text(&f, "config.json", "{}");
  char *file = malloc(8 + 2 * DEPTH);
  cr_assert(file);
  memset(file + 8, '[', DEPTH);
  memset(file + 8 + DEPTH, ']', DEPTH);
  uint64_t length = 2 * DEPTH;
  memcpy(file, &length, 8);
  put_file(&f, "x.safetensors", file, 8 + 2 * DEPTH);
  expect_bad_path(&f, "x.safetensors", "x.safetensors", "no valid JSON");
  put_safetensors(&f, "x.safetensors", "{}");
  put_file(&f, "config.json", file + 8, 2 * DEPTH);
  expect_bad_path(&f, "x.safetensors", "config.json", "no valid JSON");
  for (size_t i = 0; i < DEPTH / 8; i++) memcpy(file + 8 * i, "{\"a\":{}}", 5);
  put_file(&f, "config.json", file, DEPTH);
  expect_bad_path(&f, "x.safetensors", "config.json", "no valid JSON");
  free(file);
  remove_folder(&f);
}

Test(safetensors, bad_configs) {
  folder f;
  make_folder(&f);
  put_safetensors(&f, "model.safetensors", "{}");
  expect_bad_path(&f, NULL, "model.safetensors", "has no config.json beside it");
  static const struct { const char *text, *part; } configs[] = {
      {"", "is empty"},
      {"<html>", "is an HTML page"},
      {"version https://git-lfs.github.com/spec/v1", "is a Git LFS pointer"},
      {"[1]", "the file is a JSON array, expected an object"},
      {"{\"a\": }", "the file is no valid JSON: line 1"},
      {"{\"a\": 1, \"a\": 2}", "duplicate object key"},
      {"{\"a\": 1e999}", "no valid JSON"},
      {"{\"a\": 99999999999999999999}", "no valid JSON"},
  };
  for (size_t i = 0; i < sizeof configs / sizeof *configs; i++) {
    put_text(&f, "config.json", configs[i].text);
    expect_bad_path(&f, NULL, "config.json", configs[i].part);
  }
  remove_folder(&f);
  CHECK_LEAKS();
}

Test(safetensors, shards) {
  static const char index[] = "model.safetensors.index.json";
  folder f;
  make_folder(&f);
  put_text(&f, "config.json", config);
  put_safetensors(&f, "model-00001-of-00002.safetensors",
                  "{" TENSOR("a", "F32", "[2]", "0", "8") "}");
  put_safetensors(&f, "model-00002-of-00002.safetensors",
                  "{" TENSOR("b", "F32", "[4]", "0", "16") "}");
  expect_bad_path(&f, "model-00001-of-00002.safetensors", "model-00001-of-00002.safetensors",
                  "is one file of several, and the index");
  put_text(&f, index, "{\"weight_map\":{\"a\":\"model-00001-of-00002.safetensors\","
                      "\"b\":\"model-00002-of-00002.safetensors\"}}");
  static const char *const paths[] = {"", "/model.safetensors.index.json",
                                      "/model-00002-of-00002.safetensors"};
  for (size_t i = 0; i < 3; i++) {
    char path[160];
    snprintf(path, sizeof path, "%s%s", f.path, paths[i]);
    hr_source *source = open_good(path);
    cr_assert(hr_source_tensor_count(source) == 2);
    cr_assert(hr_source_find_tensor(source, "a")->bytes == 8);
    cr_assert(memcmp(hr_source_find_tensor(source, "b")->data, floats, 16) == 0);
    walk(source);
    hr_source_close(source);
  }
  /* memory: what the JSON library takes is its own */
  expect_memory_errors(f.path);

  static const struct { const char *text, *part; } bad[] = {
      {"{}", "has no object 'weight_map'"},
      {"{\"weight_map\":[]}", "has no object 'weight_map'"},
      {"{\"weight_map\":{\"a\":5}}", "tensor 'a' is said to be in 'something that is no string'"},
      {"{\"weight_map\":{\"a\":\"../x.safetensors\"}}", "is said to be in '../x.safetensors'"},
      {"{\"weight_map\":{\"a\":\"/etc/passwd\"}}", "is said to be in '/etc/passwd'"},
      {"{\"weight_map\":{\"a\":\"..\"}}", "is said to be in '..'"},
      {"{\"weight_map\":{\"a\":\"\"}}", "is said to be in ''"},
      {"{\"weight_map\":{\"a\":\"lost.safetensors\"}}",
       "names the file 'lost.safetensors', which is missing"},
      {"{\"weight_map\":{\"c\":\"model-00001-of-00002.safetensors\"}}",
       "tensor 'c' is not in the file 'model-00001-of-00002.safetensors'"},
      {"{\"weight_map\":{\"a\":\"model-00002-of-00002.safetensors\","
       "\"b\":\"model-00001-of-00002.safetensors\"}}", "is not in the file"},
  };
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    put_text(&f, index, bad[i].text);
    expect_bad_path(&f, NULL, index, bad[i].part);
  }
  put_text(&f, index, "{\"weight_map\":{\"a\":\"model-00001-of-00002.safetensors\","
                      "\"b\":\"model-00002-of-00002.safetensors\"}}");
  put_safetensors(&f, "model-00002-of-00002.safetensors",
                  "{" TENSOR("a", "F32", "[4]", "0", "16") "}");
  expect_bad_path(&f, NULL, "model-00001-of-00002.safetensors", "tensor 'a' occurs twice");
  put_text(&f, "model-00002-of-00002.safetensors", "cut");
  expect_bad_path(&f, NULL, "model-00002-of-00002.safetensors", "is cut short");
  remove_folder(&f);
  CHECK_LEAKS();
}

Test(safetensors, cut_at_every_byte) {
  folder f;
  make_folder(&f);
  put_text(&f, "config.json", "{}");
  put_safetensors(&f, "x.safetensors", "{" TENSOR("a", "F32", "[2,3]", "0", "24") ","
                                       TENSOR("b", "I64", "[5]", "24", "64") "}");
  unsigned char file[1024];
  FILE *in = fopen(f.file, "rb");
  cr_assert(in);
  size_t size = fread(file, 1, sizeof file, in);
  fclose(in);
  hr_source_close(open_good(f.file));
  for (size_t cut = 0; cut < size; cut++) {
    put_file(&f, "x.safetensors", file, cut);
    expect_bad_path(&f, "x.safetensors", "x.safetensors", "");
  }
  /* one byte changed: fine or not, but no crash */
  for (size_t at = 0; at + 64 < size; at++) {
    static const char bytes[] = "\0\1\377\200\"{}[],:9-";
    for (size_t i = 0; i < sizeof bytes - 1; i++) {
      unsigned char saved = file[at];
      file[at] = (unsigned char)bytes[i];
      put_file(&f, "x.safetensors", file, size);
      file[at] = saved;
      hr_error err;
      hr_source *source = hr_source_open(f.file, &err);
      if (source) walk(source);
      hr_source_close(source);
    }
  }
  remove_folder(&f);
  CHECK_LEAKS();
}

/* --- Vocabularies ---------------------------------------------------------- */

static const char *const texts[] = {"<unk>", "<s>", "</s>", "<|im_end|>", "<|end|>", "a", "ab"};
enum { TEXTS = sizeof texts / sizeof *texts };

/* Ends the writer; what is read is checked by the caller and finished by finish_vocab. */
typedef struct vocab_read {
  unsigned char *data;
  hr_source *source;
  hr_vocab_storage storage;
  hr_vocab vocab;
  bool found;
  hr_status status;
  hr_error err;
} vocab_read;

static void read_vocab(vocab_read *v, gguf_writer *w) {
  v->source = open_writer(w, &v->data);
  v->status = hr_vocab_read(v->source, &v->storage, &v->vocab, &v->found, &v->err);
}

static void finish_vocab(vocab_read *v) {
  hr_vocab_storage_finish(&v->storage);
  hr_source_close(v->source);
  free(v->data);
}

static void expect_bad_vocab(gguf_writer *w, const char *part) {
  vocab_read v;
  read_vocab(&v, w);
  cr_assert(v.status == HR_ERROR_FILE && !v.found, "read, expected '%s'", part);
  expect_error(&v.err, "mem.gguf", part);
  finish_vocab(&v);
}

static void start_spm(gguf_writer *w) {
  gguf_writer_init(w);
  gguf_put_string(w, "tokenizer.ggml.model", "llama");
  gguf_put_strings(w, "tokenizer.ggml.tokens", texts, TEXTS);
}

static void start_bpe(gguf_writer *w, const char *pre) {
  gguf_writer_init(w);
  gguf_put_string(w, "tokenizer.ggml.model", "gpt2");
  gguf_put_strings(w, "tokenizer.ggml.tokens", texts, TEXTS);
  gguf_put_strings(w, "tokenizer.ggml.merges", (const char *const[]){"a b"}, 1);
  if (pre) gguf_put_string(w, "tokenizer.ggml.pre", pre);
}

static bool adds_bos(const hr_vocab *vocab) {
  return vocab->around.before_count == 1 && vocab->around.before[0] == vocab->bos;
}

static bool adds_eos(const hr_vocab *vocab) {
  return vocab->around.after_count == 1 && vocab->around.after[0] == vocab->eos;
}

/* Files of before the key was there: what is used in its place is said. */
Test(vocab, a_pre_tokenizer_that_no_key_names_is_warned_of) {
  gguf_writer w;
  vocab_read v;
  start_bpe(&w, NULL);
  read_vocab(&v, &w);
  cr_assert(v.status == HR_OK && v.storage.pre_name && v.storage.warning);
  cr_expect_str_eq(v.storage.pre_name, "default");
  cr_expect_str_eq(v.storage.warning,
                   "mem.gguf: key 'tokenizer.ggml.pre' is missing: the pre-tokenizer \"default\" "
                   "is used, and the ids are wrong if the model was trained with another");
  hr_vocab_storage_trim(&v.storage);
  cr_expect(v.storage.warning && v.storage.pre_name);
  finish_vocab(&v);

  start_bpe(&w, "");
  read_vocab(&v, &w);
  cr_assert(v.status == HR_OK && v.storage.warning);
  cr_expect(strstr(v.storage.warning, "key 'tokenizer.ggml.pre' is empty"));
  finish_vocab(&v);

  static const char *const named[] = {"default", "gpt-2"};
  for (size_t i = 0; i < 2; i++) {
    start_bpe(&w, named[i]);
    read_vocab(&v, &w);
    cr_assert(v.status == HR_OK && v.storage.pre_name && !v.storage.warning);
    cr_expect_str_eq(v.storage.pre_name, named[i]);
    finish_vocab(&v);
  }

  start_spm(&w);
  read_vocab(&v, &w);
  cr_assert(v.status == HR_OK && !v.storage.pre_name && !v.storage.warning);
  finish_vocab(&v);
}

Test(vocab, sentencepiece) {
  static const float scores[TEXTS] = {0, 0, 0, 0, 0, -1, -2.5f};
  static const int32_t kinds[TEXTS] = {2, 3, 3, 1, 4, 0, 1};
  gguf_writer w;
  vocab_read v;
  start_spm(&w);
  read_vocab(&v, &w);
  cr_assert(v.status == HR_OK && v.found && !v.storage.unsupported);
  cr_assert(v.vocab.kind == HR_VOCAB_SPM && v.vocab.count == TEXTS);
  cr_assert(v.vocab.tokens[6].length == 2 && memcmp(v.vocab.tokens[6].text, "ab", 2) == 0);
  cr_assert(v.vocab.scores && v.vocab.scores[6] == 0);
  /* defaults, since the tokens look the part */
  cr_assert(v.vocab.bos == 1 && v.vocab.eos == 2 && v.vocab.unknown == 0);
  cr_assert(adds_bos(&v.vocab) && !adds_eos(&v.vocab) && v.vocab.strip_first_space);
  cr_assert(hr_vocab_is_end(&v.storage, 2) && hr_vocab_is_end(&v.storage, 3));
  cr_assert(hr_vocab_is_end(&v.storage, 4) && !hr_vocab_is_end(&v.storage, 5));
  cr_assert(!hr_vocab_is_end(&v.storage, -1) && v.storage.end_count == 3);
  finish_vocab(&v);

  start_spm(&w);
  gguf_put_array(&w, "tokenizer.ggml.scores", GGUF_F32, scores, TEXTS);
  gguf_put_array(&w, "tokenizer.ggml.token_type", GGUF_I32, kinds, TEXTS);
  gguf_put_u32(&w, "tokenizer.ggml.bos_token_id", UINT32_MAX);
  gguf_put_u32(&w, "tokenizer.ggml.eos_token_id", 5);
  gguf_put_i32(&w, "tokenizer.ggml.unknown_token_id", -1);
  gguf_put_u32(&w, "tokenizer.ggml.eot_token_id", 6);
  gguf_put_u32(&w, "tokenizer.ggml.eom_token_id", UINT32_MAX);
  gguf_put_bool(&w, "tokenizer.ggml.add_bos_token", true);
  gguf_put_bool(&w, "tokenizer.ggml.add_eos_token", true);
  gguf_put_bool(&w, "tokenizer.ggml.add_space_prefix", false);
  read_vocab(&v, &w);
  cr_assert(v.status == HR_OK && v.found);
  cr_assert(v.vocab.bos == -1 && v.vocab.eos == 5 && v.vocab.unknown == -1);
  cr_assert(!adds_bos(&v.vocab) && adds_eos(&v.vocab) && !v.vocab.strip_first_space);
  cr_assert(v.vocab.scores[6] == -2.5f);
  /* a marker that was marked normal is control; 0 is normal; </s> counts as a control token */
  cr_assert(v.vocab.kinds[3] == HR_TOKEN_CONTROL && v.vocab.kinds[4] == HR_TOKEN_USER);
  cr_assert(v.vocab.kinds[5] == HR_TOKEN_NORMAL);
  static const int32_t ends[] = {2, 3, 4, 5, 6};
  cr_assert(v.storage.end_count == 5 && memcmp(v.storage.ends, ends, sizeof ends) == 0);
  finish_vocab(&v);
  CHECK_LEAKS();
}

Test(vocab, byte_level) {
  static const struct { const char *pre; bool add_bos, ignore_merges; } defaults[] = {
      {NULL, false, false}, {"gpt-2", false, false}, {"qwen2", false, false},
      {"llama-bpe", true, true}, {"tekken", true, true}};
  gguf_writer w;
  vocab_read v;
  for (size_t i = 0; i < sizeof defaults / sizeof *defaults; i++) {
    start_bpe(&w, defaults[i].pre);
    gguf_put_u32(&w, "tokenizer.ggml.bos_token_id", 1);
    read_vocab(&v, &w);
    cr_assert(v.status == HR_OK && v.found && v.vocab.kind == HR_VOCAB_BPE);
    hr_step_list steps;
    cr_assert(hr_named_pre_tokenizer(defaults[i].pre, &steps) && v.vocab.byte_level);
    cr_assert(v.vocab.pre_tokenizer.count == steps.count);
    cr_assert(v.vocab.pre_tokenizer.step->pattern.text == steps.step->pattern.text);
    cr_assert(adds_bos(&v.vocab) == defaults[i].add_bos);
    cr_assert(v.vocab.ignore_merges == defaults[i].ignore_merges);
    cr_assert(!adds_eos(&v.vocab) && !v.vocab.strip_first_space && !v.vocab.scores);
    cr_assert(v.vocab.eos == -1 && v.vocab.unknown == -1 && v.vocab.merge_count == 1);
    cr_assert(v.vocab.merges[0].left.length == 1 && *v.vocab.merges[0].left.text == 'a');
    cr_assert(v.vocab.merges[0].right.length == 1 && *v.vocab.merges[0].right.text == 'b');
    finish_vocab(&v);
  }
  start_bpe(&w, "llama-bpe");
  gguf_put_u32(&w, "tokenizer.ggml.bos_token_id", 1);
  gguf_put_bool(&w, "tokenizer.ggml.add_bos_token", false);
  read_vocab(&v, &w);
  cr_assert(v.status == HR_OK && !adds_bos(&v.vocab) && v.vocab.ignore_merges);
  finish_vocab(&v);
  CHECK_LEAKS();
}

/* No key tells it: the tokens of these families take in the white space beside them. */
Test(vocab, spaces_beside_tokens) {
  static const char *const tokens[] = {"<unk>", "<s>", "</s>", "<|end|>", "<|endoftext|>", "a",
                                       "<mask>"};
  static const int32_t kinds[] = {2, 3, 3, 3, 3, 1, 3};
  static const uint8_t phi[] = {0, 0, HR_ADDED_RSTRIP, HR_ADDED_RSTRIP, 0, 0, HR_ADDED_RSTRIP};
  static const uint8_t jina[] = {0, 0, 0, 0, 0, 0, HR_ADDED_LSTRIP};
  gguf_writer w;
  vocab_read v;
  gguf_writer_init(&w);
  gguf_put_string(&w, "general.name", "Phi 3 or Phi-3 mini");
  gguf_put_string(&w, "tokenizer.ggml.model", "llama");
  gguf_put_strings(&w, "tokenizer.ggml.tokens", tokens, 7);
  gguf_put_array(&w, "tokenizer.ggml.token_type", GGUF_I32, kinds, 7);
  read_vocab(&v, &w);
  cr_assert(v.found && v.vocab.added && memcmp(v.vocab.added, phi, sizeof phi) == 0);
  finish_vocab(&v);
  gguf_writer_init(&w);
  gguf_put_string(&w, "tokenizer.ggml.model", "gpt2");
  gguf_put_string(&w, "tokenizer.ggml.pre", "jina-v2-code");
  gguf_put_strings(&w, "tokenizer.ggml.tokens", tokens, 7);
  gguf_put_array(&w, "tokenizer.ggml.token_type", GGUF_I32, kinds, 7);
  gguf_put_strings(&w, "tokenizer.ggml.merges", NULL, 0);
  read_vocab(&v, &w);
  cr_assert(v.found && v.vocab.added && memcmp(v.vocab.added, jina, sizeof jina) == 0);
  finish_vocab(&v);
  start_spm(&w);
  read_vocab(&v, &w);
  cr_assert(v.found && !v.vocab.added);
  finish_vocab(&v);
  CHECK_LEAKS();
}

Test(vocab, ends_of_channels) {
  static const char *const tokens[] = {"<|end|>", "<|return|>", "<|call|>", "<|start|>",
                                       "</s>", "<|tool_response>"};
  gguf_writer w;
  vocab_read v;
  gguf_writer_init(&w);
  gguf_put_string(&w, "tokenizer.ggml.model", "gpt2");
  gguf_put_strings(&w, "tokenizer.ggml.tokens", tokens, 4);
  gguf_put_strings(&w, "tokenizer.ggml.merges", NULL, 0);
  read_vocab(&v, &w);
  cr_assert(v.found && v.storage.end_count == 2 && !hr_vocab_is_end(&v.storage, 0));
  cr_assert(v.vocab.kinds[0] == HR_TOKEN_USER);
  finish_vocab(&v);
  gguf_writer_init(&w);
  gguf_put_string(&w, "tokenizer.ggml.model", "llama");
  gguf_put_strings(&w, "tokenizer.ggml.tokens", tokens, 6);
  gguf_put_array(&w, "tokenizer.ggml.token_type", GGUF_I32, (int32_t[]){3, 3, 3, 3, 3, 3}, 6);
  read_vocab(&v, &w);
  cr_assert(v.found && !hr_vocab_is_end(&v.storage, 4) && hr_vocab_is_end(&v.storage, 5));
  finish_vocab(&v);
  CHECK_LEAKS();
}

Test(vocab, others) {
  static const char *const bert[] = {"[PAD]", "[CLS]", "[SEP]", "[UNK]"};
  gguf_writer w;
  vocab_read v;
  gguf_writer_init(&w);
  gguf_put_string(&w, "tokenizer.ggml.model", "bert");
  gguf_put_strings(&w, "tokenizer.ggml.tokens", bert, 4);
  gguf_put_u32(&w, "tokenizer.ggml.cls_token_id", 1);
  gguf_put_u32(&w, "tokenizer.ggml.seperator_token_id", 2);
  gguf_put_u32(&w, "tokenizer.ggml.unknown_token_id", 3);
  read_vocab(&v, &w);
  cr_assert(v.found && v.vocab.kind == HR_VOCAB_WORDPIECE);
  cr_assert(v.vocab.bos == 1 && v.vocab.eos == 2 && v.vocab.unknown == 3);
  cr_assert(adds_bos(&v.vocab) && adds_eos(&v.vocab) && v.vocab.normalizer.count == 1);
  cr_assert(v.vocab.normalizer.step->kind == HR_STEP_BERT && v.vocab.normalizer.step->flags == 0);
  finish_vocab(&v);
  gguf_writer_init(&w);
  gguf_put_string(&w, "tokenizer.ggml.model", "t5");
  gguf_put_strings(&w, "tokenizer.ggml.tokens", (const char *const[]){"<pad>", "</s>", "<unk>"}, 3);
  gguf_put_array(&w, "tokenizer.ggml.precompiled_charsmap", GGUF_I8, "\1\xff\0", 3);
  gguf_put_bool(&w, "tokenizer.ggml.remove_extra_whitespaces", true);
  read_vocab(&v, &w);
  cr_assert(v.found && v.vocab.kind == HR_VOCAB_UNIGRAM && v.vocab.normalizer.count == 1);
  const hr_text_step *whole = v.vocab.normalizer.step;
  cr_assert(whole->kind == HR_STEP_SENTENCEPIECE && whole->flags == HR_SPM_MERGE_SPACES);
  cr_assert(v.vocab.bos == -1 && v.vocab.eos == 1 && v.vocab.unknown == 2 && adds_eos(&v.vocab));
  cr_assert(whole->content.length == 3 && memcmp(whole->content.text, "\1\xff\0", 3) == 0);
  finish_vocab(&v);
  /* no vocabulary: no error */
  static const char *const none[] = {NULL, "none", "no_vocab"};
  for (size_t i = 0; i < 3; i++) {
    gguf_writer_init(&w);
    if (none[i]) gguf_put_string(&w, "tokenizer.ggml.model", none[i]);
    read_vocab(&v, &w);
    cr_assert(v.status == HR_OK && !v.found && !v.storage.unsupported);
    finish_vocab(&v);
  }
  /* one that can't be read: no error either, but its name */
  gguf_writer_init(&w);
  gguf_put_string(&w, "tokenizer.ggml.model", "rwkv");
  read_vocab(&v, &w);
  cr_assert(v.status == HR_OK && !v.found);
  cr_assert_str_eq(v.storage.unsupported, "rwkv");
  finish_vocab(&v);
  CHECK_LEAKS();
}

Test(vocab, bad) {
  gguf_writer w;
  gguf_writer_init(&w);
  gguf_put_u32(&w, "tokenizer.ggml.model", 3);
  expect_bad_vocab(&w, "key 'tokenizer.ggml.model' has type uint32, expected a string");
  gguf_writer_init(&w);
  gguf_put_string(&w, "tokenizer.ggml.model", "llama");
  expect_bad_vocab(&w, "key 'tokenizer.ggml.tokens' is missing, expected an array of 1 to");
  gguf_writer_init(&w);
  gguf_put_string(&w, "tokenizer.ggml.model", "llama");
  gguf_put_strings(&w, "tokenizer.ggml.tokens", NULL, 0);
  expect_bad_vocab(&w, "key 'tokenizer.ggml.tokens' is empty");
  start_spm(&w);
  gguf_put_array(&w, "tokenizer.ggml.scores", GGUF_F32, floats, TEXTS - 1);
  expect_bad_vocab(&w, "key 'tokenizer.ggml.scores' has 6 elements, but 'tokenizer.ggml.tokens' "
                       "has 7");
  start_spm(&w);
  gguf_put_array(&w, "tokenizer.ggml.token_type", GGUF_I32, floats, TEXTS + 1);
  expect_bad_vocab(&w, "key 'tokenizer.ggml.token_type' has 8 elements, but");
  start_spm(&w);
  gguf_put_array(&w, "tokenizer.ggml.token_type", GGUF_I32, (int32_t[TEXTS]){1, 1, 1, 1, 1, 7},
                 TEXTS);
  expect_bad_vocab(&w, "element 5 of key 'tokenizer.ggml.token_type' is 7, expected 1 to 6");
  start_spm(&w);
  gguf_put_array(&w, "tokenizer.ggml.scores", GGUF_F32, (float[TEXTS]){0, NAN}, TEXTS);
  expect_bad_vocab(&w, "element 1 of key 'tokenizer.ggml.scores' is NaN");
  start_spm(&w);
  gguf_put_u32(&w, "tokenizer.ggml.eos_token_id", TEXTS);
  expect_bad_vocab(&w, "key 'tokenizer.ggml.eos_token_id' is 7, expected an id below 7 or none");
  start_spm(&w);
  gguf_put_u32(&w, "tokenizer.ggml.eot_token_id", 1000);
  expect_bad_vocab(&w, "key 'tokenizer.ggml.eot_token_id' is 1000");
  start_spm(&w);
  gguf_put_u32(&w, "tokenizer.ggml.add_bos_token", 1);
  expect_bad_vocab(&w, "key 'tokenizer.ggml.add_bos_token' has type uint32, expected true");
  gguf_writer_init(&w);
  gguf_put_string(&w, "tokenizer.ggml.model", "gpt2");
  gguf_put_strings(&w, "tokenizer.ggml.tokens", texts, TEXTS);
  expect_bad_vocab(&w, "key 'tokenizer.ggml.merges' is missing");
  start_bpe(&w, "no-such");
  expect_bad_vocab(&w, "pre-tokenizer \"no-such\" is not known");
  static const char *const merges[] = {"ab", "", " ", "a ", " a"};
  for (size_t i = 0; i < sizeof merges / sizeof *merges; i++) {
    gguf_writer_init(&w);
    gguf_put_string(&w, "tokenizer.ggml.model", "gpt2");
    gguf_put_strings(&w, "tokenizer.ggml.tokens", texts, TEXTS);
    gguf_put_strings(&w, "tokenizer.ggml.merges", &merges[i], 1);
    expect_bad_vocab(&w, "expected two tokens");
  }
  CHECK_LEAKS();
}

/* --- Real files ------------------------------------------------------------ */

/* Opens data/NAME when there is test data; otherwise the test has nothing to do. */
static const char *data_path(char buffer[512], const char *name) {
  const char *data = getenv("HEADROW_TEST_DATA");
  if (!data || !*data) cr_skip_test("HEADROW_TEST_DATA is not set");
  snprintf(buffer, 512, "%s/%s", data, name);
  return buffer;
}

typedef struct expected_file {
  const char *name;
  size_t tensors, vocabulary; /* 0 of the latter: none */
} expected_file;

static void check_files(const expected_file *files, size_t count) {
  for (size_t i = 0; i < count; i++) {
    char path[512];
    hr_vocab_storage storage;
    hr_vocab vocab;
    bool found;
    hr_error err;
    hr_source *source = open_good(data_path(path, files[i].name));
    cr_assert(hr_source_tensor_count(source) == files[i].tensors, "%s: %zu", path,
              hr_source_tensor_count(source));
    cr_assert(hr_vocab_read(source, &storage, &vocab, &found, &err) == HR_OK, "%s", err.message);
    cr_assert(found == (files[i].vocabulary > 0));
    cr_assert(!found || vocab.count == files[i].vocabulary, "%s: %zu", path, vocab.count);
    walk(source);
    hr_vocab_storage_finish(&storage);
    hr_source_close(source);
  }
}

Test(real, gguf) {
  static const expected_file files[] = {
      {"stories260K/stories260K.gguf", 48, 512},
      {"stories260K/stories260K-f16.gguf", 48, 512},
      {"stories260K/stories260K-bf16.gguf", 48, 512},
      {"stories260K/stories260K-q8_0.gguf", 48, 512},
      {"tinystories-656k/tinystories656k-f32.gguf", 20, 2048},
      {"tinystories-656k/tinystories656k-f16.gguf", 20, 2048},
      {"tinystories-656k/tinystories656k-bf16.gguf", 20, 2048},
      {"tinystories-656k/tinystories656k-q8_0.gguf", 20, 2048},
      {"tinystories-656k/tinystories656k-q6_k.gguf", 20, 2048},
      {"tinystories-656k/tinystories656k-q4_0.gguf", 20, 2048},
      {"tinystories-656k/tinystories656k-q4_1.gguf", 20, 2048},
      {"tinystories-656k/tinystories656k-q5_0.gguf", 20, 2048},
      {"tinystories-656k/tinystories656k-q5_1.gguf", 20, 2048},
      {"fixtures/tiny_llama_f32.gguf", 21, 11},
      {"fixtures/tiny_llama_f16.gguf", 21, 11},
      {"fixtures/tiny_llama_q8.gguf", 20, 8},
      {"vocab/ggml-vocab-gpt-2.gguf", 0, 50257},
      {"vocab/ggml-vocab-llama-spm.gguf", 0, 32000},
      {"vocab/ggml-vocab-phi-3.gguf", 0, 32064},
      {"vocab/ggml-vocab-mpt.gguf", 0, 50432},
      {"vocab/ggml-vocab-starcoder.gguf", 0, 49152},
      {"vocab/ggml-vocab-deepseek-coder.gguf", 0, 32256},
      {"vocab/ggml-vocab-bert-bge.gguf", 0, 30522},
  };
  check_files(files, sizeof files / sizeof *files);
}

Test(real, safetensors) {
  static const expected_file files[] = {
      {"tinystories-656k", 20, 2048},
      {"tinystories-656k/model.safetensors", 20, 2048},
      {"gpt-nano-sort", 38, 0},
      {"fixtures/tiny_llama.safetensors", 22, 0},
      {"fixtures/tiny_llama.safetensors.index.json", 22, 0},
      {"fixtures/tiny_llama-00002-of-00002.safetensors", 22, 0},
      {"fixtures/tiny_qwen3.safetensors", 25, 0},
      {"fixtures/tiny_smollm2.safetensors", 20, 0},
  };
  check_files(files, sizeof files / sizeof *files);
}

Test(real, safetensors_and_gguf_agree) {
  char path[512], other[512];
  hr_source *gguf = open_good(data_path(path, "fixtures/tiny_llama_f32.gguf"));
  hr_source *st = open_good(data_path(other, "fixtures/tiny_llama.safetensors"));
  const hr_tensor *a = hr_source_find_tensor(gguf, "token_embd.weight");
  const hr_tensor *b = hr_source_find_tensor(st, "model.embed_tokens.weight");
  cr_assert(a && b && a->dims == 2 && b->dims == 2);
  cr_assert(a->dim[0] == b->dim[0] && a->dim[1] == b->dim[1]);
  cr_assert(a->bytes == b->bytes && memcmp(a->data, b->data, a->bytes) == 0);
  hr_source_close(gguf);
  hr_source_close(st);
}

Test(real, without_config) {
  char path[512];
  folder f;
  data_path(path, "tiny-gpt2/model.safetensors");
  make_folder(&f);
  cr_assert(symlink(path, in_folder(&f, "model.safetensors")) == 0);
  expect_bad_path(&f, NULL, "model.safetensors", "has no config.json beside it");
  put_text(&f, "config.json", "{\"model_type\": \"gpt2\"}");
  hr_source *source = open_good(f.path);
  walk(source);
  cr_assert(hr_source_tensor_count(source) > 20);
  hr_source_close(source);
  remove_folder(&f);
}
