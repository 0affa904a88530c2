#include <shardgrad/dist/cores.h>

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <tuple>
#include <vector>

#include <shardgrad/core/context.h>

namespace shardgrad::dist {

namespace {

int topology(int core, const char* what) {
  int value = 0;
  std::ifstream(concat("/sys/devices/system/cpu/cpu", core, "/topology/", what)) >> value;
  return value;
}

// The system numbers a core's second hardware thread far from its first: sorted, they are neighbours.
std::vector<int> by_package(const cpu_set_t& set) {
  std::vector<std::tuple<int, int, int>> places;
  for (int i = 0; i < CPU_SETSIZE; ++i)
    if (CPU_ISSET(i, &set)) places.emplace_back(topology(i, "physical_package_id"), topology(i, "core_id"), i);
  std::ranges::sort(places);
  std::vector<int> cores;
  for (const auto& place : places) cores.push_back(std::get<2>(place));
  return cores;
}

int wanted_threads(int threads, int share) {
  if (threads > 0) return threads;
  const char* text = std::getenv("OMP_NUM_THREADS");
  return text && std::atoi(text) > 0 ? std::atoi(text) : std::max(1, share);
}

}  // namespace

CoreShare::CoreShare(Bootstrap& bootstrap, int threads) {
  if (sched_getaffinity(0, sizeof(before_), &before_) != 0) CPU_ZERO(&before_);
  std::vector<int> cores = by_package(before_);
  std::string mine = concat(bootstrap.node_rank(), ":");
  for (int core : cores) mine += concat(core, ",");
  std::vector<std::string> all = bootstrap.exchange(mine);
  size_t ranks = size_t(std::ranges::count(all, mine));
  size_t index = size_t(std::count(all.begin(), all.begin() + bootstrap.rank(), mine));
  threads_ = wanted_threads(threads, int(cores.size() / ranks));
  if (size_t(threads_) * ranks > cores.size()) return;
  cpu_set_t share;
  CPU_ZERO(&share);
  for (size_t i = cores.size() * index / ranks; i < cores.size() * (index + 1) / ranks; ++i)
    CPU_SET(size_t(cores[i]), &share);
  sched_setaffinity(0, sizeof(share), &share);
}

CoreShare::~CoreShare() { sched_setaffinity(0, sizeof(before_), &before_); }

void run_promptly() {
  // The kernel's struct sched_attr, which glibc does not declare before 2.41.
  struct {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t slice, deadline, period;
  } attributes{};
  attributes.size = sizeof(attributes);
  attributes.policy = SCHED_OTHER;
  attributes.nice = getpriority(PRIO_PROCESS, 0);
  attributes.slice = 100'000;  // ns
  syscall(SYS_sched_setattr, 0, &attributes, 0);
}

}  // namespace shardgrad::dist
