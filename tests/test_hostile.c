/* SPDX-License-Identifier: MIT
 * Whole models whose files were cut or changed, one at a time: a sentence, or a model that
 * answers with finite numbers. Every kind of file that belongs to a model is here. */
#include <criterion/criterion.h>
#include <ftw.h>
#include <headrow/headrow.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/arrays.h"

#define FIXTURES HEADROW_SOURCE_ROOT "/tests/fixtures/"
#define FAMILIES FIXTURES "families/"
#define TOKENIZERS HEADROW_SOURCE_ROOT "/tests/fuzz/corpus/tokenizer/"
#define COUNT(array) (sizeof(array) / sizeof *(array))

TestSuite(hostile, .timeout = 300);

/* --- Folders -------------------------------------------------------------------------- */

typedef struct folder {
  char path[64];
} folder;

typedef struct joined {
  char text[512];
} joined;

static joined in(const folder *f, const char *name) {
  joined j;
  snprintf(j.text, sizeof j.text, "%s/%s", f->path, name);
  return j;
}

static void write_bytes(const folder *f, const char *name, const void *data, size_t bytes) {
  FILE *out = fopen(in(f, name).text, "wb");
  cr_assert(out && fwrite(data, 1, bytes, out) == bytes && fclose(out) == 0, "%s", name);
}

static void write_text(const folder *f, const char *name, const char *text) {
  write_bytes(f, name, text, strlen(text));
}

static void copy(const folder *f, const char *name, const char *from) {
  size_t bytes;
  char *data = file_read(from, &bytes);
  write_bytes(f, name, data, bytes);
  free(data);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw) {
  (void)st, (void)type, (void)ftw;
  return remove(path);
}

static void remove_folder(const folder *f) {
  nftw(f->path, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

/* The index of a model in one part: each tensor of the file's header. */
static void write_index(const folder *f, const char *name) {
  size_t bytes;
  char *data = file_read(in(f, "model-00001-of-00001.safetensors").text, &bytes);
  uint64_t length;
  memcpy(&length, data, sizeof length);
  json_t *header = json_loadb(data + 8, length, 0, NULL), *map = json_object(), *tensor;
  const char *key;
  cr_assert(header);
  json_object_foreach(header, key, tensor) if (strcmp(key, "__metadata__") != 0)
      json_object_set_new(map, key, json_string("model-00001-of-00001.safetensors"));
  json_t *index = json_pack("{s:o}", "weight_map", map);
  json_dump_file(index, in(f, name).text, 0);
  json_decref(index);
  json_decref(header);
  free(data);
}

/* A model of some family with a tokenizer and all else that may lie beside it. */
typedef struct kind {
  const char *family;
  const char *tokenizer, *tokenizer_name;
  bool in_parts;
} kind;

static const kind kinds[] = {
    {"gptneox", TOKENIZERS "bpe.json", "tokenizer.json", false},
    {"llama3", TOKENIZERS "unigram.json", "tokenizer.json", true},
    {"bert", TOKENIZERS "wordpiece.json", "tokenizer.json", false},
};

static folder make_folder(const kind *k) {
  folder f = {"/tmp/headrow-hostile-XXXXXX"};
  cr_assert(mkdtemp(f.path));
  joined from;
  snprintf(from.text, sizeof from.text, FAMILIES "%s.safetensors", k->family);
  copy(&f, k->in_parts ? "model-00001-of-00001.safetensors" : "model.safetensors", from.text);
  if (k->in_parts) write_index(&f, "model.safetensors.index.json");
  snprintf(from.text, sizeof from.text, FAMILIES "%s_config.json", k->family);
  copy(&f, "config.json", from.text);
  copy(&f, k->tokenizer_name, k->tokenizer);
  write_text(&f, "tokenizer_config.json",
             "{\"add_bos_token\": true, \"bos_token\": {\"content\": \"b\"}, \"eos_token\": "
             "\"c\", \"chat_template\": [{\"name\": \"default\", \"template\": \"{{ x }}\"}]}");
  write_text(&f, "special_tokens_map.json",
             "{\"bos_token\": \"b\", \"eos_token\": {\"content\": \"c\"}}");
  write_text(&f, "generation_config.json", "{\"eos_token_id\": [1, 2], \"bos_token_id\": 0}");
  cr_assert_eq(mkdir(in(&f, "1_Pooling").text, 0777), 0);
  write_text(&f, "1_Pooling/config.json",
             "{\"word_embedding_dimension\": 32, \"pooling_mode_cls_token\": true}");
  return f;
}

/* --- What comes of a model -------------------------------------------------------------- */

static bool is_sentence(const hr_error *err) {
  return err->status != HR_OK && err->message[0] && !strchr(err->message, '\n');
}

static bool all_finite(const float *x, size_t n) {
  for (size_t i = 0; i < n; i++)
    if (!isfinite(x[i])) return false;
  return true;
}

static hr_status evaluate(hr_model *model, hr_error *err) {
  hr_session_options options;
  hr_session_options_init(&options);
  options.context = 8;
  options.threads = 1;
  options.no_pin = true;
  hr_session *s = hr_session_create(model, &options, err);
  if (!s) return err->status;
  size_t vocab = hr_model_vocab_size(model);
  const int32_t ids[] = {0, (int32_t)(vocab - 1), (int32_t)(vocab / 2)};
  hr_status status;
  if (hr_model_has_logits(model)) {
    status = hr_session_eval(s, ids, 3, HR_LOGITS_LAST, err);
    if (status == HR_OK) cr_assert(all_finite(hr_session_logits(s, 0), vocab));
  } else {
    status = hr_session_encode(s, &(hr_tokens){ids, NULL, 3}, 1, err);
    if (status == HR_OK) cr_assert(all_finite(hr_session_hidden(s, 0, 0), hr_model_width(model)));
  }
  hr_session_free(s);
  return status;
}

static hr_status read_text(hr_model *model, hr_error *err) {
  static const char text[] = "a b  cc\xc3\xa9 1";
  int32_t ids[64];
  size_t count;
  hr_status status =
      hr_tokenize(model, text, sizeof text - 1, HR_TOKENIZE_PARSE_SPECIAL, ids, 64, &count, err);
  for (size_t i = 0; status == HR_OK && i < count && i < 64; i++)
    cr_assert(ids[i] >= 0 && (size_t)ids[i] < hr_model_vocab_size(model));
  return status;
}

/* HR_OK, or a status with a sentence. Weights are run where asked. */
static hr_status use(hr_model *model, bool run, hr_error *err) {
  hr_status status = model ? HR_OK : err->status;
  if (model && run) status = evaluate(model, err);
  if (status == HR_OK && hr_model_has_tokenizer(model)) status = read_text(model, err);
  if (status != HR_OK) cr_assert(is_sentence(err), "%d: %s", (int)status, err->message);
  hr_model_free(model);
  return status;
}

static hr_status use_folder(const folder *f, hr_error *err) {
  *err = (hr_error){.status = HR_OK};
  return use(hr_model_open(f->path, NULL, err), true, err);
}

/* The same without weights, where those have nothing to do with it. */
static hr_status use_vocabulary(const folder *f, hr_error *err) {
  hr_model_options options;
  hr_model_options_init(&options);
  options.vocabulary_only = true;
  *err = (hr_error){.status = HR_OK};
  return use(hr_model_open(f->path, &options, err), false, err);
}

/* --- Cut at every byte -------------------------------------------------------------------- */

/* A text in JSON is whole only at its end; a blank there is no part of it. */
static size_t cut_json(const kind *k, const char *name) {
  hr_error err;
  size_t bytes, cuts = 0;
  folder f = make_folder(k);
  char *data = file_read(in(&f, name).text, &bytes);
  while (bytes && strchr(" \n", data[bytes - 1])) bytes--;
  cr_expect_eq(use_folder(&f, &err), HR_OK, "%s, %s: %s", k->family, name, err.message);
  for (; cuts < bytes; cuts++) {
    write_bytes(&f, name, data, cuts);
    hr_status status = use_folder(&f, &err);
    cr_expect_eq(status, HR_ERROR_FILE, "%s, %s cut to %zu bytes", k->family, name, cuts);
    cr_expect(strstr(err.message, name), "%s: %s", name, err.message);
  }
  free(data);
  remove_folder(&f);
  return cuts;
}

Test(hostile, every_json_file_beside_a_model_cut_at_every_byte) {
  static const char *const names[] = {"config.json", "tokenizer.json", "tokenizer_config.json",
                                      "generation_config.json", "1_Pooling/config.json"};
  for (size_t i = 0; i < COUNT(kinds); i++)
    for (size_t n = 0; n < COUNT(names); n++) cr_expect(cut_json(&kinds[i], names[n]) > 20);
  cut_json(&kinds[1], "model.safetensors.index.json");
}

Test(hostile, tensors_of_a_model_cut_at_every_byte) {
  for (size_t i = 0; i < COUNT(kinds); i++) {
    const char *name = kinds[i].in_parts ? "model-00001-of-00001.safetensors" : "model.safetensors";
    hr_error err;
    size_t bytes;
    folder f = make_folder(&kinds[i]);
    char *data = file_read(in(&f, name).text, &bytes);
    for (size_t cut = bytes; cut-- > 0;) {
      cr_assert_eq(truncate(in(&f, name).text, (off_t)cut), 0);
      if (use_folder(&f, &err) == HR_ERROR_FILE && strstr(err.message, name)) continue;
      cr_expect(false, "%s cut to %zu bytes: %s", kinds[i].family, cut, err.message);
    }
    free(data);
    remove_folder(&f);
  }
}

/* A file in memory that ends where nothing can be read any more. */
typedef struct fenced {
  unsigned char *pages;
  size_t bytes, page;
} fenced;

static fenced fence(size_t most) {
  fenced f = {.page = (size_t)sysconf(_SC_PAGESIZE)};
  f.bytes = (most + f.page - 1) / f.page * f.page;
  f.pages = mmap(NULL, f.bytes + f.page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                 0);
  cr_assert(f.pages != MAP_FAILED && mprotect(f.pages + f.bytes, f.page, PROT_NONE) == 0);
  return f;
}

static void *put_before_fence(const fenced *f, const void *data, size_t bytes) {
  return memcpy(f->pages + f->bytes - bytes, data, bytes);
}

static void cut_gguf(const char *path, size_t header) {
  size_t bytes;
  char *data = file_read(path, &bytes);
  fenced f = fence(header);
  hr_error err;
  cr_assert(header <= bytes);
  for (size_t cut = 0; cut < header; cut++) {
    err = (hr_error){.status = HR_OK};
    void *file = put_before_fence(&f, data, cut);
    hr_model *model = hr_model_open_memory(file, cut, "cut.gguf", NULL, &err);
    cr_expect(!model && err.status == HR_ERROR_FILE && is_sentence(&err), "%s cut to %zu bytes: %s",
              path, cut, err.message);
    hr_model_free(model);
  }
  munmap(f.pages, f.bytes + f.page);
  free(data);
}

/* The built-in model's header holds its vocabulary; of small ones the weights are cut too. */
Test(hostile, gguf_files_cut_at_every_byte) {
  cut_gguf(HEADROW_SOURCE_ROOT "/models/builtin.gguf", 24000);
  cut_gguf(FAMILIES "gemma2.gguf", 21888);
  cut_gguf(FAMILIES "bert.gguf", 21344);
}

/* What SentencePiece writes can be whole after a cut: its pieces follow one another. */
Test(hostile, sentencepiece_models_beside_tensors_cut_at_every_byte) {
  static const char *const names[] = {"spm_suffix.model", "spm_unigram.model"};
  for (size_t i = 0; i < COUNT(names); i++) {
    hr_error err;
    size_t bytes, refused = 0;
    joined from;
    folder f = make_folder(&kinds[0]);
    remove(in(&f, "tokenizer.json").text);
    snprintf(from.text, sizeof from.text, FIXTURES "%s", names[i]);
    char *data = file_read(from.text, &bytes);
    for (size_t cut = 0; cut < bytes; cut++) {
      write_bytes(&f, "tokenizer.model", data, cut);
      refused += use_vocabulary(&f, &err) != HR_OK;
    }
    cr_expect(refused > bytes / 2, "%s: %zu of %zu", names[i], refused, bytes);
    free(data);
    remove_folder(&f);
  }
}

Test(hostile, chat_templates_cut_at_every_byte) {
  static const char *const names[] = {"chatml", "parts", "roles"};
  static const hr_chat_message talk[] = {{"system", "S", 1}, {"user", "U\xff", 2}};
  hr_error err;
  hr_model *model = hr_model_open(HEADROW_SOURCE_ROOT "/models/builtin.gguf", NULL, &err);
  cr_assert(model, "%s", err.message);
  for (size_t i = 0; i < COUNT(names); i++) {
    joined from;
    size_t bytes, refused = 0;
    snprintf(from.text, sizeof from.text, HEADROW_SOURCE_ROOT "/tests/fuzz/corpus/template/%s",
             names[i]);
    char *data = file_read(from.text, &bytes);
    fenced f = fence(bytes);
    for (size_t cut = 0; cut <= bytes; cut++) {
      hr_chat_prompt prompt;
      const char *text = put_before_fence(&f, data, cut);
      err = (hr_error){.status = HR_OK};
      hr_chat *chat = hr_chat_create_from_text(model, text, cut, "cut", &err);
      if (!chat || hr_chat_render(chat, talk, 2, NULL, &prompt, &err) != HR_OK) {
        cr_expect(is_sentence(&err), "%s cut to %zu bytes", names[i], cut);
        refused++;
      }
      hr_chat_free(chat);
    }
    cr_expect(refused > bytes / 4, "%s: %zu of %zu", names[i], refused, bytes);
    munmap(f.pages, f.bytes + f.page);
    free(data);
  }
  hr_model_free(model);
}

/* --- Every value replaced -------------------------------------------------------------------- */

static const char *const values[] = {
    "0", "1", "-1", "2", "255", "65536", "2147483647", "2147483648", "4294967295", "4294967296",
    "9223372036854775806", "9223372036854775807", "-9223372036854775808", "0.5", "1e300", "-1e-300",
    "true", "null", "\"\"", "\"x\"", "\"\\ud83d\\ude00\"", "[]", "{}", "[[]]", "[0,0]",
    "{\"type\":\"Sequence\"}"};

/* Calls visit for every value inside, with what holds it and where; a value that is put
 * there meanwhile is not entered. */
typedef void visitor(void *arg, json_t *holder, const char *key, size_t index);

static void visit_all(json_t *json, visitor *visit, void *arg) {
  const char *key;
  json_t *inner;
  void *next;
  size_t i;
  json_object_foreach_safe(json, next, key, inner) {
    visit_all(inner, visit, arg);
    visit(arg, json, key, 0);
  }
  json_array_foreach(json, i, inner) {
    visit_all(inner, visit, arg);
    visit(arg, json, NULL, i);
  }
}

typedef hr_status user(const folder *f, hr_error *err);

typedef struct replacing {
  const folder *folder;
  const char *name;
  json_t *root;
  user *try;
  size_t tried, refused;
} replacing;

static void put_value(json_t *holder, const char *key, size_t index, json_t *value) {
  if (key)
    json_object_set(holder, key, value);
  else
    json_array_set(holder, index, value);
}

static void replace(void *arg, json_t *holder, const char *key, size_t index) {
  replacing *r = arg;
  json_t *old = key ? json_object_get(holder, key) : json_array_get(holder, index);
  json_incref(old);
  for (size_t i = 0; i < COUNT(values); i++) {
    hr_error err;
    json_t *value = json_loads(values[i], JSON_DECODE_ANY, NULL);
    put_value(holder, key, index, value);
    json_decref(value);
    json_dump_file(r->root, in(r->folder, r->name).text, JSON_COMPACT);
    r->refused += r->try(r->folder, &err) != HR_OK;
    r->tried++;
  }
  put_value(holder, key, index, old);
  json_decref(old);
}

/* How many files were tried, and how many of them refused. */
static replacing replace_values(const kind *k, const char *name, user *try) {
  folder f = make_folder(k);
  replacing r = {.folder = &f, .name = name, .root = json_read(in(&f, name).text), .try = try};
  visit_all(r.root, replace, &r);
  cr_expect(r.tried > 0);
  json_decref(r.root);
  remove_folder(&f);
  return r;
}

Test(hostile, every_value_of_a_config_replaced) {
  static const char *const families[] = {"llama3", "gpt2", "bert", "falcon", "gemma2", "phi3",
                                         "qwen2_yarn", "mpt"};
  for (size_t i = 0; i < COUNT(families); i++) {
    const kind k = {families[i], TOKENIZERS "bpe.json", "tokenizer.json", false};
    replacing r = replace_values(&k, "config.json", use_folder);
    cr_expect(r.refused > 0 && r.refused < r.tried, "%s: %zu of %zu refused", families[i],
              r.refused, r.tried);
  }
}

Test(hostile, every_value_of_a_tokenizer_replaced) {
  for (size_t i = 0; i < COUNT(kinds); i++) {
    replacing r = replace_values(&kinds[i], "tokenizer.json", use_vocabulary);
    cr_expect(r.refused > 0 && r.refused < r.tried, "%s: %zu of %zu refused", kinds[i].tokenizer,
              r.refused, r.tried);
  }
}

Test(hostile, every_value_of_what_lies_beside_replaced) {
  static const char *const names[] = {"tokenizer_config.json", "generation_config.json",
                                      "special_tokens_map.json", "1_Pooling/config.json"};
  for (size_t n = 0; n < COUNT(names); n++) replace_values(&kinds[2], names[n], use_folder);
  replacing r = replace_values(&kinds[1], "model.safetensors.index.json", use_folder);
  cr_expect_eq(r.refused, r.tried, "each names the file of a tensor");
}
