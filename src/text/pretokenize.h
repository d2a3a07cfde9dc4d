/* SPDX-License-Identifier: MIT
 * Cutting a text into the pieces that byte-level BPE works on one by one. */
#ifndef HR_TEXT_PRETOKENIZE_H
#define HR_TEXT_PRETOKENIZE_H

#include "base/error.h"

typedef struct hr_cutter hr_cutter; /* immutable, shared by threads */
typedef struct hr_cut hr_cut;       /* what one use needs, for one thread */

/* By the name that GGUF gives the pre-tokenizer; NULL means "default".
 * HR_ERROR_FILE with the name when it is not known. */
hr_cutter *hr_cutter_create(const char *name, const char *where, hr_error *err);
void hr_cutter_free(hr_cutter *cutter);

hr_cut *hr_cut_create(const hr_cutter *cutter, hr_error *err);
void hr_cut_free(hr_cut *cut);

/* Called for the pieces in order; together they are the whole text. */
typedef hr_status hr_cut_fn(void *arg, size_t start, size_t length, hr_error *err);

/* Any bytes are fine: one that is not part of a code point counts as a
 * character that is no letter, number, punctuation or space. */
hr_status hr_cut_run(hr_cut *cut, const char *text, size_t length, hr_cut_fn *piece, void *arg,
                     hr_error *err);

#endif
