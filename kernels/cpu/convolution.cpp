// Convolutions: weights are packed, and sums over windows made of them (convolution_sums.h).

#include <shardgrad/kernels/cpu/convolution_sums.h>
#include <shardgrad/kernels/cpu/register.h>

namespace shardgrad::cpu {
namespace {

using kernels::ConvArgs;

// Weights as they are computed with.
template <class E, class T = Compute<E>> struct Weights {
  Workspace room;
  const T* values;
  Weights(const Launch& launch, View w) : room(kCpu, std::is_same_v<E, T> ? 0 : size_t(w.numel()) * sizeof(T)) {
    if constexpr (std::is_same_v<E, T>) {
      values = w.as<T>();
    } else {
      auto cast = loops().elementwise.cast[int(dtype_of<T>)][int(w.dtype)];
      parallel_elements(launch.threads, w.numel(), [&](int64_t begin, int64_t end) {
        cast(room.as<T>() + begin, w.as<E>() + begin, end - begin, false);
      });
      values = room.as<T>();
    }
  }
};

// The weight of every group as `sums` wants it: rows of results, columns of what they are sums of.
template <class T> struct PackedWeights {
  Workspace memory;
  std::vector<const T*> groups;
  bool finite;
  /// Those of a group begin `apart` behind those of the group before.
  PackedWeights(int threads, int64_t count, int64_t apart, const T* weights, WeightPacking packing)
      : memory(kCpu, size_t(count * round_up(packing.m, loop().row_step) * packing.k) * sizeof(T)) {
    int64_t blocks = (packing.k + loop().block - 1) / loop().block;
    std::vector<char> odd(size_t(count * blocks));
    auto of_group = [&](int64_t g) { return memory.as<T>() + g * round_up(packing.m, loop().row_step) * packing.k; };
    for (int64_t g = 0; g < count; ++g) groups.push_back(of_group(g));
    parallel_for(threads, count * blocks, 1, [&](int64_t begin, int64_t end) {
      for (int64_t task = begin; task < end; ++task) {
        WeightPacking one = packing;
        one.weights = weights + task / blocks * apart, one.packed = of_group(task / blocks);
        one.first = task % blocks * loop().block, one.last = std::min(one.first + loop().block, packing.k);
        odd[size_t(task)] = !loop().pack[kType<T>](one);
      }
    });
    finite = std::ranges::count(odd, true) == 0;
  }
  static const ConvolutionLoops& loop() { return loops().convolution; }
};

template <class E> void forward(const Launch& launch, OutView y, View x, View w, View bias, const ConvArgs& args) {
  using T = Compute<E>;
  int64_t out = w.shape[0] / args.groups, in = w.shape[1], depth = in * w.shape[2] * w.shape[3];
  Weights<E> plain(launch, w);
  PackedWeights<T> weights(launch.threads, args.groups, out * depth, plain.values,
                           {.m = out, .k = depth, .step = depth});
  std::vector<T> biases;
  for (int64_t o = 0; bias.defined() && o < w.shape[0]; ++o) biases.push_back(convert<T>(bias.as<E>()[o]));
  Axis down = Axis::of(args.down, x.shape[2]), across = Axis::of(args.across, x.shape[3]);
  const T* added = bias.defined() ? biases.data() : nullptr;
  WindowSumsOf<E> sums{down,      across,         x.shape[0],     args.groups, in, out,
                       x.as<E>(), weights.groups, weights.finite, added,       y};
  sums.run(launch.threads);
}

// dx of the places with two remainders by the strides.
template <class E>
void backward_phase(const Launch& launch, OutView dx, View dy, const Shape& w, const Compute<E>* plain,
                    const ConvArgs& args, const Axis& down, const Axis& across) {
  using T = Compute<E>;
  int64_t out = w[0] / args.groups, in = w[1], window = w[2] * w[3];
  std::vector<int64_t> offsets;
  for (int64_t o = 0; o < out; ++o)
    for (int64_t i : down.elements)
      for (int64_t j : across.elements) offsets.push_back(o * in * window + i * w[3] + j);
  WeightPacking packing{.m = in, .k = int64_t(offsets.size()), .step = window, .offsets = offsets.data()};
  PackedWeights<T> weights(launch.threads, args.groups, out * in * window, plain, packing);
  WindowSumsOf<E> sums{down,       across,         dx.shape[0],    args.groups, out, in,
                       dy.as<E>(), weights.groups, weights.finite, nullptr,     dx};
  sums.run(launch.threads);
}

template <class E> void backward_input(const Launch& launch, OutView dx, View dy, View w, const ConvArgs& args) {
  Weights<E> plain(launch, w);
  for (int64_t r = 0; r < args.down.stride; ++r)
    for (int64_t c = 0; c < args.across.stride; ++c)
      backward_phase<E>(launch, dx, dy, w.shape, plain.values, args, Axis::of_gradient(args.down, dx.shape[2], r),
                        Axis::of_gradient(args.across, dx.shape[3], c));
}

void conv2d(const Launch& launch, OutView y, View x, View w, View bias, ConvArgs args) {
  dispatch_floats(x.dtype, [&]<class E>() { forward<E>(launch, y, x, w, bias, args); });
}

void conv2d_backward_input(const Launch& launch, OutView dx, View dy, View w, ConvArgs args) {
  dispatch_floats(dy.dtype, [&]<class E>() { backward_input<E>(launch, dx, dy, w, args); });
}

const Each registered_forward(kernels::conv2d, kFloats, conv2d);
const Each registered_input(kernels::conv2d_backward_input, kFloats, conv2d_backward_input);

}  // namespace
}  // namespace shardgrad::cpu
