#include <shardgrad/dist/group/virtual_ranks.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include <shardgrad/core/thread.h>
#include <shardgrad/dist/bootstrap/cores.h>
#include <shardgrad/dist/os/board.h>
#include <shardgrad/dist/transports/nccl/nccl.h>
#include <shardgrad/dist/transports/transports.h>
#include <shardgrad/dist/transports/two_level/machines.h>
#include <shardgrad/dist/transports/two_level/socket_link.h>
#include <shardgrad/dist/watch/monitor.h>

namespace shardgrad::dist {
namespace {

std::shared_ptr<void> zeroed(size_t bytes) {
  std::shared_ptr<void> memory(std::aligned_alloc(128, (bytes + 127) / 128 * 128), std::free);
  std::memset(memory.get(), 0, bytes);
  return memory;
}

// What the ranks of one run_ranks share.
struct World {
  int size;
  const VirtualOptions& options;
  RankMap map;
  ControlPage page;
  std::vector<std::shared_ptr<void>> boards;  // by machine
  std::shared_ptr<void> meeting;
  std::vector<std::shared_ptr<SharedMemory>> heaps;  // by machine; kind shared_memory only
  std::shared_ptr<two_level::Doors> doors;           // between machines
  std::vector<std::exception_ptr> failures;
};

// The ranks of a machine.
std::unique_ptr<DirectTransport> make_direct_transport(World& world, int rank,
                                                       const std::shared_ptr<Control>& control) {
  const std::string& kind = world.options.group.kind;
  int machine = world.map.node_rank(rank), local = world.map.local_rank(rank), size = world.map.local_size(machine);
  if (kind == "shared_memory")
    return make_shared_memory_transport(std::make_shared<SharedHeap>(world.heaps[size_t(machine)], local, size), local,
                                        size, control);
  SG_CHECK(kind.empty() || kind == "threads", "run_ranks: there is no group of kind '", kind, "' for threads",
           world.doors ? " on several machines" : "", "; choose threads, shared_memory, nccl or single");
  return make_threads_transport(world.boards[size_t(machine)], local, size, control);
}

std::unique_ptr<Transport> make_transport(World& world, int rank, const std::shared_ptr<Control>& control) {
  if (world.doors)
    return make_two_level_transport(
        make_direct_transport(world, rank, control),
        two_level::make_socket_link(world.doors, two_level::kWorldGroup, all_ranks(world.size), rank, control),
        world.map, rank, control);
  const std::string& kind = world.options.group.kind;
  if (kind == "single" || (kind.empty() && world.size == 1)) {
    SG_CHECK(world.size == 1, "run_ranks: a group of kind 'single' has one rank, not ", world.size);
    return make_single_transport(control);
  }
  if (kind == "nccl") {
    auto bootstrap = make_local_bootstrap("threads", world.meeting, rank, world.size);
    return make_nccl_transport(*bootstrap, control);
  }
  return make_direct_transport(world, rank, control);
}

Context::Options options_of(const World& world, int rank) {
  const VirtualOptions& o = world.options;
  Context::Options options;
  options.rank = rank;
  options.world_size = world.size;
  options.seed = o.seed;
  options.threads = wanted_threads(o.threads, std::getenv("OMP_NUM_THREADS"), usable_cores() / world.size);
  options.device = o.device;
  options.check_streams = o.check_streams;
  options.delay_seed = o.delay_seed == 0 ? 0 : o.delay_seed + uint64_t(rank) * 7919;
  options.max_delay = o.max_delay;
  return options;
}

void take_part(World& world, int rank, const std::function<void(ProcessGroup&)>& body) {
  const VirtualOptions& o = world.options;
  auto control = std::make_shared<Control>(world.page, rank);
  try {
    WatchOptions watch = o.watch;
    if (rank > 0) watch.signals = -1;  // one reads them
    Monitor monitor(control, watch);
    ProcessGroup group(make_transport(world, rank, control), control, all_ranks(world.size), 1, o.group);
    try {
      body(group);
      context().backend(o.device).compute().synchronize();  // what was queued last may fail, too
      group.stream().synchronize();
      control->finish();  // before the group goes, which its peers may wait in
    } catch (...) {
      control->fail(std::current_exception());  // likewise
      throw;
    }
  } catch (...) {
    world.failures[size_t(rank)] = std::current_exception();
    control->fail(std::current_exception());
  }
}

void run_rank(World& world, int rank, const std::function<void(ProcessGroup&)>& body) {
  try {
    Context context(options_of(world, rank));
    take_part(world, rank, body);
  } catch (...) {  // it could not begin
    std::exception_ptr failure = world.failures[size_t(rank)] = std::current_exception();
    world.page.claim_cause(rank, exit_code(failure, world.size), describe(failure));
  }
}

}  // namespace

void run_one_of(int world_size, const std::function<void(ProcessGroup&)>& body, uint64_t seed,
                const PretendedRanks& as) {
  SG_CHECK(world_size >= 1, "run_one_of: ", world_size, " ranks are not possible");
  SG_CHECK(as.machines.empty() ? as.group != "two_level" : int(as.machines.size()) == world_size,
           "run_one_of: ", as.machines.size(), " ranks have a machine, but there are ", world_size);
  Context context({.world_size = world_size, .seed = seed, .threads = 1, .device = kMeta});
  auto control = std::make_shared<Control>(make_private_page(1), 0);
  ProcessGroup group(make_pretended_transport(world_size, control, as), control, all_ranks(world_size), 1, {});
  body(group);
}

// What they share, of each machine.
static World world_of(int size, const VirtualOptions& options) {
  SG_CHECK(options.group.machines.empty() || int(options.group.machines.size()) == size,
           "run_ranks: ", options.group.machines.size(), " ranks have a machine, but there are ", size);
  World world{
      size,
      options,
      two_level::map_of(options.group.machines.empty() ? std::vector<int>(size_t(size)) : options.group.machines),
      make_private_page(size),
      {},
      zeroed(local_bootstrap_bytes(size)),
      {},
      nullptr,
      std::vector<std::exception_ptr>(size_t(size))};
  for (int machine = 0; machine < world.map.node_count(); ++machine) {
    int ranks = world.map.local_size(machine);
    world.boards.push_back(zeroed(Board::board_bytes(ranks)));
    if (options.group.kind == "shared_memory")
      world.heaps.push_back(
          SharedMemory::create("shardgrad-heap", SharedHeap::heap_bytes(ranks, options.group.heap_limit)));
  }
  if (world.map.node_count() > 1) world.doors = two_level::make_local_doors();
  return world;
}

void run_ranks(int world_size, const std::function<void(ProcessGroup&)>& body, const VirtualOptions& options) {
  SG_CHECK(world_size >= 1, "run_ranks: ", world_size, " ranks are not possible");
  World world = world_of(world_size, options);
  if (options.group.kind == "nccl") set_nccl_environment(0);
  if (options.device.kind == DeviceKind::cuda) cuda_device_count();  // sets the environment, which threads then read
  std::vector<Thread> threads;
  std::exception_ptr not_started;
  try {
    for (int rank = 0; rank < world_size; ++rank) threads.emplace_back([&, rank] { run_rank(world, rank, body); });
  } catch (...) {  // those that have been started wait for the others
    not_started = std::current_exception();
    world.page.claim_cause(int(threads.size()), exit_code(not_started, world_size), describe(not_started));
  }
  for (Thread& thread : threads) thread.join();
  if (not_started) std::rethrow_exception(not_started);
  if (!world.page.has_cause()) return;
  auto first = world.failures[size_t(world.page.header().rank.load())];
  if (!first) {
    auto any = std::ranges::find_if(world.failures, [](const auto& failure) { return bool(failure); });
    if (any == world.failures.end()) throw Error(ErrorKind::rank_failed, world.page.cause());  // found by a monitor
    first = *any;
  }
  std::rethrow_exception(first);
}

}  // namespace shardgrad::dist
