/* SPDX-License-Identifier: MIT
 * bench --profile: where the time of a test goes. Each thread notes the time at
 * the end of each part of a pass and of each wait; the shares are of all threads'
 * time together, and what is in no pass is the choice of tokens and the start of
 * passes. */
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "bench.h"
#include "output.h"

static const char *const part_name[HR_PARTS] = {
    [HR_PART_EMBEDDING] = "embedding",
    [HR_PART_NORM] = "norm, quantize",
    [HR_PART_QKV] = "query, key, value",
    [HR_PART_PLACE] = "rotate, cache",
    [HR_PART_ATTENTION] = "attention",
    [HR_PART_OUTPUT] = "output",
    [HR_PART_UP] = "gate, up, activation",
    [HR_PART_DOWN] = "down",
    [HR_PART_HEAD] = "head",
    [HR_PART_WAIT] = "waiting for threads",
};
static const char outside_name[] = "outside of passes";

/* A part may run on more threads than the test has: a prompt's last row alone. */
static unsigned most_threads(const bench_test *t) {
  unsigned one = hr_session_threads(t->place->session);
  unsigned many = hr_session_threads_batch(t->place->session);
  return one > many ? one : many;
}

/* --- Taking times ---------------------------------------------------------------- */

int bench_profile_make(bench_test *t) {
  t->profile = hr_alloc_pages(most_threads(t) * sizeof *t->profile);
  return t->profile ? HR_OK : cli_fail_memory();
}

void bench_profile_free(bench_test *t) {
  if (t->profile) hr_free_pages(t->profile, most_threads(t) * sizeof *t->profile);
  t->profile = NULL;
}

void bench_profile_start(bench_test *t) {
  if (t->profile) hr_workspace_set_profile(t->place->session->workspace, t->profile);
}

void bench_profile_stop(bench_test *t, double seconds, bool keep) {
  if (!t->profile) return;
  hr_workspace_set_profile(t->place->session->workspace, NULL);
  if (keep)
    t->profile_seconds += seconds;
  else
    memset(t->profile, 0, most_threads(t) * sizeof *t->profile);
}

/* --- What they say --------------------------------------------------------------- */

/* One line of a profile, in a mean sample. */
typedef struct line {
  const char *name;
  double seconds; /* of a thread, on average */
  double share;   /* of the test, in percent */
  double percent; /* of the limit; below 0: none is known */
  const char *limit;
} line;

enum { LINES = HR_PARTS + 1 };

static double part_seconds(const bench_test *t, int part) {
  uint64_t ns = 0;
  for (unsigned i = 0; i < most_threads(t); i++) ns += t->profile[i].ns[part];
  return (double)ns * 1e-9 / bench_test_threads(t) / (double)t->count;
}

static void find_lines(const bench_test *t, line lines[LINES]) {
  bench_work work[HR_PARTS];
  double total = t->profile_seconds / (double)t->count, inside = 0;
  bench_work_by_part(t->place->session, t->depth, t->tokens,
                     t->prompt ? t->place->session->chunk : 1, work);
  for (int i = 0; i < HR_PARTS; i++) {
    bench_bound bound = bench_bound_of(t, &work[i]);
    double seconds = part_seconds(t, i);
    bool known = bound.seconds > 0 && seconds > 0;
    lines[i] = (line){part_name[i], seconds, 100 * seconds / total,
                      known ? 100 * bound.seconds / seconds : -1, known ? bound.limit : ""};
    inside += seconds;
  }
  double rest = total > inside ? total - inside : 0;
  lines[HR_PARTS] = (line){outside_name, rest, 100 * rest / total, -1, ""};
}

static void print_lines(const bench_test *t, const char *row) {
  line lines[LINES];
  find_lines(t, lines);
  for (int i = 0; i < LINES; i++) {
    char ms[24], share[16], percent[32] = "-";
    snprintf(ms, sizeof ms, "%.3f", 1e3 * lines[i].seconds / (double)t->tokens);
    snprintf(share, sizeof share, "%.1f %%", lines[i].share);
    if (lines[i].percent >= 0)
      snprintf(percent, sizeof percent, "%.0f %% %s", lines[i].percent, lines[i].limit);
    cli_print(row, lines[i].name, ms, share, percent);
  }
}

void bench_profile_print(const bench *b) {
  bool md = b->set.markdown;
  const char *row = md ? "| %s | %s | %s | %s |\n" : "  %-22s %12s %8s  %s\n";
  for (size_t i = 0; i < b->tests; i++) {
    const bench_test *t = &b->test[i];
    unsigned threads = bench_test_threads(t);
    char name[64];
    if (!t->profile) continue;
    cli_print("\n%s, %s, %u %s, %.2f tokens/s:\n%s", bench_test_name(t, name),
              t->place->model->kernels.isa, threads, threads == 1 ? "thread" : "threads",
              (double)t->tokens * (double)t->count / t->profile_seconds, md ? "\n" : "");
    cli_print(row, "part", "ms a token", "share", "of limit");
    if (md) cli_print("|---|---:|---:|---|\n");
    print_lines(t, row);
  }
}

json_t *bench_profile_json(const bench_test *t) {
  line lines[LINES];
  if (!t->profile) return json_null();
  find_lines(t, lines);
  json_t *list = json_array();
  for (int i = 0; i < LINES; i++)
    json_array_append_new(
        list, json_pack("{s:s, s:f, s:f, s:o, s:s?}", "part", lines[i].name, "seconds",
                        lines[i].seconds, "share_percent", lines[i].share, "limit_percent",
                        lines[i].percent >= 0 ? json_real(lines[i].percent) : json_null(), "limit",
                        lines[i].percent >= 0 ? lines[i].limit : NULL));
  return list;
}
