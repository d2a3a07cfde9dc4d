/* SPDX-License-Identifier: MIT
 * The commands that tell what a model is worth, from outside. */
#include <criterion/criterion.h>
#include <jansson.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/gguf_writer.h"
#include "tests/support/shell.h"

TestSuite(perplexity, .timeout = 300);

/* The document that a line prints; the caller releases it. */
static json_t *document(const char *line) {
  result r = shell(line);
  cr_assert_eq(r.status, 0, "%s: %s", line, r.err);
  json_error_t error;
  json_t *json = json_loads(r.out, 0, &error);
  cr_assert(json, "%s: %s in %s", line, error.text, r.out);
  finish(&r);
  return json;
}

/* A number by its path, "kl.mean"; NaN when there is none. */
static double number(const json_t *json, const char *path) {
  char copy[128], *rest;
  snprintf(copy, sizeof copy, "%s", path);
  for (char *word = strtok_r(copy, ".", &rest); word; word = strtok_r(NULL, ".", &rest))
    json = json_object_get(json, word);
  return json_is_number(json) ? json_number_value(json) : (double)NAN;
}

static const char *data_folder(void) {
  const char *data = getenv("HEADROW_TEST_DATA");
  return data && *data ? data : NULL;
}

/* --- perplexity ------------------------------------------------------------------ */

/* A story of the built-in model's kind, in words. */
#define STORY "Once upon a time there was a little girl. She saw a big dog. The dog was sad. "

Test(perplexity, wrong_usage) {
  expect_error("$H perplexity", 2, "none given, expected one of -f and --ids", NULL);
  expect_error("$H perplexity -f a --ids 1", 2, "given twice", NULL);
  expect_error("$H perplexity -f /nowhere", 3, "/nowhere", NULL);
  expect_error("$H perplexity -f /dev/null", 2, "no token to score", NULL);
  expect_error("$H perplexity --ids 7", 2, "no token to score", NULL);
  expect_error("$H perplexity --ids 1,2,99999", 2, "99999", NULL);
  expect_error("$H perplexity --ids 1,2,3 -c 8 --stride 9", 2, "at most the context of 8", NULL);
  expect_error("printf '1 2\\n3 x\\n' >$D/ids; $H perplexity --ids @$D/ids", 2, "'x'", NULL);
}

/* ln of the vocabulary's size less what logits say: by `logits` itself. */
Test(perplexity, is_what_the_logits_say) {
  json_t *logits = document("$H logits --all --json --ids 1,433,455,261,406,987");
  json_t *scored = document("$H perplexity --json --ids 1,433,455,261,406,987");
  json_t *positions = json_object_get(logits, "positions");
  static const size_t next[] = {433, 455, 261, 406, 987};
  double sum = 0;
  for (size_t i = 0; i < 5; i++) {
    json_t *row = json_object_get(json_array_get(positions, i), "logits"), *x;
    double total = 0;
    size_t j;
    json_array_foreach(row, j, x) total += exp(json_real_value(x));
    sum += log(total) - json_real_value(json_array_get(row, next[i]));
  }
  cr_expect_float_eq(number(scored, "mean_nll"), sum / 5, 1e-6);
  cr_expect_float_eq(number(scored, "perplexity"), exp(sum / 5), 1e-4);
  cr_expect_eq(number(scored, "tokens"), 5);
  cr_expect(json_is_null(json_object_get(scored, "standard_error")), "one cluster");
  json_decref(logits);
  json_decref(scored);
}

/* Parts do not see each other, blanks around them do not count. */
Test(perplexity, parts_are_scored_alone) {
  json_t *one = document("printf '" STORY "' | $H perplexity --json -f -");
  json_t *two = document("printf '" STORY "<|endoftext|>\\n" STORY
                         "\\n<|endoftext|> \\n' | "
                         "$H perplexity --json -f -");
  json_t *other =
      document("printf '" STORY "##" STORY "' | $H perplexity --json --split '##' -f -");
  json_t *whole = document("printf '" STORY "##" STORY "' | $H perplexity --json --split '' -f -");
  cr_expect_eq(number(one, "parts"), 1);
  cr_expect_eq(number(two, "parts"), 2);
  cr_expect_eq(number(whole, "parts"), 1);
  cr_expect_eq(number(two, "tokens"), 2 * number(one, "tokens"));
  cr_expect_eq(number(two, "mean_nll"), number(one, "mean_nll"));
  cr_expect_eq(number(other, "mean_nll"), number(one, "mean_nll"));
  cr_expect(number(whole, "mean_nll") != number(one, "mean_nll"));
  json_decref(one);
  json_decref(two);
  json_decref(other);
  json_decref(whole);
}

/* Windows of 4 with a step of 2 over 1,2,...: each token once. The first window scores
 * the tokens 2 to 5 of it and what follows, the next ones two each. */
Test(perplexity, windows_score_each_token_once) {
  json_t *windows = document("$H perplexity --json -c 4 --stride 2 --ids 5,6,7,8,9,10,11");
  cr_expect_eq(number(windows, "tokens"), 6);
  cr_expect_eq(number(windows, "windows"), 3);
  /* The same sum by hand: losses after 5 6 7 8; then after 7 8 9 10 the last two; ... */
  static const struct {
    const char *ids;
    int from;
  } by_hand[] = {{"5,6,7,8,9", 0}, {"7,8,9,10,11", 2}};
  double sum = 0;
  for (size_t i = 0; i < 2; i++) {
    char line[128];
    snprintf(line, sizeof line, "$H perplexity --json --ids %s", by_hand[i].ids);
    json_t *all = document(line);
    sum += 4 * number(all, "mean_nll");
    json_decref(all);
    if (by_hand[i].from) {
      json_t *first = document("$H perplexity --json --ids 7,8,9");
      sum -= 2 * number(first, "mean_nll");
      json_decref(first);
    }
  }
  cr_expect_float_eq(number(windows, "mean_nll"), sum / 6, 1e-6);
  json_decref(windows);
  json_t *steps = document("$H perplexity --json -c 4 --stride 4 --ids 5,6,7,8,9,10,11");
  cr_expect_eq(number(steps, "tokens"), 6);
  json_decref(steps);
}

Test(perplexity, prints_for_people_too) {
  result r = shell("printf '" STORY STORY STORY "' | $H perplexity -f - -t 1");
  cr_expect_eq(r.status, 0);
  cr_expect(strstr(r.out, "parts       1\n") && strstr(r.out, "mean nll") && strstr(r.out, "+-"),
            "%s", r.out);
  cr_expect_eq(r.err[0], 0, "%s", r.err);
  finish(&r);
}

/* Two other engines agree on these to 1e-5. */
Test(perplexity, of_the_five_stories) {
  if (!data_folder()) cr_skip_test("HEADROW_TEST_DATA is not set");
  json_t *words = document(
      "$H perplexity $HEADROW_TEST_DATA/stories260K/stories260K.gguf --json "
      "-f $HEADROW_TEST_DATA/corpora/tinystories_sample_cs336.txt");
  cr_expect_float_eq(number(words, "mean_nll"), 1.266441, 1e-5);
  cr_expect_eq(number(words, "tokens"), 1804);
  cr_expect(number(words, "standard_error") > 0.02 && number(words, "standard_error") < 0.1);
  json_decref(words);
  json_t *ids = document(
      "tr -d ' \\n' <$HEADROW_TEST_DATA/corpora/ids_656k.json | "
      "sed 's/\\],\\[/\\n/g; s/[][]//g' >$D/ids; $H perplexity --json --ids @$D/ids "
      "$HEADROW_TEST_DATA/tinystories-656k/tinystories656k-f32.gguf");
  cr_expect_float_eq(number(ids, "mean_nll"), 3.015974, 1e-5);
  cr_expect_eq(number(ids, "tokens"), 853);
  json_decref(ids);
}

/* The trained models of that folder, with the five stories as each takes them. */
#define DATA_IDS                                                                                   \
  "tr -d ' \\n' <$HEADROW_TEST_DATA/corpora/ids_656k.json | "                                      \
  "sed 's/\\],\\[/\\n/g; s/[][]//g' >$D/ids; "
static const struct {
  const char *name, *whole; /* WHOLE: the F32 file; the others are NAME-TYPE.gguf */
  const char *text;
} trained[] = {
    {"$HEADROW_TEST_DATA/stories260K/stories260K",
     "$HEADROW_TEST_DATA/stories260K/stories260K.gguf",
     "-f $HEADROW_TEST_DATA/corpora/tinystories_sample_cs336.txt"},
    {"$HEADROW_TEST_DATA/tinystories-656k/tinystories656k",
     "$HEADROW_TEST_DATA/tinystories-656k/tinystories656k-f32.gguf", "--ids @$D/ids"},
};
enum { TRAINED = sizeof trained / sizeof *trained };

/* In the order of what they throw away; q6_k, of one of them, holds Q8_0 only. */
Test(perplexity, of_quantized_files_in_the_order_of_their_damage) {
  if (!data_folder()) cr_skip_test("HEADROW_TEST_DATA is not set");
  static const char *const types[] = {"f16", "q8_0", "q6_k", "q5_1", "q5_0", "q4_1", "q4_0"};
  for (size_t m = 0; m < TRAINED; m++) {
    double before = 0;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
      bool ties = strcmp(types[i], "q6_k") == 0;
      char line[512];
      if (ties && m == 0) continue; /* there is none */
      snprintf(line, sizeof line, DATA_IDS "$H perplexity --json %s-%s.gguf %s", trained[m].name,
               types[i], trained[m].text);
      json_t *scored = document(line);
      double nll = number(scored, "mean_nll");
      cr_expect(ties ? nll == before : nll > before, "%zu, %s: %g after %g", m, types[i], nll,
                before);
      before = nll;
      json_decref(scored);
    }
  }
}

/* --- accuracy -------------------------------------------------------------------- */

TestSuite(accuracy, .timeout = 600);

/* A model of one block, drawn from a seed, and a text of ids. */
#define SMALL                                                                                      \
  "$H bench --synthetic dim=64,layers=1,heads=2,ffn=128,vocab=260,ctx=64:f32 --save $D/in.gguf "   \
  "-p 1 -n 0 -r 1 -t 1 -q >$D/log 2>&1; "
#define IDS "--ids 5,6,250,8,90,10,11,12,13,140,15,160,17,18,200,20,21,22,33,24"

#define TWO "printf '" STORY "<|endoftext|>" STORY STORY "' >$D/text; "

Test(accuracy, wrong_usage) {
  expect_error("$H accuracy", 2, "nothing to compare", NULL);
  expect_error("$H accuracy --against f32", 2, "none given", NULL);
  expect_error("$H accuracy --against f32 --across-isa -f x", 2, "two things at once", NULL);
  expect_error("$H accuracy --across-isa --max-kl 1", 2, "without a reference", NULL);
  expect_error("$H accuracy --against /nowhere.gguf --ids 1,2,3", 3, "/nowhere.gguf", NULL);
  expect_error("$H accuracy --against $ROOT/models/gpt2.gguf --ids 1,2,3 -q", 2,
               "its context of 256 is smaller", NULL);
  expect_error("$H accuracy --check /dev/null", 3, "/dev/null", NULL);
  expect_error("echo '{\"arithmetic\": 999, \"parts\": []}' >$D/a; $H accuracy --check $D/a", 3,
               "not to be compared", NULL);
  expect_error("$H accuracy --check $ROOT/models/digests/builtin.json --cache f32", 2,
               "was written with", NULL);
}

Test(accuracy, of_a_model_against_itself_is_exactly_nothing) {
  json_t *same = document(TWO "$H accuracy --against builtin -f $D/text --json");
  static const char *const zeros[] = {
      "kl.value",          "kl.standard_error",         "kl.median.value",
      "kl.p99.value",      "mean_nll_difference.value", "flips.value",
      "largest_difference"};
  for (size_t i = 0; i < sizeof zeros / sizeof *zeros; i++)
    cr_expect_eq(number(same, zeros[i]), 0.0, "%s is %g", zeros[i], number(same, zeros[i]));
  cr_expect_eq(number(same, "top1_agreement.value"), 1.0);
  cr_expect(json_is_true(json_object_get(same, "bit_identical")));
  json_t *tensor;
  size_t i;
  json_array_foreach(json_object_get(json_object_get(same, "detail"), "tensors"), i, tensor) {
    cr_expect_eq(number(tensor, "kl"), 0.0);
    cr_expect_eq(number(tensor, "weight_error"), 0.0);
  }
  cr_expect(i > 20);
  json_decref(same);
}

/* The sentence stands where every logit has the same bits, and only there. */
Test(accuracy, says_what_is_bit_identical) {
  static const char sentence[] = "bit-identical: every logit has the same bits\n";
  result r = shell(TWO "$H accuracy --against builtin -f $D/text --detail 0 -q -t 1");
  cr_expect_eq(r.status, 0, "%s", r.err);
  cr_expect(strstr(r.out, sentence), "%s", r.out);
  cr_expect(strstr(r.out, "KL divergence      mean 0 +- 0,"), "%s", r.out);
  finish(&r);
  r = shell(TWO "$H accuracy --against f32 -f $D/text --detail 0 -q");
  cr_expect_eq(r.status, 0, "%s", r.err);
  cr_expect(!strstr(r.out, "bit-identical"), "%s", r.out);
  finish(&r);
  /* the last bits of one weight are enough */
  r = shell(SMALL
            "cp $D/in.gguf $D/b.gguf; printf '\\001' | dd of=$D/b.gguf bs=1 "
            "conv=notrunc status=none seek=$(($(stat -c %s $D/in.gguf) - 4)); "
            "$H accuracy $D/b.gguf --against $D/in.gguf " IDS " --detail 0 -q");
  cr_expect_eq(r.status, 0, "%s", r.err);
  cr_expect(!strstr(r.out, "bit-identical") && strstr(r.out, "KL divergence"), "%s", r.out);
  finish(&r);
}

/* The built-in model's file holds int8: in fp32 arithmetic only the activations differ,
 * and the parts of the error stand in the relation that they must. */
Test(accuracy, against_fp32) {
  json_t *r = document(TWO "$H accuracy --against f32 -f $D/text --json");
  cr_expect(number(r, "kl.value") > 1e-6 && number(r, "kl.value") < 1e-2);
  cr_expect_eq(number(r, "kl.weights_alone.value"), 0.0);
  cr_expect(json_is_false(json_object_get(r, "bit_identical")));
  cr_expect_float_eq(number(r, "mean_nll.value") - number(r, "reference_mean_nll.value"),
                     number(r, "mean_nll_difference.value"), 1e-7);
  double ratio = number(r, "perplexity") / number(r, "reference_perplexity");
  cr_expect_float_eq(number(r, "perplexity_ratio.value"), ratio, 1e-6);
  cr_expect_float_eq(number(r, "perplexity_ratio.standard_error"),
                     ratio * number(r, "mean_nll_difference.standard_error"), 1e-8);
  cr_expect_float_eq(number(r, "perplexity_standard_error"),
                     number(r, "perplexity") * number(r, "mean_nll.standard_error"), 1e-5);
  cr_expect(number(r, "perplexity_ratio.standard_error") <
                0.1 * number(r, "reference_perplexity_standard_error"),
            "the same tokens are hard for both");
  json_t *detail = json_object_get(r, "detail"), *one;
  double share = 0;
  size_t i;
  json_array_foreach(json_object_get(detail, "tensors"), i, one) {
    cr_expect_eq(number(one, "weight_error"), 0.0);
    cr_expect_eq(number(one, "kl_weights"), 0.0);
    cr_expect_eq(number(one, "kl_weights_standard_error"), 0.0);
    cr_expect(number(one, "kl_standard_error") > 0 &&
              number(one, "kl_standard_error") < 3 * number(one, "kl"));
    share += number(one, "share");
  }
  cr_expect_float_eq(share, 1.0, 1e-6);
  cr_expect(!json_object_get(r, "reason") && !json_object_get(detail, "reason"));
  cr_expect_float_eq(number(detail, "sum_of_tensors"),
                     number(json_array_get(json_object_get(detail, "tensors"), 0), "kl") /
                         number(json_array_get(json_object_get(detail, "tensors"), 0), "share"),
                     1e-6 * number(detail, "sum_of_tensors"));
  json_array_foreach(json_object_get(detail, "layers"), i, one)
      cr_expect(number(one, "output_error") > 1e-4 && number(one, "output_error") < 0.1);
  cr_expect_eq(i, 5);
  json_decref(r);
}

/* A mean over one cluster tells nothing of its error, and a zero would be a lie. */
Test(accuracy, a_short_text_has_no_standard_errors) {
  json_t *r = document("$H accuracy --against f32 --ids 5,6,7,8,9 --cache f32 --json -q"), *one;
  /* in detail the cache is fp32, and so short a text is measured whole */
  cr_expect_eq(number(r, "detail.tokens"), 4);
  cr_expect_float_eq(number(r, "detail.kl"), number(r, "kl.value"), 1e-9 * number(r, "kl.value"));
  cr_expect(json_is_null(json_object_get(r, "perplexity_standard_error")));
  cr_expect(json_is_null(json_object_get(json_object_get(r, "kl"), "standard_error")));
  cr_expect_str_eq(json_string_value(json_object_get(r, "reason")),
                   "the text is one cluster of tokens");
  size_t i;
  json_array_foreach(json_object_get(json_object_get(r, "detail"), "tensors"), i, one)
      cr_expect(json_is_null(json_object_get(one, "kl_standard_error")));
  json_decref(r);
  result text = shell("$H accuracy --against f32 --ids 5,6,7,8,9 -q");
  cr_expect(strstr(text.out, "too short for standard errors") && !strstr(text.out, "+-"), "%s",
            text.out);
  finish(&text);
}

/* Three matrices out of one tensor are told apart, by what stands behind its name. */
Test(accuracy, parts_of_a_fused_tensor) {
  static const char *const parts[] = {"q", "k", "v"};
#define FUSED "$H accuracy $ROOT/models/gpt2.gguf --against f32 --ids 5,6,7 -q"
  json_t *r = document(FUSED " --json"), *one;
  size_t i, found = 0;
  json_array_foreach(json_object_get(json_object_get(r, "detail"), "tensors"), i, one) {
    const char *name = json_string_value(json_object_get(one, "name"));
    const json_t *part = json_object_get(one, "part");
    if (strstr(name, "attn_qkv"))
      cr_expect_str_eq(json_string_value(part), parts[found++ % 3]);
    else
      cr_expect(json_is_null(part), "%s", name);
  }
  cr_expect_eq(found, 9);
  json_decref(r);
  result text = shell(FUSED);
  cr_expect(strstr(text.out, "\nblk.2.attn_qkv.weight (v) "), "%s", text.out);
  cr_expect(strstr(text.out, "'quantize --keep'"), "%s", text.out);
  finish(&text);
}

/* Ids mean nothing between models whose vocabularies take a text for other ones. */
Test(accuracy, of_two_vocabularies) {
  static const char *const texts[] = {"-f $D/text", "-f - <$D/text"};
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    char line[512];
    snprintf(line, sizeof line,
             TWO "LC_ALL=C sed 's/\342\226\201Once/\342\226\201Onze/g' "
                 "$ROOT/models/builtin.gguf >$D/b.gguf; "
                 "$H accuracy --against $D/b.gguf %s -q", texts[i]);
    expect_error(line, 2, "makes other tokens of the text", NULL);
  }
}

Test(accuracy, limits_make_it_a_check) {
  result r = shell(TWO "$H accuracy --against f32 -f $D/text --detail 0 --max-kl 1e-9");
  cr_expect_eq(r.status, 1);
  cr_expect(strstr(r.err, "expected at most 1e-09") && strstr(r.out, "KL divergence"), "%s", r.err);
  finish(&r);
  r = shell(TWO "$H accuracy --against f32 -f $D/text --detail 0 --max-kl 1 --min-top1 0.5");
  cr_expect_eq(r.status, 0, "%s", r.err);
  finish(&r);
  r = shell("$H accuracy --against f32 --ids 5,6,7,8,9,10 --detail 0 --max-kl 1 --weights f16");
  cr_expect_eq(r.status, 0, "%s", r.err);
  finish(&r);
}

/* Those that the project ships, on every tier that this CPU has, and as the command takes it;
 * threads do not matter. */
Test(accuracy, digests_of_the_shipped_models) {
  static const char *const models[] = {"builtin", "alibi", "gpt2", "rope", "transformer-2017"};
  for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
    char line[512];
    snprintf(line, sizeof line,
             "tiers=$($H info --cpu | sed -n '/^kernel tiers/s/.*: \\(.*\\) (this CPU).*/\\1/p' | "
             "tr -d ,); echo $tiers; for isa in $tiers ''; do $H accuracy $ROOT/models/%s.gguf -q "
             "--check $ROOT/models/digests/%s.json ${isa:+--isa $isa -t 1} || exit; done",
             models[i], models[i]);
    result r = shell(line);
    cr_expect_eq(r.status, 0, "%s: %s", models[i], r.err);
    cr_assert(strncmp(r.out, "portable", 8) == 0, "%s", r.out);
    size_t tiers = 1;
    for (const char *c = r.out; *c != '\n'; c++) tiers += *c == ' ';
    cr_expect_eq(lines_of(r.out), 1 + tiers + 1, "%s", r.out);
    finish(&r);
  }
  result r = shell("$H accuracy --across-isa -q");
  cr_expect_eq(r.status, 0, "%s", r.err);
  cr_expect(strstr(r.out, "portable") && !strstr(r.out, "OTHER"), "%s", r.out);
  finish(&r);
}

Test(accuracy, a_digest_sees_a_difference) {
  expect_error(TWO
               "$H accuracy -f $D/text --digests $D/a -q; "
               "sed '/logits/y/0123456789abcdef/123456789abcdef0/' $D/a >$D/b; "
               "$H accuracy -f $D/text --check $D/b -q",
               1, "the logits of 2 of 2 parts have other bits (parts 1, 2)", NULL);
  static const char *const damages[][2] = {
      {"s/\"logits\"/\"other\"/", "'logits' of part 1"},
      {"s/\"logits\": \"./\"logits\": \"x/", "'logits' of part 1"},
      {"s/\"ids\": \"./\"ids\": \"/", "'ids' of part 1"},
      {"s/\"arithmetic\"/\"other\"/", "what --digests writes"},
  };
  for (size_t i = 0; i < sizeof damages / sizeof *damages; i++) {
    char line[256];
    snprintf(line, sizeof line, "sed '%s' $ROOT/models/digests/builtin.json >$D/a; "
             "$H accuracy --check $D/a", damages[i][0]);
    expect_error(line, 3, "is not a digest file", damages[i][1]);
  }
  expect_error(TWO
               "$H accuracy -f $D/text --digests $D/a -q; printf ' One more.' >>$D/text; "
               "$H accuracy -f $D/text --check $D/a -q",
               2, "other tokens", NULL);
}

/* One document whatever is asked for, and whatever comes of it. */
Test(accuracy, digests_in_json) {
  json_t *r = document("$H accuracy --digests $D/a --check $ROOT/models/digests/builtin.json "
                       "--across-isa --json -q");
  cr_expect(json_is_true(json_object_get(r, "equal")));
  cr_expect_eq(number(r, "check.parts"), 2);
  cr_expect_eq(json_array_size(json_object_get(r, "parts")), 2);
  cr_expect_str_eq(json_string_value(json_object_get(json_array_get(json_object_get(r, "tiers"), 0),
                                                     "isa")),
                   "portable");
  json_decref(r);
  r = document("$H accuracy --digests $D/a --json --ids 1,2,3 -q");
  cr_expect(json_is_null(json_object_get(r, "equal")) && json_is_null(json_object_get(r, "check")));
  json_decref(r);
  r = document("sed '0,/logits/{/logits/y/0123456789abcdef/123456789abcdef0/}' "
               "$ROOT/models/digests/builtin.json >$D/a; "
               "$H accuracy --check $D/a --json -q 2>$D/error; [ $? = 1 ]");
  json_t *different = json_object_get(json_object_get(r, "check"), "different_parts");
  cr_expect(json_is_false(json_object_get(r, "equal")));
  cr_assert_eq(json_array_size(different), 1);
  cr_expect_eq(json_integer_value(json_array_get(different, 0)), 1);
  json_decref(r);
}

/* Digests that were written over what they are to be checked by would always be equal. */
Test(accuracy, digests_are_not_checked_by_themselves) {
  result r = shell("printf old >$D/a; ln -s a $D/b; $H accuracy --digests $D/b --check $D/a -q; "
                   "echo $?; cat $D/a");
  cr_expect_str_eq(r.out, "2\nold", "%s", r.out);
  cr_expect(strstr(r.err, "is the file of --check, expected another"), "%s", r.err);
  finish(&r);
  r = shell("cd $D; $H accuracy --digests ./a --check a -q; echo $?; ls");
  cr_expect_str_eq(r.out, "3\n", "%s: %s", r.out, r.err);
  finish(&r);
}

/* A tier that is asked for is the highest one compared; one that there is not is an error. */
Test(accuracy, across_tiers_up_to_one) {
  expect_error("$H accuracy --across-isa --isa nope", 2, "--isa: kernel tier 'nope'", NULL);
  expect_error("HEADROW_ISA=nope $H accuracy --across-isa", 2, "HEADROW_ISA: kernel tier 'nope'",
               NULL);
  json_t *r = document("$H accuracy --across-isa --isa portable --ids 1,2,3 --json -q"), *tier;
  size_t i;
  json_array_foreach(json_object_get(r, "tiers"), i, tier) {
    if (i == 0)
      cr_expect(json_is_true(json_object_get(tier, "equal")));
    else
      cr_expect(json_is_null(json_object_get(tier, "equal")) &&
                json_is_string(json_object_get(tier, "reason")));
  }
  cr_expect(i > 0);
  json_decref(r);
}

/* The script that makes the tables, with one model and none of the others: its row is made
 * anew, all others stay. */
Test(accuracy, tables_keep_the_rows_of_models_that_are_not_there) {
  result r = shell(
      TWO "mkdir -p $D/scripts $D/docs $D/models/f32; cp $ROOT/scripts/accuracy.sh $D/scripts; "
          "cp $ROOT/docs/accuracy.md $D/docs; cp $ROOT/models/builtin.gguf $D/models; "
          "cp $ROOT/models/f32/builtin.gguf $D/models/f32; "
          "HEADROW_COMMAND=$H HEADROW_TEST_DATA= HEADROW_TEXT=$D/text sh $D/scripts/accuracy.sh "
          "--write 2>$D/said; echo $?; grep -c 'llama: stories260K, ' $D/said; "
          "diff $ROOT/docs/accuracy.md $D/docs/accuracy.md | grep '^[<>]' | cut -c1-21");
  cr_expect_str_eq(r.out,
                   "0\n3\n< | builtin | q8_0 | \n< | builtin | q8_0, b\n"
                   "> | builtin | q8_0 | \n> | builtin | q8_0, b\n",
                   "%s", r.out);
  finish(&r);
}

/* --- quantize -------------------------------------------------------------------- */

TestSuite(quantize, .timeout = 600);

Test(quantize, wrong_usage) {
  expect_error("$H quantize", 2, "expected IN and OUT", NULL);
  expect_error("$H quantize builtin /nowhere/out.gguf", 3, "/nowhere/out.gguf", NULL);
  expect_error("$H quantize /nowhere.gguf $D/out.gguf", 3, "/nowhere.gguf", NULL);
  expect_error("$H quantize $ROOT/tests/fixtures/families/bloom.safetensors $D/out.gguf", 3,
               "is safetensors, expected a GGUF file", "pack --weights q8_0");
  expect_error("$H quantize builtin $D/out.gguf --keep a", 2, "expected TENSOR=TYPE", NULL);
  /* no note of rows that are no multiple of 32 beside the error */
  expect_error("$H bench --synthetic dim=48,layers=1,heads=2,ffn=80,vocab=260,ctx=64:f32 --save "
               "$D/in.gguf -p 1 -n 0 -r 1 -t 1 -q >$D/log 2>&1; $H quantize $D/in.gguf $D/o.gguf "
               "--keep 'none*=f16'", 2, "no tensor is called", NULL);
  expect_error("$H quantize builtin $D/out.gguf --keep 'none*=f16'", 2, "no tensor is called",
               NULL);
  expect_error("$H quantize builtin $D/out.gguf --max-kl 1", 2, "no text to measure on", NULL);
  expect_error("$H quantize builtin $D/out.gguf -f x", 2, "expected --max-kl", NULL);
  expect_error("$H quantize builtin $D/out.gguf --ids 1,2", 2, "expected --max-kl", NULL);
  expect_error("$H quantize builtin $D/out.gguf --ids 1,2 -f x --max-kl 1", 2, "given twice", NULL);
  expect_error("$H quantize builtin $D/out.gguf --weights f16", 2, "expected --type", NULL);
}

/* F32 out of the int8 file holds the same values: the same bits in fp32 arithmetic; and
 * int8 out of int8 is the file's own. */
Test(quantize, what_can_be_kept_is_kept) {
  result r = shell(
      "$H quantize builtin $D/f32.gguf --type f32 -q >$D/table && "
      "$H accuracy --weights f32 --digests $D/digests -q && "
      "$H accuracy $D/f32.gguf --weights f32 --check $D/digests -q && "
      "$H quantize builtin $D/q8.gguf -q >$D/table && "
      "$H accuracy $D/q8.gguf --check $ROOT/models/digests/builtin.json -q && "
      "$H run $D/q8.gguf -p 'Once upon' -n 5 --temp 0 -q >$D/a && "
      "$H run -p 'Once upon' -n 5 --temp 0 -q | cmp - $D/a");
  cr_expect_eq(r.status, 0, "%s", r.err);
  finish(&r);
}

/* What ships is what anybody makes of the F32 files beside it, on any machine. */
Test(quantize, shipped_files_come_from_their_f32_ones) {
  static const char *const models[] = {"builtin", "alibi", "gpt2", "rope", "transformer-2017"};
  for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
    char line[512];
    snprintf(line, sizeof line,
             "$H quantize $ROOT/models/f32/%s.gguf $D/out.gguf -q >$D/table && "
             "cmp $D/out.gguf $ROOT/models/%s.gguf",
             models[i], models[i]);
    result r = shell(line);
    cr_expect_eq(r.status, 0, "%s: %s %s", models[i], r.out, r.err);
    finish(&r);
  }
}

/* --keep and --calibrate do what they say. */
Test(quantize, types_and_calibration) {
  json_t *table = document(
      TWO
      "$H quantize builtin $D/f32.gguf --type f32 -q >$D/table; "
      "$H quantize $D/f32.gguf $D/out.gguf --calibrate $D/text --keep 'blk.*.attn_?.weight=f16' "
      "--keep blk.0.attn_q.weight=bf16 --json -q");
  json_t *tensor;
  size_t i, halves = 0, blocks = 0;
  json_array_foreach(json_object_get(table, "tensors"), i, tensor) {
    const char *name = json_string_value(json_object_get(tensor, "name"));
    const char *to = json_string_value(json_object_get(tensor, "to"));
    halves += strcmp(to, "F16") == 0;
    blocks += strcmp(to, "Q8_0") == 0;
    if (strcmp(name, "blk.0.attn_q.weight") == 0) cr_expect_str_eq(to, "BF16");
    if (strcmp(to, "Q8_0") == 0) {
      cr_expect(json_is_true(json_object_get(tensor, "compensated")), "%s", name);
      /* what came from int8 goes back there: its own scale is among those tried */
      cr_expect_eq(number(tensor, "relative_rms"), 0.0, "%s", name);
    }
    if (strstr(name, "norm")) cr_expect_str_eq(to, "F32");
  }
  cr_expect_eq(halves, 14, "%zu", halves);
  cr_expect_eq(blocks, 21, "%zu", blocks);
  json_decref(table);
}

Test(quantize, the_mix_that_meets_a_limit) {
  json_t *mixed =
      document(TWO
               "$H quantize builtin $D/f32.gguf --type f32 -q >$D/table; "
               "$H quantize $D/f32.gguf $D/out.gguf --max-kl 5e-5 -f $D/text --json -q && "
               "$H accuracy $D/out.gguf --against $D/f32.gguf -f $D/text --max-kl 5e-5 -q "
               ">$D/table");
  cr_expect(number(mixed, "kl") <= 5e-5 && number(mixed, "kl") > 0);
  cr_expect(number(mixed, "kl_standard_error") > 0);
  cr_expect_eq(number(mixed, "measured_on.tokens"), number(mixed, "measured_on.of"));
  size_t i, halves = 0, blocks = 0;
  json_t *tensor;
  json_array_foreach(json_object_get(mixed, "tensors"), i, tensor) {
    const char *to = json_string_value(json_object_get(tensor, "to"));
    halves += strcmp(to, "F16") == 0;
    blocks += strcmp(to, "Q8_0") == 0;
  }
  cr_expect(halves > 0 && blocks > 0, "%zu, %zu", halves, blocks);
  json_decref(mixed);
  expect_error(TWO
               "$H quantize builtin $D/f32.gguf --type f32 -q >$D/table; "
               "$H quantize $D/f32.gguf $D/out.gguf --max-kl 1e-12 -f $D/text -q",
               1, "with F16 everywhere", NULL);
}

/* Bytes of the weights and the KL divergence of files that quantize makes of one model, told by
 * themselves; each line of options is one. The model is made once, and all of it is one line
 * of shell: starting programs is what takes the time. */
typedef struct cost {
  double bytes, kl;
} cost;

static void costs_of(const char *lines, cost *costs, size_t count) {
  size_t capacity = strlen(lines) + 1024, i, j;
  char *line = malloc(capacity);
  cr_assert(line);
  snprintf(line, capacity,
           SMALL "cat >$D/lines <<'END'\n%sEND\n"
                 "printf '['; while read -r options; do printf \"$comma\"; comma=,; "
                 "eval \"$H quantize $D/in.gguf $D/o.gguf $options --json -q -t 1\" && printf , && "
                 "$H accuracy $D/o.gguf --against $D/in.gguf " IDS
                 " --detail 0 --json -q -t 1; done <$D/lines; printf ']'",
           lines);
  json_t *all = document(line), *tensor;
  free(line);
  cr_assert_eq(json_array_size(all), 2 * count);
  for (i = 0; i < count; i++) {
    const json_t *made = json_array_get(all, 2 * i), *is = json_array_get(all, 2 * i + 1);
    costs[i] = (cost){.kl = number(is, "kl.value")};
    json_array_foreach(json_object_get(made, "tensors"), j, tensor)
        costs[i].bytes += number(tensor, "bytes");
    if (json_is_null(json_object_get(made, "kl"))) continue;
    double error = number(is, "kl.standard_error");
    cr_expect_float_eq(number(made, "kl"), costs[i].kl, 1e-9 * costs[i].kl,
                       "what is told is what the file has");
    cr_expect_float_eq(number(made, "kl_standard_error"), error, 1e-9 * error);
  }
  json_decref(all);
}

/* All mixes of five tensors, each written and measured: none that meets the limit may be
 * smaller by more than a tenth of what F16 costs everywhere. */
Test(quantize, the_mix_is_near_the_cheapest_of_all) {
  static const char *const names[] = {"token_embd", "blk.0.attn_q", "blk.0.attn_v",
                                      "blk.0.ffn_up", "output"};
  enum { NAMES = sizeof names / sizeof *names, SETS = 1 << NAMES };
#define OTHERS "--keep 'blk.0.attn_[ko]*.weight=f16' --keep 'blk.0.ffn_[gd]*.weight=q8_0'"
  char lines[SETS * 512] = "";
  cost all[SETS];
  for (unsigned set = 0; set < SETS; set++) {
    strcat(lines, OTHERS);
    for (unsigned i = 0; i < NAMES; i++)
      snprintf(lines + strlen(lines), sizeof lines - strlen(lines), " --keep %s.weight=%s",
               names[i], set >> i & 1 ? "f16" : "q8_0");
    strcat(lines, "\n");
  }
  costs_of(lines, all, SETS);
  cost int8 = all[0], half = all[SETS - 1];
  cr_assert(half.bytes > int8.bytes && half.kl < int8.kl);
  double limit[3], least[3];
  cost mine[3];
  *lines = '\0';
  for (unsigned part = 0; part < 3; part++) {
    limit[part] = half.kl + (int8.kl - half.kl) * (part + 1) / 4;
    least[part] = INFINITY;
    for (unsigned set = 0; set < SETS; set++)
      if (all[set].kl <= limit[part]) least[part] = fmin(least[part], all[set].bytes);
    snprintf(lines + strlen(lines), sizeof lines - strlen(lines),
             OTHERS " --max-kl %.9g " IDS "\n", limit[part]);
  }
  costs_of(lines, mine, 3);
  for (unsigned part = 0; part < 3; part++) {
    cr_expect(mine[part].kl <= limit[part], "%g of %g", mine[part].kl, limit[part]);
    cr_expect(mine[part].bytes <= least[part] + 0.1 * (half.bytes - int8.bytes),
              "%g bytes, %g would do, %g in F16", mine[part].bytes, least[part], half.bytes);
  }
}

/* What --keep turns into BF16, and what it does to a table, is in the figure too. */
Test(quantize, what_is_kept_is_measured) {
  cost kept;
  costs_of("--keep token_embd.weight=bf16 --keep 'blk.0.attn_?.weight=bf16' --max-kl 1 " IDS "\n",
           &kept, 1);
  cr_expect(kept.kl > 0);
  json_t *r = document(
      "$H quantize $ROOT/models/gpt2.gguf $D/in.gguf --type f32 -q >$D/log; "
      "$H quantize $D/in.gguf $D/o.gguf --keep position_embd.weight=q8_0 --max-kl 1 " IDS
      " -q | sed -n 's/mean KL divergence: \\([^ ]*\\) .*/\\1/p' >$D/kl; "
      "printf '{\"told\": %s, \"is\": ' $(cat $D/kl); "
      "$H accuracy $D/o.gguf --against $D/in.gguf " IDS " --detail 0 --json -q; printf '}'");
  cr_expect_float_eq(number(r, "told"), number(r, "is.kl.value"), 1e-5 * number(r, "told"));
  json_decref(r);
}

/* How much of a text was used is told, and what was left of it. */
Test(quantize, a_text_that_is_cut) {
#define CUT                                                                                        \
  TWO "$H quantize $ROOT/models/gpt2.gguf $D/f32.gguf --type f32 -q >$D/log; "                     \
      "$H quantize $D/f32.gguf $D/o.gguf --calibrate $D/text --max-kl 1 --tokens 9"
  result r = shell(CUT);
  cr_expect_eq(r.status, 0, "%s", r.err);
  unsigned all, scored, of_all, of_scored;
  const char *told = strstr(r.out, "calibrated on 9 of "), *kl = strstr(r.out, " on 9 of ");
  const char *note = strstr(r.err, "--calibrate takes the first 9 of ");
  const char *second = strstr(r.err, "--max-kl takes the first 9 of ");
  cr_assert(told && kl && note && second, "%s%s", r.out, r.err);
  while (strstr(kl + 1, " on 9 of ")) kl = strstr(kl + 1, " on 9 of ");
  sscanf(told, "calibrated on 9 of %u", &all);
  sscanf(kl, " on 9 of %u", &scored);
  sscanf(note, "--calibrate takes the first 9 of %u", &of_all);
  sscanf(second, "--max-kl takes the first 9 of %u", &of_scored);
  cr_expect_eq(all, of_all);
  cr_expect_eq(scored, of_scored);
  cr_expect_eq(scored + 2, all, "the first token of each part is scored by none");
  cr_expect(strstr(kl, "too few for a standard error"), "%s", r.out);
  finish(&r);
  json_t *json = document(CUT " --json -q");
  cr_expect_eq(number(json, "calibrated_on.tokens"), 9);
  cr_expect_eq(number(json, "calibrated_on.of"), all);
  cr_expect_eq(number(json, "measured_on.tokens"), 9);
  cr_expect_eq(number(json, "measured_on.of"), scored);
  cr_expect(json_is_null(json_object_get(json, "kl_standard_error")) &&
            json_is_string(json_object_get(json, "reason")));
  json_decref(json);
}

/* The place of a tensor's data from the end of a GGUF file of whole blocks of alignment. */
static long from_end(const char *file, const char *name) {
  char line[256];
  snprintf(line, sizeof line, "%s $H quantize $D/%s $D/o.gguf --type f32 --json -q", SMALL, file);
  json_t *table = document(line), *tensor;
  long bytes = 0;
  bool here = false;
  size_t i;
  json_array_foreach(json_object_get(table, "tensors"), i, tensor) {
    here = here || strcmp(json_string_value(json_object_get(tensor, "name")), name) == 0;
    if (here) bytes += (long)number(tensor, "bytes");
  }
  json_decref(table);
  return bytes;
}

/* 1e6 among the weights of values: they go over the range of an F16 cache, that of the
 * candidate, and not of the original in fp32. */
Test(quantize, names_the_model_whose_cache_overflows) {
  char line[1024];
  snprintf(line, sizeof line,
           SMALL "printf '\\000\\044\\164\\111' | dd of=$D/in.gguf bs=1 conv=notrunc status=none "
                 "seek=$(($(stat -c %%s $D/in.gguf) - %ld)); $H quantize $D/in.gguf $D/o.gguf "
                 "--max-kl 1 " IDS " -q", from_end("in.gguf", "blk.0.attn_v.weight"));
  expect_error(line, 5, "the candidate: ", "--cache f32");
}

/* 1e5, the last weight of the file, is no F16: its tensor stays int8, and is named. */
Test(quantize, a_tensor_that_f16_can_not_hold_stays_int8) {
  result r = shell(SMALL
                   "printf '\\000\\120\\303\\107' | dd of=$D/in.gguf bs=1 conv=notrunc status=none "
                   "seek=$(($(stat -c %s $D/in.gguf) - 4)); "
                   "$H quantize $D/in.gguf $D/out.gguf --max-kl 5e-5 " IDS " && "
                   "$H accuracy $D/out.gguf --against $D/in.gguf --max-kl 5e-5 " IDS
                   " -q >$D/log");
  cr_expect_eq(r.status, 0, "%s", r.err);
  cr_expect_str_eq(r.err, "note: 'output.weight' stays Q8_0: it has values outside of the range "
                          "of F16\n");
  const char *line = strstr(r.out, "\noutput.weight ");
  cr_assert(line);
  cr_expect(strstr(line, "Q8_0") && strstr(line, "Q8_0") < strchr(line + 1, '\n'), "%s", r.out);
  cr_expect(strstr(r.out, " F16 "), "some are: %s", r.out);
  finish(&r);
}

/* llama.cpp ends on a norm, a bias or a table of token types that is not F32. */
Test(quantize, keeps_no_type_that_llama_cpp_does_not_run) {
  static const char *const rules[] = {"blk.0.attn_norm.weight=q8_0", "output_norm.weight=f16",
                                      "*norm*=bf16", "*=q8_0"};
  for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
    char line[256];
    snprintf(line, sizeof line,
             "$H quantize builtin $D/o.gguf --keep '%s' -q; s=$?; ls $D; exit $s", rules[i]);
    expect_error(line, 2, "norm.weight'", "llama.cpp does not run");
  }
  expect_error("$H quantize $ROOT/models/gpt2.gguf $D/o.gguf --keep '*.bias=f16' -q", 2, ".bias'",
               "llama.cpp does not run");
  result r = shell("$H quantize builtin $D/o.gguf --keep '*norm*=f32' -q");
  cr_expect_eq(r.status, 0, "%s", r.err);
  finish(&r);
}

/* A device stays one; nothing is left of a file that could not be written whole. */
Test(quantize, leaves_no_half_file) {
  expect_error("$H quantize builtin /dev/full -q", 3, "/dev/full", NULL);
  result r =
      shell("trap '' XFSZ; ulimit -f 64; $H quantize builtin $D/out.gguf -q; echo $?; ls $D");
  cr_expect_str_eq(r.out, "3\n");
  finish(&r);
  r = shell("trap '' XFSZ; ulimit -f 64; $H quantize builtin $D/out.gguf --max-kl 1 " IDS
            " -q; echo $?; ls $D");
  cr_expect_str_eq(r.out, "3\n", "%s", r.err);
  finish(&r);
}

/* A link stays one, and what it leads to is replaced; output that goes to the file is no
 * place for it. */
Test(quantize, writes_behind_a_link) {
  result r = shell("mkdir $D/far; echo old >$D/far/file; ln -s far/file $D/link; "
                   "$H quantize builtin $D/link -q >$D/table && test -L $D/link && "
                   "head -c 4 $D/far/file && ls $D/far");
  cr_expect_eq(r.status, 0, "%s", r.err);
  cr_expect_str_eq(r.out, "GGUFfile\n");
  finish(&r);
  expect_error("ln -s nowhere $D/lost; $H quantize builtin $D/lost -q", 3, "/lost: ", NULL);
  expect_error("$H quantize builtin /dev/stdout -q >$D/o.gguf", 3, "/dev/stdout: ",
               "takes the standard output too");
  r = shell("$H quantize builtin /dev/stdout -q | head -c 4");
  cr_expect_str_eq(r.out, "GGUF");
  finish(&r);
}

/* One matrix of 2 x 32 with a value at its place (1, 5), as $D/in.gguf of the line. */
static void expect_refused(float value, const char *type, const char *part) {
  gguf_writer w;
  float data[64];
  for (size_t i = 0; i < 64; i++) data[i] = (float)i;
  data[37] = value;
  gguf_writer_init(&w);
  gguf_put_string(&w, "general.architecture", "none");
  gguf_put_tensor(&w, "good.weight", GGUF_TENSOR_F32, 2, (uint64_t[]){32, 1}, data, 128);
  gguf_put_tensor(&w, "bad.weight", GGUF_TENSOR_F32, 2, (uint64_t[]){32, 2}, data, sizeof data);
  size_t size;
  unsigned char *file = gguf_writer_finish(&w, &size);
  char path[] = "/tmp/headrow-test-XXXXXX", line[256];
  FILE *out = fdopen(mkstemp(path), "wb");
  cr_assert(out && fwrite(file, 1, size, out) == size);
  fclose(out);
  free(file);
  snprintf(line, sizeof line, "$H quantize %s $D/out.gguf --type %s -q; s=$?; ls $D; exit $s", path,
           type);
  expect_error(line, 5, part, NULL);
  remove(path);
}

Test(quantize, names_the_tensor_that_can_not_be_held) {
  expect_refused((float)NAN, "q8_0", "tensor 'bad.weight': element 5 of row 1 is NaN");
  expect_refused((float)INFINITY, "f32", "tensor 'bad.weight': element 5 of row 1 is infinite");
  expect_refused(1e5f, "f16",
                 "tensor 'bad.weight': 100000 in row 1 is outside of the range of F16");
  expect_refused(1e8f, "q8_0",
                 "tensor 'bad.weight': 1e+08 in row 1 is outside of the range of Q8_0");
}

/* Of a whole model, and of its weights in fp32 products. */
typedef struct loss {
  double all, weights;
} loss;

/* Mean KL divergences of a file that `make` writes, $D/o.gguf, or of NAME-q8_0.gguf. */
static loss loss_of(size_t m, const char *make) {
  char line[1536];
  snprintf(line, sizeof line,
           DATA_IDS "W=%s; C=$HEADROW_TEST_DATA/corpora/tinystories_sample_2mb.txt; %s "
                    "$H accuracy %s%s --against $W %s --detail 0 --json -q",
           trained[m].whole, make, *make ? "$D/o" : trained[m].name, *make ? ".gguf" : "-q8_0.gguf",
           trained[m].text);
  json_t *r = document(line);
  loss kl = {number(r, "kl.value"), number(r, "kl.weights_alone.value")};
  json_decref(r);
  return kl;
}

/* Against plain rounding, which the q8_0 files hold; the wider model needs the longer text. */
Test(quantize, loses_less_than_plain_rounding) {
  if (!data_folder()) cr_skip_test("HEADROW_TEST_DATA is not set");
  static const int tokens[TRAINED] = {8192, 32768};
  for (size_t m = 0; m < TRAINED; m++) {
    char make[128];
    snprintf(make, sizeof make, "$H quantize $W $D/o.gguf --tokens %d --calibrate $C -q >$D/t;",
             tokens[m]);
    loss plain = loss_of(m, ""), calibrated = loss_of(m, make);
    loss searched = loss_of(m, "$H quantize $W $D/o.gguf -q >$D/t;");
    cr_expect_lt(searched.weights, 0.8 * plain.weights, "%s", trained[m].name);
    cr_expect_lt(calibrated.weights, 0.5 * plain.weights, "%s", trained[m].name);
    cr_expect_lt(calibrated.all, 0.75 * plain.all, "%s", trained[m].name);
  }
}
