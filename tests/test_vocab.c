/* SPDX-License-Identifier: MIT
 * Tokenizers from files of their own: tokenizer.json and SentencePiece's .model. */
#include <criterion/criterion.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "model/source.h"
#include "model/vocab.h"
#include "text/tokenizer.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))
#define PLAIN 0u
#define SPECIAL ((unsigned)HR_TOKENIZE_SPECIAL)
#define PARSE ((unsigned)HR_TOKENIZE_PARSE_SPECIAL)

/* --- Opening and comparing -------------------------------------------------- */

static hr_tokenizer *create(hr_vocab_storage *storage, const hr_vocab *vocab) {
  hr_error err = {0};
  hr_tokenizer *t = hr_tokenizer_create(vocab, &err);
  cr_assert(t, "%s", err.message);
  hr_vocab_storage_finish(storage);
  return t;
}

static hr_tokenizer *open_file(const char *path, const char *config) {
  hr_vocab_storage storage;
  hr_vocab vocab;
  hr_error err = {0};
  cr_assert_eq(hr_vocab_read_file(path, config, &storage, &vocab, &err), HR_OK, "%s", err.message);
  return create(&storage, &vocab);
}

static void print_ids(char *out, size_t size, const int32_t *ids, size_t count) {
  size_t n = 0;
  *out = '\0';
  for (size_t i = 0; i < count && n + 12 < size; i++)
    n += (size_t)snprintf(out + n, size - n, i ? " %d" : "%d", ids[i]);
}

static void expect_ids(const hr_tokenizer *t, const char *what, const char *text, size_t length,
                       unsigned flags, const int32_t *expected, size_t expected_count) {
  hr_error err = {0};
  int32_t *ids = NULL;
  size_t count = 0;
  cr_assert_eq(hr_tokenizer_encode(t, text, length, flags, &ids, &count, &err), HR_OK, "%s",
               err.message);
  bool same =
      count == expected_count && (!count || memcmp(ids, expected, count * sizeof *ids) == 0);
  char got[400], wanted[400];
  print_ids(got, sizeof got, ids, count);
  print_ids(wanted, sizeof wanted, expected, expected_count);
  cr_expect(same, "%s: \"%.*s\": got %s, expected %s", what, (int)length, text, got, wanted);
  hr_free(ids);
}

#define EXPECT(t, text, flags, ...)                                                         \
  do {                                                                                      \
    const int32_t expected_[] = {__VA_ARGS__};                                              \
    expect_ids((t), "ids", (text), sizeof(text) - 1, (flags), expected_, COUNT(expected_)); \
  } while (0)

/* The text of ids without the control tokens; the caller frees it. */
static char *decode(const hr_tokenizer *t, const int32_t *ids, size_t count, size_t *length) {
  size_t bytes = 1;
  for (size_t i = 0; i < count; i++) bytes += hr_tokenizer_text(t, ids[i], false).length;
  char *text = calloc(bytes, 1);
  *length = 0;
  for (size_t i = 0; i < count; i++) {
    hr_piece piece = hr_tokenizer_text(t, ids[i], false);
    memcpy(text + *length, piece.text, piece.length);
    *length += piece.length;
  }
  if (hr_tokenizer_strips_first_space(t) && *text == ' ') memmove(text, text + 1, --*length);
  return text;
}

static void expect_text(const hr_tokenizer *t, const char *what, const int32_t *ids, size_t count,
                        const char *expected, size_t expected_length) {
  size_t length;
  char *text = decode(t, ids, count, &length);
  cr_expect(length == expected_length && memcmp(text, expected, length) == 0,
            "%s: \"%.*s\", expected \"%.*s\"", what, (int)length, text, (int)expected_length,
            expected);
  free(text);
}

/* --- Other implementations' results -------------------------------------------- */

static const char *test_data(void) {
  const char *folder = getenv("HEADROW_TEST_DATA");
  if (!folder || !*folder) cr_skip("HEADROW_TEST_DATA is not set");
  return folder;
}

static size_t read_ids(const json_t *list, int32_t *ids, size_t capacity) {
  size_t count = json_array_size(list);
  cr_assert_leq(count, capacity);
  for (size_t i = 0; i < count; i++) ids[i] = (int32_t)json_integer_value(json_array_get(list, i));
  return count;
}

/* {"text", "ids", "decoded"}: ids out equal, and the text of the ids. */
static void check_cases(const hr_tokenizer *t, const char *what, const json_t *cases) {
  for (size_t i = 0; i < json_array_size(cases); i++) {
    const json_t *one = json_array_get(cases, i), *text = json_object_get(one, "text");
    const json_t *decoded = json_object_get(one, "decoded");
    int32_t ids[512];
    size_t count = read_ids(json_object_get(one, "ids"), ids, COUNT(ids));
    expect_ids(t, what, json_string_value(text), json_string_length(text), PARSE, ids, count);
    expect_text(t, what, ids, count, json_string_value(decoded), json_string_length(decoded));
  }
}

Test(real, cases_of_every_kind) {
  char path[1024];
  json_error_t fault;
  snprintf(path, sizeof path, "%s/fixtures/hf_tokenizer_cases.json", test_data());
  json_t *root = json_load_file(path, JSON_ALLOW_NUL, &fault), *kind;
  cr_assert(root, "%s", fault.text);
  const char *name;
  size_t checked = 0;
  json_object_foreach(root, name, kind) {
    snprintf(path, sizeof path, "%s/fixtures/%s", test_data(),
             json_string_value(json_object_get(kind, "tokenizer")));
    if (access(path, R_OK) != 0) continue; /* one of them is not in the folder */
    hr_tokenizer *t = open_file(path, NULL);
    check_cases(t, name, json_object_get(kind, "cases"));
    hr_tokenizer_free(t);
    checked++;
  }
  cr_expect_eq(checked, 17);
  json_decref(root);
}
