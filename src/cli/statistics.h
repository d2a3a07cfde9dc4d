/* SPDX-License-Identifier: MIT
 * What is said of a handful of samples. */
#ifndef HR_CLI_STATISTICS_H
#define HR_CLI_STATISTICS_H

#include <stddef.h>

typedef struct cli_statistics {
  size_t count;
  double least, most, median, mean;
  double p95; /* 95 % of the samples are at most this, by linear interpolation */
  double sd;  /* of the population that they were drawn from; 0 for fewer than two */
} cli_statistics;

/* All zero for no samples. The samples, which are finite, are put in order. */
cli_statistics cli_statistics_of(double *samples, size_t count);

/* The value below which that share (0 to 1) of the ordered samples lies. */
double cli_quantile(const double *ordered, size_t count, double share);

#endif
