/* SPDX-License-Identifier: MIT */
#include "sched/topology.h"

#include <hwloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "sched/limits.h"

#define KIB UINT64_C(1024)
#define MIB (UINT64_C(1024) * KIB)
#define NO_KIND UINT_MAX

/* Frequencies closer than this (in percent) are one kind of core: the favoured
 * cores of a processor boost a little higher than their equals. */
#define SAME_PERCENT 90

/* --- Kinds of cores ------------------------------------------------------- */

static unsigned info_number(const struct hwloc_info_s *infos, unsigned count, const char *name) {
  for (unsigned i = 0; i < count; i++)
    if (strcmp(infos[i].name, name) == 0) return (unsigned)strtoul(infos[i].value, NULL, 10);
  return 0;
}

static void info_text(const struct hwloc_info_s *infos, unsigned count, const char *name,
                      char *text, size_t size) {
  for (unsigned i = 0; i < count; i++)
    if (strcmp(infos[i].name, name) == 0) snprintf(text, size, "%s", infos[i].value);
}

/* The kinds as the topology library ranks them, its last being the fastest. A
 * kind's set may hold CPUs that are not in the topology; those are never asked
 * for. False when it knows no ranked kinds. */
static bool kinds_from_library(hr_topology *t, hwloc_topology_t native) {
  int all = hwloc_cpukinds_get_nr(native, 0);
  int count = all < (int)HR_KINDS_MAX ? all : (int)HR_KINDS_MAX;
  hwloc_bitmap_t set = all > 1 ? hwloc_bitmap_alloc() : NULL;
  if (!set) return false;
  bool ranked = true;
  for (int k = 0; k < count && ranked; k++) {
    int efficiency = -1;
    unsigned infos_count = 0;
    struct hwloc_info_s *infos = NULL;
    ranked = hwloc_cpukinds_get_info(native, (unsigned)(all - 1 - k), set, &efficiency,
                                     &infos_count, &infos, 0) == 0 &&
             efficiency >= 0;
    if (!ranked) break;
    hr_kind *kind = &t->kind[k];
    kind->capacity = info_number(infos, infos_count, "LinuxCapacity");
    kind->mhz = info_number(infos, infos_count, "FrequencyMaxMHz");
    if (!kind->mhz) kind->mhz = info_number(infos, infos_count, "FrequencyBaseMHz");
    info_text(infos, infos_count, "CoreType", kind->type, sizeof kind->type);
    for (unsigned i = 0; i < t->cpus; i++)
      if (hwloc_bitmap_isset(set, t->cpu[i].os)) t->cpu[i].kind = (unsigned)k;
  }
  hwloc_bitmap_free(set);
  t->kinds = ranked ? (unsigned)count : 0;
  return ranked;
}

static unsigned read_number(const char *root, unsigned cpu, const char *name) {
  char path[1024], text[32];
  size_t length = strlen(root);
  while (length && root[length - 1] == '/') length--;
  int n = snprintf(path, sizeof path, "%.*s/sys/devices/system/cpu/cpu%u/%s", (int)length, root,
                   cpu, name);
  if (n < 0 || (size_t)n >= sizeof path) return 0;
  FILE *file = fopen(path, "re");
  if (!file) return 0;
  char *got = fgets(text, sizeof text, file);
  fclose(file);
  unsigned long value = got ? strtoul(text, NULL, 10) : 0;
  return value < UINT_MAX ? (unsigned)value : 0;
}

static bool same_speed(unsigned a, unsigned b) {
  unsigned low = a < b ? a : b, high = a < b ? b : a;
  return (uint64_t)low * 100 >= (uint64_t)high * SAME_PERCENT;
}

/* Classes of a number that the kernel gives for each CPU, the highest first. */
static bool kinds_from_numbers(hr_topology *t, const char *root, const char *name) {
  unsigned *value = hr_calloc(t->cpus, sizeof *value);
  if (!value) return false;
  bool known = true, frequency = strstr(name, "freq") != NULL;
  for (unsigned i = 0; i < t->cpus; i++) {
    value[i] = read_number(root, t->cpu[i].os, name);
    if (frequency) value[i] /= 1000;
    if (!value[i]) known = false;
    t->cpu[i].kind = NO_KIND;
  }
  for (t->kinds = 0; known && t->kinds < HR_KINDS_MAX; t->kinds++) {
    unsigned top = 0;
    for (unsigned i = 0; i < t->cpus; i++)
      if (t->cpu[i].kind == NO_KIND && value[i] > top) top = value[i];
    if (!top) break;
    for (unsigned i = 0; i < t->cpus; i++)
      if (t->cpu[i].kind == NO_KIND && same_speed(value[i], top)) t->cpu[i].kind = t->kinds;
    if (frequency)
      t->kind[t->kinds].mhz = top;
    else
      t->kind[t->kinds].capacity = top;
  }
  hr_free(value);
  return known && t->kinds > 1;
}

static bool one_kind(hr_topology *t) {
  memset(t->kind, 0, sizeof t->kind);
  for (unsigned i = 0; i < t->cpus; i++) t->cpu[i].kind = 0;
  t->kinds = 1;
  return true;
}

/* The kernel's capacity knows everything about a core, a frequency only part of
 * it: small cores do less in a cycle too, which is guessed at a quarter less. */
static unsigned kind_weight(const hr_kind *kind, const hr_kind *top) {
  uint64_t weight = HR_WEIGHT_ONE;
  if (kind->capacity && top->capacity) {
    weight = weight * kind->capacity / top->capacity;
  } else if (kind != top) {
    if (kind->mhz && top->mhz && kind->mhz < top->mhz) weight = weight * kind->mhz / top->mhz;
    if (strcmp(kind->type, top->type) != 0 || !kind->mhz || !top->mhz) weight = weight * 3 / 4;
  }
  return weight < 1 ? 1 : weight > HR_WEIGHT_ONE ? HR_WEIGHT_ONE : (unsigned)weight;
}

/* CPUs that no kind holds belong to the slowest. Kinds that hold no CPU of the
 * topology are dropped; the others keep their order. */
static void settle_kinds(hr_topology *t) {
  unsigned place[HR_KINDS_MAX], used = 0;
  for (unsigned i = 0; i < t->cpus; i++) {
    hr_cpu *cpu = &t->cpu[i];
    if (cpu->kind >= t->kinds) cpu->kind = t->kinds - 1;
    t->kind[cpu->kind].cpus++;
    if (cpu->thread == 0) t->kind[cpu->kind].cores++;
  }
  for (unsigned k = 0; k < t->kinds; k++) {
    place[k] = used;
    if (t->kind[k].cpus) t->kind[used++] = t->kind[k];
  }
  for (unsigned i = 0; i < t->cpus; i++) t->cpu[i].kind = place[t->cpu[i].kind];
  t->kinds = used;
  for (unsigned k = 0; k < used; k++) t->kind[k].weight = kind_weight(&t->kind[k], &t->kind[0]);
}

static void find_kinds(hr_topology *t, hwloc_topology_t native, const char *root) {
  bool found = kinds_from_library(t, native);
  if (!found && root)
    found = kinds_from_numbers(t, root, "cpu_capacity") ||
            kinds_from_numbers(t, root, "cpufreq/cpuinfo_max_freq");
  if (!found) one_kind(t);
  settle_kinds(t);
}

/* --- CPUs ----------------------------------------------------------------- */

static uint64_t clamp(uint64_t value, uint64_t low, uint64_t high) {
  return value < low ? low : value > high ? high : value;
}

static unsigned cores_inside(hwloc_topology_t native, hwloc_obj_t object) {
  int cores = hwloc_get_nbobjs_inside_cpuset_by_type(native, object->cpuset, HWLOC_OBJ_CORE);
  return cores > 0 ? (unsigned)cores : 1;
}

static hr_cache_size cache(hwloc_topology_t native, hwloc_obj_t pu, hwloc_obj_type_t type) {
  hwloc_obj_t object = hwloc_get_ancestor_obj_by_type(native, type, pu);
  if (!object || object->attr->cache.size == 0) return (hr_cache_size){0};
  return (hr_cache_size){object->attr->cache.size, cores_inside(native, object)};
}

/* An L1 or L2 that isn't reported is there all the same; an L3 may be absent.
 * No core has more than 32 MiB of L3 to itself, whatever a hypervisor says. */
static void read_caches(hwloc_topology_t native, hwloc_obj_t pu, hr_cpu *cpu) {
  cpu->l1d = cache(native, pu, HWLOC_OBJ_L1CACHE);
  cpu->l2 = cache(native, pu, HWLOC_OBJ_L2CACHE);
  cpu->l3 = cache(native, pu, HWLOC_OBJ_L3CACHE);
  if (!cpu->l1d.bytes) cpu->l1d = (hr_cache_size){32 * KIB, 1};
  if (!cpu->l2.bytes) cpu->l2 = (hr_cache_size){512 * KIB, 1};
  cpu->l1d.bytes = clamp(cpu->l1d.bytes, 8 * KIB, 512 * KIB);
  cpu->l2.bytes = clamp(cpu->l2.bytes, 64 * KIB, 32 * MIB);
  if (cpu->l3.bytes) cpu->l3.bytes = clamp(cpu->l3.bytes, 256 * KIB, 32 * MIB * cpu->l3.cores);
}

static unsigned ancestor_number(hwloc_topology_t native, hwloc_obj_t pu, hwloc_obj_type_t type) {
  hwloc_obj_t object = hwloc_get_ancestor_obj_by_type(native, type, pu);
  return object ? object->logical_index : 0;
}

static unsigned node_number(hwloc_topology_t native, hwloc_obj_t pu) {
  int first = pu->nodeset ? hwloc_bitmap_first(pu->nodeset) : -1;
  hwloc_obj_t node =
      first < 0 ? NULL : hwloc_get_numanode_obj_by_os_index(native, (unsigned)first);
  return node ? node->logical_index : 0;
}

/* CPUs come in the machine's order, so those of a core follow each other. */
static void read_cpu(hr_topology *t, hwloc_topology_t native, unsigned i) {
  hwloc_obj_t pu = hwloc_get_obj_by_type(native, HWLOC_OBJ_PU, i);
  hwloc_obj_t core = hwloc_get_ancestor_obj_by_type(native, HWLOC_OBJ_CORE, pu);
  hr_cpu *cpu = &t->cpu[i];
  cpu->os = pu->os_index;
  cpu->kind = NO_KIND;
  cpu->core = core ? core->logical_index : i;
  cpu->package = ancestor_number(native, pu, HWLOC_OBJ_PACKAGE);
  cpu->node = node_number(native, pu);
  if (i && t->cpu[i - 1].core == cpu->core) cpu->thread = t->cpu[i - 1].thread + 1;
  if (cpu->thread == 0) t->cores++;
  read_caches(native, pu, cpu);
}

static unsigned at_least_one(int count) {
  return count > 1 ? (unsigned)count : 1;
}

static hr_status read_machine(hr_topology *t, const char *root, hr_error *err) {
  hwloc_topology_t native = t->native;
  int cpus = hwloc_get_nbobjs_by_type(native, HWLOC_OBJ_PU);
  if (cpus < 1) return hr_fail(err, HR_ERROR_FILE, "topology: no CPU in it");
  t->cpus = (unsigned)cpus;
  t->cpu = hr_calloc(t->cpus, sizeof *t->cpu);
  if (!t->cpu) return hr_fail_memory(err, "topology", t->cpus * sizeof *t->cpu);
  t->packages = at_least_one(hwloc_get_nbobjs_by_type(native, HWLOC_OBJ_PACKAGE));
  t->nodes = at_least_one(hwloc_get_nbobjs_by_type(native, HWLOC_OBJ_NUMANODE));
  t->guessed = hwloc_get_nbobjs_by_type(native, HWLOC_OBJ_CORE) < 1;
  for (unsigned i = 0; i < t->cpus; i++) read_cpu(t, native, i);
  find_kinds(t, native, root);
  return HR_OK;
}

/* --- Sources -------------------------------------------------------------- */

/* The affinity mask is applied later, where it can be named as the limit that
 * it is; only what a group forbids is already missing here. Discovery must not
 * move the calling thread about. */
static hr_status load_native(hr_topology *t, const hr_topology_source *source, hr_error *err) {
  hwloc_topology_t native;
  if (hwloc_topology_init(&native) != 0) return hr_fail_memory(err, "topology", 1);
  t->native = native;
  unsigned long flags = source->synthetic || source->xml ? 0 : HWLOC_TOPOLOGY_FLAG_IS_THISSYSTEM;
#if HWLOC_API_VERSION >= 0x00020500
  flags |= HWLOC_TOPOLOGY_FLAG_DONT_CHANGE_BINDING;
#endif
  (void)hwloc_topology_set_flags(native, flags);
  if (source->synthetic && hwloc_topology_set_synthetic(native, source->synthetic) != 0)
    return hr_fail(err, HR_ERROR_USAGE, "topology: \"%s\" is not a description of a machine",
                   source->synthetic);
  if (source->xml && hwloc_topology_set_xml(native, source->xml) != 0)
    return hr_fail(err, HR_ERROR_FILE, "%s: not a readable topology file", source->xml);
  if (hwloc_topology_load(native) != 0)
    return hr_fail(err, HR_ERROR_FILE, "topology: the machine can't be examined");
  return HR_OK;
}

static hr_topology *load_flat_machine(hr_error *err) {
  hr_limits *limits = hr_calloc(1, sizeof *limits);
  if (!limits) {
    (void)hr_fail_memory(err, "topology", sizeof *limits);
    return NULL;
  }
  hr_limits_read_affinity(limits);
  if (!limits->has_affinity) hr_cpuset_add(&limits->affinity, 0);
  hr_topology *t = hr_topology_flat(&limits->affinity, err);
  hr_free(limits);
  return t;
}

hr_topology *hr_topology_load(const hr_topology_source *source, hr_error *err) {
  static const hr_topology_source here = {.root = "/"};
  if (!source) source = &here;
  bool fake = source->synthetic || source->xml;
  hr_topology *t = hr_calloc(1, sizeof *t);
  if (!t) {
    (void)hr_fail_memory(err, "topology", sizeof *t);
    return NULL;
  }
  hr_error attempt;
  hr_status status = load_native(t, source, &attempt);
  if (status == HR_OK)
    status = read_machine(t, source->root || fake ? source->root : "/", &attempt);
  if (status == HR_OK) return t;
  hr_topology_free(t);
  if (!fake && status != HR_ERROR_MEMORY) return load_flat_machine(err);
  if (err) *err = attempt;
  return NULL;
}

hr_topology *hr_topology_flat(const hr_cpuset *cpus, hr_error *err) {
  unsigned count = hr_cpuset_count(cpus);
  hr_topology *t = hr_calloc(1, sizeof *t);
  if (t) t->cpu = hr_calloc(count, sizeof *t->cpu);
  if (!t || !t->cpu || count == 0) {
    hr_topology_free(t);
    (void)(count ? hr_fail_memory(err, "topology", count * sizeof(hr_cpu))
                 : hr_fail(err, HR_ERROR_USAGE, "topology: an empty set of CPUs"));
    return NULL;
  }
  int os = -1;
  for (unsigned i = 0; i < count; i++) {
    os = hr_cpuset_next(cpus, os);
    t->cpu[i] = (hr_cpu){.os = (unsigned)os, .core = i};
    t->cpu[i].l1d = (hr_cache_size){32 * KIB, 1};
    t->cpu[i].l2 = (hr_cache_size){512 * KIB, 1};
  }
  t->cpus = t->cores = count;
  t->packages = t->nodes = 1;
  t->guessed = one_kind(t);
  settle_kinds(t);
  return t;
}

void hr_topology_free(hr_topology *topology) {
  if (!topology) return;
  if (topology->native) hwloc_topology_destroy(topology->native);
  hr_free(topology->cpu);
  hr_free(topology);
}

bool hr_topology_bind(const hr_topology *topology, const hr_cpuset *set) {
  hwloc_bitmap_t cpus = topology->native ? hwloc_bitmap_alloc() : NULL;
  if (!cpus) return false;
  int failed = 0;
  for (int cpu = hr_cpuset_next(set, -1); cpu >= 0; cpu = hr_cpuset_next(set, cpu))
    failed |= hwloc_bitmap_set(cpus, (unsigned)cpu);
  bool bound =
      !failed && hwloc_set_cpubind(topology->native, cpus, HWLOC_CPUBIND_THREAD) == 0;
  hwloc_bitmap_free(cpus);
  return bound;
}
