/* SPDX-License-Identifier: MIT
 * The machine's own limits, measured by the very threads of a session. Each
 * thread works until the time is up and counts: cores of different speed, or
 * one that was taken away for a moment, don't hold the others. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/memory.h"
#include "bench.h"
#include "interrupt.h"
#include "kernels/select.h"
#include "sched/memory.h"

enum { PEAK_TURNS = 10000, READ_PIECE = 1 << 18, BARRIERS = 16 };
static const double peak_window = 3e-3, barrier_window = 2e-3; /* seconds */

/* One window of one kind of work by all threads. */
typedef struct window {
  hr_team *team;
  double seconds;
  void (*loop)(size_t turns); /* or reading, */
  double loop_work;
  const bench_region *region; /* or, with neither, barriers */
  size_t streams, width; /* of the reading */
  bool stop;    /* barriers: all leave after the same one */
  double *rate; /* of each thread */
} window;

/* Goes on where the thread stopped: what is in a cache was read long ago, unless
 * all of the part fits there. */
static double read_piece(const window *w, unsigned thread, size_t *at) {
  const bench_region *r = w->region;
  size_t each = r->part / w->streams, piece = READ_PIECE / w->streams, done = 0;
  while (done < piece) {
    if (*at >= each) *at = 0;
    size_t length = piece < each - *at ? piece : each - *at;
    perf_read(r->data + thread * r->stride + *at, length, each, w->streams, w->width);
    *at += length;
    done += length;
  }
  return (double)(done * w->streams);
}

static double thread_seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void run_window(void *arg, unsigned thread, unsigned threads) {
  window *w = arg;
  double work = 0, now;
  size_t at = w->region ? w->region->cursor[thread] : 0;
  if (threads > 1) hr_team_barrier(w->team, thread);
  double start = cli_now(), used = thread_seconds();
  do {
    if (w->loop) {
      w->loop(PEAK_TURNS);
      work += w->loop_work * PEAK_TURNS;
    } else {
      work += read_piece(w, thread, &at);
    }
    now = cli_now();
  } while (now - start < w->seconds);
  /* Registers are a core's own: time in which it did something else does not
   * count. Memory is shared: who reads alone reads faster than all together. */
  double spent = w->loop ? thread_seconds() - used : now - start;
  w->rate[thread] = spent > 0 ? work / spent : 0;
  if (w->region) w->region->cursor[thread] = at;
}

/* The fastest few of them count: one thread that something else interrupts makes a
 * barrier a thousand times as long, and the limit is what it takes at least. All leave
 * together: the first thread decides before a barrier, the others look behind it, and
 * there are more barriers before it decides again. */
static void run_barriers(void *arg, unsigned thread, unsigned threads) {
  window *w = arg;
  double start = cli_now(), before = start, least = 0;
  (void)threads;
  for (bool stop = false; !stop;) {
    for (int i = 1; i < BARRIERS; i++) hr_team_barrier(w->team, thread);
    if (thread == 0) w->stop = cli_now() - start > w->seconds;
    hr_team_barrier(w->team, thread);
    stop = w->stop;
    double now = cli_now();
    if (least == 0 || now - before < least) least = now - before;
    before = now;
  }
  if (thread == 0) w->rate[0] = least > 0 ? BARRIERS / least : 0;
}

/* The sum over the threads; 0 with an error. */
static double rate_of(window *w, unsigned threads, hr_error *err) {
  double sum = 0;
  bool barriers = !w->loop && !w->region;
  w->rate = hr_calloc(threads, sizeof *w->rate);
  if (!w->rate) {
    *err = (hr_error){.status = HR_ERROR_MEMORY, .message = "not enough memory"};
    return 0;
  }
  if (hr_team_run(w->team, threads, barriers ? run_barriers : run_window, w, err) == HR_OK)
    for (unsigned i = 0; i < threads; i++) sum += w->rate[i];
  hr_free(w->rate);
  return sum;
}

/* The fastest of one stream and of four, by each width of loads: machines differ. */
double bench_rate_of_reading(hr_team *team, unsigned threads, const bench_region *region,
                             double seconds, hr_error *err) {
  size_t width[PERF_MOST_WIDTHS], widths = perf_read_widths(hr_cpu_features(), width);
  double best = 0;
  window w = {.team = team, .region = region, .seconds = seconds};
  for (size_t i = 0; i < 2 * widths; i++) {
    w.streams = i % 2 ? PERF_MOST_STREAMS : 1;
    w.width = width[i / 2];
    double rate = rate_of(&w, threads, err);
    if (rate > best) best = rate;
  }
  return best;
}

/* A multiply and an addition are two operations. */
double bench_rate_of_loop(hr_team *team, unsigned threads, void (*loop)(size_t), double work,
                          hr_error *err) {
  window w = {.team = team, .seconds = peak_window, .loop = loop, .loop_work = 2 * work};
  return rate_of(&w, threads, err);
}

double bench_rate_of_barriers(hr_team *team, unsigned threads, hr_error *err) {
  window w = {.team = team, .seconds = barrier_window};
  return threads > 1 ? rate_of(&w, threads, err) : 0;
}

/* --- The limits of a place ---------------------------------------------------- */

/* A thread's part of the buffer, a multiple of a step in each of its streams. */
static size_t part_bytes(const bench_buffer *b, unsigned threads) {
  return b->bytes / threads / BENCH_REGION_STEP * BENCH_REGION_STEP;
}

static int sample(bench_buffer *buffer, const bench_place *place, bench_limits *limits) {
  const double read_window = 8e-3; /* seconds */
  hr_error err = {.status = HR_OK};
  hr_team *team = place->session->team;
  unsigned threads = limits->threads;
  size_t part = part_bytes(buffer, threads);
  bench_region region = {buffer->data, part, part, buffer->cursor};
  const perf_peaks *p = place->peaks;
  double now[BENCH_LIMITS] = {0};
  now[BENCH_READ] = bench_rate_of_reading(team, threads, &region, read_window, &err);
  now[BENCH_BARRIER] = bench_rate_of_barriers(team, threads, &err);
  if (p) {
    now[BENCH_INT8] = bench_rate_of_loop(team, threads, p->dot, p->dot_work, &err);
    now[BENCH_FP32] = bench_rate_of_loop(team, threads, p->fma, p->fma_work, &err);
  }
  if (err.status != HR_OK) return cli_fail_error("limits", &err);
  for (int i = 0; i < BENCH_LIMITS; i++) limits->value[i][limits->count] = now[i];
  limits->count++;
  return HR_OK;
}

int bench_limits_sample(bench_buffer *buffer, bench_place *place) {
  for (size_t i = 0; i < 2; i++)
    if (place->limits[i].threads) {
      int status = sample(buffer, place, &place->limits[i]);
      if (status != HR_OK) return status;
    }
  return HR_OK;
}

const bench_limits *bench_limits_for(const bench_place *place, bool many) {
  return &place->limits[many && place->limits[1].threads];
}

double bench_limit_best(const bench_limits *limits, bench_limit which) {
  double best = 0;
  for (size_t i = 0; i < limits->count; i++)
    if (limits->value[which][i] > best) best = limits->value[which][i];
  return best;
}

/* --- Memory ------------------------------------------------------------------ */

/* Pages come where they are first written: near the thread that will read them. */
static void touch(void *arg, unsigned thread, unsigned threads) {
  bench_buffer *b = arg;
  size_t part = part_bytes(b, threads);
  memset(b->data + thread * part, 1, thread + 1 == threads ? b->bytes - thread * part : part);
}

int bench_buffer_make(bench_buffer *buffer, size_t bytes, unsigned threads, hr_team *team) {
  hr_error err;
  bench_buffer_free(buffer);
  /* every thread needs a little, in four streams */
  size_t least = (size_t)threads * PERF_MOST_STREAMS * 4096;
  buffer->bytes = bytes > least ? bytes : least;
  buffer->most_threads = threads;
  buffer->cursor = hr_calloc(threads, sizeof *buffer->cursor);
  buffer->data = hr_alloc_pages(buffer->bytes);
  if (!buffer->data || !buffer->cursor) return cli_fail_memory();
  if (hr_team_run(team, threads, touch, buffer, &err) != HR_OK)
    return cli_fail_error("limits", &err);
  hr_pages pages;
  bool known = hr_pages_read(&pages, "/proc/self/smaps", buffer->data);
  buffer->huge = known ? pages.huge > 0 : -1;
  return HR_OK;
}

void bench_buffer_free(bench_buffer *buffer) {
  hr_free_pages(buffer->data, buffer->bytes);
  hr_free(buffer->cursor);
  *buffer = (bench_buffer){0};
}
