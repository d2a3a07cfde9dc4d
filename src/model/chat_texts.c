/* SPDX-License-Identifier: MIT */
#include "model/chat_texts.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/file_map.h"
#include "base/memory.h"
#include "model/source_internal.h"
#include "model/vocab_internal.h"

/* No model has as many; more are damage. */
enum { MOST_TEMPLATES = 64 };

static const char default_name[] = "default";

static hr_status add(hr_chat_text **list, size_t *count, const char *name, size_t name_length,
                     const char *text, size_t length, hr_error *err) {
  hr_chat_text *grown = hr_realloc(*list, *count + 1, sizeof *grown);
  if (!grown) return hr_fail_memory(err, "chat template", length);
  *list = grown;
  hr_chat_text *item = &grown[(*count)++];
  *item = (hr_chat_text){.name = hr_strndup(name, name_length),
                         .text = hr_strndup(text, length),
                         .length = length};
  return item->name && item->text ? HR_OK : hr_fail_memory(err, "chat template", length);
}

static hr_status add_template(hr_chat_texts *texts, const char *name, size_t name_length,
                              const char *text, size_t length, hr_error *err) {
  return add(&texts->templates, &texts->template_count, name, name_length, text, length, err);
}

/* --- GGUF -------------------------------------------------------------------- */

static hr_status read_named(const hr_source *source, const char *name, size_t length,
                            hr_chat_texts *texts, hr_error *err) {
  char key[128];
  const char *text = NULL;
  size_t bytes = 0;
  bool found = false;
  int n = snprintf(key, sizeof key, "tokenizer.chat_template.%.*s", (int)length, name);
  if (n < 0 || (size_t)n >= sizeof key)
    return hr_fail(err, HR_ERROR_FILE, "%s: the name of a chat template has %zu bytes, too many",
                   hr_source_path(source), length);
  hr_status status = hr_source_string(source, key, &text, &bytes, &found, err);
  if (status != HR_OK || !found) return status;
  return add_template(texts, name, length, text, bytes, err);
}

static hr_status read_gguf(const hr_source *source, hr_chat_texts *texts, hr_error *err) {
  static const char key[] = "tokenizer.chat_templates";
  const char *text = NULL, *names[MOST_TEMPLATES];
  size_t length = 0, lengths[MOST_TEMPLATES], count = 0;
  bool found = false;
  hr_status status =
      hr_source_string(source, "tokenizer.chat_template", &text, &length, &found, err);
  if (status == HR_OK && found)
    status = add_template(texts, default_name, strlen(default_name), text, length, err);
  if (status == HR_OK) status = hr_source_array_length(source, key, &count, &found, err);
  if (status != HR_OK || !found) return status;
  if (count > MOST_TEMPLATES)
    return hr_fail(err, HR_ERROR_FILE, "%s: key '%s' has %zu elements, expected at most %d",
                   hr_source_path(source), key, count, MOST_TEMPLATES);
  status = hr_source_array_strings(source, key, names, lengths, count, err);
  for (size_t i = 0; i < count && status == HR_OK; i++)
    status = read_named(source, names[i], lengths[i], texts, err);
  return status;
}

/* --- Files beside safetensors ------------------------------------------------------ */

/* {"name": ..., "template": ...} of a list. */
static hr_status read_element(const char *path, const json_t *element, hr_chat_texts *texts,
                              hr_error *err) {
  const json_t *name = json_object_get(element, "name");
  const json_t *text = json_object_get(element, "template");
  if (!json_is_string(name) || !json_is_string(text))
    return hr_fail(err, HR_ERROR_FILE,
                   "%s: an element of 'chat_template' has no 'name' and 'template', expected both",
                   path);
  return add_template(texts, json_string_value(name), json_string_length(name),
                      json_string_value(text), json_string_length(text), err);
}

static hr_status read_templates(const char *path, const json_t *config, hr_chat_texts *texts,
                                hr_error *err) {
  const json_t *text = json_object_get(config, "chat_template");
  hr_status status = HR_OK;
  if (!text || json_is_null(text) || texts->template_count) return HR_OK;
  if (json_is_string(text))
    return add_template(texts, default_name, strlen(default_name), json_string_value(text),
                        json_string_length(text), err);
  if (!json_is_array(text) || json_array_size(text) > MOST_TEMPLATES)
    return hr_fail(err, HR_ERROR_FILE,
                   "%s: 'chat_template' is neither a string nor a list of at most %d", path,
                   MOST_TEMPLATES);
  for (size_t i = 0; i < json_array_size(text) && status == HR_OK; i++)
    status = read_element(path, json_array_get(text, i), texts, err);
  return status;
}

/* "bos_token": "<s>", or {"content": "<s>", ...} */
static hr_status read_words(const json_t *config, hr_chat_texts *texts, hr_error *err) {
  static const char *const names[] = {"bos_token", "eos_token", "pad_token", "unk_token"};
  hr_status status = HR_OK;
  for (size_t i = 0; i < sizeof names / sizeof *names && status == HR_OK; i++) {
    const json_t *word = json_object_get(config, names[i]);
    if (json_is_object(word)) word = json_object_get(word, "content");
    if (!json_is_string(word)) continue;
    status = add(&texts->words, &texts->word_count, names[i], strlen(names[i]),
                 json_string_value(word), json_string_length(word), err);
  }
  return status;
}

/* Both close the map. */
static hr_status read_jinja(hr_file_map *map, const char *path, hr_chat_texts *texts,
                            hr_error *err) {
  (void)path;
  hr_status status = add_template(texts, default_name, strlen(default_name),
                                  map->data ? (const char *)map->data : "", map->bytes, err);
  hr_file_map_close(map);
  return status;
}

static hr_status read_config(hr_file_map *map, const char *path, hr_chat_texts *texts,
                             hr_error *err) {
  json_t *config = hr_vocab_load_json(map, path, err);
  if (!config) return err->status;
  hr_status status = read_templates(path, config, texts, err);
  if (status == HR_OK) status = read_words(config, texts, err);
  json_decref(config);
  return status;
}

static hr_status read_beside(const hr_source *source, hr_chat_texts *texts, hr_error *err) {
  static const struct {
    const char *name;
    hr_status (*read)(hr_file_map *map, const char *path, hr_chat_texts *texts, hr_error *err);
  } files[] = {{"chat_template.jinja", read_jinja}, {"tokenizer_config.json", read_config}};
  hr_status status = HR_OK;
  for (size_t i = 0; i < sizeof files / sizeof *files && status == HR_OK; i++) {
    hr_file_map map;
    bool found;
    char where[HR_WHERE_BYTES];
    status = hr_vocab_open_beside(source, files[i].name, &map, where, &found, err);
    if (status == HR_OK && found) status = files[i].read(&map, where, texts, err);
  }
  return status;
}

/* --- The whole --------------------------------------------------------------------- */

hr_status hr_chat_texts_read(const hr_source *source, hr_chat_texts *texts, hr_error *err) {
  *texts = (hr_chat_texts){0};
  return hr_source_get_kind(source) == HR_SOURCE_GGUF ? read_gguf(source, texts, err)
                                                      : read_beside(source, texts, err);
}

static void finish(hr_chat_text *list, size_t count) {
  for (size_t i = 0; i < count; i++) {
    hr_free(list[i].name);
    hr_free(list[i].text);
  }
  hr_free(list);
}

void hr_chat_texts_finish(hr_chat_texts *texts) {
  finish(texts->templates, texts->template_count);
  finish(texts->words, texts->word_count);
  *texts = (hr_chat_texts){0};
}
