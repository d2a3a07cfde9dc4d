/* SPDX-License-Identifier: MIT
 * Samples: what is timed, in which order, and what disturbed it. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "bench.h"

static int failed(const bench_test *t, const hr_error *err) {
  char name[64];
  return cli_fail_error(bench_test_name(t, name), err);
}

/* Brings the cache to a depth; what is there from the test before stays. */
static int fill(const bench *b, const bench_test *t) {
  bench_place *p = t->place;
  hr_error err;
  size_t have = p->filled < t->depth ? p->filled : t->depth;
  if (hr_session_rewind(p->session, have, &err) != HR_OK) return failed(t, &err);
  p->filled = have;
  if (have < t->depth && hr_session_eval(p->session, b->ids + have, t->depth - have,
                                         HR_LOGITS_NONE, &err) != HR_OK)
    return failed(t, &err);
  p->filled = t->depth;
  return HR_OK;
}

static int32_t pick(const bench *b, const bench_test *t, hr_error *err) {
  int32_t id = hr_sampler_pick(b->sampler, hr_session_logits(t->place->session, 0), err);
  if (id >= 0) hr_sampler_accept(b->sampler, id);
  return id;
}

/* What an encoder gives of a text is its hidden states. */
static hr_status evaluate(const bench *b, const bench_test *t, hr_error *err) {
  hr_session *session = t->place->session;
  const hr_tokens text = {.ids = b->ids + t->depth, .count = t->tokens};
  return hr_model_has_logits(b->model)
             ? hr_session_eval(session, text.ids, text.count, HR_LOGITS_LAST, err)
             : hr_session_encode(session, &text, 1, err);
}

static int run_prompt(const bench *b, const bench_test *t, double *seconds, double *first) {
  hr_error err;
  double start = cli_now();
  if (evaluate(b, t, &err) != HR_OK) return failed(t, &err);
  double middle = cli_now();
  if (hr_model_has_logits(b->model) && pick(b, t, &err) < 0) return failed(t, &err);
  *first = cli_now() - start;
  *seconds = middle - start;
  t->place->filled = t->depth + t->tokens;
  return HR_OK;
}

/* Each token is the one picked after the one before. */
static int run_generation(const bench *b, const bench_test *t, double *seconds) {
  hr_error err;
  int32_t id = b->ids[t->depth];
  double start = cli_now();
  for (size_t i = 0; i < t->tokens; i++) {
    if (cli_interrupted()) return HR_ERROR_CANCELLED;
    if (hr_session_eval(t->place->session, &id, 1, HR_LOGITS_LAST, &err) != HR_OK)
      return failed(t, &err);
    id = pick(b, t, &err);
    if (id < 0) return failed(t, &err);
  }
  *seconds = cli_now() - start;
  return HR_OK;
}

/* The first test that has a digest and does the same. */
static const bench_test *same_test(const bench *b, const bench_test *t) {
  for (size_t i = 0; i < b->tests; i++) {
    const bench_test *o = &b->test[i];
    if (o->has_digest && o->prompt == t->prompt && o->tokens == t->tokens && o->depth == t->depth)
      return o;
  }
  return NULL;
}

/* A speed says nothing when the results differ: no rate is reported then. */
static int check_digest(const bench *b, bench_test *t) {
  enum { DIFFERS = 1 };
  const bench_place *p = t->place;
  char name[64];
  uint64_t digest = hr_model_has_logits(b->model)
                        ? hr_digest(HR_DIGEST_INIT, hr_session_logits(p->session, 0),
                                    hr_model_vocab_size(b->model))
                        : hr_digest(HR_DIGEST_INIT, hr_session_hidden(p->session, 0, 0),
                                    t->tokens * hr_model_width(b->model));
  const bench_test *o = same_test(b, t);
  if (o && o->digest != digest)
    return cli_fail((hr_status)DIFFERS,
                    "%s: digest %d-%016" PRIx64 " with %s and %u threads, expected %d-%016" PRIx64
                    " as with %s and %u threads; no rate is reported",
                    bench_test_name(t, name), HR_ARITHMETIC, digest, p->model->kernels.isa,
                    hr_session_threads(p->session), HR_ARITHMETIC, o->digest,
                    o->place->model->kernels.isa, hr_session_threads(o->place->session));
  t->digest = digest;
  t->has_digest = true;
  return HR_OK;
}

static void read_state(const bench *b, const bench_place *p, cli_state *state) {
  struct rusage usage;
  cli_sensors_read(b->sensors, p->pinned ? &p->cpus : NULL, state);
  state->time = cli_now();
  if (getrusage(RUSAGE_SELF, &usage) != 0) return;
  const struct timeval *parts[] = {&usage.ru_utime, &usage.ru_stime};
  for (size_t i = 0; i < 2; i++)
    state->own_seconds += (double)parts[i]->tv_sec + (double)parts[i]->tv_usec * 1e-6;
  state->switches = usage.ru_nivcsw;
}

static int run_test(bench *b, bench_test *t, bool keep) {
  double seconds = 0, first = 0;
  cli_state state[2];
  int status = fill(b, t);
  read_state(b, t->place, &state[0]);
  bench_profile_start(t);
  if (status == HR_OK)
    status = t->prompt ? run_prompt(b, t, &seconds, &first) : run_generation(b, t, &seconds);
  bench_profile_stop(t, seconds, keep);
  read_state(b, t->place, &state[1]);
  if (state[1].mhz > b->best_mhz) b->best_mhz = state[1].mhz;
  if (status == HR_OK) status = check_digest(b, t);
  if (status != HR_OK || !keep) return status;
  memcpy(t->state[t->count], state, sizeof state);
  /* a clock that stood still would make an infinite rate */
  t->seconds[t->count] = seconds > 1e-9 ? seconds : 1e-9;
  t->first[t->count++] = first > 1e-9 ? first : 1e-9;
  return HR_OK;
}

/* Every place: its limits, then its tests. */
static int run_round(bench *b, bool keep, cli_progress *progress, double *done) {
  const bench_place *last = NULL;
  double step = 1.0 / (double)(b->tests * (b->set.repeat.value + 1));
  for (size_t i = 0; i < b->tests; i++) {
    bench_test *t = &b->test[i];
    int status = HR_OK;
    if (keep && t->place != last) status = bench_limits_sample(&b->buffer, t->place);
    last = t->place;
    if (status == HR_OK) status = run_test(b, t, keep);
    if (status != HR_OK) return status;
    *done += step;
    if (!cli_report_progress(progress, *done)) return HR_ERROR_CANCELLED;
  }
  return HR_OK;
}

static int run_rounds(bench *b) {
  bool show;
  cli_progress progress = bench_progress(b, "measuring", &show);
  double done = 0;
  int status = run_round(b, false, show ? &progress : NULL, &done);
  for (uint64_t r = 0; status == HR_OK && r < b->set.repeat.value; r++)
    status = run_round(b, true, show ? &progress : NULL, &done);
  cli_end_progress(&progress);
  b->peak_bytes = bench_memory("/proc/self/status", "VmHWM");
  return status;
}

/* Other work on the machine shows in the limits, which should not move. */
static void warn_of_limits(bench *b) {
  static const char *const names[] = {"read", "int8", "fp32"};
  for (size_t p = 0; p < b->places; p++)
    for (size_t j = 0; j < 2; j++) {
      const bench_limits *l = &b->place[p].limits[j];
      for (int i = 0; i < BENCH_BARRIER; i++) { /* which moves by itself */
        double best = bench_limit_best(l, (bench_limit)i), least = best;
        for (size_t k = 0; k < l->count; k++)
          if (l->value[i][k] < least) least = l->value[i][k];
        if (least < 0.8 * best)
          bench_warn(b, "a busy machine: limit '%s' of %u threads fell to %.0f %% of its best",
                     names[i], l->threads, 100 * least / best);
      }
    }
}

unsigned bench_test_threads(const bench_test *t) {
  return t->prompt ? hr_session_threads_batch(t->place->session)
                   : hr_session_threads(t->place->session);
}

const char *bench_disturbance(const bench *b, const bench_test *t, size_t sample,
                              char text[CLI_SENSOR_TEXT]) {
  return cli_disturbance(&t->state[sample][0], &t->state[sample][1], bench_test_threads(t), b->cpus,
                         b->best_mhz, text);
}

double bench_joules(const bench *b, const bench_test *t, size_t sample) {
  return cli_sensors_joules(b->sensors, &t->state[sample][0], &t->state[sample][1]);
}

/* One line for each test: the samples stay, and are marked. */
static void warn_of_samples(bench *b) {
  for (size_t i = 0; i < b->tests; i++) {
    const bench_test *t = &b->test[i];
    char name[64], text[CLI_SENSOR_TEXT], example[CLI_SENSOR_TEXT] = "";
    size_t disturbed = 0;
    for (size_t j = 0; j < t->count; j++)
      if (*bench_disturbance(b, t, j, text)) {
        if (!disturbed++) memcpy(example, text, sizeof example);
      }
    if (disturbed)
      bench_warn(b, "%s, threads: %u, %s: %zu of %zu samples were disturbed, such as: %.100s",
                 bench_test_name(t, name), bench_test_threads(t), t->place->model->kernels.isa,
                 disturbed, t->count, example);
  }
}

int bench_measure(bench *b) {
  const uint64_t enough = 5;
  int status = run_rounds(b);
  if (status != HR_OK) return status;
  warn_of_limits(b);
  warn_of_samples(b);
  if (b->set.repeat.value < enough)
    bench_warn(b, "fewer than %" PRIu64 " samples: what they say of the spread is little", enough);
  return HR_OK;
}
