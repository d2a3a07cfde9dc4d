/* SPDX-License-Identifier: MIT */
#include "text/pretokenize.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <string.h>

#include "base/memory.h"
#include "text/lookup.h"
#include "text/utf8_stream.h"

/* Unicode's White_Space, for use inside a class. PCRE2's own \s has U+180E too. */
#define WS   \
  "\\t-\\r " \
  "\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"
#define SPACE "[" WS "]"
#define NOT_BEFORE_WORD "(?![^" WS "])"
#define SPACES SPACE "+" NOT_BEFORE_WORD "|" SPACE "+"

#define CONTRACTION "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define WORD "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+"
#define SYMBOLS " ?[^" WS "\\p{L}\\p{N}]+"
#define LINES SPACE "*[\\r\\n]+"
/* Words in which small letters end a run of capitals. */
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define CASED_START "[^\\r\\n\\p{L}\\p{N}]?"

#define GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+|" SYMBOLS "|" SPACES
#define LLAMA3 CONTRACTION "|" WORD "|\\p{N}{1,3}|" SYMBOLS "[\\r\\n]*|" LINES "|" SPACES
#define QWEN2 CONTRACTION "|" WORD "|\\p{N}|" SYMBOLS "[\\r\\n]*|" LINES "|" SPACES
#define CJK_BELOW_HANGUL "[\\x{4e00}-\\x{9fa5}\\x{800}-\\x{4e00}\\x{ac00}-\\x{d7ff}]+"
#define BLOOM " ?[^(" WS "|.,!?\\x{2026}\\x{3002}\\x{ff0c}\\x{3001}\\x{964}\\x{6d4}\\x{60c})]+"

/* The letters that deepseek-llm takes as words. */
#define DEEPSEEK_LETTERS                                                                         \
  "A-Za-z\\x{b5}\\x{c0}-\\x{d6}\\x{d8}-\\x{f6}\\x{f8}-\\x{1ba}\\x{1bc}-\\x{1bf}"                 \
  "\\x{1c4}-\\x{293}\\x{295}-\\x{2af}\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37b}-\\x{37d}\\x{37f}" \
  "\\x{386}\\x{388}-\\x{38a}\\x{38c}\\x{38e}-\\x{3a1}\\x{3a3}-\\x{3f5}\\x{3f7}-\\x{481}"         \
  "\\x{48a}-\\x{52f}\\x{531}-\\x{556}\\x{10a0}-\\x{10c5}\\x{13a0}-\\x{13f5}\\x{13f8}-\\x{13fd}"  \
  "\\x{1c90}-\\x{1cba}\\x{1cbd}-\\x{1cbf}\\x{1d00}-\\x{1d2b}\\x{1d6b}-\\x{1d77}"                 \
  "\\x{1d79}-\\x{1d9a}\\x{1e00}-\\x{1f15}\\x{1f18}-\\x{1f1d}\\x{1f20}-\\x{1f45}"                 \
  "\\x{1f48}-\\x{1f4d}\\x{1f50}-\\x{1f57}\\x{1f59}\\x{1f5b}\\x{1f5d}\\x{1f5f}-\\x{1f7d}"         \
  "\\x{1f80}-\\x{1fb4}\\x{1fb6}-\\x{1fbc}\\x{1fbe}\\x{1fc2}-\\x{1fc4}\\x{1fc6}-\\x{1fcc}"        \
  "\\x{1fd0}-\\x{1fd3}\\x{1fd6}-\\x{1fdb}\\x{1fe0}-\\x{1fec}\\x{1ff2}-\\x{1ff4}"                 \
  "\\x{1ff6}-\\x{1ffc}\\x{2102}\\x{2107}\\x{210a}-\\x{2113}\\x{2115}\\x{2119}-\\x{211d}"         \
  "\\x{2124}\\x{2126}\\x{2128}\\x{212a}-\\x{212d}\\x{212f}-\\x{2134}\\x{2139}"                   \
  "\\x{213c}-\\x{213f}\\x{2145}-\\x{2149}\\x{214e}\\x{2183}\\x{2184}\\x{2c00}-\\x{2c7b}"         \
  "\\x{2c7e}-\\x{2ce4}\\x{2ceb}-\\x{2cee}\\x{2cf2}\\x{2cf3}\\x{a640}-\\x{a66d}"                  \
  "\\x{a680}-\\x{a69b}\\x{a722}-\\x{a76f}\\x{a771}-\\x{a787}\\x{a78b}-\\x{a78e}"                 \
  "\\x{ab70}-\\x{abbf}\\x{fb00}-\\x{fb06}\\x{fb13}-\\x{fb17}\\x{ff21}-\\x{ff3a}"                 \
  "\\x{ff41}-\\x{ff5a}\\x{10400}-\\x{1044f}\\x{104b0}-\\x{104d3}\\x{104d8}-\\x{104fb}"           \
  "\\x{10c80}-\\x{10cb2}\\x{10cc0}-\\x{10cf2}\\x{118a0}-\\x{118df}\\x{1e900}-\\x{1e943}"

#define MAX_PASSES 6

/* Every pattern cuts what the ones before it left: matches and gaps both go on
 * to the next pass. No pattern sees beyond its piece. */
static const struct {
  const char *names; /* each with a space before and behind */
  const char *passes[MAX_PASSES + 1];
} rows[] = {
    {" gpt-2 gpt2 phi-2 mpt olmo jais trillion granite-docling exaone4 jina-es jina-de jina-v2-es"
     " jina-v2-de jina-v1-en jina-v2-code roberta-bpe modern-bert gigachat a.x-4.0 mellum ",
     {GPT2}},
    {" llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano dbrx"
     " smaug-bpe glm4 chatglm-bpe ",
     {LLAMA3}},
    {" qwen2 deepseek-r1-qwen stablelm2 megrez hunyuan solar-open grok-2 kormo f2llmv2 ", {QWEN2}},
    {" qwen35 ",
     {CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^" WS
                  "\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" LINES "|" SPACES}},
    {" starcoder refact command-r smollm codeshell exaone minerva-7b ", {"\\p{N}", GPT2}},
    {" default ", {"[\\p{P}$+<=>^~|]+", GPT2, "\\p{N}+", "[0-9][0-9][0-9]"}},
    {" falcon ", {"[\\p{P}$+<=>^~|`]+", GPT2, "[0-9][0-9][0-9]"}},
    {" deepseek-coder ",
     {"[\\r\\n]", SPACE "?\\p{L}+", SPACE "?\\p{P}+", CJK_BELOW_HANGUL, "\\p{N}"}},
    {" deepseek-llm ",
     {"[\\r\\n]", SPACE "?[" DEEPSEEK_LETTERS "]+",
      SPACE
      "?[!-/:-~\\x{ff01}-\\x{ff0f}\\x{ff1a}-\\x{ff5e}\\x{2018}-\\x{201f}\\x{3000}-\\x{3002}]+",
      /* the spaces at the very end; looking behind keeps this linear */
      "(?<![" WS "])" SPACE "++\\z", CJK_BELOW_HANGUL, "\\p{N}"}},
    {" deepseek-v3 hunyuan-dense joyai-llm ",
     {"\\p{N}{1,3}", "[\\x{4e00}-\\x{9fa5}\\x{3040}-\\x{309f}\\x{30a0}-\\x{30ff}]+",
      "[!-/:-@\\[-`{-~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| "
      "?[\\p{P}\\p{S}]+[\\r\\n]*|" LINES "|" SPACES}},
    {" gpt-4o llama4 kanana2 minimax-m2 ",
     {CASED_START UPPER "*" LOWER "+" CONTRACTION "?|" CASED_START UPPER "+" LOWER "*" CONTRACTION
                        "?|\\p{N}{1,3}|" SYMBOLS "[\\r\\n/]*|" LINES "|" SPACES}},
    {" tekken ",
     {CASED_START UPPER "*" LOWER "+|" CASED_START UPPER "+" LOWER "*|\\p{N}|" SYMBOLS
                        "[\\r\\n/]*|" LINES "|" SPACES}},
    {" bailingmoe bailingmoe2 llada-moe ",
     {"'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}| ?[^" WS
      "\\p{L}\\p{N}]++[\\r\\n]*|" SPACE "*[\\r\\n]|" SPACES}},
    {" seed-coder ",
     {CONTRACTION "|" WORD "|\\p{N}| ?[^" WS "\\p{L}\\p{N}\\r\\n]+|" LINES "|" SPACES}},
    {" bloom poro-chat gpt3-finnish ", {BLOOM}},
    {" viking ", {BLOOM, "\\p{N}"}},
};

struct hr_cutter {
  pcre2_general_context *memory;
  pcre2_code *passes[MAX_PASSES];
  size_t count;
};

struct hr_cut {
  const hr_cutter *cutter;
  pcre2_match_data *data;
  pcre2_match_context *limits;
  char *clean; /* the text without its stray bytes */
  size_t clean_capacity;
};

/* One run of hr_cut_run. */
typedef struct hr_cutting {
  hr_cut *cut;
  const char *text;
  hr_cut_fn *piece;
  void *arg;
  hr_error *err;
} hr_cutting;

static void *pcre2_allocate(size_t bytes, void *unused) {
  (void)unused;
  return hr_calloc(bytes, 1);
}

static void pcre2_release(void *block, void *unused) {
  (void)unused;
  hr_free(block);
}

static const char *const *find_passes(const char *name) {
  size_t length = strlen(name);
  if (length == 0 || strchr(name, ' ')) return NULL;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    for (const char *at = rows[i].names; (at = strstr(at, name)) != NULL; at++)
      if (at[-1] == ' ' && at[length] == ' ') return rows[i].passes;
  return NULL;
}

static hr_status compile(hr_cutter *cutter, const char *pattern, const char *where, hr_error *err) {
  int code = 0;
  size_t offset = 0;
  pcre2_compile_context *context = pcre2_compile_context_create(cutter->memory);
  if (!context) return hr_fail_memory(err, where, 0);
  pcre2_code *pass =
      pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED,
                    PCRE2_UTF | PCRE2_UCP | PCRE2_NO_UTF_CHECK, &code, &offset, context);
  pcre2_compile_context_free(context);
  if (!pass) {
    char reason[128] = "";
    pcre2_get_error_message(code, (PCRE2_UCHAR *)reason, sizeof reason);
    return hr_fail(err, code == PCRE2_ERROR_HEAP_FAILED ? HR_ERROR_MEMORY : HR_ERROR_FILE,
                   "%s: the pattern of its pre-tokenizer can't be compiled at %zu: %s", where,
                   offset, reason);
  }
  (void)pcre2_jit_compile(pass, PCRE2_JIT_COMPLETE); /* without it PCRE2 interprets */
  cutter->passes[cutter->count++] = pass;
  return HR_OK;
}

hr_cutter *hr_cutter_create(const char *name, const char *where, hr_error *err) {
  const char *const *passes = find_passes(name ? name : "default");
  if (!passes) {
    hr_fail(err, HR_ERROR_FILE,
            "%s: pre-tokenizer \"%.100s\" is not known; gpt-2, llama-bpe, qwen2, gpt-4o, tekken, "
            "deepseek-v3, smollm, starcoder, falcon and their relatives are",
            where, name);
    return NULL;
  }
  hr_cutter *cutter = hr_calloc(1, sizeof *cutter);
  if (cutter) cutter->memory = pcre2_general_context_create(pcre2_allocate, pcre2_release, NULL);
  if (!cutter || !cutter->memory) {
    hr_fail_memory(err, where, sizeof *cutter);
    hr_cutter_free(cutter);
    return NULL;
  }
  for (; *passes; passes++) {
    if (compile(cutter, *passes, where, err) != HR_OK) {
      hr_cutter_free(cutter);
      return NULL;
    }
  }
  return cutter;
}

void hr_cutter_free(hr_cutter *cutter) {
  if (!cutter) return;
  for (size_t i = 0; i < cutter->count; i++) pcre2_code_free(cutter->passes[i]);
  pcre2_general_context_free(cutter->memory);
  hr_free(cutter);
}

hr_cut *hr_cut_create(const hr_cutter *cutter, hr_error *err) {
  hr_cut *cut = hr_calloc(1, sizeof *cut);
  if (cut) {
    cut->cutter = cutter;
    cut->data = pcre2_match_data_create(1, cutter->memory);
    cut->limits = pcre2_match_context_create(cutter->memory);
  }
  if (!cut || !cut->data || !cut->limits) {
    hr_fail_memory(err, "cutting a text", sizeof *cut);
    hr_cut_free(cut);
    return NULL;
  }
  return cut;
}

void hr_cut_free(hr_cut *cut) {
  if (!cut) return;
  pcre2_match_data_free(cut->data);
  pcre2_match_context_free(cut->limits);
  hr_free(cut->clean);
  hr_free(cut);
}

/* The next match in text[from, to). *found is false when there is none. */
static hr_status next_match(const hr_cutting *run, const pcre2_code *pass, size_t from, size_t to,
                            size_t *start, size_t *end, bool *found) {
  PCRE2_SPTR subject = (PCRE2_SPTR)run->text + from;
  pcre2_match_data *data = run->cut->data;
  int result = pcre2_match(pass, subject, to - from, 0, PCRE2_NO_UTF_CHECK, data, run->cut->limits);
  /* The compiled form has a small stack, the interpreter has the heap. */
  if (result == PCRE2_ERROR_JIT_STACKLIMIT)
    result = pcre2_match(pass, subject, to - from, 0, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, data,
                         run->cut->limits);
  *found = result >= 0;
  if (result == PCRE2_ERROR_NOMEMORY) return hr_fail_memory(run->err, "cutting a text", to - from);
  if (result < 0 && result != PCRE2_ERROR_NOMATCH) {
    char reason[128] = "";
    pcre2_get_error_message(result, (PCRE2_UCHAR *)reason, sizeof reason);
    return hr_fail(run->err, HR_ERROR_USAGE, "the text can't be cut into words: %s", reason);
  }
  if (*found) {
    const PCRE2_SIZE *ends = pcre2_get_ovector_pointer(data);
    *start = from + ends[0];
    *end = from + ends[1];
    *found = *end > *start;
  }
  return HR_OK;
}

/* Cuts text[from, to) by the patterns from number `pass` on. */
static hr_status cut_range(const hr_cutting *run, size_t pass, size_t from, size_t to) {
  const hr_cutter *cutter = run->cut->cutter;
  if (from == to) return HR_OK;
  if (pass == cutter->count) return run->piece(run->arg, from, to - from, run->err);
  hr_status status = HR_OK;
  while (status == HR_OK && from < to) {
    size_t start = to, end = to;
    bool found = false;
    status = next_match(run, cutter->passes[pass], from, to, &start, &end, &found);
    if (status == HR_OK) status = cut_range(run, pass + 1, from, start);
    if (status == HR_OK) status = cut_range(run, pass + 1, start, end);
    from = end;
  }
  return status;
}

/* PCRE2 needs a valid text. A stray byte is shown to it as U+0001, which is
 * just as long, so every position stays the same. */
static hr_status cleaned(hr_cut *cut, const char **text, size_t length, hr_error *err) {
  bool copied = false;
  for (size_t i = 0; i < length;) {
    size_t bytes = hr_utf8_length(*text + i, length - i);
    if (bytes == 0) {
      if (!copied) {
        void *clean = cut->clean;
        if (!hr_grow(&clean, &cut->clean_capacity, length, 1))
          return hr_fail_memory(err, "cutting a text", length);
        cut->clean = clean;
        memcpy(cut->clean, *text, length);
        *text = cut->clean;
        copied = true;
      }
      cut->clean[i] = '\x01';
      bytes = 1;
    }
    i += bytes;
  }
  return HR_OK;
}

hr_status hr_cut_run(hr_cut *cut, const char *text, size_t length, hr_cut_fn *piece, void *arg,
                     hr_error *err) {
  hr_status status = cleaned(cut, &text, length, err);
  if (status != HR_OK) return status;
  /* Enough for a pattern that takes a long run and gives it back byte by byte. */
  size_t limit = length < (1u << 26) ? 10000000 + 16 * length : UINT32_MAX;
  pcre2_set_match_limit(cut->limits, (uint32_t)limit);
  hr_cutting run = {.cut = cut, .text = text, .piece = piece, .arg = arg, .err = err};
  return cut_range(&run, 0, 0, length);
}
