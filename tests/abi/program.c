/* SPDX-License-Identifier: MIT
 * program MODEL: a program of a host, built with an old header and with today's
 * (tests/install.sh). It fills every member that the old one has and prints what comes of it. */
#include <headrow/headrow.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CONTEXT = 48, NEW = 12 };

static bool go_on(void *calls, double done) {
  ++*(unsigned *)calls;
  return done >= 0 && done <= 1;
}

/* Options lie where nothing behind them is theirs. */
static void *room(size_t bytes) {
  char *at = malloc(bytes + 64);
  if (!at) exit(1);
  memset(at, 0xa5, bytes + 64);
  return at;
}

static void *checked(void *options, size_t bytes) {
  for (size_t i = bytes; i < bytes + 64; i++)
    if (((unsigned char *)options)[i] != 0xa5) exit(99);
  free(options);
  return NULL;
}

static hr_model *open_model(const char *path, unsigned *calls, hr_error *err) {
  hr_model_options *o = room(sizeof *o);
  hr_model_options_init(o);
  o->weights = HR_WEIGHTS_F16;
  o->isa = "portable";
  o->progress = go_on;
  o->progress_data = calls;
  hr_model *model = hr_model_open(path, o, err);
  checked(o, sizeof *o);
  return model;
}

static hr_session *open_session(const hr_model *model, unsigned *calls, hr_error *err) {
  hr_session_options *o = room(sizeof *o);
  hr_session_options_init(o);
  o->context = CONTEXT;
  o->chunk = 2;
  o->cache = HR_CACHE_F32;
  o->threads = 1;
  o->threads_batch = 2;
  o->no_pin = true;
  o->cores = "all";
  o->progress = go_on;
  o->progress_data = calls;
  hr_session *session = hr_session_create(model, o, err);
  checked(o, sizeof *o);
  return session;
}

static hr_sampler *open_sampler(const hr_model *model, hr_error *err) {
  hr_sampler_options *o = room(sizeof *o);
  hr_sampler_options_init(o);
  o->temperature = 0.9f;
  o->top_k = 30;
  o->top_p = 0.9f;
  o->min_p = 0.01f;
  o->repeat_penalty = 1.1f;
  o->repeat_last = 8;
  o->seed = 11;
  hr_sampler *sampler = hr_sampler_create(model, o, err);
  checked(o, sizeof *o);
  return sampler;
}

static bool generate(const hr_model *model, hr_session *s, hr_sampler *sampler, hr_error *err) {
  static const char text[] = "Once upon a time there was";
  int32_t ids[CONTEXT];
  size_t count;
  uint64_t digest = HR_DIGEST_INIT;
  if (hr_tokenize(model, text, sizeof text - 1, HR_TOKENIZE_SPECIAL, ids, CONTEXT, &count, err) !=
          HR_OK ||
      hr_session_eval(s, ids, count, HR_LOGITS_LAST, err) != HR_OK)
    return false;
  for (int i = 0; i < NEW; i++) {
    digest = hr_digest(digest, hr_session_logits(s, 0), hr_model_vocab_size(model));
    int32_t id = hr_sampler_pick(sampler, hr_session_logits(s, 0), err);
    if (id < 0 || hr_session_eval(s, &id, 1, HR_LOGITS_LAST, err) != HR_OK) return false;
    hr_sampler_accept(sampler, id);
    printf("%" PRId32 " ", id);
  }
  printf("%016" PRIx64 "\n", digest);
  return true;
}

int main(int argc, char **argv) {
  if (argc != 2) return HR_ERROR_USAGE;
  hr_error err = {.status = HR_OK};
  unsigned loading = 0, chunks = 0;
  hr_model *model = open_model(argv[1], &loading, &err);
  hr_session *session = model ? open_session(model, &chunks, &err) : NULL;
  hr_sampler *sampler = session ? open_sampler(model, &err) : NULL;
  bool fine = sampler && generate(model, session, sampler, &err) && loading > 0 && chunks > 1 &&
              hr_session_context(session) == CONTEXT && hr_session_threads(session) == 1 &&
              hr_session_threads_batch(session) == 2 &&
              hr_session_cache(session) == HR_CACHE_F32 &&
              strcmp(hr_model_isa(model), "portable") == 0;
  if (!fine) fprintf(stderr, "program: %s\n", err.message);
  hr_sampler_free(sampler);
  hr_session_free(session);
  hr_model_free(model);
  return fine ? 0 : 1;
}
