/* SPDX-License-Identifier: MIT */
#include "machine.h"

#include <string.h>

#include "kernels/select.h"
#include "output.h"
#include "sched/placement.h"

const char *cli_tier_names(void) {
  static char names[128];
  hr_kernels_available(UINT32_MAX, names, sizeof names);
  return names;
}

int cli_check_isa(const cli_common *common) {
  hr_kernels table;
  uint32_t bits = hr_cpu_features();
  if (hr_kernels_select(&table, bits, common->isa)) return HR_OK;
  char names[128];
  hr_kernels_available(bits, names, sizeof names);
  return cli_fail(HR_ERROR_USAGE,
                  "%s: kernel tier '%.40s' is not known or this CPU lacks it, expected one of: %s",
                  common->isa_from, common->isa, names);
}

void cli_visit_kernels(const char *isa, cli_kernel_fn *visit, void *data) {
  hr_kernels table;
  if (!hr_kernels_select(&table, hr_cpu_features(), isa)) return;
#define VISIT(type, slot) visit(data, #slot, table.name.slot);
  HR_KERNEL_SLOTS(VISIT)
#undef VISIT
}

json_t *cli_json_caps(const struct hr_placement *p) {
  json_t *list = json_array();
  for (unsigned i = 0; i < p->caps; i++)
    json_array_append_new(list, json_pack("{s:o, s:i, s:b}", "what",
                                          cli_json_text(p->cap[i].what, strlen(p->cap[i].what)),
                                          "threads", p->cap[i].threads, "won", p->cap[i].won));
  return list;
}
