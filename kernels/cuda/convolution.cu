// Convolutions as products whose second factor is never in memory: the windows of an image, as columns. Of an image
// with two channels and windows of 2 × 2, forward is
//
//     y (out, places) = w (out, 8) · windows (8, places)      row k of the windows is channel k / 4, element k % 4
//
// and each block has 64 × 64 elements of y. What element k is away from where a window begins is the same for all
// places; one thread computes it for the block. The gradient of the image is such a product, too: of dy's windows, with
// w turned round, and with a stride one for each remainder of the places by it, of the elements that meet them. The
// gradient of w sums over all places of all samples: parts of so many are summed apart and then in their order.

#include <numeric>

#include <shardgrad/kernels/cuda/sums.h>
#include <shardgrad/kernels/cuda/tile_product.h>

namespace shardgrad::SG_DEVICE {
namespace {

using kernels::ConvArgs;

/// One dimension of windows over an extent: element t of the window of place p is at first + p · step + t · apart, and
/// is element `element` + t · element_step of the weight's. The results of the places are `to` + p · to_step.
struct Along {
  int extent, places, count, first, step, apart, element = 0, element_step = 1, to = 0, to_step = 1;
};

Along along(const Window& w, int64_t extent) {
  return {.extent = int(extent),
          .places = int(w.places(extent)),
          .count = int(w.kernel),
          .first = int(-w.padding),
          .step = int(w.stride),
          .apart = int(w.dilation)};
}

// Of dy, for those places of the image whose padded position has this remainder by the stride.
Along along_gradient(const Window& w, int64_t extent, int64_t remainder) {
  int64_t to = ((remainder - w.padding) % w.stride + w.stride) % w.stride,
          each = w.stride / std::gcd(w.stride, w.dilation);
  int64_t first = 0;
  while (first < each && (to + w.padding - first * w.dilation) % w.stride != 0) ++first;
  Along a{.extent = int(w.places(extent)),
          .places = int(std::max<int64_t>(0, (extent - to + w.stride - 1) / w.stride)),
          .count = first < each ? int(std::max<int64_t>(0, (w.kernel - first + each - 1) / each)) : 0,
          .first = 0,
          .step = 1,
          .apart = int(-each * w.dilation / w.stride),
          .element = int(first),
          .element_step = int(each),
          .to = int(to),
          .to_step = int(w.stride)};
  if (a.count > 0) a.first = int((to + w.padding - first * w.dilation) / w.stride);
  return a;
}

/// Where an element of a window is, from where the window begins: rows and columns, elements of the image with those of
/// the channels before, and of the weight.
struct Tap {
  int row, col;
  int64_t image, weight;
};

struct Windows {
  Along down, across;
  int64_t samples, groups, in, out;      // channels of a group
  int64_t weight_in, weight_out, width;  // elements of w from channel to channel, and from row to row of its windows
  int64_t window, weight_group;          // elements of a window, and of a group of w

  __host__ __device__ int64_t places() const { return int64_t(down.places) * across.places; }
  __host__ __device__ int64_t depth() const { return in * window; }
  __device__ Tap tap(int64_t k) const {
    int channel = int(k / window), e = int(k % window), i = e / across.count, j = e % across.count;
    int row = i * down.apart, col = j * across.apart;
    return {row, col, (int64_t(channel) * down.extent + row) * across.extent + col,
            channel * weight_in + (down.element + i * down.element_step) * width + across.element +
                j * across.element_step};
  }
};

/// Where the window of a place begins.
struct Spot {
  int row, col;
  int64_t image;  // may be outside of it
  bool there;
};
__device__ Spot spot_of(const Windows& w, int64_t place, int64_t group) {
  if (place >= w.samples * w.places()) return {0, 0, 0, false};
  int64_t sample = place / w.places();
  int at = int(place % w.places()), row = w.down.first + at / w.across.places * w.down.step;
  int col = w.across.first + at % w.across.places * w.across.step;
  int64_t channel = (sample * w.groups + group) * w.in;
  return {row, col, (channel * w.down.extent + row) * w.across.extent + col, true};
}
template <class T> __device__ T seen(const T* x, const Windows& w, const Spot& spot, const Tap& tap) {
  int row = spot.row + tap.row, col = spot.col + tap.col;
  bool inside = spot.there && unsigned(row) < unsigned(w.down.extent) && unsigned(col) < unsigned(w.across.extent);
  return inside ? x[spot.image + tap.image] : T{};
}

// Where the result of a place belongs in y (samples, channels, height, width), in the group's first channel.
__device__ int64_t result_of(const Windows& w, int64_t place, int64_t group, int64_t height, int64_t width) {
  int64_t sample = place / w.places(), at = place % w.places();
  int64_t row = w.down.to + at / w.across.places * w.down.to_step;
  int64_t channel = (sample * w.groups + group) * w.out;
  return (channel * height + row) * width + w.across.to + at % w.across.places * w.across.to_step;
}

// Which tile of which group a block has; along x, of whose blocks there may be more than 65535.
struct Job {
  int64_t group, row0, col0;
  __device__ Job(int64_t rows, int64_t cols) {
    int64_t across = (cols + kTile - 1) / kTile, tiles = (rows + kTile - 1) / kTile * across;
    int64_t tile = blockIdx.x % tiles;
    group = blockIdx.x / tiles, row0 = tile / across * kTile, col0 = tile % across * kTile;
  }
};

template <class T>
__global__ void windows_kernel(T* y, const T* x, const T* weight, const T* bias, Windows w, int height, int width,
                               bool accumulate) {
  using Tiles = TilesOf<T>;
  __shared__ Tiles tiles;
  __shared__ Tap taps[2][Tiles::depth];
  __shared__ int64_t results[kTile];
  Job job(w.out, w.samples * w.places());
  int64_t group = job.group, row0 = job.row0, col0 = job.col0, depth = w.depth();
  int thread = int(threadIdx.x), column = thread % kTile;
  Spot spot = spot_of(w, col0 + column, group);
  if (thread < kTile) results[thread] = spot.there ? result_of(w, col0 + thread, group, height, width) : -1;
  if (thread < Tiles::depth && thread < depth) taps[0][thread] = w.tap(thread);
  __syncthreads();
  typename Tiles::Sums sums = {};
  const T* weights = weight + group * w.weight_group;
  for (int64_t begin = 0; begin < depth; begin += Tiles::depth) {
    const Tap* now = taps[begin / Tiles::depth % 2];
    int left = int(depth - begin < Tiles::depth ? depth - begin : Tiles::depth);
    for (int e = thread; e < kTile * Tiles::depth; e += int(blockDim.x)) {
      int i = e / Tiles::depth, k = e % Tiles::depth;
      bool inside = row0 + i < w.out && k < left;
      tiles.put(0, i, k, inside ? weights[(row0 + i) * w.weight_out + now[k].weight] : T{});
    }
    for (int k = thread / kTile; k < Tiles::depth; k += int(blockDim.x) / kTile)
      tiles.put(1, column, k, k < left ? seen(x, w, spot, now[k]) : T{});
    if (thread < Tiles::depth && begin + Tiles::depth + thread < depth)
      taps[(begin / Tiles::depth + 1) % 2][thread] = w.tap(begin + Tiles::depth + thread);
    __syncthreads();
    int64_t rows = w.out - row0, cols = w.samples * w.places() - col0;
    tiles.add(sums, int(rows < kTile ? rows : kTile), int(cols < kTile ? cols : kTile));
    __syncthreads();
  }
  tiles.finish(sums, [&](int row, int col, Compute<T> sum) {
    if (row0 + row >= w.out || results[col] < 0) return;
    if (bias) sum += load(bias + group * w.out + row0 + row);
    store(y + results[col] + (row0 + row) * height * width, sum, accumulate);
  });
}

template <class T>
void windows_product(const Launch& how, OutView y, View x, View w, View bias, const Windows& windows) {
  int64_t places = windows.samples * windows.places();
  if (places == 0 || windows.out == 0) return;
  int64_t tiles = int64_t(blocks_for(places, kTile)) * blocks_for(windows.out, kTile);
  dim3 grid(blocks_for(tiles * windows.groups, 1));
  launch<windows_kernel<T>>(how, {grid, TilesOf<T>::block}, y.as<T>(), x.as<T>(), w.as<T>(), bias.as<T>(), windows,
                            int(y.shape[2]), int(y.shape[3]), y.beta != 0);
}

// Of w (out, in, height, width), seen from the image.
Windows windows_over(const Shape& x, const Shape& w, const ConvArgs& args) {
  int64_t window = w[2] * w[3], out = w[0] / args.groups;
  return {along(args.down, x[2]),
          along(args.across, x[3]),
          x[0],
          args.groups,
          w[1],
          out,
          window,
          w[1] * window,
          w[3],
          window,
          out * w[1] * window};
}

void conv2d(const Launch& how, OutView y, View x, View w, View bias, ConvArgs args) {
  dispatch_floats(x.dtype,
                  [&]<class T>() { windows_product<T>(how, y, x, w, bias, windows_over(x.shape, w.shape, args)); });
}

void conv2d_backward_input(const Launch& how, OutView dx, View dy, View w, ConvArgs args) {
  Windows windows = windows_over(dx.shape, w.shape, args);
  std::swap(windows.in, windows.out);
  std::swap(windows.weight_in, windows.weight_out);
  for (int64_t r = 0; r < args.down.stride; ++r)
    for (int64_t c = 0; c < args.across.stride; ++c) {
      windows.down = along_gradient(args.down, dx.shape[2], r);
      windows.across = along_gradient(args.across, dx.shape[3], c);
      windows.window = int64_t(windows.down.count) * windows.across.count;
      dispatch_floats(dy.dtype, [&]<class T>() { windows_product<T>(how, dx, dy, w, {}, windows); });
    }
}

/// dy and the window of a place, for the sums over places.
struct Source {
  Spot spot;
  int64_t grad;
};

// Block (tile of a group, 0, part): dw's tile of 64 results and 64 elements of the windows, summed over `share` places.
template <class T>
__global__ void weight_kernel(Compute<T>* partials, const T* dy, const T* x, Windows w, int64_t share) {
  using Tiles = TilesOf<T>;
  __shared__ Tiles tiles;
  __shared__ Source sources[2][Tiles::depth];
  __shared__ Tap taps[kTile];
  Job job(w.out, w.depth());
  int64_t group = job.group, row0 = job.row0, col0 = job.col0, all = w.samples * w.places();
  int64_t first = blockIdx.z * share, last = first + share < all ? first + share : all;
  int thread = int(threadIdx.x);
  auto source = [&](int64_t place) {
    int64_t channel = (place / w.places() * w.groups + group) * w.out;
    return Source{spot_of(w, place, group), channel * w.places() + place % w.places()};
  };
  if (thread < kTile && col0 + thread < w.depth()) taps[thread] = w.tap(col0 + thread);
  if (thread < Tiles::depth && first + thread < last) sources[0][thread] = source(first + thread);
  __syncthreads();
  typename Tiles::Sums sums = {};
  for (int64_t begin = first, step = 0; begin < last; begin += Tiles::depth, ++step) {
    const Source* now = sources[step % 2];
    int left = int(last - begin < Tiles::depth ? last - begin : Tiles::depth);
    for (int e = thread; e < kTile * Tiles::depth; e += int(blockDim.x)) {
      int i = e / Tiles::depth, k = e % Tiles::depth;
      bool there = k < left;
      tiles.put(0, i, k, there && row0 + i < w.out ? dy[now[k].grad + (row0 + i) * w.places()] : T{});
      tiles.put(1, i, k, there && col0 + i < w.depth() ? seen(x, w, now[k].spot, taps[i]) : T{});
    }
    if (thread < Tiles::depth && begin + Tiles::depth + thread < last)
      sources[(step + 1) % 2][thread] = source(begin + Tiles::depth + thread);
    __syncthreads();
    int64_t rows = w.out - row0, cols = w.depth() - col0;
    tiles.add(sums, int(rows < kTile ? rows : kTile), int(cols < kTile ? cols : kTile));
    __syncthreads();
  }
  Compute<T>* to = partials + (blockIdx.z * w.groups + group) * w.out * w.depth();
  tiles.finish(sums, [&](int row, int col, Compute<T> sum) {
    if (row0 + row < w.out && col0 + col < w.depth()) to[(row0 + row) * w.depth() + col0 + col] = sum;
  });
}

template <class T>
__global__ void add_parts_kernel(T* dw, const Compute<T>* partials, int64_t n, int64_t parts, bool accumulate) {
  int64_t i = thread_number();
  if (i >= n) return;
  Compute<T> sum = 0;
  for (int64_t p = 0; p < parts; ++p) sum += partials[p * n + i];
  store(dw + i, sum, accumulate);
}

constexpr int64_t kPlaces = 512;  // that a part has at least
constexpr int64_t kBlocks = 512;  // about as many as are wanted

template <class T> void weight_product(const Launch& how, OutView dw, View dy, View x, const Windows& w) {
  int64_t places = w.samples * w.places(), n = dw.numel();
  int64_t tiles = int64_t(blocks_for(w.out, kTile)) * blocks_for(w.depth(), kTile);
  int64_t wanted = std::max<int64_t>(1, kBlocks / (tiles * w.groups));
  int64_t parts = std::clamp<int64_t>(std::min(wanted, places / kPlaces), 1, 65535);
  int64_t share = std::max<int64_t>(1, (places + parts - 1) / parts);
  Scratch scratch(how, size_t(parts * n) * sizeof(Compute<T>));
  auto* partials = scratch.as<Compute<T>>();
  dim3 grid(blocks_for(tiles * w.groups, 1), 1, unsigned(parts));
  launch<weight_kernel<T>>(how, {grid, TilesOf<T>::block}, partials, dy.as<T>(), x.as<T>(), w, share);
  launch<add_parts_kernel<T>>(how, {blocks_for(n), kBlock}, dw.as<T>(), partials, n, parts, dw.beta != 0);
}

// dy (samples, channels, places) summed over all but the channels.
template <class T> struct OfChannel {
  const T* dy;
  int64_t channels, places;
  __device__ void operator()(int64_t channel, int64_t i, int64_t, double* sums) const {
    sums[0] += double(load(dy + (i / places * channels + channel) * places + i % places));
  }
};

void conv2d_backward_weight(const Launch& how, OutView dw, OutView dbias, View dy, View x, ConvArgs args) {
  dispatch_floats(dy.dtype, [&]<class T>() {
    int64_t places = dy.shape[2] * dy.shape[3], channels = dy.shape[1];
    if (dbias.defined() && channels > 0)
      sum_rows<double, 1>(how, OfChannel<T>{dy.as<T>(), channels, std::max<int64_t>(places, 1)},
                          Write<T>{dbias.as<T>(), dbias.beta != 0}, channels, dy.shape[0] * places);
    if (dw.defined() && dw.numel() > 0) weight_product<T>(how, dw, dy, x, windows_over(x.shape, dw.shape, args));
  });
}

const Registered registered[] = {
    add_kernel<conv2d>(kernels::conv2d, kFloats),
    add_kernel<conv2d_backward_input>(kernels::conv2d_backward_input, kFloats),
    add_kernel<conv2d_backward_weight>(kernels::conv2d_backward_weight, kFloats),
};

}  // namespace
}  // namespace shardgrad::SG_DEVICE
