/* SPDX-License-Identifier: MIT
 * Keeps what a pass shows to its tap. */
#ifndef HR_TESTS_ACTIVATIONS_H
#define HR_TESTS_ACTIVATIONS_H

#include <stddef.h>
#include <stdint.h>

typedef struct activation {
  char name[32];
  uint32_t layer;
  size_t rows, columns;
  float *data; /* rows side by side */
} activation;

typedef struct activations {
  activation *seen;
  size_t count;
} activations;

/* An hr_tap_fn; arg is an activations. One that is shown again (by the next
 * piece of a prompt, say) gets more rows. */
void activations_tap(void *arg, const char *name, uint32_t layer, const float *data, size_t rows,
                     size_t columns, size_t stride);
/* Ends the program with a line on stderr when that was not shown. */
const activation *activations_need(const activations *a, const char *name, uint32_t layer);
void activations_finish(activations *a);

#endif
