/* SPDX-License-Identifier: MIT
 * Options of a command, as a table from which arguments are read and help is
 * written. A row says where in the command's settings its value goes. */
#ifndef HR_CLI_OPTIONS_H
#define HR_CLI_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Kinds of values, and the type of the member that takes each. */
typedef enum cli_kind {
  CLI_FLAG,    /* bool */
  CLI_TEXT,    /* const char *, NULL: not given */
  CLI_TEXTS,   /* cli_texts: may be given many times */
  CLI_COUNT,   /* cli_count: a whole number */
  CLI_THREADS, /* cli_count: a whole number, or "auto" for 0 */
  CLI_REAL,    /* cli_real */
  CLI_CHOICE   /* cli_choice: one of a list of words */
} cli_kind;

typedef struct cli_texts {
  const char **item;
  size_t count;
} cli_texts;

typedef struct cli_count {
  uint64_t value;
  bool given;
} cli_count;

typedef struct cli_real {
  float value;
  bool given;
} cli_real;

typedef struct cli_choice {
  int value; /* place in the list */
  bool given;
} cli_choice;

typedef struct cli_option {
  const char *name;  /* without its dashes */
  char letter;       /* short form, 0: none */
  const char *value; /* what the help calls the value; NULL for a flag */
  const char *help;
  cli_kind kind;
  size_t offset;              /* of the member in the settings */
  uint64_t least, most;       /* COUNT, THREADS */
  double low, high;           /* REAL; high may be infinite */
  bool above_low;             /* REAL: low itself is not allowed */
  const char *const *choices; /* CHOICE, ends in NULL */
} cli_option;

typedef struct cli_command cli_command;
struct cli_command {
  const char *name;
  const char *arguments; /* for the usage line */
  const char *summary;   /* one line */
  const char *details;   /* paragraphs for the help, or NULL */
  const cli_option *options;
  size_t option_count;
  int (*run)(const cli_command *command, int argc, char **argv);
};

/* How the reading of arguments ended. */
typedef enum cli_reading {
  CLI_GO_ON,
  CLI_HELP_WANTED,
  CLI_BAD_USAGE /* the error has been printed */
} cli_reading;

/* Reads argv[0..argc) into settings by two tables of options, the command's and
 * the common one, which both count offsets from settings. What is no option goes
 * to *positional, which uses argv. The items of a CLI_TEXTS are to be freed. */
cli_reading cli_read_options(const cli_command *command, const cli_option *common,
                             size_t common_count, int argc, char **argv, void *settings,
                             cli_texts *positional);

/* Reads one value given under a name (an option or an environment variable)
 * into the settings; false after printing what was expected. */
bool cli_read_value(const cli_option *option, const char *where, const char *text, void *settings);

/* Strict numbers: digits and nothing else; no overflow. */
bool cli_parse_count(const char *text, uint64_t *value);
bool cli_parse_real(const char *text, float *value);

/* Prints the rows of a table for the help, less those that a second table has too
 * (may be NULL); a letter that it took is left out. */
void cli_print_options(const cli_option *options, size_t count, const cli_option *own,
                       size_t own_count);

#endif
