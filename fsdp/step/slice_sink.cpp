#include <shardgrad/fsdp/step/slice_sink.h>

namespace shardgrad::fsdp {

FlatParam& SliceSink::flat() const {
  SG_CHECK(flat_, "'", name_,
           "' belonged to a sharded model that is gone, or whose context or process group has ended; keep them as ",
           "long as its optimizer and its parameters are used");
  return *flat_;
}

Out SliceSink::open() {
  FlatParam& owner = flat();
  SG_CHECK(!owner.summoned().defined(), "'", name_, "' is to get a gradient in a scope of SummonFullParams; leave the ",
           "scope first");
  writes_();
  return owner.grads().open(slice_);
}

Tensor SliceSink::grad() const {
  FlatParam& owner = flat();
  const FlatGrad& grads = owner.grads();
  bool open = grads.is_open(slice_);
  if (!open && !grads.has(slice_)) return Tensor();
  grads.check_whole();
  const Slice& slice = owner.slices()[slice_];
  SG_CHECK(!owner.split(), "the gradient of '", name_, "' is sharded: each rank holds a part of it. Clip with ",
           "fsdp::clip_grad_norm(*sharded, max_norm), read the parts with FlatParam::grad()");
  SG_CHECK(!open && grads.passes_joined(), "the gradient of '", name_, "' is not reduced over the ranks: it is of ",
           "passes in a scope of fsdp::NoSync, or of a PairwiseSum before finish(); read it after what reduces it");
  if (!grads.grad().defined()) return Tensor();  // it is on its way
  return owner.grad().rows(slice.offset, slice.offset + slice.numel()).view(slice.shape);
}

void SliceSink::clear() {
  range_ = {};
  if (flat_) flat_->grads().zero(slice_);
}

std::span<const LocalRange> SliceSink::local_ranges() {
  range_ = flat().local_range(slice_);
  return {&range_, 1};
}

std::span<const LocalRange> SliceSink::owned_ranges() {
  range_ = flat().owned_range(slice_);
  return {&range_, 1};
}

const SliceSink* sink_of(const NamedParameter& parameter) {
  bool is_leaf = parameter.tensor.impl().leaf;
  return is_leaf ? dynamic_cast<const SliceSink*>(leaf_of(parameter.tensor).sink()) : nullptr;
}

}  // namespace shardgrad::fsdp
