#pragma once
// What must be known of all rows of an array before the first is used.

#include <functional>

#include <shardgrad/train/data/npy_file.h>

namespace shardgrad::data {

/// Calls `call`, if any, with every row of a file and its bytes, in order. Returns a number that differs where the rows
/// do.
using RowBytes = std::function<void(int64_t row, const std::byte* bytes)>;
uint64_t for_each_row(const NpyFile& array, const RowBytes& call);

/// The same with the numbers of every row. Refuses one that is no finite f32.
using RowNumbers = std::function<void(int64_t row, std::span<const double> numbers)>;
uint64_t scan_numbers(const NpyFile& array, const RowNumbers& call);

/// The same, and finds the largest label. Refuses one below 0.
uint64_t scan_labels(const NpyFile& array, int64_t& largest);

}  // namespace shardgrad::data
