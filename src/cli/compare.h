/* SPDX-License-Identifier: MIT
 * Private to the files of `headrow compare`: what was read, and how it is said. */
#ifndef HR_CLI_COMPARE_H
#define HR_CLI_COMPARE_H

#include <jansson.h>

#include "bytes.h"
#include "table.h"

enum { COMPARE_FILES = 16, COMPARE_TESTS = 256 };

/* One measured test of a file. What is not known is 0 or NULL. */
typedef struct compare_result {
  const char *work; /* "prompt" or "generate" */
  double tokens, depth, batch; /* batch: sequences at once, each with so many tokens */
  const char *isa;
  unsigned threads;
  double rate, least, sd; /* tokens a second */
  double first;           /* seconds to the first token */
  double joules;          /* for a token */
  const char *bound;      /* the limit that binds */
  double percent;         /* of what it allows */
  bool valid;
  size_t samples, disturbed;
  const char *reason; /* what disturbed the first of these */
  const char *digest;
  double operations, bytes; /* of the test */
  const json_t *entry;      /* the whole of it */
} compare_result;

typedef struct compare_file {
  const char *path;
  char label[64]; /* its name without folder and .json, made unique */
  json_t *root;   /* owns every text */
  int version;
  compare_result *result;
  size_t results;
  bool same_model; /* as the first file: rates can be compared */
} compare_file;

/* What was measured alike, in any of the files. */
typedef struct compare_test {
  const char *work;
  double tokens, depth, batch;
  const compare_result *best[COMPARE_FILES]; /* the fastest of each file; NULL: not measured */
} compare_test;

typedef struct compare {
  compare_file file[COMPARE_FILES];
  size_t files;
  compare_test *test;
  size_t tests;
  cli_bytes notes; /* lines */
} compare;

/* compare_read.c: reads and checks a file. Returns a status, after printing what
 * is wrong with it. */
int compare_read(compare *c, const char *path);
/* Matches the tests of all files and notes what can't be compared. */
int compare_match(compare *c);
void compare_free(compare *c);

/* A value inside a document by a path such as "machine.cpu". A number that is not
 * above 0 is 0, what is no text is NULL. */
const json_t *compare_get(const json_t *root, const char *path);
double compare_number(const json_t *root, const char *path);
const char *compare_text(const json_t *root, const char *path);
/* The entry of "limits" for a result: its threads and tier. */
const json_t *compare_limits(const compare_file *f, const compare_result *r);
/* Whether a result is one of a test, by whatever tier and threads. */
bool compare_same_test(const compare_test *t, const compare_result *r);
/* The same but for the batch. */
bool compare_same_work(const compare_test *t, const compare_result *r);

/* How the digest of a file's best result is to that of the first file's. One begins with the
 * number of the arithmetic: those of others are not comparable. */
typedef enum compare_digests {
  COMPARE_APART,   /* one of them lacks the test, or the models are others */
  COMPARE_UNKNOWN, /* one has no digest */
  COMPARE_EQUAL,
  COMPARE_OTHER_LOGITS,
  COMPARE_OTHER_ARITHMETIC
} compare_digests;
compare_digests compare_digest(const compare *c, const compare_test *t, size_t file);

/* Rates of a file to those of the first one; 0 where they can't be compared. */
double compare_ratio(const compare *c, const compare_test *t, size_t file);
/* "0.85", and "0.0042" for what would be 0.00 */
const char *compare_ratio_text(double ratio, char text[32]);
/* "prompt 512 at depth 1024, batch 4" */
const char *compare_test_name(const compare_test *t, char text[64]);
/* "reading memory" for "read". */
const char *compare_bound_words(const char *bound);

/* compare_words.c: why a file is faster or slower than the first, in sentences;
 * NULL when memory is out. To be freed. */
char *compare_why(const compare *c, const compare_test *t, size_t file);
/* What holds for all tests of a file beside the first, said once; "" where there is one test. */
char *compare_summary(const compare *c, size_t file);

/* What a machine was like while a result's samples were taken. */
typedef struct compare_state {
  double mhz, least_mhz; /* median and least of the samples; 0: not known */
  double most_mhz;       /* that its CPUs are made for; 0: not known */
  double share;          /* mhz in percent of that; 0: not known */
  bool pinned;           /* these are of the CPUs of the threads; else of all CPUs */
  double celsius;        /* the hottest, valid when has_celsius */
  bool has_celsius;
  size_t throttled, known; /* samples that throttled, and of which that is known */
} compare_state;

typedef enum compare_sensor {
  COMPARE_FREQUENCY,
  COMPARE_HIGHEST,
  COMPARE_TEMPERATURE,
  COMPARE_THROTTLING,
  COMPARE_ENERGY
} compare_sensor;

/* compare_state.c */
compare_state compare_state_of(const compare_file *f, const compare_result *r);
/* Why a value is not known. */
const char *compare_unread(const compare_file *f, const compare_result *r, compare_sensor which);
/* Sentences on what frequency, throttling and energy had to do with it, each with a space
 * before it. */
void compare_say_state(cli_bytes *to, const compare_file *fast, const compare_result *x,
                       const compare_file *slow, const compare_result *y);

/* Rows of a table of the machines: a name, and a value for each file ("-": not
 * known). */
enum { COMPARE_VALUE = 160 };
typedef struct compare_row {
  char name[COMPARE_VALUE]; /* "": to be left out */
  char value[COMPARE_FILES][COMPARE_VALUE];
  double number[COMPARE_FILES]; /* 0: it is no number to divide */
  bool differs;
} compare_row;
/* Row i of the records, the state while measuring, the limits or the kernels; false behind the
 * last. */
bool compare_record_row(const compare *c, size_t i, compare_row *row);
bool compare_state_row(const compare *c, size_t i, compare_row *row);
bool compare_limit_row(const compare *c, size_t i, compare_row *row);
/* Kernels that the first file was measured with, by their fastest tier. */
bool compare_kernel_row(const compare *c, size_t i, compare_row *row);
bool compare_has_kernels(const compare *c);

/* compare_html.c: the page; false when memory is out. */
bool compare_page(const compare *c, cli_bytes *page);

/* How a file is drawn: classes of the style sheet, "c0" to "c7" for its colour and "p1" for the
 * second eight, which are striped, dotted and square; and its letter, from A on. */
const char *compare_class(size_t file);
char compare_letter(size_t file);
/* compare_chart.c: drawings for the page; false when memory is out. */
bool compare_bars(const compare *c, cli_bytes *page, bool percent);
bool compare_roofline(const compare *c, cli_bytes *page);
bool compare_scaling(const compare *c, cli_bytes *page);

/* Appending to a page: as it is, and with what has a meaning in HTML escaped. */
bool compare_put(cli_bytes *page, const char *format, ...) __attribute__((format(printf, 2, 3)));
bool compare_put_text(cli_bytes *page, const char *text);

#endif
