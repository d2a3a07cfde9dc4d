/* SPDX-License-Identifier: MIT
 * Creating a tokenizer from its description; what tokens say. */
#include "text/tokenizer.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "text/tokenizer_impl.h"

/* A text is compared with the longest token that it may begin with at each of its places, so
 * this bounds the time for a byte. Real tokens have a few hundred bytes at most. */
#define MAX_TOKEN ((size_t)4096)
#define LONGEST_WORD 100

/* --- Checks ---------------------------------------------------------------- */

static hr_status check_id(const hr_vocab *vocab, int32_t id, const char *name, hr_error *err) {
  if (id >= -1 && (id < 0 || (size_t)id < vocab->count)) return HR_OK;
  return hr_fail(err, HR_ERROR_FILE, "%s: the id of the %s token is %d, expected less than %zu",
                 vocab->where, name, id, vocab->count);
}

static hr_status check_template(const hr_vocab *vocab, const int32_t *ids, size_t count,
                                hr_error *err) {
  for (size_t i = 0; i < count; i++)
    if (ids[i] < 0 || (size_t)ids[i] >= vocab->count)
      return hr_fail(err, HR_ERROR_FILE,
                     "%s: id %d is to be put around a text, expected ids below %zu", vocab->where,
                     ids[i], vocab->count);
  return HR_OK;
}

static hr_status check_ids(const hr_vocab *vocab, hr_error *err) {
  hr_status status = check_id(vocab, vocab->bos, "BOS", err);
  if (status == HR_OK) status = check_id(vocab, vocab->eos, "EOS", err);
  if (status == HR_OK) status = check_id(vocab, vocab->unknown, "unknown", err);
  const hr_template *around = &vocab->around;
  if (status == HR_OK) status = check_template(vocab, around->before, around->before_count, err);
  return status == HR_OK ? check_template(vocab, around->after, around->after_count, err) : status;
}

/* *bytes is the room that all tokens need. */
static hr_status check_vocab(const hr_vocab *vocab, size_t *bytes, hr_error *err) {
  if (vocab->count == 0 || vocab->count >= INT32_MAX)
    return hr_fail(err, HR_ERROR_FILE, "%s: the vocabulary has %zu tokens, expected 1 to %d",
                   vocab->where, vocab->count, INT32_MAX - 1);
  *bytes = 1;
  for (size_t i = 0; i < vocab->count; i++) {
    size_t length = vocab->tokens[i].length;
    if (length > MAX_TOKEN || !hr_add_size(*bytes, length, bytes))
      return hr_fail(err, HR_ERROR_FILE, "%s: token %zu has %zu bytes, expected at most %zu",
                     vocab->where, i, length, MAX_TOKEN);
    float score = vocab->scores ? vocab->scores[i] : 0;
    if (isnan(score) || (vocab->kind == HR_VOCAB_UNIGRAM && isinf(score)))
      return hr_fail(err, HR_ERROR_FILE, "%s: the score of token %zu is %s, expected a number%s",
                     vocab->where, i, isnan(score) ? "NaN" : "infinite",
                     vocab->kind == HR_VOCAB_UNIGRAM ? " that fits into 32 bits" : "");
  }
  if ((vocab->kind == HR_VOCAB_SPM || vocab->kind == HR_VOCAB_UNIGRAM) && !vocab->scores)
    return hr_fail(err, HR_ERROR_FILE, "%s: the vocabulary has no scores, which its kind needs",
                   vocab->where);
  return check_ids(vocab, err);
}

/* --- Tokens as they are looked up ------------------------------------------ */

static int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

/* The byte that a token such as <0x0A> stands for; -1: it is none. */
static int byte_of(hr_piece piece) {
  if (piece.length != 6 || memcmp(piece.text, "<0x", 3) != 0 || piece.text[5] != '>') return -1;
  int high = hex_digit(piece.text[3]), low = hex_digit(piece.text[4]);
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

static bool has_byte_kind(const hr_vocab *vocab) {
  for (size_t i = 0; vocab->kinds && i < vocab->count; i++)
    if (vocab->kinds[i] == HR_TOKEN_BYTE) return true;
  return false;
}

/* Files that don't tell kinds apart leave it to the ids and the looks of a token. */
static hr_token_kind kind_of(const hr_vocab *vocab, size_t i, bool bytes_are_marked) {
  int32_t kind = vocab->kinds ? vocab->kinds[i] : HR_TOKEN_NORMAL;
  int32_t id = (int32_t)i;
  if (kind < HR_TOKEN_NORMAL || kind > HR_TOKEN_BYTE) kind = HR_TOKEN_NORMAL;
  if (!vocab->kinds && id == vocab->unknown) return HR_TOKEN_UNKNOWN;
  if (!vocab->kinds && (id == vocab->bos || id == vocab->eos)) return HR_TOKEN_CONTROL;
  if (kind == HR_TOKEN_NORMAL && !bytes_are_marked && vocab->kind == HR_VOCAB_SPM &&
      byte_of(vocab->tokens[i]) >= 0)
    return HR_TOKEN_BYTE;
  return (hr_token_kind)kind;
}

/* Writes a token as it is looked up, at most as many bytes as its text has. */
static size_t write_token(const hr_vocab *vocab, hr_token_kind kind, hr_piece piece, char *out) {
  if (kind == HR_TOKEN_BYTE && byte_of(piece) >= 0) {
    *out = (char)byte_of(piece);
    return 1;
  }
  if (vocab->byte_level && (kind == HR_TOKEN_NORMAL || kind == HR_TOKEN_UNUSED)) {
    size_t length = hr_bytes_of_letters(piece.text, piece.length, out);
    if (length != SIZE_MAX) return length;
  }
  if (piece.length) memcpy(out, piece.text, piece.length);
  return piece.length;
}

static void fill_pool(hr_tokenizer *t, const hr_vocab *vocab) {
  bool bytes_are_marked = has_byte_kind(vocab);
  for (size_t i = 0; i < vocab->count; i++) {
    hr_token_kind kind = kind_of(vocab, i, bytes_are_marked);
    size_t length = write_token(vocab, kind, vocab->tokens[i], t->pool + t->start[i]);
    t->kinds[i] = (uint8_t)kind;
    t->start[i + 1] = t->start[i] + length;
    if (length > t->longest) t->longest = length;
    if (kind == HR_TOKEN_BYTE && length == 1 && !t->byte_level)
      t->byte_id[(uint8_t)t->pool[t->start[i]]] = (int32_t)i;
  }
}

/* SentencePiece joins whatever two tokens spell a third: no BOS or EOS, where those
 * count as user-defined and are found whole. */
static bool is_found_whole(const hr_tokenizer *t, int32_t id) {
  return t->kind == HR_VOCAB_SPM && t->kinds[id] == HR_TOKEN_USER && hr_token_is_guard(t, id);
}

static void map_kinds(hr_tokenizer *t, unsigned kinds) {
  for (size_t i = t->count; i-- > 0;) {
    hr_piece piece = hr_token_bytes(t, (int32_t)i);
    if ((kinds >> t->kinds[i] & 1) && piece.length && !is_found_whole(t, (int32_t)i))
      hr_byte_map_add(&t->map, piece.text, piece.length, (int32_t)i);
  }
}

/* Where two tokens stand for the same bytes, an ordinary one is found. Special
 * ones are there for BPE's merges, which may name any token. */
static void fill_map(hr_tokenizer *t) {
  map_kinds(t, 1u << HR_TOKEN_NORMAL | 1u << HR_TOKEN_UNUSED);
  map_kinds(t, 1u << HR_TOKEN_USER);
  if (t->kind == HR_VOCAB_BPE) map_kinds(t, 1u << HR_TOKEN_CONTROL | 1u << HR_TOKEN_UNKNOWN);
}

/* --- Tokens that are found whole ------------------------------------------- */

/* Adds a token as the normalizer leaves it. */
static hr_status add_normalized(hr_tokenizer *t, hr_pieces *pieces, int32_t id, hr_error *err) {
  hr_piece piece = hr_token_bytes(t, id);
  if (!hr_pieces_load(pieces, piece.text, piece.length))
    return hr_fail_memory(err, t->where, piece.length);
  hr_status status = hr_steps_run(t->normalizer, pieces, true, err);
  if (status != HR_OK || pieces->now.length == 0) return status;
  if (pieces->now.length > MAX_TOKEN)
    return hr_fail(err, HR_ERROR_FILE, "%s: token %d has %zu bytes when it is normalized, expected "
                   "at most %zu", t->where, id, pieces->now.length, MAX_TOKEN);
  return hr_trie_add(&t->normalized, pieces->now.text, pieces->now.length, id)
             ? HR_OK
             : hr_fail_memory(err, t->where, pieces->now.length);
}

static hr_status add_special(hr_tokenizer *t, hr_pieces *pieces, int32_t id, hr_error *err) {
  hr_piece piece = hr_token_bytes(t, id);
  bool user = t->kinds[id] == HR_TOKEN_USER;
  if (piece.length == 0 || !(user || hr_token_is_special(t, id))) return HR_OK;
  if (t->added && (t->added[id] & HR_ADDED_NORMALIZED)) return add_normalized(t, pieces, id, err);
  hr_trie *trie = user && t->inline_users ? &t->users : &t->specials;
  return hr_trie_add(trie, piece.text, piece.length, id)
             ? HR_OK
             : hr_fail_memory(err, t->where, piece.length);
}

static hr_status fill_specials(hr_tokenizer *t, hr_error *err) {
  hr_pieces pieces = {0};
  hr_status status = HR_OK;
  for (size_t i = 0; i < t->count && status == HR_OK; i++)
    status = add_special(t, &pieces, (int32_t)i, err);
  hr_pieces_clear(&pieces);
  return status;
}

/* --- What tokens say ------------------------------------------------------- */

static bool says_itself(const hr_tokenizer *t, int32_t id) {
  return hr_token_is_special(t, id) || t->kinds[id] == HR_TOKEN_BYTE;
}

/* Tokens say about as much as their bytes: a space more, or a word for a mark. */
static size_t most_to_say(const hr_tokenizer *t) {
  return 4 * t->start[t->count] + 16 * t->count + 65536;
}

static hr_status fail_saying(const hr_tokenizer *t, const hr_buffer *says, hr_error *err) {
  if (!says->full) return hr_fail_memory(err, t->where, says->length);
  return hr_fail(err, HR_ERROR_FILE,
                 "%s: its decoder makes more than %zu bytes of the tokens' %zu", t->where,
                 says->most, t->start[t->count]);
}

static hr_status run_decoder(hr_tokenizer *t, const hr_steps *decoder, hr_buffer *says,
                             hr_pieces *pieces, hr_error *err) {
  says->most = most_to_say(t);
  for (size_t i = 0; i < t->count; i++) {
    hr_piece piece = hr_token_bytes(t, (int32_t)i);
    if (!says_itself(t, (int32_t)i)) {
      if (!hr_pieces_load(pieces, piece.text, piece.length))
        return hr_fail_memory(err, t->where, piece.length);
      hr_status status = hr_steps_run(decoder, pieces, false, err);
      if (status != HR_OK) return status;
      piece = (hr_piece){pieces->now.text, pieces->now.length};
    }
    if (!hr_buffer_put(says, piece.text, piece.length)) return fail_saying(t, says, err);
    t->says_start[i + 1] = says->length;
  }
  return HR_OK;
}

static hr_status fill_says(hr_tokenizer *t, const hr_vocab *vocab, hr_error *err) {
  hr_piece unknown = vocab->unknown_text;
  if (unknown.text) {
    t->unknown_text = (hr_piece){hr_strndup(unknown.text, unknown.length), unknown.length};
    if (!t->unknown_text.text) return hr_fail_memory(err, t->where, unknown.length);
  }
  if (vocab->decoder.count == 0) return HR_OK;
  hr_steps *decoder = hr_steps_create(vocab->decoder, NULL, t->where, err);
  if (!decoder) return HR_ERROR_FILE;
  t->says_start = hr_calloc(t->count + 1, sizeof *t->says_start);
  hr_pieces pieces = {0};
  hr_buffer says = {0};
  hr_status status = t->says_start ? run_decoder(t, decoder, &says, &pieces, err)
                                   : hr_fail_memory(err, t->where, t->count * sizeof(size_t));
  t->says = says.text;
  hr_pieces_clear(&pieces);
  hr_steps_free(decoder);
  return status;
}

hr_piece hr_tokenizer_text(const hr_tokenizer *t, int32_t id, bool with_special) {
  if (hr_token_is_special(t, id) && !with_special)
    return id == t->unknown && t->unknown_text.text ? t->unknown_text : (hr_piece){"", 0};
  if (!t->says_start) return hr_token_bytes(t, id);
  size_t start = t->says_start[id], length = t->says_start[id + 1] - start;
  return length ? (hr_piece){t->says + start, length} : (hr_piece){"", 0};
}

bool hr_tokenizer_strips_first_space(const hr_tokenizer *t) {
  return t->strip_first_space;
}

/* --- Creation -------------------------------------------------------------- */

static bool copy_arrays(hr_tokenizer *t, const hr_vocab *vocab) {
  if (vocab->scores) {
    t->scores = hr_calloc(t->count, sizeof *t->scores);
    if (!t->scores) return false;
    memcpy(t->scores, vocab->scores, t->count * sizeof *t->scores);
  }
  if (vocab->added) {
    t->added = hr_calloc(t->count, sizeof *t->added);
    if (!t->added) return false;
    memcpy(t->added, vocab->added, t->count * sizeof *t->added);
  }
  return true;
}

static bool copy_guards(hr_tokenizer *t, const hr_vocab *vocab) {
  t->guards = hr_calloc(vocab->end_count + 2, sizeof *t->guards);
  if (!t->guards) return false;
  for (size_t i = 0; i < vocab->end_count; i++) t->guards[t->guard_count++] = vocab->ends[i];
  t->guards[t->guard_count++] = vocab->bos;
  t->guards[t->guard_count++] = vocab->eos;
  return true;
}

static bool reserve(hr_tokenizer *t, const hr_vocab *vocab, size_t bytes) {
  t->where = hr_strndup(vocab->where, strlen(vocab->where));
  t->pool = hr_calloc(bytes, 1);
  t->start = hr_calloc(t->count + 1, sizeof *t->start);
  t->kinds = hr_calloc(t->count, sizeof *t->kinds);
  return t->where && t->pool && t->start && t->kinds && copy_arrays(t, vocab) &&
         copy_guards(t, vocab) &&
         hr_byte_map_init(&t->map, t->count) && hr_trie_init(&t->specials) &&
         hr_trie_init(&t->normalized) && hr_trie_init(&t->users);
}

hr_status hr_fail_crowded(const hr_tokenizer *t, hr_error *err) {
  return hr_fail(err, HR_ERROR_FILE,
                 "%s: its tokens were chosen to take long to be found, expected a vocabulary that "
                 "was made from text", t->where);
}

static hr_status fill_model(hr_tokenizer *t, const hr_vocab *vocab, hr_error *err) {
  switch (t->kind) {
    case HR_VOCAB_SPM:
      hr_characters_prepare(t);
      break;
    case HR_VOCAB_BPE:
      if (!t->byte_level) hr_characters_prepare(t);
      return hr_bpe_prepare(t, vocab, err);
    case HR_VOCAB_WORDPIECE:
      return hr_wordpiece_prepare(t, err);
    case HR_VOCAB_UNIGRAM:
      return hr_unigram_prepare(t, vocab, err);
  }
  return HR_OK;
}

static hr_status fill(hr_tokenizer *t, const hr_vocab *vocab, hr_error *err) {
  size_t bytes = 0;
  hr_status status = check_vocab(vocab, &bytes, err);
  if (status != HR_OK) return status;
  if (!reserve(t, vocab, bytes)) return hr_fail_memory(err, vocab->where, bytes);
  fill_pool(t, vocab);
  fill_map(t);
  if (t->map.crowded) return hr_fail_crowded(t, err);
  t->normalizer = hr_steps_create(vocab->normalizer, &t->users, t->where, err);
  if (t->normalizer)
    t->pre_tokenizer = hr_steps_create(vocab->pre_tokenizer, &t->users, t->where, err);
  if (!t->pre_tokenizer) return HR_ERROR_FILE;
  status = fill_specials(t, err);
  if (status == HR_OK) status = fill_model(t, vocab, err);
  return status == HR_OK ? fill_says(t, vocab, err) : status;
}

hr_tokenizer *hr_tokenizer_create(const hr_vocab *vocab, hr_error *err) {
  hr_tokenizer *t = hr_calloc(1, sizeof *t);
  if (!t) {
    hr_fail_memory(err, vocab->where, sizeof *t);
    return NULL;
  }
  *t = (hr_tokenizer){.kind = vocab->kind,
                      .count = vocab->count,
                      .unknown = vocab->unknown,
                      .around = vocab->around,
                      .strip_first_space = vocab->strip_first_space,
                      .byte_level = vocab->byte_level,
                      .ignore_merges = vocab->ignore_merges,
                      .fuse_unknown = vocab->fuse_unknown,
                      .single_precision = vocab->single_precision,
                      .inline_users = vocab->inline_user_tokens,
                      .longest_word = vocab->longest_word ? vocab->longest_word : LONGEST_WORD};
  memset(t->byte_id, 0xff, sizeof t->byte_id);
  if (fill(t, vocab, err) == HR_OK) return t;
  hr_tokenizer_free(t);
  return NULL;
}

void hr_tokenizer_free(hr_tokenizer *t) {
  if (!t) return;
  hr_steps_free(t->normalizer);
  hr_steps_free(t->pre_tokenizer);
  hr_pair_map_clear(&t->merges);
  hr_trie_clear(&t->trie);
  hr_trie_clear(&t->specials);
  hr_trie_clear(&t->normalized);
  hr_trie_clear(&t->users);
  hr_byte_map_clear(&t->map);
  hr_free((char *)t->unknown_text.text);
  hr_free(t->says);
  hr_free(t->says_start);
  hr_free(t->scores);
  hr_free(t->added);
  hr_free(t->kinds);
  hr_free(t->guards);
  hr_free(t->start);
  hr_free(t->pool);
  hr_free(t->where);
  hr_free(t);
}
