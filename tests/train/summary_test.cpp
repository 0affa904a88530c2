#include <gtest/gtest.h>

#include <map>

#include <shardgrad/core/context.h>
#include <shardgrad/dist/group/virtual_ranks.h>
#include <shardgrad/train/data/dataset.h>
#include <shardgrad/train/summary.h>

namespace shardgrad {
namespace {

TEST(Summary, EveryNumberStandsBesideItsName) {
  train::Config config;
  config.strategy = "zero2";
  fsdp::Plan predicted;
  predicted.bytes_sent = 3 << 10;
  predicted.peaks = {{Category::parameter_shard, 5 << 10}, {Category::data, 1 << 10}};
  train::Totals totals{.metrics = {.loss = 0.125, .test_accuracy = 0.875, .test_count = 40},
                       .steps = 7,
                       .samples = 96,
                       .seconds = 4,
                       .step_bytes = 1 << 10,
                       .evaluation_bytes = 2 << 10};
  std::map<std::string, std::string> shown;
  auto show = [&](dist::ProcessGroup& world) {
    TagScope owner(Category::data);
    Tensor batch = empty({1 << 10});
    auto rows = train::summary(config, world, predicted, totals);
    if (world.rank() == 0) shown = {rows.begin(), rows.end()};
  };
  dist::run_ranks(2, show, {.threads = 1});
  EXPECT_EQ(shown, (std::map<std::string, std::string>{{"ranks", "2 (threads), 1 threads each"},
                                                       {"strategy", "zero2"},
                                                       {"steps", "7"},
                                                       {"test accuracy", "0.8750 on 40 samples"},
                                                       {"training loss", "0.12500"},
                                                       {"samples/s", "24"},
                                                       {"sent by a step and rank", "1.0 KiB, predicted 3.0 KiB"},
                                                       {"sent by evaluation", "2.0 KiB in all"},
                                                       {"peak parameter_shard", "0 B, predicted 5.0 KiB"},
                                                       {"peak data", "4.0 KiB"},
                                                       {"peak of everything", "4.0 KiB"}}));
}

}  // namespace
}  // namespace shardgrad
