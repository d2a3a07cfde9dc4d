/* SPDX-License-Identifier: MIT
 * First a plan - every tensor found, every shape checked, every size added up,
 * every address known - then packing into it, as one block of memory or into a
 * packed file. The weights of a packed file stay where they are in it. */
#include "model/load.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/text.h"
#include "block/forward.h"
#include "model/architecture.h"
#include "model/load_internal.h"
#include "model/packed.h"
#include "quant/convert.h"

static hr_outputs all_of(size_t count) {
  return (hr_outputs){.count = count, .total = count};
}

/* --- Finding tensors ------------------------------------------------------ */

static const hr_tensor *look_up(hr_plan *p, const char *name) {
  const hr_tensor *t = hr_source_find_tensor(p->source, name);
  if (!t && hr_source_refused_type(p->source, name))
    snprintf(p->refused, sizeof p->refused, "%s", name);
  return t;
}

bool hr_next_word(const char **list, const char **word, size_t *length) {
  if (!*list || !**list) return false;
  *word = *list;
  *length = strcspn(*list, "|");
  *list += *length + ((*list)[*length] == '|');
  return true;
}

/* prefix + "blk.%u.attn_q" with the layer's number in it + suffix. */
static void spell(const char *prefix, size_t prefix_length, const char *pattern, size_t length,
                  uint32_t layer, const char *suffix, char *name, size_t capacity) {
  const char *hole = memmem(pattern, length, "%u", 2);
  size_t head = hole ? (size_t)(hole - pattern) : length;
  char number[16] = "";
  if (hole) snprintf(number, sizeof number, "%u", layer);
  snprintf(name, capacity, "%.*s%.*s%s%.*s%s", (int)prefix_length, prefix, (int)head, pattern,
           number, hole ? (int)(length - head - 2) : 0, hole ? hole + 2 : "", suffix);
}

/* One of the alternatives, with each of the optional prefixes and without. */
static const hr_tensor *find_word(hr_plan *p, const char *pattern, size_t length, uint32_t layer,
                                  const char *suffix, char *name, size_t capacity) {
  const char *prefixes = p->names->prefix, *prefix;
  size_t prefix_length;
  while (hr_next_word(&prefixes, &prefix, &prefix_length)) {
    spell(prefix, prefix_length, pattern, length, layer, suffix, name, capacity);
    const hr_tensor *t = look_up(p, name);
    if (t) return t;
  }
  spell("", 0, pattern, length, layer, suffix, name, capacity);
  return look_up(p, name);
}

/* The prefix that tensors of this file have: one that is missing would have it too. */
static void find_prefix(hr_plan *p) {
  const char *prefixes = p->names->prefix;
  p->prefix = "";
  while (hr_next_word(&prefixes, &p->prefix, &p->prefix_length))
    for (size_t i = 0; i < hr_source_tensor_count(p->source); i++)
      if (strncmp(hr_source_tensor_at(p->source, i)->name, p->prefix, p->prefix_length) == 0)
        return;
  p->prefix_length = 0;
}

const hr_tensor *hr_plan_find(hr_plan *p, hr_tensor_slot slot, uint32_t layer, const char *suffix,
                              char *name, size_t capacity) {
  const char *names = p->names->name[slot], *pattern;
  size_t length;
  name[0] = '\0';
  while (hr_next_word(&names, &pattern, &length)) {
    const hr_tensor *t = find_word(p, pattern, length, layer, suffix, name, capacity);
    if (t) return t;
  }
  names = p->names->name[slot];
  if (!hr_next_word(&names, &pattern, &length)) return NULL;
  bool bare = slot == HR_TENSOR_HEAD || slot == HR_TENSOR_CLASSIFIER;
  spell(p->prefix, bare ? 0 : p->prefix_length, pattern, length, layer, suffix, name, capacity);
  return NULL;
}

/* The same name with another end. */
static const hr_tensor *find_beside(hr_plan *p, const char *there, const char *suffix, char *name,
                                    size_t capacity) {
  snprintf(name, capacity, "%.*s%s", (int)(strrchr(there, '.') - there), there, suffix);
  return look_up(p, name);
}

/* A bias lies beside its weight: that of another alternative is another's. */
const hr_tensor *hr_plan_find_part(hr_plan *p, hr_tensor_slot slot, uint32_t layer, bool bias,
                                   char *name, size_t capacity) {
  static const char *const old[] = {".gamma", ".beta"};
  char other[128];
  const hr_tensor *weight = hr_plan_find(p, slot, layer, ".weight", name, capacity), *t;
  if (!weight && (t = hr_plan_find(p, slot, layer, old[0], other, sizeof other))) {
    weight = t;
    snprintf(name, capacity, "%s", other);
  }
  if (!bias) return weight;
  if (weight) {
    if ((t = find_beside(p, weight->name, old[1], other, sizeof other)))
      snprintf(name, capacity, "%s", other);
    else
      t = find_beside(p, weight->name, ".bias", name, capacity);
    return t;
  }
  t = hr_plan_find(p, slot, layer, ".bias", name, capacity);
  if (t || !(t = hr_plan_find(p, slot, layer, old[1], other, sizeof other))) return t;
  snprintf(name, capacity, "%s", other);
  return t;
}

hr_status hr_plan_no_tensor(const hr_plan *p, const char *name) {
  hr_source_need_tensor(p->source, name, p->err);
  return HR_ERROR_FILE;
}

static hr_status wrong_shape(const hr_plan *p, const hr_tensor *t, size_t rows, size_t columns) {
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

static const char *form_name(bool panels, hr_panel_type type) {
  return panels ? hr_panel_name(type) : "a row of F32";
}

/* What a packed file holds for the item; it must be what was planned. */
static hr_status find_part(const hr_plan *p, hr_load_item *it) {
  char name[HR_PART_NAME_BYTES];
  hr_packed_part part;
  const char *path = hr_source_path(p->source);
  const hr_matrix *m = it->matrix;
  size_t rows = m ? m->n : 1, columns = m ? m->k : it->count;
  hr_part_name(name, it);
  if (!hr_packed_find(p->source, name, &part))
    return hr_fail(p->err, HR_ERROR_FILE, "%s: the packed tensor '%s' is missing", path, name);
  if (part.panels != (m != NULL) || (m && part.type != m->type))
    return hr_fail(p->err, HR_ERROR_FILE,
                   "%s: tensor '%s' is packed as %s, expected %s; pack the source again with the "
                   "--weights wanted",
                   path, name, form_name(part.panels, part.type), form_name(m, m ? m->type : 0));
  if (part.rows != rows || part.columns != columns || part.bytes != it->bytes)
    return hr_fail(p->err, HR_ERROR_FILE,
                   "%s: the packed tensor '%s' is %zu x %zu, expected %zu x %zu", path, name,
                   part.rows, part.columns, rows, columns);
  it->packed = part.data;
  return HR_OK;
}

static hr_status add_item(hr_plan *p, hr_load_item it) {
  hr_loaded *loaded = p->loaded;
  if (loaded->item_count == p->capacity) {
    size_t capacity = p->capacity ? p->capacity * 2 : 64;
    hr_load_item *items = hr_realloc(loaded->items, capacity, sizeof *items);
    if (!items) return hr_fail_memory(p->err, "list of tensors", capacity * sizeof *items);
    loaded->items = items;
    p->capacity = capacity;
  }
  if (loaded->mapped && it.tensor) HR_TRY(find_part(p, &it));
  it.offset = loaded->weight_bytes;
  if (!hr_add_size(it.offset, hr_round_up(it.bytes, HR_PART_ALIGNMENT), &loaded->weight_bytes))
    return hr_fail(p->err, HR_ERROR_MEMORY,
                   "%s: the weights do not fit into this machine's addresses",
                   hr_source_path(p->source));
  loaded->items[loaded->item_count++] = it;
  return HR_OK;
}

/* Blocks are read whole: a part of a row of them begins and ends where one does. */
static hr_status check_blocks(const hr_plan *p, const hr_tensor *t, hr_outputs o) {
  size_t block = hr_format_get(t->format)->block_elements;
  if (o.first % block == 0 && o.count % block == 0 && o.run % block == 0 && o.step % block == 0)
    return HR_OK;
  return hr_fail(p->err, HR_ERROR_FILE,
                 "%s: tensor '%s' is split inside a block: elements %zu to %zu are one part, "
                 "expected multiples of %zu, or a type without blocks such as F32",
                 hr_source_path(p->source), t->name, o.first, o.first + o.count, block);
}

static hr_status add_floats(hr_plan *p, const hr_tensor *t, hr_outputs o, bool plus_one,
                            const float **to) {
  size_t elements = 1;
  for (unsigned i = 0; i < t->dims; i++) elements *= t->dim[i];
  if (elements != o.total || t->dim[t->dims - 1] != o.total) return wrong_shape(p, t, 0, o.total);
  HR_TRY(check_blocks(p, t, o));
  return add_item(p, (hr_load_item){.tensor = t, .outputs = o, .plus_one = plus_one, .floats = to,
                            .count = o.count, .bytes = o.count * sizeof(float)});
}

static size_t dim_of(const hr_tensor *t, unsigned i) {
  return i < t->dims ? t->dim[i] : 1;
}

static hr_panel_type panel_type_of(hr_plan *p, const hr_tensor *t, size_t k) {
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

/* Outputs of a tensor, k inputs each. */
static hr_status add_matrix(hr_plan *p, const hr_tensor *t, hr_outputs o, size_t k, bool transposed,
                            hr_matrix *m) {
  size_t rows = transposed ? k : o.total, columns = transposed ? o.total : k;
  if (t->dims != 2 || dim_of(t, 0) != rows || dim_of(t, 1) != columns)
    return wrong_shape(p, t, rows, columns);
  m->type = panel_type_of(p, t, k);
  m->n = (uint32_t)o.count;
  m->k = (uint32_t)k;
  if (m->type != HR_PANEL_F32) p->loaded->all_f32 = false;
  size_t bytes;
  if (!hr_mul_size(hr_round_up(o.count, HR_PANEL_ROWS) / HR_PANEL_ROWS, hr_panel_bytes(m->type, k),
                   &bytes))
    return hr_fail_memory(p->err, t->name, SIZE_MAX);
  return add_item(
      p, (hr_load_item){
             .tensor = t, .outputs = o, .transposed = transposed, .matrix = m, .bytes = bytes});
}

/* --- What a Transformer consists of --------------------------------------- */

static hr_status plan_norm(hr_plan *p, hr_tensor_slot slot, uint32_t layer, size_t width,
                           bool required, hr_norm_weights *norm) {
  char name[128];
  bool plus_one = hr_plan_is_safetensors(p) && (p->row->particulars & HR_HF_GAIN_PLUS_ONE);
  const hr_tensor *t = hr_plan_find_part(p, slot, layer, true, name, sizeof name);
  if (t) HR_TRY(add_floats(p, t, all_of(width), false, &norm->shift));
  t = hr_plan_find_part(p, slot, layer, false, name, sizeof name);
  if (t) return add_floats(p, t, all_of(width), plus_one, &norm->gain);
  return required ? hr_plan_no_tensor(p, name) : HR_OK;
}

/* A whole tensor, or a part of the outputs of a fused one, with its bias. */
static hr_status plan_part(hr_plan *p, hr_tensor_slot slot, uint32_t layer, hr_outputs o, size_t k,
                           hr_matrix *m) {
  char name[128];
  const hr_tensor *bias = hr_plan_find_part(p, slot, layer, true, name, sizeof name);
  if (bias) HR_TRY(add_floats(p, bias, o, false, &m->bias));
  const hr_tensor *t = hr_plan_find_part(p, slot, layer, false, name, sizeof name);
  if (!t) return hr_plan_no_tensor(p, name);
  bool transposed = p->names->transposed && slot >= HR_TENSOR_ATTENTION_NORM;
  return add_matrix(p, t, o, k, transposed, m);
}

static hr_status plan_matrix(hr_plan *p, hr_tensor_slot slot, uint32_t layer, size_t n, size_t k,
                             hr_matrix *m) {
  return plan_part(p, slot, layer, all_of(n), k, m);
}

/* Queries, keys and values in one tensor: one after another, or for each
 * key/value head its queries, its key and its value. */
static hr_status plan_fused(hr_plan *p, const hr_description *d, uint32_t index, hr_layer *layer) {
  size_t q = (size_t)d->heads * d->head_width, kv = (size_t)d->kv_heads * d->head_width;
  hr_outputs query = {.count = q}, key = {.first = q, .count = kv},
          value = {.first = q + kv, .count = kv};
  if (hr_plan_is_safetensors(p) && (p->row->particulars & HR_HF_GROUPED_QKV)) {
    size_t own = q / d->kv_heads, step = own + 2 * (size_t)d->head_width;
    query.run = own;
    key.first = own;
    value.first = own + d->head_width;
    key.run = value.run = d->head_width;
    query.step = key.step = value.step = step;
  }
  query.total = key.total = value.total = q + 2 * kv;
  HR_TRY(plan_part(p, HR_TENSOR_QKV, index, query, d->width, &layer->query));
  HR_TRY(plan_part(p, HR_TENSOR_QKV, index, key, d->width, &layer->key));
  return plan_part(p, HR_TENSOR_QKV, index, value, d->width, &layer->value);
}

static hr_status plan_attention(hr_plan *p, const hr_description *d, uint32_t index,
                                hr_layer *layer) {
  size_t q = (size_t)d->heads * d->head_width, kv = (size_t)d->kv_heads * d->head_width;
  char name[128];
  const char *split = p->names->name[HR_TENSOR_QUERY];
  if (hr_plan_find(p, HR_TENSOR_QKV, index, ".weight", name, sizeof name) || !split) {
    HR_TRY(plan_fused(p, d, index, layer));
  } else {
    HR_TRY(plan_matrix(p, HR_TENSOR_QUERY, index, q, d->width, &layer->query));
    HR_TRY(plan_matrix(p, HR_TENSOR_KEY, index, kv, d->width, &layer->key));
    HR_TRY(plan_matrix(p, HR_TENSOR_VALUE, index, kv, d->width, &layer->value));
  }
  HR_TRY(plan_norm(p, HR_TENSOR_QUERY_NORM, index, d->head_width, false, &layer->query_norm));
  HR_TRY(plan_norm(p, HR_TENSOR_KEY_NORM, index, d->head_width, false, &layer->key_norm));
  return plan_matrix(p, HR_TENSOR_OUTPUT, index, d->width, q, &layer->output);
}

/* Gate and up in one tensor, the gate first: where there is no gate by itself and
 * the fused one has the outputs of both. */
static bool has_fused_gate(hr_plan *p, const hr_description *d, uint32_t index) {
  char name[128];
  if (hr_plan_find(p, HR_TENSOR_GATE, index, ".weight", name, sizeof name)) return false;
  const hr_tensor *t = hr_plan_find(p, HR_TENSOR_GATE_UP, index, ".weight", name, sizeof name);
  if (!p->names->name[HR_TENSOR_GATE]) return true;
  return t && dim_of(t, 0) == 2 * (size_t)d->ffn_width;
}

static hr_status plan_feed_forward(hr_plan *p, const hr_description *d, uint32_t index,
                                   hr_layer *layer) {
  size_t n = d->ffn_width;
  if (d->gated && has_fused_gate(p, d, index)) {
    hr_outputs gate = {.count = n, .total = 2 * n}, up = {.first = n, .count = n, .total = 2 * n};
    HR_TRY(plan_part(p, HR_TENSOR_GATE_UP, index, gate, d->width, &layer->gate));
    HR_TRY(plan_part(p, HR_TENSOR_GATE_UP, index, up, d->width, &layer->up));
  } else {
    if (d->gated) HR_TRY(plan_matrix(p, HR_TENSOR_GATE, index, n, d->width, &layer->gate));
    HR_TRY(plan_matrix(p, HR_TENSOR_UP, index, n, d->width, &layer->up));
  }
  return plan_matrix(p, HR_TENSOR_DOWN, index, d->width, n, &layer->down);
}

static hr_status plan_layer(hr_plan *p, const hr_description *d, uint32_t index, hr_layer *layer) {
  bool before = d->norm_place != HR_NORM_AFTER, after = d->norm_place != HR_NORM_BEFORE;
  if (before) {
    HR_TRY(plan_norm(p, HR_TENSOR_ATTENTION_NORM, index, d->width, true, &layer->attention_norm));
    HR_TRY(plan_norm(p, HR_TENSOR_FFN_NORM, index, d->width, !d->parallel, &layer->ffn_norm));
  }
  if (after) {
    HR_TRY(plan_norm(p, HR_TENSOR_ATTENTION_POST_NORM, index, d->width, true,
                     &layer->attention_post_norm));
    HR_TRY(plan_norm(p, HR_TENSOR_FFN_POST_NORM, index, d->width, true, &layer->ffn_post_norm));
  }
  HR_TRY(plan_attention(p, d, index, layer));
  return plan_feed_forward(p, d, index, layer);
}

static hr_status plan_positions(hr_plan *p, hr_transformer *m) {
  const hr_description *d = &m->description;
  char name[128];
  const hr_tensor *t = hr_plan_find(p, HR_TENSOR_POSITIONS, 0, ".weight", name, sizeof name);
  if (!t) return hr_plan_no_tensor(p, name);
  m->position_rows = dim_of(t, 0);
  if (t->dims != 2 || t->dim[1] != d->width || m->position_rows < d->context + d->position_offset)
    return wrong_shape(p, t, d->context + d->position_offset, d->width);
  size_t count = m->position_rows * d->width;
  return add_item(p, (hr_load_item){.tensor = t, .floats = &m->position_embedding, .count = count,
                            .bytes = count * sizeof(float)});
}

/* A list of numbers in config.json, as floats that the plan owns. */
static hr_status plan_numbers(hr_plan *p, const char *key, size_t count, const float **to) {
  size_t length;
  bool found;
  HR_TRY(hr_source_array_length(p->source, key, &length, &found, p->err));
  if (!found || length != count)
    return hr_fail(p->err, HR_ERROR_FILE, "%s: key '%s' has %zu elements, expected %zu",
                   hr_source_path(p->source), key, found ? length : 0, count);
  double *wide = hr_calloc(count, sizeof *wide);
  float *numbers = hr_calloc(count, sizeof *numbers);
  hr_status status = wide && numbers ? HR_OK : hr_fail_memory(p->err, key, count * sizeof *wide);
  if (status == HR_OK) status = hr_source_array_f64(p->source, key, wide, count, p->err);
  for (size_t i = 0; status == HR_OK && i < count; i++) numbers[i] = (float)wide[i];
  hr_free(wide);
  if (status == HR_OK)
    status = add_item(p, (hr_load_item){.numbers = numbers, .floats = to, .count = count,
                                .bytes = count * sizeof *numbers});
  if (status != HR_OK) hr_free(numbers);
  return status;
}

static const hr_load_item *last_item(const hr_plan *p) {
  return &p->loaded->items[p->loaded->item_count - 1];
}

/* Factors divide the angles. One of nearly zero makes them larger than a sine can be
 * taken of; files have 1 and more. */
static const float LEAST_FACTOR = 0x1p-10f;

static hr_status check_factors(const char *path, const char *key, const float *x, size_t count,
                               hr_error *err) {
  for (size_t i = 0; i < count; i++)
    if (!(x[i] >= LEAST_FACTOR) || isinf(x[i]))
      return hr_fail(err, HR_ERROR_FILE, "%s: element %zu of '%s' is %g, expected %g or more", path,
                     i, key, (double)x[i], (double)LEAST_FACTOR);
  return HR_OK;
}

static hr_status plan_config_factors(hr_plan *p, hr_transformer *m) {
  static const char *const outer[] = {"rope_scaling", "rope_parameters"};
  size_t count = m->description.rope_width / 2, i = 0, length;
  bool found;
  char key[2][64];
  HR_TRY(hr_source_array_length(p->source, "rope_scaling.short_factor", &length, &found, p->err));
  if (!found) i = 1;
  snprintf(key[0], sizeof key[0], "%s.short_factor", outer[i]);
  snprintf(key[1], sizeof key[1], "%s.long_factor", outer[i]);
  HR_TRY(plan_numbers(p, key[0], count, &m->rope_factors));
  HR_TRY(check_factors(hr_source_path(p->source), key[0], last_item(p)->numbers, count, p->err));
  HR_TRY(plan_numbers(p, key[1], count, &m->rope_long_factors));
  return check_factors(hr_source_path(p->source), key[1], last_item(p)->numbers, count, p->err);
}

static hr_status plan_rope_factors(hr_plan *p, hr_transformer *m) {
  const hr_description *d = &m->description;
  bool two = d->rope_scaling.kind == HR_ROPE_SCALING_LONG;
  if (d->position != HR_POSITION_ROPE) return HR_OK;
  if (two && hr_plan_is_safetensors(p)) return plan_config_factors(p, m);
  char name[128];
  hr_outputs half = all_of(d->rope_width / 2);
  const hr_tensor *t = hr_plan_find(p, HR_TENSOR_ROPE_FACTORS, 0, ".weight", name, sizeof name);
  if (t) HR_TRY(add_floats(p, t, half, false, &m->rope_factors));
  if (!two) return HR_OK;
  if (!t) return hr_plan_no_tensor(p, name);
  t = hr_plan_find(p, HR_TENSOR_ROPE_LONG_FACTORS, 0, ".weight", name, sizeof name);
  return t ? add_floats(p, t, half, false, &m->rope_long_factors) : hr_plan_no_tensor(p, name);
}

/* The number of tokens is the number of the embedding's rows, and what the file
 * says it is, if it does. slot is the embedding's, or the head's where a tied
 * matrix is stored under that name. */
static hr_status plan_embedding(hr_plan *p, hr_transformer *m, hr_tensor_slot slot) {
  hr_description *d = &m->description;
  char name[128];
  const hr_tensor *t = hr_plan_find(p, slot, 0, ".weight", name, sizeof name);
  if (!t) return hr_plan_no_tensor(p, name);
  if (t->dims != 2 || t->dim[0] == 0 || t->dim[0] > INT32_MAX)
    return wrong_shape(p, t, d->vocab ? d->vocab : 1, d->width);
  if (d->vocab && t->dim[0] != d->vocab)
    return hr_fail(p->err, HR_ERROR_FILE,
                   "%s: tensor '%s' has rows for %zu tokens, expected %u: the vocabulary's size",
                   hr_source_path(p->source), t->name, t->dim[0], d->vocab);
  d->vocab = (uint32_t)t->dim[0];
  return plan_matrix(p, slot, 0, d->vocab, d->width, &m->token_embedding);
}

/* What kinds of segment add to a token: as many as the table has rows. */
static hr_status plan_types(hr_plan *p, hr_transformer *m) {
  hr_description *d = &m->description;
  char name[128];
  const hr_tensor *t = hr_plan_find(p, HR_TENSOR_TYPES, 0, ".weight", name, sizeof name);
  if (!t) return HR_OK;
  if (t->dims != 2 || t->dim[0] > INT32_MAX || t->dim[1] != d->width)
    return wrong_shape(p, t, dim_of(t, 0), d->width);
  d->types = (uint32_t)t->dim[0];
  size_t count = t->dim[0] * d->width;
  return add_item(p, (hr_load_item){.tensor = t,
                                    .outputs = all_of(count),
                                    .floats = &m->type_embedding,
                                    .count = count,
                                    .bytes = count * sizeof(float)});
}

static hr_status count_member(void *arg, const char *name, hr_error *err) {
  (void)name, (void)err;
  ++*(size_t *)arg;
  return HR_OK;
}

/* How many labels the file has, in config.json as {"0": "negative", ...}. */
static hr_status count_labels(const hr_plan *p, const char *key, size_t *count, bool *found) {
  *count = 0;
  return hr_plan_is_safetensors(p)
             ? hr_source_members(p->source, key, count_member, count, found, p->err)
             : hr_source_array_length(p->source, key, count, found, p->err);
}

static hr_status read_labels(const hr_plan *p, const char *outer, size_t count, const char **text,
                             size_t *length) {
  if (!hr_plan_is_safetensors(p))
    return hr_source_array_strings(p->source, outer, text, length, count, p->err);
  for (size_t i = 0; i < count; i++) {
    char key[64];
    bool found;
    snprintf(key, sizeof key, "%s.%zu", outer, i);
    HR_TRY(hr_source_string(p->source, key, &text[i], &length[i], &found, p->err));
    if (!found)
      return hr_fail(p->err, HR_ERROR_FILE, "%s: key '%s' is missing, expected a label for each of "
                     "%zu scores",
                     hr_source_path(p->source), key, count);
  }
  return HR_OK;
}

static hr_status keep_labels(hr_plan *p, const char *key, size_t count, const char **text,
                             size_t *length) {
  char **labels = hr_calloc(count, sizeof *labels);
  p->loaded->labels = labels;
  bool good = labels != NULL;
  for (size_t i = 0; good && i < count; i++) good = (labels[i] = hr_strndup(text[i], length[i]));
  return good ? HR_OK : hr_fail_memory(p->err, key, count * sizeof *labels);
}

/* What the scores are called: as many names as there are scores, or none. */
static hr_status plan_labels(hr_plan *p, const hr_tensor *classifier, uint32_t classes) {
  char key[96] = "id2label";
  size_t count;
  bool found;
  if (!hr_plan_is_safetensors(p))
    snprintf(key, sizeof key, "%s.classifier.output_labels", p->row->gguf);
  HR_TRY(count_labels(p, key, &count, &found));
  if (!found) return HR_OK;
  if (count != classes)
    return hr_fail(p->err, HR_ERROR_FILE,
                   "%s: tensor '%s' gives %u scores, expected %zu: the labels of key '%s'",
                   hr_source_path(p->source), classifier->name, classes, count, key);
  const char **text = hr_calloc(count, sizeof *text);
  size_t *length = hr_calloc(count, sizeof *length);
  hr_status status = text && length ? HR_OK : hr_fail_memory(p->err, key, count * sizeof *text);
  if (status == HR_OK) status = read_labels(p, key, count, text, length);
  if (status == HR_OK) status = keep_labels(p, key, count, text, length);
  hr_free(text);
  hr_free(length);
  return status;
}

/* Heads for single tokens have no pooler: a classifier alone is not of whole texts. Where
 * classifiers may have several names, each has a pooler of its own. */
static hr_status need_pooler(hr_plan *p, const hr_tensor *classifier) {
  const char *names = p->names->name[HR_TENSOR_CLASSIFIER], *word;
  const char *poolers = p->names->name[HR_TENSOR_POOLER], *pooler;
  size_t length, pooler_length, end = strlen(classifier->name) - strlen(".weight");
  char name[128];
  while (hr_next_word(&names, &word, &length) &&
         hr_next_word(&poolers, &pooler, &pooler_length)) {
    if (length > end || memcmp(classifier->name + end - length, word, length) != 0) continue;
    return find_word(p, pooler, pooler_length, 0, ".weight", name, sizeof name)
               ? HR_OK
               : hr_plan_no_tensor(p, name);
  }
  return HR_OK;
}

static hr_status plan_classifier(hr_plan *p, hr_transformer *m) {
  hr_description *d = &m->description;
  char name[128];
  const hr_tensor *t = hr_plan_find(p, HR_TENSOR_CLASSIFIER, 0, ".weight", name, sizeof name);
  if (t && hr_plan_is_safetensors(p)) HR_TRY(need_pooler(p, t));
  if (hr_plan_find(p, HR_TENSOR_POOLER, 0, ".weight", name, sizeof name))
    HR_TRY(plan_matrix(p, HR_TENSOR_POOLER, 0, d->width, d->width, &m->pooler));
  if (!t) return HR_OK;
  if (dim_of(t, 0) > INT32_MAX) return wrong_shape(p, t, 1, d->width);
  d->classes = (uint32_t)dim_of(t, 0);
  uint64_t labels = d->classes;
  bool said = false;
  if (hr_plan_is_safetensors(p))
    HR_TRY(hr_source_u64(p->source, "num_labels", &labels, &said, p->err));
  if (labels != d->classes)
    return hr_fail(p->err, HR_ERROR_FILE,
                   "%s: tensor '%s' gives %u scores, expected %llu: key 'num_labels'",
                   hr_source_path(p->source), t->name, d->classes, (unsigned long long)labels);
  HR_TRY(plan_labels(p, t, d->classes));
  return plan_matrix(p, HR_TENSOR_CLASSIFIER, 0, d->classes, d->width, &m->classifier);
}

static hr_status plan_ends(hr_plan *p, hr_transformer *m) {
  const hr_description *d = &m->description;
  if (d->position == HR_POSITION_LEARNED) HR_TRY(plan_positions(p, m));
  HR_TRY(plan_rope_factors(p, m));
  HR_TRY(plan_types(p, m));
  HR_TRY(plan_norm(p, HR_TENSOR_EMBEDDING_NORM, 0, d->width, false, &m->embedding_norm));
  HR_TRY(plan_norm(p, HR_TENSOR_FINAL_NORM, 0, d->width, d->norm_place != HR_NORM_AFTER,
                   &m->final_norm));
  return d->headless ? plan_classifier(p, m) : HR_OK;
}

/* The head is the embedding again where config.json says so, or its library does where it
 * does not. A GGUF file ties them by having one. */
static hr_status read_tied(const hr_plan *p, bool *tied, bool *said) {
  *tied = *said = false;
  if (!hr_plan_is_safetensors(p)) return HR_OK;
  return hr_source_bool(p->source, "tie_word_embeddings", tied, said, p->err);
}

/* True when config.json calls the file a model of hidden states alone: "MistralModel". */
static hr_status is_bare(const hr_plan *p, bool *bare) {
  static const char key[] = "architectures";
  const char *text;
  size_t length, count;
  bool found;
  *bare = false;
  HR_TRY(hr_source_array_length(p->source, key, &count, &found, p->err));
  if (!found || count != 1) return HR_OK;
  HR_TRY(hr_source_array_strings(p->source, key, &text, &length, 1, p->err));
  *bare = hr_bytes_end_with(text, length, "Model") && !hr_bytes_end_with(text, length, "HeadModel");
  return HR_OK;
}

static hr_status no_head(const hr_plan *p, const char *name, bool said) {
  if (hr_source_refused_type(p->source, name)) return hr_plan_no_tensor(p, name);
  return hr_fail(p->err, HR_ERROR_FILE,
                 "%s: tensor '%s' is missing, expected it as key 'tie_word_embeddings' is %s",
                 hr_source_path(p->source), name,
                 said ? "false" : "not there, which means false for this architecture");
}

/* A model without an embedding of its own may hold it as the head, where config.json says
 * that they are tied. One that is said to have no head gives hidden states. */
static hr_status plan_tokens(hr_plan *p, hr_transformer *m) {
  hr_description *d = &m->description;
  char name[128];
  bool tied, said;
  HR_TRY(read_tied(p, &tied, &said));
  bool own = hr_plan_find(p, HR_TENSOR_TOKENS, 0, ".weight", name, sizeof name);
  bool head = hr_plan_find(p, HR_TENSOR_HEAD, 0, ".weight", name, sizeof name);
  if (!own && head && !tied) {
    hr_plan_find(p, HR_TENSOR_TOKENS, 0, ".weight", name, sizeof name);
    return hr_plan_no_tensor(p, name);
  }
  HR_TRY(plan_embedding(p, m, own || !head ? HR_TENSOR_TOKENS : HR_TENSOR_HEAD));
  if (d->headless) return HR_OK;
  p->spare_head = own && head && tied;
  if (own && head && !tied) return plan_matrix(p, HR_TENSOR_HEAD, 0, d->vocab, d->width, &m->head);
  bool by_default = !hr_plan_is_safetensors(p) || (p->row->particulars & HR_HF_TIED);
  if (head || tied || (!said && by_default)) return HR_OK;
  HR_TRY(is_bare(p, &d->headless));
  return d->headless ? HR_OK : no_head(p, name, said);
}

static hr_status plan_all(hr_plan *p) {
  hr_transformer *m = &p->loaded->transformer;
  hr_description *d = &m->description;
  char name[128];
  HR_TRY(plan_tokens(p, m));
  HR_TRY(plan_ends(p, m));
  if (p->row->particulars & HR_PARALLEL_BY_TENSOR)
    d->parallel = !hr_plan_find(p, HR_TENSOR_FFN_NORM, 0, ".weight", name, sizeof name);
  /* Before the layers are planned: it names the key that asks for a tensor. */
  HR_TRY(hr_plan_check_needs(p));
  m->layer = hr_calloc(d->layers, sizeof *m->layer);
  if (!m->layer) return hr_fail_memory(p->err, "layers", d->layers * sizeof *m->layer);
  for (uint32_t i = 0; i < d->layers; i++) HR_TRY(plan_layer(p, d, i, &m->layer[i]));
  /* Not even an optional tensor is passed over because of its type. */
  return p->refused[0] ? hr_plan_no_tensor(p, p->refused) : HR_OK;
}

/* Where everything lies is known before it is there. */
static void set_pointers(hr_loaded *loaded) {
  char *block = loaded->weights;
  for (size_t i = 0; i < loaded->item_count; i++) {
    const hr_load_item *it = &loaded->items[i];
    const void *place = !loaded->mapped ? block + it->offset
                        : it->tensor    ? it->packed
                                        : it->numbers;
    if (it->matrix)
      it->matrix->panels = place;
    else
      *it->floats = place;
  }
}

static void count_parameters(const hr_source *source, hr_loaded *loaded) {
  for (size_t i = 0; i < hr_source_tensor_count(source); i++) {
    const hr_tensor *t = hr_source_tensor_at(source, i);
    size_t elements = 1;
    for (unsigned j = 0; j < t->dims; j++) elements *= t->dim[j];
    loaded->parameters += elements;
  }
}

static hr_status list_matrices(const hr_source *source, hr_loaded *loaded, hr_error *err) {
  loaded->held = hr_calloc(loaded->item_count, sizeof *loaded->held);
  if (!loaded->held) return hr_fail_memory(err, "list of matrices", loaded->item_count);
  for (size_t i = 0; i < loaded->item_count; i++) {
    const hr_load_item *it = &loaded->items[i];
    if (!it->matrix) continue;
    loaded->held[loaded->held_count++] =
        (hr_held){it->matrix,        hr_source_index_of(source, it->tensor),
                  it->outputs.first, it->outputs.run,
                  it->outputs.step,  it->transposed};
  }
  return HR_OK;
}

/* --weights asks for one type; in a packed file the choice has been made. */
static hr_weights weights_of(const hr_source *source, hr_weights wanted) {
  return wanted == HR_WEIGHTS_NATIVE ? hr_packed_weights(source) : wanted;
}

hr_status hr_load_plan(const hr_source *source, hr_weights weights, hr_loaded *loaded,
                       hr_error *err) {
  *loaded = (hr_loaded){.all_f32 = true, .mapped = hr_source_is_packed(source)};
  hr_plan p = {.source = source, .weights = weights_of(source, weights), .loaded = loaded,
               .err = err};
  hr_transformer *m = &loaded->transformer;
  if (hr_source_is_vocabulary(source))
    return hr_fail(err, HR_ERROR_FILE, "%s: holds no weights, expected a model with tensors",
                   hr_source_path(source));
  HR_TRY(hr_architecture_find(source, &p.row, err));
  p.names = hr_source_get_kind(source) == HR_SOURCE_GGUF ? p.row->gguf_names : p.row->hf_names;
  find_prefix(&p);
  HR_TRY(hr_describe(source, p.row, &m->description, err));
  HR_TRY(plan_all(&p));
  HR_TRY(hr_plan_refuse_unused(&p));
  if (!loaded->mapped) {
    loaded->weights = hr_reserve_pages(loaded->weight_bytes);
    if (!loaded->weights) return hr_fail_memory(err, "weights", loaded->weight_bytes);
    HR_TRY(list_matrices(source, loaded, err));
  }
  set_pointers(loaded);
  if (!m->head.panels && !m->description.headless) m->head = m->token_embedding;
  count_parameters(source, loaded);
  if (p.kept_f16)
    snprintf(loaded->note, sizeof loaded->note,
             "%zu matrices are held as f16: their rows are no multiple of 32, as int8 blocks need",
             p.kept_f16);
  return HR_OK;
}

/* --- Packing ---------------------------------------------------------------
 * The system puts a page where the thread that first writes it is, so each thread
 * packs the panels that the same thread of a session will read: the loader's team
 * is placed as a session's is that is given the same wishes. A thread goes through
 * all items without waiting for the others, and takes parts of theirs once it has
 * done its own. */

typedef struct packing {
  const hr_source *source;
  const hr_load_item *items;
  size_t count;
  char *base;            /* item i goes to base + items[i].offset - base_offset */
  size_t base_offset;
  const hr_kernels *kernels;
  const hr_load_options *options;
  const hr_transformer *readers; /* NULL: no thread will read what is packed */
  size_t total;          /* bytes of all items, for the progress */
  _Atomic size_t done;   /* of those, packed */
  char *scratch;         /* scratch_bytes for each thread */
  size_t scratch_bytes;
  size_t held_bytes;     /* of the file, which a thread may hold unless one panel is more */
  _Atomic size_t *next;  /* one a thread: the item whose part of that thread is to be packed */
  _Atomic(hr_status) status; /* of the first failure */
  hr_error error;
} packing;

/* Notes a failure unless there was one before. */
static void fail(packing *w, hr_status status, const hr_load_item *it, size_t output) {
  hr_status none = HR_OK;
  if (!atomic_compare_exchange_strong(&w->status, &none, status)) return;
  const char *path = hr_source_path(w->source);
  if (status == HR_ERROR_CANCELLED)
    hr_fail(&w->error, status, "%s: loading was cancelled", path);
  else
    hr_fail(&w->error, status,
            "%s: tensor '%s': an element of output %zu is NaN, infinite or too large for the type "
            "it is to be held in, expected finite numbers that fit (f32 holds the largest)",
            path, it->tensor->name, output);
}

/* All threads together may hold half of the 32 MiB that a load may take beside the weights;
 * the rest is for their scratch and for what the system maps around the pages asked for.
 * More than 4 MiB a thread would not save calls that count. Less than a page can't be given
 * back: at 64 KiB a page, 256 threads hold the 16 MiB. */
size_t hr_load_held_bytes(unsigned threads, size_t page) {
  const size_t all = (size_t)16 << 20, most = (size_t)4 << 20;
  size_t share = all / threads;
  return share > most ? most : share < page ? page : share;
}

/* Bytes of one output in the file; 0 when outputs do not lie one after the other. */
static size_t row_bytes(const hr_load_item *it) {
  const hr_format_info *format = hr_format_get(it->tensor->format);
  return it->transposed || it->outputs.run
             ? 0
             : it->tensor->dim[1] / format->block_elements * format->block_bytes;
}

/* Gives the file's pages with those rows of a matrix back, and all of the tensor's where
 * its outputs do not lie one after the other. */
static void drop_rows(const packing *w, const hr_load_item *it, size_t begin, size_t end) {
  size_t stride = row_bytes(it);
  if (stride)
    hr_source_drop(w->source, it->tensor, (it->outputs.first + begin) * stride,
                   (end - begin) * stride);
  else
    hr_source_drop(w->source, it->tensor, 0, it->tensor->bytes);
}

/* A thread's part of the panels. Returns their bytes. */
static size_t pack_panels(packing *w, const hr_load_item *it, size_t begin, size_t end,
                          void *scratch) {
  const hr_matrix *m = it->matrix;
  const hr_panel_source from = {
      .format = it->tensor->format,
      .data = it->tensor->data,
      .columns = it->tensor->dim[1],
      .first_row = it->outputs.first,
      .run = it->outputs.run,
      .step = it->outputs.step,
      .transposed = it->transposed,
  };
  size_t panel_bytes = hr_panel_bytes(m->type, m->k), bad;
  size_t file_bytes = HR_PANEL_ROWS * row_bytes(it), dropped = begin;
  char *to = w->base + (it->offset - w->base_offset);
  for (size_t i = begin; i < end; i++) {
    size_t row = i * HR_PANEL_ROWS, rows = m->n - row < HR_PANEL_ROWS ? m->n - row : HR_PANEL_ROWS;
    if (!hr_pack_panel(w->kernels, &from, row, rows, m->k, m->type, scratch, to + i * panel_bytes,
                       &bad))
      fail(w, HR_ERROR_NUMERIC, it, bad);
    if (i + 1 < end && (i + 2 - dropped) * file_bytes <= w->held_bytes) continue;
    drop_rows(w, it, dropped * HR_PANEL_ROWS, row + rows);
    dropped = i + 1;
  }
  return (end - begin) * panel_bytes;
}

static void pack_floats(packing *w, const hr_load_item *it) {
  float *to = (float *)(void *)(w->base + (it->offset - w->base_offset));
  if (!it->tensor) {
    memcpy(to, it->numbers, it->bytes);
    return;
  }
  const hr_format_info *format = hr_format_get(it->tensor->format);
  size_t run = it->outputs.run ? it->outputs.run : it->count;
  for (size_t i = 0; i < it->count; i += run) {
    size_t first = it->outputs.first + i / run * it->outputs.step;
    const char *from = (const char *)it->tensor->data +
                       first / format->block_elements * format->block_bytes;
    format->widen(from, to + i, run);
  }
  for (size_t i = 0; i < it->count; i++) {
    if (it->plus_one) to[i] += 1.0f;
    if (isfinite(to[i])) continue;
    fail(w, HR_ERROR_NUMERIC, it, i);
    return;
  }
  hr_source_drop(w->source, it->tensor, 0, it->tensor->bytes);
}

/* Which panels of a matrix are those of a thread. */
static void find_share(const packing *w, const hr_load_item *it, unsigned thread, unsigned threads,
                       size_t *begin, size_t *end) {
  const hr_team *team = w->options->team;
  if (w->readers) {
    hr_panels_of_thread(w->readers, it->matrix, thread, threads,
                        team ? hr_team_shares(team, threads) : NULL, begin, end);
    return;
  }
  size_t panels = it->bytes / hr_panel_bytes(it->matrix->type, it->matrix->k);
  *begin = panels * thread / threads;
  *end = panels * (thread + 1) / threads;
}

/* Packs what is of thread number `part`, by thread number `thread`. */
static void pack_part(packing *w, size_t index, unsigned part, unsigned thread, unsigned threads) {
  const hr_load_item *it = &w->items[index];
  size_t begin, end, bytes = 0;
  if (it->matrix) {
    find_share(w, it, part, threads, &begin, &end);
    bytes = pack_panels(w, it, begin, end, w->scratch + thread * w->scratch_bytes);
  } else if (part == index % threads) {
    pack_floats(w, it);
    bytes = it->bytes;
  }
  atomic_fetch_add(&w->done, bytes);
}

/* Thread 0 does, so that calls don't overlap. */
static void report(packing *w, size_t done) {
  const hr_load_options *o = w->options;
  if (o->progress && !o->progress(o->progress_data, (double)done / (double)w->total))
    fail(w, HR_ERROR_CANCELLED, NULL, 0);
}

static void pack_items(void *arg, unsigned thread, unsigned threads) {
  packing *w = arg;
  for (unsigned i = 0; i < threads; i++) {
    unsigned part = (thread + i) % threads;
    while (atomic_load(&w->status) == HR_OK) {
      size_t index = atomic_fetch_add(&w->next[part], 1);
      if (index >= w->count) break;
      pack_part(w, index, part, thread, threads);
      if (thread == 0) report(w, w->base_offset + atomic_load(&w->done));
    }
  }
}

static size_t scratch_bytes(const hr_loaded *loaded) {
  size_t most = 0;
  for (size_t i = 0; i < loaded->item_count; i++) {
    const hr_matrix *m = loaded->items[i].matrix;
    size_t bytes = m ? hr_round_up(hr_panel_scratch_bytes(m->k), 64) : 0;
    if (bytes > most) most = bytes;
  }
  return most;
}

static hr_status run_packing(packing *w, unsigned threads, hr_error *err) {
  if (w->options->team)
    HR_TRY(hr_team_run(w->options->team, threads, pack_items, w, err));
  else
    pack_items(w, 0, 1);
  if (w->count && w->status == HR_OK) {
    const hr_load_item *last = &w->items[w->count - 1];
    report(w, last->offset + last->bytes);
  }
  if (w->status != HR_OK && err) *err = w->error;
  return w->status;
}

hr_status hr_load_items(const hr_source *source, const hr_loaded *loaded, size_t first,
                        size_t count, void *block, const hr_kernels *kernels,
                        const hr_load_options *options, hr_error *err) {
  unsigned threads = options->team ? hr_team_active(options->team, false) : 1;
  packing w = {.source = source,
               .items = loaded->items + first,
               .count = count,
               .base = block,
               .base_offset = count ? loaded->items[first].offset : 0,
               .kernels = kernels,
               .options = options,
               .readers = block == loaded->weights ? &loaded->transformer : NULL,
               .total = loaded->weight_bytes,
               .scratch = hr_calloc(threads, scratch_bytes(loaded)),
               .scratch_bytes = scratch_bytes(loaded),
               .held_bytes = hr_load_held_bytes(threads, (size_t)sysconf(_SC_PAGESIZE)),
               .next = hr_calloc(threads, sizeof *w.next)};
  hr_status status = w.scratch && w.next
                         ? run_packing(&w, threads, err)
                         : hr_fail_memory(err, "loading", threads * w.scratch_bytes);
  hr_free(w.scratch);
  hr_free((void *)w.next);
  return status;
}

/* Those in a tensor are known once it is loaded, or mapped. */
static hr_status check_loaded_factors(const hr_source *source, const hr_loaded *loaded,
                                      hr_error *err) {
  const hr_transformer *m = &loaded->transformer;
  const float *const both[] = {m->rope_factors, m->rope_long_factors};
  for (size_t i = 0; i < 2; i++)
    if (both[i])
      HR_TRY(check_factors(hr_source_path(source), "factors of the rotary frequencies", both[i],
                           m->description.rope_width / 2, err));
  return HR_OK;
}

hr_status hr_load(const hr_source *source, const hr_kernels *kernels,
                  const hr_load_options *options, hr_loaded *loaded, hr_error *err) {
  hr_status status = HR_OK;
  if (!loaded->mapped) {
    if (!hr_use_pages(loaded->weights, loaded->weight_bytes))
      return hr_fail_memory(err, "weights", loaded->weight_bytes);
    status = hr_load_items(source, loaded, 0, loaded->item_count, loaded->weights, kernels,
                           options, err);
  }
  return status == HR_OK ? check_loaded_factors(source, loaded, err) : status;
}

void hr_loaded_finish(hr_loaded *loaded) {
  hr_free(loaded->held);
  hr_free(loaded->transformer.layer);
  for (size_t i = 0; i < loaded->item_count; i++)
    hr_free((float *)(uintptr_t)loaded->items[i].numbers);
  for (uint32_t i = 0; loaded->labels && i < loaded->transformer.description.classes; i++)
    hr_free(loaded->labels[i]);
  hr_free(loaded->labels);
  hr_free(loaded->items);
  hr_free_pages(loaded->weights, loaded->weight_bytes);
  *loaded = (hr_loaded){0};
}
