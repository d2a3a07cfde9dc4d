/* SPDX-License-Identifier: MIT
 * What a model file says of its vocabulary and of where a text ends. */
#ifndef HR_MODEL_VOCAB_H
#define HR_MODEL_VOCAB_H

#include "model/source.h"
#include "text/tokenizer.h"

/* Owns what an hr_vocab points to, beside the source's own bytes, and holds
 * what a tokenizer doesn't need to know. */
typedef struct hr_vocab_storage {
  hr_piece *tokens;
  float *scores;
  int32_t *kinds;
  hr_piece *merges;
  char *pre_tokenizer;
  unsigned char *charsmap;
  int32_t *ends; /* tokens after which generation ends, ascending; -1 is never among them */
  size_t end_count;
  char *unsupported; /* the file has a vocabulary of this kind ("rwkv"), which can't be read */
} hr_vocab_storage;

/* Reads the vocabulary of a GGUF file. *found is false where there is none, and
 * where there is one of a kind that has no tokenizer here: storage->unsupported
 * then names it, for the message when a tokenizer is asked for. The vocab
 * points into the source and the storage, which is to be finished in any case. */
hr_status hr_vocab_read(const hr_source *source, hr_vocab_storage *storage, hr_vocab *vocab,
                        bool *found, hr_error *err);
void hr_vocab_storage_finish(hr_vocab_storage *storage);

/* True when generation ends after this token. */
bool hr_vocab_is_end(const hr_vocab_storage *storage, int32_t id);

#endif
