/* SPDX-License-Identifier: MIT
 * The values of a source by their keys, each checked to be of the type that is asked for. */
#include "model/source_internal.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static hr_status fail_type(const hr_source *source, const char *key, const hr_value *value,
                           const char *expected, hr_error *err) {
  bool outer = value->kind == HR_VALUE_NO_OBJECT;
  return hr_fail(err, HR_ERROR_FILE, "%s: key '%s' has type %s, expected %s", source->values_path,
                 HR_QUOTE(key, outer ? value->outer : strlen(key)), value->type,
                 outer ? "an object" : expected);
}

static hr_status fail_range(const hr_source *source, const char *key, const hr_value *value,
                            const char *expected, hr_error *err) {
  char text[40];
  if (value->kind == HR_VALUE_UINT)
    snprintf(text, sizeof text, "%llu", (unsigned long long)value->uint);
  else if (value->kind == HR_VALUE_INT)
    snprintf(text, sizeof text, "%lld", (long long)value->sint);
  else
    snprintf(text, sizeof text, "%g", value->real);
  return hr_fail(err, HR_ERROR_FILE, "%s: key '%s' is %s, expected %s", source->values_path,
                 HR_QUOTE(key, strlen(key)), text, expected);
}

static bool is_number(const hr_value *value) {
  return value->kind == HR_VALUE_UINT || value->kind == HR_VALUE_INT ||
         value->kind == HR_VALUE_REAL;
}

static bool to_u64(const hr_value *value, uint64_t *out) {
  if (value->kind == HR_VALUE_UINT) {
    *out = value->uint;
    return true;
  }
  if (value->kind == HR_VALUE_INT) {
    *out = (uint64_t)value->sint;
    return value->sint >= 0;
  }
  /* written so that a NaN fails */
  if (!(value->real >= 0 && value->real < 0x1p64 && value->real == trunc(value->real)))
    return false;
  *out = (uint64_t)value->real;
  return true;
}

static bool to_i64(const hr_value *value, int64_t *out) {
  if (value->kind == HR_VALUE_UINT) {
    *out = (int64_t)value->uint;
    return value->uint <= INT64_MAX;
  }
  if (value->kind == HR_VALUE_INT) {
    *out = value->sint;
    return true;
  }
  if (!(value->real >= -0x1p63 && value->real < 0x1p63 && value->real == trunc(value->real)))
    return false;
  *out = (int64_t)value->real;
  return true;
}

static double to_f64(const hr_value *value) {
  if (value->kind == HR_VALUE_UINT) return (double)value->uint;
  if (value->kind == HR_VALUE_INT) return (double)value->sint;
  return value->real;
}

hr_status hr_source_u64(const hr_source *source, const char *key, uint64_t *value, bool *found,
                        hr_error *err) {
  hr_value raw;
  *found = false;
  if (!source->ops->lookup(source, key, &raw)) return HR_OK;
  if (!is_number(&raw)) return fail_type(source, key, &raw, "a whole number", err);
  if (!to_u64(&raw, value)) return fail_range(source, key, &raw, "a whole number, 0 or more", err);
  *found = true;
  return HR_OK;
}

hr_status hr_source_i64(const hr_source *source, const char *key, int64_t *value, bool *found,
                        hr_error *err) {
  hr_value raw;
  *found = false;
  if (!source->ops->lookup(source, key, &raw)) return HR_OK;
  if (!is_number(&raw)) return fail_type(source, key, &raw, "a whole number", err);
  if (!to_i64(&raw, value))
    return fail_range(source, key, &raw, "a whole number of 64 bits with a sign", err);
  *found = true;
  return HR_OK;
}

hr_status hr_source_f64(const hr_source *source, const char *key, double *value, bool *found,
                        hr_error *err) {
  hr_value raw;
  *found = false;
  if (!source->ops->lookup(source, key, &raw)) return HR_OK;
  if (!is_number(&raw)) return fail_type(source, key, &raw, "a number", err);
  if (!isfinite(to_f64(&raw))) return fail_range(source, key, &raw, "a finite number", err);
  *value = to_f64(&raw);
  *found = true;
  return HR_OK;
}

hr_status hr_source_bool(const hr_source *source, const char *key, bool *value, bool *found,
                         hr_error *err) {
  hr_value raw;
  *found = false;
  if (!source->ops->lookup(source, key, &raw)) return HR_OK;
  if (raw.kind != HR_VALUE_BOOL) return fail_type(source, key, &raw, "true or false", err);
  *value = raw.truth;
  *found = true;
  return HR_OK;
}

hr_status hr_source_string(const hr_source *source, const char *key, const char **text,
                           size_t *length, bool *found, hr_error *err) {
  hr_value raw;
  *found = false;
  if (!source->ops->lookup(source, key, &raw)) return HR_OK;
  if (raw.kind != HR_VALUE_STRING) return fail_type(source, key, &raw, "a string", err);
  *text = raw.text;
  *length = raw.length;
  *found = true;
  return HR_OK;
}

bool hr_source_is_null(const hr_source *source, const char *key) {
  return source->ops->is_null && source->ops->is_null(source, key);
}

bool hr_source_is_array(const hr_source *source, const char *key) {
  hr_value raw;
  return source->ops->lookup(source, key, &raw) && raw.kind == HR_VALUE_ARRAY;
}

hr_status hr_source_array_length(const hr_source *source, const char *key, size_t *count,
                                 bool *found, hr_error *err) {
  hr_value raw;
  *found = false;
  if (!source->ops->lookup(source, key, &raw)) return HR_OK;
  if (raw.kind != HR_VALUE_ARRAY) return fail_type(source, key, &raw, "an array", err);
  *count = raw.length;
  *found = true;
  return HR_OK;
}

hr_status hr_source_members(const hr_source *source, const char *key, hr_source_member_fn *visit,
                            void *arg, bool *found, hr_error *err) {
  hr_value raw;
  *found = false;
  if (!source->ops->lookup(source, key, &raw)) return HR_OK;
  if (raw.kind != HR_VALUE_OBJECT) return fail_type(source, key, &raw, "an object", err);
  *found = true;
  return source->ops->members(&raw, visit, arg, err);
}

static hr_status start_array(const hr_source *source, const char *key, size_t count,
                             hr_value *array, hr_error *err) {
  if (!source->ops->lookup(source, key, array))
    return hr_fail(err, HR_ERROR_FILE, "%s: key '%s' is missing, expected an array",
                   source->values_path, HR_QUOTE(key, strlen(key)));
  if (array->kind != HR_VALUE_ARRAY) return fail_type(source, key, array, "an array", err);
  if (array->length != count)
    return hr_fail(err, HR_ERROR_FILE, "%s: key '%s' has %zu elements, expected %zu",
                   source->values_path, HR_QUOTE(key, strlen(key)), array->length, count);
  return HR_OK;
}

static hr_status fail_element(const hr_source *source, const char *key, size_t index,
                              const hr_value *element, const char *expected, hr_error *err) {
  return hr_fail(err, HR_ERROR_FILE, "%s: element %zu of key '%s' has type %s, expected %s",
                 source->values_path, index, HR_QUOTE(key, strlen(key)), element->type, expected);
}

hr_status hr_source_array_i64(const hr_source *source, const char *key, int64_t *out, size_t count,
                              hr_error *err) {
  hr_value array, element;
  hr_status status = start_array(source, key, count, &array, err);
  for (size_t i = 0; status == HR_OK && i < count; i++) {
    source->ops->next(&array, &element);
    if (!is_number(&element))
      status = fail_element(source, key, i, &element, "a whole number", err);
    else if (!to_i64(&element, &out[i]))
      status = hr_fail(err, HR_ERROR_FILE, "%s: element %zu of key '%s' is %g, expected a whole "
                       "number of 64 bits with a sign",
                       source->values_path, i, HR_QUOTE(key, strlen(key)), to_f64(&element));
  }
  return status;
}

hr_status hr_source_array_f64(const hr_source *source, const char *key, double *out, size_t count,
                              hr_error *err) {
  hr_value array, element;
  hr_status status = start_array(source, key, count, &array, err);
  for (size_t i = 0; status == HR_OK && i < count; i++) {
    source->ops->next(&array, &element);
    if (!is_number(&element))
      status = fail_element(source, key, i, &element, "a number", err);
    else
      out[i] = to_f64(&element);
  }
  return status;
}

hr_status hr_source_array_strings(const hr_source *source, const char *key, const char **text,
                                  size_t *length, size_t count, hr_error *err) {
  hr_value array, element;
  hr_status status = start_array(source, key, count, &array, err);
  for (size_t i = 0; status == HR_OK && i < count; i++) {
    source->ops->next(&array, &element);
    if (element.kind != HR_VALUE_STRING) {
      status = fail_element(source, key, i, &element, "a string", err);
    } else {
      text[i] = element.text;
      length[i] = element.length;
    }
  }
  return status;
}

static size_t show_one(const hr_value *value, char *buffer, size_t room) {
  int n = 0;
  switch (value->kind) {
    case HR_VALUE_UINT: n = snprintf(buffer, room, "%llu", (unsigned long long)value->uint); break;
    case HR_VALUE_INT: n = snprintf(buffer, room, "%lld", (long long)value->sint); break;
    case HR_VALUE_REAL: n = snprintf(buffer, room, "%.9g", value->real); break;
    case HR_VALUE_BOOL: n = snprintf(buffer, room, "%s", value->truth ? "true" : "false"); break;
    case HR_VALUE_STRING:
      n = snprintf(buffer, room, "\"%s\"", HR_QUOTE(value->text, value->length));
      break;
    case HR_VALUE_ARRAY:
    case HR_VALUE_OBJECT:
    case HR_VALUE_NO_OBJECT:
    case HR_VALUE_OTHER: n = snprintf(buffer, room, "(%s)", value->type); break;
  }
  return n < 0 ? 0 : (size_t)n < room ? (size_t)n : room - 1;
}

const char *hr_source_show(const hr_source *source, hr_value value,
                           char buffer[HR_SOURCE_SHOW_BYTES]) {
  if (value.kind != HR_VALUE_ARRAY) {
    show_one(&value, buffer, HR_SOURCE_SHOW_BYTES);
    return buffer;
  }
  size_t n = (size_t)snprintf(buffer, HR_SOURCE_SHOW_BYTES, "%zu: [", value.length);
  for (size_t i = 0; i < value.length; i++) {
    char text[HR_SOURCE_SHOW_BYTES];
    hr_value element;
    source->ops->next(&value, &element);
    size_t length = show_one(&element, text, sizeof text);
    if (i == 6 || n + length + 8 > HR_SOURCE_SHOW_BYTES) {
      n += (size_t)snprintf(buffer + n, HR_SOURCE_SHOW_BYTES - n, i ? ", ..." : "...");
      break;
    }
    n += (size_t)snprintf(buffer + n, HR_SOURCE_SHOW_BYTES - n, "%s%s", i ? ", " : "", text);
  }
  snprintf(buffer + n, HR_SOURCE_SHOW_BYTES - n, "]");
  return buffer;
}

void hr_source_visit_values(const hr_source *source, hr_source_visit_fn *visit, void *arg) {
  source->ops->visit(source, visit, arg);
}
