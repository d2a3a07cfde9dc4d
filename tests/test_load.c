/* SPDX-License-Identifier: MIT
 * Loading: what a file asks for and we lack is refused by name, never left out. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "headrow/headrow.h"
#include "tests/support/gguf_writer.h"

enum { WIDTH = 32, VOCAB = 8, HALF = 8 }; /* two heads of 16 */

static void put_matrix(gguf_writer *w, const char *name, uint64_t rows, uint64_t columns,
                       float first) {
  float data[3 * WIDTH * WIDTH];
  for (size_t i = 0; i < rows * columns; i++) data[i] = sinf((float)(i * 7 + strlen(name)));
  data[0] = first;
  uint64_t dim[2] = {columns, rows};
  gguf_put_tensor(w, name, GGUF_TENSOR_F32, rows == 1 ? 1 : 2, dim, data,
                  rows * columns * sizeof *data);
}

/* What is before and behind the layers of a small Llama. */
static void put_ends(gguf_writer *w) {
  gguf_writer_init(w);
  gguf_put_string(w, "general.architecture", "llama");
  gguf_put_u32(w, "llama.block_count", 1);
  gguf_put_u32(w, "llama.context_length", 16);
  gguf_put_u32(w, "llama.embedding_length", WIDTH);
  gguf_put_u32(w, "llama.feed_forward_length", WIDTH);
  gguf_put_u32(w, "llama.attention.head_count", 2);
  gguf_put_f32(w, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
  put_matrix(w, "token_embd.weight", VOCAB, WIDTH, 1);
  put_matrix(w, "output_norm.weight", 1, WIDTH, 1);
  put_matrix(w, "blk.0.attn_norm.weight", 1, WIDTH, 1);
  put_matrix(w, "blk.0.ffn_norm.weight", 1, WIDTH, 1);
}

/* One layer of it; the element that is checked may be anything. */
static void put_llama(gguf_writer *w, float element) {
  put_ends(w);
  static const char *const names[] = {"attn_q", "attn_k", "attn_v", "attn_output",
                                      "ffn_gate", "ffn_up", "ffn_down"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    char name[64];
    snprintf(name, sizeof name, "blk.0.%s.weight", names[i]);
    put_matrix(w, name, WIDTH, WIDTH, i == 5 ? element : 1);
  }
}

/* Opens what was written; the bytes go to *file. NULL with a message in err. */
static hr_model *open_written(gguf_writer *w, hr_weights weights, unsigned char **file,
                              hr_error *err) {
  size_t size;
  *file = gguf_writer_finish(w, &size);
  hr_model_options options;
  hr_model_options_init(&options);
  options.weights = weights;
  return hr_model_open_memory(*file, size, "written", &options, err);
}

static void expect_refused(gguf_writer *w, hr_weights weights, hr_status status, const char *part) {
  hr_error err = {0};
  unsigned char *file;
  hr_model *model = open_written(w, weights, &file, &err);
  cr_expect(!model, "%s was not refused", part);
  cr_expect_eq(err.status, status);
  cr_expect(strstr(err.message, part), "'%s' is not in: %s", part, err.message);
  hr_model_free(model);
  free(file);
}

static uint64_t digest_of(gguf_writer *w) {
  hr_error err = {0};
  unsigned char *file;
  hr_model *model = open_written(w, HR_WEIGHTS_NATIVE, &file, &err);
  cr_assert(model, "%s", err.message);
  hr_session *session = hr_session_create(model, NULL, &err);
  cr_assert(session, "%s", err.message);
  const int32_t ids[] = {1, 2, 3, 4, 5};
  cr_assert_eq(hr_session_eval(session, ids, 5, HR_LOGITS_LAST, &err), HR_OK, "%s", err.message);
  uint64_t digest = hr_digest(HR_DIGEST_INIT, hr_session_logits(session, 0), VOCAB);
  hr_session_free(session);
  hr_model_free(model);
  free(file);
  return digest;
}

/* Queries, keys and values in one tensor whose bias is in blocks of 32, or the same as F32. */
static void put_fused(gguf_writer *w, uint32_t key_heads, bool blocks) {
  static const char *const names[] = {"attn_output", "ffn_gate", "ffn_up", "ffn_down"};
  uint64_t rows = WIDTH + key_heads * WIDTH;
  unsigned char q8[3 * 34] = {0};
  float floats[3 * WIDTH];
  put_ends(w);
  gguf_put_u32(w, "llama.attention.head_count_kv", key_heads);
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    char name[64];
    snprintf(name, sizeof name, "blk.0.%s.weight", names[i]);
    put_matrix(w, name, WIDTH, WIDTH, 1);
  }
  put_matrix(w, "blk.0.attn_qkv.weight", rows, WIDTH, 1);
  for (unsigned i = 0; i < rows; i++) {
    q8[i / 32 * 34 + 1] = 0x38; /* half: 0.5 */
    q8[i / 32 * 34 + 2 + i % 32] = (unsigned char)(i + 1);
    floats[i] = 0.5f * (float)(i + 1);
  }
  gguf_put_tensor(w, "blk.0.attn_qkv.bias", blocks ? GGUF_TENSOR_Q8_0 : GGUF_TENSOR_F32, 1, &rows,
                  blocks ? (const void *)q8 : floats, rows / 32 * (blocks ? 34 : 128));
}

/* One part of a bias may end inside a block, of which the next would be the other half. */
Test(load, a_bias_is_not_split_inside_a_block) {
  gguf_writer w;
  put_fused(&w, 2, true);
  uint64_t digest = digest_of(&w);
  put_fused(&w, 2, false);
  cr_expect_eq(digest_of(&w), digest);
  put_fused(&w, 1, false);
  digest_of(&w);
  put_fused(&w, 1, true);
  expect_refused(&w, HR_WEIGHTS_NATIVE, HR_ERROR_FILE,
                 "'blk.0.attn_qkv.bias' is split inside a block: elements 32 to 48");
}

Test(load, values_that_would_change_the_arithmetic_are_refused) {
  static const char *const keys[] = {"llama.logit_scale", "llama.residual_scale",
                                     "llama.rope.scale_linear", "llama.rope.scaling.factor",
                                     "llama.attention.clamp_kqv", "llama.attention.max_alibi_bias",
                                     "llama.moe_every_n_layers"};
  gguf_writer w;
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
    put_llama(&w, 1);
    gguf_put_f32(&w, keys[i], 0.25f);
    expect_refused(&w, HR_WEIGHTS_NATIVE, HR_ERROR_FILE, keys[i]);
  }
  put_llama(&w, 1);
  gguf_put_u32(&w, "llama.expert_count", 8);
  expect_refused(&w, HR_WEIGHTS_NATIVE, HR_ERROR_FILE, "llama.expert_count");
  put_llama(&w, 1);
  gguf_put_string(&w, "llama.rope.scaling.type", "dynamic");
  expect_refused(&w, HR_WEIGHTS_NATIVE, HR_ERROR_FILE, "'dynamic', expected one of: none");
  put_llama(&w, 1);
  gguf_put_u32(&w, "llama.vocab_size", VOCAB + 1);
  expect_refused(&w, HR_WEIGHTS_NATIVE, HR_ERROR_FILE, "rows for 8 tokens, expected 9");
}

/* GGUF has a key for the factor beside YaRN and one for that beside all else. */
Test(load, the_factor_of_another_rope_scaling_is_refused) {
  static const char yarn[] = "llama.rope.scaling.yarn_attn_factor",
                    other[] = "llama.rope.scaling.attn_factor";
  static const char *const types[] = {"none", "linear", "yarn"};
  gguf_writer w;
  for (size_t i = 0; i < sizeof types / sizeof *types; i++)
    for (int wrong = 0; wrong < 2; wrong++) {
      bool is_yarn = strcmp(types[i], "yarn") == 0;
      put_llama(&w, 1);
      gguf_put_string(&w, "llama.rope.scaling.type", types[i]);
      gguf_put_f32(&w, "llama.rope.scaling.factor", strcmp(types[i], "none") ? 2 : 1);
      if (is_yarn) gguf_put_u32(&w, "llama.rope.scaling.original_context_length", 64);
      gguf_put_f32(&w, is_yarn ? other : yarn, wrong ? 1.25f : 1);
      if (wrong)
        expect_refused(&w, HR_WEIGHTS_NATIVE, HR_ERROR_FILE, is_yarn ? other : yarn);
      else
        digest_of(&w);
    }
  for (int own = 0; own < 2; own++) {
    put_llama(&w, 1);
    if (own) gguf_put_string(&w, "llama.rope.scaling.type", "yarn");
    gguf_put_f32(&w, "llama.rope.scaling.factor", own ? 2 : 1);
    gguf_put_f32(&w, own ? yarn : other, 1001);
    expect_refused(&w, HR_WEIGHTS_NATIVE, HR_ERROR_FILE, own ? yarn : other);
  }
}

Test(load, tensors_that_nobody_reads_are_refused) {
  static const char *const names[] = {"blk.0.attn_sinks.weight", "blk.1.attn_q.weight", "extra"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    gguf_writer w;
    put_llama(&w, 1);
    put_matrix(&w, names[i], 1, WIDTH, 1);
    expect_refused(&w, HR_WEIGHTS_NATIVE, HR_ERROR_FILE, names[i]);
  }
}

Test(load, a_fault_in_the_weights_is_not_quantized_away) {
  static const float faults[] = {NAN, INFINITY, -INFINITY, 1e30f};
  gguf_writer w;
  for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
    put_llama(&w, faults[i]);
    expect_refused(&w, HR_WEIGHTS_Q8_0, HR_ERROR_NUMERIC, "blk.0.ffn_up.weight");
  }
  put_llama(&w, 1e30f);
  expect_refused(&w, HR_WEIGHTS_F16, HR_ERROR_NUMERIC, "blk.0.ffn_up.weight");
}

/* Factors divide the angles: ones change nothing, others do. */
/* What a file calls itself does not end a line, nor move a terminal's cursor. */
Test(load, control_bytes_of_a_file_are_spelled_out) {
  gguf_writer w;
  gguf_writer_init(&w);
  gguf_put_string(&w, "general.architecture", "fal\ncon\x1b[2J\x7f");
  gguf_put_tensor(&w, "x", GGUF_TENSOR_F32, 1, (uint64_t[]){1}, (float[]){1}, sizeof(float));
  expect_refused(&w, HR_WEIGHTS_NATIVE, HR_ERROR_FILE, "'fal\\x0acon\\x1b[2J\\x7f' is not known");
  put_llama(&w, 1);
  gguf_put_string(&w, "llama.rope.scaling.type", "\r\ndynamic");
  expect_refused(&w, HR_WEIGHTS_NATIVE, HR_ERROR_FILE, "'\\x0d\\x0adynamic', expected");
}

/* A message is whole, or ends in dots, however much of it must be spelled out. */
Test(load, messages_are_cut_with_dots) {
  hr_error err;
  char path[1024];
  for (size_t length = 380; length < 520; length++) {
    memset(path, 'p', length);
    path[length] = '\0';
    path[length / 2] = '\n';
    cr_expect_null(hr_model_open(path, NULL, &err));
    size_t n = strlen(err.message);
    cr_expect(n < sizeof err.message && !strchr(err.message, '\n'), "%zu", length);
    bool whole = strstr(err.message, "No such file") || strstr(err.message, "too long");
    cr_expect(whole || strcmp(err.message + n - 3, "...") == 0, "%s", err.message);
  }
}

Test(load, rope_factors_stretch_the_positions) {
  gguf_writer w;
  put_llama(&w, 1);
  uint64_t plain = digest_of(&w), dim = HALF;
  float factors[HALF];
  for (int kind = 1; kind <= 2; kind++) {
    for (size_t i = 0; i < HALF; i++) factors[i] = (float)kind;
    put_llama(&w, 1);
    gguf_put_tensor(&w, "rope_freqs.weight", GGUF_TENSOR_F32, 1, &dim, factors, sizeof factors);
    uint64_t stretched = digest_of(&w);
    cr_expect((stretched == plain) == (kind == 1));
  }
}

Test(load, rope_factors_that_stop_the_positions_are_refused) {
  static const float bad[] = {0, -1, 1e-30f, 0.0009f};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    float factors[HALF] = {1, 1, bad[i], 1, 1, 1, 1, 1};
    uint64_t dim = HALF;
    gguf_writer w;
    put_llama(&w, 1);
    gguf_put_tensor(&w, "rope_freqs.weight", GGUF_TENSOR_F32, 1, &dim, factors, sizeof factors);
    expect_refused(&w, HR_WEIGHTS_NATIVE, HR_ERROR_FILE, "element 2 of 'factors of the rotary");
  }
}
