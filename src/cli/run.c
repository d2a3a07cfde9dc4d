/* SPDX-License-Identifier: MIT
 * headrow run: generates text after a prompt. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"
#include "interrupt.h"
#include "output.h"
#include "sampling.h"
#include "stops.h"

typedef struct settings {
  cli_common common;
  const char *prompt, *file;
  cli_count limit;
  cli_sampling sampling;
  bool echo, ignore_eos, no_stream, parse_special, digest, json;
} settings;

#define AT(member) .offset = offsetof(settings, member)

static const cli_option options[] = {
    {"prompt", 'p', "TEXT", "the prompt", CLI_TEXT, AT(prompt)},
    {"file", 'f', "FILE",
     "read the prompt from FILE, - for standard input; one newline at\n"
     "its end is not part of it",
     CLI_TEXT, AT(file)},
    {"predict", 'n', "N", "at most N tokens (default: until the end token or the context's end)",
     CLI_COUNT, AT(limit), .least = 0, .most = INT32_MAX},
    CLI_SAMPLING_OPTIONS(settings, sampling),
    {"echo", 0, NULL, "print the prompt before the answer", CLI_FLAG, AT(echo)},
    {"ignore-eos", 0, NULL, "go on after an end token", CLI_FLAG, AT(ignore_eos)},
    {"no-stream", 0, NULL, "print when all is there", CLI_FLAG, AT(no_stream)},
    {"parse-special", 0, NULL, "markers such as <|im_end|> in the prompt are control tokens",
     CLI_FLAG, AT(parse_special)},
    {"digest", 0, NULL, "print a digest of the logits on standard error", CLI_FLAG, AT(digest)},
    {"json", 0, NULL, "one JSON document instead of text", CLI_FLAG, AT(json)},
};

typedef enum finish {
  FINISH_LENGTH,
  FINISH_EOS,
  FINISH_STOP,
  FINISH_CONTEXT,
  FINISH_INTERRUPTED
} finish;
static const char *const finish_names[] = {"length", "eos", "stop", "context", "interrupted"};

/* All that a run owns. */
typedef struct run {
  settings set;
  cli_bytes prompt;
  hr_model *model;
  hr_session *session;
  hr_sampler *sampler;
  hr_decoder *decoder; /* NULL: ids are printed */
  int32_t *ids;        /* prompt, then what was generated */
  size_t prompt_count, count, capacity;
  cli_stops stops;
  cli_bytes ready; /* text that may be printed */
  cli_bytes text;  /* all of it, for --json and --no-stream */
  bool keep_text;
  uint64_t seed, digest;
  finish finish;
  double prompt_seconds, generate_seconds;
} run;

/* --- Prompt ------------------------------------------------------------------ */

/* Editors end a file with a newline that nobody means. */
static void drop_last_newline(cli_bytes *text) {
  if (text->used && text->data[text->used - 1] == '\n') text->used--;
}

static int read_prompt(run *r) {
  const settings *s = &r->set;
  if (!!s->prompt + !!s->file + !!s->common.ids > 1)
    return cli_fail(HR_ERROR_USAGE,
                    "prompt: given more than once, expected one of -p, -f and --ids");
  if (s->prompt)
    return cli_bytes_add(&r->prompt, s->prompt, strlen(s->prompt)) ? HR_OK : cli_fail_memory();
  if (s->common.ids) return cli_read_ids("--ids", s->common.ids, &r->ids, &r->prompt_count);
  int status = HR_OK;
  if (s->file)
    status = cli_read_file(s->file, &r->prompt);
  else if (!isatty(STDIN_FILENO))
    status = cli_read_input(&r->prompt, s->common.quiet);
  drop_last_newline(&r->prompt);
  return status;
}

/* Without any text a model begins with its start token. */
static int start_without_prompt(run *r) {
  int32_t start = hr_model_start_token(r->model);
  if (start < 0)
    return cli_fail(HR_ERROR_USAGE,
                    "prompt: is empty, expected a text: the model has no start token");
  r->ids[0] = start;
  r->prompt_count = 1;
  return HR_OK;
}

static int tokenize_prompt(run *r) {
  if (r->set.common.ids) return HR_OK;
  unsigned flags = HR_TOKENIZE_SPECIAL | (r->set.parse_special ? HR_TOKENIZE_PARSE_SPECIAL : 0);
  cli_warn_of_stray_bytes(&r->set.common, "prompt", r->prompt.data, r->prompt.used);
  int status = cli_tokenize(r->model, r->prompt.data ? r->prompt.data : "", r->prompt.used, flags,
                            &r->ids, &r->prompt_count);
  if (status == HR_OK && r->prompt_count == 0) status = start_without_prompt(r);
  return status;
}

static int check_length(const run *r) {
  size_t context = hr_session_context(r->session);
  if (r->prompt_count <= context) return HR_OK;
  return cli_fail(HR_ERROR_CONTEXT,
                  "prompt: %zu tokens, expected at most %zu: the context holds no more (--ctx)",
                  r->prompt_count, context);
}

/* --- Output ------------------------------------------------------------------ */

static int emit_ready(run *r) {
  if (r->keep_text) {
    if (!cli_bytes_add(&r->text, r->ready.data, r->ready.used)) return cli_fail_memory();
  } else {
    cli_write(r->ready.data, r->ready.used);
    cli_flush_soon();
  }
  r->ready.used = 0;
  return HR_OK;
}

/* Bytes of the answer; *stopped when they complete a stop text. */
static int emit(run *r, const char *text, size_t length, bool *stopped) {
  if (!cli_stops_add(&r->stops, text, length, &r->ready, stopped)) return cli_fail_memory();
  return emit_ready(r);
}

static int emit_token(run *r, int32_t id, bool *stopped) {
  if (r->decoder) {
    hr_error err;
    const char *text;
    size_t length;
    if (hr_decoder_push(r->decoder, id, &text, &length, &err) != HR_OK)
      return cli_fail_error(NULL, &err);
    return emit(r, text, length, stopped);
  }
  char number[16];
  int n = snprintf(number, sizeof number, "%s%d", r->count > r->prompt_count + 1 ? " " : "", id);
  return emit(r, number, (size_t)n, stopped);
}

static int emit_end(run *r) {
  const char *text = "";
  size_t length = 0;
  bool stopped = r->finish == FINISH_STOP;
  int status = HR_OK;
  if (r->decoder) hr_decoder_finish(r->decoder, &text, &length);
  if (stopped) return HR_OK; /* nothing after a stop text */
  status = emit(r, text, length, &stopped);
  if (status == HR_OK && stopped) r->finish = FINISH_STOP;
  if (status == HR_OK && !cli_stops_end(&r->stops, &r->ready)) status = cli_fail_memory();
  return status == HR_OK ? emit_ready(r) : status;
}

/* The prompt as text: as it was given, or what its ids say. Afterwards the
 * decoder knows whether the answer continues a text. */
static int echo_prompt(run *r) {
  cli_bytes text = {0};
  hr_error err;
  int status = HR_OK;
  const char *piece;
  size_t length;
  for (size_t i = 0; r->set.common.ids && r->decoder && i < r->prompt_count; i++) {
    if (hr_decoder_push(r->decoder, r->ids[i], &piece, &length, &err) != HR_OK)
      status = cli_fail_error("--ids", &err);
    else if (!cli_bytes_add(&text, piece, length))
      status = cli_fail_memory();
    if (status != HR_OK) break;
  }
  if (status == HR_OK && r->decoder && r->set.common.ids) {
    hr_decoder_finish(r->decoder, &piece, &length);
    if (!cli_bytes_add(&text, piece, length)) status = cli_fail_memory();
  }
  const cli_bytes *shown = r->set.common.ids ? &text : &r->prompt;
  if (r->decoder && shown->used) hr_decoder_continue(r->decoder);
  if (status == HR_OK && r->set.echo) {
    if (!cli_bytes_add(&r->ready, shown->data, shown->used))
      status = cli_fail_memory();
    else
      status = emit_ready(r);
  }
  cli_bytes_free(&text);
  return status;
}

/* --- Generation -------------------------------------------------------------- */

/* Evaluates and takes the last row into the digest: the last position of the
 * prompt, then each token that was evaluated after it. */
static int evaluate(run *r, const int32_t *ids, size_t count) {
  hr_error err;
  if (hr_session_eval(r->session, ids, count, HR_LOGITS_LAST, &err) != HR_OK)
    return cli_fail_error(err.status == HR_ERROR_USAGE && r->set.common.ids ? "--ids" : NULL, &err);
  if (r->set.digest || r->set.json)
    r->digest =
        hr_digest(r->digest, hr_session_logits(r->session, 0), hr_model_vocab_size(r->model));
  return HR_OK;
}

static int remember(run *r, int32_t id) {
  if (r->count == r->capacity) {
    size_t capacity = r->count * 2 + 64;
    int32_t *ids = reallocarray(r->ids, capacity, sizeof *ids);
    if (!ids) return cli_fail_memory();
    r->ids = ids;
    r->capacity = capacity;
  }
  r->ids[r->count++] = id;
  hr_sampler_accept(r->sampler, id);
  return HR_OK;
}

/* Tokens until something ends it. The last one of them needs no evaluation. */
static int generate(run *r) {
  const size_t context = hr_session_context(r->session);
  const uint64_t limit = r->set.limit.given ? r->set.limit.value : UINT64_MAX;
  hr_error err;
  for (;;) {
    r->finish = FINISH_LENGTH;
    if (r->count - r->prompt_count == limit) return HR_OK;
    r->finish = FINISH_CONTEXT;
    if (r->count == context) return HR_OK;
    r->finish = FINISH_INTERRUPTED;
    if (cli_interrupted() || cli_output_failed()) return HR_OK;
    if (r->count > r->prompt_count) {
      int status = evaluate(r, &r->ids[r->count - 1], 1);
      if (status != HR_OK) return status;
    }
    int32_t id = hr_sampler_pick(r->sampler, hr_session_logits(r->session, 0), &err);
    if (id < 0) return cli_fail_error(NULL, &err);
    r->finish = FINISH_EOS;
    if (!r->set.ignore_eos && hr_model_is_end_token(r->model, id)) return HR_OK;
    bool stopped = false;
    int status = remember(r, id);
    if (status == HR_OK) status = emit_token(r, id, &stopped);
    r->finish = FINISH_STOP;
    if (status != HR_OK || stopped) return status;
  }
}

/* --- Result ------------------------------------------------------------------ */

static void format_digest(const run *r, char text[32]) {
  snprintf(text, 32, "%d-%016" PRIx64, HR_ARITHMETIC, r->digest);
}

static int print_json(const run *r) {
  char digest[32];
  format_digest(r, digest);
  if (!r->set.common.quiet && cli_find_stray_byte(r->text.data, r->text.used) < r->text.used)
    cli_note("note: the text has bytes that are no UTF-8, JSON has U+FFFD in their place");
  json_t *ids = json_array();
  for (size_t i = r->prompt_count; i < r->count; i++)
    json_array_append_new(ids, json_integer(r->ids[i]));
  return cli_print_json(json_pack(
      "{s:o, s:I, s:I, s:o, s:s, s:I, s:f, s:f, s:s}", "text",
      cli_json_text(r->text.data, r->text.used), "prompt_tokens", (json_int_t)r->prompt_count,
      "generated_tokens", (json_int_t)(r->count - r->prompt_count), "ids", ids, "finish",
      finish_names[r->finish], "seed", (json_int_t)r->seed, "prompt_seconds", r->prompt_seconds,
      "generate_seconds", r->generate_seconds, "digest", digest));
}

static void note_rate(const char *what, size_t tokens, double seconds) {
  if (tokens && seconds > 0)
    cli_note("%s: %zu tokens, %.3f s, %.1f tokens/s", what, tokens, seconds,
             (double)tokens / seconds);
  else
    cli_note("%s: %zu tokens, %.3f s", what, tokens, seconds);
}

static void print_statistics(const run *r) {
  if (r->set.common.quiet) return;
  size_t generated = r->count - r->prompt_count, evaluated = hr_session_position(r->session);
  if (evaluated > r->prompt_count) evaluated = r->prompt_count;
  note_rate("prompt", evaluated, r->prompt_seconds);
  note_rate("generated", generated, r->generate_seconds);
  cli_note("finish: %s, threads: %u, for prompts: %u, isa: %s", finish_names[r->finish],
           hr_session_threads(r->session), hr_session_threads_batch(r->session),
           hr_model_isa(r->model));
  if (!r->set.sampling.seed.given && r->set.sampling.temperature.value > 0)
    cli_note("seed: %" PRIu64, r->seed);
}

static int print_result(run *r) {
  if (r->set.json) return print_json(r);
  cli_write(r->text.data, r->text.used);
  /* The answer ends a line only where a person reads it. */
  if (isatty(STDOUT_FILENO)) cli_print("\n");
  return HR_OK;
}

/* --- From start to end -------------------------------------------------------- */

static int create_sampler(run *r) {
  r->sampler = cli_create_sampler(&r->set.sampling, r->model, r->seed);
  if (!r->sampler) return HR_ERROR_MEMORY;
  for (size_t i = 0; i < r->prompt_count; i++) hr_sampler_accept(r->sampler, r->ids[i]);
  return HR_OK;
}

static int open_all(run *r) {
  const char *name;
  int status = cli_only_model(&r->set.common, "a prompt comes after -p", &name);
  if (status != HR_OK || (status = read_prompt(r)) != HR_OK) return status;
  r->model = cli_open_model(&r->set.common, name, false, &status);
  if (!r->model) return status;
  if ((status = tokenize_prompt(r)) != HR_OK) return status;
  r->count = r->capacity = r->prompt_count;
  r->session = cli_open_session(&r->set.common, r->model, &status);
  if (!r->session || (status = check_length(r)) != HR_OK) return status;
  hr_error err;
  if (hr_model_has_tokenizer(r->model)) {
    r->decoder = hr_decoder_create(r->model, &err);
    if (!r->decoder) return cli_fail_error(NULL, &err);
  }
  return create_sampler(r);
}

static int run_all(run *r) {
  double start = cli_now();
  int status = evaluate(r, r->ids, r->prompt_count);
  double middle = cli_now();
  r->prompt_seconds = middle - start;
  r->finish = FINISH_INTERRUPTED;
  if (status == HR_OK) status = echo_prompt(r);
  if (status == HR_OK) status = generate(r);
  if (status != HR_OK && status != HR_ERROR_CANCELLED) return status;
  status = emit_end(r);
  r->generate_seconds = cli_now() - middle;
  if (status == HR_OK) status = print_result(r);
  if (status != HR_OK) return status;
  /* Where nobody reads any more, nobody wants statistics. */
  if (!cli_output_failed()) print_statistics(r);
  char digest[32];
  format_digest(r, digest);
  if (r->set.digest) cli_note("digest: %s", digest);
  return cli_interrupted() ? HR_ERROR_CANCELLED : HR_OK;
}

static void release(run *r) {
  hr_sampler_free(r->sampler);
  hr_decoder_free(r->decoder);
  hr_session_free(r->session);
  hr_model_free(r->model);
  cli_bytes_free(&r->prompt);
  cli_bytes_free(&r->stops.held);
  cli_bytes_free(&r->ready);
  cli_bytes_free(&r->text);
  free(r->set.sampling.stops.item);
  free(r->ids);
}

static int run_command(const cli_command *command, int argc, char **argv) {
  run r = {.digest = HR_DIGEST_INIT};
  int status;
  cli_sampling_defaults(&r.set.sampling);
  if (cli_start(command, argc, argv, &r.set, &status)) {
    if (!r.set.common.quiet) cli_warn_of_idle_sampling(&r.set.sampling);
    r.seed = cli_seed(&r.set.sampling);
    r.stops.texts = &r.set.sampling.stops;
    r.keep_text = r.set.json || r.set.no_stream;
    status = open_all(&r);
    if (status == HR_OK) status = run_all(&r);
  }
  release(&r);
  return status;
}

const cli_command cli_run_command = {
    .name = "run",
    .arguments = "[MODEL] [-p TEXT | -f FILE | -f -] [-n N] [options]",
    .summary = "generate text after a prompt",
    .details =
        "Only the generated text goes to standard output. Without -p, -f and --ids the prompt\n"
        "is read from standard input where that is no terminal; an empty prompt lets the model\n"
        "begin a text of its own. Generation ends at an end token, after -n tokens, before a\n"
        "stop text, or when prompt and answer fill the context.\n\n"
        "The digest covers the logits that each token was chosen from: those of the prompt's\n"
        "last position and of each generated token that was evaluated after it. The last token\n"
        "needs no evaluation, so N tokens make N rows.\n\n"
        "Ctrl-C ends the answer after the current token; a second one kills.",
    .options = options,
    .option_count = sizeof options / sizeof *options,
    .run = run_command,
};
