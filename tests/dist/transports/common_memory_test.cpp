#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include <shardgrad/core/context.h>
#include <shardgrad/core/tensor.h>
#include <shardgrad/dist/group/virtual_ranks.h>
#include <shardgrad/dist/transports/common_memory.h>

namespace shardgrad::dist {
namespace {

constexpr size_t kMiB = size_t(1) << 20;

VirtualOptions on_one_node(size_t heap_limit = 0) {
  VirtualOptions options;
  options.group.kind = "shared_memory";
  options.group.heap_limit = heap_limit;
  return options;
}

TEST(CommonMemory, AllRanksSeeEverySliceWithoutACollective) {
  for (int size : {1, 2, 3, 4})
    run_ranks(
        size,
        [](ProcessGroup& world) {
          for (int round = 0; round < 5; ++round) {  // every rank lends
            auto common = world.common_memory(256);
            ASSERT_TRUE(common);
            EXPECT_EQ(common->whole().bytes, size_t(world.size()) * 256);
            EXPECT_EQ(common->slice().data, static_cast<std::byte*>(common->whole().data) + world.rank() * 256);
            std::memset(common->slice().data, 10 * round + world.rank(), 256);
            world.barrier();
            for (int r = 0; r < world.size(); ++r)
              EXPECT_EQ(static_cast<const char*>(common->whole().data)[r * 256 + 255], 10 * round + r);
            world.barrier();
          }
        },
        on_one_node());
}

TEST(CommonMemory, AnAllGatherIntoItWaitsForEverySlice) {
  run_ranks(
      3,
      [](ProcessGroup& world) {
        auto common = world.common_memory(4 * 32);
        Ref<Storage> mine = Storage::make(4 * 32, slice_allocator(kCpu, common), {});
        Tensor shard(mine, 0, {32}, DType::f32), whole(Storage::window(mine, common->whole()), 0, {96}, DType::f32);
        for (int round = 0; round < 100; ++round) {
          copy_into(shard, from_vector<float>(std::vector<float>(32, float(100 * world.rank() + round)), {32}));
          world.all_gather(whole, shard).host_wait();
          std::vector<float> seen = whole.to_vector<float>();
          for (int r = 0; r < 3; ++r) ASSERT_EQ(seen[size_t(32 * r + 31)], float(100 * r + round));
          world.barrier();
        }
        EXPECT_EQ(context().ledger().current(Category::other), 128) << "a rank is charged for its slice";
      },
      on_one_node());
}

TEST(CommonMemory, ASliceMayChangeAfterTheGatherOnlyWhenNoRankStillCopiesIt) {
  constexpr int64_t kElements = 100000;  // long enough to be caught copying
  run_ranks(
      2,
      [](ProcessGroup& world) {
        auto common = world.common_memory(4 * kElements);
        Ref<Storage> mine = Storage::make(4 * kElements, slice_allocator(kCpu, common), {});
        Tensor shard(mine, 0, {kElements}, DType::f32);
        Tensor whole(Storage::window(mine, common->whole()), 0, {2 * kElements}, DType::f32);
        Tensor copied = empty({2 * kElements});
        auto fill = [&](float value) { std::fill_n(static_cast<float*>(common->slice().data), kElements, value); };
        for (int round = 0; round < 50; ++round) {
          fill(float(10 * round + world.rank()));
          world.all_gather(world.rank() == 0 ? whole : copied, shard).host_wait();
          if (world.rank() == 0) fill(-1);
          if (world.rank() == 1) {
            std::vector<float> seen = copied.to_vector<float>();
            for (int64_t i = 0; i < kElements; ++i) ASSERT_EQ(seen[size_t(i)], float(10 * round));
          }
          world.barrier();
        }
      },
      on_one_node());
}

TEST(CommonMemory, ComesBackWhenAllRanksHaveLetGo) {
  run_ranks(
      2,
      [](ProcessGroup& world) {
        for (int i = 0; i < 20; ++i) {
          auto common = world.common_memory(2 * kMiB);
          ASSERT_TRUE(common) << i << ": 20 times 4 MiB fit into two regions of 8 MiB only one after the other";
          world.barrier();
          if (world.rank() == 1) common = nullptr;
          world.barrier();
        }
      },
      on_one_node(8 * kMiB));
}

TEST(CommonMemory, WhereOneRankHoldsOnItIsNotLentAgain) {
  run_ranks(
      2,
      [](ProcessGroup& world) {
        std::vector<std::shared_ptr<CommonMemory>> held;
        for (int i = 0; i < 4; ++i) {
          auto common = world.common_memory(512);
          ASSERT_TRUE(common);
          if (world.rank() == 1) held.push_back(common);
          world.barrier();
        }
        for (size_t i = 0; i < held.size(); ++i)
          for (size_t k = 0; k < i; ++k) EXPECT_NE(held[i]->whole().data, held[k]->whole().data);
      },
      on_one_node());
}

TEST(CommonMemory, NoRankHasItWhereThereIsNoRoomOrNoSharedHeap) {
  run_ranks(
      2,
      [](ProcessGroup& world) {
        EXPECT_FALSE(world.common_memory(64 * kMiB));
        EXPECT_TRUE(world.common_memory(64)) << "the next rank lends";
      },
      on_one_node(8 * kMiB));
  run_ranks(2, [](ProcessGroup& world) { EXPECT_FALSE(world.common_memory(64)); });
}

TEST(CommonMemory, AGroupSplitOffHasItsOwn) {
  run_ranks(
      4,
      [](ProcessGroup& world) {
        auto row = world.split(world.rank() / 2, world.rank());
        auto common = row->common_memory(64);
        ASSERT_TRUE(common);
        std::memset(common->slice().data, world.rank(), 64);
        row->barrier();
        for (int r = 0; r < 2; ++r)
          EXPECT_EQ(static_cast<const char*>(common->whole().data)[64 * r], world.rank() / 2 * 2 + r);
        row->barrier();
      },
      on_one_node());
}

}  // namespace
}  // namespace shardgrad::dist
