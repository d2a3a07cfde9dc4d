/* SPDX-License-Identifier: MIT */
#include "builtin.h"

#include <stdint.h>

#ifndef HR_BUILTIN_FILE
#include "builtin_file.h" /* written by the build: names the file */
#endif

/* %progbits, since @ starts a comment in some assemblers. */
__asm__(
    ".pushsection .rodata.headrow_builtin,\"a\",%progbits\n"
    ".balign 64\n"
    ".globl cli_builtin_begin\n"
    ".hidden cli_builtin_begin\n"
    "cli_builtin_begin:\n"
    ".incbin \"" HR_BUILTIN_FILE
    "\"\n"
    ".globl cli_builtin_end\n"
    ".hidden cli_builtin_end\n"
    "cli_builtin_end:\n"
    ".byte 0\n"
    ".popsection\n");

extern const unsigned char cli_builtin_begin[] __attribute__((visibility("hidden")));
extern const unsigned char cli_builtin_end[] __attribute__((visibility("hidden")));

const void *cli_builtin_data(void) {
  return cli_builtin_begin;
}

size_t cli_builtin_bytes(void) {
  return (size_t)((uintptr_t)cli_builtin_end - (uintptr_t)cli_builtin_begin);
}
