// What the control channel costs rank 0 of a job on many machines, with its real classes: this process is rank 0 with
// its control page, link and monitor; another one has the pages, links and monitors of all other machines, and the
// connections between them are TCP. Prints, for each number of ranks (8 on a machine),
//   memory     what rank 0's side adds to its process
//   idle       part of a core and bytes a second, while all ranks only beat
//   at work    likewise, while each rank makes 100 collectives a second
//   death      seconds until a rank whose heartbeats end is named on all machines
//
//     control_bench [SECONDS [RANKS…]]     10 seconds each, 64 and 1024 ranks
//
// Exits 1 where that is 30 MB or more, 2 % of a core or more while all ranks only beat, or where the death is not
// named.

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <thread>

#include <shardgrad/core/context.h>
#include <shardgrad/dist/watch/monitor.h>
#include <shardgrad/dist/watch/page_link.h>

namespace shardgrad::dist {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
constexpr int kRanksEach = 8;
constexpr double kMostMegabytes = 30, kMostOfACore = 0.02;

/// A rank that is told which machines there are, and exchanges nothing.
class Told final : public Bootstrap {
 public:
  Told(int rank, const RankMap& map) : Bootstrap("told", rank, map.world_size(), map) {}
  std::vector<std::string> exchange(const std::string&) override { return std::vector<std::string>(size_t(size())); }
};

RankMap map_of(int ranks) {
  std::vector<std::string> hosts;
  for (int r = 0; r < ranks; ++r) hosts.push_back(concat("machine-", r / kRanksEach));
  return RankMap(hosts);
}

/// What both processes see.
struct Shared {
  std::atomic<bool> work{false}, death{false}, end{false};
  std::atomic<double> named{0};
};

/// The ranks of one machine on its page, the first of which has a link and a monitor.
class Machine {
 public:
  Machine(const RankMap& map, int machine, std::vector<PageLink::Far> far)
      : page_(make_private_page(map.world_size())) {
    std::vector<int> all;
    WatchOptions options;
    for (int r = 0; r < map.world_size(); ++r) {
      all.push_back(r);
      if (map.node_rank(r) != machine) options.elsewhere.push_back(r);
    }
    for (int local = 0; local < kRanksEach; ++local) {
      ranks_.push_back(std::make_shared<Control>(page_, map.global_rank(machine, local)));
      ranks_.back()->open_lane(7, all);
    }
    options.processes = true;
    link_ = std::make_unique<PageLink>(page_, Told(ranks_[0]->rank(), map), std::move(far));
    monitor_ = std::make_unique<Monitor>(ranks_[0], options);
  }
  const ControlPage& page() const { return page_; }
  /// The first rank's monitor beats by itself.
  void beat(int dead) {
    for (size_t local = 1; local < ranks_.size(); ++local)
      if (ranks_[local]->rank() != dead) page_.row(ranks_[local]->rank()).beats.fetch_add(1);
  }
  void call(uint64_t sequence) {
    Place place;
    place.group = 7;
    place.sequence = sequence;
    std::copy_n("all_gather", 11, place.op);
    std::copy_n("layers.0", 9, place.unit);
    for (auto& rank : ranks_) {
      rank->leave(0, sequence - 1);
      rank->call(0, sequence);
      rank->enter(0, place);
    }
  }
  bool all_begun() const {
    for (int r = 0; r < page_.ranks(); ++r)
      if (page_.row(r).beats.load() == 0) return false;
    return true;
  }

 private:
  ControlPage page_;
  std::vector<std::shared_ptr<Control>> ranks_;
  std::unique_ptr<PageLink> link_;
  std::unique_ptr<Monitor> monitor_;
};

/// Beats every 100 ms and calls every 10 ms, as long as it is told to.
void live(std::vector<std::unique_ptr<Machine>>& machines, Shared& shared, int last_rank) {
  uint64_t calls = 0;
  Clock::time_point died{};
  for (int tick = 0; !shared.end.load(); ++tick) {
    bool death = shared.death.load();
    if (death && died == Clock::time_point()) died = Clock::now();
    for (auto& machine : machines) {
      if (tick % 10 == 0) machine->beat(death ? last_rank : -1);
      if (shared.work.load()) machine->call(calls + 1);
    }
    calls += shared.work.load();
    bool named =
        death && std::ranges::all_of(machines, [](const auto& machine) { return machine->page().has_cause(); });
    if (named && shared.named.load() == 0)
      shared.named.store(std::chrono::duration<double>(Clock::now() - died).count());
    std::this_thread::sleep_for(10ms);
  }
}

[[noreturn]] void be_the_others(const RankMap& map, std::vector<Socket> sockets, Shared& shared) {
  {
    Context context;
    std::vector<std::unique_ptr<Machine>> machines;
    for (size_t m = 0; m < sockets.size(); ++m) {
      std::vector<PageLink::Far> far;
      far.push_back({std::move(sockets[m]), 0});
      machines.push_back(std::make_unique<Machine>(map, int(m) + 1, std::move(far)));
    }
    live(machines, shared, map.world_size() - 1);
  }
  _exit(0);
}

std::pair<Socket, Socket> connected() {
  std::vector<Socket> listeners = listen_on("127.0.0.1", 0);
  std::string reason;
  Socket one = connect_to("127.0.0.1", port_of(listeners[0]), 5s, reason), other;
  while (!(other = accept_from(listeners[0], reason))) wait_readable(listeners[0]);
  return {std::move(one), std::move(other)};
}

struct Usage {
  double seconds = 0, megabytes = 0;
  uint64_t sent = 0, received = 0;
};

Usage usage(const std::vector<int>& descriptors) {
  Usage now;
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  for (timeval t : {usage.ru_utime, usage.ru_stime}) now.seconds += double(t.tv_sec) + 1e-6 * double(t.tv_usec);
  size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages >> pages;
  now.megabytes = double(pages) * double(sysconf(_SC_PAGESIZE)) / 1e6;
  for (int descriptor : descriptors) {
    tcp_info info{};
    socklen_t bytes = sizeof(info);
    getsockopt(descriptor, IPPROTO_TCP, TCP_INFO, &info, &bytes);
    now.sent += info.tcpi_bytes_acked;
    now.received += info.tcpi_bytes_received;
  }
  return now;
}

/// The part of a core that rank 0 takes.
double report(const char* what, double seconds, const std::vector<int>& descriptors) {
  Usage before = usage(descriptors);
  auto begin = Clock::now();
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  double passed = std::chrono::duration<double>(Clock::now() - begin).count();
  Usage after = usage(descriptors);
  double core = (after.seconds - before.seconds) / passed;
  std::printf("  %-8s %5.2f %% of a core, %9.1f KB/s sent, %8.1f KB/s received\n", what, 100 * core,
              double(after.sent - before.sent) / passed / 1e3, double(after.received - before.received) / passed / 1e3);
  std::fflush(stdout);
  return core;
}

/// Whether it stays within the limits.
bool be_rank_0(const RankMap& map, std::vector<Socket> sockets, Shared& shared, double seconds) {
  std::vector<int> descriptors;
  std::vector<PageLink::Far> far;
  for (size_t m = 0; m < sockets.size(); ++m) {
    descriptors.push_back(sockets[m].descriptor());
    far.push_back({std::move(sockets[m]), map.global_rank(int(m) + 1, 0)});
  }
  Context context;
  double before = usage({}).megabytes;
  Shared own;
  std::vector<std::unique_ptr<Machine>> machine;
  machine.push_back(std::make_unique<Machine>(map, 0, std::move(far)));
  std::thread living([&] { live(machine, own, -1); });
  while (!machine[0]->all_begun()) std::this_thread::sleep_for(10ms);
  std::this_thread::sleep_for(3s);
  std::printf("%d ranks on %d machines\n", map.world_size(), map.node_count());
  double idle = report("idle", seconds, descriptors);
  shared.work = own.work = true;
  report("at work", seconds, descriptors);
  double megabytes = usage({}).megabytes - before;
  std::printf("  memory   %5.1f MB\n", megabytes);
  shared.work = own.work = false;
  shared.death = own.death = true;
  for (auto end = Clock::now() + 60s; (shared.named.load() == 0 || own.named.load() == 0) && Clock::now() < end;)
    std::this_thread::sleep_for(10ms);
  bool named = shared.named.load() > 0 && own.named.load() > 0;
  std::printf("  death    %s after %.1f s\n  %s\n", named ? "named everywhere" : "NOT named everywhere",
              std::max(shared.named.load(), own.named.load()), machine[0]->page().cause().c_str());
  shared.end = own.end = true;
  living.join();
  bool within = named && megabytes < kMostMegabytes && idle < kMostOfACore;
  if (!within)
    std::printf("  beyond its limits: %.0f MB, %.0f %% of a core while idle\n", kMostMegabytes, 100 * kMostOfACore);
  return within;
}

bool measure(int ranks, double seconds) {
  RankMap map = map_of(ranks);
  auto* shared =
      static_cast<Shared*>(mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  new (shared) Shared;
  std::vector<Socket> near, away;
  for (int m = 1; m < map.node_count(); ++m) {
    auto [one, other] = connected();
    near.push_back(std::move(one));
    away.push_back(std::move(other));
  }
  pid_t child = fork();
  if (child == 0) {
    near.clear();
    be_the_others(map, std::move(away), *shared);
  }
  away.clear();
  bool within = be_rank_0(map, std::move(near), *shared, seconds);
  waitpid(child, nullptr, 0);
  munmap(shared, sizeof(Shared));
  return within;
}

}  // namespace
}  // namespace shardgrad::dist

int main(int argc, char** argv) {
  double seconds = argc > 1 ? std::atof(argv[1]) : 10;
  std::vector<int> sizes = {64, 1024};
  if (argc > 2) sizes.clear();
  for (int i = 2; i < argc; ++i) sizes.push_back(std::atoi(argv[i]) / 8 * 8);
  bool within = true;
  for (int ranks : sizes) within &= shardgrad::dist::measure(ranks, seconds);
  return within ? 0 : 1;
}
