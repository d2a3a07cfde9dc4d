/* SPDX-License-Identifier: MIT */
#include "statistics.h"

#include <math.h>
#include <stdlib.h>

static int compare(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

double cli_quantile(const double *ordered, size_t count, double share) {
  if (count == 0) return 0;
  double place = share * (double)(count - 1);
  size_t below = (size_t)place;
  if (below + 1 >= count) return ordered[count - 1];
  double part = place - (double)below;
  return ordered[below] + part * (ordered[below + 1] - ordered[below]);
}

/* In two passes: the sum of squares alone would lose what is small beside the mean. */
static double deviation(const double *samples, size_t count, double mean) {
  double sum = 0;
  if (count < 2) return 0;
  for (size_t i = 0; i < count; i++) sum += (samples[i] - mean) * (samples[i] - mean);
  return sqrt(sum / (double)(count - 1));
}

cli_statistics cli_statistics_of(double *samples, size_t count) {
  cli_statistics s = {.count = count};
  if (count == 0) return s;
  qsort(samples, count, sizeof *samples, compare);
  double sum = 0;
  for (size_t i = 0; i < count; i++) sum += samples[i];
  s.mean = sum / (double)count;
  s.least = samples[0];
  s.most = samples[count - 1];
  s.median = cli_quantile(samples, count, 0.5);
  s.p95 = cli_quantile(samples, count, 0.95);
  s.sd = deviation(samples, count, s.mean);
  return s;
}
