/* SPDX-License-Identifier: MIT
 * Chat templates: the part of Jinja that they use, as transformers sets it up
 * (trim_blocks, lstrip_blocks, no trailing newline, break and continue, its own
 * tojson, raise_exception, strftime_now).
 *
 * A template is a program from a stranger. It sees the values it is given and
 * nothing else, and its depth, its memory and its steps are limited.
 *
 * Text remembers where it came from: each byte is either the template's own
 * word or data (what a user wrote), through every operation. So a tokenizer can
 * take the template's markers for control tokens and leave the same markers in
 * a user's text alone. */
#ifndef HR_TEMPLATE_TEMPLATE_H
#define HR_TEMPLATE_TEMPLATE_H

#include <jansson.h>
#include <time.h>

#include "base/error.h"

/* What a template may be and do. All of them are far above what real ones need. */
enum {
  HR_TEMPLATE_BYTES = 1 << 20,   /* length of the source */
  HR_TEMPLATE_NESTING = 200,     /* brackets, operators and blocks inside each other */
  HR_TEMPLATE_DEPTH = 400,       /* expressions and macros under evaluation */
  HR_TEMPLATE_STEPS = 20000000,  /* operations, and 16 bytes of text worked on */
  HR_TEMPLATE_MEMORY = 64 << 20, /* bytes of all values of one rendering together ... */
  HR_TEMPLATE_MEMORY_RATIO = 128 /* ... and so many more for each byte of the messages */
};

typedef struct hr_chat_template hr_chat_template;

/* The source is copied. name is for messages. HR_ERROR_FILE gives the line and
 * the construct. The caller owns the result; it is never changed, so several
 * threads may render it. */
hr_chat_template *hr_template_parse(const char *source, size_t length, const char *name,
                                    hr_error *err);
/* NULL is allowed. */
void hr_template_free(hr_chat_template *t);

/* A variable of the template whose text is trusted: bos_token and its like. */
typedef struct hr_template_word {
  const char *name;
  const char *text;
  size_t length;
} hr_template_word;

typedef struct hr_template_input {
  const hr_chat_message *messages; /* roles are the template's word, contents are data */
  size_t message_count;
  bool has_messages;               /* false: `messages` is among the variables, or undefined */
  bool add_generation_prompt;
  const hr_template_word *words;
  size_t word_count;
  const json_t *variables;         /* an object or NULL; every string in it is data, but for the
                                    * member `role` of an element of `messages` */
  const struct tm *now;            /* for strftime_now; NULL: calling it is an error */
} hr_template_input;

typedef struct hr_template_output {
  char *text;
  unsigned char *data; /* [length], 1 where a byte of text came from data */
  size_t length;
} hr_template_output;

/* HR_ERROR_USAGE when the template itself refuses the input (raise_exception);
 * HR_ERROR_FILE names the line and what went wrong there; HR_ERROR_MEMORY. The
 * output is to be finished in any case. */
hr_status hr_template_render(const hr_chat_template *t, const hr_template_input *input,
                             hr_template_output *output, hr_error *err);
void hr_template_output_finish(hr_template_output *output);

/* Templates for the common ways to mark turns. NULL past the end. */
typedef struct hr_named_template {
  const char *name;
  const char *source;
  const char *turn_end; /* what a model is to write after its answer; NULL: its end token */
} hr_named_template;
const hr_named_template *hr_named_template_at(size_t index);

#endif
