/* SPDX-License-Identifier: MIT
 * Tokenizers: small vocabularies with results worked out by hand, and real ones
 * where HEADROW_TEST_DATA names a folder that has them. */
#include <criterion/criterion.h>
#include <float.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/memory.h"
#include "model/source.h"
#include "model/vocab.h"
#include "text/steps.h"
#include "text/tokenizer.h"
#include "text/utf8_stream.h"
#include "tests/support/sanitized.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))
#define MARK "\xe2\x96\x81"
#define PLAIN 0u
#define SPECIAL ((unsigned)HR_TOKENIZE_SPECIAL)
#define PARSE ((unsigned)HR_TOKENIZE_PARSE_SPECIAL)

/* --- Vocabularies under construction ---------------------------------------- */

#define MAX_TOKENS 600
#define MAX_MERGES 32

typedef struct builder {
  hr_vocab vocab;
  hr_piece tokens[MAX_TOKENS];
  hr_merge merges[MAX_MERGES];
  hr_text_step normalizer[4], decoder[2];
  float scores[MAX_TOKENS];
  int32_t kinds[MAX_TOKENS];
  char texts[MAX_TOKENS][24];
} builder;

static const hr_text_step spaces_to_marks = {
    .kind = HR_STEP_REPLACE, .literal = true, .pattern = {" ", 1}, .content = {MARK, 3}};
static const hr_text_step marks_to_spaces = {
    .kind = HR_STEP_REPLACE, .literal = true, .pattern = {MARK, 3}, .content = {" ", 1}};
static const hr_text_step mark_in_front = {.kind = HR_STEP_PREPEND, .content = {MARK, 3}};

static void begin(builder *b, hr_vocab_kind kind) {
  memset(b, 0, sizeof *b);
  b->vocab = (hr_vocab){.kind = kind,
                        .where = "small.gguf",
                        .tokens = b->tokens,
                        .kinds = b->kinds,
                        .merges = b->merges,
                        .bos = -1,
                        .eos = -1,
                        .unknown = -1};
  b->vocab.normalizer.step = b->normalizer;
  b->vocab.decoder.step = b->decoder;
  if (kind == HR_VOCAB_SPM || kind == HR_VOCAB_UNIGRAM) b->vocab.scores = b->scores;
  if (kind != HR_VOCAB_BPE) b->decoder[b->vocab.decoder.count++] = marks_to_spaces;
}

static void normalize(builder *b, hr_text_step step) {
  cr_assert_lt(b->vocab.normalizer.count, COUNT(b->normalizer));
  b->normalizer[b->vocab.normalizer.count++] = step;
}

static void around(builder *b, bool bos, bool eos) {
  hr_template *t = &b->vocab.around;
  t->before_count = bos && b->vocab.bos >= 0;
  t->after_count = eos && b->vocab.eos >= 0;
  t->before[0] = b->vocab.bos;
  t->after[0] = b->vocab.eos;
}

static void pre_tokenize(builder *b, const char *name) {
  cr_assert(hr_named_pre_tokenizer(name, &b->vocab.pre_tokenizer), "%s", name);
}

static int32_t add(builder *b, const char *text, hr_token_kind kind, float score) {
  size_t i = b->vocab.count++;
  cr_assert_lt(i, MAX_TOKENS);
  snprintf(b->texts[i], sizeof b->texts[i], "%s", text);
  b->tokens[i] = (hr_piece){b->texts[i], strlen(b->texts[i])};
  b->kinds[i] = (int32_t)kind;
  b->scores[i] = score;
  return (int32_t)i;
}

static void add_merge(builder *b, const char *text) {
  const char *space = strchr(text, ' ');
  cr_assert(space);
  b->merges[b->vocab.merge_count++] =
      (hr_merge){{text, (size_t)(space - text)}, {space + 1, strlen(space + 1)}};
}

static hr_tokenizer *make(const hr_vocab *vocab) {
  hr_error err = {0};
  hr_tokenizer *t = hr_tokenizer_create(vocab, &err);
  cr_assert(t, "%s", err.message);
  return t;
}

static void expect_refused(const hr_vocab *vocab, const char *part) {
  hr_error err = {0};
  cr_assert_null(hr_tokenizer_create(vocab, &err));
  cr_assert_eq(err.status, HR_ERROR_FILE);
  cr_assert(strstr(err.message, part), "\"%s\" lacks \"%s\"", err.message, part);
  cr_assert_null(hr_tokenizer_create(vocab, NULL));
}

/* --- Comparing --------------------------------------------------------------- */

static void print_ids(char *out, size_t size, const int32_t *ids, size_t count) {
  size_t n = 0;
  *out = '\0';
  for (size_t i = 0; i < count && n + 12 < size; i++)
    n += (size_t)snprintf(out + n, size - n, i ? " %d" : "%d", ids[i]);
}

static bool encodes_as(const hr_tokenizer *t, const char *text, size_t length, unsigned flags,
                       const int32_t *expected, size_t expected_count) {
  hr_error err = {0};
  int32_t *ids = NULL;
  size_t count = 0;
  hr_status status = hr_tokenizer_encode(t, text, length, flags, &ids, &count, &err);
  cr_assert_eq(status, HR_OK, "%s", err.message);
  bool same =
      count == expected_count && (!count || memcmp(ids, expected, count * sizeof *ids) == 0);
  if (!same) {
    char got[400], wanted[400];
    print_ids(got, sizeof got, ids, count);
    print_ids(wanted, sizeof wanted, expected, expected_count);
    cr_log_error("\"%.*s\": got %s, expected %s", (int)length, text, got, wanted);
  }
  hr_free(ids);
  return same;
}

#define EXPECT(t, text, flags, ...)                                                             \
  do {                                                                                          \
    const int32_t expected_[] = {__VA_ARGS__};                                                  \
    cr_expect(encodes_as((t), (text), sizeof(text) - 1, (flags), expected_, COUNT(expected_))); \
  } while (0)
#define EXPECT_NONE(t, text, flags) \
  cr_expect(encodes_as((t), (text), sizeof(text) - 1, (flags), NULL, 0))

/* The text of the ids in a row; the caller frees it. */
static char *decode(const hr_tokenizer *t, const int32_t *ids, size_t count, bool with_special,
                    size_t *length) {
  size_t bytes = 1;
  for (size_t i = 0; i < count; i++) bytes += hr_tokenizer_text(t, ids[i], with_special).length;
  char *text = calloc(bytes, 1);
  *length = 0;
  for (size_t i = 0; i < count; i++) {
    hr_piece piece = hr_tokenizer_text(t, ids[i], with_special);
    memcpy(text + *length, piece.text, piece.length);
    *length += piece.length;
  }
  return text;
}

/* Whether text comes back, but for a space in front where the tokenizer says so. */
static bool round_trips(const hr_tokenizer *t, const char *text, size_t length) {
  int32_t *ids = NULL;
  size_t count = 0, bytes = 0;
  hr_error err = {0};
  cr_assert_eq(hr_tokenizer_encode(t, text, length, PLAIN, &ids, &count, &err), HR_OK, "%s",
               err.message);
  char *back = decode(t, ids, count, false, &bytes), *start = back;
  if (hr_tokenizer_strips_first_space(t) && bytes > 0 && *start == ' ') {
    start++;
    bytes--;
  }
  bool same = bytes == length && memcmp(start, text, length) == 0;
  free(back);
  hr_free(ids);
  return same;
}

/* --- UTF-8 ------------------------------------------------------------------- */

Test(utf8, lengths) {
  static const struct {
    const char *text;
    size_t bytes, expected;
  } cases[] = {
      {"", 0, 0},
      {"a", 1, 1},
      {"\0", 1, 1},
      {"\x7f", 1, 1},
      {"\xc3\xa9", 2, 2},
      {"\xc3\xa9", 1, 0},
      {"\xe2\x96\x81", 3, 3},
      {"\xe2\x96\x81", 2, 0},
      {"\xf0\x9f\x98\x80", 4, 4},
      {"\xf0\x9f\x98\x80", 3, 0},
      {"\xc0\x80", 2, 0},
      {"\xc1\xbf", 2, 0}, /* overlong */
      {"\xe0\x9f\xbf", 3, 0},
      {"\xe0\xa0\x80", 3, 3},
      {"\xf0\x8f\xbf\xbf", 4, 0},
      {"\xf0\x90\x80\x80", 4, 4},
      {"\xed\x9f\xbf", 3, 3},
      {"\xed\xa0\x80", 3, 0}, /* surrogates */
      {"\xed\xbf\xbf", 3, 0},
      {"\xee\x80\x80", 3, 3},
      {"\xf4\x8f\xbf\xbf", 4, 4},
      {"\xf4\x90\x80\x80", 4, 0}, /* above U+10FFFF */
      {"\xf5\x80\x80\x80", 4, 0},
      {"\xff", 1, 0},
      {"\x80", 1, 0},
      {"\xbf", 1, 0},
      {"\xe2\x28\xa1", 3, 0},
      {"\xe2\x96\x28", 3, 0},
  };
  for (size_t i = 0; i < COUNT(cases); i++)
    cr_expect_eq(hr_utf8_length(cases[i].text, cases[i].bytes), cases[i].expected, "case %zu", i);
}

Test(utf8, every_code_point_there_and_back) {
  for (uint32_t code = 0; code <= 0x10ffff; code++) {
    char text[4];
    size_t bytes = hr_utf8_encode(code, text);
    bool surrogate = code >= 0xd800 && code <= 0xdfff;
    cr_assert_eq(hr_utf8_length(text, bytes), surrogate ? 0 : bytes);
    cr_assert_eq(hr_utf8_decode(text, bytes), code);
  }
}

Test(utf8, whole) {
  static const struct {
    const char *text;
    size_t bytes, expected;
  } cases[] = {
      {"", 0, 0},
      {"abc", 3, 3},
      {"a\xc3", 2, 1}, /* a code point may follow */
      {"a\xc3\xa9", 3, 3},
      {"a\xe2", 2, 1},
      {"a\xe2\x96", 3, 1},
      {"a\xe2\x96\x81", 4, 4},
      {"\xf0", 1, 0},
      {"\xf0\x9f", 2, 0},
      {"\xf0\x9f\x98", 3, 0},
      {"\xf0\x9f\x98\x80", 4, 4},
      {"\xf0\x9f\x98\x80\xf0", 5, 4},
      {"\x80", 1, 1}, /* these can't become one */
      {"\x80\x80\x80\x80", 4, 4},
      {"\xff", 1, 1},
      {"\xc0", 1, 1},
      {"\xe0\x80", 2, 2},
      {"\xed\xa0", 2, 2},
      {"\xf4\x90", 2, 2},
      {"\xf0\x8f\xbf", 3, 3},
      {"\xc3\xa9\xa9", 3, 3},
      {"\xe2\x28", 2, 2},
      {"\xf0\x9f\x28", 3, 3},
  };
  for (size_t i = 0; i < COUNT(cases); i++)
    cr_expect_eq(hr_utf8_whole(cases[i].text, cases[i].bytes), cases[i].expected, "case %zu", i);
}

/* --- SentencePiece BPE -------------------------------------------------------- */

enum { SPM_UNK, SPM_BOS, SPM_EOS, SPM_BYTE };
enum {
  SPM_SPACE = SPM_BYTE + 256,
  SPM_A,
  SPM_B,
  SPM_AB,
  SPM__A,
  SPM__AB,
  SPM_BA,
  SPM_SPACES,
  SPM_USER,
  SPM_BB,
  SPM_BBA,
  SPM_TAIL,
  SPM_S
};

static void build_spm(builder *b, bool bytes) {
  begin(b, HR_VOCAB_SPM);
  add(b, "<unk>", HR_TOKEN_UNKNOWN, 0);
  add(b, "<s>", HR_TOKEN_CONTROL, 0);
  add(b, "</s>", HR_TOKEN_CONTROL, 0);
  for (unsigned i = 0; i < 256; i++) {
    char text[12];
    snprintf(text, sizeof text, bytes ? "<0x%02X>" : "unused%u", i);
    add(b, text, bytes ? HR_TOKEN_BYTE : HR_TOKEN_UNUSED, 0);
  }
  add(b, MARK, HR_TOKEN_NORMAL, -9);
  add(b, "a", HR_TOKEN_NORMAL, -9);
  add(b, "b", HR_TOKEN_NORMAL, -9);
  add(b, "ab", HR_TOKEN_NORMAL, -1);
  add(b, MARK "a", HR_TOKEN_NORMAL, -2);
  add(b, MARK "ab", HR_TOKEN_NORMAL, -3);
  add(b, "ba", HR_TOKEN_NORMAL, -0.5f);
  add(b, MARK MARK, HR_TOKEN_NORMAL, -4);
  add(b, "<U>", HR_TOKEN_USER, 0);
  add(b, "bb", HR_TOKEN_UNUSED, -0.1f);
  add(b, "bba", HR_TOKEN_NORMAL, -0.2f);
  add(b, "s>", HR_TOKEN_NORMAL, -5);
  add(b, "<s", HR_TOKEN_NORMAL, -5);
  b->vocab.bos = SPM_BOS;
  b->vocab.eos = SPM_EOS;
  b->vocab.unknown = SPM_UNK;
  b->vocab.fuse_unknown = b->vocab.strip_first_space = true;
  around(b, true, false);
  normalize(b, mark_in_front);
  normalize(b, spaces_to_marks);
}

static hr_tokenizer *small_spm(void) {
  builder b;
  build_spm(&b, true);
  return make(&b.vocab);
}

Test(spm, joins_by_score) {
  hr_tokenizer *t = small_spm();
  EXPECT_NONE(t, "", PLAIN);
  EXPECT(t, "a", PLAIN, SPM__A);
  EXPECT(t, "ab", PLAIN, SPM__AB);
  EXPECT(t, "aba", PLAIN, SPM__A, SPM_BA);         /* "ba" is better than the space with "a" */
  EXPECT(t, "abab", PLAIN, SPM__A, SPM_BA, SPM_B); /* ba, then the space with a, nothing for b */
  EXPECT(t, "bba", PLAIN, SPM_SPACE, SPM_BBA);
  EXPECT(t, "a b", PLAIN, SPM__A, SPM_SPACE, SPM_B);
  hr_tokenizer_free(t);
}

Test(spm, leftmost_of_equal_pairs_first) {
  builder b;
  begin(&b, HR_VOCAB_SPM);
  add(&b, "a", HR_TOKEN_NORMAL, -1);
  add(&b, "aa", HR_TOKEN_NORMAL, -1);
  hr_tokenizer *t = make(&b.vocab);
  EXPECT(t, "aaa", PLAIN, 1, 0);
  EXPECT(t, "aaaaa", PLAIN, 1, 1, 0);
  hr_tokenizer_free(t);
}

Test(spm, unused_tokens_are_given_out_in_parts) {
  hr_tokenizer *t = small_spm();
  EXPECT(t, "bb", PLAIN, SPM_SPACE, SPM_B, SPM_B);
  EXPECT(t, "bbbb", PLAIN, SPM_SPACE, SPM_B, SPM_B, SPM_B, SPM_B);
  hr_tokenizer_free(t);
}

Test(spm, spaces) {
  hr_tokenizer *t = small_spm();
  EXPECT(t, " ", PLAIN, SPM_SPACES);
  EXPECT(t, " a", PLAIN, SPM_SPACE, SPM__A); /* the space with a comes first */
  EXPECT(t, "  a", PLAIN, SPM_SPACES, SPM__A);
  EXPECT(t, MARK "a", PLAIN, SPM_SPACE, SPM__A); /* the mark itself is a space */
  cr_expect(hr_tokenizer_strips_first_space(t));
  cr_expect(round_trips(t, "  a   ab    b", 13));
  hr_tokenizer_free(t);

  builder b;
  build_spm(&b, true);
  b.normalizer[0] = spaces_to_marks; /* no space in front */
  b.vocab.strip_first_space = false;
  t = make(&b.vocab);
  EXPECT(t, "a", PLAIN, SPM_A);
  EXPECT(t, " a", PLAIN, SPM__A);
  cr_expect_not(hr_tokenizer_strips_first_space(t));
  hr_tokenizer_free(t);
}

Test(spm, special_tokens_only_on_request) {
  hr_tokenizer *t = small_spm();
  EXPECT(t, "<s>a", PARSE, SPM_BOS, SPM__A);
  EXPECT(t, "<s> a", PARSE, SPM_BOS, SPM_SPACE, SPM__A);
  EXPECT(t, "a</s><s>b", PARSE, SPM__A, SPM_EOS, SPM_BOS, SPM_SPACE, SPM_B);
  EXPECT(t, "<unk>", PARSE, SPM_UNK);
  /* As text it never becomes the control token, though "<s" and ">" could join to it. */
  EXPECT(t, "<s>", PLAIN, SPM_SPACE, SPM_S, SPM_BYTE + '>');
  EXPECT(t, "<0x41>", PLAIN, SPM_SPACE, SPM_BYTE + '<', SPM_BYTE + '0', SPM_BYTE + 'x',
         SPM_BYTE + '4', SPM_BYTE + '1', SPM_BYTE + '>');
  /* User-defined ones are always found, and text starts afresh after them. */
  EXPECT(t, "<U>", PLAIN, SPM_USER);
  EXPECT(t, "a<U>ab<U>", PLAIN, SPM__A, SPM_USER, SPM__AB, SPM_USER);
  hr_tokenizer_free(t);
}

/* Phi-3's </s> is user-defined: found in plain text, but what a user says ends no turn. */
Test(spm, no_text_of_a_chat_ends_it) {
  static const int32_t ends[] = {SPM_USER};
  builder b;
  build_spm(&b, true);
  b.kinds[SPM_BOS] = b.kinds[SPM_EOS] = HR_TOKEN_USER;
  b.vocab.ends = ends;
  b.vocab.end_count = 1;
  hr_tokenizer *t = make(&b.vocab);
  EXPECT(t, "a</s>", PLAIN, SPM__A, SPM_EOS);
  static const char text[] = "a<s></s><U><s></s><U>";
  unsigned char data[sizeof text - 1] = {0};
  memset(data + 11, 1, sizeof data - 11); /* the second half is the user's */
  hr_error err = {0};
  int32_t *ids;
  size_t count;
  cr_assert_eq(
      hr_tokenizer_encode_chat(t, text, data, sizeof text - 1, &ids, &count, &err), HR_OK);
  static const int32_t start[] = {SPM_BOS, SPM__A, SPM_BOS, SPM_EOS, SPM_USER, SPM_SPACE, SPM_S};
  cr_assert_gt(count, COUNT(start));
  cr_expect_arr_eq(ids, start, sizeof start);
  for (size_t i = 5; i < count; i++)
    cr_expect(ids[i] != SPM_BOS && ids[i] != SPM_EOS && ids[i] != SPM_USER, "at %zu", i);
  hr_free(ids);
  hr_tokenizer_free(t);
}

Test(spm, bos_once_eos_on_request) {
  hr_tokenizer *t = small_spm();
  EXPECT(t, "", SPECIAL, SPM_BOS);
  EXPECT(t, "a", SPECIAL, SPM_BOS, SPM__A);
  EXPECT(t, "<s>a", SPECIAL | PARSE, SPM_BOS, SPM__A);
  EXPECT(t, "<s>", SPECIAL | PARSE, SPM_BOS);
  EXPECT(t, "</s>a", SPECIAL | PARSE, SPM_BOS, SPM_EOS, SPM__A);
  hr_tokenizer_free(t);

  builder b;
  build_spm(&b, true);
  around(&b, true, true);
  t = make(&b.vocab);
  EXPECT(t, "", SPECIAL, SPM_BOS, SPM_EOS);
  EXPECT(t, "a", SPECIAL, SPM_BOS, SPM__A, SPM_EOS);
  EXPECT(t, "a", PLAIN, SPM__A);
  hr_tokenizer_free(t);

  around(&b, false, false);
  t = make(&b.vocab);
  EXPECT(t, "a", SPECIAL, SPM__A);
  hr_tokenizer_free(t);
}

Test(spm, bytes_as_the_way_out) {
  hr_tokenizer *t = small_spm();
  EXPECT(t, "\xc3\xa9", PLAIN, SPM_SPACE, SPM_BYTE + 0xc3, SPM_BYTE + 0xa9);
  EXPECT(t,
         "a\xff"
         "b",
         PLAIN, SPM__A, SPM_BYTE + 0xff, SPM_B);
  for (int i = 0; i < 256; i++) {
    char text = (char)i;
    int32_t alone = i == 'a' ? SPM_A : i == 'b' ? SPM_B : SPM_BYTE + i;
    const int32_t parts[] = {SPM_SPACE, alone};
    if (i == ' ')
      cr_expect(encodes_as(t, &text, 1, PLAIN, (const int32_t[]){SPM_SPACES}, 1));
    else if (i == 'a')
      cr_expect(encodes_as(t, &text, 1, PLAIN, (const int32_t[]){SPM__A}, 1));
    else
      cr_expect(encodes_as(t, &text, 1, PLAIN, parts, 2));
    cr_expect(round_trips(t, &text, 1));
  }
  hr_tokenizer_free(t);
}

Test(spm, without_bytes_unknown) {
  builder b;
  build_spm(&b, false);
  hr_tokenizer *t = make(&b.vocab);
  EXPECT(t, "a\xc3\xa9", PLAIN, SPM__A, SPM_UNK);
  EXPECT(t, "zzz", PLAIN, SPM_SPACE, SPM_UNK); /* one for a run, as in SentencePiece */
  EXPECT(t, "zaz", PLAIN, SPM_SPACE, SPM_UNK, SPM_A, SPM_UNK);
  EXPECT(t, "\xff\xfe", PLAIN, SPM_SPACE, SPM_UNK);
  EXPECT(t, "z<U>z", PLAIN, SPM_SPACE, SPM_UNK, SPM_USER, SPM_SPACE, SPM_UNK);
  hr_tokenizer_free(t);

  b.vocab.unknown = -1;
  b.kinds[SPM_UNK] = HR_TOKEN_CONTROL;
  t = make(&b.vocab);
  hr_error err = {0};
  int32_t *ids = (int32_t *)1;
  size_t count = 1;
  cr_expect_eq(hr_tokenizer_encode(t, "az", 2, PLAIN, &ids, &count, &err), HR_ERROR_FILE);
  cr_expect(strstr(err.message, "0x7a") && strstr(err.message, "small.gguf"), "%s", err.message);
  cr_expect_null(ids);
  cr_expect_eq(count, 0);
  hr_tokenizer_free(t);
}

Test(spm, texts) {
  hr_tokenizer *t = small_spm();
  size_t length;
  char *text = decode(t,
                      (const int32_t[]){SPM_BOS, SPM__A, SPM_BYTE + 0xc3, SPM_BYTE + 0xa9, SPM_USER,
                                        SPM_SPACES, SPM_EOS, SPM_UNK},
                      8, false, &length);
  cr_expect_eq(length, 9);
  cr_expect(memcmp(text, " a\xc3\xa9<U>  ", 9) == 0);
  free(text);
  text = decode(t, (const int32_t[]){SPM_BOS, SPM_UNK, SPM_A}, 3, true, &length);
  cr_expect_eq(length, 9);
  cr_expect(memcmp(text, "<s><unk>a", 9) == 0);
  free(text);
  hr_tokenizer_free(t);
}

/* An emoji over four byte tokens: nothing is ready before the last. */
Test(spm, emoji_arrives_whole) {
  hr_tokenizer *t = small_spm();
  static const int32_t ids[] = {SPM_BYTE + 0xf0, SPM_BYTE + 0x9f, SPM_BYTE + 0x98, SPM_BYTE + 0x80,
                                SPM_A};
  char held[8];
  size_t length = 0;
  for (size_t i = 0; i < COUNT(ids); i++) {
    hr_piece piece = hr_tokenizer_text(t, ids[i], false);
    cr_assert_eq(piece.length, 1);
    held[length++] = *piece.text;
    size_t ready = hr_utf8_whole(held, length);
    cr_expect_eq(ready, i < 3 ? 0 : length);
    length -= ready;
  }
  hr_tokenizer_free(t);
}

Test(spm, kinds_may_be_missing) {
  builder b;
  build_spm(&b, true);
  b.vocab.kinds = NULL;
  hr_tokenizer *t = make(&b.vocab);
  EXPECT(t, "a\xff", SPECIAL, SPM_BOS, SPM__A, SPM_BYTE + 0xff);
  cr_expect_eq(hr_tokenizer_text(t, SPM_BOS, false).length, 0);
  cr_expect_eq(*hr_tokenizer_text(t, SPM_BYTE + 'z', false).text, 'z');
  hr_tokenizer_free(t);
}

Test(spm, refusals) {
  builder b;
  build_spm(&b, true);
  b.vocab.bos = (int32_t)b.vocab.count;
  expect_refused(&b.vocab, "BOS");
  b.vocab.bos = SPM_BOS;
  b.vocab.eos = -2;
  expect_refused(&b.vocab, "EOS");
  b.vocab.eos = SPM_EOS;
  b.vocab.unknown = INT32_MAX;
  expect_refused(&b.vocab, "unknown");
  b.vocab.unknown = SPM_UNK;
  b.vocab.scores = NULL;
  expect_refused(&b.vocab, "scores");
  b.vocab.scores = b.scores;
  b.scores[7] = __builtin_nanf("");
  expect_refused(&b.vocab, "token 7");
  b.vocab.count = 0;
  expect_refused(&b.vocab, "0 tokens");
}

/* --- Byte-level BPE ------------------------------------------------------------ */

enum { BPE_HE = 256, BPE_LL, BPE_HELL, BPE__HELL, BPE_END, BPE_TOOL, BPE_XYZ, BPE_NEWLINES };

/* The letter of a byte, worked out as the original program does. */
static void letter_of(unsigned byte, char out[8]) {
  unsigned next = 256, letter = 0;
  for (unsigned i = 0; i <= byte; i++) {
    bool own = (i >= '!' && i <= '~') || (i >= 0xa1 && i <= 0xac) || (i >= 0xae && i <= 0xff);
    letter = own ? i : next++;
  }
  out[hr_utf8_encode(letter, out)] = '\0';
}

static void build_bpe(builder *b) {
  begin(b, HR_VOCAB_BPE);
  for (unsigned i = 0; i < 256; i++) {
    char letter[8];
    letter_of(i, letter);
    add(b, letter, HR_TOKEN_NORMAL, 0);
  }
  add(b, "he", HR_TOKEN_NORMAL, 0);
  add(b, "ll", HR_TOKEN_NORMAL, 0);
  add(b, "hell", HR_TOKEN_NORMAL, 0);
  add(b, "\xc4\xa0hell", HR_TOKEN_NORMAL, 0);
  add(b, "<|end|>", HR_TOKEN_CONTROL, 0);
  add(b, "<tool>", HR_TOKEN_USER, 0);
  add(b, "xyz", HR_TOKEN_NORMAL, 0);
  add(b, "\n\n", HR_TOKEN_USER, 0);
  add_merge(b, "h e");
  add_merge(b, "l l");
  add_merge(b, "he ll");
  add_merge(b, "\xc4\xa0 hell");
  b->vocab.byte_level = true;
  pre_tokenize(b, "gpt-2");
  b->vocab.bos = b->vocab.eos = BPE_END;
}

Test(bpe, merges_by_rank) {
  builder b;
  build_bpe(&b);
  hr_tokenizer *t = make(&b.vocab);
  EXPECT_NONE(t, "", PLAIN);
  EXPECT(t, "hello hell", PLAIN, BPE_HELL, 'o', BPE__HELL);
  EXPECT(t, "hell ll", PLAIN, BPE_HELL, ' ', BPE_LL);
  EXPECT(t, "helll", PLAIN, BPE_HELL, 'l');
  EXPECT(t, "he\nll", PLAIN, BPE_HE, '\n', BPE_LL);
  EXPECT(t, "a\n\nb", PLAIN, 'a', BPE_NEWLINES, 'b');
  cr_expect_not(hr_tokenizer_strips_first_space(t));
  hr_tokenizer_free(t);
}

Test(bpe, specials) {
  builder b;
  build_bpe(&b);
  around(&b, true, false);
  hr_tokenizer *t = make(&b.vocab);
  EXPECT(t, "a<|end|>", PARSE, 'a', BPE_END);
  EXPECT(t, "a<|end|>", PLAIN, 'a', '<', '|', 'e', 'n', 'd', '|', '>');
  EXPECT(t, "he<tool>", PLAIN, BPE_HE, BPE_TOOL);
  EXPECT(t, "he", SPECIAL, BPE_END, BPE_HE);
  EXPECT(t, "<|end|>he", SPECIAL | PARSE, BPE_END, BPE_HE);
  EXPECT(t, "<|end|><|end|>", SPECIAL | PARSE, BPE_END, BPE_END); /* the text's own two stay */
  cr_expect_eq(hr_tokenizer_text(t, BPE_END, false).length, 0);
  cr_expect_eq(hr_tokenizer_text(t, BPE_END, true).length, 7);
  hr_tokenizer_free(t);
}

Test(bpe, longest_special_first) {
  builder b;
  build_bpe(&b);
  int32_t longer = add(&b, "<tool>!", HR_TOKEN_USER, 0);
  int32_t control = add(&b, "<tool>!?", HR_TOKEN_CONTROL, 0);
  hr_tokenizer *t = make(&b.vocab);
  EXPECT(t, "<tool>!?", PLAIN, longer, '?');
  EXPECT(t, "<tool>!?", PARSE, control);
  EXPECT(t, "<tool><tool", PLAIN, BPE_TOOL, '<', 't', 'o', 'o', 'l');
  hr_tokenizer_free(t);
}

Test(bpe, words_that_are_tokens) {
  builder b;
  build_bpe(&b);
  hr_tokenizer *t = make(&b.vocab);
  EXPECT(t, "xyz", PLAIN, 'x', 'y', 'z');
  hr_tokenizer_free(t);
  b.vocab.ignore_merges = true;
  t = make(&b.vocab);
  EXPECT(t, "xyz", PLAIN, BPE_XYZ);
  EXPECT(t, "xyzz", PLAIN, 'x', 'y', 'z', 'z');
  hr_tokenizer_free(t);
}

Test(bpe, every_byte_and_stray_ones) {
  static const char *const names[] = {"gpt-2", "llama-bpe", "qwen2", "deepseek-coder", "default"};
  for (size_t n = 0; n < COUNT(names); n++) {
    builder b;
    build_bpe(&b);
    pre_tokenize(&b, names[n]);
    hr_tokenizer *t = make(&b.vocab);
    for (int i = 0; i < 256; i++) {
      char text[3] = {(char)i, 'q', (char)i};
      cr_expect(encodes_as(t, text, 1, PLAIN, (const int32_t[]){i}, 1));
      cr_expect(encodes_as(t, text, 3, PLAIN, (const int32_t[]){i, 'q', i}, 3));
    }
    EXPECT(t, "\xed\xa0\x80", PLAIN, 0xed, 0xa0, 0x80); /* a surrogate */
    EXPECT(t, "\xc0\xaf", PLAIN, 0xc0, 0xaf);           /* overlong */
    EXPECT(t, "\xf0\x9f\x98", PLAIN, 0xf0, 0x9f, 0x98); /* cut */
    EXPECT(t, "\xf0\x9f\x98\x80", PLAIN, 0xf0, 0x9f, 0x98, 0x80);
    EXPECT(t, "he\xffhe", PLAIN, BPE_HE, 0xff, BPE_HE);
    hr_tokenizer_free(t);
  }
}

Test(bpe, missing_bytes) {
  builder b;
  build_bpe(&b);
  snprintf(b.texts['z'], sizeof b.texts['z'], "zz"); /* nothing stands for z any more */
  b.tokens['z'].length = 2;
  hr_tokenizer *t = make(&b.vocab);
  hr_error err = {0};
  int32_t *ids;
  size_t count;
  cr_expect_eq(hr_tokenizer_encode(t, "az", 2, PLAIN, &ids, &count, &err), HR_ERROR_FILE);
  cr_expect(strstr(err.message, "0x7a"), "%s", err.message);
  hr_tokenizer_free(t);
  b.vocab.unknown = BPE_END;
  t = make(&b.vocab);
  EXPECT(t, "azz", PLAIN, 'a', BPE_END, BPE_END);
  hr_tokenizer_free(t);
  /* What no UTF-8 has is U+FFFD, before it is unknown. */
  b.tokens[0xff].length = b.tokens[0xc0].length = 2;
  snprintf(b.texts[0xff], sizeof b.texts[0xff], "yy");
  snprintf(b.texts[0xc0], sizeof b.texts[0xc0], "xx");
  b.tokens[0xff].text = b.texts[0xff];
  b.tokens[0xc0].text = b.texts[0xc0];
  t = make(&b.vocab);
  EXPECT(t, "a\xff\xc0q", PLAIN, 'a', 0xef, 0xbf, 0xbd, 0xef, 0xbf, 0xbd, 'q');
  EXPECT(t, "\xff", PLAIN, 0xef, 0xbf, 0xbd);
  EXPECT(t, "\xfe", PLAIN, 0xfe);
  hr_tokenizer_free(t);
}

Test(bpe, refusals) {
  static const char *const merges[] = {"hell x ", " ",    "h ", " h", "hell ",
                                       "qq q",    "h e e"};
  for (size_t i = 0; i < COUNT(merges); i++) {
    builder b;
    build_bpe(&b);
    add_merge(&b, merges[i]);
    expect_refused(&b.vocab, "merge 4");
  }
}

/* A vocabulary whose merges lead to a control token: text does not. */
Test(bpe, no_merge_makes_a_control_token) {
  builder b;
  build_bpe(&b);
  int32_t s = add(&b, "<s", HR_TOKEN_NORMAL, 0);
  int32_t control = add(&b, "<s>", HR_TOKEN_CONTROL, 0);
  add_merge(&b, "< s");
  add_merge(&b, "<s >");
  b.vocab.pre_tokenizer.count = 0;
  hr_tokenizer *t = make(&b.vocab);
  EXPECT(t, "<s>", PLAIN, s, '>');
  EXPECT(t, "<s>", PARSE, control);
  hr_tokenizer_free(t);
}

Test(bpe, code_with_indents_comes_back) {
  static const char code[] =
      "def f(x):\n    if x:\n\t\treturn {'a':  1}\n\n\n        # 64:"
      "                                                                \r\n  \t \xc2\xa0 end  ";
  static const char *const names[] = {"gpt-2",        "llama-bpe",   "qwen2",  "starcoder",
                                      "deepseek-llm", "deepseek-v3", "gpt-4o", "tekken",
                                      "falcon",       "viking"};
  for (size_t i = 0; i < COUNT(names); i++) {
    builder b;
    build_bpe(&b);
    pre_tokenize(&b, names[i]);
    hr_tokenizer *t = make(&b.vocab);
    cr_expect(round_trips(t, code, sizeof code - 1), "%s", names[i]);
    hr_tokenizer_free(t);
  }
  hr_tokenizer *t = small_spm();
  cr_expect(round_trips(t, code, sizeof code - 1));
  hr_tokenizer_free(t);
}

/* --- Pre-tokenizers -------------------------------------------------------------- */

/* The pieces that steps make of a text, each with "_" behind it. */
static void expect_pieces(hr_step_list list, const char *text, size_t length,
                          const char *expected) {
  hr_error err = {0};
  hr_steps *steps = hr_steps_create(list, NULL, "test", &err);
  cr_assert(steps, "%s", err.message);
  hr_pieces pieces = {0};
  cr_assert(hr_pieces_load(&pieces, text, length));
  cr_assert_eq(hr_steps_run(steps, &pieces, true, &err), HR_OK, "%s", err.message);
  char joined[512] = "";
  size_t n = 0;
  for (size_t i = 0; i < pieces.count; i++) {
    hr_text_span span = pieces.spans[i];
    cr_assert_lt(n + span.length + 2, sizeof joined);
    memcpy(joined + n, pieces.now.text + span.start, span.length);
    n += span.length;
    joined[n++] = '_';
  }
  cr_expect_str_eq(joined, expected, "\"%.*s\": \"%s\", expected \"%s\"", (int)length, text,
                   joined, expected);
  hr_pieces_clear(&pieces);
  hr_steps_free(steps);
}

Test(pretokenizer, cuts) {
  static const struct {
    const char *name, *text, *expected; /* "_" behind each piece */
  } cases[] = {
      {"gpt-2", "I've 1234  x\n\n y'LL!?", "I_'ve_ 1234_ _ x_\n\n_ y_'_LL_!?_"},
      {"gpt-2", "  \t\n", "  \t\n_"},
      {"gpt-2", "a  b", "a_ _ b_"},
      {"gpt-2",
       "\xc3\xa9"
       "1\xc2\xbd.",
       "\xc3\xa9_1\xc2\xbd_._"},
      {"llama-bpe", "I've 12345  x\n\n y'LL!?", "I_'ve_ _123_45_ _ x_\n\n_ y_'LL_!?_"},
      {"llama-bpe", "a.b \n\n  c$\r\nd", "a_.b_ \n\n_ _ c_$\r\n_d_"},
      {"qwen2", "I've 123 'Re", "I_'ve_ _1_2_3_ '_Re_"},
      {"qwen2", "tab\tword (x)", "tab_\tword_ (_x_)_"},
      {"smollm", "a1 22 b", "a_1_ _2_2_ b_"},
      {"deepseek-v3", "abc1234 \xe4\xbd\xa0\xe5\xa5\xbd!x",
       "abc_123_4_ _\xe4\xbd\xa0\xe5\xa5\xbd_!x_"},
      {"deepseek-coder", "a b\n12.", "a_ b_\n_1_2_._"},
      {"gpt-4o", "HelloWORLDword it's 1234/\n", "Hello_WORLDword_ it's_ _123_4_/\n_"},
      {"tekken", "HelloWorld 12", "Hello_World_ _1_2_"},
      {"falcon", "a,b 1234!!", "a_,_b_ _123_4_!!_"},
      {"default", "a,b 1234!!", "a_,_b_ _123_4_!!_"},
      {"bloom", "a b, c", "a_ b_,_ c_"},
      /* U+180E is no space in Unicode, U+0085 is one */
      {"gpt-2",
       "\xe1\xa0\x8e\xc2\x85"
       "a",
       "\xe1\xa0\x8e_\xc2\x85_a_"},
      {"gpt-2", "a\xff\xfe b", "a_\xff\xfe_ b_"},
  };
  for (size_t i = 0; i < COUNT(cases); i++) {
    hr_step_list list;
    cr_assert(hr_named_pre_tokenizer(cases[i].name, &list), "%s", cases[i].name);
    expect_pieces(list, cases[i].text, strlen(cases[i].text), cases[i].expected);
  }
}

/* The example of the documentation that these behaviors are named after. */
Test(steps, what_becomes_of_a_match) {
  static const char *const expected[] = {
      [HR_SPLIT_REMOVED] = "the_final_countdown_",
      [HR_SPLIT_ISOLATED] = "the_-_final_-_-_countdown_",
      [HR_SPLIT_MERGED_WITH_PREVIOUS] = "the-_final-_-_countdown_",
      [HR_SPLIT_MERGED_WITH_NEXT] = "the_-final_-_-countdown_",
      [HR_SPLIT_CONTIGUOUS] = "the_-_final_--_countdown_",
  };
  for (size_t i = 0; i < COUNT(expected); i++)
    for (unsigned literal = 0; literal < 2; literal++) {
      hr_text_step step = {.kind = HR_STEP_SPLIT, .pattern = {"-", 1}, .literal = literal,
                           .split = (hr_split)i};
      expect_pieces((hr_step_list){&step, 1}, "the-final--countdown", 20, expected[i]);
    }
  hr_text_step words = {.kind = HR_STEP_SPLIT, .pattern = {"[a-z]+", 6}, .invert = true,
                        .split = HR_SPLIT_REMOVED};
  expect_pieces((hr_step_list){&words, 1}, "-the final--", 12, "the_final_");
  hr_text_step empty = {.kind = HR_STEP_SPLIT, .pattern = {"x*", 2}}; /* finds nothing often */
  expect_pieces((hr_step_list){&empty, 1}, "axx\xc3\xa9xb", 7, "a_xx_\xc3\xa9_x_b_");
}

/* Unicode's own examples of its normal forms, and what else rewrites. */
Test(steps, rewrites) {
  static const struct {
    hr_step_kind kind;
    unsigned flags;
    const char *text, *expected;
  } cases[] = {
      {HR_STEP_NFC, 0, "e\xcc\x81", "\xc3\xa9_"},
      {HR_STEP_NFD, 0, "\xc3\xa9", "e\xcc\x81_"},
      {HR_STEP_NFD, 0, "\xe1\xb8\x8b\xcc\xa3", "d\xcc\xa3\xcc\x87_"}, /* d, dot below, above */
      {HR_STEP_NFC, 0, "\xe1\xb8\x8b\xcc\xa3", "\xe1\xb8\x8d\xcc\x87_"},
      {HR_STEP_NFC, 0, "\xef\xac\x81", "\xef\xac\x81_"}, /* the ligature fi */
      {HR_STEP_NFKC, 0, "\xef\xac\x81", "fi_"},
      {HR_STEP_NFKD, 0, "\xe1\xba\x9b\xcc\xa3", "s\xcc\xa3\xcc\x87_"},
      {HR_STEP_NFKC, 0, "\xe1\xba\x9b\xcc\xa3", "\xe1\xb9\xa9_"},
      {HR_STEP_NFC, 0, "\xe1\x84\x80\xe1\x85\xa1", "\xea\xb0\x80_"}, /* Hangul */
      {HR_STEP_NFC, 0, "e\xcc\x81\xff" "e\xcc\x81", "\xc3\xa9\xff\xc3\xa9_"},
      {HR_STEP_LOWERCASE, 0, "A\xc3\x89\xc4\xb0", "a\xc3\xa9i\xcc\x87_"},
      {HR_STEP_STRIP_ACCENTS, 0, "e\xcc\x81\xc3\xa9", "e\xc3\xa9_"},
      {HR_STEP_STRIP, HR_STRIP_LEFT, " \t a b ", "a b _"},
      {HR_STEP_STRIP, HR_STRIP_LEFT | HR_STRIP_RIGHT, " \xe3\x80\x80" "a ", "a_"},
      {HR_STEP_STRIP, HR_STRIP_LEFT | HR_STRIP_RIGHT, "  ", ""},
      {HR_STEP_PREFIX_SPACE, 0, "a", " a_"},
      {HR_STEP_PREFIX_SPACE, 0, " a", " a_"},
      {HR_STEP_METASPACE, HR_METASPACE_ALWAYS, "a b", MARK "a" MARK "b_"},
      {HR_STEP_METASPACE, HR_METASPACE_FIRST, " a", MARK "a_"},
      {HR_STEP_METASPACE, 0, "a b", "a" MARK "b_"},
      {HR_STEP_LETTERS, 0, " \xc3\xa9", "\xc4\xa0\xc3\x83\xc2\xa9_"},
      {HR_STEP_BYTES, 0, "\xc4\xa0\xc3\x83\xc2\xa9", " \xc3\xa9_"},
      {HR_STEP_CLEANUP, 0, "a , b ! do n't", "a, b! don't_"},
      {HR_STEP_NMT, 0, "a\x01" "b\tc", "ab c_"},
  };
  for (size_t i = 0; i < COUNT(cases); i++) {
    hr_text_step step = {.kind = cases[i].kind, .flags = cases[i].flags};
    expect_pieces((hr_step_list){&step, 1}, cases[i].text, strlen(cases[i].text),
                  cases[i].expected);
  }
}

Test(pretokenizer, names_of_relatives) {
  static const char *const names[] = {"phi-2",      "mpt",          "olmo",      "llama3",
                                      "llama-v3",   "dbrx",         "stablelm2", "deepseek-r1-qwen",
                                      "refact",     "command-r",    "exaone",    "glm4",
                                      "llama4",     "qwen35",       "viking",    "seed-coder",
                                      "bailingmoe", "jina-v2-code", "poro-chat", "deepseek-llm"};
  for (size_t i = 0; i < COUNT(names); i++) {
    hr_step_list list;
    cr_expect(hr_named_pre_tokenizer(names[i], &list), "%s", names[i]);
  }
  static const char *const unknown[] = {"no-such", "gpt", "", "gpt-2 phi-2"};
  for (size_t i = 0; i < COUNT(unknown); i++) {
    hr_step_list list;
    cr_expect_not(hr_named_pre_tokenizer(unknown[i], &list), "%s", unknown[i]);
  }
}

/* --- WordPiece --------------------------------------------------------------------- */

enum {
  WP_PAD,
  WP_UNK,
  WP_CLS,
  WP_SEP,
  WP_UN,
  WP_WANT,
  WP_ED,
  WP_RUNNING,
  WP_COMMA,
  WP_BEI,
  WP_JING,
  WP_CAFE,
  WP_ELEVEN,
  WP_APOSTROPHE,
  WP_S,
  WP_CAFE_CASED
};

static void build_wordpiece(builder *b) {
  begin(b, HR_VOCAB_WORDPIECE);
  add(b, "[PAD]", HR_TOKEN_CONTROL, 0);
  add(b, "[UNK]", HR_TOKEN_CONTROL, 0);
  add(b, "[CLS]", HR_TOKEN_CONTROL, 0);
  add(b, "[SEP]", HR_TOKEN_CONTROL, 0);
  add(b, MARK "un", HR_TOKEN_NORMAL, 0);
  add(b, "want", HR_TOKEN_NORMAL, 0);
  add(b, "ed", HR_TOKEN_NORMAL, 0);
  add(b, MARK "running", HR_TOKEN_NORMAL, 0);
  add(b, MARK ",", HR_TOKEN_NORMAL, 0);
  add(b, MARK "\xe5\x8c\x97", HR_TOKEN_NORMAL, 0);
  add(b, MARK "\xe4\xba\xac", HR_TOKEN_NORMAL, 0);
  add(b, MARK "cafe", HR_TOKEN_NORMAL, 0);
  add(b, "1", HR_TOKEN_NORMAL, 0);
  add(b, MARK "'", HR_TOKEN_NORMAL, 0);
  add(b, MARK "s", HR_TOKEN_NORMAL, 0);
  add(b, MARK "Caf\xc3\xa9", HR_TOKEN_NORMAL, 0);
  b->vocab.unknown = WP_UNK;
  b->vocab.bos = WP_CLS;
  b->vocab.eos = WP_SEP;
  b->vocab.strip_first_space = true;
  around(b, true, true);
  normalize(b, (hr_text_step){.kind = HR_STEP_BERT});
  b->vocab.pre_tokenizer = hr_bert_words();
}

Test(wordpiece, words) {
  builder b;
  build_wordpiece(&b);
  hr_tokenizer *t = make(&b.vocab);
  EXPECT(t, "", SPECIAL, WP_CLS, WP_SEP);
  EXPECT(t, "unwanted, running", SPECIAL, WP_CLS, WP_UN, WP_WANT, WP_ED, WP_COMMA, WP_RUNNING,
         WP_SEP);
  EXPECT(t,
         "UNwant\xc3\xa9"
         "d,RUNNING",
         PLAIN, WP_UN, WP_WANT, WP_ED, WP_COMMA, WP_RUNNING);
  EXPECT(t, "unwantedly", PLAIN, WP_UNK); /* a part without a token: the word is unknown */
  EXPECT(t, "xx un xx", PLAIN, WP_UNK, WP_UN, WP_UNK);
  EXPECT(t, "un's", PLAIN, WP_UN, WP_APOSTROPHE, WP_S);
  EXPECT_NONE(t, " \t\r\n\xc2\xa0\xe3\x80\x80", PLAIN);
  hr_tokenizer_free(t);
}

Test(wordpiece, normalization) {
  builder b;
  build_wordpiece(&b);
  hr_tokenizer *t = make(&b.vocab);
  EXPECT(t, "CAF\xc3\x89", PLAIN, WP_CAFE);  /* E with an accent */
  EXPECT(t, "cafe\xcc\x81", PLAIN, WP_CAFE); /* the accent on its own */
  EXPECT(t, "\xe5\x8c\x97\xe4\xba\xac", PLAIN, WP_BEI, WP_JING);
  EXPECT(t,
         "cafe\xe5\x8c\x97"
         "cafe",
         PLAIN, WP_CAFE, WP_BEI, WP_CAFE);
  EXPECT(t, "ca\0fe", PLAIN, WP_CAFE); /* NUL, U+200B, U+FFFD, a stray byte */
  EXPECT(t,
         "ca\xe2\x80\x8b"
         "fe",
         PLAIN, WP_CAFE);
  EXPECT(t,
         "ca\xef\xbf\xbd"
         "fe",
         PLAIN, WP_CAFE);
  EXPECT(t,
         "ca\xff"
         "fe",
         PLAIN, WP_CAFE);
  EXPECT(t, "[SEP]cafe", PARSE, WP_SEP, WP_CAFE);
  hr_tokenizer_free(t);

  b.normalizer[0].flags = HR_BERT_KEEP_CASE | HR_BERT_KEEP_ACCENTS;
  t = make(&b.vocab);
  EXPECT(t, "Caf\xc3\xa9 cafe CAFE", PLAIN, WP_CAFE_CASED, WP_CAFE, WP_UNK);
  hr_tokenizer_free(t);

  b.normalizer[0].flags = HR_BERT_KEEP_CJK | HR_BERT_KEEP_CONTROL;
  t = make(&b.vocab);
  EXPECT(t, "\xe5\x8c\x97\xe4\xba\xac \xe5\x8c\x97", PLAIN, WP_UNK, WP_BEI);
  EXPECT(t,
         "ca\xe2\x80\x8b"
         "fe",
         PLAIN, WP_UNK);
  hr_tokenizer_free(t);
}

Test(wordpiece, long_words_are_unknown) {
  builder b;
  build_wordpiece(&b);
  hr_tokenizer *t = make(&b.vocab);
  char text[128] = "un";
  memset(text + 2, '1', 98);
  int32_t ids[99] = {WP_UN};
  for (size_t i = 1; i < 99; i++) ids[i] = WP_ELEVEN;
  cr_expect(encodes_as(t, text, 100, PLAIN, ids, 99));
  text[100] = '1';
  cr_expect(encodes_as(t, text, 101, PLAIN, (const int32_t[]){WP_UNK}, 1));
  hr_tokenizer_free(t);
}

/* --- Unigram ------------------------------------------------------------------------ */

enum { UG_UNK, UG_EOS, UG_SPACE, UG_A, UG_B, UG_AB, UG__A, UG_ABB, UG_BB };

static void build_unigram(builder *b) {
  begin(b, HR_VOCAB_UNIGRAM);
  add(b, "<unk>", HR_TOKEN_UNKNOWN, 0);
  add(b, "</s>", HR_TOKEN_CONTROL, 0);
  add(b, MARK, HR_TOKEN_NORMAL, -2);
  add(b, "a", HR_TOKEN_NORMAL, -3);
  add(b, "b", HR_TOKEN_NORMAL, -3);
  add(b, "ab", HR_TOKEN_NORMAL, -4);
  add(b, MARK "a", HR_TOKEN_NORMAL, -4);
  add(b, "abb", HR_TOKEN_NORMAL, -6.5f);
  add(b, "bb", HR_TOKEN_NORMAL, -4.5f);
  b->vocab.unknown = UG_UNK;
  b->vocab.eos = UG_EOS;
  b->vocab.strip_first_space = b->vocab.fuse_unknown = true;
  around(b, false, true);
  normalize(b, (hr_text_step){.kind = HR_STEP_SENTENCEPIECE,
                         .flags = HR_SPM_PREFIX | HR_SPM_MERGE_SPACES});
}

Test(unigram, best_sum_of_scores) {
  builder b;
  build_unigram(&b);
  hr_tokenizer *t = make(&b.vocab);
  EXPECT(t, "", SPECIAL, UG_EOS);
  EXPECT(t, "a", SPECIAL, UG__A, UG_EOS);    /* -4 against -2 -3 */
  EXPECT(t, "ab", PLAIN, UG_SPACE, UG_AB);   /* -2 -4 against -4 -3 */
  EXPECT(t, "abb", PLAIN, UG_SPACE, UG_ABB); /* -8.5; a space with a and bb: the same, later */
  EXPECT(t, "abbb", PLAIN, UG_SPACE, UG_AB, UG_BB); /* -10.5 */
  EXPECT(t, "azzb", PLAIN, UG__A, UG_UNK, UG_B);
  EXPECT(t, "\xff", PLAIN, UG_SPACE, UG_UNK);
  EXPECT(t, "  a   b ", PLAIN, UG__A, UG_SPACE, UG_B); /* runs become one, the ends go */
  EXPECT_NONE(t, "   ", PLAIN);
  hr_tokenizer_free(t);
  b.normalizer[0].flags = HR_SPM_PREFIX;
  t = make(&b.vocab);
  EXPECT(t, " a  ", PLAIN, UG_SPACE, UG__A, UG_SPACE, UG_SPACE);
  hr_tokenizer_free(t);
}

/* No sum is so low that a way to cut the text is not found unseen. */
Test(unigram, scores_without_a_sum) {
  builder b;
  hr_error err = {0};
  int32_t *ids = NULL;
  size_t count;
  build_unigram(&b);
  b.scores[UG_AB] = -INFINITY;
  expect_refused(&b.vocab, "token 5 is infinite");
  b.scores[UG_AB] = INFINITY;
  expect_refused(&b.vocab, "token 5 is infinite");
  for (size_t i = UG_SPACE; i <= UG_BB; i++) b.scores[i] = -FLT_MAX;
  hr_tokenizer *t = make(&b.vocab);
  EXPECT(t, "abb", PLAIN, UG_SPACE, UG_ABB);
  hr_tokenizer_free(t);
  b.vocab.single_precision = true;
  t = make(&b.vocab);
  cr_expect_eq(hr_tokenizer_encode(t, "abbabb", 6, PLAIN, &ids, &count, &err), HR_ERROR_FILE);
  cr_expect(strstr(err.message, "too low"), "%s", err.message);
  hr_tokenizer_free(t);
}

/* A double array that turns "A" into "ab": the root's children lie at 256 ^ byte. */
static size_t put_charsmap(unsigned char *out) {
  uint32_t units[512] = {0};
  for (size_t i = 0; i < COUNT(units); i++) units[i] = UINT32_C(0x80000000);
  units[0] = 256u << 10;                           /* offset of the root */
  units[256 ^ 'A'] = 'A' | 1u << 8 | (3u << 10);   /* ends a key; its value is 3 further */
  units[256 ^ 'A' ^ 3] = UINT32_C(0x80000000) | 1; /* the value: where the replacement starts */
  size_t n = 0;
  uint32_t size = sizeof units;
  for (unsigned k = 0; k < 4; k++) out[n++] = (unsigned char)(size >> 8 * k);
  for (size_t i = 0; i < COUNT(units); i++)
    for (unsigned k = 0; k < 4; k++) out[n++] = (unsigned char)(units[i] >> 8 * k);
  memcpy(out + n, "\0ab", 4);
  return n + 4;
}

Test(unigram, charsmap) {
  builder b;
  build_unigram(&b);
  unsigned char map[4096];
  hr_piece *table = &b.normalizer[0].content;
  *table = (hr_piece){(char *)map, put_charsmap(map)};
  hr_tokenizer *t = make(&b.vocab);
  EXPECT(t, "A", PLAIN, UG_SPACE, UG_AB);
  EXPECT(t, "aA\xff", PLAIN, UG__A, UG_AB, UG_UNK);
  hr_tokenizer_free(t);
  for (size_t bytes = 1; bytes < 2060; bytes += 7) {
    table->length = bytes;
    if (bytes < 2053) expect_refused(&b.vocab, "normalizes");
  }
  /* Whatever the units say, nothing outside is read and no text is lost. */
  srand(5);
  for (size_t round = 0; round < 200; round++) {
    table->length = put_charsmap(map);
    for (size_t i = 4; i < 4 + 2048; i++) map[i] = (unsigned char)rand();
    t = make(&b.vocab);
    char text[64];
    for (size_t i = 0; i < sizeof text; i++) text[i] = (char)rand();
    int32_t *ids;
    size_t count;
    cr_assert_eq(hr_tokenizer_encode(t, text, sizeof text, PLAIN, &ids, &count, NULL), HR_OK);
    hr_free(ids);
    hr_tokenizer_free(t);
  }
}

/* --- All kinds: memory and time -------------------------------------------------------- */

static void (*const builders[])(builder *) = {build_bpe, build_wordpiece, build_unigram};

static void build_kind(builder *b, size_t kind) {
  if (kind < COUNT(builders))
    builders[kind](b);
  else
    build_spm(b, true);
}

#define KINDS (COUNT(builders) + 1)

/* Every allocation may fail: an error, no leak, no crash. */
Test(tokenizer, memory_runs_out) {
  static const char text[] = "ab hello, \xff caf\xc3\xa9 <U> bbb";
  for (size_t kind = 0; kind < KINDS; kind++) {
    builder b;
    build_kind(&b, kind);
    hr_status status = HR_ERROR_MEMORY;
    for (size_t n = 1; status != HR_OK; n++) {
      cr_assert_lt(n, 1000);
      hr_error err = {0};
      int32_t *ids = NULL;
      size_t count = 0;
      hr_memory_fail_at(n);
      hr_tokenizer *t = hr_tokenizer_create(&b.vocab, &err);
      status =
          t ? hr_tokenizer_encode(t, text, sizeof text - 1, SPECIAL | PARSE, &ids, &count, &err)
            : err.status;
      hr_memory_fail_at(0);
      cr_assert(status == HR_OK || status == HR_ERROR_MEMORY, "kind %zu, %zu: %d", kind, n,
                (int)status);
      hr_free(ids);
      hr_tokenizer_free(t);
    }
  }
}

static double cpu_seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

#define MEGABYTE ((size_t)1 << 20)
#define PATTERNS 17
#define SLOWDOWN (WITH_ADDRESS_SANITIZER ? 32 : 1) /* a shorter text for the same time */

/* The last pattern is noise. */
static void fill_text(char *text, size_t bytes, size_t pattern) {
  static const char *const patterns[PATTERNS - 1] = {
      "a",       " ", "\xf0\x9f\x98\x80", "b",    "\n", "7",  "\r\n",
      "he ll",   "'", "\xe4\xbd\xa0",     "\xff", "ab", "Ab", "          \n",
      "<|end|>", "<"};
  const char *unit = pattern < PATTERNS - 1 ? patterns[pattern] : NULL;
  size_t length = unit ? strlen(unit) : 0;
  for (size_t i = 0; i < bytes; i++) text[i] = unit ? unit[i % length] : (char)rand();
}

/* A quadratic step anywhere would take minutes. */
static void check_time(const hr_tokenizer *t, const char *what, size_t bytes) {
  char *text = malloc(bytes);
  for (size_t pattern = 0; pattern < PATTERNS; pattern++) {
    int32_t *ids;
    size_t count;
    hr_error err = {0};
    fill_text(text, bytes, pattern);
    double before = cpu_seconds();
    cr_assert_eq(hr_tokenizer_encode(t, text, bytes, PARSE, &ids, &count, &err), HR_OK, "%s",
                 err.message);
    double seconds = cpu_seconds() - before;
    cr_expect_lt(seconds, 1.5, "%s, pattern %zu: %.2f s", what, pattern, seconds);
    hr_free(ids);
  }
  free(text);
}

Test(tokenizer, a_megabyte_of_anything) {
  for (size_t kind = 0; kind < KINDS; kind++) {
    builder b;
    build_kind(&b, kind);
    hr_tokenizer *t = make(&b.vocab);
    check_time(t, kind < COUNT(builders) ? "bpe, wordpiece or unigram" : "spm",
               MEGABYTE / SLOWDOWN);
    hr_tokenizer_free(t);
  }
}

Test(tokenizer, no_pattern_takes_long) {
  static const char *const names[] = {"llama-bpe",      "qwen2",        "qwen35",    "starcoder",
                                      "default",        "falcon",       "gpt-4o",    "deepseek-v3",
                                      "deepseek-coder", "deepseek-llm", "tekken",    "bloom",
                                      "viking",         "bailingmoe",   "seed-coder"};
  for (size_t i = 0; i < COUNT(names); i++) {
    builder b;
    build_bpe(&b);
    pre_tokenize(&b, names[i]);
    hr_tokenizer *t = make(&b.vocab);
    check_time(t, names[i], MEGABYTE / 16 / SLOWDOWN);
    hr_tokenizer_free(t);
  }
}

/* As src/text/lookup.c has it, for keys of eight bytes. */
static uint64_t hash_of_eight(const char *key) {
  uint64_t h = 8, word;
  memcpy(&word, key, 8);
  for (int i = 0; i < 3; i++) {
    h = (i == 0 ? h ^ word : h) * UINT64_C(0x9e3779b97f4a7c15);
    h ^= h >> 29;
  }
  return h;
}

/* Tokens that all want the same place in the map. */
Test(tokenizer, tokens_chosen_to_collide_are_refused) {
  enum { SLOTS = 2048 };
  builder b;
  begin(&b, HR_VOCAB_BPE);
  char key[9];
  for (unsigned n = 0; b.vocab.count < MAX_TOKENS; n++) {
    snprintf(key, sizeof key, "%08x", n);
    if (hash_of_eight(key) % SLOTS == 5) add(&b, key, HR_TOKEN_NORMAL, 0);
  }
  expect_refused(&b.vocab, "chosen to take long");
  b.vocab.count = 500;
  hr_tokenizer_free(make(&b.vocab));
}

Test(tokenizer, tokens_longer_than_any_word_are_refused) {
  builder b;
  begin(&b, HR_VOCAB_BPE);
  char *longest = malloc(4097);
  memset(longest, 'a', 4097);
  add(&b, "a", HR_TOKEN_NORMAL, 0);
  b.tokens[b.vocab.count++] = (hr_piece){longest, 4097};
  expect_refused(&b.vocab, "4097 bytes, expected at most 4096");
  b.tokens[1].length = 4096;
  hr_tokenizer_free(make(&b.vocab));
  free(longest);
}

Test(tokenizer, random_bytes_come_back) {
  srand(11);
  builder b;
  build_bpe(&b);
  hr_tokenizer *bpe = make(&b.vocab), *spm = small_spm();
  static const char alphabet[] = "ab hel\n\xe2\x96\x81\xf0\x9f\x98\x80\xc3\xa9\xff<U>|";
  for (size_t round = 0; round < 3000; round++) {
    char text[40];
    size_t length = (size_t)rand() % sizeof text;
    for (size_t i = 0; i < length; i++)
      text[i] = rand() % 4 ? alphabet[(size_t)rand() % (sizeof alphabet - 1)] : (char)rand();
    cr_expect(round_trips(bpe, text, length));
    bool marked = false; /* U+2581 comes back as a space */
    for (size_t i = 0; i + 3 <= length; i++) marked |= memcmp(text + i, MARK, 3) == 0;
    bool user = false; /* a user-defined token lets the text after it start with a space */
    for (size_t i = 0; i + 3 <= length; i++) user |= memcmp(text + i, "<U>", 3) == 0;
    if (!marked && !user) cr_expect(round_trips(spm, text, length));
  }
  hr_tokenizer_free(bpe);
  hr_tokenizer_free(spm);
}

/* --- Real vocabularies ------------------------------------------------------------------ */

static const char *test_data(void) {
  const char *folder = getenv("HEADROW_TEST_DATA");
  if (!folder || !*folder) cr_skip("HEADROW_TEST_DATA is not set");
  return folder;
}

static char *read_file(const char *path, size_t *length) {
  FILE *file = fopen(path, "rb");
  cr_assert(file, "%s", path);
  char *text = NULL;
  size_t n;
  *length = 0;
  do {
    text = realloc(text, *length + 65537);
    n = fread(text + *length, 1, 65536, file);
    *length += n;
  } while (n > 0);
  text[*length] = '\0';
  fclose(file);
  return text;
}

static hr_tokenizer *open_vocab(const char *path) {
  hr_error err = {0};
  hr_source *source = hr_source_open(path, &err);
  cr_assert(source, "%s", err.message);
  hr_vocab_storage storage;
  hr_vocab vocab;
  bool found = false;
  cr_assert_eq(hr_vocab_read(source, &storage, &vocab, &found, &err), HR_OK, "%s", err.message);
  cr_assert(found);
  hr_tokenizer *t = make(&vocab);
  hr_vocab_storage_finish(&storage);
  hr_source_close(source);
  return t;
}

static size_t parse_ids(char *line, int32_t *ids, size_t capacity) {
  size_t count = 0;
  for (char *word = strtok(line, " "); word && count < capacity; word = strtok(NULL, " "))
    ids[count++] = (int32_t)strtol(word, NULL, 10);
  return count;
}

/* Texts in NAME.inp, each ended by a marker line; a line of ids for each in NAME.out. */
static void check_vocab_file(const char *name) {
  static const char marker[] = "\n__ggml_vocab_test__\n";
  char path[1024];
  size_t length, unused, texts = 0;
  snprintf(path, sizeof path, "%s/vocab/ggml-vocab-%s.gguf", test_data(), name);
  hr_tokenizer *t = open_vocab(path);
  snprintf(path, sizeof path, "%s/vocab/ggml-vocab-%s.gguf.inp", test_data(), name);
  char *inputs = read_file(path, &length);
  snprintf(path, sizeof path, "%s/vocab/ggml-vocab-%s.gguf.out", test_data(), name);
  char *outputs = read_file(path, &unused), *line = outputs;
  for (char *text = inputs, *end; (end = strstr(text, marker)) != NULL;
       text = end + sizeof marker - 1) {
    int32_t ids[1024];
    char *next = strchr(line, '\n');
    if (next) *next = '\0';
    size_t count = parse_ids(line, ids, COUNT(ids));
    cr_expect(encodes_as(t, text, (size_t)(end - text), PLAIN, ids, count), "%s", name);
    line = next ? next + 1 : line + strlen(line);
    texts++;
  }
  cr_expect_geq(texts, 46, "%s has %zu texts", name, texts);
  free(inputs);
  free(outputs);
  hr_tokenizer_free(t);
}

Test(real, vocabularies) {
  static const char *const names[] = {"gpt-2",     "llama-spm",      "phi-3",   "mpt",
                                      "starcoder", "deepseek-coder", "bert-bge"};
  for (size_t i = 0; i < COUNT(names); i++) check_vocab_file(names[i]);
}

/* The last polish of the library that made the goldens: no space before a mark. */
static void polish(char *text) {
  static const char *const pairs[][2] = {{" .", "."},     {" ?", "?"},   {" !", "!"},
                                         {" ,", ","},     {" ' ", "'"},  {" n't", "n't"},
                                         {" 'm", "'m"},   {" 's", "'s"}, {" 've", "'ve"},
                                         {" 're", "'re"}};
  for (size_t i = 0; i < COUNT(pairs); i++)
    for (char *at = text; (at = strstr(at, pairs[i][0])) != NULL; at += strlen(pairs[i][1])) {
      size_t from = strlen(pairs[i][0]), to = strlen(pairs[i][1]);
      memcpy(at, pairs[i][1], to);
      memmove(at + to, at + from, strlen(at + from) + 1);
    }
}

/* The expected text names control tokens; ours leaves them out. */
static void check_decoded(const hr_tokenizer *t, const int32_t *ids, size_t count,
                          const char *decoded, const char *what) {
  static const char *const names[] = {"[CLS] ", " [SEP]", " [UNK]"};
  size_t length;
  char *text = decode(t, ids, count, false, &length), *expected = strdup(decoded);
  for (size_t i = 0; i < COUNT(names); i++)
    for (char *at; (at = strstr(expected, names[i])) != NULL;)
      memmove(at, at + strlen(names[i]), strlen(at + strlen(names[i])) + 1);
  char *start = text + (hr_tokenizer_strips_first_space(t) && *text == ' ');
  if (strstr(decoded, "[CLS] [SEP]")) *expected = '\0';
  char *wanted = expected;
  if (strncmp(wanted, "[UNK]", 5) == 0) wanted += wanted[5] == ' ' ? 6 : 5;
  polish(start);
  cr_expect_str_eq(start, wanted, "%s: \"%s\", expected \"%s\"", what, start, wanted);
  free(text);
  free(expected);
}

static void check_goldens(const json_t *cases, const char *vocab, unsigned flags) {
  char path[1024];
  snprintf(path, sizeof path, "%s/vocab/ggml-vocab-%s.gguf", test_data(), vocab);
  hr_tokenizer *t = open_vocab(path);
  void *at;
  size_t checked = 0;
  for (at = json_object_iter((json_t *)cases); at;
       at = json_object_iter_next((json_t *)cases, at)) {
    const json_t *one = json_object_iter_value(at), *text = json_object_get(one, "text");
    const json_t *list = json_object_get(one, "ids");
    int32_t ids[256];
    if (json_object_get(one, "text_pair")) continue; /* two texts are no matter of the tokenizer */
    cr_assert(text && list && json_array_size(list) <= COUNT(ids));
    for (size_t i = 0; i < json_array_size(list); i++)
      ids[i] = (int32_t)json_integer_value(json_array_get(list, i));
    cr_expect(encodes_as(t, json_string_value(text), json_string_length(text), flags, ids,
                         json_array_size(list)),
              "%s: %s", vocab, json_object_iter_key(at));
    if (json_string_length(text) == strlen(json_string_value(text)))
      check_decoded(t, ids, json_array_size(list),
                    json_string_value(json_object_get(one, "decoded")), json_object_iter_key(at));
    checked++;
  }
  cr_expect_gt(checked, 20);
  hr_tokenizer_free(t);
}

Test(real, goldens) {
  char path[1024];
  snprintf(path, sizeof path, "%s/tokenizer-goldens/gpt2_bert.json", test_data());
  json_error_t fault;
  json_t *root = json_load_file(path, JSON_ALLOW_NUL, &fault);
  cr_assert(root, "%s", fault.text);
  check_goldens(json_object_get(root, "Xenova/gpt2"), "gpt-2", PLAIN);
  check_goldens(json_object_get(root, "Xenova/bert-base-uncased"), "bert-bge", SPECIAL);
  json_decref(root);
}

Test(real, stories260K) {
  char path[1024];
  size_t length;
  snprintf(path, sizeof path, "%s/stories260K/stories260K.gguf", test_data());
  hr_tokenizer *t = open_vocab(path);
  EXPECT(t, "Once upon a time", SPECIAL, 1, 403, 407, 261, 378);
  EXPECT(t, "", SPECIAL, 1);
  snprintf(path, sizeof path, "%s/corpora/tinyshakespeare.txt", test_data());
  char *text = read_file(path, &length);
  cr_expect(round_trips(t, text, length));
  free(text);
  hr_tokenizer_free(t);
}

/* Whole stories with ids that two other engines agree on. */
static void check_stories(const char *vocab, const char *texts, const char *ids) {
  char path[1024];
  json_error_t fault;
  snprintf(path, sizeof path, "%s/%s", test_data(), vocab);
  hr_tokenizer *t = open_vocab(path);
  snprintf(path, sizeof path, "%s/corpora/%s", test_data(), texts);
  json_t *root = json_load_file(path, 0, &fault);
  snprintf(path, sizeof path, "%s/corpora/%s", test_data(), ids);
  json_t *other = json_load_file(path, 0, &fault);
  cr_assert(root && other, "%s", fault.text);
  const json_t *stories = json_object_get(root, "stories");
  const json_t *lists = json_is_array(other) ? other : json_object_get(other, "ids");
  cr_assert(json_array_size(stories) == 5 && json_array_size(lists) == 5);
  for (size_t i = 0; i < 5; i++) {
    const json_t *story = json_array_get(stories, i), *list = json_array_get(lists, i);
    int32_t expected[1024];
    size_t count = json_array_size(list);
    cr_assert_leq(count, COUNT(expected));
    for (size_t k = 0; k < count; k++)
      expected[k] = (int32_t)json_integer_value(json_array_get(list, k));
    cr_expect(encodes_as(t, json_string_value(story), json_string_length(story), SPECIAL, expected,
                         count));
  }
  json_decref(root);
  json_decref(other);
  hr_tokenizer_free(t);
}

Test(real, stories) {
  check_stories("stories260K/stories260K.gguf", "oracle_ppl_stories260K.json",
                "oracle_ppl_stories260K.json");
  /* a vocabulary without byte tokens */
  check_stories("tinystories-656k/tinystories656k-bf16.gguf", "oracle_ppl_tinystories656k.json",
                "ids_656k.json");
}
