/* SPDX-License-Identifier: MIT */
#include "mixture.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "builtin.h"
#include "quant/convert.h"

bool cli_mixture_init(cli_mixture *x, const hr_model *base) {
  const hr_transformer *t = &base->loaded.transformer;
  size_t layers = t->description.layers, held = base->loaded.held_count;
  *x = (cli_mixture){.model = *base, .base = base};
  x->model.loaded.transformer.layer = calloc(layers + 1, sizeof *t->layer);
  x->owned = calloc(held + 1, sizeof *x->owned);
  x->owned_bytes = calloc(held + 1, sizeof *x->owned_bytes);
  if (!x->model.loaded.transformer.layer || !x->owned || !x->owned_bytes) return false;
  memcpy(x->model.loaded.transformer.layer, t->layer, layers * sizeof *t->layer);
  return true;
}

static void drop(cli_mixture *x, size_t i) {
  hr_free_pages(x->owned[i], x->owned_bytes[i]);
  x->owned[i] = NULL;
}

void cli_mixture_finish(cli_mixture *x) {
  if (!x->base) return;
  for (size_t i = 0; x->owned && i < x->base->loaded.held_count; i++)
    if (x->owned[i]) drop(x, i);
  free(x->owned);
  free(x->owned_bytes);
  free(x->model.loaded.transformer.layer);
  *x = (cli_mixture){0};
}

/* Matrices are members of the transformer itself or of one of its layers. */
hr_matrix *cli_same_matrix(hr_transformer *to, const hr_transformer *from, const hr_matrix *m) {
  uintptr_t at = (uintptr_t)m, layers = (uintptr_t)from->layer;
  if (at >= layers && at < layers + from->description.layers * sizeof *from->layer)
    return (hr_matrix *)((uintptr_t)to->layer + (at - layers));
  return (hr_matrix *)((uintptr_t)to + (at - (uintptr_t)from));
}

int64_t cli_layer_of(const hr_loaded *loaded, size_t i) {
  const hr_transformer *t = &loaded->transformer;
  uintptr_t at = (uintptr_t)loaded->held[i].matrix, layers = (uintptr_t)t->layer;
  if (at < layers || at >= layers + t->description.layers * sizeof *t->layer) return -1;
  return (int64_t)((at - layers) / sizeof *t->layer);
}

const char *cli_part_of(const hr_loaded *loaded, size_t i) {
  const hr_held *held = loaded->held;
  int64_t layer = cli_layer_of(loaded, i);
  size_t others = 0;
  for (size_t j = 0; j < loaded->held_count; j++)
    others += j != i && held[j].tensor == held[i].tensor;
  if (others == 0 || layer < 0) return NULL;
  const hr_layer *of = &loaded->transformer.layer[layer];
  const hr_matrix *m = held[i].matrix;
  return m == &of->query ? "q" : m == &of->key ? "k" : m == &of->value ? "v"
         : m == &of->gate ? "gate" : m == &of->up ? "up" : NULL;
}

void cli_mixture_set(cli_mixture *x, size_t i, hr_panel_type type, const void *panels) {
  const hr_transformer *from = &x->base->loaded.transformer;
  hr_transformer *to = &x->model.loaded.transformer;
  const hr_matrix *held = x->base->loaded.held[i].matrix;
  hr_matrix *m = cli_same_matrix(to, from, held);
  m->type = type;
  m->panels = panels;
  if (held == &from->token_embedding && from->head.panels == held->panels) {
    to->head.type = type;
    to->head.panels = panels;
  }
}

void cli_mixture_reset(cli_mixture *x, size_t i) {
  const hr_matrix *held = x->base->loaded.held[i].matrix;
  cli_mixture_set(x, i, held->type, held->panels);
  if (x->owned[i]) drop(x, i);
}

/* Room for the panels of held matrix i in a type; owned by the mixture. */
static char *make_panels(cli_mixture *x, size_t i, hr_panel_type type) {
  const hr_matrix *m = x->base->loaded.held[i].matrix;
  size_t panels = hr_round_up(m->n, HR_PANEL_ROWS) / HR_PANEL_ROWS, bytes;
  if (x->owned[i]) drop(x, i);
  if (!hr_mul_size(panels, hr_panel_bytes(type, m->k), &bytes)) return NULL;
  x->owned[i] = hr_alloc_pages(bytes);
  x->owned_bytes[i] = bytes;
  return x->owned[i];
}

bool cli_mixture_widen(cli_mixture *x, size_t i, const hr_matrix *values) {
  float *row = calloc(values->k, sizeof *row);
  float *to = (float *)(void *)make_panels(x, i, HR_PANEL_F32);
  bool made = row && to;
  for (size_t r = 0; made && r < values->n; r++) {
    float *panel = to + r / HR_PANEL_ROWS * HR_PANEL_ROWS * values->k + r % HR_PANEL_ROWS;
    hr_panel_row(values->type, values->panels, values->k, r, row);
    for (size_t k = 0; k < values->k; k++) panel[k * HR_PANEL_ROWS] = row[k];
  }
  if (made) cli_mixture_set(x, i, HR_PANEL_F32, to);
  free(row);
  return made;
}

bool cli_mixture_pack(cli_mixture *x, size_t i, hr_panel_type type, const void *rows,
                      size_t stride) {
  const hr_matrix *m = x->base->loaded.held[i].matrix;
  char *to = make_panels(x, i, type);
  if (!to) return false;
  hr_pack_fn *pack = hr_kernels_pack(&x->base->kernels, type);
  for (size_t r = 0; r < m->n; r += HR_PANEL_ROWS) {
    size_t n = m->n - r < HR_PANEL_ROWS ? m->n - r : HR_PANEL_ROWS;
    pack((const char *)rows + r * stride, stride, n, m->k,
         to + r / HR_PANEL_ROWS * hr_panel_bytes(type, m->k));
  }
  cli_mixture_set(x, i, type, to);
  return true;
}

hr_source *cli_open_source(const char *name, hr_error *err) {
  if (!name || strcmp(name, CLI_BUILTIN) == 0)
    return hr_source_open_memory(cli_builtin_data(), cli_builtin_bytes(), CLI_BUILTIN, err);
  return hr_source_open(name, err);
}
