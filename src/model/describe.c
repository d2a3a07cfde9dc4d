/* SPDX-License-Identifier: MIT
 * The values of a file turned into a description: names of both forms, ranges,
 * choices, and refusals of what we lack. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/text.h"
#include "model/architecture.h"

/* --- Names of values ------------------------------------------------------- */

/* What a value is called in the two kinds of file. In GGUF the architecture's
 * name goes before it. */
typedef struct value_name {
  const char *gguf;
  const char *hf[6];
} value_name;

static const value_name LAYERS = {"block_count", {"num_hidden_layers", "n_layer", "n_layers"}};
static const value_name WIDTH = {"embedding_length",
                                 {"hidden_size", "n_embd", "n_embed", "d_model", "dim"}};
static const value_name HEADS = {"attention.head_count",
                                 {"num_attention_heads", "n_head", "n_heads"}};
static const value_name KV_HEADS = {
    "attention.head_count_kv",
    {"num_key_value_heads", "num_kv_heads", "n_head_kv", "attn_config.kv_n_heads"}};
static const value_name HEAD_WIDTH = {"attention.key_length", {"head_dim"}};
static const value_name VALUE_WIDTH = {"attention.value_length", {NULL}};
static const value_name FFN_WIDTH = {
    "feed_forward_length",
    {"intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size", "hidden_dim"}};
static const value_name FFN_RATIO = {NULL, {"expansion_ratio"}};
static const value_name CONTEXT = {
    "context_length",
    {"max_trained_positions", "max_position_embeddings", "n_positions", "seq_length",
     "max_seq_len"}};
static const value_name RMS_EPS = {"attention.layer_norm_rms_epsilon", {"rms_norm_eps"}};
static const value_name LAYER_EPS = {
    "attention.layer_norm_epsilon",
    {"layer_norm_epsilon", "layer_norm_eps", "norm_epsilon", "norm_eps"}};
static const value_name ROPE_WIDTH = {"rope.dimension_count", {"rotary_dim"}};
static const value_name ROPE_PART = {
    NULL,
    {"partial_rotary_factor", "rope_parameters.partial_rotary_factor", "rotary_pct", "rope_pct",
     "rotary_emb_fraction"}};
static const value_name ROPE_BASE = {
    "rope.freq_base", {"rope_theta", "rope_parameters.rope_theta", "rotary_emb_base"}};
static const value_name ROPE_TYPE = {
    "rope.scaling.type",
    {"rope_scaling.rope_type", "rope_scaling.type", "rope_parameters.rope_type"}};
static const value_name ROPE_FACTOR = {"rope.scaling.factor",
                                       {"rope_scaling.factor", "rope_parameters.factor"}};
static const value_name ROPE_OLD_FACTOR = {"rope.scale_linear", {NULL}};
static const value_name ROPE_ORIGINAL = {
    "rope.scaling.original_context_length",
    {"rope_scaling.original_max_position_embeddings",
     "rope_parameters.original_max_position_embeddings", "original_max_position_embeddings"}};
static const value_name ROPE_LOW = {
    NULL, {"rope_scaling.low_freq_factor", "rope_parameters.low_freq_factor"}};
static const value_name ROPE_HIGH = {
    NULL, {"rope_scaling.high_freq_factor", "rope_parameters.high_freq_factor"}};
static const value_name ROPE_SLOW = {"rope.scaling.yarn_beta_slow",
                                     {"rope_scaling.beta_slow", "rope_parameters.beta_slow"}};
static const value_name ROPE_FAST = {"rope.scaling.yarn_beta_fast",
                                     {"rope_scaling.beta_fast", "rope_parameters.beta_fast"}};
static const value_name ROPE_MAGNITUDE = {
    "rope.scaling.attn_factor",
    {"rope_scaling.attention_factor", "rope_parameters.attention_factor"}};
static const value_name YARN_MAGNITUDE = {"rope.scaling.yarn_attn_factor", {NULL}};
static const value_name STEEPNESS = {"attention.max_alibi_bias", {"attn_config.alibi_bias_max"}};
static const value_name VOCAB = {"vocab_size", {"vocab_size"}};
static const value_name ACTIVATION = {
    "activation", {"hidden_activation", "hidden_act", "activation_function", "activation"}};
static const value_name POSITION = {"position", {NULL}};
static const value_name NORM_TYPE = {NULL, {"norm_type"}};
static const value_name NORM_PLACE = {"norm_placement", {NULL}};
static const value_name CAUSAL = {"attention.causal", {"is_causal"}};
static const value_name DECODER = {NULL, {"is_decoder"}};
static const value_name EMBEDDING_SCALE = {"embedding_scale", {NULL}};
static const value_name PARALLEL = {"use_parallel_residual",
                                    {"use_parallel_residual", "parallel_attn"}};
static const value_name WINDOW = {"attention.sliding_window", {"sliding_window"}};
static const value_name WINDOW_PERIOD = {"attention.sliding_window_pattern", {NULL}};
static const value_name WINDOW_ASKED = {NULL, {"use_sliding_window"}};
static const value_name WINDOW_FROM = {NULL, {"max_window_layers"}};
static const value_name LAYER_TYPES = {NULL, {"layer_types"}};
static const value_name SCORE_SCALE = {"attention.scale", {NULL}};
static const value_name SCORE_WIDTH = {NULL, {"query_pre_attn_scalar"}};
static const value_name SCORE_CAP = {"attn_logit_softcapping", {"attn_logit_softcapping"}};
static const value_name LOGIT_CAP = {"final_logit_softcapping", {"final_logit_softcapping"}};
static const value_name PADDING = {NULL, {"pad_token_id"}};
static const value_name EMBEDDING_WIDTH = {NULL, {"word_embed_proj_dim"}};
static const value_name MULTI_QUERY = {NULL, {"multi_query"}};
static const value_name NEW_DECODER = {NULL, {"new_decoder_architecture"}};
static const value_name POOLING = {"pooling_type", {NULL}};
static const value_name POOL_MEAN = {NULL, {"1_Pooling.pooling_mode_mean_tokens"}};
static const value_name POOL_CLS = {NULL, {"1_Pooling.pooling_mode_cls_token"}};
static const value_name POOL_LAST = {NULL, {"1_Pooling.pooling_mode_lasttoken"}};
static const value_name TEXT_LIMIT = {NULL, {"sentence_bert_config.max_seq_length"}};
static const value_name TOKENIZER_LIMIT = {NULL, {"tokenizer_config.model_max_length"}};
static const value_name POOL_WORD = {NULL, {"emb_pooler"}};

/* --- What we lack ------------------------------------------------------------ */

/* Values that change the arithmetic in ways we lack, and what they are when they don't. */
static const struct {
  value_name name;
  double neutral;
} numbers_we_lack[] = {
    {{"expert_count", {"num_local_experts", "n_routed_experts", "num_experts"}}, 0},
    {{"moe_every_n_layers", {"moe_every_n_layers"}}, 0},
    {{"attention.clamp_kqv", {"attn_config.clip_qkv"}}, 0},
    {{NULL, {"attn_config.softmax_scale"}}, 0},
    {{NULL, {"attn_config.sliding_window_size"}}, -1},
    {{"logit_scale", {"logit_scale", "logits_scaling"}}, 1},
    {{"residual_scale", {"residual_multiplier"}}, 1},
    {{NULL, {"embedding_multiplier"}}, 1},
    {{NULL, {"rotary_emb_scale_base"}}, 0},
    {{"rope.scaling.yarn_ext_factor",
      {"rope_scaling.extrapolation_factor", "rope_parameters.extrapolation_factor"}},
     1},
    {{"rope.scaling.yarn_log_multiplier",
      {"rope_scaling.mscale_all_dim", "rope_parameters.mscale_all_dim"}},
     0},
};
/* Members of config.json. */
static const struct {
  const char *key;
  bool neutral;
} switches_we_lack[] = {
    {"scale_attn_by_inverse_layer_idx", false},
    {"scale_attn_weights", true},
    {"add_cross_attention", false},
    {"is_decoder", false},
    {"use_bidirectional_attention", false},
    {"causal", false},
    {"use_rms_norm", false},
    {"parallel_block", false},
    {"apply_residual_connection_post_layernorm", false},
    {"do_layer_norm_before", true},
    {"_remove_final_layer_norm", false},
    {"layer_norm_elementwise_affine", true},
    {"alibi", false},
    {"attn_config.alibi", true},
    {"attn_config.prefix_lm", false},
    {"attn_config.qk_ln", false},
    {"attn_config.rope", false},
    {"prenorm", false},
    {"rotary_emb_interleaved", false},
    {"rope_scaling.truncate", true},
    {"rope_parameters.truncate", true},
    {"1_Pooling.pooling_mode_max_tokens", false},
    {"1_Pooling.pooling_mode_mean_sqrt_len_tokens", false},
    {"1_Pooling.pooling_mode_weightedmean_tokens", false},
};
static const struct {
  const char *key, *expected;
} words_we_lack[] = {
    {"position_embedding_type", "absolute"},
    {"feed_forward_type", "geglu"},
    {"attn_config.attn_type", "multihead_attention"},
    {"ffn_config.ffn_type", "mptmlp"},
    {"mlp_type", "default"},
    {"quantization_config.quant_method", "none"},
};

/* --- Reading values ------------------------------------------------------------ */

typedef struct reader {
  const hr_source *source;
  const hr_architecture *row;
  hr_error *err;
  char key[128]; /* the last key looked for */
} reader;

static bool is_gguf(const reader *r) {
  return hr_source_get_kind(r->source) == HR_SOURCE_GGUF;
}

static bool has(const reader *r, unsigned particular) {
  return r->row->particulars & particular;
}

/* The i-th key for a value, or false when there are no more. */
static bool key_of(reader *r, const value_name *name, size_t i) {
  if (is_gguf(r)) {
    if (i > 0 || !name->gguf) return false;
    snprintf(r->key, sizeof r->key, "%s.%s", r->row->gguf, name->gguf);
    return true;
  }
  if (i >= sizeof name->hf / sizeof *name->hf || !name->hf[i]) return false;
  snprintf(r->key, sizeof r->key, "%s", name->hf[i]);
  return true;
}

/* config.json says null, which means none, where no key at all means the library's default. */
static bool is_none(reader *r, const value_name *name) {
  for (size_t i = 0; key_of(r, name, i); i++)
    if (hr_source_is_null(r->source, r->key)) return true;
  return false;
}

static hr_status missing(reader *r, const value_name *name) {
  key_of(r, name, 0);
  return hr_fail(r->err, HR_ERROR_FILE, "%s: key '%s' is missing, expected a number",
                 hr_source_path(r->source), r->key);
}

static hr_status refuse_number(reader *r, double found, const char *expected) {
  return hr_fail(r->err, HR_ERROR_FILE, "%s: key '%s' is %.15g, expected %s",
                 hr_source_path(r->source), r->key, found, expected);
}

static hr_status refuse_word(reader *r, const char *word, size_t length, const char *expected) {
  return hr_fail(r->err, HR_ERROR_FILE, "%s: key '%s' is '%.*s', expected %s",
                 hr_source_path(r->source), r->key, (int)(length > 64 ? 64 : length), word,
                 expected);
}

static bool is_word(const char *text, size_t length, const char *word) {
  return strlen(word) == length && memcmp(text, word, length) == 0;
}

/* Sizes are small numbers: what exceeds most is damage. */
static hr_status read_size(reader *r, const value_name *name, uint32_t most, uint32_t *value,
                           bool *found) {
  *found = false;
  for (size_t i = 0; !*found && key_of(r, name, i); i++) {
    uint64_t wide;
    HR_TRY(hr_source_u64(r->source, r->key, &wide, found, r->err));
    if (!*found) continue;
    if (wide > most || (wide == 0 && most != UINT32_MAX)) {
      char expected[64];
      snprintf(expected, sizeof expected, "1 to %u", most);
      return refuse_number(r, (double)wide, expected);
    }
    *value = (uint32_t)wide;
  }
  return HR_OK;
}

static hr_status require_size(reader *r, const value_name *name, uint32_t most, uint32_t *value) {
  bool found;
  HR_TRY(read_size(r, name, most, value, &found));
  return found ? HR_OK : missing(r, name);
}

static hr_status default_size(reader *r, const value_name *name, uint32_t most, uint32_t fallback,
                              uint32_t *value) {
  bool found;
  HR_TRY(read_size(r, name, most, value, &found));
  if (!found) *value = fallback;
  return HR_OK;
}

static hr_status read_real(reader *r, const value_name *name, double *value, bool *found) {
  *found = false;
  for (size_t i = 0; !*found && key_of(r, name, i); i++)
    HR_TRY(hr_source_f64(r->source, r->key, value, found, r->err));
  return HR_OK;
}

/* *value stays when the key is absent. */
static hr_status read_real_within(reader *r, const value_name *name, double least, double most,
                                  double *value) {
  bool found;
  double real;
  HR_TRY(read_real(r, name, &real, &found));
  if (!found) return HR_OK;
  char expected[64];
  snprintf(expected, sizeof expected, "%g to %g", least, most);
  if (real < least || real > most) return refuse_number(r, real, expected);
  *value = real;
  return HR_OK;
}

static hr_status require_real_within(reader *r, const value_name *name, double least, double most,
                                     double *value) {
  bool found;
  HR_TRY(read_real(r, name, value, &found));
  return found ? read_real_within(r, name, least, most, value) : missing(r, name);
}

static hr_status read_switch(reader *r, const value_name *name, bool *value) {
  bool found = false;
  for (size_t i = 0; !found && key_of(r, name, i); i++)
    HR_TRY(hr_source_bool(r->source, r->key, value, &found, r->err));
  return HR_OK;
}

static hr_status read_text(reader *r, const value_name *name, const char **text, size_t *length,
                           bool *found) {
  *found = false;
  for (size_t i = 0; !*found && key_of(r, name, i); i++)
    HR_TRY(hr_source_string(r->source, r->key, text, length, found, r->err));
  return HR_OK;
}

/* A word of the file and the number it stands for. */
typedef struct choice {
  const char *word;
  int value;
} choice;

/* Reads one of several words; *value stays when the key is absent. */
static hr_status read_choice(reader *r, const value_name *name, const choice *choices, size_t count,
                             int *value) {
  const char *text;
  size_t length;
  bool found;
  HR_TRY(read_text(r, name, &text, &length, &found));
  if (!found) return HR_OK;
  char list[200];
  size_t used = (size_t)snprintf(list, sizeof list, "one of: ");
  for (size_t i = 0; i < count; i++) {
    if (is_word(text, length, choices[i].word)) {
      *value = choices[i].value;
      return HR_OK;
    }
    int n = snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "", choices[i].word);
    if (n > 0 && (size_t)n < sizeof list - used) used += (size_t)n;
  }
  return refuse_word(r, text, length, list);
}
#define READ_CHOICE(r, name, choices, value) \
  read_choice(r, name, choices, sizeof(choices) / sizeof *(choices), value)

static const choice positions[] = {{"sinusoidal", HR_POSITION_SINUSOIDAL},
                                   {"learned", HR_POSITION_LEARNED},
                                   {"rope", HR_POSITION_ROPE},
                                   {"alibi", HR_POSITION_ALIBI},
                                   {"none", HR_POSITION_NONE}};
static const choice norm_places[] = {{"post", HR_NORM_AFTER}, {"pre", HR_NORM_BEFORE}};
static const choice norms[] = {{"layer_norm", HR_NORM_LAYER},
                               {"layernorm", HR_NORM_LAYER},
                               {"low_precision_layernorm", HR_NORM_LAYER},
                               {"rms_norm", HR_NORM_RMS},
                               {"rmsnorm", HR_NORM_RMS},
                               {"low_precision_rmsnorm", HR_NORM_RMS}};
/* The words of config.json and of our own files. */
static const choice activations[] = {
    {"relu", HR_ACTIVATION_RELU},           {"relu2", HR_ACTIVATION_RELU2},
    {"silu", HR_ACTIVATION_SILU},           {"swish", HR_ACTIVATION_SILU},
    {"swiglu", HR_ACTIVATION_SILU},         {"gelu", HR_ACTIVATION_GELU_ERF},
    {"gelu_erf", HR_ACTIVATION_GELU_ERF},   {"gelu_new", HR_ACTIVATION_GELU_TANH},
    {"gelu_tanh", HR_ACTIVATION_GELU_TANH}, {"gelu_fast", HR_ACTIVATION_GELU_TANH},
    {"gelu_pytorch_tanh", HR_ACTIVATION_GELU_TANH},
    {"quick_gelu", HR_ACTIVATION_GELU_QUICK}};
static const choice rope_scalings[] = {
    {"none", HR_ROPE_SCALING_NONE},     {"default", HR_ROPE_SCALING_NONE},
    {"linear", HR_ROPE_SCALING_LINEAR}, {"llama3", HR_ROPE_SCALING_LLAMA3},
    {"yarn", HR_ROPE_SCALING_YARN},     {"longrope", HR_ROPE_SCALING_LONG},
    {"su", HR_ROPE_SCALING_LONG}};
static const choice poolings[] = {
    {"mean", HR_POOLING_MEAN}, {"cls", HR_POOLING_CLS}, {"last", HR_POOLING_LAST}};

/* --- The description ------------------------------------------------------ */

enum { MOST_LAYERS = 4096, MOST_WIDTH = 1 << 20, MOST_HEADS = 1 << 14, MOST_CONTEXT = 1 << 28 };

/* Falcon of the first kind has one key/value head, or as many as query heads;
 * only that of the second says how many. */
static hr_status describe_falcon_heads(reader *r, hr_description *d) {
  bool shared = true, second = false;
  HR_TRY(read_switch(r, &MULTI_QUERY, &shared));
  HR_TRY(read_switch(r, &NEW_DECODER, &second));
  if (!second) d->kv_heads = shared ? 1 : d->heads;
  return HR_OK;
}

static hr_status describe_heads(reader *r, hr_description *d) {
  HR_TRY(require_size(r, &HEADS, MOST_HEADS, &d->heads));
  HR_TRY(default_size(r, &KV_HEADS, MOST_HEADS, d->heads, &d->kv_heads));
  if (has(r, HR_HF_FALCON_HEADS) && !is_gguf(r)) HR_TRY(describe_falcon_heads(r, d));
  if (d->heads % d->kv_heads)
    return hr_fail(
        r->err, HR_ERROR_FILE,
        "%s: %u query heads and %u key/value heads, expected the second to divide the first",
        hr_source_path(r->source), d->heads, d->kv_heads);
  bool found;
  HR_TRY(read_size(r, &HEAD_WIDTH, MOST_WIDTH, &d->head_width, &found));
  if (!found) {
    if (d->width % d->heads)
      return hr_fail(r->err, HR_ERROR_FILE,
                     "%s: %u heads in an embedding of width %u, expected a divisor of the width",
                     hr_source_path(r->source), d->heads, d->width);
    d->head_width = d->width / d->heads;
  }
  uint32_t value_width;
  HR_TRY(default_size(r, &VALUE_WIDTH, MOST_WIDTH, d->head_width, &value_width));
  if (value_width != d->head_width)
    return refuse_number(r, value_width, "the width of a key");
  if ((uint64_t)d->heads * d->head_width > MOST_WIDTH)
    return hr_fail(r->err, HR_ERROR_FILE, "%s: %u heads of width %u are too wide",
                   hr_source_path(r->source), d->heads, d->head_width);
  return HR_OK;
}

/* Rows of a position table before that of position 0, where the padding token has one. */
static hr_status describe_position_offset(reader *r, hr_description *d) {
  uint32_t padding;
  bool found;
  HR_TRY(default_size(r, &PADDING, UINT32_MAX, 1, &padding));
  HR_TRY(read_size(r, &CONTEXT, MOST_CONTEXT, &d->context, &found)); /* names the key below */
  if (padding >= d->context || padding + 1 >= d->context)
    return refuse_number(r, d->context, "more than pad_token_id + 1");
  d->position_offset = padding + 1;
  d->context -= d->position_offset;
  return HR_OK;
}

static hr_status describe_sizes(reader *r, hr_description *d) {
  uint32_t embedding, ratio = 4;
  bool found;
  HR_TRY(require_size(r, &LAYERS, MOST_LAYERS, &d->layers));
  HR_TRY(require_size(r, &WIDTH, MOST_WIDTH, &d->width));
  HR_TRY(default_size(r, &EMBEDDING_WIDTH, MOST_WIDTH, d->width, &embedding));
  if (embedding != d->width)
    return refuse_number(r, embedding, "the width of the model: projections of the embedding are "
                                       "not known");
  HR_TRY(describe_heads(r, d));
  HR_TRY(default_size(r, &FFN_RATIO, 64, 4, &ratio));
  HR_TRY(default_size(r, &FFN_WIDTH, MOST_WIDTH, ratio * d->width, &d->ffn_width));
  HR_TRY(default_size(r, &VOCAB, INT32_MAX, 0, &d->vocab));
  HR_TRY(read_size(r, &CONTEXT, MOST_CONTEXT, &d->context, &found));
  if (!found && (is_gguf(r) || !r->row->hf_context)) return missing(r, &CONTEXT);
  if (!found) d->context = r->row->hf_context;
  return has(r, HR_HF_POSITION_OFFSET) && !is_gguf(r) ? describe_position_offset(r, d) : HR_OK;
}

/* config.json may name the norm that all models of the family have. */
static hr_status check_norm(reader *r, const hr_description *d) {
  int norm = (int)d->norm;
  HR_TRY(READ_CHOICE(r, &NORM_TYPE, norms, &norm));
  if (norm == (int)d->norm) return HR_OK;
  return hr_fail(r->err, HR_ERROR_FILE, "%s: key '%s' asks for %s, expected %s, as '%s' has it",
                 hr_source_path(r->source), r->key,
                 norm == HR_NORM_RMS ? "an RMS norm" : "a layer norm",
                 d->norm == HR_NORM_RMS ? "an RMS norm" : "a layer norm", d->family);
}

static hr_status describe_norm(reader *r, hr_description *d) {
  const value_name *name = d->norm == HR_NORM_RMS ? &RMS_EPS : &LAYER_EPS;
  double eps;
  bool found;
  HR_TRY(read_real(r, name, &eps, &found));
  bool by_default = !is_gguf(r) && r->row->hf_eps > 0;
  if (!found && !by_default) return missing(r, name);
  if (!found) eps = r->row->hf_eps;
  if (eps < 0 || eps > 1) return refuse_number(r, eps, "0 to 1");
  d->norm_eps = (float)eps;
  return is_gguf(r) ? HR_OK : check_norm(r, d);
}

/* The bounds of the ramp. */
static hr_status describe_ramp(reader *r, hr_rope_scaling *s) {
  if (s->kind == HR_ROPE_SCALING_LLAMA3) {
    HR_TRY(require_real_within(r, &ROPE_LOW, 1e-3, 1e6, &s->low));
    HR_TRY(require_real_within(r, &ROPE_HIGH, 1e-3, 1e6, &s->high));
    if (s->high <= s->low) return refuse_number(r, s->high, "more than the low factor");
    return HR_OK;
  }
  s->low = 1;
  s->high = 32;
  HR_TRY(read_real_within(r, &ROPE_SLOW, 1e-3, 1e6, &s->low));
  return read_real_within(r, &ROPE_FAST, 1e-3, 1e6, &s->high);
}

/* GGUF multiplies YaRN's own magnitude by a factor, which has a key of its own; config.json
 * replaces it. */
static hr_status describe_magnitude(reader *r, hr_rope_scaling *s) {
  bool yarn = is_gguf(r) && s->kind == HR_ROPE_SCALING_YARN, found;
  double factor;
  HR_TRY(read_real(r, yarn ? &ROPE_MAGNITUDE : &YARN_MAGNITUDE, &factor, &found));
  if (found && factor != 1)
    return refuse_number(r, factor, yarn ? "1 beside YaRN" : "1 without YaRN");
  HR_TRY(read_real(r, yarn ? &YARN_MAGNITUDE : &ROPE_MAGNITUDE, &factor, &found));
  if (!found) return HR_OK;
  if (factor <= 0 || factor > 1e3) return refuse_number(r, factor, "more than 0, at most 1000");
  s->magnitude = factor;
  return HR_OK;
}

static hr_status check_rope_member(void *arg, const char *name, hr_error *err) {
  static const char *const known[] = {
      "rope_type", "type", "factor", "original_max_position_embeddings", "low_freq_factor",
      "high_freq_factor", "beta_slow", "beta_fast", "attention_factor", "extrapolation_factor",
      "mscale", "mscale_all_dim", "truncate", "short_factor", "long_factor", "rope_theta",
      "partial_rotary_factor", "finetuned"};
  const reader *r = arg;
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if (strcmp(name, known[i]) == 0) return HR_OK;
  return hr_fail(err, HR_ERROR_FILE,
                 "%s: key '%s' has a member '%.64s', which is not known for rotary positions",
                 hr_source_path(r->source), r->key, name);
}

/* A misspelled member would pass for one that is not there. Two names of one thing must
 * not say two things. */
static hr_status check_rope_members(reader *r) {
  static const char *const outer[] = {"rope_scaling", "rope_parameters"};
  int kind[2] = {-1, -1};
  bool found;
  for (size_t i = 0; i < sizeof outer / sizeof *outer; i++) {
    snprintf(r->key, sizeof r->key, "%s", outer[i]);
    HR_TRY(hr_source_members(r->source, r->key, check_rope_member, r, &found, r->err));
  }
  for (size_t i = 0; i < 2; i++) {
    const value_name name = {NULL, {ROPE_TYPE.hf[i]}};
    HR_TRY(READ_CHOICE(r, &name, rope_scalings, &kind[i]));
  }
  if (kind[0] < 0 || kind[1] < 0 || kind[0] == kind[1]) return HR_OK;
  return hr_fail(r->err, HR_ERROR_FILE,
                 "%s: keys '%s' and '%s' ask for two scalings, expected one",
                 hr_source_path(r->source), ROPE_TYPE.hf[0], ROPE_TYPE.hf[1]);
}

/* The kind that is named, or the one that a GGUF file without a name means. */
static hr_status describe_rope_kind(reader *r, hr_rope_scaling *s) {
  int kind = HR_ROPE_SCALING_NONE;
  const char *type;
  size_t length;
  bool typed, found;
  if (!is_gguf(r)) HR_TRY(check_rope_members(r));
  HR_TRY(read_text(r, &ROPE_TYPE, &type, &length, &typed));
  HR_TRY(READ_CHOICE(r, &ROPE_TYPE, rope_scalings, &kind));
  HR_TRY(read_real(r, &ROPE_FACTOR, &s->factor, &found));
  if (!found) HR_TRY(read_real(r, &ROPE_OLD_FACTOR, &s->factor, &found));
  if (!found || s->factor == 0) s->factor = 1;
  if (s->factor < 1 || s->factor > 1e6) return refuse_number(r, s->factor, "1 to 1e+06");
  if (!typed && is_gguf(r)) {
    if (hr_source_find_tensor(r->source, "rope_factors_long.weight"))
      kind = HR_ROPE_SCALING_LONG;
    else if (s->factor != 1)
      kind = HR_ROPE_SCALING_LINEAR;
  } else if (!typed && s->factor != 1) {
    return refuse_number(r, s->factor, "a rope_type beside it");
  }
  s->kind = (hr_rope_scaling_kind)kind;
  bool needed = kind != HR_ROPE_SCALING_NONE && kind != HR_ROPE_SCALING_LONG;
  return needed && !found ? missing(r, &ROPE_FACTOR) : HR_OK;
}

static hr_status describe_rope_scaling(reader *r, hr_description *d) {
  hr_rope_scaling *s = &d->rope_scaling;
  HR_TRY(describe_rope_kind(r, s));
  s->original_context = d->context;
  HR_TRY(read_real_within(r, &ROPE_ORIGINAL, 1, MOST_CONTEXT, &s->original_context));
  if (s->kind == HR_ROPE_SCALING_LONG) s->factor = d->context / s->original_context;
  if (s->kind == HR_ROPE_SCALING_LLAMA3 || s->kind == HR_ROPE_SCALING_YARN)
    HR_TRY(describe_ramp(r, s));
  bool own = s->kind == HR_ROPE_SCALING_YARN || s->kind == HR_ROPE_SCALING_LONG;
  return own || is_gguf(r) ? describe_magnitude(r, s) : HR_OK;
}

/* The columns that turn follow from a part of the head's, which may be in no key. */
static hr_status refuse_rope_part(reader *r, const hr_description *d, double part, bool found) {
  if (!found) key_of(r, &ROPE_PART, 0);
  return hr_fail(r->err, HR_ERROR_FILE,
                 "%s: key '%s' is %s%.15g, which is %u of a head's %u columns, expected an even "
                 "number of them",
                 hr_source_path(r->source), r->key, found ? "" : "missing and stands for ", part,
                 d->rope_width, d->head_width);
}

static hr_status refuse_rope_width(reader *r, const hr_description *d) {
  double ignored;
  bool there;
  HR_TRY(hr_source_f64(r->source, r->key, &ignored, &there, r->err));
  return hr_fail(r->err, HR_ERROR_FILE, "%s: key '%s' is %s%u, expected an even number up to %u, "
                 "the head's width",
                 hr_source_path(r->source), r->key, there ? "" : "missing and stands for ",
                 d->rope_width, d->head_width);
}

static hr_status describe_rope_width(reader *r, hr_description *d) {
  double part = r->row->hf_rope_part > 0 && !is_gguf(r) ? r->row->hf_rope_part : 1;
  bool found, part_found;
  HR_TRY(read_size(r, &ROPE_WIDTH, MOST_WIDTH, &d->rope_width, &found));
  if (!found && !is_gguf(r) && r->row->hf_rope_width && !is_none(r, &ROPE_WIDTH)) {
    d->rope_width = r->row->hf_rope_width;
    found = true;
  }
  if (found && (d->rope_width > d->head_width || d->rope_width % 2)) {
    key_of(r, &ROPE_WIDTH, 0);
    return refuse_rope_width(r, d);
  }
  HR_TRY(read_real(r, &ROPE_PART, &part, &part_found));
  if (part_found) HR_TRY(read_real_within(r, &ROPE_PART, 0, 1, &part));
  if (found) return HR_OK;
  d->rope_width = (uint32_t)(part * d->head_width);
  if (d->rope_width == 0 || d->rope_width % 2) return refuse_rope_part(r, d, part, part_found);
  return HR_OK;
}

static hr_status describe_rope(reader *r, hr_description *d) {
  HR_TRY(describe_rope_width(r, d));
  d->rope_base = 10000.0;
  HR_TRY(read_real_within(r, &ROPE_BASE, 1, 1e12, &d->rope_base));
  if (is_gguf(r) && has(r, HR_GGUF_PAIRS)) d->rope_pairing = HR_ROPE_PAIRS;
  return describe_rope_scaling(r, d);
}

static hr_status describe_alibi(reader *r, hr_description *d) {
  d->alibi_steepness = 8;
  HR_TRY(read_real_within(r, &STEEPNESS, 0, 64, &d->alibi_steepness));
  if (d->alibi_steepness > 0) return HR_OK;
  if (!is_gguf(r)) return refuse_number(r, 0, "more than 0");
  d->position = HR_POSITION_LEARNED; /* MPT without ALiBi has a table */
  return HR_OK;
}

/* Choices that a file may make for itself. */
static hr_status describe_choices(reader *r, hr_description *d) {
  int activation = (int)d->activation, position = (int)d->position, place = (int)d->norm_place;
  bool own = has(r, HR_SPELLED_OUT), found;
  if (own || !is_gguf(r)) HR_TRY(READ_CHOICE(r, &ACTIVATION, activations, &activation));
  if (has(r, HR_HF_GELU_IS_TANH) && activation == HR_ACTIVATION_GELU_ERF)
    activation = HR_ACTIVATION_GELU_TANH;
  if (own) {
    HR_TRY(READ_CHOICE(r, &POSITION, positions, &position));
    HR_TRY(READ_CHOICE(r, &NORM_PLACE, norm_places, &place));
    double scale = 1;
    HR_TRY(read_real(r, &EMBEDDING_SCALE, &scale, &found));
    d->embedding_scale = (float)scale;
  }
  if (has(r, HR_EMBEDDING_SCALED)) d->embedding_scale = (float)sqrt((double)d->width);
  if (has(r, HR_PARALLEL_BY_KEY)) HR_TRY(read_switch(r, &PARALLEL, &d->parallel));
  bool causal = d->mask == HR_MASK_CAUSAL;
  HR_TRY(read_switch(r, &CAUSAL, &causal));
  if (d->headless) HR_TRY(read_switch(r, &DECODER, &causal));
  d->mask = causal ? HR_MASK_CAUSAL : HR_MASK_FULL;
  d->activation = (hr_activation)activation;
  d->position = (hr_position_kind)position;
  d->norm_place = (hr_norm_place)place;
  return HR_OK;
}

/* config.json may list what each layer sees; it must be what the other values say. */
static hr_status check_layer_types(reader *r, const hr_description *d) {
  key_of(r, &LAYER_TYPES, 0);
  bool found;
  size_t count;
  HR_TRY(hr_source_array_length(r->source, r->key, &count, &found, r->err));
  if (!found) return HR_OK;
  if (count != d->layers)
    return hr_fail(r->err, HR_ERROR_FILE, "%s: key '%s' has %zu elements, expected %u, one a layer",
                   hr_source_path(r->source), r->key, count, d->layers);
  const char **text = hr_calloc(count, sizeof *text);
  size_t *length = hr_calloc(count, sizeof *length);
  hr_status status = text && length ? HR_OK : hr_fail_memory(r->err, r->key, count * sizeof *text);
  if (status == HR_OK)
    status = hr_source_array_strings(r->source, r->key, text, length, count, r->err);
  for (uint32_t i = 0; status == HR_OK && i < d->layers; i++) {
    const char *expected = hr_layer_window(d, i) ? "sliding_attention" : "full_attention";
    if (!is_word(text[i], length[i], expected))
      status = hr_fail(r->err, HR_ERROR_FILE,
                       "%s: key '%s' has '%.*s' for layer %u, expected '%s' by the other values",
                       hr_source_path(r->source), r->key,
                       (int)(length[i] > 64 ? 64 : length[i]), text[i], i, expected);
  }
  hr_free(text);
  hr_free(length);
  return status;
}

static hr_status describe_window(reader *r, hr_description *d) {
  bool asked = !has(r, HR_HF_WINDOW_IF_ASKED) || is_gguf(r), found;
  uint32_t period = d->window_period;
  HR_TRY(read_switch(r, &WINDOW_ASKED, &asked));
  uint32_t usual = is_gguf(r) ? d->window : is_none(r, &WINDOW) ? 0 : r->row->hf_window;
  HR_TRY(default_size(r, &WINDOW, UINT32_MAX, usual, &d->window));
  if (d->window > MOST_CONTEXT) return refuse_number(r, d->window, "1 to 268435456");
  if (!asked) d->window = 0;
  if (d->window && has(r, HR_HF_WINDOW_IF_ASKED))
    HR_TRY(default_size(r, &WINDOW_FROM, UINT32_MAX, 0, &d->window_from));
  HR_TRY(read_size(r, &WINDOW_PERIOD, MOST_LAYERS, &period, &found));
  d->window_period = period;
  return is_gguf(r) ? HR_OK : check_layer_types(r, d);
}

static hr_status describe_scores(reader *r, hr_description *d) {
  double width = d->head_width, scale = 0;
  double score_cap = is_none(r, &SCORE_CAP) ? 0 : (double)d->score_cap;
  double logit_cap = is_none(r, &LOGIT_CAP) ? 0 : (double)d->logit_cap;
  if (!is_gguf(r) && r->row->hf_score_width > 0) width = r->row->hf_score_width;
  if (is_gguf(r) && r->row->deep_layers && d->layers == r->row->deep_layers)
    width = (double)d->width / d->heads;
  HR_TRY(read_real_within(r, &SCORE_WIDTH, 1e-3, 1e6, &width));
  HR_TRY(read_real_within(r, &SCORE_SCALE, 0, 1e6, &scale));
  d->score_scale = (float)(scale > 0 ? scale : 1.0 / sqrt(width));
  HR_TRY(read_real_within(r, &SCORE_CAP, 0, 1e6, &score_cap));
  HR_TRY(read_real_within(r, &LOGIT_CAP, 0, 1e6, &logit_cap));
  d->score_cap = (float)score_cap;
  d->logit_cap = (float)logit_cap;
  return HR_OK;
}

static hr_status describe_pooling(reader *r, hr_description *d) {
  uint32_t number = 0;
  int word = HR_POOLING_NONE;
  bool found, mean = false, cls = false, last = false;
  HR_TRY(read_size(r, &POOLING, UINT32_MAX, &number, &found));
  if (number > 4) return refuse_number(r, number, "0 to 4");
  /* GGUF: none, mean, cls, last, and 4 for scores, which begin at the first row */
  if (found) word = number == 4 ? HR_POOLING_CLS : (int)number;
  HR_TRY(READ_CHOICE(r, &POOL_WORD, poolings, &word));
  HR_TRY(read_switch(r, &POOL_MEAN, &mean));
  HR_TRY(read_switch(r, &POOL_CLS, &cls));
  HR_TRY(read_switch(r, &POOL_LAST, &last));
  if (mean + cls + last > 1)
    return hr_fail(r->err, HR_ERROR_FILE,
                   "%s: 1_Pooling/config.json asks for more than one pooling, expected one",
                   hr_source_path(r->source));
  if (mean) word = HR_POOLING_MEAN;
  if (cls) word = HR_POOLING_CLS;
  if (last) word = HR_POOLING_LAST;
  d->pooling = (hr_pooling)word;
  return HR_OK;
}

/* sentence-transformers cuts texts to a length in a file of its own, or else to the tokenizer's,
 * which may be anything where nobody set it. */
static hr_status describe_text_limit(reader *r, hr_description *d) {
  double limit;
  bool found;
  HR_TRY(read_real(r, &TEXT_LIMIT, &limit, &found));
  if (found && (limit < 1 || limit != floor(limit)))
    return refuse_number(r, limit, "a whole number, 1 or more");
  if (!found) HR_TRY(read_real(r, &TOKENIZER_LIMIT, &limit, &found));
  if (found && limit >= 1 && limit < d->context) d->text_limit = (uint32_t)limit;
  return HR_OK;
}

static hr_status refuse_switches(reader *r) {
  for (size_t i = 0; i < sizeof switches_we_lack / sizeof *switches_we_lack; i++) {
    const char *key = switches_we_lack[i].key;
    bool value, found;
    HR_TRY(hr_source_bool(r->source, key, &value, &found, r->err));
    if (found && value != switches_we_lack[i].neutral)
      return hr_fail(
          r->err, HR_ERROR_FILE, "%s: key '%s' is %s, a feature that is not known, expected %s",
          hr_source_path(r->source), key, value ? "true" : "false", value ? "false" : "true");
  }
  return HR_OK;
}

static hr_status note_member(void *arg, const char *name, hr_error *err) {
  (void)name, (void)err;
  *(bool *)arg = true;
  return HR_OK;
}

/* Weights quantized in a way that is not even named. */
static hr_status refuse_quantized(reader *r) {
  static const char outer[] = "quantization_config", key[] = "quantization_config.quant_method";
  const char *text;
  size_t length;
  bool found, named, any = false;
  HR_TRY(hr_source_members(r->source, outer, note_member, &any, &found, r->err));
  if (!any) return HR_OK;
  HR_TRY(hr_source_string(r->source, key, &text, &length, &named, r->err));
  if (named) return HR_OK;
  return hr_fail(r->err, HR_ERROR_FILE, "%s: key '%s' is missing in what '%s' has, expected 'none'",
                 hr_source_path(r->source), key, outer);
}

/* Heads for other tasks may have the names and the shapes of a classifier of whole texts. */
static hr_status refuse_task(reader *r, const char *text, size_t length) {
  static const char *const tasks[] = {"ForTokenClassification", "ForQuestionAnswering",
                                      "ForMultipleChoice"};
  for (size_t i = 0; i < sizeof tasks / sizeof *tasks; i++)
    if (hr_bytes_end_with(text, length, tasks[i]))
      return refuse_word(r, text, length,
                         "a model of hidden states, of scores of whole texts, or of next tokens");
  return HR_OK;
}

static hr_status refuse_tasks(reader *r) {
  enum { MOST = 16 };
  const char *text[MOST];
  size_t length[MOST], count;
  bool found;
  snprintf(r->key, sizeof r->key, "architectures");
  HR_TRY(hr_source_array_length(r->source, r->key, &count, &found, r->err));
  if (!found) return HR_OK;
  if (count > MOST)
    return hr_fail(r->err, HR_ERROR_FILE, "%s: key '%s' has %zu elements, expected at most %d",
                   hr_source_path(r->source), r->key, count, MOST);
  HR_TRY(hr_source_array_strings(r->source, r->key, text, length, count, r->err));
  for (size_t i = 0; i < count; i++) HR_TRY(refuse_task(r, text[i], length[i]));
  return HR_OK;
}

static hr_status refuse_words(reader *r) {
  for (size_t i = 0; i < sizeof words_we_lack / sizeof *words_we_lack; i++) {
    const char *key = words_we_lack[i].key, *text;
    size_t length;
    bool found;
    if (r->row->hf_key && strcmp(key, r->row->hf_key) == 0) continue;
    HR_TRY(hr_source_string(r->source, key, &text, &length, &found, r->err));
    if (!found || is_word(text, length, words_we_lack[i].expected)) continue;
    char expected[64];
    snprintf(r->key, sizeof r->key, "%s", key);
    snprintf(expected, sizeof expected, "'%s'", words_we_lack[i].expected);
    return refuse_word(r, text, length, expected);
  }
  return HR_OK;
}

static hr_status refuse_what_we_lack(reader *r, const hr_description *d) {
  bool found;
  double number;
  for (size_t i = 0; i < sizeof numbers_we_lack / sizeof *numbers_we_lack; i++) {
    HR_TRY(read_real(r, &numbers_we_lack[i].name, &number, &found));
    if (found && number != numbers_we_lack[i].neutral)
      return hr_fail(r->err, HR_ERROR_FILE,
                     "%s: key '%s' is %g, a feature that is not known, expected %g",
                     hr_source_path(r->source), r->key, number, numbers_we_lack[i].neutral);
  }
  if (d->position != HR_POSITION_ALIBI) {
    HR_TRY(read_real(r, &STEEPNESS, &number, &found));
    if (found && number != 0 && is_gguf(r))
      return refuse_number(r, number, "0: this family has no ALiBi");
  }
  if (is_gguf(r)) return HR_OK;
  HR_TRY(refuse_switches(r));
  HR_TRY(refuse_quantized(r));
  HR_TRY(refuse_tasks(r));
  return refuse_words(r);
}

hr_status hr_describe(const hr_source *source, const hr_architecture *row, hr_description *d,
                      hr_error *err) {
  reader r = {.source = source, .row = row, .err = err};
  *d = row->block;
  d->family = row->gguf ? row->gguf : row->hf[0];
  d->embedding_scale = 1;
  d->logit_scale = 1;
  HR_TRY(describe_sizes(&r, d));
  HR_TRY(describe_norm(&r, d));
  HR_TRY(describe_choices(&r, d));
  if (d->position == HR_POSITION_ROPE) HR_TRY(describe_rope(&r, d));
  if (d->position == HR_POSITION_ALIBI) HR_TRY(describe_alibi(&r, d));
  HR_TRY(describe_window(&r, d));
  HR_TRY(describe_scores(&r, d));
  HR_TRY(describe_pooling(&r, d));
  HR_TRY(describe_text_limit(&r, d));
  return refuse_what_we_lack(&r, d);
}
