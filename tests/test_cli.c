/* SPDX-License-Identifier: MIT
 * The headrow command from outside. HEADROW_COMMAND names the program. */
#include <criterion/criterion.h>
#include <sched.h>
#include <jansson.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/gguf_writer.h"
#include "tests/support/shell.h"

#define MODELS HEADROW_SOURCE_ROOT "/models/"
#define FAMILIES HEADROW_SOURCE_ROOT "/tests/fixtures/families/"

TestSuite(cli, .timeout = 300);

static void expect_output(const char *line, const char *out) {
  result r = shell(line);
  cr_expect_eq(r.status, 0, "%s: %s", line, r.err);
  cr_expect_str_eq(r.out, out, "%s", line);
  finish(&r);
}

/* --- Usage -------------------------------------------------------------------- */

Test(cli, unknown_commands_list_the_known) {
  expect_error("$H", 2, "run", "tokenize");
  expect_error("$H frobnicate", 2, "frobnicate", "detokenize");
  expect_error("$H --frobnicate", 2, "--frobnicate", "run");
  expect_error("$H run --frobnicate", 2, "--frobnicate", "--help");
  expect_error("$H run -Z", 2, "-Z", "--help");
  expect_error("$H run builtin another", 2, "another", "model");
}

Test(cli, numbers_are_checked_whole) {
  static const char *const bad[] = {
      "-n abc",
      "-n -1",
      "-n 1x",
      "-n ''",
      "-n 1.5",
      "-n ' 1'",
      "-n +1",
      "-t 0",
      "-t -1",
      "-t 4097",
      "-t two",
      "-c 0",
      "-c -5",
      "--temp nan",
      "--temp inf",
      "--temp -1",
      "--temp 1e99",
      "--temp 0x1",
      "--temp 1,5",
      "--top-k -1",
      "--top-k 1e3",
      "--top-p 0",
      "--top-p 1.1",
      "--min-p -0.1",
      "--min-p 2",
      "--repeat-penalty 0",
      "--seed -1",
      "--seed 1e9",
      "--threads-batch 0",
      "--seed 18446744073709551616",
      "-n 99999999999999999999",
      "-c 99999999999",
      "-n2147483648",
      "--predict=x",
  };
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    char line[128];
    snprintf(line, sizeof line, "$H run %s", bad[i]);
    expect_error(line, 2, "is not valid", "number");
  }
}

Test(cli, other_values_are_checked) {
  expect_error("$H run --weights q3", 2, "q3", "q8_0");
  expect_error("$H run --cache f64", 2, "f64", "f16");
  expect_error("$H run --isa sse", 2, "--isa", "portable");
  expect_error("$H run --cores some", 2, "some", "performance");
  expect_error("$H run --stop ''", 2, "--stop", "not empty");
  expect_error("$H run --quiet=yes", 2, "--quiet", "yes");
  expect_error("$H run -n", 2, "-n", "no value");
  expect_error("$H run -p a -f b", 2, "prompt", "more than once");
  expect_error("$H run --ids 1,x -n 1", 2, "--ids", "'x'");
  expect_error("$H run --ids ,", 2, "--ids", "no ids");
  expect_error("$H run --ids 1,99999999 -n 1", 2, "--ids", "99999999");
  expect_error("$H logits --top 0 -p a", 2, "--top", "1");
  expect_error("$H detokenize", 2, "ids", "none");
}

Test(cli, options_take_their_value_in_every_form) {
  const char *same[] = {"$H run -q --temp 0 -n 4 -p a", "$H run --quiet --temp=0 -n4 --prompt=a",
                        "$H run -qn4 --predict 4 --temp 0 -p a --",
                        "$H run -qpa --temp 0 -n=4 -n 4"};
  result first = shell(same[0]);
  cr_assert_eq(first.status, 0);
  for (size_t i = 1; i < 3; i++) expect_output(same[i], first.out);
  expect_error(same[3], 2, "'=4'", "number");
  finish(&first);
}

Test(cli, help_and_version_go_to_standard_output) {
  static const char *const lines[] = {
      "$H --help",        "$H run --help",  "$H tokenize -h", "$H detokenize --help",
      "$H logits --help", "$H info --help", "$H --version"};
  for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
    result r = shell(lines[i]);
    cr_expect_eq(r.status, 0);
    cr_expect(r.out_bytes > 40 && r.err[0] == '\0', "%s", lines[i]);
    finish(&r);
  }
  result r = shell("$H --version");
  cr_expect(strstr(r.out, "portable") != NULL);
  finish(&r);
}

/* --- Environment ---------------------------------------------------------------- */

static void expect_threads(const char *line, const char *threads) {
  result r = shell(line);
  cr_expect_eq(r.status, 0);
  cr_expect(strstr(r.err, threads) != NULL, "%s: %s", line, r.err);
  finish(&r);
}

Test(cli, option_beats_environment_beats_automatic) {
  expect_threads("HEADROW_THREADS=3 $H run -p a -n 1", "threads: 3,");
  expect_threads("HEADROW_THREADS=3 $H run -p a -n 1 -t 2", "threads: 2,");
  expect_threads("HEADROW_THREADS= $H run -p a -n 1 -t 1", "threads: 1,");
  expect_threads("HEADROW_ISA=portable $H run -p a -n 1", "isa: portable");
  expect_threads("HEADROW_ISA=nonsense $H run -p a -n 1 --isa portable", "isa: portable");
  expect_error("HEADROW_THREADS=abc $H run -p a -n 1", 2, "HEADROW_THREADS", "abc");
  expect_error("HEADROW_THREADS=0 $H run -p a -n 1", 2, "HEADROW_THREADS", "'0'");
  expect_error("HEADROW_ISA=abc $H run -p a -n 1", 2, "HEADROW_ISA", "portable");
}

/* --- Files ---------------------------------------------------------------------- */

Test(cli, bad_model_files_are_refused) {
  expect_error("$H run no-such-file.gguf -p a", 3, "no-such-file.gguf", "No such file");
  expect_error("f=$(mktemp) && $H run $f -p a; s=$?; rm $f; exit $s", 3, "/", "empty");
  expect_error(
      "f=$(mktemp) && echo '<html>not a model</html>' > $f && $H run $f -p a; s=$?; rm $f;"
      " exit $s",
      3, "/", "HTML");
  expect_error("f=$(mktemp) && head -c 100000 " MODELS
               "rope.gguf > $f && $H run $f -p a; s=$?;"
               " rm $f; exit $s",
               3, "/", "bytes");
  expect_error("f=$(mktemp) && head -c 20 " MODELS
               "rope.gguf > $f && $H run $f -p a; s=$?;"
               " rm $f; exit $s",
               3, "/", "bytes");
  expect_error("$H run -f no-such-prompt", 3, "no-such-prompt", "No such file");
  expect_error("$H run -f /", 3, "/", "directory");
  expect_error("$H run --ids @no-such-ids", 3, "no-such-ids", "No such file");
}

Test(cli, long_prompts_are_never_cut) {
  expect_error("$H run -c 8 -p 'Once upon a time there was a little girl' -n 1", 6, "at most 8",
               "tokens");
  expect_error("$H logits -c 2 --ids 1,1,1", 6, "3 tokens", "at most 2");
  expect_error("$H run " MODELS "gpt2.gguf -c 1000000 -p a", 2, "1000000", "at most");
}

/* --- Streams -------------------------------------------------------------------- */

Test(cli, closed_pipes_end_quietly) {
  result r = shell("{ $H run -q --ignore-eos --seed 1 -c 20000 -p a; echo $? >&2; } | head -c 4");
  cr_expect_eq(r.out_bytes, 4);
  cr_expect_str_eq(r.err, "0\n");
  finish(&r);
  r = shell("{ $H info --cpu; echo $? >&2; } | true");
  cr_expect_str_eq(r.err, "0\n");
  finish(&r);
}

Test(cli, failed_writes_are_errors) {
  if (access("/dev/full", W_OK) != 0) cr_skip("there is no /dev/full");
  expect_error("$H run -q -p a -n 4 > /dev/full", 3, "standard output", "space");
  expect_error("$H --help > /dev/full", 3, "standard output", "space");
  expect_error("$H run -q -p a -n 4 >&-", 3, "standard output", "expected");
  expect_error("$H logits -p a --npy /dev/full", 3, "/dev/full", "space");
  expect_error("$H logits -p a --npy - --json", 2, "--npy", "expected a file");
  expect_error("$H logits -p a --npy - --top 3", 2, "--npy", "expected a file");
}

Test(cli, prompts_come_from_everywhere) {
  result r = shell("$H run -q --temp 0 -n 8 -p 'Once upon'");
  cr_assert_eq(r.status, 0);
  expect_output("printf 'Once upon' | $H run -q --temp 0 -n 8", r.out);
  expect_output("echo 'Once upon' | $H run -q --temp 0 -n 8 -f -", r.out);
  expect_output("f=$(mktemp); echo 'Once upon' > $f; $H run -q --temp 0 -n 8 -f $f; rm $f", r.out);
  finish(&r);
  r = shell("$H run -q --temp 0 -n 8");
  cr_expect_eq(r.status, 0, "no prompt at all is fine");
  expect_output("$H run -q --temp 0 -n 8 -p ''", r.out);
  expect_output("$H run -q --temp 0 -n 8 <&-", r.out);
  finish(&r);
}

Test(cli, only_the_answer_is_on_standard_output) {
  result r = shell("$H run --temp 0 -n 8 -p 'Once upon' --digest -v --log kernels");
  result quiet = shell("$H run --temp 0 -n 8 -p 'Once upon' -q");
  cr_expect_str_eq(r.out, quiet.out);
  cr_expect_str_eq(quiet.err, "");
  cr_expect(strchr(r.err, '\033') == NULL && strchr(r.err, '\r') == NULL);
  cr_expect(strstr(r.err, "digest: 1-") && strstr(r.err, "product_q8"));
  finish(&r);
  r = shell("$H run --temp 0 -n 8 -p 'Once upon' -q --no-stream");
  cr_expect_str_eq(r.out, quiet.out);
  finish(&r);
  r = shell("$H run --temp 0 -n 8 -p 'Once upon' -q --echo");
  cr_expect(strncmp(r.out, "Once upon", 9) == 0);
  cr_expect_str_eq(r.out + 9, quiet.out);
  finish(&r);
  finish(&quiet);
}

/* --- Interrupt ------------------------------------------------------------------ */

Test(cli, interrupt_stops_after_the_token) {
  int out[2], err[2];
  cr_assert(pipe(out) == 0 && pipe(err) == 0);
  pid_t child = fork();
  if (child == 0) {
    dup2(out[1], STDOUT_FILENO);
    dup2(err[1], STDERR_FILENO);
    close(out[0]);
    close(err[0]);
    if (!freopen("/dev/null", "r", stdin)) _exit(99);
    execl(getenv("HEADROW_COMMAND"), "headrow", "run", "--ignore-eos", "-c", "200000", "-p", "a",
          (char *)NULL);
    _exit(99);
  }
  close(out[1]);
  close(err[1]);
  char byte;
  cr_assert(read(out[0], &byte, 1) == 1);
  kill(child, SIGINT);
  while (read(out[0], &byte, 1) == 1) continue;
  char text[4096] = "";
  size_t used = 0;
  for (ssize_t n; (n = read(err[0], text + used, sizeof text - 1 - used)) > 0;) used += (size_t)n;
  int wait_status;
  waitpid(child, &wait_status, 0);
  cr_expect_eq(exit_of(wait_status), 130);
  cr_expect(strstr(text, "generated: ") && strstr(text, "interrupted"), "%s", text);
}

/* --- Stop texts and limits -------------------------------------------------------- */

static json_t *run_json(const char *arguments) {
  char line[1024];
  snprintf(line, sizeof line, "$H run -q --json %s", arguments);
  result r = shell(line);
  cr_assert_eq(r.status, 0, "%s: %s", line, r.err);
  json_error_t error;
  json_t *document = json_loads(r.out, JSON_ALLOW_NUL, &error);
  cr_assert(document != NULL, "%s: %s", line, error.text);
  finish(&r);
  return document;
}

static const char *text_of(const json_t *document, const char *key) {
  const char *text = json_string_value(json_object_get(document, key));
  cr_assert(text != NULL, "%s", key);
  return text;
}

static json_int_t number_of(const json_t *document, const char *key) {
  cr_assert(json_is_integer(json_object_get(document, key)), "%s", key);
  return json_integer_value(json_object_get(document, key));
}

Test(cli, json_says_all) {
  json_t *d = run_json("--temp 0 -n 12 --ignore-eos -p 'Once upon a time'");
  cr_expect_str_eq(text_of(d, "finish"), "length");
  cr_expect(strncmp(text_of(d, "digest"), "1-", 2) == 0 && strlen(text_of(d, "digest")) == 18);
  cr_expect_eq(json_array_size(json_object_get(d, "ids")), 12);
  cr_expect(number_of(d, "generated_tokens") == 12 && number_of(d, "prompt_tokens") > 1);
  cr_expect(number_of(d, "seed") >= 0);
  cr_expect(json_is_real(json_object_get(d, "prompt_seconds")));
  cr_expect(json_is_real(json_object_get(d, "generate_seconds")));
  result r = shell("$H run -q --temp 0 -n 12 --ignore-eos -p 'Once upon a time'");
  cr_expect_str_eq(r.out, text_of(d, "text"));
  finish(&r);
  json_decref(d);
}

Test(cli, bytes_that_are_no_text_stay_valid_json) {
  json_t *d = run_json("--temp 0 -n 2 --echo -p \"$(printf 'a\\377\\303')\"");
  cr_expect(strncmp(text_of(d, "text"), "a\xef\xbf\xbd\xef\xbf\xbd", 7) == 0);
  json_decref(d);
}

/* What may become another byte on its way in or out is told, unless -q is given. */
Test(cli, bytes_that_are_no_text_are_told) {
  static const char *const lines[] = {
      "$H run --temp 0 -n 1 -p \"$(printf 'ab\\377')\"",
      "$H tokenize -f $D/text",
      "$H logits -f $D/text",
      "$H chat --template chatml -n 1 <$D/text",
      "$H embed --pooling mean -f $D/text",
      "$H perplexity -f $D/text",
      "$H accuracy --against builtin -f $D/text"};
  char line[256];
  for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
    for (int quiet = 0; quiet < 2; quiet++) {
      snprintf(line, sizeof line, "printf 'ab\\377 c d' >$D/text; %s%s", lines[i],
               quiet ? " -q" : "");
      result r = shell(line);
      cr_expect_eq(r.status, 0, "%s: %s", line, r.err);
      cr_expect_eq(strstr(r.err, "byte 0xff at offset 2 is no UTF-8") != NULL, !quiet, "%s: %s",
                   line, r.err);
      finish(&r);
    }
  result r = shell("printf 'a\\303\\251 \\360\\237\\230\\200' | $H tokenize");
  cr_expect_str_eq(r.err, "");
  finish(&r);
  /* 100 bytes that are no UTF-8 become U+FFFD, each of three byte tokens, behind BOS and a blank */
  r = shell("head -c 100 /dev/zero | tr '\\0' '\\377' |"
            "$H tokenize -q $ROOT/tests/fixtures/spm_bpe.model -f - | wc -w");
  cr_expect_eq(atoi(r.out), 302, "more tokens than bytes: %s%s", r.out, r.err);
  finish(&r);
  r = shell("$H run --json --temp 0 -n 1 --echo -p \"$(printf 'a\\303')\"");
  cr_expect(strstr(r.err, "JSON has U+FFFD"), "%s", r.err);
  finish(&r);
}

Test(cli, stop_texts_never_leak) {
  json_t *free_run = run_json("--temp 0 -n 24 --ignore-eos -p 'Once upon a time'");
  const char *whole = text_of(free_run, "text");
  cr_assert(strlen(whole) > 20);
  /* From inside the text, so that it begins and ends inside tokens. */
  char stop[8] = {0}, line[256];
  memcpy(stop, whole + 9, 4);
  size_t at = (size_t)(strstr(whole, stop) - whole);
  snprintf(line, sizeof line,
           "--temp 0 -n 24 --ignore-eos -p 'Once upon a time' --stop 'never there' --stop '%s'",
           stop);
  if (strchr(stop, '\'')) cr_skip("the text has a quote where the stop text would be");
  json_t *d = run_json(line);
  cr_expect_str_eq(text_of(d, "finish"), "stop");
  cr_expect_eq(strlen(text_of(d, "text")), at);
  cr_expect(strncmp(whole, text_of(d, "text"), at) == 0);
  char command[320];
  snprintf(command, sizeof command, "$H run -q %s", line);
  result r = shell(command);
  cr_expect_str_eq(r.out, text_of(d, "text"), "the stream is the same");
  finish(&r);
  json_decref(d);
  json_decref(free_run);
}

Test(cli, what_only_began_like_a_stop_text_is_printed) {
  json_t *d = run_json("--temp 0 -n 12 --ignore-eos -p 'Once upon a time'");
  const char *whole = text_of(d, "text");
  size_t n = strlen(whole);
  char command[320];
  cr_assert(n > 3);
  if (strchr(whole + n - 3, '\'')) cr_skip("the text ends in a quote");
  snprintf(command, sizeof command,
           "$H run -q --temp 0 -n 12 --ignore-eos -p 'Once upon a time' --stop '%sqqq'",
           whole + n - 3);
  expect_output(command, whole);
  json_decref(d);
}

Test(cli, context_ends_the_answer) {
  json_t *d = run_json("--temp 0 --ignore-eos -c 16 --ids 1,5,6,7");
  cr_expect_str_eq(text_of(d, "finish"), "context");
  cr_expect(number_of(d, "generated_tokens") == 12);
  json_decref(d);
  d = run_json("-c 4 --ids 1,5,6,7");
  cr_expect(number_of(d, "generated_tokens") == 0);
  json_decref(d);
  d = run_json("-n 0 -p a");
  cr_expect_str_eq(text_of(d, "text"), "");
  cr_expect_str_eq(text_of(d, "finish"), "length");
  json_decref(d);
}

Test(cli, the_seed_decides) {
  json_t *drawn = run_json("-n 24 -p 'Once upon a time'");
  char line[128];
  snprintf(line, sizeof line, "-n 24 -p 'Once upon a time' --seed %lld -t 1",
           (long long)number_of(drawn, "seed"));
  json_t *again = run_json(line);
  cr_expect(json_equal(json_object_get(drawn, "ids"), json_object_get(again, "ids")));
  cr_expect_str_eq(text_of(drawn, "digest"), text_of(again, "digest"));
  json_decref(drawn);
  json_decref(again);
  result r = shell("$H run -n 2 -p a");
  cr_expect(strstr(r.err, "seed: ") != NULL);
  finish(&r);
}

/* --- Digests ---------------------------------------------------------------------- */

Test(cli, digests_do_not_depend_on_threads) {
  static const char *const models[] = {"builtin", MODELS "gpt2.gguf", MODELS "alibi.gguf"};
  for (size_t m = 0; m < sizeof models / sizeof *models; m++) {
    char first[32] = "";
    for (int threads = 1; threads <= 3; threads++) {
      char arguments[256];
      snprintf(arguments, sizeof arguments,
               "%s --temp 0 -n 32 --ignore-eos -t %d -p 'Once upon a time there was'", models[m],
               threads);
      json_t *d = run_json(arguments);
      if (threads == 1) snprintf(first, sizeof first, "%s", text_of(d, "digest"));
      cr_expect_str_eq(text_of(d, "digest"), first, "%s with %d threads", models[m], threads);
      json_decref(d);
    }
  }
}

/* --- Tokens and logits -------------------------------------------------------------- */

Test(cli, tokens_come_back_as_text) {
  static const char *const texts[] = {"Once upon a time", "  two  spaces ",
                                      "caf\xc3\xa9 \xf0\x9f\x98\x80", "bad \xff\xc3 bytes",
                                      "line\nline\r\n\ttab"};
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    char line[256];
    snprintf(line, sizeof line,
             "f=$(mktemp); $H tokenize builtin '%s' > $f; $H detokenize builtin --ids @$f; rm $f",
             texts[i]);
    expect_output(line, texts[i]);
    snprintf(line, sizeof line, "$H detokenize $($H tokenize '%s')", texts[i]);
    expect_output(line, texts[i]);
  }
  result r = shell("printf 'a\\0b' | $H tokenize --no-special --pieces");
  cr_expect(strstr(r.out, "\"\\x00\"") != NULL, "%s", r.out);
  finish(&r);
  r = shell("$H tokenize --json 'a'");
  json_t *d = json_loads(r.out, 0, NULL);
  cr_expect(json_array_size(json_object_get(d, "ids")) ==
            json_array_size(json_object_get(d, "pieces")));
  json_decref(d);
  finish(&r);
}

Test(cli, logits_agree_in_every_form) {
  result all = shell("$H logits -p 'Once upon a time' --all");
  result last = shell("$H logits -p 'Once upon a time'");
  cr_assert_eq(all.status, 0);
  cr_expect(lines_of(last.out) == 1 && lines_of(all.out) > 1);
  cr_expect_str_eq(all.out + all.out_bytes - last.out_bytes, last.out);
  result top = shell("$H logits -p 'Once upon a time' --top 3");
  cr_expect_eq(lines_of(top.out), 3);
  const char *logit = strrchr(top.out, ' ') + 1;
  char number[32];
  snprintf(number, sizeof number, "%.*s", (int)strcspn(logit, "\n"), logit);
  cr_expect(strstr(last.out, number) != NULL, "%s", number);
  result json = shell("$H logits -p 'Once upon a time' --top 3 --json");
  json_t *d = json_loads(json.out, 0, NULL);
  json_t *position = json_array_get(json_object_get(d, "positions"), 0);
  cr_expect_eq(json_array_size(json_object_get(position, "top")), 3);
  json_decref(d);
  finish(&all);
  finish(&last);
  finish(&top);
  finish(&json);
}

Test(cli, numpy_files_have_their_shape) {
  result r = shell("$H logits --ids 1,5,6 --all --npy -");
  cr_assert_eq(r.status, 0);
  cr_assert(r.out_bytes > 128 && memcmp(r.out, "\x93NUMPY\x01\x00", 8) == 0);
  size_t header = 10 + (size_t)(unsigned char)r.out[8] + 256 * (size_t)(unsigned char)r.out[9];
  unsigned rows = 0, columns = 0;
  const char *shape = strstr(r.out + 10, "'shape': (");
  cr_assert(shape && sscanf(shape, "'shape': (%u, %u)", &rows, &columns) == 2);
  cr_expect_eq(header % 64, 0);
  cr_expect(rows == 3 && r.out_bytes == header + (size_t)rows * columns * 4);
  cr_expect(r.out[header - 1] == '\n');
  finish(&r);
}

/* --- info ---------------------------------------------------------------------------- */

Test(cli, info_tells_the_acts_apart) {
  static const struct {
    const char *model, *words[4];
  } cases[] = {
      {"builtin", {"RMSNorm", "before the sub-layer", "RoPE", "gated"}},
      {MODELS "transformer-2017.gguf", {"LayerNorm", "after the residual", "sinusoidal", "relu"}},
      {MODELS "gpt2.gguf", {"LayerNorm", "before the sub-layer", "learned", "gelu"}},
      {MODELS "alibi.gguf", {"ALiBi", "causal", "tied", "memory"}},
      {FAMILIES "gemma2.gguf",
       {"before and after", "capped at 2", "a window of 4 tokens", "last of every 2 layers"}},
      {FAMILIES "falcon.safetensors",
       {"one key/value head", "both from the same x", "the same for attention", "LayerNorm"}},
      {FAMILIES "roberta.safetensors", {"full", "position 0 in row 2", "tanh", "a ranking head"}},
      {FAMILIES "llama3.safetensors",
       {"(llama3) from 16", "stretched 8 times", "(i, i + half)", "silu"}},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char line[256];
    snprintf(line, sizeof line, "$H info %s", cases[i].model);
    result r = shell(line);
    cr_expect_eq(r.status, 0);
    for (size_t j = 0; j < 4; j++)
      cr_expect(strstr(r.out, cases[i].words[j]) != NULL, "%s: %s", line, cases[i].words[j]);
    finish(&r);
  }
}

/* Matrices with the values of the file have nothing to lose. */
Test(cli, info_points_to_the_loss) {
  result r = shell("F=$ROOT/tests/fixtures/families/llama3.gguf;"
                   " $H info $F; echo -----; $H info $F --weights f16");
  const char *line = strstr(r.out, "--loss"), *second = strstr(r.out, "-----");
  cr_assert(r.status == 0 && line && second, "%s%s", r.out, r.err);
  cr_expect_gt(line, second);
  finish(&r);
}

Test(cli, info_in_json) {
  result r = shell("$H info builtin --cpu --json");
  cr_assert_eq(r.status, 0);
  json_t *d = json_loads(r.out, 0, NULL);
  json_t *block = json_object_get(json_object_get(d, "model"), "block");
  cr_expect(number_of(block, "layers") > 0 && number_of(block, "width") > 0);
  json_t *memory = json_object_get(json_object_get(d, "model"), "memory");
  json_t *huge = json_object_get(memory, "huge_pages");
  const bool given = json_is_true(json_object_get(huge, "work"));
  const json_int_t least = 2 << 20; /* bytes of a huge page */
  cr_expect(json_is_boolean(json_object_get(huge, "cache")));
  cr_expect(json_is_true(json_object_get(huge, "weights")) ==
            (given && number_of(memory, "weights_bytes") >= least));
  cr_expect(!given || number_of(memory, "work_bytes") >= least);
  json_t *cpu = json_object_get(d, "cpu");
  cr_expect(number_of(cpu, "threads") > 0);
  cr_expect(json_is_string(json_object_get(json_object_get(cpu, "kernels"), "product_q8")));
  json_decref(d);
  finish(&r);
}

/* The first of the CPUs that may be used, as an OpenMP runtime would bind to it. */
Test(cli, warns_of_a_binding_by_the_openmp_runtime) {
  result r = shell(
      "[ $(getconf _NPROCESSORS_ONLN) -gt 1 ] || exit 0\n"
      "c=$(sed -n 's/^Cpus_allowed_list:[^0-9]*\\([0-9]*\\).*/\\1/p' /proc/self/status)\n"
      "OMP_PROC_BIND=true taskset -c $c $H info --cpu 2>$D/e >&2 || exit 1\n"
      "grep -q '^warning: OMP_PROC_BIND is set' $D/e || { cat $D/e; exit 2; }\n"
      "OMP_PROC_BIND=true taskset -c $c $H info --cpu -q 2>$D/e >/dev/null\n"
      "! test -s $D/e || exit 3\n"
      "OMP_PROC_BIND=false taskset -c $c $H info --cpu 2>$D/e >/dev/null\n"
      "! test -s $D/e || exit 4\n"
      "taskset -c $c $H info --cpu 2>$D/e >/dev/null; ! test -s $D/e || exit 5");
  cr_expect_eq(r.status, 0, "%d: %s%s", r.status, r.out, r.err);
  finish(&r);
}

/* --- Threads where no rule knows how many ------------------------------------------- */

/* A fast core and a slow one. What goes wrong is printed. */
Test(cli, trials_are_made_once_and_kept) {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0 || !CPU_ISSET(0, &set) || !CPU_ISSET(1, &set))
    cr_skip_test("CPUs 0 and 1 are not both there");
  result r = shell(
      "export HWLOC_XMLFILE=$ROOT/tests/topologies/pair-1-1.xml XDG_CACHE_HOME=$D\n"
      "run() { $H run -v -p Once -n 2 --temp 0 \"$@\" 2>&1 >$D/out || echo run; }\n"
      "expect() { grep -q \"$2\" $D/$1 || { echo \"no $2\"; cat $D/$1; }; }\n"
      /* On a busy machine nothing is kept, and that is said. */
      "n=0; while run >$D/a; grep -q disturbed $D/a && [ $n -lt 4 ]; do n=$((n + 1)); done\n"
      "expect a 'measuring how many threads'; expect a 'threads by trials'\n"
      "if grep -q disturbed $D/a; then [ ! -e $D/headrow/threads ] || echo kept; exit; fi\n"
      "run >$D/b; expect b 'found earlier by trials'; ! grep measuring $D/b\n"
      "$H info --cpu >$D/c; expect c 'weights of 1 MiB and more: generating [12], prompts [12]'\n"
      /* What was asked for is neither tried nor replaced. */
      "run -t 2 >$D/d; expect d 'threads: 2, for prompts: 2'; ! grep trials $D/d\n"
      /* A line that makes no sense is no result. */
      "sed -i 's/ [0-9]* [0-9]*$/ 9999 -1/' $D/headrow/threads\n"
      "run >$D/e; expect e measuring; grep -q disturbed $D/e || ! grep 9999 $D/headrow/threads\n"
      "export XDG_CACHE_HOME=/proc/none; run >$D/f\n"
      "grep -q disturbed $D/f || expect f \"can't be kept\"\n"
      /* A number that was asked for is not said to be tried. */
      "run --threads-batch 2 >$D/g; expect g 'for prompts: not tried'\n");
  cr_expect_str_eq(r.out, "");
  finish(&r);
}

/* The number after a word, of a line such as "threads: 2, for prompts: 4"; -1: none. */
static int number_after(const char *text, const char *key) {
  const char *at = text ? strstr(text, key) : NULL;
  return at ? atoi(at + strlen(key)) : -1;
}

/* What a session of the model has, and what is said of it before there is one. The runs before
 * are for trials to be kept, which they never are on a busy machine: then it is left out. */
static int expect_told_threads(const char *set, const char *options, bool trials) {
  char line[1024];
  snprintf(line, sizeof line,
           "export XDG_CACHE_HOME=$D %s\n"
           "for i in %s; do test -e $D/headrow/threads || $H run -q -p Once -n 1 >$D/out; done\n"
           "$H run -v -p Once -n 1 %s >$D/out && $H info --cpu %s >$D/told &&\n"
           "$H info --cpu --json %s >>$D/told && grep -oE '^(generating|prompts): .*|"
           "\"threads\":[0-9]+,\"threads_batch\":[0-9]+|small models' $D/told",
           set, trials ? "1 2 3 4" : "", options, options, options);
  result r = shell(line);
  cr_assert_eq(r.status, 0, "%s: %s", options, r.err);
  int one = number_after(r.err, "threads: "), many = number_after(r.err, "for prompts: ");
  if (!trials || strstr(r.err, "found earlier by trials")) {
    cr_expect(one > 0 && many > 0, "%s: %s", options, r.err);
    cr_expect_eq(number_after(r.out, "generating: "), one, "%s: %s", options, r.out);
    cr_expect_eq(number_after(r.out, "prompts: "), many, "%s: %s", options, r.out);
    cr_expect_eq(number_after(r.out, "\"threads\":"), one, "%s: %s", options, r.out);
    cr_expect_eq(number_after(r.out, "\"threads_batch\":"), many, "%s: %s", options, r.out);
    cr_expect_eq(strstr(r.out, "because trials found that best") != NULL, trials, "%s", r.out);
  }
  cr_expect(!strstr(r.out, "small models"), "%s", r.out);
  finish(&r);
  return one;
}

/* The size of the model is among the limits, what was asked for stands above them, and
 * numbers that trials found are a session's. */
Test(cli, info_tells_the_threads_of_a_session) {
  const char *cores = "HWLOC_SYNTHETIC='core:4 pu:1'";
  cr_expect_eq(expect_told_threads(cores, "$ROOT/models/rope.gguf", false), 1);
  (void)expect_told_threads(cores, "builtin", false);
  cr_expect_eq(expect_told_threads(cores, "builtin -t 2 --threads-batch 3", false), 2);
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_ISSET(0, &set) && CPU_ISSET(1, &set))
    (void)expect_told_threads("HWLOC_XMLFILE=$ROOT/tests/topologies/pair-1-1.xml", "builtin", true);
  result r = shell("HWLOC_SYNTHETIC='core:4 pu:1' $H info --cpu -t 2; $H info --cpu | grep small");
  const char *hint = strstr(r.out, "small models take fewer threads");
  cr_expect_eq(hint != NULL, number_after(r.out, "(automatic: ") > 1, "%s", r.out);
  cr_expect(!hint || !strstr(hint + 1, "small models"), "%s", r.out);
  finish(&r);
}

Test(cli, one_kind_of_few_cores_needs_no_trials) {
  result r = shell("HWLOC_SYNTHETIC='core:2 pu:1' XDG_CACHE_HOME=$D $H run -v -p Once -n 2; "
                   "test ! -e $D/headrow");
  cr_expect(r.status == 0 && !strstr(r.err, "trials"), "%s", r.err);
  finish(&r);
}

/* --- embed ---------------------------------------------------------------------- */

Test(cli, embed_gives_each_text_the_line_it_has_alone) {
  result all = shell("printf 'a cat\\n\\nOne day the dog ran\\r\\n' |"
                     " $H embed builtin --pooling mean -t 2");
  result one = shell("for t in 'a cat' '' 'One day the dog ran'; do"
                     " $H embed builtin \"$t\" --pooling mean -t 1; done");
  cr_expect_eq(all.status, 0, "%s", all.err);
  cr_expect_eq(lines_of(all.out), 3);
  cr_expect_str_eq(all.out, one.out);
  finish(&all);
  finish(&one);
  /* Length 1, which --no-normalize leaves away. */
  expect_output("$H embed 'a cat' --pooling last | awk '{ for (i = 1; i <= NF; i++) s += $i * $i }"
                " END { printf \"%.5f\", s }'", "1.00000");
  expect_output("$H embed 'a cat' --pooling last --no-normalize | awk '{ for (i = 1; i <= NF; i++)"
                " s += $i * $i } END { print (s > 1.5) }'", "1\n");
}

Test(cli, embed_in_json) {
  result r = shell("$H embed builtin --pooling cls --json 'a \"cat\"'");
  json_t *document = json_loads(r.out, 0, NULL);
  cr_assert(document, "%s%s", r.out, r.err);
  cr_expect_str_eq(json_string_value(json_object_get(document, "text")), "a \"cat\"");
  cr_expect(json_integer_value(json_object_get(document, "tokens")) > 2);
  cr_expect(json_array_size(json_object_get(document, "embedding")) > 16);
  json_decref(document);
  finish(&r);
}

Test(cli, embed_cuts_only_when_asked) {
  expect_error("$H embed -c 8 --pooling mean 'one two three four five six seven eight nine'", 6,
               "text 1", "--truncate");
  result r = shell("$H embed -c 8 --pooling mean --truncate -q 'One day a cat sat on a mat and'");
  result s = shell("ids=$($H tokenize 'One day a cat sat on a mat and' | cut -d' ' -f1-8);"
                   " $H embed --pooling mean --ids \"$ids\"");
  cr_expect_eq(r.status, 0, "%s", r.err);
  cr_expect_str_eq(r.out, s.out);
  cr_expect_eq(r.err[0], '\0');
  finish(&r);
  finish(&s);
  r = shell("$H embed -c 8 --pooling mean --truncate 'One day a cat sat on a mat and'");
  cr_expect_not_null(strstr(r.err, "text 1 was cut"), "%s", r.err);
  finish(&r);
  expect_error("$H embed -c 2 --pooling mean --ids 3,4,5", 6, "--ids: has 3", "--truncate");
  r = shell("$H embed -c 2 --pooling mean --ids 3,4,5 --truncate");
  s = shell("$H embed --pooling mean --ids 3,4");
  cr_expect(strstr(r.err, "--ids was cut from 3 to 2"), "%s", r.err);
  cr_expect_str_eq(r.out, s.out);
  finish(&r);
  finish(&s);
}

Test(cli, embed_says_what_it_misses) {
  expect_error("$H embed 'a cat'", 2, "--pooling", "cls");
  expect_error("$H embed </dev/null --pooling cls", 2, "standard input", "expected");
  expect_error("$H embed -f $D/none --pooling cls", 3, "none", "expected");
  expect_error("$H embed builtin 'a cat' -f $D/none", 2, "a cat", "expected");
  expect_error("$H embed builtin --pooling best 'a cat'", 2, "best", "mean");
}

/* A tokenizer's own file, a folder of it, and a vocabulary as GGUF: all but run. */
Test(cli, vocabularies_need_no_weights) {
  result r = shell("$H tokenize $ROOT/tests/fixtures/spm_bpe.model 'a b' > $D/one;"
                   "mkdir $D/f && cp $ROOT/tests/fixtures/spm_bpe.model $D/f/tokenizer.model &&"
                   "$H tokenize $D/f 'a b' > $D/two && cmp $D/one $D/two && cat $D/one");
  cr_expect(r.status == 0 && *r.out && strchr("0123456789", *r.out), "%s%s", r.out, r.err);
  finish(&r);
  r = shell("mkdir $D/f && cp $ROOT/tests/fixtures/spm_bpe.model $D/f/tokenizer.model &&"
            "$H info $D/f && $H info $D/f --json");
  cr_expect(r.status == 0 && strstr(r.out, "no weights") && strstr(r.out, "\"memory\":null"),
            "%s%s", r.out, r.err);
  finish(&r);
  expect_error("mkdir $D/f && cp $ROOT/tests/fixtures/spm_bpe.model $D/f/tokenizer.model;"
               "$H run $D/f -p a", 3, "without a model", NULL);
  gguf_writer w;
  size_t size;
  static const char *const tokens[] = {"<unk>", "<s>", "</s>", "a"};
  gguf_writer_init(&w);
  gguf_put_string(&w, "general.architecture", "llama");
  gguf_put_string(&w, "tokenizer.ggml.model", "llama");
  gguf_put_strings(&w, "tokenizer.ggml.tokens", tokens, 4);
  unsigned char *data = gguf_writer_finish(&w, &size);
  char path[] = "/tmp/headrow-vocabulary-XXXXXX";
  int fd = mkstemp(path);
  cr_assert(fd >= 0 && write(fd, data, size) == (ssize_t)size && close(fd) == 0);
  free(data);
  setenv("VOCABULARY", path, 1);
  r = shell("$H info $VOCABULARY -v");
  cr_expect(r.status == 0 && strstr(r.out, "no weights") && strstr(r.out, "4 tokens") &&
                strstr(r.out, "tokenizer.ggml.tokens"),
            "%s%s", r.out, r.err);
  finish(&r);
  expect_error("$H run $VOCABULARY -p a", 3, "no weights", NULL);
  unlink(path);
}
