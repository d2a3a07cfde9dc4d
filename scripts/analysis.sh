#!/bin/sh
# SPDX-License-Identifier: MIT
# Looks for faults that tests alone don't show:
#
#   scripts/analysis.sh [tidy|cppcheck|valgrind|address|threads|all]
#   scripts/analysis.sh tidy FILE...
#
#   tidy      clang-tidy with the checks of .clang-tidy over src, kernels, quant and perf
#   cppcheck  cppcheck over the same
#   valgrind  memcheck over runs of the command: memory and leaks
#   address   AddressSanitizer, LeakSanitizer and UBSan over tests of memory, files and faults
#   threads   ThreadSanitizer over whole models, with clang and its OpenMP runtime
#
# What is passed over is named with its reason: in .clang-tidy, scripts/tidy.h, and here.
# Needs scripts/setup.sh analysis. Builds in build-analysis-*.
set -eu
cd "$(dirname "$0")/.."
wanted=${1:-all}
[ $# = 0 ] || shift
files=$*
case $wanted in
  tidy | cppcheck | valgrind | address | threads) ;;
  all) wanted="tidy cppcheck valgrind address threads" ;;
  *) echo "analysis: '$wanted' is not known, expected tidy, cppcheck, valgrind, address, threads or all" >&2
     exit 2 ;;
esac
status=0
export OMP_WAIT_POLICY=passive
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() { # what, file with the reason
  echo "analysis: FAILED: $1"
  cat "$2"
  status=1
}

# Runs a program; it fails by its status, or by a word of the detector in what it says.
run() {
  "$@" >"$work/said" 2>&1 || { fail "$*" "$work/said"; return 0; }
  if grep -qE 'WARNING: ThreadSanitizer|ERROR: (Address|Leak)Sanitizer|runtime error:' "$work/said"; then
    fail "$*" "$work/said"
  fi
}

build() { # kind, compiler, options of meson...; then `targets`
  folder=build-analysis-$1 compiler=$2
  shift 2
  [ -f "$folder/build.ninja" ] || CC=$compiler meson setup "$folder" --buildtype=debugoptimized "$@" >/dev/null
  ninja -C "$folder" $targets >"$work/ninja" || { cat "$work/ninja"; exit 1; }
}

sources() { # those of the build that are ours
  sed -n 's/^ *"file": "\.\.\/\(.*\.c\)",*$/\1/p' build-analysis-tidy/compile_commands.json |
    grep -E '^(src|kernels|quant|perf)/' | sort -u
}

# --- Reading ------------------------------------------------------------------------

# Findings that are none: file, check, reason. A reason is a fact about more than one function.
tidy_passes() {
  cat <<'END'
src/cli/accuracy_detail.c core.NullDereference a measurement that is under way has its sessions
src/cli/bench_capacity.c core.DivideZero a team has a thread
src/cli/bench_check.c uninitialized.Assign a session that was not made has a status
src/cli/bench_check.c UndefinedBinaryOperatorResult a session that was not made has a status
src/cli/bench_limits.c core.NullDereference a window has a loop or a region, or is of barriers alone
src/cli/bench_samples.c core.NullDereference a test has a place once samples are taken
src/cli/calibrate.c uninitialized.Assign rows that are counted were seen
src/cli/calibrate.c core.NullDereference a session that was not made has a status
src/cli/calibrate.c core.NonNullParamChecker the plan gives each tensor that is calibrated an input
src/cli/chat.c core.UndefinedBinaryOperatorResult a rendered prompt has its count
src/cli/compare_read.c core.NonNullParamChecker a test that is compared has a name for its work
src/cli/compare_chart.c cert-flp30 ticks are places, not counts
src/cli/logits.c bugprone-misplaced-widening-cast a position fits
src/cli/rerank.c core.NullDereference scores were made before they are printed
src/cli/rerank.c UnixAPI without a text it has ended before
src/cli/synthetic.c cert-flp30 only exact operations: powers of two
src/cli/synthetic.c FloatLoopCounter only exact operations: powers of two
perf/kernel_bench.c UndefinedBinaryOperatorResult a shape has rows and columns
src/model/gguf.c signed-char-misuse the value is a signed byte
src/sched/calibrate.c UndefinedBinaryOperatorResult there is a number of threads to try, and each was tried
src/template/datum.c core.NonNullParamChecker a block that holds nothing is not copied
src/text/steps.c core.NullDereference steps are counted as they are made
src/engine/text.c core.NonNullParamChecker bytes that are used are there
END
}

# The lines of findings in what clang-tidy says of a source, without those.
findings() { # source
  grep -E ': (error|warning): ' "$work/said" >"$work/found" || true
  tidy_passes | while read -r file check reason; do
    [ "$file" = "$1" ] || continue
    grep -v "$check" "$work/found" >"$work/left" || true # $reason
    mv "$work/left" "$work/found"
  done
  cat "$work/found"
}

tidy() {
  targets="src/cli/commit.h src/cli/builtin_file.h" build tidy clang -Dtests=false
  for source in ${files:-$(sources)}; do
    case $source in # those that define what scripts/tidy.h is about
      src/base/error.c | src/cli/common.c | src/sched/team.c) facts= ;;
      *) facts="-extra-arg=-include -extra-arg=$PWD/scripts/tidy.h" ;;
    esac
    clang-tidy -quiet -p build-analysis-tidy $facts "$source" >"$work/said" 2>"$work/counts" || true
    [ -z "$(findings "$source")" ] || fail "clang-tidy: $source" "$work/said"
  done
  echo "analysis: clang-tidy: $(echo "${files:-$(sources)}" | wc -w) files"
}

# Findings that are none: check, file, reason.
cppcheck_passes() {
  cat <<'END'
legacyUninitvar kernels/portable/product.c the first turn of the loop writes what later ones read
invalidFunctionArg quant/measures.c the logarithm is of a sum over a vocabulary, which is not empty
unknownEvaluationOrder tests/kernels/check_row.c values read from two tables, which changes neither
uninitvar src/sched/topology.c there is a kind at least, and each has its place
incorrectLogicOperator src/template/datum.c it reads 0x1p63 as 0
incorrectLogicOperator src/model/source_values.c it reads 0x1p63 as 0
END
}

cpp_check() {
  targets="src/cli/commit.h src/cli/builtin_file.h" build tidy clang -Dtests=false
  cppcheck_passes | while read -r check file reason; do echo "$check:*$file"; done >"$work/passes" # $reason
  cppcheck --project=build-analysis-tidy/compile_commands.json --enable=warning,performance,portability \
    --quiet --error-exitcode=1 --suppressions-list="$work/passes" >"$work/said" 2>&1 ||
    fail cppcheck "$work/said"
  echo "analysis: cppcheck: $(sources | wc -l) files"
}

# --- Running ------------------------------------------------------------------------

# What whole models do, with that many threads.
commands() { # threads, command...
  threads=$1
  shift
  run "$@" run -q -n 6 --seed 1 -t "$threads" -p "Once upon a time"
  run "$@" bench -p 32 -n 4 -r 1 -t "$threads" --json "$work/bench"
  run "$@" embed tests/fixtures/families/bert.gguf --ids 1,2,3 -t "$threads"
  run "$@" perplexity --ids 1,5,6,7,8,9,10,11,12 -t "$threads"
  run "$@" pack builtin "$work/packed" -q
  run "$@" run "$work/packed" -q -n 2 --seed 1 -t "$threads" -p a
  run "$@" quantize builtin "$work/quantized" --type f16 -q
  run "$@" info builtin
}

# Valgrind knows AVX2 and nothing wider, so the tier is given; it runs one thread at a time.
memcheck() {
  targets="src/cli/headrow" build valgrind gcc
  set -- valgrind --quiet --error-exitcode=9 --exit-on-first-error=yes --leak-check=full \
    --errors-for-leak-kinds=definite --show-leak-kinds=definite
  HEADROW_ISA=avx2 commands 2 "$@" build-analysis-valgrind/src/cli/headrow
  echo "analysis: valgrind: runs of the command"
}

# With gcc, since clang takes minutes for each kernel under these; what gcc's UBSan makes of
# an expression is what -Wsign-conversion then sees. Criterion calls a test passed that leaks at
# its end, so the reports go to files.
address() {
  tests="memory hostile faults process packed vocab text source template chat api families"
  targets="src/cli/headrow $(printf 'tests/test_%s ' $tests)" build address gcc -Doptimization=1 \
    -Dwerror=false -Db_sanitize=address,undefined -Db_lundef=false
  export HEADROW_COMMAND=$PWD/build-analysis-address/src/cli/headrow
  export ASAN_OPTIONS=log_path=$work/asan UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
  for test in $tests; do run "build-analysis-address/tests/test_$test" -j1; done
  for report in "$work"/asan.*; do
    [ ! -f "$report" ] || fail "a report of AddressSanitizer" "$report"
  done
  unset ASAN_OPTIONS
  echo "analysis: AddressSanitizer, LeakSanitizer, UBSan: $tests"
}

# Another runtime than clang's is not seen through: gcc's gives false races. Archer, which
# comes with clang's, tells the detector what its barriers order.
threads() {
  targets="src/cli/headrow tests/model_stress tests/sched_stress tests/kernels/split_driver" \
    build threads clang -Db_sanitize=thread -Db_lundef=false
  export TSAN_OPTIONS=ignore_noninstrumented_modules=1:exitcode=66
  run build-analysis-threads/tests/model_stress "$PWD"
  run build-analysis-threads/tests/sched_stress
  run build-analysis-threads/tests/kernels/split_driver
  commands 3 build-analysis-threads/src/cli/headrow
  echo "analysis: ThreadSanitizer: whole models, several sessions and threads"
}

for kind in $wanted; do
  case $kind in
    tidy) tidy ;;
    cppcheck) cpp_check ;;
    valgrind) memcheck ;;
    address) address ;;
    threads) threads ;;
  esac
done
[ $status = 0 ] && echo "analysis: nothing found by: $wanted"
exit $status
