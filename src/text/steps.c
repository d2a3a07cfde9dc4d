/* SPDX-License-Identifier: MIT */
#include "text/steps.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "text/steps_impl.h"
#include "text/utf8_stream.h"

/* What steps may make of a text: the longest of Unicode's normal forms has 11 times the bytes,
 * a letter for a byte twice, and some more stand around each piece. */
#define GROWTH 64
#define GROWTH_BYTES 1024
/* What the patterns may take in all, counted in parts of a pattern that are tried and bytes
 * that are passed or gone back over: an ordinary one takes about five for a byte of the text.
 * The interpreter's heap is for groups that repeat along a text, of which it keeps each turn. */
#define WORK 256
#define WORK_BYTES 10000000
#define HEAP 512
#define HEAP_BYTES (64 << 20)

struct hr_steps {
  pcre2_general_context *memory;
  hr_compiled *step;
  size_t count;
  const char *where;
};

/* --- Compiling ------------------------------------------------------------- */

static void *pcre2_allocate(size_t bytes, void *unused) {
  (void)unused;
  return hr_calloc(bytes, 1);
}

static void pcre2_release(void *block, void *unused) {
  (void)unused;
  hr_free(block);
}

static hr_status compile_pattern(const hr_steps *steps, hr_compiled *to, const char *where,
                                 hr_error *err) {
  int code = 0;
  size_t offset = 0;
  hr_piece pattern = to->step.pattern;
  pcre2_compile_context *context = pcre2_compile_context_create(steps->memory);
  if (!context) return hr_fail_memory(err, where, 0);
  /* As in the patterns' home, ^ and $ are the ends of lines. No pattern may move inside a
   * code point. The calls before each part of a pattern are count_work's. */
  uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C |
                     PCRE2_AUTO_CALLOUT;
  to->code =
      pcre2_compile((PCRE2_SPTR)pattern.text, pattern.length, options, &code, &offset, context);
  pcre2_compile_context_free(context);
  if (to->code) {
    (void)pcre2_pattern_info(to->code, PCRE2_INFO_BACKREFMAX, &to->compares);
    (void)pcre2_jit_compile(to->code, PCRE2_JIT_COMPLETE); /* without it PCRE2 interprets */
    return HR_OK;
  }
  char reason[128] = "";
  pcre2_get_error_message(code, (PCRE2_UCHAR *)reason, sizeof reason);
  return hr_fail(err, code == PCRE2_ERROR_HEAP_FAILED ? HR_ERROR_MEMORY : HR_ERROR_FILE,
                 "%s: the pattern \"%.100s\" of its tokenizer can't be compiled at byte %zu: %s",
                 where, pattern.text, offset, reason);
}

static bool uses_table(hr_step_kind kind) {
  return kind == HR_STEP_CHARSMAP || kind == HR_STEP_SENTENCEPIECE;
}

static bool keep_piece(hr_piece *piece) {
  *piece = (hr_piece){hr_strndup(piece->text ? piece->text : "", piece->length), piece->length};
  return piece->text != NULL;
}

static hr_status compile(hr_steps *steps, const hr_text_step *step, const hr_trie *keep,
                         const char *where, hr_error *err) {
  hr_compiled *to = &steps->step[steps->count++];
  hr_piece table = step->content;
  *to = (hr_compiled){.step = *step, .keep = keep};
  if (uses_table(step->kind)) to->step.content = (hr_piece){"", 0};
  bool kept = keep_piece(&to->step.pattern);
  kept &= keep_piece(&to->step.content);
  if (!kept) return hr_fail_memory(err, where, step->pattern.length + step->content.length);
  if (uses_table(step->kind)) return hr_charsmap_read(&to->charsmap, table, where, err);
  if (step->kind != HR_STEP_SPLIT && step->kind != HR_STEP_REPLACE) return HR_OK;
  if (step->pattern.length == 0)
    return hr_fail(err, HR_ERROR_FILE, "%s: a pattern of its tokenizer is empty", where);
  return step->literal ? HR_OK : compile_pattern(steps, to, where, err);
}

hr_steps *hr_steps_create(hr_step_list list, const hr_trie *keep, const char *where,
                          hr_error *err) {
  if (list.count > HR_STEPS_MOST) {
    hr_fail(err, HR_ERROR_FILE,
            "%s: its tokenizer takes a text through %zu steps, expected at most %d", where,
            list.count, HR_STEPS_MOST);
    return NULL;
  }
  hr_steps *steps = hr_calloc(1, sizeof *steps);
  if (steps) steps->memory = pcre2_general_context_create(pcre2_allocate, pcre2_release, NULL);
  if (steps) steps->step = hr_calloc(list.count, sizeof *steps->step);
  if (steps) steps->where = where;
  if (!steps || !steps->memory || !steps->step) {
    hr_fail_memory(err, where, list.count * sizeof(hr_compiled));
    hr_steps_free(steps);
    return NULL;
  }
  for (size_t i = 0; i < list.count; i++) {
    if (compile(steps, &list.step[i], keep, where, err) == HR_OK) continue;
    hr_steps_free(steps);
    return NULL;
  }
  return steps;
}

void hr_steps_free(hr_steps *steps) {
  if (!steps) return;
  for (size_t i = 0; i < steps->count; i++) {
    hr_compiled *step = &steps->step[i];
    pcre2_code_free(step->code);
    hr_free((char *)step->step.pattern.text);
    hr_free((char *)step->step.content.text);
    hr_charsmap_clear(&step->charsmap);
  }
  pcre2_general_context_free(steps->memory);
  hr_free(steps->step);
  hr_free(steps);
}

/* --- Pieces ---------------------------------------------------------------- */

static size_t capped_sum(size_t a, size_t b) {
  size_t sum;
  return hr_add_size(a, b, &sum) ? sum : SIZE_MAX;
}

static size_t times_and(size_t length, size_t times, size_t more) {
  size_t product;
  return hr_mul_size(length, times, &product) ? capped_sum(product, more) : SIZE_MAX;
}

static size_t most_work(const hr_pieces *pieces) {
  return times_and(pieces->bytes, WORK, WORK_BYTES);
}

bool hr_buffer_put(hr_buffer *buffer, const char *text, size_t length) {
  void *block = buffer->text;
  if (length == 0) return true;
  buffer->full |= buffer->most && length > buffer->most - buffer->length;
  if (buffer->full) return false;
  if (!hr_grow(&block, &buffer->capacity, buffer->length + length, 1)) return false;
  buffer->text = block;
  memcpy(buffer->text + buffer->length, text, length);
  buffer->length += length;
  return true;
}

static bool add_cut(hr_pieces *pieces, size_t start, size_t end) {
  void *cut = pieces->cut;
  if (start == end) return true;
  if (!hr_grow(&cut, &pieces->cut_capacity, pieces->cut_count + 1, sizeof *pieces->cut))
    return false;
  pieces->cut = cut;
  pieces->cut[pieces->cut_count++] = (hr_text_span){start, end - start};
  return true;
}

/* What was cut are the pieces now. */
static void take_cut(hr_pieces *pieces) {
  hr_text_span *spans = pieces->spans;
  size_t capacity = pieces->capacity;
  pieces->spans = pieces->cut;
  pieces->count = pieces->cut_count;
  pieces->capacity = pieces->cut_capacity;
  pieces->cut = spans;
  pieces->cut_count = 0;
  pieces->cut_capacity = capacity;
}

bool hr_pieces_load(hr_pieces *pieces, const char *text, size_t length) {
  size_t most;
  if (!hr_mul_size(length, GROWTH, &most) || !hr_add_size(most, GROWTH_BYTES, &most)) return false;
  pieces->now.most = pieces->next.most = most;
  pieces->now.full = pieces->next.full = false;
  pieces->now.length = pieces->cut_count = 0;
  pieces->bytes = capped_sum(pieces->bytes, length);
  if (!hr_buffer_put(&pieces->now, text, length) || !add_cut(pieces, 0, length)) return false;
  take_cut(pieces);
  return true;
}

void hr_pieces_clear(hr_pieces *pieces) {
  pcre2_match_data_free(pieces->match);
  pcre2_match_context_free(pieces->limits);
  hr_free(pieces->now.text);
  hr_free(pieces->next.text);
  hr_free(pieces->clean.text);
  hr_free(pieces->codes);
  hr_free(pieces->spans);
  hr_free(pieces->cut);
  *pieces = (hr_pieces){0};
}

/* --- Matching -------------------------------------------------------------- */

/* One step at work. */
typedef struct matching {
  const hr_compiled *step;
  hr_pieces *pieces;
  const char *subject; /* the text without its stray bytes */
  const char *where;
  hr_error *err;
} matching;

static hr_status out_of_memory(hr_error *err, size_t bytes) {
  return hr_fail_memory(err, "cutting a text", bytes);
}

/* A step could not put down what it made. */
static hr_status fail_put(const matching *m, size_t bytes) {
  if (!m->pieces->next.full) return out_of_memory(m->err, bytes);
  return hr_fail(m->err, HR_ERROR_FILE,
                 "%s: its tokenizer makes a text longer than %d times and %d bytes more", m->where,
                 GROWTH, GROWTH_BYTES);
}

/* PCRE2 needs a valid text. A stray byte is shown to it as U+0001, which is
 * just as long, so every position stays the same. */
static bool cleaned(hr_pieces *pieces, const char **subject) {
  const hr_buffer *now = &pieces->now;
  bool copied = false;
  *subject = now->text;
  for (size_t i = 0; i < now->length;) {
    size_t bytes = hr_utf8_length(now->text + i, now->length - i);
    if (bytes == 0) {
      if (!copied) {
        pieces->clean.length = 0;
        if (!hr_buffer_put(&pieces->clean, now->text, now->length)) return false;
        *subject = pieces->clean.text;
        copied = true;
      }
      pieces->clean.text[i] = '\x01';
      bytes = 1;
    }
    i += bytes;
  }
  return true;
}

/* What a pattern has taken since the last call: a part of it was tried, after it passed or gave
 * back bytes. Groups that are looked for again may be compared from their start to their end. */
static int count_work(pcre2_callout_block *at, void *counted_with) {
  const matching *m = counted_with;
  hr_pieces *pieces = m->pieces;
  size_t place = at->current_position, before = pieces->place, work = 1;
  pieces->place = place;
  work += place > before ? place - before : before - place;
  for (uint32_t i = 1; m->step->compares && i < at->capture_top; i++) {
    size_t start = at->offset_vector[2 * i], end = at->offset_vector[2 * i + 1];
    work += start < end && end != PCRE2_UNSET ? end - start + 1 : 1;
  }
  pieces->work = capped_sum(pieces->work, work);
  return pieces->work > most_work(pieces) ? PCRE2_ERROR_MATCHLIMIT : 0;
}

static bool prepare_matching(const hr_steps *steps, matching *m) {
  hr_pieces *pieces = m->pieces;
  if (!pieces->match) pieces->match = pcre2_match_data_create(1, steps->memory);
  if (!pieces->limits) pieces->limits = pcre2_match_context_create(steps->memory);
  if (!pieces->match || !pieces->limits) return false;
  size_t heap = times_and(pieces->now.length, HEAP, HEAP_BYTES) / 1024;
  pcre2_set_heap_limit(pieces->limits, heap < UINT32_MAX ? (uint32_t)heap : UINT32_MAX);
  pcre2_set_match_limit(pieces->limits, UINT32_MAX);
  pcre2_set_callout(pieces->limits, count_work, m);
  return true;
}

static hr_status fail_pattern(const matching *m, int result, size_t bytes) {
  char reason[128] = "";
  hr_piece pattern = m->step->step.pattern;
  if (result == PCRE2_ERROR_NOMEMORY) return out_of_memory(m->err, bytes);
  if (result == PCRE2_ERROR_MATCHLIMIT)
    snprintf(reason, sizeof reason, "it takes more than %zu steps for %zu bytes of text",
             most_work(m->pieces), m->pieces->bytes);
  else
    pcre2_get_error_message(result, (PCRE2_UCHAR *)reason, sizeof reason);
  return hr_fail(m->err, HR_ERROR_FILE,
                 "%s: the pattern \"%.100s\" of its tokenizer can't cut the text: %s", m->where,
                 pattern.text, reason);
}

static hr_status run_pattern(const matching *m, hr_text_span span, size_t from, uint32_t options,
                             hr_text_span *found, bool *any) {
  PCRE2_SPTR subject = (PCRE2_SPTR)m->subject + span.start;
  pcre2_match_data *data = m->pieces->match;
  const pcre2_code *code = m->step->code;
  options |= PCRE2_NO_UTF_CHECK;
  m->pieces->place = from;
  int result = pcre2_match(code, subject, span.length, from, options, data, m->pieces->limits);
  /* The compiled form has a small stack, the interpreter has the heap. */
  if (result == PCRE2_ERROR_JIT_STACKLIMIT)
    result = pcre2_match(code, subject, span.length, from, options | PCRE2_NO_JIT, data,
                         m->pieces->limits);
  *any = result >= 0;
  if (result < 0 && result != PCRE2_ERROR_NOMATCH) return fail_pattern(m, result, span.length);
  if (*any) {
    const PCRE2_SIZE *ends = pcre2_get_ovector_pointer(data);
    *found = (hr_text_span){ends[0], ends[1] > ends[0] ? ends[1] - ends[0] : 0};
  }
  return HR_OK;
}

/* The next match in the span at or behind `from`; both count from its start. An empty match is
 * passed over; what is found is empty, at the span's end, where there is no other. */
static hr_status next_match(const matching *m, hr_text_span span, size_t from,
                            hr_text_span *found) {
  *found = (hr_text_span){span.length, 0};
  if (m->step->step.literal) {
    hr_piece pattern = m->step->step.pattern;
    const char *text = m->pieces->now.text + span.start;
    const char *at = memmem(text + from, span.length - from, pattern.text, pattern.length);
    if (at) *found = (hr_text_span){(size_t)(at - text), pattern.length};
    return HR_OK;
  }
  for (bool any; from < span.length;) {
    hr_status status = run_pattern(m, span, from, 0, found, &any);
    if (status != HR_OK || (any && found->length)) return status;
    if (!any) break;
    /* Nothing was found here: something that is not empty, or else further on. */
    from = found->start;
    status = run_pattern(m, span, from, PCRE2_NOTEMPTY_ATSTART | PCRE2_ANCHORED, found, &any);
    if (status != HR_OK || any) return status;
    if (from >= span.length) break;
    from += hr_utf8_length(m->subject + span.start + from, span.length - from);
  }
  *found = (hr_text_span){span.length, 0};
  return HR_OK;
}

/* --- Cutting --------------------------------------------------------------- */

/* Puts a part of a span, a match or a gap, to what was cut so far. `joined`
 * tells whether the part before, in the same span, can be made longer. */
typedef struct cutting {
  const hr_text_step *step;
  hr_pieces *pieces;
  size_t base; /* of the span */
  size_t held; /* MERGED_WITH_NEXT: where matches start that wait for a gap */
  bool after_part, after_match;
} cutting;

static void lengthen_last(hr_pieces *pieces, size_t length) {
  pieces->cut[pieces->cut_count - 1].length += length;
}

static bool add_part(cutting *c, size_t start, size_t end, bool match) {
  if (start == end) return true;
  start += c->base;
  end += c->base;
  match ^= c->step->invert;
  bool after_part = c->after_part, after_match = c->after_match, ok = true;
  c->after_part = true;
  c->after_match = match;
  switch (c->step->split) {
    case HR_SPLIT_ISOLATED:
      return add_cut(c->pieces, start, end);
    case HR_SPLIT_REMOVED:
      return match || add_cut(c->pieces, start, end);
    case HR_SPLIT_CONTIGUOUS:
    case HR_SPLIT_MERGED_WITH_PREVIOUS:
      if (after_part &&
          (c->step->split == HR_SPLIT_CONTIGUOUS ? match == after_match : match && !after_match))
        lengthen_last(c->pieces, end - start);
      else
        ok = add_cut(c->pieces, start, end);
      return ok;
    case HR_SPLIT_MERGED_WITH_NEXT:
      /* Of several matches in a row, the last goes with what follows. */
      if (match) {
        if (after_part && after_match) ok = add_cut(c->pieces, c->held, start);
        c->held = start;
        return ok;
      }
      return add_cut(c->pieces, after_part && after_match ? c->held : start, end);
  }
  return ok;
}

static hr_status cut_span(const matching *m, hr_text_span span) {
  cutting c = {.step = &m->step->step, .pieces = m->pieces, .base = span.start};
  hr_status status = HR_OK;
  for (size_t from = 0; from < span.length && status == HR_OK;) {
    hr_text_span found;
    status = next_match(m, span, from, &found);
    if (status != HR_OK) break;
    if (!add_part(&c, from, found.start, false) ||
        !add_part(&c, found.start, found.start + found.length, true))
      status = out_of_memory(m->err, span.length);
    from = found.start + found.length;
  }
  bool waits = c.step->split == HR_SPLIT_MERGED_WITH_NEXT && c.after_part && c.after_match;
  if (status == HR_OK && waits && !add_cut(m->pieces, c.held, span.start + span.length))
    status = out_of_memory(m->err, span.length);
  return status;
}

/* --- Rewriting ------------------------------------------------------------- */

static hr_status replace(const matching *m, hr_text_span span) {
  const char *text = m->pieces->now.text + span.start;
  hr_piece content = m->step->step.content;
  hr_status status = HR_OK;
  for (size_t from = 0; from < span.length && status == HR_OK;) {
    hr_text_span found;
    status = next_match(m, span, from, &found);
    if (status != HR_OK) break;
    if (!hr_buffer_put(&m->pieces->next, text + from, found.start - from) ||
        (found.length && !hr_buffer_put(&m->pieces->next, content.text, content.length)))
      status = fail_put(m, span.length);
    from = found.start + found.length;
  }
  return status;
}

static hr_status rewrite(const matching *m, hr_text_span span, bool first) {
  hr_rewrite_fn *fn = hr_rewriter(m->step->step.kind);
  if (!fn) return replace(m, span);
  return fn(m->pieces, m->step, m->pieces->now.text + span.start, span.length, first)
             ? HR_OK
             : fail_put(m, span.length);
}

static hr_status run_step(const matching *m, bool first) {
  hr_pieces *pieces = m->pieces;
  hr_status status = HR_OK;
  bool cuts = m->step->step.kind == HR_STEP_SPLIT;
  pieces->cut_count = pieces->next.length = 0;
  for (size_t i = 0; i < pieces->count && status == HR_OK; i++) {
    size_t start = pieces->next.length;
    status = cuts ? cut_span(m, pieces->spans[i]) : rewrite(m, pieces->spans[i], first && i == 0);
    if (status == HR_OK && !cuts && !add_cut(pieces, start, pieces->next.length))
      status = out_of_memory(m->err, pieces->next.length);
  }
  if (!cuts) {
    hr_buffer now = pieces->now;
    pieces->now = pieces->next;
    pieces->next = now;
  }
  take_cut(pieces);
  return status;
}

hr_status hr_steps_run(const hr_steps *steps, hr_pieces *pieces, bool first, hr_error *err) {
  hr_status status = HR_OK;
  for (size_t i = 0; i < steps->count && status == HR_OK; i++) {
    matching m = {
        .step = &steps->step[i], .pieces = pieces, .where = steps->where, .err = err};
    if (m.step->code && (!cleaned(pieces, &m.subject) || !prepare_matching(steps, &m)))
      return out_of_memory(err, pieces->now.length);
    status = run_step(&m, first);
  }
  return status;
}
