// Convolutions: parts of an image go to where their windows are easily read (convolution_image.h), and the loops of
// isa/convolution.cpp run over them. Which parts depends on the threads, but no sum on the parts.

#include <shardgrad/kernels/cpu/convolution_parts.h>
#include <shardgrad/kernels/cpu/register.h>

namespace shardgrad::cpu {
namespace {

using kernels::ConvArgs;

// Images of so few places, and results for which an array of windows pays.
constexpr int64_t kSmallPlane = 256, kManyResults = 32;

// y = windows of x times weights. T is the type that E is computed in.
template <class E, class T = Compute<E>> struct Sums {
  Axis down, across;
  int64_t samples, groups, in, out;  // channels of a group
  const E* x;
  std::vector<const T*> weights;  // packed, of each group
  const T* bias;
  OutView y;

  int64_t depth() const { return in * int64_t(down.taps.size() * across.taps.size()); }
  static int64_t vector() { return loops().convolution.vector[kType<T>]; }
  const E* channels_of(int64_t image) const { return x + image * in * down.extent * across.extent; }

  void run(int threads) const {
    if (samples * groups == 0 || down.places == 0 || across.places == 0 || out == 0) return;
    bool small = across.places % vector() != 0 && down.places * across.places <= kSmallPlane && out >= kManyResults;
    small ? run_matrices(threads) : run_bands(threads);
  }

  void multiply(int64_t group, const T* from, const std::vector<int64_t>& offsets, const std::vector<int64_t>& places,
                int64_t vectors, T* sums) const {
    loops().convolution.sums[kType<T>]({.m = out,
                                        .k = depth(),
                                        .weights = weights[size_t(group)],
                                        .bias = bias ? bias + group * out : nullptr,
                                        .x = from,
                                        .offsets = offsets.data(),
                                        .vectors = vectors,
                                        .places = places.data(),
                                        .y = sums,
                                        .y_row = int64_t(places.size()) * vector()});
  }

  // Results of a band, whose rows lie `pitch` apart, to y (samples, channels, height, width).
  void put(const T* sums, int64_t sums_row, int64_t pitch, int64_t image, const Band& band) const {
    int64_t width = y.shape[3], plane = y.shape[2] * width;
    E* to = y.as<E>() + image * out * plane + (down.first + band.row * down.apart) * width + across.first +
            band.col * across.apart;
    for (int64_t o = 0; o < out; ++o, to += plane, sums += sums_row) {
      if (across.apart == 1) {
        MatrixCopy copy{band.rows, band.cols, to, down.apart * width, sums, pitch};
        loops().convolution.put[int(y.dtype)](copy, y.beta != 0);
        continue;
      }
      for (int64_t r = 0; r < band.rows; ++r)
        for (int64_t c = 0; c < band.cols; ++c)
          put_sum(to[r * down.apart * width + c * across.apart], sums[r * pitch + c], y.beta != 0);
    }
  }

  // A band of an image and group at a time.
  void run_bands(int threads) const {
    int64_t images = samples * groups, phases = int64_t(down.phases().size() * across.phases().size());
    Bands bands(down, across, in * phases + out, (threads + images - 1) / images, 4096);
    WindowImage layout(down, across, in, bands.rows, bands.cols, vector());
    int64_t row = int64_t(layout.places().size()) * vector();
    for_tasks<T>(threads, images * bands.count(), layout.size() + out * row, [&](int64_t task, T* memory) {
      Band band = bands.at(task % bands.count(), down, across);
      int64_t image = task / bands.count();
      T* sums = memory + layout.size();
      layout.fill(memory, channels_of(image), band);
      multiply(image % groups, memory, layout.offsets(), layout.places(), layout.vectors(band), sums);
      put(sums, row, layout.row(), image, band);
    });
  }

  // A group of several small images at a time: the places of their windows side by side, a row for each element.
  void run_matrices(int threads) const {
    int64_t each = down.places * across.places, fitting = std::max<int64_t>(4 * kCached / (depth() * each + 1), 1);
    int64_t together = std::max(fitting, (2 * vector() + each - 1) / each),
            a_thread = (samples * groups + threads - 1) / threads;
    together = std::min({samples, together, a_thread});
    WindowImage layout(down, across, in, down.places, across.places, vector());
    int64_t row = round_up(together * each, vector());
    std::vector<int64_t> offsets, places;
    for (int64_t k = 0; k < depth(); ++k) offsets.push_back(k * row);
    for (int64_t at = 0; at < row; at += vector()) places.push_back(at);
    int64_t blocks = (samples + together - 1) / together, size = layout.size() + (depth() + out) * row;
    for_tasks<T>(threads, blocks * groups, size, [&](int64_t task, T* memory) {
      T *matrix = memory + layout.size(), *sums = matrix + depth() * row;
      int64_t first = task / groups * together, count = std::min(together, samples - first), group = task % groups;
      Band whole{0, down.places, 0, across.places};
      for (int64_t s = 0; s < count; ++s) {
        layout.fill(memory, channels_of((first + s) * groups + group), whole);
        for (int64_t k = 0; k < depth(); ++k) {
          const T* from = memory + layout.offsets()[size_t(k)];
          MatrixCopy copy{whole.rows, whole.cols, matrix + k * row + s * each, whole.cols, from, layout.pitch()};
          loops().convolution.put[int(dtype_of<T>)](copy, false);
        }
      }
      multiply(group, matrix, offsets, places, (count * each + vector() - 1) / vector(), sums);
      for (int64_t s = 0; s < count; ++s) put(sums + s * each, row, whole.cols, (first + s) * groups + group, whole);
    });
  }
};

// The weight of every group as `sums` wants it: rows of results, columns of what they are sums of.
template <class T> struct PackedWeights {
  Workspace memory;
  std::vector<const T*> groups;
  template <class Weight>
  PackedWeights(int64_t count, int64_t m, int64_t k, const Weight& weight)
      : memory(kCpu, size_t(count * size_of_one(m, k) + m * k) * sizeof(T)) {
    T *to = memory.as<T>(), *plain = to + count * size_of_one(m, k);
    for (int64_t g = 0; g < count; ++g, to += size_of_one(m, k)) {
      weight(plain, g);
      loops().convolution.pack[kType<T>](to, plain, m, k);
      groups.push_back(to);
    }
  }
  static int64_t size_of_one(int64_t m, int64_t k) { return round_up(m, loops().convolution.row_step) * k; }
};

template <class E> void forward(const Launch& launch, OutView y, View x, View w, View bias, const ConvArgs& args) {
  using T = Compute<E>;
  int64_t out = w.shape[0] / args.groups, in = w.shape[1], depth = in * w.shape[2] * w.shape[3];
  PackedWeights<T> weights(args.groups, out, depth, [&](T* to, int64_t g) {
    const E* from = w.as<E>() + g * out * depth;
    for (int64_t i = 0; i < out * depth; ++i) to[i] = convert<T>(from[i]);
  });
  std::vector<T> biases;
  for (int64_t o = 0; bias.defined() && o < w.shape[0]; ++o) biases.push_back(convert<T>(bias.as<E>()[o]));
  Sums<E>{Axis::of(args.down, x.shape[2]),
          Axis::of(args.across, x.shape[3]),
          x.shape[0],
          args.groups,
          in,
          out,
          x.as<E>(),
          weights.groups,
          bias.defined() ? biases.data() : nullptr,
          y}
      .run(launch.threads);
}

// dx of the places with two remainders by the strides.
template <class E>
void backward_phase(const Launch& launch, OutView dx, View dy, View w, const ConvArgs& args, const Axis& down,
                    const Axis& across) {
  using T = Compute<E>;
  int64_t out = w.shape[0] / args.groups, in = w.shape[1], across_all = args.across.kernel;
  int64_t window = args.down.kernel * across_all, depth = out * int64_t(down.taps.size() * across.taps.size());
  PackedWeights<T> weights(args.groups, in, depth, [&](T* to, int64_t g) {
    for (int64_t c = 0; c < in; ++c)
      for (int64_t o = g * out; o < (g + 1) * out; ++o)
        for (int64_t i : down.elements)
          for (int64_t j : across.elements) *to++ = convert<T>(w.as<E>()[(o * in + c) * window + i * across_all + j]);
  });
  Sums<E>{down, across, dx.shape[0], args.groups, out, in, dy.as<E>(), weights.groups, nullptr, dx}.run(launch.threads);
}

template <class E> void backward_input(const Launch& launch, OutView dx, View dy, View w, const ConvArgs& args) {
  for (int64_t r = 0; r < args.down.stride; ++r)
    for (int64_t c = 0; c < args.across.stride; ++c)
      backward_phase<E>(launch, dx, dy, w, args, Axis::of_gradient(args.down, dx.shape[2], r),
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
