#pragma once
// The header of a .npy file: a dictionary as Python writes it, of three keys.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace shardgrad::data {

struct NpyHeader {
  std::string descr;  ///< of the elements: "<f4"
  bool fortran_order = false;
  std::vector<int64_t> shape;
};

/// Throws Error(input), with what is wrong and no path, for a text that is no such dictionary.
NpyHeader parse_npy_header(std::string_view text);

}  // namespace shardgrad::data
