/* SPDX-License-Identifier: MIT */
#include "block/position.h"

#include <math.h>
#include <stdbool.h>

/* --- Numbers of two doubles -----------------------------------------------
 * high + low with |low| <= half an ulp of high (Dekker 1971). Without fma, so
 * that every machine computes the same. */

typedef hr_frequency pair;

static pair two_sum(double a, double b) {
  double s = a + b, t = s - a;
  return (pair){s, (a - (s - t)) + (b - t)};
}

static pair two_product(double a, double b) {
  const double split = 134217729.0; /* 2^27 + 1 */
  double ta = a * split, tb = b * split;
  double ah = ta - (ta - a), bh = tb - (tb - b), al = a - ah, bl = b - bh;
  double p = a * b;
  return (pair){p, ((ah * bh - p) + ah * bl + al * bh) + al * bl};
}

static pair add(pair a, pair b) {
  pair s = two_sum(a.high, b.high);
  return two_sum(s.high, s.low + (a.low + b.low));
}

static pair multiply(pair a, pair b) {
  pair p = two_product(a.high, b.high);
  return two_sum(p.high, p.low + (a.high * b.low + a.low * b.high));
}

static pair divide(pair a, pair b) {
  double q = a.high / b.high;
  pair r = multiply((pair){q, 0}, b);
  pair rest = add(a, (pair){-r.high, -r.low});
  return two_sum(q, rest.high / b.high);
}

static const pair LN2 = {0x1.62e42fefa39efp-1, 0x1.abc9e3b39803fp-56};
static const pair HALF_PI = {0x1.921fb54442d18p+0, 0x1.1a62633145c07p-54};
static const double HALF_PI_THIRD = -0x1.f1976b7ed8fbcp-110;

/* e^x for x <= 0 by halving the argument until the series is short. */
static pair exp_pair(pair x) {
  int n = (int)(x.high / LN2.high - 0.5);
  pair r = add(x, multiply((pair){-(double)n, 0}, LN2));
  enum { HALVINGS = 6, TERMS = 16 };
  pair s = {r.high / 64, r.low / 64}, sum = {1, 0}, term = {1, 0};
  for (int i = 1; i <= TERMS; i++) {
    term = divide(multiply(term, s), (pair){i, 0});
    sum = add(sum, term);
  }
  for (int i = 0; i < HALVINGS; i++) sum = multiply(sum, sum);
  for (; n < 0; n++) sum = (pair){sum.high / 2, sum.low / 2};
  return sum;
}

/* log x for x >= 1: x = m 2^n with m near 1, then 2 artanh((m - 1) / (m + 1)). */
static pair log_pair(double x) {
  int n = 0;
  while (x > 1.4142135623730951) {
    x /= 2;
    n++;
  }
  pair z = divide(two_sum(x, -1), two_sum(x, 1)), square = multiply(z, z);
  pair power = z, sum = {0, 0};
  for (int i = 1; i < 60; i += 2) {
    sum = add(sum, divide(power, (pair){i, 0}));
    power = multiply(power, square);
  }
  return add((pair){2 * sum.high, 2 * sum.low}, multiply((pair){n, 0}, LN2));
}

void hr_frequencies(double base, size_t width, hr_frequency *out) {
  pair log_base = log_pair(base);
  for (size_t i = 0; i < width / 2; i++) {
    pair exponent = divide((pair){-2.0 * (double)i, 0}, (pair){(double)width, 0});
    out[i] = i == 0 ? (pair){1, 0} : exp_pair(multiply(exponent, log_base));
  }
}

void hr_stretch_frequencies(hr_frequency *frequency, const float *factor, size_t count) {
  for (size_t i = 0; i < count; i++)
    frequency[i] = divide(frequency[i], (pair){(double)factor[i], 0});
}

/* sin and cos on |r| <= pi / 4 by their Taylor series, in one double. The low
 * part of r enters by its first derivative. */
static void sin_cos_small(pair r, double *sin, double *cos) {
  double x = r.high, z = x * x, s = 0, c = 0;
  for (int i = 17; i > 1; i -= 2) s = (1.0 - s) * z / (double)(i * (i - 1));
  for (int i = 18; i > 0; i -= 2) c = (1.0 - c) * z / (double)(i * (i - 1));
  double sine = x - x * s, cosine = 1.0 - c;
  *sin = sine + r.low * cosine;
  *cos = cosine - r.low * sine;
}

/* position * frequency less the nearest multiple of pi / 2; *quadrant is that
 * multiple modulo 4. */
static pair reduce(pair frequency, uint32_t position, unsigned *quadrant) {
  pair angle = multiply(frequency, (pair){position, 0});
  double n = floor(angle.high / HALF_PI.high + 0.5);
  pair r = add(angle, multiply((pair){-n, 0}, HALF_PI));
  r = add(r, two_product(-n, HALF_PI_THIRD));
  *quadrant = (unsigned)(n - 4 * floor(n / 4));
  return r;
}

void hr_angles(const hr_frequency *frequency, size_t count, uint32_t position, float *cos,
               float *sin) {
  for (size_t i = 0; i < count; i++) {
    unsigned quadrant;
    double s, c;
    sin_cos_small(reduce(frequency[i], position, &quadrant), &s, &c);
    double sine = quadrant & 1 ? c : s, cosine = quadrant & 1 ? s : c;
    sin[i] = (float)(quadrant >= 2 ? -sine : sine);
    cos[i] = (float)(quadrant == 1 || quadrant == 2 ? -cosine : cosine);
  }
}

void hr_sinusoid(const hr_frequency *frequency, size_t width, uint32_t position, float *row) {
  for (size_t i = 0; i < width / 2; i++)
    hr_angles(frequency + i, 1, position, &row[2 * i + 1], &row[2 * i]);
  if (width % 2) row[width - 1] = 0.0f;
}

/* 2^(-s i / n) for a power of two n: s i / n is exact for the usual s = 8. */
static float slope_of(size_t i, size_t n, double s) {
  pair exponent = divide((pair){-s * (double)i, 0}, (pair){(double)n, 0});
  return (float)exp_pair(multiply(exponent, LN2)).high;
}

void hr_alibi_slopes(size_t heads, double steepness, float *slope) {
  size_t power = 1;
  while (power * 2 <= heads) power *= 2;
  for (size_t i = 0; i < heads; i++)
    slope[i] = i < power ? slope_of(i + 1, power, steepness)
                         : slope_of(2 * (i - power) + 1, 2 * power, steepness);
}

/* --- RoPE on longer texts than those of the first training ------------------- */

static const double TWO_PI = 0x1.921fb54442d18p+2;

/* ln x for x > 0, in one double. */
static double log_of(double x) {
  return x >= 1 ? log_pair(x).high : -log_pair(1 / x).high;
}

static double clamp(double x, double low, double high) {
  return x < low ? low : x > high ? high : x;
}

/* The pair that makes so many full turns within the original context. */
static double pair_of_turns(const hr_description *d, double turns) {
  return d->rope_width * log_of(d->rope_scaling.original_context / (turns * TWO_PI)) /
         (2 * log_of(d->rope_base));
}

/* f / factor where keep is 0, f where it is 1. */
static void stretch(hr_frequency *f, double factor, double keep) {
  *f = multiply(*f, (pair){(1 - keep) / factor + keep, 0});
}

static void stretch_yarn(const hr_description *d, hr_frequency *f) {
  const hr_rope_scaling *s = &d->rope_scaling;
  double low = clamp(floor(pair_of_turns(d, s->high)), 0, d->rope_width - 1);
  double high = clamp(ceil(pair_of_turns(d, s->low)), 0, d->rope_width - 1);
  double wide = high > low ? high - low : 0.001;
  for (uint32_t i = 0; i < d->rope_width / 2; i++)
    stretch(&f[i], s->factor, 1 - clamp((i - low) / wide, 0, 1));
}

static void stretch_llama3(const hr_description *d, hr_frequency *f) {
  const hr_rope_scaling *s = &d->rope_scaling;
  for (uint32_t i = 0; i < d->rope_width / 2; i++) {
    double turns = s->original_context * f[i].high / TWO_PI;
    stretch(&f[i], s->factor, clamp((turns - s->low) / (s->high - s->low), 0, 1));
  }
}

void hr_rope_frequencies(const hr_transformer *model, size_t positions, hr_frequency *out) {
  const hr_description *d = &model->description;
  const hr_rope_scaling *s = &d->rope_scaling;
  hr_frequencies(d->rope_base, d->rope_width, out);
  bool far = s->kind == HR_ROPE_SCALING_LONG && (double)positions > s->original_context;
  const float *factors = far ? model->rope_long_factors : model->rope_factors;
  if (factors) hr_stretch_frequencies(out, factors, d->rope_width / 2);
  switch (s->kind) {
    case HR_ROPE_SCALING_LINEAR:
      for (uint32_t i = 0; i < d->rope_width / 2; i++)
        out[i] = divide(out[i], (pair){s->factor, 0});
      break;
    case HR_ROPE_SCALING_LLAMA3: stretch_llama3(d, out); break;
    case HR_ROPE_SCALING_YARN: stretch_yarn(d, out); break;
    case HR_ROPE_SCALING_LONG:
    case HR_ROPE_SCALING_NONE: break;
  }
}

float hr_rope_magnitude(const hr_rope_scaling *s) {
  if (s->magnitude > 0) return (float)s->magnitude;
  if (s->factor <= 1) return 1.0f;
  if (s->kind == HR_ROPE_SCALING_YARN) return (float)(0.1 * log_of(s->factor) + 1);
  if (s->kind == HR_ROPE_SCALING_LONG)
    return (float)sqrt(1 + log_of(s->factor) / log_of(s->original_context));
  return 1.0f;
}
