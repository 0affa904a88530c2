#pragma once
// A flat parameter: parameters of one unit with the same dtype and trainability, laid end to end
// (fsdp/setup/flat_layout.h). Buffers and what they are for, P elements in S parts:
//
//     shard       P/S   always there; what the optimizer updates; in host memory with move_params_to_cpu
//     full        P     there while the unit is unsharded; the parameters are views of it
//     secondary   P/n   from forward to the step, if it is asked for (fsdp/step/secondary_shard.h)
//     gradients         fsdp/step/flat_grad.h
//
// S is the number of ranks a parameter is split over (fsdp/setup/mesh.h); 1 for ddp. Where full parameters are
// permanent, the shard is a part of their memory, and `full` cannot be read while it is out of date. Where the ranks
// have common memory (dist/transports/common_memory.h), their shards lie side by side in it, `full` is a window on all
// of them, and a gather only waits.
//
// With param_dtype (bf16, say) `full` is a conversion: each rank converts its shard into its part of `full`, and the
// parts are gathered in 16 bits. The module's parameters are of that dtype then; the shard stays f32 and is memory of
// its own. Where the converted shard has memory that stays, the optimizer writes it in the pass that writes the shard,
// and the gather converts nothing: in a permanent `full`, and beside a shard in host memory, so that 16 bits travel
// to the device too.
//
//     stale ──start_gather()──▶ gathering ──finish_gather()──▶ open ──release_full()──▶ stale
//                                                               │ ▲                      (or closed: permanent,
//       stale ◀──the shard was written, unless full is the shard┘ └─start_gather()─ closed      and a conversion)
//
// While open the parameters can be read. Stale: `full` is not there, or not what the shards are now. A gather that
// cannot be sent is given up: stale again. Illegal transitions are asserted.

#include <memory>
#include <span>
#include <string>
#include <vector>

#include <shardgrad/fsdp/offload/host_copy.h>
#include <shardgrad/fsdp/setup/flat_layout.h>
#include <shardgrad/fsdp/step/flat_grad.h>
#include <shardgrad/fsdp/step/secondary_shard.h>

namespace shardgrad::fsdp {

class SliceSink;

enum class FullState : uint8_t { stale, gathering, open, closed };
const char* name_of(FullState state);

class FlatParam {
 public:
  /// Takes over `parameters` (one dtype, all trainable or none): fills this rank's shard, then re-homes each parameter
  /// to the full buffer.
  FlatParam(std::string unit, std::string part, std::span<nn::Parameter* const> parameters, Mesh& mesh,
            const Config& config);
  ~FlatParam();
  FlatParam(const FlatParam&) = delete;

  std::span<const Slice> slices() const { return layout_.slices; }
  int64_t numel() const { return layout_.numel(); }
  int64_t padded() const { return layout_.padded; }
  /// Of the shards, and of the optimizer's step.
  DType dtype() const { return layout_.dtype; }
  /// Of the module's parameters.
  DType param_dtype() const { return layout_.param_dtype; }
  /// What the slices hold.
  std::span<const Tensor> parameters() const { return parameters_; }
  const Mesh& mesh() const { return layout_.mesh; }
  /// Whether this rank holds less than the whole.
  bool split() const { return layout_.split(); }
  /// Whether the full parameters never leave memory.
  bool permanent() const { return permanent_; }
  const Tensor& shard() const { return shard_; }
  /// First element of the flat parameter that this rank's shard holds.
  int64_t shard_begin() const { return layout_.shard_begin(); }
  const Tensor& full() const { return full_; }
  /// What this rank's shard holds of parameter i.
  Owned owned(size_t i) const { return layout_.owned(i); }
  size_t full_bytes() const { return size_t(padded()) * size_of(param_dtype()); }
  /// Whether the ranks' shards lie side by side in common memory, so that gathering brings nothing into memory.
  bool common() const { return common_; }
  /// The reduced gradient of the shard; undefined when there is none.
  const Tensor& grad() const { return grads_.grad(); }
  FlatGrad& grads() { return grads_; }
  const FlatGrad& grads() const { return grads_; }
  /// Whether slice i got a gradient in the backward passes since zero_grad.
  bool has_grad(size_t i) const { return grads_.has(i); }

  /// Sends the parameters' gradients here; `writes` runs before a backward pass writes one, `ready` when one has been
  /// written.
  void attach(const std::function<void()>& writes, const std::function<void()>& ready);
  /// Streams and groups go: waits for copies, and gives the parameters back. Their use is refused from now on.
  void let_go() noexcept;

  // --- the unit's life --------------------------------------------------------------------------------------------
  FullState state() const { return state_; }
  bool needs_gather() const { return state_ == FullState::stale || state_ == FullState::closed; }
  /// The ranks that the next gather is among; null: those that share a copy.
  dist::ProcessGroup* near() const { return secondary_.current() ? secondary_.group() : nullptr; }
  /// Brings the full buffer into memory, where it is not, and adds to `buffers` what is to be gathered into it.
  void start_gather(Gathers& buffers);
  /// `work` brings what was asked for.
  void gather_by(const dist::Work& work);
  /// Nothing was sent that start_gather() asked for: gives back the memory that it took.
  void give_up_gather();
  /// Makes compute wait for the gather.
  void finish_gather();
  /// Forward has used the full buffer, and backward will: this rank takes its part, if the options say so.
  void take_secondary() {
    if (state_ == FullState::open) secondary_.take(full_, common_);
  }
  /// Releases the full buffer after the compute queued so far. A permanent one stays in memory, but a conversion
  /// cannot be read any more. Comes after finish_gather().
  void release_full();
  /// Before the optimizer: brings the reduced gradient to where the shard is. Throws Error(input) for a gradient that
  /// was not reduced.
  void bring_grad();
  /// The host may write the shard and read the gradient: no copy of them is on its way.
  void wait_to_update() const;
  /// What this rank's optimizer updates of slice i, with the gap after it; brings the gradient there.
  LocalRange local_range(size_t i);
  /// The same without the gradient, whatever state that is in.
  LocalRange owned_range(size_t i) const;
  /// Converts the shard anew where what stays of it is out of date: a captured step that is replayed does not.
  void refresh_converted() {
    if (converted_.defined()) source(converted_.dtype());
  }
  /// How slice i lies on the ranks that share it.
  Spread spread(size_t i) const { return layout_.spread(i); }
  /// The shard may be written by the host: nothing queued reads it.
  void wait_for_shard() const { shard_host_.wait(); }
  /// The optimizer is about to change the shard: no gather reads it any more, nor any rank in common memory. Throws
  /// Error(input) in a scope of SummonFullParams, and as check_not_leased does.
  void before_write();
  /// Throws Error(input) where the shard cannot be written because a holder of raw pointers would go on seeing old
  /// values; `copy_is_written`: the converted shard is to be written along with it.
  void check_not_leased(bool copy_is_written = false) const;
  /// The shard has other values: what backward saved of the parameters, and gathered copies, are out of date. No gather
  /// is on its way and nobody leases them: before_write(), or Sharded::settle and check_not_leased(), came first.
  void shard_written();
  /// Those of slice i alone, and the converted shard likewise where local_range gave it: backward may still use what it
  /// saved of the others.
  void slice_written(size_t i);

  // --- whole parameters in the shards' dtype, for people (fsdp/state/whole.cpp) -------------------------------------
  /// The full buffer if it is that and up to date; else gathered into memory of its own.
  Tensor whole(std::string_view phase);
  /// Copies of the whole parameters take the parameters' place until dismiss(); the buffers above are not touched.
  void summon();
  const Tensor& summoned() const { return summoned_; }
  /// Takes this rank's part of what was summoned; every rank has the same.
  void write_back();
  void dismiss();

 private:
  void rehome(const Tensor& full);
  bool is_the_shard(bool copy_is_written) const;
  void outdate(bool copy_is_written);
  bool converts() const { return layout_.converts(); }
  const Tensor& source(DType dtype);
  Stream& first_writer(DType dtype) const;
  Stream& next_writer() const { return near() ? near()->stream() : first_writer(param_dtype()); }
  void transition(FullState to);
  void ask_for(const Tensor& full, Gathers& buffers);
  Tensor gather_whole(std::string_view phase);

  FlatLayout layout_;
  FlatGrad grads_;
  SecondaryShard secondary_;
  bool trainable_, permanent_, common_;
  std::vector<Tensor> parameters_;
  std::vector<std::shared_ptr<SliceSink>> sinks_;  // one per parameter
  Tensor shard_, full_;
  Tensor converted_;  // the shard in param_dtype, where that has memory which stays
  Tensor summoned_;
  dist::Work gather_;
  FullState state_ = FullState::stale;
  bool converted_is_stale_ = true;
  Event shard_ready_;    // the last write to the shard
  HostCopy shard_host_;  // of a shard in host memory
};

}  // namespace shardgrad::fsdp
