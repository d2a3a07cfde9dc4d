/* SPDX-License-Identifier: MIT
 * headrow compare: files of bench side by side, and why they differ. */
#include "compare.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "output.h"
#include "save.h"

typedef struct compare_settings {
  cli_common common;
  const char *html;
  bool csv, markdown;
  cli_real slowdown;
} compare_settings;

#define AT(member) .offset = offsetof(compare_settings, member)

static const cli_option options[] = {
    {"html", 0, "FILE", "write a page with charts too: one file that needs no network", CLI_TEXT,
     AT(html)},
    {"max-slowdown", 0, "R",
     "status 1 when a test takes more than R times as long as in the\n"
     "first file or ended in other logits, 3 when a file lacks one", CLI_REAL,
     AT(slowdown), .low = 0, .high = INFINITY, .above_low = true},
    {"csv", 0, NULL, "the results as comma-separated values", CLI_FLAG, AT(csv)},
    {"md", 0, NULL, "the tables in Markdown", CLI_FLAG, AT(markdown)},
};

/* --- Tables -------------------------------------------------------------------- */

static void add_share(cli_table *t, const compare_result *r) {
  char disturbed[64] = "";
  if (r->disturbed)
    snprintf(disturbed, sizeof disturbed, ", %zu of %zu disturbed", r->disturbed, r->samples);
  if (r->percent > 0 && r->bound && !r->valid)
    cli_table_add(t, "not valid (%s)%s", r->bound, disturbed);
  else if (r->percent > 0 && r->bound)
    cli_table_add(t, "%.1f %% %s%s", r->percent, r->bound, disturbed);
  else
    cli_table_add(t, "-%s", disturbed);
}

static int print_results(const compare *c, cli_table_form form) {
  char text[32];
  cli_table *t = cli_table_new("work|file|tier|threads:|tokens/s:|sd:|ratio:|first s:|of limit");
  for (size_t i = 0; i < c->tests; i++)
    for (size_t f = 0; f < c->files; f++) {
      const compare_result *r = c->test[i].best[f];
      char name[64];
      double ratio = compare_ratio(c, &c->test[i], f);
      if (!r) continue;
      cli_table_add(t, "%s", compare_test_name(&c->test[i], name));
      cli_table_add(t, "%s", c->file[f].label);
      cli_table_add(t, "%s", r->isa);
      cli_table_add(t, "%u", r->threads);
      cli_table_add(t, "%.2f", r->rate);
      cli_table_add(t, r->sd > 0 ? "%.2f" : "-", r->sd);
      cli_table_add(t, "%s", ratio > 0 ? compare_ratio_text(ratio, text) : "-");
      cli_table_add(t, r->first > 0 ? "%.4g" : "-", r->first);
      add_share(t, r);
    }
  return cli_table_end(t, form);
}

/* Heads with the files' names, whose bars would be taken for new columns. */
static cli_table *table_of_files(const compare *c, const char *first, bool numbers) {
  cli_bytes heads = {0};
  bool good = compare_put(&heads, "%s", first);
  for (size_t f = 0; f < c->files; f++) {
    char label[sizeof c->file[f].label];
    memcpy(label, c->file[f].label, sizeof label);
    for (char *at = label; *at; at++)
      if (*at == '|' || *at == ':') *at = '/';
    good = good && compare_put(&heads, "|%s%s", label, numbers ? ":" : "");
  }
  good = good && cli_bytes_add(&heads, "", 1);
  cli_table *t = good ? cli_table_new(heads.data) : NULL;
  cli_bytes_free(&heads);
  return t;
}

/* A table with ratios to the first file where there are numbers; right: all columns are. */
static int print_numbers(const compare *c, cli_table_form form, const char *head, bool right,
                         bool (*next)(const compare *, size_t, compare_row *)) {
  cli_table *t = table_of_files(c, head, right);
  compare_row row;
  char ratio[32];
  for (size_t i = 0; next(c, i, &row); i++) {
    if (!*row.name) continue;
    cli_table_add(t, "%s", row.name);
    for (size_t f = 0; f < c->files; f++)
      if (f && row.number[0] > 0 && row.number[f] > 0)
        cli_table_add(t, "%s (%s x)", row.value[f],
                      compare_ratio_text(row.number[f] / row.number[0], ratio));
      else
        cli_table_add(t, "%s", row.value[f]);
  }
  return cli_table_end(t, form);
}

static int print_records(const compare *c, cli_table_form form) {
  cli_table *t = table_of_files(c, "what differs", false);
  compare_row row;
  for (size_t i = 0; compare_record_row(c, i, &row); i++) {
    if (!row.differs) continue;
    cli_table_add(t, "%s", row.name);
    for (size_t f = 0; f < c->files; f++) cli_table_add(t, "%s", row.value[f]);
  }
  return cli_table_end(t, form);
}

static int print_words(const compare *c, bool markdown) {
  for (size_t f = 1; f < c->files; f++) {
    char *all = compare_summary(c, f);
    if (!all) return cli_fail_memory();
    if (*all) cli_print("%s\n\n", all);
    free(all);
    for (size_t i = 0; i < c->tests; i++) {
      char *text = compare_why(c, &c->test[i], f);
      if (!text) return cli_fail_memory();
      if (*text) cli_print("%s%s\n", markdown ? "- " : "", text);
      free(text);
    }
  }
  return HR_OK;
}

static void print_notes(const compare *c) {
  const char *at = c->notes.data, *end = at + c->notes.used;
  while (at && at < end) {
    const char *line = memchr(at, '\n', (size_t)(end - at));
    cli_note("note: %.*s", (int)(line - at), at);
    at = line + 1;
  }
}

static int print_all(const compare *c, cli_table_form form) {
  int status = c->tests ? print_results(c, form) : HR_OK;
  if (c->tests) cli_print("\n");
  if (status == HR_OK && c->files > 1) status = print_words(c, form == CLI_TABLE_MARKDOWN);
  if (c->tests && c->files > 1) cli_print("\n");
  if (status == HR_OK && c->tests) {
    status = print_numbers(c, form, "while measuring", false, compare_state_row);
    cli_print("\n");
  }
  if (status == HR_OK)
    status = print_numbers(c, form, "limits of the machines", true, compare_limit_row);
  if (status == HR_OK && compare_has_kernels(c)) {
    cli_print("\n");
    status = print_numbers(c, form, "kernels", true, compare_kernel_row);
  }
  if (status != HR_OK || c->files < 2) return status;
  cli_print("\n");
  return print_records(c, form);
}

/* What is not known is an empty field. */
static void add_number(cli_table *t, double x) {
  if (x > 0)
    cli_table_add(t, "%.9g", x);
  else
    cli_table_add(t, "%s", "");
}

/* "not readable" of everything that is missing, each with its reason. */
static void add_unread(cli_table *t, const compare_file *f, const compare_result *r,
                       const compare_state *s) {
  const struct {
    const char *name;
    compare_sensor which;
    bool known;
  } all[] = {{"mhz", COMPARE_FREQUENCY, s->mhz > 0},
             {"percent_of_highest_mhz", COMPARE_HIGHEST, s->share > 0},
             {"celsius", COMPARE_TEMPERATURE, s->has_celsius},
             {"throttled", COMPARE_THROTTLING, s->known > 0},
             {"joules_per_token", COMPARE_ENERGY, r->joules > 0}};
  cli_bytes text = {0};
  bool good = true;
  for (size_t i = 0; i < sizeof all / sizeof *all; i++)
    if (!all[i].known)
      good = good && compare_put(&text, "%s%s: not readable: %.200s", text.used ? "; " : "",
                                 all[i].name, compare_unread(f, r, all[i].which));
  if (good && text.used)
    cli_table_add(t, "%.*s", (int)text.used, text.data);
  else
    cli_table_add(t, "%s", good ? "" : "not enough memory");
  cli_bytes_free(&text);
}

static void add_state(cli_table *t, const compare_file *f, const compare_result *r) {
  compare_state s = compare_state_of(f, r);
  add_number(t, s.mhz);
  add_number(t, s.least_mhz);
  add_number(t, s.share);
  if (s.has_celsius)
    cli_table_add(t, "%.9g", s.celsius);
  else
    cli_table_add(t, "%s", "");
  if (s.known)
    cli_table_add(t, "%zu", s.throttled);
  else
    cli_table_add(t, "%s", "");
  add_unread(t, f, r, &s);
}

/* CSV for programs: every number as it is. */
static int print_csv(const compare *c) {
  cli_table *t = cli_table_new(
      "work|tokens|depth|file|model|tier|threads|tokens_per_second|least|sd|ratio|limit|percent|"
      "valid|samples|disturbed|first_token_seconds|joules_per_token|digest|batch|mhz|least_mhz|"
      "percent_of_highest_mhz|celsius|throttled|not_readable");
  for (size_t i = 0; i < c->tests; i++)
    for (size_t f = 0; f < c->files; f++) {
      const compare_result *r = c->test[i].best[f];
      double ratio = compare_ratio(c, &c->test[i], f);
      const char *model = compare_text(c->file[f].root, "model.name");
      if (!r) continue;
      cli_table_add(t, "%s", r->work);
      cli_table_add(t, "%.0f", r->tokens);
      cli_table_add(t, "%.0f", r->depth);
      cli_table_add(t, "%s", c->file[f].path);
      cli_table_add(t, "%s", model ? model : "");
      cli_table_add(t, "%s", r->isa);
      cli_table_add(t, "%u", r->threads);
      add_number(t, r->rate);
      add_number(t, r->least);
      add_number(t, r->sd);
      add_number(t, ratio);
      cli_table_add(t, "%s", r->bound ? r->bound : "");
      add_number(t, r->percent);
      cli_table_add(t, r->valid ? "true" : "false");
      cli_table_add(t, "%zu", r->samples);
      cli_table_add(t, "%zu", r->disturbed);
      add_number(t, r->first);
      add_number(t, r->joules);
      cli_table_add(t, "%s", r->digest ? r->digest : "");
      cli_table_add(t, "%.0f", r->batch);
      add_state(t, &c->file[f], r);
    }
  return cli_table_end(t, CLI_TABLE_CSV);
}

/* --- The check ------------------------------------------------------------------- */

enum { SLOWER = 1 };

/* One test of one file beside the first file's: a line and a status when it is too slow, or
 * when that can't be told. A difference found goes before one that could not be looked for. */
static int check_test(const compare *c, const compare_test *t, size_t f, double most) {
  char name[64];
  const char *path = c->file[f].path, *first = c->file[0].path;
  compare_test_name(t, name);
  if (!t->best[f])
    return cli_fail(HR_ERROR_FILE, "%s: has no %s, expected every test of %s", path, name, first);
  double times = 1 / compare_ratio(c, t, f);
  switch (compare_digest(c, t, f)) {
    case COMPARE_OTHER_LOGITS:
      return cli_fail((hr_status)SLOWER,
                      "%s: %s ended in other logits (%s) than in %s, expected %s", path, name,
                      t->best[f]->digest, first, t->best[0]->digest);
    case COMPARE_OTHER_ARITHMETIC:
      return cli_fail(HR_ERROR_FILE, "%s: %s has the digest %s of another arithmetic than in %s, "
                      "expected one like %s", path, name, t->best[f]->digest, first,
                      t->best[0]->digest);
    case COMPARE_UNKNOWN:
      return cli_fail(HR_ERROR_FILE, "%s: %s has no digest to compare with that of %s, expected "
                      "files with digests", path, name, first);
    case COMPARE_APART:
    case COMPARE_EQUAL: break;
  }
  if (times <= most) return HR_OK;
  return cli_fail((hr_status)SLOWER,
                  "%s: %s takes %.3f times as long as in %s, expected at most %g", path, name,
                  times, first, most);
}

/* 1 when a test is too slow or ended in other logits; else HR_ERROR_FILE when a file has not
 * all that the first one has. */
static int check_slowdown(const compare *c, double most) {
  size_t compared = 0;
  int worst = HR_OK;
  for (size_t f = 1; f < c->files; f++)
    for (size_t i = 0; i < c->tests; i++) {
      const compare_test *t = &c->test[i];
      if (!t->best[0] || !c->file[f].same_model) continue;
      compared += t->best[f] != NULL;
      int status = check_test(c, t, f, most);
      if (status != HR_OK && worst != SLOWER) worst = status;
    }
  for (size_t f = 1; f < c->files; f++)
    if (!c->file[f].same_model) {
      int status = cli_fail(HR_ERROR_FILE, "%s: has another model than %s, expected the same",
                            c->file[f].path, c->file[0].path);
      if (worst == HR_OK) worst = status;
    }
  if (!compared && worst == HR_OK)
    worst = cli_fail(HR_ERROR_FILE,
                     "--max-slowdown: the files have no test in common, expected one");
  return worst;
}

/* --- The command ------------------------------------------------------------------ */

static int save_page(const compare *c, const char *path) {
  cli_bytes page = {0};
  int status = compare_page(c, &page) ? cli_save_file(path, page.data, page.used)
                                      : cli_fail_memory();
  cli_bytes_free(&page);
  return status;
}

static int read_all(compare *c, const compare_settings *s) {
  const cli_texts *p = &s->common.positional;
  if (p->count < 1 || p->count > COMPARE_FILES)
    return cli_fail(HR_ERROR_USAGE, "files: %zu are given, expected 1 to %d written by 'headrow "
                    "bench --json'", p->count, COMPARE_FILES);
  if (s->csv && s->markdown)
    return cli_fail(HR_ERROR_USAGE, "--csv, --md: expected one of them");
  int status = s->html ? cli_check_save(s->html) : HR_OK;
  for (size_t i = 0; status == HR_OK && i < p->count; i++) status = compare_read(c, p->item[i]);
  return status == HR_OK ? compare_match(c) : status;
}

static int run_all(compare *c, const compare_settings *s) {
  int status = read_all(c, s);
  if (status != HR_OK) return status;
  if (!s->common.quiet) print_notes(c);
  status = s->csv ? print_csv(c) : print_all(c, s->markdown ? CLI_TABLE_MARKDOWN : CLI_TABLE_TEXT);
  if (status == HR_OK && s->html) status = save_page(c, s->html);
  if (status == HR_OK && s->slowdown.given) status = check_slowdown(c, (double)s->slowdown.value);
  return status;
}

static int compare_command(const cli_command *command, int argc, char **argv) {
  compare_settings s = {0};
  int status;
  if (!cli_start(command, argc, argv, &s, &status)) return status;
  compare *c = calloc(1, sizeof *c);
  if (!c) return cli_fail_memory();
  status = run_all(c, &s);
  compare_free(c);
  free(c);
  return status;
}

const cli_command cli_compare_command = {
    .name = "compare",
    .arguments = "A.json B.json... [--html FILE] [--max-slowdown R] [options]",
    .summary = "lay results of bench side by side and say why they differ",
    .details =
        "Every test is compared by the fastest tier and number of threads of each file, with\n"
        "the first file as 1. A rate is what a limit allows times the share of it that is\n"
        "reached: so the ratio of two rates is explained by the ratio of the limits and that\n"
        "of the shares.\n\n"
        "Files of another model are compared by percents of limits only. What differs in\n"
        "settings, digests or tests is noted on standard error.",
    .options = options,
    .option_count = sizeof options / sizeof *options,
    .run = compare_command,
};
