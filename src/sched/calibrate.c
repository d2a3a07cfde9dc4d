/* SPDX-License-Identifier: MIT */
#include "sched/calibrate.h"

#include <math.h>
#include <stdio.h>

/* Four cores read memory at full speed on most machines that have that few. */
enum { CORES_FOR_BANDWIDTH = 4 };

static void add_trial(hr_trials *t, unsigned threads, unsigned most) {
  if (threads < 1 || threads > most || t->count == HR_TRIALS_MAX) return;
  unsigned at = t->count;
  while (at > 0 && t->threads[at - 1] > threads) at--;
  if (at > 0 && t->threads[at - 1] == threads) return;
  for (unsigned i = t->count++; i > at; i--) t->threads[i] = t->threads[i - 1];
  t->threads[at] = threads;
}

/* Seats come core by core, faster kinds first, then the second hyperthreads: a
 * number of threads that ends where a kind or a rank ends leaves no core half used. */
static void add_ends(hr_trials *t, const hr_topology *topology, const hr_placement *seats,
                     bool hyperthreads, unsigned most) {
  for (unsigned i = 1; i <= seats->seats; i++) {
    const hr_cpu *last = &topology->cpu[seats->seat[i - 1].cpu];
    const hr_cpu *next = i < seats->seats ? &topology->cpu[seats->seat[i].cpu] : NULL;
    bool second = false;
    for (unsigned j = 0; j + 1 < i; j++)
      if (topology->cpu[seats->seat[j].cpu].core == last->core) second = true;
    if (second && !hyperthreads) return;
    if (!next || next->kind != last->kind || (next->thread > 0) != (last->thread > 0))
      add_trial(t, i, most);
  }
}

/* 2, 3, 4, 6, 8, 12, ... */
static void add_steps(hr_trials *t, unsigned most) {
  for (unsigned n = 2; n <= most; n *= 2) {
    add_trial(t, n, most);
    add_trial(t, n + n / 2, most);
  }
}

static unsigned count_kinds(const hr_topology *topology, const hr_placement *seats) {
  unsigned kinds = 0;
  bool seen[HR_KINDS_MAX] = {false};
  for (unsigned i = 0; i < seats->seats; i++) {
    unsigned kind = topology->cpu[seats->seat[i].cpu].kind;
    if (!seen[kind]) kinds++;
    seen[kind] = true;
  }
  return kinds;
}

static unsigned count_cores(const hr_topology *topology, const hr_placement *seats) {
  unsigned cores = 0;
  for (unsigned i = 0; i < seats->seats; i++) {
    bool seen = false;
    for (unsigned j = 0; j < i && !seen; j++)
      seen = topology->cpu[seats->seat[j].cpu].core == topology->cpu[seats->seat[i].cpu].core;
    if (!seen) cores++;
  }
  return cores;
}

/* A seat for every CPU that threads may use, within the quota. */
static hr_status seat_all(hr_placement *seats, const hr_topology *topology,
                          const hr_limits *limits, const hr_wishes *wishes, hr_error *err) {
  hr_wishes all = *wishes;
  all.threads = all.threads_batch = 1;
  hr_status status = hr_placement_make(seats, topology, limits, &all, err);
  if (status != HR_OK) return status;
  unsigned most = seats->reach;
  for (unsigned i = 0; i < limits->quotas; i++)
    if (limits->quota[i].cpus < most) most = limits->quota[i].cpus;
  hr_placement_free(seats);
  all.threads = all.threads_batch = most < HR_THREADS_MAX ? most : HR_THREADS_MAX;
  return hr_placement_make(seats, topology, limits, &all, err);
}

hr_status hr_calibration_plan(hr_calibration *c, const hr_topology *topology,
                              const hr_limits *limits, const hr_wishes *wishes, hr_error *err) {
  hr_placement seats;
  *c = (hr_calibration){0};
  hr_status status = seat_all(&seats, topology, limits, wishes, err);
  if (status != HR_OK) return status;
  unsigned kinds = count_kinds(topology, &seats), cores = count_cores(topology, &seats);
  const char *text = kinds == 1 ? "of one kind" : "of several kinds";
  if (wishes->threads) {
    snprintf(c->why, sizeof c->why, "no trials: the number of threads was asked for");
  } else if (kinds == 1 && cores <= CORES_FOR_BANDWIDTH) {
    snprintf(c->why, sizeof c->why, "no trials: %u %s %s need none", cores,
             cores == 1 ? "core" : "cores", text);
  } else {
    snprintf(c->why, sizeof c->why, "by trials: %u cores %s", cores, text);
    add_steps(&c->one, cores);
    add_ends(&c->one, topology, &seats, false, cores);
    if (!wishes->threads_batch) add_ends(&c->many, topology, &seats, true, seats.seats);
  }
  hr_placement_free(&seats);
  return HR_OK;
}

/* The two shortest times of each number of threads, in seconds. */
typedef struct {
  double least, second;
} shortest;

static double best_of(const hr_trials *t, const shortest *times) {
  double best = times[0].least;
  for (unsigned i = 1; i < t->count; i++)
    if (times[i].least < best) best = times[i].least;
  return best;
}

static bool try_round(const hr_trials *t, hr_trial_fn *trial, void *data, bool many, int round,
                      shortest *times) {
  double behind = round == 1 ? 2 : 1.3; /* a first time may have been disturbed */
  double best = round ? best_of(t, times) : 0;
  for (unsigned i = 0; i < t->count; i++) {
    if (round && times[i].least > behind * best) continue;
    double seconds = trial(data, t->threads[i], many);
    if (!(seconds > 0)) return false;
    if (!round || seconds < times[i].least) {
      times[i].second = round ? times[i].least : INFINITY;
      times[i].least = seconds;
    } else if (seconds < times[i].second) {
      times[i].second = seconds;
    }
  }
  return true;
}

/* Whether a further round would hardly change the choice. */
static bool agree(const hr_trials *t, const shortest *times) {
  double best = best_of(t, times);
  for (unsigned i = 0; i < t->count; i++)
    if (times[i].least <= 1.1 * best && times[i].second > 1.05 * times[i].least) return false;
  return true;
}

static unsigned choose(const hr_trials *t, const shortest *times) {
  double best = best_of(t, times);
  unsigned i = 0;
  while (times[i].least > 1.03 * best) i++;
  return t->threads[i];
}

static bool calibrate(const hr_trials *t, hr_trial_fn *trial, void *data, bool many,
                      unsigned *threads, bool *steady) {
  enum { ROUNDS = 6 };
  shortest times[HR_TRIALS_MAX];
  bool agreed = false;
  if (t->count < 2) return true;
  for (int round = 0; round < ROUNDS && !agreed; round++) {
    if (!try_round(t, trial, data, many, round, times)) return false;
    agreed = agree(t, times);
  }
  *threads = choose(t, times);
  if (!agreed) *steady = false;
  return true;
}

bool hr_calibrate(const hr_calibration *c, hr_trial_fn *trial, void *data, unsigned *one,
                  unsigned *many, bool *steady) {
  *steady = true;
  return calibrate(&c->one, trial, data, false, one, steady) &&
         calibrate(&c->many, trial, data, true, many, steady);
}
