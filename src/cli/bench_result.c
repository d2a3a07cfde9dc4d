/* SPDX-License-Identifier: MIT
 * From samples to numbers. */
#include <stdlib.h>

#include "bench.h"

bool bench_statistics_of(const double *samples, size_t count, double scale, cli_statistics *to) {
  double *copy = calloc(count ? count : 1, sizeof *copy);
  if (!copy) return false;
  for (size_t i = 0; i < count; i++) copy[i] = scale > 0 ? scale / samples[i] : samples[i];
  *to = cli_statistics_of(copy, count);
  free(copy);
  return true;
}

/* All samples or none: a part of them would be no fair mean. */
static bool joules_of(const bench *b, const bench_test *t, cli_statistics *to) {
  double *each = calloc(t->count ? t->count : 1, sizeof *each);
  if (!each) return false;
  bool known = t->count > 0;
  for (size_t i = 0; i < t->count; i++) {
    each[i] = bench_joules(b, t, i) / (double)bench_test_tokens(t);
    known = known && each[i] >= 0;
  }
  *to = known ? cli_statistics_of(each, t->count) : (cli_statistics){0};
  free(each);
  return true;
}

/* The share of plain reading that the tokens reached in the median of the samples, or, by steps,
 * of reading the weights with a token's barriers between, and plainly what else they read. */
static bool share_of_reading(const bench_test *t, bool by_steps, double *percent) {
  const bench_limits *l = bench_limits_for(t->place, bench_test_many(t));
  double weights = by_steps ? bench_limits_bytes(l) * (double)t->amount.tokens : 0;
  double *each = calloc(t->count ? t->count : 1, sizeof *each);
  size_t known = 0;
  *percent = -1;
  if (!each) return false;
  for (size_t i = 0; i < t->count; i++)
    if (t->reading[i] > 0 && (!by_steps || t->steps[i] > 0)) {
      double seconds = (t->work.bytes - weights) / t->reading[i];
      if (by_steps) seconds += weights / t->steps[i];
      each[known++] = 100 * seconds / t->seconds[i];
    }
  if (known) *percent = cli_statistics_of(each, known).median;
  free(each);
  return true;
}

bool bench_result_of(const bench *b, const bench_test *t, bench_result *r) {
  char text[CLI_SENSOR_TEXT];
  *r = (bench_result){.bound = bench_bound_of(t, &t->work), .percent = -1, .of_form = -1};
  if (!bench_statistics_of(t->seconds, t->count, 0, &r->seconds) ||
      !bench_statistics_of(t->seconds, t->count, (double)bench_test_tokens(t), &r->rate) ||
      !bench_statistics_of(t->first, t->count, 0, &r->first) || !joules_of(b, t, &r->joules) ||
      !share_of_reading(t, false, &r->of_reading) ||
      (r->bound.reads && !share_of_reading(t, true, &r->of_form)))
    return false;
  if (r->bound.seconds > 0 && r->seconds.median > 0)
    r->percent = 100 * r->bound.seconds / r->seconds.median;
  if (r->bound.form_seconds > 0 && r->seconds.median > 0)
    r->of_form = 100 * r->bound.form_seconds / r->seconds.median;
  r->valid = r->percent >= 0 && r->percent <= 100;
  for (size_t i = 0; i < t->count; i++) r->disturbed += *bench_disturbance(b, t, i, text) != '\0';
  return true;
}

static bool is_same(const bench_test *a, const bench_test *b) {
  const bench_amount *x = &a->amount, *y = &b->amount;
  return a->place->model == b->place->model && x->prompt == y->prompt && x->tokens == y->tokens &&
         x->depth == y->depth && x->batch == y->batch;
}

size_t bench_alone_bytes(const bench *b, const bench_place *place) {
  double others = 0, own = (double)bench_own_bytes(b);
  for (size_t i = 0; i < b->places; i++) {
    if (b->place[i].resident < 0) return 0;
    if (&b->place[i] != place) others += b->place[i].resident;
  }
  if (!b->peak_bytes || !b->loading_bytes) return 0;
  double image = (double)b->image.bytes; /* is there while loading, the buffer is not yet */
  double loading = (double)b->loading_bytes - image, all = (double)b->peak_bytes - own - others;
  double most = all > loading ? all : loading;
  return most > 0 ? (size_t)most : 0;
}

double bench_median_rate(const bench *b, const bench_test *t) {
  bench_result r;
  return bench_result_of(b, t, &r) ? r.rate.median : 0;
}

/* Keeps the tests in the order of their threads, each number once. */
static void insert(bench_scaling *s, const bench_test *t, double rate) {
  size_t at = s->count;
  if (at == sizeof s->test / sizeof *s->test) return;
  for (size_t i = 0; i < s->count; i++)
    if (bench_test_threads(s->test[i]) == bench_test_threads(t)) return;
  for (; at > 0 && bench_test_threads(s->test[at - 1]) > bench_test_threads(t); at--) {
    s->test[at] = s->test[at - 1];
    s->rate[at] = s->rate[at - 1];
  }
  s->test[at] = t;
  s->rate[at] = rate;
  s->count++;
}

/* Whether as many threads work as were asked for: a pass takes no more than there are CPUs. */
static bool all_work(const bench_test *t) {
  return hr_session_active(t->place->session, bench_test_many(t)) >= bench_test_threads(t);
}

bool bench_scaling_of(const bench *b, const bench_test *first, bench_scaling *s) {
  const double enough = 0.95; /* of the best rate */
  *s = (bench_scaling){0};
  for (const bench_test *t = b->test; t < first; t++)
    if (is_same(t, first)) return false;
  for (const bench_test *t = first; t < b->test + b->tests; t++)
    if (is_same(t, first) && all_work(t)) insert(s, t, bench_median_rate(b, t));
  double best = 0;
  for (size_t i = 0; i < s->count; i++)
    if (s->rate[i] > best) best = s->rate[i];
  while (s->knee < s->count && s->rate[s->knee] < enough * best) s->knee++;
  return s->count > 1 && s->knee < s->count;
}
