/* SPDX-License-Identifier: MIT
 * Byte-level BPE as in GPT-2: bytes are joined in the order of a list of merges. */
#include <string.h>

#include "base/memory.h"
#include "text/tokenizer_impl.h"
#include "text/utf8_stream.h"

/* --- Letters --------------------------------------------------------------
 * In the file every byte is a visible letter: itself where it is one in Latin-1,
 * else the next free one from U+0100 on. */

static bool is_own_letter(unsigned byte) {
  return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

/* The byte of a letter; -1: it is none. The bytes that are not their own
 * letter are, in order, 0x00-0x20, 0x7f-0xa0 and 0xad. */
static int byte_of_letter(uint32_t code) {
  if (code < 0x100) return is_own_letter(code) ? (int)code : -1;
  if (code <= 0x120) return (int)(code - 0x100);
  if (code <= 0x142) return (int)(code - 0x121 + 0x7f);
  return code == 0x143 ? 0xad : -1;
}

size_t hr_bpe_decode(const char *text, size_t length, char *out) {
  size_t n = 0;
  for (size_t i = 0; i < length;) {
    size_t bytes = hr_utf8_length(text + i, length - i);
    int byte = bytes ? byte_of_letter(hr_utf8_decode(text + i, bytes)) : -1;
    if (byte < 0) return SIZE_MAX;
    out[n++] = (char)byte;
    i += bytes;
  }
  return n;
}

/* --- Merges ---------------------------------------------------------------- */

static int32_t find_part(const hr_tokenizer *t, const char *text, size_t length, char *buffer) {
  size_t bytes = hr_bpe_decode(text, length, buffer);
  return bytes == SIZE_MAX ? hr_byte_map_find(&t->map, text, length)
                           : hr_byte_map_find(&t->map, buffer, bytes);
}

/* A merge is two tokens with a space between; the joined one is a token too. */
static hr_status add_merge(hr_tokenizer *t, hr_piece merge, uint32_t rank, char *buffer,
                           hr_error *err) {
  const char *space = merge.length > 2 ? memchr(merge.text + 1, ' ', merge.length - 2) : NULL;
  if (!space)
    return hr_fail(err, HR_ERROR_FILE, "%s: merge %u is \"%.*s\", expected two tokens", t->where,
                   rank, (int)(merge.length < 100 ? merge.length : 100), merge.text);
  size_t left_length = (size_t)(space - merge.text), right_length = merge.length - left_length - 1;
  int32_t left = find_part(t, merge.text, left_length, buffer);
  int32_t right = find_part(t, space + 1, right_length, buffer);
  /* The joined token's letters: the merge without its space. */
  char *joined = buffer + merge.length;
  memcpy(joined, merge.text, left_length);
  memcpy(joined + left_length, space + 1, right_length);
  int32_t whole = find_part(t, joined, merge.length - 1, buffer);
  if (left < 0 || right < 0 || whole < 0)
    return hr_fail(err, HR_ERROR_FILE,
                   "%s: merge %u, \"%.*s\", names a token outside the vocabulary", t->where, rank,
                   (int)(merge.length < 100 ? merge.length : 100), merge.text);
  hr_pair_map_add(&t->merges, left, right, rank, whole);
  return HR_OK;
}

static hr_status fill_merges(hr_tokenizer *t, const hr_vocab *vocab, hr_error *err) {
  size_t longest = 0;
  for (size_t i = 0; i < vocab->merge_count; i++)
    if (vocab->merges[i].length > longest) longest = vocab->merges[i].length;
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
  return status;
}

hr_status hr_bpe_prepare(hr_tokenizer *t, const hr_vocab *vocab, hr_error *err) {
  for (unsigned i = 0; i < 256; i++) {
    char byte = (char)i;
    t->byte_id[i] = hr_byte_map_find(&t->map, &byte, 1);
  }
  hr_status status = fill_merges(t, vocab, err);
  if (status != HR_OK) return status;
  t->cutter = hr_cutter_create(vocab->pre_tokenizer, t->where, err);
  return t->cutter ? HR_OK : (err ? err->status : HR_ERROR_FILE);
}

/* --- Encoding -------------------------------------------------------------- */

static bool join(const void *arg, const hr_symbol *left, const hr_symbol *right, uint32_t *order,
                 int32_t *id) {
  const hr_tokenizer *t = arg;
  return left->id >= 0 && right->id >= 0 &&
         hr_pair_map_find(&t->merges, left->id, right->id, order, id);
}

static hr_status emit_symbol(hr_encoder *encoder, int32_t id, char byte) {
  return id >= 0 ? hr_encoder_emit(encoder, id) : hr_encoder_emit_unknown(encoder, byte);
}

static hr_status encode_word(void *arg, size_t start, size_t length, hr_error *err) {
  (void)err; /* the encoder has it too */
  hr_encoder *encoder = arg;
  const hr_tokenizer *t = encoder->tokenizer;
  const char *word = encoder->text + start;
  if (t->ignore_merges && length <= t->longest) {
    int32_t id = hr_byte_map_find(&t->map, word, length);
    if (id >= 0 && !hr_token_is_special(t, id)) return hr_encoder_emit(encoder, id);
  }
  hr_merger *merger = &encoder->merger;
  merger->count = 0;
  for (size_t i = 0; i < length; i++)
    if (!hr_merger_add(merger, i, 1, t->byte_id[(uint8_t)word[i]]))
      return hr_encoder_memory(encoder, length * sizeof *merger->symbols);
  if (!hr_merger_run(merger, join, t))
    return hr_encoder_memory(encoder, length * sizeof *merger->heap);
  hr_status status = HR_OK;
  for (int32_t i = 0; i >= 0 && status == HR_OK; i = merger->symbols[i].next)
    status = emit_symbol(encoder, merger->symbols[i].id, word[merger->symbols[i].start]);
  return status;
}

hr_status hr_bpe_encode(hr_encoder *encoder, const char *text, size_t length) {
  if (!encoder->cut) encoder->cut = hr_cut_create(encoder->tokenizer->cutter, encoder->err);
  if (!encoder->cut) return HR_ERROR_MEMORY;
  encoder->text = text;
  return hr_cut_run(encoder->cut, text, length, encode_word, encoder, encoder->err);
}
