/* SPDX-License-Identifier: MIT
 * GGUF files from strangers, packed ones too: read, loaded whole and run for a few tokens.
 * The input is the file. */
#include <stdlib.h>
#include <string.h>

#include "tests/fuzz/run_model.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  /* As a mapping begins at a page, and with nothing that may be read behind it. */
  void *file = NULL;
  if (size == 0 || posix_memalign(&file, 4096, size) != 0) return 0;
  memcpy(file, data, size);
  hr_error err = {.status = HR_OK};
  const hr_model_options options = fuzz_model_options();
  fuzz_run_model(hr_model_open_memory(file, size, "fuzz.gguf", &options, &err), &err);
  free(file);
  return 0;
}
