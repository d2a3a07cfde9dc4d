/* SPDX-License-Identifier: MIT
 * The layer loop, and the buffers it works in. */
#include "block/forward.h"

#include <string.h>

#include "base/memory.h"
#include "block/pass.h"
#include "sched/wait.h"

_Static_assert(HR_KERNEL_ARRAYS + (40 << 10) <= HR_TEAM_STACK, "and what compilers spill");

/* --- One block ------------------------------------------------------------ */

static size_t count_wanted(const hr_request *r) {
  return r->logits_rows ? r->logits_count : r->rows - r->logits_from;
}

/* The matrix of the first product behind a layer, if that takes all rows of the pass. */
static const hr_matrix *first_behind(const hr_pass *pass, uint32_t index) {
  uint32_t layers = pass->model->description.layers;
  if (index + 1 == layers) return count_wanted(pass->request) ? &pass->model->head : NULL;
  if (pass->early && index + 2 == layers) return NULL;
  return &pass->model->layer[index + 1].query;
}

static void run_layer(hr_pass *pass, unsigned thread, unsigned threads, uint32_t index) {
  const hr_layer *layer = &pass->model->layer[index];
  const hr_description *d = &pass->model->description;
  const hr_workspace *ws = pass->ws;
  size_t rows = pass->rows, heads_width = (size_t)d->heads * d->head_width;

  hr_attention_inputs(pass, thread, threads, layer);
  hr_show(pass, thread, "query", index, ws->query, rows, heads_width, ws->heads_stride);
  hr_show(pass, thread, "key", index, ws->key, rows, (size_t)d->kv_heads * d->head_width,
          ws->kv_stride);
  hr_show(pass, thread, "value", index, ws->value, rows, (size_t)d->kv_heads * d->head_width,
          ws->kv_stride);
  if (d->parallel) hr_feed_forward_up(pass, thread, threads, layer);
  hr_attention(pass, thread, threads, index);
  hr_show(pass, thread, "attended", index, ws->attended, rows, heads_width, ws->heads_stride);
  hr_attention_output(pass, thread, threads, layer);
  hr_residual(pass, thread, threads, &layer->attention_post_norm, HR_PART_OUTPUT,
              d->parallel ? &layer->down : &layer->up);
  hr_show(pass, thread, "attention_residual", index, ws->x, rows, d->width, ws->x_stride);

  if (!d->parallel) hr_feed_forward_up(pass, thread, threads, layer);
  hr_show(pass, thread, "activated", index, ws->up, rows, d->ffn_width, ws->ffn_stride);
  hr_feed_forward_down(pass, thread, threads, layer);
  hr_residual(pass, thread, threads, &layer->ffn_post_norm, HR_PART_DOWN,
              first_behind(pass, index));
  hr_show(pass, thread, "block", index, ws->x, rows, d->width, ws->x_stride);
}

/* The rows of a stretch's residual stream, to where the caller wants them. */
static void give_stream(hr_pass *pass, unsigned thread) {
  const hr_workspace *ws = pass->ws;
  const hr_request *request = pass->request;
  size_t width = pass->model->description.width;
  if (thread == 0 && request->stretch->stream_out)
    for (size_t r = 0; r < pass->rows; r++)
      memcpy(request->stretch->stream_out + r * width, ws->x + r * ws->x_stride,
             width * sizeof(float));
  hr_team_barrier(pass->team, thread);
}

/* --- The rows that are wanted ---------------------------------------------- */

/* The pass as it begins, and as it ends: with the rows whose logits are wanted. */
typedef struct passes {
  hr_pass all, wanted;
} passes;

/* The place of a wanted row in the pass; a folded one has them in the text's last piece. */
static size_t wanted_row(const hr_pass *all, size_t i) {
  const hr_request *r = all->request;
  const hr_span *last = &all->span[1];
  size_t row = r->logits_rows ? r->logits_rows[i] : r->logits_from + i;
  return all->folded ? last->first_row + (row - last->from) : row;
}

/* What is counted through all texts. */
static void count_spans(const hr_description *d, hr_span *span, size_t spans) {
  size_t tile = hr_tile_rows(d), row = 0, tiles = 0;
  for (size_t i = 0; i < spans; i++) {
    span[i].first_row = row;
    span[i].first_tile = tiles;
    span[i].from = row;
    row += span[i].text.rows;
    tiles += (span[i].text.rows + tile - 1) / tile;
  }
}

/* Notes the texts of a request. Returns how many there are. */
static size_t note_texts(hr_workspace *ws, const hr_request *request, size_t room) {
  const hr_text all = {.rows = request->rows, .start = request->start, .room = room};
  size_t spans = request->texts ? request->text_count : 1;
  for (size_t i = 0; i < spans; i++)
    ws->span[i].text = request->texts ? request->texts[i] : all;
  count_spans(&ws->model->description, ws->span, spans);
  return spans;
}

/* Notes wanted rows that follow each other in a text as a text that goes on there. Returns
 * how many there are. */
static size_t note_wanted(hr_workspace *ws, const hr_pass *all, size_t rows) {
  const hr_span *of = NULL;
  size_t spans = 0;
  for (size_t i = 0; i < rows; i++) {
    size_t row = wanted_row(all, i);
    const hr_span *span = hr_span_of_row(all, row);
    if (span == of && row == wanted_row(all, i - 1) + 1) {
      ws->wanted_span[spans - 1].text.rows++;
      continue;
    }
    of = span;
    hr_text *text = &ws->wanted_span[spans++].text;
    *text = span->text;
    text->rows = 1;
    text->start = hr_position_of(span, row);
  }
  count_spans(&ws->model->description, ws->wanted_span, spans);
  return spans;
}

/* Of the last layer nobody reads more than keys and values, but for the wanted rows. Those
 * meet them twice then, which pays where they are few. A mask that lets rows see later ones,
 * hidden states and taps want all rows. */
static bool leave_early(const hr_pass *all, size_t wanted) {
  const hr_request *request = all->request;
  return wanted <= all->rows / 2 && all->model->description.mask == HR_MASK_CAUSAL &&
         !request->hidden && !request->stretch && !all->ws->tap && !all->ws->input_tap;
}

/* How many of a pass's rows a thread has from the start. */
static size_t rows_of_thread(const hr_pass *pass, unsigned thread, unsigned threads) {
  uint32_t rows = (uint32_t)pass->rows;
  return hr_tiles_begin(thread + 1, threads, rows, pass->shares) -
         hr_tiles_begin(thread, threads, rows, pass->shares);
}

/* Of a text with a causal mask later rows see more keys. Where threads have rows of their own, it
 * is cut into two pieces for each, and its rows are arranged so that the first thread has the first
 * and the last piece, the second those next to them, and so on: each attends to about as many keys.
 * Not where wanted rows lie outside of the last piece, nor where the pass keeps all of its rows to
 * the end (leave_early). */
static void fold_text(hr_pass *pass, unsigned threads, size_t wanted) {
  hr_span *span = pass->ws->span;
  const hr_text text = span->text;
  size_t rows = pass->rows, front = 0, back = rows, first = wanted > 0 ? wanted_row(pass, 0) : rows;
  if (!pass->early || !hr_splits_by_rows(rows, threads) || pass->spans > 1) return;
  for (unsigned t = 0; t < threads; t++) {
    size_t own = rows_of_thread(pass, t, threads);
    if (own < 2 || (t == 0 && first < rows - own / 2)) return;
  }
  for (unsigned t = 0; t < threads; t++, span += 2) {
    size_t own = rows_of_thread(pass, t, threads);
    back -= own / 2;
    span[0].text = span[1].text = text;
    span[0].text.rows = own - own / 2;
    span[0].text.start = text.start + front;
    span[1].text.rows = own / 2;
    span[1].text.start = text.start + back;
    front += own - own / 2;
  }
  pass->spans = 2 * threads;
  pass->folded = true;
  count_spans(&pass->model->description, pass->ws->span, pass->spans);
  for (size_t i = 0; i < pass->spans; i++)
    pass->ws->span[i].from = pass->ws->span[i].text.start - text.start;
}

/* A row of the residual stream, and the angles of its position. */
static void move_row(const hr_pass *pass, size_t to, size_t from) {
  const hr_workspace *ws = pass->ws;
  const hr_description *d = &pass->model->description;
  size_t half = d->position == HR_POSITION_ROPE ? d->rope_width / 2 : 0;
  if (to == from) return;
  memcpy(ws->x + to * ws->x_stride, ws->x + from * ws->x_stride, d->width * sizeof *ws->x);
  memcpy(ws->cos + to * half, ws->cos + from * half, half * sizeof *ws->cos);
  memcpy(ws->sin + to * half, ws->sin + from * half, half * sizeof *ws->sin);
}

/* The wanted rows move to where the pass begins. */
static void keep_wanted(hr_pass *wanted, const hr_pass *all, unsigned thread) {
  for (size_t i = 0; thread == 0 && i < wanted->rows; i++)
    move_row(wanted, i, wanted_row(all, i));
  hr_end_step(wanted, thread, HR_PART_HEAD);
  hr_part_streams(wanted, thread);
}

/* --- A pass ----------------------------------------------------------------- */

static void run_pass(void *arg, unsigned thread, unsigned threads) {
  passes *p = arg;
  hr_pass *pass = &p->all, *wanted = &p->wanted;
  hr_private *own = &pass->ws->private[thread];
  own->step = 0;
  if (pass->ws->profile) own->mark = hr_clock_ns();
  const hr_stretch *stretch = pass->request->stretch;
  uint32_t first = stretch ? stretch->first : 0;
  uint32_t end = stretch ? stretch->end : pass->model->description.layers;
  hr_embed(pass, thread, threads);
  if (pass->early) end--;
  for (uint32_t i = first; i < end; i++) run_layer(pass, thread, threads, i);
  if (stretch) {
    give_stream(pass, thread);
    return;
  }
  if (pass->early) hr_fill_cache(pass, thread, threads, end);
  if (pass->request->hidden) hr_hidden(pass, thread, threads);
  if (wanted->rows == 0) return;
  if (wanted->rows < pass->rows) keep_wanted(wanted, pass, thread);
  if (pass->early) run_layer(wanted, thread, threads, end);
  hr_head(wanted, thread, threads);
  hr_mark(wanted, thread, HR_PART_HEAD);
}

/* The last span whose count (first_row or first_tile, at that offset) is at most value. */
static const hr_span *last_span(const hr_pass *pass, size_t offset, size_t value) {
  size_t low = 0, high = pass->spans;
  while (high - low > 1) {
    size_t middle = low + (high - low) / 2;
    const char *span = (const char *)&pass->span[middle];
    if (*(const size_t *)(const void *)(span + offset) <= value)
      low = middle;
    else
      high = middle;
  }
  return &pass->span[low];
}

const hr_span *hr_span_of_row(const hr_pass *pass, size_t row) {
  return last_span(pass, offsetof(hr_span, first_row), row);
}

const hr_span *hr_span_of_tile(const hr_pass *pass, size_t tile) {
  return last_span(pass, offsetof(hr_span, first_tile), tile);
}

hr_status hr_forward(hr_workspace *ws, hr_team *team, unsigned threads, hr_kv_cache *cache,
                     const hr_request *request, hr_error *err) {
  size_t wanted = count_wanted(request);
  passes p = {.all = {.model = ws->model, .kernels = ws->kernels, .ws = ws, .team = team,
                      .cache = cache, .request = request,
                      .shares = hr_team_shares(team, threads), .rows = request->rows,
                      .span = ws->span, .spans = note_texts(ws, request, cache->room)}};
  p.all.early = leave_early(&p.all, wanted);
  fold_text(&p.all, threads, wanted);
  p.wanted = p.all;
  if (wanted < request->rows) {
    p.wanted.folded = false;
    p.wanted.rows = wanted;
    p.wanted.span = ws->wanted_span;
    p.wanted.spans = note_wanted(ws, &p.all, wanted);
  }
  hr_tiles_clear(&ws->tiles);
  return hr_team_run(team, threads, run_pass, &p, err);
}

/* --- Steps ---------------------------------------------------------------- */

hr_step hr_begin_step(hr_pass *pass, unsigned thread, unsigned threads, size_t count,
                      size_t bytes) {
  enum { SHORT_BYTES = 64 << 10 }; /* a thread reads them in a microsecond or two */
  hr_workspace *ws = pass->ws;
  size_t unit = (count + HR_TILES_MOST - 1) / HR_TILES_MOST;
  if (unit == 0) unit = 1;
  return (hr_step){
      .tiles = {.tiles = &ws->tiles,
                .shares = pass->shares,
                .number = ++ws->private[thread].step,
                .count = (uint32_t)((count + unit - 1) / unit),
                .thread = thread,
                .threads = threads,
                .still = bytes * count / threads < SHORT_BYTES},
      .count = count,
      .unit = unit,
  };
}

void hr_end_step(hr_pass *pass, unsigned thread, hr_part part) {
  hr_mark(pass, thread, part);
  hr_team_barrier(pass->team, thread);
  hr_mark(pass, thread, HR_PART_WAIT);
}

void hr_end_step_before(hr_pass *pass, unsigned thread, unsigned threads, hr_part part,
                        const hr_matrix *next) {
  size_t bytes = 0;
  const void *at = NULL;
  if (pass->rows == 1 && threads > 1 && next)
    at = hr_first_panels(pass, thread, threads, next, &bytes);
  hr_mark(pass, thread, part);
  hr_team_barrier_fetching(pass->team, thread, at, bytes);
  hr_mark(pass, thread, HR_PART_WAIT);
}

void hr_note_time(const hr_pass *pass, unsigned thread, hr_part part) {
  hr_private *own = &pass->ws->private[thread];
  uint64_t now = hr_clock_ns();
  pass->ws->profile[thread].ns[part] += now - own->mark;
  own->mark = now;
}

void hr_workspace_set_profile(hr_workspace *ws, hr_profile *profile) {
  ws->profile = profile;
}

void hr_workspace_force_stealing(hr_workspace *ws, uint32_t seed) {
  ws->tiles.seed = seed;
}

void hr_workspace_set_tap(hr_workspace *ws, hr_tap_fn *tap, void *arg) {
  ws->tap = tap;
  ws->tap_arg = arg;
}

void hr_workspace_set_input_tap(hr_workspace *ws, hr_input_tap_fn *tap, void *arg) {
  ws->input_tap = tap;
  ws->input_tap_arg = arg;
}

void hr_show(hr_pass *pass, unsigned thread, const char *name, uint32_t layer, const float *data,
             size_t rows, size_t columns, size_t stride) {
  if (!pass->ws->tap) return;
  hr_team_barrier(pass->team, thread);
  if (thread == 0) pass->ws->tap(pass->ws->tap_arg, name, layer, data, rows, columns, stride);
  hr_team_barrier(pass->team, thread);
}

/* --- Buffers -------------------------------------------------------------- */

/* Walks over the buffers of a workspace: with base NULL it only adds up, with a
 * block of that size it hands out the places. Every place begins on a line of
 * its own, so that threads don't share lines. */
typedef struct arena {
  char *base;
  size_t used;
  bool overflow;
} arena;

static void *take(arena *a, size_t count, size_t size) {
  size_t bytes, end;
  if (!hr_mul_size(count, size, &bytes) || !hr_add_size(bytes, 63, &bytes) ||
      !hr_add_size(a->used, bytes / 64 * 64, &end)) {
    a->overflow = true;
    return NULL;
  }
  void *place = a->base ? a->base + a->used : NULL;
  a->used = end;
  return place;
}

static size_t product_of(arena *a, size_t x, size_t y) {
  size_t z;
  if (hr_mul_size(x, y, &z)) return z;
  a->overflow = true;
  return 0;
}

static size_t larger(size_t a, size_t b) {
  return a > b ? a : b;
}

static void lay_out_private(arena *a, hr_workspace *ws, const hr_description *d, hr_private *own) {
  size_t queries = larger(HR_QUERIES, d->heads / d->kv_heads);
  own->x = take(a, ws->x_stride, sizeof(float));
  own->row = take(a, ws->x_stride, sizeof(float));
  own->quantized = take(a, ws->quantized_stride, 1);
  own->query = take(a, queries, sizeof(hr_query));
  own->max = take(a, queries, sizeof(float));
  own->sum = take(a, queries, sizeof(float));
  own->out = take(a, product_of(a, queries, ws->out_stride), sizeof(float));
  own->block_max = take(a, queries, sizeof(float));
  own->block_sum = take(a, queries, sizeof(float));
  own->block_out = take(a, product_of(a, queries, ws->out_stride), sizeof(float));
  size_t piece = ws->rows < HR_MANY_ROWS ? 0
                                         : hr_min_size(ws->rows, HR_PIECE_ROWS) * HR_PIECE_WIDTH;
  own->up = take(a, piece, sizeof(float));
  own->gate = take(a, d->gated ? piece : 0, sizeof(float));
}

static void lay_out(arena *a, hr_workspace *ws, const hr_description *d) {
  size_t heads_width = (size_t)d->heads * d->head_width,
         kv_width = (size_t)d->kv_heads * d->head_width;
  size_t widest = larger(larger(d->width, d->ffn_width), heads_width);
  size_t blocks = (ws->positions + HR_KEY_BLOCK - 1) / HR_KEY_BLOCK, rows = ws->rows;
  ws->x_stride = hr_round_up(d->width, 16);
  ws->heads_stride = hr_round_up(heads_width, 16);
  ws->kv_stride = hr_round_up(kv_width, 16);
  ws->ffn_stride = hr_round_up(d->ffn_width, 16);
  ws->out_stride = hr_round_up(d->head_width, 16);
  ws->quantized_stride = hr_q8_row_bytes(widest);

  size_t frequencies = d->position == HR_POSITION_ROPE ? d->rope_width / 2
                       : d->position == HR_POSITION_SINUSOIDAL ? d->width / 2 : 0;
  size_t angles = d->position == HR_POSITION_ROPE ? d->rope_width / 2 : 0;
  ws->frequency = take(a, frequencies, sizeof(hr_frequency));
  ws->slope = take(a, d->heads, sizeof(float));
  ws->x = take(a, product_of(a, rows, ws->x_stride), sizeof(float));
  ws->normed = take(a, product_of(a, rows, ws->x_stride), sizeof(float));
  ws->sub = take(a, product_of(a, rows, ws->x_stride), sizeof(float));
  ws->quantized = take(a, rows, ws->quantized_stride);
  ws->query = take(a, product_of(a, rows, ws->heads_stride), sizeof(float));
  ws->key = take(a, product_of(a, rows, ws->kv_stride), sizeof(float));
  ws->value = take(a, product_of(a, rows, ws->kv_stride), sizeof(float));
  ws->attended = take(a, product_of(a, rows, ws->heads_stride), sizeof(float));
  ws->up = take(a, product_of(a, rows, ws->ffn_stride), sizeof(float));
  ws->gate = take(a, d->gated ? product_of(a, rows, ws->ffn_stride) : 0, sizeof(float));
  ws->cos = take(a, product_of(a, rows, angles), sizeof(float));
  ws->sin = take(a, product_of(a, rows, angles), sizeof(float));
  size_t parts = product_of(a, d->heads, blocks);
  ws->part_max = take(a, parts, sizeof(float));
  ws->part_sum = take(a, parts, sizeof(float));
  ws->part_out = take(a, product_of(a, parts, ws->out_stride), sizeof(float));
  ws->span = take(a, rows, sizeof(hr_span));
  ws->wanted_span = take(a, rows, sizeof(hr_span));
  ws->tiles.of = take(a, ws->threads, sizeof(hr_tiles_range));
  ws->tiles.threads = ws->threads;
  ws->private = take(a, ws->threads, sizeof(hr_private));
  for (unsigned t = 0; t < ws->threads; t++) {
    hr_private unplaced;
    lay_out_private(a, ws, d, a->base ? &ws->private[t] : &unplaced);
  }
}

size_t hr_workspace_bytes(const hr_description *d, size_t rows, size_t positions,
                          unsigned threads) {
  hr_workspace ws = {.rows = rows, .positions = positions, .threads = threads};
  arena a = {0};
  lay_out(&a, &ws, d);
  return a.overflow ? 0 : a.used;
}

hr_workspace *hr_workspace_create(const hr_transformer *model, const hr_kernels *kernels,
                                  size_t rows, size_t positions, unsigned threads, hr_error *err) {
  const hr_description *d = &model->description;
  size_t bytes = hr_workspace_bytes(d, rows, positions, threads);
  hr_workspace *ws = hr_calloc(1, sizeof *ws);
  void *block = ws && bytes ? hr_alloc_pages(bytes) : NULL;
  if (!block) {
    hr_free(ws);
    hr_fail_memory(err, "work buffers", bytes);
    return NULL;
  }
  *ws = (hr_workspace){.model = model, .kernels = kernels, .rows = rows, .positions = positions,
                       .threads = threads, .block = block, .block_bytes = bytes};
  arena a = {.base = block};
  lay_out(&a, ws, d);
  if (d->position == HR_POSITION_ROPE) hr_rope_frequencies(model, positions, ws->frequency);
  ws->rope_magnitude = hr_rope_magnitude(&d->rope_scaling);
  if (d->position == HR_POSITION_SINUSOIDAL) hr_frequencies(10000.0, d->width, ws->frequency);
  if (d->position == HR_POSITION_ALIBI)
    hr_alibi_slopes(d->heads, d->alibi_steepness > 0 ? d->alibi_steepness : 8, ws->slope);
  return ws;
}

void hr_workspace_free(hr_workspace *ws) {
  if (!ws) return;
  hr_free_pages(ws->block, ws->block_bytes);
  hr_free(ws);
}

/* --- KV cache ------------------------------------------------------------- */

/* Everything but the memory; false when that would not fit a size_t. */
static bool lay_out_cache(hr_kv_cache *cache, const hr_description *d, size_t positions,
                          bool half) {
  size_t head;
  *cache = (hr_kv_cache){
      .half = half,
      .capacity = hr_round_up(positions, HR_KEY_PANEL),
      .position_bytes = (d->head_width + hr_round_up(d->head_width, 16)) * (half ? 2u : 4u),
      .layers = d->mask == HR_MASK_FULL ? 1 : d->layers,
      .kv_heads = d->kv_heads,
  };
  return cache->capacity >= positions &&
         hr_mul_size(cache->capacity, cache->position_bytes, &head) &&
         hr_mul_size(head, (size_t)cache->layers * cache->kv_heads, &cache->bytes);
}

size_t hr_kv_cache_bytes(const hr_description *d, size_t positions, bool half) {
  hr_kv_cache cache;
  return lay_out_cache(&cache, d, positions, half) ? cache.bytes : 0;
}

hr_status hr_kv_cache_init(hr_kv_cache *cache, const hr_description *d, size_t positions, bool half,
                           hr_error *err) {
  if (!lay_out_cache(cache, d, positions, half))
    return hr_fail_memory(err, "KV cache", SIZE_MAX);
  cache->room = cache->capacity;
  cache->data = hr_alloc_pages(cache->bytes);
  return cache->data ? HR_OK : hr_fail_memory(err, "KV cache", cache->bytes);
}

void hr_kv_cache_finish(hr_kv_cache *cache) {
  hr_free_pages(cache->data, cache->bytes);
  *cache = (hr_kv_cache){0};
}
