/* SPDX-License-Identifier: MIT
 * Conversations: a model with a chat template. */
#include <jansson.h>
#include <string.h>

#include "base/memory.h"
#include "engine/engine.h"
#include "engine/options.h"
#include "sched/fpenv.h"
#include "template/template.h"

struct hr_chat {
  const hr_model *model;
  hr_chat_template *source;
  const char *turn_end;
  hr_template_output output; /* of the last rendering */
  int32_t *ids;
};

static const hr_chat_options default_options = {.size = sizeof default_options};

void hr_chat_options_fill(hr_chat_options *options, size_t size) {
  hr_options_fill(options, size, &default_options, sizeof default_options);
}

const char *hr_chat_template_name(const hr_model *model, size_t index) {
  size_t own = model->chat.template_count;
  if (index < own) return model->chat.templates[index].name;
  const hr_named_template *named = hr_named_template_at(index - own);
  return named ? named->name : NULL;
}

/* --- Creation ------------------------------------------------------------------ */

hr_chat *hr_chat_create_from_text(const hr_model *model, const char *text, size_t length,
                                  const char *name, hr_error *err) {
  hr_error ignored;
  if (!err) err = &ignored;
  if (!model || !text || !name) {
    hr_fail(err, HR_ERROR_USAGE, "the model, text or name of a chat is NULL, expected all");
    return NULL;
  }
  hr_chat *chat = hr_calloc(1, sizeof *chat);
  if (!chat) {
    hr_fail_memory(err, "chat", sizeof *chat);
    return NULL;
  }
  chat->model = model;
  chat->source = hr_template_parse(text, length, name, err);
  if (chat->source) return chat;
  hr_chat_free(chat);
  return NULL;
}

/* As many as there is room for, and dots for the others. */
static void list_names(const hr_model *model, char *list, size_t size) {
  static const char more[] = ", ...";
  size_t used = 0;
  const char *name;
  for (size_t i = 0; (name = hr_chat_template_name(model, i)); i++) {
    size_t length = strlen(name), comma = used ? 2 : 0;
    bool fits = length < size && used + comma + length + sizeof more <= size;
    memcpy(list + used, more, comma);
    memcpy(list + used + comma, fits ? name : "...", fits ? length : 3);
    used += comma + (fits ? length : 3);
    if (!fits) break;
  }
  list[used] = '\0';
}

static hr_chat *fail_without_template(const hr_model *model, const char *name, hr_error *err) {
  char names[256];
  list_names(model, names, sizeof names);
  if (name)
    hr_fail(err, HR_ERROR_FILE, "chat template '%.80s' is not known, expected one of: %s", name,
            names);
  else
    hr_fail(err, HR_ERROR_FILE,
            "%s: has no chat template, expected one or the name of another: %s", model->path,
            names);
  return NULL;
}

/* The file's template of that name; NULL name: "default", or else its first. */
static const hr_chat_text *own_template(const hr_model *model, const char *name) {
  const hr_chat_texts *texts = &model->chat;
  for (size_t i = 0; i < texts->template_count; i++)
    if (strcmp(texts->templates[i].name, name ? name : "default") == 0)
      return &texts->templates[i];
  return !name && texts->template_count ? texts->templates : NULL;
}

static hr_chat *create_own(const hr_model *model, const hr_chat_text *text, hr_error *err) {
  size_t size = strlen(model->path) + strlen(text->name) + 32;
  char *name = hr_calloc(size, 1);
  if (!name) {
    hr_fail_memory(err, "chat", size);
    return NULL;
  }
  stpcpy(stpcpy(stpcpy(name, model->path), ": chat template "), text->name);
  hr_chat *chat = hr_chat_create_from_text(model, text->text, text->length, name, err);
  hr_free(name);
  return chat;
}

hr_chat *hr_chat_create(const hr_model *model, const char *template_name, hr_error *err) {
  hr_error ignored;
  if (!err) err = &ignored;
  if (!model) {
    hr_fail(err, HR_ERROR_USAGE, "the model of a chat is NULL, expected one");
    return NULL;
  }
  const hr_chat_text *own = own_template(model, template_name);
  if (own) return create_own(model, own, err);
  const hr_named_template *named = NULL;
  for (size_t i = 0; template_name && (named = hr_named_template_at(i)); i++)
    if (strcmp(named->name, template_name) == 0) break;
  if (!named) return fail_without_template(model, template_name, err);
  hr_chat *chat = hr_chat_create_from_text(model, named->source, strlen(named->source),
                                           named->name, err);
  if (chat) chat->turn_end = named->turn_end;
  return chat;
}

void hr_chat_free(hr_chat *chat) {
  if (!chat) return;
  hr_template_free(chat->source);
  hr_template_output_finish(&chat->output);
  hr_free(chat->ids);
  hr_free(chat);
}

const char *hr_chat_turn_end(const hr_chat *chat) {
  return chat->turn_end;
}

/* --- Rendering -------------------------------------------------------------------- */

enum { MOST_WORDS = 8 };

static bool has_word(const hr_template_word *words, size_t count, const char *name) {
  for (size_t i = 0; i < count; i++)
    if (strcmp(words[i].name, name) == 0) return true;
  return false;
}

/* What the file calls its tokens, or else the tokens' own texts. */
static size_t gather_words(const hr_model *model, hr_template_word words[MOST_WORDS]) {
  const hr_chat_texts *texts = &model->chat;
  const struct {
    const char *name;
    int32_t id;
  } tokens[] = {{"bos_token", model->start_token}, {"eos_token", model->end_token}};
  size_t count = 0;
  for (; count < texts->word_count && count + 2 < MOST_WORDS; count++)
    words[count] = (hr_template_word){texts->words[count].name, texts->words[count].text,
                                      texts->words[count].length};
  for (size_t i = 0; i < 2; i++) {
    if (!model->tokenizer || tokens[i].id < 0 || has_word(words, count, tokens[i].name)) continue;
    hr_piece piece = hr_tokenizer_text(model->tokenizer, tokens[i].id, true);
    words[count++] = (hr_template_word){tokens[i].name, piece.text, piece.length};
  }
  return count;
}

static hr_status check_messages(const hr_chat_message *messages, size_t count, hr_error *err) {
  for (size_t i = 0; i < count; i++)
    if (!messages[i].role || (!messages[i].content && messages[i].length))
      return hr_fail(err, HR_ERROR_USAGE, "message %zu: its role or content is NULL", i);
  return HR_OK;
}

static hr_status load_variables(const char *text, json_t **variables, hr_error *err) {
  json_error_t fault;
  if (!text) return HR_OK;
  *variables = json_loads(text, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &fault);
  if (json_is_object(*variables)) return HR_OK;
  return hr_fail(err, HR_ERROR_USAGE, "variables of a chat template: %s, expected a JSON object",
                 *variables ? "are none" : fault.text);
}

static hr_status run_template(hr_chat *chat, const hr_chat_message *messages, size_t count,
                              const hr_chat_options *options, hr_error *err) {
  hr_template_word words[MOST_WORDS];
  json_t *variables = NULL;
  hr_status status = load_variables(options->variables, &variables, err);
  hr_template_input input = {.messages = messages,
                             .message_count = count,
                             .has_messages = count || !json_object_get(variables, "messages"),
                             .add_generation_prompt = !options->no_generation_prompt,
                             .words = words,
                             .word_count = gather_words(chat->model, words),
                             .variables = variables,
                             .now = options->now};
  if (status == HR_OK) status = hr_template_render(chat->source, &input, &chat->output, err);
  json_decref(variables);
  return status;
}

hr_status hr_chat_render(hr_chat *chat, const hr_chat_message *messages, size_t count,
                         const hr_chat_options *options, hr_chat_prompt *prompt, hr_error *err) {
  HR_FPENV_OWN;
  hr_chat_options taken = default_options;
  *prompt = (hr_chat_prompt){0};
  hr_template_output_finish(&chat->output);
  hr_free(chat->ids);
  chat->ids = NULL;
  hr_status status = hr_options_take(&taken, sizeof taken, options, "hr_chat_options", err);
  if (status == HR_OK) status = check_messages(messages, count, err);
  if (status == HR_OK) status = run_template(chat, messages, count, &taken, err);
  if (status == HR_OK && chat->model->tokenizer)
    status = hr_tokenizer_encode_chat(chat->model->tokenizer, chat->output.text, chat->output.data,
                                      chat->output.length, &chat->ids, &prompt->count, err);
  if (status != HR_OK) return status;
  prompt->text = chat->output.text;
  prompt->length = chat->output.length;
  prompt->ids = chat->ids;
  return HR_OK;
}
