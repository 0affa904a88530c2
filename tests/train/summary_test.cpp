#include <gtest/gtest.h>

#include <map>
#include <set>

#include <shardgrad/autograd/ops.h>
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
  train::Metrics metrics{.loss = 0.125, .scores = {{"accuracy", 0.875}, {"loss", 0.5}}, .test_count = 40};
  std::map<std::string, std::string> shown;
  auto show = [&](dist::ProcessGroup& world) {
    train::Meter meter(20, 1000);
    for (int step = 0; step < 8; ++step) meter.add({zeros({}), zeros({}), {}, 1 << 10}, 12, 0.5);
    TagScope owner(Category::data);
    Tensor batch = empty({1 << 20});
    auto rows = train::summary(config, world, predicted, metrics, meter, 2 << 10);
    std::set<std::string> not_its_own{"peak activation", "peak other", "peak of everything"};
    std::erase_if(rows, [&](const auto& row) { return not_its_own.contains(row.first); });
    if (world.rank() == 0) shown = {rows.begin(), rows.end()};
  };
  dist::run_ranks(2, show, {.threads = 1});
  EXPECT_EQ(shown, (std::map<std::string, std::string>{{"ranks", "2 (threads), 1 thread each"},
                                                       {"strategy", "zero2"},
                                                       {"steps", "8"},
                                                       {"test accuracy", "0.8750 on 40 samples"},
                                                       {"test loss", "0.5000 on 40 samples"},
                                                       {"training loss", "0.12500"},
                                                       {"samples/s", "24"},
                                                       {"sent by a step and rank", "1.0 KiB, predicted 3.0 KiB"},
                                                       {"sent by evaluation", "2.0 KiB in all"},
                                                       {"peak parameter_shard", "0 B, predicted 5.0 KiB"},
                                                       {"peak data", "4.0 MiB"}}));
}

}  // namespace
}  // namespace shardgrad
