#!/bin/sh
# SPDX-License-Identifier: MIT
# The house keeps its order: arrows between folders point down only, omp.h and
# hwloc.h are each included in one place, no library code exits or prints, the
# shared library exports what the public header declares, and objects that run
# on every CPU hold no wide registers.
# The loops that measure a machine's peaks touch no memory.
# Usage: house.sh SOURCE_ROOT SHARED_LIBRARY ARCHIVE_WITH_PEAK_LOOPS OBJECT_ARCHIVE_OR_FOLDER...
set -u
root=$1 library=$2 peaks=$3
shift 3
passed=0 failed=0

ok() { passed=$((passed + 1)); }
bad() { failed=$((failed + 1)); echo "house: $*"; }
check() { # title, lines that must not be there
  if [ -z "$2" ]; then ok; else bad "$1:"; echo "$2"; fi
}

# Folder -> folders whose headers it may include, beside its own.
may() {
  case $1 in
    src/base) echo "headrow" ;;
    kernels) echo "" ;;
    quant) echo "base kernels headrow" ;;
    src/sched) echo "base headrow" ;;
    src/block) echo "base kernels sched headrow" ;;
    src/text) echo "base headrow" ;;
    src/template) echo "base headrow" ;;
    src/model) echo "base kernels quant sched block text headrow" ;;
    src/engine) echo "base kernels quant sched block text template model headrow" ;;
    src/cli) echo "base kernels quant sched block text template model engine perf headrow" ;;
  esac
}
for folder in src/base kernels quant src/sched src/block src/text src/template src/model src/engine src/cli; do
  own=${folder#src/}
  allowed=$(echo "$own $(may $folder)" | tr ' ' '|')
  # Includes of the project have a folder in them; those of libraries have none
  # or are in angle brackets.
  wrong=$(cd "$root" && grep -rnE '^#include "[a-z0-9_]+/' "$folder" --include='*.[ch]' |
    grep -vE "#include \"($allowed)/")
  check "$folder includes a header from above" "$wrong"
done

# Commands of the public API keep to the public header.
for command in run chat tokenize logits; do
  file=$root/src/cli/$command.c
  [ -f "$file" ] || continue
  check "src/cli/$command.c looks inside" "$(grep -nE '^#include "(base|kernels|quant|sched|block|text|template|model|engine)/' "$file")"
done

for header in omp.h hwloc.h; do
  files=$(cd "$root" && grep -rlE "#include <$header>" src kernels quant --include='*.[ch]')
  [ "$(echo "$files" | grep -c .)" = 1 ] && ok || bad "$header is included in other than one place: $files"
done

check "library code exits, aborts, prints or reads the environment" "$(cd "$root" &&
  grep -rnE '(^|[^a-z_])(exit|_exit|abort|printf|puts|fprintf|perror|getenv|secure_getenv|assert) *\(' \
    src/base src/sched src/block src/text src/template src/model src/engine kernels quant --include='*.[ch]' |
  grep -vE '__attribute__|^\S+:\s*(/?\*|//)|_Static_assert')"

check "a fast-math flag or a silenced warning" "$(cd "$root" &&
  grep -rnE 'ffast-math|Ofast|funsafe-math|pragma GCC diagnostic' src kernels quant meson.build --include='*.[ch]' --include=meson.build)"

check "a line of more than 100 columns" "$(cd "$root" &&
  LC_ALL=C.UTF-8 grep -rnE '^.{101,}' src kernels quant perf tests include examples --include='*.[ch]')"

declared=$(grep -oE 'HR_API [a-z0-9_ ]+[ *]hr_[a-z0-9_]+\(' "$root/include/headrow/headrow.h" | grep -oE 'hr_[a-z0-9_]+\($' | tr -d '(' | sort)
exported=$(nm -D --defined-only "$library" | awk '{print $3}' | sed 's/@.*//' | sort)
[ -n "$declared" ] && [ "$declared" = "$exported" ] && ok || {
  bad "exported symbols are not those of the public header (< declared, > exported):"
  echo "$declared" >/tmp/house.$$.a; echo "$exported" >/tmp/house.$$.b
  diff /tmp/house.$$.a /tmp/house.$$.b; rm -f /tmp/house.$$.a /tmp/house.$$.b
}

# The names themselves, so that none goes or changes unseen: a new one is added to the list.
check "exported symbols are not those of tests/abi/symbols (< list, > exported)" \
  "$(echo "$exported" | diff "$root/tests/abi/symbols" -)"

# From the label of a loop to its jump back; what the compiler adds around may use the stack.
loops=$(nm "$peaks" 2>/dev/null | awk '$2 == "t" && $3 ~ /^(fma|dot|madd|widen|matrix|tile|attend)_/ { print $3 }')
[ -n "$loops" ] && ok || bad "$peaks holds no peak loop"
for loop in $loops; do
  body=$(objdump -d --no-show-raw-insn "$peaks" | awk -v name="<$loop>:" '$2 == name { on = 1; next } /^$/ { on = 0 } on')
  check "the peak loop $loop touches memory" "$(echo "$body" | grep -E '\(%|\[(x|sp)' | grep -vE 'push|pop|ret|nop|lea|cs ')"
  echo "$body" | grep -qE 'vfmadd|vpdpbusd|vpmaddubsw|fmla|smull|sdot|smmla|\.inst|\.word' && ok || bad "$loop was not disassembled"
done

# Names in the page of tests: suite/test, or a test of the build.
named=$(grep -oE '`([a-z0-9_]+/[a-z0-9_]+|fuzz_[a-z]+)`' "$root/docs/testing.md" | tr -d '`' | grep -v '^tests/' | sort -u)
[ -n "$named" ] && ok || bad "docs/testing.md names no test"
for name in $named; do
  case $name in
    fuzz_*) grep -q "'${name#fuzz_}': " "$root/tests/fuzz/meson.build" ;;
    *) grep -rqE "^(Test\(|ParameterizedTest\([^,]*, *)${name%/*}, *${name#*/}[,)]" "$root/tests" --include='test_*.c' ;;
  esac && ok || bad "docs/testing.md names a test that is not there: $name"
done

# narrow NAME FILE...: no wide registers in their code, but for the measured peaks.
narrow() {
  name=$1
  shift
  code=$(objdump -d --no-show-raw-insn "$@" 2>/dev/null |
    awk '/file format/ { on = !/limits\.c/ } on && /ret|%[yz]mm[0-9]|\{%k[0-7]\}/')
  check "$name holds wide registers" "$(echo "$code" | grep -E '%[yz]mm[0-9]|\{%k[0-7]\}' | head -n 3)"
  echo "$code" | grep -q ret && ok || bad "$name was not disassembled"
}
for object in "$peaks" "$@"; do
  if [ -d "$object" ]; then narrow "$object" "$object"/*.o; else narrow "$object" "$object"; fi
done

echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
