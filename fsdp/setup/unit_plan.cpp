#include <shardgrad/fsdp/setup/unit_plan.h>

#include <algorithm>
#include <map>
#include <set>

#include <shardgrad/autograd/match.h>
#include <shardgrad/fsdp/setup/wrap.h>

namespace shardgrad::fsdp {
namespace {

using Key = const Tensor::Impl*;
using LeftOut = std::set<Key>;
Key key(const nn::Parameter& parameter) { return &parameter.tensor.impl(); }

// Assigns every parameter to the deepest unit that contains all modules using it: a tied parameter whose users lie in
// different units belongs to the unit around them, and so do those of a module that these share.
class Planner {
 public:
  Planner(nn::Module& root, const WrapPolicy& wrap, const ChosenUnits& own, const LeftOut& left_out)
      : root_(root), wrap_(wrap), own_(own), left_out_(left_out) {
    for (auto& [name, module] : root.named_modules()) names_[module] = name;
    count(root);
  }

  std::vector<PlannedUnit> plan() {
    visit(root_);
    if (!planned_.empty() && planned_.back().modules[0] == &root_)  // visited last, comes first
      std::rotate(planned_.begin(), planned_.end() - 1, planned_.end());
    return std::move(planned_);
  }

 private:
  struct Found {
    nn::Parameter* parameter;
    int64_t ways;  // down to the modules that register it
  };
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
    for (const auto& own : module.own_parameters())
      if (!left_out_.contains(key(*own.object))) add(own.object.get(), 1);
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
    PlannedUnit planned{.modules = {&module}};
    std::vector<Found> rest;
    for (const Found& f : found) {
      if (complete(f))
        planned.parameters.push_back(f.parameter);
      else
        rest.push_back(f);
    }
    if (auto own = own_.find(&module); own != own_.end()) planned.own = own->second;
    planned_.push_back(std::move(planned));
    return rest;
  }

  nn::Module& root_;
  const WrapPolicy& wrap_;
  const ChosenUnits& own_;
  const LeftOut& left_out_;
  std::map<nn::Module*, std::string> names_;  // below the root
  std::map<nn::Module*, int64_t> ways_;
  std::map<Key, int64_t> ways_to_;
  std::map<nn::Module*, std::vector<Found>> left_;  // of what was visited
  std::vector<PlannedUnit> planned_;
};

// Joins neighbours that are at most `most` bytes together; not the root, whose gradients are complete last.
std::vector<PlannedUnit> into_buckets(std::vector<PlannedUnit> planned, const nn::Module& root, int64_t most) {
  std::vector<PlannedUnit> buckets;
  for (PlannedUnit& next : planned) {
    bool joins = !buckets.empty() && buckets.back().modules[0] != &root && !next.own && !buckets.back().own &&
                 buckets.back().bytes() + next.bytes() <= most;
    if (!joins) {
      buckets.push_back(std::move(next));
      continue;
    }
    PlannedUnit& bucket = buckets.back();
    bucket.modules.insert(bucket.modules.end(), next.modules.begin(), next.modules.end());
    bucket.parameters.insert(bucket.parameters.end(), next.parameters.begin(), next.parameters.end());
  }
  return buckets;
}

// What the user has wrapped, and what the policy chooses beside that.
WrapPolicy policy_of(nn::Module& root, const Config& config, const ChosenUnits& wrapped) {
  if (wrapped.empty()) return config.wrap ? config.wrap : wrap_children_of(root);
  return [&wrapped, wrap = config.wrap](const nn::Module& module, const std::string& name, int64_t numel) {
    bool by_policy = wrap && wrap(module, name, numel);
    return by_policy || wrapped.contains(&module);
  };
}

ChosenUnits wrapped_below(nn::Module& root) {
  ChosenUnits all = wrapped_units(), below;
  for (const auto& [name, module] : root.named_modules())
    if (auto found = all.find(module); found != all.end()) below.insert(*found);
  return below;
}

}  // namespace

int64_t PlannedUnit::numel() const {
  int64_t total = 0;
  for (const nn::Parameter* p : parameters) total += p->tensor.numel();
  return total;
}

int64_t PlannedUnit::bytes() const {
  int64_t total = 0;
  for (const nn::Parameter* p : parameters) total += int64_t(p->tensor.bytes());
  return total;
}

std::string PlannedUnit::name(const nn::Module& root) const {
  const std::string &first = modules.front()->full_name(), &last = modules.back()->full_name();
  if (modules[0] == &root && first.empty()) return "root";
  return modules.size() == 1 ? first : first + ".." + last;
}

std::vector<nn::Module::Entry<nn::Parameter>> left_out_entries(nn::Module& root, const Config& config) {
  std::vector<nn::Module::Entry<nn::Parameter>> found;
  std::vector<bool> used(config.leave_out.size());
  for (auto& entry : root.parameter_entries()) {
    bool fits = false;
    for (size_t i = 0; i < used.size(); ++i)
      if (matches(config.leave_out[i], entry.name)) fits = used[i] = true;
    if (!fits) continue;
    SG_CHECK(entry.object->tensor.storage()->tag().unit == 0, "fully_shard: leave_out names '", entry.name,
             "', which is sharded already");
    found.push_back(entry);
  }
  for (size_t i = 0; i < used.size(); ++i)
    SG_CHECK(used[i], "fully_shard: leave_out has '", config.leave_out[i],
             "', which fits no parameter; look at named_parameters()");
  return found;
}

std::vector<PlannedUnit> plan_units(nn::Module& root, const Config& config) {
  LeftOut not_planned;
  for (const auto& entry : left_out_entries(root, config)) not_planned.insert(key(*entry.object));
  for (const auto& entry : root.parameter_entries())
    if (entry.object->tensor.storage()->tag().unit != 0) not_planned.insert(key(*entry.object));
  ChosenUnits wrapped = wrapped_below(root);
  WrapPolicy wrap = policy_of(root, config, wrapped);
  return into_buckets(Planner(root, wrap, wrapped, not_planned).plan(), root, config.bucket());
}

std::vector<std::vector<nn::Parameter*>> plan_flats(std::span<nn::Parameter* const> parameters, int64_t bucket) {
  struct Group {
    std::pair<DType, bool> kind;
    int64_t bytes;
  };
  std::vector<Group> groups;
  std::vector<std::vector<nn::Parameter*>> members;
  for (nn::Parameter* parameter : parameters) {
    const Tensor& tensor = parameter->tensor;
    std::pair kind(tensor.dtype(), tensor.requires_grad());
    auto bytes = int64_t(tensor.bytes());
    size_t home = groups.size();
    for (size_t i = 0; i < groups.size(); ++i)
      if (groups[i].kind == kind) home = i;  // the last of them: neighbours stay together
    if (home == groups.size() || (bucket > 0 && groups[home].bytes + bytes > bucket)) {
      home = groups.size();
      groups.push_back({kind, 0});
      members.emplace_back();
    }
    groups[home].bytes += bytes;
    members[home].push_back(parameter);
  }
  return members;
}

}  // namespace shardgrad::fsdp
