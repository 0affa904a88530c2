#pragma once
// Sums of gradients that wait in host memory for the optimizer. They are added up on the device: what was there comes
// back, and the total goes to the host again. So the host waits for nothing but the memory of a sum that another one
// takes in.

#include <shardgrad/fsdp/offload/host_copy.h>

namespace shardgrad::fsdp {

class HostSums {
 public:
  explicit HostSums(const FlatLayout& layout) : layout_(layout), copy_(layout) {}

  /// Adds `more`, wherever it is, to `sum` in host memory; where there is none, it becomes that. Its memory may go.
  void add(Tensor& sum, const Tensor& more);
  /// The total, on the device and in the layout's dtype, becomes the sum in host memory once it is `ready`. Its memory
  /// is given back.
  void download(Tensor& sum, const Tensor& total, const Event& ready);
  /// A copy on the device of a sum that another one takes in: the host waits until it is made.
  Tensor taken_back(const Tensor& sum);
  /// Returns when no sum is on its way.
  void wait() const { copy_.wait(); }

 private:
  const FlatLayout& layout_;
  HostCopy copy_;
};

}  // namespace shardgrad::fsdp
