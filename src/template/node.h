/* SPDX-License-Identifier: MIT
 * A parsed template. */
#ifndef HR_TEMPLATE_NODE_H
#define HR_TEMPLATE_NODE_H

#include "template/datum.h"

typedef enum hr_operator {
  HR_OP_NONE,
  HR_OP_ADD, HR_OP_SUB, HR_OP_MUL, HR_OP_DIV, HR_OP_FLOOR_DIV, HR_OP_MOD, HR_OP_POW, HR_OP_CONCAT,
  HR_OP_EQ, HR_OP_NE, HR_OP_LT, HR_OP_LE, HR_OP_GT, HR_OP_GE, HR_OP_IN, HR_OP_NOT_IN,
  HR_OP_ASSIGN, HR_OP_DOT, HR_OP_COLON, HR_OP_PIPE, HR_OP_COMMA, HR_OP_SEMICOLON,
  HR_OP_LPAREN, HR_OP_RPAREN, HR_OP_LBRACKET, HR_OP_RBRACKET, HR_OP_LBRACE, HR_OP_RBRACE
} hr_operator;

/* After each kind: which members it uses. Lists are chained by `next`. */
typedef enum hr_node_kind {
  /* Expressions */
  HR_NODE_LITERAL,   /* value */
  HR_NODE_NAME,      /* text */
  HR_NODE_LIST,      /* items */
  HR_NODE_TUPLE,     /* items */
  HR_NODE_DICT,      /* items: key, value, key, value, ... */
  HR_NODE_ATTRIBUTE, /* a.text */
  HR_NODE_INDEX,     /* a[b] */
  HR_NODE_SLICE,     /* as b of an index: [a:b:c], each may be NULL */
  HR_NODE_CALL,      /* a(items) */
  HR_NODE_NAMED,     /* an argument: text = a; a parameter: a is its default or NULL */
  HR_NODE_FILTER,    /* a | text(items); a is NULL where it filters the text of a block */
  HR_NODE_TEST,      /* a is text(items) */
  HR_NODE_NOT,       /* a */
  HR_NODE_NEGATE,    /* a */
  HR_NODE_PLUS,      /* a */
  HR_NODE_BINARY,    /* a op b */
  HR_NODE_CONCAT,    /* a ~ b */
  HR_NODE_AND,       /* a, b */
  HR_NODE_OR,        /* a, b */
  HR_NODE_COMPARE,   /* a, then items: operands */
  HR_NODE_OPERAND,   /* op a */
  HR_NODE_CONDITION, /* b if a else c; c may be NULL */
  /* Statements */
  HR_NODE_DATA,      /* text */
  HR_NODE_PRINT,     /* a */
  HR_NODE_IF,        /* a: test, body, other */
  HR_NODE_FOR,       /* a: target, b: what it goes through, c: condition or NULL, body, other */
  HR_NODE_SET,       /* a: target, b: value */
  HR_NODE_SET_BLOCK, /* a: target, b: filters or NULL, body */
  HR_NODE_MACRO,     /* text: name, items: parameters, body */
  HR_NODE_CALL_BLOCK, /* a: call, items: parameters of the caller, body */
  HR_NODE_FILTER_BLOCK, /* a: filters, body */
  HR_NODE_WITH,      /* items: target, value, ...; body */
  HR_NODE_SCOPE,     /* body */
  HR_NODE_BREAK,
  HR_NODE_CONTINUE
} hr_node_kind;

struct hr_node {
  hr_node_kind kind;
  hr_operator op;
  uint32_t line;
  bool recursive; /* FOR */
  hr_text text;
  hr_datum value;
  hr_node *a, *b, *c;
  hr_node *items, *body, *other;
  hr_node *next;
};

struct hr_chat_template {
  hr_arena arena;
  char *name;
  const hr_node *body;
};

/* --- Tokens ------------------------------------------------------------------- */

typedef enum hr_lexeme_kind {
  HR_LEX_DATA,
  HR_LEX_PRINT, /* {{ */
  HR_LEX_PRINT_END,
  HR_LEX_BLOCK, /* {% */
  HR_LEX_BLOCK_END,
  HR_LEX_NAME,
  HR_LEX_STRING,
  HR_LEX_INTEGER,
  HR_LEX_REAL,
  HR_LEX_OPERATOR,
  HR_LEX_END
} hr_lexeme_kind;

typedef struct hr_lexeme {
  hr_lexeme_kind kind;
  hr_operator op;
  uint32_t line;
  hr_text text;
  hr_datum value; /* numbers */
} hr_lexeme;

typedef struct hr_lexemes {
  hr_lexeme *item; /* ends in HR_LEX_END */
  size_t count, capacity;
} hr_lexemes;

/* Cuts a source into lexemes, in the template's arena. */
hr_status hr_lex(hr_chat_template *t, const char *source, size_t length, hr_lexemes *lexemes,
                 hr_error *err);

hr_status hr_template_fail(const hr_chat_template *t, uint32_t line, hr_error *err,
                           const char *format, ...) __attribute__((format(printf, 4, 5)));
hr_status hr_template_fail_memory(const hr_chat_template *t, hr_error *err);

#endif
