// What an optimizer does with the pieces of a shard. The owner here is a stand-in for a sharded unit: parameters end to
// end in one storage, each beginning at a multiple of 32 elements.
#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>

#include <shardgrad/autograd/node.h>
#include <shardgrad/autograd/ops.h>
#include <shardgrad/core/context.h>
#include <shardgrad/optim/adam.h>
#include <shardgrad/optim/sgd.h>

namespace shardgrad {
namespace {

/// One rank's shard [begin, end) of a flat parameter.
class Shard {
 public:
  Shard(const std::vector<int64_t>& sizes, int64_t begin, int64_t end) {
    context().ledger().unit_id("unit");
    TagScope tag(Tag{Category::parameter_shard, context().ledger().unit_id("unit")});
    values = zeros({end - begin});
    grad = zeros({end - begin});
    int64_t offset = 0;
    for (size_t i = 0; i < sizes.size(); ++i) {
      int64_t padded = (sizes[i] + 31) / 32 * 32;
      Tensor parameter = zeros({sizes[i]}).set_requires_grad();
      auto sink = std::make_shared<Sink>();
      int64_t first = std::max(begin, offset), last = std::min(end, i + 1 == sizes.size() ? end : offset + padded);
      if (first < last) {
        int64_t count = std::max<int64_t>(0, std::min(last, offset + sizes[i]) - first);
        sink->ranges.push_back({values.rows(first - begin, last - begin), grad.rows(first - begin, last - begin),
                                std::min(first - offset, sizes[i]), count});
        fill(first - begin, count, offset + 31 * int64_t(i));
      }
      leaf_of(parameter).set_sink(sink);
      sinks.push_back(sink);
      parameters.push_back({"p" + std::to_string(i), parameter});
      offset += padded;
    }
  }

  struct Sink final : GradSink {
    std::vector<LocalRange> ranges;
    int cleared = 0, writes = 0;
    bool broken = false;
    Out open() override { return out(ranges.at(0).grad); }
    void ready() override {}
    Tensor grad() const override { return Tensor(); }
    void clear() override { ++cleared; }
    DType dtype() const override { return DType::f32; }
    std::span<const LocalRange> local_ranges() override { return ranges; }
    void written() override {
      ++writes;
      if (broken) throw std::runtime_error("the owner fails");
    }
  };
  /// A copy of every range in bf16, side by side as the ranges are; poisoned.
  void give_copies() {
    copy = full({values.numel()}, std::nan(""), {DType::bf16, kCpu});
    for (auto& sink : sinks)
      for (LocalRange& range : sink->ranges) {
        int64_t at = int64_t(range.values.offset() / sizeof(float));
        range.copy = copy.rows(at, at + range.values.numel());
      }
  }
  std::vector<std::shared_ptr<Sink>> sinks;
  std::vector<NamedParameter> parameters;
  Tensor values, grad, copy;

 private:
  void fill(int64_t at, int64_t count, int64_t seed) {
    for (int64_t i = 0; i < count; ++i) {
      values.data<float>()[at + i] = 0.01f * float(seed + i % 7 + 1);
      grad.data<float>()[at + i] = 0.003f * float((seed + i) % 11 - 5);
    }
  }
};

const std::vector<int64_t> kSizes{40, 5, 64, 3};  // slices at 0, 64, 96, 160; 192 elements with gaps

/// Notes the runs that an update is asked for.
class Watched : public optim::Optimizer {
 public:
  Watched(std::vector<NamedParameter> parameters, optim::Rules rules = {})
      : Optimizer("Watched", std::move(parameters), 1, 0, std::move(rules), {"state"}) {}
  std::vector<int64_t> lengths;
  bool broken = false;

 private:
  void update(Run& run) override {
    if (broken) throw std::runtime_error("the update fails");
    EXPECT_EQ(run.values.numel(), run.grad.numel());
    EXPECT_EQ(run.values.numel(), run.states[0].numel());
    lengths.push_back(run.values.numel());
  }
};

TEST(LocalRanges, AFailedStepTellsItsFirstCause) {
  Context context;
  Shard shard(kSizes, 0, 192);
  shard.sinks[0]->broken = true;
  Watched optimizer(shard.parameters);
  optimizer.broken = true;
  std::string told;
  try {
    optimizer.step();
  } catch (const std::runtime_error& error) {
    told = error.what();
  }
  EXPECT_EQ(told, "the update fails");
  EXPECT_EQ(shard.sinks[0]->writes, 1) << "its owner hears that some of it may be new";
}

TEST(LocalRanges, AWholeShardIsOneRun) {
  Context context;
  Shard shard(kSizes, 0, 192);
  Watched optimizer(shard.parameters);
  optimizer.step();
  EXPECT_EQ(optimizer.lengths, std::vector<int64_t>{192});
}

TEST(LocalRanges, OtherOptionsOrAMissingGradientCutTheRun) {
  Context context;
  Shard shard(kSizes, 0, 192);
  Watched ruled(shard.parameters, {{"p1", {.weight_decay = 0.5}}});
  ruled.step();
  EXPECT_EQ(ruled.lengths, (std::vector<int64_t>{96, 32, 64})) << "the last parameters come first";
  Watched faster(shard.parameters, {{"p1", {.lr_scale = 3}}});
  faster.step();
  EXPECT_EQ(faster.lengths, (std::vector<int64_t>{96, 32, 64})) << "its learning rate is its own";
  shard.sinks[2]->ranges[0].grad = Tensor();
  Watched gap(shard.parameters);
  gap.step();
  EXPECT_EQ(gap.lengths, (std::vector<int64_t>{32, 96}));
}

TEST(LocalRanges, AParameterThatMissedAStepIsUpdatedByItselfFromThenOn) {
  Context context;
  Shard shard(kSizes, 0, 192);
  Watched optimizer(shard.parameters);
  Tensor grad = std::exchange(shard.sinks[1]->ranges[0].grad, Tensor());
  optimizer.step();
  shard.sinks[1]->ranges[0].grad = grad;
  optimizer.step();
  EXPECT_EQ(optimizer.lengths, (std::vector<int64_t>{96, 64, 96, 32, 64}));
}

TEST(LocalRanges, GradientsOrStateThatLieElsewhereCutTheRun) {
  Context context;
  Shard shard(kSizes, 0, 192);
  shard.sinks[2]->ranges[0].grad = zeros({64});
  Watched optimizer(shard.parameters);
  optimizer.step();
  EXPECT_EQ(optimizer.lengths, (std::vector<int64_t>{32, 64, 96}));

  Shard late(kSizes, 0, 192);
  std::vector<LocalRange> ranges = std::exchange(late.sinks[1]->ranges, {});
  Watched grown(late.parameters);
  grown.state_slices();
  late.sinks[1]->ranges = ranges;
  grown.step();
  EXPECT_EQ(grown.lengths, (std::vector<int64_t>{96, 32, 64}));
}

template <class Optimizer, class Options> std::vector<float> updated(bool merged, Options options, int64_t cut) {
  std::vector<float> joined;
  for (auto [begin, end] : {std::pair<int64_t, int64_t>{0, cut}, {cut, 192}}) {
    Shard shard(kSizes, begin, end);
    // Rules that keep neighbours apart and change nothing once rounded to f32.
    optim::Rules apart;
    for (size_t i = 0; !merged && i < kSizes.size(); ++i) {
      double decay = *std::optional<double>(options.weight_decay) * (1 + 1e-15 * double(i));
      EXPECT_TRUE(i == 0 || decay != options.weight_decay);
      apart.push_back({"p" + std::to_string(i), {.weight_decay = decay}});
    }
    Optimizer optimizer(shard.parameters, options, apart);
    for (int step = 0; step < 3; ++step) optimizer.step();
    for (float value : shard.values.to_vector<float>()) joined.push_back(value);
    for (auto& slice : optimizer.state_slices())
      for (float value : slice.values.template to_vector<float>()) joined.push_back(value);
  }
  return joined;
}

TEST(LocalRanges, MergedRunsGiveTheBitsOfSeparateOnes) {
  Context context;
  optim::AdamOptions adam{.lr = 0.01, .weight_decay = 0.1};
  optim::SgdOptions sgd{.lr = 0.01, .momentum = 0.9, .weight_decay = 0.1, .nesterov = true};
  for (int64_t cut : {32, 64, 96, 128, 160}) {
    EXPECT_EQ(updated<optim::AdamW>(true, adam, cut), updated<optim::AdamW>(false, adam, cut)) << cut;
    EXPECT_EQ(updated<optim::SGD>(true, sgd, cut), updated<optim::SGD>(false, sgd, cut)) << cut;
  }
}

/// Knows nothing of copies.
class Plain : public optim::Optimizer {
 public:
  explicit Plain(std::vector<NamedParameter> parameters) : Optimizer("Plain", std::move(parameters), 1, 0, {}, {}) {}

 private:
  void update(Run& run) override { copy_into(run.values, full({run.values.numel()}, 1.0 / 3)); }
};

TEST(LocalRanges, CopiesHoldTheNewValuesWhetherAnUpdateWritesThemOrNot) {
  Context context;
  auto expect_copies = [](const Shard& shard, const char* what) {
    for (int64_t i = 0; i < shard.values.numel(); ++i)
      ASSERT_EQ(float(shard.copy.data<bf16>()[i]), float(bf16(shard.values.data<float>()[i]))) << what << ' ' << i;
  };
  Shard adam(kSizes, 0, 192), sgd(kSizes, 0, 192), plain(kSizes, 0, 192);
  for (Shard* shard : {&adam, &sgd, &plain}) shard->give_copies();
  optim::AdamW(adam.parameters, {.lr = 0.1}).step();
  expect_copies(adam, "AdamW");
  optim::SGD(sgd.parameters, {.lr = 0.1}).step();
  expect_copies(sgd, "SGD");
  Plain(plain.parameters).step();
  expect_copies(plain, "one that knows nothing of them");
}

TEST(LocalRanges, CopiesThatLieElsewhereCutTheRun) {
  Context context;
  Shard shard(kSizes, 0, 192);
  shard.give_copies();
  Watched whole(shard.parameters);
  whole.step();
  EXPECT_EQ(whole.lengths, std::vector<int64_t>{192});
  shard.sinks[1]->ranges[0].copy = full({32}, 0, {DType::bf16, kCpu});
  Watched apart(shard.parameters);
  apart.step();
  EXPECT_EQ(apart.lengths, (std::vector<int64_t>{96, 32, 64}));
  shard.sinks[1]->ranges[0].copy = Tensor();
  Watched missing(shard.parameters);
  missing.step();
  EXPECT_EQ(missing.lengths, (std::vector<int64_t>{96, 32, 64}));
}

TEST(LocalRanges, I10_PaddingStaysZero) {
  Context context;
  Shard shard(kSizes, 0, 192);
  optim::AdamW optimizer(shard.parameters, {.lr = 0.1, .weight_decay = 0.1});
  for (int step = 0; step < 10; ++step) optimizer.step();
  std::vector<float> values = shard.values.to_vector<float>();
  for (auto [begin, end] : {std::pair{40, 64}, {69, 96}, {163, 192}})
    for (int i = begin; i < end; ++i) EXPECT_EQ(values[size_t(i)], 0) << i;
}

TEST(LocalRanges, StateTakesEightBytesPerPaddedElementOfTheUnit) {
  Context context;
  // The third shard holds the end of p3 only, the fourth nothing but padding.
  for (auto [begin, end] : {std::pair{0, 64}, {64, 128}, {128, 192}, {192, 256}}) {
    Shard shard(kSizes, begin, end);
    optim::AdamW optimizer(shard.parameters, {});
    optimizer.step();
    Tag tag{Category::optimizer_state, context.ledger().unit_id("unit")};
    EXPECT_EQ(context.ledger().current(tag), 8 * 64) << begin;
  }
}

TEST(LocalRanges, StateSlicesSayWhichElementsTheyAre) {
  Context context;
  Shard shard(kSizes, 32, 128);  // the end of p0, p1, the first half of p2
  optim::SGD optimizer(shard.parameters, {.momentum = 0.9});
  std::vector<std::tuple<std::string, int64_t, int64_t>> slices;
  for (auto& slice : optimizer.state_slices()) slices.emplace_back(slice.name, slice.begin, slice.values.numel());
  EXPECT_EQ(slices, (std::vector<std::tuple<std::string, int64_t, int64_t>>{
                        {"p0.momentum_buffer", 32, 8}, {"p1.momentum_buffer", 0, 5}, {"p2.momentum_buffer", 0, 32}}));
  EXPECT_THROW(optimizer.state_dict(), Error);
}

TEST(LocalRanges, TheOwnerIsToldOfEveryWrite) {
  Context context;
  Shard shard(kSizes, 0, 64);  // p0 only
  optim::SGD optimizer(shard.parameters, {});
  uint64_t version = shard.values.version();
  optimizer.step();
  EXPECT_EQ(shard.sinks[0]->writes, 1);
  EXPECT_EQ(shard.sinks[1]->writes, 0);
  EXPECT_GT(shard.values.version(), version);
  optimizer.zero_grad();
  for (auto& sink : shard.sinks) EXPECT_EQ(sink->cleared, 1);
}

TEST(LocalRanges, I44_AnOptimizerMadeBeforeShardingIsRefused) {
  Context context;
  Tensor w = ones({4}).set_requires_grad();
  optim::SGD optimizer({{"w", w}}, {});
  leaf_of(w).set_sink(std::make_shared<Shard::Sink>());
  try {
    optimizer.step();
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "SGD: 'w' was sharded after this optimizer was made; make the optimizer after fully_shard");
  }
}

}  // namespace
}  // namespace shardgrad
