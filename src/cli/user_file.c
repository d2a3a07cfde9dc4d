/* SPDX-License-Identifier: MIT */
#include "user_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* The XDG base directory specification: relative paths are to be ignored. */
char *cli_user_file(const char *variable, const char *fallback, const char *name) {
  const char *place = getenv(variable), *home = getenv("HOME");
  char *path = NULL;
  int n = -1;
  if (place && place[0] == '/')
    n = asprintf(&path, "%s/headrow/%s", place, name);
  else if (home && home[0] == '/')
    n = asprintf(&path, "%s/%s/headrow/%s", home, fallback, name);
  return n < 0 ? NULL : path;
}

bool cli_make_folders(char *path) {
  for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
    *slash = '\0';
    bool made = mkdir(path, 0700) == 0 || errno == EEXIST;
    *slash = '/';
    if (!made) return false;
  }
  return true;
}
