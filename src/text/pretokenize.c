/* SPDX-License-Identifier: MIT
 * How the families of byte-level BPE, and BERT, cut a text into words. */
#include <string.h>

#include "text/tokenizer.h"

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

#define PUNCTUATION "[!-/:-@\\[-`{-~\\p{P}]"

#define GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+|" SYMBOLS "|" SPACES
#define LLAMA3 CONTRACTION "|" WORD "|\\p{N}{1,3}|" SYMBOLS "[\\r\\n]*|" LINES "|" SPACES
#define QWEN2 CONTRACTION "|" WORD "|\\p{N}|" SYMBOLS "[\\r\\n]*|" LINES "|" SPACES
#define CJK_BELOW_HANGUL "[\\x{4e00}-\\x{9fa5}\\x{800}-\\x{4e00}\\x{ac00}-\\x{d7ff}]+"
/* Looking behind keeps this linear. */
#define SPACES_AT_END "(?<![" WS "])" SPACE "++\\z"
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
#define CUT(regex)                                                 \
  {                                                                \
    .kind = HR_STEP_SPLIT, .pattern = { regex, sizeof(regex) - 1 } \
  }

/* Every pattern cuts what the ones before it left: matches and gaps both go on
 * to the next pass. No pattern sees beyond its piece. */
static const struct {
  const char *names; /* each with a space before and behind */
  hr_text_step passes[MAX_PASSES + 1];
} rows[] = {
    {" gpt-2 gpt2 phi-2 mpt olmo jais trillion granite-docling exaone4 jina-es jina-de jina-v2-es"
     " jina-v2-de jina-v1-en jina-v2-code roberta-bpe modern-bert gigachat a.x-4.0 mellum ",
     {CUT(GPT2)}},
    {" llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano dbrx"
     " smaug-bpe glm4 chatglm-bpe ",
     {CUT(LLAMA3)}},
    {" qwen2 deepseek-r1-qwen stablelm2 megrez hunyuan solar-open grok-2 kormo f2llmv2 ",
     {CUT(QWEN2)}},
    {" qwen35 ",
     {CUT(CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^" WS
                      "\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" LINES "|" SPACES)}},
    {" starcoder refact command-r smollm codeshell exaone minerva-7b ", {CUT("\\p{N}"), CUT(GPT2)}},
    {" default ", {CUT("[\\p{P}$+<=>^~|]+"), CUT(GPT2), CUT("\\p{N}+"), CUT("[0-9][0-9][0-9]")}},
    {" falcon ", {CUT("[\\p{P}$+<=>^~|`]+"), CUT(GPT2), CUT("[0-9][0-9][0-9]")}},
    {" deepseek-coder ",
     {CUT("[\\r\\n]"), CUT(SPACE "?\\p{L}+"), CUT(SPACE "?\\p{P}+"), CUT(CJK_BELOW_HANGUL),
      CUT("\\p{N}")}},
    {" deepseek-llm ",
     {CUT("[\\r\\n]"), CUT(SPACE "?[" DEEPSEEK_LETTERS "]+"),
      CUT(SPACE
          "?[!-/:-~\\x{ff01}-\\x{ff0f}\\x{ff1a}-\\x{ff5e}\\x{2018}-\\x{201f}\\x{3000}-\\x{3002}]+"),
      CUT(SPACES_AT_END), CUT(CJK_BELOW_HANGUL), CUT("\\p{N}")}},
    {" deepseek-v3 hunyuan-dense joyai-llm ",
     {CUT("\\p{N}{1,3}"), CUT("[\\x{4e00}-\\x{9fa5}\\x{3040}-\\x{309f}\\x{30a0}-\\x{30ff}]+"),
      CUT("[!-/:-@\\[-`{-~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| "
          "?[\\p{P}\\p{S}]+[\\r\\n]*|" LINES "|" SPACES)}},
    {" gpt-4o llama4 kanana2 minimax-m2 ",
     {CUT(CASED_START UPPER "*" LOWER "+" CONTRACTION "?|" CASED_START UPPER "+" LOWER
                            "*" CONTRACTION "?|\\p{N}{1,3}|" SYMBOLS "[\\r\\n/]*|" LINES
                            "|" SPACES)}},
    {" tekken ",
     {CUT(CASED_START UPPER "*" LOWER "+|" CASED_START UPPER "+" LOWER "*|\\p{N}|" SYMBOLS
                            "[\\r\\n/]*|" LINES "|" SPACES)}},
    {" bailingmoe bailingmoe2 llada-moe ",
     {CUT("'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}| ?[^" WS
          "\\p{L}\\p{N}]++[\\r\\n]*|" SPACE "*[\\r\\n]|" SPACES)}},
    {" seed-coder ",
     {CUT(CONTRACTION "|" WORD "|\\p{N}| ?[^" WS "\\p{L}\\p{N}\\r\\n]+|" LINES "|" SPACES)}},
    {" bloom poro-chat gpt3-finnish ", {CUT(BLOOM)}},
    {" viking ", {CUT(BLOOM), CUT("\\p{N}")}},
};

static size_t count_passes(const hr_text_step *passes) {
  size_t count = 0;
  while (passes[count].kind == HR_STEP_SPLIT) count++;
  return count;
}

bool hr_named_pre_tokenizer(const char *name, hr_step_list *steps) {
  if (!name) name = "default";
  size_t length = strlen(name);
  if (length == 0 || strchr(name, ' ')) return false;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    for (const char *at = rows[i].names; (at = strstr(at, name)) != NULL; at++)
      if (at[-1] == ' ' && at[length] == ' ') {
        *steps = (hr_step_list){rows[i].passes, count_passes(rows[i].passes)};
        return true;
      }
  return false;
}

hr_step_list hr_gpt2_words(void) {
  static const hr_text_step step[] = {CUT(GPT2)};
  return (hr_step_list){step, 1};
}

/* Words between white space, and every punctuation mark by itself. */
hr_step_list hr_bert_words(void) {
  static const hr_text_step step[] = {
      {.kind = HR_STEP_SPLIT,
       .pattern = {SPACE "+", sizeof(SPACE "+") - 1},
       .split = HR_SPLIT_REMOVED},
      CUT(PUNCTUATION),
  };
  return (hr_step_list){step, sizeof step / sizeof *step};
}
