#include <gtest/gtest.h>

#include <shardgrad/core/rng.h>

namespace shardgrad {
namespace {

using Four = std::array<uint32_t, 4>;

// Random123's known answers for philox4x32-10.
TEST(Philox, MatchesThePublishedVectors) {
  EXPECT_EQ(philox(0, 0, 0), (Four{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox(~0ull, ~0ull, ~0ull), (Four{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox(0x299f31d0a4093822, 0x0370734413198a2e, 0x85a308d3243f6a88),
            (Four{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, UnitFloatsStayBelowOne) {
  EXPECT_EQ(unit_float(0), 0.0f);
  EXPECT_LT(unit_float(~0u), 1.0f);
}

TEST(Philox, StreamsOfNamesDiffer) { EXPECT_NE(stream_of("layers.0.weight"), stream_of("layers.0.bias")); }

}  // namespace
}  // namespace shardgrad
