/* SPDX-License-Identifier: MIT
 * Packed files: the same bits as their source, and no trust in what they claim. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/text.h"
#include "engine/engine.h"
#include "kernels/select.h"
#include "model/packed.h"
#include "tests/support/shell.h"

#define MODELS HEADROW_SOURCE_ROOT "/models/"
#define FAMILIES HEADROW_SOURCE_ROOT "/tests/fixtures/families/"

TestSuite(packed, .timeout = 300);

/* --- The same bits -------------------------------------------------------------- */

static uint64_t digest_of_session(hr_session *session, const hr_model *model) {
  static const int32_t ids[] = {1, 5, 2, 7, 3, 3, 6};
  enum { COUNT = sizeof ids / sizeof *ids };
  const hr_tokens text = {.ids = ids, .count = COUNT};
  hr_error err;
  uint64_t digest = HR_DIGEST_INIT;
  cr_assert_eq(hr_session_encode(session, &text, 1, &err), HR_OK, "%s", err.message);
  for (size_t i = 0; i < COUNT; i++)
    digest = hr_digest(digest, hr_session_hidden(session, 0, i), hr_model_width(model));
  if (hr_session_pooled(session, 0))
    digest = hr_digest(digest, hr_session_pooled(session, 0), hr_model_width(model));
  if (!hr_model_has_logits(model)) return digest;
  cr_assert_eq(hr_session_rewind(session, 0, &err), HR_OK);
  cr_assert_eq(hr_session_eval(session, ids, COUNT, HR_LOGITS_ALL, &err), HR_OK, "%s", err.message);
  for (size_t i = 0; i < COUNT; i++)
    digest = hr_digest(digest, hr_session_logits(session, i), hr_model_vocab_size(model));
  return digest;
}

/* Takes the model over. */
static uint64_t digest_of(hr_model *model, const hr_error *err) {
  hr_error failed;
  cr_assert(model, "%s", err->message);
  hr_session *session = hr_session_create(model, NULL, &failed);
  cr_assert(session, "%s", failed.message);
  uint64_t digest = digest_of_session(session, model);
  hr_session_free(session);
  hr_model_free(model);
  return digest;
}

static hr_model_options options_of(hr_weights weights, const char *isa) {
  hr_model_options options;
  hr_model_options_init(&options);
  options.weights = weights;
  options.isa = isa;
  return options;
}

typedef struct image {
  unsigned char *data;
  size_t bytes, used;
} image;

static bool take(void *arg, const void *data, size_t bytes) {
  image *to = arg;
  if (bytes > to->bytes - to->used) return false;
  memcpy(to->data + to->used, data, bytes);
  to->used += bytes;
  return true;
}

/* A packed file in memory, at a page; its data is to be freed. */
static image packed(const char *path, hr_weights weights) {
  hr_error err;
  hr_loaded planned = {0};
  hr_kernels kernels;
  hr_packed_file file;
  hr_load_options options = {0};
  image to = {0};
  hr_source *source = hr_source_open(path, &err);
  cr_assert(source, "%s", err.message);
  cr_assert(hr_kernels_select(&kernels, hr_cpu_features(), NULL));
  cr_assert_eq(hr_load_plan(source, weights, &planned, &err), HR_OK, "%s", err.message);
  cr_assert_eq(hr_packed_file_init(&file, source, weights, &planned, &err), HR_OK, "%s",
               err.message);
  to.bytes = file.bytes;
  to.data = aligned_alloc(4096, (file.bytes + 4095) / 4096 * 4096);
  cr_assert(to.data);
  cr_assert_eq(hr_packed_file_write(&file, source, &planned, &kernels, &options, take, &to, &err),
               HR_OK, "%s: %s", path, err.message);
  cr_assert_eq(to.used, to.bytes, "%s: %zu of %zu bytes", path, to.used, to.bytes);
  hr_packed_file_finish(&file);
  hr_loaded_finish(&planned);
  hr_source_close(source);
  return to;
}

static void expect_same(const char *path, hr_weights weights, bool tiers) {
  hr_error err;
  image file = packed(path, weights);
  size_t count;
  const hr_tier *tier = hr_tiers(&count);
  hr_model_options o = options_of(weights, NULL);
  uint64_t expected = digest_of(hr_model_open(path, &o, &err), &err);
  o.weights = HR_WEIGHTS_NATIVE; /* as it was packed */
  for (size_t i = 0; i < (tiers ? count : 1); i++) {
    hr_kernels table;
    if (!hr_kernels_select(&table, hr_cpu_features(), tier[i].name)) continue;
    o.isa = tiers ? tier[i].name : NULL;
    hr_model *model = hr_model_open_memory(file.data, file.bytes, "packed", &o, &err);
    cr_expect_eq(digest_of(model, &err), expected, "%s as %d on %s", path, (int)weights,
                 tier[i].name);
  }
  free(file.data);
}

Test(packed, gives_the_bits_of_its_source_on_every_tier) {
  static const char *const names[] = {"builtin.gguf", "gpt2.gguf", "rope.gguf", "alibi.gguf",
                                      "transformer-2017.gguf"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    char path[512];
    snprintf(path, sizeof path, MODELS "%s", names[i]);
    expect_same(path, HR_WEIGHTS_NATIVE, true);
  }
}

Test(packed, keeps_the_type_asked_for) {
  expect_same(MODELS "gpt2.gguf", HR_WEIGHTS_F32, true);
  expect_same(MODELS "gpt2.gguf", HR_WEIGHTS_F16, true);
  expect_same(FAMILIES "llama3.gguf", HR_WEIGHTS_Q8_0, true);
  expect_same(HEADROW_SOURCE_ROOT "/tests/fixtures/llama.gguf", HR_WEIGHTS_NATIVE, true);
}

/* Fused, grouped, transposed, shared and computed weights; values from JSON. */
Test(packed, gives_the_bits_of_every_family) {
  size_t seen = 0;
  DIR *folder = opendir(FAMILIES);
  cr_assert(folder);
  for (struct dirent *item; (item = readdir(folder));) {
    char path[1024];
    const char *file = item->d_name;
    if (!hr_ends_with(file, ".gguf") && !hr_ends_with(file, ".safetensors")) continue;
    if (strcmp(item->d_name, "expected.safetensors") == 0) continue;
    snprintf(path, sizeof path, FAMILIES "%s", item->d_name);
    expect_same(path, HR_WEIGHTS_NATIVE, false);
    seen++;
  }
  closedir(folder);
  cr_expect(seen > 20, "%zu files", seen);
}

Test(packed, every_command_takes_it) {
  result r = shell(
      "$H pack builtin $D/p -q && "
      "$H run builtin -p 'Once upon' -n 8 --temp 0 -q >$D/a && $H run $D/p -p 'Once upon' -n 8 "
      "--temp 0 -q >$D/b && cmp $D/a $D/b && "
      "$H tokenize builtin 'a little dog' >$D/a && $H tokenize $D/p 'a little dog' >$D/b && "
      "cmp $D/a $D/b && $H info $D/p && $H info $D/p --json");
  cr_expect_eq(r.status, 0, "%s", r.err);
  cr_expect(strstr(r.out, "packed") && strstr(r.out, "small pages"), "%s", r.out);
  const char *pages = strstr(r.out, "\npages ");
  cr_assert(pages, "%s", r.out);
  const char *weights = strstr(pages, "weights");
  cr_expect(!weights || weights > strchr(pages + 1, '\n'), "mapped weights: %s", pages);
  cr_expect(strstr(r.out, "\"weights_mapped\": true") || strstr(r.out, "\"weights_mapped\":true"),
            "%s", r.out);
  finish(&r);
}

/* A folder's tokenizer comes along, and its settings with it. */
Test(packed, a_folder_brings_its_tokenizer) {
  result r = shell(
      "F=$ROOT/tests/fixtures/families; mkdir $D/m; cp $F/llama3.safetensors "
      "$D/m/model.safetensors; "
      "cp $F/llama3_config.json $D/m/config.json; "
      "echo '{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2,\"<s>\":3},"
      "\"merges\":[\"a b\"]},\"added_tokens\":[{\"id\":3,\"content\":\"<s>\",\"special\":true}]}' "
      ">$D/m/tokenizer.json; echo '{\"bos_token\":\"<s>\"}' >$D/m/tokenizer_config.json; "
      "$H pack $D/m $D/p -q && $H tokenize $D/m abba >$D/x && rm -r $D/m && "
      "$H tokenize $D/p abba >$D/y && cmp $D/x $D/y && cat $D/y");
  cr_expect_eq(r.status, 0, "%s", r.err);
  cr_expect(strstr(r.out, "2 1 0"), "%s", r.out);
  finish(&r);
}

/* The same bytes whoever packs: nothing of the machine or the moment is in it. */
Test(packed, the_file_is_the_same_each_time) {
  result r = shell(
      "$H pack builtin $D/a -q --isa portable -t 1 && $H pack builtin $D/b -q && cmp $D/a $D/b");
  cr_expect_eq(r.status, 0, "%s%s", r.out, r.err);
  finish(&r);
}

/* --- Nothing half, nothing lost --------------------------------------------------- */

static void expect_failure(const char *line, int status, const char *word) {
  result r = shell(line);
  cr_expect_eq(r.status, status, "%s: %s", line, r.err);
  cr_expect(strstr(r.err, word), "%s: %s", line, r.err);
  cr_expect_eq(lines_of(r.err), 1, "%s: %s", line, r.err);
  finish(&r);
}

Test(packed, a_failed_pack_leaves_nothing_behind) {
  expect_failure("$H pack builtin /dev/full", 3, "/dev/full");
  expect_failure("$H pack builtin $D/none/p", 3, "none/p");
  expect_failure("cp $ROOT/models/gpt2.gguf $D/m; $H pack $D/m $D/m; s=$?; "
                 "cmp $ROOT/models/gpt2.gguf $D/m && exit $s",
                 2, "the model itself");
  /* a file system that ends at 512 KiB */
  expect_failure("trap '' XFSZ; cd $D; echo old >p; (ulimit -f 1024; $H pack builtin p); s=$?; "
                 "[ \"$(ls)\" = p ] && [ \"$(cat p)\" = old ] && exit $s",
                 3, "p:");
  expect_failure("$H pack builtin", 2, "MODEL and OUT");
  expect_failure("$H pack builtin $D/p -q; $H pack $D/p $D/q", 3, "packed already");
}

/* --- No trust -------------------------------------------------------------------- */

/* The message with which the bytes are refused; they must be. */
static void expect_refused(const void *data, size_t bytes, const char *part) {
  hr_error err = {0};
  hr_model *model = hr_model_open_memory(data, bytes, "written", NULL, &err);
  cr_expect(!model, "%s was not refused", part);
  cr_expect_eq(err.status, HR_ERROR_FILE);
  cr_expect(strstr(err.message, part), "'%s' is not in: %s", part, err.message);
  hr_model_free(model);
}

/* The value of a key of fixed width. */
static unsigned char *value_of(unsigned char *data, size_t bytes, const char *key) {
  unsigned char *at = memmem(data, bytes, key, strlen(key));
  cr_assert(at, "%s", key);
  return at + strlen(key) + 4;
}

Test(packed, another_layout_or_type_is_refused_by_name) {
  image file = packed(FAMILIES "llama3.gguf", HR_WEIGHTS_NATIVE);
  size_t bytes = file.bytes;
  unsigned char *data = file.data;
  unsigned char *layout = value_of(data, bytes, "headrow.packed.layout");
  *layout = HR_PANEL_LAYOUT + 1;
  expect_refused(data, bytes, "layout");
  *layout = HR_PANEL_LAYOUT;
  expect_refused(data, bytes - 1, "cut short");
  free(data);

  expect_failure("$H pack $ROOT/models/gpt2.gguf $D/p -q; $H run $D/p -n 1 --weights f16", 3,
                 "packed as Q8_0, expected F16");
}

Test(packed, a_tensor_that_begins_anywhere_is_refused) {
  image file = packed(FAMILIES "llama3.gguf", HR_WEIGHTS_NATIVE);
  size_t bytes = file.bytes;
  unsigned char *data = file.data;
  unsigned char *moved = aligned_alloc(4096, (bytes + 8192) / 4096 * 4096);
  memcpy(moved + 32, data, bytes);
  expect_refused(moved + 32, bytes, "multiple of 64");
  free(moved);
  free(data);
}

static size_t header_end(const unsigned char *data) {
  size_t end = HR_SECTION_ALIGNMENT;
  while (end > 0 && !data[end - 1]) end--;
  return end;
}

/* Every byte of the header in turn becomes others: an answer, but no fault and
 * no model whose weights lie outside of the file. */
Test(packed, no_byte_of_the_header_is_trusted) {
  static const unsigned char values[] = {0x00, 0x01, 0x7f, 0x80, 0xff};
  image file = packed(FAMILIES "llama3.gguf", HR_WEIGHTS_NATIVE);
  size_t bytes = file.bytes, refused = 0;
  unsigned char *data = file.data;
  const size_t end = header_end(data);
  for (size_t i = 0; i < end; i++) {
    unsigned char byte = data[i];
    for (size_t v = 0; v < sizeof values; v++) {
      hr_error err;
      hr_source *source;
      hr_loaded loaded = {0};
      data[i] = values[v];
      source = hr_source_open_memory(data, bytes, "written", &err);
      bool good = source && hr_load_plan(source, HR_WEIGHTS_NATIVE, &loaded, &err) == HR_OK;
      const unsigned char *panels = loaded.transformer.token_embedding.panels;
      if (!good) refused++;
      if (good && loaded.mapped)
        cr_assert(panels >= data && panels < data + bytes, "byte %zu as %d", i, values[v]);
      hr_loaded_finish(&loaded);
      hr_source_close(source);
    }
    data[i] = byte;
  }
  cr_expect(refused > end, "%zu of %zu", refused, end * sizeof values);
  free(data);
}

/* A copy whose last page is the last that may be read. */
typedef struct fenced {
  unsigned char *data;
  size_t mapped;
} fenced;

static fenced before_a_fence(const image *file) {
  size_t page = 4096, pages = (file->bytes + page - 1) / page * page;
  fenced f = {.mapped = pages + page};
  f.data = mmap(NULL, f.mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  cr_assert(f.data != MAP_FAILED && mprotect(f.data + pages, page, PROT_NONE) == 0);
  memcpy(f.data, file->data, file->bytes);
  return f;
}

/* Whether a load is planned of it. */
static bool is_taken(const void *data, size_t bytes, hr_error *err) {
  hr_loaded loaded = {0};
  hr_source *source = hr_source_open_memory(data, bytes, "written", err);
  bool taken = source && hr_load_plan(source, HR_WEIGHTS_NATIVE, &loaded, err) == HR_OK;
  hr_loaded_finish(&loaded);
  hr_source_close(source);
  return taken;
}

/* Some logits, or a sentence. */
static void use(const void *data, size_t bytes) {
  static const int32_t ids[] = {1, 5, 2};
  hr_error err = {.status = HR_OK};
  hr_session_options o;
  hr_session_options_init(&o);
  o.context = 4;
  o.threads = 1;
  o.no_pin = true;
  hr_model *model = hr_model_open_memory(data, bytes, "written", NULL, &err);
  hr_session *session = model ? hr_session_create(model, &o, &err) : NULL;
  bool good = session && hr_session_eval(session, ids, 3, HR_LOGITS_LAST, &err) == HR_OK;
  cr_expect(good || (err.status != HR_OK && err.message[0]), "no sentence");
  hr_session_free(session);
  hr_model_free(model);
}

/* Weights begin far behind the header; of the nothing between, some places. */
Test(packed, cut_at_every_byte) {
  image file = packed(FAMILIES "llama3.gguf", HR_WEIGHTS_NATIVE);
  fenced f = before_a_fence(&file);
  size_t end = header_end(f.data), taken = 0, cuts = 0;
  for (size_t cut = 0; cut < file.bytes; cuts++) {
    hr_error err = {.status = HR_OK};
    if (is_taken(f.data, cut, &err))
      taken++;
    else
      cr_assert(err.status == HR_ERROR_FILE && err.message[0], "%zu bytes", cut);
    cut += cut <= end || cut + 1 >= HR_SECTION_ALIGNMENT ? 1 : 997;
    if (cut > end + 1 && cut < HR_SECTION_ALIGNMENT && cut + 997 >= HR_SECTION_ALIGNMENT)
      cut = HR_SECTION_ALIGNMENT - 1;
  }
  cr_expect_eq(taken, 0, "%zu of %zu", taken, cuts);
  cr_expect(cuts > end + file.bytes - HR_SECTION_ALIGNMENT, "%zu", cuts);
  munmap(f.data, f.mapped);
  free(file.data);
}

/* Wherever a number stands in the header, of four bytes or of eight. */
Test(packed, every_field_replaced) {
  static const uint64_t values[] = {0, 1, 0x7fffffff7fffffff, 0x8000000080000000,
                                    UINT64_C(1) << 63, UINT64_MAX - 1, UINT64_MAX};
  enum { VALUES = sizeof values / sizeof *values, USED_OF = 31 };
  image file = packed(FAMILIES "llama3.gguf", HR_WEIGHTS_NATIVE);
  fenced f = before_a_fence(&file);
  size_t end = header_end(f.data), taken = 0, tried = 0;
  for (size_t i = 0; i + 8 <= end; i++)
    for (size_t v = 0; v < 2 * VALUES; v++, tried++) {
      hr_error err = {.status = HR_OK};
      memcpy(f.data + i, &values[v / 2], v % 2 ? 8 : 4);
      if (!is_taken(f.data, file.bytes, &err))
        cr_assert(err.status != HR_OK && err.message[0], "byte %zu, value %zu", i, v);
      else if (taken++ % USED_OF == 0)
        use(f.data, file.bytes);
      memcpy(f.data + i, file.data + i, 8);
    }
  cr_expect(taken < tried / 2, "%zu of %zu", taken, tried);
  munmap(f.data, f.mapped);
  free(file.data);
}

/* --- Lost while in use ------------------------------------------------------------ */

/* Weights that are not read at the start: what is wrong with them is seen in what comes of them. */
Test(packed, a_nan_in_its_weights_ends_the_answer_with_the_place) {
  static const char damage[] =
      "$H pack builtin $D/p -q; n=$(stat -c %s $D/p); head -c 200000 /dev/zero | tr '\\0' '\\377' |"
      " dd of=$D/p bs=1 seek=$((n * 3 / 4)) conv=notrunc status=none; ";
  static const char *const lines[] = {"$H run $D/p -q -n 8 -p 'Once upon'",
                                      "$H logits $D/p -q --ids 1,2,3"};
  for (size_t i = 0; i < 2; i++) {
    char line[512];
    snprintf(line, sizeof line, "%s%s", damage, lines[i]);
    result r = shell(line);
    cr_expect_eq(r.status, 5, "%s: %d: %s", lines[i], r.status, r.err);
    cr_expect_eq(r.out_bytes, 0, "%s", lines[i]);
    cr_expect(strstr(r.err, "the logit of token 0 after position ") && lines_of(r.err) == 1, "%s",
              r.err);
    finish(&r);
  }
}

Test(packed, a_file_cut_while_it_is_used_ends_with_a_sentence) {
  result r = shell(
      "$H pack builtin $D/p -q; $H run $D/p -p 'Once upon a time' -n 1000000 --ignore-eos -c "
      "1000000 "
      "-q >$D/out & pid=$!; i=0; while [ ! -s $D/out ] && [ $i -lt 500 ]; do sleep 0.02; "
      "i=$((i + 1)); done; truncate -s 2M $D/p; wait $pid");
  cr_expect_eq(r.status, 3, "%d: %s", r.status, r.err);
  cr_expect(strstr(r.err, "became shorter"), "%s", r.err);
  cr_expect_eq(lines_of(r.err), 1, "%s", r.err);
  finish(&r);
}
