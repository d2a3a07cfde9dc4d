/* SPDX-License-Identifier: MIT
 * What bench found, as JSON: the form that perf/schema.json describes. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "bench.h"
#include "cli/commit.h"
#include "kernels/select.h"
#include "machine.h"
#include "output.h"

/* --- Values -------------------------------------------------------------------- */

/* What is not a number above zero is not known. */
static json_t *json_number(double x) {
  return isfinite(x) && x > 0 ? json_real(x) : json_null();
}

static json_t *json_text_or_null(const char *text) {
  return text && *text ? cli_json_text(text, strlen(text)) : json_null();
}

static json_t *json_samples(const double *samples, size_t count) {
  json_t *list = json_array();
  for (size_t i = 0; i < count; i++) json_array_append_new(list, json_number(samples[i]));
  return list;
}

static json_t *json_statistics(const cli_statistics *s) {
  if (!s->count) return json_null();
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

static json_t *json_flag(int flag) {
  return flag < 0 ? json_null() : json_boolean(flag);
}

/* --- What was asked for ---------------------------------------------------------- */

static json_t *json_settings(const bench *b) {
  const cli_common *c = &b->set.common;
  json_t *threads = json_array();
  if (!b->model) {
    json_decref(threads);
    return json_pack("{s:b, s:s?}", "kernels", 1, "isa", c->isa);
  }
  for (size_t i = 0; i < b->threads.count; i++)
    json_array_append_new(threads, b->threads.item[i]
                                       ? json_integer((json_int_t)b->threads.item[i])
                                       : json_string("auto"));
  return json_pack("{s:o, s:o, s:o, s:o, s:o, s:I, s:i, s:I, s:s, s:b, s:b, s:b, s:b, s:s?, s:s?}",
                   "prompt", json_numbers(&b->prompt), "predict", json_numbers(&b->predict),
                   "depth", json_numbers(&b->depth), "batch", json_numbers(&b->batch), "threads",
                   threads, "repeat",
                   (json_int_t)b->set.repeat.value, "warm_up_rounds", 1, "context",
                   (json_int_t)b->context, "cache",
                   hr_session_cache(b->place[0].session) == HR_CACHE_F16 ? "f16" : "f32", "no_pin",
                   c->no_pin, "cold", b->set.cold, "kernels", 0, "block",
                   b->set.block != NULL, "cores", c->cores, "isa", c->isa);
}

/* "f16, q8_0": what the matrices of a model are held as. */
static json_t *json_types(const hr_transformer *t) {
  static const char *const names[HR_PANEL_TYPES] = {
      [HR_PANEL_F32] = "f32", [HR_PANEL_F16] = "f16", [HR_PANEL_BF16] = "bf16",
      [HR_PANEL_Q8] = "q8_0"};
  bool has[HR_PANEL_TYPES] = {false};
  char text[64] = "";
  size_t used = 0;
  for (size_t i = 0; i < bench_matrices(t); i++) {
    const hr_matrix *m = bench_matrix(t, i);
    if (m->panels) has[m->type] = true;
  }
  for (int i = 0; i < HR_PANEL_TYPES; i++)
    if (has[i])
      used += (size_t)snprintf(text + used, sizeof text - used, "%s%s", used ? ", " : "", names[i]);
  return json_string(text);
}

static json_t *json_model(const bench *b) {
  const hr_model *m = b->model;
  if (!m) return json_null();
  const hr_description *d = &m->loaded.transformer.description;
  const char *name = bench_model_name(b);
  const bench_amount one = {.tokens = 1, .batch = 1};
  bench_work token = bench_work_of(b->place[0].session, &one);
  return json_pack(
      "{s:o, s:b, s:s, s:o, s:I, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:I, s:f}", "name",
      cli_json_text(name, strlen(name)), "synthetic", b->set.synthetic != NULL, "family", d->family,
      "types", json_types(&m->loaded.transformer), "parameters", (json_int_t)m->loaded.parameters,
      "layers", d->layers, "width", d->width,
      "heads", d->heads, "kv_heads", d->kv_heads, "head_width", d->head_width, "ffn_width",
      d->ffn_width, "vocabulary", d->vocab, "weight_bytes", (json_int_t)m->loaded.weight_bytes,
      "bytes_per_token", token.bytes);
}

static json_t *json_loading(const bench *b) {
  const bench_loading *l = &b->loading;
  if (!b->model) return json_null();
  return json_pack("{s:f, s:o, s:o, s:o, s:o, s:f, s:o}", "model_seconds", l->seconds,
                   "cold_seconds", json_number(l->cold), "cold_reason",
                   json_text_or_null(l->cold < 0 ? l->cold_reason : NULL), "warm_seconds",
                   json_number(l->warm), "warm_reason",
                   json_text_or_null(l->warm < 0 ? l->warm_reason : NULL), "session_seconds",
                   b->place[0].session_seconds, "draw_seconds",
                   b->set.synthetic ? json_number(b->make_seconds) : json_null());
}

static json_t *json_size(size_t bytes) {
  return bytes ? json_integer((json_int_t)bytes) : json_null();
}

/* What each place's session has in memory, and what it would take alone. */
static json_t *json_sessions(const bench *b) {
  json_t *list = json_array();
  for (size_t i = 0; i < b->places; i++) {
    const bench_place *p = &b->place[i];
    json_array_append_new(
        list, json_pack("{s:s, s:i, s:i, s:o, s:o}", "isa", p->model->kernels.isa, "threads",
                        hr_session_threads(p->session), "threads_batch",
                        hr_session_threads_batch(p->session), "resident_bytes",
                        p->resident < 0 ? json_null() : json_integer((json_int_t)p->resident),
                        "alone_bytes", json_size(bench_alone_bytes(b, p))));
  }
  return list;
}

/* The digest of the check, and what it was held against. */
static json_t *json_check(const bench *b) {
  const bench_check *c = &b->check;
  char digest[32], expected[32];
  if (!b->model) return json_null();
  snprintf(digest, sizeof digest, "%d-%016" PRIx64, HR_ARITHMETIC, c->digest);
  snprintf(expected, sizeof expected, "%d-%016" PRIx64, HR_ARITHMETIC, c->expected);
  return json_pack("{s:o, s:o, s:o}", "digest", json_text_or_null(c->has_digest ? digest : NULL),
                   "expected", json_text_or_null(c->has_expected ? expected : NULL), "by",
                   json_text_or_null(*c->by ? c->by : NULL));
}

static json_t *json_memory(const bench *b) {
  if (!b->model) return json_null();
  return json_pack("{s:o, s:o, s:I, s:I, s:I, s:o}", "peak_bytes", json_size(b->peak_bytes),
                   "loading_bytes", json_size(b->loading_bytes), "bench_bytes",
                   (json_int_t)bench_own_bytes(b), "weight_bytes",
                   (json_int_t)b->model->loaded.weight_bytes, "cache_bytes",
                   (json_int_t)b->place[0].session->cache.bytes, "sessions", json_sessions(b));
}

/* --- Limits ---------------------------------------------------------------------- */

static json_t *json_series(const bench *b, const bench_series *s, const char *unit) {
  double best = bench_series_best(b, s);
  if (best <= 0) return json_null();
  return json_pack("{s:s, s:o, s:o}", "unit", unit, "best", json_number(best), "samples",
                   json_samples(s->sample, b->capacity.rounds));
}

static json_t *json_points(const bench *b) {
  json_t *list = json_array();
  for (size_t i = 0; i < b->capacity.points; i++)
    json_array_append_new(
        list, json_pack("{s:i, s:o, s:o}", "threads", b->capacity.point[i].threads, "read",
                        json_series(b, &b->capacity.point[i].read, "bytes/s"), "barrier",
                        json_series(b, &b->capacity.point[i].barrier, "barriers/s")));
  return list;
}

static json_t *json_caches(const bench *b) {
  json_t *list = json_array();
  for (size_t i = 0; i < BENCH_CACHES; i++)
    if (b->capacity.cache[i].size.bytes)
      json_array_append_new(
          list, json_pack("{s:i, s:I, s:i, s:o, s:o}", "level", (int)i + 1, "bytes",
                          (json_int_t)b->capacity.cache[i].size.bytes, "cores",
                          b->capacity.cache[i].size.cores, "one",
                          json_series(b, &b->capacity.cache[i].read[0], "bytes/s"), "all",
                          json_series(b, &b->capacity.cache[i].read[1], "bytes/s")));
  return list;
}

static json_t *json_peaks(const bench *b) {
  json_t *list = json_array();
  for (size_t i = 0; i < b->capacity.tiers; i++)
    json_array_append_new(
        list,
        json_pack("{s:s, s:{s:o, s:o}, s:{s:o, s:o}}", "isa", b->capacity.tier[i].isa, "int8",
                  "one", json_series(b, &b->capacity.tier[i].int8[0], "operations/s"), "all",
                  json_series(b, &b->capacity.tier[i].int8[1], "operations/s"), "fp32", "one",
                  json_series(b, &b->capacity.tier[i].fp32[0], "operations/s"), "all",
                  json_series(b, &b->capacity.tier[i].fp32[1], "operations/s")));
  return list;
}

static json_t *json_capacity(const bench *b) {
  return json_pack("{s:i, s:I, s:o, s:o, s:o, s:o}", "threads", b->capacity.threads, "buffer_bytes",
                   (json_int_t)b->capacity.buffer_bytes, "huge_pages", json_flag(b->capacity.huge),
                   "by_threads", json_points(b), "caches", json_caches(b), "peaks", json_peaks(b));
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
          list, json_pack("{s:s, s:i, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:I, s:o}", "isa",
                          p->model->kernels.isa, "threads", l->threads, "cpus",
                          json_seats(p, l->active), "read", json_limit(l, BENCH_READ, "bytes/s"),
                          "int8", json_limit(l, BENCH_INT8, "operations/s"), "fp32",
                          json_limit(l, BENCH_FP32, "operations/s"), "int8_form",
                          json_limit(l, BENCH_FORM, "operations/s"), "attention_form",
                          json_limit(l, BENCH_ATTEND, "operations/s"), "read_in_steps",
                          json_limit(l, BENCH_STEPS, "bytes/s"), "barrier",
                          json_limit(l, BENCH_BARRIER, "barriers/s"), "read_bytes",
                          (json_int_t)bench_limits_bytes(l), "read_huge_pages",
                          json_flag(b->huge)));
    }
  return list;
}

/* --- Results --------------------------------------------------------------------- */

/* The share of what the binding limit allows, or why there is none. */
static json_t *json_bound(const bench_test *t, const bench_result *r) {
  if (r->percent < 0)
    return json_pack("{s:n, s:n, s:n, s:b, s:s}", "name", "tokens_per_second", "percent", "valid",
                     false, "reason", r->bound.limit);
  return json_pack("{s:s, s:o, s:o, s:b, s:s?}", "name", r->bound.limit, "tokens_per_second",
                   json_number((double)bench_test_tokens(t) / r->bound.seconds), "percent",
                   json_number(r->percent), "valid", r->valid, "reason",
                   r->valid ? NULL : "above 100 %: the limit was measured too low");
}

/* Samples that something else had a part in, and what it was. */
static json_t *json_disturbed(const bench *b, const bench_test *t) {
  json_t *samples = json_array(), *reasons = json_array();
  for (size_t i = 0; i < t->count; i++) {
    char text[CLI_SENSOR_TEXT];
    if (!*bench_disturbance(b, t, i, text)) continue;
    json_array_append_new(samples, json_integer((json_int_t)i));
    json_array_append_new(reasons, json_string(text));
  }
  return json_pack("{s:o, s:o}", "samples", samples, "reasons", reasons);
}

static json_t *json_energy(const bench *b, const bench_test *t, const bench_result *r) {
  const char *reason = cli_sensors_names(b->sensors).energy_reason;
  json_t *samples = json_array();
  for (size_t i = 0; i < t->count; i++) {
    double joules = bench_joules(b, t, i);
    json_array_append_new(samples, joules >= 0 ? json_real(joules) : json_null());
  }
  if (!reason) reason = "a counter could not be read, or started anew without a known range";
  return json_pack("{s:o, s:o, s:o}", "joules_per_token", json_statistics(&r->joules),
                   "joules_samples", samples, "reason",
                   r->joules.count ? json_null() : json_string(reason));
}

/* One value of the machine's state at the end of each sample. */
static json_t *json_state(const bench_test *t, bool celsius) {
  json_t *list = json_array();
  for (size_t i = 0; i < t->count; i++) {
    const cli_state *r = &t->state[i][1];
    json_t *value = !celsius ? json_number(r->mhz)
                    : r->has_celsius ? json_real(r->celsius) : json_null();
    json_array_append_new(list, value);
  }
  return list;
}

/* Whether the machine throttled during each sample; null: not known. */
static json_t *json_throttled(const bench_test *t) {
  json_t *list = json_array();
  for (size_t i = 0; i < t->count; i++)
    json_array_append_new(list, json_flag(cli_throttled(&t->state[i][0], &t->state[i][1])));
  return list;
}

/* With products and attention at what their form allows, or, where it reads, in a token's steps. */
static json_t *json_form(const bench_test *t, const bench_result *r) {
  if (r->of_form < 0) return json_null();
  return json_pack("{s:o, s:o, s:o}", "tokens_per_second",
                   json_number(100 * r->rate.median / r->of_form), "percent",
                   json_number(r->of_form), "bytes_per_second_samples",
                   r->bound.reads ? json_samples(t->steps, t->count) : json_null());
}

/* Beside what plain reading in turn with the tokens allows. */
static json_t *json_reading(const bench_test *t, const bench_result *r) {
  if (r->of_reading < 0) return json_null();
  return json_pack("{s:o, s:o}", "bytes_per_second_samples", json_samples(t->reading, t->count),
                   "percent", json_number(r->of_reading));
}

static json_t *json_result(const bench *b, const bench_test *t) {
  char digest[32];
  bench_result r;
  if (!bench_result_of(b, t, &r)) return NULL;
  snprintf(digest, sizeof digest, "%d-%016" PRIx64, HR_ARITHMETIC, t->digest);
  const bench_amount *a = &t->amount;
  json_t *first = a->prompt ? json_statistics(&r.first) : json_null();
  return json_pack(
      "{s:s, s:I, s:I, s:I, s:s, s:i, s:o, s:o, s:o, s:o, s:{s:f, s:f, s:f, s:f}, s:o, s:o, s:o, "
      "s:o, s:o, s:o, s:o, s:o, s:o, s:s, s:o}",
      "work", a->prompt ? "prompt" : "generate", "tokens", (json_int_t)a->tokens, "depth",
      (json_int_t)a->depth, "batch", (json_int_t)a->batch, "isa", t->place->model->kernels.isa,
      "threads", bench_test_threads(t), "seconds_samples", json_samples(t->seconds, t->count),
      "seconds", json_statistics(&r.seconds), "tokens_per_second", json_statistics(&r.rate),
      "first_token_seconds", first, "amount", "int8_macs", t->work.int8_macs, "float_macs",
      t->work.float_macs, "bytes", t->work.bytes, "barriers", t->work.barriers, "limit",
      json_bound(t, &r), "form", json_form(t, &r), "reading", json_reading(t, &r), "disturbed",
      json_disturbed(b, t), "energy", json_energy(b, t, &r), "mhz_samples", json_state(t, false),
      "celsius_samples", json_state(t, true), "throttled_samples", json_throttled(t), "most_mhz",
      json_number(t->place->most_mhz), "digest", digest, "profile", bench_profile_json(t));
}

static json_t *json_results(const bench *b) {
  json_t *list = json_array();
  for (size_t i = 0; i < b->tests; i++) json_array_append_new(list, json_result(b, &b->test[i]));
  return list;
}

static json_t *json_scaling(const bench *b) {
  json_t *list = json_array();
  for (size_t i = 0; i < b->tests; i++) {
    const bench_test *t = &b->test[i];
    bench_scaling s;
    if (!bench_scaling_of(b, t, &s)) continue;
    json_t *threads = json_array();
    for (size_t j = 0; j < s.count; j++)
      json_array_append_new(threads, json_integer(bench_test_threads(s.test[j])));
    json_array_append_new(
        list, json_pack("{s:s, s:s, s:I, s:I, s:I, s:o, s:o, s:i}", "isa",
                        t->place->model->kernels.isa, "work",
                        t->amount.prompt ? "prompt" : "generate", "tokens",
                        (json_int_t)t->amount.tokens, "depth", (json_int_t)t->amount.depth,
                        "batch", (json_int_t)t->amount.batch, "threads", threads,
                        "tokens_per_second",
                        json_samples(s.rate, s.count), "knee_threads",
                        bench_test_threads(s.test[s.knee])));
  }
  return list;
}

/* --- Kernels --------------------------------------------------------------------- */

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

static json_t *json_kernel_rates(const bench *b) {
  json_t *list = json_array();
  for (size_t i = 0; i < b->kernels; i++) {
    const perf_kernel_row *k = &b->kernel[i];
    double percent = k->limit > 0 ? 100 * k->rate / k->limit : 0;
    cli_statistics rates = {0};
    (void)bench_statistics_of(k->rates, k->rounds, 0, &rates); /* without memory they are null */
    json_array_append_new(
        list, json_pack("{s:s, s:s, s:s, s:s, s:i, s:s, s:o, s:s, s:o, s:o, s:b, s:b, s:o, s:o, "
                        "s:o}",
                        "isa", k->tier,
                        "kernel", k->kernel, "group", k->group, "shape", k->shape, "threads",
                        k->threads, "unit", k->unit, "rate", json_number(k->rate), "bound",
                        k->bound, "limit", json_number(k->limit), "percent", json_number(percent),
                        "valid",
                        percent > 0 && percent <= 100 && !k->busy &&
                            k->rounds >= PERF_LEAST_ROUNDS,
                        "busy", k->busy,
                        "rates", json_statistics(&rates), "rate_samples",
                        json_samples(k->rates, k->rounds), "limit_samples",
                        json_samples(k->limits, k->limit > 0 ? k->rounds : 0)));
  }
  return list;
}

/* --- All ------------------------------------------------------------------------- */

static json_t *json_warnings(const bench *b) {
  json_t *list = json_array();
  for (size_t i = 0; i < b->warnings; i++)
    json_array_append_new(list, cli_json_text(b->warning[i], strlen(b->warning[i])));
  return list;
}

static json_t *json_program(void) {
  return json_pack("{s:s, s:s, s:i, s:s, s:s}", "version", hr_version(), "commit", HR_COMMIT,
                   "arithmetic", HR_ARITHMETIC, "compiler", bench_compiler(), "tiers",
                   cli_tier_names());
}

json_t *bench_json(const bench *b) {
  char now[32] = "";
  time_t seconds = time(NULL);
  struct tm parts;
  if (gmtime_r(&seconds, &parts)) strftime(now, sizeof now, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return json_pack("{s:s, s:i, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, "
                   "s:o, s:o}",
                   "schema", "headrow-bench", "schema_version", BENCH_SCHEMA, "time", now,
                   "program", json_program(), "machine", bench_json_machine(b), "machine_limits",
                   json_capacity(b), "model", json_model(b), "settings", json_settings(b),
                   "loading", json_loading(b), "memory", json_memory(b), "check",
                   json_check(b), "limits", json_limits(b),
                   "results", json_results(b), "scaling", json_scaling(b), "kernels",
                   json_kernels(b), "kernel_rates", json_kernel_rates(b), "warnings",
                   json_warnings(b));
}
