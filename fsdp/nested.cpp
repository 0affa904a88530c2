// A model of which parts were sharded before it, each with options of its own: their units become the model's.

#include <algorithm>
#include <set>

#include <shardgrad/fsdp/fully_shard.h>

namespace shardgrad::fsdp {
namespace {

// A context's.
struct ShardedModels {
  std::vector<std::weak_ptr<Sharded>> all;
};

using Keys = std::set<const Tensor::Impl*>;

Keys keys_of(nn::Module& module) {
  Keys keys;
  for (const NamedParameter& parameter : module.named_parameters()) keys.insert(&parameter.tensor.impl());
  return keys;
}

std::string label_of(const nn::Module& module) {
  return module.full_name().empty() ? module.type_name() : module.full_name();
}

// Only calls of the part gather what is its own.
void check_used_inside_only(nn::Module& root, nn::Module& part, const Keys& its) {
  std::set<const nn::Module*> inside;
  for (const auto& [name, module] : part.named_modules()) inside.insert(module);
  for (const auto& [name, module] : root.named_modules())
    for (const auto& own : module->own_parameters())
      SG_CHECK(inside.contains(module) || !its.contains(&own.object->tensor.impl()), "fully_shard: '",
               label_of(*module), ".", own.name, "' is a parameter of '", label_of(part),
               "', too, which was sharded before; shard both together, with the model around them");
}

void check_fits(const Sharded& inner, const std::string& name, dist::ProcessGroup& group, const Config& config) {
  SG_CHECK(&inner.group() == &group, "fully_shard: '", name, "' was sharded over another group; give both the same");
  int parts = config.parts(group.size());
  SG_CHECK(inner.mesh().parts() == parts, "fully_shard: '", name, "' is split over ", inner.mesh().parts(),
           " ranks, and the model around it over ", parts, "; choose strategies of as many parts");
  SG_CHECK(inner.left_out().empty(), "fully_shard: '", name, "' was sharded with leave_out, '",
           inner.left_out()[0].name, "' for one; say it to the model around it alone");
}

}  // namespace

void remember(const std::shared_ptr<Sharded>& sharded) {
  auto& all = context().slot<ShardedModels>().all;
  std::erase_if(all, [](const auto& model) { return model.expired(); });
  all.push_back(sharded);
}

std::vector<std::shared_ptr<Sharded>> sharded_inside(nn::Module& root, dist::ProcessGroup& group,
                                                     const Config& config) {
  root.complete_names();
  Keys own = keys_of(root), taken;
  std::set<const nn::Module*> modules;
  for (const auto& [name, module] : root.named_modules()) modules.insert(module);
  std::vector<std::shared_ptr<Sharded>> found;
  for (const auto& model : context().slot<ShardedModels>().all) {
    std::shared_ptr<Sharded> inner = model.lock();
    if (!inner || !modules.contains(inner->root_) || inner->root_ == &root || inner->above_) continue;
    Keys its = keys_of(*inner->root_);
    bool owned = std::ranges::any_of(
        inner->flats(), [&](const FlatParam* flat) { return its.contains(&flat->parameters()[0].impl()); });
    if (!owned || inner->schedule_.ended()) continue;  // another module is where its root was
    check_fits(*inner, label_of(*inner->root_), group, config);
    SG_CHECK(!inner->schedule_.used(), "fully_shard: '", label_of(*inner->root_),
             "' has been called since it was sharded; shard the model around it before the first call");
    inner->settle("fully_shard");
    check_used_inside_only(root, *inner->root_, its);
    taken.merge(its);
    found.push_back(std::move(inner));
  }
  for (const NamedParameter& parameter : root.named_parameters())
    SG_CHECK(parameter.tensor.storage()->tag().unit == 0 || taken.contains(&parameter.tensor.impl()), "fully_shard: '",
             parameter.name, "' is sharded already; shard a model once, at its root, or parts of it before it");
  return found;
}

void Sharded::take_over(const std::shared_ptr<Sharded>& inner) {
  for (auto& end : inner->at_end_) end.reset();
  inner_meshes_.push_back(inner->mesh_);
  inner_meshes_.insert(inner_meshes_.end(), inner->inner_meshes_.begin(), inner->inner_meshes_.end());
  std::vector<std::unique_ptr<Unit>> units = inner->schedule_.give_units();
  for (const auto& unit : units) unit->join(unit_events());
  add_to_index(units);
  schedule_.add_units(std::move(units));
}

}  // namespace shardgrad::fsdp
