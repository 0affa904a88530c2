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

template <Unary op> void unary_kernel(const Launch& launch, OutView y, View x) { unary(launch, op, y, x); }

template <Binary op> void flat_kernel(const Launch& launch, OutView y, View a, View b) {
  flat_binary(launch, op, y, a, b);
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

const Each registered[] = {
    {kernels::neg, kFloats, unary_kernel<Unary::neg>},
    {kernels::exp, kFloats, unary_kernel<Unary::exp>},
    {kernels::log, kFloats, unary_kernel<Unary::log>},
    {kernels::sqrt, kFloats, unary_kernel<Unary::sqrt>},
    {kernels::tanh, kFloats, unary_kernel<Unary::tanh>},
    {kernels::sigmoid, kFloats, unary_kernel<Unary::sigmoid>},
    {kernels::relu, kFloats, unary_kernel<Unary::relu>},
    {kernels::abs, kFloats, unary_kernel<Unary::abs>},
    {kernels::affine, kFloats,
     [](const Launch& l, OutView y, View x, double scale, double shift) {
       unary(l, Unary::affine, y, x, {scale, shift});
     }},
    {kernels::pow, kFloats,
     [](const Launch& l, OutView y, View x, double e) {
       unary(l, Unary::pow, y, x, {e, 0});
     }},
    {kernels::clamp, kFloats,
     [](const Launch& l, OutView y, View x, double low, double high) {
       unary(l, Unary::clamp, y, x, {low, high});
     }},
    {kernels::gelu, kFloats,
     [](const Launch& l, OutView y, View x, bool tanh) { unary(l, tanh ? Unary::gelu_tanh : Unary::gelu_erf, y, x); }},
    {kernels::add, kFloats, binary_kernel<Binary::add>},
    {kernels::sub, kFloats, binary_kernel<Binary::sub>},
    {kernels::mul, kFloats, binary_kernel<Binary::mul>},
    {kernels::div, kFloats, binary_kernel<Binary::div>},
    {kernels::relu_backward, kFloats, flat_kernel<Binary::relu_backward>},
    {kernels::tanh_backward, kFloats, flat_kernel<Binary::tanh_backward>},
    {kernels::sigmoid_backward, kFloats, flat_kernel<Binary::sigmoid_backward>},
    {kernels::sqrt_backward, kFloats, flat_kernel<Binary::sqrt_backward>},
    {kernels::abs_backward, kFloats, flat_kernel<Binary::abs_backward>},
    {kernels::gelu_backward, kFloats,
     [](const Launch& l, OutView dx, View dy, View x, bool tanh) {
       flat_binary(l, tanh ? Binary::gelu_tanh_backward : Binary::gelu_erf_backward, dx, dy, x);
     }},
    {kernels::pow_backward, kFloats,
     [](const Launch& l, OutView dx, View dy, View x, double exponent) {
       flat_binary(l, Binary::pow_backward, dx, dy, x, {exponent, 0});
     }},
    {kernels::clamp_backward, kFloats,
     [](const Launch& l, OutView dx, View dy, View x, double low, double high) {
       flat_binary(l, Binary::clamp_backward, dx, dy, x, {low, high});
     }},
};

}  // namespace
}  // namespace shardgrad::cpu
