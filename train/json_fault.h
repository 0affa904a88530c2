#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace shardgrad::train {

/// Why a text is no JSON, in words: "unexpected '}'; expected a value", and where.
struct JsonFault {
  int64_t line, column;  ///< from 1; columns are characters
  std::string why;
};

/// Of what nlohmann's parser says: the byte that it has read last, from 1, and its message.
JsonFault json_fault(std::string_view text, size_t byte, const std::string& message);

}  // namespace shardgrad::train
