#include <shardgrad/dist/bootstrap/cores.h>

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>

#include <shardgrad/core/context.h>

namespace shardgrad::dist {

namespace {

int topology(int cpu, const char* what) {
  int value = 0;
  std::ifstream(concat("/sys/devices/system/cpu/cpu", cpu, "/topology/", what)) >> value;
  return value;
}

std::vector<CpuPlace> places_of(const cpu_set_t& set) {
  std::vector<CpuPlace> places;
  for (int i = 0; i < CPU_SETSIZE; ++i)
    if (CPU_ISSET(i, &set)) places.push_back({topology(i, "physical_package_id"), topology(i, "core_id"), i});
  return places;
}

}  // namespace

// The system numbers a core's second hardware thread far from its first: sorted, they are neighbours.
std::vector<int> share_of(std::vector<CpuPlace> places, int index, int ranks) {
  std::ranges::sort(places);
  std::vector<int> cpus;
  int count = int(places.size());
  for (int i = count * index / ranks; i < count * (index + 1) / ranks; ++i) cpus.push_back(places[size_t(i)].cpu);
  return cpus;
}

CpuShare::CpuShare(Bootstrap& bootstrap, int threads) {
  cpu_set_t all, share;
  if (sched_getaffinity(0, sizeof(all), &all) != 0) CPU_ZERO(&all);  // more CPUs than a cpu_set_t has room for
  std::vector<CpuPlace> places = places_of(all);
  std::string mine = concat(bootstrap.node_rank(), ":");
  for (const CpuPlace& place : places) mine += concat(place.cpu, ",");
  std::vector<std::string> of_ranks = bootstrap.exchange(mine);
  int ranks = int(std::ranges::count(of_ranks, mine)), count = int(places.size());
  int index = int(std::count(of_ranks.begin(), of_ranks.begin() + bootstrap.rank(), mine));
  threads_ = wanted_threads(threads, std::getenv("OMP_NUM_THREADS"), count / ranks);
  if (ranks == 1 || threads_ * ranks > count) return;
  CPU_ZERO(&share);
  for (int cpu : share_of(places, index, ranks)) CPU_SET(size_t(cpu), &share);
  if (sched_setaffinity(0, sizeof(share), &share) == 0) before_ = all;
}

CpuShare::~CpuShare() {
  if (before_) sched_setaffinity(0, sizeof(*before_), &*before_);
}

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
