/* SPDX-License-Identifier: MIT
 * Norms, activations, elementary functions, softmax, arithmetic, conversions. */
#include <string.h>

#include "tests/kernels/harness.h"

static const size_t lengths[] = {1,  2,  7,  8,  9,  15, 16, 17,  23,  24,  31,  32,  33,
                                 47, 48, 49, 63, 64, 65, 80, 100, 128, 255, 576, 1000};
enum { LENGTHS = sizeof lengths / sizeof *lengths, TYPICAL_LENGTH = 1024 };

static size_t length_of(uint64_t seed) {
  return seed == HR_TYPICAL ? TYPICAL_LENGTH : lengths[seed % LENGTHS];
}

typedef struct norm_call {
  const hr_kernels *t;
  bool layer;
  const float *x, *gain, *shift;
  size_t n;
  float eps, *y;
} norm_call;

static void call_norm(const void *operands) {
  const norm_call *o = operands;
  if (o->layer)
    o->t->layer_norm(o->x, o->n, o->gain, o->shift, o->eps, o->y);
  else
    o->t->rms_norm(o->x, o->n, o->gain, o->eps, o->y);
}

static void check_norm(const hr_kernels *ref, const hr_kernels *tested, bool layer, uint64_t seed,
                       hr_report *report) {
  static const float epsilons[] = {1e-5f, 1e-6f, 0.0f, 1e-12f};
  hr_random random = {seed};
  size_t n = length_of(seed);
  bool typical = seed == HR_TYPICAL, with_gain = typical || seed & 1, with_shift = seed & 2;
  float eps = epsilons[hr_random_below(&random, 4)];
  hr_values kind =
      typical || seed % 3 ? HR_VALUES_PLAIN : (hr_values)hr_random_below(&random, HR_VALUES_KINDS);
  hr_buffer x = hr_buffer_new(n * 4, 4), y = hr_buffer_new(n * 4, 8);
  hr_buffer gain = hr_buffer_new(n * 4, 4), shift = hr_buffer_new(n * 4, 4);
  hr_buffer expected = hr_buffer_new(n * 4, 0), *out = seed & 4 ? &x : &y;
  hr_fill_floats(&random, x.data, n, kind);
  hr_fill_floats(&random, gain.data, n, typical || seed % 7 ? HR_VALUES_PLAIN : HR_VALUES_ANY);
  hr_fill_floats(&random, shift.data, n, seed % 5 ? HR_VALUES_PLAIN : HR_VALUES_TINY);
  hr_buffer_keep(&x);
  hr_buffer_keep(&gain);
  hr_buffer_keep(&shift);
  norm_call a = {ref, layer, x.data, with_gain ? gain.data : NULL, with_shift ? shift.data : NULL,
                 n, eps, expected.data}, b = a;
  b.t = tested;
  b.y = out->data;
  hr_case c = hr_case_new(report, layer ? tested->name.layer_norm : tested->name.rms_norm, seed,
                          "n=%zu gain=%d shift=%d in_place=%d kind=%d", n, with_gain, with_shift,
                          out == &x, (int)kind);
  hr_case_run(&c, call_norm, &a, &b);
  hr_expect_floats(&c, "y", &expected, out);
  if (out != &x) hr_expect_kept(&c, "x", &x);
  hr_expect_kept(&c, "gain", &gain);
  hr_expect_kept(&c, "shift", &shift);
  hr_case_end(&c);
  hr_buffer_free(&x);
  hr_buffer_free(&y);
  hr_buffer_free(&gain);
  hr_buffer_free(&shift);
  hr_buffer_free(&expected);
}

bool hr_check_norm(const hr_kernels *ref, const hr_kernels *tested, hr_report *report) {
  bool no_rms = hr_passed_over(report, ref->rms_norm == tested->rms_norm);
  bool no_layer = hr_passed_over(report, ref->layer_norm == tested->layer_norm);
  for (uint64_t seed = HR_TYPICAL; seed <= 600; seed++) {
    if (!no_rms) check_norm(ref, tested, false, seed, report);
    if (!no_layer) check_norm(ref, tested, true, seed, report);
  }
  return report->failures == 0;
}

/* Numbers around which the elementary functions change their form. */
static const float edges[] = {0.6f, 0.93f, 3.9192059f, 0x1.62e42ep+6f, -0x1.5d589ep+6f, 0.5f,
                              88.0f, -88.0f, 44.361f, -43.668f, 0.34657f, 103.97f};

static void fill_for_functions(hr_random *random, float *x, size_t n, size_t kind) {
  if (kind < HR_VALUES_KINDS) {
    hr_fill_floats(random, x, n, (hr_values)kind);
    return;
  }
  for (size_t i = 0; i < n; i++) { /* a few units in the last place about an edge */
    float edge = edges[hr_random_below(random, sizeof edges / sizeof *edges)];
    uint32_t bits;
    memcpy(&bits, &edge, 4);
    bits += (uint32_t)hr_random_below(random, 9) - 4u;
    bits ^= (uint32_t)(hr_random_next(random) & 0x80000000u);
    memcpy(&x[i], &bits, 4);
    if (kind == HR_VALUES_KINDS + 1) x[i] = hr_random_unit(random) * 100.0f;
  }
}

/* Where y is: its own buffer or that of an input. */
typedef enum place { APART, OVER_X, OVER_UP } place;

typedef struct activation_call {
  hr_activation_fn *slot;
  const float *x, *up;
  float *y;
  size_t n;
} activation_call;

static void call_activation(const void *operands) {
  const activation_call *o = operands;
  o->slot(o->x, o->up, o->y, o->n);
}

static void check_activation_once(hr_activation_fn *of_ref, hr_activation_fn *tested,
                                  const char *name, uint64_t seed, hr_report *report) {
  hr_random random = {seed};
  size_t n = length_of(seed), kind = seed / 3 % (HR_VALUES_KINDS + 2);
  bool typical = seed == HR_TYPICAL, gated = typical || seed & 1;
  place where = (place)hr_random_below(&random, gated ? 3 : 2);
  if (typical) where = APART;
  hr_buffer x = hr_buffer_new(n * 4, 4), up = hr_buffer_new(n * 4, 8), y = hr_buffer_new(n * 4, 4);
  hr_buffer expected = hr_buffer_new(n * 4, 0);
  fill_for_functions(&random, x.data, n, kind);
  hr_fill_floats(&random, up.data, n,
                 seed % 5 ? HR_VALUES_PLAIN : (hr_values)(seed / 5 % HR_VALUES_KINDS));
  hr_buffer_keep(&x);
  hr_buffer_keep(&up);
  hr_buffer *out = where == OVER_X ? &x : where == OVER_UP ? &up : &y;
  activation_call a = {of_ref, x.data, gated ? up.data : NULL, expected.data, n}, b = a;
  b.slot = tested;
  b.y = out->data;
  hr_case c = hr_case_new(report, name, seed, "n=%zu gated=%d place=%d kind=%zu", n, gated,
                          (int)where, kind);
  hr_case_run(&c, call_activation, &a, &b);
  hr_expect_floats(&c, "y", &expected, out);
  if (where != OVER_X) hr_expect_kept(&c, "x", &x);
  if (where != OVER_UP) hr_expect_kept(&c, "up", &up);
  hr_case_end(&c);
  hr_buffer_free(&x);
  hr_buffer_free(&up);
  hr_buffer_free(&y);
  hr_buffer_free(&expected);
}

static void check_activation_slot(hr_activation_fn *of_ref, hr_activation_fn *tested,
                                  const char *name, hr_report *report) {
  if (hr_passed_over(report, of_ref == tested)) return;
  for (uint64_t seed = HR_TYPICAL; seed <= 500; seed++)
    check_activation_once(of_ref, tested, name, seed, report);
}

bool hr_check_activation(const hr_kernels *ref, const hr_kernels *tested, hr_report *report) {
#define SLOT(slot) check_activation_slot(ref->slot, tested->slot, tested->name.slot, report)
  SLOT(relu);
  SLOT(relu2);
  SLOT(silu);
  SLOT(gelu_erf);
  SLOT(gelu_tanh);
  SLOT(gelu_quick);
#undef SLOT
  return report->failures == 0;
}

typedef struct map_call {
  hr_map_fn *slot;
  const float *x;
  float *y;
  size_t n;
} map_call;

static void call_map(const void *operands) {
  const map_call *o = operands;
  o->slot(o->x, o->y, o->n);
}

static void check_map_once(hr_map_fn *of_ref, hr_map_fn *tested, const char *name, size_t n,
                           size_t kind, uint64_t seed, hr_report *report) {
  hr_random random = {seed};
  bool over = seed & 1;
  hr_buffer x = hr_buffer_new(n * 4, 4), y = hr_buffer_new(n * 4, 8);
  hr_buffer expected = hr_buffer_new(n * 4, 0);
  fill_for_functions(&random, x.data, n, kind);
  hr_buffer_keep(&x);
  hr_buffer *out = over ? &x : &y;
  map_call a = {of_ref, x.data, expected.data, n}, b = {tested, x.data, out->data, n};
  hr_case c = hr_case_new(report, name, seed, "n=%zu in_place=%d kind=%zu", n, over, kind);
  hr_case_run(&c, call_map, &a, &b);
  hr_expect_floats(&c, "y", &expected, out);
  if (!over) hr_expect_kept(&c, "x", &x);
  hr_case_end(&c);
  hr_buffer_free(&x);
  hr_buffer_free(&y);
  hr_buffer_free(&expected);
}

static void check_map_slot(hr_map_fn *of_ref, hr_map_fn *tested, const char *name,
                           hr_report *report) {
  if (hr_passed_over(report, of_ref == tested)) return;
  for (uint64_t seed = HR_TYPICAL; seed <= 400; seed++)
    check_map_once(of_ref, tested, name, length_of(seed), seed / 3 % (HR_VALUES_KINDS + 2), seed,
                   report);
  check_map_once(of_ref, tested, name, 40000, HR_VALUES_ANY, 1001, report);
  check_map_once(of_ref, tested, name, 40000, HR_VALUES_KINDS + 1, 1002, report);
}

bool hr_check_elementary(const hr_kernels *ref, const hr_kernels *tested, hr_report *report) {
#define SLOT(slot) check_map_slot(ref->slot, tested->slot, tested->name.slot, report)
  SLOT(exp);
  SLOT(tanh);
  SLOT(erf);
  SLOT(sigmoid);
#undef SLOT
  return report->failures == 0;
}

typedef struct softmax_call {
  hr_softmax_fn *slot;
  float *x;
  size_t n;
} softmax_call;

static void call_softmax(const void *operands) {
  const softmax_call *o = operands;
  o->slot(o->x, o->n);
}

bool hr_check_softmax(const hr_kernels *ref, const hr_kernels *tested, hr_report *report) {
  if (hr_passed_over(report, ref->softmax == tested->softmax)) return true;
  for (uint64_t seed = HR_TYPICAL; seed <= 500; seed++) {
    hr_random random = {seed};
    size_t n = length_of(seed), kind = seed / 2 % (HR_VALUES_KINDS + 2);
    hr_buffer expected = hr_buffer_new(n * 4, 4), x = hr_buffer_new(n * 4, 4);
    fill_for_functions(&random, expected.data, n, kind);
    if (seed && seed % 17 == 0) /* all masked, all NaN */
      for (size_t i = 0; i < n; i++)
        ((float *)expected.data)[i] = seed % 2 ? -__builtin_inff() : __builtin_nanf("");
    hr_buffer_same(&x, &expected);
    softmax_call a = {ref->softmax, expected.data, n}, b = {tested->softmax, x.data, n};
    hr_case c = hr_case_new(report, tested->name.softmax, seed, "n=%zu kind=%zu", n, kind);
    hr_case_run(&c, call_softmax, &a, &b);
    hr_expect_floats(&c, "x", &expected, &x);
    hr_case_end(&c);
    hr_buffer_free(&expected);
    hr_buffer_free(&x);
  }
  return report->failures == 0;
}

/* One of add, and scale or divide by x[0]. */
typedef struct arithmetic_call {
  hr_add_fn *add;
  hr_scale_fn *scale;
  float *y;
  const float *x;
  size_t n;
} arithmetic_call;

static void call_arithmetic(const void *operands) {
  const arithmetic_call *o = operands;
  if (o->add)
    o->add(o->y, o->x, o->n);
  else
    o->scale(o->y, o->x[0], o->n);
}

static void check_arithmetic(arithmetic_call of_ref, arithmetic_call tested, const char *name,
                             hr_report *report) {
  bool shared = of_ref.add == tested.add && of_ref.scale == tested.scale;
  for (uint64_t seed = HR_TYPICAL; seed <= 900 && !hr_passed_over(report, shared); seed++) {
    hr_random random = {seed};
    size_t n = length_of(seed);
    hr_buffer expected = hr_buffer_new(n * 4, 4), y = hr_buffer_new(n * 4, 4);
    hr_buffer x = hr_buffer_new(n * 4, 8);
    hr_fill_floats(&random, expected.data, n, (hr_values)(seed % HR_VALUES_KINDS));
    hr_fill_floats(&random, x.data, n, (hr_values)(seed / HR_VALUES_KINDS % HR_VALUES_KINDS));
    if (seed == HR_TYPICAL) *(float *)x.data = -1.0f; /* however often */
    hr_buffer_same(&y, &expected);
    hr_buffer_keep(&x);
    of_ref.y = expected.data;
    tested.y = y.data;
    of_ref.x = tested.x = x.data;
    of_ref.n = tested.n = n;
    hr_case c = hr_case_new(report, name, seed, "n=%zu", n);
    hr_case_run(&c, call_arithmetic, &of_ref, &tested);
    hr_expect_floats(&c, "y", &expected, &y);
    hr_expect_kept(&c, "x", &x);
    hr_case_end(&c);
    hr_buffer_free(&expected);
    hr_buffer_free(&y);
    hr_buffer_free(&x);
  }
}

bool hr_check_arithmetic(const hr_kernels *ref, const hr_kernels *tested, hr_report *report) {
#define SLOT(slot, kind)                                                                     \
  check_arithmetic((arithmetic_call){.kind = ref->slot}, (arithmetic_call){.kind = tested->slot}, \
                   tested->name.slot, report)
  SLOT(add, add);
  SLOT(scale, scale);
  SLOT(divide, scale);
#undef SLOT
  return report->failures == 0;
}

typedef struct widen_call {
  hr_widen_fn *slot;
  const uint16_t *x;
  float *y;
  size_t n;
} widen_call;

static void call_widen(const void *operands) {
  const widen_call *o = operands;
  o->slot(o->x, o->y, o->n);
}

static void check_widen(hr_widen_fn *of_ref, hr_widen_fn *tested, const char *name,
                        hr_report *report) {
  enum { EVERY = 71 }; /* the seed of all there are */
  if (hr_passed_over(report, of_ref == tested)) return;
  for (uint64_t seed = HR_TYPICAL; seed <= EVERY; seed++) {
    size_t n = seed == HR_TYPICAL ? TYPICAL_LENGTH : seed == EVERY ? 65536 : seed;
    hr_random random = {seed};
    hr_buffer x = hr_buffer_new(n * 2, 2), expected = hr_buffer_new(n * 4, 0);
    hr_buffer y = hr_buffer_new(n * 4, 4);
    hr_fill_halves(&random, x.data, n, seed == HR_TYPICAL ? HR_VALUES_PLAIN : HR_VALUES_ANY);
    for (size_t i = 0; seed == EVERY && i < n; i++) ((uint16_t *)x.data)[i] = (uint16_t)i;
    hr_buffer_keep(&x);
    widen_call a = {of_ref, x.data, expected.data, n}, b = {tested, x.data, y.data, n};
    hr_case c = hr_case_new(report, name, seed, "n=%zu", n);
    hr_case_run(&c, call_widen, &a, &b);
    hr_expect_floats(&c, "y", &expected, &y);
    hr_expect_kept(&c, "x", &x);
    hr_case_end(&c);
    hr_buffer_free(&x);
    hr_buffer_free(&expected);
    hr_buffer_free(&y);
  }
}

typedef struct narrow_call {
  hr_narrow_fn *slot;
  const float *x;
  uint16_t *y;
  size_t n;
} narrow_call;

static void call_narrow(const void *operands) {
  const narrow_call *o = operands;
  o->slot(o->x, o->y, o->n);
}

/* All exponents, many ties. */
static void fill_sweep(float *x, uint32_t n) {
  for (uint32_t i = 0; i < n; i++) {
    static const uint32_t last[] = {0x1000, 0xfff, 0x1001, 0, 0};
    uint32_t bits = i << 15 | last[i % 5];
    memcpy((char *)x + (size_t)i * 4, &bits, 4);
  }
}

static void check_narrow(hr_narrow_fn *of_ref, hr_narrow_fn *tested, const char *name, bool brain,
                         hr_report *report) {
  if (hr_passed_over(report, of_ref == tested)) return;
  enum { SWEEP = 141, SWEEP_LENGTH = 131072 }; /* the seed that goes through all exponents */
  for (uint64_t seed = HR_TYPICAL; seed <= SWEEP; seed++) {
    size_t n = seed == HR_TYPICAL ? TYPICAL_LENGTH
               : seed == SWEEP    ? SWEEP_LENGTH
                                  : 1 + (seed - 1) % 70;
    hr_random random = {seed};
    hr_buffer x = hr_buffer_new(n * 4, 4), expected = hr_buffer_new(n * 2, 0);
    hr_buffer y = hr_buffer_new(n * 2, 2);
    hr_fill_floats(&random, x.data, n, (hr_values)(seed % HR_VALUES_KINDS));
    if (seed == SWEEP) fill_sweep(x.data, SWEEP_LENGTH);
    hr_buffer_keep(&x);
    narrow_call a = {of_ref, x.data, expected.data, n}, b = {tested, x.data, y.data, n};
    hr_case c = hr_case_new(report, name, seed, "n=%zu", n);
    hr_case_run(&c, call_narrow, &a, &b);
    hr_expect_halves(&c, "y", brain, &expected, &y);
    hr_expect_kept(&c, "x", &x);
    hr_case_end(&c);
    hr_buffer_free(&x);
    hr_buffer_free(&expected);
    hr_buffer_free(&y);
  }
}

bool hr_check_conversion(const hr_kernels *ref, const hr_kernels *tested, hr_report *report) {
  check_widen(ref->widen_f16, tested->widen_f16, tested->name.widen_f16, report);
  check_widen(ref->widen_bf16, tested->widen_bf16, tested->name.widen_bf16, report);
  check_narrow(ref->narrow_f16, tested->narrow_f16, tested->name.narrow_f16, false, report);
  check_narrow(ref->narrow_bf16, tested->narrow_bf16, tested->name.narrow_bf16, true, report);
  return report->failures == 0;
}
