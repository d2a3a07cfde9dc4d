/* SPDX-License-Identifier: MIT
 * headrow logits: what the model thinks may come next. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"
#include "output.h"
#include "save.h"

typedef struct settings {
  cli_common common;
  const char *prompt, *file, *npy;
  cli_count top;
  bool all, no_special, parse_special, json;
} settings;

#define AT(member) .offset = offsetof(settings, member)

static const cli_option options[] = {
    {"prompt", 'p', "TEXT", "the text", CLI_TEXT, AT(prompt)},
    {"file", 'f', "FILE", "the text is in FILE, - for standard input; every byte counts", CLI_TEXT,
     AT(file)},
    {"all", 0, NULL, "of every position (default: of the last one)", CLI_FLAG, AT(all)},
    {"top", 0, "K", "lines of 'id piece logit' of the K largest", CLI_COUNT, AT(top), .least = 1,
     .most = INT32_MAX},
    {"npy", 0, "FILE",
     "write a NumPy file, float32 [positions][vocabulary]; - for standard\n"
     "output",
     CLI_TEXT, AT(npy)},
    {"no-special", 0, NULL, "leave out what the model puts around a text (BOS, EOS)", CLI_FLAG,
     AT(no_special)},
    {"parse-special", 0, NULL, "markers such as <|im_end|> in the text are control tokens",
     CLI_FLAG, AT(parse_special)},
    {"json", 0, NULL, "one JSON document", CLI_FLAG, AT(json)},
};

/* What is to be printed: rows of logits of the positions from `first` on. */
typedef struct result {
  const settings *set;
  const hr_model *model;
  const hr_session *session;
  const int32_t *ids;
  size_t first, count, vocab;
} result;

/* --- The largest --------------------------------------------------------------- */

typedef struct candidate {
  float logit;
  int32_t id;
} candidate;

/* Largest logit first, lowest id among equals. */
static int compare(const void *a, const void *b) {
  const candidate *x = a, *y = b;
  if (x->logit != y->logit) return x->logit > y->logit ? -1 : 1;
  return x->id < y->id ? -1 : x->id > y->id;
}

/* All candidates of a row, sorted; to be freed. */
static candidate *sorted(const float *logits, size_t vocab) {
  candidate *c = calloc(vocab, sizeof *c);
  if (!c) return NULL;
  for (size_t i = 0; i < vocab; i++) c[i] = (candidate){logits[i], (int32_t)i};
  qsort(c, vocab, sizeof *c, compare);
  return c;
}

static const char *piece_of(const hr_model *model, int32_t id, size_t *length) {
  const char *text = hr_token_text(model, id, true, length, NULL);
  return text ? text : "";
}

static size_t wanted(const result *r) {
  if (!r->set->top.given || r->set->top.value > r->vocab) return r->vocab;
  return (size_t)r->set->top.value;
}

/* --- Text ---------------------------------------------------------------------- */

static int print_top(const result *r, const float *logits) {
  candidate *c = sorted(logits, r->vocab);
  if (!c) return cli_fail_memory();
  for (size_t i = 0; i < wanted(r); i++) {
    size_t length;
    const char *piece = piece_of(r->model, c[i].id, &length);
    cli_print("%d ", c[i].id);
    cli_print_quoted(piece, length);
    cli_print(" %.9g\n", (double)c[i].logit);
  }
  free(c);
  return HR_OK;
}

static int print_text(const result *r) {
  int status = HR_OK;
  for (size_t row = 0; row < r->count && status == HR_OK; row++) {
    const float *logits = hr_session_logits(r->session, row);
    if (r->set->top.given) {
      if (r->set->all) cli_print("position %zu\n", r->first + row);
      status = print_top(r, logits);
      continue;
    }
    for (size_t i = 0; i < r->vocab; i++) cli_print(i ? " %.9g" : "%.9g", (double)logits[i]);
    cli_print("\n");
  }
  return status;
}

/* --- JSON ---------------------------------------------------------------------- */

static json_t *json_top(const result *r, const float *logits) {
  candidate *c = sorted(logits, r->vocab);
  if (!c) return NULL;
  json_t *list = json_array();
  for (size_t i = 0; i < wanted(r); i++) {
    size_t length;
    const char *piece = piece_of(r->model, c[i].id, &length);
    json_array_append_new(
        list, json_pack("{s:i, s:o, s:f}", "id", c[i].id, "piece", cli_json_text(piece, length),
                        "logit", (double)c[i].logit));
  }
  free(c);
  return list;
}

static int print_json(const result *r) {
  json_t *positions = json_array();
  for (size_t row = 0; row < r->count; row++) {
    const float *logits = hr_session_logits(r->session, row);
    json_t *values = r->set->top.given ? json_top(r, logits) : json_array();
    for (size_t i = 0; !r->set->top.given && i < r->vocab; i++)
      json_array_append_new(values, json_real((double)logits[i]));
    json_t *one = json_pack("{s:I, s:i, s:o}", "position", (json_int_t)(r->first + row), "id",
                            r->ids[r->first + row], r->set->top.given ? "top" : "logits", values);
    json_array_append_new(positions, one);
  }
  return cli_print_json(
      json_pack("{s:I, s:o}", "vocabulary", (json_int_t)r->vocab, "positions", positions));
}

/* --- NumPy --------------------------------------------------------------------- */

enum { NPY_START = 10, NPY_ALIGN = 64 };

/* Magic, version 1.0, length of the rest, and a dictionary with blanks up to a
 * multiple of 64. Returns the bytes written. */
static size_t npy_header(const result *r, unsigned char header[256]) {
  char text[160];
  int n =
      snprintf(text, sizeof text, "{'descr': '<f4', 'fortran_order': False, 'shape': (%zu, %zu), }",
               r->count, r->vocab);
  size_t total = (NPY_START + (size_t)n + 1 + NPY_ALIGN - 1) / NPY_ALIGN * NPY_ALIGN;
  memset(header, ' ', total);
  memcpy(header, "\x93NUMPY\x01\x00", 8);
  header[8] = (unsigned char)(total - NPY_START);
  header[9] = 0;
  memcpy(header + NPY_START, text, (size_t)n);
  header[total - 1] = '\n';
  return total;
}

static void put_f32(float x, unsigned char out[4]) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  for (int i = 0; i < 4; i++) out[i] = (unsigned char)(bits >> 8 * i);
}

/* To standard output when save is NULL. */
static void put(cli_save *save, const unsigned char *bytes, size_t count) {
  if (save)
    (void)cli_save_write(save, bytes, count); /* cli_save_end tells */
  else
    cli_write((const char *)bytes, count);
}

static void write_npy(const result *r, cli_save *save) {
  enum { BLOCK = 1 << 14 };
  unsigned char block[BLOCK];
  size_t used = npy_header(r, block);
  for (size_t row = 0; row < r->count; row++) {
    const float *logits = hr_session_logits(r->session, row);
    for (size_t i = 0; i < r->vocab; i++) {
      put_f32(logits[i], block + used);
      used += 4;
      if (used < BLOCK) continue;
      put(save, block, used);
      used = 0;
    }
  }
  put(save, block, used);
}

static int save_npy(const result *r) {
  const char *path = r->set->npy;
  if (strcmp(path, "-") == 0) {
    write_npy(r, NULL);
    return HR_OK;
  }
  cli_save save;
  int status = cli_save_begin(&save, path, r->count * r->vocab * sizeof(float));
  if (status != HR_OK) return status;
  write_npy(r, &save);
  return cli_save_end(&save);
}

/* --- From start to end ---------------------------------------------------------- */

static int read_text(const settings *s, cli_bytes *text) {
  if (s->prompt)
    return cli_bytes_add(text, s->prompt, strlen(s->prompt)) ? HR_OK : cli_fail_memory();
  if (s->file) return cli_read_file(s->file, text);
  if (s->common.ids) return HR_OK;
  if (isatty(STDIN_FILENO))
    return cli_fail(HR_ERROR_USAGE, "text: none given, expected one of -p, -f and --ids");
  return cli_read_input(text, s->common.quiet);
}

static int find_ids(const settings *s, const hr_model *model, int32_t **ids, size_t *count) {
  if (s->common.ids) return cli_read_ids("--ids", s->common.ids, ids, count);
  cli_bytes text = {0};
  unsigned flags = (s->no_special ? 0 : HR_TOKENIZE_SPECIAL) |
                   (s->parse_special ? HR_TOKENIZE_PARSE_SPECIAL : 0);
  int status = read_text(s, &text);
  if (status == HR_OK) cli_warn_of_stray_bytes(&s->common, "text", text.data, text.used);
  if (status == HR_OK)
    status = cli_tokenize(model, text.data ? text.data : "", text.used, flags, ids, count);
  cli_bytes_free(&text);
  if (status == HR_OK && *count == 0)
    status = cli_fail(HR_ERROR_USAGE, "text: has no tokens, expected at least one");
  return status;
}

static int print_result(const result *r) {
  int status = r->set->npy ? save_npy(r) : HR_OK;
  if (status != HR_OK) return status;
  if (r->set->json) return print_json(r);
  if (r->set->npy && !r->set->top.given) return HR_OK;
  return print_text(r);
}

static int show(const settings *s, const hr_model *model, const int32_t *ids, size_t count) {
  int status = HR_OK;
  hr_session *session = cli_open_session(&s->common, model, &status);
  if (!session) return status;
  hr_error err;
  size_t context = hr_session_context(session);
  if (count > context)
    status = cli_fail(HR_ERROR_CONTEXT,
                      "text: %zu tokens, expected at most %zu: the context holds no more (--ctx)",
                      count, context);
  else if (hr_session_eval(session, ids, count, s->all ? HR_LOGITS_ALL : HR_LOGITS_LAST, &err) !=
           HR_OK)
    status = cli_fail_error(err.status == HR_ERROR_USAGE && s->common.ids ? "--ids" : NULL, &err);
  else
    status = print_result(&(result){.set = s,
                                    .model = model,
                                    .session = session,
                                    .ids = ids,
                                    .first = s->all ? 0 : count - 1,
                                    .count = s->all ? count : 1,
                                    .vocab = hr_model_vocab_size(model)});
  hr_session_free(session);
  return status;
}

static int logits_command(const cli_command *command, int argc, char **argv) {
  settings s = {0};
  int status;
  if (!cli_start(command, argc, argv, &s, &status)) return status;
  const char *name;
  status = cli_only_model(&s.common, "a text comes after -p", &name);
  if (status != HR_OK) return status;
  if (!!s.prompt + !!s.file + !!s.common.ids > 1)
    return cli_fail(HR_ERROR_USAGE, "text: given more than once, expected one of -p, -f and --ids");
  if (s.npy && strcmp(s.npy, "-") == 0 && (s.json || s.top.given))
    return cli_fail(HR_ERROR_USAGE,
                    "--npy: - is standard output, expected a file there beside --json or --top");
  hr_model *model = cli_open_model(&s.common, name, false, &status);
  if (!model) return status;
  int32_t *ids = NULL;
  size_t count = 0;
  status = find_ids(&s, model, &ids, &count);
  if (status == HR_OK) status = show(&s, model, ids, count);
  free(ids);
  hr_model_free(model);
  return status;
}

const cli_command cli_logits_command = {
    .name = "logits",
    .arguments = "[MODEL] -p TEXT | -f FILE | --ids LIST [options]",
    .summary = "print or save the logits of a text",
    .details =
        "Without --top, --npy and --json each position is a line of numbers, one for each token\n"
        "of the vocabulary. With --all and --top, 'position N' stands before each block of lines.",
    .options = options,
    .option_count = sizeof options / sizeof *options,
    .run = logits_command,
};
