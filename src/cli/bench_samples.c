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

bool bench_report_progress(void *data, double done) {
  const bench *b = data;
  return cli_report_progress(b->progress.shown, b->progress.from + b->progress.size * done);
}

/* Ids of a sequence: each begins one place further on, so that no two are alike. */
static const int32_t *ids_of(const bench *b, size_t sequence) {
  return b->ids + sequence;
}

/* What the pieces hold, with logits of their last tokens or none. */
static hr_status call(const bench *b, const bench_test *t, size_t pieces, hr_logits_rows rows,
                      hr_error *err) {
  hr_session *session = t->place->session;
  return pieces == 1 && b->piece[0].sequence == 0
             ? hr_session_eval(session, b->piece[0].ids, b->piece[0].count, rows, err)
             : hr_session_eval_batch(session, b->piece, pieces, rows, err);
}

/* Brings the caches to a depth; what is there from the test before stays. */
static int fill(const bench *b, const bench_test *t) {
  bench_place *p = t->place;
  hr_error err;
  size_t depth = t->amount.depth, pieces = 0;
  for (size_t i = 0; i < t->amount.batch; i++) {
    size_t have = p->filled[i] < depth ? p->filled[i] : depth;
    if (hr_session_rewind_sequence(p->session, i, have, &err) != HR_OK) return failed(t, &err);
    if (have < depth) b->piece[pieces++] = (hr_batch_piece){i, ids_of(b, i) + have, depth - have};
    p->filled[i] = have;
  }
  if (pieces && call(b, t, pieces, HR_LOGITS_NONE, &err) != HR_OK) return failed(t, &err);
  for (size_t i = 0; i < t->amount.batch; i++) p->filled[i] = depth;
  return HR_OK;
}

/* The logits of a sequence's last token. */
static const float *last_logits(const bench_test *t, size_t sequence) {
  size_t row = t->amount.all_rows ? (sequence + 1) * t->amount.tokens - 1 : sequence;
  return hr_session_logits(t->place->session, row);
}

/* The likeliest token of each sequence. */
static bool pick(const bench *b, const bench_test *t, hr_error *err) {
  for (size_t i = 0; i < t->amount.batch; i++) {
    b->next[i] = hr_sampler_pick(b->sampler, last_logits(t, i), err);
    if (b->next[i] < 0) return false;
    hr_sampler_accept(b->sampler, b->next[i]);
  }
  return true;
}

/* What an encoder gives of texts is their hidden states. */
static hr_status encode(const bench *b, const bench_test *t, hr_error *err) {
  for (size_t i = 0; i < t->amount.batch; i++)
    b->text[i] = (hr_tokens){.ids = ids_of(b, i), .count = t->amount.tokens};
  return hr_session_encode(t->place->session, b->text, t->amount.batch, err);
}

static hr_status evaluate(const bench *b, const bench_test *t, hr_error *err) {
  for (size_t i = 0; i < t->amount.batch; i++)
    b->piece[i] = (hr_batch_piece){i, ids_of(b, i) + t->amount.depth, t->amount.tokens};
  hr_logits_rows rows = t->amount.all_rows ? HR_LOGITS_ALL : HR_LOGITS_LAST;
  return hr_model_has_logits(b->model) ? call(b, t, t->amount.batch, rows, err)
                                       : encode(b, t, err);
}

static int run_prompt(const bench *b, const bench_test *t, double *seconds, double *first) {
  hr_error err;
  double start = cli_now();
  if (evaluate(b, t, &err) != HR_OK) return failed(t, &err);
  double middle = cli_now();
  if (hr_model_has_logits(b->model) && !pick(b, t, &err)) return failed(t, &err);
  *first = cli_now() - start;
  *seconds = middle - start;
  for (size_t i = 0; i < t->amount.batch; i++)
    t->place->filled[i] = t->amount.depth + t->amount.tokens;
  return HR_OK;
}

/* A block takes microseconds: the sample is the mean of many passes. */
static int run_block(const bench *b, bench_test *t, double *seconds, double *first) {
  double sum = 0, all = 0;
  for (size_t i = 0; i < t->passes; i++) {
    int status = i ? fill(b, t) : HR_OK;
    if (status == HR_OK) status = run_prompt(b, t, seconds, first);
    if (status != HR_OK) return status;
    sum += *seconds;
    all += *first;
  }
  *seconds = sum / (double)t->passes;
  *first = all / (double)t->passes;
  return HR_OK;
}

/* So many that a sample takes a while, by how long the first one took. */
static size_t passes_for(double seconds) {
  const double enough = 20e-3;
  const size_t most = 1000;
  return seconds * (double)most > enough ? (size_t)(enough / seconds) + 1 : most;
}

/* One token for each sequence, after the ones picked before. */
static int generate(bench *b, const bench_test *t) {
  hr_error err;
  size_t batch = t->amount.batch;
  for (size_t q = 0; q < batch; q++) b->piece[q] = (hr_batch_piece){q, &b->next[q], 1};
  return call(b, t, batch, HR_LOGITS_LAST, &err) == HR_OK && pick(b, t, &err) ? HR_OK
                                                                              : failed(t, &err);
}

/* The weights plainly read, between tokens: a machine whose memory is now fast, now
 * slow is so for both. */
typedef struct turns {
  double rate, steps; /* the sums of count windows */
  size_t count;
} turns;

static int read_in_turn(const bench_test *t, turns *so_far) {
  const double window = 5e-3; /* seconds */
  const bench_limits *l = bench_limits_for(t->place, bench_test_many(t));
  hr_error err = {.status = HR_OK};
  hr_team *team = t->place->session->team;
  so_far->rate += bench_rate_of_reading_so(team, l->active, &l->weights, window, l->way, &err);
  so_far->steps += bench_rate_of_steps(team, l->active, &l->weights, window, l->steps_way, &err);
  if (err.status != HR_OK) return cli_fail_error("limits", &err);
  so_far->count++;
  return HR_OK;
}

/* *seconds are those of the tokens; so_far stays as it is unless read. */
static int run_generation(bench *b, const bench_test *t, bool read, double *seconds,
                          turns *so_far) {
  const double enough = 20e-3; /* seconds of tokens between two windows of reading */
  int status = HR_OK;
  for (size_t i = 0; i < t->amount.batch; i++) b->next[i] = ids_of(b, i)[t->amount.depth];
  for (size_t i = 0; status == HR_OK && i < t->amount.tokens;) {
    double start = cli_now(), spent = 0;
    while (status == HR_OK && i < t->amount.tokens && spent < enough) {
      if (!bench_report_progress(b, (double)i++ / (double)t->amount.tokens))
        return HR_ERROR_CANCELLED;
      status = generate(b, t);
      spent = cli_now() - start;
    }
    *seconds += spent;
    if (status == HR_OK && read) status = read_in_turn(t, so_far);
  }
  return status;
}

/* --- Digests ----------------------------------------------------------------------- */

/* Of what a sequence ended in. */
static uint64_t add_digest(const bench *b, const bench_test *t, size_t sequence, uint64_t digest) {
  const hr_session *s = t->place->session;
  return hr_model_has_logits(b->model)
             ? hr_digest(digest, last_logits(t, sequence), hr_model_vocab_size(b->model))
             : hr_digest(digest, hr_session_hidden(s, sequence, 0),
                         t->amount.tokens * hr_model_width(b->model));
}

/* A test that has digests and whose sequences do the same; with all, as many of them. */
static const bench_test *same_test(const bench *b, const bench_test *t, bool all) {
  const bench_amount *x = &t->amount;
  for (size_t i = 0; i < b->tests; i++) {
    const bench_amount *y = &b->test[i].amount;
    if (b->test[i].has_digest && y->prompt == x->prompt && y->tokens == x->tokens &&
        y->depth == x->depth && (!all || y->batch == x->batch))
      return &b->test[i];
  }
  return NULL;
}

/* A speed says nothing when the results differ: no rate is reported then. The first
 * sequence of a batch must have the logits that it has alone. */
static int check_digest(const bench *b, bench_test *t, bool all, uint64_t digest) {
  enum { DIFFERS = 1 };
  const bench_test *o = same_test(b, t, all);
  char name[64];
  uint64_t expected = o ? (all ? o->digest : o->first_digest) : digest;
  if (digest == expected) return HR_OK;
  return cli_fail((hr_status)DIFFERS,
                  "%s: digest %d-%016" PRIx64 " with %s and %u threads, expected %d-%016" PRIx64
                  " as with %s, %u threads and batch %zu; no rate is reported",
                  bench_test_name(t, name), HR_ARITHMETIC, digest, t->place->model->kernels.isa,
                  bench_test_threads(t), HR_ARITHMETIC, expected, o->place->model->kernels.isa,
                  bench_test_threads(o), o->amount.batch);
}

static int note_digest(const bench *b, bench_test *t) {
  uint64_t first = add_digest(b, t, 0, HR_DIGEST_INIT), digest = first;
  for (size_t i = 1; i < t->amount.batch; i++) digest = add_digest(b, t, i, digest);
  int status = check_digest(b, t, false, first);
  if (status == HR_OK) status = check_digest(b, t, true, digest);
  t->first_digest = first;
  t->digest = digest;
  t->has_digest = true;
  return status;
}

/* --- Samples ----------------------------------------------------------------------- */

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

/* Filling and the test itself have half of the progress each. */
static int fill_at_half(bench *b, const bench_test *t) {
  b->progress.size /= 2;
  int status = fill(b, t);
  b->progress.from += b->progress.size;
  return status;
}

static int run_test(bench *b, bench_test *t, bool keep) {
  double seconds = 0, first = 0;
  turns read = {0};
  cli_state state[2];
  int status = fill_at_half(b, t);
  read_state(b, t->place, &state[0]);
  bench_profile_start(t);
  if (status == HR_OK)
    status = b->set.block       ? run_block(b, t, &seconds, &first)
             : t->amount.prompt ? run_prompt(b, t, &seconds, &first)
                                : run_generation(b, t, keep, &seconds, &read);
  bench_profile_stop(t, seconds * (double)t->passes, keep);
  if (b->set.block && !keep) t->passes = passes_for(seconds);
  read_state(b, t->place, &state[1]);
  if (state[1].mhz > b->best_mhz) b->best_mhz = state[1].mhz;
  if (state[1].mhz > t->place->best_mhz) t->place->best_mhz = state[1].mhz;
  if (status == HR_OK) status = note_digest(b, t);
  if (status != HR_OK || !keep) return status;
  memcpy(t->state[t->count], state, sizeof state);
  if (read.count) t->reading[t->count] = read.rate / (double)read.count;
  if (read.count) t->steps[t->count] = read.steps / (double)read.count;
  /* a clock that stood still would make an infinite rate */
  t->seconds[t->count] = seconds > 1e-9 ? seconds : 1e-9;
  t->first[t->count++] = first > 1e-9 ? first : 1e-9;
  return HR_OK;
}

/* What came into memory with a place's first pass of its tests, which lie side by side. */
static void note_resident(bench_place *p, double before) {
  double after = bench_resident();
  if (before < 0 || after < 0 || p->resident < 0)
    p->resident = -1;
  else if (after > before)
    p->resident += after - before;
}

/* Every place: its limits, then its tests. Round 0 warms up. */
static int run_round(bench *b, uint64_t round) {
  const bench_place *last = NULL;
  bool keep = round > 0;
  double step = 1.0 / (double)(b->tests * (b->set.repeat.value + 1));
  for (size_t i = 0; i < b->tests; i++) {
    bench_test *t = &b->test[i];
    int status = HR_OK;
    b->progress.from = step * (double)(round * b->tests + i);
    b->progress.size = step;
    if (!bench_report_progress(b, 0)) return HR_ERROR_CANCELLED;
    if (keep && t->place != last) status = bench_limits_sample(t->place);
    last = t->place;
    double before = keep ? 0 : bench_resident();
    if (status == HR_OK) status = run_test(b, t, keep);
    if (status != HR_OK) return status;
    if (!keep) note_resident(t->place, before);
  }
  return HR_OK;
}

static int run_rounds(bench *b) {
  bool show;
  cli_progress progress = bench_progress(b, "measuring", &show);
  int status = HR_OK;
  b->progress.shown = show ? &progress : NULL;
  for (uint64_t r = 0; status == HR_OK && r <= b->set.repeat.value; r++) status = run_round(b, r);
  b->progress.shown = NULL;
  cli_end_progress(&progress);
  b->peak_bytes = bench_memory("/proc/self/status", "VmHWM");
  return status;
}

/* Other work on the machine shows in the limits, which should not move. */
static void warn_of_limits(bench *b) {
  static const char *const names[BENCH_STEPS] = {"read", "int8", "fp32", "int8_form",
                                                 "attention_form"};
  for (size_t p = 0; p < b->places; p++)
    for (size_t j = 0; j < 2; j++) {
      const bench_limits *l = &b->place[p].limits[j];
      for (int i = 0; i < BENCH_STEPS; i++) { /* barriers, and so steps, move by themselves */
        double best = bench_limit_best(l, (bench_limit)i), least = best;
        for (size_t k = 0; k < l->count; k++)
          if (l->value[i][k] < least) least = l->value[i][k];
        if (least < 0.8 * best)
          bench_warn(b, "a busy machine: limit '%s' of %u threads fell to %.0f %% of its best",
                     names[i], l->threads, 100 * least / best);
      }
    }
}

size_t bench_test_tokens(const bench_test *t) {
  return t->amount.tokens * t->amount.batch;
}

bool bench_test_many(const bench_test *t) {
  return t->amount.batch > 1 || (t->amount.prompt && t->amount.tokens > 1);
}

unsigned bench_test_threads(const bench_test *t) {
  return bench_test_many(t) ? hr_session_threads_batch(t->place->session)
                            : hr_session_threads(t->place->session);
}

/* A frequency has fallen when it is below what the same CPUs had with the same threads and tier.
 * Of threads that may run anywhere nobody knows the CPUs. */
const char *bench_disturbance(const bench *b, const bench_test *t, size_t sample,
                              char text[CLI_SENSOR_TEXT]) {
  unsigned active = hr_session_active(t->place->session, bench_test_many(t));
  return cli_disturbance(&t->state[sample][0], &t->state[sample][1], active, b->cpus,
                         t->place->pinned ? t->place->best_mhz : 0, text);
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

void bench_warn_of_few(bench *b) {
  const uint64_t enough = 5;
  if (b->set.repeat.value < enough)
    bench_warn(b, "fewer than %" PRIu64 " samples: what they say of the spread is little", enough);
}

int bench_measure(bench *b) {
  int status = run_rounds(b);
  if (status != HR_OK) return status;
  warn_of_limits(b);
  warn_of_samples(b);
  bench_warn_of_few(b);
  return HR_OK;
}
