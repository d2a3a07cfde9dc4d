/* SPDX-License-Identifier: MIT
 * Functions that every template knows, and the tests behind `is`. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "template/builtins.h"

/* Jinja's sandbox has the same bound. */
enum { LONGEST_RANGE = 100000 };

const hr_builtin *hr_find_builtin(const hr_builtin *table, size_t count, hr_text name) {
  for (size_t i = 0; i < count; i++)
    if (hr_text_is(name, table[i].name)) return &table[i];
  return NULL;
}

/* --- Functions ---------------------------------------------------------------------- */

HR_BUILTIN(range) {
  for (size_t i = 0; i < 3; i++)
    if (args[i].kind != HR_ABSENT && !hr_is_whole(args[i]))
      return hr_machine_fail(m, "'range' needs whole numbers, not '%s'", hr_kind_name(args[i]));
  bool two = args[1].kind != HR_ABSENT;
  int64_t from = two ? hr_truncate(m, args[0]).integer : 0;
  int64_t to = hr_truncate(m, args[two]).integer;
  int64_t step = args[2].kind != HR_ABSENT ? hr_truncate(m, args[2]).integer : 1;
  if (step == 0) return hr_machine_fail(m, "the step of 'range' is 0");
  hr_list *list = hr_list_new(m, 0);
  while (!m->failed && (step > 0 ? from < to : from > to)) {
    if (list->count == LONGEST_RANGE)
      return hr_machine_fail(m, "'range' has more than %d elements", LONGEST_RANGE);
    hr_list_add(m, list, hr_int(from));
    if (__builtin_add_overflow(from, step, &from)) break;
  }
  return hr_list_datum(HR_LIST, list);
}

static hr_datum dict_from(hr_machine *m, const hr_call *call, hr_datum_kind kind,
                          const char *what) {
  hr_dict *dict = hr_dict_new(m);
  if (call->count > 1 || (call->count && call->item[0].kind != HR_DICT))
    return hr_machine_fail(m, "'%s' takes a dict and named arguments", what);
  const hr_dict *parts[] = {call->count ? call->item[0].dict : NULL, call->named};
  for (size_t p = 0; p < 2; p++)
    for (size_t i = 0; parts[p] && i < parts[p]->count && !m->failed; i++)
      hr_dict_set(m, dict, parts[p]->key[i], parts[p]->value[i]);
  return dict ? (hr_datum){.kind = kind, .dict = dict} : hr_none();
}

HR_BUILTIN(make_namespace) {
  return dict_from(m, call, HR_NAMESPACE, "namespace");
}

HR_BUILTIN(make_dict) {
  return dict_from(m, call, HR_DICT, "dict");
}

/* The template refuses what it was given: the program's fault, not the template's. */
HR_BUILTIN(raise_exception) {
  if (m->failed) return hr_none();
  hr_text text = hr_to_text(m, args[0]);
  if (m->failed) return hr_none();
  m->failed = true;
  m->status = hr_fail(m->err, HR_ERROR_USAGE, "%s, line %u: the template refuses this: %.*s",
                      m->name, m->line, (int)(text.length < 300 ? text.length : 300), text.bytes);
  return hr_none();
}

/* Only formats whose result does not depend on a locale's habits. */
static void add_time(hr_builder *b, char format) {
  static const char *const months[] = {"January", "February", "March",     "April",
                                       "May",     "June",     "July",      "August",
                                       "September", "October", "November", "December"};
  static const char *const days[] = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                     "Thursday", "Friday", "Saturday"};
  hr_machine *m = b->machine;
  const struct tm *t = m->now;
  char text[32];
  if ((unsigned)t->tm_mon > 11 || (unsigned)t->tm_wday > 6 || (unsigned)t->tm_yday > 365 ||
      t->tm_year > 9999) {
    hr_machine_fail(m, "the time that was given is not valid");
    return;
  }
  int hour = t->tm_hour % 12 ? t->tm_hour % 12 : 12;
  switch (format) {
    case 'Y': snprintf(text, sizeof text, "%d", t->tm_year + 1900); break;
    case 'y': snprintf(text, sizeof text, "%02d", t->tm_year % 100); break;
    case 'm': snprintf(text, sizeof text, "%02d", t->tm_mon + 1); break;
    case 'd': snprintf(text, sizeof text, "%02d", t->tm_mday); break;
    case 'e': snprintf(text, sizeof text, "%2d", t->tm_mday); break;
    case 'H': snprintf(text, sizeof text, "%02d", t->tm_hour); break;
    case 'I': snprintf(text, sizeof text, "%02d", hour); break;
    case 'M': snprintf(text, sizeof text, "%02d", t->tm_min); break;
    case 'S': snprintf(text, sizeof text, "%02d", t->tm_sec); break;
    case 'j': snprintf(text, sizeof text, "%03d", t->tm_yday + 1); break;
    case 'w': snprintf(text, sizeof text, "%d", t->tm_wday); break;
    case 'p': snprintf(text, sizeof text, "%s", t->tm_hour < 12 ? "AM" : "PM"); break;
    case 'B': snprintf(text, sizeof text, "%s", months[t->tm_mon]); break;
    case 'b': snprintf(text, sizeof text, "%.3s", months[t->tm_mon]); break;
    case 'A': snprintf(text, sizeof text, "%s", days[t->tm_wday]); break;
    case 'a': snprintf(text, sizeof text, "%.3s", days[t->tm_wday]); break;
    case 'F':
      snprintf(text, sizeof text, "%d-%02d-%02d", t->tm_year + 1900, t->tm_mon + 1, t->tm_mday);
      break;
    case 'T':
      snprintf(text, sizeof text, "%02d:%02d:%02d", t->tm_hour, t->tm_min, t->tm_sec);
      break;
    case '%': snprintf(text, sizeof text, "%%"); break;
    default: hr_machine_fail(m, "'%%%c' in a format of time is not supported", format); return;
  }
  hr_add_literal(b, text);
}

HR_BUILTIN(strftime_now) {
  if (args[0].kind != HR_TEXT_DATUM) return hr_machine_fail(m, "'strftime_now' needs a format");
  if (!m->now) return hr_machine_fail(m, "'strftime_now' is used, but no time was given");
  hr_text format = args[0].text;
  hr_builder b = {.machine = m};
  for (size_t i = 0; i < format.length && !m->failed; i++) {
    if (format.bytes[i] == '%' && i + 1 < format.length)
      add_time(&b, format.bytes[++i]);
    else
      hr_add_text(&b, hr_text_part(format, i, i + 1));
  }
  return hr_text_datum(hr_built(&b));
}

/* --- joiner and cycler --------------------------------------------------------------- */

static hr_datum function_of(hr_machine *m, const hr_builtin *builtin, hr_datum self) {
  hr_function *function = hr_machine_alloc(m, 1, sizeof *function);
  if (!function) return hr_none();
  *function = (hr_function){.builtin = builtin, .self = self};
  return (hr_datum){.kind = HR_FUNCTION, .function = function};
}

/* self is a stream: of nothing first, then of the separator for ever. */
HR_BUILTIN(next_join) {
  bool first = self.list->next == 0;
  self.list->next = 1;
  return first ? hr_literal("") : self.list->item[0];
}

HR_BUILTIN(joiner) {
  static const hr_builtin next = {"joiner", next_join, 0, ""};
  hr_list *list = hr_list_new(m, 1);
  hr_list_add(m, list, args[0].kind == HR_ABSENT ? hr_literal(", ") : args[0]);
  return function_of(m, &next, hr_list_datum(HR_STREAM, list));
}

HR_BUILTIN(cycler) {
  if (call->count == 0 || call->named) return hr_machine_fail(m, "'cycler' needs values");
  hr_list *list = hr_list_new(m, call->count);
  for (size_t i = 0; i < call->count; i++) hr_list_add(m, list, call->item[i]);
  return m->failed ? hr_none() : hr_list_datum(HR_CYCLER, list);
}

static const hr_builtin globals[] = {
    {"range", range, 1, "start stop step"},
    {"namespace", make_namespace, 0, "*"},
    {"dict", make_dict, 0, "*"},
    {"raise_exception", raise_exception, 1, "message"},
    {"strftime_now", strftime_now, 1, "format"},
    {"joiner", joiner, 0, "sep"},
    {"cycler", cycler, 0, "*"},
};

const hr_builtin *hr_find_global(hr_text name) {
  return HR_FIND(globals, name);
}

/* --- Tests ---------------------------------------------------------------------------- */

HR_BUILTIN(is_defined) {
  return hr_bool(self.kind != HR_UNDEFINED);
}

HR_BUILTIN(is_undefined) {
  return hr_bool(self.kind == HR_UNDEFINED);
}

HR_BUILTIN(is_none) {
  return hr_bool(self.kind == HR_NONE);
}

HR_BUILTIN(is_boolean) {
  return hr_bool(self.kind == HR_BOOL);
}

HR_BUILTIN(is_true) {
  return hr_bool(self.kind == HR_BOOL && self.truth);
}

HR_BUILTIN(is_false) {
  return hr_bool(self.kind == HR_BOOL && !self.truth);
}

HR_BUILTIN(is_integer) {
  return hr_bool(self.kind == HR_INT);
}

HR_BUILTIN(is_float) {
  return hr_bool(self.kind == HR_REAL);
}

HR_BUILTIN(is_number) {
  return hr_bool(hr_is_number(self));
}

HR_BUILTIN(is_string) {
  return hr_bool(self.kind == HR_TEXT_DATUM);
}

HR_BUILTIN(is_mapping) {
  return hr_bool(self.kind == HR_DICT);
}

HR_BUILTIN(is_iterable) {
  return hr_bool(self.kind == HR_TEXT_DATUM || hr_is_sequence(self) || self.kind == HR_STREAM ||
                 self.kind == HR_DICT || self.kind == HR_UNDEFINED || self.kind == HR_LOOP);
}

HR_BUILTIN(is_sequence) {
  return hr_bool(self.kind == HR_TEXT_DATUM || hr_is_sequence(self) || self.kind == HR_DICT ||
                 self.kind == HR_UNDEFINED);
}

HR_BUILTIN(is_callable) {
  return hr_bool(self.kind == HR_FUNCTION || self.kind == HR_MACRO || self.kind == HR_LOOP ||
                 self.kind == HR_UNDEFINED);
}

static hr_datum remainder_is(hr_machine *m, hr_datum d, int64_t by, int64_t rest) {
  if (d.kind == HR_REAL && by != 0) return hr_bool(fabs(fmod(d.real, (double)by)) == (double)rest);
  if (!hr_is_whole(d)) return hr_machine_fail(m, "a '%s' is not a number", hr_kind_name(d));
  int64_t n = hr_truncate(m, d).integer;
  if (by == 0) return hr_machine_fail(m, "division by zero");
  return hr_bool(by == -1 || (n % by != 0) == (rest != 0));
}

HR_BUILTIN(is_even) {
  return remainder_is(m, self, 2, 0);
}

HR_BUILTIN(is_odd) {
  return remainder_is(m, self, 2, 1);
}

HR_BUILTIN(is_divisible) {
  if (!hr_is_whole(args[0])) return hr_machine_fail(m, "'divisibleby' needs a whole number");
  return remainder_is(m, self, hr_truncate(m, args[0]).integer, 0);
}

HR_BUILTIN(is_equal) {
  return hr_bool(hr_equal(m, self, args[0]));
}

HR_BUILTIN(is_unequal) {
  return hr_bool(!hr_equal(m, self, args[0]));
}

HR_BUILTIN(is_less) {
  return hr_bool(hr_compare(m, self, args[0]) < 0);
}

HR_BUILTIN(is_at_most) {
  return hr_bool(hr_compare(m, self, args[0]) <= 0);
}

HR_BUILTIN(is_greater) {
  return hr_bool(hr_compare(m, self, args[0]) > 0);
}

HR_BUILTIN(is_at_least) {
  return hr_bool(hr_compare(m, self, args[0]) >= 0);
}

HR_BUILTIN(is_in) {
  return hr_bool(hr_contains(m, args[0], self));
}

/* Constants are the same thing, and so are lists and dicts that share their memory. */
HR_BUILTIN(is_same) {
  hr_datum other = args[0];
  if (self.kind != other.kind) return hr_bool(false);
  if (hr_is_sequence(self)) return hr_bool(self.list == other.list);
  if (self.kind == HR_DICT) return hr_bool(self.dict == other.dict);
  return hr_bool(hr_equal(m, self, other));
}

/* All cased characters are as asked, and there is one. */
static hr_datum all_cased(hr_machine *m, hr_datum d, hr_case as) {
  hr_text text = hr_to_text(m, d);
  bool cased = false;
  size_t size;
  hr_machine_work(m, text.length);
  for (size_t i = 0; i < text.length; i += size)
    cased |= hr_is_cased(hr_code_point(text.bytes + i, text.length - i, &size));
  return hr_bool(cased && hr_text_equal(hr_change_case(m, text, as), text));
}

HR_BUILTIN(is_lower) {
  return all_cased(m, self, HR_LOWER);
}

HR_BUILTIN(is_upper) {
  return all_cased(m, self, HR_UPPER);
}

HR_BUILTIN(is_filter) {
  return hr_bool(self.kind == HR_TEXT_DATUM && hr_find_filter(self.text));
}

HR_BUILTIN(is_test) {
  return hr_bool(self.kind == HR_TEXT_DATUM && hr_find_test(self.text));
}

static const hr_builtin tests[] = {
    {"defined", is_defined, 0, ""},       {"undefined", is_undefined, 0, ""},
    {"none", is_none, 0, ""},             {"boolean", is_boolean, 0, ""},
    {"true", is_true, 0, ""},             {"false", is_false, 0, ""},
    {"integer", is_integer, 0, ""},       {"float", is_float, 0, ""},
    {"number", is_number, 0, ""},         {"string", is_string, 0, ""},
    {"mapping", is_mapping, 0, ""},       {"iterable", is_iterable, 0, ""},
    {"sequence", is_sequence, 0, ""},     {"callable", is_callable, 0, ""},
    {"even", is_even, 0, ""},             {"odd", is_odd, 0, ""},
    {"divisibleby", is_divisible, 1, "num"},
    {"eq", is_equal, 1, "other"},         {"equalto", is_equal, 1, "other"},
    {"==", is_equal, 1, "other"},         {"ne", is_unequal, 1, "other"},
    {"!=", is_unequal, 1, "other"},       {"lt", is_less, 1, "other"},
    {"lessthan", is_less, 1, "other"},    {"<", is_less, 1, "other"},
    {"le", is_at_most, 1, "other"},       {"<=", is_at_most, 1, "other"},
    {"gt", is_greater, 1, "other"},       {"greaterthan", is_greater, 1, "other"},
    {">", is_greater, 1, "other"},        {"ge", is_at_least, 1, "other"},
    {">=", is_at_least, 1, "other"},      {"in", is_in, 1, "seq"},
    {"sameas", is_same, 1, "other"},      {"lower", is_lower, 0, ""},
    {"upper", is_upper, 0, ""},           {"filter", is_filter, 0, ""},
    {"test", is_test, 0, ""},
};

const hr_builtin *hr_find_test(hr_text name) {
  return HR_FIND(tests, name);
}
