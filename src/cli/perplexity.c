/* SPDX-License-Identifier: MIT
 * headrow perplexity: how well a model foretells a text. */
#include <math.h>
#include <stdlib.h>

#include "cli.h"
#include "corpus.h"
#include "output.h"
#include "quant/measures.h"

typedef struct settings {
  cli_common common;
  const char *file, *split;
  cli_count stride;
  bool json;
} settings;

#define AT(member) .offset = offsetof(settings, member)

static const cli_option options[] = {
    {"file", 'f', "FILE", "the text is in FILE, - for standard input", CLI_TEXT, AT(file)},
    {"split", 0, "TEXT",
     "where the text is cut into parts (default <|endoftext|>; empty:\nnot cut)", CLI_TEXT,
     AT(split)},
    {"stride", 0, "N", "step of the windows of a part longer than --ctx (default: half of it)",
     CLI_COUNT, AT(stride), .least = 1, .most = INT32_MAX},
    {"json", 0, NULL, "one JSON document", CLI_FLAG, AT(json)},
};

/* Loss of each token, and its cluster. */
typedef struct losses {
  double *nll;
  uint32_t *cluster;
  size_t count, vocab;
  hr_clusters clusters;
} losses;

static int add_row(void *arg, size_t part, const float *const *logits, int32_t next) {
  losses *l = arg;
  l->cluster[l->count] = hr_next_cluster(&l->clusters, part);
  l->nll[l->count++] = hr_log_sum_exp(logits[0], l->vocab) - (double)logits[0][next];
  return HR_OK;
}

static void print_result(const losses *l, const cli_corpus *c, size_t windows) {
  hr_estimate nll = hr_mean(l->nll, l->cluster, l->count);
  cli_print("parts       %zu\n", c->parts);
  if (windows > c->parts) cli_print("windows     %zu\n", windows);
  cli_print("tokens      %zu\n", l->count);
  if (nll.error < 0) {
    cli_print("mean nll    %.6f\nperplexity  %.6f\n", nll.value, exp(nll.value));
    cli_print("error       unknown: the text is too short to tell\n");
    return;
  }
  cli_print("mean nll    %.6f +- %.6f\n", nll.value, nll.error);
  cli_print("perplexity  %.6f +- %.6f\n", exp(nll.value), exp(nll.value) * nll.error);
}

static int print_json(const losses *l, const cli_corpus *c, size_t windows,
                      size_t context) {
  hr_estimate nll = hr_mean(l->nll, l->cluster, l->count);
  bool known = nll.error >= 0;
  json_t *document = json_pack(
      "{s:I, s:I, s:I, s:I, s:f, s:f, s:o, s:o}", "tokens", (json_int_t)l->count, "parts",
      (json_int_t)c->parts, "windows", (json_int_t)windows, "context", (json_int_t)context,
      "mean_nll", nll.value, "perplexity", exp(nll.value), "standard_error",
      known ? json_real(nll.error) : json_null(), "perplexity_standard_error",
      known ? json_real(exp(nll.value) * nll.error) : json_null());
  if (document && !known)
    json_object_set_new(document, "reason", json_string(CLI_ONE_CLUSTER));
  return cli_print_json(document);
}

static int measure(const settings *s, const hr_model *model, hr_session *session,
                   const cli_corpus *corpus) {
  size_t context = hr_session_context(session), count = cli_corpus_scored(corpus);
  if (s->stride.value > context)
    return cli_fail(HR_ERROR_USAGE, "--stride: %llu, expected at most the context of %zu",
                    (unsigned long long)s->stride.value, context);
  losses l = {.clusters.length = hr_cluster_tokens(count), .vocab = hr_model_vocab_size(model)};
  l.nll = calloc(count, sizeof *l.nll);
  l.cluster = calloc(count, sizeof *l.cluster);
  cli_scoring scoring = {.session = &session, .sessions = 1, .vocab = l.vocab,
                         .stride = (size_t)s->stride.value,
                         .what = s->common.quiet ? NULL : "scoring"};
  int status = l.nll && l.cluster ? cli_score(&scoring, corpus, add_row, &l) : cli_fail_memory();
  if (status == HR_OK && s->json)
    status = print_json(&l, corpus, scoring.windows, context);
  else if (status == HR_OK)
    print_result(&l, corpus, scoring.windows);
  free(l.nll);
  free(l.cluster);
  return status;
}

static int run(const settings *s, const hr_model *model) {
  int status = HR_OK;
  cli_corpus corpus = {0};
  hr_session *session = cli_open_session(&s->common, model, &status);
  if (!session) return status;
  status = s->common.ids
               ? cli_corpus_from_ids(&corpus, s->common.ids)
               : cli_corpus_from_text(&corpus, &s->common, model, s->file,
                                      s->split ? s->split : CLI_SPLIT);
  if (status == HR_OK) status = measure(s, model, session, &corpus);
  cli_corpus_free(&corpus);
  hr_session_free(session);
  return status;
}

static int perplexity_command(const cli_command *command, int argc, char **argv) {
  settings s = {0};
  int status;
  if (!cli_start(command, argc, argv, &s, &status)) return status;
  const char *name;
  status = cli_only_model(&s.common, "a text comes after -f", &name);
  if (status != HR_OK) return status;
  if (!s.file == !s.common.ids)
    return cli_fail(HR_ERROR_USAGE, "text: %s, expected one of -f and --ids",
                    s.file ? "given twice" : "none given");
  hr_model *model = cli_open_model(&s.common, name, false, &status);
  if (!model) return status;
  status = run(&s, model);
  hr_model_free(model);
  return status;
}

const cli_command cli_perplexity_command = {
    .name = "perplexity",
    .arguments = "[MODEL] -f FILE | --ids LIST|@FILE [options]",
    .summary = "how well a model foretells a text",
    .details =
        "The text is cut at <|endoftext|>; each part is trimmed and scored alone, with BOS where\n"
        "the model adds one: the loss of every token after the first, and its mean over all. A\n"
        "part longer than --ctx is scored in windows of it, each token once. With --ids @FILE\n"
        "each line of the file is a part. The standard error counts neighbouring tokens as\n"
        "dependent (docs/accuracy.md).",
    .options = options,
    .option_count = sizeof options / sizeof *options,
    .run = perplexity_command,
};
