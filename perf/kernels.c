/* SPDX-License-Identifier: MIT
 * Speed of the kernels, each as a share of what limits it:
 *   kernels [--isa NAME] [--no-cache] [q8|float|attention|decode|row...]
 * A share above 100 % is no result and is marked; at the end stand those of a limit
 * that a busy machine held below 90 % of its best in the run, or of a peak below 90 % of the
 * best seen on this machine (perf/seen.h; --no-cache: of the run alone). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/select.h"
#include "perf/kernel_bench.h"
#include "perf/limits.h"
#include "src/cli/user_file.h"

/* All rows of the run, for what only its end can tell. */
static struct {
  perf_kernel_row *row;
  size_t count;
} run;

static bool print_row(void *data, const perf_kernel_row *r) {
  (void)data;
  perf_kernel_row *more = realloc(run.row, (run.count + 1) * sizeof *more);
  if (!more) return false;
  run.row = more;
  run.row[run.count++] = *r;
  printf("%-30s %-30s %7.1f %-7s", r->kernel, r->shape, r->rate, r->unit);
  if (r->limit > 0)
    printf(" of %7.1f  %5.1f %%%s%s", r->limit, 100 * r->rate / r->limit,
           r->rate > r->limit ? "  invalid: above the limit" : "",
           r->small_pages ? "  (small pages)" : "");
  printf("\n");
  fflush(stdout);
  return true;
}

static void print_busy(perf_seen *seen) {
  perf_mark_busy(run.row, run.count, seen);
  for (size_t i = 0; i < run.count; i++)
    if (run.row[i].busy)
      printf("invalid: busy machine: %s %s (limit %.1f, once %.1f)\n", run.row[i].kernel,
             run.row[i].shape, run.row[i].limit, run.row[i].best);
}

/* Beside the best of earlier runs. */
static void print_busy_ever(void) {
  static perf_seen seen;
  char machine[PERF_MACHINE_TEXT], *path = cli_user_file("XDG_CACHE_HOME", ".cache", "peaks");
  perf_this_machine(machine);
  if (!path) fputs("kernels: no place for the best peaks seen: of this run alone\n", stderr);
  if (path && !perf_seen_read(&seen, path, machine))
    fprintf(stderr, "kernels: %s: not a list of peaks, passed over and written anew\n", path);
  print_busy(path ? &seen : NULL);
  if (path && seen.changed && !(cli_make_folders(path) && perf_seen_write(&seen, path)))
    fprintf(stderr, "kernels: %s: the best peaks can't be kept\n", path);
  free(path);
}

static bool is_group(const char *name) {
  for (size_t i = 0; perf_kernel_groups[i]; i++)
    if (strcmp(perf_kernel_groups[i], name) == 0) return true;
  return false;
}

static int run_tier(const hr_kernels *t, int groups, char **group) {
  perf_kernel_end end = PERF_KERNEL_DONE;
  const perf_peaks *peaks = perf_peaks_of(t->isa);
  if (peaks && strcmp(peaks->name, t->isa) != 0)
    printf("%s has no peak loops of its own, those of %s are its limits\n", t->isa, peaks->name);
  if (groups == 0) end = perf_kernels(t, NULL, 0, print_row, NULL);
  for (int i = 0; i < groups && end == PERF_KERNEL_DONE; i++)
    end = perf_kernels(t, group[i], 0, print_row, NULL);
  if (end == PERF_KERNEL_MEMORY) fputs("kernels: not enough memory\n", stderr);
  if (end == PERF_KERNEL_STOPPED) fputs("kernels: not enough memory\n", stderr);
  if (end == PERF_KERNEL_THREADS) fputs("kernels: the threads can't be started\n", stderr);
  return end == PERF_KERNEL_DONE ? 0 : 4;
}

int main(int argc, char **argv) {
  const char *isa = NULL;
  int at = 1, status = 0;
  bool any = false, known = true, cached = true;
  for (; at < argc && argv[at][0] == '-'; at++) {
    if (strcmp(argv[at], "--no-cache") == 0)
      cached = false;
    else if (strcmp(argv[at], "--isa") == 0 && at + 1 < argc)
      isa = argv[++at];
    else
      known = false;
  }
  size_t count;
  const hr_tier *tier = hr_tiers(&count);
  for (int i = at; i < argc; i++) known = known && is_group(argv[i]);
  for (size_t i = 0; known && status == 0 && i < count; i++) {
    hr_kernels t;
    /* The definition has no limit of its own: only when asked for. */
    if (isa ? strcmp(isa, tier[i].name) != 0 : i == 0) continue;
    if (!hr_kernels_select(&t, hr_cpu_features(), tier[i].name)) continue;
    any = true;
    status = run_tier(&t, argc - at, argv + at);
  }
  if (cached && any)
    print_busy_ever();
  else
    print_busy(NULL);
  free(run.row);
  if (!any)
    fputs("usage: kernels [--isa NAME] [--no-cache] [q8|float|attention|decode|row...]\n", stderr);
  return any ? status : 2;
}
