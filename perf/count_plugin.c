/* SPDX-License-Identifier: MIT
 * A plugin of QEMU's user mode that counts the instructions a program runs, in all its
 * threads: perf/count.sh builds and loads it.
 *
 *   qemu-aarch64 -plugin count_plugin.so,to=FILE PROGRAM [ARGUMENT...]
 *
 * At the program's end FILE holds the number. Debian has no package with the interface's
 * header, so the few functions taken are declared here, as QEMU documents them ("QEMU TCG
 * Plugins"). PLUGIN_API is the version of the interface: 1 before QEMU 9, then 2. */
#include <inttypes.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#ifndef PLUGIN_API
#define PLUGIN_API 1
#endif
#define EXPORT __attribute__((visibility("default")))

typedef uint64_t plugin_id;
typedef struct qemu_info_t qemu_info_t;
struct qemu_plugin_tb;
enum plugin_registers { PLUGIN_NO_REGISTERS };

void qemu_plugin_register_vcpu_tb_trans_cb(plugin_id id,
                                           void (*translated)(plugin_id, struct qemu_plugin_tb *));
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *block);
void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb *block,
                                          void (*executed)(unsigned cpu, void *data),
                                          enum plugin_registers registers, void *data);
void qemu_plugin_register_atexit_cb(plugin_id id, void (*ended)(plugin_id, void *), void *data);
int qemu_plugin_install(plugin_id id, const qemu_info_t *info, int count, char **arguments);

extern int qemu_plugin_version;
EXPORT int qemu_plugin_version = PLUGIN_API;

static _Atomic uint64_t instructions;
static FILE *output; /* opened at the start: the program may go elsewhere */

/* data: how many instructions the block has. */
static void add(unsigned cpu, void *data) {
  (void)cpu;
  atomic_fetch_add_explicit(&instructions, (uintptr_t)data, memory_order_relaxed);
}

static void watch(plugin_id id, struct qemu_plugin_tb *block) {
  (void)id;
  void *count = (void *)(uintptr_t)qemu_plugin_tb_n_insns(block);
  qemu_plugin_register_vcpu_tb_exec_cb(block, add, PLUGIN_NO_REGISTERS, count);
}

static void report(plugin_id id, void *data) {
  (void)id, (void)data;
  fprintf(output, "%" PRIu64 "\n", atomic_load(&instructions));
  fclose(output);
}

EXPORT int qemu_plugin_install(plugin_id id, const qemu_info_t *info, int count,
                               char **arguments) {
  (void)info;
  if (count != 1 || strncmp(arguments[0], "to=", 3) != 0) {
    fprintf(stderr, "count_plugin: expected one argument, to=FILE\n");
    return 1;
  }
  output = fopen(arguments[0] + 3, "w");
  if (!output) {
    perror(arguments[0] + 3);
    return 1;
  }
  qemu_plugin_register_vcpu_tb_trans_cb(id, watch);
  qemu_plugin_register_atexit_cb(id, report, NULL);
  return 0;
}
