#pragma once
// The transports that exist. Each is one file.

#include <memory>

#include <shardgrad/dist/transports/direct_transport.h>
#include <shardgrad/dist/transports/pretended_ranks.h>
#include <shardgrad/dist/transports/shared_heap.h>
#include <shardgrad/dist/transports/transport.h>

namespace shardgrad::dist {

/// One rank alone: every collective is a copy, or nothing.
std::unique_ptr<Transport> make_single_transport(std::shared_ptr<Control> control);

/// Rank 0 of `size` that do not exist, for what moves nothing (device meta). What ranks say to each other, such as
/// numbers that must be equal, every one says as this one does.
std::unique_ptr<Transport> make_pretended_transport(int size, std::shared_ptr<Control> control, PretendedRanks as);

/// Collectives of `inner` for tensors of a device that the host cannot address: each is copied to host memory, done
/// there, and copied back. The sums are those of the other devices.
std::unique_ptr<Transport> make_staged_transport(std::unique_ptr<Transport> inner, Device device,
                                                 std::shared_ptr<Control> control);

/// Ranks that are threads of one process and read each other's memory. `board` is shared by all of them: zeroed,
/// Board::board_bytes(size) long, aligned to 64.
std::unique_ptr<DirectTransport> make_threads_transport(std::shared_ptr<void> board, int rank, int size,
                                                        std::shared_ptr<Control> control);

/// What a rank of shared memory keeps to send what does not lie in the heap.
inline constexpr size_t kBounceBytes = size_t(1) << 20;
/// Ranks of one node that read each other's memory through the node's heap; `heap` is this rank's view of it.
std::unique_ptr<DirectTransport> make_shared_memory_transport(std::shared_ptr<SharedHeap> heap, int rank, int size,
                                                              std::shared_ptr<Control> control);

namespace two_level {
class Link;
}
/// Ranks on several machines (dist/transports/two_level/two_level_transport.h): those of a machine read each other's
/// memory by `machine`, messages go between machines by `link`. `map` is of the world, `rank` the calling rank there.
std::unique_ptr<Transport> make_two_level_transport(std::unique_ptr<DirectTransport> machine,
                                                    std::unique_ptr<two_level::Link> link, const RankMap& map, int rank,
                                                    std::shared_ptr<Control> control);

/// Ranks that send messages by MPI; the bootstrap's name is "mpi".
std::unique_ptr<Transport> make_mpi_transport(Bootstrap& bootstrap, std::shared_ptr<Control> control);

/// Ranks with a GPU each that send by NCCL, after set_nccl_environment (nccl/nccl.h). Throws Error(missing) in a build
/// without it, and Error (input), with the choices, when ranks share a GPU.
std::unique_ptr<Transport> make_nccl_transport(Bootstrap& bootstrap, std::shared_ptr<Control> control);

}  // namespace shardgrad::dist
