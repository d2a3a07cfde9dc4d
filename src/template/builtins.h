/* SPDX-License-Identifier: MIT
 * How functions, filters, tests and methods of templates are written. */
#ifndef HR_TEMPLATE_BUILTINS_H
#define HR_TEMPLATE_BUILTINS_H

#include "template/datum.h"

#define HR_UNUSED __attribute__((unused))
/* The head of a function that a row of a table names. */
#define HR_BUILTIN(name)                                                    \
  static hr_datum name(HR_UNUSED hr_machine *m, HR_UNUSED hr_datum self, \
                       HR_UNUSED const hr_datum *args, HR_UNUSED const hr_call *call)

#define HR_FIND(table, name) hr_find_builtin((table), sizeof(table) / sizeof *(table), (name))

static inline bool hr_is_whole(hr_datum d) {
  return d.kind == HR_INT || d.kind == HR_BOOL;
}

static inline bool hr_given(hr_datum d) {
  return d.kind != HR_ABSENT;
}

/* An argument that must be a text or a whole number where it is given. */
static inline hr_text hr_text_or(hr_machine *m, hr_datum d, const char *otherwise) {
  if (!hr_given(d)) return hr_literal(otherwise).text;
  if (d.kind == HR_UNDEFINED) hr_fail_undefined(m, d);
  if (d.kind != HR_TEXT_DATUM) {
    hr_machine_fail(m, "a '%s' stands where a 'str' is needed", hr_kind_name(d));
    return HR_TEXT("");
  }
  return d.text;
}

static inline int64_t hr_whole_or(hr_machine *m, hr_datum d, int64_t otherwise) {
  if (!hr_given(d)) return otherwise;
  if (!hr_is_whole(d)) {
    hr_machine_fail(m, "a '%s' stands where a whole number is needed", hr_kind_name(d));
    return otherwise;
  }
  return hr_truncate(m, d).integer;
}

/* How many characters a text has less than a width; 0: none. */
static inline int64_t hr_gap(hr_machine *m, hr_text text, int64_t width) {
  int64_t characters = (int64_t)hr_characters(m, text);
  return width > characters ? width - characters : 0;
}

#endif
