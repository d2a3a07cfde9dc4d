/* SPDX-License-Identifier: MIT
 * From lexemes to nodes. The grammar is Jinja's. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "template/node.h"

enum { PARSED_MEMORY = 64 << 20 };

typedef struct parser {
  hr_chat_template *t;
  const hr_lexeme *at;
  hr_error *err;
  hr_status status;
  unsigned depth;
  unsigned loops; /* around the current place, inside the same macro */
} parser;

hr_status hr_template_fail(const hr_chat_template *t, uint32_t line, hr_error *err,
                           const char *format, ...) {
  char what[300];
  va_list args;
  va_start(args, format);
  vsnprintf(what, sizeof what, format, args);
  va_end(args);
  return hr_fail(err, HR_ERROR_FILE, "%s, line %u: %s", t->name, line, what);
}

hr_status hr_template_fail_memory(const hr_chat_template *t, hr_error *err) {
  if (t->arena.over_limit)
    return hr_fail(err, HR_ERROR_FILE, "%s: needs more than %d MiB when parsed", t->name,
                   PARSED_MEMORY >> 20);
  return hr_fail(err, HR_ERROR_MEMORY, "%s: no memory to parse it", t->name);
}

/* --- Small steps -------------------------------------------------------------------- */

/* What a lexeme looks like in a message. */
static const char *show(const hr_lexeme *l, char buffer[80]) {
  static const char *const operators[] = {
      "",  "+", "-", "*",  "/",      "//", "%", "**", "~", "==", "!=", "<", "<=", ">", ">=",
      "in", "not in", "=", ".", ":", "|",  ",", ";",  "(", ")",  "[",  "]", "{",  "}"};
  switch (l->kind) {
    case HR_LEX_NAME: snprintf(buffer, 80, "'%.*s'", HR_SHOW(l->text)); return buffer;
    case HR_LEX_OPERATOR: snprintf(buffer, 80, "'%s'", operators[l->op]); return buffer;
    case HR_LEX_STRING: return "a string";
    case HR_LEX_INTEGER:
    case HR_LEX_REAL: return "a number";
    case HR_LEX_END: return "the end of the template";
    default: return "the end of the tag";
  }
}

static void fail(parser *p, const char *what, const char *expected) {
  char buffer[80];
  if (p->status != HR_OK) return;
  p->status = hr_template_fail(p->t, p->at->line, p->err, "%s%s, expected %s", what,
                               show(p->at, buffer), expected);
}

static void fail_plain(parser *p, const char *what) {
  if (p->status == HR_OK) p->status = hr_template_fail(p->t, p->at->line, p->err, "%s", what);
}

/* NULL after a failure. */
static hr_node *new_node(parser *p, hr_node_kind kind) {
  hr_node *node = p->status == HR_OK ? hr_arena_alloc(&p->t->arena, sizeof *node) : NULL;
  if (!node) {
    if (p->status == HR_OK) p->status = hr_template_fail_memory(p->t, p->err);
    return NULL;
  }
  node->kind = kind;
  node->line = p->at->line;
  return node;
}

/* A node over one or two others. */
static hr_node *join(parser *p, hr_node_kind kind, hr_operator op, hr_node *a, hr_node *b) {
  hr_node *node = new_node(p, kind);
  if (!node) return NULL;
  if (a) node->line = a->line;
  node->op = op;
  node->a = a;
  node->b = b;
  return node;
}

static bool is_op(const parser *p, hr_operator op) {
  return p->at->kind == HR_LEX_OPERATOR && p->at->op == op;
}

static bool is_name(const parser *p, const char *name) {
  return p->at->kind == HR_LEX_NAME && hr_text_is(p->at->text, name);
}

/* The last lexeme is never passed. */
static void next(parser *p) {
  if (p->at->kind != HR_LEX_END) p->at++;
}

static bool skip_op(parser *p, hr_operator op) {
  bool there = p->status == HR_OK && is_op(p, op);
  if (there) next(p);
  return there;
}

static bool skip_name(parser *p, const char *name) {
  bool there = p->status == HR_OK && is_name(p, name);
  if (there) next(p);
  return there;
}

static void expect_op(parser *p, hr_operator op, const char *shown) {
  if (!skip_op(p, op)) fail(p, "found ", shown);
}

static hr_text expect_name(parser *p, const char *what) {
  hr_text text = p->at->text;
  if (p->at->kind != HR_LEX_NAME) {
    fail(p, "found ", what);
    return (hr_text){0};
  }
  next(p);
  return text;
}

static bool enter(parser *p) {
  if (p->depth == HR_TEMPLATE_NESTING) fail_plain(p, "is nested too deeply");
  if (p->status == HR_OK) p->depth++;
  return p->status == HR_OK;
}

/* Chains nodes. */
typedef struct chain {
  hr_node *first, *last;
} chain;

static void append(chain *c, hr_node *node) {
  if (!node) return;
  if (c->last)
    c->last->next = node;
  else
    c->first = node;
  c->last = node;
}

/* --- Expressions ----------------------------------------------------------------------- */

static hr_node *parse_expression(parser *p);
static hr_node *parse_or(parser *p);
static hr_node *parse_postfix(parser *p, hr_node *node);
static hr_node *parse_tuple(parser *p, bool conditions, bool parentheses, const char *end);

static hr_node *parse_list(parser *p, hr_operator close, const char *shown) {
  chain items = {0};
  hr_node *node = new_node(p, HR_NODE_LIST);
  next(p);
  while (p->status == HR_OK && !is_op(p, close)) {
    append(&items, parse_expression(p));
    if (!is_op(p, close)) expect_op(p, HR_OP_COMMA, shown);
  }
  expect_op(p, close, shown);
  if (node) node->items = items.first;
  return node;
}

static hr_node *parse_dict(parser *p) {
  chain items = {0};
  hr_node *node = new_node(p, HR_NODE_DICT);
  next(p);
  while (p->status == HR_OK && !is_op(p, HR_OP_RBRACE)) {
    append(&items, parse_expression(p));
    expect_op(p, HR_OP_COLON, "':'");
    append(&items, parse_expression(p));
    if (!is_op(p, HR_OP_RBRACE)) expect_op(p, HR_OP_COMMA, "',' or '}'");
  }
  expect_op(p, HR_OP_RBRACE, "'}'");
  if (node) node->items = items.first;
  return node;
}

static hr_node *parse_name(parser *p) {
  hr_text text = p->at->text;
  hr_node *node = new_node(p, HR_NODE_LITERAL);
  next(p);
  if (!node) return NULL;
  if (hr_text_is(text, "true") || hr_text_is(text, "True")) {
    node->value = hr_bool(true);
  } else if (hr_text_is(text, "false") || hr_text_is(text, "False")) {
    node->value = hr_bool(false);
  } else if (hr_text_is(text, "none") || hr_text_is(text, "None")) {
    node->value = hr_none();
  } else {
    node->kind = HR_NODE_NAME;
    node->text = text;
  }
  return node;
}

/* Strings that stand side by side are one. */
static hr_node *parse_string(parser *p) {
  hr_node *node = new_node(p, HR_NODE_LITERAL);
  size_t length = 0, used = 0;
  const hr_lexeme *end = p->at;
  for (; end->kind == HR_LEX_STRING; end++) length += end->text.length;
  char *bytes = p->status == HR_OK ? hr_arena_alloc(&p->t->arena, length + 1) : NULL;
  if (!node || !bytes) {
    if (p->status == HR_OK) p->status = hr_template_fail_memory(p->t, p->err);
    return NULL;
  }
  for (; p->at < end; p->at++) {
    memcpy(bytes + used, p->at->text.bytes, p->at->text.length);
    used += p->at->text.length;
  }
  node->value = hr_text_datum((hr_text){.bytes = bytes, .length = length});
  return node;
}

static hr_node *parse_primary(parser *p) {
  hr_node *node = NULL;
  switch (p->at->kind) {
    case HR_LEX_NAME: return parse_name(p);
    case HR_LEX_STRING: return parse_string(p);
    case HR_LEX_INTEGER:
    case HR_LEX_REAL:
      node = new_node(p, HR_NODE_LITERAL);
      if (node) node->value = p->at->value;
      next(p);
      return node;
    default: break;
  }
  if (is_op(p, HR_OP_LBRACKET)) return parse_list(p, HR_OP_RBRACKET, "',' or ']'");
  if (is_op(p, HR_OP_LBRACE)) return parse_dict(p);
  if (skip_op(p, HR_OP_LPAREN)) {
    node = parse_tuple(p, true, true, NULL);
    expect_op(p, HR_OP_RPAREN, "')'");
    return node;
  }
  fail(p, "found ", "an expression");
  return NULL;
}

/* The arguments of a call, behind its "(". */
static hr_node *parse_arguments(parser *p) {
  chain items = {0};
  bool named = false;
  next(p);
  while (p->status == HR_OK && !is_op(p, HR_OP_RPAREN)) {
    if (is_op(p, HR_OP_MUL) || is_op(p, HR_OP_POW))
      fail_plain(p, "'*' and '**' before an argument are not supported");
    if (p->at->kind == HR_LEX_NAME && p->at[1].kind == HR_LEX_OPERATOR &&
        p->at[1].op == HR_OP_ASSIGN) {
      hr_node *node = new_node(p, HR_NODE_NAMED);
      hr_text name = p->at->text;
      p->at += 2;
      hr_node *value = parse_expression(p);
      if (node) {
        node->text = name;
        node->a = value;
      }
      append(&items, node);
      named = true;
    } else {
      if (named) fail_plain(p, "an argument without a name follows one with a name");
      append(&items, parse_expression(p));
    }
    if (!is_op(p, HR_OP_RPAREN)) expect_op(p, HR_OP_COMMA, "',' or ')'");
  }
  expect_op(p, HR_OP_RPAREN, "')'");
  return items.first;
}

static hr_node *parse_call(parser *p, hr_node *callee) {
  hr_node *node = join(p, HR_NODE_CALL, HR_OP_NONE, callee, NULL);
  hr_node *items = parse_arguments(p);
  if (node) node->items = items;
  return node;
}

/* What stands in brackets: an index or start:stop:step. */
static hr_node *parse_subscript(parser *p) {
  hr_node *part[3] = {NULL};
  bool slice = false;
  for (size_t i = 0; i < 3; i++) {
    if (!is_op(p, HR_OP_COLON) && !is_op(p, HR_OP_RBRACKET)) part[i] = parse_expression(p);
    if (!skip_op(p, HR_OP_COLON)) break;
    slice = true;
  }
  if (!slice) {
    if (!part[0]) fail(p, "found ", "an index");
    return part[0];
  }
  hr_node *node = join(p, HR_NODE_SLICE, HR_OP_NONE, part[0], part[1]);
  if (node) node->c = part[2];
  return node;
}

static hr_node *parse_attribute(parser *p, hr_node *of) {
  hr_node *node = join(p, HR_NODE_ATTRIBUTE, HR_OP_NONE, of, NULL);
  if (p->at->kind == HR_LEX_INTEGER) {
    hr_node *index = parse_primary(p);
    if (node) {
      node->kind = HR_NODE_INDEX;
      node->b = index;
    }
    return node;
  }
  hr_text name = expect_name(p, "a name after '.'");
  if (node) node->text = name;
  return node;
}

static hr_node *parse_postfix(parser *p, hr_node *node) {
  while (p->status == HR_OK) {
    if (skip_op(p, HR_OP_DOT)) {
      node = parse_attribute(p, node);
    } else if (skip_op(p, HR_OP_LBRACKET)) {
      hr_node *index = parse_subscript(p);
      expect_op(p, HR_OP_RBRACKET, "']'");
      node = join(p, HR_NODE_INDEX, HR_OP_NONE, node, index);
    } else if (is_op(p, HR_OP_LPAREN)) {
      node = parse_call(p, node);
    } else {
      break;
    }
  }
  return node;
}

/* A name of a filter or test, which must be known. */
static hr_node *parse_named(parser *p, hr_node_kind kind, hr_node *of) {
  hr_node *node = join(p, kind, HR_OP_NONE, of, NULL);
  hr_text name = p->at->text;
  bool filter = kind == HR_NODE_FILTER;
  if (node) node->line = p->at->line;
  if (p->at->kind == HR_LEX_NAME && p->status == HR_OK &&
      !(filter ? hr_find_filter(name) : hr_find_test(name)))
    p->status = hr_template_fail(p->t, p->at->line, p->err, "%s '%.*s' is not supported",
                                 filter ? "filter" : "test", HR_SHOW(name));
  expect_name(p, filter ? "the name of a filter" : "the name of a test");
  if (node) node->text = name;
  return node;
}

static hr_node *parse_filter(parser *p, hr_node *of) {
  hr_node *node = parse_named(p, HR_NODE_FILTER, of);
  hr_node *items = is_op(p, HR_OP_LPAREN) ? parse_arguments(p) : NULL;
  if (node) node->items = items;
  return node;
}

/* "is divisibleby 3": one argument may stand there without parentheses. */
static bool starts_argument(const parser *p) {
  switch (p->at->kind) {
    case HR_LEX_NAME: return !is_name(p, "else") && !is_name(p, "or") && !is_name(p, "and");
    case HR_LEX_STRING:
    case HR_LEX_INTEGER:
    case HR_LEX_REAL: return true;
    default: return is_op(p, HR_OP_LBRACKET) || is_op(p, HR_OP_LBRACE);
  }
}

static hr_node *parse_test(parser *p, hr_node *of) {
  bool negated = skip_name(p, "not");
  hr_node *node = parse_named(p, HR_NODE_TEST, of), *items = NULL;
  if (is_op(p, HR_OP_LPAREN)) {
    items = parse_arguments(p);
  } else if (p->status == HR_OK && starts_argument(p)) {
    if (is_name(p, "is")) fail_plain(p, "tests with 'is' can't be chained");
    items = parse_postfix(p, parse_primary(p));
  }
  if (node) node->items = items;
  return negated ? join(p, HR_NODE_NOT, HR_OP_NONE, node, NULL) : node;
}

static hr_node *parse_filters(parser *p, hr_node *node) {
  while (p->status == HR_OK) {
    if (skip_op(p, HR_OP_PIPE))
      node = parse_filter(p, node);
    else if (skip_name(p, "is"))
      node = parse_test(p, node);
    else if (is_op(p, HR_OP_LPAREN))
      node = parse_call(p, node);
    else
      break;
  }
  return node;
}

static hr_node *parse_unary(parser *p, bool filters) {
  hr_node *node = NULL;
  if (!enter(p)) return NULL;
  if (skip_op(p, HR_OP_SUB))
    node = join(p, HR_NODE_NEGATE, HR_OP_NONE, parse_unary(p, false), NULL);
  else if (skip_op(p, HR_OP_ADD))
    node = join(p, HR_NODE_PLUS, HR_OP_NONE, parse_unary(p, false), NULL);
  else
    node = parse_primary(p);
  node = parse_postfix(p, node);
  if (filters) node = parse_filters(p, node);
  p->depth--;
  return node;
}

/* Operators by how tightly they bind, loosest first. */
enum { LEVEL_ADD, LEVEL_CONCAT, LEVEL_MUL, LEVEL_POW, LEVELS };
static const hr_operator level_operators[LEVELS][5] = {
    {HR_OP_ADD, HR_OP_SUB},
    {HR_OP_CONCAT},
    {HR_OP_MUL, HR_OP_DIV, HR_OP_FLOOR_DIV, HR_OP_MOD},
    {HR_OP_POW},
};

static hr_operator operator_of_level(const parser *p, unsigned level) {
  for (const hr_operator *op = level_operators[level]; *op != HR_OP_NONE; op++)
    if (is_op(p, *op)) return *op;
  return HR_OP_NONE;
}

static hr_node *parse_math(parser *p, unsigned level) {
  if (level == LEVELS) return parse_unary(p, true);
  hr_node *left = parse_math(p, level + 1);
  hr_operator op;
  while (p->status == HR_OK && (op = operator_of_level(p, level)) != HR_OP_NONE) {
    next(p);
    hr_node *right = parse_math(p, level + 1);
    left = join(p, op == HR_OP_CONCAT ? HR_NODE_CONCAT : HR_NODE_BINARY, op, left, right);
  }
  return left;
}

static hr_operator comparison(parser *p) {
  if (p->at->kind == HR_LEX_OPERATOR && p->at->op >= HR_OP_EQ && p->at->op <= HR_OP_GE) {
    hr_operator op = p->at->op;
    next(p);
    return op;
  }
  if (skip_name(p, "in")) return HR_OP_IN;
  if (is_name(p, "not") && p->at[1].kind == HR_LEX_NAME && hr_text_is(p->at[1].text, "in")) {
    p->at += 2;
    return HR_OP_NOT_IN;
  }
  return HR_OP_NONE;
}

static hr_node *parse_compare(parser *p) {
  hr_node *left = parse_math(p, 0);
  chain operands = {0};
  hr_operator op;
  while (p->status == HR_OK && (op = comparison(p)) != HR_OP_NONE) {
    hr_node *right = parse_math(p, 0);
    append(&operands, join(p, HR_NODE_OPERAND, op, right, NULL));
  }
  if (!operands.first) return left;
  hr_node *node = join(p, HR_NODE_COMPARE, HR_OP_NONE, left, NULL);
  if (node) node->items = operands.first;
  return node;
}

static hr_node *parse_not(parser *p) {
  if (!is_name(p, "not")) return parse_compare(p);
  if (!enter(p)) return NULL;
  next(p);
  hr_node *node = join(p, HR_NODE_NOT, HR_OP_NONE, parse_not(p), NULL);
  p->depth--;
  return node;
}

static hr_node *parse_and(parser *p) {
  hr_node *left = parse_not(p);
  while (skip_name(p, "and")) {
    hr_node *right = parse_not(p);
    left = join(p, HR_NODE_AND, HR_OP_NONE, left, right);
  }
  return left;
}

static hr_node *parse_or(parser *p) {
  hr_node *left = parse_and(p);
  while (skip_name(p, "or")) {
    hr_node *right = parse_and(p);
    left = join(p, HR_NODE_OR, HR_OP_NONE, left, right);
  }
  return left;
}

static hr_node *parse_expression(parser *p) {
  if (!enter(p)) return NULL;
  hr_node *value = parse_or(p);
  while (skip_name(p, "if")) {
    hr_node *test = parse_or(p);
    hr_node *other = skip_name(p, "else") ? parse_expression(p) : NULL;
    hr_node *node = join(p, HR_NODE_CONDITION, HR_OP_NONE, test, value);
    if (node) node->c = other;
    value = node;
  }
  p->depth--;
  return value;
}

static bool ends_tuple(const parser *p, const char *end) {
  return p->at->kind == HR_LEX_PRINT_END || p->at->kind == HR_LEX_BLOCK_END ||
         is_op(p, HR_OP_RPAREN) || (end && is_name(p, end));
}

/* One expression, or several with commas between them: a tuple. */
static hr_node *parse_tuple(parser *p, bool conditions, bool parentheses, const char *end) {
  chain items = {0};
  bool tuple = false;
  hr_node *node = new_node(p, HR_NODE_TUPLE);
  while (p->status == HR_OK && !ends_tuple(p, end)) {
    append(&items, conditions ? parse_expression(p) : parse_or(p));
    if (!skip_op(p, HR_OP_COMMA)) break;
    tuple = true;
  }
  if (!tuple && items.first) return items.first;
  if (!tuple && !parentheses) fail(p, "found ", "an expression");
  if (node) node->items = items.first;
  return node;
}

/* --- Statements ---------------------------------------------------------------------------- */

static hr_node *parse_body(parser *p, const char *const *ends);
#define BODY(p, ...) parse_body((p), (const char *const[]){__VA_ARGS__, NULL})

static void end_tag(parser *p) {
  if (p->status != HR_OK) return;
  if (p->at->kind != HR_LEX_BLOCK_END) fail(p, "found ", "the end of the tag");
  next(p);
}

/* Past an ending tag whose name the body has stopped at. */
static void skip_end(parser *p) {
  next(p);
  end_tag(p);
}

/* A name, several in a tuple, or an attribute of a namespace. */
static hr_node *parse_target(parser *p, bool attributes) {
  chain names = {0};
  bool tuple = false;
  hr_node *node = new_node(p, HR_NODE_TUPLE);
  if (!enter(p)) return NULL;
  while (p->status == HR_OK) {
    hr_node *target;
    if (skip_op(p, HR_OP_LPAREN)) {
      target = parse_target(p, attributes);
      expect_op(p, HR_OP_RPAREN, "')'");
    } else {
      if (p->at->kind != HR_LEX_NAME) fail(p, "can't set ", "a name");
      target = parse_name(p);
      if (target && target->kind != HR_NODE_NAME) fail_plain(p, "a constant can't be set");
      if (attributes && skip_op(p, HR_OP_DOT)) target = parse_attribute(p, target);
    }
    append(&names, target);
    if (!skip_op(p, HR_OP_COMMA)) break;
    tuple = true;
    if (p->at->kind == HR_LEX_BLOCK_END || is_op(p, HR_OP_ASSIGN) || is_op(p, HR_OP_RPAREN) ||
        is_name(p, "in"))
      break;
  }
  p->depth--;
  if (!tuple) return names.first;
  if (node) node->items = names.first;
  return node;
}

static hr_node *parse_set(parser *p) {
  hr_node *node = new_node(p, HR_NODE_SET);
  hr_node *target = parse_target(p, true), *value = NULL, *body = NULL;
  bool block = !skip_op(p, HR_OP_ASSIGN);
  if (!block) {
    value = parse_tuple(p, true, false, NULL);
  } else {
    while (skip_op(p, HR_OP_PIPE)) value = parse_filter(p, value);
    end_tag(p);
    body = BODY(p, "endset");
    next(p);
  }
  if (!node) return NULL;
  if (block) node->kind = HR_NODE_SET_BLOCK;
  node->a = target;
  node->b = value;
  node->body = body;
  return node;
}

/* Behind "if" or "elif", to the end of "endif". */
static hr_node *parse_if(parser *p) {
  hr_node *node = new_node(p, HR_NODE_IF), *other = NULL;
  if (!enter(p)) return NULL;
  hr_node *test = parse_tuple(p, false, false, NULL);
  end_tag(p);
  hr_node *body = BODY(p, "elif", "else", "endif");
  if (skip_name(p, "elif")) {
    other = parse_if(p);
  } else if (is_name(p, "else")) {
    skip_end(p);
    other = BODY(p, "endif");
    next(p);
  } else {
    next(p);
  }
  p->depth--;
  if (!node) return NULL;
  node->a = test;
  node->body = body;
  node->other = other;
  return node;
}

static hr_node *parse_for(parser *p) {
  hr_node *node = new_node(p, HR_NODE_FOR), *other = NULL;
  hr_node *target = parse_target(p, false);
  if (!skip_name(p, "in")) fail(p, "found ", "'in'");
  hr_node *items = parse_tuple(p, false, false, "recursive");
  hr_node *condition = skip_name(p, "if") ? parse_expression(p) : NULL;
  bool recursive = skip_name(p, "recursive");
  end_tag(p);
  p->loops++;
  hr_node *body = BODY(p, "endfor", "else");
  p->loops--;
  if (is_name(p, "else")) {
    skip_end(p);
    other = BODY(p, "endfor");
  }
  next(p);
  if (!node) return NULL;
  node->a = target;
  node->b = items;
  node->c = condition;
  node->recursive = recursive;
  node->body = body;
  node->other = other;
  return node;
}

/* "(a, b=1)" of a macro. */
static hr_node *parse_parameters(parser *p) {
  chain items = {0};
  bool defaults = false;
  expect_op(p, HR_OP_LPAREN, "'('");
  while (p->status == HR_OK && !is_op(p, HR_OP_RPAREN)) {
    hr_node *node = new_node(p, HR_NODE_NAMED);
    hr_text name = expect_name(p, "the name of a parameter");
    bool given = skip_op(p, HR_OP_ASSIGN);
    hr_node *value = given ? parse_expression(p) : NULL;
    if (defaults && !given) fail_plain(p, "a parameter without a default follows one with one");
    defaults = given;
    if (node) {
      node->text = name;
      node->a = value;
    }
    append(&items, node);
    if (!is_op(p, HR_OP_RPAREN)) expect_op(p, HR_OP_COMMA, "',' or ')'");
  }
  expect_op(p, HR_OP_RPAREN, "')'");
  return items.first;
}

/* The body of a macro or call: loops around it are not its own. */
static hr_node *parse_function_body(parser *p, const char *end) {
  unsigned loops = p->loops;
  p->loops = 0;
  end_tag(p);
  hr_node *body = BODY(p, end);
  next(p);
  p->loops = loops;
  return body;
}

static hr_node *parse_macro(parser *p) {
  hr_node *node = new_node(p, HR_NODE_MACRO);
  hr_text name = expect_name(p, "the name of a macro");
  hr_node *parameters = parse_parameters(p);
  hr_node *body = parse_function_body(p, "endmacro");
  if (!node) return NULL;
  node->text = name;
  node->items = parameters;
  node->body = body;
  return node;
}

static hr_node *parse_call_block(parser *p) {
  hr_node *node = new_node(p, HR_NODE_CALL_BLOCK);
  hr_node *parameters = is_op(p, HR_OP_LPAREN) ? parse_parameters(p) : NULL;
  hr_node *call = parse_expression(p);
  if (call && call->kind != HR_NODE_CALL) fail_plain(p, "'call' needs the call of a macro");
  hr_node *body = parse_function_body(p, "endcall");
  if (!node) return NULL;
  node->a = call;
  node->text = HR_TEXT("caller");
  node->items = parameters;
  node->body = body;
  return node;
}

static hr_node *parse_filter_block(parser *p) {
  hr_node *node = new_node(p, HR_NODE_FILTER_BLOCK);
  hr_node *filters = parse_filter(p, NULL);
  while (skip_op(p, HR_OP_PIPE)) filters = parse_filter(p, filters);
  end_tag(p);
  hr_node *body = BODY(p, "endfilter");
  next(p);
  if (!node) return NULL;
  node->a = filters;
  node->body = body;
  return node;
}

static hr_node *parse_with(parser *p) {
  hr_node *node = new_node(p, HR_NODE_WITH);
  chain items = {0};
  while (p->status == HR_OK && p->at->kind != HR_LEX_BLOCK_END) {
    if (items.first) expect_op(p, HR_OP_COMMA, "','");
    hr_node *target = new_node(p, HR_NODE_NAME);
    hr_text name = expect_name(p, "a name");
    if (target) target->text = name;
    append(&items, target);
    expect_op(p, HR_OP_ASSIGN, "'='");
    append(&items, parse_expression(p));
  }
  end_tag(p);
  hr_node *body = BODY(p, "endwith");
  next(p);
  if (!node) return NULL;
  node->items = items.first;
  node->body = body;
  return node;
}

/* {% generation %} marks what a model is trained on; rendering, it is a scope. */
static hr_node *parse_generation(parser *p) {
  hr_node *node = new_node(p, HR_NODE_SCOPE);
  end_tag(p);
  hr_node *body = BODY(p, "endgeneration");
  next(p);
  if (node) node->body = body;
  return node;
}

static hr_node *parse_break(parser *p, hr_node_kind kind) {
  if (p->loops == 0) fail_plain(p, "'break' or 'continue' outside a loop");
  return new_node(p, kind);
}

static hr_node *parse_statement(parser *p) {
  const hr_lexeme *tag = p->at;
  hr_text name = expect_name(p, "the name of a tag");
  if (p->status != HR_OK) return NULL;
  if (hr_text_is(name, "set")) return parse_set(p);
  if (hr_text_is(name, "if")) return parse_if(p);
  if (hr_text_is(name, "for")) return parse_for(p);
  if (hr_text_is(name, "macro")) return parse_macro(p);
  if (hr_text_is(name, "call")) return parse_call_block(p);
  if (hr_text_is(name, "filter")) return parse_filter_block(p);
  if (hr_text_is(name, "with")) return parse_with(p);
  if (hr_text_is(name, "generation")) return parse_generation(p);
  if (hr_text_is(name, "break")) return parse_break(p, HR_NODE_BREAK);
  if (hr_text_is(name, "continue")) return parse_break(p, HR_NODE_CONTINUE);
  p->status = hr_template_fail(p->t, tag->line, p->err, "tag '%.*s' is not supported",
                               HR_SHOW(name));
  return NULL;
}

static hr_node *parse_print(parser *p) {
  hr_node *node = new_node(p, HR_NODE_PRINT);
  next(p);
  hr_node *value = parse_tuple(p, true, false, NULL);
  if (p->status == HR_OK && p->at->kind != HR_LEX_PRINT_END) fail(p, "found ", "'}}'");
  next(p);
  if (node) node->a = value;
  return node;
}

static hr_node *parse_data(parser *p) {
  hr_node *node = new_node(p, HR_NODE_DATA);
  if (node) node->text = p->at->text;
  next(p);
  return node;
}

/* Statements up to a tag with one of those names, at which it stops; without
 * names up to the end of the template. */
static hr_node *parse_body(parser *p, const char *const *ends) {
  chain body = {0};
  if (!enter(p)) return NULL;
  while (p->status == HR_OK && p->at->kind != HR_LEX_END) {
    if (p->at->kind == HR_LEX_DATA) {
      append(&body, parse_data(p));
    } else if (p->at->kind == HR_LEX_PRINT) {
      append(&body, parse_print(p));
    } else {
      next(p);
      for (size_t i = 0; ends && ends[i]; i++)
        if (is_name(p, ends[i])) {
          p->depth--;
          return body.first;
        }
      append(&body, parse_statement(p));
      end_tag(p);
    }
  }
  if (ends && p->status == HR_OK) {
    char what[64];
    for (size_t i = 0; ends[i]; i++) snprintf(what, sizeof what, "'%s'", ends[i]);
    fail(p, "found ", what);
  }
  p->depth--;
  return body.first;
}

/* --- Templates ------------------------------------------------------------------------------- */

static hr_status parse_all(hr_chat_template *t, const char *source, size_t length, hr_error *err) {
  if (length > HR_TEMPLATE_BYTES)
    return hr_fail(err, HR_ERROR_FILE, "%s: has %zu bytes, expected at most %d", t->name, length,
                   HR_TEMPLATE_BYTES);
  hr_lexemes lexemes = {0};
  hr_status status = hr_lex(t, source, length, &lexemes, err);
  if (status != HR_OK) return status;
  parser p = {.t = t, .at = lexemes.item, .err = err};
  t->body = parse_body(&p, NULL);
  return p.status;
}

hr_chat_template *hr_template_parse(const char *source, size_t length, const char *name,
                                    hr_error *err) {
  hr_chat_template *t = hr_calloc(1, sizeof *t);
  if (t) {
    t->arena.limit = PARSED_MEMORY;
    t->name = hr_strndup(name, strlen(name));
  }
  if (!t || !t->name) {
    hr_fail_memory(err, name, sizeof *t);
  } else if (parse_all(t, source, length, err) == HR_OK) {
    return t;
  }
  hr_template_free(t);
  return NULL;
}

void hr_template_free(hr_chat_template *t) {
  if (!t) return;
  hr_arena_finish(&t->arena);
  hr_free(t->name);
  hr_free(t);
}
