#include <shardgrad/dist/group/world.h>

#include <cstdio>
#include <cstdlib>

#include <shardgrad/core/context.h>
#include <shardgrad/core/warning.h>
#include <shardgrad/dist/transports/nccl/nccl.h>
#include <shardgrad/dist/transports/transports.h>
#include <shardgrad/dist/transports/two_level/link.h>
#include <shardgrad/dist/transports/two_level/machines.h>
#include <shardgrad/dist/transports/two_level/socket_link.h>

namespace shardgrad::dist {

// Where ranks lie so that more than needed crosses between machines, one line says so.
static void name_cost_of_mapping(const RankMap& map) {
  double cost = two_level::cost_of_mapping(map);
  if (cost > 1)
    warn(concat("sums over the ranks send ", cost, " times the bytes between machines that they would with a power of ",
                "two of ranks on every machine, numbered machine by machine"));
}

static std::unique_ptr<two_level::Link> link_machines(Bootstrap& bootstrap, const std::shared_ptr<Control>& control) {
  if (bootstrap.name() == "mpi") return two_level::make_mpi_link(bootstrap);
  return two_level::make_socket_link(two_level::make_tcp_doors(bootstrap), two_level::kWorldGroup,
                                     all_ranks(bootstrap.size()), bootstrap.rank(), control);
}

// Ranks of a machine share memory, and messages go between machines. Where they cannot share, and nobody insists, MPI
// takes its place.
static std::unique_ptr<Transport> connect_by_memory(Bootstrap& bootstrap, const std::shared_ptr<Control>& control,
                                                    size_t limit, const std::string& kind) {
  bool several = bootstrap.ranks().node_count() > 1;
  SG_CHECK(!several || kind != "shared_memory", "the ranks cannot share memory: they are on several machines, which ",
           "SHARDGRAD_GROUP=two_level connects, as it is without this variable");
  std::string reason;
  std::shared_ptr<SharedHeap> heap = make_shared_heap(bootstrap, limit, reason);
  if (heap) {
    auto machine = make_shared_memory_transport(heap, bootstrap.local_rank(), bootstrap.local_size(), control);
    if (!several) return machine;
    name_cost_of_mapping(bootstrap.ranks());
    return make_two_level_transport(std::move(machine), link_machines(bootstrap, control), bootstrap.ranks(),
                                    bootstrap.rank(), control);
  }
  if (bootstrap.name() != "mpi" || !kind.empty())
    fail_as(ErrorKind::missing, "the ranks ", several ? "of a machine " : "", "cannot share memory: ", reason,
            "; start them with mpirun to connect them by MPI (SHARDGRAD_GROUP=mpi), give each a GPU and device=cuda to "
            "connect them by NCCL, or give them more memory");
  if (bootstrap.rank() == 0)
    std::fprintf(stderr, "shardgrad: MPI connects the ranks; those of a machine cannot share memory: %s\n",
                 reason.c_str());
  return make_mpi_transport(bootstrap, control);
}

// Whether GPUs send by themselves. Asked for, sharing a GPU is refused by the transport; by default host memory takes
// its place, with one line.
static bool use_nccl(Bootstrap& bootstrap, const std::string& kind) {
  bool possible =
      bootstrap.size() > 1 && context().default_device().kind == DeviceKind::cuda && !nccl_library().empty();
  if (!kind.empty() || !possible) return kind == "nccl";
  std::string shared = shared_gpus(bootstrap);
  if (!shared.empty() && bootstrap.rank() == 0)
    std::fprintf(stderr, "shardgrad: %s: collectives go by way of host memory, which is slow\n", shared.c_str());
  return shared.empty();
}

std::unique_ptr<ProcessGroup> make_world(Bootstrap& bootstrap, std::shared_ptr<Control> control, GroupOptions options) {
  const char* wish = std::getenv(kGroupChoice.variable);
  std::string kind = !options.kind.empty() ? options.kind : wish ? wish : "";
  std::vector<std::string> kinds = bootstrap.exchange(kind);
  for (int r = 1; r < bootstrap.size(); ++r)
    SG_CHECK(kinds[size_t(r)] == kinds[0], "rank 0 asks for a group of kind '", kinds[0], "' and rank ", r, " for '",
             kinds[size_t(r)], "'; every rank must be given the same options and SHARDGRAD_GROUP");
  std::unique_ptr<Transport> transport;
  if (use_nccl(bootstrap, kind)) {
    set_nccl_environment(bootstrap.rank());
    transport = make_nccl_transport(bootstrap, control);
  } else if (kind == "mpi") {
    SG_CHECK(bootstrap.name() == "mpi", "a group of kind mpi needs ranks started by mpirun; these were started as '",
             bootstrap.name(), "'");
    transport = make_mpi_transport(bootstrap, control);
  } else if (kind == "single" || (kind.empty() && bootstrap.size() == 1)) {
    SG_CHECK(bootstrap.size() == 1, "a group of kind single has one rank, not ", bootstrap.size());
    transport = make_single_transport(control);
  } else {
    SG_CHECK(kind.empty() || kind == "shared_memory" || kind == "two_level", "there is no group of kind '", kind,
             "'; choose single, shared_memory, two_level, mpi or nccl");
    transport = connect_by_memory(bootstrap, control, options.heap_limit, kind);
  }
  std::vector<int> members = all_ranks(bootstrap.size());
  options.machines.clear();
  for (int r : members) options.machines.push_back(bootstrap.ranks().node_rank(r));
  auto world = std::make_unique<ProcessGroup>(std::move(transport), std::move(control), std::move(members), 1,
                                              std::move(options));
  bootstrap.barrier();  // every rank watches the group before anyone uses it
  return world;
}

}  // namespace shardgrad::dist
