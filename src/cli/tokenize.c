/* SPDX-License-Identifier: MIT
 * headrow tokenize and detokenize. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"
#include "output.h"
#include "texts.h"

typedef struct settings {
  cli_common common;
  const char *file;
  bool pieces, no_special, parse_special, json;
} settings;

#define AT(member) .offset = offsetof(settings, member)

static const cli_option options[] = {
    {"file", 'f', "FILE", "the text is in FILE, - for standard input; every byte counts", CLI_TEXT,
     AT(file)},
    {"pieces", 0, NULL, "a line for each token: its id and its text in quotes", CLI_FLAG,
     AT(pieces)},
    {"no-special", 0, NULL, "leave out what the model puts around a text (BOS, EOS)", CLI_FLAG,
     AT(no_special)},
    {"parse-special", 0, NULL, "markers such as <|im_end|> in the text are control tokens",
     CLI_FLAG, AT(parse_special)},
    {"json", 0, NULL, "one JSON document: ids and pieces", CLI_FLAG, AT(json)},
};

/* --- Which argument is what --------------------------------------------------- */

typedef struct input {
  const char *model; /* NULL: built-in */
  cli_bytes text;
} input;

/* A lone argument is the model when it names one, else the text. */
static int find_input(const settings *s, input *in) {
  const cli_texts *p = &s->common.positional;
  const char *text = NULL;
  if (p->count > 2 || (p->count == 2 && s->file))
    return cli_fail(HR_ERROR_USAGE, "%.80s: unexpected, expected a model and one text",
                    p->item[p->count - 1]);
  if (p->count == 2) text = p->item[1];
  if (p->count == 1 && !s->file && !cli_names_model(p->item[0])) text = p->item[0];
  if (p->count && text != p->item[0]) in->model = p->item[0];
  if (text) return cli_bytes_add(&in->text, text, strlen(text)) ? HR_OK : cli_fail_memory();
  if (s->file) return cli_read_file(s->file, &in->text);
  if (isatty(STDIN_FILENO))
    return cli_fail(
        HR_ERROR_USAGE,
        "text: none given, expected one as argument, with -f FILE or on standard input");
  return cli_read_input(&in->text, s->common.quiet);
}

/* --- tokenize ----------------------------------------------------------------- */

/* Control tokens by their name; others by what they say. */
static const char *piece_of(const hr_model *model, int32_t id, size_t *length) {
  const char *text = hr_token_text(model, id, true, length, NULL);
  return text ? text : "";
}

static void print_ids(const hr_model *model, const int32_t *ids, size_t count, bool pieces) {
  for (size_t i = 0; i < count; i++) {
    if (!pieces) {
      cli_print(i ? " %d" : "%d", ids[i]);
      continue;
    }
    size_t length;
    const char *piece = piece_of(model, ids[i], &length);
    cli_print("%d ", ids[i]);
    cli_print_quoted(piece, length);
    cli_print("\n");
  }
  if (!pieces) cli_print("\n");
}

static int print_json(const hr_model *model, const int32_t *ids, size_t count) {
  json_t *numbers = json_array(), *pieces = json_array();
  for (size_t i = 0; i < count; i++) {
    size_t length;
    const char *piece = piece_of(model, ids[i], &length);
    json_array_append_new(numbers, json_integer(ids[i]));
    json_array_append_new(pieces, cli_json_text(piece, length));
  }
  return cli_print_json(json_pack("{s:o, s:o}", "ids", numbers, "pieces", pieces));
}

static int tokenize(const settings *s, const input *in) {
  int status = HR_OK;
  hr_model *model = cli_open_model(&s->common, in->model, true, &status);
  if (!model) return status;
  unsigned flags = (s->no_special ? 0 : HR_TOKENIZE_SPECIAL) |
                   (s->parse_special ? HR_TOKENIZE_PARSE_SPECIAL : 0);
  int32_t *ids = NULL;
  size_t count;
  cli_warn_of_stray_bytes(&s->common, "text", in->text.data, in->text.used);
  status =
      cli_tokenize(model, in->text.data ? in->text.data : "", in->text.used, flags, &ids, &count);
  if (status == HR_OK && s->json)
    status = print_json(model, ids, count);
  else if (status == HR_OK)
    print_ids(model, ids, count, s->pieces);
  free(ids);
  hr_model_free(model);
  return status;
}

static int tokenize_command(const cli_command *command, int argc, char **argv) {
  settings s = {0};
  input in = {0};
  int status;
  if (!cli_start(command, argc, argv, &s, &status)) return status;
  if (s.common.ids)
    return cli_fail(HR_ERROR_USAGE,
                    "--ids: has no use here, expected a text; see 'headrow detokenize'");
  status = find_input(&s, &in);
  if (status == HR_OK) status = tokenize(&s, &in);
  cli_bytes_free(&in.text);
  return status;
}

const cli_command cli_tokenize_command = {
    .name = "tokenize",
    .arguments = "[MODEL] [TEXT | -f FILE] [options]",
    .summary = "turn a text into token ids",
    .details =
        "Prints the ids on one line. A lone argument is the model when it is 'builtin' or names\n"
        "a file, and the text otherwise. Without a text, standard input is read.",
    .options = options,
    .option_count = sizeof options / sizeof *options,
    .run = tokenize_command,
};

/* --- detokenize --------------------------------------------------------------- */

static int decode(const hr_model *model, const int32_t *ids, size_t count, cli_bytes *text) {
  hr_error err;
  const char *piece;
  size_t length;
  int status = HR_OK;
  hr_decoder *decoder = hr_decoder_create(model, &err);
  if (!decoder) return cli_fail_error(NULL, &err);
  for (size_t i = 0; i < count && status == HR_OK; i++) {
    if (hr_decoder_push(decoder, ids[i], &piece, &length, &err) != HR_OK)
      status = cli_fail_error("ids", &err);
    else if (!cli_bytes_add(text, piece, length))
      status = cli_fail_memory();
  }
  hr_decoder_finish(decoder, &piece, &length);
  if (status == HR_OK && !cli_bytes_add(text, piece, length)) status = cli_fail_memory();
  hr_decoder_free(decoder);
  return status;
}

static int detokenize(const cli_common *common, const char *name, const int32_t *ids,
                      size_t count) {
  int status = HR_OK;
  hr_model *model = cli_open_model(common, name, true, &status);
  if (!model) return status;
  cli_bytes text = {0};
  status = decode(model, ids, count, &text);
  /* The text and nothing else, so that it can be compared; a person gets a line. */
  if (status == HR_OK) {
    cli_write(text.data, text.used);
    if (isatty(STDOUT_FILENO)) cli_print("\n");
  }
  cli_bytes_free(&text);
  hr_model_free(model);
  return status;
}

/* The ids among the arguments, from `first` on, as one list. */
static int join_ids(const cli_texts *arguments, size_t first, cli_bytes *list) {
  for (size_t i = first; i < arguments->count; i++)
    if (!cli_bytes_add(list, arguments->item[i], strlen(arguments->item[i])) ||
        !cli_bytes_add(list, " ", 1))
      return cli_fail_memory();
  return cli_bytes_add(list, "", 1) ? HR_OK : cli_fail_memory();
}

static int detokenize_command(const cli_command *command, int argc, char **argv) {
  cli_common common = {0};
  int status;
  if (!cli_start(command, argc, argv, &common, &status)) return status;
  const cli_texts *p = &common.positional;
  /* The first argument is the model unless it holds ids. */
  bool has_model = p->count && p->item[0][strspn(p->item[0], "0123456789, ")] != '\0';
  size_t first = has_model ? 1 : 0;
  if (common.ids && p->count > first)
    return cli_fail(HR_ERROR_USAGE, "ids: given twice, expected them as arguments or with --ids");
  if (!common.ids && p->count == first)
    return cli_fail(HR_ERROR_USAGE, "ids: none given, expected some as arguments or with --ids");
  cli_bytes list = {0};
  int32_t *ids = NULL;
  size_t count = 0;
  status = common.ids ? HR_OK : join_ids(p, first, &list);
  if (status == HR_OK)
    status = cli_read_ids(common.ids ? "--ids" : "ids", common.ids ? common.ids : list.data, &ids,
                          &count);
  if (status == HR_OK) status = detokenize(&common, has_model ? p->item[0] : NULL, ids, count);
  cli_bytes_free(&list);
  free(ids);
  return status;
}

const cli_command cli_detokenize_command = {
    .name = "detokenize",
    .arguments = "[MODEL] ID... | --ids LIST|@FILE [options]",
    .summary = "turn token ids into the text they stand for",
    .details = "Prints the bytes of the text and nothing else. Control tokens say nothing.",
    .run = detokenize_command,
};
