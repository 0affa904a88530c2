// What a build without NCCL has in place of the other files of this folder.

#include <shardgrad/core/error.h>
#include <shardgrad/dist/transports/nccl/nccl.h>
#include <shardgrad/dist/transports/transports.h>

namespace shardgrad::dist {

std::string nccl_library() { return ""; }
std::string why_not_nccl() { return ""; }

std::string shared_gpus(Bootstrap&) { return ""; }

void set_nccl_environment(int) {}

[[noreturn]] static void refuse() {
  fail_as(
      ErrorKind::missing,
      "this build has no NCCL; configure with -DSHARDGRAD_CUDA=ON -DSHARDGRAD_NCCL=ON where nccl.h and libnccl are");
}

void try_nccl(int) { refuse(); }

std::unique_ptr<Transport> make_nccl_transport(Bootstrap&, std::shared_ptr<Control>) { refuse(); }

}  // namespace shardgrad::dist
