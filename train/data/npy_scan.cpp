#include <shardgrad/train/data/npy_scan.h>
#include <zlib.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include <shardgrad/train/data/dataset.h>

namespace shardgrad::data {

uint64_t for_each_row(const NpyFile& array, const RowBytes& call) {
  int64_t at_once = std::max<int64_t>(1, kBlock / array.row_bytes());
  std::vector<std::byte> block(size_t(std::min(at_once, array.rows()) * array.row_bytes()));
  uLong sum = crc32(0, nullptr, 0);
  for (int64_t begin = 0; begin < array.rows(); begin += at_once) {
    int64_t count = std::min(at_once, array.rows() - begin), bytes = count * array.row_bytes();
    array.file().read(block.data(), array.row_begin(begin), bytes);
    sum = crc32_z(sum, reinterpret_cast<const Bytef*>(block.data()), size_t(bytes));
    for (int64_t i = 0; call && i < count; ++i) call(begin + i, block.data() + i * array.row_bytes());
  }
  return sum;
}

uint64_t scan_numbers(const NpyFile& array, const RowNumbers& call) {
  constexpr double kLargest = double(std::numeric_limits<float>::max());
  std::vector<double> numbers(size_t(array.row_numel()));
  return for_each_row(array, [&](int64_t row, const std::byte* bytes) {
    array.convert(bytes, std::span(numbers));
    for (size_t i = 0; i < numbers.size(); ++i)
      SG_CHECK(std::abs(numbers[i]) <= kLargest, "'", array.path(), "', row ", row, ", element ", i, ": ", numbers[i],
               " is no finite f32; leave such rows out, or scale them, before the array is saved");
    if (call) call(row, numbers);
  });
}

uint64_t scan_labels(const NpyFile& array, int64_t& largest) {
  std::vector<int64_t> labels(size_t(array.row_numel()));
  return for_each_row(array, [&](int64_t row, const std::byte* bytes) {
    array.convert(bytes, std::span(labels));
    for (int64_t label : labels) {
      SG_CHECK(label >= 0, "'", array.path(), "', row ", row, ": label ", label,
               " is below 0; labels count from 0, and ",
               "targets that are no labels are saved as numbers with a point, array.astype('<f4')");
      SG_CHECK(label < kMostLabels, "'", array.path(), "', row ", row, ": label ", label,
               " is larger than any number of classes; labels count from 0");
      largest = std::max(largest, label);
    }
  });
}

}  // namespace shardgrad::data
