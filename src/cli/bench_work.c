/* SPDX-License-Identifier: MIT
 * How much there is to do in a test, and how quickly a machine with such limits
 * can have done it. */
#include "bench.h"

/* Of one pass: the layers' matrices take every row, the head only the last. */
typedef struct pass_work {
  bench_work row;  /* multiply-adds for each row; no bytes */
  bench_work head; /* the head for one row */
  double bytes;    /* weights of the layers, read once a pass */
} pass_work;

static void add_matrix(const hr_matrix *m, bench_work *macs, double *bytes) {
  if (!m->panels) return;
  double n = (double)m->n * (double)m->k;
  *(m->type == HR_PANEL_Q8 ? &macs->int8_macs : &macs->float_macs) += n;
  *bytes += (double)(hr_round_up(m->n, HR_PANEL_ROWS) / HR_PANEL_ROWS) *
            (double)hr_panel_bytes(m->type, m->k);
}

static pass_work pass_work_of(const hr_transformer *t) {
  pass_work w = {0};
  for (uint32_t i = 0; i < t->description.layers; i++) {
    const hr_layer *l = &t->layer[i];
    const hr_matrix *all[] = {&l->query, &l->key, &l->value, &l->output,
                              &l->gate,  &l->up,  &l->down};
    for (size_t j = 0; j < sizeof all / sizeof *all; j++) add_matrix(all[j], &w.row, &w.bytes);
  }
  add_matrix(&t->head, &w.head, &w.head.bytes);
  return w;
}

/* Keys that the row at a position sees. */
static size_t visible(const hr_description *d, size_t position) {
  size_t keys = position + 1;
  return d->window && keys > d->window ? d->window : keys;
}

/* Scores and weighted sums: a multiply-add for each column of a key and of a value. */
static void add_attention(const hr_session *s, size_t start, size_t rows, bench_work *work) {
  const hr_description *d = &s->model->loaded.transformer.description;
  double heads = (double)d->heads * (double)d->layers * 2 * (double)d->head_width;
  for (size_t i = 0; i < rows; i++) work->float_macs += (double)visible(d, start + i) * heads;
  double position = (double)(s->cache.key_bytes + s->cache.value_bytes) /
                    (double)s->cache.capacity * (double)d->kv_heads * (double)d->layers;
  work->bytes += (double)visible(d, start + rows - 1) * position;
}

bench_work bench_work_of(const hr_session *s, size_t depth, size_t count, size_t rows) {
  pass_work pass = pass_work_of(&s->model->loaded.transformer);
  bench_work work = {0};
  for (size_t done = 0; done < count;) {
    size_t n = count - done < rows ? count - done : rows;
    bool head = rows == 1 || done + n == count;
    work.int8_macs += pass.row.int8_macs * (double)n + (head ? pass.head.int8_macs : 0);
    work.float_macs += pass.row.float_macs * (double)n + (head ? pass.head.float_macs : 0);
    work.bytes += pass.bytes + (head ? pass.head.bytes : 0);
    add_attention(s, depth + done, n, &work);
    done += n;
  }
  return work;
}

/* Seconds for an amount at the best rate seen; 0 when there is no rate. */
static double at_best(const bench_limits *l, bench_limit which, double amount) {
  double best = bench_limit_best(l, which);
  return best > 0 ? amount / best : 0;
}

bench_bound bench_bound_of(const bench_test *test) {
  const bench_limits *l = bench_limits_for(test->place, test->prompt);
  const bench_work *w = &test->work;
  double read = at_best(l, BENCH_READ, w->bytes);
  double int8 = at_best(l, BENCH_INT8, 2 * w->int8_macs);
  double fp32 = at_best(l, BENCH_FP32, 2 * w->float_macs);
  if (!test->place->peaks && test->prompt)
    return (bench_bound){0, "this kernel tier has no peak to compare with"};
  if (read >= int8 + fp32) return (bench_bound){read, "read"};
  return (bench_bound){int8 + fp32, int8 >= fp32 ? "int8" : "fp32"};
}
