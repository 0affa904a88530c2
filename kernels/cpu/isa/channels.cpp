// batch_norm and group_norm of (samples, channels, …): x̂ = (x - mean) · rstd, where the elements of a channel lie in
// runs.

#include <shardgrad/kernels/cpu/isa/simd.h>
#include <shardgrad/kernels/cpu/isa/tables.h>

namespace shardgrad::cpu {
namespace {

template <class T> VectorOf<T> splat_number(double value) { return splat<VectorOf<T>>(ScalarOf<T>(value)); }

template <class T> double sum(const void* x_, const Runs& runs) {
  const T* x = static_cast<const T*>(x_);
  VectorOf<T> total{};
  for (int64_t r = 0; r < runs.count; ++r, x += runs.stride)
    for_vectors<T>(runs.length, [&](int64_t i, auto load, auto) { total += load(x + i); });
  return double(sum(total));
}

template <class T> double squares(const void* x_, const Runs& runs, double mean) {
  using V = VectorOf<T>;
  const T* x = static_cast<const T*>(x_);
  V center = splat_number<T>(mean), total{};
  int64_t whole = runs.length / Pack<T>::width * Pack<T>::width, rest = runs.length - whole;
  for (int64_t r = 0; r < runs.count; ++r, x += runs.stride) {
    for (int64_t i = 0; i < whole; i += Pack<T>::width) {
      V d = load(x + i) - center;
      total = fma(d, d, total);
    }
    if (rest == 0) continue;
    V d = keep_first(load_part(x + whole, rest) - center, rest, V{});
    total = fma(d, d, total);
  }
  return double(sum(total));
}

template <class T>
void products(double* sums, const void* dy_, const void* x_, const Runs& runs, const ChannelNorm& norm) {
  using V = VectorOf<T>;
  const T *dy = static_cast<const T*>(dy_), *x = static_cast<const T*>(x_);
  V mean = splat_number<T>(norm.mean), rstd = splat_number<T>(norm.rstd), product{}, total{};
  for (int64_t r = 0; r < runs.count; ++r, dy += runs.stride, x += runs.stride)
    for_vectors<T>(runs.length, [&](int64_t i, auto load, auto) {
      V g = load(dy + i);
      product = fma(g, (load(x + i) - mean) * rstd, product);  // lanes past the end have g = 0
      total += g;
    });
  sums[0] += double(sum(product));
  sums[1] += double(sum(total));
}

template <class T>
void normalize(void* y_, const void* x_, const Runs& runs, const ChannelNorm& norm, bool accumulate) {
  using V = VectorOf<T>;
  T* y = static_cast<T*>(y_);
  const T* x = static_cast<const T*>(x_);
  V mean = splat_number<T>(norm.mean), rstd = splat_number<T>(norm.rstd);
  V weight = splat_number<T>(norm.weight), bias = splat_number<T>(norm.bias);
  for (int64_t r = 0; r < runs.count; ++r, y += runs.stride, x += runs.stride)
    for_vectors<T>(runs.length, [&](int64_t i, auto load, auto store) {
      V v = (load(x + i) - mean) * rstd * weight + bias;
      store(y + i, accumulate ? load(y + i) + v : v);
    });
}

template <class T, bool grouped>
void backward(void* dx_, const void* dy_, const void* x_, const Runs& runs, const ChannelNorm& norm, double mean_dy,
              double mean_product, bool accumulate) {
  using V = VectorOf<T>;
  T* dx = static_cast<T*>(dx_);
  const T *dy = static_cast<const T*>(dy_), *x = static_cast<const T*>(x_);
  V mean = splat_number<T>(norm.mean), rstd = splat_number<T>(norm.rstd), weight = splat_number<T>(norm.weight);
  V along = splat_number<T>(mean_dy), turned = splat_number<T>(mean_product);
  for (int64_t r = 0; r < runs.count; ++r, dx += runs.stride, dy += runs.stride, x += runs.stride)
    for_vectors<T>(runs.length, [&](int64_t i, auto load, auto store) {
      V normal = (load(x + i) - mean) * rstd;
      V g = grouped ? load(dy + i) * weight : load(dy + i), v = rstd * (g - along - normal * turned);
      if (!grouped) v *= weight;
      store(dx + i, accumulate ? load(dx + i) + v : v);
    });
}

#define SG_FLOATS(loop) \
  { loop<float>, loop<double>, loop<Bf16>, loop<F16> }

}  // namespace

namespace SG_ISA {
constinit const ChannelLoops channel_loops = {
    .sum = SG_FLOATS(sum),
    .squares = SG_FLOATS(squares),
    .products = SG_FLOATS(products),
    .normalize = SG_FLOATS(normalize),
    .backward = {backward<float, false>, backward<double, false>, backward<Bf16, false>, backward<F16, false>},
    .group_backward = {backward<float, true>, backward<double, true>, backward<Bf16, true>, backward<F16, true>},
};
}  // namespace SG_ISA
}  // namespace shardgrad::cpu
