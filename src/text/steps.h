/* SPDX-License-Identifier: MIT
 * Steps that rewrite and cut a text before a model turns it into ids. */
#ifndef HR_TEXT_STEPS_H
#define HR_TEXT_STEPS_H

#include "text/lookup.h"
#include "text/tokenizer.h"

typedef struct hr_steps hr_steps; /* compiled, immutable, shared by threads */

#define HR_STEPS_MOST 256

/* keep: keys that SentencePiece's normalizer leaves as they are; it and where, the
 * file's name, belong to the caller and outlive the steps. NULL with a sentence. */
hr_steps *hr_steps_create(hr_step_list list, const hr_trie *keep, const char *where, hr_error *err);
void hr_steps_free(hr_steps *steps);

typedef struct hr_text_span {
  size_t start, length;
} hr_text_span;

/* Bytes that grow. */
typedef struct hr_buffer {
  char *text;
  size_t length, capacity;
  size_t most; /* bytes that there may be; 0: any number */
  bool full;   /* there were to be more */
} hr_buffer;

/* False when memory is out, or the buffer is full. */
bool hr_buffer_put(hr_buffer *buffer, const char *text, size_t length);

/* A text on its way through steps, for one thread. Zeroed to begin with. */
typedef struct hr_pieces {
  hr_buffer now, next;
  hr_text_span *spans, *cut; /* pieces of now.text, in order; what a step makes of them */
  size_t count, capacity, cut_count, cut_capacity;
  hr_buffer clean; /* now.text as PCRE2 can take it */
  int32_t *codes;  /* code points of a piece */
  size_t code_capacity;
  void *match, *limits; /* PCRE2's */
  size_t bytes;         /* loaded so far, which is what patterns may take work for */
  size_t work, place;   /* what they took, and where the one at work is */
} hr_pieces;

/* Starts with one piece. Texts loaded one after another are parts of one text as to the work
 * that is done for it. False when memory is out. */
bool hr_pieces_load(hr_pieces *pieces, const char *text, size_t length);
void hr_pieces_clear(hr_pieces *pieces);

/* Takes the pieces through all steps. Any bytes are fine: one that is not part
 * of a code point counts as a character that is no letter, number, punctuation
 * or space. first: the first piece is where the text begins. Steps come from
 * files: a text that they make longer and longer is an error, as is a pattern that takes more
 * work than grows with the text. */
hr_status hr_steps_run(const hr_steps *steps, hr_pieces *pieces, bool first, hr_error *err);

#endif
