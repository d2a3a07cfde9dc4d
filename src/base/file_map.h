/* SPDX-License-Identifier: MIT
 * A file in memory, read only. */
#ifndef HR_BASE_FILE_MAP_H
#define HR_BASE_FILE_MAP_H

#include "base/error.h"

typedef struct hr_file_map {
  const unsigned char *data; /* bytes of the file; NULL for an empty file */
  size_t bytes;
  bool mapped;               /* false: the bytes belong to somebody else */
} hr_file_map;

/* Maps a whole file. HR_ERROR_FILE with the path and the reason on failure: a
 * folder, a missing file, a pipe. */
hr_status hr_file_map_open(hr_file_map *map, const char *path, hr_error *err);

/* Gives the pages that hold some of [offset, offset + bytes) back to the system, after
 * those were copied elsewhere; they are read from the file again when needed. */
void hr_file_map_drop(const hr_file_map *map, size_t offset, size_t bytes);

void hr_file_map_close(hr_file_map *map);

#endif
