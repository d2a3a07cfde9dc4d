/* SPDX-License-Identifier: MIT */
#include "sched/placement.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"

/* --- Which kinds of cores ------------------------------------------------- */

/* Decoding waits for its slowest thread at every step and is bound by memory,
 * which a few fast cores saturate: small cores cost more in waiting than they
 * bring. So the automatic choice takes the performance cores:
 * - the fastest kind;
 * - kinds that differ from it by no more than a boost clock (10 %) or, where the
 *   kernel rates whole cores, by no more than 30 %: shares of the work by weight,
 *   and stealing, even that out. Without this, a processor with two favoured
 *   cores, or a phone with two "prime" and six large cores, would use two;
 * - on machines of three or more kinds that the maker doesn't name, so phones,
 *   the second kind if it has at least half the speed: there the fastest kind
 *   is a single "prime" core, and the next ones are "big".
 * Prompts are bound by arithmetic, where a core of half the speed brings half
 * as much; passes of many rows use every kind that the kernel rates at least so.
 * A frequency alone isn't trusted for that: small cores do less in a cycle. */
static bool is_performance(const hr_topology *t, unsigned k) {
  const hr_kind *kind = &t->kind[k], *top = &t->kind[0];
  if (k == 0) return true;
  if (kind->capacity && kind->weight * 10 >= HR_WEIGHT_ONE * 7) return true;
  bool same_type = strcmp(kind->type, top->type) == 0;
  if (same_type && kind->mhz && kind->weight * 10 >= HR_WEIGHT_ONE * 9) return true;
  return k == 1 && t->kinds > 2 && !top->type[0] && kind->weight * 2 >= HR_WEIGHT_ONE;
}

static bool is_worth_in_batch(const hr_topology *t, unsigned k) {
  return is_performance(t, k) ||
         (t->kind[k].capacity && t->kind[k].weight * 2 >= HR_WEIGHT_ONE);
}

/* --- The choice of CPUs --------------------------------------------------- */

typedef struct {
  const hr_topology *t;
  const hr_limits *limits;
  const hr_wishes *wishes;
  hr_cpuset allowed; /* affinity mask and groups, of the CPUs that exist */
  hr_cpuset chosen;  /* of those, the ones for passes of one row */
  hr_cpuset batch;   /* and of many rows */
  hr_cpuset reach;   /* all that may be used when more threads are asked for */
} choice;

static unsigned count_cores(const hr_topology *t, const hr_cpuset *set) {
  unsigned cores = 0;
  for (unsigned i = 0, last = UINT32_MAX; i < t->cpus; i++) {
    if (!hr_cpuset_has(set, t->cpu[i].os) || t->cpu[i].core == last) continue;
    last = t->cpu[i].core;
    cores++;
  }
  return cores;
}

static void find_allowed(choice *c) {
  for (unsigned i = 0; i < c->t->cpus; i++) hr_cpuset_add(&c->allowed, c->t->cpu[i].os);
  hr_cpuset both = c->allowed;
  if (c->limits->has_affinity) hr_cpuset_keep(&both, &c->limits->affinity);
  if (c->limits->has_cpuset) hr_cpuset_keep(&both, &c->limits->cpuset);
  /* Groups read from the wrong place must not leave a machine without CPUs. */
  if (hr_cpuset_count(&both) == 0 && c->limits->has_affinity) {
    both = c->allowed;
    hr_cpuset_keep(&both, &c->limits->affinity);
  }
  if (hr_cpuset_count(&both) != 0) c->allowed = both;
}

/* The kinds are those of the allowed CPUs only: a process that was put on small
 * cores has nothing faster. */
static unsigned fastest_allowed(const choice *c) {
  unsigned fastest = c->t->kinds - 1;
  for (unsigned i = 0; i < c->t->cpus; i++)
    if (hr_cpuset_has(&c->allowed, c->t->cpu[i].os) && c->t->cpu[i].kind < fastest)
      fastest = c->t->cpu[i].kind;
  return fastest;
}

typedef bool kind_test(const hr_topology *t, unsigned kind);

static void choose_by_kind(choice *c, hr_cpuset *set, kind_test *wanted) {
  unsigned fastest = fastest_allowed(c);
  *set = (hr_cpuset){0};
  for (unsigned i = 0; i < c->t->cpus; i++) {
    const hr_cpu *cpu = &c->t->cpu[i];
    if (hr_cpuset_has(&c->allowed, cpu->os) && (cpu->kind == fastest || wanted(c->t, cpu->kind)))
      hr_cpuset_add(set, cpu->os);
  }
}

static hr_status choose_list(choice *c, const char *text, hr_error *err) {
  char allowed[200], outside[100];
  switch (hr_cpuset_parse(&c->chosen, text)) {
  case HR_CPUSET_FINE:
    break;
  case HR_CPUSET_EMPTY:
    return hr_fail(err, HR_ERROR_USAGE,
                   "cores: empty, expected all, performance or CPU numbers such as 0-3,8");
  case HR_CPUSET_SYNTAX:
    return hr_fail(err, HR_ERROR_USAGE,
                   "cores: \"%.100s\" is not known, expected all, performance or CPU numbers "
                   "such as 0-3,8",
                   text);
  case HR_CPUSET_REVERSED:
    return hr_fail(err, HR_ERROR_USAGE,
                   "cores: \"%.100s\" holds a range that ends before it starts, expected "
                   "CPU numbers such as 0-3,8",
                   text);
  case HR_CPUSET_TOO_HIGH:
    return hr_fail(err, HR_ERROR_USAGE,
                   "cores: \"%.100s\" holds a CPU number that is too high, expected 0 to %u", text,
                   HR_CPUS_MAX - 1);
  }
  hr_cpuset missing = c->chosen;
  for (size_t i = 0; i < HR_CPUS_MAX / 64; i++) missing.bits[i] &= ~c->allowed.bits[i];
  if (hr_cpuset_count(&missing) != 0) {
    hr_cpuset_format(&missing, outside, sizeof outside);
    hr_cpuset_format(&c->allowed, allowed, sizeof allowed);
    return hr_fail(err, HR_ERROR_USAGE,
                   "cores: CPU %s can't be used by this process, expected some of %s", outside,
                   allowed);
  }
  c->batch = c->reach = c->chosen;
  return HR_OK;
}

static hr_status choose(choice *c, hr_placement *p, hr_error *err) {
  const char *cores = c->wishes->cores;
  find_allowed(c);
  c->reach = c->allowed;
  if (!cores || strcmp(cores, "performance") == 0) {
    choose_by_kind(c, &c->chosen, is_performance);
    choose_by_kind(c, &c->batch, is_worth_in_batch);
    if (cores) c->batch = c->reach = c->chosen;
    snprintf(p->kinds, sizeof p->kinds, "performance cores");
  } else if (strcmp(cores, "all") == 0) {
    c->chosen = c->batch = c->allowed;
    snprintf(p->kinds, sizeof p->kinds, "cores of every kind");
  } else {
    snprintf(p->kinds, sizeof p->kinds, "cores of the list");
    return choose_list(c, cores, err);
  }
  return HR_OK;
}

/* --- How many ------------------------------------------------------------- */

__attribute__((format(printf, 3, 4))) static void add_cap(hr_placement *p, unsigned threads,
                                                          const char *format, ...) {
  if (p->caps == HR_CAPS_MAX) return;
  hr_cap *cap = &p->cap[p->caps++];
  va_list args;
  va_start(args, format);
  (void)vsnprintf(cap->what, sizeof cap->what, format, args);
  va_end(args);
  cap->threads = threads;
}

/* Cores come first: of equal numbers, the first is named as the one that won. */
static void find_caps(const choice *c, hr_placement *p) {
  const hr_topology *t = c->t;
  char list[80];
  add_cap(p, t->cores, t->guessed ? "CPUs of the machine (no topology is known)"
                                  : "physical cores of the machine");
  if (c->limits->has_affinity) {
    hr_cpuset set = c->limits->affinity;
    hr_cpuset_format(&set, list, sizeof list);
    add_cap(p, count_cores(t, &set), "cores in the affinity mask (CPUs %s)", list);
  }
  if (c->limits->has_cpuset) {
    hr_cpuset_format(&c->limits->cpuset, list, sizeof list);
    add_cap(p, count_cores(t, &c->limits->cpuset), "cores in the group's CPU set (CPUs %s, %s)",
            list, c->limits->cpuset_where);
  }
  unsigned chosen = count_cores(t, &c->chosen);
  if (t->kinds > 1 || c->wishes->cores) add_cap(p, chosen, "%s", p->kinds);
  for (unsigned i = 0; i < c->limits->quotas; i++) {
    const hr_quota *q = &c->limits->quota[i];
    add_cap(p, q->cpus, "CPU quota, %.2f CPUs (%s)", (double)q->quota_us / (double)q->period_us,
            q->where);
  }
  if (c->wishes->most) add_cap(p, c->wishes->most, "size of the model");
}

static unsigned tightest(hr_placement *p) {
  unsigned best = 0;
  for (unsigned i = 1; i < p->caps; i++)
    if (p->cap[i].threads && (!p->cap[best].threads || p->cap[i].threads < p->cap[best].threads))
      best = i;
  return best;
}

static unsigned quota_of(const hr_limits *limits) {
  unsigned least = UINT32_MAX;
  for (unsigned i = 0; i < limits->quotas; i++)
    if (limits->quota[i].cpus < least) least = limits->quota[i].cpus;
  return least;
}

static unsigned least(unsigned a, unsigned b) {
  return a < b ? a : b;
}

static unsigned automatic_threads(const choice *c) {
  unsigned cores = least(count_cores(c->t, &c->chosen), least(quota_of(c->limits), HR_THREADS_MAX));
  return c->wishes->most ? least(cores, c->wishes->most) : cores;
}

static hr_status count_threads(const choice *c, hr_placement *p, hr_error *err) {
  const hr_wishes *w = c->wishes;
  unsigned asked = w->threads > w->threads_batch ? w->threads : w->threads_batch;
  if (asked > HR_THREADS_MAX)
    return hr_fail(err, HR_ERROR_USAGE, "threads: %u is too many, expected 1 to %u, or 0 for auto",
                   asked, HR_THREADS_MAX);
  unsigned quota = least(quota_of(c->limits), HR_THREADS_MAX);
  p->threads = w->threads ? w->threads : automatic_threads(c);
  p->threads_batch = w->threads_batch ? w->threads_batch
                     : w->threads     ? w->threads
                                      : least(count_cores(c->t, &c->batch), quota);
  p->seats = p->threads > p->threads_batch ? p->threads : p->threads_batch;
  p->reach = hr_cpuset_count(&c->reach);
  p->active = least(p->seats, least(p->reach, quota));
  return HR_OK;
}

static void explain(const choice *c, hr_placement *p) {
  unsigned best = tightest(p);
  if (!c->wishes->threads) p->cap[best].won = true;
  if (c->wishes->threads)
    snprintf(p->why, sizeof p->why, "%u %s because %s (automatic: %u)", p->threads,
             p->threads == 1 ? "thread" : "threads",
             c->wishes->by_trials ? "trials found that best" : "that was asked for",
             automatic_threads(c));
  else
    snprintf(p->why, sizeof p->why, "%u %s because of the %s", p->threads,
             p->threads == 1 ? "thread" : "threads", p->cap[best].what);
}

/* --- Who sits where ------------------------------------------------------- */

/* The order in which CPUs are given out: first one CPU of each chosen core, then
 * of each further core for passes of many rows, of the rest; then the second
 * hyperthreads in the same order, and so on. Faster kinds come first. */
typedef struct {
  unsigned *cpu;
  unsigned count;
} seat_order;

static void append(const choice *c, seat_order *order, const hr_cpuset *set, const hr_cpuset *but,
                   unsigned rank) {
  for (unsigned k = 0; k < c->t->kinds; k++) {
    unsigned core = UINT32_MAX, seen = 0;
    for (unsigned i = 0; i < c->t->cpus; i++) {
      const hr_cpu *cpu = &c->t->cpu[i];
      if (cpu->kind != k || !hr_cpuset_has(set, cpu->os)) continue;
      seen = cpu->core == core ? seen + 1 : 0;
      core = cpu->core;
      if (seen == rank && !(but && hr_cpuset_has(but, cpu->os))) order->cpu[order->count++] = i;
    }
  }
}

static void find_order(const choice *c, seat_order *order) {
  for (unsigned rank = 0; order->count < hr_cpuset_count(&c->reach); rank++) {
    append(c, order, &c->chosen, NULL, rank);
    append(c, order, &c->batch, &c->chosen, rank);
    append(c, order, &c->reach, &c->batch, rank);
  }
}

/* Threads on one core share its speed. Those that no pass takes have no load, and a weight as if
 * they were alone. */
static void find_weights(const hr_topology *t, hr_placement *p, unsigned *load, unsigned threads,
                         bool batch) {
  unsigned active = least(threads, p->active);
  memset(load, 0, t->cpus * sizeof *load);
  for (unsigned i = 0; i < active; i++) load[t->cpu[p->seat[i].cpu].core]++;
  for (unsigned i = 0; i < threads; i++) {
    const hr_cpu *cpu = &t->cpu[p->seat[i].cpu];
    unsigned sharing = load[cpu->core] ? load[cpu->core] : 1;
    unsigned weight = t->kind[cpu->kind].weight / sharing;
    *(batch ? &p->seat[i].weight_batch : &p->seat[i].weight) = weight ? weight : 1;
  }
}

static hr_status seat_threads(const choice *c, hr_placement *p, hr_error *err) {
  size_t each = sizeof(unsigned) * c->t->cpus;
  seat_order order = {.cpu = hr_calloc(c->t->cpus, sizeof *order.cpu)};
  unsigned *load = hr_calloc(c->t->cpus, sizeof *load);
  p->seat = hr_calloc(p->seats, sizeof *p->seat);
  hr_status status = HR_OK;
  if (!order.cpu || !load || !p->seat) {
    status = hr_fail_memory(err, "placement of threads", 2 * each + p->seats * sizeof *p->seat);
  } else {
    find_order(c, &order);
    for (unsigned i = 0; i < p->seats; i++) {
      p->seat[i].cpu = order.cpu[i % order.count];
      p->seat[i].os = c->t->cpu[p->seat[i].cpu].os;
    }
    find_weights(c->t, p, load, p->threads, false);
    find_weights(c->t, p, load, p->threads_batch, true);
  }
  hr_free(order.cpu);
  hr_free(load);
  return status;
}

/* A quota gives time, not CPUs: many groups with quotas share a machine, and if
 * each pinned its threads to the first CPUs they would all sit on those. A single
 * thread is the caller, whose CPU is its own affair. CPUs that were named are kept
 * to in any case. Threads that no pass takes change nothing. */
static void decide_pinning(const choice *c, hr_placement *p) {
  unsigned cores = count_cores(c->t, &c->reach);
  bool by_quota = !p->named && quota_of(c->limits) < cores;
  bool by_caller = !p->named && p->active == 1;
  p->pin = !c->wishes->no_pin && c->t->native && !by_quota && !by_caller;
  p->keep = p->named && !p->pin;
  const char *text = c->wishes->no_pin ? "not pinned, as asked"
                     : !c->t->native   ? "not pinned: the machine's layout is not known"
                     : by_quota  ? "not pinned: a CPU quota leaves the choice of CPUs to the system"
                     : by_caller ? "not pinned: a single thread is, where cores are named"
                                 : "pinned, each thread to one CPU";
  char list[80] = "";
  if (p->keep) hr_cpuset_format(&p->cpus, list, sizeof list);
  bool alone = p->pin && !p->named && (p->threads == 1 || p->threads_batch == 1);
  snprintf(p->pinned, sizeof p->pinned, "%s%s%s%s", text, p->keep ? "; all kept to CPUs " : "",
           list, alone ? "; a thread alone is not" : "");
}

hr_status hr_placement_make(hr_placement *placement, const hr_topology *topology,
                            const hr_limits *limits, const hr_wishes *wishes, hr_error *err) {
  choice c = {.t = topology, .limits = limits, .wishes = wishes};
  *placement = (hr_placement){0};
  hr_status status = choose(&c, placement, err);
  if (status == HR_OK) status = count_threads(&c, placement, err);
  if (status == HR_OK) status = seat_threads(&c, placement, err);
  if (status != HR_OK) {
    hr_placement_free(placement);
    return status;
  }
  placement->allowed = hr_cpuset_count(&c.allowed);
  placement->cpus = c.reach;
  placement->named = wishes->cores != NULL;
  find_caps(&c, placement);
  explain(&c, placement);
  decide_pinning(&c, placement);
  return HR_OK;
}

void hr_placement_free(hr_placement *placement) {
  hr_free(placement->seat);
  *placement = (hr_placement){0};
}

void hr_placement_try(hr_placement *placement, const hr_topology *topology,
                      const hr_cpuset *affinity) {
  hr_placement *p = placement;
  hr_cpuset one = {0};
  if (!p->pin && !p->keep) return;
  hr_cpuset_add(&one, p->seat[0].os);
  if (hr_topology_bind(topology, p->pin ? &one : &p->cpus)) {
    (void)hr_topology_bind(topology, affinity);
    return;
  }
  snprintf(p->pinned, sizeof p->pinned,
           "not %s: the system refuses it, threads run where it puts them",
           p->pin ? "pinned" : "kept to the chosen CPUs");
  p->pin = p->keep = false;
}

/* --- In words ------------------------------------------------------------- */

typedef struct {
  hr_line_fn *line;
  void *data;
  char text[512];
  size_t used;
} writer;

/* Adds to the line being written; what is too long is cut. */
__attribute__((format(printf, 2, 3))) static void put(writer *w, const char *format, ...) {
  va_list args;
  va_start(args, format);
  int n = vsnprintf(w->text + w->used, sizeof w->text - w->used, format, args);
  va_end(args);
  if (n > 0) w->used += (size_t)n;
  if (w->used >= sizeof w->text) w->used = sizeof w->text - 1;
}

static void end_line(writer *w) {
  w->line(w->data, w->text);
  w->used = 0;
  w->text[0] = '\0';
}

static void put_count(writer *w, unsigned count, const char *one, const char *many) {
  put(w, "%u %s", count, count == 1 ? one : many);
}

static void put_bytes(writer *w, const char *name, hr_cache_size cache) {
  if (!cache.bytes) return;
  if (cache.bytes % (1024 * 1024) == 0)
    put(w, ", %s %u MiB", name, (unsigned)(cache.bytes >> 20));
  else
    put(w, ", %s %u KiB", name, (unsigned)(cache.bytes >> 10));
  if (cache.cores > 1) put(w, " for %u cores", cache.cores);
}

static const char *kind_name(const hr_topology *t, unsigned k) {
  if (t->kinds == 1) return "cores";
  return is_performance(t, k) ? "performance" : "efficiency";
}

/* [0 1] is a core with its two hyperthreads, (2) a CPU that may not be used. */
static void draw_cores(writer *w, const hr_topology *t, const hr_cpuset *allowed, unsigned k) {
  enum { WIDTH = 72 };
  for (unsigned i = 0; i < t->cpus; i++) {
    if (t->cpu[i].kind != k) continue;
    bool first = t->cpu[i].thread == 0, last = i + 1 == t->cpus || t->cpu[i + 1].thread == 0;
    if (w->used == 0) put(w, "   ");
    put(w, first ? " [" : " ");
    put(w, hr_cpuset_has(allowed, t->cpu[i].os) ? "%u" : "(%u)", t->cpu[i].os);
    if (!last) continue;
    put(w, "]");
    if (w->used >= WIDTH) end_line(w);
  }
  if (w->used) end_line(w);
}

static void draw_kind(writer *w, const hr_topology *t, const hr_cpuset *allowed, unsigned k) {
  const hr_kind *kind = &t->kind[k];
  const hr_cpu *cpu = t->cpu;
  while (cpu->kind != k) cpu++;
  put(w, "  %s: ", kind_name(t, k));
  put_count(w, kind->cores, "core", "cores");
  if (kind->type[0]) put(w, ", %s", kind->type);
  if (kind->mhz) put(w, ", %u MHz", kind->mhz);
  if (kind->capacity) put(w, ", capacity %u", kind->capacity);
  if (t->kinds > 1) put(w, ", speed %.2f", (double)kind->weight / HR_WEIGHT_ONE);
  put_bytes(w, "L1d", cpu->l1d);
  put_bytes(w, "L2", cpu->l2);
  put_bytes(w, "L3", cpu->l3);
  end_line(w);
  draw_cores(w, t, allowed, k);
}

static void draw_nodes(writer *w, const hr_topology *t) {
  for (unsigned n = 0; n < t->nodes && t->nodes > 1; n++) {
    hr_cpuset set = {0};
    char list[200];
    for (unsigned i = 0; i < t->cpus; i++)
      if (t->cpu[i].node == n) hr_cpuset_add(&set, t->cpu[i].os);
    hr_cpuset_format(&set, list, sizeof list);
    put(w, "  memory node %u: CPUs %s", n, list);
    end_line(w);
  }
}

static void draw_machine(writer *w, const hr_topology *t, const hr_cpuset *allowed) {
  put(w, "machine: ");
  put_count(w, t->packages, "package, ", "packages, ");
  put_count(w, t->nodes, "memory node, ", "memory nodes, ");
  put_count(w, t->cores, "core, ", "cores, ");
  put_count(w, t->cpus, "CPU", "CPUs");
  if (t->guessed) put(w, " (no topology is known: each CPU is taken for a core)");
  end_line(w);
  for (unsigned k = 0; k < t->kinds; k++) draw_kind(w, t, allowed, k);
  draw_nodes(w, t);
}

static void draw_limits(writer *w, const hr_placement *p) {
  put(w, "limits:");
  end_line(w);
  for (unsigned i = 0; i < p->caps; i++) {
    put(w, "  %4u  %s%s", p->cap[i].threads, p->cap[i].what, p->cap[i].won ? "  <- decides" : "");
    end_line(w);
  }
}

static void draw_map(writer *w, const hr_placement *p) {
  enum { ON_LINE = 8 };
  put(w, "%s", p->pinned);
  if (p->pin) put(w, " (thread:CPU)");
  end_line(w);
  for (unsigned i = 0; p->pin && i < p->active; i++) {
    put(w, "  %u:%u", i, p->seat[i].os);
    if (i % ON_LINE == ON_LINE - 1 || i + 1 == p->active) end_line(w);
  }
}

void hr_placement_describe(const hr_placement *placement, const hr_topology *topology,
                           const hr_limits *limits, hr_line_fn *line, void *data) {
  static const hr_wishes none = {0};
  writer w = {.line = line, .data = data};
  choice c = {.t = topology, .limits = limits, .wishes = &none};
  find_allowed(&c);
  draw_machine(&w, topology, &c.allowed);
  draw_limits(&w, placement);
  put(&w, "generating: %s", placement->why);
  end_line(&w);
  put(&w, "prompts: ");
  put_count(&w, placement->threads_batch, "thread", "threads");
  end_line(&w);
  if (placement->active < placement->seats) {
    put(&w, "at work: no more than %u of them, %s", placement->active,
        placement->active < placement->reach ? "as many as the CPU quota is worth"
                                             : "as many as there are CPUs");
    end_line(&w);
  }
  draw_map(&w, placement);
}
