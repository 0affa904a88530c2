#pragma once
// Runs of an optimizer as the ranges of one launch.

#include <memory>
#include <vector>

#include <shardgrad/autograd/launch.h>
#include <shardgrad/kernels/ops.h>

namespace shardgrad::optim {

/// What updates have gathered: flat ranges of one device and dtype.
template <class Args> class GatheredUpdates {
 public:
  /// Forgets what an update that failed has left. To read how many have the ranges orders nothing; to become one more
  /// of them comes after all that a launch has read that was one.
  void begin() {
    bool alone = ranges_.use_count() == 1;
    std::shared_ptr<Ranges> after_launches = ranges_;
    if (!alone) ranges_ = std::make_shared<Ranges>();  // a launch has the others still
    ranges_->clear();
    first_ = {}, scale_ = {};
  }
  /// The kernel writes the run's copy and multiplies by its scale.
  template <class Run> void add(Run& run, const Args& args) {
    auto written = [](const Tensor& tensor) { return tensor.defined() ? tensor.out(0) : OutView{}; };
    Tensor copy = run.take_copy();
    scale_ = run.take_scale();
    first_ = run.values;
    ranges_->push_back(
        {written(run.values), {written(run.states[0]), written(run.states[1])}, written(copy), run.grad.in(), args});
  }
  void launch(const Slot<kernels::UpdateRanges<Args>, View>& slot) {
    if (!ranges_->empty()) shardgrad::launch(slot, first_, kernels::UpdateRanges<Args>(ranges_), scale_);
    first_ = {}, scale_ = {};
  }

 private:
  using Ranges = std::vector<kernels::UpdateRange<Args>>;
  std::shared_ptr<Ranges> ranges_;
  Tensor first_, scale_;
};

}  // namespace shardgrad::optim
