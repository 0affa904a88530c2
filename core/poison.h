#pragma once
// What fresh and freed memory of emulated devices (acc, sim) holds, in every two bytes: a NaN of every floating dtype,
// with bits that no computation makes, so that the simulator can tell memory that nobody has written.

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace shardgrad {

inline constexpr uint16_t kUnwritten = 0x7ff5;

inline void poison_bytes(void* data, size_t bytes) {
  std::fill_n(static_cast<uint16_t*>(data), bytes / 2, kUnwritten);
  if (bytes % 2) static_cast<unsigned char*>(data)[bytes - 1] = 0xff;
}

}  // namespace shardgrad
