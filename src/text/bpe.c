/* SPDX-License-Identifier: MIT
 * Byte-pair encoding as in GPT-2: neighbours are joined in the order of a list
 * of merges. Here for bytes; for characters see characters.c. */
#include <string.h>

#include "base/memory.h"
#include "text/letters.h"
#include "text/tokenizer_impl.h"
#include "text/utf8_stream.h"

size_t hr_bytes_of_letters(const char *text, size_t length, char *out) {
  size_t n = 0;
  for (size_t i = 0; i < length;) {
    size_t bytes = hr_utf8_length(text + i, length - i);
    int byte = bytes ? hr_byte_of_letter(hr_utf8_decode(text + i, bytes)) : -1;
    if (byte < 0) return SIZE_MAX;
    out[n++] = (char)byte;
    i += bytes;
  }
  return n;
}

/* --- Merges ---------------------------------------------------------------- */

static int32_t find_part(const hr_tokenizer *t, const char *text, size_t length, char *buffer) {
  size_t bytes = t->byte_level ? hr_bytes_of_letters(text, length, buffer) : SIZE_MAX;
  return bytes == SIZE_MAX ? hr_byte_map_find(&t->map, text, length)
                           : hr_byte_map_find(&t->map, buffer, bytes);
}

/* A part of a merge for a message. */
static int shown(hr_piece piece) {
  return (int)(piece.length < 60 ? piece.length : 60);
}

/* A merge is two tokens; the joined one is a token too. */
static hr_status add_merge(hr_tokenizer *t, hr_merge merge, uint32_t rank, char *buffer,
                           hr_error *err) {
  size_t length = merge.left.length + merge.right.length;
  char *joined = buffer + length;
  if (merge.left.length) memcpy(joined, merge.left.text, merge.left.length);
  if (merge.right.length) memcpy(joined + merge.left.length, merge.right.text, merge.right.length);
  int32_t left = find_part(t, merge.left.text, merge.left.length, buffer);
  int32_t right = find_part(t, merge.right.text, merge.right.length, buffer);
  int32_t whole = find_part(t, joined, length, buffer);
  if (left < 0 || right < 0 || whole < 0)
    return hr_fail(err, HR_ERROR_FILE,
                   "%s: merge %u, \"%.*s\" and \"%.*s\", names a token outside the vocabulary",
                   t->where, rank, shown(merge.left), merge.left.text, shown(merge.right),
                   merge.right.text);
  hr_pair_map_add(&t->merges, left, right, rank, whole);
  return HR_OK;
}

static hr_status fill_merges(hr_tokenizer *t, const hr_vocab *vocab, hr_error *err) {
  size_t longest = 0;
  for (size_t i = 0; i < vocab->merge_count; i++) {
    size_t length;
    if (!hr_add_size(vocab->merges[i].left.length, vocab->merges[i].right.length, &length))
      length = SIZE_MAX;
    if (length > longest) longest = length;
  }
  if (vocab->merge_count >= UINT32_MAX || longest >= UINT32_MAX / 2)
    return hr_fail(err, HR_ERROR_FILE, "%s: too many or too long merges: %zu of up to %zu bytes",
                   vocab->where, vocab->merge_count, longest);
  char *buffer = hr_calloc(2 * longest + 1, 1);
  if (!buffer || !hr_pair_map_init(&t->merges, vocab->merge_count)) {
    hr_free(buffer);
    return hr_fail_memory(err, vocab->where, vocab->merge_count * sizeof(int32_t));
  }
  hr_status status = HR_OK;
  for (size_t i = 0; i < vocab->merge_count && status == HR_OK; i++)
    status = add_merge(t, vocab->merges[i], (uint32_t)i, buffer, err);
  hr_free(buffer);
  return status == HR_OK && t->merges.crowded ? hr_fail_crowded(t, err) : status;
}

hr_status hr_bpe_prepare(hr_tokenizer *t, const hr_vocab *vocab, hr_error *err) {
  for (unsigned i = 0; t->byte_level && i < 256; i++) {
    char byte = (char)i;
    t->byte_id[i] = hr_byte_map_find(&t->map, &byte, 1);
  }
  return fill_merges(t, vocab, err);
}

bool hr_join_by_rank(const void *arg, const hr_symbol *left, const hr_symbol *right,
                     uint32_t *order, int32_t *id) {
  const hr_tokenizer *t = arg;
  return left->id >= 0 && right->id >= 0 &&
         hr_pair_map_find(&t->merges, left->id, right->id, order, id);
}

/* --- Encoding -------------------------------------------------------------- */

#define REPLACEMENT "\xef\xbf\xbd" /* U+FFFD */

/* Bytes that no text in UTF-8 has, and that some vocabularies have no token for. */
static bool is_never(const hr_tokenizer *t, char c) {
  uint8_t byte = (uint8_t)c;
  return (byte == 0xc0 || byte == 0xc1 || byte >= 0xf5) && t->byte_id[byte] < 0;
}

/* Those become U+FFFD, as wherever UTF-8 is read: the unknown token, if there is one, may
 * be one that ends a text. */
static bool replace_never(const hr_tokenizer *t, const char **text, size_t *length,
                          hr_buffer *copy) {
  size_t i = 0;
  while (i < *length && !is_never(t, (*text)[i])) i++;
  if (i == *length) return true;
  copy->length = 0;
  bool good = hr_buffer_put(copy, *text, i);
  for (; good && i < *length; i++)
    good = is_never(t, (*text)[i]) ? hr_buffer_put(copy, REPLACEMENT, sizeof REPLACEMENT - 1)
                                   : hr_buffer_put(copy, *text + i, 1);
  *text = copy->text;
  *length = copy->length;
  return good;
}

hr_status hr_bytes_encode(hr_encoder *encoder, const char *text, size_t length) {
  const hr_tokenizer *t = encoder->tokenizer;
  if (!replace_never(t, &text, &length, &encoder->word))
    return hr_encoder_memory(encoder, 3 * length);
  hr_merger *merger = &encoder->merger;
  merger->count = 0;
  for (size_t i = 0; i < length; i++)
    if (!hr_merger_add(merger, i, 1, t->byte_id[(uint8_t)text[i]]))
      return hr_encoder_memory(encoder, length * sizeof *merger->symbols);
  if (!hr_merger_run(merger, hr_join_by_rank, t))
    return hr_encoder_memory(encoder, length * sizeof *merger->heap);
  return hr_encoder_emit_symbols(encoder, text);
}
