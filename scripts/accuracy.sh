#!/bin/sh
# SPDX-License-Identifier: MIT
# The tables of docs/accuracy.md: what each type costs each model against fp32, what
# quantizing loses against plain rounding, and what llama.cpp makes of the files.
#
#   scripts/accuracy.sh [--write] [--llama LLAMA_PERPLEXITY]
#
# prints them, or puts them into docs/accuracy.md. The shipped models are measured on the
# text named by HEADROW_TEXT (default: the five stories of the folder HEADROW_TEST_DATA).
# Where that folder is set, so are its models, in the types of its files and in those that
# `headrow` makes. --llama names a llama-perplexity with a llama-quantize beside it;
# without one that table stays as it is. Rows that could not be measured are kept, and
# named.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
page=$root/docs/accuracy.md
headrow=${HEADROW_COMMAND:-$root/build/src/cli/headrow}
data=${HEADROW_TEST_DATA:-}
text=${HEADROW_TEXT:-${data:+$data/corpora/tinystories_sample_cs336.txt}}
write='' llama=''
fail() { echo "accuracy.sh: $*" >&2; exit 2; }
while [ $# -gt 0 ]; do
  case $1 in
    --write) write=yes ;;
    --llama)
      if [ ! -x "${2:-}" ]; then fail "--llama: expected the path of a llama-perplexity"; fi
      llama=$2 llama_quantize=$(dirname "$2")/llama-quantize
      shift ;;
    *) fail "$1: unexpected, expected --write or --llama" ;;
  esac
  shift
done
[ -n "$text" ] || fail "no text, expected HEADROW_TEXT or HEADROW_TEST_DATA"
[ -r "$text" ] || fail "$text: can't be read"
[ -x "$headrow" ] || fail "$headrow: not built"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
: >"$work/table"; : >"$work/values"; : >"$work/ratios"; : >"$work/llama"

field() { # regular expression with one group, document
  sed -n "s/.*$1.*/\\1/p" "$2"
}
number='\([-0-9.e]*\)'

row() { # model, type, then arguments of accuracy
  model=$1 type=$2
  shift 2
  "$headrow" accuracy "$@" --detail 0 --json -q >"$work/row.json"
  alone=$(field "\"weights_alone\":{\"value\":$number" "$work/row.json")
  kl=$(field "\"kl\":{\"value\":$number" "$work/row.json")
  printf '%s\t%s\t%s\t%s\n' "$model" "$type" "$kl" "$alone" >>"$work/values"
  printf '%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n' "$model" "$type" \
    "$(field "\"mean_nll_difference\":{\"value\":$number" "$work/row.json")" \
    "$(field "\"mean_nll_difference\":{\"value\":[^,]*,\"standard_error\":$number" "$work/row.json")" \
    "$kl" "$(field "\"kl\":{\"value\":[^,]*,\"standard_error\":$number" "$work/row.json")" \
    "${alone:--}" \
    "$(field "\"p99\":{\"value\":$number" "$work/row.json")" \
    "$(field "\"top1_agreement\":{\"value\":$number" "$work/row.json")" \
    "$(field "\"flips\":{\"value\":$number" "$work/row.json")" |
    awk -F '\t' '{
      alone = $7 == "-" ? "-" : sprintf("%.2e", $7)
      printf "| %s | %s | %+.5f ± %.5f | %.2e ± %.0e | %s | %.2e | %.1f %% | %.2f %% |\n",
        $1, $2, $3, $4, $5, $6, alone, $8, 100 * $9, 100 * $10 }' >>"$work/table"
}

# Against plain rounding, from the rows of a model.
ratios() { # model
  awk -F '\t' -v model="$1" '
    $1 == model { kl[$2] = $3; alone[$2] = $4 }
    END {
      best = "q8_0, best scales"; calibrated = "q8_0, calibrated"
      if (!kl["q8_0"]) exit
      printf "| %s | %.2f | %.2f | %.2f | %.2f | %.2f |\n", model, alone[best] / alone["q8_0"],
        alone[calibrated] / alone["q8_0"], kl[best] / kl["q8_0"], kl[calibrated] / kl["q8_0"],
        1 - alone["q8_0"] / kl["q8_0"]
    }' "$work/values" >>"$work/ratios"
}

# A file judged by llama.cpp, beside the F32 file whose logits are in $work/base. Now and
# then the program ends before its last lines are out.
judged() { # model, type, file
  tries=0
  : >"$work/llama.log"
  while ! grep -q 'Mean *KLD' "$work/llama.log"; do
    tries=$((tries + 1))
    [ $tries -le 5 ] || fail "llama-perplexity told no divergence of $3: $(tail -1 "$work/llama.log")"
    "$llama" -m "$3" -c 256 -t 2 --kl-divergence-base "$work/base" --kl-divergence \
      >"$work/llama.log" 2>&1 ||
      fail "llama-perplexity failed on $3: $(tail -1 "$work/llama.log")"
  done
  awk -v model="$1" -v type="$2" '
    /Mean PPL\(base\) / { whole = $4 }
    /Mean PPL\(Q\) / { loss = $4 }
    /Mean ln\(PPL/ { ratio = $4; ratio_error = $6 }
    /Mean +KLD/ { kl = $3; kl_error = $5 }
    END {
      printf "| %s | %s | %.4f | %.4f | %+.5f ± %.5f | %.2e ± %.0e |\n", model, type, whole, loss,
        ratio, ratio_error, kl, kl_error }' "$work/llama.log" >>"$work/llama"
}

# What llama.cpp makes of its own Q8_0 file and of ours.
in_llama() { # model, F32 file, its Q8_0 file, ours with the best scales and calibrated
  [ -n "$llama" ] || return 0
  "$llama" -m "$2" -f "$work/stories" -c 256 --chunks 160 -t 2 --kl-divergence-base "$work/base" \
    >"$work/llama.log" 2>&1 || fail "llama-perplexity failed on $2: $(tail -1 "$work/llama.log")"
  if [ ! -f "$3" ]; then
    "$llama_quantize" "$2" "$3" Q8_0 >"$work/llama.log" 2>&1 ||
      fail "llama-quantize failed on $2: $(tail -1 "$work/llama.log")"
  fi
  judged "$1" "q8_0 by llama.cpp" "$3"
  judged "$1" "q8_0, best scales" "$4"
  judged "$1" "q8_0, calibrated" "$5"
}

calibrated() { # F32 file; makes $work/calibrated.gguf
  "$headrow" quantize "$1" "$work/calibrated.gguf" -q \
    --calibrate "$data/corpora/tinystories_sample_2mb.txt" >"$work/log"
}

# A model of ours: plain rounding at load, the file that ships, a calibrated one.
shipped() { # name
  whole=$root/models/f32/$1.gguf
  row "$1" q8_0 "$whole" --weights q8_0 --against "$whole" -f "$text"
  row "$1" "q8_0, best scales" "$root/models/$1.gguf" --against "$whole" -f "$text"
  [ -n "$data" ] || return 0
  calibrated "$whole"
  row "$1" "q8_0, calibrated" "$work/calibrated.gguf" --against "$whole" -f "$text"
  ratios "$1"
  [ "$1" != builtin ] ||
    in_llama "$1" "$whole" "$work/plain.gguf" "$root/models/$1.gguf" "$work/calibrated.gguf"
}

# All types of a trained model: the files that are there, then those we make.
trained() { # name, F32 file, pattern of the others with %s, text arguments...
  name=$1 whole=$2 pattern=$3
  shift 3
  [ -f "$whole" ] || return 0
  for type in f16 bf16 q8_0 q6_k q5_1 q5_0 q4_1 q4_0; do
    # shellcheck disable=SC2059
    file=$(printf "$pattern" "$type")
    [ ! -f "$file" ] || row "$name" "$type" "$file" --against "$whole" "$@"
  done
  "$headrow" quantize "$whole" "$work/best.gguf" -q >"$work/log"
  row "$name" "q8_0, best scales" "$work/best.gguf" --against "$whole" "$@"
  calibrated "$whole"
  row "$name" "q8_0, calibrated" "$work/calibrated.gguf" --against "$whole" "$@"
  ratios "$name"
  # shellcheck disable=SC2059
  in_llama "$name" "$whole" "$(printf "$pattern" q8_0)" "$work/best.gguf" "$work/calibrated.gguf"
}

# A safetensors folder, in the types that weights take while they are loaded.
loaded() { # name, folder, file of ids
  row "$1" "f16, at load" "$2" --weights f16 --against f32 --ids "@$3"
  row "$1" "q8_0, at load" "$2" --weights q8_0 --against f32 --ids "@$3"
}

# Lines of ids below $1, $2 of them a line; sorted: the ids once more, in order.
drawn_ids() { # below, ids, yes or no
  awk -v below="$1" -v count="$2" -v sorted="$3" 'BEGIN {
    state = 1
    for (line = 0; line < 64; line++) {
      split("", seen)
      for (i = 0; i < count; i++) {
        state = (state * 69069 + 12345) % 4294967296
        id = int(state / 65536) % below
        seen[id]++
        printf "%d ", id
      }
      left = count - 1 # the model has no place behind the last one
      for (id = 0; sorted == "yes" && id < below; id++)
        while (seen[id]-- > 0 && left-- > 0) printf "%d ", id
      print ""
    } }'
}

measure() {
  if [ -n "$data" ]; then
    tr -d ' \n' <"$data/corpora/ids_656k.json" | sed 's/\],\[/\n/g; s/[][]//g' >"$work/ids"
    # far behind what calibration reads; llama.cpp ends on letters that a vocabulary lacks
    tail -c 200000 "$data/corpora/tinystories_sample_2mb.txt" | sed 's/<|endoftext|>//' |
      tr -cd "A-Za-z .,!?'\"\n" >"$work/stories"
  fi
  for file in "$root"/models/*.gguf; do
    shipped "$(basename "$file" .gguf)"
  done
  [ -n "$data" ] || return 0
  trained stories260K "$data/stories260K/stories260K.gguf" "$data/stories260K/stories260K-%s.gguf" \
    -f "$data/corpora/tinystories_sample_cs336.txt"
  trained tinystories-656k "$data/tinystories-656k/tinystories656k-f32.gguf" \
    "$data/tinystories-656k/tinystories656k-%s.gguf" --ids "@$work/ids"
  if [ -d "$data/gpt-nano-sort" ]; then
    drawn_ids 3 6 yes >"$work/sorted"
    loaded gpt-nano-sort "$data/gpt-nano-sort" "$work/sorted"
  fi
  if [ -f "$data/tiny-gpt2/gpt2_tiny_golden.json" ]; then
    mkdir "$work/tiny-gpt2"
    cp "$data/tiny-gpt2/model.safetensors" "$work/tiny-gpt2"
    sed -n '/"config": {/,/}/p' "$data/tiny-gpt2/gpt2_tiny_golden.json" |
      sed '1s/.*/{ "model_type": "gpt2",/; $s/},/}/' >"$work/tiny-gpt2/config.json"
    drawn_ids 61 16 no >"$work/drawn"
    loaded tiny-gpt2 "$work/tiny-gpt2" "$work/drawn"
  fi
}

# Rows of a table take the places of those with the same first cells, new ones come last.
put() { # table, cells that are the key, file of the page
  awk -v name="$1" -v cells="$2" -v rows="$work/$1" '
    function key(line, cell) {
      split(line, cell, / *\| */)
      return cells == 2 ? cell[2] ", " cell[3] : cell[2]
    }
    BEGIN { while ((getline line < rows) > 0) { order[++count] = key(line); fresh[key(line)] = line } }
    $0 == "<!-- " name " -->" { inside = 1; found = 1; print; next }
    $0 == "<!-- end of " name " -->" {
      for (i = 1; i <= count; i++) if (!(order[i] in put)) print fresh[order[i]]
      inside = 0
    }
    !inside || head++ < 2 { print; next }
    key($0) in fresh { print fresh[key($0)]; put[key($0)] = 1; next }
    { print; print "accuracy.sh: not measured, kept as it is: " name ": " key($0) >"/dev/stderr" }
    END { if (!found) exit 1 }' "$3" || fail "$page: has no table '$1'"
}

measure
put table 2 "$page" >"$work/page1"
put ratios 1 "$work/page1" >"$work/page2"
put llama 2 "$work/page2" >"$work/page3"
if [ -n "$write" ]; then
  cp "$work/page3" "$page"
else
  awk '/^<!-- end of .* -->$/ { inside = 0; print "" } inside; /^<!-- [a-z]+ -->$/ { inside = 1 }' \
    "$work/page3"
fi
