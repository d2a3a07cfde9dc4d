/* SPDX-License-Identifier: MIT */
#include "texts.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "builtin.h"
#include "interrupt.h"

static bool ends_in(const char *text, const char *end) {
  size_t n = strlen(text), m = strlen(end);
  return n >= m && strcmp(text + n - m, end) == 0;
}

bool cli_names_model(const char *argument) {
  return strcmp(argument, CLI_BUILTIN) == 0 || ends_in(argument, ".gguf") ||
         ends_in(argument, ".safetensors") || access(argument, F_OK) == 0;
}

/* --- Where they come from ---------------------------------------------------- */

bool cli_add_text(cli_text_list *list, const char *text, size_t length) {
  if (list->count == list->capacity) {
    size_t capacity = list->capacity ? list->capacity * 2 : 16;
    cli_text *grown = reallocarray(list->item, capacity, sizeof *grown);
    if (!grown) return false;
    list->item = grown;
    list->capacity = capacity;
  }
  list->item[list->count++] = (cli_text){.text = text, .length = length};
  return true;
}

static int add_lines(cli_text_list *list) {
  const char *rest = list->file.data, *end = rest + list->file.used;
  while (rest < end) {
    const char *newline = memchr(rest, '\n', (size_t)(end - rest));
    size_t length = (size_t)((newline ? newline : end) - rest);
    size_t shown = length && rest[length - 1] == '\r' ? length - 1 : length;
    if (!cli_add_text(list, rest, shown)) return cli_fail_memory();
    rest += length + 1;
  }
  return HR_OK;
}

int cli_add_ids(const cli_common *common, const char *types, cli_text_list *list) {
  size_t count;
  if (!cli_add_text(list, NULL, 0)) return cli_fail_memory();
  cli_text *t = &list->item[list->count - 1];
  int status = cli_read_ids("--ids", common->ids, &t->ids, &t->count);
  if (status != HR_OK || !types) return status;
  status = cli_read_ids("--types", types, &t->types, &count);
  if (status == HR_OK && count != t->count)
    return cli_fail(HR_ERROR_USAGE, "--types: %zu segments for %zu ids, expected one for each",
                    count, t->count);
  return status;
}

int cli_find_texts(const cli_common *common, size_t first, const char *file, cli_text_list *list) {
  const cli_texts *p = &common->positional;
  if (file && p->count > first)
    return cli_fail(HR_ERROR_USAGE, "%.80s: unexpected, expected texts as arguments or with -f",
                    p->item[first]);
  for (size_t i = first; i < p->count; i++)
    if (!cli_add_text(list, p->item[i], strlen(p->item[i]))) return cli_fail_memory();
  if (list->count) return HR_OK;
  if (!file && isatty(STDIN_FILENO))
    return cli_fail(HR_ERROR_USAGE,
                    "text: none given, expected some as arguments, or as lines with -f FILE or "
                    "on standard input");
  int status = file ? cli_read_file(file, &list->file)
                    : cli_read_input(&list->file, common->quiet);
  if (status == HR_OK) status = add_lines(list);
  if (status == HR_OK && list->count == 0)
    status = cli_fail(HR_ERROR_USAGE, "%s: is empty, expected a text on each line",
                      file ? file : "standard input");
  return status;
}

size_t cli_text_limit(const cli_common *common, const hr_model *model, const hr_session *session,
                      bool *by_files) {
  size_t limit = hr_model_text_limit(model), context = hr_session_context(session);
  *by_files = limit && limit < context && !common->context.given;
  return *by_files ? limit : context;
}

void cli_free_texts(cli_text_list *list) {
  for (size_t i = 0; i < list->count; i++) {
    free(list->item[i].ids);
    free(list->item[i].types);
  }
  free(list->item);
  cli_bytes_free(&list->file);
}

json_t *cli_json_labels(const hr_model *model) {
  json_t *labels = hr_model_label(model, 0) ? json_array() : json_null();
  for (size_t i = 0; json_is_array(labels) && i < hr_model_classes(model); i++) {
    const char *label = hr_model_label(model, i);
    json_array_append_new(labels, cli_json_text(label, strlen(label)));
  }
  return labels;
}

/* --- Through the model --------------------------------------------------------- */

/* Tokens that one call gets: enough for full passes, and results come as it goes. */
enum { BATCH_TOKENS = 4096 };

int cli_encode(const cli_common *common, hr_session *session, const cli_text_list *list,
               cli_encoded_fn *take, void *data) {
  bool show = isatty(STDERR_FILENO) && !common->quiet;
  cli_progress progress = {.what = "encoding", .start = cli_now()};
  hr_tokens *batch = calloc(list->count, sizeof *batch);
  if (!batch) return cli_fail_memory();
  int status = HR_OK;
  for (size_t begin = 0, end; begin < list->count && status == HR_OK; begin = end) {
    size_t tokens = 0;
    for (end = begin; end < list->count; end++) {
      const cli_text *t = &list->item[end];
      if (end > begin && tokens + t->count > BATCH_TOKENS) break;
      batch[end - begin] = (hr_tokens){.ids = t->ids, .types = t->types, .count = t->count};
      tokens += t->count;
    }
    hr_error err;
    if (hr_session_encode(session, batch, end - begin, &err) != HR_OK)
      status = cli_fail_error(NULL, &err);
    else
      status = take(data, session, list, begin, end - begin);
    if (status == HR_OK &&
        !cli_report_progress(show ? &progress : NULL, (double)end / (double)list->count))
      status = HR_ERROR_CANCELLED;
    if (cli_output_failed()) break;
  }
  cli_end_progress(&progress);
  free(batch);
  return status;
}
