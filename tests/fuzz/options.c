/* SPDX-License-Identifier: MIT
 * Arguments of a command from strangers, against a table with an option of every kind. The
 * input is the arguments, a NUL or a newline after each. */
#include <headrow/headrow.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/cli/cli.h"
#include "src/cli/output.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct settings {
  bool flag, other;
  const char *text;
  cli_texts texts;
  cli_count count, threads;
  cli_real real, penalty;
  cli_choice choice;
} settings;

static const char *const words[] = {"native", "f32", "f16", NULL};

#define AT(member) .offset = offsetof(settings, member)
static const cli_option own[] = {
    {"flag", 'q', NULL, "flag", CLI_FLAG, AT(flag)},
    {"text", 'p', "TEXT", "text", CLI_TEXT, AT(text)},
    {"texts", 0, "TEXT", "texts", CLI_TEXTS, AT(texts)},
    {"count", 'n', "N", "count", CLI_COUNT, AT(count), .least = 1, .most = 1000},
    {"real", 0, "X", "real", CLI_REAL, AT(real), .low = 0, .high = 1, .above_low = true},
};
static const cli_option common[] = {
    {"other", 'v', NULL, "other", CLI_FLAG, AT(other)},
    {"threads", 't', "N", "threads", CLI_THREADS, AT(threads), .least = 1, .most = 4096},
    {"penalty", 0, "X", "penalty", CLI_REAL, AT(penalty), .low = 0, .high = INFINITY},
    {"weights", 0, "TYPE", "choice", CLI_CHOICE, AT(choice), .choices = words},
};
enum { OWN = sizeof own / sizeof *own, COMMON = sizeof common / sizeof *common, MOST = 64 };

static size_t failures;

int cli_fail(hr_status status, const char *format, ...) {
  char line[4096];
  va_list arguments;
  va_start(arguments, format);
  int n = vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  if (n <= 0 || status != HR_ERROR_USAGE) abort();
  failures++;
  return (int)status;
}

void cli_write(const char *bytes, size_t count) {
  for (size_t i = 0; i < count; i++)
    if (!bytes[i]) abort();
}

void cli_print(const char *format, ...) {
  char line[4096];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
}

/* Nothing out of its range gets through. */
static void check(const settings *s) {
  if (s->count.given && (s->count.value < 1 || s->count.value > 1000)) abort();
  if (s->threads.given && s->threads.value > 4096) abort();
  if (s->real.given && !(s->real.value > 0 && s->real.value <= 1)) abort();
  if (s->penalty.given && !(s->penalty.value >= 0 && isfinite(s->penalty.value))) abort();
  if (s->choice.given && (s->choice.value < 0 || s->choice.value > 2)) abort();
  for (size_t i = 0; i < s->texts.count; i++)
    if (!s->texts.item[i][0]) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const cli_command command = {.name = "fuzz", .options = own, .option_count = OWN};
  char *text = malloc(size + 1), *argv[MOST];
  int argc = 0;
  if (!text) return 0;
  memcpy(text, data, size);
  text[size] = '\0';
  for (size_t i = 0; i < size; i++)
    if (text[i] == '\n') text[i] = '\0';
  for (size_t at = 0; at < size && argc < MOST; at += strlen(text + at) + 1)
    argv[argc++] = text + at;
  settings s = {.texts = {NULL, 0}};
  cli_texts positional;
  failures = 0;
  cli_reading reading =
      cli_read_options(&command, common, COMMON, argc, argv, &s, &positional);
  if (failures != (reading == CLI_BAD_USAGE)) abort();
  if (reading == CLI_GO_ON) check(&s);
  if (reading == CLI_HELP_WANTED) cli_print_options(common, COMMON, own, OWN);
  free(s.texts.item);
  free(text);
  return 0;
}
