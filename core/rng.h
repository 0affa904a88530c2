#pragma once
// Counter-based random numbers (Philox4x32-10; Salmon et al., 2011). A number is a pure function of (seed, stream,
// index): any rank computes any part of a sequence, and nothing is stored or passed on.

#include <array>
#include <cstdint>
#include <string_view>

namespace shardgrad {

/// Four independent uniform 32-bit numbers of counter (index, stream) under key `seed`. Always inlined: hot loops
/// compiled for newer instruction sets (kernels/cpu/isa) must not leave a copy of it that others could be linked to.
[[gnu::always_inline]] constexpr std::array<uint32_t, 4> philox(uint64_t seed, uint64_t stream, uint64_t index) {
  uint32_t c0 = uint32_t(index), c1 = uint32_t(index >> 32), c2 = uint32_t(stream), c3 = uint32_t(stream >> 32);
  uint32_t k0 = uint32_t(seed), k1 = uint32_t(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    uint64_t a = uint64_t{0xD2511F53} * c0, b = uint64_t{0xCD9E8D57} * c2;
    c0 = uint32_t(b >> 32) ^ c1 ^ k0;
    c2 = uint32_t(a >> 32) ^ c3 ^ k1;
    c1 = uint32_t(b);
    c3 = uint32_t(a);
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  return {c0, c1, c2, c3};
}

/// A uniform number in [0, 1) with 24 bits.
constexpr float unit_float(uint32_t bits) { return float(bits >> 8) * 0x1p-24f; }

/// A number that differs where the bytes do (64-bit FNV-1a); `hash` is that of what comes before them.
constexpr uint64_t hash_of(std::string_view bytes, uint64_t hash = 0xcbf29ce484222325) {
  for (char c : bytes) hash = (hash ^ uint8_t(c)) * 0x100000001b3;
  return hash;
}

/// The stream that belongs to a name: a parameter's, "sample order".
constexpr uint64_t stream_of(std::string_view name) { return hash_of(name); }
/// The stream of a name in a domain of its own, as "user" or "dropout": the user's "weight" is not the parameter's.
/// Names have no zero byte.
constexpr uint64_t stream_of(std::string_view domain, std::string_view name) {
  return hash_of(name, hash_of(std::string_view("\0", 1), hash_of(domain)));
}

}  // namespace shardgrad
