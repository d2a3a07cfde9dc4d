/* SPDX-License-Identifier: MIT
 * What the machine can do at most whatever the model: memory by the number of
 * threads, its caches, the peaks of every tier, and what a barrier costs. */
#include <stdlib.h>

#include "base/memory.h"
#include "bench.h"
#include "kernels/select.h"
#include "sched/team.h"

static const double memory_window = 8e-3, cache_window = 3e-3; /* seconds */

size_t bench_thread_counts(unsigned most, unsigned *list, size_t room) {
  size_t count = 0;
  unsigned n = 1;
  while (n < most && count + 1 < room) {
    list[count++] = n;
    bool power = (n & (n - 1)) == 0;
    n = n < 4 ? n + 1 : power ? n / 2 * 3 : n / 3 * 4;
  }
  list[count++] = most;
  return count;
}

double bench_series_best(const bench *b, const bench_series *series) {
  double best = 0;
  for (size_t i = 0; i < b->capacity.rounds; i++)
    if (series->sample[i] > best) best = series->sample[i];
  return best;
}

/* --- What there is ----------------------------------------------------------------- */

static const hr_cache_size *cache_of(const hr_cpu *cpu, size_t level) {
  const hr_cache_size *const all[] = {&cpu->l1d, &cpu->l2, &cpu->l3};
  return all[level];
}

/* The smallest of any CPU, so that every thread's part fits its own. */
static void find_caches(bench_capacity *c, const hr_topology *t) {
  for (size_t level = 0; level < BENCH_CACHES; level++)
    for (unsigned i = 0; i < t->cpus; i++) {
      const hr_cache_size *own = cache_of(&t->cpu[i], level), *least = &c->cache[level].size;
      if (i == 0 || own->bytes < least->bytes) c->cache[level].size = *own;
    }
}

/* Half of what a thread has of the cache, when that is clearly more than it has of
 * the cache before. */
static void choose_parts(bench_capacity *c, size_t most) {
  for (size_t level = 0; level < BENCH_CACHES; level++)
    for (size_t all = 0; all < 2; all++) {
      unsigned sharing = c->cache[level].size.cores;
      unsigned threads = !all ? 1 : sharing < c->threads ? sharing : c->threads;
      size_t part = threads ? (size_t)c->cache[level].size.bytes / threads / 2 : 0;
      if (part > most) part = most;
      part = part / BENCH_REGION_STEP * BENCH_REGION_STEP;
      if (level && part < 2 * (size_t)c->cache[level - 1].size.bytes) part = 0;
      c->cache[level].part[all] = part;
    }
}

static void find_tiers(bench_capacity *c) {
  size_t count;
  const hr_tier *tier = hr_tiers(&count);
  for (size_t i = 0; i < count && c->tiers < BENCH_TIERS; i++) {
    hr_kernels table;
    const perf_peaks *peaks = perf_peaks_of(tier[i].name);
    if (!peaks || !hr_kernels_select(&table, hr_cpu_features(), tier[i].name)) continue;
    c->tier[c->tiers].isa = tier[i].name;
    c->tier[c->tiers++].peaks = peaks;
  }
}

/* Far more than caches hold, as far as memory allows. */
static size_t buffer_bytes(const bench_capacity *c, const hr_topology *t) {
  const size_t enough = (size_t)256 << 20, for_each = (size_t)32 << 20;
  size_t bytes = for_each * c->threads, available = bench_free_memory();
  size_t last = 0;
  for (unsigned i = 0; i < t->cpus; i++) {
    const hr_cpu *cpu = &t->cpu[i];
    if (cpu->l3.bytes && cpu->l3.cores) last += (size_t)cpu->l3.bytes / cpu->l3.cores;
  }
  if (bytes < enough) bytes = enough;
  if (bytes < 4 * last && last < (size_t)1 << 28) bytes = 4 * last;
  return available && bytes > available / 8 ? available / 8 : bytes;
}

/* --- Rounds ------------------------------------------------------------------------ */

static void sample_points(bench_capacity *c, hr_team *team, bench_buffer *buffer, size_t round,
                          hr_error *err) {
  for (size_t i = 0; i < c->points && err->status == HR_OK; i++) {
    unsigned threads = c->point[i].threads;
    c->point[i].read.sample[round] = bench_rate_of_reading(
        team, threads, bench_buffer_for(buffer, threads), memory_window, NULL, err);
    c->point[i].barrier.sample[round] = bench_rate_of_barriers(team, threads, err);
  }
}

static void sample_caches(bench_capacity *c, hr_team *team, bench_buffer *buffer, size_t round,
                          hr_error *err) {
  for (size_t level = 0; level < BENCH_CACHES; level++)
    for (size_t all = 0; all < 2 && err->status == HR_OK; all++) {
      bench_region part = *bench_buffer_for(buffer, c->threads);
      part.most = c->cache[level].part[all];
      if (!part.most || (all && c->threads == 1)) continue;
      c->cache[level].read[all].sample[round] =
          bench_rate_of_reading(team, all ? c->threads : 1, &part, cache_window, NULL, err);
    }
}

static void sample_tiers(bench_capacity *c, hr_team *team, size_t round, hr_error *err) {
  for (size_t i = 0; i < c->tiers; i++)
    for (size_t all = 0; all < 2 && err->status == HR_OK; all++) {
      const perf_peaks *p = c->tier[i].peaks;
      unsigned threads = all ? c->threads : 1;
      if (all && threads == 1) continue;
      c->tier[i].int8[all].sample[round] =
          bench_rate_of_loop(team, threads, p->dot, p->dot_work, err);
      c->tier[i].fp32[all].sample[round] =
          bench_rate_of_loop(team, threads, p->fma, p->fma_work, err);
    }
}

static int run_rounds(bench *b, hr_team *team, bench_buffer *buffer) {
  bool show;
  bench_capacity *c = &b->capacity;
  cli_progress progress = bench_progress(b, "measuring the machine", &show);
  hr_error err = {.status = HR_OK};
  int status = HR_OK;
  for (size_t round = 0; status == HR_OK && round < c->rounds; round++) {
    sample_points(c, team, buffer, round, &err);
    sample_caches(c, team, buffer, round, &err);
    sample_tiers(c, team, round, &err);
    if (err.status != HR_OK) status = cli_fail_error("limits", &err);
    double done = (double)(round + 1) / (double)c->rounds;
    if (!cli_report_progress(show ? &progress : NULL, done)) status = HR_ERROR_CANCELLED;
  }
  cli_end_progress(&progress);
  return status;
}

static int measure(bench *b, hr_team *team, const hr_topology *t) {
  bench_capacity *c = &b->capacity;
  bench_buffer buffer = {0};
  unsigned list[BENCH_POINTS];
  c->threads = hr_team_threads(team);
  if (hr_team_threads_batch(team) > c->threads) c->threads = hr_team_threads_batch(team);
  c->rounds = b->set.repeat.value < BENCH_ROUNDS ? (size_t)b->set.repeat.value : BENCH_ROUNDS;
  c->points = bench_thread_counts(c->threads, list, BENCH_POINTS);
  for (size_t i = 0; i < c->points; i++) c->point[i].threads = list[i];
  int status = bench_buffer_make(&buffer, buffer_bytes(c, t), c->threads, team);
  if (status == HR_OK) {
    find_caches(c, t);
    choose_parts(c, bench_buffer_for(&buffer, c->threads)->part[0].bytes);
    find_tiers(c);
    c->buffer_bytes = buffer.bytes;
    c->huge = buffer.huge;
    status = run_rounds(b, team, &buffer);
  }
  bench_buffer_free(&buffer);
  return status;
}

int bench_capacity_measure(bench *b) {
  const cli_common *common = &b->set.common;
  hr_team_options o = {.no_pin = common->no_pin, .cores = common->cores};
  hr_error err;
  hr_topology *t = hr_topology_load(NULL, &err);
  hr_team *team = t ? hr_team_create(&o, &err) : NULL;
  int status = team ? measure(b, team, t) : cli_fail_error("limits", &err);
  hr_team_free(team);
  hr_topology_free(t);
  return status;
}
