// What sending takes between ranks, measured and in a file.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <shardgrad/dist/group/virtual_ranks.h>
#include <shardgrad/train/files.h>
#include <shardgrad/train/network.h>

#include "temporary_folder.h"

namespace shardgrad {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;
using train::Network;

void expect_possible(const Network& network) {
  EXPECT_GT(network.bandwidth, 1e-3) << "MB/s";
  EXPECT_LT(network.bandwidth, 1e4);
  EXPECT_GT(network.latency, 0);
  EXPECT_LT(network.latency, 1e6) << "a second";
}

TEST(Network, IsMeasuredBetweenAnyRanks) {
  Network here = train::network_here(kCpu);
  expect_possible(here);
  EXPECT_THAT(here.from, StartsWith("2 ranks on 1 machine, threads, cpu, 20"));
  train::Rates rates = train::rates_of(here);
  EXPECT_DOUBLE_EQ(rates.bandwidth, here.bandwidth * 1e9);
  EXPECT_DOUBLE_EQ(rates.latency, here.latency / 1e6);
  dist::run_ranks(3, [](dist::ProcessGroup& world) {
    Network network = train::measure_network(world);
    expect_possible(network);
    EXPECT_THAT(network.from, StartsWith("3 ranks on "));
  });
  EXPECT_THROW(dist::run_ranks(1, [](dist::ProcessGroup& world) { train::measure_network(world); }), Error);
}

class NetworkFile : public ::testing::Test {
 protected:
  Network read(const std::string& text) {
    train::write_file(path_, text);
    return train::read_network(path_);
  }
  std::string refusal(const std::string& text) {
    try {
      read(text);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::input);
      return error.what();
    }
    return "none";
  }
  TemporaryFolder folder_;
  std::string path_ = folder_.path() + "/network.json";
};

TEST_F(NetworkFile, IsReadBack) {
  Network network = read(train::to_json({0.125, 50, "1 Gbit/s"}));
  EXPECT_EQ(network.bandwidth, 0.125);
  EXPECT_EQ(network.latency, 50);
  EXPECT_EQ(network.from, "1 Gbit/s");
}

TEST_F(NetworkFile, MayBeWrittenByHand) {
  Network network = read("{\"bandwidth\": 1.25, // 10 Gbit/s\n\"latency\": 30}");
  EXPECT_EQ(network.bandwidth, 1.25);
  EXPECT_EQ(network.from, "");
}

TEST_F(NetworkFile, ThatIsNoneIsRefusedWithThePlace) {
  EXPECT_THAT(refusal(R"({"bandwidth": 1})"), HasSubstr("network.json' has no latency; `shardgrad doctor --measure"));
  EXPECT_THAT(refusal(R"({"latency": 1})"), HasSubstr("has no bandwidth"));
  EXPECT_THAT(refusal("{\"latency\": 1,\n\"bandwidth\": 0}"),
              HasSubstr("network.json:2: bandwidth is 0, expected a finite number above 0"));
  EXPECT_THAT(refusal(R"({"latency": "short", "bandwidth": 1})"), HasSubstr("network.json:1: latency is \"short\""));
  EXPECT_THAT(refusal(R"({"latency": 1, "bandwith": 1})"), HasSubstr("'bandwith' is none of bandwidth, latency, from"));
  EXPECT_THAT(refusal("[1]"), HasSubstr("network.json"));
  EXPECT_THROW(train::read_network(folder_.path() + "/none.json"), Error);
}

}  // namespace
}  // namespace shardgrad
