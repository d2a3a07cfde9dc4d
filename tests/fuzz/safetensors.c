/* SPDX-License-Identifier: MIT
 * Folders with a model in safetensors from strangers: read, loaded whole and run for a few
 * tokens. The input is the text of config.json, a NUL, what else is in the folder - each a
 * byte 0xff, a letter for its name, the text and a NUL - and the tensors' file. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/fuzz/run_model.h"

enum { PATH_BYTES = 64, BESIDE = 0xff };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define INDEX "model.safetensors.index.json"
static const struct beside {
  char letter;
  const char *name;
} beside[] = {{'i', INDEX},
              {'t', "tokenizer.json"},
              {'k', "tokenizer_config.json"},
              {'s', "special_tokens_map.json"},
              {'g', "generation_config.json"},
              {'c', "chat_template.jinja"},
              {'m', "modules.json"},
              {'b', "sentence_bert_config.json"},
              {'e', "config_sentence_transformers.json"},
              {'p', "1_Pooling/config.json"}};
enum { BESIDES = sizeof beside / sizeof *beside };

static const char *const others[] = {"config.json", "model.safetensors",
                                     "model-00001-of-00001.safetensors"};
enum { OTHERS = sizeof others / sizeof *others };

static char folder[PATH_BYTES];

typedef struct path {
  char text[PATH_BYTES + 64];
} path;

static path in_folder(const char *name) {
  path p;
  snprintf(p.text, sizeof p.text, "%s/%s", folder, name);
  return p;
}

static void empty_folder(void) {
  for (size_t i = 0; i < BESIDES; i++) unlink(in_folder(beside[i].name).text);
  for (size_t i = 0; i < OTHERS; i++) unlink(in_folder(others[i]).text);
}

static void remove_folder(void) {
  empty_folder();
  rmdir(in_folder("1_Pooling").text);
  rmdir(folder);
}

/* In memory where the system has such a place. */
static void make_folder(void) {
  if (folder[0]) {
    empty_folder();
    return;
  }
  strcpy(folder, access("/dev/shm", W_OK) == 0 ? "/dev/shm/headrow-fuzz-XXXXXX"
                                               : "/tmp/headrow-fuzz-XXXXXX");
  if (!mkdtemp(folder) || mkdir(in_folder("1_Pooling").text, 0700) != 0) abort();
  atexit(remove_folder);
}

static void write_file(const char *name, const void *data, size_t bytes) {
  FILE *f = fopen(in_folder(name).text, "wb");
  if (!f || fwrite(data, 1, bytes, f) != bytes || fclose(f) != 0) abort();
}

/* Writes the files beside; *data moves to the tensors. True when an index is among them. */
static bool write_beside(const uint8_t **data, const uint8_t *end) {
  bool has_index = false;
  while (end - *data > 2 && **data == BESIDE) {
    const uint8_t *text = *data + 2;
    const uint8_t *stop = memchr(text, 0, (size_t)(end - text));
    if (!stop) break;
    for (size_t i = 0; i < BESIDES; i++) {
      if ((*data)[1] != (uint8_t)beside[i].letter) continue;
      write_file(beside[i].name, text, (size_t)(stop - text));
      has_index |= i == 0;
    }
    *data = stop + 1;
  }
  return has_index;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const uint8_t *end = data + size, *stop = size ? memchr(data, 0, size) : NULL;
  if (!stop) return 0;
  make_folder();
  write_file("config.json", data, (size_t)(stop - data));
  data = stop + 1;
  bool has_index = write_beside(&data, end);
  write_file(others[has_index ? 2 : 1], data, (size_t)(end - data));
  hr_error err = {.status = HR_OK};
  const hr_model_options options = fuzz_model_options();
  fuzz_run_model(hr_model_open(folder, &options, &err), &err);
  return 0;
}
