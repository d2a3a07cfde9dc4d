#!/bin/sh
# SPDX-License-Identifier: MIT
# Installs what is missing, builds headrow with its tests and runs them:
#
#   scripts/test.sh quick   those done within seconds, under 3 minutes in all
#   scripts/test.sh [full]  all, on this machine and on emulated CPUs, and a build by clang where
#                           it is installed: a warning of either compiler is an error
#   scripts/test.sh long    full, then the errors of the elementary functions at every argument,
#                           then scripts/analysis.sh (static analysis, valgrind, sanitizers),
#                           then each fuzz target under libFuzzer, FUZZ_SECONDS (600) each
#
# HEADROW_TEST_DATA=FOLDER adds tests on model files that are not part of the
# project. HEADROW_EMULATED=no leaves the emulated CPUs out.
set -eu
cd "$(dirname "$0")/.."
tier=${1:-full} names=
case $tier in
  quick)
    names="house elementary select operators position quant source load faults api batch text template
      stops sensors compare fuzz_gguf fuzz_safetensors fuzz_packed fuzz_options fuzz_tokenizer
      fuzz_template fuzz_vocab"
    HEADROW_EMULATED=no ;;
  full | long) ;;
  *) echo "headrow: '$tier' is no tier of tests, expected quick, full or long" >&2; exit 2 ;;
esac
if [ "$tier" = long ]; then sh scripts/setup.sh analysis; else sh scripts/setup.sh tests; fi
[ -f build-tests/build.ninja ] || meson setup build-tests --buildtype=release
ninja -C build-tests

clang=0
if [ "$tier" = quick ]; then
  :
elif command -v clang >/dev/null; then
  [ -f build-clang/build.ninja ] ||
    CC=clang meson setup build-clang --buildtype=release -Dtests=false
  ninja -C build-clang || { clang=1; echo "headrow: the build by clang failed" >&2; }
else
  echo "headrow: NOT RUN: the build by clang, which is not installed"
fi

log=build-tests/tests.log
status=0
OMP_WAIT_POLICY=passive meson test -C build-tests -v --no-rebuild $names >"$log" 2>&1 || status=$?
cat "$log"

emulated=0
: >build-tests/emulated.log
if [ "${HEADROW_EMULATED:-yes}" = no ]; then
  echo "headrow: NOT RUN: the emulated CPUs (quick, or HEADROW_EMULATED=no)"
else
  sh scripts/emulated.sh build-emulated 2>&1 | tee build-tests/emulated.log || true
  grep -q '^emulated: .* all equal$' build-tests/emulated.log || emulated=1
  grep -q '^emulated: NOT RUN' build-tests/emulated.log && emulated=0
fi
[ -n "${HEADROW_TEST_DATA:-}" ] ||
  echo "headrow: NOT RUN: the tests on foreign model files (HEADROW_TEST_DATA is not set)"

# Criterion closes each program with "Synthesis: Tested: N | Passing: N | Failing: N
# | Crashing: N"; a program that tests in another way with "N passed, N failed";
# an emulated CPU counts each comparison.
awk '/Synthesis: Tested:/ { gsub(/\033\[[0-9;]*m/, ""); gsub(/[^0-9|]/, ""); split($0, n, "|")
       passed += n[2]; failed += n[3] + n[4] }
     /^[0-9]+ passed, [0-9]+ failed$/ { passed += $1; failed += $3 }
     /^emulated: [0-9]+ checks on emulated CPUs, [0-9]+ wrong$/ { failed += $7 }
     /^emulated: [0-9]+ checks on emulated CPUs, / { passed += $2 }
     END { printf "%d passed, %d failed\n", passed, failed
           exit passed == 0 || failed > 0 }' "$log" build-tests/emulated.log || status=1
[ "$emulated" = 0 ] || status=1
[ "$clang" = 0 ] || status=1
[ "$tier" = quick ] && echo "headrow: NOT RUN: the tests that take longer (quick)"
if [ "$tier" = long ]; then
  ninja -C build-tests tests/kernels/elementary_all && build-tests/tests/kernels/elementary_all || status=1
fi
if [ "$tier" = long ]; then sh scripts/analysis.sh || status=1; fi
if [ "$tier" = long ]; then sh scripts/fuzz.sh all "${FUZZ_SECONDS:-600}" || status=1; fi
exit $status
