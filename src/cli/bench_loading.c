/* SPDX-License-Identifier: MIT
 * How long a model takes to load, from a file that the system holds in memory
 * (warm) and from one that it does not (cold). */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bench.h"
#include "builtin.h"
#include "machine.h"

/* What a file contributes: its pages and those in memory. */
typedef struct pages {
  size_t all, resident;
  bool known;
} pages;

static void count_pages(int fd, size_t bytes, pages *p) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE), count = (bytes + page - 1) / page;
  void *map = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
  unsigned char *in = malloc(count);
  bool good = map != MAP_FAILED && in && mincore(map, bytes, in) == 0;
  for (size_t i = 0; good && i < count; i++) p->resident += in[i] & 1;
  p->all += count;
  p->known = p->known && good;
  if (map != MAP_FAILED) munmap(map, bytes);
  free(in);
}

static void visit_file(const char *path, bool drop, pages *p) {
  struct stat s;
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0 || fstat(fd, &s) != 0 || !S_ISREG(s.st_mode)) {
    p->known = false;
  } else if (s.st_size > 0) {
    /* what is still to be written can't be dropped */
    if (drop && (fdatasync(fd) != 0 || posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) != 0))
      p->known = false;
    count_pages(fd, (size_t)s.st_size, p);
  }
  if (fd >= 0) close(fd);
}

static bool holds_weights(const char *name) {
  const char *dot = strrchr(name, '.');
  return dot && (strcmp(dot, ".safetensors") == 0 || strcmp(dot, ".gguf") == 0);
}

/* The share of a model's files that the system holds in memory, perhaps after
 * asking it to forget them; below 0 when that can't be known. */
static double resident_share(const char *path, bool drop) {
  pages p = {.known = true};
  DIR *folder = opendir(path);
  struct dirent *entry;
  if (!folder) visit_file(path, drop, &p);
  while (folder && (entry = readdir(folder))) {
    char *whole;
    if (!holds_weights(entry->d_name)) continue;
    if (asprintf(&whole, "%s/%s", path, entry->d_name) < 0) break;
    visit_file(whole, drop, &p);
    free(whole);
  }
  if (folder) closedir(folder);
  return p.known && p.all ? (double)p.resident / (double)p.all : -1;
}

/* --- Opening ------------------------------------------------------------------------ */

static void log_kernel(void *data, const char *slot, const char *kernel) {
  (void)data;
  cli_note("kernel %s: %s", slot, kernel);
}

static hr_model *open_image(bench *b, const cli_common *common, int *status) {
  hr_error err;
  bool show;
  hr_model_options o;
  hr_model_options_init(&o);
  cli_progress progress = bench_progress(b, "loading", &show);
  o.weights = (hr_weights)common->weights.value;
  o.isa = common->isa;
  o.progress = cli_report_progress;
  o.progress_data = show ? &progress : NULL;
  o.defer_weights = true;
  cli_threads_to_load(common, &o);
  hr_model *model = hr_model_open_memory(b->image.data, b->image.bytes, b->shape.name, &o, &err);
  if (!model)
    *status = cli_fail_error(err.status == HR_ERROR_USAGE ? common->isa_from : NULL, &err);
  else if (hr_model_load(model, &err) != HR_OK)
    *status = cli_fail_error(NULL, &err);
  cli_end_progress(&progress);
  if (*status != HR_OK) {
    hr_model_free(model);
    return NULL;
  }
  if (common->log.given) cli_visit_kernels(hr_model_isa(model), log_kernel, NULL);
  return model;
}

/* Seconds of one opening, which replaces the model so far. */
static int open_timed(bench *b, const cli_common *common, const char *path, double *seconds) {
  int status = HR_OK;
  hr_model_free(b->model);
  double start = cli_now();
  b->model = b->set.synthetic ? open_image(b, common, &status)
                              : cli_open_model(common, path, false, &status);
  *seconds = cli_now() - start;
  return status;
}

static void explain(char reason[128], double *seconds, const char *text) {
  *seconds = -1;
  snprintf(reason, 128, "%s", text);
}

/* Which of the two an opening was, by what was in memory before it. */
static void sort_in(bench_loading *l, double seconds, double share) {
  static const char other[] = "was not measured: --cold measures both";
  explain(l->cold_reason, &l->cold, other);
  explain(l->warm_reason, &l->warm, other);
  if (share < 0) {
    explain(l->cold_reason, &l->cold, "what the system holds of the file can't be known");
    explain(l->warm_reason, &l->warm, l->cold_reason);
  } else if (share <= 0.01) {
    l->cold = seconds;
  } else if (share >= 0.99) {
    l->warm = seconds;
  } else {
    snprintf(l->cold_reason, sizeof l->cold_reason,
             "%.0f %% of the file was in memory: neither cold nor warm", 100 * share);
    snprintf(l->warm_reason, sizeof l->warm_reason, "%s", l->cold_reason);
  }
}

/* Once from a file that was dropped, once more from memory; the second one stays. */
static int load_twice(bench *b, const cli_common *common, const char *path) {
  bench_loading *l = &b->loading;
  cli_common silent = *common;
  silent.untold = true;
  double share = resident_share(path, true), first;
  int status = open_timed(b, &silent, path, &first);
  if (status == HR_OK) status = open_timed(b, common, path, &l->seconds);
  if (status != HR_OK) return status;
  sort_in(l, first, share);
  if (l->cold < 0 && share > 0.01)
    snprintf(l->cold_reason, sizeof l->cold_reason,
             "the system kept %.0f %% of the file in memory when asked to drop it", 100 * share);
  l->warm = l->seconds;
  l->warm_reason[0] = '\0';
  return HR_OK;
}

int bench_load(bench *b, const cli_common *common) {
  const cli_texts *p = &common->positional;
  const char *path = b->set.synthetic || !p->count ? NULL : p->item[0];
  bench_loading *l = &b->loading;
  bool file = path && strcmp(path, CLI_BUILTIN) != 0;
  if (file && b->set.cold) return load_twice(b, common, path);
  double share = file ? resident_share(path, false) : -1;
  int status = open_timed(b, common, path, &l->seconds);
  sort_in(l, l->seconds, share);
  if (!file) {
    explain(l->cold_reason, &l->cold, "the model is no file");
    explain(l->warm_reason, &l->warm, l->cold_reason);
  }
  return status;
}
