/* SPDX-License-Identifier: MIT
 * What the kinds of tokenizers share. */
#ifndef HR_TEXT_TOKENIZER_IMPL_H
#define HR_TEXT_TOKENIZER_IMPL_H

#include "text/lookup.h"
#include "text/merge.h"
#include "text/steps.h"
#include "text/tokenizer.h"

/* U+2581, which stands for a space in SentencePiece's tokens. */
#define HR_SPACE_MARK "\xe2\x96\x81"
#define HR_SPACE_MARK_BYTES ((size_t)3)

/* Tokens are kept as they are looked up: in byte-level BPE as bytes, else as
 * the file has them, with U+2581 for a space. */
struct hr_tokenizer {
  hr_vocab_kind kind;
  char *where;
  size_t count;
  char *pool;     /* the bytes of all tokens */
  size_t *start;  /* [count + 1] into the pool */
  char *says;     /* what tokens say, where the decoder's steps tell */
  size_t *says_start; /* [count + 1] into says; NULL: as they are looked up */
  hr_piece unknown_text;
  uint8_t *kinds; /* [count] of hr_token_kind */
  uint8_t *added; /* [count] of HR_ADDED_*, or NULL */
  int32_t *guards; /* bos, eos and the ends, whatever kind they are of */
  size_t guard_count;
  float *scores;  /* [count], SPM and unigram */
  size_t longest; /* bytes of the longest token */
  hr_byte_map map;    /* ordinary tokens; in BPE behind them also the special ones */
  hr_trie specials;   /* control and user-defined tokens as they stand in a text */
  hr_trie normalized; /* those that are looked for in the normalized text */
  hr_trie users;      /* inline_user_tokens: the user-defined ones */
  hr_trie trie;       /* unigram, WordPiece: ordinary tokens */
  float unknown_score, best_score; /* unigram */
  hr_pair_map merges;
  hr_steps *normalizer, *pre_tokenizer;
  int32_t byte_id[256];        /* byte tokens; byte-level BPE: the token of one byte; -1: none */
  uint8_t neighbours[256][32]; /* joining characters: a bit for each two bytes that a token has
                                * side by side */
  int32_t unknown;
  hr_template around;
  bool strip_first_space, byte_level, ignore_merges, fuse_unknown, single_precision, inline_users;
  size_t longest_word;
};

/* One call of hr_tokenizer_encode. */
typedef struct hr_encoder {
  const hr_tokenizer *tokenizer;
  hr_error *err;
  unsigned flags;
  const unsigned char
      *data; /* of a conversation: 1 where a byte of `marked` is a user's, or NULL */
  const char *marked;
  bool all_data;             /* it is not known any more which bytes are */
  int32_t *ids;
  size_t count, capacity;
  int32_t first_special; /* the special token that the text itself starts with; -1: none */
  bool after_unknown;    /* the last id stands for unknown characters, more of which it takes in */
  hr_pieces normal, pieces;
  hr_merger merger;
  hr_buffer word;        /* WordPiece: with its mark; bytes: with U+FFFD in it */
  struct hr_best *best;  /* unigram: the best way to each position */
  size_t best_capacity;
} hr_encoder;

static inline hr_piece hr_token_bytes(const hr_tokenizer *t, int32_t id) {
  return (hr_piece){t->pool + t->start[id], t->start[id + 1] - t->start[id]};
}

/* Special tokens are not made from a text's characters. */
static inline bool hr_token_is_special(const hr_tokenizer *t, int32_t id) {
  return t->kinds[id] == HR_TOKEN_CONTROL || t->kinds[id] == HR_TOKEN_UNKNOWN;
}

/* Whether a text begins or ends with the token. */
static inline bool hr_token_is_guard(const hr_tokenizer *t, int32_t id) {
  for (size_t i = 0; i < t->guard_count; i++)
    if (t->guards[i] == id) return true;
  return false;
}

hr_status hr_encoder_memory(hr_encoder *encoder, size_t bytes);
hr_status hr_encoder_emit(hr_encoder *encoder, int32_t id);
/* The unknown token, or an error that names the byte when there is none. */
hr_status hr_encoder_emit_unknown(hr_encoder *encoder, char byte);
/* A character that is no token: its bytes, else the unknown token. */
hr_status hr_encoder_emit_character(hr_encoder *encoder, const char *text, size_t length);
/* What the merger's symbols, at least one, have become. */
hr_status hr_encoder_emit_symbols(hr_encoder *encoder, const char *text);

/* What the kinds do with a piece of text. */
hr_status hr_bytes_encode(hr_encoder *encoder, const char *text, size_t length);
hr_status hr_characters_encode(hr_encoder *encoder, const char *text, size_t length);
hr_status hr_wordpiece_encode(hr_encoder *encoder, const char *text, size_t length);
hr_status hr_unigram_encode(hr_encoder *encoder, const char *text, size_t length);

/* Byte-level letters to bytes; out has room for length bytes. SIZE_MAX when the
 * text is not of such letters alone. */
size_t hr_bytes_of_letters(const char *text, size_t length, char *out);
/* arg is the tokenizer: symbols join by the rank of their merge. */
bool hr_join_by_rank(const void *arg, const hr_symbol *left, const hr_symbol *right,
                     uint32_t *order, int32_t *id);
void hr_characters_prepare(hr_tokenizer *tokenizer);
hr_status hr_bpe_prepare(hr_tokenizer *tokenizer, const hr_vocab *vocab, hr_error *err);
hr_status hr_wordpiece_prepare(hr_tokenizer *tokenizer, hr_error *err);
/* The error of a map that is crowded. */
hr_status hr_fail_crowded(const hr_tokenizer *tokenizer, hr_error *err);
hr_status hr_unigram_prepare(hr_tokenizer *tokenizer, const hr_vocab *vocab, hr_error *err);

#endif
