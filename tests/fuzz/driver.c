/* SPDX-License-Identifier: MIT
 * Runs a fuzz target without libFuzzer: over the files it is given, then over changes of
 * them that are the same on every machine.
 *
 *     fuzz_TARGET CHANGES FILE|FOLDER...
 *
 * An input that ends the program is left in the file fuzz-failed-input. */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_SEEDS = 512, MOST_BYTES = 1 << 20, SECONDS_EACH = 30, HEADER_BYTES = 2048 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct seed {
  uint8_t *data;
  size_t size;
} seed;

static seed seeds[MOST_SEEDS];
static size_t seed_count;
static uint8_t input[MOST_BYTES];
static size_t input_size;

static void stop(const char *what, const char *where) {
  fprintf(stderr, "fuzz: %s: %s\n", where, what);
  exit(2);
}

static void read_seed(const char *path) {
  FILE *f = fopen(path, "rb");
  uint8_t *data = malloc(MOST_BYTES);
  if (!f || !data) stop("can't be read", path);
  size_t size = fread(data, 1, MOST_BYTES, f);
  if (size == MOST_BYTES || seed_count == MOST_SEEDS)
    stop("is one file too many or too long", path);
  seeds[seed_count++] = (seed){data, size};
  fclose(f);
}

static int not_hidden(const struct dirent *item) {
  return item->d_name[0] != '.';
}

/* In the order of names, which is the same everywhere. */
static void read_seeds(const char *path) {
  struct stat st;
  if (stat(path, &st) != 0) stop("is not there", path);
  if (!S_ISDIR(st.st_mode)) {
    read_seed(path);
    return;
  }
  struct dirent **items;
  int count = scandir(path, &items, not_hidden, alphasort);
  if (count < 0) stop("can't be listed", path);
  for (int i = 0; i < count; i++) {
    char inner[4096];
    snprintf(inner, sizeof inner, "%s/%s", path, items[i]->d_name);
    read_seeds(inner);
    free(items[i]);
  }
  free(items);
}

/* --- Changes ------------------------------------------------------------------- */

static uint64_t state = 88172645463325252u;

static uint64_t draw(void) {
  state ^= state << 13;
  state ^= state >> 7;
  return state ^= state << 17;
}

static size_t below(size_t n) {
  return n ? (size_t)(draw() >> 11) % n : 0;
}

/* Most faults are found where the sizes are. */
static size_t place(void) {
  size_t near = input_size < HEADER_BYTES ? input_size : HEADER_BYTES;
  return below(below(4) ? near : input_size);
}

static void put_number(void) {
  static const uint64_t numbers[] = {0, 1, 2, 127, 128, 255, 256, 0x7fff, 0x8000, 0xffff,
                                     0x7fffffff, 0x80000000, 0xffffffff, 0x100000000,
                                     0x7fffffffffffffff, 0x8000000000000000,
                                     0xfffffffffffffffe, 0xffffffffffffffff};
  uint64_t number = numbers[below(sizeof numbers / sizeof *numbers)];
  size_t at = place(), width = (size_t)1 << below(4);
  if (at + width <= input_size) memcpy(input + at, &number, width);
}

static void copy_part(void) {
  const seed *other = &seeds[below(seed_count)];
  size_t from = below(other->size), at = place(), most = other->size - from;
  if (most > input_size - at) most = input_size - at;
  if (most > 64) most = 64;
  memcpy(input + at, other->data + from, below(most + 1));
}

static void remove_part(void) {
  size_t at = place(), count = 1 + below(16);
  if (at + count > input_size) return;
  memmove(input + at, input + at + count, input_size - at - count);
  input_size -= count;
}

static void insert_part(void) {
  size_t at = place(), count = 1 + below(16);
  if (input_size + count > MOST_BYTES) return;
  memmove(input + at + count, input + at, input_size - at);
  for (size_t i = 0; i < count; i++) input[at + i] = (uint8_t)draw();
  input_size += count;
}

static void change(void) {
  const seed *from = &seeds[below(seed_count)];
  memcpy(input, from->data, from->size);
  input_size = from->size;
  for (size_t n = 1 + below(4); n > 0 && input_size > 0; n--) {
    size_t kind = below(16);
    if (kind < 4)
      input[place()] ^= (uint8_t)(1u << below(8));
    else if (kind < 6)
      input[place()] = (uint8_t)draw();
    else if (kind < 11)
      put_number();
    else if (kind < 13)
      copy_part();
    else if (kind == 13)
      remove_part();
    else if (kind == 14)
      insert_part();
    else
      input_size = below(input_size);
  }
}

/* --- Running ------------------------------------------------------------------- */

static void keep_input(int signal_number) {
  static const char name[] = "fuzz-failed-input";
  int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0644);
  if (fd >= 0 && write(fd, input, input_size) == (ssize_t)input_size) {
    static const char line[] = "fuzz: the input is in fuzz-failed-input\n";
    if (write(STDERR_FILENO, line, sizeof line - 1) < 0) _exit(2);
  }
  signal(signal_number, SIG_DFL);
  raise(signal_number);
}

/* The target may read nothing behind its input, so it gets a block of that size. */
static void run(void) {
  uint8_t *block = malloc(input_size ? input_size : 1);
  if (!block) stop("not enough memory", "input");
  memcpy(block, input, input_size);
  alarm(SECONDS_EACH);
  LLVMFuzzerTestOneInput(block, input_size);
  alarm(0);
  free(block);
}

int main(int argc, char **argv) {
  static const int fatal[] = {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL, SIGALRM};
  if (argc < 3) stop("expected CHANGES FILE|FOLDER...", "usage");
  for (int i = 2; i < argc; i++) read_seeds(argv[i]);
  if (seed_count == 0) stop("no file to begin with", argv[2]);
  for (size_t i = 0; i < sizeof fatal / sizeof *fatal; i++) signal(fatal[i], keep_input);
  long changes = strtol(argv[1], NULL, 10);
  for (size_t i = 0; i < seed_count; i++) {
    memcpy(input, seeds[i].data, seeds[i].size);
    input_size = seeds[i].size;
    run();
  }
  for (long i = 0; i < changes; i++) {
    change();
    run();
  }
  for (size_t i = 0; i < seed_count; i++) free(seeds[i].data);
  printf("fuzz: %zu inputs\n1 passed, 0 failed\n", seed_count + (size_t)changes);
  return 0;
}
