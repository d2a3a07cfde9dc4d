/* SPDX-License-Identifier: MIT */
#include "tests/support/activations.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *grown(void *old, size_t count, size_t size) {
  void *block = reallocarray(old, count, size);
  if (!block) abort();
  return block;
}

static activation *find(const activations *a, const char *name, uint32_t layer) {
  for (size_t i = 0; i < a->count; i++)
    if (a->seen[i].layer == layer && strcmp(a->seen[i].name, name) == 0) return &a->seen[i];
  return NULL;
}

void activations_tap(void *arg, const char *name, uint32_t layer, const float *data, size_t rows,
                     size_t columns, size_t stride) {
  activations *a = arg;
  activation *to = find(a, name, layer);
  if (!to) {
    a->seen = grown(a->seen, a->count + 1, sizeof *a->seen);
    to = &a->seen[a->count++];
    *to = (activation){.layer = layer, .columns = columns};
    snprintf(to->name, sizeof to->name, "%s", name);
  }
  to->data = grown(to->data, (to->rows + rows) * columns, sizeof *to->data);
  for (size_t r = 0; r < rows; r++)
    memcpy(to->data + (to->rows + r) * columns, data + r * stride, columns * sizeof *data);
  to->rows += rows;
}

const activation *activations_need(const activations *a, const char *name, uint32_t layer) {
  const activation *found = find(a, name, layer);
  if (!found) {
    fprintf(stderr, "activation '%s' of layer %u was not shown\n", name, layer);
    abort();
  }
  return found;
}

void activations_finish(activations *a) {
  for (size_t i = 0; i < a->count; i++) free(a->seen[i].data);
  free(a->seen);
  *a = (activations){0};
}
