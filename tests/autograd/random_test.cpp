// Random numbers by name: each call draws others, and a run that is repeated draws them again.

#include <algorithm>

#include <shardgrad/autograd/recompute.h>
#include <tests/autograd/support.h>

namespace shardgrad::test {
namespace {

TEST(Generator, EveryCallGivesOtherNumbersAndEveryRunTheSame) {
  auto run = [](uint64_t seed) {
    Context context({.seed = seed});
    Generator noise("noise");
    std::vector<std::vector<double>> drawn;
    for (uint64_t step : {0, 1}) {
      progress() = {step};
      for (int i = 0; i < 2; ++i) drawn.push_back(values(noise.randn({7})));
      drawn.push_back(values(randn({7}, "noise")));
      drawn.push_back(values(randn({7}, "other")));
      drawn.push_back(values(Generator("third").rand({7})));
    }
    return drawn;
  };
  auto first = run(1);
  EXPECT_EQ(run(1), first);
  auto other = run(2);
  for (size_t i = 0; i < first.size(); ++i) {
    EXPECT_NE(first[i], other[i]);
    for (size_t j = 0; j < i; ++j) EXPECT_NE(first[i], first[j]) << i << " and " << j;
  }
}

TEST(Generator, ARunThatIsResumedDrawsWhatItWouldHaveDrawn) {
  auto step_two = [](bool from_the_beginning) {
    Context context;
    Generator noise("noise");
    for (uint64_t step = from_the_beginning ? 0 : 2; step < 2; ++step) {
      progress() = {step};
      noise.randn({3});
    }
    progress() = {2};
    return values(noise.randn({3}));
  };
  EXPECT_EQ(step_two(false), step_two(true));
}

TEST(ManualSeed, BeginsEveryKindOfNumberAnew) {
  Context context;
  auto draw = [] {
    std::vector<std::vector<double>> drawn{values(randn({3})),
                                           values(randn({3})),
                                           values(rand({3}, "name")),
                                           values(randint(0, 1000, {3})),
                                           values(randperm(9)),
                                           values(dropout(ones({64}), 0.5)),
                                           values(bernoulli(full({64}, 0.5))),
                                           values(multinomial(ones({99}), 3))};
    return drawn;
  };
  manual_seed(7);
  auto first = draw();
  EXPECT_NE(first[0], first[1]);
  EXPECT_NE(draw(), first);
  manual_seed(7);
  EXPECT_EQ(draw(), first);
  manual_seed(8);
  auto other = draw();
  for (size_t i = 0; i < first.size(); ++i) EXPECT_NE(other[i], first[i]) << i;
  Context seven({.seed = 7});
  EXPECT_EQ(draw(), first);
}

// Column k of a row is drawn where the uniform number lies between the sums before and with weight k.
TEST(Multinomial, WithReplacementCountsTheSumsThatAreAtMostTheNumber) {
  Context context;
  for (int64_t columns : {1, 2, 3, 7, 64, 1000}) {
    Tensor p = rand({3, columns}, "weights", DType::f64);
    p = cat({full({3, 1}, 1e-3, DType::f64), where(p < 0.2, zeros_like(p), p)}, 1);
    manual_seed(uint64_t(columns));
    std::vector<double> drawn = values(multinomial(p, 50, "draw", true));
    manual_seed(uint64_t(columns));
    Tensor sums = cumsum(p, 1);
    std::vector<double> u = values(rand({3, 50}, "draw", DType::f64)), all = values(sums);
    for (size_t i = 0; i < drawn.size(); ++i) {
      auto row = all.begin() + std::ptrdiff_t(i / 50) * (columns + 1), end = row + columns + 1;
      auto at = std::min(std::upper_bound(row, end, u[i] * end[-1]), std::lower_bound(row, end, end[-1]));
      EXPECT_EQ(drawn[i], double(at - row)) << columns << " columns";
    }
  }
}

TEST(Multinomial, WithReplacementTakesMemoryForWeightsAndDrawsAlone) {
  Context context;
  Tensor p = ones({2, 4000});
  context.ledger().reset_peaks();
  EXPECT_EQ(multinomial(p, 3000, "many", true).shape(), (Shape{2, 3000}));
  EXPECT_LT(context.ledger().peak(), 2 * (4000 + 3000) * 8 * 10);
}

TEST(ManualSeed, BetweenForwardAndBackwardLeavesRecomputedNumbersAsTheyWere) {
  auto gradient = [](bool recompute) {
    Context context;
    manual_seed(3);
    Tensor x = leaf({1, 2, 3, 4, 5, 6, 7, 8}, {8});
    auto body = [](const Tensor& t) { return mul(dropout(t, 0.5), mul(t, randn({8}))); };
    Tensor y = recompute ? checkpoint(body, x) : body(x);
    manual_seed(4);
    Tensor next = randn({3});
    sum(y).backward();
    EXPECT_EQ(progress().draws.counts().size(), 1u);
    manual_seed(4);
    EXPECT_EQ(bits(randn({3})), bits(next));
    return bits(x.grad());
  };
  EXPECT_EQ(gradient(true), gradient(false));
}

TEST(ManualSeed, CallsWithoutANameShareOneSequence) {
  Context context;
  Tensor first = randn({3}), second = randn({3}, DType::f64);
  progress() = {};
  EXPECT_EQ(bits(randn_like(first)), bits(first));
  EXPECT_EQ(bits(randn_like(second)), bits(second));
  Tensor third = rand({3});
  progress() = {};
  for (int i = 0; i < 2; ++i) rand({3});
  EXPECT_EQ(bits(rand_like(third)), bits(third));
}

TEST(Generator, RecomputeDrawsTheSameNumbers) {
  auto gradient = [](bool recompute) {
    Context context;
    Tensor x = leaf({1, 2, 3}, {3});
    Generator noise("noise");
    auto body = [&](const Tensor& t) { return mul(tanh(mul(t, noise.randn({3}))), dropout(t, 0.5)); };
    noise.randn({3});
    Tensor y = recompute ? checkpoint(body, x) : body(x);
    noise.randn({3});
    sum(y).backward();
    return bits(x.grad());
  };
  EXPECT_EQ(gradient(true), gradient(false));
}

TEST(Generator, ANameIsNotTheDropoutOfThatName) {
  Context context;
  std::vector<double> kept = values(dropout(ones({1000}), 0.5, "a")), drawn = values(rand({1000}, "a"));
  int same = 0;
  for (size_t i = 0; i < 1000; ++i) same += (kept[i] != 0) == (drawn[i] >= 0.5);
  EXPECT_NEAR(same, 500, 100);
}

TEST(Generator, DoublesHave53Bits) {
  Context context;
  int finer = 0;
  for (double value : values(rand({1000}, "u", DType::f64))) {
    EXPECT_TRUE(value >= 0 && value < 1);
    finer += value * 0x1p24 != std::floor(value * 0x1p24);
  }
  EXPECT_GT(finer, 990);
}

TEST(DropoutFunction, EveryCallHasAMaskOfItsOwnAndRanksTheirRows) {
  Context context;
  Tensor x = ones({8, 16});
  std::vector<double> first = values(dropout(x, 0.5)), second = values(dropout(x, 0.5));
  EXPECT_NE(first, second);
  EXPECT_NE(values(dropout(x, 0.5, "attention")), first);
  progress() = {};
  EXPECT_EQ(values(dropout(x, 0.5)), first);
  progress() = {.first_sample = 2};
  EXPECT_EQ(values(dropout(ones({6, 16}), 0.5)), std::vector<double>(first.begin() + 2 * 16, first.end()));
}

TEST(DropoutFunction, B42_RanksThatWereNotToldWhichSamplesTheyHaveDrawMasksOfTheirOwn) {
  std::vector<std::vector<double>> masks, together;
  for (int rank : {0, 1, 2}) {
    Context context({.rank = rank, .world_size = 3, .seed = 4});
    masks.push_back(values(dropout(ones({8, 16}), 0.5)));
    progress() = {.first_sample = 0};
    together.push_back(values(dropout(ones({8, 16}), 0.5)));
  }
  EXPECT_NE(masks[0], masks[1]);
  EXPECT_NE(masks[1], masks[2]);
  EXPECT_NE(masks[0], masks[2]);
  EXPECT_EQ(together[0], together[2]) << "of the same samples";
  EXPECT_EQ(masks[0], together[0]) << "a rank alone draws what it drew";
}

}  // namespace
}  // namespace shardgrad::test
