/* SPDX-License-Identifier: MIT */
#include "model/architecture.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* --- Names ---------------------------------------------------------------- */

/* GGUF files name tensors alike in all families. */
static const hr_tensor_names gguf_names = {
    .name = {
        [HR_TENSOR_TOKENS] = "token_embd",
        [HR_TENSOR_POSITIONS] = "position_embd",
        [HR_TENSOR_ROPE_FACTORS] = "rope_freqs",
        [HR_TENSOR_EMBEDDING_NORM] = "token_embd_norm",
        [HR_TENSOR_FINAL_NORM] = "output_norm",
        [HR_TENSOR_HEAD] = "output",
        [HR_TENSOR_ATTENTION_NORM] = "blk.%u.attn_norm",
        [HR_TENSOR_QUERY] = "blk.%u.attn_q",
        [HR_TENSOR_KEY] = "blk.%u.attn_k",
        [HR_TENSOR_VALUE] = "blk.%u.attn_v",
        [HR_TENSOR_QKV] = "blk.%u.attn_qkv",
        [HR_TENSOR_QUERY_NORM] = "blk.%u.attn_q_norm",
        [HR_TENSOR_KEY_NORM] = "blk.%u.attn_k_norm",
        [HR_TENSOR_OUTPUT] = "blk.%u.attn_output",
        [HR_TENSOR_ATTENTION_POST_NORM] = "blk.%u.attn_output_norm",
        [HR_TENSOR_FFN_NORM] = "blk.%u.ffn_norm",
        [HR_TENSOR_GATE] = "blk.%u.ffn_gate",
        [HR_TENSOR_UP] = "blk.%u.ffn_up",
        [HR_TENSOR_DOWN] = "blk.%u.ffn_down",
        [HR_TENSOR_FFN_POST_NORM] = "blk.%u.layer_output_norm",
    },
};

static const hr_tensor_names gpt2_names = {
    .prefix = "transformer.",
    .transposed = true,
    .name = {
        [HR_TENSOR_TOKENS] = "wte",
        [HR_TENSOR_POSITIONS] = "wpe",
        [HR_TENSOR_FINAL_NORM] = "ln_f",
        [HR_TENSOR_HEAD] = "lm_head",
        [HR_TENSOR_ATTENTION_NORM] = "h.%u.ln_1",
        [HR_TENSOR_QKV] = "h.%u.attn.c_attn",
        [HR_TENSOR_OUTPUT] = "h.%u.attn.c_proj",
        [HR_TENSOR_FFN_NORM] = "h.%u.ln_2",
        [HR_TENSOR_UP] = "h.%u.mlp.c_fc",
        [HR_TENSOR_DOWN] = "h.%u.mlp.c_proj",
    },
};

static const hr_tensor_names llama_names = {
    .prefix = "model.",
    .name = {
        [HR_TENSOR_TOKENS] = "embed_tokens",
        [HR_TENSOR_FINAL_NORM] = "norm",
        [HR_TENSOR_HEAD] = "lm_head",
        [HR_TENSOR_ATTENTION_NORM] = "layers.%u.input_layernorm",
        [HR_TENSOR_QUERY] = "layers.%u.self_attn.q_proj",
        [HR_TENSOR_KEY] = "layers.%u.self_attn.k_proj",
        [HR_TENSOR_VALUE] = "layers.%u.self_attn.v_proj",
        [HR_TENSOR_QUERY_NORM] = "layers.%u.self_attn.q_norm",
        [HR_TENSOR_KEY_NORM] = "layers.%u.self_attn.k_norm",
        [HR_TENSOR_OUTPUT] = "layers.%u.self_attn.o_proj",
        [HR_TENSOR_FFN_NORM] = "layers.%u.post_attention_layernorm",
        [HR_TENSOR_GATE] = "layers.%u.mlp.gate_proj",
        [HR_TENSOR_UP] = "layers.%u.mlp.up_proj",
        [HR_TENSOR_DOWN] = "layers.%u.mlp.down_proj",
    },
};

/* --- The table ------------------------------------------------------------ */

#define LLAMA_BLOCK                                                                  \
  {.norm = HR_NORM_RMS, .norm_place = HR_NORM_BEFORE, .position = HR_POSITION_ROPE,  \
   .mask = HR_MASK_CAUSAL, .activation = HR_ACTIVATION_SILU, .gated = true}

static const hr_architecture table[] = {
    {
        .gguf = "llama",
        .hf = "llama",
        .block = LLAMA_BLOCK,
        .hf_eps = 1e-6,
        .hf_pairing = HR_ROPE_HALVES, /* GGUF holds the rows of q and k reordered to pairs */
        .gguf_names = &gguf_names,
        .hf_names = &llama_names,
    },
    {
        .gguf = "gpt2",
        .hf = "gpt2",
        .hf_eps = 1e-5,
        .block = {.norm = HR_NORM_LAYER, .norm_place = HR_NORM_BEFORE,
                  .position = HR_POSITION_LEARNED, .mask = HR_MASK_CAUSAL,
                  .activation = HR_ACTIVATION_GELU_TANH},
        .gguf_names = &gguf_names,
        .hf_names = &gpt2_names,
    },
    {
        /* "Attention Is All You Need" (2017), its decoder side without the
         * encoder; the file may name another position, norm place or activation. */
        .gguf = "transformer",
        .block = {.norm = HR_NORM_LAYER, .norm_place = HR_NORM_AFTER,
                  .position = HR_POSITION_SINUSOIDAL, .mask = HR_MASK_CAUSAL,
                  .activation = HR_ACTIVATION_RELU},
        .spelled_out = true,
        .gguf_names = &gguf_names,
    },
};

enum { ROWS = sizeof table / sizeof *table };

static const char *form_name(const hr_architecture *row, hr_source_kind kind) {
  return kind == HR_SOURCE_GGUF ? row->gguf : row->hf;
}

hr_status hr_architecture_find(const hr_source *source, const hr_architecture **row,
                               hr_error *err) {
  hr_source_kind kind = hr_source_get_kind(source);
  const char *key = kind == HR_SOURCE_GGUF ? "general.architecture" : "model_type";
  const char *name;
  size_t length;
  bool found;
  hr_status status = hr_source_string(source, key, &name, &length, &found, err);
  if (status != HR_OK) return status;
  if (!found)
    return hr_fail(err, HR_ERROR_FILE, "%s: key '%s' is missing, expected the model's architecture",
                   hr_source_path(source), key);
  for (size_t i = 0; i < ROWS; i++) {
    const char *known = form_name(&table[i], kind);
    if (known && strlen(known) == length && memcmp(known, name, length) == 0) {
      *row = &table[i];
      return HR_OK;
    }
  }
  char list[256];
  size_t used = 0;
  for (size_t i = 0; i < ROWS; i++) {
    const char *known = form_name(&table[i], kind);
    if (!known) continue;
    int n = snprintf(list + used, sizeof list - used, "%s%s", used ? ", " : "", known);
    if (n > 0 && (size_t)n < sizeof list - used) used += (size_t)n;
  }
  return hr_fail(err, HR_ERROR_FILE, "%s: architecture '%.*s' is not known, expected one of: %s",
                 hr_source_path(source), (int)(length > 64 ? 64 : length), name, list);
}

/* --- Values --------------------------------------------------------------- */

/* What a value is called in the two kinds of file. In GGUF the architecture's
 * name goes before it. */
typedef struct value_name {
  const char *gguf;
  const char *hf[3];
} value_name;

static const value_name LAYERS = {"block_count", {"num_hidden_layers", "n_layer"}};
static const value_name WIDTH = {"embedding_length", {"hidden_size", "n_embd"}};
static const value_name HEADS = {"attention.head_count", {"num_attention_heads", "n_head"}};
static const value_name KV_HEADS = {"attention.head_count_kv", {"num_key_value_heads"}};
static const value_name HEAD_WIDTH = {"attention.key_length", {"head_dim"}};
static const value_name VALUE_WIDTH = {"attention.value_length", {NULL}};
static const value_name FFN_WIDTH = {"feed_forward_length", {"intermediate_size", "n_inner"}};
static const value_name CONTEXT = {"context_length", {"max_position_embeddings", "n_positions"}};
static const value_name RMS_EPS = {"attention.layer_norm_rms_epsilon", {"rms_norm_eps"}};
static const value_name LAYER_EPS = {"attention.layer_norm_epsilon",
                                     {"layer_norm_epsilon", "layer_norm_eps"}};
static const value_name ROPE_WIDTH = {"rope.dimension_count", {NULL}};
static const value_name ROPE_BASE = {"rope.freq_base",
                                     {"rope_theta", "rope_parameters.rope_theta"}};
static const value_name ROPE_SCALING = {
    "rope.scaling.type",
    {"rope_scaling.rope_type", "rope_scaling.type", "rope_parameters.rope_type"}};
static const value_name VOCAB = {"vocab_size", {"vocab_size"}};
static const value_name ACTIVATION = {"activation", {"hidden_act", "activation_function"}};
static const value_name POSITION = {"position", {NULL}};
static const value_name NORM_PLACE = {"norm_placement", {NULL}};
static const value_name CAUSAL = {"attention.causal", {NULL}};
static const value_name EMBEDDING_SCALE = {"embedding_scale", {NULL}};
static const value_name WINDOW = {"attention.sliding_window", {"sliding_window"}};

/* Values that change the arithmetic in ways we lack, and what they are when they don't. */
static const struct {
  value_name name;
  double neutral;
} numbers_we_lack[] = {
    {{"expert_count", {"num_local_experts", "n_routed_experts"}}, 0},
    {{"rope.scale_linear", {NULL}}, 1},
    {{"rope.scaling.factor", {"rope_scaling.factor", "rope_parameters.factor"}}, 1},
    {{NULL, {"partial_rotary_factor", "rope_parameters.partial_rotary_factor"}}, 1},
    {{"attention.scale", {NULL}}, 0},
    {{"attention.clamp_kqv", {NULL}}, 0},
    {{"attention.max_alibi_bias", {NULL}}, 0},
    {{"attn_logit_softcapping", {"attn_logit_softcapping"}}, 0},
    {{"final_logit_softcapping", {"final_logit_softcapping"}}, 0},
    {{"logit_scale", {"logit_scale"}}, 1},
    {{"residual_scale", {"residual_multiplier"}}, 1},
};
static const struct {
  const char *key; /* of config.json */
  bool neutral;
} switches_we_lack[] = {
    {"scale_attn_by_inverse_layer_idx", false},
    {"scale_attn_weights", true},
    {"add_cross_attention", false},
};

typedef struct reader {
  const hr_source *source;
  const hr_architecture *row;
  hr_error *err;
  char key[128]; /* the last key looked for */
} reader;

/* The i-th key for a value, or false when there are no more. */
static bool key_of(reader *r, const value_name *name, size_t i) {
  if (hr_source_get_kind(r->source) == HR_SOURCE_GGUF) {
    if (i > 0 || !name->gguf) return false;
    snprintf(r->key, sizeof r->key, "%s.%s", r->row->gguf, name->gguf);
    return true;
  }
  if (i >= sizeof name->hf / sizeof *name->hf || !name->hf[i]) return false;
  snprintf(r->key, sizeof r->key, "%s", name->hf[i]);
  return true;
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

/* Sizes are small numbers: what exceeds most is damage. */
static hr_status read_size(reader *r, const value_name *name, uint32_t most, uint32_t *value,
                           bool *found) {
  *found = false;
  for (size_t i = 0; !*found && key_of(r, name, i); i++) {
    uint64_t wide;
    hr_status status = hr_source_u64(r->source, r->key, &wide, found, r->err);
    if (status != HR_OK) return status;
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
  hr_status status = read_size(r, name, most, value, &found);
  return status != HR_OK || found ? status : missing(r, name);
}

static hr_status default_size(reader *r, const value_name *name, uint32_t most, uint32_t fallback,
                              uint32_t *value) {
  bool found;
  hr_status status = read_size(r, name, most, value, &found);
  if (status == HR_OK && !found) *value = fallback;
  return status;
}

static hr_status read_real(reader *r, const value_name *name, double *value, bool *found) {
  *found = false;
  for (size_t i = 0; !*found && key_of(r, name, i); i++) {
    hr_status status = hr_source_f64(r->source, r->key, value, found, r->err);
    if (status != HR_OK) return status;
    if (*found && !isfinite(*value)) return refuse_number(r, *value, "a finite number");
  }
  return HR_OK;
}

static hr_status read_text(reader *r, const value_name *name, const char **text, size_t *length,
                           bool *found) {
  *found = false;
  for (size_t i = 0; !*found && key_of(r, name, i); i++) {
    hr_status status = hr_source_string(r->source, r->key, text, length, found, r->err);
    if (status != HR_OK) return status;
  }
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
  hr_status status = read_text(r, name, &text, &length, &found);
  if (status != HR_OK || !found) return status;
  for (size_t i = 0; i < count; i++)
    if (strlen(choices[i].word) == length && memcmp(choices[i].word, text, length) == 0) {
      *value = choices[i].value;
      return HR_OK;
    }
  char list[160];
  size_t used = 0;
  for (size_t i = 0; i < count; i++) {
    int n = snprintf(list + used, sizeof list - used, "%s%s", used ? ", " : "", choices[i].word);
    if (n > 0 && (size_t)n < sizeof list - used) used += (size_t)n;
  }
  return hr_fail(r->err, HR_ERROR_FILE, "%s: key '%s' is '%.*s', expected one of: %s",
                 hr_source_path(r->source), r->key, (int)(length > 64 ? 64 : length), text, list);
}
#define READ_CHOICE(r, name, choices, value) \
  read_choice(r, name, choices, sizeof(choices) / sizeof *(choices), value)

static const choice positions[] = {{"sinusoidal", HR_POSITION_SINUSOIDAL},
                                   {"learned", HR_POSITION_LEARNED},
                                   {"rope", HR_POSITION_ROPE},
                                   {"alibi", HR_POSITION_ALIBI},
                                   {"none", HR_POSITION_NONE}};
static const choice norm_places[] = {{"post", HR_NORM_AFTER}, {"pre", HR_NORM_BEFORE}};
/* The words of config.json and of our own files. */
static const choice activations[] = {
    {"relu", HR_ACTIVATION_RELU},           {"relu2", HR_ACTIVATION_RELU2},
    {"silu", HR_ACTIVATION_SILU},           {"swish", HR_ACTIVATION_SILU},
    {"gelu", HR_ACTIVATION_GELU_ERF},       {"gelu_erf", HR_ACTIVATION_GELU_ERF},
    {"gelu_new", HR_ACTIVATION_GELU_TANH},  {"gelu_tanh", HR_ACTIVATION_GELU_TANH},
    {"gelu_pytorch_tanh", HR_ACTIVATION_GELU_TANH},
    {"quick_gelu", HR_ACTIVATION_GELU_QUICK}};

/* --- The description ------------------------------------------------------ */

#define TRY(call)                             \
  do {                                        \
    hr_status status_ = (call);               \
    if (status_ != HR_OK) return status_;     \
  } while (0)

enum { MOST_LAYERS = 4096, MOST_WIDTH = 1 << 20, MOST_HEADS = 1 << 14, MOST_CONTEXT = 1 << 28 };

static hr_status describe_sizes(reader *r, hr_description *d) {
  TRY(require_size(r, &LAYERS, MOST_LAYERS, &d->layers));
  TRY(require_size(r, &WIDTH, MOST_WIDTH, &d->width));
  TRY(require_size(r, &HEADS, MOST_HEADS, &d->heads));
  TRY(default_size(r, &KV_HEADS, MOST_HEADS, d->heads, &d->kv_heads));
  if (d->heads % d->kv_heads)
    return hr_fail(
        r->err, HR_ERROR_FILE,
        "%s: %u query heads and %u key/value heads, expected the second to divide the first",
        hr_source_path(r->source), d->heads, d->kv_heads);
  bool found;
  TRY(read_size(r, &HEAD_WIDTH, MOST_WIDTH, &d->head_width, &found));
  if (!found) {
    if (d->width % d->heads)
      return hr_fail(r->err, HR_ERROR_FILE,
                     "%s: %u heads in an embedding of width %u, expected a divisor of the width",
                     hr_source_path(r->source), d->heads, d->width);
    d->head_width = d->width / d->heads;
  }
  uint32_t value_width;
  TRY(default_size(r, &VALUE_WIDTH, MOST_WIDTH, d->head_width, &value_width));
  if (value_width != d->head_width)
    return refuse_number(r, value_width, "the width of a key");
  if ((uint64_t)d->heads * d->head_width > MOST_WIDTH)
    return hr_fail(r->err, HR_ERROR_FILE, "%s: %u heads of width %u are too wide",
                   hr_source_path(r->source), d->heads, d->head_width);
  TRY(default_size(r, &FFN_WIDTH, MOST_WIDTH, 4 * d->width, &d->ffn_width));
  TRY(default_size(r, &VOCAB, INT32_MAX, 0, &d->vocab));
  return require_size(r, &CONTEXT, MOST_CONTEXT, &d->context);
}

static hr_status describe_norm(reader *r, hr_description *d) {
  const value_name *name = d->norm == HR_NORM_RMS ? &RMS_EPS : &LAYER_EPS;
  double eps;
  bool found;
  TRY(read_real(r, name, &eps, &found));
  bool by_default = hr_source_get_kind(r->source) == HR_SOURCE_SAFETENSORS && r->row->hf_eps > 0;
  if (!found && !by_default) return missing(r, name);
  if (!found) eps = r->row->hf_eps;
  if (eps < 0 || eps > 1) return refuse_number(r, eps, "0 to 1");
  d->norm_eps = (float)eps;
  return HR_OK;
}

static hr_status describe_rope(reader *r, hr_description *d) {
  const char *type;
  size_t length;
  bool found;
  TRY(read_text(r, &ROPE_SCALING, &type, &length, &found));
  if (found && !(length == 4 && memcmp(type, "none", 4) == 0) &&
      !(length == 7 && memcmp(type, "default", 7) == 0))
    return hr_fail(r->err, HR_ERROR_FILE,
                   "%s: key '%s' is '%.*s', a RoPE scaling that is not known",
                   hr_source_path(r->source), r->key, (int)(length > 64 ? 64 : length), type);
  TRY(default_size(r, &ROPE_WIDTH, MOST_WIDTH, d->head_width, &d->rope_width));
  if (d->rope_width > d->head_width || d->rope_width % 2)
    return refuse_number(r, d->rope_width, "an even number up to the head's width");
  d->rope_base = 10000.0;
  TRY(read_real(r, &ROPE_BASE, &d->rope_base, &found));
  if (d->rope_base < 1 || d->rope_base > 1e12) return refuse_number(r, d->rope_base, "1 to 1e12");
  d->rope_pairing = hr_source_get_kind(r->source) == HR_SOURCE_GGUF ? d->rope_pairing
                                                                    : r->row->hf_pairing;
  return HR_OK;
}

/* Choices that a file may make for itself. */
static hr_status describe_choices(reader *r, hr_description *d) {
  int activation = (int)d->activation, position = (int)d->position, place = (int)d->norm_place;
  bool own = r->row->spelled_out, found;
  if (own || hr_source_get_kind(r->source) == HR_SOURCE_SAFETENSORS)
    TRY(READ_CHOICE(r, &ACTIVATION, activations, &activation));
  if (own) {
    TRY(READ_CHOICE(r, &POSITION, positions, &position));
    TRY(READ_CHOICE(r, &NORM_PLACE, norm_places, &place));
    double scale = 1;
    TRY(read_real(r, &EMBEDDING_SCALE, &scale, &found));
    d->embedding_scale = (float)scale;
    bool causal = d->mask == HR_MASK_CAUSAL;
    key_of(r, &CAUSAL, 0);
    TRY(hr_source_bool(r->source, r->key, &causal, &found, r->err));
    d->mask = causal ? HR_MASK_CAUSAL : HR_MASK_FULL;
  }
  d->activation = (hr_activation)activation;
  d->position = (hr_position_kind)position;
  d->norm_place = (hr_norm_place)place;
  return HR_OK;
}

static hr_status refuse_what_we_lack(reader *r) {
  bool found;
  for (size_t i = 0; i < sizeof numbers_we_lack / sizeof *numbers_we_lack; i++) {
    double number;
    TRY(read_real(r, &numbers_we_lack[i].name, &number, &found));
    if (found && number != numbers_we_lack[i].neutral)
      return hr_fail(r->err, HR_ERROR_FILE,
                     "%s: key '%s' is %g, a feature that is not known, expected %g",
                     hr_source_path(r->source), r->key, number, numbers_we_lack[i].neutral);
  }
  if (hr_source_get_kind(r->source) == HR_SOURCE_GGUF) return HR_OK;
  for (size_t i = 0; i < sizeof switches_we_lack / sizeof *switches_we_lack; i++) {
    const char *key = switches_we_lack[i].key;
    bool value;
    TRY(hr_source_bool(r->source, key, &value, &found, r->err));
    if (found && value != switches_we_lack[i].neutral)
      return hr_fail(
          r->err, HR_ERROR_FILE, "%s: key '%s' is %s, a feature that is not known, expected %s",
          hr_source_path(r->source), key, value ? "true" : "false", value ? "false" : "true");
  }
  return HR_OK;
}

hr_status hr_describe(const hr_source *source, const hr_architecture *row, hr_description *d,
                      hr_error *err) {
  reader r = {.source = source, .row = row, .err = err};
  *d = row->block;
  d->family = form_name(row, hr_source_get_kind(source));
  d->embedding_scale = 1;
  d->logit_scale = 1;
  TRY(describe_sizes(&r, d));
  TRY(describe_norm(&r, d));
  TRY(describe_choices(&r, d));
  if (d->position == HR_POSITION_ROPE) TRY(describe_rope(&r, d));
  TRY(default_size(&r, &WINDOW, MOST_CONTEXT, 0, &d->window));
  TRY(refuse_what_we_lack(&r));
  d->score_scale = (float)(1.0 / sqrt((double)d->head_width));
  return HR_OK;
}
