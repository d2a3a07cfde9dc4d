#!/bin/sh
# SPDX-License-Identifier: MIT
# Prints the manual page headrow(1) as scdoc source. What the commands do and take
# comes from their own help; docs/man/headrow.1.scd is this script's output:
#   sh scripts/manual.sh build/src/cli/headrow >docs/man/headrow.1.scd
set -eu
headrow=$1

# Letters that scdoc takes for markup.
escape() { sed -e 's/[\\*_<>#`~]/\\&/g' -e 's/^\([].[|:+-]\)/\\\1/'; }

# "  -p, --prompt TEXT    the prompt" and lines that go on below it, as a list.
options() {
  awk '
    function flush() { if (name != "") printf "%s\n%s\n", name, text; name = "" }
    /^  +(-., )?--/ {
      flush()
      line = $0; sub(/^ +/, "", line)
      split_at = match(line, /   *[^ ]/)
      if (split_at) { name = substr(line, 1, split_at - 1); text = substr(line, split_at); sub(/^ +/, "", text) }
      else { name = line; text = "" }
      next
    }
    { line = $0; sub(/^ +/, "", line); text = text == "" ? line : text " " line }
    END { flush() }' | escape | awk 'NR % 2 { printf "*%s*\n", $0; next } { printf "\t%s\n\n", $0 }'
}

cat <<'END'
headrow(1)

# NAME

headrow - runs Transformer models on ordinary CPUs

# SYNOPSIS

*headrow* _COMMAND_ [_MODEL_] [options]

# DESCRIPTION

headrow runs Transformer models - GPT-2, BERT, Llama and their relatives - on the
cores of an ordinary computer, offline. The same model, prompt and settings give
the same bits of logits on every CPU, with any number of threads.

_MODEL_ is a GGUF file, a file written by *headrow pack*, a .safetensors file with
config.json beside it, a folder that holds both, or *builtin*: the small model inside
the command, which is also used when _MODEL_ is left out.

Results go to standard output, all else to standard error.

# COMMANDS

END
commands=$("$headrow" --help | sed -n '/^Commands:/,/^$/s/^  \([a-z]*\) .*/\1/p')
for command in $commands; do
  help=$("$headrow" "$command" --help)
  usage=$(printf '%s\n' "$help" | sed -n '1s/^usage: headrow [a-z]* *//p' | escape)
  printf '## headrow %s\n\n*headrow %s* %s\n\n' "$command" "$command" "$usage"
  printf '%s\n' "$help" | sed -e 1,2d -e '/^Options:$/,$d' -e '/^Common options:$/,$d' | escape
  printf '\n'
  printf '%s\n' "$help" | sed -n '/^Options:$/,/^$/p' | sed -e 1d -e '/^$/d' | options
done
printf '# OPTIONS OF ALL COMMANDS\n\n'
"$headrow" run --help | sed -n '/^Common options:$/,$p' | sed -e 1d -e '/^$/d' | options
cat <<'END'
# EXIT STATUS

*0*
	Done; also when the reader of the output went away.

*1*
	A comparison or check found a difference it was asked to find.

*2*
	Usage: an unknown command or option, a value out of its range.

*3*
	A file can't be read or written, is not valid, or asks for something headrow lacks.

*4*
	Not enough memory.

*5*
	NaN or infinity in the weights or the logits.

*6*
	The input is longer than the context.

*130*
	Interrupted.

# ENVIRONMENT

*HEADROW_THREADS*
	Number of threads, or *auto*. *--threads* goes before it.

*HEADROW_ISA*
	Highest kernel tier to use. *--isa* goes before it.

*OMP_STACKSIZE*
	Read by the OpenMP runtime. Threads with less than 160 KiB of stack are
	refused.

# EXAMPLES

Let the model inside the command tell a story:

	headrow run -p "Once upon a time"

The likeliest 100 tokens after a prompt, and a digest of their logits:

	headrow run model.gguf -p "The sky is" -n 100 --temp 0 --digest

What this machine has, and why that many threads are used:

	headrow info --cpu

# SEE ALSO

*headrow*(3)
END
