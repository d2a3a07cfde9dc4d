/* SPDX-License-Identifier: MIT
 * Where a token stands: angles, their sines and cosines, ALiBi's slopes. All in
 * binary64 by + - * / and sqrt alone, rounded once to float. */
#ifndef HR_BLOCK_POSITION_H
#define HR_BLOCK_POSITION_H

#include <stddef.h>
#include <stdint.h>

#include "block/description.h"

/* An angle's step from one position to the next, to about 100 bits. */
typedef struct hr_frequency {
  double high, low;
} hr_frequency;

/* base^(-2i / width) for 0 <= i < width / 2: the angular frequencies of RoPE
 * ("RoFormer", Su et al. 2021) and of the sinusoid ("Attention Is All You
 * Need", Vaswani et al. 2017, section 3.5). base >= 1. */
void hr_frequencies(double base, size_t width, hr_frequency *out);

/* Divides each frequency by a factor: RoPE as some models stretch it. */
void hr_stretch_frequencies(hr_frequency *frequency, const float *factor, size_t count);

/* cos[i] and sin[i] of position * frequency[i], within 1 ulp of the exact
 * values for positions up to 2^20. */
void hr_angles(const hr_frequency *frequency, size_t count, uint32_t position, float *cos,
               float *sin);

/* One row of the sinusoid, width floats: sin in even columns, cos in odd ones. */
void hr_sinusoid(const hr_frequency *frequency, size_t width, uint32_t position, float *row);

/* The frequencies of a model's RoPE, [rope_width / 2], for a context of so many
 * positions: with the factors of its file and the scaling it was trained for.
 *   linear     "Extending Context Window", Chen et al. 2023
 *   yarn       "YaRN", Peng et al. 2023, sections 3.2 to 3.4
 *   llama3     the rule published with Llama 3.1
 *   long       "LongRoPE", Ding et al. 2024; magnitude as Phi-3 has it */
void hr_rope_frequencies(const hr_transformer *model, size_t positions, hr_frequency *out);
/* What cos and sin are multiplied by; 1 for most models. */
float hr_rope_magnitude(const hr_rope_scaling *scaling);

/* Slopes for any number of heads ("Train Short, Test Long", Press et al. 2022):
 * for a power of two n, 2^(-8 (i + 1) / n); otherwise those of the next lower
 * power of two p, then every other one of 2 p's. steepness stands for the 8. */
void hr_alibi_slopes(size_t heads, double steepness, float *slope);

#endif
