/* SPDX-License-Identifier: MIT */
#include "tests/support/schema.h"

#include <regex.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef struct check {
  const json_t *root;
  char *text; /* NULL: nobody wants to know */
  size_t size;
} check;

static bool allows(const check *c, const json_t *schema, const json_t *value, const char *at);

static bool __attribute__((format(printf, 3, 4))) wrong(const check *c, const char *at,
                                                        const char *format, ...) {
  va_list args;
  if (!c->text) return false;
  int n = snprintf(c->text, c->size, "%s: ", at);
  va_start(args, format);
  vsnprintf(c->text + n, c->size - (size_t)n, format, args);
  va_end(args);
  return false;
}

static bool is_type(const json_t *value, const char *type) {
  if (strcmp(type, "number") == 0) return json_is_number(value);
  if (strcmp(type, "integer") == 0) return json_is_integer(value);
  if (strcmp(type, "string") == 0) return json_is_string(value);
  if (strcmp(type, "boolean") == 0) return json_is_boolean(value);
  if (strcmp(type, "null") == 0) return json_is_null(value);
  if (strcmp(type, "array") == 0) return json_is_array(value);
  return strcmp(type, "object") == 0 && json_is_object(value);
}

static bool type_fits(const json_t *types, const json_t *value) {
  size_t i;
  json_t *type;
  if (json_is_string(types)) return is_type(value, json_string_value(types));
  json_array_foreach(types, i, type) if (is_type(value, json_string_value(type))) return true;
  return false;
}

static bool is_listed(const json_t *list, const json_t *value) {
  size_t i;
  json_t *item;
  json_array_foreach(list, i, item) if (json_equal(item, value)) return true;
  return false;
}

static bool any_allows(const check *c, const json_t *list, const json_t *value, const char *at) {
  size_t i;
  json_t *item;
  check quiet = {.root = c->root};
  json_array_foreach(list, i, item) if (allows(&quiet, item, value, at)) return true;
  return false;
}

static bool matches(const char *pattern, const json_t *value) {
  regex_t r;
  if (!json_is_string(value)) return true;
  if (regcomp(&r, pattern, REG_EXTENDED | REG_NOSUB) != 0) return false;
  bool fine = regexec(&r, json_string_value(value), 0, NULL, 0) == 0;
  regfree(&r);
  return fine;
}

static const json_t *resolve(const check *c, const char *reference) {
  static const char prefix[] = "#/$defs/";
  if (strncmp(reference, prefix, strlen(prefix)) != 0) return NULL;
  return json_object_get(json_object_get(c->root, "$defs"), reference + strlen(prefix));
}

static bool members_fit(const check *c, const json_t *schema, const json_t *value, const char *at) {
  const char *key;
  json_t *member;
  const json_t *known = json_object_get(schema, "properties");
  const json_t *others = json_object_get(schema, "additionalProperties");
  json_object_foreach((json_t *)(uintptr_t)value, key, member) {
    char place[256];
    const json_t *own = json_object_get(known, key);
    snprintf(place, sizeof place, "%s/%s", at, key);
    if (!own && json_is_false(others)) return wrong(c, place, "is not known");
    if (!own) own = others;
    if (own && json_is_object(own) && !allows(c, own, member, place)) return false;
  }
  return true;
}

static bool items_fit(const check *c, const json_t *schema, const json_t *value, const char *at) {
  size_t i;
  json_t *item;
  json_array_foreach(value, i, item) {
    char place[256];
    snprintf(place, sizeof place, "%s/%zu", at, i);
    if (!allows(c, schema, item, place)) return false;
  }
  return true;
}

static bool has_required(const check *c, const json_t *list, const json_t *value, const char *at) {
  size_t i;
  json_t *name;
  if (!json_is_object(value)) return true;
  json_array_foreach(list, i, name) {
    if (!json_object_get(value, json_string_value(name)))
      return wrong(c, at, "has no %s", json_string_value(name));
  }
  return true;
}

static bool keyword_allows(const check *c, const char *key, const json_t *s, const json_t *schema,
                           const json_t *value, const char *at) {
  double x = json_number_value(value), bound = json_number_value(s);
  bool number = json_is_number(value);
  if (key[0] == '$' && strcmp(key, "$ref") != 0) return true;
  if (strcmp(key, "title") == 0 || strcmp(key, "description") == 0) return true;
  if (strcmp(key, "additionalProperties") == 0) return true; /* goes with the properties */
  if (strcmp(key, "type") == 0)
    return type_fits(s, value) || wrong(c, at, "is of another type");
  if (strcmp(key, "const") == 0) return json_equal(s, value) || wrong(c, at, "is another value");
  if (strcmp(key, "enum") == 0) return is_listed(s, value) || wrong(c, at, "is not in the list");
  if (strcmp(key, "minimum") == 0) return !number || x >= bound || wrong(c, at, "is %g", x);
  if (strcmp(key, "exclusiveMinimum") == 0) return !number || x > bound || wrong(c, at, "is %g", x);
  if (strcmp(key, "pattern") == 0)
    return matches(json_string_value(s), value) || wrong(c, at, "has another form");
  if (strcmp(key, "anyOf") == 0)
    return any_allows(c, s, value, at) || wrong(c, at, "is none of the forms");
  if (strcmp(key, "items") == 0) return items_fit(c, s, value, at);
  if (strcmp(key, "required") == 0) return has_required(c, s, value, at);
  if (strcmp(key, "properties") == 0) return members_fit(c, schema, value, at);
  if (strcmp(key, "$ref") == 0) {
    const json_t *other = resolve(c, json_string_value(s));
    return other ? allows(c, other, value, at) : wrong(c, at, "refers to nothing");
  }
  return wrong(c, at, "the schema says %s, which is not known here", key);
}

static bool allows(const check *c, const json_t *schema, const json_t *value, const char *at) {
  const char *key;
  json_t *s;
  json_object_foreach((json_t *)(uintptr_t)schema, key, s) {
    if (!keyword_allows(c, key, s, schema, value, at)) return false;
  }
  if (!json_object_get(schema, "properties") && json_is_object(value))
    return members_fit(c, schema, value, at);
  return true;
}

bool schema_allows(const json_t *schema, const json_t *value, char *text, size_t size) {
  check c = {.root = schema, .text = text, .size = size};
  return allows(&c, schema, value, "");
}
