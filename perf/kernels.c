/* SPDX-License-Identifier: MIT
 * Speed of the kernels, each as a share of what limits it:
 *   kernels [--isa NAME] [q8|float|attention|decode...]
 * The limits are measured by this program beside each kernel: the int8 dot and
 * fp32 fma rates of loops that touch registers only, and the rate of a
 * streaming read. Limit and kernel take turns, the best of each counts. A share
 * above 100 %, or of a limit that a busy machine held below 90 % of its best
 * in this run, is no result and is marked. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "kernels/select.h"
#include "perf/limits.h"

enum { ROUNDS = 12, MOST_THREADS = 256 };

static double now(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Multiply-adds a second, over about half a millisecond. */
static double peak_rate(void (*loop)(size_t), double work) {
  enum { TURNS = 100000 };
  double start = now(CLOCK_THREAD_CPUTIME_ID);
  loop(TURNS);
  return TURNS * work / (now(CLOCK_THREAD_CPUTIME_ID) - start);
}

/* Memory in 2 MiB pages where the system gives them. */
static void *memory(size_t bytes) {
  const size_t huge = (size_t)2 << 20;
  char *at = mmap(NULL, bytes + huge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) {
    perror("mmap");
    exit(2);
  }
  at = (char *)(((uintptr_t)at + huge - 1) / huge * huge);
  madvise(at, bytes, MADV_HUGEPAGE);
  return at;
}

static uint64_t random_state = 1;
static uint32_t random_bits(void) {
  random_state = random_state * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(random_state >> 32);
}
static void fill_floats(float *x, size_t n) {
  for (size_t i = 0; i < n; i++) x[i] = (float)(int32_t)random_bits() * 0x1p-31f;
}
/* fp16 or bf16 or q8 alike: bytes that make ordinary numbers of each. */
static void fill_halves(void *at, size_t bytes) {
  uint16_t *h = at;
  for (size_t i = 0; i < bytes / 2; i++) h[i] = (uint16_t)((random_bits() & 0x83ffu) | 0x3000u);
}
static void fill_panels(hr_panel_type type, void *at, size_t bytes) {
  if (type == HR_PANEL_F32)
    fill_floats(at, bytes / 4);
  else
    fill_halves(at, bytes);
}

/* A result: the best rate of the kernel and of its limit. */
typedef struct result {
  double kernel, limit;
} result;

static void keep_best(result *best, double kernel, double limit) {
  if (kernel > best->kernel) best->kernel = kernel;
  if (limit > best->limit) best->limit = limit;
}

/* The best that each kind of limit has reached in this run. */
static struct {
  const void *key;
  double best;
} seen[32];

static void print_result(const char *kernel, const char *shape, const char *unit, double scale,
                         const void *key, result r) {
  size_t i = 0;
  while (seen[i].key && seen[i].key != key) i++;
  seen[i].key = key;
  if (r.limit > seen[i].best) seen[i].best = r.limit;
  double share = 100 * r.kernel / r.limit;
  const char *verdict = share > 100 ? "  invalid: above the limit"
                        : r.limit < 0.9 * seen[i].best ? "  invalid: busy machine" : "";
  if (r.limit > 0)
    printf("%-30s %-30s %7.1f %-7s of %7.1f  %5.1f %%%s\n", kernel, shape, r.kernel * scale, unit,
           r.limit * scale, share, verdict);
  else
    printf("%-30s %-30s %7.1f %-7s\n", kernel, shape, r.kernel * scale, unit);
  fflush(stdout);
}

/* Prefill: a slice of the matrix a round, some milliseconds of work. */

typedef struct shape {
  const char *model;
  size_t n, k;
} shape;

static const shape shapes[] = {
    {"135M", 1536, 576}, {"135M", 576, 1536}, {"1.1B", 5632, 2048},
    {"1.1B", 2048, 5632}, {"7B", 11008, 4096}, {"7B", 4096, 11008},
};

static void *activations(const hr_kernels *t, hr_panel_type type, size_t k, size_t rows,
                         size_t *stride) {
  float *x = memory(rows * k * 4);
  fill_floats(x, rows * k);
  *stride = k * 4;
  if (type != HR_PANEL_Q8) return x;
  *stride = hr_q8_row_bytes(k);
  char *q = memory(rows * *stride);
  for (size_t r = 0; r < rows; r++) t->quantize(x + r * k, k, q + r * *stride);
  munmap(x, rows * k * 4);
  return q;
}

static size_t slice_of(const shape *s, size_t rows, double peak) {
  double outputs = 6e-3 * peak / (double)(s->k * rows);
  size_t n = (size_t)outputs / 64 * 64;
  if (n < 256) n = 256;
  return n > s->n ? s->n : n;
}

static void prefill(const hr_kernels *t, const perf_peaks *l, hr_panel_type type, const shape *s,
                    size_t rows) {
  bool q8 = type == HR_PANEL_Q8;
  void (*loop)(size_t) = q8 ? l->dot : l->fma;
  double work = q8 ? l->dot_work : l->fma_work;
  size_t panel = hr_panel_bytes(type, s->k), bytes = (s->n + 15) / 16 * panel, stride;
  char *panels = memory(bytes);
  fill_panels(type, panels, bytes);
  void *x = activations(t, type, s->k, rows, &stride);
  float *y = memory(rows * s->n * 4);
  hr_product_fn *run = hr_kernels_product(t, type, rows);
  size_t n = slice_of(s, rows, loop ? peak_rate(loop, work) : 1e10), at = 0;
  result best = {0};
  for (int round = -1; round < ROUNDS; round++) { /* the first warms up */
    hr_product p = {.panels = panels + at / 16 * panel, .x = x, .x_stride = stride, .k = s->k,
                    .n = n, .rows = rows, .y = y + at, .y_stride = s->n};
    double limit = loop ? peak_rate(loop, work) : 0, start = now(CLOCK_THREAD_CPUTIME_ID);
    run(&p);
    double spent = now(CLOCK_THREAD_CPUTIME_ID) - start;
    if (round >= 0) keep_best(&best, (double)(n * s->k * rows) / spent, limit);
    at = at + 2 * n <= s->n ? at + n : 0;
  }
  char text[64];
  snprintf(text, sizeof text, "%s n=%zu k=%zu rows=%zu", s->model, s->n, s->k, rows);
  const char *const names[] = {t->name.product_f32, t->name.product_f16, t->name.product_bf16,
                               t->name.product_q8};
  print_result(names[type], text, q8 ? "GOP/s" : "GFLOP/s", 2e-9, (const void *)(uintptr_t)loop,
               best);
  munmap(panels, bytes);
  munmap(x, rows * stride);
  munmap(y, rows * s->n * 4);
}

static void all_prefill(const hr_kernels *t, const perf_peaks *l, bool q8) {
  static const size_t row_counts[] = {64, 512};
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
    for (size_t r = 0; r < 2; r++)
      for (int type = 0; type < HR_PANEL_TYPES; type++)
        if (q8 == (type == HR_PANEL_Q8))
          prefill(t, l, (hr_panel_type)type, &shapes[i], row_counts[r]);
}

/* Attention of 32 rows of 3 heads over 4,096 keys, all blocks. */
enum { KEYS = 4096, QUERIES = 96 };

typedef struct heads {
  char *cache; /* keys then values of each head */
  float *q, *out;
  size_t head_bytes, count, width;
  hr_query query[QUERIES];
} heads;

static void heads_new(heads *h, size_t count, size_t width, size_t size) {
  h->count = count;
  h->width = width;
  h->head_bytes = 2 * KEYS * width * size;
  h->cache = memory(count * h->head_bytes);
  h->q = memory(QUERIES * width * 4);
  h->out = memory(QUERIES * (width + 16) * 4);
  fill_floats(h->q, QUERIES * width);
  if (size == 4)
    fill_floats((float *)(void *)h->cache, count * h->head_bytes / 4);
  else
    fill_halves(h->cache, count * h->head_bytes);
  for (size_t i = 0; i < QUERIES; i++) {
    float *out = h->out + i * (width + 16);
    h->query[i] = (hr_query){.q = h->q + i * width, .end = KEYS, .position = KEYS,
                             .max = out + width, .sum = out + width + 1, .out = out};
  }
}

static void heads_free(heads *h) {
  munmap(h->cache, h->count * h->head_bytes);
  munmap(h->q, QUERIES * h->width * 4);
  munmap(h->out, QUERIES * (h->width + 16) * 4);
}

static void attend_head(hr_attend_fn *run, const heads *h, size_t head, size_t queries) {
  const char *keys = h->cache + head * h->head_bytes;
  for (uint32_t block = 0; block < KEYS / HR_KEY_BLOCK; block++) {
    hr_attend a = {.keys = keys, .values = keys + h->head_bytes / 2, .width = (uint32_t)h->width,
                   .block = block, .queries = h->query, .count = queries};
    run(&a);
  }
}

static void attention(const hr_kernels *t, const perf_peaks *l, bool half, size_t width) {
  hr_attend_fn *run = half ? t->attend_f16 : t->attend_f32;
  heads h;
  heads_new(&h, 1, width, half ? 2 : 4);
  result best = {0};
  for (int round = -1; round < ROUNDS; round++) {
    double limit = l->fma ? peak_rate(l->fma, l->fma_work) : 0;
    double start = now(CLOCK_THREAD_CPUTIME_ID);
    attend_head(run, &h, 0, QUERIES);
    double spent = now(CLOCK_THREAD_CPUTIME_ID) - start;
    if (round >= 0) keep_best(&best, 2.0 * QUERIES * KEYS * (double)width / spent, limit);
  }
  char text[64];
  snprintf(text, sizeof text, "prefill, width %zu", width);
  print_result(half ? t->name.attend_f16 : t->name.attend_f32, text, "GFLOP/s", 2e-9,
               (const void *)(uintptr_t)l->fma, best);
  heads_free(&h);
}

/* Decode: as many threads as asked read memory that no cache holds. */

typedef struct reading {
  const hr_kernels *t;
  hr_panel_type type; /* HR_PANEL_TYPES: attention */
  const char *data;
  size_t bytes, k, queries;
  void *x;
  float *y;
  heads *heads;
} reading;

/* Plain reading: the faster of one stream and of four. */
static void read_streams(const char *at, size_t bytes, size_t streams) {
  size_t each = bytes / streams / PERF_READ_STEP * PERF_READ_STEP;
  perf_read(at, each, each, streams, (hr_cpu_features() & HR_CPU_AVX2) != 0);
}
static void read_one(const reading *r) {
  read_streams(r->data, r->bytes, 1);
}
static void read_four(const reading *r) {
  read_streams(r->data, r->bytes, 4);
}

static void read_product(const reading *r) {
  size_t panel = hr_panel_bytes(r->type, r->k);
  hr_product p = {.panels = r->data, .x = r->x, .k = r->k, .n = r->bytes / panel * 16, .rows = 1,
                  .y = r->y};
  hr_kernels_product(r->t, r->type, 1)(&p);
}
static void read_attention(const reading *r) {
  hr_attend_fn *run = r->heads->head_bytes == 2 * KEYS * r->heads->width * 2 ? r->t->attend_f16
                                                                             : r->t->attend_f32;
  for (size_t i = 0; i < r->heads->count; i++) attend_head(run, r->heads, i, r->queries);
}

typedef struct worker {
  pthread_t thread;
  pthread_barrier_t *barrier;
  const reading *reading;
  void (*const *acts)(const reading *);
  clockid_t clock; /* one thread's own time, or that of the wall for several */
  double *starts, *ends; /* of each act */
} worker;

enum { ACTS = 3 };

static void *work(void *argument) {
  worker *w = argument;
  for (int act = 0; act < ACTS; act++) {
    pthread_barrier_wait(w->barrier);
    w->starts[act] = now(w->clock);
    w->acts[act](w->reading);
    w->ends[act] = now(w->clock);
  }
  return NULL;
}

/* Bytes a second of each act, by all threads together. */
static void run_acts(const reading *readings, size_t threads, void (*const *acts)(const reading *),
                     double rate[ACTS]) {
  static worker workers[MOST_THREADS];
  static double starts[MOST_THREADS][ACTS], ends[MOST_THREADS][ACTS];
  pthread_barrier_t barrier;
  pthread_barrier_init(&barrier, NULL, (unsigned)threads);
  for (size_t i = 0; i < threads; i++) {
    workers[i] = (worker){.clock = threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC,
                          .barrier = &barrier, .reading = &readings[i], .acts = acts,
                          .starts = starts[i], .ends = ends[i]};
    if (i) pthread_create(&workers[i].thread, NULL, work, &workers[i]);
  }
  work(&workers[0]);
  for (size_t i = 1; i < threads; i++) pthread_join(workers[i].thread, NULL);
  pthread_barrier_destroy(&barrier);
  for (int act = 0; act < ACTS; act++) {
    double first = starts[0][act], last = ends[0][act], bytes = 0;
    for (size_t i = 0; i < threads; i++) {
      if (starts[i][act] < first) first = starts[i][act];
      if (ends[i][act] > last) last = ends[i][act];
      bytes += (double)readings[i].bytes;
    }
    rate[act] = bytes / (last - first);
  }
}

static void decode_rounds(const reading *readings, size_t threads, void (*kernel)(const reading *),
                          const char *name, const char *text) {
  void (*const acts[ACTS])(const reading *) = {read_one, kernel, read_four};
  result best = {0};
  for (int round = -1; round < ROUNDS; round++) {
    double rate[ACTS];
    run_acts(readings, threads, acts, rate);
    if (round >= 0) keep_best(&best, rate[1], rate[0] > rate[2] ? rate[0] : rate[2]);
  }
  print_result(name, text, "GB/s", 1e-9, (const void *)(uintptr_t)(0x1000 + threads), best);
}

enum { DECODE_BYTES = 96 << 20 }; /* of each thread */

static void decode_product(const hr_kernels *t, hr_panel_type type, size_t k, size_t threads) {
  static reading readings[MOST_THREADS];
  static const char *names[HR_PANEL_TYPES];
  names[HR_PANEL_F32] = t->name.product_one_f32;
  names[HR_PANEL_F16] = t->name.product_one_f16;
  names[HR_PANEL_BF16] = t->name.product_one_bf16;
  names[HR_PANEL_Q8] = t->name.product_one_q8;
  size_t panel = hr_panel_bytes(type, k), bytes = DECODE_BYTES / panel * panel, stride;
  for (size_t i = 0; i < threads; i++) {
    char *data = memory(bytes);
    fill_panels(type, data, bytes);
    readings[i] = (reading){.t = t, .type = type, .data = data, .bytes = bytes, .k = k,
                            .x = activations(t, type, k, 1, &stride),
                            .y = memory(bytes / panel * 64)};
  }
  char text[64];
  snprintf(text, sizeof text, "k=%zu, threads: %zu", k, threads);
  decode_rounds(readings, threads, read_product, names[type], text);
  for (size_t i = 0; i < threads; i++) {
    munmap((void *)(uintptr_t)readings[i].data, bytes);
    munmap(readings[i].x, stride);
    munmap(readings[i].y, bytes / panel * 64);
  }
}

static void decode_attention(const hr_kernels *t, bool half, size_t width, size_t queries,
                             size_t threads) {
  static reading readings[MOST_THREADS];
  static heads all[MOST_THREADS];
  size_t size = half ? 2 : 4, head = 2 * KEYS * width * size;
  for (size_t i = 0; i < threads; i++) {
    heads_new(&all[i], DECODE_BYTES / head, width, size);
    readings[i] = (reading){.t = t, .type = HR_PANEL_TYPES, .data = all[i].cache,
                            .bytes = all[i].count * head, .queries = queries, .heads = &all[i]};
  }
  char text[64];
  snprintf(text, sizeof text, "width %zu, q %zu, threads: %zu", width, queries, threads);
  decode_rounds(readings, threads, read_attention, half ? t->name.attend_f16 : t->name.attend_f32,
                text);
  for (size_t i = 0; i < threads; i++) heads_free(&all[i]);
}

static void all_decode(const hr_kernels *t) {
  long online = sysconf(_SC_NPROCESSORS_ONLN);
  size_t most = online < 1 ? 1 : online > MOST_THREADS ? MOST_THREADS : (size_t)online;
  for (size_t threads = 1;; threads = most) {
    decode_product(t, HR_PANEL_Q8, 576, threads);
    decode_product(t, HR_PANEL_Q8, 2048, threads);
    decode_product(t, HR_PANEL_Q8, 11008, threads);
    for (int type = 0; type < HR_PANEL_Q8; type++)
      decode_product(t, (hr_panel_type)type, 2048, threads);
    decode_attention(t, true, 64, 1, threads);
    decode_attention(t, true, 64, 8, threads);
    decode_attention(t, true, 128, 4, threads);
    if (threads == most) break;
  }
}

static void run_tier(const hr_kernels *t, const char *what) {
  static const perf_peaks none = {0};
  const perf_peaks *l = perf_peaks_of(t->isa);
  if (!l) l = &none;
  if (!what || strcmp(what, "q8") == 0) all_prefill(t, l, true);
  if (!what || strcmp(what, "float") == 0) all_prefill(t, l, false);
  if (!what || strcmp(what, "attention") == 0)
    for (size_t width = 64; width <= 128; width *= 2) {
      attention(t, l, true, width);
      attention(t, l, false, width);
    }
  if (!what || strcmp(what, "decode") == 0) all_decode(t);
}

int main(int argc, char **argv) {
  const char *isa = NULL;
  int at = 1;
  if (argc > 2 && strcmp(argv[1], "--isa") == 0) {
    isa = argv[2];
    at = 3;
  }
  uint32_t features = hr_cpu_features();
  size_t count;
  const hr_tier *tier = hr_tiers(&count);
  bool any = false;
  for (size_t i = 0; i < count; i++) {
    hr_kernels t;
    /* The definition has no limit of its own: only when asked for. */
    if (isa ? strcmp(isa, tier[i].name) != 0 : i == 0) continue;
    if (!hr_kernels_select(&t, features, tier[i].name)) continue;
    any = true;
    if (at == argc) run_tier(&t, NULL);
    for (int a = at; a < argc; a++) run_tier(&t, argv[a]);
  }
  if (!any) fputs("usage: kernels [--isa NAME] [q8|float|attention|decode...]\n", stderr);
  return any ? 0 : 2;
}
