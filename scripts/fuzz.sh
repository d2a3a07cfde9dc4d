#!/bin/sh
# SPDX-License-Identifier: MIT
# Searches for inputs that break a reader, with libFuzzer, AddressSanitizer and UBSan (clang):
#
#   scripts/fuzz.sh gguf|safetensors|packed|options|tokenizer|template|vocab|all [SECONDS]
#
# Builds in build-fuzz. What was tried and is of use stays in build-fuzz/corpus/TARGET, so that
# the next run goes on from there; an input that breaks something is left as
# build-fuzz/TARGET-crash-*: put it into tests/fuzz/found/TARGET, where it stays a test.
set -eu
cd "$(dirname "$0")/.."
all="gguf safetensors packed options tokenizer template vocab"
wanted=${1:-} seconds=${2:-60}
case " $all all " in
  *" $wanted "*) [ -n "$wanted" ] || wanted=none ;;
  *) wanted=none ;;
esac
[ "$wanted" != none ] || { echo "fuzz: expected one of: $all all" >&2; exit 2; }
[ "$wanted" = all ] && wanted=$all

[ -f build-fuzz/build.ninja ] || CC=clang meson setup build-fuzz --buildtype=debugoptimized \
  -Db_sanitize=address,undefined -Db_lundef=false -Dtests=false -Dfuzzing=true
status=0
export OMP_WAIT_POLICY=passive UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
for target in $wanted; do
  ninja -C build-fuzz src/cli/headrow "tests/fuzz/fuzz_$target" >build-fuzz/ninja.log || {
    tail -n 40 build-fuzz/ninja.log; exit 1; }
  ASAN_OPTIONS=detect_leaks=0 tests/fuzz/corpus.sh "$target" "$PWD/build-fuzz/src/cli/headrow" \
    "build-fuzz/corpus/$target"
  echo "fuzz: $target for $seconds s"
  nice "build-fuzz/tests/fuzz/fuzz_$target" -max_total_time="$seconds" -timeout=30 -max_len=65536 \
    -rss_limit_mb=4096 -print_final_stats=1 -artifact_prefix="build-fuzz/$target-" \
    "build-fuzz/corpus/$target" >"build-fuzz/$target.log" 2>&1 || status=1
  grep -E 'stat::number_of_executed|ERROR|runtime error|SUMMARY' "build-fuzz/$target.log" || true
done
exit $status
