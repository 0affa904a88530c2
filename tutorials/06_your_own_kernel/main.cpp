// Your own kernel: a ladder from naive to fast, climbed on the simulator, where reads are counted and a fault is named.

#include "ladder.h"

#include <cstdio>

#include <shardgrad/autograd/launch.h>
#include <shardgrad/autograd/ops.h>
#include <shardgrad/core/context.h>

using sg::Tensor;

constinit Rung naive{"naive"}, tiled{"tiled"}, many_each{"many_each"}, without_barrier{"without_barrier"};

constexpr int64_t n = 64;

// c = a · b by one rung; how many elements it read, and how far it is from the library's product.
void climb(const char* name, const Rung& rung, const Tensor& a, const Tensor& b) {
  Tensor c = sg::empty_like(a), reads = sg::from_vector<int64_t>({0}, {1});
  sg::launch(rung, a, sg::out(c), sg::out(reads), a, b);
  double most = sg::max(sg::reshape(sg::abs(c - sg::matmul(a, b)), {n * n}), 0).values.item();
  std::printf("%-10s %7.0f reads, %5.1f per element of c, %s\n", name, reads.item(), reads.item() / (n * n),
              most < 1e-5 ? "right" : "wrong");
}

int main() {
  sg::Context context({.device = sg::kSim});
  Tensor a = sg::rand({n, n}, "a"), b = sg::rand({n, n}, "b");
  climb("naive", naive, a, b);
  climb("tiled", tiled, a, b);
  climb("many each", many_each, a, b);

  try {
    climb("wrong", without_barrier, a, b);
  } catch (const sg::Error& error) {
    std::printf("%s\n", error.what());
  }
}
