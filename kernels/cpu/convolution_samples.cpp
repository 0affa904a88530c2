// The same place of many samples is a vector, so that what a window sees of the padding can be left out: of images of
// 4 x 4 and windows of 3 x 3 that is a third. A set of samples is turned round first, (channel, place, sample), and the
// results, (place, channel, sample), afterwards. Of a window of 3 x 3 at the upper left corner, elements 4, 5, 7 and 8
// of each channel are summed; places that see the same elements have a list of them in common.

#include <map>

#include <shardgrad/kernels/cpu/convolution_sums.h>

namespace shardgrad::cpu {
namespace {

constexpr int64_t kFewPlaces = 256, kManyResults = 32;  // for which it pays to turn images round
constexpr int64_t kResults = 1 << 17;                   // that stay in the second cache, beside a block of weights
constexpr int64_t kTurnedAtOnce = 1 << 21;              // numbers of images

/// Elements [first, last) of a window along an axis.
struct Range {
  int64_t first, last;
  auto operator<=>(const Range&) const = default;
  int64_t size() const { return last - first; }
};
// Those that the window of a place sees of the image.
Range seen(const Axis& axis, int64_t place) {
  int64_t low = axis.low - axis.step * place, count = int64_t(axis.taps.size()), first = 0;
  while (first < count && axis.taps[size_t(first)] < low) ++first;
  int64_t last = first;
  while (last < count && axis.taps[size_t(last)] < low + axis.extent) ++last;
  return {first, last};
}

int64_t seen_by_all(const Axis& axis) {
  int64_t sum = 0;
  for (int64_t p = 0; p < axis.places; ++p) sum += seen(axis, p).size();
  return sum;
}

/// Elements of windows by blocks: which of the block they are, and where from the window's beginning.
struct Elements {
  std::vector<int32_t> elements;
  std::vector<int64_t> offsets, begins;
};

/// The channels of a set of samples, turned round: behind each one is room for a place more, so that they begin at
/// different lines of a cache.
struct Turned {
  const Axis &down, &across;
  int64_t channels, lanes;
  int64_t plane() const { return down.extent * across.extent; }
  int64_t channel() const { return (plane() + 1) * lanes; }
  int64_t size() const { return channels * channel(); }
  /// Where the window of a place begins, which may be outside.
  int64_t begin(int64_t place) const {
    int64_t row = place / across.places * down.step - down.low, col = place % across.places * across.step - across.low;
    return (row * across.extent + col) * lanes;
  }

  Elements elements(const Range& rows, const Range& cols, int64_t block) const {
    Elements found;
    int64_t wide = int64_t(across.taps.size()), window = int64_t(down.taps.size()) * wide;
    auto begin_blocks = [&](int64_t end) {
      while (int64_t(found.begins.size()) * block < end) found.begins.push_back(int64_t(found.elements.size()));
    };
    begin_blocks(1);
    for (int64_t c = 0; c < channels; ++c)
      for (int64_t i = rows.first; i < rows.last; ++i)
        for (int64_t j = cols.first; j < cols.last; ++j) {
          int64_t k = c * window + i * wide + j;
          begin_blocks(k + 1);
          int64_t place = down.taps[size_t(i)] * across.extent + across.taps[size_t(j)];
          found.elements.push_back(int32_t(k - int64_t(found.begins.size() - 1) * block));
          found.offsets.push_back(c * channel() + place * lanes);
        }
    begin_blocks(channels * window);
    found.begins.push_back(int64_t(found.elements.size()));
    return found;
  }
};

template <class E, class T> class OfSamples {
 public:
  OfSamples(const WindowSumsOf<E, T>& s, int threads)
      : s_(s),
        threads_(threads),
        lanes_(loops().convolution.panel * s.vector()),
        images_{s.down, s.across, s.in, lanes_} {
    places_ = s.down.places * s.across.places;
    for (int64_t place = 0; place < places_; ++place) {
      std::pair key(seen(s.down, place / s.across.places), seen(s.across, place % s.across.places));
      auto [at, added] = lists_.try_emplace(key);
      if (added) at->second = images_.elements(key.first, key.second, loops().convolution.block);
      of_place_.push_back(&at->second);
    }
  }

  void run() const {
    int64_t all = s_.groups * ((s_.samples + lanes_ - 1) / lanes_);
    int64_t at_once = std::clamp<int64_t>(kTurnedAtOnce / std::max<int64_t>(images_.size(), 1), 1, all);
    int64_t together = std::clamp<int64_t>(kResults / (s_.out * lanes_), 1, places_);
    together = std::min(together, std::max<int64_t>(1, places_ * at_once / threads_));
    int64_t parts = (places_ + together - 1) / together, room = lanes_ * std::max(images_.plane(), together);
    Workspace workspace(kCpu, size_t(at_once * images_.size()) * sizeof(T));
    T* turned = workspace.as<T>();
    for (int64_t first = 0; first < all; first += at_once) {
      int64_t sets = std::min(at_once, all - first);
      for_tasks<T>(threads_, sets * s_.in, room, [&](int64_t task, T* memory) {
        turn(turned + task * images_.channel(), set_of(first + task / s_.in), task % s_.in, memory);
      });
      for_tasks<T>(threads_, sets * parts, room + together * s_.out * lanes_, [&](int64_t task, T* memory) {
        Range places{task % parts * together, std::min((task % parts + 1) * together, places_)};
        Set set = set_of(first + task / parts);
        T* sums = memory + room;
        sum(sums, turned + task / parts * images_.size(), set, places);
        put(sums, set, places, memory);
      });
    }
  }

 private:
  /// Samples of a group.
  struct Set {
    int64_t group, first, samples;
  };
  Set set_of(int64_t number) const {
    int64_t first = number / s_.groups * lanes_;
    return {number % s_.groups, first, std::min(lanes_, s_.samples - first)};
  }

  void turn(T* to, const Set& set, int64_t channel, T* room) const {
    int64_t plane = images_.plane(), row = s_.groups * s_.in * plane;
    const E* from = s_.x + set.first * row + (set.group * s_.in + channel) * plane;
    MatrixCopy copy{set.samples, plane, to, lanes_, from, row};
    if constexpr (!std::is_same_v<E, T>) {
      auto cast = loops().elementwise.cast[int(dtype_of<T>)][int(dtype_of<E>)];
      for (int64_t i = 0; i < set.samples; ++i) cast(room + i * plane, from + i * row, plane, false);
      copy.from = room, copy.from_row = plane;
    }
    // Sums of what is no sample are not kept, but what lies there might be slow to compute with.
    if (set.samples < lanes_) std::fill(to, to + plane * lanes_, T(0));
    loops().convolution.transpose[kType<T>](copy);
  }

  // sums (place, result, sample)
  void sum(T* sums, const T* x, const Set& set, const Range& places) const {
    const auto& loop = loops().convolution;
    int64_t vectors[] = {0, s_.vector()}, first = 0;
    do {
      for (int64_t place = places.first; place < places.last; ++place) {
        const Elements& list = *of_place_[size_t(place)];
        int64_t begin = list.begins[size_t(first / loop.block)], end = list.begins[size_t(first / loop.block) + 1];
        loop.sums[kType<T>]({.m = s_.out,
                             .first = first,
                             .last = std::min<int64_t>(first + loop.block, s_.depth()),
                             .weights = s_.weights[size_t(set.group)],
                             .bias = s_.bias ? s_.bias + set.group * s_.out : nullptr,
                             .x = x + images_.begin(place),
                             .offsets = list.offsets.data() + begin,
                             .elements = list.elements.data() + begin,
                             .count = end - begin,
                             .vectors = (set.samples + s_.vector() - 1) / s_.vector(),
                             .places = vectors,
                             .y = sums + (place - places.first) * s_.out * lanes_,
                             .y_row = lanes_});
      }
      first += loop.block;
    } while (first < s_.depth());
  }

  void put(const T* sums, const Set& set, const Range& places, T* room) const {
    const auto& loop = loops().convolution;
    int64_t plane = s_.y.shape[2] * s_.y.shape[3], row = s_.groups * s_.out * plane, count = places.size();
    E* to = s_.y.template as<E>() + set.first * row + set.group * s_.out * plane;
    for (int64_t o = 0; o < s_.out; ++o, to += plane) {
      loop.transpose[kType<T>]({count, set.samples, room, count, sums + o * lanes_, s_.out * lanes_});
      if (s_.down.apart * s_.across.apart == 1)
        loop.put[int(s_.y.dtype)]({set.samples, count, to + places.first, row, room, count}, s_.y.beta != 0);
      else
        for (int64_t i = 0; i < count; ++i) {
          int64_t at = result(places.first + i);
          for (int64_t s = 0; s < set.samples; ++s) put_sum(to[s * row + at], room[s * count + i], s_.y.beta != 0);
        }
    }
  }
  int64_t result(int64_t place) const {
    int64_t row = s_.down.first + place / s_.across.places * s_.down.apart;
    return row * s_.y.shape[3] + s_.across.first + place % s_.across.places * s_.across.apart;
  }

  const WindowSumsOf<E, T>& s_;
  int threads_;
  int64_t lanes_, places_;
  Turned images_;
  std::map<std::pair<Range, Range>, Elements> lists_;
  std::vector<const Elements*> of_place_;
};

}  // namespace

// By how many products are made, and a tenth for the turning.
template <class E, class T> bool WindowSumsOf<E, T>::samples_are_better() const {
  if (down.places * across.places > kFewPlaces || down.extent * across.extent > kFewPlaces || out < kManyResults)
    return false;
  WindowImage layout(down, across, 1, down.places, across.places, vector());
  int64_t vectors = layout.vectors({0, down.places, 0, across.places});
  auto of_bands = double(samples * vectors * vector() * int64_t(down.taps.size() * across.taps.size()));
  auto of_samples = double(round_up(samples, vector()) * seen_by_all(down) * seen_by_all(across));
  return of_samples * 1.1 < of_bands;
}

template <class E, class T> void WindowSumsOf<E, T>::of_samples(int threads) const {
  OfSamples<E, T>(*this, threads).run();
}

template void WindowSumsOf<float>::of_samples(int) const;
template void WindowSumsOf<double>::of_samples(int) const;
template void WindowSumsOf<bf16>::of_samples(int) const;
template void WindowSumsOf<f16>::of_samples(int) const;
template bool WindowSumsOf<float>::samples_are_better() const;
template bool WindowSumsOf<double>::samples_are_better() const;
template bool WindowSumsOf<bf16>::samples_are_better() const;
template bool WindowSumsOf<f16>::samples_are_better() const;

}  // namespace shardgrad::cpu
