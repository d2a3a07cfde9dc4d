/* SPDX-License-Identifier: MIT
 * Chat templates from strangers. The input is the template. */
#include <stdint.h>

#include "template/template.h"

#define MESSAGE(r, text) {.role = (r), .content = (text), .length = sizeof(text) - 1}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const hr_chat_message talk[] = {MESSAGE("system", "S x"),
                                         MESSAGE("user", "<|a|> \xc3\xa9\xff"),
                                         MESSAGE("assistant", " b\n")};
  static const hr_template_word words[] = {{"bos_token", "<s>", 3}};
  hr_error err;
  hr_template_output output;
  hr_chat_template *t = hr_template_parse((const char *)data, size, "fuzz", &err);
  if (!t) return 0;
  const hr_template_input input = {.messages = talk,
                                   .message_count = sizeof talk / sizeof *talk,
                                   .has_messages = true,
                                   .add_generation_prompt = true,
                                   .words = words,
                                   .word_count = 1};
  hr_template_render(t, &input, &output, &err);
  hr_template_output_finish(&output);
  hr_template_free(t);
  return 0;
}
