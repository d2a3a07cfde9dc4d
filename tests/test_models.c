/* SPDX-License-Identifier: MIT
 * Whole models against oracles: PyTorch in double precision, other engines, and
 * the model itself done in another way. */
#include <criterion/criterion.h>
#include <criterion/logging.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/engine.h"
#include "headrow/headrow.h"
#include "kernels/select.h"
#include "tests/support/activations.h"
#include "tests/support/arrays.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/measure.h"

#define FIXTURES HEADROW_SOURCE_ROOT "/tests/fixtures/"
#define SHIPPED HEADROW_SOURCE_ROOT "/models/"

/* --- Helpers ---------------------------------------------------------------- */

typedef struct path {
  char text[PATH_MAX];
} path;

__attribute__((format(printf, 1, 2))) static path path_of(const char *format, ...) {
  path p;
  va_list list;
  va_start(list, format);
  int n = vsnprintf(p.text, sizeof p.text, format, list);
  va_end(list);
  cr_assert(n > 0 && (size_t)n < sizeof p.text);
  return p;
}

/* The folder of files that are not part of the project; NULL, with a line that
 * says so, where they are not at hand. */
static const char *data_folder(void) {
  const char *folder = getenv("HEADROW_TEST_DATA");
  if (folder && *folder) return folder;
  fprintf(stderr, "not run: HEADROW_TEST_DATA is not set\n");
  return NULL;
}

static hr_model *open_model(const char *file, hr_weights weights, const char *isa) {
  hr_error err = {0};
  hr_model_options options;
  hr_model_options_init(&options);
  options.weights = weights;
  options.isa = isa;
  hr_model *model = hr_model_open(file, &options, &err);
  cr_assert(model, "%s", err.message);
  return model;
}

static hr_session *open_session(const hr_model *model, hr_cache cache, size_t chunk,
                                unsigned threads) {
  hr_error err = {0};
  hr_session_options options;
  hr_session_options_init(&options);
  options.cache = cache;
  options.chunk = chunk;
  options.threads = threads;
  options.no_pin = true;
  hr_session *session = hr_session_create(model, &options, &err);
  cr_assert(session, "%s", err.message);
  return session;
}

static void eval(hr_session *session, const int32_t *ids, size_t count, hr_logits_rows rows) {
  hr_error err = {0};
  cr_assert(hr_session_eval(session, ids, count, rows, &err) == HR_OK, "%s", err.message);
}

static void go_back(hr_session *session, size_t position) {
  hr_error err = {0};
  cr_assert(hr_session_rewind(session, position, &err) == HR_OK, "%s", err.message);
}

/* Number of the largest of a row, the first one on ties. */
static int32_t largest(const float *logits, size_t n) {
  size_t best = 0;
  for (size_t i = 1; i < n; i++)
    if (logits[i] > logits[best]) best = i;
  return (int32_t)best;
}

static double largest_difference(const float *x, const double *expected, size_t n) {
  double most = 0;
  for (size_t i = 0; i < n; i++) {
    double d = fabs((double)x[i] - expected[i]);
    if (!(d <= most)) most = isnan(d) ? (double)INFINITY : d;
  }
  return most;
}

/* Logits of all ids at once, fp32 cache; what was shown on the way goes to seen,
 * which may be NULL. The caller frees the session. */
static hr_session *run_all(const hr_model *model, const array *ids, activations *seen) {
  hr_session *session = open_session(model, HR_CACHE_F32, 0, 1);
  if (seen) hr_workspace_set_tap(session->workspace, activations_tap, seen);
  int32_t *copy = array_ids(ids);
  eval(session, copy, ids->count, HR_LOGITS_ALL);
  free(copy);
  return session;
}

/* --- Fixtures --------------------------------------------------------------- */

enum { MOST_LAYERS = 8 };

static const char *const shown[] = {"embedding", "attention_input", "query", "key", "value",
                                    "attended", "attention_residual", "ffn_input", "ffn_up",
                                    "ffn_gate", "activated", "block", "final_norm"};

/* Every activation that the file has; returns how many. */
static size_t check_activations(const activations *seen, const arrays *expected,
                                const char *prefix) {
  size_t checked = 0;
  for (size_t i = 0; i < sizeof shown / sizeof *shown; i++)
    for (uint32_t layer = 0; layer < MOST_LAYERS; layer++) {
      const array *e = arrays_find(expected, path_of("%s%s.%u", prefix, shown[i], layer).text);
      if (!e) continue;
      const activation *a = activations_need(seen, shown[i], layer);
      cr_assert(a->rows * a->columns == e->count, "%s: %zu x %zu", e->name, a->rows, a->columns);
      double d = distance_to(a->data, e->value, e->count);
      cr_assert(d < 1e-4, "%s is off by %g of its range", e->name, d);
      checked++;
    }
  return checked;
}

static void check_logits(const hr_model *model, const arrays *expected, const char *prefix,
                         const char *ids) {
  const array *e = arrays_need(expected, path_of("%slogits", prefix).text);
  hr_session *session = run_all(model, arrays_need(expected, ids), NULL);
  double d = distance_to(hr_session_logits(session, 0), e->value, e->count);
  cr_assert(d < 1e-4, "%s are off by %g of their range", e->name, d);
  hr_session_free(session);
}

static void check_long_text(const hr_model *model, const arrays *expected, const char *prefix) {
  const array *ids = arrays_need(expected, path_of("%slong_ids", prefix).text);
  const array *rows = arrays_need(expected, path_of("%slong_rows", prefix).text);
  const array *logits = arrays_need(expected, path_of("%slong_logits", prefix).text);
  hr_session *session = run_all(model, ids, NULL);
  size_t vocab = hr_model_vocab_size(model);
  cr_assert(logits->count == rows->count * vocab);
  for (size_t i = 0; i < rows->count; i++) {
    const float *row = hr_session_logits(session, (size_t)rows->value[i]);
    double d = distance_to(row, logits->value + i * vocab, vocab);
    cr_assert(d < 1e-4, "row %g is off by %g of its range", rows->value[i], d);
  }
  hr_session_free(session);
}

static void check_model(const hr_model *model, const arrays *expected, const char *prefix,
                        const char *ids, size_t activation_count) {
  check_logits(model, expected, prefix, ids);
  activations seen = {0};
  hr_session_free(run_all(model, arrays_need(expected, ids), &seen));
  size_t checked = check_activations(&seen, expected, prefix);
  cr_assert(checked == activation_count, "%zu activations", checked);
  activations_finish(&seen);
}

Test(models, llama_against_pytorch) {
  hr_model *model = open_model(FIXTURES "llama.gguf", HR_WEIGHTS_NATIVE, NULL);
  arrays expected = arrays_read(FIXTURES "llama_expected.safetensors");
  check_model(model, &expected, "", "ids", 1 + 2 * 11 + 1);
  check_long_text(model, &expected, "");
  arrays_finish(&expected);
  hr_model_free(model);
}

Test(models, gpt2_against_pytorch) {
  hr_model *model = open_model(FIXTURES "gpt2.gguf", HR_WEIGHTS_NATIVE, NULL);
  arrays expected = arrays_read(FIXTURES "gpt2_expected.safetensors");
  check_model(model, &expected, "", "ids", 1 + 2 * 10 + 1);
  arrays_finish(&expected);
  hr_model_free(model);
}

/* A model seen through the tap, one row at a time, shows the same as at once. */
Test(models, activations_of_single_rows) {
  hr_model *model = open_model(FIXTURES "llama.gguf", HR_WEIGHTS_NATIVE, NULL);
  arrays expected = arrays_read(FIXTURES "llama_expected.safetensors");
  const array *ids = arrays_need(&expected, "ids");
  activations seen = {0};
  for (unsigned threads = 1; threads <= 2; threads++) {
    hr_session *session = open_session(model, HR_CACHE_F32, 1, threads);
    hr_workspace_set_tap(session->workspace, activations_tap, &seen);
    int32_t *copy = array_ids(ids);
    eval(session, copy, ids->count, HR_LOGITS_ALL);
    cr_assert(check_activations(&seen, &expected, "") == 1 + 2 * 11 + 1);
    free(copy);
    activations_finish(&seen);
    hr_session_free(session);
  }
  arrays_finish(&expected);
  hr_model_free(model);
}

typedef struct variant {
  const char *position, *place, *activation;
  bool causal;
  uint32_t window; /* 0: none */
} variant;

static void put_variant_values(gguf_writer *w, const variant *v) {
  bool table = strcmp(v->position, "learned") == 0; /* of 12 rows */
  gguf_put_string(w, "general.architecture", "transformer");
  gguf_put_u32(w, "transformer.block_count", 2);
  gguf_put_u32(w, "transformer.context_length", table ? 12 : 640);
  gguf_put_u32(w, "transformer.embedding_length", 24);
  gguf_put_u32(w, "transformer.feed_forward_length", 40);
  gguf_put_u32(w, "transformer.attention.head_count", 6);
  gguf_put_f32(w, "transformer.attention.layer_norm_epsilon", 1e-5f);
  gguf_put_f32(w, "transformer.embedding_scale", 1.5f);
  gguf_put_string(w, "transformer.position", v->position);
  gguf_put_string(w, "transformer.norm_placement", v->place);
  gguf_put_string(w, "transformer.activation", v->activation);
  gguf_put_bool(w, "transformer.attention.causal", v->causal);
  if (v->window) gguf_put_u32(w, "transformer.attention.sliding_window", v->window);
}

/* Norms of the other placement and an unused table stay out. */
static bool belongs(const variant *v, const char *name) {
  bool post = strcmp(v->place, "post") == 0;
  if (strncmp(name, "position", 8) == 0) return strcmp(v->position, "learned") == 0;
  if (strncmp(name, "output_norm", 11) == 0) return !post;
  if (strstr(name, ".attn_norm") || strstr(name, ".ffn_norm")) return !post;
  if (strstr(name, "_output_norm")) return post;
  return true;
}

static void *write_variant(const variant *v, const arrays *weights, size_t *size) {
  gguf_writer w;
  gguf_writer_init(&w);
  put_variant_values(&w, v);
  for (size_t i = 0; i < weights->count; i++) {
    const array *a = &weights->array[i];
    if (!belongs(v, a->name)) continue;
    float *data = array_floats(a);
    const uint64_t dim[] = {a->dim[a->dims - 1], a->dim[0]};
    gguf_put_tensor(&w, a->name, GGUF_TENSOR_F32, (uint32_t)a->dims, dim, data,
                    a->count * sizeof *data);
    free(data);
  }
  return gguf_writer_finish(&w, size);
}

static size_t check_variant(const variant *v, const arrays *weights, const arrays *expected) {
  size_t size, activation_count = 0, final = belongs(v, "output_norm");
  void *file = write_variant(v, weights, &size);
  hr_error err = {0};
  hr_model *model = hr_model_open_memory(file, size, "variant.gguf", NULL, &err);
  cr_assert(model, "%s", err.message);
  path prefix = path_of("%s.%s.%s.%s.%s", v->position, v->place, v->activation,
                        v->causal ? "causal" : "full", v->window ? "window." : "");
  bool is_shown = arrays_find(expected, path_of("%sembedding.0", prefix.text).text);
  if (is_shown) activation_count = 1 + 2 * 10 + final;
  check_model(model, expected, prefix.text, "ids", activation_count);
  bool is_long = arrays_find(expected, path_of("%slong_ids", prefix.text).text);
  if (is_long) check_long_text(model, expected, prefix.text);
  hr_model_free(model);
  free(file);
  return 1u + (is_shown ? 100u : 0u) + (is_long ? 10000u : 0u);
}

Test(models, every_variant_of_the_block_against_pytorch) {
  static const char *const positions[] = {"none", "sinusoidal", "learned", "rope", "alibi"};
  static const char *const places[] = {"post", "pre"};
  static const char *const functions[] = {"relu", "gelu_tanh"};
  arrays weights = arrays_read(FIXTURES "variants_weights.safetensors");
  arrays expected = arrays_read(FIXTURES "variants_expected.safetensors");
  size_t checked = 0;
  for (size_t i = 0; i < 5 * 2 * 2 * 2; i++) {
    const variant v = {positions[i / 8], places[i / 4 % 2], functions[i / 2 % 2], i % 2, 0};
    checked += check_variant(&v, &weights, &expected);
  }
  for (size_t i = 0; i < 2; i++) {
    const variant v = {"rope", "pre", "gelu_tanh", i % 2, 4};
    checked += check_variant(&v, &weights, &expected);
  }
  cr_assert(checked == 42 + 3 * 100 + 10000, "%zu", checked);
  arrays_finish(&weights);
  arrays_finish(&expected);
}

/* --- The models that ship --------------------------------------------------- */

static const char *const shipped[] = {"builtin", "transformer-2017", "gpt2", "alibi", "rope"};

static void check_shipped(const char *name, hr_weights weights, hr_cache cache, double tolerance) {
  hr_model *model = open_model(path_of(SHIPPED "%s.gguf", name).text, weights, NULL);
  json_t *json = json_read(path_of(SHIPPED "expected/%s.json", name).text);
  array ids = array_from_json(json_object_get(json, "ids"));
  array expected = array_from_json(json_object_get(json, "last_logits"));
  cr_assert(expected.count == hr_model_vocab_size(model));
  hr_session *session = open_session(model, cache, 0, 1);
  int32_t *copy = array_ids(&ids);
  eval(session, copy, ids.count, HR_LOGITS_LAST);
  double d = distance_to(hr_session_logits(session, 0), expected.value, expected.count);
  cr_assert(d < tolerance, "%s is off by %g of its range, expected less than %g", name, d,
            tolerance);
  cr_log_info("%s: off by %g of its range", name, d);
  hr_session_free(session);
  free(copy);
  array_finish(&ids);
  array_finish(&expected);
  json_decref(json);
  hr_model_free(model);
}

/* The expected logits were computed in double precision from the file's int8
 * weights. Held as floats they are the same weights; held as int8 the
 * activations are rounded to int8 too. Differences as shares of the logits' range. */
Test(models, shipped_against_double_precision) {
  for (size_t i = 0; i < sizeof shipped / sizeof *shipped; i++) {
    check_shipped(shipped[i], HR_WEIGHTS_F32, HR_CACHE_F32, 5e-6);
    check_shipped(shipped[i], HR_WEIGHTS_NATIVE, HR_CACHE_AUTO, 0.02);
  }
}

/* --- The same bits in every way --------------------------------------------- */

typedef struct way {
  size_t chunk;
  unsigned threads;
  bool reused; /* the session has done other work before */
  hr_cache cache;
} way;

/* Other tokens at these places first, then the right ones beyond the middle. */
static void use_before(hr_session *session, const int32_t *ids, size_t count) {
  for (size_t i = count; i-- > 0;) eval(session, ids + i, 1, HR_LOGITS_NONE);
  go_back(session, 0);
  eval(session, ids, count / 2 + 3, HR_LOGITS_LAST);
  go_back(session, count / 2);
}

/* Digest of the logits of the second half of a prompt, and of 40 tokens chosen after it. */
static uint64_t digest_of(const hr_model *model, const int32_t *ids, size_t count, way w) {
  size_t vocab = hr_model_vocab_size(model), begin = w.reused ? count / 2 : 0;
  hr_session *session = open_session(model, w.cache, w.chunk, w.threads);
  if (w.reused) use_before(session, ids, count);
  eval(session, ids + begin, count - begin, HR_LOGITS_ALL);
  const float *last = hr_session_logits(session, count - 1 - begin);
  uint64_t digest = HR_DIGEST_INIT;
  for (size_t r = count / 2; r < count; r++)
    digest = hr_digest(digest, hr_session_logits(session, r - begin), vocab);
  for (int i = 0; i < 40; i++) {
    int32_t next = largest(last, vocab);
    eval(session, &next, 1, HR_LOGITS_LAST);
    last = hr_session_logits(session, 0);
    digest = hr_digest(digest, last, vocab);
  }
  hr_session_free(session);
  return digest;
}

static void check_digest(const hr_model *model, const int32_t *ids, size_t count, way w,
                         uint64_t expected, const char *what) {
  uint64_t digest = digest_of(model, ids, count, w);
  cr_assert(digest == expected, "%s (%s), chunk %zu, %u threads, reused %d: %016lx and not %016lx",
            what, hr_model_isa(model), w.chunk, w.threads, w.reused, (unsigned long)digest,
            (unsigned long)expected);
}

static void fill_ids(int32_t *ids, size_t count, size_t vocab) {
  uint64_t state = 7;
  for (size_t i = 0; i < count; i++) ids[i] = (int32_t)(random_bits(&state) % vocab);
}

/* Pieces, threads and a session with a past, on the best tier. */
static void check_ways(const char *file, hr_weights weights, way plain, const int32_t *ids,
                       size_t count, uint64_t expected) {
  static const size_t chunks[] = {1, 7, 64};
  static const unsigned threads[] = {2, 3, 5};
  hr_model *model = open_model(file, weights, NULL);
  for (size_t i = 0; i < 3; i++) {
    way w = plain;
    w.chunk = chunks[i];
    check_digest(model, ids, count, w, expected, file);
    w.reused = true;
    check_digest(model, ids, count, w, expected, file);
    w = plain;
    w.threads = threads[i];
    check_digest(model, ids, count, w, expected, file);
  }
  hr_model_free(model);
}

/* Every tier of this CPU, in one piece and on one thread, and otherwise. */
static void check_tiers(const char *file, hr_weights weights, way plain, const int32_t *ids,
                        size_t count, uint64_t expected) {
  size_t tier_count;
  const hr_tier *tiers = hr_tiers(&tier_count);
  for (size_t i = 0; i < tier_count; i++) {
    if (tiers[i].needs & ~hr_cpu_features()) {
      fprintf(stderr, "not run: this CPU has no %s\n", tiers[i].name);
      continue;
    }
    hr_model *model = open_model(file, weights, tiers[i].name);
    cr_assert_str_eq(hr_model_isa(model), tiers[i].name);
    way w = plain;
    check_digest(model, ids, count, w, expected, file);
    w.chunk = 7;
    w.threads = 2;
    check_digest(model, ids, count, w, expected, file);
    hr_model_free(model);
  }
}

/* What the portable kernels give in one piece on one thread, in all other ways. */
static void check_all_ways(const char *file, hr_weights weights, hr_cache cache, size_t count) {
  int32_t ids[300];
  const way plain = {.threads = 1, .cache = cache};
  hr_model *model = open_model(file, weights, "portable");
  fill_ids(ids, count, hr_model_vocab_size(model));
  uint64_t expected = digest_of(model, ids, count, plain);
  hr_model_free(model);
  check_ways(file, weights, plain, ids, count, expected);
  check_tiers(file, weights, plain, ids, count, expected);
}

/* 290 tokens: keys of two blocks. */
Test(digests, built_in_model) {
  check_all_ways(SHIPPED "builtin.gguf", HR_WEIGHTS_NATIVE, HR_CACHE_AUTO, 290);
}

Test(digests, siblings) {
  for (size_t i = 1; i < sizeof shipped / sizeof *shipped; i++)
    check_all_ways(path_of(SHIPPED "%s.gguf", shipped[i]).text, HR_WEIGHTS_NATIVE, HR_CACHE_AUTO,
                   100);
}

Test(digests, every_type_of_weights_and_cache) {
  check_all_ways(FIXTURES "llama.gguf", HR_WEIGHTS_F32, HR_CACHE_F32, 290);
  check_all_ways(FIXTURES "llama.gguf", HR_WEIGHTS_F16, HR_CACHE_F32, 290);
  check_all_ways(FIXTURES "llama.gguf", HR_WEIGHTS_F32, HR_CACHE_F16, 290);
  check_all_ways(FIXTURES "llama.gguf", HR_WEIGHTS_Q8_0, HR_CACHE_F32, 290);
  check_all_ways(SHIPPED "rope.gguf", HR_WEIGHTS_F32, HR_CACHE_F16, 70);
  check_all_ways(SHIPPED "gpt2.gguf", HR_WEIGHTS_F16, HR_CACHE_F32, 70);
}

/* A digest that never changed would prove nothing. */
Test(digests, see_one_token_and_the_type_of_the_cache) {
  int32_t ids[100];
  hr_model *model = open_model(SHIPPED "builtin.gguf", HR_WEIGHTS_NATIVE, NULL);
  fill_ids(ids, 100, hr_model_vocab_size(model));
  way w = {.threads = 1, .cache = HR_CACHE_F32};
  uint64_t first = digest_of(model, ids, 100, w);
  w.cache = HR_CACHE_F16;
  cr_assert(digest_of(model, ids, 100, w) != first);
  w.cache = HR_CACHE_F32;
  ids[10] ^= 1;
  cr_assert(digest_of(model, ids, 100, w) != first);
  hr_model_free(model);
}

/* --- Trained models, where they are at hand ---------------------------------- */

/* Largest difference of logits, mean KL divergence of the distributions, and rows
 * whose largest logit is the same one. */
typedef struct agreement {
  double difference, divergence;
  size_t same_choice;
} agreement;

static void log_softmax(const double *x, size_t n, double *out) {
  double most = x[0], sum = 0;
  for (size_t i = 1; i < n; i++) most = fmax(most, x[i]);
  for (size_t i = 0; i < n; i++) sum += exp(x[i] - most);
  for (size_t i = 0; i < n; i++) out[i] = x[i] - most - log(sum);
}

static double divergence(const double *p, const float *q, size_t n) {
  double *work = calloc(3 * n, sizeof *work), *wide = work + 2 * n, sum = 0;
  for (size_t i = 0; i < n; i++) wide[i] = (double)q[i];
  log_softmax(p, n, work);
  log_softmax(wide, n, work + n);
  for (size_t i = 0; i < n; i++) sum += exp(work[i]) * (work[i] - work[n + i]);
  free(work);
  return sum;
}

static agreement agree(const float *logits, const array *expected, size_t vocab) {
  agreement a = {.difference = largest_difference(logits, expected->value, expected->count)};
  size_t rows = expected->count / vocab;
  float *wanted = array_floats(expected);
  for (size_t r = 0; r < rows; r++) {
    const float *row = logits + r * vocab;
    a.divergence += divergence(expected->value + r * vocab, row, vocab) / (double)rows;
    if (largest(row, vocab) == largest(wanted + r * vocab, vocab)) a.same_choice++;
  }
  free(wanted);
  return a;
}

/* A file's logits for the ids, against 50 rows of expected ones. */
static agreement agreement_of(const char *file, hr_cache cache, const array *ids,
                              const array *expected) {
  hr_model *model = open_model(file, HR_WEIGHTS_NATIVE, NULL);
  size_t vocab = hr_model_vocab_size(model);
  cr_assert(ids->count == 50 && expected->count == 50 * vocab);
  hr_session *session = open_session(model, cache, 0, 1);
  int32_t *copy = array_ids(ids);
  eval(session, copy, ids->count, HR_LOGITS_ALL);
  agreement a = agree(hr_session_logits(session, 0), expected, vocab);
  cr_log_info("%s: difference %g, divergence %g, same choice %zu", file, a.difference,
              a.divergence, a.same_choice);
  free(copy);
  hr_session_free(session);
  hr_model_free(model);
  return a;
}

static void check_agreement(const char *file, hr_cache cache, const array *ids,
                            const array *expected, agreement bound) {
  agreement a = agreement_of(file, cache, ids, expected);
  cr_assert(a.difference < bound.difference, "%s: logits differ by %g", file, a.difference);
  cr_assert(a.divergence < bound.divergence, "%s: divergence %g", file, a.divergence);
  cr_assert(a.same_choice >= bound.same_choice, "%s: same choice %zu times", file, a.same_choice);
}

/* Greedy ids after a prompt, against a file of ids. */
static void check_greedy(const char *file, const int32_t *prompt, size_t count, const char *ids) {
  array expected = array_read_numbers(ids);
  cr_assert(expected.count > 100);
  hr_model *model = open_model(file, HR_WEIGHTS_NATIVE, NULL);
  hr_session *session = open_session(model, HR_CACHE_F32, 0, 1);
  eval(session, prompt, count, HR_LOGITS_LAST);
  for (size_t i = 0; i < expected.count; i++) {
    int32_t next = largest(hr_session_logits(session, 0), hr_model_vocab_size(model));
    cr_assert(next == (int32_t)expected.value[i], "%s: token %zu is %d and not %g", file, i, next,
              expected.value[i]);
    eval(session, &next, 1, HR_LOGITS_LAST);
  }
  hr_session_free(session);
  hr_model_free(model);
  array_finish(&expected);
}

static const int32_t stories_prompt[] = {1, 403, 407, 261, 378}; /* Once upon a time */

Test(trained, stories_greedy) {
  const char *data = data_folder();
  if (!data) return;
  path file = path_of("%s/stories260K/stories260K.gguf", data);
  static const char *const engines[] = {"run_c", "llamacpp"};
  for (size_t i = 0; i < 2; i++) {
    path ids = path_of("%s/stories260K/oracle/%s_greedy_ids.txt", data, engines[i]);
    array expected = array_read_numbers(ids.text);
    cr_assert(expected.count == 250);
    array_finish(&expected);
    check_greedy(file.text, stories_prompt, 5, ids.text);
  }
}

Test(trained, stories_prompt_and_text) {
  const char *data = data_folder();
  if (!data) return;
  hr_model *model = open_model(path_of("%s/stories260K/stories260K.gguf", data).text,
                               HR_WEIGHTS_NATIVE, NULL);
  hr_error err = {0};
  int32_t ids[8];
  size_t count;
  cr_assert(hr_tokenize(model, "Once upon a time", 16, HR_TOKENIZE_SPECIAL, ids, 8, &count, &err) ==
            HR_OK, "%s", err.message);
  cr_assert(count == 5 && memcmp(ids, stories_prompt, sizeof stories_prompt) == 0);
  hr_model_free(model);
}

Test(trained, stories_logits_of_every_type) {
  const char *data = data_folder();
  if (!data) return;
  path folder = path_of("%s/stories260K", data);
  array ids = array_read_numbers(path_of("%s/oracle/logits_ids.txt", folder.text).text);
  array run_c = array_read_f32(path_of("%s/oracle/run_c_logits_f32.bin", folder.text).text);
  array other = array_read_f32(path_of("%s/oracle/llamacpp_logits_f32.bin", folder.text).text);
  path f32 = path_of("%s/stories260K.gguf", folder.text);
  path f16 = path_of("%s/stories260K-f16.gguf", folder.text);
  path q8 = path_of("%s/stories260K-q8_0.gguf", folder.text);
  const agreement exact = {1e-4, 1e-9, 50}, half = {0.03, 1e-6, 50}, eighth = {0.8, 1e-3, 49};
  check_agreement(f32.text, HR_CACHE_F32, &ids, &run_c, exact);
  check_agreement(f32.text, HR_CACHE_F32, &ids, &other, exact);
  check_agreement(f16.text, HR_CACHE_AUTO, &ids, &run_c, half);
  check_agreement(q8.text, HR_CACHE_AUTO, &ids, &run_c, eighth);
  array_finish(&ids);
  array_finish(&run_c);
  array_finish(&other);
}

/* Beside what llama.cpp makes of the same file. It takes other roads to int8 and
 * sums in another order: what is left are both engines' roundings of the activations,
 * an order of magnitude below what these types lose against F32. */
static void check_quantized(const char *folder, const char *file, const char *oracle,
                            size_t same_choice) {
  array ids = array_read_numbers(path_of("%s/oracle/logits_ids.txt", folder).text);
  array expected = array_read_f32(path_of("%s/oracle/%s", folder, oracle).text);
  const agreement bound = {0.6, 6e-4, same_choice};
  check_agreement(path_of("%s/%s", folder, file).text, HR_CACHE_AUTO, &ids, &expected, bound);
  array_finish(&ids);
  array_finish(&expected);
}

Test(trained, quantized_files_beside_another_engine) {
  const char *data = data_folder();
  if (!data) return;
  static const char *const types[] = {"q4_0", "q4_1", "q5_0", "q5_1", "q8_0"};
  path folder = path_of("%s/stories260K", data);
  for (size_t i = 0; i < sizeof types / sizeof *types; i++)
    check_quantized(folder.text, path_of("stories260K-%s.gguf", types[i]).text,
                    path_of("llamacpp_logits_%s.bin", types[i]).text, 49);
  folder = path_of("%s/tinystories-656k", data);
  check_quantized(folder.text, "tinystories656k-q4_0.gguf", "llamacpp_logits_q4_0.bin", 47);
  check_quantized(folder.text, "tinystories656k-q8_0.gguf", "llamacpp_logits_q8_0.bin", 46);
}

/* As fp16 they lose only what the scale's product with a value has below 11 bits. */
Test(trained, quantized_files_held_as_f16) {
  const char *data = data_folder();
  if (!data) return;
  static const char *const types[] = {"q4_0", "q4_1", "q5_0", "q5_1", "q8_0"};
  for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
    path file = path_of("%s/stories260K/stories260K-%s.gguf", data, types[i]);
    array ids = array_read_numbers(path_of("%s/stories260K/oracle/logits_ids.txt", data).text);
    hr_model *wide = open_model(file.text, HR_WEIGHTS_F32, NULL);
    hr_model *half = open_model(file.text, HR_WEIGHTS_F16, NULL);
    hr_session *a = open_session(wide, HR_CACHE_F32, 0, 1),
               *b = open_session(half, HR_CACHE_F32, 0, 1);
    int32_t *copy = array_ids(&ids);
    eval(a, copy, ids.count, HR_LOGITS_ALL);
    eval(b, copy, ids.count, HR_LOGITS_ALL);
    float most = 0;
    for (size_t j = 0; j < ids.count * hr_model_vocab_size(wide); j++)
      most = fmaxf(most, fabsf(hr_session_logits(a, 0)[j] - hr_session_logits(b, 0)[j]));
    cr_assert(most > 0 && most < 0.03f, "%s: %g", types[i], (double)most);
    free(copy);
    hr_session_free(a);
    hr_session_free(b);
    hr_model_free(wide);
    hr_model_free(half);
    array_finish(&ids);
  }
}

static const int32_t small_prompt[] = {1, 80, 147, 201, 282, 57}; /* Once upon a time */

Test(trained, tinystories_656k) {
  const char *data = data_folder();
  if (!data) return;
  path folder = path_of("%s/tinystories-656k", data);
  path f32 = path_of("%s/tinystories656k-f32.gguf", folder.text);
  path f16 = path_of("%s/tinystories656k-f16.gguf", folder.text);
  array ids = array_read_numbers(path_of("%s/oracle/logits_ids.txt", folder.text).text);
  array wide = array_read_f64(path_of("%s/oracle/numpy_f64_logits.bin", folder.text).text);
  const agreement exact = {1e-4, 1e-9, 50};
  check_agreement(f32.text, HR_CACHE_F32, &ids, &wide, exact);
  check_agreement(f16.text, HR_CACHE_F32, &ids, &wide, exact);
  check_agreement(path_of("%s/model.safetensors", folder.text).text, HR_CACHE_F32, &ids, &wide,
                  exact);
  check_greedy(f32.text, small_prompt, 6,
               path_of("%s/oracle/run_c_greedy_ids.txt", folder.text).text);
  check_greedy(f16.text, small_prompt, 6,
               path_of("%s/oracle/llamacpp_greedy_ids.txt", folder.text).text);
  array_finish(&ids);
  array_finish(&wide);
}

/* Every weight of that model is an fp16 value. */
Test(trained, f32_and_f16_files_of_the_same_values_give_the_same_bits) {
  const char *data = data_folder();
  if (!data) return;
  hr_model *f32 = open_model(path_of("%s/tinystories-656k/tinystories656k-f32.gguf", data).text,
                             HR_WEIGHTS_NATIVE, NULL);
  hr_model *f16 = open_model(path_of("%s/tinystories-656k/tinystories656k-f16.gguf", data).text,
                             HR_WEIGHTS_NATIVE, NULL);
  static const hr_cache caches[] = {HR_CACHE_F32, HR_CACHE_F16};
  int32_t ids[60];
  fill_ids(ids, 60, hr_model_vocab_size(f32));
  uint64_t digest[2];
  for (size_t i = 0; i < 2; i++) {
    const way w = {.threads = 1, .cache = caches[i]};
    digest[i] = digest_of(f32, ids, 60, w);
    cr_assert(digest_of(f16, ids, 60, w) == digest[i]);
  }
  cr_assert(digest[0] != digest[1]);
  hr_model_free(f32);
  hr_model_free(f16);
}

/* --- Every activation of a trained GPT ----------------------------------------
 * The weights' file lacks the biases of the queries, keys and values that the
 * activations were computed with. Those of the first block follow from one row of
 * what the file of activations has (the other 32 rows check them). Without those
 * of the second and third the stream behind the third can't be ours: it is put
 * right before the final norm, so that norm, head and probabilities are checked
 * for themselves. */

enum { TEXTS = 3, ROWS = 11, HEADS = 3, HEAD_WIDTH = 16, WIDTH = 48 };

typedef struct sorter {
  const char *data;
  hr_model *model;
  activations seen;
  float *logits;
  float bias[3 * WIDTH];
  size_t text;
} sorter;

static array partial(const sorter *s, const char *name) {
  return array_read_npy(path_of("%s/gpt-nano-sort/partial_%s.npy", s->data, name).text);
}

/* What the projections of the first row lack. */
static void find_biases(sorter *s) {
  array normed = partial(s, "ln1"), wanted = partial(s, "qkv");
  arrays weights = arrays_read(path_of("%s/gpt-nano-sort/model.safetensors", s->data).text);
  const array *w = arrays_need(&weights, "transformer.h.0.attn.c_attn.weight");
  for (size_t i = 0; i < 3 * WIDTH; i++) {
    double sum = 0;
    for (size_t k = 0; k < WIDTH; k++) sum += normed.value[k] * w->value[k * 3 * WIDTH + i];
    s->bias[i] = (float)(wanted.value[i] - sum);
  }
  hr_layer *layer = s->model->loaded.transformer.layer;
  cr_assert(!layer->query.bias && !layer->key.bias && !layer->value.bias);
  layer->query.bias = s->bias;
  layer->key.bias = s->bias + WIDTH;
  layer->value.bias = s->bias + 2 * WIDTH;
  array_finish(&normed);
  array_finish(&wanted);
  arrays_finish(&weights);
}

/* Keeps what it sees, and puts the stream right behind the last block. */
static void sorter_tap(void *arg, const char *name, uint32_t layer, const float *data, size_t rows,
                       size_t columns, size_t stride) {
  sorter *s = arg;
  if (layer == 2 && strcmp(name, "block") == 0) {
    array stream = partial(s, "block2");
    for (size_t r = 0; r < rows; r++)
      for (size_t i = 0; i < columns; i++) /* the workspace's own rows, which it may write */
        ((float *)(uintptr_t)data)[r * stride + i] =
            (float)stream.value[(s->text * ROWS + r) * columns + i];
    array_finish(&stream);
  }
  activations_tap(&s->seen, name, layer, data, rows, columns, stride);
}

static void close_to(const float *x, const double *expected, size_t count, const char *name) {
  double d = largest_difference(x, expected, count);
  cr_assert(d < 1e-4, "%s is off by %g", name, d);
}

/* Rows as they stand. */
static void check_partial(const sorter *s, const char *name, const float *x, size_t columns) {
  array a = partial(s, name);
  cr_assert(a.count == TEXTS * ROWS * columns, "%s", name);
  close_to(x, a.value + s->text * ROWS * columns, ROWS * columns, name);
  array_finish(&a);
}

static void check_shown(const sorter *s, const char *name, const char *tap, uint32_t layer) {
  const activation *a = activations_need(&s->seen, tap, layer);
  cr_assert(a->rows == ROWS);
  check_partial(s, name, a->data, a->columns);
}

/* x - y: what a sub-layer or a table added, which is never held by itself. */
static void check_added(const sorter *s, const char *name, const float *x, const float *y) {
  float difference[ROWS * WIDTH];
  for (size_t i = 0; i < ROWS * WIDTH; i++) difference[i] = x[i] - y[i];
  check_partial(s, name, difference, WIDTH);
}

/* Heads first in the file, rows first here. */
static void check_heads(const sorter *s, const char *name, const char *tap) {
  const activation *a = activations_need(&s->seen, tap, 0);
  array e = partial(s, name);
  for (size_t h = 0; h < HEADS; h++)
    for (size_t r = 0; r < ROWS; r++)
      close_to(a->data + r * WIDTH + h * HEAD_WIDTH,
               e.value + ((s->text * HEADS + h) * ROWS + r) * HEAD_WIDTH, HEAD_WIDTH, name);
  array_finish(&e);
}

static void check_projections(const sorter *s) {
  static const char *const taps[] = {"query", "key", "value"};
  array e = partial(s, "qkv");
  for (size_t i = 0; i < 3; i++) {
    const activation *a = activations_need(&s->seen, taps[i], 0);
    for (size_t r = 0; r < ROWS; r++)
      close_to(a->data + r * WIDTH, e.value + (s->text * ROWS + r) * 3 * WIDTH + i * WIDTH, WIDTH,
               "qkv");
  }
  array_finish(&e);
}

/* Scores and weights live inside the attention kernel. A query that sees one key
 * has its score for a maximum; values that are 1 in a column of their own come
 * out as the weights. */
static void attend_row(const sorter *s, size_t head, size_t row, float *score, float *weight) {
  const hr_kernels *k = &s->model->kernels;
  const float *queries = activations_need(&s->seen, "query", 0)->data;
  const float *all_keys = activations_need(&s->seen, "key", 0)->data;
  _Alignas(64) float keys[HR_KEY_PANEL * HEAD_WIDTH] = {0}, q[HEAD_WIDTH];
  _Alignas(64) float values[HR_KEY_PANEL * HEAD_WIDTH] = {0};
  for (size_t j = 0; j < ROWS; j++) {
    float one[HEAD_WIDTH] = {0};
    one[j] = 1;
    k->store_key_f32(all_keys + j * WIDTH + head * HEAD_WIDTH, HEAD_WIDTH, keys, j);
    k->store_value_f32(one, HEAD_WIDTH, values, j);
  }
  memcpy(q, queries + row * WIDTH + head * HEAD_WIDTH, sizeof q);
  k->scale(q, s->model->loaded.transformer.description.score_scale, HEAD_WIDTH);
  float most, sum, out[HEAD_WIDTH];
  hr_query query = {.q = q, .position = (int32_t)row, .max = &most, .sum = &sum, .out = out};
  const hr_attend attend = {.keys = keys, .values = values, .width = HEAD_WIDTH,
                            .queries = &query, .count = 1};
  for (uint32_t j = 0; j <= row; j++) {
    query.first = j;
    query.end = j + 1;
    k->attend_f32(&attend);
    score[j] = most;
  }
  query.first = 0;
  k->attend_f32(&attend);
  k->divide(out, sum, HEAD_WIDTH);
  memcpy(weight, out, ROWS * sizeof *weight);
}

static void check_scores(const sorter *s) {
  array scores = partial(s, "att"), weights = partial(s, "attSm");
  for (size_t h = 0; h < HEADS; h++)
    for (size_t r = 0; r < ROWS; r++) {
      float score[ROWS], weight[ROWS];
      attend_row(s, h, r, score, weight);
      size_t at = ((s->text * HEADS + h) * ROWS + r) * ROWS;
      close_to(score, scores.value + at, r + 1, "att");
      close_to(weight, weights.value + at, ROWS, "attSm");
      for (size_t j = r + 1; j < ROWS; j++) {
        cr_assert(isinf(scores.value[at + j]));
        cr_assert(weight[j] == 0 && !signbit(weight[j]));
      }
    }
  array_finish(&scores);
  array_finish(&weights);
}

static void check_ends(const sorter *s) {
  const hr_transformer *t = &s->model->loaded.transformer;
  const float *x = activations_need(&s->seen, "embedding", 0)->data;
  array positions = partial(s, "pos_emb"), probabilities = partial(s, "probs");
  close_to(t->position_embedding, positions.value, ROWS * WIDTH, "pos_emb");
  check_added(s, "tok_emb", x, t->position_embedding);
  check_partial(s, "x", x, WIDTH);
  check_shown(s, "ln_f", "final_norm", 3);
  check_partial(s, "lm_head", s->logits, 3);
  for (size_t r = 0; r < ROWS; r++) {
    float p[3];
    memcpy(p, s->logits + r * 3, sizeof p);
    s->model->kernels.softmax(p, 3);
    close_to(p, probabilities.value + (s->text * ROWS + r) * 3, 3, "probs");
  }
  array_finish(&positions);
  array_finish(&probabilities);
}

static void check_first_block(const sorter *s) {
  const float *x = activations_need(&s->seen, "embedding", 0)->data;
  const float *between = activations_need(&s->seen, "attention_residual", 0)->data;
  check_shown(s, "ln1", "attention_input", 0);
  check_projections(s);
  check_heads(s, "q", "query");
  check_heads(s, "k", "key");
  check_heads(s, "v", "value");
  check_scores(s);
  check_shown(s, "y", "attended", 0);
  check_added(s, "yProj", between, x);
  check_shown(s, "attnResid", "attention_residual", 0);
  check_shown(s, "ln2", "ffn_input", 0);
  check_shown(s, "fc", "ffn_up", 0);
  check_shown(s, "gelu", "activated", 0);
  check_added(s, "mlp", activations_need(&s->seen, "block", 0)->data, between);
  check_shown(s, "mlpResid", "block", 0);
  check_shown(s, "block0", "block", 0);
}

static void check_text(sorter *s, const array *ids) {
  int32_t text[ROWS];
  for (size_t i = 0; i < ROWS; i++) text[i] = (int32_t)ids->value[s->text * ROWS + i];
  hr_session *session = open_session(s->model, HR_CACHE_F32, 0, 1);
  hr_workspace_set_tap(session->workspace, sorter_tap, s);
  eval(session, text, ROWS, HR_LOGITS_ALL);
  s->logits = session->logits;
  check_ends(s);
  check_first_block(s);
  activations_finish(&s->seen);
  hr_session_free(session);
}

Test(trained, activations_of_gpt_nano_sort_in_block_0_and_after_the_last) {
  sorter s = {.data = data_folder()};
  if (!s.data) return;
  s.model = open_model(path_of("%s/gpt-nano-sort", s.data).text, HR_WEIGHTS_NATIVE, NULL);
  array ids = partial(&s, "idx");
  cr_assert(ids.count == TEXTS * ROWS);
  find_biases(&s);
  for (s.text = 0; s.text < TEXTS; s.text++) check_text(&s, &ids);
  array_finish(&ids);
  hr_model_free(s.model);
}

/* --- Folders as Hugging Face has them ------------------------------------------- */

/* A folder of a test's own with a link to the weights and a config.json. */
static path make_folder(const char *weights, const json_t *config) {
  const char *base = getenv("TMPDIR");
  path folder = path_of("%s/headrow-test-XXXXXX", base && *base ? base : "/tmp");
  cr_assert(mkdtemp(folder.text));
  cr_assert(symlink(weights, path_of("%s/model.safetensors", folder.text).text) == 0);
  cr_assert(json_dump_file(config, path_of("%s/config.json", folder.text).text, 0) == 0);
  return folder;
}

static void remove_folder(const path *folder) {
  unlink(path_of("%s/model.safetensors", folder->text).text);
  unlink(path_of("%s/config.json", folder->text).text);
  rmdir(folder->text);
}

static hr_model *open_with_config(const char *weights, const json_t *config) {
  path folder = make_folder(weights, config);
  hr_model *model = open_model(folder.text, HR_WEIGHTS_NATIVE, NULL);
  remove_folder(&folder);
  return model;
}

static void check_json(const json_t *golden, const char *name, const float *x, size_t count) {
  array e = array_from_json(json_object_get(golden, name));
  cr_assert(e.count == count, "%s has %zu values and not %zu", name, e.count, count);
  close_to(x, e.value, count, name);
  array_finish(&e);
}

Test(trained, every_stage_of_tiny_gpt2) {
  const char *data = data_folder();
  if (!data) return;
  json_t *golden = json_read(path_of("%s/tiny-gpt2/gpt2_tiny_golden.json", data).text);
  json_t *config = json_deep_copy(json_object_get(golden, "config"));
  json_object_set_new(config, "model_type", json_string("gpt2"));
  hr_model *model = open_with_config(path_of("%s/tiny-gpt2/model.safetensors", data).text, config);
  array ids = array_from_json(json_object_get(golden, "input_ids"));
  activations seen = {0};
  hr_session *session = run_all(model, &ids, &seen);
  size_t values = ids.count * 32;
  check_json(golden, "hidden_after_embed", activations_need(&seen, "embedding", 0)->data, values);
  check_json(golden, "hidden_after_block0", activations_need(&seen, "block", 0)->data, values);
  check_json(golden, "hidden_after_lnf", activations_need(&seen, "final_norm", 2)->data, values);
  check_json(golden, "logits", session->logits, ids.count * 61);
  activations_finish(&seen);
  hr_session_free(session);
  hr_model_free(model);
  array_finish(&ids);
  json_decref(config);
  json_decref(golden);
}

/* Several texts with the logits of every position, as {"sequences", "logits"}. The
 * tolerance is a share of their range. */
static void check_sequences(const hr_model *model, const char *golden_file, double tolerance) {
  json_t *golden = json_read(golden_file);
  array ids = array_from_json(json_object_get(golden, "sequences"));
  array logits = array_from_json(json_object_get(golden, "logits"));
  size_t vocab = hr_model_vocab_size(model), rows = ids.dim[1];
  cr_assert(ids.dims == 2 && logits.count == ids.count * vocab);
  for (size_t i = 0; i < ids.dim[0]; i++) {
    array text = {.value = ids.value + i * rows, .count = rows};
    hr_session *session = run_all(model, &text, NULL);
    double d = distance_to(hr_session_logits(session, 0), logits.value + i * rows * vocab,
                           rows * vocab);
    cr_assert(d < tolerance, "%s: text %zu is off by %g", golden_file, i, d);
    hr_session_free(session);
  }
  array_finish(&ids);
  array_finish(&logits);
  json_decref(golden);
}

/* The config of those that came without one. */
static json_t *config_of(const char *data, const char *family) {
  path file = path_of("%s/fixtures/tiny_%s_config.json", data, family);
  if (access(file.text, R_OK) == 0) return json_read(file.text);
  return json_pack("{s:s, s:i, s:i, s:i, s:i}", "model_type", "gpt2", "n_layer", 2, "n_head", 2,
                   "n_embd", 8, "n_positions", 16);
}

Test(trained, tiny_checkpoints_of_families) {
  const char *data = data_folder();
  if (!data) return;
  static const char *const families[] = {
      "llama", "smollm2",   "mistral", "qwen2", "qwen3",   "gemma",        "gemma2",
      "phi",   "phi3",      "gpt2",    "bloom", "gptneox", "cerebras_gpt", "gptj",
      "opt",   "falcon_mq", "distilgpt2"};
  for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
    json_t *config = config_of(data, families[i]);
    path weights = path_of("%s/fixtures/tiny_%s.safetensors", data, families[i]);
    hr_model *model = open_with_config(weights.text, config);
    check_sequences(model, path_of("%s/fixtures/tiny_%s_logits.json", data, families[i]).text,
                    1e-5);
    hr_model_free(model);
    json_decref(config);
  }
}

Test(trained, tiny_llama_as_gguf) {
  const char *data = data_folder();
  if (!data) return;
  static const struct {
    const char *type;
    double tolerance;
  } files[] = {{"f32", 1e-5}, {"f16", 5e-3}};
  for (size_t i = 0; i < 2; i++) {
    path file = path_of("%s/fixtures/tiny_llama_%s.gguf", data, files[i].type);
    hr_model *model = open_model(file.text, HR_WEIGHTS_NATIVE, NULL);
    check_sequences(model, path_of("%s/fixtures/tiny_llama_logits.json", data).text,
                    files[i].tolerance);
    hr_model_free(model);
  }
}
