#include <shardgrad/dist/transports/tree_sum.h>

#include <algorithm>

#include <shardgrad/kernels/ops.h>

namespace shardgrad::dist {

void tree_sum(void* out, std::span<const void* const> parts, int64_t n, DType dtype) {
  if (n == 0) return;
  Launch one_thread;  // the others compute
  OutView y{out, Shape{n}, dtype, 0, true};
  kernels::tree_sum.find(DeviceKind::cpu, dtype)(one_thread, y, {parts.data(), int(parts.size()), dtype});
}

int64_t slice_begin(int64_t n, int count, int index) {
  constexpr int64_t kStep = 16;
  int64_t steps = (n + kStep - 1) / kStep;
  return std::min(n, steps * index / count * kStep);
}

}  // namespace shardgrad::dist
