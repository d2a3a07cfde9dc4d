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

/* Logits that are handed out are finite. */
static void evaluate(hr_session *session, const hr_model *model) {
  hr_error err = {.status = HR_OK};
  size_t vocab = hr_model_vocab_size(model);
  const int32_t ids[] = {0, (int32_t)(vocab / 2), (int32_t)(vocab - 1)};
  if (hr_session_eval(session, ids, 3, HR_LOGITS_LAST, &err) != HR_OK) {
    need_sentence(&err);
    return;
  }
  const float *logits = hr_session_logits(session, 0);
  for (size_t i = 0; i < vocab; i++)
    if (!isfinite(logits[i])) abort();
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
  hr_model_free(model);
}
