#!/bin/sh
# Installs the library into a fresh prefix, builds and runs a project that only knows find_package(shardgrad), and
# certifies its kernels on the simulator and trains with one; those for the CPU are timed. Also builds a program with pkg-config
# alone; what `shardgrad new` writes is tested by own_project.py.
#     outside_project.sh SOURCE_DIR BUILD_DIR
set -eu
source=$1
work=$(mktemp -d "${TMPDIR:-/tmp}/outside project.XXXXXX")
trap 'rm -rf "$work"' EXIT
cmake --install "$2" --prefix "$work/prefix" >"$work/install.log" || { cat "$work/install.log"; exit 1; }
cmake -S "$1/tests/repo/outside_project" -B "$work/build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_PREFIX_PATH="$work/prefix"
cmake --build "$work/build"
"$work/build/outside"

# One compiler line does for a program. eval, for the folder has a space, which pkg-config writes as a shell reads it.
flags=$(PKG_CONFIG_PATH="$(dirname "$(find "$work/prefix" -name shardgrad.pc)")" pkg-config --cflags --libs shardgrad)
eval "c++ '$source/tests/repo/outside_project/own_model/main.cpp' -o '$work/own_model' $flags"
(cd "$source/tests/repo/outside_project/own_model" && "$work/own_model" train config.json --set "runs=$work/runs" --set epochs=5) >"$work/own.txt" ||
  { cat "$work/own.txt"; exit 1; }
tail -n 1 "$work/own.txt" | grep '^done: test_r2=0.9'

certify_on_cpu() {
  "$work/prefix/bin/shardgrad" certify "$1" --library "$2" --device cpu >"$work/on_cpu.txt" || { cat "$work/on_cpu.txt"; exit 1; }
}
certify_on_cpu softsign "$work/build/libsoftsign_on_cpu.so"

# Where .cu files cannot run, a library that has one is made of the rest of it, says so, and is certified on the CPU.
cp -r "$work/prefix" "$work/cpu prefix"
find "$work/cpu prefix" -name shardgrad-config.cmake -exec sed -i 's/set(SHARDGRAD_HAS_\([A-Z]*\) TRUE)/set(SHARDGRAD_HAS_\1 FALSE)/' {} +
cmake -S "$1/tests/repo/outside_project" -B "$work/cpu build" -G Ninja -DCMAKE_BUILD_TYPE=Release \
  -DCMAKE_PREFIX_PATH="$work/cpu prefix" >"$work/configure.txt" 2>&1 || { cat "$work/configure.txt"; exit 1; }
grep -q 'mine: left out, .*swish.cu; for devices sim and cuda configure it' "$work/configure.txt" || { cat "$work/configure.txt"; exit 1; }
cmake --build "$work/cpu build" --target mine
certify_on_cpu swish "$work/cpu build/libmine.so"
grep -q 'bf16 \[2048, 4096\], medians of ' "$work/on_cpu.txt"
left_out=$(grep '^left out: ' "$work/on_cpu.txt")

[ -e "$work/build/libsoftsign.so" ] || exit 0 # built without the simulator
echo "$left_out" | grep 'sim (which has no kernel swish, swish_backward), cuda (which '
certify_on_cpu swish "$work/build/libmine.so"
grep '^left out: sim (which --device sim tries), cuda (which ' "$work/on_cpu.txt" || { cat "$work/on_cpu.txt"; exit 1; }
"$work/prefix/bin/shardgrad" certify softsign --library "$work/build/libsoftsign.so" --device sim >"$work/softsign.txt" ||
  { cat "$work/softsign.txt"; exit 1; }
certify() { "$work/prefix/bin/shardgrad" certify --library "$work/build/libmine.so" --device sim "$@"; }
certify swish >"$work/sim.txt" || { cat "$work/sim.txt"; exit 1; }
cat "$work/sim.txt"
grep -q 'sizes .*holds' "$work/sim.txt"
grep -q 'speed .*not measured: device sim is for tests' "$work/sim.txt"
certify sigmoid --use sigmoid=mine
# A training run takes it likewise.
python3 - "$work/data" <<'END'
import gzip, os, struct, sys
os.makedirs(sys.argv[1])
for stem, count in ("train", 64), ("t10k", 16):
    for kind, head, values in [
        ("images-idx3", struct.pack(">4i", 0x803, count, 28, 28), bytes(i * 7 % 256 for i in range(784 * count))),
        ("labels-idx1", struct.pack(">2i", 0x801, count), bytes(i % 10 for i in range(count))),
    ]:
        with gzip.open(f"{sys.argv[1]}/{stem}-{kind}-ubyte.gz", "wb") as file:
            file.write(head + values)
END
train_with() {
  (cd "$work" && "$work/prefix/bin/shardgrad" train "$source/configs/fashion_mnist.json" --set "data.dir=$work/data" \
    --set device=sim --set epochs=1 --set batch=32 --set 'model.layers=[784,4,10]' --set model.activation=sigmoid \
    --set schedule.warmup_steps=1 --set "libraries=[\"$work/build/libmine.so\"]" --set "kernels.sigmoid=$1")
}
train_with mine >"$work/train.txt" || { cat "$work/train.txt"; exit 1; }
tail -n 1 "$work/train.txt" | grep '^done: '
grep '^  kernels.*sigmoid.*mine' "$work/train.txt"
! train_with other >"$work/refused.txt" 2>&1
grep -q "nobody offers a kernel 'other'" "$work/refused.txt" || { cat "$work/refused.txt"; exit 1; }
# What is wrong is found, with its property and its line.
if certify sigmoid --use sigmoid=one_too_many >"$work/wrong.txt"; then
  echo "a kernel that writes past the end was certified:" && cat "$work/wrong.txt" && exit 1
fi
cat "$work/wrong.txt"
grep -q 'gradient .*FAILS: .*one_too_many_kernel.*swish.cu:' "$work/wrong.txt"
! certify sigmoid --use sigmoid=other 2>"$work/refused.txt"
grep -q "nobody offers a kernel 'other'; offered: 'mine', 'one_too_many'" "$work/refused.txt" || { cat "$work/refused.txt"; exit 1; }
