/* SPDX-License-Identifier: MIT
 * How far two distributions over tokens are apart, and how sure a mean is. All
 * in double precision, from float logits; nothing here enters a logit. */
#ifndef HR_QUANT_MEASURES_H
#define HR_QUANT_MEASURES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ln of the sum of exp(logit). Logits are finite. */
double hr_log_sum_exp(const float *logits, size_t count);

/* The place of the largest logit, the first among equals. */
size_t hr_top(const float *logits, size_t count);

/* Kullback-Leibler divergence of q from p in nats, where p and q are the softmax of
 * the logits: sum of p * (ln p - ln q). It is added up as p * (e^d - 1 - d) with d =
 * ln q - ln p, which is the same because both sum to 1, has no negative term and
 * keeps its precision for distributions that are close. Exactly 0 for equal logits. */
double hr_divergence(const float *p, const float *q, size_t count);

/* The largest difference of two logits at the same place. */
double hr_largest_difference(const float *a, const float *b, size_t count);

/* A mean and its standard error; error is negative where there is nothing to tell it
 * from (one cluster). */
typedef struct hr_estimate {
  double value, error;
} hr_estimate;

/* Mean of count values. Neighbouring tokens are not independent, so the error comes
 * from the sums of clusters: with r_g the sum of x - mean over cluster g of G,
 * error = sqrt(G / (G - 1) * sum of r_g^2) / count. cluster[i] is the number of x[i]'s
 * cluster, in ascending order. */
hr_estimate hr_mean(const double *x, const uint32_t *cluster, size_t count);

/* The value that a share (0 to 1) of x is not above, with an error from a bootstrap:
 * the spread of that value over 200 draws of as many clusters as there are, always the
 * same draws. False when memory is out. */
bool hr_quantile(const double *x, const uint32_t *cluster, size_t count, double share,
                 hr_estimate *estimate);

/* How long clusters are in a text of so many tokens: a twentieth, 16 to 256. */
size_t hr_cluster_tokens(size_t tokens);

/* Numbers the clusters of tokens that come in the order of a text. Begin with zeros and
 * the length of a cluster. */
typedef struct hr_clusters {
  size_t length;       /* tokens of a cluster, see hr_cluster_tokens */
  size_t part, inside; /* of the last token: its part of the text, its place in the cluster */
  uint32_t number;     /* its cluster; 0: no token yet */
} hr_clusters;

/* The cluster of the next token, which lies in that part: no cluster reaches over two. */
uint32_t hr_next_cluster(hr_clusters *clusters, size_t part);

#endif
