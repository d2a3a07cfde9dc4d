/* SPDX-License-Identifier: MIT */
#include "base/memory.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define HUGE_PAGE ((size_t)2 << 20)
#define CACHE_LINE ((size_t)64)

static _Atomic size_t allocations;
static _Atomic size_t fail_at;

static bool allocation_allowed(void) {
  size_t n = atomic_fetch_add(&allocations, 1) + 1;
  size_t f = atomic_load(&fail_at);
  return f == 0 || n != f;
}

size_t hr_memory_fail_at(size_t n) {
  atomic_store(&fail_at, n);
  return atomic_exchange(&allocations, 0);
}

void *hr_calloc(size_t count, size_t size) {
  if (!allocation_allowed()) return NULL;
  if (count == 0 || size == 0) count = size = 1;
  return calloc(count, size);
}

void *hr_realloc(void *old, size_t count, size_t size) {
  size_t bytes;
  if (!allocation_allowed() || !hr_mul_size(count, size, &bytes)) return NULL;
  return realloc(old, bytes ? bytes : 1);
}

char *hr_strndup(const char *text, size_t length) {
  size_t bytes;
  if (!hr_add_size(length, 1, &bytes)) return NULL;
  char *copy = hr_calloc(bytes, 1);
  if (copy && length) memcpy(copy, text, length);
  return copy;
}

char *hr_asprintf(const char *format, ...) {
  va_list args, again;
  va_start(args, format);
  va_copy(again, args);
  int length = vsnprintf(NULL, 0, format, args);
  char *text = length < 0 ? NULL : hr_calloc((size_t)length + 1, 1);
  if (text) vsnprintf(text, (size_t)length + 1, format, again);
  va_end(again);
  va_end(args);
  return text;
}

void hr_free(void *block) {
  free(block);
}

static void *reserve_short(size_t bytes) {
  size_t rounded = (bytes + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE;
  if (rounded == 0) rounded = CACHE_LINE;
  void *block = aligned_alloc(CACHE_LINE, rounded);
  if (block) memset(block, 0, rounded);
  return block;
}

/* Short blocks come from the heap. Long ones are mapped with room to move the
 * start up to a 2 MiB boundary; what is over at both ends is given back. */
void *hr_reserve_pages(size_t bytes) {
  if (!allocation_allowed()) return NULL;
  if (bytes < HUGE_PAGE) return reserve_short(bytes);
  size_t length, whole;
  if (!hr_add_size(bytes, HUGE_PAGE - 1, &length)) return NULL;
  length = length / HUGE_PAGE * HUGE_PAGE;
  if (!hr_add_size(length, HUGE_PAGE, &whole)) return NULL;
  uint8_t *map = mmap(NULL, whole, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (map == MAP_FAILED) return NULL;
  size_t before = (HUGE_PAGE - (uintptr_t)map % HUGE_PAGE) % HUGE_PAGE;
  if (before) munmap(map, before);
  if (before < HUGE_PAGE) munmap(map + before + length, HUGE_PAGE - before);
  return map + before;
}

bool hr_use_pages(void *block, size_t bytes) {
  if (!allocation_allowed()) return false;
  if (bytes < HUGE_PAGE) return true;
  size_t length = (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
  if (mprotect(block, length, PROT_READ | PROT_WRITE) != 0) return false;
#ifdef MADV_HUGEPAGE
  (void)madvise(block, length, MADV_HUGEPAGE); /* a wish: plain pages work too */
#endif
  return true;
}

bool hr_asks_huge_pages(size_t bytes) {
  return bytes >= HUGE_PAGE;
}

void *hr_alloc_pages(size_t bytes) {
  void *block = hr_reserve_pages(bytes);
  if (!block || hr_use_pages(block, bytes)) return block;
  hr_free_pages(block, bytes);
  return NULL;
}

void hr_free_pages(void *block, size_t bytes) {
  if (!block) return;
  if (bytes < HUGE_PAGE)
    free(block);
  else
    munmap(block, (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE);
}

static size_t page_bytes(void) {
  long bytes = sysconf(_SC_PAGESIZE);
  return bytes > 0 ? (size_t)bytes : 4096;
}

void *hr_alloc_forgotten_page(void) {
  if (!allocation_allowed()) return NULL;
  void *page = mmap(NULL, page_bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return NULL;
#ifdef MADV_WIPEONFORK
  (void)madvise(page, page_bytes(), MADV_WIPEONFORK);
#endif
  return page;
}

void hr_free_forgotten_page(void *page) {
  if (page) munmap(page, page_bytes());
}
