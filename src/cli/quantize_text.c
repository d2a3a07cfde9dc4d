/* SPDX-License-Identifier: MIT
 * Quantizing with a text at hand: calibration, and the mix of types that loses little. */
#include <stdlib.h>
#include <string.h>

#include "accuracy.h"
#include "mixture.h"
#include "output.h"
#include "quant/convert.h"
#include "quantize.h"

static int read_corpus(const cli_quantizing *q, const char *file, cli_corpus *corpus) {
  return cli_corpus_from_text(corpus, q->model, file, q->split ? q->split : CLI_SPLIT);
}

int cli_quantize_prepare(cli_quantizing *q) {
  int status = HR_OK;
  cli_common wide = q->common;
  wide.weights = (cli_choice){HR_WEIGHTS_F32, true};
  q->model = cli_open_model(&wide, q->name, false, &status);
  if (!q->model) return status;
  if (q->calibrate) status = read_corpus(q, q->calibrate, &q->corpus);
  if (status == HR_OK && q->max_kl.given)
    status = read_corpus(q, q->file ? q->file : q->calibrate, &q->measured);
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

/* --- The mix --------------------------------------------------------------------- */

/* A tensor that may be Q8_0 or F16, and what each costs. */
typedef struct choice {
  size_t tensor;
  cli_quantized half; /* the same tensor as F16 */
  double kl;          /* with it alone as Q8_0 */
  size_t more;        /* bytes that F16 takes more */
} choice;

typedef struct mixing {
  cli_quantizing *q;
  cli_quantized *tensor;
  cli_mixture mix;
  hr_session *session[2];
  choice *choice;
  size_t choices, vocab, tokens;
  double sum;
} mixing;

static int add_kl(void *arg, size_t part, const float *const *logits, int32_t next) {
  mixing *m = arg;
  (void)part, (void)next;
  m->sum += hr_divergence(logits[0], logits[1], m->vocab);
  m->tokens++;
  return HR_OK;
}

static int mean_kl(mixing *m, double *kl) {
  cli_scoring scoring = {.session = m->session,
                         .sessions = 2,
                         .vocab = m->vocab,
                         .most = (size_t)m->q->tokens.value,
                         .what = m->q->common.quiet ? NULL : "measuring"};
  m->sum = 0;
  m->tokens = 0;
  int status = cli_score(&scoring, &m->q->measured, add_kl, m);
  *kl = m->tokens ? m->sum / (double)m->tokens : 0;
  return status;
}

/* Puts the file's rows of a tensor into the mixture, wherever the model has them. */
static bool use_tensor(mixing *m, size_t tensor, const cli_quantized *made) {
  const hr_loaded *loaded = &m->q->model->loaded;
  size_t row_bytes = 0;
  for (size_t i = 0; i < loaded->held_count; i++) {
    const hr_held *h = &loaded->held[i];
    if (h->tensor != tensor) continue;
    hr_format_bytes(made->format, h->matrix->k, &row_bytes);
    char *rows = malloc(h->matrix->n * row_bytes);
    if (!rows) return false;
    for (size_t r = 0; r < h->matrix->n; r++) {
      size_t output = h->first_row + (h->run ? r / h->run * h->step + r % h->run : r);
      memcpy(rows + r * row_bytes, made->data + output * row_bytes, row_bytes);
    }
    hr_panel_type type = made->format == HR_FORMAT_Q8_0 ? HR_PANEL_Q8 : HR_PANEL_F16;
    bool packed = cli_mixture_pack(&m->mix, i, type, rows, row_bytes);
    free(rows);
    if (!packed) return false;
  }
  return true;
}

static void reset_tensor(mixing *m, size_t tensor) {
  const hr_loaded *loaded = &m->q->model->loaded;
  for (size_t i = 0; i < loaded->held_count; i++)
    if (loaded->held[i].tensor == tensor) cli_mixture_reset(&m->mix, i);
}

/* Those that gain most a byte of F16 come first. */
static int by_gain(const void *a, const void *b) {
  const choice *x = a, *y = b;
  double gain_x = x->kl / (double)(x->more + 1), gain_y = y->kl / (double)(y->more + 1);
  return gain_x > gain_y ? -1 : gain_x < gain_y;
}

static int make_all(mixing *m) {
  cli_quantizing *q = m->q;
  size_t count = hr_source_tensor_count(q->source);
  int status = HR_OK;
  q->share = 1.0 / (double)(count + 1);
  for (size_t i = 0; i < count && status == HR_OK; i++) {
    if (!m->tensor[i].data) status = cli_quantize_tensor(q, i, &m->tensor[i]);
    if (status != HR_OK || m->tensor[i].format != HR_FORMAT_Q8_0 || m->tensor[i].kept) continue;
    choice *c = &m->choice[m->choices++];
    *c = (choice){.tensor = i, .half = {.format = HR_FORMAT_F16}};
    status = cli_quantize_tensor(q, i, &c->half);
    c->more = c->half.bytes - m->tensor[i].bytes;
  }
  cli_end_progress(q->progress);
  return status;
}

/* What each choice costs alone; then the whole file as it stands. */
static int measure_choices(mixing *m, double *all) {
  int status = HR_OK;
  for (size_t i = 0; i < m->choices && status == HR_OK; i++) {
    choice *c = &m->choice[i];
    if (!use_tensor(m, c->tensor, &m->tensor[c->tensor])) return cli_fail_memory();
    status = mean_kl(m, &c->kl);
    reset_tensor(m, c->tensor);
  }
  qsort(m->choice, m->choices, sizeof *m->choice, by_gain);
  for (size_t i = 0; i < hr_source_tensor_count(m->q->source); i++) {
    const hr_format f = m->tensor[i].format;
    if ((f == HR_FORMAT_Q8_0 || f == HR_FORMAT_F16) && !use_tensor(m, i, &m->tensor[i]))
      return cli_fail_memory();
  }
  return status == HR_OK ? mean_kl(m, all) : status;
}

/* The F16 form takes the place of the other. */
static int use_half(mixing *m, choice *c) {
  cli_quantized *t = &m->tensor[c->tensor];
  free(t->data);
  *t = c->half;
  c->half.data = NULL;
  return use_tensor(m, c->tensor, t) ? HR_OK : cli_fail_memory();
}

/* Tensors become F16 in the order of gain, as many at a time as the estimates ask for:
 * what is missing is the sum of what the changed ones cost alone. */
static int mix_types(mixing *m) {
  double limit = (double)m->q->max_kl.value, kl = 0;
  size_t next = 0;
  int status = measure_choices(m, &kl);
  while (status == HR_OK && kl > limit && next < m->choices) {
    for (double missing = kl - limit; missing > 0 && next < m->choices && status == HR_OK; next++) {
      missing -= m->choice[next].kl;
      status = use_half(m, &m->choice[next]);
    }
    if (status == HR_OK) status = mean_kl(m, &kl);
  }
  m->q->kl = kl;
  if (status == HR_OK && kl > limit)
    return cli_fail(CLI_DIFFERENT, "KL divergence: %.6g with F16 everywhere, expected at most %g",
                    kl, limit);
  return status;
}

int cli_quantize_for_kl(cli_quantizing *q, cli_quantized *tensor) {
  mixing m = {.q = q, .tensor = tensor, .vocab = hr_model_vocab_size(q->model)};
  cli_common wide = q->common, plain = q->common; /* the file as it will be run */
  wide.quiet = plain.quiet = true;
  wide.cache = (cli_choice){HR_CACHE_F32 - HR_CACHE_F16, true};
  m.choice = calloc(hr_source_tensor_count(q->source) + 1, sizeof *m.choice);
  int status = m.choice && cli_mixture_init(&m.mix, q->model) ? make_all(&m) : cli_fail_memory();
  if (status == HR_OK) m.session[0] = cli_open_session(&wide, q->model, &status);
  if (m.session[0]) m.session[1] = cli_open_session(&plain, &m.mix.model, &status);
  if (m.session[1]) status = mix_types(&m);
  for (size_t i = 0; i < m.choices; i++) free(m.choice[i].half.data);
  free(m.choice);
  hr_session_free(m.session[1]);
  hr_session_free(m.session[0]);
  cli_mixture_finish(&m.mix);
  return status;
}
