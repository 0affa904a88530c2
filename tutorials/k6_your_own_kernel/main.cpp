// Your own kernel: a ladder from naive to fast, climbed on the simulator, where reads are counted and a fault is named;
// or, with the argument cuda, on a GPU, which tells the time beside.

#include "ladder.h"

#include <cmath>
#include <cstdio>

#include <shardgrad/autograd/elementwise.h>
#include <shardgrad/autograd/ops.h>
#include <shardgrad/certify/cold_timing.h>
#include <shardgrad/core/context.h>

using sg::DType, sg::Tensor;

constinit Rung naive{"naive"}, tiled{"tiled"}, many_each{"many_each"}, tensor_cores{"tensor_cores"},
    without_barrier{"without_barrier"};

const auto softsign = sg::elementwise(
    "softsign", [](auto x) { return x / (1 + std::abs(x)); },
    [](auto x) { return 1 / ((1 + std::abs(x)) * (1 + std::abs(x))); });

void without_a_kernel() {
  Tensor x = sg::from_vector<float>({-3, 0, 1}, {3}, {DType::f32, sg::kCpu}).set_requires_grad(), y = softsign(x);
  sg::sum(y).backward();
  auto print = [](const char* what, const Tensor& t) {
    auto at = [&](int64_t i) { return t.detach().rows(i, i + 1).item(); };
    std::printf("%s: %g, %g, %g", what, at(0), at(1), at(2));
  };
  print("softsign of -3, 0, 1", y);
  print("; its gradient", x.grad());
  std::printf("\n");
}

// Of one product. The simulator's time says nothing of a GPU's.
void print_time(const Rung& rung, const Tensor& c, const Tensor& a, const Tensor& b) {
  const sg::ColdTiming::Piece product{[] {}, [&] { sg::launch(rung, a, sg::out(c), sg::unwanted(), a, b); }};
  std::printf(", %.3f ms", 1e3 * sg::ColdTiming(a.device()).medians({&product, 1}).seconds[0]);
}

// c = a · b by one rung: what it counted, and whether it is the library's product.
void climb(const char* name, const Rung& rung, const Tensor& a, const Tensor& b) {
  int64_t n = a.size(0);
  Tensor c = sg::empty({n, n}), counts = sg::from_vector<int64_t>({0, 0}, {2});
  sg::launch(rung, a, sg::out(c), sg::out(counts), a, b);
  Tensor expected = sg::matmul(a.to(DType::f32), b.to(DType::f32));
  double most = sg::max(sg::reshape(sg::abs(c - expected), {n * n}), 0).values.item();
  double reads = counts.rows(0, 1).item(), multiply = counts.rows(1, 2).item();
  std::printf("%-12s %7.0f reads, %5.1f per element of c, %6.0f multiply instructions, %s", name, reads,
              reads / double(n * n), multiply, most < 1e-5 * double(n) ? "right" : "wrong");
  if (a.device() != sg::kSim) print_time(rung, c, a, b);
  std::printf("\n");
}

int main(int argc, char** argv) try {
  sg::Device device = argc > 1 ? sg::parse_device(argv[1]) : sg::kSim;
  sg::Context context({.device = device});
  int64_t n = device == sg::kSim ? 64 : 4096;
  Tensor a16 = sg::rand({n, n}, "a").to(DType::bf16), b16 = sg::rand({n, n}, "b").to(DType::bf16);
  Tensor a = a16.to(DType::f32), b = b16.to(DType::f32);
  climb("naive", naive, a, b);
  climb("tiled", tiled, a, b);
  climb("many each", many_each, a, b);
  climb("tensor cores", tensor_cores, a16, b16);

  without_a_kernel();

  try {
    climb("wrong", without_barrier, a, b);
  } catch (const sg::Error& error) {
    std::printf("%s\n", error.what());
  }
} catch (const sg::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return int(error.kind());
}
