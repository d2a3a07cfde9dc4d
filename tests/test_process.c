/* SPDX-License-Identifier: MIT
 * The command as a process: signals at any moment, little memory, files that ask for much. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "headrow/headrow.h"
#include "kernels/select.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/sanitized.h"
#include "tests/support/shell.h"

#define MODELS HEADROW_SOURCE_ROOT "/models/"

TestSuite(process, .timeout = 300);

/* --- Signals --------------------------------------------------------------------- */

static void pause_ms(long ms) {
  struct timespec t = {ms / 1000, ms % 1000 * 1000000};
  nanosleep(&t, NULL);
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Whether a process has a handler for the signal. */
static bool catches(pid_t process, int number) {
  char path[64], line[128];
  unsigned long long caught = 0;
  snprintf(path, sizeof path, "/proc/%d/status", (int)process);
  FILE *f = fopen(path, "r");
  while (f && fgets(line, sizeof line, f)) sscanf(line, "SigCgt: %llx", &caught);
  if (f) fclose(f);
  return caught >> (number - 1) & 1;
}

/* Before a fork: without what nohup and the like have taught this program to ignore, and without
 * the handlers of Criterion, which a child would be seen to have until it is another program. */
static void forget_signals(void) {
  static const int numbers[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM};
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) signal(numbers[i], SIG_DFL);
}

static void exec_line(const char *line) {
  char whole[2048];
  snprintf(whole, sizeof whole, "exec %s </dev/null >/dev/null 2>&1", line);
  setenv("H", getenv("HEADROW_COMMAND"), 1);
  execl("/bin/sh", "sh", "-c", whole, (char *)NULL);
  _exit(99);
}

/* A shell may catch SIGINT until it has become the command; nobody but that catches SIGTERM. */
static bool is_ready(pid_t process, int number) {
  return catches(process, SIGTERM) && catches(process, number);
}

static void signal_after(pid_t process, int number, bool caught, long after_ms) {
  for (int i = 0; caught && i < 6000 && !is_ready(process, number); i++) pause_ms(10);
  pause_ms(after_ms);
  kill(process, number);
}

/* Starts a line of the shell, sends the signal to its program after so long, counted from
 * where it is caught if that is asked for; gives the status, and how long the program took
 * to end after the signal. */
static int signalled(const char *line, int number, bool caught, long after_ms, double *took) {
  fflush(NULL);
  forget_signals();
  pid_t child = fork();
  if (child == 0) exec_line(line);
  signal_after(child, number, caught, after_ms);
  double sent = now();
  int status;
  waitpid(child, &status, 0);
  *took = now() - sent;
  return exit_of(status);
}

/* The kinds of work, each long enough to be met by the signal. */
static const char *const work[] = {
    "$H run --ignore-eos -c 2000000 -p a",                     /* generating */
    "$H logits --ids @%s -c 64000 " MODELS "rope.gguf",        /* a long prompt */
    "$H bench -p 4000 -n 4000 -r 100",                         /* measuring */
    "$H perplexity --ids @%s -c 32000 " MODELS "rope.gguf",    /* scoring */
};

static void write_ids(char path[static 32]) {
  strcpy(path, "/tmp/headrow-ids-XXXXXX");
  int fd = mkstemp(path);
  cr_assert(fd >= 0);
  FILE *f = fdopen(fd, "w");
  for (int i = 0; i < 60000; i++) fprintf(f, "%d ", 3 + i % 50);
  fclose(f);
}

Test(process, int_term_and_hup_end_any_work_with_its_status) {
  static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
  char ids[32], line[512];
  write_ids(ids);
  for (size_t i = 0; i < sizeof work / sizeof *work; i++)
    for (size_t k = 0; k < (i ? 2 : 3); k++) {
      double took;
      snprintf(line, sizeof line, work[i], ids);
      int status = signalled(line, numbers[k], true, 100, &took);
      cr_expect_eq(status, 130, "%s: %d", line, status);
      cr_expect(took < 20, "%s: ended %.1f s after the signal", line, took);
    }
  unlink(ids);
}

/* From the first instruction on: by the signal before it is caught, with 130 after that, and
 * never with another status, a hang or a crash. */
Test(process, a_signal_while_starting_and_loading_is_one_of_two_ends) {
  for (long ms = 0; ms < 60; ms += 3) {
    double took;
    int number = ms % 2 ? SIGTERM : SIGINT;
    int status = signalled("$H run --ignore-eos -c 2000000 -p a", number, false, ms, &took);
    cr_expect(status == 130 || status == 256 + number, "after %ld ms: %d", ms, status);
  }
}

enum { FIRST_PROCESS_REFUSED = -1 };

/* The same as process 1 of a namespace of its own, as the program of a container is: a signal
 * without a handler does not reach it. Without a signal, its own end. */
static int signalled_as_first(const char *line, int number) {
  int channel[2];
  cr_assert(pipe(channel) == 0);
  fflush(NULL);
  forget_signals();
  pid_t outside = fork();
  if (outside == 0) {
    if (unshare(geteuid() == 0 ? CLONE_NEWPID : CLONE_NEWPID | CLONE_NEWUSER) != 0) _exit(1);
    pid_t first = fork();
    if (first == 0) exec_line(line);
    int status = 0;
    if (write(channel[1], &first, sizeof first) < 0 || waitpid(first, &status, 0) != first ||
        write(channel[1], &status, sizeof status) < 0)
      _exit(1);
    _exit(0);
  }
  close(channel[1]);
  pid_t first;
  int status;
  bool started = read(channel[0], &first, sizeof first) == sizeof first;
  if (started && number) signal_after(first, number, true, 100);
  bool ended = started && read(channel[0], &status, sizeof status) == sizeof status;
  close(channel[0]);
  waitpid(outside, NULL, 0);
  cr_assert(!started || ended, "%s", line);
  return started ? exit_of(status) : FIRST_PROCESS_REFUSED;
}

Test(process, process_1_ends_as_any_other) {
  static const struct {
    const char *line;
    int number, status;
  } cases[] = {{"$H run -q -n 4 -p a", 0, 0},
               {"$H run -q -c 2 --ids 1,2,3", 0, 6},
               {"$H run /nosuch", 0, 3},
               {"$H run --ignore-eos -c 2000000 -p a", SIGINT, 130},
               {"$H run --ignore-eos -c 2000000 -p a", SIGTERM, 130},
               {"$H bench -p 4000 -n 4000 -r 100", SIGTERM, 130}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    int status = signalled_as_first(cases[i].line, cases[i].number);
    if (status == FIRST_PROCESS_REFUSED) cr_skip("no namespace of processes can be made here");
    cr_expect_eq(status, cases[i].status, "%s, signal %d: %d", cases[i].line, cases[i].number,
                 status);
  }
}

/* nohup, and a service that has no terminal. */
Test(process, hup_that_is_ignored_stays_so) {
  result r = shell("trap '' HUP; $H run -q --ignore-eos --seed 1 -n 60 -p a >$D/out & sleep 0.3;"
                   " kill -HUP $!; wait $!");
  cr_expect_eq(r.status, 0, "%d: %s", r.status, r.err);
  finish(&r);
}

/* A limit of file size is a full disk: a sentence, and nothing is left. */
Test(process, a_file_that_may_not_grow_leaves_nothing) {
  static const char *const lines[] = {"pack builtin $D/out", "quantize builtin $D/out --type f32",
                                      "logits -p a --npy $D/out"};
  for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
    char line[256];
    snprintf(line, sizeof line, "ulimit -f 2; $H %s -q; s=$?; ls -A $D; exit $s", lines[i]);
    expect_error(line, 3, "out", "too large");
  }
}

/* What the OpenMP runtime gives its threads is set before the program begins. */
Test(process, threads_with_little_stack_are_refused) {
  expect_error("OMP_STACKSIZE=32k $H run -q -n 2 -t 2 -p a", 2, "threads", "OMP_STACKSIZE");
  expect_error("OMP_STACKSIZE=64k $H logits --ids 1,2 -q -t 2", 2, "threads", "at least 160");
  result r = shell("OMP_STACKSIZE=32k $H run -q -n 2 -t 1 --no-pin -p a && "
                   "OMP_STACKSIZE=8m $H run -q -n 2 -t 2 -p a");
  cr_expect_eq(r.status, 0, "%s", r.err);
  finish(&r);
}

/* As little as is allowed does for the kernels of every tier, one row and many, in more columns
 * than one chunk of an int8 product. */
Test(process, the_least_stack_does) {
  char ids[600] = "1", line[1500];
  size_t count;
  const hr_tier *tier = hr_tiers(&count);
  for (int i = 2; i < 75; i++) snprintf(ids + strlen(ids), sizeof ids - strlen(ids), ",%d", i);
  for (size_t i = 0; i < count; i++) {
    if (tier[i].needs & ~hr_cpu_features()) {
      fprintf(stderr, "process: %s skipped: this CPU lacks it\n", tier[i].name);
      continue;
    }
    snprintf(line, sizeof line,
             "M=$D/m.gguf; $H bench -q --synthetic "
             "dim=2112,layers=1,heads=8,kv=1,ffn=64,vocab=300:q8_0 --save $M -p 0 -n 0 >$D/o && "
             "OMP_STACKSIZE=168k HEADROW_ISA=%s $H logits -q -t 2 --ids %s $M >$D/l && "
             "OMP_STACKSIZE=168k HEADROW_ISA=%s $H logits -q -t 2 --ids 1 $M >$D/l",
             tier[i].name, ids, tier[i].name);
    result r = shell(line);
    cr_expect_eq(r.status, 0, "%s: %d %s", tier[i].name, r.status, r.err);
    finish(&r);
  }
}

/* A sandbox, as some containers are: no thread may choose its CPUs, nor any of a child.
 * False where no filter of system calls can be set. */
static bool refuse_affinity(void) {
  struct sock_filter step[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_sched_setaffinity, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  const struct sock_fprog filter = {.len = sizeof step / sizeof *step, .filter = step};
  cpu_set_t all;
  if (sched_getaffinity(0, sizeof all, &all) != 0 ||
      prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0)
    return false;
  return sched_setaffinity(0, sizeof all, &all) != 0 && errno == EPERM;
}

static size_t count_of(const char *text, const char *word) {
  size_t count = 0;
  for (; (text = strstr(text, word)); text++) count++;
  return count;
}

/* What one generation says, and answers, with threads of such wishes. */
static void expect_warnings(const char *wishes, const char *word, const char *answer) {
  char line[256];
  snprintf(line, sizeof line, "$H run --temp 0 -n 4 -p Once %s", wishes);
  result r = shell(line);
  cr_expect_eq(r.status, 0, "%s: %s", line, r.err);
  cr_expect_str_eq(r.out, answer, "%s", line);
  cr_expect_eq(count_of(r.err, "warning: "), word ? 1 : 0, "%s: %s", line, r.err);
  if (word)
    cr_expect(strstr(r.err, "warning: the system refused to ") && strstr(r.err, word), "%s: %s",
              line, r.err);
  finish(&r);
}

static hr_session *open_session(hr_session_options options, hr_model **model, hr_error *err) {
  *model = hr_model_open(MODELS "builtin.gguf", NULL, err);
  cr_assert(*model, "%s", err->message);
  return hr_session_create(*model, &options, err);
}

static void expect_api_warning(hr_session_options options, bool any) {
  hr_error err;
  hr_model *model;
  hr_session *session = open_session(options, &model, &err);
  cr_assert(session, "%s", err.message);
  const char *warning = hr_session_warning(session);
  cr_expect_eq(warning != NULL, any, "%u threads: %s", options.threads, warning);
  if (any) cr_expect(warning && strstr(warning, "the system refused to "), "%s", warning);
  cr_expect_eq(hr_session_eval(session, (int32_t[]){1, 2, 3}, 3, HR_LOGITS_LAST, &err), HR_OK);
  hr_session_free(session);
  hr_model_free(model);
}

static void expect_info(const char *wishes, const char *word, const char *pinned) {
  char line[256];
  snprintf(line, sizeof line, "$H info --cpu %s && $H info --cpu --json %s", wishes, wishes);
  result r = shell(line);
  cr_expect_eq(r.status, 0, "%s: %s", line, r.err);
  cr_expect_eq(count_of(r.out, word), 3, "%s: %s", line, r.out); /* JSON has it twice */
  cr_expect(strstr(r.out, pinned), "%s: %s", line, r.out);
  finish(&r);
}

static unsigned last_cpu(void) {
  cpu_set_t all;
  unsigned last = 0;
  cr_assert_eq(sched_getaffinity(0, sizeof all, &all), 0);
  for (unsigned i = 0; i < CPU_SETSIZE; i++)
    if (CPU_ISSET(i, &all)) last = i;
  return last;
}

/* LLVM's OpenMP runtime, which has begun to set masks by then, would end the program. */
Test(process, pinning_that_is_refused_between_two_sessions_ends_no_program) {
  char cpu[16];
  hr_error err;
  hr_model *model;
  hr_session_options named;
  hr_session_options_init(&named);
  snprintf(cpu, sizeof cpu, "%u", last_cpu());
  named.cores = cpu;
  expect_api_warning(named, false);
  if (!refuse_affinity()) cr_skip("no filter of system calls can be set here");
  hr_session *session = open_session(named, &model, &err);
  const char *said = session ? hr_session_warning(session) : err.message;
  const char *expected = session ? "the system refused to pin" : "the OpenMP runtime began before";
  cr_expect(said && strstr(said, expected), "%s", said);
  cr_expect(session || err.status == HR_ERROR_USAGE);
  hr_session_free(session);
  hr_model_free(model);
}

/* It costs a warning, one for all threads, and no more. */
Test(process, pinning_that_is_refused_is_one_warning) {
  char cores[32], crowded[48];
  snprintf(cores, sizeof cores, "--cores %u", last_cpu());
  snprintf(crowded, sizeof crowded, "%s -t 2", cores);
  hr_session_options automatic, named;
  hr_session_options_init(&automatic);
  named = automatic;
  named.cores = cores + strlen("--cores ");

  result answer = shell("$H run --temp 0 -n 4 -p Once -q"), info = shell("$H info --cpu");
  bool pins = strstr(info.out, "\npinned, each thread to one CPU") != NULL;
  cr_expect(pins || strstr(info.out, "\nnot pinned: "), "%s", info.out);
  expect_info(cores, "pinned, each thread to one CPU", "\"pinned\":true");
  if (!refuse_affinity()) cr_skip("no filter of system calls can be set here");

  expect_warnings("", pins ? "pin " : NULL, answer.out);
  expect_warnings(cores, "pin 1 of 1 threads", answer.out);
  expect_warnings(crowded, "pin 2 of 2 threads", answer.out);
  expect_warnings("--no-pin", NULL, answer.out);
  expect_api_warning(automatic, pins);
  expect_api_warning(named, true);
  if (pins) expect_info("", "not pinned: the system refuses it", "\"pinned\":false");
  expect_info(cores, "not pinned: the system refuses it", "\"pinned\":false");
  expect_info(crowded, "not pinned: the system refuses it", "\"pinned\":false");
  finish(&answer);
  finish(&info);
}

/* --- Two commands on CPUs of their own -------------------------------------------------- */

/* A command that generates until it is ended, started under a mask of CPUs. */
typedef struct neighbour {
  cpu_set_t mask;
  pid_t process;
  int out;        /* what it says */
  cpu_set_t pins; /* the CPUs that single threads of it are kept to */
  unsigned threads;
} neighbour;

/* The mask is there before the first instruction: a child has that of the thread that forks. */
static void start_neighbour(neighbour *n) {
  int channel[2];
  cpu_set_t before;
  cr_assert(pipe2(channel, O_CLOEXEC) == 0);
  cr_assert_eq(sched_getaffinity(0, sizeof before, &before), 0);
  cr_assert_eq(sched_setaffinity(0, sizeof n->mask, &n->mask), 0);
  fflush(NULL);
  n->process = fork();
  if (n->process == 0) {
    dup2(channel[1], STDOUT_FILENO);
    const char *command = getenv("HEADROW_COMMAND");
    execl(command, command, "run", "-q", "--ignore-eos", "-c", "2000000", "-p", "a", (char *)NULL);
    _exit(99);
  }
  cr_assert_eq(sched_setaffinity(0, sizeof before, &before), 0);
  close(channel[1]);
  n->out = channel[0];
}

/* Every thread that it has now is kept to CPUs of the mask. */
static void look_at_threads(neighbour *n) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/task", (int)n->process);
  DIR *folder = opendir(path);
  cr_assert(folder, "%s", path);
  CPU_ZERO(&n->pins);
  n->threads = 0;
  for (struct dirent *entry; (entry = readdir(folder));) {
    pid_t thread = atoi(entry->d_name);
    cpu_set_t set, both;
    if (thread <= 0 || sched_getaffinity(thread, sizeof set, &set) != 0) continue;
    CPU_AND(&both, &set, &n->mask);
    cr_expect(CPU_EQUAL(&both, &set), "a thread of %d may run outside its process's mask",
              (int)n->process);
    if (CPU_COUNT(&set) == 1) CPU_OR(&n->pins, &n->pins, &set);
    n->threads++;
  }
  closedir(folder);
}

/* What `info --cpu` under the same mask says of its threads; "pinned" is about several. */
static bool says_pinned(const neighbour *n) {
  cpu_set_t before;
  cr_assert_eq(sched_getaffinity(0, sizeof before, &before), 0);
  cr_assert_eq(sched_setaffinity(0, sizeof n->mask, &n->mask), 0);
  result r = shell("$H info --cpu --json");
  cr_assert_eq(sched_setaffinity(0, sizeof before, &before), 0);
  cr_assert_eq(r.status, 0, "%s", r.err);
  bool pinned = strstr(r.out, "\"pinned\":true") != NULL;
  finish(&r);
  return pinned;
}

/* At every moment from their first instructions to the middle of their answers. */
Test(process, two_commands_on_disjoint_masks_stay_apart) {
  neighbour n[2] = {0};
  cpu_set_t all, common;
  unsigned seen = 0;
  cr_assert_eq(sched_getaffinity(0, sizeof all, &all), 0);
  unsigned cpus = (unsigned)CPU_COUNT(&all);
  if (cpus < 2) {
    fprintf(stderr, "not run: two masks want two CPUs, and this process has one\n");
    cr_skip("one CPU");
  }
  for (unsigned cpu = 0; cpu < CPU_SETSIZE; cpu++)
    if (CPU_ISSET(cpu, &all)) CPU_SET(cpu, &n[seen++ >= cpus / 2].mask);
  unsetenv("HEADROW_THREADS");

  for (int i = 0; i < 2; i++) start_neighbour(&n[i]);
  struct pollfd said[2] = {{n[0].out, POLLIN, 0}, {n[1].out, POLLIN, 0}};
  for (double until = now() + 60; now() < until && !(said[0].revents && said[1].revents);) {
    poll(said, 2, 0);
    for (int i = 0; i < 2; i++) look_at_threads(&n[i]);
    pause_ms(2);
  }
  for (int i = 0; i < 2; i++) {
    cr_expect(said[i].revents & POLLIN, "the command on mask %d says nothing", i);
    look_at_threads(&n[i]);
    kill(n[i].process, SIGTERM);
    int status;
    waitpid(n[i].process, &status, 0);
    cr_expect_eq(exit_of(status), 130, "%d", exit_of(status));
    close(n[i].out);
    cr_expect(!says_pinned(&n[i]) || CPU_COUNT(&n[i].pins) > 0, "no thread of %u is pinned",
              n[i].threads);
  }
  CPU_AND(&common, &n[0].pins, &n[1].pins);
  cr_expect_eq(CPU_COUNT(&common), 0, "threads of both are kept to one CPU");
}

/* --- Streams and files that are none ------------------------------------------------- */

Test(process, closed_streams_are_no_other_file) {
  static const struct {
    const char *line;
    int status;
  } cases[] = {{"$H run -q -n 4 -p a <&-", 0},
               {"$H chat -q --template chatml <&-", 0},
               {"$H run -q -n 4 -p a 2>&-", 0},
               {"$H run -q -n 4 -p a >&- 2>&-", 3},
               {"$H run -q -n 4 -p a <&- >&- 2>&-", 3},
               {"$H run /nosuch <&- >&- 2>&-", 3},
               {"$H pack builtin $D/out <&- >&- 2>&-; $H run -q -n 4 -p a $D/out", 0},
               {"$H logits -p a --npy $D/out <&- >&- 2>&-; head -c 6 $D/out | grep -q NUMPY", 0}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    result r = shell(cases[i].line);
    cr_expect_eq(r.status, cases[i].status, "%s: %d %s", cases[i].line, r.status, r.err);
    finish(&r);
  }
}

/* A pipe without a writer would be waited for. */
Test(process, a_model_that_is_no_file_is_refused_at_once) {
  expect_error("mkfifo $D/m.gguf; timeout 20 $H run $D/m.gguf -p a", 3, "m.gguf", "regular file");
  expect_error("mkfifo $D/config.json; cp $ROOT/tests/fixtures/families/bert.safetensors "
               "$D/model.safetensors; timeout 20 $H embed $D --ids 1", 3, "model.safetensors",
               "no config.json");
  expect_error("timeout 20 $H run /dev/zero -p a", 3, "/dev/zero", "regular file");
  expect_error(": >$D/m.gguf; $H run $D/m.gguf -p a", 3, "m.gguf", "empty");
}

/* What is written goes to a temporary name; that does not stay. */
Test(process, a_result_that_was_interrupted_leaves_no_file) {
  for (long ms = 5; ms < 80; ms += 15) {
    char folder[] = "/tmp/headrow-out-XXXXXX", line[512];
    double took;
    cr_assert(mkdtemp(folder));
    snprintf(line, sizeof line, "$H quantize " MODELS "gpt2.gguf %s/out.gguf --type f32", folder);
    int status = signalled(line, SIGTERM, false, ms, &took);
    snprintf(line, sizeof line, "ls -A %s", folder);
    result r = shell(line);
    if (status == 0)
      cr_expect_str_eq(r.out, "out.gguf\n");
    else
      cr_expect_str_eq(r.out, "", "after %ld ms, status %d", ms, status);
    finish(&r);
    snprintf(line, sizeof line, "rm -rf %s", folder);
    result gone = shell(line);
    finish(&gone);
  }
}

#if WITH_ADDRESS_SANITIZER
#define SKIP_WITHOUT_ADDRESSES() cr_skip("AddressSanitizer takes more memory than this allows")
#else
#define SKIP_WITHOUT_ADDRESSES() (void)0
#endif

/* --- Small files that ask for much -------------------------------------------------- */

enum { WIDTH = 32, VOCAB = 8 };

/* A Llama whose numbers may be lies, with one tensor of that many rows. */
static void put_llama(gguf_writer *w, uint32_t layers, uint32_t width, uint64_t rows) {
  static const float zeros[WIDTH * VOCAB];
  const uint64_t dim[2] = {WIDTH, VOCAB}, lie[2] = {WIDTH, rows};
  gguf_writer_init(w);
  gguf_put_string(w, "general.architecture", "llama");
  gguf_put_u32(w, "llama.block_count", layers);
  gguf_put_u32(w, "llama.context_length", 2147483647);
  gguf_put_u32(w, "llama.embedding_length", width);
  gguf_put_u32(w, "llama.feed_forward_length", 4294967264u);
  gguf_put_u32(w, "llama.attention.head_count", 1);
  gguf_put_f32(w, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
  if (rows == VOCAB)
    gguf_put_tensor(w, "token_embd.weight", GGUF_TENSOR_F32, 2, dim, zeros, sizeof zeros);
  else
    gguf_put_tensor_info(w, "token_embd.weight", GGUF_TENSOR_F32, 2, lie, 0);
}

static void expect_refused_in_little_memory(gguf_writer *w, const char *what) {
  char path[] = "/tmp/headrow-lie-XXXXXX", line[512];
  size_t size;
  unsigned char *data = gguf_writer_finish(w, &size);
  int fd = mkstemp(path);
  cr_assert(fd >= 0 && size < 4096 && write(fd, data, size) == (ssize_t)size);
  close(fd);
  free(data);
  snprintf(line, sizeof line, "ulimit -v 400000; timeout 20 $H run -q -t 1 %s -p a -n 1", path);
  result r = shell(line);
  unlink(path);
  cr_expect(r.status == 3 || r.status == 4, "%s: %d: %s", what, r.status, r.err);
  cr_expect(lines_of(r.err) == 1 && strncmp(r.err, "headrow: ", 9) == 0, "%s: %s", what, r.err);
  finish(&r);
}

Test(process, a_small_file_that_asks_for_gigabytes_is_refused_at_once) {
  SKIP_WITHOUT_ADDRESSES();
  gguf_writer w;
  const uint64_t huge = (uint64_t)1 << 40;
  put_llama(&w, 1, WIDTH, VOCAB);
  expect_refused_in_little_memory(&w, "a feed-forward of 2^32 columns");
  put_llama(&w, 4294967295u, WIDTH, VOCAB);
  expect_refused_in_little_memory(&w, "2^32 layers");
  put_llama(&w, 2000000, WIDTH, VOCAB);
  expect_refused_in_little_memory(&w, "two million layers");
  put_llama(&w, 1, 2147483616, VOCAB);
  expect_refused_in_little_memory(&w, "a width of 2^31");
  put_llama(&w, 1, WIDTH, (uint64_t)1 << 33);
  expect_refused_in_little_memory(&w, "an embedding of 2^33 rows");
  put_llama(&w, 1, WIDTH, (uint64_t)1 << 59);
  expect_refused_in_little_memory(&w, "an embedding whose bytes pass 64 bits");
  put_llama(&w, 1, WIDTH, VOCAB);
  gguf_put_raw(&w, "text", GGUF_STRING, &huge, sizeof huge);
  expect_refused_in_little_memory(&w, "a string of a terabyte");
  put_llama(&w, 1, WIDTH, VOCAB);
  w.tensor_count = huge;
  expect_refused_in_little_memory(&w, "2^40 tensors");
}

Test(process, a_context_that_no_machine_holds_is_refused) {
  SKIP_WITHOUT_ADDRESSES();
  result r = shell("ulimit -v 1000000; $H run -q -t 1 -c 16000000 -p a -n 1");
  cr_expect(r.status == 4 && lines_of(r.err) == 1, "%d: %s", r.status, r.err);
  finish(&r);
}

/* --- A limit of memory that the system enforces ---------------------------------------- */

/* $G is a group of its own with 128 MiB; `inside` runs a command in it. */
#define IN_GROUP                                                                              \
  "for root in /sys/fs/cgroup/memory /sys/fs/cgroup; do\n"                                    \
  "  G=$root/headrow-test-$$; mkdir $G 2>/dev/null || continue\n"                             \
  "  trap 'rmdir $G' EXIT\n"                                                                  \
  "  for f in memory.max memory.limit_in_bytes; do\n"                                         \
  "    [ -f $G/$f ] && echo 134217728 2>/dev/null >$G/$f && break 2\n"                        \
  "  done\n"                                                                                  \
  "  rmdir $G; trap - EXIT; G=\n"                                                             \
  "done\n"                                                                                    \
  "[ -n \"$G\" ] && sh -c 'echo $$ >$0/cgroup.procs' $G 2>/dev/null || exit 77\n"             \
  "inside() { sh -c 'echo $$ >$0/cgroup.procs; exec \"$@\"' $G \"$@\"; }\n"

static void expect_in_group(const char *line, int status, const char *word) {
  char whole[2048];
  snprintf(whole, sizeof whole, IN_GROUP "%s", line);
  result r = shell(whole);
  if (r.status == 77) cr_skip("no control group with a limit of memory can be made here");
  cr_expect_eq(r.status, status, "%s: %d: %s", line, r.status, r.err);
  cr_expect(!word || strstr(r.err, word), "%s: %s", line, r.err);
  cr_expect(!word || lines_of(r.err) == 1, "%s: %s", line, r.err);
  finish(&r);
}

/* The system would end the command without a word. */
Test(process, a_limit_of_a_control_group_is_a_sentence_not_the_end) {
  expect_in_group("inside $H run -q -c 2000000 --ids 1 -n 1", 4, "headrow-test-");
  expect_in_group("inside $H bench -q --synthetic smollm2-135m:f16 -p 1 -n 0 -r 1", 4,
                  "headrow-test-");
  /* What is said to fit can be taken, all but a fiftieth: what the system counts of a group
   * moves by some hundred kilobytes from run to run. */
  expect_in_group("c=$(inside $H run -q -c 2000000 --ids 1 -n 1 2>&1 | "
                  "sed -n 's/.*; -c \\([0-9]*\\) would fit$/\\1/p')\n"
                  "c=$((c - c / 50))\n"
                  "[ $c -gt 2000 ] && inside $H run -q -c $c --ids 1 -n 8 --seed 1",
                  0, NULL);
  expect_in_group("inside $H run -q --ids 1 -n 8 --seed 1", 0, NULL);
}

/* What is read and written goes by: neither has to fit. Files of a tmpfs are memory, though. */
Test(process, files_larger_than_a_group_s_memory_are_packed_and_quantized_in_it) {
  SKIP_WITHOUT_ADDRESSES();
  expect_in_group("[ \"$(stat -f -c %T $D)\" = tmpfs ] && exit 77\n"
                  "$H bench -q --synthetic dim=768,layers=8,vocab=24000:f16 --save $D/m.gguf "
                  "-p 1 -n 0 -r 1 >/dev/null\n"
                  "[ $(stat -c %s $D/m.gguf) -gt 150000000 ] || exit 1\n"
                  "inside $H quantize $D/m.gguf $D/q.gguf --type bf16 -q >/dev/null &&\n"
                  "rm $D/q.gguf && inside $H pack $D/m.gguf $D/p -q &&\n"
                  "$H pack $D/m.gguf $D/p2 -q && cmp $D/p $D/p2",
                  0, NULL);
}
