/* SPDX-License-Identifier: MIT
 * The machine as plain numbers: CPUs, cores, kinds of cores, packages, memory
 * nodes and caches. Only topology.c knows the library they come from. */
#ifndef HR_SCHED_TOPOLOGY_H
#define HR_SCHED_TOPOLOGY_H

#include "base/error.h"
#include "sched/cpuset.h"

#define HR_KINDS_MAX 8u

/* Bytes of a cache, and how many cores share it; 0 bytes: there is none. */
typedef struct hr_cache_size {
  uint64_t bytes;
  unsigned cores;
} hr_cache_size;

/* One logical CPU. Numbers count from 0 without holes, except os. */
typedef struct hr_cpu {
  unsigned os;      /* the system's number */
  unsigned core;    /* number of the physical core */
  unsigned thread;  /* place among the hyperthreads of the core */
  unsigned kind;    /* 0 is the fastest */
  unsigned package;
  unsigned node;
  hr_cache_size l1d, l2, l3; /* clamped: virtual machines report absurd ones */
} hr_cpu;

/* Cores that are alike. What is not known is 0. */
typedef struct hr_kind {
  unsigned capacity; /* by the kernel, where the largest is usually 1024 */
  unsigned mhz;      /* highest frequency */
  char type[24];     /* the maker's name for the type of core, or "" */
  unsigned cores, cpus;
  unsigned weight;   /* speed, where the fastest kind has HR_WEIGHT_ONE */
} hr_kind;

#define HR_WEIGHT_ONE 1024u

typedef struct hr_topology {
  unsigned cpus, cores, packages, nodes, kinds;
  hr_cpu *cpu; /* neighbours in the machine are neighbours here */
  hr_kind kind[HR_KINDS_MAX];
  bool guessed;   /* nothing was known: each CPU is taken for a core */
  void *native;   /* for hr_topology_bind */
} hr_topology;

typedef struct hr_topology_source {
  const char *synthetic; /* a description such as "package:2 core:4 pu:2", */
  const char *xml;       /* or the path of an XML file; both NULL: this machine */
  const char *root;      /* where sys/devices/system/cpu is found for kinds of cores that the
                            source doesn't know; NULL: "/" for this machine, else nowhere */
} hr_topology_source;

/* source may be NULL for this machine. NULL with a sentence on failure; this
 * machine fails only when memory is out. */
hr_topology *hr_topology_load(const hr_topology_source *source, hr_error *err);
/* A machine of which only the set of CPUs is known: each counts as a core. */
hr_topology *hr_topology_flat(const hr_cpuset *cpus, hr_error *err);
/* NULL is allowed. */
void hr_topology_free(hr_topology *topology);

/* Binds the calling thread to a set of CPUs; false when the system refuses. */
bool hr_topology_bind(const hr_topology *topology, const hr_cpuset *set);

#endif
