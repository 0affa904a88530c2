// random_uniform, random_normal, dropout: pure functions of (seed, stream, element).

#include <cmath>

#include <shardgrad/kernels/cpu/element.h>
#include <shardgrad/kernels/cpu/loops.h>
#include <shardgrad/kernels/cpu/parallel.h>
#include <shardgrad/kernels/cpu/register.h>
#include <shardgrad/kernels/largest_below.h>

namespace shardgrad::cpu {
namespace {

using kernels::DropoutArgs;
using kernels::RandomArgs;

void random_uniform(const Launch& launch, OutView y, RandomArgs args) {
  double below = args.a < args.b ? kernels::largest_below(y.dtype, args.b) : args.b;
  auto loop = loops().random.uniform[int(y.dtype)];
  parallel_elements(launch.threads, y.numel(), [&](int64_t begin, int64_t end) {
    RandomRange range{args.seed, args.stream, args.begin + begin, args.fine};
    loop(y.as<char>() + begin * size_of(y.dtype), end - begin, range, args.a, args.b, below, y.beta != 0);
  });
}

void random_normal(const Launch& launch, OutView y, RandomArgs args) {
  auto loop = loops().random.normal[int(y.dtype)];
  parallel_elements(launch.threads, y.numel(), [&](int64_t begin, int64_t end) {
    RandomRange range{args.seed, args.stream, args.begin + begin, args.fine};
    loop(y.as<char>() + begin * size_of(y.dtype), end - begin, range, args.a, args.b, y.beta != 0);
  });
}

void dropout(const Launch& launch, OutView y, View x, View drawn, DropoutArgs args) {
  if (drawn.defined()) {
    const auto* now = drawn.as<int64_t>();
    args.seed = uint64_t(now[0]), args.stream = uint64_t(now[1]);
  }
  double p =
      std::ceil(args.p * 0x1p24) * 0x1p-24;  // uniform numbers are multiples of 2^-24: the same test, exact in f32
  double scale = args.p < 1 ? 1 / (1 - args.p) : 0;
  auto loop = loops().random.dropout[int(x.dtype)];
  size_t size = size_of(x.dtype);
  parallel_elements(launch.threads, y.numel(), [&](int64_t begin, int64_t end) {
    RandomRange range{args.seed, args.stream, args.first_element + begin};
    loop(y.as<char>() + begin * size, x.as<char>() + begin * size, end - begin, range, p, scale, y.beta != 0);
  });
}

const Each registered_uniform(kernels::random_uniform, kFloats, random_uniform);
const Each registered_normal(kernels::random_normal, kFloats, random_normal);
const Each registered_dropout(kernels::dropout, kFloats, dropout);

}  // namespace
}  // namespace shardgrad::cpu
