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

  /// Elements [first, last) of the windows of a group.
  struct Part {
    int64_t group, first, last;
  };
  void multiply(const Part& part, const T* from, const std::vector<int64_t>& offsets,
                const std::vector<int64_t>& places, int64_t vectors, T* sums) const {
    loops().convolution.sums[kType<T>]({.m = out,
                                        .first = part.first,
                                        .last = part.last,
                                        .weights = weights[size_t(part.group)],
                                        .bias = bias ? bias + part.group * out : nullptr,
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
    if (down.apart * across.apart == 1 && band.cols == width && pitch == width) {
      MatrixCopy copy{out, band.rows * width, to, plane, sums, sums_row};
      loops().convolution.put[int(y.dtype)](copy, y.beta != 0);
      return;
    }
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
      multiply({image % groups, 0, depth()}, memory, layout.offsets(), layout.places(), layout.vectors(band), sums);
      put(sums, row, layout.row(), image, band);
    });
  }

  // Which places of `samples` images a panel's columns are: of each panel its pieces.
  std::vector<std::vector<WindowPiece>> pieces(const WindowImage& layout, int64_t samples, int64_t panel) const {
    std::vector<std::vector<WindowPiece>> all;
    for (int64_t row = 0, at = 0; row < samples * down.places; ++row)
      for (int64_t col = 0, end = at + across.places; at < end;) {
        if (at % panel == 0) all.emplace_back();
        int64_t count = std::min(panel - at % panel, end - at);
        int64_t from = row / down.places * layout.size() + row % down.places * layout.pitch() + col;
        all.back().push_back({from, at % panel, count});
        col += count, at += count;
      }
    return all;
  }

  // How many small images a thread takes at a time: as few times as possible it goes through all weights, but a block
  // of windows and the results stay in the cache.
  int64_t together(int threads) const {
    int64_t each = down.places * across.places, of_panels = (2 * vector() + each - 1) / each;
    int64_t fitting = std::max(kCached / ((loops().convolution.block + out) * each), of_panels);
    int64_t a_thread = (samples * groups + threads - 1) / threads, most = std::min({samples, fitting, a_thread});
    int64_t times = (samples + most - 1) / most;
    return (samples + times - 1) / times;
  }

  // A group of several small images at a time: what their windows see of a block of elements, side by side in panels.
  void run_matrices(int threads) const {
    const auto& loop = loops().convolution;
    int64_t each = down.places * across.places, together = this->together(threads), panel = loop.panel * vector();
    WindowImage layout(down, across, in, down.places, across.places, vector());
    auto columns = pieces(layout, together, panel);
    int64_t row = int64_t(columns.size()) * panel, block = std::clamp<int64_t>(depth(), 1, loop.block);
    std::vector<int64_t> offsets, places;
    for (int64_t k = 0; k < block; ++k) offsets.push_back(k * panel);
    for (int64_t at = 0; at < row; at += vector()) places.push_back(at / panel * block * panel + at % panel);
    int64_t images = round_up(together * layout.size(), panel), blocks = (samples + together - 1) / together;
    // Behind the last panel a vector may be overwritten.
    for_tasks<T>(threads, blocks * groups, images + block * row + panel + out * row, [&](int64_t task, T* memory) {
      T *matrix = memory + images, *sums = matrix + block * row + panel;
      int64_t first = task / groups * together, count = std::min(together, samples - first), group = task % groups;
      Band whole{0, down.places, 0, across.places};
      for (int64_t s = 0; s < count; ++s)
        layout.fill(memory + s * layout.size(), channels_of((first + s) * groups + group), whole);
      int64_t vectors = (count * each + vector() - 1) / vector(), k = 0;
      do {
        int64_t last = std::min(k + block, depth());
        for (int64_t p = 0; p * panel < count * each; ++p)
          loop.windows[kType<T>]({.k = last - k,
                                  .x = memory,
                                  .offsets = layout.offsets().data() + k,
                                  .pieces = columns[size_t(p)].data(),
                                  .count = int64_t(columns[size_t(p)].size()),
                                  .to = matrix + p * block * panel,
                                  .row = panel});
        multiply({group, k, last}, matrix, offsets, places, vectors, sums);
        k += block;
      } while (k < depth());
      for (int64_t s = 0; s < count; ++s) put(sums + s * each, row, whole.cols, (first + s) * groups + group, whole);
    });
  }
};

// The weight of every group as `sums` wants it: rows of results, columns of what they are sums of. weight(room, group)
// gives it row by row, and may use the room for it.
template <class T> struct PackedWeights {
  Workspace memory;
  std::vector<const T*> groups;
  template <class Weight>
  PackedWeights(int64_t count, int64_t m, int64_t k, int64_t room, const Weight& weight)
      : memory(kCpu, size_t(count * size_of_one(m, k) + room) * sizeof(T)) {
    T *to = memory.as<T>(), *plain = to + count * size_of_one(m, k);
    for (int64_t g = 0; g < count; ++g, to += size_of_one(m, k)) {
      loops().convolution.pack[kType<T>](to, weight(plain, g), m, k);
      groups.push_back(to);
    }
  }
  static int64_t size_of_one(int64_t m, int64_t k) { return round_up(m, loops().convolution.row_step) * k; }
};

template <class E> void forward(const Launch& launch, OutView y, View x, View w, View bias, const ConvArgs& args) {
  using T = Compute<E>;
  constexpr bool kSame = std::is_same_v<E, T>;
  int64_t out = w.shape[0] / args.groups, in = w.shape[1], depth = in * w.shape[2] * w.shape[3];
  PackedWeights<T> weights(args.groups, out, depth, kSame ? 0 : out * depth, [&](T* room, int64_t g) -> const T* {
    const E* from = w.as<E>() + g * out * depth;
    if constexpr (kSame) return from;
    loops().elementwise.cast[int(dtype_of<T>)][int(w.dtype)](room, from, out * depth, false);
    return room;
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
  PackedWeights<T> weights(args.groups, in, depth, in * depth, [&](T* room, int64_t g) {
    T* to = room;
    for (int64_t c = 0; c < in; ++c)
      for (int64_t o = g * out; o < (g + 1) * out; ++o)
        for (int64_t i : down.elements)
          for (int64_t j : across.elements) *to++ = convert<T>(w.as<E>()[(o * in + c) * window + i * across_all + j]);
    return room;
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
