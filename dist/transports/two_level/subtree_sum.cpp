#include <shardgrad/dist/transports/two_level/subtree_sum.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include <shardgrad/dist/transports/tree_sum.h>
#include <shardgrad/kernels/ops.h>

namespace shardgrad::dist::two_level {
namespace {

/// Elements that are joined at a time, so that sums on the way stay in the cache.
constexpr int64_t kBlock = 1024;

void sum_into(void* out, DType out_dtype, std::span<const void* const> parts, int64_t n, DType dtype) {
  if (n == 0) return;
  Launch one_thread;  // the others compute
  OutView y{out, Shape{n}, out_dtype, 0, true};
  kernels::tree_sum.find(DeviceKind::cpu, out_dtype)(one_thread, y, {parts.data(), int(parts.size()), dtype});
}

const void* at(const void* data, int64_t elements, DType dtype) {
  return static_cast<const std::byte*>(data) + size_t(elements) * size_of(dtype);
}

/// Joins blocks as a binary counter does: what has the same level is neighbours in the tree.
class Joiner {
 public:
  Joiner(size_t parts, DType dtype) : sum_(sum_dtype({0, 2, 1}, dtype)), memory_(parts * kBlock * size_of(sum_)) {}

  void push(const Summed& summed, int64_t begin, int64_t n, DType dtype) {
    DType given = sum_dtype(summed.part, dtype);
    const void* from = at(summed.sum, begin, given);
    void* place = slot(stack_.size());
    if (given != sum_) sum_into(place, sum_, {&from, 1}, n, given);
    stack_.push_back({given == sum_ ? from : place, summed.part.level});
    while (stack_.size() > 1 && stack_[stack_.size() - 2].level == stack_.back().level) merge(n);
  }
  void finish(void* out, DType dtype, int64_t n) {
    while (stack_.size() > 1) merge(n);
    const void* sum = stack_.back().sum;
    if (dtype == sum_)
      std::memcpy(out, sum, size_t(n) * size_of(dtype));
    else
      sum_into(out, dtype, {&sum, 1}, n, sum_);
    stack_.clear();
  }

 private:
  struct Value {
    const void* sum;
    int level;
  };
  void* slot(size_t number) { return memory_.data() + number * kBlock * size_of(sum_); }
  void merge(int64_t n) {
    Value right = stack_.back();
    stack_.pop_back();
    Value& left = stack_.back();
    const void* both[] = {left.sum, right.sum};
    void* to = slot(stack_.size() - 1);
    sum_into(to, sum_, both, n, sum_);
    left = {to, left.level + 1};
  }

  DType sum_;
  std::vector<std::byte> memory_;
  std::vector<Value> stack_;
};

}  // namespace

void sum_subtree(void* out, const Subtree& part, std::span<const void* const> values, int64_t n, DType dtype) {
  sum_into(out, sum_dtype(part, dtype), values, n, dtype);
}

void join_subtrees(void* out, std::span<const Summed> parts, int64_t n, DType dtype) {
  // Where all are one level of the tree, what is above them is the same tree over fewer values.
  DType travelled = sum_dtype(parts[0].part, dtype);
  bool one_level = std::ranges::all_of(parts, [&](const Summed& summed) {
    return summed.part.level == parts[0].part.level && sum_dtype(summed.part, dtype) == travelled;
  });
  if (one_level) {
    std::vector<const void*> sums;
    for (const Summed& summed : parts) sums.push_back(summed.sum);
    return sum_into(out, dtype, sums, n, travelled);
  }
  Joiner joiner(parts.size(), dtype);
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    int64_t count = std::min(kBlock, n - begin);
    for (const Summed& summed : parts) joiner.push(summed, begin, count, dtype);
    joiner.finish(static_cast<std::byte*>(out) + size_t(begin) * size_of(dtype), dtype, count);
  }
}

}  // namespace shardgrad::dist::two_level
