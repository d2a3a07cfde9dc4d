/* SPDX-License-Identifier: MIT */
#include "model/json.h"

#include <string.h>

#include "model/source_internal.h"

/* The largest tokenizer.json so far has 35 MB and takes 0.3 GB. */
#define TEXT_BYTES ((size_t)1 << 27)
#define VALUE_BYTES ((size_t)1 << 30)

/* What Jansson takes for an object, an array and a value in one, at most. A mark inside a
 * string is counted too: the sum is an upper bound. */
enum { OBJECT_BYTES = 384, ARRAY_BYTES = 192, ITEM_BYTES = 160 };

static size_t bytes_of_values(const unsigned char *text, size_t bytes) {
  size_t sum = 0;
  for (size_t i = 0; i < bytes; i++) {
    sum += text[i] == '{' ? OBJECT_BYTES : text[i] == '[' ? ARRAY_BYTES : 0;
    sum += text[i] == ',' ? ITEM_BYTES : 0;
  }
  return sum;
}

static hr_status check_size(const char *where, const char *what, const void *text, size_t bytes,
                            hr_error *err) {
  if (bytes > TEXT_BYTES)
    return hr_fail(err, HR_ERROR_FILE, "%s: %shas %zu bytes, expected at most %zu", where, what,
                   bytes, TEXT_BYTES);
  if (bytes_of_values(text, bytes) > VALUE_BYTES)
    return hr_fail(err, HR_ERROR_FILE,
                   "%s: %sholds more values in its %zu bytes than fit into %zu bytes of memory",
                   where, what, bytes, VALUE_BYTES);
  return HR_OK;
}

json_t *hr_json_parse(const char *where, const char *what, const void *text, size_t bytes,
                      size_t flags, hr_error *err) {
  json_error_t fault;
  if (check_size(where, what, text, bytes, err) != HR_OK) return NULL;
  json_t *json = json_loadb(text, bytes, flags | JSON_REJECT_DUPLICATES, &fault);
  if (json_is_object(json)) return json;
  if (json)
    hr_fail(err, HR_ERROR_FILE, "%s: %sis a JSON array, expected an object", where, what);
  else if (json_error_code(&fault) == json_error_out_of_memory)
    hr_fail_memory(err, where, bytes);
  else
    hr_fail(err, HR_ERROR_FILE, "%s: %sis no valid JSON: line %d: %s", where, what, fault.line,
            HR_QUOTE(fault.text, strlen(fault.text)));
  json_decref(json);
  return NULL;
}
