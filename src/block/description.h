/* SPDX-License-Identifier: MIT
 * What a Transformer is made of, as data. The forward pass reads this and asks
 * nothing else about a model. */
#ifndef HR_BLOCK_DESCRIPTION_H
#define HR_BLOCK_DESCRIPTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <headrow/headrow.h>

#include "kernels/layout.h"

typedef enum hr_norm_kind { HR_NORM_RMS, HR_NORM_LAYER } hr_norm_kind;

/* Where a sub-layer f has its norm. */
typedef enum hr_norm_place {
  HR_NORM_BEFORE, /* x + f(norm(x)): GPT-2 on */
  HR_NORM_AFTER,  /* norm(x + f(x)): the 2017 block, BERT */
  HR_NORM_AROUND  /* x + norm'(f(norm(x))): Gemma 2 */
} hr_norm_place;

typedef enum hr_position_kind {
  HR_POSITION_NONE,
  HR_POSITION_SINUSOIDAL, /* added to the embedding: sin in even columns, cos in odd ones */
  HR_POSITION_LEARNED,    /* a table added to the embedding */
  HR_POSITION_ROPE,       /* rotates queries and keys */
  HR_POSITION_ALIBI       /* adds -slope * distance to the scores */
} hr_position_kind;

typedef enum hr_rope_pairing {
  HR_ROPE_PAIRS, /* columns 2i and 2i + 1 turn together */
  HR_ROPE_HALVES /* columns i and i + width / 2 */
} hr_rope_pairing;

/* How a model trained on short texts turns by less on long ones. */
typedef enum hr_rope_scaling_kind {
  HR_ROPE_SCALING_NONE,
  HR_ROPE_SCALING_LINEAR, /* all frequencies divided by the factor */
  HR_ROPE_SCALING_LLAMA3, /* low frequencies divided, high ones kept, a ramp between */
  HR_ROPE_SCALING_YARN,   /* the same with a ramp over the pairs, and larger scores */
  HR_ROPE_SCALING_LONG    /* the file's own factors, one set for short, one for long contexts */
} hr_rope_scaling_kind;

typedef struct hr_rope_scaling {
  hr_rope_scaling_kind kind;
  double factor;
  double original_context; /* positions before the stretching */
  double low, high;        /* turns over these that bound the ramp; YaRN's beta_slow, beta_fast */
  double magnitude;        /* cos and sin are multiplied by it; 0: by what the kind says */
} hr_rope_scaling;

typedef enum hr_mask { HR_MASK_CAUSAL, HR_MASK_FULL } hr_mask;

typedef enum hr_activation {
  HR_ACTIVATION_RELU,
  HR_ACTIVATION_RELU2,
  HR_ACTIVATION_SILU,
  HR_ACTIVATION_GELU_ERF,
  HR_ACTIVATION_GELU_TANH,
  HR_ACTIVATION_GELU_QUICK
} hr_activation;

/* The function behind the pooler, a matrix on the first row of a text. */
typedef enum hr_pooler { HR_POOLER_TANH, HR_POOLER_RELU } hr_pooler;

typedef struct hr_description {
  const char *family;     /* name of the architecture, for people */
  uint32_t layers;
  uint32_t width;         /* of the embedding and the residual stream */
  uint32_t heads;         /* query heads */
  uint32_t kv_heads;      /* key/value heads; heads is a multiple of it */
  uint32_t head_width;
  uint32_t ffn_width;
  uint32_t vocab;
  uint32_t context;       /* positions the model was trained for */
  uint32_t text_limit;    /* tokens of a text that is to become one vector; 0: as context */

  hr_norm_kind norm;
  hr_norm_place norm_place;
  float norm_eps;
  bool parallel;          /* attention and feed-forward read the same x */

  hr_position_kind position;
  uint32_t position_offset; /* added to the row number of a learned table */
  hr_rope_pairing rope_pairing;
  uint32_t rope_width;    /* columns of a head that turn; even, at most head_width */
  double rope_base;
  hr_rope_scaling rope_scaling;
  double alibi_steepness; /* slopes are 2^(-steepness i / heads); 0: 8, as published */

  hr_mask mask;
  uint32_t window;        /* keys a query sees, itself included; 0: all */
  uint32_t window_from;   /* first layer with the window */
  uint32_t window_period; /* of so many layers the last one has no window; 0: all have it */

  hr_activation activation;
  bool gated;             /* down(act(gate(x)) * up(x)) instead of down(act(up(x))) */

  float embedding_scale;  /* 1: none */
  float score_scale;      /* usually 1 / sqrt(head_width) */
  float score_cap;        /* cap * tanh(score / cap); 0: none */
  float logit_scale;      /* 1: none */
  float logit_cap;        /* 0: none */

  bool headless;          /* hidden states only: no language-model head */
  hr_pooling pooling;     /* the model's own */
  hr_pooler pooler;       /* what follows the pooler's matrix, where there is one */
  uint32_t types;         /* kinds of segment with an embedding of their own; 0: none */
  uint32_t classes;       /* scores of the classifier; 0: none */
} hr_description;

/* The window of one layer; 0: it sees all. */
static inline uint32_t hr_layer_window(const hr_description *d, uint32_t layer) {
  bool open = layer < d->window_from ||
              (d->window_period && layer % d->window_period == d->window_period - 1);
  return open ? 0 : d->window;
}

/* A weight matrix: n outputs of k columns, in panels. */
typedef struct hr_matrix {
  hr_panel_type type;
  uint32_t n, k;
  const void *panels; /* NULL: the matrix is absent */
  const float *bias;  /* [n] or NULL */
} hr_matrix;

/* Gain and shift of a norm; without a gain the norm is absent. */
typedef struct hr_norm_weights {
  const float *gain;
  const float *shift;
} hr_norm_weights;

typedef struct hr_layer {
  hr_norm_weights attention_norm;      /* before attention */
  hr_norm_weights attention_post_norm; /* after it: of the sum, or of the sub-layer alone */
  hr_norm_weights ffn_norm;            /* absent in a parallel block with one norm */
  hr_norm_weights ffn_post_norm;
  hr_norm_weights query_norm, key_norm; /* per head, [head_width] */
  hr_matrix query, key, value;         /* heads * head_width or kv_heads * head_width outputs */
  hr_matrix output;                    /* merges the heads */
  hr_matrix gate, up, down;
} hr_layer;

typedef struct hr_transformer {
  hr_description description;
  hr_matrix token_embedding;       /* a row a token, as a matrix of vocab outputs */
  const float *position_embedding; /* [positions][width], LEARNED only */
  size_t position_rows;
  const float *type_embedding;     /* [types][width], or NULL */
  const float *rope_factors;       /* [rope_width / 2] frequencies are divided by, or NULL */
  const float *rope_long_factors;  /* the same for contexts beyond the original one, or NULL */
  hr_norm_weights embedding_norm;
  hr_norm_weights final_norm;
  hr_matrix head;                  /* vocab outputs; may share the token embedding's panels */
  hr_matrix pooler;                /* width outputs, of the first row of a text; may be absent */
  hr_matrix classifier;            /* classes outputs; may be absent */
  hr_layer *layer;                 /* [layers] */
} hr_transformer;

#endif
