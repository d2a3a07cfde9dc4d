/* SPDX-License-Identifier: MIT
 * The headrow command: finds the subcommand and runs it. */
#include <string.h>

#include "cli.h"
#include "interrupt.h"
#include "machine.h"
#include "output.h"

static const cli_command *const commands[] = {
    &cli_run_command,
    &cli_chat_command,
    &cli_tokenize_command,
    &cli_detokenize_command,
    &cli_logits_command,
    &cli_embed_command,
    &cli_rerank_command,
    &cli_info_command,
    &cli_bench_command,
    &cli_compare_command,
    &cli_perplexity_command,
    &cli_pack_command,
    &cli_accuracy_command,
    &cli_quantize_command,
};

enum { COMMAND_COUNT = sizeof commands / sizeof *commands };

static void print_help(void) {
  cli_print(
      "usage: headrow COMMAND [MODEL] [options]\n\n"
      "Runs Transformer models on ordinary CPUs.\n\nCommands:\n");
  for (size_t i = 0; i < COMMAND_COUNT; i++)
    cli_print("  %-12s %s\n", commands[i]->name, commands[i]->summary);
  cli_print(
      "\nMODEL is a GGUF file, a file that 'headrow pack' wrote, a .safetensors file with\n"
      "config.json beside it, a folder that holds both, or 'builtin': the small model inside\n"
      "this command, also used when MODEL is left out.\n\n"
      "'headrow COMMAND --help' lists the options of a command.\n"
      "'headrow --version' tells version, compiler and kernels.\n");
}

static void print_version(void) {
#ifdef __clang__
  const char *compiler = "clang " __clang_version__;
#else
  const char *compiler = "gcc " __VERSION__;
#endif
  cli_print("headrow %s\narithmetic: %d\ncompiler: %s\nkernels: %s\n", hr_version(), HR_ARITHMETIC,
            compiler, cli_tier_names());
}

static int fail_with_commands(const char *where, const char *what) {
  char names[256] = "";
  size_t used = 0;
  for (size_t i = 0; i < COMMAND_COUNT; i++) {
    const char *before = i ? ", " : "";
    size_t length = strlen(before) + strlen(commands[i]->name);
    if (used + length >= sizeof names) break;
    strcat(strcat(names, before), commands[i]->name);
    used += length;
  }
  return cli_fail(HR_ERROR_USAGE, "%s: %s, expected one of: %s", where, what, names);
}

static int dispatch(int argc, char **argv) {
  if (argc < 2) return fail_with_commands("command", "none given");
  const char *name = argv[1];
  if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0) {
    print_help();
    return HR_OK;
  }
  if (strcmp(name, "--version") == 0) {
    print_version();
    return HR_OK;
  }
  for (size_t i = 0; i < COMMAND_COUNT; i++)
    if (strcmp(commands[i]->name, name) == 0)
      return commands[i]->run(commands[i], argc - 2, argv + 2);
  return fail_with_commands(name, name[0] == '-' ? "unknown option" : "unknown command");
}

int main(int argc, char **argv) {
  cli_prepare_streams();
  cli_catch_interrupt();
  return cli_end_output(dispatch(argc, argv));
}
