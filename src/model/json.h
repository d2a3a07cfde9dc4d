/* SPDX-License-Identifier: MIT
 * The one door for JSON from files. */
#ifndef HR_MODEL_JSON_H
#define HR_MODEL_JSON_H

#include <headrow/headrow.h>
#include <jansson.h>

/* The object that a text is, no key twice; flags are Jansson's decoding flags. where names
 * the file, and what the part of it ("the header "), or "" for all. NULL with a sentence,
 * also for a text that is short and would take much memory as values. */
json_t *hr_json_parse(const char *where, const char *what, const void *text, size_t bytes,
                      size_t flags, hr_error *err);

#endif
