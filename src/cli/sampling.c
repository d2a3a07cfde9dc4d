/* SPDX-License-Identifier: MIT */
#include "sampling.h"

#include <sys/random.h>

#include "interrupt.h"

void cli_sampling_defaults(cli_sampling *s) {
  hr_sampler_options o;
  hr_sampler_options_init(&o);
  s->temperature.value = o.temperature;
  s->top_k.value = (uint64_t)o.top_k;
  s->top_p.value = o.top_p;
  s->min_p.value = o.min_p;
  s->repeat_penalty.value = o.repeat_penalty;
}

/* Small enough to be typed again. */
static uint64_t draw_seed(void) {
  uint32_t seed;
  if (getrandom(&seed, sizeof seed, GRND_NONBLOCK) == (ssize_t)sizeof seed) return seed;
  return (uint64_t)(cli_now() * 1e9) & UINT32_MAX;
}

uint64_t cli_seed(const cli_sampling *s) {
  return s->seed.given ? s->seed.value : draw_seed();
}

void cli_warn_of_idle_sampling(const cli_sampling *s) {
  if (s->temperature.value > 0) return;
  const struct {
    const char *name;
    bool given;
  } idle[] = {{"--top-k", s->top_k.given},
              {"--top-p", s->top_p.given},
              {"--min-p", s->min_p.given},
              {"--seed", s->seed.given}};
  for (size_t i = 0; i < sizeof idle / sizeof *idle; i++)
    if (idle[i].given) cli_note("warning: %s has no effect at temperature 0", idle[i].name);
}

hr_sampler *cli_create_sampler(const cli_sampling *s, const hr_model *model, uint64_t seed) {
  hr_error err;
  hr_sampler_options o;
  hr_sampler_options_init(&o);
  o.temperature = s->temperature.value;
  o.top_k = (int32_t)s->top_k.value;
  o.top_p = s->top_p.value;
  o.min_p = s->min_p.value;
  o.repeat_penalty = s->repeat_penalty.value;
  o.seed = seed;
  hr_sampler *sampler = hr_sampler_create(model, &o, &err);
  if (!sampler) cli_fail_error(NULL, &err);
  return sampler;
}
