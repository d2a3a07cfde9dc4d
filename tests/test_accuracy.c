/* SPDX-License-Identifier: MIT
 * The commands that tell what a model is worth, from outside. */
#include <criterion/criterion.h>
#include <jansson.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/shell.h"

TestSuite(perplexity, .timeout = 300);

static void expect_error(const char *line, int status, const char *part) {
  result r = shell(line);
  cr_expect_eq(r.status, status, "%s: %d, %s", line, r.status, r.err);
  cr_expect_eq(r.out_bytes, 0, "%s printed %s", line, r.out);
  cr_expect_eq(lines_of(r.err), 1, "%s: more than a line: %s", line, r.err);
  cr_expect(strncmp(r.err, "headrow: ", 9) == 0 && strstr(r.err, part), "%s: %s", line, r.err);
  finish(&r);
}

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
  expect_error("$H perplexity", 2, "none given, expected one of -f and --ids");
  expect_error("$H perplexity -f a --ids 1", 2, "given twice");
  expect_error("$H perplexity -f /nowhere", 3, "/nowhere");
  expect_error("$H perplexity -f /dev/null", 2, "no token to score");
  expect_error("$H perplexity --ids 7", 2, "no token to score");
  expect_error("$H perplexity --ids 1,2,99999", 2, "99999");
  expect_error("$H perplexity --ids 1,2,3 -c 8 --stride 9", 2, "at most the context of 8");
  expect_error("printf '1 2\\n3 x\\n' >$D/ids; $H perplexity --ids @$D/ids", 2, "'x'");
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
  json_t *two = document("printf '" STORY "<|endoftext|>\\n" STORY "\\n<|endoftext|> \\n' | "
                         "$H perplexity --json -f -");
  json_t *other = document("printf '" STORY "##" STORY "' | $H perplexity --json --split '##' -f -");
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
  static const struct { const char *ids; int from; } by_hand[] = {
      {"5,6,7,8,9", 0}, {"7,8,9,10,11", 2}};
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
  json_t *words = document("$H perplexity $HEADROW_TEST_DATA/stories260K/stories260K.gguf --json "
                           "-f $HEADROW_TEST_DATA/corpora/tinystories_sample_cs336.txt");
  cr_expect_float_eq(number(words, "mean_nll"), 1.266441, 1e-5);
  cr_expect_eq(number(words, "tokens"), 1804);
  cr_expect(number(words, "standard_error") > 0.02 && number(words, "standard_error") < 0.1);
  json_decref(words);
  json_t *ids = document("tr -d ' \\n' <$HEADROW_TEST_DATA/corpora/ids_656k.json | "
                         "sed 's/\\],\\[/\\n/g; s/[][]//g' >$D/ids; $H perplexity --json --ids @$D/ids "
                         "$HEADROW_TEST_DATA/tinystories-656k/tinystories656k-f32.gguf");
  cr_expect_float_eq(number(ids, "mean_nll"), 3.015974, 1e-5);
  cr_expect_eq(number(ids, "tokens"), 853);
  json_decref(ids);
}

/* In the order of what they throw away; q6_k holds Q8_0 only. */
Test(perplexity, of_quantized_files_in_the_order_of_their_damage) {
  if (!data_folder()) cr_skip_test("HEADROW_TEST_DATA is not set");
  static const char *const types[] = {"f16", "q8_0", "q6_k", "q5_1", "q5_0", "q4_1", "q4_0"};
  double before = 0;
  for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
    char line[512];
    snprintf(line, sizeof line,
             "tr -d ' \\n' <$HEADROW_TEST_DATA/corpora/ids_656k.json | sed 's/\\],\\[/\\n/g; "
             "s/[][]//g' >$D/ids; $H perplexity --json --ids @$D/ids "
             "$HEADROW_TEST_DATA/tinystories-656k/tinystories656k-%s.gguf", types[i]);
    json_t *scored = document(line);
    double nll = number(scored, "mean_nll");
    cr_expect(strcmp(types[i], "q6_k") == 0 ? nll == before : nll > before, "%s: %g after %g",
              types[i], nll, before);
    before = nll;
    json_decref(scored);
  }
}
