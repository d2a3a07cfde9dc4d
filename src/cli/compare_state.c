/* SPDX-License-Identifier: MIT
 * The state that machines were in while they were measured: frequency, temperature, throttling,
 * energy. What could not be read is said with its reason. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compare.h"

static const json_t *samples_of(const compare_result *r, const char *key) {
  return compare_get(r->entry, key);
}

/* All finite numbers of a list that lie within what sensors can tell. */
static size_t numbers_of(const json_t *list, double least, double most, double *to, size_t room) {
  size_t i, count = 0;
  json_t *value;
  json_array_foreach(list, i, value) {
    double x = json_number_value(value);
    if (json_is_number(value) && x >= least && x <= most && count < room) to[count++] = x;
  }
  return count;
}

static int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

enum { MOST_SAMPLES = 1000 };
static const double most_mhz = 1e5;

/* Frequencies are those of the CPUs that the threads are on, else a mean over all there are,
 * which says little about a thread. */
static bool is_pinned(const compare_file *f, const compare_result *r) {
  const json_t *cpus = compare_get(compare_limits(f, r), "cpus");
  size_t i;
  json_t *cpu;
  json_array_foreach(cpus, i, cpu) {
    if (!json_is_integer(cpu)) return false;
  }
  return json_array_size(cpus) > 0;
}

compare_state compare_state_of(const compare_file *f, const compare_result *r) {
  double x[MOST_SAMPLES];
  compare_state s = {.celsius = -300, .pinned = is_pinned(f, r)};
  size_t i, count = numbers_of(samples_of(r, "mhz_samples"), 1, most_mhz, x, MOST_SAMPLES);
  json_t *value;
  if (count) {
    qsort(x, count, sizeof *x, ascending);
    s.mhz = count % 2 ? x[count / 2] : (x[count / 2 - 1] + x[count / 2]) / 2;
    s.least_mhz = x[0];
  }
  s.most_mhz = compare_number(r->entry, "most_mhz");
  if (s.most_mhz > most_mhz) s.most_mhz = 0;
  if (s.mhz > 0 && s.most_mhz > 0) s.share = 100 * s.mhz / s.most_mhz;
  count = numbers_of(samples_of(r, "celsius_samples"), -100, 300, x, MOST_SAMPLES);
  for (i = 0; i < count; i++)
    if (x[i] > s.celsius) s.celsius = x[i];
  s.has_celsius = count > 0;
  json_array_foreach(samples_of(r, "throttled_samples"), i, value) {
    s.known += json_is_boolean(value);
    s.throttled += json_is_true(value);
  }
  return s;
}

const char *compare_unread(const compare_file *f, const compare_result *r, compare_sensor which) {
  static const char *const paths[][2] = {
      [COMPARE_FREQUENCY] = {"mhz_samples", "machine.sensors.frequency_reason"},
      [COMPARE_HIGHEST] = {"most_mhz", NULL},
      [COMPARE_TEMPERATURE] = {"celsius_samples", "machine.sensors.temperature_reason"},
      [COMPARE_THROTTLING] = {"throttled_samples", "machine.sensors.throttling_reason"},
      [COMPARE_ENERGY] = {"energy", "machine.sensors.energy_reason"},
  };
  const char *reason = which == COMPARE_ENERGY ? compare_text(r->entry, "energy.reason") : NULL;
  if (!reason && paths[which][1]) reason = compare_text(f->root, paths[which][1]);
  if (reason && *reason) return reason;
  if (!compare_get(r->entry, paths[which][0])) return "this version of the form has none";
  if (which == COMPARE_HIGHEST)
    return "threads are not pinned, or the system has no cpuinfo_max_freq";
  return "the file gives no reason";
}

/* --- Rows -------------------------------------------------------------------------- */

static void put_unread(char text[COMPARE_VALUE], const compare_file *f, const compare_result *r,
                       compare_sensor which) {
  snprintf(text, COMPARE_VALUE, "not readable: %.130s", compare_unread(f, r, which));
}

static void put_frequency(char text[COMPARE_VALUE], const compare_file *f, const compare_result *r,
                          const compare_state *s) {
  if (s->mhz <= 0) {
    put_unread(text, f, r, COMPARE_FREQUENCY);
    return;
  }
  int n = snprintf(text, COMPARE_VALUE, "%.0f MHz, %.0f at least%s", s->mhz, s->least_mhz,
                   s->pinned ? "" : ", a mean over all CPUs");
  if (s->share > 0)
    snprintf(text + n, COMPARE_VALUE - (size_t)n, ", %.0f %% of the highest", s->share);
}

static void put_throttled(char text[COMPARE_VALUE], const compare_file *f,
                          const compare_result *r, const compare_state *s) {
  if (s->known)
    snprintf(text, COMPARE_VALUE, "%zu of %zu samples", s->throttled, s->known);
  else
    put_unread(text, f, r, COMPARE_THROTTLING);
}

static void put_state(compare_row *row, const compare *c, const compare_test *t, size_t file,
                      compare_sensor which) {
  const compare_file *f = &c->file[file];
  const compare_result *r = t->best[file];
  char *text = row->value[file];
  snprintf(text, COMPARE_VALUE, "-");
  if (!r) return;
  compare_state s = compare_state_of(f, r);
  if (which == COMPARE_FREQUENCY) put_frequency(text, f, r, &s);
  if (which == COMPARE_THROTTLING) put_throttled(text, f, r, &s);
  if (which == COMPARE_FREQUENCY) row->number[file] = s.mhz;
  if (which == COMPARE_ENERGY) row->number[file] = r->joules;
  if (which == COMPARE_TEMPERATURE && s.has_celsius)
    snprintf(text, COMPARE_VALUE, "%.1f C at most", s.celsius);
  if (which == COMPARE_ENERGY && r->joules > 0)
    snprintf(text, COMPARE_VALUE, "%.4g J a token", r->joules);
  if ((which == COMPARE_TEMPERATURE && !s.has_celsius) ||
      (which == COMPARE_ENERGY && r->joules <= 0))
    put_unread(text, f, r, which);
}

static bool is_same_row(const compare *c, const compare_row *a, const compare_row *b) {
  for (size_t f = 0; f < c->files; f++)
    if (strcmp(a->value[f], b->value[f]) != 0) return false;
  return true;
}

/* A value of all files in one test. */
static void fill_row(const compare *c, size_t test, compare_sensor which, compare_row *row) {
  *row = (compare_row){0};
  for (size_t f = 0; f < c->files; f++) put_state(row, c, &c->test[test], f, which);
}

/* Tests with equal rows have one. */
bool compare_state_row(const compare *c, size_t i, compare_row *row) {
  static const struct {
    compare_sensor which;
    const char *name;
  } kinds[] = {{COMPARE_FREQUENCY, "frequency"},
               {COMPARE_TEMPERATURE, "temperature"},
               {COMPARE_THROTTLING, "throttled"},
               {COMPARE_ENERGY, "energy"}};
  const size_t count = sizeof kinds / sizeof *kinds, test = i / count;
  const char *kind = kinds[i % count].name;
  compare_row other;
  char name[64];
  size_t alike = 0;
  if (test >= c->tests) return false;
  fill_row(c, test, kinds[i % count].which, row);
  for (size_t j = 0; j < c->tests; j++) {
    fill_row(c, j, kinds[i % count].which, &other);
    if (!is_same_row(c, row, &other)) continue;
    if (j < test) return true; /* it stands there */
    alike++;
  }
  compare_test_name(&c->test[test], name);
  if (alike == c->tests && alike > 1)
    snprintf(row->name, sizeof row->name, "all tests: %s", kind);
  else if (alike > 1)
    snprintf(row->name, sizeof row->name, "%s and %zu more: %s", name, alike - 1, kind);
  else
    snprintf(row->name, sizeof row->name, "%s: %s", name, kind);
  return true;
}

/* --- Words ------------------------------------------------------------------------- */

/* "board at 1116 MHz (62 % of its highest frequency)". */
static void say_frequency(cli_bytes *to, const char *verb, const compare_file *f,
                          const compare_state *s) {
  compare_put(to, "%s %sat %.0f MHz", f->label, verb, s->mhz);
  if (s->share > 0) compare_put(to, " (%.0f %% of its highest frequency)", s->share);
}

/* The clocks of both, as far as they are known. */
static void say_frequencies(cli_bytes *to, const compare_file *fast, const compare_state *a,
                            const compare_file *slow, const compare_state *b, bool memory) {
  bool first = a->mhz > 0 && a->pinned, second = b->mhz > 0 && b->pinned;
  if (!first && !second) return;
  compare_put(to, " ");
  if (first) say_frequency(to, "ran ", fast, a);
  if (first && second) compare_put(to, ", ");
  if (second) say_frequency(to, first ? "" : "ran ", slow, b);
  if (first && second)
    compare_put(to, ": %.2f times the clock%s", a->mhz / b->mhz,
                memory ? ", which counts little where memory is the limit" : "");
  compare_put(to, ".");
}

/* What kept one machine below its best. */
static void say_held_back(cli_bytes *to, const compare_file *f, const compare_state *s) {
  const double held = 90; /* percent */
  if (s->share > 0 && s->share < held)
    compare_put(to, " At its highest frequency %s would have %.2f times the clock that it had.",
                f->label, 100 / s->share);
  if (!s->throttled) return;
  compare_put(to, " %s throttled in %zu of %zu samples", f->label, s->throttled, s->known);
  if (s->has_celsius) compare_put(to, ", at up to %.0f C", s->celsius);
  compare_put(to, ".");
}

static bool reads(const compare_result *r) {
  return r->bound && strcmp(r->bound, "read") == 0;
}

void compare_say_state(cli_bytes *to, const compare_file *fast, const compare_result *x,
                       const compare_file *slow, const compare_result *y) {
  compare_state a = compare_state_of(fast, x), b = compare_state_of(slow, y);
  say_frequencies(to, fast, &a, slow, &b, reads(x) && reads(y));
  say_held_back(to, fast, &a);
  say_held_back(to, slow, &b);
  if (x->joules > 0 && y->joules > 0)
    compare_put(to, " A token took %.4g J on %s, %.4g J on %s.", x->joules, fast->label, y->joules,
                slow->label);
}
