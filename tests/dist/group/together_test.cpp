#include <gtest/gtest.h>

#include <atomic>
#include <new>
#include <stdexcept>

#include <shardgrad/core/allocator.h>
#include <shardgrad/dist/group/together.h>
#include <shardgrad/dist/group/virtual_ranks.h>

namespace shardgrad::dist {
namespace {

const Label kHere{"", "test"};

TEST(Together, EndsWhenEveryRankHasDoneItsPart) {
  std::atomic<int> done{0};
  run_ranks(3, [&](ProcessGroup& world) {
    together(world, kHere, [&] { ++done; });
    EXPECT_EQ(done, 3);
  });
}

// An error of any kind, on two ranks of three: no rank goes on, and all say what was wrong on the first of them.
TEST(Together, EveryRankThrowsWhatOneOfThemDid) {
  for (ErrorKind kind : {ErrorKind::internal, ErrorKind::input, ErrorKind::missing, ErrorKind::rank_failed})
    run_ranks(3, [&](ProcessGroup& world) {
      std::string own = concat("no disk ", world.rank()), said = "no error";
      try {
        together(
            world, kHere,
            [&] {
              if (world.rank() > 0) throw Error(kind, own);
            },
            "; nothing was saved");
      } catch (const Error& error) {
        said = error.what();
        EXPECT_EQ(error.kind(), kind);
      }
      EXPECT_EQ(said, world.rank() > 0 ? own : "rank 1: no disk 1; nothing was saved");
      world.barrier();  // the group is none the worse
    });
}

TEST(Together, AnotherRanksLackOfMemoryIsOneHere) {
  run_ranks(2, [&](ProcessGroup& world) {
    for (bool of_the_host : {false, true}) {
      auto part = [&] {
        if (world.rank() == 1 && of_the_host) throw std::bad_alloc();
        if (world.rank() == 1) throw OutOfMemory("out of memory: 8 bytes");
      };
      auto call = [&] { together(world, kHere, part); };
      if (world.rank() == 0) {
        EXPECT_THROW(call(), OutOfMemory);
      } else {
        EXPECT_ANY_THROW(call());
      }
    }
  });
}

TEST(Together, AnExceptionOfTheUsersStaysOneWhereItWasThrown) {
  run_ranks(2, [&](ProcessGroup& world) {
    auto part = [&] {
      if (world.rank() == 1) throw std::out_of_range("label 11");
    };
    if (world.rank() == 1) {
      EXPECT_THROW(together(world, kHere, part), std::out_of_range);
      return;
    }
    try {
      together(world, kHere, part);
      ADD_FAILURE() << "went on";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::input);
      EXPECT_STREQ(error.what(), "rank 1: label 11");
    }
  });
}

}  // namespace
}  // namespace shardgrad::dist
