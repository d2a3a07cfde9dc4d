/* SPDX-License-Identifier: MIT
 * Stop texts in a stream that comes in pieces. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "cli/stops.h"

TestSuite(stops, .timeout = 60);

enum { MOST = 8 };

/* Pieces and stop texts end in NULL. */
typedef struct stream {
  const char *pieces[MOST], *stops[MOST];
} stream;

static cli_texts texts_of(const stream *s) {
  cli_texts texts = {.item = (const char **)s->stops};
  while (texts.count < MOST && s->stops[texts.count]) texts.count++;
  return texts;
}

/* What is printed of the stream. After each piece, nothing that may still become a
 * stop text is out, and nothing else is held back. */
static char *printed(const stream *s, bool *stopped) {
  cli_texts texts = texts_of(s);
  cli_stops stops = {.texts = &texts};
  cli_bytes ready = {0};
  *stopped = false;
  for (size_t i = 0; i < MOST && s->pieces[i] && !*stopped; i++)
    cr_assert(cli_stops_add(&stops, s->pieces[i], strlen(s->pieces[i]), &ready, stopped));
  if (!*stopped) cr_assert(cli_stops_end(&stops, &ready));
  cr_assert(cli_bytes_add(&ready, "", 1));
  cli_bytes_free(&stops.held);
  return ready.data;
}

static void expect(stream s, const char *text, bool stops) {
  bool stopped;
  char *out = printed(&s, &stopped);
  cr_expect_str_eq(out, text);
  cr_expect_eq(stopped, stops, "%s", text);
  free(out);
}

Test(stops, a_stop_text_over_several_pieces) {
  expect((stream){{"a", "b</", "s", "top>", "c"}, {"</stop>"}}, "ab", true);
  expect((stream){{"ab</stop>c"}, {"</stop>"}}, "ab", true);
}

Test(stops, a_failed_match_starts_again_inside_itself) {
  expect((stream){{"a", "a", "b", "c"}, {"ab"}}, "a", true);
  expect((stream){{"aab", "aab", "aac"}, {"aabaac"}}, "aab", true);
}

Test(stops, the_first_to_be_complete_wins) {
  expect((stream){{"there"}, {"re", "he"}}, "t", true);
  expect((stream){{"there"}, {"he", "re"}}, "t", true);
  /* Both end here: nothing of either is printed. */
  expect((stream){{"xabc"}, {"c", "abc"}}, "x", true);
}

Test(stops, a_beginning_at_the_end_is_printed) {
  expect((stream){{"a</st"}, {"</stop>"}}, "a</st", false);
  expect((stream){{"abc"}, {NULL}}, "abc", false);
  expect((stream){{"", ""}, {"x"}}, "", false);
}

Test(stops, only_what_may_become_one_is_held_back) {
  cli_texts texts = {.item = (const char *[]){"END", "\n\n"}, .count = 2};
  cli_stops stops = {.texts = &texts};
  cli_bytes ready = {0};
  bool stopped;
  const struct {
    const char *piece;
    size_t held;
  } steps[] = {{"Hello", 0}, {" E", 1}, {"N", 2}, {"E", 1}, {"x", 0}, {"\n", 1}, {"y\n", 1}};
  for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
    cr_assert(cli_stops_add(&stops, steps[i].piece, strlen(steps[i].piece), &ready, &stopped));
    cr_expect_eq(stops.held.used, steps[i].held, "after '%s'", steps[i].piece);
  }
  cr_expect(ready.used == strlen("Hello ENEx\ny") && memcmp(ready.data, "Hello ENEx\ny", 12) == 0);
  cli_bytes_free(&stops.held);
  cli_bytes_free(&ready);
}

/* Cut in any way, a stream gives the same text. */
Test(stops, pieces_do_not_matter) {
  static const char text[] = "abababcababcdabc";
  static const char *const stops[][3] = {
      {"ababc", "bcab", NULL}, {"cd", "abcd", NULL}, {"dd", NULL, NULL}, {"b", "ab", NULL}};
  for (size_t k = 0; k < sizeof stops / sizeof *stops; k++) {
    char first[32] = "";
    for (size_t step = 1; step <= 16; step++) {
      cli_texts texts = {.item = (const char **)stops[k], .count = stops[k][1] ? 2 : 1};
      cli_stops s = {.texts = &texts};
      cli_bytes ready = {0};
      bool stopped = false;
      for (size_t at = 0; at < 16 && !stopped; at += step)
        cr_assert(cli_stops_add(&s, text + at, step < 16 - at ? step : 16 - at, &ready, &stopped));
      if (!stopped) cr_assert(cli_stops_end(&s, &ready));
      cr_assert(cli_bytes_add(&ready, "", 1));
      if (step == 1) strcpy(first, ready.data);
      cr_expect_str_eq(ready.data, first);
      cli_bytes_free(&s.held);
      cli_bytes_free(&ready);
    }
  }
}
