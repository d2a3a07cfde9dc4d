/* SPDX-License-Identifier: MIT
 * The page: everything in one file, without scripts and without a network. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <headrow/headrow.h>

#include "compare.h"

static const char style[] =
    ":root{color-scheme:light dark;--bg:#fff;--fg:#1d2430;--soft:#5a6472;--line:#d9dee5;"
    "--box:#f4f6f9;--mark:#fff1c2;--warn:#9a5b00;"
    "--c0:#0072b2;--c1:#d55e00;--c2:#00845f;--c3:#b8478c;--c4:#8a6d00;--c5:#5b3fc4;"
    "--c6:#7a3b1f;--c7:#4f5661}\n"
    "@media(prefers-color-scheme:dark){:root{--bg:#12161c;--fg:#e4e8ee;--soft:#9aa5b3;"
    "--line:#2f3742;--box:#1b212a;--mark:#4a3d12;--warn:#f0b95a;"
    "--c0:#58b0ec;--c1:#ff9552;--c2:#45cfa5;--c3:#ee9bcd;--c4:#e3c04a;--c5:#b09cff;"
    "--c6:#d0a088;--c7:#b9c2cf}}\n"
    "*{box-sizing:border-box}"
    "body{margin:0 auto;max-width:70rem;padding:1rem;background:var(--bg);color:var(--fg);"
    "font:16px/1.5 system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif}\n"
    "h1{font-size:1.5rem;margin:.2rem 0}h2{font-size:1.2rem;margin:2rem 0 .6rem;"
    "border-bottom:1px solid var(--line);padding-bottom:.2rem}"
    "h3{font-size:1rem;margin:.9rem 0 .3rem}p{margin:.4rem 0}\n"
    ".small,footer{font-size:.85rem;color:var(--soft)}"
    ".files{display:flex;flex-wrap:wrap;gap:.6rem;padding:0;margin:.6rem 0;list-style:none}"
    ".files li{flex:1 1 16rem;min-width:0;background:var(--box);border-radius:8px;"
    "padding:.5rem .8rem;border-left:6px solid;overflow-wrap:anywhere}\n"
    ".why{background:var(--box);border-radius:8px;padding:.5rem .8rem;margin:.6rem 0;"
    "overflow-wrap:anywhere}summary{cursor:pointer}"
    ".notes{color:var(--warn);padding-left:1.2rem;overflow-wrap:anywhere}\n"
    ".charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,26rem),1fr));"
    "gap:0 2rem}\n"
    ".row{display:grid;grid-template-columns:minmax(4rem,9rem) 1fr;gap:0 .6rem;margin:.3rem 0;"
    "align-items:center}"
    ".name{overflow:hidden;text-overflow:ellipsis;white-space:nowrap;font-size:.9rem}"
    ".track{background:var(--box);border-radius:4px;height:1.1rem;display:block;overflow:hidden}"
    ".bar{display:block;height:100%;min-width:2px;background:currentColor;border-radius:4px}"
    ".value{grid-column:2;font-size:.85rem;font-variant-numeric:tabular-nums;color:var(--soft)}"
    ".mark{color:var(--warn)}\n"
    "figure{margin:.8rem 0;min-width:0}figcaption{font-weight:600;font-size:.95rem}"
    "svg{width:100%;height:auto;display:block}"
    "svg text{fill:var(--soft);font-size:11px}svg .axis{font-size:12px}"
    "svg .number{fill:var(--fg);font-weight:600;paint-order:stroke;stroke:var(--bg);"
    "stroke-width:2px}.lead{stroke:var(--soft);stroke-width:.7}"
    ".grid{stroke:var(--line);stroke-width:1}.roof{stroke:currentColor;stroke-width:2;fill:none}"
    ".dash{stroke-dasharray:6 4;stroke-width:1.5}.dot{fill:currentColor}\n"
    ".legend{display:flex;flex-wrap:wrap;gap:.2rem 1.2rem;padding:0;margin:.4rem 0;"
    "list-style:none;font-size:.9rem}.legend li{min-width:0;overflow-wrap:anywhere}"
    ".legend i{display:inline-block;width:.8rem;height:.8rem;border-radius:50%;"
    "background:currentColor;margin-right:.4rem}.legend span{color:var(--fg)}\n"
    ".scroll{overflow-x:auto}table{border-collapse:collapse;width:100%;font-size:.9rem}"
    "th,td{text-align:left;padding:.3rem .6rem;border-bottom:1px solid var(--line);"
    "vertical-align:top;overflow-wrap:anywhere;min-width:6rem}"
    "td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}"
    "tbody th{font-weight:500;color:var(--soft);min-width:7rem}"
    "tr.differs td{background:var(--mark)}\n"
    ".c0{color:var(--c0)}.c1{color:var(--c1)}.c2{color:var(--c2)}.c3{color:var(--c3)}"
    ".c4{color:var(--c4)}.c5{color:var(--c5)}.c6{color:var(--c6)}.c7{color:var(--c7)}"
    ".files span{color:var(--fg)}\n"
    ".bar.p1,.legend .p1 i{background:repeating-linear-gradient(45deg,currentColor 0 3px,"
    "transparent 3px 6px);border:1px solid}.legend .p1 i{border-radius:0}"
    ".files .p1{border-left-style:double}.roof.p1{stroke-dasharray:2 3}"
    ".roof.dash.p1{stroke-dasharray:7 3 2 3}.hollow{stroke:currentColor;stroke-width:2;fill:none}\n"
    "@media(max-width:32rem){.row{grid-template-columns:5.5rem 1fr}svg text{font-size:13px}"
    "svg .axis{font-size:14px}th,td{padding:.3rem .4rem;min-width:6.5rem}}\n"
    "@media print{body{max-width:none}}\n";

/* --- The head ------------------------------------------------------------------ */

static bool put_value(cli_bytes *page, const char *before, const char *text) {
  if (!text || !*text) return true;
  return compare_put(page, "%s", before) && compare_put_text(page, text);
}

static bool put_files(const compare *c, cli_bytes *page) {
  bool good = compare_put(page, "<ul class=files>\n");
  for (size_t f = 0; good && f < c->files; f++) {
    const json_t *root = c->file[f].root;
    good = compare_put(page, "<li class=\"%s\"><span><b>%c ", compare_class(f),
                       compare_letter(f)) &&
           compare_put_text(page, c->file[f].label) && compare_put(page, "</b>") &&
           put_value(page, "<br>", compare_text(root, "machine.cpu")) &&
           put_value(page, ", ", compare_text(root, "machine.architecture")) &&
           put_value(page, "<br>model ", compare_text(root, "model.name")) &&
           put_value(page, "<br><span class=small>", compare_text(root, "time")) &&
           compare_put(page, "%s</span></li>\n", compare_text(root, "time") ? "</span>" : "");
  }
  return good && compare_put(page, "</ul>\n");
}

static bool put_notes(const compare *c, cli_bytes *page) {
  const char *at = c->notes.data;
  if (!at) return true;
  const char *end = at + c->notes.used;
  bool good = compare_put(page, "<ul class=notes>\n");
  while (good && at < end) {
    const char *line = memchr(at, '\n', (size_t)(end - at));
    char *text = strndup(at, (size_t)(line - at));
    good = text && compare_put(page, "<li>") && compare_put_text(page, text) &&
           compare_put(page, "</li>\n");
    free(text);
    at = line + 1;
  }
  return good && compare_put(page, "</ul>\n");
}

/* Of several tests each is folded under its first sentence. */
static bool put_test_words(cli_bytes *page, const char *text, bool folded) {
  size_t head = strcspn(text, ":"); /* the test's name */
  const char *first = strstr(text + head, "tokens/s). "), *rest = first ? first + 10 : NULL;
  if (!folded || !rest)
    return compare_put(page, "<p class=why><b>%.*s</b>", (int)head, text) &&
           compare_put_text(page, text + head) && compare_put(page, "</p>\n");
  char *opening = strndup(text + head, (size_t)(rest - (text + head)));
  bool good = opening &&
              compare_put(page, "<details class=why><summary><b>%.*s</b>", (int)head, text) &&
              compare_put_text(page, opening) && compare_put(page, "</summary><p>") &&
              compare_put_text(page, rest) && compare_put(page, "</p></details>\n");
  free(opening);
  return good;
}

static bool put_file_words(const compare *c, cli_bytes *page, size_t f, bool *any) {
  char *all = compare_summary(c, f);
  bool folded = all && *all, good = all != NULL;
  for (size_t i = 0; good && i < c->tests; i++) {
    char *text = compare_why(c, &c->test[i], f);
    good = text != NULL;
    if (good && *text) {
      good = *any || compare_put(page, "<h2>Why</h2>\n");
      if (good && folded && *all)
        good = compare_put(page, "<p class=why>") && compare_put_text(page, all) &&
               compare_put(page, "</p>\n");
      if (all) *all = '\0'; /* once */
      good = good && put_test_words(page, text, folded);
      *any = true;
    }
    free(text);
  }
  free(all);
  return good;
}

static bool put_words(const compare *c, cli_bytes *page) {
  bool good = true, any = false;
  for (size_t f = 1; good && f < c->files; f++) good = put_file_words(c, page, f, &any);
  return good;
}

static bool put_legend(const compare *c, cli_bytes *page) {
  bool good = compare_put(page, "<ul class=legend>");
  for (size_t f = 0; good && f < c->files; f++)
    good = compare_put(page, "<li class=\"%s\"><i></i><span><b>%c</b> ", compare_class(f),
                       compare_letter(f)) &&
           compare_put_text(page, c->file[f].label) && compare_put(page, "</span></li>");
  return good && compare_put(page, "</ul>\n");
}

/* --- Tables -------------------------------------------------------------------- */

static bool open_table(const compare *c, cli_bytes *page, const char *first, bool numbers) {
  bool good = compare_put(page, "<div class=scroll><table><thead><tr><th>%s</th>", first);
  for (size_t f = 0; good && f < c->files; f++)
    good = compare_put(page, "<th%s>%c ", numbers ? " class=n" : "", compare_letter(f)) &&
           compare_put_text(page, c->file[f].label) && compare_put(page, "</th>");
  return good && compare_put(page, "</tr></thead><tbody>\n");
}

static bool put_cell(cli_bytes *page, const compare_row *row, size_t f, bool numbers) {
  char ratio[32];
  bool good = compare_put(page, "<td%s>", numbers ? " class=n" : "") &&
              compare_put_text(page, row->value[f]);
  if (good && f && row->number[0] > 0 && row->number[f] > 0)
    good = compare_put(page, "<br><span class=small>%s&times;</span>",
                       compare_ratio_text(row->number[f] / row->number[0], ratio));
  return good && compare_put(page, "</td>");
}

/* Rows that some file has a value for. */
static bool put_table(const compare *c, cli_bytes *page, const char *first,
                      bool (*next)(const compare *, size_t, compare_row *), bool numbers) {
  compare_row row;
  bool good = open_table(c, page, first, numbers);
  for (size_t i = 0; good && next(c, i, &row); i++) {
    bool any = false;
    for (size_t f = 0; f < c->files; f++) any = any || strcmp(row.value[f], "-") != 0;
    if (!any || !*row.name) continue;
    good = compare_put(page, "<tr%s><th>", row.differs ? " class=differs" : "") &&
           compare_put_text(page, row.name) && compare_put(page, "</th>");
    for (size_t f = 0; good && f < c->files; f++) good = put_cell(page, &row, f, numbers);
    good = good && compare_put(page, "</tr>\n");
  }
  return good && compare_put(page, "</tbody></table></div>\n");
}

static bool put_state(const compare *c, cli_bytes *page) {
  if (!c->tests) return true;
  return compare_put(page, "<h2>While measuring</h2>\n<p class=small>Frequency (median of the "
                           "samples), the hottest sensor, throttling and energy.</p>\n") &&
         put_table(c, page, "", compare_state_row, false);
}

static bool put_kernels(const compare *c, cli_bytes *page) {
  if (!compare_has_kernels(c)) return true;
  return compare_put(page, "<h2>Kernels</h2>\n<p class=small>By the fastest tier.</p>\n") &&
         put_table(c, page, "kernel", compare_kernel_row, true);
}

/* --- All ------------------------------------------------------------------------ */

static bool put_charts(const compare *c, cli_bytes *page) {
  if (!c->tests) return true;
  return compare_put(page, "<h2>Rates</h2>\n<p class=small>The fastest tier and number of threads "
                           "of each file; medians.</p>\n<div class=charts>\n") &&
         compare_bars(c, page, false) &&
         compare_put(page, "</div>\n<h2>Share of the limit</h2>\n<p class=small>How much of what "
                           "the binding limit allows was reached.</p>\n<div class=charts>\n") &&
         compare_bars(c, page, true) &&
         compare_put(page, "</div>\n<h2>Limits and threads</h2>\n") && put_legend(c, page) &&
         compare_put(page, "<div class=charts>\n") && compare_roofline(c, page) &&
         compare_scaling(c, page) && compare_put(page, "</div>\n");
}

bool compare_page(const compare *c, cli_bytes *page) {
  return compare_put(page,
                     "<!doctype html>\n<html lang=en>\n<head><meta charset=utf-8>\n"
                     "<meta name=viewport content=\"width=device-width,initial-scale=1\">\n"
                     "<title>headrow compare</title>\n<style>\n%s</style></head>\n<body>\n"
                     "<h1>headrow compare</h1>\n",
                     style) &&
         put_files(c, page) && put_notes(c, page) && put_words(c, page) && put_charts(c, page) &&
         put_state(c, page) && compare_put(page, "<h2>Limits of the machines</h2>\n") &&
         put_table(c, page, "limit", compare_limit_row, true) && put_kernels(c, page) &&
         compare_put(page, "<h2>Machines and settings</h2>\n<p class=small>What differs is "
                           "marked.</p>\n") &&
         put_table(c, page, "", compare_record_row, false) &&
         compare_put(page, "<footer><p>Made by headrow %s.</p></footer>\n</body></html>\n",
                     hr_version());
}
