#!/bin/sh
# no_shared_code.sh NM OBJECT...: fails when an object defines a weak symbol, which the linker may keep for the whole
# program, or a function that other objects can see.
nm=$1
shift
test $# -ge 2 || { echo "no objects given"; exit 1; }
found=$("$nm" --demangle --defined-only "$@" | grep -E ' [WVuT] ')
test -z "$found" || { echo "$found"; exit 1; }
