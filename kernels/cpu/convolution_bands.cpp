// Parts of an image go to where their windows are easily read (convolution_image.h), and neighbouring places are a
// vector.

#include <shardgrad/kernels/cpu/convolution_sums.h>

namespace shardgrad::cpu {
namespace {

// Results of a band, whose rows lie `pitch` apart, to y (samples, channels, height, width).
template <class E, class T>
void put_band(const WindowSumsOf<E, T>& s, const T* sums, int64_t sums_row, int64_t pitch, int64_t image,
              const Band& band) {
  int64_t width = s.y.shape[3], plane = s.y.shape[2] * width;
  E* to = s.y.template as<E>() + image * s.out * plane + (s.down.first + band.row * s.down.apart) * width +
          s.across.first + band.col * s.across.apart;
  for (int64_t o = 0; o < s.out; ++o, to += plane, sums += sums_row) {
    if (s.across.apart == 1) {
      MatrixCopy copy{band.rows, band.cols, to, s.down.apart * width, sums, pitch};
      loops().convolution.put[int(s.y.dtype)](copy, s.y.beta != 0);
      continue;
    }
    for (int64_t r = 0; r < band.rows; ++r)
      for (int64_t c = 0; c < band.cols; ++c)
        put_sum(to[r * s.down.apart * width + c * s.across.apart], sums[r * pitch + c], s.y.beta != 0);
  }
}

}  // namespace

template <class E, class T> void WindowSumsOf<E, T>::of_bands(int threads) const {
  int64_t images = samples * groups, phases = int64_t(down.phases().size() * across.phases().size());
  Bands bands(down, across, in * phases + out, (threads + images - 1) / images, 4096);
  WindowImage layout(down, across, in, bands.rows, bands.cols, vector());
  int64_t row = int64_t(layout.places().size()) * vector();
  for_tasks<T>(threads, images * bands.count(), layout.size() + out * row, [&](int64_t task, T* memory) {
    Band band = bands.at(task % bands.count(), down, across);
    int64_t image = task / bands.count(), group = image % groups;
    T* sums = memory + layout.size();
    layout.fill(memory, x + image * in * down.extent * across.extent, band);
    loops().convolution.sums[kType<T>]({.m = out,
                                        .first = 0,
                                        .last = depth(),
                                        .weights = weights[size_t(group)],
                                        .bias = bias ? bias + group * out : nullptr,
                                        .x = memory,
                                        .offsets = layout.offsets().data(),
                                        .vectors = layout.vectors(band),
                                        .places = layout.places().data(),
                                        .y = sums,
                                        .y_row = row});
    put_band(*this, sums, row, layout.row(), image, band);
  });
}

template <class E, class T> void WindowSumsOf<E, T>::run(int threads) const {
  if (samples * groups == 0 || down.places == 0 || across.places == 0 || out == 0) return;
  finite&& samples_are_better() ? of_samples(threads) : of_bands(threads);
}

template void WindowSumsOf<float>::run(int) const;
template void WindowSumsOf<double>::run(int) const;
template void WindowSumsOf<bf16>::run(int) const;
template void WindowSumsOf<f16>::run(int) const;

}  // namespace shardgrad::cpu
