/* SPDX-License-Identifier: MIT */
#include "synthetic.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/error.h"
#include "base/memory.h"
#include "bytes.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* --- Shapes ------------------------------------------------------------------ */

static const cli_shape named[] = {
    {.family = "llama", .name = "smollm2-135m", .width = 576, .layers = 30, .heads = 9,
     .kv_heads = 3, .ffn_width = 1536, .vocab = 49152, .context = 8192, .tied = true},
    {.family = "gpt2", .name = "gpt2-124m", .width = 768, .layers = 12, .heads = 12,
     .kv_heads = 12, .ffn_width = 3072, .vocab = 50257, .context = 1024, .tied = true},
    {.family = "llama", .name = "tinyllama-1.1b", .width = 2048, .layers = 22, .heads = 32,
     .kv_heads = 4, .ffn_width = 5632, .vocab = 32000, .context = 2048},
    {.family = "llama", .name = "llama-7b", .width = 4096, .layers = 32, .heads = 32,
     .kv_heads = 32, .ffn_width = 11008, .vocab = 32000, .context = 4096},
    {.family = "bert", .name = "bert-base", .width = 768, .layers = 12, .heads = 12,
     .kv_heads = 12, .ffn_width = 3072, .vocab = 30522, .context = 512, .tied = true},
    {.family = "bert", .name = "minilm-l6", .width = 384, .layers = 6, .heads = 12,
     .kv_heads = 12, .ffn_width = 1536, .vocab = 30522, .context = 512, .tied = true},
};

static const hr_format formats[] = {HR_FORMAT_F32, HR_FORMAT_F16, HR_FORMAT_BF16, HR_FORMAT_Q8_0};
static const char *const format_names[] = {"f32", "f16", "bf16", "q8_0"};
static const uint32_t file_types[HR_FORMAT_COUNT] = {
    [HR_FORMAT_F32] = 0, [HR_FORMAT_F16] = 1, [HR_FORMAT_BF16] = 32, [HR_FORMAT_Q8_0] = 7};

/* Unknown, start, end and a token for each byte stand before the words. */
enum { SEGMENT_TYPES = 2 }; /* BERT's */
enum { SPECIALS = 3, BYTES = 256, LEAST_VOCAB = SPECIALS + BYTES + 1 };

/* Members of a list. 0 is what a number is before it is set. */
typedef struct member {
  const char *key;
  size_t offset;
  uint32_t least, most;
} member;

static const member members[] = {
    {"dim", offsetof(cli_shape, width), 2, 1 << 16},
    {"layers", offsetof(cli_shape, layers), 1, 1 << 10},
    {"heads", offsetof(cli_shape, heads), 1, 1 << 10},
    {"kv", offsetof(cli_shape, kv_heads), 1, 1 << 10},
    {"ffn", offsetof(cli_shape, ffn_width), 1, 1 << 18},
    {"vocab", offsetof(cli_shape, vocab), LEAST_VOCAB, 1 << 22},
    {"ctx", offsetof(cli_shape, context), 1, 1 << 20},
};

static uint32_t *number_at(cli_shape *shape, const member *m) {
  return (uint32_t *)(void *)((char *)shape + m->offset);
}

static hr_status bad_value(hr_error *err, const char *key, const char *value, uint32_t least,
                           uint32_t most) {
  return hr_fail(err, HR_ERROR_USAGE,
                 "'%.40s=%.40s' is not valid, expected a whole number from %u to %u, once", key,
                 value, least, most);
}

/* Digits and nothing else, of a number that fits. */
static bool read_number(const char *text, uint32_t *n) {
  uint64_t value = 0;
  if (!*text) return false;
  for (; *text; text++) {
    if (*text < '0' || *text > '9') return false;
    value = value * 10 + (uint64_t)(*text - '0');
    if (value > UINT32_MAX) return false;
  }
  *n = (uint32_t)value;
  return true;
}

static hr_status read_member(cli_shape *shape, bool *tied_set, const char *key, const char *value,
                             hr_error *err) {
  uint32_t n = 0;
  bool number = read_number(value, &n);
  if (strcmp(key, "tied") == 0) {
    if (!number || n > 1 || *tied_set) return bad_value(err, key, value, 0, 1);
    shape->tied = n == 1;
    *tied_set = true;
    return HR_OK;
  }
  for (size_t i = 0; i < COUNT(members); i++) {
    const member *m = &members[i];
    uint32_t *to = number_at(shape, m);
    if (strcmp(key, m->key) != 0) continue;
    if (!number || n < m->least || n > m->most || *to)
      return bad_value(err, key, value, m->least, m->most);
    *to = n;
    return HR_OK;
  }
  return hr_fail(err, HR_ERROR_USAGE, "'%.40s' is unknown, expected some of: %s", key,
                 CLI_SHAPE_KEYS);
}

/* What a list leaves open is as in Llama: heads of width 64, as many of keys
 * and values, a feed-forward width of 8/3 of the embedding's. */
static void set_defaults(cli_shape *s) {
  if (!s->heads) s->heads = s->width < 128 ? 1 : s->width / 64;
  if (!s->kv_heads) s->kv_heads = s->heads;
  if (!s->ffn_width) s->ffn_width = (s->width * 8 / 3 + 31) / 32 * 32;
  if (!s->vocab) s->vocab = 32000;
  if (!s->context) s->context = 4096;
}

/* KEY=NUMBER,... in place of what the shape has. */
static hr_status read_list(char *list, cli_shape *shape, hr_error *err) {
  bool tied_set = false;
  cli_shape given = {0};
  char *rest;
  for (char *pair = strtok_r(list, ",", &rest); pair; pair = strtok_r(NULL, ",", &rest)) {
    char *equals = strchr(pair, '=');
    if (!equals)
      return hr_fail(err, HR_ERROR_USAGE, "'%.40s' has no value, expected KEY=NUMBER", pair);
    *equals = '\0';
    hr_status status = read_member(&given, &tied_set, pair, equals + 1, err);
    if (status != HR_OK) return status;
  }
  for (size_t i = 0; i < COUNT(members); i++)
    if (*number_at(&given, &members[i]))
      *number_at(shape, &members[i]) = *number_at(&given, &members[i]);
  if (tied_set) shape->tied = given.tied;
  return HR_OK;
}

static hr_status read_whole_list(char *list, cli_shape *shape, hr_error *err) {
  shape->family = "llama";
  hr_status status = read_list(list, shape, err);
  if (status != HR_OK) return status;
  if (!shape->width || !shape->layers)
    return hr_fail(err, HR_ERROR_USAGE, "'%s' is missing, expected dim=N,layers=N and more",
                   shape->width ? "layers" : "dim");
  set_defaults(shape);
  return HR_OK;
}

static hr_status read_name(const char *name, cli_shape *shape, hr_error *err) {
  for (size_t i = 0; i < COUNT(named); i++)
    if (strcmp(named[i].name, name) == 0) {
      *shape = named[i];
      return HR_OK;
    }
  return hr_fail(err, HR_ERROR_USAGE,
                 "shape '%.60s' is unknown, expected one of: %s, or a list such as "
                 "dim=64,layers=2 with some of: %s",
                 name, CLI_SHAPE_NAMES, CLI_SHAPE_KEYS);
}

/* A name, a name with a list of what is changed, or a list. */
static hr_status read_shape(char *text, cli_shape *shape, hr_error *err) {
  size_t first = strcspn(text, ",=");
  if (text[first] == '=') return read_whole_list(text, shape, err);
  bool more = text[first] == ',';
  text[first] = '\0';
  hr_status status = read_name(text, shape, err);
  return status == HR_OK && more ? read_list(text + first + 1, shape, err) : status;
}

static hr_status read_format(const char *name, cli_shape *shape, hr_error *err) {
  for (size_t i = 0; name && i < COUNT(formats); i++)
    if (strcmp(format_names[i], name) == 0) {
      shape->format = formats[i];
      return HR_OK;
    }
  return hr_fail(err, HR_ERROR_USAGE, "%s%.40s, expected :f32, :f16, :bf16 or :q8_0 at the end",
                 name ? "unknown type " : "no type is given", name ? name : "");
}

static hr_status check_shape(const cli_shape *s, hr_error *err) {
  uint32_t head = s->width / s->heads;
  if (s->width % s->heads || head % 2)
    return hr_fail(err, HR_ERROR_USAGE, "dim %u over %u heads, expected heads of an even width",
                   s->width, s->heads);
  if (s->heads % s->kv_heads)
    return hr_fail(err, HR_ERROR_USAGE, "%u heads share %u of keys and values, expected a divisor",
                   s->heads, s->kv_heads);
  if (s->format == HR_FORMAT_Q8_0 && (s->width % 32 || s->ffn_width % 32))
    return hr_fail(err, HR_ERROR_USAGE, "dim %u and ffn %u, expected multiples of 32 for q8_0",
                   s->width, s->ffn_width);
  return HR_OK;
}

static const char block_name[] = "block of ";

void cli_shape_to_block(cli_shape *shape) {
  shape->layers = 1;
  shape->vocab = LEAST_VOCAB;
  memmove(shape->name + sizeof block_name - 1, shape->name, strlen(shape->name) + 1);
  memcpy(shape->name, block_name, sizeof block_name - 1);
}

hr_status cli_shape_parse(const char *text, cli_shape *shape, hr_error *err) {
  char copy[sizeof shape->name - sizeof block_name + 1];
  *shape = (cli_shape){0};
  if (strlen(text) >= sizeof copy)
    return hr_fail(err, HR_ERROR_USAGE, "is longer than %zu bytes, expected SHAPE:TYPE",
                   sizeof copy - 1);
  strcpy(copy, text);
  char *colon = strrchr(copy, ':');
  if (colon) *colon = '\0';
  hr_status status = read_shape(copy, shape, err);
  if (status == HR_OK) status = read_format(colon ? colon + 1 : NULL, shape, err);
  if (status != HR_OK) return status;
  strcpy(shape->name, text);
  return check_shape(shape, err);
}

/* --- What the file holds ------------------------------------------------------- */

/* A tensor: a matrix of rows x columns, or columns floats when rows is 0. */
typedef struct tensor {
  char name[48];
  hr_format format;
  size_t rows, columns, bytes;
  float middle; /* of floats; a matrix lies around 0 */
} tensor;

/* Collects the description of the file, or, with data set, fills in the weights. */
typedef struct builder {
  const cli_shape *shape;
  cli_bytes values, tensors; /* as they will stand in the file */
  uint64_t value_count, tensor_count;
  size_t data_bytes; /* so far */
  bool overflow, no_memory;
  char *data;
  size_t data_total; /* for progress */
  hr_progress_fn *progress;
  void *progress_data;
  bool cancelled;
} builder;

enum { ALIGNMENT = 32 };
enum { TYPE_U32 = 4, TYPE_I32 = 5, TYPE_F32 = 6, TYPE_BOOL = 7, TYPE_STRING = 8, TYPE_ARRAY = 9 };

static void put(builder *b, cli_bytes *to, const void *data, size_t bytes) {
  if (!cli_bytes_add(to, data, bytes)) b->no_memory = true;
}

static void put_u32(builder *b, cli_bytes *to, uint32_t n) {
  put(b, to, &n, sizeof n);
}

static void put_u64(builder *b, cli_bytes *to, uint64_t n) {
  put(b, to, &n, sizeof n);
}

static void put_text(builder *b, cli_bytes *to, const char *text) {
  put_u64(b, to, strlen(text));
  put(b, to, text, strlen(text));
}

static void begin_value(builder *b, const char *family, const char *key, uint32_t type) {
  char whole[96];
  snprintf(whole, sizeof whole, "%s%s%s", family, *family ? "." : "", key);
  put_text(b, &b->values, whole);
  put_u32(b, &b->values, type);
  b->value_count++;
}

static void value_u32(builder *b, const char *family, const char *key, uint32_t n) {
  begin_value(b, family, key, TYPE_U32);
  put_u32(b, &b->values, n);
}

static void value_f32(builder *b, const char *family, const char *key, float x) {
  begin_value(b, family, key, TYPE_F32);
  put(b, &b->values, &x, sizeof x);
}

static void value_bool(builder *b, const char *family, const char *key, bool x) {
  begin_value(b, family, key, TYPE_BOOL);
  put(b, &b->values, &x, 1);
}

static void value_text(builder *b, const char *key, const char *text) {
  begin_value(b, "", key, TYPE_STRING);
  put_text(b, &b->values, text);
}

static void begin_array(builder *b, const char *key, uint32_t type) {
  begin_value(b, "", key, TYPE_ARRAY);
  put_u32(b, &b->values, type);
  put_u64(b, &b->values, b->shape->vocab);
}

/* Words "aaaa", "baaa", ... with the mark that SentencePiece puts for a space. */
static const char *token_text(uint32_t id, char text[24]) {
  static const char *const special[SPECIALS] = {"<unk>", "<s>", "</s>"};
  if (id < SPECIALS) return special[id];
  if (id < SPECIALS + BYTES) {
    snprintf(text, 24, "<0x%02X>", id - SPECIALS);
    return text;
  }
  size_t at = 3;
  memcpy(text, "\xe2\x96\x81", at);
  for (uint32_t n = id - SPECIALS - BYTES, i = 0; i < 5; i++, n /= 26)
    text[at++] = (char)('a' + n % 26);
  text[at] = '\0';
  return text;
}

static bool is_family(const cli_shape *s, const char *family) {
  return strcmp(s->family, family) == 0;
}

/* A SentencePiece vocabulary, which other engines want to see before they run
 * a model: kinds are 1 normal, 2 unknown, 3 control, 6 byte. */
static void describe_vocabulary(builder *b) {
  uint32_t vocab = b->shape->vocab;
  char text[24];
  value_text(b, "tokenizer.ggml.model", "llama");
  begin_array(b, "tokenizer.ggml.tokens", TYPE_STRING);
  for (uint32_t i = 0; i < vocab; i++) put_text(b, &b->values, token_text(i, text));
  begin_array(b, "tokenizer.ggml.scores", TYPE_F32);
  for (uint32_t i = 0; i < vocab; i++) {
    float score = i < SPECIALS + BYTES ? 0.0f : -(float)(i - SPECIALS - BYTES);
    put(b, &b->values, &score, sizeof score);
  }
  begin_array(b, "tokenizer.ggml.token_type", TYPE_I32);
  for (uint32_t i = 0; i < vocab; i++)
    put_u32(b, &b->values, i == 0 ? 2 : i < SPECIALS ? 3 : i < SPECIALS + BYTES ? 6 : 1);
  value_u32(b, "", "tokenizer.ggml.unknown_token_id", 0);
  value_u32(b, "", "tokenizer.ggml.bos_token_id", 1);
  value_u32(b, "", "tokenizer.ggml.eos_token_id", 2);
}

static void describe_values(builder *b) {
  const cli_shape *s = b->shape;
  const char *family = s->family;
  bool llama = is_family(s, "llama");
  value_text(b, "general.architecture", family);
  value_text(b, "general.name", s->name);
  value_u32(b, "", "general.file_type", file_types[s->format]);
  value_u32(b, "", "general.quantization_version", 2);
  value_u32(b, family, "block_count", s->layers);
  value_u32(b, family, "context_length", s->context);
  value_u32(b, family, "embedding_length", s->width);
  value_u32(b, family, "feed_forward_length", s->ffn_width);
  value_u32(b, family, "attention.head_count", s->heads);
  if (llama) {
    value_u32(b, family, "attention.head_count_kv", s->kv_heads);
    value_f32(b, family, "attention.layer_norm_rms_epsilon", 1e-5f);
    value_u32(b, family, "rope.dimension_count", s->width / s->heads);
    value_f32(b, family, "rope.freq_base", 10000.0f);
    value_u32(b, family, "vocab_size", s->vocab);
  } else {
    value_f32(b, family, "attention.layer_norm_epsilon", 1e-5f);
  }
  if (is_family(s, "bert")) {
    value_bool(b, family, "attention.causal", false);
    value_u32(b, "", "tokenizer.ggml.token_type_count", SEGMENT_TYPES);
  }
  describe_vocabulary(b);
}

/* --- Weights ------------------------------------------------------------------- */

#define GAMMA UINT64_C(0x9e3779b97f4a7c15)

/* SplitMix64 (Steele, Lea, Flood 2014) by number, so that nothing has to be
 * drawn before. */
static inline uint64_t random_word(uint64_t seed, uint64_t i) {
  uint64_t z = seed + (i + 1) * GAMMA;
  z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
  return z ^ z >> 31;
}

/* FNV-1a of the name: a tensor's bytes don't depend on those before it. */
static uint64_t seed_of(const char *name) {
  uint64_t h = UINT64_C(0xcbf29ce484222325);
  for (; *name; name++) h = (h ^ (unsigned char)*name) * UINT64_C(0x100000001b3);
  return h;
}

/* x = mantissa * 2^exponent with a mantissa in [1, 2); only exact operations. */
static double split(double x, int *exponent) {
  *exponent = 0;
  for (; x < 1; x *= 2) --*exponent;
  for (; x >= 2; x /= 2) ++*exponent;
  return x;
}

/* Random sign and mantissa, and an exponent among four: the root of the mean
 * square is 0.88 of the power of two at the top. Bits only, since conversions
 * would cost more than the drawing. */
static uint32_t top_exponent(size_t columns, uint32_t bias) {
  int exponent;
  double mantissa = split(1 / (0.88 * sqrt((double)columns)), &exponent);
  if (mantissa > 1.41421356) exponent++;
  return (uint32_t)((int)bias + exponent);
}

static void fill_halves(char *to, size_t bytes, uint64_t seed, uint32_t top, unsigned mantissa) {
  const uint16_t keep = (uint16_t)(0x8000u | ((1u << mantissa) - 1));
  for (size_t i = 0; i < bytes / 8; i++) {
    uint64_t word = random_word(seed, i);
    uint16_t x[4];
    memcpy(x, &word, sizeof x);
    for (size_t j = 0; j < 4; j++) {
      /* the two bits over the mantissa are free to choose the exponent */
      uint32_t below = x[j] >> mantissa & 3u;
      x[j] = (uint16_t)((x[j] & keep) | (top - below) << mantissa);
    }
    memcpy(to + i * 8, x, sizeof x);
  }
}

static void fill_floats(char *to, size_t bytes, uint64_t seed, uint32_t top) {
  for (size_t i = 0; i < bytes / 8; i++) {
    uint64_t word = random_word(seed, i);
    uint32_t x[2];
    memcpy(x, &word, sizeof x);
    for (size_t j = 0; j < 2; j++)
      x[j] = (x[j] & 0x807fffffu) | (top - (x[j] >> 23 & 3u)) << 23;
    memcpy(to + i * 8, x, sizeof x);
  }
}

/* fp16 bits of a positive number; small ones have no exponent. */
static uint16_t half_bits(double x) {
  int exponent;
  double mantissa = split(x, &exponent);
  if (exponent < -14) return (uint16_t)(x * 0x1p24);
  return (uint16_t)((uint32_t)(exponent + 15) << 10 | (uint32_t)((mantissa - 1) * 1024));
}

/* Uniform -127..127: the root of the mean square is 73.3. Scales differ in
 * their low bits, so that a kernel that takes the wrong one is seen. */
static void fill_q8(char *to, size_t bytes, uint64_t seed, size_t columns) {
  const uint16_t scale = half_bits(1 / (73.3 * sqrt((double)columns))) & 0xffc0u;
  for (size_t i = 0; i < bytes / 34; i++, to += 34) {
    uint64_t word[5];
    for (size_t j = 0; j < 5; j++) word[j] = random_word(seed, i * 5 + j);
    int8_t q[32];
    memcpy(q, word, sizeof q);
    for (size_t j = 0; j < 32; j++) q[j] = (int8_t)(q[j] | (q[j] == -128)); /* -128 to -127 */
    uint16_t own = (uint16_t)(scale | (word[4] & 0x3f));
    memcpy(to, &own, sizeof own);
    memcpy(to + sizeof own, q, sizeof q);
  }
}

/* Within an eighth of the middle. */
static void fill_row(char *to, size_t count, uint64_t seed, float middle) {
  for (size_t i = 0; i < count; i++) {
    int32_t r = (int32_t)(random_word(seed, i) >> 40) - (1 << 23);
    float x = middle + (float)r * 0x1p-26f;
    memcpy(to + i * sizeof x, &x, sizeof x);
  }
}

static void fill(char *to, const tensor *t) {
  uint64_t seed = seed_of(t->name);
  if (!t->rows) {
    fill_row(to, t->columns, seed, t->middle);
    return;
  }
  switch (t->format) {
    case HR_FORMAT_F32: fill_floats(to, t->bytes, seed, top_exponent(t->columns, 127)); break;
    case HR_FORMAT_F16: fill_halves(to, t->bytes, seed, top_exponent(t->columns, 15), 10); break;
    case HR_FORMAT_BF16: fill_halves(to, t->bytes, seed, top_exponent(t->columns, 127), 7); break;
    case HR_FORMAT_Q8_0: fill_q8(to, t->bytes, seed, t->columns); break;
    default: break; /* no other is in the list */
  }
}

/* --- Tensors ------------------------------------------------------------------- */

static void describe_tensor(builder *b, const tensor *t) {
  put_text(b, &b->tensors, t->name);
  put_u32(b, &b->tensors, t->rows ? 2 : 1);
  put_u64(b, &b->tensors, t->columns);
  if (t->rows) put_u64(b, &b->tensors, t->rows);
  put_u32(b, &b->tensors, hr_format_get(t->format)->gguf_type);
  put_u64(b, &b->tensors, b->data_bytes);
  b->tensor_count++;
}

static void add_tensor(builder *b, tensor t) {
  size_t elements;
  if (b->overflow || b->cancelled) return;
  if (!hr_mul_size(t.rows ? t.rows : 1, t.columns, &elements) ||
      !hr_format_bytes(t.format, elements, &t.bytes) || t.bytes > SIZE_MAX / 4 ||
      b->data_bytes > SIZE_MAX / 4) {
    b->overflow = true;
    return;
  }
  if (b->data)
    fill(b->data + b->data_bytes, &t);
  else
    describe_tensor(b, &t);
  b->data_bytes += (t.bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  if (b->data && b->progress &&
      !b->progress(b->progress_data, (double)b->data_bytes / (double)b->data_total))
    b->cancelled = true;
}

static const char *layer_name(char *text, size_t size, uint32_t layer, const char *name) {
  snprintf(text, size, "blk.%u.%s", layer, name);
  return text;
}

static void add_matrix(builder *b, const char *name, size_t rows, size_t columns, bool bias) {
  tensor t = {.format = b->shape->format, .rows = rows, .columns = columns};
  snprintf(t.name, sizeof t.name, "%s.weight", name);
  add_tensor(b, t);
  if (!bias) return;
  t = (tensor){.format = HR_FORMAT_F32, .columns = rows};
  snprintf(t.name, sizeof t.name, "%s.bias", name);
  add_tensor(b, t);
}

static void add_norm(builder *b, const char *name, bool shift) {
  tensor t = {.format = HR_FORMAT_F32, .columns = b->shape->width, .middle = 1};
  snprintf(t.name, sizeof t.name, "%s.weight", name);
  add_tensor(b, t);
  if (!shift) return;
  t.middle = 0;
  snprintf(t.name, sizeof t.name, "%s.bias", name);
  add_tensor(b, t);
}

/* GPT-2 and BERT have biases and shifts everywhere; GPT-2 has one matrix for
 * queries, keys and values; BERT has its norms behind the sub-layers. */
static void add_layer(builder *b, uint32_t i) {
  const cli_shape *s = b->shape;
  size_t width = s->width, kv = (size_t)s->kv_heads * (s->width / s->heads), ffn = s->ffn_width;
  bool llama = is_family(s, "llama"), bert = is_family(s, "bert");
  char name[40];
#define NAME(text) layer_name(name, sizeof name, i, text)
  if (!bert) add_norm(b, NAME("attn_norm"), !llama);
  if (is_family(s, "gpt2")) {
    add_matrix(b, NAME("attn_qkv"), width + 2 * kv, width, true);
  } else {
    add_matrix(b, NAME("attn_q"), width, width, bert);
    add_matrix(b, NAME("attn_k"), kv, width, bert);
    add_matrix(b, NAME("attn_v"), kv, width, bert);
  }
  add_matrix(b, NAME("attn_output"), width, width, !llama);
  add_norm(b, NAME(bert ? "attn_output_norm" : "ffn_norm"), !llama);
  if (llama) add_matrix(b, NAME("ffn_gate"), ffn, width, false);
  add_matrix(b, NAME("ffn_up"), ffn, width, !llama);
  add_matrix(b, NAME("ffn_down"), width, ffn, !llama);
  if (bert) add_norm(b, NAME("layer_output_norm"), true);
#undef NAME
}

/* Tables that are added to tokens stay F32 in every type of file. */
static void add_table(builder *b, const char *name, size_t rows) {
  tensor t = {.format = HR_FORMAT_F32, .rows = rows, .columns = b->shape->width};
  snprintf(t.name, sizeof t.name, "%s.weight", name);
  add_tensor(b, t);
}

static void add_tensors(builder *b) {
  const cli_shape *s = b->shape;
  bool llama = is_family(s, "llama"), bert = is_family(s, "bert");
  add_matrix(b, "token_embd", s->vocab, s->width, false);
  if (!llama) add_table(b, "position_embd", s->context);
  if (bert) {
    add_table(b, "token_types", SEGMENT_TYPES);
    add_norm(b, "token_embd_norm", true);
  }
  for (uint32_t i = 0; i < s->layers; i++) add_layer(b, i);
  if (!bert) add_norm(b, "output_norm", !llama);
  if (!s->tied) add_matrix(b, "output", s->vocab, s->width, false);
}

/* --- The image ----------------------------------------------------------------- */

enum { MAGIC_BYTES = 24 };

static void builder_free(builder *b) {
  cli_bytes_free(&b->values);
  cli_bytes_free(&b->tensors);
}

/* The first walk: descriptions and sizes. *start is where the data begins. */
static hr_status describe(builder *b, size_t *start, size_t *bytes, hr_error *err) {
  describe_values(b);
  add_tensors(b);
  if (b->no_memory) return hr_fail_memory(err, "description of the model", b->values.used);
  *start = (MAGIC_BYTES + b->values.used + b->tensors.used + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  if (b->overflow || !hr_add_size(*start, b->data_bytes, bytes))
    return hr_fail(err, HR_ERROR_MEMORY, "%s does not fit into this machine's addresses",
                   b->shape->name);
  return HR_OK;
}

hr_status cli_image_bytes(const cli_shape *shape, size_t *bytes, hr_error *err) {
  builder b = {.shape = shape};
  size_t start;
  hr_status status = describe(&b, &start, bytes, err);
  builder_free(&b);
  return status;
}

static void write_description(const builder *b, char *to) {
  const uint32_t version = 3;
  memcpy(to, "GGUF", 4);
  memcpy(to + 4, &version, 4);
  memcpy(to + 8, &b->tensor_count, 8);
  memcpy(to + 16, &b->value_count, 8);
  memcpy(to + MAGIC_BYTES, b->values.data, b->values.used);
  memcpy(to + MAGIC_BYTES + b->values.used, b->tensors.data, b->tensors.used);
}

static hr_status make(builder *b, cli_image *image, hr_error *err) {
  size_t start = 0, bytes = 0;
  hr_status status = describe(b, &start, &bytes, err);
  if (status != HR_OK) return status;
  void *data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) return hr_fail_memory(err, b->shape->name, bytes);
  *image = (cli_image){data, bytes};
#ifdef MADV_HUGEPAGE
  (void)madvise(data, bytes, MADV_HUGEPAGE); /* fewer faults */
#endif
  write_description(b, data);
  b->data = (char *)data + start;
  b->data_total = b->data_bytes;
  b->data_bytes = 0;
  add_tensors(b);
  if (b->cancelled) return hr_fail(err, HR_ERROR_CANCELLED, "%s: cancelled", b->shape->name);
  return HR_OK;
}

hr_status cli_image_make(const cli_shape *shape, hr_progress_fn *progress, void *progress_data,
                         cli_image *image, hr_error *err) {
  builder b = {.shape = shape, .progress = progress, .progress_data = progress_data};
  *image = (cli_image){0};
  hr_status status = make(&b, image, err);
  builder_free(&b);
  return status;
}

void cli_image_free(cli_image *image) {
  if (image->data) munmap(image->data, image->bytes);
  *image = (cli_image){0};
}
