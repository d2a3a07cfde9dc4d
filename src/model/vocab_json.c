/* SPDX-License-Identifier: MIT
 * tokenizer.json: the vocabulary and the steps of a Hugging Face tokenizer. What
 * it has for training and for cutting batches (truncation, padding, dropout of
 * 0) says nothing about one text. */
#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "model/json.h"
#include "model/source_internal.h"
#include "model/vocab_internal.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))
#define MAX_NESTING 8
#define SPACE_MARK "\xe2\x96\x81"

typedef struct reader {
  const char *where;
  hr_vocab_storage *storage;
  hr_vocab *vocab;
  hr_error *err;
  unsigned nesting;
  bool letters; /* a step so far has written letters for bytes */
  bool fused;   /* a decoder so far has joined all tokens */
  bool has_decoder;
  bool no_flag;   /* something that should be true or false is neither: err tells */
} reader;

/* --- Values ---------------------------------------------------------------- */

static const char *type_of(const json_t *value) {
  if (!value) return "missing";
  switch (json_typeof(value)) {
    case JSON_OBJECT:
      return "an object";
    case JSON_ARRAY:
      return "an array";
    case JSON_STRING:
      return "a string";
    case JSON_INTEGER:
      return "an integer";
    case JSON_REAL:
      return "a real number";
    case JSON_TRUE:
    case JSON_FALSE:
      return "a boolean";
    case JSON_NULL:
      break;
  }
  return "null";
}

static hr_status wrong(const reader *r, const char *key, const json_t *value,
                       const char *expected) {
  return hr_fail(r->err, HR_ERROR_FILE, "%s: '%s' is %s, expected %s", r->where, key,
                 type_of(value), expected);
}

static hr_status lacks(const reader *r, const char *what, const char *name) {
  return hr_fail(r->err, HR_ERROR_FILE, "%s: asks for the %s '%s', which is not known here",
                 r->where, what, HR_QUOTE(name, strlen(name)));
}

/* A value that is no boolean fails the whole file at its end. */
static bool is_true(reader *r, const json_t *object, const char *key, bool otherwise) {
  const json_t *value = json_object_get(object, key);
  if (!value || json_is_null(value)) return otherwise;
  if (!json_is_boolean(value) && !r->no_flag) {
    r->no_flag = true;
    wrong(r, key, value, "true or false");
  }
  return json_is_true(value);
}

static hr_piece text_of(const json_t *value) {
  return (hr_piece){json_string_value(value), json_string_length(value)};
}

static bool is_text(const json_t *value, const char *text) {
  return json_is_string(value) && hr_piece_is(text_of(value), text);
}

/* Absent, null, or a string without characters. */
static bool says_nothing(const json_t *value) {
  return !value || json_is_null(value) || is_text(value, "");
}

/* --- Steps of a kind, by name ---------------------------------------------- */

typedef hr_status component_fn(reader *r, const json_t *json);

typedef struct component {
  const char *name;
  component_fn *read;
} component;

/* Reads an object that names its "type", or nothing for null. */
static hr_status read_component(reader *r, const char *what, const component *known, size_t count,
                                const json_t *json) {
  if (!json || json_is_null(json)) return HR_OK;
  const char *type = json_string_value(json_object_get(json, "type"));
  if (!type) return wrong(r, what, json, "an object with a 'type'");
  for (size_t i = 0; i < count; i++)
    if (strcmp(known[i].name, type) == 0) return known[i].read(r, json);
  return lacks(r, what, type);
}

static hr_status read_sequence(reader *r, const json_t *json, const char *key,
                               component_fn *read_one) {
  const json_t *list = json_object_get(json, key);
  hr_status status = HR_OK;
  if (!json_is_array(list)) return wrong(r, key, list, "an array");
  if (r->nesting == MAX_NESTING)
    return hr_fail(r->err, HR_ERROR_FILE, "%s: '%s' are nested more than %d deep", r->where, key,
                   MAX_NESTING);
  r->nesting++;
  for (size_t i = 0; i < json_array_size(list) && status == HR_OK; i++)
    status = read_one(r, json_array_get(list, i));
  r->nesting--;
  return status;
}

static hr_status add_normalizer(reader *r, hr_text_step step) {
  return hr_vocab_add_step(&r->storage->normalizer, step, r->where, r->err);
}

/* Behind a byte-level step the text is in letters. */
static hr_status add_pre_tokenizer(reader *r, hr_text_step step) {
  hr_text_step letters = {.kind = HR_STEP_LETTERS};
  hr_status status = HR_OK;
  if (r->vocab->byte_level && !r->letters) {
    r->letters = true;
    status = hr_vocab_add_step(&r->storage->pre_tokenizer, letters, r->where, r->err);
  }
  if (status != HR_OK) return status;
  return hr_vocab_add_step(&r->storage->pre_tokenizer, step, r->where, r->err);
}

static hr_status add_decoder(reader *r, hr_text_step step) {
  if (r->fused)
    return hr_fail(r->err, HR_ERROR_FILE,
                   "%s: its decoder rewrites the text after 'Fuse', which is not known here",
                   r->where);
  return hr_vocab_add_step(&r->storage->decoder, step, r->where, r->err);
}

/* --- Patterns --------------------------------------------------------------
 * They are written for Oniguruma. Where the same letters mean something else to
 * PCRE2, they are replaced. */

typedef struct translation {
  const char *from, *to, *in_class; /* NULL: can't be said there */
} translation;

#define WORD_CLASS "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}"
static const translation translations[] = {
    {"\\s", "\\p{WSpace}", "\\p{WSpace}"},   {"\\S", "\\P{WSpace}", "\\P{WSpace}"},
    {"\\w", "[" WORD_CLASS "]", WORD_CLASS}, {"\\W", "[^" WORD_CLASS "]", NULL},
    {"\\h", "[0-9A-Fa-f]", "0-9A-Fa-f"},     {"\\H", "[^0-9A-Fa-f]", NULL},
};
#define LONGEST_TRANSLATION 40

/* Tries every start of a long run of spaces; from the run's own start is the same and quick. */
static const translation whole_patterns[] = {
    {"\\s+$", "(?<!\\p{WSpace})\\p{WSpace}+$", NULL},
};

static hr_status refuse_pattern(const reader *r, hr_piece pattern, const char *part) {
  return hr_fail(r->err, HR_ERROR_FILE, "%s: the pattern '%s' has '%s', which is not known here",
                 r->where, HR_QUOTE(pattern.text, pattern.length), part);
}

static const translation *find_translation(const char *at, size_t left) {
  for (size_t i = 0; i < COUNT(translations); i++)
    if (left >= 2 && memcmp(at, translations[i].from, 2) == 0) return &translations[i];
  return NULL;
}

/* A pattern on its way to PCRE2. Sets of characters may hold other sets there, as
 * [a[bc]]: a union, so that the inner brackets are left out. */
typedef struct translator {
  hr_piece pattern;
  size_t at;      /* in the pattern */
  char *out;
  size_t length;  /* of out */
  unsigned depth; /* of the set that is open; 0: none */
  bool at_edge;   /* a bracket of the set has just been read */
} translator;

/* What can't be said: the complement of a set inside a set, a range up to a set, an
 * intersection of sets, or an option with another meaning. */
static const char *find_foreign(const char *at, size_t left, bool in_class) {
  if (in_class && left > 1 && memcmp(at, "[^", 2) == 0) return "[^ ] inside [ ]";
  if (in_class && left > 1 && memcmp(at, "-[", 2) == 0) return "-[ inside [ ]";
  if (in_class && left > 1 && memcmp(at, "&&", 2) == 0) return "&&";
  if (!in_class && left > 3 && memcmp(at, "(?", 2) == 0)
    for (size_t i = 2; i < left && at[i] >= 'a' && at[i] <= 'z'; i++)
      if (at[i] == 'm') return "(?m)";
  return NULL;
}

static void emit(translator *t, const char *text, size_t length) {
  memcpy(t->out + t->length, text, length);
  t->length += length;
}

/* \u0964, which PCRE2 writes as \x{0964}. */
static bool is_code(const char *at, size_t left) {
  if (left < 6 || memcmp(at, "\\u", 2) != 0) return false;
  for (size_t i = 2; i < 6; i++)
    if (!memchr("0123456789abcdefABCDEF", at[i], 22)) return false;
  return true;
}

static void emit_code(translator *t, const char *at) {
  emit(t, "\\x{", 3);
  emit(t, at + 2, 4);
  emit(t, "}", 1);
  t->at_edge = false;
}

/* [, with ^ and a ] that belongs to the set because it stands first. */
static size_t open_set(translator *t, const char *at, size_t left) {
  size_t bytes = 1;
  if (t->depth++ == 0) {
    if (left > 1 && at[1] == '^') bytes = 2;
    emit(t, at, bytes);
  }
  t->at_edge = true;
  if (bytes == left || at[bytes] != ']') return bytes;
  t->at_edge = false;
  emit(t, "\\]", 2);
  return bytes + 1;
}

/* Characters of a set, and its brackets. A - beside a bracket is no range, and without
 * the bracket it would be one. */
static size_t translate_in_set(translator *t, const char *at, size_t left) {
  size_t bytes = *at == '\\' && left > 1 ? 2 : 1;
  const char *end = left > 1 && memcmp(at, "[:", 2) == 0 ? memmem(at, left, ":]", 2) : NULL;
  if (*at == '[' && !end) return open_set(t, at, left);
  if (*at == ']') {
    if (--t->depth == 0) emit(t, at, 1);
    t->at_edge = true;
    return 1;
  }
  if (end) bytes = (size_t)(end - at) + 2;
  if (*at == '-' && (t->at_edge || (left > 1 && at[1] == ']'))) emit(t, "\\", 1);
  emit(t, at, bytes);
  t->at_edge = false;
  return bytes;
}

static size_t translate_outside(translator *t, const char *at, size_t left) {
  if (*at == '[') return open_set(t, at, left);
  size_t bytes = *at == '\\' && left > 1 ? 2 : 1;
  emit(t, at, bytes);
  return bytes;
}

static hr_status translate_into(const reader *r, translator *t) {
  while (t->at < t->pattern.length) {
    const char *at = t->pattern.text + t->at;
    size_t left = t->pattern.length - t->at;
    const translation *known = find_translation(at, left);
    const char *foreign = find_foreign(at, left, t->depth);
    const char *to = known ? (t->depth ? known->in_class : known->to) : NULL;
    if (known && !to) foreign = known->from;
    if (foreign) return refuse_pattern(r, t->pattern, foreign);
    if (to) {
      emit(t, to, strlen(to));
      t->at_edge = false;
      t->at += strlen(known->from);
    } else if (is_code(at, left)) {
      emit_code(t, at);
      t->at += 6;
    } else {
      t->at += t->depth ? translate_in_set(t, at, left) : translate_outside(t, at, left);
    }
  }
  return HR_OK;
}

static hr_status translate(reader *r, hr_piece *pattern) {
  for (size_t i = 0; i < COUNT(whole_patterns); i++) {
    if (!hr_piece_is(*pattern, whole_patterns[i].from)) continue;
    *pattern = (hr_piece){whole_patterns[i].to, strlen(whole_patterns[i].to)};
    return HR_OK;
  }
  translator t = {.pattern = *pattern};
  if (pattern->length < (1u << 24)) t.out = hr_calloc(pattern->length + 1, LONGEST_TRANSLATION);
  if (!t.out) return hr_fail_memory(r->err, r->where, pattern->length * LONGEST_TRANSLATION);
  hr_status status = translate_into(r, &t);
  const char *kept =
      status == HR_OK ? hr_vocab_keep(r->storage, t.out, t.length, r->where, r->err) : NULL;
  hr_free(t.out);
  if (status != HR_OK) return status;
  if (!kept) return HR_ERROR_MEMORY;
  *pattern = (hr_piece){kept, t.length};
  return HR_OK;
}

/* {"String": ...} or {"Regex": ...}. */
static hr_status read_pattern(reader *r, const json_t *json, hr_text_step *step) {
  const json_t *pattern = json_object_get(json, "pattern");
  const json_t *literal = json_object_get(pattern, "String");
  const json_t *regex = json_object_get(pattern, "Regex");
  if (!json_is_string(literal) && !json_is_string(regex))
    return wrong(r, "pattern", pattern, "an object with a string 'String' or 'Regex'");
  step->literal = json_is_string(literal);
  step->pattern = text_of(step->literal ? literal : regex);
  return step->literal ? HR_OK : translate(r, &step->pattern);
}

static hr_status read_content(reader *r, const json_t *json, const char *key, hr_piece *content) {
  const json_t *value = json_object_get(json, key);
  if (!json_is_string(value)) return wrong(r, key, value, "a string");
  *content = text_of(value);
  return HR_OK;
}

/* --- Normalizers ----------------------------------------------------------- */

static hr_status read_normalizer(reader *r, const json_t *json);

static hr_status normalizer_sequence(reader *r, const json_t *json) {
  return read_sequence(r, json, "normalizers", read_normalizer);
}

/* Those that have no settings. */
static hr_status plain_normalizer(reader *r, const json_t *json) {
  static const struct {
    const char *name;
    hr_step_kind kind;
  } plain[] = {{"NFC", HR_STEP_NFC},
               {"NFD", HR_STEP_NFD},
               {"NFKC", HR_STEP_NFKC},
               {"NFKD", HR_STEP_NFKD},
               {"Lowercase", HR_STEP_LOWERCASE},
               {"StripAccents", HR_STEP_STRIP_ACCENTS},
               {"Nmt", HR_STEP_NMT}};
  const json_t *type = json_object_get(json, "type");
  for (size_t i = 0; i < COUNT(plain); i++)
    if (is_text(type, plain[i].name))
      return add_normalizer(r, (hr_text_step){.kind = plain[i].kind});
  return wrong(r, "type", type, "the name of a normalizer");
}

static hr_status normalizer_prepend(reader *r, const json_t *json) {
  hr_text_step step = {.kind = HR_STEP_PREPEND};
  hr_status status = read_content(r, json, "prepend", &step.content);
  return status == HR_OK ? add_normalizer(r, step) : status;
}

static hr_status normalizer_replace(reader *r, const json_t *json) {
  hr_text_step step = {.kind = HR_STEP_REPLACE};
  hr_status status = read_pattern(r, json, &step);
  if (status == HR_OK) status = read_content(r, json, "content", &step.content);
  return status == HR_OK ? add_normalizer(r, step) : status;
}

static hr_status normalizer_strip(reader *r, const json_t *json) {
  unsigned left = is_true(r, json, "strip_left", true) ? HR_STRIP_LEFT : 0;
  unsigned right = is_true(r, json, "strip_right", true) ? HR_STRIP_RIGHT : 0;
  return add_normalizer(r, (hr_text_step){.kind = HR_STEP_STRIP, .flags = left | right});
}

/* Accents go with case unless it says otherwise. */
static hr_status normalizer_bert(reader *r, const json_t *json) {
  bool lower = is_true(r, json, "lowercase", true);
  unsigned flags = 0;
  if (!is_true(r, json, "clean_text", true)) flags |= HR_BERT_KEEP_CONTROL;
  if (!is_true(r, json, "handle_chinese_chars", true)) flags |= HR_BERT_KEEP_CJK;
  if (!is_true(r, json, "strip_accents", lower)) flags |= HR_BERT_KEEP_ACCENTS;
  if (!lower) flags |= HR_BERT_KEEP_CASE;
  return add_normalizer(r, (hr_text_step){.kind = HR_STEP_BERT, .flags = flags});
}

static int base64_digit(char c) {
  static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const char *at = c ? strchr(digits, c) : NULL;
  return at ? (int)(at - digits) : -1;
}

/* Bytes written to out, which has room for as many as the text; SIZE_MAX: it is no base64. */
static size_t decode_base64(hr_piece text, char *out) {
  size_t n = 0, digits = text.length;
  unsigned held = 0, bits = 0;
  while (digits > 0 && text.text[digits - 1] == '=') digits--;
  if (text.length - digits > 2 || digits % 4 == 1) return SIZE_MAX;
  for (size_t i = 0; i < digits; i++) {
    int digit = base64_digit(text.text[i]);
    if (digit < 0) return SIZE_MAX;
    held = (held << 6 | (unsigned)digit) & 0xffffu;
    bits += 6;
    if (bits < 8) continue;
    bits -= 8;
    out[n++] = (char)(held >> bits & 0xff);
  }
  return n;
}

static hr_status normalizer_precompiled(reader *r, const json_t *json) {
  static const char key[] = "precompiled_charsmap";
  const json_t *value = json_object_get(json, key);
  if (says_nothing(value)) return HR_OK;
  if (!json_is_string(value)) return wrong(r, key, value, "a string");
  hr_piece text = text_of(value);
  char *bytes = hr_vocab_keep(r->storage, text.text, text.length, r->where, r->err);
  if (!bytes) return HR_ERROR_MEMORY;
  size_t length = decode_base64(text, bytes);
  if (length == SIZE_MAX)
    return hr_fail(r->err, HR_ERROR_FILE, "%s: '%s' is not in base64", r->where, key);
  return add_normalizer(r, (hr_text_step){.kind = HR_STEP_CHARSMAP, .content = {bytes, length}});
}

static hr_status normalizer_bytes(reader *r, const json_t *json) {
  (void)json;
  r->letters = r->vocab->byte_level = true;
  return add_normalizer(r, (hr_text_step){.kind = HR_STEP_LETTERS});
}

static hr_status read_normalizer(reader *r, const json_t *json) {
  static const component known[] = {
      {"Sequence", normalizer_sequence},   {"Prepend", normalizer_prepend},
      {"Replace", normalizer_replace},     {"Strip", normalizer_strip},
      {"BertNormalizer", normalizer_bert}, {"Precompiled", normalizer_precompiled},
      {"ByteLevel", normalizer_bytes},     {"NFC", plain_normalizer},
      {"NFD", plain_normalizer},           {"NFKC", plain_normalizer},
      {"NFKD", plain_normalizer},          {"Lowercase", plain_normalizer},
      {"StripAccents", plain_normalizer},  {"Nmt", plain_normalizer},
  };
  return read_component(r, "normalizer", known, COUNT(known), json);
}

/* --- Pre-tokenizers -------------------------------------------------------- */

static hr_status read_pre_tokenizer(reader *r, const json_t *json);

static hr_status pre_tokenizer_sequence(reader *r, const json_t *json) {
  return read_sequence(r, json, "pretokenizers", read_pre_tokenizer);
}

static hr_status add_pre_tokenizers(reader *r, hr_step_list list) {
  hr_status status = HR_OK;
  for (size_t i = 0; i < list.count && status == HR_OK; i++)
    status = add_pre_tokenizer(r, list.step[i]);
  return status;
}

static hr_status pre_tokenizer_bytes(reader *r, const json_t *json) {
  hr_status status = HR_OK;
  if (r->vocab->byte_level)
    return hr_fail(r->err, HR_ERROR_FILE, "%s: turns bytes into letters twice, expected it once",
                   r->where);
  if (is_true(r, json, "add_prefix_space", true))
    status = add_pre_tokenizer(r, (hr_text_step){.kind = HR_STEP_PREFIX_SPACE});
  if (status == HR_OK && is_true(r, json, "use_regex", true))
    status = add_pre_tokenizers(r, hr_gpt2_words());
  r->vocab->byte_level = true;
  return status;
}

/* Always, first or never; older files have a boolean. */
static hr_status read_prepend_scheme(reader *r, const json_t *json, unsigned *flags) {
  const json_t *scheme = json_object_get(json, "prepend_scheme");
  *flags = is_true(r, json, "add_prefix_space", true) ? HR_METASPACE_ALWAYS : 0;
  if (!is_text(json_object_get(json, "replacement"), SPACE_MARK))
    return wrong(r, "replacement", json_object_get(json, "replacement"), "U+2581");
  if (!scheme) return HR_OK;
  if (is_text(scheme, "always"))
    *flags = HR_METASPACE_ALWAYS;
  else if (is_text(scheme, "first"))
    *flags = HR_METASPACE_FIRST;
  else if (is_text(scheme, "never"))
    *flags = 0;
  else
    return lacks(r, "prepend_scheme",
                 json_is_string(scheme) ? json_string_value(scheme) : type_of(scheme));
  return HR_OK;
}

static hr_status pre_tokenizer_metaspace(reader *r, const json_t *json) {
  hr_text_step mark = {.kind = HR_STEP_METASPACE};
  hr_text_step split = {.kind = HR_STEP_SPLIT,
                        .literal = true,
                        .pattern = {SPACE_MARK, 3},
                        .split = HR_SPLIT_MERGED_WITH_NEXT};
  hr_status status = read_prepend_scheme(r, json, &mark.flags);
  if (status == HR_OK) status = add_pre_tokenizer(r, mark);
  if (status == HR_OK && is_true(r, json, "split", true)) status = add_pre_tokenizer(r, split);
  return status;
}

static hr_status read_behavior(reader *r, const json_t *json, hr_split *split) {
  static const char *const names[] = {"Isolated", "Removed", "MergedWithPrevious", "MergedWithNext",
                                      "Contiguous"};
  const json_t *behavior = json_object_get(json, "behavior");
  for (size_t i = 0; i < COUNT(names); i++) {
    if (!is_text(behavior, names[i])) continue;
    *split = (hr_split)i;
    return HR_OK;
  }
  if (!json_is_string(behavior)) return wrong(r, "behavior", behavior, "a string");
  return lacks(r, "behavior", json_string_value(behavior));
}

static hr_status pre_tokenizer_split(reader *r, const json_t *json) {
  hr_text_step step = {.kind = HR_STEP_SPLIT, .invert = is_true(r, json, "invert", false)};
  hr_status status = read_pattern(r, json, &step);
  if (status == HR_OK) status = read_behavior(r, json, &step.split);
  return status == HR_OK ? add_pre_tokenizer(r, step) : status;
}

#define PATTERN(regex) .kind = HR_STEP_SPLIT, .pattern = {regex, sizeof(regex) - 1}

static hr_status pre_tokenizer_digits(reader *r, const json_t *json) {
  static const hr_text_step each = {PATTERN("\\p{N}")}, runs = {PATTERN("\\p{N}+")};
  return add_pre_tokenizer(r, is_true(r, json, "individual_digits", false) ? each : runs);
}

static hr_status pre_tokenizer_punctuation(reader *r, const json_t *json) {
  hr_text_step step = {PATTERN("[!-/:-@\\[-`{-~\\p{P}]")};
  hr_status status =
      json_object_get(json, "behavior") ? read_behavior(r, json, &step.split) : HR_OK;
  return status == HR_OK ? add_pre_tokenizer(r, step) : status;
}

static hr_status pre_tokenizer_words(reader *r, const json_t *json) {
  static const hr_text_step words = {PATTERN("[" WORD_CLASS "]+|[^" WORD_CLASS "\\p{WSpace}]+"),
                                     .split = HR_SPLIT_REMOVED, .invert = true};
  (void)json;
  return add_pre_tokenizer(r, words);
}

static hr_status pre_tokenizer_spaces(reader *r, const json_t *json) {
  static const hr_text_step spaces = {PATTERN("\\p{WSpace}+"), .split = HR_SPLIT_REMOVED};
  (void)json;
  return add_pre_tokenizer(r, spaces);
}

static hr_status pre_tokenizer_delimiter(reader *r, const json_t *json) {
  hr_text_step step = {.kind = HR_STEP_SPLIT, .literal = true, .split = HR_SPLIT_REMOVED};
  hr_status status = read_content(r, json, "delimiter", &step.pattern);
  return status == HR_OK ? add_pre_tokenizer(r, step) : status;
}

static hr_status pre_tokenizer_bert(reader *r, const json_t *json) {
  (void)json;
  return add_pre_tokenizers(r, hr_bert_words());
}

static hr_status read_pre_tokenizer(reader *r, const json_t *json) {
  static const component known[] = {
      {"Sequence", pre_tokenizer_sequence},     {"ByteLevel", pre_tokenizer_bytes},
      {"Metaspace", pre_tokenizer_metaspace},   {"Split", pre_tokenizer_split},
      {"Digits", pre_tokenizer_digits},         {"Punctuation", pre_tokenizer_punctuation},
      {"Whitespace", pre_tokenizer_words},      {"WhitespaceSplit", pre_tokenizer_spaces},
      {"BertPreTokenizer", pre_tokenizer_bert}, {"CharDelimiterSplit", pre_tokenizer_delimiter},
  };
  return read_component(r, "pre-tokenizer", known, COUNT(known), json);
}

/* --- Decoders -------------------------------------------------------------- */

static hr_status read_decoder(reader *r, const json_t *json);

static hr_status decoder_sequence(reader *r, const json_t *json) {
  return read_sequence(r, json, "decoders", read_decoder);
}

/* Tokens that stand for bytes are kept as bytes. */
static hr_status decoder_nothing(reader *r, const json_t *json) {
  (void)r, (void)json;
  return HR_OK;
}

static hr_status decoder_bytes(reader *r, const json_t *json) {
  (void)json;
  return r->vocab->byte_level ? HR_OK
                              : lacks(r, "decoder without such a pre-tokenizer", "ByteLevel");
}

static hr_status decoder_fuse(reader *r, const json_t *json) {
  (void)json;
  r->fused = true;
  return HR_OK;
}

static hr_status decoder_replace(reader *r, const json_t *json) {
  hr_text_step step = {.kind = HR_STEP_REPLACE};
  hr_status status = read_pattern(r, json, &step);
  if (status == HR_OK) status = read_content(r, json, "content", &step.content);
  return status == HR_OK ? add_decoder(r, step) : status;
}

static hr_status decoder_strip(reader *r, const json_t *json) {
  const json_t *from = json_object_get(json, "start"), *to = json_object_get(json, "stop");
  if (!json_is_integer(from)) return wrong(r, "start", from, "an integer");
  if (!json_is_integer(to)) return wrong(r, "stop", to, "an integer");
  json_int_t start = json_integer_value(from), stop = json_integer_value(to);
  if (!is_text(json_object_get(json, "content"), " ") || start < 0 || start > 1 || stop != 0 ||
      !r->fused)
    return lacks(r, "decoder other than of one space at the start of a text", "Strip");
  r->vocab->strip_first_space = start == 1;
  return HR_OK;
}

static hr_status decoder_metaspace(reader *r, const json_t *json) {
  unsigned flags;
  hr_status status = read_prepend_scheme(r, json, &flags);
  r->vocab->strip_first_space = flags != 0;
  if (status != HR_OK) return status;
  return hr_vocab_add_space_decoder(r->storage, r->where, r->err);
}

static hr_status decoder_wordpiece(reader *r, const json_t *json) {
  if (r->vocab->kind != HR_VOCAB_WORDPIECE)
    return lacks(r, "decoder of another model", "WordPiece");
  r->vocab->strip_first_space = true;
  hr_status status = hr_vocab_add_space_decoder(r->storage, r->where, r->err);
  if (status == HR_OK && is_true(r, json, "cleanup", true))
    status = add_decoder(r, (hr_text_step){.kind = HR_STEP_CLEANUP});
  return status;
}

static hr_status read_decoder(reader *r, const json_t *json) {
  static const component known[] = {
      {"Sequence", decoder_sequence},    {"ByteLevel", decoder_bytes},
      {"ByteFallback", decoder_nothing}, {"Fuse", decoder_fuse},
      {"Replace", decoder_replace},      {"Strip", decoder_strip},
      {"Metaspace", decoder_metaspace},  {"WordPiece", decoder_wordpiece},
  };
  if (!json || json_is_null(json)) return HR_OK;
  r->has_decoder = true;
  return read_component(r, "decoder", known, COUNT(known), json);
}

/* Without a decoder there is a space between tokens. */
static hr_status finish_decoder(reader *r) {
  if (r->has_decoder || r->vocab->byte_level) return HR_OK;
  r->vocab->strip_first_space = true;
  return add_decoder(r, (hr_text_step){.kind = HR_STEP_PREPEND, .content = {" ", 1}});
}

/* --- What goes around a text ----------------------------------------------- */

static hr_status read_post_processor(reader *r, const json_t *json);

static hr_status post_sequence(reader *r, const json_t *json) {
  return read_sequence(r, json, "processors", read_post_processor);
}

/* Offsets, which nobody asks for. */
static hr_status post_nothing(reader *r, const json_t *json) {
  (void)r, (void)json;
  return HR_OK;
}

static hr_status add_around(reader *r, int32_t *ids, size_t *count, const json_t *id) {
  if (!json_is_integer(id)) return wrong(r, "id of a token around a text", id, "an integer");
  if (*count == HR_TEMPLATE_IDS)
    return hr_fail(r->err, HR_ERROR_FILE, "%s: puts more than %d tokens around a text", r->where,
                   HR_TEMPLATE_IDS);
  json_int_t value = json_integer_value(id);
  if (value < 0 || (uint64_t)value >= r->vocab->count)
    return hr_fail(r->err, HR_ERROR_FILE, "%s: puts the id %lld around a text, expected 0 to %zu",
                   r->where, (long long)value, r->vocab->count - 1);
  ids[(*count)++] = (int32_t)value;
  return HR_OK;
}

/* {"sep": ["[SEP]", 102], "cls": ["[CLS]", 101]} */
static hr_status post_cls_sep(reader *r, const json_t *json) {
  hr_template *t = &r->vocab->around;
  const json_t *cls = json_array_get(json_object_get(json, "cls"), 1);
  const json_t *sep = json_array_get(json_object_get(json, "sep"), 1);
  hr_status status = add_around(r, t->before, &t->before_count, cls);
  if (status == HR_OK) status = add_around(r, t->after, &t->after_count, sep);
  if (status == HR_OK) status = add_around(r, t->between, &t->between_count, sep);
  t->pairs = true;
  return status;
}

static hr_status post_bert(reader *r, const json_t *json) {
  r->vocab->around.second_type = true;
  return post_cls_sep(r, json);
}

static hr_status post_roberta(reader *r, const json_t *json) {
  hr_status status = post_cls_sep(r, json);
  if (status != HR_OK) return status;
  return add_around(r, r->vocab->around.between, &r->vocab->around.between_count,
                    json_array_get(json_object_get(json, "sep"), 1));
}

/* Tokens of a template between two of its texts. */
typedef struct part {
  int32_t *ids;
  size_t *count;
} part;

static hr_status read_special(reader *r, const json_t *json, const char *name, part to) {
  const json_t *ids =
      json_object_get(json_object_get(json_object_get(json, "special_tokens"), name), "ids");
  if (!json_is_array(ids)) return wrong(r, name, ids, "an array of ids in 'special_tokens'");
  hr_status status = HR_OK;
  for (size_t i = 0; i < json_array_size(ids) && status == HR_OK; i++)
    status = add_around(r, to.ids, to.count, json_array_get(ids, i));
  return status;
}

/* The items of a template into parts: what is before each of the texts, in that
 * order, and behind the last. */
static hr_status read_items(reader *r, const json_t *json, const char *member,
                            const char *const *texts, size_t text_count, const part *parts) {
  const json_t *items = json_object_get(json, member);
  size_t at = 0;
  if (!json_is_array(items)) return wrong(r, member, items, "an array");
  for (size_t i = 0; i < json_array_size(items); i++) {
    const json_t *item = json_array_get(items, i);
    const json_t *special = json_object_get(json_object_get(item, "SpecialToken"), "id");
    if (at < text_count &&
        is_text(json_object_get(json_object_get(item, "Sequence"), "id"), texts[at])) {
      at++;
      continue;
    }
    if (!json_is_string(special))
      return wrong(r, "item of a template", item, "a SpecialToken or, once, a Sequence");
    hr_status status = read_special(r, json, json_string_value(special), parts[at]);
    if (status != HR_OK) return status;
  }
  if (at == text_count) return HR_OK;
  return wrong(r, member, items,
               text_count == 1 ? "a template with the Sequence A"
                               : "a template with the Sequences A and B");
}

static bool same_ids(const int32_t *a, size_t a_count, const int32_t *b, size_t b_count) {
  return a_count == b_count && memcmp(a, b, a_count * sizeof *a) == 0;
}

/* How two texts are put together: taken when it has the form that there is a place
 * for. Most models never see two, so that another form is no reason to refuse one. */
static void read_pair(reader *r, const json_t *json) {
  static const char *const texts[] = {"A", "B"};
  hr_template *t = &r->vocab->around, pair = {0};
  hr_error ignored, *err = r->err;
  const part parts[] = {{pair.before, &pair.before_count},
                        {pair.between, &pair.between_count},
                        {pair.after, &pair.after_count}};
  r->err = &ignored;
  bool read = read_items(r, json, "pair", texts, 2, parts) == HR_OK;
  r->err = err;
  if (!read || !same_ids(pair.before, pair.before_count, t->before, t->before_count) ||
      !same_ids(pair.after, pair.after_count, t->after, t->after_count))
    return;
  memcpy(t->between, pair.between, sizeof t->between);
  t->between_count = pair.between_count;
  t->pairs = true;
  size_t i;
  const json_t *item;
  json_array_foreach(json_object_get(json, "pair"), i, item) {
    const json_t *sequence = json_object_get(item, "Sequence");
    if (is_text(json_object_get(sequence, "id"), "B"))
      t->second_type = json_integer_value(json_object_get(sequence, "type_id")) == 1;
  }
}

static hr_status post_template(reader *r, const json_t *json) {
  static const char *const text[] = {"A"};
  hr_template *t = &r->vocab->around;
  const part parts[] = {{t->before, &t->before_count}, {t->after, &t->after_count}};
  hr_status status = read_items(r, json, "single", text, 1, parts);
  if (status == HR_OK) read_pair(r, json);
  return status;
}

static hr_status read_post_processor(reader *r, const json_t *json) {
  static const component known[] = {
      {"Sequence", post_sequence},           {"ByteLevel", post_nothing},
      {"TemplateProcessing", post_template}, {"BertProcessing", post_bert},
      {"RobertaProcessing", post_roberta},
  };
  return read_component(r, "post-processor", known, COUNT(known), json);
}

/* --- Tokens ---------------------------------------------------------------- */

/* Ids may have gaps, but no more than a vocabulary could come to. */
static hr_status count_ids(reader *r, const json_t *vocab, const json_t *added, size_t *count) {
  size_t entries = json_object_size(vocab) + json_array_size(vocab) + json_array_size(added);
  size_t most = 4 * entries + 65536;
  const char *text;
  json_t *id;
  *count = json_array_size(vocab);
  json_object_foreach((json_t *)vocab, text, id) {
    if (!json_is_integer(id)) return wrong(r, "id of a token", id, "an integer");
    if (json_integer_value(id) < 0 || (uint64_t)json_integer_value(id) >= most)
      return hr_fail(r->err, HR_ERROR_FILE, "%s: token '%s' has id %lld, expected 0 to %zu",
                     r->where, HR_QUOTE(text, strlen(text)), (long long)json_integer_value(id),
                     most - 1);
    if ((size_t)json_integer_value(id) >= *count) *count = (size_t)json_integer_value(id) + 1;
  }
  for (size_t i = 0; i < json_array_size(added); i++) {
    id = json_object_get(json_array_get(added, i), "id");
    if (!json_is_integer(id)) return wrong(r, "id of an added token", id, "an integer");
    if (json_integer_value(id) < 0 || (uint64_t)json_integer_value(id) >= most)
      return hr_fail(r->err, HR_ERROR_FILE, "%s: an added token has id %lld, expected 0 to %zu",
                     r->where, (long long)json_integer_value(id), most - 1);
    if ((size_t)json_integer_value(id) >= *count) *count = (size_t)json_integer_value(id) + 1;
  }
  if (*count == 0) return hr_fail(r->err, HR_ERROR_FILE, "%s: has no tokens", r->where);
  return HR_OK;
}

/* {"text": id} */
static hr_status read_token_map(reader *r, json_t *vocab) {
  hr_vocab_storage *s = r->storage;
  const char *text;
  json_t *id;
  json_object_foreach(vocab, text, id) {
    size_t i = (size_t)json_integer_value(id);
    if (s->kinds[i] != HR_TOKEN_UNUSED)
      return hr_fail(r->err, HR_ERROR_FILE, "%s: tokens '%s' and '%s' both have id %zu", r->where,
                     HR_QUOTE(s->tokens[i].text, s->tokens[i].length), HR_QUOTE(text, strlen(text)),
                     i);
    s->tokens[i] = (hr_piece){text, strlen(text)};
    s->kinds[i] = HR_TOKEN_NORMAL;
  }
  return HR_OK;
}

/* [["text", score]] */
static hr_status read_token_list(reader *r, const json_t *vocab) {
  hr_vocab_storage *s = r->storage;
  for (size_t i = 0; i < json_array_size(vocab); i++) {
    const json_t *entry = json_array_get(vocab, i), *text = json_array_get(entry, 0);
    const json_t *score = json_array_get(entry, 1);
    if (!json_is_string(text) || !json_is_number(score))
      return hr_fail(r->err, HR_ERROR_FILE, "%s: token %zu is no string with a score", r->where, i);
    s->tokens[i] = text_of(text);
    s->scores[i] = (float)json_number_value(score);
    s->kinds[i] = HR_TOKEN_NORMAL;
  }
  return HR_OK;
}

static hr_status read_added(reader *r, const json_t *added, const json_t *vocab) {
  hr_status status = HR_OK;
  for (size_t i = 0; i < json_array_size(added) && status == HR_OK; i++) {
    const json_t *token = json_array_get(added, i), *id = json_object_get(token, "id");
    const char *content = json_string_value(json_object_get(token, "content"));
    const json_t *other = content ? json_object_get(vocab, content) : NULL;
    if (other && json_integer_value(other) != json_integer_value(id))
      return hr_fail(r->err, HR_ERROR_FILE,
                     "%s: added token '%s' has id %lld, but the vocabulary gives it %lld", r->where,
                     HR_QUOTE(content, strlen(content)), (long long)json_integer_value(id),
                     (long long)json_integer_value(other));
    status = hr_vocab_add_token(r->storage, r->vocab, token, -1, r->err);
  }
  return status;
}

static bool is_byte_token(hr_piece p) {
  static const char hex[] = "0123456789ABCDEFabcdef";
  return p.length == 6 && memcmp(p.text, "<0x", 3) == 0 && p.text[5] == '>' && p.text[3] &&
         p.text[4] && strchr(hex, p.text[3]) && strchr(hex, p.text[4]);
}

static void mark_bytes(reader *r) {
  for (size_t i = 0; i < r->vocab->count; i++)
    if (r->storage->kinds[i] == HR_TOKEN_NORMAL && is_byte_token(r->storage->tokens[i]))
      r->storage->kinds[i] = HR_TOKEN_BYTE;
}

/* --- Models ---------------------------------------------------------------- */

static hr_status find_unknown(reader *r, const json_t *model) {
  static const char key[] = "unk_token";
  const json_t *token = json_object_get(model, key);
  if (says_nothing(token)) return HR_OK;
  if (!json_is_string(token)) return wrong(r, key, token, "a string");
  r->vocab->unknown = hr_vocab_find(r->vocab, text_of(token));
  if (r->vocab->unknown >= 0) return HR_OK;
  return hr_fail(r->err, HR_ERROR_FILE, "%s: the unknown token '%s' is not in the vocabulary",
                 r->where, HR_QUOTE(json_string_value(token), json_string_length(token)));
}

/* "left right", or ["left", "right"]. */
static hr_status read_merge(reader *r, size_t i, const json_t *json, hr_merge *merge) {
  const json_t *left = json_array_get(json, 0), *right = json_array_get(json, 1);
  if (json_array_size(json) == 2 && json_is_string(left) && json_is_string(right)) {
    *merge = (hr_merge){text_of(left), text_of(right)};
    return HR_OK;
  }
  hr_piece text = text_of(json);
  const char *space = text.text ? memchr(text.text, ' ', text.length) : NULL;
  if (!space || memchr(space + 1, ' ', text.length - (size_t)(space + 1 - text.text)))
    return hr_fail(r->err, HR_ERROR_FILE, "%s: merge %zu is %s, expected two tokens", r->where, i,
                   text.text ? HR_QUOTE(text.text, text.length) : type_of(json));
  size_t length = (size_t)(space - text.text);
  *merge = (hr_merge){{text.text, length}, {space + 1, text.length - length - 1}};
  return HR_OK;
}

static hr_status read_merges(reader *r, const json_t *model) {
  const json_t *list = json_object_get(model, "merges");
  if (!json_is_array(list)) return wrong(r, "merges", list, "an array");
  size_t count = json_array_size(list);
  hr_merge *merges = hr_calloc(count, sizeof *merges);
  if (!merges) return hr_fail_memory(r->err, r->where, count * sizeof *merges);
  r->vocab->merges = r->storage->merges = merges;
  r->vocab->merge_count = count;
  hr_status status = HR_OK;
  for (size_t i = 0; i < count && status == HR_OK; i++)
    status = read_merge(r, i, json_array_get(list, i), &merges[i]);
  return status;
}

static hr_status read_bpe(reader *r, const json_t *model) {
  static const char *const unknown_here[] = {"continuing_subword_prefix", "end_of_word_suffix"};
  for (size_t i = 0; i < COUNT(unknown_here); i++)
    if (!says_nothing(json_object_get(model, unknown_here[i])))
      return lacks(r, "setting of BPE", unknown_here[i]);
  const json_t *dropout = json_object_get(model, "dropout");
  if (dropout && !json_is_null(dropout) && !json_is_number(dropout))
    return wrong(r, "dropout", dropout, "a number");
  if (json_number_value(dropout) != 0) return lacks(r, "setting of BPE", "dropout");
  r->vocab->ignore_merges = is_true(r, model, "ignore_merges", false);
  r->vocab->fuse_unknown = is_true(r, model, "fuse_unk", false);
  if (is_true(r, model, "byte_fallback", false)) mark_bytes(r);
  hr_status status = find_unknown(r, model);
  return status == HR_OK ? read_merges(r, model) : status;
}

/* Tokens in the form that GGUF has them in: a mark in front of those that start
 * a word, nothing in front of the others. */
static hr_status mark_words(reader *r, hr_piece prefix) {
  hr_vocab_storage *s = r->storage;
  size_t bytes = 0, used = 0;
  for (size_t i = 0; i < r->vocab->count; i++) bytes += s->tokens[i].length + 3;
  char *pool = hr_vocab_keep(s, "", 0, r->where, r->err);
  char *bigger = pool ? hr_realloc(pool, bytes, 1) : NULL;
  if (!bigger) return hr_fail_memory(r->err, r->where, bytes);
  s->kept[s->kept_count - 1] = bigger;
  for (size_t i = 0; i < r->vocab->count; i++) {
    hr_piece *token = &s->tokens[i];
    if (s->kinds[i] != HR_TOKEN_NORMAL) continue;
    if (token->length > prefix.length && memcmp(token->text, prefix.text, prefix.length) == 0) {
      hr_piece rest = {token->text + prefix.length, token->length - prefix.length};
      /* Without its prefix this one would be another word's first token. */
      if (rest.length >= 3 && memcmp(rest.text, SPACE_MARK, 3) == 0) continue;
      *token = (hr_piece){token->text + prefix.length, token->length - prefix.length};
      continue;
    }
    memcpy(bigger + used, SPACE_MARK, 3);
    if (token->length) memcpy(bigger + used + 3, token->text, token->length);
    token->text = bigger + used;
    token->length += 3;
    used += token->length;
  }
  return HR_OK;
}

static hr_status read_wordpiece(reader *r, const json_t *model) {
  const json_t *longest = json_object_get(model, "max_input_chars_per_word");
  hr_piece prefix = {"##", 2};
  hr_status status = HR_OK;
  if (json_object_get(model, "continuing_subword_prefix"))
    status = read_content(r, model, "continuing_subword_prefix", &prefix);
  if (status == HR_OK && prefix.length == 0)
    status = lacks(r, "setting of WordPiece", "continuing_subword_prefix without characters");
  if (status == HR_OK && longest && json_integer_value(longest) < 1)
    status = wrong(r, "max_input_chars_per_word", longest, "an integer above 0");
  if (longest) r->vocab->longest_word = (size_t)json_integer_value(longest);
  if (status == HR_OK) status = find_unknown(r, model);
  return status == HR_OK ? mark_words(r, prefix) : status;
}

static hr_status read_unigram(reader *r, const json_t *model) {
  const json_t *id = json_object_get(model, "unk_id");
  r->vocab->fuse_unknown = true;
  if (is_true(r, model, "byte_fallback", false)) mark_bytes(r);
  if (!id || json_is_null(id)) return HR_OK;
  if (!json_is_integer(id)) return wrong(r, "unk_id", id, "an integer");
  if (json_integer_value(id) < 0 ||
      (uint64_t)json_integer_value(id) >= r->vocab->count)
    return hr_fail(r->err, HR_ERROR_FILE, "%s: 'unk_id' is %lld, expected 0 to %zu", r->where,
                   (long long)json_integer_value(id), r->vocab->count - 1);
  r->vocab->unknown = (int32_t)json_integer_value(id);
  return HR_OK;
}

static const struct {
  const char *name, *sign; /* old files don't name the type, but have this key */
  hr_vocab_kind kind;
  component_fn *read;
} models[] = {
    {"BPE", "merges", HR_VOCAB_BPE, read_bpe},
    {"WordPiece", "max_input_chars_per_word", HR_VOCAB_WORDPIECE, read_wordpiece},
    {"Unigram", "unk_id", HR_VOCAB_UNIGRAM, read_unigram},
};

static hr_status find_model(const reader *r, const json_t *model, size_t *index) {
  const json_t *type = json_object_get(model, "type");
  for (*index = 0; *index < COUNT(models); ++*index)
    if (type ? is_text(type, models[*index].name)
             : json_object_get(model, models[*index].sign) != NULL)
      return HR_OK;
  if (!json_is_object(model)) return wrong(r, "model", model, "an object");
  if (!json_is_string(type)) return wrong(r, "type", type, "BPE, WordPiece or Unigram");
  return lacks(r, "model", json_string_value(type));
}

static hr_status read_model(reader *r, const json_t *root) {
  const json_t *model = json_object_get(root, "model"),
               *added = json_object_get(root, "added_tokens");
  size_t index = 0, count = 0;
  hr_status status = find_model(r, model, &index);
  if (status != HR_OK) return status;
  json_t *vocab = json_object_get(model, "vocab");
  r->vocab->kind = models[index].kind;
  bool listed = r->vocab->kind == HR_VOCAB_UNIGRAM;
  if (listed ? !json_is_array(vocab) : !json_is_object(vocab))
    return wrong(r, "vocab", vocab, listed ? "an array" : "an object");
  if (added && !json_is_null(added) && !json_is_array(added))
    return wrong(r, "added_tokens", added, "an array");
  status = count_ids(r, vocab, added, &count);
  if (status == HR_OK) status = hr_vocab_reserve(r->storage, r->vocab, count, listed, r->err);
  if (status == HR_OK) status = listed ? read_token_list(r, vocab) : read_token_map(r, vocab);
  if (status == HR_OK) status = read_added(r, added, vocab);
  if (status == HR_OK) status = models[index].read(r, model);
  int32_t unknown = r->vocab->unknown;
  if (status == HR_OK && unknown >= 0 && r->storage->kinds[unknown] != HR_TOKEN_USER)
    r->storage->kinds[unknown] = HR_TOKEN_UNKNOWN;
  return status;
}

/* --- The file -------------------------------------------------------------- */

static hr_status finish_pre_tokenizers(reader *r) {
  if (r->vocab->byte_level && r->vocab->kind != HR_VOCAB_BPE)
    return lacks(r, "pre-tokenizer for a model other than BPE", "ByteLevel");
  if (!r->letters) return HR_OK;
  return hr_vocab_add_step(&r->storage->pre_tokenizer, (hr_text_step){.kind = HR_STEP_BYTES},
                           r->where, r->err);
}

static hr_status read_root(reader *r, const json_t *root) {
  hr_status status = read_model(r, root);
  if (status == HR_OK) status = read_normalizer(r, json_object_get(root, "normalizer"));
  if (status == HR_OK) status = read_pre_tokenizer(r, json_object_get(root, "pre_tokenizer"));
  if (status == HR_OK) status = finish_pre_tokenizers(r);
  if (status == HR_OK) status = read_post_processor(r, json_object_get(root, "post_processor"));
  if (status == HR_OK) status = read_decoder(r, json_object_get(root, "decoder"));
  if (status == HR_OK) status = finish_decoder(r);
  hr_vocab_take_steps(r->storage, r->vocab);
  return status == HR_OK && r->no_flag ? HR_ERROR_FILE : status;
}

hr_status hr_vocab_parse_json(const void *data, size_t bytes, const char *where,
                              hr_vocab_storage *storage, hr_vocab *vocab, hr_error *err) {
  vocab->where = where;
  json_t *root = hr_json_parse(where, "", data, bytes, JSON_ALLOW_NUL, err);
  if (!root) return err->status;
  storage->json = root;
  reader r = {.where = where, .storage = storage, .vocab = vocab, .err = err};
  return read_root(&r, root);
}
