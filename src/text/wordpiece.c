/* SPDX-License-Identifier: MIT
 * BERT's model: a word is covered by the longest tokens from its start on. */
#include <string.h>

#include "text/tokenizer_impl.h"
#include "text/utf8_stream.h"

/* The ordinary tokens as a tree: of several for the same bytes, the one that the map finds. */
hr_status hr_wordpiece_prepare(hr_tokenizer *t, hr_error *err) {
  if (!hr_trie_init(&t->trie)) return hr_fail_memory(err, t->where, 0);
  for (size_t i = 0; i < t->count; i++) {
    hr_piece piece = hr_token_bytes(t, (int32_t)i);
    if (hr_token_is_special(t, (int32_t)i) || piece.length == 0 ||
        hr_byte_map_find(&t->map, piece.text, piece.length) != (int32_t)i)
      continue;
    if (!hr_trie_add(&t->trie, piece.text, piece.length, (int32_t)i))
      return hr_fail_memory(err, t->where, t->trie.count * 2 * sizeof(int32_t));
  }
  return HR_OK;
}

/* The longest token at the start of text; -1: none. */
static int32_t longest_token(const hr_tokenizer *t, const char *text, size_t length,
                             size_t *bytes) {
  int32_t found = -1, node = 0;
  for (size_t i = 0; i < length; i++) {
    node = hr_trie_step(&t->trie, node, text[i]);
    if (node == 0) break;
    if (hr_trie_id(&t->trie, node) < 0) continue;
    found = hr_trie_id(&t->trie, node);
    *bytes = i + 1;
  }
  return found;
}

static size_t count_characters(const char *text, size_t length, size_t enough) {
  size_t count = 0;
  for (size_t i = 0; i < length && count <= enough; count++) {
    size_t bytes = hr_utf8_length(text + i, length - i);
    i += bytes ? bytes : 1;
  }
  return count;
}

hr_status hr_wordpiece_encode(hr_encoder *encoder, const char *text, size_t length) {
  const hr_tokenizer *t = encoder->tokenizer;
  size_t first = encoder->count, at = 0;
  bool known = count_characters(text, length, t->longest_word) <= t->longest_word;
  hr_buffer *word = &encoder->word;
  word->length = 0;
  if (known && (!hr_buffer_put(word, HR_SPACE_MARK, HR_SPACE_MARK_BYTES) ||
                !hr_buffer_put(word, text, length)))
    return hr_encoder_memory(encoder, length);
  while (known && at < word->length) {
    /* Inside a word the mark is a character of the text, and no token begins with that. */
    bool marked = at > 0 && word->length - at >= HR_SPACE_MARK_BYTES &&
                  memcmp(word->text + at, HR_SPACE_MARK, HR_SPACE_MARK_BYTES) == 0;
    size_t bytes = 0;
    int32_t id = marked ? -1 : longest_token(t, word->text + at, word->length - at, &bytes);
    known = id >= 0;
    hr_status status = known ? hr_encoder_emit(encoder, id) : HR_OK;
    if (status != HR_OK) return status;
    at += bytes;
  }
  if (known) return HR_OK;
  encoder->count = first;
  return hr_encoder_emit_unknown(encoder, text[0]);
}
