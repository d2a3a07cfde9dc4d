#!/bin/sh
# SPDX-License-Identifier: MIT
# Builds headrow for aarch64 and for baseline x86-64 and runs it on emulated
# CPUs: the kernel checks of each tier, that each CPU gets its tier, splits of the
# work, and digests of whole models, which must equal those of this machine's best tier
# and those in models/digests.
#
#   sh scripts/emulated.sh [FOLDER]     (default build-emulated)
#
# The command and a plain program are run, not Criterion: that starts its tests
# by executing itself, which leaves the emulator.
#
# HEADROW_TEST_DATA=FOLDER adds the model files stories260K*.gguf found in it.
# Status: 0 all equal, 1 something differs, 77 the emulators or the cross
# compiler can't be had here.
set -eu
cd "$(dirname "$0")/.."
work=${1:-build-emulated}
mkdir -p "$work/log"
work=$(cd "$work" && pwd)

say() {
  echo "emulated: $*"
}
skip() {
  say "NOT RUN: $*"
  exit 77
}
# The two architectures are checked side by side: counts go through files.
wrong() {
  say "WRONG: $*"
  echo "$*" >>"$work/wrong"
}
right() {
  echo "$1" >>"$work/right"
}

install_tools() {
  missing=
  command -v aarch64-linux-gnu-gcc >/dev/null ||
    missing="gcc-aarch64-linux-gnu libc6-dev-arm64-cross"
  command -v qemu-aarch64-static >/dev/null && command -v qemu-x86_64-static >/dev/null ||
    missing="$missing qemu-user-static"
  [ -n "$missing" ] || return 0
  command -v apt-get >/dev/null || skip "this system has no apt-get; wanted:$missing"
  as_root=
  [ "$(id -u)" = 0 ] || as_root=sudo
  say "installing $missing"
  { $as_root apt-get update -q && DEBIAN_FRONTEND=noninteractive \
    $as_root apt-get install -q -y --no-install-recommends $missing; } >"$work/log/apt" 2>&1 ||
    skip "can't install $missing (see $work/log/apt)"
}

# build NAME [meson options]
build() {
  name=$1
  shift
  say "building for $name"
  { [ -f "$work/$name/build.ninja" ] || meson setup "$work/$name" "$@"; } \
    >"$work/log/setup-$name" 2>&1 &&
    ninja -C "$work/$name" >"$work/log/build-$name" 2>&1 && return 0
  tail -n 20 "$work/log/setup-$name" "$work/log/build-$name" || true
  say "the build for $name failed"
  exit 1
}

# The program of that name in a build.
program() {
  found=$(find "$work/$1" -type f -name "$2" -perm -u+x | head -n 1)
  [ -n "$found" ] || { say "no program $2 in the build for $1" >&2; exit 1; }
  echo "$found"
}

# emulate ARCHITECTURE CPU PROGRAM [ARGUMENT...]: stderr without the emulator's own warnings
emulate() {
  arch=$1 cpu=$2
  shift 2
  case $arch in
    arm64) qemu-aarch64-static -L "$work/sysroot" -cpu "$cpu" "$@" ;;
    x86) qemu-x86_64-static -cpu "$cpu" "$@" ;;
  esac
}

# The kernels of one tier, all families.
check_kernels() {
  arch=$1 cpu=$2 tier=$3 log=$work/log/kernels-$2
  emulate "$arch" "$cpu" "$(program "$arch" "$driver")" --isa "$tier" >"$log" 2>&1 || {
    grep -v ' ok ' "$log" | head -n 40
    wrong "kernels of $tier on $cpu (all of it: $log)"
  }
  checked=$(grep -c ' ok ' "$log") || true
  [ "$checked" -gt 0 ] || wrong "no kernel was checked on $cpu"
  beside=portable
  [ "$tier" != portable ] || beside=itself
  say "$cpu: $checked families of $tier equal $beside"
  right "$checked"
}

# The tier is the one that the CPU gets by itself.
check_dispatch() {
  arch=$1 cpu=$2 tier=$3
  best=$(emulate "$arch" "$cpu" "$(program "$arch" "$driver")" --default 2>/dev/null) || true
  [ "$best" = "$tier" ] || wrong "$cpu is given ${best:-nothing}, expected $tier"
}

# digest RUNNER...: what identifies the logits of $model with $options.
digest() {
  {
    "$@" run "$model" -t 2 --no-pin -p "$prompt" -n 32 --temp 0 --ignore-eos --digest $options \
      2>&1 >/dev/null | sed -n 's/^digest: //p'
  } || true
}

# Copies, so that a model written anew meanwhile can't look like a wrong digest.
copy_models() {
  rm -rf "$work/models"
  mkdir "$work/models"
  for file in models/*.gguf; do
    [ "$file" = models/builtin.gguf ] || [ ! -e "$file" ] || cp "$file" "$work/models"
  done
  [ -z "${HEADROW_TEST_DATA:-}" ] ||
    for type in '' -f16 -q8_0; do
      find "$HEADROW_TEST_DATA" -name "stories260K$type.gguf" -exec cp {} "$work/models" \;
    done
}
models() {
  echo builtin
  find "$work/models" -name '*.gguf' | sort
}

# What this machine's best tier gives, one line a case: value, model, options.
expected_digests() {
  native=$(program x86 headrow)
  models | while read -r model; do
    for weights in f32 f16 q8_0; do
      options="--weights $weights"
      echo "$(digest "$native")|$model|$options"
    done
  done
}

check_digests() {
  arch=$1 cpu=$2 count=0
  headrow=$(program "$arch" headrow)
  while IFS='|' read -r value model options; do
    got=$(digest emulate "$arch" "$cpu" "$headrow" </dev/null)
    count=$((count + 1))
    [ "$got" = "$value" ] ||
      wrong "digest of $model $options on $cpu is ${got:-missing}, this machine gives $value"
  done <"$work/expected"
  say "$cpu: $count digests compared"
  right "$count"
}

# The digests that the project ships: whole texts through the models in models/.
check_shipped() {
  arch=$1 cpu=$2 count=0
  headrow=$(program "$arch" headrow)
  for file in models/digests/*.json; do
    name=$(basename "$file" .json)
    emulate "$arch" "$cpu" "$headrow" accuracy "models/$name.gguf" -q -t 2 --no-pin \
      --check "$file" >"$work/log/shipped-$cpu" 2>&1 </dev/null ||
      wrong "$file on $cpu: $(tail -n 1 "$work/log/shipped-$cpu")"
    count=$((count + 1))
  done
  say "$cpu: $count shipped files of digests compared"
  right "$count"
}

# Threads, chunks and stolen work change no bit there, and the digests are this machine's.
check_splits() {
  arch=$1 cpu=$2 log=$work/log/splits-$2
  emulate "$arch" "$cpu" "$(program "$arch" split_driver)" >"$log" 2>/dev/null ||
    wrong "splits on $cpu: $(head -n 1 "$log") (all of it: $log)"
  cmp -s "$log" "$work/expected-splits" ||
    wrong "splits on $cpu give other digests than this machine ($log)"
  say "$cpu: digests of splits compared"
  right "$(wc -l <"$work/expected-splits")"
}

check_cpu() {
  check_dispatch "$@"
  check_kernels "$@"
  check_splits "$1" "$2"
  check_shipped "$1" "$2"
  check_digests "$1" "$2"
}

export OMP_WAIT_POLICY=passive
prompt="Once upon a time there was a little girl who liked to walk in the forest with her dog."
driver=kernel_driver digests=yes
[ "$(uname -m)" = x86_64 ] || skip "written for an x86-64 machine, this is $(uname -m)"
install_tools
sh scripts/arm64-sysroot.sh "$work/sysroot" 2>"$work/log/sysroot" ||
  skip "no arm64 libraries: $(tail -n 1 "$work/log/sysroot")"
build x86 --buildtype=release -Dtests=false
build arm64 --buildtype=release --cross-file "$work/sysroot.ini" \
  --cross-file cross/aarch64-linux-gnu.ini

rm -f "$work/wrong" "$work/right"
copy_models
expected_digests >"$work/expected"
"$(program x86 split_driver)" >"$work/expected-splits" ||
  wrong "splits on this machine: $(head -n 1 "$work/expected-splits")"
grep -v '^[0-9][0-9]*-' "$work/expected" &&
  wrong "this machine gives no digest for these"

arm64_cpus() {
  check_cpu arm64 cortex-a53 neon
  check_cpu arm64 cortex-a72 neon
  check_cpu arm64 cortex-a76 dotprod
  check_cpu arm64 max,sve=off i8mm
}
x86_cpus() {
  check_cpu x86 Nehalem portable
  check_cpu x86 Haswell avx2
  check_cpu x86 EPYC-Milan zen3
  check_cpu x86 max,f16c=off portable
}
arm64_cpus &
arm64_pid=$!
x86_cpus || wrong "the checks of x86-64 ended early"
wait "$arm64_pid" || wrong "the checks of aarch64 ended early"

awk '{ n += $1 } END { printf "emulated: %d checks on emulated CPUs, ", n }' "$work/right"
[ ! -e "$work/wrong" ] || { echo "$(wc -l <"$work/wrong") wrong"; exit 1; }
echo "all equal"
