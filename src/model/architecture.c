/* SPDX-License-Identifier: MIT */
#include "model/architecture.h"

#include <stdio.h>
#include <string.h>

/* --- Names ---------------------------------------------------------------- */

/* GGUF files name tensors alike in nearly all families. */
static const hr_tensor_names gguf_names = {
    .name = {
        [HR_TENSOR_TOKENS] = "token_embd",
        [HR_TENSOR_POSITIONS] = "position_embd",
        [HR_TENSOR_TYPES] = "token_types",
        [HR_TENSOR_ROPE_FACTORS] = "rope_freqs|rope_factors_short",
        [HR_TENSOR_ROPE_LONG_FACTORS] = "rope_factors_long",
        [HR_TENSOR_EMBEDDING_NORM] = "token_embd_norm",
        [HR_TENSOR_FINAL_NORM] = "output_norm",
        [HR_TENSOR_HEAD] = "output",
        [HR_TENSOR_POOLER] = "cls",
        [HR_TENSOR_CLASSIFIER] = "cls.output",
        [HR_TENSOR_ATTENTION_NORM] = "blk.%u.attn_norm",
        [HR_TENSOR_QUERY] = "blk.%u.attn_q",
        [HR_TENSOR_KEY] = "blk.%u.attn_k",
        [HR_TENSOR_VALUE] = "blk.%u.attn_v",
        [HR_TENSOR_QKV] = "blk.%u.attn_qkv",
        [HR_TENSOR_QUERY_NORM] = "blk.%u.attn_q_norm",
        [HR_TENSOR_KEY_NORM] = "blk.%u.attn_k_norm",
        [HR_TENSOR_OUTPUT] = "blk.%u.attn_output",
        [HR_TENSOR_ATTENTION_POST_NORM] = "blk.%u.attn_output_norm|blk.%u.post_attention_norm",
        [HR_TENSOR_FFN_NORM] = "blk.%u.ffn_norm",
        [HR_TENSOR_GATE] = "blk.%u.ffn_gate",
        [HR_TENSOR_UP] = "blk.%u.ffn_up",
        [HR_TENSOR_GATE_UP] = "blk.%u.ffn_up",
        [HR_TENSOR_DOWN] = "blk.%u.ffn_down",
        [HR_TENSOR_FFN_POST_NORM] = "blk.%u.layer_output_norm|blk.%u.post_ffw_norm",
    },
};

/* One norm for both sub-layers, or a second one for attention. */
static const hr_tensor_names gguf_falcon_names = {
    .name = {
        [HR_TENSOR_TOKENS] = "token_embd",
        [HR_TENSOR_FINAL_NORM] = "output_norm",
        [HR_TENSOR_HEAD] = "output",
        [HR_TENSOR_ATTENTION_NORM] = "blk.%u.attn_norm_2|blk.%u.attn_norm",
        [HR_TENSOR_QKV] = "blk.%u.attn_qkv",
        [HR_TENSOR_OUTPUT] = "blk.%u.attn_output",
        [HR_TENSOR_FFN_NORM] = "blk.%u.attn_norm",
        [HR_TENSOR_UP] = "blk.%u.ffn_up",
        [HR_TENSOR_DOWN] = "blk.%u.ffn_down",
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

/* Llama, Mistral, Qwen, Gemma and StableLM, each with its own of the rarer ones. */
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

static const hr_tensor_names gemma2_names = {
    .prefix = "model.",
    .name = {
        [HR_TENSOR_TOKENS] = "embed_tokens",
        [HR_TENSOR_FINAL_NORM] = "norm",
        [HR_TENSOR_HEAD] = "lm_head",
        [HR_TENSOR_ATTENTION_NORM] = "layers.%u.input_layernorm",
        [HR_TENSOR_QUERY] = "layers.%u.self_attn.q_proj",
        [HR_TENSOR_KEY] = "layers.%u.self_attn.k_proj",
        [HR_TENSOR_VALUE] = "layers.%u.self_attn.v_proj",
        [HR_TENSOR_OUTPUT] = "layers.%u.self_attn.o_proj",
        [HR_TENSOR_ATTENTION_POST_NORM] = "layers.%u.post_attention_layernorm",
        [HR_TENSOR_FFN_NORM] = "layers.%u.pre_feedforward_layernorm",
        [HR_TENSOR_GATE] = "layers.%u.mlp.gate_proj",
        [HR_TENSOR_UP] = "layers.%u.mlp.up_proj",
        [HR_TENSOR_DOWN] = "layers.%u.mlp.down_proj",
        [HR_TENSOR_FFN_POST_NORM] = "layers.%u.post_feedforward_layernorm",
    },
};

static const hr_tensor_names phi_names = {
    .prefix = "model.",
    .name = {
        [HR_TENSOR_TOKENS] = "embed_tokens",
        [HR_TENSOR_FINAL_NORM] = "final_layernorm",
        [HR_TENSOR_HEAD] = "lm_head",
        [HR_TENSOR_ATTENTION_NORM] = "layers.%u.input_layernorm",
        [HR_TENSOR_QUERY] = "layers.%u.self_attn.q_proj",
        [HR_TENSOR_KEY] = "layers.%u.self_attn.k_proj",
        [HR_TENSOR_VALUE] = "layers.%u.self_attn.v_proj",
        [HR_TENSOR_QUERY_NORM] = "layers.%u.self_attn.q_layernorm",
        [HR_TENSOR_KEY_NORM] = "layers.%u.self_attn.k_layernorm",
        [HR_TENSOR_OUTPUT] = "layers.%u.self_attn.dense",
        [HR_TENSOR_UP] = "layers.%u.mlp.fc1",
        [HR_TENSOR_DOWN] = "layers.%u.mlp.fc2",
    },
};

static const hr_tensor_names phi3_names = {
    .prefix = "model.",
    .name = {
        [HR_TENSOR_TOKENS] = "embed_tokens",
        [HR_TENSOR_FINAL_NORM] = "norm",
        [HR_TENSOR_HEAD] = "lm_head",
        [HR_TENSOR_ATTENTION_NORM] = "layers.%u.input_layernorm",
        [HR_TENSOR_QKV] = "layers.%u.self_attn.qkv_proj",
        [HR_TENSOR_OUTPUT] = "layers.%u.self_attn.o_proj",
        [HR_TENSOR_FFN_NORM] = "layers.%u.post_attention_layernorm",
        [HR_TENSOR_GATE_UP] = "layers.%u.mlp.gate_up_proj",
        [HR_TENSOR_DOWN] = "layers.%u.mlp.down_proj",
    },
};

static const hr_tensor_names gptneox_names = {
    .prefix = "gpt_neox.",
    .name = {
        [HR_TENSOR_TOKENS] = "embed_in",
        [HR_TENSOR_FINAL_NORM] = "final_layer_norm",
        [HR_TENSOR_HEAD] = "embed_out",
        [HR_TENSOR_ATTENTION_NORM] = "layers.%u.input_layernorm",
        [HR_TENSOR_QKV] = "layers.%u.attention.query_key_value",
        [HR_TENSOR_OUTPUT] = "layers.%u.attention.dense",
        [HR_TENSOR_FFN_NORM] = "layers.%u.post_attention_layernorm",
        [HR_TENSOR_UP] = "layers.%u.mlp.dense_h_to_4h",
        [HR_TENSOR_DOWN] = "layers.%u.mlp.dense_4h_to_h",
    },
};

static const hr_tensor_names gptj_names = {
    .prefix = "transformer.",
    .name = {
        [HR_TENSOR_TOKENS] = "wte",
        [HR_TENSOR_FINAL_NORM] = "ln_f",
        [HR_TENSOR_HEAD] = "lm_head",
        [HR_TENSOR_ATTENTION_NORM] = "h.%u.ln_1",
        [HR_TENSOR_QUERY] = "h.%u.attn.q_proj",
        [HR_TENSOR_KEY] = "h.%u.attn.k_proj",
        [HR_TENSOR_VALUE] = "h.%u.attn.v_proj",
        [HR_TENSOR_OUTPUT] = "h.%u.attn.out_proj",
        [HR_TENSOR_UP] = "h.%u.mlp.fc_in",
        [HR_TENSOR_DOWN] = "h.%u.mlp.fc_out",
    },
};

/* Falcon and BLOOM. */
static const hr_tensor_names bloom_names = {
    .prefix = "transformer.",
    .name = {
        [HR_TENSOR_TOKENS] = "word_embeddings",
        [HR_TENSOR_EMBEDDING_NORM] = "word_embeddings_layernorm",
        [HR_TENSOR_FINAL_NORM] = "ln_f",
        [HR_TENSOR_HEAD] = "lm_head",
        [HR_TENSOR_ATTENTION_NORM] = "h.%u.input_layernorm|h.%u.ln_attn",
        [HR_TENSOR_QKV] = "h.%u.self_attention.query_key_value",
        [HR_TENSOR_OUTPUT] = "h.%u.self_attention.dense",
        [HR_TENSOR_FFN_NORM] = "h.%u.post_attention_layernorm|h.%u.ln_mlp",
        [HR_TENSOR_UP] = "h.%u.mlp.dense_h_to_4h",
        [HR_TENSOR_DOWN] = "h.%u.mlp.dense_4h_to_h",
    },
};

static const hr_tensor_names opt_names = {
    .prefix = "model.decoder.|decoder.",
    .name = {
        [HR_TENSOR_TOKENS] = "embed_tokens",
        [HR_TENSOR_POSITIONS] = "embed_positions",
        [HR_TENSOR_FINAL_NORM] = "final_layer_norm",
        [HR_TENSOR_HEAD] = "lm_head",
        [HR_TENSOR_ATTENTION_NORM] = "layers.%u.self_attn_layer_norm",
        [HR_TENSOR_QUERY] = "layers.%u.self_attn.q_proj",
        [HR_TENSOR_KEY] = "layers.%u.self_attn.k_proj",
        [HR_TENSOR_VALUE] = "layers.%u.self_attn.v_proj",
        [HR_TENSOR_OUTPUT] = "layers.%u.self_attn.out_proj",
        [HR_TENSOR_FFN_NORM] = "layers.%u.final_layer_norm",
        [HR_TENSOR_UP] = "layers.%u.fc1",
        [HR_TENSOR_DOWN] = "layers.%u.fc2",
    },
};

static const hr_tensor_names mpt_names = {
    .prefix = "transformer.",
    .name = {
        [HR_TENSOR_TOKENS] = "wte",
        [HR_TENSOR_FINAL_NORM] = "norm_f",
        [HR_TENSOR_HEAD] = "lm_head",
        [HR_TENSOR_ATTENTION_NORM] = "blocks.%u.norm_1",
        [HR_TENSOR_QKV] = "blocks.%u.attn.Wqkv",
        [HR_TENSOR_OUTPUT] = "blocks.%u.attn.out_proj",
        [HR_TENSOR_FFN_NORM] = "blocks.%u.norm_2",
        [HR_TENSOR_UP] = "blocks.%u.ffn.up_proj",
        [HR_TENSOR_DOWN] = "blocks.%u.ffn.down_proj",
    },
};

static const hr_tensor_names starcoder2_names = {
    .prefix = "model.",
    .name = {
        [HR_TENSOR_TOKENS] = "embed_tokens",
        [HR_TENSOR_FINAL_NORM] = "norm",
        [HR_TENSOR_HEAD] = "lm_head",
        [HR_TENSOR_ATTENTION_NORM] = "layers.%u.input_layernorm",
        [HR_TENSOR_QUERY] = "layers.%u.self_attn.q_proj",
        [HR_TENSOR_KEY] = "layers.%u.self_attn.k_proj",
        [HR_TENSOR_VALUE] = "layers.%u.self_attn.v_proj",
        [HR_TENSOR_OUTPUT] = "layers.%u.self_attn.o_proj",
        [HR_TENSOR_FFN_NORM] = "layers.%u.post_attention_layernorm",
        [HR_TENSOR_UP] = "layers.%u.mlp.c_fc",
        [HR_TENSOR_DOWN] = "layers.%u.mlp.c_proj",
    },
};

/* BERT, RoBERTa and their like, and jina-bert-v2, whose feed-forward is its own. */
static const hr_tensor_names bert_names = {
    .prefix = "bert.|roberta.",
    .ignored = "cls.|lm_head.|pooler.",
    .name = {
        [HR_TENSOR_TOKENS] = "embeddings.word_embeddings",
        [HR_TENSOR_POSITIONS] = "embeddings.position_embeddings",
        [HR_TENSOR_TYPES] = "embeddings.token_type_embeddings",
        [HR_TENSOR_EMBEDDING_NORM] = "embeddings.LayerNorm",
        [HR_TENSOR_POOLER] = "classifier.dense|pooler.dense",
        [HR_TENSOR_CLASSIFIER] = "classifier.out_proj|classifier",
        [HR_TENSOR_QUERY] = "encoder.layer.%u.attention.self.query",
        [HR_TENSOR_KEY] = "encoder.layer.%u.attention.self.key",
        [HR_TENSOR_VALUE] = "encoder.layer.%u.attention.self.value",
        [HR_TENSOR_OUTPUT] = "encoder.layer.%u.attention.output.dense",
        [HR_TENSOR_ATTENTION_POST_NORM] = "encoder.layer.%u.attention.output.LayerNorm",
        [HR_TENSOR_GATE_UP] = "encoder.layer.%u.mlp.gated_layers",
        [HR_TENSOR_UP] = "encoder.layer.%u.intermediate.dense",
        [HR_TENSOR_DOWN] = "encoder.layer.%u.output.dense|encoder.layer.%u.mlp.wo",
        [HR_TENSOR_FFN_POST_NORM] =
            "encoder.layer.%u.output.LayerNorm|encoder.layer.%u.mlp.layernorm",
    },
};

static const hr_tensor_names distilbert_names = {
    .prefix = "distilbert.",
    .ignored = "vocab_",
    .name = {
        [HR_TENSOR_TOKENS] = "embeddings.word_embeddings",
        [HR_TENSOR_POSITIONS] = "embeddings.position_embeddings",
        [HR_TENSOR_EMBEDDING_NORM] = "embeddings.LayerNorm",
        [HR_TENSOR_POOLER] = "pre_classifier",
        [HR_TENSOR_CLASSIFIER] = "classifier",
        [HR_TENSOR_QUERY] = "transformer.layer.%u.attention.q_lin",
        [HR_TENSOR_KEY] = "transformer.layer.%u.attention.k_lin",
        [HR_TENSOR_VALUE] = "transformer.layer.%u.attention.v_lin",
        [HR_TENSOR_OUTPUT] = "transformer.layer.%u.attention.out_lin",
        [HR_TENSOR_ATTENTION_POST_NORM] = "transformer.layer.%u.sa_layer_norm",
        [HR_TENSOR_UP] = "transformer.layer.%u.ffn.lin1",
        [HR_TENSOR_DOWN] = "transformer.layer.%u.ffn.lin2",
        [HR_TENSOR_FFN_POST_NORM] = "transformer.layer.%u.output_layer_norm",
    },
};

static const hr_tensor_names nomic_names = {
    .prefix = "bert.",
    .ignored = "cls.",
    .name = {
        [HR_TENSOR_TOKENS] = "embeddings.word_embeddings",
        [HR_TENSOR_TYPES] = "embeddings.token_type_embeddings",
        [HR_TENSOR_EMBEDDING_NORM] = "emb_ln",
        [HR_TENSOR_POOLER] = "pooler.dense",
        [HR_TENSOR_CLASSIFIER] = "classifier",
        [HR_TENSOR_QKV] = "encoder.layers.%u.attn.Wqkv",
        [HR_TENSOR_OUTPUT] = "encoder.layers.%u.attn.out_proj",
        [HR_TENSOR_ATTENTION_POST_NORM] = "encoder.layers.%u.norm1",
        [HR_TENSOR_GATE] = "encoder.layers.%u.mlp.fc12",
        [HR_TENSOR_UP] = "encoder.layers.%u.mlp.fc11",
        [HR_TENSOR_DOWN] = "encoder.layers.%u.mlp.fc2",
        [HR_TENSOR_FFN_POST_NORM] = "encoder.layers.%u.norm2",
    },
};

/* --- What keys say about tensors ------------------------------------------- */

static const hr_claim llama_claims[] = {
    {.hf = "attention_bias", .biases = HR_SLOTS_QKV | HR_BIT(OUTPUT)},
    {.hf = "mlp_bias", .biases = HR_SLOTS_FFN},
    {0},
};
static const hr_claim phi_claims[] = {
    {.hf = "qk_layernorm", .weights = HR_BIT(QUERY_NORM) | HR_BIT(KEY_NORM)},
    {0},
};
static const hr_claim falcon_claims[] = {
    {.hf = "bias", .biases = HR_SLOTS_LAYER},
    {.hf = "parallel_attn", .kind = HR_CLAIM_UNLESS, .weights = HR_BIT(FFN_NORM)},
    {0},
};
static const hr_claim opt_claims[] = {{.hf = "enable_bias", .biases = HR_SLOTS_LAYER}, {0}};
static const hr_claim mpt_claims[] = {
    {.hf = "no_bias", .kind = HR_CLAIM_NO, .biases = HR_SLOTS_LAYER | HR_SLOTS_NORMS},
    {0},
};
static const hr_claim stablelm_claims[] = {
    {.hf = "use_qkv_bias", .biases = HR_SLOTS_QKV},
    {.hf = "qk_layernorm", .weights = HR_BIT(QUERY_NORM) | HR_BIT(KEY_NORM)},
    {.hf = "use_parallel_residual", .kind = HR_CLAIM_NO, .weights = HR_BIT(FFN_NORM)},
    {0},
};
static const hr_claim starcoder2_claims[] = {{.hf = "use_bias", .biases = HR_SLOTS_LAYER}, {0}};

#define TYPES_CLAIM                                                                     \
  {                                                                                     \
    .gguf = "tokenizer.ggml.token_type_count", .hf = "type_vocab_size",                 \
    .kind = HR_CLAIM_ROWS, .weights = HR_BIT(TYPES)                                    \
  }
static const hr_claim bert_claims[] = {
    TYPES_CLAIM,
    {.hf = "use_qk_norm", .weights = HR_BIT(QUERY_NORM) | HR_BIT(KEY_NORM)},
    {0},
};
static const hr_claim nomic_claims[] = {
    TYPES_CLAIM,
    {.hf = "qkv_proj_bias", .biases = HR_SLOTS_QKV | HR_BIT(OUTPUT)},
    {.hf = "mlp_fc1_bias", .biases = HR_BIT(GATE) | HR_BIT(UP)},
    {.hf = "mlp_fc2_bias", .biases = HR_BIT(DOWN)},
    {0},
};

/* --- The table ------------------------------------------------------------ */

#define LLAMA_BLOCK                                                                  \
  .norm = HR_NORM_RMS, .norm_place = HR_NORM_BEFORE, .position = HR_POSITION_ROPE,   \
  .rope_pairing = HR_ROPE_HALVES, .mask = HR_MASK_CAUSAL,                            \
  .activation = HR_ACTIVATION_SILU, .gated = true
#define GPT_BLOCK \
  .norm = HR_NORM_LAYER, .norm_place = HR_NORM_BEFORE, .mask = HR_MASK_CAUSAL
#define BERT_BLOCK                                                                 \
  .norm = HR_NORM_LAYER, .norm_place = HR_NORM_AFTER, .mask = HR_MASK_FULL,        \
  .headless = true, .activation = HR_ACTIVATION_GELU_ERF
#define HR_SLOTS_BERT \
  (HR_SLOTS_LAYER | HR_SLOTS_NORMS | HR_BIT(POOLER) | HR_BIT(CLASSIFIER))

static const hr_architecture table[] = {
    {
        .gguf = "llama",
        .hf = {"llama"},
        .block = {LLAMA_BLOCK},
        .particulars = HR_GGUF_PAIRS,
        .hf_eps = 1e-6,
        .claims = llama_claims,
        .gguf_names = &gguf_names,
        .hf_names = &llama_names,
    },
    {
        .hf = {"mistral"}, /* llama in GGUF */
        .block = {LLAMA_BLOCK},
        .hf_eps = 1e-6,
        .hf_window = 4096,
        .claims = llama_claims,
        .hf_names = &llama_names,
    },
    {
        .gguf = "qwen2",
        .hf = {"qwen2"},
        .block = {LLAMA_BLOCK},
        .particulars = HR_HF_WINDOW_IF_ASKED,
        .hf_eps = 1e-6,
        .hf_window = 4096,
        .biases = HR_SLOTS_QKV,
        .gguf_names = &gguf_names,
        .hf_names = &llama_names,
    },
    {
        .gguf = "qwen3",
        .hf = {"qwen3"},
        .block = {LLAMA_BLOCK},
        .particulars = HR_HF_WINDOW_IF_ASKED,
        .hf_eps = 1e-6,
        .hf_window = 4096,
        .needs = HR_BIT(QUERY_NORM) | HR_BIT(KEY_NORM),
        .claims = llama_claims,
        .gguf_names = &gguf_names,
        .hf_names = &llama_names,
    },
    {
        .gguf = "gemma",
        .hf = {"gemma"},
        .block = {.norm = HR_NORM_RMS, .norm_place = HR_NORM_BEFORE,
                  .position = HR_POSITION_ROPE, .rope_pairing = HR_ROPE_HALVES,
                  .mask = HR_MASK_CAUSAL, .activation = HR_ACTIVATION_GELU_TANH, .gated = true},
        .particulars = HR_HF_TIED | HR_HF_GAIN_PLUS_ONE | HR_HF_GELU_IS_TANH | HR_EMBEDDING_SCALED,
        .hf_eps = 1e-6,
        .claims = llama_claims,
        .gguf_names = &gguf_names,
        .hf_names = &llama_names,
    },
    {
        .gguf = "gemma2",
        .hf = {"gemma2"},
        .block = {.norm = HR_NORM_RMS, .norm_place = HR_NORM_AROUND,
                  .position = HR_POSITION_ROPE, .rope_pairing = HR_ROPE_HALVES,
                  .mask = HR_MASK_CAUSAL, .window_period = 2,
                  .activation = HR_ACTIVATION_GELU_TANH, .gated = true,
                  /* what files without these keys mean */
                  .window = 4096, .score_cap = 50, .logit_cap = 30},
        .particulars = HR_HF_TIED | HR_HF_GAIN_PLUS_ONE | HR_EMBEDDING_SCALED,
        .hf_eps = 1e-6,
        .hf_window = 4096,
        .hf_score_width = 256,
        .claims = llama_claims,
        .deep_layers = 46, /* Gemma 2 27B; the other sizes scale by the head's width */
        .gguf_names = &gguf_names,
        .hf_names = &gemma2_names,
    },
    {
        .gguf = "phi2",
        .hf = {"phi"},
        .block = {GPT_BLOCK, .parallel = true, .position = HR_POSITION_ROPE,
                  .rope_pairing = HR_ROPE_HALVES, .activation = HR_ACTIVATION_GELU_TANH},
        .hf_eps = 1e-5,
        .hf_rope_part = 0.5,
        .biases = HR_SLOTS_LAYER | HR_SLOTS_NORMS | HR_BIT(HEAD),
        .claims = phi_claims,
        .gguf_names = &gguf_names,
        .hf_names = &phi_names,
    },
    {
        .gguf = "phi3",
        .hf = {"phi3"},
        .block = {LLAMA_BLOCK},
        .hf_eps = 1e-5,
        .claims = llama_claims,
        .gguf_names = &gguf_names,
        .hf_names = &phi3_names,
    },
    {
        .gguf = "gpt2",
        .hf = {"gpt2"},
        .block = {GPT_BLOCK, .position = HR_POSITION_LEARNED,
                  .activation = HR_ACTIVATION_GELU_TANH},
        .particulars = HR_HF_TIED,
        .hf_eps = 1e-5,
        /* Of q, k and v too in OpenAI's; small ones without them are about. */
        .biases = HR_BIT(OUTPUT) | HR_SLOTS_FFN | HR_SLOTS_NORMS,
        .gguf_names = &gguf_names,
        .hf_names = &gpt2_names,
    },
    {
        .gguf = "gptneox",
        .hf = {"gpt_neox"},
        .block = {GPT_BLOCK, .parallel = true, .position = HR_POSITION_ROPE,
                  .rope_pairing = HR_ROPE_HALVES, .activation = HR_ACTIVATION_GELU_ERF},
        .particulars = HR_PARALLEL_BY_KEY | HR_HF_GROUPED_QKV,
        .hf_eps = 1e-5,
        .hf_rope_part = 0.25,
        .needs = HR_BIT(FFN_NORM),
        .biases = HR_SLOTS_LAYER | HR_SLOTS_NORMS,
        .claims = llama_claims,
        .gguf_names = &gguf_names,
        .hf_names = &gptneox_names,
    },
    {
        .gguf = "gptj",
        .hf = {"gptj"},
        .block = {GPT_BLOCK, .parallel = true, .position = HR_POSITION_ROPE,
                  .rope_pairing = HR_ROPE_PAIRS, .activation = HR_ACTIVATION_GELU_TANH},
        .hf_eps = 1e-5,
        .hf_rope_width = 64,
        .biases = HR_SLOTS_FFN | HR_SLOTS_NORMS | HR_BIT(HEAD),
        .gguf_names = &gguf_names,
        .hf_names = &gptj_names,
    },
    {
        .gguf = "falcon",
        .hf = {"falcon", "RefinedWebModel", "RefinedWeb"},
        .block = {GPT_BLOCK, .parallel = true, .position = HR_POSITION_ROPE,
                  .rope_pairing = HR_ROPE_HALVES, .activation = HR_ACTIVATION_GELU_ERF},
        .particulars = HR_HF_TIED | HR_PARALLEL_BY_KEY | HR_HF_GROUPED_QKV | HR_HF_FALCON_HEADS,
        .hf_eps = 1e-5,
        .hf_context = 2048,
        .biases = HR_SLOTS_NORMS,
        .claims = falcon_claims,
        .gguf_names = &gguf_falcon_names,
        .hf_names = &bloom_names,
    },
    {
        .hf = {"opt"},
        .block = {GPT_BLOCK, .position = HR_POSITION_LEARNED, .position_offset = 2,
                  .activation = HR_ACTIVATION_RELU},
        .particulars = HR_HF_TIED,
        .hf_eps = 1e-5,
        .biases = HR_SLOTS_LAYER | HR_SLOTS_NORMS,
        .claims = opt_claims,
        .hf_names = &opt_names,
    },
    {
        .gguf = "bloom",
        .hf = {"bloom"},
        .block = {GPT_BLOCK, .position = HR_POSITION_ALIBI,
                  .activation = HR_ACTIVATION_GELU_TANH},
        .particulars = HR_HF_TIED | HR_HF_GROUPED_QKV,
        .hf_eps = 1e-5,
        .hf_context = 2048,
        .needs = HR_BIT(EMBEDDING_NORM),
        .biases = HR_SLOTS_LAYER | HR_SLOTS_NORMS,
        .gguf_names = &gguf_names,
        .hf_names = &bloom_names,
    },
    {
        .gguf = "mpt",
        .hf = {"mpt"},
        .block = {GPT_BLOCK, .position = HR_POSITION_ALIBI,
                  .activation = HR_ACTIVATION_GELU_ERF},
        .particulars = HR_HF_TIED,
        .hf_eps = 1e-5,
        .hf_context = 2048,
        .claims = mpt_claims,
        .gguf_names = &gguf_names,
        .hf_names = &mpt_names,
    },
    {
        .gguf = "stablelm",
        .hf = {"stablelm", "stablelm_epoch"},
        .block = {GPT_BLOCK, .position = HR_POSITION_ROPE, .rope_pairing = HR_ROPE_HALVES,
                  .activation = HR_ACTIVATION_SILU, .gated = true},
        .particulars = HR_PARALLEL_BY_TENSOR,
        .hf_eps = 1e-5,
        .hf_rope_part = 0.25,
        .biases = HR_SLOTS_NORMS,
        .claims = stablelm_claims,
        .gguf_names = &gguf_names,
        .hf_names = &llama_names,
    },
    {
        .gguf = "starcoder2",
        .hf = {"starcoder2"},
        .block = {GPT_BLOCK, .position = HR_POSITION_ROPE, .rope_pairing = HR_ROPE_HALVES,
                  .activation = HR_ACTIVATION_GELU_TANH},
        .particulars = HR_HF_TIED,
        .hf_eps = 1e-5,
        .biases = HR_SLOTS_LAYER | HR_SLOTS_NORMS,
        .claims = starcoder2_claims,
        .gguf_names = &gguf_names,
        .hf_names = &starcoder2_names,
    },
    {
        .gguf = "jina-bert-v2",
        .hf = {"bert"},
        .hf_key = "position_embedding_type",
        .hf_word = "alibi",
        .block = {BERT_BLOCK, .position = HR_POSITION_ALIBI, .gated = true},
        .hf_eps = 1e-12,
        .needs = HR_BIT(EMBEDDING_NORM),
        .biases = HR_SLOTS_NORMS,
        .claims = bert_claims,
        .gguf_names = &gguf_names,
        .hf_names = &bert_names,
    },
    {
        .gguf = "bert", /* RoBERTa too, its position table cut to begin with position 0 */
        .hf = {"bert"},
        .block = {BERT_BLOCK, .position = HR_POSITION_LEARNED},
        .hf_eps = 1e-12,
        .needs = HR_BIT(EMBEDDING_NORM),
        .biases = HR_SLOTS_BERT,
        .claims = bert_claims,
        .gguf_names = &gguf_names,
        .hf_names = &bert_names,
    },
    {
        .hf = {"roberta", "xlm-roberta", "camembert"},
        .block = {BERT_BLOCK, .position = HR_POSITION_LEARNED},
        .particulars = HR_HF_POSITION_OFFSET,
        .hf_eps = 1e-12,
        .needs = HR_BIT(EMBEDDING_NORM),
        .biases = HR_SLOTS_BERT,
        .claims = bert_claims,
        .hf_names = &bert_names,
    },
    {
        .hf = {"distilbert"},
        .block = {BERT_BLOCK, .position = HR_POSITION_LEARNED, .pooler = HR_POOLER_RELU},
        .hf_eps = 1e-12,
        .needs = HR_BIT(EMBEDDING_NORM),
        .biases = HR_SLOTS_BERT,
        .hf_names = &distilbert_names,
    },
    {
        .gguf = "nomic-bert",
        .hf = {"nomic_bert"},
        .block = {.norm = HR_NORM_LAYER, .norm_place = HR_NORM_AFTER, .mask = HR_MASK_FULL,
                  .headless = true, .position = HR_POSITION_ROPE, .rope_pairing = HR_ROPE_HALVES,
                  .activation = HR_ACTIVATION_SILU, .gated = true},
        .hf_eps = 1e-12,
        .needs = HR_BIT(EMBEDDING_NORM),
        .biases = HR_SLOTS_NORMS,
        .claims = nomic_claims,
        .gguf_names = &gguf_names,
        .hf_names = &nomic_names,
    },
    {
        /* "Attention Is All You Need" (2017), its decoder side without the
         * encoder; the file may name another position, norm place or activation. */
        .gguf = "transformer",
        .block = {.norm = HR_NORM_LAYER, .norm_place = HR_NORM_AFTER,
                  .position = HR_POSITION_SINUSOIDAL, .mask = HR_MASK_CAUSAL,
                  .activation = HR_ACTIVATION_RELU},
        .particulars = HR_SPELLED_OUT,
        .gguf_names = &gguf_names,
    },
};

enum { ROWS = sizeof table / sizeof *table, HF_NAMES = sizeof table->hf / sizeof *table->hf };

/* The i-th name of a row in files of a kind; NULL when there are no more. */
static const char *form_name(const hr_architecture *row, hr_source_kind kind, size_t i) {
  if (kind == HR_SOURCE_GGUF) return i == 0 ? row->gguf : NULL;
  return i < HF_NAMES ? row->hf[i] : NULL;
}

static bool has_name(const hr_architecture *row, hr_source_kind kind, const char *name,
                     size_t length) {
  const char *known;
  for (size_t i = 0; (known = form_name(row, kind, i)); i++)
    if (strlen(known) == length && memcmp(known, name, length) == 0) return true;
  return false;
}

/* Whether the row's condition on a key of config.json holds. */
static hr_status is_meant(const hr_source *source, const hr_architecture *row, bool *meant,
                          hr_error *err) {
  const char *word;
  size_t length;
  bool found;
  *meant = true;
  if (!row->hf_key || hr_source_get_kind(source) == HR_SOURCE_GGUF) return HR_OK;
  hr_status status = hr_source_string(source, row->hf_key, &word, &length, &found, err);
  if (status == HR_OK)
    *meant = found && strlen(row->hf_word) == length && memcmp(row->hf_word, word, length) == 0;
  return status;
}

static hr_status unknown(const hr_source *source, const char *name, size_t length, hr_error *err) {
  hr_source_kind kind = hr_source_get_kind(source);
  char list[320];
  size_t used = 0;
  for (size_t r = 0; r < ROWS; r++) {
    const char *known;
    if (table[r].hf_key && kind == HR_SOURCE_SAFETENSORS) continue; /* the plain row names it */
    for (size_t i = 0; (known = form_name(&table[r], kind, i)); i++) {
      int n = snprintf(list + used, sizeof list - used, "%s%s", used ? ", " : "", known);
      if (n > 0 && (size_t)n < sizeof list - used) used += (size_t)n;
    }
  }
  return hr_fail(err, HR_ERROR_FILE, "%s: architecture '%.*s' is not known, expected one of: %s",
                 hr_source_path(source), (int)(length > 64 ? 64 : length), name, list);
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
    bool meant;
    if (!has_name(&table[i], kind, name, length)) continue;
    status = is_meant(source, &table[i], &meant, err);
    if (status != HR_OK) return status;
    if (!meant) continue;
    *row = &table[i];
    return HR_OK;
  }
  return unknown(source, name, length, err);
}
