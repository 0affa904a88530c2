// The gradient of a convolution's weight: sums over the places of all samples, in parts that are a function of the
// shape alone. Threads share the weight's elements.

#include <tuple>

#include <shardgrad/kernels/cpu/convolution_parts.h>
#include <shardgrad/kernels/cpu/register.h>

namespace shardgrad::cpu {
namespace {

using kernels::ConvArgs;

constexpr int64_t kSummed = 512;  // places whose products are added in registers
constexpr int64_t kTurned = 256;  // rows that are turned round at a time

// The places whose windows' element k is within the image.
std::pair<int64_t, int64_t> places_of(const Axis& axis, int64_t k) {
  auto at = [&](int64_t place) { return axis.taps[size_t(k)] + axis.step * place - axis.low; };
  int64_t first = 0, last = axis.places;
  while (first < last && at(first) < 0) ++first;
  while (first < last && at(last - 1) >= axis.extent) --last;
  return {first, last};
}

// dw = dy times windows of x, summed over places and samples: one thread's share of a group's channels and results.
template <class E, class T = Compute<E>> struct Products {
  View dy, x;
  OutView dw;
  const Axis &down, &across;
  int64_t groups;

  struct Share {
    int64_t group, channel, channels, result, results;
  };
  int64_t in() const { return dw.shape[1]; }
  int64_t out() const { return dw.shape[0] / groups; }
  int64_t window() const { return dw.shape[2] * dw.shape[3]; }
  int64_t padded(int64_t results) const { return round_up(results, loops().convolution.vector[kType<T>]); }

  static int64_t panel() { return loops().convolution.panel * loops().convolution.vector[kType<T>]; }

  struct Rows {
    int64_t first, total;
  };
  // dy's places of a band as rows of panels, from the first of as many as there are in all.
  void turn(T* to, T* room, const E* from, const Rows& rows, const Band& band, int64_t results) const {
    int64_t places = down.places * across.places, lines = band.cols == across.places ? 1 : band.rows;
    int64_t line = band.rows * band.cols / lines;
    for (int64_t r = 0; r < lines; ++r) {
      const E* row = from + (band.row + r) * across.places + band.col;
      for (int64_t o = 0; o < results; o += panel()) {
        int64_t count = std::min(panel(), results - o), wide = std::min(panel(), padded(results) - o);
        MatrixCopy task{count, line, to + o * rows.total + (rows.first + r * line) * wide, wide, row + o * places,
                        places};
        if constexpr (!std::is_same_v<E, T>) {
          auto cast = loops().elementwise.cast[int(dtype_of<T>)][int(dtype_of<E>)];
          for (int64_t i = 0; i < count; ++i) cast(room + i * line, row + (o + i) * places, line, false);
          task.from = room, task.from_row = line;
        }
        loops().convolution.transpose[kType<T>](task);
      }
    }
  }

  // Images whose places are summed in one go: several where they are small.
  int64_t together(const Bands& bands) const {
    return bands.count() > 1
               ? 1
               : std::clamp<int64_t>(kSummed / (bands.rows * bands.cols), 1, std::max<int64_t>(x.shape[0], 1));
  }

  // Channels that a tile of the products has side by side, each with the same element of its window.
  std::vector<WindowElement> elements(const Share& share, const Bands& bands, const WindowImage& layout) const {
    int64_t tile = loops().convolution.row_step;
    std::vector<WindowElement> all;
    for (int64_t c = 0; c < share.channels; c += tile)
      for (int64_t w = 0; w < window(); ++w) {
        Places seen{0, bands.rows, 0, bands.cols};
        if (bands.count() == 1) {
          std::tie(seen.row, seen.last_row) = places_of(down, w / dw.shape[3]);
          std::tie(seen.col, seen.last_col) = places_of(across, w % dw.shape[3]);
        }
        for (int64_t i = c; i < std::min(c + tile, share.channels); ++i)
          all.push_back({i * window() + w, layout.offsets()[size_t(i * window() + w)], seen});
      }
    return all;
  }

  void run(const Share& share, const Bands& bands, const WindowImage& layout, T* memory) const {
    int64_t row = padded(share.results), depth = share.channels * window(), places = down.places * across.places;
    int64_t samples = x.shape[0], many = together(bands);
    T *grad = memory + many * layout.size(), *sums = grad + many * bands.rows * bands.cols * row;
    T* room = sums + depth * row;
    std::vector<WindowElement> all = elements(share, bands, layout);
    std::fill(grad, room, T(0));
    for (int64_t first = 0; first < samples; first += many)
      for (int64_t b = 0; b < bands.count(); ++b) {
        Band band = bands.at(b, down, across);
        int64_t images = std::min(many, samples - first), total = images * band.rows * band.cols;
        for (int64_t i = 0; i < images; ++i) {
          int64_t group = (first + i) * groups + share.group, channel = group * in() + share.channel;
          layout.fill(memory + i * layout.size(), x.as<E>() + channel * down.extent * across.extent, band);
          const E* from = dy.as<E>() + (group * out() + share.result) * places;
          turn(grad, room, from, {i * band.rows * band.cols, total}, band, share.results);
        }
        loops().convolution.products[kType<T>]({.k = depth,
                                                .row = row,
                                                .images = images,
                                                .step = layout.size(),
                                                .rows = band.rows,
                                                .cols = band.cols,
                                                .pitch = layout.pitch(),
                                                .x = memory,
                                                .elements = all.data(),
                                                .dy = grad,
                                                .sums = sums});
      }
    put(share, sums, row, room);
  }

  int64_t size(const Bands& bands, const WindowImage& layout, const Share& share) const {
    int64_t places = bands.rows * bands.cols, many = together(bands);
    int64_t sums = (many * places + share.channels * window()) * padded(share.results);
    return many * layout.size() + sums + std::max(places, kTurned) * panel();
  }

  // Sums (element of a window, result) to dw.
  void put(const Share& share, const T* sums, int64_t row, T* room) const {
    int64_t of_result = in() * window(), depth = share.channels * window();
    E* to = dw.as<E>() + (share.group * out() + share.result) * of_result + share.channel * window();
    for (int64_t o = 0; o < share.results; o += panel())
      for (int64_t k = 0; k < depth; k += kTurned) {
        int64_t count = std::min(kTurned, depth - k), results = std::min(panel(), share.results - o);
        loops().convolution.transpose[kType<T>]({count, results, room, kTurned, sums + k * row + o, row});
        MatrixCopy copy{results, count, to + o * of_result + k, of_result, room, kTurned};
        loops().convolution.put[int(dw.dtype)](copy, dw.beta != 0);
      }
  }

  // The shares of all threads. A thread's results are whole vectors where channels are few.
  std::vector<Share> shares(int threads) const {
    int64_t cuts = std::min(in(), (threads + groups - 1) / groups);
    int64_t rest = (threads + groups * cuts - 1) / std::max<int64_t>(groups * cuts, 1);
    int64_t channels = (in() + cuts - 1) / std::max<int64_t>(cuts, 1), results = padded((out() + rest - 1) / rest);
    std::vector<Share> all;
    for (int64_t g = 0; g < groups; ++g)
      for (int64_t c = 0; c < in(); c += channels)
        for (int64_t o = 0; o < out(); o += results)
          all.push_back({g, c, std::min(channels, in() - c), o, std::min(results, out() - o)});
    return all;
  }
};

template <class E> void backward_weight(const Launch& launch, OutView dw, View dy, View x, const ConvArgs& args) {
  using T = Compute<E>;
  if (dw.numel() == 0) return;
  Axis down = Axis::of(args.down, x.shape[2]), across = Axis::of(args.across, x.shape[3]);
  Products<E> products{dy, x, dw, down, across, args.groups};
  int64_t phases = int64_t(down.phases().size() * across.phases().size());
  Bands bands(down, across, products.in() * phases + products.padded(products.out()), 1, kSummed);
  auto shares = products.shares(launch.threads);
  std::vector<WindowImage> layouts;
  for (const auto& share : shares)
    layouts.emplace_back(down, across, share.channels, bands.rows, bands.cols, products.padded(1));
  int64_t size = products.size(bands, layouts[0], shares[0]);
  for_tasks<T>(launch.threads, int64_t(shares.size()), size, [&](int64_t task, T* memory) {
    products.run(shares[size_t(task)], bands, layouts[size_t(task)], memory);
  });
}

void conv2d_backward_weight(const Launch& launch, OutView dw, OutView dbias, View dy, View x, ConvArgs args) {
  if (dbias.defined()) {
    OutView channels = dbias;
    channels.shape = {dbias.numel(), 1, 1};
    kernels::sum_to.find(DeviceKind::cpu, dy.dtype)(launch, channels, dy);
  }
  if (dw.defined()) dispatch_floats(dy.dtype, [&]<class E>() { backward_weight<E>(launch, dw, dy, x, args); });
}

const Each registered_weight(kernels::conv2d_backward_weight, kFloats, conv2d_backward_weight);

}  // namespace
}  // namespace shardgrad::cpu
