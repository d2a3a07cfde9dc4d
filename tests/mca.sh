#!/bin/sh
# SPDX-License-Identifier: MIT
# perf/mca.sh: what it says of wrong use and of loops that are gone, and one CPU's table.
# Usage: mca.sh SOURCE_ROOT
set -u
script=$1/perf/mca.sh
passed=0 failed=0
ok() { passed=$((passed + 1)); }
bad() { failed=$((failed + 1)); echo "mca: $*"; cat "$dir/out" "$dir/err"; }
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT

mca() { # the script with such arguments
  sh "$script" "$@" >"$dir/out" 2>"$dir/err"
  status=$?
}

# One line of error that holds each word.
error() { # status, word...
  [ "$status" = "$1" ] && ok || bad "ended with $status, expected $1"
  [ "$(wc -l <"$dir/err")" = 1 ] && grep -q '^mca.sh: ' "$dir/err" && ok || bad "not one line of error"
  shift
  for word; do grep -qF -e "$word" "$dir/err" && ok || bad "no '$word' in the error"; done
}

# These need no tool.
for option in -h --help; do
  CC=/nosuch MCA=/nosuch mca $option
  [ $status = 0 ] && grep -q 'perf/mca.sh \[CPU\.\.\.\]' "$dir/out" && [ ! -s "$dir/err" ] && ok ||
    bad "$option ended with $status"
done
mca --cpu=neoverse-n1
error 2 --cpu=neoverse-n1 expected
CC=/nosuch mca
error 3 /nosuch gcc-aarch64-linux-gnu
CC=true MCA=/nosuch mca
error 3 /nosuch llvm-19

# A compiler whose assembly is empty.
cat >"$dir/empty" <<'END'
#!/bin/sh
while [ $# -gt 0 ]; do
  [ "$1" != -o ] || : >"$2"
  shift
done
END
chmod +x "$dir/empty"
if command -v llvm-mca-19 >/dev/null; then
  for name in neoverse-n9 help ""; do
    CC=$dir/empty mca neoverse-n1 "$name"
    error 2 "'$name'" neoverse-n1 cortex-a53
    [ ! -s "$dir/out" ] && ok || bad "half a table with '$name'"
  done
  CC=$dir/empty mca neoverse-n1
  error 3 "no loop" hr_product_q8__dotprod sdot=96
else
  echo "mca: NOT RUN: names of CPUs, loops that are gone (llvm-mca-19 is not installed)"
fi

# This CPU has two vector pipes that each start a multiply-add or dot product a cycle, and no
# matrix multiply (Arm Neoverse N1 Software Optimization Guide).
row() { # start of the row, least cycles, most
  awk -v start="$1" -v least="$2" -v most="$3" '
    index($0, start) == 1 { sub(".* neoverse-n1 *", ""); found = $1 >= least && $1 <= most }
    END { exit !found }' "$dir/out" && ok || bad "'$1': no row of $2 to $3 cycles"
}
if command -v llvm-mca-19 >/dev/null && command -v aarch64-linux-gnu-gcc >/dev/null; then
  mca neoverse-n1
  [ $status = 0 ] && [ ! -s "$dir/err" ] && ok || bad "the table ended with $status"
  row "dotprod, int8: 16 outputs x 3 rows x 32 columns" 48 96
  row "dotprod, int8: 16 outputs x one row x 32 columns" 16 64
  row "neon, fp32: 16 outputs x 5 rows x 4 columns" 40 80
  grep -qE '^(portable|i8mm), ' "$dir/out" && bad "loops of other CPUs' tiers" || ok
else
  echo "mca: NOT RUN: a table (llvm-mca-19 or aarch64-linux-gnu-gcc is not installed)"
fi

echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
