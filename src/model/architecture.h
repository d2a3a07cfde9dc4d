/* SPDX-License-Identifier: MIT
 * The architecture table: what each family of models is made of, and what its
 * tensors are called. */
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
  HR_TENSOR_EMBEDDING_NORM,
  HR_TENSOR_FINAL_NORM,
  HR_TENSOR_HEAD,
  HR_TENSOR_ATTENTION_NORM, /* from here on, one a layer */
  HR_TENSOR_QUERY,
  HR_TENSOR_KEY,
  HR_TENSOR_VALUE,
  HR_TENSOR_QKV,            /* the three in one, queries first */
  HR_TENSOR_QUERY_NORM,
  HR_TENSOR_KEY_NORM,
  HR_TENSOR_OUTPUT,
  HR_TENSOR_ATTENTION_POST_NORM,
  HR_TENSOR_FFN_NORM,
  HR_TENSOR_GATE,
  HR_TENSOR_UP,
  HR_TENSOR_DOWN,
  HR_TENSOR_FFN_POST_NORM,
  HR_TENSOR_SLOTS
} hr_tensor_slot;

/* Names by slot; NULL: files of this kind never have it. */
typedef struct hr_tensor_names {
  const char *name[HR_TENSOR_SLOTS];
  const char *prefix; /* may stand before every name but the head's, or be missing */
  bool transposed;    /* matrices of the layers are stored [inputs][outputs] */
} hr_tensor_names;

/* A row of the table. */
typedef struct hr_architecture {
  const char *gguf; /* general.architecture; NULL: not in this form */
  const char *hf;   /* model_type of config.json; NULL: not in this form */
  hr_description block;          /* the variants; sizes come from the file */
  hr_rope_pairing hf_pairing;    /* RoPE pairs in the safetensors form */
  double hf_eps; /* of the norms, where config.json leaves it to the library's default */
  bool spelled_out;              /* the file names position, norm place and activation itself */
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
