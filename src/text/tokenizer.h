/* SPDX-License-Identifier: MIT
 * Text to token ids and back. */
#ifndef HR_TEXT_TOKENIZER_H
#define HR_TEXT_TOKENIZER_H

#include "base/error.h"

typedef enum hr_vocab_kind {
  HR_VOCAB_SPM,     /* SentencePiece BPE: merges by score, byte tokens <0xNN> as the way out */
  HR_VOCAB_BPE,     /* byte-level BPE: merges by rank, a pre-tokenizer cuts the text first */
  HR_VOCAB_WORDPIECE, /* BERT: words of a normalized text by longest match. As in GGUF, a token
                       * that starts a word has U+2581 in front and the others have no "##". bos
                       * is [CLS], eos is [SEP]. */
  HR_VOCAB_UNIGRAM  /* SentencePiece unigram: the most probable cut of a normalized text */
} hr_vocab_kind;

/* As GGUF numbers them. */
typedef enum hr_token_kind {
  HR_TOKEN_NORMAL = 1,
  HR_TOKEN_UNKNOWN = 2,
  HR_TOKEN_CONTROL = 3,
  HR_TOKEN_USER = 4, /* user-defined: found whole in the text before anything else */
  HR_TOKEN_UNUSED = 5,
  HR_TOKEN_BYTE = 6
} hr_token_kind;

typedef struct hr_piece {
  const char *text; /* not NUL-terminated, may hold any byte */
  size_t length;
} hr_piece;

/* What a model file says of its vocabulary. The creator of a tokenizer copies
 * what it keeps; the strings may point into a mapped file. */
typedef struct hr_vocab {
  hr_vocab_kind kind;
  const char *where;            /* file name for messages */
  size_t count;
  const hr_piece *tokens;       /* [count] */
  const float *scores;          /* [count], SPM and unigram, else NULL */
  const int32_t *kinds;         /* [count] of hr_token_kind, or NULL: all normal */
  const hr_piece *merges;       /* "left right" by rank, BPE only */
  size_t merge_count;
  const char *pre_tokenizer;    /* BPE: "gpt-2", "llama-bpe", "qwen2", ... */
  int32_t bos, eos, unknown;    /* -1: none */
  bool add_bos, add_eos;
  bool add_space_prefix;        /* SPM, unigram: a space goes before the text */
  bool ignore_merges;           /* BPE: a word that is a token is taken whole (Llama 3) */
  bool keep_case, keep_accents; /* WordPiece: false as for uncased BERT */
  bool keep_cjk, keep_control;  /* WordPiece: CJK characters are no words of their own; control
                                 * characters stay. False for BERT. */
  bool merge_spaces;            /* unigram: runs of spaces become one, those at the ends go */
  const void *charsmap;         /* unigram: SentencePiece's precompiled normalization, or NULL */
  size_t charsmap_bytes;
} hr_vocab;

typedef struct hr_tokenizer hr_tokenizer;

/* HR_ERROR_FILE names an unknown pre-tokenizer, an id or merge outside the
 * vocabulary. The caller owns the result. */
hr_tokenizer *hr_tokenizer_create(const hr_vocab *vocab, hr_error *err);
/* NULL is allowed. */
void hr_tokenizer_free(hr_tokenizer *tokenizer);

/* flags: HR_TOKENIZE_*. *ids is allocated (hr_free) and holds *count ids. Any
 * bytes are fine; time is O(length log length). */
hr_status hr_tokenizer_encode(const hr_tokenizer *tokenizer, const char *text, size_t length,
                              unsigned flags, int32_t **ids, size_t *count, hr_error *err);

/* The bytes a token stands for inside a text (SPM's U+2581 is a space here, a
 * byte token its byte, byte-level letters their bytes). Control tokens: their
 * name when with_special, else nothing. The id must be below the count. The
 * pointer lives as long as the tokenizer. */
hr_piece hr_tokenizer_text(const hr_tokenizer *tokenizer, int32_t id, bool with_special);

/* True when the first token of a text carries a space that the text did not have. */
bool hr_tokenizer_strips_first_space(const hr_tokenizer *tokenizer);

#endif
