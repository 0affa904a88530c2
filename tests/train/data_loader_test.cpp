#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <future>
#include <limits>
#include <mutex>
#include <numeric>
#include <thread>

#include <shardgrad/autograd/ops.h>
#include <shardgrad/core/context.h>
#include <shardgrad/core/rng.h>
#include <shardgrad/train/data/data_loader.h>

#include "temporary_folder.h"

namespace shardgrad {
namespace {

using data::Batch;
using data::DataLoader;
using ::testing::HasSubstr;

// Sample i is the number i.
std::shared_ptr<data::Dataset> numbers(int64_t count) {
  std::vector<int64_t> values(static_cast<size_t>(count));
  std::iota(values.begin(), values.end(), 0);
  return std::make_shared<data::TensorDataset>(std::vector{from_vector(values, {count})});
}

// The samples of one epoch, global batch by global batch, as the ranks together see them.
std::vector<std::vector<int64_t>> samples(int64_t count, int64_t batch, int world_size, int64_t epoch,
                                          bool shuffle = true) {
  std::vector<std::vector<int64_t>> steps;
  for (int rank = 0; rank < world_size; ++rank) {
    DataLoader loader(numbers(count),
                      {.batch = batch, .shuffle = shuffle, .seed = 7, .rank = rank, .world_size = world_size});
    steps.resize(static_cast<size_t>(loader.batches()));
    for (const Batch& part : loader.epoch(epoch)) {
      auto& step = steps[static_cast<size_t>(part.step)];
      EXPECT_EQ(part.first, int64_t(step.size()));
      EXPECT_EQ(part.count, part.fields[0].size(0));
      EXPECT_EQ(part.global_count, std::min(batch, count - part.step * batch));
      auto local = part.fields[0].to_vector<int64_t>();
      step.insert(step.end(), local.begin(), local.end());
    }
  }
  return steps;
}

TEST(DataLoader, EverySampleOncePerEpochForAnyNumberOfRanks) {
  Context context;
  for (int64_t count : {1, 2, 7, 64, 101})
    for (int64_t batch : {1, 3, 8, 200})
      for (int world_size = 1; world_size <= 5; ++world_size) {
        std::vector<int64_t> seen;
        for (const auto& step : samples(count, batch, world_size, 0)) seen.insert(seen.end(), step.begin(), step.end());
        std::sort(seen.begin(), seen.end());
        ASSERT_EQ(seen, numbers(count)->fetch(seen)[0].to_vector<int64_t>());
        ASSERT_EQ(int64_t(seen.size()), count);
        ASSERT_EQ(std::adjacent_find(seen.begin(), seen.end()), seen.end());
      }
}

TEST(DataLoader, GlobalBatchesDoNotDependOnTheNumberOfRanks) {
  Context context;
  for (int world_size = 2; world_size <= 6; ++world_size)
    EXPECT_EQ(samples(50, 16, world_size, 3), samples(50, 16, 1, 3)) << world_size << " ranks";
}

TEST(DataLoader, I49_PartsDifferByAtMostOneSampleAndMayBeEmpty) {
  Context context;
  for (int world_size = 1; world_size <= 6; ++world_size)
    for (int64_t count = 0; count <= 20; ++count) {
      int64_t least = count, most = 0;
      for (int rank = 0; rank < world_size; ++rank) {
        data::Part part = data::part_of(count, rank, world_size);
        least = std::min(least, part.end - part.begin);
        most = std::max(most, part.end - part.begin);
      }
      EXPECT_LE(most - least, 1);
      EXPECT_EQ(data::part_of(count, 0, world_size).end, most) << "rank 0, whose plan is shown, has the most";
      EXPECT_EQ(data::part_of(count, world_size - 1, world_size).end, count);
    }
  std::vector<int64_t> begins;
  for (int rank = 0; rank < 3; ++rank) begins.push_back(data::part_of(7, rank, 3).begin);
  EXPECT_EQ(begins, (std::vector<int64_t>{0, 3, 5}));
  DataLoader loader(numbers(9), {.batch = 4, .rank = 1, .world_size = 4});
  Batch last = loader.get(0, 2);  // one sample for four ranks
  EXPECT_EQ(last.global_count, 1);
  EXPECT_EQ(last.fields[0].shape(), Shape({0}));
}

TEST(DataLoader, OrderIsAFunctionOfSeedAndEpoch) {
  EXPECT_EQ(data::sample_order(1000, 1, 2), data::sample_order(1000, 1, 2));
  EXPECT_NE(data::sample_order(1000, 1, 2), data::sample_order(1000, 1, 3));
  EXPECT_NE(data::sample_order(1000, 1, 2), data::sample_order(1000, 2, 2));
}

TEST(DataLoader, AnyStepCanBeAskedForWithoutTheStepsBeforeIt) {
  Context context;
  DataLoader all(numbers(40), {.batch = 8, .seed = 7}), some(numbers(40), {.batch = 8, .seed = 7});
  std::vector<std::vector<int64_t>> expected = samples(40, 8, 1, 5);
  EXPECT_EQ(some.get(5, 3).fields[0].to_vector<int64_t>(), expected[3]);
  EXPECT_EQ(some.get(1, 0).fields[0].to_vector<int64_t>(), samples(40, 8, 1, 1)[0]);
  EXPECT_EQ(some.get(5, 3).fields[0].to_vector<int64_t>(), expected[3]);
}

// Each place of the order holds each sample equally often: 200 orders of 20, expected 10 times, deviation 3.1.
TEST(DataLoader, OrdersAreUniform) {
  std::vector<int> counts(20 * 20);
  for (int64_t epoch = 0; epoch < 200; ++epoch) {
    auto order = data::sample_order(20, 11, epoch);
    for (size_t place = 0; place < 20; ++place) ++counts[place * 20 + size_t(order[place])];
  }
  double chi_square = 0;
  for (int count : counts) chi_square += (count - 10.0) * (count - 10.0) / 10.0;
  EXPECT_LT(chi_square, 19 * 19 + 5 * 27);  // 361 degrees of freedom, five standard deviations
}

TEST(DataLoader, WithoutShuffleTheOrderIsTheDataSets) {
  Context context;
  std::vector<std::vector<int64_t>> expected{{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9}};
  EXPECT_EQ(samples(10, 4, 3, 0, false), expected);
  EXPECT_EQ(samples(10, 4, 3, 9, false), expected);
}

TEST(DataLoader, BatchesAreOnTheDeviceThatIsAskedFor) {
  Context context;
  DataLoader loader(numbers(7), {.batch = 4, .shuffle = false, .device = kAcc});
  Tensor last = loader.get(0, 1).fields[0];
  EXPECT_EQ(last.device(), kAcc);
  EXPECT_EQ(last.to_vector<int64_t>(), (std::vector<int64_t>{4, 5, 6}));
}

// Memory of the host that a device's stream has read is anybody's after it, as the checker of streams knows.
TEST(DataLoader, WhatABatchWasReadIntoIsUsedAgainByTheHost) {
  Context context({.check_streams = true});
  auto rows = std::make_shared<data::TensorDataset>(std::vector{ones({32, 1 << 16})});
  DataLoader loader(rows, {.batch = 4, .device = kAcc});
  double total = 0;
  for (data::Batch batch : loader.epoch(0)) {
    total += sum(batch.fields[0]).item();
    Tensor mine = full({4, 1 << 16}, 2);  // of a batch's size
    total += sum(mine + mine).item() / 4;
  }
  EXPECT_EQ(total, 2 * 32.0 * (1 << 16));
}

// Of large ones this and the one that is read ahead, whichever thread is faster.
TEST(DataLoader, OneOrTwoBatchesAreOwnedAsDataInTheLedger) {
  Context context;
  for (auto [width, held] : {std::pair{1, 1}, std::pair{4096, 2}}) {
    auto rows = std::make_shared<data::TensorDataset>(std::vector{zeros({32, width})});
    DataLoader loader(rows, {.batch = 8});
    int64_t before = context.ledger().current(Category::data), bytes = 8 * 4 * width;
    context.ledger().reset_peaks();
    for (int64_t step = 0; step < 3; ++step) {
      Batch batch = loader.get(0, step);
      EXPECT_EQ(context.ledger().current(Category::data) - before, held * bytes) << width << ", step " << step;
    }
    Batch last = loader.get(0, 3);
    EXPECT_EQ(context.ledger().current(Category::data) - before, bytes) << "nothing comes after it";
    EXPECT_EQ(context.ledger().peak(Category::data) - before, held * bytes);
  }
}

TEST(DataLoader, ABatchLargerThanTheDataSetIsAllOfIt) {
  Context context;
  DataLoader loader(numbers(5), {.batch = std::numeric_limits<int64_t>::max()});
  EXPECT_EQ(loader.batches(), 1);
  EXPECT_EQ(loader.get(0, 0).count, 5);
}

TEST(DataLoader, RefusesWhatCannotWork) {
  Context context;
  EXPECT_THAT(error_of([] { DataLoader(numbers(0), {}); }), HasSubstr("the data set is empty"));
  EXPECT_THAT(error_of([] { DataLoader(numbers(4), {.batch = 0}); }), HasSubstr("batch is 0"));
  EXPECT_THAT(error_of([] { DataLoader(numbers(4), {.rank = 2, .world_size = 2}); }), HasSubstr("rank 2 of 2"));
  DataLoader loader(numbers(4), {.batch = 2});
  EXPECT_THAT(error_of([&] { loader.get(0, 2); }), HasSubstr("step 2 of epoch 0 does not exist; an epoch has 2"));
  EXPECT_THAT(error_of([] { numbers(4)->fetch(std::vector<int64_t>{4}); }), HasSubstr("sample 4 does not exist"));
}

// Sample i is the number i, often enough that batches are read ahead; who reads is told by `on_read`.
class Watched : public data::Dataset {
 public:
  static constexpr int64_t kWidth = 4096;
  Watched(int64_t count, std::function<void(std::span<const int64_t>)> on_read)
      : count_(count), on_read_(std::move(on_read)) {}
  int64_t size() const override { return count_; }
  std::vector<data::Field> fields() const override { return {{{kWidth}, DType::i64}}; }
  void read(std::span<const int64_t> indices, std::span<void* const> to) const override {
    on_read_(indices);
    auto* out = static_cast<int64_t*>(to[0]);
    for (int64_t index : indices) out = std::fill_n(out, kWidth, index);
  }
  uint64_t fingerprint() const override { return 0; }

 private:
  int64_t count_;
  std::function<void(std::span<const int64_t>)> on_read_;
};
DataLoader watched_loader(int64_t count, std::function<void(std::span<const int64_t>)> on_read) {
  return {std::make_shared<Watched>(count, std::move(on_read)), {.batch = 2, .shuffle = false}};
}
using Samples = std::vector<int64_t>;
Samples samples_of(const Batch& batch) {
  auto values = batch.fields[0].to_vector<int64_t>();
  Samples samples;
  for (size_t i = 0; i < values.size(); i += Watched::kWidth) {
    samples.push_back(values[i]);
    EXPECT_EQ(std::count(values.begin() + i, values.begin() + i + Watched::kWidth, values[i]), Watched::kWidth);
  }
  return samples;
}

TEST(ReadingAhead, TheNextBatchOfTheEpochIsReadWhileOneIsUsed) {
  Context context;
  std::promise<std::thread::id> second;
  std::atomic<int> reads = 0;
  DataLoader loader = watched_loader(4, [&](std::span<const int64_t> indices) {
    ++reads;
    if (indices[0] == 2) second.set_value(std::this_thread::get_id());
  });
  Batch first = loader.get(0, 0);
  std::future<std::thread::id> reader = second.get_future();
  ASSERT_EQ(reader.wait_for(std::chrono::seconds(60)), std::future_status::ready);
  EXPECT_NE(reader.get(), std::this_thread::get_id());
  EXPECT_EQ(samples_of(loader.get(0, 1)), (Samples{2, 3}));
  EXPECT_EQ(reads, 2) << "and nothing after the last";
}

TEST(ReadingAhead, AJumpToAnyStepOrEpochGivesItsBatch) {
  Context context;
  DataLoader loader(std::make_shared<Watched>(40, [](auto) {}), {.batch = 8, .seed = 7});
  std::vector<std::vector<std::vector<int64_t>>> epochs;
  for (int64_t epoch = 0; epoch < 4; ++epoch) epochs.push_back(samples(40, 8, 1, epoch));
  for (uint64_t i = 0; i < 300; ++i) {
    auto at = philox(5, 0, i);
    int64_t epoch = at[0] % 4, step = at[1] % 5;
    EXPECT_EQ(samples_of(loader.get(epoch, step)), epochs[size_t(epoch)][size_t(step)]);
    if (at[2] % 2 == 0 || step == 4) continue;
    EXPECT_EQ(samples_of(loader.get(epoch, step + 1)), epochs[size_t(epoch)][size_t(step + 1)]);
  }
}

TEST(ReadingAhead, WhatReadingThrowsIsThrownWhereTheBatchIsAskedFor) {
  Context context;
  std::atomic<bool> broken = true;
  DataLoader loader = watched_loader(8, [&](std::span<const int64_t> indices) {
    if (indices[0] == 2 && broken) fail("sample 2 is broken");
  });
  EXPECT_EQ(samples_of(loader.get(0, 0)), (Samples{0, 1})) << "not before";
  EXPECT_EQ(error_of([&] { loader.get(0, 1); }), "sample 2 is broken");
  EXPECT_EQ(error_of([&] { loader.get(0, 1); }), "sample 2 is broken") << "nor is it forgotten";
  EXPECT_EQ(samples_of(loader.get(0, 0)), (Samples{0, 1}));
  EXPECT_EQ(samples_of(loader.get(0, 2)), (Samples{4, 5})) << "a batch that is not asked for breaks nothing";
  EXPECT_EQ(samples_of(loader.get(0, 3)), (Samples{6, 7}));
  broken = false;
  EXPECT_EQ(samples_of(loader.get(0, 1)), (Samples{2, 3}));
}

TEST(ReadingAhead, ALoaderMayGoWhileItReads) {
  Context context;
  for (int i = 0; i < 20; ++i) {
    DataLoader loader = watched_loader(8, [](auto) { std::this_thread::sleep_for(std::chrono::milliseconds(1)); });
    loader.get(0, 0);
    DataLoader moved = std::move(loader);
    if (i % 2 == 0) continue;
    EXPECT_EQ(samples_of(moved.get(0, 1)), (Samples{2, 3}));
  }
  std::optional<DataLoader> outlives;
  {
    Context inner;
    outlives.emplace(watched_loader(8, [](auto) { std::this_thread::sleep_for(std::chrono::milliseconds(5)); }));
    outlives->get(0, 0);
  }
}

// 1e-20 squared is subnormal: it counts as zero in the thread that reads ahead as in any other that computes.
TEST(ReadingAhead, BothThreadsComputeAlike) {
  Context context;
  std::mutex mutex;
  std::vector<float> squares;
  DataLoader loader = watched_loader(6, [&](std::span<const int64_t>) {
    volatile float small = 1e-20f;
    std::lock_guard lock(mutex);
    squares.push_back(small * small);
  });
  for (int64_t step = 0; step < 3; ++step) loader.get(0, step);
  EXPECT_EQ(squares, (std::vector<float>{0, 0, 0}));
}

TEST(Dataset, FieldsAreWhatFetchGives) {
  Context context;
  data::TensorDataset dataset({zeros({5, 2, 3}), zeros({5}, DType::i64)}, {{1}, {2}});
  EXPECT_EQ(dataset.fields(), (std::vector<data::Field>{{{2, 3}, DType::f32}, {{}, DType::i64}}));
  auto rows = dataset.fetch(std::vector<int64_t>{4, 4});
  EXPECT_EQ(rows[0].shape(), Shape({2, 2, 3}));
  EXPECT_EQ(rows[1].shape(), Shape({2}));
  EXPECT_EQ(dataset.input_transform(), (data::Standardisation{{1}, {2}}));
  EXPECT_EQ(numbers(3)->input_transform(), data::Standardisation{});
}

TEST(TensorDataset, FieldsMustHaveTheSameNumberOfSamples) {
  Context context;
  EXPECT_THAT(error_of([] {
                data::TensorDataset({empty({3, 2}), empty({4})});
              }),
              HasSubstr("fields have shapes [3, 2] and [4]"));
  EXPECT_THAT(error_of([] { data::TensorDataset({empty({3}, kAcc)}); }), HasSubstr("copy it with .to(kCpu)"));
}

}  // namespace
}  // namespace shardgrad
