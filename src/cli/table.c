/* SPDX-License-Identifier: MIT */
#include "table.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "output.h"

struct cli_table {
  char **cell; /* the heads first */
  size_t cells, capacity, columns;
  bool *right;
  size_t *width;
  bool failed;
};

/* Takes the text over. */
static void add(cli_table *t, char *text) {
  if (t->cells == t->capacity) {
    size_t capacity = t->capacity ? 2 * t->capacity : 64;
    char **grown = reallocarray(t->cell, capacity, sizeof *grown);
    if (!grown) {
      free(text);
      t->failed = true;
      return;
    }
    t->cell = grown;
    t->capacity = capacity;
  }
  for (char *c = text; c && *c; c++)
    if ((unsigned char)*c < 0x20 || *c == 0x7f) *c = '?';
  t->failed = t->failed || !text;
  t->cell[t->cells++] = text;
}

static bool add_heads(cli_table *t, const char *heads) {
  size_t count = 1;
  for (const char *c = heads; *c; c++) count += *c == '|';
  t->right = calloc(count, sizeof *t->right);
  t->width = calloc(count, sizeof *t->width);
  if (!t->right || !t->width) return false;
  for (; t->columns < count; t->columns++) {
    size_t length = strcspn(heads, "|");
    bool right = length && heads[length - 1] == ':';
    t->right[t->columns] = right;
    add(t, strndup(heads, length - right));
    heads += length + (heads[length] == '|');
  }
  return !t->failed;
}

cli_table *cli_table_new(const char *heads) {
  cli_table *t = calloc(1, sizeof *t);
  if (t && !add_heads(t, heads)) {
    cli_table_free(t);
    return NULL;
  }
  return t;
}

void cli_table_free(cli_table *t) {
  if (!t) return;
  for (size_t i = 0; i < t->cells; i++) free(t->cell[i]);
  free(t->cell);
  free(t->right);
  free(t->width);
  free(t);
}

void cli_table_add(cli_table *t, const char *format, ...) {
  char *text;
  va_list args;
  if (!t || t->failed) return;
  va_start(args, format);
  int n = vasprintf(&text, format, args);
  va_end(args);
  add(t, n < 0 ? NULL : text);
}

/* Code points: what a terminal shows in as many columns, but for rare scripts. */
static size_t width_of(const char *text) {
  size_t n = 0;
  for (; *text; text++) n += ((unsigned char)*text & 0xc0) != 0x80;
  return n;
}

static void print_text_row(const cli_table *t, size_t first) {
  for (size_t i = 0; i < t->columns; i++) {
    const char *text = t->cell[first + i];
    int space = (int)(t->width[i] - width_of(text));
    bool last = i + 1 == t->columns;
    cli_print("%s%*s%s%*s", i ? "  " : "", t->right[i] ? space : 0, "", text,
              t->right[i] || last ? 0 : space, "");
  }
  cli_print("\n");
}

static void print_markdown_row(const cli_table *t, size_t first) {
  for (size_t i = 0; i < t->columns; i++) {
    cli_print("| ");
    for (const char *c = t->cell[first + i]; *c; c++) cli_print(*c == '|' ? "\\|" : "%c", *c);
    cli_print(" ");
  }
  cli_print("|\n");
  if (first) return;
  for (size_t i = 0; i < t->columns; i++) cli_print(t->right[i] ? "|---:" : "|---");
  cli_print("|\n");
}

static void print_csv_row(const cli_table *t, size_t first) {
  for (size_t i = 0; i < t->columns; i++) {
    const char *text = t->cell[first + i];
    bool quoted = strpbrk(text, ",\"") != NULL;
    cli_print("%s%s", i ? "," : "", quoted ? "\"" : "");
    for (; *text; text++) cli_print(*text == '"' ? "\"\"" : "%c", *text);
    cli_print("%s", quoted ? "\"" : "");
  }
  cli_print("\n");
}

int cli_table_end(cli_table *t, cli_table_form form) {
  static void (*const print_row[])(const cli_table *, size_t) = {
      [CLI_TABLE_TEXT] = print_text_row,
      [CLI_TABLE_MARKDOWN] = print_markdown_row,
      [CLI_TABLE_CSV] = print_csv_row,
  };
  bool good = t && !t->failed;
  for (size_t i = 0; good && i < t->cells; i++) {
    size_t width = width_of(t->cell[i]), *most = &t->width[i % t->columns];
    if (width > *most) *most = width;
  }
  for (size_t i = 0; good && i + t->columns <= t->cells; i += t->columns) print_row[form](t, i);
  cli_table_free(t);
  return good ? HR_OK : cli_fail_memory();
}
