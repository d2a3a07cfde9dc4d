/* SPDX-License-Identifier: MIT
 *
 * The public header as it was when options got their size: programs that were built with it
 * must run with every later library (tests/abi/program.c). Never changed; one that is older
 * than a change of the API may be added beside it.
 *
 * headrow: Transformer models on ordinary CPUs.
 *
 * A model is opened once, is immutable from then on and may be shared by any
 * number of sessions and threads. A session is one sequence of tokens with its
 * KV cache; it is used by one thread at a time.
 *
 *     hr_error err;
 *     hr_model *model = hr_model_open("model.gguf", NULL, &err);
 *     hr_session *session = hr_session_create(model, NULL, &err);
 *     hr_tokenize(model, text, strlen(text), HR_TOKENIZE_SPECIAL, ids, capacity, &n, &err);
 *     hr_session_eval(session, ids, n, HR_LOGITS_LAST, &err);
 *     int32_t next = hr_sampler_pick(sampler, hr_session_logits(session, 0), &err);
 *
 * The library never prints, never exits, never aborts and reads no environment
 * variable. Every function that can fail takes an hr_error, which may be NULL,
 * and fills it on failure only. Other pointers may be NULL only where their
 * comment says so.
 *
 * Options may get new members at their end. A program built with an older header
 * goes on to work; one built with a newer header does too, as long as it leaves
 * what this library does not know at zero.
 */
#ifndef HEADROW_HEADROW_H
#define HEADROW_HEADROW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HR_VERSION_MAJOR 0
#define HR_VERSION_MINOR 1
#define HR_VERSION_PATCH 0

/* The number of the defined arithmetic (docs/numerics.md): two digests are
 * comparable only when it is the same. */
#define HR_ARITHMETIC 1

#define HR_API __attribute__((visibility("default")))

/* What went wrong. The values are the exit statuses of the command. */
typedef enum hr_status {
  HR_OK = 0,
  HR_ERROR_USAGE = 2,     /* an argument or option is out of its range */
  HR_ERROR_FILE = 3,      /* a file can't be read, is not valid, or asks for something we lack */
  HR_ERROR_MEMORY = 4,    /* not enough memory */
  HR_ERROR_NUMERIC = 5,   /* NaN or infinity where a number must be */
  HR_ERROR_CONTEXT = 6,   /* the input is longer than the context */
  HR_ERROR_CANCELLED = 130 /* a progress or cancel callback asked to stop */
} hr_status;

/* One clear sentence: where, what, what was expected. */
typedef struct hr_error {
  hr_status status;
  char message[508];
} hr_error;

/* "0.1.0" */
HR_API const char *hr_version(void);

/* --- Models --------------------------------------------------------------- */

typedef struct hr_model hr_model;

/* How weights are held in memory. NATIVE keeps the file's type where a kernel
 * for it exists; other quantized types (Q4_K, ...) become int8 blocks as Q8_0 has them. */
typedef enum hr_weights {
  HR_WEIGHTS_NATIVE,
  HR_WEIGHTS_F32,
  HR_WEIGHTS_F16,
  HR_WEIGHTS_Q8_0
} hr_weights;

/* Called now and then while a model is loaded or a prompt is evaluated, with
 * the share done so far (0 to 1). Returning false cancels; the call that was
 * under way then fails with HR_ERROR_CANCELLED. */
typedef bool hr_progress_fn(void *data, double done);

typedef struct hr_model_options {
  size_t size;               /* sizeof(hr_model_options) */
  hr_weights weights;        /* default HR_WEIGHTS_NATIVE */
  const char *isa;           /* highest kernel tier allowed ("avx2", ...); NULL: the best one */
  bool vocabulary_only;      /* read the vocabulary, no weights; sessions can't be made */
  hr_progress_fn *progress;  /* may be NULL */
  void *progress_data;
} hr_model_options;

/* Fills in the defaults, in as many bytes as the program that calls it knows, and
 * the size field. */
HR_API void hr_model_options_fill(hr_model_options *options, size_t size);
/* The same for all of them. */
static inline void hr_model_options_init(hr_model_options *options) {
  hr_model_options_fill(options, sizeof *options);
}

/* Opens a GGUF file, a .safetensors file with config.json beside it, or a
 * folder that holds both. options may be NULL. The caller owns the result and
 * frees it with hr_model_free after every session of it. NULL on failure. */
HR_API hr_model *hr_model_open(const char *path, const hr_model_options *options, hr_error *err);

/* The same for a GGUF file already in memory. The bytes are not copied: they
 * must stay unchanged until hr_model_free. name stands for the path in messages. */
HR_API hr_model *hr_model_open_memory(const void *data, size_t bytes, const char *name,
                                      const hr_model_options *options, hr_error *err);

/* NULL is allowed. */
HR_API void hr_model_free(hr_model *model);

/* Number of tokens in the vocabulary: the width of a row of logits. */
HR_API size_t hr_model_vocab_size(const hr_model *model);
/* Positions the model was trained for; 0 where the file doesn't say. */
HR_API size_t hr_model_trained_context(const hr_model *model);
/* True when generation should end after this token (end of text, of turn, ...). */
HR_API bool hr_model_is_end_token(const hr_model *model, int32_t id);
/* True when the model has a tokenizer; without one only ids go in and out. */
HR_API bool hr_model_has_tokenizer(const hr_model *model);
/* Name of the kernel tier in use ("portable", "avx512vnni", ...). */
HR_API const char *hr_model_isa(const hr_model *model);
/* The token that a text begins with when nothing else is given; -1: none. */
HR_API int32_t hr_model_start_token(const hr_model *model);
/* One sentence about weights that are not held as asked; NULL when all are. */
HR_API const char *hr_model_note(const hr_model *model);

/* --- Text and tokens ------------------------------------------------------ */

enum {
  HR_TOKENIZE_SPECIAL = 1,       /* add the tokens the model wants around a text (BOS, EOS) */
  HR_TOKENIZE_PARSE_SPECIAL = 2  /* markers such as <|im_end|> in the text become control tokens */
};

/* Turns length bytes of text (any bytes) into ids. At most capacity ids are
 * written; *count is set to the number there are, so a call with capacity 0
 * and ids NULL asks for the size. Fails without a tokenizer. */
HR_API hr_status hr_tokenize(const hr_model *model, const char *text, size_t length,
                             unsigned flags, int32_t *ids, size_t capacity, size_t *count,
                             hr_error *err);

/* The bytes that a token stands for, as they would appear inside a text; the
 * length goes to *length. Control tokens give their name when with_special is
 * true and nothing otherwise. The pointer lives as long as the model. NULL
 * with an error for an id outside the vocabulary. */
HR_API const char *hr_token_text(const hr_model *model, int32_t id, bool with_special,
                                 size_t *length, hr_error *err);

/* Turns ids into text, a token at a time, holding back a code point that is
 * split over tokens until it is whole. */
typedef struct hr_decoder hr_decoder;
HR_API hr_decoder *hr_decoder_create(const hr_model *model, hr_error *err);
HR_API void hr_decoder_free(hr_decoder *decoder);
/* Adds a token; *text and *length are the bytes that became ready (perhaps
 * none), valid until the next call on this decoder. The first token of a text
 * loses the space that the tokenizer puts before a text. */
HR_API hr_status hr_decoder_push(hr_decoder *decoder, int32_t id, const char **text,
                                 size_t *length, hr_error *err);
/* The bytes still held back, as they are. The decoder starts afresh. */
HR_API void hr_decoder_finish(hr_decoder *decoder, const char **text, size_t *length);
/* Tells the decoder that what follows continues a text (a prompt). */
HR_API void hr_decoder_continue(hr_decoder *decoder);

/* --- Sessions ------------------------------------------------------------- */

typedef struct hr_session hr_session;

typedef enum hr_cache {
  HR_CACHE_AUTO, /* f32 when all weights are F32, f16 otherwise */
  HR_CACHE_F16,
  HR_CACHE_F32
} hr_cache;

typedef struct hr_session_options {
  size_t size;              /* sizeof(hr_session_options) */
  size_t context;           /* positions; 0: what the model was trained for, at most 4096 */
  size_t chunk;             /* rows evaluated together; 0: automatic. Never changes a result. */
  hr_cache cache;           /* type of the KV cache */
  unsigned threads;         /* 0: automatic. Never changes a result. */
  unsigned threads_batch;   /* for more than one row; 0: as threads */
  bool no_pin;              /* leave threads where the system puts them */
  const char *cores;        /* "all", "performance" or a list such as "0-3,8"; NULL: automatic */
  hr_progress_fn *progress; /* called between chunks of a prompt; may be NULL */
  void *progress_data;
} hr_session_options;

HR_API void hr_session_options_fill(hr_session_options *options, size_t size);
static inline void hr_session_options_init(hr_session_options *options) {
  hr_session_options_fill(options, sizeof *options);
}

/* The model must outlive the session. The caller owns the result. */
HR_API hr_session *hr_session_create(const hr_model *model, const hr_session_options *options,
                                     hr_error *err);
/* NULL is allowed. */
HR_API void hr_session_free(hr_session *session);

typedef enum hr_logits_rows {
  HR_LOGITS_NONE, /* fill the cache only */
  HR_LOGITS_LAST, /* logits of the last token */
  HR_LOGITS_ALL   /* logits of every token of the call */
} hr_logits_rows;

/* Evaluates count tokens at the session's position and moves it forward. On
 * failure the position is what it was before, except after HR_ERROR_CANCELLED,
 * where the chunks done so far stay. HR_ERROR_CONTEXT when the tokens don't
 * fit, with both numbers in the message; HR_ERROR_NUMERIC when a logit is NaN
 * or infinite. */
HR_API hr_status hr_session_eval(hr_session *session, const int32_t *ids, size_t count,
                                 hr_logits_rows rows, hr_error *err);

/* Row i of the logits of the last call of hr_session_eval, vocab_size floats,
 * valid until the next one; NULL when there is no such row. */
HR_API const float *hr_session_logits(const hr_session *session, size_t row);

/* Tokens evaluated so far, and how many fit. */
HR_API size_t hr_session_position(const hr_session *session);
HR_API size_t hr_session_context(const hr_session *session);
/* Threads in use, for one row and for many. */
HR_API unsigned hr_session_threads(const hr_session *session);
HR_API unsigned hr_session_threads_batch(const hr_session *session);
/* The type of the KV cache, never AUTO. */
HR_API hr_cache hr_session_cache(const hr_session *session);
/* One sentence about what did not go as asked (pinning refused, ...); NULL when all did. */
HR_API const char *hr_session_warning(const hr_session *session);

/* Goes back to an earlier position: the first `position` tokens stay. */
HR_API hr_status hr_session_rewind(hr_session *session, size_t position, hr_error *err);

/* --- Choosing the next token ---------------------------------------------- */

typedef struct hr_sampler hr_sampler;

typedef struct hr_sampler_options {
  size_t size;           /* sizeof(hr_sampler_options) */
  float temperature;     /* default 0.8; 0: the largest logit, lowest id on ties */
  int32_t top_k;         /* keep the k largest; default 40, 0: all */
  float top_p;           /* keep the fewest whose probabilities sum to p; default 0.95, 1: all */
  float min_p;           /* drop those below min_p times the largest probability; default 0.05 */
  float repeat_penalty;  /* makes recent tokens less likely; default 1: does not */
  uint32_t repeat_last;  /* how many recent tokens count; default 64 */
  uint64_t seed;         /* the same seed gives the same choices on every machine */
} hr_sampler_options;

HR_API void hr_sampler_options_fill(hr_sampler_options *options, size_t size);
static inline void hr_sampler_options_init(hr_sampler_options *options) {
  hr_sampler_options_fill(options, sizeof *options);
}
HR_API hr_sampler *hr_sampler_create(const hr_model *model, const hr_sampler_options *options,
                                     hr_error *err);
HR_API void hr_sampler_free(hr_sampler *sampler);
/* Notes a token of the prompt or one just picked, for the repeat penalty. */
HR_API void hr_sampler_accept(hr_sampler *sampler, int32_t id);
/* Picks a token from vocab_size logits; -1 with HR_ERROR_NUMERIC when one is
 * NaN or infinite. The pick is not accepted by itself. */
HR_API int32_t hr_sampler_pick(hr_sampler *sampler, const float *logits, hr_error *err);

/* --- Digests -------------------------------------------------------------- */

/* FNV-1a 64 over logits as little-endian float32, any NaN as 0x7fc00000. */
#define HR_DIGEST_INIT UINT64_C(0xcbf29ce484222325)
HR_API uint64_t hr_digest(uint64_t digest, const float *logits, size_t count);

#ifdef __cplusplus
}
#endif

#endif
