/* SPDX-License-Identifier: MIT
 * headrow chat: a conversation, line by line. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli.h"
#include "interrupt.h"
#include "line.h"
#include "output.h"
#include "sampling.h"
#include "stops.h"

typedef struct settings {
  cli_common common;
  const char *system, *template, *variables;
  cli_count limit;
  cli_sampling sampling;
  bool digest;
} settings;

#define AT(member) .offset = offsetof(settings, member)

static const cli_option options[] = {
    {"system", 0, "TEXT", "what the model is told before the conversation", CLI_TEXT, AT(system)},
    {"template", 0, "NAME|FILE",
     "the chat template: one of the model's own, a known one (chatml,\n"
     "llama2, llama3, mistral, gemma, phi3, zephyr, deepseek, vicuna,\n"
     "alpaca), or a file (default: the model's)",
     CLI_TEXT, AT(template)},
    {"template-vars", 0, "JSON",
     "more variables for the template, such as '{\"enable_thinking\": false}'", CLI_TEXT,
     AT(variables)},
    {"predict", 'n', "N", "at most N tokens an answer (default: until the model ends it)",
     CLI_COUNT, AT(limit), .least = 1, .most = INT32_MAX},
    CLI_SAMPLING_OPTIONS(settings, sampling),
    {"digest", 0, NULL, "print a digest of the logits of each answer on standard error", CLI_FLAG,
     AT(digest)},
};

typedef enum finish {
  FINISH_EOS,
  FINISH_STOP,
  FINISH_LENGTH,
  FINISH_CONTEXT,
  FINISH_INTERRUPTED
} finish;
static const char *const finish_names[] = {"eos", "stop", "length", "context", "interrupted"};

/* One message; text is owned. */
typedef struct message {
  const char *role;
  cli_bytes text;
} message;

/* What one answer took. */
typedef struct turn {
  size_t prompt, reused, generated;
  double prompt_seconds, seconds;
  uint64_t digest;
  finish finish;
} turn;

/* All that a conversation owns. */
typedef struct chat {
  settings set;
  hr_model *model;
  hr_session *session;
  hr_chat *template;
  hr_decoder *decoder;
  cli_lines *lines;
  bool interactive;
  message *messages;
  size_t message_count;
  int32_t *cached; /* the ids in the session, in order */
  size_t cached_count, cached_capacity;
  int32_t turn_end; /* ends an answer beside the model's end tokens; -1: none */
  cli_stops stops;
  cli_bytes ready, answer;
  uint64_t seed, turns; /* turns since the start, over resets */
  int unanswered;       /* status of the first turn that found the context full, in a pipe */
} chat;

/* --- Messages ----------------------------------------------------------------- */

static int add_message(chat *c, const char *role, const char *text, size_t length) {
  message *grown = reallocarray(c->messages, c->message_count + 1, sizeof *grown);
  if (!grown) return cli_fail_memory();
  c->messages = grown;
  message *m = &c->messages[c->message_count];
  *m = (message){.role = role};
  if (!cli_bytes_add(&m->text, text, length)) return cli_fail_memory();
  c->message_count++;
  return HR_OK;
}

static void drop_message(chat *c) {
  cli_bytes_free(&c->messages[--c->message_count].text);
}

/* Back to the system text. The ids in the session stay: what is still a prefix
 * of the next prompt is found by comparing. */
static void reset(chat *c) {
  size_t first = c->set.system ? 1 : 0;
  while (c->message_count > first) drop_message(c);
}

static int render(chat *c, hr_chat_prompt *prompt) {
  hr_chat_message *messages = calloc(c->message_count, sizeof *messages);
  if (!messages) return cli_fail_memory();
  for (size_t i = 0; i < c->message_count; i++)
    messages[i] = (hr_chat_message){.role = c->messages[i].role,
                                    .content = c->messages[i].text.data,
                                    .length = c->messages[i].text.used};
  time_t now = time(NULL);
  struct tm local;
  hr_chat_options o;
  hr_chat_options_init(&o);
  o.now = localtime_r(&now, &local);
  o.variables = c->set.variables;
  hr_error err;
  hr_status status = hr_chat_render(c->template, messages, c->message_count, &o, prompt, &err);
  free(messages);
  if (status == HR_OK) return HR_OK;
  if (status == HR_ERROR_FILE && !c->set.template)
    return cli_fail(status, "%s; --template NAME|FILE gives another", err.message);
  return cli_fail_error(NULL, &err);
}

/* --- Evaluating ----------------------------------------------------------------- */

/* Evaluates and notes what the session holds. */
static int evaluate(chat *c, const int32_t *ids, size_t count, turn *t) {
  hr_error err;
  if (c->cached_count + count > c->cached_capacity) {
    size_t capacity = (c->cached_count + count) * 2;
    int32_t *grown = reallocarray(c->cached, capacity, sizeof *grown);
    if (!grown) return cli_fail_memory();
    c->cached = grown;
    c->cached_capacity = capacity;
  }
  memcpy(c->cached + c->cached_count, ids, count * sizeof *ids);
  hr_status status = hr_session_eval(c->session, ids, count, HR_LOGITS_LAST, &err);
  c->cached_count = hr_session_position(c->session);
  if (status != HR_OK) return cli_fail_error(NULL, &err);
  if (c->set.digest)
    t->digest =
        hr_digest(t->digest, hr_session_logits(c->session, 0), hr_model_vocab_size(c->model));
  return HR_OK;
}

static int fail_full(const chat *c, size_t count) {
  size_t context = hr_session_context(c->session), trained = hr_model_trained_context(c->model);
  char most[64] = "";
  if (trained > context)
    snprintf(most, sizeof most, " (the model was trained for %zu)", trained);
  return cli_fail(HR_ERROR_CONTEXT,
                  "context: the conversation has %zu tokens, the context holds %zu: /reset starts "
                  "anew, a larger -c%s keeps more",
                  count, context, most);
}

/* Evaluates what of a prompt the session does not hold yet; the last token in
 * any case, since its logits are wanted. */
static int evaluate_prompt(chat *c, const hr_chat_prompt *prompt, turn *t) {
  size_t same = 0;
  hr_error err;
  if (prompt->count == 0) return cli_fail(HR_ERROR_FILE, "template: gives no tokens for this");
  if (prompt->count > hr_session_context(c->session)) return fail_full(c, prompt->count);
  while (same < c->cached_count && same + 1 < prompt->count && c->cached[same] == prompt->ids[same])
    same++;
  if (hr_session_rewind(c->session, same, &err) != HR_OK) return cli_fail_error(NULL, &err);
  c->cached_count = same;
  t->prompt = prompt->count;
  t->reused = same;
  double start = cli_now();
  int status = evaluate(c, prompt->ids + same, prompt->count - same, t);
  t->prompt_seconds = cli_now() - start;
  return status;
}

/* --- Answering --------------------------------------------------------------------- */

static int emit(chat *c, const char *text, size_t length, bool *stopped) {
  if (!cli_stops_add(&c->stops, text, length, &c->ready, stopped)) return cli_fail_memory();
  if (!cli_bytes_add(&c->answer, c->ready.data, c->ready.used)) return cli_fail_memory();
  cli_write(c->ready.data, c->ready.used);
  cli_flush_soon();
  c->ready.used = 0;
  return HR_OK;
}

static int emit_token(chat *c, int32_t id, bool *stopped) {
  hr_error err;
  const char *text;
  size_t length;
  if (hr_decoder_push(c->decoder, id, &text, &length, &err) != HR_OK)
    return cli_fail_error(NULL, &err);
  return emit(c, text, length, stopped);
}

/* What is held back of a code point or of a stop text, unless one was found. */
static int emit_end(chat *c, turn *t) {
  const char *text;
  size_t length;
  bool stopped = t->finish == FINISH_STOP;
  hr_decoder_finish(c->decoder, &text, &length);
  int status = stopped ? HR_OK : emit(c, text, length, &stopped);
  if (status == HR_OK && !stopped) {
    if (!cli_stops_end(&c->stops, &c->ready)) return cli_fail_memory();
    cli_bytes rest = c->ready;
    if (!cli_bytes_add(&c->answer, rest.data, rest.used)) return cli_fail_memory();
    cli_write(rest.data, rest.used);
  }
  c->ready.used = c->stops.held.used = 0;
  return status;
}

static bool ends_answer(const chat *c, int32_t id) {
  return id == c->turn_end || hr_model_is_end_token(c->model, id);
}

/* Tokens until something ends the answer. */
static int generate(chat *c, hr_sampler *sampler, turn *t) {
  hr_error err;
  for (;;) {
    t->finish = FINISH_INTERRUPTED;
    if (cli_interrupted() || cli_output_failed()) return HR_OK;
    int32_t id = hr_sampler_pick(sampler, hr_session_logits(c->session, 0), &err);
    if (id < 0) return cli_fail_error(NULL, &err);
    t->finish = FINISH_EOS;
    if (ends_answer(c, id)) return HR_OK;
    bool stopped = false;
    hr_sampler_accept(sampler, id);
    t->generated++;
    int status = emit_token(c, id, &stopped);
    t->finish = FINISH_STOP;
    if (status != HR_OK || stopped) return status;
    t->finish = FINISH_LENGTH;
    if (c->set.limit.given && t->generated == c->set.limit.value) return HR_OK;
    t->finish = FINISH_CONTEXT;
    if (hr_session_position(c->session) == hr_session_context(c->session)) return HR_OK;
    status = evaluate(c, &id, 1, t);
    if (status != HR_OK) return status;
  }
}

static void report(const chat *c, const turn *t) {
  if (c->set.digest) cli_note("digest: %d-%016" PRIx64, HR_ARITHMETIC, t->digest);
  if (t->finish == FINISH_CONTEXT && !c->set.common.quiet)
    cli_note("warning: the context of %zu tokens is full and the answer cut: /reset starts anew, a "
             "larger -c holds more",
             hr_session_context(c->session));
  if (c->set.common.verbose)
    cli_note("prompt: %zu tokens, %zu of them kept from before, %.3f s; answer: %zu tokens, %.3f "
             "s, %.1f tokens/s; finish: %s",
             t->prompt, t->reused, t->prompt_seconds, t->generated, t->seconds,
             t->seconds > 0 ? (double)t->generated / t->seconds : 0.0, finish_names[t->finish]);
}

static int answer(chat *c, const hr_chat_prompt *prompt, turn *t) {
  int status = evaluate_prompt(c, prompt, t);
  if (status != HR_OK) return status;
  /* A sampler of its own for each answer: it depends on prompt, seed and turn alone. */
  hr_sampler *sampler = cli_create_sampler(&c->set.sampling, c->model, c->seed + c->turns);
  if (!sampler) return HR_ERROR_MEMORY;
  for (size_t i = 0; i < prompt->count; i++) hr_sampler_accept(sampler, prompt->ids[i]);
  double start = cli_now();
  status = generate(c, sampler, t);
  t->seconds = cli_now() - start;
  hr_sampler_free(sampler);
  int ended = emit_end(c, t);
  cli_write("\n", 1);
  cli_flush();
  if (status == HR_OK || status == HR_ERROR_CANCELLED) status = ended;
  if (status == HR_OK) report(c, t);
  return status;
}

/* One line of the user's. What can't be answered is no part of the conversation. */
static int take_turn(chat *c, const cli_bytes *line) {
  hr_chat_prompt prompt;
  turn t = {.digest = HR_DIGEST_INIT, .finish = FINISH_INTERRUPTED};
  cli_warn_of_stray_bytes(&c->set.common, "message", line->data, line->used);
  int status = add_message(c, "user", line->data, line->used);
  if (status != HR_OK) return status;
  c->answer.used = 0;
  status = render(c, &prompt);
  if (status == HR_OK) status = answer(c, &prompt, &t);
  if (status != HR_OK) {
    drop_message(c);
    return status;
  }
  c->turns++;
  return add_message(c, "assistant", c->answer.data ? c->answer.data : "", c->answer.used);
}

/* --- Commands ------------------------------------------------------------------------- */

typedef enum action { GO_ON, LEAVE, SAY, UNKNOWN } action;

/* "/word" alone is a command; "/usr/bin is full" is a text. */
static action command(chat *c, const cli_bytes *line) {
  if (line->used < 2 || line->data[0] != '/') return SAY;
  size_t end = line->used;
  while (end > 1 && (line->data[end - 1] == ' ' || line->data[end - 1] == '\t')) end--;
  for (size_t i = 1; i < end; i++)
    if (line->data[i] < 'a' || line->data[i] > 'z') return SAY;
  const char *word = line->data + 1;
  size_t length = end - 1;
  if (length == 4 && memcmp(word, "quit", 4) == 0) return LEAVE;
  if (length == 5 && memcmp(word, "reset", 5) == 0) {
    reset(c);
    if (!c->set.common.quiet) cli_note("the conversation starts anew");
    return GO_ON;
  }
  if (length == 4 && memcmp(word, "help", 4) == 0) {
    cli_note("/reset  forget the conversation, but for the system text");
    cli_note("/quit   leave; Ctrl-D does it too");
    cli_note("/help   this list");
    cli_note("Ctrl-C  stop an answer");
    return GO_ON;
  }
  return UNKNOWN;
}

static bool is_blank(const cli_bytes *line) {
  for (size_t i = 0; i < line->used; i++)
    if (line->data[i] != ' ' && line->data[i] != '\t') return false;
  return true;
}

/* What a fault of one turn means for the rest. After a full context comes /reset, in a pipe too;
 * other faults of the conversation only a person can go on after. */
static bool goes_on(const chat *c, int status) {
  return status == HR_OK || status == HR_ERROR_CONTEXT ||
         (c->interactive && (status == HR_ERROR_USAGE || status == HR_ERROR_CANCELLED));
}

static int do_line(chat *c, const cli_bytes *line, bool *leave) {
  action what = is_blank(line) ? GO_ON : command(c, line);
  *leave = what == LEAVE;
  if (what == UNKNOWN)
    return cli_fail(HR_ERROR_USAGE, "%.*s: is no command, expected /help, /reset or /quit",
                    (int)(line->used < 40 ? line->used : 40), line->data);
  if (what != SAY) return HR_OK;
  int status = take_turn(c, line);
  if (status == HR_ERROR_CONTEXT && !c->interactive) c->unanswered = status;
  if (cli_interrupted() && c->interactive) cli_interrupt_done();
  return status;
}

static int talk(chat *c) {
  cli_bytes line = {0};
  int status = HR_OK;
  bool leave = false;
  while (!leave && goes_on(c, status)) {
    if (cli_interrupted() && c->interactive) cli_interrupt_done(); /* since the answer's end */
    if (cli_interrupted() || cli_output_failed()) break;
    cli_line got = cli_lines_next(c->lines, &line);
    status = HR_OK;
    if (got == CLI_LINE_FAILED) status = cli_fail_memory();
    if (got == CLI_LINE_END || got == CLI_LINE_FAILED) break;
    if (got == CLI_LINE)
      status = do_line(c, &line, &leave);
    else if (c->interactive) {
      cli_interrupt_done();
      if (!cli_interrupted()) cli_note("(Ctrl-D or /quit leaves)");
    }
  }
  if (c->interactive && !leave) cli_note("%s", "");
  cli_bytes_free(&line);
  if (goes_on(c, status)) status = c->unanswered;
  return status == HR_OK && cli_interrupted() ? HR_ERROR_CANCELLED : status;
}

/* --- From start to end -------------------------------------------------------------------- */

static bool is_template_name(const chat *c, const char *name) {
  const char *known;
  for (size_t i = 0; (known = hr_chat_template_name(c->model, i)); i++)
    if (strcmp(known, name) == 0) return true;
  return false;
}

static int open_template_file(chat *c, const char *path) {
  cli_bytes text = {0};
  hr_error err;
  int status = cli_read_file(path, &text);
  if (status == HR_OK) {
    c->template = hr_chat_create_from_text(c->model, text.data ? text.data : "", text.used, path,
                                           &err);
    if (!c->template) status = cli_fail_error("--template", &err);
  }
  cli_bytes_free(&text);
  return status;
}

/* A name goes before a file of that name; "./chatml" is the file. */
static int open_template(chat *c) {
  const char *name = c->set.template;
  hr_error err;
  if (name && !is_template_name(c, name) && (strchr(name, '/') || access(name, F_OK) == 0))
    return open_template_file(c, name);
  c->template = hr_chat_create(c->model, name, &err);
  if (c->template) return HR_OK;
  if (name) return cli_fail_error("--template", &err);
  return cli_fail(err.status, "%s; --template NAME|FILE gives one, 'headrow run' continues a text",
                  err.message);
}

/* What ends a turn under a template by name: a token of this vocabulary, or
 * else a text to stop at. */
static int prepare_turn_end(chat *c) {
  const char *end = hr_chat_turn_end(c->template);
  int32_t *ids = NULL;
  size_t count = 0;
  c->turn_end = -1;
  c->stops.texts = &c->set.sampling.stops;
  if (!end) return HR_OK;
  int status = cli_tokenize(c->model, end, strlen(end), HR_TOKENIZE_PARSE_SPECIAL, &ids, &count);
  if (status != HR_OK) return status;
  if (count == 1) c->turn_end = ids[0];
  free(ids);
  if (count == 1) return HR_OK;
  cli_texts *texts = &c->set.sampling.stops;
  const char **grown = reallocarray(texts->item, texts->count + 1, sizeof *grown);
  if (!grown) return cli_fail_memory();
  texts->item = grown;
  texts->item[texts->count++] = end;
  if (!c->set.common.quiet)
    cli_note("warning: the vocabulary has no token '%s', with which this template ends a turn: the "
             "model may not know it; answers stop where it is written",
             end);
  return HR_OK;
}

static int open_all(chat *c) {
  hr_error err;
  const char *name;
  int status = cli_only_model(&c->set.common, NULL, &name);
  if (status != HR_OK) return status;
  if (c->set.common.ids)
    return cli_fail(HR_ERROR_USAGE, "--ids: a conversation is text, expected none");
  c->model = cli_open_model(&c->set.common, name, false, &status);
  if (!c->model) return status;
  if (!hr_model_has_logits(c->model))
    return cli_fail(HR_ERROR_USAGE,
                    "%s: is an encoder without a language-model head, expected a model that writes "
                    "text; 'headrow embed' gives vectors",
                    name);
  if ((status = open_template(c)) != HR_OK) return status;
  c->decoder = hr_decoder_create(c->model, &err);
  if (!c->decoder) return cli_fail_error(NULL, &err);
  if ((status = prepare_turn_end(c)) != HR_OK) return status;
  c->session = cli_open_session(&c->set.common, c->model, &status);
  if (!c->session) return status;
  if (c->set.system)
    cli_warn_of_stray_bytes(&c->set.common, "--system", c->set.system, strlen(c->set.system));
  if (c->set.system) status = add_message(c, "system", c->set.system, strlen(c->set.system));
  c->lines = cli_lines_open(c->set.common.quiet);
  if (!c->lines) return cli_fail_memory();
  c->interactive = cli_lines_interactive(c->lines);
  return status;
}

static void greet(const chat *c) {
  if (c->set.common.quiet) return;
  if (c->interactive) cli_note("/help lists commands, Ctrl-D leaves");
  if (!c->set.sampling.seed.given && c->set.sampling.temperature.value > 0)
    cli_note("seed: %" PRIu64, c->seed);
}

static void release(chat *c) {
  cli_lines_close(c->lines);
  while (c->message_count) drop_message(c);
  free(c->messages);
  hr_decoder_free(c->decoder);
  hr_chat_free(c->template);
  hr_session_free(c->session);
  hr_model_free(c->model);
  cli_bytes_free(&c->stops.held);
  cli_bytes_free(&c->ready);
  cli_bytes_free(&c->answer);
  free(c->set.sampling.stops.item);
  free(c->cached);
}

static int chat_command(const cli_command *self, int argc, char **argv) {
  chat c = {0};
  int status;
  cli_sampling_defaults(&c.set.sampling);
  if (cli_start(self, argc, argv, &c.set, &status)) {
    if (!c.set.common.quiet) cli_warn_of_idle_sampling(&c.set.sampling);
    c.seed = cli_seed(&c.set.sampling);
    status = open_all(&c);
    if (status == HR_OK) {
      greet(&c);
      status = talk(&c);
    }
  }
  release(&c);
  return status;
}

const cli_command cli_chat_command = {
    .name = "chat",
    .arguments = "[MODEL] [--system TEXT] [--template NAME|FILE] [options]",
    .summary = "a conversation with a model",
    .details =
        "At a terminal lines are edited and kept in a history; /help, /reset and /quit are\n"
        "commands, Ctrl-C stops an answer, Ctrl-D leaves. From a pipe or file each line that is\n"
        "not blank is a turn, and the answers go to standard output, each with a newline behind\n"
        "it. A line that the context has no room for is told and passed over, up to a /reset; the\n"
        "exit status is then 6.\n\n"
        "The conversation is written by the model's chat template. Markers in what a user types\n"
        "stay text. Of each prompt only what is new is evaluated; the answer is what the whole\n"
        "prompt would give. The seed of a turn is S plus the number of turns before it.",
    .options = options,
    .option_count = sizeof options / sizeof *options,
    .run = chat_command,
};
