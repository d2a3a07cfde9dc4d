/* SPDX-License-Identifier: MIT
 *
 * The file holds a line a result: the key, a hash of the machine, its limits and the
 * wishes; the size of the weights as a power of two; the numbers for one row and for
 * many. A file that is missing, unreadable or not understood costs new trials. */
#include "threads.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bytes.h"
#include "engine/engine.h"
#include "interrupt.h"
#include "kernels/select.h"
#include "machine.h"
#include "output.h"
#include "save.h"
#include "sched/calibrate.h"
#include "sched/wait.h"
#include "user_file.h"

enum { MOST_LINES = 1000, LINE_BYTES = 96 };

typedef struct kept {
  uint64_t key;
  unsigned size, one, many;
} kept;

typedef struct machine {
  hr_topology *topology;
  hr_limits limits;
  hr_wishes wishes;
  hr_calibration calibration;
  uint64_t key;
} machine;

/* --- The machine ------------------------------------------------------------------ */

static uint64_t mix(uint64_t hash, const char *text) {
  for (; *text; text++) hash = (hash ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
  return hash;
}

/* Whatever could make another number the best one. */
static uint64_t key_of(const machine *m, const char *isa) {
  char text[256], list[160], name[128];
  const char *cpu = cli_cpu_name("", name); /* machines may share a home */
  uint64_t hash = mix(UINT64_C(0xcbf29ce484222325), hr_version());
  hash = mix(hash, cpu ? cpu : "unnamed");
  hash = mix(hash, isa ? isa : "best");
  hash = mix(hash, m->wishes.cores ? m->wishes.cores : "auto");
  snprintf(text, sizeof text, " pin %d, batch %u, CPUs %u, cores %u, kinds %u",
           !m->wishes.no_pin, m->wishes.threads_batch, m->topology->cpus, m->topology->cores,
           m->topology->kinds);
  hash = mix(hash, text);
  for (unsigned k = 0; k < m->topology->kinds; k++) {
    const hr_kind *kind = &m->topology->kind[k];
    snprintf(text, sizeof text, ", %s %u %u %u %u", kind->type, kind->cores, kind->mhz,
             kind->capacity, kind->weight);
    hash = mix(hash, text);
  }
  if (m->limits.has_affinity) {
    hr_cpuset_format(&m->limits.affinity, list, sizeof list);
    hash = mix(hash, list);
  }
  for (unsigned i = 0; i < m->limits.quotas; i++) {
    snprintf(text, sizeof text, ", quota %u", m->limits.quota[i].cpus);
    hash = mix(hash, text);
  }
  return hash;
}

static hr_status read_machine(const cli_common *common, machine *m, hr_error *err) {
  *m = (machine){.wishes = {.threads = (unsigned)common->threads.value,
                            .threads_batch = (unsigned)common->threads_batch.value,
                            .cores = common->cores,
                            .no_pin = common->no_pin}};
  hr_limits_read(&m->limits, "/");
  hr_limits_read_affinity(&m->limits);
  m->topology = hr_topology_load(NULL, err);
  if (!m->topology) return err->status;
  m->key = key_of(m, common->isa);
  return hr_calibration_plan(&m->calibration, m->topology, &m->limits, &m->wishes, err);
}

/* OpenMP runtimes bind the first thread before main, and what it has left is taken for
 * the mask that was given. */
void cli_warn_of_binding(void) {
  static const char *const names[] = {"OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY"};
  hr_limits *limits = calloc(1, sizeof *limits);
  const long online = sysconf(_SC_NPROCESSORS_ONLN);
  if (limits) hr_limits_read_affinity(limits);
  unsigned count = limits && limits->has_affinity ? hr_cpuset_count(&limits->affinity) : 0;
  free(limits);
  if (count == 0 || online < 0 || count >= (unsigned long)online) return;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    const char *value = getenv(names[i]);
    if (!value || !*value || strcmp(value, "false") == 0) continue;
    cli_note("warning: %s is set and this process may use %u of %ld CPUs: the OpenMP runtime may "
             "have bound it to them, without the variable headrow places threads itself",
             names[i], count, online);
    return;
  }
}

/* --- The file --------------------------------------------------------------------- */

/* NULL when the environment names no place. */
static char *kept_path(void) {
  return cli_user_file("XDG_CACHE_HOME", ".cache", "threads");
}

static bool read_line(FILE *file, kept *k) {
  char line[LINE_BYTES];
  while (fgets(line, sizeof line, file)) {
    int end = 0;
    *k = (kept){0};
    if (sscanf(line, "%16" SCNx64 " %u %u %u%n", &k->key, &k->size, &k->one, &k->many, &end) == 4 &&
        line[end] == '\n' && k->one <= HR_THREADS_MAX && k->many <= HR_THREADS_MAX)
      return true;
  }
  return false;
}

static FILE *open_kept(void) {
  char *path = kept_path();
  FILE *file = path ? fopen(path, "r") : NULL;
  free(path);
  return file;
}

static bool find_kept(uint64_t key, unsigned size, kept *found) {
  FILE *file = open_kept();
  bool is_there = false;
  for (kept k; file && !is_there && read_line(file, &k);)
    if (k.key == key && k.size == size) {
      *found = k;
      is_there = true;
    }
  if (file) fclose(file);
  return is_there;
}

static bool add_line(cli_bytes *bytes, const kept *k) {
  char line[LINE_BYTES];
  int n =
      snprintf(line, sizeof line, "%016" PRIx64 " %u %u %u\n", k->key, k->size, k->one, k->many);
  return cli_bytes_add(bytes, line, (size_t)n);
}

/* The newest result comes first; old ones fall off the end. */
static void keep(const cli_common *common, const kept *k) {
  char *path = kept_path();
  cli_bytes bytes = {0};
  bool fine = path && cli_make_folders(path) && add_line(&bytes, k);
  FILE *file = fine ? open_kept() : NULL;
  int lines = 0;
  for (kept old; file && fine && lines < MOST_LINES && read_line(file, &old); lines++)
    if (old.key != k->key || old.size != k->size) fine = add_line(&bytes, &old);
  if (file) fclose(file);
  if (fine) fine = cli_save_file(path, bytes.data, bytes.used) == HR_OK;
  cli_bytes_free(&bytes);
  free(path);
  if (!fine && !common->quiet)
    cli_note("the numbers of threads can't be kept, the next start will measure them again");
}

/* --- Trials ------------------------------------------------------------------------ */

enum { ROWS = 64, TOKENS = 3 };

typedef struct trials {
  const cli_common *common;
  const hr_model *model;
  size_t context;
} trials;

static double time_passes(hr_session *s, const int32_t *ids, size_t rows, int passes) {
  uint64_t start = hr_clock_ns();
  for (int i = 0; i < passes; i++)
    if (cli_interrupted() || hr_session_rewind(s, 0, NULL) != HR_OK ||
        hr_session_eval(s, ids, rows, HR_LOGITS_LAST, NULL) != HR_OK)
      return -1;
  return (double)(hr_clock_ns() - start) * 1e-9 / passes;
}

static double try_threads(void *data, unsigned threads, bool many) {
  const trials *t = data;
  int32_t ids[ROWS];
  size_t vocab = hr_model_vocab_size(t->model);
  size_t rows = many ? (t->context < ROWS ? t->context : ROWS) : 1;
  hr_session_options o;
  hr_session_options_init(&o);
  o.context = rows;
  o.threads = o.threads_batch = threads;
  o.no_pin = t->common->no_pin;
  o.cores = t->common->cores;
  hr_session *s = hr_session_create(t->model, &o, NULL);
  if (!s) return -1;
  for (size_t i = 0; i < ROWS; i++) ids[i] = (int32_t)(i * 7919 % vocab);
  double seconds = time_passes(s, ids, rows, 1);
  if (seconds > 0) seconds = time_passes(s, ids, rows, many ? 1 : TOKENS);
  hr_session_free(s);
  return seconds;
}

static unsigned size_of(const hr_model *model) {
  unsigned size = 0;
  for (size_t bytes = model->loaded.weight_bytes; bytes > 1; bytes /= 2) size++;
  return size;
}

static int run_trials(const cli_common *common, const hr_model *model, const machine *m, kept *k) {
  trials t = {common, model, hr_default_context(&model->loaded.transformer.description)};
  if (!common->quiet)
    cli_note("measuring how many threads serve best, once for this machine and size of model");
  bool steady;
  *k = (kept){.key = m->key, .size = size_of(model)};
  if (hr_calibrate(&m->calibration, try_threads, &t, &k->one, &k->many, &steady)) {
    if (steady)
      keep(common, k);
    else if (!common->quiet)
      cli_note("warning: other programs disturbed the trials: their result is not kept, the next "
               "start measures again");
    return HR_OK;
  }
  if (cli_interrupted()) return HR_ERROR_CANCELLED;
  *k = (kept){0};
  if (!common->quiet) cli_note("warning: the trials failed; the rule of info --cpu is used");
  return HR_OK;
}

enum { TRIED_TEXT = 16 };

static const char *tried(unsigned threads, char text[TRIED_TEXT]) {
  if (!threads) return "not tried";
  snprintf(text, TRIED_TEXT, "%u", threads);
  return text;
}

static int choose(const cli_common *common, const hr_model *model, const machine *m, unsigned *one,
                  unsigned *many) {
  kept k;
  char one_text[TRIED_TEXT], many_text[TRIED_TEXT];
  if (!hr_calibration_wanted(&m->calibration)) return HR_OK;
  bool known = find_kept(m->key, size_of(model), &k);
  int status = known ? HR_OK : run_trials(common, model, m, &k);
  if (status != HR_OK) return status;
  if (k.one) *one = k.one;
  if (k.many) *many = k.many;
  if (common->verbose)
    cli_note("threads %s: %s, for prompts: %s (%s)",
             known ? "found earlier by trials" : "by trials", tried(k.one, one_text),
             tried(k.many, many_text), m->calibration.why);
  return HR_OK;
}

int cli_choose_threads(const cli_common *common, const hr_model *model, unsigned *one,
                       unsigned *many) {
  machine *m = calloc(1, sizeof *m);
  hr_error err;
  *one = (unsigned)common->threads.value;
  *many = (unsigned)common->threads_batch.value;
  if (!m) return cli_fail_memory();
  int status = HR_OK;
  if (!*one)
    status = read_machine(common, m, &err) == HR_OK ? choose(common, model, m, one, many)
                                                    : cli_fail_error(NULL, &err);
  hr_topology_free(m->topology);
  free(m);
  return status;
}

bool cli_find_threads(const cli_common *common, const hr_model *model, unsigned *one,
                      unsigned *many) {
  kept k;
  hr_error err;
  *one = (unsigned)common->threads.value;
  *many = (unsigned)common->threads_batch.value;
  if (*one) return false;
  machine *m = calloc(1, sizeof *m);
  bool found = m && read_machine(common, m, &err) == HR_OK &&
               hr_calibration_wanted(&m->calibration) && find_kept(m->key, size_of(model), &k);
  if (found && k.one) *one = k.one;
  if (found && k.many) *many = k.many;
  if (m) hr_topology_free(m->topology);
  free(m);
  return found;
}

void cli_choose_threads_to_load(const cli_common *common, hr_model *model) {
  unsigned one, many;
  if (model->loaded.mapped || !cli_find_threads(common, model, &one, &many)) return;
  model->options.threads = one;
  model->options.threads_batch = many;
}

/* --- In words ---------------------------------------------------------------------- */

static void describe_kept(uint64_t key, cli_line_fn *line, void *data) {
  FILE *file = open_kept();
  char text[128], one[TRIED_TEXT], many[TRIED_TEXT];
  bool any = false;
  for (kept k; file && read_line(file, &k);) {
    if (k.key != key) continue;
    snprintf(text, sizeof text, "  weights of %" PRIu64 " MiB and more: generating %s, prompts %s",
             (UINT64_C(1) << k.size) >> 20, tried(k.one, one), tried(k.many, many));
    line(data, text);
    any = true;
  }
  if (file) fclose(file);
  if (!any) line(data, "  nothing measured yet");
  char *path = any ? kept_path() : NULL;
  char *told = NULL;
  if (path && asprintf(&told, "  (remove %s to have it measured again)", path) > 0)
    line(data, told);
  free(told);
  free(path);
}

void cli_describe_threads(const cli_common *common, cli_line_fn *line, void *data) {
  machine *m = calloc(1, sizeof *m);
  hr_error err;
  char text[256];
  if (m && read_machine(common, m, &err) == HR_OK) {
    bool wanted = hr_calibration_wanted(&m->calibration);
    snprintf(text, sizeof text, "%s%s", m->calibration.why,
             wanted ? "; the first start with a size of model measures, then this holds:" : "");
    line(data, text);
    if (wanted) describe_kept(m->key, line, data);
  }
  if (m) hr_topology_free(m->topology);
  free(m);
}
