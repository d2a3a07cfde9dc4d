#!/bin/sh
# SPDX-License-Identifier: MIT
# Unpacks what headrow needs of an arm64 system into a folder, for building on
# another machine and for the emulator. The system's own packages and package
# lists are left alone; root is not needed.
#
#   sh scripts/arm64-sysroot.sh DEST [PACKAGE...]
#
# Writes DEST.ini too, the first of meson's two cross files:
#   meson setup build-arm64 --cross-file DEST.ini --cross-file cross/aarch64-linux-gnu.ini
#
# Status: 0 done, 2 usage, 3 this machine lacks a tool or the packages can't be had.
set -eu

packages="libc6-dev libedit-dev libgcc-s1 libgomp1 libhwloc-dev libjansson-dev libpcre2-dev libutf8proc-dev"

fail() {
  echo "headrow: arm64-sysroot: $*" >&2
  exit 3
}

check_system() {
  for tool in apt-get dpkg-deb; do
    command -v "$tool" >/dev/null || fail "needs $tool, as Debian and its like have it"
  done
  id=unknown
  [ ! -r /etc/os-release ] || id=$(. /etc/os-release && echo "$ID ${VERSION_ID:-}")
  [ "$id" = "debian 12" ] ||
    echo "headrow: arm64-sysroot: written for Debian 12, this is $id: trying its sources" >&2
}

# apt with a state of its own, in which arm64 is the only architecture and
# nothing is installed.
private_apt() {
  apt-get -q -o APT::Architecture=arm64 -o APT::Architectures::=arm64 \
    -o Dir::State="$state" -o Dir::State::status="$state/status" -o Dir::Cache="$state/cache" \
    -o Dir::Etc::Preferences=/dev/null -o Dir::Etc::PreferencesParts=/dev/null \
    -o Debug::NoLocking=1 -o APT::Sandbox::User=root -o APT::Install-Recommends=0 "$@"
}

fetch() {
  mkdir -p "$state/lists/partial" "$state/cache/archives/partial"
  : >"$state/status"
  private_apt update ||
    echo "headrow: arm64-sysroot: some package lists can't be read: going on" >&2
  # Package names hold no spaces.
  private_apt -y --download-only install $packages ||
    fail "can't fetch for arm64: $packages. Is there a network, and do the package sources carry" \
      "arm64? (Ubuntu's do not: ports.ubuntu.com has it)"
}

unpack() {
  rm -rf "$dest"
  mkdir -p "$dest"
  for deb in "$state"/cache/archives/*.deb; do dpkg-deb -x "$deb" "$dest"; done
  # Where packages keep all in /usr, the loader is still looked for in /lib.
  [ -e "$dest/lib" ] || ln -s usr/lib "$dest/lib"
  [ -e "$dest/lib/ld-linux-aarch64.so.1" ] || fail "no program loader in $dest after unpacking"
}

[ $# -ge 1 ] || { echo "usage: $0 DEST [PACKAGE...]" >&2; exit 2; }
mkdir -p "$(dirname "$1")"
dest=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
shift
[ $# = 0 ] || packages="$packages $*"
state=$dest.apt
if [ "$(cat "$dest/.packages" 2>/dev/null)" != "$packages" ]; then
  check_system
  fetch >&2
  unpack
  rm -rf "$state"
  echo "$packages" >"$dest/.packages"
fi
printf "[constants]\nsysroot = '%s'\n" "$dest" >"$dest.ini"
