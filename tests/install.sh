#!/bin/sh
# SPDX-License-Identifier: MIT
# What an installed headrow gives: programs in C and C++ that find it through
# pkg-config, link it shared and static, and run; one of an old header; manual pages; completion.
# Usage: install.sh SOURCE_ROOT BUILD_ROOT HEADROW_COMMAND
set -u
root=$1 build=$2 headrow=$3
passed=0 failed=0
ok() { passed=$((passed + 1)); }
bad() { failed=$((failed + 1)); echo "install: $*"; }
expect() { # what, command...
  what=$1; shift
  if "$@" >"$dir/out" 2>&1; then ok; else bad "$what"; cat "$dir/out"; fi
}

dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
expect "meson install" meson install -C "$build" --no-rebuild --destdir "$dir/root"
pc=$(find "$dir/root" -name headrow.pc)
[ -n "$pc" ] && ok || bad "no headrow.pc"
PKG_CONFIG_PATH=$(dirname "$pc") PKG_CONFIG_SYSROOT_DIR=$dir/root
export PKG_CONFIG_PATH PKG_CONFIG_SYSROOT_DIR
lib=$(dirname "$(dirname "$pc")")
cflags=$(pkg-config --cflags headrow) libs=$(pkg-config --libs headrow)
# headrow itself static, the libraries it stands on shared: by the compiler that made it (CC), whose
# OpenMP runtime it wants.
private="$(PKG_CONFIG_SYSROOT_DIR= pkg-config --libs $(pkg-config --print-requires-private headrow)) -lm -fopenmp -pthread"

strict="-Wall -Wextra -Wpedantic -Werror"
model=$root/models/builtin.gguf
expect "a C program, shared" cc -std=c99 $strict $cflags "$root/examples/generate.c" -o "$dir/shared" $libs
expect "a C program, static" ${CC:-cc} -std=c11 $strict $cflags "$root/examples/generate.c" -o "$dir/static" "$lib/libheadrow.a" $private
cat >"$dir/program.cpp" <<'END'
#include <headrow/headrow.h>
#include <cstdio>
int main(int, char **argv) {
  hr_error err = {};
  hr_model_options options;
  hr_model_options_init(&options);
  hr_model *model = hr_model_open(argv[1], &options, &err);
  if (!model) return std::printf("%s\n", err.message), err.status;
  std::printf("%zu\n", hr_model_vocab_size(model));
  hr_model_free(model);
}
END
for standard in c++11 c++20; do
  expect "a C++ program, $standard" c++ -std=$standard $strict $cflags "$dir/program.cpp" -o "$dir/cpp" $libs
done
LD_LIBRARY_PATH=$lib
export LD_LIBRARY_PATH
expect "the shared program runs" "$dir/shared" "$model" "Once upon a time"
expect "the static program runs" env LD_LIBRARY_PATH= "$dir/static" "$model" "Once upon a time"
expect "the C++ program runs" "$dir/cpp" "$model"
ldd "$dir/static" | grep -q libheadrow && bad "the static program asks for libheadrow.so" || ok
readelf -d "$dir/shared" | grep -q 'NEEDED.*libheadrow\.so\.0' && ok || bad "the shared program does not ask for libheadrow.so.0"

# A program that was built with an old header does with this library what one of today does.
old="-I$root/tests/abi"
expect "a program with an old header" cc -std=c11 $strict $old "$root/tests/abi/program.c" -o "$dir/old" $libs
expect "a program with today's header" cc -std=c11 $strict $cflags "$root/tests/abi/program.c" -o "$dir/now" $libs
expect "the program with today's header runs" "$dir/now" "$model"
mv "$dir/out" "$dir/expected"
expect "the program with an old header runs" "$dir/old" "$model"
cmp "$dir/out" "$dir/expected" && [ -s "$dir/out" ] && ok || bad "an old header's program gives another answer"

# The manual: written by scripts/manual.sh from the help, and whole.
"$root/scripts/manual.sh" "$headrow" 2>/dev/null | cmp -s - "$root/docs/man/headrow.1.scd" && ok ||
  bad "docs/man/headrow.1.scd is not what 'sh scripts/manual.sh COMMAND' writes; write it anew"
if command -v scdoc >/dev/null; then
  for page in man1/headrow.1 man3/headrow.3; do
    [ -s "$(find "$dir/root" -path "*/$page")" ] && ok || bad "$page is not installed"
  done
else
  echo "install: NOT RUN: the manual pages (scdoc is not installed)"
fi

# Completion: what each shell offers.
offers() { # shell, words typed so far, what must be among the answers
  case $1 in
    bash) answer=$(bash -c '. "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _headrow
                            printf "%s\n" "${COMPREPLY[@]}"' - "$root/completion/headrow.bash" $2 "$3") ;;
    fish) answer=$(HOME=$dir fish -c 'source $argv[1]; complete -C "$argv[2]"' "$root/completion/headrow.fish" "$2 $3" | cut -f1) ;;
  esac
  printf '%s\n' "$answer" | grep -qx -e "$4" && ok || bad "$1 completes '$2 $3' to '$answer', expected '$4' among it"
}
mkdir "$dir/bin"; ln -s "$headrow" "$dir/bin/headrow"
PATH=$dir/bin:$PATH
for shell in bash fish; do
  if ! command -v $shell >/dev/null; then
    echo "install: NOT RUN: completion for $shell (it is not installed)"
    continue
  fi
  offers $shell headrow ru run
  offers $shell headrow "" tokenize
  offers $shell "headrow run" --te --temp
  offers $shell "headrow logits model.gguf" --np --npy
done
offers bash "headrow run x --cache" "" f32
cd "$dir" && : >some.gguf
offers bash "headrow run" so some.gguf

echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
