/* SPDX-License-Identifier: MIT
 * The keys tokenizer.ggml.* of GGUF. Where a key is absent, the defaults are
 * those that the writers of such files rely on. */
#include "model/vocab.h"

#include "base/memory.h"

#include <math.h>
#include <string.h>

#define TOKENS_MAX ((size_t)INT32_MAX)
#define COUNT(array) (sizeof(array) / sizeof *(array))

static bool piece_is(const hr_piece *piece, const char *text) {
  size_t length = strlen(text);
  return piece->length == length && memcmp(piece->text, text, length) == 0;
}

/* A string value against a literal. */
static bool same(const char *text, size_t length, const char *literal) {
  return piece_is(&(hr_piece){text, length}, literal);
}

/* --- Arrays ---------------------------------------------------------------- */

static hr_status read_pieces(const hr_source *source, const char *key, size_t count,
                             hr_piece **pieces, hr_error *err) {
  const char **text = hr_calloc(count, sizeof *text);
  size_t *length = hr_calloc(count, sizeof *length);
  *pieces = hr_calloc(count, sizeof **pieces);
  hr_status status;
  if (!text || !length || !*pieces)
    status = hr_fail_memory(err, key, count * sizeof **pieces);
  else
    status = hr_source_array_strings(source, key, text, length, count, err);
  for (size_t i = 0; status == HR_OK && i < count; i++)
    (*pieces)[i] = (hr_piece){text[i], length[i]};
  hr_free(text);
  hr_free(length);
  return status;
}

/* An array beside the tokens: absent, or as long as they are. */
static hr_status check_length(const hr_source *source, const char *key, size_t tokens, bool *found,
                              hr_error *err) {
  size_t count = 0;
  hr_status status = hr_source_array_length(source, key, &count, found, err);
  if (status != HR_OK || !*found || count == tokens) return status;
  return hr_fail(err, HR_ERROR_FILE,
                 "%s: key '%s' has %zu elements, but 'tokenizer.ggml.tokens' has %zu",
                 hr_source_path(source), key, count, tokens);
}

static hr_status read_tokens(const hr_source *source, hr_vocab_storage *storage, hr_vocab *vocab,
                             hr_error *err) {
  static const char key[] = "tokenizer.ggml.tokens";
  bool found;
  hr_status status = hr_source_array_length(source, key, &vocab->count, &found, err);
  if (status != HR_OK) return status;
  if (!found || vocab->count == 0 || vocab->count > TOKENS_MAX)
    return hr_fail(err, HR_ERROR_FILE, "%s: key '%s' %s, expected an array of 1 to %zu strings",
                   hr_source_path(source), key,
                   !found ? "is missing" : vocab->count ? "has too many elements" : "is empty",
                   TOKENS_MAX);
  status = read_pieces(source, key, vocab->count, &storage->tokens, err);
  vocab->tokens = storage->tokens;
  return status;
}

/* Without scores all are 0. A NaN would make the order of merges depend on chance. */
static hr_status read_scores(const hr_source *source, hr_vocab_storage *storage, hr_vocab *vocab,
                             hr_error *err) {
  static const char key[] = "tokenizer.ggml.scores";
  size_t count = vocab->count;
  bool found;
  hr_status status = check_length(source, key, count, &found, err);
  if (status != HR_OK) return status;
  storage->scores = hr_calloc(count, sizeof *storage->scores);
  double *scores = hr_calloc(count, sizeof *scores);
  if (!storage->scores || !scores)
    status = hr_fail_memory(err, key, count * sizeof *scores);
  else if (found)
    status = hr_source_array_f64(source, key, scores, count, err);
  for (size_t i = 0; status == HR_OK && i < count; i++) {
    if (isnan(scores[i]))
      status = hr_fail(err, HR_ERROR_FILE, "%s: element %zu of key '%s' is NaN, expected a number",
                       hr_source_path(source), i, key);
    storage->scores[i] = (float)scores[i];
  }
  hr_free(scores);
  vocab->scores = storage->scores;
  return status;
}

/* 0 is what some writers use where they have nothing to say. */
static hr_status read_kinds(const hr_source *source, hr_vocab_storage *storage, hr_vocab *vocab,
                            hr_error *err) {
  static const char key[] = "tokenizer.ggml.token_type";
  size_t count = vocab->count;
  bool found;
  hr_status status = check_length(source, key, count, &found, err);
  if (status != HR_OK) return status;
  storage->kinds = hr_calloc(count, sizeof *storage->kinds);
  int64_t *kinds = hr_calloc(count, sizeof *kinds);
  if (!storage->kinds || !kinds)
    status = hr_fail_memory(err, key, count * sizeof *kinds);
  else if (found)
    status = hr_source_array_i64(source, key, kinds, count, err);
  for (size_t i = 0; status == HR_OK && i < count; i++) {
    if (kinds[i] < 0 || kinds[i] > HR_TOKEN_BYTE)
      status = hr_fail(err, HR_ERROR_FILE, "%s: element %zu of key '%s' is %lld, expected 1 to %d",
                       hr_source_path(source), i, key, (long long)kinds[i], HR_TOKEN_BYTE);
    storage->kinds[i] = kinds[i] ? (int32_t)kinds[i] : HR_TOKEN_NORMAL;
  }
  hr_free(kinds);
  vocab->kinds = storage->kinds;
  return status;
}

static hr_status read_merges(const hr_source *source, hr_vocab_storage *storage, hr_vocab *vocab,
                             hr_error *err) {
  static const char key[] = "tokenizer.ggml.merges";
  bool found;
  hr_status status = hr_source_array_length(source, key, &vocab->merge_count, &found, err);
  if (status != HR_OK) return status;
  if (!found)
    return hr_fail(err, HR_ERROR_FILE, "%s: key '%s' is missing, expected an array of strings",
                   hr_source_path(source), key);
  status = read_pieces(source, key, vocab->merge_count, &storage->merges, err);
  vocab->merges = storage->merges;
  return status;
}

/* --- Single values --------------------------------------------------------- */

/* *id stays as it is when the key is absent. 0xFFFFFFFF and -1 mean none. */
static hr_status read_id(const hr_source *source, const char *key, size_t count, int32_t *id,
                         hr_error *err) {
  int64_t value;
  bool found;
  hr_status status = hr_source_i64(source, key, &value, &found, err);
  if (status != HR_OK || !found) return status;
  if (value == -1 || value == UINT32_MAX) {
    *id = -1;
    return HR_OK;
  }
  if (value < 0 || (uint64_t)value >= count)
    return hr_fail(err, HR_ERROR_FILE, "%s: key '%s' is %lld, expected an id below %zu or none",
                   hr_source_path(source), key, (long long)value, count);
  *id = (int32_t)value;
  return HR_OK;
}

/* Old files name no special ids and have them at fixed places: taken when the
 * token there looks the part. */
static int32_t usual_id(const hr_vocab *vocab, int32_t id, const char *text) {
  if ((size_t)id >= vocab->count) return -1;
  return piece_is(&vocab->tokens[id], text) ? id : -1;
}

static void set_usual_ids(hr_vocab *vocab) {
  vocab->bos = vocab->eos = vocab->unknown = -1;
  switch (vocab->kind) {
    case HR_VOCAB_SPM:
      vocab->unknown = usual_id(vocab, 0, "<unk>");
      vocab->bos = usual_id(vocab, 1, "<s>");
      vocab->eos = usual_id(vocab, 2, "</s>");
      break;
    case HR_VOCAB_UNIGRAM:
      vocab->eos = usual_id(vocab, 1, "</s>");
      vocab->unknown = usual_id(vocab, 2, "<unk>");
      break;
    case HR_VOCAB_WORDPIECE:
      vocab->unknown = usual_id(vocab, 100, "[UNK]");
      vocab->bos = usual_id(vocab, 101, "[CLS]");
      vocab->eos = usual_id(vocab, 102, "[SEP]");
      break;
    case HR_VOCAB_BPE: break;
  }
}

static hr_status read_ids(const hr_source *source, hr_vocab *vocab, hr_error *err) {
  bool bert = vocab->kind == HR_VOCAB_WORDPIECE;
  size_t count = vocab->count;
  hr_status status = HR_OK;
  set_usual_ids(vocab);
  /* [CLS] and [SEP] do for BERT what BOS and EOS do elsewhere; "seperator" is GGUF's spelling */
  if (bert) status = read_id(source, "tokenizer.ggml.cls_token_id", count, &vocab->bos, err);
  if (status == HR_OK)
    status = read_id(source, "tokenizer.ggml.bos_token_id", count, &vocab->bos, err);
  if (status == HR_OK)
    status = read_id(source, "tokenizer.ggml.eos_token_id", count, &vocab->eos, err);
  if (status == HR_OK && bert)
    status = read_id(source, "tokenizer.ggml.seperator_token_id", count, &vocab->eos, err);
  if (status == HR_OK)
    status = read_id(source, "tokenizer.ggml.unknown_token_id", count, &vocab->unknown, err);
  return status;
}

static hr_status read_flag(const hr_source *source, const char *key, bool *flag, hr_error *err) {
  bool value, found;
  hr_status status = hr_source_bool(source, key, &value, &found, err);
  if (status == HR_OK && found) *flag = value;
  return status;
}

/* What the name of a byte-level pre-tokenizer stands for beside how it cuts. */
typedef struct pre_defaults {
  const char *name;
  bool add_bos, ignore_merges;
} pre_defaults;

static const pre_defaults pre_tokenizers[] = {
    {"llama3", true, true},    {"llama-v3", true, true},     {"llama-bpe", true, true},
    {"falcon3", true, true},   {"falcon-h1", true, true},    {"pixtral", true, true},
    {"midm-2.0", true, true},  {"lfm2", true, true},         {"jina-v5-nano", true, true},
    {"tekken", true, true},    {"chameleon", true, false},   {"youtu", false, true},
};

static hr_status read_pre_tokenizer(const hr_source *source, hr_vocab_storage *storage,
                                    hr_vocab *vocab, hr_error *err) {
  static const char key[] = "tokenizer.ggml.pre";
  const char *text = NULL;
  size_t length = 0;
  bool found;
  hr_status status = hr_source_string(source, key, &text, &length, &found, err);
  if (status != HR_OK) return status;
  if (!found || length == 0) {
    text = "default";
    length = strlen(text);
  }
  storage->pre_tokenizer = hr_strndup(text, length);
  if (!storage->pre_tokenizer) return hr_fail_memory(err, key, length + 1);
  vocab->pre_tokenizer = storage->pre_tokenizer;
  for (size_t i = 0; i < COUNT(pre_tokenizers); i++) {
    if (!same(text, length, pre_tokenizers[i].name)) continue;
    vocab->add_bos = pre_tokenizers[i].add_bos;
    vocab->ignore_merges = pre_tokenizers[i].ignore_merges;
  }
  return HR_OK;
}

static hr_status read_flags(const hr_source *source, hr_vocab *vocab, hr_error *err) {
  bool bert = vocab->kind == HR_VOCAB_WORDPIECE;
  bool sentencepiece = vocab->kind == HR_VOCAB_SPM || vocab->kind == HR_VOCAB_UNIGRAM;
  hr_status status = read_flag(source, "tokenizer.ggml.add_bos_token", &vocab->add_bos, err);
  const char *ending = bert ? "tokenizer.ggml.add_sep_token" : "tokenizer.ggml.add_eos_token";
  if (status == HR_OK) status = read_flag(source, ending, &vocab->add_eos, err);
  if (status == HR_OK && sentencepiece)
    status = read_flag(source, "tokenizer.ggml.add_space_prefix", &vocab->add_space_prefix, err);
  if (vocab->bos < 0) vocab->add_bos = false; /* there is nothing to add */
  if (vocab->eos < 0) vocab->add_eos = false;
  return status;
}

/* Accents go with case unless the file says otherwise. */
static hr_status read_normalizer(const hr_source *source, hr_vocab *vocab, hr_error *err) {
  bool lower = true;
  hr_status status = read_flag(source, "tokenizer.ggml.normalizer.lowercase", &lower, err);
  bool strip = lower;
  if (status == HR_OK)
    status = read_flag(source, "tokenizer.ggml.normalizer.strip_accents", &strip, err);
  vocab->keep_case = !lower;
  vocab->keep_accents = !strip;
  return status;
}

/* An array of signed or unsigned bytes. */
static hr_status read_charsmap(const hr_source *source, hr_vocab_storage *storage, hr_vocab *vocab,
                               hr_error *err) {
  static const char key[] = "tokenizer.ggml.precompiled_charsmap";
  size_t count = 0;
  bool found;
  hr_status status = hr_source_array_length(source, key, &count, &found, err);
  if (status != HR_OK || !found || count == 0) return status;
  int64_t *values = hr_calloc(count, sizeof *values);
  storage->charsmap = hr_calloc(count, 1);
  if (!values || !storage->charsmap)
    status = hr_fail_memory(err, key, count * sizeof *values);
  else
    status = hr_source_array_i64(source, key, values, count, err);
  for (size_t i = 0; status == HR_OK && i < count; i++) {
    if (values[i] < INT8_MIN || values[i] > UINT8_MAX)
      status = hr_fail(err, HR_ERROR_FILE, "%s: element %zu of key '%s' is %lld, expected a byte",
                       hr_source_path(source), i, key, (long long)values[i]);
    storage->charsmap[i] = (unsigned char)(values[i] & 0xff);
  }
  hr_free(values);
  vocab->charsmap = storage->charsmap;
  vocab->charsmap_bytes = count;
  return status;
}

/* --- Where texts end ------------------------------------------------------- */

/* Markers that end a turn or a text wherever they occur. Files often name only
 * one of theirs, or mark none as control tokens. */
static const char *const end_markers[] = {
    "<|eot_id|>", "<|im_end|>",  "<|end|>",   "<|return|>", "<|call|>",
    "<|flush|>",  "<|calls|>",   "<|eom_id|>", "<end_of_turn>", "<|endoftext|>",
    "<|end_of_text|>", "<EOT>",  "_<EOT>",    "[EOT]",      "[EOS]",
    "<end_of_utterance>", "<turn|>", "<|tool_response>",
};

/* These are ordinary text in some vocabularies: they count as control tokens only. */
static const char *const control_end_markers[] = {
    "</s>",       "<eos>",       "<|fim_pad|>",  "<fim-pad>",   "<fim_pad>",  "<PAD>",
    "[PAD]",      "<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>",   "<reponame>",
    "<|file_sep|>",
};

static bool is_one_of(const hr_piece *piece, const char *const *texts, size_t count) {
  for (size_t i = 0; i < count; i++)
    if (piece_is(piece, texts[i])) return true;
  return false;
}

static bool is_marker(const hr_piece *token, int32_t kind) {
  if (token->length == 0 || !memchr("<[_", token->text[0], 3)) return false; /* nearly all */
  return is_one_of(token, end_markers, COUNT(end_markers)) ||
         (kind == HR_TOKEN_CONTROL &&
          is_one_of(token, control_end_markers, COUNT(control_end_markers)));
}

/* mark[id] is set for ends. A marker as plain text would be printed, and never
 * be found in a prompt. */
static void mark_markers(const hr_vocab *vocab, int32_t *kinds, unsigned char *mark) {
  for (size_t i = 0; i < vocab->count; i++) {
    if (!is_marker(&vocab->tokens[i], kinds[i])) continue;
    mark[i] = 1;
    if (kinds[i] == HR_TOKEN_NORMAL) kinds[i] = HR_TOKEN_CONTROL;
  }
}

static hr_status mark_keys(const hr_source *source, const hr_vocab *vocab, unsigned char *mark,
                           hr_error *err) {
  static const char *const keys[] = {
      "tokenizer.ggml.eot_token_id",     "tokenizer.ggml.eom_token_id",
      "tokenizer.ggml.fim_pad_token_id", "tokenizer.ggml.fim_rep_token_id",
      "tokenizer.ggml.fim_sep_token_id",
  };
  if (vocab->eos >= 0) mark[vocab->eos] = 1;
  for (size_t i = 0; i < COUNT(keys); i++) {
    int32_t id = -1;
    hr_status status = read_id(source, keys[i], vocab->count, &id, err);
    if (status != HR_OK) return status;
    if (id >= 0) mark[id] = 1;
  }
  return HR_OK;
}

/* The marked token with this text, or -1. */
static int32_t marked(const hr_vocab *vocab, const unsigned char *mark, const char *text) {
  for (size_t i = 0; i < vocab->count; i++)
    if (mark[i] && piece_is(&vocab->tokens[i], text)) return (int32_t)i;
  return -1;
}

/* Two vocabularies give a marker of the list another meaning: where <|return|>
 * or <|flush|> ends a text together with <|call|>, <|end|> parts channels;
 * where <|tool_response> is, </s> is plain text. */
static void settle_markers(const hr_vocab *vocab, int32_t *kinds, unsigned char *mark) {
  int32_t end = marked(vocab, mark, "<|end|>"), s = marked(vocab, mark, "</s>");
  bool call = marked(vocab, mark, "<|call|>") >= 0 || marked(vocab, mark, "<|calls|>") >= 0;
  bool last = marked(vocab, mark, "<|return|>") >= 0 || marked(vocab, mark, "<|flush|>") >= 0;
  if (end >= 0 && call && last) {
    mark[end] = 0;
    kinds[end] = HR_TOKEN_USER;
  }
  if (s >= 0 && marked(vocab, mark, "<|tool_response>") >= 0) {
    mark[s] = 0;
    kinds[s] = HR_TOKEN_NORMAL;
  }
}

static hr_status list_ends(hr_vocab_storage *storage, const unsigned char *mark, size_t count,
                           hr_error *err) {
  size_t ends = 0;
  for (size_t i = 0; i < count; i++) ends += mark[i];
  storage->ends = hr_calloc(ends, sizeof *storage->ends);
  if (!storage->ends) return hr_fail_memory(err, "end tokens", ends * sizeof *storage->ends);
  for (size_t i = 0; i < count; i++)
    if (mark[i]) storage->ends[storage->end_count++] = (int32_t)i;
  return HR_OK;
}

static hr_status read_ends(const hr_source *source, hr_vocab_storage *storage,
                           const hr_vocab *vocab, hr_error *err) {
  unsigned char *mark = hr_calloc(vocab->count, 1);
  if (!mark) return hr_fail_memory(err, "end tokens", vocab->count);
  mark_markers(vocab, storage->kinds, mark);
  hr_status status = mark_keys(source, vocab, mark, err);
  if (status == HR_OK) {
    settle_markers(vocab, storage->kinds, mark);
    status = list_ends(storage, mark, vocab->count, err);
  }
  hr_free(mark);
  return status;
}

bool hr_vocab_is_end(const hr_vocab_storage *storage, int32_t id) {
  size_t low = 0, high = storage->end_count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (storage->ends[middle] == id) return true;
    if (storage->ends[middle] < id)
      low = middle + 1;
    else
      high = middle;
  }
  return false;
}

/* --- The vocabulary -------------------------------------------------------- */

/* What only vocabularies of a kind have, and the defaults of the flags. */
static hr_status read_kind(const hr_source *source, hr_vocab_storage *storage, hr_vocab *vocab,
                           hr_error *err) {
  hr_status status = HR_OK;
  switch (vocab->kind) {
    case HR_VOCAB_SPM:
      vocab->add_bos = vocab->add_space_prefix = true;
      return read_scores(source, storage, vocab, err);
    case HR_VOCAB_BPE:
      status = read_merges(source, storage, vocab, err);
      return status == HR_OK ? read_pre_tokenizer(source, storage, vocab, err) : status;
    case HR_VOCAB_WORDPIECE:
      vocab->add_bos = vocab->add_eos = true;
      return read_normalizer(source, vocab, err);
    case HR_VOCAB_UNIGRAM:
      vocab->add_eos = true;
      status = read_scores(source, storage, vocab, err);
      if (status == HR_OK)
        status = read_flag(source, "tokenizer.ggml.remove_extra_whitespaces", &vocab->merge_spaces,
                           err);
      return status == HR_OK ? read_charsmap(source, storage, vocab, err) : status;
  }
  return status;
}

static hr_status read_all(const hr_source *source, hr_vocab_storage *storage, hr_vocab *vocab,
                          hr_error *err) {
  hr_status status = read_tokens(source, storage, vocab, err);
  if (status == HR_OK) status = read_kinds(source, storage, vocab, err);
  if (status == HR_OK) status = read_kind(source, storage, vocab, err);
  if (status == HR_OK) status = read_ids(source, vocab, err);
  if (status == HR_OK) status = read_flags(source, vocab, err);
  if (status == HR_OK) status = read_ends(source, storage, vocab, err);
  return status;
}

static const struct {
  const char *model;
  hr_vocab_kind kind;
} models[] = {
    {"llama", HR_VOCAB_SPM},
    {"gpt2", HR_VOCAB_BPE},
    {"bert", HR_VOCAB_WORDPIECE},
    {"t5", HR_VOCAB_UNIGRAM},
};

hr_status hr_vocab_read(const hr_source *source, hr_vocab_storage *storage, hr_vocab *vocab,
                        bool *found, hr_error *err) {
  static const char key[] = "tokenizer.ggml.model";
  const char *model = NULL;
  size_t length = 0;
  *storage = (hr_vocab_storage){0};
  *vocab = (hr_vocab){.where = hr_source_path(source), .bos = -1, .eos = -1, .unknown = -1};
  *found = false;
  if (hr_source_get_kind(source) != HR_SOURCE_GGUF) return HR_OK;

  bool named;
  hr_status status = hr_source_string(source, key, &model, &length, &named, err);
  if (status != HR_OK || !named) return status;
  if (same(model, length, "none") || same(model, length, "no_vocab")) return HR_OK;
  for (size_t i = 0; i < COUNT(models); i++) {
    if (!same(model, length, models[i].model)) continue;
    vocab->kind = models[i].kind;
    status = read_all(source, storage, vocab, err);
    *found = status == HR_OK;
    return status;
  }
  storage->unsupported = hr_strndup(model, length);
  return storage->unsupported ? HR_OK : hr_fail_memory(err, key, length + 1);
}

void hr_vocab_storage_finish(hr_vocab_storage *storage) {
  hr_free(storage->tokens);
  hr_free(storage->scores);
  hr_free(storage->kinds);
  hr_free(storage->merges);
  hr_free(storage->pre_tokenizer);
  hr_free(storage->charsmap);
  hr_free(storage->ends);
  hr_free(storage->unsupported);
  *storage = (hr_vocab_storage){0};
}
