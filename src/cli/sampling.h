/* SPDX-License-Identifier: MIT
 * How a command that generates text chooses tokens, and where it stops. */
#ifndef HR_CLI_SAMPLING_H
#define HR_CLI_SAMPLING_H

#include <math.h>

#include "cli.h"

typedef struct cli_sampling {
  cli_real temperature, top_p, min_p, repeat_penalty;
  cli_count top_k, seed;
  cli_texts stops;
} cli_sampling;

#define CLI_SAMPLING_AT(type, member, part) .offset = offsetof(type, member.part)

/* Rows for a table of options whose settings, of that type, have a cli_sampling
 * as that member. */
#define CLI_SAMPLING_OPTIONS(type, member)                                                     \
  {"temp", 0, "T", "temperature (default 0.8); 0: always the likeliest token", CLI_REAL,       \
   CLI_SAMPLING_AT(type, member, temperature), .low = 0, .high = INFINITY},                    \
  {"top-k", 0, "K", "choose among the K likeliest (default 40), 0: among all", CLI_COUNT,      \
   CLI_SAMPLING_AT(type, member, top_k), .least = 0, .most = INT32_MAX},                       \
  {"top-p", 0, "P", "choose among the fewest that make up P (default 0.95), 1: all", CLI_REAL, \
   CLI_SAMPLING_AT(type, member, top_p), .low = 0, .high = 1, .above_low = true},              \
  {"min-p", 0, "P", "leave out those below P times the likeliest (default 0.05)", CLI_REAL,    \
   CLI_SAMPLING_AT(type, member, min_p), .low = 0, .high = 1},                                 \
  {"repeat-penalty", 0, "X", "make the last 64 tokens less likely (default 1: no)", CLI_REAL,  \
   CLI_SAMPLING_AT(type, member, repeat_penalty), .low = 0, .high = INFINITY,                  \
   .above_low = true},                                                                         \
  {"seed", 0, "S", "of the random choices (default: drawn and printed on standard error)",     \
   CLI_COUNT, CLI_SAMPLING_AT(type, member, seed), .least = 0, .most = INT64_MAX},             \
  {"stop", 0, "TEXT", "stop before TEXT; may be given many times", CLI_TEXTS,                  \
   CLI_SAMPLING_AT(type, member, stops)}

void cli_sampling_defaults(cli_sampling *s);
/* Notes about options that temperature 0 makes meaningless. */
void cli_warn_of_idle_sampling(const cli_sampling *s);
/* The one that was given, or one that is drawn. */
uint64_t cli_seed(const cli_sampling *s);
/* NULL after printing why. */
hr_sampler *cli_create_sampler(const cli_sampling *s, const hr_model *model, uint64_t seed);

#endif
