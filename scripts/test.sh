#!/bin/sh
# SPDX-License-Identifier: MIT
# Installs what is missing, builds headrow with its tests and runs them all.
# HEADROW_TEST_DATA=FOLDER adds tests on model files that are not part of the
# project.
set -eu
cd "$(dirname "$0")/.."
sh scripts/setup.sh tests
[ -f build-tests/build.ninja ] || meson setup build-tests --buildtype=release
ninja -C build-tests
[ -n "${HEADROW_TEST_DATA:-}" ] || echo "headrow: HEADROW_TEST_DATA is not set: the tests on foreign model files are left out"

log=build-tests/tests.log
status=0
OMP_WAIT_POLICY=passive meson test -C build-tests -v --no-rebuild >"$log" 2>&1 || status=$?
cat "$log"

# Criterion closes each program with "Synthesis: Tested: N | Passing: N | Failing: N
# | Crashing: N"; a program that tests in another way with "N passed, N failed".
awk '/Synthesis: Tested:/ { gsub(/[^0-9|]/, ""); split($0, n, "|")
       passed += n[2]; failed += n[3] + n[4] }
     /^[0-9]+ passed, [0-9]+ failed$/ { passed += $1; failed += $3 }
     END { printf "%d passed, %d failed\n", passed, failed
           exit passed == 0 || failed > 0 }' "$log" || status=1
exit $status
