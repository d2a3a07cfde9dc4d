#!/bin/sh
# SPDX-License-Identifier: MIT
# Installs what is missing, builds headrow and lets the model that is built in
# tell a story. Arguments go to `headrow run`: sh scripts/demo.sh -p "The cat"
set -eu
cd "$(dirname "$0")/.."
sh scripts/setup.sh
[ -f build/build.ninja ] || meson setup build --buildtype=release -Dtests=false >&2
ninja -C build >&2
[ $# -gt 0 ] || set -- -p "Once upon a time" -n 200
exec build/src/cli/headrow run builtin "$@"
