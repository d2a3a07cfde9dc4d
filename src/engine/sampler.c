/* SPDX-License-Identifier: MIT
 * Choosing the next token. Candidates are cut by top-k, top-p and min-p on the
 * model's own probabilities, in this order; then the temperature shapes what is
 * left and one is drawn. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "engine/engine.h"
#include "engine/options.h"
#include "sched/fpenv.h"

typedef struct candidate {
  float logit;
  int32_t id;
} candidate;

struct hr_sampler {
  hr_sampler_options options;
  const hr_kernels *kernels;
  size_t vocab;
  candidate *candidates; /* [vocab] */
  float *probability;    /* [vocab] */
  float *penalized;      /* [vocab] */
  int32_t *recent;       /* ring of the last repeat_last tokens */
  size_t recent_count, recent_next;
  uint64_t state[4];     /* xoshiro256**, Blackman and Vigna 2018 */
};

static const hr_sampler_options default_options = {.size = sizeof default_options,
                                                   .temperature = 0.8f,
                                                   .top_k = 40,
                                                   .top_p = 0.95f,
                                                   .min_p = 0.05f,
                                                   .repeat_penalty = 1.0f,
                                                   .repeat_last = 64};

void hr_sampler_options_fill(hr_sampler_options *options, size_t size) {
  hr_options_fill(options, size, &default_options, sizeof default_options);
}

/* splitmix64 spreads the seed over the state. */
static void seed_state(uint64_t state[4], uint64_t seed) {
  for (int i = 0; i < 4; i++) {
    uint64_t z = seed += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    state[i] = z ^ z >> 31;
  }
}

static uint64_t rotate(uint64_t x, int k) {
  return x << k | x >> (64 - k);
}

/* Uniform in [0, 1), 53 bits. */
static double draw(uint64_t s[4]) {
  uint64_t result = rotate(s[1] * 5, 7) * 9, t = s[1] << 17;
  s[2] ^= s[0];
  s[3] ^= s[1];
  s[1] ^= s[2];
  s[0] ^= s[3];
  s[2] ^= t;
  s[3] = rotate(s[3], 45);
  return (double)(result >> 11) * 0x1p-53;
}

static hr_status check_options(const hr_sampler_options *o, hr_error *err) {
  if (!(o->temperature >= 0.0f) || !isfinite(o->temperature))
    return hr_fail(err, HR_ERROR_USAGE, "temperature is %g, expected 0 or more",
                   (double)o->temperature);
  if (o->top_k < 0)
    return hr_fail(err, HR_ERROR_USAGE, "top-k is %d, expected 0 or more", o->top_k);
  if (!(o->top_p > 0.0f && o->top_p <= 1.0f))
    return hr_fail(err, HR_ERROR_USAGE, "top-p is %g, expected more than 0, at most 1",
                   (double)o->top_p);
  if (!(o->min_p >= 0.0f && o->min_p <= 1.0f))
    return hr_fail(err, HR_ERROR_USAGE, "min-p is %g, expected 0 to 1", (double)o->min_p);
  if (!(o->repeat_penalty > 0.0f) || !isfinite(o->repeat_penalty))
    return hr_fail(err, HR_ERROR_USAGE, "repeat penalty is %g, expected more than 0",
                   (double)o->repeat_penalty);
  return HR_OK;
}

hr_sampler *hr_sampler_create(const hr_model *model, const hr_sampler_options *given,
                              hr_error *err) {
  HR_FPENV_OWN;
  hr_sampler_options options = default_options;
  if (hr_options_take(&options, sizeof options, given, "hr_sampler_options", err) != HR_OK ||
      check_options(&options, err) != HR_OK)
    return NULL;
  if (hr_model_vocab_size(model) == 0) {
    hr_fail(err, HR_ERROR_USAGE, "%s: has no vocabulary to choose from, expected a model",
            model->path);
    return NULL;
  }
  hr_sampler *s = hr_calloc(1, sizeof *s);
  if (!s) {
    hr_fail_memory(err, "sampler", sizeof *s);
    return NULL;
  }
  s->options = options;
  s->kernels = &model->kernels;
  s->vocab = hr_model_vocab_size(model);
  s->candidates = hr_calloc(s->vocab, sizeof *s->candidates);
  s->probability = hr_calloc(s->vocab, sizeof *s->probability);
  s->penalized = hr_calloc(s->vocab, sizeof *s->penalized);
  s->recent = hr_calloc(options.repeat_last, sizeof *s->recent);
  if (!s->candidates || !s->probability || !s->penalized || !s->recent) {
    hr_fail_memory(err, "sampler", s->vocab * sizeof *s->candidates);
    hr_sampler_free(s);
    return NULL;
  }
  seed_state(s->state, options.seed);
  return s;
}

void hr_sampler_free(hr_sampler *s) {
  if (!s) return;
  hr_free(s->candidates);
  hr_free(s->probability);
  hr_free(s->penalized);
  hr_free(s->recent);
  hr_free(s);
}

void hr_sampler_accept(hr_sampler *s, int32_t id) {
  if (s->options.repeat_last == 0) return;
  s->recent[s->recent_next] = id;
  s->recent_next = (s->recent_next + 1) % s->options.repeat_last;
  if (s->recent_count < s->options.repeat_last) s->recent_count++;
}

static bool seen_before(const hr_sampler *s, size_t index) {
  for (size_t i = 0; i < index; i++)
    if (s->recent[i] == s->recent[index]) return true;
  return false;
}

/* Each recent token once, however often it came. */
static const float *penalize(hr_sampler *s, const float *logits) {
  if (s->options.repeat_penalty == 1.0f) return logits;
  memcpy(s->penalized, logits, s->vocab * sizeof *logits);
  for (size_t i = 0; i < s->recent_count; i++) {
    int32_t id = s->recent[i];
    if (id < 0 || (size_t)id >= s->vocab || seen_before(s, i)) continue;
    float *x = &s->penalized[id];
    *x = *x > 0.0f ? *x / s->options.repeat_penalty : *x * s->options.repeat_penalty;
    if (isinf(*x)) *x = copysignf(FLT_MAX, *x); /* differences must stay numbers */
  }
  return s->penalized;
}

/* Larger logits first, lower ids first among equals. */
static bool before(candidate a, candidate b) {
  return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

/* heap[0] is the one to go first when a better one comes: the worst. */
static void sift_down(candidate *heap, size_t n, size_t i) {
  for (;;) {
    size_t worst = i, left = 2 * i + 1;
    if (left < n && before(heap[worst], heap[left])) worst = left;
    if (left + 1 < n && before(heap[worst], heap[left + 1])) worst = left + 1;
    if (worst == i) return;
    candidate t = heap[i];
    heap[i] = heap[worst];
    heap[worst] = t;
    i = worst;
  }
}

/* The k best candidates in order; k of n in O(n log k). */
static void best(candidate *c, const float *logits, size_t n, size_t k) {
  for (size_t i = 0; i < k; i++) c[i] = (candidate){logits[i], (int32_t)i};
  for (size_t i = k / 2; i-- > 0;) sift_down(c, k, i);
  for (size_t i = k; i < n; i++) {
    candidate next = {logits[i], (int32_t)i};
    if (!before(next, c[0])) continue;
    c[0] = next;
    sift_down(c, k, 0);
  }
  for (size_t end = k; end-- > 1;) { /* worst to the back, one by one */
    candidate t = c[0];
    c[0] = c[end];
    c[end] = t;
    sift_down(c, end, 0);
  }
}

/* Of n candidates, best first. Their distance to the best is divided: a tiny
 * temperature would make infinities of the logits themselves. */
static void probabilities(hr_sampler *s, size_t n, float temperature) {
  float top = s->candidates[0].logit;
  for (size_t i = 0; i < n; i++) s->probability[i] = (s->candidates[i].logit - top) / temperature;
  s->kernels->softmax(s->probability, n);
}

/* How many of n candidates, best first, top-p and min-p leave. */
static size_t cut(const hr_sampler *s, size_t n) {
  const hr_sampler_options *o = &s->options;
  double sum = 0;
  size_t kept = n;
  for (size_t i = 0; i < n && o->top_p < 1.0f; i++) {
    sum += (double)s->probability[i];
    if (sum >= (double)o->top_p) {
      kept = i + 1;
      break;
    }
  }
  while (kept > 1 && s->probability[kept - 1] < o->min_p * s->probability[0]) kept--;
  return kept;
}

/* Index of the largest value, the first of equals. Compilers make vectors of the
 * question whether a block holds something larger, which few blocks do. */
static size_t first_largest(const float *x, size_t n) {
  enum { BLOCK = 64 };
  size_t top = 0;
  for (size_t i = 0; i < n; i += BLOCK) {
    size_t end = n - i < BLOCK ? n : i + BLOCK;
    float most = x[top];
    int larger = 0;
    for (size_t j = i; j < end; j++) larger |= x[j] > most;
    for (size_t j = i; larger && j < end; j++)
      if (x[j] > x[top]) top = j;
  }
  return top;
}

int32_t hr_sampler_pick(hr_sampler *s, const float *logits, hr_error *err) {
  HR_FPENV_OWN;
  if (!hr_all_finite(logits, s->vocab)) {
    size_t i = 0;
    while (isfinite(logits[i])) i++;
    hr_fail(err, HR_ERROR_NUMERIC, "the logit of token %zu is %s, expected a finite number", i,
            isnan(logits[i]) ? "NaN" : "infinite");
    return -1;
  }
  logits = penalize(s, logits);
  if (s->options.temperature == 0.0f) return (int32_t)first_largest(logits, s->vocab);
  size_t n = s->vocab;
  if (s->options.top_k > 0 && (size_t)s->options.top_k < n) n = (size_t)s->options.top_k;
  best(s->candidates, logits, s->vocab, n);
  probabilities(s, n, 1.0f);
  n = cut(s, n);
  probabilities(s, n, s->options.temperature);

  double total = 0, sum = 0;
  for (size_t i = 0; i < n; i++) total += (double)s->probability[i];
  double target = draw(s->state) * total;
  for (size_t i = 0; i < n; i++) {
    sum += (double)s->probability[i];
    if (target < sum) return s->candidates[i].id;
  }
  return s->candidates[n - 1].id;
}
