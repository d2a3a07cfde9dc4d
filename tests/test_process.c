/* SPDX-License-Identifier: MIT
 * The command as a process: signals at any moment, little memory, files that ask for much. */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/support/gguf_writer.h"
#include "tests/support/shell.h"

#define MODELS HEADROW_SOURCE_ROOT "/models/"

TestSuite(process, .timeout = 300);

/* --- Signals --------------------------------------------------------------------- */

static void pause_ms(long ms) {
  struct timespec t = {ms / 1000, ms % 1000 * 1000000};
  nanosleep(&t, NULL);
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Whether a process has a handler for the signal. */
static bool catches(pid_t process, int number) {
  char path[64], line[128];
  unsigned long long caught = 0;
  snprintf(path, sizeof path, "/proc/%d/status", (int)process);
  FILE *f = fopen(path, "r");
  while (f && fgets(line, sizeof line, f)) sscanf(line, "SigCgt: %llx", &caught);
  if (f) fclose(f);
  return caught >> (number - 1) & 1;
}

/* Starts a line of the shell, sends the signal to its program after so long, counted from
 * where it is caught if that is asked for; gives the status, and how long the program took
 * to end after the signal. */
static int signalled(const char *line, int number, bool caught, long after_ms, double *took) {
  char whole[2048];
  snprintf(whole, sizeof whole, "exec %s >/dev/null 2>&1", line);
  fflush(NULL);
  pid_t child = fork();
  if (child == 0) {
    setenv("H", getenv("HEADROW_COMMAND"), 1);
    execl("/bin/sh", "sh", "-c", whole, (char *)NULL);
    _exit(99);
  }
  for (int i = 0; caught && i < 6000 && !catches(child, number); i++) pause_ms(10);
  pause_ms(after_ms);
  double sent = now();
  kill(child, number);
  int status;
  waitpid(child, &status, 0);
  *took = now() - sent;
  return exit_of(status);
}

/* The kinds of work, each long enough to be met by the signal. */
static const char *const work[] = {
    "$H run --ignore-eos -c 2000000 -p a",                     /* generating */
    "$H logits --ids @%s -c 64000 " MODELS "rope.gguf",        /* a long prompt */
    "$H bench -p 4000 -n 4000 -r 100",                         /* measuring */
    "$H perplexity --ids @%s -c 32000 " MODELS "rope.gguf",    /* scoring */
};

static void write_ids(char path[static 32]) {
  strcpy(path, "/tmp/headrow-ids-XXXXXX");
  int fd = mkstemp(path);
  cr_assert(fd >= 0);
  FILE *f = fdopen(fd, "w");
  for (int i = 0; i < 60000; i++) fprintf(f, "%d ", 3 + i % 50);
  fclose(f);
}

Test(process, int_and_term_end_any_work_with_its_status) {
  char ids[32], line[512];
  write_ids(ids);
  for (size_t i = 0; i < sizeof work / sizeof *work; i++)
    for (int k = 0; k < 2; k++) {
      double took;
      snprintf(line, sizeof line, work[i], ids);
      int status = signalled(line, k ? SIGTERM : SIGINT, true, 100, &took);
      cr_expect_eq(status, 130, "%s: %d", line, status);
      cr_expect(took < 20, "%s: ended %.1f s after the signal", line, took);
    }
  unlink(ids);
}

/* From the first instruction on: by the signal before it is caught, with 130 after that, and
 * never with another status, a hang or a crash. */
Test(process, a_signal_while_starting_and_loading_is_one_of_two_ends) {
  for (long ms = 0; ms < 60; ms += 3) {
    double took;
    int number = ms % 2 ? SIGTERM : SIGINT;
    int status = signalled("$H run --ignore-eos -c 2000000 -p a", number, false, ms, &took);
    cr_expect(status == 130 || status == 256 + number, "after %ld ms: %d", ms, status);
  }
}

/* What is written goes to a temporary name; that does not stay. */
Test(process, a_result_that_was_interrupted_leaves_no_file) {
  for (long ms = 5; ms < 80; ms += 15) {
    char folder[] = "/tmp/headrow-out-XXXXXX", line[512];
    double took;
    cr_assert(mkdtemp(folder));
    snprintf(line, sizeof line, "$H quantize " MODELS "gpt2.gguf %s/out.gguf --type f32", folder);
    int status = signalled(line, SIGTERM, false, ms, &took);
    snprintf(line, sizeof line, "ls -A %s", folder);
    result r = shell(line);
    if (status == 0)
      cr_expect_str_eq(r.out, "out.gguf\n");
    else
      cr_expect_str_eq(r.out, "", "after %ld ms, status %d", ms, status);
    finish(&r);
    snprintf(line, sizeof line, "rm -rf %s", folder);
    result gone = shell(line);
    finish(&gone);
  }
}

/* --- Small files that ask for much -------------------------------------------------- */

enum { WIDTH = 32, VOCAB = 8 };

/* A Llama whose numbers may be lies, with one tensor of that many rows. */
static void put_llama(gguf_writer *w, uint32_t layers, uint32_t width, uint64_t rows) {
  static const float zeros[WIDTH * VOCAB];
  const uint64_t dim[2] = {WIDTH, VOCAB}, lie[2] = {WIDTH, rows};
  gguf_writer_init(w);
  gguf_put_string(w, "general.architecture", "llama");
  gguf_put_u32(w, "llama.block_count", layers);
  gguf_put_u32(w, "llama.context_length", 2147483647);
  gguf_put_u32(w, "llama.embedding_length", width);
  gguf_put_u32(w, "llama.feed_forward_length", 4294967264u);
  gguf_put_u32(w, "llama.attention.head_count", 1);
  gguf_put_f32(w, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
  if (rows == VOCAB)
    gguf_put_tensor(w, "token_embd.weight", GGUF_TENSOR_F32, 2, dim, zeros, sizeof zeros);
  else
    gguf_put_tensor_info(w, "token_embd.weight", GGUF_TENSOR_F32, 2, lie, 0);
}

static void expect_refused_in_little_memory(gguf_writer *w, const char *what) {
  char path[] = "/tmp/headrow-lie-XXXXXX", line[512];
  size_t size;
  unsigned char *data = gguf_writer_finish(w, &size);
  int fd = mkstemp(path);
  cr_assert(fd >= 0 && size < 4096 && write(fd, data, size) == (ssize_t)size);
  close(fd);
  free(data);
  snprintf(line, sizeof line, "ulimit -v 400000; timeout 20 $H run -q -t 1 %s -p a -n 1", path);
  result r = shell(line);
  unlink(path);
  cr_expect(r.status == 3 || r.status == 4, "%s: %d: %s", what, r.status, r.err);
  cr_expect(lines_of(r.err) == 1 && strncmp(r.err, "headrow: ", 9) == 0, "%s: %s", what, r.err);
  finish(&r);
}

Test(process, a_small_file_that_asks_for_gigabytes_is_refused_at_once) {
  gguf_writer w;
  const uint64_t huge = (uint64_t)1 << 40;
  put_llama(&w, 1, WIDTH, VOCAB);
  expect_refused_in_little_memory(&w, "a feed-forward of 2^32 columns");
  put_llama(&w, 4294967295u, WIDTH, VOCAB);
  expect_refused_in_little_memory(&w, "2^32 layers");
  put_llama(&w, 2000000, WIDTH, VOCAB);
  expect_refused_in_little_memory(&w, "two million layers");
  put_llama(&w, 1, 2147483616, VOCAB);
  expect_refused_in_little_memory(&w, "a width of 2^31");
  put_llama(&w, 1, WIDTH, (uint64_t)1 << 33);
  expect_refused_in_little_memory(&w, "an embedding of 2^33 rows");
  put_llama(&w, 1, WIDTH, (uint64_t)1 << 59);
  expect_refused_in_little_memory(&w, "an embedding whose bytes pass 64 bits");
  put_llama(&w, 1, WIDTH, VOCAB);
  gguf_put_raw(&w, "text", GGUF_STRING, &huge, sizeof huge);
  expect_refused_in_little_memory(&w, "a string of a terabyte");
  put_llama(&w, 1, WIDTH, VOCAB);
  w.tensor_count = huge;
  expect_refused_in_little_memory(&w, "2^40 tensors");
}

Test(process, a_context_that_no_machine_holds_is_refused) {
  result r = shell("ulimit -v 1000000; $H run -q -t 1 -c 16000000 -p a -n 1");
  cr_expect(r.status == 4 && lines_of(r.err) == 1, "%d: %s", r.status, r.err);
  finish(&r);
}
