/* SPDX-License-Identifier: MIT */
#include "machine.h"

#include "kernels/select.h"

const char *cli_tier_names(void) {
  static char names[128];
  hr_kernels_available(UINT32_MAX, names, sizeof names);
  return names;
}

void cli_visit_kernels(const char *isa, cli_kernel_fn *visit, void *data) {
  hr_kernels table;
  if (!hr_kernels_select(&table, hr_cpu_features(), isa)) return;
#define VISIT(type, slot) visit(data, #slot, table.name.slot);
  HR_KERNEL_SLOTS(VISIT)
#undef VISIT
}
