#!/bin/sh
# SPDX-License-Identifier: MIT
# Installs what headrow needs to be built (with "tests", to be tested; with "analysis", for
# scripts/analysis.sh and scripts/fuzz.sh too) on Debian and Ubuntu. On another system it
# says what is missing and stops.
# Usage: sh scripts/setup.sh [tests|analysis]
set -eu

build="gcc meson ninja-build pkg-config libc6-dev libedit-dev libhwloc-dev libjansson-dev libpcre2-dev libutf8proc-dev"
tests="libcriterion-dev g++ binutils scdoc fish"
analysis="clang libclang-rt-dev libomp-dev clang-tidy cppcheck valgrind"

# A package's proof of being there: a command, or a module that pkg-config knows.
have() {
  case $1 in
    gcc) command -v gcc ;;
    g++) command -v g++ ;;
    meson) command -v meson ;;
    ninja-build) command -v ninja ;;
    pkg-config) command -v pkg-config ;;
    scdoc) command -v scdoc ;;
    fish) command -v fish ;;
    binutils) command -v objdump && command -v nm ;;
    clang | clang-tidy | cppcheck | valgrind) command -v "$1" ;;
    libc6-dev) echo 'int main(void){return 0;}' | gcc -x c - -o /dev/null ;;
    libclang-rt-dev) echo 'int main(void){return 0;}' | clang -fsanitize=thread -x c - -o /dev/null ;;
    libomp-dev) echo 'int main(void){return 0;}' | clang -fopenmp -x c - -o /dev/null ;;
    libhwloc-dev) pkg-config --exists hwloc ;;
    libjansson-dev) pkg-config --exists jansson ;;
    libpcre2-dev) pkg-config --exists libpcre2-8 ;;
    libedit-dev) pkg-config --exists libedit ;;
    libutf8proc-dev) pkg-config --exists libutf8proc ;;
    libcriterion-dev) pkg-config --exists criterion ;;
    *) return 1 ;;
  esac >/dev/null 2>&1
}

case ${1:-} in
  "") wanted=$build ;;
  tests) wanted="$build $tests" ;;
  analysis) wanted="$build $tests $analysis" ;;
  *) echo "headrow: '$1' is not known, expected tests or analysis" >&2; exit 2 ;;
esac
missing=
for package in $wanted; do
  have "$package" || missing="$missing $package"
done
[ -z "$missing" ] && exit 0

if ! command -v apt-get >/dev/null 2>&1; then
  echo "headrow: this system has no apt-get. Please install these, under the names your system gives them:" >&2
  for package in $missing; do echo "  $package" >&2; done
  echo "(a C compiler with OpenMP, meson, ninja, pkg-config and the development files of hwloc, jansson, pcre2, utf8proc; Criterion for the tests)" >&2
  exit 1
fi

as_root=
if [ "$(id -u)" != 0 ]; then
  if ! command -v sudo >/dev/null 2>&1; then
    echo "headrow: please run as root: apt-get install$missing" >&2
    exit 1
  fi
  as_root=sudo
fi
echo "headrow: installing$missing" >&2
export DEBIAN_FRONTEND=noninteractive
$as_root apt-get update -q >&2
# shellcheck disable=SC2086
$as_root apt-get install -y -q --no-install-recommends $missing >&2
