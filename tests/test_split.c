/* SPDX-License-Identifier: MIT
 * The split of a pass: whoever computes what, in how many pieces, the bits are the
 * same; and a token costs no allocation. */
#include <criterion/criterion.h>
#include <headrow/headrow.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "cli/synthetic.h"
#include "engine/engine.h"
#include "sched/wait.h"

TestSuite(split, .timeout = 600);

/* --- Counting what the C library is asked for --------------------------------- */

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && defined(__GLIBC__)
#define COUNTS_MALLOC 1
static _Atomic size_t mallocs;

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *old, size_t bytes);

void *malloc(size_t bytes) {
  mallocs++;
  return __libc_malloc(bytes);
}
void *calloc(size_t count, size_t bytes) {
  mallocs++;
  return __libc_calloc(count, bytes);
}
void *realloc(void *old, size_t bytes) {
  mallocs++;
  return __libc_realloc(old, bytes);
}
#else
#define COUNTS_MALLOC 0
static const size_t mallocs = 0;
#endif

/* --- Models and runs ------------------------------------------------------------ */

/* Heads, widths and panels that no number of threads divides. */
#define UNEVEN "dim=192,layers=2,heads=6,kv=3,ffn=416,vocab=500,ctx=2048"

static hr_model *drawn_model(const char *shape_text) {
  cli_shape shape;
  cli_image image = {0};
  hr_error err = {.message = ""};
  cr_assert(cli_shape_parse(shape_text, &shape, &err) == HR_OK, "%s", err.message);
  cr_assert(cli_image_make(&shape, NULL, NULL, &image, &err) == HR_OK, "%s", err.message);
  hr_model *model = hr_model_open_memory(image.data, image.bytes, shape_text, NULL, &err);
  cli_image_free(&image);
  cr_assert(model, "%s", err.message);
  return model;
}

static hr_session *open_session(const hr_model *model, unsigned threads, size_t chunk,
                                size_t context) {
  hr_session_options o;
  hr_error err = {.message = ""};
  hr_session_options_init(&o);
  o.threads = threads;
  o.chunk = chunk;
  o.context = context;
  hr_session *session = hr_session_create(model, &o, &err);
  cr_assert(session, "%s", err.message);
  return session;
}

static void draw_ids(const hr_model *model, int32_t *ids, size_t count) {
  uint32_t state = 7;
  for (size_t i = 0; i < count; i++) {
    state = state * 1664525u + 1013904223u;
    ids[i] = (int32_t)((state >> 8) % hr_model_vocab_size(model));
  }
}

/* Of all logits: of a prompt, and of the same number of tokens one at a time. */
static uint64_t digest_of(hr_session *s, const int32_t *ids, size_t prompt, size_t single) {
  size_t vocab = hr_model_vocab_size(s->model);
  uint64_t digest = HR_DIGEST_INIT;
  hr_error err = {.message = ""};
  cr_assert(hr_session_rewind(s, 0, NULL) == HR_OK);
  cr_assert(hr_session_eval(s, ids, prompt, HR_LOGITS_ALL, &err) == HR_OK, "%s", err.message);
  for (size_t i = 0; i < prompt; i++) digest = hr_digest(digest, hr_session_logits(s, i), vocab);
  for (size_t i = 0; i < single; i++) {
    cr_assert(hr_session_eval(s, ids + prompt + i, 1, HR_LOGITS_LAST, &err) == HR_OK, "%s",
              err.message);
    digest = hr_digest(digest, hr_session_logits(s, 0), vocab);
  }
  return digest;
}

/* --- The same bits ---------------------------------------------------------------- */

static const unsigned thread_counts[] = {1, 2, 3, 5, 8, 16};
enum { THREAD_COUNTS = sizeof thread_counts / sizeof *thread_counts };

static void check_splits(const hr_model *model, const char *name, size_t prompt, size_t single) {
  static const size_t chunks[] = {1, 7, 64, 512};
  int32_t *ids = hr_calloc(prompt + single, sizeof *ids);
  draw_ids(model, ids, prompt + single);
  hr_session *alone = open_session(model, 1, 512, prompt + single);
  const uint64_t expected = digest_of(alone, ids, prompt, single);
  hr_session_free(alone);
  for (size_t t = 0; t < THREAD_COUNTS; t++)
    for (size_t c = 0; c < sizeof chunks / sizeof *chunks; c++) {
      hr_session *s = open_session(model, thread_counts[t], chunks[c], prompt + single);
      for (uint32_t seed = 0; seed < 2; seed++) {
        hr_workspace_force_stealing(s->workspace, seed * (uint32_t)(t * 4 + c + 1));
        cr_expect(digest_of(s, ids, prompt, single) == expected,
                  "%s: %u threads, chunks of %zu, stealing %s", name, thread_counts[t], chunks[c],
                  seed ? "at random" : "as it comes");
      }
      hr_session_free(s);
    }
  hr_free(ids);
}

/* More positions than two blocks of keys, more rows than a chunk. */
Test(split, threads_chunks_and_thieves_change_no_bit) {
  static const char *const types[] = {"q8_0", "f16"};
  for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
    char shape[128];
    snprintf(shape, sizeof shape, UNEVEN ":%s", types[i]);
    hr_model *model = drawn_model(shape);
    check_splits(model, shape, 540, 20);
    hr_model_free(model);
  }
}

/* Other norms and their places, other positions. */
Test(split, nor_in_other_families) {
  static const char *const names[] = {"gpt2", "alibi", "transformer-2017"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    char path[512];
    hr_error err = {.message = ""};
    snprintf(path, sizeof path, HEADROW_SOURCE_ROOT "/models/%s.gguf", names[i]);
    hr_model *model = hr_model_open(path, NULL, &err);
    cr_assert(model, "%s", err.message);
    check_splits(model, names[i], 70, 10);
    hr_model_free(model);
  }
}

Test(split, a_hundred_times_the_same) {
  enum { PROMPT = 90, SINGLE = 6, TIMES = 100 };
  hr_model *model = drawn_model(UNEVEN ":q8_0");
  int32_t ids[PROMPT + SINGLE];
  hr_session *session[THREAD_COUNTS];
  draw_ids(model, ids, PROMPT + SINGLE);
  for (size_t t = 0; t < THREAD_COUNTS; t++)
    session[t] = open_session(model, thread_counts[t], 64, PROMPT + SINGLE);
  const uint64_t expected = digest_of(session[0], ids, PROMPT, SINGLE);
  for (uint32_t i = 1; i <= TIMES; i++) {
    hr_session *s = session[i % THREAD_COUNTS];
    hr_workspace_force_stealing(s->workspace, i % 4 ? i : 0);
    cr_expect(digest_of(s, ids, PROMPT, SINGLE) == expected, "round %u", i);
  }
  for (size_t t = 0; t < THREAD_COUNTS; t++) hr_session_free(session[t]);
  hr_model_free(model);
}

/* --- What a token costs besides arithmetic ----------------------------------------- */

/* Across blocks of keys, with the choice of the token. */
Test(split, a_token_allocates_nothing) {
  enum { TOKENS = 300 };
  hr_model *model = drawn_model(UNEVEN ":q8_0");
  hr_session *s = open_session(model, 2, 0, TOKENS + 20);
  hr_sampler_options o;
  hr_sampler_options_init(&o);
  o.top_k = 40;
  o.seed = 1;
  hr_sampler *sampler = hr_sampler_create(model, &o, NULL);
  int32_t ids[16];
  hr_error err;
  draw_ids(model, ids, 16);
  cr_assert(sampler && hr_session_eval(s, ids, 16, HR_LOGITS_LAST, &err) == HR_OK);
  int32_t next = hr_sampler_pick(sampler, hr_session_logits(s, 0), &err);
  (void)hr_memory_fail_at(0);
  size_t before = mallocs;
  for (int i = 0; i < TOKENS && next >= 0; i++)
    next = hr_session_eval(s, &next, 1, HR_LOGITS_LAST, &err) == HR_OK
               ? hr_sampler_pick(sampler, hr_session_logits(s, 0), &err)
               : -1;
  size_t asked = mallocs - before, own = hr_memory_fail_at(0);
  cr_expect(next >= 0, "%s", err.message);
  cr_expect(own == 0, "%zu allocations of our own", own);
  cr_expect(asked == 0, "%zu calls of malloc", asked);
  if (COUNTS_MALLOC) {
    before = mallocs;
    hr_free(hr_calloc(1, 1));
    cr_expect(mallocs > before, "the count itself");
  }
  hr_sampler_free(sampler);
  hr_session_free(s);
  hr_model_free(model);
}

static double seconds_of_tokens(hr_session *s, const int32_t *ids, size_t count) {
  cr_assert(hr_session_rewind(s, 0, NULL) == HR_OK);
  uint64_t start = hr_clock_ns();
  for (size_t i = 0; i < count; i++)
    cr_assert(hr_session_eval(s, ids + i, 1, HR_LOGITS_LAST, NULL) == HR_OK);
  return (double)(hr_clock_ns() - start) * 1e-9;
}

/* Other programs may spoil a measurement: the bound has to hold in one of several rounds. */
Test(split, twice_the_threads_take_at_most_three_times_as_long) {
  enum { TOKENS = 16, ROUNDS = 12 };
  hr_model *model = drawn_model("dim=512,layers=6,heads=8,kv=4,ffn=1536,vocab=8000:q8_0");
  unsigned cores = (unsigned)sysconf(_SC_NPROCESSORS_ONLN);
  hr_session *fit = open_session(model, cores, 0, TOKENS);
  hr_session *crowded = open_session(model, 2 * cores, 0, TOKENS);
  int32_t ids[TOKENS];
  double least = 1e9;
  draw_ids(model, ids, TOKENS);
  for (int i = 0; i < ROUNDS && least > 3; i++) {
    double one = seconds_of_tokens(fit, ids, TOKENS), two = seconds_of_tokens(crowded, ids, TOKENS);
    if (i > 0 && two / one < least) least = two / one;
  }
  cr_expect(least <= 3, "%.1f times as long", least);
  hr_session_free(fit);
  hr_session_free(crowded);
  hr_model_free(model);
}
