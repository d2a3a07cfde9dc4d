/* SPDX-License-Identifier: MIT
 * Tokenizers from files of their own: tokenizer.json and SentencePiece's .model. */
#include <criterion/criterion.h>
#include <jansson.h>
#include <limits.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/memory.h"
#include "model/source.h"
#include "model/vocab.h"
#include "text/tokenizer.h"
#include "tests/support/sanitized.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))
#define PLAIN 0u
#define SPECIAL ((unsigned)HR_TOKENIZE_SPECIAL)
#define PARSE ((unsigned)HR_TOKENIZE_PARSE_SPECIAL)

/* --- Opening and comparing -------------------------------------------------- */

static hr_tokenizer *create(hr_vocab_storage *storage, const hr_vocab *vocab) {
  hr_error err = {0};
  hr_tokenizer *t = hr_tokenizer_create(vocab, &err);
  cr_assert(t, "%s", err.message);
  hr_vocab_storage_finish(storage);
  return t;
}

static hr_tokenizer *open_file(const char *path) {
  hr_vocab_storage storage;
  hr_vocab vocab;
  hr_error err = {0};
  bool found;
  hr_source *source = hr_source_open_vocabulary(path, &err);
  cr_assert(source, "%s", err.message);
  cr_assert_eq(hr_vocab_read(source, &storage, &vocab, &found, &err), HR_OK, "%s", err.message);
  cr_assert(found, "%s", path);
  hr_tokenizer *t = create(&storage, &vocab);
  hr_source_close(source);
  return t;
}

static void print_ids(char *out, size_t size, const int32_t *ids, size_t count) {
  size_t n = 0;
  *out = '\0';
  for (size_t i = 0; i < count && n + 12 < size; i++)
    n += (size_t)snprintf(out + n, size - n, i ? " %d" : "%d", ids[i]);
}

static void expect_ids(const hr_tokenizer *t, const char *what, const char *text, size_t length,
                       unsigned flags, const int32_t *expected, size_t expected_count) {
  hr_error err = {0};
  int32_t *ids = NULL;
  size_t count = 0;
  cr_assert_eq(hr_tokenizer_encode(t, text, length, flags, &ids, &count, &err), HR_OK, "%s",
               err.message);
  bool same =
      count == expected_count && (!count || memcmp(ids, expected, count * sizeof *ids) == 0);
  char got[400], wanted[400];
  print_ids(got, sizeof got, ids, count);
  print_ids(wanted, sizeof wanted, expected, expected_count);
  cr_expect(same, "%s: \"%.*s\": got %s, expected %s", what, (int)length, text, got, wanted);
  hr_free(ids);
}

#define EXPECT(t, text, flags, ...)                                                         \
  do {                                                                                      \
    const int32_t expected_[] = {__VA_ARGS__};                                              \
    expect_ids((t), "ids", (text), sizeof(text) - 1, (flags), expected_, COUNT(expected_)); \
  } while (0)

/* The text of ids without the control tokens; the caller frees it. */
static char *decode(const hr_tokenizer *t, const int32_t *ids, size_t count, size_t *length) {
  size_t bytes = 1;
  for (size_t i = 0; i < count; i++) bytes += hr_tokenizer_text(t, ids[i], false).length;
  char *text = calloc(bytes, 1);
  *length = 0;
  for (size_t i = 0; i < count; i++) {
    hr_piece piece = hr_tokenizer_text(t, ids[i], false);
    memcpy(text + *length, piece.text, piece.length);
    *length += piece.length;
  }
  if (hr_tokenizer_strips_first_space(t) && *text == ' ') memmove(text, text + 1, --*length);
  return text;
}

static void expect_text(const hr_tokenizer *t, const char *what, const int32_t *ids, size_t count,
                        const char *expected, size_t expected_length) {
  size_t length;
  char *text = decode(t, ids, count, &length);
  cr_expect(length == expected_length && memcmp(text, expected, length) == 0,
            "%s: \"%.*s\", expected \"%.*s\"", what, (int)length, text, (int)expected_length,
            expected);
  free(text);
}

/* --- Other implementations' results -------------------------------------------- */

static const char *test_data(void) {
  const char *folder = getenv("HEADROW_TEST_DATA");
  if (!folder || !*folder) cr_skip("HEADROW_TEST_DATA is not set");
  return folder;
}

static size_t read_ids(const json_t *list, int32_t *ids, size_t capacity) {
  size_t count = json_array_size(list);
  cr_assert_leq(count, capacity);
  for (size_t i = 0; i < count; i++) ids[i] = (int32_t)json_integer_value(json_array_get(list, i));
  return count;
}

/* {"text", "ids", "decoded"}: ids out equal, and the text of the ids. */
static void check_cases(const hr_tokenizer *t, const char *what, const json_t *cases) {
  for (size_t i = 0; i < json_array_size(cases); i++) {
    const json_t *one = json_array_get(cases, i), *text = json_object_get(one, "text");
    const json_t *decoded = json_object_get(one, "decoded");
    int32_t ids[512];
    size_t count = read_ids(json_object_get(one, "ids"), ids, COUNT(ids));
    expect_ids(t, what, json_string_value(text), json_string_length(text), PARSE, ids, count);
    expect_text(t, what, ids, count, json_string_value(decoded), json_string_length(decoded));
  }
}

Test(real, cases_of_every_kind) {
  char path[1024];
  json_error_t fault;
  snprintf(path, sizeof path, "%s/fixtures/hf_tokenizer_cases.json", test_data());
  json_t *root = json_load_file(path, JSON_ALLOW_NUL, &fault), *kind;
  cr_assert(root, "%s", fault.text);
  const char *name;
  size_t checked = 0;
  json_object_foreach(root, name, kind) {
    snprintf(path, sizeof path, "%s/fixtures/%s", test_data(),
             json_string_value(json_object_get(kind, "tokenizer")));
    if (access(path, R_OK) != 0) continue; /* one of them is not in the folder */
    hr_tokenizer *t = open_file(path);
    check_cases(t, name, json_object_get(kind, "cases"));
    hr_tokenizer_free(t);
    checked++;
  }
  cr_expect_eq(checked, 17);
  json_decref(root);
}

static void check_expected(const char *models, const char *expected, size_t kinds) {
  char path[1024];
  json_error_t fault;
  json_t *root = json_load_file(expected, JSON_ALLOW_NUL, &fault), *cases;
  cr_assert(root, "%s: %s", expected, fault.text);
  cr_assert_eq(json_object_size(root), kinds);
  const char *name;
  json_object_foreach(root, name, cases) {
    snprintf(path, sizeof path, "%s/%s.model", models, name);
    hr_tokenizer *t = open_file(path);
    cr_assert_gt(json_array_size(cases), 10);
    for (size_t i = 0; i < json_array_size(cases); i++) {
      const json_t *one = json_array_get(cases, i), *text = json_object_get(one, "text");
      const json_t *decoded = json_object_get(one, "decoded");
      int32_t ids[512];
      size_t count = read_ids(json_object_get(one, "ids"), ids, COUNT(ids));
      expect_ids(t, name, json_string_value(text), json_string_length(text), PLAIN, ids, count);
      expect_text(t, name, ids, count, json_string_value(decoded), json_string_length(decoded));
    }
    hr_tokenizer_free(t);
  }
  json_decref(root);
}

/* Ids and texts from SentencePiece itself: make_sentencepiece.py. */
Test(sentencepiece, cases) {
  check_expected(HEADROW_SOURCE_ROOT "/tests/fixtures",
                 HEADROW_SOURCE_ROOT "/tests/fixtures/spm_expected.json", 3);
}

/* --- tokenizer.json, worked out by hand ------------------------------------------- */

/* With ' for ". */
static char *quoted(const char *text) {
  char *copy = strdup(text);
  for (char *c = copy; *c; c++)
    if (*c == '\'') *c = '"';
  return copy;
}

static hr_tokenizer *from_json(const char *text) {
  hr_vocab_storage storage = {0};
  hr_vocab vocab = {.bos = -1, .eos = -1, .unknown = -1};
  hr_error err = {0};
  char *json = quoted(text);
  cr_assert_eq(hr_vocab_parse_json(json, strlen(json), "t.json", &storage, &vocab, &err), HR_OK,
               "%s", err.message);
  free(json);
  return create(&storage, &vocab);
}

static void expect_decoded(const hr_tokenizer *t, const int32_t *ids, size_t count,
                           const char *text) {
  expect_text(t, "decoded", ids, count, text, strlen(text));
}
#define DECODES(t, text, ...) \
  expect_decoded((t), (const int32_t[]){__VA_ARGS__}, COUNT(((int32_t[]){__VA_ARGS__})), (text))

static const char bytes_json[] =
    "{'added_tokens':[{'id':8,'content':'<e>','special':true,'lstrip':true,'rstrip':true},"
    " {'id':9,'content':'cab','special':false,'single_word':true}],"
    "'pre_tokenizer':{'type':'ByteLevel','add_prefix_space':false,'use_regex':true},"
    "'decoder':{'type':'ByteLevel'},"
    "'post_processor':{'type':'Sequence','processors':[{'type':'ByteLevel'},"
    " {'type':'TemplateProcessing','single':[{'SpecialToken':{'id':'<e>','type_id':0}},"
    "  {'Sequence':{'id':'A','type_id':0}},{'SpecialToken':{'id':'<e>','type_id':0}}],"
    "  'special_tokens':{'<e>':{'id':'<e>','ids':[8],'tokens':['<e>']}}}]},"
    "'model':{'type':'BPE','vocab':{'a':0,'b':1,'c':2,'\\u0120':3,'ab':4,'\\u0120a':5,"
    " '\\u0120ab':6,'\\u00c3':10,'\\u00a9':11},"
    " 'merges':['a b',['\\u0120','a'],'\\u0120 ab']}}"; /* the id 7 is nobody's */

Test(json, bytes) {
  hr_tokenizer *t = from_json(bytes_json);
  EXPECT(t, "ab ab", PLAIN, 4, 6);
  EXPECT(t, "a a", PLAIN, 0, 5);
  EXPECT(t, "\xc3\xa9", PLAIN, 10, 11);
  EXPECT(t, "ab \t<e>\n c", PARSE, 4, 8, 2); /* it takes in the space on both sides */
  EXPECT(t, "<e><e>", PARSE, 8, 8);
  EXPECT(t, "cab", PLAIN, 9);
  EXPECT(t, "cab c", PLAIN, 9, 3, 2);
  EXPECT(t, "cabc", PLAIN, 2, 4, 2); /* no word of its own */
  EXPECT(t, "acab", PLAIN, 0, 2, 4);
  EXPECT(t, "a", SPECIAL, 8, 0, 8);
  EXPECT(t, "<e>a", SPECIAL | PARSE, 8, 0, 8); /* never twice */
  DECODES(t, "ab ab\xc3\xa9", 8, 4, 6, 10, 11);
  hr_tokenizer_free(t);
}

/* What Oniguruma finds with each pattern, and byte pairs within that. */
static void expect_sets(const char *pattern, const char *text, const int32_t *ids, size_t count) {
  char json[1024];
  snprintf(json, sizeof json,
           "{'pre_tokenizer':{'type':'Sequence','pretokenizers':[{'type':'Split','pattern':"
           "{'Regex':'%s'},'behavior':'Isolated','invert':false},"
           " {'type':'ByteLevel','add_prefix_space':false,'use_regex':false}]},"
           "'model':{'type':'BPE','vocab':{'a':0,'b':1,',':2,'(':3,'-':4,']':5,'\\u0120':6,"
           " 'ab':7,'a,':8,'b-':9,'a(':10,'-a':11,'\\u0120a':12,'(-':13},"
           " 'merges':['a b','a ,','b -','a (','- a','\\u0120 a','( -']}}",
           pattern);
  hr_tokenizer *t = from_json(json);
  expect_ids(t, pattern, text, strlen(text), PLAIN, ids, count);
  hr_tokenizer_free(t);
}
#define SETS(pattern, text, ...)                                 \
  expect_sets((pattern), (text), (const int32_t[]){__VA_ARGS__}, \
              COUNT(((int32_t[]){__VA_ARGS__})))

Test(json, sets_inside_sets) {
  /* BLOOM's own */
  SETS(" ?[^(\\\\s|[.,!?\\u2026\\u3002\\uff0c\\u3001|_\\u0964\\u06d4\\u060c])]+", " a,a(ab- a",
       12, 2, 0, 3, 7, 4, 12);
  SETS("[\\\\u0061-\\\\u0062]+", "ab-a(-a,", 7, 4, 0, 13, 0, 2);
  SETS("[^([.,])]+", "a,a(ab-a", 0, 2, 0, 3, 7, 11);
  SETS("[a[-b]]+", "ab-a(-a,", 7, 11, 3, 11, 2);
  SETS("[[a]-b]+", "ab-a(-a,", 7, 11, 3, 11, 2);
  SETS("[a[]b]]+", "ab]a,a", 7, 5, 0, 2, 0);
  SETS("[a[b[,]]]+", "ab,a(a,-a", 7, 2, 0, 3, 8, 4, 0);
  SETS("[[:alpha:][(]]+", "a,ab(-a", 0, 2, 7, 3, 4, 0);
}

/* Characters, as in Llama's. */
static const char characters_json[] =
    "{'added_tokens':[{'id':1,'content':'<s>','special':true}],"
    "'normalizer':{'type':'Sequence','normalizers':[{'type':'Prepend','prepend':'\\u2581'},"
    " {'type':'Replace','pattern':{'String':' '},'content':'\\u2581'}]},"
    "'pre_tokenizer':null,'post_processor':null,"
    "'decoder':{'type':'Sequence','decoders':[{'type':'Replace','pattern':{'String':'\\u2581'},"
    " 'content':' '},{'type':'ByteFallback'},{'type':'Fuse'},"
    " {'type':'Strip','content':' ','start':1,'stop':0}]},"
    "'model':{'type':'BPE','unk_token':'<unk>','fuse_unk':true,'byte_fallback':true,"
    " 'vocab':{'<unk>':0,'<s>':1,'\\u2581':2,'a':3,'b':4,'\\u2581a':5,'ab':6,'<0x7A>':7},"
    " 'merges':['\\u2581 a','a b']}}";

Test(json, characters) {
  hr_tokenizer *t = from_json(characters_json);
  EXPECT(t, "ab", PLAIN, 5, 4); /* the first merge first */
  EXPECT(t, "b ab", PLAIN, 2, 4, 5, 4);
  EXPECT(t, "bab", PLAIN, 2, 4, 6);
  EXPECT(t, "z", PLAIN, 2, 7);
  EXPECT(t, "\xc3\xa9\xc3\xa9", PLAIN, 2, 0); /* one for a run */
  EXPECT(t, "a<s>a", PARSE, 5, 1, 5);
  DECODES(t, "ab z", 1, 5, 4, 2, 7);
  hr_tokenizer_free(t);
}

static const char unigram_json[] =
    "{'normalizer':{'type':'NFKC'},"
    "'pre_tokenizer':{'type':'Metaspace','replacement':'\\u2581','prepend_scheme':'always'},"
    "'decoder':{'type':'Metaspace','replacement':'\\u2581','prepend_scheme':'always'},"
    "'model':{'type':'Unigram','unk_id':0,'vocab':[['<unk>',0],['\\u2581',-2],['a',-3],['b',-3],"
    " ['\\u2581a',-4],['ab',-4]]}}";

Test(json, unigram) {
  hr_tokenizer *t = from_json(unigram_json);
  EXPECT(t, "ab a", PLAIN, 1, 5, 4);   /* -2 -4 against -4 -3; -4 against -2 -3 */
  EXPECT(t, " a", PLAIN, 4);           /* it starts with a space already */
  EXPECT(t, "\xef\xbd\x81", PLAIN, 4); /* a wide a */
  EXPECT(t, "xyb", PLAIN, 1, 0, 3);
  DECODES(t, "ab a", 1, 5, 4);
  hr_tokenizer_free(t);
}

static const char wordpiece_json[] =
    "{'added_tokens':[{'id':0,'content':'[UNK]','special':true}],"
    "'normalizer':{'type':'BertNormalizer','clean_text':true,'handle_chinese_chars':true,"
    " 'strip_accents':null,'lowercase':true},'pre_tokenizer':{'type':'BertPreTokenizer'},"
    "'post_processor':{'type':'BertProcessing','sep':['[SEP]',2],'cls':['[CLS]',1]},"
    "'decoder':{'type':'WordPiece','prefix':'##','cleanup':true},"
    "'model':{'type':'WordPiece','unk_token':'[UNK]','continuing_subword_prefix':'##',"
    " 'max_input_chars_per_word':6,'vocab':{'[UNK]':0,'[CLS]':1,'[SEP]':2,'un':3,'##able':4,"
    " ',':5,'##un':6}}}";

Test(json, wordpiece) {
  hr_tokenizer *t = from_json(wordpiece_json);
  EXPECT(t, "Unable, \xc3\x9cN", SPECIAL, 1, 3, 4, 5, 3, 2);
  EXPECT(t, "ununun", PLAIN, 3, 6, 6);
  EXPECT(t, "unununun un", PLAIN, 0, 3); /* more than 6 characters */
  EXPECT(t, "able", PLAIN, 0);
  EXPECT(t, "un\xe2\x96\x81un", PLAIN, 0); /* U+2581 of the text: no token begins with it */
  EXPECT(t, "un\xcc\x81", PLAIN, 3);
  EXPECT(t, "un\xe0\xa4\x83", PLAIN, 0); /* a mark that takes room stays */
  DECODES(t, "unable, un", 3, 4, 5, 3);
  hr_tokenizer_free(t);
}

/* Marks of all three kinds, U+0301, U+0903 and U+20DD, where BERT's takes away the first. */
Test(json, accents_are_all_marks) {
  hr_tokenizer *t = from_json("{'normalizer':{'type':'StripAccents'},'model':{'type':'BPE',"
                              "'vocab':{'a':0,'b':1},'merges':[]}}");
  EXPECT(t, "a\xcc\x81\xe0\xa4\x83\xe2\x83\x9d" "b", PLAIN, 0, 1);
  hr_tokenizer_free(t);
}

/* --- Two texts ---------------------------------------------------------------------- */

static void expect_pair(const char *post_processor, const int32_t *ids, const int32_t *types,
                        size_t count) {
  char json[1200];
  snprintf(json, sizeof json,
           "{'pre_tokenizer':{'type':'BertPreTokenizer'},%s'model':{'type':'WordPiece',"
           "'unk_token':'u','continuing_subword_prefix':'##','max_input_chars_per_word':9,"
           "'vocab':{'u':0,'<s>':1,'</s>':2,'a':3,'b':4,'c':5}}}",
           post_processor);
  hr_tokenizer *t = from_json(json);
  hr_error err = {0};
  int32_t *got = NULL, *got_types = NULL;
  size_t n;
  hr_status status = hr_tokenizer_encode_pair(t, (hr_piece){"a b", 3}, (hr_piece){"c", 1}, &got,
                                              &got_types, &n, &err);
  if (count == 0) {
    cr_expect(status == HR_ERROR_FILE && strstr(err.message, "two texts"), "%s", err.message);
  } else {
    cr_assert(status == HR_OK, "%s: %s", post_processor, err.message);
    cr_assert_eq(n, count, "%s: %zu ids", post_processor, n);
    cr_expect_arr_eq(got, ids, n * sizeof *ids, "%s", post_processor);
    cr_expect_arr_eq(got_types, types, n * sizeof *types, "%s", post_processor);
  }
  hr_free(got);
  hr_free(got_types);
  hr_tokenizer_free(t);
}
#define IDS(...) (const int32_t[]){__VA_ARGS__}
#define TOKEN(name) "{'SpecialToken':{'id':'" name "','type_id':0}},"
#define TEXT(name, type) "{'Sequence':{'id':'" name "','type_id':" type "}},"
#define NAMES "'special_tokens':{'<s>':{'ids':[1]},'</s>':{'ids':[2]}}"

Test(json, pairs) {
  expect_pair("'post_processor':{'type':'BertProcessing','sep':['</s>',2],'cls':['<s>',1]},",
              IDS(1, 3, 4, 2, 5, 2), IDS(0, 0, 0, 0, 1, 1), 6);
  expect_pair("'post_processor':{'type':'RobertaProcessing','sep':['</s>',2],'cls':['<s>',1]},",
              IDS(1, 3, 4, 2, 2, 5, 2), IDS(0, 0, 0, 0, 0, 0, 0), 7);
  expect_pair("'post_processor':{'type':'TemplateProcessing',"
              "'single':[" TOKEN("<s>") TEXT("A", "0") "{'SpecialToken':{'id':'</s>'}}],"
              "'pair':[" TOKEN("<s>") TEXT("A", "0") TOKEN("</s>") TOKEN("<s>") TEXT("B", "1")
              "{'SpecialToken':{'id':'</s>'}}]," NAMES "},",
              IDS(1, 3, 4, 2, 1, 5, 2), IDS(0, 0, 0, 0, 0, 1, 1), 7);
}

/* Another order, and none. */
Test(json, pairs_of_another_form_are_refused_when_asked_for) {
  expect_pair("'post_processor':{'type':'TemplateProcessing',"
              "'single':[" TOKEN("<s>") "{'Sequence':{'id':'A'}}],"
              "'pair':[" TOKEN("<s>") TEXT("B", "0") "{'Sequence':{'id':'A'}}]," NAMES "},",
              NULL, NULL, 0);
  expect_pair("", NULL, NULL, 0);
}

/* --- Refusals ---------------------------------------------------------------------- */

static void expect_refused(const char *text, size_t bytes, const char *part) {
  hr_vocab_storage storage = {0};
  hr_vocab vocab = {.bos = -1, .eos = -1, .unknown = -1};
  hr_error err = {0};
  hr_tokenizer *t = NULL;
  if (hr_vocab_parse_json(text, bytes, "t.json", &storage, &vocab, &err) == HR_OK)
    t = hr_tokenizer_create(&vocab, &err);
  cr_expect_null(t, "\"%s\" was taken", text);
  cr_expect_eq(err.status, HR_ERROR_FILE);
  cr_expect(strstr(err.message, part) && strstr(err.message, "t.json"), "\"%s\" lacks \"%s\"",
            err.message, part);
  hr_tokenizer_free(t);
  hr_vocab_storage_finish(&storage);
}

#define MODEL "'model':{'type':'BPE','vocab':{'a':0,'b':1,'ab':2},'merges':['a b']}"

Test(json, refusals) {
  static const struct {
    const char *text, *part;
  } cases[] = {
      {"", "no valid JSON"},
      {"[]", "expected an object"},
      {"{}", "'model' is missing"},
      {"{'a':1,'a':2}", "duplicate"},
      {"{'model':{'type':'WordLevel','vocab':{}}}", "model 'WordLevel'"},
      {"{'model':{'type':'BPE','vocab':[],'merges':[]}}", "'vocab' is an array"},
      {"{'model':{'type':'BPE','vocab':{},'merges':[]}}", "no tokens"},
      {"{'model':{'type':'BPE','vocab':{'a':0,'b':0},'merges':[]}}", "both have id 0"},
      {"{'model':{'type':'BPE','vocab':{'a':-1},'merges':[]}}", "'a' has id -1"},
      {"{'model':{'type':'BPE','vocab':{'a':4294967295},'merges':[]}}", "id 4294967295"},
      {"{'model':{'type':'BPE','vocab':{'a':'0'},'merges':[]}}", "expected an integer"},
      {"{'model':{'type':'BPE','vocab':{'a':0},'merges':['a']}}", "merge 0 is a"},
      {"{'model':{'type':'BPE','vocab':{'a':0},'merges':['a x']}}", "outside the vocabulary"},
      {"{'model':{'type':'BPE','vocab':{'a':0},'merges':[7]}}", "merge 0 is an integer"},
      {"{'model':{'type':'BPE','vocab':{'a':0}}}", "'merges' is missing"},
      {"{'model':{'type':'BPE','vocab':{'a':0},'merges':[],'unk_token':'u'}}", "token 'u'"},
      {"{'model':{'type':'BPE','vocab':{'a':0},'merges':[],'dropout':0.1}}", "'dropout'"},
      {"{'model':{'type':'BPE','vocab':{'a':0},'merges':[],'end_of_word_suffix':'</w>'}}",
       "'end_of_word_suffix'"},
      {"{'model':{'type':'Unigram','unk_id':3,'vocab':[['a',0]]}}", "'unk_id' is 3"},
      {"{'model':{'type':'Unigram','vocab':[['a']]}}", "token 0 is no string with a score"},
      {"{'added_tokens':[{'id':1,'content':'x'}]," MODEL "}", "both token 'b' and added token 'x'"},
      {"{'added_tokens':[{'id':1,'content':'a'}]," MODEL "}", "the vocabulary gives it 0"},
      {"{'added_tokens':[{'id':99999999,'content':'x'}]," MODEL "}", "id 99999999"},
      {"{'added_tokens':[{'content':'x'}]," MODEL "}", "id of an added token"},
      {"{'normalizer':{'type':'Rot13'}," MODEL "}", "normalizer 'Rot13'"},
      {"{'normalizer':7," MODEL "}", "expected an object with a 'type'"},
      {"{'normalizer':{'type':'Precompiled','precompiled_charsmap':'*'}," MODEL "}", "base64"},
      {"{'normalizer':{'type':'Precompiled','precompiled_charsmap':'AAAA'}," MODEL "}",
       "normalizes text"},
      {"{'pre_tokenizer':{'type':'UnicodeScripts'}," MODEL "}", "'UnicodeScripts'"},
      {"{'pre_tokenizer':{'type':'Split','pattern':{'Regex':'('},'behavior':'Isolated'}," MODEL "}",
       "can't be compiled"},
      {"{'pre_tokenizer':{'type':'Split','pattern':{'Regex':'[a&&b]'},'behavior':'Isolated'}," MODEL
       "}",
       "'&&'"},
      {"{'pre_tokenizer':{'type':'Split','pattern':{'Regex':'[a[^b]]'},'behavior':'Isolated'},"
       MODEL "}",
       "'[^ ] inside [ ]'"},
      {"{'pre_tokenizer':{'type':'Split','pattern':{'Regex':'[a-[b]]'},'behavior':'Isolated'},"
       MODEL "}",
       "'-[ inside [ ]'"},
      {"{'pre_tokenizer':{'type':'Split','pattern':{'Regex':'a'},'behavior':'Eaten'}," MODEL "}",
       "behavior 'Eaten'"},
      {"{'pre_tokenizer':{'type':'Metaspace','replacement':'_'}," MODEL "}", "U+2581"},
      {"{'decoder':{'type':'CTC'}," MODEL "}", "decoder 'CTC'"},
      {"{'decoder':{'type':'Strip','content':' ','start':2,'stop':0}," MODEL "}", "'Strip'"},
      {"{'decoder':{'type':'Strip','content':' ','start':'1','stop':0}," MODEL "}",
       "'start' is a string, expected an integer"},
      {"{'pre_tokenizer':{'type':'ByteLevel','use_regex':'no'}," MODEL "}",
       "'use_regex' is a string, expected true or false"},
      {"{'added_tokens':[{'id':3,'content':'x','special':1}]," MODEL "}", "'special'"},
      {"{'model':{'type':'BPE','vocab':{'a':0},'merges':[],'dropout':'0.1'}}",
       "'dropout' is a string"},
      {"{'post_processor':{'type':'Magic'}," MODEL "}", "post-processor 'Magic'"},
      {"{'post_processor':{'type':'BertProcessing','sep':['x',3],'cls':['a',0]}," MODEL "}",
       "id 3 around a text"},
      {"{'post_processor':{'type':'TemplateProcessing','single':[]}," MODEL "}", "Sequence A"},
  };
  for (size_t i = 0; i < COUNT(cases); i++) {
    char *text = quoted(cases[i].text);
    expect_refused(text, strlen(text), cases[i].part);
    free(text);
  }
}

Test(json, deep_and_cut_files) {
  enum { DEPTH = 100000 };
  char *deep = malloc(DEPTH);
  memset(deep, '[', DEPTH);
  expect_refused(deep, DEPTH, "no valid JSON");
  free(deep);
  char nested[1024] = "{'normalizer':";
  for (size_t i = 0; i < 20; i++) strcat(nested, "{'type':'Sequence','normalizers':[");
  for (size_t i = 0; i < 20; i++) strcat(nested, "]}");
  strcat(nested, "," MODEL "}");
  char *text = quoted(nested);
  expect_refused(text, strlen(text), "nested more than 8 deep");
  free(text);
  char *whole = quoted(bytes_json);
  for (size_t n = 0; n < strlen(whole); n++) expect_refused(whole, n, "no valid JSON");
  free(whole);
}

/* --- What would take long or much ---------------------------------------------------- */

/* "normalizer": so many times the same. */
static char *with_normalizers(size_t count, const char *one) {
  size_t length = strlen(one);
  char *text = malloc(count * (length + 1) + 512), *at = text;
  at += sprintf(at, "{'normalizer':{'type':'Sequence','normalizers':[");
  for (size_t i = 0; i < count; i++) at += sprintf(at, "%s%s", i ? "," : "", one);
  strcpy(at, "]}," MODEL "}");
  char *json = quoted(text);
  free(text);
  return json;
}

Test(json, a_text_that_steps_make_longer_and_longer_is_an_error) {
  char *text = with_normalizers(
      40, "{'type':'Replace','pattern':{'String':'a'},'content':'aa'}");
  hr_vocab_storage storage = {0};
  hr_vocab vocab = {.bos = -1, .eos = -1, .unknown = -1};
  hr_error err = {0};
  int32_t *ids = NULL;
  size_t count;
  cr_assert_eq(hr_vocab_parse_json(text, strlen(text), "t.json", &storage, &vocab, &err), HR_OK);
  hr_tokenizer *t = hr_tokenizer_create(&vocab, &err);
  cr_assert(t, "%s", err.message);
  cr_expect_eq(hr_tokenizer_encode(t, "aaaa", 4, PLAIN, &ids, &count, &err), HR_ERROR_FILE);
  cr_expect(strstr(err.message, "t.json") && strstr(err.message, "longer"), "%s", err.message);
  cr_expect_eq(hr_tokenizer_encode(t, "bb", 2, PLAIN, &ids, &count, &err), HR_OK, "others go on");
  hr_free(ids);
  hr_tokenizer_free(t);
  hr_vocab_storage_finish(&storage);
  free(text);
}

/* Text is cut at the pattern, with a token between its parts; a pattern in JSON has its
 * backslashes twice. */
static hr_tokenizer *with_pattern(const char *pattern) {
  char text[1024];
  snprintf(text, sizeof text,
           "{'pre_tokenizer':{'type':'Split','pattern':{'Regex':'%s'},'behavior':'Isolated'},"
           "'added_tokens':[{'id':1,'content':'<s>','special':true}],'model':{'type':'BPE',"
           "'vocab':{'a':0,'<s>':1,'b':2},'merges':[]}}",
           pattern);
  return from_json(text);
}

/* Exponential, quadratic, by backtracking, by possessive loops that are not backtracked into,
 * by comparing with what was there before, by recursion and looking around. */
Test(json, a_pattern_that_takes_more_than_grows_with_the_text_is_an_error) {
  enum { BYTES = 1 << 17 };
  static const struct {
    const char *pattern, *unit;
  } cases[] = {{"(a+)+[cd]", "a"},
               {"(?:a|a)*[cd]", "a"},
               {"(a|aa)+[cd]", "a"},
               {"a*+[cd]", "a"},
               {"(?:a*+[cd]|a*+[de])", "a"},
               {"(a*)\\\\1[cd]", "a"},
               {"(.*)*[cd]", "a"},
               {".*.*.*[cd]", "ab"},
               {"(?:a?){40}a{40}[cd]", "a"},
               {"(?=(a+))\\\\1*+[cd]", "a"},
               {"(?:(?:a*+|b)c?)*[de]", "ab"},
               {"(a(?1)?a|a)+[cd]", "a"},
               {"(?<!b)a+(?=[cd])", "a"},
               {"(a+)+[cd]", "aaaaaaaaaaaaaaa<s>"}};
  char *text = malloc(BYTES);
  for (size_t i = 0; i < COUNT(cases); i++) {
    hr_tokenizer *t = with_pattern(cases[i].pattern);
    hr_error err = {0};
    int32_t *ids = NULL;
    size_t count, length = strlen(cases[i].unit);
    for (size_t k = 0; k < BYTES; k++) text[k] = cases[i].unit[k % length];
    clock_t before = clock();
    cr_expect_eq(hr_tokenizer_encode(t, text, BYTES, PARSE, &ids, &count, &err), HR_ERROR_FILE,
                 "%s", cases[i].pattern);
    double taken = (double)(clock() - before) / CLOCKS_PER_SEC;
    cr_expect_lt(taken, 20.0, "%s: %.1f s", cases[i].pattern, taken);
    cr_expect(strstr(err.message, "t.json") && strstr(err.message, " steps for "),
              "%s: %s", cases[i].pattern, err.message);
    EXPECT(t, "ab<s>a", PARSE, 0, 2, 1, 0); /* nothing of it stays */
    hr_tokenizer_free(t);
  }
  free(text);
}

/* A group that repeats along a text is remembered turn by turn: no more than fits. */
Test(json, a_pattern_that_repeats_along_a_text_takes_memory_that_grows_with_it) {
  enum { BYTES = 1 << 20 };
  char *text = malloc(BYTES);
  for (size_t k = 0; k < BYTES; k++) text[k] = "ab"[k % 2];
  hr_tokenizer *t = with_pattern("(?:a|b)+");
  hr_error err = {0};
  int32_t *ids = NULL;
  size_t count = 0;
  cr_expect_eq(hr_tokenizer_encode(t, text, BYTES, PLAIN, &ids, &count, &err), HR_OK, "%s",
               err.message);
  cr_expect_eq(count, BYTES);
  hr_free(ids);
  hr_tokenizer_free(t);

  t = with_pattern("(?:(((((((((((((((((((((((((((((((a)))))))))))))))))))))))))))))))|b)+");
  cr_expect_eq(hr_tokenizer_encode(t, text, BYTES, PLAIN, &ids, &count, &err), HR_ERROR_FILE);
  cr_expect(strstr(err.message, "heap"), "%s", err.message);
  hr_tokenizer_free(t);
  free(text);
}

Test(json, more_steps_than_any_tokenizer_has_are_refused) {
  char *text = with_normalizers(257, "{'type':'Lowercase'}");
  expect_refused(text, strlen(text), "257 steps, expected at most 256");
  free(text);
}

/* Seven megabytes of text, some 600 of memory. */
Test(json, a_file_of_nothing_but_values_is_refused) {
  enum { OBJECTS = 2200000 };
  char *text = malloc(3 * OBJECTS + 16), *at = text;
  at += sprintf(at, "{\"a\":[{}");
  for (size_t i = 1; i < OBJECTS; i++, at += 3) memcpy(at, ",{}", 3);
  at += sprintf(at, "]}");
  expect_refused(text, (size_t)(at - text), "more values");
  free(text);
}

Test(json, a_pattern_of_the_wrong_type_is_not_used) {
  char *text = with_normalizers(
      1, "{'type':'Replace','pattern':{'String':5,'Regex':'x+'},'content':'a'}");
  hr_vocab_storage storage = {0};
  hr_vocab vocab = {.bos = -1, .eos = -1, .unknown = -1};
  hr_error err = {0};
  cr_assert_eq(hr_vocab_parse_json(text, strlen(text), "t.json", &storage, &vocab, &err), HR_OK);
  hr_tokenizer *t = hr_tokenizer_create(&vocab, &err);
  cr_assert(t, "%s", err.message);
  EXPECT(t, "xxxb", PLAIN, 2);
  hr_tokenizer_free(t);
  hr_vocab_storage_finish(&storage);
  free(text);
}

static char *read_all(const char *path, size_t *length) {
  FILE *file = fopen(path, "rb");
  cr_assert(file, "%s", path);
  char *bytes = malloc(1 << 20);
  *length = fread(bytes, 1, 1 << 20, file);
  fclose(file);
  return bytes;
}

/* Whatever is cut off or changed: a sentence, or a tokenizer that works. */
Test(sentencepiece, cut_and_changed_files) {
  size_t length;
  char *file = read_all(HEADROW_SOURCE_ROOT "/tests/fixtures/spm_unigram.model", &length);
  srand(3);
  for (size_t round = 0; round < 3 * length; round++) {
    hr_vocab_storage storage = {0};
    hr_vocab vocab = {.bos = -1, .eos = -1, .unknown = -1};
    hr_error err = {0};
    char *copy = malloc(length);
    size_t n = round < length ? round : length;
    memcpy(copy, file, length);
    if (round >= length) copy[(size_t)rand() % length] = (char)rand();
    hr_status status = hr_vocab_parse_sentencepiece(copy, n, "t.model", &storage, &vocab, &err);
    hr_tokenizer *t = status == HR_OK ? hr_tokenizer_create(&vocab, &err) : NULL;
    if (!t) cr_expect(strstr(err.message, "t.model"), "%s", err.message);
    cr_expect(!t || round >= length, "%zu bytes of %zu were taken", n, length);
    int32_t *ids = NULL;
    size_t count;
    if (t) hr_tokenizer_encode(t, "The cat <sep>\xff", 14, PLAIN, &ids, &count, &err);
    hr_free(ids);
    hr_tokenizer_free(t);
    hr_vocab_storage_finish(&storage);
    free(copy);
  }
  free(file);
}

/* --- Folders ------------------------------------------------------------------------ */

static void write_file(const char *folder, const char *name, const char *text, size_t length) {
  char path[1024];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  FILE *file = fopen(path, "wb");
  cr_assert(file && fwrite(text, 1, length, file) == length && fclose(file) == 0);
}

static void write_json(const char *folder, const char *name, const char *text) {
  char *json = quoted(text);
  write_file(folder, name, json, strlen(json));
  free(json);
}

static void remove_file(const char *folder, const char *name) {
  char path[1024];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  remove(path);
}

Test(folder, tokenizes_with_its_own) {
  static const char *const files[] = {"model.safetensors",      "config.json",
                                      "tokenizer.json",         "tokenizer_config.json",
                                      "generation_config.json", "special_tokens_map.json",
                                      "tokenizer.model"};
  char folder[] = "/tmp/headrow-vocab-XXXXXX";
  cr_assert(mkdtemp(folder));
  /* the length of the header, 64, the header, and one number */
  char tensor[8 + 64 + 4 + 1] = {64};
  snprintf(tensor + 8, 65, "%-64s",
           "{\"t\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}");
  write_file(folder, "model.safetensors", tensor, 8 + 64 + 4);
  write_json(folder, "config.json", "{'eos_token_id':[3,4294967295]}");
  hr_error err = {0};
  hr_vocab_storage storage;
  hr_vocab vocab;
  bool found = true;
  hr_source *source = hr_source_open(folder, &err);
  cr_assert(source, "%s", err.message);
  cr_assert_eq(hr_vocab_read(source, &storage, &vocab, &found, &err), HR_OK, "%s", err.message);
  cr_expect_not(found);
  hr_vocab_storage_finish(&storage);

  size_t length; /* only SentencePiece's file */
  char *model = read_all(HEADROW_SOURCE_ROOT "/tests/fixtures/spm_bpe.model", &length);
  write_file(folder, "tokenizer.model", model, length);
  free(model);
  cr_assert_eq(hr_vocab_read(source, &storage, &vocab, &found, &err), HR_OK, "%s", err.message);
  cr_expect(found && vocab.kind == HR_VOCAB_SPM && vocab.bos == 1 && vocab.eos == 2);
  cr_expect(vocab.around.before_count == 1 && vocab.around.before[0] == 1);
  cr_expect(hr_vocab_is_end(&storage, 2) && hr_vocab_is_end(&storage, 3));
  hr_vocab_storage_finish(&storage);

  write_json(folder, "tokenizer.json", characters_json); /* goes before the other */
  write_json(folder, "tokenizer_config.json",
             "{'add_bos_token':true,'bos_token':{'content':'<s>'},'eos_token':'<s>',"
             "'model_max_length':1000000000000000019884624838656}");
  write_json(folder, "generation_config.json",
             "{'eos_token_id':[6,-1,4294967295],'bos_token_id':null}");
  cr_assert_eq(hr_vocab_read(source, &storage, &vocab, &found, &err), HR_OK, "%s", err.message);
  cr_expect(found && vocab.kind == HR_VOCAB_BPE && vocab.count == 8 && vocab.bos == 1);
  static const int32_t ends[] = {1, 3, 6};
  cr_expect(storage.end_count == 3 && memcmp(storage.ends, ends, sizeof ends) == 0);
  hr_tokenizer *t = hr_tokenizer_create(&vocab, &err);
  cr_assert(t);
  hr_vocab_storage_trim(&storage); /* the tokenizer needs nothing of it */
  EXPECT(t, "ab", SPECIAL, 1, 5, 4);
  hr_tokenizer_free(t);
  cr_expect(hr_vocab_is_end(&storage, 6));
  hr_vocab_storage_finish(&storage);

  static const struct {
    const char *file, *text, *part;
  } faults[] = {{"tokenizer_config.json", "{'add_bos_token':1}", "'add_bos_token'"},
                {"tokenizer_config.json", "{'eos_token':7}", "'eos_token'"},
                {"tokenizer_config.json", "{'eos_token':'<nope>'}",
                 "/tokenizer_config.json: key 'eos_token' is '<nope>', expected a token of"},
                {"tokenizer_config.json", "{'bos_token':null,'eos_token':null}", NULL},
                {"special_tokens_map.json", "{'bos_token':{'content':'<no>'}}",
                 "/special_tokens_map.json: key 'bos_token' is '<no>', expected a token of"},
                {"special_tokens_map.json", "{}", NULL},
                {"generation_config.json", "{'eos_token_id':'6'}", "'eos_token_id'"},
                {"generation_config.json", "{'eos_token_id':[[6]]}", "'eos_token_id'"},
                {"generation_config.json", "{'eos_token_id':[2,99999]}",
                 "/generation_config.json: key 'eos_token_id' is 99999, expected an id below 8"},
                {"generation_config.json", "{'eos_token_id':8}", "'eos_token_id' is 8, expected"},
                {"generation_config.json", "{'eos_token_id':-2}", "'eos_token_id' is -2, expected"},
                {"generation_config.json", "{'eos_token_id':2.5}", "'eos_token_id' is 2.5, exp"},
                {"generation_config.json", "{'bos_token_id':8}", "'bos_token_id' is 8, expected"},
                {"generation_config.json", "{'bos_token_id':-1}", NULL}};
  for (size_t i = 0; i < COUNT(faults); i++) {
    write_json(folder, faults[i].file, faults[i].text);
    hr_status status = hr_vocab_read(source, &storage, &vocab, &found, &err);
    cr_expect_eq(status, faults[i].part ? HR_ERROR_FILE : HR_OK);
    cr_expect(!faults[i].part || strstr(err.message, faults[i].part), "%s", err.message);
    hr_vocab_storage_finish(&storage);
  }

  hr_source_close(source);
  write_json(folder, "config_sentence_transformers.json",
             "{'prompts':{'query':'q: '},'default_prompt_name':'query'}");
  source = hr_source_open(folder, &err);
  cr_assert(source, "%s", err.message);
  cr_expect_eq(hr_vocab_read(source, &storage, &vocab, &found, &err), HR_OK, "%s", err.message);
  cr_assert(storage.warning);
  cr_expect(strstr(storage.warning, "'default_prompt_name': its prompt 'query' is not put"), "%s",
            storage.warning);
  hr_vocab_storage_finish(&storage);
  remove_file(folder, "config_sentence_transformers.json");
  hr_source_close(source);
  write_json(folder, "config.json", "{'eos_token_id':[3,88888],'bos_token_id':77777}");
  source = hr_source_open(folder, &err);
  cr_assert(source, "%s", err.message);
  cr_expect_eq(hr_vocab_read(source, &storage, &vocab, &found, &err), HR_ERROR_FILE);
  cr_expect(strstr(err.message, "config.json: key 'eos_token_id' is 88888, expected"), "%s",
            err.message);
  hr_vocab_storage_finish(&storage);
  hr_source_close(source);
  write_json(folder, "config.json", "{'eos_token_id':null,'bos_token_id':77777}");
  source = hr_source_open(folder, &err);
  cr_assert(source, "%s", err.message);
  cr_expect_eq(hr_vocab_read(source, &storage, &vocab, &found, &err), HR_ERROR_FILE);
  cr_expect(strstr(err.message, "config.json: key 'bos_token_id' is 77777, expected"), "%s",
            err.message);
  hr_vocab_storage_finish(&storage);

  write_json(folder, "tokenizer.json", "{'model':{'type':'Odd'}}");
  cr_expect_eq(hr_vocab_read(source, &storage, &vocab, &found, &err), HR_ERROR_FILE);
  cr_expect(!found && strstr(err.message, "'Odd'") && strstr(err.message, "tokenizer.json"), "%s",
            err.message);
  hr_vocab_storage_finish(&storage);
  hr_source_close(source);
  for (size_t i = 0; i < COUNT(files); i++) remove_file(folder, files[i]);
  rmdir(folder);
}

/* --- Time ------------------------------------------------------------------------------- */

#if WITH_ADDRESS_SANITIZER
enum { LENGTH = 1 << 15 }; /* its allocator holds what is freed back for a while, page by page */
#else
enum { LENGTH = 1 << 20 };
#endif

static double seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* CPU time to encode `bytes` of a unit again and again: the better of two. */
static double time_of(const hr_tokenizer *t, const char *unit, size_t bytes) {
  char *text = malloc(bytes);
  size_t length = strlen(unit);
  double best = 1e9;
  for (size_t i = 0; i < bytes; i++) text[i] = unit[i % length];
  for (size_t round = 0; round < 2; round++) {
    int32_t *ids;
    size_t count;
    hr_error err = {0};
    double before = seconds();
    cr_assert_eq(hr_tokenizer_encode(t, text, bytes, PARSE, &ids, &count, &err), HR_OK, "%s",
                 err.message);
    double taken = seconds() - before;
    if (taken < best) best = taken;
    hr_free(ids);
  }
  free(text);
  return best;
}

static void expect_linear(hr_tokenizer *t, const char *what) {
  static const char *const units[] = {
      "a", " ", "ab ", "b\n", "\xcc\x81\xcc\x96", "<s>", " \xe3\x80\x80"};
  enum { TRIES = 5 };
  for (size_t i = 0; i < COUNT(units); i++) {
    double whole = 1e9, quarter = 0;
    /* so that a clock's tick or a cache's size is no quadratic step; a busy machine may be slow
     * for a moment, a quadratic step is slow each time */
    for (int k = 0; k < TRIES && (whole >= 6 * quarter + 0.01 || whole >= 3.0); k++) {
      whole = time_of(t, units[i], LENGTH);
      quarter = time_of(t, units[i], LENGTH / 4);
    }
    cr_expect_lt(whole, 6 * quarter + 0.01, "%s, unit %zu: %.3f s for a quarter, %.3f s for all",
                 what, i, quarter, whole);
    cr_expect_lt(whole, 3.0, "%s, unit %zu: %.3f s", what, i, whole);
  }
  hr_tokenizer_free(t);
}

Test(time, grows_with_the_text) {
  /* The heap keeps what it has: fresh pages cost more than anything measured here. */
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, INT_MAX);
  mallopt(M_TOP_PAD, 256 << 20);
  /* every byte has a token, or there is an unknown one */
  static const char all_steps[] =
      "{'normalizer':{'type':'Sequence','normalizers':[{'type':'NFC'},{'type':'NFKD'},"
      " {'type':'Lowercase'},{'type':'Replace','pattern':{'Regex':' {2,}'},'content':' '}]},"
      "'pre_tokenizer':{'type':'Sequence','pretokenizers':["
      " {'type':'Split','pattern':{'Regex':'\\\\s+$'},'behavior':'Isolated'},"
      " {'type':'Split','pattern':{'Regex':'\\\\p{L}+|\\\\s+(?!\\\\S)|\\\\s+'},"
      "  'behavior':'Isolated'},{'type':'Digits'},{'type':'Punctuation'},{'type':'Metaspace',"
      "  'replacement':'\\u2581'}]},"
      "'model':{'type':'Unigram','unk_id':0,'vocab':[['u',0],['a',-1],['b',-1],['ab',-1]]}}";
  expect_linear(from_json(characters_json), "characters");
  expect_linear(from_json(unigram_json), "unigram");
  expect_linear(from_json(wordpiece_json), "wordpiece");
  expect_linear(from_json(all_steps), "all steps");
  expect_linear(open_file(HEADROW_SOURCE_ROOT "/tests/fixtures/spm_bpe.model"), "spm bpe");
  expect_linear(open_file(HEADROW_SOURCE_ROOT "/tests/fixtures/spm_unigram.model"),
                "spm unigram");
}
