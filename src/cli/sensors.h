/* SPDX-License-Identifier: MIT
 * What the system tells of its own state while something is measured: time of
 * the CPUs, frequency, temperature, throttling, energy. Every file is looked for
 * below a root folder, so that a test can bring its own machine. */
#ifndef HR_CLI_SENSORS_H
#define HR_CLI_SENSORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sched/cpuset.h"

enum { CLI_ENERGY_COUNTERS = 32, CLI_SENSOR_TEXT = 256 };

typedef struct cli_sensors cli_sensors;

/* Finds what there is below root ("" for this machine). NULL when memory is out. */
cli_sensors *cli_sensors_open(const char *root);
/* NULL is allowed. */
void cli_sensors_free(cli_sensors *sensors);

/* Where values come from, in words; NULL: there is nothing to read. The governor
 * is the name itself, several with commas. */
typedef struct cli_sensor_names {
  const char *governor, *frequency, *temperature, *throttling, *energy;
  /* why there is none of it; NULL when there is */
  const char *frequency_reason, *temperature_reason, *throttling_reason, *energy_reason;
  double most_mhz;           /* that the fastest CPU is made for; 0: not known */
} cli_sensor_names;
cli_sensor_names cli_sensors_names(const cli_sensors *sensors);

/* The state at one moment. */
typedef struct cli_state {
  double time;        /* seconds of a clock that only goes forward; set by the caller */
  double own_seconds; /* CPU time of this process and its involuntary switches so far; */
  long switches;      /* set by the caller */
  double busy, steal; /* seconds of all CPUs since the start of the system: used by anyone (steal
                         included), and taken by the hypervisor; below 0: not known */
  double mhz;         /* mean over the CPUs asked for; 0: not known */
  double celsius;     /* of the hottest sensor, valid when has_celsius */
  bool has_celsius;
  uint64_t throttled; /* times so far, valid when has_throttled */
  bool has_throttled;
  bool throttled_now; /* a board's firmware says so */
  uint64_t energy[CLI_ENERGY_COUNTERS]; /* microjoules, as many as there are counters */
  bool has_energy;
} cli_state;

/* The highest frequency that those CPUs are made for, as a mean over them (all for NULL); 0:
 * not known. */
double cli_sensors_most_mhz(const cli_sensors *sensors, const hr_cpuset *cpus);

/* Reads all of it; frequencies only of those CPUs, of all for NULL. */
void cli_sensors_read(const cli_sensors *sensors, const hr_cpuset *cpus, cli_state *reading);

/* Joules between two readings, counters that started anew included. Below 0 when
 * that can't be known. */
double cli_sensors_joules(const cli_sensors *sensors, const cli_state *before,
                          const cli_state *after);

/* Whether the machine throttled between two readings: 1 yes, 0 no, -1 not known. */
int cli_throttled(const cli_state *before, const cli_state *after);

/* Says what disturbed a measurement by so many threads on a machine of so many
 * CPUs that once ran at best_mhz (0: not known): "" for nothing. Other programs or
 * the hypervisor used more than 5 % of the CPUs' time and a tick of 10 ms of each more, in which
 * the system counts; threads were interrupted more than 20 times a second each, and 5 times
 * more; the frequency was below 90 % of the best; or the machine throttled. */
const char *cli_disturbance(const cli_state *before, const cli_state *after, unsigned threads,
                            unsigned cpus, double best_mhz, char text[CLI_SENSOR_TEXT]);

#endif
