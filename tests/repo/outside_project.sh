#!/bin/sh
# Installs the library into a fresh prefix and builds and runs a project that only knows find_package(shardgrad).
#     outside_project.sh SOURCE_DIR BUILD_DIR
set -eu
work=$(mktemp -d "${TMPDIR:-/tmp}/outside project.XXXXXX")
trap 'rm -rf "$work"' EXIT
cmake --install "$2" --prefix "$work/prefix" >"$work/install.log" || { cat "$work/install.log"; exit 1; }
cmake -S "$1/tests/repo/outside_project" -B "$work/build" -G Ninja -DCMAKE_PREFIX_PATH="$work/prefix"
cmake --build "$work/build"
"$work/build/outside"
