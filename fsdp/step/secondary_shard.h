#pragma once
// What a rank keeps of a flat parameter after its unit's forward, with Config::reshard_after_forward = n: 1/n of the
// full parameters, so that each n neighbours of a row hold a whole copy between them, and what is gathered from then on
// moves among these n alone. Known as the secondary partition of ZeRO++ (hpZ), and as FSDP2's reshard_after_forward=n.
//
// P = 256 elements, a row of W = 4 ranks, n = 2:
//
//     rank                  0           1           2           3
//     shard, always         0 …  63    64 … 127   128 … 191   192 … 255      P/W
//     group of the row     {0, 1}      {0, 1}      {2, 3}      {2, 3}        ranks k·n … k·n + n-1
//     secondary shard       0 … 127   128 … 255    0 … 127   128 … 255       P/n: part r mod n of rank r
//
//     forward     all_gather in {0, 1, 2, 3}; a copy of P/n; the full parameters are released
//     backward    all_gather in {0, 1} and, at the same time, in {2, 3}
//     step        the shard is written, so the secondary shard is dropped
//
// - Bytes of param_dtype, category secondary_shard: P/n from the first forward whose backward follows until the
//   shard is written. None where the row has common memory (fsdp/step/flat_param.h): there all shards are in reach.
// - Sent: P(W-1)/W by the first gather, P(n-1)/n by each one after it, also by those of later micro-batches, of calls
//   without grad and of the user (fsdp::unshard): values are what they were until the step. FSDP2 gathers from all
//   ranks in each forward. A frozen parameter is never written: it is gathered from all ranks once. So a unit of both
//   kinds is gathered by two calls in forward, first from all ranks what was trained.
// - What stays whole until backward keeps nothing: the root, every unit with n = 1, and the unit that runs last, but
//   for the first step, when nobody knows yet that it does.
// - It stays on the device when shards are in host memory: nothing is uploaded for backward.
// - A gather moves bytes, so no bit depends on n. State, norms and SummonFullParams read shards, never this.

#include <shardgrad/fsdp/setup/flat_layout.h>

namespace shardgrad::fsdp {

class SecondaryShard {
 public:
  /// One that keeps nothing where the unit's options ask for no groups smaller than the row. Else a collective of the
  /// row, when there are no such groups yet.
  SecondaryShard(const FlatLayout& layout, const Config& config);
  /// The ranks that hold a whole copy between them; null: nothing is ever kept.
  dist::ProcessGroup* group() const { return group_; }
  /// Whether it holds what the shards are now.
  bool current() const { return part_.defined(); }
  /// Takes this rank's part of the full parameters, which compute has waited for; of common memory only a view.
  void take(const Tensor& full, bool common);
  /// The shards have other values.
  void drop() { part_ = Tensor(); }
  /// The group's stream waits until it is there; adds to `buffers` what is to be gathered into `full`.
  void ask_for(const Tensor& full, Gathers& buffers) const;

 private:
  const FlatLayout& layout_;
  dist::ProcessGroup* group_ = nullptr;
  Tensor part_;
  Event ready_;
};

}  // namespace shardgrad::fsdp
