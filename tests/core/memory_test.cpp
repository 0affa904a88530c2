#include <gtest/gtest.h>

#include <functional>

#include <shardgrad/core/context.h>
#include <shardgrad/core/tensor.h>

namespace shardgrad {
namespace {

TEST(Storage, KeepsItsIdentityWhileMemoryComesAndGoes) {
  Context context;
  Tensor a = empty({4, 8});
  Tensor row = a.alias_rows(1, 2);
  a.storage()->release(current_stream(kCpu));
  EXPECT_EQ(context.ledger().current(), 0);
  EXPECT_THROW(row.data<float>(), Error);
  a.storage()->materialize(current_stream(kCpu));
  row.data<float>()[0] = 3;
  EXPECT_EQ(a.data<float>()[8], 3);
  EXPECT_EQ(context.ledger().current(), 4 * 8 * 4);
}

TEST(Storage, UseWhileReleasedNamesTheTensorAndTheRemedy) {
  Context context;
  Tensor a = empty({4});
  a.set_name("layers.0.weight");
  a.storage()->set_note("it is sharded; use summon_full_params");
  a.storage()->release(current_stream(kCpu));
  try {
    a.in();
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "'layers.0.weight' is not in memory: it is sharded; use summon_full_params");
  }
}

TEST(Storage, WhatNobodyHasANoteOfNamesItsOwner) {
  Context context;
  Tensor a = empty({4});
  auto refused = [&](const std::function<void()>& use) {
    try {
      use();
      return std::string();
    } catch (const Error& error) {
      return std::string(error.what());
    }
  };
  std::string owner = a.storage()->tag().category.name();
  EXPECT_EQ(refused([&] { a.storage()->materialize(current_stream(kCpu)); }),
            "materialize: this memory (" + owner + ") is there already; was a release forgotten?");
  a.storage()->release(current_stream(kCpu));
  EXPECT_EQ(refused([&] { a.in(); }),
            "a tensor of shape [4] is not in memory: its storage was released, whose owner is " + owner +
                "; materialize it, and write its values again (gather it), before this read");
}

TEST(Sizes, MoreBytesThanCanBeCountedAreRefused) {
  Context context;
  constexpr int64_t k2 = 2;
  for (int64_t count : {k2 << 60, k2 << 61, (k2 << 60) + 4}) {
    EXPECT_THROW(empty({count}, DType::f64), Error);
    EXPECT_THROW(empty({2, count / 2}), Error);
    EXPECT_THROW(empty({count}, {DType::u8, kMeta}), Error);
  }
  EXPECT_THROW(empty({kMaxElements}), Error) << "no machine has the memory";
  EXPECT_EQ(empty({0, kMaxElements}).bytes(), 0u);
  Tensor most = empty({kMaxElements}, {DType::f64, kMeta});
  EXPECT_EQ(most.bytes(), size_t(8) << 56);
  EXPECT_EQ(context.ledger().current(), int64_t(8) << 56);
}

TEST(Sizes, AShapeHasAtMostSixDimensions) {
  std::vector<int64_t> extents(size_t(kMaxDims), 1);
  EXPECT_EQ(Shape(std::span<const int64_t>(extents)).ndim(), kMaxDims);
  extents.push_back(1);
  EXPECT_THROW(Shape(std::span<const int64_t>(extents)), Error);
}

TEST(Sizes, AViewReachesNowherePastItsStorage) {
  Context context;
  Tensor a = empty({4});
  EXPECT_NO_THROW(Tensor(a.storage(), 4, {3}, DType::f32));
  EXPECT_THROW(Tensor(a.storage(), 8, {3}, DType::f32), Error);
  EXPECT_THROW(Tensor(a.storage(), ~size_t(7), {2}, DType::f32), Error) << "the sum of offset and size wraps";
}

TEST(CopyInto, RangesOfOneStorageMayOverlap) {
  for (Device device : {kCpu, kAcc}) {
    Context context({.device = device});
    for (auto [from, to] : {std::pair{0, 3}, {3, 0}, {1, 1}}) {
      std::vector<float> numbers(4096 + 3);
      for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = float(i);
      Tensor all = from_vector(numbers, {int64_t(numbers.size())});
      copy_into(all.alias_rows(to, to + 4096), all.alias_rows(from, from + 4096));
      std::copy_n(std::vector<float>(numbers).begin() + from, 4096, numbers.begin() + to);
      EXPECT_EQ(all.to_vector<float>(), numbers);
    }
  }
}

}  // namespace
}  // namespace shardgrad
