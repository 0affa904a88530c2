// Elementwise kernels of floats. Their loops are in isa/elementwise.cpp; integers and comparisons in compare.cpp.

#include <shardgrad/kernels/cpu/broadcast.h>
#include <shardgrad/kernels/cpu/register.h>

namespace shardgrad::cpu {
namespace {

void unary(const Launch& launch, Unary op, OutView y, View x, Scalars scalars = {}) {
  auto loop = loops().elementwise.unary[int(op)][int(x.dtype)];
  size_t size = size_of(x.dtype);
  parallel_elements(launch.threads, y.numel(), [&](int64_t begin, int64_t end) {
    loop(y.as<char>() + begin * size, x.as<char>() + begin * size, end - begin, scalars, y.beta != 0);
  });
}

// Operands of y's shape; the backward operations.
void flat_binary(const Launch& launch, Binary op, OutView y, View a, View b, Scalars scalars = {}) {
  auto loop = loops().elementwise.binary[int(op)][int(a.dtype)];
  size_t size = size_of(a.dtype);
  parallel_elements(launch.threads, y.numel(), [&](int64_t begin, int64_t end) {
    Grid grid{.cols = end - begin, .accumulate = y.beta != 0};
    loop(y.as<char>() + begin * size, a.as<char>() + begin * size, b.as<char>() + begin * size, grid, scalars);
  });
}

template <Unary op, class... Numbers> void unary_kernel(const Launch& launch, OutView y, View x, Numbers... numbers) {
  unary(launch, op, y, x, {double(numbers)...});
}

template <Binary op, class... Numbers>
void backward_kernel(const Launch& launch, OutView dx, View dy, View v, Numbers... numbers) {
  flat_binary(launch, op, dx, dy, v, {double(numbers)...});
}

template <Binary op> void binary_kernel(const Launch& launch, OutView y, View a, View b) {
  int64_t n = y.numel();
  if (a.numel() == n && b.numel() == n) return flat_binary(launch, op, y, a, b);
  if (n == 0) return;
  auto loop = loops().elementwise.binary[int(op)][int(a.dtype)];
  size_t size = size_of(a.dtype);
  Broadcast<2> shape(y.shape, {&a.shape, &b.shape});
  for_grids(launch.threads, shape, y.beta != 0, [&](const Grid& grid, int64_t at, std::array<int64_t, 2> from) {
    loop(y.as<char>() + at * size, a.as<char>() + from[0] * size, b.as<char>() + from[1] * size, grid, {});
  });
}

#define SG_UNARY(name, ...) {kernels::name, kFloats, unary_kernel<Unary::name>},
#define SG_BACKWARD(name, ...) {kernels::name, kFloats, backward_kernel<Binary::name>},
#define SG_BINARY(name, ...) {kernels::name, kFloats, binary_kernel<Binary::name>},
const Each registered[] = {SG_UNARIES(SG_UNARY, SG_UNARY, SG_BACKWARD) SG_BINARIES(SG_BINARY)};

}  // namespace
}  // namespace shardgrad::cpu
