/* SPDX-License-Identifier: MIT
 * A part of test_split as a plain program, for emulators: it prints the digests of
 * synthetic models, which are the same on every machine, and fails when threads,
 * chunks or stolen work change one. */
#include <stdio.h>

#include "tests/support/split.h"

static void tell(const char *line) {
  printf("WRONG: %s\n", line);
}

/* Counts what is wrong, and prints the digest. */
static size_t check(const char *shape, const char *type, const split_plan *plan) {
  char text[128];
  uint64_t digest = 0;
  hr_error err;
  snprintf(text, sizeof text, "%s:%s", shape, type);
  hr_model *model = split_model(text, &err);
  if (!model) tell(err.message);
  size_t wrong = model ? split_check(model, plan, tell, &digest) : 1;
  hr_model_free(model);
  printf("%s %d-%016llx\n", type, HR_ARITHMETIC, (unsigned long long)digest);
  return wrong;
}

int main(void) {
  /* Emulators take their time: all counts of threads and all chunks over a hundred times
   * with a small model, two blocks of keys only now and then. */
  static const unsigned threads[] = {1, 2, 3, 5, 8, 16}, few_threads[] = {2, 5};
  static const size_t chunks[] = {1, 7, 64, 512}, few_chunks[] = {7, 300};
  static const split_plan all = {threads, 6, chunks, 4, 70, 2, 5};
  static const split_plan blocks = {few_threads, 2, few_chunks, 2, 258, 2, 2};
  static const char *const types[] = {"q8_0", "f16"};
  size_t wrong = 0;
  for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
    wrong += check(SPLIT_SMALL, types[i], &all);
    wrong += check(SPLIT_UNEVEN, types[i], &blocks);
  }
  return wrong != 0;
}
