/* SPDX-License-Identifier: MIT
 * headrow quantize: a GGUF file with smaller weights. */
#include <fnmatch.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "calibrate.h"
#include "gguf_file.h"
#include "interrupt.h"
#include "kernels/portable/half.h"
#include "kernels/select.h"
#include "mixture.h"
#include "output.h"
#include "quant/compensate.h"
#include "quantize.h"

#define AT(member) .offset = offsetof(cli_quantizing, member)

static const char *const types[] = {"q8_0", "f16", "bf16", "f32", NULL};
static const hr_format formats[] = {HR_FORMAT_Q8_0, HR_FORMAT_F16, HR_FORMAT_BF16, HR_FORMAT_F32};

static const cli_option options[] = {
    {"type", 0, "TYPE", "of the matrices: q8_0 (default), f16, bf16 or f32", CLI_CHOICE, AT(type),
     .choices = types},
    {"keep", 0, "TENSOR=TYPE",
     "another type for tensors of that name, which may hold * and ?;\nmany times, the last one "
     "that fits counts",
     CLI_TEXTS, AT(keep)},
    {"calibrate", 0, "FILE",
     "round so that the error on the activations of this text is small,\nnot that of the weights",
     CLI_TEXT, AT(calibrate)},
    {"split", 0, "TEXT", "where texts are cut into parts (default <|endoftext|>)", CLI_TEXT,
     AT(split)},
    {"max-kl", 0, "X",
     "the cheapest mix of int8 and F16 whose mean KL divergence is at\nmost X",
     CLI_REAL, AT(max_kl), .low = 0, .high = INFINITY},
    {"file", 'f', "FILE",
     "the text to measure --max-kl on, or --ids (default: the text of\n--calibrate)", CLI_TEXT,
     AT(file)},
    {"tokens", 0, "N", "of the texts at most so many are used (default 32768)", CLI_COUNT,
     AT(tokens), .least = 2, .most = INT32_MAX},
    {"json", 0, NULL, "one JSON document", CLI_FLAG, AT(json)},
};

/* --- Types --------------------------------------------------------------------- */

/* Norms, biases and tables of positions stay: they are small, and no product. */
static bool is_matrix(const hr_tensor *t) {
  static const char *const others[] = {"position_embd", "token_types", "_norm", "ffn_gate_inp"};
  const char *end = strrchr(t->name, '.');
  if (t->dims < 2 || !end || strcmp(end, ".weight") != 0) return false;
  for (size_t i = 0; i < sizeof others / sizeof *others; i++)
    if (strstr(t->name, others[i])) return false;
  return true;
}

static bool type_of_name(const char *name, hr_format *format) {
  for (size_t i = 0; types[i]; i++)
    if (strcmp(name, types[i]) == 0) {
      *format = formats[i];
      return true;
    }
  return false;
}

/* llama.cpp adds and multiplies rows of F32 only: it ends on a norm, a bias or a table of
 * token types of another type, and on factors of positions. */
static bool is_f32_only(const hr_tensor *t) {
  const char *end = strrchr(t->name, '.');
  return t->dims < 2 || !end || strcmp(end, ".weight") != 0 || strstr(t->name, "token_types") ||
         strstr(t->name, "_norm");
}

/* One --keep over all tensors; it must fit some. */
static int keep_tensors(const cli_quantizing *q, const char *rule, cli_quantized *tensor) {
  const char *equals = strrchr(rule, '=');
  hr_format format;
  char *pattern = equals ? strndup(rule, (size_t)(equals - rule)) : NULL;
  size_t fits = 0;
  if (!equals || !type_of_name(equals + 1, &format)) {
    free(pattern);
    return cli_fail(HR_ERROR_USAGE,
                    "--keep: '%.100s', expected TENSOR=TYPE with one of q8_0, f16, bf16, f32",
                    rule);
  }
  if (!pattern) return cli_fail_memory();
  int status = HR_OK;
  for (size_t i = 0; i < hr_source_tensor_count(q->source) && status == HR_OK; i++) {
    const hr_tensor *t = hr_source_tensor_at(q->source, i);
    if (fnmatch(pattern, t->name, 0) != 0) continue;
    if (is_f32_only(t) && format != HR_FORMAT_F32 && format != t->format)
      status = cli_fail(HR_ERROR_USAGE,
                        "--keep: '%.100s' would make '%s' %s, which llama.cpp does not run, "
                        "expected a name of matrices only, or f32",
                        rule, t->name, hr_format_get(format)->name);
    tensor[i].format = format;
    tensor[i].kept = true;
    fits++;
  }
  free(pattern);
  if (fits) return status;
  return cli_fail(HR_ERROR_USAGE, "--keep: no tensor is called as '%.100s' says, expected one",
                  rule);
}

/* int8 blocks need rows of a multiple of 32. */
static void widen_odd_rows(const cli_quantizing *q, cli_quantized *tensor) {
  size_t odd = 0;
  for (size_t i = 0; i < hr_source_tensor_count(q->source); i++) {
    const hr_tensor *t = hr_source_tensor_at(q->source, i);
    if (tensor[i].format != HR_FORMAT_Q8_0 || t->dim[t->dims - 1] % HR_Q8_BLOCK == 0) continue;
    tensor[i].format = HR_FORMAT_F16;
    odd++;
  }
  if (odd && !q->common.quiet)
    cli_note("note: %zu tensors become F16: their rows are no multiple of 32, as int8 blocks need",
             odd);
}

static int choose_types(const cli_quantizing *q, cli_quantized *tensor) {
  int status = HR_OK;
  for (size_t i = 0; i < hr_source_tensor_count(q->source); i++) {
    const hr_tensor *t = hr_source_tensor_at(q->source, i);
    tensor[i].format = is_matrix(t) ? formats[q->type.value] : t->format;
  }
  for (size_t i = 0; i < q->keep.count && status == HR_OK; i++)
    status = keep_tensors(q, q->keep.item[i], tensor);
  if (status == HR_OK) widen_odd_rows(q, tensor);
  return status;
}

/* --- Rounding ------------------------------------------------------------------ */

/* 25 % off the squared error of the largest value's scale; finer steps gain nothing. */
static const hr_scale_search search = {.fewest = 112.0f, .tries = 69};
/* With compensation a try costs more, and the rounding after it makes good for much. */
static const hr_scale_search compensated_search = {.fewest = 112.0f, .tries = 33};

typedef struct rounding {
  const hr_tensor *tensor;
  hr_format format;
  const hr_kernels *kernels;
  cli_compensation by; /* u NULL: without */
  char *out;
  size_t rows, k, row_bytes;
  _Atomic(size_t) next; /* row to be taken */
  _Atomic(size_t) bad;  /* a row with what can't be held; SIZE_MAX: none */
  _Atomic(bool) stopped, out_of_memory;
  double *error, *norm; /* of each thread */
  cli_progress *progress;
  double before, share; /* of the progress */
} rounding;

/* work: room for a row. */
static bool quantize_row(const rounding *r, const char *from, float *x, float *work, char *out) {
  const hr_format_info *format = hr_format_get(r->tensor->format);
  hr_q8_file_block *blocks = (hr_q8_file_block *)(void *)out;
  if (format->to_q8) {
    format->to_q8(from, blocks, r->k);
    return true;
  }
  if (r->by.shift) hr_shift_row(x, r->k, r->by.shift, work);
  if (r->by.u) return hr_quantize_row_compensated(x, r->k, r->by.u, compensated_search, blocks);
  for (size_t b = 0; b < r->k / HR_Q8_BLOCK; b++)
    if (!hr_quantize_block_best(r->kernels, x + b * HR_Q8_BLOCK, NULL, search, &blocks[b]))
      return false;
  return true;
}

static bool narrow_row(hr_format format, const float *x, size_t k, char *out) {
  uint16_t *half = (uint16_t *)(void *)out;
  if (format == HR_FORMAT_F32) memcpy(out, x, k * sizeof *x);
  for (size_t i = 0; format != HR_FORMAT_F32 && i < k; i++) {
    half[i] = format == HR_FORMAT_F16 ? hr_narrow_half(x[i]) : hr_narrow_brain(x[i]);
    uint16_t top = format == HR_FORMAT_F16 ? 0x7c00 : 0x7f80;
    if ((half[i] & top) == top) return false;
  }
  return true;
}

static bool all_finite(const float *x, size_t k) {
  float sum = 0;
  for (size_t i = 0; i < k; i++) sum += x[i] * 0.0f;
  return sum == 0.0f;
}

/* x: room for two rows. */
static bool round_row(rounding *r, size_t row, float *x, unsigned thread) {
  const hr_format_info *from = hr_format_get(r->tensor->format), *to = hr_format_get(r->format);
  const char *source =
      (const char *)r->tensor->data + row * (r->k / from->block_elements) * from->block_bytes;
  char *out = r->out + row * r->row_bytes;
  float *back = x + r->k;
  from->widen(source, x, r->k);
  if (!all_finite(x, r->k)) return false;
  if (r->format == r->tensor->format)
    memcpy(out, source, r->row_bytes);
  else if (r->format == HR_FORMAT_Q8_0 ? !quantize_row(r, source, x, back, out)
                                       : !narrow_row(r->format, x, r->k, out))
    return false;
  from->widen(source, back, r->k);
  to->widen(out, x, r->k);
  for (size_t i = 0; i < r->k; i++) {
    double e = (double)x[i] - (double)back[i];
    r->error[thread] += e * e;
    r->norm[thread] += (double)back[i] * (double)back[i];
  }
  return true;
}

static void round_rows(void *arg, unsigned thread, unsigned threads) {
  rounding *r = arg;
  float *x = malloc(2 * r->k * sizeof *x);
  (void)threads;
  if (!x) r->out_of_memory = true;
  for (size_t row; x && !r->stopped && (row = r->next++) < r->rows;) {
    if (!round_row(r, row, x, thread)) {
      r->bad = row;
      break;
    }
    if (thread == 0 &&
        !cli_report_progress(r->progress, r->before + r->share * (double)row / (double)r->rows))
      r->stopped = true;
  }
  free(x);
}

/* The sentence for a row that can't be held. */
static int refuse_row(const rounding *r, size_t row) {
  const hr_format_info *from = hr_format_get(r->tensor->format);
  const char *name = r->tensor->name;
  float *x = malloc(r->k * sizeof *x);
  if (!x) return cli_fail_memory();
  from->widen(
      (const char *)r->tensor->data + row * (r->k / from->block_elements) * from->block_bytes, x,
      r->k);
  size_t i = 0;
  while (i + 1 < r->k && isfinite(x[i])) i++;
  bool fault = !isfinite(x[i]);
  float value = x[i];
  for (size_t j = 0; !fault && j < r->k; j++)
    if (fabsf(x[j]) > fabsf(value)) value = x[j];
  free(x);
  if (fault)
    return cli_fail(HR_ERROR_NUMERIC, "tensor '%s': element %zu of row %zu is %s, expected numbers",
                    name, i, row, isnan(value) ? "NaN" : "infinite");
  return cli_fail(
      HR_ERROR_NUMERIC,
      "tensor '%s': %g in row %zu is outside of the range of %s, expected --keep '%s=f32'", name,
      (double)value, row, hr_format_get(r->format)->name, name);
}

static int finish_rounding(rounding *r, unsigned threads, cli_quantized *tensor) {
  tensor->error = tensor->norm = 0;
  for (unsigned t = 0; t < threads; t++) {
    tensor->error += r->error[t];
    tensor->norm += r->norm[t];
  }
  if (r->stopped) return HR_ERROR_CANCELLED;
  if (r->out_of_memory) return cli_fail_memory();
  tensor->fits = r->bad == SIZE_MAX;
  return tensor->fits || tensor->may_not_fit ? HR_OK : refuse_row(r, r->bad);
}

int cli_quantize_tensor(cli_quantizing *q, size_t index, cli_quantized *tensor) {
  const hr_tensor *t = hr_source_tensor_at(q->source, index);
  size_t k = t->dim[t->dims - 1], rows = 1;
  for (unsigned d = 0; d + 1 < t->dims; d++) rows *= t->dim[d];
  unsigned threads = hr_team_active(q->team, true);
  int status = HR_OK;
  hr_error err;
  rounding r = {.tensor = t,
                .format = tensor->format,
                .kernels = &q->kernels,
                .rows = rows,
                .k = k,
                .bad = SIZE_MAX,
                .progress = q->progress,
                .before = q->done,
                .share = q->share};
  bool wanted =
      q->calibration && tensor->format == HR_FORMAT_Q8_0 && !hr_format_get(t->format)->to_q8;
  if (wanted) status = cli_calibration_of(q->calibration, index, &r.by);
  if (status != HR_OK) return status;
  if (!hr_format_bytes(tensor->format, k, &r.row_bytes) ||
      !hr_format_bytes(tensor->format, rows * k, &tensor->bytes))
    return cli_fail_memory();
  r.out = tensor->data = malloc(tensor->bytes + 1);
  r.error = calloc(threads, sizeof *r.error);
  r.norm = calloc(threads, sizeof *r.norm);
  tensor->compensated = r.by.u != NULL;
  if (!r.out || !r.error || !r.norm)
    status = cli_fail_memory();
  else if (hr_team_run(q->team, threads, round_rows, &r, &err) != HR_OK)
    status = cli_fail_error(NULL, &err);
  else
    status = finish_rounding(&r, threads, tensor);
  free(r.error);
  free(r.norm);
  q->done += q->share;
  return status;
}

/* With a text to calibrate with, matrices are made in the order of a pass: each sees what
 * those before it have become. */
static int quantize_in_order(cli_quantizing *q, cli_quantized *tensor) {
  size_t *order = malloc((q->model->loaded.held_count + 1) * sizeof *order);
  if (!order) return cli_fail_memory();
  size_t count = cli_calibration_order(q->calibration, order);
  int status = HR_OK;
  q->share = 1.0 / (double)(count + 1);
  for (size_t i = 0; i < count && status == HR_OK; i++) {
    cli_quantized *t = &tensor[order[i]];
    if (t->format != HR_FORMAT_Q8_0) continue;
    status = cli_quantize_tensor(q, order[i], t);
    if (status == HR_OK)
      status = cli_calibration_take(q->calibration, order[i], t->format, t->data);
  }
  free(order);
  q->done = 0;
  return status;
}

/* --- The result ------------------------------------------------------------------ */

static double relative(double error, double norm) {
  return norm > 0 ? sqrt(error / norm) : 0;
}

static bool is_shown(const hr_source *source, const cli_quantized *t, size_t i) {
  return t->format != hr_source_tensor_at(source, i)->format || t->kept;
}

static size_t calibrated_tokens(const cli_quantizing *q) {
  return q->corpus.tokens < q->tokens.value ? q->corpus.tokens : (size_t)q->tokens.value;
}

static void print_table(const cli_quantizing *q, const cli_quantized *tensor) {
  size_t before = 0, after = 0;
  cli_print("%-32s from   to     error\n", "tensor");
  for (size_t i = 0; i < hr_source_tensor_count(q->source); i++) {
    const hr_tensor *t = hr_source_tensor_at(q->source, i);
    before += t->bytes;
    after += tensor[i].bytes;
    if (!is_shown(q->source, &tensor[i], i)) continue;
    cli_print("%-32s %-6s %-6s %.4f %%%s\n", t->name, hr_format_get(t->format)->name,
              hr_format_get(tensor[i].format)->name,
              100 * relative(tensor[i].error, tensor[i].norm),
              tensor[i].compensated ? " (on activations)" : "");
  }
  cli_print("weights: %zu bytes from %zu\n", after, before);
  if (q->calibration)
    cli_print("calibrated on %zu of %zu tokens\n", calibrated_tokens(q), q->corpus.tokens);
  if (!q->max_kl.given) return;
  cli_print("mean KL divergence: %.6g", q->kl.value);
  if (q->kl.error >= 0) cli_print(" +- %.2g", q->kl.error);
  cli_print(" on %zu of %zu tokens%s\n", q->kl_tokens, cli_corpus_scored(&q->measured),
            q->kl.error < 0 ? ", too few for a standard error" : "");
}

static json_t *part_of_text(size_t used, size_t all) {
  return json_pack("{s:I, s:I}", "tokens", (json_int_t)used, "of", (json_int_t)all);
}

static int print_json(const cli_quantizing *q, const cli_quantized *tensor) {
  json_t *list = json_array();
  for (size_t i = 0; i < hr_source_tensor_count(q->source); i++) {
    const hr_tensor *t = hr_source_tensor_at(q->source, i);
    json_array_append_new(
        list,
        json_pack("{s:o, s:s, s:s, s:I, s:f, s:b}", "name", cli_json_text(t->name, strlen(t->name)),
                  "from", hr_format_get(t->format)->name, "to",
                  hr_format_get(tensor[i].format)->name, "bytes", (json_int_t)tensor[i].bytes,
                  "relative_rms", relative(tensor[i].error, tensor[i].norm), "compensated",
                  tensor[i].compensated));
  }
  bool measured = q->max_kl.given, known = measured && q->kl.error >= 0;
  json_t *document = json_pack(
      "{s:o, s:o, s:o, s:o, s:o}", "tensors", list, "calibrated_on",
      q->calibration ? part_of_text(calibrated_tokens(q), q->corpus.tokens) : json_null(), "kl",
      measured ? json_real(q->kl.value) : json_null(), "kl_standard_error",
      known ? json_real(q->kl.error) : json_null(), "measured_on",
      measured ? part_of_text(q->kl_tokens, cli_corpus_scored(&q->measured)) : json_null());
  if (document && measured && !known)
    json_object_set_new(document, "reason", json_string(CLI_ONE_CLUSTER));
  return cli_print_json(document);
}

/* --- From start to end ----------------------------------------------------------- */

static size_t file_bytes(const cli_quantizing *q, const cli_quantized *tensor) {
  size_t total = 0, bytes;
  for (size_t i = 0; i < hr_source_tensor_count(q->source); i++) {
    const hr_tensor *t = hr_source_tensor_at(q->source, i);
    size_t count = 1;
    for (unsigned d = 0; d < t->dims; d++) count *= t->dim[d];
    if (hr_format_bytes(tensor[i].format, count, &bytes)) total += bytes;
  }
  return total;
}

static int write_head(const cli_quantizing *q, cli_save *save, const cli_quantized *tensor) {
  size_t count = hr_source_tensor_count(q->source);
  hr_format *format = calloc(count + 1, sizeof *format);
  if (!format) return cli_fail_memory();
  for (size_t i = 0; i < count; i++) format[i] = tensor[i].format;
  cli_gguf_begin(save, q->source, format);
  free(format);
  return HR_OK;
}

int cli_quantize_put(cli_quantizing *q, cli_save *save, cli_quantized *tensor) {
  size_t count = hr_source_tensor_count(q->source);
  int status = write_head(q, save, tensor);
  q->done = 0;
  q->share = 1.0 / (double)(count + 1);
  for (size_t i = 0; i < count && status == HR_OK && !save->error; i++) {
    bool made = tensor[i].data;
    if (!made) status = cli_quantize_tensor(q, i, &tensor[i]);
    if (status == HR_OK) cli_gguf_put(save, q->source, tensor[i].data, tensor[i].bytes);
    if (made) continue;
    free(tensor[i].data);
    tensor[i].data = NULL;
  }
  return status;
}

static int write_file(cli_quantizing *q, const char *out, cli_quantized *tensor) {
  cli_save save;
  int status = cli_save_begin(&save, out, file_bytes(q, tensor));
  if (status == HR_OK) status = cli_quantize_put(q, &save, tensor);
  if (status == HR_OK) return cli_save_end(&save);
  cli_save_abandon(&save);
  return status;
}

static void note_lost_before(const cli_quantizing *q) {
  size_t count = 0;
  for (size_t i = 0; i < hr_source_tensor_count(q->source); i++) {
    const hr_tensor *t = hr_source_tensor_at(q->source, i);
    count += is_matrix(t) && hr_format_get(t->format)->block_elements > 1;
  }
  if (count && !q->common.quiet)
    cli_note("note: %zu tensors are quantized already: what that lost is not got back", count);
}

static int quantize(cli_quantizing *q, const char *out) {
  size_t count = hr_source_tensor_count(q->source);
  cli_quantized *tensor = calloc(count + 1, sizeof *tensor);
  if (!tensor) return cli_fail_memory();
  int status = choose_types(q, tensor);
  if (status == HR_OK) note_lost_before(q);
  if (status == HR_OK && (q->calibrate || q->max_kl.given)) status = cli_quantize_prepare(q);
  if (status == HR_OK && q->calibration) status = quantize_in_order(q, tensor);
  if (status == HR_OK && q->max_kl.given) status = cli_quantize_for_kl(q, tensor);
  if (status == HR_OK) status = write_file(q, out, tensor);
  cli_end_progress(q->progress);
  if (status == HR_OK && q->json)
    status = print_json(q, tensor);
  else if (status == HR_OK)
    print_table(q, tensor);
  for (size_t i = 0; i < count; i++) free(tensor[i].data);
  free(tensor);
  return status;
}

static int open_and_quantize(cli_quantizing *q, const char *in, const char *out) {
  hr_error err;
  q->name = in;
  q->source = cli_open_source(in, &err);
  if (!q->source) return cli_fail_error(NULL, &err);
  int status = HR_OK;
  if (hr_source_get_kind(q->source) != HR_SOURCE_GGUF)
    status = cli_fail(HR_ERROR_FILE,
                      "%s: is safetensors, expected a GGUF file: convert it first (llama.cpp has "
                      "convert_hf_to_gguf.py), or use 'headrow pack --weights q8_0', which headrow "
                      "alone reads",
                      in);
  else if (hr_source_refused_count(q->source))
    status = cli_fail(HR_ERROR_FILE, "%s: has %zu tensors of whole numbers or F64, expected none",
                      in, hr_source_refused_count(q->source));
  if (status == HR_OK) status = cli_check_save(out);
  hr_kernels_select(&q->kernels, hr_cpu_features(), NULL);
  const hr_team_options team = {.threads = (unsigned)q->common.threads.value,
                                .threads_batch = (unsigned)q->common.threads_batch.value,
                                .no_pin = q->common.no_pin,
                                .cores = q->common.cores};
  if (status == HR_OK && !(q->team = hr_team_create(&team, &err)))
    status = cli_fail_error(NULL, &err);
  if (status == HR_OK) status = quantize(q, out);
  cli_quantize_finish(q);
  hr_team_free(q->team);
  hr_source_close(q->source);
  return status;
}

static int check_usage(const cli_quantizing *q) {
  const char *text = q->common.ids ? "--ids" : q->file ? "-f" : NULL;
  if (q->common.weights.given)
    return cli_fail(HR_ERROR_USAGE, "--weights: is for models that are run, expected --type");
  if (q->common.ids && q->file)
    return cli_fail(HR_ERROR_USAGE, "text: given twice, expected one of -f and --ids");
  if (q->max_kl.given && !text && !q->calibrate)
    return cli_fail(HR_ERROR_USAGE,
                    "--max-kl: no text to measure on, expected -f, --ids or --calibrate");
  if (text && !q->max_kl.given)
    return cli_fail(HR_ERROR_USAGE, "%s: nothing to measure, expected --max-kl with it", text);
  if (q->max_kl.given && q->type.value != 0)
    return cli_fail(HR_ERROR_USAGE, "--max-kl: mixes q8_0 with f16, expected --type q8_0");
  return HR_OK;
}

static int quantize_command(const cli_command *command, int argc, char **argv) {
  cli_quantizing q = {0};
  int status;
  if (!cli_start(command, argc, argv, &q, &status)) return status;
  const cli_texts *p = &q.common.positional;
  cli_progress progress = {.what = "quantizing", .start = cli_now()};
  if (p->count != 2)
    status = cli_fail(HR_ERROR_USAGE, "quantize: %zu files named, expected IN and OUT", p->count);
  else
    status = check_usage(&q);
  if (status == HR_OK) {
    if (!q.tokens.given) q.tokens.value = 32768;
    q.progress = isatty(STDERR_FILENO) && !q.common.quiet ? &progress : NULL;
    status = open_and_quantize(&q, p->item[0], p->item[1]);
  }
  free(q.keep.item);
  return status;
}

const cli_command cli_quantize_command = {
    .name = "quantize",
    .arguments = "IN OUT [--type q8_0|f16|bf16|f32] [options]",
    .summary = "write a GGUF file with smaller weights",
    .details =
        "Matrices get the type; norms, biases and tables of positions stay. Each int8 block takes\n"
        "the best of 69 scales, with --calibrate of 33. OUT is written under a temporary name and\n"
        "renamed when it is whole; llama.cpp reads it too. The table tells the relative RMS error\n"
        "of each tensor.",
    .options = options,
    .option_count = sizeof options / sizeof *options,
    .run = quantize_command,
};
