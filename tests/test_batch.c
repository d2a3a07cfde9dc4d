/* SPDX-License-Identifier: MIT
 * Several sequences of a session in the same passes: each gets the bits that it gets alone. */
#include <criterion/criterion.h>
#include <headrow/headrow.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FAMILIES HEADROW_SOURCE_ROOT "/tests/fixtures/families/"
#define MODELS HEADROW_SOURCE_ROOT "/models/"

TestSuite(batch, .timeout = 300);

enum { SEQUENCES = 5, CALLS = 6, MOST = 12 };

static hr_session *open_sequences(const hr_model *model, hr_session_options o, size_t sequences) {
  hr_error err;
  hr_session_options options;
  hr_session_options_init(&options);
  options.context = o.context;
  options.chunk = o.chunk;
  options.threads = o.threads;
  options.threads_batch = o.threads_batch;
  options.cache = o.cache;
  options.progress = o.progress;
  options.sequences = sequences;
  hr_session *s = hr_session_create(model, &options, &err);
  cr_assert(s, "%s", err.message);
  return s;
}

/* Tokens of each call and sequence: prompts and single tokens side by side, sequences
 * that pause, and one that ends and begins anew. */
static const size_t tokens_of[CALLS][SEQUENCES] = {
    {1, 4, 2, 0, 1}, {1, 1, 0, 5, 1}, {1, 1, 1, 1, 1}, {0, 3, 1, 1, 0}, {0, 1, 0, 0, 0},
    {2, 1, 1, 4, 1},
};
enum { ANEW_CALL = 3, ANEW = 1 }; /* this sequence is rewound before this call */

/* Differ by sequence and place. */
static int32_t id_of(const hr_model *model, size_t call, size_t sequence, size_t i) {
  return (int32_t)((call * 31 + sequence * 7 + i * 3 + 1) % hr_model_vocab_size(model));
}

static size_t ids_of(const hr_model *model, size_t call, size_t sequence, int32_t ids[MOST]) {
  for (size_t i = 0; i < tokens_of[call][sequence]; i++) ids[i] = id_of(model, call, sequence, i);
  return tokens_of[call][sequence];
}

/* What a sequence gets by itself. */
static const float *alone(hr_session *s, const hr_model *model, size_t call, size_t sequence,
                          hr_logits_rows rows) {
  int32_t ids[MOST];
  hr_error err;
  size_t count = ids_of(model, call, sequence, ids);
  cr_assert_eq(hr_session_eval(s, ids, count, rows, &err), HR_OK, "%s", err.message);
  return hr_session_logits(s, 0);
}

static void expect_call(hr_session *all, hr_session *const one[SEQUENCES], const hr_model *model,
                        size_t call, hr_logits_rows rows, const char *name) {
  hr_batch_piece piece[SEQUENCES];
  int32_t ids[SEQUENCES][MOST];
  size_t pieces = 0, row = 0, vocab = hr_model_vocab_size(model);
  hr_error err;
  for (size_t i = 0; i < SEQUENCES; i++) { /* not in the order of their numbers */
    size_t sequence = (i * 3 + call) % SEQUENCES, count = ids_of(model, call, sequence, ids[i]);
    if (count) piece[pieces++] = (hr_batch_piece){sequence, ids[i], count};
  }
  cr_assert_eq(hr_session_eval_batch(all, piece, pieces, rows, &err), HR_OK, "%s", err.message);
  for (size_t i = 0; i < pieces; i++) {
    size_t sequence = piece[i].sequence, n = rows == HR_LOGITS_ALL ? piece[i].count : 1;
    const float *expected = alone(one[sequence], model, call, sequence, rows);
    cr_expect(memcmp(hr_session_logits(all, row), expected, n * vocab * sizeof *expected) == 0,
              "%s, call %zu, sequence %zu", name, call, sequence);
    cr_expect_eq(hr_session_position_of(all, sequence), hr_session_position(one[sequence]));
    row += n;
  }
  cr_expect_null(hr_session_logits(all, row));
}

static void expect_same_bits(const char *path, hr_weights weights, hr_session_options o,
                             hr_logits_rows rows) {
  hr_error err;
  hr_model_options options;
  hr_model_options_init(&options);
  options.weights = weights;
  hr_model *model = hr_model_open(path, &options, &err);
  cr_assert(model, "%s", err.message);
  hr_session *all = open_sequences(model, o, SEQUENCES), *one[SEQUENCES];
  o.chunk = 0;
  o.threads = o.threads_batch = 1;
  for (size_t i = 0; i < SEQUENCES; i++) one[i] = open_sequences(model, o, 0);
  for (size_t call = 0; call < CALLS; call++) {
    if (call == ANEW_CALL) {
      cr_assert_eq(hr_session_rewind_sequence(all, ANEW, 0, &err), HR_OK);
      cr_assert_eq(hr_session_rewind(one[ANEW], 0, &err), HR_OK);
    }
    expect_call(all, one, model, call, rows, path);
  }
  for (size_t i = 0; i < SEQUENCES; i++) hr_session_free(one[i]);
  hr_session_free(all);
  hr_model_free(model);
}

/* Rotated, learned and sloped positions, windows, shared heads, norms on both sides; small
 * chunks cut prompts in the middle of a pass. */
Test(batch, sequences_of_a_pass_have_the_bits_of_each_alone) {
  static const char *const paths[] = {MODELS "rope.gguf",        MODELS "gpt2.gguf",
                                      MODELS "alibi.gguf",       FAMILIES "llama3.gguf",
                                      FAMILIES "mistral.gguf",   FAMILIES "gemma2.gguf",
                                      FAMILIES "falcon.gguf",    FAMILIES "qwen3.gguf"};
  for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
    for (unsigned threads = 1; threads <= 3; threads += 2) {
      const hr_session_options whole = {.context = MOST, .threads = threads},
                               cut = {.context = MOST + 1, .threads = 1, .chunk = 3,
                                      .threads_batch = threads, .cache = HR_CACHE_F32};
      expect_same_bits(paths[i], HR_WEIGHTS_NATIVE, whole, HR_LOGITS_LAST);
      expect_same_bits(paths[i], HR_WEIGHTS_Q8_0, cut, HR_LOGITS_LAST);
      expect_same_bits(paths[i], HR_WEIGHTS_F16, cut, HR_LOGITS_ALL);
    }
}

/* Over several blocks of keys, which a sequence alone has other threads for. */
Test(batch, long_sequences_have_the_bits_of_each_alone) {
  enum { LONG = 700, STEPS = 3, TWO = 2 };
  hr_error err;
  hr_model *model = hr_model_open(MODELS "rope.gguf", NULL, &err);
  cr_assert(model, "%s", err.message);
  int32_t ids[TWO][LONG + STEPS];
  for (size_t q = 0; q < TWO; q++)
    for (size_t i = 0; i < LONG + STEPS; i++)
      ids[q][i] = (int32_t)((i * i + q * 11) % hr_model_vocab_size(model));
  const size_t length[TWO] = {LONG, 255};
  const hr_session_options o = {.context = LONG + STEPS, .threads = 3};
  hr_session *all = open_sequences(model, o, TWO), *one = open_sequences(model, o, 1);
  size_t bytes = hr_model_vocab_size(model) * sizeof(float);
  float *expected = malloc(TWO * STEPS * bytes);
  for (size_t q = 0; q < TWO; q++) {
    cr_assert_eq(hr_session_rewind(one, 0, &err), HR_OK);
    cr_assert_eq(hr_session_eval(one, ids[q], length[q], HR_LOGITS_NONE, &err), HR_OK);
    for (size_t i = 0; i < STEPS; i++) {
      cr_assert_eq(hr_session_eval(one, ids[q] + length[q] + i, 1, HR_LOGITS_LAST, &err), HR_OK);
      memcpy((char *)expected + (i * TWO + q) * bytes, hr_session_logits(one, 0), bytes);
    }
  }
  const hr_batch_piece begin[] = {{1, ids[1], length[1]}, {0, ids[0], length[0]}};
  cr_assert_eq(hr_session_eval_batch(all, begin, TWO, HR_LOGITS_NONE, &err), HR_OK);
  cr_expect_null(hr_session_logits(all, 0));
  for (size_t i = 0; i < STEPS; i++) {
    const hr_batch_piece more[] = {{0, ids[0] + length[0] + i, 1}, {1, ids[1] + length[1] + i, 1}};
    cr_assert_eq(hr_session_eval_batch(all, more, TWO, HR_LOGITS_LAST, &err), HR_OK);
    cr_expect(memcmp(hr_session_logits(all, 0), (char *)expected + i * TWO * bytes, TWO * bytes) ==
                  0,
              "step %zu", i);
  }
  free(expected);
  hr_session_free(one);
  hr_session_free(all);
  hr_model_free(model);
}

Test(batch, what_can_not_be_done_changes_nothing) {
  hr_error err;
  hr_model *model = hr_model_open(MODELS "rope.gguf", NULL, &err);
  cr_assert(model, "%s", err.message);
  hr_session *s = open_sequences(model, (hr_session_options){.context = 8, .threads = 1}, 2);
  const int32_t ids[] = {1, 2, 3, 4, 5, 6, 7, 8, 9},
                bad[] = {1, (int32_t)hr_model_vocab_size(model)};
  const hr_batch_piece good[] = {{0, ids, 5}, {1, ids, 8}};
  cr_assert_eq(hr_session_eval_batch(s, good, 2, HR_LOGITS_LAST, &err), HR_OK, "%s", err.message);
  static const struct {
    size_t sequence[2], count[2];
    bool bad;
    hr_status status;
    const char *word;
  } all[] = {
      {{0, 1}, {3, 1}, false, HR_ERROR_CONTEXT, "1 tokens at position 8"},
      {{0, 1}, {4, 0}, false, HR_ERROR_CONTEXT, "4 tokens at position 5"},
      {{0, 1}, {1, 0}, false, HR_ERROR_USAGE, "no tokens"},
      {{0, 0}, {1, 1}, false, HR_ERROR_USAGE, "two pieces"},
      {{0, 2}, {1, 1}, false, HR_ERROR_USAGE, "sequence 2"},
      {{SIZE_MAX, 1}, {1, 1}, false, HR_ERROR_USAGE, "is not there"},
      {{0, 1}, {2, 0}, true, HR_ERROR_USAGE, "vocabulary"},
  };
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    const int32_t *from = all[i].bad ? bad : ids;
    const hr_batch_piece pieces[] = {{all[i].sequence[0], from, all[i].count[0]},
                               {all[i].sequence[1], from, all[i].count[1]}};
    cr_expect_eq(hr_session_eval_batch(s, pieces, 2, HR_LOGITS_LAST, &err), all[i].status, "%zu",
                 i);
    cr_expect(strstr(err.message, all[i].word), "%s", err.message);
    cr_expect(hr_session_position_of(s, 0) == 5 && hr_session_position_of(s, 1) == 8);
  }
  cr_expect_eq(hr_session_eval_batch(s, good, 0, HR_LOGITS_LAST, &err), HR_ERROR_USAGE);
  cr_expect_eq(hr_session_rewind_sequence(s, 2, 0, &err), HR_ERROR_USAGE);
  cr_expect_eq(hr_session_rewind_sequence(s, 1, 9, &err), HR_ERROR_USAGE);
  cr_expect_eq(hr_session_position_of(s, 2), 0);
  cr_expect_eq(hr_session_position(s), 5);
  hr_session_free(s);
  hr_session_options o;
  hr_session_options_init(&o);
  o.context = 1000;
  for (o.sequences = SIZE_MAX; o.sequences > 1 << 20; o.sequences /= 2) {
    cr_expect_null(hr_session_create(model, &o, &err));
    cr_expect(err.status == HR_ERROR_USAGE && strstr(err.message, "sequences"), "%s", err.message);
  }
  hr_model_free(model);
}

static bool stop(void *data, double done) {
  (void)data;
  return done < 0.4;
}

Test(batch, a_cancelled_call_keeps_its_passes) {
  hr_error err;
  hr_model *model = hr_model_open(MODELS "rope.gguf", NULL, &err);
  cr_assert(model, "%s", err.message);
  const hr_session_options o = {.context = 16, .chunk = 4, .threads = 1, .progress = stop};
  hr_session *s = open_sequences(model, o, 2);
  const int32_t ids[10] = {0};
  const hr_batch_piece pieces[] = {{1, ids, 6}, {0, ids, 10}};
  cr_expect_eq(hr_session_eval_batch(s, pieces, 2, HR_LOGITS_LAST, &err), HR_ERROR_CANCELLED);
  cr_expect_eq(hr_session_position_of(s, 1), 6);
  cr_expect_eq(hr_session_position_of(s, 0), 2);
  cr_expect_null(hr_session_logits(s, 0));
  hr_session_free(s);
  hr_model_free(model);
}

/* An encoder has texts; what its session held of them counts for no sequence. */
Test(batch, models_that_see_both_ways_take_texts) {
  enum { TEXTS = 4, LENGTH = 5 };
  hr_error err;
  hr_model *model = hr_model_open(FAMILIES "bert.gguf", NULL, &err);
  cr_assert(model, "%s", err.message);
  const hr_session_options o = {.context = LENGTH, .threads = 2};
  hr_session *s = open_sequences(model, o, TEXTS), *one = open_sequences(model, o, 1);
  const int32_t ids[] = {1, 2, 3, 4, 5, 6, 7, 8};
  const hr_batch_piece piece = {0, ids, 2};
  cr_expect_eq(hr_session_eval_batch(s, &piece, 1, HR_LOGITS_NONE, &err), HR_ERROR_USAGE);
  cr_expect(strstr(err.message, "hr_session_encode"), "%s", err.message);
  hr_tokens texts[TEXTS];
  for (size_t i = 0; i < TEXTS; i++) texts[i] = (hr_tokens){.ids = ids + i, .count = LENGTH};
  cr_assert_eq(hr_session_encode(s, texts, TEXTS, &err), HR_OK, "%s", err.message);
  for (size_t i = 0; i < TEXTS; i++) {
    cr_assert_eq(hr_session_encode(one, &texts[i], 1, &err), HR_OK, "%s", err.message);
    cr_expect(memcmp(hr_session_hidden(s, i, 0), hr_session_hidden(one, 0, 0),
                     LENGTH * hr_model_width(model) * sizeof(float)) == 0);
    cr_expect_eq(hr_session_position_of(s, i), 0);
  }
  hr_session_free(one);
  hr_session_free(s);
  hr_model_free(model);
}

Test(batch, memory_is_told_for_all_sequences) {
  hr_error err;
  hr_model *model = hr_model_open(MODELS "rope.gguf", NULL, &err);
  cr_assert(model, "%s", err.message);
  hr_session_options o;
  hr_session_options_init(&o);
  o.context = 32;
  hr_memory one = {.size = sizeof one}, four = {.size = sizeof four};
  cr_assert_eq(hr_model_memory(model, &o, &one, &err), HR_OK);
  o.sequences = 4;
  cr_assert_eq(hr_model_memory(model, &o, &four, &err), HR_OK);
  cr_expect_eq(four.cache, 4 * one.cache);
  cr_expect_eq(four.context, 32);
  cr_expect_gt(four.work, one.work);
  hr_model_free(model);
}
