#include <shardgrad/kernels/cpu/convolution_image.h>

#include <algorithm>

#include <shardgrad/kernels/cpu/element.h>
#include <shardgrad/kernels/cpu/loops.h>

namespace shardgrad::cpu {
namespace {

int64_t floor_of(int64_t a, int64_t b) { return a >= 0 ? a / b : -((-a + b - 1) / b); }
int64_t ceil_of(int64_t a, int64_t b) { return -floor_of(-a, b); }

template <class E, class T> void copy_row(T* to, const E* from, int64_t n, int64_t step) {
  if constexpr (std::is_same_v<E, T>) {
    if (n <= 0) return;
    if (step == 1) return void(std::memcpy(to, from, size_t(n) * sizeof(T)));
    if (step == 2) return loops().convolution.every_other[sizeof(T) == 8](to, from, n);
  } else if (step == 1) {
    return loops().elementwise.cast[int(dtype_of<T>)][int(dtype_of<E>)](to, from, n, false);
  }
  for (int64_t i = 0; i < n; ++i) to[i] = convert<T>(from[i * step]);
}

// Padding is mostly one element, for which a call would take longer than the rest of a small image's row.
template <class T> void pad(T* begin, T* end) {
  if (end - begin == 1)
    *begin = 0;
  else
    std::fill(begin, end, T(0));
}

// Elements first, first + step, … of a padded row whose elements [0, extent) are given, `low` before them.
template <class E, class T> void fill_row(T* to, const E* row, const Axis& axis, int64_t first, int64_t count) {
  int64_t from = std::clamp<int64_t>(ceil_of(axis.low - first, axis.step), 0, count);
  int64_t end = std::clamp<int64_t>(ceil_of(axis.extent + axis.low - first, axis.step), from, count);
  pad(to, to + from);
  copy_row(to + from, row + first + from * axis.step - axis.low, end - from, axis.step);
  pad(to + end, to + count);
}

int64_t number_of(const std::vector<int64_t>& phases, int64_t phase) {
  return std::ranges::find(phases, phase) - phases.begin();
}

}  // namespace

Axis Axis::of(const Window& window, int64_t extent) {
  Axis axis{extent, window.padding, window.stride, window.places(extent)};
  for (int64_t k = 0; k < window.kernel; ++k) {
    axis.taps.push_back(k * window.dilation);
    axis.elements.push_back(k);
  }
  return axis;
}

Axis Axis::of_gradient(const Window& window, int64_t extent, int64_t remainder) {
  int64_t first = ((remainder - window.padding) % window.stride + window.stride) % window.stride;
  Axis axis{.extent = window.places(extent), .places = std::max<int64_t>(0, ceil_of(extent - first, window.stride))};
  axis.first = first, axis.apart = window.stride;
  for (int64_t k = window.kernel - 1; k >= 0; --k) {
    int64_t away = first + window.padding - k * window.dilation;  // from where the window of dy's place begins
    if (away % window.stride != 0) continue;
    axis.taps.push_back(away / window.stride);
    axis.elements.push_back(k);
  }
  if (axis.taps.empty()) return axis;
  axis.low = -axis.taps.front();
  for (int64_t& tap : axis.taps) tap += axis.low;
  return axis;
}

int64_t Axis::reach() const { return taps.empty() ? 0 : taps.back() / step; }

std::vector<int64_t> Axis::phases() const {
  std::vector<int64_t> found;
  for (int64_t tap : taps)
    if (number_of(found, tap % step) == int64_t(found.size())) found.push_back(tap % step);
  return found;
}

WindowImage::WindowImage(const Axis& down, const Axis& across, int64_t channels, int64_t rows, int64_t cols,
                         int64_t vector)
    : down_(down),
      across_(across),
      rows_(down.phases()),
      cols_(across.phases()),
      channels_(channels),
      pitch_(cols + across.reach()),
      plane_((rows + down.reach()) * pitch_),
      of_channel_(int64_t(rows_.size() * cols_.size()) * plane_),
      vector_(vector),
      row_(cols % vector == 0 ? cols : pitch_) {
  for (int64_t c = 0; c < channels; ++c)
    for (int64_t tap : down.taps)
      for (int64_t other : across.taps) {
        int64_t image =
            number_of(rows_, tap % down.step) * int64_t(cols_.size()) + number_of(cols_, other % across.step);
        offsets_.push_back(c * of_channel_ + image * plane_ + tap / down.step * pitch_ + other / across.step);
      }
  bool whole = row_ != pitch_;
  for (int64_t r = 0; r < (whole ? rows : 1); ++r)
    for (int64_t at = 0; at < (whole ? cols : rows * pitch_); at += vector) places_.push_back(r * pitch_ + at);
}

int64_t WindowImage::vectors(const Band& band) const {
  if (row_ != pitch_) return band.rows * row_ / vector_;
  return ((band.rows - 1) * pitch_ + band.cols + vector_ - 1) / vector_;
}

template <class E, class T> void WindowImage::fill(T* to, const E* x, const Band& band) const {
  int64_t height = band.rows + down_.reach(), width = band.cols + across_.reach();
  for (int64_t c = 0; c < channels_; ++c, x += down_.extent * across_.extent)
    for (int64_t phase : rows_) {
      T* images = to;
      to += int64_t(cols_.size()) * plane_;
      for (int64_t r = 0; r < height; ++r) {
        int64_t row = (band.row + r) * down_.step + phase - down_.low;
        bool padded = row < 0 || row >= down_.extent;
        T* line = images + r * pitch_;
        for (int64_t other : cols_) {
          if (padded)
            std::fill(line, line + width, T(0));
          else
            fill_row(line, x + row * across_.extent, across_, band.col * across_.step + other, width);
          line += plane_;
        }
      }
    }
  std::fill(to, to + kBeyond, T(0));
}

template void WindowImage::fill(float*, const float*, const Band&) const;
template void WindowImage::fill(double*, const double*, const Band&) const;
template void WindowImage::fill(float*, const bf16*, const Band&) const;
template void WindowImage::fill(float*, const f16*, const Band&) const;

}  // namespace shardgrad::cpu
