/* SPDX-License-Identifier: MIT
 * The machine that the numbers come from, as far as it tells. */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "bench.h"
#include "kernels/select.h"
#include "machine.h"
#include "output.h"
#include "sched/memory.h"
#include "sched/placement.h"
#include "sched/topology.h"

/* The value behind "KEY...: " in a file of such lines. */
static bool read_value(const char *path, const char *key, char *text, size_t size) {
  FILE *file = fopen(path, "r");
  char line[8192]; /* the flags of a CPU are many */
  bool found = false;
  while (file && !found && fgets(line, sizeof line, file)) {
    char *colon = strchr(line, ':');
    if (!colon || strncmp(line, key, strlen(key)) != 0) continue;
    colon += 1 + strspn(colon + 1, " \t");
    colon[strcspn(colon, "\n")] = '\0';
    snprintf(text, size, "%s", colon);
    found = *colon != '\0';
  }
  if (file) fclose(file);
  return found;
}

/* The first line of a file. */
static bool read_line(const char *path, char *text, size_t size) {
  FILE *file = fopen(path, "r");
  bool found = file && fgets(text, (int)size, file) && *text && *text != '\n';
  if (file) fclose(file);
  if (found) text[strcspn(text, "\n")] = '\0';
  return found;
}

size_t bench_memory(const char *file, const char *key) {
  char text[64];
  uint64_t kib;
  if (!read_value(file, key, text, sizeof text)) return 0;
  text[strcspn(text, " ")] = '\0';
  return cli_parse_count(text, &kib) ? (size_t)kib * 1024 : 0;
}

size_t bench_free_memory(void) {
  hr_memory_free memory;
  return hr_memory_free_read(&memory, "/") ? memory.bytes : 0;
}

/* Exact, where the kernel has it: /proc/self/statm is some pages a thread behind. */
double bench_resident(void) {
  size_t bytes = bench_memory("/proc/self/smaps_rollup", "Rss");
  if (!bytes) bytes = bench_memory("/proc/self/status", "VmRSS");
  return bytes ? (double)bytes : -1;
}

const char *bench_sysroot(const bench *b) {
  return b->set.sysroot ? b->set.sysroot : "";
}

void bench_warn_of_realtime(bench *b) {
  static const char *const files[] = {"runtime", "period"};
  double us[2] = {0, 0};
  int policy = sched_getscheduler(0);
  if (policy != SCHED_FIFO && policy != SCHED_RR) return;
  for (size_t i = 0; i < 2; i++) {
    char path[1024], text[32];
    int length = snprintf(path, sizeof path, "%s/proc/sys/kernel/sched_rt_%s_us", bench_sysroot(b),
                          files[i]);
    if (length < (int)sizeof path && read_line(path, text, sizeof text)) us[i] = strtod(text, NULL);
  }
  if (us[0] > 0 && us[0] < us[1])
    bench_warn(b, "real-time priority: the system takes %.0f %% of the time from threads that have "
               "it (sched_rt_runtime_us), better 'nice -n -20'", 100 * (1 - us[0] / us[1]));
}

double bench_load_average(void) {
  double load;
  return getloadavg(&load, 1) == 1 ? load : -1;
}

static json_t *json_text_or_null(const char *text) {
  return text ? cli_json_text(text, strlen(text)) : json_null();
}

static json_t *json_size(size_t n) {
  return n ? json_integer((json_int_t)n) : json_null();
}

static json_t *json_load(double load) {
  return load >= 0 ? json_real(load) : json_null();
}

static json_t *json_kinds(const hr_topology *t) {
  json_t *list = json_array();
  for (unsigned i = 0; t && i < t->kinds; i++)
    json_array_append_new(list, json_pack("{s:i, s:i, s:o, s:s}", "cores", t->kind[i].cores, "cpus",
                                          t->kind[i].cpus, "mhz", json_size(t->kind[i].mhz), "type",
                                          t->kind[i].type));
  return list;
}

/* Caches of the first CPU of each kind of core, as far as they differ. */
static json_t *json_caches(const hr_topology *t) {
  json_t *list = json_array();
  for (unsigned kind = 0; t && kind < t->kinds; kind++) {
    const hr_cpu *cpu = NULL;
    for (unsigned i = 0; i < t->cpus && !cpu; i++)
      if (t->cpu[i].kind == kind) cpu = &t->cpu[i];
    if (!cpu) continue;
    const hr_cache_size *const levels[] = {&cpu->l1d, &cpu->l2, &cpu->l3};
    for (int level = 0; level < 3; level++)
      if (levels[level]->bytes)
        json_array_append_new(list, json_pack("{s:i, s:i, s:I, s:i}", "kind", kind, "level",
                                              level + 1, "bytes",
                                              (json_int_t)levels[level]->bytes, "cores",
                                              levels[level]->cores));
  }
  return list;
}

/* 1 when a hypervisor is there, 0 when there is none, -1 when that can't be known. */
static int is_virtual(void) {
  char flags[8192];
  if (access("/proc/device-tree/hypervisor", F_OK) == 0) return 1;
  if (!read_value("/proc/cpuinfo", "flags", flags, sizeof flags)) return -1;
  return strstr(flags, " hypervisor") != NULL;
}

static json_t *json_sensors(const bench *b) {
  cli_sensor_names n = cli_sensors_names(b->sensors);
  return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "frequency",
                   json_text_or_null(n.frequency), "frequency_reason",
                   json_text_or_null(n.frequency_reason), "temperature",
                   json_text_or_null(n.temperature), "temperature_reason",
                   json_text_or_null(n.temperature_reason), "throttling",
                   json_text_or_null(n.throttling), "throttling_reason",
                   json_text_or_null(n.throttling_reason), "energy", json_text_or_null(n.energy),
                   "energy_reason", json_text_or_null(n.energy_reason), "most_mhz",
                   n.most_mhz > 0 ? json_real(n.most_mhz) : json_null());
}

/* What decides how many threads there are when nobody says; null: not known. */
static json_t *json_thread_limits(const bench *b, const hr_topology *t) {
  const cli_common *common = &b->set.common;
  hr_limits limits;
  hr_placement placement;
  const hr_wishes wishes = {.no_pin = common->no_pin, .cores = common->cores};
  hr_limits_read(&limits, "/");
  hr_limits_read_affinity(&limits);
  if (!t || hr_placement_make(&placement, t, &limits, &wishes, NULL) != HR_OK) return json_null();
  json_t *list = cli_json_caps(&placement);
  hr_placement_free(&placement);
  return list;
}

json_t *bench_json_machine(const bench *b) {
  char cpu[128], huge[64], tiers[128];
  struct utsname system = {0};
  uname(&system);
  hr_topology *t = hr_topology_load(NULL, NULL);
  hr_kernels_available(hr_cpu_features(), tiers, sizeof tiers);
  int machine_is_virtual = is_virtual();
  bool known = read_line("/sys/kernel/mm/transparent_hugepage/enabled", huge, sizeof huge);
  json_t *machine = json_pack(
      "{s:o, s:s, s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:I, s:o, s:s, s:o, s:o, "
      "s:o, s:o}",
      "cpu", json_text_or_null(cli_cpu_name(bench_sysroot(b), cpu)), "architecture",
      system.machine, "system",
      system.sysname, "kernel", system.release, "virtual",
      machine_is_virtual < 0 ? json_null() : json_boolean(machine_is_virtual), "cpus",
      json_size(t ? t->cpus : 0), "cores", json_size(t ? t->cores : 0), "packages",
      json_size(t ? t->packages : 0), "nodes", json_size(t ? t->nodes : 0), "kinds", json_kinds(t),
      "thread_limits", json_thread_limits(b, t), "caches", json_caches(t), "memory_bytes",
      json_size(bench_memory("/proc/meminfo", "MemTotal")), "page_bytes",
      (json_int_t)sysconf(_SC_PAGESIZE), "huge_pages", json_text_or_null(known ? huge : NULL),
      "tiers", tiers, "governor", json_text_or_null(cli_sensors_names(b->sensors).governor),
      "sensors", json_sensors(b), "load_before", json_load(b->load_before), "load_after",
      json_load(b->load_after));
  hr_topology_free(t);
  return machine;
}
