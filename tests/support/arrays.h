/* SPDX-License-Identifier: MIT
 * Expected values out of files. All numbers become double; whatever is wrong
 * with a file ends the program with a line on stderr. */
#ifndef HR_TESTS_ARRAYS_H
#define HR_TESTS_ARRAYS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct array {
  char *name;
  size_t dims, dim[8]; /* outermost first */
  size_t count;
  double *value;
} array;

/* The arrays of a file by name. */
typedef struct arrays {
  array *array;
  size_t count;
} arrays;

/* A safetensors file of F32, F64 and I32. */
arrays arrays_read(const char *path);
void arrays_finish(arrays *a);
/* NULL when there is none of that name; need ends the program then. */
const array *arrays_find(const arrays *a, const char *name);
const array *arrays_need(const arrays *a, const char *name);

/* Files of one array. */
array array_read_npy(const char *path);     /* NumPy, little-endian float32 */
array array_read_f32(const char *path);     /* bare float32 */
array array_read_f64(const char *path);     /* bare float64 */
array array_read_numbers(const char *path); /* text: numbers with commas between */
/* Lists of lists of numbers. */
array array_from_json(const json_t *json);
void array_finish(array *a);

/* A JSON file; the caller releases it with json_decref. */
json_t *json_read(const char *path);

/* A whole file with a NUL behind it, to be freed with free(). */
char *file_read(const char *path, size_t *size);

/* Copies of the values; to be freed with free(). */
float *array_floats(const array *a);
int32_t *array_ids(const array *a);

#endif
