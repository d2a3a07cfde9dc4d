/* SPDX-License-Identifier: MIT
 *
 * The team is one OpenMP parallel region that lasts as long as the team. A
 * thread of our own, the leader, opens it: an OpenMP runtime keeps one pool of
 * threads for each thread that opens regions, so regions opened by the callers
 * would start new threads for each of them. Between passes the threads wait in
 * our code, not in the runtime's, whose spinning can't be bounded from inside a
 * library.
 *
 * The caller takes the place of one of the threads in a pass where that serves best
 * (see part_of_caller); the thread itself sleeps on. */
#include "sched/team.h"

#include <omp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "sched/fpenv.h"
#include "sched/placement.h"
#include "sched/wait.h"

/* How long a thread looks for the others at a barrier before it sleeps: a few
 * times what waking a sleeper costs. For the next pass it looks longer, since
 * the choice of a token lies between two; next to a pause between two requests
 * both are nothing. */
#define SPIN_NS UINT64_C(50000)
#define SPIN_FOR_PASS_NS UINT64_C(100000)
#define LINE 64
#define FAN_IN 8u /* threads that count on one cache line in a barrier */

/* Each on cache lines of its own, two apart: CPUs fetch lines in pairs. */
typedef struct {
  _Alignas(LINE) hr_word word;
  char pad[2 * LINE - sizeof(hr_word)];
} padded_word;

typedef struct {
  _Alignas(LINE) _Atomic uint32_t count;
  char pad[2 * LINE - sizeof(uint32_t)];
} padded_count;

_Static_assert(sizeof(padded_word) == 2 * LINE && sizeof(padded_count) == 2 * LINE, "padding");

struct hr_team {
  /* Written by the caller before a pass, read by all in it. */
  hr_team_fn *fn; /* NULL ends the team */
  void *arg;
  unsigned threads;
  uint64_t spin_ns;
  int own; /* the thread whose part the caller does, who is not pinned; -1: none */
  _Atomic int shared_cpu; /* CPU that the caller shares with a pinned thread; -1: none */

  unsigned size; /* threads of the region */
  unsigned cpus; /* CPUs' worth of time that the threads share */
  bool pinned;
  bool confined; /* the wishes name CPUs, and the caller may be on others */
  bool has_leader;
  unsigned forks; /* count of forks when the team was made */
  bool *ours;     /* true, and false in a child */
  pthread_t leader;
  hr_placement placement;
  hr_topology *topology;  /* while threads are bound */
  uint32_t *shares[2];    /* for passes of one row and of many; NULL: all alike */
  hr_cpuset inherited;    /* affinity mask of the thread that made the team */
  hr_cpuset seats;        /* the CPUs that threads are pinned to */
  _Atomic unsigned refused; /* threads that could not be pinned */
  _Atomic size_t stack;     /* of the thread that has the least, where that is too little */
  char warning[400];
  padded_word *go;       /* one a thread: a pass has begun */
  padded_count *arrived; /* one for FAN_IN threads, counting in a barrier */
  _Atomic int *on;       /* one a thread: the CPU that it was last seen on, if not pinned */
  size_t go_bytes, arrived_bytes;

  padded_word done;     /* a pass has ended */
  padded_word epoch;    /* a barrier was completed */
  padded_count pending; /* threads of the pass still at work */
  padded_count root;    /* groups of threads that arrived at a barrier */
  atomic_flag busy;
};

/* --- Forks: the child has one thread, and none of the team's --------------
 * A page that the kernel wipes in a child tells of every way to make one; emulators do
 * not always wipe it, so that forks which run handlers are counted as well. */

static _Atomic unsigned fork_count;
static pthread_once_t fork_once = PTHREAD_ONCE_INIT;

static void count_fork(void) {
  atomic_fetch_add_explicit(&fork_count, 1, memory_order_relaxed);
}

static void watch_forks(void) {
  (void)pthread_atfork(NULL, NULL, count_fork);
}

static bool forked(const hr_team *team) {
  return !*team->ours ||
         atomic_load_explicit(&fork_count, memory_order_relaxed) != team->forks;
}

/* --- The barrier ---------------------------------------------------------- */

/* Counts one arrival of `of`; true for the last, which leaves the count at zero. */
static bool last_to_arrive(padded_count *c, unsigned of) {
  if (atomic_fetch_add_explicit(&c->count, 1, memory_order_acq_rel) + 1 != of) return false;
  atomic_store_explicit(&c->count, 0, memory_order_relaxed);
  return true;
}

static bool arrive(hr_team *team, unsigned thread) {
  unsigned threads = team->threads;
  if (threads <= FAN_IN) return last_to_arrive(&team->root, threads);
  unsigned group = thread / FAN_IN, left = threads - group * FAN_IN;
  return last_to_arrive(&team->arrived[group], left < FAN_IN ? left : FAN_IN) &&
         last_to_arrive(&team->root, (threads + FAN_IN - 1) / FAN_IN);
}

/* The thread of the pass that is pinned to a CPU, other than `but`; -1: none. */
static int thread_on(const hr_team *team, int cpu, unsigned threads, int but) {
  if (cpu < 0 || !hr_cpuset_has(&team->seats, (unsigned)cpu)) return -1;
  for (unsigned i = 0; i < threads; i++)
    if ((int)team->placement.seat[i].os == cpu && (int)i != but) return (int)i;
  return -1;
}

/* The CPU that the caller is on if a thread of the pass is pinned to it whose part it
 * does not do itself, else -1. */
static int find_shared_cpu(const hr_team *team) {
  int cpu = team->pinned ? sched_getcpu() : -1;
  return thread_on(team, cpu, team->threads, team->own) < 0 ? -1 : cpu;
}

/* Whether another thread of the pass was last seen on the CPU that the calling one is on, by
 * what threads that aren't pinned tell each other here. */
static bool meets_another(hr_team *team, unsigned thread) {
  int cpu = sched_getcpu();
  if (cpu < 0) return false;
  if (cpu != atomic_load_explicit(&team->on[thread], memory_order_relaxed))
    atomic_store_explicit(&team->on[thread], cpu, memory_order_relaxed);
  for (unsigned i = 0; i < team->threads; i++)
    if (i != thread && atomic_load_explicit(&team->on[i], memory_order_relaxed) == cpu) return true;
  return false;
}

/* Two threads on a CPU must not spin there, each would only delay the other. The
 * system may move the caller to such a CPU at any time, so it looks each time. */
static uint64_t spin_time(hr_team *team, unsigned thread, uint64_t spin_ns) {
  if (team->spin_ns == 0) return 0;
  if (!team->pinned) return meets_another(team, thread) ? 0 : spin_ns;
  if ((int)thread == team->own) {
    int cpu = find_shared_cpu(team);
    if (cpu != atomic_load_explicit(&team->shared_cpu, memory_order_relaxed))
      atomic_store_explicit(&team->shared_cpu, cpu, memory_order_relaxed);
    return cpu < 0 ? spin_ns : 0;
  }
  int cpu = atomic_load_explicit(&team->shared_cpu, memory_order_relaxed);
  return cpu == (int)team->placement.seat[thread].os ? 0 : spin_ns;
}

void hr_team_barrier(hr_team *team, unsigned thread) {
  hr_team_barrier_fetching(team, thread, NULL, 0);
}

/* As long as the others take: few lines between two looks, so that nobody is kept waiting. */
static void fetch_meanwhile(hr_team *team, uint32_t seen, const char *next, size_t bytes) {
  enum { LOOK = 4 * LINE };
  for (size_t at = 0; at < bytes; at += LINE) {
    if (at % LOOK == 0 && hr_word_read(&team->epoch.word) != seen) return;
    __builtin_prefetch(next + at, 0, 2);
  }
}

void hr_team_barrier_fetching(hr_team *team, unsigned thread, const void *next, size_t bytes) {
  if (team->threads == 1) return;
  uint32_t seen = hr_word_read(&team->epoch.word);
  if (arrive(team, thread)) {
    hr_word_advance(&team->epoch.word);
    return;
  }
  uint64_t spin_ns = spin_time(team, thread, team->spin_ns);
  if (spin_ns) fetch_meanwhile(team, seen, next, bytes);
  hr_word_wait(&team->epoch.word, seen, spin_ns);
}

uint32_t hr_team_barriers(hr_team *team) {
  return hr_word_read(&team->epoch.word) / HR_WORD_STEP;
}

/* --- The threads ---------------------------------------------------------- */

/* True for the last one. */
static bool finish(hr_team *team) {
  return atomic_fetch_sub_explicit(&team->pending.count, 1, memory_order_acq_rel) == 1;
}

static bool binds(const hr_team *team) {
  return team->placement.pin || team->placement.keep;
}

static void bind(hr_team *team, unsigned thread) {
  hr_cpuset one = {0};
  if (!binds(team)) return;
  hr_cpuset_add(&one, team->placement.seat[thread].os);
  if (!hr_topology_bind(team->topology, team->placement.pin ? &one : &team->placement.cpus))
    atomic_fetch_add(&team->refused, 1);
}

/* A runtime may keep its threads and use them again, for the host too. */
static void unbind(hr_team *team) {
  if (binds(team)) (void)hr_topology_bind(team->topology, &team->inherited);
}

/* The bytes below this function's own; SIZE_MAX where the system does not say. */
static size_t stack_left(void) {
  pthread_attr_t attr;
  void *lowest = NULL;
  size_t bytes = 0;
  if (pthread_getattr_np(pthread_self(), &attr) != 0) return SIZE_MAX;
  bool known = pthread_attr_getstack(&attr, &lowest, &bytes) == 0;
  pthread_attr_destroy(&attr);
  uintptr_t here = (uintptr_t)__builtin_frame_address(0);
  return known && here > (uintptr_t)lowest ? here - (uintptr_t)lowest : SIZE_MAX;
}

static void note_stack(hr_team *team) {
  size_t left = stack_left(), least = atomic_load(&team->stack);
  if (left >= HR_TEAM_STACK) return;
  while ((least == 0 || left < least) &&
         !atomic_compare_exchange_weak(&team->stack, &least, left))
    continue;
}

/* A runtime may give fewer threads than asked (OMP_THREAD_LIMIT); the last one
 * that is ready notes how many they are. */
static void report_ready(hr_team *team, unsigned thread) {
  bind(team, thread);
  note_stack(team);
  unsigned size = (unsigned)omp_get_num_threads();
  if (!last_to_arrive(&team->root, size)) return;
  team->size = size;
  hr_word_advance(&team->done.word);
}

static void thread_main(hr_team *team, unsigned thread) {
  hr_word *go = &team->go[thread].word;
  uint32_t seen = hr_word_read(go);
  uint64_t spin_ns = 0;
  report_ready(team, thread);
  for (;;) {
    hr_word_wait(go, seen, spin_ns);
    seen = hr_word_read(go);
    if (!team->fn) break;
    spin_ns = spin_time(team, thread, SPIN_FOR_PASS_NS);
    (void)hr_fpenv_enter();
    team->fn(team->arg, thread, team->threads);
    if (finish(team)) hr_word_advance(&team->done.word);
  }
  unbind(team);
}

static void *leader_main(void *data) {
  hr_team *team = data;
  omp_set_dynamic(0);
#pragma omp parallel num_threads(team->size) default(none) shared(team)
  thread_main(team, (unsigned)omp_get_thread_num());
  return NULL;
}

/* All but the one whose part the caller does. */
static void wake(hr_team *team) {
  for (unsigned t = 0; t < team->threads; t++)
    if ((int)t != team->own) hr_word_advance(&team->go[t].word);
}

/* --- Passes --------------------------------------------------------------- */

/* The thread whose part of a pass the caller does; -1: none. To leave all parts to the
 * pinned threads keeps each on its CPU, but the caller is then one thread more, and
 * where no CPU is left for it that costs two context switches a pass. So it does a part
 * when threads aren't pinned, when there is only one, or when they fill every CPU: that
 * of the thread whose CPU it is on - but none where CPUs were named and it may be on
 * others. Its own mask is never touched. */
static int part_of_caller(const hr_team *team, unsigned threads) {
  if (team->confined) return -1;
  if (!team->pinned || (threads == 1 && !team->placement.named)) return 0;
  if (threads < team->placement.reach) return -1;
  int thread = thread_on(team, sched_getcpu(), threads, -1);
  return thread < 0 ? 0 : thread;
}

static void run_here(hr_team *team) {
  unsigned own = (unsigned)team->own;
  hr_fpenv old = hr_fpenv_enter();
  uint32_t seen = hr_word_read(&team->done.word);
  wake(team);
  team->fn(team->arg, own, team->threads);
  if (!finish(team)) hr_word_wait(&team->done.word, seen, spin_time(team, own, team->spin_ns));
  hr_fpenv_leave(old);
}

/* A caller that spins takes of the time that a quota gives, which the threads may need. */
static void run_led(hr_team *team) {
  uint32_t seen = hr_word_read(&team->done.word);
  bool spared = team->cpus == team->placement.reach || team->threads < team->cpus;
  uint64_t spin_ns = team->shared_cpu < 0 && spared ? team->spin_ns : 0;
  wake(team);
  hr_word_wait(&team->done.word, seen, spin_ns);
}

hr_status hr_team_run(hr_team *team, unsigned threads, hr_team_fn *fn, void *arg, hr_error *err) {
  if (forked(team))
    return hr_fail(err, HR_ERROR_USAGE,
                   "threads: the process was forked after they were started, expected a new "
                   "session in the child");
  if (threads < 1 || threads > team->size)
    return hr_fail(err, HR_ERROR_USAGE, "threads: a pass of %u, expected 1 to %u", threads,
                   team->size);
  if (atomic_flag_test_and_set_explicit(&team->busy, memory_order_acquire))
    return hr_fail(err, HR_ERROR_USAGE,
                   "threads: a session is in use by two threads at once, expected one at a time");
  team->fn = fn;
  team->arg = arg;
  team->threads = threads;
  team->spin_ns = threads > team->cpus ? 0 : SPIN_NS;
  team->own = part_of_caller(team, threads);
  team->shared_cpu = team->own < 0 ? find_shared_cpu(team) : -1;
  atomic_store_explicit(&team->pending.count, threads, memory_order_relaxed);
  if (team->own >= 0)
    run_here(team);
  else
    run_led(team);
  atomic_flag_clear_explicit(&team->busy, memory_order_release);
  return HR_OK;
}

/* --- Starting and ending -------------------------------------------------- */

static void *probe_main(void *word) {
  hr_word_wait(word, 0, 0);
  return NULL;
}

/* OpenMP runtimes end the process when a thread can't be started (a container's
 * limit of processes, memory): so that many are started here first, for a moment. */
static hr_status probe_threads(unsigned count, hr_error *err) {
  hr_word word = {0};
  pthread_t *thread = hr_calloc(count, sizeof *thread);
  if (!thread) return hr_fail_memory(err, "threads", count * sizeof *thread);
  unsigned started = 0;
  int failed = 0;
  while (started < count && !failed) {
    failed = pthread_create(&thread[started], NULL, probe_main, &word);
    if (!failed) started++;
  }
  hr_word_advance(&word);
  for (unsigned i = 0; i < started; i++) pthread_join(thread[i], NULL);
  hr_free(thread);
  if (!failed) return HR_OK;
  return hr_fail(err, HR_ERROR_MEMORY,
                 "threads: the system lets %u be started, %u were asked for: %s", started, count,
                 strerror(failed));
}

/* Signals are for the host's own threads, except those that a thread brings upon
 * itself. */
static void block_signals(sigset_t *old) {
  static const int own[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS, SIGPROF};
  sigset_t set;
  sigfillset(&set);
  for (size_t i = 0; i < sizeof own / sizeof *own; i++) sigdelset(&set, own[i]);
  pthread_sigmask(SIG_SETMASK, &set, old);
}

/* LLVM's OpenMP runtime sets affinity masks, and ends the program where the system refuses that;
 * told before it begins, it lets be. Other runtimes have no such function. */
extern void kmp_set_defaults(const char *settings) __attribute__((weak));

static hr_status spare_runtime(const hr_team *team, hr_error *err) {
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  static bool told, begun;
  if (!kmp_set_defaults) return HR_OK;
  bool refused = !hr_topology_bind(team->topology, &team->inherited);
  pthread_mutex_lock(&lock);
  if (refused && !told && !begun) {
    kmp_set_defaults("KMP_AFFINITY=disabled");
    told = true;
  }
  begun = true;
  bool late = refused && !told;
  pthread_mutex_unlock(&lock);
  if (!late) return HR_OK;
  return hr_fail(err, HR_ERROR_USAGE,
                 "threads: the OpenMP runtime began before the system refused to set affinity "
                 "masks and can start none since, expected the first session after that");
}

static hr_status start_leader(hr_team *team, hr_error *err) {
  sigset_t old;
  uint32_t seen = hr_word_read(&team->done.word);
  block_signals(&old);
  hr_status status = probe_threads(team->size, err);
  if (status == HR_OK) status = spare_runtime(team, err);
  int failed = status == HR_OK ? pthread_create(&team->leader, NULL, leader_main, team) : 0;
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  if (status != HR_OK) return status;
  if (failed)
    return hr_fail(err, HR_ERROR_MEMORY, "threads: can't start any: %s", strerror(failed));
  team->has_leader = true;
  hr_word_wait(&team->done.word, seen, 0);
  return HR_OK;
}

/* Adds to the team's sentence; what is too long is cut. */
__attribute__((format(printf, 2, 3))) static void warn(hr_team *team, const char *format, ...) {
  size_t used = strlen(team->warning);
  va_list args;
  if (used) used += (size_t)snprintf(team->warning + used, sizeof team->warning - used, "; ");
  if (used >= sizeof team->warning) return;
  va_start(args, format);
  (void)vsnprintf(team->warning + used, sizeof team->warning - used, format, args);
  va_end(args);
}

/* What came of it. */
static void settle(hr_team *team) {
  hr_placement *p = &team->placement;
  unsigned refused = atomic_load(&team->refused);
  team->pinned = p->pin && refused == 0;
  for (unsigned i = 0; i < team->size; i++) hr_cpuset_add(&team->seats, p->seat[i].os);
  if (refused)
    warn(team, "the system refused to %s %u of %u threads; they run where it puts them",
         p->pin ? "pin" : "keep to the chosen CPUs", refused, team->size);
  if (p->active < p->seats)
    warn(team, "%u threads are more than %s for them: no more than %u work at a time", p->seats,
         p->active < p->reach ? "the CPU quota has CPUs" : "there are CPUs", p->active);
  if (team->size == p->seats) return;
  warn(team, "the OpenMP runtime gave %u threads, %u were wanted", team->size, p->seats);
  if (p->threads > team->size) p->threads = team->size;
  if (p->threads_batch > team->size) p->threads_batch = team->size;
}

static hr_status start(hr_team *team, hr_error *err) {
  team->go_bytes = team->size * sizeof *team->go;
  team->arrived_bytes = (team->size + FAN_IN - 1) / FAN_IN * sizeof *team->arrived;
  team->go = hr_alloc_pages(team->go_bytes);
  team->arrived = hr_alloc_pages(team->arrived_bytes);
  team->on = hr_calloc(team->size, sizeof *team->on);
  if (!team->go || !team->arrived || !team->on)
    return hr_fail_memory(err, "threads", team->go_bytes + team->arrived_bytes);
  hr_status status = start_leader(team, err);
  if (status != HR_OK) return status;
  settle(team);
  size_t stack = atomic_load(&team->stack);
  if (stack == 0) return HR_OK;
  return hr_fail(err, HR_ERROR_USAGE,
                 "threads: their stacks have %zu KiB, expected at least %zu (OMP_STACKSIZE and "
                 "ulimit -s set them)",
                 stack >> 10, HR_TEAM_STACK >> 10);
}

static hr_status find_shares(hr_team *team, bool batch, hr_error *err) {
  const hr_placement *p = &team->placement;
  unsigned threads = batch ? p->threads_batch : p->threads;
  uint32_t *sum = hr_calloc(threads + 1, sizeof *sum);
  if (!sum) return hr_fail_memory(err, "threads", (threads + 1) * sizeof *sum);
  bool alike = true;
  for (unsigned i = 0; i < threads; i++) {
    unsigned weight = batch ? p->seat[i].weight_batch : p->seat[i].weight;
    sum[i + 1] = sum[i] + weight;
    if (weight != sum[1]) alike = false;
  }
  team->shares[batch] = alike ? NULL : sum;
  if (alike) hr_free(sum);
  return HR_OK;
}

/* Whether the thread that makes the team may be on CPUs that the wishes leave out. */
static bool is_confined(const hr_team *team) {
  if (!team->placement.named) return false;
  hr_cpuset both = team->inherited;
  hr_cpuset_keep(&both, &team->placement.cpus);
  return hr_cpuset_count(&both) < hr_cpuset_count(&team->inherited);
}

static hr_wishes wishes_of(const hr_team_options *options) {
  return (hr_wishes){.threads = options->threads,
                     .threads_batch = options->threads_batch,
                     .cores = options->cores,
                     .no_pin = options->no_pin,
                     .most = options->most};
}

/* Which wishes can be met is a matter of the CPUs alone, not of how they make up cores: to find
 * those out takes long. */
static hr_status check(const hr_limits *limits, const hr_team_options *options, hr_error *err) {
  const hr_wishes wishes = wishes_of(options);
  hr_placement placement;
  hr_topology *flat = hr_topology_flat(&limits->affinity, err);
  if (!flat) return HR_ERROR_MEMORY;
  hr_status status = hr_placement_make(&placement, flat, limits, &wishes, err);
  if (status == HR_OK) hr_placement_free(&placement);
  hr_topology_free(flat);
  return status;
}

hr_status hr_team_check(const hr_team_options *options, hr_error *err) {
  hr_limits *limits = hr_calloc(1, sizeof *limits);
  if (!limits) return hr_fail_memory(err, "threads", sizeof *limits);
  hr_limits_read(limits, "/");
  hr_limits_read_affinity(limits);
  if (!limits->has_affinity) hr_cpuset_add(&limits->affinity, 0);
  hr_status status = check(limits, options, err);
  hr_free(limits);
  return status;
}

static hr_status place(hr_team *team, const hr_team_options *options, hr_error *err) {
  const hr_wishes wishes = wishes_of(options);
  hr_limits *limits = hr_calloc(1, sizeof *limits);
  if (!limits) return hr_fail_memory(err, "threads", sizeof *limits);
  hr_limits_read(limits, "/");
  hr_limits_read_affinity(limits);
  team->inherited = limits->affinity;
  hr_status status = HR_ERROR_MEMORY;
  team->topology = hr_topology_load(NULL, err);
  if (team->topology)
    status = hr_placement_make(&team->placement, team->topology, limits, &wishes, err);
  if (status == HR_OK) {
    team->size = team->placement.seats;
    team->cpus = team->placement.reach;
    team->confined = is_confined(team);
    for (unsigned i = 0; i < limits->quotas; i++)
      if (limits->quota[i].cpus < team->cpus) team->cpus = limits->quota[i].cpus;
    status = find_shares(team, false, err);
  }
  if (status == HR_OK) status = find_shares(team, true, err);
  hr_free(limits);
  return status;
}

hr_team *hr_team_create(const hr_team_options *options, hr_error *err) {
  static const hr_team_options automatic = {0};
  hr_team *team = hr_alloc_pages(sizeof *team);
  bool *ours = team ? hr_alloc_forgotten_page() : NULL;
  if (!ours) {
    hr_free_pages(team, sizeof *team);
    (void)hr_fail_memory(err, "threads", sizeof *team);
    return NULL;
  }
  *ours = true;
  team->ours = ours;
  pthread_once(&fork_once, watch_forks);
  team->forks = atomic_load(&fork_count);
  hr_status status = place(team, options ? options : &automatic, err);
  bool led = team->size > 1 || team->placement.named;
  if (status == HR_OK && led) status = start(team, err);
  if (!team->has_leader || !binds(team)) {
    hr_topology_free(team->topology);
    team->topology = NULL;
  }
  if (status == HR_OK) return team;
  hr_team_free(team);
  return NULL;
}

void hr_team_free(hr_team *team) {
  if (!team) return;
  if (team->has_leader && !forked(team)) {
    team->fn = NULL;
    team->threads = team->size;
    team->own = -1;
    wake(team);
    pthread_join(team->leader, NULL);
  }
  hr_topology_free(team->topology);
  hr_placement_free(&team->placement);
  hr_free(team->shares[0]);
  hr_free(team->shares[1]);
  hr_free_pages(team->go, team->go_bytes);
  hr_free_pages(team->arrived, team->arrived_bytes);
  hr_free((void *)team->on);
  hr_free_forgotten_page(team->ours);
  hr_free_pages(team, sizeof *team);
}

/* --- Questions ------------------------------------------------------------ */

unsigned hr_team_threads(const hr_team *team) {
  return team->placement.threads;
}

unsigned hr_team_threads_batch(const hr_team *team) {
  return team->placement.threads_batch;
}

unsigned hr_team_active(const hr_team *team, bool many) {
  const hr_placement *p = &team->placement;
  unsigned threads = many ? p->threads_batch : p->threads;
  return threads < p->active ? threads : p->active;
}

const char *hr_team_warning(const hr_team *team) {
  return team->warning[0] ? team->warning : NULL;
}

const uint32_t *hr_team_shares(const hr_team *team, unsigned threads) {
  return team->shares[threads > team->placement.threads];
}

int hr_team_cpu(const hr_team *team, unsigned thread) {
  return team->pinned && thread < team->size ? (int)team->placement.seat[thread].os : -1;
}
