/* SPDX-License-Identifier: MIT */
#include "options.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "output.h"

/* --- Values ----------------------------------------------------------------- */

bool cli_parse_count(const char *text, uint64_t *value) {
  uint64_t n = 0;
  if (!*text) return false;
  for (; *text; text++) {
    if (*text < '0' || *text > '9') return false;
    if (__builtin_mul_overflow(n, 10u, &n)) return false;
    if (__builtin_add_overflow(n, (uint64_t)(*text - '0'), &n)) return false;
  }
  *value = n;
  return true;
}

/* strtod alone would take blanks, "inf", "nan" and hexadecimal. */
bool cli_parse_real(const char *text, float *value) {
  if (!*text || text[strspn(text, "0123456789.eE+-")] != '\0') return false;
  if (*text == '+') return false;
  char *end;
  double x = strtod(text, &end);
  if (end == text || *end != '\0') return false;
  *value = (float)x;
  return isfinite(*value);
}

static const char *expected_real(const cli_option *o, char *text, size_t size) {
  const char *from = o->above_low ? "above" : "from";
  if (isinf(o->high))
    snprintf(text, size, o->above_low ? "a number above %g" : "a number of %g or more", o->low);
  else if (o->above_low)
    snprintf(text, size, "a number %s %g, at most %g", from, o->low, o->high);
  else
    snprintf(text, size, "a number %s %g to %g", from, o->low, o->high);
  return text;
}

static const char *expected_choice(const cli_option *o, char *text, size_t size) {
  size_t used = 0;
  for (size_t i = 0; o->choices[i] && used < size; i++) {
    const char *before = i == 0 ? "" : o->choices[i + 1] ? ", " : " or ";
    int n = snprintf(text + used, size - used, "%s%s", before, o->choices[i]);
    used += (size_t)n;
  }
  return text;
}

static const char *expected(const cli_option *o, char *text, size_t size) {
  switch (o->kind) {
    case CLI_COUNT:
    case CLI_THREADS:
      snprintf(text, size, "%sa whole number from %" PRIu64 " to %" PRIu64,
               o->kind == CLI_THREADS ? "auto or " : "", o->least, o->most);
      return text;
    case CLI_REAL:
      return expected_real(o, text, size);
    case CLI_CHOICE:
      return expected_choice(o, text, size);
    case CLI_TEXT:
    case CLI_TEXTS:
      return "a text that is not empty";
    case CLI_FLAG:
      break;
  }
  return "no value";
}

static bool read_count(const cli_option *o, const char *text, cli_count *to) {
  uint64_t n = 0;
  if (o->kind != CLI_THREADS || strcmp(text, "auto") != 0) {
    if (!cli_parse_count(text, &n) || n < o->least || n > o->most) return false;
  }
  *to = (cli_count){n, true};
  return true;
}

static bool read_real(const cli_option *o, const char *text, cli_real *to) {
  float x;
  if (!cli_parse_real(text, &x)) return false;
  double d = (double)x;
  if (d < o->low || d > o->high || (o->above_low && d == o->low)) return false;
  *to = (cli_real){x + 0.0f, true}; /* no -0 */
  return true;
}

static bool read_choice(const cli_option *o, const char *text, cli_choice *to) {
  for (int i = 0; o->choices[i]; i++)
    if (strcmp(o->choices[i], text) == 0) {
      *to = (cli_choice){i, true};
      return true;
    }
  return false;
}

/* An empty text in a list would match everywhere. */
static bool read_text_item(const char *text, cli_texts *to) {
  if (!*text) return false;
  const char **item = realloc(to->item, (to->count + 1) * sizeof *item);
  if (!item) return false;
  to->item = item;
  to->item[to->count++] = text;
  return true;
}

bool cli_read_value(const cli_option *o, const char *where, const char *text, void *settings) {
  void *to = (char *)settings + o->offset;
  bool good = false;
  switch (o->kind) {
    case CLI_FLAG:
      *(bool *)to = good = true;
      break;
    case CLI_TEXT:
      *(const char **)to = text;
      good = true;
      break;
    case CLI_TEXTS:
      good = read_text_item(text, to);
      break;
    case CLI_COUNT:
    case CLI_THREADS:
      good = read_count(o, text, to);
      break;
    case CLI_REAL:
      good = read_real(o, text, to);
      break;
    case CLI_CHOICE:
      good = read_choice(o, text, to);
      break;
  }
  if (good) return true;
  char words[160];
  cli_fail(HR_ERROR_USAGE, "%s: '%.80s' is not valid, expected %s", where, text,
           expected(o, words, sizeof words));
  return false;
}

/* --- Arguments -------------------------------------------------------------- */

typedef struct reader {
  const cli_command *command;
  const cli_option *table[2];
  size_t count[2];
  int argc, next;
  char **argv;
  void *settings;
} reader;

/* By name of that many bytes, or by letter when name is NULL. */
static const cli_option *find(const reader *r, const char *name, size_t length, char letter) {
  for (int t = 0; t < 2; t++)
    for (size_t i = 0; i < r->count[t]; i++) {
      const cli_option *o = &r->table[t][i];
      if (name ? strlen(o->name) == length && memcmp(o->name, name, length) == 0
               : o->letter && o->letter == letter)
        return o;
    }
  return NULL;
}

static cli_reading unknown(const reader *r, const char *shown, int length) {
  cli_fail(HR_ERROR_USAGE, "%.*s: unknown option, expected one of those in 'headrow %s --help'",
           length, shown, r->command->name);
  return CLI_BAD_USAGE;
}

/* The value of an option: what follows in the same argument, or the next one. */
static cli_reading take(reader *r, const cli_option *o, const char *where, const char *attached) {
  const char *text = attached;
  if (o->kind != CLI_FLAG && !text) {
    if (r->next == r->argc) {
      cli_fail(HR_ERROR_USAGE, "%s: no value, expected %s after it", where, o->value);
      return CLI_BAD_USAGE;
    }
    text = r->argv[r->next++];
  }
  return cli_read_value(o, where, text, r->settings) ? CLI_GO_ON : CLI_BAD_USAGE;
}

static cli_reading read_long(reader *r, const char *argument) {
  const char *name = argument + 2, *equals = strchr(name, '=');
  size_t length = equals ? (size_t)(equals - name) : strlen(name);
  if (!equals && strcmp(name, "help") == 0) return CLI_HELP_WANTED;
  const cli_option *o = find(r, name, length, 0);
  if (!o) return unknown(r, argument, (int)length + 2);
  char where[64];
  snprintf(where, sizeof where, "--%s", o->name);
  if (o->kind == CLI_FLAG && equals) {
    cli_fail(HR_ERROR_USAGE, "%s: has the value '%.80s', expected none", where, equals + 1);
    return CLI_BAD_USAGE;
  }
  return take(r, o, where, equals ? equals + 1 : NULL);
}

/* "-qv" is two flags, "-n5" an option and its value. */
static cli_reading read_short(reader *r, const char *argument) {
  for (const char *letter = argument + 1; *letter; letter++) {
    if (*letter == 'h') return CLI_HELP_WANTED;
    const cli_option *o = find(r, NULL, 0, *letter);
    const char where[] = {'-', *letter, '\0'};
    if (!o) return unknown(r, argument, (int)strlen(argument));
    if (o->kind != CLI_FLAG) return take(r, o, where, letter[1] ? letter + 1 : NULL);
    cli_reading reading = take(r, o, where, NULL);
    if (reading != CLI_GO_ON) return reading;
  }
  return CLI_GO_ON;
}

cli_reading cli_read_options(const cli_command *command, const cli_option *common,
                             size_t common_count, int argc, char **argv, void *settings,
                             cli_texts *positional) {
  reader r = {.command = command,
              .table = {command->options, common},
              .count = {command->option_count, common_count},
              .argc = argc,
              .argv = argv,
              .settings = settings};
  /* Arguments that are no option move to the front of argv. */
  *positional = (cli_texts){.item = (const char **)argv};
  bool options_end = false;
  while (r.next < argc) {
    const char *argument = argv[r.next++];
    cli_reading reading = CLI_GO_ON;
    if (options_end || argument[0] != '-' || !argument[1])
      positional->item[positional->count++] = argument;
    else if (strcmp(argument, "--") == 0)
      options_end = true;
    else
      reading = argument[1] == '-' ? read_long(&r, argument) : read_short(&r, argument);
    if (reading != CLI_GO_ON) return reading;
  }
  return CLI_GO_ON;
}

/* --- Help ------------------------------------------------------------------- */

enum { HELP_COLUMN = 28 };

static void print_option(const cli_option *o, bool with_letter) {
  char left[64], letter[8] = "    ";
  if (o->letter && with_letter) snprintf(letter, sizeof letter, "-%c, ", o->letter);
  int n = snprintf(left, sizeof left, "  %s--%s%s%s", letter, o->name, o->value ? " " : "",
                   o->value ? o->value : "");
  const char *gap = n < HELP_COLUMN ? "" : "\n";
  cli_print("%s%s%*s", left, gap, n < HELP_COLUMN ? HELP_COLUMN - n : HELP_COLUMN, "");
  for (const char *c = o->help; *c; c++) {
    cli_write(c, 1);
    if (*c == '\n') cli_print("%*s", HELP_COLUMN, "");
  }
  cli_print("\n");
}

void cli_print_options(const cli_option *options, size_t count, const cli_option *own,
                       size_t own_count) {
  for (size_t i = 0; i < count; i++) {
    bool named = false, lettered = false;
    for (size_t j = 0; j < own_count; j++) {
      named |= strcmp(own[j].name, options[i].name) == 0;
      lettered |= own[j].letter == options[i].letter;
    }
    if (!named) print_option(&options[i], !lettered);
  }
}
