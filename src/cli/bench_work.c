/* SPDX-License-Identifier: MIT
 * How much there is to do in a test, and how quickly a machine with such limits
 * can have done it. */
#include <string.h>

#include "bench.h"

/* One matrix in a pass of some rows: its weights are read once. */
static void add_matrix(const hr_matrix *m, size_t rows, bench_work *work) {
  if (!m->panels) return;
  double macs = (double)m->n * (double)m->k * (double)rows;
  *(m->type == HR_PANEL_Q8 ? &work->int8_macs : &work->float_macs) += macs;
  work->bytes += (double)(hr_round_up(m->n, HR_PANEL_ROWS) / HR_PANEL_ROWS) *
                 (double)hr_panel_bytes(m->type, m->k);
}

/* The layers' matrices take every row, the head only the last. */
static void add_matrices(const hr_transformer *t, size_t rows, bool head, bench_work *part) {
  for (uint32_t i = 0; i < t->description.layers; i++) {
    const hr_layer *l = &t->layer[i];
    add_matrix(&l->query, rows, &part[HR_PART_QKV]);
    add_matrix(&l->key, rows, &part[HR_PART_QKV]);
    add_matrix(&l->value, rows, &part[HR_PART_QKV]);
    add_matrix(&l->output, rows, &part[HR_PART_OUTPUT]);
    add_matrix(&l->gate, rows, &part[HR_PART_UP]);
    add_matrix(&l->up, rows, &part[HR_PART_UP]);
    add_matrix(&l->down, rows, &part[HR_PART_DOWN]);
  }
  if (head) add_matrix(&t->head, 1, &part[HR_PART_HEAD]);
}

/* Keys that the row at a position sees in a layer, of so many that there are. */
static size_t visible(const hr_description *d, uint32_t layer, size_t position, size_t there) {
  size_t window = hr_layer_window(d, layer);
  size_t keys = d->mask == HR_MASK_FULL ? there : position + 1;
  return window && keys > window ? window : keys;
}

/* Scores and weighted sums: a multiply-add for each column of a key and of a value. */
static void add_attention(const hr_session *s, size_t start, size_t rows, bench_work *work) {
  const hr_description *d = &s->model->loaded.transformer.description;
  double heads = (double)d->heads * 2 * (double)d->head_width;
  double position = (double)(s->cache.key_bytes + s->cache.value_bytes) /
                    (double)s->cache.capacity * (double)d->kv_heads;
  for (uint32_t l = 0; l < d->layers; l++) {
    for (size_t i = 0; i < rows; i++)
      work->float_macs += (double)visible(d, l, start + i, start + rows) * heads;
    work->bytes += (double)visible(d, l, start + rows - 1, start + rows) * position;
  }
}

/* Of one pass: one row that sees few keys has no more. */
static double least_barriers(const hr_transformer *t) {
  const double each_layer = 5, each_pass = 2; /* the end of the pass is one */
  return each_layer * t->description.layers + each_pass;
}

void bench_work_by_part(const hr_session *s, size_t depth, size_t count, size_t rows,
                        bench_work part[HR_PARTS]) {
  memset(part, 0, HR_PARTS * sizeof *part);
  for (size_t done = 0; done < count;) {
    size_t n = count - done < rows ? count - done : rows;
    add_matrices(&s->model->loaded.transformer, n, rows == 1 || done + n == count, part);
    add_attention(s, depth + done, n, &part[HR_PART_ATTENTION]);
    part[HR_PART_WAIT].barriers += least_barriers(&s->model->loaded.transformer);
    done += n;
  }
}

bench_work bench_work_of(const hr_session *s, size_t depth, size_t count, size_t rows) {
  bench_work part[HR_PARTS], sum = {0};
  bench_work_by_part(s, depth, count, rows, part);
  for (int i = 0; i < HR_PARTS; i++) {
    sum.int8_macs += part[i].int8_macs;
    sum.float_macs += part[i].float_macs;
    sum.bytes += part[i].bytes;
    sum.barriers += part[i].barriers;
  }
  return sum;
}

/* Seconds for an amount at the best rate seen; 0 when there is no rate. */
static double at_best(const bench_limits *l, bench_limit which, double amount) {
  double best = bench_limit_best(l, which);
  return best > 0 ? amount / best : 0;
}

bench_bound bench_bound_of(const bench_test *test, const bench_work *w) {
  const bench_limits *l = bench_limits_for(test->place, test->prompt);
  double read = at_best(l, BENCH_READ, w->bytes);
  double int8 = at_best(l, BENCH_INT8, 2 * w->int8_macs);
  double fp32 = at_best(l, BENCH_FP32, 2 * w->float_macs);
  double barriers = at_best(l, BENCH_BARRIER, w->barriers);
  if (!test->place->peaks && test->prompt)
    return (bench_bound){0, "this kernel tier has no peak to compare with"};
  if (barriers > read && barriers > int8 + fp32) return (bench_bound){barriers, "barrier"};
  if (read >= int8 + fp32) return (bench_bound){read, "read"};
  return (bench_bound){int8 + fp32, int8 >= fp32 ? "int8" : "fp32"};
}
