/* SPDX-License-Identifier: MIT
 * A session: its cache, its threads, the position of its sequence. */
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "engine/engine.h"
#include "engine/options.h"
#include "sched/fpenv.h"

enum { DEFAULT_CONTEXT = 4096, DEFAULT_CHUNK = 512, MOST_POSITIONS = 1 << 28 };
/* With the full mask the cache has room for that many times the context: texts begin at panels of
 * keys, and short ones leave most of theirs empty. It is one layer's. */
enum { SHORT_TEXTS = 4 };

static const hr_session_options default_options = {.size = sizeof default_options};

void hr_session_options_fill(hr_session_options *options, size_t size) {
  hr_options_fill(options, size, &default_options, sizeof default_options);
}

/* Positions that there can be, or 0 for no limit but memory. */
static size_t most_positions(const hr_transformer *t) {
  if (t->description.position != HR_POSITION_LEARNED) return 0;
  return t->position_rows - t->description.position_offset;
}

static hr_status check_options(const hr_model *model, const hr_session_options *o, hr_error *err) {
  const hr_transformer *t = &model->loaded.transformer;
  if (!model->is_planned)
    return hr_fail(err, HR_ERROR_USAGE, "%s: was opened for its vocabulary only", model->path);
  if ((unsigned)o->cache > HR_CACHE_F32)
    return hr_fail(err, HR_ERROR_USAGE, "hr_session_options: cache is %d, expected 0 to %d",
                   (int)o->cache, HR_CACHE_F32);
  size_t most = most_positions(t);
  if (most && o->context > most)
    return hr_fail(
        err, HR_ERROR_USAGE,
        "%s: a context of %zu was asked for, expected at most %zu, the model's learned positions",
        model->path, o->context, most);
  if (o->context > MOST_POSITIONS)
    return hr_fail(err, HR_ERROR_USAGE, "a context of %zu was asked for, expected at most %zu",
                   o->context, (size_t)MOST_POSITIONS);
  size_t context = o->context ? o->context : hr_default_context(&t->description);
  size_t most_sequences = MOST_POSITIONS / hr_round_up(context ? context : 1, HR_KEY_PANEL);
  if (o->sequences > most_sequences)
    return hr_fail(err, HR_ERROR_USAGE,
                   "%zu sequences of %zu positions were asked for, expected at most %zu of them",
                   o->sequences, context, most_sequences);
  return HR_OK;
}

size_t hr_default_context(const hr_description *d) {
  return d->context < DEFAULT_CONTEXT ? d->context : DEFAULT_CONTEXT;
}

/* What options come to for a model. */
typedef struct sizes {
  size_t context, sequences, chunk;
  size_t positions; /* of the cache: every sequence begins at a panel of keys */
  bool half;
} sizes;

/* With the full mask every row sees all others: a text is one piece. */
static size_t chunk_of(const hr_description *d, const hr_session_options *o, const sizes *z) {
  bool full = d->mask == HR_MASK_FULL;
  size_t chunk = o->chunk && !full ? o->chunk : DEFAULT_CHUNK;
  size_t rows = z->context * z->sequences; /* there can be */
  if (full && chunk < z->context) return z->context;
  return chunk < rows ? chunk : rows;
}

static sizes sizes_of(const hr_model *model, const hr_session_options *o) {
  const hr_description *d = &model->loaded.transformer.description;
  sizes z = {.context = o->context ? o->context : hr_default_context(d),
             .sequences = o->sequences ? o->sequences : 1};
  z.positions = z.sequences == 1 ? z.context
                                 : z.sequences * hr_round_up(z.context, HR_KEY_PANEL);
  if (d->mask == HR_MASK_FULL) z.positions *= SHORT_TEXTS;
  z.chunk = chunk_of(d, o, &z);
  z.half = o->cache == HR_CACHE_AUTO ? !model->loaded.all_f32 : o->cache == HR_CACHE_F16;
  return z;
}

static size_t bytes_of(const hr_matrix *m) {
  return hr_round_up(m->n, HR_PANEL_ROWS) / HR_PANEL_ROWS * hr_panel_bytes(m->type, m->k);
}

/* A layer has five barriers, of 0.3 to 1 us with few threads; 128 KiB of weights are read from a
 * cache in 3 us. Where a thread's part of a layer is less than that, the barriers cost more
 * than the thread saves. */
unsigned hr_threads_worth(const hr_transformer *t) {
  enum { PART_BYTES = 128 << 10 };
  size_t bytes = bytes_of(&t->head), layers = t->description.layers;
  for (size_t i = 0; i < layers; i++) {
    const hr_layer *l = &t->layer[i];
    const hr_matrix *all[] = {&l->query, &l->key, &l->value, &l->output,
                              &l->gate,  &l->up,  &l->down};
    for (size_t j = 0; j < sizeof all / sizeof *all; j++) bytes += bytes_of(all[j]);
  }
  size_t most = layers ? bytes / layers / PART_BYTES : 0;
  return most < 1 ? 1 : most < UINT32_MAX ? (unsigned)most : UINT32_MAX;
}

static hr_team_options team_of(const hr_model *model, const hr_session_options *o) {
  return (hr_team_options){.threads = o->threads, .threads_batch = o->threads_batch,
                           .no_pin = o->no_pin, .cores = o->cores,
                           .most = hr_threads_worth(&model->loaded.transformer)};
}

static hr_status set_up(hr_session *s, const hr_session_options *o, hr_error *err) {
  const hr_model *model = s->model;
  const hr_description *d = &model->loaded.transformer.description;
  const sizes z = sizes_of(model, o);
  s->context = z.context;
  s->chunk = z.chunk;
  s->sequences = z.sequences;
  s->position = hr_calloc(z.sequences, sizeof *s->position);
  if (!s->position) return hr_fail_memory(err, "session", z.sequences * sizeof *s->position);
  s->progress = o->progress;
  s->progress_data = o->progress_data;

  const hr_team_options team = team_of(model, o);
  s->team = hr_team_create(&team, err);
  if (!s->team) return err->status;
  unsigned one = hr_team_threads(s->team), many = hr_team_threads_batch(s->team);
  s->workspace = hr_workspace_create(&model->loaded.transformer, &model->kernels, s->chunk,
                                     s->context, one > many ? one : many, err);
  if (!s->workspace) return err->status;
  hr_status status = hr_kv_cache_init(&s->cache, d, z.positions, z.half, err);
  s->cache.room = hr_round_up(z.context, HR_KEY_PANEL); /* every sequence has as much */
  return status;
}

/* As many as a team has seats: the larger of the two counts. */
static unsigned threads_of(const hr_session_options *o) {
  long online = sysconf(_SC_NPROCESSORS_ONLN);
  unsigned cpus = online > 1 ? (unsigned)online : 1;
  unsigned one = o->threads ? o->threads : cpus;
  unsigned many = o->threads_batch ? o->threads_batch : one;
  return one > many ? one : many;
}

hr_status hr_model_memory(const hr_model *model, const hr_session_options *given,
                          hr_memory *memory, hr_error *err) {
  hr_session_options options = default_options;
  hr_status status = hr_options_check_size(memory, sizeof *memory, "hr_memory", err);
  if (status == HR_OK)
    status = hr_options_take(&options, sizeof options, given, "hr_session_options", err);
  if (status == HR_OK) status = check_options(model, &options, err);
  if (status != HR_OK) return status;
  const hr_team_options team = team_of(model, &options);
  status = hr_team_check(&team, err);
  if (status != HR_OK) return status;
  const hr_description *d = &model->loaded.transformer.description;
  const sizes z = sizes_of(model, &options);
  size_t bytes = model->loaded.weight_bytes;
  const hr_memory all = {
      .size = sizeof all,
      .weights = model->loaded.mapped ? 0 : bytes,
      .mapped = model->loaded.mapped ? bytes : 0,
      .cache = hr_kv_cache_bytes(d, z.positions, z.half),
      .work = hr_workspace_bytes(d, z.chunk, z.context, threads_of(&options)),
      .context = z.context,
  };
  if (!all.cache || !all.work)
    return hr_fail(err, HR_ERROR_MEMORY,
                   "%s: a context of %zu does not fit into this machine's addresses", model->path,
                   z.context);
  hr_options_fill(memory, memory->size, &all, sizeof all);
  return HR_OK;
}

hr_session *hr_session_create(const hr_model *model, const hr_session_options *given,
                              hr_error *err) {
  HR_FPENV_OWN;
  hr_error ignored;
  if (!err) err = &ignored;
  hr_session_options options = default_options;
  if (hr_options_take(&options, sizeof options, given, "hr_session_options", err) != HR_OK ||
      check_options(model, &options, err) != HR_OK)
    return NULL;
  if (!model->has_weights) {
    hr_fail(err, HR_ERROR_USAGE, "%s: has no weights yet, expected a call of hr_model_load",
            model->path);
    return NULL;
  }
  hr_session *session = hr_calloc(1, sizeof *session);
  if (!session) {
    hr_fail_memory(err, "session", sizeof *session);
    return NULL;
  }
  session->model = model;
  if (set_up(session, &options, err) != HR_OK) {
    hr_session_free(session);
    return NULL;
  }
  return session;
}

void hr_session_free(hr_session *s) {
  if (!s) return;
  hr_team_free(s->team);
  hr_workspace_free(s->workspace);
  hr_kv_cache_finish(&s->cache);
  hr_free(s->logits);
  hr_free(s->position);
  hr_batch_free(s->batch);
  hr_session_forget_encoded(s);
  hr_free(s);
}

hr_status hr_session_check_ids(const hr_session *s, size_t position, const int32_t *ids,
                               size_t count, hr_error *err) {
  size_t vocab = hr_model_vocab_size(s->model);
  if (count == 0)
    return hr_fail(err, HR_ERROR_USAGE, "no tokens to evaluate, expected at least one");
  if (count > s->context - position)
    return hr_fail(
        err, HR_ERROR_CONTEXT,
        "%zu tokens at position %zu do not fit, expected at most %zu: the context holds %zu", count,
        position, s->context - position, s->context);
  for (size_t i = 0; i < count; i++)
    if (ids[i] < 0 || (size_t)ids[i] >= vocab)
      return hr_fail(err, HR_ERROR_USAGE, "token id %d is not in the vocabulary, expected 0 to %zu",
                     ids[i], vocab - 1);
  return HR_OK;
}

hr_status hr_session_make_room(hr_session *s, size_t rows, hr_error *err) {
  if (rows <= s->logits_capacity) return HR_OK;
  size_t floats;
  float *logits = NULL;
  if (hr_mul_size(rows, hr_model_vocab_size(s->model), &floats))
    logits = hr_realloc(s->logits, floats, sizeof *logits);
  if (!logits)
    return hr_fail_memory(err, "logits", rows * hr_model_vocab_size(s->model) * sizeof *logits);
  s->logits = logits;
  s->logits_capacity = rows;
  return HR_OK;
}

hr_status hr_session_check_logits(const hr_session *s, size_t row, size_t position,
                                  hr_error *err) {
  size_t vocab = hr_model_vocab_size(s->model), i = 0;
  const float *x = s->logits + row * vocab;
  if (hr_all_finite(x, vocab)) return HR_OK;
  while (isfinite(x[i])) i++;
  return hr_fail(err, HR_ERROR_NUMERIC,
                 "the logit of token %zu after position %zu is %s, expected a finite number", i,
                 position, isnan(x[i]) ? "NaN" : "infinite");
}

unsigned hr_session_active(const hr_session *s, bool many) {
  if (!s->crowded) return hr_team_active(s->team, many);
  return many ? hr_team_threads_batch(s->team) : hr_team_threads(s->team);
}

hr_status hr_session_forward(hr_session *s, const hr_request *request, hr_error *err) {
  unsigned threads = hr_session_active(s, request->rows > 1);
  return hr_forward(s->workspace, s->team, threads, &s->cache, request, err);
}

static hr_status run_chunks(hr_session *s, const int32_t *ids, size_t count, hr_logits_rows rows,
                            hr_error *err) {
  size_t vocab = hr_model_vocab_size(s->model);
  for (size_t done = 0; done < count;) {
    size_t n = count - done < s->chunk ? count - done : s->chunk;
    bool last = done + n == count;
    hr_request request = {.ids = ids + done, .rows = n, .start = s->position[0],
                          .logits_from = n};
    if (rows == HR_LOGITS_ALL) {
      request.logits_from = 0;
      request.logits = s->logits + done * vocab;
    } else if (rows == HR_LOGITS_LAST && last) {
      request.logits_from = n - 1;
      request.logits = s->logits;
    }
    hr_status status = hr_session_forward(s, &request, err);
    if (status != HR_OK) return status;
    done += n;
    s->position[0] += n;
    if (!last && s->progress && !s->progress(s->progress_data, (double)done / (double)count))
      return hr_fail(err, HR_ERROR_CANCELLED, "evaluation was cancelled after %zu of %zu tokens",
                     done, count);
  }
  return HR_OK;
}

hr_status hr_session_check_rows(const hr_session *s, hr_logits_rows rows, hr_error *err) {
  if ((unsigned)rows > HR_LOGITS_ALL)
    return hr_fail(err, HR_ERROR_USAGE, "rows of logits is %d, expected 0 to %d", (int)rows,
                   HR_LOGITS_ALL);
  if (rows != HR_LOGITS_NONE && s->model->loaded.transformer.description.headless)
    return hr_fail(err, HR_ERROR_USAGE,
                   "%s: is an encoder without a language-model head, it gives hidden states only",
                   s->model->path);
  return HR_OK;
}

hr_status hr_session_eval(hr_session *s, const int32_t *ids, size_t count, hr_logits_rows rows,
                          hr_error *err) {
  HR_FPENV_OWN;
  size_t before = s->position[0];
  s->logits_rows = 0;
  hr_session_forget_encoded(s);
  hr_status status = hr_session_check_rows(s, rows, err);
  if (status == HR_OK) status = hr_session_check_ids(s, before, ids, count, err);
  size_t wanted = rows == HR_LOGITS_ALL ? count : rows == HR_LOGITS_LAST ? 1 : 0;
  if (status == HR_OK) status = hr_session_make_room(s, wanted, err);
  if (status != HR_OK) return status;
  if (s->model->loaded.transformer.description.mask == HR_MASK_FULL && before > 0)
    return hr_fail(
        err, HR_ERROR_USAGE,
        "a model that sees both ways takes a text in one call, expected position 0 and not %zu",
        before);
  status = run_chunks(s, ids, count, rows, err);
  if (status == HR_ERROR_CANCELLED) return status;
  for (size_t r = 0; status == HR_OK && r < wanted; r++)
    status = hr_session_check_logits(s, r, before + count - wanted + r, err);
  if (status == HR_OK)
    s->logits_rows = wanted;
  else
    s->position[0] = before;
  return status;
}

const float *hr_session_logits(const hr_session *s, size_t row) {
  return row < s->logits_rows ? s->logits + row * hr_model_vocab_size(s->model) : NULL;
}

size_t hr_session_position(const hr_session *s) {
  return s->position[0];
}
size_t hr_session_position_of(const hr_session *s, size_t sequence) {
  return sequence < s->sequences ? s->position[sequence] : 0;
}
size_t hr_session_context(const hr_session *s) {
  return s->context;
}
unsigned hr_session_threads(const hr_session *s) {
  return hr_team_threads(s->team);
}
unsigned hr_session_threads_batch(const hr_session *s) {
  return hr_team_threads_batch(s->team);
}
hr_cache hr_session_cache(const hr_session *s) {
  return s->cache.half ? HR_CACHE_F16 : HR_CACHE_F32;
}
const char *hr_session_warning(const hr_session *s) {
  return hr_team_warning(s->team);
}

hr_status hr_session_rewind_sequence(hr_session *s, size_t sequence, size_t position,
                                     hr_error *err) {
  if (sequence >= s->sequences)
    return hr_fail(err, HR_ERROR_USAGE, "sequence %zu is not there, expected 0 to %zu", sequence,
                   s->sequences - 1);
  if (position > s->position[sequence])
    return hr_fail(err, HR_ERROR_USAGE, "can't go back to position %zu, expected at most %zu",
                   position, s->position[sequence]);
  s->position[sequence] = position;
  return HR_OK;
}

hr_status hr_session_rewind(hr_session *s, size_t position, hr_error *err) {
  return hr_session_rewind_sequence(s, 0, position, err);
}
