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
  bench_way way; /* of the reading */
  bool steps;    /* reading goes by the steps of a token */
  bool stop;     /* barriers and steps: all leave after the same one */
  double *rate;  /* of each thread */
} window;

/* What a stream reads of a part, a multiple of a step; 0: the part is too short. */
static size_t stream_bytes(const bench_region *r, const bench_part *part, size_t streams) {
  size_t bytes = r->most && r->most < part->bytes ? r->most : part->bytes;
  return bytes / streams / PERF_READ_STEP * PERF_READ_STEP;
}

/* Goes on where the thread stopped: what is in a cache was read long ago, unless
 * all of the parts fit there. Returns the bytes, of one part. */
static double read_piece(const window *w, unsigned thread) {
  const bench_region *r = w->region;
  const size_t streams = w->way.streams, piece = READ_PIECE / streams;
  bench_cursor *c = &r->cursor[thread];
  const bench_part *part = &r->part[thread * r->parts + c->part];
  size_t each = stream_bytes(r, part, streams), left = c->at < each ? each - c->at : 0;
  size_t length = piece < left ? piece : left;
  if (length) perf_read(part->data + c->at, length, each, streams, w->way.width);
  c->at += length;
  if (c->at >= each) *c = (bench_cursor){.part = c->part + 1 < r->parts ? c->part + 1 : 0};
  return (double)(length * streams);
}

/* So much that the clock read behind it does not show. */
static double read_pieces(const window *w, unsigned thread) {
  double bytes = 0;
  for (size_t i = 0; bytes < READ_PIECE && i <= w->region->parts; i++)
    bytes += read_piece(w, thread);
  return bytes;
}

static double thread_seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void run_window(void *arg, unsigned thread, unsigned threads) {
  window *w = arg;
  double work = 0, now;
  if (threads > 1) hr_team_barrier(w->team, thread);
  double start = cli_now(), used = thread_seconds();
  do {
    if (w->loop) {
      w->loop(PEAK_TURNS);
      work += w->loop_work * PEAK_TURNS;
    } else {
      work += read_pieces(w, thread);
    }
    now = cli_now();
  } while (now - start < w->seconds);
  /* Registers are a core's own: time in which it did something else does not
   * count. Memory is shared: who reads alone reads faster than all together. */
  double spent = w->loop ? thread_seconds() - used : now - start;
  w->rate[thread] = spent > 0 ? work / spent : 0;
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

/* All of a part in as many streams; returns the bytes. */
static double read_part(const window *w, unsigned thread, size_t i) {
  const bench_region *r = w->region;
  const bench_part *part = &r->part[thread * r->parts + i];
  size_t each = stream_bytes(r, part, w->way.streams);
  if (each) perf_read(part->data, each, each, w->way.streams, w->way.width);
  return (double)(each * w->way.streams);
}

/* As the threads of a token wait before a product: what is read next is fetched meanwhile. */
static void wait_fetching(const window *w, unsigned thread, size_t next) {
  enum { MOST = 64 << 10 };
  const bench_region *r = w->region;
  const bench_part *part = &r->part[thread * r->parts];
  while (next + 1 < r->parts && part[next].bytes == 0) next++;
  size_t bytes = part[next].bytes < MOST ? part[next].bytes : MOST;
  hr_team_barrier_fetching(w->team, thread, part[next].data, bytes);
}

/* Matrix after matrix, with a token's barriers behind them. Before the first of two the first
 * thread decides whether all leave, between them the others look. */
static void run_steps(void *arg, unsigned thread, unsigned threads) {
  window *w = arg;
  const bench_region *r = w->region;
  size_t i = *r->next;
  double bytes = 0;
  if (threads > 1) hr_team_barrier(w->team, thread);
  double start = cli_now();
  for (bool stop = false; !stop;) {
    bytes += read_part(w, thread, i);
    unsigned barriers = bench_barriers_behind(i, r->parts);
    i = i + 1 < r->parts ? i + 1 : 0;
    if (barriers == 2 && thread == 0) w->stop = cli_now() - start > w->seconds;
    if (threads > 1 && barriers == 2) hr_team_barrier(w->team, thread);
    if (barriers == 2) stop = w->stop;
    if (threads > 1 && barriers > 0) wait_fetching(w, thread, i);
  }
  double spent = cli_now() - start;
  w->rate[thread] = spent > 0 ? bytes / spent : 0;
  if (thread == 0) *r->next = i;
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
  hr_team_fn *run = barriers ? run_barriers : w->steps ? run_steps : run_window;
  if (hr_team_run(w->team, threads, run, w, err) == HR_OK)
    for (unsigned i = 0; i < threads; i++) sum += w->rate[i];
  hr_free(w->rate);
  return sum;
}

double bench_rate_of_reading_so(hr_team *team, unsigned threads, const bench_region *region,
                                double seconds, bench_way way, hr_error *err) {
  window w = {.team = team, .region = region, .seconds = seconds, .way = way};
  return rate_of(&w, threads, err);
}

double bench_rate_of_steps(hr_team *team, unsigned threads, const bench_region *weights,
                           double seconds, bench_way way, hr_error *err) {
  window w = {.team = team, .region = weights, .seconds = seconds, .way = way, .steps = true};
  return rate_of(&w, threads, err);
}

/* By each width of loads, in one, two and four streams: machines differ. */
double bench_rate_of_reading(hr_team *team, unsigned threads, const bench_region *region,
                             double seconds, bench_way *way, hr_error *err) {
  size_t width[PERF_MOST_WIDTHS], widths = perf_read_widths(hr_cpu_features(), width);
  double best = 0;
  for (size_t i = 0; i < widths; i++)
    for (size_t streams = 1; streams <= PERF_MOST_STREAMS; streams *= 2) {
      bench_way now = {width[i], streams};
      double rate = bench_rate_of_reading_so(team, threads, region, seconds, now, err);
      if (rate > best && way) *way = now;
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

/* --- The weights --------------------------------------------------------------- */

static void add_part(bench_region *r, unsigned thread, size_t i, const hr_matrix *m, size_t begin,
                     size_t end) {
  size_t panel = hr_panel_bytes(m->type, m->k);
  r->part[thread * r->parts + i] =
      (bench_part){(const char *)m->panels + begin * panel, (end - begin) * panel};
}

/* Which panels a thread reads for a token: those of the engine's own split. */
static void find_weights(bench_limits *limits, const hr_session *s) {
  const hr_transformer *t = &s->model->loaded.transformer;
  const uint32_t *shares = hr_team_shares(s->team, limits->active);
  bench_region *r = &limits->weights;
  for (unsigned thread = 0; thread < limits->active; thread++)
    for (size_t i = 0; i < r->parts; i++) {
      const hr_matrix *m = bench_matrix(t, i);
      size_t begin = 0, end = 0;
      if (!m->panels) continue;
      hr_panels_of_thread(t, m, thread, limits->active, shares, &begin, &end);
      add_part(r, thread, i, m, begin, end);
    }
}

static bool make_region(bench_region *r, unsigned threads, size_t parts) {
  size_t bytes;
  r->parts = parts;
  if (!hr_mul_size(threads * sizeof *r->part, parts, &bytes)) return false;
  r->part = hr_calloc(1, bytes);
  r->cursor = aligned_alloc(sizeof *r->cursor, threads * sizeof *r->cursor);
  if (r->cursor) memset(r->cursor, 0, threads * sizeof *r->cursor);
  r->next = calloc(1, sizeof *r->next);
  return r->part && r->cursor && r->next;
}

static void free_region(bench_region *r) {
  hr_free(r->part);
  free(r->cursor);
  free(r->next);
  *r = (bench_region){0};
}

/* --- The limits of a place ---------------------------------------------------- */

int bench_limits_make(bench_limits *limits, const hr_session *session, bool many, size_t rounds) {
  limits->threads = many ? hr_session_threads_batch(session) : hr_session_threads(session);
  limits->active = hr_session_active(session, many);
  for (int i = 0; i < BENCH_LIMITS; i++) {
    limits->value[i] = calloc(rounds, sizeof *limits->value[i]);
    if (!limits->value[i]) return cli_fail_memory();
  }
  size_t parts = bench_matrices(&session->model->loaded.transformer);
  if (!make_region(&limits->weights, limits->active, parts)) return cli_fail_memory();
  find_weights(limits, session);
  return HR_OK;
}

void bench_limits_free(bench_limits *limits) {
  for (int i = 0; i < BENCH_LIMITS; i++) free(limits->value[i]);
  free_region(&limits->weights);
}

double bench_limits_bytes(const bench_limits *limits) {
  double sum = 0;
  for (size_t i = 0; i < limits->active * limits->weights.parts; i++)
    sum += (double)limits->weights.part[i].bytes;
  return sum;
}

/* In one, two and four streams, by the loads that read fastest. */
static double rate_of_steps(const bench_place *place, bench_limits *limits, hr_error *err) {
  const double steps_window = 5e-3; /* seconds */
  double best = 0;
  for (size_t streams = 1; streams <= PERF_MOST_STREAMS; streams *= 2) {
    bench_way way = {limits->way.width, streams};
    double rate = bench_rate_of_steps(place->session->team, limits->active, &limits->weights,
                                      steps_window, way, err);
    if (rate > best) limits->steps_way = way;
    if (rate > best) best = rate;
  }
  return best;
}

static int sample(const bench_place *place, bench_limits *limits) {
  const double read_window = 8e-3; /* seconds */
  hr_error err = {.status = HR_OK};
  hr_team *team = place->session->team;
  unsigned threads = limits->active;
  const perf_peaks *p = place->peaks;
  double now[BENCH_LIMITS] = {0};
  now[BENCH_READ] = bench_rate_of_reading(team, threads, &limits->weights, read_window,
                                          &limits->way, &err);
  now[BENCH_STEPS] = rate_of_steps(place, limits, &err);
  now[BENCH_BARRIER] = bench_rate_of_barriers(team, threads, &err);
  if (p) {
    now[BENCH_INT8] = bench_rate_of_loop(team, threads, p->dot, p->dot_work, &err);
    now[BENCH_FP32] = bench_rate_of_loop(team, threads, p->fma, p->fma_work, &err);
    if (p->tile) now[BENCH_FORM] = bench_rate_of_loop(team, threads, p->tile, p->tile_work, &err);
    if (p->attend)
      now[BENCH_ATTEND] = bench_rate_of_loop(team, threads, p->attend, p->attend_work, &err);
  }
  if (err.status != HR_OK) return cli_fail_error("limits", &err);
  for (int i = 0; i < BENCH_LIMITS; i++) limits->value[i][limits->count] = now[i];
  limits->count++;
  return HR_OK;
}

int bench_limits_sample(bench_place *place) {
  for (size_t i = 0; i < 2; i++)
    if (place->limits[i].threads) {
      int status = sample(place, &place->limits[i]);
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

/* A thread's part of the buffer, a multiple of a step in each of its streams. */
const bench_region *bench_buffer_for(bench_buffer *b, unsigned threads) {
  size_t part = b->bytes / threads / BENCH_REGION_STEP * BENCH_REGION_STEP;
  for (unsigned i = 0; i < threads; i++)
    b->region.part[i] = (bench_part){b->data + i * part, part};
  return &b->region;
}

/* Pages come where they are first written: near the thread that will read them. */
static void touch(void *arg, unsigned thread, unsigned threads) {
  bench_buffer *b = arg;
  size_t from = (size_t)(b->region.part[thread].data - b->data);
  size_t to = thread + 1 == threads ? b->bytes
                                    : (size_t)(b->region.part[thread + 1].data - b->data);
  memset(b->data + from, 1, to - from);
}

int bench_buffer_make(bench_buffer *buffer, size_t bytes, unsigned threads, hr_team *team) {
  hr_error err;
  bench_buffer_free(buffer);
  /* every thread needs a little, in four streams */
  size_t least = (size_t)threads * PERF_MOST_STREAMS * 4096;
  buffer->bytes = bytes > least ? bytes : least;
  buffer->most_threads = threads;
  buffer->data = hr_alloc_pages(buffer->bytes);
  if (!make_region(&buffer->region, threads, 1) || !buffer->data) return cli_fail_memory();
  (void)bench_buffer_for(buffer, threads);
  if (hr_team_run(team, threads, touch, buffer, &err) != HR_OK)
    return cli_fail_error("limits", &err);
  hr_pages pages;
  bool known = hr_pages_read(&pages, "/proc/self/smaps", buffer->data);
  buffer->huge = known ? pages.huge > 0 : -1;
  return HR_OK;
}

void bench_buffer_free(bench_buffer *buffer) {
  hr_free_pages(buffer->data, buffer->bytes);
  free_region(&buffer->region);
  *buffer = (bench_buffer){0};
}
