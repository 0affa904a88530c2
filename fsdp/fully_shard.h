#pragma once
// The way in: fully_shard(model, group, config) shards a model in place. Names, types, state-dict keys and the code
// that calls the model stay as they are; build the optimizer afterwards.
//
//     auto model = nn::make<Mlp>();
//     auto sharded = fsdp::fully_shard(model.module(), group, {.strategy = fsdp::Strategy::zero3});
//     optim::AdamW optimizer(model->named_parameters(), {.lr = 1e-3});
//
// Who owns whom: a model's modules, the handle that fully_shard returns, and graphs that backward has not gone through
// yet each hold the Sharded; it holds units and shards. So a loss may outlive its model. A parameter or an optimizer
// alone does not keep it: where they outlive it, their use is refused by name. The group and its context are the
// program's; when one of them ends first, everything that is left is refused likewise.

#include <map>
#include <memory>
#include <string>
#include <vector>

#include <shardgrad/fsdp/setup/config.h>
#include <shardgrad/fsdp/step/schedule.h>

namespace shardgrad::fsdp {

/// Where one parameter lives: which flat parameter, and which elements of it.
struct Location {
  Unit* unit = nullptr;
  FlatParam* flat = nullptr;
  size_t slice = 0;
};

struct NormPlan;  // fsdp/clip.cpp

/// A sharded model's units and schedule.
class Sharded {
 public:
  Sharded(nn::Module& root, dist::ProcessGroup& group, Config config);
  dist::ProcessGroup& group() const { return mesh_.world(); }
  const Mesh& mesh() const { return mesh_; }
  const Config& config() const { return schedule_.config(); }
  std::span<const std::unique_ptr<Unit>> units() const { return schedule_.units(); }
  /// The flat parameters of all units.
  std::span<FlatParam* const> flats() const { return flats_; }
  /// Parameter name below the sharded module → location.
  const std::map<std::string, Location>& index() const { return index_; }
  /// Throws Error(input) naming `call` after the context has ended.
  void check_alive(const char* call) const;
  /// Before `call`: compute waits for what a pass that failed began to gather. Throws Error(input) naming `call`
  /// inside backward, in a scope of SummonFullParams, and after the context has ended.
  void settle(const char* call);

 private:
  friend class NoSync;
  friend class SummonFullParams;
  friend double grad_norm(Sharded&, double);
  friend std::shared_ptr<Sharded> fully_shard(nn::Module&, dist::ProcessGroup&, Config);
  void end() noexcept;
  Mesh mesh_;
  Schedule schedule_;
  std::vector<std::vector<nn::Module*>> modules_;  // of the units, in their order; for fully_shard
  std::vector<FlatParam*> flats_;
  std::map<std::string, Location> index_;
  std::shared_ptr<const NormPlan> norm_plan_;  // made by the first norm
  std::shared_ptr<void> at_end_[2];            // of the context and the group
};

/// Shards `module` over `group` in place; a parameter that is registered later is refused. Throws Error(input), having
/// changed nothing, when the module is sharded already, when a parameter is not floating, has a gradient or cannot be
/// gathered in param_dtype, when something is on another device than the context's, and when ranks disagree about
/// structure, options, seed or values.
std::shared_ptr<Sharded> fully_shard(nn::Module& module, dist::ProcessGroup& group, Config config = {});

/// Backward passes in this scope add up gradients on each rank and send nothing; the first one after it reduces the
/// sum. Costs the full gradients' memory until then, and saves their traffic. Without it every pass is reduced and
/// added to the reduced sum. Each is the same bits under every strategy, but not the same as the other.
///
///     { fsdp::NoSync local(*sharded); loss(0).backward(); loss(1).backward(); }
///     loss(2).backward();
///     optimizer.step();
class NoSync {
 public:
  explicit NoSync(Sharded& sharded);
  ~NoSync();
  NoSync(const NoSync&) = delete;

 private:
  Sharded& sharded_;
  bool outer_;
};

/// In this scope the parameters are copies of the whole ones, in the shards' dtype: readable, and to be edited. With
/// `write_back` edits are kept at the end: each rank takes its own part; edits that differ between ranks are refused,
/// and nothing is kept. Otherwise, or after an exception, edits are dropped. A collective. Forward, backward, a step,
/// state and another such scope are refused inside.
class SummonFullParams {
 public:
  explicit SummonFullParams(Sharded& sharded, bool write_back = false);
  ~SummonFullParams() noexcept(false);
  SummonFullParams(const SummonFullParams&) = delete;

 private:
  void dismiss();
  Sharded& sharded_;
  bool write_back_;
  int exceptions_;
};

/// All parameters with the names and shapes of the sharded module's state_dict, as copies on the cpu, gathered one unit
/// at a time. A collective: every rank calls it; ranks other than 0 get an empty map with `rank0_only`. Throws
/// Error(input) when copies of the model are not the same any more (check_replicas). Buffers: mean_buffers in
/// fsdp/state/replicas.h.
std::map<std::string, Tensor> full_state_dict(Sharded& sharded, bool rank0_only = true);
/// Each rank takes its part of whole parameters. Throws Error(input) listing missing, unknown and misshapen names
/// before anything is changed.
void load_full_state_dict(Sharded& sharded, const std::map<std::string, Tensor>& state);

}  // namespace shardgrad::fsdp
