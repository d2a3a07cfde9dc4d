/* SPDX-License-Identifier: MIT
 * Speed of the kernels, each as a share of what limits it:
 *   kernels [--isa NAME] [q8|float|attention|decode|row...]
 * A share above 100 % is no result and is marked; at the end stand those of a limit
 * that a busy machine held below 90 % of its best in the run. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/select.h"
#include "perf/kernel_bench.h"
#include "perf/limits.h"

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
    printf(" of %7.1f  %5.1f %%%s", r->limit, 100 * r->rate / r->limit,
           r->rate > r->limit ? "  invalid: above the limit" : "");
  printf("\n");
  fflush(stdout);
  return true;
}

static void print_busy(void) {
  perf_mark_busy(run.row, run.count);
  for (size_t i = 0; i < run.count; i++)
    if (run.row[i].busy)
      printf("invalid: busy machine: %s %s (limit %.1f)\n", run.row[i].kernel, run.row[i].shape,
             run.row[i].limit);
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
  if (argc > 2 && strcmp(argv[1], "--isa") == 0) {
    isa = argv[2];
    at = 3;
  }
  size_t count;
  const hr_tier *tier = hr_tiers(&count);
  bool any = false, known = true;
  for (int i = at; i < argc; i++) known = known && is_group(argv[i]);
  for (size_t i = 0; known && status == 0 && i < count; i++) {
    hr_kernels t;
    /* The definition has no limit of its own: only when asked for. */
    if (isa ? strcmp(isa, tier[i].name) != 0 : i == 0) continue;
    if (!hr_kernels_select(&t, hr_cpu_features(), tier[i].name)) continue;
    any = true;
    status = run_tier(&t, argc - at, argv + at);
  }
  print_busy();
  free(run.row);
  if (!any) fputs("usage: kernels [--isa NAME] [q8|float|attention|decode|row...]\n", stderr);
  return any ? status : 2;
}
