/* SPDX-License-Identifier: MIT */
#include "quant/measures.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

size_t hr_top(const float *logits, size_t count) {
  size_t top = 0;
  for (size_t i = 1; i < count; i++)
    if (logits[i] > logits[top]) top = i;
  return top;
}

double hr_log_sum_exp(const float *logits, size_t count) {
  double most = (double)logits[hr_top(logits, count)], sum = 0;
  for (size_t i = 0; i < count; i++) sum += exp((double)logits[i] - most);
  return most + log(sum);
}

/* e^d - 1 - d; a series where the difference would cancel. */
static double excess(double d) {
  if (fabs(d) > 0.01) return expm1(d) - d;
  return d * d * (0.5 + d * (1.0 / 6 + d * (1.0 / 24 + d * (1.0 / 120 + d * (1.0 / 720)))));
}

/* p (e^d - 1 - d) with d = ln q - ln p. Where e^d would be large beside a p that is nearly
 * 0, in the form without the quotient of the two. */
static double divergence_term(double log_p, double log_q) {
  double d = log_q - log_p, p = exp(log_p);
  return d < 1 ? p * excess(d) : exp(log_q) - p - p * d;
}

double hr_divergence(const float *p, const float *q, size_t count) {
  double p_sum = hr_log_sum_exp(p, count), q_sum = hr_log_sum_exp(q, count), sum = 0;
  for (size_t i = 0; i < count; i++)
    sum += divergence_term((double)p[i] - p_sum, (double)q[i] - q_sum);
  return sum;
}

double hr_largest_difference(const float *a, const float *b, size_t count) {
  double most = 0;
  for (size_t i = 0; i < count; i++) {
    double d = fabs((double)a[i] - (double)b[i]);
    if (d > most) most = d; /* fmax here ends gcc 12 for aarch64 with an internal error */
  }
  return most;
}

size_t hr_cluster_tokens(size_t tokens) {
  size_t length = tokens / 20;
  return length < 16 ? 16 : length > 256 ? 256 : length;
}

uint32_t hr_next_cluster(hr_clusters *c, size_t part) {
  if (c->number == 0 || part != c->part || c->inside == c->length) {
    c->number++;
    c->inside = 0;
  }
  c->part = part;
  c->inside++;
  return c->number;
}

hr_estimate hr_mean(const double *x, const uint32_t *cluster, size_t count) {
  double sum = 0, squares = 0;
  size_t groups = 0;
  for (size_t i = 0; i < count; i++) sum += x[i];
  double mean = count ? sum / (double)count : 0;
  for (size_t i = 0; i < count; groups++) {
    double residual = 0;
    for (uint32_t c = cluster[i]; i < count && cluster[i] == c; i++) residual += x[i] - mean;
    squares += residual * residual;
  }
  double clusters = (double)groups;
  if (groups < 2) return (hr_estimate){mean, -1};
  return (hr_estimate){mean, sqrt(clusters / (clusters - 1) * squares) / (double)count};
}

/* --- Quantiles ----------------------------------------------------------------- */

enum { DRAWS = 200 };

typedef struct ranked {
  double value;
  uint32_t cluster;
} ranked;

static int by_value(const void *a, const void *b) {
  const ranked *x = a, *y = b;
  return x->value < y->value ? -1 : x->value > y->value;
}

/* weight: how often each cluster counts. */
static double weighted_quantile(const ranked *r, size_t count, const uint32_t *weight,
                                double share) {
  double total = 0, before = 0;
  for (size_t i = 0; i < count; i++) total += weight[r[i].cluster];
  for (size_t i = 0; i < count; i++) {
    before += weight[r[i].cluster];
    if (before >= share * total && before > 0) return r[i].value;
  }
  return r[count - 1].value;
}

static double spread(const ranked *r, size_t count, uint32_t *weight, uint32_t clusters,
                     double share) {
  uint64_t state = 1;
  double sum = 0, squares = 0;
  for (int d = 0; d < DRAWS; d++) {
    memset(weight, 0, clusters * sizeof *weight);
    for (uint32_t i = 0; i < clusters; i++) {
      state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
      weight[(state >> 33) % clusters]++;
    }
    double q = weighted_quantile(r, count, weight, share);
    sum += q;
    squares += q * q;
  }
  double mean = sum / DRAWS;
  return sqrt(fmax(0, squares / DRAWS - mean * mean) * DRAWS / (DRAWS - 1.0));
}

bool hr_quantile(const double *x, const uint32_t *cluster, size_t count, double share,
                 hr_estimate *estimate) {
  *estimate = (hr_estimate){0, -1};
  if (!count) return true;
  uint32_t clusters = 0;
  ranked *r = hr_calloc(count, sizeof *r);
  uint32_t *weight = hr_calloc(count, sizeof *weight);
  if (!r || !weight) {
    hr_free(r);
    hr_free(weight);
    return false;
  }
  for (size_t i = 0; i < count; i++) { /* numbered anew, from 0 without gaps */
    if (i && cluster[i] != cluster[i - 1]) clusters++;
    r[i] = (ranked){x[i], clusters};
  }
  clusters++;
  qsort(r, count, sizeof *r, by_value);
  for (uint32_t i = 0; i < clusters; i++) weight[i] = 1;
  estimate->value = weighted_quantile(r, count, weight, share);
  if (clusters > 1) estimate->error = spread(r, count, weight, clusters, share);
  hr_free(r);
  hr_free(weight);
  return true;
}
