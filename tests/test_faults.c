/* SPDX-License-Identifier: MIT
 * Numbers that are none, numbers too large, and hosts that compute in another way: an error
 * with a name or the same answer, never a wrong one. */
#include <criterion/criterion.h>
#include <fenv.h>
#include <headrow/headrow.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "kernels/select.h"
#include "tests/support/gguf_writer.h"

#define MODELS HEADROW_SOURCE_ROOT "/models/"

TestSuite(faults, .timeout = 120);

enum { WIDTH = 32, VOCAB = 8, CONTEXT = 16, ROWS = 5 };

/* --- A small Llama with one value of one tensor replaced ------------------------- */

typedef struct change {
  const char *tensor; /* NULL: none */
  float value;        /* of its element 7, or every value times it */
  bool times;
  uint32_t type;      /* GGUF_TENSOR_F32, F16 or BF16, of all matrices */
} change;

static uint16_t to_type(uint32_t type, float x) {
  uint16_t bits;
  hr_kernels kernels;
  cr_assert(hr_kernels_select(&kernels, 0, "portable"));
  if (type == GGUF_TENSOR_F16)
    kernels.narrow_f16(&x, &bits, 1);
  else
    memcpy(&bits, (const char *)&x + 2, sizeof bits);
  return bits;
}

static void put_tensor(gguf_writer *w, const char *name, uint64_t rows, const change *c) {
  float wide[WIDTH * WIDTH];
  uint16_t narrow[WIDTH * WIDTH];
  const uint64_t dim[2] = {WIDTH, rows};
  size_t count = rows * WIDTH;
  bool changed = c->tensor && strcmp(c->tensor, name) == 0;
  for (size_t i = 0; i < count; i++) {
    wide[i] = sinf((float)(i * 7 + strlen(name)));
    if (changed && c->times) wide[i] *= c->value;
  }
  if (changed && !c->times) wide[7] = c->value;
  if (rows == 1 || c->type == GGUF_TENSOR_F32) {
    gguf_put_tensor(w, name, GGUF_TENSOR_F32, rows == 1 ? 1 : 2, dim, wide, count * sizeof *wide);
    return;
  }
  for (size_t i = 0; i < count; i++) narrow[i] = to_type(c->type, wide[i]);
  gguf_put_tensor(w, name, c->type, 2, dim, narrow, count * sizeof *narrow);
}

static const char *const tensors[] = {
    "token_embd.weight",     "output_norm.weight",    "blk.0.attn_norm.weight",
    "blk.0.ffn_norm.weight", "blk.0.attn_q.weight",   "blk.0.attn_k.weight",
    "blk.0.attn_v.weight",   "blk.0.attn_output.weight", "blk.0.ffn_gate.weight",
    "blk.0.ffn_up.weight",   "blk.0.ffn_down.weight", "output.weight"};
enum { TENSORS = sizeof tensors / sizeof *tensors };

static hr_model *open_changed(change c, hr_weights weights, unsigned char **file, hr_error *err) {
  gguf_writer w;
  gguf_writer_init(&w);
  gguf_put_string(&w, "general.architecture", "llama");
  gguf_put_u32(&w, "llama.block_count", 1);
  gguf_put_u32(&w, "llama.context_length", CONTEXT);
  gguf_put_u32(&w, "llama.embedding_length", WIDTH);
  gguf_put_u32(&w, "llama.feed_forward_length", WIDTH);
  gguf_put_u32(&w, "llama.attention.head_count", 2);
  gguf_put_f32(&w, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
  for (size_t i = 0; i < TENSORS; i++) {
    uint64_t rows = strstr(tensors[i], "norm") ? 1 : strncmp(tensors[i], "blk", 3) ? VOCAB : WIDTH;
    put_tensor(&w, tensors[i], rows, &c);
  }
  size_t size;
  *file = gguf_writer_finish(&w, &size);
  hr_model_options options;
  hr_model_options_init(&options);
  options.weights = weights;
  return hr_model_open_memory(*file, size, "written", &options, err);
}

static hr_status evaluate(const hr_model *model, hr_cache cache, uint64_t *digest, hr_error *err) {
  static const int32_t ids[ROWS] = {1, 5, 2, 7, 3};
  hr_session_options options;
  hr_session_options_init(&options);
  options.cache = cache;
  hr_session *s = hr_session_create(model, &options, err);
  cr_assert(s, "%s", err->message);
  hr_status status = hr_session_eval(s, ids, ROWS, HR_LOGITS_ALL, err);
  for (size_t i = 0; status == HR_OK && i < ROWS; i++)
    *digest = hr_digest(*digest, hr_session_logits(s, i), hr_model_vocab_size(model));
  hr_session_free(s);
  return status;
}

/* --- Weights --------------------------------------------------------------------- */

Test(faults, a_nan_or_infinity_in_any_tensor_is_told_with_its_name) {
  static const uint32_t types[] = {GGUF_TENSOR_F32, GGUF_TENSOR_F16, GGUF_TENSOR_BF16};
  static const float values[] = {NAN, INFINITY, -INFINITY};
  for (size_t i = 0; i < TENSORS * 9; i++) {
    change c = {tensors[i / 9], values[i % 3], false, types[i / 3 % 3]};
    hr_error err = {.status = HR_OK};
    unsigned char *file;
    hr_model *model = open_changed(c, HR_WEIGHTS_NATIVE, &file, &err);
    cr_expect(!model && err.status == HR_ERROR_NUMERIC, "%s: %g", c.tensor, (double)c.value);
    cr_expect(strstr(err.message, c.tensor), "%s: %s", c.tensor, err.message);
    hr_model_free(model);
    free(file);
  }
}

/* The scale of a block of a Q8_0 file. */
Test(faults, an_infinite_scale_of_a_block_is_told_with_its_tensor) {
  hr_error err = {.status = HR_OK};
  FILE *f = fopen(MODELS "gpt2.gguf", "rb");
  cr_assert(f);
  static unsigned char bytes[1 << 22];
  size_t size = fread(bytes, 1, sizeof bytes, f);
  fclose(f);
  cr_assert(size > 100000 && size < sizeof bytes);
  hr_model *model = hr_model_open_memory(bytes, size, "gpt2", NULL, &err);
  cr_assert(model, "%s", err.message);
  hr_model_free(model);
  /* Somewhere in the middle lies a matrix; two bytes in each 34 are a scale. */
  for (size_t i = size / 2; i < size / 2 + 34; i++) bytes[i] = i % 2 ? 0x7c : 0;
  model = hr_model_open_memory(bytes, size, "gpt2", NULL, &err);
  cr_expect(!model && err.status == HR_ERROR_NUMERIC);
  cr_expect(strstr(err.message, "tensor '"), "%s", err.message);
  hr_model_free(model);
}

/* --- Values too large ------------------------------------------------------------- */

/* Keys beyond fp16's 65504 do not fit its cache: that is an error, and fp32's holds them. */
Test(faults, keys_that_overflow_a_half_precision_cache_are_an_error) {
  static const char *const names[] = {"blk.0.attn_k.weight", "blk.0.attn_v.weight"};
  for (size_t i = 0; i < 2; i++) {
    hr_error err = {.status = HR_OK};
    unsigned char *file;
    uint64_t digest = HR_DIGEST_INIT;
    hr_model *model = open_changed((change){names[i], 1e6f, true, GGUF_TENSOR_F32},
                                   HR_WEIGHTS_NATIVE, &file, &err);
    cr_assert(model, "%s", err.message);
    cr_expect_eq(evaluate(model, HR_CACHE_F16, &digest, &err), HR_ERROR_NUMERIC);
    cr_expect(strstr(err.message, "the logit of token 0 after position 0 is"), "%s", err.message);
    cr_expect_eq(evaluate(model, HR_CACHE_F32, &digest, &err), HR_OK, "%s", err.message);
    hr_model_free(model);
    free(file);
  }
}

/* Activations are fp32 from end to end: none of these passes 65504 into a half. */
Test(faults, large_activations_stay_finite) {
  static const struct {
    const char *tensor;
    float factor;
  } cases[] = {{"blk.0.attn_q.weight", 1e4f},  {"blk.0.ffn_up.weight", 1e9f},
               {"blk.0.ffn_gate.weight", 1e6f}, {"blk.0.attn_output.weight", 1e9f},
               {"blk.0.ffn_down.weight", 1e9f}, {"token_embd.weight", 1e9f}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    hr_error err = {.status = HR_OK};
    unsigned char *file;
    uint64_t digest = HR_DIGEST_INIT;
    hr_model *model = open_changed(
        (change){cases[i].tensor, cases[i].factor, true, GGUF_TENSOR_F32}, HR_WEIGHTS_NATIVE,
        &file, &err);
    cr_assert(model, "%s", err.message);
    cr_expect_eq(evaluate(model, HR_CACHE_F16, &digest, &err), HR_OK, "%s: %s", cases[i].tensor,
                 err.message);
    hr_model_free(model);
    free(file);
  }
}

/* --- Hosts ------------------------------------------------------------------------- */

typedef struct answer {
  uint64_t digest;
  uint32_t picked;
} answer;

static answer ask(const char *path, hr_weights weights) {
  hr_error err = {.status = HR_OK};
  answer a = {.digest = HR_DIGEST_INIT};
  hr_model_options options;
  hr_model_options_init(&options);
  options.weights = weights;
  hr_model *model = hr_model_open(path, &options, &err);
  cr_assert(model, "%s", err.message);
  cr_assert_eq(evaluate(model, HR_CACHE_AUTO, &a.digest, &err), HR_OK, "%s", err.message);
  hr_sampler_options sampling;
  hr_sampler_options_init(&sampling);
  sampling.seed = 11;
  hr_sampler *sampler = hr_sampler_create(model, &sampling, &err);
  hr_session *s = hr_session_create(model, NULL, &err);
  cr_assert(sampler && s, "%s", err.message);
  for (int32_t i = 0, id = 1; i < 8; i++) {
    cr_assert_eq(hr_session_eval(s, &id, 1, HR_LOGITS_LAST, &err), HR_OK, "%s", err.message);
    id = hr_sampler_pick(sampler, hr_session_logits(s, 0), &err);
    a.picked = a.picked * 31 + (uint32_t)id;
  }
  hr_sampler_free(sampler);
  hr_session_free(s);
  hr_model_free(model);
  return a;
}

static void flush_to_zero(void) {
#if defined(__x86_64__)
  _mm_setcsr(_mm_getcsr() | 0x8040); /* FTZ and DAZ, as fast-math start-up code sets them */
#elif defined(__aarch64__)
  uint64_t fpcr;
  __asm__ volatile("mrs %0, fpcr" : "=r"(fpcr));
  __asm__ volatile("msr fpcr, %0" : : "r"(fpcr | UINT64_C(1) << 24));
#endif
}

Test(faults, a_host_that_rounds_or_flushes_otherwise_gets_the_same_answer) {
  static const char *const paths[] = {MODELS "rope.gguf", MODELS "alibi.gguf",
                                      MODELS "transformer-2017.gguf"};
  static const int modes[] = {FE_DOWNWARD, FE_UPWARD, FE_TOWARDZERO};
  for (size_t i = 0; i < 3; i++) {
    hr_weights weights = i == 0 ? HR_WEIGHTS_Q8_0 : i == 1 ? HR_WEIGHTS_F16 : HR_WEIGHTS_NATIVE;
    answer expected = ask(paths[i], weights);
    for (size_t m = 0; m < 3; m++) {
      fesetround(modes[m]);
      flush_to_zero();
      answer got = ask(paths[i], weights);
      int mode = fegetround();
#if defined(__x86_64__)
      unsigned flushes = _mm_getcsr() & 0x8040;
#else
      unsigned flushes = 0x8040;
#endif
      fesetenv(FE_DFL_ENV);
      cr_expect(got.digest == expected.digest && got.picked == expected.picked, "%s, mode %d",
                paths[i], modes[m]);
      cr_expect(mode == modes[m] && flushes == 0x8040, "the host's setting was not put back");
    }
  }
}

typedef struct asking {
  const hr_model *model;
  uint64_t digest;
  hr_status status;
} asking;

static void *ask_in_thread(void *arg) {
  asking *a = arg;
  hr_error err;
  for (int i = 0; i < 4 && a->status == HR_OK; i++)
    a->status = evaluate(a->model, HR_CACHE_AUTO, &a->digest, &err);
  return NULL;
}

Test(faults, threads_with_a_session_each_get_what_one_gets_alone) {
  enum { THREADS = 4 };
  hr_error err;
  hr_model *model = hr_model_open(MODELS "rope.gguf", NULL, &err);
  cr_assert(model, "%s", err.message);
  asking alone = {.model = model, .digest = HR_DIGEST_INIT}, each[THREADS];
  ask_in_thread(&alone);
  pthread_t thread[THREADS];
  for (int i = 0; i < THREADS; i++) {
    each[i] = (asking){.model = model, .digest = HR_DIGEST_INIT};
    cr_assert_eq(pthread_create(&thread[i], NULL, ask_in_thread, &each[i]), 0);
  }
  for (int i = 0; i < THREADS; i++) {
    pthread_join(thread[i], NULL);
    cr_expect(each[i].status == HR_OK && each[i].digest == alone.digest, "thread %d", i);
  }
  hr_model_free(model);
}

/* What a child answers: the parent's session is an error there, its own gives the same. */
static bool child_is_fine(hr_session *inherited, hr_model *model, uint64_t expected) {
  static const int32_t ids[ROWS] = {1, 5, 2, 7, 3};
  uint64_t digest = HR_DIGEST_INIT;
  hr_error err = {.message = ""};
  bool fine = hr_session_eval(inherited, ids, ROWS, HR_LOGITS_LAST, &err) == HR_ERROR_USAGE &&
              strstr(err.message, "fork");
  hr_session *own = hr_session_create(model, NULL, &err);
  fine = fine && own && hr_session_eval(own, ids, ROWS, HR_LOGITS_ALL, &err) == HR_OK;
  for (size_t i = 0; fine && i < ROWS; i++)
    digest = hr_digest(digest, hr_session_logits(own, i), hr_model_vocab_size(model));
  hr_session_free(own);
  hr_session_free(inherited);
  hr_model_free(model);
  return fine && digest == expected;
}

Test(faults, a_forked_child_makes_sessions_of_the_same_model) {
  static const int32_t id = 1;
  hr_error err;
  uint64_t expected = HR_DIGEST_INIT, after = HR_DIGEST_INIT;
  hr_model *model = hr_model_open(MODELS "rope.gguf", NULL, &err);
  cr_assert(model, "%s", err.message);
  hr_session_options options;
  hr_session_options_init(&options);
  options.threads = 2;
  hr_session *s = hr_session_create(model, &options, &err);
  cr_assert(s, "%s", err.message);
  cr_assert_eq(hr_session_eval(s, &id, 1, HR_LOGITS_LAST, &err), HR_OK, "%s", err.message);
  cr_assert_eq(evaluate(model, HR_CACHE_AUTO, &expected, &err), HR_OK);
  pid_t child = fork();
  if (child == 0) _exit(child_is_fine(s, model, expected) ? 0 : 1);
  int status;
  cr_assert_eq(waitpid(child, &status, 0), child);
  cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %x", (unsigned)status);
  cr_expect_eq(hr_session_eval(s, &id, 1, HR_LOGITS_LAST, &err), HR_OK, "the parent goes on");
  cr_expect_eq(evaluate(model, HR_CACHE_AUTO, &after, &err), HR_OK);
  cr_expect_eq(after, expected);
  hr_session_free(s);
  hr_model_free(model);
}
