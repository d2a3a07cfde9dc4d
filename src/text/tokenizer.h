/* SPDX-License-Identifier: MIT
 * Text to token ids and back. A tokenizer is described as data: steps that
 * rewrite the text, steps that cut it, a model that turns a piece into ids, what
 * stands around a text, and how tokens read. */
#ifndef HR_TEXT_TOKENIZER_H
#define HR_TEXT_TOKENIZER_H

#include "base/error.h"

typedef enum hr_vocab_kind {
  HR_VOCAB_SPM,       /* SentencePiece BPE: characters are joined by score */
  HR_VOCAB_BPE,       /* BPE: bytes or characters are joined by the rank of their merge */
  HR_VOCAB_WORDPIECE, /* BERT: a word is covered by the longest tokens. As in GGUF, a token that
                       * starts a word has U+2581 in front and the others have no "##". */
  HR_VOCAB_UNIGRAM    /* SentencePiece unigram: the most probable cut */
} hr_vocab_kind;

/* As GGUF and SentencePiece number them. */
typedef enum hr_token_kind {
  HR_TOKEN_NORMAL = 1,
  HR_TOKEN_UNKNOWN = 2,
  HR_TOKEN_CONTROL = 3,
  HR_TOKEN_USER = 4, /* user-defined: found whole in the text before anything else */
  HR_TOKEN_UNUSED = 5,
  HR_TOKEN_BYTE = 6 /* <0xNN>: the way out for a character that is no token */
} hr_token_kind;

/* What a control or user-defined token asks of the text around it. */
enum {
  HR_ADDED_LSTRIP = 1,      /* it takes in the white space before it */
  HR_ADDED_RSTRIP = 2,      /* and behind it */
  HR_ADDED_SINGLE_WORD = 4, /* it is none inside a word */
  HR_ADDED_NORMALIZED = 8   /* it is looked for in the normalized text, normalized itself */
};

typedef struct hr_piece {
  const char *text; /* not NUL-terminated, may hold any byte */
  size_t length;
} hr_piece;

typedef struct hr_merge {
  hr_piece left, right;
} hr_merge;

/* --- Steps ----------------------------------------------------------------- */

typedef enum hr_step_kind {
  /* Rewrite a piece. */
  HR_STEP_PREPEND,       /* content goes in front of it */
  HR_STEP_REPLACE,       /* each match of pattern becomes content */
  HR_STEP_STRIP,         /* white space at the ends goes: HR_STRIP_* */
  HR_STEP_LOWERCASE,
  HR_STEP_STRIP_ACCENTS, /* nonspacing marks go */
  HR_STEP_NFC,
  HR_STEP_NFD,
  HR_STEP_NFKC,
  HR_STEP_NFKD,
  HR_STEP_NMT,           /* control characters go, white space becomes a space */
  HR_STEP_BERT,          /* BERT's normalizer: HR_BERT_* */
  HR_STEP_CHARSMAP,      /* SentencePiece's table in content, grapheme by grapheme */
  HR_STEP_SENTENCEPIECE, /* SentencePiece's normalizer: that table, or none, and HR_SPM_* */
  HR_STEP_METASPACE,     /* U+2581 for each space, and one in front: HR_METASPACE_* */
  HR_STEP_PREFIX_SPACE,  /* a space in front, unless there is one */
  HR_STEP_LETTERS,       /* a visible letter for each byte, as byte-level BPE writes them */
  HR_STEP_BYTES,         /* and back */
  HR_STEP_CLEANUP,       /* no space before . ? ! , n't 'm 's 've 're */
  /* Cuts pieces. */
  HR_STEP_SPLIT          /* where pattern matches */
} hr_step_kind;

enum { HR_STRIP_LEFT = 1, HR_STRIP_RIGHT = 2 };
enum { HR_BERT_KEEP_CONTROL = 1, HR_BERT_KEEP_CJK = 2, HR_BERT_KEEP_ACCENTS = 4,
       HR_BERT_KEEP_CASE = 8 };
enum { HR_SPM_PREFIX = 1,       /* a space goes before the text */
       HR_SPM_SUFFIX = 2,       /* that space goes behind the text instead */
       HR_SPM_MERGE_SPACES = 4, /* runs of spaces become one, those at the ends go */
       HR_SPM_KEEP_SPACES = 8   /* spaces are not written as U+2581 */ };
enum { HR_METASPACE_ALWAYS = 1, HR_METASPACE_FIRST = 2 /* only where the text begins */ };

/* What becomes of a match; gaps between matches are pieces too. */
typedef enum hr_split {
  HR_SPLIT_ISOLATED, /* a piece of its own */
  HR_SPLIT_REMOVED,
  HR_SPLIT_MERGED_WITH_PREVIOUS,
  HR_SPLIT_MERGED_WITH_NEXT,
  HR_SPLIT_CONTIGUOUS /* neighbouring matches are one piece */
} hr_split;

typedef struct hr_text_step {
  hr_step_kind kind;
  hr_piece pattern; /* REPLACE, SPLIT: in PCRE2's syntax */
  hr_piece content;
  bool literal;     /* the pattern stands for itself */
  bool invert;      /* SPLIT: matches and gaps change places */
  hr_split split;
  unsigned flags;
} hr_text_step;

typedef struct hr_step_list {
  const hr_text_step *step;
  size_t count;
} hr_step_list;

/* The steps that GGUF means by the name of a pre-tokenizer; NULL is "default".
 * False when it is not known. */
bool hr_named_pre_tokenizer(const char *name, hr_step_list *steps);
/* Some names that are, for messages. */
#define HR_PRE_TOKENIZER_NAMES                                                                \
  "gpt-2, llama-bpe, qwen2, gpt-4o, tekken, deepseek-v3, smollm, starcoder, falcon and their " \
  "relatives"

/* The pieces of byte-level BPE as GPT-2 cuts them, and BERT's words. */
hr_step_list hr_gpt2_words(void);
hr_step_list hr_bert_words(void);

/* --- The description ------------------------------------------------------- */

#define HR_TEMPLATE_IDS 8

/* Ids that go around a text, and between two that are read together. */
typedef struct hr_template {
  int32_t before[HR_TEMPLATE_IDS], after[HR_TEMPLATE_IDS], between[HR_TEMPLATE_IDS];
  size_t before_count, after_count, between_count;
  bool pairs;       /* between is known */
  bool second_type; /* the second text, and what is after it, are segments of type 1 */
} hr_template;

/* What a model file says of its vocabulary. The creator of a tokenizer copies
 * what it keeps; the strings may point into a mapped file. */
typedef struct hr_vocab {
  hr_vocab_kind kind;
  const char *where;      /* file name for messages */
  size_t count;
  const hr_piece *tokens; /* [count] */
  const float *scores;    /* [count], SPM and unigram, else NULL */
  const int32_t *kinds;   /* [count] of hr_token_kind, or NULL: all normal */
  const uint8_t *added;   /* [count] of HR_ADDED_*, or NULL: nothing asked for */
  const hr_merge *merges; /* by rank, BPE only */
  size_t merge_count;
  int32_t bos, eos, unknown; /* -1: none. [CLS] and [SEP] are BERT's */
  const int32_t *ends; /* [end_count] tokens after which a text ends, beside eos */
  size_t end_count;
  hr_template around;
  hr_step_list normalizer, pre_tokenizer;
  hr_step_list decoder;     /* what a token says; only rewriting steps */
  bool strip_first_space;   /* a space that a text starts with is none of its own */
  bool byte_level;          /* BPE joins bytes, and tokens are written in letters for them */
  bool ignore_merges;       /* BPE: a piece that is a token is taken whole (Llama 3) */
  bool fuse_unknown;        /* one unknown token for a run of unknown characters */
  bool single_precision;    /* unigram: scores are added up in binary32, as SentencePiece does */
  bool inline_user_tokens;  /* user-defined tokens are part of the text around them (SentencePiece),
                             * where otherwise the text starts afresh behind them */
  size_t longest_word;      /* WordPiece: longer words are unknown; 0: 100 characters */
  hr_piece unknown_text;    /* what the unknown token says, or NULL: nothing */
} hr_vocab;

typedef struct hr_tokenizer hr_tokenizer;

/* HR_ERROR_FILE names an id or merge outside the vocabulary, a pattern that
 * can't be compiled. The caller owns the result. */
hr_tokenizer *hr_tokenizer_create(const hr_vocab *vocab, hr_error *err);
/* NULL is allowed. */
void hr_tokenizer_free(hr_tokenizer *tokenizer);

/* flags: HR_TOKENIZE_*. *ids is allocated (hr_free) and holds *count ids. Any
 * bytes are fine; time is O(length log length). */
hr_status hr_tokenizer_encode(const hr_tokenizer *tokenizer, const char *text, size_t length,
                              unsigned flags, int32_t **ids, size_t *count, hr_error *err);

/* A conversation that a template has written. data[i] is 1 where a byte is a
 * user's and not the template's: no control token is found there, and no
 * user-defined one that looks like a marker ("<|...|>"). The template's own markers are
 * control tokens, what the vocabulary puts before a text is there once, and
 * nothing is put after it. */
hr_status hr_tokenizer_encode_chat(const hr_tokenizer *tokenizer, const char *text,
                                   const unsigned char *data, size_t length, int32_t **ids,
                                   size_t *count, hr_error *err);

/* Two texts as one sequence, as the template says: before, the first, between, the
 * second, after. *ids and *types are allocated and hold *count numbers. HR_ERROR_FILE
 * when the template knows no pairs. */
hr_status hr_tokenizer_encode_pair(const hr_tokenizer *tokenizer, hr_piece first, hr_piece second,
                                   int32_t **ids, int32_t **types, size_t *count, hr_error *err);

/* The bytes a token stands for inside a text (U+2581 is a space here, a byte
 * token its byte, byte-level letters their bytes). Control tokens: their name
 * when with_special, else nothing. The id must be below the count. The pointer
 * lives as long as the tokenizer. */
hr_piece hr_tokenizer_text(const hr_tokenizer *tokenizer, int32_t id, bool with_special);

/* True when the first token of a text carries a space that the text did not have. */
bool hr_tokenizer_strips_first_space(const hr_tokenizer *tokenizer);

#endif
