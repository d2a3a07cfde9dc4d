/* SPDX-License-Identifier: MIT
 * What bench measures with, and the command from outside. HEADROW_COMMAND names
 * the program. */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "block/forward.h"
#include "cli/statistics.h"
#include "cli/synthetic.h"
#include "kernels/select.h"
#include "model/source.h"
#include "perf/kernel_bench.h"
#include "perf/limits.h"
#include "tests/support/schema.h"
#include "tests/support/shell.h"

TestSuite(bench, .timeout = 300);

/* --- Statistics ---------------------------------------------------------------- */

#define EXPECT_NEAR(x, y) cr_expect(fabs((x) - (y)) < 1e-12, "%.17g, expected %.17g", (x), (y))

Test(bench, statistics_of_known_samples) {
  double five[] = {3, 1, 5, 2, 4};
  cli_statistics s = cli_statistics_of(five, 5);
  cr_expect_eq(s.count, 5);
  EXPECT_NEAR(s.least, 1.0);
  EXPECT_NEAR(s.most, 5.0);
  EXPECT_NEAR(s.median, 3.0);
  EXPECT_NEAR(s.mean, 3.0);
  EXPECT_NEAR(s.p95, 4.8);
  EXPECT_NEAR(s.sd, sqrt(2.5));

  double four[] = {8, 2, 4, 6};
  s = cli_statistics_of(four, 4);
  EXPECT_NEAR(s.median, 5.0);
  EXPECT_NEAR(s.p95, 7.7);
  EXPECT_NEAR(s.sd, sqrt(20.0 / 3));
}

Test(bench, statistics_of_few_samples_are_finite) {
  double one[] = {7};
  cli_statistics s = cli_statistics_of(one, 1);
  EXPECT_NEAR(s.median, 7.0);
  EXPECT_NEAR(s.p95, 7.0);
  EXPECT_NEAR(s.sd, 0.0);
  s = cli_statistics_of(NULL, 0);
  cr_expect(s.count == 0 && s.median == 0 && s.sd == 0 && s.p95 == 0);
}

/* The sum of squares of these would lose the deviation. */
Test(bench, deviation_of_samples_far_from_zero) {
  double far[] = {1e9 + 1, 1e9 + 2, 1e9 + 3};
  cli_statistics s = cli_statistics_of(far, 3);
  EXPECT_NEAR(s.sd, 1.0);
}

Test(bench, quantiles_lie_between_samples) {
  const double x[] = {0, 10, 20};
  EXPECT_NEAR(cli_quantile(x, 3, 0.0), 0.0);
  EXPECT_NEAR(cli_quantile(x, 3, 0.25), 5.0);
  EXPECT_NEAR(cli_quantile(x, 3, 1.0), 20.0);
}

/* --- Shapes -------------------------------------------------------------------- */

Test(bench, known_shapes) {
  static const struct {
    const char *text;
    uint32_t width, layers, heads, kv, ffn, vocab, context;
    bool tied;
    hr_format format;
  } all[] = {
      {"smollm2-135m:q8_0", 576, 30, 9, 3, 1536, 49152, 8192, true, HR_FORMAT_Q8_0},
      {"gpt2-124m:f16", 768, 12, 12, 12, 3072, 50257, 1024, true, HR_FORMAT_F16},
      {"tinyllama-1.1b:bf16", 2048, 22, 32, 4, 5632, 32000, 2048, false, HR_FORMAT_BF16},
      {"llama-7b:f32", 4096, 32, 32, 32, 11008, 32000, 4096, false, HR_FORMAT_F32},
      {"bert-base:q8_0", 768, 12, 12, 12, 3072, 30522, 512, true, HR_FORMAT_Q8_0},
      {"minilm-l6:f16", 384, 6, 12, 12, 1536, 30522, 512, true, HR_FORMAT_F16},
      {"dim=64,layers=2,heads=4,kv=2,ffn=96,vocab=300,ctx=128,tied=1:f16", 64, 2, 4, 2, 96, 300,
       128, true, HR_FORMAT_F16},
      {"dim=128,layers=1:q8_0", 128, 1, 2, 2, 352, 32000, 4096, false, HR_FORMAT_Q8_0},
      {"llama-7b,layers=1,vocab=300,tied=1:q8_0", 4096, 1, 32, 32, 11008, 300, 4096, true,
       HR_FORMAT_Q8_0},
  };
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    cli_shape s;
    hr_error err = {0};
    cr_assert_eq(cli_shape_parse(all[i].text, &s, &err), HR_OK, "%s: %s", all[i].text, err.message);
    cr_expect(s.width == all[i].width && s.layers == all[i].layers && s.heads == all[i].heads &&
                  s.kv_heads == all[i].kv && s.ffn_width == all[i].ffn &&
                  s.vocab == all[i].vocab && s.context == all[i].context &&
                  s.tied == all[i].tied && s.format == all[i].format,
              "%s", all[i].text);
    cr_expect_str_eq(s.name, all[i].text);
  }
}

Test(bench, bad_shapes_are_refused_with_a_sentence) {
  static const struct {
    const char *text, *word;
  } all[] = {
      {"", "unknown"},
      {":f16", "unknown"},
      {"smollm2-135m", "no type"},
      {"smollm2-135m:", "unknown type"},
      {"smollm2-135m:q4_0", "q4_0"},
      {"SmolLM2-135M:f16", "tinyllama-1.1b"},
      {"bert-large:f16", "minilm-l6"},
      {"dim=64:f16", "layers"},
      {"layers=2:f16", "dim"},
      {"dim=64,layers=2,depth=1:f16", "depth"},
      {"dim=64,layers:f16", "layers"},
      {"dim=64,layers=2,dim=64:f16", "once"},
      {"dim=64,layers=2,tied=2:f16", "tied"},
      {"dim=64,layers=2,tied=1,tied=0:f16", "tied"},
      {"dim=64,layers=0:f16", "layers"},
      {"dim=64,layers=-1:f16", "layers"},
      {"dim=64,layers=1e3:f16", "layers"},
      {"dim=64,layers=99999999999999999999:f16", "layers"},
      {"dim=64,layers=2,vocab=259:f16", "vocab"},
      {"dim=64,layers=2,heads=3:f16", "even width"},
      {"dim=30,layers=2,heads=2:f16", "even width"},
      {"dim=64,layers=2,heads=4,kv=3:f16", "divisor"},
      {"dim=48,layers=2,heads=1,ffn=96:q8_0", "32"},
      {"llama-7b,layers:f16", "layers"},
      {"llama-7b,layers=1,layers=2:f16", "once"},
      {"llama-7b,tinyllama-1.1b:f16", "KEY=NUMBER"},
      {"llama-8b,layers=1:f16", "llama-8b"},
      {"llama-7b,heads=3:f16", "even width"},
      {"dim=64,layers=2,ffn=100:q8_0", "32"},
      {"dim=65536,layers=1024,ffn=262144,vocab=4194304,heads=1024,kv=1024,ctx=1048576,tied=0:"
       "f32,and,more",
       "longer"},
  };
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    cli_shape s;
    hr_error err = {0};
    cr_expect_eq(cli_shape_parse(all[i].text, &s, &err), HR_ERROR_USAGE, "%s", all[i].text);
    cr_expect(strstr(err.message, all[i].word) && strstr(err.message, "expected"), "%s: %s",
              all[i].text, err.message);
  }
}

/* --- Images -------------------------------------------------------------------- */

#define SMALL "dim=64,layers=2,heads=4,kv=2,ffn=96,vocab=300,ctx=128"

static cli_image image_of(const char *text) {
  cli_shape s;
  cli_image image;
  hr_error err = {0};
  size_t bytes = 0;
  cr_assert_eq(cli_shape_parse(text, &s, &err), HR_OK, "%s", err.message);
  cr_assert_eq(cli_image_bytes(&s, &bytes, &err), HR_OK, "%s", err.message);
  cr_assert_eq(cli_image_make(&s, NULL, NULL, &image, &err), HR_OK, "%s", err.message);
  cr_expect_eq(image.bytes, bytes);
  return image;
}

static uint64_t hash(const cli_image *image) {
  const unsigned char *at = image->data;
  uint64_t h = UINT64_C(0xcbf29ce484222325);
  for (size_t i = 0; i < image->bytes; i++) h = (h ^ at[i]) * UINT64_C(0x100000001b3);
  return h;
}

/* Digests of two machines are comparable only when these never change. */
Test(bench, weights_are_the_same_bytes_everywhere) {
  static const struct {
    const char *text;
    uint64_t hash;
  } all[] = {
      {SMALL ":f32", UINT64_C(0x6aafd705afbca346)},
      {SMALL ":f16", UINT64_C(0x2dde486737eed5ee)},
      {SMALL ":bf16", UINT64_C(0xf5dd791712cf5945)},
      {SMALL ":q8_0", UINT64_C(0x357006eea211ae97)},
  };
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    cli_image image = image_of(all[i].text);
    cr_expect_eq(hash(&image), all[i].hash, "%s: %#" PRIx64, all[i].text, hash(&image));
    cli_image_free(&image);
  }
}

/* Products of rows of unit variance must stay near unit variance. */
static void expect_scale(const hr_tensor *t) {
  size_t count = t->dim[0] * t->dim[1];
  float *x = calloc(count, sizeof *x);
  hr_format_get(t->format)->widen(t->data, x, count);
  double sum = 0, mean = 0;
  for (size_t i = 0; i < count; i++) {
    sum += (double)x[i] * (double)x[i];
    mean += (double)x[i];
  }
  double scale = sqrt(sum / (double)count) * sqrt((double)t->dim[1]);
  cr_expect(scale > 0.65 && scale < 1.5, "%s: %g", t->name, scale);
  cr_expect(fabs(mean / (double)count) * sqrt((double)t->dim[1]) < 0.1, "%s", t->name);
  free(x);
}

Test(bench, images_are_models) {
  static const char *const all[] = {SMALL ":f32", SMALL ":f16", SMALL ",tied=1:bf16",
                                    SMALL ":q8_0"};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    cli_image image = image_of(all[i]);
    hr_error err = {0};
    hr_source *source = hr_source_open_memory(image.data, image.bytes, all[i], &err);
    cr_assert_not_null(source, "%s", err.message);
    for (size_t j = 0; j < hr_source_tensor_count(source); j++)
      if (hr_source_tensor_at(source, j)->dims == 2) expect_scale(hr_source_tensor_at(source, j));
    cr_expect_eq(hr_source_find_tensor(source, "output.weight") == NULL, i == 2);
    hr_source_close(source);
    hr_model *model = hr_model_open_memory(image.data, image.bytes, all[i], NULL, &err);
    cr_assert_not_null(model, "%s", err.message);
    cr_expect_eq(hr_model_vocab_size(model), 300);
    cr_expect(hr_model_has_tokenizer(model));
    size_t count = 0;
    cr_expect_eq(hr_tokenize(model, "a\nb", 3, 0, NULL, 0, &count, &err), HR_OK);
    cr_expect_gt(count, 2);
    hr_model_free(model);
    cli_image_free(&image);
  }
}

static bool refuse(void *data, double done) {
  *(double *)data = done;
  return done < 0.5;
}

Test(bench, drawing_can_be_cancelled) {
  cli_shape s;
  cli_image image;
  hr_error err = {0};
  double done = 0;
  cr_assert_eq(cli_shape_parse(SMALL ":f32", &s, &err), HR_OK);
  cr_expect_eq(cli_image_make(&s, refuse, &done, &image, &err), HR_ERROR_CANCELLED);
  cr_expect(done >= 0.5 && done < 1);
  cli_image_free(&image);
}

/* --- The command ----------------------------------------------------------------- */

/* What every document must be, by perf/schema.json. */
static void expect_schema(const json_t *document) {
  char text[512];
  json_error_t error;
  json_t *schema = json_load_file(HEADROW_SOURCE_ROOT "/perf/schema.json", 0, &error);
  cr_assert_not_null(schema, "line %d: %s", error.line, error.text);
  cr_expect(schema_allows(schema, document, text, sizeof text), "%s", text);
  json_decref(schema);
}

static json_t *json_of(const char *line) {
  result o = shell(line);
  json_error_t error;
  cr_assert_eq(o.status, 0, "%s: %s", line, o.err);
  json_t *document = json_loads(o.out, JSON_REJECT_DUPLICATES, &error);
  cr_assert_not_null(document, "%s: %s", line, error.text);
  finish(&o);
  return document;
}

static double number(const json_t *object, const char *key) {
  const json_t *value = json_object_get(object, key);
  cr_assert(json_is_number(value), "%s is no number", key);
  return json_number_value(value);
}

static const char *text(const json_t *object, const char *key) {
  const char *value = json_string_value(json_object_get(object, key));
  cr_assert_not_null(value, "%s is no text", key);
  return value;
}

static void expect_statistics(const json_t *s, size_t samples) {
  double least = number(s, "min"), most = number(s, "max"), median = number(s, "median");
  cr_expect(0 < least && least <= median && median <= most);
  cr_expect(number(s, "p95") >= median && number(s, "p95") <= most);
  if (samples > 1)
    cr_expect_geq(number(s, "sd"), 0);
  else
    cr_expect(json_is_null(json_object_get(s, "sd")));
}

static void expect_result(const json_t *r, size_t samples) {
  const json_t *seconds = json_object_get(r, "seconds"), *limit = json_object_get(r, "limit");
  cr_expect_eq(json_array_size(json_object_get(r, "seconds_samples")), samples);
  expect_statistics(seconds, samples);
  expect_statistics(json_object_get(r, "tokens_per_second"), samples);
  double tokens = number(r, "tokens") * number(r, "batch");
  double rate = tokens / number(seconds, "min");
  double most = number(json_object_get(r, "tokens_per_second"), "max");
  cr_expect(fabs(rate - most) < 1e-6 * rate);
  cr_expect_eq(json_is_null(json_object_get(r, "first_token_seconds")),
               strcmp(text(r, "work"), "prompt") != 0);
  if (json_is_null(json_object_get(limit, "percent"))) {
    cr_expect_str_eq(text(r, "isa"), "portable");
    cr_expect(strlen(text(limit, "reason")) > 0 && json_is_false(json_object_get(limit, "valid")));
  } else {
    double percent = number(limit, "percent");
    cr_expect_gt(percent, 0);
    cr_expect_eq(json_is_true(json_object_get(limit, "valid")), percent <= 100);
    double share = 100 * tokens / number(seconds, "median");
    share /= number(limit, "tokens_per_second");
    cr_expect(fabs(percent - share) < 1e-6 * percent);
  }
}

/* The digest of the first result of a kind. */
static const char *digest_of(const json_t *document, const char *work, int tokens, int depth) {
  size_t i;
  json_t *r;
  json_array_foreach(json_object_get(document, "results"), i, r) {
    if (strcmp(text(r, "work"), work) == 0 && (int)number(r, "tokens") == tokens &&
        (int)number(r, "depth") == depth)
      return text(r, "digest");
  }
  cr_assert_fail("no %s of %d at %d", work, tokens, depth);
  return NULL;
}

Test(bench, a_run_of_a_synthetic_model) {
  json_t *d = json_of("$H bench -q --synthetic " SMALL
                      ":q8_0 -p 8,16 -n 4 -d 0,8 -t 1,2 -r 3 --json -");
  cr_expect_str_eq(text(d, "schema"), "headrow-bench");
  cr_expect_eq((int)number(d, "schema_version"), 7);
  expect_schema(d);
  cr_expect_eq((int)number(json_object_get(d, "settings"), "context"), 24);
  const json_t *results = json_object_get(d, "results"), *limits = json_object_get(d, "limits");
  cr_assert_eq(json_array_size(results), 2 * 2 * 3);
  cr_assert_eq(json_array_size(limits), 2);
  size_t i;
  json_t *r;
  json_array_foreach(results, i, r) {
    expect_result(r, 3);
    cr_expect_str_eq(text(r, "digest"), digest_of(d, text(r, "work"), (int)number(r, "tokens"),
                                                  (int)number(r, "depth")));
  }
  json_array_foreach(limits, i, r) {
    cr_expect_eq((size_t)number(r, "threads"), i + 1);
    cr_expect_gt(number(json_object_get(r, "read"), "best"), 0);
    cr_expect_eq(json_array_size(json_object_get(json_object_get(r, "read"), "samples")), 3);
  }
  /* a prompt of 16 at 0 and one of 8 at 8 end in the same logits */
  cr_expect_str_eq(digest_of(d, "prompt", 16, 0), digest_of(d, "prompt", 8, 8));
  cr_expect_str_neq(digest_of(d, "prompt", 16, 0), digest_of(d, "prompt", 8, 0));
  json_decref(d);
}

/* Where products bind, their form and attention's allow less than the bare peaks and are reached to
 * a larger part. */
Test(bench, the_form_of_products) {
  const char *wide = "dim=1024,layers=1,heads=8,kv=2,ffn=2816,vocab=300,ctx=256";
  hr_kernels best;
  cr_assert(hr_kernels_select(&best, hr_cpu_features(), NULL));
  const perf_peaks *peaks = perf_peaks_of(best.isa);
  for (int half = 0; half < 2; half++) {
    char *line;
    cr_assert_gt(asprintf(&line, "$H bench -q --synthetic %s:%s -p 200 -n 2 -t 1 -r 3 --json -",
                          wide, half ? "f16" : "q8_0"), 0);
    json_t *d = json_of(line), *r;
    free(line);
    size_t i;
    json_array_foreach(json_object_get(d, "results"), i, r) {
      const json_t *form = json_object_get(r, "form"), *limit = json_object_get(r, "limit");
      bool prompt = strcmp(text(r, "work"), "prompt") == 0;
      bool expected = !prompt || (peaks && peaks->attend);
      cr_expect_eq(json_is_object(form), expected, "%s", text(r, "work"));
      if (!json_is_object(form) || !prompt) continue;
      cr_expect_str_eq(text(limit, "name"), half ? "fp32" : "int8");
      /* attention is a small part of these: its loop may not be seen to be slower than bare fma */
      double percent = number(limit, "percent"), most = number(limit, "tokens_per_second");
      cr_expect(number(form, "percent") >= (half ? percent * (1 - 1e-9) : percent * 1.01));
      cr_expect(number(form, "tokens_per_second") <= (half ? most * (1 + 1e-9) : most * 0.99));
      double rate = number(json_object_get(r, "tokens_per_second"), "median");
      cr_expect_float_eq(100 * rate / number(form, "tokens_per_second"), number(form, "percent"),
                         1e-3 * number(form, "percent"));
    }
    json_decref(d);
  }
  result o = shell("$H bench -q --synthetic " SMALL ":q8_0 -p 4 -n 0 -r 1 --csv");
  cr_expect(strstr(o.out, ",reading_percent,form_percent\n"), "%s", o.out);
  finish(&o);
}

/* Who measures at real-time priority is told what the system takes of it. Not every place lets a
 * program have it; without it nothing is said. */
Test(bench, real_time_is_not_all_of_the_time) {
  const char *files = "K=$D/proc/sys/kernel; mkdir -p $K; echo 950000 >$K/sched_rt_runtime_us; "
                      "echo 1000000 >$K/sched_rt_period_us; ";
  for (int real = 0; real < 2; real++) {
    char *line;
    cr_assert_gt(asprintf(&line, "%s RT=%s; $RT true 2>/dev/null && echo had; "
                          "$RT $H bench --sysroot $D --synthetic " SMALL ":q8_0 -p 4 -n 0 -r 1",
                          files, real ? "'chrt -f 1'" : ""), 0);
    result o = shell(line);
    bool had = strncmp(o.out, "had\n", 4) == 0;
    bool told = strstr(o.err, "the system takes 5 % of the time") != NULL;
    if (had) cr_expect(o.status == 0 && told == real, "%s", o.err);
    free(line);
    finish(&o);
  }
}

static double sample_of(const json_t *object, const char *name, size_t i) {
  return json_number_value(json_array_get(json_object_get(object, name), i));
}

/* The middle of three. */
static double middle(const double x[3]) {
  double most = fmax(fmax(x[0], x[1]), x[2]), least = fmin(fmin(x[0], x[1]), x[2]);
  return x[0] + x[1] + x[2] - most - least;
}

/* The weights are read in turn with every sample's tokens, and the limit is of their bytes:
 * plainly, and, for the form, the weights in steps and only the cache plainly. */
Test(bench, tokens_are_set_beside_reading) {
  json_t *d = json_of("$H bench -q --synthetic " SMALL
                      ":q8_0 -p 4 -n 8 -b 1,2,32 -t 2 -r 3 --json -");
  size_t i, generations = 0, stepped = 0;
  json_t *r;
  json_array_foreach(json_object_get(d, "results"), i, r) {
    const json_t *reading = json_object_get(r, "reading");
    if (strcmp(text(r, "work"), "prompt") == 0) {
      cr_expect(json_is_null(reading));
      continue;
    }
    generations++;
    const json_t *form = json_object_get(r, "form");
    const char *samples = "bytes_per_second_samples";
    cr_assert_eq(json_array_size(json_object_get(reading, samples)), 3);
    const char *limit = text(json_object_get(r, "limit"), "name");
    if (strcmp(limit, "read") != 0 && strcmp(limit, "barrier") != 0) {
      cr_expect(json_is_null(form) || json_is_null(json_object_get(form, samples)), "%s", limit);
      continue;
    }
    stepped++;
    cr_assert_eq(json_array_size(json_object_get(form, samples)), 3);
    double bytes = number(json_object_get(r, "amount"), "bytes"), plain[3], steps[3];
    double weights = 8 * number(json_array_get(json_object_get(d, "limits"), 0), "read_bytes");
    for (size_t k = 0; k < 3; k++) {
      double seconds = sample_of(r, "seconds_samples", k), rate = sample_of(reading, samples, k);
      plain[k] = 100 * bytes / rate / seconds;
      steps[k] = 100 * ((bytes - weights) / rate + weights / sample_of(form, samples, k)) / seconds;
    }
    cr_expect_float_eq(number(reading, "percent"), middle(plain), 1e-6 * middle(plain));
    cr_expect_float_eq(number(form, "percent"), middle(steps), 1e-6 * middle(steps));
  }
  cr_expect_eq(generations, 3);
  cr_expect_gt(stepped, 0);
  double weights = number(json_object_get(d, "memory"), "weight_bytes");
  json_array_foreach(json_object_get(d, "limits"), i, r) {
    double read = number(r, "read_bytes"); /* the embedding is read a row at a time */
    cr_expect(read > 0 && read <= weights, "%g of %g", read, weights);
  }
  json_decref(d);
}

/* Each change must be seen: else the check of the schema would mean nothing. */
Test(bench, the_schema_refuses_what_is_wrong) {
  static const struct {
    const char *path, *value, *word;
  } all[] = {
      {"schema", "\"other\"", "/schema"},
      {"schema_version", "1", "/schema_version"},
      {"results", "{}", "/results"},
      {"more", "1", "/more"},
      {"machine", "{}", "/machine"},
      {"warnings", "[1]", "/warnings/0"},
      {"kernels", "{\"avx2\": {\"add\": 1}}", "/kernels/avx2/add"},
      {"time", "null", "/time"},
      {"limits", "[{\"threads\": 0}]", "/limits/0"},
      {"scaling", "[{}]", "/scaling/0"},
      {"model", "1", "/model"},
  };
  json_t *d = json_of("$H bench -q -p 2 -n 0 -t 1 -r 1 --json -");
  json_error_t error;
  json_t *schema = json_load_file(HEADROW_SOURCE_ROOT "/perf/schema.json", 0, &error);
  cr_assert_not_null(schema, "%s", error.text);
  expect_schema(d);
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    char text[512] = "";
    json_t *copy = json_copy(d);
    json_object_set_new(copy, all[i].path, json_loads(all[i].value, JSON_DECODE_ANY, NULL));
    cr_expect(!schema_allows(schema, copy, text, sizeof text), "%s", all[i].path);
    cr_expect(strncmp(text, all[i].word, strlen(all[i].word)) == 0, "%s", text);
    json_decref(copy);
  }
  json_object_del(d, "program");
  char text[512];
  cr_expect(!schema_allows(schema, d, text, sizeof text) && strstr(text, "program"), "%s", text);
  json_decref(schema);
  json_decref(d);
}

/* --- The machine ----------------------------------------------------------------- */

Test(bench, threads_go_up_in_steps_to_the_last) {
  json_t *d = json_of("$H bench -q -p 4 -n 2 -r 2 -t sweep --json -");
  const json_t *scaling = json_object_get(d, "scaling"), *results = json_object_get(d, "results");
  size_t counts = json_array_size(results) / 2, i;
  json_t *r;
  expect_schema(d);
  cr_expect_eq(json_array_size(scaling), counts > 1 ? 2 : 0);
  json_array_foreach(scaling, i, r) {
    const json_t *threads = json_object_get(r, "threads");
    const json_t *rates = json_object_get(r, "tokens_per_second");
    double best = 0, at_knee = 0;
    cr_expect_eq(json_array_size(threads), counts);
    for (size_t j = 0; j < counts; j++) {
      double rate = json_number_value(json_array_get(rates, j));
      double count = json_number_value(json_array_get(threads, j));
      if (rate > best) best = rate;
      if (count == number(r, "knee_threads")) at_knee = rate;
      cr_expect(j ? count > json_number_value(json_array_get(threads, j - 1)) : count == 1);
    }
    cr_expect(at_knee >= 0.95 * best && best > 0);
  }
  json_decref(d);
}

Test(bench, the_machine_is_measured_too) {
  json_t *d = json_of("$H bench -q -p 2 -n 1 -r 2 -t 1 --isa all --json -");
  const json_t *machine = json_object_get(d, "machine_limits"), *points, *caches, *peaks;
  size_t i;
  json_t *r;
  expect_schema(d);
  points = json_object_get(machine, "by_threads");
  caches = json_object_get(machine, "caches");
  peaks = json_object_get(machine, "peaks");
  double threads = number(machine, "threads");
  json_array_foreach(points, i, r) {
    cr_expect_gt(number(json_object_get(r, "read"), "best"), 0);
    cr_expect_eq(json_array_size(json_object_get(json_object_get(r, "read"), "samples")), 2);
    cr_expect_eq(json_is_null(json_object_get(r, "barrier")), number(r, "threads") == 1);
  }
  cr_expect_eq(number(json_array_get(points, i - 1), "threads"), threads);
  cr_expect_gt(json_array_size(caches), 0);
  cr_expect_gt(number(json_object_get(json_array_get(caches, 0), "one"), "best"), 0);
  cr_expect_eq(json_array_size(peaks), json_object_size(json_object_get(d, "kernels")) - 1);
  json_decref(d);
}

/* Behind the last byte is a page that must not be touched. */
Test(bench, reading_stays_within_its_bytes) {
  size_t width[PERF_MOST_WIDTHS], page = (size_t)sysconf(_SC_PAGESIZE);
  char *at = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  cr_assert(at != MAP_FAILED && mprotect(at + page, page, PROT_NONE) == 0);
  size_t widths = perf_read_widths(hr_cpu_features(), width), step = PERF_READ_STEP;
  for (size_t i = 0; i < widths; i++) {
    perf_read(at, page, page, 1, width[i]);
    perf_read(at + page - step, step, step, 1, width[i]);
    perf_read(at, page / PERF_MOST_STREAMS, page / PERF_MOST_STREAMS, PERF_MOST_STREAMS, width[i]);
  }
  munmap(at, 2 * page);
#ifdef __x86_64__
  cr_expect_eq(perf_read_widths(0, width), 1);
  cr_expect_eq(width[0], 16);
  cr_expect_eq(perf_read_widths(HR_CPU_AVX2, width), 1);
  cr_expect_eq(width[0], 32);
  cr_expect_eq(perf_read_widths(HR_CPU_AVX2 | HR_CPU_AVX512VNNI, width), 2);
  cr_expect_eq(width[1], 64);
#endif
}

/* A file just written is in memory; whether it can be dropped, the system decides. */
Test(bench, loading_is_cold_or_warm) {
  json_t *d = json_of("cp $ROOT/models/builtin.gguf $D/m.gguf && cat $D/m.gguf >/dev/null && "
                      "$H bench -q $D/m.gguf -p 2 -n 0 -r 1 --cold --json -");
  const json_t *loading = json_object_get(d, "loading");
  expect_schema(d);
  cr_expect_gt(number(loading, "warm_seconds"), 0);
  if (json_is_null(json_object_get(loading, "cold_seconds")))
    cr_expect(strlen(text(loading, "cold_reason")) > 0);
  else
    cr_expect(json_is_null(json_object_get(loading, "cold_reason")));
  json_decref(d);
  d = json_of("$H bench -q -p 2 -n 0 -r 1 --json -");
  loading = json_object_get(d, "loading");
  cr_expect(json_is_null(json_object_get(loading, "cold_seconds")));
  cr_expect(strstr(text(loading, "cold_reason"), "no file"));
  cr_expect_gt(number(loading, "model_seconds"), 0);
  json_decref(d);
}

Test(bench, few_samples_are_said_to_be_few) {
  result o = shell("$H bench -p 2 -n 0 -r 4"), enough = shell("$H bench -p 2 -n 0 -r 5");
  cr_expect(strstr(o.err, "fewer than 5 samples"), "%s", o.err);
  cr_expect(!strstr(enough.err, "fewer than 5"), "%s", enough.err);
  finish(&o);
  finish(&enough);
}

/* None is lost, however many there are: a session for each of 24 numbers of threads. */
Test(bench, every_warning_is_kept) {
  result o = shell("HWLOC_SYNTHETIC='core:2 pu:1' $H bench -p 2 -n 0 -r 1 "
                   "-t $(seq -s , 3 22) --json $D/j >/dev/null; "
                   "cat $D/j");
  cr_assert_eq(o.status, 0, "%s", o.err);
  json_t *d = json_loads(o.out, 0, NULL);
  size_t told = 0;
  for (const char *at = o.err; (at = strstr(at, "warning: ")); at++) told++;
  cr_expect_geq(told, 20, "%s", o.err);
  cr_expect_eq(json_array_size(json_object_get(d, "warnings")), told, "%s", o.err);
  json_decref(d);
  finish(&o);
}

typedef struct rows {
  size_t count, most;
  bool other_tier;
} rows;

static bool look_at_row(void *data, const perf_kernel_row *row) {
  rows *seen = data;
  cr_expect(isfinite(row->rate) && row->rate > 0, "%s %g", row->kernel, row->rate);
  cr_expect(isfinite(row->limit) && row->limit >= 0, "%s %g", row->kernel, row->limit);
  cr_expect_str_eq(row->group, "row");
  cr_expect_str_eq(row->bound, "L1");
  cr_expect_eq(row->threads, 1);
  cr_expect_geq(row->rounds, 5);
  double best = 0;
  for (size_t i = 0; i < row->rounds; i++) best = row->rates[i] > best ? row->rates[i] : best;
  cr_expect_eq(row->rate, best);
  seen->other_tier = seen->other_tier || strcmp(row->tier, "portable") != 0;
  return ++seen->count < seen->most;
}

Test(bench, kernels_of_a_row) {
  hr_kernels t;
  cr_assert(hr_kernels_select(&t, hr_cpu_features(), "portable"));
  rows all = {.most = 1000}, three = {.most = 3};
  cr_expect_eq(perf_kernels(&t, "row", 0, look_at_row, &all), PERF_KERNEL_DONE);
  cr_expect_geq(all.count, 30);
  cr_expect_not(all.other_tier);
  cr_expect_eq(perf_kernels(&t, "row", 0, look_at_row, &three), PERF_KERNEL_STOPPED);
  cr_expect_eq(three.count, 3);
}


/* What came before, what comes after and other groups count alike; other limits do not. */
Test(bench, rows_of_a_busy_machine_are_marked) {
  perf_kernel_row all[] = {
      {.tier = "a", .bound = "int8", .threads = 1, .limit = 80},   /* before the best */
      {.tier = "a", .bound = "int8", .threads = 1, .limit = 100},
      {.tier = "a", .bound = "int8", .threads = 1, .limit = 90.1}, /* after it */
      {.tier = "a", .bound = "int8", .threads = 1, .limit = 89.9},
      {.tier = "b", .bound = "int8", .threads = 1, .limit = 50},   /* another tier's own */
      {.tier = "a", .bound = "int8", .threads = 2, .limit = 60},   /* by other threads */
      {.tier = "a", .bound = "fp32", .threads = 1, .limit = 40},
      {.tier = "a", .bound = "memory", .threads = 1, .limit = 8},  /* the machine's: any tier's */
      {.tier = "b", .bound = "memory", .threads = 1, .limit = 10},
      {.tier = "c", .bound = "int8", .threads = 1, .limit = 0},    /* has none */
      {.tier = "a", .bound = "L1", .threads = 1, .limit = 9, .busy = true},
  };
  static const bool busy[] = {true, false, false, true, false, false, false, true, false, false,
                              false};
  const size_t count = sizeof all / sizeof *all;
  perf_mark_busy(all, count, NULL);
  for (size_t i = 0; i < count; i++) cr_expect_eq(all[i].busy, busy[i], "%zu", i);
  perf_mark_busy(all, 0, NULL);
}

/* A run that is slow all the time is found out by a quicker one before it, of the same machine. */
Test(bench, peaks_are_remembered_between_runs) {
  static perf_seen seen;
  char path[] = "/tmp/headrow-peaks-XXXXXX";
  int file = mkstemp(path);
  cr_assert(file >= 0 && close(file) == 0 && unlink(path) == 0);
  const perf_kernel_row quick[] = {
      {.tier = "a", .bound = "int8", .threads = 1, .limit = 100},
      {.tier = "a", .bound = "memory", .threads = 1, .limit = 10},
      {.tier = "a", .bound = "fp32", .threads = 4, .limit = 400},
      {.tier = "p", .bound = "int8", .threads = 1, .limit = 0},
  };
  perf_kernel_row run[4];
  memcpy(run, quick, sizeof run);
  cr_assert(perf_seen_read(&seen, path, "X, 2 CPUs"), "a file that is not there");
  perf_mark_busy(run, 4, &seen);
  for (size_t i = 0; i < 4; i++) cr_expect_not(run[i].busy, "%zu", i);
  cr_assert(seen.changed && perf_seen_write(&seen, path));

  /* Slow, steadily: the peaks are, and memory is not asked. */
  static const double slow[] = {89, 5, 88, 0};
  static const bool busy[] = {true, false, true, false};
  for (size_t i = 0; i < 4; i++) run[i].limit = slow[i];
  run[2].threads = 1;
  cr_assert(perf_seen_read(&seen, path, "X, 2 CPUs"));
  perf_mark_busy(run, 4, &seen);
  for (size_t i = 0; i < 4; i++) cr_expect_eq(run[i].busy, busy[i], "%zu", i);
  cr_expect_eq(run[0].best, 100);
  cr_expect_not(seen.changed);

  cr_assert(perf_seen_read(&seen, path, "X, 4 CPUs"));
  cr_expect_eq(perf_seen_best(&seen, "a", "int8"), 0, "another machine's");
  perf_mark_busy(run, 4, &seen);
  for (size_t i = 0; i < 4; i++) cr_expect_not(run[i].busy, "%zu", i);
  cr_assert(perf_seen_write(&seen, path));
  cr_assert(perf_seen_read(&seen, path, "X, 2 CPUs"));
  cr_expect_eq(perf_seen_best(&seen, "a", "int8"), 100, "is kept beside the other's");
  unlink(path);
}

/* What is no such file, or was cut or changed, gives nothing. */
Test(bench, a_broken_list_of_peaks_is_passed_over) {
#define TITLE "headrow: best peaks seen, 1\n"
  static const char *const broken[] = {
      "",
      "240.5 avx2 int8 X\n",
      "headrow: best peaks seen, 2\n240.5 avx2 int8 X\n",
      TITLE "240.5 avx2 int8 X\n240.5 avx2 in",
      TITLE "240.5 avx2 int8\n",
      TITLE "\n",
      TITLE "nan avx2 int8 X\n",
      TITLE "inf avx2 int8 X\n",
      TITLE "-1 avx2 int8 X\n",
      TITLE "quick avx2 int8 X\n",
      TITLE "240.5 a_tier_with_a_name_too_long_for_it int8 X\n",
  };
#undef TITLE
  static perf_seen seen;
  char path[] = "/tmp/headrow-peaks-XXXXXX";
  int file = mkstemp(path);
  cr_assert(file >= 0);
  for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
    size_t bytes = strlen(broken[i]);
    cr_assert(ftruncate(file, 0) == 0 && pwrite(file, broken[i], bytes, 0) == (ssize_t)bytes);
    cr_expect_not(perf_seen_read(&seen, path, "X"), "%s", broken[i]);
    cr_expect_eq(perf_seen_best(&seen, "avx2", "int8"), 0, "%s", broken[i]);
    perf_seen_add(&seen, "avx2", "int8", 7);
    cr_expect(perf_seen_best(&seen, "avx2", "int8") == 7 && seen.changed);
  }
  close(file);
  unlink(path);
  cr_expect_not(perf_seen_read(&seen, "/", "X"), "a folder");
  for (int i = 0; i < 3 * PERF_MOST_SEEN; i++) {
    char tier[16];
    snprintf(tier, sizeof tier, "t%d", i);
    perf_seen_add(&seen, tier, "int8", i + 1);
  }
  cr_expect_eq(seen.count, PERF_MOST_SEEN);
  cr_expect_eq(perf_seen_best(&seen, "t0", "int8"), 0, "the oldest go");
  cr_expect_eq(perf_seen_best(&seen, "t191", "int8"), 192);
}

/* The command, by one tier and few rounds. */
Test(bench, kernels_keep_all_their_samples) {
  json_t *d = json_of("$H bench -q --kernels --no-cache --only row,attention,q8 -r 5 "
                      "--isa $($H info --cpu --json | grep -o '\"product_q8\":\"[^\"]*' | "
                      "sed 's/.*__//') --json -");
  size_t i, seen = 0;
  json_t *r;
  expect_schema(d);
  json_array_foreach(json_object_get(d, "kernel_rates"), i, r) {
    const json_t *rates = json_object_get(r, "rates"), *all = json_object_get(r, "rate_samples");
    cr_expect_eq(json_array_size(all), 5);
    expect_statistics(rates, 5);
    cr_expect_eq(number(rates, "max"), number(r, "rate"));
    cr_expect(strcmp(text(r, "group"), "decode") != 0 && strcmp(text(r, "group"), "float") != 0);
    seen |= strcmp(text(r, "group"), "row") == 0 ? 1 : strcmp(text(r, "group"), "q8") == 0 ? 2 : 4;
    if (json_is_null(json_object_get(r, "limit"))) continue;
    double best = 0;
    for (size_t j = 0; j < 5; j++) {
      double x = json_number_value(json_array_get(json_object_get(r, "limit_samples"), j));
      if (x > best) best = x;
    }
    cr_expect_eq(best, number(r, "limit"));
    cr_expect(json_is_false(json_object_get(r, "valid")) || number(r, "percent") <= 100);
    cr_expect(json_is_false(json_object_get(r, "busy")) ||
              json_is_false(json_object_get(r, "valid")));
  }
  cr_expect_eq(seen, 7, "groups %zu", seen);
  json_decref(d);
  result o = shell("export XDG_CACHE_HOME=$D; $H bench --kernels --only row -r 2 --no-cache && "
                   "test ! -e $D/headrow/peaks");
  cr_expect(o.status == 0 && strstr(o.out, "median") && strstr(o.out, "softmax__portable") &&
                strstr(o.err, "fewer than 5 samples"),
            "%s%s", o.out, o.err);
  hr_kernels best;
  cr_assert(hr_kernels_select(&best, hr_cpu_features(), NULL));
  cr_expect(strstr(o.out, best.name.softmax), "every tier, %s too: %s", best.isa, o.out);
  finish(&o);
}

/* What is no list of theirs is said to be none, and written anew. */
Test(bench, peaks_are_kept_in_the_users_cache) {
  hr_kernels best;
  cr_assert(hr_kernels_select(&best, hr_cpu_features(), NULL));
  if (!perf_peaks_of(best.isa)) return; /* a CPU for the definition alone */
  setenv("HEADROW_ISA", best.isa, 1);
  result o = shell("export XDG_CACHE_HOME=$D/new; "
                   "bench() { $H bench --kernels --only attention -r 1 >$D/o; }; "
                   "bench && grep fp32 $D/new/headrow/peaks && echo x >$D/new/headrow/peaks && "
                   "bench && grep fp32 $D/new/headrow/peaks && bench");
  unsetenv("HEADROW_ISA");
  cr_expect(o.status == 0 && strstr(o.out, best.isa), "%d %s%s", o.status, o.out, o.err);
  const char *word = strstr(o.err, "not a list of peaks");
  cr_expect(word && !strstr(word + 1, "not a list of peaks"), "once: %s", o.err);
  finish(&o);
}

/* The definition is in every group, by pieces of the work. */
Test(bench, kernels_of_the_definition) {
  result o = shell("$H bench --kernels --only float,decode -r 1 --isa portable");
  cr_expect(o.status == 0 && strstr(o.out, "product_bf16__portable") &&
                strstr(o.out, "product_one_q8__portable") && strstr(o.out, "attend_f16__portable"),
            "%s%s", o.out, o.err);
  finish(&o);
}

/* --- What the logits have to be ------------------------------------------------------ */

static void expect_check(const char *line, const char *digest, const char *by) {
  json_t *d = json_of(line);
  const json_t *check = json_object_get(d, "check");
  expect_schema(d);
  cr_expect_str_eq(text(check, "digest"), text(check, "expected"), "%s", line);
  if (digest) cr_expect_str_eq(text(check, "digest"), digest, "%s", line);
  cr_expect(strstr(text(check, "by"), by), "%s: %s", line, text(check, "by"));
  json_decref(d);
}

/* The same values come of the portable tier: `--weights` keeps it from looking them up. */
Test(bench, known_models_have_known_digests) {
  expect_check("$H bench -q -p 1 -n 0 -r 1 --json -", "1-fc34d0748c079801", "comes with headrow");
  expect_check("$H bench -q builtin -p 1 -n 0 -r 1 --cache f32 --json -", "1-5aec5ceca03a90ec",
               "comes with headrow");
  expect_check("$H bench -q $ROOT/models/builtin.gguf -p 1 -n 0 -r 1 --json -",
               "1-fc34d0748c079801", "the portable tier");
  expect_check("$H bench -q --synthetic minilm-l6:q8_0 -p 1 -r 1 --json -", "1-982d51f2fe9aa956",
               "comes with headrow");
  expect_check("$H bench -q --synthetic " SMALL ":q8_0 -p 1 -n 0 -r 1 --json -", NULL,
               "the portable tier");
  expect_check("$H bench -q --synthetic " SMALL ":q8_0 -p 1 -n 0 -r 1 --isa portable --json -",
               NULL, "the portable tier");
}

/* A copy of the command with one byte of the model inside it changed. */
/* Four layers of 113 M multiply-adds a token: 6.6 tokens are 3 billion. */
Test(bench, large_models_are_checked_by_few_tokens) {
  result o = shell("$H bench -q -p 1 -n 0 -r 1 --md --json $D/a.json --synthetic "
                   "dim=3072,layers=4,heads=24,ffn=8192,vocab=300,ctx=16:q8_0 && cat $D/a.json");
  static const char by[] = "checked against the portable tier, which is the definition, by 6 of 8 "
                           "tokens, digest 1-";
  cr_expect_eq(o.status, 0, "%s", o.err);
  cr_expect(strstr(o.out, by) && strstr(o.out, "\"expected\": null"), "%s", o.out);
  cr_expect(!strstr(o.err, "against nothing"), "%s", o.err);
  finish(&o);
}

Test(bench, what_is_checked_against_nothing_is_said) {
  result o = shell("$H bench -p 1 -n 0 -r 1 --synthetic "
                   "dim=64,layers=2,heads=4,ffn=96,vocab=300,ctx=4:q8_0");
  cr_expect(o.status == 0 && strstr(o.err, "warning: the logits were checked against nothing: the "
                                           "model has no room"),
            "%d %s", o.status, o.err);
  cr_expect(strstr(o.out, "logits   checked against nothing"), "%s", o.out);
  finish(&o);
}

Test(bench, a_wrong_model_has_no_rate) {
  result o = shell("cp $H $D/headrow; "
                   "at=$(LC_ALL=C grep -obUa GGUF $D/headrow | while IFS=: read -r n rest; do "
                   "cmp -s -n 4096 -i $n:0 $D/headrow $ROOT/models/builtin.gguf && echo $n; done); "
                   "printf '\\125\\252\\125\\252' | dd of=$D/headrow bs=1 conv=notrunc "
                   "seek=$((at + 1000000)) 2>/dev/null && "
                   "$D/headrow bench -q -p 8 -n 2 -r 1");
  cr_expect_eq(o.status, 1, "%d %s", o.status, o.err);
  cr_expect(strstr(o.err, "builtin: check of 8 tokens: digest 1-") &&
                strstr(o.err, "expected 1-fc34d0748c079801 as the value that comes with headrow; "
                              "no rate is reported"),
            "%s", o.err);
  cr_expect_str_eq(o.out, "");
  finish(&o);
}

/* --- Machines made of files ------------------------------------------------------------ */

#define CPUS "$D/sys/devices/system/cpu/cpu"
/* two Cortex-A53 and one that nobody knows, at 800 of 1800 MHz, hot and throttled */
#define BOARD                                                                                  \
  "mkdir -p $D/proc/device-tree $D/sys/class/thermal/thermal_zone0 "                           \
  "$D/sys/devices/platform/soc/soc:firmware; "                                                 \
  "for i in 0 1 2 3 4 5 6 7; do mkdir -p " CPUS "$i/cpufreq; "                                 \
  "echo 800000 >" CPUS "$i/cpufreq/scaling_cur_freq; "                                         \
  "echo 1800000 >" CPUS "$i/cpufreq/cpuinfo_max_freq; done; "                                  \
  "echo powersave >" CPUS "0/cpufreq/scaling_governor; "                                       \
  "echo cpu-thermal >$D/sys/class/thermal/thermal_zone0/type; "                                \
  "echo 84500 >$D/sys/class/thermal/thermal_zone0/temp; "                                      \
  "echo 0x50004 >$D/sys/devices/platform/soc/soc:firmware/get_throttled; "                     \
  "printf 'A made-up board\\000' >$D/proc/device-tree/model; "                                 \
  "for part in 0xd03 0xd03 0xd99; do printf 'processor\\t: 0\\nCPU implementer\\t: 0x41\\n"    \
  "CPU part\\t: %s\\n\\n' $part; done >$D/proc/cpuinfo; "

Test(bench, the_state_of_a_machine_of_files) {
  result o = shell(BOARD "$H bench -p 4 -n 0 -r 3 -t 2 --sysroot $D --json $D/a.json && "
                         "$H bench -q -p 4 -n 0 -r 3 -t 2 --json $D/b.json >/dev/null && "
                         "$H compare -q $D/a.json $D/b.json; cat $D/a.json");
  cr_assert_eq(o.status, 0, "%s", o.err);
  cr_expect(strstr(o.err, "is read below /"), "%s", o.err);
  cr_expect(strstr(o.out, "A made-up board, 2 x Cortex-A53 + 1 x implementer 0x41 part 0xd99") &&
                strstr(o.out, "governor powersave") && strstr(o.out, "3 of 3 disturbed"),
            "%s", o.out);
  cr_expect(strstr(o.out, "44 % of its highest frequency") &&
                strstr(o.out, "a throttled in 3 of 3 samples, at up to 84 C") &&
                strstr(o.out, "800 MHz, 800 at least, 44 % of the highest") &&
                strstr(o.out, "84.5 C at most"),
            "%s", o.out);
  json_t *d = json_loads(strstr(o.out, "\n{"), 0, NULL);
  cr_assert(d);
  expect_schema(d);
  const json_t *r = json_array_get(json_object_get(d, "results"), 0);
  cr_expect_eq(number(r, "most_mhz"), 1800);
  for (size_t i = 0; i < 3; i++) {
    cr_expect_eq(json_number_value(json_array_get(json_object_get(r, "mhz_samples"), i)), 800);
    cr_expect_eq(json_number_value(json_array_get(json_object_get(r, "celsius_samples"), i)), 84.5);
    cr_expect(json_is_true(json_array_get(json_object_get(r, "throttled_samples"), i)));
  }
  const json_t *sensors = json_object_get(json_object_get(d, "machine"), "sensors");
  cr_expect_str_eq(text(sensors, "throttling"), "firmware");
  cr_expect(json_is_null(json_object_get(sensors, "frequency_reason")));
  json_decref(d);
  finish(&o);
}

/* Counters of energy and throttling that go on, once around, while the command runs. */
Test(bench, counters_of_a_machine_of_files) {
  result o = shell(
      "z=$D/sys/class/powercap/intel-rapl:0; t=" CPUS "0/thermal_throttle; mkdir -p $z $t; "
      "echo package-0 >$z/name; echo 1000000 >$z/max_energy_range_uj; echo 0 >$z/energy_uj; "
      "echo 0 >$t/core_throttle_count; "
      "{ n=0; while [ ! -e $D/done ]; do n=$((n + 130000)); "
      "for f in energy_uj:$z core_throttle_count:$t; do "
      "echo $((n % 1000000)) >$D/new; [ ${f%%:*} = energy_uj ] || echo $n >$D/new; "
      "mv $D/new ${f#*:}/${f%%:*}; done; sleep 0.005; done; } & "
      "$H bench -q -p 64 -n 0 -r 20 -t 1 --synthetic smollm2-135m,layers=6:q8_0 --sysroot $D "
      "--json -; s=$?; : >$D/done; wait; exit $s");
  cr_assert_eq(o.status, 0, "%s", o.err);
  json_t *d = json_loads(o.out, 0, NULL);
  const json_t *r = json_array_get(json_object_get(d, "results"), 0);
  const json_t *energy = json_object_get(r, "energy");
  expect_schema(d);
  size_t throttled = 0, i;
  json_t *x;
  json_array_foreach(json_object_get(r, "throttled_samples"), i, x) throttled += json_is_true(x);
  cr_expect_eq(i, 20);
  cr_expect_gt(throttled, 0);
  json_array_foreach(json_object_get(energy, "joules_samples"), i, x) {
    cr_expect(json_number_value(x) >= 0 && json_number_value(x) < 1, "%g", json_number_value(x));
  }
  json_decref(d);
  finish(&o);
}

/* Nothing is there: null, with a reason each. */
Test(bench, a_machine_that_tells_nothing) {
  json_t *d = json_of("mkdir $D/empty; $H bench -q -p 2 -n 0 -r 1 --sysroot $D/empty --json -");
  static const char *const all[] = {"frequency", "temperature", "throttling", "energy"};
  const json_t *machine = json_object_get(d, "machine");
  const json_t *sensors = json_object_get(machine, "sensors");
  expect_schema(d);
  cr_expect(json_is_null(json_object_get(machine, "cpu")));
  for (size_t i = 0; i < 4; i++) {
    char key[32];
    snprintf(key, sizeof key, "%s_reason", all[i]);
    cr_expect(json_is_null(json_object_get(sensors, all[i])), "%s", all[i]);
    cr_expect(strstr(text(sensors, key), "the system has n"), "%s: %s", key, text(sensors, key));
  }
  json_decref(d);
}

/* The peak is of all sessions; what one takes does not grow with the others. */
Test(bench, memory_of_each_place) {
#define CACHES "$H bench -q --synthetic dim=256,layers=8,heads=8,ffn=64,vocab=300:q8_0 " \
               "-p 2000 -n 0 -r 1 --json - -t "
  json_t *one = json_of(CACHES "1"), *four = json_of(CACHES "1,1,1,1");
  const json_t *a = json_object_get(one, "memory"), *b = json_object_get(four, "memory");
  const json_t *alone = json_array_get(json_object_get(a, "sessions"), 0);
  const double cache = number(a, "cache_bytes"); /* 2000 positions x 8 layers x 1 KiB */
  cr_expect_geq(cache, 2000 * 8 * 1024);
  expect_schema(four);
  cr_assert_eq(json_array_size(json_object_get(b, "sessions")), 4);
  cr_expect_geq(number(alone, "resident_bytes"), cache);
  for (size_t i = 0; i < 4; i++) {
    const json_t *s = json_array_get(json_object_get(b, "sessions"), i);
    double ratio = number(s, "alone_bytes") / number(alone, "alone_bytes");
    cr_expect(ratio > 0.8 && ratio < 1.25, "%g", ratio);
    cr_expect_geq(number(s, "resident_bytes"), cache);
  }
  cr_expect_geq(number(b, "peak_bytes"), number(a, "peak_bytes") + 2 * cache);
  json_decref(one);
  json_decref(four);
}

/* Multiply-adds and bytes of a model that can be counted by hand. */
Test(bench, work_is_counted) {
  json_t *d = json_of("$H bench -q --synthetic dim=64,layers=2,heads=2,kv=1,ffn=96,vocab=320,"
                      "tied=1:f32 -p 4 -n 0 -t 1 -r 1 --cache f32 --json -");
  const json_t *r = json_array_get(json_object_get(d, "results"), 0);
  const json_t *amount = json_object_get(r, "amount");
  /* Of the last layer all four rows need keys and values, one the rest. */
  double cached = 64 * (32 + 32), layer = 64 * (64 + 64 + 3 * 96) + cached, head = 320 * 64;
  double attention = (1 + 2 + 3 + 4 + 4) * 2 * 2 * 32;
  cr_expect_eq(number(amount, "float_macs"), 4 * layer + 3 * cached + layer + head + attention);
  cr_expect_eq(number(amount, "int8_macs"), 0);
  cr_expect_eq(number(amount, "bytes"), 4 * (2 * layer + head) + 2 * 4 * 2 * 32 * 4);
  expect_result(r, 1);
  json_decref(d);
}

/* The weights are read once for all sequences, the caches are each one's own. */
Test(bench, work_of_a_batch_is_counted) {
  json_t *d = json_of("$H bench -q --synthetic dim=64,layers=1,heads=2,kv=1,ffn=96,vocab=320,"
                      "tied=1:f32 -p 4 -n 2 -b 3 -t 1 -r 1 --cache f32 --json -");
  double cached = 64 * (32 + 32), layer = 64 * (64 + 64 + 3 * 96) + cached, head = 320 * 64;
  double key = 4 * 2 * 32;
  const json_t *results = json_object_get(d, "results");
  const json_t *prompt = json_array_get(results, 0), *generate = json_array_get(results, 1);
  const json_t *amount = json_object_get(prompt, "amount");
  double attention = 3 * 4 * 2 * 2 * 32;
  cr_expect_eq(number(amount, "float_macs"), 3 * (3 * cached + layer + head) + attention);
  cr_expect_eq(number(amount, "bytes"), 4 * (layer + head) + 3 * 4 * key);
  amount = json_object_get(generate, "amount");
  cr_expect_eq(number(amount, "float_macs"), 2 * 3 * (layer + head) + 3 * (1 + 2) * 2 * 2 * 32);
  cr_expect_eq(number(amount, "bytes"), 2 * 4 * (layer + head) + 3 * (1 + 2) * key);
  expect_result(prompt, 1);
  expect_result(generate, 1);
  json_decref(d);
}

/* The command itself refuses a rate when the first sequence's logits are not those that it
 * has alone; an encoder takes texts. */
Test(bench, batches) {
  static const double batch[] = {1, 2, 5};
  json_t *d = json_of("$H bench -q --synthetic " SMALL
                      ":q8_0 -p 5,40 -n 6 -d 0,20 -b 1,2,5 -t 1,3 -r 2 --json -");
  const json_t *results = json_object_get(d, "results");
  size_t i;
  json_t *r;
  expect_schema(d);
  cr_assert_eq(json_array_size(results), 2 * 2 * 3 * 3);
  json_array_foreach(results, i, r) {
    expect_result(r, 2);
    cr_expect_eq(number(r, "batch"), batch[i % 3]);
    cr_expect_str_eq(text(r, "digest"), text(json_array_get(results, i % 18), "digest"));
    cr_expect(i % 3 == 0 || strcmp(text(r, "digest"),
                                   text(json_array_get(results, i - 1), "digest")) != 0);
  }
  json_decref(d);
  d = json_of("$H bench -q --synthetic minilm-l6,layers=1,vocab=300:q8_0 -p 5,512 -b 1,3 -t 2 -r 1 "
              "--json -");
  expect_schema(d);
  cr_expect_eq(json_array_size(json_object_get(d, "results")), 2 * 2);
  json_decref(d);
  result o = shell("$H bench -q -p 0 -n 2 -b 1,4 -r 1");
  cr_expect(strstr(o.out, "generate 2, batch 4") && strstr(o.out, "batch: generate 2, ") &&
                strstr(o.out, " 1: 1.00 x, 4: "),
            "%s", o.out);
  finish(&o);
}

Test(bench, a_block_act_by_act) {
  static const char *const acts[] = {"norm, quantize", "query, key, value", "attention", "output",
                                     "gate, up, activation", "down", "the block"};
  result o = shell("$H bench -q --block smollm2-135m:q8_0 -p 1,33 -d 0,70 -t 1,2 -r 2 --json $D/j"
                   " && cat $D/j");
  cr_assert_eq(o.status, 0, "%s", o.err);
  char *json = strstr(o.out, "\n{");
  cr_assert(json);
  json_t *d = json_loads(json, 0, NULL);
  cr_assert(d, "%s", json);
  *json = '\0';
  expect_schema(d);
  cr_expect_str_eq(text(json_object_get(d, "model"), "name"), "block of smollm2-135m:q8_0");
  cr_expect_eq(number(json_object_get(d, "model"), "layers"), 1);
  cr_expect_eq(number(json_object_get(d, "model"), "width"), 576);
  cr_expect(json_is_true(json_object_get(json_object_get(d, "settings"), "block")));
  const char *at = o.out;
  for (size_t i = 0; i < 2 * 2 * 2; i++) {
    at = strstr(at, "block of smollm2-135m:q8_0, ");
    if (i == 0) at = strstr(at + 1, "block of smollm2-135m:q8_0, 1 row at depth 0"); /* the head */
    cr_assert(at, "%zu", i);
    for (size_t j = 0; j < sizeof acts / sizeof *acts; j++) {
      at = strstr(at, acts[j]);
      cr_assert(at, "%zu: %s", i, acts[j]);
      double us = 0;
      cr_expect(sscanf(at + strlen(acts[j]), "%lf", &us) == 1 && us > 0, "%s", acts[j]);
    }
  }
  cr_expect(strstr(o.out, "33 rows at depth 70") && !strstr(o.out, "embedding"), "%s", o.out);
  json_decref(d);
  finish(&o);
  o = shell("$H bench -q --block bert-base:f16 -p 8 -r 1 --md");
  cr_expect(o.status == 0 && strstr(o.out, "| the block | "), "%s%s", o.out, o.err);
  finish(&o);
}

/* Weights of a packed file that change under the command's hands: not one rate is told. */
Test(bench, no_rate_is_reported_for_other_logits) {
  result o = shell("$H pack -q builtin $D/m.packed && { { "
                   "$H bench -q $D/m.packed -p 8 -n 0 -r 1000; echo $? >$D/status; } & sleep 1; "
                   "for i in $(seq 100); do [ -f $D/status ] && break; "
                   "dd if=/dev/zero of=$D/m.packed bs=1000 count=1 seek=$((2500 + i)) conv=notrunc "
                   "2>/dev/null; sleep 0.1; done; wait; exit $(cat $D/status); }");
  cr_expect_eq(o.status, 1, "%d", o.status);
  cr_expect(strstr(o.err, "prompt 8: digest ") && strstr(o.err, "no rate is reported"), "%s",
            o.err);
  cr_expect_str_eq(o.out, "");
  finish(&o);
}

/* The shares of a profile are of all the time there was. */
Test(bench, profiles_add_up) {
  json_t *d = json_of("$H bench -q --synthetic " SMALL
                      ":q8_0 -p 32 -n 8 -d 0,300 -t 1,3 -r 2 --profile --json -");
  size_t i, j;
  json_t *r, *part;
  cr_assert_eq(json_array_size(json_object_get(d, "results")), 2 * 2 * 2);
  expect_schema(d);
  json_array_foreach(json_object_get(d, "results"), i, r) {
    double sum = 0;
    const json_t *parts = json_object_get(r, "profile");
    cr_assert_eq(json_array_size(parts), HR_PARTS + 1);
    json_array_foreach(parts, j, part) {
      sum += number(part, "share_percent");
      bool product = strcmp(text(part, "part"), "down") == 0;
      if (product) cr_expect_gt(number(part, "seconds"), 0);
    }
    cr_expect(sum > 95 && sum < 105, "%.1f %%", sum);
  }
  json_decref(d);
  d = json_of("$H bench -q --synthetic " SMALL ":q8_0 -p 8 -n 0 -t 1 -r 1 --json -");
  r = json_array_get(json_object_get(d, "results"), 0);
  cr_expect(json_is_null(json_object_get(r, "profile")));
  json_decref(d);
}

Test(bench, every_tier_gives_the_same_digest) {
  json_t *d = json_of("$H bench -q -p 5 -n 3 -d 2 -r 1 --isa all --json -");
  const json_t *results = json_object_get(d, "results");
  size_t i, tiers = json_object_size(json_object_get(d, "kernels"));
  json_t *r;
  cr_assert_eq(json_array_size(results), 2 * tiers);
  json_array_foreach(results, i, r) {
    expect_result(r, 1);
    cr_expect_str_eq(text(r, "digest"),
                     text(json_array_get(results, i % 2), "digest"), "%s", text(r, "isa"));
  }
  json_decref(d);
}

Test(bench, a_saved_model_gives_the_same_digest) {
  json_t *both = json_of("$H bench -q --synthetic " SMALL ":f16 --save $D/m.gguf -p 8 -n 4 -r 1"
                         " --json $D/a.json >$D/table && "
                         "$H bench -q $D/m.gguf -p 8 -n 4 -r 1 --json - >$D/b.json && "
                         "test \"$(ls $D)\" = 'a.json\nb.json\nm.gguf\ntable' && "
                         "(echo '['; cat $D/a.json; echo ,; cat $D/b.json; echo ']')");
  const json_t *a = json_array_get(both, 0), *b = json_array_get(both, 1);
  cr_expect_str_eq(digest_of(a, "prompt", 8, 0), digest_of(b, "prompt", 8, 0));
  cr_expect_str_eq(digest_of(a, "generate", 4, 0), digest_of(b, "generate", 4, 0));
  cr_expect(json_is_true(json_object_get(json_object_get(a, "model"), "synthetic")));
  cr_expect(json_is_false(json_object_get(json_object_get(b, "model"), "synthetic")));
  json_decref(both);
}

Test(bench, saving_needs_no_measuring) {
  result o = shell("$H bench --synthetic gpt2-124m:q8_0 --save $D/m.gguf -p 0 -n 0 && "
                   "$H info $D/m.gguf && ls $D");
  cr_expect_eq(o.status, 0, "%s", o.err);
  cr_expect(strstr(o.out, "gpt2") && strstr(o.out, "m.gguf\n"), "%s", o.out);
  finish(&o);
}

Test(bench, tables_have_a_line_for_each_result) {
  result csv = shell("$H bench -q -p 4,8 -n 2 -r 2 --csv"), md = shell("$H bench -q -p 4,8 -n 2 "
                                                                       "-r 2 --md");
  result plain = shell("$H bench -q -p 4,8 -n 2 -r 2");
  cr_expect_eq(csv.status, 0);
  cr_expect_eq(lines_of(csv.out), 4, "%s", csv.out);
  cr_expect_eq(md.status, 0);
  cr_expect(strstr(md.out, "| prompt 8 |") && strstr(md.out, "| generate 2 |"), "%s", md.out);
  cr_expect_eq(plain.status, 0);
  cr_expect(strstr(plain.out, "prompt 4 ") && strstr(plain.out, "of limit"), "%s", plain.out);
  cr_expect(!strstr(plain.out, "nan") && !strstr(plain.out, "inf "));
  finish(&csv);
  finish(&md);
  finish(&plain);
}

Test(bench, what_can_not_be_measured_is_an_error) {
  static const struct {
    const char *line;
    int status;
    const char *word;
  } all[] = {
      {"$H bench -p x", 2, "--prompt"},
      {"$H bench -p 1,", 2, "--prompt"},
      {"$H bench -n ''", 2, "--predict"},
      {"$H bench -d -1", 2, "--depth"},
      {"$H bench -t 0", 2, "--threads"},
      {"$H bench -t 1,two", 2, "auto"},
      {"$H bench -r 0", 2, "-r"},
      {"$H bench -d 1K", 2, "--depth"},
      {"$H bench -d k", 2, "--depth"},
      {"$H bench -d 99999999999999999999k", 2, "--depth"},
      {"$H bench -t sweep,1", 2, "--threads"},
      {"$H bench --cold", 2, "--cold"},
      {"$H bench builtin --cold", 2, "--cold"},
      {"$H bench --kernels -p 1", 2, "--kernels"},
      {"$H bench --kernels -b 2", 2, "--kernels"},
      {"$H bench --kernels -r 101", 2, "100"},
      {"$H bench --kernels --only row,nonsense", 2, "attention"},
      {"$H bench --kernels --only ''", 2, "attention"},
      {"$H bench --only row", 2, "--kernels"},
      {"$H bench --no-cache builtin", 2, "--kernels"},
      {"$H bench -p 1 -n 0 --sysroot $D/none", 3, "none"},
      {"$H bench -b 0", 2, "--batch"},
      {"$H bench -b 2,x", 2, "--batch"},
      {"$H bench --block llama-7b", 2, "no type"},
      {"$H bench --block llama-8b:q8_0", 2, "--block"},
      {"$H bench --block smollm2-135m:q8_0 -n 4", 2, "--block"},
      {"$H bench --block smollm2-135m:q8_0 --csv", 2, "--block"},
      {"$H bench builtin --block smollm2-135m:q8_0", 2, "--block"},
      {"$H bench --block bert-base:q8_0 -p 513", 6, "512"},
      {"$H bench --kernels builtin", 2, "--kernels"},
      {"$H bench --kernels --isa nonsense", 2, "portable"},
      {"$H bench --synthetic gpt2-124m:q8_0 -p 1 -n 1 -d 4k", 6, "4097"},
      {"$H bench -p 0 -n 0", 2, "nothing"},
      {"$H bench builtin --synthetic gpt2-124m:f16", 2, "one of them"},
      {"$H bench --save $D/x", 2, "--synthetic"},
      {"$H bench --synthetic minilm-l6:q8_0 -p 8 -n 8", 2, "as a whole"},
      {"$H bench --csv --md", 2, "one of them"},
      {"$H bench --ids 1,2", 2, "--ids"},
      {"$H bench --isa nonsense", 2, "portable"},
      {"$H bench --json $D/none/x.json -p 1 -n 0", 3, "No such file"},
      {"$H bench $D/none.gguf", 3, "No such file"},
      {"$H bench -c 100", 6, "512"},
      {"$H bench -c 1000 -p 1 -n 0 -d 1k", 6, "1025"},
      {"$H bench --synthetic dim=64,layers=1:f64", 2, "f64"},
      {"$H bench --synthetic dim=65536,layers=1024:f32", 4, "MiB"},
      {"$H bench -q --synthetic dim=2048,layers=2,ffn=32,vocab=300:q8_0 -p 0 -n 1 -d 260k -b 1000",
       4, "1000 sequences of 266241 positions"},
  };
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    result o = shell(all[i].line);
    cr_expect_eq(o.status, all[i].status, "%s: %d %s", all[i].line, o.status, o.err);
    cr_expect(strncmp(o.err, "headrow: ", 9) == 0 && strstr(o.err, all[i].word) &&
                  (strstr(o.err, "expected") || o.status == 3) && lines_of(o.err) == 1,
              "%s: %s", all[i].line, o.err);
    cr_expect_str_eq(o.out, "", "%s", all[i].line);
    finish(&o);
  }
}

/* --- Progress ---------------------------------------------------------------------- */

#define LARGE "dim=1024,layers=1,heads=8,ffn=2048,vocab=16384,tied=1:f32"

/* A reader that begins late makes the writing of 100 MB take more than a second. */
/* Nothing is measured, drawn or read before: a run of so many tokens would take minutes. */
Test(bench, where_nothing_can_be_written_is_said_at_once) {
  static const char *const lines[] = {
      "$H bench -q -p 100000 -n 0 -r 100 -c 200000 --json $D",
      "$H bench -q --synthetic llama-7b:q8_0 --save $D",
      "cd $D && $H compare --html . a.json",
      "mkdir $D/d && $H bench -q -p 100000 -n 0 -r 100 --json $D/d/",
  };
  for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
    result r = shell(lines[i]);
    cr_expect_eq(r.status, 3, "%s: status %d, %s", lines[i], r.status, r.err);
    cr_expect_eq(lines_of(r.err), 1, "%s: %s", lines[i], r.err);
    cr_expect(strstr(r.err, "expected to write a file there") && !*r.out, "%s: %s%s", lines[i],
              r.out, r.err);
    finish(&r);
  }
  /* a special file that is no device and no pipe */
  char folder[] = "/tmp/headrow-bench-XXXXXX", line[256];
  struct sockaddr_un to = {.sun_family = AF_UNIX};
  cr_assert_not_null(mkdtemp(folder));
  snprintf(to.sun_path, sizeof to.sun_path, "%s/s", folder);
  int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  cr_assert(fd >= 0 && bind(fd, (struct sockaddr *)&to, sizeof to) == 0);
  snprintf(line, sizeof line, "$H bench -q -p 100000 -n 0 -r 100 --json %s/s", folder);
  result r = shell(line);
  cr_expect(r.status == 3 && strstr(r.err, "expected to write a file there"), "%s", r.err);
  finish(&r);
  close(fd);
  unlink(to.sun_path);
  rmdir(folder);
}

Test(bench, writing_a_model_shows_its_progress) {
  result o = shell_on_terminal("mkfifo $D/p; { sleep 1.5; cat; } <$D/p >$D/m.gguf & "
                               "$H bench --synthetic " LARGE " --save $D/p -p 0 -n 0; s=$?; wait; "
                               "$H info $D/m.gguf >/dev/null && exit $s");
  cr_expect(o.status == 0 && strstr(o.err, "writing the model: ") && strstr(o.err, " %"), "%d %s",
            o.status, o.err);
  const char *end = strrchr(o.err, '\r');
  cr_expect(end && strcmp(end, "\r\033[K") == 0, "what was shown is wiped: %s", o.err);
  finish(&o);
}

#define DEEP                                                                             \
  "$H bench --synthetic dim=1024,layers=4,heads=8,ffn=64,vocab=300:q8_0 -c 40000 -p 1 " \
  "-n 0 -r 1 -t 1"

/* Caches of half a gigabyte are said to be made before they are. */
Test(bench, large_sessions_show_that_they_are_made) {
  result o = shell_on_terminal(DEEP);
  cr_expect(o.status == 0 && strstr(o.err, "making sessions: "), "%d %s", o.status, o.err);
  finish(&o);
  o = shell_on_terminal(DEEP " -q");
  cr_expect_str_eq(o.err, "", "quiet is quiet");
  finish(&o);
}

Test(bench, a_comparison_with_a_peer_shows_its_progress) {
  result o = shell_on_terminal(
      "cd $D; printf '#!/bin/sh\necho \"\\\"avg_ts\\\": 0.001\"\n' >peer; chmod +x peer; "
      "HEADROW=$H PROMPT=8 PREDICT=0 ROUNDS=2 sh $ROOT/perf/compare.sh ./peer "
      "$ROOT/models/builtin.gguf");
  cr_expect(strstr(o.err, "builtin.gguf prompt 8: round 2 of 2") != NULL, "%s", o.err);
  finish(&o);
}

/* --- Beside another engine -------------------------------------------------------- */

/* The script with two programs whose rates are known: `rates` lists one a call. */
static result compared(const char *options, const char *peer_answer, const char *ours,
                       const char *theirs) {
  char *line;
  cr_assert_gt(asprintf(&line,
                        "cd $D; echo '%s' >ours; echo '%s' >theirs; : >m.gguf; "
                        "cat >headrow <<'END'\n"
                        "#!/bin/sh\n"
                        "if [ \"$1\" = info ]; then\n"
                        "  echo '{\"threads\":3,\"threads_batch\":5}'; exit\n"
                        "fi\n"
                        "echo \"$@\" >>calls\n"
                        "rate=$(head -n 1 ours); sed -i 1d ours\n"
                        "echo model,tier,threads,work,tokens,depth,samples,tokens_per_second,"
                        "percent,reading_percent,form_percent\n"
                        "echo '\"a, \"\"model\"\"\",avx2,5,prompt,8,0,1,'$rate\n"
                        "END\n"
                        "cat >peer <<'END'\n"
                        "#!/bin/sh\n"
                        "echo \"peer $@\" >>calls\n"
                        "rate=$(head -n 1 theirs); sed -i 1d theirs\n"
                        "%s\n"
                        "END\n"
                        "chmod +x headrow peer; %s HEADROW=./headrow "
                        "sh $ROOT/perf/compare.sh ./peer m.gguf; s=$?; cat calls; exit $s",
                        ours, theirs, peer_answer, options),
               0);
  result o = shell(line);
  free(line);
  return o;
}

#define PEER_JSON "echo '[ { \"n_gen\": 0, \"avg_ts\": '$rate', \"stddev_ts\": 0 } ]'"
#define PEER_TABLE "echo '| model | test | t/s |'; echo '| a | pp8 | '$rate' \xc2\xb1 0.00 |'"

/* The ratio is ours by theirs, of each round: 2, 3 and 8 of 100, 90, 400 by 50, 30, 50. With half
 * of the limit and three quarters of the form reached these would have twice and 4/3 of it. */
Test(bench, a_peer_is_compared_in_turns) {
  static const char *const answers[] = {PEER_JSON, PEER_TABLE};
  for (size_t i = 0; i < 2; i++) {
    result o = compared("PROMPT=8 PREDICT=0 ROUNDS=3", answers[i],
                        "100,50,,75\n90,50,,75\n400,50,,75", "50\n30\n50");
    cr_expect_eq(o.status, 0, "%s", o.err);
    cr_expect(strstr(o.out, "tokens/s, 5 threads, 3 rounds"), "%s", o.out);
    char name[64], spread[64];
    double mine, other, ratio, limit, form;
    const char *row = strstr(o.out, "m.gguf prompt 8");
    cr_assert(row && sscanf(row, "m.gguf prompt %63s %lf %lf %lf %lf %lf %63[^\n]", name, &mine,
                            &other, &ratio, &limit, &form, spread) == 7, "%s", o.out);
    EXPECT_NEAR(limit, 6.0);
    EXPECT_NEAR(form, 4.0);
    EXPECT_NEAR(mine, 100.0);
    EXPECT_NEAR(other, 50.0);
    EXPECT_NEAR(ratio, 3.0);
    cr_expect_str_eq(spread, "2.00 to 8.00");
    /* who goes first changes */
    cr_expect(strstr(o.out, "bench m.gguf -q --csv -r 1 -t 5 -p 8 -n 0\n"
                            "peer -m m.gguf -p 8 -n 0 -t 5 -r 1 -o json\n"
                            "peer -m m.gguf"), "%s", o.out);
    finish(&o);
  }
}

Test(bench, a_peer_is_asked_for_each_kind_of_work) {
  result o = compared("PROMPT=8 PREDICT=2 ROUNDS=1 THREADS=7", PEER_JSON, "1\n2", "4\n4");
  const char *generate = strstr(o.out, "m.gguf generate 2");
  cr_expect(strstr(o.out, "m.gguf prompt 8") && strstr(o.out, "-p 0 -n 2 -t 7 -r 1"), "%s%s", o.out,
            o.err);
  /* what it reached of reading and of the form is empty here */
  double mine, other, ratio;
  cr_expect(generate && sscanf(generate, "m.gguf generate 2 %lf %lf %lf - -", &mine, &other,
                               &ratio) == 3, "%s", o.out);
  finish(&o);
  o = compared("PROMPT=8 PREDICT=0 ROUNDS=1", "echo nothing", "1", "1");
  cr_expect(o.status == 3 && strstr(o.err, "no rate"), "%d %s", o.status, o.err);
  finish(&o);
  o = compared("PROMPT=8 PREDICT=0 ROUNDS=1 THREADS=x", PEER_JSON, "1", "1");
  cr_expect(o.status == 3 && strstr(o.err, "expected THREADS"), "%d %s", o.status, o.err);
  finish(&o);
}

/* Reading alone would have 2 / 0.8 and 3 / 0.45 times theirs. */
Test(bench, a_peer_is_compared_with_reading) {
  result o = compared("PROMPT=0 PREDICT=2 ROUNDS=2", PEER_JSON, "100,,80\n90,,45", "50\n30");
  double mine, other, ratio, limit;
  const char *row = strstr(o.out, "m.gguf generate 2");
  cr_assert(row && sscanf(row, "m.gguf generate 2 %lf %lf %lf %lf", &mine, &other, &ratio,
                          &limit) == 4, "%s%s", o.out, o.err);
  EXPECT_NEAR(ratio, 2.5);
  cr_expect_float_eq(limit, (2.5 + 20.0 / 3) / 2, 0.005, "%s", o.out);
  finish(&o);
}

/* With the command itself: its CSV is what the script reads. */
Test(bench, the_command_is_compared) {
  result o = shell("cd $D; echo \"echo '\\\"avg_ts\\\": 0.001'\" >peer; chmod +x peer; "
                   "HEADROW=$H PROMPT=8 PREDICT=2 ROUNDS=2 "
                   "sh $ROOT/perf/compare.sh ./peer $ROOT/models/builtin.gguf");
  double mine, other, ratio;
  const char *row = strstr(o.out, "builtin.gguf prompt 8");
  cr_assert(row && sscanf(row, "builtin.gguf prompt 8 %lf %lf %lf", &mine, &other, &ratio) == 3,
            "%s%s", o.out, o.err);
  cr_expect(mine > 1 && ratio > 1000, "%g %g", mine, ratio);
  double limit;
  row = strstr(o.out, "builtin.gguf generate 2");
  cr_assert(row && sscanf(row, "builtin.gguf generate 2 %lf %lf %lf %lf", &mine, &other, &ratio,
                          &limit) == 4, "%s%s", o.out, o.err);
  cr_expect_gt(limit, 1000);
  finish(&o);
}

/* --- Counted instructions --------------------------------------------------------- */

/* The script with an emulator of which the counts are known: 5000000 for a run, and for each
 * token 300 of headrow's and 1200 of the peer's. It wants a plugin to load. */
static result counted(const char *options, const char *peer) {
  char *line;
  cr_assert_gt(asprintf(&line,
                        "cd $D; : >m.gguf; : >headrow; : >peer; cat >emulator <<'END'\n"
                        "#!/bin/sh\n"
                        "if [ \"$1\" = --version ]; then echo 'qemu version 7.2.0'; exit; fi\n"
                        "for word; do\n"
                        "  case $word in *,to=*) so=${word%%%%,*} to=${word#*,to=} ;; esac\n"
                        "  [ \"$before\" != -n ] || n=$word\n"
                        "  before=$word\n"
                        "done\n"
                        "[ -s \"$so\" ] || exit 9\n"
                        "case $* in *' run '*) each=300 ;; *) each=1200 ;; esac\n"
                        "[ -n \"$SILENT\" ] || echo $((5000000 + n * each)) >\"$to\"\n"
                        "shift 6; echo \"$@\" >>calls\n"
                        "END\n"
                        "chmod +x emulator; %s QEMU=./emulator HEADROW=./headrow SYSROOT=root "
                        "sh $ROOT/perf/count.sh %s m.gguf; s=$?; cat calls; exit $s",
                        options, peer),
               0);
  result o = shell(line);
  free(line);
  return o;
}

Test(bench, instructions_of_a_token_are_counted) {
  result o = counted("FROM=2 TO=12", "./peer");
  int ours, theirs;
  double ratio;
  cr_expect_eq(o.status, 0, "%s", o.err);
  const char *row = strstr(o.out, "\nm.gguf");
  cr_assert(row && sscanf(row, "\nm.gguf %d %d %lf", &ours, &theirs, &ratio) == 3, "%s", o.out);
  cr_expect(ours == 300 && theirs == 1200, "%s", o.out);
  EXPECT_NEAR(ratio, 0.25);
  cr_expect(strstr(o.out,
                   "./headrow run m.gguf --ids 1 -n 2 --ignore-eos --temp 0 -t 1 --no-pin -q\n"),
            "%s", o.out);
  cr_expect(strstr(o.out, "./peer -m m.gguf -p 0 -n 12 -t 1 -r 1 --no-warmup\n"), "%s", o.out);
  finish(&o);
  o = counted("", "./headrow"); /* two of headrow's builds */
  cr_expect(o.status == 0 && strstr(o.out, " 1.00\n") && !strstr(o.out, "-m m.gguf"), "%s%s", o.out,
            o.err);
  finish(&o);
}

Test(bench, counts_that_are_none_are_errors) {
  static const struct {
    const char *options, *peer, *said;
    int status;
  } cases[] = {{"FROM=9 TO=3", "./peer", "FROM and TO: 9 and 3", 2},
               {"FROM=x", "./peer", "expected numbers", 2},
               {"", "./nosuch", "./nosuch: can't be read", 3},
               {"SILENT=1", "./peer", "nothing was counted", 3}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    result o = counted(cases[i].options, cases[i].peer);
    cr_expect(o.status == cases[i].status && strstr(o.err, cases[i].said), "%zu: %d %s", i,
              o.status, o.err);
    finish(&o);
  }
}
