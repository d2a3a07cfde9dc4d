/* SPDX-License-Identifier: MIT
 * headrow embed: one vector for each text. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "output.h"
#include "texts.h"

typedef struct settings {
  cli_common common;
  const char *file, *types;
  cli_choice pooling;
  bool no_normalize, scores, truncate, json;
} settings;

#define AT(member) .offset = offsetof(settings, member)

static const char *const poolings[] = {"model", "mean", "cls", "last", NULL};

static const cli_option options[] = {
    {"file", 'f', "FILE", "a text on each line of FILE, - for standard input", CLI_TEXT, AT(file)},
    {"pooling", 0, "model|mean|cls|last",
     "how the rows of a text become one vector: their mean, the first or\n"
     "the last; default: as the model was trained",
     CLI_CHOICE, AT(pooling), .choices = poolings},
    {"types", 0, "LIST|@FILE", CLI_TYPES_HELP, CLI_TEXT, AT(types)},
    {"no-normalize", 0, NULL, "leave the vector's length as it is (default: length 1)", CLI_FLAG,
     AT(no_normalize)},
    {"scores", 0, NULL,
     "the scores of the model's classifier in place of the vector; what\n"
     "they are called is told on standard error",
     CLI_FLAG, AT(scores)},
    {"truncate", 0, NULL,
     "cut a text that is longer than the context or the length in the\n"
     "model's files, and say so",
     CLI_FLAG, AT(truncate)},
    {"json", 0, NULL, "a line of JSON for each text", CLI_FLAG, AT(json)},
};

/* --- Tokens --------------------------------------------------------------------- */

/* Where the text's own tokens begin among those the model puts around it. */
static size_t find_inner(const int32_t *whole, size_t count, const int32_t *inner, size_t length) {
  for (size_t at = 0; at + length <= count; at++)
    if (memcmp(whole + at, inner, length * sizeof *inner) == 0) return at;
  return count - length; /* the tokenizer joins them: keep what follows */
}

/* Leaves the tokens around the text and takes its own away from the end; of ids the last go. */
static int cut(const hr_model *model, cli_text *t, size_t limit) {
  int32_t *inner;
  size_t length;
  if (!t->text) {
    t->count = limit;
    return HR_OK;
  }
  int status = cli_tokenize(model, t->text, t->length, 0, &inner, &length);
  if (status != HR_OK) return status;
  size_t before = find_inner(t->ids, t->count, inner, length);
  size_t after = t->count - before - length;
  free(inner);
  if (before + after >= limit)
    return cli_fail(HR_ERROR_CONTEXT,
                    "--truncate: %zu tokens at most, expected more than the %zu around a text",
                    limit, before + after);
  memmove(t->ids + limit - after, t->ids + t->count - after, after * sizeof *t->ids);
  t->count = limit;
  return HR_OK;
}

/* What may be too long, for messages. */
typedef struct limit {
  size_t tokens;
  bool by_files;
} limit;

static int fit(const settings *s, const hr_model *model, cli_text *t, size_t number, limit most) {
  size_t whole = t->count;
  char name[32] = "--ids";
  if (t->text) snprintf(name, sizeof name, "text %zu", number);
  if (whole <= most.tokens) return HR_OK;
  if (!s->truncate)
    return cli_fail(HR_ERROR_CONTEXT,
                    "%s: has %zu tokens, expected at most %zu%s; --truncate cuts %s", name, whole,
                    most.tokens, most.by_files ? ", as the model's files say (-c allows more)" : "",
                    t->text ? "it" : "the last");
  int status = cut(model, t, most.tokens);
  if (status == HR_OK && !s->common.quiet)
    cli_note("warning: %s was cut from %zu to %zu tokens", name, whole, most.tokens);
  return status;
}

static int tokenize_all(const settings *s, const hr_model *model, cli_text_list *list,
                        limit most) {
  for (size_t i = 0; i < list->count; i++) {
    cli_text *t = &list->item[i];
    char name[32];
    snprintf(name, sizeof name, "text %zu", i + 1);
    cli_warn_of_stray_bytes(&s->common, name, t->text, t->length);
    int status = t->text ? cli_tokenize(model, t->text, t->length, HR_TOKENIZE_SPECIAL, &t->ids,
                                        &t->count)
                         : HR_OK;
    if (status == HR_OK && t->text && t->count == 0)
      status =
          cli_fail(HR_ERROR_USAGE, "text %zu: has no tokens, expected at least one", i + 1);
    if (status == HR_OK) status = fit(s, model, t, i + 1, most);
    if (status != HR_OK) return status;
  }
  return HR_OK;
}

/* --- Vectors --------------------------------------------------------------------- */

typedef struct printer {
  const settings *settings;
  const hr_model *model;
  hr_pooling pooling;
  float *vector; /* [width] */
  size_t width;  /* numbers of a line */
} printer;

static int print_json(const printer *p, const cli_text *t) {
  json_t *numbers = json_array();
  for (size_t k = 0; k < p->width; k++)
    json_array_append_new(numbers, json_real((double)p->vector[k]));
  json_t *line = json_pack(
      "{s:o, s:I, s:o}", "text", t->text ? cli_json_text(t->text, t->length) : json_null(),
      "tokens", (json_int_t)t->count, p->settings->scores ? "scores" : "embedding", numbers);
  if (p->settings->scores) json_object_set_new(line, "labels", cli_json_labels(p->model));
  return cli_print_json(line);
}

/* The columns of the lines to come, where the model's files name them. */
static int tell_labels(const hr_model *model) {
  cli_bytes line = {0};
  bool good = true;
  for (size_t i = 0; good && i < hr_model_classes(model); i++) {
    const char *label = hr_model_label(model, i);
    good = label && cli_bytes_add(&line, i ? ", " : "", i ? 2 : 0) &&
           cli_bytes_add(&line, label, strlen(label));
  }
  good = good && cli_bytes_add(&line, "", 1);
  if (good) cli_note("scores: %s", line.data);
  cli_bytes_free(&line);
  return good || !hr_model_label(model, 0) ? HR_OK : cli_fail_memory();
}

static hr_status fill_vector(const printer *p, const hr_session *session, size_t text,
                             hr_error *err) {
  if (!p->settings->scores)
    return hr_session_embedding(session, text, p->pooling, !p->settings->no_normalize, p->vector,
                                err);
  memcpy(p->vector, hr_session_scores(session, text), p->width * sizeof *p->vector);
  return HR_OK;
}

static int print_vectors(void *data, const hr_session *session, const cli_text_list *list,
                         size_t begin, size_t count) {
  printer *p = data;
  for (size_t i = 0; i < count; i++) {
    hr_error err;
    if (fill_vector(p, session, i, &err) != HR_OK) return cli_fail_error(NULL, &err);
    if (p->settings->json) {
      int status = print_json(p, &list->item[begin + i]);
      if (status != HR_OK) return status;
      continue;
    }
    for (size_t k = 0; k < p->width; k++)
      cli_print(k ? " %.9g" : "%.9g", (double)p->vector[k]);
    cli_print("\n");
  }
  cli_flush_soon();
  return HR_OK;
}

static int choose_pooling(const settings *s, const hr_model *model, hr_pooling *pooling) {
  static const hr_pooling named[] = {HR_POOLING_NONE, HR_POOLING_MEAN, HR_POOLING_CLS,
                                     HR_POOLING_LAST};
  *pooling = s->pooling.value ? named[s->pooling.value] : hr_model_pooling(model);
  if (*pooling != HR_POOLING_NONE) return HR_OK;
  return cli_fail(HR_ERROR_USAGE,
                  "--pooling: the model does not say how its rows are pooled, expected mean, cls "
                  "or last");
}

static int embed(const settings *s, const hr_model *model, cli_text_list *list) {
  printer p = {.settings = s,
               .model = model,
               .width = s->scores ? hr_model_classes(model) : hr_model_width(model)};
  if (p.width == 0)
    return cli_fail(HR_ERROR_USAGE, "--scores: the model has no classifier, expected one that has");
  int status = s->scores ? HR_OK : choose_pooling(s, model, &p.pooling);
  if (status == HR_OK && s->scores && !s->json && !s->common.quiet) status = tell_labels(model);
  if (status != HR_OK) return status;
  hr_session *session = cli_open_session(&s->common, model, &status);
  if (!session) return status;
  limit most;
  most.tokens = cli_text_limit(&s->common, model, session, &most.by_files);
  status = tokenize_all(s, model, list, most);
  p.vector = calloc(p.width, sizeof *p.vector);
  if (status == HR_OK && !p.vector) status = cli_fail_memory();
  if (status == HR_OK) status = cli_encode(&s->common, session, list, print_vectors, &p);
  free(p.vector);
  hr_session_free(session);
  return status;
}

static int find_texts(const settings *s, size_t first, cli_text_list *list) {
  if (!s->common.ids && s->types)
    return cli_fail(HR_ERROR_USAGE, "--types: given without ids, expected --ids with it");
  if (!s->common.ids) return cli_find_texts(&s->common, first, s->file, list);
  if (s->file || s->common.positional.count > first)
    return cli_fail(HR_ERROR_USAGE, "--ids: given beside a text, expected one of them");
  return cli_add_ids(&s->common, s->types, list);
}

static int embed_command(const cli_command *command, int argc, char **argv) {
  settings s = {0};
  cli_text_list list = {0};
  int status;
  if (!cli_start(command, argc, argv, &s, &status)) return status;
  const cli_texts *p = &s.common.positional;
  bool has_model = p->count && (s.file || s.common.ids || cli_names_model(p->item[0]));
  status = find_texts(&s, has_model, &list);
  hr_model *model =
      status == HR_OK ? cli_open_model(&s.common, has_model ? p->item[0] : NULL, false, &status)
                      : NULL;
  if (model && !has_model && p->count && strchr(p->item[0], '/') && !s.common.quiet)
    cli_note("note: %.200s: there is no such file, taken as a text for the built-in model",
             p->item[0]);
  if (model) status = embed(&s, model, &list);
  hr_model_free(model);
  cli_free_texts(&list);
  return status;
}

const cli_command cli_embed_command = {
    .name = "embed",
    .arguments = "[MODEL] [TEXT...] [-f FILE] [options]",
    .summary = "turn texts into vectors",
    .details =
        "Prints a line of numbers for each text. The first argument is the model when it is\n"
        "'builtin' or names a file. Without texts, the lines of standard input are read. Texts\n"
        "share passes through the model; each has the bits that it has alone.",
    .options = options,
    .option_count = sizeof options / sizeof *options,
    .run = embed_command,
};
