/* SPDX-License-Identifier: MIT
 * headrow bench --kernels: every kernel beside what limits it. */
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "kernels/select.h"

enum { MOST_ROWS = 4096 };

/* One group of one tier, and where it stands among all. */
typedef struct gathering {
  bench *b;
  cli_progress *progress; /* NULL: none is shown */
  double done;
  bool full;
} gathering;

static bool gather(void *data, const perf_kernel_row *row) {
  gathering *g = data;
  if (g->b->kernels == MOST_ROWS) {
    g->full = true;
    return false;
  }
  g->b->kernel[g->b->kernels++] = *row;
  return cli_report_progress(g->progress, g->done);
}

static size_t group_count(void) {
  size_t count = 0;
  while (perf_kernel_groups[count]) count++;
  return count;
}

/* Without --isa the portable tier is left out: it takes minutes and no machine is
 * measured by it. */
static bool is_wanted(const char *isa, const char *tier) {
  if (!isa) return strcmp(tier, "portable") != 0;
  return strcmp(isa, "all") == 0 || strcmp(isa, tier) == 0;
}

static int run_tier(gathering *g, const hr_kernels *table, size_t before, size_t all) {
  size_t groups = group_count();
  for (size_t i = 0; i < groups; i++) {
    g->done = (double)(before * groups + i) / (double)(all * groups);
    switch (perf_kernels(table, perf_kernel_groups[i], gather, g)) {
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

int bench_kernels(bench *b) {
  const cli_common *c = &b->set.common;
  size_t count, wanted = 0, done = 0;
  const hr_tier *tier = hr_tiers(&count);
  bool show, usable[BENCH_TIERS * 2] = {false};
  hr_kernels table;
  for (size_t i = 0; i < count && i < sizeof usable; i++) {
    usable[i] = is_wanted(c->isa, tier[i].name) &&
                hr_kernels_select(&table, hr_cpu_features(), tier[i].name);
    wanted += usable[i];
  }
  if (!wanted && !c->isa) wanted = usable[0] = true; /* this CPU has the definition alone */
  if (!wanted) {
    char names[128];
    hr_kernels_available(hr_cpu_features(), names, sizeof names);
    return cli_fail(HR_ERROR_USAGE,
                    "%s: '%.80s' is no kernel tier of this CPU, expected one of: %s", c->isa_from,
                    c->isa, names);
  }
  b->kernel = calloc(MOST_ROWS, sizeof *b->kernel);
  if (!b->kernel) return cli_fail_memory();
  cli_progress progress = bench_progress(b, "measuring kernels", &show);
  gathering g = {.b = b, .progress = show ? &progress : NULL};
  int status = HR_OK;
  for (size_t i = 0; i < count && status == HR_OK; i++)
    if (usable[i] && hr_kernels_select(&table, hr_cpu_features(), tier[i].name))
      status = run_tier(&g, &table, done++, wanted);
  cli_end_progress(&progress);
  if (status == HR_OK && !c->isa && !usable[0])
    bench_warn(b, "the portable tier is left out: --isa portable measures it");
  return status;
}
