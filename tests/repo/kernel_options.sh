#!/bin/sh
# The .cu files of a project outside the tree get the options that the tree's own have.
#     kernel_options.sh SOURCE_DIR CMAKE
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$2" -S "$1/tests/repo/kernel_options" -B "$work"
