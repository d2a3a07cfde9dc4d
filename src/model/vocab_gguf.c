/* SPDX-License-Identifier: MIT
 * The keys tokenizer.ggml.* of GGUF. Where a key is absent, the defaults are
 * those that the writers of such files rely on. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/memory.h"
#include "model/source_internal.h"
#include "model/vocab_internal.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* A string value against a literal. */
static bool same(const char *text, size_t length, const char *literal) {
  return hr_piece_is((hr_piece){text, length}, literal);
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
  if (!found || vocab->count == 0 || vocab->count > HR_VOCAB_MAX)
    return hr_fail(err, HR_ERROR_FILE, "%s: key '%s' %s, expected an array of 1 to %zu strings",
                   hr_source_path(source), key,
                   !found         ? "is missing"
                   : vocab->count ? "has too many elements"
                                  : "is empty",
                   HR_VOCAB_MAX);
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

/* "left right": the first space that isn't the left token itself parts them. */
static hr_status split_merge(const char *where, size_t index, hr_piece text, hr_merge *merge,
                             hr_error *err) {
  const char *space = text.length > 2 ? memchr(text.text + 1, ' ', text.length - 2) : NULL;
  if (!space)
    return hr_fail(err, HR_ERROR_FILE, "%s: merge %zu is '%s', expected two tokens", where, index,
                   HR_QUOTE(text.text, text.length));
  size_t left = (size_t)(space - text.text);
  *merge = (hr_merge){{text.text, left}, {space + 1, text.length - left - 1}};
  return HR_OK;
}

static hr_status read_merges(const hr_source *source, hr_vocab_storage *storage, hr_vocab *vocab,
                             hr_error *err) {
  static const char key[] = "tokenizer.ggml.merges";
  bool found;
  hr_piece *pieces = NULL;
  hr_status status = hr_source_array_length(source, key, &vocab->merge_count, &found, err);
  if (status != HR_OK) return status;
  if (!found)
    return hr_fail(err, HR_ERROR_FILE, "%s: key '%s' is missing, expected an array of strings",
                   hr_source_path(source), key);
  status = read_pieces(source, key, vocab->merge_count, &pieces, err);
  storage->merges = hr_calloc(vocab->merge_count, sizeof *storage->merges);
  if (status == HR_OK && !storage->merges)
    status = hr_fail_memory(err, key, vocab->merge_count * sizeof *storage->merges);
  for (size_t i = 0; status == HR_OK && i < vocab->merge_count; i++)
    status = split_merge(hr_source_path(source), i, pieces[i], &storage->merges[i], err);
  hr_free(pieces);
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
  return hr_piece_is(vocab->tokens[id], text) ? id : -1;
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
    case HR_VOCAB_BPE:
      break;
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

/* What goes around a text, and whether a space goes before it. */
typedef struct flags {
  bool add_bos, add_eos, add_space_prefix;
} flags;

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
    {"llama3", true, true},   {"llama-v3", true, true},   {"llama-bpe", true, true},
    {"falcon3", true, true},  {"falcon-h1", true, true},  {"pixtral", true, true},
    {"midm-2.0", true, true}, {"lfm2", true, true},       {"jina-v5-nano", true, true},
    {"tekken", true, true},   {"chameleon", true, false}, {"youtu", false, true},
};

/* Which pre-tokenizer a model was trained with can't be told from its vocabulary. */
static hr_status warn_of_default(const hr_source *source, const char *key, bool found,
                                 hr_vocab_storage *storage, hr_error *err) {
  char text[768];
  snprintf(text, sizeof text,
           "%.400s: key '%s' is %s: the pre-tokenizer \"default\" is used, and the ids are wrong "
           "if the model was trained with another",
           hr_source_path(source), key, found ? "empty" : "missing");
  storage->warning = hr_strndup(text, strlen(text));
  return storage->warning ? HR_OK : hr_fail_memory(err, key, strlen(text) + 1);
}

static hr_status read_pre_tokenizer(const hr_source *source, hr_vocab_storage *storage,
                                    hr_vocab *vocab, flags *f, hr_error *err) {
  static const char key[] = "tokenizer.ggml.pre";
  const char *text = NULL;
  size_t length = 0;
  bool found;
  hr_status status = hr_source_string(source, key, &text, &length, &found, err);
  if (status != HR_OK) return status;
  if (!found || length == 0) {
    status = warn_of_default(source, key, found, storage, err);
    if (status != HR_OK) return status;
    text = "default";
    length = strlen(text);
  }
  const char *name = storage->pre_name = hr_strndup(text, length);
  if (!name) return hr_fail_memory(err, key, length + 1);
  hr_step_list steps;
  if (strlen(name) != length || !hr_named_pre_tokenizer(name, &steps))
    return hr_fail(err, HR_ERROR_FILE, "%s: pre-tokenizer \"%s\" is not known; %s are",
                   vocab->where, HR_QUOTE(text, length), HR_PRE_TOKENIZER_NAMES);
  for (size_t i = 0; i < COUNT(pre_tokenizers); i++) {
    if (!same(text, length, pre_tokenizers[i].name)) continue;
    f->add_bos = pre_tokenizers[i].add_bos;
    vocab->ignore_merges = pre_tokenizers[i].ignore_merges;
  }
  vocab->byte_level = true;
  return hr_vocab_add_steps(&storage->pre_tokenizer, steps, vocab->where, err);
}

static hr_status read_flags(const hr_source *source, hr_vocab *vocab, flags *f, hr_error *err) {
  bool bert = vocab->kind == HR_VOCAB_WORDPIECE;
  bool sentencepiece = vocab->kind == HR_VOCAB_SPM || vocab->kind == HR_VOCAB_UNIGRAM;
  hr_status status = read_flag(source, "tokenizer.ggml.add_bos_token", &f->add_bos, err);
  const char *ending = bert ? "tokenizer.ggml.add_sep_token" : "tokenizer.ggml.add_eos_token";
  if (status == HR_OK) status = read_flag(source, ending, &f->add_eos, err);
  if (status == HR_OK && sentencepiece)
    status = read_flag(source, "tokenizer.ggml.add_space_prefix", &f->add_space_prefix, err);
  hr_vocab_set_template(vocab, f->add_bos, f->add_eos);
  return status;
}

/* Accents go with case unless the file says otherwise. */
static hr_status read_bert(const hr_source *source, hr_vocab_storage *storage, hr_vocab *vocab,
                           hr_error *err) {
  bool lower = true;
  hr_status status = read_flag(source, "tokenizer.ggml.normalizer.lowercase", &lower, err);
  bool strip = lower;
  if (status == HR_OK)
    status = read_flag(source, "tokenizer.ggml.normalizer.strip_accents", &strip, err);
  hr_text_step bert = {.kind = HR_STEP_BERT,
                       .flags = (lower ? 0u : (unsigned)HR_BERT_KEEP_CASE) |
                                (strip ? 0u : (unsigned)HR_BERT_KEEP_ACCENTS)};
  if (status == HR_OK) status = hr_vocab_add_step(&storage->normalizer, bert, vocab->where, err);
  if (status == HR_OK)
    status = hr_vocab_add_steps(&storage->pre_tokenizer, hr_bert_words(), vocab->where, err);
  vocab->strip_first_space = true;
  return status;
}

/* An array of signed or unsigned bytes. */
static hr_status read_charsmap(const hr_source *source, hr_vocab_storage *storage, hr_piece *table,
                               hr_error *err) {
  static const char key[] = "tokenizer.ggml.precompiled_charsmap";
  size_t count = 0;
  bool found;
  hr_status status = hr_source_array_length(source, key, &count, &found, err);
  if (status != HR_OK || !found || count == 0) return status;
  int64_t *values = hr_calloc(count, sizeof *values);
  char *bytes = hr_calloc(count, 1);
  if (!values || !bytes)
    status = hr_fail_memory(err, key, count * sizeof *values);
  else
    status = hr_source_array_i64(source, key, values, count, err);
  for (size_t i = 0; status == HR_OK && i < count; i++) {
    if (values[i] < INT8_MIN || values[i] > UINT8_MAX)
      status = hr_fail(err, HR_ERROR_FILE, "%s: element %zu of key '%s' is %lld, expected a byte",
                       hr_source_path(source), i, key, (long long)values[i]);
    bytes[i] = (char)(values[i] & 0xff);
  }
  const char *kept = NULL;
  if (status == HR_OK && !(kept = hr_vocab_keep(storage, bytes, count, key, err)))
    status = HR_ERROR_MEMORY;
  hr_free(values);
  hr_free(bytes);
  *table = (hr_piece){kept, count};
  return status;
}

/* SentencePiece's normalizer, or the part of it that its BPE has in GGUF: there
 * stray bytes stay, to become byte tokens. */
static hr_status add_normalizer(const hr_source *source, hr_vocab_storage *storage, hr_vocab *vocab,
                                const flags *f, hr_error *err) {
  static const hr_text_step prefix = {.kind = HR_STEP_PREPEND, .content = {"\xe2\x96\x81", 3}};
  static const hr_text_step spaces = {.kind = HR_STEP_REPLACE,
                                      .literal = true,
                                      .pattern = {" ", 1},
                                      .content = {"\xe2\x96\x81", 3}};
  hr_step_array *steps = &storage->normalizer;
  hr_status status = HR_OK;
  vocab->strip_first_space = f->add_space_prefix;
  if (vocab->kind == HR_VOCAB_SPM) {
    if (f->add_space_prefix) status = hr_vocab_add_step(steps, prefix, vocab->where, err);
    return status == HR_OK ? hr_vocab_add_step(steps, spaces, vocab->where, err) : status;
  }
  bool merge = false;
  hr_text_step whole = {.kind = HR_STEP_SENTENCEPIECE};
  status = read_flag(source, "tokenizer.ggml.remove_extra_whitespaces", &merge, err);
  if (status == HR_OK) status = read_charsmap(source, storage, &whole.content, err);
  whole.flags = (merge ? (unsigned)HR_SPM_MERGE_SPACES : 0) |
                (f->add_space_prefix ? (unsigned)HR_SPM_PREFIX : 0);
  return status == HR_OK ? hr_vocab_add_step(steps, whole, vocab->where, err) : status;
}

/* What no key tells: in these families tokens take in the white space beside them. */
static hr_status find_families(const hr_source *source, bool *mask, bool *phi, hr_error *err) {
  static const char *const masked[] = {"jina-v2-de", "jina-v2-es", "jina-v2-code"};
  const char *pre = NULL, *name = NULL;
  size_t pre_length = 0, name_length = 0;
  bool found;
  hr_status status = hr_source_string(source, "tokenizer.ggml.pre", &pre, &pre_length, &found, err);
  if (status == HR_OK)
    status = hr_source_string(source, "general.name", &name, &name_length, &found, err);
  for (size_t i = 0; i < COUNT(masked) && pre; i++) *mask |= same(pre, pre_length, masked[i]);
  for (size_t i = 0; name && i + 4 <= name_length; i++)
    *phi |= strncasecmp(name + i, "phi3", 4) == 0 ||
            (i + 5 <= name_length && strncasecmp(name + i, "phi-3", 5) == 0);
  return status;
}

static hr_status mark_strips(const hr_source *source, hr_vocab_storage *storage, hr_vocab *vocab,
                             hr_error *err) {
  bool mask = false, phi = false;
  hr_status status = find_families(source, &mask, &phi, err);
  if (status != HR_OK || (!mask && !phi)) return status;
  storage->added = hr_calloc(vocab->count, sizeof *storage->added);
  if (!storage->added) return hr_fail_memory(err, vocab->where, vocab->count);
  vocab->added = storage->added;
  for (size_t i = 0; i < vocab->count; i++) {
    hr_piece token = vocab->tokens[i];
    int32_t kind = storage->kinds[i];
    bool special = kind == HR_TOKEN_CONTROL || kind == HR_TOKEN_USER || kind == HR_TOKEN_UNKNOWN;
    bool plain = hr_piece_is(token, "<unk>") || hr_piece_is(token, "<s>") ||
                 hr_piece_is(token, "<|endoftext|>");
    if (mask && hr_piece_is(token, "<mask>")) storage->added[i] = HR_ADDED_LSTRIP;
    if (phi && special && !plain) storage->added[i] = HR_ADDED_RSTRIP;
  }
  return HR_OK;
}

/* --- Where texts end ------------------------------------------------------- */

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

static hr_status read_ends(const hr_source *source, hr_vocab_storage *storage,
                           const hr_vocab *vocab, hr_error *err) {
  unsigned char *mark = hr_calloc(vocab->count, 1);
  if (!mark) return hr_fail_memory(err, "end tokens", vocab->count);
  hr_status status = mark_keys(source, vocab, mark, err);
  if (status == HR_OK) status = hr_vocab_list_ends(storage, vocab, mark, err);
  hr_free(mark);
  return status;
}

/* --- The vocabulary -------------------------------------------------------- */

/* What only vocabularies of a kind have, and the defaults of the flags. */
static hr_status read_kind(const hr_source *source, hr_vocab_storage *storage, hr_vocab *vocab,
                           flags *f, hr_error *err) {
  hr_status status = HR_OK;
  switch (vocab->kind) {
    case HR_VOCAB_SPM:
      f->add_bos = f->add_space_prefix = vocab->fuse_unknown = true;
      return read_scores(source, storage, vocab, err);
    case HR_VOCAB_BPE:
      status = read_merges(source, storage, vocab, err);
      return status == HR_OK ? read_pre_tokenizer(source, storage, vocab, f, err) : status;
    case HR_VOCAB_WORDPIECE:
      f->add_bos = f->add_eos = true;
      return read_bert(source, storage, vocab, err);
    case HR_VOCAB_UNIGRAM:
      f->add_eos = vocab->fuse_unknown = true;
      return read_scores(source, storage, vocab, err);
  }
  return status;
}

static hr_status read_steps(const hr_source *source, hr_vocab_storage *storage, hr_vocab *vocab,
                            const flags *f, hr_error *err) {
  bool sentencepiece = vocab->kind == HR_VOCAB_SPM || vocab->kind == HR_VOCAB_UNIGRAM;
  hr_text_step clean = {.kind = HR_STEP_CLEANUP};
  hr_status status = sentencepiece ? add_normalizer(source, storage, vocab, f, err) : HR_OK;
  if (status == HR_OK && vocab->kind != HR_VOCAB_BPE)
    status = hr_vocab_add_space_decoder(storage, vocab->where, err);
  if (status == HR_OK && vocab->kind == HR_VOCAB_WORDPIECE)
    status = hr_vocab_add_step(&storage->decoder, clean, vocab->where, err);
  hr_vocab_take_steps(storage, vocab);
  return status;
}

static hr_status read_all(const hr_source *source, hr_vocab_storage *storage, hr_vocab *vocab,
                          hr_error *err) {
  flags f = {0};
  hr_status status = read_tokens(source, storage, vocab, err);
  if (status == HR_OK) status = read_kinds(source, storage, vocab, err);
  if (status == HR_OK) status = read_kind(source, storage, vocab, &f, err);
  if (status == HR_OK) status = read_ids(source, vocab, err);
  if (status == HR_OK) status = read_flags(source, vocab, &f, err);
  if (status == HR_OK) status = read_steps(source, storage, vocab, &f, err);
  if (status == HR_OK) status = mark_strips(source, storage, vocab, err);
  return status == HR_OK ? read_ends(source, storage, vocab, err) : status;
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

hr_status hr_vocab_read_gguf(const hr_source *source, hr_vocab_storage *storage, hr_vocab *vocab,
                             bool *found, hr_error *err) {
  static const char key[] = "tokenizer.ggml.model";
  const char *model = NULL;
  size_t length = 0;
  bool named;
  hr_status status = hr_source_string(source, key, &model, &length, &named, err);
  if (status == HR_OK && !named && hr_source_is_array(source, "tokenizer.ggml.tokens"))
    return hr_fail(err, HR_ERROR_FILE, "%s: key '%s' is missing, expected the kind of the tokens",
                   hr_source_path(source), key);
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
