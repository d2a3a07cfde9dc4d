/* SPDX-License-Identifier: MIT
 *
 * Writes the XML files beside it: machines with several kinds of cores, which a
 * synthetic description can't express. Run it in this folder after a change:
 *
 *     cc generate.c $(pkg-config --cflags --libs hwloc) -o /tmp/generate && /tmp/generate
 */
#include <hwloc.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct {
  const char *cpus;     /* NULL ends a list */
  const char *type;     /* name of the kind of core, or NULL */
  const char *mhz;      /* highest frequency, or NULL */
  const char *capacity; /* the kernel's rating, or NULL */
  int efficiency;       /* rank, the highest is the fastest */
} kind;

typedef struct {
  const char *file, *synthetic;
  const char *keep; /* CPUs that exist; NULL: all */
  kind kinds[4];
} machine;

static const machine machines[] = {
    {"hybrid-2p8e.xml",
     "package:1 l3:1(size=12582912) core:10 "
     "pu:2(indexes=0,1,2,3,4,12,5,13,6,14,7,15,8,16,9,17,10,18,11,19)",
     "0-11",
     {{"4-11", "IntelAtom", "3300", NULL, 0}, {"0-3", "IntelCore", "4400", NULL, 1}}},
    {"hybrid-8p12e.xml",
     "package:1 l3:1(size=31457280) core:20 pu:1",
     NULL,
     {{"8-19", "IntelAtom", "4600", NULL, 0}, {"0-7", "IntelCore", "5500", NULL, 1}}},
    {"favoured-2-of-8.xml",
     "package:1 l3:1(size=33554432) core:8 pu:2",
     NULL,
     {{"0-11", NULL, "5400", NULL, 0}, {"12-15", NULL, "5700", NULL, 1}}},
    {"board-4-4.xml",
     "package:1 l3:1(size=3145728) core:8 pu:1",
     NULL,
     {{"0-3", NULL, "1800", "414", 0}, {"4-7", NULL, "2400", "1024", 1}}},
    {"board-near-4-4.xml",
     "package:1 core:8 pu:1",
     NULL,
     {{"0-3", NULL, "1800", "560", 0}, {"4-7", NULL, "2400", "1024", 1}}},
    {"phone-1-3-4.xml",
     "package:1 l3:1(size=8388608) core:8 pu:1",
     NULL,
     {{"0-3", NULL, "1800", "325", 0},
      {"4-6", NULL, "2500", "640", 1},
      {"7", NULL, "3000", "1024", 2}}},
    {"pair-1-1.xml",
     "package:1 core:2 pu:1",
     NULL,
     {{"1", NULL, "1800", "560", 0}, {"0", NULL, "2400", "1024", 1}}},
    {"phone-2-6.xml",
     "package:1 core:8 pu:1",
     NULL,
     {{"0-5", NULL, "3500", "800", 0}, {"6-7", NULL, "4300", "1024", 1}}},
};

static void check(int failed, const char *what) {
  if (!failed) return;
  perror(what);
  exit(1);
}

static hwloc_bitmap_t set_of(const char *cpus) {
  hwloc_bitmap_t set = hwloc_bitmap_alloc();
  check(!set || hwloc_bitmap_list_sscanf(set, cpus) != 0, cpus);
  return set;
}

static void add_kind(hwloc_topology_t topology, const kind *k) {
  struct hwloc_info_s infos[3];
  unsigned count = 0;
  if (k->type) infos[count++] = (struct hwloc_info_s){"CoreType", (char *)k->type};
  if (k->mhz) infos[count++] = (struct hwloc_info_s){"FrequencyMaxMHz", (char *)k->mhz};
  if (k->capacity) infos[count++] = (struct hwloc_info_s){"LinuxCapacity", (char *)k->capacity};
  hwloc_bitmap_t set = set_of(k->cpus);
  check(hwloc_cpukinds_register(topology, set, k->efficiency, count, infos, 0) != 0, "kind");
  hwloc_bitmap_free(set);
}

static void write_machine(const machine *m) {
  hwloc_topology_t topology;
  check(hwloc_topology_init(&topology) != 0, "init");
  check(hwloc_topology_set_synthetic(topology, m->synthetic) != 0, m->synthetic);
  check(hwloc_topology_load(topology) != 0, "load");
  if (m->keep) {
    hwloc_bitmap_t set = set_of(m->keep);
    check(hwloc_topology_restrict(topology, set, 0) != 0, "restrict");
    hwloc_bitmap_free(set);
  }
  for (const kind *k = m->kinds; k < m->kinds + 4 && k->cpus; k++) add_kind(topology, k);
  check(hwloc_topology_export_xml(topology, m->file, 0) != 0, m->file);
  hwloc_topology_destroy(topology);
}

int main(void) {
  for (size_t i = 0; i < sizeof machines / sizeof *machines; i++) write_machine(&machines[i]);
  return 0;
}
