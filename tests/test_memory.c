/* SPDX-License-Identifier: MIT
 * Memory: what there is, what is needed, what is taken, and what happens when
 * there is none. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <jansson.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "engine/engine.h"
#include "model/load_internal.h"
#include "model/packed.h"
#include "sched/memory.h"
#include "sched/placement.h"
#include "src/cli/memory.h"
#include "src/cli/synthetic.h"
#include "src/cli/output.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/sanitized.h"

#if WITH_ADDRESS_SANITIZER
#include <sanitizer/lsan_interface.h>
#define NO_LEAK() cr_assert_eq(__lsan_do_recoverable_leak_check(), 0)
#define SKIP_SHADOWED() cr_skip("AddressSanitizer holds memory of its own")
#else
#define SKIP_SHADOWED() (void)0
#define NO_LEAK() (void)0
#endif

#define BUILTIN HEADROW_SOURCE_ROOT "/models/builtin.gguf"

TestSuite(memory, .timeout = 300);

/* --- What there is ----------------------------------------------------------------- */

#define MEMINFO "MemTotal: 8000 kB\nMemFree: 100 kB\nMemAvailable:    4000 kB\n"
#define V2 "30 22 0:27 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
#define V1 "35 22 0:30 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
#define ALL SIZE_MAX

typedef struct file {
  const char *path, *text;
} file;

static const struct {
  const char *what;
  file files[10];
  size_t bytes;
  const char *where;
} trees[] = {
    {"the machine's", {{"/proc/meminfo", MEMINFO}}, 4096000, "/proc/meminfo"},
    {"nothing to go by", {{"/proc/meminfo", "MemTotal: 5 kB\n"}}, ALL, ""},
    {"a limit without use",
     {{"/proc/meminfo", MEMINFO},
      {"/proc/self/cgroup", "0::/a\n"},
      {"/proc/self/mountinfo", V2},
      {"/sys/fs/cgroup/a/memory.max", "1000000\n"}},
     1000000,
     "/sys/fs/cgroup/a/memory.max"},
    {"no limit",
     {{"/proc/meminfo", MEMINFO},
      {"/proc/self/cgroup", "0::/a\n"},
      {"/proc/self/mountinfo", V2},
      {"/sys/fs/cgroup/a/memory.max", "max\n"}},
     4096000,
     "/proc/meminfo"},
    {"pages of files can be dropped",
     {{"/proc/meminfo", MEMINFO},
      {"/proc/self/cgroup", "0::/a\n"},
      {"/proc/self/mountinfo", V2},
      {"/sys/fs/cgroup/a/memory.max", "1000000\n"},
      {"/sys/fs/cgroup/a/memory.current", "900000\n"},
      {"/sys/fs/cgroup/a/memory.stat",
       "anon 400000\nfile 500000\nworkingset_active_file 7\ninactive_file 300000\nactive_file "
       "100000\n"}},
     500000,
     "/sys/fs/cgroup/a/memory.max"},
    {"a group around it is tighter",
     {{"/proc/meminfo", MEMINFO},
      {"/proc/self/cgroup", "0::/outer/inner\n"},
      {"/proc/self/mountinfo", V2},
      {"/sys/fs/cgroup/outer/inner/memory.max", "3000000\n"},
      {"/sys/fs/cgroup/outer/inner/memory.current", "1\n"},
      {"/sys/fs/cgroup/outer/memory.max", "2000000\n"},
      {"/sys/fs/cgroup/outer/memory.current", "1500000\n"}},
     500000,
     "/sys/fs/cgroup/outer/memory.max"},
    {"more used than allowed leaves nothing",
     {{"/proc/meminfo", MEMINFO},
      {"/proc/self/cgroup", "0::/a\n"},
      {"/proc/self/mountinfo", V2},
      {"/sys/fs/cgroup/a/memory.max", "1000\n"},
      {"/sys/fs/cgroup/a/memory.current", "2000\n"}},
     0,
     "/sys/fs/cgroup/a/memory.max"},
    {"a mark from which the group is slowed down",
     {{"/proc/meminfo", MEMINFO},
      {"/proc/self/cgroup", "0::/a\n"},
      {"/proc/self/mountinfo", V2},
      {"/sys/fs/cgroup/a/memory.max", "max\n"},
      {"/sys/fs/cgroup/a/memory.high", "700000\n"}},
     700000,
     "/sys/fs/cgroup/a/memory.high"},
    {"version 1",
     {{"/proc/meminfo", MEMINFO},
      {"/proc/self/cgroup", "4:memory:/job\n"},
      {"/proc/self/mountinfo", V1},
      {"/sys/fs/cgroup/memory/job/memory.limit_in_bytes", "2000000\n"},
      {"/sys/fs/cgroup/memory/job/memory.usage_in_bytes", "1000000\n"},
      {"/sys/fs/cgroup/memory/job/memory.stat",
       "inactive_file 1\ntotal_inactive_file 200000\ntotal_active_file 100000\n"},
      {"/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"}},
     1300000,
     "/sys/fs/cgroup/memory/job/memory.limit_in_bytes"},
    {"nonsense is no limit",
     {{"/proc/meminfo", MEMINFO},
      {"/proc/self/cgroup", "0::/a\n"},
      {"/proc/self/mountinfo", V2},
      {"/sys/fs/cgroup/a/memory.max", "-5\n"},
      {"/sys/fs/cgroup/memory.max", ""}},
     4096000,
     "/proc/meminfo"},
};

static void write_file(const char *root, const char *path, const char *text) {
  char full[512];
  snprintf(full, sizeof full, "%s%s", root, path);
  for (char *p = full + strlen(root) + 1; (p = strchr(p, '/')); p++) {
    *p = '\0';
    (void)mkdir(full, 0777);
    *p = '/';
  }
  FILE *f = fopen(full, "w");
  cr_assert(f, "%s", full);
  fputs(text, f);
  fclose(f);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw) {
  (void)st, (void)type, (void)ftw;
  return remove(path);
}

Test(memory, free_is_what_the_tightest_limit_leaves) {
  for (size_t i = 0; i < sizeof trees / sizeof *trees; i++) {
    char root[] = "/tmp/hr-memory-XXXXXX";
    cr_assert(mkdtemp(root));
    for (const file *f = trees[i].files; f->path; f++) write_file(root, f->path, f->text);
    hr_memory_free found;
    bool known = hr_memory_free_read(&found, root);
    cr_expect_eq(known, trees[i].bytes != ALL, "%s", trees[i].what);
    cr_expect_eq(found.bytes, trees[i].bytes, "%s: %zu", trees[i].what, found.bytes);
    cr_expect_str_eq(found.where, trees[i].where, "%s", trees[i].what);
    nftw(root, remove_one, 8, FTW_DEPTH | FTW_PHYS);
  }
}

Test(memory, pages_are_those_of_the_mapping_that_holds_the_address) {
  char path[] = "/tmp/hr-smaps-XXXXXX";
  int fd = mkstemp(path);
  static const char text[] =
      "1000-3000 rw-p 00000000 00:00 0 \nRss:                  8 kB\nAnonHugePages:         4 kB\n"
      "200000-600000 rw-p 00000000 00:00 0 \nSize: 4096 kB\nRss:               4096 kB\n"
      "AnonHugePages:      2048 kB\nFilePmdMapped:         0 kB\nVmFlags: rd wr hg\n";
  cr_assert_eq(write(fd, text, sizeof text - 1), (ssize_t)(sizeof text - 1));
  hr_pages pages;
  cr_assert(hr_pages_read(&pages, path, (const void *)0x200040));
  cr_expect_eq(pages.resident, 4096u * 1024);
  cr_expect_eq(pages.huge, 2048u * 1024);
  cr_expect(!hr_pages_read(&pages, path, (const void *)0x600000), "behind the last one");
  cr_expect(!hr_pages_read(&pages, "/tmp/no-such-file", path));
  close(fd);
  remove(path);
  /* and of this process */
  char *block = hr_alloc_pages((size_t)4 << 20);
  memset(block, 1, (size_t)4 << 20);
  cr_assert(hr_pages_read(&pages, "/proc/self/smaps", block));
  cr_expect(pages.resident >= (size_t)4 << 20, "%zu", pages.resident);
  hr_free_pages(block, (size_t)4 << 20);
}

/* --- What is needed --------------------------------------------------------------- */

/* In place of the command's own. */
static char said[1024];

static void say(const char *format, va_list args) {
  size_t used = strlen(said);
  vsnprintf(said + used, sizeof said - used, format, args);
}
void cli_note(const char *format, ...) {
  va_list args;
  va_start(args, format);
  say(format, args);
  va_end(args);
}
int cli_fail(hr_status status, const char *format, ...) {
  va_list args;
  va_start(args, format);
  say(format, args);
  va_end(args);
  return (int)status;
}
int cli_fail_error(const char *where, const hr_error *err) {
  return cli_fail(err->status, "%s%s", where ? where : "", err->message);
}
void cli_session_options(const cli_common *common, hr_session_options *options) {
  hr_session_options_init(options);
  options->context = (size_t)common->context.value;
}
const char *cli_size_text(size_t bytes, char text[CLI_SIZE_TEXT]) {
  snprintf(text, CLI_SIZE_TEXT, "%zu", bytes);
  return text;
}

static hr_model *plan(const char *path, hr_weights weights) {
  hr_error err;
  hr_model_options options;
  hr_model_options_init(&options);
  options.weights = weights;
  options.defer_weights = true;
  hr_model *model = hr_model_open(path, &options, &err);
  cr_assert(model, "%s", err.message);
  return model;
}

static size_t sum_of(const hr_model *model, size_t context) {
  hr_error err;
  hr_session_options options;
  hr_session_options_init(&options);
  options.context = context;
  hr_memory m = {.size = sizeof m};
  cr_assert_eq(hr_model_memory(model, &options, &m, &err), HR_OK, "%s", err.message);
  cr_expect_eq(m.context, context);
  return m.weights + m.cache + m.work;
}

Test(memory, the_estimate_is_what_is_then_taken) {
  hr_error err;
  hr_model *model = plan(BUILTIN, HR_WEIGHTS_F16);
  hr_memory m = {.size = sizeof m};
  cr_assert_eq(hr_model_memory(model, NULL, &m, &err), HR_OK);
  cr_expect(!hr_session_create(model, NULL, &err));
  cr_expect_eq(err.status, HR_ERROR_USAGE);
  cr_expect(strstr(err.message, "hr_model_load"), "%s", err.message);
  cr_assert_eq(hr_model_load(model, &err), HR_OK, "%s", err.message);
  cr_assert_eq(hr_model_load(model, &err), HR_OK, "%s", err.message);
  hr_session *session = hr_session_create(model, NULL, &err);
  cr_assert(session);
  const hr_description *d = &model->loaded.transformer.description;
  cr_expect_eq(m.weights, model->loaded.weight_bytes);
  cr_expect_eq(m.cache, session->cache.bytes);
  /* keys and values, f16; head width and context are multiples of 16 */
  cr_expect_eq(m.cache, (size_t)2 * 2 * d->layers * d->kv_heads * d->head_width * m.context);
  hr_session_free(session);
  hr_model_free(model);
}

Test(memory, a_model_that_does_not_fit_is_refused_with_what_would) {
  hr_model *model = plan(BUILTIN, HR_WEIGHTS_NATIVE);
  cli_common common = {.context = {4096, true}};
  size_t enough = sum_of(model, 4096), half = sum_of(model, 1024);

  cr_expect_eq(cli_check_memory_in(&common, model, enough, "there"), HR_OK, "%s", said);
  cr_expect_str_eq(said, "");
  cr_expect_eq(cli_check_memory_in(&common, model, enough - 1, "there"), HR_ERROR_MEMORY);
  cr_expect(strstr(said, "with -c 4096") && strstr(said, "(there)"), "%s", said);

  said[0] = '\0';
  cr_expect_eq(cli_check_memory_in(&common, model, half, "there"), HR_ERROR_MEMORY);
  cr_expect(strstr(said, "-c 1024 would fit"), "%s", said);

  said[0] = '\0';
  cr_expect_eq(cli_check_memory_in(&common, model, 1000, "there"), HR_ERROR_MEMORY);
  cr_expect(strstr(said, "no context would fit"), "%s", said);

  said[0] = '\0';
  common.context = (cli_count){0};
  cr_expect_eq(cli_check_memory_in(&common, model, half, "there"), HR_OK, "%s", said);
  hr_model_free(model);
}

Test(memory, the_default_context_is_lowered_and_that_is_said) {
  hr_error err;
  hr_model *model = plan(BUILTIN, HR_WEIGHTS_NATIVE);
  cli_common common = {0};
  size_t standard = hr_default_context(&model->loaded.transformer.description);
  size_t weights = model->loaded.weight_bytes;
  size_t all = sum_of(model, standard) - weights, some = sum_of(model, 512) - weights;
  cr_assert_eq(hr_model_load(model, &err), HR_OK);
  cr_expect_eq(cli_context_that_fits_in(&common, model, all), standard);
  cr_expect_str_eq(said, "");
  cr_expect_eq(cli_context_that_fits_in(&common, model, some), 512);
  cr_expect(strstr(said, "512 and not 1024"), "%s", said);
  hr_model_free(model);
}

Test(memory, conversions_are_told_before_they_are_made) {
  cli_common common = {0};
  hr_model *model = plan(BUILTIN, HR_WEIGHTS_F16);
  cli_check_memory_in(&common, model, SIZE_MAX, "there");
  cr_expect(strstr(said, "is Q8_0") && strstr(said, "held as F16"), "%s", said);
  said[0] = '\0';
  common.quiet = true;
  cli_check_memory_in(&common, model, SIZE_MAX, "there");
  cr_expect_str_eq(said, "");
  hr_model_free(model);
}

/* A llama of one layer whose first `other` matrices are Q8_0 and the rest Q4_K. */
static void expect_name(uint32_t file_type, size_t other, const char *told) {
  static const char *const matrices[] = {
      "output.weight",         "token_embd.weight",     "blk.0.attn_q.weight",
      "blk.0.attn_k.weight",   "blk.0.attn_v.weight",   "blk.0.attn_output.weight",
      "blk.0.ffn_gate.weight", "blk.0.ffn_up.weight",   "blk.0.ffn_down.weight"};
  static const char *const norms[] = {"output_norm.weight", "blk.0.attn_norm.weight",
                                      "blk.0.ffn_norm.weight"};
  enum { WIDTH = 256, Q4_K = 12, Q4_K_BYTES = 144, Q8_0_BYTES = 8 * 34 };
  static const uint64_t shape[] = {WIDTH, WIDTH};
  static const unsigned char zeros[WIDTH * Q8_0_BYTES];
  gguf_writer w;
  gguf_writer_init(&w);
  gguf_put_string(&w, "general.architecture", "llama");
  gguf_put_u32(&w, "general.file_type", file_type);
  gguf_put_u32(&w, "llama.block_count", 1);
  gguf_put_u32(&w, "llama.context_length", 64);
  gguf_put_u32(&w, "llama.embedding_length", WIDTH);
  gguf_put_u32(&w, "llama.feed_forward_length", WIDTH);
  gguf_put_u32(&w, "llama.attention.head_count", 4);
  gguf_put_f32(&w, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
  for (size_t i = 0; i < sizeof norms / sizeof *norms; i++)
    gguf_put_tensor(&w, norms[i], GGUF_TENSOR_F32, 1, shape, zeros, WIDTH * sizeof(float));
  for (size_t i = 0; i < sizeof matrices / sizeof *matrices; i++)
    gguf_put_tensor(&w, matrices[i], i < other ? GGUF_TENSOR_Q8_0 : Q4_K, 2, shape, zeros,
                    (size_t)WIDTH * (i < other ? Q8_0_BYTES : Q4_K_BYTES));
  size_t size;
  unsigned char *data = gguf_writer_finish(&w, &size);
  hr_model_options options;
  hr_model_options_init(&options);
  options.defer_weights = true;
  hr_error err;
  hr_model *model = hr_model_open_memory(data, size, "m.gguf", &options, &err);
  cr_assert(model, "%s", err.message);
  cli_common common = {0};
  said[0] = '\0';
  cli_check_memory_in(&common, model, SIZE_MAX, "there");
  cr_expect(strncmp(said, told, strlen(told)) == 0, "%s", said);
  cr_expect(strstr(said, "held as "), "%s", said);
  hr_model_free(model);
  free(data);
}

Test(memory, a_file_is_called_what_it_calls_itself) {
  expect_name(15, 0, "m.gguf is Q4_K_M (");
  expect_name(14, 0, "m.gguf is Q4_K_S (");
  expect_name(15, 8, "m.gguf is Q4_K_M (");    /* though most bytes are Q8_0 */
  expect_name(17, 0, "m.gguf is Q4_K (");      /* Q5_K_M, of which it has nothing */
  expect_name(0, 0, "m.gguf is Q4_K (");       /* F32, as only the norms are */
  expect_name(4000000000u, 0, "m.gguf is Q4_K (");
  expect_name(7, 8, "m.gguf is in part Q8_0 (");
  cr_expect(strstr(said, "; held as int8 throughout it needs "), "%s", said);
}

/* --- What is taken ----------------------------------------------------------------- */

static size_t status_bytes(const char *key) {
  char line[256];
  size_t kib = 0;
  FILE *f = fopen("/proc/self/status", "r");
  cr_assert(f);
  while (fgets(line, sizeof line, f))
    if (strncmp(line, key, strlen(key)) == 0) kib = strtoul(line + strlen(key) + 1, NULL, 10);
  fclose(f);
  return kib * 1024;
}

static void write_synthetic(const char *text, const char *path) {
  hr_error err;
  cli_shape shape;
  cli_image image;
  cr_assert_eq(cli_shape_parse(text, &shape, &err), HR_OK, "%s", err.message);
  cr_assert_eq(cli_image_make(&shape, NULL, NULL, &image, &err), HR_OK, "%s", err.message);
  FILE *f = fopen(path, "wb");
  cr_assert(f);
  cr_assert_eq(fwrite(image.data, 1, image.bytes, f), image.bytes);
  fclose(f);
  cli_image_free(&image);
}

/* Byte-level BPE: the letters that stand for the bytes, and pairs of them. */
enum { VOCAB = 16384, BYTES = 256, MERGES = VOCAB - BYTES };

typedef struct bpe {
  char token[VOCAB][8], merge[MERGES][8];
  const char *tokens[VOCAB], *merges[MERGES];
} bpe;

/* As GPT-2 has it: bytes that print stand for themselves, the others are numbered from 256. */
static void put_letter(unsigned byte, char letter[4]) {
  unsigned code = 256;
  for (unsigned b = 0; b <= byte; b++) {
    bool prints = (b > 32 && b < 127) || (b > 160 && b != 173);
    if (b == byte && prints) code = b;
    if (b < byte && !prints) code++;
  }
  if (code < 128)
    snprintf(letter, 4, "%c", (int)code);
  else
    snprintf(letter, 4, "%c%c", (int)(0xc0 | code >> 6), (int)(0x80 | (code & 63)));
}

static bpe *make_bpe(void) {
  bpe *b = calloc(1, sizeof *b);
  cr_assert(b);
  for (unsigned i = 0; i < BYTES; i++) put_letter(i, b->token[i]);
  for (unsigned i = 0; i < MERGES; i++) {
    const char *first = b->token[i / BYTES], *second = b->token[i % BYTES];
    snprintf(b->token[BYTES + i], sizeof *b->token, "%.2s%.2s", first, second);
    snprintf(b->merge[i], sizeof *b->merge, "%.2s %.2s", first, second);
    b->merges[i] = b->merge[i];
  }
  for (unsigned i = 0; i < VOCAB; i++) b->tokens[i] = b->token[i];
  return b;
}

static void put_bpe(gguf_writer *w) {
  bpe *b = make_bpe();
  gguf_put_string(w, "tokenizer.ggml.model", "gpt2");
  gguf_put_string(w, "tokenizer.ggml.pre", "gpt-2");
  gguf_put_strings(w, "tokenizer.ggml.tokens", b->tokens, VOCAB);
  gguf_put_strings(w, "tokenizer.ggml.merges", b->merges, MERGES);
  free(b);
}

static void write_bpe(const char *path) {
  bpe *b = make_bpe();
  json_t *tokens = json_object(), *merges = json_array();
  for (int i = 0; i < VOCAB; i++) json_object_set_new(tokens, b->token[i], json_integer(i));
  for (int i = 0; i < MERGES; i++) json_array_append_new(merges, json_string(b->merge[i]));
  json_t *all = json_pack("{s:{s:s,s:b,s:b},s:{s:s,s:o,s:o}}", "pre_tokenizer", "type", "ByteLevel",
                          "add_prefix_space", 0, "use_regex", 1, "model", "type", "BPE", "vocab",
                          tokens, "merges", merges);
  cr_assert(all && json_dump_file(all, path, JSON_COMPACT) == 0);
  json_decref(all);
  free(b);
}

/* Llamas of zeros in the forms that come from elsewhere. Their files have holes for data. */
enum { WIDTH = 1024, FFN = 2816, Q4_K = 12, Q4_K_VALUES = 256, Q4_K_BYTES = 144 };

typedef struct tensor_row {
  const char *gguf, *safetensors; /* with a number where it is one of a layer */
  size_t rows, columns;           /* rows 0: a vector */
} tensor_row;

static const tensor_row around[] = {
    {"token_embd.weight", "model.embed_tokens.weight", VOCAB, WIDTH},
    {"output_norm.weight", "model.norm.weight", 0, WIDTH}};
static const tensor_row of_a_layer[] = {
    {"blk.%zu.attn_norm.weight", "model.layers.%zu.input_layernorm.weight", 0, WIDTH},
    {"blk.%zu.ffn_norm.weight", "model.layers.%zu.post_attention_layernorm.weight", 0, WIDTH},
    {"blk.%zu.attn_q.weight", "model.layers.%zu.self_attn.q_proj.weight", WIDTH, WIDTH},
    {"blk.%zu.attn_k.weight", "model.layers.%zu.self_attn.k_proj.weight", WIDTH, WIDTH},
    {"blk.%zu.attn_v.weight", "model.layers.%zu.self_attn.v_proj.weight", WIDTH, WIDTH},
    {"blk.%zu.attn_output.weight", "model.layers.%zu.self_attn.o_proj.weight", WIDTH, WIDTH},
    {"blk.%zu.ffn_gate.weight", "model.layers.%zu.mlp.gate_proj.weight", FFN, WIDTH},
    {"blk.%zu.ffn_up.weight", "model.layers.%zu.mlp.up_proj.weight", FFN, WIDTH},
    {"blk.%zu.ffn_down.weight", "model.layers.%zu.mlp.down_proj.weight", WIDTH, FFN}};
enum {
  AROUND = sizeof around / sizeof *around,
  OF_A_LAYER = sizeof of_a_layer / sizeof *of_a_layer
};

static size_t tensors_of(size_t layers) {
  return AROUND + layers * OF_A_LAYER;
}

static const tensor_row *tensor_at(size_t i, bool gguf, char name[96]) {
  const tensor_row *t = i < AROUND ? &around[i] : &of_a_layer[(i - AROUND) % OF_A_LAYER];
  const char *form = gguf ? t->gguf : t->safetensors;
  const char *number = strstr(form, "%zu");
  if (number)
    snprintf(name, 96, "%.*s%zu%s", (int)(number - form), form, (i - AROUND) / OF_A_LAYER,
             number + 3);
  else
    snprintf(name, 96, "%s", form);
  return t;
}

static void write_with_hole(const char *path, const void *head, size_t bytes, size_t all) {
  FILE *f = fopen(path, "wb");
  cr_assert(f && fwrite(head, 1, bytes, f) == bytes && fflush(f) == 0);
  cr_assert(ftruncate(fileno(f), (off_t)all) == 0 && fclose(f) == 0);
}

static void write_k_quants(const char *path, size_t layers) {
  gguf_writer w;
  size_t offset = 0, bytes;
  gguf_writer_init(&w);
  gguf_put_string(&w, "general.architecture", "llama");
  gguf_put_u32(&w, "llama.block_count", (uint32_t)layers);
  gguf_put_u32(&w, "llama.context_length", 4096);
  gguf_put_u32(&w, "llama.embedding_length", WIDTH);
  gguf_put_u32(&w, "llama.feed_forward_length", FFN);
  gguf_put_u32(&w, "llama.attention.head_count", 16);
  gguf_put_f32(&w, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
  put_bpe(&w);
  for (size_t i = 0; i < tensors_of(layers); i++) {
    char name[96];
    const tensor_row *t = tensor_at(i, true, name);
    const uint64_t dim[] = {t->columns, t->rows};
    gguf_put_tensor_info(&w, name, t->rows ? Q4_K : GGUF_TENSOR_F32, t->rows ? 2 : 1, dim, offset);
    offset += t->rows ? t->rows * t->columns / Q4_K_VALUES * Q4_K_BYTES : t->columns * 4;
  }
  unsigned char *head = gguf_writer_finish(&w, &bytes);
  write_with_hole(path, head, bytes, (bytes + 31) / 32 * 32 + offset);
  free(head);
}

static void write_safetensors(const char *path, const char *config, size_t layers) {
  json_t *header = json_object();
  size_t offset = 0;
  for (size_t i = 0; i < tensors_of(layers); i++) {
    char name[96];
    const tensor_row *t = tensor_at(i, false, name);
    size_t bytes = (t->rows ? t->rows : 1) * t->columns * 2;
    json_t *shape = t->rows ? json_pack("[i,i]", (int)t->rows, (int)t->columns)
                            : json_pack("[i]", (int)t->columns);
    json_object_set_new(header, name,
                        json_pack("{s:s,s:o,s:[I,I]}", "dtype", "F16", "shape", shape,
                                  "data_offsets", (json_int_t)offset,
                                  (json_int_t)(offset + bytes)));
    offset += bytes;
  }
  char *text = json_dumps(header, JSON_COMPACT), *head;
  uint64_t length = strlen(text);
  head = malloc(8 + length);
  memcpy(head, &length, 8);
  memcpy(head + 8, text, length);
  write_with_hole(path, head, 8 + length, 8 + length + offset);
  json_t *values = json_pack(
      "{s:s,s:i,s:i,s:i,s:i,s:i,s:i,s:f,s:b}", "model_type", "llama", "hidden_size", WIDTH,
      "intermediate_size", FFN, "num_hidden_layers", (int)layers, "num_attention_heads", 16,
      "vocab_size", VOCAB, "max_position_embeddings", 4096, "rms_norm_eps", 1e-5,
      "tie_word_embeddings", 1);
  cr_assert(header && values && json_dump_file(values, config, 0) == 0);
  json_decref(values);
  json_decref(header);
  free(text);
  free(head);
}

static void expect_within(size_t bytes, size_t resident, const char *when) {
  cr_expect(resident <= bytes + bytes / 10 + ((size_t)32 << 20), "%s: %zu for %zu", when, resident,
            bytes);
}

/* What was resident before does not count. */
static hr_model *load_within(const char *path, hr_weights weights, unsigned threads,
                             size_t before) {
  hr_error err;
  FILE *f = fopen("/proc/self/clear_refs", "w");
  cr_assert(f && fputs("5", f) >= 0 && fclose(f) == 0); /* VmHWM begins anew */
  hr_model_options o;
  hr_model_options_init(&o);
  o.weights = weights;
  o.threads = threads;
  hr_model *model = hr_model_open(path, &o, &err);
  cr_assert(model, "%s", err.message);
  expect_within(model->loaded.weight_bytes, status_bytes("VmHWM") - before, "loading");
  return model;
}

/* Loads the file, makes a session of 2048 positions and fills some of them. */
static void measure(const char *path, hr_weights weights) {
  hr_error err;
  size_t before = status_bytes("VmRSS");
  hr_model *model = load_within(path, weights, 2, before);
  cr_assert(model->tokenizer && model->token_count == VOCAB);
  size_t bytes = model->loaded.weight_bytes;
  hr_session_options s;
  hr_session_options_init(&s);
  s.context = 2048;
  hr_session *session = hr_session_create(model, &s, &err);
  cr_assert(session, "%s", err.message);
  int32_t ids[600];
  for (int i = 0; i < 600; i++) ids[i] = i % 300;
  cr_assert_eq(hr_session_eval(session, ids, 600, HR_LOGITS_LAST, &err), HR_OK, "%s", err.message);
  size_t both = bytes + session->cache.bytes, resident = status_bytes("VmRSS") - before;
  expect_within(both, resident, "running");
  cr_expect(resident >= bytes, "%zu of %zu bytes: the measurement is wrong", resident, bytes);
  hr_session_free(session);
  hr_model_free(model);
}

Test(memory, weights_and_cache_are_nearly_all_that_is_resident) {
  SKIP_SHADOWED();
  char path[] = "/tmp/hr-synthetic-XXXXXX";
  close(mkstemp(path));
  write_synthetic("dim=1024,layers=12,vocab=16384:q8_0", path);
  measure(path, HR_WEIGHTS_NATIVE);
  measure(path, HR_WEIGHTS_F16);
  write_synthetic("dim=512,layers=12,vocab=16384:f32", path);
  measure(path, HR_WEIGHTS_NATIVE);
  measure(path, HR_WEIGHTS_Q8_0);
  remove(path);
}

Test(memory, the_same_for_k_quants) {
  SKIP_SHADOWED();
  char path[] = "/tmp/hr-synthetic-XXXXXX";
  close(mkstemp(path));
  write_k_quants(path, 6);
  measure(path, HR_WEIGHTS_NATIVE);
  remove(path);
}

Test(memory, the_same_for_safetensors) {
  SKIP_SHADOWED();
  char root[] = "/tmp/hr-synthetic-XXXXXX", path[64], config[64], tokenizer[64];
  cr_assert(mkdtemp(root));
  snprintf(path, sizeof path, "%s/model.safetensors", root);
  snprintf(config, sizeof config, "%s/config.json", root);
  snprintf(tokenizer, sizeof tokenizer, "%s/tokenizer.json", root);
  write_safetensors(path, config, 3);
  write_bpe(tokenizer);
  measure(path, HR_WEIGHTS_NATIVE);
  measure(path, HR_WEIGHTS_Q8_0);
  nftw(root, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

/* What was just written may lie in huge pages, of which any read maps 2 MiB; what was read in
 * does not. */
static void forget_pages(const char *path) {
  int fd = open(path, O_RDONLY);
  cr_assert(fd >= 0 && fsync(fd) == 0 && posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0);
  close(fd);
}

/* Two matrices of 128 MiB become 34 MiB each: pages must not pile up, a few with each of the
 * threads. */
Test(memory, the_same_for_many_threads) {
  SKIP_SHADOWED();
  char path[] = "/tmp/hr-synthetic-XXXXXX";
  close(mkstemp(path));
  write_synthetic("dim=1024,layers=1,vocab=32768:f32", path);
  for (int i = 0; i < 3; i++) {
    forget_pages(path);
    hr_model_free(load_within(path, HR_WEIGHTS_Q8_0, 64, status_bytes("VmRSS")));
  }
  remove(path);
}

Test(memory, packing_threads_share_what_they_hold_of_a_file) {
  static const size_t pages[] = {4096, 16384, 65536};
  cr_expect_eq(hr_load_held_bytes(1, 4096), (size_t)4 << 20, "a thread alone");
  cr_expect_eq(hr_load_held_bytes(256, 65536), 65536);
  for (size_t i = 0; i < sizeof pages / sizeof *pages; i++)
    for (unsigned threads = 1; threads <= HR_THREADS_MAX; threads++) {
      size_t held = hr_load_held_bytes(threads, pages[i]);
      cr_expect(held >= pages[i] && held <= (size_t)4 << 20, "%u threads: %zu", threads, held);
      cr_expect(held == pages[i] || threads * held <= (size_t)16 << 20, "%u threads: %zu", threads,
                held);
    }
}

/* --- Who packs ----------------------------------------------------------------------- */

/* Threads that there are, and what they may use, while a model is loaded: the least of what was
 * seen each time, since one that has ended is still listed for a moment. */
typedef struct seen_threads {
  pid_t before[8]; /* those of the test, who do not count */
  unsigned threads, elsewhere; /* others; and those whose CPUs are not the expected ones */
  cpu_set_t expected, packer;
  unsigned looks;
} seen_threads;

static bool was_there(const seen_threads *s, pid_t thread) {
  for (size_t i = 0; i < sizeof s->before / sizeof *s->before; i++)
    if (s->before[i] == thread) return true;
  return false;
}

/* Those that were not there before; their numbers go to threads if that is not NULL. */
static unsigned count_threads(const seen_threads *s, unsigned *elsewhere, pid_t *threads) {
  unsigned count = 0;
  DIR *folder = opendir("/proc/self/task");
  cr_assert(folder);
  for (struct dirent *entry; (entry = readdir(folder));) {
    pid_t thread = atoi(entry->d_name);
    cpu_set_t set;
    if (thread <= 0 || was_there(s, thread) || sched_getaffinity(thread, sizeof set, &set) != 0)
      continue;
    if (threads && count < sizeof s->before / sizeof *s->before) threads[count] = thread;
    count++;
    if (elsewhere && !CPU_EQUAL(&set, &s->expected)) ++*elsewhere;
  }
  closedir(folder);
  return count;
}

static bool look_at_threads(void *data, double done) {
  seen_threads *s = data;
  unsigned elsewhere = 0, threads = count_threads(s, &elsewhere, NULL);
  (void)done;
  if (s->looks == 0) sched_getaffinity(0, sizeof s->packer, &s->packer);
  if (s->looks == 0 || threads < s->threads) s->threads = threads;
  if (s->looks == 0 || elsewhere < s->elsewhere) s->elsewhere = elsewhere;
  if (s->looks++ < 10) usleep(2000);
  return true;
}

static cli_image image_of(const char *text) {
  hr_error err;
  cli_shape shape;
  cli_image image;
  cr_assert_eq(cli_shape_parse(text, &shape, &err), HR_OK, "%s", err.message);
  cr_assert_eq(cli_image_make(&shape, NULL, NULL, &image, &err), HR_OK, "%s", err.message);
  return image;
}

static seen_threads load_with(const cli_image *image, hr_model_options o, cpu_set_t expected) {
  hr_error err;
  seen_threads s = {.expected = expected};
  pid_t before[sizeof s.before / sizeof *s.before] = {0};
  (void)count_threads(&s, NULL, before);
  memcpy(s.before, before, sizeof before);
  char cores[16] = "";
  if (o.cores) snprintf(cores, sizeof cores, "%s", o.cores);
  if (o.cores) o.cores = cores;
  o.progress = look_at_threads;
  o.progress_data = &s;
  o.defer_weights = true;
  hr_model *model = hr_model_open_memory(image->data, image->bytes, "drawn", &o, &err);
  cr_assert(model, "%s", err.message);
  memset(cores, 'x', sizeof cores - 1); /* it was copied */
  cr_assert_eq(hr_model_load(model, &err), HR_OK, "%s", err.message);
  cr_expect(s.looks > 1);
  hr_model_free(model);
  return s;
}

Test(memory, loading_keeps_to_the_wishes) {
  cpu_set_t all, one;
  hr_model_options o;
  char last[16];
  size_t cpu = CPU_SETSIZE - 1;
  cr_assert_eq(sched_getaffinity(0, sizeof all, &all), 0);
  while (!CPU_ISSET(cpu, &all)) cpu--;
  CPU_ZERO(&one);
  CPU_SET(cpu, &one);
  snprintf(last, sizeof last, "%zu", cpu);
  cli_image large = image_of("dim=512,layers=2,vocab=32768:q8_0");
  cli_image small = image_of("dim=64,layers=2,vocab=512:q8_0");

  hr_model_options_init(&o);
  o.threads = 1;
  cr_expect_eq(load_with(&large, o, all).threads, 0); /* the caller packs */
  o.cores = last;
  const cli_image *images[] = {&large, &small};
  for (int i = 0; i < 2; i++) {
    seen_threads s = load_with(images[i], o, one);
    cr_expect_eq(s.threads, 1, "%u", s.threads);
    cr_expect(s.elsewhere == 0 && CPU_EQUAL(&s.packer, &one));
  }
  hr_model_options_init(&o);
  o.threads = 2;
  o.no_pin = true;
  cr_expect_eq(load_with(&large, o, all).elsewhere, 0);
  cli_image_free(&large);
  cli_image_free(&small);
}

/* Who packed which panel. */
enum { PACKED_MOST = 1 << 16 };
static struct {
  hr_pack_fn *pack;
  _Atomic unsigned count;
  struct {
    const char *panel;
    pid_t thread;
  } at[PACKED_MOST];
  _Atomic unsigned begun;
} noted;

/* The first panel of each of two threads waits for the other's. */
static void pack_noted(const void *src, size_t stride, size_t rows, size_t k, void *panel) {
  static _Thread_local bool begun;
  unsigned i = atomic_fetch_add(&noted.count, 1);
  if (i < PACKED_MOST) {
    noted.at[i].panel = panel;
    noted.at[i].thread = gettid();
  }
  if (!begun) atomic_fetch_add(&noted.begun, 1);
  for (int ms = 0; !begun && noted.begun < 2 && ms < 20000; ms++) usleep(1000);
  begun = true;
  noted.pack(src, stride, rows, k, panel);
}

static pid_t packer_of(const hr_matrix *m, size_t panel) {
  const char *place = (const char *)m->panels + panel * hr_panel_bytes(m->type, m->k);
  for (unsigned i = 0; i < noted.count; i++)
    if (noted.at[i].panel == place) return noted.at[i].thread;
  cr_assert_fail("a panel was not packed");
  return 0;
}

/* A part may be taken over by the other thread, but only as a whole. */
static void check_parts(const hr_transformer *t, const hr_matrix *m) {
  size_t before = 0, begin, end;
  for (unsigned thread = 0; thread < 2; thread++, before = end) {
    hr_panels_of_thread(t, m, thread, 2, NULL, &begin, &end);
    cr_assert_eq(begin, before);
    for (size_t i = begin; i + 1 < end; i++)
      cr_assert_eq(packer_of(m, i), packer_of(m, i + 1), "panel %zu of %zu..%zu", i, begin, end);
  }
  cr_assert_eq(before, (m->n + HR_PANEL_ROWS - 1) / HR_PANEL_ROWS);
}

Test(memory, panels_are_packed_by_the_thread_that_will_read_them) {
  hr_error err;
  hr_model_options o;
  cli_image image = image_of("dim=512,layers=4,heads=8,kv=2,ffn=1376,vocab=16384:q8_0");
  hr_model_options_init(&o);
  o.threads = 2;
  o.no_pin = true;
  o.defer_weights = true;
  hr_model *model = hr_model_open_memory(image.data, image.bytes, "drawn", &o, &err);
  cr_assert(model, "%s", err.message);
  noted.pack = model->kernels.pack_q8;
  model->kernels.pack_q8 = pack_noted;
  cr_assert_eq(hr_model_load(model, &err), HR_OK, "%s", err.message);
  cr_assert(noted.count <= PACKED_MOST && noted.begun == 2);

  const hr_transformer *t = &model->loaded.transformer;
  for (size_t i = 0; i < model->loaded.held_count; i++)
    check_parts(t, model->loaded.held[i].matrix);
  size_t begin, end; /* both began, each with its part of the first matrix */
  hr_panels_of_thread(t, model->loaded.held[0].matrix, 1, 2, NULL, &begin, &end);
  cr_expect_neq(packer_of(model->loaded.held[0].matrix, 0),
                packer_of(model->loaded.held[0].matrix, begin));
  hr_model_free(model);
  cli_image_free(&image);
}

/* --- When there is none -------------------------------------------------------------- */

#define FAMILIES HEADROW_SOURCE_ROOT "/tests/fixtures/families/"

/* A life of a model: something that a program does with it, from opening to freeing. False
 * with an error when something failed; else a digest of what came of it. */
typedef bool life(const char *path, hr_error *err, uint64_t *digest);

static uint64_t digest_bytes(uint64_t digest, const void *data, size_t bytes) {
  const unsigned char *at = data;
  for (size_t n = 0; bytes > 0; at += n, bytes -= n) {
    uint64_t word = 0;
    n = bytes < sizeof word ? bytes : sizeof word;
    memcpy(&word, at, n);
    digest = (digest ^ word) * UINT64_C(0x100000001b3);
  }
  return digest;
}

static hr_model *open_vocabulary(const char *path, hr_error *err) {
  hr_model_options options;
  hr_model_options_init(&options);
  options.vocabulary_only = true;
  return hr_model_open(path, &options, err);
}

static hr_session *start(const hr_model *model, unsigned threads, hr_error *err) {
  hr_session_options options;
  hr_session_options_init(&options);
  options.threads = threads;
  return hr_session_create(model, &options, err);
}

/* A prompt and a choice. */
static bool generate(const char *path, hr_error *err, uint64_t *digest) {
  static const int32_t ids[] = {1, 2, 3, 4, 5, 6, 7};
  hr_sampler *sampler = NULL;
  hr_session *session = NULL;
  const hr_batch_piece piece = {0, ids, 3};
  hr_model *model = hr_model_open(path, NULL, err);
  if (model) session = start(model, 0, err);
  if (session) sampler = hr_sampler_create(model, NULL, err);
  bool fine = sampler && hr_session_eval_batch(session, &piece, 1, HR_LOGITS_LAST, err) == HR_OK &&
              hr_session_rewind(session, 0, err) == HR_OK &&
              hr_session_eval(session, ids, 7, HR_LOGITS_ALL, err) == HR_OK &&
              hr_sampler_pick(sampler, hr_session_logits(session, 6), err) >= 0;
  if (fine)
    *digest =
        hr_digest(HR_DIGEST_INIT, hr_session_logits(session, 0), 7 * hr_model_vocab_size(model));
  hr_sampler_free(sampler);
  hr_session_free(session);
  hr_model_free(model);
  return fine;
}

/* Several texts of different lengths in a pass: hidden states, an embedding, and scores where
 * the model has any. */
static bool encode(const char *path, hr_error *err, uint64_t *digest) {
  static const int32_t ids[] = {1, 2, 3, 4, 5, 6, 7};
  static const hr_tokens texts[] = {{ids, NULL, 7}, {ids + 2, NULL, 1}, {ids + 1, NULL, 4}};
  hr_session *session = NULL;
  float *vector = NULL;
  hr_model *model = hr_model_open(path, NULL, err);
  if (model) session = start(model, 2, err);
  if (session) vector = malloc(hr_model_width(model) * sizeof *vector);
  bool fine = vector && hr_session_encode(session, texts, 3, err) == HR_OK;
  for (size_t i = 0; fine && i < 3; i++) {
    size_t width = hr_model_width(model), classes = hr_model_classes(model);
    fine = hr_session_embedding(session, i, HR_POOLING_MEAN, true, vector, err) == HR_OK;
    *digest = hr_digest(*digest, vector, width);
    if (classes) *digest = hr_digest(*digest, hr_session_scores(session, i), classes);
  }
  free(vector);
  hr_session_free(session);
  hr_model_free(model);
  return fine;
}

/* Ids of a text and the text of the ids. */
static bool tokenize(const char *path, hr_error *err, uint64_t *digest) {
  static const char text[] = "a b  cc\xc3\xa9 1";
  int32_t ids[128];
  size_t count = 0;
  hr_decoder *decoder = NULL;
  hr_model *model = open_vocabulary(path, err);
  bool fine = model && hr_tokenize(model, text, sizeof text - 1, HR_TOKENIZE_SPECIAL, ids, 128,
                                   &count, err) == HR_OK;
  if (fine) *digest = digest_bytes(*digest, ids, count * sizeof *ids);
  if (fine) fine = (decoder = hr_decoder_create(model, err)) != NULL;
  for (size_t i = 0; fine && i < count; i++) {
    const char *piece;
    size_t length;
    fine = hr_decoder_push(decoder, ids[i], &piece, &length, err) == HR_OK;
    if (fine) *digest = digest_bytes(*digest, piece, length);
  }
  hr_decoder_free(decoder);
  hr_model_free(model);
  return fine;
}

/* A conversation. */
static bool talk(const char *path, hr_error *err, uint64_t *digest) {
  static const hr_chat_message said_so_far[] = {
      {"system", "a b", 3}, {"user", "cc\xc3\xa9", 4}, {"assistant", "1 b", 3}};
  hr_chat *chat = NULL;
  hr_chat_prompt prompt;
  hr_chat_options options;
  hr_chat_options_init(&options);
  options.variables = "{\"tools\": [{\"name\": \"x\"}]}";
  hr_model *model = open_vocabulary(path, err);
  if (model) chat = hr_chat_create(model, strcmp(path, BUILTIN) == 0 ? "chatml" : NULL, err);
  bool fine = chat && hr_chat_render(chat, said_so_far, 3, &options, &prompt, err) == HR_OK;
  if (fine) *digest = digest_bytes(*digest, prompt.text, prompt.length);
  if (fine) *digest = digest_bytes(*digest, prompt.ids, prompt.count * sizeof *prompt.ids);
  hr_chat_free(chat);
  hr_model_free(model);
  return fine;
}

static bool take_bytes(void *digest, const void *data, size_t bytes) {
  uint64_t *d = digest;
  *d = digest_bytes(*d, data, bytes);
  return true;
}

/* Packing for a file. */
static bool pack(const char *path, hr_error *err, uint64_t *digest) {
  hr_packed_file packed = {0};
  hr_model_options options;
  hr_model_options_init(&options);
  options.defer_weights = true;
  hr_model *model = hr_model_open(path, &options, err);
  bool fine = model && hr_packed_file_init(&packed, model->source, HR_WEIGHTS_NATIVE,
                                           &model->loaded, err) == HR_OK;
  if (fine)
    fine = hr_packed_file_write(&packed, model->source, &model->loaded, &model->kernels,
                                &(hr_load_options){0}, take_bytes, digest, err) == HR_OK;
  hr_packed_file_finish(&packed);
  hr_model_free(model);
  return fine;
}

/* Each allocation fails once: an error of memory, or what can be done without and then the
 * same result. */
static void fail_each(life *live, const char *path, size_t least) {
  hr_error err = {.status = HR_OK, .message = ""};
  uint64_t expected = HR_DIGEST_INIT;
  cr_assert(live(path, &err, &expected), "%s: %s", path, err.message);
  size_t failed = 0;
  for (size_t n = 1;; n++) {
    uint64_t digest = HR_DIGEST_INIT;
    hr_memory_fail_at(n);
    bool fine = live(path, &err, &digest);
    size_t made = hr_memory_fail_at(0);
    if (fine) cr_expect_eq(digest, expected, "%s: allocation %zu changed the result", path, n);
    if (fine && made < n) break;
    if (fine) continue;
    failed++;
    cr_expect_eq(err.status, HR_ERROR_MEMORY, "%s: allocation %zu: %s", path, n, err.message);
  }
  cr_expect(failed > least, "%s: only %zu allocations failed", path, failed);
}

Test(memory, every_failed_allocation_is_an_error_and_leaves_nothing) {
  fail_each(generate, BUILTIN, 20);
  fail_each(generate, HEADROW_SOURCE_ROOT "/models/gpt2.gguf", 20);
  fail_each(generate, FAMILIES "gptneox.safetensors", 20);
  fail_each(encode, FAMILIES "bert.safetensors", 20);
  fail_each(encode, FAMILIES "roberta.safetensors", 20);
  fail_each(encode, FAMILIES "llama3.gguf", 20);
  fail_each(tokenize, BUILTIN, 10);
  fail_each(talk, BUILTIN, 10);
  NO_LEAK();
}

static bool write_bytes(void *out, const void *data, size_t bytes) {
  return fwrite(data, 1, bytes, out) == bytes;
}

static void write_packed(const char *from, const char *to) {
  hr_error err;
  hr_packed_file packed;
  hr_model *model = plan(from, HR_WEIGHTS_NATIVE);
  FILE *f = fopen(to, "wb");
  cr_assert(f);
  cr_assert_eq(
      hr_packed_file_init(&packed, model->source, HR_WEIGHTS_NATIVE, &model->loaded, &err), HR_OK);
  cr_assert_eq(hr_packed_file_write(&packed, model->source, &model->loaded, &model->kernels,
                                    &(hr_load_options){0}, write_bytes, f, &err), HR_OK);
  fclose(f);
  hr_packed_file_finish(&packed);
  hr_model_free(model);
}

/* The value of a line of the mapping that holds the address, in bytes. */
static size_t mapping_bytes(const void *address, const char *key) {
  char line[512];
  bool inside = false;
  uintptr_t from, to;
  FILE *f = fopen("/proc/self/smaps", "r");
  cr_assert(f);
  while (fgets(line, sizeof line, f)) {
    if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " ", &from, &to) == 2)
      inside = (uintptr_t)address >= from && (uintptr_t)address < to;
    if (!inside || strncmp(line, key, strlen(key)) != 0) continue;
    fclose(f);
    return strtoul(line + strlen(key), NULL, 10) * 1024;
  }
  fclose(f);
  cr_assert_fail("%s is not told", key);
  return 0;
}

/* Nothing of the file becomes the process's own, neither when it is opened nor when it is used. */
Test(memory, weights_of_packed_files_are_mapped_not_copied) {
  SKIP_SHADOWED();
  hr_error err;
  char plain[] = "/tmp/hr-synthetic-XXXXXX", path[] = "/tmp/hr-packed-XXXXXX";
  close(mkstemp(plain));
  close(mkstemp(path));
  write_synthetic("dim=512,layers=4,vocab=16384:q8_0", plain);
  write_packed(plain, path);
  size_t before = status_bytes("RssAnon");
  hr_model *model = hr_model_open(path, NULL, &err);
  cr_assert(model, "%s", err.message);
  size_t bytes = model->loaded.weight_bytes, own = status_bytes("RssAnon") - before;
  cr_assert_gt(bytes, (size_t)24 << 20);
  cr_expect_lt(own, bytes / 4, "%zu of %zu after opening", own, bytes);
  hr_session_options s;
  hr_session_options_init(&s);
  s.context = 64;
  hr_session *session = hr_session_create(model, &s, &err);
  cr_assert(session, "%s", err.message);
  cr_assert_eq(hr_session_eval(session, (int32_t[]){1, 2, 3}, 3, HR_LOGITS_LAST, &err), HR_OK);
  own = status_bytes("RssAnon") - before;
  cr_expect_lt(own, bytes / 2, "%zu of %zu after a pass", own, bytes);
  const void *panels = model->loaded.transformer.head.panels;
  cr_expect_geq(mapping_bytes(panels, "Size:"), bytes);
  cr_expect_gt(mapping_bytes(panels, "Rss:"), bytes / 2, "the pass has read them");
  cr_expect_eq(mapping_bytes(panels, "Anonymous:"), 0);
  hr_session_free(session);
  hr_model_free(model);
  remove(plain);
  remove(path);
}

Test(memory, every_failed_allocation_of_packed_files) {
  static const char *const models[] = {BUILTIN, FAMILIES "bert.safetensors"};
  for (size_t i = 0; i < 2; i++) {
    char path[] = "/tmp/hr-packed-XXXXXX";
    close(mkstemp(path));
    write_packed(models[i], path);
    fail_each(pack, models[i], 10);
    fail_each(i ? encode : generate, path, 20);
    remove(path);
  }
  NO_LEAK();
}

static void copy_file(const char *from, const char *root, const char *path) {
  static char bytes[1 << 16];
  char full[512];
  snprintf(full, sizeof full, "%s/%s", root, path);
  FILE *in = fopen(from, "rb"), *out = fopen(full, "wb");
  cr_assert(in && out, "%s", from);
  size_t count = fread(bytes, 1, sizeof bytes, in);
  cr_assert(count < sizeof bytes && fwrite(bytes, 1, count, out) == count);
  fclose(in);
  fclose(out);
}

/* Folders with each kind of tokenizer, and a template beside it. */
Test(memory, every_failed_allocation_of_tokenizers_and_templates) {
  static const struct {
    const char *from, *name;
  } files[] = {{"fuzz/corpus/tokenizer/bpe.json", "tokenizer.json"},
               {"fuzz/corpus/tokenizer/unigram.json", "tokenizer.json"},
               {"fuzz/corpus/tokenizer/wordpiece.json", "tokenizer.json"},
               {"fixtures/spm_bpe.model", "tokenizer.model"},
               {"fixtures/spm_unigram.model", "tokenizer.model"}};
  for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
    char root[] = "/tmp/hr-folder-XXXXXX", from[512];
    cr_assert(mkdtemp(root));
    snprintf(from, sizeof from, HEADROW_SOURCE_ROOT "/tests/%s", files[i].from);
    copy_file(from, root, files[i].name);
    copy_file(FAMILIES "gptneox.safetensors", root, "model.safetensors");
    copy_file(FAMILIES "gptneox_config.json", root, "config.json");
    write_file(root, "/tokenizer_config.json", "{\"chat_template\": \"{{ messages }}\"}");
    write_file(root, "/chat_template.jinja", "{% for m in messages %}{{ m.content }}{% endfor %}");
    fail_each(tokenize, root, 20);
    fail_each(talk, root, 20);
    nftw(root, remove_one, 8, FTW_DEPTH | FTW_PHYS);
  }
  NO_LEAK();
}
