#include <shardgrad/dist/cores.h>

#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include <shardgrad/core/context.h>

namespace shardgrad::dist {

static cpu_set_t my_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) CPU_SET(0, &set);
  return set;
}

int threads_per_rank(Bootstrap& bootstrap) {
  cpu_set_t set = my_cores();
  std::string mine = concat(bootstrap.node_rank(), ":");
  for (int i = 0; i < CPU_SETSIZE; ++i)
    if (CPU_ISSET(i, &set)) mine += concat(i, ",");
  std::vector<std::string> all = bootstrap.exchange(mine);
  if (const char* text = std::getenv("OMP_NUM_THREADS"); text && std::atoi(text) > 0) return std::atoi(text);
  return std::max(1, usable_cores() / int(std::ranges::count(all, mine)));
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
