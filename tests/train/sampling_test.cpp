// Sampling: what is drawn has the probabilities of the softmax, top_k and top_p leave exactly what they say, and a draw
// is a function of seed, sample and position.

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <vector>

#include <shardgrad/train/sampling.h>
#include <tests/autograd/support.h>

namespace shardgrad::test {
namespace {

using train::sample_token;
using train::SamplingOptions;

std::map<int64_t, int64_t> counts_of(const std::vector<float>& logits, const SamplingOptions& options, int64_t draws) {
  std::map<int64_t, int64_t> counts;
  for (int64_t position = 0; position < draws; ++position) ++counts[sample_token(logits, options, 0, position)];
  return counts;
}
std::set<int64_t> drawn_of(const std::vector<float>& logits, const SamplingOptions& options) {
  std::set<int64_t> tokens;
  for (auto [token, count] : counts_of(logits, options, 2000)) tokens.insert(token);
  return tokens;
}

// 6 degrees of freedom: chi-square is above 22.5 once in a thousand; the draws are always the same.
TEST(Sampling, DrawsWithTheProbabilitiesOfTheSoftmax) {
  const std::vector<float> logits = {0.3f, -1, 2, 0, 1.1f, -2, 0.7f};
  for (double temperature : {0.5, 1.0, 2.0}) {
    constexpr int64_t kDraws = 20000;
    auto counts = counts_of(logits, {.temperature = temperature, .seed = 3}, kDraws);
    double sum = 0, square = 0;
    for (float logit : logits) sum += std::exp(double(logit) / temperature);
    for (size_t i = 0; i < logits.size(); ++i) {
      double expected = double(kDraws) * std::exp(double(logits[i]) / temperature) / sum;
      square += std::pow(double(counts[int64_t(i)]) - expected, 2) / expected;
    }
    EXPECT_LT(square, 22.5) << temperature;
  }
}

TEST(Sampling, IsAFunctionOfSeedSampleAndPosition) {
  const std::vector<float> logits(50);
  auto draw = [&](uint64_t seed, int64_t sample, int64_t position) {
    return sample_token(logits, {.seed = seed}, sample, position);
  };
  std::set<std::vector<int64_t>> sequences;
  for (uint64_t seed : {0, 1})
    for (int64_t sample : {0, 1, 2}) {
      std::vector<int64_t> tokens, again;
      for (int64_t position = 0; position < 20; ++position) tokens.push_back(draw(seed, sample, position));
      for (int64_t position = 19; position >= 0; --position) again.insert(again.begin(), draw(seed, sample, position));
      EXPECT_EQ(tokens, again);
      sequences.insert(tokens);
    }
  EXPECT_EQ(sequences.size(), 6u);
}

TEST(Sampling, TopKLeavesExactlySoManyOfEqualOnesTheFirst) {
  const std::vector<float> logits = {1, 3, 2, 3, 2, 2, 0};
  EXPECT_EQ(drawn_of(logits, {.top_k = 2}), (std::set<int64_t>{1, 3}));
  EXPECT_EQ(drawn_of(logits, {.top_k = 3}), (std::set<int64_t>{1, 2, 3}));
  EXPECT_EQ(drawn_of(logits, {.top_k = 4}), (std::set<int64_t>{1, 2, 3, 4}));
  EXPECT_EQ(drawn_of(logits, {.top_k = 1}), (std::set<int64_t>{1}));
  EXPECT_EQ(drawn_of(logits, {.top_k = 100}).size(), 7u);
}

TEST(Sampling, TopPLeavesAsFewAsHaveItsShare) {
  auto log = [](std::vector<double> p) {
    std::vector<float> logits;
    for (double each : p) logits.push_back(float(std::log(each)));
    return logits;
  };
  const std::vector<float> logits = log({0.1, 0.4, 0.2, 0.3});
  EXPECT_EQ(drawn_of(logits, {.top_p = 1e-9}), (std::set<int64_t>{1}));
  EXPECT_EQ(drawn_of(logits, {.top_p = 0.39}), (std::set<int64_t>{1}));
  EXPECT_EQ(drawn_of(logits, {.top_p = 0.41}), (std::set<int64_t>{1, 3}));
  EXPECT_EQ(drawn_of(logits, {.top_p = 0.71}), (std::set<int64_t>{1, 2, 3}));
  EXPECT_EQ(drawn_of(logits, {.top_p = 0.91}).size(), 4u);
  // four quarters are exact: the first two are half, and no more than they are needed for it
  EXPECT_EQ(drawn_of({0, 0, 0, 0}, {.top_p = 0.5}), (std::set<int64_t>{0, 1}));
  EXPECT_EQ(drawn_of({0, 0, 0, 0}, {.top_p = 0.51}), (std::set<int64_t>{0, 1, 2}));
  // shares are of what top_k has left, at the temperature that is asked for
  EXPECT_EQ(drawn_of(logits, {.top_k = 2, .top_p = 0.6}), (std::set<int64_t>{1, 3}));
  EXPECT_EQ(drawn_of(logits, {.top_k = 2, .top_p = 0.55}), (std::set<int64_t>{1}));
  EXPECT_EQ(drawn_of(logits, {.temperature = 0.25, .top_p = 0.7}), (std::set<int64_t>{1}));
}

TEST(Sampling, TheLimitsOfTemperatureAreGreedyAndUniform) {
  const std::vector<float> logits = {1, 5, 5, -2}, low = {-100, -1e30f, -INFINITY, -99};
  EXPECT_EQ(drawn_of(logits, {.temperature = 0}), (std::set<int64_t>{1}));
  EXPECT_EQ(drawn_of(low, {.temperature = 0}), (std::set<int64_t>{3}));
  EXPECT_EQ(drawn_of(low, {.temperature = 1e-300}), (std::set<int64_t>{3}));
  EXPECT_EQ(drawn_of(logits, {.temperature = 1e-3}), (std::set<int64_t>{1, 2}));
  auto counts = counts_of(logits, {.temperature = 1e30}, 4000);
  for (int64_t token : {0, 1, 2, 3}) EXPECT_NEAR(double(counts[token]), 1000, 120) << token;
  EXPECT_EQ(drawn_of({0, -INFINITY, 0, -INFINITY}, {.temperature = 1e30}), (std::set<int64_t>{0, 2}));
}

TEST(Sampling, WhatCannotBeIsRefused) {
  const std::vector<float> good = {0, 1}, none;
  EXPECT_REFUSED(sample_token(good, {.temperature = -0.5}, 0, 0), "temperature -0.5");
  EXPECT_REFUSED(sample_token(good, {.temperature = NAN}, 0, 0), "temperature nan");
  EXPECT_REFUSED(sample_token(good, {.temperature = INFINITY}, 0, 0), "temperature inf");
  EXPECT_REFUSED(sample_token(good, {.top_k = -1}, 0, 0), "top_k -1");
  for (double share : {0.0, -0.1, 1.0001, double(NAN)})
    EXPECT_REFUSED(sample_token(good, {.top_p = share}, 0, 0), "top_p", "(0, 1]");
  for (double temperature : {0.0, 1.0}) {
    EXPECT_REFUSED(sample_token(std::vector<float>{0, NAN}, {.temperature = temperature}, 2, 7), "sample 2",
                   "position 7", "nan", "token 1");
    EXPECT_REFUSED(sample_token(std::vector<float>{NAN, 0}, {.temperature = temperature}, 0, 0), "token 0");
    EXPECT_REFUSED(sample_token(std::vector<float>{0, INFINITY}, {.temperature = temperature}, 0, 0), "inf");
    EXPECT_REFUSED(sample_token(std::vector<float>{-INFINITY}, {.temperature = temperature}, 0, 0), "-inf");
    EXPECT_REFUSED(sample_token(none, {.temperature = temperature}, 0, 0), "-inf");
  }
}

}  // namespace
}  // namespace shardgrad::test
