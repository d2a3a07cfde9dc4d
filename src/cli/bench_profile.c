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
  double seconds; /* of a thread and a call, on average */
  double share;   /* of the test, in percent */
  double percent; /* of the limit; below 0: none is known */
  const char *limit;
} line;

enum { LINES = HR_PARTS + 1 };

static double part_seconds(const bench_test *t, int part) {
  uint64_t ns = 0;
  unsigned threads = hr_session_active(t->place->session, bench_test_many(t));
  for (unsigned i = 0; i < most_threads(t); i++) ns += t->profile[i].ns[part];
  return (double)ns * 1e-9 / threads / (double)(t->count * t->passes);
}

static line line_of(const char *name, double seconds, double total, bench_bound bound) {
  bool known = bound.seconds > 0 && seconds > 0;
  return (line){name, seconds, total > 0 ? 100 * seconds / total : 0,
                known ? 100 * bound.seconds / seconds : -1, known ? bound.limit : ""};
}

static void find_lines(const bench_test *t, line lines[LINES]) {
  bench_work work[HR_PARTS];
  double total = t->profile_seconds / (double)(t->count * t->passes), inside = 0;
  bench_work_by_part(t->place->session, &t->amount, work);
  for (int i = 0; i < HR_PARTS; i++) {
    double seconds = part_seconds(t, i);
    lines[i] = line_of(part_name[i], seconds, total, bench_bound_of(t, &work[i]));
    inside += seconds;
  }
  double rest = total > inside ? total - inside : 0;
  lines[HR_PARTS] = (line){outside_name, rest, 100 * rest / total, -1, ""};
}

/* Rows of a table in Markdown or not. */
static void print_row(const bench *b, const char *name, const char *time, const char *share,
                      const char *percent) {
  cli_print(b->set.markdown ? "| %s | %s | %s | %s |\n" : "  %-22s %12s %8s  %s\n", name, time,
            share, percent);
}

static void print_head(const bench *b, const char *name, const char *time) {
  if (b->set.markdown) cli_print("\n");
  print_row(b, name, time, "share", "of limit");
  if (b->set.markdown) cli_print("|---|---:|---:|---|\n");
}

static void print_line(const bench *b, const line *l, double time) {
  char text[24], share[16], percent[48] = "-";
  snprintf(text, sizeof text, "%.3f", time);
  snprintf(share, sizeof share, "%.1f %%", l->share);
  if (l->percent >= 0)
    snprintf(percent, sizeof percent, "%.0f %% %s%s", l->percent, l->limit,
             l->percent > 100 ? " (invalid)" : "");
  print_row(b, l->name, text, share, percent);
}

static void print_parts(const bench *b, const bench_test *t) {
  line lines[LINES];
  find_lines(t, lines);
  print_head(b, "part", "ms a token");
  for (int i = 0; i < LINES; i++)
    print_line(b, &lines[i], 1e3 * lines[i].seconds / (double)bench_test_tokens(t));
}

/* --- One block ----------------------------------------------------------------------- */

static bool is_of_block(int part) {
  return part != HR_PART_EMBEDDING && part != HR_PART_HEAD;
}

/* The acts of the model's only layer, and all of them together. */
static void print_block(const bench *b, const bench_test *t) {
  bench_work work[HR_PARTS], sum = {0};
  double total = 0;
  bench_work_by_part(t->place->session, &t->amount, work);
  for (int i = 0; i < HR_PARTS; i++)
    if (is_of_block(i)) {
      total += part_seconds(t, i);
      bench_work_add(&sum, &work[i]);
    }
  print_head(b, "act", "us");
  for (int i = 0; i < HR_PARTS; i++) {
    if (!is_of_block(i)) continue;
    double seconds = part_seconds(t, i);
    line l = line_of(part_name[i], seconds, total, bench_bound_of(t, &work[i]));
    print_line(b, &l, 1e6 * seconds);
  }
  line all = line_of("the block", total, total, bench_bound_of(t, &sum));
  print_line(b, &all, 1e6 * total);
}

void bench_profile_print(const bench *b) {
  for (size_t i = 0; i < b->tests; i++) {
    const bench_test *t = &b->test[i];
    unsigned threads = bench_test_threads(t);
    const char *isa = t->place->model->kernels.isa, *plural = threads == 1 ? "" : "s";
    char name[64];
    if (!t->profile) continue;
    if (b->set.block)
      cli_print("\n%s, %zu row%s at depth %zu, %s, %u thread%s:\n", bench_model_name(b),
                t->amount.tokens, t->amount.tokens == 1 ? "" : "s", t->amount.depth, isa, threads,
                plural);
    else
      cli_print("\n%s, %s, %u thread%s, %.2f tokens/s:\n", bench_test_name(t, name), isa, threads,
                plural, (double)bench_test_tokens(t) * (double)t->count / t->profile_seconds);
    if (b->set.block)
      print_block(b, t);
    else
      print_parts(b, t);
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
