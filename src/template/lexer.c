/* SPDX-License-Identifier: MIT
 * Cuts a template into lexemes: text, tags, and what is inside tags. Where white
 * space around tags goes: "-" takes all of it, "+" none; else a newline right
 * after a block or comment goes (trim_blocks), and blanks between the start of
 * a line and a block or comment (lstrip_blocks). */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "template/node.h"

typedef struct lexer {
  hr_chat_template *t;
  hr_lexemes *out;
  hr_error *err;
  const char *text; /* newlines normalized */
  size_t length, at;
  uint32_t line;
  bool line_start; /* what came last ended in a newline */
} lexer;

static hr_status fail(lexer *l, const char *what) {
  return hr_template_fail(l->t, l->line, l->err, "%s", what);
}

static hr_status add(lexer *l, hr_lexeme lexeme) {
  hr_lexemes *out = l->out;
  if (out->count == out->capacity) {
    size_t capacity = out->capacity ? out->capacity * 2 : 64;
    hr_lexeme *grown = hr_arena_alloc(&l->t->arena, capacity * sizeof *grown);
    if (!grown) return hr_template_fail_memory(l->t, l->err);
    if (out->count) memcpy(grown, out->item, out->count * sizeof *grown);
    out->item = grown;
    out->capacity = capacity;
  }
  lexeme.line = l->line;
  out->item[out->count++] = lexeme;
  return HR_OK;
}

/* Moves on, counting lines. */
static void take(lexer *l, size_t bytes) {
  for (size_t i = 0; i < bytes; i++) l->line += l->text[l->at + i] == '\n';
  l->at += bytes;
  if (bytes) l->line_start = l->text[l->at - 1] == '\n';
}

static bool starts(const lexer *l, const char *with) {
  size_t n = strlen(with);
  return l->length - l->at >= n && memcmp(l->text + l->at, with, n) == 0;
}

/* Bytes of white space from a place on. */
static size_t space_at(const lexer *l, size_t at) {
  size_t begin = at;
  while (at < l->length) {
    size_t size;
    if (!hr_is_space(hr_code_point(l->text + at, l->length - at, &size))) break;
    at += size;
  }
  return at - begin;
}

/* Bytes of a tag's end at the current place, with the white space that goes
 * with it; 0: it is none. Only ends of blocks and comments take a newline. */
static size_t tag_end(const lexer *l, const char *mark) {
  bool block = strcmp(mark, "}}") != 0;
  size_t at = l->at, sign = 0;
  if (at < l->length && (l->text[at] == '-' || (block && l->text[at] == '+'))) sign = 1;
  if (l->length - at < sign + 2 || memcmp(l->text + at + sign, mark, 2) != 0) return 0;
  size_t end = at + sign + 2;
  if (sign && l->text[at] == '-') end += space_at(l, end);
  if (!sign && block && end < l->length && l->text[end] == '\n') end++;
  return end - at;
}

/* --- Text between tags ----------------------------------------------------------- */

/* How much of text before a tag with that sign stays. */
static size_t kept_length(const lexer *l, hr_text text, char sign, bool block) {
  if (sign == '-') return hr_strip(text, false, true).length;
  if (sign == '+' || !block) return text.length;
  const char *newline = text.length ? memrchr(text.bytes, '\n', text.length) : NULL;
  size_t line = newline ? (size_t)(newline - text.bytes) + 1 : 0;
  if (line == 0 && !l->line_start) return text.length;
  bool blank = hr_strip(hr_text_part(text, line, text.length), true, true).length == 0;
  return blank ? line : text.length;
}

static hr_status add_data(lexer *l, hr_text text, size_t kept, size_t taken) {
  hr_status status = HR_OK;
  text.length = kept;
  if (kept) status = add(l, (hr_lexeme){.kind = HR_LEX_DATA, .text = text});
  take(l, taken);
  return status;
}

/* A place right after "{%": is it the start of a raw block? Its length, or 0. */
static size_t raw_start(const lexer *l, size_t at, const char *word) {
  size_t begin = at;
  if (at < l->length && (l->text[at] == '-' || l->text[at] == '+')) at++;
  at += space_at(l, at);
  size_t n = strlen(word);
  if (l->length - at < n || memcmp(l->text + at, word, n) != 0) return 0;
  at += n;
  at += space_at(l, at);
  bool minus = at < l->length && l->text[at] == '-';
  bool plus = strcmp(word, "endraw") == 0 && at < l->length && l->text[at] == '+';
  at += minus || plus;
  if (l->length - at < 2 || memcmp(l->text + at, "%}", 2) != 0) return 0;
  at += 2;
  if (minus) at += space_at(l, at);
  if (strcmp(word, "endraw") == 0 && !minus && !plus && at < l->length && l->text[at] == '\n') at++;
  return at - begin;
}

static char sign_at(const lexer *l, size_t at) {
  return at < l->length && (l->text[at] == '-' || l->text[at] == '+') ? l->text[at] : '\0';
}

static hr_status lex_raw(lexer *l) {
  for (size_t at = l->at; at + 1 < l->length; at++) {
    size_t end = l->text[at] == '{' && l->text[at + 1] == '%' ? raw_start(l, at + 2, "endraw") : 0;
    if (!end) continue;
    hr_text text = {.bytes = l->text + l->at, .length = at - l->at};
    size_t kept = kept_length(l, text, sign_at(l, at + 2), true);
    return add_data(l, text, kept, text.length + 2 + end);
  }
  return fail(l, "'raw' has no 'endraw'");
}

static hr_status lex_comment(lexer *l) {
  const char *end = memmem(l->text + l->at, l->length - l->at, "#}", 2);
  if (!end) return fail(l, "a comment has no end, expected '#}'");
  size_t n = (size_t)(end - l->text) - l->at;
  if (n && (end[-1] == '-' || end[-1] == '+')) n--; /* the sign belongs to the end */
  take(l, n);
  take(l, tag_end(l, "#}"));
  return HR_OK;
}

/* --- Inside tags ------------------------------------------------------------------- */

static bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

static bool is_word(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         (unsigned char)c >= 0x80;
}

/* Digits with single underscores between them; 0 when there are none. */
static size_t digits(const lexer *l, size_t at) {
  size_t begin = at;
  while (at < l->length && (is_digit(l->text[at]) || (at > begin && l->text[at] == '_' &&
                                                      at + 1 < l->length &&
                                                      is_digit(l->text[at + 1]))))
    at++;
  return at - begin;
}

/* Bytes of a number with a point or an exponent; 0: it has neither. */
static size_t real_length(const lexer *l) {
  size_t whole = digits(l, l->at), at = l->at + whole;
  bool real = false;
  if (!whole) return 0;
  if (at < l->length && l->text[at] == '.' && digits(l, at + 1)) {
    at += 1 + digits(l, at + 1);
    real = true;
  }
  if (at < l->length && (l->text[at] | 0x20) == 'e') {
    size_t sign = at + 1 < l->length && (l->text[at + 1] == '-' || l->text[at + 1] == '+');
    size_t exponent = digits(l, at + 1 + sign);
    if (exponent) {
      at += 1 + sign + exponent;
      real = true;
    }
  }
  return real ? at - l->at : 0;
}

static hr_status lex_real(lexer *l, size_t length) {
  char number[64];
  size_t n = 0;
  for (size_t i = 0; i < length; i++) {
    char c = l->text[l->at + i];
    if (c == '_') continue;
    if (n + 1 == sizeof number) return fail(l, "a number has too many digits");
    number[n++] = c;
  }
  /* JSON has no leading zeros and needs no locale. */
  size_t zeros = 0;
  while (zeros + 1 < n && number[zeros] == '0' && is_digit(number[zeros + 1])) zeros++;
  json_t *json = json_loadb(number + zeros, n - zeros, JSON_DECODE_ANY, NULL);
  if (!json) return fail(l, "a number is too large");
  double value = json_number_value(json);
  json_decref(json);
  hr_status status = add(l, (hr_lexeme){.kind = HR_LEX_REAL, .value = hr_real(value)});
  take(l, length);
  return status;
}

static int digit_value(char c) {
  if (is_digit(c)) return c - '0';
  c |= 0x20;
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : 16;
}

static hr_status lex_integer(lexer *l) {
  int base = 10;
  size_t at = l->at;
  if (l->text[at] == '0' && at + 1 < l->length) {
    char mark = l->text[at + 1] | 0x20;
    base = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 10;
    if (base != 10) at += 2;
  }
  int64_t value = 0;
  size_t begin = at;
  for (; at < l->length; at++) {
    if (l->text[at] == '_') continue;
    int digit = digit_value(l->text[at]);
    if (digit >= base) break;
    if (__builtin_mul_overflow(value, base, &value) || __builtin_add_overflow(value, digit, &value))
      return fail(l, "a number is too large");
  }
  if (at == begin) return fail(l, "a number has no digits");
  hr_status status = add(l, (hr_lexeme){.kind = HR_LEX_INTEGER, .value = hr_int(value)});
  take(l, at - l->at);
  return status;
}

/* The number of up to `most` digits in a base; *used is how many there were. */
static int32_t escape_number(const char *text, size_t length, size_t most, int base, size_t *used) {
  int32_t value = 0;
  size_t n = 0;
  while (n < most && n < length && digit_value(text[n]) < base)
    value = value * base + digit_value(text[n++]);
  *used = n;
  return value;
}

static size_t put_code_point(char *to, int32_t c) {
  if (c < 0x80) {
    to[0] = (char)c;
    return 1;
  }
  size_t more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
  static const unsigned char lead[] = {0, 0xc0, 0xe0, 0xf0};
  to[0] = (char)(lead[more] | c >> (6 * more));
  for (size_t i = 1; i <= more; i++) to[i] = (char)(0x80 | (c >> (6 * (more - i)) & 0x3f));
  return more + 1;
}

/* One escape; *from is behind the backslash. Writes at most as many bytes as
 * the escape has. Returns how many, or SIZE_MAX for one that can't be. */
static size_t unescape_one(const char *text, size_t length, size_t *from, char *to) {
  static const char names[] = "abfnrtv\\'\"", values[] = "\a\b\f\n\r\t\v\\'\"";
  char c = text[(*from)++];
  const char *name = strchr(names, c);
  if (c && name) {
    *to = values[name - names];
    return 1;
  }
  if (c == '\n') return 0; /* a line that goes on */
  size_t used, digits_of = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
  if (digits_of) {
    int32_t value = escape_number(text + *from, length - *from, digits_of > 6 ? 2 : 0, 16, &used);
    if (digits_of == 8 && value) return SIZE_MAX;
    value = escape_number(text + *from + used, length - *from - used, digits_of - used, 16, &used);
    if (digits_of == 8) used += 2;
    bool surrogate = value >= 0xd800 && value < 0xe000;
    if (used != digits_of || value > 0x10ffff || surrogate) return SIZE_MAX;
    *from += used;
    return put_code_point(to, value);
  }
  if (c >= '0' && c <= '7') {
    int32_t value = escape_number(text + *from - 1, length - *from + 1, 3, 8, &used);
    *from += used - 1;
    return put_code_point(to, value);
  }
  if (c == 'N') return SIZE_MAX;
  to[0] = '\\'; /* not an escape: both stay */
  to[1] = c;
  return 2;
}

static hr_status lex_string(lexer *l) {
  char quote = l->text[l->at];
  size_t end = l->at + 1;
  while (end < l->length && l->text[end] != quote) end += l->text[end] == '\\' ? 2 : 1;
  if (end >= l->length) return fail(l, "a string has no end");
  const char *text = l->text + l->at + 1;
  size_t length = end - l->at - 1, n = 0;
  char *value = hr_arena_alloc(&l->t->arena, length + 1);
  if (!value) return hr_template_fail_memory(l->t, l->err);
  for (size_t i = 0; i < length;) {
    if (text[i] != '\\') {
      value[n++] = text[i++];
      continue;
    }
    i++;
    size_t written = unescape_one(text, length, &i, value + n);
    if (written == SIZE_MAX) return fail(l, "a string has an escape that is not supported");
    n += written;
  }
  hr_status status =
      add(l, (hr_lexeme){.kind = HR_LEX_STRING, .text = {.bytes = value, .length = n}});
  take(l, end + 1 - l->at);
  return status;
}

static const struct {
  char text[3];
  hr_operator op;
} operators[] = {
    /* Those of two characters first. */
    {"//", HR_OP_FLOOR_DIV}, {"**", HR_OP_POW},      {"==", HR_OP_EQ},      {"!=", HR_OP_NE},
    {">=", HR_OP_GE},        {"<=", HR_OP_LE},       {"+", HR_OP_ADD},      {"-", HR_OP_SUB},
    {"/", HR_OP_DIV},        {"*", HR_OP_MUL},       {"%", HR_OP_MOD},      {"~", HR_OP_CONCAT},
    {"[", HR_OP_LBRACKET},   {"]", HR_OP_RBRACKET},  {"(", HR_OP_LPAREN},   {")", HR_OP_RPAREN},
    {"{", HR_OP_LBRACE},     {"}", HR_OP_RBRACE},    {">", HR_OP_GT},       {"<", HR_OP_LT},
    {"=", HR_OP_ASSIGN},     {".", HR_OP_DOT},       {":", HR_OP_COLON},    {"|", HR_OP_PIPE},
    {",", HR_OP_COMMA},      {";", HR_OP_SEMICOLON},
};

/* Brackets that are open in a tag: its end counts only where none is. */
typedef struct brackets {
  hr_operator open[HR_TEMPLATE_NESTING];
  size_t count;
} brackets;

static hr_status balance(lexer *l, brackets *b, hr_operator op) {
  bool opens = op == HR_OP_LPAREN || op == HR_OP_LBRACKET || op == HR_OP_LBRACE;
  bool closes = op == HR_OP_RPAREN || op == HR_OP_RBRACKET || op == HR_OP_RBRACE;
  if (opens) {
    if (b->count == HR_TEMPLATE_NESTING) return fail(l, "brackets are nested too deeply");
    b->open[b->count++] = op;
  }
  if (closes && (b->count == 0 || b->open[--b->count] + 1 != op))
    return fail(l, "a bracket is closed that is not open");
  return HR_OK;
}

static hr_status lex_operator(lexer *l, brackets *b) {
  for (size_t i = 0; i < sizeof operators / sizeof *operators; i++) {
    if (!starts(l, operators[i].text)) continue;
    hr_status status = balance(l, b, operators[i].op);
    if (status == HR_OK)
      status = add(l, (hr_lexeme){.kind = HR_LEX_OPERATOR, .op = operators[i].op});
    take(l, strlen(operators[i].text));
    return status;
  }
  size_t size;
  hr_code_point(l->text + l->at, l->length - l->at, &size);
  return hr_template_fail(l->t, l->line, l->err, "unexpected '%.*s'", (int)size, l->text + l->at);
}

static hr_status lex_name(lexer *l) {
  size_t end = l->at;
  while (end < l->length && is_word(l->text[end])) end++;
  hr_text text = {.bytes = l->text + l->at, .length = end - l->at};
  hr_status status = add(l, (hr_lexeme){.kind = HR_LEX_NAME, .text = text});
  take(l, text.length);
  return status;
}

static hr_status lex_inside(lexer *l, brackets *b) {
  char c = l->text[l->at];
  size_t space = space_at(l, l->at);
  if (space) {
    take(l, space);
    return HR_OK;
  }
  /* After a point digits are an index: a.0.1 */
  const hr_lexeme *last = &l->out->item[l->out->count - 1];
  bool after_dot = last->kind == HR_LEX_OPERATOR && last->op == HR_OP_DOT;
  size_t real = after_dot ? 0 : real_length(l);
  if (real) return lex_real(l, real);
  if (is_digit(c)) return lex_integer(l);
  if (is_word(c)) return lex_name(l);
  if (c == '\'' || c == '"') return lex_string(l);
  return lex_operator(l, b);
}

static hr_status lex_tag(lexer *l, bool block) {
  brackets b = {.count = 0};
  const char *mark = block ? "%}" : "}}";
  hr_status status = add(l, (hr_lexeme){.kind = block ? HR_LEX_BLOCK : HR_LEX_PRINT});
  while (status == HR_OK) {
    if (l->at == l->length) return fail(l, block ? "a tag has no '%}'" : "a tag has no '}}'");
    size_t end = b.count == 0 ? tag_end(l, mark) : 0;
    if (end) {
      status = add(l, (hr_lexeme){.kind = block ? HR_LEX_BLOCK_END : HR_LEX_PRINT_END});
      take(l, end);
      return status;
    }
    status = lex_inside(l, &b);
  }
  return status;
}

/* --- From tag to tag --------------------------------------------------------------- */

/* The next "{{", "{%" or "{#"; the end of the source when there is none. */
static size_t find_tag(const lexer *l) {
  for (size_t at = l->at; at + 1 < l->length; at++)
    if (l->text[at] == '{' && strchr("{%#", l->text[at + 1]) && l->text[at + 1]) return at;
  return l->length;
}

static hr_status lex_next(lexer *l) {
  size_t at = find_tag(l);
  hr_text text = {.bytes = l->text + l->at, .length = at - l->at};
  if (at == l->length) return add_data(l, text, text.length, text.length);
  char kind = l->text[at + 1], sign = sign_at(l, at + 2);
  size_t raw = kind == '%' ? raw_start(l, at + 2, "raw") : 0;
  size_t kept = kept_length(l, text, sign, kind != '{');
  hr_status status = add_data(l, text, kept, text.length);
  if (status != HR_OK) return status;
  take(l, raw ? 2 + raw : sign ? 3 : 2);
  if (raw) return lex_raw(l);
  return kind == '#' ? lex_comment(l) : lex_tag(l, kind == '%');
}

/* "\r\n" and "\r" are newlines like "\n"; one at the end of the source goes. */
static size_t normalize(const char *source, size_t length, char *to) {
  size_t n = 0;
  for (size_t i = 0; i < length; i++) {
    bool return_newline = source[i] == '\r' && i + 1 < length && source[i + 1] == '\n';
    if (!return_newline) to[n++] = source[i] == '\r' ? '\n' : source[i];
  }
  return n && to[n - 1] == '\n' ? n - 1 : n;
}

hr_status hr_lex(hr_chat_template *t, const char *source, size_t length, hr_lexemes *lexemes,
                 hr_error *err) {
  char *text = hr_arena_alloc(&t->arena, length + 1);
  if (!text) return hr_template_fail_memory(t, err);
  lexer l = {.t = t, .out = lexemes, .err = err, .text = text, .line = 1, .line_start = true};
  l.length = normalize(source, length, text);
  hr_status status = HR_OK;
  while (status == HR_OK && l.at < l.length) status = lex_next(&l);
  return status == HR_OK ? add(&l, (hr_lexeme){.kind = HR_LEX_END}) : status;
}
