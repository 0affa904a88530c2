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
//     shard       P/S   always there; what the optimizer updates; in host memory with move_params_to_cpu
//     full        P     there while the unit is unsharded; the parameters are views of it
//     full_grad   P     from the first gradient written to the reduction; gradients are written straight into it
//     grad        P/S   the reduced gradient; what the optimizer reads; in host memory with move_grads_to_cpu
//
// S is the number of ranks a parameter is split over (fsdp/mesh.h); 1 for ddp. Where full parameters are kept, the
// shard is a part of their memory, and `full` cannot be read while it is out of date. Where full gradients are kept,
// grad is a part of full_grad. Passes without sync add up in full_grad, reduced passes in grad.

#include <memory>
#include <span>
#include <string>
#include <vector>

#include <shardgrad/autograd/node.h>
#include <shardgrad/core/tensor.h>
#include <shardgrad/fsdp/config.h>
#include <shardgrad/fsdp/mesh.h>
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
  /// to the full buffer.
  FlatParam(std::string unit, std::span<nn::Parameter* const> parameters, Mesh& mesh, const Config& config);
  ~FlatParam();

  std::span<const Slice> slices() const { return layout_.slices; }
  int64_t numel() const;
  int64_t padded() const { return layout_.padded; }
  DType dtype() const { return shard_.dtype(); }
  bool trainable() const { return trainable_; }
  /// Whether this rank holds less than the whole.
  bool split() const { return mesh_.parts() > 1; }
  /// Whether the full parameters stay in memory.
  bool kept() const { return keeps_params_; }
  const Tensor& shard() const { return shard_; }
  /// First element of the flat parameter that this rank's shard holds.
  int64_t shard_begin() const { return mesh_.part() * shard_.numel(); }
  const Tensor& full() const { return full_; }
  /// The elements of this rank's shard that are slice i's, with the padding after it.
  std::pair<int64_t, int64_t> elements_of(size_t i) const;
  /// The reduced gradient of the shard; undefined when there is none.
  const Tensor& grad() const { return grad_; }
  size_t full_bytes() const { return size_t(padded()) * size_of(dtype()); }
  /// Whether the ranks' shards lie side by side in common memory, so that gathering brings nothing into memory.
  bool common() const { return common_; }
  /// Whether slice i got a gradient in the backward passes since zero_grad.
  bool has_grad(size_t i) const { return has_grad_[i]; }

  /// Sends the gradient of the parameter in slice i here; `ready` runs when a backward pass has written all of it.
  void attach(const nn::Parameter& parameter, size_t i, std::function<void()> ready);

  // --- the unit's life --------------------------------------------------------------------------------------------
  bool resident() const { return full_.storage()->resident(); }
  /// Whether the full parameters are not there, or not what the shards are now.
  bool needs_gather() const { return stale_ || !resident(); }
  /// Materializes the full buffer and starts gathering into it.
  void start_gather(std::string_view phase);
  /// Makes compute wait for the gather.
  void finish_gather();
  /// Releases the full buffer after the compute queued so far, unless it is kept.
  void release_full();
  /// The destination of slice i's gradient: its part of full_grad, which appears with the first write.
  Out open_grad(size_t i);
  bool grad_open() const { return full_grad_.defined(); }
  /// Zeroes what was not written, and starts the reduction of full_grad over the ranks.
  void start_reduce();
  /// Makes compute wait for the reduction and adds it to an earlier gradient, in host memory if it lives there.
  void finish_reduce();
  /// Forgets the gradient of slice i; the buffer goes with the last one.
  void zero_grad(size_t i);
  /// Before the optimizer: brings the reduced gradient to where the shard is, both free for the host to use.
  /// Throws Error(input) for a gradient that was not reduced.
  void settle_grad();
  /// What this rank's optimizer updates of slice i, with the padding after it; settles the gradient.
  LocalRange local_range(size_t i);
  /// After a failed backward: drops what was not reduced, and refuses a step until every gradient was zeroed.
  void abandon_grad();
  /// The shard may be written by the host: nothing queued reads it.
  void wait_for_shard() const;
  /// The optimizer is about to change the shard: no rank reads it in common memory any more.
  void before_write() { mesh_.before_write(); }
  /// The optimizer (or a load) has changed the shard: saved parameters and gathered copies are stale.
  void shard_written();
  /// Copies of the whole parameters take the parameters' place until dismiss(); the buffers above are not touched.
  void summon();
  bool summoned() const { return whole_.defined(); }
  const Tensor& whole() const { return whole_; }
  /// Takes this rank's part of what was summoned; every rank has the same.
  void write_back();
  void dismiss();

 private:
  void fill(std::span<nn::Parameter* const> parameters);
  void rehome(const Tensor& full);
  Tag tag(Category category) const { return {category, unit_id_}; }
  Tensor buffer(int64_t numel, Category category, bool released = false) const;
  Tensor buffer_on(Stream& stream, int64_t numel, Category category) const;
  Tensor host_buffer(int64_t numel) const;
  Tensor part_of(const Tensor& full) const { return full.rows(shard_begin(), shard_begin() + shard_.numel()); }
  Stream& compute() const;
  std::shared_ptr<dist::CommonMemory> common_memory(int64_t shard) const;
  void forget(size_t i);
  std::string sources() const;
  void zero_gaps();
  void add_to_host_grad();

  std::string unit_;
  Mesh& mesh_;
  bool keeps_grads_, trainable_, keeps_params_ = false, grads_to_cpu_ = false, common_ = false;
  uint16_t unit_id_;
  DType dtype_;
  Device device_;
  Layout layout_;
  std::vector<Tensor> parameters_;
  Tensor shard_, full_, full_grad_, grad_;
  Tensor whole_;     // what was summoned
  Tensor sent_;      // the full gradient that is being reduced
  Tensor incoming_;  // the reduction that will be grad_, or be added to it
  std::vector<bool> opened_, has_grad_;
  dist::Work gather_, scatter_, reduce_;
  bool gathering_ = false, reducing_ = false, stale_ = false, torn_ = false;
  Event shard_ready_;  // the last write to the shard
  Event shard_sent_;   // the last copy of a shard in host memory to the device
  Event grad_moved_;   // the last copy of a gradient to host memory
};

}  // namespace shardgrad::fsdp
