/* SPDX-License-Identifier: MIT
 * Whether a model computes what it has to, before its speed is told. A few tokens go through
 * every tier that is measured; what they end in is held against the value that comes with
 * headrow, for models that it knows, else against the portable tier, which is the definition:
 * by fewer tokens where that would take long. */
#include <inttypes.h>
#include <string.h>

#include "bench.h"
#include "builtin.h"
#include "kernels/select.h"

enum { PROMPT = 5, TOKENS = 8 }; /* many rows at once, then one at a time */

/* Multiply-adds that the portable tier is given, and for one token at most: it does about a
 * billion a second on two cores. */
static const double enough = 3e9, enough_for_one = 1.5e10;

/* Of the built-in model and of common synthetic ones, whose weights are the same bytes
 * everywhere: one answer on every machine. */
_Static_assert(HR_ARITHMETIC == 1, "another arithmetic has other digests: make the list anew");
static const struct {
  const char *model;
  bool half; /* the cache */
  uint64_t digest;
} known[] = {
    {"builtin", true, UINT64_C(0xfc34d0748c079801)},
    {"builtin", false, UINT64_C(0x5aec5ceca03a90ec)},
    {"smollm2-135m:q8_0", true, UINT64_C(0x5f6b7379fdb227e2)},
    {"smollm2-135m:q8_0", false, UINT64_C(0x3e67348b8ac04ae6)},
    {"smollm2-135m:f16", true, UINT64_C(0x1ae62613d09624a6)},
    {"smollm2-135m:f16", false, UINT64_C(0x61bccd28f9341612)},
    {"gpt2-124m:q8_0", true, UINT64_C(0x454ecb43280c559b)},
    {"gpt2-124m:q8_0", false, UINT64_C(0x168a7658a4f72134)},
    {"gpt2-124m:f16", true, UINT64_C(0xba25f587749574c6)},
    {"gpt2-124m:f16", false, UINT64_C(0xa583a9b3d04abe69)},
    {"tinyllama-1.1b:q8_0", true, UINT64_C(0x986e0427b035af15)},
    {"tinyllama-1.1b:q8_0", false, UINT64_C(0x78e6ab176ea7aa16)},
    {"bert-base:q8_0", true, UINT64_C(0x3e010af5a9fb0c3b)},
    {"bert-base:q8_0", false, UINT64_C(0x72cbfc828bc146a4)},
    {"minilm-l6:q8_0", true, UINT64_C(0x982d51f2fe9aa956)},
    {"minilm-l6:q8_0", false, UINT64_C(0xbc723569c1bd638e)},
    {"minilm-l6:f16", true, UINT64_C(0x94ab0c36a6f850ab)},
    {"minilm-l6:f16", false, UINT64_C(0x84bd6a8fb3e68ff2)},
};

bool bench_known_digest(const char *model, bool half, uint64_t *digest) {
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if (strcmp(known[i].model, model) == 0 && known[i].half == half) {
      *digest = known[i].digest;
      return true;
    }
  return false;
}

/* Always the same, whatever is measured. */
static void draw(const hr_model *model, int32_t ids[TOKENS]) {
  uint64_t state = 7, vocab = hr_model_vocab_size(model);
  for (size_t i = 0; i < TOKENS; i++) {
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    ids[i] = (int32_t)((state >> 33) % vocab);
  }
}

/* FNV-1a 64 of the logits of the prompt's last token and of each one after it. */
static hr_status digest_logits(hr_session *s, const hr_model *model, const int32_t *ids,
                               size_t tokens, uint64_t *digest, hr_error *err) {
  bool whole = model->loaded.transformer.description.mask == HR_MASK_FULL;
  size_t prompt = tokens * PROMPT / TOKENS, done = whole ? tokens : prompt ? prompt : 1;
  hr_status status = hr_session_eval(s, ids, done, HR_LOGITS_LAST, err);
  for (*digest = HR_DIGEST_INIT; status == HR_OK; done++) {
    *digest = hr_digest(*digest, hr_session_logits(s, 0), hr_model_vocab_size(model));
    if (done == tokens) break;
    status = hr_session_eval(s, ids + done, 1, HR_LOGITS_LAST, err);
  }
  return status;
}

/* An encoder's are its hidden states. */
static hr_status digest_hidden(hr_session *s, const hr_model *model, const int32_t *ids,
                               size_t tokens, uint64_t *digest, hr_error *err) {
  const hr_tokens text = {.ids = ids, .count = tokens};
  hr_status status = hr_session_encode(s, &text, 1, err);
  if (status == HR_OK)
    *digest = hr_digest(HR_DIGEST_INIT, hr_session_hidden(s, 0, 0), tokens * hr_model_width(model));
  return status;
}

/* macs: what so many tokens take. */
static hr_status run(const bench *b, const hr_model *model, size_t tokens, uint64_t *digest,
                     double *macs, hr_error *err) {
  int32_t ids[TOKENS];
  const bench_place *place = &b->place[0];
  hr_session_options o;
  hr_session_options_init(&o);
  o.context = TOKENS;
  o.cache = hr_session_cache(place->session);
  o.threads = hr_session_threads(place->session);
  o.threads_batch = hr_session_threads_batch(place->session);
  o.no_pin = b->set.common.no_pin;
  o.cores = b->set.common.cores;
  hr_session *s = hr_session_create(model, &o, err);
  if (!s) return err->status;
  const bench_amount all = {.prompt = true, .tokens = tokens, .batch = 1, .all_rows = true};
  bench_work work = bench_work_of(s, &all);
  *macs = work.int8_macs + work.float_macs;
  draw(model, ids);
  hr_status status = hr_model_has_logits(model) ? digest_logits(s, model, ids, tokens, digest, err)
                                                : digest_hidden(s, model, ids, tokens, digest, err);
  hr_session_free(s);
  return status;
}

static int differs(const bench *b, const char *isa, size_t tokens, uint64_t digest,
                   uint64_t expected, const char *as) {
  enum { DIFFERS = 1 };
  return cli_fail((hr_status)DIFFERS,
                  "%s: check of %zu token%s: digest %d-%016" PRIx64 " with %s, expected %d-%016"
                  PRIx64 " as %s; no rate is reported",
                  bench_model_name(b), tokens, tokens == 1 ? "" : "s", HR_ARITHMETIC, digest, isa,
                  HR_ARITHMETIC, expected, as);
}

/* Weights that were converted while they were loaded are no longer the known ones. */
static bool find_known(bench *b) {
  const cli_texts *p = &b->set.common.positional;
  bool half = hr_session_cache(b->place[0].session) == HR_CACHE_F16;
  bool ours = b->set.synthetic || !p->count || strcmp(p->item[0], CLI_BUILTIN) == 0;
  return ours && b->set.common.weights.value == HR_WEIGHTS_NATIVE && !b->set.block &&
         bench_known_digest(bench_model_name(b), half, &b->check.expected);
}

/* How many tokens the definition is given, where all take macs; 0: too long for one. */
static size_t portable_tokens(double macs) {
  if (macs <= enough) return TOKENS;
  if (macs / TOKENS > enough_for_one) return 0;
  double tokens = enough / (macs / TOKENS);
  return tokens < 1 ? 1 : (size_t)tokens;
}

/* The definition itself, as far as it is done in a moment. */
static int find_portable(bench *b, double macs) {
  bench_check *c = &b->check;
  size_t tokens = portable_tokens(macs);
  hr_model portable = *b->model;
  hr_error err;
  uint64_t digest;
  bool show;
  if (!tokens) {
    snprintf(c->by, sizeof c->by,
             "nothing: no known value, and the portable tier would take too long");
    return HR_OK;
  }
  if (!hr_kernels_select(&portable.kernels, hr_cpu_features(), "portable")) return HR_OK;
  cli_progress progress = bench_progress(b, "checking the logits", &show);
  (void)cli_report_progress(show ? &progress : NULL, 0);
  hr_status status = run(b, &portable, tokens, &digest, &macs, &err);
  cli_end_progress(&progress);
  if (status != HR_OK) return cli_fail_error("check", &err);
  snprintf(c->by, sizeof c->by, "the portable tier, which is the definition");
  if (tokens < TOKENS)
    snprintf(c->by, sizeof c->by, "the portable tier, which is the definition, by %zu of %d tokens",
             tokens, TOKENS);
  c->has_expected = tokens == TOKENS;
  if (c->has_expected)
    c->expected = digest;
  else
    c->few_expected = digest;
  c->few = tokens == TOKENS ? 0 : tokens;
  return HR_OK;
}

/* One tier beside the first and beside what is expected. */
static int check_variant(bench *b, size_t i) {
  bench_check *c = &b->check;
  const hr_model *model = &b->variant[i];
  const char *isa = model->kernels.isa;
  hr_error err;
  uint64_t digest;
  double macs;
  if (run(b, model, TOKENS, &digest, &macs, &err) != HR_OK) return cli_fail_error("check", &err);
  if (i && digest != c->digest)
    return differs(b, isa, TOKENS, digest, c->digest, b->variant[0].kernels.isa);
  c->digest = digest;
  c->has_digest = true;
  int status = !i && !c->has_expected ? find_portable(b, macs) : HR_OK;
  if (status != HR_OK) return status;
  if (c->has_expected && digest != c->expected)
    return differs(b, isa, TOKENS, digest, c->expected, c->by);
  if (!c->few) return HR_OK;
  if (run(b, model, c->few, &digest, &macs, &err) != HR_OK) return cli_fail_error("check", &err);
  return digest == c->few_expected ? HR_OK
                                   : differs(b, isa, c->few, digest, c->few_expected, c->by);
}

int bench_check_outputs(bench *b) {
  bench_check *c = &b->check;
  int status = HR_OK;
  size_t context = b->model->loaded.transformer.description.context;
  if (context < TOKENS) {
    snprintf(c->by, sizeof c->by, "nothing: the model has no room for the tokens of the check");
  } else {
    c->has_expected = find_known(b);
    if (c->has_expected) snprintf(c->by, sizeof c->by, "the value that comes with headrow");
    for (size_t i = 0; i < b->variants && status == HR_OK; i++) status = check_variant(b, i);
  }
  if (status == HR_OK && !c->has_expected && !c->few)
    bench_warn(b, "the logits were checked against %s", c->by);
  return status;
}
