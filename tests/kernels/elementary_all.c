/* SPDX-License-Identifier: MIT
 * The error of exp, tanh, erf and sigmoid over every argument there is, against long double:
 *   elementary_all [FUNCTION...]
 * One line each; status 1 when a bound does not hold. Minutes of two cores for all four. */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "tests/kernels/elementary_error.h"

enum { PARTS = 4096 };

static bool measure_all(const hr_elementary *f) {
  static hr_elementary_error part[PARTS];
  const uint64_t each = ((uint64_t)1 << 32) / PARTS;
#pragma omp parallel for schedule(dynamic)
  for (uint64_t i = 0; i < PARTS; i++)
    part[i] = hr_elementary_measure(f, i * each, (i + 1) * each, 1);
  hr_elementary_error all = {0};
  for (size_t i = 0; i < PARTS; i++) {
    uint64_t arguments = all.arguments + part[i].arguments;
    if (part[i].worst > all.worst) all = part[i];
    all.arguments = arguments;
  }
  bool good = all.worst <= f->bound;
  printf("%-8s %10llu arguments, at most %.4f ulp, at %a%s\n", f->name,
         (unsigned long long)all.arguments, all.worst, (double)all.at,
         good ? "" : ": WRONG, above the bound");
  fflush(stdout);
  return good;
}

static bool wanted(const char *name, int argc, char **argv) {
  for (int i = 1; i < argc; i++)
    if (strcmp(argv[i], name) == 0) return true;
  return argc < 2;
}

int main(int argc, char **argv) {
  bool good = true;
  int measured = 0;
  for (size_t i = 0; i < HR_ELEMENTARY_FUNCTIONS; i++) {
    if (!wanted(hr_elementary_functions[i].name, argc, argv)) continue;
    good &= measure_all(&hr_elementary_functions[i]);
    measured++;
  }
  if (argc > 1 && measured < argc - 1) {
    fputs("usage: elementary_all [exp|tanh|erf|sigmoid...]\n", stderr);
    return 2;
  }
  return good ? 0 : 1;
}
