/* SPDX-License-Identifier: MIT
 * Why one machine is faster, in words; and the tables of limits and machines. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compare.h"

/* --- Why ------------------------------------------------------------------------- */

static const char *plural(unsigned n) {
  return n == 1 ? "" : "s";
}

/* "1710 GOP/s by 2 threads with avx512vnni". */
static bool say_limit(cli_bytes *to, const compare_file *f, const compare_result *r) {
  char path[32];
  snprintf(path, sizeof path, "%.16s.best", r->bound);
  double best = compare_number(compare_limits(f, r), path);
  if (best <= 0) return false;
  bool barrier = strcmp(r->bound, "barrier") == 0, read = strcmp(r->bound, "read") == 0;
  if (barrier)
    compare_put(to, "%.2f us for a barrier", 1e6 / best);
  else
    compare_put(to, "%.4g %s", best * 1e-9,
                read                             ? "GB/s"
                : strcmp(r->bound, "int8") == 0 ? "GOP/s"
                                                 : "GFLOP/s");
  compare_put(to, " by %u thread%s", r->threads, plural(r->threads));
  if (!read && !barrier) compare_put(to, " with %s", r->isa);
  return true;
}

/* Which of two factors a product is mostly made of, by their logarithms. */
static const char *verdict(double limits, double shares) {
  double l = fabs(log(limits)), s = fabs(log(shares));
  if (l + s < 0.06) return "There is little to explain.";
  if (l > 2 * s) return "The difference is in what the machines can do.";
  if (s > 2 * l) return "The difference is in how much of its limit each reaches.";
  return "Both have a part in it: what the machines can do, and how much of it is reached.";
}

/* One side of a comparison. */
typedef struct side {
  const compare_file *file;
  const compare_result *result;
} side;

/* The median is of disturbed samples. */
static bool is_doubtful(const compare_result *r) {
  return 2 * r->disturbed > r->samples;
}

static bool is_compute(const compare_result *r) {
  return strcmp(r->bound, "int8") == 0 || strcmp(r->bound, "fp32") == 0;
}

/* What arithmetic allows is clock times threads times what a thread does in one clock. */
static void say_factors(cli_bytes *to, side fast, side slow, double limits) {
  compare_state a = compare_state_of(fast.file, fast.result);
  compare_state b = compare_state_of(slow.file, slow.result);
  if (!is_compute(fast.result) || !is_compute(slow.result)) return;
  if (a.mhz <= 0 || b.mhz <= 0 || !a.pinned || !b.pinned) return;
  double clocks = a.mhz / b.mhz, threads = (double)fast.result->threads / slow.result->threads;
  compare_put(to, ", %.2f times the clock x %.2f times the threads x %.2f times the work of a "
              "thread in one clock", clocks, threads, limits / clocks / threads);
}

/* A rate is what the limit allows times the share of it that is reached, so the
 * ratio of two rates is that of the first times that of the second. */
static void say_bounds(cli_bytes *to, side fast, side slow) {
  const compare_result *x = fast.result, *y = slow.result;
  const char *a = fast.file->label, *b = slow.file->label;
  double ratio = x->rate / y->rate, shares = x->percent / y->percent, limits = ratio / shares;
  if (strcmp(x->bound, y->bound) == 0)
    compare_put(to, "Both are limited by %s. ", compare_bound_words(x->bound));
  else
    compare_put(to, "%s is limited by %s, %s by %s. ", a, compare_bound_words(x->bound), b,
                compare_bound_words(y->bound));
  compare_put(to, "The limit of %s allows %.2f times the rate that %s could reach", a, limits, b);
  cli_bytes first = {0}, second = {0};
  if (say_limit(&first, fast.file, x) && say_limit(&second, slow.file, y))
    compare_put(to, " (%.*s, against %.*s)", (int)first.used, first.data, (int)second.used,
                second.data);
  cli_bytes_free(&first);
  cli_bytes_free(&second);
  say_factors(to, fast, slow, limits);
  compare_put(to, "; %s reaches %.1f %% of its limit, %s %.1f %%, which is %.2f times as much: "
              "%.2f x %.2f = %.2f. ", a, x->percent, b, y->percent, shares, limits, shares, ratio);
  const char *disturbed = is_doubtful(x) ? a : is_doubtful(y) ? b : NULL;
  if (disturbed)
    compare_put(to, "No conclusion: something else took part in most samples of %s.", disturbed);
  else
    compare_put(to, "%s", verdict(limits, shares));
}

static void say_disturbed(cli_bytes *to, const compare_file *f, const compare_result *r) {
  if (!r->disturbed) return;
  compare_put(to, " %zu of %zu samples of %s were disturbed", r->disturbed, r->samples, f->label);
  if (r->reason) compare_put(to, ", such as: %.100s", r->reason);
  compare_put(to, ".");
}

/* Its bytes as a text without control characters; NULL when memory is out. */
static char *end_text(cli_bytes *text) {
  if (!cli_bytes_add(text, "", 1)) {
    cli_bytes_free(text);
    return NULL;
  }
  for (char *at = text->data; *at; at++)
    if ((unsigned char)*at < 0x20 || *at == 0x7f) *at = '?';
  return text->data;
}

/* --- What holds for all tests ------------------------------------------------------ */

typedef struct range {
  double least, most;
  size_t count;
} range;

static void widen(range *r, double x) {
  if (!r->count || x < r->least) r->least = x;
  if (!r->count || x > r->most) r->most = x;
  r->count++;
}

/* "2.00", or "2.00 to 3.50" where that is not the same. */
static void say_range(cli_bytes *to, const range *r) {
  char least[32], most[32];
  compare_ratio_text(r->least, least);
  compare_ratio_text(r->most, most);
  compare_put(to, "%s%s%s", least, strcmp(least, most) == 0 ? "" : " to ",
              strcmp(least, most) == 0 ? "" : most);
}

/* Both results are explained by the same limit, and it may be reasoned from. */
static bool is_bound_by(const compare_result *r, const char *bound) {
  return r->bound && r->valid && r->percent > 0 && !is_doubtful(r) && strcmp(r->bound, bound) == 0;
}

/* The tests that one limit binds on both machines. */
static void say_group(cli_bytes *to, const compare *c, size_t file, const char *bound) {
  range limits = {0}, shares = {0};
  const char *a = c->file[file].label, *b = c->file[0].label;
  for (size_t i = 0; i < c->tests; i++) {
    const compare_result *x = c->test[i].best[file], *y = c->test[i].best[0];
    double ratio = compare_ratio(c, &c->test[i], file);
    if (ratio <= 0 || !is_bound_by(x, bound) || !is_bound_by(y, bound)) continue;
    widen(&shares, x->percent / y->percent);
    widen(&limits, ratio / (x->percent / y->percent));
  }
  if (!limits.count) return;
  compare_put(to, " In %zu test%s both are limited by %s: the limit of %s allows ", limits.count,
              limits.count == 1 ? "" : "s", compare_bound_words(bound), a);
  say_range(to, &limits);
  compare_put(to, " times what that of %s does, and %s reaches ", b, a);
  say_range(to, &shares);
  compare_put(to, " times the share of it.");
}

/* Clocks and throttling over all tests, of one file. */
static void say_clock(cli_bytes *to, const compare *c, size_t file, size_t beside) {
  range mhz = {0};
  size_t throttled = 0, known = 0;
  for (size_t i = 0; i < c->tests; i++) {
    const compare_result *r = c->test[i].best[file];
    if (!r || compare_ratio(c, &c->test[i], beside) <= 0) continue;
    compare_state s = compare_state_of(&c->file[file], r);
    if (s.mhz > 0 && s.pinned) widen(&mhz, s.mhz);
    throttled += s.throttled;
    known += s.known;
  }
  const char *label = c->file[file].label;
  if (mhz.count && mhz.most < 1.01 * mhz.least)
    compare_put(to, " %s ran at %.0f MHz.", label, mhz.most);
  else if (mhz.count)
    compare_put(to, " %s ran at %.0f to %.0f MHz.", label, mhz.least, mhz.most);
  if (throttled)
    compare_put(to, " %s throttled in %zu of %zu samples of all tests.", label, throttled, known);
}

static void say_all(cli_bytes *to, const compare *c, size_t file, const range *ratios,
                    size_t faster) {
  static const char *const bounds[] = {"int8", "fp32", "read", "barrier"};
  const char *a = c->file[file].label, *b = c->file[0].label;
  compare_put(to, "%zu tests: %s does ", ratios->count, a);
  say_range(to, ratios);
  compare_put(to, " times the tokens/s of %s; it is faster in ", b);
  if (faster)
    compare_put(to, "%zu.", faster);
  else
    compare_put(to, "none.");
  for (size_t i = 0; i < sizeof bounds / sizeof *bounds; i++) say_group(to, c, file, bounds[i]);
  say_clock(to, c, file, file);
  say_clock(to, c, 0, file);
}

char *compare_summary(const compare *c, size_t file) {
  range ratios = {0};
  size_t faster = 0;
  for (size_t i = 0; i < c->tests; i++) {
    double ratio = compare_ratio(c, &c->test[i], file);
    if (ratio > 0) widen(&ratios, ratio);
    faster += ratio > 1;
  }
  if (ratios.count < 2) return strdup("");
  cli_bytes text = {0};
  say_all(&text, c, file, &ratios, faster);
  return end_text(&text);
}

/* --- One test ---------------------------------------------------------------------- */

char *compare_why(const compare *c, const compare_test *t, size_t file) {
  const double alike = 1.03;
  side fast = {&c->file[file], t->best[file]}, slow = {&c->file[0], t->best[0]};
  cli_bytes text = {0};
  char name[64];
  double ratio = compare_ratio(c, t, file);
  if (ratio <= 0) return strdup("");
  if (ratio < 1) {
    side other = fast;
    fast = slow;
    slow = other;
    ratio = 1 / ratio;
  }
  const compare_result *x = fast.result, *y = slow.result;
  compare_put(&text, "%s: ", compare_test_name(t, name));
  if (ratio > alike)
    compare_put(&text, "%s is %.2f times as fast as %s", fast.file->label, ratio, slow.file->label);
  else
    compare_put(&text, "%s and %s are equally fast", fast.file->label, slow.file->label);
  compare_put(&text, " (%.1f and %.1f tokens/s). ", x->rate, y->rate);
  if (!x->bound || !y->bound || x->percent <= 0 || y->percent <= 0)
    compare_put(&text, "What limits it is not known for both.");
  else if (!x->valid && !y->valid)
    compare_put(&text,
                "The limits of both were measured too low, their percents are not valid: what "
                "limits them can't be told.");
  else if (!x->valid || !y->valid)
    compare_put(&text,
                "The limit of %s was measured too low, its percent is not valid: what limits it "
                "can't be told.",
                (x->valid ? slow : fast).file->label);
  else
    say_bounds(&text, fast, slow);
  compare_say_state(&text, fast.file, x, slow.file, y);
  say_disturbed(&text, fast.file, x);
  say_disturbed(&text, slow.file, y);
  return end_text(&text);
}

/* --- Limits ------------------------------------------------------------------------ */

/* The last entry of a list: by all threads, or of the highest tier. */
static const json_t *last_of(const json_t *list) {
  return json_array_get(list, json_array_size(list) - 1);
}

static const json_t *cache_of(const compare_file *f, int level) {
  size_t i;
  json_t *entry;
  json_array_foreach(compare_get(f->root, "machine_limits.caches"), i, entry) {
    if (compare_number(entry, "level") == level) return entry;
  }
  return NULL;
}

static double limit_value(const compare_file *f, size_t row) {
  const json_t *points = compare_get(f->root, "machine_limits.by_threads");
  const json_t *peak = last_of(compare_get(f->root, "machine_limits.peaks"));
  double barriers;
  switch (row) {
    case 0: return compare_number(json_array_get(points, 0), "read.best");
    case 1: return compare_number(last_of(points), "read.best");
    case 2:
    case 3:
    case 4: return compare_number(cache_of(f, (int)row - 1), "one.best");
    case 5: return compare_number(peak, "int8.one.best");
    case 6: return compare_number(peak, "int8.all.best");
    case 7: return compare_number(peak, "fp32.one.best");
    case 8: return compare_number(peak, "fp32.all.best");
    default:
      barriers = compare_number(last_of(points), "barrier.best");
      return barriers > 0 ? 1e3 / barriers : 0; /* billionths, as the others are billions */
  }
}

bool compare_limit_row(const compare *c, size_t i, compare_row *row) {
  static const char *const names[] = {"read memory, one thread, GB/s",
                                      "read memory, all threads, GB/s",
                                      "read L1, one thread, GB/s",
                                      "read L2, one thread, GB/s",
                                      "read L3, one thread, GB/s",
                                      "int8, highest tier, one thread, GOP/s",
                                      "int8, highest tier, all threads, GOP/s",
                                      "fp32, highest tier, one thread, GFLOP/s",
                                      "fp32, highest tier, all threads, GFLOP/s",
                                      "a barrier of all threads, us"};
  if (i >= sizeof names / sizeof *names) return false;
  *row = (compare_row){0};
  snprintf(row->name, sizeof row->name, "%s", names[i]);
  bool barrier = i + 1 == sizeof names / sizeof *names;
  for (size_t f = 0; f < c->files; f++) {
    double x = limit_value(&c->file[f], i) * (barrier ? 1e3 : 1e-9);
    row->number[f] = x;
    snprintf(row->value[f], COMPARE_VALUE, x > 0 ? "%.4g" : "-", x);
  }
  return true;
}

/* --- Records ----------------------------------------------------------------------- */

static void put_bytes(char text[COMPARE_VALUE], double bytes) {
  static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  for (; bytes >= 1024 && unit + 1 < sizeof units / sizeof *units; unit++) bytes /= 1024;
  snprintf(text, COMPARE_VALUE, "%.4g %s", bytes, units[unit]);
}

/* "2 performance + 8 efficient" of the kinds of cores. */
static void put_kinds(char text[COMPARE_VALUE], const json_t *list) {
  size_t i, used = 0;
  json_t *kind;
  json_array_foreach(list, i, kind) {
    const char *type = compare_text(kind, "type");
    double mhz = compare_number(kind, "mhz");
    char clock[32] = "";
    if (mhz > 0) snprintf(clock, sizeof clock, " up to %.0f MHz", mhz);
    int n = snprintf(text + used, COMPARE_VALUE - used, "%s%.0f%s%.24s%s", i ? " + " : "",
                     compare_number(kind, "cores"), type && *type ? " " : "", type ? type : "",
                     clock);
    used += (size_t)n;
    if (used >= COMPARE_VALUE) return;
  }
}

static void put_caches(char text[COMPARE_VALUE], const json_t *list) {
  size_t i, used = 0;
  json_t *cache;
  json_array_foreach(list, i, cache) {
    char bytes[COMPARE_VALUE], shared[24] = "";
    double cores = compare_number(cache, "cores");
    put_bytes(bytes, compare_number(cache, "bytes"));
    if (cores > 1) snprintf(shared, sizeof shared, " of %.0f cores", cores);
    int n = snprintf(text + used, COMPARE_VALUE - used, "%sL%.0f %s%s", i ? ", " : "",
                     compare_number(cache, "level"), bytes, shared);
    used += (size_t)n;
    if (used >= COMPARE_VALUE) return;
  }
}

/* The limit of threads that decides, of all that there are. */
static void put_winner(char text[COMPARE_VALUE], const json_t *list) {
  size_t i;
  json_t *limit;
  json_array_foreach(list, i, limit) {
    const char *what = compare_text(limit, "what");
    if (what && json_is_true(compare_get(limit, "won")))
      snprintf(text, COMPARE_VALUE, "%.0f: %.120s", compare_number(limit, "threads"), what);
  }
}

/* The session that needs the most memory, without the others. */
static void put_alone(char text[COMPARE_VALUE], const json_t *list) {
  size_t i;
  double most = 0;
  json_t *session;
  json_array_foreach(list, i, session) {
    double bytes = compare_number(session, "alone_bytes");
    if (bytes > most) most = bytes;
  }
  if (most > 0) put_bytes(text, most);
}

typedef enum form { TEXT, NUMBER, BYTES, FLAG, KINDS, CACHES, WINNER, ALONE } form;

static const struct record {
  const char *name, *path;
  form form;
} records[] = {
    {"CPU", "machine.cpu", TEXT},
    {"architecture", "machine.architecture", TEXT},
    {"virtual", "machine.virtual", FLAG},
    {"CPUs", "machine.cpus", NUMBER},
    {"cores", "machine.cores", NUMBER},
    {"kinds of cores", "machine.kinds", KINDS},
    {"threads by", "machine.thread_limits", WINNER},
    {"caches", "machine.caches", CACHES},
    {"memory", "machine.memory_bytes", BYTES},
    {"NUMA nodes", "machine.nodes", NUMBER},
    {"page", "machine.page_bytes", BYTES},
    {"huge pages", "machine.huge_pages", TEXT},
    {"kernel", "machine.kernel", TEXT},
    {"governor", "machine.governor", TEXT},
    {"load before", "machine.load_before", NUMBER},
    {"kernel tiers", "machine.tiers", TEXT},
    {"headrow", "program.version", TEXT},
    {"commit", "program.commit", TEXT},
    {"arithmetic", "program.arithmetic", NUMBER},
    {"compiler", "program.compiler", TEXT},
    {"model", "model.name", TEXT},
    {"weights", "model.weight_bytes", BYTES},
    {"types of weights", "model.types", TEXT},
    {"bytes for a token", "model.bytes_per_token", BYTES},
    {"KV cache", "settings.cache", TEXT},
    {"samples", "settings.repeat", NUMBER},
    {"loading cold, s", "loading.cold_seconds", NUMBER},
    {"loading warm, s", "loading.warm_seconds", NUMBER},
    {"memory of all sessions", "memory.peak_bytes", BYTES},
    {"memory of one session", "memory.sessions", ALONE},
    {"checked against", "check.by", TEXT},
    {"written", "time", TEXT},
};

static void put_record(char text[COMPARE_VALUE], const struct record *r, const json_t *root) {
  const json_t *value = compare_get(root, r->path);
  double x = compare_number(root, r->path);
  snprintf(text, COMPARE_VALUE, "-");
  if (r->form == TEXT && json_is_string(value))
    snprintf(text, COMPARE_VALUE, "%s", json_string_value(value));
  if (r->form == NUMBER && json_is_number(value)) snprintf(text, COMPARE_VALUE, "%.6g", x);
  if (r->form == BYTES && x > 0) put_bytes(text, x);
  if (r->form == FLAG && json_is_boolean(value))
    snprintf(text, COMPARE_VALUE, json_is_true(value) ? "yes" : "no");
  if (r->form == KINDS) put_kinds(text, value);
  if (r->form == CACHES) put_caches(text, value);
  if (r->form == WINNER) put_winner(text, value);
  if (r->form == ALONE) put_alone(text, value);
}

/* What was cut off must not end within a code point. */
static void mend_end(char text[COMPARE_VALUE]) {
  size_t length = strlen(text);
  if (length + 1 < COMPARE_VALUE) return;
  while (length && ((unsigned char)text[length - 1] & 0xc0) == 0x80) length--;
  if (length && (unsigned char)text[length - 1] >= 0xc0) length--;
  if (length > COMPARE_VALUE - 4) length = COMPARE_VALUE - 4;
  while (length && ((unsigned char)text[length] & 0xc0) == 0x80) length--;
  memcpy(text + length, "...", 4);
}

bool compare_record_row(const compare *c, size_t i, compare_row *row) {
  if (i >= sizeof records / sizeof *records) return false;
  *row = (compare_row){0};
  snprintf(row->name, sizeof row->name, "%s", records[i].name);
  for (size_t f = 0; f < c->files; f++) {
    put_record(row->value[f], &records[i], c->file[f].root);
    mend_end(row->value[f]);
    if (strcmp(row->value[f], row->value[0]) != 0) row->differs = true;
  }
  return true;
}

/* --- Kernels ----------------------------------------------------------------------- */

/* Bytes of the slot's name in "product_q8__avx2". */
static size_t slot_length(const char *kernel) {
  const char *end = strstr(kernel, "__");
  return end ? (size_t)(end - kernel) : strlen(kernel);
}

/* The same work, by whatever tier. */
static bool is_same_kernel(const json_t *a, const json_t *b) {
  const char *x = compare_text(a, "kernel"), *y = compare_text(b, "kernel");
  const char *of_x = compare_text(a, "shape"), *of_y = compare_text(b, "shape");
  if (!x || !y || !of_x || !of_y) return false;
  size_t length = slot_length(x);
  return slot_length(y) == length && memcmp(x, y, length) == 0 && strcmp(of_x, of_y) == 0;
}

static const json_t *kernels_of(const compare *c, size_t file) {
  return compare_get(c->file[file].root, "kernel_rates");
}

bool compare_has_kernels(const compare *c) {
  return json_array_size(kernels_of(c, 0)) > 0;
}

static void put_kernel(compare_row *row, size_t f, const json_t *list, const json_t *like) {
  size_t i;
  json_t *entry;
  snprintf(row->value[f], COMPARE_VALUE, "-");
  json_array_foreach(list, i, entry) {
    double rate = compare_number(entry, "rate"), percent = compare_number(entry, "percent");
    const char *unit = compare_text(entry, "unit"), *bound = compare_text(entry, "bound");
    const char *isa = compare_text(entry, "isa");
    if (!is_same_kernel(entry, like) || !unit || !bound || !isa || rate <= row->number[f]) continue;
    char share[64] = "";
    if (percent > 0) snprintf(share, sizeof share, ", %.0f %% of %.16s", percent, bound);
    snprintf(row->value[f], COMPARE_VALUE, "%.4g %.16s%s%s (%.24s)", rate, unit, share,
             percent > 100 || (percent > 0 && !json_is_true(compare_get(entry, "valid")))
                 ? ", invalid"
                 : "",
             isa);
    row->number[f] = rate;
  }
}

bool compare_kernel_row(const compare *c, size_t i, compare_row *row) {
  const json_t *list = kernels_of(c, 0), *own = json_array_get(list, i);
  *row = (compare_row){0};
  if (!own) return false;
  for (size_t j = 0; j < i; j++) /* another tier of it was first */
    if (is_same_kernel(json_array_get(list, j), own)) return true;
  const char *kernel = compare_text(own, "kernel"), *shape = compare_text(own, "shape");
  if (!kernel || !shape) return true;
  snprintf(row->name, sizeof row->name, "%.*s, %s",
           (int)(slot_length(kernel) < 64 ? slot_length(kernel) : 64), kernel, shape);
  mend_end(row->name);
  for (size_t f = 0; f < c->files; f++) put_kernel(row, f, kernels_of(c, f), own);
  return true;
}
