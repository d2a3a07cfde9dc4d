/* SPDX-License-Identifier: MIT
 * The CPU's name. x86 has one in /proc/cpuinfo; ARM has numbers of the maker and the part of
 * each core, and a board has a name of its own. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "machine.h"

enum { MOST_KINDS = 8 };

/* Cores of one maker and part. */
typedef struct kind {
  unsigned long maker, part;
  unsigned cores;
} kind;

/* Of the Main ID Register, as the makers' manuals and Linux give them. */
static const struct {
  unsigned maker, part;
  const char *name;
} parts[] = {
    {0x41, 0xc07, "Cortex-A7"},     {0x41, 0xc0f, "Cortex-A15"},    {0x41, 0xd03, "Cortex-A53"},
    {0x41, 0xd04, "Cortex-A35"},    {0x41, 0xd05, "Cortex-A55"},    {0x41, 0xd07, "Cortex-A57"},
    {0x41, 0xd08, "Cortex-A72"},    {0x41, 0xd09, "Cortex-A73"},    {0x41, 0xd0a, "Cortex-A75"},
    {0x41, 0xd0b, "Cortex-A76"},    {0x41, 0xd0c, "Neoverse N1"},   {0x41, 0xd0d, "Cortex-A77"},
    {0x41, 0xd0e, "Cortex-A76AE"},  {0x41, 0xd40, "Neoverse V1"},   {0x41, 0xd41, "Cortex-A78"},
    {0x41, 0xd42, "Cortex-A78AE"},  {0x41, 0xd44, "Cortex-X1"},     {0x41, 0xd46, "Cortex-A510"},
    {0x41, 0xd47, "Cortex-A710"},   {0x41, 0xd48, "Cortex-X2"},     {0x41, 0xd49, "Neoverse N2"},
    {0x41, 0xd4a, "Neoverse E1"},   {0x41, 0xd4b, "Cortex-A78C"},   {0x41, 0xd4c, "Cortex-X1C"},
    {0x41, 0xd4d, "Cortex-A715"},   {0x41, 0xd4e, "Cortex-X3"},     {0x41, 0xd4f, "Neoverse V2"},
    {0x41, 0xd80, "Cortex-A520"},   {0x41, 0xd81, "Cortex-A720"},   {0x41, 0xd82, "Cortex-X4"},
    {0x41, 0xd84, "Neoverse V3"},   {0x41, 0xd85, "Cortex-X925"},   {0x41, 0xd87, "Cortex-A725"},
    {0x41, 0xd8e, "Neoverse N3"},   {0x43, 0x0af, "ThunderX2"},     {0x46, 0x001, "A64FX"},
    {0x48, 0xd01, "Kunpeng 920"},   {0x4e, 0x004, "Carmel"},        {0x51, 0x001, "Oryon"},
    {0x51, 0x804, "Kryo 4xx Gold"}, {0x51, 0x805, "Kryo 4xx Silver"},
    {0x61, 0x022, "Apple M1 Icestorm"},     {0x61, 0x023, "Apple M1 Firestorm"},
    {0x61, 0x024, "Apple M1 Pro Icestorm"}, {0x61, 0x025, "Apple M1 Pro Firestorm"},
    {0x61, 0x028, "Apple M1 Max Icestorm"}, {0x61, 0x029, "Apple M1 Max Firestorm"},
    {0x61, 0x032, "Apple M2 Blizzard"},     {0x61, 0x033, "Apple M2 Avalanche"},
    {0x61, 0x034, "Apple M2 Pro Blizzard"}, {0x61, 0x035, "Apple M2 Pro Avalanche"},
    {0x61, 0x038, "Apple M2 Max Blizzard"}, {0x61, 0x039, "Apple M2 Max Avalanche"},
    {0x6d, 0xd49, "Azure Cobalt 100"},      {0xc0, 0xac3, "AmpereOne"},
    {0xc0, 0xac4, "AmpereOne A"},
};

/* The value of a line "KEY   : VALUE" of that key; NULL for other lines. */
static const char *value_of(char *line, const char *key) {
  char *colon = strchr(line, ':');
  if (!colon || strncmp(line, key, strlen(key)) != 0) return NULL;
  colon += 1 + strspn(colon + 1, " \t");
  colon[strcspn(colon, "\n")] = '\0';
  return *colon ? colon : NULL;
}

static void count_core(kind *kinds, size_t *count, unsigned long maker, unsigned long part) {
  for (size_t i = 0; i < *count; i++)
    if (kinds[i].maker == maker && kinds[i].part == part) {
      kinds[i].cores++;
      return;
    }
  if (*count < MOST_KINDS) kinds[(*count)++] = (kind){maker, part, 1};
}

/* Fills the name for x86, else counts the kinds of cores. */
static void read_cpuinfo(const char *root, char name[128], kind *kinds, size_t *count) {
  char *path, line[8192]; /* the flags of a CPU are many */
  const char *value;
  unsigned long maker = 0;
  if (asprintf(&path, "%s/proc/cpuinfo", root) < 0) return;
  FILE *file = fopen(path, "re");
  free(path);
  while (file && !*name && fgets(line, sizeof line, file)) {
    if ((value = value_of(line, "model name"))) snprintf(name, 128, "%s", value);
    if ((value = value_of(line, "CPU implementer"))) maker = strtoul(value, NULL, 0);
    if ((value = value_of(line, "CPU part")))
      count_core(kinds, count, maker, strtoul(value, NULL, 0));
  }
  if (file) fclose(file);
}

/* The board's name, which ends with a NUL there. */
static bool read_board(const char *root, char text[64]) {
  char *path;
  if (asprintf(&path, "%s/proc/device-tree/model", root) < 0) return false;
  FILE *file = fopen(path, "re");
  free(path);
  bool found = file && fgets(text, 64, file) && *text && *text != '\n';
  if (file) fclose(file);
  if (found) text[strcspn(text, "\n")] = '\0';
  return found;
}

static void add_kind(char text[128], const kind *k, const char *between) {
  size_t used = strlen(text);
  const char *name = NULL;
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
    if (parts[i].maker == k->maker && parts[i].part == k->part) name = parts[i].name;
  if (name)
    snprintf(text + used, 128 - used, "%s%u x %s", between, k->cores, name);
  else
    snprintf(text + used, 128 - used, "%s%u x implementer 0x%02lx part 0x%03lx", between, k->cores,
             k->maker, k->part);
}

const char *cli_cpu_name(const char *root, char text[128]) {
  kind kinds[MOST_KINDS];
  size_t count = 0;
  char board[64];
  *text = '\0';
  read_cpuinfo(root, text, kinds, &count);
  if (*text) return text;
  bool named = read_board(root, board);
  if (named) snprintf(text, 128, "%s", board);
  for (size_t i = 0; i < count; i++)
    add_kind(text, &kinds[i], i ? " + " : named ? ", " : "");
  return *text ? text : NULL;
}
