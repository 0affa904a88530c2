#!/bin/sh
# Runs a command line of nvcc and keeps what ptxas reports of each kernel (option -Xptxas=-v) in OBJECT.ptxas, for
# tests/repo/cuda_resources.py. Everything else that the compiler says passes through.
object= before=
for word; do
  [ "$before" = -o ] && object=$word
  before=$word
done
[ -n "$object" ] || exec "$@"
trap 'rm -f "$object.said"' EXIT
code=0
"$@" 2>"$object.said" || code=$?
report='^ptxas info|^ *[0-9]+ bytes stack frame'
grep -E "$report" "$object.said" >"$object.ptxas"
grep -Ev "$report" "$object.said" >&2
exit $code
