/* SPDX-License-Identifier: MIT */
#include "corpus.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "interrupt.h"
#include "output.h"

/* --- Parts --------------------------------------------------------------------- */

static bool add_part(cli_corpus *c, int32_t *ids, size_t count) {
  if (c->parts == c->capacity) {
    size_t capacity = c->capacity ? c->capacity * 2 : 16;
    cli_part *grown = reallocarray(c->part, capacity, sizeof *grown);
    if (!grown) return false;
    c->part = grown;
    c->capacity = capacity;
  }
  c->part[c->parts++] = (cli_part){ids, count};
  c->tokens += count;
  return true;
}

static int keep_part(cli_corpus *c, int32_t *ids, size_t count) {
  if (add_part(c, ids, count)) return HR_OK;
  free(ids);
  return cli_fail_memory();
}

void cli_corpus_free(cli_corpus *c) {
  for (size_t i = 0; i < c->parts; i++) free(c->part[i].ids);
  free(c->part);
  *c = (cli_corpus){0};
}

size_t cli_corpus_scored(const cli_corpus *c) {
  return c->tokens - c->parts; /* no part is empty */
}

static bool is_blank(char c) {
  return c == ' ' || (c >= '\t' && c <= '\r');
}

static int add_text(cli_corpus *c, const hr_model *model, const char *text, size_t length) {
  while (length && is_blank(text[0])) text++, length--;
  while (length && is_blank(text[length - 1])) length--;
  if (!length) return HR_OK;
  int32_t *ids = NULL;
  size_t count;
  int status = cli_tokenize(model, text, length, HR_TOKENIZE_SPECIAL, &ids, &count);
  if (status == HR_OK && count) return keep_part(c, ids, count);
  free(ids);
  return status;
}

static int nothing_to_score(const char *where) {
  return cli_fail(HR_ERROR_USAGE, "%s: has no token to score, expected at least two in a part",
                  where);
}

int cli_corpus_from_bytes(cli_corpus *c, const hr_model *model, const char *where,
                          const cli_bytes *bytes, const char *split) {
  int status = HR_OK;
  size_t begin = 0, length = strlen(split);
  while (status == HR_OK && begin < bytes->used) {
    const char *text = bytes->data + begin;
    size_t rest = bytes->used - begin;
    const char *end = length ? memmem(text, rest, split, length) : NULL;
    size_t here = end ? (size_t)(end - text) : rest;
    status = add_text(c, model, text, here);
    begin += here + (end ? length : 0);
  }
  if (status == HR_OK && cli_corpus_scored(c) == 0) status = nothing_to_score(where);
  return status;
}

int cli_corpus_from_text(cli_corpus *c, const cli_common *common, const hr_model *model,
                         const char *file, const char *split) {
  cli_bytes bytes = {0};
  int status = cli_read_file(file, &bytes);
  if (status == HR_OK) cli_warn_of_stray_bytes(common, file, bytes.data, bytes.used);
  if (status == HR_OK) status = cli_corpus_from_bytes(c, model, file, &bytes, split);
  cli_bytes_free(&bytes);
  return status;
}

static int add_line(cli_corpus *c, const char *where, const char *line) {
  while (is_blank(*line)) line++;
  if (!*line) return HR_OK;
  int32_t *ids;
  size_t count;
  int status = cli_read_ids(where, line, &ids, &count);
  return status == HR_OK ? keep_part(c, ids, count) : status;
}

int cli_corpus_from_ids(cli_corpus *c, const char *ids) {
  if (ids[0] != '@') {
    int status = add_line(c, "--ids", ids);
    return status == HR_OK && cli_corpus_scored(c) == 0 ? nothing_to_score("--ids") : status;
  }
  cli_bytes bytes = {0};
  int status = cli_read_file(ids + 1, &bytes);
  if (status == HR_OK && !cli_bytes_add(&bytes, "", 1)) status = cli_fail_memory();
  for (char *line = bytes.data; status == HR_OK && line < bytes.data + bytes.used;) {
    size_t length = strcspn(line, "\n"); /* a NUL ends a line too, and is no number */
    bool last = line + length + 1 >= bytes.data + bytes.used;
    line[length] = '\0';
    status = add_line(c, ids + 1, line);
    line += length + 1;
    if (last) break;
  }
  cli_bytes_free(&bytes);
  if (status == HR_OK && cli_corpus_scored(c) == 0) status = nothing_to_score(ids + 1);
  return status;
}

/* --- Scoring ------------------------------------------------------------------- */

enum { PIECE_FLOATS = 1 << 23, PIECE_MOST = 512 }; /* 32 MiB of logits */

typedef struct scorer {
  cli_scoring *set;
  const cli_corpus *corpus;
  cli_row_fn *row;
  void *arg;
  size_t piece, seen, total;
  cli_progress *progress;
} scorer;

static bool enough(const scorer *s) {
  return s->set->most && s->seen >= s->set->most;
}

static int report(scorer *s) {
  double share = s->set->share > 0 ? s->set->share : 1;
  double done = s->set->done_before + share * (double)s->seen / (double)s->total;
  return cli_report_progress(s->progress, done) ? HR_OK : HR_ERROR_CANCELLED;
}

/* Keys and values beyond the range of the cache are what a larger one has room for. */
static int refuse_piece(const scorer *s, size_t i, const hr_error *err) {
  const char *name = s->set->name ? s->set->name[i] : NULL;
  bool narrow = hr_session_cache(s->set->session[i]) == HR_CACHE_F16;
  if (err->status != HR_ERROR_NUMERIC || !narrow) return cli_fail_error(name, err);
  return cli_fail(err->status, "%s%s%s; its keys and values are in F16, which ends at 65504: try "
                  "--cache f32", name ? name : "", name ? ": " : "", err->message);
}

/* Rows of tokens begin..end, of which those from score_from on predict a new token. */
static int score_piece(scorer *s, size_t part, size_t begin, size_t end, size_t score_from) {
  const cli_part *p = &s->corpus->part[part];
  hr_error err;
  for (size_t i = 0; i < s->set->sessions; i++)
    if (hr_session_eval(s->set->session[i], p->ids + begin, end - begin,
                        end > score_from ? HR_LOGITS_ALL : HR_LOGITS_NONE, &err) != HR_OK)
      return refuse_piece(s, i, &err);
  int status = HR_OK;
  for (size_t t = begin < score_from ? score_from : begin; status == HR_OK && t < end; t++) {
    const float *logits[CLI_SCORING_SESSIONS];
    if (t + 1 == p->count || enough(s)) break;
    for (size_t i = 0; i < s->set->sessions; i++)
      logits[i] = hr_session_logits(s->set->session[i], t - begin);
    status = s->row(s->arg, part, logits, p->ids[t + 1]);
    s->seen++;
  }
  return status == HR_OK ? report(s) : status;
}

/* Tokens begin..end from an empty cache. */
static int score_window(scorer *s, size_t part, size_t begin, size_t end, size_t score_from) {
  hr_error err;
  s->set->windows++;
  for (size_t i = 0; i < s->set->sessions; i++)
    if (hr_session_rewind(s->set->session[i], 0, &err) != HR_OK) return cli_fail_error(NULL, &err);
  int status = HR_OK;
  for (size_t at = begin; status == HR_OK && at < end && !enough(s); at += s->piece) {
    size_t n = end - at < s->piece ? end - at : s->piece;
    status = score_piece(s, part, at, at + n, score_from);
  }
  return status;
}

static int score_part(scorer *s, size_t part) {
  size_t count = s->corpus->part[part].count, begin = 0, scored = 0; /* rows that were handed out */
  size_t context = hr_session_context(s->set->session[0]);
  size_t stride = s->set->stride ? s->set->stride : context / 2;
  if (stride == 0) stride = 1;
  for (;;) {
    size_t end = count - begin < context ? count : begin + context;
    int status = score_window(s, part, begin, end, scored);
    if (status != HR_OK || end == count || enough(s)) return status;
    scored = end;
    begin += stride;
  }
}

int cli_score(cli_scoring *set, const cli_corpus *corpus, cli_row_fn *row, void *arg) {
  cli_progress progress = {.what = set->what, .start = cli_now()};
  scorer s = {.set = set, .corpus = corpus, .row = row, .arg = arg};
  s.total = cli_corpus_scored(corpus);
  if (set->most && set->most < s.total) s.total = set->most;
  s.progress = set->what && isatty(STDERR_FILENO) ? &progress : NULL;
  s.piece = PIECE_FLOATS / set->vocab;
  if (s.piece > PIECE_MOST) s.piece = PIECE_MOST;
  if (s.piece == 0) s.piece = 1;
  set->windows = 0;
  int status = HR_OK;
  for (size_t i = 0; i < corpus->parts && status == HR_OK && !enough(&s); i++)
    if (corpus->part[i].count > 1) status = score_part(&s, i);
  cli_end_progress(&progress);
  return status;
}
