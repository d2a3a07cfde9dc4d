/* SPDX-License-Identifier: MIT
 * The chat templates that a model's files bring, and the words for them. */
#ifndef HR_MODEL_CHAT_TEXTS_H
#define HR_MODEL_CHAT_TEXTS_H

#include "model/source.h"

/* A name and a text, both owned. */
typedef struct hr_chat_text {
  char *name, *text;
  size_t length;
} hr_chat_text;

typedef struct hr_chat_texts {
  hr_chat_text *templates; /* "default" first where there is one */
  size_t template_count;
  hr_chat_text *words;     /* "bos_token" and its like, of tokenizer_config.json */
  size_t word_count;
} hr_chat_texts;

/* GGUF: tokenizer.chat_template and tokenizer.chat_template.NAME for the names in
 * tokenizer.chat_templates. Beside safetensors: chat_template.jinja, else
 * chat_template of tokenizer_config.json, a string or a list of named ones.
 * Nothing is found where there is none. To be finished in any case. */
hr_status hr_chat_texts_read(const hr_source *source, hr_chat_texts *texts, hr_error *err);
void hr_chat_texts_finish(hr_chat_texts *texts);

#endif
