/* SPDX-License-Identifier: MIT
 * Finding a model's vocabulary; what its readers share; where texts end. */
#include "model/vocab.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/text.h"
#include "model/json.h"
#include "model/packed.h"
#include "model/source_internal.h"
#include "model/vocab_internal.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* --- Arrays ---------------------------------------------------------------- */

bool hr_piece_is(hr_piece piece, const char *text) {
  size_t length = strlen(text);
  return piece.length == length && memcmp(piece.text, text, length) == 0;
}

int32_t hr_vocab_find(const hr_vocab *vocab, hr_piece text) {
  for (size_t i = 0; i < vocab->count; i++)
    if (vocab->tokens[i].length == text.length &&
        (text.length == 0 || memcmp(vocab->tokens[i].text, text.text, text.length) == 0))
      return (int32_t)i;
  return -1;
}

static bool grow_tokens(hr_vocab_storage *s, size_t count, bool scores) {
  hr_piece *tokens = hr_realloc(s->tokens, count, sizeof *tokens);
  if (tokens) s->tokens = tokens;
  int32_t *kinds = hr_realloc(s->kinds, count, sizeof *kinds);
  if (kinds) s->kinds = kinds;
  uint8_t *added = hr_realloc(s->added, count, sizeof *added);
  if (added) s->added = added;
  float *all = scores ? hr_realloc(s->scores, count, sizeof *all) : NULL;
  if (all) s->scores = all;
  return tokens && kinds && added && (all || !scores);
}

static void name_arrays(const hr_vocab_storage *s, hr_vocab *vocab) {
  vocab->tokens = s->tokens;
  vocab->kinds = s->kinds;
  vocab->added = s->added;
  vocab->scores = s->scores;
}

hr_status hr_vocab_extend(hr_vocab_storage *s, hr_vocab *vocab, size_t count, hr_error *err) {
  if (!grow_tokens(s, count, vocab->scores != NULL))
    return hr_fail_memory(err, vocab->where, count * sizeof *s->tokens);
  for (size_t i = vocab->count; i < count; i++) {
    s->tokens[i] = (hr_piece){"", 0};
    s->kinds[i] = HR_TOKEN_UNUSED;
    s->added[i] = 0;
    if (vocab->scores) s->scores[i] = 0;
  }
  vocab->count = count;
  name_arrays(s, vocab);
  return HR_OK;
}

hr_status hr_vocab_reserve(hr_vocab_storage *s, hr_vocab *vocab, size_t count, bool scores,
                           hr_error *err) {
  if (scores && !(s->scores = hr_calloc(count, sizeof *s->scores)))
    return hr_fail_memory(err, vocab->where, count * sizeof *s->scores);
  vocab->scores = s->scores;
  return hr_vocab_extend(s, vocab, count, err);
}

hr_status hr_vocab_add_step(hr_step_array *array, hr_text_step step, const char *where,
                            hr_error *err) {
  if (array->count == array->capacity) {
    size_t capacity = array->capacity ? 2 * array->capacity : 8;
    hr_text_step *bigger = hr_realloc(array->step, capacity, sizeof *bigger);
    if (!bigger) return hr_fail_memory(err, where, capacity * sizeof *bigger);
    array->step = bigger;
    array->capacity = capacity;
  }
  array->step[array->count++] = step;
  return HR_OK;
}

hr_status hr_vocab_add_steps(hr_step_array *array, hr_step_list steps, const char *where,
                             hr_error *err) {
  hr_status status = HR_OK;
  for (size_t i = 0; i < steps.count && status == HR_OK; i++)
    status = hr_vocab_add_step(array, steps.step[i], where, err);
  return status;
}

hr_status hr_vocab_add_space_decoder(hr_vocab_storage *storage, const char *where, hr_error *err) {
  hr_text_step spaces = {.kind = HR_STEP_REPLACE,
                         .literal = true,
                         .pattern = {"\xe2\x96\x81", 3},
                         .content = {" ", 1}};
  return hr_vocab_add_step(&storage->decoder, spaces, where, err);
}

void hr_vocab_take_steps(const hr_vocab_storage *s, hr_vocab *vocab) {
  vocab->normalizer = (hr_step_list){s->normalizer.step, s->normalizer.count};
  vocab->pre_tokenizer = (hr_step_list){s->pre_tokenizer.step, s->pre_tokenizer.count};
  vocab->decoder = (hr_step_list){s->decoder.step, s->decoder.count};
}

char *hr_vocab_keep(hr_vocab_storage *s, const char *text, size_t length, const char *where,
                    hr_error *err) {
  if (s->kept_count == s->kept_capacity) {
    size_t capacity = s->kept_capacity ? 2 * s->kept_capacity : 8;
    char **bigger = hr_realloc(s->kept, capacity, sizeof *bigger);
    if (!bigger) {
      hr_fail_memory(err, where, capacity * sizeof *bigger);
      return NULL;
    }
    s->kept = bigger;
    s->kept_capacity = capacity;
  }
  char *copy = hr_strndup(text, length);
  if (!copy)
    hr_fail_memory(err, where, length);
  else
    s->kept[s->kept_count++] = copy;
  return copy;
}

void hr_vocab_set_template(hr_vocab *vocab, bool add_bos, bool add_eos) {
  vocab->around = (hr_template){0};
  if (add_bos && vocab->bos >= 0) vocab->around.before[vocab->around.before_count++] = vocab->bos;
  if (add_eos && vocab->eos >= 0) vocab->around.after[vocab->around.after_count++] = vocab->eos;
  hr_vocab_set_pairs(vocab);
}

void hr_vocab_set_pairs(hr_vocab *vocab) {
  hr_template *t = &vocab->around;
  t->pairs = t->before_count && t->after_count == 1;
  if (!t->pairs) return;
  t->second_type = vocab->kind == HR_VOCAB_WORDPIECE;
  t->between_count = t->second_type ? 1 : 2;
  t->between[0] = t->between[1] = t->after[0];
}

/* --- Where texts end ------------------------------------------------------- */

/* Markers that end a turn or a text wherever they occur. Files often name only
 * one of theirs, or mark none as control tokens. */
static const char *const end_markers[] = {
    "<|eot_id|>",         "<|im_end|>", "<|end|>",          "<|return|>",    "<|call|>",
    "<|flush|>",          "<|calls|>",  "<|eom_id|>",       "<end_of_turn>", "<|endoftext|>",
    "<|end_of_text|>",    "<EOT>",      "_<EOT>",           "[EOT]",         "[EOS]",
    "<end_of_utterance>", "<turn|>",    "<|tool_response>",
};

/* These are ordinary text in some vocabularies: they count as control tokens only. */
static const char *const control_end_markers[] = {
    "</s>",   "<eos>",      "<|fim_pad|>",  "<fim-pad>",     "<fim_pad>",
    "<PAD>",  "[PAD]",      "<|fim_repo|>", "<|repo_name|>", "<fim-repo>",
    "<REPO>", "<reponame>", "<|file_sep|>",
};

static bool is_one_of(const hr_piece *piece, const char *const *texts, size_t count) {
  for (size_t i = 0; i < count; i++)
    if (hr_piece_is(*piece, texts[i])) return true;
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

/* The marked token with this text, or -1. */
static int32_t marked(const hr_vocab *vocab, const unsigned char *mark, const char *text) {
  for (size_t i = 0; i < vocab->count; i++)
    if (mark[i] && hr_piece_is(vocab->tokens[i], text)) return (int32_t)i;
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

static hr_status list_marked(hr_vocab_storage *storage, const unsigned char *mark, size_t count,
                             hr_error *err) {
  size_t ends = 0;
  for (size_t i = 0; i < count; i++) ends += mark[i];
  storage->ends = hr_calloc(ends, sizeof *storage->ends);
  if (!storage->ends) return hr_fail_memory(err, "end tokens", ends * sizeof *storage->ends);
  for (size_t i = 0; i < count; i++)
    if (mark[i]) storage->ends[storage->end_count++] = (int32_t)i;
  return HR_OK;
}

hr_status hr_vocab_list_ends(hr_vocab_storage *storage, const hr_vocab *vocab, unsigned char *mark,
                             hr_error *err) {
  mark_markers(vocab, storage->kinds, mark);
  settle_markers(vocab, storage->kinds, mark);
  return list_marked(storage, mark, vocab->count, err);
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

/* --- Files beside safetensors ---------------------------------------------- */

json_t *hr_vocab_load_json(hr_file_map *map, const char *path, hr_error *err) {
  json_t *json = hr_json_parse(path, "", map->data, map->bytes,
                               JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, err);
  hr_file_map_close(map);
  return json;
}

static hr_status bad(const char *where, const char *what, const char *expected, hr_error *err) {
  return hr_fail(err, HR_ERROR_FILE, "%s: %s, expected %s", where, what, expected);
}

/* *flag stays where there is no such member, or null. */
static hr_status read_flag(const char *where, const json_t *object, const char *key, bool *flag,
                           hr_error *err) {
  const json_t *value = json_object_get(object, key);
  if (!value || json_is_null(value)) return HR_OK;
  *flag = json_is_true(value);
  return json_is_boolean(value)
             ? HR_OK
             : hr_fail(err, HR_ERROR_FILE, "%s: '%s' is neither true nor false", where, key);
}

static const struct {
  const char *name;
  unsigned flag;
} added_flags[] = {{"lstrip", HR_ADDED_LSTRIP},
                   {"rstrip", HR_ADDED_RSTRIP},
                   {"single_word", HR_ADDED_SINGLE_WORD},
                   {"normalized", HR_ADDED_NORMALIZED}};

hr_status hr_vocab_add_token(hr_vocab_storage *s, hr_vocab *vocab, const json_t *token, int64_t id,
                             hr_error *err) {
  const json_t *number = json_object_get(token, "id"), *content = json_object_get(token, "content");
  if (json_is_integer(number)) id = json_integer_value(number);
  if (!json_is_string(content))
    return bad(vocab->where, "an added token has no 'content'", "a string", err);
  hr_piece text = {json_string_value(content), json_string_length(content)};
  if (id < 0 || (size_t)id >= vocab->count)
    return hr_fail(err, HR_ERROR_FILE, "%s: added token '%s' has id %lld, expected 0 to %zu",
                   vocab->where, HR_QUOTE(text.text, text.length), (long long)id, vocab->count - 1);
  hr_piece *there = &s->tokens[id];
  if (s->kinds[id] != HR_TOKEN_UNUSED &&
      (there->length != text.length || memcmp(there->text, text.text, text.length) != 0))
    return hr_fail(err, HR_ERROR_FILE, "%s: id %lld is both token '%s' and added token '%s'",
                   vocab->where, (long long)id, HR_QUOTE(there->text, there->length),
                   HR_QUOTE(text.text, text.length));
  *there = text;
  bool special = false;
  hr_status status = read_flag(vocab->where, token, "special", &special, err);
  if (s->kinds[id] != HR_TOKEN_UNKNOWN) s->kinds[id] = special ? HR_TOKEN_CONTROL : HR_TOKEN_USER;
  for (size_t i = 0; i < COUNT(added_flags) && status == HR_OK; i++) {
    bool set = false;
    status = read_flag(vocab->where, token, added_flags[i].name, &set, err);
    if (set) s->added[id] |= (uint8_t)added_flags[i].flag;
  }
  return status;
}

/* --- tokenizer_config.json ------------------------------------------------- */

/* A file that says more of a tokenizer; its JSON is NULL where there is none. */
typedef struct settings_file {
  json_t *json;
  char where[HR_WHERE_BYTES]; /* what messages call it */
} settings_file;

typedef struct settings {
  settings_file config, special_map, generation;
} settings;

static const json_t *setting(const settings_file *file, const char *key) {
  const json_t *value = json_object_get(file->json, key);
  return json_is_null(value) ? NULL : value;
}

/* "<s>", or {"content": "<s>"}. */
static hr_piece token_text(const json_t *value) {
  if (json_is_object(value)) value = json_object_get(value, "content");
  if (!json_is_string(value)) return (hr_piece){NULL, 0};
  return (hr_piece){json_string_value(value), json_string_length(value)};
}

/* Where a mark stands in front of WordPiece's words, files don't write it. */
static int32_t find_token(const hr_vocab *vocab, hr_piece text) {
  static const char mark[] = "\xe2\x96\x81";
  const size_t bytes = sizeof mark - 1;
  int32_t id = hr_vocab_find(vocab, text);
  for (size_t i = 0; i < vocab->count && id < 0 && vocab->kind == HR_VOCAB_WORDPIECE; i++) {
    hr_piece token = vocab->tokens[i];
    if (token.length == bytes + text.length && memcmp(token.text, mark, bytes) == 0 &&
        memcmp(token.text + bytes, text.text, text.length) == 0)
      id = (int32_t)i;
  }
  return id;
}

/* *id stays as it is when neither file names a token. */
static hr_status read_token(const settings *s, const hr_vocab *vocab, const char *key, int32_t *id,
                            hr_error *err) {
  const settings_file *file = setting(&s->config, key) ? &s->config : &s->special_map;
  const json_t *value = setting(file, key);
  if (!value) return HR_OK;
  hr_piece text = token_text(value);
  if (!text.text)
    return hr_fail(err, HR_ERROR_FILE, "%s: key '%s' is no text of a token", file->where, key);
  int32_t found = find_token(vocab, text);
  if (found < 0)
    return hr_fail(err, HR_ERROR_FILE, "%s: key '%s' is '%s', expected a token of the vocabulary",
                   file->where, key, HR_QUOTE(text.text, text.length));
  *id = found;
  return HR_OK;
}

/* {"32000": {"content": ...}}: tokens beyond those of SentencePiece's file. */
static hr_status add_tokens(const settings *s, hr_vocab_storage *storage, hr_vocab *vocab,
                            hr_error *err) {
  json_t *list = json_object_get(s->config.json, "added_tokens_decoder"), *token;
  const char *key;
  if (list && !json_is_null(list) && !json_is_object(list))
    return bad(vocab->where, "'added_tokens_decoder' in the settings beside it is no object",
               "tokens by their ids", err);
  size_t needed = vocab->count, most = vocab->count + 4 * json_object_size(list) + 65536;
  json_object_foreach(list, key, token) {
    char *end;
    unsigned long long id = strtoull(key, &end, 10);
    if (*end || end == key || id >= most)
      return hr_fail(err, HR_ERROR_FILE,
                     "%s: 'added_tokens_decoder' has the id '%s', expected 0 to %zu", vocab->where,
                     HR_QUOTE(key, strlen(key)), most - 1);
    if (id >= needed) needed = (size_t)id + 1;
  }
  hr_status status = hr_vocab_extend(storage, vocab, needed, err);
  json_object_foreach(list, key, token) {
    hr_piece text = token_text(token);
    int64_t id = strtoll(key, NULL, 10);
    if (status != HR_OK) return status;
    if ((size_t)id < vocab->count && storage->kinds[id] != HR_TOKEN_UNUSED) continue;
    status = hr_vocab_add_token(storage, vocab, token, id, err);
    /* The config goes before the tokenizer does. */
    char *copy =
        status == HR_OK ? hr_vocab_keep(storage, text.text, text.length, vocab->where, err) : NULL;
    if (status == HR_OK && !copy) status = HR_ERROR_MEMORY;
    if (copy) storage->tokens[id].text = copy;
  }
  return status;
}

/* Where the tokenizer's own file doesn't tell what goes around a text. */
static hr_status set_around(const settings *s, hr_vocab *vocab, bool sentencepiece,
                            hr_error *err) {
  bool bos = sentencepiece, eos = false;
  hr_status status = read_flag(vocab->where, s->config.json, "add_bos_token", &bos, err);
  if (status == HR_OK)
    status = read_flag(vocab->where, s->config.json, "add_eos_token", &eos, err);
  if (status != HR_OK) return status;
  if (vocab->around.before_count || vocab->around.after_count) {
    const hr_template *around = &vocab->around;
    if (vocab->bos < 0 && around->before_count) vocab->bos = around->before[0];
    if (vocab->eos < 0 && around->after_count) vocab->eos = around->after[around->after_count - 1];
    return HR_OK;
  }
  hr_vocab_set_template(vocab, bos, eos);
  return HR_OK;
}

static hr_status apply_settings(const settings *s, hr_vocab_storage *storage, hr_vocab *vocab,
                                bool sentencepiece, hr_error *err) {
  hr_status status = sentencepiece ? add_tokens(s, storage, vocab, err) : HR_OK;
  if (status == HR_OK) status = read_token(s, vocab, "cls_token", &vocab->bos, err);
  if (status == HR_OK) status = read_token(s, vocab, "sep_token", &vocab->eos, err);
  if (status == HR_OK) status = read_token(s, vocab, "bos_token", &vocab->bos, err);
  if (status == HR_OK) status = read_token(s, vocab, "eos_token", &vocab->eos, err);
  return status == HR_OK ? set_around(s, vocab, sentencepiece, err) : status;
}

/* --- Names of files beside safetensors ------------------------------------- */

static void name_beside(const hr_source *source, const char *name, char where[HR_WHERE_BYTES]) {
  const char *values = source->values_path;
  size_t stem = strlen(values);
  if (hr_ends_with(values, "config.json")) stem -= strlen("config.json");
  if (hr_source_is_packed(source))
    snprintf(where, HR_WHERE_BYTES, "%.400s: %s", values, name);
  else
    snprintf(where, HR_WHERE_BYTES, "%.*s%s", (int)stem, values, name);
}

/* --- Where texts end, beside safetensors ----------------------------------- */

/* Where ids that end a text are gathered. */
typedef struct ends {
  const hr_vocab *vocab;
  unsigned char *mark; /* of each token; NULL: the ids are checked only */
} ends;

/* -1 and 0xFFFFFFFF mean none, as in GGUF. */
static hr_status mark_id(const ends *e, const char *where, const char *key, double id,
                         hr_error *err) {
  if (id == -1 || id == (double)UINT32_MAX) return HR_OK;
  if (!(id >= 0 && id < (double)e->vocab->count) || id != (double)(size_t)id)
    return hr_fail(err, HR_ERROR_FILE, "%s: key '%s' is %.17g, expected an id below %zu or none",
                   where, key, id, e->vocab->count);
  if (e->mark) e->mark[(size_t)id] = 1;
  return HR_OK;
}

/* A number, a list of them, or nothing. */
static hr_status mark_json(const ends *e, const settings_file *file, const char *key,
                           hr_error *err) {
  const json_t *ids = setting(file, key);
  size_t count = json_is_array(ids) ? json_array_size(ids) : ids != NULL;
  for (size_t i = 0; i < count; i++) {
    const json_t *id = json_is_array(ids) ? json_array_get(ids, i) : ids;
    if (!json_is_number(id))
      return hr_fail(err, HR_ERROR_FILE,
                     "%s: key '%s' is no id, expected a whole number or a list of them",
                     file->where, key);
    hr_status status = mark_id(e, file->where, key, json_number_value(id), err);
    if (status != HR_OK) return status;
  }
  return HR_OK;
}

static hr_status mark_config(const ends *e, const hr_source *source, const char *key,
                             hr_error *err) {
  char where[HR_WHERE_BYTES];
  int64_t ids[64] = {-1};
  size_t count = 1;
  name_beside(source, "config.json", where);
  bool found = false, list = hr_source_is_array(source, key);
  hr_status status = list ? hr_source_array_length(source, key, &count, &found, err)
                          : hr_source_i64(source, key, &ids[0], &found, err);
  if (status == HR_OK && count > COUNT(ids))
    status = hr_fail(err, HR_ERROR_FILE, "%s: key '%s' has %zu elements, expected at most %zu",
                     where, key, count, COUNT(ids));
  if (status == HR_OK && list) status = hr_source_array_i64(source, key, ids, count, err);
  for (size_t i = 0; i < count && found && status == HR_OK; i++)
    status = mark_id(e, where, key, (double)ids[i], err);
  return status;
}

/* The tokenizer says what a text begins with. Ids of it elsewhere are only
 * checked: one outside the vocabulary means that the files don't belong together. */
static hr_status mark_ends(const hr_source *source, const settings *s, const hr_vocab *vocab,
                           unsigned char *mark, hr_error *err) {
  const ends all = {vocab, mark}, none = {vocab, NULL};
  hr_status status = mark_json(&all, &s->generation, "eos_token_id", err);
  if (status == HR_OK) status = mark_json(&none, &s->generation, "bos_token_id", err);
  if (status == HR_OK) status = mark_config(&all, source, "eos_token_id", err);
  if (status == HR_OK) status = mark_config(&none, source, "bos_token_id", err);
  return status;
}

static hr_status read_ends(const hr_source *source, const settings *s, hr_vocab_storage *storage,
                           const hr_vocab *vocab, hr_error *err) {
  unsigned char *mark = hr_calloc(vocab->count, 1);
  if (!mark) return hr_fail_memory(err, "end tokens", vocab->count);
  if (vocab->eos >= 0) mark[vocab->eos] = 1;
  hr_status status = mark_ends(source, s, vocab, mark, err);
  if (status == HR_OK) status = hr_vocab_list_ends(storage, vocab, mark, err);
  hr_free(mark);
  return status;
}

/* --- Files ----------------------------------------------------------------- */

static hr_status read_sentencepiece(hr_file_map *map, const char *path, hr_vocab_storage *storage,
                                    hr_vocab *vocab, hr_error *err) {
  storage->map = *map;
  hr_status status = hr_source_check_start(map, path, err);
  if (status != HR_OK) return status;
  return hr_vocab_parse_sentencepiece(map->data, map->bytes, path, storage, vocab, err);
}

static hr_status read_tokenizer_json(hr_file_map *map, const char *path, hr_vocab_storage *storage,
                                     hr_vocab *vocab, hr_error *err) {
  hr_status status = hr_source_check_start(map, path, err);
  if (status == HR_OK)
    status = hr_vocab_parse_json(map->data, map->bytes, path, storage, vocab, err);
  hr_file_map_close(map);
  return status;
}

/* Takes the map over. */
static hr_status read_file(const hr_source *source, hr_file_map *map, const char *path,
                           const settings *s, hr_vocab_storage *storage, hr_vocab *vocab,
                           hr_error *err) {
  bool json = hr_ends_with(path, ".json");
  const char *where = hr_vocab_keep(storage, path, strlen(path), path, err);
  if (!where) {
    hr_file_map_close(map);
    return HR_ERROR_MEMORY;
  }
  hr_status status = json ? read_tokenizer_json(map, where, storage, vocab, err)
                          : read_sentencepiece(map, where, storage, vocab, err);
  if (status == HR_OK) status = apply_settings(s, storage, vocab, !json, err);
  return status == HR_OK ? read_ends(source, s, storage, vocab, err) : status;
}

static void name_ends(const hr_vocab_storage *storage, hr_vocab *vocab) {
  vocab->ends = storage->ends;
  vocab->end_count = storage->end_count;
}

hr_status hr_vocab_open_beside(const hr_source *source, const char *name, hr_file_map *map,
                               char where[HR_WHERE_BYTES], bool *found, hr_error *err) {
  name_beside(source, name, where);
  return hr_source_open_beside(source, name, map, found, err);
}

static hr_status load_beside(const hr_source *source, const char *name, settings_file *file,
                             hr_error *err) {
  hr_file_map map;
  bool found;
  hr_status status = hr_vocab_open_beside(source, name, &map, file->where, &found, err);
  if (status != HR_OK || !found) return status;
  file->json = hr_vocab_load_json(&map, file->where, err);
  return file->json ? HR_OK : err->status;
}

/* Takes the map over. */
static hr_status read_beside(const hr_source *source, hr_file_map *map, const char *where,
                             hr_vocab_storage *storage, hr_vocab *vocab, hr_error *err) {
  settings s = {0};
  hr_status status = load_beside(source, "tokenizer_config.json", &s.config, err);
  if (status == HR_OK) status = load_beside(source, "special_tokens_map.json", &s.special_map, err);
  if (status == HR_OK) status = load_beside(source, "generation_config.json", &s.generation, err);
  if (status == HR_OK)
    status = read_file(source, map, where, &s, storage, vocab, err);
  else
    hr_file_map_close(map);
  json_decref(s.config.json);
  json_decref(s.special_map.json);
  json_decref(s.generation.json);
  return status;
}

static hr_status read_folder(const hr_source *source, hr_vocab_storage *storage, hr_vocab *vocab,
                             bool *found, hr_error *err) {
  static const char *const names[] = {"tokenizer.json", "tokenizer.model"};
  hr_status status = HR_OK;
  if (source->tokenizer) {
    hr_file_map map;
    status = hr_file_map_open(&map, source->tokenizer, err);
    if (status == HR_OK)
      status = read_beside(source, &map, source->tokenizer, storage, vocab, err);
    *found = status == HR_OK;
    return status;
  }
  for (size_t i = 0; i < COUNT(names) && status == HR_OK && !*found; i++) {
    hr_file_map map;
    bool there;
    char where[HR_WHERE_BYTES];
    status = hr_vocab_open_beside(source, names[i], &map, where, &there, err);
    if (status != HR_OK || !there) continue;
    status = read_beside(source, &map, where, storage, vocab, err);
    *found = status == HR_OK;
  }
  return status;
}

/* sentence-transformers may lower the case before the tokenizer does. */
static hr_status check_case(const hr_source *source, const hr_vocab *vocab, hr_error *err) {
  static const char key[] = "sentence_bert_config.do_lower_case";
  bool lower = false, found;
  hr_status status = hr_source_bool(source, key, &lower, &found, err);
  const hr_step_list *steps = &vocab->normalizer;
  for (size_t i = 0; i < steps->count; i++)
    if (steps->step[i].kind == HR_STEP_LOWERCASE ||
        (steps->step[i].kind == HR_STEP_BERT && !(steps->step[i].flags & HR_BERT_KEEP_CASE)))
      lower = false;
  if (status != HR_OK || !lower) return status;
  return hr_fail(err, HR_ERROR_FILE,
                 "%s: key '%s' is true, but the tokenizer keeps the case, expected one that lowers "
                 "it",
                 hr_source_path(source), key);
}

/* sentence-transformers puts a prompt in front of each text where its files name a default
 * one. A text stays as it is given here, so that is told. */
static hr_status warn_of_prompt(const hr_source *source, hr_vocab_storage *storage, hr_error *err) {
  static const char file[] = "config_sentence_transformers", key[] = "default_prompt_name";
  char full[64], text[768];
  const char *name;
  size_t length;
  bool found;
  snprintf(full, sizeof full, "%s.%s", file, key);
  hr_status status = hr_source_string(source, full, &name, &length, &found, err);
  if (status != HR_OK || !found || length == 0) return status;
  snprintf(text, sizeof text,
           "%.400s: %s.json has the key '%s': its prompt '%s' is not put in front of texts, which "
           "are taken as they are given",
           hr_source_path(source), file, key, HR_QUOTE(name, length));
  storage->warning = hr_strndup(text, strlen(text));
  return storage->warning ? HR_OK : hr_fail_memory(err, key, strlen(text) + 1);
}

hr_status hr_vocab_read(const hr_source *source, hr_vocab_storage *storage, hr_vocab *vocab,
                        bool *found, hr_error *err) {
  *storage = (hr_vocab_storage){0};
  *vocab = (hr_vocab){.where = hr_source_path(source), .bos = -1, .eos = -1, .unknown = -1};
  *found = false;
  if (hr_source_get_kind(source) == HR_SOURCE_GGUF) {
    hr_status read = hr_vocab_read_gguf(source, storage, vocab, found, err);
    name_ends(storage, vocab);
    return read;
  }
  hr_status status = read_folder(source, storage, vocab, found, err);
  name_ends(storage, vocab);
  if (status != HR_OK || !*found) return status;
  status = check_case(source, vocab, err);
  return status == HR_OK ? warn_of_prompt(source, storage, err) : status;
}

static void free_steps(hr_step_array *array) {
  hr_free(array->step);
  *array = (hr_step_array){0};
}

void hr_vocab_storage_trim(hr_vocab_storage *s) {
  hr_vocab_storage left = {.ends = s->ends,
                           .end_count = s->end_count,
                           .pre_name = s->pre_name,
                           .warning = s->warning,
                           .unsupported = s->unsupported};
  hr_free(s->tokens);
  hr_free(s->scores);
  hr_free(s->kinds);
  hr_free(s->added);
  hr_free(s->merges);
  free_steps(&s->normalizer);
  free_steps(&s->pre_tokenizer);
  free_steps(&s->decoder);
  json_decref(s->json);
  hr_file_map_close(&s->map);
  for (size_t i = 0; i < s->kept_count; i++) hr_free(s->kept[i]);
  hr_free(s->kept);
  *s = left;
}

void hr_vocab_storage_finish(hr_vocab_storage *s) {
  hr_vocab_storage_trim(s);
  hr_free(s->ends);
  hr_free(s->pre_name);
  hr_free(s->warning);
  hr_free(s->unsupported);
  *s = (hr_vocab_storage){0};
}
