/* SPDX-License-Identifier: MIT
 * headrow info: a model act by act, and the machine. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "acts.h"
#include "base/memory.h"
#include "builtin.h"
#include "cli.h"
#include "engine/engine.h"
#include "kernels/select.h"
#include "machine.h"
#include "memory.h"
#include "mixture.h"
#include "model/packed.h"
#include "output.h"
#include "sched/memory.h"
#include "sched/placement.h"
#include "texts.h"
#include "threads.h"

typedef struct settings {
  cli_common common;
  bool cpu, json, loss;
} settings;

static const cli_option options[] = {
    {"cpu", 0, NULL, "the machine: cores, limits, features, kernels; with a MODEL, both", CLI_FLAG,
     .offset = offsetof(settings, cpu)},
    {"loss", 0, NULL,
     "pack the weights and tell what that loses; with -v for each tensor", CLI_FLAG,
     .offset = offsetof(settings, loss)},
    {"json", 0, NULL, "one JSON document", CLI_FLAG, .offset = offsetof(settings, json)},
};

/* --- The machine --------------------------------------------------------------- */

typedef struct machine {
  hr_topology *topology;
  hr_limits limits;
  hr_placement placement;
} machine;

/* The placement of a session with such wishes, in place of another. */
static hr_status place(machine *m, const hr_wishes *wishes, hr_error *err) {
  hr_placement_free(&m->placement);
  hr_status status = hr_placement_make(&m->placement, m->topology, &m->limits, wishes, err);
  if (status == HR_OK && m->limits.has_affinity)
    hr_placement_try(&m->placement, m->topology, &m->limits.affinity);
  return status;
}

static machine *machine_create(const cli_common *common, hr_error *err) {
  machine *m = calloc(1, sizeof *m);
  if (!m) return NULL;
  hr_limits_read(&m->limits, "/");
  hr_limits_read_affinity(&m->limits);
  const hr_wishes wishes = {.threads = (unsigned)common->threads.value,
                            .threads_batch = (unsigned)common->threads_batch.value,
                            .cores = common->cores,
                            .no_pin = common->no_pin};
  m->topology = hr_topology_load(NULL, err);
  if (m->topology && place(m, &wishes, err) == HR_OK) return m;
  hr_topology_free(m->topology);
  free(m);
  return NULL;
}

/* The placement that a session of this model has. */
static int place_model(machine *m, const cli_common *common, const hr_model *model) {
  hr_error err;
  hr_wishes wishes = {.cores = common->cores,
                      .no_pin = common->no_pin,
                      .most = hr_threads_worth(&model->loaded.transformer)};
  wishes.by_trials = cli_find_threads(common, model, &wishes.threads, &wishes.threads_batch);
  return place(m, &wishes, &err) == HR_OK ? HR_OK : cli_fail_error(NULL, &err);
}

static void machine_free(machine *m) {
  if (!m) return;
  hr_placement_free(&m->placement);
  hr_topology_free(m->topology);
  free(m);
}

static void print_line(void *data, const char *line) {
  (void)data;
  cli_print("%s\n", line);
}

static void print_kernel(void *data, const char *slot, const char *kernel) {
  (void)data;
  cli_print("  %-18s %s\n", slot, kernel);
}

static void describe_threads(const machine *m, const cli_common *common, bool any_model,
                             cli_line_fn *line, void *data) {
  hr_placement_describe(&m->placement, m->topology, &m->limits, line, data);
  if (any_model && !common->threads.value && m->placement.threads > 1)
    line(data, "small models take fewer threads for one token at a time: info --cpu MODEL tells");
  cli_describe_threads(common, line, data);
}

static void print_machine(const machine *m, const cli_common *common, bool any_model) {
  uint32_t bits = hr_cpu_features();
  describe_threads(m, common, any_model, print_line, NULL);
  char tiers[128];
  hr_kernels_available(bits, tiers, sizeof tiers);
  cli_print("features:");
  size_t count;
  const hr_cpu_feature *feature = hr_cpu_feature_list(&count);
  for (size_t i = 0; i < count; i++)
    if (bits & feature[i].bit) cli_print(" %s", feature[i].name);
  cli_print(bits ? "\n" : " none that kernels exist for\n");
  cli_print("kernel tiers: %s (this CPU), %s (this build)\nkernels:\n", tiers, cli_tier_names());
  cli_visit_kernels(common->isa, print_kernel, NULL);
}

static void add_line(void *data, const char *line) {
  json_array_append_new(data, cli_json_text(line, strlen(line)));
}

static void add_kernel(void *data, const char *slot, const char *kernel) {
  json_object_set_new(data, slot, json_string(kernel));
}

/* What is not known is null. */
static json_t *json_known(unsigned value) {
  return value ? json_integer(value) : json_null();
}

static json_t *json_kinds(const hr_topology *t) {
  json_t *list = json_array();
  for (unsigned i = 0; i < t->kinds; i++)
    json_array_append_new(
        list, json_pack("{s:i, s:i, s:o, s:o, s:s}", "cores", t->kind[i].cores, "cpus",
                        t->kind[i].cpus, "capacity", json_known(t->kind[i].capacity), "mhz",
                        json_known(t->kind[i].mhz), "type", t->kind[i].type));
  return list;
}

static json_t *json_seats(const hr_placement *p) {
  json_t *list = json_array();
  for (unsigned i = 0; i < p->seats; i++) json_array_append_new(list, json_integer(p->seat[i].os));
  return list;
}

static json_t *json_machine(const machine *m, const cli_common *common, bool any_model) {
  const hr_topology *t = m->topology;
  const hr_placement *p = &m->placement;
  uint32_t bits = hr_cpu_features();
  json_t *lines = json_array(), *names = json_array(), *kernels = json_object();
  describe_threads(m, common, any_model, add_line, lines);
  size_t count;
  const hr_cpu_feature *feature = hr_cpu_feature_list(&count);
  for (size_t i = 0; i < count; i++)
    if (bits & feature[i].bit) json_array_append_new(names, json_string(feature[i].name));
  cli_visit_kernels(common->isa, add_kernel, kernels);
  return json_pack(
      "{s:i, s:i, s:i, s:i, s:i, s:o, s:o, s:i, s:i, s:i, s:b, s:o, s:s, s:s, s:o, s:o, s:o}",
      "cpus", t->cpus, "cores", t->cores, "packages", t->packages, "nodes", t->nodes,
      "allowed_cpus", p->allowed, "kinds", json_kinds(t), "limits", cli_json_caps(p), "threads",
      p->threads, "threads_batch", p->threads_batch, "threads_at_work", p->active, "pinned", p->pin,
      "seats", json_seats(p), "why", p->why, "pinning", p->pinned, "features", names, "kernels",
      kernels, "description", lines);
}

/* --- A model ------------------------------------------------------------------- */

static const char *const tokenizer_names[] = {"SentencePiece BPE", "byte-level BPE", "WordPiece",
                                              "unigram"};

/* What a model and a session take, and what there is. */
typedef struct memory {
  hr_memory need;
  hr_memory_free free; /* bytes is 0 when nothing says how much */
  bool half;
  unsigned threads;
  bool huge; /* the system gives huge pages to blocks that ask for them */
} memory;

/* The system is asked by trying: settings, control groups and fragmentation all have a say. */
static bool gives_huge_pages(void) {
  const size_t bytes = (size_t)4 << 20;
  hr_pages pages;
  char *block = hr_alloc_pages(bytes);
  if (!block) return false;
  memset(block, 1, bytes);
  bool huge = hr_pages_read(&pages, "/proc/self/smaps", block) && pages.huge >= bytes / 2;
  hr_free_pages(block, bytes);
  return huge;
}

static int find_memory(const cli_common *common, const hr_model *model, unsigned threads,
                       memory *m) {
  hr_error err;
  hr_session_options o;
  cli_session_options(common, &o);
  *m = (memory){.need.size = sizeof m->need, .threads = threads, .huge = gives_huge_pages()};
  o.threads = o.threads_batch = threads;
  m->half = o.cache == HR_CACHE_AUTO ? !model->loaded.all_f32 : o.cache == HR_CACHE_F16;
  if (hr_model_memory(model, &o, &m->need, &err) != HR_OK) return cli_fail_error(NULL, &err);
  if (!hr_memory_free_read(&m->free, "/")) m->free.bytes = 0;
  return HR_OK;
}

typedef struct type_count {
  size_t tensors, bytes;
} type_count;

static void count_types(const hr_source *source, type_count count[HR_FORMAT_COUNT]) {
  memset(count, 0, HR_FORMAT_COUNT * sizeof *count);
  for (size_t i = 0; i < hr_source_tensor_count(source); i++) {
    const hr_tensor *t = hr_source_tensor_at(source, i);
    count[t->format].tensors++;
    count[t->format].bytes += t->bytes;
  }
}

/* How many matrices of each type are held in memory. */
static void count_panels(const hr_transformer *t, size_t count[HR_PANEL_TYPES]) {
  memset(count, 0, HR_PANEL_TYPES * sizeof *count);
  count[t->token_embedding.type]++;
  if (t->head.panels && t->head.panels != t->token_embedding.panels) count[t->head.type]++;
  if (t->pooler.panels) count[t->pooler.type]++;
  if (t->classifier.panels) count[t->classifier.type]++;
  for (uint32_t i = 0; i < t->description.layers; i++) {
    const hr_layer *l = &t->layer[i];
    const hr_matrix *all[] = {&l->query, &l->key, &l->value, &l->output,
                              &l->gate,  &l->up,  &l->down};
    for (size_t j = 0; j < sizeof all / sizeof *all; j++)
      if (all[j]->panels) count[all[j]->type]++;
  }
}

/* What holding the weights has lost against the values of the file. */
typedef struct losses {
  hr_loss all, type[HR_FORMAT_COUNT];
  hr_loss *tensor; /* of each tensor of the file; all zero for those that are no matrices */
  bool known;
} losses;

static void add_loss(hr_loss *to, hr_loss one) {
  to->error += one.error;
  to->norm += one.norm;
}

static hr_status find_losses(const hr_model *model, const hr_source *source, losses *l,
                             hr_error *err) {
  const hr_loaded *loaded = &model->loaded;
  hr_status status = HR_OK;
  *l = (losses){.known = loaded->held_count > 0};
  l->tensor = calloc(hr_source_tensor_count(source) + 1, sizeof *l->tensor);
  if (!l->tensor) {
    *err = (hr_error){.status = HR_ERROR_MEMORY, .message = "memory: not enough of it"};
    return HR_ERROR_MEMORY;
  }
  for (size_t i = 0; i < loaded->held_count && status == HR_OK; i++) {
    hr_loss one;
    size_t tensor = loaded->held[i].tensor;
    status = hr_held_loss(source, &loaded->held[i], &one, err);
    add_loss(&l->tensor[tensor], one);
    add_loss(&l->type[hr_source_tensor_at(source, tensor)->format], one);
    add_loss(&l->all, one);
  }
  return status;
}

static double relative(hr_loss loss) {
  return loss.norm > 0 ? sqrt(loss.error / loss.norm) : 0.0;
}

static void print_losses(const hr_source *source, const losses *l, bool each) {
  if (!l->known) {
    cli_print("loss            not known: a packed file has no other values to compare with\n");
    return;
  }
  if (l->all.error == 0) {
    cli_print("loss            none: every matrix has the values of the file\n");
    return;
  }
  cli_print("loss            relative RMS error %.3g %%:", 100 * relative(l->all));
  const char *before = " ";
  for (int i = 0; i < HR_FORMAT_COUNT; i++) {
    const char *name = hr_format_get((hr_format)i)->name;
    if (l->type[i].norm == 0) continue;
    if (l->type[i].error > 0)
      cli_print("%s%s %.3g %%", before, name, 100 * relative(l->type[i]));
    else
      cli_print("%s%s none", before, name);
    before = ", ";
  }
  cli_print("\n");
  for (size_t i = 0; each && i < hr_source_tensor_count(source); i++)
    if (l->tensor[i].norm > 0)
      cli_print("  %-30s %.3g %%\n", hr_source_tensor_at(source, i)->name,
                100 * relative(l->tensor[i]));
}

static json_t *json_losses(const hr_source *source, const losses *l) {
  if (!l->known) return json_null();
  json_t *types = json_object(), *tensors = json_object();
  for (int i = 0; i < HR_FORMAT_COUNT; i++)
    if (l->type[i].norm > 0)
      json_object_set_new(types, hr_format_get((hr_format)i)->name,
                          json_real(relative(l->type[i])));
  for (size_t i = 0; i < hr_source_tensor_count(source); i++)
    if (l->tensor[i].norm > 0)
      json_object_set_new(tensors, hr_source_tensor_at(source, i)->name,
                          json_real(relative(l->tensor[i])));
  return json_pack("{s:f, s:o, s:o}", "relative_rms", relative(l->all), "types", types, "tensors",
                   tensors);
}

/* What the process allocates itself; weights that are mapped are not of it. */
enum { PARTS = 3 };
typedef struct part {
  const char *name, *key;
  size_t bytes;
} part;

static void list_parts(const memory *m, part parts[PARTS]) {
  parts[0] = (part){"weights", "weights", m->need.weights};
  parts[1] = (part){"cache", "cache", m->need.cache};
  parts[2] = (part){"work buffers", "work", m->need.work};
}

/* Short blocks come from the heap. */
static bool is_huge(const memory *m, const part *p) {
  return m->huge && hr_asks_huge_pages(p->bytes);
}

static bool print_parts(const memory *m, bool huge, const char *before, const char *title) {
  part parts[PARTS];
  bool any = false;
  list_parts(m, parts);
  for (int i = 0; i < PARTS; i++) {
    if (!parts[i].bytes || is_huge(m, &parts[i]) != huge) continue;
    cli_print("%s%s%s", any ? ", " : before, any ? "" : title, parts[i].name);
    any = true;
  }
  return any;
}

static void print_pages(const memory *m, size_t page) {
  char plain[64];
  snprintf(plain, sizeof plain, "plain ones of %zu KiB for ", page);
  cli_print("pages           ");
  bool huge = print_parts(m, true, "", "huge ones for ");
  bool some = print_parts(m, false, huge ? "; " : "", plain);
  cli_print("%s\n", !m->huge ? ": the system gives no huge pages"
                    : some    ? ": too short for huge ones"
                              : "");
}

static json_t *json_pages(const memory *m) {
  part parts[PARTS];
  json_t *pages = json_object();
  list_parts(m, parts);
  for (int i = 0; i < PARTS; i++)
    json_object_set_new(pages, parts[i].key, json_boolean(is_huge(m, &parts[i])));
  return pages;
}

static void print_memory(const hr_model *model, const memory *m) {
  char a[CLI_SIZE_TEXT], b[CLI_SIZE_TEXT], c[CLI_SIZE_TEXT], e[CLI_SIZE_TEXT];
  const hr_memory *n = &m->need;
  size_t page = (size_t)sysconf(_SC_PAGESIZE) / 1024;
  cli_print("memory          %s: weights %s, cache %s (%zu positions, %s), work buffers %s\n",
            cli_size_text(n->weights + n->cache + n->work, a), cli_size_text(n->weights, b),
            cli_size_text(n->cache, c), n->context, m->half ? "f16" : "f32",
            cli_size_text(n->work, e));
  if (m->free.bytes)
    cli_print("                %s are free (%s)\n", cli_size_text(m->free.bytes, a), m->free.where);
  if (model->loaded.mapped)
    cli_print(
        "                and %s of weights mapped from the file, in its small pages (%zu KiB)\n",
        cli_size_text(n->mapped, a), page);
  print_pages(m, page);
}

/* True when a matrix is held in a type that may not have the values of the file's. */
static bool changes_values(const hr_model *model, const hr_source *source) {
  static const hr_format same[HR_PANEL_TYPES] = {[HR_PANEL_F16] = HR_FORMAT_F16,
                                                 [HR_PANEL_BF16] = HR_FORMAT_BF16,
                                                 [HR_PANEL_Q8] = HR_FORMAT_Q8_0};
  for (size_t i = 0; i < model->loaded.held_count; i++) {
    const hr_held *held = &model->loaded.held[i];
    hr_panel_type type = held->matrix->type;
    if (type != HR_PANEL_F32 && hr_source_tensor_at(source, held->tensor)->format != same[type])
      return true;
  }
  return false;
}

static void print_sizes(const hr_model *model, const hr_source *source, const memory *m) {
  char a[CLI_SIZE_TEXT];
  type_count types[HR_FORMAT_COUNT];
  size_t panels[HR_PANEL_TYPES];
  count_types(source, types);
  count_panels(&model->loaded.transformer, panels);
  cli_print("parameters      %zu\ntensors         ", model->loaded.parameters);
  const char *before = "";
  for (int i = 0; i < HR_FORMAT_COUNT; i++)
    if (types[i].tensors) {
      cli_print("%s%zu %s (%s)", before, types[i].tensors, hr_format_get((hr_format)i)->name,
                cli_size_text(types[i].bytes, a));
      before = ", ";
    }
  cli_print("\nmatrices held   ");
  before = "";
  for (int i = 0; i < HR_PANEL_TYPES; i++)
    if (panels[i]) {
      cli_print("%s%zu %s", before, panels[i], hr_panel_name((hr_panel_type)i));
      before = ", ";
    }
  cli_print("\n");
  if (changes_values(model, source))
    cli_print("                in another type than the file's: --loss tells what that loses\n");
  if (model->loaded.spare_count)
    cli_print("not read        %zu %s, of other tasks: %s%s\n", model->loaded.spare_count,
              model->loaded.spare_count == 1 ? "tensor" : "tensors", model->loaded.spare,
              model->loaded.spare_count == 1 ? "" : " and others");
  print_memory(model, m);
}

/* Byte-level BPE in GGUF goes by a name. */
static void print_pre_tokenizer(const hr_model *model) {
  if (!model->vocab.pre_name) return;
  cli_print("pre-tokenizer   %s%s\n", model->vocab.pre_name,
            model->vocab.warning ? " (the file names none)" : "");
}

static json_t *json_pre_tokenizer(const hr_model *model) {
  const char *name = model->vocab.pre_name;
  return name ? json_string(name) : json_null();
}

static void print_model(const hr_model *model, const hr_source *source, const memory *m) {
  const hr_transformer *t = &model->loaded.transformer;
  const hr_description *d = &t->description;
  cli_print("model           %s (%s%s)\nfamily          %s\n", model->path,
            hr_source_get_kind(source) == HR_SOURCE_GGUF ? "GGUF" : "safetensors",
            model->loaded.mapped ? ", packed" : "", d->family);
  if (model->tokenizer)
    cli_print("tokenizer       %s, %zu tokens\n", tokenizer_names[model->vocab_kind],
              model->token_count);
  else
    cli_print("tokenizer       none: ids only\n");
  print_pre_tokenizer(model);
  if (model->tokenizer && model->token_count < d->vocab)
    cli_print("                the embedding's last %zu rows have no text\n",
              d->vocab - model->token_count);
  cli_print_acts(t);
  for (uint32_t i = 0; model->loaded.labels && i < d->classes; i++) {
    cli_print(i ? "                " : "labels          ");
    cli_print_quoted(model->loaded.labels[i], strlen(model->loaded.labels[i]));
    cli_print("\n");
  }
  print_sizes(model, source, m);
}

/* --- A model in JSON ------------------------------------------------------------ */

static json_t *json_memory(const hr_model *model, const memory *m) {
  const hr_memory *n = &m->need;
  return json_pack("{s:I, s:I, s:s, s:I, s:b, s:I, s:i, s:o, s:o}", "context",
                   (json_int_t)n->context, "cache_bytes", (json_int_t)n->cache, "cache",
                   m->half ? "f16" : "f32", "weights_bytes", (json_int_t)model->loaded.weight_bytes,
                   "weights_mapped", model->loaded.mapped, "work_bytes", (json_int_t)n->work,
                   "threads", m->threads, "free_bytes",
                   m->free.bytes ? json_integer((json_int_t)m->free.bytes) : json_null(),
                   "huge_pages", json_pages(m));
}

static json_t *json_model(const hr_model *model, const hr_source *source, const memory *m) {
  const hr_transformer *t = &model->loaded.transformer;
  json_t *tensors = json_object(), *matrices = json_object();
  type_count types[HR_FORMAT_COUNT];
  size_t panels[HR_PANEL_TYPES];
  count_types(source, types);
  count_panels(t, panels);
  for (int i = 0; i < HR_FORMAT_COUNT; i++)
    if (types[i].tensors)
      json_object_set_new(tensors, hr_format_get((hr_format)i)->name,
                          json_pack("{s:I, s:I}", "tensors", (json_int_t)types[i].tensors, "bytes",
                                    (json_int_t)types[i].bytes));
  for (int i = 0; i < HR_PANEL_TYPES; i++)
    if (panels[i])
      json_object_set_new(matrices, hr_panel_name((hr_panel_type)i),
                          json_integer((json_int_t)panels[i]));
  return json_pack("{s:o, s:s, s:s, s:o, s:o, s:o, s:o, s:I, s:o, s:o, s:I, s:o}", "path",
                   cli_json_text(model->path, strlen(model->path)), "format",
                   hr_source_get_kind(source) == HR_SOURCE_GGUF ? "gguf" : "safetensors", "family",
                   t->description.family, "block", cli_json_acts(t), "labels",
                   cli_json_labels(model), "tokenizer",
                   model->tokenizer ? json_string(tokenizer_names[model->vocab_kind]) : json_null(),
                   "pre_tokenizer", json_pre_tokenizer(model), "parameters",
                   (json_int_t)model->loaded.parameters, "tensors", tensors,
                   "matrices", matrices, "tensors_not_read",
                   (json_int_t)model->loaded.spare_count, "memory", json_memory(model, m));
}

/* The source escapes strings in values; keys come as the file has them. */
static void print_value(void *data, const char *key, const char *type, const char *value) {
  (void)data;
  cli_print("  ");
  for (; *key; key++) cli_print("%c", (unsigned char)*key < 0x20 || *key == 0x7f ? '?' : *key);
  cli_print(" (%s) = %s\n", type, value);
}

/* --- A vocabulary without a model ------------------------------------------------ */

static void print_token(const char *title, const hr_model *model, int32_t id) {
  size_t length;
  const char *text = id < 0 ? NULL : hr_token_text(model, id, true, &length, NULL);
  if (!text) return;
  cli_print("%-15s %d ", title, id);
  cli_print_quoted(text, length);
  cli_print("\n");
}

static json_t *json_token(int32_t id) {
  return id < 0 ? json_null() : json_integer(id);
}

/* What kind of model the vocabulary is from, where the files say it. */
static bool find_family(const hr_source *source, const char **family, size_t *length) {
  bool found;
  hr_error ignored;
  const char *key =
      hr_source_get_kind(source) == HR_SOURCE_GGUF ? "general.architecture" : "model_type";
  return hr_source_string(source, key, family, length, &found, &ignored) == HR_OK && found;
}

static const char *vocabulary_format(const hr_source *source) {
  return hr_source_get_kind(source) == HR_SOURCE_GGUF ? "gguf" : "tokenizer";
}

static json_t *json_vocabulary(const hr_model *model, const hr_source *source) {
  const char *family;
  size_t length;
  bool told = find_family(source, &family, &length);
  return json_pack("{s:o, s:s, s:o, s:n, s:s, s:o, s:I, s:o, s:o, s:i, s:n}", "path",
                   cli_json_text(model->path, strlen(model->path)), "format",
                   vocabulary_format(source), "family",
                   told ? cli_json_text(family, length) : json_null(), "block", "tokenizer",
                   tokenizer_names[model->vocab_kind], "pre_tokenizer", json_pre_tokenizer(model),
                   "tokens", (json_int_t)model->token_count,
                   "start_token", json_token(model->start_token), "end_token",
                   json_token(model->end_token), "parameters", 0, "memory");
}

static void print_vocabulary(const hr_model *model, const hr_source *source) {
  cli_print("model           %s (%s): no weights, a vocabulary only\n", model->path,
            hr_source_get_kind(source) == HR_SOURCE_GGUF ? "GGUF" : "a tokenizer's file");
  const char *family;
  size_t length;
  if (find_family(source, &family, &length)) {
    cli_print("family          ");
    cli_print_quoted(family, length);
    cli_print("\n");
  }
  cli_print("tokenizer       %s, %zu tokens\n", tokenizer_names[model->vocab_kind],
            model->token_count);
  print_pre_tokenizer(model);
  print_token("start token", model, model->start_token);
  print_token("end token", model, model->end_token);
}

/* A vocabulary can be tokenized with, and nothing else. */
static int show_vocabulary(const settings *s, const char *name, const hr_source *source,
                           json_t *document) {
  int status = HR_OK;
  if (s->loss)
    return cli_fail(HR_ERROR_FILE, "%s: holds no weights, expected some for --loss", name);
  hr_model *model = cli_open_model(&s->common, name, true, &status);
  if (!model) return status;
  if (!model->tokenizer) {
    status = cli_fail(HR_ERROR_FILE, "%s: holds neither weights nor a vocabulary that is known",
                      model->path);
  } else if (document) {
    json_object_set_new(document, "model", json_vocabulary(model, source));
  } else {
    print_vocabulary(model, source);
    if (s->common.verbose) cli_print("values\n");
    if (s->common.verbose) hr_source_visit_values(source, print_value, NULL);
  }
  hr_model_free(model);
  return status;
}

/* --- From start to end ----------------------------------------------------------- */

/* The one question that needs the weights: they are packed, and compared with
 * the values of the file, which is opened once more for that. described is what
 * is told of the model in JSON, or NULL. */
static int show_losses(const settings *s, hr_model *model, const char *name, json_t *described) {
  hr_error err;
  losses lost = {0};
  int status = cli_check_memory(&s->common, model);
  if (status != HR_OK) return status;
  if (hr_model_load(model, &err) != HR_OK) return cli_fail_error(NULL, &err);
  hr_source *source = cli_open_source(name, &err);
  if (!source || find_losses(model, source, &lost, &err) != HR_OK)
    status = cli_fail_error(NULL, &err);
  else if (described)
    json_object_set_new(described, "loss", json_losses(source, &lost));
  else
    print_losses(source, &lost, s->common.verbose);
  free(lost.tensor);
  hr_source_close(source);
  return status;
}

/* Adds the model to the document, or prints it when there is none. */
static int show_planned(const settings *s, const hr_model *model, const machine *m,
                        json_t *document) {
  memory needed;
  int status = find_memory(&s->common, model, m->placement.seats, &needed);
  if (status != HR_OK) return status;
  if (document) {
    json_object_set_new(document, "model", json_model(model, model->source, &needed));
    return HR_OK;
  }
  print_model(model, model->source, &needed);
  if (!s->common.verbose) return HR_OK;
  cli_print("values\n");
  hr_source_visit_values(model->source, print_value, NULL);
  return HR_OK;
}

/* A source that is a vocabulary and says so; NULL for anything else, faults too. */
static hr_source *open_vocabulary(const char *name) {
  hr_error ignored;
  hr_source *source = name && strcmp(name, CLI_BUILTIN) != 0
                          ? hr_source_open_vocabulary(name, &ignored)
                          : NULL;
  if (!source || hr_source_is_vocabulary(source)) return source;
  hr_source_close(source);
  return NULL;
}

static int show_model(const settings *s, const char *name, machine *m, json_t *document) {
  int status = HR_OK;
  hr_source *vocabulary = open_vocabulary(name);
  if (vocabulary) {
    status = show_vocabulary(s, name, vocabulary, document);
    hr_source_close(vocabulary);
    return status;
  }
  hr_model *model = cli_plan_model(&s->common, name, &status);
  if (!model) return status;
  cli_tell_about_model(&s->common, model);
  status = place_model(m, &s->common, model);
  if (status == HR_OK) status = show_planned(s, model, m, document);
  if (status == HR_OK && s->loss)
    status = show_losses(s, model, name, json_object_get(document, "model"));
  hr_model_free(model);
  return status;
}

static int show(const settings *s, const char *name, machine *m) {
  json_t *document = s->json ? json_object() : NULL;
  int status = cli_check_isa(&s->common);
  if (status == HR_OK && (name || !s->cpu)) status = show_model(s, name, m, document);
  if (status == HR_OK && s->cpu) {
    if (!document && name) cli_print("\n");
    if (document)
      json_object_set_new(document, "cpu", json_machine(m, &s->common, !name));
    else
      print_machine(m, &s->common, !name);
  }
  if (document && status == HR_OK) return cli_print_json(document);
  json_decref(document);
  return status;
}

static int info_command(const cli_command *command, int argc, char **argv) {
  settings s = {0};
  int status;
  if (!cli_start(command, argc, argv, &s, &status)) return status;
  const char *name;
  status = cli_only_model(&s.common, NULL, &name);
  if (status != HR_OK) return status;
  hr_error err = {.status = HR_ERROR_MEMORY, .message = "memory: not enough of it"};
  machine *m = machine_create(&s.common, &err);
  if (!m) return cli_fail_error(NULL, &err);
  status = show(&s, name, m);
  machine_free(m);
  return status;
}

const cli_command cli_info_command = {
    .name = "info",
    .arguments = "[MODEL] [--cpu] [options]",
    .summary = "describe a model, or the machine",
    .details =
        "A model is described act by act, with the memory it needs for a context (--ctx); -v adds\n"
        "the values of its file. Of a vocabulary without weights the tokenizer is. --cpu tells\n"
        "cores, limits and the one that decides the number of threads (with a MODEL, of a session\n"
        "of it), features and the kernel in each slot.",
    .options = options,
    .option_count = sizeof options / sizeof *options,
    .run = info_command,
};
