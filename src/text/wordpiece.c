/* SPDX-License-Identifier: MIT
 * BERT's model: a word is covered by the longest tokens from its start on. */
#include <string.h>

#include "text/tokenizer_impl.h"
#include "text/utf8_stream.h"

/* The longest token at the start of text; -1: none. */
static int32_t longest_token(const hr_tokenizer *t, const char *text, size_t length,
                             size_t *bytes) {
  for (*bytes = length < t->longest ? length : t->longest; *bytes > 0; --*bytes) {
    int32_t id = hr_byte_map_find(&t->map, text, *bytes);
    if (id >= 0) return id;
  }
  return -1;
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
    size_t bytes;
    int32_t id = longest_token(t, word->text + at, word->length - at, &bytes);
    known = id >= 0;
    hr_status status = known ? hr_encoder_emit(encoder, id) : HR_OK;
    if (status != HR_OK) return status;
    at += bytes;
  }
  if (known) return HR_OK;
  encoder->count = first;
  return hr_encoder_emit_unknown(encoder, text[0]);
}
