/* SPDX-License-Identifier: MIT
 * Packed files: a model's weights as panels, used where they lie in the mapped
 * file. The container is GGUF; docs/packed.md describes what is in it. */
#ifndef HR_MODEL_PACKED_H
#define HR_MODEL_PACKED_H

#include "model/load.h"

/* Where a part begins, in the file and in memory; the first one begins at HR_SECTION. */
#define HR_PART_ALIGNMENT ((size_t)64)
#define HR_SECTION_ALIGNMENT ((size_t)2 << 20)

/* What a packed file holds under a name: panels of a matrix, or a row of floats. */
typedef struct hr_packed_part {
  bool panels;
  hr_panel_type type;
  size_t rows, columns; /* rows is 1 for floats */
  size_t bytes;
  const void *data;
} hr_packed_part;

bool hr_source_is_packed(const hr_source *source);
/* The choice of types that a packed file was made with; NATIVE for other files. */
hr_weights hr_packed_weights(const hr_source *source);
/* False when there is none of that name. */
bool hr_packed_find(const hr_source *source, const char *name, hr_packed_part *part);
/* The name under which an item of a plan is stored: that of its tensor, with
 * the outputs in brackets when it is not all of them: first, how many, and run and
 * step where they have some. The item has a tensor. */
#define HR_PART_NAME_BYTES 320
void hr_part_name(char name[HR_PART_NAME_BYTES], const hr_load_item *item);

/* "Q8_0" and so on. */
const char *hr_panel_name(hr_panel_type type);
/* Types of tensors in GGUF that stand for panels: their numbers, and back. */
uint32_t hr_panel_gguf_type(hr_panel_type type);
bool hr_panel_from_gguf(uint32_t number, hr_panel_type *type);

/* --- Writing ----------------------------------------------------------------- */

/* A file to be: its first bytes, up to the weights, and its length. */
typedef struct hr_packed_file {
  unsigned char *header;
  size_t header_bytes; /* a multiple of 2 MiB */
  size_t bytes;
} hr_packed_file;

/* Takes bytes that follow those before; false when that failed. */
typedef bool hr_sink_fn(void *arg, const void *data, size_t bytes);

/* Describes what was planned for a source with this choice of types. Fails for a
 * source that is packed already. hr_packed_file_finish frees it, also then. */
hr_status hr_packed_file_init(hr_packed_file *file, const hr_source *source, hr_weights weights,
                              const hr_loaded *planned, hr_error *err);
/* Packs the weights, one matrix in memory at a time, and hands header and
 * weights to the sink. When the sink fails, HR_ERROR_CANCELLED. */
hr_status hr_packed_file_write(const hr_packed_file *file, const hr_source *source,
                               const hr_loaded *planned, const hr_kernels *kernels,
                               const hr_load_options *options, hr_sink_fn *sink, void *arg,
                               hr_error *err);
void hr_packed_file_finish(hr_packed_file *file);

#endif
