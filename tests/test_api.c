/* SPDX-License-Identifier: MIT
 * The public API: who owns what, how it fails, and what never changes a result. */
#include <criterion/criterion.h>
#include <headrow/headrow.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/gguf_writer.h"

#define MODEL HEADROW_SOURCE_ROOT "/models/rope.gguf"
#define CAPACITY 256

TestSuite(api, .timeout = 300);

static hr_model *open_model(void) {
  hr_error err;
  hr_model *model = hr_model_open(MODEL, NULL, &err);
  cr_assert(model != NULL, "%s", err.message);
  return model;
}

static hr_session *open_session(const hr_model *model, size_t chunk, unsigned threads) {
  hr_error err;
  hr_session_options options;
  hr_session_options_init(&options);
  options.chunk = chunk;
  options.threads = threads;
  options.context = 128;
  hr_session *session = hr_session_create(model, &options, &err);
  cr_assert(session != NULL, "%s", err.message);
  return session;
}

/* Any ids will do. */
static void fill(int32_t *ids, size_t count, const hr_model *model) {
  uint32_t state = 1;
  for (size_t i = 0; i < count; i++) {
    state = state * 1664525u + 1013904223u;
    ids[i] = (int32_t)((state >> 8) % hr_model_vocab_size(model));
  }
}

/* Digest of the last row after some ids. */
static uint64_t digest_of(const hr_model *model) {
  int32_t ids[40];
  hr_error err;
  fill(ids, 40, model);
  hr_session *session = open_session(model, 0, 1);
  cr_assert_eq(hr_session_eval(session, ids, 40, HR_LOGITS_LAST, &err), HR_OK, "%s", err.message);
  uint64_t digest =
      hr_digest(HR_DIGEST_INIT, hr_session_logits(session, 0), hr_model_vocab_size(model));
  hr_session_free(session);
  return digest;
}

/* --- Opening ------------------------------------------------------------------ */

Test(api, version_is_the_header_s) {
  char text[32];
  snprintf(text, sizeof text, "%d.%d.%d", HR_VERSION_MAJOR, HR_VERSION_MINOR, HR_VERSION_PATCH);
  cr_expect_str_eq(hr_version(), text);
}

Test(api, null_may_be_freed) {
  hr_model_free(NULL);
  hr_session_free(NULL);
  hr_sampler_free(NULL);
  hr_decoder_free(NULL);
}

Test(api, a_missing_file_is_a_sentence) {
  hr_error err = {.status = HR_OK};
  cr_expect_null(hr_model_open("/no/such/file.gguf", NULL, &err));
  cr_expect_eq(err.status, HR_ERROR_FILE);
  cr_expect(strstr(err.message, "/no/such/file.gguf") != NULL);
  cr_expect_null(hr_model_open("/no/such/file.gguf", NULL, NULL));
}

/* What a program has that was built with another header. */
typedef struct grown_options {
  hr_session_options known;
  char more[24];
} grown_options;

/* Options that end after `old` bytes; what lies behind is not the library's to read or write. */
typedef struct short_options {
  size_t old;
  unsigned char memory[128];
} short_options;

static void *begin_short(short_options *s, size_t old) {
  s->old = old;
  memset(s->memory, 0x5a, sizeof s->memory);
  return s->memory;
}

static void end_short(const short_options *s, const char *what) {
  size_t size;
  memcpy(&size, s->memory, sizeof size);
  cr_expect_eq(size, s->old, "%s", what);
  for (size_t i = s->old; i < sizeof s->memory; i++)
    cr_expect_eq(s->memory[i], 0x5a, "%s of %zu bytes: byte %zu", what, s->old, i);
}

/* Each struct as it was before any of its members was there. */
Test(api, options_of_an_older_header_are_taken) {
  hr_error err;
  short_options s;
  hr_model *model = open_model();
  const uint64_t expected = digest_of(model);
  for (size_t old = sizeof(size_t); old <= sizeof(hr_model_options); old += 4) {
    hr_model_options *o = begin_short(&s, old);
    hr_model_options_fill(o, old);
    hr_model *other = hr_model_open(MODEL, o, &err);
    cr_assert(other, "%zu bytes: %s", old, err.message);
    cr_expect(digest_of(other) == expected, "model options of %zu bytes", old);
    hr_model_free(other);
    end_short(&s, "model options");
  }
  for (size_t old = sizeof(size_t); old <= sizeof(hr_session_options); old += 4) {
    hr_session_options *o = begin_short(&s, old);
    hr_session_options_fill(o, old);
    if (old >= offsetof(hr_session_options, chunk)) o->context = 17;
    hr_session *session = hr_session_create(model, o, &err);
    cr_assert(session, "%zu bytes: %s", old, err.message);
    cr_expect_eq(hr_session_context(session) == 17, old >= offsetof(hr_session_options, chunk));
    hr_session_free(session);
    end_short(&s, "session options");
  }
  for (size_t old = sizeof(size_t); old <= sizeof(hr_sampler_options); old += 4) {
    hr_sampler_options *o = begin_short(&s, old);
    hr_sampler_options_fill(o, old);
    hr_sampler *sampler = hr_sampler_create(model, o, &err);
    cr_expect(sampler, "%zu bytes: %s", old, err.message);
    hr_sampler_free(sampler);
    end_short(&s, "sampler options");
  }
  hr_model_free(model);
}

Test(api, other_structs_of_an_older_header_are_taken) {
  hr_error err;
  short_options s;
  hr_model *model = open_model();
  hr_chat *chat = hr_chat_create(model, "chatml", &err);
  const hr_chat_message hello = {"user", "hello", 5};
  cr_assert(chat, "%s", err.message);
  for (size_t old = sizeof(size_t); old <= sizeof(hr_chat_options); old += 8) {
    hr_chat_prompt prompt;
    hr_chat_options *o = begin_short(&s, old);
    hr_chat_options_fill(o, old);
    cr_expect_eq(hr_chat_render(chat, &hello, 1, o, &prompt, &err), HR_OK, "%s", err.message);
    end_short(&s, "chat options");
  }
  hr_memory all = {.size = sizeof all};
  cr_assert_eq(hr_model_memory(model, NULL, &all, &err), HR_OK, "%s", err.message);
  for (size_t old = 2 * sizeof(size_t); old <= sizeof(hr_memory); old += sizeof(size_t)) {
    hr_memory *m = begin_short(&s, old);
    m->size = old;
    cr_expect_eq(hr_model_memory(model, NULL, m, &err), HR_OK, "%s", err.message);
    cr_expect_eq(m->weights, all.weights);
    end_short(&s, "hr_memory");
  }
  hr_chat_free(chat);
  hr_model_free(model);
}

/* By the rules of both 64-bit systems: programs that are there already have these numbers. */
Test(api, members_stay_where_they_are) {
  static const struct {
    const char *what;
    size_t is, was;
  } places[] = {
#define PLACE(type, member, was) {#type "." #member, offsetof(type, member), was}
#define BYTES(type, was) {#type, sizeof(type), was}
      PLACE(hr_model_options, weights, 8),        PLACE(hr_model_options, isa, 16),
      PLACE(hr_model_options, vocabulary_only, 24), PLACE(hr_model_options, progress, 32),
      PLACE(hr_model_options, progress_data, 40), PLACE(hr_model_options, defer_weights, 48),
      PLACE(hr_model_options, threads, 52),       PLACE(hr_model_options, threads_batch, 56),
      PLACE(hr_model_options, no_pin, 60),        PLACE(hr_model_options, cores, 64),
      BYTES(hr_model_options, 72),                PLACE(hr_session_options, context, 8),
      PLACE(hr_session_options, chunk, 16),       PLACE(hr_session_options, cache, 24),
      PLACE(hr_session_options, threads, 28),     PLACE(hr_session_options, threads_batch, 32),
      PLACE(hr_session_options, no_pin, 36),      PLACE(hr_session_options, cores, 40),
      PLACE(hr_session_options, progress, 48),    PLACE(hr_session_options, progress_data, 56),
      PLACE(hr_session_options, sequences, 64),   BYTES(hr_session_options, 72),
      PLACE(hr_sampler_options, temperature, 8),  PLACE(hr_sampler_options, top_k, 12),
      PLACE(hr_sampler_options, top_p, 16),       PLACE(hr_sampler_options, min_p, 20),
      PLACE(hr_sampler_options, repeat_penalty, 24), PLACE(hr_sampler_options, repeat_last, 28),
      PLACE(hr_sampler_options, seed, 32),        BYTES(hr_sampler_options, 40),
      PLACE(hr_chat_options, no_generation_prompt, 8), PLACE(hr_chat_options, variables, 16),
      PLACE(hr_chat_options, now, 24),            BYTES(hr_chat_options, 32),
      PLACE(hr_memory, weights, 8),               PLACE(hr_memory, mapped, 16),
      PLACE(hr_memory, cache, 24),                PLACE(hr_memory, work, 32),
      PLACE(hr_memory, context, 40),              BYTES(hr_memory, 48),
      PLACE(hr_error, message, 4),                BYTES(hr_error, 512),
      PLACE(hr_tokens, types, 8),                 BYTES(hr_tokens, 24),
      PLACE(hr_batch_piece, ids, 8),              BYTES(hr_batch_piece, 24),
      PLACE(hr_chat_message, content, 8),         BYTES(hr_chat_message, 24),
      PLACE(hr_chat_prompt, ids, 16),             BYTES(hr_chat_prompt, 32)};
  for (size_t i = 0; i < sizeof places / sizeof *places; i++)
    cr_expect_eq(places[i].is, places[i].was, "%s: %zu, expected %zu as ever", places[i].what,
                 places[i].is, places[i].was);
}

Test(api, options_of_a_newer_header_are_taken_when_they_ask_for_nothing_new) {
  hr_model *model = open_model();
  hr_error err;
  grown_options options;
  memset(&options, 0x5a, sizeof options);
  hr_session_options_fill(&options.known, sizeof options);
  cr_expect_eq(options.known.size, sizeof options);
  options.known.context = 17;
  hr_session *session = hr_session_create(model, &options.known, &err);
  cr_assert_not_null(session, "%s", err.message);
  cr_expect_eq(hr_session_context(session), 17);
  hr_session_free(session);
  options.more[5] = 1;
  cr_expect_null(hr_session_create(model, &options.known, &err));
  cr_expect_eq(err.status, HR_ERROR_USAGE);
  cr_expect_not_null(strstr(err.message, "hr_session_options"), "%s", err.message);
  hr_model_free(model);
}

Test(api, options_without_a_size_are_refused) {
  hr_error err;
  hr_model_options m;
  hr_model_options_init(&m);
  cr_expect_eq(m.size, sizeof m);
  m.size = sizeof m.size - 1;
  cr_expect_null(hr_model_open(MODEL, &m, &err));
  cr_expect_eq(err.status, HR_ERROR_USAGE);

  hr_model *model = open_model();
  hr_session_options s;
  hr_session_options_init(&s);
  cr_expect_eq(s.size, sizeof s);
  s.size = 0;
  cr_expect_null(hr_session_create(model, &s, &err));
  cr_expect_eq(err.status, HR_ERROR_USAGE);

  hr_sampler_options o;
  memset(&o, 0xff, sizeof o); /* a struct on the stack that nobody filled */
  cr_expect_null(hr_sampler_create(model, &o, &err));
  cr_expect_eq(err.status, HR_ERROR_USAGE);
  cr_expect_not_null(strstr(err.message, "hr_sampler_options_init"), "%s", err.message);
  hr_model_free(model);
}

Test(api, values_of_options_are_checked) {
  hr_error err;
  hr_model_options m;
  hr_model_options_init(&m);
  m.isa = "no-such-tier";
  cr_expect_null(hr_model_open(MODEL, &m, &err));
  cr_expect_eq(err.status, HR_ERROR_USAGE);
  cr_expect(strstr(err.message, "portable") != NULL, "%s", err.message);
  hr_model_options_init(&m);
  m.weights = (hr_weights)77;
  cr_expect_null(hr_model_open(MODEL, &m, &err));
  cr_expect_eq(err.status, HR_ERROR_USAGE);

  hr_model *model = open_model();
  hr_session_options s;
  hr_session_options_init(&s);
  s.context = SIZE_MAX;
  cr_expect_null(hr_session_create(model, &s, &err));
  hr_session_options_init(&s);
  s.cores = "nonsense";
  cr_expect_null(hr_session_create(model, &s, &err));
  cr_expect_eq(err.status, HR_ERROR_USAGE);
  hr_session_options_init(&s);
  s.threads = 1u << 30;
  cr_expect_null(hr_session_create(model, &s, &err));
  cr_expect_eq(err.status, HR_ERROR_USAGE);
  hr_model_free(model);
}

static bool refuse(void *data, double done) {
  *(double *)data = done;
  return false;
}

typedef struct patience {
  unsigned calls, most;
  double done;
} patience;

static bool refuse_at_last(void *data, double done) {
  patience *p = data;
  p->done = done;
  return ++p->calls < p->most;
}

/* At its first word and at every later one, until it is not asked again. */
Test(api, loading_can_be_cancelled) {
  hr_error err;
  hr_model_options m;
  hr_model_options_init(&m);
  m.progress = refuse_at_last;
  hr_model *model = NULL;
  unsigned most = 0;
  while (!model) {
    patience p = {.most = ++most};
    m.progress_data = &p;
    err = (hr_error){.status = HR_OK};
    model = hr_model_open(MODEL, &m, &err);
    cr_expect(p.done >= 0 && p.done <= 1);
    cr_expect_eq(p.calls, model ? most - 1 : most, "it was asked again");
    cr_expect_eq(err.status, model ? HR_OK : HR_ERROR_CANCELLED, "%s", err.message);
  }
  hr_model_free(model);
  cr_expect_gt(most, 2);
}

Test(api, a_vocabulary_alone_has_no_sessions) {
  hr_error err;
  hr_model_options m;
  hr_model_options_init(&m);
  m.vocabulary_only = true;
  hr_model *model = hr_model_open(MODEL, &m, &err);
  cr_assert(model != NULL, "%s", err.message);
  size_t count;
  cr_expect_eq(hr_tokenize(model, "a", 1, 0, NULL, 0, &count, &err), HR_OK);
  cr_expect(count > 0);
  cr_expect_null(hr_session_create(model, NULL, &err));
  cr_expect_eq(err.status, HR_ERROR_USAGE);
  hr_model_free(model);
}

/* Neither what is tried on the way to success nor the unfilled struct shows. */
Test(api, a_vocabulary_beside_no_weights_is_no_error) {
  hr_error err = {.status = HR_OK, .message = "before"};
  char folder[] = "/tmp/headrow-api-XXXXXX", file[64];
  cr_assert(mkdtemp(folder) != NULL);
  snprintf(file, sizeof file, "%s/tokenizer.model", folder);
  cr_assert_eq(symlink(HEADROW_SOURCE_ROOT "/tests/fixtures/spm_unigram.model", file), 0);
  hr_model_options m;
  hr_model_options_init(&m);
  m.vocabulary_only = true;
  hr_model *model = hr_model_open(folder, &m, &err);
  cr_expect(model && hr_model_has_tokenizer(model));
  cr_expect_eq(err.status, HR_OK);
  cr_expect_str_eq(err.message, "before");
  hr_model_free(model);
  unlink(file);
  cr_expect_null(hr_model_open(folder, &m, &err));
  cr_expect_eq(err.status, HR_ERROR_FILE);
  cr_expect(strstr(err.message, "without a model") != NULL, "%s", err.message);
  cr_expect_null(hr_model_open(folder, &m, NULL));
  rmdir(folder);
}

/* A program learns of its own mistake before that of a path. */
Test(api, options_are_checked_before_files) {
  hr_error err;
  hr_model_options m;
  hr_model_options_init(&m);
  m.isa = "no-such-tier";
  cr_expect_null(hr_model_open("/no/such/file.gguf", &m, &err));
  cr_expect_eq(err.status, HR_ERROR_USAGE, "%s", err.message);
  memset(&m, 0xff, sizeof m);
  cr_expect_null(hr_model_open("/no/such/file.gguf", &m, &err));
  cr_expect_eq(err.status, HR_ERROR_USAGE, "%s", err.message);
  cr_expect_null(hr_model_open_memory("", 1, "memory", &m, &err));
  cr_expect_eq(err.status, HR_ERROR_USAGE, "%s", err.message);
  cr_expect_null(hr_chat_create(NULL, NULL, &err));
  cr_expect_eq(err.status, HR_ERROR_USAGE, "%s", err.message);
}

static hr_model *open_deferred(void) {
  hr_error err;
  hr_model_options m;
  hr_model_options_init(&m);
  m.defer_weights = true;
  hr_model *model = hr_model_open(MODEL, &m, &err);
  cr_assert(model != NULL, "%s", err.message);
  return model;
}

Test(api, a_deferred_model_knows_whether_it_gives_logits) {
  hr_error err;
  hr_model *model = open_deferred();
  cr_expect(hr_model_has_logits(model));
  cr_expect_eq(hr_model_load(model, &err), HR_OK, "%s", err.message);
  cr_expect(hr_model_has_logits(model));
  hr_model_free(model);
}

Test(api, memory_is_that_of_the_larger_team) {
  hr_error err;
  hr_memory m;
  hr_session_options s;
  size_t work[3];
  hr_model *model = open_deferred();
  hr_memory_init(&m);
  hr_session_options_init(&s);
  s.threads_batch = 4096; /* more than any machine of a test has CPUs */
  for (unsigned i = 0; i < 3; i++) {
    s.threads = i == 2 ? s.threads_batch : i;
    cr_assert_eq(hr_model_memory(model, &s, &m, &err), HR_OK, "%s", err.message);
    work[i] = m.work;
  }
  cr_expect_eq(work[0], work[1]);
  cr_expect_eq(work[0], work[2]);
  s.threads_batch = 1;
  cr_assert_eq(hr_model_memory(model, &s, &m, &err), HR_OK, "%s", err.message);
  cr_expect_eq(work[0], m.work);
  hr_model_free(model);
}

/* What a session would refuse is no memory either, in the same words. */
Test(api, memory_refuses_what_a_session_refuses) {
  static const struct {
    unsigned threads, threads_batch;
    const char *cores;
    bool valid;
  } cases[] = {{4096, 0, NULL, true}, {4097, 0, NULL, false}, {1, UINT_MAX, NULL, false},
               {0, 0, "all", true},   {0, 0, "quick", false}, {2, 0, "", false},
               {0, 0, "3-1", false},  {0, 0, "99999", false}, {0, 0, "4095", false}};
  hr_model *model = open_deferred();
  hr_error err, other;
  cr_assert_eq(hr_model_load(model, &err), HR_OK, "%s", err.message);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    hr_memory m;
    hr_session_options s;
    hr_memory_init(&m);
    hr_session_options_init(&s);
    s.threads = cases[i].threads;
    s.threads_batch = cases[i].threads_batch;
    s.cores = cases[i].cores;
    hr_status status = hr_model_memory(model, &s, &m, &err);
    cr_expect_eq(status, cases[i].valid ? HR_OK : HR_ERROR_USAGE, "%zu: %s", i, err.message);
    if (cases[i].valid) continue;
    cr_expect(!hr_session_create(model, &s, &other), "%zu", i);
    cr_expect_str_eq(err.message, other.message);
  }
  hr_model_free(model);
}

Test(api, memory_without_a_size_is_refused) {
  static const size_t sizes[] = {0, sizeof(size_t) - 1, 1 << 20, SIZE_MAX};
  hr_error err;
  hr_memory m;
  hr_model *model = open_deferred();
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    memset(&m, 0x5a, sizeof m);
    m.size = sizes[i];
    cr_expect_eq(hr_model_memory(model, NULL, &m, &err), HR_ERROR_USAGE);
    cr_expect(strstr(err.message, "hr_memory_init") != NULL, "%s", err.message);
    m.size = 0x5a;
    for (size_t k = sizeof m.size; k < sizeof m; k++)
      cr_expect_eq(((unsigned char *)&m)[k], 0x5a, "size %zu wrote byte %zu", sizes[i], k);
  }
  hr_model_free(model);
}

static char *whole_file(const char *path, size_t *bytes) {
  FILE *file = fopen(path, "rb");
  cr_assert(file != NULL);
  fseek(file, 0, SEEK_END);
  *bytes = (size_t)ftell(file);
  rewind(file);
  char *data = aligned_alloc(64, (*bytes + 63) / 64 * 64);
  cr_assert(fread(data, 1, *bytes, file) == *bytes);
  fclose(file);
  return data;
}

Test(api, memory_and_file_are_the_same_model) {
  hr_error err;
  size_t bytes;
  char *data = whole_file(MODEL, &bytes);
  hr_model *file = open_model();
  hr_model *memory = hr_model_open_memory(data, bytes, "in memory", NULL, &err);
  cr_assert(memory != NULL, "%s", err.message);
  cr_expect(digest_of(file) == digest_of(memory));
  cr_expect_null(hr_model_open_memory(data, bytes / 2, "a half", NULL, &err));
  cr_expect_eq(err.status, HR_ERROR_FILE);
  cr_expect(strstr(err.message, "a half") != NULL, "%s", err.message);
  cr_expect_null(hr_model_open_memory(data, 0, "nothing", NULL, &err));
  hr_model_free(memory);
  hr_model_free(file);
  free(data);
}

Test(api, bytes_of_a_file_need_no_alignment) {
  hr_error err;
  size_t bytes;
  char *data = whole_file(MODEL, &bytes), *odd = malloc(bytes + 1);
  memcpy(odd + 1, data, bytes);
  hr_model *file = open_model();
  hr_model *memory = hr_model_open_memory(odd + 1, bytes, "odd", NULL, &err);
  cr_assert(memory != NULL, "%s", err.message);
  cr_expect(digest_of(file) == digest_of(memory));
  hr_model_free(memory);
  hr_model_free(file);
  free(data);
  free(odd);
}

/* --- Text ---------------------------------------------------------------------- */

Test(api, tokenize_tells_how_many_there_are) {
  hr_model *model = open_model();
  hr_error err;
  const char text[] = "Once upon a time";
  size_t all, some;
  int32_t ids[CAPACITY], few[3] = {-7, -7, -7};
  cr_assert_eq(hr_tokenize(model, text, strlen(text), HR_TOKENIZE_SPECIAL, NULL, 0, &all, &err),
               HR_OK);
  cr_assert(all > 2 && all < CAPACITY);
  cr_assert_eq(
      hr_tokenize(model, text, strlen(text), HR_TOKENIZE_SPECIAL, ids, CAPACITY, &some, &err),
      HR_OK);
  cr_expect_eq(some, all);
  cr_assert_eq(hr_tokenize(model, text, strlen(text), HR_TOKENIZE_SPECIAL, few, 2, &some, &err),
               HR_OK);
  cr_expect(some == all && few[0] == ids[0] && few[1] == ids[1] && few[2] == -7);
  hr_model_free(model);
}

Test(api, flags_that_are_not_known_are_refused) {
  hr_error err;
  size_t count;
  hr_model *model = open_model();
  for (unsigned flag = 4; flag; flag <<= 1) {
    cr_expect_eq(hr_tokenize(model, "a", 1, flag, NULL, 0, &count, &err), HR_ERROR_USAGE);
    cr_expect(strstr(err.message, "flags") != NULL, "%s", err.message);
  }
  cr_expect_eq(hr_tokenize(model, "a", 1, 3, NULL, 0, &count, &err), HR_OK, "%s", err.message);
  hr_model_free(model);
}

Test(api, ids_outside_the_vocabulary_have_no_text) {
  hr_model *model = open_model();
  hr_error err;
  size_t length;
  const int32_t bad[] = {-1, (int32_t)hr_model_vocab_size(model), INT32_MAX, INT32_MIN};
  for (size_t i = 0; i < 4; i++) {
    err.status = HR_OK;
    cr_expect_null(hr_token_text(model, bad[i], true, &length, &err));
    cr_expect_eq(err.status, HR_ERROR_USAGE);
    cr_expect(!hr_model_is_end_token(model, bad[i]));
  }
  for (int32_t id = 0; (size_t)id < hr_model_vocab_size(model); id++)
    cr_expect(hr_token_text(model, id, true, &length, NULL) != NULL);
  hr_model_free(model);
}

Test(api, a_split_code_point_is_held_back) {
  hr_model *model = open_model();
  hr_error err;
  const char text[] = "a\xf0\x9f\x98\x80z";
  int32_t ids[CAPACITY];
  size_t count, length;
  cr_assert_eq(hr_tokenize(model, text, 6, 0, ids, CAPACITY, &count, &err), HR_OK);
  cr_assert(count >= 6, "the vocabulary spells the code point in bytes");
  hr_decoder *decoder = hr_decoder_create(model, &err);
  char joined[64] = "";
  const char *piece;
  for (size_t i = 0; i < count; i++) {
    cr_assert_eq(hr_decoder_push(decoder, ids[i], &piece, &length, &err), HR_OK);
    /* Every piece is whole: none begins inside a code point, and none ends in a lead byte. */
    cr_expect(length == 0 || ((unsigned char)piece[0] & 0xc0) != 0x80);
    cr_expect(length == 0 || (unsigned char)piece[length - 1] < 0xc0);
    strncat(joined, piece, length);
  }
  hr_decoder_finish(decoder, &piece, &length);
  cr_expect_eq(length, 0);
  cr_expect_str_eq(joined, text);

  /* Cut in the middle: the bytes come at the end as they are, and it starts afresh. */
  for (size_t i = 0; i + 2 < count; i++) hr_decoder_push(decoder, ids[i], &piece, &length, &err);
  hr_decoder_finish(decoder, &piece, &length);
  cr_expect(length == 3 && memcmp(piece, "\xf0\x9f\x98", 3) == 0);
  hr_decoder_push(decoder, ids[count - 1], &piece, &length, &err);
  cr_expect(length == 1 && piece[0] == 'z');
  cr_expect_eq(hr_decoder_push(decoder, -1, &piece, &length, &err), HR_ERROR_USAGE);
  hr_decoder_free(decoder);
  hr_model_free(model);
}

Test(api, only_the_first_space_of_a_text_goes) {
  hr_model *model = open_model();
  hr_error err;
  int32_t ids[CAPACITY];
  size_t count, length;
  const char *piece;
  cr_assert_eq(hr_tokenize(model, "a", 1, 0, ids, CAPACITY, &count, &err), HR_OK);
  hr_decoder *decoder = hr_decoder_create(model, &err);
  hr_decoder_push(decoder, ids[count - 1], &piece, &length, &err);
  cr_expect(length == 1 && piece[0] == 'a');
  hr_decoder_push(decoder, ids[count - 1], &piece, &length, &err);
  cr_expect(length == 2 && memcmp(piece, " a", 2) == 0);
  hr_decoder_finish(decoder, &piece, &length);
  hr_decoder_continue(decoder);
  hr_decoder_push(decoder, ids[count - 1], &piece, &length, &err);
  cr_expect(length == 2 && memcmp(piece, " a", 2) == 0);
  hr_decoder_free(decoder);
  hr_model_free(model);
}

/* --- Sessions -------------------------------------------------------------------- */

Test(api, what_does_not_fit_changes_nothing) {
  hr_model *model = open_model();
  hr_session *session = open_session(model, 0, 1);
  hr_error err;
  int32_t ids[200];
  fill(ids, 200, model);
  cr_expect_eq(hr_session_context(session), 128);
  cr_assert_eq(hr_session_eval(session, ids, 100, HR_LOGITS_LAST, &err), HR_OK);
  cr_expect_eq(hr_session_eval(session, ids, 29, HR_LOGITS_LAST, &err), HR_ERROR_CONTEXT);
  cr_expect(strstr(err.message, "29") && strstr(err.message, "128"), "%s", err.message);
  cr_expect_eq(hr_session_position(session), 100);
  const int32_t bad[] = {1, (int32_t)hr_model_vocab_size(model)};
  cr_expect_eq(hr_session_eval(session, bad, 2, HR_LOGITS_LAST, &err), HR_ERROR_USAGE);
  cr_expect_eq(hr_session_eval(session, ids, 0, HR_LOGITS_LAST, &err), HR_ERROR_USAGE);
  cr_expect_eq(hr_session_position(session), 100);
  cr_expect_eq(hr_session_eval(session, ids, 28, HR_LOGITS_LAST, NULL), HR_OK);
  cr_expect_eq(hr_session_position(session), 128);
  cr_expect_eq(hr_session_rewind(session, 129, &err), HR_ERROR_USAGE);
  hr_session_free(session);
  hr_model_free(model);
}

Test(api, rows_that_were_not_asked_for_are_not_there) {
  hr_model *model = open_model();
  hr_session *session = open_session(model, 0, 1);
  int32_t ids[3];
  fill(ids, 3, model);
  cr_expect_null(hr_session_logits(session, 0));
  hr_session_eval(session, ids, 3, HR_LOGITS_NONE, NULL);
  cr_expect_null(hr_session_logits(session, 0));
  hr_session_eval(session, ids, 3, HR_LOGITS_LAST, NULL);
  cr_expect(hr_session_logits(session, 0) && !hr_session_logits(session, 1));
  hr_session_eval(session, ids, 3, HR_LOGITS_ALL, NULL);
  cr_expect(hr_session_logits(session, 2) && !hr_session_logits(session, 3));
  hr_session_free(session);
  hr_model_free(model);
}

/* Digest of every row of the ids, evaluated in pieces. */
static uint64_t digest_in_pieces(hr_session *session, const hr_model *model, const int32_t *ids,
                                 size_t count, size_t piece) {
  uint64_t digest = HR_DIGEST_INIT;
  hr_error err;
  for (size_t done = 0; done < count;) {
    size_t n = count - done < piece ? count - done : piece;
    cr_assert_eq(hr_session_eval(session, ids + done, n, HR_LOGITS_ALL, &err), HR_OK, "%s",
                 err.message);
    for (size_t i = 0; i < n; i++)
      digest = hr_digest(digest, hr_session_logits(session, i), hr_model_vocab_size(model));
    done += n;
  }
  return digest;
}

Test(api, pieces_chunks_threads_and_reuse_change_no_bit) {
  hr_model *model = open_model();
  int32_t ids[100];
  fill(ids, 100, model);
  hr_session *whole = open_session(model, 0, 1);
  const uint64_t digest = digest_in_pieces(whole, model, ids, 100, 100);
  const size_t sizes[] = {1, 7, 64};
  for (size_t i = 0; i < 3; i++) {
    hr_session *s = open_session(model, 0, 2);
    cr_expect(digest_in_pieces(s, model, ids, 100, sizes[i]) == digest, "pieces of %zu", sizes[i]);
    hr_session_free(s);
    s = open_session(model, sizes[i], 3);
    cr_expect(digest_in_pieces(s, model, ids, 100, 100) == digest, "chunks of %zu", sizes[i]);
    hr_session_free(s);
  }
  cr_expect_eq(hr_session_rewind(whole, 0, NULL), HR_OK);
  cr_expect(digest_in_pieces(whole, model, ids, 100, 33) == digest, "the session used again");
  hr_session_free(whole);
  hr_model_free(model);
}

Test(api, sessions_of_a_model_do_not_meet) {
  hr_model *model = open_model();
  int32_t ids[60];
  fill(ids, 60, model);
  hr_session *alone = open_session(model, 0, 1), *a = open_session(model, 0, 1);
  hr_session *b = open_session(model, 0, 1);
  const uint64_t expected = digest_in_pieces(alone, model, ids, 60, 60);
  uint64_t digest = HR_DIGEST_INIT;
  for (size_t i = 0; i < 60; i++) {
    hr_session_eval(a, ids + i, 1, HR_LOGITS_LAST, NULL);
    hr_session_eval(b, ids + 59 - i, 1, HR_LOGITS_LAST, NULL);
    digest = hr_digest(digest, hr_session_logits(a, 0), hr_model_vocab_size(model));
  }
  cr_expect(digest == expected);
  hr_session_free(a);
  hr_session_free(b);
  hr_session_free(alone);
  hr_model_free(model);
}

Test(api, going_back_forgets_what_came_after) {
  hr_model *model = open_model();
  int32_t ids[50];
  fill(ids, 50, model);
  hr_session *straight = open_session(model, 0, 1), *detour = open_session(model, 0, 1);
  hr_session_eval(straight, ids, 20, HR_LOGITS_LAST, NULL);
  hr_session_eval(detour, ids, 10, HR_LOGITS_NONE, NULL);
  hr_session_eval(detour, ids + 20, 30, HR_LOGITS_NONE, NULL);
  cr_expect_eq(hr_session_rewind(detour, 10, NULL), HR_OK);
  hr_session_eval(detour, ids + 10, 10, HR_LOGITS_LAST, NULL);
  cr_expect(memcmp(hr_session_logits(straight, 0), hr_session_logits(detour, 0),
                   hr_model_vocab_size(model) * sizeof(float)) == 0);
  hr_session_free(straight);
  hr_session_free(detour);
  hr_model_free(model);
}

Test(api, a_cancelled_prompt_keeps_its_chunks) {
  hr_model *model = open_model();
  hr_error err;
  double done = -1;
  int32_t ids[40];
  fill(ids, 40, model);
  hr_session_options options;
  hr_session_options_init(&options);
  options.chunk = 16;
  options.progress = refuse;
  options.progress_data = &done;
  hr_session *session = hr_session_create(model, &options, &err);
  cr_assert_eq(hr_session_eval(session, ids, 40, HR_LOGITS_LAST, &err), HR_ERROR_CANCELLED);
  cr_expect_eq(hr_session_position(session), 16);
  cr_expect_null(hr_session_logits(session, 0));
  cr_expect(done > 0 && done < 1);
  hr_session_free(session);
  hr_model_free(model);
}

/* --- Sampling ---------------------------------------------------------------------- */

typedef struct bench {
  hr_model *model;
  hr_sampler_options options;
  float *logits;
  size_t vocab;
} bench;

/* Logits that fall from token to token. */
static bench open_bench(void) {
  bench b = {.model = open_model()};
  hr_sampler_options_init(&b.options);
  b.vocab = hr_model_vocab_size(b.model);
  b.logits = calloc(b.vocab, sizeof *b.logits);
  for (size_t i = 0; i < b.vocab; i++) b.logits[i] = 3.0f - 0.25f * (float)i;
  return b;
}

static void close_bench(bench *b) {
  free(b->logits);
  hr_model_free(b->model);
}

static hr_sampler *sampler_of(const bench *b) {
  hr_error err;
  hr_sampler *sampler = hr_sampler_create(b->model, &b->options, &err);
  cr_assert(sampler != NULL, "%s", err.message);
  return sampler;
}

/* The highest token seen in many draws, and how many different ones there were. */
static int32_t highest(const bench *b, size_t *different) {
  hr_sampler *sampler = sampler_of(b);
  bool seen[CAPACITY] = {false};
  int32_t top = -1;
  *different = 0;
  for (int i = 0; i < 4000; i++) {
    int32_t id = hr_sampler_pick(sampler, b->logits, NULL);
    cr_assert(id >= 0 && id < CAPACITY);
    if (id > top) top = id;
    if (!seen[id]) (*different)++;
    seen[id] = true;
  }
  hr_sampler_free(sampler);
  return top;
}

Test(api, temperature_zero_takes_the_lowest_of_equals) {
  bench b = open_bench();
  b.options.temperature = 0;
  hr_sampler *sampler = sampler_of(&b);
  b.logits[9] = b.logits[5] = b.logits[7] = 10.0f;
  cr_expect_eq(hr_sampler_pick(sampler, b.logits, NULL), 5);
  hr_sampler_free(sampler);
  /* A temperature next to zero is no other thing. */
  b.options.temperature = 1e-42f;
  b.logits[5] = 10.5f;
  sampler = sampler_of(&b);
  for (int i = 0; i < 20; i++) cr_expect_eq(hr_sampler_pick(sampler, b.logits, NULL), 5);
  hr_sampler_free(sampler);
  close_bench(&b);
}

Test(api, each_cut_leaves_what_it_says) {
  size_t different;
  bench b = open_bench();
  b.options = (hr_sampler_options){
      .size = sizeof b.options, .temperature = 1, .top_k = 5, .top_p = 1, .repeat_penalty = 1};
  cr_expect_eq(highest(&b, &different), 4);
  cr_expect_eq(different, 5);
  /* p of token i is (1 - q) q^i with q = e^-0.25: the first 1, 2, 3, ... tokens hold
   * 0.221, 0.393, 0.528 of it. */
  b.options.top_k = 0;
  b.options.top_p = 0.5f;
  cr_expect_eq(highest(&b, &different), 2);
  cr_expect_eq(different, 3);
  /* q^i >= 0.3 up to i = 4. */
  b.options.top_p = 1;
  b.options.min_p = 0.3f;
  cr_expect_eq(highest(&b, &different), 4);
  cr_expect_eq(different, 5);
  close_bench(&b);
}

Test(api, draws_follow_the_probabilities) {
  bench b = open_bench();
  b.options = (hr_sampler_options){.size = sizeof b.options,
                                   .temperature = 0.5f,
                                   .top_k = 2,
                                   .top_p = 1,
                                   .repeat_penalty = 1,
                                   .seed = 7};
  hr_sampler *sampler = sampler_of(&b);
  const int draws = 20000;
  int first = 0;
  for (int i = 0; i < draws; i++) first += hr_sampler_pick(sampler, b.logits, NULL) == 0;
  /* Two tokens 0.25 apart at temperature 0.5: 1 / (1 + e^-0.5). Within 4 standard deviations. */
  const double p = 1 / (1 + exp(-0.5)), sd = sqrt(p * (1 - p) / draws);
  cr_expect(fabs((double)first / draws - p) < 4 * sd, "%d of %d", first, draws);
  hr_sampler_free(sampler);
  close_bench(&b);
}

Test(api, a_seed_gives_the_same_choices) {
  bench b = open_bench();
  b.options.seed = 42;
  hr_sampler *one = sampler_of(&b), *two = sampler_of(&b);
  b.options.seed = 43;
  hr_sampler *other = sampler_of(&b);
  int differ = 0;
  for (int i = 0; i < 200; i++) {
    int32_t id = hr_sampler_pick(one, b.logits, NULL);
    cr_expect_eq(hr_sampler_pick(two, b.logits, NULL), id);
    differ += hr_sampler_pick(other, b.logits, NULL) != id;
  }
  cr_expect(differ > 20);
  hr_sampler_free(one);
  hr_sampler_free(two);
  hr_sampler_free(other);
  close_bench(&b);
}

Test(api, the_penalty_falls_on_recent_tokens) {
  bench b = open_bench();
  b.options.temperature = 0;
  b.options.repeat_penalty = 2;
  b.options.repeat_last = 2;
  hr_sampler *sampler = sampler_of(&b);
  hr_sampler_accept(sampler, 0);
  cr_expect_eq(hr_sampler_pick(sampler, b.logits, NULL), 1);
  hr_sampler_accept(sampler, 1);
  cr_expect_eq(hr_sampler_pick(sampler, b.logits, NULL), 2);
  hr_sampler_accept(sampler, 1); /* pushes 0 out */
  hr_sampler_accept(sampler, 1);
  cr_expect_eq(hr_sampler_pick(sampler, b.logits, NULL), 0);
  hr_sampler_free(sampler);
  close_bench(&b);
}

Test(api, samplers_refuse_nonsense) {
  bench b = open_bench();
  hr_error err;
  const hr_sampler_options good = b.options;
  struct {
    const char *what;
    hr_sampler_options o;
  } bad[10];
  size_t n = 0;
#define BAD(member, value) \
  bad[n].what = #member " " #value, bad[n].o = good, bad[n++].o.member = value
  BAD(temperature, -1);
  BAD(temperature, NAN);
  BAD(temperature, INFINITY);
  BAD(top_k, -1);
  BAD(top_p, 0);
  BAD(top_p, NAN);
  BAD(min_p, 1.5f);
  BAD(repeat_penalty, 0);
  BAD(repeat_penalty, NAN);
#undef BAD
  for (size_t i = 0; i < n; i++) {
    cr_expect_null(hr_sampler_create(b.model, &bad[i].o, &err), "%s", bad[i].what);
    cr_expect_eq(err.status, HR_ERROR_USAGE);
  }
  hr_sampler *sampler = sampler_of(&b);
  b.logits[3] = NAN;
  cr_expect_eq(hr_sampler_pick(sampler, b.logits, &err), -1);
  cr_expect_eq(err.status, HR_ERROR_NUMERIC);
  hr_sampler_free(sampler);
  close_bench(&b);
}

Test(api, nothing_is_chosen_from_no_vocabulary) {
  hr_error err;
  hr_model_options m;
  hr_model_options_init(&m);
  m.vocabulary_only = true;
  hr_model *model = hr_model_open(HEADROW_SOURCE_ROOT "/tests/fixtures/families/llama3.gguf", &m,
                                  &err);
  cr_assert(model != NULL, "%s", err.message);
  cr_assert_eq(hr_model_vocab_size(model), 0);
  cr_expect_null(hr_sampler_create(model, NULL, &err));
  cr_expect_eq(err.status, HR_ERROR_USAGE);
  cr_expect(strstr(err.message, "no vocabulary") != NULL, "%s", err.message);
  hr_model_free(model);
}

/* The sentence about an unknown template names others, and shows that there are more. */
Test(api, a_list_of_templates_is_cut_visibly) {
  enum { MANY = 9 };
  hr_error err;
  gguf_writer w;
  char name[MANY][41];
  const char *names[MANY];
  gguf_writer_init(&w);
  gguf_put_string(&w, "general.architecture", "llama");
  for (int i = 0; i < MANY; i++) {
    char key[128];
    snprintf(key, sizeof key, "tokenizer.chat_template.%040d", i);
    snprintf(name[i], sizeof name[i], "%040d", i);
    gguf_put_string(&w, key, "x");
    names[i] = name[i];
  }
  gguf_put_strings(&w, "tokenizer.chat_templates", names, MANY);
  size_t size;
  unsigned char *file = gguf_writer_finish(&w, &size);
  hr_model_options m;
  hr_model_options_init(&m);
  m.vocabulary_only = true;
  hr_model *model = hr_model_open_memory(file, size, "written", &m, &err);
  cr_assert(model != NULL, "%s", err.message);
  cr_expect_null(hr_chat_create(model, "none", &err));
  const char *first = strstr(err.message, name[0]), *dots = strstr(err.message, ", ...");
  cr_expect(first && dots && !dots[5], "%s", err.message);
  hr_model_free(model);
  free(file);
}

/* --- Digests ----------------------------------------------------------------------- */

Test(api, digests_are_fnv_over_little_endian_floats) {
  cr_expect(hr_digest(HR_DIGEST_INIT, NULL, 0) == UINT64_C(0xcbf29ce484222325));
  /* FNV-1a 64 of the bytes 00 00 80 3f 00 00 00 c0, from an independent program. */
  const float x[] = {1.0f, -2.0f};
  cr_expect(hr_digest(HR_DIGEST_INIT, x, 2) == UINT64_C(0x979e9ee2da22858));
  cr_expect(hr_digest(hr_digest(HR_DIGEST_INIT, x, 1), x + 1, 1) ==
            hr_digest(HR_DIGEST_INIT, x, 2));
  float quiet = NAN, other = -NAN;
  uint32_t payload = 0x7fc12345;
  memcpy(&quiet, &payload, sizeof quiet);
  cr_expect(hr_digest(HR_DIGEST_INIT, &quiet, 1) == hr_digest(HR_DIGEST_INIT, &other, 1));
}

/* --- The header --------------------------------------------------------------------- */

/* Alone, as C and as C++, with warnings as errors. */
static void expect_compiles(const char *compiler, const char *language) {
  char line[512];
  snprintf(line, sizeof line, "command -v %.*s > /dev/null 2>&1", (int)strcspn(compiler, " "),
           compiler);
  if (system(line) != 0) return;
  snprintf(line, sizeof line, "%s -x %s -fsyntax-only -Wall -Wextra -pedantic -Werror %s", compiler,
           language, HEADROW_SOURCE_ROOT "/include/headrow/headrow.h");
  cr_expect_eq(system(line), 0, "%s", line);
}

Test(api, the_header_stands_alone) {
  expect_compiles("cc", "c");
  expect_compiles("cc -std=c99", "c");
  expect_compiles("c++", "c++");
  expect_compiles("c++ -std=c++11", "c++");
}
