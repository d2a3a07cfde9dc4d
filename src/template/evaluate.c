/* SPDX-License-Identifier: MIT
 * Expressions. */
#include <math.h>
#include <string.h>

#include "template/builtins.h"
#include "template/node.h"

static const hr_datum missing = {.kind = HR_UNDEFINED};

hr_datum hr_fail_undefined(hr_machine *m, hr_datum d) {
  return hr_machine_fail(m, "'%.*s' is undefined", HR_SHOW(d.text));
}

/* --- Attributes and items ---------------------------------------------------------- */

static hr_datum method(hr_machine *m, const hr_builtin *builtin, hr_datum self) {
  hr_function *function = hr_machine_alloc(m, 1, sizeof *function);
  if (!function) return missing;
  *function = (hr_function){.builtin = builtin, .self = self};
  return (hr_datum){.kind = HR_FUNCTION, .function = function};
}

static hr_datum item_or_undefined(const hr_loop *loop, size_t index, const char *name) {
  if (index < loop->items->count) return loop->items->item[index];
  return hr_undefined((hr_text){.bytes = name, .length = strlen(name)});
}

static hr_datum cycler_attribute(hr_list *list, hr_text name, bool *found) {
  *found = true;
  if (hr_text_is(name, "current")) return list->item[list->next];
  if (hr_text_is(name, "pos")) return hr_int((int64_t)list->next);
  if (hr_text_is(name, "items")) return hr_list_datum(HR_TUPLE, list);
  *found = false;
  return missing;
}

static hr_datum loop_attribute(const hr_loop *loop, hr_text name, bool *found) {
  int64_t count = (int64_t)loop->items->count, index = (int64_t)loop->index;
  *found = true;
  if (hr_text_is(name, "index")) return hr_int(index + 1);
  if (hr_text_is(name, "index0")) return hr_int(index);
  if (hr_text_is(name, "revindex")) return hr_int(count - index);
  if (hr_text_is(name, "revindex0")) return hr_int(count - index - 1);
  if (hr_text_is(name, "first")) return hr_bool(index == 0);
  if (hr_text_is(name, "last")) return hr_bool(index + 1 == count);
  if (hr_text_is(name, "length")) return hr_int(count);
  if (hr_text_is(name, "depth")) return hr_int((int64_t)loop->depth + 1);
  if (hr_text_is(name, "depth0")) return hr_int((int64_t)loop->depth);
  if (hr_text_is(name, "previtem"))
    return item_or_undefined(loop, loop->index - 1, "there is no previous item");
  if (hr_text_is(name, "nextitem"))
    return item_or_undefined(loop, loop->index + 1, "there is no next item");
  *found = false;
  return missing;
}

/* What a loop or a cycler tells of itself. */
static hr_datum own_attribute(hr_datum d, hr_text name, bool *found) {
  *found = false;
  if (d.kind == HR_LOOP) return loop_attribute(d.loop, name, found);
  return d.kind == HR_CYCLER ? cycler_attribute(d.list, name, found) : missing;
}

/* A member, a character, an element; found tells whether there was one. */
static hr_datum find_item(hr_machine *m, hr_datum d, hr_datum index, bool *found) {
  *found = false;
  if (d.kind == HR_DICT || d.kind == HR_NAMESPACE) {
    if (index.kind == HR_LIST || index.kind == HR_DICT) return missing;
    const hr_datum *value = hr_dict_find(m, d.dict, index);
    *found = value != NULL;
    return value ? *value : missing;
  }
  bool whole = index.kind == HR_INT || index.kind == HR_BOOL;
  if (!whole || (d.kind != HR_TEXT_DATUM && !hr_is_sequence(d))) return missing;
  const hr_list *list = hr_elements(m, d);
  int64_t at = hr_truncate(m, index).integer, count = list ? (int64_t)list->count : 0;
  if (at < 0) at += count;
  *found = at >= 0 && at < count;
  return *found ? list->item[at] : missing;
}

/* What Jinja's sandbox hides is an error to use here. */
static hr_datum find_method(hr_machine *m, hr_datum d, hr_text name) {
  const hr_builtin *builtin = hr_find_method(d, name);
  return builtin ? method(m, builtin, d) : missing;
}

hr_datum hr_attribute(hr_machine *m, hr_datum d, hr_text name) {
  bool found;
  if (m->failed) return missing;
  if (d.kind == HR_UNDEFINED) return hr_fail_undefined(m, d);
  hr_datum value = own_attribute(d, name, &found);
  if (found) return value;
  value = find_method(m, d, name);
  if (value.kind != HR_UNDEFINED) return value;
  value = find_item(m, d, hr_text_datum(name), &found);
  return found ? value : hr_undefined(name);
}

hr_datum hr_item(hr_machine *m, hr_datum d, hr_datum index) {
  bool found;
  if (m->failed) return missing;
  if (d.kind == HR_UNDEFINED) return hr_fail_undefined(m, d);
  hr_datum value = find_item(m, d, index, &found);
  if (found) return value;
  hr_text name = index.kind == HR_TEXT_DATUM ? index.text : hr_to_text(m, index);
  if (index.kind != HR_TEXT_DATUM) return hr_undefined(name);
  value = own_attribute(d, name, &found);
  if (found) return value;
  value = find_method(m, d, name);
  return value.kind == HR_UNDEFINED ? hr_undefined(name) : value;
}

/* A bound of a slice: a whole number, or none for the default. */
static int64_t bound(hr_machine *m, const hr_node *node, int64_t otherwise) {
  if (!node) return otherwise;
  hr_datum d = hr_evaluate(m, node);
  if (d.kind == HR_NONE) return otherwise;
  if (d.kind == HR_INT || d.kind == HR_BOOL) return hr_truncate(m, d).integer;
  hr_machine_fail(m, "a slice needs whole numbers, not '%s'", hr_kind_name(d));
  return 0;
}

static int64_t clamp(int64_t at, int64_t count, int64_t low, int64_t high) {
  if (at < 0) at += count;
  return at < low ? low : at > high ? high : at;
}

/* Joins elements of a text's list again: they are parts of one text. */
static hr_datum slice_of(hr_machine *m, hr_datum d, const hr_list *list, int64_t from, int64_t to,
                         int64_t step) {
  hr_builder b = {.machine = m};
  hr_list *slice = hr_list_new(m, 0);
  while (!m->failed && (step > 0 ? from < to : from > to)) {
    if (d.kind == HR_TEXT_DATUM)
      hr_add_text(&b, list->item[from].text);
    else
      hr_list_add(m, slice, list->item[from]);
    if (__builtin_add_overflow(from, step, &from)) break;
  }
  if (d.kind == HR_TEXT_DATUM) return hr_text_datum(hr_built(&b));
  return hr_list_datum(d.kind, slice);
}

static hr_datum slice(hr_machine *m, hr_datum d, const hr_node *node) {
  if (d.kind == HR_UNDEFINED) return hr_fail_undefined(m, d);
  if (d.kind != HR_TEXT_DATUM && !hr_is_sequence(d))
    return hr_machine_fail(m, "a '%s' can't be sliced", hr_kind_name(d));
  const hr_list *list = hr_elements(m, d);
  int64_t count = list ? (int64_t)list->count : 0;
  int64_t step = bound(m, node->c, 1);
  if (step == 0) return hr_machine_fail(m, "the step of a slice is 0");
  bool up = step > 0;
  int64_t from = bound(m, node->a, up ? 0 : INT64_MAX), to;
  from = clamp(from, count, up ? 0 : -1, up ? count : count - 1);
  if (!node->b)
    to = up ? count : -1;
  else
    to = bound(m, node->b, up ? INT64_MAX : INT64_MIN);
  if (node->b) to = to == INT64_MIN ? -1 : clamp(to, count, up ? 0 : -1, up ? count : count - 1);
  return m->failed ? missing : slice_of(m, d, list, from, to, step);
}

/* --- Calls ------------------------------------------------------------------------------ */

/* Arguments of a node; those with names go to call->named. */
static hr_call evaluate_arguments(hr_machine *m, const hr_node *first) {
  size_t count = 0;
  for (const hr_node *n = first; n; n = n->next) count += n->kind != HR_NODE_NAMED;
  hr_datum *item = hr_machine_alloc(m, count, sizeof *item);
  hr_dict *named = NULL;
  hr_call call = {.item = item};
  for (const hr_node *n = first; n && item && !m->failed; n = n->next) {
    if (n->kind != HR_NODE_NAMED) {
      item[call.count++] = hr_evaluate(m, n);
      continue;
    }
    if (!named) named = hr_dict_new(m);
    hr_dict_set(m, named, hr_text_datum(n->text), hr_evaluate(m, n->a));
  }
  call.named = named;
  return call;
}

/* The i-th of names with spaces between; its length is 0 past the last. */
static hr_text parameter(const char *names, size_t i) {
  while (i-- > 0 && *names) {
    names += strcspn(names, " ");
    names += *names == ' ';
  }
  return (hr_text){.bytes = names, .length = strcspn(names, " ")};
}

static hr_datum bind_and_run(hr_machine *m, const hr_builtin *builtin, const char *what,
                             hr_datum self, const hr_call *call) {
  hr_datum args[HR_MOST_PARAMETERS];
  if (strcmp(builtin->parameters, "*") == 0) return builtin->run(m, self, NULL, call);
  size_t used = 0;
  for (size_t i = 0; i < HR_MOST_PARAMETERS; i++) {
    hr_text name = parameter(builtin->parameters, i);
    const hr_datum *named = name.length ? hr_dict_find_name(m, call->named, name) : NULL;
    args[i] = (hr_datum){.kind = HR_ABSENT};
    if (name.length && i < call->count) args[i] = call->item[i];
    else if (named) args[i] = *named;
    used += args[i].kind != HR_ABSENT;
    if (i < builtin->required && args[i].kind == HR_ABSENT)
      return hr_machine_fail(m, "%s '%s' needs the argument '%.*s'", what, builtin->name,
                             HR_SHOW(name));
  }
  if (used != call->count + (call->named ? call->named->count : 0))
    return hr_machine_fail(m, "%s '%s' does not take these arguments", what, builtin->name);
  return builtin->run(m, self, args, call);
}

/* map calls filters, map among them. */
hr_datum hr_call_builtin(hr_machine *m, const hr_builtin *builtin, const char *what, hr_datum self,
                         const hr_call *call) {
  if (!hr_machine_step(m, 0) || !hr_machine_enter(m)) return missing;
  hr_datum d = bind_and_run(m, builtin, what, self, call);
  hr_machine_leave(m);
  return d;
}

hr_datum hr_call_datum(hr_machine *m, hr_datum callee, const hr_call *call) {
  if (m->failed) return missing;
  switch (callee.kind) {
    case HR_FUNCTION:
      return hr_call_builtin(m, callee.function->builtin, "function", callee.function->self, call);
    case HR_MACRO: return hr_call_macro(m, callee.macro, call);
    case HR_LOOP: return hr_call_loop(m, callee.loop, call);
    case HR_UNDEFINED: return hr_fail_undefined(m, callee);
    default: return hr_machine_fail(m, "a '%s' can't be called", hr_kind_name(callee));
  }
}

static hr_datum call_node(hr_machine *m, const hr_node *node) {
  hr_datum callee = hr_evaluate(m, node->a);
  bool method_call = node->a->kind == HR_NODE_ATTRIBUTE;
  m->line = node->line;
  if (callee.kind == HR_UNDEFINED && !m->failed && method_call)
    return hr_machine_fail(m, "method '%.*s' is not there or not supported",
                           HR_SHOW(node->a->text));
  hr_call call = evaluate_arguments(m, node->items);
  m->line = node->line;
  return hr_call_datum(m, callee, &call);
}

static hr_datum filter_node(hr_machine *m, const hr_node *node) {
  hr_datum self = node->a ? hr_evaluate(m, node->a) : m->block;
  hr_call call = evaluate_arguments(m, node->items);
  m->line = node->line;
  return hr_call_builtin(m, hr_find_filter(node->text), "filter", self, &call);
}

static hr_datum test_node(hr_machine *m, const hr_node *node) {
  hr_datum self = hr_evaluate(m, node->a);
  hr_call call = evaluate_arguments(m, node->items);
  m->line = node->line;
  return hr_call_builtin(m, hr_find_test(node->text), "test", self, &call);
}

/* --- Operators ----------------------------------------------------------------------------- */

static hr_datum fail_operands(hr_machine *m, const char *op, hr_datum a, hr_datum b) {
  if (a.kind == HR_UNDEFINED) return hr_fail_undefined(m, a);
  if (b.kind == HR_UNDEFINED) return hr_fail_undefined(m, b);
  return hr_machine_fail(m, "'%s' is not possible between '%s' and '%s'", op, hr_kind_name(a),
                         hr_kind_name(b));
}

static hr_datum fail_overflow(hr_machine *m) {
  return hr_machine_fail(m, "a number is too large");
}

static int64_t floor_divide(int64_t a, int64_t b) {
  int64_t quotient = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

/* Of the sign of b. */
static int64_t floor_rest(int64_t a, int64_t b) {
  int64_t rest = a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

static hr_datum power(hr_machine *m, int64_t base, int64_t exponent) {
  int64_t result = 1;
  if (exponent < 0) return hr_machine_fail(m, "'**' with a negative exponent is not supported");
  if (base == 0 || base == 1) return hr_int(exponent ? base : 1);
  if (base == -1) return hr_int(exponent % 2 ? -1 : 1);
  for (; exponent > 0; exponent--)
    if (__builtin_mul_overflow(result, base, &result)) return fail_overflow(m);
  return hr_int(result);
}

static hr_datum integers(hr_machine *m, hr_operator op, int64_t a, int64_t b) {
  int64_t result = 0;
  bool overflow = false;
  bool divides = op == HR_OP_DIV || op == HR_OP_FLOOR_DIV || op == HR_OP_MOD;
  if (divides && b == 0) return hr_machine_fail(m, "division by zero");
  if (divides && b == -1 && a == INT64_MIN) return fail_overflow(m);
  switch (op) {
    case HR_OP_ADD: overflow = __builtin_add_overflow(a, b, &result); break;
    case HR_OP_SUB: overflow = __builtin_sub_overflow(a, b, &result); break;
    case HR_OP_MUL: overflow = __builtin_mul_overflow(a, b, &result); break;
    case HR_OP_DIV: return hr_real((double)a / (double)b);
    case HR_OP_FLOOR_DIV: return hr_int(floor_divide(a, b));
    case HR_OP_MOD: return hr_int(floor_rest(a, b));
    default: return power(m, a, b);
  }
  return overflow ? fail_overflow(m) : hr_int(result);
}

static hr_datum reals(hr_machine *m, hr_operator op, double a, double b) {
  bool divides = op == HR_OP_DIV || op == HR_OP_FLOOR_DIV || op == HR_OP_MOD;
  if (divides && b == 0) return hr_machine_fail(m, "division by zero");
  switch (op) {
    case HR_OP_ADD: return hr_real(a + b);
    case HR_OP_SUB: return hr_real(a - b);
    case HR_OP_MUL: return hr_real(a * b);
    case HR_OP_DIV: return hr_real(a / b);
    case HR_OP_FLOOR_DIV: return hr_real(floor(a / b));
    case HR_OP_MOD: {
      double rest = fmod(a, b);
      return hr_real(rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest);
    }
    default: return hr_machine_fail(m, "'**' with a float is not supported");
  }
}

static hr_datum repeat(hr_machine *m, hr_datum d, hr_datum times) {
  hr_builder b = {.machine = m};
  hr_list *list = hr_list_new(m, 0);
  int64_t n = hr_truncate(m, times).integer;
  for (; n > 0 && hr_machine_step(m, 0); n--) {
    if (d.kind == HR_TEXT_DATUM) {
      if (d.text.length == 0) break;
      hr_add_text(&b, d.text);
    } else {
      if (d.list->count == 0) break;
      for (size_t i = 0; i < d.list->count; i++) hr_list_add(m, list, d.list->item[i]);
    }
  }
  return d.kind == HR_TEXT_DATUM ? hr_text_datum(hr_built(&b)) : hr_list_datum(d.kind, list);
}

static hr_datum add_lists(hr_machine *m, hr_datum a, hr_datum b) {
  hr_list *list = hr_list_new(m, a.list->count + b.list->count);
  for (size_t i = 0; i < a.list->count && !m->failed; i++) hr_list_add(m, list, a.list->item[i]);
  for (size_t i = 0; i < b.list->count && !m->failed; i++) hr_list_add(m, list, b.list->item[i]);
  return hr_list_datum(a.kind, list);
}

static bool is_repeatable(hr_datum d) {
  return d.kind == HR_TEXT_DATUM || hr_is_sequence(d);
}

static hr_datum binary(hr_machine *m, hr_operator op, hr_datum a, hr_datum b) {
  static const char *const names[] = {[HR_OP_ADD] = "+", [HR_OP_SUB] = "-", [HR_OP_MUL] = "*",
                                      [HR_OP_DIV] = "/", [HR_OP_FLOOR_DIV] = "//",
                                      [HR_OP_MOD] = "%", [HR_OP_POW] = "**"};
  if (hr_is_number(a) && hr_is_number(b)) {
    if (a.kind == HR_REAL || b.kind == HR_REAL) return reals(m, op, hr_number(a), hr_number(b));
    return integers(m, op, hr_truncate(m, a).integer, hr_truncate(m, b).integer);
  }
  if (op == HR_OP_ADD && a.kind == HR_TEXT_DATUM && b.kind == HR_TEXT_DATUM)
    return hr_text_datum(hr_concat(m, a.text, b.text));
  if (op == HR_OP_ADD && a.kind == b.kind && hr_is_sequence(a)) return add_lists(m, a, b);
  if (op == HR_OP_MOD && a.kind == HR_TEXT_DATUM) return hr_percent(m, a.text, b);
  if (op == HR_OP_MUL && is_repeatable(a) && hr_is_whole(b)) return repeat(m, a, b);
  if (op == HR_OP_MUL && is_repeatable(b) && hr_is_whole(a)) return repeat(m, b, a);
  return fail_operands(m, names[op], a, b);
}

static bool holds(hr_machine *m, hr_operator op, hr_datum a, hr_datum b) {
  switch (op) {
    case HR_OP_EQ: return hr_equal(m, a, b);
    case HR_OP_NE: return !hr_equal(m, a, b);
    case HR_OP_IN: return hr_contains(m, b, a);
    case HR_OP_NOT_IN: return !hr_contains(m, b, a);
    default: break;
  }
  int order = hr_compare(m, a, b);
  bool real = a.kind == HR_REAL || b.kind == HR_REAL;
  if (real && (isnan(hr_number(a)) || isnan(hr_number(b)))) return false;
  switch (op) {
    case HR_OP_LT: return order < 0;
    case HR_OP_LE: return order <= 0;
    case HR_OP_GT: return order > 0;
    default: return order >= 0;
  }
}

/* a < b < c: each is evaluated once, and none behind one that fails to hold. */
static hr_datum compare_node(hr_machine *m, const hr_node *node) {
  hr_datum left = hr_evaluate(m, node->a);
  for (const hr_node *n = node->items; n; n = n->next) {
    hr_datum right = hr_evaluate(m, n->a);
    m->line = n->line;
    if (m->failed || !holds(m, n->op, left, right)) return hr_bool(false);
    left = right;
  }
  return hr_bool(true);
}

static hr_datum sign(hr_machine *m, const hr_node *node) {
  hr_datum d = hr_evaluate(m, node->a);
  if (m->failed) return missing;
  if (!hr_is_number(d)) {
    if (d.kind == HR_UNDEFINED) return hr_fail_undefined(m, d);
    return hr_machine_fail(m, "a '%s' has no sign", hr_kind_name(d));
  }
  if (d.kind != HR_REAL) d = hr_truncate(m, d);
  if (node->kind == HR_NODE_PLUS) return d;
  if (d.kind == HR_REAL) return hr_real(-d.real);
  return integers(m, HR_OP_SUB, 0, d.integer);
}

/* --- Everything else -------------------------------------------------------------------------- */

static hr_datum sequence_node(hr_machine *m, const hr_node *node) {
  hr_list *list = hr_list_new(m, 0);
  for (const hr_node *n = node->items; n && !m->failed; n = n->next)
    hr_list_add(m, list, hr_evaluate(m, n));
  return hr_list_datum(node->kind == HR_NODE_TUPLE ? HR_TUPLE : HR_LIST, list);
}

static hr_datum dict_node(hr_machine *m, const hr_node *node) {
  hr_dict *dict = hr_dict_new(m);
  for (const hr_node *n = node->items; n && !m->failed; n = n->next->next) {
    hr_datum key = hr_evaluate(m, n);
    hr_dict_set(m, dict, key, hr_evaluate(m, n->next));
  }
  return dict ? (hr_datum){.kind = HR_DICT, .dict = dict} : missing;
}

static hr_datum name_node(hr_machine *m, const hr_node *node) {
  const hr_datum *value = hr_scope_find(m, m->scope, node->text);
  if (value) return *value;
  const hr_builtin *global = hr_find_global(node->text);
  if (global) return method(m, global, missing);
  if (m->scope && m->scope->in_macro &&
      (hr_text_is(node->text, "varargs") || hr_text_is(node->text, "kwargs")))
    return hr_machine_fail(m, "'%.*s' of a macro is not supported", HR_SHOW(node->text));
  return hr_undefined(node->text);
}

static hr_datum index_node(hr_machine *m, const hr_node *node) {
  hr_datum d = hr_evaluate(m, node->a);
  if (node->b->kind == HR_NODE_SLICE) return m->failed ? missing : slice(m, d, node->b);
  hr_datum index = hr_evaluate(m, node->b);
  m->line = node->line;
  return hr_item(m, d, index);
}

static hr_datum attribute_node(hr_machine *m, const hr_node *node) {
  hr_datum d = hr_evaluate(m, node->a);
  m->line = node->line;
  return hr_attribute(m, d, node->text);
}

static hr_datum condition_node(hr_machine *m, const hr_node *node) {
  if (hr_truth(hr_evaluate(m, node->a))) return hr_evaluate(m, node->b);
  return node->c ? hr_evaluate(m, node->c) : hr_undefined(HR_TEXT("an 'if' without 'else'"));
}

static hr_datum logic_node(hr_machine *m, const hr_node *node) {
  hr_datum left = hr_evaluate(m, node->a);
  bool decided = hr_truth(left) == (node->kind == HR_NODE_OR);
  return decided ? left : hr_evaluate(m, node->b);
}

static hr_datum binary_node(hr_machine *m, const hr_node *node) {
  hr_datum a = hr_evaluate(m, node->a), b = hr_evaluate(m, node->b);
  m->line = node->line;
  if (m->failed) return missing;
  if (node->kind == HR_NODE_CONCAT)
    return hr_text_datum(hr_concat(m, hr_to_text(m, a), hr_to_text(m, b)));
  return binary(m, node->op, a, b);
}

static hr_datum evaluate(hr_machine *m, const hr_node *node) {
  switch (node->kind) {
    case HR_NODE_LITERAL: return node->value;
    case HR_NODE_NAME: return name_node(m, node);
    case HR_NODE_LIST:
    case HR_NODE_TUPLE: return sequence_node(m, node);
    case HR_NODE_DICT: return dict_node(m, node);
    case HR_NODE_ATTRIBUTE: return attribute_node(m, node);
    case HR_NODE_INDEX: return index_node(m, node);
    case HR_NODE_CALL: return call_node(m, node);
    case HR_NODE_FILTER: return filter_node(m, node);
    case HR_NODE_TEST: return test_node(m, node);
    case HR_NODE_NOT: return hr_bool(!hr_truth(hr_evaluate(m, node->a)));
    case HR_NODE_NEGATE:
    case HR_NODE_PLUS: return sign(m, node);
    case HR_NODE_BINARY:
    case HR_NODE_CONCAT: return binary_node(m, node);
    case HR_NODE_AND:
    case HR_NODE_OR: return logic_node(m, node);
    case HR_NODE_COMPARE: return compare_node(m, node);
    case HR_NODE_CONDITION: return condition_node(m, node);
    default: return missing; /* statements are not evaluated */
  }
}

hr_datum hr_evaluate(hr_machine *m, const hr_node *node) {
  if (!hr_machine_step(m, 0)) return missing;
  m->line = node->line;
  if (!hr_machine_enter(m)) return missing;
  hr_datum d = evaluate(m, node);
  hr_machine_leave(m);
  return m->failed ? missing : d;
}
