/* SPDX-License-Identifier: MIT
 * What the files of a source share with the readers of the file kinds. */
#ifndef HR_MODEL_SOURCE_INTERNAL_H
#define HR_MODEL_SOURCE_INTERNAL_H

#include "base/file_map.h"
#include "base/memory.h"
#include "kernels/layout.h"
#include "model/source.h"

/* --- Values ---------------------------------------------------------------- */

typedef enum hr_value_kind {
  HR_VALUE_UINT,
  HR_VALUE_INT,
  HR_VALUE_REAL,
  HR_VALUE_BOOL,
  HR_VALUE_STRING,
  HR_VALUE_ARRAY,
  HR_VALUE_OBJECT,
  HR_VALUE_NO_OBJECT, /* what should hold the key is something else */
  HR_VALUE_OTHER
} hr_value_kind;

/* A value as a reader hands it out. In an array, the last three members are
 * the reader's place in it, moved on by ops->next. */
typedef struct hr_value {
  hr_value_kind kind;
  const char *type; /* the file's own word for it: "uint32", "array of string" */
  uint64_t uint;
  int64_t sint;
  double real;
  bool truth;
  const char *text;
  size_t length; /* bytes of text, or elements of an array or object */
  const void *cursor;
  size_t at;
  uint32_t element;
  size_t outer; /* HR_VALUE_NO_OBJECT: bytes of the key that name it; the type is its own */
} hr_value;

typedef struct hr_source_ops {
  /* false: no such key, or null */
  bool (*lookup)(const hr_source *source, const char *key, hr_value *value);
  /* The key is there and null; NULL: the files have no null. */
  bool (*is_null)(const hr_source *source, const char *key);
  /* The next element of an array; called at most array->length times. */
  void (*next)(hr_value *array, hr_value *element);
  void (*visit)(const hr_source *source, hr_source_visit_fn *visit, void *arg);
  /* The members of an object that are not null; NULL: the files have no objects. */
  hr_status (*members)(const hr_value *object, hr_source_member_fn *visit, void *arg,
                       hr_error *err);
  /* Frees source->values. */
  void (*finish)(hr_source *source);
} hr_source_ops;

/* --- Sources --------------------------------------------------------------- */

typedef struct hr_source_file {
  hr_file_map map;
  char *path;
} hr_source_file;

/* A tensor of the file, whether it can be read or not. */
typedef struct hr_source_entry {
  hr_tensor tensor;    /* first: an entry is found back from its tensor */
  const char *refused; /* why it can't be read ("I64"); NULL: it can */
  bool is_panels;      /* of a packed file: bytes of the tensor are those of panels */
  hr_panel_type panels;
  size_t file;         /* index in source->files */
  uint64_t offset;     /* GGUF: from the start of the data, before that is known */
} hr_source_entry;

typedef struct hr_source_names hr_source_names;
typedef struct hr_packed hr_packed;

struct hr_source {
  hr_source_kind kind;
  const hr_source_ops *ops;
  void *values;        /* the reader's own */
  char *path;          /* as given */
  const char *values_path; /* the file that values come from, for messages */
  hr_source_file *files;
  size_t file_count;
  hr_source_entry *entries;
  size_t entry_count, entry_capacity;
  uint32_t *by_name;   /* entries in order of name */
  uint32_t *readable;  /* entries that are no refused ones, in file order */
  size_t readable_count;
  hr_source_names *names; /* where names are kept */
  hr_packed *packed;      /* of a packed file, else NULL */
  char *tokenizer;        /* path of a tokenizer's own file, which is all that is read; else NULL */
  bool has_weights;       /* which were passed over, for the vocabulary's sake */
};

/* Counts above these are taken for damage. */
#define HR_SOURCE_MAX_TENSORS ((size_t)1 << 18)
#define HR_SOURCE_MAX_VALUES ((size_t)1 << 16)

/* Takes over the map, on failure too. *index may be NULL. */
hr_status hr_source_add_file(hr_source *source, hr_file_map *map, const char *path, size_t *index,
                             hr_error *err);
/* Closes all files and forgets their tensors. */
void hr_source_remove_files(hr_source *source);
hr_status hr_source_reserve_entries(hr_source *source, size_t count, hr_error *err);
hr_status hr_source_add_entry(hr_source *source, const hr_source_entry *entry, hr_error *err);
/* Keeps a copy of a name for the life of the source. */
const char *hr_source_keep_name(hr_source *source, const char *name, size_t length, hr_error *err);
/* After the last entry: makes names findable, refuses names given twice and data that overlap. */
hr_status hr_source_index_entries(hr_source *source, hr_error *err);

/* An entry by name among count, of which by_name is the order; NULL: there is none. */
const hr_source_entry *hr_source_search(const hr_source_entry *entries, const uint32_t *by_name,
                                        size_t count, const char *name);
/* Refused ones too. Only after hr_source_index_entries. */
const hr_source_entry *hr_source_find_entry(const hr_source *source, const char *name);

/* Sorts indices in place; O(n log n) for any input, and without memory. */
typedef int hr_source_order_fn(const void *base, uint32_t a, uint32_t b);
void hr_source_sort(uint32_t *index, size_t count, hr_source_order_fn *order, const void *base);

/* Readers: fill a fresh source; err is not NULL. GGUF is in source->files[0]. */
hr_status hr_gguf_read(hr_source *source, hr_error *err);
/* Each value of a GGUF file with the bytes that key, type and value take in it. */
typedef void hr_gguf_raw_fn(void *arg, const char *key, const void *bytes, size_t count);
void hr_gguf_visit_raw(const hr_source *source, hr_gguf_raw_fn *visit, void *arg);
/* After the GGUF reader: makes the source that of the model packed, if the file is a packed one. */
hr_status hr_packed_read(hr_source *source, hr_error *err);
void hr_packed_free(hr_packed *packed);
/* One .safetensors file at path, already mapped (taken over, on failure too). */
hr_status hr_safetensors_read_file(hr_source *source, const char *path, hr_file_map *map,
                                   hr_error *err);
/* Files named by an index at path. */
hr_status hr_safetensors_read_index(hr_source *source, const char *path, hr_error *err);

/* A tokenizer's own file at path, as a source without tensors: the files beside it are
 * found as those of a model are. */
hr_status hr_safetensors_read_tokenizer(hr_source *source, const char *path, hr_error *err);

/* A file that belongs to a safetensors model, such as "tokenizer.json": from beside
 * config.json (for NAME_config.json it is NAME_tokenizer.json), or from within a packed
 * file. *found is false when there is none. The caller closes the map, before the source. */
hr_status hr_source_open_beside(const hr_source *source, const char *name, hr_file_map *map,
                                bool *found, hr_error *err);
/* Among the files within a packed one; false when it is not there. */
bool hr_packed_companion(const hr_source *source, const char *name, hr_file_map *map);
/* Makes the values of a packed file those of the config.json in it. */
hr_status hr_safetensors_read_packed(hr_source *source, hr_error *err);

/* Fails when the bytes are those of something often found under a model's name:
 * a web page, a Git LFS pointer, a Python pickle. */
hr_status hr_source_check_start(const hr_file_map *map, const char *path, hr_error *err);

bool hr_source_file_exists(const char *path);

/* A value in short, for people: numbers, strings and the first elements of arrays. */
#define HR_SOURCE_SHOW_BYTES 160
const char *hr_source_show(const hr_source *source, hr_value value,
                           char buffer[HR_SOURCE_SHOW_BYTES]);

/* A name from a file for a message: unprintable bytes as \xNN, cut when long. */
#define HR_QUOTE_BYTES 112
const char *hr_source_quote(char buffer[HR_QUOTE_BYTES], const char *text, size_t length);
#define HR_QUOTE(text, length) hr_source_quote((char[HR_QUOTE_BYTES]){0}, (text), (length))

#endif
