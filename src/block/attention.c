/* SPDX-License-Identifier: MIT
 * Multi-head attention: projections to queries, keys and values; positions;
 * the cache; heads over blocks of keys; the output projection that merges the
 * heads. */
#include <string.h>

#include "block/pass.h"

typedef struct cached_block {
  char *keys, *values;
} cached_block;

/* Where a block of keys of a text lies. Its last one may have room for fewer. */
static cached_block block_of(const hr_pass *pass, const hr_span *span, uint32_t layer,
                             size_t kv_head, size_t block) {
  const hr_kv_cache *c = pass->cache;
  size_t first = block * HR_KEY_BLOCK, keys = hr_min_size(span->text.room - first, HR_KEY_BLOCK);
  size_t head = (c->layers > 1 ? layer : 0) * (size_t)c->kv_heads + kv_head;
  char *at = c->data + (head * c->capacity + span->text.slot + first) * c->position_bytes;
  return (cached_block){at, at + keys * pass->model->description.head_width * (c->half ? 2 : 4)};
}

/* To queries, keys and values, or to the last two of them only. */
static void project_inputs(hr_pass *pass, unsigned thread, unsigned threads, const hr_layer *layer,
                           bool queries) {
  hr_workspace *ws = pass->ws;
  const hr_description *d = &pass->model->description;
  const hr_matrix *matrices[] = {&layer->query, &layer->key, &layer->value};
  const hr_projection to[] = {{&layer->query, ws->query, ws->heads_stride},
                              {&layer->key, ws->key, ws->kv_stride},
                              {&layer->value, ws->value, ws->kv_stride}};
  size_t first = queries ? 0 : 1, count = 3 - first;
  hr_input input = hr_prepare(pass, thread, threads, &layer->attention_norm,
                              hr_stream(pass, thread), ws->x_stride, pass->rows, d->width,
                              matrices + first, count);
  hr_show(pass, thread, "attention_input", hr_layer_index(pass, layer), input.x, pass->rows,
          d->width, input.x_stride);
  hr_project(pass, thread, threads, &input, to + first, count, false);
  hr_end_step(pass, thread, HR_PART_QKV);
}

void hr_attention_inputs(hr_pass *pass, unsigned thread, unsigned threads, const hr_layer *layer) {
  project_inputs(pass, thread, threads, layer, true);
}

/* Norm per head where the model has one, then the rotation. */
static void turn(const hr_pass *pass, const hr_norm_weights *norm, size_t row, float *head) {
  const hr_description *d = &pass->model->description;
  const hr_workspace *ws = pass->ws;
  if (norm->gain) hr_norm_row(pass, norm, head, d->head_width, head);
  if (d->position != HR_POSITION_ROPE) return;
  size_t half = d->rope_width / 2;
  hr_rope_fn *rope = d->rope_pairing == HR_ROPE_PAIRS ? pass->kernels->rope_pairs
                                                      : pass->kernels->rope_halves;
  rope(head, ws->cos + row * half, ws->sin + row * half, half);
}

/* Readies a query of one row: turned and scaled. */
static void place_query(const hr_pass *pass, uint32_t index, size_t row, float *query) {
  const hr_description *d = &pass->model->description;
  turn(pass, &pass->model->layer[index].query_norm, row, query);
  pass->kernels->scale(query, d->score_scale, d->head_width);
}

/* One key/value head of one row: its key is turned and cached, its value cached. */
static void place_key(const hr_pass *pass, uint32_t index, size_t row, size_t kv_head) {
  const hr_layer *layer = &pass->model->layer[index];
  const hr_kernels *kernels = pass->kernels;
  hr_workspace *ws = pass->ws;
  size_t width = pass->model->description.head_width;
  float *key = ws->key + row * ws->kv_stride + kv_head * width;
  const float *value = ws->value + row * ws->kv_stride + kv_head * width;
  turn(pass, &layer->key_norm, row, key);
  const hr_span *span = hr_span_of_row(pass, row);
  size_t position = hr_position_of(span, row), at = position % HR_KEY_BLOCK;
  cached_block to = block_of(pass, span, index, kv_head, position / HR_KEY_BLOCK);
  (pass->cache->half ? kernels->store_key_f16 : kernels->store_key_f32)(key, width, to.keys, at);
  (pass->cache->half ? kernels->store_value_f16 : kernels->store_value_f32)(value, width,
                                                                            to.values, at);
}

/* One key/value head of one row, and, if they are there, the queries that share it. */
static void place_head(const hr_pass *pass, uint32_t index, size_t row, size_t kv_head,
                       bool queries) {
  const hr_description *d = &pass->model->description;
  size_t group = d->heads / d->kv_heads;
  float *query = pass->ws->query + row * pass->ws->heads_stride + kv_head * group * d->head_width;
  for (size_t g = 0; queries && g < group; g++)
    place_query(pass, index, row, query + g * d->head_width);
  place_key(pass, index, row, kv_head);
}

/* The keys that a row may see in a layer. */
static hr_range visible_keys(const hr_pass *pass, const hr_span *span, uint32_t layer, size_t row) {
  const hr_description *d = &pass->model->description;
  size_t window = hr_layer_window(d, layer);
  size_t position = hr_position_of(span, row);
  size_t end = d->mask == HR_MASK_FULL ? span->text.start + span->text.rows : position + 1;
  size_t first = 0;
  if (window && position + 1 > window) first = position + 1 - window;
  if (window && d->mask == HR_MASK_FULL) end = hr_min_size(end, position + window);
  return (hr_range){first, end};
}

static hr_query query_of(const hr_pass *pass, const hr_span *span, uint32_t layer, size_t row,
                         size_t head, float *max, float *sum, float *out) {
  const hr_description *d = &pass->model->description;
  const hr_workspace *ws = pass->ws;
  hr_range keys = visible_keys(pass, span, layer, row);
  return (hr_query){
      .q = ws->query + row * ws->heads_stride + head * d->head_width,
      .first = (uint32_t)keys.begin,
      .end = (uint32_t)keys.end,
      .position = (int32_t)hr_position_of(span, row),
      .slope = ws->slope[head],
      .max = max,
      .sum = sum,
      .out = out,
  };
}

/* A block of keys of a key/value head. */
typedef struct place {
  size_t kv_head, block;
} place;

/* Queries against a block of keys. next: what they, or others of the same text that see keys up to
 * `end`, are likely to meet next; NULL: not known. */
static void attend_block(const hr_pass *pass, const hr_span *span, uint32_t layer, place at,
                         const place *next, size_t end, const hr_query *query, size_t count) {
  const hr_description *d = &pass->model->description;
  cached_block cached = block_of(pass, span, layer, at.kv_head, at.block), later = {NULL, NULL};
  size_t left = next ? end - next->block * HR_KEY_BLOCK : 0;
  if (next) later = block_of(pass, span, layer, next->kv_head, next->block);
  hr_attend attend = {
      .keys = cached.keys,
      .values = cached.values,
      .next_keys = later.keys,
      .next_values = later.values,
      .next_count = (uint32_t)hr_min_size(left, HR_KEY_BLOCK),
      .width = d->head_width,
      .block = (uint32_t)at.block,
      .cap = d->score_cap,
      .queries = query,
      .count = count,
  };
  (pass->cache->half ? pass->kernels->attend_f16 : pass->kernels->attend_f32)(&attend);
}

/* Whether a head's part of a row is quantized for the output projection as soon as it is there. */
static bool quantizes_heads(const hr_pass *pass, const hr_layer *layer) {
  return pass->model->description.head_width % HR_Q8_BLOCK == 0 &&
         hr_quantizes_at_once(pass, &layer->output);
}

/* out / sum into the row's place among the heads; zeros where nothing was seen. */
static void finish_head(const hr_pass *pass, uint32_t layer, size_t row, size_t head, float *out,
                        float sum, bool seen) {
  const hr_workspace *ws = pass->ws;
  const hr_description *d = &pass->model->description;
  size_t width = d->head_width, k = d->heads * width;
  if (seen)
    pass->kernels->divide(out, sum, width);
  else
    memset(out, 0, width * sizeof *out);
  if (quantizes_heads(pass, &pass->model->layer[layer]))
    pass->kernels->quantize(out, k, head * width, (head + 1) * width,
                            ws->quantized + row * hr_q8_row_bytes(k));
  else
    memcpy(ws->attended + row * ws->heads_stride + head * width, out, width * sizeof *out);
}

/* The results of a block join those of the blocks before, of the queries that see both. What
 * queries see ascends, so that these follow each other. */
static void merge_block(const hr_pass *pass, unsigned thread, size_t block, size_t count) {
  const hr_private *own = &pass->ws->private[thread];
  size_t n = pass->ws->out_stride, begin = count, end = 0;
  for (size_t i = 0; i < count; i++) {
    const hr_query *q = &own->query[i];
    if (q->first / HR_KEY_BLOCK >= block || q->end <= block * HR_KEY_BLOCK) continue;
    if (begin == count) begin = i;
    end = i + 1;
  }
  if (begin < end)
    pass->kernels->attend_merge(end - begin, own->max + begin, own->sum + begin,
                                own->out + begin * n, own->block_max + begin,
                                own->block_sum + begin, own->block_out + begin * n, n);
}

/* Rows of one text and one key/value head against all their keys, blocks ascending.
 * A query's first block is written straight into its running result. The next head is attended to
 * by the same rows afterwards, if `more`. */
static void attend_tile(hr_pass *pass, unsigned thread, const hr_span *span, uint32_t layer,
                        size_t kv_head, hr_range rows, bool more) {
  const hr_description *d = &pass->model->description;
  hr_workspace *ws = pass->ws;
  hr_private *own = &ws->private[thread];
  size_t group = d->heads / d->kv_heads, count = 0;
  size_t begin = SIZE_MAX, end = 0;
  for (size_t r = rows.begin; r < rows.end; r++) {
    for (size_t g = 0; g < group; g++, count++)
      own->query[count] = query_of(pass, span, layer, r, kv_head * group + g, NULL, NULL, NULL);
    begin = hr_min_size(begin, own->query[count - 1].first / HR_KEY_BLOCK);
    if (own->query[count - 1].end > end) end = own->query[count - 1].end;
  }
  for (size_t block = begin; block * HR_KEY_BLOCK < end; block++) {
    for (size_t i = 0; i < count; i++) {
      bool running = own->query[i].first / HR_KEY_BLOCK >= block;
      own->query[i].max = running ? &own->max[i] : &own->block_max[i];
      own->query[i].sum = running ? &own->sum[i] : &own->block_sum[i];
      own->query[i].out = (running ? own->out : own->block_out) + i * ws->out_stride;
    }
    bool last = (block + 1) * HR_KEY_BLOCK >= end;
    place next = last ? (place){kv_head + 1, begin} : (place){kv_head, block + 1};
    attend_block(pass, span, layer, (place){kv_head, block}, last && !more ? NULL : &next, end,
                 own->query, count);
    merge_block(pass, thread, block, count);
  }
  for (size_t i = 0; i < count; i++)
    finish_head(pass, layer, rows.begin + i / group, kv_head * group + i % group,
                own->out + i * ws->out_stride, own->sum[i],
                own->query[i].first < own->query[i].end);
}

static size_t most_blocks(const hr_workspace *ws) {
  return (ws->positions + HR_KEY_BLOCK - 1) / HR_KEY_BLOCK;
}

/* The queries of one row that share a key/value head, turned, in the thread's own memory. */
static void place_queries(const hr_pass *pass, unsigned thread, uint32_t layer, size_t kv_head) {
  const hr_description *d = &pass->model->description;
  const hr_workspace *ws = pass->ws;
  const hr_private *own = &ws->private[thread];
  size_t group = d->heads / d->kv_heads;
  for (size_t g = 0; g < group; g++) {
    float *query = own->block_out + g * ws->out_stride;
    memcpy(query, ws->query + (kv_head * group + g) * d->head_width, d->head_width * sizeof *query);
    place_query(pass, layer, 0, query);
  }
}

/* One row and one block of keys of one key/value head, by itself. The block that the row's key
 * belongs to gets it from whoever attends to it. */
static void attend_part(const hr_pass *pass, unsigned thread, uint32_t layer, place at,
                        const place *next) {
  const hr_description *d = &pass->model->description;
  const hr_workspace *ws = pass->ws;
  const hr_private *own = &ws->private[thread];
  size_t group = d->heads / d->kv_heads;
  for (size_t g = 0; g < group; g++) {
    size_t head = at.kv_head * group + g, part = head * most_blocks(ws) + at.block;
    own->query[g] = query_of(pass, pass->span, layer, 0, head, &ws->part_max[part],
                             &ws->part_sum[part], ws->part_out + part * ws->out_stride);
    own->query[g].q = own->block_out + g * ws->out_stride;
  }
  if (at.block == pass->span->text.start / HR_KEY_BLOCK) place_key(pass, layer, 0, at.kv_head);
  hr_mark(pass, thread, HR_PART_PLACE);
  attend_block(pass, pass->span, layer, at, next, own->query->end, own->query, group);
  hr_mark(pass, thread, HR_PART_ATTENTION);
}

/* Blocks of one head, ascending, and the head's place in the row. */
static void merge_head(const hr_pass *pass, uint32_t layer, size_t head, size_t first_block,
                       size_t blocks) {
  hr_workspace *ws = pass->ws;
  size_t at = head * most_blocks(ws) + first_block;
  float *out = ws->part_out + at * ws->out_stride;
  pass->kernels->attend_join(blocks, &ws->part_max[at], &ws->part_sum[at], out, ws->out_stride);
  finish_head(pass, layer, 0, head, out, ws->part_sum[at], true);
}

/* Key and value of one position and head in the cache. */
static size_t bytes_of_key(const hr_pass *pass) {
  return (size_t)pass->model->description.head_width * 2 * (pass->cache->half ? 2 : 4);
}

/* Of (head, block) units the one to fetch while a thread is at another; that one itself: none. A
 * head's last block may have so few keys that the one behind it would not be fetched during it. */
static size_t next_unit(const hr_step *step, size_t unit, size_t blocks, size_t last_keys) {
  if (!hr_is_own(step, unit)) return unit; /* taken from another's end: what follows is done */
  bool brief = (unit + 1) % blocks + 1 == blocks && last_keys < HR_KEY_BLOCK / 2;
  size_t next = unit + (brief && hr_is_own(step, unit + 2) ? 2 : 1);
  return hr_is_own(step, next) ? next : unit;
}

/* One row over many blocks of keys: every (head, block) on its own, then each
 * head's blocks are merged in ascending order. */
static void attend_along_keys(hr_pass *pass, unsigned thread, unsigned threads, uint32_t layer,
                              size_t blocks, size_t first_block) {
  const hr_description *d = &pass->model->description;
  const hr_workspace *ws = pass->ws;
  hr_step step = hr_begin_step(pass, thread, threads, d->kv_heads * blocks,
                               HR_KEY_BLOCK * bytes_of_key(pass));
  step.tiles.single = true;
  size_t placed = SIZE_MAX, last_keys = pass->span->text.start % HR_KEY_BLOCK + 1;
  for (hr_range run; hr_next_run(&step, &run);)
    for (size_t u = run.begin; u < run.end; u++) {
      size_t after = next_unit(&step, u, blocks, last_keys);
      place at = {u / blocks, first_block + u % blocks};
      place next = {after / blocks, first_block + after % blocks};
      if (at.kv_head != placed) place_queries(pass, thread, layer, at.kv_head);
      placed = at.kv_head;
      attend_part(pass, thread, layer, at, after > u ? &next : NULL);
    }
  hr_end_step(pass, thread, HR_PART_ATTENTION);

  step = hr_begin_step(pass, thread, threads, d->heads, blocks * ws->out_stride * sizeof(float));
  for (hr_range run; hr_next_run(&step, &run);)
    for (size_t h = run.begin; h < run.end; h++) merge_head(pass, layer, h, first_block, blocks);
}

/* The rows of a tile of queries, counted through all texts. */
static hr_range tile_of(const hr_pass *pass, size_t index, const hr_span **span) {
  size_t rows = hr_tile_rows(&pass->model->description);
  *span = hr_span_of_tile(pass, index);
  size_t begin = (index - (*span)->first_tile) * rows;
  size_t end = hr_min_size(begin + rows, (*span)->text.rows);
  return (hr_range){(*span)->first_row + begin, (*span)->first_row + end};
}

/* Heads x tiles of rows, in the order in which they are handed out: those of the first thread's
 * rows come first, where threads have rows of their own. Of a thread's, head after head; later rows
 * see more keys and come first, so that what is left for the end is small. */
typedef struct tile_order {
  size_t tiles, heads;
  unsigned parts;
  const uint32_t *shares; /* of the parts, see hr_tiles_step */
} tile_order;

static size_t tile_at(const tile_order *order, size_t unit, size_t *kv_head) {
  size_t begin = 0, end = order->tiles;
  for (unsigned part = 0; order->parts > 1 && part < order->parts; part++) {
    begin = hr_tiles_begin(part, order->parts, (uint32_t)order->tiles, order->shares);
    end = hr_tiles_begin(part + 1, order->parts, (uint32_t)order->tiles, order->shares);
    if (unit < order->heads * end) break;
  }
  unit -= order->heads * begin;
  *kv_head = unit / (end - begin);
  return end - 1 - unit % (end - begin);
}

static void attend_rows(hr_pass *pass, unsigned thread, unsigned threads, uint32_t layer) {
  const hr_description *d = &pass->model->description;
  const hr_span *last = &pass->span[pass->spans - 1];
  size_t tile = hr_tile_rows(d);
  bool own_rows = pass->folded ||
                  (d->mask == HR_MASK_FULL && hr_splits_by_rows(pass->rows, threads));
  const tile_order order = {.tiles = last->first_tile + (last->text.rows + tile - 1) / tile,
                            .parts = own_rows ? threads : 1,
                            .heads = d->kv_heads,
                            .shares = pass->shares};
  size_t keys = last->text.start + (last->text.rows + 1) / 2;
  hr_step step = hr_begin_step(pass, thread, threads, order.heads * order.tiles,
                               keys * bytes_of_key(pass) * tile);
  step.tiles.single = true;
  for (hr_range run; hr_next_run(&step, &run);)
    for (size_t u = run.begin; u < run.end; u++) {
      const hr_span *span;
      size_t kv_head, index = tile_at(&order, u, &kv_head);
      hr_range rows = tile_of(pass, index, &span);
      attend_tile(pass, thread, span, layer, kv_head, rows, false);
    }
}

/* One row and few keys: a thread does all of a key/value head, and no one waits
 * in between. */
static void attend_few_keys(hr_pass *pass, unsigned thread, unsigned threads, uint32_t layer,
                            size_t keys) {
  hr_step step = hr_begin_step(pass, thread, threads, pass->model->description.kv_heads,
                               keys * bytes_of_key(pass));
  step.tiles.single = true;
  for (hr_range run; hr_next_run(&step, &run);)
    for (size_t h = run.begin; h < run.end; h++) {
      place_head(pass, layer, 0, h, true);
      hr_mark(pass, thread, HR_PART_PLACE);
      bool more = hr_is_own(&step, h) && hr_is_own(&step, h + 1);
      attend_tile(pass, thread, pass->span, layer, h, (hr_range){0, 1}, more);
      hr_mark(pass, thread, HR_PART_ATTENTION);
    }
}

/* Some heads of some rows, counted row by row. Of whole rows one head after the other is placed:
 * keys that follow each other share cache lines, one for each column. */
static void place_run(const hr_pass *pass, uint32_t layer, hr_range run, bool queries) {
  enum { ROWS = HR_KEY_PANEL / 2 };
  size_t heads = pass->model->description.kv_heads;
  for (size_t u = run.begin, count; u < run.end; u += count) {
    size_t row = u / heads, rows = hr_min_size((run.end - u) / heads, ROWS);
    count = u % heads == 0 && rows > 0 ? rows * heads : 1;
    for (size_t i = 0; i < count; i++) {
      size_t head = count > 1 ? i / rows : u % heads;
      place_head(pass, layer, count > 1 ? row + i % rows : row, head, queries);
    }
  }
}

static void place_heads(hr_pass *pass, unsigned thread, unsigned threads, uint32_t layer,
                        bool queries) {
  const hr_description *d = &pass->model->description;
  size_t heads = 2 + (queries ? d->heads / d->kv_heads : 0);
  hr_step step = hr_begin_step(pass, thread, threads, pass->rows * d->kv_heads,
                               heads * d->head_width * 2 * sizeof(float));
  for (hr_range run; hr_next_run(&step, &run);) place_run(pass, layer, run, queries);
  hr_end_step(pass, thread, HR_PART_PLACE);
}

void hr_fill_cache(hr_pass *pass, unsigned thread, unsigned threads, uint32_t layer) {
  project_inputs(pass, thread, threads, &pass->model->layer[layer], false);
  place_heads(pass, thread, threads, layer, false);
}

void hr_attention(hr_pass *pass, unsigned thread, unsigned threads, uint32_t layer) {
  size_t rows = pass->rows;
  hr_range keys = visible_keys(pass, pass->span, layer, 0);
  size_t first_block = keys.begin / HR_KEY_BLOCK;
  size_t blocks = (keys.end + HR_KEY_BLOCK - 1) / HR_KEY_BLOCK - first_block;

  if (rows == 1 && (threads == 1 || blocks == 1)) {
    attend_few_keys(pass, thread, threads, layer, keys.end - keys.begin);
  } else if (rows == 1) {
    attend_along_keys(pass, thread, threads, layer, blocks, first_block);
  } else {
    place_heads(pass, thread, threads, layer, true);
    attend_rows(pass, thread, threads, layer);
  }
  hr_end_step_before(pass, thread, threads, HR_PART_ATTENTION, &pass->model->layer[layer].output);
}

void hr_attention_output(hr_pass *pass, unsigned thread, unsigned threads, const hr_layer *layer) {
  const hr_description *d = &pass->model->description;
  hr_workspace *ws = pass->ws;
  const hr_matrix *matrices[] = {&layer->output};
  size_t rows = pass->rows, k = (size_t)d->heads * d->head_width;
  hr_input input = {.quantized = ws->quantized, .rows = rows};
  if (!quantizes_heads(pass, layer))
    input = hr_prepare(pass, thread, threads, NULL, ws->attended, ws->heads_stride, rows, k,
                       matrices, 1);
  bool add;
  const hr_projection to = {&layer->output, hr_residual_target(pass, &add), ws->x_stride};
  hr_project(pass, thread, threads, &input, &to, 1, add);
}
