/* SPDX-License-Identifier: MIT
 *
 * Whole models under a race detector: opened, packed, run, encoded, tokenized and freed by
 * several threads at once, each with a team of its own. Criterion can't run there, so this is
 * a plain program; scripts/analysis.sh builds it with the detector. Without one it is a test
 * that the answers don't depend on who else computes.
 *
 *     model_stress SOURCE_ROOT */
#include <headrow/headrow.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/split.h"

enum { CALLERS = 3, ROUNDS = 2, TEXTS = 3, PATH_BYTES = 1024 };

/* Long enough for its weights to be packed by a team. */
#define PACKED_BY_A_TEAM "dim=256,layers=3,vocab=32000,ffn=512:f16"

typedef struct asked asked;
typedef bool work(const asked *a, uint64_t *digest, hr_error *err);

/* What a thread is asked for. */
struct asked {
  work *work;
  const char *path;      /* of a model to open, or */
  const hr_model *model; /* one that all share */
  unsigned threads;      /* of its sessions */
  uint64_t expected;
  bool failed;
};

static const int32_t ids[] = {1, 5, 2, 7, 3, 6, 4, 1, 2, 5, 3};
enum { IDS = sizeof ids / sizeof *ids };

static hr_session *start(const hr_model *model, unsigned threads, hr_error *err) {
  hr_session_options options;
  hr_session_options_init(&options);
  options.threads = threads;
  options.chunk = 4;
  options.context = 32;
  return hr_session_create(model, &options, err);
}

static uint64_t add(uint64_t digest, const void *data, size_t bytes) {
  for (size_t i = 0; i < bytes; i++)
    digest = (digest ^ ((const uint8_t *)data)[i]) * UINT64_C(0x100000001b3);
  return digest;
}

/* A prompt in pieces, then tokens that a sampler draws. */
static bool generate(const asked *a, uint64_t *digest, hr_error *err) {
  size_t vocab = hr_model_vocab_size(a->model);
  hr_session *s = start(a->model, a->threads, err);
  hr_sampler *sampler = s ? hr_sampler_create(a->model, NULL, err) : NULL;
  /* With logits of all tokens; and again of the last, so that others leave a pass early. */
  bool fine = sampler && hr_session_eval(s, ids, IDS, HR_LOGITS_ALL, err) == HR_OK;
  if (fine) *digest = hr_digest(*digest, hr_session_logits(s, 0), IDS * vocab);
  fine = fine && hr_session_rewind(s, 0, err) == HR_OK &&
         hr_session_eval(s, ids, IDS, HR_LOGITS_LAST, err) == HR_OK;
  int32_t id = fine ? hr_sampler_pick(sampler, hr_session_logits(s, 0), err) : -1;
  for (int i = 0; i < 6 && id >= 0; i++) {
    fine = hr_session_eval(s, &id, 1, HR_LOGITS_LAST, err) == HR_OK;
    if (fine) *digest = hr_digest(*digest, hr_session_logits(s, 0), vocab);
    id = fine ? hr_sampler_pick(sampler, hr_session_logits(s, 0), err) : -1;
  }
  hr_sampler_free(sampler);
  hr_session_free(s);
  return id >= 0;
}

/* Two sequences of a session in the same passes. */
static bool generate_two(const asked *a, uint64_t *digest, hr_error *err) {
  const hr_batch_piece pieces[] = {{0, ids, IDS}, {1, ids + 2, 4}};
  const hr_batch_piece more[] = {{1, ids, 1}, {0, ids, 1}};
  size_t vocab = hr_model_vocab_size(a->model);
  hr_session_options options;
  hr_session_options_init(&options);
  options.threads = a->threads;
  options.context = 32;
  options.sequences = 2;
  hr_session *s = hr_session_create(a->model, &options, err);
  bool fine = s && hr_session_eval_batch(s, pieces, 2, HR_LOGITS_LAST, err) == HR_OK;
  if (fine) *digest = hr_digest(*digest, hr_session_logits(s, 0), 2 * vocab);
  fine = fine && hr_session_eval_batch(s, more, 2, HR_LOGITS_LAST, err) == HR_OK;
  if (fine) *digest = hr_digest(*digest, hr_session_logits(s, 0), 2 * vocab);
  hr_session_free(s);
  return fine;
}

static bool encode(const asked *a, uint64_t *digest, hr_error *err) {
  static const hr_tokens texts[TEXTS] = {{ids, NULL, IDS}, {ids + 1, NULL, 1}, {ids, NULL, 6}};
  size_t width = hr_model_width(a->model);
  hr_session *s = start(a->model, a->threads, err);
  bool fine = s && hr_session_encode(s, texts, TEXTS, err) == HR_OK;
  for (size_t i = 0; fine && i < TEXTS; i++)
    *digest = hr_digest(*digest, hr_session_hidden(s, i, 0), width * texts[i].count);
  hr_session_free(s);
  return fine;
}

/* Ids of a text and of a conversation, and the text of the ids. */
static bool read_and_write(const asked *a, uint64_t *digest, hr_error *err) {
  static const hr_chat_message talk[] = {{"user", "Once upon", 9}, {"assistant", "a", 1}};
  int32_t found[64];
  size_t count = 0;
  hr_chat_prompt prompt;
  hr_chat *chat = hr_chat_create(a->model, "chatml", err);
  hr_decoder *decoder = chat ? hr_decoder_create(a->model, err) : NULL;
  bool fine = decoder && hr_chat_render(chat, talk, 2, NULL, &prompt, err) == HR_OK &&
              hr_tokenize(a->model, "a little \xc3\xa9 dog", 15, HR_TOKENIZE_SPECIAL, found, 64,
                          &count, err) == HR_OK;
  if (fine) *digest = add(*digest, prompt.ids, prompt.count * sizeof *prompt.ids);
  for (size_t i = 0; fine && i < count; i++) {
    const char *text;
    size_t length;
    fine = hr_decoder_push(decoder, found[i], &text, &length, err) == HR_OK;
    if (fine) *digest = add(*digest, text, length);
  }
  hr_decoder_free(decoder);
  hr_chat_free(chat);
  return fine;
}

/* A model of its own, whatever the others are doing. */
static bool open_and_generate(const asked *a, uint64_t *digest, hr_error *err) {
  hr_model *model = hr_model_open(a->path, NULL, err);
  asked own = *a;
  own.model = model;
  bool fine = model && (hr_model_has_logits(model) ? generate : encode)(&own, digest, err);
  hr_model_free(model);
  return fine;
}

static void *ask(void *arg) {
  asked *a = arg;
  for (int i = 0; i < ROUNDS && !a->failed; i++) {
    hr_error err = {.message = "another answer"};
    uint64_t digest = HR_DIGEST_INIT;
    a->failed = !a->work(a, &digest, &err) || digest != a->expected;
    if (a->failed) printf("model_stress: FAILED: %s\n", err.message);
  }
  return NULL;
}

/* Alone, then by all callers at once, with as many threads as their number. */
static bool ask_all(work *what, const char *path, const hr_model *model) {
  hr_error err = {.message = ""};
  asked alone = {.work = what, .path = path, .model = model, .threads = 1}, each[CALLERS];
  alone.expected = HR_DIGEST_INIT;
  if (!what(&alone, &alone.expected, &err)) {
    printf("model_stress: FAILED: %s\n", err.message);
    return false;
  }
  pthread_t thread[CALLERS];
  unsigned started = 0;
  for (; started < CALLERS; started++) {
    each[started] = alone;
    each[started].threads = started + 1;
    if (pthread_create(&thread[started], NULL, ask, &each[started]) != 0) break;
  }
  bool fine = started == CALLERS;
  for (unsigned i = 0; i < started; i++) {
    pthread_join(thread[i], NULL);
    fine = fine && !each[i].failed;
  }
  return fine;
}

static bool share(const char *what, hr_model *model, const hr_error *err) {
  bool fine = model != NULL;
  if (!model) printf("model_stress: FAILED: %s: %s\n", what, err->message);
  if (fine && hr_model_has_logits(model))
    fine = ask_all(generate, NULL, model) && ask_all(generate_two, NULL, model);
  if (fine) fine = ask_all(encode, NULL, model);
  if (fine && hr_model_has_tokenizer(model)) fine = ask_all(read_and_write, NULL, model);
  hr_model_free(model);
  printf("model_stress: %s: %s\n", what, fine ? "the same answers" : "FAILED");
  return fine;
}

int main(int argc, char **argv) {
  static const char *const files[] = {"models/builtin.gguf", "models/gpt2.gguf",
                                      "tests/fixtures/families/bert.safetensors"};
  enum { FILES = sizeof files / sizeof *files };
  int passed = 0;
  hr_error err = {.message = ""};
  if (argc != 2) {
    fprintf(stderr, "model_stress: expected the folder of the sources\n");
    return 2;
  }
  for (size_t i = 0; i < FILES; i++) {
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s/%s", argv[1], files[i]);
    passed += share(files[i], hr_model_open(path, NULL, &err), &err);
    passed += ask_all(open_and_generate, path, NULL);
  }
  passed += share(PACKED_BY_A_TEAM, split_model(PACKED_BY_A_TEAM, &err), &err);
  printf("%d passed, %d failed\n", passed, 2 * FILES + 1 - passed);
  return passed != 2 * FILES + 1;
}
