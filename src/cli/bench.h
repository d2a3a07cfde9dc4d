/* SPDX-License-Identifier: MIT
 * Private to the files of `headrow bench`: what is measured, and with what. */
#ifndef HR_CLI_BENCH_H
#define HR_CLI_BENCH_H

#include <jansson.h>

#include "cli.h"
#include "engine/engine.h"
#include "perf/limits.h"
#include "synthetic.h"

enum { BENCH_SCHEMA = 1, BENCH_WARNINGS = 16 };

/* A list of numbers as an option gives it. */
typedef struct bench_numbers {
  uint64_t *item;
  size_t count;
} bench_numbers;

typedef struct bench_settings {
  cli_common common;
  const char *prompt, *predict, *depth, *threads; /* lists, NULL: default */
  cli_count repeat;
  const char *synthetic, *save, *json;
  bool csv, markdown, profile;
} bench_settings;

/* What a machine can do at most, by the threads of a session; a sample a round. */
typedef enum bench_limit { BENCH_READ, BENCH_INT8, BENCH_FP32, BENCH_LIMITS } bench_limit;

typedef struct bench_limits {
  unsigned threads;
  double *value[BENCH_LIMITS]; /* bytes or operations a second */
  size_t count;
} bench_limits;

/* Memory that is read for its speed: as much as a token reads, within bounds. */
typedef struct bench_buffer {
  char *data;
  size_t bytes;
  size_t *cursor; /* of each thread, in its part */
  unsigned most_threads;
  int huge; /* lies in huge pages: 1 yes, 0 no, -1 not known */
} bench_buffer;

/* Work of a test, added up from the model's matrices. */
typedef struct bench_work {
  double int8_macs, float_macs, bytes;
} bench_work;

/* A kernel tier and a number of threads. */
typedef struct bench_place {
  const hr_model *model;
  const perf_peaks *peaks; /* NULL: not known */
  hr_session *session;
  double session_seconds;
  size_t filled; /* positions that hold the usual ids */
  bench_limits limits[2]; /* for one row, and for many when that takes other threads */
} bench_place;

/* One thing whose speed is wanted. */
typedef struct bench_test {
  bench_place *place;
  bool prompt; /* else tokens one at a time */
  size_t tokens, depth;
  double *seconds; /* a sample each, count of them */
  double *first;   /* prompt: with the first token picked */
  size_t count;
  bool has_digest;
  uint64_t digest; /* of the last logits */
  bench_work work;
  hr_profile *profile; /* one a thread; NULL without --profile */
  double profile_seconds; /* of all kept samples */
} bench_test;

typedef struct bench {
  bench_settings set;
  bench_numbers prompt, predict, depth, threads;
  cli_shape shape;
  cli_image image;
  double make_seconds, load_seconds;
  hr_model *model, *variant; /* the same weights with the kernels of each tier */
  size_t variants;
  hr_sampler *sampler;
  int32_t *ids;
  size_t context, ids_count;
  bench_place *place;
  size_t places;
  bench_test *test;
  size_t tests;
  bench_buffer buffer;
  double load_before, load_after; /* average of the last minute; below 0: not known */
  size_t peak_bytes;              /* 0: not known */
  char warning[BENCH_WARNINGS][256];
  size_t warnings;
} bench;

/* Notes a warning once. */
void bench_warn(bench *b, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* "prompt 512" or "generate 128 at depth 4096". */
const char *bench_test_name(const bench_test *t, char text[64]);

/* bench_limits.c: memory for bytes of reading by up to that many threads, and a
 * sample of every limit of a place. */
int bench_buffer_make(bench_buffer *buffer, size_t bytes, unsigned threads, hr_team *team);
void bench_buffer_free(bench_buffer *buffer);
int bench_limits_sample(bench_buffer *buffer, bench_place *place);
/* The limits that hold for one row or for many. */
const bench_limits *bench_limits_for(const bench_place *place, bool many);
double bench_limit_best(const bench_limits *limits, bench_limit which);

/* bench_work.c: count tokens after depth others, rows at a time. */
bench_work bench_work_of(const hr_session *session, size_t depth, size_t count, size_t rows);
void bench_work_by_part(const hr_session *session, size_t depth, size_t count, size_t rows,
                        bench_work part[HR_PARTS]);

/* The least time that the limits allow for some work of a test. */
typedef struct bench_bound {
  double seconds;    /* 0: not known */
  const char *limit; /* which one binds; why it isn't known */
} bench_bound;
bench_bound bench_bound_of(const bench_test *test, const bench_work *work);

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
const char *bench_cpu_name(char text[128]);
size_t bench_memory(const char *file, const char *key); /* bytes; 0: not known */
double bench_load_average(void);
json_t *bench_json_machine(const bench *b);

/* bench_report.c. Both return a status. */
int bench_report(const bench *b);

#endif
