#pragma once
// What sending takes between ranks: measured by a job (shardgrad doctor --measure FILE), kept in a file, and used by
// shardgrad plan --network FILE. For machines that one does not have the file is written by hand:
//
//     {"bandwidth": 0.117, "latency": 61, "from": "two machines, 1 Gbit/s"}

#include <string>

#include <shardgrad/dist/group/process_group.h>
#include <shardgrad/train/plan.h>

namespace shardgrad::train {

struct Network {
  double bandwidth = 0;  ///< 10^9 bytes that a rank sends in a second
  double latency = 0;    ///< microseconds that a collective takes, however little it sends
  std::string from;      ///< where that is from, in words
};

/// Times gathers and reductions of one element of each rank and of 16 MiB in all, of a world of at least two ranks, on
/// its contexts' device: the median of five. A collective.
Network measure_network(dist::ProcessGroup& world);
/// The same of two ranks of this machine, on threads.
Network network_here(Device device);
Rates rates_of(const Network& network);

/// Throws Error(input) naming the file and the place for what is no such file, and where a speed is missing or not
/// above 0.
Network read_network(const std::string& path);
std::string to_json(const Network& network);

}  // namespace shardgrad::train
