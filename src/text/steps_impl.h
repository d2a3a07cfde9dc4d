/* SPDX-License-Identifier: MIT
 * What steps.c shares with the steps that rewrite. */
#ifndef HR_TEXT_STEPS_IMPL_H
#define HR_TEXT_STEPS_IMPL_H

#include "text/steps.h"

/* SentencePiece's table: a double array of 32-bit units whose values are
 * offsets of NUL-terminated strings. */
typedef struct hr_charsmap {
  uint32_t *units;
  size_t count;
  char *strings;
  size_t bytes;
} hr_charsmap;

typedef struct hr_compiled {
  hr_text_step step; /* pattern and content belong to this */
  void *code;        /* PCRE2's, of patterns that do not stand for themselves */
  uint32_t compares; /* the last group that the pattern looks for again; 0: none */
  hr_charsmap charsmap;
  const hr_trie *keep;
} hr_compiled;

/* Appends what becomes of a piece to pieces->next. False when memory is out. */
typedef bool hr_rewrite_fn(hr_pieces *pieces, const hr_compiled *step, const char *text,
                           size_t length, bool first);
/* NULL for HR_STEP_SPLIT and HR_STEP_REPLACE, which look for patterns. */
hr_rewrite_fn *hr_rewriter(hr_step_kind kind);

/* Unpacks step->step.content. */
hr_status hr_charsmap_read(hr_charsmap *map, hr_piece table, const char *where, hr_error *err);
void hr_charsmap_clear(hr_charsmap *map);

#endif
