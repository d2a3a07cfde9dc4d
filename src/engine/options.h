/* SPDX-License-Identifier: MIT
 * Options of the public API, which grow at their end: a program and the library
 * may have been built with different headers. Each begins with a size_t that
 * holds the size its program knows. */
#ifndef HR_ENGINE_OPTIONS_H
#define HR_ENGINE_OPTIONS_H

#include <headrow/headrow.h>

/* Writes defaults (known bytes) into the size bytes at options; what the
 * library does not know is zero. */
void hr_options_fill(void *options, size_t size, const void *defaults, size_t known);

/* Checks that a program has set the size of a struct, of which the library knows that many
 * bytes. type is the struct's name, for messages. */
hr_status hr_options_check_size(const void *options, size_t known, const char *type,
                                hr_error *err);

/* Lays options over the defaults in taken (known bytes); NULL leaves them. The
 * size is checked, and that nothing is asked for that the library does not
 * know. */
hr_status hr_options_take(void *taken, size_t known, const void *options, const char *type,
                          hr_error *err);

#endif
