#include <shardgrad/fsdp/fully_shard.h>

#include <algorithm>
#include <map>
#include <set>

#include <shardgrad/autograd/node.h>
#include <shardgrad/fsdp/precision.h>
#include <shardgrad/fsdp/setup/options.h>
#include <shardgrad/fsdp/setup/wrap.h>
#include <shardgrad/fsdp/start.h>

namespace shardgrad::fsdp {
namespace {

// One future unit: a module, or several that share a bucket, and the parameters below that no deeper unit takes.
struct Planned {
  std::vector<nn::Module*> modules;
  std::vector<nn::Parameter*> parameters;

  int64_t bytes() const {
    int64_t total = 0;
    for (const nn::Parameter* p : parameters) total += p->tensor.numel() * int64_t(size_of(p->tensor.dtype()));
    return total;
  }
};

// Assigns every parameter to the deepest unit that contains all modules using it: a tied parameter whose users lie in
// different units belongs to the unit around them, and so do those of a module that these share.
class Planner {
 public:
  Planner(nn::Module& root, const WrapPolicy& wrap) : root_(root), wrap_(wrap) {
    for (auto& [name, module] : root.named_modules()) names_[module] = name;
    count(root);
  }

  std::vector<Planned> plan() {
    visit(root_);
    if (!planned_.empty() && planned_.back().modules[0] == &root_)  // visited last, comes first
      std::rotate(planned_.begin(), planned_.end() - 1, planned_.end());
    return std::move(planned_);
  }

 private:
  using Key = const Tensor::Impl*;
  struct Found {
    nn::Parameter* parameter;
    int64_t ways;  // down to the modules that register it
  };
  static Key key(const nn::Parameter& parameter) { return &parameter.tensor.impl(); }

  // The ways from the root.
  void count(nn::Module& module) {
    ++ways_[&module];
    for (const auto& own : module.own_parameters()) ++ways_to_[key(*own.object)];
    for (const auto& child : module.children()) count(*child.object);
  }

  // The parameters at and below `module` that no unit has taken, in order.
  const std::vector<Found>& visit(nn::Module& module) {
    auto [left, first] = left_.try_emplace(&module);
    if (!first) return left->second;
    std::vector<Found> found;
    auto add = [&](nn::Parameter* parameter, int64_t ways) {
      auto same = [&](const Found& f) { return key(*f.parameter) == key(*parameter); };
      auto it = std::ranges::find_if(found, same);
      if (it == found.end())
        found.push_back({parameter, ways});
      else
        it->ways += ways;
    };
    for (const auto& own : module.own_parameters()) add(own.object.get(), 1);
    for (const auto& child : module.children())
      for (const Found& f : visit(*child.object)) add(f.parameter, f.ways);
    return left->second = take(module, std::move(found));
  }

  // What is reached in every way through `module` may be its unit's; returns the rest.
  std::vector<Found> take(nn::Module& module, std::vector<Found> found) {
    auto complete = [&](const Found& f) { return f.ways * ways_[&module] == ways_to_[key(*f.parameter)]; };
    int64_t numel = 0;
    for (const Found& f : found)
      if (complete(f)) numel += f.parameter->tensor.numel();
    bool is_root = &module == &root_;
    bool chosen = (is_root || !module.only_holds()) && wrap_(module, names_[&module], numel);
    if (found.empty() || (!is_root && (!chosen || numel == 0))) return found;
    Planned planned{{&module}, {}};
    std::vector<Found> rest;
    for (const Found& f : found) {
      if (complete(f))
        planned.parameters.push_back(f.parameter);
      else
        rest.push_back(f);
    }
    planned_.push_back(std::move(planned));
    return rest;
  }

  nn::Module& root_;
  const WrapPolicy& wrap_;
  std::map<nn::Module*, std::string> names_;  // below the root
  std::map<nn::Module*, int64_t> ways_;
  std::map<Key, int64_t> ways_to_;
  std::map<nn::Module*, std::vector<Found>> left_;  // of what was visited
  std::vector<Planned> planned_;
};

// Joins neighbours that are at most `most` bytes together; not the root, whose gradients are complete last.
std::vector<Planned> into_buckets(std::vector<Planned> planned, const nn::Module& root, int64_t most) {
  std::vector<Planned> buckets;
  for (Planned& next : planned) {
    bool joins =
        !buckets.empty() && buckets.back().modules[0] != &root && buckets.back().bytes() + next.bytes() <= most;
    if (!joins) {
      buckets.push_back(std::move(next));
      continue;
    }
    Planned& bucket = buckets.back();
    bucket.modules.insert(bucket.modules.end(), next.modules.begin(), next.modules.end());
    bucket.parameters.insert(bucket.parameters.end(), next.parameters.begin(), next.parameters.end());
  }
  return buckets;
}

// The modules that are called and that `module` holds, itself or through ones that only hold others.
void add_called(nn::Module& module, std::set<const nn::Module*>& called) {
  for (const auto& child : module.children())
    if (child.object->only_holds())
      add_called(*child.object, called);
    else
      called.insert(child.object.get());
}

WrapPolicy wrap_children_of(nn::Module& root) {
  std::set<const nn::Module*> children;
  add_called(root, children);
  return [children](const nn::Module& module, const std::string&, int64_t) { return children.contains(&module); };
}

// What the user has wrapped, and what the policy chooses beside that.
WrapPolicy policy_of(nn::Module& root, const Config& config) {
  std::set<const nn::Module*> wrapped, chosen = wrapped_modules();
  for (const auto& [name, module] : root.named_modules())
    if (chosen.contains(module)) wrapped.insert(module);
  if (wrapped.empty()) return config.wrap ? config.wrap : wrap_children_of(root);
  return [wrapped, wrap = config.wrap](const nn::Module& module, const std::string& name, int64_t numel) {
    bool by_policy = wrap && wrap(module, name, numel);
    return by_policy || wrapped.contains(&module);
  };
}

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
  SG_CHECK(device == ours || device == kMeta, "fully_shard: '", tensor.name, "' is on ", device,
           ", but the ranks compute and communicate on ", ours, "; move the model there with to(), or make the ",
           "context on ", device);
}

std::string unit_name(const Planned& planned, const nn::Module& root) {
  if (planned.modules[0] == &root) return "root";
  const std::string &first = planned.modules.front()->full_name(), &last = planned.modules.back()->full_name();
  return planned.modules.size() == 1 ? first : first + ".." + last;
}

// All that ranks must agree about: they would hang or mix up weights later.
std::string structure_of(nn::Module& root, const Config& options, std::span<const Planned> plan) {
  std::ostringstream structure;
  structure << name_of(options.strategy);
  visit_options(options, [&](const char* name, const auto& value, const char*) {
    structure << ' ' << name << ' ';
    if constexpr (!kIsOptional<std::remove_cvref_t<decltype(value)>>)
      structure << value;
    else if (value)
      structure << *value;
  });
  for (const Planned& planned : plan)
    for (const nn::Parameter* parameter : planned.parameters)
      structure << '\n'
                << unit_name(planned, root) << ' ' << parameter->full_name << ' ' << parameter->tensor.shape()
                << parameter->tensor.dtype() << parameter->tensor.requires_grad() << ' ' << parameter->part.dim << ' '
                << parameter->part.begin << ' ' << parameter->part.extent;
  for (const NamedParameter& buffer : root.named_buffers())
    structure << '\n' << buffer.name << ' ' << buffer.tensor.shape() << buffer.tensor.dtype();
  return std::move(structure).str();
}

}  // namespace

Sharded::Sharded(nn::Module& root, dist::ProcessGroup& group, Config config)
    : mesh_(group, config.parts(group.size())), schedule_(config) {
  root.complete_names();
  WrapPolicy wrap = policy_of(root, config);
  std::vector<Planned> plan = into_buckets(Planner(root, wrap).plan(), root, config.bucket());
  for (const Planned& planned : plan)
    for (const nn::Parameter* parameter : planned.parameters) check_parameter(*parameter, config.param_dtype);
  for (const NamedParameter& parameter : root.named_parameters()) check_device(parameter);
  for (const NamedParameter& buffer : root.named_buffers()) check_device(buffer);
  check_same_start(root, structure_of(root, config, plan), group, config.sync_module_states);
  std::vector<std::unique_ptr<Unit>> units;
  UnitEvents events{[this](Unit& unit, FlatParam& flat, bool last) { schedule_.after_grads(unit, flat, last); },
                    [this](Unit& unit) { schedule_.bring_back(unit); }};
  for (const Planned& planned : plan) {
    bool is_root = planned.modules[0] == &root;
    units.push_back(
        std::make_unique<Unit>(unit_name(planned, root), planned.parameters, mesh_, config, is_root, events));
    modules_.push_back(planned.modules);
  }
  std::map<const Tensor::Impl*, std::string> names;
  for (const NamedParameter& parameter : root.named_parameters()) names[&parameter.tensor.impl()] = parameter.name;
  for (const auto& unit : units)
    for (const auto& flat : unit->flat_params()) {
      flats_.push_back(flat.get());
      for (size_t i = 0; i < flat->slices().size(); ++i)
        index_[names.at(&flat->parameter(i).impl())] = {unit.get(), flat.get(), i};
    }
  schedule_.set_units(std::move(units));
  if (config.sync_module_states) broadcast_buffers(root, group);
  convert_buffers(root, config);
  at_end_[0] = context().at_end([this] { end(); });
  at_end_[1] = group.at_end([this] { end(); });
}

void Sharded::end() noexcept {
  for (FlatParam* flat : flats_) flat->let_go();
  mesh_.end();
  schedule_.end();
}

void Sharded::check_alive(const char* call) const {
  SG_CHECK(!schedule_.ended(), call, ": the context or the process group that the model was sharded in has ended");
}

void Sharded::settle(const char* call) {
  check_alive(call);
  SG_CHECK(!in_backward(), call, ": called inside backward; call it between steps");
  SG_CHECK(!schedule_.summoned(), call, ": called in a scope of SummonFullParams; leave the scope first");
  for (const auto& unit : units()) unit->wait();
}

// Each hook holds the Sharded: a submodule's handle may outlive the root.
static void add_hooks(const std::shared_ptr<Sharded>& sharded, Schedule& schedule, Unit& unit, nn::Module& user) {
  user.add_forward_pre_hook(
      [sharded, &schedule, &unit](nn::Module&, std::span<Tensor>) { schedule.before_forward(unit); });
  user.add_forward_failed_hook([sharded, &schedule, &unit](nn::Module&) { schedule.forward_failed(&unit); });
  user.add_forward_hook([sharded, &schedule, &unit](nn::Module&, std::span<const Tensor> outputs) {
    schedule.after_forward(unit, outputs);
  });
}

std::shared_ptr<Sharded> fully_shard(nn::Module& module, dist::ProcessGroup& group, Config config) {
  check(config, group.size());
  for (const NamedParameter& parameter : module.named_parameters())
    SG_CHECK(parameter.tensor.storage()->tag().unit == 0, "fully_shard: '", parameter.name,
             "' is sharded already; shard a model once, at its root");
  auto sharded = std::make_shared<Sharded>(module, group, std::move(config));
  Schedule& schedule = sharded->schedule_;
  schedule.set_owner(sharded);
  module.add_forward_pre_hook([sharded](nn::Module&, std::span<Tensor>) { sharded->schedule_.begin_forward(); });
  convert_inputs(module, sharded->config());
  auto modules = std::exchange(sharded->modules_, {});
  for (size_t i = 0; i < modules.size(); ++i)
    for (nn::Module* user : modules[i]) {
      add_hooks(sharded, schedule, *schedule.units()[i], *user);
      if (user != &module) convert_inputs(*user, sharded->config());
    }
  module.add_forward_hook([sharded](nn::Module&, std::span<const Tensor>) { sharded->schedule_.end_forward(); });
  module.add_forward_failed_hook([sharded](nn::Module&) { sharded->schedule_.forward_failed(nullptr); });
  module.seal();
  return sharded;
}

NoSync::NoSync(Sharded& sharded) : sharded_(sharded), outer_(sharded.schedule_.sync()) {
  SG_CHECK(!in_backward(), "NoSync: a backward pass is running; open the scope around whole passes");
  sharded.schedule_.set_sync(false);
}

NoSync::~NoSync() { sharded_.schedule_.set_sync(outer_); }

}  // namespace shardgrad::fsdp
