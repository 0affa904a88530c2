#include <shardgrad/fsdp/setup/policies.h>

#include <algorithm>

#include <shardgrad/autograd/match.h>
#include <shardgrad/core/error.h>

namespace shardgrad::fsdp {
namespace {

// What a policy was asked of, for people: the first ones, each once.
class Labels {
 public:
  void add(const std::string& label) {
    if (!label.empty() && std::ranges::find(labels_, label) == labels_.end()) labels_.push_back(label);
  }
  std::string list() const {
    constexpr size_t kMost = 12;
    std::string text;
    for (size_t i = 0; i < std::min(kMost, labels_.size()); ++i) text += (i == 0 ? "" : ", ") + labels_[i];
    return labels_.size() > kMost ? concat(text, " and ", labels_.size() - kMost, " more") : text;
  }

 private:
  std::vector<std::string> labels_;
};

// `label`: what of a module wish i is compared with. Asked of the root, it has been asked of every module.
template <class Label, class Fits>
WrapPolicy choose(const char* call, std::vector<std::string> wishes, Label label, Fits fits) {
  return [=, seen = Labels(), used = std::vector<bool>(wishes.size())](const nn::Module& module,
                                                                       const std::string& name, int64_t) mutable {
    std::string its = label(module, name);
    bool chosen = false;
    seen.add(its);
    for (size_t i = 0; i < wishes.size(); ++i)
      if (fits(i, its)) chosen = used[i] = true;
    if (!name.empty()) return chosen;
    std::string unused;
    for (size_t i = 0; i < wishes.size(); ++i)
      if (!used[i]) unused += (unused.empty() ? "'" : ", '") + wishes[i] + "'";
    SG_CHECK(unused.empty(), call, ": no module fits ", unused, "; there are ", seen.list(),
             "; choose the modules in a list that has no forward, not the list");
    return chosen;
  };
}

std::string whole_name(const nn::Module&, const std::string& name) { return name; }

bool is_one_of(const nn::Module& module, const std::vector<std::string>& types) {
  return std::ranges::count(types, module.type_name()) > 0;
}

// Whether it lies in a module of one of the types, below the one that is sharded.
bool lies_in(const nn::Module& module, const std::string& name, const std::vector<std::string>& types) {
  const nn::Module* above = module.parent();
  for (auto left = std::ranges::count(name, '.'); above && left > 0; above = above->parent(), --left)
    if (is_one_of(*above, types)) return true;
  return false;
}

}  // namespace

WrapPolicy wrap_by_size(int64_t min_numel, std::vector<std::string> whole, std::vector<std::string> never) {
  return [=](const nn::Module& module, const std::string& name, int64_t numel) {
    return numel >= min_numel && !is_one_of(module, never) && !lies_in(module, name, whole);
  };
}

WrapPolicy wrap_by_type(std::vector<std::string> types) {
  auto type_of = [](const nn::Module& module, const auto&) { return module.type_name(); };
  auto fits = [types](size_t i, const std::string& its) { return types[i] == its; };
  return choose("wrap_by_type", std::move(types), type_of, fits);
}

WrapPolicy wrap_by_name(std::vector<std::string> patterns) {
  auto fits = [patterns](size_t i, const std::string& its) { return matches(patterns[i], its); };
  return choose("wrap_by_name", std::move(patterns), whole_name, fits);
}

WrapPolicy wrap_by_regex(std::vector<std::string> expressions) {
  Expressions compiled("wrap_by_regex", expressions);
  auto fits = [compiled](size_t i, const std::string& its) { return compiled.match(i, its); };
  return choose("wrap_by_regex", std::move(expressions), whole_name, fits);
}

WrapPolicy wrap_any(std::vector<WrapPolicy> policies) {
  return [policies = std::move(policies)](const nn::Module& module, const std::string& name, int64_t numel) {
    bool chosen = false;
    for (const WrapPolicy& policy : policies) chosen |= policy(module, name, numel);
    return chosen;
  };
}

}  // namespace shardgrad::fsdp
