#include <shardgrad/fsdp/setup/config.h>

#include <cctype>

#include <shardgrad/autograd/match.h>

namespace shardgrad::fsdp {

const char* name_of(Strategy strategy) {
  constexpr const char* names[] = {"ddp", "zero1", "zero2", "zero3", "hybrid"};
  return names[int(strategy)];
}

Strategy parse_strategy(std::string_view name) {
  struct Name {
    std::string_view name;
    Strategy strategy;
  };
  constexpr Name names[] = {
      {"ddp", Strategy::ddp},           {"noshard", Strategy::ddp},   {"zero1", Strategy::zero1},
      {"oss", Strategy::zero1},         {"zero2", Strategy::zero2},   {"shardgradop", Strategy::zero2},
      {"shardedddp", Strategy::zero2},  {"zero3", Strategy::zero3},   {"fsdp", Strategy::zero3},
      {"fullshard", Strategy::zero3},   {"hybrid", Strategy::hybrid}, {"hsdp", Strategy::hybrid},
      {"hybridshard", Strategy::hybrid}};
  std::string plain;
  for (char c : name)
    if (c != '-' && c != '_') plain += char(std::tolower(uint8_t(c)));
  for (const Name& known : names)
    if (known.name == plain) return known.strategy;
  fail("unknown strategy '", name, "'; choose one of ddp (no_shard), zero1 (oss), zero2 (shard_grad_op, sharded_ddp), ",
       "zero3 (fsdp, full_shard), hybrid (hsdp, hybrid_shard)");
}

int Config::parts(int world_size) const {
  if (strategy == Strategy::ddp) return 1;
  return strategy == Strategy::hybrid ? shard_ranks : world_size;
}

WrapPolicy wrap_by_size(int64_t min_numel) {
  return [min_numel](const nn::Module&, const std::string&, int64_t numel) { return numel >= min_numel; };
}

// Asked of the root, it has been asked of every module.
template <class Fits> static WrapPolicy choose(const char* call, std::vector<std::string> wishes, Fits fits) {
  return
      [=, used = std::vector<bool>(wishes.size())](const nn::Module& module, const std::string& name, int64_t) mutable {
        bool chosen = false;
        for (size_t i = 0; i < wishes.size(); ++i)
          if (fits(wishes[i], module, name)) chosen = used[i] = true;
        if (!name.empty()) return chosen;
        std::string unused;
        for (size_t i = 0; i < wishes.size(); ++i)
          if (!used[i]) unused += (unused.empty() ? "'" : ", '") + wishes[i] + "'";
        SG_CHECK(unused.empty(), call, ": no module fits ", unused,
                 "; look at named_modules(), and choose the modules in a list that has no forward, not the list");
        return chosen;
      };
}

WrapPolicy wrap_by_type(std::vector<std::string> types) {
  return choose(
      "wrap_by_type", std::move(types),
      [](const std::string& type, const nn::Module& module, const std::string&) { return module.type_name() == type; });
}

WrapPolicy wrap_by_name(std::vector<std::string> patterns) {
  return choose("wrap_by_name", std::move(patterns),
                [](const std::string& pattern, const nn::Module&, const auto& name) { return matches(pattern, name); });
}

}  // namespace shardgrad::fsdp
