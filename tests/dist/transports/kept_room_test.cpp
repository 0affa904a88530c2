// Memory that transports keep: as much as the largest call so far, the same for all that need no more.

#include <shardgrad/dist/transports/kept_room.h>

#include <gtest/gtest.h>

#include <shardgrad/core/context.h>
#include <shardgrad/dist/transports/mpi/mpi_room.h>

namespace shardgrad::dist {
namespace {

TEST(KeptRoom, GrowsWithTheLargestCallAndStays) {
  Context context;
  const Ref<Allocator>& memory = context.backend(kCpu).memory();
  KeptRoom room(Category::other);
  auto held = [&] { return context.ledger().current(Category::other); };
  EXPECT_EQ(room.of(0, memory), nullptr);
  EXPECT_EQ(held(), 0);
  std::byte* first = room.of(1000, memory);
  EXPECT_EQ(held(), 1000);
  EXPECT_EQ(room.of(10, memory), first);
  EXPECT_EQ(room.of(1000, memory), first);
  EXPECT_EQ(held(), 1000) << "a smaller call changes nothing";
  room.of(3000, memory);
  EXPECT_EQ(held(), 3000);
  EXPECT_EQ(context.ledger().peak(Category::other), 3000) << "the smaller one goes first";
}

TEST(KeptRoom, OfMpiIsASegmentOfEachPeersSlice) {
  EXPECT_EQ(mpi_room(100, 4), 300U);
  EXPECT_EQ(mpi_room(100, 1), 0U);
  EXPECT_EQ(mpi_room(10 * kMpiSegment, 3), 2 * kMpiSegment);
}

}  // namespace
}  // namespace shardgrad::dist
