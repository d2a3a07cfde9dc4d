/* SPDX-License-Identifier: MIT
 * Private to the files of `headrow bench`: what is measured, and with what. */
#ifndef HR_CLI_BENCH_H
#define HR_CLI_BENCH_H

#include <jansson.h>

#include "cli.h"
#include "engine/engine.h"
#include "interrupt.h"
#include "perf/kernel_bench.h"
#include "perf/limits.h"
#include "sched/topology.h"
#include "sensors.h"
#include "statistics.h"
#include "synthetic.h"

enum { BENCH_SCHEMA = 7 };

/* A list of numbers as an option gives it. */
typedef struct bench_numbers {
  uint64_t *item;
  size_t count;
} bench_numbers;

typedef struct bench_settings {
  cli_common common;
  const char *prompt, *predict, *depth, *batch, *threads; /* lists, NULL: default */
  cli_count repeat;
  const char *synthetic, *block, *save, *json, *only, *sysroot;
  bool csv, markdown, profile, cold, kernels, no_cache;
} bench_settings;

/* What a machine can do at most, by the threads of a session; a sample a round. */
typedef enum bench_limit {
  BENCH_READ,
  BENCH_INT8,
  BENCH_FP32,
  BENCH_FORM,   /* int8 with all that the products do to a tile, on registers */
  BENCH_ATTEND, /* fp32 with all that attention does, for heads of PERF_ATTEND_WIDTH */
  BENCH_STEPS,  /* reading as a token does, with the barriers between */
  BENCH_BARRIER,
  BENCH_LIMITS
} bench_limit;

/* A way to read: loads of so many bytes, in so many streams side by side. */
typedef struct bench_way {
  size_t width, streams;
} bench_way;

/* Memory that one thread reads from begin to end, and its place in it. */
typedef struct bench_part {
  const char *data;
  size_t bytes;
} bench_part;
typedef struct bench_cursor {
  _Alignas(64) size_t part, at; /* the threads' cursors are on lines of their own */
} bench_cursor;

/* What threads read: each its parts, again and again from where it stopped. */
enum { BENCH_REGION_STEP = PERF_READ_STEP * PERF_MOST_STREAMS };
typedef struct bench_region {
  bench_part *part; /* [threads][parts]; a part shorter than a step is left out */
  size_t parts;
  size_t most; /* bytes of a part that are read; 0: all */
  bench_cursor *cursor; /* [threads] */
  size_t *next;         /* the part that is read next, where all threads go part by part */
} bench_region;

/* Limits of so many threads, by those of them that work. A sample a round. */
typedef struct bench_limits {
  unsigned threads; /* 0: none */
  unsigned active;
  double *value[BENCH_LIMITS]; /* bytes, operations or barriers a second */
  size_t count;
  bench_region weights; /* of the model, as its tokens read them */
  bench_way way, steps_way; /* that were the fastest in the last sample */
} bench_limits;

/* Memory that is read for its speed. */
typedef struct bench_buffer {
  char *data;
  size_t bytes;
  bench_region region; /* for most_threads of them, or fewer */
  unsigned most_threads;
  int huge; /* lies in huge pages: 1 yes, 0 no, -1 not known */
} bench_buffer;

/* What the whole machine can do, apart from any model. */
enum { BENCH_ROUNDS = 5, BENCH_POINTS = 16, BENCH_CACHES = 3, BENCH_TIERS = 8 };

typedef struct bench_series {
  double sample[BENCH_ROUNDS]; /* a second */
} bench_series;

typedef struct bench_capacity {
  unsigned threads; /* as many as the machine is good for */
  size_t rounds;
  size_t buffer_bytes;
  int huge; /* as in bench_buffer */
  struct {
    unsigned threads;
    bench_series read, barrier;
  } point[BENCH_POINTS];
  size_t points;
  struct {
    hr_cache_size size; /* the smallest of any CPU; 0 bytes: there is none */
    size_t part[2];     /* bytes that each thread reads: one alone, and all; 0: not measured */
    bench_series read[2];
  } cache[BENCH_CACHES];
  struct {
    const char *isa;
    const perf_peaks *peaks;
    bench_series int8[2], fp32[2]; /* one alone, and all */
  } tier[BENCH_TIERS];
  size_t tiers;
} bench_capacity;

/* How long a model takes to load. Below 0: not known, for that reason. */
typedef struct bench_loading {
  double seconds; /* the one that was used */
  double cold, warm;
  char cold_reason[128], warm_reason[128];
} bench_loading;

/* What a test does: one call with all tokens of a prompt, or a call for each token.
 * Every sequence has as many tokens, behind as many that its cache holds. */
typedef struct bench_amount {
  bool prompt;
  size_t tokens, depth, batch; /* batch: sequences at once */
  bool all_rows; /* have logits; else the last one of each sequence, and of the last layer the
                    others need keys and values only */
} bench_amount;

/* Work of a test, added up from the model's matrices. */
typedef struct bench_work {
  double int8_macs, float_macs, bytes;
  double attend_macs; /* those of float_macs that are attention's */
  double barriers;    /* at least */
} bench_work;

/* A kernel tier and a number of threads. */
typedef struct bench_place {
  const hr_model *model;
  const perf_peaks *peaks; /* NULL: not known */
  hr_session *session;
  double session_seconds;
  hr_cpuset cpus; /* that its threads are pinned to */
  bool pinned;
  double best_mhz; /* of those CPUs while samples were taken */
  double most_mhz; /* that those CPUs are made for; 0: not known */
  double resident; /* bytes in memory that came with its session and first round; below 0 when
                      that can't be known */
  size_t *filled; /* [most sequences] positions that hold the usual ids */
  bench_limits limits[2]; /* for one row, and for many when that takes other threads */
} bench_place;

/* One thing whose speed is wanted. */
typedef struct bench_test {
  bench_place *place;
  bench_amount amount;
  size_t passes;   /* of a block: as many calls make a sample, which is their mean */
  double *seconds; /* a sample each, count of them */
  double *first;   /* prompt: with the first token picked */
  double *reading; /* generate: bytes a second of plainly reading the weights in turn with each
                      sample's tokens */
  double *steps;   /* generate: the same with the barriers of a token between */
  cli_state (*state)[2]; /* of the machine, before and after each sample */
  size_t count;
  bool has_digest;
  uint64_t digest, first_digest; /* of the last logits: of all sequences, of the first */
  bench_work work;
  hr_profile *profile; /* one a thread; NULL without --profile */
  double profile_seconds; /* of all kept samples' calls */
} bench_test;

/* Logits of a few tokens, against what they have to be. */
typedef struct bench_check {
  bool has_digest, has_expected;
  uint64_t digest, expected;
  char by[96];    /* what it was compared with, or why it was not; "": not yet */
  size_t few;     /* of a large model only so many tokens were; 0: all */
  uint64_t few_expected;
} bench_check;

typedef struct bench {
  bench_settings set;
  bench_numbers prompt, predict, depth, batch, threads;
  cli_shape shape;
  cli_image image;
  double make_seconds;
  bench_loading loading;
  hr_model *model, *variant; /* the same weights with the kernels of each tier */
  size_t variants;
  hr_sampler *sampler;
  int32_t *ids;
  size_t context, sequences, ids_count;
  hr_batch_piece *piece; /* [sequences] of a call, or */
  hr_tokens *text; /* [sequences] */
  int32_t *next;   /* [sequences] tokens that were picked */
  bench_place *place;
  size_t places;
  bench_test *test;
  size_t tests;
  struct {
    cli_progress *shown;  /* NULL: there is no terminal */
    double from, size;    /* of what is being done, as a share of all rounds */
  } progress;
  int huge; /* the weights lie in huge pages: 1 yes, 0 no, -1 not known */
  bench_capacity capacity;
  cli_sensors *sensors;
  double best_mhz; /* seen while samples were taken */
  unsigned cpus;   /* of the system */
  perf_kernel_row *kernel;
  double **kernel_samples; /* of each: its rates, then its limits */
  size_t kernels;
  double load_before, load_after; /* average of the last minute; below 0: not known */
  size_t loading_bytes, peak_bytes; /* most of the process, when the model was there and when all
                                       was measured; 0: not known */
  bench_check check;
  char **warning; /* each once, as they came */
  size_t warnings;
} bench;

/* Notes a warning once: on standard error at once, and for the JSON. */
void bench_warn(bench *b, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* "prompt 512" or "generate 128 at depth 4096, batch 4". */
const char *bench_test_name(const bench_test *t, char text[64]);
/* Tokens of all sequences. */
size_t bench_test_tokens(const bench_test *t);

/* 1, 2, 3, 4, 6, 8, 12 ... and most itself: steps that show where more threads stop
 * to help. At most room of them; returns how many. */
size_t bench_thread_counts(unsigned most, unsigned *list, size_t room);
/* Progress on a terminal. *show is false when there is none to be shown. */
cli_progress bench_progress(const bench *b, const char *what, bool *show);

/* bench_samples.c: takes all samples. Returns a status. */
int bench_measure(bench *b);
/* A warning where fewer samples were asked for than tell something of their spread. */
void bench_warn_of_few(bench *b);
/* An hr_progress_fn of the sessions: done is the share of what is being done; data is
 * the bench. */
bool bench_report_progress(void *data, double done);
/* What disturbed a sample; "" for nothing. */
const char *bench_disturbance(const bench *b, const bench_test *t, size_t sample,
                              char text[CLI_SENSOR_TEXT]);
/* Joules of a sample; below 0: not known. */
double bench_joules(const bench *b, const bench_test *t, size_t sample);
/* Whether its passes have more rows than one, which may be other threads' work. */
bool bench_test_many(const bench_test *t);
unsigned bench_test_threads(const bench_test *t);

/* The least time that the limits allow for some work of a test. */
typedef struct bench_bound {
  double seconds;    /* 0: not known */
  const char *limit; /* which one binds; why it isn't known */
  double form_seconds; /* with int8 products and attention at what their form allows; 0: not known,
                          or reading or barriers bind: */
  bool reads;
} bench_bound;
bench_bound bench_bound_of(const bench_test *test, const bench_work *work); /* bench_work.c */
/* The matrices that weights are multiplied in; one without panels is not there. */
size_t bench_matrices(const hr_transformer *transformer);
const hr_matrix *bench_matrix(const hr_transformer *transformer, size_t i);
/* How many barriers a token has behind the i-th of them; two where attention follows. */
unsigned bench_barriers_behind(size_t i, size_t count);

/* A test in numbers. */
typedef struct bench_result {
  cli_statistics seconds, rate, first, joules; /* joules for each token; count 0: not known */
  bench_bound bound;
  double percent; /* of the limit, by the median; below 0: not known */
  bool valid;
  double of_form; /* percent: of what the form of products and attention allows, or, where a
                     generation reads, its steps in the median of the samples; below 0: not known */
  double of_reading; /* percent: bytes of the tokens beside reading in turn; median of the samples;
                        below 0: not known */
  size_t disturbed; /* samples */
} bench_result;
/* Statistics of scale/x, or of x itself when scale is 0; false when memory is out. */
bool bench_statistics_of(const double *samples, size_t count, double scale, cli_statistics *to);
/* False when memory is out. */
bool bench_result_of(const bench *b, const bench_test *t, bench_result *r);

/* bench_limits.c: rates of all threads together, 0 with an error. Barriers: how
 * many a second, 0 for one thread. */
/* Of the fastest way to read, which *way becomes unless it is NULL. */
double bench_rate_of_reading(hr_team *team, unsigned threads, const bench_region *region,
                             double seconds, bench_way *way, hr_error *err);
double bench_rate_of_reading_so(hr_team *team, unsigned threads, const bench_region *region,
                                double seconds, bench_way way, hr_error *err);
/* Matrix after matrix of the weights, with a token's barriers, from where the last such window
 * ended to behind some layer's values. */
double bench_rate_of_steps(hr_team *team, unsigned threads, const bench_region *weights,
                           double seconds, bench_way way, hr_error *err);
double bench_rate_of_loop(hr_team *team, unsigned threads, void (*loop)(size_t), double work,
                          hr_error *err);
double bench_rate_of_barriers(hr_team *team, unsigned threads, hr_error *err);
/* Memory for bytes of reading by up to that many threads. */
int bench_buffer_make(bench_buffer *buffer, size_t bytes, unsigned threads, hr_team *team);
/* Its region for so many of them, until the next call. */
const bench_region *bench_buffer_for(bench_buffer *buffer, unsigned threads);
void bench_buffer_free(bench_buffer *buffer);
/* Room for samples of limits by a session's threads for one row or for many, and a sample of
 * every limit of a place. */
int bench_limits_make(bench_limits *limits, const hr_session *session, bool many, size_t rounds);
void bench_limits_free(bench_limits *limits);
int bench_limits_sample(bench_place *place);
/* The limits that hold for one row or for many. */
const bench_limits *bench_limits_for(const bench_place *place, bool many);
/* Bytes that a token reads of the weights, in these threads' regions. */
double bench_limits_bytes(const bench_limits *limits);
double bench_limit_best(const bench_limits *limits, bench_limit which);

/* bench_capacity.c */
int bench_capacity_measure(bench *b);
double bench_series_best(const bench *b, const bench_series *series);

/* bench_loading.c: opens the model and notes how long that took. */
int bench_load(bench *b, const cli_common *common);

/* bench_check.c: whether the logits are right, before anything is timed. Status 1 with a
 * sentence when they are not. */
int bench_check_outputs(bench *b);
/* The digest that a known model's check ends in, by the name that bench shows; cache: of fp16
 * keys and values. False for other models. */
bool bench_known_digest(const char *model, bool half, uint64_t *digest);

/* bench_kernels.c: measures the kernels of the tiers asked for. */
int bench_kernels(bench *b);

/* bench_work.c */
void bench_work_add(bench_work *to, const bench_work *more);
bench_work bench_work_of(const hr_session *session, const bench_amount *amount);
void bench_work_by_part(const hr_session *session, const bench_amount *amount,
                        bench_work part[HR_PARTS]);

/* bench_profile.c: the times of the parts of a pass, for --profile. Between start
 * and stop the test's passes are timed; not kept: a round that warms up. */
int bench_profile_make(bench_test *test);
void bench_profile_start(bench_test *test);
void bench_profile_stop(bench_test *test, double seconds, bool keep);
void bench_profile_free(bench_test *test);
/* A table a test, in Markdown or not. */
void bench_profile_print(const bench *b);
json_t *bench_profile_json(const bench_test *test); /* null without --profile */

/* bench_machine.c: what is told of the machine. */
size_t bench_memory(const char *file, const char *key); /* bytes; 0: not known */
/* Bytes of the process that are in memory; below 0: not known. */
double bench_resident(void);
/* Where /proc and /sys of the machine are: "" for this one. */
const char *bench_sysroot(const bench *b);
size_t bench_free_memory(void); /* that may be taken; 0: not known */
double bench_load_average(void);
/* Real-time priority, which one may take to be left alone, is not for all of the time. */
void bench_warn_of_realtime(bench *b);
json_t *bench_json_machine(const bench *b);

/* The same test by other numbers of threads, in the order of the threads; without those of which
 * not all work. */
typedef struct bench_scaling {
  const bench_test *test[64];
  double rate[64]; /* medians */
  size_t count;
  size_t knee; /* the first that reaches 95 % of the best rate */
} bench_scaling;
/* For a test that is the first of its kind when there are others: true. */
bool bench_scaling_of(const bench *b, const bench_test *first, bench_scaling *s);
double bench_median_rate(const bench *b, const bench_test *t);

/* bench_report.c: tables. Returns a status. */
int bench_report(const bench *b);
const char *bench_model_name(const bench *b);
const char *bench_compiler(void);
size_t bench_own_bytes(const bench *b); /* what bench itself holds, within the peak */
/* The most memory that one place would need alone, without what bench holds for itself: the
 * most while loading, or the peak less the other places' sessions; 0: not known. */
size_t bench_alone_bytes(const bench *b, const bench_place *place);

/* bench_json.c: all there is to know; NULL when memory is out. */
json_t *bench_json(const bench *b);

#endif
