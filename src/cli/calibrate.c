/* SPDX-License-Identifier: MIT */
#include "calibrate.h"

#include <stdlib.h>
#include <string.h>

#include "quant/compensate.h"


/* One input of products, shared by all matrices that are multiplied with it. */
typedef struct input {
  size_t k;
  double *sum; /* [k][k], upper triangle; NULL: not at hand */
} input;

struct cli_calibration {
  const cli_common *common;
  const hr_model *model;
  const cli_corpus *corpus;
  size_t most, tokens; /* that may be taken, and that there are of them */
  input *inputs; /* in the order of a pass */
  size_t count;
  size_t *of_held; /* the input of each held matrix; SIZE_MAX: of none */
  bool numbering;  /* a first look for what there is */
  size_t first;    /* inputs whose sums are being taken: first..end */
  size_t end;
  bool failed;
  size_t u_of;     /* the input that u belongs to */
  float *u;
};

/* What sums may take at a time; the text is read again for those that do not fit. */
enum { SUM_BYTES = 1 << 30 };

/* Of the mean of the diagonal, as published; and for an embedding that is the head too:
 * what rounding takes off the error of the logits must not be put onto the rows that
 * are looked up, where all columns count alike. */
#define DAMP 0.01
#define DAMP_TIED 1.0

/* A tied head is the embedding's matrix under another address. */
static size_t held_of(const hr_loaded *loaded, const hr_matrix *m) {
  for (size_t i = 0; i < loaded->held_count; i++)
    if (loaded->held[i].matrix == m || loaded->held[i].matrix->panels == m->panels) return i;
  return SIZE_MAX;
}

static void number_input(cli_calibration *c, const hr_matrix *const *matrices, size_t count,
                         size_t k) {
  for (size_t i = 0; i < count; i++) {
    size_t held = held_of(&c->model->loaded, matrices[i]);
    if (held == SIZE_MAX || c->of_held[held] != SIZE_MAX) return; /* the next pass has begun */
    c->of_held[held] = c->count;
  }
  input *grown = reallocarray(c->inputs, c->count + 1, sizeof *grown);
  if (!grown) {
    c->failed = true;
    return;
  }
  c->inputs = grown;
  c->inputs[c->count++] = (input){.k = k};
}

static void add_rows(input *in, const float *x, size_t rows, size_t stride) {
  for (size_t r = 0; r < rows; r++, x += stride)
    for (size_t i = 0; i < in->k; i++) {
      double a = (double)x[i], *sum = in->sum + i * in->k;
      if (x[i] == 0.0f) continue;
      for (size_t j = i; j < in->k; j++) sum[j] += a * (double)x[j];
    }
}

static void see_input(void *arg, const hr_matrix *const *matrices, size_t count, const float *x,
                      size_t rows, size_t k, size_t stride) {
  cli_calibration *c = arg;
  if (c->numbering) {
    number_input(c, matrices, count, k);
    return;
  }
  size_t held = held_of(&c->model->loaded, matrices[0]);
  size_t i = held == SIZE_MAX ? SIZE_MAX : c->of_held[held];
  if (i >= c->first && i < c->end) add_rows(&c->inputs[i], x, rows, stride);
}

static int ignore_row(void *arg, size_t part, const float *const *logits, int32_t next) {
  (void)arg, (void)part, (void)logits, (void)next;
  return HR_OK;
}

static int pass_text(cli_calibration *c, size_t most, const char *what) {
  int status = HR_OK;
  cli_common wide = *c->common;
  wide.quiet = true;
  wide.cache = (cli_choice){HR_CACHE_F32 - HR_CACHE_F16, true};
  hr_session *session = cli_open_session(&wide, c->model, &status);
  if (!session) return status;
  hr_workspace_set_input_tap(session->workspace, see_input, c);
  cli_scoring scoring = {.session = &session, .sessions = 1, .most = most,
                         .stride = hr_session_context(session), .what = what,
                         .vocab = hr_model_vocab_size(c->model)};
  status = cli_score(&scoring, c->corpus, ignore_row, NULL);
  hr_session_free(session);
  return status == HR_OK && c->failed ? cli_fail_memory() : status;
}

/* The sums of the inputs from i on, as many as there is room for. */
static int take_sums(cli_calibration *c, size_t i) {
  size_t bytes = 0;
  for (size_t j = c->first; j < c->end; j++) {
    free(c->inputs[j].sum);
    c->inputs[j].sum = NULL;
  }
  c->first = c->end = i;
  while (c->end < c->count) {
    input *in = &c->inputs[c->end];
    size_t more = in->k * in->k * sizeof *in->sum;
    if (c->end > i && bytes + more > SUM_BYTES) break;
    in->sum = calloc(in->k * in->k, sizeof *in->sum);
    if (!in->sum) return cli_fail_memory();
    bytes += more;
    c->end++;
  }
  return pass_text(c, c->most, c->common->quiet ? NULL : "calibrating");
}

/* Directions that the text never takes are free for rounding to spoil. */
static void note_short_text(const cli_calibration *c) {
  size_t widest = 0;
  for (size_t i = 0; i < c->model->loaded.held_count; i++)
    if (c->model->loaded.held[i].matrix->k > widest) widest = c->model->loaded.held[i].matrix->k;
  if (c->tokens < 4 * widest && !c->common->quiet)
    cli_note("warning: a text of %zu tokens is short to calibrate %zu columns with: expected %zu",
             c->tokens, widest, 4 * widest);
}

cli_calibration *cli_calibration_create(const cli_common *common, const hr_model *model,
                                        const cli_corpus *corpus, size_t most, int *status) {
  cli_calibration *c = calloc(1, sizeof *c);
  if (c) {
    *c = (cli_calibration){.common = common, .model = model, .corpus = corpus, .most = most,
                           .u_of = SIZE_MAX};
    c->of_held = malloc((model->loaded.held_count + 1) * sizeof *c->of_held);
  }
  if (!c || !c->of_held) {
    cli_calibration_free(c);
    *status = cli_fail_memory();
    return NULL;
  }
  for (size_t i = 0; i < model->loaded.held_count; i++) c->of_held[i] = SIZE_MAX;
  c->tokens = cli_corpus_scored(corpus) < most ? cli_corpus_scored(corpus) : most;
  note_short_text(c);
  c->numbering = true;
  *status = pass_text(c, 1, NULL);
  c->numbering = false;
  if (*status == HR_OK) return c;
  cli_calibration_free(c);
  return NULL;
}

void cli_calibration_free(cli_calibration *c) {
  if (!c) return;
  for (size_t i = 0; i < c->count; i++) free(c->inputs[i].sum);
  free(c->inputs);
  free(c->of_held);
  free(c->u);
  free(c);
}

static size_t input_of(const cli_calibration *c, size_t tensor) {
  const hr_loaded *loaded = &c->model->loaded;
  for (size_t i = 0; i < loaded->held_count; i++)
    if (loaded->held[i].tensor == tensor && c->of_held[i] != SIZE_MAX) return c->of_held[i];
  return SIZE_MAX;
}

/* i: the tensor's input. A text of few tokens tells little of the directions between them. */
static double damp_of(const cli_calibration *c, size_t tensor, size_t i) {
  const hr_transformer *t = &c->model->loaded.transformer;
  const hr_loaded *loaded = &c->model->loaded;
  for (size_t h = 0; h < loaded->held_count; h++)
    if (loaded->held[h].tensor == tensor && loaded->held[h].matrix == &t->token_embedding)
      return DAMP_TIED;
  double few = (double)c->inputs[i].k / (2.0 * (double)c->tokens);
  return few > DAMP ? few : DAMP;
}

static int compensate(cli_calibration *c, const input *in, double damp) {
  free(c->u);
  c->u = malloc(in->k * in->k * sizeof *c->u);
  double *sum = malloc(in->k * in->k * sizeof *sum);
  int status = c->u && sum ? HR_OK : cli_fail_memory();
  if (status == HR_OK) {
    memcpy(sum, in->sum, in->k * in->k * sizeof *sum);
    if (!hr_compensation(sum, in->k, damp, c->u))
      status = cli_fail(HR_ERROR_NUMERIC, "%s: its activations on the text are not finite, "
                        "expected numbers to calibrate with", c->model->path);
  }
  free(sum);
  return status;
}

const float *cli_calibration_of(cli_calibration *c, size_t tensor, int *status) {
  size_t i = input_of(c, tensor);
  *status = HR_OK;
  if (i == SIZE_MAX) return NULL;
  if (i == c->u_of) return c->u;
  c->u_of = SIZE_MAX;
  if (!c->inputs[i].sum) *status = take_sums(c, i);
  if (*status == HR_OK) *status = compensate(c, &c->inputs[i], damp_of(c, tensor, i));
  if (*status != HR_OK) return NULL;
  c->u_of = i;
  return c->u;
}
