/* SPDX-License-Identifier: MIT
 * Where a user's programs keep what they remember between runs. */
#ifndef HR_CLI_USER_FILE_H
#define HR_CLI_USER_FILE_H

#include <stdbool.h>

/* The path of headrow's file `name` in the folder that the variable names
 * (XDG_CACHE_HOME, XDG_STATE_HOME), else in `fallback` below $HOME. NULL where the
 * environment names no absolute place, or memory is out. The caller frees it. */
char *cli_user_file(const char *variable, const char *fallback, const char *name);

/* Makes the folders of a path as far as they are missing, for the user alone. The path
 * is whole again afterwards. */
bool cli_make_folders(char *path);

#endif
