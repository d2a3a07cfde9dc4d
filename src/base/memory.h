/* SPDX-License-Identifier: MIT
 * Every allocation of the library goes through here: sizes are checked, and a
 * test can make the n-th one fail. */
#ifndef HR_BASE_MEMORY_H
#define HR_BASE_MEMORY_H

#include <stdbool.h>
#include <stddef.h>

/* a * b and a + b in size_t; false when the result does not fit. */
static inline bool hr_mul_size(size_t a, size_t b, size_t *result) {
  return !__builtin_mul_overflow(a, b, result);
}
static inline bool hr_add_size(size_t a, size_t b, size_t *result) {
  return !__builtin_add_overflow(a, b, result);
}

/* count objects of size bytes each, zeroed. NULL when the product overflows or
 * memory is out; a count or size of 0 gives a pointer that can be freed. */
void *hr_calloc(size_t count, size_t size);
/* As realloc for count objects of size bytes; the old block stays on failure. */
void *hr_realloc(void *old, size_t count, size_t size);
/* A copy of length bytes with a NUL behind it. */
char *hr_strndup(const char *text, size_t length);
/* The text that printf would print. */
char *hr_asprintf(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Frees what those above gave; NULL is allowed. */
void hr_free(void *block);

/* Big zeroed memory, aligned to 2 MiB when it is at least that long (and then
 * offered to the kernel for huge pages), to 64 bytes otherwise. Freed with
 * hr_free_pages and the same size. */
void *hr_alloc_pages(size_t bytes);
void hr_free_pages(void *block, size_t bytes);
/* Whether a block of that size is offered to the kernel for huge pages. */
bool hr_asks_huge_pages(size_t bytes);

/* The same in two steps: addresses that cost no memory and may not be touched,
 * and their use. False when the memory is not to be had; the block is then
 * still only to be freed, with hr_free_pages. */
void *hr_reserve_pages(size_t bytes);
bool hr_use_pages(void *block, size_t bytes);

/* A zeroed page that a child process finds zeroed again, whatever call made it, where the
 * kernel knows of that (Linux 4.14). NULL when memory is out. */
void *hr_alloc_forgotten_page(void);
/* NULL is allowed. */
void hr_free_forgotten_page(void *page);

/* For tests: the n-th allocation from now (1 is the next) fails, 0 switches
 * that off; the count of allocations since the last call is returned. */
size_t hr_memory_fail_at(size_t n);

#endif
