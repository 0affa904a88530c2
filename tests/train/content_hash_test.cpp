#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include <shardgrad/autograd/ops.h>
#include <shardgrad/core/context.h>
#include <shardgrad/dist/group/virtual_ranks.h>
#include <shardgrad/train/checkpoint/content_hash.h>
#include <shardgrad/train/checkpoint/manifest.h>

#include "temporary_folder.h"

namespace shardgrad {
namespace {

using train::content_hash;

std::vector<float> some_values(size_t count) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = float(i) * 0.37f - 5;
  return values;
}

uint64_t hash_of_all(const std::vector<float>& values) {
  return content_hash(values.data(), DType::f32, std::ssize(values), 0);
}

TEST(ContentHash, PartsOfAnySizeAddUpToTheSame) {
  std::vector<float> values = some_values(1000);
  for (int64_t cut : {0, 1, 333, 999, 1000})
    EXPECT_EQ(content_hash(values.data(), DType::f32, cut, 0) +
                  content_hash(values.data() + cut, DType::f32, 1000 - cut, cut),
              hash_of_all(values));
}

TEST(ContentHash, EveryBitAndEveryPlaceCounts) {
  std::vector<float> values = some_values(64);
  uint64_t whole = hash_of_all(values);
  for (size_t i = 0; i < values.size(); ++i)
    for (int bit = 0; bit < 32; ++bit) {
      std::vector<float> flipped = values;
      uint32_t bits;
      std::memcpy(&bits, &flipped[i], 4);
      bits ^= 1u << bit;
      std::memcpy(&flipped[i], &bits, 4);
      EXPECT_NE(hash_of_all(flipped), whole) << i << " " << bit;
    }
  std::swap(values[3], values[4]);
  EXPECT_NE(hash_of_all(values), whole);
  std::vector<float> zeros(8);
  EXPECT_NE(hash_of_all(zeros), 0) << "a lost element is no zero";
  auto of_bytes = [](const std::vector<uint8_t>& bytes) {
    return content_hash(bytes.data(), DType::u8, std::ssize(bytes), 0);
  };
  EXPECT_NE(of_bytes({0, 0}), of_bytes({1, 1})) << "places are no bits of the elements";
}

TEST(ContentHash, ElementsOfEveryWidthAreSeen) {
  std::vector<uint8_t> bytes(64);
  for (DType dtype : {DType::u8, DType::f16, DType::bf16, DType::f32, DType::i32, DType::f64, DType::i64}) {
    int64_t count = 64 / int64_t(size_of(dtype));
    uint64_t zeros = content_hash(bytes.data(), dtype, count, 0);
    bytes[63] = 1;
    EXPECT_NE(content_hash(bytes.data(), dtype, count, 0), zeros) << dtype;
    bytes[63] = 0;
  }
}

// What stands in run.json of every checkpoint there is: another formula could read none of them. Worked out by another
// program, of -1, 0, 1 and 2 as each dtype.
TEST(ContentHash, TheFormulaIsThatOfTheCheckpointsThatThereAre) {
  Context context;
  Tensor numbers = from_vector<float>({-1, 0, 1, 2}, {4});
  std::vector<uint8_t> bytes{255, 0, 1, 2};
  train::Hashes found{{"u8", content_hash(bytes.data(), DType::u8, 4, 0)}};
  for (DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16, DType::i32, DType::i64})
    found[name_of(dtype)] = content_hash(numbers.to(dtype).in().data, dtype, 4, 0);
  const train::Hashes kExpected{{"f32", 0xb776ef1cb4e691f9}, {"f64", 0x861e70515b44842f}, {"bf16", 0x55f3c7050bdaea05},
                                {"f16", 0xfc9aeb939da1fe0b}, {"i32", 0xfd140c5e60585c9f}, {"i64", 0x26b19e526a61509e},
                                {"u8", 0xa5729603988e0859}};
  for (const auto& [name, hash] : kExpected) EXPECT_EQ(train::hash_text(found[name]), train::hash_text(hash)) << name;
  EXPECT_EQ(train::hash_text(train::hash_of(kExpected)), "511d3ea534cd8ad3");
  train::Manifest manifest;
  manifest.model = {{"weight", kExpected.at("f32")}};
  manifest.optimizer = {{"step", kExpected.at("i64")}};
  EXPECT_EQ(manifest.hash(), "4789e22ef927ae6e");
}

TEST(ContentHash, SumsOverRanksAreThoseOfOneRankAndMayWrapAround) {
  dist::run_ranks(3, [](dist::ProcessGroup& world) {
    uint64_t large = 0xFFFFFFFFFFFFFFF0 + uint64_t(world.rank());
    train::Hashes sums = train::sum_over_ranks(world, {{"a", large}, {"b", uint64_t(world.rank())}});
    EXPECT_EQ(sums["a"], 3 * 0xFFFFFFFFFFFFFFF0 + 3);
    EXPECT_EQ(sums["b"], 3);
  });
}

TEST(ContentHash, NamesBelongToTheHashOfSeveral) {
  EXPECT_NE(train::hash_of({{"a", 1}, {"b", 2}}), train::hash_of({{"a", 2}, {"b", 1}}));
}

TEST(ContentHash, IsWrittenInSixteenDigits) {
  EXPECT_EQ(train::hash_text(0xAB), "00000000000000ab");
  EXPECT_EQ(train::parse_hash("00000000000000ab"), 0xAB);
  for (const char* wrong : {"", "ab", "00000000000000ag", "-0000000000000ab", "00000000000000abc"})
    EXPECT_NE(error_of([&] { train::parse_hash(wrong); }), "no error") << wrong;
}

template <class T> void expect_found(DType dtype, T bad, T largest) {
  std::vector<T> values(9, largest);
  EXPECT_EQ(train::first_not_finite(values.data(), dtype, 9), 9) << dtype;
  values[7] = bad;
  EXPECT_EQ(train::first_not_finite(values.data(), dtype, 9), 7) << dtype;
}

TEST(ContentHash, WhatIsNotFiniteIsFound) {
  using F = std::numeric_limits<float>;
  for (float bad : {F::infinity(), -F::infinity(), F::quiet_NaN(), -F::quiet_NaN()}) {
    expect_found<float>(DType::f32, bad, F::max());
    expect_found<double>(DType::f64, bad, std::numeric_limits<double>::lowest());
  }
  for (uint16_t sign : {0, 0x8000}) {
    expect_found<uint16_t>(DType::f16, uint16_t(0x7C00 | sign), 0x7BFF);
    expect_found<uint16_t>(DType::bf16, uint16_t(0x7FC0 | sign), 0x7F7F);
  }
  std::vector<int32_t> integers(4, 0x7FFFFFFF);
  EXPECT_EQ(train::first_not_finite(integers.data(), DType::i32, 4), 4);
}

}  // namespace
}  // namespace shardgrad
