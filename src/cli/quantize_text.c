/* SPDX-License-Identifier: MIT
 * What quantizing with a text at hand needs: the model and the texts. */
#include "quantize.h"

static int read_corpus(const cli_quantizing *q, const char *file, cli_corpus *corpus) {
  return cli_corpus_from_text(corpus, &q->common, q->model, file, q->split ? q->split : CLI_SPLIT);
}

/* What is left of a text must not pass unseen. */
static void note_cut(const cli_quantizing *q, const char *what, size_t count) {
  if (count > q->tokens.value && !q->common.quiet)
    cli_note("note: %s takes the first %zu of %zu tokens, expected --tokens %zu for all of them",
             what, (size_t)q->tokens.value, count, count);
}

int cli_quantize_prepare(cli_quantizing *q) {
  int status = HR_OK;
  cli_common wide = q->common;
  wide.weights = (cli_choice){HR_WEIGHTS_F32, true};
  q->model = cli_open_model(&wide, q->name, false, &status);
  if (!q->model) return status;
  if (q->calibrate) status = read_corpus(q, q->calibrate, &q->corpus);
  if (status == HR_OK && q->common.ids)
    status = cli_corpus_from_ids(&q->measured, q->common.ids);
  else if (status == HR_OK && q->max_kl.given)
    status = read_corpus(q, q->file ? q->file : q->calibrate, &q->measured);
  if (status == HR_OK) note_cut(q, "--calibrate", q->corpus.tokens);
  if (status == HR_OK) note_cut(q, "--max-kl", cli_corpus_scored(&q->measured));
  if (status == HR_OK && q->calibrate)
    q->calibration =
        cli_calibration_create(&q->common, q->model, &q->corpus, (size_t)q->tokens.value, &status);
  return status;
}

void cli_quantize_finish(cli_quantizing *q) {
  cli_calibration_free(q->calibration);
  cli_corpus_free(&q->measured);
  cli_corpus_free(&q->corpus);
  hr_model_free(q->model);
}
