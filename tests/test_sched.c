/* SPDX-License-Identifier: MIT
 * Threads: what the system allows, how many are started, where they run, and
 * that a pass is run by all of them, fast and without heating an idle machine. */
#include <criterion/criterion.h>

#include <ftw.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/memory.h"
#include "sched/calibrate.h"
#include "sched/fpenv.h"
#include "sched/placement.h"
#include "sched/team.h"
#include "sched/tiles.h"
#include "sched/wait.h"

#ifdef HEADROW_SOURCE_ROOT
#define HR_TOPOLOGIES HEADROW_SOURCE_ROOT "/tests/topologies"
#else
#define HR_TOPOLOGIES "tests/topologies"
#endif

#define RUN(team, threads, fn, arg) \
  do { \
    hr_error run_err = {0}; \
    cr_assert(hr_team_run(team, threads, fn, arg, &run_err) == HR_OK, "%s", run_err.message); \
  } while (0)

/* --- Sets of CPUs --------------------------------------------------------- */

Test(sched, cpu_lists) {
  static const struct {
    const char *text;
    hr_cpuset_fault fault;
    unsigned count;
    const char *back;
  } cases[] = {
      {"0-3,8", HR_CPUSET_FINE, 5, "0-3,8"},      {"8,0-3\n", HR_CPUSET_FINE, 5, "0-3,8"},
      {"5", HR_CPUSET_FINE, 1, "5"},              {"0,1,2", HR_CPUSET_FINE, 3, "0-2"},
      {"62-65", HR_CPUSET_FINE, 4, "62-65"},      {"8191", HR_CPUSET_FINE, 1, "8191"},
      {"", HR_CPUSET_EMPTY, 0, NULL},             {" \n", HR_CPUSET_EMPTY, 0, NULL},
      {"8192", HR_CPUSET_TOO_HIGH, 0, NULL},      {"0-99999999999", HR_CPUSET_TOO_HIGH, 0, NULL},
      {"3-1", HR_CPUSET_REVERSED, 0, NULL},       {"0-", HR_CPUSET_SYNTAX, 0, NULL},
      {"-3", HR_CPUSET_SYNTAX, 0, NULL},          {"0,,1", HR_CPUSET_SYNTAX, 0, NULL},
      {"0,", HR_CPUSET_SYNTAX, 0, NULL},          {"fast", HR_CPUSET_SYNTAX, 0, NULL},
      {"1 2", HR_CPUSET_SYNTAX, 0, NULL},         {"0x3", HR_CPUSET_SYNTAX, 0, NULL},
      {"18446744073709551616", HR_CPUSET_TOO_HIGH, 0, NULL},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    hr_cpuset set;
    char back[64];
    cr_expect(hr_cpuset_parse(&set, cases[i].text) == cases[i].fault, "\"%s\"", cases[i].text);
    if (cases[i].fault != HR_CPUSET_FINE) continue;
    cr_expect(hr_cpuset_count(&set) == cases[i].count, "\"%s\"", cases[i].text);
    hr_cpuset_format(&set, back, sizeof back);
    cr_expect(strcmp(back, cases[i].back) == 0, "\"%s\" gives \"%s\"", cases[i].text, back);
  }
}

Test(sched, cpu_list_is_cut_visibly) {
  hr_cpuset set = {0};
  for (unsigned cpu = 0; cpu < 200; cpu += 2) hr_cpuset_add(&set, cpu);
  for (size_t size = 1; size < 40; size++) {
    char text[40];
    hr_cpuset_format(&set, text, size);
    cr_assert(strlen(text) < size);
    if (size > 4) cr_assert(strstr(text, "..."), "%zu: %s", size, text);
  }
}

/* --- Control groups, from a folder made to look like a system ------------- */

static void write_file(const char *root, const char *path, const char *text) {
  char full[512];
  snprintf(full, sizeof full, "%s%s", root, path);
  for (char *p = full + strlen(root) + 1; (p = strchr(p, '/')); p++) {
    *p = '\0';
    (void)mkdir(full, 0777);
    *p = '/';
  }
  FILE *file = fopen(full, "w");
  cr_assert(file, "%s", full);
  fputs(text, file);
  fclose(file);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw) {
  (void)st, (void)type, (void)ftw;
  return remove(path);
}

static void make_root(char root[64]) {
  strcpy(root, "/tmp/hr-sched-XXXXXX");
  cr_assert(mkdtemp(root));
}

static void remove_root(const char *root) {
  nftw(root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

#define V2_MOUNT "30 22 0:27 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"

typedef struct {
  const char *path, *text;
} fake_file;

typedef struct {
  const char *name;
  fake_file file[8];
  unsigned quotas, least; /* how many are found, and what the tightest allows */
  const char *cpuset;     /* NULL: none */
} fake_system;

static const fake_system systems[] = {
    {"nothing at all", {{0}}, 0, 0, NULL},
    {"version 2",
     {{"/proc/self/cgroup", "0::/a\n"},
      {"/proc/self/mountinfo", V2_MOUNT},
      {"/sys/fs/cgroup/a/cpu.max", "765000 100000\n"}},
     1, 7, NULL},
    {"max",
     {{"/proc/self/cgroup", "0::/a\n"},
      {"/proc/self/mountinfo", V2_MOUNT},
      {"/sys/fs/cgroup/a/cpu.max", "max 100000\n"}},
     0, 0, NULL},
    {"below one",
     {{"/proc/self/cgroup", "0::/a\n"},
      {"/proc/self/mountinfo", V2_MOUNT},
      {"/sys/fs/cgroup/a/cpu.max", "50000 100000\n"}},
     1, 1, NULL},
    {"child max, parent limited",
     {{"/proc/self/cgroup", "0::/parent/child\n"},
      {"/proc/self/mountinfo", V2_MOUNT},
      {"/sys/fs/cgroup/parent/child/cpu.max", "max 100000\n"},
      {"/sys/fs/cgroup/parent/cpu.max", "200000 100000\n"}},
     1, 2, NULL},
    {"three levels, the middle one is tightest",
     {{"/proc/self/cgroup", "0::/a/b/c\n"},
      {"/proc/self/mountinfo", V2_MOUNT},
      {"/sys/fs/cgroup/a/b/c/cpu.max", "800000 100000\n"},
      {"/sys/fs/cgroup/a/b/cpu.max", "150000 50000\n"},
      {"/sys/fs/cgroup/a/cpu.max", "1600000\n"}},
     3, 3, NULL},
    {"a container sees its own group as the root",
     {{"/proc/self/cgroup", "0::/\n"},
      {"/proc/self/mountinfo", V2_MOUNT},
      {"/sys/fs/cgroup/cpu.max", "400000 100000\n"},
      {"/sys/fs/cgroup/cpuset.cpus.effective", "2-5\n"}},
     1, 4, "2-5"},
    {"no mountinfo",
     {{"/proc/self/cgroup", "0::/a\n"}, {"/sys/fs/cgroup/a/cpu.max", "300000 100000\n"}},
     1, 3, NULL},
    {"nonsense",
     {{"/proc/self/cgroup", "0::/a/b\nrubbish\n:\n"},
      {"/proc/self/mountinfo", "x\n - \n" V2_MOUNT},
      {"/sys/fs/cgroup/a/b/cpu.max", "lots 100000\n"},
      {"/sys/fs/cgroup/a/cpu.max", "100000 0\n"},
      {"/sys/fs/cgroup/cpu.max", "-5 100000\n"},
      {"/sys/fs/cgroup/cpuset.cpus.effective", "all of them\n"}},
     0, 0, NULL},
    {"version 1",
     {{"/proc/self/cgroup", "4:cpuset:/s\n3:cpu,cpuacct:/d/c\n1:name=systemd:/x\n"},
      {"/proc/self/mountinfo",
       "31 30 0:28 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
       "32 30 0:29 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"},
      {"/sys/fs/cgroup/cpu,cpuacct/d/c/cpu.cfs_quota_us", "-1\n"},
      {"/sys/fs/cgroup/cpu,cpuacct/d/c/cpu.cfs_period_us", "100000\n"},
      {"/sys/fs/cgroup/cpu,cpuacct/d/cpu.cfs_quota_us", "250000\n"},
      {"/sys/fs/cgroup/cpu,cpuacct/d/cpu.cfs_period_us", "100000\n"},
      {"/sys/fs/cgroup/cpuset/s/cpuset.cpus", "0-3\n"},
      {"/sys/fs/cgroup/cpuset/cpuset.cpus", "0-7\n"}},
     1, 2, "0-3"},
    {"version 1, the mount shows only the container's part",
     {{"/proc/self/cgroup", "3:cpu:/docker/abc\n"},
      {"/proc/self/mountinfo",
       "31 30 0:28 /docker/abc /sys/fs/cgroup/cpu\\040here rw shared:9 - cgroup cgroup rw,cpu\n"},
      {"/sys/fs/cgroup/cpu here/cpu.cfs_quota_us", "300000\n"},
      {"/sys/fs/cgroup/cpu here/cpu.cfs_period_us", "100000\n"}},
     1, 3, NULL},
    {"a path of another namespace",
     {{"/proc/self/cgroup", "0::/../other\n"},
      {"/proc/self/mountinfo", V2_MOUNT},
      {"/sys/fs/cgroup/cpu.max", "600000 100000\n"}},
     1, 6, NULL},
};

static unsigned least_quota(const hr_limits *limits) {
  unsigned least = 0;
  for (unsigned i = 0; i < limits->quotas; i++)
    if (!least || limits->quota[i].cpus < least) least = limits->quota[i].cpus;
  return least;
}

Test(sched, limits_of_control_groups) {
  for (size_t i = 0; i < sizeof systems / sizeof *systems; i++) {
    const fake_system *s = &systems[i];
    char root[64], set[64];
    hr_limits limits;
    make_root(root);
    for (const fake_file *f = s->file; f < s->file + 8 && f->path; f++)
      write_file(root, f->path, f->text);
    hr_limits_read(&limits, root);
    cr_expect(limits.quotas == s->quotas, "%s: %u quotas", s->name, limits.quotas);
    cr_expect(least_quota(&limits) == s->least, "%s: %u", s->name, least_quota(&limits));
    cr_expect(limits.has_cpuset == (s->cpuset != NULL), "%s", s->name);
    hr_cpuset_format(&limits.cpuset, set, sizeof set);
    if (s->cpuset) cr_expect(strcmp(set, s->cpuset) == 0, "%s: %s", s->name, set);
    for (unsigned q = 0; q < limits.quotas; q++)
      cr_expect(strncmp(limits.quota[q].where, "/sys/", 5) == 0, "%s", limits.quota[q].where);
    remove_root(root);
  }
}

/* More levels than there is room for: the tightest must survive wherever it is. */
Test(sched, limits_of_deep_groups) {
  enum { LEVELS = 40 };
  for (int tight = 0; tight < LEVELS; tight += 13) {
    char root[64], path[400] = "/sys/fs/cgroup", own[400];
    hr_limits limits;
    make_root(root);
    for (int level = 0; level < LEVELS; level++) {
      char file[512], text[64];
      snprintf(path + strlen(path), 8, "/d%d", level);
      snprintf(file, sizeof file, "%s/cpu.max", path);
      snprintf(text, sizeof text, "%d00000 100000\n", level == tight ? 3 : 50 + level);
      write_file(root, file, text);
    }
    snprintf(own, sizeof own, "0::%s\n", path + strlen("/sys/fs/cgroup"));
    write_file(root, "/proc/self/cgroup", own);
    hr_limits_read(&limits, root);
    cr_expect(limits.quotas == HR_QUOTAS_MAX);
    cr_expect(least_quota(&limits) == 3, "level %d", tight);
    remove_root(root);
  }
}

Test(sched, limits_of_this_machine) {
  hr_limits limits;
  cpu_set_t set;
  hr_limits_read(&limits, "/");
  hr_limits_read_affinity(&limits);
  cr_assert(sched_getaffinity(0, sizeof set, &set) == 0);
  cr_expect(limits.has_affinity);
  cr_expect(hr_cpuset_count(&limits.affinity) == (unsigned)CPU_COUNT(&set));
}

/* --- Machines ------------------------------------------------------------- */

#define SMT4 "package:1 l3:1 core:4 pu:2(indexes=0,4,1,5,2,6,3,7)"
#define ABSURD "package:1 l3:2(size=533000000) l2:1(size=900000000) l1d:1(size=1) core:1 pu:1"

typedef struct {
  const char *name, *source; /* a synthetic description, or an XML file's name */
  const char *affinity;      /* NULL: not known */
  uint64_t quota_us;         /* of 100000; 0: none */
  hr_wishes wishes;
  unsigned threads, threads_batch;
  const char *cpus; /* of the threads, in order; NULL: not looked at */
  const char *won;  /* found in the text of the limit that decides; NULL: asked for */
} placed;

static const placed placements[] = {
    {"4 cores, 8 CPUs", SMT4, NULL, 0, {0}, 4, 4, "0,1,2,3", "physical cores"},
    {"threads asked for", SMT4, NULL, 0, {.threads = 3}, 3, 3, "0,1,2", NULL},
    {"hyperthreads on request", SMT4, NULL, 0, {.threads = 6}, 6, 6, "0,1,2,3,4,5", NULL},
    {"doubled up", SMT4, NULL, 0, {.threads = 10}, 10, 10, "0,1,2,3,4,5,6,7,0,1", NULL},
    {"prompts apart", SMT4, NULL, 0, {.threads = 2, .threads_batch = 4}, 2, 4, "0,1,2,3", NULL},
    {"only prompts", SMT4, NULL, 0, {.threads_batch = 8}, 4, 8, "0,1,2,3,4,5,6,7", "physical"},
    {"taskset 0-2", SMT4, "0-2", 0, {0}, 3, 3, "0,1,2", "affinity"},
    {"taskset of one core", SMT4, "1,5", 0, {0}, 1, 1, "1", "affinity"},
    {"taskset of one CPU, more asked for", SMT4, "6", 0, {.threads = 4}, 4, 4, "6,6,6,6", NULL},
    {"quota below one", SMT4, NULL, 50000, {0}, 1, 1, NULL, "quota"},
    {"quota above the cores", SMT4, NULL, 900000, {0}, 4, 4, "0,1,2,3", "physical"},
    {"96 CPUs, quota 7.65", "core:96 pu:1", NULL, 765000, {0}, 7, 7, NULL, "quota"},
    {"one core", "core:1 pu:1", NULL, 0, {0}, 1, 1, "0", "physical"},
    {"POWER", "package:2 core:4 pu:8", NULL, 0, {0}, 8, 8, "0,8,16,24,32,40,48,56", "physical"},
    {"two sockets", "package:2 [numa] core:3 pu:2", NULL, 0, {0}, 6, 6, "0,2,4,6,8,10",
     "physical"},
    {"offline holes", "core:5 pu:1(indexes=0,1,2,3,8)", "0-3,8", 0, {0}, 5, 5, "0,1,2,3,8",
     "physical"},
    {"mask of CPUs that are offline too", "core:5 pu:1(indexes=0,1,2,3,8)", "0-15", 0, {0}, 5, 5,
     "0,1,2,3,8", "physical"},
    {"2P with SMT, 8E", "hybrid-2p8e.xml", NULL, 0, {0}, 2, 2, "0,2", "performance"},
    {"all kinds", "hybrid-2p8e.xml", NULL, 0, {.cores = "all"}, 10, 10,
     "0,2,4,5,6,7,8,9,10,11", "physical"},
    {"more than the performance cores", "hybrid-2p8e.xml", NULL, 0, {.threads = 12}, 12, 12,
     "0,2,4,5,6,7,8,9,10,11,1,3", NULL},
    {"performance only, more asked for", "hybrid-2p8e.xml", NULL, 0,
     {.threads = 5, .cores = "performance"}, 5, 5, "0,2,1,3,0", NULL},
    {"only small cores allowed", "hybrid-2p8e.xml", "4-7", 0, {0}, 4, 4, "4,5,6,7", "affinity"},
    {"8P and 12E without SMT", "hybrid-8p12e.xml", NULL, 0, {0}, 8, 8, "0,1,2,3,4,5,6,7",
     "performance"},
    {"two favoured cores", "favoured-2-of-8.xml", NULL, 0, {0}, 8, 8, "12,14,0,2,4,6,8,10",
     "physical"},
    {"board 4+4", "board-4-4.xml", NULL, 0, {0}, 4, 4, "4,5,6,7", "performance"},
    {"board 4+4, small ones half as fast", "board-near-4-4.xml", NULL, 0, {0}, 4, 8,
     "4,5,6,7,0,1,2,3", "performance"},
    {"the same, performance asked for", "board-near-4-4.xml", NULL, 0, {.cores = "performance"},
     4, 4, "4,5,6,7", "performance"},
    {"phone 1+3+4", "phone-1-3-4.xml", NULL, 0, {0}, 4, 4, "7,4,5,6", "performance"},
    {"phone without its prime core", "phone-1-3-4.xml", "0-6", 0, {0}, 3, 3, "4,5,6",
     "performance"},
    {"phone 2+6", "phone-2-6.xml", NULL, 0, {0}, 8, 8, "6,7,0,1,2,3,4,5", "physical"},
    {"list", SMT4, NULL, 0, {.cores = "1,3"}, 2, 2, "1,3", "list"},
    {"list of siblings", SMT4, NULL, 0, {.cores = "1,5"}, 1, 1, "1", "list"},
    {"list of siblings, both asked for", SMT4, NULL, 0, {.cores = "1,5", .threads = 2}, 2, 2,
     "1,5", NULL},
    {"list within a mask", SMT4, "2-3,6-7", 0, {.cores = "2-3"}, 2, 2, "2,3", "affinity"},
};

static hr_topology *load(const char *source) {
  char path[512];
  hr_error err = {0};
  hr_topology_source from = {.synthetic = source};
  if (strstr(source, ".xml")) {
    snprintf(path, sizeof path, "%s/%s", HR_TOPOLOGIES, source);
    from = (hr_topology_source){.xml = path};
  }
  hr_topology *t = hr_topology_load(&from, &err);
  cr_assert(t, "%s: %s", source, err.message);
  return t;
}

static void make_limits(hr_limits *limits, const char *affinity, uint64_t quota_us) {
  memset(limits, 0, sizeof *limits);
  limits->has_affinity = affinity != NULL;
  if (affinity) cr_assert(hr_cpuset_parse(&limits->affinity, affinity) == HR_CPUSET_FINE);
  if (!quota_us) return;
  unsigned cpus = (unsigned)(quota_us / 100000);
  limits->quotas = 1;
  limits->quota[0] = (hr_quota){"/sys/fs/cgroup/cpu.max", quota_us, 100000, cpus ? cpus : 1};
}

static void list_seats(const hr_placement *p, char *text, size_t size) {
  size_t used = 0;
  text[0] = '\0';
  for (unsigned i = 0; i < p->seats && used < size; i++)
    used += (size_t)snprintf(text + used, size - used, i ? ",%u" : "%u", p->seat[i].os);
}

static void check_placement(const placed *c) {
  hr_limits limits;
  hr_placement p;
  hr_error err = {0};
  char seats[256];
  hr_topology *t = load(c->source);
  make_limits(&limits, c->affinity, c->quota_us);
  cr_assert(hr_placement_make(&p, t, &limits, &c->wishes, &err) == HR_OK, "%s: %s", c->name,
            err.message);
  cr_expect(p.threads == c->threads, "%s: %u threads", c->name, p.threads);
  cr_expect(p.threads_batch == c->threads_batch, "%s: %u for prompts", c->name, p.threads_batch);
  list_seats(&p, seats, sizeof seats);
  if (c->cpus) cr_expect(strcmp(seats, c->cpus) == 0, "%s: CPUs %s", c->name, seats);
  const char *won = NULL;
  for (unsigned i = 0; i < p.caps; i++)
    if (p.cap[i].won) won = p.cap[i].what;
  cr_expect(!c->won == !won, "%s", c->name);
  if (c->won && won) cr_expect(strstr(won, c->won), "%s: won: %s", c->name, won);
  cr_expect(p.why[0] && p.pinned[0], "%s", c->name);
  for (unsigned i = 0; i < p.threads; i++) cr_expect(p.seat[i].weight > 0, "%s", c->name);
  hr_placement_free(&p);
  hr_topology_free(t);
}

Test(sched, placements) {
  for (size_t i = 0; i < sizeof placements / sizeof *placements; i++)
    check_placement(&placements[i]);
}

Test(sched, wishes_that_cannot_be_met) {
  static const struct {
    hr_wishes wishes;
    const char *affinity, *message;
  } cases[] = {
      {{.cores = "fast"}, NULL, "\"fast\" is not known"},
      {{.cores = ""}, NULL, "empty"},
      {{.cores = "3-1"}, NULL, "ends before it starts"},
      {{.cores = "99999"}, NULL, "too high"},
      {{.cores = "6-9"}, NULL, "CPU 8-9 can't be used"},
      {{.cores = "0-3"}, "2-3", "CPU 0-1 can't be used by this process, expected some of 2-3"},
      {{.cores = "All"}, NULL, "not known"},
      {{.threads = 4097}, NULL, "4097 is too many"},
      {{.threads_batch = 1u << 31}, NULL, "too many"},
  };
  hr_topology *t = load(SMT4);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    hr_limits limits;
    hr_placement p;
    hr_error err = {0};
    make_limits(&limits, cases[i].affinity, 0);
    hr_status status = hr_placement_make(&p, t, &limits, &cases[i].wishes, &err);
    cr_expect(status == HR_ERROR_USAGE, "%zu", i);
    cr_expect(strstr(err.message, cases[i].message), "%s", err.message);
  }
  hr_topology_free(t);
}

Test(sched, most_threads) {
  hr_limits limits = {0};
  hr_placement p;
  hr_topology *t = load(SMT4);
  cr_assert(hr_placement_make(&p, t, &limits, &(hr_wishes){.threads = 4096}, NULL) == HR_OK);
  cr_expect(p.seats == 4096 && p.active == 8 && p.pin);
  hr_placement_free(&p);
  hr_topology_free(t);
}

/* Two threads on a core get half of it each; small cores get less. */
/* Only passes of one row have fewer threads, and only where the number is left open. */
Test(sched, no_more_threads_than_pay) {
  static const struct {
    hr_wishes wishes;
    unsigned threads, batch;
    bool by_size;
  } cases[] = {{{.most = 1}, 1, 4, true},
               {{.most = 3}, 3, 4, true},
               {{.most = 1, .threads_batch = 2}, 1, 2, true},
               {{.most = 64}, 4, 4, false},
               {{.most = 1, .threads = 4}, 4, 4, false}};
  hr_limits limits = {0};
  hr_topology *t = load(SMT4);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    hr_placement p;
    cr_assert(hr_placement_make(&p, t, &limits, &cases[i].wishes, NULL) == HR_OK);
    cr_expect(p.threads == cases[i].threads && p.threads_batch == cases[i].batch, "%zu: %u, %u", i,
              p.threads, p.threads_batch);
    cr_expect(!strstr(p.why, "size of the model") == !cases[i].by_size, "%zu: %s", i, p.why);
    hr_placement_free(&p);
  }
  hr_topology_free(t);
}

/* Of the seats, those that passes take have a CPU each; threads that no pass takes change neither
 * their CPUs nor their shares, nor whether they are pinned. */
Test(sched, no_more_work_than_there_are_cpus) {
  static const struct {
    const char *source, *affinity;
    hr_wishes many, enough;
  } cases[] = {
      {SMT4, NULL, {.threads = 16}, {.threads = 8}},
      {SMT4, NULL, {.threads = 4, .threads_batch = 11}, {.threads = 4, .threads_batch = 8}},
      {SMT4, NULL, {.threads = 9, .no_pin = true}, {.threads = 8, .no_pin = true}},
      {SMT4, "2-3", {.threads = 64}, {.threads = 2}},
      {SMT4, "6", {.threads = 2}, {.threads = 1}},
      {SMT4, NULL, {.threads = 5, .cores = "1,5-6"}, {.threads = 3, .cores = "1,5-6"}},
      {"hybrid-2p8e.xml", NULL, {.threads = 19}, {.threads = 12}},
      {"core:1 pu:1", NULL, {.threads = 2}, {.threads = 1}},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    hr_limits limits;
    hr_placement p, q;
    hr_topology *t = load(cases[i].source);
    make_limits(&limits, cases[i].affinity, 0);
    cr_assert(hr_placement_make(&p, t, &limits, &cases[i].many, NULL) == HR_OK);
    cr_assert(hr_placement_make(&q, t, &limits, &cases[i].enough, NULL) == HR_OK);
    cr_expect(p.active == q.seats && q.active == q.seats && p.seats > q.seats, "%zu: %u of %u", i,
              p.active, p.seats);
    cr_expect(p.pin == q.pin && strcmp(p.pinned, q.pinned) == 0, "%zu: %s", i, p.pinned);
    for (unsigned j = 0; j < p.active; j++) {
      cr_expect(p.seat[j].os == q.seat[j].os && p.seat[j].weight == q.seat[j].weight &&
                    p.seat[j].weight_batch == q.seat[j].weight_batch,
                "%zu: seat %u", i, j);
      for (unsigned k = 0; k < j; k++) cr_expect(p.seat[j].os != p.seat[k].os, "%zu: %u", i, j);
    }
    hr_placement_free(&p);
    hr_placement_free(&q);
    hr_topology_free(t);
  }
}

Test(sched, weights) {
  hr_limits limits = {0};
  hr_placement p;
  hr_topology *t = load("board-near-4-4.xml");
  cr_assert(hr_placement_make(&p, t, &limits, &(hr_wishes){0}, NULL) == HR_OK);
  cr_expect(p.seat[0].weight == 1024 && p.seat[3].weight == 1024);
  cr_expect(p.seat[0].weight_batch == 1024 && p.seat[7].weight_batch == 560);
  hr_placement_free(&p);
  hr_topology_free(t);
  t = load(SMT4);
  cr_assert(hr_placement_make(&p, t, &limits, &(hr_wishes){.threads = 6}, NULL) == HR_OK);
  cr_expect(p.seat[0].weight == 512 && p.seat[2].weight == 1024 && p.seat[5].weight == 512);
  hr_placement_free(&p);
  hr_topology_free(t);
}

/* Groups with a quota share a machine: pinned threads of all would meet on the
 * first CPUs. */
Test(sched, when_to_pin) {
  static const struct {
    uint64_t quota_us;
    hr_wishes wishes;
    bool pin;
    const char *says;
  } cases[] = {
      {0, {0}, true, "each thread to one CPU"},
      {0, {.threads = 2}, true, "each thread to one CPU"},
      {0, {.threads = 8}, true, "each thread to one CPU"},
      {0, {.threads = 9}, true, "each thread to one CPU"},
      {200000, {.threads = 9}, false, "quota"},
      {0, {.no_pin = true}, false, "as asked"},
      {200000, {0}, false, "quota"},
      {900000, {0}, true, "each thread to one CPU"},
      {200000, {.cores = "0-3"}, true, "each thread to one CPU"},
      {0, {.threads = 1}, false, "a single thread"},
      {0, {.threads = 1, .threads_batch = 4}, true, "a thread alone is not"},
      {0, {.threads = 1, .cores = "2"}, true, "each thread to one CPU"},
      {0, {.threads = 3, .cores = "2,6"}, true, "each thread to one CPU"},
      {0, {.threads = 2, .cores = "2"}, true, "each thread to one CPU"},
      {0, {.threads = 9, .no_pin = true, .cores = "1-2"}, false, "as asked; all kept to CPUs 1-2"},
      {0, {.no_pin = true, .cores = "1-2"}, false, "as asked; all kept to CPUs 1-2"},
  };
  hr_topology *t = load(SMT4);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    hr_limits limits;
    hr_placement p;
    make_limits(&limits, NULL, cases[i].quota_us);
    cr_assert(hr_placement_make(&p, t, &limits, &cases[i].wishes, NULL) == HR_OK);
    cr_expect(p.pin == cases[i].pin, "%zu: %s", i, p.pinned);
    cr_expect(p.keep == (cases[i].wishes.cores && !p.pin), "%zu: %s", i, p.pinned);
    cr_expect(strstr(p.pinned, cases[i].says), "%zu: %s", i, p.pinned);
    hr_placement_free(&p);
  }
  hr_topology_free(t);
}

/* Two processes without options, each with its own mask: no CPU has threads of both. */
Test(sched, disjoint_masks_stay_apart) {
  static const char *const masks[][3] = {
      {SMT4, "0,4", "1-3,5-7"}, {SMT4, "0-1", "2-7"}, {"core:2 pu:1", "0", "1"},
      {"hybrid-2p8e.xml", "0-5", "6-11"}, {"package:2 [numa] core:3 pu:2", "0-5", "6-11"}};
  for (size_t i = 0; i < sizeof masks / sizeof *masks; i++) {
    hr_topology *t = load(masks[i][0]);
    hr_cpuset used[2] = {{{0}}};
    for (size_t k = 0; k < 2; k++) {
      hr_limits limits;
      hr_placement p;
      make_limits(&limits, masks[i][k + 1], 0);
      cr_assert(hr_placement_make(&p, t, &limits, &(hr_wishes){0}, NULL) == HR_OK);
      for (unsigned j = 0; j < p.seats; j++) {
        cr_expect(hr_cpuset_has(&limits.affinity, p.seat[j].os), "%zu: CPU %u", i, p.seat[j].os);
        hr_cpuset_add(&used[k], p.seat[j].os);
      }
      hr_placement_free(&p);
    }
    hr_cpuset_keep(&used[0], &used[1]);
    cr_expect_eq(hr_cpuset_count(&used[0]), 0, "%s", masks[i][0]);
    hr_topology_free(t);
  }
}

Test(sched, several_limits_and_the_group_set) {
  hr_limits limits = {0};
  hr_placement p;
  hr_topology *t = load("core:16 pu:1");
  make_limits(&limits, "0-11", 900000);
  limits.has_cpuset = true;
  cr_assert(hr_cpuset_parse(&limits.cpuset, "4-9") == HR_CPUSET_FINE);
  cr_assert(hr_placement_make(&p, t, &limits, &(hr_wishes){0}, NULL) == HR_OK);
  cr_expect(p.threads == 6 && p.seat[0].os == 4 && p.caps == 4, "%u", p.threads);
  cr_expect(strstr(p.why, "CPU set"), "%s", p.why);
  hr_placement_free(&p);
  /* A set that leaves nothing was read from the wrong place. */
  cr_assert(hr_cpuset_parse(&limits.cpuset, "14") == HR_CPUSET_FINE);
  cr_assert(hr_placement_make(&p, t, &limits, &(hr_wishes){0}, NULL) == HR_OK);
  cr_expect(p.threads == 9, "%u", p.threads);
  hr_placement_free(&p);
  hr_topology_free(t);
}

Test(sched, caches_are_clamped) {
  hr_topology *t = load(ABSURD);
  for (unsigned i = 0; i < t->cpus; i++) {
    const hr_cpu *cpu = &t->cpu[i];
    cr_expect(cpu->l1d.bytes == 8u << 10 && cpu->l2.bytes == 32u << 20 &&
              cpu->l3.bytes == 32u << 20);
  }
  hr_topology_free(t);
  t = load("core:2 pu:1");
  cr_expect(t->cpu[0].l1d.bytes == 32u << 10 && t->cpu[0].l2.bytes == 512u << 10 &&
            t->cpu[0].l3.bytes == 0);
  hr_topology_free(t);
}

/* Kinds that the topology doesn't know come from the kernel's numbers. */
Test(sched, kinds_from_the_kernel) {
  static const struct {
    const char *file, *small, *big;
    unsigned threads;
  } cases[] = {
      {"cpu_capacity", "300\n", "1024\n", 4},
      {"cpu_capacity", "1024\n", "1024\n", 8},
      {"cpu_capacity", "0\n", "1024\n", 8},
      {"cpufreq/cpuinfo_max_freq", "1800000\n", "2400000\n", 4},
      {"cpufreq/cpuinfo_max_freq", "5400000\n", "5700000\n", 8},
      {"cpufreq/cpuinfo_max_freq", "?\n", "5700000\n", 8},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char root[64], path[128], seats[64];
    hr_limits limits = {0};
    hr_placement p;
    make_root(root);
    for (unsigned cpu = 0; cpu < 8; cpu++) {
      snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%u/%s", cpu, cases[i].file);
      write_file(root, path, cpu < 4 ? cases[i].small : cases[i].big);
    }
    hr_topology_source source = {.synthetic = "core:8 pu:1", .root = root};
    hr_topology *t = hr_topology_load(&source, NULL);
    cr_assert(t);
    cr_assert(hr_placement_make(&p, t, &limits, &(hr_wishes){0}, NULL) == HR_OK);
    list_seats(&p, seats, sizeof seats);
    cr_expect(p.threads == cases[i].threads, "%zu: %u on %s", i, p.threads, seats);
    if (p.threads == 4) cr_expect(strcmp(seats, "4,5,6,7") == 0, "%zu: %s", i, seats);
    hr_placement_free(&p);
    hr_topology_free(t);
    remove_root(root);
  }
}

Test(sched, no_topology) {
  hr_cpuset set;
  hr_limits limits = {0};
  hr_placement p;
  cr_assert(hr_cpuset_parse(&set, "0-3,8") == HR_CPUSET_FINE);
  hr_topology *t = hr_topology_flat(&set, NULL);
  cr_assert(t);
  cr_assert(hr_placement_make(&p, t, &limits, &(hr_wishes){0}, NULL) == HR_OK);
  cr_expect(p.threads == 5 && p.seat[4].os == 8 && !p.pin);
  cr_expect(strstr(p.cap[0].what, "no topology"), "%s", p.cap[0].what);
  hr_placement_free(&p);
  hr_topology_free(t);
  cr_expect(!hr_topology_flat(&(hr_cpuset){0}, NULL));
}

Test(sched, sources_that_are_not_machines) {
  hr_error err = {0};
  cr_expect(!hr_topology_load(&(hr_topology_source){.synthetic = "two cores"}, &err));
  cr_expect(err.status == HR_ERROR_USAGE && strstr(err.message, "two cores"), "%s", err.message);
  cr_expect(!hr_topology_load(&(hr_topology_source){.xml = "/no/such.xml"}, &err));
  cr_expect(err.status == HR_ERROR_FILE && strstr(err.message, "/no/such.xml"), "%s", err.message);
}

/* A machine that can't be examined is run without its topology: no error. */
Test(sched, a_failed_discovery_is_not_an_error) {
  hr_error err = {.status = HR_OK, .message = "before"};
  setenv("HWLOC_COMPONENTS", "stop", 1); /* no part of hwloc that could */
  hr_topology *t = hr_topology_load(NULL, &err);
  unsetenv("HWLOC_COMPONENTS");
  cr_assert(t, "%s", err.message);
  cr_expect(!t->native && t->guessed);
  cr_expect(err.status == HR_OK && strcmp(err.message, "before") == 0, "%s", err.message);
  hr_topology_free(t);
}

static void append_line(void *data, const char *line) {
  char *text = data;
  cr_assert(!strchr(line, '\n') && strlen(line) < 200);
  strcat(strcat(text, line), "\n");
}

Test(sched, description) {
  static char text[16384];
  hr_limits limits;
  hr_placement p;
  hr_topology *t = load("hybrid-2p8e.xml");
  make_limits(&limits, "0-9", 150000);
  cr_assert(hr_placement_make(&p, t, &limits, &(hr_wishes){0}, NULL) == HR_OK);
  hr_placement_describe(&p, t, &limits, append_line, text);
  static const char *const parts[] = {"10 cores, 12 CPUs", "performance: 2 cores, IntelCore",
                                      "[0 1] [2 3]", "[9] [(10)] [(11)]", "8  cores in the affi",
                                      "2  performance cores", "1  CPU quota, 1.50 CPUs",
                                      "cpu.max)  <- decides", "1 thread because of the CPU quota"};
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
    cr_expect(strstr(text, parts[i]), "no \"%s\" in:\n%s", parts[i], text);
  hr_placement_free(&p);
  hr_topology_free(t);
}

Test(sched, description_of_more_threads_than_cpus) {
  static char text[16384];
  hr_limits limits;
  hr_placement p;
  hr_topology *t = load(SMT4);
  make_limits(&limits, "1-2", 0);
  cr_assert(hr_placement_make(&p, t, &limits, &(hr_wishes){.threads = 5}, NULL) == HR_OK);
  hr_placement_describe(&p, t, &limits, append_line, text);
  cr_expect(strstr(text, "5 threads because that was asked for"), "%s", text);
  cr_expect(strstr(text, "\nat work: no more than 2 of them"), "%s", text);
  cr_expect(strstr(text, "\n  0:1  1:2\n"), "%s", text);
  hr_placement_free(&p);
  hr_topology_free(t);
}

/* Threads beyond the quota would be stopped in the middle of passes. */
Test(sched, a_quota_bounds_the_threads_at_work) {
  static const struct {
    const char *source;
    uint64_t quota_us; /* of 100000 */
    hr_wishes wishes;
    unsigned active;
  } cases[] = {{"core:96 pu:1", 200000, {.threads = 4}, 2},
               {"core:96 pu:1", 200000, {.threads = 1, .threads_batch = 4}, 2},
               {"core:96 pu:1", 200000, {.threads = 2}, 2},
               {"core:96 pu:1", 200000, {.threads = 4, .cores = "8-11"}, 2},
               {"core:96 pu:1", 250000, {.threads = 4}, 2},
               {"core:96 pu:1", 50000, {.threads = 4}, 1},
               {"core:96 pu:1", 0, {.threads = 4}, 4},
               {"core:2 pu:1", 400000, {.threads = 4}, 2}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    static char text[65536];
    hr_limits limits;
    hr_placement p;
    hr_topology *t = load(cases[i].source);
    make_limits(&limits, NULL, cases[i].quota_us);
    cr_assert(hr_placement_make(&p, t, &limits, &cases[i].wishes, NULL) == HR_OK);
    cr_expect_eq(p.active, cases[i].active, "%zu: %u", i, p.active);
    cr_expect_eq(p.threads, cases[i].wishes.threads, "%zu: %u", i, p.threads);
    text[0] = '\0';
    hr_placement_describe(&p, t, &limits, append_line, text);
    bool told = strstr(text, "as many as the CPU quota is worth");
    cr_expect_eq(told, p.active < p.seats && p.active < p.reach, "%zu: %s", i, text);
    hr_placement_free(&p);
    hr_topology_free(t);
  }
}

Test(sched, description_of_a_big_machine) {
  static char text[65536];
  hr_limits limits = {0};
  hr_placement p;
  hr_topology *t = load("package:2 [numa] core:64 pu:8");
  cr_assert(hr_placement_make(&p, t, &limits, &(hr_wishes){0}, NULL) == HR_OK);
  hr_placement_describe(&p, t, &limits, append_line, text);
  cr_expect(strstr(text, "memory node 1: CPUs 512-1023"), "%s", text);
  cr_expect(strstr(text, "127:1016"));
  hr_placement_free(&p);
  hr_topology_free(t);
}

/* --- Trials: how many threads, where no rule knows ------------------------ */

typedef struct {
  const char *name, *source, *affinity;
  uint64_t quota_us;
  hr_wishes wishes;
  const char *one, *many; /* numbers to try */
} trial_case;

static const trial_case trial_cases[] = {
    {"two cores", "core:2 pu:1", NULL, 0, {0}, "", ""},
    {"four cores with hyperthreads", "core:4 pu:2", NULL, 0, {0}, "", ""},
    {"eight cores", "core:8 pu:1", NULL, 0, {0}, "2,3,4,6,8", "8"},
    {"eight cores with hyperthreads", "core:8 pu:2", NULL, 0, {0}, "2,3,4,6,8", "8,16"},
    {"the same, four by a mask", "core:8 pu:2", "0-7", 0, {0}, "", ""},
    {"the same, a quota of three", "core:8 pu:2", NULL, 300000, {0}, "", ""},
    {"the same, asked for", "core:8 pu:2", NULL, 0, {.threads = 5}, "", ""},
    {"the same, prompts asked for", "core:8 pu:2", NULL, 0, {.threads_batch = 7}, "2,3,4,6,8", ""},
    {"2P with SMT, 8E", "hybrid-2p8e.xml", NULL, 0, {0}, "2,3,4,6,8,10", "2,10,12"},
    {"the same, performance cores only", "hybrid-2p8e.xml", NULL, 0, {.cores = "performance"}, "",
     ""},
    {"board 4+4", "board-4-4.xml", NULL, 0, {0}, "2,3,4,6,8", "4,8"},
    {"board, its small cores", "board-4-4.xml", "0-3", 0, {0}, "", ""},
    {"one of each", "pair-1-1.xml", NULL, 0, {0}, "1,2", "1,2"},
    {"phone 1+3+4", "phone-1-3-4.xml", NULL, 0, {0}, "1,2,3,4,6,8", "1,4,8"},
};

static void list_trials(const hr_trials *t, char text[256]) {
  int used = 0;
  text[0] = '\0';
  for (unsigned i = 0; i < t->count; i++)
    used += snprintf(text + used, 256 - (size_t)used, i ? ",%u" : "%u", t->threads[i]);
}

static void plan_trials(const trial_case *c, hr_calibration *calibration) {
  hr_limits limits;
  hr_error err = {0};
  hr_topology *t = load(c->source);
  make_limits(&limits, c->affinity, c->quota_us);
  cr_assert(hr_calibration_plan(calibration, t, &limits, &c->wishes, &err) == HR_OK, "%s: %s",
            c->name, err.message);
  hr_topology_free(t);
}

Test(sched, what_is_tried) {
  for (size_t i = 0; i < sizeof trial_cases / sizeof *trial_cases; i++) {
    const trial_case *c = &trial_cases[i];
    hr_calibration calibration;
    char one[256], many[256];
    plan_trials(c, &calibration);
    list_trials(&calibration.one, one);
    list_trials(&calibration.many, many);
    cr_expect(strcmp(one, c->one) == 0, "%s: %s", c->name, one);
    cr_expect(strcmp(many, c->many) == 0, "%s, prompts: %s", c->name, many);
    cr_expect(calibration.why[0] && hr_calibration_wanted(&calibration) == (c->one[0] != '\0'),
              "%s: %s", c->name, calibration.why);
  }
}

/* A machine whose memory is read at full speed by `enough` threads, with so much
 * for each barrier; prompts go as fast as the threads are many. */
typedef struct {
  double enough, barrier;
  unsigned calls, fail_at;
  unsigned busy; /* calls that take twice as long, the first ones */
  double rising; /* each call takes longer by that share */
} fake_machine;

static double fake_trial(void *data, unsigned threads, bool many) {
  fake_machine *m = data;
  if (++m->calls == m->fail_at) return -1;
  double noise = 1 + 0.005 * (m->calls % 3) + m->rising * m->calls;
  if (m->calls <= m->busy && m->calls % 2) noise *= 1.9;
  if (many) return noise / threads;
  return noise * (1 / (threads < m->enough ? threads : m->enough) + m->barrier * threads);
}

Test(sched, what_is_chosen) {
  static const struct {
    double enough, barrier;
    unsigned one;
  } cases[] = {{8, 0, 8}, {4, 0, 4}, {3, 0, 3}, {3.9, 0, 4}, {1, 0, 2}, {8, 0.03, 6}};
  hr_calibration calibration;
  plan_trials(&trial_cases[3], &calibration);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    fake_machine m = {.enough = cases[i].enough, .barrier = cases[i].barrier};
    unsigned one = 0, many = 0;
    bool steady = false;
    cr_assert(hr_calibrate(&calibration, fake_trial, &m, &one, &many, &steady));
    cr_expect(one == cases[i].one && many == 16 && steady, "%zu: %u, %u", i, one, many);
    cr_expect(m.calls <= 16, "%u trials", m.calls);
  }
  fake_machine broken = {.enough = 4, .fail_at = 3};
  unsigned one = 0, many = 0;
  bool steady;
  cr_expect(!hr_calibrate(&calibration, fake_trial, &broken, &one, &many, &steady));
  plan_trials(&trial_cases[0], &calibration);
  fake_machine unused = {.enough = 4};
  cr_expect(hr_calibrate(&calibration, fake_trial, &unused, &one, &many, &steady));
  cr_expect(unused.calls == 0 && steady);
}

/* Rounds go on until times agree, and it is said when they never do. */
Test(sched, trials_that_others_disturb) {
  hr_calibration calibration;
  plan_trials(&trial_cases[3], &calibration);
  unsigned all = calibration.one.count + calibration.many.count;
  unsigned one = 0, many = 0;
  bool steady = false;
  fake_machine at_first = {.enough = 8, .busy = calibration.one.count};
  cr_assert(hr_calibrate(&calibration, fake_trial, &at_first, &one, &many, &steady));
  cr_expect(steady && one == 8 && many == 16, "%u, %u", one, many);
  fake_machine always = {.enough = 8, .rising = 0.5};
  cr_assert(hr_calibrate(&calibration, fake_trial, &always, &one, &many, &steady));
  cr_expect(!steady && one && many);
  cr_expect(always.calls <= 6 * all, "%u trials", always.calls);
}

/* --- Tiles ---------------------------------------------------------------- */

typedef struct {
  hr_team *team;
  hr_tiles tiles;
  const uint32_t *shares;
  uint32_t count;
  unsigned steps;
  bool late, single, still;
  _Atomic uint32_t *done; /* how often each tile of each step was handed out */
  _Atomic unsigned foreign, longest;
} tile_test;

static void count_run(tile_test *t, const hr_tiles_step *step, hr_tiles_run run) {
  hr_tiles_run own = hr_tiles_share(step, step->thread);
  if (run.end - run.begin > t->longest) t->longest = run.end - run.begin;
  for (uint32_t tile = run.begin; tile < run.end; tile++) {
    atomic_fetch_add_explicit(&t->done[(size_t)(step->number - 1) * t->count + tile], 1,
                              memory_order_relaxed);
    if (tile < own.begin || tile >= own.end) atomic_fetch_add(&t->foreign, 1);
    for (volatile int i = 0; t->late && step->thread == 0 && i < 2000;) i = i + 1;
  }
}

static void tile_pass(void *arg, unsigned thread, unsigned threads) {
  tile_test *t = arg;
  for (unsigned s = 1; s <= t->steps; s++) {
    hr_tiles_step step = {.tiles = &t->tiles, .shares = t->shares, .number = s, .count = t->count,
                          .thread = thread, .threads = threads, .single = t->single,
                          .still = t->still};
    /* Now and then a thread begins so late that the others have done its part. */
    for (volatile int i = 0; t->late && thread == 0 && s % 4 == 0 && i < 200000;) i = i + 1;
    for (hr_tiles_run run; hr_tiles_next(&step, &run);) count_run(t, &step, run);
    hr_team_barrier(t->team, thread);
  }
}

static void check_tiles(tile_test *t, unsigned threads) {
  size_t count = (size_t)t->steps * t->count;
  t->done = hr_calloc(count, sizeof *t->done);
  t->foreign = t->longest = 0;
  hr_tiles_clear(&t->tiles);
  RUN(t->team, threads, tile_pass, t);
  for (size_t i = 0; i < count; i++)
    cr_assert(t->done[i] == 1, "tile %zu of %u: %u times", i, t->count, t->done[i]);
  hr_free((void *)t->done);
}

static void check_tile_sizes(tile_test *t) {
  static const uint32_t sizes[] = {0, 1, 2, 3, 7, 64, 1000};
  static const uint32_t uneven[] = {0, 1024, 1200, 1201, 2225};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
    for (unsigned threads = 1; threads <= 4; threads++) {
      t->count = sizes[i];
      t->shares = NULL;
      check_tiles(t, threads);
      t->shares = uneven;
      check_tiles(t, threads);
    }
}

static void tile_test_init(tile_test *t, hr_tiles_range ranges[4]) {
  memset(ranges, 0, 4 * sizeof *ranges);
  *t = (tile_test){.team = hr_team_create(&(hr_team_options){.threads = 4, .no_pin = true}, NULL),
                   .tiles = {.of = ranges, .threads = 4},
                   .steps = 60};
  cr_assert(t->team);
}

Test(sched, every_tile_once) {
  static hr_tiles_range ranges[4];
  tile_test t;
  tile_test_init(&t, ranges);
  for (int mode = 0; mode < 4; mode++) {
    t.single = mode & 1;
    t.still = mode & 2;
    for (t.tiles.seed = 0; t.tiles.seed < 3; t.tiles.seed++) check_tile_sizes(&t);
    /* With random stealing a good part goes to others. */
    cr_expect(t.foreign > t.steps * t.count / 10, "%u", t.foreign);
    cr_expect(t.single == (t.longest == 1), "runs of %u", t.longest);
  }
  hr_team_free(t.team);
}

Test(sched, a_slow_thread_is_helped) {
  static hr_tiles_range ranges[4];
  tile_test t;
  tile_test_init(&t, ranges);
  t.count = 64;
  t.late = true;
  check_tiles(&t, 2);
  cr_expect(t.foreign > 0);
  t.still = true;
  check_tiles(&t, 2);
  cr_expect(t.foreign == 0, "a step that is too short for it");
  hr_team_free(t.team);
}

/* The number of a step has 20 bits of a word: it must wrap without a trace. */
Test(sched, steps_beyond_a_million) {
  static hr_tiles_range ranges[2];
  hr_tiles tiles = {.of = ranges, .threads = 2};
  for (uint32_t number = (1u << 20) - 3; number < (1u << 20) + 3; number++) {
    hr_tiles_step a = {.tiles = &tiles, .number = number, .count = 10, .threads = 2}, b = a;
    b.thread = 1;
    uint32_t seen = 0;
    for (hr_tiles_run run; hr_tiles_next(number % 2 ? &a : &b, &run);)
      for (uint32_t i = run.begin; i < run.end; i++) seen |= 1u << i;
    cr_expect(seen == 0x3ff, "step %u: %#x", number, seen);
    hr_tiles_run none;
    cr_expect(!hr_tiles_next(number % 2 ? &b : &a, &none));
  }
}

Test(sched, shares_cover_all_tiles) {
  static const uint32_t shares[] = {0, 1024, 2048, 2462, 2876};
  for (uint32_t count = 0; count < 200; count++)
    for (unsigned threads = 1; threads <= 4; threads++) {
      cr_assert(hr_tiles_begin(0, threads, count, shares) == 0);
      cr_assert(hr_tiles_begin(threads, threads, count, shares) == count);
      for (unsigned t = 0; t < threads; t++)
        cr_assert(hr_tiles_begin(t, threads, count, shares) <=
                  hr_tiles_begin(t + 1, threads, count, shares));
    }
  cr_expect(hr_tiles_begin(3, 4, UINT32_MAX, shares) > UINT32_MAX / 2);
}

/* --- The team ------------------------------------------------------------- */

static unsigned cpus_allowed(void) {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) == 0 ? (unsigned)CPU_COUNT(&set) : 1;
}

static hr_team *team_of(unsigned threads, bool no_pin) {
  hr_error err = {0};
  hr_team *team = hr_team_create(&(hr_team_options){.threads = threads, .no_pin = no_pin}, &err);
  cr_assert(team, "%s", err.message);
  return team;
}

typedef struct {
  hr_team *team;
  unsigned steps;
  _Atomic unsigned ran;
  unsigned at[64]; /* step each thread has reached; read by others after a barrier */
  _Atomic unsigned wrong;
} barrier_test;

static void barrier_pass(void *arg, unsigned thread, unsigned threads) {
  barrier_test *t = arg;
  atomic_fetch_add(&t->ran, 1);
  for (unsigned s = 1; s <= t->steps; s++) {
    t->at[thread] = s;
    hr_team_barrier(t->team, thread);
    if (t->at[(thread + 1) % threads] != s || t->at[threads - 1] != s) t->wrong++;
    hr_team_barrier(t->team, thread);
  }
}

static void check_barriers(hr_team *team, unsigned threads, unsigned steps) {
  barrier_test t = {.team = team, .steps = steps};
  RUN(team, threads, barrier_pass, &t);
  cr_assert(t.ran == threads && t.wrong == 0, "%u ran, %u wrong", t.ran, t.wrong);
}

Test(sched, barriers_with_changing_threads, .timeout = 120) {
  hr_team *team = team_of(4, true);
  for (int round = 0; round < 3; round++) {
    check_barriers(team, 1, 20000);
    check_barriers(team, 4, 5000);
    check_barriers(team, 2, 12000);
  }
  for (unsigned i = 0; i < 1000; i++) check_barriers(team, i % 4 + 1, 2);
  hr_team_free(team);
}

/* More threads than count on one cache line. */
Test(sched, barriers_of_many_threads, .timeout = 60) {
  hr_team *team = team_of(21, true);
  static const unsigned counts[] = {21, 8, 9, 16, 17, 1, 20};
  for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) check_barriers(team, counts[i], 100);
  hr_team_free(team);
}

static void nothing(void *arg, unsigned thread, unsigned threads) {
  (void)arg, (void)thread, (void)threads;
}

Test(sched, counts_out_of_range) {
  hr_error err = {0};
  hr_team *team = team_of(2, false);
  cr_expect(hr_team_run(team, 0, nothing, NULL, &err) == HR_ERROR_USAGE);
  cr_expect(hr_team_run(team, 3, nothing, NULL, &err) == HR_ERROR_USAGE);
  cr_expect(strstr(err.message, "3"), "%s", err.message);
  hr_team_free(team);
  cr_expect(!hr_team_create(&(hr_team_options){.threads = 4097}, &err));
  cr_expect(err.status == HR_ERROR_USAGE);
  cr_expect(!hr_team_create(&(hr_team_options){.cores = "quick"}, &err));
  cr_expect(strstr(err.message, "quick"), "%s", err.message);
  hr_team_free(NULL);
}

Test(sched, automatic_is_one_answer) {
  hr_error err = {0};
  hr_team *a = hr_team_create(NULL, &err), *b = team_of(0, true);
  cr_assert(a, "%s", err.message);
  cr_expect(hr_team_threads(a) == hr_team_threads(b));
  cr_expect(hr_team_threads(a) >= 1 && hr_team_threads(a) <= cpus_allowed());
  cr_expect(hr_team_warning(a) == NULL, "%s", hr_team_warning(a));
  hr_team_free(a);
  hr_team_free(b);
}

static double cpu_seconds(void) {
  struct rusage r;
  getrusage(RUSAGE_SELF, &r);
  return (double)(r.ru_utime.tv_sec + r.ru_stime.tv_sec) +
         1e-6 * (double)(r.ru_utime.tv_usec + r.ru_stime.tv_usec);
}

static void check_idle(unsigned threads) {
  hr_team *team = team_of(threads, false);
  for (int i = 0; i < 100; i++) RUN(team, threads, nothing, NULL);
  double before = cpu_seconds();
  nanosleep(&(struct timespec){.tv_sec = 1}, NULL);
  double used = cpu_seconds() - before;
  cr_expect(used < 0.020, "%u threads: %.1f ms of CPU time in a second", threads, used * 1e3);
  hr_team_free(team);
}

/* Threads look for the next pass before they sleep, as long as each has a CPU; more of them
 * than that sleep at once. */
Test(sched, idle_costs_nothing) {
  unsigned cpus = cpus_allowed() < 64 ? cpus_allowed() : 64;
  check_idle(1);
  check_idle(cpus);
  check_idle(2 * cpus);
}

/* --- Pinning -------------------------------------------------------------- */

typedef struct {
  int cpus[64];      /* CPUs in the thread's mask */
  int only[64];      /* the first of them */
  pthread_t self[64];
} mask_test;

static void mask_pass(void *arg, unsigned thread, unsigned threads) {
  mask_test *t = arg;
  cpu_set_t set;
  (void)threads;
  t->self[thread] = pthread_self();
  if (pthread_getaffinity_np(pthread_self(), sizeof set, &set) != 0) return;
  t->cpus[thread] = CPU_COUNT(&set);
  while (!CPU_ISSET((size_t)t->only[thread], &set)) t->only[thread]++;
}

static void check_own_mask(const cpu_set_t *before) {
  cpu_set_t after;
  cr_assert(pthread_getaffinity_np(pthread_self(), sizeof after, &after) == 0);
  cr_expect(CPU_EQUAL(before, &after), "the caller's mask has changed");
}

/* One that leaves threads for all CPUs out. */
static bool has_quota(void) {
  hr_limits *limits = calloc(1, sizeof *limits);
  cr_assert(limits);
  hr_limits_read(limits, "/");
  bool any = false;
  for (unsigned i = 0; i < limits->quotas; i++)
    if (limits->quota[i].cpus < cpus_allowed()) any = true;
  free(limits);
  return any;
}

Test(sched, pinning_leaves_the_caller_alone) {
  cpu_set_t before;
  unsigned cpus = cpus_allowed();
  cr_assert(pthread_getaffinity_np(pthread_self(), sizeof before, &before) == 0);
  for (int no_pin = 0; no_pin < 2; no_pin++) {
    hr_team *team = team_of(cpus, no_pin != 0);
    check_own_mask(&before);
    mask_test t = {0};
    RUN(team, cpus, mask_pass, &t);
    check_own_mask(&before);
    for (unsigned i = 0; i < cpus && i < 64; i++) {
      bool is_caller = pthread_equal(t.self[i], pthread_self());
      bool pinned = !no_pin && cpus > 1 && !is_caller && !has_quota();
      cr_expect(t.cpus[i] == (pinned ? 1 : (int)cpus), "thread %u: %d CPUs", i, t.cpus[i]);
      if (pinned) cr_expect(t.only[i] == hr_team_cpu(team, i));
      if (no_pin) cr_expect(hr_team_cpu(team, i) == -1);
    }
    hr_team_free(team);
    check_own_mask(&before);
  }
}

/* Where threads fill all CPUs the caller would be one too many: whichever of them it is
 * on, it does the part of the thread that is pinned there. */
Test(sched, the_caller_does_the_part_of_its_cpu) {
  cpu_set_t before, one;
  unsigned cpus = cpus_allowed();
  cr_assert(pthread_getaffinity_np(pthread_self(), sizeof before, &before) == 0);
  hr_team *team = team_of(cpus < 64 ? cpus : 64, false);
  bool fills = cpus > 1 && cpus <= 64 && hr_team_cpu(team, 0) >= 0 && !has_quota();
  for (unsigned i = 0; fills && i < 2 * cpus; i++) {
    mask_test t = {0};
    CPU_ZERO(&one);
    CPU_SET((size_t)hr_team_cpu(team, i % cpus), &one);
    cr_assert(pthread_setaffinity_np(pthread_self(), sizeof one, &one) == 0);
    RUN(team, cpus, mask_pass, &t);
    for (unsigned j = 0; j < cpus; j++) {
      cr_expect(t.cpus[j] == 1 && t.only[j] == hr_team_cpu(team, j), "thread %u", j);
      cr_expect(!pthread_equal(t.self[j], pthread_self()) == (j != i % cpus), "thread %u", j);
    }
    check_own_mask(&one);
  }
  cr_assert(pthread_setaffinity_np(pthread_self(), sizeof before, &before) == 0);
  hr_team_free(team);
}

Test(sched, inherited_mask_is_the_frame) {
  cpu_set_t before, one;
  cr_assert(sched_getaffinity(0, sizeof before, &before) == 0);
  size_t cpu = 0;
  for (size_t i = 0; i < CPU_SETSIZE; i++)
    if (CPU_ISSET(i, &before)) cpu = i; /* the last */
  CPU_ZERO(&one);
  CPU_SET(cpu, &one);
  cr_assert(sched_setaffinity(0, sizeof one, &one) == 0);
  hr_team *team = team_of(0, false);
  cr_expect(hr_team_threads(team) == 1);
  hr_team_free(team);
  team = team_of(3, false);
  mask_test t = {0};
  RUN(team, 3, mask_pass, &t);
  for (int i = 0; i < 3; i++) cr_expect(t.cpus[i] == 1 && t.only[i] == (int)cpu);
  hr_team_free(team);
  check_own_mask(&one);
  cr_assert(sched_setaffinity(0, sizeof before, &before) == 0);
}

/* Cores that are named hold for every pass: of one thread, and of more than there are CPUs. */
Test(sched, named_cores_hold_for_every_pass) {
  static const hr_team_options cases[] = {
      {.threads = 0}, {.threads = 1}, {.threads = 1, .threads_batch = 3},
      {.threads = 2}, {.threads = 3}, {.threads = 2, .no_pin = true},
  };
  cpu_set_t before;
  unsigned cpu = 0;
  cr_assert(sched_getaffinity(0, sizeof before, &before) == 0);
  for (unsigned i = 0; i < CPU_SETSIZE; i++)
    if (CPU_ISSET(i, &before)) cpu = i; /* the last */
  char name[16];
  snprintf(name, sizeof name, "%u", cpu);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    hr_team_options o = cases[i];
    hr_error err = {0};
    o.cores = name;
    hr_team *team = hr_team_create(&o, &err);
    cr_assert(team, "%s", err.message);
    const unsigned most = hr_team_threads_batch(team);
    const char *warning = hr_team_warning(team);
    cr_expect(most == 1 ? !warning : warning && strstr(warning, "more than there are CPUs"),
              "%zu: %s", i, warning);
    cr_expect(hr_team_active(team, false) == 1 && hr_team_active(team, true) == 1, "%zu", i);
    for (unsigned threads = 1; threads <= most; threads++) {
      mask_test t = {0};
      RUN(team, threads, mask_pass, &t);
      check_own_mask(&before);
      for (unsigned n = 0; n < threads; n++)
        cr_expect(t.cpus[n] == 1 && t.only[n] == (int)cpu, "%zu: thread %u of %u: %d CPUs from %d",
                  i, n, threads, t.cpus[n], t.only[n]);
    }
    cr_expect(hr_team_cpu(team, 0) == (o.no_pin ? -1 : (int)cpu), "%zu", i);
    hr_team_free(team);
    check_own_mask(&before);
  }
}

/* One thread on one of all CPUs: named too, and the caller may be on another. */
Test(sched, one_thread_of_all_cores_is_pinned) {
  cpu_set_t before;
  cr_assert(sched_getaffinity(0, sizeof before, &before) == 0);
  hr_team *team = hr_team_create(&(hr_team_options){.threads = 1, .cores = "all"}, NULL);
  cr_assert(team);
  mask_test t = {0};
  RUN(team, 1, mask_pass, &t);
  cr_expect(t.cpus[0] == 1 && t.only[0] == hr_team_cpu(team, 0), "%d CPUs", t.cpus[0]);
  check_own_mask(&before);
  hr_team_free(team);
}

/* --- Speed that must not be lost ------------------------------------------ */

static double seconds(void) {
  return 1e-9 * (double)hr_clock_ns();
}

typedef struct {
  hr_team *team;
  unsigned steps, work;
} work_test;

/* `work` units in each step, split evenly, a barrier behind each. */
static void work_pass(void *arg, unsigned thread, unsigned threads) {
  work_test *w = arg;
  for (unsigned s = 0; s < w->steps; s++) {
    unsigned mine = w->work * (thread + 1) / threads - w->work * thread / threads;
    for (volatile unsigned i = 0; i < mine;) i = i + 1;
    hr_team_barrier(w->team, thread);
  }
}

static double best_time(hr_team *team, unsigned threads, unsigned tries) {
  work_test w = {team, 50, 400000}; /* steps of about a tenth of a millisecond */
  double best = 1e9;
  for (unsigned i = 0; i < tries; i++) {
    double start = seconds();
    RUN(team, threads, work_pass, &w);
    double took = seconds() - start;
    if (took < best) best = took;
  }
  return best;
}

/* Threads that wait for each other by spinning burn time; that is what is measured,
 * since how long the clock runs depends on the other programs of the machine. */
static double best_cpu_time(hr_team *team, unsigned threads) {
  double best = 1e9;
  for (int i = 0; i < 3; i++) {
    double before = cpu_seconds();
    best_time(team, threads, 1);
    double used = cpu_seconds() - before;
    if (used < best) best = used;
  }
  return best;
}

Test(sched, twice_too_many_threads_are_slow_not_hung, .timeout = 120) {
  unsigned cpus = cpus_allowed();
  hr_team *team = team_of(2 * cpus, false);
  double one = best_cpu_time(team, 1), many = best_cpu_time(team, 2 * cpus);
  cr_expect(many <= 3 * one, "%.1f ms against %.1f ms with one thread", many * 1e3, one * 1e3);
  hr_team_free(team);
}

static void move_here(void *arg, unsigned thread, unsigned threads) {
  (void)thread, (void)threads;
  cr_expect(pthread_setaffinity_np(pthread_self(), sizeof(cpu_set_t), arg) == 0);
}

/* Threads that aren't pinned may meet on a CPU, where looking for each other takes the time that
 * the other needs: 50 us a barrier, against 2 to 4. */
Test(sched, threads_that_meet_on_a_cpu_do_not_spin) {
  enum { STEPS = 1000, ROUNDS_OF_IT = 5 };
  cpu_set_t before, one;
  cr_assert(sched_getaffinity(0, sizeof before, &before) == 0);
  CPU_ZERO(&one);
  for (size_t i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; i++)
    if (CPU_ISSET(i, &before)) CPU_SET(i, &one);
  hr_team *team = team_of(2, true);
  double best = 1e9;
  RUN(team, 2, move_here, &one);
  for (int i = 0; i < ROUNDS_OF_IT; i++) {
    double start = cpu_seconds();
    check_barriers(team, 2, STEPS);
    double each = (cpu_seconds() - start) / (2 * STEPS);
    if (each < best) best = each;
  }
  cr_expect(best < 20e-6, "%.1f us a barrier", best * 1e6);
  cr_assert(sched_setaffinity(0, sizeof before, &before) == 0);
  hr_team_free(team);
}

typedef struct {
  hr_team *team;
  unsigned threads;
  double best;
} other_caller;

static void *call_from_here(void *arg) {
  other_caller *o = arg;
  o->best = best_time(o->team, o->threads, 8);
  return NULL;
}

/* Other programs may spoil a measurement, so the bound has to hold in one of
 * several rounds. */
#define ROUNDS 10

/* The threads belong to the team and not to who calls: a caller must not get new ones. */
Test(sched, any_thread_may_call, .timeout = 120) {
  hr_team *team = team_of(0, false);
  other_caller here = {team, hr_team_threads(team), 0}, there = here;
  for (int i = 0; i < ROUNDS && (i == 0 || there.best > 1.3 * here.best); i++) {
    pthread_t thread;
    call_from_here(&here);
    cr_assert(pthread_create(&thread, NULL, call_from_here, &there) == 0);
    pthread_join(thread, NULL);
  }
  cr_expect(there.best <= 1.3 * here.best, "%.2f ms against %.2f", there.best * 1e3,
            here.best * 1e3);
  hr_team_free(team);
}

/* --- Surroundings --------------------------------------------------------- */

static void slow_pass(void *arg, unsigned thread, unsigned threads) {
  (void)thread, (void)threads;
  atomic_store((_Atomic int *)arg, 1);
  nanosleep(&(struct timespec){.tv_nsec = 200000000}, NULL);
}

typedef struct {
  hr_team *team;
  _Atomic int under_way;
} busy_test;

static void *run_slowly(void *arg) {
  busy_test *b = arg;
  RUN(b->team, 2, slow_pass, &b->under_way);
  return NULL;
}

Test(sched, two_callers_at_once_are_refused) {
  busy_test b = {.team = team_of(2, true)};
  hr_error err = {0};
  pthread_t thread;
  cr_assert(pthread_create(&thread, NULL, run_slowly, &b) == 0);
  while (!atomic_load(&b.under_way)) sched_yield();
  cr_expect(hr_team_run(b.team, 1, nothing, NULL, &err) == HR_ERROR_USAGE);
  cr_expect(strstr(err.message, "two threads at once"), "%s", err.message);
  pthread_join(thread, NULL);
  RUN(b.team, 2, nothing, NULL);
  hr_team_free(b.team);
}

/* In a child: 0 when the team of its parent says so, and ends without a hang. */
static int is_refused(hr_team *team) {
  hr_error err = {0};
  bool good = hr_team_run(team, 2, nothing, NULL, &err) == HR_ERROR_USAGE &&
              strstr(err.message, "forked") && hr_team_run(team, 1, nothing, NULL, &err) != HR_OK;
  hr_team_free(team);
  return good ? 0 : 1;
}

static void expect_good_child(pid_t child) {
  int status = 0;
  cr_assert(waitpid(child, &status, 0) == child);
  cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %x", (unsigned)status);
}

Test(sched, forked_child_gets_an_error, .timeout = 30) {
  hr_team *team = team_of(2, false);
  RUN(team, 2, nothing, NULL);
  pid_t child = fork();
  cr_assert(child >= 0);
  if (child == 0) {
    hr_error err = {0};
    bool good = is_refused(team) == 0;
    team = hr_team_create(&(hr_team_options){.threads = 2}, &err);
    good = good && team && hr_team_run(team, 2, nothing, NULL, &err) == HR_OK;
    hr_team_free(team);
    _exit(good ? 0 : 1);
  }
  expect_good_child(child);
  RUN(team, 2, nothing, NULL); /* the parent's goes on */
  hr_team_free(team);
}

/* A child that no handler of pthread_atfork hears of. */
Test(sched, cloned_child_gets_an_error, .timeout = 30) {
  hr_team *team = team_of(2, false);
  RUN(team, 2, nothing, NULL);
  pid_t child = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, 0);
  cr_assert(child >= 0);
  if (child == 0) _exit(is_refused(team));
  expect_good_child(child);
  RUN(team, 2, nothing, NULL);
  hr_team_free(team);
}

typedef struct {
  volatile float tiny, one, third; /* volatile: computed at run time, in this order */
  _Atomic unsigned wrong;
} fp_test;

static void fp_pass(void *arg, unsigned thread, unsigned threads) {
  fp_test *t = arg;
  (void)thread, (void)threads;
  volatile float half = t->tiny / 2, back = half * 2, third = t->one / t->third;
  if (half == 0 || back != t->tiny || third != 0x1.555556p-2f) atomic_fetch_add(&t->wrong, 1);
}

/* A caller with fast-math settings and another rounding. */
static void spoil_fp(void) {
  fesetround(FE_DOWNWARD);
#if defined(__x86_64__)
  _mm_setcsr(_mm_getcsr() | 0x8040);
#elif defined(__aarch64__)
  uint64_t fpcr;
  __asm__ volatile("mrs %0, fpcr" : "=r"(fpcr));
  __asm__ volatile("msr fpcr, %0" : : "r"(fpcr | UINT64_C(1) << 24));
#endif
}

Test(sched, arithmetic_of_a_pass) {
  hr_team *team = team_of(3, true);
  fp_test t = {.tiny = 0x1p-126f, .one = 1, .third = 3};
  spoil_fp();
  volatile float third = t.one / t.third;
  cr_assert(third == 0x1.555554p-2f, "the caller rounds downwards");
  for (unsigned threads = 1; threads <= 3; threads++) RUN(team, threads, fp_pass, &t);
  cr_expect(t.wrong == 0, "%u", t.wrong);
  third = t.one / t.third;
  cr_expect(third == 0x1.555554p-2f && fegetround() == FE_DOWNWARD);
#if defined(__x86_64__)
  cr_expect((_mm_getcsr() & 0x8040) == 0x8040);
#endif
  fesetenv(FE_DFL_ENV);
  hr_team_free(team);
}

/* Each allocation in turn fails: an error with its status, and nothing lost. */
Test(sched, out_of_memory) {
  hr_error err = {0};
  hr_memory_fail_at(0);
  hr_team_free(team_of(3, false));
  size_t count = hr_memory_fail_at(0);
  cr_assert(count > 5);
  for (size_t n = 1; n <= count; n++) {
    hr_memory_fail_at(n);
    hr_team *team = hr_team_create(&(hr_team_options){.threads = 3}, &err);
    hr_memory_fail_at(0);
    /* Without room to sort them, kinds of cores are left out: no reason to fail. */
    if (team) RUN(team, 3, nothing, NULL);
    if (!team) cr_expect(err.status == HR_ERROR_MEMORY, "%zu: %s", n, err.message);
    hr_team_free(team);
  }
}

Test(sched, teams_come_and_go, .timeout = 60) {
  for (int i = 0; i < 20; i++) {
    hr_team *a = team_of(2, false), *b = team_of(3, true);
    RUN(a, 2, nothing, NULL);
    RUN(b, 3, nothing, NULL);
    hr_team_free(a);
    RUN(b, 3, nothing, NULL);
    hr_team_free(b);
  }
}
