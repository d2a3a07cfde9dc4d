/* SPDX-License-Identifier: MIT
 * The machine that the numbers come from, as far as it tells. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "bench.h"
#include "kernels/select.h"
#include "machine.h"
#include "output.h"
#include "sched/topology.h"

/* The value behind "KEY...: " in a file of such lines. */
static bool read_value(const char *path, const char *key, char *text, size_t size) {
  FILE *file = fopen(path, "r");
  char line[512];
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

/* The first line of a file (boards end theirs with a NUL). */
static bool read_line(const char *path, char *text, size_t size) {
  FILE *file = fopen(path, "r");
  bool found = file && fgets(text, (int)size, file) && *text && *text != '\n';
  if (file) fclose(file);
  if (found) text[strcspn(text, "\n")] = '\0';
  return found;
}

/* x86 has a name; ARM has the board's, and numbers for the core. */
const char *bench_cpu_name(char text[128]) {
  static const char path[] = "/proc/cpuinfo";
  char maker[16], part[16], board[64];
  if (read_value(path, "model name", text, 128)) return text;
  bool core = read_value(path, "CPU implementer", maker, sizeof maker) &&
              read_value(path, "CPU part", part, sizeof part);
  bool named = read_line("/proc/device-tree/model", board, sizeof board);
  if (!core && !named) return NULL;
  snprintf(text, 128, "%s%s%s%s%s%s", named ? board : "", named && core ? ", " : "",
           core ? "implementer " : "", core ? maker : "", core ? " part " : "", core ? part : "");
  return text;
}

size_t bench_memory(const char *file, const char *key) {
  char text[64];
  uint64_t kib;
  if (!read_value(file, key, text, sizeof text)) return 0;
  text[strcspn(text, " ")] = '\0';
  return cli_parse_count(text, &kib) ? (size_t)kib * 1024 : 0;
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

json_t *bench_json_machine(const bench *b) {
  char cpu[128], huge[64], tiers[128];
  struct utsname system = {0};
  uname(&system);
  hr_topology *t = hr_topology_load(NULL, NULL);
  hr_kernels_available(hr_cpu_features(), tiers, sizeof tiers);
  bool known = read_line("/sys/kernel/mm/transparent_hugepage/enabled", huge, sizeof huge);
  json_t *machine = json_pack(
      "{s:o, s:s, s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:I, s:o, s:s, s:o, s:o}", "cpu",
      json_text_or_null(bench_cpu_name(cpu)), "architecture", system.machine, "system",
      system.sysname, "kernel", system.release, "cpus", json_size(t ? t->cpus : 0), "cores",
      json_size(t ? t->cores : 0), "packages", json_size(t ? t->packages : 0), "nodes",
      json_size(t ? t->nodes : 0), "kinds", json_kinds(t), "memory_bytes",
      json_size(bench_memory("/proc/meminfo", "MemTotal")), "page_bytes",
      (json_int_t)sysconf(_SC_PAGESIZE), "huge_pages", json_text_or_null(known ? huge : NULL),
      "tiers", tiers, "load_before", json_load(b->load_before), "load_after",
      json_load(b->load_after));
  hr_topology_free(t);
  return machine;
}
