/* SPDX-License-Identifier: MIT
 * The cheapest mix of int8 and F16 that meets a KL divergence.
 *
 * What is measured is the file as it will be: one with all of its tensors is put together
 * in memory and opened as a model, and matrices of that are exchanged. With all that may
 * choose in F16, each goes back to int8 alone, which tells what it costs. Such costs add up
 * nearly, so the best set for a budget is that of a knapsack; how large a budget the limit
 * leaves is found by bisection, with the set that it buys measured each time. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "accuracy.h"
#include "mixture.h"
#include "output.h"
#include "quant/convert.h"
#include "quantize.h"

/* A tensor that may be Q8_0 or F16, and what each costs. */
typedef struct choice {
  size_t tensor;
  double kl;        /* that Q8_0 adds */
  size_t more;      /* bytes that F16 takes more */
  bool half;        /* as the mixture has it now */
  bool best, other; /* F16 in the best mix so far; in the one to be measured */
} choice;

typedef struct mixing {
  cli_quantizing *q;
  cli_quantized *tensor;
  hr_model *file; /* all that may choose in int8 */
  cli_mixture mix;
  hr_session *session[2];
  choice *choice;
  size_t choices, vocab, tokens;
  double *kl; /* of each token */
  uint32_t *cluster;
  hr_clusters clusters;
  size_t done, runs; /* measurements, for the progress */
  double limit;     /* asked for */
  hr_estimate last; /* of the last mix */
} mixing;

/* Costs are measured on so many tokens: they order tensors and need not be exact. */
enum { COST_TOKENS = 2048, BISECTIONS = 10, UNITS = 1024 };

/* --- Measuring ------------------------------------------------------------------- */

static int add_kl(void *arg, size_t part, const float *const *logits, int32_t next) {
  mixing *m = arg;
  (void)next;
  m->cluster[m->tokens] = hr_next_cluster(&m->clusters, part);
  m->kl[m->tokens++] = hr_divergence(logits[0], logits[1], m->vocab);
  return HR_OK;
}

/* Tokens that are measured when most are allowed. */
static size_t tokens_of(const mixing *m, uint64_t most) {
  size_t all = cli_corpus_scored(&m->q->measured);
  return all < most ? all : (size_t)most;
}

static int mean_kl(mixing *m, uint64_t most, hr_estimate *kl) {
  static const char *const names[] = {"the original", "the candidate"};
  double each = 1.0 / (double)m->runs;
  cli_scoring scoring = {.session = m->session,
                         .sessions = 2,
                         .vocab = m->vocab,
                         .name = names,
                         .most = tokens_of(m, most),
                         .what = m->q->common.quiet ? NULL : "measuring types",
                         .done_before = each * (double)m->done++,
                         .share = each};
  m->clusters = (hr_clusters){.length = hr_cluster_tokens(tokens_of(m, most))};
  m->tokens = 0;
  int status = cli_score(&scoring, &m->q->measured, add_kl, m);
  if (status == HR_OK) *kl = hr_mean(m->kl, m->cluster, m->tokens);
  return status;
}

/* --- Types of tensors ------------------------------------------------------------ */

/* The file's rows of a tensor as F16, wherever the model has them. */
static bool pack_half(mixing *m, size_t tensor, const cli_quantized *half) {
  const hr_loaded *loaded = &m->file->loaded;
  size_t row_bytes = 0;
  for (size_t i = 0; i < loaded->held_count; i++) {
    const hr_held *h = &loaded->held[i];
    if (h->tensor != tensor) continue;
    hr_format_bytes(HR_FORMAT_F16, h->matrix->k, &row_bytes);
    char *rows = malloc(h->matrix->n * row_bytes);
    if (!rows) return false;
    for (size_t r = 0; r < h->matrix->n; r++) {
      size_t output = h->first_row + (h->run ? r / h->run * h->step + r % h->run : r);
      memcpy(rows + r * row_bytes, half->data + output * row_bytes, row_bytes);
    }
    bool packed = cli_mixture_pack(&m->mix, i, HR_PANEL_F16, rows, row_bytes);
    free(rows);
    if (!packed) return false;
  }
  return true;
}

static void reset_tensor(mixing *m, size_t tensor) {
  const hr_loaded *loaded = &m->file->loaded;
  for (size_t i = 0; i < loaded->held_count; i++)
    if (loaded->held[i].tensor == tensor) cli_mixture_reset(&m->mix, i);
}

static int set_half(mixing *m, choice *c, bool half) {
  if (c->half == half) return HR_OK;
  c->half = half;
  if (!half) {
    reset_tensor(m, c->tensor);
    return HR_OK;
  }
  cli_quantized made = {.format = HR_FORMAT_F16};
  int status = cli_quantize_tensor(m->q, c->tensor, &made);
  if (status == HR_OK && !pack_half(m, c->tensor, &made)) status = cli_fail_memory();
  free(made.data);
  return status;
}

/* The mix that `other` says, measured; it becomes the best when it meets the limit. */
static int try_mix(mixing *m, bool *meets) {
  int status = HR_OK;
  for (size_t i = 0; i < m->choices && status == HR_OK; i++)
    status = set_half(m, &m->choice[i], m->choice[i].other);
  if (status == HR_OK) status = mean_kl(m, m->q->tokens.value, &m->last);
  if (status != HR_OK) return status;
  *meets = m->last.value <= m->limit;
  if (!*meets) return HR_OK;
  m->q->kl = m->last;
  m->q->kl_tokens = m->tokens;
  for (size_t i = 0; i < m->choices; i++) m->choice[i].best = m->choice[i].other;
  return HR_OK;
}

/* --- The search ------------------------------------------------------------------ */

static int measure_costs(mixing *m) {
  uint64_t most = m->q->tokens.value < COST_TOKENS ? m->q->tokens.value : COST_TOKENS;
  hr_estimate none, kl;
  int status = mean_kl(m, most, &none);
  for (size_t i = 0; i < m->choices && status == HR_OK; i++) {
    status = set_half(m, &m->choice[i], false);
    if (status == HR_OK) status = mean_kl(m, most, &kl);
    if (status == HR_OK) status = set_half(m, &m->choice[i], true);
    if (status == HR_OK) m->choice[i].kl = fmax(kl.value - none.value, 0);
  }
  return status;
}

/* What a tensor takes of a budget, in units; more than all of them: it can't be bought. */
static size_t units_of(const choice *c, double budget) {
  double units = ceil(c->kl / budget * UNITS);
  return units <= UNITS ? (size_t)units : UNITS + 1;
}

/* Sets `other`: the tensors that become int8 add at most the budget, by their costs, and
 * save the most bytes. The knapsack of dynamic programming; taken is [choices][UNITS + 1]. */
static void fill_knapsack(mixing *m, double budget, double *saved, bool *taken) {
  for (size_t u = 0; u <= UNITS; u++) saved[u] = 0;
  for (size_t i = 0; i < m->choices; i++) {
    size_t units = units_of(&m->choice[i], budget);
    bool *row = taken + i * (UNITS + 1);
    for (size_t u = UNITS + 1; u-- > 0;) {
      double with = u >= units ? saved[u - units] + (double)m->choice[i].more : -1;
      row[u] = with > saved[u];
      if (row[u]) saved[u] = with;
    }
  }
  size_t left = UNITS;
  for (size_t i = m->choices; i-- > 0;) {
    bool int8 = taken[i * (UNITS + 1) + left];
    m->choice[i].other = !int8;
    if (int8) left -= units_of(&m->choice[i], budget);
  }
}

static bool is_best(const mixing *m) {
  for (size_t i = 0; i < m->choices; i++)
    if (m->choice[i].best != m->choice[i].other) return false;
  return true;
}

/* low meets the limit, high does not; the first try takes the costs at their word. */
static int bisect_budget(mixing *m, double low, double high, double first) {
  double *saved = calloc(UNITS + 1, sizeof *saved);
  bool *taken = calloc(m->choices + 1, (UNITS + 1) * sizeof *taken);
  int status = saved && taken ? HR_OK : cli_fail_memory();
  for (int i = 0; i < BISECTIONS && status == HR_OK && high > low; i++) {
    double middle = low > 0 ? sqrt(low * high) : high / 2; /* what counts is the factor */
    double budget = i == 0 && first > low && first < high ? first : middle;
    bool meets = true;
    if (budget <= low) break;
    fill_knapsack(m, budget, saved, taken);
    if (!is_best(m)) status = try_mix(m, &meets);
    *(meets ? &low : &high) = budget;
  }
  free(taken);
  free(saved);
  return status;
}

/* Costs are not quite what tensors add to each other: those that can go back to int8 even
 * so do, the largest first. One that would take twice of what is left is not tried. */
static int give_back(mixing *m) {
  int status = HR_OK;
  for (size_t i = 0; i < m->choices; i++) m->choice[i].other = m->choice[i].best;
  for (size_t i = 0; i < m->choices && status == HR_OK; i++) {
    choice *c = &m->choice[i];
    bool meets = false;
    if (!c->best || c->kl > 2 * (m->limit - m->q->kl.value)) continue;
    c->other = false;
    status = try_mix(m, &meets);
    c->other = c->best;
  }
  return status;
}

static int by_bytes(const void *a, const void *b) {
  const choice *x = a, *y = b;
  return x->more < y->more ? 1 : -(x->more > y->more);
}

/* All in int8 if that will do; else all in F16, which must, and from there on less. */
static int mix_types(mixing *m) {
  double total = 0;
  bool meets = false;
  int status = try_mix(m, &meets);
  if (status != HR_OK || meets) return status;
  for (size_t i = 0; i < m->choices; i++) m->choice[i].other = true;
  if (m->choices) status = try_mix(m, &meets);
  if (status == HR_OK && !meets)
    return cli_fail(CLI_DIFFERENT,
                    "KL divergence: %.6g with F16 everywhere it can be, expected at most %g",
                    m->last.value, m->limit);
  if (status == HR_OK) status = measure_costs(m);
  for (size_t i = 0; i < m->choices; i++) total += m->choice[i].kl;
  qsort(m->choice, m->choices, sizeof *m->choice, by_bytes);
  if (status == HR_OK) status = bisect_budget(m, 0, total, m->limit - m->q->kl.value);
  return status == HR_OK ? give_back(m) : status;
}

/* --- From start to end ----------------------------------------------------------- */

/* Whether a tensor fits F16: what is to be turned into it must not become infinite. */
static int add_choice(mixing *m, size_t i) {
  cli_quantized half = {.format = HR_FORMAT_F16, .may_not_fit = true};
  int status = cli_quantize_tensor(m->q, i, &half);
  free(half.data);
  if (status != HR_OK) return status;
  if (half.fits)
    m->choice[m->choices++] = (choice){.tensor = i, .more = half.bytes - m->tensor[i].bytes};
  else if (!m->q->common.quiet)
    cli_note("note: '%s' stays Q8_0: it has values outside of the range of F16",
             hr_source_tensor_at(m->q->source, i)->name);
  return HR_OK;
}

static int make_all(mixing *m) {
  cli_quantizing *q = m->q;
  size_t count = hr_source_tensor_count(q->source);
  int status = HR_OK;
  q->share = 0.5 / (double)(count + 1);
  for (size_t i = 0; i < count && status == HR_OK; i++) {
    if (!m->tensor[i].data) status = cli_quantize_tensor(q, i, &m->tensor[i]);
    if (status != HR_OK || m->tensor[i].format != HR_FORMAT_Q8_0 || m->tensor[i].kept) continue;
    status = add_choice(m, i);
  }
  cli_end_progress(q->progress);
  return status;
}

/* The file with all tensors as they are now, as a model. */
static int open_file(mixing *m) {
  hr_error err;
  hr_model_options options;
  cli_save save;
  cli_bytes image = {0};
  cli_save_begin_memory(&save, &image);
  int status = cli_quantize_put(m->q, &save, m->tensor);
  if (status == HR_OK && save.error) status = cli_fail_memory();
  hr_model_options_init(&options);
  options.isa = m->q->common.isa;
  if (status == HR_OK) {
    m->file = hr_model_open_memory(image.data, image.used, m->q->name, &options, &err);
    if (!m->file) status = cli_fail_error(NULL, &err);
  }
  cli_bytes_free(&image);
  return status;
}

static int open_sessions(mixing *m) {
  int status = HR_OK;
  cli_common wide = m->q->common, plain = m->q->common; /* the file as it will be run */
  wide.quiet = plain.quiet = true;
  wide.cache = (cli_choice){HR_CACHE_F32 - HR_CACHE_F16, true};
  if (!cli_mixture_init(&m->mix, m->file)) return cli_fail_memory();
  m->session[0] = cli_open_session(&wide, m->q->model, &status);
  if (m->session[0]) m->session[1] = cli_open_session(&plain, &m->mix.model, &status);
  return status;
}

/* The F16 forms of the best mix take the places of the others. */
static int keep_best(mixing *m) {
  int status = HR_OK;
  for (size_t i = 0; i < m->choices && status == HR_OK; i++) {
    cli_quantized *t = &m->tensor[m->choice[i].tensor];
    if (!m->choice[i].best) continue;
    free(t->data);
    *t = (cli_quantized){.format = HR_FORMAT_F16};
    status = cli_quantize_tensor(m->q, m->choice[i].tensor, t);
  }
  return status;
}

int cli_quantize_for_kl(cli_quantizing *q, cli_quantized *tensor) {
  mixing m = {.q = q, .tensor = tensor, .vocab = hr_model_vocab_size(q->model),
              .limit = (double)q->max_kl.value};
  cli_progress *progress = q->progress;
  m.choice = calloc(hr_source_tensor_count(q->source) + 1, sizeof *m.choice);
  size_t most = tokens_of(&m, q->tokens.value);
  m.kl = calloc(most, sizeof *m.kl);
  m.cluster = calloc(most, sizeof *m.cluster);
  int status = m.choice && m.kl && m.cluster ? make_all(&m) : cli_fail_memory();
  m.runs = 2 * m.choices + BISECTIONS + 3;
  q->progress = NULL; /* that of the measurements is shown */
  if (status == HR_OK) status = open_file(&m);
  if (status == HR_OK) status = open_sessions(&m);
  if (status == HR_OK) status = mix_types(&m);
  if (status == HR_OK) status = keep_best(&m);
  q->progress = progress;
  free(m.choice);
  free(m.kl);
  free(m.cluster);
  hr_session_free(m.session[1]);
  hr_session_free(m.session[0]);
  cli_mixture_finish(&m.mix);
  hr_model_free(m.file);
  return status;
}
