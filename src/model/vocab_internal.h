/* SPDX-License-Identifier: MIT
 * What the readers of vocabularies share. */
#ifndef HR_MODEL_VOCAB_INTERNAL_H
#define HR_MODEL_VOCAB_INTERNAL_H

#include <jansson.h>

#include "model/vocab.h"

/* Ids are 31 bits wide. */
#define HR_VOCAB_MAX ((size_t)INT32_MAX)

/* Fills a fresh storage and vocab from GGUF. */
hr_status hr_vocab_read_gguf(const hr_source *source, hr_vocab_storage *storage, hr_vocab *vocab,
                             bool *found, hr_error *err);

bool hr_piece_is(hr_piece piece, const char *text);
/* The first token with this text; -1: none. */
int32_t hr_vocab_find(const hr_vocab *vocab, hr_piece text);

/* Arrays of `count` tokens, in the storage and named by the vocab; scores only when asked for. */
hr_status hr_vocab_reserve(hr_vocab_storage *storage, hr_vocab *vocab, size_t count, bool scores,
                           hr_error *err);
/* More tokens than so far; the new ones are unused and say nothing. */
hr_status hr_vocab_extend(hr_vocab_storage *storage, hr_vocab *vocab, size_t count, hr_error *err);

hr_status hr_vocab_add_step(hr_step_array *array, hr_text_step step, const char *where,
                            hr_error *err);
hr_status hr_vocab_add_steps(hr_step_array *array, hr_step_list steps, const char *where,
                             hr_error *err);
/* The vocab's lists of steps become those of the storage. */
void hr_vocab_take_steps(const hr_vocab_storage *storage, hr_vocab *vocab);
/* What a token of SentencePiece says: a space for each U+2581. */
hr_status hr_vocab_add_space_decoder(hr_vocab_storage *storage, const char *where, hr_error *err);

/* A copy of some bytes for the life of the storage, with a NUL behind it; NULL
 * with an error when memory is out. */
char *hr_vocab_keep(hr_vocab_storage *storage, const char *text, size_t length, const char *where,
                    hr_error *err);

/* bos before and eos behind a text, when they are wanted and there are such tokens. */
void hr_vocab_set_template(hr_vocab *vocab, bool add_bos, bool add_eos);
/* How two texts are put together where the file has no word of it: BERT's [CLS] a
 * [SEP] b [SEP] with types, RoBERTa's <s> a </s></s> b </s> without. */
void hr_vocab_set_pairs(hr_vocab *vocab);

/* Lists where texts end: mark[id] is set for those that the files name; known
 * markers are added. */
hr_status hr_vocab_list_ends(hr_vocab_storage *storage, const hr_vocab *vocab, unsigned char *mark,
                             hr_error *err);

/* Tokens that a list of {"id", "content", flags} adds. id: of an entry that
 * has none of its own, else -1. */
hr_status hr_vocab_add_token(hr_vocab_storage *storage, hr_vocab *vocab, const json_t *token,
                             int64_t id, hr_error *err);

/* A JSON file that is an object; NULL with a sentence. All numbers are real ones:
 * some files have integers that no machine has. Closes the map. */
json_t *hr_vocab_load_json(hr_file_map *map, const char *path, hr_error *err);

/* hr_source_open_beside, with what messages call the file. */
#define HR_WHERE_BYTES 512
hr_status hr_vocab_open_beside(const hr_source *source, const char *name, hr_file_map *map,
                               char where[HR_WHERE_BYTES], bool *found, hr_error *err);

#endif
