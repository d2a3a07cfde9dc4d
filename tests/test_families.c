/* SPDX-License-Identifier: MIT
 * Every family of the architecture table, as Hugging Face names things and as
 * GGUF, against double precision; and what their files may not ask for. */
#include <criterion/criterion.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/text.h"
#include "engine/engine.h"
#include "headrow/headrow.h"
#include "sched/team.h"
#include "tests/support/arrays.h"
#include "tests/support/measure.h"
#include "tests/support/shell.h"

#define FAMILIES HEADROW_SOURCE_ROOT "/tests/fixtures/families/"

/* fp32 on models of two layers is a hundred times better; GELU's two forms are
 * further apart than this. */
#define TOLERANCE 1e-5

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

static hr_model *open_model(const char *file) {
  hr_error err = {0};
  hr_model *model = hr_model_open(file, NULL, &err);
  cr_assert(model, "%s", err.message);
  cr_expect(err.status == HR_OK && !*err.message, "%s: opened, with '%s'", file, err.message);
  return model;
}

static hr_session *open_session(const hr_model *model, size_t context, size_t chunk,
                                unsigned threads) {
  hr_error err = {0};
  hr_session_options options;
  hr_session_options_init(&options);
  options.context = context;
  options.chunk = chunk;
  options.threads = threads;
  options.no_pin = true;
  hr_session *session = hr_session_create(model, &options, &err);
  cr_assert(session, "%s", err.message);
  cr_expect(err.status == HR_OK && !*err.message, "created, with '%s'", err.message);
  return session;
}

static void close_to(const float *x, const array *expected, const char *file) {
  double d = distance_to(x, expected->value, expected->count);
  cr_expect(d < TOLERANCE, "%s: %s are off by %g of their range", file, expected->name, d);
}

static hr_session *logits_of(const hr_model *model, const int32_t *ids, size_t count,
                             size_t context, size_t chunk, unsigned threads) {
  hr_error err = {0};
  hr_session *session = open_session(model, context, chunk, threads);
  cr_assert(hr_session_eval(session, ids, count, HR_LOGITS_ALL, &err) == HR_OK, "%s", err.message);
  return session;
}

static hr_session *encode(const hr_model *model, const int32_t *ids, const int32_t *types,
                          size_t count, unsigned threads) {
  hr_error err = {0};
  hr_session *session = open_session(model, 0, 0, threads);
  const hr_tokens text = {ids, types, count};
  cr_assert(hr_session_encode(session, &text, 1, &err) == HR_OK, "%s", err.message);
  return session;
}

/* --- Decoders ---------------------------------------------------------------- */

static const struct family {
  const char *name;
  bool gguf;
} decoders[] = {
    {"llama3", true},    {"mistral", true},
    {"qwen2", true},     {"qwen2_yarn", false},
    {"qwen3", true},     {"gemma", true},
    {"gemma2", true},    {"phi", true},
    {"phi3", true},      {"gpt2", true},
    {"gptj", true},      {"gptneox", true},
    {"bloom", true},     {"gptneox_sequential", true},
    {"falcon", true},    {"falcon_grouped", true},
    {"opt", false},      {"mpt", true},
    {"stablelm", true},  {"stablelm_parallel", true},
    {"starcoder2", true}};
enum { DECODERS = sizeof decoders / sizeof *decoders };

/* In one piece; then in pieces and on more threads, with the same bits. */
static void check_decoder(const char *file, const char *name, const arrays *expected) {
  const array *ids = arrays_need(expected, path_of("%s.ids", name).text);
  const array *logits = arrays_need(expected, path_of("%s.logits", name).text);
  int32_t *text = array_ids(ids);
  hr_model *model = open_model(file);
  cr_assert(hr_model_has_logits(model));
  cr_assert(logits->count == ids->count * hr_model_vocab_size(model));
  hr_session *whole = logits_of(model, text, ids->count, 0, 0, 1);
  close_to(hr_session_logits(whole, 0), logits, file);
  for (size_t chunk = 1; chunk <= 5; chunk += 4) {
    hr_session *pieces = logits_of(model, text, ids->count, 0, chunk, 3);
    cr_expect(memcmp(hr_session_logits(whole, 0), hr_session_logits(pieces, 0),
                     logits->count * sizeof(float)) == 0,
              "%s: other bits in pieces of %zu", file, chunk);
    hr_session_free(pieces);
  }
  hr_session_free(whole);
  hr_model_free(model);
  free(text);
}

Test(families, decoders) {
  arrays expected = arrays_read(FAMILIES "expected.safetensors");
  for (size_t i = 0; i < DECODERS; i++) {
    const char *name = decoders[i].name;
    check_decoder(path_of(FAMILIES "%s.safetensors", name).text, name, &expected);
    if (decoders[i].gguf) check_decoder(path_of(FAMILIES "%s.gguf", name).text, name, &expected);
  }
  arrays_finish(&expected);
}

/* Threads wait for each other at most six times a layer for a token, at the embedding
 * and at the head's parts: with few keys, and with more than one block of them. */
static void check_barriers(const char *file) {
  enum { EACH_LAYER = 6, EACH_PASS = 3, LONG = 260 };
  static const int32_t text[LONG] = {1, 2, 3};
  static const size_t depths[] = {3, LONG};
  hr_model *model = open_model(file);
  size_t room = hr_model_trained_context(model);
  uint32_t layers = model->loaded.transformer.description.layers;
  for (size_t i = 0; i < 2; i++) {
    hr_error err = {0};
    size_t depth = depths[i] + 1 <= room ? depths[i] : room - 1;
    hr_session *session = open_session(model, depth + 1, 0, 2);
    cr_assert(hr_session_eval(session, text, depth, HR_LOGITS_NONE, &err) == HR_OK, "%s",
              err.message);
    uint32_t before = hr_team_barriers(session->team);
    cr_assert(hr_session_eval(session, text, 1, HR_LOGITS_LAST, &err) == HR_OK, "%s", err.message);
    uint32_t waits = hr_team_barriers(session->team) - before;
    cr_expect(waits > 2 * layers && waits <= EACH_LAYER * layers + EACH_PASS,
              "%s: %u barriers in %u layers at depth %zu", file, waits, layers, depth);
    hr_session_free(session);
  }
  hr_model_free(model);
}

Test(families, few_barriers_for_a_token) {
  for (size_t i = 0; i < DECODERS; i++)
    check_barriers(path_of(FAMILIES "%s.safetensors", decoders[i].name).text);
  check_barriers(HEADROW_SOURCE_ROOT "/models/builtin.gguf");
  check_barriers(HEADROW_SOURCE_ROOT "/models/transformer-2017.gguf");
}

/* Phi-3 of 16 positions in its first training: a context within them turns by the
 * other factors. */
Test(families, short_factors_of_longrope) {
  static const char *const forms[] = {"safetensors", "gguf"};
  arrays expected = arrays_read(FAMILIES "expected.safetensors");
  const array *logits = arrays_need(&expected, "phi3.short_logits");
  int32_t *text = array_ids(arrays_need(&expected, "phi3.ids"));
  for (size_t i = 0; i < 2; i++) {
    path file = path_of(FAMILIES "phi3.%s", forms[i]);
    hr_model *model = open_model(file.text);
    hr_session *session = logits_of(model, text, 16, 16, 0, 1);
    close_to(hr_session_logits(session, 0), logits, file.text);
    hr_session_free(session);
    hr_model_free(model);
  }
  free(text);
  arrays_finish(&expected);
}

/* --- Encoders ---------------------------------------------------------------- */

typedef struct encoder {
  const char *file, *name;
  hr_pooling pooling;
  size_t classes; /* scores that the file has weights for */
} encoder;

static const encoder encoders[] = {
    {"bert.safetensors", "bert", HR_POOLING_NONE, 3},
    {"bert.gguf", "bert", HR_POOLING_CLS, 0},
    {"bert_old.safetensors", "bert_old", HR_POOLING_NONE, 0},
    {"roberta.safetensors", "roberta", HR_POOLING_NONE, 1},
    {"roberta.gguf", "roberta", HR_POOLING_CLS, 1},
    {"distilbert.safetensors", "distilbert", HR_POOLING_NONE, 2},
    {"distilbert.gguf", "distilbert", HR_POOLING_NONE, 0},
    {"nomic.safetensors", "nomic", HR_POOLING_MEAN, 0},
    {"nomic.gguf", "nomic", HR_POOLING_MEAN, 0},
    {"jina.safetensors", "jina", HR_POOLING_MEAN, 0},
    {"jina.gguf", "jina", HR_POOLING_MEAN, 0},
};

static void check_encoder(const encoder *e, const arrays *expected) {
  const array *ids = arrays_need(expected, path_of("%s.ids", e->name).text);
  const array *hidden = arrays_need(expected, path_of("%s.hidden", e->name).text);
  int32_t *text = array_ids(ids);
  int32_t *types = array_ids(arrays_need(expected, path_of("%s.types", e->name).text));
  path file = path_of(FAMILIES "%s", e->file);
  hr_model *model = open_model(file.text);
  cr_expect(!hr_model_has_logits(model), "%s", e->file);
  cr_expect(hr_model_pooling(model) == e->pooling, "%s: %d", e->file, hr_model_pooling(model));
  cr_expect(hr_model_classes(model) == e->classes, "%s", e->file);
  hr_session *session = encode(model, text, types, ids->count, 1);
  close_to(hr_session_hidden(session, 0, 0), hidden, e->file);
  if (e->classes) {
    close_to(hr_session_pooled(session, 0),
             arrays_need(expected, path_of("%s.pooled", e->name).text),
             e->file);
    const array *scores = arrays_need(expected, path_of("%s.scores", e->name).text);
    for (size_t i = 0; i < e->classes; i++) /* one score has no range */
      cr_expect_float_eq((double)hr_session_scores(session, 0)[i], scores->value[i], 1e-5);
  } else {
    cr_expect(!hr_session_scores(session, 0));
  }
  hr_session *again = encode(model, text, types, ids->count, 3);
  cr_expect(memcmp(hr_session_hidden(session, 0, 0), hr_session_hidden(again, 0, 0),
                   hidden->count * sizeof(float)) == 0);
  hr_session_free(again);
  hr_session_free(session);
  hr_model_free(model);
  free(text);
  free(types);
}

Test(families, encoders) {
  arrays expected = arrays_read(FAMILIES "expected.safetensors");
  for (size_t i = 0; i < sizeof encoders / sizeof *encoders; i++)
    check_encoder(&encoders[i], &expected);
  arrays_finish(&expected);
}

Test(families, an_encoder_gives_no_logits_and_knows_its_types) {
  hr_error err = {0};
  const int32_t ids[] = {1, 2, 3}, types[] = {0, 1, 2};
  hr_model *model = open_model(FAMILIES "bert.gguf");
  hr_session *session = open_session(model, 0, 0, 1);
  cr_expect(hr_session_eval(session, ids, 3, HR_LOGITS_LAST, &err) == HR_ERROR_USAGE);
  cr_expect(strstr(err.message, "no language-model head") || strstr(err.message, "without a"),
            "%s", err.message);
  cr_expect(hr_session_encode(session, &(hr_tokens){ids, types, 3}, 1, &err) == HR_ERROR_USAGE);
  cr_expect(strstr(err.message, "type 2 of token 2"), "%s", err.message);
  cr_expect(!hr_session_hidden(session, 0, 0));
  cr_expect(hr_session_encode(session, &(hr_tokens){ids, NULL, 3}, 1, &err) == HR_OK);
  cr_expect(hr_session_hidden(session, 0, 2) && !hr_session_hidden(session, 0, 3));
  cr_expect(hr_model_types(model) == 2);
  hr_session_free(session);
  hr_model_free(model);
}

/* --- Many texts at once -------------------------------------------------------- */

enum { TEXTS = 9 };

static bool same(const float *a, const float *b, size_t count) {
  return !a == !b && (!a || memcmp(a, b, count * sizeof *a) == 0);
}

static void check_batch(const char *file, hr_weights weights, size_t chunk, unsigned threads) {
  static const size_t length[TEXTS] = {3, 1, 12, 7, 12, 1, 2, 11, 5};
  hr_error err = {0};
  hr_model_options options;
  hr_model_options_init(&options);
  options.weights = weights;
  hr_model *model = hr_model_open(path_of(FAMILIES "%s", file).text, &options, &err);
  cr_assert(model, "%s", err.message);
  int32_t ids[TEXTS][12], types[TEXTS][12];
  hr_tokens texts[TEXTS];
  for (int i = 0; i < TEXTS; i++) {
    for (int k = 0; k < 12; k++) {
      ids[i][k] = (i * 5 + k * 7) % 13;
      types[i][k] = hr_model_types(model) > 1 && k > 2 && i % 2;
    }
    texts[i] = (hr_tokens){ids[i], i == 4 ? NULL : types[i], length[i]};
  }
  hr_session *all = open_session(model, 0, chunk, threads);
  cr_assert(hr_session_encode(all, texts, TEXTS, &err) == HR_OK, "%s: %s", file, err.message);
  size_t width = hr_model_width(model), classes = hr_model_classes(model);
  for (size_t i = 0; i < TEXTS; i++) {
    hr_session *one = encode(model, ids[i], texts[i].types, length[i], 1);
    cr_expect(same(hr_session_hidden(all, i, 0), hr_session_hidden(one, 0, 0), length[i] * width),
              "%s, weights %d, chunk %zu, %u threads: text %zu", file, (int)weights, chunk, threads,
              i);
    cr_expect(same(hr_session_pooled(all, i), hr_session_pooled(one, 0), width), "%s %zu", file, i);
    cr_expect(same(hr_session_scores(all, i), hr_session_scores(one, 0), classes), "%s", file);
    cr_expect(hr_session_hidden(all, i, length[i] - 1) && !hr_session_hidden(all, i, length[i]));
    hr_session_free(one);
  }
  cr_expect(!hr_session_hidden(all, TEXTS, 0) && !hr_session_pooled(all, TEXTS));
  hr_session_free(all);
  hr_model_free(model);
}

Test(families, texts_encoded_together_have_the_bits_of_each_alone) {
  static const char *const files[] = {"bert.gguf", "distilbert.gguf", "nomic.gguf", "jina.gguf",
                                      "qwen3.gguf", "bloom.gguf"};
  for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
    check_batch(files[i], HR_WEIGHTS_NATIVE, 0, 1);
    check_batch(files[i], HR_WEIGHTS_F16, 0, 3);
    check_batch(files[i], HR_WEIGHTS_NATIVE, 5, 2); /* decoders: the long ones in pieces */
  }
}

Test(families, an_embedding_is_the_pooled_rows) {
  hr_error err = {0};
  const int32_t ids[] = {3, 1, 4, 1, 5};
  const hr_tokens texts[] = {{ids, NULL, 2}, {ids, NULL, 5}};
  hr_model *model = open_model(FAMILIES "bert.gguf");
  hr_session *s = open_session(model, 0, 0, 1);
  float out[64];
  size_t width = hr_model_width(model);
  cr_assert(width <= 64);
  cr_expect(hr_session_embedding(s, 0, HR_POOLING_MEAN, true, out, &err) == HR_ERROR_USAGE);
  cr_assert(hr_session_encode(s, texts, 2, &err) == HR_OK);
  for (hr_pooling p = HR_POOLING_MEAN; p <= HR_POOLING_LAST; p++)
    for (int normalize = 0; normalize < 2; normalize++) {
      double expected[64], length = 0;
      for (size_t k = 0; k < width; k++) {
        const float *x = hr_session_hidden(s, 1, 0) + k;
        double sum = 0;
        for (size_t r = 0; r < 5; r++) sum += (double)x[r * width];
        expected[k] = (double)x[p == HR_POOLING_CLS ? 0 : 4 * width];
        if (p == HR_POOLING_MEAN) expected[k] = sum / 5;
        length += expected[k] * expected[k];
      }
      for (size_t k = 0; k < width && normalize; k++) expected[k] /= sqrt(length);
      cr_assert(hr_session_embedding(s, 1, p, normalize, out, &err) == HR_OK);
      cr_expect(distance_to(out, expected, width) < 1e-6, "pooling %d", (int)p);
    }
  cr_expect(hr_session_embedding(s, 1, HR_POOLING_NONE, true, out, &err) == HR_ERROR_USAGE);
  cr_expect(hr_session_embedding(s, 2, HR_POOLING_MEAN, true, out, &err) == HR_ERROR_USAGE);
  hr_session_free(s);
  hr_model_free(model);
}

/* Hidden states of a decoder are what its head reads. */
Test(families, hidden_states_of_a_decoder_in_pieces) {
  hr_error err = {0};
  int32_t ids[20];
  for (int i = 0; i < 20; i++) ids[i] = i * 7 % 13;
  hr_model *model = open_model(FAMILIES "qwen3.gguf");
  hr_session *whole = open_session(model, 0, 0, 1), *pieces = open_session(model, 0, 3, 2);
  const hr_tokens text = {ids, NULL, 20};
  cr_assert(hr_session_encode(whole, &text, 1, &err) == HR_OK, "%s", err.message);
  cr_assert(hr_session_encode(pieces, &text, 1, &err) == HR_OK, "%s", err.message);
  size_t width = hr_model_width(model);
  cr_assert(width == 16);
  cr_expect(memcmp(hr_session_hidden(whole, 0, 0), hr_session_hidden(pieces, 0, 0),
                   20 * width * sizeof(float)) == 0);
  cr_expect(!hr_session_pooled(whole, 0));
  hr_session_free(whole);
  hr_session_free(pieces);
  hr_model_free(model);
}

/* --- Folders with another config ----------------------------------------------- */

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
  unlink(path_of("%s/1_Pooling/config.json", folder->text).text);
  rmdir(path_of("%s/1_Pooling", folder->text).text);
  unlink(path_of("%s/model.safetensors", folder->text).text);
  unlink(path_of("%s/config.json", folder->text).text);
  unlink(path_of("%s/tokenizer.json", folder->text).text);
  unlink(path_of("%s/sentence_bert_config.json", folder->text).text);
  unlink(path_of("%s/tokenizer_config.json", folder->text).text);
  rmdir(folder->text);
}

/* Sets "outer.inner" or "key". */
static void set_member(json_t *config, const char *key, json_t *value) {
  const char *dot = strchr(key, '.');
  if (!dot) {
    json_object_set_new(config, key, value);
    return;
  }
  path outer = path_of("%.*s", (int)(dot - key), key);
  if (!json_object_get(config, outer.text)) json_object_set_new(config, outer.text, json_object());
  json_object_set_new(json_object_get(config, outer.text), dot + 1, value);
}

/* What a config with one member changed is refused with. */
static void expect_refused(const char *name, const char *key, const char *value, const char *part) {
  hr_error err = {0};
  json_t *config = json_read(path_of(FAMILIES "%s_config.json", name).text);
  json_t *json = json_loads(value, JSON_DECODE_ANY, NULL);
  cr_assert(json, "%s", value);
  set_member(config, key, json);
  path folder = make_folder(path_of(FAMILIES "%s.safetensors", name).text, config);
  hr_model *model = hr_model_open(folder.text, NULL, &err);
  cr_expect(!model, "%s with %s %s was not refused", name, key, value);
  cr_expect(err.status == HR_ERROR_FILE, "%s %s: status %d", name, key, err.status);
  cr_expect(strstr(err.message, part), "'%s' is not in: %s", part, err.message);
  hr_model_free(model);
  remove_folder(&folder);
  json_decref(config);
}

Test(families, what_a_config_may_not_ask_for) {
  static const struct {
    const char *name, *key, *value, *part;
  } cases[] = {
      /* features that we lack, by name and value */
      {"opt", "do_layer_norm_before", "false", "'do_layer_norm_before' is false"},
      {"opt", "word_embed_proj_dim", "8", "'word_embed_proj_dim' is 8"},
      {"opt", "_remove_final_layer_norm", "true", "'_remove_final_layer_norm' is true"},
      {"opt", "activation_function", "\"mish\"", "is 'mish', expected one of"},
      {"mpt", "attn_config.clip_qkv", "8", "'attn_config.clip_qkv' is 8"},
      {"mpt", "attn_config.qk_ln", "true", "'attn_config.qk_ln' is true"},
      {"mpt", "attn_config.alibi", "false", "'attn_config.alibi' is false"},
      {"mpt", "attn_config.alibi_bias_max", "0",
       "'attn_config.alibi_bias_max' is 0, expected more than 0"},
      {"mpt", "attn_config.attn_type", "\"multiquery_attention\"", "'multiquery_attention'"},
      {"falcon", "alibi", "true", "'alibi' is true"},
      {"bloom", "apply_residual_connection_post_layernorm", "true", "is true"},
      {"llama3", "num_local_experts", "8", "'num_local_experts' is 8"},
      {"llama3", "rope_scaling.rope_type", "\"dynamic\"", "'dynamic', expected one of"},
      {"llama3", "rope_scaling.factor", "0.5", "'rope_scaling.factor' is 0.5"},
      {"llama3", "rope_scaling.high_freq_factor", "1", "'rope_scaling.high_freq_factor' is 1"},
      {"qwen2", "rope_scaling.mscale_all_dim", "1", "'rope_scaling.mscale_all_dim' is 1"},
      {"qwen2", "rope_scaling.truncate", "false", "'rope_scaling.truncate' is false"},
      {"phi3", "rope_scaling.long_factor", "[1]", "'rope_scaling.long_factor' has 1 elements"},
      {"phi3", "rope_scaling.long_factor", "[1, 0]", 
       "element 1 of 'rope_scaling.long_factor' is 0"},
      {"bert", "position_embedding_type", "\"relative_key\"",
       "is 'relative_key', expected 'absolute'"},
      {"jina", "feed_forward_type", "\"reglu\"", "is 'reglu', expected 'geglu'"},
      {"nomic", "moe_every_n_layers", "2", "'moe_every_n_layers' is 2"},
      /* contradictions */
      {"qwen2_yarn", "layer_types", "[\"full_attention\", \"full_attention\"]",
       "'full_attention' for layer 1, expected 'sliding_attention'"},
      {"qwen2_yarn", "layer_types", "[\"full_attention\"]", "'layer_types' has 1 elements"},
      {"starcoder2", "tie_word_embeddings", "false",
       "'lm_head.weight' is missing, expected it as key 'tie_word_embeddings' is false"},
      {"llama3", "num_key_value_heads", "3", "4 query heads and 3 key/value heads"},
      {"llama3", "num_attention_heads", "8", "expected 48 x 16"},
      {"llama3", "vocab_size", "12", "rows for 13 tokens, expected 12"},
      {"llama3", "vocab_size", "14", "rows for 13 tokens, expected 14"},
      {"llama3", "num_hidden_layers", "3", "layers.2."},
      {"llama3", "num_hidden_layers", "1", "layers.1."},
      {"llama3", "intermediate_size", "25", "expected 25 x 16"},
      {"falcon", "new_decoder_architecture", "true", "query_key_value.weight' is 24 x 16"},
      {"gpt2", "n_positions", "33", "expected 33 x 16"},
      {"roberta", "pad_token_id", "33", "expected more than pad_token_id + 1"},
      {"gptneox", "rotary_pct", "0.4", "an even number"},
      {"llama3", "model_type", "\"llama4\"", "architecture 'llama4' is not known"},
      {"llama3", "attention_bias", "true", "layers.0.self_attn.q_proj.bias' is missing"},
      {"llama3", "mlp_bias", "true", "layers.0.mlp.gate_proj.bias' is missing"},
      /* what a key says of tensors, and what is there */
      {"bert", "type_vocab_size", "3", "'type_vocab_size' is 3, but tensor 'embeddings.token_type_"
       "embeddings.weight' has 2 rows"},
      {"roberta", "type_vocab_size", "2", "'type_vocab_size' is 2, but tensor"},
      {"nomic", "type_vocab_size", "0", "token_type_embeddings.weight' is there"},
      {"distilbert", "model_type", "\"bert\"", "missing"},
      {"stablelm", "use_qkv_bias", "false",
       "'use_qkv_bias' is false, but tensor 'model.layers.0.self_attn.q_proj.bias' is there"},
      {"stablelm", "use_parallel_residual", "true",
       "'use_parallel_residual' is true, but tensor "
       "'model.layers.0.post_attention_layernorm.weight' is there"},
      {"stablelm", "qk_layernorm", "true", "layers.0.self_attn.q_norm.weight' is missing"},
      {"nomic", "qkv_proj_bias", "true", "layers.0.attn.Wqkv.bias' is missing"},
      {"nomic", "mlp_fc1_bias", "true", "layers.0.mlp.fc12.bias' is missing"},
      {"nomic", "mlp_fc2_bias", "true", "layers.0.mlp.fc2.bias' is missing"},
      {"mpt", "no_bias", "false",
       "'no_bias' is false, but tensor 'transformer.norm_f.bias' is missing"},
      {"opt", "enable_bias", "false", "layers.0.self_attn.q_proj.bias' is there"},
      {"starcoder2", "use_bias", "false", "layers.0.self_attn.q_proj.bias' is there"},
      {"gptneox", "attention_bias", "false", "query_key_value.bias' is there"},
      {"falcon", "bias", "true", "'bias' is true, but tensor"},
      {"jina", "use_qk_norm", "true", "'use_qk_norm' is true, a feature that is not known"},
      {"mpt", "norm_type", "\"rmsnorm\"", "'norm_type' asks for an RMS norm"},
      {"starcoder2", "norm_type", "\"rms_norm\"", "'norm_type' asks for an RMS norm"},
      {"starcoder2", "norm_type", "\"batch_norm\"", "'batch_norm', expected one of"},
      {"nomic", "rotary_emb_scale_base", "512", "'rotary_emb_scale_base' is 512"},
      /* heads for other tasks than those of whole texts */
      {"bert", "architectures", "[\"BertForTokenClassification\"]",
       "'architectures' is 'BertForTokenClassification', expected"},
      {"roberta", "architectures", "[\"RobertaForMultipleChoice\"]", "'RobertaForMultipleChoice'"},
      {"distilbert", "architectures", "[\"DistilBertForQuestionAnswering\"]",
       "'DistilBertForQuestionAnswering'"},
      {"bert", "architectures", "\"BertModel\"", "'architectures' has type string"},
      {"bert", "num_labels", "4", "gives 3 scores, expected 4: key 'num_labels'"},
      {"bert", "id2label", "{\"0\": \"a\", \"1\": \"b\"}",
       "gives 3 scores, expected 2: the labels of key 'id2label'"},
      {"bert", "id2label", "{\"0\": \"a\", \"1\": \"b\", \"3\": \"c\"}", "'id2label.2' is missing"},
      {"bert", "id2label", "{\"0\": \"a\", \"1\": 1, \"2\": \"c\"}",
       "'id2label.1' has type integer"},
      {"bert", "id2label", "[\"a\", \"b\", \"c\"]",
       "'id2label' has type array, expected an object"},
      {"bert", "is_decoder", "true", "'is_decoder' is true"},
      {"gemma2", "use_bidirectional_attention", "true", "'use_bidirectional_attention' is true"},
      {"nomic", "causal", "true", "'causal' is true"},
      {"nomic", "use_rms_norm", "true", "'use_rms_norm' is true"},
      {"nomic", "parallel_block", "true", "'parallel_block' is true"},
      {"llama3", "rope_scaling.type", "\"linear\"", "ask for two scalings"},
      {"qwen3", "quantization_config.quant_method", "\"gptq\"", "is 'gptq'"},
      {"qwen3", "quantization_config.bits", "4", "'quantization_config.quant_method' is missing"},
      /* another type or name is not the same as nothing */
      {"llama3", "rope_scaling", "\"linear\"",
       "'rope_scaling' has type string, expected an object"},
      {"llama3", "rope_scaling", "[8]", "'rope_scaling' has type array, expected an object"},
      {"llama3", "rope_scaling.faktor", "8", "'rope_scaling' has a member 'faktor'"},
      {"mpt", "attn_config", "7", "'attn_config' has type integer, expected an object"},
      {"qwen3", "quantization_config", "true", "'quantization_config' has type bool"},
      /* the key is named that the file has, or that it could have */
      {"stablelm", "partial_rotary_factor", "0.25",
       "'partial_rotary_factor' is 0.25, which is 1 of a head's 4 columns, expected an even"},
      {"stablelm", "partial_rotary_factor", "null",
       "'partial_rotary_factor' is missing and stands for 0.25, which is 1 of a head's 4 columns"},
      {"gptj", "rotary_dim", "3", "'rotary_dim' is 3, expected an even number up to 8"},
      {"falcon", "parallel_attn", "false",
       "key 'parallel_attn' is false, but tensor 'transformer.h.0.post_attention_layernorm.weight' "
       "is missing"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    expect_refused(cases[i].name, cases[i].key, cases[i].value, cases[i].part);
}

/* The header of a file as JSON; in stands at its data then. */
static json_t *read_header(FILE *in) {
  uint64_t length;
  cr_assert(in && fread(&length, sizeof length, 1, in) == 1);
  char *header = calloc(length + 1, 1);
  cr_assert(header && fread(header, length, 1, in) == 1);
  json_t *tensors = json_loads(header, 0, NULL);
  cr_assert(tensors);
  free(header);
  return tensors;
}

/* The header, the data that in stands at, and so many zeros; closes in. */
static void write_file(const char *to, const json_t *tensors, FILE *in, size_t zeros) {
  FILE *out = fopen(to, "wb");
  char *header = json_dumps(tensors, JSON_COMPACT), buffer[4096];
  uint64_t length = strlen(header);
  cr_assert(out && fwrite(&length, sizeof length, 1, out) == 1 &&
            fwrite(header, length, 1, out) == 1);
  for (size_t n; (n = fread(buffer, 1, sizeof buffer, in)) > 0;) fwrite(buffer, 1, n, out);
  while (zeros--) fputc(0, out);
  cr_assert(fclose(in) == 0 && fclose(out) == 0);
  free(header);
}

/* The file under another name for one of its tensors. */
static void write_renamed(const char *from, const char *tensor, const char *name, const char *to) {
  FILE *in = fopen(from, "rb");
  json_t *tensors = read_header(in);
  json_object_set(tensors, name, json_object_get(tensors, tensor));
  cr_assert(json_object_del(tensors, tensor) == 0, "%s", tensor);
  write_file(to, tensors, in, 0);
  json_decref(tensors);
}

/* The file without a tensor: under a name that no model reads. */
static void write_without(const char *from, const char *tensor, const char *to) {
  write_renamed(from, tensor, "spare.attn.masked_bias", to);
}

/* The file with a tensor more, of 16 x 16 zeros. */
static void write_with(const char *from, const char *name, const char *type, size_t bits,
                       const char *to) {
  FILE *in = fopen(from, "rb");
  json_t *tensors = read_header(in), *value;
  const char *other;
  json_int_t end = 0, bytes = (json_int_t)(bits / 8 * 256);
  json_object_foreach(tensors, other, value) {
    json_int_t one = json_integer_value(json_array_get(json_object_get(value, "data_offsets"), 1));
    if (one > end) end = one;
  }
  json_object_set_new(tensors, name,
                      json_pack("{s:s, s:[i, i], s:[I, I]}", "dtype", type, "shape", 16, 16,
                                "data_offsets", end, end + bytes));
  write_file(to, tensors, in, (size_t)bytes);
  json_decref(tensors);
}

/* Names of the tensors of a file. */
static json_t *tensors_of(const char *file) {
  FILE *in = fopen(file, "rb");
  json_t *tensors = read_header(in);
  fclose(in);
  json_object_del(tensors, "__metadata__");
  return tensors;
}

/* A model is whole without these, only another one; without a pooler only where no
 * classifier wants it. */
static bool may_be_missing(const char *family, const char *tensor) {
  if (strcmp(tensor, "classifier.weight") == 0) return true;
  if (hr_ends_with(tensor, "lm_head.weight")) return true;
  if (strcmp(family, "jina") == 0 && hr_ends_with(tensor, "pooler.dense.weight")) return true;
  /* Tied, and stored as the head too. */
  if (strcmp(family, "qwen3") == 0 && strstr(tensor, "embed_tokens")) return true;
  return strcmp(family, "stablelm") == 0 && strstr(tensor, "post_attention_layernorm");
}

/* Whether the sentence holds the whole name. Where a tensor may have several, the first
 * stands for all. */
static bool is_named(const char *tensor, const char *sentence) {
  static const char *const others[][2] = {{"mlp.layernorm", "output.LayerNorm"},
                                          {"mlp.wo", "output.dense"}};
  if (strstr(sentence, path_of("'%s'", tensor).text)) return true;
  for (size_t i = 0; i < sizeof others / sizeof *others; i++)
    if (strstr(tensor, others[i][0]) && strstr(sentence, others[i][1])) return true;
  return false;
}

static void check_each_tensor_is_missed(const char *family) {
  hr_error err = {0};
  path weights = path_of(FAMILIES "%s.safetensors", family);
  json_t *config = json_read(path_of(FAMILIES "%s_config.json", family).text);
  json_t *tensors = tensors_of(weights.text), *value;
  path folder = make_folder(weights.text, config);
  path changed = path_of("%s/model.safetensors", folder.text);
  const char *tensor;
  json_object_foreach(tensors, tensor, value) {
    if (may_be_missing(family, tensor)) continue;
    unlink(changed.text);
    write_without(weights.text, tensor, changed.text);
    hr_model *model = hr_model_open(folder.text, NULL, &err);
    cr_expect(!model, "%s runs without %s", family, tensor);
    cr_expect(model || is_named(tensor, err.message), "%s: %s", tensor, err.message);
    hr_model_free(model);
  }
  remove_folder(&folder);
  json_decref(config);
  json_decref(tensors);
}

Test(families, no_tensor_is_missing_unseen) {
  static const char *const names[] = {"llama3", "mistral", "qwen2",   "qwen3",      "gemma",
                                      "gemma2", "phi",     "phi3",    "gpt2",       "gptneox",
                                      "gptj",   "falcon",  "opt",     "bloom",      "mpt",
                                      "stablelm", "starcoder2", "bert", "roberta", "distilbert",
                                      "nomic",  "jina"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) check_each_tensor_is_missed(names[i]);
}

/* What a config says without some of its keys, or with null in their place. */
static hr_model *open_without(const char *name, const char *const *keys, bool null, hr_error *err) {
  json_t *config = json_read(path_of(FAMILIES "%s_config.json", name).text);
  for (; *keys; keys++)
    if (null)
      json_object_set_new(config, *keys, json_null());
    else
      json_object_del(config, *keys);
  path folder = make_folder(path_of(FAMILIES "%s.safetensors", name).text, config);
  hr_model *model = hr_model_open(folder.text, NULL, err);
  remove_folder(&folder);
  json_decref(config);
  return model;
}

/* The defaults are those of transformers' Gemma2Config, MistralConfig and GPTJConfig; null
 * means none there. */
Test(families, a_key_that_is_missing_is_not_null) {
  static const char *const gemma2[] = {"attn_logit_softcapping", "final_logit_softcapping",
                                       "sliding_window", "query_pre_attn_scalar", NULL};
  static const char *const window[] = {"sliding_window", NULL};
  static const char *const rotary[] = {"rotary_dim", NULL};
  hr_error err = {0};
  for (int null = 0; null < 2; null++) {
    hr_model *model = open_without("gemma2", gemma2, null, &err);
    cr_assert(model, "%s", err.message);
    const hr_description *d = &model->loaded.transformer.description;
    cr_expect_eq(d->window, null ? 0 : 4096);
    cr_expect(d->score_cap == (null ? 0 : 50) && d->logit_cap == (null ? 0 : 30));
    cr_expect_float_eq(d->score_scale, 1.0f / 16, 1e-9f);
    hr_model_free(model);
    model = open_without("mistral", window, null, &err);
    cr_assert(model, "%s", err.message);
    cr_expect_eq(model->loaded.transformer.description.window, null ? 0 : 4096);
    hr_model_free(model);
    model = open_without("gptj", rotary, null, &err); /* its heads are 8 wide */
    cr_expect(!model == !null, "%s", err.message);
    if (model) cr_expect_eq(model->loaded.transformer.description.rope_width, 8);
    cr_expect(null || strstr(err.message, "key 'rotary_dim' is missing and stands for 64, expected "
                                          "an even number up to 8"),
              "%s", err.message);
    hr_model_free(model);
  }
}

/* A family's files with their tensors changed. */
typedef struct changed {
  json_t *config;
  path folder, from, weights; /* the file to write from, and where to */
} changed;

static changed change(const char *family) {
  changed c = {.config = json_read(path_of(FAMILIES "%s_config.json", family).text),
               .from = path_of(FAMILIES "%s.safetensors", family)};
  c.folder = make_folder(c.from.text, c.config);
  c.weights = path_of("%s/model.safetensors", c.folder.text);
  unlink(c.weights.text);
  return c;
}

/* NULL: it opens; else what it is refused with. */
static void expect_opening(changed *c, const char *part) {
  hr_error err = {0};
  cr_assert(json_dump_file(c->config, path_of("%s/config.json", c->folder.text).text, 0) == 0);
  hr_model *model = hr_model_open(c->folder.text, NULL, &err);
  cr_expect(!model == (part != NULL), "%s: %s", c->from.text, err.message);
  cr_expect(!part || strstr(err.message, part), "'%s' is not in: %s", part, err.message);
  hr_model_free(model);
  remove_folder(&c->folder);
  json_decref(c->config);
}

Test(families, what_keys_and_tensors_agree_on_is_run) {
  static const struct {
    const char *family, *key, *value, *tensor; /* the tensor goes; NULL: none does */
  } cases[] = {
      {"nomic", "type_vocab_size", "0", "embeddings.token_type_embeddings.weight"},
      {"nomic", "qkv_proj_bias", "false", NULL},
      {"nomic", "mlp_fc1_bias", "false", NULL},
      {"jina", "use_qk_norm", "false", NULL},
      {"stablelm", "qk_layernorm", "false", NULL},
      {"starcoder2", "use_bias", "true", NULL},
      {"opt", "enable_bias", "true", NULL},
      {"mpt", "norm_type", "\"layernorm\"", NULL},
      {"llama3", "attention_bias", "false", NULL},
      {"bert", "architectures", "[\"BertForSequenceClassification\"]", NULL},
      {"gpt2", "architectures", "[\"GPT2LMHeadModel\"]", NULL},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    changed c = change(cases[i].family);
    set_member(c.config, cases[i].key, json_loads(cases[i].value, JSON_DECODE_ANY, NULL));
    if (cases[i].tensor)
      write_without(c.from.text, cases[i].tensor, c.weights.text);
    else
      cr_assert(symlink(c.from.text, c.weights.text) == 0);
    expect_opening(&c, NULL);
  }
}

/* A decoder without a head, which says so. */
static changed change_to_bare(void) {
  changed c = change("llama3");
  set_member(c.config, "architectures", json_pack("[s]", "LlamaModel"));
  write_without(c.from.text, "lm_head.weight", c.weights.text);
  cr_assert(json_dump_file(c.config, path_of("%s/config.json", c.folder.text).text, 0) == 0);
  return c;
}

/* Where config.json does not say it, the library decides whether the head is the embedding. */
Test(families, a_head_is_missed_where_it_is_not_the_embedding) {
  static const char *const own[] = {"llama3", "qwen2", "phi3", "gptneox", "stablelm"};
  for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
    const char *head = i == 3 ? "embed_out.weight" : "lm_head.weight";
    changed c = change(own[i]);
    json_t *tensors = tensors_of(c.from.text);
    json_object_del(c.config, "tie_word_embeddings");
    if (json_object_get(tensors, head))
      write_without(c.from.text, head, c.weights.text);
    else
      cr_assert(symlink(c.from.text, c.weights.text) == 0);
    json_decref(tensors);
    expect_opening(&c, path_of("'%s' is missing", head).text);
  }
  /* A model of hidden states has none, and says so. */
  changed bare = change_to_bare();
  hr_model *model = open_model(bare.folder.text);
  cr_expect(!hr_model_has_logits(model));
  hr_model_free(model);
  setenv("MODEL", bare.folder.text, 1);
  result r = shell("F=$ROOT/tests/fixtures/families/llama3.safetensors;"
                   " $H embed \"$MODEL\" --ids 1,5,2 --pooling last; $H embed $F --ids 1,5,2 "
                   "--pooling last");
  cr_assert(r.status == 0 && lines_of(r.out) == 2, "%s%s", r.out, r.err);
  cr_expect_arr_eq(r.out, r.out + r.out_bytes / 2, r.out_bytes / 2, "%s", r.out);
  finish(&r);
  expect_opening(&bare, NULL);
  static const char *const tied[] = {"gemma", "gemma2", "gpt2",      "falcon",
                                     "opt",   "bloom",  "starcoder2", "mpt"};
  for (size_t i = 0; i < sizeof tied / sizeof *tied; i++) {
    changed c = change(tied[i]);
    json_object_del(c.config, "tie_word_embeddings");
    cr_assert(symlink(c.from.text, c.weights.text) == 0);
    expect_opening(&c, NULL);
  }
}

/* Of a text that takes several passes, the first row is in the first of them. */
Test(families, the_pooled_row_of_a_text_in_pieces) {
  enum { COUNT = 4, MOST = 20 };
  static const size_t length[COUNT] = {2, MOST, 7, 3};
  hr_error err = {0};
  int32_t ids[MOST];
  hr_tokens texts[COUNT];
  for (int i = 0; i < MOST; i++) ids[i] = i * 7 % 13;
  for (size_t i = 0; i < COUNT; i++) texts[i] = (hr_tokens){ids, NULL, length[i]};
  changed bare = change_to_bare();
  hr_model *model = open_model(bare.folder.text);
  hr_session *pieces = open_session(model, 0, 3, 2);
  cr_assert(hr_session_encode(pieces, texts, COUNT, &err) == HR_OK, "%s", err.message);
  size_t width = hr_model_width(model);
  for (size_t i = 0; i < COUNT; i++) {
    const float *pooled = hr_session_pooled(pieces, i);
    hr_session *whole = encode(model, ids, NULL, length[i], 1);
    cr_assert(pooled);
    cr_expect(same(pooled, hr_session_hidden(pieces, i, 0), width), "text %zu", i);
    cr_expect(same(pooled, hr_session_pooled(whole, 0), width), "text %zu", i);
    hr_session_free(whole);
  }
  hr_session_free(pieces);
  hr_model_free(model);
  expect_opening(&bare, NULL);
}

/* DistilBERT without its classifier, with one number in all places of its pooler's matrix. */
static void write_pooler(const char *from, float value, const char *to) {
  static const char *const spare[][2] = {{"classifier.weight", "spare.attn.masked_bias"},
                                         {"classifier.bias", "spare.attn.bias"}};
  FILE *file = fopen(from, "rb");
  json_t *tensors = read_header(file);
  json_int_t begin, end;
  for (size_t i = 0; i < 2; i++) {
    json_object_set(tensors, spare[i][1], json_object_get(tensors, spare[i][0]));
    cr_assert(json_object_del(tensors, spare[i][0]) == 0);
  }
  cr_assert(json_unpack(tensors, "{s:{s:[I, I]}}", "pre_classifier.weight", "data_offsets", &begin,
                        &end) == 0);
  write_file(to, tensors, file, 0);
  json_decref(tensors);
  file = fopen(to, "r+b");
  json_decref(read_header(file));
  cr_assert(fseek(file, (long)begin, SEEK_CUR) == 0);
  for (; begin < end; begin += (json_int_t)sizeof value)
    cr_assert(fwrite(&value, sizeof value, 1, file) == 1);
  cr_assert(fclose(file) == 0);
}

/* Hidden states are finite, and what the pooler makes of them is not. */
Test(families, a_pooled_row_that_is_not_finite_is_an_error) {
  hr_error err = {0};
  const int32_t ids[] = {1, 2, 3};
  changed c = change("distilbert");
  write_pooler(c.from.text, -3e38f, c.weights.text);
  cr_assert(json_dump_file(c.config, path_of("%s/config.json", c.folder.text).text, 0) == 0);
  hr_model *model = open_model(c.folder.text);
  hr_session *session = open_session(model, 0, 0, 1);
  cr_expect(hr_session_encode(session, &(hr_tokens){ids, NULL, 3}, 1, &err) == HR_ERROR_NUMERIC);
  cr_expect(strstr(err.message, "pooled rows 0 is infinite"), "%s", err.message);
  cr_expect(!hr_session_pooled(session, 0));
  hr_session_free(session);
  hr_model_free(model);
  expect_opening(&c, NULL);
}

/* A Llama without layers or prefixes, and a great many tensors that no model knows. */
static void write_crowd(const char *from, const char *to, size_t count) {
  static const char *const kept[][2] = {{"model.embed_tokens.weight", "embed_tokens.weight"},
                                        {"model.norm.weight", "norm.weight"},
                                        {"lm_head.weight", "lm_head.weight"}};
  FILE *in = fopen(from, "rb");
  json_t *all = read_header(in), *few = json_object();
  for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
    cr_assert(json_object_set(few, kept[i][1], json_object_get(all, kept[i][0])) == 0);
  struct stat st;
  cr_assert(fstat(fileno(in), &st) == 0);
  json_int_t end = (json_int_t)st.st_size - (json_int_t)ftell(in);
  for (size_t i = 0; i < count; i++, end += 4)
    json_object_set_new(few, path_of("mx%zu", i).text,
                        json_pack("{s:s, s:[i], s:[I, I]}", "dtype", "F32", "shape", 1,
                                  "data_offsets", end, end + 4));
  write_file(to, few, in, count * 4);
  json_decref(all);
  json_decref(few);
}

/* Seconds of this process to refuse it. */
static double time_refusal(size_t tensors) {
  hr_error err = {0};
  changed c = change("llama3");
  set_member(c.config, "num_hidden_layers", json_integer(4096));
  write_crowd(c.from.text, c.weights.text, tensors);
  cr_assert(json_dump_file(c.config, path_of("%s/config.json", c.folder.text).text, 0) == 0);
  clock_t begin = clock();
  cr_expect(!hr_model_open(c.folder.text, NULL, &err));
  double seconds = (double)(clock() - begin) / CLOCKS_PER_SEC;
  expect_opening(&c, "'layers.0.input_layernorm.weight' is missing");
  return seconds;
}

/* What is not there is looked for in each of the layers: at a price that does not grow with the
 * number of tensors. */
Test(families, a_crowd_of_tensors_is_refused_soon) {
  double few = time_refusal(100), many = time_refusal(20000);
  cr_expect(many < 4 * few + 2, "%g s against %g s", many, few);
}

/* RoBERTa's classifier has a matrix of its own before its scores: that of the model beside it,
 * which only the vector of a text would need, is not read, and info says so. */
Test(families, a_classifier_reads_its_own_pooler) {
  changed c = change("roberta");
  write_with(c.from.text, "roberta.pooler.dense.weight", "F32", 32, c.weights.text);
  setenv("MODEL", c.folder.text, 1);
  result r = shell("$H info \"$MODEL\"; $H rerank \"$MODEL\" --ids 1,5,2");
  result s = shell("F=$ROOT/tests/fixtures/families; mkdir $D/m;"
                   " cp $F/roberta.safetensors $D/m/model.safetensors;"
                   " cp $F/roberta_config.json $D/m/config.json; $H rerank $D/m --ids 1,5,2");
  cr_expect(strstr(r.out, "1 tensor, of other tasks: roberta.pooler.dense.weight"), "%s%s", r.out,
            r.err);
  cr_expect(*s.out && hr_ends_with(r.out, s.out), "%s %s", r.out, s.out);
  finish(&r);
  finish(&s);
  expect_opening(&c, NULL);
  c = change("roberta");
  write_renamed(c.from.text, "classifier.dense.bias", "pooler.dense.bias", c.weights.text);
  expect_opening(&c, "'classifier.dense.bias' is missing");
  c = change("roberta");
  write_renamed(c.from.text, "classifier.dense.weight", "pooler.dense.weight", c.weights.text);
  expect_opening(&c, "'classifier.dense.weight' is missing");
}

/* A type that can't be read does not make a tensor one that may be left out. */
Test(families, tensors_of_any_type_must_be_known) {
  static const struct {
    const char *family, *name, *type, *part;
    size_t bits;
  } cases[] = {
      {"llama3", "model.layers.0.extra.weight", "F32", "'model.layers.0.extra.weight' is not", 32},
      {"llama3", "model.layers.0.extra.weight", "I64", "extra.weight' (I64) is not known", 64},
      {"llama3", "model.layers.0.self_attn.q_proj.weight_scale", "F8_E4M3", "(F8_E4M3)", 8},
      {"llama3", "model.layers.0.self_attn.q_proj.bias", "F64", "has type F64", 64},
      {"bert", "embeddings.position_ids", "I64", NULL, 64},
      {"bert", "bert.embeddings.position_ids", "I64", NULL, 64},
      {"bert", "cls.predictions.counts", "I32", NULL, 32},
      {"gpt2", "h.0.attn.bias", "BOOL", NULL, 8},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    changed c = change(cases[i].family);
    write_with(c.from.text, cases[i].name, cases[i].type, cases[i].bits, c.weights.text);
    expect_opening(&c, cases[i].part);
  }
}

/* The first row's logits hold what comes after it only where the mask is full. */
Test(families, a_decoder_may_say_that_it_is_not_causal) {
  static const int32_t texts[2][3] = {{1, 2, 3}, {1, 2, 4}};
  for (int causal = 0; causal < 2; causal++) {
    json_t *config = json_read(FAMILIES "llama3_config.json");
    json_object_set_new(config, "is_causal", json_boolean(causal));
    path folder = make_folder(FAMILIES "llama3.safetensors", config);
    hr_model *model = open_model(folder.text);
    hr_session *a = logits_of(model, texts[0], 3, 0, 0, 1);
    hr_session *b = logits_of(model, texts[1], 3, 0, 0, 1);
    bool same = memcmp(hr_session_logits(a, 0), hr_session_logits(b, 0),
                       hr_model_vocab_size(model) * sizeof(float)) == 0;
    cr_expect(same == (causal == 1), "is_causal %d", causal);
    hr_session_free(a);
    hr_session_free(b);
    hr_model_free(model);
    remove_folder(&folder);
    json_decref(config);
  }
}

Test(families, sentence_transformers_name_the_pooling) {
  static const struct {
    const char *text;
    hr_pooling pooling;
  } cases[] = {{"{\"pooling_mode_mean_tokens\": true, \"pooling_mode_cls_token\": false}",
                HR_POOLING_MEAN},
               {"{\"pooling_mode_cls_token\": true}", HR_POOLING_CLS},
               {"{\"pooling_mode_lasttoken\": true}", HR_POOLING_LAST}};
  json_t *config = json_read(FAMILIES "bert_config.json");
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    path folder = make_folder(FAMILIES "bert.safetensors", config);
    cr_assert(mkdir(path_of("%s/1_Pooling", folder.text).text, 0700) == 0);
    json_t *pooling = json_loads(cases[i].text, 0, NULL);
    path file = path_of("%s/1_Pooling/config.json", folder.text);
    cr_assert(json_dump_file(pooling, file.text, 0) == 0);
    hr_model *model = open_model(folder.text);
    cr_expect(hr_model_pooling(model) == cases[i].pooling);
    hr_model_free(model);
    json_decref(pooling);
    remove_folder(&folder);
  }
  json_decref(config);
}

/* Writes a file of one key into a folder. */
static void write_key(const path *folder, const char *name, const char *key, json_t *value) {
  json_t *object = json_pack("{s:o}", key, value);
  cr_assert(object && json_dump_file(object, path_of("%s/%s", folder->text, name).text, 0) == 0);
  json_decref(object);
}

/* The length of a text is sentence-transformers' own, or the tokenizer's where that is one. */
Test(families, files_may_say_how_long_a_text_is) {
  static const struct {
    json_int_t own;
    double tokenizer;
    size_t limit;
  } cases[] = {{5, 0, 5}, {5, 9, 5}, {0, 9, 9}, {0, 1e30, 0}, {40, 9, 0}, {0, 32, 0}, {0, 0.5, 0}};
  json_t *config = json_read(FAMILIES "bert_config.json");
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    path folder = make_folder(FAMILIES "bert.safetensors", config);
    if (cases[i].own)
      write_key(&folder, "sentence_bert_config.json", "max_seq_length",
                json_integer(cases[i].own));
    if (cases[i].tokenizer > 0)
      write_key(&folder, "tokenizer_config.json", "model_max_length",
                json_real(cases[i].tokenizer));
    hr_model *model = open_model(folder.text);
    cr_expect_eq(hr_model_text_limit(model), cases[i].limit, "case %zu", i);
    hr_model_free(model);
    remove_folder(&folder);
  }
  path folder = make_folder(FAMILIES "bert.safetensors", config);
  hr_error err = {0};
  write_key(&folder, "sentence_bert_config.json", "max_seq_length", json_integer(0));
  cr_expect_null(hr_model_open(folder.text, NULL, &err));
  cr_expect(strstr(err.message, "'sentence_bert_config.max_seq_length' is 0"), "%s", err.message);
  remove_folder(&folder);
  json_decref(config);
}

/* --- Checkpoints that are not part of the project -------------------------------- */

static const char *data_folder(void) {
  const char *folder = getenv("HEADROW_TEST_DATA");
  if (folder && *folder) return folder;
  fprintf(stderr, "not run: HEADROW_TEST_DATA is not set\n");
  return NULL;
}

typedef struct checkpoint {
  hr_model *model;
  json_t *golden;
} checkpoint;

static checkpoint open_checkpoint(const char *data, const char *family, const char *kind) {
  checkpoint c;
  c.golden = json_read(path_of("%s/fixtures/tiny_%s_%s.json", data, family, kind).text);
  c.model = open_model(path_of("%s/fixtures/tiny_%s.safetensors", data, family).text);
  return c;
}

static void close_checkpoint(checkpoint *c) {
  hr_model_free(c->model);
  json_decref(c->golden);
}

static array member(const checkpoint *c, const char *name) {
  return array_from_json(json_object_get(c->golden, name));
}

static int32_t *member_ids(const checkpoint *c, const char *name, size_t count) {
  array a = member(c, name);
  cr_assert(a.count == count, "%s has %zu", name, a.count);
  int32_t *ids = array_ids(&a);
  array_finish(&a);
  return ids;
}

/* Three texts of one length: hidden states of every row, or scores. */
static void check_texts(const char *data, const char *family, const char *kind, const char *what,
                        const char *pooled) {
  checkpoint c = open_checkpoint(data, family, kind);
  array expected = member(&c, what), sequences = member(&c, "sequences"), pooler = {0};
  if (pooled) pooler = member(&c, pooled);
  size_t texts = sequences.dim[0], rows = sequences.dim[1], width = hr_model_width(c.model);
  int32_t *ids = array_ids(&sequences), *types = member_ids(&c, "token_types", texts * rows);
  bool hidden = strcmp(what, "hidden") == 0;
  size_t each = hidden ? rows * width : hr_model_classes(c.model);
  cr_assert(expected.count == texts * each && each && texts <= 8);
  hr_tokens list[8];
  for (size_t i = 0; i < texts; i++)
    list[i] = (hr_tokens){ids + i * rows, types + i * rows, rows};
  hr_error err = {0};
  hr_session *s = open_session(c.model, 0, 0, 2);
  cr_assert(hr_session_encode(s, list, texts, &err) == HR_OK, "%s", err.message);
  for (size_t i = 0; i < texts; i++) {
    const float *x = hidden ? hr_session_hidden(s, i, 0) : hr_session_scores(s, i);
    double d = distance_to(x, expected.value + i * each, each);
    cr_expect(d < TOLERANCE, "%s: text %zu is off by %g", family, i, d);
    if (!pooled) continue;
    d = distance_to(hr_session_pooled(s, i), pooler.value + i * width, width);
    cr_expect(d < TOLERANCE, "%s: pooler of text %zu is off by %g", family, i, d);
  }
  hr_session_free(s);
  if (pooled) array_finish(&pooler);
  free(ids);
  free(types);
  array_finish(&expected);
  array_finish(&sequences);
  close_checkpoint(&c);
}

Test(checkpoints, hidden_states_and_scores) {
  const char *data = data_folder();
  if (!data) return;
  check_texts(data, "bert", "hidden", "hidden", "pooler");
  check_texts(data, "roberta", "hidden", "hidden", "pooler");
  check_texts(data, "distilbert", "hidden", "hidden", NULL);
  check_texts(data, "bert_seqcls", "logits", "logits", NULL);
}

/* The padding counts as tokens in what is expected: nothing hid it. */
Test(checkpoints, reranker) {
  const char *data = data_folder();
  if (!data) return;
  checkpoint c = open_checkpoint(data, "bert_reranker", "logits");
  enum { COUNT = 16 };
  int32_t *ids = member_ids(&c, "input_ids", COUNT);
  int32_t *types = member_ids(&c, "token_type_ids", COUNT);
  hr_session *s = encode(c.model, ids, types, COUNT, 1);
  cr_expect_float_eq((double)hr_session_scores(s, 0)[0],
                     json_real_value(json_object_get(c.golden, "logit")), 1e-6);
  hr_session_free(s);
  s = encode(c.model, ids, NULL, COUNT, 1);
  cr_expect_float_eq((double)hr_session_scores(s, 0)[0],
                     json_real_value(json_object_get(c.golden, "logit_all_seg0")), 1e-6);
  hr_session_free(s);
  free(ids);
  free(types);
  close_checkpoint(&c);
}

/* The mean of the real tokens' rows, of length 1; attention saw the padding too. */
Test(checkpoints, e5_embeddings) {
  const char *data = data_folder();
  if (!data) return;
  checkpoint c = open_checkpoint(data, "e5", "embed");
  array expected = member(&c, "embeddings"), sequences = member(&c, "sequences"),
        real = member(&c, "real_tokens");
  size_t rows = sequences.dim[1], width = hr_model_width(c.model);
  int32_t *ids = array_ids(&sequences);
  for (size_t t = 0; t < real.count; t++) {
    size_t count = (size_t)real.value[t];
    hr_session *s = encode(c.model, ids + t * rows, NULL, rows, 1);
    float *mean = calloc(width, sizeof *mean), length = 0;
    for (size_t i = 0; i < count * width; i++) mean[i % width] += hr_session_hidden(s, 0, 0)[i];
    for (size_t i = 0; i < width; i++) length += mean[i] * mean[i];
    for (size_t i = 0; i < width; i++) mean[i] /= sqrtf(length);
    double d = distance_to(mean, expected.value + t * width, width);
    cr_expect(d < TOLERANCE, "text %zu is off by %g", t, d);
    free(mean);
    hr_session_free(s);
  }
  free(ids);
  array_finish(&expected);
  array_finish(&sequences);
  array_finish(&real);
  close_checkpoint(&c);
}

/* int8 weights, held as they are and as the floats they stand for. Only the
 * rounding of activations lies between. */
Test(checkpoints, tiny_llama_in_q8_0) {
  const char *data = data_folder();
  if (!data) return;
  path file = path_of("%s/fixtures/tiny_llama_q8.gguf", data);
  hr_error err = {0};
  hr_model_options options;
  hr_model_options_init(&options);
  hr_model *q8 = hr_model_open(file.text, &options, &err);
  options.weights = HR_WEIGHTS_F32;
  hr_model *f32 = hr_model_open(file.text, &options, &err);
  cr_assert(q8 && f32, "%s", err.message);
  int32_t ids[12];
  size_t vocab = hr_model_vocab_size(q8), count = 12 * vocab;
  for (size_t i = 0; i < 12; i++) ids[i] = (int32_t)(i * 5 % vocab);
  hr_session *a = logits_of(q8, ids, 12, 0, 0, 1), *b = logits_of(f32, ids, 12, 0, 0, 1);
  double *wide = calloc(count, sizeof *wide);
  for (size_t i = 0; i < count; i++) wide[i] = (double)hr_session_logits(b, 0)[i];
  double d = distance_to(hr_session_logits(a, 0), wide, count);
  cr_expect(d < 0.02, "off by %g of the range", d);
  free(wide);
  hr_session_free(a);
  hr_session_free(b);
  hr_model_free(q8);
  hr_model_free(f32);
}

/* --- Ranking --------------------------------------------------------------------- */

/* RoBERTa's form of a pair goes into the head that gives one score. */
Test(families, a_pair_of_texts_is_ranked) {
  static const char tokenizer[] =
      "{\"pre_tokenizer\":{\"type\":\"BertPreTokenizer\"},\"post_processor\":{\"type\":"
      "\"RobertaProcessing\",\"sep\":[\"</s>\",2],\"cls\":[\"<s>\",0]},\"model\":{\"type\":"
      "\"WordPiece\",\"unk_token\":\"u\",\"continuing_subword_prefix\":\"##\","
      "\"max_input_chars_per_word\":9,\"vocab\":{\"<s>\":0,\"u\":1,\"</s>\":2,\"a\":3,\"b\":4,"
      "\"c\":5,\"d\":6}}}";
  json_t *config = json_load_file(FAMILIES "roberta_config.json", 0, NULL);
  path folder = make_folder(FAMILIES "roberta.safetensors", config);
  FILE *f = fopen(path_of("%s/tokenizer.json", folder.text).text, "w");
  cr_assert(f && fputs(tokenizer, f) >= 0 && fclose(f) == 0);
  hr_model *model = open_model(folder.text);
  hr_error err = {0};
  int32_t ids[16], types[16];
  size_t count;
  cr_assert(hr_tokenize_pair(model, "a b", 3, "d", 1, ids, types, 16, &count, &err) == HR_OK, "%s",
            err.message);
  const int32_t expected[] = {0, 3, 4, 2, 2, 6, 2};
  cr_assert_eq(count, 7);
  cr_expect_arr_eq(ids, expected, sizeof expected);
  hr_session *session = encode(model, ids, types, count, 1);
  setenv("MODEL", folder.text, 1);
  result r = shell("printf 'c a\\nd\\n' | $H rerank \"$MODEL\" --query 'a b' -t 2");
  const char *second = strchr(r.out, '\n');
  cr_assert(r.status == 0 && second, "%s%s", r.out, r.err);
  char score[64];
  snprintf(score, sizeof score, "\n%.9g\td\n", (double)hr_session_scores(session, 0)[0]);
  cr_expect_str_eq(second, score);
  finish(&r);
  r = shell("$H rerank \"$MODEL\" -q 'a b' 'c a' d 'b b' --sort --json |"
            " sed 's/.*\"score\":\\([^,]*\\).*/\\1/' >$D/scores; wc -l <$D/scores;"
            " sort -g -r -c $D/scores");
  cr_expect(r.status == 0 && strcmp(r.out, "3\n") == 0, "%s%s", r.out, r.err);
  finish(&r);
  /* cut to what 'd' alone has: of the text, from its end */
  r = shell("$H rerank \"$MODEL\" -q 'a b' 'd a b c' -c 7");
  cr_expect(r.status == 6 && strstr(r.err, "text 1: has 10 tokens with the query, expected at most "
                                           "7; --truncate cuts it"),
            "%d %s", r.status, r.err);
  finish(&r);
  r = shell("$H rerank \"$MODEL\" -q 'a b' 'd a b c' -c 7 --truncate");
  snprintf(score, sizeof score, "%.9g\td a b c\n", (double)hr_session_scores(session, 0)[0]);
  cr_expect_str_eq(r.out, score);
  cr_expect(strstr(r.err, "warning: text 1 was cut, with the query from 10 to 7 tokens"), "%s",
            r.err);
  finish(&r);
  r = shell("$H rerank \"$MODEL\" -q 'a b' 'd a b c' -c 6 --truncate");
  cr_expect(r.status == 6 && strstr(r.err, "6 tokens at most, expected more than the 6 of the"),
            "%d %s", r.status, r.err);
  finish(&r);
  r = shell("$H rerank \"$MODEL\" -q x </dev/null");
  cr_expect(r.status == 2 && strstr(r.err, "standard input"), "%d %s", r.status, r.err);
  finish(&r);
  hr_session_free(session);
  hr_model_free(model);
  remove_folder(&folder);
  json_decref(config);
}

/* A family's fixture as a folder, which lines of the shell know as $MODEL. */
typedef struct served {
  path folder;
  json_t *config;
  hr_model *model;
} served;

/* Takes the config; NULL: the fixture's own. */
static served serve(const char *family, json_t *config) {
  if (!config) config = json_read(path_of(FAMILIES "%s_config.json", family).text);
  served s = {make_folder(path_of(FAMILIES "%s.safetensors", family).text, config), config, NULL};
  s.model = open_model(s.folder.text);
  setenv("MODEL", s.folder.text, 1);
  return s;
}

static void withdraw(served *s) {
  hr_model_free(s->model);
  remove_folder(&s->folder);
  json_decref(s->config);
}

/* What the command prints of the scores of ids, as a session gives them. */
static void scores_line(const hr_model *model, const int32_t *ids, const int32_t *types,
                        size_t count, char line[200]) {
  hr_session *session = encode(model, ids, types, count, 1);
  size_t used = 0, classes = hr_model_classes(model);
  for (size_t i = 0; i < classes; i++)
    used += (size_t)snprintf(line + used, 200 - used, "%.9g%s",
                             (double)hr_session_scores(session, 0)[i],
                             i + 1 < classes ? " " : "\n");
  hr_session_free(session);
}

/* A line of scores for each text, as the session gives them. */
Test(families, a_classifier_gives_its_scores) {
  served s = serve("bert", NULL);
  const int32_t ids[] = {1, 5, 2};
  char line[200];
  scores_line(s.model, ids, NULL, 3, line);
  result r = shell("$H embed \"$MODEL\" --ids 1,5,2 --scores");
  cr_expect_str_eq(r.out, line, "%s", r.err);
  finish(&r);
  withdraw(&s);
}

Test(families, scores_have_the_names_of_the_file) {
  json_t *config = json_read(FAMILIES "bert_config.json");
  set_member(config, "id2label",
             json_pack("{s:s, s:s, s:s}", "0", "no", "1", "may be", "2", "yes"));
  served s = serve("bert", config);
  cr_expect_str_eq(hr_model_label(s.model, 1), "may be");
  cr_expect_null(hr_model_label(s.model, 3));
  result r = shell("$H embed \"$MODEL\" --ids 1,5,2 --scores --json");
  cr_expect(strstr(r.out, "\"labels\":[\"no\",\"may be\",\"yes\"]"), "%s %s", r.out, r.err);
  finish(&r);
  r = shell("$H embed \"$MODEL\" --ids 1,5,2 --scores");
  cr_expect_str_eq(r.err, "scores: no, may be, yes\n");
  finish(&r);
  r = shell("$H info \"$MODEL\"");
  cr_expect(strstr(r.out, "\"may be\""), "%s %s", r.out, r.err);
  finish(&r);
  withdraw(&s);
}

/* What the command makes of ids and segments, against the session. */
Test(families, segments_come_with_the_ids) {
  served s = serve("bert", NULL);
  const int32_t ids[] = {1, 5, 2, 7, 2}, types[] = {0, 0, 0, 1, 1};
  char line[200];
  scores_line(s.model, ids, types, 5, line);
  result r = shell("$H embed \"$MODEL\" --ids 1,5,2,7,2 --types '0 0 0 1 1' --scores");
  cr_expect_str_eq(r.out, line, "%s", r.err);
  finish(&r);
  r = shell("$H embed \"$MODEL\" --ids 1,5,2,7,2 --scores");
  cr_expect_str_neq(r.out, line);
  finish(&r);
  expect_error("$H embed \"$MODEL\" --ids 1,5,2 --types 0,0 --scores", 2, "--types", "2 segments");
  expect_error("$H embed \"$MODEL\" --ids 1,5,2 --types 0,0,9 --scores", 2, "type 9", NULL);
  expect_error("$H embed \"$MODEL\" --types 0,0 a", 2, "--types", "--ids");
  withdraw(&s);
}

/* What is too long is refused by the file's word for it, cut when asked, and taken with -c. */
Test(families, embed_holds_to_the_length_in_the_files) {
  served s = serve("bert", NULL);
  write_key(&s.folder, "sentence_bert_config.json", "max_seq_length", json_integer(3));
  expect_error("$H embed \"$MODEL\" --ids 1,5,2,7 --pooling mean", 6, "--ids: has 4 tokens",
               "--truncate");
  result r = shell("$H embed \"$MODEL\" --ids 1,5,2,7 --types 0,0,0,1 --pooling mean --truncate");
  result t = shell("$H embed \"$MODEL\" --ids 1,5,2 --pooling mean");
  cr_expect(r.status == 0 && strstr(r.err, "--ids was cut from 4 to 3 tokens"), "%s", r.err);
  cr_expect_str_eq(r.out, t.out);
  finish(&r);
  finish(&t);
  r = shell("$H embed \"$MODEL\" --ids 1,5,2,7 --pooling mean -c 32");
  cr_expect(r.status == 0 && *r.out, "%s", r.err);
  finish(&r);
  r = shell("$H info \"$MODEL\"; $H pack \"$MODEL\" $D/p -q && $H info $D/p");
  cr_expect(strstr(r.out, "32 positions in training, 3 for embed and rerank"), "%s", r.out);
  cr_expect(r.status == 0 && strstr(strstr(r.out, "family") + 1, ", 3 for embed"), "%s%s", r.out,
            r.err);
  finish(&r);
  withdraw(&s);
}

/* Its score for a pair is the same by text and by ids. */
Test(families, a_pair_is_ranked_by_its_ids) {
  served s = serve("roberta", NULL);
  const int32_t ids[] = {1, 5, 2, 7, 2};
  char line[200];
  scores_line(s.model, ids, NULL, 5, line);
  result r = shell("$H rerank \"$MODEL\" --ids 1,5,2,7,2");
  cr_expect_str_eq(r.out, line, "%s", r.err);
  finish(&r);
  expect_error("$H rerank \"$MODEL\" --ids 1,5 -q a", 2, "--ids", "expected one of them");
  withdraw(&s);
}

/* The case that sentence-transformers lowers must be lowered by the tokenizer. */
Test(families, a_tokenizer_lowers_the_case_that_is_to_be_lowered) {
  static const char *const normalizers[] = {
      "null", "{\"type\":\"BertNormalizer\",\"lowercase\":false}", "{\"type\":\"Lowercase\"}",
      "{\"type\":\"BertNormalizer\",\"lowercase\":true}"};
  json_t *config = json_read(FAMILIES "bert_config.json");
  for (size_t i = 0; i < sizeof normalizers / sizeof *normalizers; i++) {
    path folder = make_folder(FAMILIES "bert.safetensors", config);
    write_key(&folder, "sentence_bert_config.json", "do_lower_case", json_true());
    FILE *f = fopen(path_of("%s/tokenizer.json", folder.text).text, "w");
    cr_assert(f && fprintf(f, "{\"normalizer\":%s,\"model\":{\"type\":\"WordPiece\",\"unk_token\":"
                              "\"u\",\"vocab\":{\"u\":0,\"a\":1}}}", normalizers[i]) > 0 &&
              fclose(f) == 0);
    hr_error err = {0};
    hr_model *model = hr_model_open(folder.text, NULL, &err);
    cr_expect(!model == (i < 2), "%s: %s", normalizers[i], err.message);
    cr_expect(i >= 2 || strstr(err.message, "do_lower_case' is true"), "%s", err.message);
    hr_model_free(model);
    remove_folder(&folder);
  }
  json_decref(config);
}

Test(families, an_encoder_does_not_chat) {
  expect_error("$H chat $ROOT/tests/fixtures/families/bert.gguf </dev/null", 2, "encoder",
               "headrow embed");
}

Test(families, sentence_transformers_may_not_put_a_matrix_behind) {
  hr_error err = {0};
  json_t *config = json_read(FAMILIES "bert_config.json");
  path folder = make_folder(FAMILIES "bert.safetensors", config);
  path file = path_of("%s/modules.json", folder.text);
  json_t *modules = json_pack("[{s:s}, {s:s}]", "type", "sentence_transformers.models.Transformer",
                              "type", "sentence_transformers.models.Pooling");
  cr_assert(json_dump_file(modules, file.text, 0) == 0);
  hr_model_free(open_model(folder.text));
  json_array_append_new(modules, json_pack("{s:s}", "type", "sentence_transformers.models.Dense"));
  cr_assert(json_dump_file(modules, file.text, 0) == 0);
  cr_expect_null(hr_model_open(folder.text, NULL, &err));
  cr_expect(strstr(err.message, "modules.json") && strstr(err.message, "models.Dense"), "%s",
            err.message);
  json_decref(modules);
  remove_folder(&folder);
  json_decref(config);
}

Test(families, a_model_without_a_ranking_head_ranks_nothing) {
  result r = shell("$H rerank $ROOT/tests/fixtures/families/bert.gguf -q a b");
  cr_expect(r.status == 3 && strstr(r.err, "expected a ranking head"), "%s", r.err);
  finish(&r);
}
