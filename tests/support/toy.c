/* SPDX-License-Identifier: MIT */
#include "tests/support/toy.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/select.h"
#include "tests/support/measure.h"

static void stop(const char *what) {
  fprintf(stderr, "toy: %s\n", what);
  abort();
}

hr_description toy_description_of(uint32_t layers, uint32_t width, uint32_t heads) {
  return (hr_description){
      .family = "toy",
      .layers = layers,
      .width = width,
      .heads = heads,
      .kv_heads = heads,
      .head_width = width / heads,
      .ffn_width = 4 * width,
      .vocab = 16,
      .context = 128,
      .norm = HR_NORM_LAYER,
      .norm_place = HR_NORM_BEFORE,
      .norm_eps = 1e-5f,
      .position = HR_POSITION_NONE,
      .rope_pairing = HR_ROPE_PAIRS,
      .rope_width = width / heads,
      .rope_base = 10000,
      .mask = HR_MASK_CAUSAL,
      .activation = HR_ACTIVATION_GELU_TANH,
      .embedding_scale = 1,
      .score_scale = (float)(1 / sqrt((double)(width / heads))),
      .logit_scale = 1,
  };
}

hr_description toy_description(void) {
  return toy_description_of(1, 32, 4);
}

static void *block_of(toy *t, size_t bytes) {
  if (t->block_count == sizeof t->blocks / sizeof *t->blocks) stop("too many blocks");
  void *block = aligned_alloc(64, hr_round_up(bytes, 64));
  if (!block) stop("memory is out");
  memset(block, 0, bytes);
  return t->blocks[t->block_count++] = block;
}

static void make_matrix(toy *t, hr_matrix *m, uint32_t n, uint32_t k) {
  if (t->plain_count == sizeof t->plain / sizeof *t->plain) stop("too many matrices");
  size_t panels = hr_round_up(n, HR_PANEL_ROWS) / HR_PANEL_ROWS;
  struct toy_plain *p = &t->plain[t->plain_count++];
  p->matrix = m;
  p->weight = block_of(t, (size_t)n * k * sizeof(float));
  p->panels = block_of(t, panels * hr_panel_bytes(HR_PANEL_F32, k));
  *m = (hr_matrix){.type = HR_PANEL_F32, .n = n, .k = k, .panels = p->panels};
}

static void make_norm(toy *t, hr_norm_weights *norm, uint32_t width) {
  float *gain = block_of(t, width * sizeof *gain);
  for (uint32_t i = 0; i < width; i++) gain[i] = 1;
  norm->gain = gain;
  norm->shift = block_of(t, width * sizeof(float));
}

static void make_layer(toy *t, const hr_description *d, hr_layer *layer) {
  uint32_t q = d->heads * d->head_width, kv = d->kv_heads * d->head_width;
  bool after = d->norm_place == HR_NORM_AFTER;
  make_norm(t, after ? &layer->attention_post_norm : &layer->attention_norm, d->width);
  make_norm(t, after ? &layer->ffn_post_norm : &layer->ffn_norm, d->width);
  make_matrix(t, &layer->query, q, d->width);
  make_matrix(t, &layer->key, kv, d->width);
  make_matrix(t, &layer->value, kv, d->width);
  make_matrix(t, &layer->output, d->width, q);
  if (d->gated) make_matrix(t, &layer->gate, d->ffn_width, d->width);
  make_matrix(t, &layer->up, d->ffn_width, d->width);
  make_matrix(t, &layer->down, d->width, d->ffn_width);
}

toy *toy_create(const hr_description *d) {
  toy *t = calloc(1, sizeof *t);
  if (!t || !hr_kernels_select(&t->kernels, hr_cpu_features(), NULL)) stop("can't be made");
  hr_transformer *m = &t->model;
  m->description = *d;
  make_matrix(t, &m->token_embedding, d->vocab, d->width);
  make_matrix(t, &m->head, d->vocab, d->width);
  if (d->norm_place == HR_NORM_BEFORE) make_norm(t, &m->final_norm, d->width);
  m->position_rows = d->context;
  m->position_embedding = block_of(t, (size_t)d->context * d->width * sizeof(float));
  m->layer = block_of(t, d->layers * sizeof *m->layer);
  for (uint32_t i = 0; i < d->layers; i++) make_layer(t, d, &m->layer[i]);
  return t;
}

void toy_free(toy *t) {
  for (size_t i = 0; i < t->block_count; i++) free(t->blocks[i]);
  free(t);
}

float *toy_weight(toy *t, const hr_matrix *matrix) {
  for (size_t i = 0; i < t->plain_count; i++)
    if (t->plain[i].matrix == matrix) return t->plain[i].weight;
  stop("no such matrix");
  return NULL;
}

float *toy_bias(toy *t, hr_matrix *matrix) {
  float *bias = block_of(t, matrix->n * sizeof *bias);
  matrix->bias = bias;
  return bias;
}

float *toy_positions(toy *t) {
  return (float *)(uintptr_t)t->model.position_embedding;
}

void toy_identity(toy *t, const hr_matrix *matrix) {
  float *w = toy_weight(t, matrix);
  for (size_t i = 0; i < matrix->n; i++)
    for (size_t k = 0; k < matrix->k; k++) w[i * matrix->k + k] = i == k;
}

void toy_randomize(toy *t, uint64_t seed, double scale) {
  const hr_description *d = &t->model.description;
  for (size_t i = 0; i < t->plain_count; i++) {
    const hr_matrix *m = t->plain[i].matrix;
    double s = m == &t->model.token_embedding ? 1 : scale / sqrt((double)m->k);
    random_fill(&seed, t->plain[i].weight, (size_t)m->n * m->k, s);
  }
  random_fill(&seed, toy_positions(t), (size_t)d->context * d->width, 1);
}

static void pack(toy *t) {
  for (size_t i = 0; i < t->plain_count; i++) {
    const hr_matrix *m = t->plain[i].matrix;
    size_t row_bytes = m->k * sizeof(float), panel_bytes = hr_panel_bytes(m->type, m->k);
    for (size_t row = 0; row < m->n; row += HR_PANEL_ROWS) {
      size_t rows = m->n - row < HR_PANEL_ROWS ? m->n - row : HR_PANEL_ROWS;
      t->kernels.pack_f32(t->plain[i].weight + row * m->k, row_bytes, rows, m->k,
                          (char *)t->plain[i].panels + row / HR_PANEL_ROWS * panel_bytes);
    }
  }
}

toy_session *toy_open(toy *t) {
  const hr_description *d = &t->model.description;
  hr_error err = {0};
  toy_session *s = calloc(1, sizeof *s);
  if (!s) stop("memory is out");
  pack(t);
  s->toy = t;
  s->team = hr_team_create(&(hr_team_options){.threads = 1, .no_pin = true}, &err);
  s->workspace = hr_workspace_create(&t->model, &t->kernels, d->context, d->context, 1, &err);
  if (!s->team || !s->workspace || hr_kv_cache_init(&s->cache, d, d->context, false, &err) != HR_OK)
    stop(err.message);
  hr_workspace_set_tap(s->workspace, activations_tap, &s->seen);
  return s;
}

void toy_eval(toy_session *s, const int32_t *ids, size_t rows) {
  size_t vocab = s->toy->model.description.vocab;
  hr_error err = {0};
  s->logits = reallocarray(s->logits, (s->position + rows) * vocab, sizeof *s->logits);
  if (!s->logits) stop("memory is out");
  const hr_request request = {.ids = ids, .rows = rows, .start = s->position,
                              .logits = s->logits + s->position * vocab};
  if (hr_forward(s->workspace, s->team, 1, &s->cache, &request, &err) != HR_OK) stop(err.message);
  s->position += rows;
}

void toy_close(toy_session *s) {
  hr_team_free(s->team);
  hr_workspace_free(s->workspace);
  hr_kv_cache_finish(&s->cache);
  activations_finish(&s->seen);
  free(s->logits);
  free(s);
}

toy_session *toy_run(toy *t, const int32_t *ids, size_t rows) {
  toy_session *s = toy_open(t);
  toy_eval(s, ids, rows);
  return s;
}

const float *toy_row(const toy_session *s, const char *name, uint32_t layer, size_t r) {
  const activation *a = activations_need(&s->seen, name, layer);
  if (r >= a->rows) stop("no such row");
  return a->data + r * a->columns;
}
