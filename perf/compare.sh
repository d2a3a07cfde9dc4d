#!/bin/sh
# SPDX-License-Identifier: MIT
# Times headrow beside another engine's bench program on the same files, taking
# turns, so that both see the machine in the same moods:
#
#   sh perf/compare.sh PEER_BENCH MODEL.gguf...
#
# PEER_BENCH is called as `PEER_BENCH -m FILE -p N -n 0 -t T -r 1 -o json` and
# again for -n; a rate is its "avg_ts", or the last column of its table.
# Environment: HEADROW (the command; default build/src/cli/headrow), HEADROW_ARGS
# and PEER_ARGS (more arguments), PROMPT (512), PREDICT (128), THREADS (as many as
# headrow takes by itself, which counts physical cores and the system's limits),
# ROUNDS (5). A 0 for PROMPT or PREDICT leaves that out.
#
# Prints medians of the rounds, and the ratio ours / theirs of each round as
# median, least and most. `limit` is what an engine would have to theirs that reached
# the machine's limit: the median of ours / theirs over the share of it that headrow
# reached in the same round, for generation of plainly reading the weights in turn with
# the tokens, for prompts of the tightest of reading and the peaks of the products. `form` is
# the same for what the work's own steps allow: a prompt whose int8 products and attention have what
# their instructions allow of the peaks, a generation that reads with the barriers of a token between.
# Status: 0 done, 2 usage, 3 a program or file failed.
set -eu

fail() {
  status=$1
  shift
  echo "compare.sh: $*" >&2
  exit "$status"
}

[ $# -ge 2 ] || fail 2 "no model, expected: compare.sh PEER_BENCH MODEL..."
peer=$1
shift
headrow=${HEADROW:-$(dirname "$0")/../build/src/cli/headrow}
rounds=${ROUNDS:-5}
prompt=${PROMPT:-512} predict=${PREDICT:-128}
for program in "$peer" "$headrow"; do
  command -v "$program" >/dev/null || fail 3 "$program: can't be run, expected a program"
done
for model; do
  [ -r "$model" ] || fail 3 "$model: can't be read, expected a model file"
done

# Both get the same number; nproc would count the second threads of a core too.
threads=${THREADS:-$("$headrow" info --cpu --json |
  sed -n 's/.*"threads_batch": *\([0-9][0-9]*\).*/\1/p')}
case "$threads" in
  '' | *[!0-9]* | 0) fail 3 "threads: '$threads', expected THREADS or $headrow to give a number" ;;
esac

# On a terminal only; wiped before anything else is printed.
progress() {
  [ ! -t 2 ] || printf '\r\033[K%s' "$*" >&2
}

work=$(mktemp -d)
trap 'progress; rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

# ours MODEL WORK TOKENS: tokens a second, and the percent of the limit and of the form; -: none
ours() {
  p=0 n=0
  if [ "$2" = prompt ]; then p=$3; else n=$3; fi
  # shellcheck disable=SC2086
  "$headrow" bench "$1" -q --csv -r 1 -t "$threads" -p "$p" -n "$n" ${HEADROW_ARGS:-} \
    >"$work/out" 2>"$work/err" || fail 3 "headrow failed: $(cat "$work/err")"
  # The name of the model is in quotes and may hold commas.
  awk -v column="$([ "$2" = prompt ] && echo percent || echo reading_percent)" '
    function cell(at) { return at > 1 && f[at - 1] != "" ? f[at - 1] : "-" }
    NR == 1 { n = m = split($0, f, ",")
              while (n > 1 && f[n] != column) n--
              while (m > 1 && f[m] != "form_percent") m-- }
    NR == 2 { sub(/^"([^"]|"")*",/, ""); split($0, f, ","); print f[7], cell(n), cell(m) }
    ' "$work/out"
}

# theirs MODEL WORK TOKENS
theirs() {
  p=0 n=0
  if [ "$2" = prompt ]; then p=$3; else n=$3; fi
  # shellcheck disable=SC2086
  "$peer" -m "$1" -p "$p" -n "$n" -t "$threads" -r 1 -o json ${PEER_ARGS:-} \
    >"$work/out" 2>"$work/err" || fail 3 "$peer failed: $(tail -n 3 "$work/err")"
  awk '
    match($0, /"avg_ts": *[0-9.eE+-]+/) {
      rate = substr($0, RSTART, RLENGTH); sub(/.*: */, "", rate) }
    /^\|.*[0-9]/ { n = split($0, f, "|"); split(f[n - 1], g, " "); table = g[1] }
    END { print rate != "" ? rate : table }' "$work/out"
}

# Lines "theirs ours percent percent" to one line of medians and ratios.
summary() {
  awk -v name="$1" '
    function put(list, n, x,   i) {
      for (i = n; i > 1 && list[i - 1] > x; i--) list[i] = list[i - 1]
      list[i] = x
    }
    function median(list, n) {
      return n % 2 ? list[(n + 1) / 2] : (list[n / 2] + list[n / 2 + 1]) / 2
    }
    { n++; put(a, n, $2 + 0); put(b, n, $1 + 0); put(r, n, $2 / $1) }
    $3 > 0 { limits++; put(l, limits, $2 / $1 * 100 / $3) }
    $4 > 0 { forms++; put(m, forms, $2 / $1 * 100 / $4) }
    END { printf "%-40s %10.2f %10.2f %8.2f %8s %8s   %.2f to %.2f\n", name, median(a, n),
            median(b, n), median(r, n), limits ? sprintf("%.2f", median(l, limits)) : "-",
            forms ? sprintf("%.2f", median(m, forms)) : "-", r[1], r[n] }'
}

printf '%-40s %10s %10s %8s %8s %8s   %s\n' "tokens/s, $threads threads, $rounds rounds" \
  ours theirs ratio limit form spread
for model; do
  for kind in prompt generate; do
    tokens=$prompt
    [ "$kind" = prompt ] || tokens=$predict
    [ "$tokens" -gt 0 ] || continue
    : >"$work/rounds"
    round=0
    while [ "$round" -lt "$rounds" ]; do
      progress "$(basename "$model") $kind $tokens: round $((round + 1)) of $rounds"
      # Who goes first changes too.
      if [ $((round % 2)) = 0 ]; then
        a=$(ours "$model" $kind "$tokens")
        b=$(theirs "$model" $kind "$tokens")
      else
        b=$(theirs "$model" $kind "$tokens")
        a=$(ours "$model" $kind "$tokens")
      fi
      case "${a%% *}/$b" in
        */ | /* | 0/* | */0) fail 3 "$model: no rate in the output of a program: '$a', '$b'" ;;
      esac
      echo "$b $a" >>"$work/rounds"
      round=$((round + 1))
    done
    progress
    summary "$(basename "$model") $kind $tokens" <"$work/rounds"
  done
done
