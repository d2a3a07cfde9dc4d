/* SPDX-License-Identifier: MIT
 * What the kinds of tokenizers share. */
#ifndef HR_TEXT_TOKENIZER_IMPL_H
#define HR_TEXT_TOKENIZER_IMPL_H

#include "text/lookup.h"
#include "text/merge.h"
#include "text/pretokenize.h"
#include "text/tokenizer.h"

/* U+2581, which stands for a space in SentencePiece's tokens. */
#define HR_SPACE_MARK "\xe2\x96\x81"
#define HR_SPACE_MARK_BYTES ((size_t)3)

/* Tokens are kept as the bytes they stand for in a text, so that encoding looks
 * up the text itself: U+2581 is a space, byte-level letters are their bytes. */
struct hr_tokenizer {
  hr_vocab_kind kind;
  char *where;
  size_t count;
  char *pool;      /* the bytes of all tokens */
  size_t *start;   /* [count + 1] into the pool */
  uint8_t *kinds;  /* [count] of hr_token_kind */
  float *scores;   /* [count], SPM and unigram */
  size_t longest;  /* bytes of the longest token */
  hr_byte_map map; /* ordinary tokens; in BPE behind them also the special ones */
  hr_trie specials;
  hr_trie trie;        /* unigram: ordinary tokens */
  float unknown_score; /* unigram */
  hr_pair_map merges;
  hr_cutter *cutter;
  int32_t byte_id[256];        /* SPM: byte tokens; BPE: the token of one byte; -1: none */
  uint8_t neighbours[256][32]; /* SPM: a bit for each two bytes that a token has side by side */
  int32_t bos, eos, unknown;
  bool add_bos, add_eos, add_space_prefix, ignore_merges;
  bool keep_case, keep_accents, keep_cjk, keep_control, merge_spaces;
  uint32_t *charsmap; /* unigram: units of a double array */
  size_t charsmap_units;
  char *replacements; /* NUL-terminated strings that it points into */
  size_t replacement_bytes;
};

/* One call of hr_tokenizer_encode. */
typedef struct hr_encoder {
  const hr_tokenizer *tokenizer;
  hr_error *err;
  int32_t *ids;
  size_t count, capacity;
  bool after_special; /* nothing but special tokens came right before: the text starts here */
  bool after_unknown; /* the last id stands for unknown characters, more of which it takes in */
  hr_merger merger;
  hr_cut *cut;      /* BPE, made when first needed */
  const char *text; /* BPE: what is being cut */
  char *scratch;
  size_t scratch_capacity;
} hr_encoder;

static inline hr_piece hr_token_bytes(const hr_tokenizer *t, int32_t id) {
  return (hr_piece){t->pool + t->start[id], t->start[id + 1] - t->start[id]};
}

/* Special tokens are not made from a text's characters. */
static inline bool hr_token_is_special(const hr_tokenizer *t, int32_t id) {
  return t->kinds[id] == HR_TOKEN_CONTROL || t->kinds[id] == HR_TOKEN_UNKNOWN;
}

hr_status hr_encoder_memory(hr_encoder *encoder, size_t bytes);
/* Room for `bytes` in the scratch buffer, whose contents stay. */
hr_status hr_encoder_scratch(hr_encoder *encoder, size_t bytes);
hr_status hr_encoder_emit(hr_encoder *encoder, int32_t id);
/* The unknown token, or an error that names the byte when there is none. */
hr_status hr_encoder_emit_unknown(hr_encoder *encoder, char byte);

/* Copies a text with a space for each U+2581; out has room for length bytes. */
size_t hr_copy_spaced(const char *text, size_t length, char *out);

/* What the kinds do with a stretch of ordinary text. */
hr_status hr_spm_encode(hr_encoder *encoder, const char *text, size_t length);
hr_status hr_bpe_encode(hr_encoder *encoder, const char *text, size_t length);
hr_status hr_wordpiece_encode(hr_encoder *encoder, const char *text, size_t length);
hr_status hr_unigram_encode(hr_encoder *encoder, const char *text, size_t length);

/* Byte-level letters to bytes; out has room for length bytes. SIZE_MAX when the
 * text is not of such letters alone. */
size_t hr_bpe_decode(const char *text, size_t length, char *out);
void hr_spm_prepare(hr_tokenizer *tokenizer);
hr_status hr_bpe_prepare(hr_tokenizer *tokenizer, const hr_vocab *vocab, hr_error *err);
hr_status hr_unigram_prepare(hr_tokenizer *tokenizer, const hr_vocab *vocab, hr_error *err);

#endif
