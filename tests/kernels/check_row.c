/* SPDX-License-Identifier: MIT
 * Norms, activations, elementary functions, softmax, arithmetic, conversions. */
#include <string.h>

#include "tests/kernels/harness.h"

static const size_t lengths[] = {1,  2,  7,  8,  9,  15, 16, 17,  23,  24,  31,  32,  33,
                                 47, 48, 49, 63, 64, 65, 80, 100, 128, 255, 576, 1000};
enum { LENGTHS = sizeof lengths / sizeof *lengths };

/* Where y is: its own buffer or that of an input. */
typedef enum place { APART, OVER_X, OVER_UP } place;

typedef struct norm_case {
  size_t n;
  float eps;
  bool gain, shift, layer;
  place place;
} norm_case;

static void run_norm(const hr_kernels *t, const norm_case *n, const float *x, const float *gain,
                     const float *shift, float *y) {
  if (n->layer)
    t->layer_norm(x, n->n, n->gain ? gain : NULL, n->shift ? shift : NULL, n->eps, y);
  else
    t->rms_norm(x, n->n, n->gain ? gain : NULL, n->eps, y);
}

static void check_norm(const hr_kernels *ref, const hr_kernels *tested, bool layer, uint64_t seed,
                       hr_report *report) {
  static const float epsilons[] = {1e-5f, 1e-6f, 0.0f, 1e-12f};
  hr_random random = {seed};
  norm_case n = {.n = lengths[seed % LENGTHS], .eps = epsilons[hr_random_below(&random, 4)],
                 .gain = seed & 1, .shift = seed & 2, .layer = layer,
                 .place = seed & 4 ? OVER_X : APART};
  hr_values kind =
      seed % 3 ? HR_VALUES_PLAIN : (hr_values)hr_random_below(&random, HR_VALUES_KINDS);
  hr_buffer x = hr_buffer_new(n.n * 4, 4), y = hr_buffer_new(n.n * 4, 8);
  hr_buffer gain = hr_buffer_new(n.n * 4, 4), shift = hr_buffer_new(n.n * 4, 4);
  hr_buffer expected = hr_buffer_new(n.n * 4, 0);
  hr_fill_floats(&random, x.data, n.n, kind);
  hr_fill_floats(&random, gain.data, n.n, seed % 7 ? HR_VALUES_PLAIN : HR_VALUES_ANY);
  hr_fill_floats(&random, shift.data, n.n, seed % 5 ? HR_VALUES_PLAIN : HR_VALUES_TINY);
  hr_buffer_keep(&x);
  hr_buffer_keep(&gain);
  hr_buffer_keep(&shift);
  run_norm(ref, &n, x.data, gain.data, shift.data, expected.data);
  hr_buffer *out = n.place == OVER_X ? &x : &y;
  run_norm(tested, &n, x.data, gain.data, shift.data, out->data);
  hr_case c = hr_case_new(report, layer ? tested->name.layer_norm : tested->name.rms_norm, seed,
                          "n=%zu gain=%d shift=%d in_place=%d kind=%d", n.n, n.gain, n.shift,
                          n.place == OVER_X, (int)kind);
  hr_expect_floats(&c, "y", &expected, out);
  if (n.place == APART) hr_expect_kept(&c, "x", &x);
  hr_expect_kept(&c, "gain", &gain);
  hr_expect_kept(&c, "shift", &shift);
  hr_buffer_free(&x);
  hr_buffer_free(&y);
  hr_buffer_free(&gain);
  hr_buffer_free(&shift);
  hr_buffer_free(&expected);
}

bool hr_check_norm(const hr_kernels *ref, const hr_kernels *tested, hr_report *report) {
  bool no_rms = hr_passed_over(report, ref->rms_norm == tested->rms_norm);
  bool no_layer = hr_passed_over(report, ref->layer_norm == tested->layer_norm);
  for (uint64_t seed = 1; seed <= 600; seed++) {
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

static void check_activation_once(hr_activation_fn *of_ref, hr_activation_fn *tested,
                                  const char *name, uint64_t seed, hr_report *report) {
  hr_random random = {seed};
  size_t n = lengths[seed % LENGTHS], kind = seed / 3 % (HR_VALUES_KINDS + 2);
  bool gated = seed & 1;
  place where = (place)hr_random_below(&random, gated ? 3 : 2);
  hr_buffer x = hr_buffer_new(n * 4, 4), up = hr_buffer_new(n * 4, 8), y = hr_buffer_new(n * 4, 4);
  hr_buffer expected = hr_buffer_new(n * 4, 0);
  fill_for_functions(&random, x.data, n, kind);
  hr_fill_floats(&random, up.data, n, seed % 5 ? HR_VALUES_PLAIN : HR_VALUES_NAN);
  hr_buffer_keep(&x);
  hr_buffer_keep(&up);
  of_ref(x.data, gated ? up.data : NULL, expected.data, n);
  hr_buffer *out = where == OVER_X ? &x : where == OVER_UP ? &up : &y;
  tested(x.data, gated ? up.data : NULL, out->data, n);
  hr_case c = hr_case_new(report, name, seed, "n=%zu gated=%d place=%d kind=%zu", n, gated,
                          (int)where, kind);
  hr_expect_floats(&c, "y", &expected, out);
  if (where != OVER_X) hr_expect_kept(&c, "x", &x);
  if (where != OVER_UP) hr_expect_kept(&c, "up", &up);
  hr_buffer_free(&x);
  hr_buffer_free(&up);
  hr_buffer_free(&y);
  hr_buffer_free(&expected);
}

static void check_activation_slot(hr_activation_fn *of_ref, hr_activation_fn *tested,
                                  const char *name, hr_report *report) {
  if (hr_passed_over(report, of_ref == tested)) return;
  for (uint64_t seed = 1; seed <= 500; seed++)
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

static void check_map_once(hr_map_fn *of_ref, hr_map_fn *tested, const char *name, size_t n,
                           size_t kind, uint64_t seed, hr_report *report) {
  hr_random random = {seed};
  bool over = seed & 1;
  hr_buffer x = hr_buffer_new(n * 4, 4), y = hr_buffer_new(n * 4, 8);
  hr_buffer expected = hr_buffer_new(n * 4, 0);
  fill_for_functions(&random, x.data, n, kind);
  hr_buffer_keep(&x);
  of_ref(x.data, expected.data, n);
  hr_buffer *out = over ? &x : &y;
  tested(x.data, out->data, n);
  hr_case c = hr_case_new(report, name, seed, "n=%zu in_place=%d kind=%zu", n, over, kind);
  hr_expect_floats(&c, "y", &expected, out);
  if (!over) hr_expect_kept(&c, "x", &x);
  hr_buffer_free(&x);
  hr_buffer_free(&y);
  hr_buffer_free(&expected);
}

static void check_map_slot(hr_map_fn *of_ref, hr_map_fn *tested, const char *name,
                           hr_report *report) {
  if (hr_passed_over(report, of_ref == tested)) return;
  for (uint64_t seed = 1; seed <= 400; seed++)
    check_map_once(of_ref, tested, name, lengths[seed % LENGTHS], seed / 3 % (HR_VALUES_KINDS + 2),
                   seed, report);
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

bool hr_check_softmax(const hr_kernels *ref, const hr_kernels *tested, hr_report *report) {
  if (hr_passed_over(report, ref->softmax == tested->softmax)) return true;
  for (uint64_t seed = 1; seed <= 500; seed++) {
    hr_random random = {seed};
    size_t n = lengths[seed % LENGTHS], kind = seed / 2 % (HR_VALUES_KINDS + 2);
    hr_buffer expected = hr_buffer_new(n * 4, 4), x = hr_buffer_new(n * 4, 4);
    fill_for_functions(&random, expected.data, n, kind);
    if (seed % 17 == 0) /* all masked, all NaN */
      for (size_t i = 0; i < n; i++)
        ((float *)expected.data)[i] = seed % 2 ? -__builtin_inff() : __builtin_nanf("");
    hr_buffer_same(&x, &expected);
    ref->softmax(expected.data, n);
    tested->softmax(x.data, n);
    hr_case c = hr_case_new(report, tested->name.softmax, seed, "n=%zu kind=%zu", n, kind);
    hr_expect_floats(&c, "x", &expected, &x);
    hr_buffer_free(&expected);
    hr_buffer_free(&x);
  }
  return report->failures == 0;
}

static void run_arithmetic(const hr_kernels *t, int slot, float *y, const float *x, size_t n) {
  if (slot == 0) t->add(y, x, n);
  if (slot == 1) t->scale(y, x[0], n);
  if (slot == 2) t->divide(y, x[0], n);
}

bool hr_check_arithmetic(const hr_kernels *ref, const hr_kernels *tested, hr_report *report) {
  const char *const names[] = {tested->name.add, tested->name.scale, tested->name.divide};
  const bool shared[] = {ref->add == tested->add, ref->scale == tested->scale,
                         ref->divide == tested->divide};
  for (uint64_t seed = 1; seed <= 900; seed++) {
    hr_random random = {seed};
    int slot = (int)(seed % 3);
    if (hr_passed_over(report, shared[slot])) continue;
    size_t n = lengths[seed % LENGTHS];
    hr_buffer expected = hr_buffer_new(n * 4, 4), y = hr_buffer_new(n * 4, 4);
    hr_buffer x = hr_buffer_new(n * 4, 8);
    hr_fill_floats(&random, expected.data, n, (hr_values)(seed / 3 % HR_VALUES_KINDS));
    hr_fill_floats(&random, x.data, n, (hr_values)(seed / 18 % HR_VALUES_KINDS));
    hr_buffer_same(&y, &expected);
    hr_buffer_keep(&x);
    run_arithmetic(ref, slot, expected.data, x.data, n);
    run_arithmetic(tested, slot, y.data, x.data, n);
    hr_case c = hr_case_new(report, names[slot], seed, "n=%zu", n);
    hr_expect_floats(&c, "y", &expected, &y);
    hr_expect_kept(&c, "x", &x);
    hr_buffer_free(&expected);
    hr_buffer_free(&y);
    hr_buffer_free(&x);
  }
  return report->failures == 0;
}

static void check_widen(hr_widen_fn *of_ref, hr_widen_fn *tested, const char *name,
                        hr_report *report) {
  if (hr_passed_over(report, of_ref == tested)) return;
  for (uint64_t seed = 0; seed <= 70; seed++) { /* seed 0: all there are */
    size_t n = seed ? seed : 65536;
    hr_random random = {seed};
    hr_buffer x = hr_buffer_new(n * 2, 2), expected = hr_buffer_new(n * 4, 0);
    hr_buffer y = hr_buffer_new(n * 4, 4);
    for (size_t i = 0; i < n; i++)
      ((uint16_t *)x.data)[i] = (uint16_t)(seed ? hr_random_next(&random) : i);
    hr_buffer_keep(&x);
    of_ref(x.data, expected.data, n);
    tested(x.data, y.data, n);
    hr_case c = hr_case_new(report, name, seed, "n=%zu", n);
    hr_expect_floats(&c, "y", &expected, &y);
    hr_expect_kept(&c, "x", &x);
    hr_buffer_free(&x);
    hr_buffer_free(&expected);
    hr_buffer_free(&y);
  }
}

static void check_narrow(hr_narrow_fn *of_ref, hr_narrow_fn *tested, const char *name, bool brain,
                         hr_report *report) {
  if (hr_passed_over(report, of_ref == tested)) return;
  enum { SWEEP = 131072 };
  for (uint64_t seed = 0; seed <= 140; seed++) { /* seed 0: through all exponents, many ties */
    size_t n = seed ? 1 + (seed - 1) % 70 : SWEEP;
    hr_random random = {seed};
    hr_buffer x = hr_buffer_new(n * 4, 4), expected = hr_buffer_new(n * 2, 0);
    hr_buffer y = hr_buffer_new(n * 2, 2);
    hr_fill_floats(&random, x.data, n, (hr_values)(seed % HR_VALUES_KINDS));
    for (uint32_t i = 0; !seed && i < SWEEP; i++) {
      uint32_t bits = i << 15 | (i % 5 == 0   ? 0x1000u
                                 : i % 5 == 1 ? 0xfffu
                                 : i % 5 == 2 ? 0x1001u
                                              : 0);
      memcpy((char *)x.data + (size_t)i * 4, &bits, 4);
    }
    hr_buffer_keep(&x);
    of_ref(x.data, expected.data, n);
    tested(x.data, y.data, n);
    hr_case c = hr_case_new(report, name, seed, "n=%zu", n);
    hr_expect_halves(&c, "y", brain, &expected, &y);
    hr_expect_kept(&c, "x", &x);
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
