/* SPDX-License-Identifier: MIT
 * generate MODEL PROMPT: goes on with a text, token by token. */
#include <headrow/headrow.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_NEW = 64 };

/* Writes tokens until the model ends the text; the prompt has been evaluated. */
static hr_status generate(const hr_model *model, hr_session *session, hr_sampler *sampler,
                          hr_decoder *decoder, hr_error *err) {
  const char *text;
  size_t length;
  for (int i = 0; i < MAX_NEW; i++) {
    int32_t id = hr_sampler_pick(sampler, hr_session_logits(session, 0), err);
    if (id < 0) return err->status;
    if (hr_model_is_end_token(model, id)) break;
    hr_sampler_accept(sampler, id);
    if (hr_decoder_push(decoder, id, &text, &length, err) != HR_OK) return err->status;
    fwrite(text, 1, length, stdout);
    if (hr_session_eval(session, &id, 1, HR_LOGITS_LAST, err) != HR_OK) return err->status;
  }
  hr_decoder_finish(decoder, &text, &length);
  fwrite(text, 1, length, stdout);
  putchar('\n');
  return HR_OK;
}

/* The tokens of a text, which the caller frees; NULL with an error. */
static int32_t *tokens_of(const hr_model *model, const char *text, size_t *count, hr_error *err) {
  size_t length = strlen(text);
  if (hr_tokenize(model, text, length, HR_TOKENIZE_SPECIAL, NULL, 0, count, err) != HR_OK)
    return NULL;
  int32_t *ids = calloc(*count + 1, sizeof *ids);
  if (!ids) {
    *err = (hr_error){.status = HR_ERROR_MEMORY, .message = "not enough memory"};
    return NULL;
  }
  if (hr_tokenize(model, text, length, HR_TOKENIZE_SPECIAL, ids, *count, count, err) == HR_OK)
    return ids;
  free(ids);
  return NULL;
}

int main(int argc, char **argv) {
  if (argc != 3) return fprintf(stderr, "usage: generate MODEL PROMPT\n"), HR_ERROR_USAGE;
  hr_error err = {.status = HR_OK};
  int32_t *ids = NULL;
  size_t count = 0;
  hr_session *session = NULL;
  hr_sampler *sampler = NULL;
  hr_decoder *decoder = NULL;
  hr_model *model = hr_model_open(argv[1], NULL, &err);
  if (model) session = hr_session_create(model, NULL, &err);
  if (session) sampler = hr_sampler_create(model, NULL, &err);
  if (sampler) decoder = hr_decoder_create(model, &err);
  if (decoder) ids = tokens_of(model, argv[2], &count, &err);
  if (ids && hr_session_eval(session, ids, count, HR_LOGITS_LAST, &err) == HR_OK) {
    hr_decoder_continue(decoder); /* what comes follows the prompt */
    printf("%s", argv[2]);
    generate(model, session, sampler, decoder, &err);
  }
  if (err.status != HR_OK) fprintf(stderr, "generate: %s\n", err.message);
  free(ids);
  hr_decoder_free(decoder);
  hr_sampler_free(sampler);
  hr_session_free(session);
  hr_model_free(model);
  return (int)err.status;
}
