/* SPDX-License-Identifier: MIT
 * Private to src/engine, and the door through which `info`, `bench` and the
 * tests look behind the public API. */
#ifndef HR_ENGINE_ENGINE_H
#define HR_ENGINE_ENGINE_H

#include <headrow/headrow.h>
#include <string.h>

#include "block/forward.h"
#include "model/chat_texts.h"
#include "model/load.h"
#include "model/vocab.h"
#include "text/tokenizer.h"

struct hr_model {
  char *path;
  hr_kernels kernels;
  hr_model_options options; /* strings in it are not the caller's */
  char *cores;              /* options.cores */
  hr_source *source;        /* open until the weights are packed; longer where they are mapped */
  hr_loaded loaded;         /* not for vocabulary_only */
  bool is_planned;          /* loaded holds description and sizes */
  bool has_weights;
  hr_tokenizer *tokenizer;  /* NULL: ids only */
  hr_vocab_storage vocab;
  size_t token_count;       /* tokens with a text */
  hr_vocab_kind vocab_kind;
  int32_t start_token;      /* -1: none */
  int32_t end_token;        /* EOS; -1: none */
  hr_chat_texts chat;       /* the templates of its files */
};

struct hr_session {
  const hr_model *model;
  hr_team *team;
  hr_workspace *workspace;
  hr_kv_cache cache;
  size_t context, chunk;
  size_t sequences;
  size_t *position;         /* [sequences] */
  float *logits;            /* of the last call */
  size_t logits_rows, logits_capacity;
  struct hr_encoded *encoded; /* of the last call of hr_session_encode, or NULL */
  struct hr_batch *batch;     /* of hr_session_eval_batch, once it was called */
  hr_progress_fn *progress;
  void *progress_data;
  bool crowded; /* for tests: passes take all threads, also where they are more than the CPUs */
};

/* Forgets what hr_session_encode made. */
void hr_session_forget_encoded(hr_session *session);
/* NULL is allowed. */
void hr_batch_free(struct hr_batch *batch);

/* Whether the tokens are in the vocabulary and fit behind a position. */
hr_status hr_session_check_ids(const hr_session *session, size_t position, const int32_t *ids,
                               size_t count, hr_error *err);
/* Whether the session's model gives the logits that are asked for. */
hr_status hr_session_check_rows(const hr_session *session, hr_logits_rows rows, hr_error *err);
/* Room for rows of logits in session->logits. */
hr_status hr_session_make_room(hr_session *session, size_t rows, hr_error *err);
/* Whether a row of logits is finite; the message names the token's position. */
hr_status hr_session_check_logits(const hr_session *session, size_t row, size_t position,
                                  hr_error *err);
/* How many threads a pass of one row or of many takes: hr_team_active. */
unsigned hr_session_active(const hr_session *session, bool many);
/* One pass, by as many. */
hr_status hr_session_forward(hr_session *session, const hr_request *request, hr_error *err);

/* What a session takes when its options leave it open, and the threads that pay for one token
 * at a time. */
size_t hr_default_context(const hr_description *d);
unsigned hr_threads_worth(const hr_transformer *t);

/* Whether none of n floats is NaN or infinite. By their bits: compilers make
 * vectors of that, which a token's time notices with large vocabularies. */
static inline bool hr_all_finite(const float *x, size_t n) {
  int32_t bad = 0;
  for (size_t i = 0; i < n; i++) {
    int32_t bits;
    memcpy(&bits, &x[i], sizeof bits);
    bad |= (bits & INT32_MAX) > 0x7f7fffff;
  }
  return bad == 0;
}

#endif
