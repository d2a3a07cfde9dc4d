/* SPDX-License-Identifier: MIT
 * What every command does: messages, common options, opening a model. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "builtin.h"
#include "cli.h"
#include "interrupt.h"
#include "machine.h"
#include "memory.h"
#include "output.h"
#include "threads.h"

/* --- Messages ---------------------------------------------------------------- */

/* One line whatever a path or a value holds, after the output so far. */
static void print_line(const char *before, const char *format, va_list args) {
  char *text;
  cli_flush();
  if (vasprintf(&text, format, args) < 0) return;
  for (char *c = text; *c; c++)
    if ((unsigned char)*c < 0x20 || *c == 0x7f) *c = '?';
  fprintf(stderr, "%s%s\n", before, text);
  free(text);
}

int cli_fail(hr_status status, const char *format, ...) {
  va_list args;
  va_start(args, format);
  print_line("headrow: ", format, args);
  va_end(args);
  return (int)status;
}

void cli_note(const char *format, ...) {
  va_list args;
  va_start(args, format);
  print_line("", format, args);
  va_end(args);
}

int cli_fail_error(const char *where, const hr_error *err) {
  if (err->status == HR_ERROR_CANCELLED) return (int)err->status;
  if (where) return cli_fail(err->status, "%s: %s", where, err->message);
  return cli_fail(err->status, "%s", err->message);
}

int cli_fail_memory(void) {
  return cli_fail(HR_ERROR_MEMORY, "memory: not enough of it, expected room for the result");
}

/* --- Options that all commands have ------------------------------------------ */

#define AT(member) .offset = offsetof(cli_common, member)

enum { MOST_THREADS = 4096, MOST_CONTEXT = 1 << 28 };

static const char *const weight_types[] = {"native", "f32", "f16", "q8_0", NULL};
static const char *const cache_types[] = {"f16", "f32", NULL};
static const char *const log_topics[] = {"kernels", NULL};

static const cli_option common_options[] = {
    {"threads", 't', "N|auto",
     "threads for one token at a time (default auto, see info --cpu;\n"
     "environment: HEADROW_THREADS)",
     CLI_THREADS, AT(threads), .least = 1, .most = MOST_THREADS},
    {"threads-batch", 0, "N|auto", "threads for a prompt (default: as --threads when\n"
     "that is given, else auto)", CLI_THREADS,
     AT(threads_batch), .least = 1, .most = MOST_THREADS},
    {"cores", 0, "all|performance|LIST", "cores to use; a list is such as 0-3,8", CLI_TEXT,
     AT(cores)},
    {"no-pin", 0, NULL, "leave threads where the system puts them, within --cores", CLI_FLAG,
     AT(no_pin)},
    {"isa", 0, "NAME",
     "highest kernel tier to use, of those that info --cpu lists\n"
     "(environment: HEADROW_ISA)",
     CLI_TEXT, AT(isa)},
    {"ctx", 'c', "N",
     "positions that prompt and answer have together (default: what\n"
     "the model was trained for, at most 4096)",
     CLI_COUNT, AT(context), .least = 1, .most = MOST_CONTEXT},
    {"weights", 0, "TYPE", "hold matrices as native (default), f32, f16 or q8_0", CLI_CHOICE,
     AT(weights), .choices = weight_types},
    {"cache", 0, "f16|f32", "type of the KV cache (default f16; f32 when all weights are)",
     CLI_CHOICE, AT(cache), .choices = cache_types},
    {"ids", 0, "LIST|@FILE", "token ids in place of text, with commas or spaces", CLI_TEXT,
     AT(ids)},
    {"quiet", 'q', NULL, "only errors on standard error", CLI_FLAG, AT(quiet)},
    {"verbose", 'v', NULL, "say more on standard error", CLI_FLAG, AT(verbose)},
    {"log", 0, "kernels", "name the kernel in each slot on standard error", CLI_CHOICE, AT(log),
     .choices = log_topics},
};

enum { COMMON_COUNT = sizeof common_options / sizeof *common_options };

static void print_help(const cli_command *command) {
  cli_print("usage: headrow %s %s\n\n%s\n", command->name, command->arguments, command->summary);
  if (command->details) cli_print("\n%s\n", command->details);
  if (command->option_count) cli_print("\nOptions:\n");
  cli_print_options(command->options, command->option_count, NULL, 0);
  cli_print("\nCommon options:\n");
  cli_print_options(common_options, COMMON_COUNT, command->options, command->option_count);
  cli_print("  -h, --help                this text\n");
}

/* What is set but empty counts as not set. */
static const char *environment(const char *name) {
  const char *value = getenv(name);
  return value && *value ? value : NULL;
}

static bool read_environment(cli_common *common) {
  const char *threads = environment("HEADROW_THREADS"), *isa = environment("HEADROW_ISA");
  common->isa_from = "--isa";
  if (!common->isa && isa) {
    common->isa = isa;
    common->isa_from = "HEADROW_ISA";
  }
  if (common->threads.given || !threads) return true;
  return cli_read_value(&common_options[0], "HEADROW_THREADS", threads, common);
}

bool cli_start(const cli_command *command, int argc, char **argv, void *settings, int *status) {
  cli_common *common = settings;
  *status = HR_OK;
  switch (cli_read_options(command, common_options, COMMON_COUNT, argc, argv, settings,
                           &common->positional)) {
    case CLI_HELP_WANTED:
      print_help(command);
      return false;
    case CLI_BAD_USAGE:
      *status = HR_ERROR_USAGE;
      return false;
    case CLI_GO_ON:
      break;
  }
  if (!common->quiet) cli_warn_of_binding();
  if (read_environment(common)) return true;
  *status = HR_ERROR_USAGE;
  return false;
}

/* --- Models and sessions ------------------------------------------------------ */

static void log_kernel(void *data, const char *slot, const char *kernel) {
  (void)data;
  cli_note("kernel %s: %s", slot, kernel);
}

void cli_tell_about_model(const cli_common *common, const hr_model *model) {
  if (common->untold) return;
  if (common->log.given) cli_visit_kernels(hr_model_isa(model), log_kernel, NULL);
  if (common->quiet) return;
  if (hr_model_warning(model)) cli_note("warning: %s", hr_model_warning(model));
  if (hr_model_note(model)) cli_note("note: %s", hr_model_note(model));
}

void cli_threads_to_load(const cli_common *common, hr_model_options *options) {
  options->threads = (unsigned)common->threads.value;
  options->threads_batch = (unsigned)common->threads_batch.value;
  options->no_pin = common->no_pin;
  options->cores = common->cores;
}

static hr_model *open_model(const cli_common *common, const char *name, bool vocabulary_only,
                            cli_progress *progress, int *status) {
  hr_error err;
  hr_model_options options;
  hr_model_options_init(&options);
  options.weights = (hr_weights)common->weights.value;
  options.isa = common->isa;
  options.vocabulary_only = vocabulary_only;
  options.defer_weights = !vocabulary_only;
  options.progress = cli_report_progress;
  options.progress_data = progress;
  cli_threads_to_load(common, &options);
  hr_model *model;
  if (!name || strcmp(name, CLI_BUILTIN) == 0) {
    model =
        hr_model_open_memory(cli_builtin_data(), cli_builtin_bytes(), CLI_BUILTIN, &options, &err);
  } else {
    cli_catch_lost_file(name);
    model = hr_model_open(name, &options, &err);
  }
  /* The name of a tier is the only option that can still be wrong here. */
  if (!model)
    *status = cli_fail_error(err.status == HR_ERROR_USAGE ? common->isa_from : NULL, &err);
  return model;
}

hr_model *cli_plan_model(const cli_common *common, const char *name, int *status) {
  return open_model(common, name, false, NULL, status);
}

int cli_only_model(const cli_common *common, const char *other, const char **name) {
  const cli_texts *p = &common->positional;
  *name = p->count ? p->item[0] : NULL;
  if (p->count <= 1) return HR_OK;
  return cli_fail(HR_ERROR_USAGE, "%.80s: unexpected, expected one model at most%s%s", p->item[1],
                  other ? "; " : "", other ? other : "");
}

hr_model *cli_open_model(const cli_common *common, const char *name, bool vocabulary_only,
                         int *status) {
  hr_error err;
  bool show = isatty(STDERR_FILENO) && !common->quiet;
  cli_progress progress = {.what = "loading", .start = cli_now()};
  hr_model *model = open_model(common, name, vocabulary_only, show ? &progress : NULL, status);
  if (!model) return NULL;
  if (!vocabulary_only) {
    *status = cli_check_memory(common, model);
    cli_choose_threads_to_load(common, model);
    if (*status == HR_OK && hr_model_load(model, &err) != HR_OK)
      *status = cli_fail_error(NULL, &err);
    cli_end_progress(&progress);
  }
  if (*status == HR_OK) {
    cli_tell_about_model(common, model);
    return model;
  }
  hr_model_free(model);
  return NULL;
}

static void tell_about_session(const cli_common *common, const hr_model *model,
                               const hr_session *session) {
  if (common->quiet) return;
  size_t trained = hr_model_trained_context(model), context = hr_session_context(session);
  if (trained && context > trained)
    cli_note("warning: --ctx %zu is more than the %zu positions the model was trained for", context,
             trained);
  if (hr_session_warning(session)) cli_note("warning: %s", hr_session_warning(session));
  if (common->verbose)
    cli_note("context: %zu, cache: %s, threads: %u, for prompts: %u, isa: %s", context,
             hr_session_cache(session) == HR_CACHE_F16 ? "f16" : "f32", hr_session_threads(session),
             hr_session_threads_batch(session), hr_model_isa(model));
}

void cli_session_options(const cli_common *common, hr_session_options *options) {
  hr_session_options_init(options);
  options->context = (size_t)common->context.value;
  options->cache =
      common->cache.given ? (hr_cache)(common->cache.value + HR_CACHE_F16) : HR_CACHE_AUTO;
  options->threads = (unsigned)common->threads.value;
  options->threads_batch = (unsigned)common->threads_batch.value;
  options->no_pin = common->no_pin;
  options->cores = common->cores;
  options->progress = cli_report_progress;
}

hr_session *cli_open_session(const cli_common *common, const hr_model *model, int *status) {
  hr_error err;
  hr_session_options options;
  cli_session_options(common, &options);
  if (!options.context) options.context = cli_context_that_fits(common, model);
  *status = cli_choose_threads(common, model, &options.threads, &options.threads_batch);
  if (*status != HR_OK) return NULL;
  hr_session *session = hr_session_create(model, &options, &err);
  if (!session)
    *status = cli_fail_error(NULL, &err);
  else
    tell_about_session(common, model, session);
  return session;
}

/* --- Token ids ---------------------------------------------------------------- */

typedef struct id_list {
  int32_t *id;
  size_t count, capacity;
} id_list;

static bool add_id(id_list *list, int32_t id) {
  if (list->count == list->capacity) {
    size_t capacity = list->capacity ? list->capacity * 2 : 64;
    int32_t *grown = reallocarray(list->id, capacity, sizeof *grown);
    if (!grown) return false;
    list->id = grown;
    list->capacity = capacity;
  }
  list->id[list->count++] = id;
  return true;
}

/* Cuts at commas and blanks; text is changed. */
static int parse_ids(const char *where, hr_status bad, char *text, id_list *list) {
  static const char separators[] = ", \t\r\n";
  char *rest;
  for (char *word = strtok_r(text, separators, &rest); word;
       word = strtok_r(NULL, separators, &rest)) {
    uint64_t n;
    if (!cli_parse_count(word, &n) || n > INT32_MAX)
      return cli_fail(bad, "%s: '%.40s' is no token id, expected whole numbers from 0 to %d", where,
                      word, INT32_MAX);
    if (!add_id(list, (int32_t)n)) return cli_fail_memory();
  }
  if (list->count == 0) return cli_fail(bad, "%s: no ids, expected at least one", where);
  return HR_OK;
}

int cli_read_ids(const char *where, const char *text, int32_t **ids, size_t *count) {
  cli_bytes bytes = {0};
  id_list list = {0};
  bool file = text[0] == '@';
  int status = file ? cli_read_file(text + 1, &bytes) : HR_OK;
  if (status == HR_OK && !cli_bytes_add(&bytes, text, file ? 0 : strlen(text)))
    status = cli_fail_memory();
  for (size_t i = 0; i < bytes.used; i++)
    if (!bytes.data[i]) bytes.data[i] = '?'; /* a NUL would hide what follows */
  if (status == HR_OK && !cli_bytes_add(&bytes, "", 1)) status = cli_fail_memory();
  if (status == HR_OK)
    status = parse_ids(file ? text + 1 : where, file ? HR_ERROR_FILE : HR_ERROR_USAGE, bytes.data,
                       &list);
  cli_bytes_free(&bytes);
  if (status != HR_OK) {
    free(list.id);
    return status;
  }
  *ids = list.id;
  *count = list.count;
  return HR_OK;
}

void cli_warn_of_stray_bytes(const cli_common *common, const char *what, const char *text,
                             size_t length) {
  size_t at = common->quiet ? length : cli_find_stray_byte(text, length);
  if (at < length)
    cli_note("warning: %s: byte 0x%02x at offset %zu is no UTF-8; where the vocabulary has no "
             "token for it, U+FFFD stands in its place",
             what, (unsigned char)text[at], at);
}

/* Room for capacity ids, of which the first *count are then those of the text. */
static int tokenize_into(const hr_model *model, const char *text, size_t length, unsigned flags,
                         size_t capacity, int32_t **ids, size_t *count) {
  hr_error err;
  int32_t *room = reallocarray(*ids, capacity, sizeof *room);
  if (!room) return cli_fail_memory();
  *ids = room;
  return hr_tokenize(model, text, length, flags, room, capacity, count, &err) == HR_OK
             ? HR_OK
             : cli_fail_error(NULL, &err);
}

/* A token is a byte of the text or more, but for those around it and for texts that grow in
 * normalization: these are tokenized again. */
int cli_tokenize(const hr_model *model, const char *text, size_t length, unsigned flags,
                 int32_t **ids, size_t *count) {
  size_t capacity = length + 16;
  *ids = NULL;
  int status = tokenize_into(model, text, length, flags, capacity, ids, count);
  if (status == HR_OK && *count > capacity)
    status = tokenize_into(model, text, length, flags, *count, ids, count);
  if (status != HR_OK) {
    free(*ids);
    *ids = NULL;
    return status;
  }
  int32_t *fitting = reallocarray(*ids, *count + 1, sizeof **ids);
  if (fitting) *ids = fitting;
  return HR_OK;
}
