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
  dist::ProcessGroup& group() const { return mesh_->world(); }
  /// All ranks that hold something of the model, copies included: those of the mesh over an axis of which it was
  /// sharded; group() where there is none.
  dist::ProcessGroup& holders() const { return mesh_->holders(); }
  /// Whether ranks beside group() hold something of it.
  bool on_mesh() const { return mesh_->has_other_holders(); }
  const Mesh& mesh() const { return *mesh_; }
  const Config& config() const { return schedule_.config(); }
  /// Those of the whole model, where this is a part that was sharded before it.
  std::span<const std::unique_ptr<Unit>> units() const { return schedule().units(); }
  /// The flat parameters of all units.
  std::span<FlatParam* const> flats() const { return flats_; }
  /// Parameter name below the sharded module → location.
  const std::map<std::string, Location>& index() const { return index_; }
  /// Parameters that are not sharded (Config::leave_out), by their names below the sharded module.
  std::span<const NamedParameter> left_out() const { return left_out_; }
  /// The buffers that the module had when it was sharded, by their names below it, with their values; and those of them
  /// that its states have (nn::Parameter::persistent).
  std::vector<NamedParameter> buffers() const { return buffers_with(false); }
  std::vector<NamedParameter> saved_buffers() const { return buffers_with(true); }
  /// The other names of tied parameters and shared buffers, each with the one that states have (nn::Module::aliases).
  const std::map<std::string, std::string>& aliases() const { return aliases_; }
  /// Of the model that this one is a part of, where that was sharded after it.
  Schedule& schedule() { return above_ ? above_->schedule() : schedule_; }
  const Schedule& schedule() const { return above_ ? above_->schedule() : schedule_; }
  /// Throws Error(input) naming `call` after the context has ended.
  void check_alive(const char* call) const;
  /// Before `call`: compute waits for what a pass that failed began to gather. Throws Error(input) naming `call`
  /// inside backward, in a scope of SummonFullParams, and after the context has ended.
  void settle(const char* call);

 private:
  friend class NoSync;
  friend class PairwiseSum;
  friend class SummonFullParams;
  friend struct NormPlan;
  friend std::shared_ptr<Sharded> fully_shard(nn::Module&, dist::ProcessGroup&, Config);
  friend std::shared_ptr<Sharded> fully_shard(nn::Module&, const parallel::Mesh&, std::string_view, Config);
  friend std::vector<std::shared_ptr<Sharded>> sharded_inside(nn::Module&, dist::ProcessGroup&, const Config&);
  struct Users {
    std::vector<nn::Module*> modules;
    std::optional<DType> inputs;  // what theirs are converted to
  };
  std::vector<NamedParameter> buffers_with(bool saved) const;
  UnitEvents unit_events();
  void add_to_index(std::span<const std::unique_ptr<Unit>> units);
  void take_over(const std::shared_ptr<Sharded>& inner);
  void end() noexcept;
  nn::Module* root_;  // as long as it lives
  std::shared_ptr<Mesh> mesh_;
  std::vector<std::shared_ptr<Mesh>> inner_meshes_;  // of parts that were sharded before
  std::shared_ptr<Sharded> above_;                   // the model that has taken this one's units over
  std::vector<NamedParameter> left_out_;
  std::vector<nn::Module::Entry<nn::Parameter>> buffers_;
  std::map<std::string, std::string> aliases_;
  Schedule schedule_;
  std::vector<Users> modules_;  // of the units, in their order; for fully_shard
  std::vector<FlatParam*> flats_;
  std::map<std::string, Location> index_;
  std::shared_ptr<NormPlan> norm_plan_;  // made by the first norm
  std::shared_ptr<void> at_end_[2];      // of the context and the group
};

/// Shards `module` over `group` in place; a parameter that is registered later is refused. Parts of it may have been
/// sharded before, with options of their own and before their first call: what it returns is then the handle of all
/// parameters, those parts' units among them. Throws Error(input), having changed nothing, when the module is sharded
/// already, when a part does not fit (another group, split over another number of ranks, a parameter that is used
/// outside of it, too), when a parameter is not floating, has a gradient or cannot be gathered in param_dtype, when
/// something is on another device than the context's, and when ranks disagree about structure, options, seed or values.
/// One thread at a time computes with the model, forward or backward; a second one meanwhile is refused by name.
std::shared_ptr<Sharded> fully_shard(nn::Module& module, dist::ProcessGroup& group, Config config = {});
/// The same over one axis of a mesh, along whose other axes ranks hold parts of larger parameters (Part, as in tensor
/// parallelism) or copies: the model's state is joined over all ranks of the mesh, which call everything below that is
/// a collective together. Throws Error(input) on every rank, naming parameters, ranges and ranks, where parts do not
/// make whole parameters, where copies begin with other values (with Config::sync_module_states those of the ranks
/// that are first along the axis count, which the others get), and where seeds differ without it.
///
///     parallel::Mesh mesh(world, {{"data", 2}, {"model", 2}});
///     auto model = nn::make<Split>(mesh.group("model"));       // param("weight", {3, 7}, init, {0, 3 * rank, 6})
///     auto sharded = fsdp::fully_shard(model.module(), mesh, "data");
std::shared_ptr<Sharded> fully_shard(nn::Module& module, const parallel::Mesh& mesh, std::string_view axis,
                                     Config config = {});
/// For fully_shard: the models inside `root` that were sharded before, which it takes over; and that there is a new
/// one.
std::vector<std::shared_ptr<Sharded>> sharded_inside(nn::Module& root, dist::ProcessGroup& group, const Config& config);
void remember(const std::shared_ptr<Sharded>& sharded);

/// Backward passes in this scope add up gradients on each rank and send nothing; the first one after it reduces the
/// sum; until then Tensor::grad refuses to show it. Costs the full gradients' memory until then, and saves their
/// traffic. Without it every pass is reduced and added to the reduced sum. Each is the same bits under every strategy,
/// but not the same as the other.
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

/// While it lives, each backward pass is reduced, and its gradients are added to those of the passes before it not one
/// after the other but by neighbours: the tree in which ranks are summed, grown downwards. So where each pass is of one
/// grain of the batch, grain p · ranks + rank, the sum has the same bits on 1, 2, 4, … ranks (docs/grains.md). It costs
/// the memory of up to log2(passes) further gradient shards.
///
///     fsdp::PairwiseSum sum(*sharded);
///     for (int64_t grain = world.rank(); grain < grains; grain += world.size()) {
///       sum.begin_pass();
///       loss_of(grain).backward();
///     }
///     sum.finish();
///     optimizer.step();
///
/// Before finish() Tensor::grad refuses to show them; without it, as where an error ends it, they are refused until all
/// are zeroed.
class PairwiseSum {
 public:
  /// Throws Error(input) in a backward pass, beside another one of the model, and as NoSync does.
  explicit PairwiseSum(Sharded& sharded);
  ~PairwiseSum();
  PairwiseSum(const PairwiseSum&) = delete;
  /// Throws Error(input) after finish().
  void begin_pass();
  /// All gradients are whole from here on.
  void finish();

 private:
  Sharded& sharded_;
  int64_t passes_ = 0;
  bool finished_ = false;
};

/// A gather that was asked for.
class Unsharding {
 public:
  /// Compute waits for it: the unit's parameters can be read from now on.
  void wait() { unit_->wait(); }

 private:
  friend Unsharding unshard(Sharded&, const std::string&);
  Unsharding(Unit& unit, std::shared_ptr<void> owner) : unit_(&unit), owner_(std::move(owner)) {}
  Unit* unit_;
  std::shared_ptr<void> owner_;
};

/// Begins to gather the parameters of a unit before its call, beside other work. They are given back after that call as
/// ever, when the root's call ends without it, or by reshard. Nothing is sent for a unit that is gathered already.
/// Every rank calls it, in the same order. Throws Error(input) listing the units for a name that is none.
///
///     fsdp::Unsharding gather = fsdp::unshard(*sharded, "head");
///     Tensor features = body(x);
///     gather.wait();
Unsharding unshard(Sharded& sharded, const std::string& unit);
/// Gives the unit's gathered parameters back, unless its module is being called or its strategy keeps them.
void reshard(Sharded& sharded, const std::string& unit);

/// In this scope the parameters are copies of the whole ones, in the shards' dtype: readable, and to be edited. With
/// `write_back` edits are kept at the end: each rank takes its own part; edits that differ between ranks are refused,
/// and nothing is kept, nor while somebody leases what would change. Otherwise, or after an exception, edits are
/// dropped. A collective. Forward, backward, a step, a swap of averages (optim::EMA), state and another such scope are
/// refused inside.
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

/// All parameters and buffers with the names and shapes of the sharded module's state_dict, as copies on the cpu,
/// parameters gathered one unit at a time, buffers as mean_buffers (fsdp/state/replicas.h) has them. A collective:
/// every rank calls it; ranks other than 0 get an empty map with `rank0_only`. Throws Error(input) when copies of the
/// model are not the same any more (check_replicas). Buffers that Config::buffer_dtype has converted are of that dtype.
/// On a mesh parameters are joined, each piece sent by one rank that holds it: no rank has memory for more than a
/// parameter beside its shards and the map, and rank 0 is the mesh's.
std::map<std::string, Tensor> full_state_dict(Sharded& sharded, bool rank0_only = true);
/// Each rank takes its part of whole parameters, and all buffers; a state without any of them, as they were once saved,
/// leaves them as they are. A tied parameter may be there under its other names, too, with the same values. Throws
/// Error(input) listing missing, unknown and misshapen names, and where somebody leases what would change, before
/// anything is changed.
void load_full_state_dict(Sharded& sharded, const std::map<std::string, Tensor>& state);

}  // namespace shardgrad::fsdp
