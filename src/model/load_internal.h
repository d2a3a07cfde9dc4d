/* SPDX-License-Identifier: MIT
 * The plan of a model's weights, for load.c, its checks and the writer of packed files. */
#ifndef HR_MODEL_LOAD_INTERNAL_H
#define HR_MODEL_LOAD_INTERNAL_H

#include "model/architecture.h"
#include "model/load.h"

/* Some of a tensor's outputs: count of total, from the first on; in runs of so
 * many, one every step outputs, where run is not 0. */
typedef struct hr_outputs {
  size_t first, count, total, run, step;
} hr_outputs;

/* One thing to put into memory: a matrix or a row of floats. */
struct hr_load_item {
  const hr_tensor *tensor; /* gone when the source is closed */
  const float *numbers;    /* without a tensor: floats that the plan owns */
  hr_outputs outputs;      /* of floats: elements */
  bool transposed;
  bool plus_one;           /* floats are one less in the file */
  hr_matrix *matrix;       /* NULL: floats */
  const float **floats;
  size_t count;            /* floats */
  size_t offset, bytes;    /* in the block */
  const void *packed;      /* where a packed file holds it */
};

/* A plan in the making. */
typedef struct hr_plan {
  const hr_source *source;
  const hr_architecture *row;
  const hr_tensor_names *names;
  const char *prefix; /* of the optional ones, that of this file's tensors */
  size_t prefix_length;
  hr_weights weights;
  hr_loaded *loaded;
  hr_error *err;
  size_t capacity; /* of loaded->items */
  size_t kept_f16; /* matrices that could not be int8 */
  bool spare_head; /* a head of its own in the file, but config.json says tied */
  char refused[128]; /* a wanted tensor that is there, in a type that can't be read */
} hr_plan;

static inline bool hr_plan_is_safetensors(const hr_plan *p) {
  return hr_source_get_kind(p->source) == HR_SOURCE_SAFETENSORS;
}

/* The next of the alternatives in a list separated by '|'; false at its end. */
bool hr_next_word(const char **list, const char **word, size_t *length);
/* The first of the slot's names that is there, each with the optional prefixes
 * tried first. name is then what was found, or the first that was looked for. */
const hr_tensor *hr_plan_find(hr_plan *p, hr_tensor_slot slot, uint32_t layer, const char *suffix,
                              char *name, size_t capacity);
/* The weight of a slot, or the bias that lies beside it; of a norm, its gain or its shift, which
 * old files call gamma and beta. */
const hr_tensor *hr_plan_find_part(hr_plan *p, hr_tensor_slot slot, uint32_t layer, bool bias,
                                   char *name, size_t capacity);
/* The sentence for a tensor that is not there, or is of a type that can't be read. */
hr_status hr_plan_no_tensor(const hr_plan *p, const char *name);

/* What the row and config.json say of tensors must be true, and all layers alike. */
hr_status hr_plan_check_needs(hr_plan *p);
/* Fails for a tensor that no act of the block reads, unless it is known to say nothing new. */
hr_status hr_plan_refuse_unused(hr_plan *p);

/* How many bytes of the mapped file each of so many packing threads may have in memory before
 * it gives them back; page is the system's, in bytes. */
size_t hr_load_held_bytes(unsigned threads, size_t page);

/* Packs the planned items first..first + count to block, where the first of
 * them begins. */
hr_status hr_load_items(const hr_source *source, const hr_loaded *loaded, size_t first,
                        size_t count, void *block, const hr_kernels *kernels,
                        const hr_load_options *options, hr_error *err);

#endif
