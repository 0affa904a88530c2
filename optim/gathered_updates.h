#pragma once
// Runs of an optimizer as the ranges of one launch.

#include <array>
#include <atomic>
#include <memory>
#include <vector>

#include <shardgrad/autograd/launch.h>
#include <shardgrad/core/capture.h>
#include <shardgrad/kernels/ops.h>

namespace shardgrad::optim {

/// What updates have gathered: flat ranges of one device and dtype.
template <class Args> class GatheredUpdates {
 public:
  /// Forgets what an update that failed has left. To read how many have the ranges orders nothing by itself: what a
  /// launch has read that was one of them comes before the fence.
  void begin() {
    bool alone = ranges_.use_count() == 1;
    std::shared_ptr<Ranges> one_more = ranges_;
    std::atomic_thread_fence(std::memory_order_acquire);
    if (!alone) ranges_ = std::make_shared<Ranges>();  // a launch has the others still
    ranges_->clear();
    first_ = {}, scale_ = {};
  }
  /// `args(run.now())` are the run's. The kernel writes the run's copy and multiplies by its scale. In a step that is
  /// captured it reads what changes from step to step from the device's memory.
  template <class Run, class ArgsOf> void add(Run& run, const ArgsOf& args) {
    auto written = [](const Tensor& tensor) { return tensor.defined() ? tensor.out(0) : OutView{}; };
    Tensor copy = run.take_copy();
    scale_ = run.take_scale();
    first_ = run.values;
    ranges_->push_back({written(run.values),
                        {written(run.states[0]), written(run.states[1])},
                        written(copy),
                        run.grad.in(),
                        args(run.now()),
                        run.later ? numbers(args, run) : View{}});
  }
  void launch(const Slot<kernels::UpdateRanges<Args>, View>& slot) {
    if (!ranges_->empty()) shardgrad::launch(slot, first_, kernels::UpdateRanges<Args>(ranges_), scale_);
    first_ = {}, scale_ = {};
  }

 private:
  template <class Run, class ArgsOf> static View numbers(const ArgsOf& args, const Run& run) {
    std::array<double, Args::kNumbers> now;
    args(run.now()).write(now.data());
    auto write = [args, later = run.later](std::byte* to) { args(later()).write(reinterpret_cast<double*>(to)); };
    return Capture::current()->numbers(now.data(), Args::kNumbers, DType::f64, write).in();
  }
  using Ranges = std::vector<kernels::UpdateRange<Args>>;
  std::shared_ptr<Ranges> ranges_;
  Tensor first_, scale_;
};

}  // namespace shardgrad::optim
