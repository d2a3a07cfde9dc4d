/* SPDX-License-Identifier: MIT
 * A part of test_split as a plain program, for emulators: it prints the digests of
 * synthetic models, which are the same on every machine, and fails when threads,
 * chunks or stolen work change one. */
#include <stdio.h>

#include "tests/support/split.h"

static void tell(const char *line) {
  printf("WRONG: %s\n", line);
}

int main(void) {
  /* Two blocks of keys, and no more: emulators take their time. */
  static const unsigned threads[] = {2, 5};
  static const size_t chunks[] = {7, 300};
  static const split_plan plan = {threads, 2, chunks, 2, 258, 2};
  static const char *const types[] = {"q8_0", "f16"};
  size_t wrong = 0;
  for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
    char shape[128];
    uint64_t digest = 0;
    hr_error err;
    snprintf(shape, sizeof shape, SPLIT_UNEVEN ":%s", types[i]);
    hr_model *model = split_model(shape, &err);
    if (!model) tell(err.message);
    wrong += model ? split_check(model, &plan, tell, &digest) : 1;
    hr_model_free(model);
    printf("%s %d-%016llx\n", types[i], HR_ARITHMETIC, (unsigned long long)digest);
  }
  return wrong != 0;
}
