/* SPDX-License-Identifier: MIT
 * Opening a model: file, kernels, weights, tokenizer. */
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "engine/engine.h"
#include "engine/options.h"
#include "kernels/select.h"
#include "sched/fpenv.h"

#define STRINGIFY(x) #x
#define VERSION(a, b, c) STRINGIFY(a) "." STRINGIFY(b) "." STRINGIFY(c)

const char *hr_version(void) {
  return VERSION(HR_VERSION_MAJOR, HR_VERSION_MINOR, HR_VERSION_PATCH);
}

static const hr_model_options default_options = {.size = sizeof default_options};

void hr_model_options_fill(hr_model_options *options, size_t size) {
  hr_options_fill(options, size, &default_options, sizeof default_options);
}

static hr_status select_kernels(hr_model *model, const char *isa, hr_error *err) {
  uint32_t features = hr_cpu_features();
  if (hr_kernels_select(&model->kernels, features, isa)) return HR_OK;
  char names[128];
  hr_kernels_available(features, names, sizeof names);
  return hr_fail(err, HR_ERROR_USAGE,
                 "kernel tier '%s' is not known or this CPU lacks it, expected one of: %s", isa,
                 names);
}

static hr_status open_tokenizer(hr_model *model, const hr_source *source, hr_error *err) {
  hr_vocab vocab;
  bool found;
  model->start_token = model->end_token = -1;
  HR_TRY(hr_vocab_read(source, &model->vocab, &vocab, &found, err));
  if (!found) return HR_OK;
  model->token_count = vocab.count;
  model->vocab_kind = vocab.kind;
  model->start_token = vocab.bos;
  model->end_token = vocab.eos;
  if (model->is_planned && vocab.count > model->loaded.transformer.description.vocab)
    return hr_fail(
        err, HR_ERROR_FILE,
        "%s: the vocabulary has %zu tokens, expected at most the %u rows of the embedding",
        model->path, vocab.count, model->loaded.transformer.description.vocab);
  model->tokenizer = hr_tokenizer_create(&vocab, err);
  hr_vocab_storage_trim(&model->vocab);
  return model->tokenizer ? HR_OK : err->status;
}

/* Bytes from which starting threads is worth their while. */
enum { PARALLEL_BYTES = 16 << 20 };

/* The team is the one that a session with the same options will have. Where cores are
 * named, not even little is packed elsewhere. */
static hr_status load_weights(hr_model *model, hr_error *err) {
  const hr_source *source = model->source;
  const hr_model_options *o = &model->options;
  const hr_team_options team = {.threads = o->threads, .threads_batch = o->threads_batch,
                                .no_pin = o->no_pin, .cores = o->cores,
                                .most = hr_threads_worth(&model->loaded.transformer)};
  hr_load_options load = {.progress = o->progress, .progress_data = o->progress_data};
  bool large = model->loaded.weight_bytes >= PARALLEL_BYTES;
  if (!model->loaded.mapped && (large || o->cores)) {
    load.team = hr_team_create(&team, err);
    if (!load.team) return err->status;
  }
  hr_status status = hr_load(source, &model->kernels, &load, &model->loaded, err);
  hr_team_free(load.team);
  return status;
}

hr_status hr_model_load(hr_model *model, hr_error *err) {
  HR_FPENV_OWN;
  hr_error ignored;
  if (!err) err = &ignored;
  if (model->has_weights) return HR_OK;
  if (!model->is_planned || !model->source)
    return hr_fail(err, HR_ERROR_USAGE, "%s: %s, expected a model opened with defer_weights",
                   model->path,
                   model->is_planned ? "loading its weights failed"
                                     : "was opened for its vocabulary only");
  hr_status status = load_weights(model, err);
  model->has_weights = status == HR_OK;
  if (status == HR_OK && model->loaded.mapped) return HR_OK;
  hr_source_close(model->source);
  model->source = NULL;
  return status;
}

/* What is known from the header, the tokenizer with it: faults in those show
 * before weights are packed for minutes. */
static hr_status open_model(hr_model *model, hr_error *err) {
  const hr_model_options *o = &model->options;
  if (!o->vocabulary_only) {
    HR_TRY(hr_load_plan(model->source, o->weights, &model->loaded, err));
    model->is_planned = true;
  }
  HR_TRY(hr_chat_texts_read(model->source, &model->chat, err));
  HR_TRY(open_tokenizer(model, model->source, err));
  return o->vocabulary_only || o->defer_weights ? HR_OK : hr_model_load(model, err);
}

static hr_status take_options(hr_model_options *options, const hr_model_options *given,
                              hr_error *err) {
  *options = default_options;
  HR_TRY(hr_options_take(options, sizeof *options, given, "hr_model_options", err));
  if ((unsigned)options->weights <= HR_WEIGHTS_Q8_0) return HR_OK;
  return hr_fail(err, HR_ERROR_USAGE, "hr_model_options: weights is %d, expected 0 to %d",
                 (int)options->weights, HR_WEIGHTS_Q8_0);
}

/* What needs no file. */
static hr_status set_up(hr_model *model, const char *path, const hr_model_options *options,
                        hr_error *err) {
  const char *cores = options->cores;
  model->path = hr_strndup(path, strlen(path));
  if (cores) model->cores = hr_strndup(cores, strlen(cores));
  if (!model->path || (cores && !model->cores))
    return hr_fail_memory(err, "model", strlen(path) + (cores ? strlen(cores) : 0));
  model->options = *options;
  model->options.cores = model->cores;
  model->options.isa = NULL; /* the caller's; what was chosen is in kernels */
  return select_kernels(model, options->isa, err);
}

/* A model without a source: options are checked before a file is opened. */
static hr_model *create(const char *path, const hr_model_options *given, hr_error *err) {
  hr_model_options options;
  if (take_options(&options, given, err) != HR_OK) return NULL;
  hr_model *model = hr_calloc(1, sizeof *model);
  if (!model) {
    hr_fail_memory(err, "model", sizeof *model);
    return NULL;
  }
  if (set_up(model, path, &options, err) == HR_OK) return model;
  hr_model_free(model);
  return NULL;
}

/* Reads the source that the model has been given; NULL is one that did not open. Takes the model
 * over. */
static hr_model *finish_open(hr_model *model, hr_error *err) {
  if (!model->source || open_model(model, err) != HR_OK) {
    hr_model_free(model);
    return NULL;
  }
  if (model->options.vocabulary_only) {
    hr_source_close(model->source);
    model->source = NULL;
  }
  return model;
}

hr_model *hr_model_open(const char *path, const hr_model_options *options, hr_error *err) {
  HR_FPENV_OWN;
  hr_error ignored;
  if (!err) err = &ignored;
  if (!path) {
    hr_fail(err, HR_ERROR_USAGE, "the path is NULL, expected a file or folder");
    return NULL;
  }
  hr_model *model = create(path, options, err);
  if (!model) return NULL;
  model->source = model->options.vocabulary_only ? hr_source_open_vocabulary(path, err)
                                                 : hr_source_open(path, err);
  return finish_open(model, err);
}

hr_model *hr_model_open_memory(const void *data, size_t bytes, const char *name,
                               const hr_model_options *options, hr_error *err) {
  HR_FPENV_OWN;
  hr_error ignored;
  if (!err) err = &ignored;
  if (!data || !name) {
    hr_fail(err, HR_ERROR_USAGE, "the data or their name is NULL, expected a GGUF file in memory");
    return NULL;
  }
  hr_model *model = create(name, options, err);
  if (!model) return NULL;
  model->source = hr_source_open_memory(data, bytes, name, err);
  return finish_open(model, err);
}

void hr_model_free(hr_model *model) {
  if (!model) return;
  hr_tokenizer_free(model->tokenizer);
  hr_vocab_storage_finish(&model->vocab);
  hr_chat_texts_finish(&model->chat);
  hr_loaded_finish(&model->loaded);
  hr_source_close(model->source);
  hr_free(model->path);
  hr_free(model->cores);
  hr_free(model);
}

size_t hr_model_vocab_size(const hr_model *model) {
  return model->is_planned ? model->loaded.transformer.description.vocab : model->token_count;
}

size_t hr_model_trained_context(const hr_model *model) {
  return model->loaded.transformer.description.context;
}

size_t hr_model_text_limit(const hr_model *model) {
  return model->loaded.transformer.description.text_limit;
}

size_t hr_model_width(const hr_model *model) {
  return model->loaded.transformer.description.width;
}

bool hr_model_has_logits(const hr_model *model) {
  return model->is_planned && !model->loaded.transformer.description.headless;
}

hr_pooling hr_model_pooling(const hr_model *model) {
  return model->loaded.transformer.description.pooling;
}

size_t hr_model_types(const hr_model *model) {
  return model->loaded.transformer.description.types;
}

size_t hr_model_classes(const hr_model *model) {
  return model->loaded.transformer.description.classes;
}

const char *hr_model_label(const hr_model *model, size_t index) {
  return model->loaded.labels && index < hr_model_classes(model) ? model->loaded.labels[index]
                                                                 : NULL;
}

bool hr_model_is_end_token(const hr_model *model, int32_t id) {
  return hr_vocab_is_end(&model->vocab, id);
}

bool hr_model_has_tokenizer(const hr_model *model) {
  return model->tokenizer != NULL;
}

const char *hr_model_isa(const hr_model *model) {
  return model->kernels.isa;
}

int32_t hr_model_start_token(const hr_model *model) {
  return model->start_token;
}

const char *hr_model_note(const hr_model *model) {
  return model->loaded.note[0] ? model->loaded.note : NULL;
}

const char *hr_model_warning(const hr_model *model) {
  return model->vocab.warning;
}
