/* SPDX-License-Identifier: MIT
 * Vocabularies and chat templates in GGUF files from strangers: a text to ids and back, and
 * a conversation. The input: a byte with the flags, a byte with the length of a text, that
 * text, and the file. */
#include <headrow/headrow.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void need_sentence(const hr_error *err) {
  if (err->status == HR_OK || !err->message[0] || strchr(err->message, '\n')) abort();
}

/* All bytes that are handed out can be read. */
static void read_bytes(const char *text, size_t length) {
  volatile char last = 0;
  for (size_t i = 0; i < length; i++) last = text[i];
  (void)last;
}

static void write_text(const hr_model *model, const int32_t *ids, size_t count) {
  hr_error err = {.status = HR_OK};
  const char *text;
  size_t length;
  hr_decoder *decoder = hr_decoder_create(model, &err);
  if (!decoder) abort();
  for (size_t i = 0; i < count; i++) {
    if (ids[i] < 0 || (size_t)ids[i] >= hr_model_vocab_size(model)) abort();
    if (hr_decoder_push(decoder, ids[i], &text, &length, &err) != HR_OK) abort();
    read_bytes(text, length);
  }
  hr_decoder_finish(decoder, &text, &length);
  read_bytes(text, length);
  hr_decoder_free(decoder);
}

static void read_text(const hr_model *model, const char *text, size_t length, unsigned flags) {
  enum { MOST = 4096 };
  static int32_t ids[MOST];
  hr_error err = {.status = HR_OK};
  size_t count;
  if (hr_tokenize(model, text, length, flags, ids, MOST, &count, &err) == HR_OK)
    write_text(model, ids, count < MOST ? count : MOST);
  else
    need_sentence(&err);
}

static void talk(const hr_model *model, const char *text, size_t length) {
  const hr_chat_message messages[] = {{"system", "S", 1}, {"user", text, length}};
  hr_error err = {.status = HR_OK};
  hr_chat_prompt prompt;
  hr_chat *chat = hr_chat_create(model, NULL, &err);
  if (!chat || hr_chat_render(chat, messages, 2, NULL, &prompt, &err) != HR_OK)
    need_sentence(&err);
  else
    read_bytes(prompt.text, prompt.length);
  hr_chat_free(chat);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  void *file = NULL;
  if (size < 3 || (size_t)data[1] + 2 >= size) return 0;
  const char *text = (const char *)data + 2;
  size_t bytes = size - 2 - data[1];
  if (posix_memalign(&file, 4096, bytes) != 0) return 0;
  memcpy(file, data + 2 + data[1], bytes);
  hr_error err = {.status = HR_OK};
  hr_model_options options;
  hr_model_options_init(&options);
  options.isa = FUZZ_ISA;
  options.vocabulary_only = true;
  hr_model *model = hr_model_open_memory(file, bytes, "fuzz.gguf", &options, &err);
  if (!model) need_sentence(&err);
  if (model && hr_model_has_tokenizer(model)) read_text(model, text, data[1], data[0] & 3);
  if (model) talk(model, text, data[1]);
  hr_model_free(model);
  free(file);
  return 0;
}
