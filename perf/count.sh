#!/bin/sh
# SPDX-License-Identifier: MIT
# Counts the instructions that a generated token takes on an emulated 64-bit Arm CPU,
# headrow beside another engine's bench program, or another headrow, on the same files:
#
#   sh scripts/emulated.sh          # once: builds headrow for aarch64 and what it needs
#   sh perf/count.sh PEER_BENCH MODEL.gguf...
#
# Both are programs for aarch64 and run in one thread, so that no waiting is counted. What
# is told is the difference between TO (80) and FROM (16) tokens over their number: loading
# and starting are in both. Counts of two runs differ by up to about a thousandth. They are
# not time: how many instructions a CPU runs at once, and memory, are not in them.
#
# PEER_BENCH is called as `PEER_BENCH -m FILE -p 0 -n N -t 1 -r 1 --no-warmup`; a program
# whose name begins with "headrow" as headrow is.
# Environment: HEADROW (default build-emulated/arm64/src/cli/headrow), SYSROOT (where
# programs find their libraries; default build-emulated/sysroot), CPU (neoverse-n1), FROM, TO,
# QEMU (qemu-aarch64, of the package qemu-user: the one of qemu-user-static takes no
# plugins), CC (cc: builds perf/count_plugin.c for this machine).
# Status: 0 done, 2 usage, 3 a program or file failed.
set -eu

fail() {
  status=$1
  shift
  echo "count.sh: $*" >&2
  exit "$status"
}

[ $# -ge 2 ] || fail 2 "no model, expected: count.sh PEER_BENCH MODEL..."
peer=$1
shift
here=$(dirname "$0")
headrow=${HEADROW:-$here/../build-emulated/arm64/src/cli/headrow}
sysroot=${SYSROOT:-$here/../build-emulated/sysroot}
cpu=${CPU:-neoverse-n1} qemu=${QEMU:-qemu-aarch64} from=${FROM:-16} to=${TO:-80}
case "$from$to" in
  *[!0-9]*) fail 2 "FROM and TO: $from and $to, expected numbers" ;;
esac
if [ "$from" -lt 1 ] || [ "$to" -le "$from" ]; then
  fail 2 "FROM and TO: $from and $to, expected 1 or more, and more than that"
fi
command -v "$qemu" >/dev/null || fail 3 "$qemu: can't be run, expected QEMU (package qemu-user)"
for file in "$headrow" "$peer" "$@"; do
  [ -r "$file" ] || fail 3 "$file: can't be read, expected programs for aarch64 and model files"
done

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

# The version of the plugins' interface changed with QEMU 9.
api=1
case $("$qemu" --version | sed -n '1s/.*version \([0-9]*\)\..*/\1/p') in
  [1-8]) ;;
  *) api=2 ;;
esac
${CC:-cc} -std=c17 -O2 -fPIC -shared -fvisibility=hidden -DPLUGIN_API=$api \
  -o "$work/plugin.so" "$here/count_plugin.c" || fail 3 "can't build $here/count_plugin.c"

# count PROGRAM MODEL TOKENS: the instructions of the whole run
count() {
  case $(basename "$1") in
    headrow*) set -- "$1" run "$2" --ids 1 -n "$3" --ignore-eos --temp 0 -t 1 --no-pin -q ;;
    *) set -- "$1" -m "$2" -p 0 -n "$3" -t 1 -r 1 --no-warmup ;;
  esac
  rm -f "$work/count"
  "$qemu" -L "$sysroot" -cpu "$cpu" -plugin "$work/plugin.so,to=$work/count" "$@" \
    >"$work/out" 2>&1 || fail 3 "$1 failed: $(tail -n 3 "$work/out")"
  [ -s "$work/count" ] || fail 3 "$1: nothing was counted: $(tail -n 3 "$work/out")"
  cat "$work/count"
}

# a_token PROGRAM MODEL
a_token() {
  less=$(count "$1" "$2" "$from") || exit
  more=$(count "$1" "$2" "$to") || exit
  echo $(((more - less) / (to - from)))
}

printf '%-40s %14s %14s %8s\n' "instructions a token, $cpu" ours theirs ratio
for model; do
  ours=$(a_token "$headrow" "$model") || exit
  theirs=$(a_token "$peer" "$model") || exit
  awk -v name="$(basename "$model")" -v a="$ours" -v b="$theirs" 'BEGIN {
    printf "%-40s %14d %14d %8s\n", name, a, b, (b > 0 ? sprintf("%.2f", a / b) : "-") }'
done
