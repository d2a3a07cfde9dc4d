/* SPDX-License-Identifier: MIT */
#include "tests/support/split.h"

#include <stdio.h>
#include <stdlib.h>

#include "cli/synthetic.h"
#include "engine/engine.h"

hr_model *split_model(const char *text, hr_error *err) {
  cli_shape shape;
  cli_image image = {0};
  hr_model *model = NULL;
  if (cli_shape_parse(text, &shape, err) == HR_OK &&
      cli_image_make(&shape, NULL, NULL, &image, err) == HR_OK)
    model = hr_model_open_memory(image.data, image.bytes, text, NULL, err);
  cli_image_free(&image);
  return model;
}

hr_session *split_session(const hr_model *model, unsigned threads, size_t chunk, size_t context,
                          hr_error *err) {
  hr_session_options o;
  hr_session_options_init(&o);
  o.threads = threads;
  o.chunk = chunk;
  o.context = context;
  hr_session *s = hr_session_create(model, &o, err);
  if (s) s->crowded = true; /* that many threads are what is tested */
  return s;
}

void split_ids(const hr_model *model, int32_t *ids, size_t count) {
  uint32_t state = 7;
  for (size_t i = 0; i < count; i++) {
    state = state * 1664525u + 1013904223u;
    ids[i] = (int32_t)((state >> 8) % hr_model_vocab_size(model));
  }
}

uint64_t split_digest(hr_session *s, const int32_t *ids, size_t prompt, size_t single,
                      uint32_t seed, hr_error *err) {
  size_t vocab = hr_model_vocab_size(s->model);
  uint64_t digest = HR_DIGEST_INIT;
  hr_workspace_force_stealing(s->workspace, seed);
  if (hr_session_rewind(s, 0, err) != HR_OK ||
      hr_session_eval(s, ids, prompt, HR_LOGITS_ALL, err) != HR_OK)
    return 0;
  for (size_t i = 0; i < prompt; i++) digest = hr_digest(digest, hr_session_logits(s, i), vocab);
  for (size_t i = 0; i < single; i++) {
    if (hr_session_eval(s, ids + prompt + i, 1, HR_LOGITS_LAST, err) != HR_OK) return 0;
    digest = hr_digest(digest, hr_session_logits(s, 0), vocab);
  }
  return digest;
}

/* One count of threads and one chunk, again and again. */
static size_t check_one(const hr_model *model, const split_plan *p, const int32_t *ids,
                        unsigned threads, size_t chunk, uint64_t expected, split_tell_fn *tell) {
  size_t wrong = 0;
  hr_error err = {.message = ""};
  hr_session *s = split_session(model, threads, chunk, p->prompt + p->single, &err);
  for (uint32_t i = 0; i < p->repeats; i++) {
    uint32_t seed = i * (threads * 1009 + (uint32_t)chunk);
    char line[400];
    if (s && split_digest(s, ids, p->prompt, p->single, seed, &err) == expected) continue;
    snprintf(line, sizeof line, "%u threads, chunks of %zu, stealing %s: %.250s", threads, chunk,
             seed ? "at random" : "as it comes", err.message[0] ? err.message : "other bits");
    tell(line);
    wrong++;
  }
  hr_session_free(s);
  return wrong;
}

size_t split_check(const hr_model *model, const split_plan *p, split_tell_fn *tell,
                   uint64_t *digest) {
  size_t wrong = 0, count = p->prompt + p->single;
  hr_error err = {.message = "no memory for the test's ids"};
  int32_t *ids = malloc(count * sizeof *ids);
  *digest = 0;
  if (ids) {
    split_ids(model, ids, count);
    hr_session *alone = split_session(model, 1, p->prompt, count, &err);
    if (alone) *digest = split_digest(alone, ids, p->prompt, p->single, 0, &err);
    hr_session_free(alone);
  }
  if (*digest == 0) {
    tell(err.message);
    wrong++;
  }
  for (size_t t = 0; *digest && t < p->thread_counts; t++)
    for (size_t c = 0; c < p->chunk_counts; c++)
      wrong += check_one(model, p, ids, p->threads[t], p->chunks[c], *digest, tell);
  free(ids);
  return wrong;
}
