/* SPDX-License-Identifier: MIT
 * headrow bench: how fast a model runs, beside what the machine can do at most.
 *
 * A place is a kernel tier and a number of threads; each has a session. A test
 * is prompts or generations of one sequence or several in a place. Samples go round:
 * every place and test in turn, so that a machine that changes its speed changes it for
 * all. */
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "bench.h"
#include "builtin.h"
#include "interrupt.h"
#include "kernels/select.h"
#include "machine.h"
#include "output.h"
#include "save.h"
#include "sched/limits.h"
#include "sched/memory.h"
#include "threads.h"

#define AT(member) .offset = offsetof(bench_settings, member)

enum { MOST_REPEATS = 1000, MOST_NUMBERS = 64, MOST_TOKENS = 1 << 24, MOST_THREADS = 4096 };
enum { MOST_BATCH = 4096 };

static const cli_option options[] = {
    {"prompt", 'p', "LIST", "tokens of a prompt (default 512); 0: none", CLI_TEXT, AT(prompt)},
    {"predict", 'n', "LIST", "tokens generated one at a time (default 128); 0: none", CLI_TEXT,
     AT(predict)},
    {"depth", 'd', "LIST", "tokens in the cache before that (default 0); 4k is 4096", CLI_TEXT,
     AT(depth)},
    {"batch", 'b', "LIST", "sequences at once, texts for an encoder (default 1)", CLI_TEXT,
     AT(batch)},
    {"threads", 't', "LIST",
     "numbers of threads, auto among them (default auto), or sweep:\n"
     "1, 2, 3, 4, 6, 8 ... up to the CPUs that may be used",
     CLI_TEXT, AT(threads)},
    {"isa", 0, "NAME|all", "highest kernel tier to use, or every one that the CPU has", CLI_TEXT,
     AT(common.isa)},
    {"repeat", 'r', "N", "samples of each, after one round that warms up (default 5)", CLI_COUNT,
     AT(repeat), .least = 1, .most = MOST_REPEATS},
    {"synthetic", 0, "SHAPE:TYPE",
     "a model with drawn weights in place of a file: SHAPE is\n"
     "smollm2-135m, gpt2-124m, tinyllama-1.1b, llama-7b, bert-base,\n"
     "minilm-l6 or a list such as dim=576,layers=30,heads=9,kv=3,\n"
     "ffn=1536,vocab=49152 (and ctx=N, tied=0|1; vocab at least 260)\n"
     "or a name with such a list of changes; TYPE is f32, f16, bf16\n"
     "or q8_0",
     CLI_TEXT, AT(synthetic)},
    {"save", 0, "FILE.gguf", "write the synthetic model too", CLI_TEXT, AT(save)},
    {"cold", 0, NULL, "load the file twice: dropped from memory first, then from memory", CLI_FLAG,
     AT(cold)},
    {"block", 0, "SHAPE:TYPE",
     "in place of a model: one of its blocks, act by act, with -p rows\n"
     "(default 1,512)",
     CLI_TEXT, AT(block)},
    {"kernels", 0, NULL, "in place of a model: every kernel of every tier", CLI_FLAG,
     AT(kernels)},
    {"only", 0, "LIST", "with --kernels: groups of them: q8, float, attention, decode, row",
     CLI_TEXT, AT(only)},
    {"no-cache", 0, NULL, "with --kernels: no best peaks of earlier runs, and none kept", CLI_FLAG,
     AT(no_cache)},
    {"json", 0, "FILE", "write all there is to know as JSON; -: in place of the table", CLI_TEXT,
     AT(json)},
    {"profile", 0, NULL, "where the time goes, by the parts of a pass", CLI_FLAG, AT(profile)},
    {"sysroot", 0, "DIR",
     "read the CPU's name, frequency, temperature, throttling and energy\n"
     "from DIR/proc and DIR/sys, not from this machine",
     CLI_TEXT, AT(sysroot)},
    {"csv", 0, NULL, "comma-separated values in place of the table", CLI_FLAG, AT(csv)},
    {"md", 0, NULL, "the table in Markdown", CLI_FLAG, AT(markdown)},
};

/* False, and the text stays the caller's, when memory is out. */
static bool keep_warning(bench *b, char *text) {
  char **more = realloc(b->warning, (b->warnings + 1) * sizeof *more);
  if (!more) return false;
  b->warning = more;
  b->warning[b->warnings++] = text;
  return true;
}

void bench_warn(bench *b, const char *format, ...) {
  char *text;
  va_list args;
  va_start(args, format);
  int length = vasprintf(&text, format, args);
  va_end(args);
  if (length < 0) {
    cli_note("warning: one can't be told: not enough memory");
    return;
  }
  bool new = true;
  for (size_t i = 0; new && i < b->warnings; i++) new = strcmp(b->warning[i], text) != 0;
  if (new && !b->set.common.quiet) cli_note("warning: %s", text);
  if (!new || !keep_warning(b, text)) free(text);
}

const char *bench_test_name(const bench_test *t, char text[64]) {
  const bench_amount *a = &t->amount;
  int n = snprintf(text, 64, "%s %zu", a->prompt ? "prompt" : "generate", a->tokens);
  if (a->depth) n += snprintf(text + n, 64 - (size_t)n, " at depth %zu", a->depth);
  if (a->batch > 1) snprintf(text + n, 64 - (size_t)n, ", batch %zu", a->batch);
  return text;
}

/* --- Settings ------------------------------------------------------------------ */

/* A number, of which "4k" is 4096. */
static bool read_number(char *text, uint64_t *n) {
  size_t length = strlen(text);
  bool kilo = length > 1 && text[length - 1] == 'k';
  if (kilo) text[length - 1] = '\0';
  bool fine = cli_parse_count(text, n) && !__builtin_mul_overflow(*n, kilo ? 1024u : 1u, n);
  if (kilo) text[length - 1] = 'k';
  return fine;
}

/* "512,128"; with a word, that word stands for 0. NULL is the default alone. */
static int read_numbers(const char *where, const char *text, uint64_t fallback, uint64_t least,
                        uint64_t most, const char *word, bench_numbers *list) {
  list->item = calloc(MOST_NUMBERS, sizeof *list->item);
  char *copy = strdup(text ? text : ""), *rest = copy, *part;
  if (!list->item || !copy) {
    free(copy);
    return cli_fail_memory();
  }
  if (!text) list->item[list->count++] = fallback;
  int status = HR_OK;
  while (text && status == HR_OK && (part = strsep(&rest, ","))) {
    uint64_t n = 0;
    bool named = word && strcmp(part, word) == 0;
    bool fine = named || (read_number(part, &n) && n >= least && n <= most);
    if (list->count == MOST_NUMBERS) fine = false;
    if (fine)
      list->item[list->count++] = n;
    else
      status = cli_fail(HR_ERROR_USAGE,
                        "%s: '%.80s' is not valid, expected %s%swhole numbers from %" PRIu64
                        " to %" PRIu64 " with commas between, at most %d",
                        where, text, word ? word : "", word ? " or " : "", least, most,
                        MOST_NUMBERS);
  }
  free(copy);
  return status;
}

/* As many as the CPUs that the affinity and the groups leave, in steps. */
static int read_sweep(bench *b) {
  hr_error err;
  unsigned list[BENCH_POINTS];
  hr_limits limits;
  hr_topology *t = hr_topology_load(NULL, &err);
  if (!t) return cli_fail_error("--threads", &err);
  hr_limits_read(&limits, "/");
  unsigned most = t->cpus;
  for (unsigned i = 0; i < limits.quotas; i++)
    if (limits.quota[i].cpus < most) most = limits.quota[i].cpus;
  hr_topology_free(t);
  b->threads.item = calloc(BENCH_POINTS, sizeof *b->threads.item);
  if (!b->threads.item) return cli_fail_memory();
  b->threads.count = bench_thread_counts(most, list, BENCH_POINTS);
  for (size_t i = 0; i < b->threads.count; i++) b->threads.item[i] = list[i];
  return HR_OK;
}

static int read_threads(bench *b) {
  const bench_settings *s = &b->set;
  if (s->threads && strcmp(s->threads, "sweep") == 0) return read_sweep(b);
  return read_numbers("--threads", s->threads, s->common.threads.value, 1, MOST_THREADS, "auto",
                      &b->threads);
}

static int check_kernels_usage(const bench_settings *s) {
  if (s->common.positional.count || s->synthetic || s->block || s->prompt || s->predict ||
      s->depth || s->batch || s->threads || s->cold || s->profile)
    return cli_fail(HR_ERROR_USAGE,
                    "--kernels: measures no model, expected it without MODEL, --synthetic, "
                    "--block, --cold, --profile, -p, -n, -d, -b and -t");
  if (s->repeat.value > PERF_MOST_ROUNDS)
    return cli_fail(HR_ERROR_USAGE, "-r: %" PRIu64 " rounds, expected at most %d with --kernels",
                    s->repeat.value, PERF_MOST_ROUNDS);
  return HR_OK;
}

static int check_block_usage(const bench_settings *s) {
  if (s->common.positional.count || s->synthetic || s->save || s->predict || s->batch || s->csv)
    return cli_fail(HR_ERROR_USAGE,
                    "--block: measures one block, expected it without MODEL, --synthetic, --save, "
                    "--csv, -n and -b");
  return HR_OK;
}

static int check_usage(const bench_settings *s) {
  const char *name;
  int status = cli_only_model(&s->common, NULL, &name);
  if (status != HR_OK) return status;
  if (name && s->synthetic)
    return cli_fail(HR_ERROR_USAGE, "%.80s: a model beside --synthetic, expected one of them",
                    name);
  if (s->save && !s->synthetic)
    return cli_fail(HR_ERROR_USAGE, "--save: no model to save, expected --synthetic SHAPE:TYPE");
  if (s->common.ids)
    return cli_fail(HR_ERROR_USAGE, "--ids: bench draws its tokens, expected -p with a number");
  if (s->csv && s->profile)
    return cli_fail(HR_ERROR_USAGE, "--profile: does not go into --csv, expected --json or --md");
  if (s->cold && (!name || strcmp(name, CLI_BUILTIN) == 0))
    return cli_fail(HR_ERROR_USAGE, "--cold: no file to load, expected a model's file or folder");
  if (s->csv + s->markdown + (s->json && strcmp(s->json, "-") == 0) > 1)
    return cli_fail(HR_ERROR_USAGE, "--json -, --csv, --md: expected one of them");
  if (s->only && !s->kernels)
    return cli_fail(HR_ERROR_USAGE, "--only: names groups of kernels, expected --kernels");
  if (s->no_cache && !s->kernels)
    return cli_fail(HR_ERROR_USAGE, "--no-cache: is about the peaks of kernels, expected "
                    "--kernels");
  if (s->kernels) return check_kernels_usage(s);
  return s->block ? check_block_usage(s) : HR_OK;
}

/* A block is a model of one layer, with as little as there can be around it. */
static void choose_block(bench *b) {
  bench_settings *s = &b->set;
  if (!s->block) return;
  s->synthetic = s->block;
  s->profile = true;
  s->predict = "0";
  if (!s->prompt) s->prompt = "1,512";
}

static int read_shape(bench *b) {
  const bench_settings *s = &b->set;
  const char *where = s->block ? "--block" : "--synthetic";
  hr_error err;
  if (s->synthetic && cli_shape_parse(s->synthetic, &b->shape, &err) != HR_OK)
    return cli_fail_error(where, &err);
  if (s->block) cli_shape_to_block(&b->shape);
  return HR_OK;
}

static int read_settings(bench *b) {
  const bench_settings *s = &b->set;
  int status = check_usage(s);
  choose_block(b);
  if (status == HR_OK)
    status = read_numbers("--prompt", s->prompt, 512, 0, MOST_TOKENS, NULL, &b->prompt);
  if (status == HR_OK)
    status = read_numbers("--predict", s->predict, 128, 0, MOST_TOKENS, NULL, &b->predict);
  if (status == HR_OK)
    status = read_numbers("--depth", s->depth, 0, 0, MOST_TOKENS, NULL, &b->depth);
  if (status == HR_OK)
    status = read_numbers("--batch", s->batch, 1, 1, MOST_BATCH, NULL, &b->batch);
  if (status == HR_OK) status = read_threads(b);
  return status == HR_OK ? read_shape(b) : status;
}

/* Whether anything but saving is wanted. */
static bool has_tests(const bench *b) {
  for (size_t i = 0; i < b->prompt.count; i++)
    if (b->prompt.item[i]) return true;
  for (size_t i = 0; i < b->predict.count; i++)
    if (b->predict.item[i]) return true;
  return false;
}

/* --- The model ------------------------------------------------------------------ */

/* Better a sentence now than to be killed later. */
static int check_room(const char *what, size_t each, size_t times) {
  size_t needed;
  hr_memory_free memory;
  if (!hr_memory_free_read(&memory, "/")) return HR_OK;
  if (hr_mul_size(each, times, &needed) && needed <= memory.bytes) return HR_OK;
  return cli_fail(HR_ERROR_MEMORY,
                  "%s: %zu MiB of memory are needed, expected at most the %zu MiB now free (%s)",
                  what, (each >> 20) * times, memory.bytes >> 20, memory.where);
}

/* The image and the weights packed from it. */
static int check_memory(const bench *b) {
  size_t bytes;
  hr_error err;
  if (cli_image_bytes(&b->shape, &bytes, &err) != HR_OK)
    return cli_fail_error("--synthetic", &err);
  return check_room(b->shape.name, bytes, has_tests(b) ? 2 : 1);
}

cli_progress bench_progress(const bench *b, const char *what, bool *show) {
  *show = isatty(STDERR_FILENO) && !b->set.common.quiet;
  return (cli_progress){.what = what, .start = cli_now()};
}

/* In pieces, between which progress is shown. */
static int save_image(bench *b) {
  const size_t piece = (size_t)1 << 24;
  const char *data = b->image.data;
  size_t bytes = b->image.bytes;
  bool show;
  cli_save save;
  int status = cli_save_begin(&save, b->set.save, bytes);
  if (status != HR_OK) return status;
  cli_progress progress = bench_progress(b, "writing the model", &show);
  for (size_t at = 0, n; at < bytes; at += n) {
    n = bytes - at < piece ? bytes - at : piece;
    if (!cli_save_write(&save, data + at, n)) break;
    (void)cli_report_progress(show ? &progress : NULL, (double)(at + n) / (double)bytes);
  }
  status = cli_save_end(&save); /* waits for the disk, and tells of an interrupt */
  cli_end_progress(&progress);
  return status;
}

static int make_image(bench *b) {
  hr_error err;
  bool show;
  int status = check_memory(b);
  if (status != HR_OK) return status;
  cli_progress progress = bench_progress(b, "drawing weights", &show);
  double start = cli_now();
  hr_status made =
      cli_image_make(&b->shape, cli_report_progress, show ? &progress : NULL, &b->image, &err);
  b->make_seconds = cli_now() - start;
  cli_end_progress(&progress);
  if (made != HR_OK) return cli_fail_error("--synthetic", &err);
  return b->set.save ? save_image(b) : HR_OK;
}

static bool all_tiers(const bench *b) {
  return b->set.common.isa && strcmp(b->set.common.isa, "all") == 0;
}

/* The weights of all sessions are packed by as many threads as the largest has. */
static unsigned threads_to_load(const bench *b) {
  unsigned most = 0;
  for (size_t i = 0; i < b->threads.count; i++) {
    if (b->threads.item[i] == 0) return 0;
    if (b->threads.item[i] > most) most = (unsigned)b->threads.item[i];
  }
  return most;
}

static int open_model(bench *b) {
  cli_common common = b->set.common;
  common.threads.value = threads_to_load(b);
  if (all_tiers(b)) common.isa = NULL;
  return bench_load(b, &common);
}

/* Panels are alike for all tiers: a tier is the same weights with other kernels. */
static int make_variants(bench *b) {
  size_t count;
  const hr_tier *tier = hr_tiers(&count);
  b->variant = calloc(count, sizeof *b->variant);
  if (!b->variant) return cli_fail_memory();
  for (size_t i = 0; i < count; i++) {
    hr_model *v = &b->variant[b->variants];
    const char *only = all_tiers(b) ? tier[i].name : hr_model_isa(b->model);
    *v = *b->model;
    if (strcmp(only, tier[i].name) == 0 &&
        hr_kernels_select(&v->kernels, hr_cpu_features(), tier[i].name))
      b->variants++;
  }
  return HR_OK;
}

/* --- Places --------------------------------------------------------------------- */

static uint64_t most_of(const bench_numbers *list) {
  uint64_t most = 0;
  for (size_t i = 0; i < list->count; i++)
    if (list->item[i] > most) most = list->item[i];
  return most;
}

static int find_context(bench *b) {
  const hr_transformer *t = &b->model->loaded.transformer;
  const hr_description *d = &t->description;
  /* nothing can be generated, and nobody asked for it */
  if (d->headless && !b->set.predict) b->predict.count = 0;
  uint64_t prompt = most_of(&b->prompt), predict = most_of(&b->predict), depth = most_of(&b->depth);
  size_t needed = (size_t)(depth + (prompt > predict ? prompt : predict));
  size_t room = b->set.common.context.given ? (size_t)b->set.common.context.value : needed;
  if (d->position == HR_POSITION_LEARNED && t->position_rows - d->position_offset < room)
    room = t->position_rows - d->position_offset;
  if (d->mask == HR_MASK_FULL && (predict || depth))
    return cli_fail(HR_ERROR_USAGE, "model: sees a text as a whole, expected -n 0 and -d 0");
  b->sequences = (size_t)most_of(&b->batch);
  if (d->mask == HR_MASK_FULL && !d->headless && b->sequences > 1)
    return cli_fail(HR_ERROR_USAGE, "model: gives logits for one text at a time, expected -b 1");
  if (needed > room)
    return cli_fail(HR_ERROR_CONTEXT, "context: %zu positions are needed, expected at most %zu",
                    needed, room);
  if (needed > d->context)
    bench_warn(b, "%zu positions are more than the %u that the model was trained for", needed,
               d->context);
  b->ids_count = needed;
  b->context = room;
  return HR_OK;
}

/* CPUs of the threads, if all of them are pinned. */
static void note_cpus(bench_place *p) {
  unsigned one = hr_session_threads(p->session), many = hr_session_threads_batch(p->session);
  p->pinned = true;
  for (unsigned i = 0; i < (one > many ? one : many); i++) {
    int cpu = hr_team_cpu(p->session->team, i);
    if (cpu < 0)
      p->pinned = false;
    else
      hr_cpuset_add(&p->cpus, (unsigned)cpu);
  }
}

static hr_cache cache_of(const bench *b) {
  const cli_choice *c = &b->set.common.cache;
  return c->given ? (hr_cache)(c->value + HR_CACHE_F16) : HR_CACHE_AUTO;
}

static int open_place(bench *b, bench_place *p, const hr_model *model, unsigned threads) {
  const cli_common *c = &b->set.common;
  hr_error err;
  hr_session_options o;
  hr_session_options_init(&o);
  o.context = b->context;
  o.sequences = b->sequences;
  o.cache = cache_of(b);
  cli_common wishes = *c;
  wishes.threads.value = threads;
  if (all_tiers(b)) wishes.isa = model->kernels.isa;
  int status = cli_choose_threads(&wishes, model, &o.threads, &o.threads_batch);
  if (status != HR_OK) return status;
  o.no_pin = c->no_pin;
  o.cores = c->cores;
  o.progress = bench_report_progress;
  o.progress_data = b;
  double before = bench_resident(), start = cli_now();
  p->session = hr_session_create(model, &o, &err);
  p->session_seconds = cli_now() - start;
  if (!p->session) return cli_fail_error(NULL, &err);
  p->model = model;
  p->filled = calloc(b->sequences, sizeof *p->filled);
  if (!p->filled) return cli_fail_memory();
  p->peaks = perf_peaks_of(model->kernels.isa);
  note_cpus(p);
  double after = bench_resident();
  p->resident = before < 0 || after < 0 ? -1 : after - before;
  p->most_mhz = p->pinned ? cli_sensors_most_mhz(b->sensors, &p->cpus) : 0;
  if (hr_session_warning(p->session)) bench_warn(b, "%s", hr_session_warning(p->session));
  bool alike = hr_session_threads(p->session) == hr_session_threads_batch(p->session);
  size_t rounds = (size_t)b->set.repeat.value;
  status = bench_limits_make(&p->limits[0], p->session, false, rounds);
  if (status == HR_OK && !alike)
    status = bench_limits_make(&p->limits[1], p->session, true, rounds);
  return status;
}

/* Every place has caches of its own. */
static int check_sessions(const bench *b, size_t *each) {
  char what[96];
  hr_error err;
  hr_memory m = {.size = sizeof m};
  hr_session_options o;
  hr_session_options_init(&o);
  o.context = b->context;
  o.sequences = b->sequences;
  o.cache = cache_of(b);
  if (hr_model_memory(b->model, &o, &m, &err) != HR_OK) return cli_fail_error(NULL, &err);
  size_t places = b->variants * b->threads.count;
  snprintf(what, sizeof what, "%zu sequence%s of %zu positions, %zu session%s", b->sequences,
           b->sequences == 1 ? "" : "s", b->context, places, places == 1 ? "" : "s");
  *each = m.cache + m.work;
  return check_room(what, *each, places);
}

static int open_places(bench *b) {
  const size_t much = (size_t)256 << 20; /* takes a while: said at once */
  size_t each;
  int fits = check_sessions(b, &each);
  if (fits != HR_OK) return fits;
  b->place = calloc(b->variants * b->threads.count, sizeof *b->place);
  if (!b->place) return cli_fail_memory();
  bool show;
  cli_progress progress = bench_progress(b, "making sessions", &show);
  if (each >= much) progress.start = -INFINITY;
  size_t all = b->variants * b->threads.count;
  int status = HR_OK;
  for (size_t i = 0; status == HR_OK && i < all; i++) {
    if (!cli_report_progress(show ? &progress : NULL, (double)i / (double)all))
      status = HR_ERROR_CANCELLED;
    else
      status = open_place(b, &b->place[b->places++], &b->variant[i / b->threads.count],
                          (unsigned)b->threads.item[i % b->threads.count]);
  }
  cli_end_progress(&progress);
  return status;
}

/* Whether the first of the weights that are read are in huge pages. */
static int huge_weights(const bench *b) {
  const bench_region *r = &b->place[0].limits[0].weights;
  hr_pages pages;
  for (size_t i = 0; i < r->parts; i++)
    if (r->part[i].bytes)
      return hr_pages_read(&pages, "/proc/self/smaps", r->part[i].data) ? pages.huge > 0 : -1;
  return -1;
}

/* --- Tests ---------------------------------------------------------------------- */

static int add_test(bench *b, bench_place *p, bench_amount amount) {
  if (!amount.tokens) return HR_OK;
  size_t repeat = (size_t)b->set.repeat.value;
  bench_test *t = &b->test[b->tests++];
  *t = (bench_test){.place = p, .amount = amount, .passes = 1};
  t->seconds = calloc(repeat, sizeof *t->seconds);
  t->first = calloc(repeat, sizeof *t->first);
  t->reading = calloc(repeat, sizeof *t->reading);
  t->steps = calloc(repeat, sizeof *t->steps);
  t->state = calloc(repeat, sizeof *t->state);
  if (!t->seconds || !t->first || !t->reading || !t->steps || !t->state) return cli_fail_memory();
  t->work = bench_work_of(p->session, &amount);
  return b->set.profile ? bench_profile_make(t) : HR_OK;
}

/* All lengths of a kind, and of each all batches. */
static int add_kind(bench *b, bench_place *p, bool prompt, size_t depth) {
  const bench_numbers *list = prompt ? &b->prompt : &b->predict;
  int status = HR_OK;
  for (size_t i = 0; status == HR_OK && i < list->count; i++)
    for (size_t j = 0; status == HR_OK && j < b->batch.count; j++)
      status = add_test(b, p, (bench_amount){.prompt = prompt, .tokens = (size_t)list->item[i],
                                             .depth = depth, .batch = (size_t)b->batch.item[j],
                                             .all_rows = b->set.block != NULL});
  return status;
}

static int add_tests(bench *b) {
  size_t each = b->depth.count * b->batch.count * (b->prompt.count + b->predict.count);
  int status = HR_OK;
  b->test = calloc(b->places * each, sizeof *b->test);
  if (!b->test) return cli_fail_memory();
  for (size_t p = 0; p < b->places; p++)
    for (size_t d = 0; status == HR_OK && d < b->depth.count; d++) {
      status = add_kind(b, &b->place[p], true, (size_t)b->depth.item[d]);
      if (status == HR_OK) status = add_kind(b, &b->place[p], false, (size_t)b->depth.item[d]);
    }
  return status;
}

/* Ids that the caches are filled with: drawn, always the same. */
static int draw_ids(bench *b) {
  uint64_t state = 1, vocab = hr_model_vocab_size(b->model);
  size_t count = b->ids_count + b->sequences;
  b->ids = calloc(count, sizeof *b->ids);
  b->piece = calloc(b->sequences, sizeof *b->piece);
  b->text = calloc(b->sequences, sizeof *b->text);
  b->next = calloc(b->sequences, sizeof *b->next);
  if (!b->ids || !b->piece || !b->text || !b->next) return cli_fail_memory();
  for (size_t i = 0; i < count; i++) {
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    b->ids[i] = (int32_t)((state >> 33) % vocab);
  }
  return HR_OK;
}

static int make_sampler(bench *b) {
  hr_error err;
  hr_sampler_options o;
  hr_sampler_options_init(&o);
  o.temperature = 0;
  b->sampler = hr_sampler_create(b->model, &o, &err);
  return b->sampler ? HR_OK : cli_fail_error(NULL, &err);
}

static int set_up(bench *b) {
  int status = open_model(b);
  b->loading_bytes = bench_memory("/proc/self/status", "VmHWM");
  if (status == HR_OK) status = find_context(b);
  if (status == HR_OK) status = make_variants(b);
  if (status == HR_OK) status = open_places(b);
  if (status == HR_OK) b->huge = huge_weights(b);
  if (status == HR_OK) status = draw_ids(b);
  if (status == HR_OK) status = make_sampler(b);
  if (status == HR_OK) status = add_tests(b);
  return status;
}

/* --- From start to end ------------------------------------------------------------ */

static void release(bench *b) {
  for (size_t i = 0; i < b->tests; i++) {
    free(b->test[i].seconds);
    free(b->test[i].first);
    free(b->test[i].reading);
    free(b->test[i].steps);
    free(b->test[i].state);
    bench_profile_free(&b->test[i]);
  }
  for (size_t i = 0; i < b->places; i++) {
    hr_session_free(b->place[i].session);
    free(b->place[i].filled);
    for (size_t j = 0; j < 2; j++) bench_limits_free(&b->place[i].limits[j]);
  }
  cli_sensors_free(b->sensors);
  hr_sampler_free(b->sampler);
  hr_model_free(b->model);
  cli_image_free(&b->image);
  free(b->variant);
  free(b->place);
  free(b->test);
  for (size_t i = 0; i < b->kernels; i++) free(b->kernel_samples[i]);
  free(b->kernel_samples);
  free(b->kernel);
  free(b->ids);
  free(b->piece);
  free(b->text);
  free(b->next);
  for (size_t i = 0; i < b->warnings; i++) free(b->warning[i]);
  free(b->warning);
  free(b->prompt.item);
  free(b->predict.item);
  free(b->depth.item);
  free(b->batch.item);
  free(b->threads.item);
}

static int check_outputs(const bench *b) {
  const char *json = b->set.json;
  int status = HR_OK;
  if (json && strcmp(json, "-") != 0) status = cli_check_save(json);
  if (status == HR_OK && b->set.save) status = cli_check_save(b->set.save);
  return status;
}

/* That the machine is one made of files is never silent. */
static int check_sysroot(bench *b) {
  struct stat s;
  const char *root = b->set.sysroot;
  if (!root) return HR_OK;
  if (stat(root, &s) != 0 || !S_ISDIR(s.st_mode))
    return cli_fail(HR_ERROR_FILE, "--sysroot: %s: is no folder, expected one with proc and sys",
                    root);
  bench_warn(b, "the state of the machine is read below %s: it is not this machine's", root);
  return HR_OK;
}

static int measure_model(bench *b) {
  int status = set_up(b);
  if (status == HR_OK) status = bench_check_outputs(b);
  if (status == HR_OK) status = bench_measure(b);
  return status;
}

static int run_all(bench *b) {
  int status = read_settings(b);
  if (status == HR_OK && !has_tests(b) && !b->set.save && !b->set.kernels)
    status = cli_fail(HR_ERROR_USAGE, "-p and -n: nothing to measure, expected a number above 0");
  if (status == HR_OK) status = check_outputs(b);
  if (status == HR_OK && b->set.synthetic) status = make_image(b);
  if (status != HR_OK || (!has_tests(b) && !b->set.kernels)) return status;
  long cpus = sysconf(_SC_NPROCESSORS_ONLN);
  b->cpus = cpus > 0 ? (unsigned)cpus : 1;
  status = check_sysroot(b);
  if (status != HR_OK) return status;
  b->sensors = cli_sensors_open(bench_sysroot(b));
  if (!b->sensors) return cli_fail_memory();
  bench_warn_of_realtime(b);
  b->load_before = bench_load_average();
  status = b->set.kernels ? bench_kernels(b) : measure_model(b);
  if (status == HR_OK) status = bench_capacity_measure(b);
  b->load_after = bench_load_average();
  return status == HR_OK ? bench_report(b) : status;
}

static int bench_command(const cli_command *command, int argc, char **argv) {
  bench *b = calloc(1, sizeof *b);
  int status;
  if (!b) return cli_fail_memory();
  b->set.repeat.value = 5;
  if (cli_start(command, argc, argv, &b->set, &status)) status = run_all(b);
  release(b);
  free(b);
  return status;
}

const cli_command cli_bench_command = {
    .name = "bench",
    .arguments = "[MODEL] [-p LIST] [-n LIST] [-d LIST] [-t LIST] [-r N] [options]",
    .summary = "measure speed, beside what the machine can do at most",
    .details =
        "Runs the model as 'run' does: prompts of -p tokens, and -n tokens generated one at a\n"
        "time by the likeliest choice, each after -d tokens, by one sequence or by -b of them in\n"
        "the same passes. LIST is numbers with commas; every combination is measured, and --isa\n"
        "all measures every kernel tier that the CPU has.\n"
        "Samples go round, so that all settings see the machine in the same moods.\n\n"
        "Beside them the same threads measure how fast memory can be read and how fast int8\n"
        "products and fp32 multiply-adds can be at most. 'of limit' is the share of the rate\n"
        "that the tightest of these allows; more than 100 % is marked: the limit was not met.\n\n"
        "No rate is reported, and the status is 1, when the logits are not the same bits in\n"
        "every sample, tier, number of threads and batch.",
    .options = options,
    .option_count = sizeof options / sizeof *options,
    .run = bench_command,
};
