/* SPDX-License-Identifier: MIT
 * Many texts for one model: from arguments or the lines of a file, as tokens,
 * and in batches. */
#ifndef HR_CLI_TEXTS_H
#define HR_CLI_TEXTS_H

#include "cli.h"
#include "output.h"

typedef struct cli_text {
  const char *text; /* NULL: ids only */
  size_t length;
  int32_t *ids, *types; /* types may be NULL */
  size_t count;
} cli_text;

typedef struct cli_text_list {
  cli_text *item;
  size_t count, capacity;
  cli_bytes file; /* what the texts of a file point into */
} cli_text_list;

/* True when an argument names a model: 'builtin', a model's ending, or what exists. */
bool cli_names_model(const char *argument);

/* The arguments from first on, or the lines of a file ("-": standard input; NULL
 * and no arguments: standard input where it is no terminal). Returns a status. */
int cli_find_texts(const cli_common *common, size_t first, const char *file, cli_text_list *list);
bool cli_add_text(cli_text_list *list, const char *text, size_t length);
/* One text of the common option --ids, with the segments of --types (NULL: all 0).
 * Returns a status. */
int cli_add_ids(const cli_common *common, const char *types, cli_text_list *list);
#define CLI_TYPES_HELP                                                        \
  "segment of each of --ids (token types): 0 and 1 in a pair of texts;\n" \
  "default: all 0"
/* Tokens that a text may have: what the session holds, or less where the model's files say so
 * and --ctx does not. *by_files tells which. */
size_t cli_text_limit(const cli_common *common, const hr_model *model, const hr_session *session,
                      bool *by_files);
void cli_free_texts(cli_text_list *list);

/* What the scores of the model's classifier are called; null where its files do not say. */
json_t *cli_json_labels(const hr_model *model);

/* Called with what the session holds of items [begin, begin + count) of the list;
 * returns a status. */
typedef int cli_encoded_fn(void *data, const hr_session *session, const cli_text_list *list,
                           size_t begin, size_t count);

/* Encodes all texts of the list in batches and hands each batch over, in order. */
int cli_encode(const cli_common *common, hr_session *session, const cli_text_list *list,
               cli_encoded_fn *take, void *data);

#endif
