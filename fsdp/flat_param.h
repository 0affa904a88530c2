#pragma once
// A flat parameter: parameters of one unit with the same dtype and trainability, laid end to end.
//
// Every slice starts at a multiple of 32 elements, and every shard is a multiple of 32, so that vector kernels and the
// gradient-norm tree never straddle two ranks. Gaps and padding are 0 and stay 0. With weight (5, 7), bias (5), W = 2:
//
//     element   0        35   64    69          128
//               | weight |gap | bias | padding    |         P = roundup(roundup(35,32) + roundup(5,32), 32·2) = 128
//     rank      |------ 0 ----|------- 1 ---------|         shard = P / 2 = 64
//
// Buffers and what they are for:
//
//     shard       P/S   always there; what the optimizer updates
//     full        P     there while the unit is unsharded; the parameters are views of it
//     full_grad   P     from the first gradient written to the reduction; gradients are written straight into it
//     grad        P/S   the reduced gradient; what the optimizer reads
//
// S is the number of ranks a parameter is split over: W for zero2 and zero3; 1 for ddp, where shard and full are the
// same memory.

#include <memory>
#include <span>
#include <string>
#include <vector>

#include <shardgrad/autograd/node.h>
#include <shardgrad/core/tensor.h>
#include <shardgrad/dist/process_group.h>
#include <shardgrad/nn/module.h>

namespace shardgrad::fsdp {

inline constexpr int64_t kSliceAlignment = 32;  ///< elements

/// Where one parameter lies in its flat parameter.
struct Slice {
  std::string name;  ///< full name, e.g. "layers.0.weight"
  Shape shape;
  int64_t offset = 0;  ///< elements
  int64_t numel() const { return shape.numel(); }
};

/// Offsets of consecutive slices, and the padded length for `ranks` shards.
struct Layout {
  std::vector<Slice> slices;
  int64_t padded = 0;
};
Layout make_layout(std::span<const Slice> slices, int ranks);

class FlatParam {
 public:
  /// Takes over `parameters` (one dtype, all trainable or none): fills this rank's shard, then re-homes each parameter
  /// to the full buffer. `split` is whether the parameters are sharded over the group or replicated.
  FlatParam(std::string unit, std::span<nn::Parameter* const> parameters, dist::ProcessGroup& group, bool split);

  std::span<const Slice> slices() const { return layout_.slices; }
  int64_t numel() const;
  int64_t padded() const { return layout_.padded; }
  DType dtype() const { return shard_.dtype(); }
  bool trainable() const { return trainable_; }
  bool split() const { return split_; }
  const Tensor& shard() const { return shard_; }
  /// First element of the flat parameter that this rank's shard holds.
  int64_t shard_begin() const { return split_ ? group_.rank() * shard_.numel() : 0; }
  const Tensor& full() const { return full_; }
  /// The reduced gradient of the shard; undefined when there is none.
  const Tensor& grad() const { return grad_; }
  size_t full_bytes() const { return size_t(padded()) * size_of(dtype()); }
  /// Whether slice i got a gradient in the backward passes since zero_grad.
  bool has_grad(size_t i) const { return has_grad_[i]; }

  /// Sends the gradient of the parameter in slice i here; `ready` runs when a backward pass has written all of it.
  void attach(const nn::Parameter& parameter, size_t i, std::function<void()> ready);

  // --- the unit's life --------------------------------------------------------------------------------------------
  bool resident() const { return full_.storage()->resident(); }
  /// Materializes the full buffer and starts gathering into it.
  void start_gather(std::string_view phase);
  /// Makes compute wait for the gather.
  void finish_gather();
  /// Releases the full buffer after the compute queued so far.
  void release_full();
  /// The destination of slice i's gradient: its part of full_grad, which appears with the first write.
  Out open_grad(size_t i);
  bool grad_open() const { return full_grad_.defined(); }
  /// Zeroes what was not written, and starts the reduction of full_grad over the ranks.
  void start_reduce();
  /// Makes compute wait for the reduction and adds it to an earlier gradient.
  void finish_reduce();
  /// Forgets the gradient of slice i; the buffer goes with the last one.
  void zero_grad(size_t i);
  /// What this rank's optimizer updates of slice i, with the padding after it.
  LocalRange local_range(size_t i) const;
  /// Drops an unreduced gradient after a failed backward.
  void abandon_grad();
  /// The optimizer (or a write-back) has changed the shard: saved parameters and gathered copies are stale.
  void shard_written();
  bool stale() const { return stale_; }
  /// Copies this rank's part of the full buffer to the shard.
  void write_back();

 private:
  void fill(std::span<nn::Parameter* const> parameters);
  void rehome(std::span<nn::Parameter* const> parameters);

  std::string unit_;
  dist::ProcessGroup& group_;
  Tag tag(Category category) const;
  Tensor buffer(int64_t numel, Category category, bool released = false) const;
  Tensor buffer_on(Stream& stream, int64_t numel, Category category) const;
  void zero(int64_t begin, int64_t end);
  void zero_gaps();
  bool split_, trainable_;
  uint16_t unit_id_;
  DType dtype_;
  Device device_;
  Layout layout_;
  Tensor shard_, full_, full_grad_, grad_;
  Tensor sent_;      // the full gradient that is being reduced
  Tensor incoming_;  // the reduction that will be grad_, or be added to it
  std::vector<bool> opened_, has_grad_;
  dist::Work gather_, reduce_;
  bool gathering_ = false, reducing_ = false, stale_ = false;
  Event shard_ready_;  // the last write to the shard
};

}  // namespace shardgrad::fsdp
