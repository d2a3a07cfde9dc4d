/* SPDX-License-Identifier: MIT
 * headrow rerank: how well texts answer a query, by a model with a ranking head. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "output.h"
#include "texts.h"

typedef struct settings {
  cli_common common;
  const char *query, *file, *types;
  bool truncate, sort, json;
} settings;

#define AT(member) .offset = offsetof(settings, member)

static const cli_option options[] = {
    {"query", 'q', "TEXT", "what the texts are scored for", CLI_TEXT, AT(query)},
    {"file", 'f', "FILE", "a text on each line of FILE, - for standard input", CLI_TEXT, AT(file)},
    {"types", 0, "LIST|@FILE", CLI_TYPES_HELP, CLI_TEXT, AT(types)},
    {"truncate", 0, NULL,
     "cut a text that with the query is longer than the context or the\n"
     "length in the model's files, and say so; the query is never cut",
     CLI_FLAG, AT(truncate)},
    {"sort", 0, NULL, "best first (default: in the order given)", CLI_FLAG, AT(sort)},
    {"json", 0, NULL, "a line of JSON for each text", CLI_FLAG, AT(json)},
};

/* --- Scores --------------------------------------------------------------------- */

/* Takes tokens of the text away from its end; what stands around it stays. */
static int cut(const hr_model *model, cli_text *t, size_t limit) {
  int32_t *inner;
  size_t length;
  int status = cli_tokenize(model, t->text, t->length, 0, &inner, &length);
  if (status != HR_OK) return status;
  size_t after = 0; /* the text comes last, so that it is looked for from the end on */
  while (after + length < t->count &&
         memcmp(t->ids + t->count - after - length, inner, length * sizeof *inner) != 0)
    after++;
  free(inner);
  if (t->count - limit >= length)
    return cli_fail(HR_ERROR_CONTEXT,
                    "--truncate: %zu tokens at most, expected more than the %zu of the query and "
                    "around the texts",
                    limit, t->count - length);
  memmove(t->ids + limit - after, t->ids + t->count - after, after * sizeof *t->ids);
  memmove(t->types + limit - after, t->types + t->count - after, after * sizeof *t->types);
  t->count = limit;
  return HR_OK;
}

static int fit(const settings *s, const hr_model *model, cli_text *t, size_t number, size_t limit,
               bool by_files) {
  size_t whole = t->count;
  if (whole <= limit) return HR_OK;
  if (!s->truncate)
    return cli_fail(HR_ERROR_CONTEXT,
                    "text %zu: has %zu tokens with the query, expected at most %zu%s; --truncate "
                    "cuts it",
                    number, whole, limit,
                    by_files ? ", as the model's files say (-c allows more)" : "");
  int status = cut(model, t, limit);
  if (status == HR_OK && !s->common.quiet)
    cli_note("warning: text %zu was cut, with the query from %zu to %zu tokens", number, whole,
             limit);
  return status;
}

static int tokenize_pair(const settings *s, const hr_model *model, cli_text *t, size_t number,
                         size_t limit, bool by_files) {
  hr_error err;
  size_t query = strlen(s->query);
  char name[32];
  snprintf(name, sizeof name, "text %zu", number);
  cli_warn_of_stray_bytes(&s->common, name, t->text, t->length);
  if (hr_tokenize_pair(model, s->query, query, t->text, t->length, NULL, NULL, 0, &t->count,
                       &err) != HR_OK)
    return cli_fail_error(NULL, &err);
  t->ids = calloc(t->count + 1, sizeof *t->ids);
  t->types = calloc(t->count + 1, sizeof *t->types);
  if (!t->ids || !t->types) return cli_fail_memory();
  if (hr_tokenize_pair(model, s->query, query, t->text, t->length, t->ids, t->types, t->count,
                       &t->count, &err) != HR_OK)
    return cli_fail_error(NULL, &err);
  return fit(s, model, t, number, limit, by_files);
}

static int keep_scores(void *data, const hr_session *session, const cli_text_list *list,
                       size_t begin, size_t count) {
  float *scores = data;
  (void)list;
  for (size_t i = 0; i < count; i++) scores[begin + i] = hr_session_scores(session, i)[0];
  return HR_OK;
}

typedef struct place {
  float score;
  size_t index;
} place;

/* Best first, equal ones in their order. */
static int compare_places(const void *a, const void *b) {
  const place *x = a, *y = b;
  if (x->score != y->score) return x->score > y->score ? -1 : 1;
  return x->index < y->index ? -1 : 1;
}

static int print_scores(const settings *s, const cli_text_list *list, const float *scores) {
  place *places = calloc(list->count, sizeof *places);
  if (!places) return cli_fail_memory();
  for (size_t i = 0; i < list->count; i++) places[i] = (place){scores[i], i};
  if (s->sort) qsort(places, list->count, sizeof *places, compare_places);
  int status = HR_OK;
  for (size_t i = 0; i < list->count && status == HR_OK; i++) {
    const cli_text *t = &list->item[places[i].index];
    if (s->json) {
      status = cli_print_json(json_pack("{s:I, s:f, s:o}", "index", (json_int_t)places[i].index,
                                        "score", (double)places[i].score, "text",
                                        t->text ? cli_json_text(t->text, t->length)
                                                : json_null()));
    } else {
      cli_print("%.9g%s", (double)places[i].score, t->text ? "\t" : "");
      cli_write(t->text, t->length);
      cli_print("\n");
    }
  }
  free(places);
  return status;
}

static int rerank(const settings *s, const hr_model *model, cli_text_list *list) {
  int status = HR_OK;
  if (hr_model_classes(model) != 1)
    return cli_fail(HR_ERROR_FILE, "%s: its head gives %zu scores, expected a ranking head with 1",
                    s->common.positional.item[0], hr_model_classes(model));
  hr_session *session = cli_open_session(&s->common, model, &status);
  if (!session) return status;
  if (s->query) cli_warn_of_stray_bytes(&s->common, "query", s->query, strlen(s->query));
  bool by_files;
  size_t limit = cli_text_limit(&s->common, model, session, &by_files);
  for (size_t i = 0; i < list->count && status == HR_OK && !s->common.ids; i++)
    status = tokenize_pair(s, model, &list->item[i], i + 1, limit, by_files);
  float *scores = calloc(list->count, sizeof *scores);
  if (status == HR_OK && !scores) status = cli_fail_memory();
  if (status == HR_OK) status = cli_encode(&s->common, session, list, keep_scores, scores);
  if (status == HR_OK) status = print_scores(s, list, scores);
  free(scores);
  hr_session_free(session);
  return status;
}

/* A pair by its ids is one text, and has no query. */
static int find_pairs(const settings *s, cli_text_list *list) {
  if (s->common.ids && (s->query || s->file || s->common.positional.count > 1))
    return cli_fail(HR_ERROR_USAGE, "--ids: given beside a text, expected one of them");
  if (s->common.ids) return cli_add_ids(&s->common, s->types, list);
  if (s->types)
    return cli_fail(HR_ERROR_USAGE, "--types: given without ids, expected --ids with it");
  if (!s->query) return cli_fail(HR_ERROR_USAGE, "--query: none given, expected a text");
  return cli_find_texts(&s->common, 1, s->file, list);
}

static int rerank_command(const cli_command *command, int argc, char **argv) {
  settings s = {0};
  cli_text_list list = {0};
  int status;
  if (!cli_start(command, argc, argv, &s, &status)) return status;
  if (s.common.positional.count == 0)
    return cli_fail(HR_ERROR_USAGE, "MODEL: none given, expected one with a ranking head");
  status = find_pairs(&s, &list);
  hr_model *model = status == HR_OK ? cli_open_model(&s.common, s.common.positional.item[0], false,
                                                     &status)
                                    : NULL;
  if (model) status = rerank(&s, model, &list);
  hr_model_free(model);
  cli_free_texts(&list);
  return status;
}

const cli_command cli_rerank_command = {
    .name = "rerank",
    .arguments = "MODEL -q QUERY [TEXT...] [-f FILE] | --ids LIST [options]",
    .summary = "score texts for a query",
    .details =
        "Prints a line for each text: its score, a tab, the text. Higher is better; a model's\n"
        "scores are compared with each other only. Without texts, the lines of standard input\n"
        "are read. --ids gives one pair as it is, with the tokens around it. For 'quiet' write\n"
        "--quiet: -q is the query here.",
    .options = options,
    .option_count = sizeof options / sizeof *options,
    .run = rerank_command,
};
