/* SPDX-License-Identifier: MIT */
#include "memory.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/text.h"
#include "engine/engine.h"
#include "model/load_internal.h"
#include "model/packed.h"
#include "output.h"
#include "sched/memory.h"

/* A context below this is of no use to anybody. */
enum { LEAST_CONTEXT = 128 };

/* Everything with a context; SIZE_MAX where even addresses end. Mapped weights
 * are not among it: the system drops them and reads them again. */
static size_t needed(const hr_model *model, hr_session_options *options, size_t context) {
  hr_memory m = {.size = sizeof m};
  hr_error ignored;
  size_t bytes;
  options->context = context;
  if (hr_model_memory(model, options, &m, &ignored) != HR_OK) return SIZE_MAX;
  if (model->has_weights) m.weights = 0; /* taken already */
  if (!hr_add_size(m.cache, m.work, &bytes) || !hr_add_size(bytes, m.weights, &bytes))
    return SIZE_MAX;
  return bytes;
}

/* The longest context that fits, at most `most`, and round when it is shorter; 0: none. */
static size_t longest(const hr_model *model, hr_session_options *options, size_t most,
                      size_t bytes) {
  if (needed(model, options, most) <= bytes) return most;
  size_t low = 0, high = most;
  while (high - low > 1) {
    size_t middle = low + (high - low) / 2;
    if (needed(model, options, middle) <= bytes)
      low = middle;
    else
      high = middle;
  }
  return low >= 1024 ? low / 256 * 256 : low >= LEAST_CONTEXT ? low / 32 * 32 : 0;
}

static size_t default_context(const hr_model *model) {
  return hr_default_context(&model->loaded.transformer.description);
}

/* --- What is converted -------------------------------------------------------- */

/* What llama.cpp's numbers in general.file_type stand for, of files with quantized
 * tensors of types that can be read. All are mixtures: a small model's embedding, of
 * more bits, may be most of it. */
static const char *mixture_name(uint64_t number) {
  static const char *const names[] = {
      [2] = "Q4_0",    [3] = "Q4_1",    [7] = "Q8_0",    [8] = "Q5_0",    [9] = "Q5_1",
      [10] = "Q2_K",   [11] = "Q3_K_S", [12] = "Q3_K_M", [13] = "Q3_K_L", [14] = "Q4_K_S",
      [15] = "Q4_K_M", [16] = "Q5_K_S", [17] = "Q5_K_M", [18] = "Q6_K",   [21] = "Q2_K_S",
      [25] = "IQ4_NL",
  };
  return number < sizeof names / sizeof *names ? names[number] : NULL;
}

/* What the file calls itself, when it has the format that the name begins with: a
 * file that was changed may have kept the name. */
static const char *own_name(const hr_source *source, const size_t *bytes_of) {
  uint64_t number;
  bool found;
  hr_error ignored;
  if (hr_source_u64(source, "general.file_type", &number, &found, &ignored) != HR_OK || !found)
    return NULL;
  const char *name = mixture_name(number);
  for (size_t i = 0; i < HR_FORMAT_COUNT && name; i++) {
    const char *format = hr_format_get((hr_format)i)->name;
    if (bytes_of[i] && hr_starts_with(name, format)) return name;
  }
  return NULL;
}

/* The file's own name, or the format that most bytes of its tensors are in. */
static const char *file_type(const hr_model *model, size_t *bytes) {
  size_t of[HR_FORMAT_COUNT] = {0}, best = 0;
  *bytes = 0;
  for (size_t i = 0; i < hr_source_tensor_count(model->source); i++) {
    const hr_tensor *t = hr_source_tensor_at(model->source, i);
    of[t->format] += t->bytes;
    *bytes += t->bytes;
  }
  for (size_t i = 1; i < HR_FORMAT_COUNT; i++)
    if (of[i] > of[best]) best = i;
  const char *name = own_name(model->source, of);
  return name ? name : hr_format_get((hr_format)best)->name;
}

/* The type that most bytes are held in, of matrices whose type in the file is another. */
static const char *converted_type(const hr_loaded *loaded) {
  size_t of[HR_PANEL_TYPES] = {0}, best = 0;
  for (size_t i = 0; i < loaded->item_count; i++) {
    const hr_load_item *it = &loaded->items[i];
    if (!it->matrix) continue;
    const char *held = hr_panel_name(it->matrix->type);
    if (strcmp(held, hr_format_get(it->tensor->format)->name) != 0)
      of[it->matrix->type] += it->bytes;
  }
  for (size_t i = 1; i < HR_PANEL_TYPES; i++)
    if (of[i] > of[best]) best = i;
  return of[best] ? hr_panel_name((hr_panel_type)best) : NULL;
}

static void tell_conversion(const hr_model *model) {
  char file[CLI_SIZE_TEXT], held[CLI_SIZE_TEXT];
  size_t bytes;
  if (model->loaded.mapped || model->has_weights) return;
  const char *to = converted_type(&model->loaded), *from = file_type(model, &bytes);
  if (!to) return;
  bool in_part = strcmp(to, from) == 0;
  if (strcmp(to, "Q8_0") == 0) to = "int8";
  cli_note("%s is %s%s (%s); held as %s%s it needs %s", model->path, in_part ? "in part " : "",
           from, cli_size_text(bytes, file), to, in_part ? " throughout" : "",
           cli_size_text(model->loaded.weight_bytes, held));
}

/* --- Before loading ------------------------------------------------------------- */

static int refuse(const hr_model *model, size_t need, size_t context, size_t bytes,
                  const char *where, size_t fits) {
  char a[CLI_SIZE_TEXT], b[CLI_SIZE_TEXT], advice[64] = "no context would fit";
  if (fits) snprintf(advice, sizeof advice, "-c %zu would fit", fits);
  return cli_fail(HR_ERROR_MEMORY, "%s: needs %s with -c %zu, %s are free (%s); %s", model->path,
                  need == SIZE_MAX ? "more than there are addresses" : cli_size_text(need, a),
                  context, cli_size_text(bytes, b), where, advice);
}

int cli_check_memory_in(const cli_common *common, const hr_model *model, size_t bytes,
                        const char *where) {
  hr_session_options options;
  cli_session_options(common, &options);
  if (!common->quiet) tell_conversion(model);
  size_t standard = default_context(model), least = standard;
  if (least > LEAST_CONTEXT) least = LEAST_CONTEXT;
  size_t context = options.context ? options.context : least;
  hr_memory m = {.size = sizeof m};
  hr_error err;
  hr_status status = hr_model_memory(model, &options, &m, &err);
  if (status != HR_OK && status != HR_ERROR_MEMORY) return cli_fail_error(NULL, &err);
  size_t need = needed(model, &options, context);
  if (need > bytes) {
    size_t most = options.context ? context : standard;
    return refuse(model, need, context, bytes, where, longest(model, &options, most, bytes));
  }
  char a[CLI_SIZE_TEXT], b[CLI_SIZE_TEXT];
  if (!common->quiet && m.mapped > bytes - need)
    cli_note("warning: the %s of packed weights are more than the %s of memory beside them; they "
             "will be read from the disk again and again",
             cli_size_text(m.mapped, a), cli_size_text(bytes - need, b));
  return HR_OK;
}

size_t cli_context_that_fits_in(const cli_common *common, const hr_model *model, size_t bytes) {
  hr_session_options options;
  cli_session_options(common, &options);
  size_t most = default_context(model), fits = longest(model, &options, most, bytes);
  if (fits == most || !fits) return most;
  char text[CLI_SIZE_TEXT];
  if (!common->quiet)
    cli_note("note: the context is %zu and not %zu: %s of memory are free", fits, most,
             cli_size_text(bytes, text));
  return fits;
}

/* Where nothing says how much is free, the allocation will. */
static void read_free(hr_memory_free *memory) {
  if (!hr_memory_free_read(memory, "/")) *memory = (hr_memory_free){.bytes = SIZE_MAX};
}

int cli_check_memory(const cli_common *common, const hr_model *model) {
  hr_memory_free memory;
  read_free(&memory);
  return cli_check_memory_in(common, model, memory.bytes, memory.where);
}

size_t cli_context_that_fits(const cli_common *common, const hr_model *model) {
  hr_memory_free memory;
  read_free(&memory);
  return cli_context_that_fits_in(common, model, memory.bytes);
}
