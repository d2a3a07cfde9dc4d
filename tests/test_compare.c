/* SPDX-License-Identifier: MIT
 * headrow compare on stored files of machines that were invented, and on files
 * that are wrong. HEADROW_COMMAND names the program. */
#include <criterion/criterion.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/schema.h"
#include "tests/support/shell.h"

TestSuite(compare, .timeout = 300);

/* Lines of shell begin with these: the two files under short names. */
#define FIXTURES HEADROW_SOURCE_ROOT "/tests/fixtures/bench_invented_"
#define LAPTOP "cp " FIXTURES "laptop.json $D/laptop.json; "
#define BOARD "cp " FIXTURES "board.json $D/board.json; "
#define BOTH LAPTOP BOARD "cd $D; "
#define PAGE(files) "$H compare -q " files " --html p.html >/dev/null && cat p.html"
#define INVENTED "this machine is invented: no such thing was measured"

static json_t *load(const char *name) {
  char path[512];
  json_error_t error;
  snprintf(path, sizeof path, "%s%s.json", FIXTURES, name);
  json_t *document = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
  cr_assert_not_null(document, "%s: %s", path, error.text);
  return document;
}

static result compared(const char *line) {
  result r = shell(line);
  cr_expect_eq(r.status, 0, "%s: %s", line, r.err);
  cr_expect(!strstr(r.out, "nan") && !strstr(r.out, "inf "), "%s", r.out);
  return r;
}

static void expect_words(const char *text, const char *const *words, size_t count) {
  for (size_t i = 0; i < count; i++)
    cr_expect(strstr(text, words[i]), "no '%s' in %s", words[i], text);
}
#define EXPECT_WORDS(text, ...)                             \
  expect_words(text, (const char *const[]){__VA_ARGS__},    \
               sizeof((const char *const[]){__VA_ARGS__}) / sizeof(const char *))

/* --- Files that are right ---------------------------------------------------------- */

Test(compare, the_stored_files_are_as_the_schema_says) {
  static const char *const names[] = {"laptop", "board"};
  json_error_t error;
  json_t *schema = json_load_file(HEADROW_SOURCE_ROOT "/perf/schema.json", 0, &error);
  cr_assert_not_null(schema, "%s", error.text);
  for (size_t i = 0; i < 2; i++) {
    char text[512] = "";
    json_t *d = load(names[i]);
    cr_expect(schema_allows(schema, d, text, sizeof text), "%s", text);
    cr_expect(strstr(json_string_value(json_object_get(json_object_get(d, "machine"), "cpu")),
                     "invented"));
    json_decref(d);
  }
  json_decref(schema);
}

/* 2100 and 210, 200 and 30 tokens/s; limits of 3000 and 300, 250 and 50. */
Test(compare, rates_are_explained) {
  result r = compared(BOTH "$H compare laptop.json board.json");
  EXPECT_WORDS(
      r.out, "prompt 512: laptop is 10.00 times as fast as board (2100.0 and 210.0 tokens/s)",
      "Both are limited by int8 products",
      "10.00 times the rate that board could reach (1000 GOP/s by 4 threads with avx2, against 100 "
      "GOP/s by 4 threads with dotprod)",
      /* 3000 MHz to 1116 */
      ", 2.69 times the clock x 1.00 times the threads x 3.72 times the work of a thread in one "
      "clock; ",
      "2 tests: board does 0.10 to 0.15 times the tokens/s of laptop; it is faster in none. In 1 "
      "test both are limited by int8 products: the limit of board allows 0.10 times what that of "
      "laptop does, and board reaches 1.00 times the share of it. In 1 test both are limited by "
      "reading memory: the limit of board allows 0.20 times what that of laptop does, and board "
      "reaches 0.75 times the share of it. board ran at 1116 MHz. board throttled in 4 of 10 "
      "samples of all tests. laptop ran at 3000 MHz.\n\nprompt 512: ",
      "10.00 x 1.00 = 10.00", "generate 128: laptop is 6.67 times as fast as board",
      "Both are limited by reading memory", "35.75 GB/s by 4 threads, against 7.15 GB/s",
      "5.00 x 1.33 = 6.67", "2 of 5 samples of board were disturbed, such as: other programs",
      "an invented laptop", "an invented board", "6.1.0-invented",
      "4: physical cores of the board", "70.0 % int8", "60.0 % read, 2 of 5 disturbed",
      "35.75", "(0.20 x)");
  cr_expect(!strstr(r.out, "arithmetic "), "what does not differ is not shown: %s", r.out);
  cr_expect_str_eq(r.err, "note: laptop: bench warned: " INVENTED "\n"
                          "note: board: bench warned: " INVENTED "\n");
  finish(&r);
}

Test(compare, values_for_programs) {
  result r = compared(BOTH "$H compare --csv laptop.json board.json");
  cr_expect_eq(lines_of(r.out), 1 + 4, "%s", r.out);
  EXPECT_WORDS(r.out,
               "prompt,512,0,laptop.json,smollm2-135m:q8_0,avx2,4,2100,2058,21,1,int8,70,true,5,0,",
               "generate,128,0,board.json,smollm2-135m:q8_0,dotprod,4,30,29.4,0.3,0.15,read,60,"
               "true,5,2,");
  finish(&r);
  r = compared(BOTH "$H compare --md laptop.json board.json");
  EXPECT_WORDS(r.out, "| work | file | tier |", "|---|---|---|---:|", "| prompt 512 | board |",
               "- prompt 512: laptop is");
  finish(&r);
}

Test(compare, one_file_and_none) {
  result r = compared(BOTH "$H compare laptop.json --html p.html && grep -c 'class=row' p.html");
  EXPECT_WORDS(r.out, "prompt 512    laptop", "\n4\n");
  cr_expect(!strstr(r.out, "what differs"), "%s", r.out);
  finish(&r);
  r = shell("$H compare");
  cr_expect(r.status == 2 && strstr(r.err, "expected"), "%s", r.err);
  finish(&r);
}

Test(compare, a_slowdown_can_be_forbidden) {
  static const struct {
    const char *options;
    int status;
    size_t lines;
  } all[] = {{"laptop.json board.json --max-slowdown 11", 0, 0},
             {"laptop.json board.json --max-slowdown 8", 1, 1},
             {"laptop.json board.json --max-slowdown 5", 1, 2},
             {"board.json laptop.json --max-slowdown 1", 0, 0},
             {"laptop.json laptop.json --max-slowdown 1", 0, 0},
             {"laptop.json --max-slowdown 2", 3, 1},
             {"laptop.json board.json --max-slowdown 0", 2, 1},
             {"laptop.json board.json --max-slowdown x", 2, 1}};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    char line[1024];
    snprintf(line, sizeof line, BOTH "$H compare -q %s", all[i].options);
    result r = shell(line);
    cr_expect_eq(r.status, all[i].status, "%s: %d %s", all[i].options, r.status, r.err);
    cr_expect_eq(lines_of(r.err), all[i].lines, "%s: %s", all[i].options, r.err);
    finish(&r);
  }
}

/* 3000 of 3200 MHz against 1116 of 1800; the board throttled in 2 of 5 samples. */
Test(compare, the_state_of_the_machines_is_told) {
  static const char throttled[] =
      "not readable: the system has neither counters (thermal_throttle) nor a firmware's flags";
  static const char energy[] =
      "not readable: the system has no counter of energy (powercap, hwmon)";
  result r = compared(BOTH "$H compare laptop.json board.json");
  EXPECT_WORDS(r.out, "laptop ran at 3000 MHz (94 % of its highest frequency), board at 1116 MHz "
                      "(62 % of its highest frequency): 2.69 times the clock.",
               "2.69 times the clock, which counts little where memory is the limit",
               "At its highest frequency board would have 1.61 times the clock that it had.",
               "board throttled in 2 of 5 samples, at up to 62 C.",
               "3000 MHz, 2990 at least, 94 % of the highest", "62 % of the highest (0.37 x)",
               "all tests: throttled", "all tests: energy",
               "2 of 5 samples", throttled, "61.5 C at most",
               "0.25 J a token", energy);
  cr_expect(!strstr(r.out, "highest frequency laptop would"), "94 %% is not held back");
  finish(&r);
  r = compared(BOTH "$H compare --md laptop.json board.json");
  EXPECT_WORDS(r.out, "| all tests: throttled |", throttled, energy, "| while measuring |");
  finish(&r);
  r = compared(BOTH "$H compare -q --csv laptop.json board.json");
  EXPECT_WORDS(r.out, ",batch,mhz,least_mhz,percent_of_highest_mhz,celsius,throttled,not_readable",
               ",1,3000,2990,93.75,61.5,,throttled: not readable: the system has neither",
               ",1,1116,1110,62,61.5,2,\"joules_per_token: not readable: the system has no");
  finish(&r);
  r = compared(BOTH PAGE("laptop.json board.json"));
  EXPECT_WORDS(r.out, "<h2>While measuring</h2>", "<th>A laptop</th><th>B board</th>",
               "<th>all tests: frequency</th>",
               "2 of 5 samples</td>", "nor a firmware&#39;s flags", energy);
  finish(&r);
}

/* What an older form had not is no 0, and what was not read says why. */
Test(compare, a_state_that_is_not_known) {
  result r = compared(BOTH "sed '/throttled_samples/d; /\"most_mhz\": 1800,/d; /_reason\"/d; "
                           "s/\"schema_version\": 7/\"schema_version\": 3/; /\"types\"/d; "
                           "' board.json >old.json; "
                           "$H compare laptop.json old.json; $H compare -q --csv old.json");
  EXPECT_WORDS(r.err, "note: old: version 3 of the form: throttling, the highest frequency");
  EXPECT_WORDS(r.out, "laptop is 10.00 times as fast as old", "1116 MHz, 1110 at least (0.37 x)",
               "not readable: this version of the form has none",
               "percent_of_highest_mhz: not readable: this version of the form has none");
  cr_expect(!strstr(r.out, "old throttled") && !strstr(r.out, "At its highest"), "%s", r.out);
  finish(&r);
  r = compared(BOTH "sed 's/\"mhz_samples\": .*/\"mhz_samples\": [null, -5, 1e9, \"x\"],/; "
                    "s/\"celsius_samples\": .*/\"celsius_samples\": [null, 1e9],/; "
                    "s/\"frequency_reason\": null/\"frequency_reason\": \"<no> file\"/' "
                    "board.json >x.json; $H compare laptop.json x.json --html p.html; cat p.html");
  EXPECT_WORDS(r.out, "not readable: <no> file", "not readable: &lt;no&gt; file",
               ". laptop ran at 3000 MHz (94 % of its highest frequency). ",
               "not readable: the file gives no reason");
  finish(&r);
  /* of threads that may run anywhere nobody knows the clock */
  r = compared(BOTH "sed 's/\"cpus\": \\[0, 1, 2, 3\\]/\"cpus\": [null, null, null, null]/' "
                    "board.json >x.json; $H compare laptop.json x.json");
  EXPECT_WORDS(r.out, "1116 MHz, 1110 at least, a mean over all CPUs",
               ". laptop ran at 3000 MHz (94 % of its highest frequency). ");
  finish(&r);
}

/* --- Files that differ ------------------------------------------------------------- */

Test(compare, other_versions_of_the_form) {
  result r = compared(BOTH "sed 's/\"schema_version\": 7/\"schema_version\": 8, \"more\": [1]/' "
                           "board.json >new.json; $H compare laptop.json new.json");
  EXPECT_WORDS(r.err, "note: new: version 8 of the form is newer than 7");
  EXPECT_WORDS(r.out, "laptop is 10.00 times as fast as new");
  finish(&r);
  static const struct {
    const char *edit, *note; /* of sed, to what it was; what is said then */
  } older[] = {
      {"/schema_version/s/7/2/; /\"batch\": /d",
       "version 2 of the form: all of its tests are of one sequence"},
      {"/schema_version/s/7/4/; s/read_bytes/read_buffer_bytes/",
       "version 4 of the form: its limit of reading is of other memory"},
      {"/schema_version/s/7/5/; /\"form\": /d",
       "version 5 of the form: the share of what int8 products can have"},
      {"/schema_version/s/7/6/; /_form\": /d; /_in_steps/d",
       "version 6 of the form: its `of form` leaves out what attention"},
  };
  for (size_t i = 0; i < sizeof older / sizeof *older; i++) {
    char *line;
    cr_assert_gt(asprintf(&line, BOTH "sed '%s' board.json "
                          ">old.json; $H compare laptop.json old.json", older[i].edit), 0);
    r = compared(line);
    free(line);
    EXPECT_WORDS(r.err, older[i].note);
    EXPECT_WORDS(r.out, "laptop is 10.00 times as fast as old");
    finish(&r);
  }
  /* what version 1 had not */
  json_t *d = load("board");
  static const char *const absent[] = {"machine_limits", "scaling", "kernel_rates"};
  for (size_t i = 0; i < 3; i++) json_object_del(d, absent[i]);
  json_object_set_new(d, "schema_version", json_integer(1));
  size_t i;
  json_t *entry;
  json_array_foreach(json_object_get(d, "results"), i, entry) {
    json_object_del(entry, "disturbed");
    json_object_del(entry, "energy");
  }
  char *text = json_dumps(d, 0), *line;
  cr_assert_gt(asprintf(&line,
                        BOTH "cat >old.json <<'END'\n%s\nEND\n$H compare laptop.json old.json",
                        text),
               0);
  r = compared(line);
  EXPECT_WORDS(r.err, "note: old: version 1 of the form");
  EXPECT_WORDS(r.out, "laptop is 10.00 times as fast as old", "60.0 % read\n");
  finish(&r);
  free(line);
  free(text);
  json_decref(d);
}

Test(compare, another_model_has_no_ratio) {
  result r = compared(BOTH "sed 's/\"layers\": 30/\"layers\": 31/; s/smollm2-135m/other/' "
                           "board.json >other.json; $H compare laptop.json other.json");
  EXPECT_WORDS(r.err, "note: other: another model (other:q8_0; laptop has smollm2-135m:q8_0; "
                      "layers: 31, in laptop: 30)");
  cr_expect(!strstr(r.out, "times as fast"), "%s", r.out);
  EXPECT_WORDS(r.out, "70.0 % int8", "60.0 % read", "35.75");
  finish(&r);
  r = shell(BOTH "sed 's/\"layers\": 30/\"layers\": 31/' board.json >other.json; "
                 "$H compare -q --max-slowdown 100 laptop.json other.json");
  cr_expect(r.status == 3 && strstr(r.err, "has another model"), "%d %s", r.status, r.err);
  finish(&r);
}

/* Every member of the record that is the model's own makes it another one. */
Test(compare, all_of_the_model_must_be_the_same) {
  static const char *const edits[][2] = {
      {"s/\"family\": \"llama\"/\"family\": \"qwen2\"/", "family: qwen2, in laptop: llama"},
      {"s/\"parameters\": 134515008/\"parameters\": 134515009/", "parameters: 134515009"},
      {"s/\"layers\": 30/\"layers\": 29/", "layers: 29, in laptop: 30"},
      {"s/\"width\": 576/\"width\": 577/", "width: 577, in laptop: 576"},
      {"s/\"heads\": 9/\"heads\": 18/", "heads: 18, in laptop: 9"},
      {"s/\"kv_heads\": 3/\"kv_heads\": 9/", "key/value heads: 9, in laptop: 3"},
      {"s/\"head_width\": 64/\"head_width\": 32/", "width of a head: 32"},
      {"s/\"ffn_width\": 1536/\"ffn_width\": 1535/", "width of the feed-forward: 1535"},
      {"s/\"vocabulary\": 49152/\"vocabulary\": 49153/", "vocabulary: 49153"},
      {"s/\"weight_bytes\": 143000000/\"weight_bytes\": 144000000/", "bytes of weights: 144000000"},
      {"/\"heads\": 9/d", "heads: not known, in laptop: 9"},
  };
  for (size_t i = 0; i < sizeof edits / sizeof *edits; i++) {
    char line[1024];
    snprintf(line, sizeof line, BOTH "sed '%s' board.json >x.json; $H compare laptop.json x.json",
             edits[i][0]);
    result r = compared(line);
    EXPECT_WORDS(r.err, "note: x: another model", edits[i][1]);
    cr_expect(!strstr(r.out, "times as fast"), "%s: %s", edits[i][0], r.out);
    finish(&r);
  }
  /* names of files are not */
  result r = compared(BOTH "sed 's/smollm2-135m:q8_0/elsewhere.gguf/' board.json >x.json; "
                           "$H compare laptop.json x.json");
  cr_expect(!strstr(r.err, "another model") && strstr(r.out, "times as fast"), "%s", r.err);
  finish(&r);
}

/* A check that could not look must not pass. */
Test(compare, a_slowdown_can_not_hide) {
  static const struct {
    const char *edit, *word;
    int status;
  } all[] = {
      {"s/\"digest\": \"1-./\"digest\": \"1-f/", "prompt 512 ended in other logits (1-f", 1},
      {"s/\"digest\": \"1-/\"digest\": \"2-/", "of another arithmetic", 3},
      {"/\"digest\": /d", "has no digest", 3},
      {"/\"tokens\": 512/{n;s/0/256/}", "x.json: has no prompt 512", 3},
      {"s/\"heads\": 9/\"heads\": 18/", "x.json: has another model", 3},
  };
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    char line[1024];
    snprintf(line, sizeof line, LAPTOP "cd $D; sed '%s' laptop.json >x.json; "
             "$H compare -q --max-slowdown 100 laptop.json x.json", all[i].edit);
    result r = shell(line);
    cr_expect_eq(r.status, all[i].status, "%s: %d %s", all[i].edit, r.status, r.err);
    cr_expect(strstr(r.err, all[i].word) && strstr(r.err, "expected"), "%s: %s", all[i].edit,
              r.err);
    finish(&r);
  }
  /* what is slower is told first by the status, whatever else there is */
  result r = shell(BOTH "sed '/\"tokens\": 512/{n;s/0/256/}' board.json >x.json; "
                        "$H compare -q --max-slowdown 2 laptop.json x.json");
  cr_expect(r.status == 1 && strstr(r.err, "has no prompt 512") &&
                strstr(r.err, "generate 128 takes 6.667 times"), "%d %s", r.status, r.err);
  finish(&r);
}

Test(compare, other_settings_and_results_are_noted) {
  result r = compared(BOTH "sed 's/\"cache\": \"f16\"/\"cache\": \"f32\"/; "
                           "/\"tokens\": 512/{n;s/0/256/}' board.json >b.json; "
                           "$H compare laptop.json b.json");
  EXPECT_WORDS(r.err, "b: the KV cache: f32, in laptop: f16", "b: not measured: prompt 512\n",
               "laptop: not measured: prompt 512 at depth 256\n");
  EXPECT_WORDS(r.out, "prompt 512 at depth 256", "prompt 512 ", "generate 128: laptop is 6.67");
  finish(&r);
  r = compared(BOTH "sed 's/\"digest\": \"1-./\"digest\": \"1-f/' board.json >b.json; "
                    "$H compare laptop.json b.json");
  EXPECT_WORDS(r.err, "laptop and b: prompt 512 ended in other logits");
  finish(&r);
  r = compared(BOTH "sed 's/\"digest\": \"1-/\"digest\": \"2-/' board.json >b.json; "
                    "$H compare laptop.json b.json");
  EXPECT_WORDS(r.err, "laptop and b: prompt 512 was computed by other arithmetics");
  finish(&r);
  r = compared(BOTH "sed 's/\"isa\": null/\"isa\": \"neon\"/; "
                    "s/\"cores\": null/\"cores\": \"0-1\"/' board.json >b.json; "
                    "$H compare laptop.json b.json");
  EXPECT_WORDS(r.err, "b: the kernel tier asked for: neon, in laptop: the best there is\n",
               "b: the cores asked for: 0-1, in laptop: automatic\n");
  finish(&r);
}

/* Tests that differ in the number of sequences are different tests, and make a curve. */
Test(compare, batches_are_tests_of_their_own) {
  result r = compared(BOTH "sed '/\"work\": \"prompt\"/,/\"batch\"/{s/prompt/generate/; "
                           "s/\"tokens\": 512/\"tokens\": 128/; s/\"batch\": 1/\"batch\": 4/}' "
                           "board.json >b.json; $H compare laptop.json b.json --html p.html; "
                           "$H compare -q --csv b.json; cat p.html");
  EXPECT_WORDS(r.out, "generate 128, batch 4", "generate 128: laptop is 6.67 times as fast as b",
               "generate,128,0,b.json", ",4,1116,", "generate 128, by sequences at once",
               /* 2 x 73.728e9 multiply-adds of 512 tokens at 210 a second */
               "b: generate 128, batch 4, 1.03e+03 operations a byte, 60.48 billion a second");
  EXPECT_WORDS(r.err, "laptop: not measured: generate 128, batch 4\n");
  finish(&r);
}

Test(compare, files_of_one_name_are_told_apart) {
  result r = compared(BOTH "mkdir x; cp board.json x/laptop.json; "
                           "$H compare laptop.json x/laptop.json");
  EXPECT_WORDS(r.out, "laptop is 10.00 times as fast as laptop (2)");
  finish(&r);
}

static char *kernel(const char *isa, const char *slot, const char *shape, int rate, int limit) {
  char *text;
  cr_assert_gt(asprintf(&text,
                        "{\"isa\": \"%s\", \"kernel\": \"%s__%s\", \"group\": \"q8\", \"shape\": "
                        "\"%s\", \"threads\": 1, \"unit\": \"GOP/s\", \"rate\": %d, \"bound\": "
                        "\"int8\", \"limit\": %d, \"percent\": %d, \"valid\": true}",
                        isa, slot, isa, shape, rate, limit, 100 * rate / limit),
               0);
  return text;
}

/* One kernel by two tiers against the same by a third; a second that one file has. */
Test(compare, kernels_of_other_tiers_are_matched) {
#define HEAD                                                                         \
  "{\"schema\": \"headrow-bench\", \"schema_version\": 3, \"results\": [], "         \
  "\"kernel_rates\": ["
  char *k[] = {
      kernel("one", "product_q8", "<k>", 50, 200), kernel("two", "product_q8", "<k>", 100, 200),
      kernel("two", "add", "n=8", 1, 2), kernel("x", "product_q8", "<k>", 25, 100)};
  char *line;
  cr_assert_gt(asprintf(&line,
                        "cd $D; cat >a.json <<'END'\n" HEAD "%s,%s,%s]}\nEND\n"
                        "cat >b.json <<'END'\n" HEAD "%s]}\nEND\n"
                        "$H compare a.json b.json --html p.html && cat p.html",
                        k[0], k[1], k[2], k[3]),
               0);
  result r = compared(line);
  EXPECT_WORDS(r.out, "product_q8, <k>", "100 GOP/s, 50 % of int8 (two)",
               "25 GOP/s, 25 % of int8 (x) (0.25 x)", "add, n=8", "<h2>Kernels</h2>",
               "product_q8, &lt;k&gt;");
  cr_expect(!strstr(r.out, "(one)"), "%s", r.out);
  finish(&r);
  free(line);
  for (size_t i = 0; i < 4; i++) free(k[i]);
}

/* --- Files that are wrong ---------------------------------------------------------- */

Test(compare, what_is_no_such_file_is_refused_by_name) {
  static const struct {
    const char *make, *word;
  } all[] = {
      {"true", "No such file"},
      {"mkdir x.json", "x.json"},
      {": >x.json", "line 1"},
      {"echo '{' >x.json", "line 2"},
      {"echo '[]' >x.json", "is something else"},
      {"echo '{\"schema\": \"other\", \"schema_version\": 2}' >x.json", "is something else"},
      {"echo '{\"schema\": 5, \"schema_version\": 2}' >x.json", "is something else"},
      {"echo '{\"schema\": \"headrow-bench\"}' >x.json", "version"},
      {"echo '{\"schema\": \"headrow-bench\", \"schema_version\": 1.5}' >x.json", "version"},
      {"echo '{\"schema\": \"headrow-bench\", \"schema_version\": -1}' >x.json", "version"},
      {"echo '{\"schema\": \"headrow-bench\", \"schema_version\": 2}' >x.json", "results"},
      {"echo '{\"schema\": \"headrow-bench\", \"schema_version\": 2, \"results\": [{}]}' >x.json",
       "result 1 is not complete"},
      {"echo '{\"schema\": \"headrow-bench\", \"schema_version\": 2, \"results\": []}' >x.json",
       "has no results"},
      {"echo '{\"schema\": \"headrow-bench\", \"schema_version\": 3, \"results\": [], "
       "\"kernel_rates\": []}' >x.json",
       "has no results"},
      {"sed 's/\"batch\": 1,/\"batch\": 0,/' board.json >x.json", "not complete"},
      {"sed 's/\"batch\": 1,/\"batch\": \"1\",/' board.json >x.json", "not complete"},
      {"sed 's/\"work\": \"generate\"/\"work\": \"<b>\"/' board.json >x.json", "not complete"},
      {"sed 's/\"threads\": 4,/\"threads\": -4,/' board.json >x.json", "not complete"},
      {"sed 's/\"tokens\": 128/\"tokens\": 1e300/' board.json >x.json", "not complete"},
      {"sed 's/\"median\": 30.0/\"median\": 1e999/' board.json >x.json", "line"},
      {"sed 's/\"median\": 30.0/\"median\": -30/' board.json >x.json", "not complete"},
      {"sed 's/\"median\": 30.0/\"median\": 1e308/' board.json >x.json", "not complete"},
      {"sed 's/\"median\": 30.0/\"median\": 1e-308/' board.json >x.json", "not complete"},
      {"sed 's/\"median\": 30.0/\"median\": NaN/' board.json >x.json", "line"},
      {"sed 's/\"median\": 30.0/\"median\": 1e10/' board.json >x.json", "not complete"},
      /* 128 tokens in 4.27 s are 30 a second; 70 % of 300 are 210 */
      {"sed 's/\"median\": 30.0/\"median\": 31/' board.json >x.json",
       "contradicts itself: 31 tokens/s, but 128 tokens in 4.267 s"},
      {"sed 's/\"percent\": 70.0/\"percent\": 71/' board.json >x.json",
       "contradicts itself: 52.5 tokens/s, but 71 % of a limit of 75"},
      {"sed 's/\"percent\": 70.0/\"percent\": 1e-9/' board.json >x.json", "contradicts itself"},
      {"sed -z 's/\"samples\": \\[\\],/\"samples\": [0, 1, 2, 3, 4, 5],/g' board.json >x.json",
       "contradicts itself: 5 samples, but 6 disturbed ones"},
      {"sed 's/\"isa\": \"dotprod\"/\"isa\": null/' board.json >x.json", "not complete"},
  };
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    char line[1024];
    snprintf(line, sizeof line, BOTH "%s; $H compare laptop.json x.json", all[i].make);
    result r = shell(line);
    cr_expect_eq(r.status, 3, "%s: %d %s", all[i].make, r.status, r.err);
    cr_expect(strncmp(r.err, "headrow: x.json: ", 17) == 0 && strstr(r.err, all[i].word), "%s: %s",
              all[i].make, r.err);
    cr_expect_eq(lines_of(r.err), 1, "%s: %s", all[i].make, r.err);
    cr_expect_str_eq(r.out, "", "%s", all[i].make);
    finish(&r);
  }
}

/* What a limit says that was measured too low is not reasoned from. */
Test(compare, what_is_not_valid_explains_nothing) {
  result r = compared(BOTH "sed 's/\"valid\": true/\"valid\": false/; s/\"percent\": [0-9.]*/"
                           "\"percent\": 2361/' board.json >x.json; $H compare laptop.json x.json");
  EXPECT_WORDS(r.out, "The limit of x was measured too low", "can't be told", "not valid (int8)");
  cr_expect(!strstr(r.out, "The limit of laptop allows") && !strstr(r.out, "2361"), "%s", r.out);
  finish(&r);
  /* nor is a verdict given on samples that something else took part in */
  r = compared(BOTH
               "sed -z 's/\"samples\": \\[\\],/\"samples\": [0, 1, 2],/g' laptop.json >x.json; "
               "$H compare x.json board.json");
  EXPECT_WORDS(r.out, "10.00 x 1.00 = 10.00",
               "No conclusion: something else took part in most samples of x");
  cr_expect(!strstr(r.out, "The difference is"), "%s", r.out);
  finish(&r);
  r = compared(BOTH "for f in laptop board; do sed -i 's/\"valid\": true/\"valid\": false/; "
                    "s/\"percent\": [0-9.]*/\"percent\": 2361/; s/\"name\": \"int8\"/\"name\": "
                    "\"barrier\"/' $f.json; done; $H compare laptop.json board.json --html p.html; "
                    "cat p.html");
  EXPECT_WORDS(r.out, "The limits of both were measured too low", "not valid (barrier)",
               "<span class=mark>not valid: a limit was measured too low</span>");
  static const char *const absent[] = {"Both are limited by", "waiting for each other",
                                       "The limit of laptop allows", "2361", "The difference is"};
  for (size_t i = 0; i < sizeof absent / sizeof *absent; i++)
    cr_expect(!strstr(r.out, absent[i]), "%s", absent[i]);
  finish(&r);
}

/* Whatever the file says: more than all of a limit can't be reached. */
Test(compare, more_than_all_is_never_valid) {
  result r = compared(BOTH "sed 's/\"percent\": [0-9.]*/\"percent\": 100.5/' board.json >x.json; "
                           "grep -c '\"valid\": true' x.json; $H compare laptop.json x.json");
  EXPECT_WORDS(r.out, "The limit of x was measured too low", "not valid (int8)",
               "not valid (read)");
  cr_expect(!strstr(r.out, "100.5") && !strstr(r.out, "\n0\n"), "%s", r.out);
  finish(&r);
}

Test(compare, what_can_not_be_is_no_sentence) {
  result r = compared(BOTH "sed 's/\"best\": 7150000000.0/\"best\": 1e20/; s/\"most_mhz\": 1800/"
                           "\"most_mhz\": 1e20/' board.json >x.json; "
                           "$H compare laptop.json x.json --html p.html && "
                           "grep -v 'not used' p.html");
  cr_expect(!strstr(r.out, "e+1") && !strstr(r.out, "e+2") && !strstr(r.out, "1000000000"), "%s",
            r.out);
  EXPECT_WORDS(r.err, "numbers are beyond all that can be measured, such as 1e+20: not used\n");
  finish(&r);
}

Test(compare, a_limit_of_another_name) {
  result r = compared(BOTH "sed 's/\"name\": \"int8\"/\"name\": \"moon\"/' board.json "
                           ">x.json; "
                           "$H compare laptop.json x.json");
  EXPECT_WORDS(r.err, "note: x: prompt 512: its limit 'moon' is not known here");
  EXPECT_WORDS(r.out, "What limits it is not known for both.", "Both are limited by reading");
  cr_expect(!strstr(r.out, "moon"), "%s", r.out);
  finish(&r);
}

Test(compare, a_file_without_its_machine) {
  result r = compared(BOTH "sed 's/\"machine\": {/\"machine\": {}, \"other\": {/; "
                           "s/\"by_threads\": \\[/\"by_threads\": [], \"others\": [/' board.json "
                           ">x.json; $H compare laptop.json x.json");
  EXPECT_WORDS(r.err, "note: x: has no record of its machine", "note: x: has no limits of its");
  finish(&r);
}

/* One file of kernels beside one of a model: each is told what the other lacks. */
Test(compare, kernels_beside_a_model) {
  char *k = kernel("x", "add", "n=8", 1, 2), *line;
  cr_assert_gt(asprintf(&line, BOTH "cat >k.json <<'END'\n" HEAD "%s]}\nEND\n"
                                    "$H compare laptop.json k.json && "
                                    "$H compare k.json laptop.json",
                        k),
               0);
  result r = compared(line);
  EXPECT_WORDS(r.err, "note: k: measured kernels only, no model\n",
               "note: k: its kernels are not shown: laptop has none to compare them with\n");
  finish(&r);
  free(line);
  free(k);
}

/* Nothing but what must be there: unknown everywhere, and no number made of it. */
Test(compare, files_that_know_nothing) {
  result r = compared(
      "cd $D; echo '{\"schema\": \"headrow-bench\", \"schema_version\": 2, \"results\": [{\"work\":"
      "\"prompt\", \"tokens\": 4, \"isa\": \"x\", \"threads\": 1, \"tokens_per_second\": "
      "{\"median\": 5}}], \"machine\": 3, \"limits\": {}, \"machine_limits\": [], \"model\": null}'"
      " >x.json; "
      "sed 's/prompt/generate/' x.json >y.json; "
      "$H compare x.json y.json --html p.html && cat p.html");
  EXPECT_WORDS(r.out, "prompt 4", "5.00", "<html", "</html>");
  finish(&r);
}

/* --- The page ---------------------------------------------------------------------- */


Test(compare, the_page_is_whole_and_needs_nothing) {
  result r = compared(BOTH PAGE("laptop.json board.json"));
  EXPECT_WORDS(r.out, "<!doctype html>", "prefers-color-scheme:dark", "width=device-width",
               "<summary><b>prompt 512</b>: laptop is 10.00 times as fast as board",
               "tokens/s).</summary><p> Both are",
               "<p class=why>2 tests: board does 0.10 to 0.15", "Roofline",
               "Reading memory, by threads", "generate 128, by threads", "an invented laptop",
               "class=differs", "70&#8201;% of int8 products", "2 of 5 samples disturbed",
               "210 tokens/s, 0.10&times;, first token after 2.46 s",
               "of the best rate is reached: laptop 4 threads; board 2 threads.", "</html>");
  static const char *const absent[] = {"http", "<script", "src=", "url(", "@import", "nan",
                                       "<link"};
  for (size_t i = 0; i < sizeof absent / sizeof *absent; i++)
    cr_expect(!strstr(r.out, absent[i]), "%s", absent[i]);
  finish(&r);
}

/* Every element that is opened is closed, in order. */
static void expect_balanced(const char *page) {
  static const char *const single[] = {"meta", "br", "line", "circle", "polyline", "rect",
                                       "!doctype"};
  char open[64][16];
  size_t depth = 0;
  for (const char *at = page; (at = strchr(at, '<')); at++) {
    bool end = at[1] == '/', alone = false;
    char name[16] = "";
    sscanf(at + 1 + end, "%15[a-z0-9!]", name);
    cr_assert(name[0], "a stray < at %.30s", at);
    for (size_t i = 0; i < sizeof single / sizeof *single; i++)
      alone = alone || strcmp(single[i], name) == 0;
    if (alone) continue;
    if (!end) {
      cr_assert_lt(depth, 64);
      strcpy(open[depth++], name);
    } else {
      cr_assert(depth && strcmp(open[depth - 1], name) == 0, "</%s> closes <%s>: %.60s", name,
                depth ? open[depth - 1] : "nothing", at);
      depth--;
    }
  }
  cr_expect_eq(depth, 0);
}

Test(compare, hostile_names_stay_text) {
  static const char evil[] = "<img src=x onerror=\"alert('1')\">&amp;</style></title>\\u0007";
  static const char *const keys[][2] = {{"machine", "cpu"},     {"machine", "kernel"},
                                        {"model", "name"},      {"program", "compiler"},
                                        {"machine", "governor"}, {NULL, "time"}};
  json_t *d = load("board"), *bad = json_loads("[\"\\u0007<i>\"]", 0, NULL);
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
    json_object_set_new(keys[i][0] ? json_object_get(d, keys[i][0]) : d, keys[i][1],
                        json_string(evil));
  size_t i;
  json_t *r, *parts[2] = {json_object_get(d, "results"), json_object_get(d, "limits")};
  for (size_t p = 0; p < 2; p++)
    json_array_foreach(parts[p], i, r) json_object_set_new(r, "isa", json_string("</svg><i>\a"));
  json_array_foreach(parts[0], i, r) {
    json_object_set(r, "digest", json_array_get(bad, 0));
    json_object_set_new(json_object_get(r, "limit"), "name", json_string("<script>\a"));
  }
  char *text = json_dumps(d, 0), *line;
  cr_assert_gt(asprintf(&line,
                        BOTH "cat >'<b>|,\".json' <<'END'\n%s\nEND\n"
                             "$H compare laptop.json '<b>|,\".json' --html p.html >table && "
                             "! grep -q '[[:cntrl:]]' table && cat p.html",
                        text),
               0);
  result page = compared(line);
  expect_balanced(page.out);
  static const char *const absent[] = {"<img", "<script", "<i>", "<b>|", "onerror=\"", "\a"};
  for (i = 0; i < sizeof absent / sizeof *absent; i++) {
    const char *at = strstr(page.out, absent[i]);
    if (at && strncmp(at, "<i></i>", 7) == 0) continue; /* the legend's own */
    cr_expect_null(at, "%s: %.60s", absent[i], at);
  }
  EXPECT_WORDS(page.out, "&lt;img src=x onerror=&quot;alert(&#39;1&#39;)&quot;&gt;&amp;amp;",
               "&lt;b&gt;|,&quot;");
  cr_expect(!strchr(page.err, '\a'), "a control character on the terminal");
  finish(&page);
  free(line);
  cr_assert_gt(asprintf(&line, BOTH "cat >'<b>|,\".json' <<'END'\n%s\nEND\n"
                                    "$H compare -q laptop.json '<b>|,\".json' --csv",
                        text),
               0);
  result csv = compared(line);
  EXPECT_WORDS(csv.out, "\"<b>|,\"\".json\"");
  cr_expect(!strchr(csv.out, '\a'));
  finish(&csv);
  free(line);
  free(text);
  json_decref(bad);
  json_decref(d);
}

Test(compare, the_page_of_the_stored_files_is_well_formed) {
  result r = compared(BOTH PAGE("laptop.json board.json laptop.json"));
  expect_balanced(r.out);
  finish(&r);
}

/* No two of sixteen look alike: eight colours, twice, the second time striped. */
Test(compare, sixteen_files_are_told_apart) {
  result r = compared(BOTH "for i in $(seq 16); do cp board.json m$i.json; done; "
                           "$H compare -q $(for i in $(seq 16); do echo m$i.json; done) "
                           "--html p.html >/dev/null && cat p.html");
  for (int i = 0; i < 16; i++) {
    char bar[48], name[48];
    snprintf(bar, sizeof bar, "<span class=\"bar c%d%s\"", i % 8, i < 8 ? "" : " p1");
    snprintf(name, sizeof name, "<b>%c</b> m%d<", 'A' + i, i + 1);
    EXPECT_WORDS(r.out, bar, name);
  }
  for (int i = 0; i < 8; i++) {
    char rule[32], colour[32];
    snprintf(rule, sizeof rule, ".c%d{color:var(--c%d)}", i, i);
    snprintf(colour, sizeof colour, "--c%d:#", i);
    const char *light = strstr(r.out, colour), *dark = light ? strstr(light + 1, colour) : NULL;
    EXPECT_WORDS(r.out, rule);
    cr_expect(light && dark && strncmp(light, dark, 12) != 0, "light and dark");
    for (int j = 0; j < i; j++) {
      char other[32];
      snprintf(other, sizeof other, "--c%d:#", j);
      cr_expect_neq(strncmp(strstr(r.out, other) + 6, light + 6, 6), 0, "%d and %d", i, j);
    }
  }
  EXPECT_WORDS(r.out, ".bar.p1", "<rect ");
  expect_balanced(r.out);
  finish(&r);
}

/* Of five files with the same points: 9 and 12 units are what a letter takes at least. */
Test(compare, labels_of_points_that_lie_together) {
  enum { LABELS = 10 };
  double x[LABELS], y[LABELS];
  size_t count = 0;
  result r = compared(BOTH "for i in 1 2 3 4; do cp laptop.json m$i.json; done; "
                           PAGE("laptop.json m?.json"));
  const char *at = strstr(r.out, "Roofline"), *end = strstr(r.out, "Solid roofs");
  cr_assert(at && end);
  while (at && count < LABELS && (at = strstr(at, "<text class=number x=")) && at < end) {
    cr_assert_eq(sscanf(at, "<text class=number x=\"%lf\" y=\"%lf\"", &x[count], &y[count]), 2);
    at++;
    for (size_t i = 0; i < count; i++)
      cr_expect(fabs(x[i] - x[count]) >= 2 * 8.5 || fabs(y[i] - y[count]) >= 11.8,
                "labels %zu and %zu", i, count);
    count++;
  }
  cr_expect_eq(count, LABELS);
  cr_expect(!strstr(r.out, "There is no room"));
  expect_balanced(r.out);
  finish(&r);
}

Test(compare, a_knee_of_disturbed_samples_is_marked) {
  static const char mark[] = "4 threads <span class=mark>(all of its samples were disturbed)";
  result r = compared(BOTH PAGE("laptop.json board.json"));
  cr_expect(!strstr(r.out, mark));
  finish(&r);
  r = compared(BOTH "sed -i -z 's/\"samples\": \\[[^]]*\\],\\( *\\n *\"reasons\"\\)/"
                    "\"samples\": [0, 1, 2, 3, 4],\\1/g' board.json; "
                    PAGE("laptop.json board.json"));
  EXPECT_WORDS(r.out, mark);
  finish(&r);
}

Test(compare, a_page_that_can_not_be_written) {
  result r = shell(BOTH "$H compare laptop.json --html none/p.html");
  cr_expect(r.status == 3 && strstr(r.err, "none/p.html") && r.out_bytes == 0, "%s", r.err);
  finish(&r);
}

/* What bench writes is what compare reads. */
Test(compare, files_of_bench_itself) {
  result r = compared("cd $D; $H bench -q -p 4,8 -n 2 -r 2 -t 1 --json a.json >/dev/null && "
                      "$H bench -q -p 8 -n 2 -r 2 -t 1,2 --json b.json >/dev/null && "
                      "$H compare a.json b.json --html p.html && cat p.html");
  EXPECT_WORDS(r.out, "prompt 8", "generate 2", "tokens/s", "</html>");
  EXPECT_WORDS(r.err, "b: not measured: prompt 4\n");
  expect_balanced(strstr(r.out, "<!doctype"));
  finish(&r);
}
