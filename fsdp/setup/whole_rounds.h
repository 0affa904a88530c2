#pragma once
// How whole tensors are computed with whose elements lie on the ranks of a row, for optimizers such as Muon: in rounds
// of one tensor for each rank, over all units. Three ranks and the matrices a to d, of which b and c are the dearest:
//
//     round   rank 0   rank 1   rank 2        every rank sends rank k its elements of k's tensor, each computes its own
//       0       b        c        a           tensor, and sends every rank that one's elements of the result
//       1       d        -        -
//
// Rounds are of tensors of about one cost, so that no rank waits long for another; who computes what is a function of
// shapes and layouts alone. A round is two all_to_all of `slot` elements for each pair of ranks, the most that one
// holds of another's tensor. As each rank has one tensor, a slot is no more than a shard of one unit: beside the shards
// a rank has the elements that it sends and those that arrive, each at most one unit's, and then its own tensor with
// what its computation needs (category whole_tensor). Each element is computed from the same values as on one rank, and
// is only copied: no bit depends on how tensors are cut.
//
// Rows that are copies of each other compute alike, and under ddp every rank computes everything.

#include <span>
#include <vector>

#include <shardgrad/autograd/spread.h>
#include <shardgrad/dist/group/process_group.h>

namespace shardgrad::fsdp {

/// Tensors that are computed at the same time.
struct WholeRound {
  std::vector<size_t> tensors;  ///< the k-th is rank k's
  int64_t slot = 0;             ///< elements that one rank sends another at most, and so in each direction
};
/// Every tensor once; empty ones are left out. All tensors of a round have one dtype and device.
std::vector<WholeRound> plan_rounds(std::span<const WholeTensor> tensors, int ranks);

class WholeRounds final : public WholeTensors {
 public:
  explicit WholeRounds(dist::ProcessGroup& ranks) : ranks_(ranks) {}
  void compute(std::span<const WholeTensor> tensors, WholeWork& work) override;

 private:
  using Tensors = std::vector<const WholeTensor*>;  // of a round, the k-th being rank k's
  void compute_round(const Tensors& tensors, int64_t slot, WholeWork& work);
  Tensor exchange(const Tensor& sent);
  Tensor computed(const WholeTensor& mine, Tensor arrived, WholeWork& work);
  Tensor buffer(int64_t numel, const Spread& like) const;
  Tensor slot_of(const Tensor& buffer, int rank, int64_t count) const;
  dist::ProcessGroup& ranks_;
};

}  // namespace shardgrad::fsdp
