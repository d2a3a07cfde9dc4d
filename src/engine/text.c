/* SPDX-License-Identifier: MIT
 * Text to ids and back, as the public API offers it. */
#include <string.h>

#include "base/memory.h"
#include "engine/engine.h"
#include "sched/fpenv.h"
#include "text/utf8_stream.h"

static hr_status need_tokenizer(const hr_model *model, hr_error *err) {
  if (model->tokenizer) return HR_OK;
  if (model->vocab.unsupported)
    return hr_fail(
        err, HR_ERROR_FILE,
        "%s: its tokenizer is of kind '%s', which is not known; give ids instead of text",
        model->path, model->vocab.unsupported);
  return hr_fail(err, HR_ERROR_FILE, "%s: has no tokenizer, expected one; give ids instead of text",
                 model->path);
}

hr_status hr_tokenize(const hr_model *model, const char *text, size_t length, unsigned flags,
                      int32_t *ids, size_t capacity, size_t *count, hr_error *err) {
  HR_FPENV_OWN;
  *count = 0;
  const unsigned known = HR_TOKENIZE_SPECIAL | HR_TOKENIZE_PARSE_SPECIAL;
  if (flags & ~known)
    return hr_fail(err, HR_ERROR_USAGE, "flags are 0x%x, expected none but 0x%x", flags, known);
  hr_status status = need_tokenizer(model, err);
  if (status != HR_OK) return status;
  int32_t *all;
  status = hr_tokenizer_encode(model->tokenizer, text, length, flags, &all, count, err);
  if (status != HR_OK) return status;
  size_t copied = *count < capacity ? *count : capacity;
  if (copied) memcpy(ids, all, copied * sizeof *ids);
  hr_free(all);
  return HR_OK;
}

hr_status hr_tokenize_pair(const hr_model *model, const char *first, size_t first_length,
                           const char *second, size_t second_length, int32_t *ids, int32_t *types,
                           size_t capacity, size_t *count, hr_error *err) {
  HR_FPENV_OWN;
  *count = 0;
  hr_status status = need_tokenizer(model, err);
  if (status != HR_OK) return status;
  int32_t *all, *all_types;
  status = hr_tokenizer_encode_pair(model->tokenizer, (hr_piece){first, first_length},
                                    (hr_piece){second, second_length}, &all, &all_types, count,
                                    err);
  if (status != HR_OK) return status;
  size_t copied = *count < capacity ? *count : capacity;
  /* A model without types takes none but 0. */
  bool typed = hr_model_types(model) > 1;
  for (size_t i = 0; i < copied; i++) {
    ids[i] = all[i];
    types[i] = typed ? all_types[i] : 0;
  }
  hr_free(all);
  hr_free(all_types);
  return HR_OK;
}

const char *hr_token_text(const hr_model *model, int32_t id, bool with_special, size_t *length,
                          hr_error *err) {
  *length = 0;
  if (need_tokenizer(model, err) != HR_OK) return NULL;
  if (id < 0 || (size_t)id >= hr_model_vocab_size(model)) {
    hr_fail(err, HR_ERROR_USAGE, "token id %d is not in the vocabulary, expected 0 to %zu", id,
            hr_model_vocab_size(model) - 1);
    return NULL;
  }
  /* An embedding may have more rows than the vocabulary has tokens. */
  if ((size_t)id >= model->token_count) return "";
  hr_piece piece = hr_tokenizer_text(model->tokenizer, id, with_special);
  *length = piece.length;
  return piece.text ? piece.text : "";
}

struct hr_decoder {
  const hr_model *model;
  char *bytes; /* handed out, then held back */
  size_t used, handed, capacity;
  bool at_start;
};

hr_decoder *hr_decoder_create(const hr_model *model, hr_error *err) {
  if (need_tokenizer(model, err) != HR_OK) return NULL;
  hr_decoder *decoder = hr_calloc(1, sizeof *decoder);
  if (!decoder) {
    hr_fail_memory(err, "decoder", sizeof *decoder);
    return NULL;
  }
  decoder->model = model;
  decoder->at_start = true;
  return decoder;
}

void hr_decoder_free(hr_decoder *decoder) {
  if (!decoder) return;
  hr_free(decoder->bytes);
  hr_free(decoder);
}

void hr_decoder_continue(hr_decoder *decoder) {
  decoder->at_start = false;
}

/* Forgets what the caller has been given. */
static void drop_handed(hr_decoder *d) {
  memmove(d->bytes, d->bytes + d->handed, d->used - d->handed);
  d->used -= d->handed;
  d->handed = 0;
}

hr_status hr_decoder_push(hr_decoder *d, int32_t id, const char **text, size_t *length,
                          hr_error *err) {
  *text = "";
  *length = 0;
  size_t n;
  const char *piece = hr_token_text(d->model, id, false, &n, err);
  if (!piece) return HR_ERROR_USAGE;
  if (d->at_start && n > 0) {
    d->at_start = false;
    if (piece[0] == ' ' && hr_tokenizer_strips_first_space(d->model->tokenizer)) {
      piece++;
      n--;
    }
  }
  if (d->bytes) drop_handed(d);
  if (d->used + n > d->capacity) {
    size_t capacity = (d->used + n) * 2;
    char *bytes = hr_realloc(d->bytes, capacity, 1);
    if (!bytes) return hr_fail_memory(err, "decoder", capacity);
    d->bytes = bytes;
    d->capacity = capacity;
  }
  if (n) memcpy(d->bytes + d->used, piece, n);
  d->used += n;
  d->handed = d->used ? hr_utf8_whole(d->bytes, d->used) : 0;
  if (d->handed) *text = d->bytes;
  *length = d->handed;
  return HR_OK;
}

void hr_decoder_finish(hr_decoder *d, const char **text, size_t *length) {
  *text = d->bytes ? d->bytes + d->handed : "";
  *length = d->used - d->handed;
  d->used = d->handed = 0;
  d->at_start = true;
}
