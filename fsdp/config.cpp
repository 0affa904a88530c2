#include <shardgrad/fsdp/config.h>

#include <algorithm>

namespace shardgrad::fsdp {

const char* name_of(Strategy strategy) {
  constexpr const char* names[] = {"ddp", "zero2", "zero3"};
  return names[int(strategy)];
}

Strategy parse_strategy(std::string_view name) {
  struct Name {
    std::string_view name;
    Strategy strategy;
  };
  constexpr Name names[] = {
      {"ddp", Strategy::ddp},         {"no_shard", Strategy::ddp},        {"zero2", Strategy::zero2},
      {"zero3", Strategy::zero3},     {"shard_grad_op", Strategy::zero2}, {"fsdp", Strategy::zero3},
      {"full_shard", Strategy::zero3}};
  for (const Name& known : names)
    if (known.name == name) return known.strategy;
  fail("unknown strategy '", name, "'; choose one of ddp (no_shard), zero2 (shard_grad_op), zero3 (fsdp, full_shard)");
}

WrapPolicy wrap_by_size(int64_t min_numel) {
  return [min_numel](const nn::Module&, int64_t numel) { return numel >= min_numel; };
}

WrapPolicy wrap_by_type(std::vector<std::string> types) {
  return [types = std::move(types)](const nn::Module& module, int64_t) {
    return std::ranges::find(types, module.type_name()) != types.end();
  };
}

}  // namespace shardgrad::fsdp
