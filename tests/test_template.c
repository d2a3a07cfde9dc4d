/* SPDX-License-Identifier: MIT
 * Chat templates: what Jinja2 makes of the same ones (tests/template/cases.json,
 * written by make_cases.py beside it), where text came from, and what a hostile
 * template can't do. */
#include <criterion/criterion.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "template/template.h"

TestSuite(template, .timeout = 600); /* under sanitizers, beside other programs */

typedef struct rendering {
  hr_status status;
  hr_error err;
  hr_template_output out;
} rendering;

/* Friday, 26 July 2024, 14:05:09, as make_cases.py has it. */
static const struct tm now = {.tm_year = 124, .tm_mon = 6, .tm_mday = 26, .tm_wday = 5,
                              .tm_hour = 14, .tm_min = 5, .tm_sec = 9, .tm_yday = 207};

static rendering render_with(const char *source, size_t length, hr_template_input input) {
  rendering r = {0};
  const hr_template_word words[] = {{"bos_token", "<s>", 3}, {"eos_token", "</s>", 4}};
  if (!input.words) {
    input.words = words;
    input.word_count = 2;
  }
  input.now = &now;
  hr_chat_template *t = hr_template_parse(source, length, "test", &r.err);
  r.status = t ? hr_template_render(t, &input, &r.out, &r.err) : r.err.status;
  hr_template_free(t);
  return r;
}

static rendering render(const char *source) {
  return render_with(source, strlen(source), (hr_template_input){0});
}

static rendering render_chat(const char *source, const hr_chat_message *messages, size_t count,
                             bool prompt) {
  return render_with(source, strlen(source),
                     (hr_template_input){.messages = messages,
                                         .message_count = count,
                                         .has_messages = true,
                                         .add_generation_prompt = prompt});
}

static void expect_text(const char *source, const char *expected) {
  rendering r = render(source);
  cr_expect_eq(r.status, HR_OK, "%s: %s", source, r.err.message);
  if (r.status == HR_OK) cr_expect_str_eq(r.out.text, expected, "%s", source);
  hr_template_output_finish(&r.out);
}

/* Fails with that status, and says both words. */
static void expect_error(const char *source, hr_status status, const char *word,
                         const char *other) {
  rendering r = render(source);
  cr_expect_eq(r.status, status, "%.200s", source);
  if (r.status != HR_OK)
    cr_expect(strstr(r.err.message, word) && strstr(r.err.message, other), "%.200s: %s", source,
              r.err.message);
  hr_template_output_finish(&r.out);
}

/* --- Against Jinja2 --------------------------------------------------------------- */

static void check_case(const json_t *c, const json_t *variables, size_t index) {
  const char *source = json_string_value(json_object_get(c, "template"));
  const json_t *refused = json_object_get(c, "refused");
  const json_t *expected = json_object_get(c, "expected");
  rendering r = render_with(
      source, json_string_length(json_object_get(c, "template")),
      (hr_template_input){
          .variables = variables,
          .add_generation_prompt = json_is_true(json_object_get(c, "add_generation_prompt"))});
  if (refused) {
    cr_expect_eq(r.status, HR_ERROR_USAGE, "case %zu: %s", index, source);
    cr_expect(strstr(r.err.message, json_string_value(refused)), "case %zu: %s", index,
              r.err.message);
  } else {
    cr_expect_eq(r.status, HR_OK, "case %zu: %s: %s", index, source, r.err.message);
    if (r.status == HR_OK)
      cr_expect_str_eq(r.out.text, json_string_value(expected), "case %zu: %s", index, source);
  }
  hr_template_output_finish(&r.out);
}

Test(template, renders_what_jinja2_renders) {
  json_error_t error;
  json_t *cases =
      json_load_file(HEADROW_SOURCE_ROOT "/tests/template/cases.json", JSON_ALLOW_NUL, &error);
  cr_assert(cases, "%s", error.text);
  cr_assert_gt(json_array_size(cases), 400);
  for (size_t i = 0; i < json_array_size(cases); i++) {
    const json_t *c = json_array_get(cases, i);
    check_case(c, json_object_get(c, "variables"), i);
  }
  json_decref(cases);
}

/* The words of the fixtures' families, as their tokenizers have them. */
static void set_words(json_t *variables, const char *family) {
  static const struct {
    const char *family, *bos, *eos;
  } words[] = {
      {"llama3", "<|begin_of_text|>", "<|eot_id|>"},
      {"gemma", "<bos>", "<eos>"},
      {"phi3", "<s>", "<|endoftext|>"},
      {"deepseek", "<\uff5cbegin\u2581of\u2581sentence\uff5c>",
       "<\uff5cend\u2581of\u2581sentence\uff5c>"},
      {"", "<s>", "</s>"},
  };
  size_t i = 0;
  while (*words[i].family && strcmp(words[i].family, family) != 0) i++;
  json_object_set_new(variables, "bos_token", json_string(words[i].bos));
  json_object_set_new(variables, "eos_token", json_string(words[i].eos));
}

static void check_fixture(const char *family, json_t *source, json_t *c, size_t index) {
  json_t *variables = json_object(), *one = json_copy(c);
  const char *effort = json_string_value(json_object_get(c, "reasoning_effort"));
  json_object_set(variables, "messages", json_object_get(c, "messages"));
  set_words(variables, family);
  if (effort && strcmp(effort, "off") == 0)
    json_object_set_new(variables, "enable_thinking", json_false());
  else if (effort)
    json_object_set_new(variables, "reasoning_effort", json_string(effort));
  json_object_set(one, "template", source);
  if (json_object_get(c, "raises"))
    json_object_set(one, "refused", json_object_get(c, "error"));
  check_case(one, variables, index);
  json_decref(one);
  json_decref(variables);
}

Test(template, renders_the_templates_of_real_models) {
  const char *data = getenv("HEADROW_TEST_DATA");
  if (!data) cr_skip("HEADROW_TEST_DATA is not set");
  char path[4096];
  snprintf(path, sizeof path, "%s/fixtures/chat_template_cases.json", data);
  json_t *families = json_load_file(path, 0, NULL), *family;
  cr_assert(families, "%s", path);
  const char *name;
  size_t checked = 0, i;
  json_object_foreach(families, name, family) {
    json_t *c;
    json_array_foreach(json_object_get(family, "cases"), i, c) {
      check_fixture(name, json_object_get(family, "template"), c, i);
      checked++;
    }
  }
  cr_expect_geq(checked, 90);
  json_decref(families);
}

/* --- Templates by name ---------------------------------------------------------------- */

#define MESSAGE(r, text) {.role = (r), .content = (text), .length = sizeof(text) - 1}

static const hr_chat_message talk[] = {MESSAGE("system", "Be kind."), MESSAGE("user", "Hi"),
                                       MESSAGE("assistant", "Hello."), MESSAGE("user", "Bye")};

/* By the descriptions of the formats. */
Test(template, named_templates_write_their_formats) {
  static const struct {
    const char *name, *expected;
  } formats[] = {
      {"chatml", "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
                 "<|im_start|>assistant\nHello.<|im_end|>\n<|im_start|>user\nBye<|im_end|>\n"
                 "<|im_start|>assistant\n"},
      {"llama2", "<s>[INST] <<SYS>>\nBe kind.\n<</SYS>>\n\nHi [/INST] Hello. </s>"
                 "<s>[INST] Bye [/INST]"},
      {"llama3", "<s><|start_header_id|>system<|end_header_id|>\n\nBe kind.<|eot_id|>"
                 "<|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
                 "<|start_header_id|>assistant<|end_header_id|>\n\nHello.<|eot_id|>"
                 "<|start_header_id|>user<|end_header_id|>\n\nBye<|eot_id|>"
                 "<|start_header_id|>assistant<|end_header_id|>\n\n"},
      {"mistral", "<s>[INST] Be kind.\n\nHi [/INST] Hello.</s>[INST] Bye [/INST]"},
      {"gemma", "<s><start_of_turn>user\nBe kind.\n\nHi<end_of_turn>\n<start_of_turn>model\n"
                "Hello.<end_of_turn>\n<start_of_turn>user\nBye<end_of_turn>\n"
                "<start_of_turn>model\n"},
      {"phi3", "<|system|>\nBe kind.<|end|>\n<|user|>\nHi<|end|>\n<|assistant|>\nHello.<|end|>\n"
               "<|user|>\nBye<|end|>\n<|assistant|>\n"},
      {"zephyr", "<|system|>\nBe kind.</s>\n<|user|>\nHi</s>\n<|assistant|>\nHello.</s>\n"
                 "<|user|>\nBye</s>\n<|assistant|>\n"},
      {"deepseek", "<s>Be kind.\n\nUser: Hi\n\nAssistant: Hello.</s>User: Bye\n\nAssistant:"},
      {"vicuna", "<s>Be kind. USER: Hi ASSISTANT: Hello.</s>USER: Bye ASSISTANT:"},
      {"alpaca", "<s>Be kind.\n\n### Instruction:\nHi\n\n### Response:\nHello.</s>\n\n"
                 "### Instruction:\nBye\n\n### Response:\n"},
  };
  for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
    const hr_named_template *named = hr_named_template_at(i);
    cr_assert(named);
    cr_expect_str_eq(named->name, formats[i].name);
    rendering r = render_chat(named->source, talk, 4, true);
    cr_expect_eq(r.status, HR_OK, "%s: %s", named->name, r.err.message);
    if (r.status == HR_OK) cr_expect_str_eq(r.out.text, formats[i].expected, "%s", named->name);
    hr_template_output_finish(&r.out);
    r = render_chat(named->source, talk, 0, false);
    cr_expect_eq(r.status, HR_OK, "%s, no messages: %s", named->name, r.err.message);
    hr_template_output_finish(&r.out);
  }
  cr_expect_null(hr_named_template_at(sizeof formats / sizeof *formats));
}

/* --- Where text came from ----------------------------------------------------------------- */

/* The bytes that are data, others as a dot. */
static void expect_data(const char *source, const char *content, const char *expected) {
  hr_chat_message message = {.role = "user", .content = content, .length = strlen(content)};
  rendering r = render_chat(source, &message, 1, true);
  cr_assert_eq(r.status, HR_OK, "%s: %s", source, r.err.message);
  for (size_t i = 0; i < r.out.length; i++)
    if (!r.out.data[i]) r.out.text[i] = '.';
  cr_expect_str_eq(r.out.text, expected, "%s", source);
  hr_template_output_finish(&r.out);
}

Test(template, each_byte_knows_whether_a_user_wrote_it) {
  expect_data("<{{ messages[0].content }}>", "abc", ".abc.");
  expect_data("{{ '<' + messages[0]['role'] + '>' + messages[0]['content'] }}", "x", "......x");
  expect_data("{% for m in messages %}{{ m.content | trim }}|{% endfor %}", " a b ", "a b.");
  expect_data("{{ messages[0].content | upper }}{{ messages[0].content | title }}", "ab \xc3\x9f",
              "AB SSAb SS");
  expect_data("{{ messages[0].content.replace('b', '<>') }}", "abc", "a..c");
  expect_data("{{ 'a-b'.replace('-', messages[0].content) }}", "<>", ".<>.");
  expect_data("{{ messages[0].content.split(',') | join('+') }}", "a,b", "a.b");
  expect_data("{{ messages[0].content[::-1] }}{{ messages[0].content[1] }}", "abc", "cbab");
  expect_data("{{ messages | tojson }}", "a\"b", "..............................a..b...");
  expect_data("{{ messages[0] }}", "q", ".............................q..");
  expect_data("{% macro m(x) %}[{{ x }}]{% endmacro %}{{ m(messages[0].content) }}", "q", ".q.");
  expect_data("{% set t %}-{{ messages[0].content }}-{% endset %}{{ t | replace('-', '+') }}", "q",
              ".q.");
  expect_data("{% filter upper %}x{{ messages[0].content }}{% endfilter %}", "q", ".Q");
  expect_data("{{ '%s!' % messages[0].content }}{{ '{}'.format(messages[0].content) }}", "q",
              "q.q");
  expect_data("{{ messages[0].content | indent(1) }}", "a\nb", "a..b");
  expect_data("{{ messages[0].content * 2 ~ 1 }}", "a", "aa.");
  expect_data("{{ messages[0].content | list | sort | join }}", "ba", "ab");
}

/* Strings in variables are data; only the roles of messages are the program's word. */
Test(template, variables_are_data) {
  json_t *variables = json_loads(
      "{\"messages\": [{\"role\": \"R\", \"content\": \"C\", \"more\": {\"role\": \"M\"}}],"
      " \"role\": \"V\", \"k\": {\"<x>\": 1}}",
      0, NULL);
  const char *source = "{{ messages[0].role }}{{ messages[0].content }}"
                       "{{ messages[0].more.role }}{{ role }}{{ k | list | first }}";
  rendering r =
      render_with(source, strlen(source), (hr_template_input){.variables = variables});
  cr_assert_eq(r.status, HR_OK, "%s", r.err.message);
  cr_expect_str_eq(r.out.text, "RCMV<x>");
  cr_expect_arr_eq(r.out.data, "\0\1\1\1\1\1\1", 7);
  hr_template_output_finish(&r.out);
  json_decref(variables);
}

Test(template, any_bytes_go_through) {
  char bytes[256];
  for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (char)(255 - i);
  hr_chat_message message = {.role = "user", .content = bytes, .length = sizeof bytes};
  rendering r = render_chat("{{ messages[0].content }}{{ messages[0].content | length }}", &message,
                            1, true);
  cr_assert_eq(r.status, HR_OK, "%s", r.err.message);
  cr_expect_arr_eq(r.out.text, bytes, sizeof bytes);
  cr_expect_str_eq(r.out.text + sizeof bytes, "256");
  hr_template_output_finish(&r.out);
  static const char *const filters[] = {"upper",  "lower",  "title",   "trim",   "string | list",
                                        "tojson", "indent", "reverse", "escape", "wordcount"};
  for (size_t i = 0; i < sizeof filters / sizeof *filters; i++) {
    char source[80];
    snprintf(source, sizeof source, "{{ messages[0].content | %s }}", filters[i]);
    r = render_chat(source, &message, 1, true);
    cr_expect_eq(r.status, HR_OK, "%s: %s", filters[i], r.err.message);
    hr_template_output_finish(&r.out);
  }
}

/* --- Errors --------------------------------------------------------------------------------- */

Test(template, what_is_not_supported_is_named_with_its_line) {
  expect_error("\n\n{{ x | frobnicate }}", HR_ERROR_FILE, "line 3", "filter 'frobnicate'");
  expect_error("{{ x is frobnicated }}", HR_ERROR_FILE, "line 1", "test 'frobnicated'");
  expect_error("a\n{% import 'x' as y %}", HR_ERROR_FILE, "line 2", "tag 'import'");
  expect_error("{% include 'x' %}", HR_ERROR_FILE, "line 1", "tag 'include'");
  expect_error("{% extends 'x' %}", HR_ERROR_FILE, "line 1", "tag 'extends'");
  expect_error("{% block x %}{% endblock %}", HR_ERROR_FILE, "line 1", "tag 'block'");
  expect_error("{% autoescape true %}{% endautoescape %}", HR_ERROR_FILE, "line 1", "autoescape");
  expect_error("{{ [1].append(2) }}", HR_ERROR_FILE, "line 1", "append");
  expect_error("{{ {}.update({}) }}", HR_ERROR_FILE, "line 1", "update");
  expect_error("{{ ''.__class__.__mro__ }}", HR_ERROR_FILE, "line 1", "__class__");
  expect_error("{{ f(*a) }}", HR_ERROR_FILE, "line 1", "'*'");
  expect_error("{{ lipsum() }}", HR_ERROR_FILE, "line 1", "lipsum");
  expect_error("{{ '\\N{BULLET}' }}", HR_ERROR_FILE, "line 1", "escape");
  expect_error("{{ strftime_now('%c') }}", HR_ERROR_FILE, "line 1", "%c");
  expect_error("{% macro m() %}{{ varargs }}{% endmacro %}{{ m() }}", HR_ERROR_FILE, "line 1",
               "varargs");
}

Test(template, bad_syntax_is_an_error) {
  static const char *const bad[] = {
      "{{", "{{ }}", "{{ 1", "{% if %}", "{% if x %}", "{% for x %}{% endfor %}", "{% endif %}",
      "{{ (1 }}", "{{ 1) }}", "{{ [1 }}", "{{ 'a }}", "{{ a b }}", "{{ 1 + }}", "{{ a. }}",
      "{{ a[ }}", "{{ a[] }}", "{% set 1 = 2 %}", "{% set none = 2 %}", "{% set %}", "{% %}",
      "{# a", "{% raw %}", "{{ ? }}", "{% break %}", "{% macro m(a=1, b) %}{% endmacro %}",
      "{{ f(a=1, 2) }}", "{% call x %}{% endcall %}", "{{ a | }}", "{{ a is }}", "{{ {1} }}",
      "{% for a in b %}{% else %}", "{% filter %}{% endfilter %}", "{{ 99999999999999999999 }}",
      "{{ a is b is c }}", "{% set a.b.c = 1 %}", "{{ \x01 }}", "{{ 0x }}", "{{ '\\ud800' }}",
      "{% macro m() %}{% for i in x %}{% endfor %}{% break %}{% endmacro %}",
  };
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
    expect_error(bad[i], HR_ERROR_FILE, "test, line 1: ", "");
}

Test(template, faults_while_it_runs_name_line_and_thing) {
  expect_error("\n{{ a.b }}", HR_ERROR_FILE, "line 2", "'a' is undefined");
  expect_error("{{ {'a': 1}.b.c }}", HR_ERROR_FILE, "line 1", "'b' is undefined");
  expect_error("{{ x + 1 }}", HR_ERROR_FILE, "line 1", "'x' is undefined");
  expect_error("{{ 1 + 'a' }}", HR_ERROR_FILE, "'+'", "'int' and 'str'");
  expect_error("{{ none + 'a' }}", HR_ERROR_FILE, "'none' and 'str'", "");
  expect_error("{{ 1 < 'a' }}", HR_ERROR_FILE, "no order", "");
  expect_error("{{ 1 / 0 }}{{ 1 // 0 }}", HR_ERROR_FILE, "division by zero", "");
  expect_error("{{ 1 % 0.0 }}", HR_ERROR_FILE, "division by zero", "");
  expect_error("{{ 9223372036854775807 + 1 }}", HR_ERROR_FILE, "too large", "");
  expect_error("{{ (0 - 9223372036854775807 - 1) // -1 }}", HR_ERROR_FILE, "too large", "");
  expect_error("{{ 10 ** 19 }}", HR_ERROR_FILE, "too large", "");
  expect_error("{{ 'a'() }}", HR_ERROR_FILE, "can't be called", "");
  expect_error("{{ 'a' | trim(1, 2) }}", HR_ERROR_FILE, "'trim'", "arguments");
  expect_error("{{ 'a' | replace('b') }}", HR_ERROR_FILE, "'replace'", "'new'");
  expect_error("{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}", HR_ERROR_FILE, "'m'", "at most 1");
  expect_error("{% macro m(a) %}{% endmacro %}{{ m(b=2) }}", HR_ERROR_FILE, "'m'", "'b'");
  expect_error("{% for a, b in [1] %}{% endfor %}", HR_ERROR_FILE, "gone through", "");
  expect_error("{% for a, b in [[1]] %}{% endfor %}", HR_ERROR_FILE, "1 values for 2", "");
  expect_error("{% set d = {} %}{% set d.a = 1 %}", HR_ERROR_FILE, "namespace", "");
  expect_error("{{ {[1]: 2} }}", HR_ERROR_FILE, "'list'", "key");
  expect_error("{{ range | tojson }}", HR_ERROR_FILE, "JSON", "function");
  expect_error("{% for i in [1] %}{{ loop([2]) }}{% endfor %}", HR_ERROR_FILE, "recursive", "");
  expect_error("{{ raise_exception('no ' ~ 'such') }}", HR_ERROR_USAGE, "line 1", "no such");
  rendering r = render_chat("{{ 1 }}", NULL, 0, true);
  cr_expect_str_eq(r.out.text, "1");
  hr_template_output_finish(&r.out);
}

/* --- Limits --------------------------------------------------------------------------------- */

/* before, part repeated, after */
static char *repeated(const char *before, const char *part, size_t times, const char *after) {
  char *text = calloc(strlen(before) + strlen(part) * times + strlen(after) + 1, 1), *to = text;
  to = stpcpy(to, before);
  for (size_t i = 0; i < times; i++) to = stpcpy(to, part);
  stpcpy(to, after);
  return text;
}

static void expect_limit(char *source, const char *word) {
  expect_error(source, HR_ERROR_FILE, "test", word);
  free(source);
}

Test(template, nesting_is_limited) {
  const size_t many = 100000;
  expect_limit(repeated("{{ ", "(", many, "1 }}"), "too deeply");
  expect_limit(repeated("{{ ", "[", many, "}}"), "too deeply");
  expect_limit(repeated("{{ ", "not ", many, "1 }}"), "too deeply");
  expect_limit(repeated("{{ ", "-", many, "1 }}"), "too deeply");
  expect_limit(repeated("{{ 1", " if 1 else 1", many / 2, " }}"), "too deeply");
  expect_limit(repeated("{{ 1", " + 1", many, " }}"), "too deeply");
  expect_limit(repeated("{{ a", ".a", many, " }}"), "too deeply");
  expect_limit(repeated("{{ 1", "|string", many, " }}"), "too deeply");
  expect_limit(repeated("{{ 1", " and 1", many, " }}"), "too deeply");
  expect_limit(repeated("", "{% if 1 %}", many / 20, ""), "too deeply");
  expect_limit(repeated("{% if 1 %}", "{% elif 1 %}", many / 20, "{% endif %}"), "too deeply");
  expect_limit(repeated("", "{% for i in x %}", many / 20, ""), "too deeply");
  expect_limit(repeated("{% set ", "(", many, "a = 1 %}"), "too deeply");
  expect_text("{{ ((((((((((((((((((((1)))))))))))))))))))) }}", "1");
}

Test(template, recursion_is_limited) {
  expect_error("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", HR_ERROR_FILE, "too deeply", "");
  expect_error("{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}{{ a() }}{% endmacro %}"
               "{{ a() }}", HR_ERROR_FILE, "too deeply", "");
  expect_error("{% macro m() %}{% call m() %}{% endcall %}{% endmacro %}{{ m() }}", HR_ERROR_FILE,
               "too deeply", "");
  expect_error("{% for i in [1] recursive %}{{ loop([1]) }}{% endfor %}", HR_ERROR_FILE,
               "too deeply", "");
  /* A list that holds a list that holds ... */
  expect_error("{% set n = namespace(l=[]) %}{% for i in range(2000) %}{% set n.l = [n.l] %}"
               "{% endfor %}{{ n.l }}", HR_ERROR_FILE, "too deeply", "");
  expect_error("{% set n = namespace(l=[]) %}{% for i in range(2000) %}{% set n.l = [n.l] %}"
               "{% endfor %}{{ n.l == [n.l] }}{{ n.l | tojson }}", HR_ERROR_FILE, "too deeply", "");
  expect_error("{% set n = namespace(t=()) %}{% for i in range(100000) %}{% set n.t = (n.t,) %}"
               "{% endfor %}{{ {n.t: 1} | length }}", HR_ERROR_FILE, "too deeply", "");
  expect_limit(repeated("{% set n = namespace(l=[1]) %}{% for i in range(60000) %}"
                        "{% set n.l = [n.l] %}{% endfor %}{{ n.l | map('map'", ", 'map'", 60000,
                        ") | list }}"),
               "too deeply");
}

/* What a function keeps for itself is not a template's to set. */
Test(template, a_cycler_cant_be_changed) {
  expect_error("{% set c = cycler('a') %}{% set c.values = 4702111234474983745 %}{{ c.next() }}",
               HR_ERROR_FILE, "namespace", "");
  expect_error("{% set c = cycler('a') %}{% set c.values = [] %}{{ c.next() }}", HR_ERROR_FILE,
               "namespace", "");
  expect_error("{% set c = cycler('a') %}{% set c.current = 1 %}", HR_ERROR_FILE, "namespace", "");
  expect_error("{{ cycler() }}", HR_ERROR_FILE, "'cycler'", "values");
  expect_error("{{ cycler('a') }}", HR_ERROR_FILE, "'cycler'", "printed");
}

Test(template, work_and_memory_are_limited) {
  expect_error("{% for i in range(1000000000) %}{% endfor %}", HR_ERROR_FILE, "range", "100000");
  expect_error("{% set l = range(100000) %}{% for i in l %}{% for j in l %}{% endfor %}"
               "{% endfor %}",
               HR_ERROR_FILE, "more than", "");
  expect_error("{% set s = 'a' * 1000000 %}{% for i in range(100000) %}"
               "{% if 'b' in s %}{% endif %}{% endfor %}", HR_ERROR_FILE, "steps", "");
  expect_error("{% set n = namespace(s='aaaaaaaaaaaaaaaa') %}{% for i in range(60) %}"
               "{% set n.s = n.s + n.s %}{% endfor %}{{ n.s }}", HR_ERROR_FILE, "more than", "");
  expect_error("{{ 'abcdefghijklmnop' * 1000000000 }}", HR_ERROR_FILE, "more than", "");
  expect_error("{{ [1, 2, 3] * 1000000000 }}", HR_ERROR_FILE, "more than", "");
  expect_error("{{ 'a'.ljust(9000000000000000000) }}", HR_ERROR_FILE, "more than", "");
  expect_error("{{ 'a' | center(9000000000000000000) }}", HR_ERROR_FILE, "more than", "");
  expect_error("{{ 'a\nb' | indent(9000000000000000000) }}", HR_ERROR_FILE, "more than", "");
  expect_error("{{ '7'.zfill(9000000000000000000) }}", HR_ERROR_FILE, "more than", "");
  expect_error("{{ [1] | batch(9000000000000000000, 0) | list }}", HR_ERROR_FILE, "more than", "");
  expect_error("{{ 'abc' | truncate(-9223372036854775807 - 1) }}", HR_ERROR_FILE, "no room", "");
  expect_error("{{ 'abc' | truncate(3, leeway=-1) }}", HR_ERROR_FILE, "leeway", "");
  expect_error("{% set n = namespace(s='x') %}{% for i in range(40) %}"
               "{% set n.s = n.s.replace('x', 'xxx') %}{% endfor %}", HR_ERROR_FILE, "more than",
               "");
  expect_limit(repeated("", " ", (1 << 20) + 1, ""), "1048576");
}

/* What goes through a long text or list costs as much, though it is one word of the template. */
Test(template, long_texts_and_lists_cost_steps) {
  static const char *const expressions[] = {
      "blank.strip()", "a.startswith(a)", "a.startswith(tuple)", "a.isalpha()", "zeros | int",
      "a.count('')", "a.find('b')", "a.rsplit(tail)", "numbers | sum",
      "numbers | select('none') | list", "empty | select | list", "empty | join",
      "''.join(empty)",
  };
  for (size_t i = 0; i < sizeof expressions / sizeof *expressions; i++) {
    char source[800];
    snprintf(source, sizeof source,
             "{%% set blank = '          ' * 100000 %%}{%% set a = 'aaaaaaaaaa' * 100000 %%}"
             "{%% set zeros = '0000000000' * 100000 %%}{%% set empty = [''] * 100000 %%}"
             "{%% set tail = 'aaaaaaaaaa' * 100 ~ 'b' %%}{%% set tuple = ('b',) * 100000 %%}"
             "{%% set numbers = range(100000) %%}"
             "{%% for i in range(400) %%}{%% if %s %%}{%% endif %%}{%% endfor %%}",
             expressions[i]);
    rendering r = render(source);
    cr_expect(r.status == HR_ERROR_FILE && strstr(r.err.message, "steps"), "%s: %s",
              expressions[i], r.status == HR_OK ? "no error" : r.err.message);
    hr_template_output_finish(&r.out);
  }
  expect_error("{{ ('aaaaaaaaaa' * 100000).rfind('aaaaaaaaaa' * 100) }}", HR_ERROR_FILE, "steps",
               "");
  expect_error("{% set n = namespace(t=()) %}{% for i in range(28) %}{% set n.t = (n.t, n.t) %}"
               "{% endfor %}{{ {n.t: 1} | length }}", HR_ERROR_FILE, "steps", "");
}

/* head and tail around each of many names, v10000 and on. */
static char *numbered(const char *before, const char *head, const char *tail, size_t count,
                      const char *after) {
  size_t each = strlen(head) + sizeof "v10000" + strlen(tail);
  char *text = calloc(strlen(before) + each * count + strlen(after) + 1, 1);
  char *to = stpcpy(text, before);
  for (size_t i = 0; i < count; i++) {
    to = stpcpy(to, head);
    to += sprintf(to, "v%zu", 10000 + i);
    to = stpcpy(to, tail);
  }
  stpcpy(to, after);
  return text;
}

Test(template, looking_up_names_costs_steps) {
  expect_limit(numbered("", "{% set ", " = 1 %}", 2000,
                        "{% for i in range(50000) %}{{ v10000 and '' }}{% endfor %}"),
               "steps");
  expect_limit(numbered("{% macro m(", "", "=1, ", 2000,
                        "w=1) %}{% endmacro %}{% for i in range(400) %}{{ m(w=2) }}{% endfor %}"),
               "steps");
}

Test(template, memory_that_runs_out_is_an_error) {
  static const char source[] =
      "{% macro m(x) %}{{ x | upper }}{% endmacro %}{% for m2 in messages %}"
      "{{ m(m2.content) ~ (m2 | tojson) }}{% endfor %}";
  for (size_t n = 1;; n++) {
    hr_memory_fail_at(n);
    rendering r = render_chat(source, talk, 4, true);
    size_t used = hr_memory_fail_at(0);
    hr_template_output_finish(&r.out);
    if (r.status == HR_OK) {
      cr_expect_gt(n, 4);
      cr_expect_lt(used, n);
      break;
    }
    cr_expect_eq(r.status, HR_ERROR_MEMORY, "allocation %zu: %s", n, r.err.message);
  }
}
