/* SPDX-License-Identifier: MIT
 * Drawings of the page: bars in HTML, whose text stays readable on a phone, and
 * curves in SVG. Beside its colour each file has a letter, for those who do not see colours. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compare.h"

bool compare_put(cli_bytes *page, const char *format, ...) {
  char *text;
  va_list args;
  va_start(args, format);
  int n = vasprintf(&text, format, args);
  va_end(args);
  if (n < 0) return false;
  bool good = cli_bytes_add(page, text, (size_t)n);
  free(text);
  return good;
}

bool compare_put_text(cli_bytes *page, const char *text) {
  bool good = true;
  for (; good && *text; text++) {
    const char *as = *text == '<'    ? "&lt;"
                     : *text == '>'  ? "&gt;"
                     : *text == '&'  ? "&amp;"
                     : *text == '"'  ? "&quot;"
                     : *text == '\'' ? "&#39;"
                                     : NULL;
    /* control characters are not allowed in a page */
    if ((unsigned char)*text < 0x20 || *text == 0x7f) as = " ";
    good = as ? cli_bytes_add(page, as, strlen(as)) : cli_bytes_add(page, text, 1);
  }
  return good;
}

const char *compare_class(size_t file) {
  static const char *const classes[COMPARE_FILES] = {
      "c0",    "c1",    "c2",    "c3",    "c4",    "c5",    "c6",    "c7",
      "c0 p1", "c1 p1", "c2 p1", "c3 p1", "c4 p1", "c5 p1", "c6 p1", "c7 p1"};
  return classes[file];
}

char compare_letter(size_t file) {
  return (char)('A' + file);
}

static bool is_second(size_t file) {
  return file >= COMPARE_FILES / 2;
}

/* --- Bars ---------------------------------------------------------------------- */

static double most_rate(const compare *c, const compare_test *t) {
  double most = 0;
  for (size_t f = 0; f < c->files; f++)
    if (t->best[f] && t->best[f]->rate > most) most = t->best[f]->rate;
  return most;
}

static bool put_rate(const compare *c, cli_bytes *page, const compare_test *t, size_t f) {
  const compare_result *r = t->best[f];
  double ratio = compare_ratio(c, t, f);
  int digits = r->rate < 10 ? 2 : r->rate < 100 ? 1 : 0;
  bool good = compare_put(page, "%.*f tokens/s", digits, r->rate);
  char text[32];
  if (f && ratio > 0)
    good = good && compare_put(page, ", %s&times;", compare_ratio_text(ratio, text));
  if (r->first > 0) good = good && compare_put(page, ", first token after %.3g s", r->first);
  return good;
}

static bool put_share(cli_bytes *page, const compare_result *r) {
  if (r->percent <= 0 || !r->bound) return compare_put(page, "limit not known");
  if (!r->valid)
    return compare_put(page, "<span class=mark>not valid: a limit was measured too low</span>");
  return compare_put(page, "%.0f&#8201;%% of ", r->percent) &&
         compare_put_text(page, compare_bound_words(r->bound));
}

/* One line: name, bar, value. */
static bool put_bar(const compare *c, cli_bytes *page, const compare_test *t, size_t f,
                    bool percent) {
  const compare_result *r = t->best[f];
  double width = !percent ? 100 * r->rate / most_rate(c, t) : r->valid ? r->percent : 0;
  bool good = compare_put(page, "<div class=row><span class=name><b>%c</b> ", compare_letter(f)) &&
              compare_put_text(page, c->file[f].label) &&
              compare_put(page,
                          "</span><span class=track><span class=\"bar %s\" style=\"width:%.2f%%\">"
                          "</span></span><span class=value>", compare_class(f), width);
  good = good && (percent ? put_share(page, r) : put_rate(c, page, t, f));
  if (r->disturbed)
    good = good &&
           compare_put(page, " <span class=mark>&#9888; %zu of %zu samples disturbed</span>",
                       r->disturbed, r->samples);
  return good && compare_put(page, "</span></div>\n");
}

bool compare_bars(const compare *c, cli_bytes *page, bool percent) {
  bool good = true;
  for (size_t i = 0; good && i < c->tests; i++) {
    char name[64];
    good = compare_put(page, "<div class=bars><h3>%s</h3>\n",
                       compare_test_name(&c->test[i], name));
    for (size_t f = 0; good && f < c->files; f++)
      if (c->test[i].best[f]) good = put_bar(c, page, &c->test[i], f, percent);
    good = good && compare_put(page, "</div>\n");
  }
  return good;
}

/* --- Plots --------------------------------------------------------------------- */

/* Left of the frame: six digits beside the turned name of the axis, on a phone too. */
enum { WIDTH = 442, HEIGHT = 300, LEFT = 74, RIGHT = 14, TOP = 12, BOTTOM = 40 };

/* Where values lie; by their logarithms or as they are. */
typedef struct axes {
  double x0, x1, y0, y1;
  bool logarithmic;
} axes;

static double place(double v, double from, double to, bool logarithmic) {
  return logarithmic ? log(v / from) / log(to / from) : (v - from) / (to - from);
}
static double x_of(const axes *a, double x) {
  return LEFT + (WIDTH - LEFT - RIGHT) * place(x, a->x0, a->x1, a->logarithmic);
}
static double y_of(const axes *a, double y) {
  return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * place(y, a->y0, a->y1, a->logarithmic);
}

static bool put_line(cli_bytes *page, const char *class, const axes *a, double x0, double y0,
                     double x1, double y1) {
  return compare_put(page, "<line class=\"%s\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>",
                     class, x_of(a, x0), y_of(a, y0), x_of(a, x1), y_of(a, y1));
}

static bool put_tick(cli_bytes *page, const axes *a, bool horizontal, double v) {
  char text[32];
  snprintf(text, sizeof text, v >= 1e6 ? "%.0e" : "%.6g", v);
  if (horizontal)
    return put_line(page, "grid", a, v, a->y0, v, a->y1) &&
           compare_put(page, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%s</text>",
                       x_of(a, v), HEIGHT - BOTTOM + 15, text);
  return put_line(page, "grid", a, a->x0, v, a->x1, v) &&
         compare_put(page, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%s</text>", LEFT - 5,
                     y_of(a, v) + 4, text);
}

/* Powers of ten, or about five round numbers. */
static bool put_ticks(cli_bytes *page, const axes *a, bool horizontal) {
  double from = horizontal ? a->x0 : a->y0, to = horizontal ? a->x1 : a->y1;
  bool good = true;
  if (a->logarithmic) {
    double step = log10(to / from) > 7 ? 100 : 10;
    for (double v = pow(10, ceil(log10(from) - 1e-9)); good && v <= to * 1.0001; v *= step)
      good = put_tick(page, a, horizontal, v);
    return good;
  }
  double step = pow(10, floor(log10(to / 4)));
  while (to / step > 6) step *= to / step > 12 ? 5 : 2;
  if (horizontal && step < 1) step = 1;
  for (double v = ceil(from / step) * step; good && v <= to * 1.0001; v += step)
    good = put_tick(page, a, horizontal, v);
  return good;
}

static bool open_plot(cli_bytes *page, const axes *a, const char *title, const char *x,
                      const char *y) {
  return compare_put(page, "<figure><figcaption>") && compare_put_text(page, title) &&
         compare_put(page, "</figcaption>\n<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"",
                     WIDTH, HEIGHT) &&
         compare_put_text(page, title) && compare_put(page, "\">") &&
         put_ticks(page, a, true) && put_ticks(page, a, false) &&
         compare_put(page,
                     "<text class=axis x=\"%d\" y=\"%d\" text-anchor=\"middle\">%s</text>"
                     "<text class=axis transform=\"translate(11,%d) rotate(-90)\" "
                     "text-anchor=\"middle\">%s</text>\n",
                     (WIDTH + LEFT - RIGHT) / 2, HEIGHT - 6, x, (HEIGHT - BOTTOM + TOP) / 2, y);
}

/* --- Roofline ------------------------------------------------------------------ */

/* What a file's machine allows where its first test ran. */
typedef struct roof {
  double read, int8, fp32;
} roof;

/* The highest of each limit among the places of a file's best results. */
static roof roof_of(const compare *c, size_t f) {
  roof best = {0};
  for (size_t i = 0; i < c->tests; i++) {
    const compare_result *r = c->test[i].best[f];
    const json_t *limits = r ? compare_limits(&c->file[f], r) : NULL;
    double read = compare_number(limits, "read.best"), int8 = compare_number(limits, "int8.best"),
           fp32 = compare_number(limits, "fp32.best");
    if (read > best.read) best.read = read;
    if (int8 > best.int8) best.int8 = int8;
    if (fp32 > best.fp32) best.fp32 = fp32;
  }
  return best;
}

/* Operations for each byte, and a second. */
static bool point_of(const compare_result *r, double *x, double *y) {
  if (!r || r->bytes <= 0 || r->operations <= 0) return false;
  *x = r->operations / r->bytes;
  *y = r->operations * r->rate / (r->tokens * r->batch);
  return true;
}

static void widen(double *from, double *to, double v) {
  if (v > 0 && (*from == 0 || v < *from)) *from = v;
  if (v > *to) *to = v;
}

static bool roofline_axes(const compare *c, axes *a) {
  *a = (axes){.logarithmic = true};
  bool any = false;
  for (size_t f = 0; f < c->files; f++) {
    roof r = roof_of(c, f);
    if (r.read <= 0) continue;
    widen(&a->x0, &a->x1, r.int8 / r.read);
    widen(&a->x0, &a->x1, r.fp32 / r.read);
    widen(&a->y0, &a->y1, r.int8);
    widen(&a->y0, &a->y1, r.fp32);
    for (size_t i = 0; i < c->tests; i++) {
      double x, y;
      if (!point_of(c->test[i].best[f], &x, &y)) continue;
      widen(&a->x0, &a->x1, x);
      widen(&a->y0, &a->y1, y);
      any = true;
    }
  }
  a->x0 /= 2;
  a->x1 *= 4;
  a->y0 /= 3;
  a->y1 *= 2;
  a->y0 *= 1e-9; /* billions a second */
  a->y1 *= 1e-9;
  return any && a->x0 > 0 && a->y0 > 0;
}

/* Up with the intensity to a peak, level from there. */
static bool put_roof(cli_bytes *page, const axes *a, const char *class, double read, double peak) {
  if (read <= 0 || peak <= 0) return true;
  double left = a->x0, bend = peak / read;
  if (read * left < a->y0) left = a->y0 / read;
  if (bend > a->x1) bend = a->x1;
  return put_line(page, class, a, left, read * left, bend, read * bend) &&
         put_line(page, class, a, bend, read * bend, a->x1, read * bend);
}

static const double MARK = 4.5; /* from the middle of a mark to its edge */

/* A circle, for the second eight files a square. */
static bool put_mark(cli_bytes *page, size_t f, double x, double y, double r) {
  if (is_second(f))
    return compare_put(page, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"/>", x - r,
                       y - r, 2 * r, 2 * r);
  return compare_put(page, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%.1f\"/>", x, y, r);
}

/* A result where it is drawn. */
typedef struct point {
  size_t file, test;
  double x, y;   /* operations a byte, and a second */
  double px, py; /* on the page */
} point;

typedef struct box {
  double x0, y0, x1, y1;
} box;

/* What must not be covered: marks and labels. */
typedef struct boxes {
  box *item;
  size_t count;
} boxes;

static bool is_free(const boxes *taken, box b) {
  bool inside = b.x0 >= LEFT && b.x1 <= WIDTH - RIGHT && b.y0 >= TOP && b.y1 <= HEIGHT - BOTTOM;
  for (size_t i = 0; inside && i < taken->count; i++) {
    const box *o = &taken->item[i];
    inside = b.x0 >= o->x1 || o->x0 >= b.x1 || b.y0 >= o->y1 || o->y0 >= b.y1;
  }
  return inside;
}

/* In rings around its point, the nearest place that is free. */
static bool find_place(const boxes *taken, const point *p, double width, box *to, bool *near) {
  enum { RINGS = 10, TURNS = 12 };
  const double first = 12, step = 11, half = 6;
  for (int ring = 0; ring < RINGS; ring++)
    for (int turn = 0; turn < TURNS; turn++) {
      double angle = M_PI * (2.0 * turn / TURNS - 0.25), away = first + step * ring;
      double x = p->px + (away + width / 2) * cos(angle), y = p->py + away * sin(angle);
      *to = (box){x - width / 2, y - half, x + width / 2, y + half};
      *near = ring == 0;
      if (is_free(taken, *to)) return true;
    }
  return false;
}

static double nearest(double v, double from, double to) {
  return v < from ? from : v > to ? to : v;
}

/* With a line to its point where it stands away from it. *put is false where there is no room. */
static bool put_label(cli_bytes *page, boxes *taken, const point *p, bool *put) {
  const double character = 8.6; /* the widest, in the letters of a phone */
  char text[24];
  box b;
  bool near;
  int n = snprintf(text, sizeof text, "%c%zu", compare_letter(p->file), p->test + 1);
  *put = find_place(taken, p, character * n, &b, &near);
  if (!*put) return true;
  taken->item[taken->count++] = b;
  if (!near && !compare_put(page,
                            "<line class=\"lead\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" "
                            "y2=\"%.1f\"/>",
                            p->px, p->py, nearest(p->px, b.x0, b.x1), nearest(p->py, b.y0, b.y1)))
    return false;
  return compare_put(page,
                     "<text class=number x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%s</text>\n",
                     (b.x0 + b.x1) / 2, b.y1 - 2, text);
}

static bool put_point(cli_bytes *page, const compare *c, const point *p) {
  char name[64];
  bool valid = c->test[p->test].best[p->file]->valid;
  return compare_put(page, "<g class=\"%s %s\"><title>", valid ? "dot" : "hollow",
                     compare_class(p->file)) &&
         compare_put_text(page, c->file[p->file].label) &&
         compare_put(page, ": %s, %.3g operations a byte, %.4g billion a second</title>",
                     compare_test_name(&c->test[p->test], name), p->x, p->y * 1e-9) &&
         put_mark(page, p->file, p->px, p->py, MARK) && compare_put(page, "</g>\n");
}

/* All that can be drawn; returns how many. */
static size_t find_points(const compare *c, const axes *a, point *to) {
  size_t count = 0;
  for (size_t f = 0; f < c->files; f++)
    for (size_t i = 0; i < c->tests; i++) {
      point p = {.file = f, .test = i};
      if (!point_of(c->test[i].best[f], &p.x, &p.y)) continue;
      p.px = x_of(a, p.x);
      p.py = y_of(a, p.y * 1e-9);
      to[count++] = p;
    }
  return count;
}

/* Marks first, so that no label lies on one. */
static bool put_points(const compare *c, cli_bytes *page, const axes *a, size_t *bare) {
  enum { MOST_LABELS = 256 }; /* each is held against all others */
  size_t most = c->files * c->tests;
  point *p = calloc(most + 1, sizeof *p);
  boxes taken = {.item = calloc(2 * most + 1, sizeof *taken.item)};
  bool good = p && taken.item, put;
  size_t count = good ? find_points(c, a, p) : 0;
  for (size_t i = 0; good && i < count; i++) {
    taken.item[taken.count++] =
        (box){p[i].px - MARK, p[i].py - MARK, p[i].px + MARK, p[i].py + MARK};
    good = put_point(page, c, &p[i]);
  }
  *bare = count > MOST_LABELS ? count - MOST_LABELS : 0;
  for (size_t i = 0; good && i < count - (count > MOST_LABELS ? count - MOST_LABELS : 0); i++) {
    good = put_label(page, &taken, &p[i], &put);
    *bare += !put;
  }
  free(p);
  free(taken.item);
  return good;
}

static bool put_roofs(const compare *c, cli_bytes *page, const axes *a) {
  bool good = true;
  for (size_t f = 0; good && f < c->files; f++) {
    char class[24];
    roof r = roof_of(c, f);
    snprintf(class, sizeof class, "roof %s", compare_class(f));
    good = put_roof(page, a, class, r.read * 1e-9, r.int8 * 1e-9);
    snprintf(class, sizeof class, "roof dash %s", compare_class(f));
    good = good && put_roof(page, a, class, r.read * 1e-9, r.fp32 * 1e-9);
  }
  return good;
}

bool compare_roofline(const compare *c, cli_bytes *page) {
  axes a;
  char name[64];
  size_t bare = 0;
  if (!roofline_axes(c, &a)) return true;
  bool good = open_plot(page, &a, "Roofline: what memory and arithmetic allow, and what is reached",
                        "operations for each byte read", "billion operations a second") &&
              put_roofs(c, page, &a) && put_points(c, page, &a, &bare) &&
              compare_put(page, "</svg>\n<p class=small>Solid roofs: int8, dashed: fp32. "
                                "A hollow point: a limit was measured too low. A letter "
                                "is a file, a number a test: ");
  for (size_t i = 0; good && i < c->tests; i++)
    good = compare_put(page, "%s<b>%zu</b> %s", i ? ", " : "", i + 1,
                       compare_test_name(&c->test[i], name));
  if (good && bare)
    good = compare_put(page, ". There is no room for the names of %zu points: the pointer on one "
                             "shows it", bare);
  return good && compare_put(page, ".</p></figure>\n");
}

/* --- Threads ------------------------------------------------------------------- */

enum { MOST_POINTS = 64 };

typedef struct curve {
  double x[MOST_POINTS], y[MOST_POINTS];
  bool disturbed[MOST_POINTS]; /* all samples of it */
  size_t count;
} curve;

/* Keeps the larger of two values at a place, and the places in order. */
static void add_point(curve *to, double x, double y, bool disturbed) {
  size_t at = to->count;
  for (size_t i = 0; i < to->count; i++)
    if (to->x[i] == x) {
      if (y > to->y[i]) to->disturbed[i] = disturbed;
      if (y > to->y[i]) to->y[i] = y;
      return;
    }
  if (to->count == MOST_POINTS || x <= 0 || y <= 0) return;
  for (; at > 0 && to->x[at - 1] > x; at--) {
    to->x[at] = to->x[at - 1];
    to->y[at] = to->y[at - 1];
    to->disturbed[at] = to->disturbed[at - 1];
  }
  to->x[at] = x;
  to->y[at] = y;
  to->disturbed[at] = disturbed;
  to->count++;
}

static bool all_disturbed(const compare_result *r) {
  return r->samples > 0 && r->disturbed == r->samples;
}

static curve rates_of(const compare_file *f, const compare_test *t) {
  curve k = {.count = 0};
  for (size_t i = 0; i < f->results; i++) {
    const compare_result *r = &f->result[i];
    if (compare_same_test(t, r)) add_point(&k, r->threads, r->rate, all_disturbed(r));
  }
  return k;
}

static curve memory_of(const compare_file *f) {
  curve k = {.count = 0};
  size_t i;
  json_t *entry;
  json_array_foreach(compare_get(f->root, "machine_limits.by_threads"), i, entry) {
    add_point(&k, compare_number(entry, "threads"), 1e-9 * compare_number(entry, "read.best"),
              false);
  }
  return k;
}

static bool put_curve(cli_bytes *page, const axes *a, const compare *c, size_t f, const curve *k) {
  if (!k->count) return true;
  const char *class = compare_class(f);
  bool good = compare_put(page, "<g class=\"dot %s\"><title>", class) &&
              compare_put_text(page, c->file[f].label) &&
              compare_put(page, "</title><polyline class=\"roof %s\" points=\"", class);
  for (size_t i = 0; good && i < k->count; i++)
    good = compare_put(page, "%s%.1f,%.1f", i ? " " : "", x_of(a, k->x[i]), y_of(a, k->y[i]));
  good = good && compare_put(page, "\"/>");
  for (size_t i = 0; good && i < k->count; i++)
    good = put_mark(page, f, x_of(a, k->x[i]), y_of(a, k->y[i]), 3.5);
  size_t last = k->count - 1; /* the letters of curves that end alike stand side by side */
  return good && compare_put(page, "</g><text class=number x=\"%.1f\" y=\"%.1f\">%c</text>\n",
                             x_of(a, k->x[last]) - 4 - 9 * (double)(f % 4), y_of(a, k->y[last]) - 7,
                             compare_letter(f));
}

/* The best rates of a test's work by the number of sequences at once. */
static curve batches_of(const compare_file *f, const compare_test *t) {
  curve k = {.count = 0};
  for (size_t i = 0; i < f->results; i++) {
    const compare_result *r = &f->result[i];
    if (compare_same_work(t, r)) add_point(&k, r->batch, r->rate, all_disturbed(r));
  }
  return k;
}

/* Where more threads stop to help: the first that reach 95 % of the best rate. */
static bool put_knees(const compare *c, cli_bytes *page, const curve *curves) {
  const double enough = 0.95;
  bool good = true, any = false;
  for (size_t f = 0; good && f < c->files; f++) {
    const curve *k = &curves[f];
    double best = 0;
    size_t at = 0;
    for (size_t i = 0; i < k->count; i++)
      if (k->y[i] > best) best = k->y[i];
    while (at < k->count && k->y[at] < enough * best) at++;
    if (k->count < 2 || at == k->count) continue;
    good = compare_put(page, any ? "; " : "<p class=small>Knee, where 95&#8201;%% of the best rate "
                                         "is reached: ") &&
           compare_put_text(page, c->file[f].label) &&
           compare_put(page, " %.0f thread%s%s", k->x[at], k->x[at] > 1 ? "s" : "",
                       k->disturbed[at] ? " <span class=mark>(all of its samples were "
                                          "disturbed)</span>"
                                        : "");
    any = true;
  }
  return good && (!any || compare_put(page, ".</p>\n"));
}

/* A plot of one curve for each file, when one of them has two points or more. */
static bool put_curves(const compare *c, cli_bytes *page, const curve *curves, const char *title,
                       const char *x, const char *unit) {
  axes a = {.x0 = 0, .x1 = 2};
  bool any = false;
  for (size_t f = 0; f < c->files; f++) {
    any = any || curves[f].count > 1;
    for (size_t i = 0; i < curves[f].count; i++) {
      if (curves[f].x[i] > a.x1) a.x1 = curves[f].x[i];
      if (curves[f].y[i] > a.y1) a.y1 = curves[f].y[i];
    }
  }
  if (!any) return true;
  a.x1 *= 1.04;
  a.y1 *= 1.08;
  bool good = open_plot(page, &a, title, x, unit);
  for (size_t f = 0; good && f < c->files; f++) good = put_curve(page, &a, c, f, &curves[f]);
  good = good && compare_put(page, "</svg>\n");
  if (good && strcmp(x, "threads") == 0) good = put_knees(c, page, curves);
  return good && compare_put(page, "</figure>\n");
}

/* Once for tests that differ in nothing else. */
static bool put_batches(const compare *c, cli_bytes *page, curve *curves, size_t test) {
  compare_test one = c->test[test];
  char name[64], title[128];
  for (size_t i = 0; i < test; i++)
    if (strcmp(c->test[i].work, one.work) == 0 && c->test[i].tokens == one.tokens &&
        c->test[i].depth == one.depth)
      return true;
  one.batch = 1;
  for (size_t f = 0; f < c->files; f++) curves[f] = batches_of(&c->file[f], &one);
  snprintf(title, sizeof title, "%s, by sequences at once", compare_test_name(&one, name));
  return put_curves(c, page, curves, title, "sequences at once", "tokens/s");
}

bool compare_scaling(const compare *c, cli_bytes *page) {
  curve *curves = calloc(COMPARE_FILES, sizeof *curves);
  bool good = curves != NULL;
  for (size_t i = 0; good && i < c->tests; i++) {
    char name[64], title[128];
    for (size_t f = 0; f < c->files; f++) curves[f] = rates_of(&c->file[f], &c->test[i]);
    snprintf(title, sizeof title, "%s, by threads", compare_test_name(&c->test[i], name));
    good = put_curves(c, page, curves, title, "threads", "tokens/s") &&
           put_batches(c, page, curves, i);
  }
  for (size_t f = 0; good && f < c->files; f++) curves[f] = memory_of(&c->file[f]);
  good = good && put_curves(c, page, curves, "Reading memory, by threads", "threads", "GB/s");
  free(curves);
  return good;
}
