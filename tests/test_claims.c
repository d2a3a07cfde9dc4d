/* SPDX-License-Identifier: MIT
 * What is said of Transformers, each claim a test of its own, on the real block.
 * Expected values are closed forms or worked by hand. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "block/pass.h"
#include "block/position.h"
#include "engine/engine.h"
#include "headrow/headrow.h"
#include "tests/support/measure.h"
#include "tests/support/toy.h"

enum { WIDTH = 32, HEADS = 4, HEAD_WIDTH = 8, ROWS = 9 };

static const int32_t text[ROWS] = {3, 1, 4, 1, 5, 9, 2, 6, 15};

/* Copies rows of a matrix into a smaller one. */
static void copy_rows(toy *to, const hr_matrix *small, toy *from, const hr_matrix *large,
                      size_t first) {
  memcpy(toy_weight(to, small), toy_weight(from, large) + first * large->k,
         (size_t)small->n * small->k * sizeof(float));
}

static void copy_embedding(toy *to, toy *from) {
  copy_rows(to, &to->model.token_embedding, from, &from->model.token_embedding, 0);
}

static double row_distance(const toy_session *a, const toy_session *b, const char *name,
                           uint32_t layer, size_t row_a, size_t row_b) {
  return distance_between(toy_row(a, name, layer, row_a), toy_row(b, name, layer, row_b),
                          activations_need(&a->seen, name, layer)->columns);
}

/* --- Heads ---------------------------------------------------------------- */

/* A model of one head of 8 columns that has head h's share of the projections. */
static toy *one_head_of(toy *whole, size_t h) {
  hr_description d = whole->model.description;
  d.heads = d.kv_heads = 1;
  toy *t = toy_create(&d);
  copy_embedding(t, whole);
  const hr_layer *to = t->model.layer, *from = whole->model.layer;
  copy_rows(t, &to->query, whole, &from->query, h * HEAD_WIDTH);
  copy_rows(t, &to->key, whole, &from->key, h * HEAD_WIDTH);
  copy_rows(t, &to->value, whole, &from->value, h * HEAD_WIDTH);
  return t;
}

Test(claims, one_projection_of_width_d_equals_h_projections_of_width_d_over_h) {
  static const char *const names[] = {"query", "key", "value", "attended"};
  const hr_description d = toy_description();
  toy *whole = toy_create(&d);
  toy_randomize(whole, 1, 1);
  toy_session *all = toy_run(whole, text, ROWS);
  for (size_t h = 0; h < HEADS; h++) {
    toy *t = one_head_of(whole, h);
    toy_session *one = toy_run(t, text, ROWS);
    for (size_t i = 0; i < 4; i++)
      for (size_t r = 0; r < ROWS; r++)
        cr_assert(same_bits(toy_row(all, names[i], 0, r) + h * HEAD_WIDTH,
                            toy_row(one, names[i], 0, r), HEAD_WIDTH),
                  "%s, head %zu, row %zu", names[i], h, r);
    toy_close(one);
    toy_free(t);
  }
  toy_close(all);
  toy_free(whole);
}

/* Kernels that count the multiplications they are asked for. */
static hr_kernels counted;
static size_t projected, attended;

static void count_product(const hr_product *p) {
  projected += p->n * p->k * p->rows;
  counted.product_f32(p);
}
static void count_product_one(const hr_product *p) {
  projected += p->n * p->k * p->rows;
  counted.product_one_f32(p);
}
static void count_attend(const hr_attend *a) {
  for (size_t i = 0; i < a->count; i++)
    attended += 2 * (size_t)a->width * (a->queries[i].end - a->queries[i].first);
  counted.attend_f32(a);
}

static size_t attention_parameters(const hr_layer *l) {
  const hr_matrix *m[] = {&l->query, &l->key, &l->value, &l->output};
  size_t sum = 0;
  for (size_t i = 0; i < 4; i++) sum += (size_t)m[i]->n * m[i]->k + (m[i]->bias ? m[i]->n : 0);
  return sum;
}

static size_t ffn_parameters(const hr_layer *l) {
  const hr_matrix *m[] = {&l->gate, &l->up, &l->down};
  size_t sum = 0;
  for (size_t i = 0; i < 3; i++) sum += (size_t)m[i]->n * m[i]->k + (m[i]->bias ? m[i]->n : 0);
  return sum;
}

Test(claims, h_heads_have_the_parameters_and_the_cost_of_one) {
  static const uint32_t heads[] = {1, 2, 4, 8, 32};
  float outputs[5][WIDTH];
  for (size_t i = 0; i < 5; i++) {
    const hr_description d = toy_description_of(1, WIDTH, heads[i]);
    toy *t = toy_create(&d);
    toy_randomize(t, 2, 1);
    counted = t->kernels;
    t->kernels.product_f32 = count_product;
    t->kernels.product_one_f32 = count_product_one;
    t->kernels.attend_f32 = count_attend;
    projected = attended = 0;
    toy_session *s = toy_run(t, text, ROWS);
    memcpy(outputs[i], toy_row(s, "attended", 0, ROWS - 1), sizeof outputs[i]);
    cr_assert(attention_parameters(t->model.layer) == 4 * WIDTH * WIDTH);
    /* 4 d^2 of attention, 8 d^2 of feed-forward and the head, a row each; scores and
     * sums over 1 + 2 + ... + 9 keys of d columns */
    cr_assert(projected == ROWS * (12 * WIDTH * WIDTH + 16 * WIDTH), "%zu", projected);
    cr_assert(attended == 2 * WIDTH * (ROWS * (ROWS + 1) / 2), "%zu", attended);
    toy_close(s);
    toy_free(t);
    for (size_t j = 0; j < i; j++) /* and yet the heads are not for nothing */
      cr_assert(distance_between(outputs[i], outputs[j], WIDTH) > 0.01);
  }
}

/* Runs with head 1's share of the values changed, and notes in which heads' columns
 * of an activation something changed. */
static unsigned heads_that_change(toy *t, const char *name) {
  toy_session *before = toy_run(t, text, ROWS);
  float *values = toy_weight(t, &t->model.layer->value) + HEAD_WIDTH * WIDTH;
  for (size_t i = 0; i < HEAD_WIDTH * WIDTH; i++) values[i] = -values[i];
  toy_session *after = toy_run(t, text, ROWS);
  for (size_t i = 0; i < HEAD_WIDTH * WIDTH; i++) values[i] = -values[i];
  unsigned changed = 0;
  for (size_t r = 0; r < ROWS; r++)
    for (size_t h = 0; h < HEADS; h++)
      if (!same_bits(toy_row(before, name, 0, r) + h * HEAD_WIDTH,
                     toy_row(after, name, 0, r) + h * HEAD_WIDTH, HEAD_WIDTH))
        changed |= 1u << h;
  toy_close(before);
  toy_close(after);
  return changed;
}

Test(claims, heads_are_merged_only_by_the_output_projection) {
  const hr_description d = toy_description();
  toy *t = toy_create(&d);
  toy_randomize(t, 3, 1);
  cr_assert(heads_that_change(t, "attended") == 2); /* head 1 alone */
  cr_assert(heads_that_change(t, "attention_residual") == 15);
  float *output = toy_weight(t, &t->model.layer->output);
  for (size_t i = 0; i < WIDTH; i++)
    for (size_t k = 0; k < WIDTH; k++)
      if (i / HEAD_WIDTH != k / HEAD_WIDTH) output[i * WIDTH + k] = 0;
  cr_assert(heads_that_change(t, "attention_residual") == 2); /* kept apart */
  toy_free(t);
}

/* --- Residual and norm ---------------------------------------------------- */

Test(claims, with_output_weights_zero_a_pre_norm_block_returns_its_input) {
  const hr_description d = toy_description_of(3, WIDTH, HEADS);
  toy *t = toy_create(&d);
  toy_randomize(t, 4, 1);
  for (uint32_t i = 0; i < 3; i++) {
    memset(toy_weight(t, &t->model.layer[i].output), 0, WIDTH * WIDTH * sizeof(float));
    memset(toy_weight(t, &t->model.layer[i].down), 0, 4 * WIDTH * WIDTH * sizeof(float));
  }
  float *tokens = toy_weight(t, &t->model.token_embedding);
  tokens[text[0] * WIDTH] = -0.0f;
  tokens[text[0] * WIDTH + 1] = 1e-42f;
  tokens[text[0] * WIDTH + 2] = -1e30f;
  toy_session *s = toy_run(t, text, ROWS);
  for (uint32_t i = 0; i < 3; i++)
    for (size_t r = 0; r < ROWS; r++) {
      float before[WIDTH], after[WIDTH];
      for (size_t c = 0; c < WIDTH; c++) { /* -0 + 0 is +0 */
        before[c] = tokens[text[r] * WIDTH + (int32_t)c] + 0.0f;
        after[c] = toy_row(s, "block", i, r)[c];
      }
      cr_assert(same_bits(before, after, WIDTH), "layer %u, row %zu", i, r);
    }
  cr_assert(!signbit(toy_row(s, "block", 0, 0)[0]));
  toy_close(s);
  toy_free(t);
}

static void check_standard(const float *y, size_t n, double variance) {
  double mean = 0, square = 0;
  for (size_t i = 0; i < n; i++) mean += (double)y[i] / (double)n;
  for (size_t i = 0; i < n; i++) square += pow((double)y[i] - mean, 2) / (double)n;
  cr_assert(fabs(mean) < 1e-5, "mean %g of %zu", mean, n);
  cr_assert(fabs(square - variance) < 1e-4, "variance %g of %zu, not %g", square, n, variance);
}

Test(claims, layer_norm_gives_mean_0_and_variance_1_before_gain_and_shift) {
  static const size_t widths[] = {2, 15, 16, 17, 48, 100, 768, 4096};
  static const struct { double mean, deviation; } inputs[] = {{0, 1}, {10, 3}, {-5, 0.1}, {0, 1e4}};
  const hr_description d = toy_description();
  toy *t = toy_create(&d);
  uint64_t state = 5;
  float x[4096], y[4096];
  for (size_t i = 0; i < sizeof widths / sizeof *widths; i++)
    for (size_t j = 0; j < sizeof inputs / sizeof *inputs; j++) {
      size_t n = widths[i];
      double mean = 0, variance = 0;
      random_fill(&state, x, n, inputs[j].deviation);
      for (size_t k = 0; k < n; k++) x[k] += (float)inputs[j].mean;
      for (size_t k = 0; k < n; k++) mean += (double)x[k] / (double)n;
      for (size_t k = 0; k < n; k++) variance += pow((double)x[k] - mean, 2) / (double)n;
      t->kernels.layer_norm(x, n, NULL, NULL, 1e-5f, y);
      check_standard(y, n, variance / (variance + 1e-5)); /* 1, less what eps takes */
    }
  toy_free(t);
}

Test(claims, layer_norm_of_many_rows_has_the_bits_of_each_alone) {
  const hr_description d = toy_description_of(2, 40, 4);
  toy *t = toy_create(&d);
  toy_randomize(t, 6, 1);
  toy_session *many = toy_run(t, text, ROWS), *single = toy_open(t);
  for (size_t r = 0; r < ROWS; r++) toy_eval(single, text + r, 1);
  static const char *const names[] = {"attention_input", "ffn_input"};
  for (size_t i = 0; i < 4; i++)
    for (size_t r = 0; r < ROWS; r++) {
      const float *row = toy_row(many, names[i / 2], (uint32_t)i % 2, r);
      cr_assert(same_bits(row, toy_row(single, names[i / 2], (uint32_t)i % 2, r), 40));
      check_standard(row, 40, 1);
    }
  toy_close(many);
  toy_close(single);
  toy_free(t);
}

/* The same model with the embeddings as they are and times 30. */
typedef struct scaled {
  toy *toy;
  toy_session *plain, *thirty;
} scaled;

static scaled run_scaled(hr_norm_place place) {
  hr_description d = toy_description_of(2, WIDTH, HEADS);
  d.norm_place = place;
  scaled s = {.toy = toy_create(&d)};
  toy_randomize(s.toy, 7, 1);
  s.plain = toy_run(s.toy, text, ROWS);
  s.toy->model.description.embedding_scale = 30;
  s.thirty = toy_run(s.toy, text, ROWS);
  return s;
}

static void finish_scaled(scaled *s) {
  toy_close(s->plain);
  toy_close(s->thirty);
  toy_free(s->toy);
}

/* Largest difference between an activation and factor times the plain one. */
static double off_by(const scaled *s, const char *name, uint32_t layer, double factor) {
  const activation *a = activations_need(&s->plain->seen, name, layer);
  const activation *b = activations_need(&s->thirty->seen, name, layer);
  double most = 0;
  for (size_t i = 0; i < a->rows * a->columns; i++)
    most = fmax(most, fabs((double)b->data[i] - factor * (double)a->data[i]));
  return most;
}

Test(claims, embeddings_times_30_survive_in_the_stream_and_not_behind_a_norm_before) {
  scaled s = run_scaled(HR_NORM_BEFORE);
  cr_assert(off_by(&s, "embedding", 0, 30) < 1e-5);
  cr_assert(off_by(&s, "embedding", 0, 1) > 30);
  /* behind the first norm nothing is left of it, but for eps */
  cr_assert(off_by(&s, "attention_input", 0, 1) < 1e-4);
  cr_assert(off_by(&s, "query", 0, 1) < 1e-4);
  cr_assert(off_by(&s, "attended", 0, 1) < 1e-4);
  /* the stream goes past the norm: 30 x + f(norm(x)), so what attention adds is a
   * thirtieth of what it was, beside x */
  for (size_t r = 0; r < ROWS; r++)
    for (size_t c = 0; c < WIDTH; c++) {
      double x = (double)toy_row(s.plain, "embedding", 0, r)[c];
      double added = (double)toy_row(s.plain, "attention_residual", 0, r)[c] - x;
      double stream = (double)toy_row(s.thirty, "attention_residual", 0, r)[c];
      cr_assert(fabs(stream - (30 * x + added)) < 1e-4);
    }
  cr_assert(off_by(&s, "block", 1, 1) > 30);
  finish_scaled(&s);
}

Test(claims, embeddings_times_30_survive_into_the_scores_where_the_norm_comes_after) {
  scaled s = run_scaled(HR_NORM_AFTER);
  /* nothing stands before the first attention */
  cr_assert(off_by(&s, "attention_input", 0, 30) < 1e-5);
  cr_assert(off_by(&s, "query", 0, 30) < 1e-3 && off_by(&s, "key", 0, 30) < 1e-3);
  cr_assert(off_by(&s, "query", 0, 1) > 10);
  /* the first norm after it removes the scale */
  for (size_t r = 0; r < ROWS; r++) {
    check_standard(toy_row(s.thirty, "attention_residual", 0, r), WIDTH, 1);
    check_standard(toy_row(s.plain, "attention_residual", 0, r), WIDTH, 1);
    check_standard(toy_row(s.thirty, "block", 1, r), WIDTH, 1);
  }
  finish_scaled(&s);
}

/* --- Positions ------------------------------------------------------------- */

static toy *toy_with(hr_position_kind position, hr_mask mask, uint32_t layers, uint32_t window) {
  hr_description d = toy_description_of(layers, WIDTH, HEADS);
  d.position = position;
  d.mask = mask;
  d.window = window;
  toy *t = toy_create(&d);
  toy_randomize(t, 8, 1);
  return t;
}

/* How far the outputs of permuted rows are from the permuted outputs. */
static double permutation_error(hr_position_kind position) {
  static const size_t order[ROWS] = {4, 0, 7, 2, 8, 1, 3, 6, 5};
  int32_t permuted[ROWS];
  for (size_t r = 0; r < ROWS; r++) permuted[r] = text[order[r]];
  toy *t = toy_with(position, HR_MASK_FULL, 2, 0);
  toy_session *a = toy_run(t, text, ROWS), *b = toy_run(t, permuted, ROWS);
  double most = 0;
  for (size_t r = 0; r < ROWS; r++) most = fmax(most, row_distance(b, a, "block", 1, r, order[r]));
  toy_close(a);
  toy_close(b);
  toy_free(t);
  return most;
}

Test(claims, without_positions_and_mask_permuted_rows_give_permuted_outputs) {
  double error = permutation_error(HR_POSITION_NONE);
  cr_assert(error < 1e-5, "%g", error);
}

Test(claims, with_each_kind_of_position_they_do_not) {
  static const hr_position_kind kinds[] = {HR_POSITION_SINUSOIDAL, HR_POSITION_LEARNED,
                                           HR_POSITION_ROPE, HR_POSITION_ALIBI};
  for (size_t i = 0; i < 4; i++) {
    double error = permutation_error(kinds[i]);
    cr_assert(error > 0.01, "kind %d: %g", (int)kinds[i], error);
  }
}

/* Two layers that see 8 keys each: a row depends on the 2 * 7 + 1 last tokens and on
 * nothing else. So the same piece of text, with 14 times the same filler before it,
 * stands at two places of one sequence that differ by the position alone. */
enum { SEEN_KEYS = 8, FIRST_PLACE = 15, SHIFT = 37 };

static double shift_error(hr_position_kind position) {
  int32_t ids[FIRST_PLACE + SHIFT + ROWS];
  toy *t = toy_with(position, HR_MASK_CAUSAL, 2, SEEN_KEYS);
  for (size_t i = 0; i < FIRST_PLACE + SHIFT + ROWS; i++) ids[i] = 7;
  memcpy(ids + FIRST_PLACE, text, sizeof text);
  memcpy(ids + FIRST_PLACE + SHIFT, text, sizeof text);
  toy_session *s = toy_run(t, ids, FIRST_PLACE + SHIFT + ROWS);
  double d = distance_between(s->logits + (FIRST_PLACE + SHIFT) * 16, s->logits + FIRST_PLACE * 16,
                              ROWS * 16);
  toy_close(s);
  toy_free(t);
  return d;
}

Test(claims, shifting_every_position_leaves_rope_and_alibi_unchanged) {
  static const hr_position_kind kinds[] = {HR_POSITION_ROPE, HR_POSITION_ALIBI, HR_POSITION_NONE};
  for (size_t i = 0; i < 3; i++) {
    double error = shift_error(kinds[i]);
    cr_assert(error < 1e-4, "kind %d: %g", (int)kinds[i], error);
  }
}

/* "Which word is the third?" needs a position of its own, not a distance. */
Test(claims, shifting_every_position_changes_learned_and_sinusoidal) {
  cr_assert(shift_error(HR_POSITION_LEARNED) > 0.01, "%g", shift_error(HR_POSITION_LEARNED));
  cr_assert(shift_error(HR_POSITION_SINUSOIDAL) > 0.01, "%g", shift_error(HR_POSITION_SINUSOIDAL));
}

/* Vaswani et al. 2017: "for any fixed offset k, PE(pos + k) can be represented as a
 * linear function of PE(pos)". The map turns each pair by k times its frequency. */
Test(claims, a_shift_of_the_sinusoid_is_the_same_linear_map_everywhere) {
  enum { COLUMNS = 64 };
  static const uint32_t shifts[] = {1, 7, 100, 1000};
  hr_frequency frequency[COLUMNS / 2];
  hr_frequencies(10000, COLUMNS, frequency);
  for (size_t i = 0; i < 4; i++)
    for (uint32_t position = 0; position < 3000; position += 131) {
      float here[COLUMNS], there[COLUMNS];
      hr_sinusoid(frequency, COLUMNS, position, here);
      hr_sinusoid(frequency, COLUMNS, position + shifts[i], there);
      for (size_t p = 0; p < COLUMNS / 2; p++) {
        double angle = shifts[i] * pow(10000, -2.0 * (double)p / COLUMNS);
        double s = (double)here[2 * p], c = (double)here[2 * p + 1];
        double sine = s * cos(angle) + c * sin(angle), cosine = c * cos(angle) - s * sin(angle);
        cr_assert(fabs((double)there[2 * p] - sine) < 2e-7);
        cr_assert(fabs((double)there[2 * p + 1] - cosine) < 2e-7);
      }
    }
}

/* The score of one query and one key at two positions, by the attention kernel: a
 * query that sees one key has its score for a maximum. */
static double rope_score(const hr_kernels *k, hr_rope_pairing pairing, const float *query,
                         const float *key, uint32_t query_position, uint32_t key_position) {
  enum { COLUMNS = 24, HALF = 12 };
  hr_frequency frequency[HALF];
  float c[HALF], s[HALF], q[COLUMNS], turned[COLUMNS], most, sum, out[32];
  _Alignas(64) float keys[HR_KEY_PANEL * COLUMNS] = {0}, values[HR_KEY_PANEL * 32] = {0};
  hr_rope_fn *rope = pairing == HR_ROPE_PAIRS ? k->rope_pairs : k->rope_halves;
  hr_frequencies(10000, COLUMNS, frequency);
  memcpy(q, query, sizeof q);
  memcpy(turned, key, sizeof turned);
  hr_angles(frequency, HALF, query_position, c, s);
  rope(q, c, s, HALF);
  hr_angles(frequency, HALF, key_position, c, s);
  rope(turned, c, s, HALF);
  k->store_key_f32(turned, COLUMNS, keys, 0);
  const hr_query one = {.q = q, .end = 1, .max = &most, .sum = &sum, .out = out};
  k->attend_f32(&(hr_attend){.keys = keys, .values = values, .width = COLUMNS, .queries = &one,
                             .count = 1});
  return (double)most;
}

Test(claims, rope_scores_depend_on_the_difference_of_positions_only) {
  static const uint32_t differences[] = {0, 1, 5, 300}, starts[] = {1, 64, 5000, 100000};
  static const hr_rope_pairing pairings[] = {HR_ROPE_PAIRS, HR_ROPE_HALVES};
  const hr_description d = toy_description();
  toy *t = toy_create(&d);
  const hr_kernels *k = &t->kernels;
  float q[24], key[24];
  uint64_t state = 9;
  random_fill(&state, q, 24, 1);
  random_fill(&state, key, 24, 1);
  double size = 24 * root_mean_square(q, 24) * root_mean_square(key, 24);
  for (size_t p = 0; p < 2; p++)
    for (size_t i = 0; i < 4; i++) {
      double at_zero = rope_score(k, pairings[p], q, key, differences[i], 0);
      for (size_t j = 0; j < 4; j++) {
        double there = rope_score(k, pairings[p], q, key, starts[j] + differences[i], starts[j]);
        cr_assert(fabs(there - at_zero) < 1e-6 * size, "%g and %g", there, at_zero);
      }
      double other = rope_score(k, pairings[p], q, key, differences[i] + 1, 0);
      cr_assert(fabs(other - at_zero) > 1e-3 * size); /* on that they do depend */
    }
  toy_free(t);
}

/* Press et al. 2022: a geometric sequence from 2^(-8/n); for other head counts that of
 * the next lower power of two p, then every other one of 2 p. */
Test(claims, alibi_slopes_for_any_number_of_heads) {
  static const double of_6[] = {0.25, 0.0625, 0x1p-6, 0x1p-8, 0.5, 0.125};
  static const double of_8[] = {0.5, 0.25, 0.125, 0.0625, 0x1p-5, 0x1p-6, 0x1p-7, 0x1p-8};
  float slope[12];
  hr_alibi_slopes(8, 8, slope);
  for (size_t i = 0; i < 8; i++) cr_assert((double)slope[i] == of_8[i]);
  hr_alibi_slopes(6, 8, slope);
  for (size_t i = 0; i < 6; i++) cr_assert((double)slope[i] == of_6[i]);
  hr_alibi_slopes(12, 8, slope);
  for (size_t i = 0; i < 8; i++) cr_assert((double)slope[i] == of_8[i]);
  for (int i = 0; i < 4; i++) cr_assert(slope[8 + i] == (float)exp2(-0.5 - i));
  hr_alibi_slopes(1, 8, slope);
  cr_assert(slope[0] == 0x1p-8f);
}

/* --- Masks and weights ------------------------------------------------------ */

/* A model whose heads all give the attention weights themselves: the row at place j has
 * a 1 in column j, the value is those columns, and no norm comes before. */
static toy *toy_of_weights(hr_position_kind position, hr_mask mask) {
  enum { KEYS = 16 };
  hr_description d = toy_description_of(1, 2 * KEYS, 2);
  d.norm_place = HR_NORM_AFTER;
  d.mask = mask;
  d.position = position;
  d.vocab = KEYS;
  toy *t = toy_create(&d);
  toy_randomize(t, 10, 1);
  float *tokens = toy_weight(t, &t->model.token_embedding), *at = toy_positions(t);
  float *value = toy_weight(t, &t->model.layer->value);
  memset(at, 0, d.context * 2 * KEYS * sizeof *at);
  memset(value, 0, 4 * KEYS * KEYS * sizeof *value);
  for (size_t i = 0; i < KEYS; i++) {
    memset(tokens + i * 2 * KEYS, 0, KEYS * sizeof *tokens);
    /* without learned positions token i has to stand at place i */
    (position == HR_POSITION_LEARNED ? at : tokens)[i * 2 * KEYS + i] = 1;
    value[i * 2 * KEYS + i] = value[(i + KEYS) * 2 * KEYS + i] = 1;
  }
  return t;
}

Test(claims, causal_weights_of_a_row_sum_to_1_with_exact_zeros_after_it) {
  toy *t = toy_of_weights(HR_POSITION_LEARNED, HR_MASK_CAUSAL);
  toy_session *s = toy_run(t, text, ROWS);
  for (size_t r = 0; r < ROWS; r++)
    for (size_t h = 0; h < 2; h++) {
      const float *weight = toy_row(s, "attended", 0, r) + h * 16;
      double sum = 0;
      for (size_t j = 0; j <= r; j++) {
        cr_assert(weight[j] > 0);
        sum += (double)weight[j];
      }
      cr_assert(fabs(sum - 1) < 1e-6, "row %zu sums to %.9g", r, sum);
      for (size_t j = r + 1; j < 16; j++) cr_assert(weight[j] == 0 && !signbit(weight[j]));
    }
  toy_close(s);
  toy_free(t);
}

Test(claims, alibi_takes_slope_times_distance_from_the_scores) {
  static const int32_t places[ROWS] = {0, 1, 2, 3, 4, 5, 6, 7, 8};
  static const double slopes[] = {0x1p-4, 0x1p-8}; /* of two heads */
  toy *t = toy_of_weights(HR_POSITION_ALIBI, HR_MASK_CAUSAL);
  memset(toy_weight(t, &t->model.layer->query), 0, 32 * 32 * sizeof(float)); /* scores 0 */
  toy_session *s = toy_run(t, places, ROWS);
  for (size_t r = 0; r < ROWS; r++)
    for (size_t h = 0; h < 2; h++) {
      double sum = 0;
      for (size_t j = 0; j <= r; j++) sum += exp(-slopes[h] * (double)(r - j));
      for (size_t j = 0; j <= r; j++)
        cr_assert(fabs((double)toy_row(s, "attended", 0, r)[h * 16 + j] -
                       exp(-slopes[h] * (double)(r - j)) / sum) < 1e-6);
    }
  toy_close(s);
  toy_free(t);
}

/* The first row whose logits or first block change when token j does. */
static size_t first_change(hr_position_kind position, hr_mask mask, size_t j) {
  int32_t other[ROWS];
  memcpy(other, text, sizeof other);
  other[j] = 13;
  toy *t = toy_with(position, mask, 2, 0);
  toy_session *a = toy_run(t, text, ROWS), *b = toy_run(t, other, ROWS);
  size_t r = 0;
  while (r < ROWS && same_bits(a->logits + r * 16, b->logits + r * 16, 16) &&
         same_bits(toy_row(a, "block", 0, r), toy_row(b, "block", 0, r), WIDTH))
    r++;
  toy_close(a);
  toy_close(b);
  toy_free(t);
  return r;
}

Test(claims, causal_changing_a_token_changes_no_bit_before_it) {
  static const hr_position_kind kinds[] = {HR_POSITION_NONE, HR_POSITION_SINUSOIDAL,
                                           HR_POSITION_LEARNED, HR_POSITION_ROPE,
                                           HR_POSITION_ALIBI};
  for (size_t i = 0; i < 5; i++)
    for (size_t j = 0; j < ROWS; j++)
      cr_assert(first_change(kinds[i], HR_MASK_CAUSAL, j) == j, "kind %zu, token %zu", i, j);
}

/* Texts of uneven lengths, among them one row, a tile more or less and more than a
 * block of keys, in one pass of three threads; each with the bits it has alone. */
static void expect_texts_of_a_pass_are_alone(hr_mask mask, hr_position_kind position,
                                             uint32_t window) {
  enum { TEXTS = 7, MOST = 1024 };
  static const size_t length[TEXTS] = {1, 7, 8, 300, 33, 1, 16};
  hr_description d = toy_description();
  d.context = MOST;
  d.mask = mask;
  d.position = position;
  d.window = window;
  if (position == HR_POSITION_ROPE) {
    d.rope_width = HEAD_WIDTH;
    d.rope_base = 10000;
  }
  toy *t = toy_create(&d);
  toy_randomize(t, 5, 1);
  int32_t ids[MOST];
  hr_text texts[TEXTS];
  size_t rows = 0, slot = HR_KEY_PANEL;
  for (size_t i = 0; i < TEXTS; i++) {
    texts[i] = (hr_text){
        .rows = length[i], .slot = slot, .room = hr_round_up(length[i], HR_KEY_PANEL)};
    slot += texts[i].room + (i == 2 ? 2 * HR_KEY_PANEL : 0);
    for (size_t r = 0; r < length[i]; r++, rows++) ids[rows] = (int32_t)((r * r + 3 * i) % 16);
  }
  cr_assert(slot <= MOST);
  hr_error err = {0};
  toy_session *s = toy_open(t); /* packs the weights */
  hr_team *team = hr_team_create(&(hr_team_options){.threads = 3, .no_pin = true}, &err);
  hr_workspace *ws = hr_workspace_create(&t->model, &t->kernels, rows, MOST, 3, &err);
  cr_assert(team && ws, "%s", err.message);
  float *logits = calloc(rows * d.vocab, sizeof *logits);
  const hr_request request = {.ids = ids, .rows = rows, .texts = texts, .text_count = TEXTS,
                              .logits = logits};
  cr_assert_eq(hr_forward(ws, team, 3, &s->cache, &request, &err), HR_OK, "%s", err.message);
  size_t row = 0;
  for (size_t i = 0; i < TEXTS; i++) {
    toy_session *alone = toy_run(t, ids + row, length[i]);
    cr_expect_arr_eq(logits + row * d.vocab, alone->logits, length[i] * d.vocab * sizeof *logits,
                     "mask %d, position %d, window %u: text %zu of %zu rows", (int)mask,
                     (int)position, window, i, length[i]);
    toy_close(alone);
    row += length[i];
  }
  free(logits);
  hr_workspace_free(ws);
  hr_team_free(team);
  toy_close(s);
  toy_free(t);
}

/* Rows that alone have logits leave the others before the last layer: their logits are those
 * they have when all rows have some, and what the cache keeps is as good for rows to come. */
typedef struct wanted_case {
  hr_position_kind position;
  hr_norm_place place;
  bool parallel;
  uint32_t layers, window;
} wanted_case;

static void expect_wanted_rows_are_as_all(const wanted_case *c) {
  enum { TEXTS = 3, MOST = 512, SETS = 4, THREADS = 3 };
  static const size_t length[TEXTS] = {7, 300, 24};
  static const struct {
    size_t count, row[8];
  } sets[SETS] = {{3, {6, 306, 330}}, /* the last of each text */
                  {8, {0, 5, 6, 7, 8, 100, 270, 307}},
                  {1, {0}},
                  {0, {0}}};
  hr_description d = toy_description_of(c->layers, WIDTH, HEADS);
  d.context = MOST;
  d.position = c->position;
  d.norm_place = c->place;
  d.parallel = c->parallel;
  d.window = c->window;
  if (c->position == HR_POSITION_ROPE) d.rope_width = d.head_width;
  d.rope_base = 10000;
  toy *t = toy_create(&d);
  toy_randomize(t, 7, 1);
  hr_error err = {0};
  int32_t ids[MOST];
  hr_text texts[TEXTS], more[TEXTS];
  size_t slot = 0, rows = 0;
  for (size_t i = 0; i < TEXTS; i++) {
    size_t room = hr_round_up(length[i] + 1, HR_KEY_PANEL);
    texts[i] = (hr_text){.rows = length[i], .slot = slot, .room = room};
    more[i] = (hr_text){.rows = 1, .start = length[i], .slot = slot, .room = room};
    slot += room;
    for (size_t r = 0; r < length[i]; r++, rows++) ids[rows] = (int32_t)((r * r + 3 * i) % 16);
  }
  cr_assert(slot <= MOST);
  toy_session *s = toy_open(t); /* packs the weights */
  hr_team *team = hr_team_create(&(hr_team_options){.threads = THREADS, .no_pin = true}, &err);
  hr_workspace *ws = hr_workspace_create(&t->model, &t->kernels, rows, MOST, THREADS, &err);
  float *all = calloc((rows + TEXTS) * d.vocab, sizeof *all);
  cr_assert(team && ws && all, "%s", err.message);
  hr_request request = {.ids = ids, .rows = rows, .texts = texts, .text_count = TEXTS,
                        .logits = all};
  hr_request next = {.ids = ids, .rows = TEXTS, .texts = more, .text_count = TEXTS,
                     .logits = all + rows * d.vocab};
  cr_assert_eq(hr_forward(ws, team, THREADS, &s->cache, &request, &err), HR_OK);
  cr_assert_eq(hr_forward(ws, team, THREADS, &s->cache, &next, &err), HR_OK);
  for (size_t i = 0; i < SETS; i++) {
    float logits[(8 + TEXTS) * 16] = {0};
    memset(s->cache.data, 0xff, s->cache.bytes); /* NaN */
    request.logits_rows = sets[i].row;
    request.logits_count = sets[i].count;
    request.logits = logits;
    next.logits = logits + 8 * d.vocab;
    cr_assert_eq(hr_forward(ws, team, THREADS, &s->cache, &request, &err), HR_OK);
    cr_assert_eq(hr_forward(ws, team, THREADS, &s->cache, &next, &err), HR_OK);
    for (size_t r = 0; r < sets[i].count; r++)
      cr_expect_arr_eq(logits + r * d.vocab, all + sets[i].row[r] * d.vocab,
                       d.vocab * sizeof *all, "position %d, place %d, parallel %d, %u layers, "
                       "window %u: set %zu, row %zu", (int)c->position, (int)c->place,
                       c->parallel, c->layers, c->window, i, sets[i].row[r]);
    cr_expect_arr_eq(logits + 8 * d.vocab, all + rows * d.vocab, TEXTS * d.vocab * sizeof *all,
                     "position %d, place %d, parallel %d, %u layers, window %u: behind set %zu",
                     (int)c->position, (int)c->place, c->parallel, c->layers, c->window, i);
  }
  free(all);
  hr_workspace_free(ws);
  hr_team_free(team);
  toy_close(s);
  toy_free(t);
}

Test(claims, rows_that_have_logits_do_not_need_the_others_in_the_last_layer) {
  for (int position = HR_POSITION_NONE; position <= HR_POSITION_ALIBI; position++)
    for (uint32_t layers = 1; layers <= 2; layers++)
      expect_wanted_rows_are_as_all(
          &(wanted_case){.position = (hr_position_kind)position, .layers = layers});
  for (int place = HR_NORM_BEFORE; place <= HR_NORM_AROUND; place++)
    for (uint32_t window = 0; window <= 5; window += 5)
      expect_wanted_rows_are_as_all(&(wanted_case){.position = HR_POSITION_ROPE,
                                                   .place = (hr_norm_place)place,
                                                   .parallel = place == HR_NORM_BEFORE,
                                                   .layers = 2, .window = window});
}

/* Where each thread has rows of its own, those of a text are arranged by the keys that they see:
 * from 128 rows a thread on, behind earlier rows too, but not where many rows have logits. */
static void expect_shared_text_is_as_alone(hr_position_kind position, uint32_t window) {
  enum { START = 9, MOST = 600, COUNTS = 6, VOCAB = 16 };
  hr_description d = toy_description_of(2, WIDTH, HEADS);
  d.context = MOST;
  d.position = position;
  d.window = window;
  if (position == HR_POSITION_ROPE) d.rope_width = d.head_width;
  d.rope_base = 10000;
  toy *t = toy_create(&d);
  toy_randomize(t, 9, 1);
  hr_error err = {0};
  int32_t ids[MOST];
  for (size_t i = 0; i < MOST; i++) ids[i] = (int32_t)((i * i + i / 7) % VOCAB);
  toy_session *s = toy_open(t);
  hr_team *team = hr_team_create(&(hr_team_options){.threads = 4, .no_pin = true}, &err);
  hr_workspace *ws = hr_workspace_create(&t->model, &t->kernels, MOST, MOST, 4, &err);
  float *alone = calloc(MOST * VOCAB, sizeof *alone), *got = calloc(MOST * VOCAB, sizeof *got);
  cr_assert(team && ws && alone && got && d.vocab == VOCAB, "%s", err.message);
  hr_request all = {.ids = ids, .rows = START, .logits = alone};
  cr_assert_eq(hr_forward(ws, team, 1, &s->cache, &all, &err), HR_OK);
  all = (hr_request){.ids = ids + START, .rows = MOST - START, .start = START, .logits = alone};
  cr_assert_eq(hr_forward(ws, team, 1, &s->cache, &all, &err), HR_OK);
  for (unsigned threads = 2; threads <= 4; threads++) {
    const size_t rows = 128 * threads + threads * 7 - 2, end = START + rows;
    const size_t counts[COUNTS] = {0, 1, 67, 68, rows / 2, rows};
    for (size_t i = 0; i < 2 * COUNTS; i++) { /* the second time by a list, of one of the texts */
      const size_t count = counts[i % COUNTS];
      const hr_text one = {.rows = rows, .start = START, .room = s->cache.room};
      size_t list[MOST];
      for (size_t r = 0; r < count; r++) list[r] = rows - count + r;
      hr_request first = {.ids = ids, .rows = START, .logits_from = START};
      hr_request shared = {.ids = ids + START, .rows = rows, .start = START,
                         .logits_from = rows - count, .logits = got};
      if (i >= COUNTS) {
        shared.texts = &one;
        shared.text_count = 1;
        shared.logits_rows = list;
        shared.logits_count = count;
      }
      hr_request next = {.ids = ids + end, .rows = 1, .start = end,
                         .logits = got + count * VOCAB};
      memset(s->cache.data, 0xff, s->cache.bytes); /* NaN */
      cr_assert_eq(hr_forward(ws, team, 1, &s->cache, &first, &err), HR_OK);
      cr_assert_eq(hr_forward(ws, team, threads, &s->cache, &shared, &err), HR_OK);
      cr_assert_eq(hr_forward(ws, team, 1, &s->cache, &next, &err), HR_OK);
      cr_expect_arr_eq(got, alone + (rows - count) * VOCAB, (count + 1) * VOCAB * sizeof *got,
                       "position %d, window %u, %u threads: logits of %zu rows%s", (int)position,
                       window, threads, count, i < COUNTS ? "" : ", listed");
    }
  }
  free(alone);
  free(got);
  hr_workspace_free(ws);
  hr_team_free(team);
  toy_close(s);
  toy_free(t);
}

Test(claims, a_text_has_the_same_logits_where_threads_share_its_rows) {
  for (int position = HR_POSITION_NONE; position <= HR_POSITION_ALIBI; position++)
    expect_shared_text_is_as_alone((hr_position_kind)position, 0);
  expect_shared_text_is_as_alone(HR_POSITION_ROPE, 50);
}

/* Layer by layer, in two pieces, from streams that were kept: the bits of the whole pass. */
static void expect_stretches_make_a_pass(hr_position_kind position) {
  enum { CUT = 4, LAYERS = 3 };
  hr_error err = {0};
  const int32_t ids[ROWS] = {3, 1, 4, 1, 5, 9, 2, 6, 5};
  hr_description d = toy_description_of(LAYERS, WIDTH, HEADS);
  d.context = 32;
  d.position = position;
  if (position == HR_POSITION_ROPE) d.rope_width = d.head_width;
  d.rope_base = 10000;
  toy *t = toy_create(&d);
  toy_randomize(t, 5, 1);
  toy_session *whole = toy_run(t, ids, ROWS), *parts = toy_open(t);
  float stream[ROWS * WIDTH];
  for (uint32_t layer = 0; layer <= LAYERS; layer++)
    for (size_t at = 0; at < ROWS; at += at ? ROWS : CUT) {
      float *rows = stream + at * d.width;
      const hr_stretch stretch = {.first = layer ? layer - 1 : 0, .end = layer,
                                  .stream = layer ? rows : NULL, .stream_out = rows};
      size_t count = at ? ROWS - CUT : CUT;
      const hr_request request = {.ids = ids + at, .rows = count, .start = at,
                                  .logits_from = count, .stretch = &stretch};
      cr_assert_eq(hr_forward(parts->workspace, parts->team, 1, &parts->cache, &request, &err),
                   HR_OK, "%s", err.message);
    }
  for (size_t r = 0; r < ROWS; r++)
    cr_expect_arr_eq(stream + r * d.width, toy_row(whole, "block", LAYERS - 1, r),
                     d.width * sizeof *stream, "position %d, row %zu", (int)position, r);
  toy_close(parts);
  toy_close(whole);
  toy_free(t);
}

Test(claims, layers_one_by_one_make_a_pass) {
  for (int position = HR_POSITION_NONE; position <= HR_POSITION_ALIBI; position++)
    expect_stretches_make_a_pass((hr_position_kind)position);
}

Test(claims, texts_of_one_pass_do_not_see_each_other) {
  for (int mask = HR_MASK_CAUSAL; mask <= HR_MASK_FULL; mask++)
    for (int position = HR_POSITION_NONE; position <= HR_POSITION_ALIBI; position++)
      expect_texts_of_a_pass_are_alone((hr_mask)mask, (hr_position_kind)position, 0);
  expect_texts_of_a_pass_are_alone(HR_MASK_CAUSAL, HR_POSITION_ROPE, 5);
  expect_texts_of_a_pass_are_alone(HR_MASK_FULL, HR_POSITION_ROPE, 5);
}

/* A text goes on where an earlier pass left it, beside one that begins. */
Test(claims, texts_of_one_pass_go_on_from_their_own_past) {
  hr_description d = toy_description();
  d.context = 192;
  d.position = HR_POSITION_ROPE;
  d.rope_width = HEAD_WIDTH;
  d.rope_base = 10000;
  toy *t = toy_create(&d);
  toy_randomize(t, 6, 1);
  toy_session *s = toy_open(t), *whole = toy_run(t, text, ROWS), *part = toy_run(t, text, 5);
  float logits[(ROWS + 5) * 16];
  hr_error err = {0};
  const hr_text first = {.rows = 4, .slot = 64, .room = 128};
  const hr_request begin = {.ids = text, .rows = 4, .texts = &first, .text_count = 1,
                            .logits = logits};
  cr_assert_eq(hr_forward(s->workspace, s->team, 1, &s->cache, &begin, &err), HR_OK);
  const hr_text both[] = {{.rows = 5, .slot = 0, .room = 64},
                          {.rows = ROWS - 4, .start = 4, .slot = 64, .room = 128}};
  int32_t ids[ROWS + 1];
  memcpy(ids, text, 5 * sizeof *ids);
  memcpy(ids + 5, text + 4, (ROWS - 4) * sizeof *ids);
  const hr_request more = {.ids = ids, .rows = ROWS + 1, .texts = both, .text_count = 2,
                           .logits = logits};
  cr_assert_eq(hr_forward(s->workspace, s->team, 1, &s->cache, &more, &err), HR_OK);
  cr_expect_arr_eq(logits, part->logits, sizeof(float) * 5 * 16);
  cr_expect_arr_eq(logits + 5 * 16, whole->logits + 4 * 16, sizeof(float) * (ROWS - 4) * 16);
  toy_close(s);
  toy_close(whole);
  toy_close(part);
  toy_free(t);
}

Test(claims, the_full_mask_sees_both_ways) {
  for (size_t j = 0; j < ROWS; j++)
    cr_assert(first_change(HR_POSITION_NONE, HR_MASK_FULL, j) == 0, "token %zu", j);
  toy *t = toy_of_weights(HR_POSITION_LEARNED, HR_MASK_FULL);
  toy_session *s = toy_run(t, text, ROWS);
  for (size_t r = 0; r < ROWS; r++)
    for (size_t j = 0; j < 16; j++) cr_assert((toy_row(s, "attended", 0, r)[j] > 0) == (j < ROWS));
  toy_close(s);
  toy_free(t);
}

/* --- By hand ---------------------------------------------------------------- */

/* Width 2, one head, no norms. Tokens (1, 0) and (0, 1); queries and keys are x, values
 * (2 x0, 4 x1). The second row's scores are 0 and 1/sqrt(2), so its weights are
 * 1 / (1 + e^(1/sqrt 2)) = 0.330238450673 and 0.669761549327; it gets
 * 0.330238450673 (2, 0) + 0.669761549327 (0, 4) = (0.660476901347, 2.679046197307). */
static toy *toy_by_hand(void) {
  hr_description d = toy_description_of(1, 2, 1);
  d.ffn_width = 2;
  d.vocab = 2;
  d.activation = HR_ACTIVATION_RELU;
  toy *t = toy_create(&d);
  hr_layer *layer = t->model.layer;
  layer->attention_norm = layer->ffn_norm = t->model.final_norm = (hr_norm_weights){0};
  toy_identity(t, &t->model.token_embedding);
  toy_identity(t, &t->model.head);
  toy_identity(t, &layer->query);
  toy_identity(t, &layer->key);
  toy_identity(t, &layer->output);
  memcpy(toy_weight(t, &layer->value), (float[]){2, 0, 0, 4}, 4 * sizeof(float));
  memcpy(toy_weight(t, &layer->up), (float[]){1, 1, 1, -1}, 4 * sizeof(float));
  memcpy(toy_weight(t, &layer->down), (float[]){0.5f, 0, 0, 1}, 4 * sizeof(float));
  return t;
}

static void expect_pair(const toy_session *s, const char *name, size_t row, double a, double b) {
  const float *x = toy_row(s, name, 0, row);
  cr_assert(fabs((double)x[0] - a) < 1e-6 && fabs((double)x[1] - b) < 1e-6,
            "%s of row %zu is (%.9g, %.9g)", name, row, (double)x[0], (double)x[1]);
}

Test(claims, two_tokens_by_hand) {
  toy *t = toy_by_hand();
  toy_session *s = toy_run(t, (int32_t[]){0, 1}, 2);
  /* the first row sees itself alone */
  expect_pair(s, "attended", 0, 2, 0);
  expect_pair(s, "attention_residual", 0, 3, 0); /* + (1, 0) */
  expect_pair(s, "ffn_up", 0, 3, 3);             /* sum and difference */
  expect_pair(s, "activated", 0, 3, 3);
  expect_pair(s, "block", 0, 4.5, 3); /* (3, 0) + (1.5, 3) */
  expect_pair(s, "attended", 1, 0.660476901347, 2.679046197307);
  expect_pair(s, "attention_residual", 1, 0.660476901347, 3.679046197307);
  expect_pair(s, "ffn_up", 1, 4.339523098653, -3.018569295960);
  expect_pair(s, "activated", 1, 4.339523098653, 0); /* ReLU takes the second */
  expect_pair(s, "block", 1, 2.830238450673, 3.679046197307);
  cr_assert(same_bits(s->logits, toy_row(s, "block", 0, 0), 2)); /* the head is 1 */
  toy_close(s);
  toy_free(t);
}

/* --- Feed-forward ------------------------------------------------------------- */

/* What the feed-forward network adds to row r. */
static void ffn_added(const toy_session *s, size_t r, double *out) {
  for (size_t i = 0; i < WIDTH; i++)
    out[i] = (double)toy_row(s, "block", 0, r)[i] -
             (double)toy_row(s, "attention_residual", 0, r)[i];
}

/* down(relu(up(x) + b)) with b so large that ReLU lets all through is down * up x + down b:
 * one matrix. With b = 0 it is no matrix at all. */
static double error_of_one_matrix(float bias) {
  hr_description d = toy_description();
  d.activation = HR_ACTIVATION_RELU;
  toy *t = toy_create(&d);
  toy_randomize(t, 11, 1);
  hr_layer *layer = t->model.layer;
  float *up_bias = toy_bias(t, &layer->up);
  const float *up = toy_weight(t, &layer->up), *down = toy_weight(t, &layer->down);
  for (size_t i = 0; i < 4 * WIDTH; i++) up_bias[i] = bias;
  toy_session *s = toy_run(t, text, ROWS);
  double most = 0;
  for (size_t r = 0; r < ROWS; r++) {
    const float *x = toy_row(s, "ffn_input", 0, r);
    double added[WIDTH];
    ffn_added(s, r, added);
    for (size_t i = 0; i < WIDTH; i++) {
      double sum = 0;
      for (size_t k = 0; k < WIDTH; k++) { /* element (i, k) of down * up */
        double product = 0;
        for (size_t m = 0; m < 4 * WIDTH; m++)
          product += (double)down[i * 4 * WIDTH + m] * (double)up[m * WIDTH + k];
        sum += product * (double)x[k];
      }
      for (size_t m = 0; m < 4 * WIDTH; m++) sum += (double)down[i * 4 * WIDTH + m] * (double)bias;
      most = fmax(most, fabs(added[i] - sum));
    }
  }
  toy_close(s);
  toy_free(t);
  return most;
}

Test(claims, two_linear_layers_without_an_activation_equal_one) {
  cr_assert(error_of_one_matrix(8) < 1e-4, "%g", error_of_one_matrix(8));
  cr_assert(error_of_one_matrix(0) > 0.1, "%g", error_of_one_matrix(0));
}

/* --- Depth -------------------------------------------------------------------- */

enum { DEPTH = 96, DEEP_WIDTH = 64 };

/* GPT-2 draws weights with a deviation of 0.02 at a width of 768, those before the
 * residual divided by the root of the number of sub-layers, tokens with 0.02 and
 * positions with 0.01. What a product makes of a normed row depends on deviation
 * times root of width: 0.02 * sqrt(768) = 0.554, kept here at a width of 64. */
static toy *toy_of_96_blocks(hr_activation kind) {
  hr_description d = toy_description_of(DEPTH, DEEP_WIDTH, 4);
  d.position = HR_POSITION_LEARNED;
  d.activation = kind;
  toy *t = toy_create(&d);
  double deviation = 0.02 * sqrt(768.0 / DEEP_WIDTH);
  double before_residual = deviation / sqrt(2.0 * DEPTH);
  uint64_t state = 12;
  for (uint32_t i = 0; i < DEPTH; i++) {
    hr_layer *l = &t->model.layer[i];
    const hr_matrix *inner[] = {&l->query, &l->key, &l->value, &l->up};
    const hr_matrix *last[] = {&l->output, &l->down};
    for (size_t j = 0; j < 4; j++)
      random_fill(&state, toy_weight(t, inner[j]), (size_t)inner[j]->n * inner[j]->k, deviation);
    for (size_t j = 0; j < 2; j++)
      random_fill(&state, toy_weight(t, last[j]), (size_t)last[j]->n * last[j]->k, before_residual);
  }
  random_fill(&state, toy_weight(t, &t->model.token_embedding), (size_t)d.vocab * DEEP_WIDTH, 0.02);
  random_fill(&state, toy_positions(t), (size_t)d.context * DEEP_WIDTH, 0.01);
  return t;
}

static const int32_t other_text[ROWS] = {8, 0, 12, 11, 7, 10, 14, 8, 0};

/* Of the last rows of two texts. */
static double text_correlation(const toy_session *a, const toy_session *b) {
  return correlation(toy_row(a, "block", DEPTH - 1, ROWS - 1),
                     toy_row(b, "block", DEPTH - 1, ROWS - 1), DEEP_WIDTH);
}

/* The least of all pairs of rows of a text: its tokens are inputs too. */
static double least_row_correlation(const toy_session *s, const char *name, uint32_t layer) {
  double least = 1;
  for (size_t r = 0; r < ROWS; r++)
    for (size_t q = 0; q < r; q++)
      least = fmin(least, correlation(toy_row(s, name, layer, r), toy_row(s, name, layer, q),
                                      DEEP_WIDTH));
  return least;
}

Test(claims, random_pre_norm_blocks_96_deep_keep_the_size_of_their_input) {
  toy *t = toy_of_96_blocks(HR_ACTIVATION_GELU_TANH);
  toy_session *a = toy_run(t, text, ROWS), *b = toy_run(t, other_text, ROWS);
  for (uint32_t i = 0; i < DEPTH; i++)
    for (size_t r = 0; r < ROWS; r++)
      for (size_t c = 0; c < DEEP_WIDTH; c++) cr_assert(isfinite(toy_row(a, "block", i, r)[c]));
  for (size_t r = 0; r < ROWS; r++) {
    double grown = root_mean_square(toy_row(a, "block", DEPTH - 1, r), DEEP_WIDTH) /
                   root_mean_square(toy_row(a, "embedding", 0, r), DEEP_WIDTH);
    cr_assert(grown > 1 && grown < 20, "row %zu grew %g times", r, grown);
  }
  double rows = least_row_correlation(a, "block", DEPTH - 1), texts = text_correlation(a, b);
  cr_assert(rows < 0.9 && texts < 0.9, "%g and %g", rows, texts); /* the input is still there */
  toy_close(a);
  toy_close(b);
  toy_free(t);
}

/* Takes the residual away from the real pass: once a sub-layer has read its input (the
 * attention is done, the feed-forward activated) the stream is emptied, so that the
 * output is added to zeros. */
static void empty_the_stream(void *arg, const char *name, uint32_t layer, const float *data,
                             size_t rows, size_t columns, size_t stride) {
  toy_session *s = arg;
  if (strcmp(name, "attended") == 0 || strcmp(name, "activated") == 0)
    memset(s->workspace->x, 0, rows * s->workspace->x_stride * sizeof(float));
  activations_tap(&s->seen, name, layer, data, rows, columns, stride);
}

static toy_session *run_without_residual(toy *t, const int32_t *ids) {
  toy_session *s = toy_open(t);
  hr_workspace_set_tap(s->workspace, empty_the_stream, s);
  toy_eval(s, ids, ROWS);
  return s;
}

/* Attention alone makes all rows one ("Attention is not all you need", Dong et al.
 * 2021): which token stood where is lost. */
Test(claims, without_the_residual_96_blocks_lose_their_input) {
  toy *t = toy_of_96_blocks(HR_ACTIVATION_GELU_TANH);
  toy_session *a = run_without_residual(t, text);
  double rows = least_row_correlation(a, "block", DEPTH - 1);
  cr_assert(rows > 0.99, "%g", rows);
  double first = least_row_correlation(a, "embedding", 0);
  cr_assert(first < 0.3, "%g", first);
  toy_close(a);
  toy_free(t);
}

/* Where the activation is ReLU even two texts that share no token become one. */
Test(claims, without_the_residual_96_blocks_of_relu_make_all_texts_one) {
  toy *t = toy_of_96_blocks(HR_ACTIVATION_RELU);
  toy_session *a = run_without_residual(t, text), *b = run_without_residual(t, other_text);
  cr_assert(text_correlation(a, b) > 0.99, "%g", text_correlation(a, b));
  double first = correlation(toy_row(a, "embedding", 0, ROWS - 1),
                             toy_row(b, "embedding", 0, ROWS - 1), DEEP_WIDTH);
  cr_assert(first < 0.5, "%g", first);
  toy_close(a);
  toy_close(b);
  a = toy_run(t, text, ROWS);
  b = toy_run(t, other_text, ROWS);
  cr_assert(text_correlation(a, b) < 0.95, "%g", text_correlation(a, b)); /* with it they do not */
  toy_close(a);
  toy_close(b);
  toy_free(t);
}

/* --- Parameters ---------------------------------------------------------------- */

static hr_model *open_shipped(const char *path) {
  hr_error err = {0};
  hr_model *model = hr_model_open(path, NULL, &err);
  cr_assert(model, "%s", err.message);
  return model;
}

Test(claims, feed_forward_has_twice_the_parameters_of_attention) {
  hr_model *model = open_shipped(HEADROW_SOURCE_ROOT "/models/gpt2.gguf");
  const hr_transformer *t = &model->loaded.transformer;
  size_t d = t->description.width, layers = t->description.layers;
  cr_assert(t->description.ffn_width == 4 * d && t->description.kv_heads == t->description.heads);
  for (size_t i = 0; i < layers; i++) { /* and biases */
    cr_assert(attention_parameters(&t->layer[i]) == 4 * d * d + 4 * d);
    cr_assert(ffn_parameters(&t->layer[i]) == 8 * d * d + 5 * d);
  }
  /* tokens and positions, 12 d^2 a block with 9 d of biases and 4 d of norms, the last norm */
  cr_assert(model->loaded.parameters == (t->description.vocab + t->position_rows) * d +
                                            layers * (12 * d * d + 13 * d) + 2 * d,
            "%zu", model->loaded.parameters);
  hr_model_free(model);
}

Test(claims, sharing_keys_and_values_saves_parameters_of_attention_alone) {
  hr_model *model = open_shipped(HEADROW_SOURCE_ROOT "/models/builtin.gguf");
  const hr_transformer *t = &model->loaded.transformer;
  size_t d = t->description.width, f = t->description.ffn_width;
  size_t shared = t->description.heads / t->description.kv_heads;
  cr_assert(shared > 1 && t->description.gated);
  for (uint32_t i = 0; i < t->description.layers; i++) {
    cr_assert(attention_parameters(&t->layer[i]) == 2 * d * d + 2 * d * d / shared);
    cr_assert(ffn_parameters(&t->layer[i]) == 3 * d * f);
  }
  hr_model_free(model);
}
