// What NCCL takes from the environment. It reads it once, before its first call.

#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <unordered_map>
#include <utility>

#include <shardgrad/core/context.h>
#include <shardgrad/dist/bootstrap/bootstrap.h>
#include <shardgrad/dist/transports/nccl/nccl.h>

namespace shardgrad::dist {
namespace {

// Several ranks on one GPU: for NCCL each rank is a machine of its own, and they talk through the loopback network.
void let_ranks_share_gpus(int rank) {
  if (rank == 0) std::fputs("shardgrad: SHARDGRAD_NCCL_SHARE_GPU=1: ranks share GPUs; for tests, very slow\n", stderr);
  const std::pair<const char*, std::string> settings[] = {{"NCCL_HOSTID", concat("shardgrad-rank", rank)},
                                                          {"NCCL_NET", "Socket"},
                                                          {"NCCL_IB_DISABLE", "1"},
                                                          {"NCCL_SOCKET_IFNAME", "=lo"},
                                                          {"NCCL_SOCKET_FAMILY", "AF_INET"},
                                                          {"NCCL_P2P_DISABLE", "1"},
                                                          {"NCCL_SHM_DISABLE", "1"},
                                                          {"NCCL_MNNVL_ENABLE", "0"},
                                                          {"NCCL_NVLS_ENABLE", "0"},
                                                          {"NCCL_CUMEM_HOST_ENABLE", "0"},
                                                          {"NCCL_ALGO", "Ring"},
                                                          {"NCCL_PROTO", "Simple"},
                                                          {"NCCL_MAX_CTAS", "2"}};
  for (const auto& [name, value] : settings) setenv(name, value.c_str(), 0);
}

bool sharing_allowed() { return environment_flag(kShareGpuChoice); }

}  // namespace

std::string shared_gpus(Bootstrap& bootstrap) {
  constexpr std::string_view kWhere = ", where ";  // behind it is what may differ between ranks of one GPU
  int gpus = cuda_device_count();
  std::vector<std::string> all =
      bootstrap.exchange(concat("GPU ", context().backend(kCuda).info().address, " of machine ", bootstrap.node_rank(),
                                kWhere, bootstrap.local_size(), " ranks see ", gpus, gpus == 1 ? " GPU" : " GPUs"));
  std::unordered_map<std::string_view, size_t> rank_on;
  for (size_t b = 0; b < all.size(); ++b) {
    auto [a, is_first] = rank_on.emplace(std::string_view(all[b]).substr(0, all[b].find(kWhere)), b);
    if (!is_first) return concat("ranks ", a->second, " and ", b, " share ", all[b]);
  }
  return "";
}

void set_nccl_environment(int rank) {
  // Groups that share a GPU start on it in the order of the calls, which is the same on all ranks; else two of them
  // could each hold what the other waits for.
  setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", 0);
  // Its own watch over ranks sends something every second, which would count as their heartbeats.
  setenv("NCCL_RAS_ENABLE", "0", 0);
  if (sharing_allowed()) let_ranks_share_gpus(rank);
}

void check_gpus(Bootstrap& bootstrap) {
  std::string shared = shared_gpus(bootstrap);
  if (shared.empty()) return;
  SG_CHECK(bootstrap.name() != "threads", shared, ", which NCCL never allows to ranks of one process. Choose: as many ",
           "ranks as GPUs; or group.kind = \"threads\", by way of host memory, slow");
  SG_CHECK(sharing_allowed(), shared, ", which NCCL does not allow. Choose: as many ranks as GPUs; or collectives ",
           "by way of host memory, slow, with SHARDGRAD_GROUP=shared_memory (one machine) or two_level (several); or, ",
           "for tests only, SHARDGRAD_NCCL_SHARE_GPU=1");
}

}  // namespace shardgrad::dist
