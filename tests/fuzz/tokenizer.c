/* SPDX-License-Identifier: MIT
 * Files of tokenizers from strangers, and encoding with them. The input:
 * a byte that tells the kind of file and the flags, a byte with the length of a
 * text, that text, and the file. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "model/vocab.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void encode(const hr_tokenizer *t, size_t count, const char *text, size_t length,
                   unsigned flags) {
  int32_t *ids = NULL;
  size_t n = 0;
  hr_error err;
  if (hr_tokenizer_encode(t, text, length, flags, &ids, &n, &err) != HR_OK) return;
  for (size_t i = 0; i < n; i++) {
    if (ids[i] < 0 || (size_t)ids[i] >= count) abort();
    hr_piece piece = hr_tokenizer_text(t, ids[i], false);
    for (size_t k = 0; k < piece.length; k++)
      if (!piece.text) abort();
  }
  hr_free(ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  hr_vocab_storage storage = {0};
  hr_vocab vocab = {.bos = -1, .eos = -1, .unknown = -1};
  hr_error err;
  if (size < 2 || (size_t)data[1] + 2 > size) return 0;
  const char *text = (const char *)data + 2;
  const uint8_t *file = data + 2 + data[1];
  size_t bytes = size - 2 - data[1];
  hr_status status =
      data[0] & 1 ? hr_vocab_parse_json(file, bytes, "fuzz.json", &storage, &vocab, &err)
                  : hr_vocab_parse_sentencepiece(file, bytes, "fuzz.model", &storage, &vocab, &err);
  hr_tokenizer *t = status == HR_OK ? hr_tokenizer_create(&vocab, &err) : NULL;
  hr_vocab_storage_finish(&storage);
  if (t)
    encode(t, vocab.count, text, data[1],
           (data[0] & 2 ? (unsigned)HR_TOKENIZE_SPECIAL : 0) |
               (data[0] & 4 ? (unsigned)HR_TOKENIZE_PARSE_SPECIAL : 0));
  hr_tokenizer_free(t);
  return 0;
}
