/* SPDX-License-Identifier: MIT
 * The architecture table: what each family of models is made of, and what its
 * tensors are called. How to add a row: docs/architectures.md. */
#ifndef HR_MODEL_ARCHITECTURE_H
#define HR_MODEL_ARCHITECTURE_H

#include "block/description.h"
#include "model/source.h"

/* Every tensor that a Transformer may have. Those of a layer have %u for the
 * layer's number in their name; ".weight" and ".bias" are added when read. */
typedef enum hr_tensor_slot {
  HR_TENSOR_TOKENS,
  HR_TENSOR_POSITIONS,
  HR_TENSOR_TYPES,
  HR_TENSOR_ROPE_FACTORS,
  HR_TENSOR_ROPE_LONG_FACTORS,
  HR_TENSOR_EMBEDDING_NORM,
  HR_TENSOR_FINAL_NORM,
  HR_TENSOR_HEAD,
  HR_TENSOR_POOLER,
  HR_TENSOR_CLASSIFIER,
  HR_TENSOR_ATTENTION_NORM, /* from here on, one a layer */
  HR_TENSOR_QUERY,
  HR_TENSOR_KEY,
  HR_TENSOR_VALUE,
  HR_TENSOR_QKV,            /* the three in one, queries first; or group by group */
  HR_TENSOR_QUERY_NORM,
  HR_TENSOR_KEY_NORM,
  HR_TENSOR_OUTPUT,
  HR_TENSOR_ATTENTION_POST_NORM,
  HR_TENSOR_FFN_NORM,
  HR_TENSOR_GATE,
  HR_TENSOR_UP,
  HR_TENSOR_GATE_UP,        /* the two in one, gate first */
  HR_TENSOR_DOWN,
  HR_TENSOR_FFN_POST_NORM,
  HR_TENSOR_SLOTS
} hr_tensor_slot;

/* Sets of slots. */
#define HR_BIT(name) (UINT64_C(1) << HR_TENSOR_##name)
#define HR_SLOTS_QKV (HR_BIT(QUERY) | HR_BIT(KEY) | HR_BIT(VALUE) | HR_BIT(QKV))
#define HR_SLOTS_FFN (HR_BIT(GATE) | HR_BIT(UP) | HR_BIT(GATE_UP) | HR_BIT(DOWN))
#define HR_SLOTS_LAYER (HR_SLOTS_QKV | HR_BIT(OUTPUT) | HR_SLOTS_FFN)
#define HR_SLOTS_NORMS                                                                     \
  (HR_BIT(EMBEDDING_NORM) | HR_BIT(FINAL_NORM) | HR_BIT(ATTENTION_NORM) |                  \
   HR_BIT(ATTENTION_POST_NORM) | HR_BIT(FFN_NORM) | HR_BIT(FFN_POST_NORM))

/* Names by slot; NULL: files of this kind never have it. '|' separates
 * alternatives, the first that is there counts. */
typedef struct hr_tensor_names {
  const char *name[HR_TENSOR_SLOTS];
  const char *prefix;  /* may stand before every name but the head's, or be missing */
  const char *ignored; /* beginnings of tensors that no task done here needs, behind a prefix:
                          heads that fill masks, a pooler beside that of the classifier */
  bool transposed;     /* matrices of the layers are stored [inputs][outputs] */
} hr_tensor_names;

/* What is particular about a family's files. */
enum {
  HR_SPELLED_OUT = 1,          /* they name position, norm place and activation themselves */
  HR_GGUF_PAIRS = 2,           /* GGUF holds rows of q and k in an order for RoPE in pairs */
  HR_HF_GAIN_PLUS_ONE = 4,     /* safetensors hold the norms' gain - 1 */
  HR_HF_GROUPED_QKV = 8,       /* fused q, k, v: for each key/value head its queries, key, value */
  HR_HF_GELU_IS_TANH = 16,     /* config.json says gelu and means the tanh form */
  HR_HF_WINDOW_IF_ASKED = 32,  /* the window counts only with use_sliding_window */
  HR_HF_POSITION_OFFSET = 64,  /* position tables begin behind the padding token's row */
  HR_HF_FALCON_HEADS = 128,    /* multi_query and new_decoder_architecture say how many k/v heads */
  HR_EMBEDDING_SCALED = 256,   /* by the root of the width */
  HR_PARALLEL_BY_KEY = 512,    /* use_parallel_residual or parallel_attn */
  HR_PARALLEL_BY_TENSOR = 1024, /* parallel when the layers have no norm of the feed-forward */
  HR_HF_TIED = 2048            /* the head is the embedding unless config.json says otherwise */
};

/* What the value of a key says about tensors. */
typedef enum hr_claim_kind {
  HR_CLAIM_YES, /* true: they are there; false: they are not */
  HR_CLAIM_NO,  /* the other way round */
  HR_CLAIM_UNLESS, /* false: they are there; true says nothing of them */
  HR_CLAIM_ROWS /* they have so many rows; 0: they are not there */
} hr_claim_kind;

/* A key of the file and what it says. Where file and claim differ, the file is refused. */
typedef struct hr_claim {
  const char *gguf, *hf; /* NULL: not in this form */
  hr_claim_kind kind;
  uint64_t weights; /* slots that it speaks of */
  uint64_t biases;  /* slots of which it speaks of the biases, or a norm's shift */
} hr_claim;

/* A row of the table. */
typedef struct hr_architecture {
  const char *gguf;  /* general.architecture; NULL: not in this form */
  const char *hf[3]; /* model_type of config.json; none: not in this form */
  const char *hf_key, *hf_word; /* and this key of config.json must have this value */
  hr_description block;         /* the variants; sizes come from the file */
  unsigned particulars;         /* of the enum above */
  double hf_eps;         /* of the norms, where config.json leaves it to the library's default */
  double hf_rope_part;   /* share of a head's columns that turn, likewise; 0: all */
  uint32_t hf_rope_width; /* or the number of them, likewise; 0: by the share */
  uint32_t hf_context;   /* positions, likewise; 0: config.json must tell */
  uint32_t hf_window;    /* likewise; 0: none */
  double hf_score_width; /* scores are divided by its root, likewise; 0: the head's width */
  uint64_t needs;        /* slots that every file has, beside those the block can't be without */
  uint64_t biases;       /* slots that have a bias, or a norm's shift, where they are there */
  const hr_claim *claims; /* what keys say about that, up to one without a name; may be NULL */
  uint32_t deep_layers;  /* of the sibling whose scores GGUF scales by width / heads; 0: none */
  const hr_tensor_names *gguf_names, *hf_names;
} hr_architecture;

/* Finds the row for a file. HR_ERROR_FILE names an unknown architecture and
 * lists the known ones. */
hr_status hr_architecture_find(const hr_source *source, const hr_architecture **row, hr_error *err);

/* Fills a description from a row and the file's values. Every value is checked;
 * one that asks for something we lack is refused by name. */
hr_status hr_describe(const hr_source *source, const hr_architecture *row, hr_description *d,
                      hr_error *err);

#endif
