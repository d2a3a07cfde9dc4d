/* SPDX-License-Identifier: MIT
 *
 * headrow: Transformer models on ordinary CPUs.
 *
 * A model is opened once, is immutable from then on (from hr_model_load on, where its
 * weights were deferred) and may be shared by any number of sessions and threads. A
 * session is one sequence of tokens with its KV cache, or several that share passes;
 * it is used by one thread at a time.
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
#include <time.h>

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
 * under way then fails with HR_ERROR_CANCELLED. Calls do not overlap. Of a prompt they come
 * from the thread that evaluates it; while a model is loaded they may come from a thread
 * of the library, pinned to a CPU and with all signals blocked. */
typedef bool hr_progress_fn(void *data, double done);

typedef struct hr_model_options {
  size_t size;               /* sizeof(hr_model_options) */
  hr_weights weights;        /* default HR_WEIGHTS_NATIVE */
  const char *isa;           /* highest kernel tier allowed ("avx2", ...); NULL: the best one */
  bool vocabulary_only;      /* read the vocabulary, no weights; sessions can't be made */
  hr_progress_fn *progress;  /* may be NULL */
  void *progress_data;
  bool defer_weights;        /* leave the weights to hr_model_load; see hr_model_memory */
  unsigned threads;          /* that pack the weights, and where they run: give what sessions of */
  unsigned threads_batch;    /* the model will be given (hr_session_options), so that each of    */
  bool no_pin;               /* their threads finds its weights in memory that is near to it.    */
  const char *cores;         /* Never changes a result. cores is copied */
} hr_model_options;

/* Fills in the defaults, in as many bytes as the program that calls it knows, and
 * the size field. */
HR_API void hr_model_options_fill(hr_model_options *options, size_t size);
/* The same for all of them. */
static inline void hr_model_options_init(hr_model_options *options) {
  hr_model_options_fill(options, sizeof *options);
}

/* Opens a GGUF file, a packed one too, a .safetensors file with config.json
 * beside it, or a folder that holds both; with vocabulary_only also a tokenizer's own
 * file (tokenizer.json, or SentencePiece's .model), or a folder of it without weights.
 * options may be NULL. The caller owns
 * the result and frees it with hr_model_free after every session of it. NULL on
 * failure.
 *
 * Files are mapped: while they are read, and for a packed file as long as the
 * model lives. One that another program makes shorter meanwhile raises SIGBUS, as
 * any mapping does; the library installs no handler. Replace model files by
 * renaming, never by writing into them. */
HR_API hr_model *hr_model_open(const char *path, const hr_model_options *options, hr_error *err);

/* The same for a GGUF file already in memory. The bytes are not copied: they
 * must stay unchanged until hr_model_free. name stands for the path in messages. */
HR_API hr_model *hr_model_open_memory(const void *data, size_t bytes, const char *name,
                                      const hr_model_options *options, hr_error *err);

/* Packs the weights of a model opened with defer_weights; its files must not
 * have changed. No other call on the model may run meanwhile. After a failure the model
 * can only be freed. Nothing to do, and HR_OK, for a model that has them. */
HR_API hr_status hr_model_load(hr_model *model, hr_error *err);

/* NULL is allowed. */
HR_API void hr_model_free(hr_model *model);

/* How the rows of a text become one vector. */
typedef enum hr_pooling {
  HR_POOLING_NONE, /* the file doesn't say */
  HR_POOLING_MEAN,
  HR_POOLING_CLS,  /* the first row */
  HR_POOLING_LAST
} hr_pooling;

/* Number of tokens in the vocabulary: the width of a row of logits. */
HR_API size_t hr_model_vocab_size(const hr_model *model);
/* Positions the model was trained for; 0 where the file doesn't say. */
HR_API size_t hr_model_trained_context(const hr_model *model);
/* Tokens of a text that is to become one vector or score, where the model's files say less than
 * that, else 0. Sessions don't hold to it. */
HR_API size_t hr_model_text_limit(const hr_model *model);
/* Width of the embedding: of a row of hidden states. */
HR_API size_t hr_model_width(const hr_model *model);
/* False for encoders without a language-model head: they give hidden states only. Known
 * before hr_model_load; false too for a model opened for its vocabulary only. */
HR_API bool hr_model_has_logits(const hr_model *model);
/* The pooling that the model was trained with. */
HR_API hr_pooling hr_model_pooling(const hr_model *model);
/* Kinds of segment that hr_session_encode takes; 0: none. */
HR_API size_t hr_model_types(const hr_model *model);
/* Scores that the model's classifier gives; 0: it has none. One is a ranking head. */
HR_API size_t hr_model_classes(const hr_model *model);
/* What the score number `index` is for, owned by the model; NULL when its files do not say. */
HR_API const char *hr_model_label(const hr_model *model, size_t index);
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
/* One sentence about what the model's files leave open or ask for of texts and is
 * not done, so that ids may be others than those of its training; NULL: nothing. */
HR_API const char *hr_model_warning(const hr_model *model);

/* --- Text and tokens ------------------------------------------------------ */

enum {
  HR_TOKENIZE_SPECIAL = 1,       /* add the tokens the model wants around a text (BOS, EOS) */
  HR_TOKENIZE_PARSE_SPECIAL = 2  /* markers such as <|im_end|> in the text become control tokens */
};

/* Turns length bytes of text (any bytes) into ids. At most capacity ids are
 * written; *count is set to the number there are, so a call with capacity 0
 * and ids NULL asks for the size. flags are those above. Fails without a tokenizer.
 * Bytes that no UTF-8 has (0xc0, 0xc1, 0xf5 and above) are U+FFFD where a vocabulary of
 * bytes has no token for them. */
HR_API hr_status hr_tokenize(const hr_model *model, const char *text, size_t length,
                             unsigned flags, int32_t *ids, size_t capacity, size_t *count,
                             hr_error *err);

/* Turns two texts into one sequence, in the form that models with a head for pairs are
 * trained on: a query and a document for a ranking model. types[i] is the segment that
 * token i belongs to. Writes and counts as hr_tokenize does; both arrays hold capacity
 * numbers. Fails where the model's tokenizer has no such form. */
HR_API hr_status hr_tokenize_pair(const hr_model *model, const char *first, size_t first_length,
                                  const char *second, size_t second_length, int32_t *ids,
                                  int32_t *types, size_t capacity, size_t *count, hr_error *err);

/* The bytes that a token stands for, as they would appear inside a text; the
 * length goes to *length. Control tokens give their name when with_special is
 * true and nothing otherwise. The pointer lives as long as the model. NULL
 * with an error for an id outside the vocabulary. */
HR_API const char *hr_token_text(const hr_model *model, int32_t id, bool with_special,
                                 size_t *length, hr_error *err);

/* Turns ids into text, a token at a time, holding back a code point that is
 * split over tokens until it is whole. The model must outlive it. */
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

/* --- Conversations -------------------------------------------------------- */

/* Turns a conversation into the prompt that a model was trained on, by a chat
 * template: the model's own, a known one, or one given as text. Templates are
 * Jinja, as far as chat templates use it (docs/chat.md). A chat is used by one
 * thread at a time. */
typedef struct hr_chat hr_chat;

typedef struct hr_chat_message {
  const char *role;    /* "system", "user", "assistant", ...: trusted, it becomes part of markers */
  const char *content; /* any bytes; not trusted: no marker in it becomes a control token */
  size_t length;       /* bytes of content */
} hr_chat_message;

/* template_name is one of the names below; NULL: the model's own template, its
 * default where it has several. The model must outlive the chat. NULL with
 * HR_ERROR_FILE when the model has no template, the name is not known, or the
 * template can't be read; the message lists the names. */
HR_API hr_chat *hr_chat_create(const hr_model *model, const char *template_name, hr_error *err);
/* From the text of a template, which is copied. name stands for it in messages. */
HR_API hr_chat *hr_chat_create_from_text(const hr_model *model, const char *text, size_t length,
                                         const char *name, hr_error *err);
/* NULL is allowed. */
HR_API void hr_chat_free(hr_chat *chat);

/* Names for hr_chat_create: first those in the model's file ("default",
 * "tool_use", ...), then "chatml", "llama3" and others that every model can be
 * given. NULL past the end. The strings live as long as the model. */
HR_API const char *hr_chat_template_name(const hr_model *model, size_t index);
/* What a model is to write at the end of its answer under a template of
 * hr_chat_create ("<|im_end|>"); NULL where that is its end token or not known. */
HR_API const char *hr_chat_turn_end(const hr_chat *chat);

typedef struct hr_chat_options {
  size_t size;                /* sizeof(hr_chat_options) */
  bool no_generation_prompt;  /* true: without the start of the answer to come */
  const char *variables;      /* more variables of the template, a JSON object as text; may be
                               * NULL. `messages` among them is used when no messages are given. */
  const struct tm *now;       /* for templates that state the date; NULL: those fail */
} hr_chat_options;

HR_API void hr_chat_options_fill(hr_chat_options *options, size_t size);
static inline void hr_chat_options_init(hr_chat_options *options) {
  hr_chat_options_fill(options, sizeof *options);
}

/* A prompt, valid until the next call on the same chat. */
typedef struct hr_chat_prompt {
  const char *text;
  size_t length;
  const int32_t *ids; /* NULL when the model has no tokenizer */
  size_t count;
} hr_chat_prompt;

/* Renders the messages and makes ids of the result: the template's own markers
 * are control tokens, there is one BOS where the model wants one, and no EOS at
 * the end. options may be NULL. HR_ERROR_USAGE when the template refuses the
 * conversation (roles that don't alternate, no system role, ...), HR_ERROR_FILE
 * with line and construct when it can't be run. */
HR_API hr_status hr_chat_render(hr_chat *chat, const hr_chat_message *messages, size_t count,
                                const hr_chat_options *options, hr_chat_prompt *prompt,
                                hr_error *err);

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
  bool no_pin;              /* leave threads where the system puts them, within cores */
  const char *cores;        /* "all", "performance" or a list such as "0-3,8"; NULL: automatic */
  hr_progress_fn *progress; /* called between chunks of a prompt; may be NULL */
  void *progress_data;
  size_t sequences;         /* side by side, each with a context of its own; 0: one */
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

/* Bytes of memory that a model and one session of it take. */
typedef struct hr_memory {
  size_t size;    /* sizeof(hr_memory) */
  size_t weights; /* 0 for a packed file */
  size_t mapped;  /* weights of a packed file: its pages, which the system may drop and reread */
  size_t cache;   /* keys and values */
  size_t work;    /* buffers of a pass */
  size_t context; /* positions that this is for */
} hr_memory;

/* Sets the size, in the program's own header. */
static inline void hr_memory_init(hr_memory *memory) {
  memory->size = sizeof *memory;
}

/* The sum is known from the header of the file: the model may have been opened
 * with defer_weights. options (NULL: the defaults) are those of the session; where
 * they leave the number of threads open, it is that of the CPUs. The same errors
 * as hr_session_create for options that are not valid. memory->size must be
 * set (hr_memory_init); members past it are not written. */
HR_API hr_status hr_model_memory(const hr_model *model, const hr_session_options *options,
                                 hr_memory *memory, hr_error *err);

typedef enum hr_logits_rows {
  HR_LOGITS_NONE, /* fill the cache only */
  HR_LOGITS_LAST, /* logits of the last token */
  HR_LOGITS_ALL   /* logits of every token of the call, which cost more than their memory: a
                     causal model's tokens without logits need no more of the last layer than
                     its keys and values */
} hr_logits_rows;

/* Evaluates count tokens at the session's position and moves it forward. On
 * failure the position is what it was before, except after HR_ERROR_CANCELLED,
 * where the chunks done so far stay. HR_ERROR_CONTEXT when the tokens don't
 * fit, with both numbers in the message; HR_ERROR_NUMERIC when a logit is NaN
 * or infinite. */
HR_API hr_status hr_session_eval(hr_session *session, const int32_t *ids, size_t count,
                                 hr_logits_rows rows, hr_error *err);

/* Row i of the logits of the last call of hr_session_eval or hr_session_eval_batch,
 * vocab_size floats, valid until the next call of these or of hr_session_encode; NULL when
 * there is no such row, as after one that failed. */
HR_API const float *hr_session_logits(const hr_session *session, size_t row);

/* Tokens that one of a session's sequences goes on with. */
typedef struct hr_batch_piece {
  size_t sequence;    /* below the number in the session's options */
  const int32_t *ids; /* [count] */
  size_t count;       /* at least 1 */
} hr_batch_piece;

/* hr_session_eval for several sequences at once: every piece goes behind what its
 * sequence holds, and all share passes, so that the weights are read once for all of
 * them. A sequence may have one piece or none in a call; prompts and single tokens mix.
 * Each gets the bits of logits that it gets alone. HR_LOGITS_LAST: row i is that of
 * piece i; HR_LOGITS_ALL: the pieces' rows, one behind the other. Fails as
 * hr_session_eval does, for all sequences. Models that see both ways take texts by
 * hr_session_encode. hr_session_eval itself is about sequence 0. */
HR_API hr_status hr_session_eval_batch(hr_session *session, const hr_batch_piece *pieces,
                                       size_t count, hr_logits_rows rows, hr_error *err);

/* A text to encode. types are the kinds of segment of the tokens, NULL for all 0:
 * BERT's are 0 for the first and 1 for the second of two texts. */
typedef struct hr_tokens {
  const int32_t *ids;   /* [count] */
  const int32_t *types; /* [count] or NULL */
  size_t count;         /* at least 1, at most the session's context */
} hr_tokens;

/* Evaluates whole texts, each from position 0 and by itself, for their hidden states;
 * what the session held before is gone. Texts of any lengths share passes, and each has
 * the bits that it has alone. Fails as hr_session_eval does; the session is then empty,
 * as it is after more than one text. */
HR_API hr_status hr_session_encode(hr_session *session, const hr_tokens *texts, size_t text_count,
                                   hr_error *err);

/* What hr_session_encode made, valid until the next call on this session; NULL when
 * there is none. Of a text's token: the row behind the last layer and its norm, width
 * floats; rows of a text lie one behind the other. Of a text: the first row behind the
 * model's pooler, width floats, or that row itself where it has none (encoders only);
 * the classifier's scores, as many as classes. */
HR_API const float *hr_session_hidden(const hr_session *session, size_t text, size_t row);
HR_API const float *hr_session_pooled(const hr_session *session, size_t text);
HR_API const float *hr_session_scores(const hr_session *session, size_t text);

/* One vector for a text: its rows pooled (mean: summed in their order, then divided),
 * and with normalize divided by its length, which is summed in double precision. out has
 * width floats. A vector of zeros stays as it is. */
HR_API hr_status hr_session_embedding(const hr_session *session, size_t text, hr_pooling pooling,
                                      bool normalize, float *out, hr_error *err);

/* Tokens evaluated so far, of sequence 0 or of another (0 for one that is not there), and
 * how many fit in each. */
HR_API size_t hr_session_position(const hr_session *session);
HR_API size_t hr_session_position_of(const hr_session *session, size_t sequence);
HR_API size_t hr_session_context(const hr_session *session);
/* Threads of the session, for one row and for many. Of more than there are CPUs that they may
 * use, or than a CPU quota is worth, only as many as those work; hr_session_warning says so. */
HR_API unsigned hr_session_threads(const hr_session *session);
HR_API unsigned hr_session_threads_batch(const hr_session *session);
/* The type of the KV cache, never AUTO. */
HR_API hr_cache hr_session_cache(const hr_session *session);
/* One sentence about what did not go as asked (pinning refused, more threads than CPUs, ...);
 * NULL when all did. */
HR_API const char *hr_session_warning(const hr_session *session);

/* Goes back to an earlier position of sequence 0 or of another: its first `position` tokens
 * stay. An error when it has fewer, or when the sequence is not there. */
HR_API hr_status hr_session_rewind(hr_session *session, size_t position, hr_error *err);
HR_API hr_status hr_session_rewind_sequence(hr_session *session, size_t sequence, size_t position,
                                            hr_error *err);

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
/* The model must outlive the sampler. HR_ERROR_USAGE for one without a vocabulary. */
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
