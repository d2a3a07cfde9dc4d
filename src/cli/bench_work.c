/* SPDX-License-Identifier: MIT
 * How much there is to do in a test, and how quickly a machine with such limits
 * can have done it. */
#include <string.h>

#include "bench.h"

enum { LAYER_MATRICES = 7 };

size_t bench_matrices(const hr_transformer *t) {
  return (size_t)t->description.layers * LAYER_MATRICES + 1;
}

/* In the order in which a token meets them. */
const hr_matrix *bench_matrix(const hr_transformer *t, size_t i) {
  if (i == (size_t)t->description.layers * LAYER_MATRICES) return &t->head;
  const hr_layer *l = &t->layer[i / LAYER_MATRICES];
  const hr_matrix *const all[LAYER_MATRICES] = {&l->query, &l->key, &l->value, &l->output,
                                                &l->gate,  &l->up,  &l->down};
  return all[i % LAYER_MATRICES];
}

unsigned bench_barriers_behind(size_t i, size_t count) {
  static const unsigned char behind[LAYER_MATRICES] = {[2] = 2, [3] = 1, [5] = 1, [6] = 1};
  return i + 1 == count ? 1 : behind[i % LAYER_MATRICES];
}

/* One matrix in a pass of some rows: its weights are read once. */
static void add_matrix(const hr_matrix *m, size_t rows, bench_work *work) {
  if (!m->panels || rows == 0) return;
  double macs = (double)m->n * (double)m->k * (double)rows;
  *(m->type == HR_PANEL_Q8 ? &work->int8_macs : &work->float_macs) += macs;
  size_t panels = hr_round_up(m->n, HR_PANEL_ROWS) / HR_PANEL_ROWS;
  work->bytes += (double)panels * (double)hr_panel_bytes(m->type, m->k);
}

/* Whether the last layer is needed whole: not by rows that only later rows of a sequence see. */
static bool needs_all(const hr_description *d, const bench_amount *a) {
  return a->all_rows || d->headless || d->mask == HR_MASK_FULL;
}

/* Every row goes through the layers; through the last one whole, and the head, go the last ones of
 * sequences, `ends`, or all. */
static void add_matrices(const hr_transformer *t, const bench_amount *a, size_t rows, size_t ends,
                         bench_work *part) {
  const hr_description *d = &t->description;
  for (uint32_t i = 0; i < d->layers; i++) {
    const hr_layer *l = &t->layer[i];
    size_t others = i + 1 < d->layers || needs_all(d, a) ? rows : ends;
    add_matrix(&l->query, others, &part[HR_PART_QKV]);
    add_matrix(&l->key, rows, &part[HR_PART_QKV]);
    add_matrix(&l->value, rows, &part[HR_PART_QKV]);
    add_matrix(&l->output, others, &part[HR_PART_OUTPUT]);
    add_matrix(&l->gate, others, &part[HR_PART_UP]);
    add_matrix(&l->up, others, &part[HR_PART_UP]);
    add_matrix(&l->down, others, &part[HR_PART_DOWN]);
  }
  add_matrix(&t->head, a->all_rows ? rows : ends, &part[HR_PART_HEAD]);
}

/* Keys that the row at a position sees in a layer, of so many that there are. */
static size_t visible(const hr_description *d, uint32_t layer, size_t position, size_t there) {
  size_t window = hr_layer_window(d, layer);
  size_t keys = d->mask == HR_MASK_FULL ? there : position + 1;
  return window && keys > window ? window : keys;
}

/* Scores and weighted sums: a multiply-add for each column of a key and of a value. */
static void add_attention(const hr_session *s, const bench_amount *a, size_t start, size_t rows,
                          bool ends, bench_work *work) {
  const hr_description *d = &s->model->loaded.transformer.description;
  double heads = (double)d->heads * 2 * (double)d->head_width;
  double position = (double)s->cache.position_bytes * (double)d->kv_heads, macs = 0;
  for (uint32_t l = 0; l < d->layers; l++) {
    bool last_only = l + 1 == d->layers && !needs_all(d, a);
    if (last_only && !ends) continue;
    for (size_t i = last_only ? rows - 1 : 0; i < rows; i++)
      macs += (double)visible(d, l, start + i, start + rows) * heads;
    work->bytes += (double)visible(d, l, start + rows - 1, start + rows) * position;
  }
  work->float_macs += macs;
  work->attend_macs += macs;
}

/* Of one pass: one row that sees few keys has no more. Without a row that needs the last layer
 * whole it ends with the cache. */
static double least_barriers(const hr_transformer *t, bool whole) {
  const double each_layer = 5, of_cache = 2, each_pass = 2; /* the end of the pass is one */
  double layers = t->description.layers;
  return whole ? each_layer * layers + each_pass
               : each_layer * (layers - 1) + of_cache + each_pass;
}

/* The next token of a call: of which sequence, and which of its own. */
typedef struct cursor {
  size_t sequence, token;
} cursor;

/* A pass as the engine fills it: sequences one behind the other. Texts to encode are
 * not cut where a pass can hold them whole. */
static void add_pass(const hr_session *s, const bench_amount *a, size_t depth, size_t tokens,
                     cursor *at, bench_work *part) {
  const hr_transformer *t = &s->model->loaded.transformer;
  bool whole = t->description.headless && tokens <= s->chunk;
  size_t rows = 0, ends = 0;
  while (at->sequence < a->batch && rows < s->chunk) {
    size_t left = tokens - at->token, room = s->chunk - rows, n = left < room ? left : room;
    if (whole && n < left) break;
    add_attention(s, a, depth + at->token, n, n == left, &part[HR_PART_ATTENTION]);
    rows += n;
    ends += n == left;
    *at = n == left ? (cursor){at->sequence + 1, 0} : (cursor){at->sequence, at->token + n};
  }
  add_matrices(t, a, rows, ends, part);
  part[HR_PART_WAIT].barriers += least_barriers(t, ends || needs_all(&t->description, a));
}

void bench_work_by_part(const hr_session *s, const bench_amount *a, bench_work part[HR_PARTS]) {
  size_t calls = a->prompt ? 1 : a->tokens, tokens = a->prompt ? a->tokens : 1;
  memset(part, 0, HR_PARTS * sizeof *part);
  for (size_t i = 0; i < calls; i++)
    for (cursor at = {0}; at.sequence < a->batch;)
      add_pass(s, a, a->depth + i * tokens, tokens, &at, part);
}

void bench_work_add(bench_work *to, const bench_work *more) {
  to->int8_macs += more->int8_macs;
  to->float_macs += more->float_macs;
  to->attend_macs += more->attend_macs;
  to->bytes += more->bytes;
  to->barriers += more->barriers;
}

bench_work bench_work_of(const hr_session *s, const bench_amount *amount) {
  bench_work part[HR_PARTS], sum = {0};
  bench_work_by_part(s, amount, part);
  for (int i = 0; i < HR_PARTS; i++) bench_work_add(&sum, &part[i]);
  return sum;
}

/* Seconds for an amount at the best rate seen; 0 when there is no rate. */
static double at_best(const bench_limits *l, bench_limit which, double amount) {
  double best = bench_limit_best(l, which);
  return best > 0 ? amount / best : 0;
}

/* What attention takes beside its multiply-adds, about: the wider its heads are, the fewer
 * exponentials belong to as many of them. */
static double beside_attention(const bench_test *t, const bench_limits *l, double macs) {
  uint32_t width = t->place->model->loaded.transformer.description.head_width;
  double more = at_best(l, BENCH_ATTEND, 2 * macs) - at_best(l, BENCH_FP32, 2 * macs);
  return more > 0 ? more * PERF_ATTEND_WIDTH / width : 0;
}

bench_bound bench_bound_of(const bench_test *test, const bench_work *w) {
  const bench_limits *l = bench_limits_for(test->place, bench_test_many(test));
  double read = at_best(l, BENCH_READ, w->bytes);
  double int8 = at_best(l, BENCH_INT8, 2 * w->int8_macs);
  double fp32 = at_best(l, BENCH_FP32, 2 * w->float_macs);
  double barriers = at_best(l, BENCH_BARRIER, w->barriers);
  if (!test->place->peaks && bench_test_many(test))
    return (bench_bound){0, "this kernel tier has no peak to compare with", 0, false};
  if (barriers > read && barriers > int8 + fp32)
    return (bench_bound){barriers, "barrier", 0, true};
  if (read >= int8 + fp32) return (bench_bound){read, "read", 0, true};
  double products = w->int8_macs > 0 ? at_best(l, BENCH_FORM, 2 * w->int8_macs) : 0;
  double form = products + fp32 + beside_attention(test, l, w->attend_macs);
  bool known = bench_limit_best(l, BENCH_ATTEND) > 0;
  return (bench_bound){int8 + fp32, int8 >= fp32 ? "int8" : "fp32", known ? form : 0, false};
}
