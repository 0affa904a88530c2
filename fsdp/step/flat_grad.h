#pragma once
// The gradient of a flat parameter, from what backward writes to what the optimizer reads. P elements, S parts:
//
//     written   P     param_dtype    what the running pass writes; without its own sum, passes without sync add up here
//     sum       P     shards' dtype  where passes without sync add up when param_dtype is narrower
//     sent      P     reduce_dtype   what is being reduced over the ranks: one of the above, or a conversion of it
//     grad      P/S   shards' dtype  the sum over ranks and reduced passes; in host memory with move_grads_to_cpu
//
// Passes that PairwiseSum (fsdp/fully_shard.h) numbers are not added one after the other, but as
// dist/transports/pass_sums.h tells: then there are several tensors like grad until they are joined.
//
// So nothing is ever added up in 16 bits but the contributions of one pass: with param_dtype bf16, 256 passes of a
// gradient 1 give 256 in grad or sum, where a bf16 sum of them and a 300 before would stay 300 (its step is 2).
//
//     empty ──open()──▶ open ──start_reduce()──▶ reducing ──finish_reduce()──▶ reduced
//       ▲ ▲              │ ▲                                                    │   │
//       │ └─zero of all──┘ └───────────── open(): a later pass adds ────────────┘   │
//       └────────────────────────────── zero of all ───────────────────────────────┘
//
// A pass without sync leaves it open. A failed pass drops what is open: it goes back to reduced or empty, and is torn
// until all is zeroed. Illegal transitions are asserted.

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <shardgrad/autograd/node.h>
#include <shardgrad/dist/transports/pass_sums.h>
#include <shardgrad/fsdp/offload/host_sums.h>

namespace shardgrad::fsdp {

/// A flag for each slice, and whether there is any without looking at all of them.
class Flags {
 public:
  explicit Flags(size_t size) : flags_(size) {}
  size_t size() const { return flags_.size(); }
  bool operator[](size_t i) const { return flags_[i]; }
  bool any() const { return count_ > 0; }
  void set(size_t i, bool on) {
    if (flags_[i] == on) return;
    flags_[i] = on;
    on ? ++count_ : --count_;
  }
  void clear() {
    if (std::exchange(count_, 0) > 0) flags_.assign(flags_.size(), false);
  }

 private:
  std::vector<bool> flags_;
  size_t count_ = 0;
};

enum class GradState : uint8_t { empty, open, reducing, reduced };
const char* name_of(GradState state);

class FlatGrad {
 public:
  FlatGrad(const FlatLayout& layout, const Config& config);
  FlatGrad(const FlatGrad&) = delete;

  GradState state() const { return state_; }
  /// The reduced gradient of the shard; undefined when there is none.
  const Tensor& grad() const { return grad_; }
  /// Whether slice i got a gradient in the backward passes since it was zeroed.
  bool has(size_t i) const { return has_[i]; }
  /// The destination of slice i's gradient: its part of a buffer that appears with the first write.
  Out open(size_t i);
  /// Whether there are gradients that were not reduced; and of slice i.
  bool is_open() const { return state_ == GradState::open; }
  bool is_open(size_t i) const { return written_.of[i] || sum_.of[i]; }
  /// Ends a pass without sync.
  void hold();
  /// Starts the reduction of all that is open over the ranks; `pass`: that many were before, in a sum by neighbours.
  void start_reduce(std::optional<int64_t> pass);
  /// Makes compute wait for the reduction and adds it to an earlier gradient, in host memory if it lives there.
  void finish_reduce();
  /// Joins what a sum by neighbours has kept apart to the gradient.
  void join_passes();
  bool passes_joined() const { return sums_.empty(); }
  /// Forgets the gradient of slice i; the buffers go with the last one.
  void zero(size_t i);
  /// Before the optimizer: brings the reduced gradient to the host or the device. Throws Error(input) for a gradient
  /// that was not reduced.
  void move(bool to_host);
  /// Returns when no copy of the gradient is on its way to host memory.
  void wait() const { host_.wait(); }
  /// Whether finish_reduce() gives back memory that the running reduction holds.
  bool frees_when_reduced() const { return state_ == GradState::reducing && frees_; }
  /// Throws Error(input) after a failed backward, until every gradient was zeroed.
  void check_whole() const;
  /// Gradients are refused until every one was zeroed, and told `why`, the first time. Waits for nothing.
  void tear(const char* why);
  static constexpr const char* kPassFailed = "a backward pass failed halfway";
  /// A backward pass has failed: the same, and drops what was not reduced.
  void abandon();

 private:
  // A buffer of all elements, and the slices that have a gradient in it: none while it is not there.
  struct Full {
    Tensor full;
    Flags of;
    Tensor take() {
      of.clear();
      return std::exchange(full, Tensor());
    }
  };
  void check_captured() const;  // in fsdp/captured.cpp
  void transition(GradState to);
  void forget_open();
  std::string sources() const;
  void zero_unset(const Full& open) const;
  void note_sources();
  void zero_given_up();
  Tensor take_open();
  void add(Tensor& sum, const Tensor& more);

  const FlatLayout& layout_;
  bool keeps_full_, to_host_;
  Full written_, sum_;
  Tensor sent_, grad_;
  Tensor arriving_;              // the reduction, in reduce_dtype
  std::optional<int64_t> pass_;  // of it
  dist::PassSums sums_;
  Flags has_;
  dist::Work scatter_, reduce_;
  GradState state_ = GradState::empty;
  bool frees_ = false;
  const char* torn_ = nullptr;  // why
  HostSums host_;
};

}  // namespace shardgrad::fsdp
