#include <shardgrad/fsdp/setup/options.h>

#include <algorithm>

namespace shardgrad::fsdp {

template <class T> static void check_value(const char* option, const T& value) {
  if constexpr (kIsOptional<T>) {
    if (value) check_value(option, *value);
  } else if constexpr (std::is_same_v<T, DType>) {
    SG_CHECK(std::ranges::count(kDTypes, value), "fully_shard: ", option, " is ", value,
             "; it must be f32, bf16 or f16");
  } else {
    SG_CHECK(int64_t(value) >= 0, "fully_shard: ", option, " is ", value, "; it must be 0 or more");
  }
}

// The nearest numbers to `ranks` that divide `parts`.
static std::string nearest(int ranks, int parts) {
  int below = std::min(ranks, parts), above = ranks;
  while (parts % below != 0) --below;
  while (above < parts && parts % above != 0) ++above;
  return above <= parts && above != below ? concat(below, " or ", above) : std::to_string(below);
}

void check_reshard(const std::string& who, const Config& config, int parts) {
  int ranks = config.reshard_after_forward;
  check_value("reshard_after_forward", ranks);
  if (ranks == 0) return;
  bool reshards = config.strategy == Strategy::zero3 || config.strategy == Strategy::hybrid;
  SG_CHECK(reshards, who, ": reshard_after_forward is ", ranks, ", but ", name_of(config.strategy),
           " keeps full parameters ", config.keeps_params() ? "always" : "until backward",
           "; use zero3 or hybrid, or leave it 0");
  SG_CHECK(parts % ranks == 0, who, ": reshard_after_forward is ", ranks,
           "; groups of as many ranks do not divide the ", parts, " that the parameters are split over; choose ",
           nearest(ranks, parts));
}

void check(const Config& config, int world_size) {
  const char* name = name_of(config.strategy);
  visit_options(config, [](const char* option, const auto& value, const char*) { check_value(option, value); });
  SG_CHECK(!config.keep_params || config.strategy == Strategy::zero2, "fully_shard: keep_params is for zero2, not ",
           name, "; ddp and zero1 always keep full parameters, zero3 and hybrid never do");
  if (config.strategy == Strategy::hybrid)
    SG_CHECK(config.shard_ranks > 0 && world_size % config.shard_ranks == 0, "fully_shard: shard_ranks is ",
             config.shard_ranks, "; hybrid needs a number of ranks that divides ", world_size,
             ", such as the ranks per node");
  else
    SG_CHECK(config.shard_ranks == 0, "fully_shard: shard_ranks is ", config.shard_ranks, ", but only hybrid has ",
             "groups of ranks; ", name, " has none");
  check_reshard("fully_shard", config, config.parts(world_size));
  SG_CHECK(!config.bucket_bytes || config.keeps_params(), "fully_shard: bucket_bytes is for ddp, zero1 and ",
           "keep_params; ", name, " reduces a unit's gradients together, so leave it unset and choose the size of ",
           "units (Config::wrap)");
  bool moves = config.move_params_to_cpu || config.grads_to_cpu();
  SG_CHECK(!moves || !config.keeps_params(), "fully_shard: ", name, config.keep_params ? " with keep_params" : "",
           " keeps full parameters on the device, so nothing is won by moving shards to host memory; use zero2, zero3 ",
           "or hybrid, or leave move_params_to_cpu and move_grads_to_cpu off");
}

}  // namespace shardgrad::fsdp
