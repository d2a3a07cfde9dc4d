/* SPDX-License-Identifier: MIT
 * A model file as named tensors and named values: the one interface that GGUF
 * and safetensors are read through. */
#ifndef HR_MODEL_SOURCE_H
#define HR_MODEL_SOURCE_H

#include "base/error.h"
#include "quant/formats.h"

typedef struct hr_source hr_source;

#define HR_TENSOR_DIMS 4

/* One tensor of the file. Dimensions are outermost first, as in PyTorch: a
 * matrix is [rows = outputs][columns = inputs] whatever the file calls them. */
typedef struct hr_tensor {
  const char *name;
  hr_format format;
  unsigned dims;
  size_t dim[HR_TENSOR_DIMS];
  const void *data; /* inside the mapped file, aligned to the format's element or not at all;
                       NULL in a packed file, which holds the panels instead (model/packed.h) */
  size_t bytes;
} hr_tensor;

typedef enum hr_source_kind { HR_SOURCE_GGUF, HR_SOURCE_SAFETENSORS } hr_source_kind;

/* Opens a GGUF file (by its magic), a .safetensors file with config.json (or
 * NAME_config.json for NAME.safetensors) beside it, or a folder. Of a model in
 * several files, any one of them or the index stands for all. The caller owns
 * the result. NULL with a sentence. */
hr_source *hr_source_open(const char *path, hr_error *err);
/* A GGUF file in memory that outlives the source; name is used in messages. */
hr_source *hr_source_open_memory(const void *data, size_t bytes, const char *name, hr_error *err);
/* The same where only the vocabulary is wanted: also a tokenizer.json, a SentencePiece
 * file (.model), or a folder with one of the two under its usual name, without weights or
 * with some that can't be read. */
hr_source *hr_source_open_vocabulary(const char *path, hr_error *err);
/* NULL is allowed. */
void hr_source_close(hr_source *source);

hr_source_kind hr_source_get_kind(const hr_source *source);
const char *hr_source_path(const hr_source *source);

size_t hr_source_tensor_count(const hr_source *source);
const hr_tensor *hr_source_tensor_at(const hr_source *source, size_t index);
/* True when a vocabulary is all there is: there is not even a tensor that can't be read. */
bool hr_source_is_vocabulary(const hr_source *source);
/* The index of a tensor that the source gave. */
size_t hr_source_index_of(const hr_source *source, const hr_tensor *tensor);
/* NULL when there is none of that name. */
const hr_tensor *hr_source_find_tensor(const hr_source *source, const char *name);
/* The same; NULL with a sentence when there is none, or one of a type that can't be read. */
const hr_tensor *hr_source_need_tensor(const hr_source *source, const char *name, hr_error *err);
/* Tensors of types such as I64 are not counted and not found: files carry masks
 * and counters that nobody needs. This gives such a tensor's type, else NULL. */
const char *hr_source_refused_type(const hr_source *source, const char *name);
/* Tells the system that pages in the file are not needed any more: those with some of
 * the bytes from offset of a tensor's data. Any thread may call it; who still reads from
 * such a page gets it back. */
void hr_source_drop(const hr_source *source, const hr_tensor *tensor, size_t offset, size_t bytes);

/* --- Values --------------------------------------------------------------
 * GGUF: key-value pairs by their full key. Safetensors: members of config.json,
 * nested ones by "outer.inner". Each getter: HR_OK and *found false when the
 * key is absent (or null); HR_ERROR_FILE naming file, key, found and expected
 * type when it has another type or does not fit, or when outer is no object. */
hr_status hr_source_u64(const hr_source *source, const char *key, uint64_t *value, bool *found,
                        hr_error *err);
hr_status hr_source_i64(const hr_source *source, const char *key, int64_t *value, bool *found,
                        hr_error *err);
hr_status hr_source_f64(const hr_source *source, const char *key, double *value, bool *found,
                        hr_error *err);
hr_status hr_source_bool(const hr_source *source, const char *key, bool *value, bool *found,
                         hr_error *err);
/* The bytes stay owned by the source; not NUL-terminated in general. */
hr_status hr_source_string(const hr_source *source, const char *key, const char **text,
                           size_t *length, bool *found, hr_error *err);
/* True when the key is there and null, which can mean another thing than its absence. */
bool hr_source_is_null(const hr_source *source, const char *key);
/* True when the key is there and holds an array: some values are one number, or one a layer. */
bool hr_source_is_array(const hr_source *source, const char *key);
/* Arrays. *count is the number of elements. */
hr_status hr_source_array_length(const hr_source *source, const char *key, size_t *count,
                                 bool *found, hr_error *err);
/* Numbers of any width converted and range-checked into out[count]; count must be the array's. */
hr_status hr_source_array_i64(const hr_source *source, const char *key, int64_t *out, size_t count,
                              hr_error *err);
hr_status hr_source_array_f64(const hr_source *source, const char *key, double *out, size_t count,
                              hr_error *err);
/* Strings: text[i] and length[i] for count elements. */
hr_status hr_source_array_strings(const hr_source *source, const char *key, const char **text,
                                  size_t *length, size_t count, hr_error *err);

/* The names of an object's members, in their order, until the function gives a status
 * other than HR_OK, which is then the result. Members that are null are left out. */
typedef hr_status hr_source_member_fn(void *arg, const char *name, hr_error *err);
hr_status hr_source_members(const hr_source *source, const char *key, hr_source_member_fn *visit,
                            void *arg, bool *found, hr_error *err);

/* Tensors that are not counted because of their type. */
size_t hr_source_refused_count(const hr_source *source);
/* Their names, until the function gives a status other than HR_OK, which is then the result. */
hr_status hr_source_visit_refused(const hr_source *source, hr_source_member_fn *visit, void *arg,
                                  hr_error *err);

/* Visits every key in file order with a short form of its value, for `info -v`. */
typedef void hr_source_visit_fn(void *arg, const char *key, const char *type, const char *value);
void hr_source_visit_values(const hr_source *source, hr_source_visit_fn *visit, void *arg);

#endif
