/* SPDX-License-Identifier: MIT
 * headrow bench --kernels: every kernel beside what limits it. */
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "kernels/select.h"
#include "user_file.h"

enum { MOST_ROWS = 4096 };

/* One group of one tier, and where it stands among all. */
typedef struct gathering {
  bench *b;
  cli_progress *progress; /* NULL: none is shown */
  double done;
  size_t rounds; /* 0: as usual */
  bool full;
  bool small_pages; /* warned of */
} gathering;

/* A row with copies of its samples. */
static bool keep_row(bench *b, const perf_kernel_row *row) {
  perf_kernel_row *to = &b->kernel[b->kernels];
  double *copy = calloc(2 * row->rounds + 1, sizeof *copy);
  if (!copy) return false;
  memcpy(copy, row->rates, row->rounds * sizeof *copy);
  memcpy(copy + row->rounds, row->limits, row->rounds * sizeof *copy);
  *to = *row;
  to->rates = copy;
  to->limits = copy + row->rounds;
  b->kernel_samples[b->kernels++] = copy;
  return true;
}

static bool gather(void *data, const perf_kernel_row *row) {
  gathering *g = data;
  if (g->b->kernels == MOST_ROWS || !keep_row(g->b, row)) {
    g->full = true;
    return false;
  }
  if (row->small_pages && !g->small_pages)
    bench_warn(g->b, "kernels: rows that read memory are of small pages, the system gave none of "
                     "2 MiB");
  g->small_pages |= row->small_pages;
  return cli_report_progress(g->progress, g->done);
}

static size_t group_count(void) {
  size_t count = 0;
  while (perf_kernel_groups[count]) count++;
  return count;
}

/* Whether a group is in a list such as "row,q8"; NULL lists all. */
static bool is_listed(const char *list, const char *group) {
  size_t length = strlen(group);
  if (!list) return true;
  for (const char *at = list; *at; at += strcspn(at, ","), at += *at == ',')
    if (strcspn(at, ",") == length && strncmp(at, group, length) == 0) return true;
  return false;
}

/* Every word of the list must be a group. */
static int check_groups(const char *list) {
  for (const char *at = list; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
    size_t length = strcspn(at, ","), i = 0;
    while (perf_kernel_groups[i] && (strlen(perf_kernel_groups[i]) != length ||
                                     strncmp(perf_kernel_groups[i], at, length) != 0))
      i++;
    if (!perf_kernel_groups[i])
      return cli_fail(HR_ERROR_USAGE, "--only: '%.*s' is no group of kernels, expected some of: "
                      "q8, float, attention, decode, row", (int)(length < 80 ? length : 80), at);
  }
  return HR_OK;
}

static bool is_wanted(const char *isa, const char *tier) {
  return !isa || strcmp(isa, "all") == 0 || strcmp(isa, tier) == 0;
}

static int run_tier(gathering *g, const hr_kernels *table, size_t before, size_t all) {
  size_t groups = group_count();
  for (size_t i = 0; i < groups; i++) {
    g->done = (double)(before * groups + i) / (double)(all * groups);
    if (!is_listed(g->b->set.only, perf_kernel_groups[i])) continue;
    switch (perf_kernels(table, perf_kernel_groups[i], g->rounds, gather, g)) {
      case PERF_KERNEL_DONE: break;
      case PERF_KERNEL_STOPPED: return g->full ? cli_fail_memory() : HR_ERROR_CANCELLED;
      case PERF_KERNEL_MEMORY: return cli_fail_memory();
      case PERF_KERNEL_THREADS:
        return cli_fail(HR_ERROR_MEMORY,
                        "threads: the system does not let as many be started as the affinity mask "
                        "has CPUs");
    }
  }
  return HR_OK;
}

/* Beside the best peaks of earlier runs, which a file keeps. */
static void mark_busy(bench *b) {
  static perf_seen seen;
  char machine[PERF_MACHINE_TEXT], *path = cli_user_file("XDG_CACHE_HOME", ".cache", "peaks");
  perf_this_machine(machine);
  if (!path) bench_warn(b, "no place for the best peaks seen: those of this run count alone");
  if (path && !perf_seen_read(&seen, path, machine))
    bench_warn(b, "%s: not a list of peaks, passed over and written anew", path);
  perf_mark_busy(b->kernel, b->kernels, path ? &seen : NULL);
  if (path && seen.changed && !(cli_make_folders(path) && perf_seen_write(&seen, path)))
    bench_warn(b, "%s: the best peaks can't be kept", path);
  free(path);
}

int bench_kernels(bench *b) {
  const cli_common *c = &b->set.common;
  size_t count, wanted = 0, done = 0;
  const hr_tier *tier = hr_tiers(&count);
  bool show, usable[BENCH_TIERS * 2] = {false};
  hr_kernels table;
  int listed = check_groups(b->set.only);
  if (listed != HR_OK) return listed;
  for (size_t i = 0; i < count && i < sizeof usable; i++) {
    usable[i] = is_wanted(c->isa, tier[i].name) &&
                hr_kernels_select(&table, hr_cpu_features(), tier[i].name);
    wanted += usable[i];
  }
  if (!wanted) {
    char names[128];
    hr_kernels_available(hr_cpu_features(), names, sizeof names);
    return cli_fail(HR_ERROR_USAGE,
                    "%s: '%.80s' is no kernel tier of this CPU, expected one of: %s", c->isa_from,
                    c->isa, names);
  }
  b->kernel = calloc(MOST_ROWS, sizeof *b->kernel);
  b->kernel_samples = calloc(MOST_ROWS, sizeof *b->kernel_samples);
  if (!b->kernel || !b->kernel_samples) return cli_fail_memory();
  cli_progress progress = bench_progress(b, "measuring kernels", &show);
  gathering g = {.b = b, .progress = show ? &progress : NULL};
  if (b->set.repeat.given) g.rounds = (size_t)b->set.repeat.value;
  int status = HR_OK;
  for (size_t i = 0; i < count && status == HR_OK; i++)
    if (usable[i] && hr_kernels_select(&table, hr_cpu_features(), tier[i].name))
      status = run_tier(&g, &table, done++, wanted);
  cli_end_progress(&progress);
  if (status != HR_OK) return status;
  if (b->set.no_cache)
    perf_mark_busy(b->kernel, b->kernels, NULL);
  else
    mark_busy(b);
  bench_warn_of_few(b);
  return status;
}
