/* SPDX-License-Identifier: MIT
 * What the commands share: messages, and settings that all of them have. */
#ifndef HR_CLI_CLI_H
#define HR_CLI_CLI_H

#include <headrow/headrow.h>

#include "options.h"

/* Prints "headrow: " and one line to stderr; returns status. */
int cli_fail(hr_status status, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The same for an error of the library; where (may be NULL) goes before it.
 * Cancelled calls print nothing. */
int cli_fail_error(const char *where, const hr_error *err);
int cli_fail_memory(void);
/* A line on stderr that is no error. */
void cli_note(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Options that every command has. A command's settings begin with this. */
typedef struct cli_common {
  cli_texts positional;
  cli_count threads, threads_batch;
  const char *cores;
  bool no_pin;
  const char *isa;
  const char *isa_from; /* the option or variable that gave it, for messages */
  cli_count context;
  cli_choice weights; /* hr_weights */
  cli_choice cache;   /* hr_cache - 1 */
  const char *ids;
  bool quiet, verbose;
  bool untold; /* no option: nothing is told of a model that is loaded once more */
  cli_choice log;
} cli_common;

/* Reads arguments and environment into settings, which begin with a cli_common.
 * False: the command is to end at once with *status. */
bool cli_start(const cli_command *command, int argc, char **argv, void *settings, int *status);

/* The one model that the arguments may name, NULL where they name none. `other` tells where what
 * a second may have been meant for belongs; NULL: nowhere. Returns a status. */
int cli_only_model(const cli_common *common, const char *other, const char **name);
/* The model of that name, NULL for the built-in one. NULL after printing why,
 * which may be that it does not fit the memory there is. */
hr_model *cli_open_model(const cli_common *common, const char *name, bool vocabulary_only,
                         int *status);
/* The same without weights; what is known about it is not told yet. */
hr_model *cli_plan_model(const cli_common *common, const char *name, int *status);
/* Kernels (--log) and notes, on stderr. */
void cli_tell_about_model(const cli_common *common, const hr_model *model);
/* NULL after printing why. Warnings are printed too. Without --ctx the context
 * is what the memory there is has room for, at most the default. */
hr_session *cli_open_session(const cli_common *common, const hr_model *model, int *status);

/* What the common options ask of a session; 0 positions when they leave that open. */
void cli_session_options(const cli_common *common, hr_session_options *options);

/* Which threads are to pack the weights: those that are asked for to run them. */
void cli_threads_to_load(const cli_common *common, hr_model_options *options);

/* Token ids from "1,2 3" or "@FILE"; *ids is to be freed. Returns a status. */
int cli_read_ids(const char *where, const char *text, int32_t **ids, size_t *count);
/* Text to ids; *ids is to be freed. */
int cli_tokenize(const hr_model *model, const char *text, size_t length, unsigned flags,
                 int32_t **ids, size_t *count);

/* Tells where a text for a model is no UTF-8, unless --quiet is given: what a vocabulary has
 * no token for becomes another. */
void cli_warn_of_stray_bytes(const cli_common *common, const char *what, const char *text,
                             size_t length);

/* The commands. */
extern const cli_command cli_run_command;
extern const cli_command cli_chat_command;
extern const cli_command cli_tokenize_command;
extern const cli_command cli_detokenize_command;
extern const cli_command cli_logits_command;
extern const cli_command cli_embed_command;
extern const cli_command cli_rerank_command;
extern const cli_command cli_info_command;
extern const cli_command cli_bench_command;
extern const cli_command cli_compare_command;
extern const cli_command cli_perplexity_command;
extern const cli_command cli_pack_command;
extern const cli_command cli_accuracy_command;
extern const cli_command cli_quantize_command;

#endif
