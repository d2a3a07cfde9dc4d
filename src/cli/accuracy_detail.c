/* SPDX-License-Identifier: MIT
 * Which layers and tensors the error comes from: the reference with one of them at
 * a time exchanged for the model's. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "accuracy.h"
#include "interrupt.h"
#include "mixture.h"
#include "output.h"
#include "quant/convert.h"

typedef struct measuring {
  const cli_accuracy *set;
  const hr_model *model;
  const cli_corpus *corpus;
  cli_mixture mix; /* of the reference */
  hr_session *session[2];
  size_t vocab, tokens, room;
  double *kl; /* [room], of each token */
  uint32_t *cluster;
  hr_clusters clusters;
  size_t done, runs;
  cli_detail *detail;
} measuring;

static int add_kl(void *arg, size_t part, const float *const *logits, int32_t next) {
  (void)next;
  measuring *m = arg;
  m->cluster[m->tokens] = hr_next_cluster(&m->clusters, part);
  m->kl[m->tokens++] = hr_divergence(logits[0], logits[1], m->vocab);
  return HR_OK;
}

/* Mean KL divergence of the second session from the first. */
static int mean_kl(measuring *m, hr_estimate *kl) {
  static const char *const names[] = {"the reference", "the model"};
  double each = 1.0 / (double)m->runs;
  cli_scoring scoring = {.session = m->session,
                         .sessions = 2,
                         .name = names,
                         .vocab = m->vocab,
                         .stride = (size_t)m->set->stride.value,
                         .most = (size_t)m->set->detail.value,
                         .what = m->set->common.quiet ? NULL : "error by tensor",
                         .done_before = each * (double)m->done++,
                         .share = each};
  m->clusters = (hr_clusters){.length = hr_cluster_tokens(m->room)};
  m->tokens = 0;
  int status = cli_score(&scoring, m->corpus, add_kl, m);
  *kl = hr_mean(m->kl, m->cluster, m->tokens);
  return status;
}

/* Relative RMS error of the model's values against the reference's. */
static bool weight_error(const hr_matrix *model, const hr_matrix *reference, double *error) {
  float *row = calloc(2 * (size_t)model->k, sizeof *row);
  double sum = 0, norm = 0;
  if (!row) return false;
  for (size_t r = 0; r < model->n; r++) {
    hr_panel_row(model->type, model->panels, model->k, r, row);
    hr_panel_row(reference->type, reference->panels, model->k, r, row + model->k);
    for (size_t k = 0; k < model->k; k++) {
      double x = (double)row[model->k + k], e = (double)row[k] - x;
      sum += e * e;
      norm += x * x;
    }
  }
  free(row);
  *error = norm > 0 ? sqrt(sum / norm) : 0;
  return true;
}

static const hr_matrix *held(const hr_model *model, size_t i) {
  return model->loaded.held[i].matrix;
}

/* A tensor alone: its values only, then as it is in the model. */
static int blame_tensor(measuring *m, size_t i) {
  cli_blame *b = &m->detail->tensor[i];
  if (!weight_error(held(m->model, i), held(m->mix.base, i), &b->weights) ||
      (m->detail->alone && !cli_mixture_widen(&m->mix, i, held(m->model, i))))
    return cli_fail_memory();
  int status = m->detail->alone ? mean_kl(m, &b->kl_weights) : HR_OK;
  cli_mixture_set(&m->mix, i, held(m->model, i)->type, held(m->model, i)->panels);
  if (status == HR_OK) status = mean_kl(m, &b->kl);
  cli_mixture_reset(&m->mix, i);
  return status;
}

static int blame_layer(measuring *m, uint32_t layer) {
  const hr_loaded *loaded = &m->model->loaded;
  for (size_t i = 0; i < loaded->held_count; i++)
    if (cli_layer_of(loaded, i) == (int64_t)layer)
      cli_mixture_set(&m->mix, i, held(m->model, i)->type, held(m->model, i)->panels);
  int status = mean_kl(m, &m->detail->layer[layer].kl);
  for (size_t i = 0; i < loaded->held_count; i++) cli_mixture_reset(&m->mix, i);
  return status;
}

/* --- Outputs of the layers --------------------------------------------------------
 * The session of the reference is always evaluated before that of the model. */

typedef struct outputs {
  float *reference; /* [layers][rows][width] of the last piece */
  size_t layers, rows, width;
  double *error, *norm;
} outputs;

static void keep_output(void *arg, const char *name, uint32_t layer, const float *data, size_t rows,
                        size_t columns, size_t stride) {
  outputs *o = arg;
  if (strcmp(name, "block") != 0 || rows > o->rows || columns != o->width) return;
  for (size_t r = 0; r < rows; r++)
    memcpy(o->reference + (layer * o->rows + r) * o->width, data + r * stride,
           columns * sizeof *data);
}

static void compare_output(void *arg, const char *name, uint32_t layer, const float *data,
                           size_t rows, size_t columns, size_t stride) {
  outputs *o = arg;
  if (strcmp(name, "block") != 0 || rows > o->rows || columns != o->width) return;
  for (size_t r = 0; r < rows; r++) {
    const float *from = o->reference + (layer * o->rows + r) * o->width;
    for (size_t i = 0; i < columns; i++) {
      double x = (double)from[i], e = (double)data[r * stride + i] - x;
      o->error[layer] += e * e;
      o->norm[layer] += x * x;
    }
  }
}

static int blame_outputs(measuring *m, hr_session *tested) {
  const hr_description *d = &m->model->loaded.transformer.description;
  outputs o = {.layers = d->layers, .width = d->width, .rows = tested->chunk};
  hr_session *mixed = m->session[1];
  o.reference = calloc(o.layers * o.rows * o.width, sizeof *o.reference);
  o.error = calloc(o.layers, sizeof *o.error);
  o.norm = calloc(o.layers, sizeof *o.norm);
  int status = o.reference && o.error && o.norm ? HR_OK : cli_fail_memory();
  if (status == HR_OK) {
    m->session[1] = tested;
    hr_workspace_set_tap(m->session[0]->workspace, keep_output, &o);
    hr_workspace_set_tap(tested->workspace, compare_output, &o);
    status = mean_kl(m, &m->detail->kl);
    hr_workspace_set_tap(m->session[0]->workspace, NULL, NULL);
    m->session[1] = mixed;
    m->detail->tokens = m->tokens;
  }
  for (size_t i = 0; status == HR_OK && i < o.layers; i++)
    m->detail->layer_output[i] = o.norm[i] > 0 ? sqrt(o.error[i] / o.norm[i]) : 0;
  free(o.reference);
  free(o.error);
  free(o.norm);
  return status;
}

/* --- All of it -------------------------------------------------------------------- */

static int measure(measuring *m, hr_session *tested) {
  const hr_loaded *loaded = &m->model->loaded;
  uint32_t layers = loaded->transformer.description.layers;
  m->runs = (m->detail->alone ? 2 : 1) * loaded->held_count + layers + 1;
  int status = blame_outputs(m, tested);
  for (uint32_t i = 0; i < layers && status == HR_OK; i++) status = blame_layer(m, i);
  for (size_t i = 0; i < loaded->held_count && status == HR_OK; i++) status = blame_tensor(m, i);
  return status;
}

int cli_detail_measure(const cli_accuracy *set, const hr_model *model, const hr_model *reference,
                       const cli_corpus *corpus, cli_detail *detail) {
  measuring m = {.set = set,
                 .model = model,
                 .corpus = corpus,
                 .detail = detail,
                 .vocab = hr_model_vocab_size(model)};
  uint32_t layers = model->loaded.transformer.description.layers;
  m.room = cli_corpus_scored(corpus);
  if (m.room > set->detail.value) m.room = (size_t)set->detail.value;
  m.kl = calloc(m.room, sizeof *m.kl);
  m.cluster = calloc(m.room, sizeof *m.cluster);
  detail->alone = reference->loaded.all_f32;
  detail->tensor = calloc(model->loaded.held_count, sizeof *detail->tensor);
  detail->layer = calloc(layers + 1, sizeof *detail->layer);
  detail->layer_output = calloc(layers + 1, sizeof *detail->layer_output);
  bool made = m.kl && m.cluster && detail->tensor && detail->layer && detail->layer_output &&
              cli_mixture_init(&m.mix, reference);
  int status = made ? HR_OK : cli_fail_memory();
  cli_common fp32 = set->common;
  fp32.quiet = true;
  fp32.cache = (cli_choice){HR_CACHE_F32 - HR_CACHE_F16, true};
  hr_session *tested = NULL;
  if (made) m.session[0] = cli_open_session(&fp32, reference, &status);
  if (m.session[0]) m.session[1] = cli_open_session(&fp32, &m.mix.model, &status);
  if (m.session[1]) tested = cli_open_session(&fp32, model, &status);
  if (tested) status = measure(&m, tested);
  hr_session_free(tested);
  hr_session_free(m.session[1]);
  hr_session_free(m.session[0]);
  cli_mixture_finish(&m.mix);
  free(m.kl);
  free(m.cluster);
  return status;
}

void cli_detail_free(cli_detail *d) {
  free(d->tensor);
  free(d->layer);
  free(d->layer_output);
}

static const char *const panel_names[] = {"F32", "F16", "BF16", "Q8_0"};

/* What shares are of: what the tensors do one at a time, which need not be what they do
 * together. */
static double sum_of(const cli_detail *d, size_t count) {
  double sum = 0;
  for (size_t i = 0; i < count; i++) sum += d->tensor[i].kl.value;
  return sum;
}

static double share_of(hr_estimate kl, double sum) {
  return sum > 0 ? kl.value / sum : 0;
}

static const char *name_of(const hr_model *model, const hr_source *source, size_t i) {
  return hr_source_tensor_at(source, model->loaded.held[i].tensor)->name;
}

/* "1.234e-05 +- 1e-06", 18 wide; without the error where there is none. */
static const char *kl_text(hr_estimate kl, char text[static 32]) {
  if (kl.error < 0)
    snprintf(text, 32, "%-18.3e", kl.value);
  else
    snprintf(text, 32, "%.3e +- %.0e", kl.value, kl.error);
  return text;
}

/* "blk.0.attn_qkv.weight (q)": what --keep takes stands in front. */
static const char *label_of(const hr_model *model, const hr_source *source, size_t i,
                            char text[static 96]) {
  const char *part = cli_part_of(&model->loaded, i);
  if (!part) return name_of(model, source, i);
  snprintf(text, 96, "%.80s (%s)", name_of(model, source, i), part);
  return text;
}

void cli_detail_print(const cli_detail *d, const hr_model *model, const hr_source *source) {
  const hr_loaded *loaded = &model->loaded;
  double sum = sum_of(d, loaded->held_count);
  char kl[32], alone[32], label[96];
  bool parts = false;
  cli_print("\nOne at a time as the model has it, all else as the reference; %zu tokens:\n"
            "mean KL of the whole model on these %.3e", d->tokens, d->kl.value);
  if (d->kl.error >= 0) cli_print(" +- %.0e", d->kl.error);
  cli_print("\nsum of the tensors' mean KL         %.3e, which shares are of\n\n"
            "layer  output error  mean KL             share\n", sum);
  for (uint32_t i = 0; i < loaded->transformer.description.layers; i++)
    cli_print("%5u  %10.4f %%  %s  %4.1f %%\n", i, 100 * d->layer_output[i],
              kl_text(d->layer[i].kl, kl), 100 * share_of(d->layer[i].kl, sum));
  cli_print("\n%-32s type  weight error  mean KL             of weights          share\n",
            "tensor");
  for (size_t i = 0; i < loaded->held_count; i++) {
    const cli_blame *b = &d->tensor[i];
    parts = parts || cli_part_of(loaded, i);
    cli_print("%-32s %-5s %10.4f %%  %s  %-18s  %4.1f %%\n",
              label_of(model, source, i, label),
              panel_names[held(model, i)->type], 100 * b->weights, kl_text(b->kl, kl),
              d->alone ? kl_text(b->kl_weights, alone) : "-", 100 * share_of(b->kl, sum));
  }
  if (parts)
    cli_print("\nParts in parentheses are rows of one tensor: 'quantize --keep' takes its name "
              "alone.\n");
}

json_t *cli_detail_json(const cli_detail *d, const hr_model *model, const hr_source *source) {
  const hr_loaded *loaded = &model->loaded;
  double sum = sum_of(d, loaded->held_count);
  json_t *layers = json_array(), *tensors = json_array();
  for (uint32_t i = 0; i < loaded->transformer.description.layers; i++)
    json_array_append_new(
        layers, json_pack("{s:f, s:f, s:o, s:f}", "output_error", d->layer_output[i], "kl",
                          d->layer[i].kl.value, "kl_standard_error", cli_error_json(d->layer[i].kl),
                          "share", share_of(d->layer[i].kl, sum)));
  for (size_t i = 0; i < loaded->held_count; i++) {
    const cli_blame *b = &d->tensor[i];
    const char *name = name_of(model, source, i), *part = cli_part_of(loaded, i);
    json_array_append_new(
        tensors,
        json_pack("{s:o, s:s?, s:s, s:f, s:o, s:o, s:f, s:o, s:f}", "name",
                  cli_json_text(name, strlen(name)), "part", part, "type",
                  panel_names[held(model, i)->type], "weight_error", b->weights, "kl_weights",
                  d->alone ? json_real(b->kl_weights.value) : json_null(),
                  "kl_weights_standard_error",
                  d->alone ? cli_error_json(b->kl_weights) : json_null(), "kl", b->kl.value,
                  "kl_standard_error", cli_error_json(b->kl), "share", share_of(b->kl, sum)));
  }
  json_t *detail =
      json_pack("{s:I, s:f, s:o, s:f, s:o, s:o}", "tokens", (json_int_t)d->tokens, "kl",
                d->kl.value, "kl_standard_error", cli_error_json(d->kl), "sum_of_tensors", sum,
                "layers", layers, "tensors", tensors);
  if (detail && d->kl.error < 0)
    json_object_set_new(detail, "reason", json_string(CLI_ONE_CLUSTER));
  return detail;
}
