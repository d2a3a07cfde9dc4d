/* SPDX-License-Identifier: MIT */
#include "tests/fuzz/run_model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

hr_model_options fuzz_model_options(void) {
  hr_model_options options;
  hr_model_options_init(&options);
  options.isa = FUZZ_ISA;
  return options;
}

static void need_sentence(const hr_error *err) {
  if (err->status == HR_OK || !err->message[0] || strchr(err->message, '\n')) abort();
}

static void need_finite(const float *x, size_t n) {
  for (size_t i = 0; i < n; i++)
    if (!isfinite(x[i])) abort();
}

/* Numbers that are handed out are finite. */
static void evaluate(hr_session *session, const hr_model *model) {
  enum { IDS = 3 };
  hr_error err = {.status = HR_OK};
  size_t vocab = hr_model_vocab_size(model);
  const int32_t ids[IDS] = {0, (int32_t)(vocab / 2), (int32_t)(vocab - 1)};
  if (hr_model_has_logits(model)) {
    if (hr_session_eval(session, ids, IDS, HR_LOGITS_LAST, &err) != HR_OK)
      need_sentence(&err);
    else
      need_finite(hr_session_logits(session, 0), vocab);
    return;
  }
  if (hr_session_encode(session, &(hr_tokens){ids, NULL, IDS}, 1, &err) != HR_OK)
    need_sentence(&err);
  else
    need_finite(hr_session_hidden(session, 0, 0), IDS * hr_model_width(model));
}

/* A text and a conversation, as ids that the vocabulary has. */
static void read_text(const hr_model *model) {
  enum { MOST = 64 };
  static const char text[] = "a b  cc\xc3\xa9 1\xff";
  const hr_chat_message message = {"user", text, sizeof text - 1};
  int32_t ids[MOST];
  size_t count = 0;
  hr_chat_prompt prompt;
  hr_error err = {.status = HR_OK};
  if (hr_tokenize(model, text, sizeof text - 1, HR_TOKENIZE_SPECIAL, ids, MOST, &count, &err) !=
      HR_OK)
    need_sentence(&err);
  for (size_t i = 0; i < count && i < MOST; i++)
    if (ids[i] < 0 || (size_t)ids[i] >= hr_model_vocab_size(model)) abort();
  hr_chat *chat = hr_chat_create(model, NULL, &err);
  if (!chat || hr_chat_render(chat, &message, 1, NULL, &prompt, &err) != HR_OK)
    need_sentence(&err);
  hr_chat_free(chat);
}

void fuzz_run_model(hr_model *model, const hr_error *opened) {
  if (!model) {
    need_sentence(opened);
    return;
  }
  hr_session_options options;
  hr_session_options_init(&options);
  options.context = 4;
  options.threads = 1;
  options.no_pin = true;
  hr_error err = {.status = HR_OK};
  hr_session *session = hr_session_create(model, &options, &err);
  if (session)
    evaluate(session, model);
  else
    need_sentence(&err);
  hr_session_free(session);
  if (hr_model_has_tokenizer(model)) read_text(model);
  hr_model_free(model);
}
