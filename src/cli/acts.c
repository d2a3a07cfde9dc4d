/* SPDX-License-Identifier: MIT */
#include "acts.h"

#include <math.h>
#include <stdio.h>

#include "block/position.h"
#include "output.h"

static const char *const norm_kinds[] = {"RMSNorm", "LayerNorm"};
static const char *const norm_places[] = {
    "before the sub-layer: x + f(norm(x))",
    "after the residual: norm(x + f(x))",
    "before and after the sub-layer: x + norm(f(norm(x)))",
};
static const char *const place_names[] = {"before", "after", "around"};
static const char *const position_names[] = {"none", "sinusoidal", "learned", "rope", "alibi"};
static const char *const scaling_names[] = {"none", "linear", "llama3", "yarn", "longrope"};
static const char *const activation_names[] = {"relu",     "relu2",     "silu",
                                               "gelu_erf", "gelu_tanh", "gelu_quick"};
static const char *const pooler_names[] = {"tanh", "relu"};
static const char *const pooling_names[] = {"none", "mean", "cls", "last"};

static bool head_is_tied(const hr_transformer *t) {
  return !t->description.headless && t->head.panels == t->token_embedding.panels;
}

static const char *bias_text(const hr_matrix *m) {
  return m->bias ? ", bias" : "";
}

/* --- In words ------------------------------------------------------------------ */

static void print_embedding(const hr_transformer *t) {
  const hr_description *d = &t->description;
  cli_print("context         %u positions in training", d->context);
  if (d->text_limit) cli_print(", %u for embed and rerank", d->text_limit);
  cli_print("\n");
  cli_print("embedding       %u tokens of width %u", d->vocab, d->width);
  if (d->embedding_scale != 1.0f) cli_print(", times %g", (double)d->embedding_scale);
  if (d->types == 1) cli_print(", plus a segment type's");
  if (d->types > 1) cli_print(", plus one of %u segment types'", d->types);
  cli_print("%s\n", t->embedding_norm.gain ? ", then a norm" : "");
}

static void print_norm(const hr_transformer *t) {
  const hr_description *d = &t->description;
  cli_print("  norm          %s, eps %g, %s\n", norm_kinds[d->norm], (double)d->norm_eps,
            norm_places[d->norm_place]);
  if (d->parallel)
    cli_print("                %s\n", t->layer[0].ffn_norm.gain
                                          ? "one for attention, one for the feed-forward"
                                          : "the same for attention and feed-forward");
}

static void print_stretching(const hr_transformer *t) {
  const hr_rope_scaling *s = &t->description.rope_scaling;
  if (t->rope_factors)
    cli_print("                slowed down by the file's own factors%s\n",
              t->rope_long_factors ? ", one set for short and one for long contexts" : "");
  if (s->kind == HR_ROPE_SCALING_NONE) return;
  cli_print("                stretched %g times (%s)", s->factor, scaling_names[s->kind]);
  if (s->kind != HR_ROPE_SCALING_LINEAR) cli_print(" from %g positions", s->original_context);
  if (hr_rope_magnitude(s) != 1.0f)
    cli_print(", turned vectors times %.5g", (double)hr_rope_magnitude(s));
  cli_print("\n");
}

static void print_positions(const hr_transformer *t) {
  const hr_description *d = &t->description;
  cli_print("  positions     ");
  switch (d->position) {
    case HR_POSITION_NONE:
      cli_print("none: order is seen through the mask only\n");
      break;
    case HR_POSITION_SINUSOIDAL:
      cli_print("sinusoidal, added to the embedding\n");
      break;
    case HR_POSITION_LEARNED:
      cli_print("learned, a table of %zu rows added to the embedding", t->position_rows);
      if (d->position_offset) cli_print(", position 0 in row %u", d->position_offset);
      cli_print("\n");
      break;
    case HR_POSITION_ROPE:
      cli_print("RoPE: turns %u of %u columns of queries and keys, pairs %s, base %g\n",
                d->rope_width, d->head_width,
                d->rope_pairing == HR_ROPE_PAIRS ? "(2i, 2i + 1)" : "(i, i + half)", d->rope_base);
      print_stretching(t);
      break;
    case HR_POSITION_ALIBI:
      cli_print("ALiBi: scores fall with the distance, a slope for each head");
      if (d->alibi_steepness > 0 && d->alibi_steepness != 8)
        cli_print(", steepness %g", d->alibi_steepness);
      cli_print("\n");
      break;
  }
}

static void print_mask(const hr_description *d) {
  bool causal = d->mask == HR_MASK_CAUSAL;
  cli_print("  mask          %s\n", causal ? "causal: a token sees itself and those before it"
                                          : "full: every token sees all others");
  if (!d->window) return;
  cli_print("                a window of %u tokens%s", d->window,
            causal ? ", itself included" : " to either side, itself included");
  if (d->window_from) cli_print(", from layer %u on", d->window_from);
  if (d->window_period) cli_print(", but for the last of every %u layers", d->window_period);
  cli_print("\n");
}

static void print_attention(const hr_transformer *t) {
  const hr_description *d = &t->description;
  const hr_layer *l = &t->layer[0];
  cli_print("  attention     %u heads of width %u", d->heads, d->head_width);
  if (d->kv_heads == 1 && d->heads > 1)
    cli_print(", one key/value head for all of them");
  else if (d->kv_heads != d->heads)
    cli_print(", %u key/value heads, each for %u query heads", d->kv_heads, d->heads / d->kv_heads);
  cli_print("%s\n", bias_text(&l->query));
  if (l->query_norm.gain) cli_print("                queries and keys have a norm of their own\n");
  if (d->score_scale != (float)(1.0 / sqrt((double)d->head_width)))
    cli_print("                scores are scaled by %.6g\n", (double)d->score_scale);
  if (d->score_cap != 0.0f)
    cli_print("                scores are capped at %g\n", (double)d->score_cap);
  print_mask(d);
  cli_print("  output        the heads side by side, merged by a %u x %u matrix%s\n", d->width,
            d->heads * d->head_width, bias_text(&l->output));
}

static void print_feed_forward(const hr_transformer *t) {
  const hr_description *d = &t->description;
  const char *f = activation_names[d->activation];
  cli_print("  feed-forward  %u to %u to %u, ", d->width, d->ffn_width, d->width);
  if (d->gated)
    cli_print("gated: down(%s(gate(x)) * up(x))", f);
  else
    cli_print("down(%s(up(x)))", f);
  cli_print("%s\n", bias_text(&t->layer[0].up));
  cli_print("  residual      x + attention, then x + feed-forward%s\n",
            d->parallel ? ", both from the same x" : "");
}

static void print_head(const hr_transformer *t) {
  const hr_description *d = &t->description;
  if (d->headless) {
    cli_print("head            none: hidden states of width %u\n", d->width);
    if (t->pooler.panels)
      cli_print("pooler          a %u x %u matrix on the first row, then %s\n", d->width, d->width,
                pooler_names[d->pooler]);
    if (d->classes)
      cli_print("classifier      %u score%s\n", d->classes,
                d->classes == 1 ? ": a ranking head" : "s");
  } else {
    cli_print("head            %u logits, %s%s\n", d->vocab,
              head_is_tied(t) ? "tied: the embedding's matrix again" : "a matrix of its own",
              bias_text(&t->head));
  }
  if (d->logit_scale != 1.0f) cli_print("                times %g\n", (double)d->logit_scale);
  if (d->logit_cap != 0.0f) cli_print("                capped at %g\n", (double)d->logit_cap);
  if (d->pooling) cli_print("pooling         %s\n", pooling_names[d->pooling]);
}

void cli_print_acts(const hr_transformer *t) {
  const hr_description *d = &t->description;
  print_embedding(t);
  cli_print("layers          %u, in each:\n", d->layers);
  print_norm(t);
  print_positions(t);
  print_attention(t);
  print_feed_forward(t);
  cli_print("final norm      %s\n", t->final_norm.gain ? norm_kinds[d->norm] : "none");
  print_head(t);
}

/* --- In JSON ------------------------------------------------------------------- */

/* What is not known is null. */
static json_t *json_known(unsigned value) {
  return value ? json_integer(value) : json_null();
}

static json_t *json_position(const hr_transformer *t) {
  const hr_description *d = &t->description;
  const hr_rope_scaling *s = &d->rope_scaling;
  json_t *p = json_pack("{s:s}", "kind", position_names[d->position]);
  if (d->position == HR_POSITION_LEARNED) {
    json_object_set_new(p, "rows", json_integer((json_int_t)t->position_rows));
    json_object_set_new(p, "offset", json_integer(d->position_offset));
  }
  if (d->position == HR_POSITION_ALIBI)
    json_object_set_new(p, "steepness", json_real(d->alibi_steepness > 0 ? d->alibi_steepness : 8));
  if (d->position != HR_POSITION_ROPE) return p;
  json_object_set_new(p, "base", json_real(d->rope_base));
  json_object_set_new(p, "width", json_integer(d->rope_width));
  json_object_set_new(p, "pairs",
                      json_string(d->rope_pairing == HR_ROPE_PAIRS ? "interleaved" : "halves"));
  json_object_set_new(p, "scaling", json_string(scaling_names[s->kind]));
  json_object_set_new(p, "factor", json_real(s->kind ? s->factor : 1.0));
  json_object_set_new(p, "magnitude", json_real((double)hr_rope_magnitude(s)));
  json_object_set_new(p, "own_factors", json_boolean(t->rope_factors != NULL));
  return p;
}

/* Of each layer; null: it sees all. */
static json_t *json_windows(const hr_description *d) {
  json_t *windows = json_array();
  for (uint32_t i = 0; i < d->layers; i++)
    json_array_append_new(windows, json_known(hr_layer_window(d, i)));
  return windows;
}

json_t *cli_json_acts(const hr_transformer *t) {
  const hr_description *d = &t->description;
  json_t *acts = json_pack(
      "{s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:{s:s, s:s, s:f}, s:o, s:s, s:o, s:s, s:b, s:b, "
      "s:b, s:b}",
      "layers", d->layers, "width", d->width, "heads", d->heads, "kv_heads", d->kv_heads,
      "head_width", d->head_width, "ffn_width", d->ffn_width, "vocabulary", d->vocab,
      "trained_context", d->context, "norm", "kind", norm_kinds[d->norm], "place",
      place_names[d->norm_place], "eps", (double)d->norm_eps, "position", json_position(t), "mask",
      d->mask == HR_MASK_CAUSAL ? "causal" : "full", "window", json_known(d->window), "activation",
      activation_names[d->activation], "gated", d->gated, "parallel", d->parallel, "final_norm",
      t->final_norm.gain != NULL, "head_tied", head_is_tied(t));
  json_object_update_new(
      acts, json_pack("{s:o, s:o, s:b, s:f, s:f, s:f, s:f, s:b, s:i, s:b, s:i, s:s}", "text_limit",
                      json_known(d->text_limit), "windows",
                      json_windows(d), "query_key_norm", t->layer[0].query_norm.gain != NULL,
                      "embedding_scale", (double)d->embedding_scale, "score_scale",
                      (double)d->score_scale, "score_cap", (double)d->score_cap, "logit_cap",
                      (double)d->logit_cap, "logits", !d->headless, "types", d->types, "pooler",
                      t->pooler.panels != NULL, "classes", d->classes, "pooling",
                      pooling_names[d->pooling]));
  return acts;
}
