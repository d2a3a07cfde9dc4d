/* SPDX-License-Identifier: MIT
 * The limits are measured here too, beside each kernel: the int8 dot and fp32
 * fma rates of loops that touch registers only, and the rate of plain reading. */
#include "perf/kernel_bench.h"

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "kernels/select.h"
#include "perf/limits.h"
#include "sched/memory.h"

enum {
  ROUNDS = 12,
  BRIEF_ROUNDS = 5,
  DECODE_ROUNDS = 40,
  MOST_THREADS = 256,
  MOST_BLOCKS = 6 * MOST_THREADS,
  FETCHED = 18 << 10 /* bytes ahead, where plain reading fetches */
};

const char *const perf_kernel_groups[] = {"q8", "float", "attention", "decode", "row", NULL};

/* What a measurement has allocated, given back all at once. */
typedef struct pool {
  struct {
    void *at;
    size_t bytes;
  } block[MOST_BLOCKS];
  size_t blocks;
  bool failed;
} pool;

/* One call of perf_kernels. */
typedef struct run {
  const hr_kernels *t;
  const perf_peaks *peaks; /* all zero for a tier without */
  const char *group;
  size_t rounds; /* 0: as many as usual */
  perf_kernel_fn *each;
  void *data;
  pool pool;
  bool by_fma; /* what decode measured last was limited by fma */
  perf_kernel_end end;
} run;

static double now(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Multiply-adds a second, of at least so many, `work` of them a turn: as many as a kernel beside
 * it does, so that interruptions find either as often. */
static double peak_rate(void (*loop)(size_t), double work, double multiply_adds) {
  if (!loop) return 0;
  size_t turns = (size_t)(multiply_adds / work) + 1;
  double start = now(CLOCK_THREAD_CPUTIME_ID);
  loop(turns);
  return (double)turns * work / (now(CLOCK_THREAD_CPUTIME_ID) - start);
}

enum { SHORT = 30000000 }; /* multiply-adds: half a millisecond, more or less */

/* Memory in 2 MiB pages where the system gives them; NULL and failed without. */
static void *memory(pool *p, size_t bytes) {
  const size_t huge = (size_t)2 << 20;
  if (p->failed || p->blocks == MOST_BLOCKS) {
    p->failed = true;
    return NULL;
  }
  char *at = mmap(NULL, bytes + huge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) {
    p->failed = true;
    return NULL;
  }
  p->block[p->blocks].at = at;
  p->block[p->blocks++].bytes = bytes + huge;
  at = (char *)(((uintptr_t)at + huge - 1) / huge * huge);
  madvise(at, bytes, MADV_HUGEPAGE);
  return at;
}

static void give_back(run *r) {
  for (size_t i = 0; i < r->pool.blocks; i++) munmap(r->pool.block[i].at, r->pool.block[i].bytes);
  if (r->pool.failed) r->end = PERF_KERNEL_MEMORY;
  r->pool.blocks = 0;
  r->pool.failed = false;
}

static uint32_t random_bits(void) {
  static uint64_t state = 1;
  state = state * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(state >> 32);
}
static void fill_floats(float *x, size_t n) {
  for (size_t i = 0; x && i < n; i++) x[i] = (float)(int32_t)random_bits() * 0x1p-31f;
}
/* fp16 or bf16 or q8 alike: bytes that make ordinary numbers of each. */
static void fill_halves(void *at, size_t bytes) {
  uint16_t *h = at;
  for (size_t i = 0; h && i < bytes / 2; i++)
    h[i] = (uint16_t)((random_bits() & 0x83ffu) | 0x3000u);
}
static void *floats(pool *p, size_t n) {
  float *x = memory(p, n * sizeof *x);
  fill_floats(x, n);
  return x;
}
static void *panels_of(pool *p, hr_panel_type type, size_t bytes) {
  if (type == HR_PANEL_F32) return floats(p, bytes / 4);
  void *at = memory(p, bytes);
  fill_halves(at, bytes);
  return at;
}

/* --- Results -------------------------------------------------------------------- */

/* Rates of a kernel and of its limit, round by round. */
typedef struct result {
  double kernel[PERF_MOST_ROUNDS], limit[PERF_MOST_ROUNDS];
  size_t rounds;
} result;

static void keep(result *to, double kernel, double limit) {
  to->kernel[to->rounds] = kernel;
  to->limit[to->rounds++] = limit;
}

/* The definition takes many times as long as any tier, and nothing is tuned by it: pieces of its
 * work and few rounds do. */
static bool is_brief(const run *r) {
  return strcmp(r->t->isa, "portable") == 0;
}

static int rounds_of(const run *r, int usual) {
  if (r->rounds) return (int)r->rounds;
  return is_brief(r) ? BRIEF_ROUNDS : usual;
}

static double best_of(const double *x, size_t count) {
  double best = 0;
  for (size_t i = 0; i < count; i++)
    if (x[i] > best) best = x[i];
  return best;
}

/* Of registers only, so that a core has it or is disturbed. */
static bool is_peak(const perf_kernel_row *row) {
  return strcmp(row->bound, "int8") == 0 || strcmp(row->bound, "fp32") == 0;
}

static bool is_same_limit(const perf_kernel_row *a, const perf_kernel_row *b) {
  return strcmp(a->bound, b->bound) == 0 && a->threads == b->threads &&
         (!is_peak(a) || strcmp(a->tier, b->tier) == 0);
}

void perf_mark_busy(perf_kernel_row *rows, size_t count, perf_seen *seen) {
  const double enough = 0.9;
  for (size_t i = 0; seen && i < count; i++)
    if (is_peak(&rows[i]))
      perf_seen_add(seen, rows[i].tier, rows[i].bound, rows[i].limit / rows[i].threads);
  for (size_t i = 0; i < count; i++) {
    double best = rows[i].limit;
    for (size_t j = 0; j < count; j++)
      if (rows[j].limit > best && is_same_limit(&rows[i], &rows[j])) best = rows[j].limit;
    if (seen && is_peak(&rows[i]) && rows[i].limit > 0)
      best = fmax(best, rows[i].threads * perf_seen_best(seen, rows[i].tier, rows[i].bound));
    rows[i].best = best;
    rows[i].busy = rows[i].limit < enough * best;
  }
}

/* factor: from the rates' unit to the row's. */
static void report(run *r, perf_kernel_row *row, double factor, result *all) {
  for (size_t i = 0; i < all->rounds; i++) {
    all->kernel[i] *= factor;
    all->limit[i] *= factor;
  }
  row->tier = r->t->isa;
  row->group = r->group;
  row->rates = all->kernel;
  row->limits = all->limit;
  row->rounds = all->rounds;
  row->rate = best_of(all->kernel, all->rounds);
  row->limit = best_of(all->limit, all->rounds);
  if (r->end == PERF_KERNEL_DONE && !r->each(r->data, row)) r->end = PERF_KERNEL_STOPPED;
}

/* --- Prefill: a slice of the matrix a round, some milliseconds of work ---------- */

typedef struct shape {
  const char *model;
  size_t n, k;
} shape;

/* The first, with 64 rows, stays in the second cache: what is missing there is not the memory's. */
static const shape shapes[] = {
    {"in L2", 32, 2048},  {"135M", 1536, 576}, {"135M", 576, 1536}, {"1.1B", 5632, 2048},
    {"1.1B", 2048, 5632}, {"7B", 11008, 4096},  {"7B", 4096, 11008},
};

static void *activations(run *r, hr_panel_type type, size_t k, size_t rows, size_t *stride) {
  float *x = floats(&r->pool, rows * k);
  *stride = k * 4;
  if (type != HR_PANEL_Q8) return x;
  *stride = hr_q8_row_bytes(k);
  char *q = memory(&r->pool, rows * *stride);
  for (size_t i = 0; x && q && i < rows; i++) r->t->quantize(x + i * k, k, 0, k, q + i * *stride);
  return q;
}

static size_t slice_of(const shape *s, size_t rows, double peak) {
  double outputs = 6e-3 * (peak > 0 ? peak : 1e10) / (double)(s->k * rows);
  size_t n = (size_t)outputs / 64 * 64;
  if (n < 256) n = 256;
  return n > s->n ? s->n : n;
}

/* Plain reading of some panels with as many of the form's instructions on registers as some rows
 * ask for: multiply-adds a second. */
static double rate_beside(const run *r, bool q8, const hr_product *p, size_t bytes, size_t ahead) {
  perf_beside_fn *loop = q8 ? r->peaks->tile_beside : r->peaks->beside;
  double work = q8 ? r->peaks->tile_work : r->peaks->beside_work;
  double macs = (double)p->n * (double)p->k * (double)p->rows;
  size_t steps = bytes / PERF_READ_STEP, groups;
  if (!loop || !steps) return 0;
  groups = (size_t)(macs / (double)steps / work + 0.5);
  double start = now(CLOCK_THREAD_CPUTIME_ID);
  loop(p->panels, steps * PERF_READ_STEP, groups, ahead);
  return (double)steps * (double)groups * work / (now(CLOCK_THREAD_CPUTIME_ID) - start);
}

/* Beside each product that is not kept in L2, in the same rounds, is how well reading as many
 * weights, a copy of its own, and as much computing overlap on this machine, with what is ahead
 * fetched, or not, by turns. Small matrices come from a cache in both. */
static void prefill(run *r, hr_panel_type type, const shape *s, size_t rows, bool cached) {
  const hr_kernels *t = r->t;
  bool q8 = type == HR_PANEL_Q8;
  void (*loop)(size_t) = q8 ? r->peaks->dot : r->peaks->fma;
  double work = q8 ? r->peaks->dot_work : r->peaks->fma_work;
  size_t panel = hr_panel_bytes(type, s->k), bytes = (s->n + 15) / 16 * panel, stride;
  char *panels = panels_of(&r->pool, type, bytes);
  char *copy = cached || is_brief(r) ? NULL : panels_of(&r->pool, type, bytes);
  void *x = activations(r, type, s->k, rows, &stride);
  float *y = memory(&r->pool, rows * s->n * 4);
  if (!r->pool.failed) {
    hr_product_fn *call = hr_kernels_product(t, type, rows);
    size_t n = is_brief(r) ? 64 : slice_of(s, rows, peak_rate(loop, work, SHORT)), at = 0;
    result all = {.rounds = 0}, beside = {.rounds = 0};
    for (int round = -1; round < rounds_of(r, ROUNDS); round++) { /* the first warms up */
      hr_product p = {.panels = panels + at / 16 * panel, .x = x, .x_stride = stride, .k = s->k,
                      .n = n, .rows = rows, .y = y + at, .y_stride = s->n};
      size_t calls = SHORT / (n * s->k * rows) + 1;
      double each = (double)(calls * n * s->k * rows), limit = peak_rate(loop, work, each);
      double start = now(CLOCK_THREAD_CPUTIME_ID);
      for (size_t i = 0; i < calls; i++) call(&p);
      double spent = now(CLOCK_THREAD_CPUTIME_ID) - start;
      double overlap = 0;
      p.panels = copy ? copy + at / 16 * panel : NULL;
      if (copy) overlap = rate_beside(r, q8, &p, n / 16 * panel, round % 2 ? FETCHED : 0);
      if (round >= 0) keep(&all, each / spent, limit);
      if (round >= 0 && overlap > 0) keep(&beside, overlap, limit);
      at = at + 2 * n <= s->n ? at + n : 0;
    }
    const char *const names[] = {t->name.product_f32, t->name.product_f16, t->name.product_bf16,
                                 t->name.product_q8};
    perf_kernel_row row = {.kernel = names[type], .threads = 1, .unit = q8 ? "GOP/s" : "GFLOP/s",
                           .bound = q8 ? "int8" : "fp32"};
    snprintf(row.shape, sizeof row.shape, "%s n=%zu k=%zu rows=%zu", s->model, s->n, s->k, rows);
    report(r, &row, 2e-9, &all);
    if (beside.rounds && r->end == PERF_KERNEL_DONE) {
      size_t used = strlen(row.shape);
      snprintf(row.shape + used, sizeof row.shape - used, ", registers instead");
      report(r, &row, 2e-9, &beside);
    }
  }
  give_back(r);
}

/* What a kernel's own instructions allow of a peak: with all that it does in registers. */
static void bound_of(run *r, perf_kernel_row row, void (*own)(size_t), double own_work,
                     void (*peak)(size_t), double peak_work) {
  result all = {.rounds = 0};
  for (int round = -1; own && round < rounds_of(r, ROUNDS); round++) {
    double limit = peak_rate(peak, peak_work, SHORT), rate = peak_rate(own, own_work, SHORT);
    if (round >= 0) keep(&all, rate, limit);
  }
  row.threads = 1;
  snprintf(row.shape, sizeof row.shape, "its bound: registers only");
  if (own) report(r, &row, 2e-9, &all);
}

static void all_prefill(run *r, bool q8) {
  static const size_t row_counts[] = {64, 512};
  const perf_peaks *p = r->peaks;
  perf_kernel_row row = {.kernel = r->t->name.product_q8, .unit = "GOP/s", .bound = "int8"};
  if (q8) bound_of(r, row, p->tile, p->tile_work, p->dot, p->dot_work);
  for (size_t i = is_brief(r); i < sizeof shapes / sizeof *shapes; i++)
    for (size_t j = 0; j < (is_brief(r) || i == 0 ? 1 : 2); j++)
      for (int type = 0; type < HR_PANEL_TYPES; type++)
        if (q8 == (type == HR_PANEL_Q8) && r->end == PERF_KERNEL_DONE)
          prefill(r, (hr_panel_type)type, &shapes[i], row_counts[j], i == 0);
}

/* --- Attention of 32 rows of 3 heads over 4,096 keys, all blocks ---------------- */

enum { KEYS = 4096, QUERIES = 96 };

typedef struct heads {
  char *cache; /* blocks of each head: keys, then values */
  float *q, *out;
  size_t head_bytes, count, keys, width;
  hr_query query[QUERIES];
} heads;

static void heads_make(pool *p, heads *h, size_t count, size_t keys, size_t width, size_t size) {
  h->count = count;
  h->keys = keys;
  h->width = width;
  h->head_bytes = 2 * keys * width * size;
  h->cache = panels_of(p, size == 4 ? HR_PANEL_F32 : HR_PANEL_F16, count * h->head_bytes);
  h->q = floats(p, QUERIES * width);
  h->out = memory(p, QUERIES * (width + 16) * 4);
  for (size_t i = 0; !p->failed && i < QUERIES; i++) {
    float *out = h->out + i * (width + 16);
    h->query[i] = (hr_query){.q = h->q + i * width, .end = (uint32_t)keys,
                             .position = (int32_t)keys, .max = out + width, .sum = out + width + 1,
                             .out = out};
  }
}

static void attend_head(hr_attend_fn *call, const heads *h, size_t head, size_t queries) {
  uint32_t blocks = (uint32_t)(h->keys / HR_KEY_BLOCK);
  for (uint32_t block = 0; block < blocks; block++) {
    size_t bytes = h->head_bytes / blocks;
    const char *keys = h->cache + head * h->head_bytes + block * bytes;
    bool last = head + 1 == h->count && block + 1 == blocks; /* heads lie behind each other */
    hr_attend a = {.keys = keys, .values = keys + bytes / 2, .width = (uint32_t)h->width,
                   .next_keys = last ? NULL : keys + bytes,
                   .next_values = last ? NULL : keys + bytes + bytes / 2,
                   .next_count = last ? 0 : HR_KEY_BLOCK,
                   .block = block, .queries = h->query, .count = queries};
    call(&a);
  }
}

static void attention(run *r, bool half, size_t width) {
  hr_attend_fn *call = half ? r->t->attend_f16 : r->t->attend_f32;
  heads h;
  heads_make(&r->pool, &h, 1, KEYS, width, half ? 2 : 4);
  if (!r->pool.failed) {
    result all = {.rounds = 0};
    for (int round = -1; round < rounds_of(r, ROUNDS); round++) {
      double each = 2.0 * QUERIES * KEYS * (double)width;
      double limit = peak_rate(r->peaks->fma, r->peaks->fma_work, each);
      double start = now(CLOCK_THREAD_CPUTIME_ID);
      attend_head(call, &h, 0, QUERIES);
      double spent = now(CLOCK_THREAD_CPUTIME_ID) - start;
      if (round >= 0) keep(&all, each / spent, limit);
    }
    perf_kernel_row row = {.kernel = half ? r->t->name.attend_f16 : r->t->name.attend_f32,
                           .threads = 1, .unit = "GFLOP/s", .bound = "fp32"};
    snprintf(row.shape, sizeof row.shape, "prefill, width %zu", width);
    report(r, &row, 2e-9, &all);
  }
  give_back(r);
}

static void all_attention(run *r) {
  const perf_peaks *p = r->peaks;
  perf_kernel_row row = {.kernel = r->t->name.attend_f16, .unit = "GFLOP/s", .bound = "fp32"};
  bound_of(r, row, p->attend, p->attend_work, p->fma, p->fma_work);
  _Static_assert(PERF_ATTEND_WIDTH == 64, "the width that it is the bound of");
  for (size_t width = 64; width <= 128; width *= 2)
    for (int half = 1; half >= 0 && r->end == PERF_KERNEL_DONE; half--) attention(r, half, width);
}

/* --- Decode: as many threads as asked read memory that no cache holds; one thread, what the
 * second cache holds, which tells how much of the time is the core's own ---------- */

typedef struct reading {
  const hr_kernels *t;
  hr_panel_type type; /* HR_PANEL_TYPES: attention */
  const char *data;
  size_t bytes, k, queries;
  size_t times; /* that all of it is read */
  void *x;
  float *y;
  heads *heads;
  const perf_peaks *peaks;
  size_t groups, ahead; /* of fma with each PERF_READ_STEP bytes; what is fetched */
} reading;

/* Plain reading: the faster of one stream and of four. From memory the width of loads counts
 * for little: each is read by another one. */
static void read_streams(const reading *r, size_t streams) {
  size_t width[PERF_MOST_WIDTHS], widths = perf_read_widths(hr_cpu_features(), width);
  size_t each = r->bytes / streams / PERF_READ_STEP * PERF_READ_STEP;
  for (size_t i = 0; i < r->times; i++)
    perf_read(r->data, each, each, streams, streams > 1 ? width[0] : width[widths - 1]);
}
static void read_one(const reading *r) {
  read_streams(r, 1);
}
static void read_four(const reading *r) {
  read_streams(r, PERF_MOST_STREAMS);
}

static void read_product(const reading *r) {
  size_t panel = hr_panel_bytes(r->type, r->k);
  hr_product p = {.panels = r->data, .x = r->x, .k = r->k, .n = r->bytes / panel * 16, .rows = 1,
                  .y = r->y};
  for (size_t i = 0; i < r->times; i++) hr_kernels_product(r->t, r->type, 1)(&p);
}
static void read_attention(const reading *r) {
  for (size_t i = 0; i < r->times * r->heads->count; i++)
    attend_head(r->t->attend_f16, r->heads, i % r->heads->count, r->queries);
}

static void read_beside(const reading *r) {
  size_t bytes = r->bytes / PERF_READ_STEP * PERF_READ_STEP;
  r->peaks->beside(r->data, bytes, r->groups, r->ahead);
}

/* Held shut until all threads are there: a barrier would wait for ever for one that
 * could not be started. */
typedef struct gate {
  pthread_mutex_t shut;
  bool cancelled;
  pthread_barrier_t barrier;
} gate;

typedef struct worker {
  pthread_t thread;
  gate *gate;
  const reading *reading;
  void (*const *acts)(const reading *);
  clockid_t clock; /* one thread's own time, or that of the wall for several */
  double *starts, *ends; /* of each act */
} worker;

enum { ACTS = 4 };

static void work(worker *w) {
  for (int act = 0; act < ACTS && w->acts[act]; act++) {
    pthread_barrier_wait(&w->gate->barrier);
    w->starts[act] = now(w->clock);
    w->acts[act](w->reading);
    w->ends[act] = now(w->clock);
  }
}

static void *enter(void *argument) {
  worker *w = argument;
  pthread_mutex_lock(&w->gate->shut);
  bool cancelled = w->gate->cancelled;
  pthread_mutex_unlock(&w->gate->shut);
  if (!cancelled) work(w);
  return NULL;
}

/* The first worker is the caller. False when not all of the others could be started. */
static bool run_workers(worker *workers, size_t threads, gate *g) {
  size_t started = 1;
  pthread_mutex_lock(&g->shut);
  while (started < threads &&
         pthread_create(&workers[started].thread, NULL, enter, &workers[started]) == 0)
    started++;
  g->cancelled = started < threads;
  pthread_mutex_unlock(&g->shut);
  if (!g->cancelled) work(&workers[0]);
  for (size_t i = 1; i < started; i++) pthread_join(workers[i].thread, NULL);
  return started == threads;
}

/* Bytes a second of each act, by all threads together; NULL is none. */
static bool run_acts(const reading *readings, size_t threads, void (*const *acts)(const reading *),
                     double rate[ACTS]) {
  static worker workers[MOST_THREADS];
  static double starts[MOST_THREADS][ACTS], ends[MOST_THREADS][ACTS];
  gate g = {.shut = PTHREAD_MUTEX_INITIALIZER};
  pthread_barrier_init(&g.barrier, NULL, (unsigned)threads);
  for (size_t i = 0; i < threads; i++)
    workers[i] = (worker){.clock = threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC,
                          .gate = &g, .reading = &readings[i], .acts = acts,
                          .starts = starts[i], .ends = ends[i]};
  bool fine = run_workers(workers, threads, &g);
  pthread_barrier_destroy(&g.barrier);
  if (!fine) return false;
  for (int act = 0; act < ACTS && acts[act]; act++) {
    double first = starts[0][act], last = ends[0][act], bytes = 0;
    for (size_t i = 0; i < threads; i++) {
      if (starts[i][act] < first) first = starts[i][act];
      if (ends[i][act] > last) last = ends[i][act];
      bytes += (double)(readings[i].times * readings[i].bytes);
    }
    rate[act] = bytes / (last - first);
  }
  return true;
}

/* Rounds of reading, of a kernel, and of reading with as much fma, where readings have groups. */
typedef struct decoded {
  result kernel, beside;
  double fma[PERF_MOST_ROUNDS]; /* multiply-adds a second that there could be */
} decoded;

/* False when the threads can't be started. */
static bool decode_rounds(run *r, reading *readings, size_t threads,
                          void (*kernel)(const reading *), perf_kernel_row *row, decoded *all) {
  void (*const acts[ACTS])(const reading *) = {read_one, kernel, read_four,
                                               readings->groups ? read_beside : NULL};
  bool cached = readings->times > 1;
  all->kernel.rounds = all->beside.rounds = 0;
  for (int round = -1; round < rounds_of(r, DECODE_ROUNDS); round++) {
    double rate[ACTS] = {0};
    for (size_t i = 0; i < threads; i++) readings[i].ahead = round % 2 ? FETCHED : 0;
    if (!run_acts(readings, threads, acts, rate)) return false;
    double peak = r->peaks->fma ? peak_rate(r->peaks->fma, r->peaks->fma_work, SHORT) : 0;
    if (round < 0) { /* by now all of it has been touched */
      hr_pages pages;
      bool known = hr_pages_read(&pages, "/proc/self/smaps", readings->data);
      row->small_pages = !cached && known && pages.huge < pages.resident / 2;
      continue;
    }
    double limit = rate[0] > rate[2] ? rate[0] : rate[2];
    all->fma[all->kernel.rounds] = peak * (double)threads;
    keep(&all->kernel, rate[1], cached ? 0 : limit);
    keep(&all->beside, rate[3], limit);
  }
  return true;
}

/* fmas: multiply-adds for each byte. Where they take longer than the reading of memory,
 * they are what the kernel is compared with, in the cache too, where otherwise nothing
 * limits it. */
static void decode(run *r, reading *readings, size_t threads, double fmas,
                   void (*kernel)(const reading *), perf_kernel_row *row) {
  static decoded all;
  bool cached = readings->times > 1;
  if (!decode_rounds(r, readings, threads, kernel, row, &all)) {
    r->end = PERF_KERNEL_THREADS;
    return;
  }
  size_t rounds = all.kernel.rounds;
  double peak = best_of(all.fma, rounds);
  if (!cached) r->by_fma = peak > 0 && fmas * best_of(all.kernel.limit, rounds) > peak;
  result *const measured[] = {&all.kernel, &all.beside};
  for (size_t j = 0; r->by_fma && j < 2; j++)
    for (size_t i = 0; i < rounds; i++) {
      measured[j]->kernel[i] *= fmas;
      measured[j]->limit[i] = all.fma[i];
    }
  row->threads = (unsigned)threads;
  row->unit = r->by_fma ? "GFLOP/s" : "GB/s";
  row->bound = r->by_fma ? "fp32" : cached ? "L2" : "memory";
  const double unit = r->by_fma ? 2e-9 : 1e-9;
  report(r, row, unit, &all.kernel);
  if (!readings->groups || r->end != PERF_KERNEL_DONE) return;
  size_t used = strlen(row->shape);
  snprintf(row->shape + used, sizeof row->shape - used, ", fma instead");
  report(r, row, unit, &all.beside);
}

enum { CACHED_BYTES = 256 << 10, CACHED_KEYS = 512, CACHED_TIMES = 100 };

/* Of each of some threads: more than caches hold together, which may be hundreds of MiB and a
 * machine's with others, but for the definition, which memory does not hold up. */
static size_t decode_bytes(const run *r, size_t threads, bool cached) {
  size_t all = 384, least = 96;
  if (cached) return CACHED_BYTES;
  return (size_t)(is_brief(r) ? 16 : all / threads > least ? all / threads : least) << 20;
}

static void decode_product(run *r, hr_panel_type type, size_t k, size_t threads, bool cached) {
  static reading readings[MOST_THREADS];
  const hr_kernels *t = r->t;
  const char *const names[] = {t->name.product_one_f32, t->name.product_one_f16,
                               t->name.product_one_bf16, t->name.product_one_q8};
  size_t panel = hr_panel_bytes(type, k), stride;
  size_t bytes = decode_bytes(r, threads, cached) / panel * panel;
  for (size_t i = 0; i < threads; i++)
    readings[i] = (reading){.t = t, .type = type, .data = panels_of(&r->pool, type, bytes),
                            .bytes = bytes, .k = k, .times = cached ? CACHED_TIMES : 1,
                            .x = activations(r, type, k, 1, &stride),
                            .y = memory(&r->pool, bytes / panel * 64)};
  perf_kernel_row row = {.kernel = names[type]};
  snprintf(row.shape, sizeof row.shape, "k=%zu, threads: %zu%s", k, threads,
           cached ? ", in L2" : "");
  if (!r->pool.failed) decode(r, readings, threads, 0, read_product, &row);
  give_back(r);
}

/* So many groups of fma with each step that they take as long as the kernel in the second
 * cache, where reading costs next to nothing. */
static size_t groups_beside(run *r, size_t width, size_t queries) {
  static heads all;
  size_t head = 2 * CACHED_KEYS * width * 2, best = 0;
  heads_make(&r->pool, &all, 1, CACHED_KEYS, width, 2);
  reading cached = {.t = r->t, .queries = queries, .times = CACHED_TIMES, .heads = &all};
  if (!r->peaks->beside || r->pool.failed) return 0;
  for (int round = 0; round < BRIEF_ROUNDS; round++) {
    double peak = peak_rate(r->peaks->fma, r->peaks->fma_work, SHORT);
    double start = now(CLOCK_THREAD_CPUTIME_ID);
    read_attention(&cached);
    double seconds = (now(CLOCK_THREAD_CPUTIME_ID) - start) / (double)(CACHED_TIMES * head);
    size_t groups = (size_t)(PERF_READ_STEP * seconds * peak / r->peaks->beside_work + 0.5);
    if (!best || groups < best) best = groups;
  }
  return best;
}

/* fp16 caches. Beside them, in the same rounds, is how well reading and as much computing overlap
 * on this machine: plain reading with fma on registers in the kernel's place, with what is ahead
 * fetched, as the kernels do, or not, by turns. */
static void decode_attention(run *r, size_t width, size_t queries, size_t threads, bool cached) {
  static reading readings[MOST_THREADS];
  static heads all[MOST_THREADS];
  size_t keys = cached ? CACHED_KEYS : KEYS, head = 2 * keys * width * 2;
  size_t groups = cached || is_brief(r) ? 0 : groups_beside(r, width, queries);
  for (size_t i = 0; i < threads; i++) {
    heads_make(&r->pool, &all[i], decode_bytes(r, threads, cached) / head, keys, width, 2);
    readings[i] = (reading){.t = r->t, .type = HR_PANEL_TYPES, .data = all[i].cache,
                            .bytes = all[i].count * head, .queries = queries,
                            .times = cached ? CACHED_TIMES : 1, .heads = &all[i],
                            .peaks = r->peaks, .groups = groups};
  }
  perf_kernel_row row = {.kernel = r->t->name.attend_f16};
  snprintf(row.shape, sizeof row.shape, "width %zu, q %zu, threads: %zu%s", width, queries,
           threads, cached ? ", in L2" : "");
  if (!r->pool.failed)
    decode(r, readings, threads, (double)queries / 2, read_attention, &row);
  give_back(r);
}

/* One thread: each from memory, then from the second cache. */
static void decode_by(run *r, size_t threads) {
  size_t places = threads == 1 && !is_brief(r) ? 2 : 1;
  static const struct {
    hr_panel_type type;
    size_t k;
  } products[] = {{HR_PANEL_Q8, 576},   {HR_PANEL_Q8, 2048},  {HR_PANEL_Q8, 11008},
                  {HR_PANEL_F32, 2048}, {HR_PANEL_F16, 2048}, {HR_PANEL_BF16, 2048}};
  static const struct {
    size_t width, queries;
  } attended[] = {{64, 1}, {64, 3}, {64, 8}, {128, 1}, {128, 4}};
  for (size_t i = 0; i < places * (sizeof products / sizeof *products); i++)
    if (r->end == PERF_KERNEL_DONE)
      decode_product(r, products[i / places].type, products[i / places].k, threads, i % places);
  for (size_t i = 0; i < places * (sizeof attended / sizeof *attended); i++)
    if (r->end == PERF_KERNEL_DONE)
      decode_attention(r, attended[i / places].width, attended[i / places].queries, threads,
                       i % places);
}

/* Of the affinity mask; a machine with more CPUs than the set holds counts as one. */
static size_t usable_cpus(void) {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  int count = CPU_COUNT(&set);
  return count < 1 ? 1 : count > MOST_THREADS ? MOST_THREADS : (size_t)count;
}

static void all_decode(run *r) {
  size_t most = usable_cpus();
  decode_by(r, 1);
  if (most > 1) decode_by(r, most);
}

/* --- Rows: what works on one row at a time, in the nearest cache ----------------- */

enum { WIDTH = 1024, BYTES_IN_CACHE = 12288 }; /* floats of a row; what is read beside */

typedef struct rows {
  const hr_kernels *t;
  float *x, *y, *up;
  char *packed; /* a panel, a quantized row, a part of a cache */
  char *plain;  /* what is read for the limit */
  size_t width; /* of its loads */
} rows;

/* SLOT(slot, bytes, call): bytes that one call reads, each operand once. What works
 * in place starts from where it ended: the numbers stay finite. */
#define ROW_CALLS(SLOT)                                                                          \
  SLOT(quantize, WIDTH * 4, t->quantize(d->x, WIDTH, 0, WIDTH, d->packed))                       \
  SLOT(grid_errors, 64 * 4, t->grid_errors(d->x, NULL, d->up, 64, d->y))                         \
  SLOT(rms_norm, WIDTH * 8, t->rms_norm(d->x, WIDTH, d->up, 1e-5f, d->y))                        \
  SLOT(layer_norm, WIDTH * 12, t->layer_norm(d->x, WIDTH, d->up, d->up, 1e-5f, d->y))            \
  SLOT(attend_merge, WIDTH * 8, {                                                                \
    float max = 0, sum = 1, zero = 0;                                                            \
    t->attend_merge(1, &max, &sum, d->y, &zero, &zero, d->x, WIDTH);                             \
  })                                                                                             \
  SLOT(attend_join, WIDTH * 4, {                                                                 \
    float max[16] = {0}, sum[16] = {0};                                                          \
    t->attend_join(16, max, sum, d->y, WIDTH / 16);                                              \
  })                                                                                             \
  SLOT(store_key_f32, WIDTH * 4, t->store_key_f32(d->x, WIDTH, d->packed, 0))                    \
  SLOT(store_key_f16, WIDTH * 4, t->store_key_f16(d->x, WIDTH, d->packed, 0))                    \
  SLOT(store_value_f32, WIDTH * 4, t->store_value_f32(d->x, WIDTH, d->packed, 0))                \
  SLOT(store_value_f16, WIDTH * 4, t->store_value_f16(d->x, WIDTH, d->packed, 0))                \
  SLOT(rope_pairs, WIDTH * 8, t->rope_pairs(d->y, d->up, d->x, WIDTH / 2))                       \
  SLOT(rope_halves, WIDTH * 8, t->rope_halves(d->y, d->up, d->x, WIDTH / 2))                     \
  SLOT(relu, WIDTH * 8, t->relu(d->x, d->up, d->y, WIDTH))                                       \
  SLOT(relu2, WIDTH * 8, t->relu2(d->x, d->up, d->y, WIDTH))                                     \
  SLOT(silu, WIDTH * 8, t->silu(d->x, d->up, d->y, WIDTH))                                       \
  SLOT(gelu_erf, WIDTH * 4, t->gelu_erf(d->x, NULL, d->y, WIDTH))                                \
  SLOT(gelu_tanh, WIDTH * 4, t->gelu_tanh(d->x, NULL, d->y, WIDTH))                              \
  SLOT(gelu_quick, WIDTH * 4, t->gelu_quick(d->x, NULL, d->y, WIDTH))                            \
  SLOT(exp, WIDTH * 4, t->exp(d->x, d->y, WIDTH))                                                \
  SLOT(tanh, WIDTH * 4, t->tanh(d->x, d->y, WIDTH))                                              \
  SLOT(erf, WIDTH * 4, t->erf(d->x, d->y, WIDTH))                                                \
  SLOT(sigmoid, WIDTH * 4, t->sigmoid(d->x, d->y, WIDTH))                                        \
  SLOT(softmax, WIDTH * 4, t->softmax(d->y, WIDTH))                                              \
  SLOT(add, WIDTH * 8, {                                                                         \
    memset(d->y, 0, sizeof(float));                                                              \
    t->add(d->y, d->x, WIDTH);                                                                   \
  })                                                                                             \
  SLOT(scale, WIDTH * 4, t->scale(d->y, -1.0f, WIDTH))                                           \
  SLOT(divide, WIDTH * 4, t->divide(d->y, -1.0f, WIDTH))                                         \
  SLOT(widen_f16, WIDTH * 2, t->widen_f16((const uint16_t *)(void *)d->plain, d->y, WIDTH))      \
  SLOT(widen_bf16, WIDTH * 2, t->widen_bf16((const uint16_t *)(void *)d->plain, d->y, WIDTH))    \
  SLOT(narrow_f16, WIDTH * 4, t->narrow_f16(d->x, (uint16_t *)(void *)d->packed, WIDTH))         \
  SLOT(narrow_bf16, WIDTH * 4, t->narrow_bf16(d->x, (uint16_t *)(void *)d->packed, WIDTH))       \
  SLOT(pack_f32, 16 * 64 * 4, t->pack_f32(d->x, 64 * 4, 16, 64, d->packed))                      \
  SLOT(pack_f16, 16 * 64 * 2, t->pack_f16(d->plain, 64 * 2, 16, 64, d->packed))                  \
  SLOT(pack_bf16, 16 * 64 * 2, t->pack_bf16(d->plain, 64 * 2, 16, 64, d->packed))                \
  SLOT(pack_q8, 16 * 68, t->pack_q8(d->plain, 68, 16, 64, d->packed))

#define ROW_FUNCTION(slot, bytes, ...)    \
  static void call_##slot(const rows *d) { \
    const hr_kernels *t = d->t;           \
    __VA_ARGS__;                          \
  }
ROW_CALLS(ROW_FUNCTION)
#undef ROW_FUNCTION

static void call_read(const rows *d) {
  perf_read(d->plain, BYTES_IN_CACHE, BYTES_IN_CACHE, 1, d->width);
}

/* Calls a second: so many of them that asking the clock does not count. */
static double calls_per_second(void (*call)(const rows *), const rows *d) {
  for (size_t calls = 4;; calls *= 4) {
    double start = now(CLOCK_THREAD_CPUTIME_ID);
    for (size_t i = 0; i < calls; i++) call(d);
    double spent = now(CLOCK_THREAD_CPUTIME_ID) - start;
    if (spent > 2e-4) return (double)calls / spent;
  }
}

/* By the loads that are fastest. */
static double read_rate(const rows *d) {
  size_t width[PERF_MOST_WIDTHS], widths = perf_read_widths(hr_cpu_features(), width);
  rows by = *d;
  double best = 0;
  for (size_t i = 0; i < widths; i++) {
    by.width = width[i];
    double rate = calls_per_second(call_read, &by) * BYTES_IN_CACHE;
    if (rate > best) best = rate;
  }
  return best;
}

static void row_kernel(run *r, const rows *d, const char *name, double bytes,
                       void (*call)(const rows *)) {
  result all = {.rounds = 0};
  if (r->end != PERF_KERNEL_DONE) return;
  for (int round = -1; round < rounds_of(r, ROUNDS); round++) {
    double limit = read_rate(d);
    double rate = calls_per_second(call, d) * bytes;
    if (round >= 0) keep(&all, rate, limit);
  }
  perf_kernel_row row = {.kernel = name, .threads = 1, .unit = "GB/s", .bound = "L1"};
  snprintf(row.shape, sizeof row.shape, "%.0f bytes read", bytes);
  report(r, &row, 1e-9, &all);
}

static void all_rows(run *r) {
  rows d = {.t = r->t, .x = floats(&r->pool, WIDTH), .y = floats(&r->pool, WIDTH),
            .up = floats(&r->pool, WIDTH), .packed = memory(&r->pool, WIDTH * 4 * HR_KEY_BLOCK),
            .plain = memory(&r->pool, BYTES_IN_CACHE)};
  if (!r->pool.failed) {
    fill_halves(d.plain, BYTES_IN_CACHE);
#define ROW(slot, bytes, ...) row_kernel(r, &d, r->t->name.slot, bytes, call_##slot);
    ROW_CALLS(ROW)
#undef ROW
  }
  give_back(r);
}

/* --- All ------------------------------------------------------------------------ */

perf_kernel_end perf_kernels(const hr_kernels *table, const char *group, size_t rounds,
                             perf_kernel_fn *each, void *data) {
  static const perf_peaks none = {0};
  run *r = calloc(1, sizeof *r);
  if (!r) return PERF_KERNEL_MEMORY;
  const perf_peaks *peaks = perf_peaks_of(table->isa);
  *r = (run){.t = table,
             .peaks = peaks ? peaks : &none,
             .rounds = rounds < PERF_MOST_ROUNDS ? rounds : PERF_MOST_ROUNDS,
             .each = each,
             .data = data};
  for (size_t i = 0; perf_kernel_groups[i] && r->end == PERF_KERNEL_DONE; i++) {
    r->group = perf_kernel_groups[i];
    if (group && strcmp(group, r->group) != 0) continue;
    if (strcmp(r->group, "q8") == 0) all_prefill(r, true);
    if (strcmp(r->group, "float") == 0) all_prefill(r, false);
    if (strcmp(r->group, "attention") == 0) all_attention(r);
    if (strcmp(r->group, "decode") == 0) all_decode(r);
    if (strcmp(r->group, "row") == 0) all_rows(r);
  }
  perf_kernel_end end = r->end;
  free(r);
  return end;
}
