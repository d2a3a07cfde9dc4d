/* SPDX-License-Identifier: MIT
 * Read before each source by scripts/analysis.sh tidy: what the analyzer can't know because
 * it sees one source at a time. Sources that define one of these are read without it. */
#ifndef HR_SCRIPTS_TIDY_H
#define HR_SCRIPTS_TIDY_H

/* A failure of the command has the status that it was made with. */
#if __has_include("headrow/headrow.h") && (__has_include("cli/cli.h") || __has_include("cli.h"))
#if __has_include("cli/cli.h")
#include "cli/cli.h"
#else
#include "cli.h"
#endif
static inline int cli_known_status(int told, hr_status status) {
  (void)told;
  return (int)status;
}
#define cli_fail(status, ...) cli_known_status(cli_fail(status, __VA_ARGS__), status)
#define cli_fail_memory() cli_known_status(cli_fail_memory(), HR_ERROR_MEMORY)
#endif

#if __has_include("headrow/headrow.h") && __has_include("sched/team.h")
#include "base/error.h"
#include "sched/team.h"

/* So has one inside. */
static inline hr_status hr_known_status(hr_status told, hr_status status) {
  (void)told;
  return status;
}
#define hr_fail(err, status, ...) hr_known_status(hr_fail(err, status, __VA_ARGS__), status)
#define hr_fail_memory(err, what, bytes) \
  hr_known_status(hr_fail_memory(err, what, bytes), HR_ERROR_MEMORY)

/* A team has a thread. */
static inline unsigned hr_at_least_1(unsigned n) {
  if (n == 0) __builtin_unreachable();
  return n;
}
#define hr_team_threads(team) hr_at_least_1(hr_team_threads(team))
#endif

/* A panel has bytes. */
#if __has_include("kernels/layout.h")
#include "kernels/layout.h"
static inline size_t hr_not_0(size_t n) {
  if (n == 0) __builtin_unreachable();
  return n;
}
#define hr_panel_bytes(type, k) hr_not_0(hr_panel_bytes(type, k))
#endif

#endif
