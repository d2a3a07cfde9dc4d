#!/bin/sh
# SPDX-License-Identifier: MIT
# The table of docs/accuracy.md: what each type costs each model, against fp32.
#
#   scripts/accuracy.sh [--write]     prints it, or puts it into docs/accuracy.md
#
# The shipped models are measured on the text named by HEADROW_TEXT (default: the five
# stories of the folder HEADROW_TEST_DATA). Where that folder is set, so are its trained
# models, in the types of its files and in those that `headrow quantize` makes.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
headrow=${HEADROW_COMMAND:-$root/build/src/cli/headrow}
data=${HEADROW_TEST_DATA:-}
text=${HEADROW_TEXT:-${data:+$data/corpora/tinystories_sample_cs336.txt}}
[ -n "$text" ] || { echo "accuracy.sh: set HEADROW_TEXT or HEADROW_TEST_DATA" >&2; exit 2; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

field() { # regular expression with one group, document
  sed -n "s/.*$1.*/\\1/p" "$2"
}
number='\([-0-9.e]*\)'

row() { # model, type, then arguments of accuracy
  model=$1 type=$2
  shift 2
  "$headrow" accuracy "$@" --detail 0 --json -q >"$work/row.json"
  alone=$(field "\"weights_alone\":{\"value\":$number" "$work/row.json")
  printf '%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n' "$model" "$type" \
    "$(field "\"mean_nll_difference\":{\"value\":$number" "$work/row.json")" \
    "$(field "\"mean_nll_difference\":{\"value\":[^,]*,\"standard_error\":$number" "$work/row.json")" \
    "$(field "\"kl\":{\"value\":$number" "$work/row.json")" \
    "$(field "\"kl\":{\"value\":[^,]*,\"standard_error\":$number" "$work/row.json")" \
    "${alone:--}" \
    "$(field "\"p99\":{\"value\":$number" "$work/row.json")" \
    "$(field "\"top1_agreement\":{\"value\":$number" "$work/row.json")" \
    "$(field "\"flips\":{\"value\":$number" "$work/row.json")" |
    awk -F '\t' '{
      alone = $7 == "-" ? "-" : sprintf("%.2e", $7)
      printf "| %s | %s | %+.5f ± %.5f | %.2e ± %.0e | %s | %.2e | %.1f %% | %.2f %% |\n",
        $1, $2, $3, $4, $5, $6, alone, $8, 100 * $9, 100 * $10 }'
}

# All types of a trained model: the files that are there, then those we make.
trained() { # name, F32 file, pattern of the others with %s, text arguments...
  name=$1 whole=$2 pattern=$3
  shift 3
  for type in f16 bf16 q8_0 q6_k q5_1 q5_0 q4_1 q4_0; do
    # shellcheck disable=SC2059
    file=$(printf "$pattern" "$type")
    [ -f "$file" ] && row "$name" "$type" "$file" --against "$whole" "$@"
  done
  "$headrow" quantize "$whole" "$work/q8.gguf" -q >"$work/log"
  row "$name" "q8_0, best scales" "$work/q8.gguf" --against "$whole" "$@"
  "$headrow" quantize "$whole" "$work/q8.gguf" -q \
    --calibrate "$data/corpora/tinystories_sample_2mb.txt" >"$work/log"
  row "$name" "q8_0, calibrated" "$work/q8.gguf" --against "$whole" "$@"
}

table() {
  echo '| model | type | mean nll, more | mean KL | of weights alone | 99 % | same first | flips |'
  echo '|---|---|---|---|---|---|---|---|'
  for file in "$root"/models/*.gguf; do
    row "$(basename "$file" .gguf)" q8_0 "$file" --against f32 -f "$text"
  done
  [ -n "$data" ] || return 0
  tr -d ' \n' <"$data/corpora/ids_656k.json" | sed 's/\],\[/\n/g; s/[][]//g' >"$work/ids"
  trained stories260K "$data/stories260K/stories260K.gguf" "$data/stories260K/stories260K-%s.gguf" \
    -f "$data/corpora/tinystories_sample_cs336.txt"
  trained tinystories-656k "$data/tinystories-656k/tinystories656k-f32.gguf" \
    "$data/tinystories-656k/tinystories656k-%s.gguf" --ids "@$work/ids"
}

table >"$work/table"
if [ "${1:-}" = --write ]; then
  awk -v table="$work/table" '
    /^<!-- table -->$/ { print; while ((getline line < table) > 0) print line; skip = 1 }
    /^<!-- end of table -->$/ { skip = 0 }
    !skip { if ($0 != "<!-- table -->") print }' "$root/docs/accuracy.md" >"$work/page"
  cp "$work/page" "$root/docs/accuracy.md"
else
  cat "$work/table"
fi
