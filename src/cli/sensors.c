/* SPDX-License-Identifier: MIT */
#include "sensors.h"

#include <errno.h>
#include <glob.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A counter of energy and where it starts anew; 0: not known. */
typedef struct counter {
  char *path;
  uint64_t range;
} counter;

struct cli_sensors {
  char *root;
  glob_t frequency, most_frequency, temperature, throttling;
  bool frequency_is_cpuinfo; /* /proc/cpuinfo's "cpu MHz" in place of cpufreq */
  char *firmware;            /* a board's flags */
  counter energy[CLI_ENERGY_COUNTERS];
  size_t counters;
  double most_mhz;
  char governor[CLI_SENSOR_TEXT], temperature_name[CLI_SENSOR_TEXT];
  char energy_name[CLI_SENSOR_TEXT], energy_reason[CLI_SENSOR_TEXT];
  char frequency_reason[CLI_SENSOR_TEXT], temperature_reason[CLI_SENSOR_TEXT];
  char throttling_reason[CLI_SENSOR_TEXT];
};

/* --- Files ------------------------------------------------------------------------ */

/* The first line without its end; false with errno when there is none. */
static bool read_text(const char *path, char *text, size_t size) {
  FILE *file = fopen(path, "re");
  if (!file) return false;
  errno = 0;
  bool good = fgets(text, (int)size, file) != NULL;
  if (!good && !errno) errno = ENODATA;
  int error = errno;
  fclose(file);
  errno = error;
  if (good) text[strcspn(text, "\n")] = '\0';
  return good;
}

/* A whole number and nothing else. */
static bool read_integer(const char *path, int64_t *value) {
  char text[64], *end;
  if (!read_text(path, text, sizeof text)) return false;
  errno = 0;
  *value = strtoll(text, &end, 0);
  bool good = end != text && *end == '\0' && errno == 0;
  if (!good) errno = EINVAL;
  return good;
}

static bool read_counter(const char *path, uint64_t *value) {
  int64_t n;
  if (!read_integer(path, &n)) return false;
  if (n < 0) errno = ERANGE;
  *value = (uint64_t)n;
  return n >= 0;
}

/* Files below the root by a pattern; none is fine. */
static void find(const cli_sensors *s, const char *pattern, bool more, glob_t *files) {
  char *whole;
  if (asprintf(&whole, "%s%s", s->root, pattern) < 0) return;
  glob(whole, more ? GLOB_APPEND : 0, NULL, files);
  free(whole);
}

/* The file of that name beside another one: a path to be freed. */
static char *beside(const char *path, const char *name) {
  const char *slash = strrchr(path, '/');
  char *other;
  int length = slash ? (int)(slash - path) : 0;
  return asprintf(&other, "%.*s/%s", length, path, name) < 0 ? NULL : other;
}

static bool text_beside(const char *path, const char *name, char *text, size_t size) {
  char *other = beside(path, name);
  bool good = other && read_text(other, text, size);
  free(other);
  return good;
}

/* Adds a word to a list with commas, once; what does not fit is left out. */
static void add_word(char *list, size_t size, const char *word) {
  size_t used = strlen(list), length = strlen(word);
  for (const char *at = list; *at; at += strcspn(at, ","), at += strspn(at, ", "))
    if (strcspn(at, ",") == length && strncmp(at, word, length) == 0) return;
  if (used + length + 3 <= size)
    snprintf(list + used, size - used, "%s%s", used ? ", " : "", word);
}

/* --- What there is ------------------------------------------------------------------- */

static void find_frequency(cli_sensors *s) {
  glob_t files = {0};
  char text[64];
  find(s, "/sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_cur_freq", false, &s->frequency);
  s->frequency_is_cpuinfo = s->frequency.gl_pathc == 0;
  find(s, "/sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_governor", false, &files);
  for (size_t i = 0; i < files.gl_pathc; i++)
    if (read_text(files.gl_pathv[i], text, sizeof text))
      add_word(s->governor, sizeof s->governor, text);
  globfree(&files);
  find(s, "/sys/devices/system/cpu/cpu[0-9]*/cpufreq/cpuinfo_max_freq", false, &s->most_frequency);
  for (size_t i = 0; i < s->most_frequency.gl_pathc; i++) {
    uint64_t khz;
    if (read_counter(s->most_frequency.gl_pathv[i], &khz) && (double)khz * 1e-3 > s->most_mhz)
      s->most_mhz = (double)khz * 1e-3;
  }
}

/* Names that drivers give to sensors of the CPU or of the chip it is on. */
static bool is_of_cpu(const char *name) {
  static const char *const parts[] = {"cpu", "pkg", "core", "soc", "k10temp", "zenpower",
                                      "big", "little", "cluster"};
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
    if (strcasestr(name, parts[i])) return true;
  return false;
}

/* Keeps the files whose sensor's name, in a file beside, is that of a CPU's. */
static void keep_temperatures(cli_sensors *s, const char *pattern, const char *name_file) {
  glob_t all = {0};
  char name[64];
  find(s, pattern, false, &all);
  for (size_t i = 0; i < all.gl_pathc; i++) {
    if (!text_beside(all.gl_pathv[i], name_file, name, sizeof name) || !is_of_cpu(name)) continue;
    glob(all.gl_pathv[i], s->temperature.gl_pathc ? GLOB_APPEND : 0, NULL, &s->temperature);
    add_word(s->temperature_name, sizeof s->temperature_name, name);
  }
  globfree(&all);
}

static void find_throttling(cli_sensors *s) {
  static const char flags[] = "/sys/devices/platform/soc/soc:firmware/get_throttled";
  find(s, "/sys/devices/system/cpu/cpu[0-9]*/thermal_throttle/core_throttle_count", false,
       &s->throttling);
  find(s, "/sys/devices/system/cpu/cpu[0-9]*/thermal_throttle/package_throttle_count",
       s->throttling.gl_pathc > 0, &s->throttling);
  if (asprintf(&s->firmware, "%s%s", s->root, flags) < 0) s->firmware = NULL;
  if (s->firmware && access(s->firmware, R_OK) != 0) {
    free(s->firmware);
    s->firmware = NULL;
  }
}

static void add_counter(cli_sensors *s, const char *path, const char *name) {
  uint64_t now, range = 0;
  if (s->counters == CLI_ENERGY_COUNTERS) return;
  if (!read_counter(path, &now)) {
    if (!*s->energy_reason)
      snprintf(s->energy_reason, sizeof s->energy_reason, "%.200s: %s", path + strlen(s->root),
               strerror(errno));
    return;
  }
  char *other = beside(path, "max_energy_range_uj");
  if (other && !read_counter(other, &range)) range = 0;
  free(other);
  char *copy = strdup(path);
  if (!copy) return;
  s->energy[s->counters++] = (counter){copy, range};
  add_word(s->energy_name, sizeof s->energy_name, name);
}

/* Domains of one interface: whole packages, and memory, which is no part of them.
 * Cores and graphics are parts of a package, "psys" holds the packages. */
static void add_powercap(cli_sensors *s, const char *pattern) {
  glob_t files = {0};
  char name[64];
  find(s, pattern, false, &files);
  for (size_t i = 0; i < files.gl_pathc; i++)
    if (text_beside(files.gl_pathv[i], "name", name, sizeof name) &&
        (strncmp(name, "package", 7) == 0 || strcmp(name, "dram") == 0))
      add_counter(s, files.gl_pathv[i], name);
  globfree(&files);
}

/* A socket's counter holds its cores; boards have one without a label. */
static void add_hwmon(cli_sensors *s) {
  glob_t files = {0};
  char name[64], label_file[64], label[64];
  find(s, "/sys/class/hwmon/hwmon*/energy*_input", false, &files);
  for (size_t i = 0; i < files.gl_pathc; i++) {
    const char *path = files.gl_pathv[i], *file = strrchr(path, '/') + 1;
    snprintf(label_file, sizeof label_file, "%.*slabel", (int)strcspn(file, "_") + 1, file);
    bool labelled = text_beside(path, label_file, label, sizeof label);
    if (labelled && !strcasestr(label, "socket") && !strcasestr(label, "package")) continue;
    if (!text_beside(path, "name", name, sizeof name)) snprintf(name, sizeof name, "hwmon");
    add_counter(s, path, labelled ? label : name);
  }
  globfree(&files);
}

static void drop_counters(cli_sensors *s) {
  for (size_t i = 0; i < s->counters; i++) free(s->energy[i].path);
  s->counters = 0;
}

static void add_rapl(cli_sensors *s) {
  add_powercap(s, "/sys/class/powercap/intel-rapl:*/energy_uj");
}

static void add_rapl_in_memory(cli_sensors *s) {
  add_powercap(s, "/sys/class/powercap/intel-rapl-mmio:*/energy_uj");
}

/* The same package is also seen through memory-mapped registers and through
 * hwmon: the first interface that gives all it has is the only one that counts. */
static void find_energy(cli_sensors *s) {
  static void (*const interfaces[])(cli_sensors *) = {add_rapl, add_rapl_in_memory, add_hwmon};
  char reason[CLI_SENSOR_TEXT] = "the system has no counter of energy (powercap, hwmon)";
  bool found = false;
  for (size_t i = 0; i < sizeof interfaces / sizeof *interfaces; i++) {
    s->energy_reason[0] = '\0';
    interfaces[i](s);
    if (s->counters && !*s->energy_reason) return;
    if (*s->energy_reason && !found) memcpy(reason, s->energy_reason, sizeof reason);
    found = found || *s->energy_reason;
    drop_counters(s); /* a part of the packages would pass for all */
  }
  memcpy(s->energy_reason, reason, sizeof reason);
}

/* Why nothing is known: there are no files, or the first of them says it. */
static void explain(const cli_sensors *s, const glob_t *files, const char *none, bool known,
                    char reason[CLI_SENSOR_TEXT]) {
  int64_t ignored;
  if (known) return;
  if (!files->gl_pathc) {
    snprintf(reason, CLI_SENSOR_TEXT, "%s", none);
    return;
  }
  const char *path = files->gl_pathv[0];
  bool readable = read_integer(path, &ignored);
  snprintf(reason, CLI_SENSOR_TEXT, "%.200s: %s", path + strlen(s->root),
           readable ? "no value that a machine can have" : strerror(errno));
}

static void explain_all(cli_sensors *s) {
  cli_state now;
  cli_sensors_read(s, NULL, &now);
  explain(s, &s->frequency, "the system has neither cpufreq nor MHz in /proc/cpuinfo", now.mhz > 0,
          s->frequency_reason);
  explain(s, &s->temperature, "the system has no sensor of the CPU (thermal zones, hwmon)",
          now.has_celsius, s->temperature_reason);
  explain(s, &s->throttling,
          "the system has neither counters (thermal_throttle) nor a firmware's flags",
          now.has_throttled, s->throttling_reason);
}

cli_sensors *cli_sensors_open(const char *root) {
  cli_sensors *s = calloc(1, sizeof *s);
  if (s) s->root = strdup(root);
  if (!s || !s->root) {
    free(s);
    return NULL;
  }
  find_frequency(s);
  keep_temperatures(s, "/sys/class/thermal/thermal_zone*/temp", "type");
  keep_temperatures(s, "/sys/class/hwmon/hwmon*/temp*_input", "name");
  find_throttling(s);
  find_energy(s);
  explain_all(s);
  return s;
}

void cli_sensors_free(cli_sensors *s) {
  if (!s) return;
  globfree(&s->frequency);
  globfree(&s->most_frequency);
  globfree(&s->temperature);
  globfree(&s->throttling);
  drop_counters(s);
  free(s->firmware);
  free(s->root);
  free(s);
}

/* --- Reading -------------------------------------------------------------------------- */

static void read_busy(const cli_sensors *s, cli_state *to) {
  enum { USER, NICE, SYSTEM, IDLE, WAIT, IRQ, SOFT_IRQ, STEAL, FIELDS };
  uint64_t v[FIELDS] = {0};
  char *path, line[256];
  to->busy = to->steal = -1;
  if (asprintf(&path, "%s/proc/stat", s->root) < 0) return;
  bool good = read_text(path, line, sizeof line) &&
              sscanf(line,
                     "cpu %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64
                     " %" SCNu64 " %" SCNu64,
                     &v[USER], &v[NICE], &v[SYSTEM], &v[IDLE], &v[WAIT], &v[IRQ], &v[SOFT_IRQ],
                     &v[STEAL]) >= IDLE;
  free(path);
  if (!good) return;
  double tick = 1.0 / (double)sysconf(_SC_CLK_TCK);
  to->steal = (double)v[STEAL] * tick;
  to->busy =
      (double)(v[USER] + v[NICE] + v[SYSTEM] + v[IRQ] + v[SOFT_IRQ]) * tick + to->steal;
}

/* The number in ".../cpuN/cpufreq/...". */
static unsigned cpu_of(const char *path) {
  const char *at = strstr(path, "/cpu/cpu");
  return at ? (unsigned)strtoul(at + strlen("/cpu/cpu"), NULL, 10) : HR_CPUS_MAX;
}

/* The mean over those CPUs. */
static double mean_mhz(const glob_t *files, const hr_cpuset *cpus) {
  double sum = 0;
  size_t count = 0;
  for (size_t i = 0; i < files->gl_pathc; i++) {
    const char *path = files->gl_pathv[i];
    uint64_t khz;
    if ((cpus && !hr_cpuset_has(cpus, cpu_of(path))) || !read_counter(path, &khz) || !khz) continue;
    sum += (double)khz * 1e-3;
    count++;
  }
  return count ? sum / (double)count : 0;
}

double cli_sensors_most_mhz(const cli_sensors *s, const hr_cpuset *cpus) {
  return mean_mhz(&s->most_frequency, cpus);
}

static double cpuinfo_mhz(const cli_sensors *s, const hr_cpuset *cpus) {
  char *path, line[512];
  unsigned cpu = 0;
  double sum = 0, mhz;
  size_t count = 0;
  if (asprintf(&path, "%s/proc/cpuinfo", s->root) < 0) return 0;
  FILE *file = fopen(path, "re");
  free(path);
  while (file && fgets(line, sizeof line, file))
    if (sscanf(line, "processor : %u", &cpu) != 1 && sscanf(line, "cpu MHz : %lf", &mhz) == 1 &&
        mhz > 0 && mhz < 1e6 && (!cpus || hr_cpuset_has(cpus, cpu))) {
      sum += mhz;
      count++;
    }
  if (file) fclose(file);
  return count ? sum / (double)count : 0;
}

/* A sensor that is broken reports values that no machine survives. */
static void read_temperature(const cli_sensors *s, cli_state *to) {
  for (size_t i = 0; i < s->temperature.gl_pathc; i++) {
    int64_t milli;
    if (!read_integer(s->temperature.gl_pathv[i], &milli) || milli < -40000 || milli > 150000)
      continue;
    double celsius = (double)milli * 1e-3;
    if (!to->has_celsius || celsius > to->celsius) to->celsius = celsius;
    to->has_celsius = true;
  }
}

static void read_throttling(const cli_sensors *s, cli_state *to) {
  const uint64_t now = 0xf; /* of the flags: the rest says what happened since the start */
  uint64_t n;
  char text[32], *end;
  for (size_t i = 0; i < s->throttling.gl_pathc; i++)
    if (read_counter(s->throttling.gl_pathv[i], &n)) {
      to->throttled += n;
      to->has_throttled = true;
    }
  if (!s->firmware || !read_text(s->firmware, text, sizeof text)) return;
  n = strtoull(text, &end, 16); /* with or without 0x */
  if (end == text || *end) return;
  to->has_throttled = true;
  to->throttled_now = (n & now) != 0;
}

void cli_sensors_read(const cli_sensors *s, const hr_cpuset *cpus, cli_state *to) {
  *to = (cli_state){0};
  read_busy(s, to);
  to->mhz = s->frequency_is_cpuinfo ? cpuinfo_mhz(s, cpus) : mean_mhz(&s->frequency, cpus);
  read_temperature(s, to);
  read_throttling(s, to);
  to->has_energy = s->counters > 0;
  for (size_t i = 0; i < s->counters; i++)
    if (!read_counter(s->energy[i].path, &to->energy[i])) to->has_energy = false;
}

cli_sensor_names cli_sensors_names(const cli_sensors *s) {
  cli_sensor_names n = {.most_mhz = s->most_mhz};
  cli_state r;
  cli_sensors_read(s, NULL, &r);
  if (*s->governor) n.governor = s->governor;
  if (r.mhz > 0) n.frequency = s->frequency_is_cpuinfo ? "cpuinfo" : "cpufreq";
  if (r.has_celsius) n.temperature = s->temperature_name;
  if (r.has_throttled) n.throttling = s->throttling.gl_pathc ? "thermal_throttle" : "firmware";
  if (s->counters) n.energy = s->energy_name;
  if (!s->counters) n.energy_reason = s->energy_reason;
  if (!n.frequency) n.frequency_reason = s->frequency_reason;
  if (!n.temperature) n.temperature_reason = s->temperature_reason;
  if (!n.throttling) n.throttling_reason = s->throttling_reason;
  return n;
}

double cli_sensors_joules(const cli_sensors *s, const cli_state *before,
                          const cli_state *after) {
  double joules = 0;
  if (!before->has_energy || !after->has_energy) return -1;
  for (size_t i = 0; i < s->counters; i++) {
    uint64_t from = before->energy[i], to = after->energy[i], range = s->energy[i].range;
    /* Once around at most: a counter lasts minutes, a sample seconds. */
    if (to < from && (range == 0 || from > range)) return -1;
    joules += 1e-6 * (double)(to >= from ? to - from : range - from + to);
  }
  return joules;
}

int cli_throttled(const cli_state *before, const cli_state *after) {
  if (after->throttled_now) return 1;
  if (!before->has_throttled || !after->has_throttled) return -1;
  return after->throttled > before->throttled;
}

/* --- Disturbances ------------------------------------------------------------------------ */

static void __attribute__((format(printf, 2, 3))) add_cause(char text[CLI_SENSOR_TEXT],
                                                             const char *format, ...) {
  size_t used = strlen(text);
  va_list args;
  if (used) used += (size_t)snprintf(text + used, CLI_SENSOR_TEXT - used, ", ");
  if (used >= CLI_SENSOR_TEXT) return;
  va_start(args, format);
  vsnprintf(text + used, CLI_SENSOR_TEXT - used, format, args);
  va_end(args);
}

/* Ticks can add up to more than there was. */
static double percent(double part, double all) {
  return part < all ? 100 * part / all : 100;
}

const char *cli_disturbance(const cli_state *before, const cli_state *after, unsigned threads,
                            unsigned cpus, double best_mhz, char text[CLI_SENSOR_TEXT]) {
  const double share = 0.05, tick = 0.01, most_switches = 20; /* of time; seconds; a second */
  double seconds = after->time - before->time, room = seconds * cpus;
  double slack = share * room + tick * cpus; /* CPU time is counted in ticks */
  text[0] = '\0';
  if (seconds <= 0) return text;
  if (before->busy >= 0 && after->busy >= 0) {
    double steal = after->steal - before->steal;
    double other = after->busy - before->busy - steal - (after->own_seconds - before->own_seconds);
    if (other > slack)
      add_cause(text, "other programs used %.0f %% of the CPUs", percent(other, room));
    if (steal > slack)
      add_cause(text, "the hypervisor took %.0f %% of the CPUs", percent(steal, room));
  }
  double switches = (double)(after->switches - before->switches);
  if (switches > 5 + most_switches * seconds * threads)
    add_cause(text, "threads were interrupted %.0f times a second", switches / seconds);
  if (best_mhz > 0 && after->mhz > 0 && after->mhz < 0.9 * best_mhz)
    add_cause(text, "the frequency fell to %.0f %% of its best", 100 * after->mhz / best_mhz);
  if (cli_throttled(before, after) > 0) add_cause(text, "the machine throttled");
  return text;
}
