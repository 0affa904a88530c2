#!/bin/sh
# Every C++ file stands as clang-format 14 writes it. Without that version the check is skipped (exit 77).
cd "$1" || exit 1
for tool in clang-format-14 clang-format; do
  "$tool" --version 2>/dev/null | grep -q 'version 14\.' && found=$tool && break
done
if [ -z "${found:-}" ]; then
  printf "format: Skipped\nclang-format 14 is not installed (Debian package clang-format-14)\n"
  exit 77
fi
folders=$(ls -d shardgrad.h core kernels dist autograd nn optim parallel fsdp certify picture train python docs tests tutorials bench 2>/dev/null)
find $folders \( -name '*.h' -o -name '*.cpp' -o -name '*.cu' \) -print0 | xargs -0 "$found" --dry-run -Werror 2>&1 | grep ': error:'
[ $? -eq 1 ] || { echo "mend with: $found -i FILE"; exit 1; }
