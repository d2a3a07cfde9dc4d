/* SPDX-License-Identifier: MIT
 * The part of JSON Schema that perf/schema.json uses. */
#ifndef HR_TESTS_SCHEMA_H
#define HR_TESTS_SCHEMA_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* True when the value is as the schema says. Else what is wrong and where goes into
 * text. A schema with a keyword that is not known here is wrong too. */
bool schema_allows(const json_t *schema, const json_t *value, char *text, size_t size);

#endif
