/* SPDX-License-Identifier: MIT */
#include "base/file_map.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

hr_status hr_file_map_open(hr_file_map *map, const char *path, hr_error *err) {
  *map = (hr_file_map){0};
  /* Without waiting for the writer of a pipe, which is refused below. */
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) return hr_fail(err, HR_ERROR_FILE, "%s: can't be opened: %s", path, strerror(errno));

  hr_status status = HR_OK;
  struct stat st;
  if (fstat(fd, &st) != 0) {
    status = hr_fail(err, HR_ERROR_FILE, "%s: can't be examined: %s", path, strerror(errno));
  } else if (!S_ISREG(st.st_mode)) {
    status = hr_fail(err, HR_ERROR_FILE, "%s: is %s, expected a regular file", path,
                     S_ISDIR(st.st_mode) ? "a folder" : "not a regular file");
  } else if ((uintmax_t)st.st_size > SIZE_MAX / 2) {
    status = hr_fail(err, HR_ERROR_FILE, "%s: %jd bytes are too many for this machine's addresses",
                     path, (intmax_t)st.st_size);
  } else if (st.st_size > 0) {
    void *data = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (data == MAP_FAILED) {
      status = hr_fail(err, errno == ENOMEM ? HR_ERROR_MEMORY : HR_ERROR_FILE,
                       "%s: can't be mapped: %s", path, strerror(errno));
    } else {
      *map = (hr_file_map){.data = data, .bytes = (size_t)st.st_size, .mapped = true};
    }
  }
  close(fd);
  return status;
}

/* A read of one page makes the system map those around it that it has: all in the same 64 KiB
 * of addresses. Given back by pages, the ones behind a range would come again with the next
 * read and stay. */
enum { MAPPED_AT_ONCE = 64 << 10 };

void hr_file_map_drop(const hr_file_map *map, size_t offset, size_t bytes) {
  if (!map->mapped || !bytes || offset > map->bytes || bytes > map->bytes - offset) return;
  uintptr_t data = (uintptr_t)map->data, first = data + offset, last = first + bytes;
  first -= first % MAPPED_AT_ONCE;
  last += (MAPPED_AT_ONCE - last % MAPPED_AT_ONCE) % MAPPED_AT_ONCE;
  if (first < data) first = data;
  if (last > data + map->bytes) last = data + map->bytes;
  (void)madvise((void *)first, last - first, MADV_DONTNEED);
}

void hr_file_map_close(hr_file_map *map) {
  if (map->mapped && map->data) munmap((void *)map->data, map->bytes);
  *map = (hr_file_map){0};
}
