#include <shardgrad/train/network.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include <shardgrad/autograd/ops.h>
#include <shardgrad/core/context.h>
#include <shardgrad/dist/group/virtual_ranks.h>
#include <shardgrad/train/files.h>
#include <shardgrad/train/options.h>
#include <shardgrad/train/settings.h>
#include <shardgrad/train/text.h>

namespace shardgrad::train {

// Seconds of one collective that brings together so many elements of each rank, or adds them up.
static double seconds_of(dist::ProcessGroup& world, int64_t elements, int times) {
  constexpr int kRounds = 5;
  Tensor part = zeros({elements}), whole = zeros({elements * world.size()});
  world.reduce_scatter(part, whole).host_wait();
  std::vector<double> rounds;
  for (int round = 0; round < kRounds; ++round) {
    double begin = context().recorder().now();
    for (int i = 0; i < times; ++i) {
      world.all_gather(whole, part).host_wait();
      world.reduce_scatter(part, whole).host_wait();
    }
    rounds.push_back((context().recorder().now() - begin) / (2 * times));
  }
  std::ranges::sort(rounds);
  return rounds[kRounds / 2];
}

static std::string in_words(const dist::ProcessGroup& world) {
  std::set<int> machines;
  for (int rank = 0; rank < world.size(); ++rank) machines.insert(world.machine_of(rank));
  return concat(world.size(), " ranks on ", machines.size(), machines.size() == 1 ? " machine, " : " machines, ",
                world.kind(), ", ", context().default_device(), ", ", date_of_now());
}

Network measure_network(dist::ProcessGroup& world) {
  SG_CHECK(world.size() > 1, "a network is measured between two ranks or more");
  int64_t elements = (int64_t(1) << 22) / world.size();
  double small = seconds_of(world, 1, 40), large = seconds_of(world, elements, 1);
  int64_t sent = elements * (world.size() - 1) * int64_t(size_of(DType::f32));
  return {double(sent) / std::max(large - small, large / 10) / 1e9, small * 1e6, in_words(world)};
}

Network network_here(Device device) {
  Network network;
  auto body = [&](dist::ProcessGroup& world) {
    Network mine = measure_network(world);
    if (world.rank() == 0) network = mine;
  };
  dist::run_ranks(2, body, {.device = device, .threads = 1});
  return network;
}

Rates rates_of(const Network& network) { return {0, network.bandwidth * 1e9, network.latency / 1e6}; }

static OptionList list_options(Network& network) {
  OptionList list;
  Rule positive{.low = 0, .above_low = true};
  list.add("bandwidth", network.bandwidth, "10^9 bytes that a rank sends in a second", positive);
  list.add("latency", network.latency, "microseconds that a collective takes, however little it sends", positive);
  list.add("from", network.from, "where that is from, in words", {.may_be_empty = true});
  return list;
}

Network read_network(const std::string& path) {
  constexpr FileKind kNetwork{"a file of a network's speeds", kMebibyte};
  std::vector<std::string> faults;
  std::vector<Setting> settings = read_settings(path, faults, kNetwork);
  Network network;
  OptionList list = list_options(network);
  for (const Setting& setting : settings) {
    const Option* option = list.find(setting.key);
    if (!option)
      faults.push_back(concat(setting.place, ": '", shortened(setting.key), "' is none of bandwidth, latency, from"));
    else if (!option->assign(setting.json))
      faults.push_back(
          concat(setting.place, ": ", setting.key, " is ", shortened(setting.json), ", expected ", option->expected));
  }
  if (faults.empty() && (network.bandwidth == 0 || network.latency == 0))
    faults.push_back(concat("'", path, "' has no ", network.bandwidth == 0 ? "bandwidth" : "latency", "; ",
                            "`shardgrad doctor --measure FILE` writes such a file"));
  SG_CHECK(faults.empty(), faults[0]);
  return network;
}

std::string to_json(const Network& network) {
  Network copy = network;
  nlohmann::ordered_json all;
  for (const Option& option : list_options(copy)) all[option.key] = nlohmann::json::parse(option.json());
  return all.dump(2) + "\n";
}

}  // namespace shardgrad::train
