/* SPDX-License-Identifier: MIT
 * The split of a pass: whoever computes what, in how many pieces, the bits are the
 * same; and a token costs no allocation. */
#include <criterion/criterion.h>
#include <headrow/headrow.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "block/pass.h"
#include "engine/engine.h"
#include "sched/limits.h"
#include "sched/wait.h"
#include "tests/support/split.h"

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

/* --- The same bits ---------------------------------------------------------------- */

static const unsigned thread_counts[] = {1, 2, 3, 5, 8, 16};
static const size_t chunks[] = {1, 7, 64, 512};
enum { THREAD_COUNTS = sizeof thread_counts / sizeof *thread_counts, CHUNKS = 4 };

static void tell(const char *line) {
  cr_expect(false, "%s", line);
}

static hr_model *drawn_model(const char *shape) {
  hr_error err = {.message = ""};
  hr_model *model = split_model(shape, &err);
  cr_assert(model, "%s", err.message);
  return model;
}

static hr_session *open_session(const hr_model *model, unsigned threads, size_t chunk,
                                size_t context) {
  hr_error err = {.message = ""};
  hr_session *session = split_session(model, threads, chunk, context, &err);
  cr_assert(session, "%s", err.message);
  return session;
}

static void check(const hr_model *model, const char *name, size_t prompt, size_t single,
                  uint32_t repeats) {
  const split_plan plan = {thread_counts, THREAD_COUNTS, chunks, CHUNKS, prompt, single, repeats};
  uint64_t digest;
  cr_expect(split_check(model, &plan, tell, &digest) == 0, "%s", name);
}

/* More positions than two blocks of keys, more rows than a chunk. */
Test(split, threads_chunks_and_thieves_change_no_bit) {
  static const char *const shapes[] = {SPLIT_UNEVEN ":q8_0", SPLIT_UNEVEN ":f16"};
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
    hr_model *model = drawn_model(shapes[i]);
    check(model, shapes[i], 540, 20, 2);
    hr_model_free(model);
  }
}

Test(split, nor_where_rows_are_quantized_in_pieces) {
  hr_model *model = drawn_model(SPLIT_PIECES ":q8_0");
  check(model, SPLIT_PIECES, 300, 4, 2);
  hr_model_free(model);
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
    check(model, names[i], 70, 10, 2);
    hr_model_free(model);
  }
}

Test(split, a_hundred_times_the_same) {
  enum { REPEATS = 5 }; /* of each pair */
  _Static_assert(THREAD_COUNTS * CHUNKS * REPEATS >= 100, "a hundred");
  hr_model *model = drawn_model(SPLIT_UNEVEN ":q8_0");
  check(model, "again and again", 90, 6, REPEATS);
  hr_model_free(model);
}

/* One pair, with single tokens whose keys are split among threads. */
Test(split, a_hundred_ways_to_steal) {
  const unsigned threads = 3;
  const size_t chunk = 64;
  const split_plan plan = {&threads, 1, &chunk, 1, 270, 6, 101};
  uint64_t digest;
  hr_model *model = drawn_model(SPLIT_SMALL ":q8_0");
  cr_expect(split_check(model, &plan, tell, &digest) == 0);
  hr_model_free(model);
}

/* --- What a token costs besides arithmetic ----------------------------------------- */

/* Across blocks of keys, with the choice of the token. */
Test(split, a_token_allocates_nothing) {
  enum { TOKENS = 300 };
  hr_model *model = drawn_model(SPLIT_UNEVEN ":q8_0");
  hr_session *s = open_session(model, 2, 0, TOKENS + 20);
  hr_sampler_options o;
  hr_sampler_options_init(&o);
  o.top_k = 40;
  o.seed = 1;
  hr_sampler *sampler = hr_sampler_create(model, &o, NULL);
  int32_t ids[16];
  hr_error err;
  split_ids(model, ids, 16);
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

/* --- Who reads which weights ---------------------------------------------------- */

enum { MOST_READERS = 7 };
static const uint32_t slower_at_the_end[MOST_READERS + 1] = {0, 10, 20, 30, 40, 44, 48, 52};

/* What loading takes for a thread's panels is what the thread's steps begin with. */
static void check_readers(hr_pass *pass, unsigned threads, const hr_projection *side,
                          size_t count) {
  for (unsigned thread = 0; thread < threads; thread++) {
    hr_product_step s = hr_begin_product(pass, thread, threads, 1, side, count, 1);
    hr_tiles_run share = hr_tiles_share(&s.step.tiles, thread);
    size_t first = hr_min_size(share.begin * s.wide, s.panels);
    size_t last = hr_min_size(share.end * s.wide, s.panels), before = 0;
    for (size_t i = 0; i < count; i++) {
      size_t begin, end, n = (side[i].matrix->n + HR_PANEL_ROWS - 1) / HR_PANEL_ROWS;
      hr_panels_of_thread(pass->model, side[i].matrix, thread, threads, pass->shares, &begin, &end);
      for (size_t panel = 0; panel < n; panel++)
        cr_assert_eq(panel >= begin && panel < end,
                     before + panel >= first && before + panel < last,
                     "panel %zu of matrix %zu, thread %u of %u", panel, i, thread, threads);
      before += n;
    }
  }
}

Test(split, panels_of_a_thread_are_those_that_its_steps_begin_with) {
  hr_model *model = drawn_model("dim=512,layers=2,heads=8,kv=2,ffn=1376,vocab=3000:q8_0");
  hr_session *s = open_session(model, MOST_READERS, 0, 16);
  const hr_transformer *t = &model->loaded.transformer;
  for (unsigned threads = 1; threads <= MOST_READERS; threads++)
    for (int uneven = 0; uneven < 2; uneven++) {
      hr_pass pass = {.model = t, .kernels = &model->kernels, .ws = s->workspace,
                      .shares = uneven ? slower_at_the_end : NULL};
      const hr_layer *layer = &t->layer[1];
      const hr_projection inputs[] = {
          {.matrix = &layer->query}, {.matrix = &layer->key}, {.matrix = &layer->value}};
      const hr_projection alone[] = {{.matrix = &layer->output}, {.matrix = &layer->up},
                                     {.matrix = &layer->gate},   {.matrix = &layer->down},
                                     {.matrix = &t->head},       {.matrix = &t->token_embedding}};
      check_readers(&pass, threads, inputs, 3);
      for (size_t i = 0; i < sizeof alone / sizeof *alone; i++)
        check_readers(&pass, threads, &alone[i], 1);
    }
  hr_session_free(s);
  hr_model_free(model);
}

/* 61 KiB a layer are less than the barriers of one; 2.6 MiB are not. */
Test(split, small_models_have_fewer_threads) {
  static const struct {
    const char *shape;
    unsigned most;
  } cases[] = {{"dim=64,layers=5,heads=8,kv=4,ffn=192,vocab=512:q8_0", 1},
               {"dim=448,layers=4,heads=4,ffn=1216,vocab=512:q8_0", 16}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    hr_model *model = drawn_model(cases[i].shape);
    hr_session *s = open_session(model, 0, 0, 16);
    unsigned many = hr_session_threads_batch(s), one = hr_session_threads(s);
    cr_expect(one <= cases[i].most, "%u of %u", one, many);
    if (many <= 16 && i == 1) cr_expect(one > 1 || many == 1, "%u and %u", one, many);
    hr_session_free(s);
    hr_model_free(model);
  }
}

/* --- Time ------------------------------------------------------------------------- */

static double seconds_of_tokens(hr_session *s, const int32_t *ids, size_t count) {
  cr_assert(hr_session_rewind(s, 0, NULL) == HR_OK);
  uint64_t start = hr_clock_ns();
  for (size_t i = 0; i < count; i++)
    cr_assert(hr_session_eval(s, ids + i, 1, HR_LOGITS_LAST, NULL) == HR_OK);
  return (double)(hr_clock_ns() - start) * 1e-9;
}

/* Other programs may spoil a measurement: the bound has to hold in one of several rounds. */
static void expect_graceful(const hr_model *model, const char *name, bool crowded, double most) {
  enum { TOKENS = 16, ROUNDS = 12 };
  unsigned cores = (unsigned)sysconf(_SC_NPROCESSORS_ONLN);
  hr_session *fit = open_session(model, cores, 0, TOKENS);
  hr_session *twice = open_session(model, 2 * cores, 0, TOKENS);
  twice->crowded = crowded;
  int32_t ids[TOKENS];
  double least = 1e9;
  split_ids(model, ids, TOKENS);
  for (int i = 0; i < ROUNDS && least > most; i++) {
    double one = seconds_of_tokens(fit, ids, TOKENS), two = seconds_of_tokens(twice, ids, TOKENS);
    if (i > 0 && two / one < least) least = two / one;
  }
  cr_expect(least <= most, "%s: %.1f times as long", name, least);
  hr_session_free(fit);
  hr_session_free(twice);
}

/* A session's passes leave those out that find no CPU; passes of all get slower, not stuck. */
Test(split, twice_the_threads_take_at_most_three_times_as_long) {
  hr_error err = {.message = ""};
  hr_model *model = drawn_model("dim=512,layers=6,heads=8,kv=4,ffn=1536,vocab=8000:q8_0");
  expect_graceful(model, "all threads", true, 3);
  expect_graceful(model, "those at work", false, 1.5);
  hr_model_free(model);
  model = hr_model_open(HEADROW_SOURCE_ROOT "/models/builtin.gguf", NULL, &err);
  cr_assert(model, "%s", err.message);
  expect_graceful(model, "the built-in model", false, 1.5);
  hr_model_free(model);
}

/* Those that were asked for, but no more than the CPUs, or than a quota is worth; both counts,
 * and the bits stay. */
Test(split, passes_take_no_more_threads_than_cpus) {
  enum { PROMPT = 20, SINGLE = 5 };
  cpu_set_t set;
  cr_assert(sched_getaffinity(0, sizeof set, &set) == 0);
  unsigned cpus = (unsigned)CPU_COUNT(&set);
  hr_limits *limits = calloc(1, sizeof *limits);
  cr_assert(limits);
  hr_limits_read(limits, "/");
  for (unsigned i = 0; i < limits->quotas; i++)
    if (limits->quota[i].cpus < cpus) cpus = limits->quota[i].cpus;
  free(limits);
  hr_model *model = drawn_model(SPLIT_UNEVEN ":q8_0");
  int32_t ids[PROMPT + SINGLE];
  uint64_t expected = 0;
  hr_error err = {.message = ""};
  split_ids(model, ids, PROMPT + SINGLE);
  for (unsigned threads = 1; threads <= 16; threads *= 2) {
    unsigned least = threads < cpus ? threads : cpus;
    hr_session *s = open_session(model, threads, 0, PROMPT + SINGLE);
    cr_expect_eq(hr_session_active(s, false), threads);
    s->crowded = false;
    cr_expect_eq(hr_session_active(s, false), least);
    cr_expect_eq(hr_session_active(s, true), least);
    cr_expect_eq(hr_session_threads(s), threads);
    const char *warning = hr_session_warning(s);
    if (threads > cpus) cr_expect(warning && strstr(warning, " work at a time"));
    uint64_t digest = split_digest(s, ids, PROMPT, SINGLE, 0, &err);
    if (threads == 1) expected = digest;
    cr_expect(digest != 0 && digest == expected, "%u threads: %s", threads, err.message);
    hr_session_free(s);
  }
  hr_model_free(model);
}
