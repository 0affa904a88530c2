#include <shardgrad/fsdp/config.h>

#include <algorithm>
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

void check(const Config& config, int world_size) {
  const char* name = name_of(config.strategy);
  SG_CHECK(config.prefetch >= 0, "fully_shard: prefetch is ", config.prefetch, "; it must be 0 or more");
  SG_CHECK(config.prefetch_bytes >= 0, "fully_shard: prefetch_bytes is ", config.prefetch_bytes,
           "; it must be 0 (no bound) or more");
  SG_CHECK(!config.keep_params || config.strategy == Strategy::zero2, "fully_shard: keep_params is for zero2, not ",
           name, "; ddp and zero1 always keep full parameters, zero3 and hybrid never do");
  if (config.strategy == Strategy::hybrid)
    SG_CHECK(config.shard_ranks > 0 && world_size % config.shard_ranks == 0, "fully_shard: shard_ranks is ",
             config.shard_ranks, "; hybrid needs a number of ranks that divides ", world_size,
             ", such as the ranks per node");
  else
    SG_CHECK(config.shard_ranks == 0, "fully_shard: shard_ranks is ", config.shard_ranks, ", but only hybrid has ",
             "groups of ranks; ", name, " has none");
  int64_t bucket_bytes = config.bucket_bytes.value_or(0);
  SG_CHECK(bucket_bytes >= 0, "fully_shard: bucket_bytes is ", bucket_bytes, "; it must be 0 (no buckets) or more");
  SG_CHECK(bucket_bytes == 0 || config.keeps_params(), "fully_shard: bucket_bytes is for ddp, zero1 and ",
           "keep_params; ", name, " gathers a unit when its module is called, so make larger units (Config::wrap)");
  using Choice = std::pair<const char*, std::optional<DType>>;
  for (auto [option, dtype] : {Choice{"param_dtype", config.param_dtype}, Choice{"reduce_dtype", config.reduce_dtype},
                               Choice{"buffer_dtype", config.buffer_dtype}})
    SG_CHECK(!dtype || *dtype == DType::f32 || *dtype == DType::bf16 || *dtype == DType::f16, "fully_shard: ", option,
             " is ", dtype.value_or(DType::f32), "; it must be f32, bf16 or f16");
  bool moves = config.move_params_to_cpu || config.grads_to_cpu();
  SG_CHECK(!moves || !config.keeps_params(), "fully_shard: ", name, config.keep_params ? " with keep_params" : "",
           " keeps full parameters on the device, so nothing is won by moving shards to host memory; use zero2, zero3 ",
           "or hybrid, or leave move_params_to_cpu and move_grads_to_cpu off");
}

WrapPolicy wrap_by_size(int64_t min_numel) {
  return [min_numel](const nn::Module&, int64_t numel) { return numel >= min_numel; };
}

// Asked of the root, it has been asked of every module.
template <class Fits> static WrapPolicy choose(const char* call, std::vector<std::string> wishes, Fits fits) {
  return [=, used = std::vector<bool>(wishes.size())](const nn::Module& module, int64_t) mutable {
    bool chosen = false;
    for (size_t i = 0; i < wishes.size(); ++i)
      if (fits(wishes[i], module)) chosen = used[i] = true;
    if (!module.full_name().empty()) return chosen;
    std::string unused;
    for (size_t i = 0; i < wishes.size(); ++i)
      if (!used[i]) unused += (unused.empty() ? "'" : ", '") + wishes[i] + "'";
    SG_CHECK(unused.empty(), call, ": no module fits ", unused,
             "; look at named_modules(), and choose the modules in a list that has no forward, not the list");
    return chosen;
  };
}

WrapPolicy wrap_by_type(std::vector<std::string> types) {
  return choose("wrap_by_type", std::move(types),
                [](const std::string& type, const nn::Module& module) { return module.type_name() == type; });
}

WrapPolicy wrap_by_name(std::vector<std::string> patterns) {
  return choose("wrap_by_name", std::move(patterns), [](const std::string& pattern, const nn::Module& module) {
    return matches(pattern, module.full_name());
  });
}

}  // namespace shardgrad::fsdp
