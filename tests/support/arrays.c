/* SPDX-License-Identifier: MIT */
#include "tests/support/arrays.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the files are little-endian");

static void check(bool good, const char *path, const char *what) {
  if (good) return;
  fprintf(stderr, "%s: %s\n", path, what);
  abort();
}

char *file_read(const char *path, size_t *size) {
  FILE *f = fopen(path, "rb");
  check(f && fseek(f, 0, SEEK_END) == 0, path, "can't be read");
  long end = ftell(f);
  rewind(f);
  char *data = end >= 0 ? malloc((size_t)end + 1) : NULL;
  check(data && fread(data, 1, (size_t)end, f) == (size_t)end, path, "can't be read");
  fclose(f);
  data[end] = '\0';
  *size = (size_t)end;
  return data;
}

static array make(size_t count) {
  array a = {.dims = 1, .dim = {count}, .count = count};
  a.value = calloc(count ? count : 1, sizeof *a.value);
  check(a.value != NULL, "array", "memory is out");
  return a;
}

void array_finish(array *a) {
  free(a->name);
  free(a->value);
  *a = (array){0};
}

typedef enum element { ELEMENT_F32, ELEMENT_F64, ELEMENT_I32 } element;

static array widen(const char *data, element type, size_t count) {
  array a = make(count);
  for (size_t i = 0; i < count; i++) {
    float f;
    int32_t n;
    if (type == ELEMENT_F32) {
      memcpy(&f, data + i * sizeof f, sizeof f);
      a.value[i] = (double)f;
    } else if (type == ELEMENT_F64) {
      memcpy(&a.value[i], data + i * sizeof(double), sizeof(double));
    } else {
      memcpy(&n, data + i * sizeof n, sizeof n);
      a.value[i] = n;
    }
  }
  return a;
}

static void shape(array *a, const json_t *dims, const char *path) {
  size_t count = 1;
  a->dims = json_array_size(dims);
  check(a->dims <= 8, path, "too many dimensions");
  for (size_t i = 0; i < a->dims; i++) {
    a->dim[i] = (size_t)json_integer_value(json_array_get(dims, i));
    count *= a->dim[i];
  }
  check(count == a->count, path, "a shape does not fit its data");
}

static array read_tensor(const char *path, const char *data, size_t size, const char *name,
                         const json_t *entry) {
  const char *kind = json_string_value(json_object_get(entry, "dtype"));
  const json_t *offsets = json_object_get(entry, "data_offsets");
  size_t begin = (size_t)json_integer_value(json_array_get(offsets, 0));
  size_t end = (size_t)json_integer_value(json_array_get(offsets, 1));
  check(kind && begin <= end && end <= size, path, "a tensor lies outside the file");
  element type = strcmp(kind, "F64") == 0 ? ELEMENT_F64
                 : strcmp(kind, "I32") == 0 ? ELEMENT_I32 : ELEMENT_F32;
  check(type != ELEMENT_F32 || strcmp(kind, "F32") == 0, path, "a tensor of another type");
  array a = widen(data + begin, type, (end - begin) / (type == ELEMENT_F64 ? 8 : 4));
  shape(&a, json_object_get(entry, "shape"), path);
  a.name = strdup(name);
  return a;
}

arrays arrays_read(const char *path) {
  size_t size;
  char *data = file_read(path, &size);
  uint64_t length = 0;
  if (size >= 8) memcpy(&length, data, 8);
  check(size >= 8 && length <= size - 8, path, "is no safetensors file");
  json_t *head = json_loadb(data + 8, (size_t)length, 0, NULL), *entry;
  check(head != NULL, path, "has a header that is no JSON");
  arrays a = {.array = calloc(json_object_size(head), sizeof *a.array)};
  check(a.array != NULL, path, "memory is out");
  const char *name;
  const char *values = data + 8 + length;
  size -= 8 + (size_t)length;
  json_object_foreach(head, name, entry)
    a.array[a.count++] = read_tensor(path, values, size, name, entry);
  json_decref(head);
  free(data);
  return a;
}

void arrays_finish(arrays *a) {
  for (size_t i = 0; i < a->count; i++) array_finish(&a->array[i]);
  free(a->array);
  *a = (arrays){0};
}

const array *arrays_find(const arrays *a, const char *name) {
  for (size_t i = 0; i < a->count; i++)
    if (strcmp(a->array[i].name, name) == 0) return &a->array[i];
  return NULL;
}

const array *arrays_need(const arrays *a, const char *name) {
  const array *found = arrays_find(a, name);
  check(found != NULL, name, "is missing");
  return found;
}

/* The header is a line like {'descr': '<f4', 'fortran_order': False, 'shape': (3, 11, 48), } */
array array_read_npy(const char *path) {
  size_t size;
  uint16_t length;
  char *data = file_read(path, &size);
  check(size > 10 && memcmp(data, "\x93NUMPY\x01", 7) == 0, path, "is no NumPy file of version 1");
  memcpy(&length, data + 8, 2);
  check(size >= 10u + length, path, "is cut off");
  char *header = strndup(data + 10, length);
  const char *at = header ? strstr(header, "'shape': (") : NULL;
  bool plain = at && strstr(header, "'<f4'") && strstr(header, "False");
  check(plain, path, "is not float32 in C order");
  array a = widen(data + 10 + length, ELEMENT_F32, (size - 10 - length) / 4);
  a.dims = 0;
  size_t count = 1;
  for (at += strlen("'shape': ("); *at >= '0' && *at <= '9' && a.dims < 8; a.dims++) {
    char *end;
    a.dim[a.dims] = strtoul(at, &end, 10);
    count *= a.dim[a.dims];
    at = end + strspn(end, ", ");
  }
  check(count == a.count, path, "has a shape that does not fit its data");
  free(header);
  free(data);
  return a;
}

array array_read_f32(const char *path) {
  size_t size;
  char *data = file_read(path, &size);
  array a = widen(data, ELEMENT_F32, size / 4);
  free(data);
  return a;
}

array array_read_f64(const char *path) {
  size_t size;
  char *data = file_read(path, &size);
  array a = widen(data, ELEMENT_F64, size / 8);
  free(data);
  return a;
}

array array_read_numbers(const char *path) {
  size_t size, count = 1;
  char *data = file_read(path, &size), *at = data;
  for (size_t i = 0; i < size; i++) count += data[i] == ',';
  array a = make(count);
  for (size_t i = 0; i < count; i++) {
    char *end;
    a.value[i] = strtod(at, &end);
    check(end > at, path, "holds something that is no number");
    at = end + strspn(end, ", \r\n");
  }
  free(data);
  return a;
}

static size_t leaves(const json_t *json) {
  if (!json_is_array(json)) return 1;
  size_t total = 0;
  for (size_t i = 0; i < json_array_size(json); i++) total += leaves(json_array_get(json, i));
  return total;
}

static double *flatten(const json_t *json, double *to) {
  if (!json_is_array(json)) {
    check(json_is_number(json), "JSON", "holds something that is no number");
    *to = json_number_value(json);
    return to + 1;
  }
  for (size_t i = 0; i < json_array_size(json); i++) to = flatten(json_array_get(json, i), to);
  return to;
}

array array_from_json(const json_t *json) {
  check(json != NULL, "JSON", "a list is missing");
  array a = make(leaves(json));
  flatten(json, a.value);
  a.dims = 0;
  for (; json_is_array(json) && a.dims < 8; json = json_array_get(json, 0))
    a.dim[a.dims++] = json_array_size(json);
  return a;
}

json_t *json_read(const char *path) {
  json_t *json = json_load_file(path, 0, NULL);
  check(json != NULL, path, "is no JSON file");
  return json;
}

float *array_floats(const array *a) {
  float *out = calloc(a->count ? a->count : 1, sizeof *out);
  check(out != NULL, "array", "memory is out");
  for (size_t i = 0; i < a->count; i++) out[i] = (float)a->value[i];
  return out;
}

int32_t *array_ids(const array *a) {
  int32_t *out = calloc(a->count ? a->count : 1, sizeof *out);
  check(out != NULL, "array", "memory is out");
  for (size_t i = 0; i < a->count; i++) out[i] = (int32_t)a->value[i];
  return out;
}
