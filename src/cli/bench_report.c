/* SPDX-License-Identifier: MIT
 * What bench found: a table, Markdown, comma-separated values, JSON. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench.h"
#include "builtin.h"
#include "kernels/select.h"
#include "machine.h"
#include "output.h"
#include "save.h"
#include "statistics.h"

/* --- Results ------------------------------------------------------------------- */

/* A test in numbers. */
typedef struct result {
  cli_statistics seconds, rate, first;
  bench_bound bound;
  double percent; /* of the limit, by the median; below 0: not known */
  bool valid;
} result;

/* Statistics of 1/x * scale, or of x itself when scale is 0. */
static bool statistics_of(const double *samples, size_t count, double scale, cli_statistics *to) {
  double *copy = calloc(count ? count : 1, sizeof *copy);
  if (!copy) return false;
  for (size_t i = 0; i < count; i++) copy[i] = scale > 0 ? scale / samples[i] : samples[i];
  *to = cli_statistics_of(copy, count);
  free(copy);
  return true;
}

static bool result_of(const bench_test *t, result *r) {
  *r = (result){.bound = bench_bound_of(t, &t->work), .percent = -1};
  if (!statistics_of(t->seconds, t->count, 0, &r->seconds) ||
      !statistics_of(t->seconds, t->count, (double)t->tokens, &r->rate) ||
      !statistics_of(t->first, t->count, 0, &r->first))
    return false;
  if (r->bound.seconds > 0 && r->seconds.median > 0)
    r->percent = 100 * r->bound.seconds / r->seconds.median;
  r->valid = r->percent >= 0 && r->percent <= 100;
  return true;
}

static const char *isa_of(const bench_test *t) {
  return t->place->model->kernels.isa;
}

static unsigned threads_of(const bench_test *t) {
  return t->prompt ? hr_session_threads_batch(t->place->session)
                   : hr_session_threads(t->place->session);
}

static const char *model_name(const bench *b) {
  const cli_texts *p = &b->set.common.positional;
  return b->set.synthetic ? b->shape.name : p->count ? p->item[0] : CLI_BUILTIN;
}

static const char *compiler(void) {
#ifdef __clang__
  return "clang " __clang_version__;
#else
  return "gcc " __VERSION__;
#endif
}

/* What bench itself holds, within the peak. */
static size_t own_bytes(const bench *b) {
  return b->image.bytes + b->buffer.bytes;
}

/* --- Tables -------------------------------------------------------------------- */

static double mebi(size_t bytes) {
  return (double)bytes / 1048576;
}

static void print_head(const bench *b, const char *before, const char *after) {
  const hr_model *m = b->model;
  char cpu[128];
  cli_print("%smodel%s    %s, %s, %.1f M parameters, weights %.1f MiB, cache %s\n", before, after,
            model_name(b), m->loaded.transformer.description.family,
            (double)m->loaded.parameters * 1e-6, mebi(m->loaded.weight_bytes),
            hr_session_cache(b->place[0].session) == HR_CACHE_F16 ? "f16" : "f32");
  const char *name = bench_cpu_name(cpu);
  cli_print("%smachine%s  %s, memory %.1f GiB", before, after, name ? name : "CPU not known",
            mebi(bench_memory("/proc/meminfo", "MemTotal")) / 1024);
  if (b->load_before >= 0) cli_print(", load %.1f before", b->load_before);
  if (b->load_after >= 0) cli_print(" and %.1f after", b->load_after);
  cli_print("\n%sprogram%s  headrow %s, arithmetic %d, %s\n", before, after, hr_version(),
            HR_ARITHMETIC, compiler());
  cli_print("%sloading%s  %.3f s, a session %.3f s", before, after, b->load_seconds,
            b->place[0].session_seconds);
  if (b->peak_bytes)
    cli_print("; memory at most %.1f MiB, of it %.1f for bench itself", mebi(b->peak_bytes),
              mebi(own_bytes(b)));
  cli_print("\n\n");
}

/* A rate of a limit, or a dash. */
static const char *rate_text(double rate, char text[16]) {
  if (rate > 0)
    snprintf(text, 16, "%.1f", rate * 1e-9);
  else
    snprintf(text, 16, "-");
  return text;
}

static void print_limits(const bench *b, const char *row) {
  char a[16], c[16], d[16], threads[16];
  for (size_t i = 0; i < b->places; i++)
    for (size_t j = 0; j < 2; j++) {
      const bench_limits *l = &b->place[i].limits[j];
      if (!l->threads) continue;
      snprintf(threads, sizeof threads, "%u", l->threads);
      cli_print(row, b->place[i].model->kernels.isa, threads,
                rate_text(bench_limit_best(l, BENCH_READ), a),
                rate_text(bench_limit_best(l, BENCH_INT8), c),
                rate_text(bench_limit_best(l, BENCH_FP32), d));
    }
}

static const char *share_text(const result *r, char text[64]) {
  if (r->percent < 0)
    snprintf(text, 64, "-");
  else
    snprintf(text, 64, "%.1f %% %s%s", r->percent, r->bound.limit, r->valid ? "" : " (invalid)");
  return text;
}

static int print_results(const bench *b, const char *row) {
  for (size_t i = 0; i < b->tests; i++) {
    const bench_test *t = &b->test[i];
    char name[64], share[64], text[6][24];
    result r;
    if (!result_of(t, &r)) return cli_fail_memory();
    snprintf(text[0], 24, "%u", threads_of(t));
    snprintf(text[1], 24, "%.2f", r.rate.median);
    snprintf(text[2], 24, "%.2f", r.rate.least);
    snprintf(text[3], 24, "%.2f", r.rate.most);
    snprintf(text[4], 24, r.rate.count < 2 ? "-" : "%.2f", r.rate.sd);
    snprintf(text[5], 24, "%.4f", r.seconds.p95);
    cli_print(row, isa_of(t), text[0], bench_test_name(t, name), text[1], text[2], text[3], text[4],
              text[5], share_text(&r, share));
  }
  return HR_OK;
}

#define LIMIT_HEADS "tier", "threads", "read GB/s", "int8 GOP/s", "fp32 GFLOP/s"
#define RESULT_HEADS \
  "tier", "threads", "work", "tokens/s", "least", "most", "sd", "p95 s", "of limit"

static int print_table(const bench *b) {
  static const char limits[] = "%-11s %7s %11s %11s %13s\n";
  static const char results[] = "%-11s %7s  %-27s %9s %9s %9s %8s %8s  %s\n";
  print_head(b, "", "");
  cli_print(limits, LIMIT_HEADS);
  print_limits(b, limits);
  cli_print("\n");
  cli_print(results, RESULT_HEADS);
  return print_results(b, results);
}

static int print_markdown(const bench *b) {
  static const char limits[] = "| %s | %s | %s | %s | %s |\n";
  static const char results[] = "| %s | %s | %s | %s | %s | %s | %s | %s | %s |\n";
  print_head(b, "- ", ":");
  cli_print(limits, LIMIT_HEADS);
  cli_print("|---|---:|---:|---:|---:|\n");
  print_limits(b, limits);
  cli_print("\n");
  cli_print(results, RESULT_HEADS);
  cli_print("|---|---:|---|---:|---:|---:|---:|---:|---:|\n");
  return print_results(b, results);
}

/* A field in quotes, those in it doubled. */
static void print_field(const char *text) {
  cli_print("\"");
  for (; *text; text++) cli_print(*text == '"' ? "\"\"" : "%c", *text);
  cli_print("\"");
}

static int print_csv(const bench *b) {
  cli_print(
      "model,tier,threads,work,tokens,depth,samples,tokens_per_second,least,most,sd,p95_seconds,"
      "first_token_seconds,limit,percent,valid,digest\n");
  for (size_t i = 0; i < b->tests; i++) {
    const bench_test *t = &b->test[i];
    result r;
    if (!result_of(t, &r)) return cli_fail_memory();
    print_field(model_name(b));
    cli_print(",%s,%u,%s,%zu,%zu,%zu,%.9g,%.9g,%.9g,", isa_of(t), threads_of(t),
              t->prompt ? "prompt" : "generate", t->tokens, t->depth, t->count, r.rate.median,
              r.rate.least, r.rate.most);
    if (r.rate.count > 1) cli_print("%.9g", r.rate.sd);
    cli_print(",%.9g,", r.seconds.p95);
    if (t->prompt) cli_print("%.9g", r.first.median);
    if (r.percent >= 0)
      cli_print(",%s,%.4g,%s", r.bound.limit, r.percent, r.valid ? "true" : "false");
    else
      cli_print(",,,");
    cli_print(",%d-%016" PRIx64 "\n", HR_ARITHMETIC, t->digest);
  }
  return HR_OK;
}

/* --- JSON ---------------------------------------------------------------------- */

/* What is not a number above zero is not known. */
static json_t *json_number(double x) {
  return isfinite(x) && x > 0 ? json_real(x) : json_null();
}

static json_t *json_samples(const double *samples, size_t count) {
  json_t *list = json_array();
  for (size_t i = 0; i < count; i++) json_array_append_new(list, json_number(samples[i]));
  return list;
}

static json_t *json_statistics(const cli_statistics *s) {
  return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o}", "median", json_number(s->median), "mean",
                   json_number(s->mean), "min", json_number(s->least), "max", json_number(s->most),
                   "p95", json_number(s->p95), "sd",
                   s->count < 2 ? json_null() : json_real(s->sd));
}

static json_t *json_numbers(const bench_numbers *list) {
  json_t *all = json_array();
  for (size_t i = 0; i < list->count; i++)
    json_array_append_new(all, json_integer((json_int_t)list->item[i]));
  return all;
}

static json_t *json_settings(const bench *b) {
  const cli_common *c = &b->set.common;
  json_t *threads = json_array();
  for (size_t i = 0; i < b->threads.count; i++)
    json_array_append_new(threads, b->threads.item[i]
                                       ? json_integer((json_int_t)b->threads.item[i])
                                       : json_string("auto"));
  return json_pack("{s:o, s:o, s:o, s:o, s:I, s:i, s:I, s:s, s:b, s:s?, s:s?}", "prompt",
                   json_numbers(&b->prompt), "predict", json_numbers(&b->predict), "depth",
                   json_numbers(&b->depth), "threads", threads, "repeat",
                   (json_int_t)b->set.repeat.value, "warm_up_rounds", 1, "context",
                   (json_int_t)b->context, "cache",
                   hr_session_cache(b->place[0].session) == HR_CACHE_F16 ? "f16" : "f32", "no_pin",
                   c->no_pin, "cores", c->cores, "isa", c->isa);
}

static json_t *json_model(const bench *b) {
  const hr_model *m = b->model;
  const hr_description *d = &m->loaded.transformer.description;
  bench_work token = bench_work_of(b->place[0].session, 0, 1, 1);
  return json_pack(
      "{s:o, s:b, s:s, s:I, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:I, s:f}", "name",
      cli_json_text(model_name(b), strlen(model_name(b))), "synthetic", b->set.synthetic != NULL,
      "family", d->family, "parameters", (json_int_t)m->loaded.parameters, "layers", d->layers,
      "width", d->width, "heads", d->heads, "kv_heads", d->kv_heads, "head_width", d->head_width,
      "ffn_width", d->ffn_width, "vocabulary", d->vocab, "weight_bytes",
      (json_int_t)m->loaded.weight_bytes, "bytes_per_token", token.bytes);
}

static json_t *json_memory(const bench *b) {
  return json_pack("{s:o, s:I, s:I, s:I}", "peak_bytes",
                   b->peak_bytes ? json_integer((json_int_t)b->peak_bytes) : json_null(),
                   "bench_bytes", (json_int_t)own_bytes(b), "weight_bytes",
                   (json_int_t)b->model->loaded.weight_bytes, "cache_bytes",
                   (json_int_t)b->place[0].session->cache.bytes);
}

static json_t *json_limit(const bench_limits *l, bench_limit which, const char *unit) {
  double best = bench_limit_best(l, which);
  if (best <= 0) return json_null();
  return json_pack("{s:s, s:o, s:o}", "unit", unit, "best", json_number(best), "samples",
                   json_samples(l->value[which], l->count));
}

static json_t *json_seats(const bench_place *p, unsigned threads) {
  json_t *list = json_array();
  for (unsigned i = 0; i < threads; i++) {
    int cpu = hr_team_cpu(p->session->team, i);
    json_array_append_new(list, cpu < 0 ? json_null() : json_integer(cpu));
  }
  return list;
}

static json_t *json_limits(const bench *b) {
  json_t *list = json_array();
  for (size_t i = 0; i < b->places; i++)
    for (size_t j = 0; j < 2; j++) {
      const bench_place *p = &b->place[i];
      const bench_limits *l = &p->limits[j];
      if (!l->threads) continue;
      json_array_append_new(
          list, json_pack("{s:s, s:i, s:o, s:o, s:o, s:o, s:I, s:o}", "isa", p->model->kernels.isa,
                          "threads", l->threads, "cpus", json_seats(p, l->threads), "read",
                          json_limit(l, BENCH_READ, "bytes/s"), "int8",
                          json_limit(l, BENCH_INT8, "operations/s"), "fp32",
                          json_limit(l, BENCH_FP32, "operations/s"), "read_buffer_bytes",
                          (json_int_t)b->buffer.bytes, "read_huge_pages",
                          b->buffer.huge < 0 ? json_null() : json_boolean(b->buffer.huge)));
    }
  return list;
}

/* The share of what the binding limit allows, or why there is none. */
static json_t *json_bound(const bench_test *t, const result *r) {
  if (r->percent < 0)
    return json_pack("{s:n, s:n, s:n, s:b, s:s}", "name", "tokens_per_second", "percent", "valid",
                     false, "reason", r->bound.limit);
  return json_pack("{s:s, s:o, s:o, s:b, s:s?}", "name", r->bound.limit, "tokens_per_second",
                   json_number((double)t->tokens / r->bound.seconds), "percent",
                   json_number(r->percent), "valid", r->valid, "reason",
                   r->valid ? NULL : "above 100 %: the limit was measured too low");
}

static json_t *json_result(const bench_test *t) {
  char digest[32];
  result r;
  if (!result_of(t, &r)) return NULL;
  snprintf(digest, sizeof digest, "%d-%016" PRIx64, HR_ARITHMETIC, t->digest);
  json_t *first = t->prompt ? json_statistics(&r.first) : json_null();
  return json_pack(
      "{s:s, s:I, s:I, s:s, s:i, s:o, s:o, s:o, s:o, s:{s:f, s:f, s:f}, s:o, s:s, s:o}", "work",
      t->prompt ? "prompt" : "generate", "tokens", (json_int_t)t->tokens, "depth",
      (json_int_t)t->depth, "isa", isa_of(t), "threads", threads_of(t), "seconds_samples",
      json_samples(t->seconds, t->count), "seconds", json_statistics(&r.seconds),
      "tokens_per_second", json_statistics(&r.rate), "first_token_seconds", first, "amount",
      "int8_macs", t->work.int8_macs, "float_macs", t->work.float_macs, "bytes", t->work.bytes,
      "limit", json_bound(t, &r), "digest", digest, "profile",
      bench_profile_json(t));
}

static json_t *json_results(const bench *b) {
  json_t *list = json_array();
  for (size_t i = 0; i < b->tests; i++) json_array_append_new(list, json_result(&b->test[i]));
  return list;
}

static void add_kernel(void *data, const char *slot, const char *kernel) {
  json_object_set_new(data, slot, json_string(kernel));
}

static json_t *json_kernels(const bench *b) {
  json_t *all = json_object();
  for (size_t i = 0; i < b->variants; i++) {
    json_t *kernels = json_object();
    cli_visit_kernels(b->variant[i].kernels.isa, add_kernel, kernels);
    json_object_set_new(all, b->variant[i].kernels.isa, kernels);
  }
  return all;
}

static json_t *json_warnings(const bench *b) {
  json_t *list = json_array();
  for (size_t i = 0; i < b->warnings; i++)
    json_array_append_new(list, cli_json_text(b->warning[i], strlen(b->warning[i])));
  return list;
}

static json_t *json_program(void) {
  return json_pack("{s:s, s:i, s:s, s:s}", "version", hr_version(), "arithmetic", HR_ARITHMETIC,
                   "compiler", compiler(), "tiers", cli_tier_names());
}

static json_t *json_document(const bench *b) {
  char now[32] = "";
  time_t seconds = time(NULL);
  struct tm parts;
  if (gmtime_r(&seconds, &parts)) strftime(now, sizeof now, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return json_pack(
      "{s:s, s:i, s:s, s:o, s:o, s:o, s:o, s:{s:f, s:f, s:o}, s:o, s:o, s:o, s:o, s:o}", "schema",
      "headrow-bench", "schema_version", BENCH_SCHEMA, "time", now, "program", json_program(),
      "machine", bench_json_machine(b), "model", json_model(b), "settings", json_settings(b),
      "loading", "model_seconds", b->load_seconds, "session_seconds", b->place[0].session_seconds,
      "draw_seconds", b->set.synthetic ? json_number(b->make_seconds) : json_null(), "memory",
      json_memory(b), "limits", json_limits(b), "results", json_results(b), "kernels",
      json_kernels(b), "warnings", json_warnings(b));
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
  if (s->json && strcmp(s->json, "-") == 0) return cli_print_json(json_document(b));
  int status = s->csv ? print_csv(b) : s->markdown ? print_markdown(b) : print_table(b);
  if (status == HR_OK && s->profile) bench_profile_print(b);
  if (status == HR_OK && s->json) status = save_json(s->json, json_document(b));
  return status;
}
