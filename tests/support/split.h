/* SPDX-License-Identifier: MIT
 * Runs of a model by several threads and in several pieces, for test_split and,
 * where Criterion can't run, split_driver. */
#ifndef HR_TESTS_SPLIT_H
#define HR_TESTS_SPLIT_H

#include <headrow/headrow.h>

/* Heads, widths and panels that few numbers of threads divide. */
#define SPLIT_UNEVEN "dim=192,layers=2,heads=6,kv=3,ffn=416,vocab=500,ctx=2048"

/* Inner rows of several pieces, the last a short one; heads that are quantized at once. */
#define SPLIT_PIECES "dim=128,layers=2,heads=4,kv=2,ffn=1120,vocab=260,ctx=512"

#define SPLIT_SMALL "dim=96,layers=2,heads=6,kv=3,ffn=160,vocab=260,ctx=512"

/* A synthetic model, "SHAPE:TYPE"; NULL with an error. */
hr_model *split_model(const char *shape, hr_error *err);

hr_session *split_session(const hr_model *model, unsigned threads, size_t chunk, size_t context,
                          hr_error *err);

/* Ids of the model's vocabulary, always the same. */
void split_ids(const hr_model *model, int32_t *ids, size_t count);

/* Digest of all logits of a prompt from position 0, and of `single` more tokens one at
 * a time. Work is stolen at random by seed; 0: as it comes. 0 with an error. */
uint64_t split_digest(hr_session *session, const int32_t *ids, size_t prompt, size_t single,
                      uint32_t seed, hr_error *err);

/* What a model is asked to give equal bits for. */
typedef struct split_plan {
  const unsigned *threads;
  size_t thread_counts;
  const size_t *chunks;
  size_t chunk_counts;
  size_t prompt, single;
  uint32_t repeats; /* of each count of threads with each chunk */
} split_plan;

/* Every count of threads with every chunk, once with work stolen as it comes, then by
 * force at random, beside one thread alone, whose digest it gives. Counts what differs or
 * fails; tell is called with a line for each. */
typedef void split_tell_fn(const char *line);
size_t split_check(const hr_model *model, const split_plan *plan, split_tell_fn *tell,
                   uint64_t *digest);

#endif
