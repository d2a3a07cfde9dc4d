/* SPDX-License-Identifier: MIT
 * What a model's files say of its vocabulary and of where a text ends. */
#ifndef HR_MODEL_VOCAB_H
#define HR_MODEL_VOCAB_H

#include "base/file_map.h"
#include "model/source.h"
#include "text/tokenizer.h"

typedef struct hr_step_array {
  hr_text_step *step;
  size_t count, capacity;
} hr_step_array;

/* Owns what an hr_vocab points to, beside the source's own bytes, and holds
 * what a tokenizer doesn't need to know. */
typedef struct hr_vocab_storage {
  hr_piece *tokens;
  float *scores;
  int32_t *kinds;
  uint8_t *added;
  hr_merge *merges;
  hr_step_array normalizer, pre_tokenizer, decoder;
  void *json;      /* jansson's, of tokenizer.json */
  hr_file_map map; /* of a SentencePiece file */
  char **kept;     /* strings that a reader made */
  size_t kept_count, kept_capacity;
  int32_t *ends;   /* tokens after which generation ends, ascending; -1 is never among them */
  size_t end_count;
  char *pre_name;    /* of the byte-level pre-tokenizer in use, where the file has names */
  char *warning;     /* a sentence about what the files lack or ask for in vain, or NULL */
  char *unsupported; /* the file has a vocabulary of this kind ("rwkv"), which can't be read */
} hr_vocab_storage;

/* Reads the vocabulary of a model: of a GGUF file its own; beside safetensors
 * tokenizer.json, or else tokenizer.model (of NAME.safetensors with
 * NAME_config.json also NAME_tokenizer.json and NAME.model). *found is false
 * where there is none, and where there is one of a kind that has no tokenizer
 * here: storage->unsupported then names it, for the message when a tokenizer is
 * asked for. The vocab points into the source and the storage, which is to be
 * finished in any case. */
hr_status hr_vocab_read(const hr_source *source, hr_vocab_storage *storage, hr_vocab *vocab,
                        bool *found, hr_error *err);

/* The same for a tokenizer's own file in memory, which outlives the storage; `where` too. */
hr_status hr_vocab_parse_json(const void *data, size_t bytes, const char *where,
                              hr_vocab_storage *storage, hr_vocab *vocab, hr_error *err);
hr_status hr_vocab_parse_sentencepiece(const void *data, size_t bytes, const char *where,
                                       hr_vocab_storage *storage, hr_vocab *vocab, hr_error *err);

/* Frees what only the creation of a tokenizer needs; the ends stay. */
void hr_vocab_storage_trim(hr_vocab_storage *storage);
void hr_vocab_storage_finish(hr_vocab_storage *storage);

/* True when generation ends after this token. */
bool hr_vocab_is_end(const hr_vocab_storage *storage, int32_t id);

#endif
