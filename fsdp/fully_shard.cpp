#include <shardgrad/fsdp/fully_shard.h>

#include <algorithm>
#include <map>
#include <set>

#include <shardgrad/autograd/node.h>
#include <shardgrad/fsdp/precision.h>
#include <shardgrad/fsdp/setup/held_parts.h>
#include <shardgrad/fsdp/setup/options.h>
#include <shardgrad/fsdp/setup/unit_plan.h>
#include <shardgrad/fsdp/start.h>

namespace shardgrad::fsdp {
namespace {

// All that can be said before anything is changed.
void check_parameter(const nn::Parameter& parameter, std::optional<DType> param_dtype) {
  const Tensor& tensor = parameter.tensor;
  DType dtype = tensor.dtype(), gathered = param_dtype.value_or(dtype);
  SG_CHECK(is_floating(dtype), "fully_shard: parameter '", parameter.full_name, "' has dtype ", dtype,
           "; only floating parameters are sharded");
  SG_CHECK(gathered == dtype || size_of(gathered) < size_of(dtype), "fully_shard: param_dtype is ", gathered, ", but '",
           parameter.full_name, "' is ", dtype, " and would lose values without saving anything; leave it unset, ",
           "or build the model in f32");
  SG_CHECK(!tensor.impl().leaf || !leaf_of(tensor).grad().defined(), "fully_shard: '", parameter.full_name,
           "' has a gradient, which would be lost; call zero_grad() before fully_shard");
}

// Streams, groups and their memory are those of the context's device.
void check_device(const NamedParameter& tensor) {
  Device device = tensor.tensor.device(), ours = context().default_device();
  SG_CHECK(device == ours || !has_values(device), "fully_shard: '", tensor.name, "' is on ", device,
           ", but the ranks compute and communicate on ", ours, "; move the model there with to(), or make the ",
           "context on ", device);
}

void add_options(std::ostream& structure, const Config& options) {
  structure << name_of(options.strategy);
  visit_options(options, [&](const char* name, const auto& value, const char*) {
    structure << ' ' << name << ' ';
    if constexpr (!kIsOptional<std::remove_cvref_t<decltype(value)>>)
      structure << value;
    else if (value)
      structure << *value;
  });
}

// All that ranks must agree about: they would hang or mix up weights later.
std::string structure_of(nn::Module& root, const Config& options, std::span<const PlannedUnit> plan) {
  std::ostringstream structure;
  add_options(structure, options);
  std::map<const nn::Parameter*, std::string> unit_of;
  for (const PlannedUnit& planned : plan) {
    structure << '\n' << planned.name(root) << ' ';
    if (planned.own) add_options(structure, *planned.own);
    for (const nn::Parameter* parameter : planned.parameters) unit_of[parameter] = planned.name(root);
  }
  for (const auto& [name, parameter] : root.parameter_entries())
    structure << '\n'
              << unit_of[parameter.get()] << ' ' << name << ' ' << parameter->tensor.shape()
              << parameter->tensor.dtype() << parameter->tensor.requires_grad() << ' ' << parameter->part.dim << ' '
              << parameter->part.begin << ' ' << parameter->part.extent;
  for (const NamedParameter& buffer : root.named_buffers())
    structure << '\n' << buffer.name << ' ' << buffer.tensor.shape() << buffer.tensor.dtype();
  return std::move(structure).str();
}

// A unit's options: those that it was wrapped with, as far as the model's strategy leaves a choice.
Config options_of(const PlannedUnit& planned, const Config& whole) {
  Config options = whole;
  if (!planned.own) return options;
  options.param_dtype = planned.own->param_dtype;
  options.reduce_dtype = planned.own->reduce_dtype;
  if (whole.keeps_params()) return options;
  options.move_params_to_cpu = planned.own->move_params_to_cpu;
  options.move_grads_to_cpu = planned.own->move_grads_to_cpu;
  options.reshard_after_forward = planned.own->reshard_after_forward;
  bool resharded = planned.own->reshards_after_forward();
  if (resharded != whole.reshards_after_forward()) options.strategy = resharded ? Strategy::zero3 : Strategy::zero2;
  return options;
}

// What inputs of a unit's modules are converted to.
std::optional<DType> input_dtype(const Unit& unit, const Config& own, const Config& whole) {
  if (own.param_dtype || !whole.param_dtype || unit.flat_params().empty()) return own.param_dtype;
  return unit.flat_params()[0]->param_dtype();
}

}  // namespace

Sharded::Sharded(nn::Module& root, dist::ProcessGroup& group, Config config)
    : root_(&root), mesh_(std::make_shared<Mesh>(group, config.parts(group.size()))), schedule_(config) {
  root.complete_names();
  std::vector<PlannedUnit> plan = plan_units(root, config);
  for (const PlannedUnit& planned : plan) {
    Config own = options_of(planned, config);
    if (planned.own && !config.keeps_params())
      check_reshard(concat("fully_shard: unit '", planned.name(root), "'"), *planned.own, mesh_->parts());
    for (const nn::Parameter* parameter : planned.parameters) check_parameter(*parameter, own.param_dtype);
  }
  for (const NamedParameter& parameter : root.named_parameters()) check_device(parameter);
  for (const NamedParameter& buffer : root.named_buffers()) check_device(buffer);
  check_same_start(root, structure_of(root, config, plan), group, config.sync_module_states);
  std::vector<std::unique_ptr<Unit>> units;
  for (PlannedUnit& planned : plan) {
    Config own = options_of(planned, config);
    bool is_root = planned.modules[0] == &root;
    units.push_back(
        std::make_unique<Unit>(planned.name(root), planned.parameters, *mesh_, own, is_root, unit_events()));
    modules_.push_back({planned.modules, input_dtype(*units.back(), own, config)});
  }
  add_to_index(units);
  schedule_.add_units(std::move(units));
  for (auto& [name, parameter] : left_out_entries(root, config)) {
    parameter->materialize();
    left_out_.push_back({name, parameter->tensor, parameter->part});
  }
  buffers_ = root.buffer_entries();
  aliases_ = root.aliases();
  if (config.sync_module_states) broadcast_rest(root, left_out_, group);
  convert_buffers(root, config);
  at_end_[0] = context().at_end([this] { end(); });
  at_end_[1] = group.at_end([this] { end(); });
}

UnitEvents Sharded::unit_events() {
  return {[this] { schedule_.before_grads(); },
          [this](Unit& unit, FlatParam& flat, bool last) { schedule_.after_grads(unit, flat, last); },
          [this](Unit& unit) { schedule_.bring_back(unit); }};
}

void Sharded::add_to_index(std::span<const std::unique_ptr<Unit>> units) {
  std::map<const Tensor::Impl*, std::string> names;
  for (const NamedParameter& parameter : root_->named_parameters()) names[&parameter.tensor.impl()] = parameter.name;
  for (const auto& unit : units)
    for (const auto& flat : unit->flat_params()) {
      flats_.push_back(flat.get());
      for (size_t i = 0; i < flat->slices().size(); ++i)
        index_[names.at(&flat->parameters()[i].impl())] = {unit.get(), flat.get(), i};
    }
}

void Sharded::end() noexcept {
  for (FlatParam* flat : flats_) flat->let_go();
  mesh_->end();
  for (const auto& mesh : inner_meshes_) mesh->end();
  schedule_.end();
}

std::vector<NamedParameter> Sharded::buffers_with(bool saved) const {
  std::vector<NamedParameter> buffers;
  for (const auto& [name, buffer] : buffers_) {
    if (saved && !buffer->persistent) continue;
    buffer->materialize();
    buffers.push_back({name, buffer->tensor});
  }
  return buffers;
}

void Sharded::check_alive(const char* call) const {
  SG_CHECK(!schedule().ended(), call, ": the context or the process group that the model was sharded in has ended");
}

void Sharded::settle(const char* call) {
  check_alive(call);
  SG_CHECK(!in_backward(), call, ": called inside backward; call it between steps");
  SG_CHECK(!schedule().summoned(), call, ": called in a scope of SummonFullParams; leave the scope first");
  for (const auto& unit : units()) unit->wait();
}

// Each hook holds the Sharded: a submodule's handle may outlive the root.
static void add_hooks(const std::shared_ptr<Sharded>& sharded, Unit& unit, nn::Module& user) {
  user.add_forward_pre_hook(
      [sharded, &unit](nn::Module&, std::span<Tensor>) { sharded->schedule().before_forward(unit); });
  user.add_forward_failed_hook([sharded, &unit](nn::Module&) { sharded->schedule().forward_failed(&unit); });
  user.add_forward_hook([sharded, &unit](nn::Module&, std::span<const Tensor> outputs) {
    sharded->schedule().after_forward(unit, outputs);
  });
}

std::shared_ptr<Sharded> fully_shard(nn::Module& module, dist::ProcessGroup& group, Config config) {
  check(config, group.size());
  std::vector<std::shared_ptr<Sharded>> inside = sharded_inside(module, group, config);
  auto sharded = std::make_shared<Sharded>(module, group, std::move(config));
  for (const auto& inner : inside) sharded->take_over(inner);
  sharded->schedule_.set_owner(sharded);
  for (const auto& inner : inside) inner->above_ = sharded;
  module.add_forward_pre_hook([sharded](nn::Module&, std::span<Tensor>) {
    if (!sharded->above_) sharded->schedule_.begin_forward();
  });
  if (sharded->config().param_dtype) convert_inputs(module, *sharded->config().param_dtype);
  auto modules = std::exchange(sharded->modules_, {});
  for (size_t i = 0; i < modules.size(); ++i)
    for (nn::Module* user : modules[i].modules) {
      add_hooks(sharded, *sharded->schedule_.units()[i], *user);
      if (user != &module && modules[i].inputs) convert_inputs(*user, *modules[i].inputs);
    }
  module.add_forward_hook([sharded](nn::Module&, std::span<const Tensor>) {
    if (!sharded->above_) sharded->schedule_.end_forward();
  });
  module.add_forward_failed_hook([sharded](nn::Module&) {
    if (!sharded->above_) sharded->schedule_.forward_failed(nullptr);
  });
  if (sharded->config().output_dtype) convert_outputs(module, *sharded->config().output_dtype);
  module.seal();
  remember(sharded);
  return sharded;
}

namespace {

/// What a rank's part of a model on a mesh begins with.
struct Beginning {
  bool counts = true;  // else it gets another rank's values
  std::array<int64_t, 2> seeds = {};
  std::map<std::string, int64_t> values;  // hashes; 0: it has none yet
};

void check_beginnings(const Beginning& mine, const HeldParts& held, dist::ProcessGroup& world, bool seeds_count) {
  std::vector<int64_t> numbers{mine.counts, mine.seeds[0], mine.seeds[1]};
  for (const auto& [name, hash] : mine.values) numbers.push_back(hash);
  std::vector<int64_t> all = world.share(numbers, {"", "fully_shard"});
  auto of = [&](int rank, size_t i) { return all[size_t(rank) * numbers.size() + i]; };
  auto both = [&](int rank, int other) {
    return concat("fully_shard: rank ", world.global_rank(rank), " and rank ", world.global_rank(other));
  };
  for (int rank = 1; rank < world.size() && seeds_count; ++rank)
    for (size_t what : {1, 2})
      SG_CHECK(of(rank, what) == of(0, what), both(rank, 0), what == 1 ? " have" : " made their models with",
               " different seeds, ", uint64_t(of(rank, what)), " and ", uint64_t(of(0, what)),
               ", so their parts would begin as parts of different models; give every rank the same seed");
  size_t i = 0;
  for (const auto& [name, hash] : mine.values) {
    for (int rank = 1; rank < world.size(); ++rank) {
      int other = 0;
      while (other < rank && !(of(other, 0) && same_part(held.of(i, rank), held.of(i, other)))) ++other;
      SG_CHECK(other == rank || !of(rank, 0) || of(rank, i + 3) == of(other, i + 3), both(rank, other),
               " have copies of '", name, "' that begin with other values, set or loaded on one of them before ",
               "fully_shard; set the same on both");
    }
    ++i;
  }
}

}  // namespace

// What no rank of the group sees: the parts, seeds and values of those beside it.
static void check_mesh(nn::Module& module, const parallel::Mesh& mesh, std::string_view axis, const Config& config) {
  HeldParts::Mine mine;
  Beginning beginning{!config.sync_module_states || mesh.coordinate(axis) == 0, seeds_of(module), {}};
  for (const auto& [name, parameter] : module.parameter_entries()) {
    const Tensor& tensor = parameter->tensor;
    bool is_sharded = tensor.storage()->tag().unit != 0;
    mine[name] = {tensor.shape(), parameter->part, tensor.dtype(), 0, tensor.numel()};
    beginning.values[name] = is_sharded ? 0 : int64_t(hash_of_values(tensor));
  }
  HeldParts held(mine, mesh.world(), "fully_shard");
  check_beginnings(beginning, held, mesh.world(), !config.sync_module_states);
}

std::shared_ptr<Sharded> fully_shard(nn::Module& module, const parallel::Mesh& mesh, std::string_view axis,
                                     Config config) {
  dist::ProcessGroup& group = mesh.group(axis);
  check_mesh(module, mesh, axis, config);
  auto sharded = fully_shard(module, group, std::move(config));
  sharded->mesh_->set_holders(mesh.world());
  for (const auto& inner : sharded->inner_meshes_) inner->set_holders(mesh.world());
  return sharded;
}

static Unit& unit_named(Sharded& sharded, const char* call, const std::string& name) {
  sharded.check_alive(call);
  SG_CHECK(!in_backward(), call, ": called inside backward, whose schedule gathers and releases; call it outside");
  std::string names;
  for (const auto& unit : sharded.units()) {
    if (unit->name() == name) return *unit;
    names += (names.empty() ? "" : ", ") + unit->name();
  }
  fail(call, ": there is no unit '", name, "'; there are ", names);
}

Unsharding unshard(Sharded& sharded, const std::string& unit) {
  Unit& found = unit_named(sharded, "unshard", unit);
  sharded.schedule().gather_ahead(found);
  return Unsharding(found, sharded.schedule().owner());
}

void reshard(Sharded& sharded, const std::string& unit) {
  sharded.schedule().give_back(unit_named(sharded, "reshard", unit));
}

}  // namespace shardgrad::fsdp
