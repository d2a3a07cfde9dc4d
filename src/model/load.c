/* SPDX-License-Identifier: MIT
 * First a plan - every tensor found, every shape checked, every size added up -
 * then one block of memory, then packing into it. */
#include "model/load.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "model/architecture.h"
#include "quant/convert.h"

#define TRY(call)                         \
  do {                                    \
    hr_status status_ = (call);           \
    if (status_ != HR_OK) return status_; \
  } while (0)

/* One thing to put into the block: a matrix or a row of floats. */
typedef struct item {
  const hr_tensor *tensor;
  size_t first_row;        /* of the tensor's outputs */
  bool transposed;
  hr_matrix *matrix;       /* NULL: floats */
  const float **floats;
  size_t count;            /* floats */
  size_t offset, bytes;    /* in the block */
} item;

typedef struct plan {
  const hr_source *source;
  const hr_architecture *row;
  const hr_tensor_names *names;
  hr_weights weights;
  hr_loaded *loaded;
  hr_error *err;
  item *items;
  size_t count, capacity;
  size_t bytes;
  size_t kept_f16; /* matrices that could not be int8 */
  char refused[128]; /* a wanted tensor that is there, in a type that can't be read */
} plan;

/* --- Finding tensors ------------------------------------------------------ */

static const hr_tensor *look_up(plan *p, const char *name) {
  const hr_tensor *t = hr_source_find_tensor(p->source, name);
  if (!t && hr_source_refused_type(p->source, name))
    snprintf(p->refused, sizeof p->refused, "%s", name);
  return t;
}

/* "blk.3.attn_q" + ".weight", with the optional prefix tried first. */
static const hr_tensor *find(plan *p, hr_tensor_slot slot, uint32_t layer, const char *suffix,
                             char *name, size_t capacity) {
  const char *pattern = p->names->name[slot];
  if (!pattern) return NULL;
  char stem[96];
  const char *hole = strstr(pattern, "%u");
  if (hole)
    snprintf(stem, sizeof stem, "%.*s%u%s", (int)(hole - pattern), pattern, layer, hole + 2);
  else
    snprintf(stem, sizeof stem, "%s", pattern);
  if (p->names->prefix) {
    snprintf(name, capacity, "%s%s%s", p->names->prefix, stem, suffix);
    const hr_tensor *t = look_up(p, name);
    if (t) return t;
  }
  snprintf(name, capacity, "%s%s", stem, suffix);
  return look_up(p, name);
}

/* The sentence for a tensor that is not there, or is of a type that can't be read. */
static hr_status no_tensor(const plan *p, const char *name) {
  hr_source_need_tensor(p->source, name, p->err);
  return HR_ERROR_FILE;
}

static hr_status wrong_shape(const plan *p, const hr_tensor *t, size_t rows, size_t columns) {
  char found[96] = "";
  size_t used = 0;
  for (unsigned i = 0; i < t->dims; i++) {
    int n = snprintf(found + used, sizeof found - used, "%s%zu", i ? " x " : "", t->dim[i]);
    if (n > 0) used += (size_t)n;
  }
  if (rows)
    return hr_fail(p->err, HR_ERROR_FILE, "%s: tensor '%s' is %s, expected %zu x %zu",
                   hr_source_path(p->source), t->name, found, rows, columns);
  return hr_fail(p->err, HR_ERROR_FILE,
                 "%s: tensor '%s' is %s, expected %zu elements in one dimension",
                 hr_source_path(p->source), t->name, found, columns);
}

static hr_status add_item(plan *p, item it) {
  if (p->count == p->capacity) {
    size_t capacity = p->capacity ? p->capacity * 2 : 64;
    item *items = hr_realloc(p->items, capacity, sizeof *items);
    if (!items) return hr_fail_memory(p->err, "list of tensors", capacity * sizeof *items);
    p->items = items;
    p->capacity = capacity;
  }
  it.offset = p->bytes;
  if (!hr_add_size(p->bytes, hr_round_up(it.bytes, 64), &p->bytes))
    return hr_fail(p->err, HR_ERROR_MEMORY,
                   "%s: the weights do not fit into this machine's addresses",
                   hr_source_path(p->source));
  p->items[p->count++] = it;
  return HR_OK;
}

static hr_status add_floats(plan *p, const hr_tensor *t, size_t first, size_t total, size_t count,
                            const float **to) {
  size_t elements = 1;
  for (unsigned i = 0; i < t->dims; i++) elements *= t->dim[i];
  if (elements != total || t->dim[t->dims - 1] != total) return wrong_shape(p, t, 0, total);
  return add_item(p, (item){.tensor = t, .first_row = first, .floats = to, .count = count,
                            .bytes = count * sizeof(float)});
}

static size_t dim_of(const hr_tensor *t, unsigned i) {
  return i < t->dims ? t->dim[i] : 1;
}

static hr_panel_type panel_type_of(plan *p, const hr_tensor *t, size_t k) {
  switch (p->weights) {
    case HR_WEIGHTS_F32: return HR_PANEL_F32;
    case HR_WEIGHTS_F16: return HR_PANEL_F16;
    case HR_WEIGHTS_Q8_0:
      if (k % HR_Q8_BLOCK == 0) return HR_PANEL_Q8;
      p->kept_f16++;
      return HR_PANEL_F16;
    case HR_WEIGHTS_NATIVE: break;
  }
  switch (t->format) {
    case HR_FORMAT_F16: return HR_PANEL_F16;
    case HR_FORMAT_BF16: return HR_PANEL_BF16;
    case HR_FORMAT_F32: return HR_PANEL_F32;
    default: return HR_PANEL_Q8; /* every block format: 32 columns or a multiple */
  }
}

/* Outputs first..first + n of a tensor of total outputs, k inputs each. */
static hr_status add_matrix(plan *p, const hr_tensor *t, size_t first, size_t total, size_t n,
                            size_t k, bool transposed, hr_matrix *m) {
  size_t rows = transposed ? k : total, columns = transposed ? total : k;
  if (t->dims != 2 || dim_of(t, 0) != rows || dim_of(t, 1) != columns)
    return wrong_shape(p, t, rows, columns);
  m->type = panel_type_of(p, t, k);
  m->n = (uint32_t)n;
  m->k = (uint32_t)k;
  if (m->type != HR_PANEL_F32) p->loaded->all_f32 = false;
  size_t bytes;
  if (!hr_mul_size(hr_round_up(n, HR_PANEL_ROWS) / HR_PANEL_ROWS, hr_panel_bytes(m->type, k),
                   &bytes))
    return hr_fail_memory(p->err, t->name, SIZE_MAX);
  return add_item(p, (item){.tensor = t, .first_row = first, .transposed = transposed, .matrix = m,
                            .bytes = bytes});
}

/* --- What a Transformer consists of --------------------------------------- */

static hr_status plan_norm(plan *p, hr_tensor_slot slot, uint32_t layer, size_t width,
                           bool required, hr_norm_weights *norm) {
  char name[128];
  const hr_tensor *t = find(p, slot, layer, ".bias", name, sizeof name);
  if (t) TRY(add_floats(p, t, 0, width, width, &norm->shift));
  t = find(p, slot, layer, ".weight", name, sizeof name);
  if (t) return add_floats(p, t, 0, width, width, &norm->gain);
  return required ? no_tensor(p, name) : HR_OK;
}

/* A whole tensor, or a part of the outputs of a fused one, with its bias. */
static hr_status plan_part(plan *p, hr_tensor_slot slot, uint32_t layer, size_t first, size_t total,
                           size_t n, size_t k, hr_matrix *m) {
  char name[128];
  const hr_tensor *bias = find(p, slot, layer, ".bias", name, sizeof name);
  if (bias) TRY(add_floats(p, bias, first, total, n, &m->bias));
  const hr_tensor *t = find(p, slot, layer, ".weight", name, sizeof name);
  if (!t) return no_tensor(p, name);
  bool transposed = p->names->transposed && slot >= HR_TENSOR_ATTENTION_NORM;
  return add_matrix(p, t, first, total, n, k, transposed, m);
}

static hr_status plan_matrix(plan *p, hr_tensor_slot slot, uint32_t layer, size_t n, size_t k,
                             hr_matrix *m) {
  return plan_part(p, slot, layer, 0, n, n, k, m);
}

static hr_status plan_attention(plan *p, const hr_description *d, uint32_t index, hr_layer *layer) {
  size_t q = (size_t)d->heads * d->head_width, kv = (size_t)d->kv_heads * d->head_width;
  char name[128];
  if (find(p, HR_TENSOR_QKV, index, ".weight", name, sizeof name)) {
    size_t total = q + 2 * kv;
    TRY(plan_part(p, HR_TENSOR_QKV, index, 0, total, q, d->width, &layer->query));
    TRY(plan_part(p, HR_TENSOR_QKV, index, q, total, kv, d->width, &layer->key));
    TRY(plan_part(p, HR_TENSOR_QKV, index, q + kv, total, kv, d->width, &layer->value));
  } else {
    TRY(plan_matrix(p, HR_TENSOR_QUERY, index, q, d->width, &layer->query));
    TRY(plan_matrix(p, HR_TENSOR_KEY, index, kv, d->width, &layer->key));
    TRY(plan_matrix(p, HR_TENSOR_VALUE, index, kv, d->width, &layer->value));
  }
  TRY(plan_norm(p, HR_TENSOR_QUERY_NORM, index, d->head_width, false, &layer->query_norm));
  TRY(plan_norm(p, HR_TENSOR_KEY_NORM, index, d->head_width, false, &layer->key_norm));
  return plan_matrix(p, HR_TENSOR_OUTPUT, index, d->width, q, &layer->output);
}

static hr_status plan_layer(plan *p, const hr_description *d, uint32_t index, hr_layer *layer) {
  bool before = d->norm_place != HR_NORM_AFTER, after = d->norm_place != HR_NORM_BEFORE;
  if (before) {
    TRY(plan_norm(p, HR_TENSOR_ATTENTION_NORM, index, d->width, true, &layer->attention_norm));
    TRY(plan_norm(p, HR_TENSOR_FFN_NORM, index, d->width, !d->parallel, &layer->ffn_norm));
  }
  if (after) {
    TRY(plan_norm(p, HR_TENSOR_ATTENTION_POST_NORM, index, d->width, true,
                  &layer->attention_post_norm));
    TRY(plan_norm(p, HR_TENSOR_FFN_POST_NORM, index, d->width, true, &layer->ffn_post_norm));
  }
  TRY(plan_attention(p, d, index, layer));
  if (d->gated) TRY(plan_matrix(p, HR_TENSOR_GATE, index, d->ffn_width, d->width, &layer->gate));
  TRY(plan_matrix(p, HR_TENSOR_UP, index, d->ffn_width, d->width, &layer->up));
  return plan_matrix(p, HR_TENSOR_DOWN, index, d->width, d->ffn_width, &layer->down);
}

static hr_status plan_positions(plan *p, hr_transformer *m) {
  const hr_description *d = &m->description;
  char name[128];
  const hr_tensor *t = find(p, HR_TENSOR_POSITIONS, 0, ".weight", name, sizeof name);
  if (!t) return no_tensor(p, name);
  m->position_rows = dim_of(t, 0);
  if (t->dims != 2 || t->dim[1] != d->width || m->position_rows < d->context + d->position_offset)
    return wrong_shape(p, t, d->context + d->position_offset, d->width);
  size_t count = m->position_rows * d->width;
  return add_item(p, (item){.tensor = t, .floats = &m->position_embedding, .count = count,
                            .bytes = count * sizeof(float)});
}

static hr_status plan_rope_factors(plan *p, hr_transformer *m) {
  const hr_description *d = &m->description;
  if (d->position != HR_POSITION_ROPE) return HR_OK;
  char name[128];
  const hr_tensor *t = find(p, HR_TENSOR_ROPE_FACTORS, 0, ".weight", name, sizeof name);
  return t ? add_floats(p, t, 0, d->rope_width / 2, d->rope_width / 2, &m->rope_factors) : HR_OK;
}

/* The number of tokens is the number of the embedding's rows, and what the file
 * says it is, if it does. slot is the embedding's, or the head's where a tied
 * matrix is stored under that name. */
static hr_status plan_embedding(plan *p, hr_transformer *m, hr_tensor_slot slot) {
  hr_description *d = &m->description;
  char name[128];
  const hr_tensor *t = find(p, slot, 0, ".weight", name, sizeof name);
  if (!t) return no_tensor(p, name);
  if (t->dims != 2 || t->dim[0] == 0 || t->dim[0] > INT32_MAX ||
      (d->vocab && t->dim[0] != d->vocab))
    return wrong_shape(p, t, d->vocab ? d->vocab : 1, d->width);
  d->vocab = (uint32_t)t->dim[0];
  return plan_matrix(p, slot, 0, d->vocab, d->width, &m->token_embedding);
}

static hr_status plan_ends(plan *p, hr_transformer *m) {
  const hr_description *d = &m->description;
  if (d->position == HR_POSITION_LEARNED) TRY(plan_positions(p, m));
  TRY(plan_rope_factors(p, m));
  TRY(plan_norm(p, HR_TENSOR_EMBEDDING_NORM, 0, d->width, false, &m->embedding_norm));
  return plan_norm(p, HR_TENSOR_FINAL_NORM, 0, d->width, d->norm_place != HR_NORM_AFTER,
                   &m->final_norm);
}

/* A model without an embedding of its own may hold it as the head (tied, and
 * stored under the head's name). */
static hr_status plan_all(plan *p) {
  hr_transformer *m = &p->loaded->transformer;
  hr_description *d = &m->description;
  char name[128];
  bool own = find(p, HR_TENSOR_TOKENS, 0, ".weight", name, sizeof name);
  bool head = find(p, HR_TENSOR_HEAD, 0, ".weight", name, sizeof name);
  TRY(plan_embedding(p, m, own || !head ? HR_TENSOR_TOKENS : HR_TENSOR_HEAD));
  if (own && head) TRY(plan_matrix(p, HR_TENSOR_HEAD, 0, d->vocab, d->width, &m->head));
  TRY(plan_ends(p, m));
  m->layer = hr_calloc(d->layers, sizeof *m->layer);
  if (!m->layer) return hr_fail_memory(p->err, "layers", d->layers * sizeof *m->layer);
  for (uint32_t i = 0; i < d->layers; i++) TRY(plan_layer(p, d, i, &m->layer[i]));
  /* Not even an optional tensor is passed over because of its type. */
  return p->refused[0] ? no_tensor(p, p->refused) : HR_OK;
}

/* Tensors that files carry and that say nothing new: causal masks, and angles
 * that follow from the values. */
static bool harmless(const char *name) {
  static const char *const endings[] = {".attn.bias", ".attn.masked_bias", ".rotary_emb.inv_freq",
                                        ".attn_rot_embd.weight"};
  size_t length = strlen(name);
  for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
    size_t n = strlen(endings[i]);
    if (length >= n && strcmp(name + length - n, endings[i]) == 0) return true;
  }
  return false;
}

/* A tensor that no act of the block reads would change the model's answer if it
 * were known: leaving it out must not pass for running the model. */
static hr_status refuse_unused(const plan *p) {
  size_t count = hr_source_tensor_count(p->source);
  hr_status status = HR_OK;
  for (size_t i = 0; i < count && status == HR_OK; i++) {
    const hr_tensor *t = hr_source_tensor_at(p->source, i);
    bool found = harmless(t->name);
    for (size_t j = 0; j < p->count && !found; j++) found = p->items[j].tensor == t;
    if (!found)
      status =
          hr_fail(p->err, HR_ERROR_FILE,
                  "%s: tensor '%s' is not known for architecture '%s', expected only tensors of "
                  "its %u layers",
                  hr_source_path(p->source), t->name, p->loaded->transformer.description.family,
                  p->loaded->transformer.description.layers);
  }
  return status;
}

/* --- Packing ---------------------------------------------------------------
 * All threads go through the items together, each packing its share of a
 * matrix's panels: the memory then lies near the thread that will read it. */

typedef struct packing {
  const plan *plan;
  const hr_kernels *kernels;
  const hr_load_options *options;
  char *scratch;         /* scratch_bytes for each thread */
  size_t scratch_bytes;
  _Atomic(hr_status) status; /* of the first failure */
  hr_error error;
} packing;

/* Notes a failure unless there was one before. */
static void fail(packing *w, hr_status status, const item *it, size_t output) {
  hr_status none = HR_OK;
  if (!atomic_compare_exchange_strong(&w->status, &none, status)) return;
  const char *path = hr_source_path(w->plan->source);
  if (status == HR_ERROR_CANCELLED)
    hr_fail(&w->error, status, "%s: loading was cancelled", path);
  else
    hr_fail(&w->error, status,
            "%s: tensor '%s': an element of output %zu is NaN, infinite or too large for the type "
            "asked "
            "for, expected numbers that it holds; keep the weights as they are or use f32",
            path, it->tensor->name, output);
}

static void pack_matrix(packing *w, const item *it, unsigned thread, unsigned threads) {
  const hr_matrix *m = it->matrix;
  const hr_panel_source from = {
      .format = it->tensor->format,
      .data = it->tensor->data,
      .columns = it->tensor->dim[1],
      .first_row = it->first_row,
      .transposed = it->transposed,
  };
  size_t panel_bytes = hr_panel_bytes(m->type, m->k), panels = it->bytes / panel_bytes, bad;
  char *to = (char *)w->plan->loaded->weights + it->offset;
  for (size_t i = panels * thread / threads; i < panels * (thread + 1) / threads; i++) {
    size_t row = i * HR_PANEL_ROWS, rows = m->n - row < HR_PANEL_ROWS ? m->n - row : HR_PANEL_ROWS;
    if (!hr_pack_panel(w->kernels, &from, row, rows, m->k, m->type,
                       w->scratch + thread * w->scratch_bytes, to + i * panel_bytes, &bad))
      fail(w, HR_ERROR_NUMERIC, it, bad);
  }
}

static void pack_floats(const packing *w, const item *it) {
  const hr_format_info *format = hr_format_get(it->tensor->format);
  const char *from = (const char *)it->tensor->data +
                     it->first_row / format->block_elements * format->block_bytes;
  format->widen(from, (float *)(void *)((char *)w->plan->loaded->weights + it->offset), it->count);
}

/* What follows an item, once all threads are done with it. */
static void leave_item(packing *w, size_t index) {
  const plan *p = w->plan;
  const item *it = &p->items[index];
  /* the next part of a fused tensor still needs its pages */
  if (index + 1 == p->count || p->items[index + 1].tensor != it->tensor)
    hr_source_drop_tensor(p->source, it->tensor);
  double done = (double)(it->offset + it->bytes) / (double)p->bytes;
  if (w->options->progress && !w->options->progress(w->options->progress_data, done))
    fail(w, HR_ERROR_CANCELLED, it, 0);
}

static void pack_items(void *arg, unsigned thread, unsigned threads) {
  packing *w = arg;
  const plan *p = w->plan;
  for (size_t i = 0; i < p->count; i++) {
    const item *it = &p->items[i];
    if (atomic_load(&w->status) != HR_OK) it = NULL; /* go on only to the barriers */
    if (it && it->matrix)
      pack_matrix(w, it, thread, threads);
    else if (it && thread == i % threads)
      pack_floats(w, it);
    if (threads > 1) hr_team_barrier(w->options->team, thread);
    if (thread == 0 && it) leave_item(w, i);
  }
}

/* Where everything lies is known before it is there. */
static void set_pointers(const plan *p) {
  char *block = p->loaded->weights;
  for (size_t i = 0; i < p->count; i++) {
    const item *it = &p->items[i];
    if (it->matrix)
      it->matrix->panels = block + it->offset;
    else
      *it->floats = (const float *)(const void *)(block + it->offset);
  }
}

static hr_status pack_all(plan *p, const hr_kernels *kernels, const hr_load_options *options) {
  unsigned threads = options->team ? hr_team_threads(options->team) : 1;
  packing w = {.plan = p, .kernels = kernels, .options = options};
  for (size_t i = 0; i < p->count; i++) {
    const hr_matrix *m = p->items[i].matrix;
    size_t bytes = m ? hr_round_up(hr_panel_scratch_bytes(m->k), 64) : 0;
    if (bytes > w.scratch_bytes) w.scratch_bytes = bytes;
  }
  set_pointers(p);
  w.scratch = hr_calloc(threads, w.scratch_bytes);
  if (!w.scratch) return hr_fail_memory(p->err, "loading", threads * w.scratch_bytes);
  hr_status status = HR_OK;
  if (threads > 1)
    status = hr_team_run(options->team, threads, pack_items, &w, p->err);
  else
    pack_items(&w, 0, 1);
  hr_free(w.scratch);
  if (status == HR_OK && w.status != HR_OK) {
    status = w.status;
    if (p->err) *p->err = w.error;
  }
  return status;
}

hr_status hr_load(const hr_source *source, const hr_kernels *kernels,
                  const hr_load_options *options, hr_loaded *loaded, hr_error *err) {
  *loaded = (hr_loaded){.all_f32 = true};
  plan p = {.source = source, .weights = options->weights, .loaded = loaded, .err = err};
  hr_transformer *m = &loaded->transformer;
  TRY(hr_architecture_find(source, &p.row, err));
  p.names = hr_source_get_kind(source) == HR_SOURCE_GGUF ? p.row->gguf_names : p.row->hf_names;
  TRY(hr_describe(source, p.row, &m->description, err));

  hr_status status = plan_all(&p);
  if (status == HR_OK) status = refuse_unused(&p);
  if (status == HR_OK) {
    loaded->weights = hr_alloc_pages(p.bytes);
    loaded->weight_bytes = p.bytes;
    if (!loaded->weights) status = hr_fail_memory(err, "weights", p.bytes);
  }
  if (status == HR_OK) status = pack_all(&p, kernels, options);
  hr_free(p.items);
  if (status != HR_OK) return status;

  if (!m->head.panels) m->head = m->token_embedding;
  for (size_t i = 0; i < hr_source_tensor_count(source); i++) {
    const hr_tensor *t = hr_source_tensor_at(source, i);
    size_t elements = 1;
    for (unsigned j = 0; j < t->dims; j++) elements *= t->dim[j];
    loaded->parameters += elements;
  }
  if (p.kept_f16)
    snprintf(loaded->note, sizeof loaded->note,
             "%zu matrices are held as f16: their rows are no multiple of 32, as int8 blocks need",
             p.kept_f16);
  return HR_OK;
}

void hr_loaded_finish(hr_loaded *loaded) {
  hr_free(loaded->transformer.layer);
  hr_free_pages(loaded->weights, loaded->weight_bytes);
  *loaded = (hr_loaded){0};
}
