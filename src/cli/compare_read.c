/* SPDX-License-Identifier: MIT
 * Files of bench into what can be compared. They may come from anywhere: nothing in
 * them is taken for granted. */
#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "compare.h"

enum { NEWEST = 7, TYPES = 4, MACHINE_LIMITS = 2, MOST_RESULTS = 4096 };

/* --- Values ---------------------------------------------------------------------- */

const json_t *compare_get(const json_t *root, const char *path) {
  const json_t *at = root;
  while (at && *path) {
    char key[64];
    size_t length = strcspn(path, ".");
    if (length >= sizeof key) return NULL;
    memcpy(key, path, length);
    key[length] = '\0';
    at = json_object_get(at, key);
    path += length + (path[length] == '.');
  }
  return at;
}

/* Nothing that bench measures is beyond these; ratios of what is within stay finite. */
static const double least = 1e-15, most = 1e17;

double compare_number(const json_t *root, const char *path) {
  double x = json_number_value(compare_get(root, path));
  return x >= least && x <= most ? x : 0;
}

const char *compare_text(const json_t *root, const char *path) {
  return json_string_value(compare_get(root, path));
}

const char *compare_test_name(const compare_test *t, char text[64]) {
  int n = snprintf(text, 64, "%s %.0f", t->work, t->tokens);
  if (t->depth > 0) n += snprintf(text + n, 64 - (size_t)n, " at depth %.0f", t->depth);
  if (t->batch > 1) snprintf(text + n, 64 - (size_t)n, ", batch %.0f", t->batch);
  return text;
}

const char *compare_ratio_text(double ratio, char text[32]) {
  snprintf(text, 32, ratio < 0.1 ? "%.2g" : "%.2f", ratio);
  return text;
}

const char *compare_bound_words(const char *bound) {
  static const char *const words[][2] = {{"read", "reading memory"},
                                         {"int8", "int8 products"},
                                         {"fp32", "fp32 arithmetic"},
                                         {"barrier", "threads waiting for each other"}};
  for (size_t i = 0; bound && i < sizeof words / sizeof *words; i++)
    if (strcmp(words[i][0], bound) == 0) return words[i][1];
  return bound ? bound : "what is not known";
}

const json_t *compare_limits(const compare_file *f, const compare_result *r) {
  size_t i;
  json_t *entry;
  json_array_foreach(compare_get(f->root, "limits"), i, entry) {
    const char *isa = compare_text(entry, "isa");
    if (isa && strcmp(isa, r->isa) == 0 && compare_number(entry, "threads") == r->threads)
      return entry;
  }
  return NULL;
}

/* --- Notes ------------------------------------------------------------------------- */

static void __attribute__((format(printf, 2, 3))) note(compare *c, const char *format, ...) {
  char *text;
  va_list args;
  va_start(args, format);
  int n = vasprintf(&text, format, args);
  va_end(args);
  if (n < 0) return;
  for (char *at = text; *at; at++)
    if ((unsigned char)*at < 0x20 || *at == 0x7f) *at = '?';
  if (cli_bytes_add(&c->notes, text, (size_t)n)) (void)cli_bytes_add(&c->notes, "\n", 1);
  free(text);
}

/* --- One file ---------------------------------------------------------------------- */

static int refuse(const compare_file *f, const char *what) {
  return cli_fail(HR_ERROR_FILE, "%s: %s, expected a file written by 'headrow bench --json'",
                  f->path, what);
}

static bool is_known_work(const char *work) {
  return work && (strcmp(work, "prompt") == 0 || strcmp(work, "generate") == 0);
}

static bool is_known_bound(const char *bound) {
  return strcmp(bound, "read") == 0 || strcmp(bound, "int8") == 0 || strcmp(bound, "fp32") == 0 ||
         strcmp(bound, "barrier") == 0;
}

/* What is said of one result must agree: tokens, seconds, rate, and the share of the limit. The
 * median of an even number of rates is not that of their seconds, but lies among them. */
static bool contradicts(const json_t *from, const compare_result *r, char what[160]) {
  const double rounding = 0.005;
  double seconds = compare_number(from, "seconds.median"), all = r->tokens * r->batch;
  double least_s = compare_number(from, "seconds.min");
  double most_s = compare_number(from, "seconds.max");
  double allowed = compare_number(from, "limit.tokens_per_second") * r->percent / 100;
  bool spread = r->samples % 2 == 0 && least_s > 0 && most_s > least_s;
  double tolerance = rounding + (spread ? most_s / least_s - 1 : 0);
  if (seconds > 0 && fabs(r->rate * seconds / all - 1) > tolerance) {
    snprintf(what, 160, "%.4g tokens/s, but %.4g tokens in %.4g s", r->rate, all, seconds);
    return true;
  }
  if (r->valid && allowed > 0 && fabs(r->rate / allowed - 1) > tolerance) {
    snprintf(what, 160, "%.4g tokens/s, but %.4g %% of a limit of %.4g", r->rate, r->percent,
             100 * allowed / r->percent);
    return true;
  }
  if (r->disturbed > r->samples) {
    snprintf(what, 160, "%zu samples, but %zu disturbed ones", r->samples, r->disturbed);
    return true;
  }
  return false;
}

static bool fill_result(const json_t *from, compare_result *r) {
  bool has_batch = compare_get(from, "batch") != NULL; /* older forms had one sequence only */
  *r = (compare_result){
      .work = compare_text(from, "work"),
      .tokens = compare_number(from, "tokens"),
      .depth = compare_number(from, "depth"),
      .batch = has_batch ? compare_number(from, "batch") : 1,
      .isa = compare_text(from, "isa"),
      .rate = compare_number(from, "tokens_per_second.median"),
      .least = compare_number(from, "tokens_per_second.min"),
      .sd = compare_number(from, "tokens_per_second.sd"),
      .first = compare_number(from, "first_token_seconds.median"),
      .joules = compare_number(from, "energy.joules_per_token.median"),
      .bound = compare_text(from, "limit.name"),
      .percent = compare_number(from, "limit.percent"),
      .samples = json_array_size(compare_get(from, "seconds_samples")),
      .disturbed = json_array_size(compare_get(from, "disturbed.samples")),
      .reason = json_string_value(json_array_get(compare_get(from, "disturbed.reasons"), 0)),
      .digest = compare_text(from, "digest"),
      .bytes = compare_number(from, "amount.bytes"),
      .entry = from,
  };
  double threads = compare_number(from, "threads");
  r->valid = json_is_true(compare_get(from, "limit.valid")) && r->percent <= 100;
  r->operations = 2 * (compare_number(from, "amount.int8_macs") +
                       compare_number(from, "amount.float_macs"));
  r->threads = threads < 65536 ? (unsigned)threads : 0;
  return is_known_work(r->work) && r->tokens >= 1 && r->tokens < 1e9 && r->depth < 1e9 &&
         r->batch >= 1 && r->batch < 1e6 && r->isa && r->rate > 0 && r->rate < 1e9 &&
         r->threads > 0;
}

/* A limit of another name can't be reasoned from. */
static void check_bound(compare *c, const compare_file *f, compare_result *r, bool *noted) {
  if (!r->bound || is_known_bound(r->bound)) return;
  char name[64];
  compare_test t = {.work = r->work, .tokens = r->tokens, .depth = r->depth, .batch = r->batch};
  if (!*noted)
    note(c, "%s: %s: its limit '%s' is not known here: what limits it is not told", f->label,
         compare_test_name(&t, name), strlen(r->bound) < 40 ? r->bound : "of a long name");
  *noted = true;
  r->bound = NULL;
}

static int read_results(compare *c, compare_file *f) {
  const json_t *list = json_object_get(f->root, "results");
  char what[240], contradiction[160];
  bool noted = false;
  size_t count = json_array_size(list);
  if (!json_is_array(list)) return refuse(f, "has no list of results");
  if (count > MOST_RESULTS) return refuse(f, "has too many results");
  if (count == 0 && json_array_size(json_object_get(f->root, "kernel_rates")) == 0)
    return refuse(f, "has no results, neither of a model nor of kernels");
  f->result = calloc(count + 1, sizeof *f->result);
  if (!f->result) return cli_fail_memory();
  for (; f->results < count; f->results++) {
    compare_result *r = &f->result[f->results];
    const json_t *from = json_array_get(list, f->results);
    snprintf(what, sizeof what, "result %zu is not complete", f->results + 1);
    if (!fill_result(from, r)) return refuse(f, what);
    if (contradicts(from, r, contradiction)) {
      snprintf(what, sizeof what, "result %zu contradicts itself: %s", f->results + 1,
               contradiction);
      return refuse(f, what);
    }
    check_bound(c, f, r, &noted);
  }
  return HR_OK;
}

/* The name without its folder and ".json"; a second one of the name gets a number. */
static void set_label(compare *c, compare_file *f) {
  const char *slash = strrchr(f->path, '/'), *name = slash ? slash + 1 : f->path;
  size_t length = strlen(name), same = 0;
  if (length > 5 && strcmp(name + length - 5, ".json") == 0) length -= 5;
  if (length > 40) length = 40;
  /* not within a code point */
  while (length && length < strlen(name) && ((unsigned char)name[length] & 0xc0) == 0x80) length--;
  json_t *clean = json_stringn(name, length);
  if (clean)
    snprintf(f->label, sizeof f->label, "%.*s", (int)length, name);
  else
    snprintf(f->label, sizeof f->label, "file %zu", c->files + 1);
  json_decref(clean);
  for (char *at = f->label; *at; at++)
    if ((unsigned char)*at < 0x20 || *at == 0x7f) *at = '?';
  for (size_t i = 0; i < c->files; i++) same += strcmp(c->file[i].label, f->label) == 0;
  size_t used = strlen(f->label);
  if (same) snprintf(f->label + used, sizeof f->label - used, " (%zu)", c->files + 1);
}

/* What bench said about the measurement itself. */
static void note_warnings(compare *c, const compare_file *f) {
  const json_t *list = json_object_get(f->root, "warnings");
  const char *first = json_string_value(json_array_get(list, 0));
  size_t count = json_array_size(list);
  if (!first) return;
  if (count == 1)
    note(c, "%s: bench warned: %s", f->label, first);
  else
    note(c, "%s: bench warned %zu times, first: %s", f->label, count, first);
}

/* Numbers that compare_number does not take, anywhere in the document. */
static size_t count_absurd(const json_t *at, double *first) {
  size_t i, count = 0;
  const char *key;
  json_t *value;
  if (json_is_array(at)) {
    json_array_foreach(at, i, value) count += count_absurd(value, count ? NULL : first);
  } else if (json_is_object(at)) {
    json_object_foreach((json_t *)(uintptr_t)at, key, value)
      count += count_absurd(value, count ? NULL : first);
  } else if (json_is_number(at) && fabs(json_number_value(at)) > most) {
    if (first) *first = json_number_value(at);
    count = 1;
  }
  return count;
}

/* What is missing or can't be true, each in a line. */
static void note_holes(compare *c, const compare_file *f) {
  double such = 0;
  size_t absurd = count_absurd(f->root, &such);
  bool limits = json_array_size(compare_get(f->root, "machine_limits.by_threads")) > 0;
  if (absurd)
    note(c, "%s: %zu number%s beyond all that can be measured, such as %.3g: not used", f->label,
         absurd, absurd == 1 ? " is" : "s are", such);
  if (json_object_size(compare_get(f->root, "machine")) == 0)
    note(c, "%s: has no record of its machine: what differs can't be told", f->label);
  if (f->version >= MACHINE_LIMITS && !limits)
    note(c, "%s: has no limits of its machine", f->label);
}

int compare_read(compare *c, const char *path) {
  json_error_t error;
  compare_file *f = &c->file[c->files];
  *f = (compare_file){.path = path};
  set_label(c, f);
  f->root = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
  if (!f->root && json_error_code(&error) == json_error_cannot_open_file)
    return cli_fail(HR_ERROR_FILE, "%s: %s", path, error.text);
  if (!f->root)
    return cli_fail(HR_ERROR_FILE, "%s: line %d: %s, expected JSON", path, error.line, error.text);
  c->files++;
  const char *schema = compare_text(f->root, "schema");
  double version = compare_number(f->root, "schema_version");
  if (!schema || strcmp(schema, "headrow-bench") != 0) return refuse(f, "is something else");
  if (version < 1 || version > 1e6 || version != floor(version))
    return refuse(f, "has no version of its form");
  f->version = (int)version;
  int status = read_results(c, f);
  if (status != HR_OK) return status;
  if (f->version > NEWEST)
    note(c, "%s: version %d of the form is newer than %d: what it has besides is not shown",
         f->label, f->version, NEWEST);
  static const char *const older[] = {
      "the machine's own limits and disturbances are not in it",
      "all of its tests are of one sequence",
      "throttling, the highest frequency and types of weights are not in it",
      "its limit of reading is of other memory than the weights",
      "the share of what int8 products can have by themselves, `of form`, is not in it",
      "its `of form` leaves out what attention does beside multiplying, and generation"};
  if (f->version < NEWEST)
    note(c, "%s: version %d of the form: %s", f->label, f->version, older[f->version - 1]);
  note_holes(c, f);
  note_warnings(c, f);
  return HR_OK;
}

/* --- All files --------------------------------------------------------------------- */

/* A member of the model's record as words; "not known" where it is missing. */
static void put_member(const json_t *model, const char *key, char text[64]) {
  const json_t *value = json_object_get(model, key);
  if (json_is_string(value))
    snprintf(text, 64, "%.60s", json_string_value(value));
  else if (json_is_number(value))
    snprintf(text, 64, "%.15g", json_number_value(value));
  else
    snprintf(text, 64, "not known");
}

/* What tells two models apart, in words; false for the same one. Names and places of files
 * differ, and the bytes for a token are the cache's too: the same model has the same family,
 * shape and weights. */
static bool model_differs(const compare_file *a, const compare_file *b, char text[192]) {
  static const char *const members[][2] = {
      {"family", "family"},         {"types", "types of weights"},
      {"layers", "layers"},
      {"width", "width"},           {"heads", "heads"},
      {"kv_heads", "key/value heads"}, {"head_width", "width of a head"},
      {"ffn_width", "width of the feed-forward"}, {"vocabulary", "vocabulary"},
      {"parameters", "parameters"}, {"weight_bytes", "bytes of weights"},
  };
  const json_t *x = compare_get(a->root, "model"), *y = compare_get(b->root, "model");
  if (!json_is_object(x) || !json_is_object(y)) {
    snprintf(text, 192, "its record is missing");
    return true;
  }
  for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
    char first[64], other[64];
    put_member(x, members[i][0], first);
    put_member(y, members[i][0], other);
    bool newer = i == 1; /* older forms have no types: the bytes tell */
    if (newer && (a->version < TYPES || b->version < TYPES)) continue;
    if (strcmp(first, other) == 0) continue;
    snprintf(text, 192, "%s: %s, in %.40s: %s", members[i][1], other, a->label, first);
    return true;
  }
  return false;
}

static const char *or_unknown(const char *text) {
  return text ? text : "not known";
}

/* A setting that was left open is null. */
static const char *setting_of(const compare_file *f, const char *path, const char *open) {
  return or_unknown(json_is_null(compare_get(f->root, path)) ? open : compare_text(f->root, path));
}

static void note_settings(compare *c, const compare_file *f) {
  static const char *const texts[][3] = {
      {"settings.cache", "the KV cache", NULL},
      {"settings.cores", "the cores asked for", "automatic"},
      {"settings.isa", "the kernel tier asked for", "the best there is"},
  };
  const compare_file *first = &c->file[0];
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    const char *own = setting_of(f, texts[i][0], texts[i][2]);
    const char *others = setting_of(first, texts[i][0], texts[i][2]);
    if (strcmp(own, others) != 0)
      note(c, "%s: %s: %s, in %s: %s", f->label, texts[i][1], own, first->label, others);
  }
  if (json_is_true(compare_get(first->root, "settings.no_pin")) !=
      json_is_true(compare_get(f->root, "settings.no_pin")))
    note(c, "%s and %s: the threads of one are pinned, those of the other are not", first->label,
         f->label);
}

static void find_models(compare *c) {
  compare_file *first = &c->file[0];
  for (size_t i = 0; i < c->files; i++) {
    compare_file *f = &c->file[i];
    char what[192];
    f->same_model = i == 0 || !model_differs(first, f, what);
    if (i) note_settings(c, f);
    if (f->same_model || !f->results || !first->results) continue;
    note(c, "%s: another model (%s; %s has %s; %s): rates are not compared, percents of limits are",
         f->label, or_unknown(compare_text(f->root, "model.name")), first->label,
         or_unknown(compare_text(first->root, "model.name")), what);
  }
}

bool compare_same_work(const compare_test *t, const compare_result *r) {
  return strcmp(t->work, r->work) == 0 && t->tokens == r->tokens && t->depth == r->depth;
}

bool compare_same_test(const compare_test *t, const compare_result *r) {
  return compare_same_work(t, r) && t->batch == r->batch;
}

static compare_test *find_test(compare *c, const compare_result *r) {
  for (size_t i = 0; i < c->tests; i++)
    if (compare_same_test(&c->test[i], r)) return &c->test[i];
  if (c->tests == COMPARE_TESTS) return NULL;
  c->test[c->tests] = (compare_test){
      .work = r->work, .tokens = r->tokens, .depth = r->depth, .batch = r->batch};
  return &c->test[c->tests++];
}

compare_digests compare_digest(const compare *c, const compare_test *t, size_t file) {
  const compare_result *first = t->best[0], *r = t->best[file];
  if (!first || !r || !c->file[file].same_model) return COMPARE_APART;
  if (!first->digest || !r->digest) return COMPARE_UNKNOWN;
  if (strcmp(first->digest, r->digest) == 0) return COMPARE_EQUAL;
  size_t length = strcspn(first->digest, "-");
  bool alike = strncmp(first->digest, r->digest, length + 1) == 0;
  return alike ? COMPARE_OTHER_LOGITS : COMPARE_OTHER_ARITHMETIC;
}

static void note_digests(compare *c, const compare_test *t) {
  char name[64];
  for (size_t i = 1; i < c->files; i++) {
    compare_digests how = compare_digest(c, t, i);
    if (how != COMPARE_OTHER_LOGITS && how != COMPARE_OTHER_ARITHMETIC) continue;
    note(c,
         how == COMPARE_OTHER_LOGITS
             ? "%s and %s: %s ended in other logits (%s, %s): not the same weights, settings or "
               "results"
             : "%s and %s: %s was computed by other arithmetics (%s, %s)",
         c->file[0].label, c->file[i].label, compare_test_name(t, name), t->best[0]->digest,
         t->best[i]->digest);
  }
}

/* One line for all that a file lacks. */
static void note_missing(compare *c, size_t file) {
  cli_bytes list = {0};
  bool good = true;
  for (size_t i = 0; i < c->tests && c->file[file].results; i++) {
    char name[64];
    if (c->test[i].best[file]) continue;
    good = good && compare_put(&list, "%s%s", list.used ? ", " : "",
                               compare_test_name(&c->test[i], name));
  }
  if (good && list.used)
    note(c, "%s: not measured: %.*s", c->file[file].label, (int)list.used, list.data);
  cli_bytes_free(&list);
}

/* A file of kernels beside one of a model. */
static void note_kinds(compare *c) {
  for (size_t i = 0; i < c->files; i++) {
    size_t kernels = json_array_size(json_object_get(c->file[i].root, "kernel_rates"));
    if (c->tests && !c->file[i].results)
      note(c, "%s: measured kernels only, no model", c->file[i].label);
    if (i && kernels && !compare_has_kernels(c))
      note(c, "%s: its kernels are not shown: %s has none to compare them with",
           c->file[i].label, c->file[0].label);
  }
}

int compare_match(compare *c) {
  c->test = calloc(COMPARE_TESTS, sizeof *c->test);
  if (!c->test) return cli_fail_memory();
  find_models(c);
  for (size_t i = 0; i < c->files; i++)
    for (size_t j = 0; j < c->file[i].results; j++) {
      const compare_result *r = &c->file[i].result[j];
      compare_test *t = find_test(c, r);
      if (!t)
        return cli_fail(HR_ERROR_FILE, "%s: too many different tests, expected at most %d",
                        c->file[i].path, COMPARE_TESTS);
      if (!t->best[i] || r->rate > t->best[i]->rate) t->best[i] = r;
    }
  for (size_t i = 0; i < c->tests; i++) note_digests(c, &c->test[i]);
  for (size_t i = 0; i < c->files; i++) note_missing(c, i);
  note_kinds(c);
  return HR_OK;
}

double compare_ratio(const compare *c, const compare_test *t, size_t file) {
  if (!t->best[0] || !t->best[file] || !c->file[file].same_model) return 0;
  return t->best[file]->rate / t->best[0]->rate;
}

void compare_free(compare *c) {
  for (size_t i = 0; i < COMPARE_FILES; i++) {
    json_decref(c->file[i].root);
    free(c->file[i].result);
  }
  free(c->test);
  cli_bytes_free(&c->notes);
}
