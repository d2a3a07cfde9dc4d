/* SPDX-License-Identifier: MIT
 *
 * The team under a race detector. Criterion can't run there, so this is a plain
 * program; every access to shared data below is an ordinary one, ordered by
 * nothing but the team's own hand-over and barriers. With clang and its runtime:
 *
 *     clang (the flags of meson.build) -fopenmp -fsanitize=thread -g ...
 *     TSAN_OPTIONS=ignore_noninstrumented_modules=1 sched_stress
 */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "sched/team.h"
#include "sched/tiles.h"

enum { THREADS = 4, TILES = 61, STEPS = 40, ROUNDS = 300 };

typedef struct {
  hr_team *team;
  hr_tiles tiles;
  hr_tiles_range range[THREADS];
  const uint32_t *shares;
  uint32_t value[2][TILES]; /* each step reads what the step before wrote */
  unsigned steps, most; /* steps of a pass, and most threads of one */
} stress;

static const uint32_t uneven[THREADS + 1] = {0, 1024, 1500, 2524, 2600};

static void steps_pass(void *arg, unsigned thread, unsigned threads) {
  stress *s = arg;
  for (unsigned number = 1; number <= s->steps; number++) {
    const uint32_t *from = s->value[(number - 1) % 2];
    uint32_t *to = s->value[number % 2];
    hr_tiles_step step = {.tiles = &s->tiles, .shares = s->shares, .number = number,
                          .count = TILES, .thread = thread, .threads = threads};
    for (hr_tiles_run run; hr_tiles_next(&step, &run);)
      for (uint32_t i = run.begin; i < run.end; i++)
        to[i] = from[i] + from[(i + 1) % TILES] - from[(i + TILES - 1) % TILES] + 1;
    hr_team_barrier_fetching(s->team, thread, to, number % 2 ? sizeof s->value[0] : 0);
  }
}

static uint64_t run(stress *s, unsigned threads, uint32_t seed) {
  uint64_t sum = 0;
  s->tiles = (hr_tiles){.of = s->range, .threads = THREADS, .seed = seed};
  hr_tiles_clear(&s->tiles);
  memset(s->value, 0, sizeof s->value);
  for (uint32_t i = 0; i < TILES; i++) s->value[0][i] = i * i;
  if (hr_team_run(s->team, threads, steps_pass, s, NULL) != HR_OK) return 0;
  for (uint32_t i = 0; i < TILES; i++) sum = sum * 31 + s->value[s->steps % 2][i];
  return sum;
}

/* The caller goes to a thread's CPU, where those are pinned. */
static void move_caller(const stress *s, unsigned thread) {
  cpu_set_t set;
  int cpu = hr_team_cpu(s->team, thread);
  if (cpu < 0) return;
  CPU_ZERO(&set);
  CPU_SET((size_t)cpu, &set);
  (void)pthread_setaffinity_np(pthread_self(), sizeof set, &set);
}

static int check(stress *s, const char *who) {
  cpu_set_t before;
  unsigned i = 0;
  s->steps = STEPS;
  s->shares = NULL;
  uint64_t expected = run(s, 1, 0);
  if (pthread_getaffinity_np(pthread_self(), sizeof before, &before) != 0) return 1;
  bool same = true;
  for (; same && i < ROUNDS; i++) {
    s->shares = i % 3 ? uneven : NULL;
    if (i % 5 == 0) move_caller(s, i / 5 % s->most);
    same = run(s, i % s->most + 1, i % 2 ? i : 0) == expected;
    if (!same) printf("%s: round %u differs\n", who, i);
  }
  (void)pthread_setaffinity_np(pthread_self(), sizeof before, &before);
  return !same;
}

static void *check_elsewhere(void *arg) {
  return check(arg, "another thread") ? arg : NULL;
}

static int check_team(const hr_team_options *options) {
  static stress s;
  hr_error err = {.message = "?"};
  void *failed = NULL;
  pthread_t thread;
  memset(&s, 0, sizeof s);
  s.team = hr_team_create(options, &err);
  if (!s.team) {
    printf("%s\n", err.message);
    return 1;
  }
  unsigned one = hr_team_threads(s.team), many = hr_team_threads_batch(s.team);
  s.most = one > many ? one : many;
  int bad = check(&s, "first thread");
  if (pthread_create(&thread, NULL, check_elsewhere, &s) == 0) pthread_join(thread, &failed);
  hr_team_free(s.team);
  return bad || failed;
}

/* Two teams at once, each with its own caller. */
static void *team_elsewhere(void *arg) {
  static const hr_team_options options = {.threads = 2, .no_pin = true};
  stress *s = arg;
  s->team = hr_team_create(&options, NULL);
  if (!s->team) return arg;
  s->steps = STEPS;
  uint64_t expected = run(s, 1, 0);
  void *bad = NULL;
  for (unsigned i = 0; i < ROUNDS && !bad; i++) bad = run(s, i % 2 + 1, i) == expected ? NULL : arg;
  hr_team_free(s->team);
  return bad;
}

static int check_two_teams(void) {
  static stress s[2];
  pthread_t thread[2];
  void *failed[2] = {NULL, NULL};
  for (int i = 0; i < 2; i++)
    if (pthread_create(&thread[i], NULL, team_elsewhere, &s[i]) != 0) return 1;
  for (int i = 0; i < 2; i++) pthread_join(thread[i], &failed[i]);
  return failed[0] || failed[1];
}

int main(void) {
  static const hr_team_options teams[] = {
      {.threads = 2},
      {.threads = THREADS},
      {.threads = THREADS, .no_pin = true},
      {.threads = 2, .threads_batch = THREADS, .cores = "all"},
  };
  int bad = 0;
  for (size_t i = 0; i < sizeof teams / sizeof *teams; i++) bad |= check_team(&teams[i]);
  bad |= check_two_teams();
  printf("sched_stress: %s\n", bad ? "FAILED" : "all rounds gave equal values");
  return bad;
}
