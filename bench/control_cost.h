#pragma once
// What the control channel costs a rank while its peers and their monitors are at work.

#include <sys/resource.h>

#include <chrono>
#include <thread>
#include <vector>

#include <shardgrad/dist/group/process_group.h>
#include <shardgrad/dist/watch/control.h>

namespace shardgrad::bench {

struct ControlCost {
  double collective = 0;  ///< seconds for the checks and marks of one collective
  double monitor = 0;     ///< processor time that the monitor takes, as a part of one core
};

/// All ranks of the group call it together: the marks of one are read by the monitors of all.
inline ControlCost control_cost(dist::ProcessGroup& world) {
  using Clock = std::chrono::steady_clock;
  auto seconds_since = [](Clock::time_point begin) {
    return std::chrono::duration<double>(Clock::now() - begin).count();
  };
  dist::Control& control = world.control();
  std::vector<int> members;
  for (int r = 0; r < world.size(); ++r) members.push_back(r);
  int lane = control.open_lane(78, members);
  world.barrier();
  constexpr int kCalls = 1'000'000;
  dist::Place place;
  Clock::time_point begin = Clock::now();
  for (int i = 1; i <= kCalls; ++i) {
    place.sequence = uint64_t(i);
    place.elements = int64_t(place.fingerprint() & 0xffff);
    control.check();
    control.enter(lane, place);
    control.leave(lane, place.sequence);
  }
  ControlCost cost;
  cost.collective = seconds_since(begin) / kCalls;
  world.barrier();
  control.close_lane(lane, dist::Closed::in_order);

  // Nothing else runs in this process meanwhile.
  auto used = [] {
    rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    auto seconds = [](timeval t) { return double(t.tv_sec) + double(t.tv_usec) * 1e-6; };
    return seconds(usage.ru_utime) + seconds(usage.ru_stime);
  };
  begin = Clock::now();
  double before = used();
  std::this_thread::sleep_for(std::chrono::seconds(5));
  cost.monitor = (used() - before) / seconds_since(begin);
  world.barrier();
  return cost;
}

}  // namespace shardgrad::bench
