/* SPDX-License-Identifier: MIT
 * headrow accuracy: what a model has lost against a reference. */
#include "accuracy.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "mixture.h"
#include "output.h"

#define AT(member) .offset = offsetof(cli_accuracy, member)

static const cli_option options[] = {
    {"against", 0, "REFERENCE",
     "a model, or f32: MODEL itself with fp32 weights, activations and\ncache", CLI_TEXT,
     AT(against)},
    {"file", 'f', "FILE", "the text is in FILE, - for standard input", CLI_TEXT, AT(file)},
    {"split", 0, "TEXT",
     "where the text is cut into parts (default <|endoftext|>; empty:\nnot cut)", CLI_TEXT,
     AT(split)},
    {"stride", 0, "N", "step of the windows of a part longer than --ctx (default: half of it)",
     CLI_COUNT, AT(stride), .least = 1, .most = INT32_MAX},
    {"detail", 0, "N",
     "error by layer and by tensor on the first N tokens (default 256;\n0: leave it out)",
     CLI_COUNT, AT(detail), .most = INT32_MAX},
    {"max-kl", 0, "X", "a mean KL divergence above X is a difference (exit 1)", CLI_REAL,
     AT(max_kl), .low = 0, .high = INFINITY},
    {"min-top1", 0, "X", "the same first choice for less than this share is one, 0 to 1", CLI_REAL,
     AT(min_top1), .low = 0, .high = 1},
    {"across-isa", 0, NULL,
     "every kernel tier of this machine, up to --isa, must give the\nsame bits (exit 1)",
     CLI_FLAG, AT(across_isa)},
    {"digests", 0, "FILE", "write digests of the logits to FILE", CLI_TEXT, AT(digests)},
    {"check", 0, "FILE", "compare with digests in FILE, from any machine (exit 1)", CLI_TEXT,
     AT(check)},
    {"json", 0, NULL, "one JSON document", CLI_FLAG, AT(json)},
};

json_t *cli_error_json(hr_estimate e) {
  return e.error < 0 ? json_null() : json_real(e.error);
}

json_t *cli_estimate_json(hr_estimate e) {
  return json_pack("{s:f, s:o}", "value", e.value, "standard_error", cli_error_json(e));
}

static const char *split_of(const cli_accuracy *s) {
  return s->split ? s->split : CLI_SPLIT;
}

int cli_accuracy_corpus(const cli_accuracy *s, const hr_model *model, cli_corpus *corpus) {
  if (s->common.ids) return cli_corpus_from_ids(corpus, s->common.ids);
  return cli_corpus_from_text(corpus, &s->common, model, s->file, split_of(s));
}

/* The same from a text that was read: standard input can be read once only. */
static int corpus_of(const cli_accuracy *s, const cli_bytes *text, const hr_model *model,
                     cli_corpus *corpus) {
  if (s->common.ids) return cli_corpus_from_ids(corpus, s->common.ids);
  return cli_corpus_from_bytes(corpus, model, s->file, text, split_of(s));
}

/* --- The comparison -------------------------------------------------------------- */

/* What is known of each token, an array of all of each. */
enum { KL, KL_WEIGHTS, NLL, NLL_REFERENCE, NLL_MORE, SAME_TOP, FLIP, MEASURES };

typedef struct comparison {
  double *value[MEASURES];
  uint32_t *cluster;
  size_t count, vocab;
  hr_clusters clusters;
  size_t lost, found; /* flips: from the right token to a wrong one, and back */
  double difference;
  bool weights; /* a third session has the weights in fp32 */
  bool identical;
} comparison;

static int compare_row(void *arg, size_t part, const float *const *logits, int32_t next) {
  comparison *c = arg;
  const float *p = logits[0], *q = logits[1];
  size_t i = c->count, top_p = hr_top(p, c->vocab), top_q = hr_top(q, c->vocab);
  bool right_p = top_p == (size_t)next, right_q = top_q == (size_t)next;
  c->cluster[i] = hr_next_cluster(&c->clusters, part);
  c->value[KL][i] = hr_divergence(p, q, c->vocab);
  if (c->weights) c->value[KL_WEIGHTS][i] = hr_divergence(p, logits[2], c->vocab);
  c->value[NLL_REFERENCE][i] = hr_log_sum_exp(p, c->vocab) - (double)p[next];
  c->value[NLL][i] = hr_log_sum_exp(q, c->vocab) - (double)q[next];
  c->value[NLL_MORE][i] = c->value[NLL][i] - c->value[NLL_REFERENCE][i];
  c->value[SAME_TOP][i] = top_p == top_q;
  c->value[FLIP][i] = right_p != right_q;
  c->lost += right_p && !right_q;
  c->found += !right_p && right_q;
  c->difference = fmax(c->difference, hr_largest_difference(p, q, c->vocab));
  if (memcmp(p, q, c->vocab * sizeof *p) != 0) c->identical = false;
  c->count++;
  return HR_OK;
}

static hr_estimate mean_of(const comparison *c, int measure) {
  return hr_mean(c->value[measure], c->cluster, c->count);
}

static void free_comparison(comparison *c) {
  for (int i = 0; i < MEASURES; i++) free(c->value[i]);
  free(c->cluster);
}

static bool make_comparison(comparison *c, const hr_model *model, size_t count, bool weights) {
  *c = (comparison){.vocab = hr_model_vocab_size(model),
                    .weights = weights,
                    .identical = true,
                    .clusters.length = hr_cluster_tokens(count)};
  bool made = (c->cluster = calloc(count, sizeof *c->cluster));
  for (int i = 0; i < MEASURES; i++)
    made = (c->value[i] = calloc(count, sizeof *c->value[i])) && made;
  return made;
}

/* --- The result ------------------------------------------------------------------ */

typedef struct report {
  const cli_accuracy *set;
  const comparison *c;
  const cli_corpus *corpus;
  const hr_model *model;
  const hr_source *source;
  const cli_detail *detail; /* NULL: left out */
  hr_estimate median, high; /* of the KL divergence */
} report;

static void print_estimate(const char *before, hr_estimate e, double unit, const char *after) {
  cli_print("%s%.6g", before, e.value * unit);
  if (e.error >= 0) cli_print(" +- %.2g", e.error * unit);
  cli_print("%s", after);
}

/* e to a mean, with the error that this has to first order. Of the mean difference of two
 * losses it is the ratio of two perplexities, sure as only the same tokens make it. */
static hr_estimate exponential(hr_estimate mean) {
  double value = exp(mean.value);
  return (hr_estimate){value, mean.error < 0 ? -1 : value * mean.error};
}

static void print_report(const report *r) {
  const comparison *c = r->c;
  hr_estimate nll = mean_of(c, NLL), reference = mean_of(c, NLL_REFERENCE);
  cli_print("text               %zu tokens in %zu parts\n", c->count, r->corpus->parts);
  if (nll.error < 0) cli_print("                   too short for standard errors: one cluster\n");
  print_estimate("mean nll           ", nll, 1, "");
  print_estimate(", reference ", reference, 1, "");
  print_estimate(", difference ", mean_of(c, NLL_MORE), 1, "\n");
  print_estimate("perplexity         ", exponential(nll), 1, "");
  print_estimate(", reference ", exponential(reference), 1, "");
  print_estimate(", ratio ", exponential(mean_of(c, NLL_MORE)), 1, "\n");
  print_estimate("KL divergence      mean ", mean_of(c, KL), 1, "");
  print_estimate(", median ", r->median, 1, "");
  print_estimate(", 99 % ", r->high, 1, "\n");
  if (c->weights) print_estimate("  of weights alone mean ", mean_of(c, KL_WEIGHTS), 1, "\n");
  print_estimate("same first choice  ", mean_of(c, SAME_TOP), 100, " %\n");
  print_estimate("flips              ", mean_of(c, FLIP), 100, " %");
  cli_print(": %zu from right to wrong, %zu from wrong to right\n", c->lost, c->found);
  cli_print("largest difference %.6g of two logits\n", c->difference);
  if (c->identical) cli_print("bit-identical: every logit has the same bits\n");
  if (r->detail) cli_detail_print(r->detail, r->model, r->source);
}

static int print_report_json(const report *r) {
  const comparison *c = r->c;
  hr_estimate nll = mean_of(c, NLL), reference = mean_of(c, NLL_REFERENCE);
  json_t *kl = cli_estimate_json(mean_of(c, KL));
  json_object_set_new(kl, "median", cli_estimate_json(r->median));
  json_object_set_new(kl, "p99", cli_estimate_json(r->high));
  json_object_set_new(kl, "weights_alone",
                      c->weights ? cli_estimate_json(mean_of(c, KL_WEIGHTS)) : json_null());
  json_t *flips = cli_estimate_json(mean_of(c, FLIP));
  json_object_set_new(flips, "to_wrong", json_integer((json_int_t)c->lost));
  json_object_set_new(flips, "to_right", json_integer((json_int_t)c->found));
  json_t *document =
      json_pack("{s:I, s:I, s:o, s:o, s:o, s:f, s:o, s:f, s:o, s:o, s:o, s:o, s:o, s:f, s:b, s:o}",
                "tokens",
                (json_int_t)c->count, "parts", (json_int_t)r->corpus->parts, "mean_nll",
                cli_estimate_json(nll), "reference_mean_nll", cli_estimate_json(reference),
                "mean_nll_difference", cli_estimate_json(mean_of(c, NLL_MORE)), "perplexity",
                exp(nll.value), "perplexity_standard_error", cli_error_json(exponential(nll)),
                "reference_perplexity", exp(reference.value),
                "reference_perplexity_standard_error", cli_error_json(exponential(reference)),
                "perplexity_ratio", cli_estimate_json(exponential(mean_of(c, NLL_MORE))), "kl", kl,
                "top1_agreement", cli_estimate_json(mean_of(c, SAME_TOP)), "flips", flips,
                "largest_difference", c->difference, "bit_identical", c->identical, "detail",
                r->detail ? cli_detail_json(r->detail, r->model, r->source) : json_null());
  if (document && nll.error < 0)
    json_object_set_new(document, "reason", json_string(CLI_ONE_CLUSTER));
  return cli_print_json(document);
}

/* What --max-kl and --min-top1 ask for; what a check finds is no error of the command. */
static int check_limits(const cli_accuracy *s, const comparison *c) {
  double kl = mean_of(c, KL).value, top = mean_of(c, SAME_TOP).value;
  if (s->max_kl.given && kl > (double)s->max_kl.value)
    return cli_fail(CLI_DIFFERENT, "KL divergence: %.6g in the mean, expected at most %g", kl,
                    (double)s->max_kl.value);
  if (s->min_top1.given && top < (double)s->min_top1.value)
    return cli_fail(CLI_DIFFERENT, "same first choice: %.6g of the tokens, expected at least %g",
                    top, (double)s->min_top1.value);
  return HR_OK;
}

static int show(report *r) {
  const comparison *c = r->c;
  if (!hr_quantile(c->value[KL], c->cluster, c->count, 0.5, &r->median) ||
      !hr_quantile(c->value[KL], c->cluster, c->count, 0.99, &r->high))
    return cli_fail_memory();
  int status = HR_OK;
  if (r->set->json)
    status = print_report_json(r);
  else
    print_report(r);
  return status == HR_OK ? check_limits(r->set, c) : status;
}

/* --- From start to end ----------------------------------------------------------- */

/* The model's own values in fp32 products. */
static bool widen_all(cli_mixture *wide, const hr_model *model) {
  if (!cli_mixture_init(wide, model)) return false;
  for (size_t i = 0; i < model->loaded.held_count; i++)
    if (!cli_mixture_widen(wide, i, model->loaded.held[i].matrix)) return false;
  return true;
}

static cli_common in_fp32(const cli_common *common) {
  cli_common wide = *common;
  wide.weights = (cli_choice){HR_WEIGHTS_F32, true};
  wide.cache = (cli_choice){HR_CACHE_F32 - HR_CACHE_F16, true};
  wide.quiet = true;
  return wide;
}

static int score(const cli_accuracy *s, const hr_model *model, const hr_model *reference,
                 const hr_model *wide, const cli_corpus *corpus, comparison *c) {
  cli_common fp32 = in_fp32(&s->common), plain = s->common;
  bool f32 = strcmp(s->against, "f32") == 0;
  plain.cache = (cli_choice){0};
  plain.quiet = true;
  int status = HR_OK;
  hr_session *session[3] = {cli_open_session(f32 ? &fp32 : &plain, reference, &status), NULL, NULL};
  if (session[0]) session[1] = cli_open_session(&s->common, model, &status);
  if (session[1] && wide) session[2] = cli_open_session(&fp32, wide, &status);
  static const char *const names[] = {"the reference", "the model", "the model in fp32"};
  cli_scoring scoring = {.session = session,
                         .sessions = wide ? 3 : 2,
                         .name = names,
                         .vocab = c->vocab,
                         .stride = (size_t)s->stride.value,
                         .what = s->common.quiet ? NULL : "comparing"};
  if (status == HR_OK && hr_session_context(session[0]) < hr_session_context(session[1]))
    status = cli_fail(HR_ERROR_USAGE,
                      "%.200s: its context of %zu is smaller, expected --ctx of at "
                      "most that",
                      s->against, hr_session_context(session[0]));
  else if (status == HR_OK && s->stride.value > hr_session_context(session[1]))
    status = cli_fail(HR_ERROR_USAGE, "--stride: %llu, expected at most the context of %zu",
                      (unsigned long long)s->stride.value, hr_session_context(session[1]));
  if (status == HR_OK) status = cli_score(&scoring, corpus, compare_row, c);
  for (int i = 0; i < 3; i++) hr_session_free(session[i]);
  return status;
}

/* Both models' vocabularies must mean the same; ids are what they are compared on. */
static int check_alike(const cli_accuracy *s, const hr_model *model, const hr_model *reference,
                       const cli_bytes *text, const cli_corpus *corpus) {
  size_t a = hr_model_vocab_size(model), b = hr_model_vocab_size(reference);
  if (a != b)
    return cli_fail(HR_ERROR_USAGE, "%.200s: has %zu tokens, expected the %zu of the model",
                    s->against, b, a);
  if (s->common.ids || !hr_model_has_tokenizer(reference)) return HR_OK;
  cli_corpus other = {0};
  int status = corpus_of(s, text, reference, &other);
  bool same = other.parts == corpus->parts;
  for (size_t i = 0; status == HR_OK && same && i < corpus->parts; i++)
    same = other.part[i].count == corpus->part[i].count &&
           memcmp(other.part[i].ids, corpus->part[i].ids,
                  other.part[i].count * sizeof *other.part[i].ids) == 0;
  cli_corpus_free(&other);
  if (status == HR_OK && !same)
    return cli_fail(HR_ERROR_USAGE,
                    "%.200s: makes other tokens of the text, expected the model's vocabulary",
                    s->against);
  return status;
}

/* Tensor by tensor only where the same matrices are there to be exchanged. */
static bool same_shape(const hr_model *a, const hr_model *b) {
  if (a->loaded.held_count != b->loaded.held_count || a->loaded.held_count == 0 ||
      a->loaded.transformer.description.layers != b->loaded.transformer.description.layers)
    return false;
  for (size_t i = 0; i < a->loaded.held_count; i++) {
    const hr_matrix *x = a->loaded.held[i].matrix, *y = b->loaded.held[i].matrix;
    if (x->n != y->n || x->k != y->k) return false;
  }
  return true;
}

static int compare(const cli_accuracy *s, const hr_model *model, const hr_model *reference,
                   const hr_source *source, const cli_corpus *corpus) {
  comparison c = {0};
  cli_mixture wide = {0};
  cli_detail detail = {0};
  /* Only a reference in fp32 has the activations that weights alone would have. */
  bool weights = reference->loaded.all_f32 && !model->loaded.all_f32;
  int status = make_comparison(&c, model, cli_corpus_scored(corpus), weights) &&
                       (!weights || widen_all(&wide, model))
                   ? HR_OK
                   : cli_fail_memory();
  if (status == HR_OK)
    status = score(s, model, reference, weights ? &wide.model : NULL, corpus, &c);
  cli_mixture_finish(&wide);
  bool detailed = status == HR_OK && s->detail.value > 0 && same_shape(model, reference);
  if (status == HR_OK && s->detail.value > 0 && !detailed && !s->common.quiet)
    cli_note("note: the models have other matrices: no error by tensor");
  if (detailed) status = cli_detail_measure(s, model, reference, corpus, &detail);
  if (status == HR_OK)
    status = show(&(report){.set = s,
                            .c = &c,
                            .corpus = corpus,
                            .model = model,
                            .source = source,
                            .detail = detailed ? &detail : NULL});
  cli_detail_free(&detail);
  free_comparison(&c);
  return status;
}

static hr_model *open_reference(const cli_accuracy *s, const char *name, int *status) {
  cli_common wide = in_fp32(&s->common), plain = s->common;
  if (strcmp(s->against, "f32") == 0) return cli_open_model(&wide, name, false, status);
  plain.weights = (cli_choice){0};
  plain.quiet = true;
  return cli_open_model(&plain, s->against, false, status);
}

static int run(const cli_accuracy *s, const char *name) {
  int status = HR_OK;
  hr_error err;
  hr_model *model = cli_open_model(&s->common, name, false, &status);
  if (!model) return status;
  cli_corpus corpus = {0};
  cli_bytes text = {0};
  if (s->file) status = cli_read_file(s->file, &text);
  if (status == HR_OK && s->file)
    cli_warn_of_stray_bytes(&s->common, s->file, text.data, text.used);
  if (status == HR_OK) status = corpus_of(s, &text, model, &corpus);
  hr_model *reference = status == HR_OK ? open_reference(s, name, &status) : NULL;
  hr_source *source = NULL;
  if (reference && !(source = cli_open_source(name, &err))) status = cli_fail_error(NULL, &err);
  if (source) status = check_alike(s, model, reference, &text, &corpus);
  if (source && status == HR_OK) status = compare(s, model, reference, source, &corpus);
  hr_source_close(source);
  cli_corpus_free(&corpus);
  cli_bytes_free(&text);
  hr_model_free(reference);
  hr_model_free(model);
  return status;
}

static int check_usage(const cli_accuracy *s) {
  bool bits = s->across_isa || s->digests || s->check;
  if (!s->against == !bits)
    return cli_fail(HR_ERROR_USAGE,
                    "accuracy: %s, expected either --against, or some of --across-isa, --digests "
                    "and --check",
                    bits ? "two things at once" : "nothing to compare");
  if (s->file && s->common.ids)
    return cli_fail(HR_ERROR_USAGE, "text: given twice, expected one of -f and --ids");
  if (s->against && !s->file && !s->common.ids)
    return cli_fail(HR_ERROR_USAGE, "text: none given, expected one of -f and --ids");
  if (!s->against && (s->max_kl.given || s->min_top1.given))
    return cli_fail(HR_ERROR_USAGE, "%s: without a reference, expected --against with it",
                    s->max_kl.given ? "--max-kl" : "--min-top1");
  return HR_OK;
}

static int accuracy_command(const cli_command *command, int argc, char **argv) {
  cli_accuracy s = {0};
  int status;
  if (!cli_start(command, argc, argv, &s, &status)) return status;
  if (!s.detail.given) s.detail.value = 256;
  const char *name;
  status = cli_only_model(&s.common, "another comes after --against", &name);
  if (status == HR_OK) status = check_usage(&s);
  if (status != HR_OK) return status;
  return s.against ? run(&s, name) : cli_accuracy_digests(&s, name);
}

const cli_command cli_accuracy_command = {
    .name = "accuracy",
    .arguments =
        "[MODEL] --against REFERENCE|f32 -f FILE | --across-isa | --digests FILE | --check FILE",
    .summary = "what a model has lost against a reference; equal bits everywhere",
    .details =
        "Perplexity of both, KL divergence, how often the first choice is the same, flips (the\n"
        "right token lost or found), with standard errors; then error by layer and by tensor.\n"
        "--weights and --cache are the model's; the reference is as its file has it, or with\n"
        "'f32' the model in fp32 arithmetic throughout. Without a text, --across-isa, --digests\n"
        "and --check take tokens of a fixed rule. docs/accuracy.md defines every figure.",
    .options = options,
    .option_count = sizeof options / sizeof *options,
    .run = accuracy_command,
};
