#!/bin/sh
# SPDX-License-Identifier: MIT
# Estimates what the inner loops of the 64-bit Arm kernels take, without an Arm CPU:
# compiles them with the flags of their tier, takes the loops out of the assembly and
# has llvm-mca simulate each on models of CPUs.
#
#   sh perf/mca.sh [CPU...]     (default cortex-a53 cortex-a72 neoverse-n1, -v1 and -v2)
#   sh perf/mca.sh --help
#
# CPU is a name of llvm-mca's; each has the loops of the tiers that it runs.
# A line is one turn of a loop: what it computes, cycles, block throughput (the bound of the
# busiest pipe, each by itself), the pressure of each vector pipe, cycles over the mean of
# those, and, where all vector pipes multiply, the share of their slots that the
# instruction named first takes. Memory is not in it: all loads hit the first cache.
#
# Environment: CC (aarch64-linux-gnu-gcc, of the package gcc-aarch64-linux-gnu; headers of
# libc6-dev-arm64-cross), MCA (llvm-mca-19, of the package llvm-19: older ones have one
# model for several of these CPUs).
# Status: 0 done, 2 usage, 3 a tool is missing or failed, or a loop is not found.
set -eu

fail() {
  status=$1
  shift
  echo "mca.sh: $*" >&2
  exit "$status"
}

for argument; do
  case $argument in
    -h | --help) # what stands above
      sed -n '3,/^set /{/^set /d;s/^# \{0,1\}//p;}' "$0"
      exit 0 ;;
    -*) fail 2 "$argument: not known, expected names of CPUs or --help" ;;
  esac
done

here=$(dirname "$0")/..
cc=${CC:-aarch64-linux-gnu-gcc} mca=${MCA:-llvm-mca-19}
command -v "$cc" >/dev/null ||
  fail 3 "$cc: can't be run, expected a compiler for aarch64 (package gcc-aarch64-linux-gnu)"
command -v "$mca" >/dev/null || fail 3 "$mca: can't be run, expected llvm-mca (package llvm-19)"
[ $# -gt 0 ] || set -- cortex-a53 cortex-a72 neoverse-n1 neoverse-v1 neoverse-v2

# The names that are listed; others mean the same as one of them (apple-m1).
names() {
  "$mca" -mtriple=aarch64 -mcpu=help /dev/null 2>&1 |
    sed -n 's/^  \([a-z0-9-]*\) .* processor\.$/\1/p' | sort -u | paste -s -d ' '
}

for cpu; do
  case $(echo nop | "$mca" -mtriple=aarch64 -mcpu="$cpu" 2>&1) in
    Iterations:*) ;;
    *) fail 2 "'$cpu': no CPU that $mca simulates, expected some of: $(names)" ;;
  esac
done

# runs CPU INSTRUCTION
runs() {
  echo "$2" | "$mca" -mtriple=aarch64 -mcpu="$1" >/dev/null 2>&1
}

# The CPUs of each tier. Portable code is for those that have no dot products, whose kernels
# are compared with it.
neon=$* portable='' dotprod='' i8mm=''
for cpu; do
  if runs "$cpu" "sdot v0.4s, v1.16b, v2.16b"; then
    dotprod="$dotprod $cpu"
  else
    portable="$portable $cpu"
  fi
  if runs "$cpu" "smmla v0.4s, v1.16b, v2.16b"; then i8mm="$i8mm $cpu"; fi
done

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

# compile TIER FILE: as meson.build and kernels/neon/meson.build do
compile() {
  common="-fno-schedule-insns -frename-registers"
  case $1 in
    portable) flags= ;;
    neon) flags="-march=armv8-a $common" ;;
    dotprod) flags="-march=armv8.2-a+dotprod $common -fira-algorithm=priority" ;;
    i8mm) flags="-march=armv8.2-a+dotprod+i8mm $common -fira-algorithm=priority" ;;
  esac
  [ -f "$work/$(basename "$2").s" ] ||
    "$cc" -std=gnu17 -O3 -ffp-contract=off -fno-math-errno -fvisibility=hidden -fPIC \
      -D_GNU_SOURCE -I"$here" $flags -S -o "$work/$(basename "$2").s" "$here/kernels/$2" ||
    fail 3 "can't compile $2"
}

# loop FILE FUNCTION COUNTS NTH: the NTH loop of the function that holds just so many of each
# instruction, as in "fmla=64 fcvtl=16", with no such loop inside it; a name stands for all that
# begin with it and go on with digits (fcvtl, fcvtl2). A loop reaches from a label to a
# jump back to it; one inside it is taken as straight code.
loop() {
  awk -v function_label="$2:" -v counts="$3" -v nth="$4" '
    function holds(begin, end,  i, k, want, word, pair, n) {
      n = split(counts, want, " ")
      for (k = 1; k <= n; k++) {
        split(want[k], pair, "=")
        for (i = begin; i <= end; i++) {
          split(line[i], word)
          if (word[1] ~ "^" pair[1] "[0-9]*$") pair[2]--
        }
        if (pair[2] != 0) return 0
      }
      return 1
    }
    function innermost(e,  f) {
      for (f = 1; f <= loops; f++)
        if (f != e && from[f] >= from[e] && to[f] <= to[e] && holds(from[f], to[f])) return 0
      return 1
    }
    /^[A-Za-z_]/ { inside = $1 == function_label; next }
    !inside || /^\t\./ { next }
    /^\.L/ { sub(":.*", ""); at[$0] = lines + 1; next }
    NF {
      line[++lines] = $0
      if ($1 ~ /^(b|b[.]?..|cbn?z|tbn?z)$/ && ($NF in at)) {
        from[++loops] = at[$NF]
        to[loops] = lines
      }
    }
    END {
      for (e = 1; e <= loops; e++)
        if (holds(from[e], to[e]) && innermost(e) && --nth == 0)
          for (i = from[e]; i <= to[e]; i++) print line[i]
    }' "$1"
}

# simulate CPU LABEL COUNTS: one line of the table
simulate() {
  "$mca" -mtriple=aarch64 -mcpu="$1" -iterations=100 \
    -instruction-info=false "$work/loop.s" >"$work/out" 2>"$work/err" ||
    fail 3 "$mca failed: $(tail -n 3 "$work/err")"
  awk -v cpu="$1" -v label="$2" -v named="$3" '
    /^Iterations:/ { turns = $2 }
    /^Total Cycles:/ { cycles = $3 / turns }
    /^Block RThroughput:/ { block = $3 }
    /^\[[0-9.]+\] +- / && /Unit(V[0-9]+|W|X|FPALU|FPMDS)$/ { vector[++pipes] = $1 }
    /Unit(W|X|FPALU|FPMDS)$/ { unequal = 1 }
    heads { heads = 0; for (i = 1; i <= columns; i++) pressure[head[i]] = $i }
    /^Resource pressure per iteration/ { wanted = 1; next }
    wanted { wanted = 0; heads = 1; columns = split($0, head, " ") }
    END {
      for (i = 1; i <= pipes; i++) {
        each = each (i > 1 ? " + " : "") sprintf("%.1f", pressure[vector[i]])
        sum += pressure[vector[i]]
      }
      split(named, pair, /[= ]/)
      share = sprintf("%.1f %%", 100 * pair[2] / (cycles * pipes))
      printf "%-57s %-12s %7.2f %7s  %-29s %7s %7s\n", label, cpu, cycles, block, each,
             (sum > 0 ? sprintf("%.2f", cycles * pipes / sum) : "-"), (unequal ? "-" : share)
    }' "$work/out"
}

# row TIER FILE FUNCTION COUNTS NTH LABEL, on each CPU of the tier
row() {
  compile "$1" "$2"
  loop "$work/$(basename "$2").s" "$3" "$4" "$5" >"$work/loop.s"
  [ -s "$work/loop.s" ] || fail 3 "$3 of $2: no loop with $4, the $5th of such"
  case $1 in
    portable) cpus=$portable ;;
    neon) cpus=$neon ;;
    dotprod) cpus=$dotprod ;;
    i8mm) cpus=$i8mm ;;
  esac
  for cpu in $cpus; do simulate "$cpu" "$1, $6" "$4"; done
}

printf '%-57s %-12s %7s %7s  %-29s %7s %7s\n' loop CPU cycles block "vector pipes" over share
dot=neon/dotprod_q8.c mm=neon/i8mm_q8.c q8=neon/neon_q8.c product=neon/neon_product.c
attention=neon/neon_attention.c
row dotprod $dot hr_product_q8__dotprod sdot=96 1 "int8: 16 outputs x 3 rows x 32 columns"
row dotprod $dot hr_product_one_q8__dotprod sdot=32 1 "int8: 16 outputs x one row x 32 columns"
row dotprod $dot hr_product_q8__dotprod sdot=32 1 "int8: the same for a row left over"
row i8mm $mm hr_product_q8__i8mm smmla=32 1 "int8: 8 outputs x 4 rows x 32 columns"
row i8mm $mm hr_product_q8__i8mm "zip1=20 zip2=20" 1 "rearranging 16 outputs x 32 columns"
row i8mm $mm hr_product_q8__i8mm "zip1=16 zip2=16" 1 "rearranging 2 rows x 256 columns"
row neon $q8 hr_product_q8__neon "smull=64 smlal=64" 1 "int8: 16 outputs x 2 rows x 32 columns"
row neon $q8 hr_product_one_q8__neon "smull=32 smlal=32" 1 "int8: 16 outputs x one row x 32 columns"
row neon $product five_rows fmla=80 1 "fp32: 16 outputs x 5 rows x 4 columns"
row neon $product hr_product_one_f32__neon fmla=48 1 "fp32: 48 outputs x one row x 4 columns"
row neon $product hr_product_f16__neon "fmla=64 fcvtl=16" 1 "fp16: 16 outputs x 4 rows x 4 columns"
row neon $product hr_product_one_f16__neon "fmla=48 fcvtl=48" 1 \
  "fp16: 48 outputs x one row x 4 columns"
row neon $attention hr_attend_f16__neon "fmla=64 fcvtl=16" 1 "fp16 scores: 16 keys x 4 queries x 4"
row neon $attention hr_attend_f16__neon "fmla=64 fcvtl=16" 2 "fp16 values: 16 wide x 4 queries x 4"
row neon $attention hr_attend_f16__neon "fmla=64 fcvtl=64" 2 "fp16 scores: 64 keys x one query x 4"
row neon $attention hr_attend_f16__neon "fmla=64 fcvtl=64" 3 "fp16 values: 64 wide x one query x 4"
row neon neon/neon_activation.c hr_silu__neon "fmla=36 fdiv=4" 1 "silu: 16 elements"
row portable portable/product.c hr_product_q8__portable "mla=8 mul=8 scvtf=4" 1 \
  "int8: a row's block, less 3 turns of the next"
row portable portable/product.c hr_product_q8__portable "mla=8 mul=8" 1 \
  "int8: 4 outputs x one row x 32 columns"
row portable portable/product.c hr_product_q8__portable "mla=4 mul=4 scvtf=4" 1 \
  "int8: 4 rows' block, less 31, 3 of the next two"
row portable portable/product.c hr_product_q8__portable "mla=4 mul=4" 1 \
  "int8: 4 outputs x 4 rows x 4 columns"
row portable portable/product.c hr_product_q8__portable scvtf=4 1 "int8: scales of 16 x one row"
row portable portable/product.c hr_product_f32__portable fmla=4 1 "fp32: 16 x one row x one column"
row portable portable/product.c hr_product_f16__portable "fmla=4 fmul=16" 1 \
  "fp16: 16 x one row x one column"
row portable portable/attention.c hr_attend_f16__portable fmadd=16 1 "fp16 scores: 16 keys x 1 x 1"
row portable portable/attention.c hr_attend_f16__portable fmadd=16 2 "fp16 values: 16 wide x 1 x 1"
row portable portable/activation.c hr_silu__portable "fmadd=8 fdiv=1" 2 "silu: one element"
