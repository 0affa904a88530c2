#include <shardgrad/train/loaders.h>

#include <shardgrad/core/context.h>
#include <shardgrad/core/rng.h>
#include <shardgrad/train/agreement.h>

namespace shardgrad::train {

using data::FashionMnist;

data::DataLoader make_loader(const Config& config, dist::ProcessGroup& world, FashionMnist::Split split) {
  return {std::make_shared<FashionMnist>(config.data.dir, split),
          {.batch = config.batch,
           .shuffle = split == FashionMnist::Split::train,
           .seed = uint64_t(config.seed),
           .rank = world.rank(),
           .world_size = world.size(),
           .device = context().default_device()}};
}

void check_start(const Config& config, dist::ProcessGroup& world, const data::DataLoader& train,
                 const data::DataLoader& test) {
  const auto& layers = config.model.layers;
  SG_CHECK(layers.front() == FashionMnist::kPixels && layers.back() == FashionMnist::kClasses,
           "model.layers begins with ", layers.front(), " and ends with ", layers.back(),
           "; fashion_mnist has pictures of ", FashionMnist::kPixels, " pixels and ", FashionMnist::kClasses,
           " classes");
  int64_t steps = train.batches() * config.epochs;
  SG_CHECK(config.schedule.warmup_steps <= steps, "schedule.warmup_steps is ", config.schedule.warmup_steps,
           ", but the run has only ", steps, " steps and would end before the warm-up; set fewer, or more epochs");
  check_same(world, "the configuration", stream_of(to_json(config)));
  check_same(world, "the training data", train.dataset().fingerprint());
  check_same(world, "the test data", test.dataset().fingerprint());
}

}  // namespace shardgrad::train
