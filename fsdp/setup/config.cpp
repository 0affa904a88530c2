#include <shardgrad/fsdp/setup/config.h>

#include <algorithm>
#include <cctype>

#include <shardgrad/autograd/match.h>

namespace shardgrad::fsdp {

const char* name_of(Strategy strategy) {
  constexpr const char* names[] = {"ddp", "zero1", "zero2", "zero3", "hybrid"};
  return names[int(strategy)];
}

namespace {

struct Name {
  std::string_view name;
  Strategy strategy;
};
constexpr Name kNames[] = {{"zero3", Strategy::zero3},
                           {"full_shard", Strategy::zero3},
                           {"fsdp", Strategy::zero3},
                           {"fsdp_native", Strategy::zero3},
                           {"ddp_fully_sharded", Strategy::zero3},
                           {"fairscale", Strategy::zero3},
                           {"zero2", Strategy::zero2},
                           {"shard_grad_op", Strategy::zero2},
                           {"sharded_ddp", Strategy::zero2},
                           {"ddp_sharded", Strategy::zero2},
                           {"ddp_sharded_spawn", Strategy::zero2},
                           {"zero1", Strategy::zero1},
                           {"oss", Strategy::zero1},
                           {"ddp", Strategy::ddp},
                           {"dp", Strategy::ddp},
                           {"no_shard", Strategy::ddp},
                           {"hybrid", Strategy::hybrid},
                           {"hybrid_shard", Strategy::hybrid},
                           {"hsdp", Strategy::hybrid}};

std::string plain(std::string_view name) {
  std::string letters;
  for (char c : name)
    if (c != '-' && c != '_') letters += char(std::tolower(uint8_t(c)));
  return letters;
}

}  // namespace

Strategy parse_strategy(std::string_view name) {
  std::string list;
  for (const Name& known : kNames) {
    if (plain(known.name) == plain(name)) return known.strategy;
    list += concat(list.empty() ? "" : ", ", known.name);
  }
  fail("unknown strategy '", name, "'; choose one of ", list);
}

std::vector<std::string> strategy_names() {
  std::vector<std::string> names;
  for (const Name& known : kNames) names.emplace_back(known.name);
  return names;
}

int Config::parts(int world_size) const {
  if (strategy == Strategy::ddp) return 1;
  return strategy == Strategy::hybrid ? shard_ranks : world_size;
}

WrapPolicy wrap_by_size(int64_t min_numel) {
  return [min_numel](const nn::Module&, const std::string&, int64_t numel) { return numel >= min_numel; };
}

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

// `label`: what of a module a wish is compared with. Asked of the root, it has been asked of every module.
template <class Label, class Fits>
WrapPolicy choose(const char* call, std::vector<std::string> wishes, Label label, Fits fits) {
  return [=, seen = Labels(), used = std::vector<bool>(wishes.size())](const nn::Module& module,
                                                                       const std::string& name, int64_t) mutable {
    std::string its = label(module, name);
    bool chosen = false;
    seen.add(its);
    for (size_t i = 0; i < wishes.size(); ++i)
      if (fits(wishes[i], its)) chosen = used[i] = true;
    if (!name.empty()) return chosen;
    std::string unused;
    for (size_t i = 0; i < wishes.size(); ++i)
      if (!used[i]) unused += (unused.empty() ? "'" : ", '") + wishes[i] + "'";
    SG_CHECK(unused.empty(), call, ": no module fits ", unused, "; there are ", seen.list(),
             "; choose the modules in a list that has no forward, not the list");
    return chosen;
  };
}

}  // namespace

WrapPolicy wrap_by_type(std::vector<std::string> types) {
  return choose(
      "wrap_by_type", std::move(types), [](const nn::Module& module, const auto&) { return module.type_name(); },
      [](const std::string& type, const std::string& its) { return type == its; });
}

WrapPolicy wrap_by_name(std::vector<std::string> patterns) {
  return choose(
      "wrap_by_name", std::move(patterns), [](const nn::Module&, const std::string& name) { return name; },
      [](const std::string& pattern, const std::string& its) { return matches(pattern, its); });
}

}  // namespace shardgrad::fsdp
