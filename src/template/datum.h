/* SPDX-License-Identifier: MIT
 * The values of a template, and the machine that renders one. All values live
 * in the machine's arena. After a failure (machine->failed) every function may
 * still be called and gives something harmless, so that callers need to look
 * only where they loop. */
#ifndef HR_TEMPLATE_DATUM_H
#define HR_TEMPLATE_DATUM_H

#include <stdint.h>

#include "template/arena.h"
#include "template/template.h"

/* Bytes, UTF-8 as far as they are; a byte that belongs to no code point counts
 * as a character of its own. */
typedef struct hr_text {
  const char *bytes;
  const unsigned char *data; /* 1 where a byte came from data; NULL: none did */
  size_t length;
} hr_text;

#define HR_TEXT(literal) ((hr_text){.bytes = (literal), .length = sizeof(literal) - 1})

typedef enum hr_datum_kind {
  HR_UNDEFINED, /* text says what is missing */
  HR_NONE,
  HR_BOOL,
  HR_INT,
  HR_REAL,
  HR_TEXT_DATUM,
  HR_LIST,
  HR_TUPLE,
  HR_STREAM,    /* a list that can be gone through once, as Python's generators */
  HR_DICT,
  HR_NAMESPACE, /* a dict whose members can be set */
  HR_FUNCTION,
  HR_MACRO,
  HR_LOOP,
  HR_CYCLER,    /* a list of at least one, gone round and round */
  HR_ABSENT     /* an argument that was not given */
} hr_datum_kind;

typedef struct hr_list hr_list;
typedef struct hr_dict hr_dict;
typedef struct hr_function hr_function;
typedef struct hr_macro hr_macro;
typedef struct hr_loop hr_loop;

typedef struct hr_datum {
  hr_datum_kind kind;
  union {
    bool truth;
    int64_t integer;
    double real;
    hr_text text;
    hr_list *list;
    hr_dict *dict;
    const hr_function *function;
    const hr_macro *macro;
    hr_loop *loop;
  };
} hr_datum;

struct hr_list {
  hr_datum *item;
  size_t count, capacity;
  size_t next; /* of a stream or a cycler: where it is */
};

/* Keeps the order in which members were added. */
struct hr_dict {
  hr_datum *key, *value;
  size_t count, capacity;
};

typedef struct hr_scope hr_scope;
typedef struct hr_builder hr_builder;
typedef struct hr_node hr_node;

enum { HR_STEP_BYTES = 16 }; /* bytes of text that are as much work as a step */

typedef struct hr_machine {
  hr_arena arena;
  const char *name;   /* of the template */
  const struct tm *now;
  hr_error *err;
  hr_status status;
  bool failed;
  uint64_t work;      /* in bytes: HR_STEP_BYTES for each step */
  unsigned depth;
  uint32_t line;      /* of the node under evaluation */
  hr_scope *scope;
  hr_builder *out;
  hr_datum block;     /* what the filters of a block work on */
} hr_machine;

/* Arguments of a call. */
typedef struct hr_call {
  const hr_datum *item; /* those without a name */
  size_t count;
  const hr_dict *named; /* NULL: none */
} hr_call;

enum { HR_MOST_PARAMETERS = 6 };

/* A function of ours. self is what a filter, test or method works on. args are
 * bound by the row's parameters. */
typedef hr_datum hr_builtin_fn(hr_machine *m, hr_datum self, const hr_datum *args,
                               const hr_call *call);
typedef struct hr_builtin {
  const char *name;
  hr_builtin_fn *run;
  unsigned required;      /* this many arguments must be given */
  const char *parameters; /* names with spaces between; "*": takes any, looks at the call itself */
} hr_builtin;

struct hr_function {
  const hr_builtin *builtin;
  hr_datum self;
};

/* --- Failing ---------------------------------------------------------------- */

/* The first failure counts: "NAME, line N: ...". Gives an undefined value. */
hr_datum hr_machine_fail(hr_machine *m, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* NULL after a failure that says so. */
void *hr_machine_alloc(hr_machine *m, size_t count, size_t size);
/* Counts work: a step and the bytes that it goes through, or the bytes alone of
 * what is a part of a step. Everything that loops counts, and a function over a
 * text counts its bytes. False when there was too much, or after any failure. */
bool hr_machine_step(hr_machine *m, size_t bytes);
bool hr_machine_work(hr_machine *m, size_t bytes);
/* Around everything that may call itself: one level deeper. False, and nothing to
 * leave, when that is too deep or after any failure. */
bool hr_machine_enter(hr_machine *m);
void hr_machine_leave(hr_machine *m);
/* A text for a message: "%.*s" with HR_SHOW(text). */
#define HR_SHOW(t) (int)((t).length < 80 ? (t).length : 80), ((t).bytes ? (t).bytes : "")

/* --- Making values ------------------------------------------------------------ */

static inline hr_datum hr_bool(bool truth) {
  return (hr_datum){.kind = HR_BOOL, .truth = truth};
}
static inline hr_datum hr_int(int64_t integer) {
  return (hr_datum){.kind = HR_INT, .integer = integer};
}
static inline hr_datum hr_real(double real) {
  return (hr_datum){.kind = HR_REAL, .real = real};
}
static inline hr_datum hr_text_datum(hr_text text) {
  return (hr_datum){.kind = HR_TEXT_DATUM, .text = text};
}
static inline hr_datum hr_literal(const char *text) {
  return hr_text_datum((hr_text){.bytes = text, .length = __builtin_strlen(text)});
}
static inline hr_datum hr_none(void) {
  return (hr_datum){.kind = HR_NONE};
}
/* The name is kept as it is. */
static inline hr_datum hr_undefined(hr_text name) {
  return (hr_datum){.kind = HR_UNDEFINED, .text = name};
}
static inline bool hr_is_sequence(hr_datum d) {
  return d.kind == HR_LIST || d.kind == HR_TUPLE;
}

hr_list *hr_list_new(hr_machine *m, size_t capacity);
void hr_list_add(hr_machine *m, hr_list *list, hr_datum item);
static inline hr_datum hr_list_datum(hr_datum_kind kind, hr_list *list) {
  return list ? (hr_datum){.kind = kind, .list = list} : (hr_datum){.kind = HR_UNDEFINED};
}
hr_datum hr_pair(hr_machine *m, hr_datum a, hr_datum b); /* a tuple */

hr_dict *hr_dict_new(hr_machine *m);
void hr_dict_set(hr_machine *m, hr_dict *dict, hr_datum key, hr_datum value);
/* NULL when there is none. */
const hr_datum *hr_dict_find(hr_machine *m, const hr_dict *dict, hr_datum key);
const hr_datum *hr_dict_find_name(hr_machine *m, const hr_dict *dict, hr_text name);

/* --- Asking values ------------------------------------------------------------- */

bool hr_truth(hr_datum d);
bool hr_equal(hr_machine *m, hr_datum a, hr_datum b);
/* Below 0, 0, above 0; fails for what has no order. */
int hr_compare(hr_machine *m, hr_datum a, hr_datum b);
/* item in d. */
bool hr_contains(hr_machine *m, hr_datum d, hr_datum item);
bool hr_is_number(hr_datum d); /* bools too */
double hr_number(hr_datum d);
/* int() of a number. */
hr_datum hr_truncate(hr_machine *m, hr_datum d);
/* Python's word for the type, for messages. */
const char *hr_kind_name(hr_datum d);
/* What a loop over d goes through: characters, elements, keys. A stream is used
 * up. NULL after a failure. */
hr_list *hr_elements(hr_machine *m, hr_datum d);
/* Characters, elements or members; fails for what has none. */
size_t hr_length(hr_machine *m, hr_datum d);

/* str() and repr() of Python. */
hr_text hr_to_text(hr_machine *m, hr_datum d);
void hr_add_repr(hr_builder *b, hr_datum d);
/* json.dumps with ensure_ascii=False; indent is a text or absent. */
typedef struct hr_json_style {
  hr_text indent, item_separator, key_separator;
  bool indented, sort_keys;
} hr_json_style;
void hr_add_json(hr_builder *b, hr_datum d, const hr_json_style *style, unsigned level);
/* Every string is data, but for roles of messages. */
hr_datum hr_from_json(hr_machine *m, const json_t *json);
hr_datum hr_messages_from_json(hr_machine *m, const json_t *json);

/* --- Text ---------------------------------------------------------------------- */

struct hr_builder {
  hr_machine *machine;
  char *bytes;
  unsigned char *data; /* NULL as long as no byte came from data */
  size_t length, capacity;
};

void hr_add_text(hr_builder *b, hr_text text);
void hr_add_literal(hr_builder *b, const char *text);
/* A code point; is_data marks its bytes. */
void hr_add_code_point(hr_builder *b, int32_t code_point, bool is_data);
hr_text hr_built(const hr_builder *b);

bool hr_text_is(hr_text a, const char *literal);
bool hr_text_equal(hr_text a, hr_text b);
/* hr_text_equal for a search through names: counts as work. */
bool hr_name_is(hr_machine *m, hr_text name, hr_text wanted);
hr_text hr_text_part(hr_text text, size_t from, size_t to);
hr_text hr_concat(hr_machine *m, hr_text a, hr_text b);
/* All bytes are data. */
hr_text hr_data_text(hr_machine *m, const char *bytes, size_t length);
/* The code point at the start, -1 for a byte that belongs to none; *bytes is how
 * long it is. length is not 0. */
int32_t hr_code_point(const char *bytes, size_t length, size_t *size);
size_t hr_characters(hr_machine *m, hr_text text);
/* Python's str.isspace, for a code point. */
bool hr_is_space(int32_t code_point);
hr_text hr_strip(hr_text text, bool left, bool right);
/* Where part begins in text at or after from; SIZE_MAX when it doesn't, and after a failure. */
size_t hr_text_find(hr_machine *m, hr_text text, hr_text part, size_t from);
hr_text hr_replace(hr_machine *m, hr_text text, hr_text old, hr_text new_text, int64_t most);
typedef enum hr_case { HR_UPPER, HR_LOWER, HR_TITLE, HR_CAPITAL } hr_case;
hr_text hr_change_case(hr_machine *m, hr_text text, hr_case to);
bool hr_is_cased(int32_t code_point);
bool hr_is_letter_or_digit(int32_t code_point);
/* str.split and rsplit; separator of length 0: at white space. */
hr_list *hr_split(hr_machine *m, hr_text text, hr_text separator, int64_t most, bool from_right);
hr_list *hr_split_lines(hr_machine *m, hr_text text);
/* text % arguments */
hr_datum hr_percent(hr_machine *m, hr_text format, hr_datum arguments);

/* --- Scopes and evaluation -------------------------------------------------------- */

typedef struct hr_variable hr_variable;
struct hr_variable {
  hr_variable *next;
  hr_text name;
  hr_datum value;
};

struct hr_scope {
  hr_scope *outer;
  hr_variable *variables;
  bool in_macro;
};

hr_scope *hr_scope_new(hr_machine *m, hr_scope *outer);
void hr_scope_set(hr_machine *m, hr_scope *scope, hr_text name, hr_datum value);
/* NULL when no scope has it. */
const hr_datum *hr_scope_find(hr_machine *m, const hr_scope *scope, hr_text name);

struct hr_macro {
  const hr_node *node; /* the statement: name, parameters, body */
  hr_scope *scope;     /* where it was defined */
};

struct hr_loop {
  const hr_node *node;
  const hr_list *items;
  size_t index;     /* from 0 */
  unsigned depth;   /* from 0 */
  hr_scope *scope;  /* around the loop */
  hr_list *last_changed;
};

hr_datum hr_evaluate(hr_machine *m, const hr_node *node);
/* A list of statements, to m->out. */
typedef enum hr_flow { HR_FLOW_ON, HR_FLOW_BREAK, HR_FLOW_CONTINUE } hr_flow;
hr_flow hr_run(hr_machine *m, const hr_node *statements);
hr_datum hr_call_macro(hr_machine *m, const hr_macro *macro, const hr_call *call);
/* A loop body once more, over other items: {% for ... recursive %}. */
hr_datum hr_call_loop(hr_machine *m, const hr_loop *loop, const hr_call *call);
hr_datum hr_call_datum(hr_machine *m, hr_datum callee, const hr_call *call);
/* Binds the arguments by the row's parameters, then runs it. what: "filter", ... */
hr_datum hr_call_builtin(hr_machine *m, const hr_builtin *builtin, const char *what, hr_datum self,
                         const hr_call *call);
/* d.name and d[index]; what is not there gives an undefined value. */
hr_datum hr_attribute(hr_machine *m, hr_datum d, hr_text name);
hr_datum hr_item(hr_machine *m, hr_datum d, hr_datum index);
/* Fails as Python does where an undefined value is used. */
hr_datum hr_fail_undefined(hr_machine *m, hr_datum d);

/* What a path of attributes such as "a.b.0" leads to; absent: d itself. otherwise
 * (may be NULL) stands for what is not there, at each step. */
hr_datum hr_follow(hr_machine *m, hr_datum d, hr_datum path, const hr_datum *otherwise);

/* NULL when there is none of that name. */
const hr_builtin *hr_find_filter(hr_text name);
const hr_builtin *hr_find_sequence_filter(hr_text name);
const hr_builtin *hr_find_test(hr_text name);
const hr_builtin *hr_find_global(hr_text name);
const hr_builtin *hr_find_method(hr_datum d, hr_text name);
/* Looks a name up in a table. */
const hr_builtin *hr_find_builtin(const hr_builtin *table, size_t count, hr_text name);

#endif
