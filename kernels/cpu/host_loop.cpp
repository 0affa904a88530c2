#include <shardgrad/kernels/host_loop.h>

#include <shardgrad/kernels/cpu/parallel.h>

namespace shardgrad::kernels {

void host_loop(const Launch& how, int64_t n, const std::function<void(int64_t, int64_t)>& body) {
  cpu::parallel_elements(how.threads, n, body);
}

}  // namespace shardgrad::kernels
