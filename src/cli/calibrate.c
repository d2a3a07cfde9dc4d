/* SPDX-License-Identifier: MIT */
#include "calibrate.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "interrupt.h"
#include "mixture.h"
#include "quant/compensate.h"

/* One input of products, shared by all matrices that are multiplied with it. */
typedef struct input {
  size_t k;
  int64_t layer; /* -1: behind the layers */
} input;

enum { EXACT, ROUNDED, BOTH }; /* the model, and what has become of it so far */

struct cli_calibration {
  const cli_common *common;
  const hr_model *model;
  const cli_corpus *corpus;
  size_t most, tokens; /* that may be taken, and that there are of them */
  input *inputs;       /* in the order of a pass */
  size_t count;
  size_t *of_held;     /* the input of each held matrix; SIZE_MAX: of none */
  cli_mixture mix;
  hr_session *session[BOTH];
  float *stream[BOTH]; /* [tokens][width] in front of `layer`; NULL before the first */
  uint32_t layer;
  size_t wanted;       /* the input that is looked at; SIZE_MAX: numbers are given out */
  float *seen[BOTH];   /* [rows of a pass][k] */
  size_t seen_rows[BOTH], seen_room;
  double *sum, *drift; /* [k][k], sums over the rows: x x^T, its upper triangle; see compensate.h */
  size_t made;         /* the input that u and shift belong to */
  float *u, *shift;
  bool failed;
};

/* Of the mean of the diagonal, as published; and for an embedding that is the head too:
 * what rounding takes off the error of the logits must not be put onto the rows that
 * are looked up, where all columns count alike. */
#define DAMP 0.01
#define DAMP_TIED 1.0

/* --- Inputs ------------------------------------------------------------------------ */

/* A tied head is the embedding's matrix under another address. */
static size_t held_of(const cli_calibration *c, const hr_matrix *m) {
  const hr_loaded *loaded = &c->model->loaded;
  for (size_t i = 0; i < loaded->held_count; i++)
    if (loaded->held[i].matrix == m || loaded->held[i].matrix->panels == m->panels) return i;
  return SIZE_MAX;
}

static void number_input(cli_calibration *c, const hr_matrix *const *matrices, size_t count,
                         size_t k) {
  for (size_t i = 0; i < count; i++) {
    size_t held = held_of(c, matrices[i]);
    if (held == SIZE_MAX || c->of_held[held] != SIZE_MAX) return; /* the next pass has begun */
    c->of_held[held] = c->count;
  }
  input *grown = reallocarray(c->inputs, c->count + 1, sizeof *grown);
  if (!grown) {
    c->failed = true;
    return;
  }
  c->inputs = grown;
  c->inputs[c->count++] =
      (input){.k = k, .layer = cli_layer_of(&c->model->loaded, held_of(c, matrices[0]))};
}

static void keep_rows(cli_calibration *c, int which, const float *x, size_t rows, size_t k,
                      size_t stride) {
  if (rows > c->seen_room) rows = c->seen_room;
  for (size_t r = 0; r < rows; r++) memcpy(c->seen[which] + r * k, x + r * stride, k * sizeof *x);
  c->seen_rows[which] = rows;
}

static void see_exact(void *arg, const hr_matrix *const *matrices, size_t count, const float *x,
                      size_t rows, size_t k, size_t stride) {
  cli_calibration *c = arg;
  if (c->wanted == SIZE_MAX) {
    number_input(c, matrices, count, k);
    return;
  }
  size_t held = held_of(c, matrices[0]);
  if (held != SIZE_MAX && c->of_held[held] == c->wanted) keep_rows(c, EXACT, x, rows, k, stride);
}

/* The mixture has matrices at other addresses. */
static void see_rounded(void *arg, const hr_matrix *const *matrices, size_t count, const float *x,
                        size_t rows, size_t k, size_t stride) {
  cli_calibration *c = arg;
  (void)count;
  if (c->wanted == SIZE_MAX) return;
  const hr_transformer *to = &c->mix.model.loaded.transformer;
  const hr_transformer *from = &c->model->loaded.transformer;
  const hr_held *held = c->model->loaded.held;
  for (size_t i = 0; i < c->model->loaded.held_count; i++)
    if (c->of_held[i] == c->wanted &&
        cli_same_matrix((hr_transformer *)(uintptr_t)to, from, held[i].matrix) == matrices[0])
      keep_rows(c, ROUNDED, x, rows, k, stride);
}

/* --- Sums -------------------------------------------------------------------------- */

/* Few terms are added up as floats, in a piece that stays near; the sums are double. */
enum { GROUP = 16, TILE = 512 };

/* sum[j] += over rows r of x[r][i] y[r][j], j from `from` on. */
static void add_row(double *sum, const float *x, const float *y, size_t rows, size_t k, size_t i,
                    size_t from) {
  for (size_t first = from; first < k; first += TILE) {
    size_t n = k - first < TILE ? k - first : TILE;
    for (size_t row = 0; row < rows; row += GROUP) {
      size_t end = rows - row < GROUP ? rows : row + GROUP;
      float part[TILE] = {0};
      for (size_t r = row; r < end; r++) {
        float a = x[r * k + i];
        const float *b = y + r * k + first;
        for (size_t j = 0; j < n; j++) part[j] += a * b[j];
      }
      for (size_t j = 0; j < n; j++) sum[first + j] += (double)part[j];
    }
  }
}

static void add_rows(void *arg, unsigned thread, unsigned threads) {
  const cli_calibration *c = arg;
  size_t k = c->inputs[c->wanted].k, rows = c->seen_rows[EXACT];
  const float *x = c->seen[c->drift ? ROUNDED : EXACT];
  for (size_t i = thread; i < k; i += threads) {
    add_row(c->sum + i * k, x, x, rows, k, i, i);
    if (c->drift) add_row(c->drift + i * k, x, c->seen[EXACT], rows, k, i, 0);
  }
}

/* Of the exact rows it is what they are away from the others that counts. */
static int add_seen(cli_calibration *c) {
  hr_error err;
  size_t count = c->seen_rows[EXACT] * c->inputs[c->wanted].k;
  for (size_t i = 0; c->drift && i < count; i++) c->seen[EXACT][i] -= c->seen[ROUNDED][i];
  hr_team *team = c->session[EXACT]->team;
  if (hr_team_run(team, hr_team_active(team, true), add_rows, c, &err) != HR_OK)
    return cli_fail_error(NULL, &err);
  return HR_OK;
}

/* --- Passes ------------------------------------------------------------------------ */

/* What is done with the rows of the text that begin at `row`, `count` ids at `start` of a
 * window. */
typedef int piece_fn(cli_calibration *c, const int32_t *ids, size_t start, size_t count,
                     size_t row);

enum { LOGITS_MOST = 1 << 23 }; /* 32 MiB */
static piece_fn look_behind;

/* The text in pieces of a pass, each window of the context by itself. */
static int visit_text(cli_calibration *c, piece_fn *visit, const char *what, double before,
                      double share) {
  cli_progress progress = {.what = what, .start = cli_now()};
  bool show = what && isatty(STDERR_FILENO) && !c->common->quiet;
  size_t context = hr_session_context(c->session[EXACT]), chunk = c->session[EXACT]->chunk;
  size_t row = 0, logits = LOGITS_MOST / hr_model_vocab_size(c->model);
  if (visit == look_behind && chunk > logits) chunk = logits ? logits : 1;
  int status = HR_OK;
  for (size_t p = 0; p < c->corpus->parts && row < c->tokens && status == HR_OK; p++) {
    const cli_part *part = &c->corpus->part[p];
    for (size_t at = 0; at < part->count && row < c->tokens && status == HR_OK;) {
      size_t start = at % context, count = context - start;
      if (count > chunk) count = chunk;
      if (count > part->count - at) count = part->count - at;
      if (count > c->tokens - row) count = c->tokens - row;
      status = visit(c, part->ids + at, start, count, row);
      at += count;
      row += count;
      double done = before + share * (double)row / (double)c->tokens;
      if (status == HR_OK && !cli_report_progress(show ? &progress : NULL, done))
        status = HR_ERROR_CANCELLED;
    }
  }
  if (show) cli_end_progress(&progress);
  return status;
}

static int run(cli_calibration *c, int which, const int32_t *ids, size_t start, size_t count,
               const hr_stretch *stretch) {
  hr_error err;
  hr_session *s = c->session[which];
  const hr_request request = {.ids = ids, .rows = count, .start = start, .logits_from = count,
                              .stretch = stretch};
  hr_status status = hr_forward(s->workspace, s->team, hr_team_active(s->team, true), &s->cache,
                                &request, &err);
  return status == HR_OK ? HR_OK : cli_fail_error(NULL, &err);
}

/* Both streams through the layer, or from the embedding to it. */
static int advance_piece(cli_calibration *c, const int32_t *ids, size_t start, size_t count,
                         size_t row) {
  size_t width = c->model->loaded.transformer.description.width;
  int status = HR_OK;
  for (int i = 0; i < BOTH && status == HR_OK; i++) {
    float *stream = c->stream[i] + row * width;
    bool begin = c->layer == UINT32_MAX;
    const hr_stretch stretch = {.first = begin ? 0 : c->layer,
                                .end = begin ? 0 : c->layer + 1,
                                .stream = begin ? NULL : stream,
                                .stream_out = stream};
    status = run(c, i, ids, start, count, &stretch);
  }
  return status;
}

static int look_piece(cli_calibration *c, const int32_t *ids, size_t start, size_t count,
                      size_t row) {
  size_t width = c->model->loaded.transformer.description.width;
  int status = HR_OK;
  for (int i = 0; i < BOTH && status == HR_OK; i++) {
    const hr_stretch stretch = {
        .first = c->layer, .end = c->layer + 1, .stream = c->stream[i] + row * width};
    status = run(c, i, ids, start, count, &stretch);
  }
  return status == HR_OK ? add_seen(c) : status;
}

/* The inputs behind the layers, as the model has them. */
static int look_behind(cli_calibration *c, const int32_t *ids, size_t start, size_t count,
                       size_t row) {
  hr_error err;
  hr_session *s = c->session[EXACT];
  (void)row;
  if (hr_session_rewind(s, start, &err) != HR_OK ||
      hr_session_eval(s, ids, count, HR_LOGITS_ALL, &err) != HR_OK)
    return cli_fail_error(NULL, &err);
  return c->wanted == SIZE_MAX ? HR_OK : add_seen(c);
}

static int begin_streams(cli_calibration *c) {
  size_t width = c->model->loaded.transformer.description.width, count;
  for (int i = 0; i < BOTH; i++) {
    if (!hr_mul_size(c->tokens, width, &count)) return cli_fail_memory();
    c->stream[i] = calloc(count, sizeof *c->stream[i]);
    if (!c->stream[i]) return cli_fail_memory();
  }
  c->layer = UINT32_MAX;
  int status = visit_text(c, advance_piece, NULL, 0, 1);
  c->layer = 0;
  return status;
}

/* The sums of the wanted input. */
static int take_sums(cli_calibration *c) {
  const input *in = &c->inputs[c->wanted];
  size_t chunk = c->session[EXACT]->chunk, rows = c->session[EXACT]->context;
  double share = 1.0 / (double)c->count, before = share * (double)c->wanted;
  int status = HR_OK;
  c->seen_room = chunk > rows ? chunk : rows;
  c->sum = calloc(in->k * in->k, sizeof *c->sum);
  c->drift = in->layer < 0 ? NULL : calloc(in->k * in->k, sizeof *c->drift);
  for (int i = 0; i < BOTH; i++) c->seen[i] = malloc(c->seen_room * in->k * sizeof *c->seen[i]);
  if (!c->sum || !c->seen[EXACT] || !c->seen[ROUNDED] || (in->layer >= 0 && !c->drift))
    return cli_fail_memory();
  if (in->layer < 0) return visit_text(c, look_behind, "calibrating", before, share);
  if (!c->stream[EXACT]) status = begin_streams(c);
  for (; status == HR_OK && (int64_t)c->layer < in->layer; c->layer++)
    status = visit_text(c, advance_piece, NULL, 0, 1);
  return status == HR_OK ? visit_text(c, look_piece, "calibrating", before, share) : status;
}

static void drop_sums(cli_calibration *c) {
  free(c->sum);
  free(c->drift);
  c->sum = c->drift = NULL;
  for (int i = 0; i < BOTH; i++) {
    free(c->seen[i]);
    c->seen[i] = NULL;
  }
}

/* --- From start to end --------------------------------------------------------------- */

/* Directions that the text never takes are free for rounding to spoil. */
static void note_short_text(const cli_calibration *c) {
  size_t widest = 0;
  for (size_t i = 0; i < c->model->loaded.held_count; i++)
    if (c->model->loaded.held[i].matrix->k > widest) widest = c->model->loaded.held[i].matrix->k;
  if (c->tokens < 4 * widest && !c->common->quiet)
    cli_note("warning: a text of %zu tokens is short to calibrate %zu columns with: expected %zu",
             c->tokens, widest, 4 * widest);
}

static int open_sessions(cli_calibration *c) {
  int status = HR_OK;
  cli_common wide = *c->common;
  wide.quiet = true;
  wide.cache = (cli_choice){HR_CACHE_F32 - HR_CACHE_F16, true};
  c->session[EXACT] = cli_open_session(&wide, c->model, &status);
  if (c->session[EXACT]) c->session[ROUNDED] = cli_open_session(&wide, &c->mix.model, &status);
  if (status != HR_OK) return status;
  hr_workspace_set_input_tap(c->session[EXACT]->workspace, see_exact, c);
  hr_workspace_set_input_tap(c->session[ROUNDED]->workspace, see_rounded, c);
  return HR_OK;
}

/* One pass tells which inputs there are. */
static int number_inputs(cli_calibration *c) {
  const cli_part *part = c->corpus->part;
  while (part->count == 0) part++;
  int status = look_behind(c, part->ids, 0, 1, 0);
  return status == HR_OK && c->failed ? cli_fail_memory() : status;
}

static int start(cli_calibration *c) {
  size_t held = c->model->loaded.held_count;
  c->of_held = malloc((held + 1) * sizeof *c->of_held);
  if (!c->of_held || !cli_mixture_init(&c->mix, c->model)) return cli_fail_memory();
  for (size_t i = 0; i < held; i++) c->of_held[i] = SIZE_MAX;
  c->tokens = c->corpus->tokens < c->most ? c->corpus->tokens : c->most;
  note_short_text(c);
  int status = open_sessions(c);
  return status == HR_OK ? number_inputs(c) : status;
}

cli_calibration *cli_calibration_create(const cli_common *common, const hr_model *model,
                                        const cli_corpus *corpus, size_t most, int *status) {
  cli_calibration *c = calloc(1, sizeof *c);
  if (!c) {
    *status = cli_fail_memory();
    return NULL;
  }
  *c = (cli_calibration){.common = common, .model = model, .corpus = corpus, .most = most,
                         .wanted = SIZE_MAX, .made = SIZE_MAX};
  *status = start(c);
  if (*status == HR_OK) return c;
  cli_calibration_free(c);
  return NULL;
}

void cli_calibration_free(cli_calibration *c) {
  if (!c) return;
  drop_sums(c);
  for (int i = 0; i < BOTH; i++) {
    hr_session_free(c->session[i]);
    free(c->stream[i]);
  }
  cli_mixture_finish(&c->mix);
  free(c->inputs);
  free(c->of_held);
  free(c->u);
  free(c->shift);
  free(c);
}

static size_t input_of(const cli_calibration *c, size_t tensor) {
  const hr_loaded *loaded = &c->model->loaded;
  for (size_t i = 0; i < loaded->held_count; i++)
    if (loaded->held[i].tensor == tensor && c->of_held[i] != SIZE_MAX) return c->of_held[i];
  return SIZE_MAX;
}

static bool is_embedding(const cli_calibration *c, size_t tensor) {
  const hr_loaded *loaded = &c->model->loaded;
  for (size_t i = 0; i < loaded->held_count; i++)
    if (loaded->held[i].tensor == tensor &&
        loaded->held[i].matrix == &loaded->transformer.token_embedding)
      return true;
  return false;
}

/* i: the tensor's input. A text of few tokens tells little of the directions between them. */
static double damp_of(const cli_calibration *c, size_t tensor, size_t i) {
  if (is_embedding(c, tensor)) return DAMP_TIED;
  double few = (double)c->inputs[i].k / (2.0 * (double)c->tokens);
  return few > DAMP ? few : DAMP;
}

static bool is_listed(const size_t *tensors, size_t count, size_t tensor) {
  for (size_t i = 0; i < count; i++)
    if (tensors[i] == tensor) return true;
  return false;
}

/* The embedding first: all others see what its rounding does. */
size_t cli_calibration_order(const cli_calibration *c, size_t *tensors) {
  const hr_loaded *loaded = &c->model->loaded;
  size_t count = 0;
  for (size_t i = 0; i < loaded->held_count; i++)
    if (c->of_held[i] == SIZE_MAX || is_embedding(c, loaded->held[i].tensor))
      if (!is_listed(tensors, count, loaded->held[i].tensor))
        tensors[count++] = loaded->held[i].tensor;
  for (size_t n = 0; n < c->count; n++)
    for (size_t i = 0; i < loaded->held_count; i++)
      if (c->of_held[i] == n && !is_listed(tensors, count, loaded->held[i].tensor))
        tensors[count++] = loaded->held[i].tensor;
  return count;
}

static int compensate(cli_calibration *c, size_t i, double damp) {
  size_t k = c->inputs[i].k;
  free(c->u);
  free(c->shift);
  c->u = malloc(k * k * sizeof *c->u);
  c->shift = c->drift ? malloc(k * k * sizeof *c->shift) : NULL;
  if (!c->u || (c->drift && !c->shift)) return cli_fail_memory();
  if (!hr_compensation(c->sum, k, damp, c->u))
    return cli_fail(HR_ERROR_NUMERIC, "%s: its activations on the text are not finite, "
                    "expected numbers to calibrate with", c->model->path);
  return !c->drift || hr_compensation_shift(c->drift, k, c->u, c->shift) ? HR_OK
                                                                          : cli_fail_memory();
}

int cli_calibration_of(cli_calibration *c, size_t tensor, cli_compensation *result) {
  size_t i = input_of(c, tensor);
  *result = (cli_compensation){0};
  if (i == SIZE_MAX) return HR_OK;
  if (i != c->made) {
    c->made = SIZE_MAX;
    c->wanted = i;
    int status = take_sums(c);
    if (status == HR_OK) status = compensate(c, i, damp_of(c, tensor, i));
    drop_sums(c);
    if (status != HR_OK) return status;
    c->made = i;
  }
  *result = (cli_compensation){c->u, c->shift};
  return HR_OK;
}

/* Its rows wherever the model has them, widened. */
int cli_calibration_take(cli_calibration *c, size_t tensor, hr_format format, const void *data) {
  const hr_loaded *loaded = &c->model->loaded;
  for (size_t i = 0; i < loaded->held_count; i++) {
    const hr_held *h = &loaded->held[i];
    size_t k = h->matrix->k, bytes;
    if (h->tensor != tensor) continue;
    float *rows = malloc(h->matrix->n * k * sizeof *rows);
    if (!rows || !hr_format_bytes(format, k, &bytes)) {
      free(rows);
      return cli_fail_memory();
    }
    for (size_t r = 0; r < h->matrix->n; r++) {
      size_t output = h->first_row + (h->run ? r / h->run * h->step + r % h->run : r);
      hr_format_get(format)->widen((const char *)data + output * bytes, rows + r * k, k);
    }
    bool packed = cli_mixture_pack(&c->mix, i, HR_PANEL_F32, rows, k * sizeof *rows);
    free(rows);
    if (!packed) return cli_fail_memory();
  }
  return HR_OK;
}
