/* SPDX-License-Identifier: MIT
 * Safetensors files and their config.json from strangers: read, loaded whole and run for a
 * few tokens. The input is the text of config.json, a NUL, and the tensors' file. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/fuzz/run_model.h"

enum { PATH_BYTES = 64 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char folder[PATH_BYTES];

static void remove_folder(void) {
  char path[PATH_BYTES + 32];
  snprintf(path, sizeof path, "%s/config.json", folder);
  unlink(path);
  snprintf(path, sizeof path, "%s/model.safetensors", folder);
  unlink(path);
  rmdir(folder);
}

/* In memory where the system has such a place. */
static void make_folder(void) {
  if (folder[0]) return;
  strcpy(folder, access("/dev/shm", W_OK) == 0 ? "/dev/shm/headrow-fuzz-XXXXXX"
                                               : "/tmp/headrow-fuzz-XXXXXX");
  if (!mkdtemp(folder)) abort();
  atexit(remove_folder);
}

static void write_file(const char *name, const void *data, size_t bytes) {
  char path[PATH_BYTES + 32];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  FILE *f = fopen(path, "wb");
  if (!f || fwrite(data, 1, bytes, f) != bytes || fclose(f) != 0) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const uint8_t *end = size ? memchr(data, 0, size) : NULL;
  if (!end) return 0;
  make_folder();
  write_file("config.json", data, (size_t)(end - data));
  write_file("model.safetensors", end + 1, size - (size_t)(end - data) - 1);
  hr_error err = {.status = HR_OK};
  const hr_model_options options = fuzz_model_options();
  fuzz_run_model(hr_model_open(folder, &options, &err), &err);
  return 0;
}
