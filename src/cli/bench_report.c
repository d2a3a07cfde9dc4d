/* SPDX-License-Identifier: MIT
 * What bench found, as tables. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "builtin.h"
#include "kernels/select.h"
#include "machine.h"
#include "output.h"
#include "save.h"
#include "table.h"

const char *bench_model_name(const bench *b) {
  const cli_texts *p = &b->set.common.positional;
  return b->set.synthetic ? b->shape.name : p->count ? p->item[0] : CLI_BUILTIN;
}

const char *bench_compiler(void) {
#ifdef __clang__
  return "clang " __clang_version__;
#else
  return "gcc " __VERSION__;
#endif
}

size_t bench_own_bytes(const bench *b) {
  return b->image.bytes;
}

static const char *isa_of(const bench_test *t) {
  return t->place->model->kernels.isa;
}

/* --- The head ------------------------------------------------------------------ */

static double mebi(size_t bytes) {
  return (double)bytes / 1048576;
}

/* Of the place that needs most. */
static size_t most_alone(const bench *b) {
  size_t most = 0;
  for (size_t i = 0; i < b->places; i++) {
    size_t alone = bench_alone_bytes(b, &b->place[i]);
    if (alone > most) most = alone;
  }
  return most;
}

static void print_loading(const bench *b, const char *before, const char *after) {
  const bench_loading *l = &b->loading;
  cli_print("%sloading%s  ", before, after);
  if (l->cold >= 0) cli_print("cold %.3f s%s", l->cold, l->warm >= 0 ? ", " : "");
  if (l->warm >= 0) cli_print("warm %.3f s", l->warm);
  if (l->cold < 0 && l->warm < 0) cli_print("%.3f s (%s)", l->seconds, l->cold_reason);
  if (b->set.cold && l->cold < 0) cli_print(" (not cold: %s)", l->cold_reason);
  cli_print(", a session %.3f s", b->place[0].session_seconds);
  if (b->peak_bytes)
    cli_print("; memory at most %.1f MiB, of it %.1f for bench itself", mebi(b->peak_bytes),
              mebi(bench_own_bytes(b)));
  if (b->places > 1) cli_print(" and all %zu sessions; with one alone", b->places);
  if (b->places > 1 && bench_alone_bytes(b, &b->place[0]))
    cli_print(" %.1f", mebi(most_alone(b)));
  else if (b->places > 1)
    cli_print(" not known");
  cli_print("\n");
}

static void print_model(const bench *b, const char *before, const char *after) {
  const hr_model *m = b->model;
  if (!m) return;
  cli_print("%smodel%s    %s, %s, %.1f M parameters, weights %.1f MiB, cache %s\n", before, after,
            bench_model_name(b), m->loaded.transformer.description.family,
            (double)m->loaded.parameters * 1e-6, mebi(m->loaded.weight_bytes),
            hr_session_cache(b->place[0].session) == HR_CACHE_F16 ? "f16" : "f32");
  print_loading(b, before, after);
  const bench_check *c = &b->check;
  cli_print("%slogits%s   checked against %s", before, after, c->by);
  if (c->has_digest) cli_print(", digest %d-%016" PRIx64, HR_ARITHMETIC, c->digest);
  cli_print("\n");
}

static void print_machine(const bench *b, const char *before, const char *after) {
  char cpu[128];
  const char *name = cli_cpu_name(bench_sysroot(b), cpu);
  cli_sensor_names n = cli_sensors_names(b->sensors);
  cli_print("%smachine%s  %s, memory %.1f GiB", before, after, name ? name : "CPU not known",
            mebi(bench_memory("/proc/meminfo", "MemTotal")) / 1024);
  if (n.governor) cli_print(", governor %s", n.governor);
  if (b->best_mhz > 0) cli_print(", up to %.0f MHz seen (%s)", b->best_mhz, n.frequency);
  if (b->load_before >= 0) cli_print(", load %.1f before", b->load_before);
  if (b->load_after >= 0) cli_print(" and %.1f after", b->load_after);
  cli_print("\n%sprogram%s  headrow %s, arithmetic %d, %s\n", before, after, hr_version(),
            HR_ARITHMETIC, bench_compiler());
}

/* --- Limits -------------------------------------------------------------------- */

/* A rate in billions a second, or a dash. */
static void add_rate(cli_table *t, double rate) {
  if (rate > 0)
    cli_table_add(t, "%.1f", rate * 1e-9);
  else
    cli_table_add(t, "-");
}

static void add_micros(cli_table *t, double rate) {
  if (rate > 0)
    cli_table_add(t, "%.2f", 1e6 / rate);
  else
    cli_table_add(t, "-");
}

static const char *bytes_text(uint64_t bytes, char text[24]) {
  bool mega = bytes >= 1048576;
  snprintf(text, 24, "%.4g %s", (double)bytes / (mega ? 1048576 : 1024), mega ? "MiB" : "KiB");
  return text;
}

/* Rows of the machine's own limits: one thread beside all. */
static void add_caches(const bench *b, cli_table *t) {
  const bench_capacity *c = &b->capacity;
  for (size_t i = 0; i < BENCH_CACHES; i++) {
    char text[24];
    if (!c->cache[i].size.bytes) continue;
    cli_table_add(t, "read L%zu, %s", i + 1, bytes_text(c->cache[i].size.bytes, text));
    cli_table_add(t, "GB/s");
    for (size_t all = 0; all < 2; all++) add_rate(t, bench_series_best(b, &c->cache[i].read[all]));
  }
}

static void add_memory(const bench *b, cli_table *t) {
  const bench_capacity *c = &b->capacity;
  cli_table_add(t, "read memory");
  cli_table_add(t, "GB/s");
  add_rate(t, bench_series_best(b, &c->point[0].read));
  add_rate(t, c->points > 1 ? bench_series_best(b, &c->point[c->points - 1].read) : 0);
}

static void add_peaks(const bench *b, cli_table *t) {
  const bench_capacity *c = &b->capacity;
  for (size_t i = 0; i < c->tiers; i++)
    for (size_t fp32 = 0; fp32 < 2; fp32++) {
      const bench_series *s = fp32 ? c->tier[i].fp32 : c->tier[i].int8;
      const char *isa = c->tier[i].isa, *by = c->tier[i].peaks->name;
      bool own = strcmp(isa, by) == 0; /* a tier without loops of its own has another one's */
      cli_table_add(t, "%s, %s%s%s", fp32 ? "fp32" : "int8", isa, own ? "" : " by loops of ",
                    own ? "" : by);
      cli_table_add(t, fp32 ? "GFLOP/s" : "GOP/s");
      for (size_t all = 0; all < 2; all++) add_rate(t, bench_series_best(b, &s[all]));
    }
}

static void add_barrier(const bench *b, cli_table *t) {
  const bench_capacity *c = &b->capacity;
  cli_table_add(t, "a barrier");
  cli_table_add(t, "us");
  cli_table_add(t, "-");
  add_micros(t, c->points > 1 ? bench_series_best(b, &c->point[c->points - 1].barrier) : 0);
}

/* Between one thread and all. */
static void print_points(const bench *b) {
  const bench_capacity *c = &b->capacity;
  if (c->points < 3) return;
  cli_print("\nread memory by threads:");
  for (size_t i = 0; i < c->points; i++)
    cli_print("%s %u: %.1f", i ? "," : "", c->point[i].threads,
              bench_series_best(b, &c->point[i].read) * 1e-9);
  cli_print(" GB/s\n");
}

static int print_capacity(const bench *b, cli_table_form form) {
  char heads[64];
  snprintf(heads, sizeof heads, "the machine|unit|1 thread:|%u threads:", b->capacity.threads);
  cli_table *t = cli_table_new(heads);
  add_memory(b, t);
  add_caches(b, t);
  add_peaks(b, t);
  add_barrier(b, t);
  int status = cli_table_end(t, form);
  print_points(b);
  return status;
}

static int print_limits(const bench *b, cli_table_form form) {
  cli_table *t =
      cli_table_new("tier|threads:|read GB/s:|int8 GOP/s:|fp32 GFLOP/s:|barrier us:");
  for (size_t i = 0; i < b->places; i++)
    for (size_t j = 0; j < 2; j++) {
      const bench_limits *l = &b->place[i].limits[j];
      if (!l->threads) continue;
      cli_table_add(t, "%s", b->place[i].model->kernels.isa);
      cli_table_add(t, "%u", l->threads);
      add_rate(t, bench_limit_best(l, BENCH_READ));
      add_rate(t, bench_limit_best(l, BENCH_INT8));
      add_rate(t, bench_limit_best(l, BENCH_FP32));
      add_micros(t, bench_limit_best(l, BENCH_BARRIER));
    }
  return cli_table_end(t, form);
}

/* --- Results ------------------------------------------------------------------- */

static void add_share(cli_table *t, const bench_result *r) {
  char disturbed[48] = "";
  if (r->disturbed)
    snprintf(disturbed, sizeof disturbed, ", %zu of %zu disturbed", r->disturbed, r->seconds.count);
  if (r->percent < 0)
    cli_table_add(t, "-%s", disturbed);
  else
    cli_table_add(t, "%.1f %% %s%s%s", r->percent, r->bound.limit, r->valid ? "" : " (invalid)",
                  disturbed);
}

static void add_percent(cli_table *t, double percent) {
  if (percent < 0)
    cli_table_add(t, "-");
  else
    cli_table_add(t, "%.0f %%%s", percent, percent > 100 ? " (invalid)" : "");
}

static void add_result(cli_table *t, const bench_test *test, const bench_result *r) {
  char name[64];
  cli_table_add(t, "%s", isa_of(test));
  cli_table_add(t, "%u", bench_test_threads(test));
  cli_table_add(t, "%s", bench_test_name(test, name));
  cli_table_add(t, "%.2f", r->rate.median);
  cli_table_add(t, "%.2f", r->rate.least);
  cli_table_add(t, r->rate.count < 2 ? "-" : "%.2f", r->rate.sd);
  cli_table_add(t, "%.4f", r->seconds.p95);
  cli_table_add(t, test->amount.prompt ? "%.4f" : "-", r->first.median);
  cli_table_add(t, r->joules.count ? "%.4f" : "-", r->joules.median);
  add_share(t, r);
  add_percent(t, r->of_form);
  add_percent(t, r->of_reading);
}

static int print_results(const bench *b, cli_table_form form) {
  cli_table *t = cli_table_new(
      "tier|threads:|work|tokens/s:|least:|sd:|p95 s:|first s:|J/token:|of limit|of form:|of "
      "reading:");
  for (size_t i = 0; i < b->tests; i++) {
    bench_result r;
    if (!bench_result_of(b, &b->test[i], &r)) {
      cli_table_free(t);
      return cli_fail_memory();
    }
    add_result(t, &b->test[i], &r);
  }
  return cli_table_end(t, form);
}

/* Where more threads stop to help. */
static void print_knees(const bench *b) {
  bool any = false;
  for (size_t i = 0; i < b->tests; i++) {
    bench_scaling s;
    char name[64];
    if (!bench_scaling_of(b, &b->test[i], &s)) continue;
    double best = 0;
    for (size_t j = 0; j < s.count; j++)
      if (s.rate[j] > best) best = s.rate[j];
    const bench_test *knee = s.test[s.knee];
    unsigned threads = bench_test_threads(knee);
    bench_result r;
    bool disturbed = bench_result_of(b, knee, &r) && r.disturbed == knee->count;
    cli_print("%sknee: %s, %s: %u thread%s %.0f %% of the best rate%s\n", any ? "" : "\n",
              bench_test_name(&b->test[i], name), isa_of(&b->test[i]), threads,
              threads == 1 ? " reaches" : "s reach", 100 * s.rate[s.knee] / best,
              disturbed ? " (all of its samples were disturbed)" : "");
    any = true;
  }
}

static bool is_same_but_batch(const bench_test *a, const bench_test *b) {
  const bench_amount *x = &a->amount, *y = &b->amount;
  return a->place == b->place && x->prompt == y->prompt && x->tokens == y->tokens &&
         x->depth == y->depth;
}

/* What more sequences at once bring. Tests that differ in it lie side by side. */
static void print_batches(const bench *b) {
  for (size_t i = 0, end; i < b->tests; i = end) {
    const bench_test *first = &b->test[i];
    bench_test one = *first;
    char name[64];
    double rate = bench_median_rate(b, first);
    for (end = i + 1; end < b->tests && is_same_but_batch(first, &b->test[end]);) end++;
    if (end == i + 1) continue;
    one.amount.batch = 1;
    cli_print("%sbatch: %s, %s, threads %u:", i ? "" : "\n", bench_test_name(&one, name),
              isa_of(first), bench_test_threads(&b->test[end - 1]));
    for (size_t j = i; j < end; j++)
      cli_print("%s %zu: %.2f x", j > i ? "," : "", b->test[j].amount.batch,
                bench_median_rate(b, &b->test[j]) / rate);
    cli_print(" the tokens/s of batch %zu\n", first->amount.batch);
  }
}

/* --- Kernels ------------------------------------------------------------------- */

static int print_kernels(const bench *b, cli_table_form form) {
  cli_table *t = cli_table_new("kernel|shape|threads:|rate:|unit|median:|sd:|limit:|of limit");
  for (size_t i = 0; i < b->kernels; i++) {
    const perf_kernel_row *k = &b->kernel[i];
    cli_table_add(t, "%s", k->kernel);
    cli_table_add(t, "%s", k->shape);
    cli_table_add(t, "%u", k->threads);
    cli_table_add(t, "%.1f", k->rate);
    cli_table_add(t, "%s", k->unit);
    cli_statistics s = {0};
    if (!bench_statistics_of(k->rates, k->rounds, 0, &s)) {
      cli_table_free(t);
      return cli_fail_memory();
    }
    cli_table_add(t, "%.1f", s.median);
    cli_table_add(t, s.count < 2 ? "-" : "%.1f", s.sd);
    cli_table_add(t, k->limit > 0 ? "%.1f" : "-", k->limit);
    if (k->limit > 0)
      cli_table_add(t, "%.1f %% %s%s", 100 * k->rate / k->limit, k->bound,
                    k->rate > k->limit              ? " (invalid)"
                    : k->busy                       ? " (invalid: busy)"
                    : k->rounds < PERF_LEAST_ROUNDS ? " (invalid: few rounds)"
                                                    : "");
    else
      cli_table_add(t, "-");
  }
  return cli_table_end(t, form);
}

/* --- All ----------------------------------------------------------------------- */

static int print_tables(const bench *b, cli_table_form form) {
  bool markdown = form == CLI_TABLE_MARKDOWN;
  const char *before = markdown ? "- " : "", *after = markdown ? ":" : "";
  print_model(b, before, after);
  print_machine(b, before, after);
  cli_print("\n");
  int status = print_capacity(b, form);
  cli_print("\n");
  if (b->kernels) return status == HR_OK ? print_kernels(b, form) : status;
  if (status == HR_OK) status = print_limits(b, form);
  if (!b->set.block) cli_print("\n");
  if (b->set.block) return status;
  if (status == HR_OK) status = print_results(b, form);
  if (status == HR_OK) print_knees(b);
  if (status == HR_OK) print_batches(b);
  return status;
}

/* A field in quotes, those in it doubled. */
static void print_field(const char *text) {
  cli_print("\"");
  for (; *text; text++) cli_print(*text == '"' ? "\"\"" : "%c", *text);
  cli_print("\"");
}

static int print_csv(const bench *b) {
  if (b->kernels) return print_kernels(b, CLI_TABLE_CSV);
  cli_print(
      "model,tier,threads,work,tokens,depth,samples,tokens_per_second,least,most,sd,p95_seconds,"
      "first_token_seconds,limit,percent,valid,digest,disturbed,joules_per_token,batch,"
      "reading_percent,form_percent\n");
  for (size_t i = 0; i < b->tests; i++) {
    const bench_test *t = &b->test[i];
    bench_result r;
    if (!bench_result_of(b, t, &r)) return cli_fail_memory();
    print_field(bench_model_name(b));
    cli_print(",%s,%u,%s,%zu,%zu,%zu,%.9g,%.9g,%.9g,", isa_of(t), bench_test_threads(t),
              t->amount.prompt ? "prompt" : "generate", t->amount.tokens, t->amount.depth,
              t->count, r.rate.median, r.rate.least, r.rate.most);
    if (r.rate.count > 1) cli_print("%.9g", r.rate.sd);
    cli_print(",%.9g,", r.seconds.p95);
    if (t->amount.prompt) cli_print("%.9g", r.first.median);
    if (r.percent >= 0)
      cli_print(",%s,%.4g,%s", r.bound.limit, r.percent, r.valid ? "true" : "false");
    else
      cli_print(",,,");
    cli_print(",%d-%016" PRIx64 ",%zu,", HR_ARITHMETIC, t->digest, r.disturbed);
    if (r.joules.count) cli_print("%.9g", r.joules.median);
    cli_print(",%zu,", t->amount.batch);
    if (r.of_reading >= 0) cli_print("%.4g", r.of_reading);
    cli_print(r.of_form < 0 ? ",\n" : ",%.4g\n", r.of_form);
  }
  return HR_OK;
}

static int save_json(const char *path, json_t *document) {
  if (!document) return cli_fail_memory();
  char *text = json_dumps(document, JSON_INDENT(1) | JSON_REAL_PRECISION(9));
  json_decref(document);
  cli_bytes bytes = {0};
  bool fine = text && cli_bytes_add(&bytes, text, strlen(text)) && cli_bytes_add(&bytes, "\n", 1);
  int status = fine ? cli_save_file(path, bytes.data, bytes.used) : cli_fail_memory();
  cli_bytes_free(&bytes);
  free(text);
  return status;
}

int bench_report(const bench *b) {
  const bench_settings *s = &b->set;
  if (s->json && strcmp(s->json, "-") == 0) return cli_print_json(bench_json(b));
  int status = s->csv ? print_csv(b)
               : print_tables(b, s->markdown ? CLI_TABLE_MARKDOWN : CLI_TABLE_TEXT);
  if (status == HR_OK && s->profile) bench_profile_print(b);
  if (status == HR_OK && s->json) status = save_json(s->json, bench_json(b));
  return status;
}
