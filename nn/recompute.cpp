#include <shardgrad/nn/recompute.h>

#include <functional>

#include <shardgrad/autograd/match.h>

namespace shardgrad::nn {
namespace {

// Whether wish i is for this module.
using Chosen = std::function<bool(size_t i, const Module& module, const std::string& name)>;

// Walks down from the root and stops below a chosen module.
class Choice {
 public:
  Choice(const std::vector<std::string>& wishes, const Chosen& chosen, RecomputeOptions options)
      : wishes_(wishes), chosen_(chosen), options_(std::move(options)), used_(wishes.size()) {}

  void run(const char* call, Module& root) {
    below(root, "", false);
    std::string unused, names;
    for (size_t i = 0; i < wishes_.size(); ++i)
      if (!used_[i]) unused += (unused.empty() ? "'" : ", '") + wishes_[i] + "'";
    for (const auto& [name, module] : root.named_modules())
      if (!name.empty()) names += (names.empty() ? "" : ", ") + name;
    SG_CHECK(unused.empty(), call, ": no module fits ", unused, "; there are ", names);
    for (Module* module : regions_) recompute(*module, options_);
  }

 private:
  // What lies in a region is part of it, whatever else is asked for.
  void below(Module& module, const std::string& prefix, bool in_region) {
    for (const auto& child : module.children()) {
      std::string name = prefix + child.name;
      bool chosen = wanted(*child.object, name);
      if (chosen && !in_region) regions_.push_back(child.object.get());
      below(*child.object, name + ".", in_region || chosen);
    }
  }

  bool wanted(const Module& module, const std::string& name) {
    bool any = false;
    for (size_t i = 0; i < wishes_.size(); ++i) {
      if (!chosen_(i, module, name)) continue;
      used_[i] = true;
      any = true;
    }
    return any;
  }

  const std::vector<std::string>& wishes_;
  const Chosen& chosen_;
  RecomputeOptions options_;
  std::vector<bool> used_;
  std::vector<Module*> regions_;
};

}  // namespace

void recompute(Module& module, RecomputeOptions options) {
  module.complete_names();
  if (options.name.empty()) options.name = module.full_name().empty() ? module.type_name() : module.full_name();
  module.set_recompute(std::move(options));
}

void recompute_by_name(Module& root, const std::vector<std::string>& patterns, RecomputeOptions options) {
  Chosen chosen = [&](size_t i, const Module&, const std::string& name) { return matches(patterns[i], name); };
  Choice(patterns, chosen, std::move(options)).run("recompute_by_name", root);
}

void recompute_by_regex(Module& root, const std::vector<std::string>& expressions, RecomputeOptions options) {
  Expressions compiled("recompute_by_regex", expressions);
  Chosen chosen = [&](size_t i, const Module&, const std::string& name) { return compiled.match(i, name); };
  Choice(expressions, chosen, std::move(options)).run("recompute_by_regex", root);
}

void recompute_by_type(Module& root, const std::vector<std::string>& types, RecomputeOptions options) {
  Chosen chosen = [&](size_t i, const Module& module, const std::string&) { return module.type_name() == types[i]; };
  Choice(types, chosen, std::move(options)).run("recompute_by_type", root);
}

}  // namespace shardgrad::nn
