/* SPDX-License-Identifier: MIT
 * Packed files from strangers. Their weights begin at 2 MiB; the input leaves out what lies
 * between the first HEAD_BYTES and there. */
#include <stdlib.h>
#include <string.h>

#include "tests/fuzz/run_model.h"

enum { HEAD_BYTES = 16 << 10, WEIGHTS_AT = 2 << 20 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  size_t head = size < HEAD_BYTES ? size : HEAD_BYTES, rest = size - head;
  size_t bytes = rest ? WEIGHTS_AT + rest : head;
  void *file = NULL;
  if (size == 0 || posix_memalign(&file, 4096, bytes) != 0) return 0;
  memset(file, 0, bytes);
  memcpy(file, data, head);
  memcpy((char *)file + bytes - rest, data + head, rest);
  hr_error err = {.status = HR_OK};
  const hr_model_options options = fuzz_model_options();
  fuzz_run_model(hr_model_open_memory(file, bytes, "fuzz.gguf", &options, &err), &err);
  free(file);
  return 0;
}
