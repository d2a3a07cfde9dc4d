/* SPDX-License-Identifier: MIT
 * What is lost between a file and the panels. */
#include "base/memory.h"
#include "model/load.h"

hr_panel_source hr_held_source(const hr_source *source, const hr_held *held) {
  const hr_tensor *t = hr_source_tensor_at(source, held->tensor);
  return (hr_panel_source){.format = t->format,
                           .data = t->data,
                           .columns = t->dim[1],
                           .first_row = held->first_row,
                           .run = held->run,
                           .step = held->step,
                           .transposed = held->transposed};
}

hr_status hr_held_loss(const hr_source *source, const hr_held *held, hr_loss *loss, hr_error *err) {
  const hr_panel_source from = hr_held_source(source, held);
  const hr_matrix *m = held->matrix;
  *loss = (hr_loss){0};
  float *row = hr_calloc(2 * (size_t)m->k, sizeof *row);
  if (!row) return hr_fail_memory(err, "a row of weights", 2 * (size_t)m->k * sizeof *row);
  for (size_t r = 0; r < m->n; r++) {
    hr_source_row(&from, r, m->k, row);
    hr_panel_row(m->type, m->panels, m->k, r, row + m->k);
    for (size_t k = 0; k < m->k; k++) {
      double x = (double)row[k], e = (double)row[m->k + k] - x;
      loss->error += e * e;
      loss->norm += x * x;
    }
  }
  hr_free(row);
  return HR_OK;
}
