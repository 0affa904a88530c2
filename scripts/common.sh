# Shared by scripts/quickstart and scripts/test: finding and installing what is missing, quiet stages, one last line.
# Sourced by bash; the caller has set `me` (its name) and stands in the root of the tree.

start_seconds=$SECONDS
codename=$(. /etc/os-release 2>/dev/null && echo "${VERSION_CODENAME:-}") || true
if [ -t 1 ]; then terminal=yes; else terminal=no; fi

# say WORDS: one line for the reader.
say() { printf '%s\n' "$me: $*"; }
# finish CODE WORDS: the last line, and the end.
finish() { local code=$1; shift; say "$*"; exit "$code"; }

has_command() { command -v "$1" >/dev/null 2>&1; }
has_header() { has_command c++ && printf '#include <%s>\n' "$1" | c++ -x c++ -E - >/dev/null 2>&1; }
# Another version writes other code. Debian 13 has no version 14: there the check of the format is left out, not missing.
has_clang_format() {
  if clang-format-14 --version 2>/dev/null | grep -q 'version 14\.'; then return 0; fi
  [ "$codename" != bookworm ] || return 1
  say "clang-format 14 is not to be had here: the check of the format is skipped" >&2
}
has_venv() { python3 -c 'import venv, ensurepip' 2>/dev/null; }
has_python_headers() {
  has_command python3 && python3 -c 'import sysconfig, os; raise SystemExit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))'
}
has_pcre2() { has_command c++ && printf '#define PCRE2_CODE_UNIT_WIDTH 8\n#include <pcre2.h>\n' | c++ -x c++ -E - >/dev/null 2>&1; }
has_data() { [ -r /usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz ]; }

# What the build, the data set and the tests need, as PACKAGE:PROBE (the names are those of Debian 12 and 13).
build_needs="g++:has_command,c++ cmake:has_command,cmake ninja-build:has_command,ninja
  zlib1g-dev:has_header,zlib.h nlohmann-json3-dev:has_header,nlohmann/json.hpp libcli11-dev:has_header,CLI/CLI.hpp"
build_wants="openmpi-bin:has_command,mpirun libopenmpi-dev:has_command,mpicxx
  libdnnl-dev:has_header,oneapi/dnnl/dnnl.hpp libpcre2-dev:has_pcre2 ccache:has_command,ccache git:has_command,git"
data_needs="dataset-fashion-mnist:has_data"
test_needs="libgtest-dev:has_header,gtest/gtest.h libgmock-dev:has_header,gmock/gmock.h python3:has_command,python3 clang-format-14:has_clang_format
  valgrind:has_command,valgrind gdb:has_command,gdb pkgconf:has_command,pkg-config"
test_wants="python3-venv:has_venv python3-dev:has_python_headers"

text_needs="bible-kjv:has_command,bible"

# The corpus of configs/gpt_kjv.json and a tokenizer of its own, by the program that is built.
make_text() {
  mkdir -p build/text
  [ -r build/text/kjv.txt ] || scripts/corpus --no-install kjv build/text/kjv.txt || return 1
  [ -r build/text/kjv.json ] ||
    build/bin/shardgrad tokenizer train --input build/text/kjv.txt --vocab-size 3072 --output build/text/kjv.json
}

# missing_of NEEDS: the packages whose probe fails.
missing_of() {
  local need
  for need in $1; do
    # shellcheck disable=SC2046
    $(printf '%s' "${need#*:}" | tr ',' ' ') || printf '%s ' "${need%%:*}"
  done
}

# install_missing NEEDS WANTS INSTALL(yes|no): installs, or ends with code 3 and one line that names all that is
# missing. Wanted packages are only installed together with the rest; a build without them works.
install_missing() {
  local needed wanted as_root=""
  needed=$(missing_of "$1")
  wanted=$(missing_of "$2")
  [ -n "$needed$wanted" ] || return 0
  [ "$(id -u)" = 0 ] || as_root=sudo
  if [ "$3" = no ] || ! has_command apt-get || { [ -n "$as_root" ] && ! has_command sudo; }; then
    [ -z "$needed" ] && return 0
    finish 3 "missing: $needed${wanted:+(and, for full speed: $wanted)}; install with: ${as_root:+sudo }apt-get install -y --no-install-recommends $needed$wanted"
  fi
  say "installing Debian packages: $needed$wanted"
  local log; log=$(mktemp)
  if ! { $as_root apt-get update && $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y \
       --no-install-recommends $needed$wanted; } >"$log" 2>&1 </dev/null; then
    tail -n 15 "$log"
    finish 3 "apt-get failed (whole log: $log); install by hand and run $me again: $needed$wanted"
  fi
  rm -f "$log"
}

# stage TITLE LOG COMMAND…: runs a command with its output in LOG; prints one line, and the log's end on failure.
stage() {
  local title=$1 log=$2 begin=$SECONDS code=0
  shift 2
  mkdir -p "$(dirname "$log")"
  [ "$terminal" = no ] || printf '%s: %s …\r' "$me" "$title"
  "$@" >"$log" 2>&1 || code=$?
  if [ "$code" = 0 ]; then
    say "$title: done in $((SECONDS - begin)) s"
    return 0
  fi
  grep -E 'error|Error|FAILED|warning' "$log" | head -n 20 || true
  tail -n 20 "$log"
  finish 1 "$title FAILED; the whole log: $log; mend it and run $me again, it goes on from there"
}

# At most this many compilers at once: as many as a container may use, and as memory allows (about 1 GiB each).
jobs_here() {
  local cores memory quota
  cores=$(nproc)
  quota=$(awk '$1 != "max" { print int(($1 + $2 - 1) / $2) }' /sys/fs/cgroup/cpu.max 2>/dev/null || true)
  [ "${quota:-$cores}" -ge "$cores" ] || cores=$quota
  memory=$(awk '/MemAvailable/ { print int($2 / 1048576) }' /proc/meminfo)
  [ "${memory:-1}" -ge 1 ] || memory=1
  echo $((cores < memory ? cores : memory))
}
