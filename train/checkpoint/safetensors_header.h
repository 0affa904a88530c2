#pragma once
// The header of a safetensors file: JSON of one exact form, so it is read without building a tree. Whatever is in it,
// no more memory is taken than its own length.

#include <map>
#include <string>
#include <vector>

namespace shardgrad::train {

struct SafetensorsHeader {
  struct Entry {
    std::string dtype;  ///< "F32", or one that this library does not have
    std::vector<int64_t> shape;
    std::vector<int64_t> data_offsets;  ///< two: begin and end in the file, counted from the end of the header
  };
  std::map<std::string, Entry> tensors;
  std::map<std::string, std::string> metadata;  ///< what stands under "__metadata__"
};

/// Throws Error(input) with the reason when `text` is no header: not JSON, a name given twice, something else than
/// dtype, shape and data_offsets of a tensor.
SafetensorsHeader parse_safetensors_header(const std::string& text);

}  // namespace shardgrad::train
