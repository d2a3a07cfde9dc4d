/* SPDX-License-Identifier: MIT
 * A text to measure on: parts that have nothing to do with each other, in tokens. */
#ifndef HR_CLI_CORPUS_H
#define HR_CLI_CORPUS_H

#include "bytes.h"
#include "cli.h"

/* Why a standard error is null. */
#define CLI_ONE_CLUSTER "the text is one cluster of tokens"

typedef struct cli_part {
  int32_t *ids;
  size_t count;
} cli_part;

typedef struct cli_corpus {
  cli_part *part;
  size_t parts, capacity;
  size_t tokens;
} cli_corpus;

#define CLI_SPLIT "<|endoftext|>"

/* The text of FILE ("-" is standard input), cut at split (empty: not cut), each part
 * trimmed, with the tokens that the model puts around a text. Parts without text are
 * left out. Returns a status after printing why; cli_corpus_free frees it then too. */
int cli_corpus_from_text(cli_corpus *corpus, const cli_common *common, const hr_model *model,
                         const char *file, const char *split);
/* The same for a text in memory, called `where` in errors. */
int cli_corpus_from_bytes(cli_corpus *corpus, const hr_model *model, const char *where,
                          const cli_bytes *text, const char *split);
/* Ids as `--ids` takes them, used as they are; each line of "@FILE" is a part. */
int cli_corpus_from_ids(cli_corpus *corpus, const char *ids);
void cli_corpus_free(cli_corpus *corpus);

/* A row of logits for each session and the token that follows in the text. A status
 * other than HR_OK ends the scoring. */
typedef int cli_row_fn(void *arg, size_t part, const float *const *logits, int32_t next);

/* Where the text does not fit the context: step of the windows; 0 is half of it. */
typedef struct cli_scoring {
  hr_session *const *session; /* of models with one vocabulary, and one context */
  size_t sessions;            /* at most CLI_SCORING_SESSIONS */
  const char *const *name;    /* what errors call the model of each; NULL: there is one only */
  size_t vocab;               /* floats in a row of logits */
  size_t stride;              /* at most the context */
  size_t most;                /* scored tokens after which to stop; 0: all */
  const char *what;           /* shown with the progress; NULL: none is shown */
  double done_before, share;  /* the part of that progress which is this call's; share 0: all */
  size_t windows;             /* result: how often a session began anew */
} cli_scoring;

enum { CLI_SCORING_SESSIONS = 3 };

/* Evaluates all parts with every session and hands out the logits before each token
 * but the first of a part. A part longer than the context is taken in windows of it,
 * each token scored once, in the first window that reaches it. */
int cli_score(cli_scoring *scoring, const cli_corpus *corpus, cli_row_fn *row, void *arg);

/* Tokens that cli_score will hand out. */
size_t cli_corpus_scored(const cli_corpus *corpus);

#endif
