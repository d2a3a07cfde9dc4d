/* SPDX-License-Identifier: MIT
 * The same bits on every back-end, every machine: digests of logits, written, compared. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "accuracy.h"
#include "kernels/select.h"
#include "machine.h"
#include "output.h"
#include "save.h"

/* One digest a part, over the logits of all its scored positions. */
typedef struct digests {
  uint64_t *part;
  size_t parts, vocab;
} digests;

static int add_row(void *arg, size_t part, const float *const *logits, int32_t next) {
  digests *d = arg;
  (void)next;
  d->part[part] = hr_digest(d->part[part], logits[0], d->vocab);
  return HR_OK;
}

/* Tokens of a fixed rule where no text is given: two parts, the first of them over
 * more than one block of keys where the context allows it. */
static int make_tokens(const hr_model *model, size_t context, cli_corpus *corpus) {
  char text[4096];
  uint32_t state = 1;
  int status = HR_OK;
  static const size_t lengths[] = {290, 40};
  for (size_t p = 0; p < 2 && status == HR_OK; p++) {
    size_t used = 0, count = lengths[p] < context ? lengths[p] : context;
    for (size_t i = 0; i < count; i++) {
      state = state * 1664525u + 1013904223u;
      used += (size_t)snprintf(text + used, sizeof text - used, "%zu ",
                               (size_t)(state >> 8) % hr_model_vocab_size(model));
    }
    status = cli_corpus_from_ids(corpus, text);
  }
  return status;
}

static int read_corpus(const cli_accuracy *s, const hr_model *model, size_t context,
                       cli_corpus *corpus) {
  if (s->file || s->common.ids) return cli_accuracy_corpus(s, model, corpus);
  return make_tokens(model, context, corpus);
}

static int digest_parts(const cli_accuracy *s, const hr_model *model, hr_session *session,
                        const cli_corpus *corpus, digests *d) {
  *d = (digests){.parts = corpus->parts, .vocab = hr_model_vocab_size(model)};
  d->part = calloc(d->parts, sizeof *d->part);
  if (!d->part) return cli_fail_memory();
  for (size_t i = 0; i < d->parts; i++) d->part[i] = HR_DIGEST_INIT;
  cli_scoring scoring = {.session = &session, .sessions = 1, .vocab = d->vocab,
                         .stride = (size_t)s->stride.value,
                         .what = s->common.quiet ? NULL : "digests"};
  if (scoring.stride > hr_session_context(session))
    return cli_fail(HR_ERROR_USAGE, "--stride: %zu, expected at most the context of %zu",
                    scoring.stride, hr_session_context(session));
  return cli_score(&scoring, corpus, add_row, d);
}

/* Digests of one model in one session; *corpus is read when it is empty. */
static int digest_model(const cli_accuracy *s, const hr_model *model, cli_corpus *corpus,
                        digests *d, size_t *context) {
  int status = HR_OK;
  hr_session *session = cli_open_session(&s->common, model, &status);
  if (!session) return status;
  *context = hr_session_context(session);
  if (corpus->parts == 0) status = read_corpus(s, model, *context, corpus);
  if (status == HR_OK) status = digest_parts(s, model, session, corpus, d);
  hr_session_free(session);
  return status;
}

/* --- Across the tiers of this machine -------------------------------------------- */

/* Why a tier is not compared, or NULL. */
static const char *reason_to_skip(const cli_accuracy *s, const hr_tier *tier) {
  size_t count;
  const hr_tier *limit = hr_tiers(&count);
  if (tier->needs & ~hr_cpu_features()) return "this CPU lacks it";
  while (s->common.isa && strcmp(limit->name, s->common.isa) != 0) limit++;
  return s->common.isa && tier > limit ? "above the highest that was asked for" : NULL;
}

static int compare_tier(const cli_accuracy *s, const char *name, const hr_tier *tier,
                        cli_corpus *corpus, digests *first, json_t *list) {
  cli_accuracy own = *s;
  int status = HR_OK;
  size_t context;
  own.common.isa = tier->name;
  own.common.quiet = true;
  hr_model *model = cli_open_model(&own.common, name, false, &status);
  if (!model) return status;
  digests d = {0};
  status = digest_model(&own, model, corpus, &d, &context);
  bool same = status == HR_OK;
  for (size_t i = 0; same && first->part && i < d.parts; i++) same = d.part[i] == first->part[i];
  if (status == HR_OK)
    json_array_append_new(list, json_pack("{s:s, s:b}", "isa", tier->name, "equal", same));
  if (status == HR_OK && !s->json)
    cli_print("%-12s %s\n", tier->name, !first->part ? "the reference"
                                        : same       ? "equal" : "OTHER BITS");
  if (status == HR_OK && !same)
    status = cli_fail(CLI_DIFFERENT, "%s: its logits have other bits, expected those of %s",
                      tier->name, hr_tiers(&(size_t){0})->name);
  if (!first->part)
    *first = d;
  else
    free(d.part);
  hr_model_free(model);
  return status;
}

/* Goes on after a difference: all of them are of interest. */
static int compare_tiers(const cli_accuracy *s, const char *name, json_t *list) {
  size_t count;
  const hr_tier *tiers = hr_tiers(&count);
  cli_corpus corpus = {0};
  digests first = {0};
  int status = HR_OK;
  for (size_t i = 0; i < count; i++) {
    const char *skipped = reason_to_skip(s, &tiers[i]);
    if (skipped) {
      if (!s->common.quiet) cli_note("note: %s is not compared: %s", tiers[i].name, skipped);
      json_array_append_new(list, json_pack("{s:s, s:n, s:s}", "isa", tiers[i].name, "equal",
                                            "reason", skipped));
      continue;
    }
    int one = compare_tier(s, name, &tiers[i], &corpus, &first, list);
    if (one != HR_OK) status = one;
    if (one != HR_OK && one != (int)CLI_DIFFERENT) break;
  }
  free(first.part);
  cli_corpus_free(&corpus);
  return status;
}

/* --- Files ----------------------------------------------------------------------- */

static const char *const weight_names[] = {"native", "f32", "f16", "q8_0"};

static void hex(uint64_t x, char text[17]) {
  snprintf(text, 17, "%016llx", (unsigned long long)x);
}

/* FNV-1a 64 over the ids, so that another text is not taken for other logits. */
static uint64_t ids_digest(const cli_part *p) {
  uint64_t h = HR_DIGEST_INIT;
  for (size_t i = 0; i < p->count; i++)
    for (int b = 0; b < 32; b += 8)
      h = (h ^ ((uint32_t)p->ids[i] >> b & 0xff)) * UINT64_C(0x100000001b3);
  return h;
}

/* What the digests depend on beside the model's values. */
static json_t *settings_of(const cli_accuracy *s, const hr_model *model, size_t context) {
  bool half = s->common.cache.given ? s->common.cache.value == 0 : !model->loaded.all_f32;
  return json_pack("{s:s, s:s, s:I, s:I}", "weights", weight_names[s->common.weights.value],
                   "cache", half ? "f16" : "f32", "context", (json_int_t)context, "stride",
                   (json_int_t)(s->stride.given ? s->stride.value : context / 2));
}

static json_t *document_of(const cli_accuracy *s, const hr_model *model, const cli_corpus *corpus,
                           const digests *d, size_t context) {
  json_t *parts = json_array();
  for (size_t i = 0; i < d->parts; i++) {
    char logits[17], ids[17];
    hex(d->part[i], logits);
    hex(ids_digest(&corpus->part[i]), ids);
    json_array_append_new(parts, json_pack("{s:I, s:s, s:s}", "tokens",
                                           (json_int_t)corpus->part[i].count, "ids", ids,
                                           "logits", logits));
  }
  return json_pack("{s:i, s:o, s:o}", "arithmetic", HR_ARITHMETIC, "settings",
                   settings_of(s, model, context), "parts", parts);
}

static int save_document(const char *path, json_t *document) {
  char *text = document ? json_dumps(document, JSON_INDENT(1) | JSON_PRESERVE_ORDER) : NULL;
  if (!text) return cli_fail_memory();
  size_t length = strlen(text);
  text[length] = '\n'; /* in the place of the NUL */
  int status = cli_save_file(path, text, length + 1);
  free(text);
  return status;
}

static bool is_digest(const json_t *text) {
  const char *digits = json_string_value(text);
  return digits && strlen(digits) == 16 && strspn(digits, "0123456789abcdef") == 16;
}

/* Whether a document has all that --digests writes. */
static int check_form(const char *path, const json_t *then) {
  const json_t *number = json_object_get(then, "arithmetic"), *part;
  const json_t *parts = json_object_get(then, "parts");
  size_t i;
  if (!json_is_integer(number) || !json_is_array(parts))
    return cli_fail(HR_ERROR_FILE, "%s: is not a digest file, expected what --digests writes",
                    path);
  if (json_integer_value(number) != HR_ARITHMETIC)
    return cli_fail(HR_ERROR_FILE, "%s: is of arithmetic %lld, expected %d: not to be compared",
                    path, (long long)json_integer_value(number), HR_ARITHMETIC);
  json_array_foreach(parts, i, part) {
    const char *lacks = !is_digest(json_object_get(part, "ids"))      ? "ids"
                        : !is_digest(json_object_get(part, "logits")) ? "logits" : NULL;
    if (lacks)
      return cli_fail(HR_ERROR_FILE, "%s: is not a digest file: '%s' of part %zu, expected 16 "
                      "hexadecimal digits", path, lacks, i + 1);
  }
  return HR_OK;
}

/* Whether it was made of the same text in the same way, so that digests can be compared. */
static int check_comparable(const char *path, const json_t *now, const json_t *then) {
  const json_t *parts = json_object_get(then, "parts"), *mine = json_object_get(now, "parts");
  if (!json_equal(json_object_get(then, "settings"), json_object_get(now, "settings"))) {
    char *was = json_dumps(json_object_get(then, "settings"), JSON_COMPACT);
    int status = cli_fail(HR_ERROR_USAGE, "%s: was written with %s, expected the same options now",
                          path, was ? was : "other settings");
    free(was);
    return status;
  }
  if (json_array_size(parts) != json_array_size(mine))
    return cli_fail(HR_ERROR_USAGE, "%s: has %zu parts of text, expected the %zu of this one", path,
                    json_array_size(parts), json_array_size(mine));
  for (size_t i = 0; i < json_array_size(mine); i++)
    if (!json_equal(json_object_get(json_array_get(parts, i), "ids"),
                    json_object_get(json_array_get(mine, i), "ids")))
      return cli_fail(HR_ERROR_USAGE, "%s: part %zu has other tokens, expected the same text", path,
                      i + 1);
  return HR_OK;
}

/* "1, 3, 4", at most ten of them. */
static void list_parts(const json_t *different, char text[static 128]) {
  const json_t *number;
  size_t i, used = 0;
  text[0] = '\0';
  json_array_foreach(different, i, number) {
    const char *before = i ? ", " : "";
    if (i == 10) {
      snprintf(text + used, 128 - used, "%s...", before);
      return;
    }
    used += (size_t)snprintf(text + used, 128 - used, "%s%lld", before,
                             (long long)json_integer_value(number));
    if (used >= 124) return;
  }
}

/* Tells of all parts that differ; *result is what there is to say in JSON. */
static int compare_logits(const cli_accuracy *s, const json_t *now, const json_t *then,
                          json_t **result) {
  const json_t *parts = json_object_get(then, "parts"), *mine = json_object_get(now, "parts");
  json_t *different = json_array();
  size_t count = json_array_size(mine);
  char text[128];
  for (size_t i = 0; i < count; i++)
    if (!json_equal(json_object_get(json_array_get(parts, i), "logits"),
                    json_object_get(json_array_get(mine, i), "logits")))
      json_array_append_new(different, json_integer((json_int_t)i + 1));
  size_t unequal = json_array_size(different);
  list_parts(different, text);
  *result = json_pack("{s:o, s:b, s:I, s:o}", "file", cli_json_text(s->check, strlen(s->check)),
                      "equal", unequal == 0, "parts", (json_int_t)count, "different_parts",
                      different);
  if (!*result) return cli_fail_memory();
  if (unequal)
    return cli_fail(CLI_DIFFERENT, "%s: the logits of %zu of %zu parts have other bits (%s %s), "
                    "expected the same", s->check, unequal, count, unequal == 1 ? "part" : "parts",
                    text);
  if (!s->json)
    cli_print("equal: %zu parts, every logit has the bits of %s\n", count, s->check);
  return HR_OK;
}

static int check_document(const cli_accuracy *s, const json_t *document, json_t **result) {
  cli_bytes bytes = {0};
  json_error_t error;
  const char *path = s->check;
  int status = cli_read_file(path, &bytes);
  if (status == HR_OK) {
    json_t *then = json_loadb(bytes.data ? bytes.data : "", bytes.used, 0, &error);
    status = then ? check_form(path, then)
                  : cli_fail(HR_ERROR_FILE, "%s: line %d: %s, expected a file of digests", path,
                             error.line, error.text);
    if (status == HR_OK) status = check_comparable(path, document, then);
    if (status == HR_OK) status = compare_logits(s, document, then, result);
    json_decref(then);
  }
  cli_bytes_free(&bytes);
  return status;
}

static bool is_result(int status) {
  return status == HR_OK || status == (int)CLI_DIFFERENT;
}

/* What is checked is read before anything is written. */
static int use_files(const cli_accuracy *s, const char *name, json_t *told) {
  int status = HR_OK;
  size_t context = 0;
  if (s->digests && s->check && cli_is_same_file(s->digests, s->check))
    return cli_fail(HR_ERROR_USAGE, "--digests: '%.200s' is the file of --check, expected another",
                    s->digests);
  if (s->digests && (status = cli_check_save(s->digests)) != HR_OK) return status;
  hr_model *model = cli_open_model(&s->common, name, false, &status);
  if (!model) return status;
  cli_corpus corpus = {0};
  digests d = {0};
  status = digest_model(s, model, &corpus, &d, &context);
  json_t *document = status == HR_OK ? document_of(s, model, &corpus, &d, context) : NULL;
  json_t *checked = NULL;
  if (status == HR_OK && s->check) status = check_document(s, document, &checked);
  if (s->digests && is_result(status)) {
    int saved = save_document(s->digests, document);
    if (saved != HR_OK) status = saved;
  }
  if (s->digests)
    json_object_set_new(told, "digests", cli_json_text(s->digests, strlen(s->digests)));
  if (checked) json_object_set_new(told, "check", checked);
  json_object_update(told, document);
  json_decref(document);
  free(d.part);
  cli_corpus_free(&corpus);
  hr_model_free(model);
  return status;
}

/* One document for all that was asked for: "equal" is of all comparisons, and what was not
 * asked for is null. Tiers are compared even when the file has other bits. */
int cli_accuracy_digests(const cli_accuracy *s, const char *name) {
  int status = cli_check_isa(&s->common);
  if (status != HR_OK) return status;
  json_t *list = s->across_isa ? json_array() : json_null();
  json_t *told = json_pack("{s:i, s:n, s:n, s:n, s:o}", "arithmetic", HR_ARITHMETIC, "equal",
                           "digests", "check", "tiers", list);
  if (!told) return cli_fail_memory();
  if (s->digests || s->check) status = use_files(s, name, told);
  if (s->across_isa && is_result(status)) {
    int tiers = compare_tiers(s, name, list);
    if (tiers != HR_OK) status = tiers;
  }
  if (s->check || s->across_isa) json_object_set_new(told, "equal", json_boolean(status == HR_OK));
  if (s->json && is_result(status)) {
    int printed = cli_print_json(told);
    return printed == HR_OK ? status : printed;
  }
  json_decref(told);
  return status;
}
