#pragma once
// A sharded parameter's end of its unit: gradients land in its slice of the unit's full gradient, and the optimizer
// updates its elements of the shard. It may outlive the unit, and refuses what it is asked for then.

#include <shardgrad/fsdp/step/flat_param.h>

namespace shardgrad::fsdp {

class SliceSink final : public GradSink {
 public:
  SliceSink(FlatParam& flat, size_t slice, std::function<void()> writes, std::function<void()> ready)
      : flat_(&flat),
        slice_(slice),
        writes_(std::move(writes)),
        ready_(std::move(ready)),
        name_(flat.slices()[slice].name) {}
  /// Throws Error(input) when it is gone.
  FlatParam& flat() const;
  size_t slice() const { return slice_; }
  /// The unit goes.
  void let_go() { flat_ = nullptr; }

  Out open() override;
  void ready() override {
    if (flat_) ready_();
  }
  Tensor grad() const override;
  void clear() override;
  DType dtype() const override { return flat().dtype(); }
  std::span<const LocalRange> local_ranges() override;
  std::span<const LocalRange> owned_ranges() override;
  Spread spread() override { return flat().spread(slice_); }
  void wait() override { flat().wait_to_update(); }
  void before_write() override { flat().before_write(); }
  void written() override { flat().slice_written(slice_); }

 private:
  FlatParam* flat_;
  size_t slice_;
  std::function<void()> writes_, ready_;
  std::string name_;
  LocalRange range_;
};

/// Null where the parameter is not sharded.
const SliceSink* sink_of(const NamedParameter& parameter);

}  // namespace shardgrad::fsdp
