// What NCCL takes from the environment. It reads it once, before its first call.

#include <cstdio>
#include <cstdlib>
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
                                                          {"NCCL_RAS_ENABLE", "0"},
                                                          {"NCCL_ALGO", "Ring"},
                                                          {"NCCL_PROTO", "Simple"},
                                                          {"NCCL_MAX_CTAS", "2"}};
  for (const auto& [name, value] : settings) setenv(name, value.c_str(), 0);
}

bool sharing_allowed() { return environment_flag(kShareGpuChoice); }

}  // namespace

std::string shared_gpus(Bootstrap& bootstrap) {
  std::string mine = concat(bootstrap.node_rank(), "/", context().backend(kCuda).info().address);
  std::vector<std::string> all = bootstrap.exchange(mine);
  for (size_t a = 0; a < all.size(); ++a)
    for (size_t b = a + 1; b < all.size(); ++b)
      if (all[a] == all[b])
        return concat("ranks ", a, " and ", b, " share GPU ", all[a].substr(all[a].find('/') + 1), " of machine ",
                      bootstrap.node_rank(), ", where ", bootstrap.local_size(), " ranks see ", cuda_device_count(),
                      cuda_device_count() == 1 ? " GPU" : " GPUs");
  return "";
}

void set_nccl_environment(int rank) {
  // Groups that share a GPU start on it in the order of the calls, which is the same on all ranks; else two of them
  // could each hold what the other waits for.
  setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", 0);
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
