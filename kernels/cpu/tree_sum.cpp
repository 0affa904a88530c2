// The sum over ranks: a pairwise tree over the parts, neighbours 2i and 2i+1, an odd last one carried up.

#include <bit>

#include <shardgrad/kernels/cpu/element.h>
#include <shardgrad/kernels/cpu/loops.h>
#include <shardgrad/kernels/cpu/parallel.h>
#include <shardgrad/kernels/cpu/register.h>

namespace shardgrad::cpu {
namespace {

using kernels::TreeSumArgs;

constexpr size_t kStackBytes = size_t(32) << 10;  // of partial sums: some threads have 64 KiB of stack in all
constexpr int kLevels = 16;

struct FloatSum {
  DType part, sum;  // dtypes of a part and of the accumulator
  size_t size() const { return size_of(sum); }
  const void* load(void* acc, const void* from, int64_t n) const {
    if (part == sum) return from;
    loops().elementwise.cast[int(sum)][int(part)](acc, from, n, false);
    return acc;
  }
  void add(void* to, const void* a, const void* b, int64_t n) const {
    loops().elementwise.binary[int(Binary::add)][int(sum)](to, a, b, Grid{.cols = n}, {});
  }
  /// Whether the last addition may write to y.
  bool direct(OutView y) const { return y.dtype == sum && y.beta == 0; }
  void store(OutView y, int64_t at, const void* acc, int64_t n) const {
    auto cast = loops().elementwise.cast[int(y.dtype)][int(sum)];
    cast(y.as<char>() + at * size_of(y.dtype), acc, n, y.beta != 0);
  }
};

template <class T> struct IntegerSum {
  static size_t size() { return sizeof(uint64_t); }
  const void* load(void* acc, const void* from, int64_t n) const {
    for (int64_t i = 0; i < n; ++i) static_cast<uint64_t*>(acc)[i] = uint64_t(static_cast<const T*>(from)[i]);
    return acc;
  }
  void add(void* to, const void* a, const void* b, int64_t n) const {
    for (int64_t i = 0; i < n; ++i)
      static_cast<uint64_t*>(to)[i] = static_cast<const uint64_t*>(a)[i] + static_cast<const uint64_t*>(b)[i];
  }
  bool direct(OutView) const { return false; }
  void store(OutView y, int64_t at, const void* acc, int64_t n) const {
    for (int64_t i = 0; i < n; ++i) put_sum(y.as<T>()[at + i], static_cast<const uint64_t*>(acc)[i], y.beta != 0);
  }
};

// Adds the parts into a stack of partial sums as a binary counter does: value[k] is the sum of 2^level[k] parts. A part
// is read where it lies, and the last addition writes to y, where the dtypes allow it.
template <class Sum>
void sum_block(OutView y, const TreeSumArgs& args, int64_t at, int64_t n, int64_t block, const Sum& sum) {
  alignas(64) char memory[kStackBytes];
  auto stack = [&](int number) -> void* { return memory + size_t(number * block) * sum.size(); };
  const void* value[kLevels];
  int level[kLevels], top = -1, left = args.count - 1;  // additions to do
  void* result = sum.direct(y) ? static_cast<void*>(y.as<char>() + at * size_of(y.dtype)) : stack(0);
  auto merge = [&] {
    --top;
    void* to = --left == 0 ? result : stack(top);
    sum.add(to, value[top], value[top + 1], n);
    value[top] = to;
  };
  for (int part = 0; part < args.count; ++part) {
    ++top;
    value[top] = sum.load(stack(top), static_cast<const char*>(args.parts[part]) + at * size_of(args.dtype), n);
    for (level[top] = 0; top > 0 && level[top - 1] == level[top]; ++level[top]) merge();
  }
  while (top > 0) merge();
  if (args.count == 1 || result == stack(0)) sum.store(y, at, value[0], n);
}

template <class Sum> void run(const Launch& launch, OutView y, const TreeSumArgs& args, const Sum& sum) {
  int levels = std::bit_width(unsigned(args.count));
  auto block = int64_t(kStackBytes / (size_t(levels) * sum.size()) / 64 * 64);
  parallel_elements(launch.threads, y.numel(), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i += block) sum_block(y, args, i, std::min(block, end - i), block, sum);
  });
}

void tree_sum(const Launch& launch, OutView y, TreeSumArgs args) {
  SG_ASSERT(args.count >= 1 && args.count < 1 << kLevels, "tree_sum of ", args.count, " parts");
  if (is_floating(y.dtype) && is_floating(args.dtype)) {
    bool wide = y.dtype == DType::f64 || args.dtype == DType::f64;
    return run(launch, y, args, FloatSum{args.dtype, wide ? DType::f64 : DType::f32});
  }
  SG_ASSERT(y.dtype == args.dtype, "tree_sum of ", args.dtype, " into ", y.dtype);
  dispatch(y.dtype, [&]<class T>() {
    if constexpr (std::is_integral_v<T>) run(launch, y, args, IntegerSum<T>());
  });
}

const Each registered(kernels::tree_sum, kAll, tree_sum);

}  // namespace
}  // namespace shardgrad::cpu
