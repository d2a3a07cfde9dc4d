/* SPDX-License-Identifier: MIT
 * Models with the shape of a real one and weights drawn from a seed: their speed
 * is that of the real one, and nobody has to fetch a file. */
#ifndef HR_CLI_SYNTHETIC_H
#define HR_CLI_SYNTHETIC_H

#include <headrow/headrow.h>

#include "quant/formats.h"

typedef struct cli_shape {
  const char *family; /* "llama", "gpt2" or "bert" */
  char name[104];     /* as it was given */
  uint32_t width, layers, heads, kv_heads, ffn_width, vocab, context;
  bool tied; /* the head is the embedding's matrix */
  hr_format format; /* of the matrices */
} cli_shape;

/* Reads SHAPE:TYPE, where SHAPE is a name, a list such as dim=64,layers=2, or a name with
 * such a list behind it of what is changed. */
hr_status cli_shape_parse(const char *text, cli_shape *shape, hr_error *err);

/* Makes one layer of it, and the least vocabulary; the name says so. */
void cli_shape_to_block(cli_shape *shape);

/* The names and the keys of a list, for messages and the help. */
#define CLI_SHAPE_NAMES "smollm2-135m, gpt2-124m, tinyllama-1.1b, llama-7b, bert-base, minilm-l6"
#define CLI_SHAPE_KEYS "dim, layers, heads, kv, ffn, vocab, ctx, tied"

/* A GGUF file in memory; the same bytes for the same shape on every machine. */
typedef struct cli_image {
  void *data;
  size_t bytes;
} cli_image;

/* Bytes that the image of a shape will have. */
hr_status cli_image_bytes(const cli_shape *shape, size_t *bytes, hr_error *err);
/* progress may be NULL. cli_image_free frees it, also after a failure. */
hr_status cli_image_make(const cli_shape *shape, hr_progress_fn *progress, void *progress_data,
                         cli_image *image, hr_error *err);
void cli_image_free(cli_image *image);

#endif
