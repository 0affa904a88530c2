#include <shardgrad/nn/recompute.h>

#include <functional>

#include <shardgrad/autograd/match.h>

namespace shardgrad::nn {
namespace {

using Chosen = std::function<bool(const std::string& wish, const Module& module, const std::string& name)>;

// Walks down from the root and stops below a chosen module.
class Choice {
 public:
  Choice(const std::vector<std::string>& wishes, const Chosen& chosen, RecomputeOptions options)
      : wishes_(wishes), chosen_(chosen), options_(std::move(options)), used_(wishes.size()) {}

  void below(Module& module, const std::string& prefix) {
    for (const auto& child : module.children()) {
      std::string name = prefix + child.name;
      if (wanted(*child.object, name))
        recompute(*child.object, options_);
      else
        below(*child.object, name + ".");
    }
  }

  void check_all_used(const char* what) const {
    std::string unused;
    for (size_t i = 0; i < wishes_.size(); ++i)
      if (!used_[i]) unused += (unused.empty() ? "'" : ", '") + wishes_[i] + "'";
    SG_CHECK(unused.empty(), what, ": no module fits ", unused, "; look at named_modules()");
  }

 private:
  bool wanted(const Module& module, const std::string& name) {
    bool any = false;
    for (size_t i = 0; i < wishes_.size(); ++i) {
      if (!chosen_(wishes_[i], module, name)) continue;
      used_[i] = true;
      any = true;
    }
    return any;
  }

  const std::vector<std::string>& wishes_;
  const Chosen& chosen_;
  RecomputeOptions options_;
  std::vector<bool> used_;
};

}  // namespace

void recompute(Module& module, RecomputeOptions options) {
  module.complete_names();
  if (options.name.empty()) options.name = module.full_name().empty() ? module.type_name() : module.full_name();
  module.set_recompute(std::move(options));
}

void recompute_by_name(Module& root, const std::vector<std::string>& patterns, RecomputeOptions options) {
  Chosen chosen = [](const std::string& pattern, const Module&, const std::string& name) {
    return matches(pattern, name);
  };
  Choice choice(patterns, chosen, std::move(options));
  choice.below(root, "");
  choice.check_all_used("recompute_by_name");
}

void recompute_by_type(Module& root, const std::vector<std::string>& types, RecomputeOptions options) {
  Chosen chosen = [](const std::string& type, const Module& module, const std::string&) {
    return module.type_name() == type;
  };
  Choice choice(types, chosen, std::move(options));
  choice.below(root, "");
  choice.check_all_used("recompute_by_type");
}

}  // namespace shardgrad::nn
