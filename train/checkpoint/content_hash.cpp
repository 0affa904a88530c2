#include <shardgrad/train/checkpoint/content_hash.h>

#include <charconv>
#include <cmath>
#include <cstdio>

#include <shardgrad/core/context.h>
#include <shardgrad/core/rng.h>

namespace shardgrad::train {
namespace {

// The finalizer of SplitMix64 (Steele, Lea, Flood 2014), which is one-to-one.
uint64_t mix(uint64_t index, uint64_t bits) {
  uint64_t x = bits ^ (index * 0x9E3779B97F4A7C15);
  x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9;
  x = (x ^ x >> 27) * 0x94D049BB133111EB;
  return x ^ x >> 31;
}

template <class Bits> uint64_t sum(const void* elements, int64_t count, int64_t first) {
  auto* bits = static_cast<const Bits*>(elements);
  uint64_t total = 0;
  for (int64_t i = 0; i < count; ++i) total += mix(uint64_t(first + i), bits[i]);
  return total;
}

// Not finite: every bit of the exponent is set.
template <class Bits> int64_t first_with(const void* elements, int64_t count, Bits exponent) {
  auto* bits = static_cast<const Bits*>(elements);
  int64_t i = 0;
  while (i < count && (bits[i] & exponent) != exponent) ++i;
  return i;
}

}  // namespace

uint64_t content_hash(const void* elements, DType dtype, int64_t count, int64_t first) {
  switch (size_of(dtype)) {
    case 1:
      return sum<uint8_t>(elements, count, first);
    case 2:
      return sum<uint16_t>(elements, count, first);
    case 4:
      return sum<uint32_t>(elements, count, first);
    default:
      return sum<uint64_t>(elements, count, first);
  }
}

int64_t first_not_finite(const void* elements, DType dtype, int64_t count) {
  switch (dtype) {
    case DType::f32:
      return first_with<uint32_t>(elements, count, 0x7F800000);
    case DType::f64:
      return first_with<uint64_t>(elements, count, 0x7FF0000000000000);
    case DType::bf16:
      return first_with<uint16_t>(elements, count, 0x7F80);
    case DType::f16:
      return first_with<uint16_t>(elements, count, 0x7C00);
    default:
      return count;
  }
}

// In halves, whose sums no number of ranks can make overflow.
Hashes sum_over_ranks(dist::ProcessGroup& world, const Hashes& mine) {
  TagScope owner(Category::other);
  std::vector<int64_t> halves;
  for (const auto& [name, hash] : mine) {
    halves.push_back(int64_t(hash & 0xFFFFFFFF));
    halves.push_back(int64_t(hash >> 32));
  }
  Hashes sums;
  if (halves.empty()) return sums;
  Tensor total = from_vector(halves, {int64_t(halves.size())}, {DType::i64, kCpu});
  world.all_reduce(total, dist::Label{"", "checkpoint"}).host_wait();
  halves = total.to_vector<int64_t>();
  size_t i = 0;
  for (const auto& [name, hash] : mine) {
    sums[name] = uint64_t(halves[i]) + (uint64_t(halves[i + 1]) << 32);
    i += 2;
  }
  return sums;
}

uint64_t hash_of(const Hashes& hashes) {
  uint64_t total = 0;
  for (const auto& [name, hash] : hashes) total += mix(shardgrad::hash_of(name), hash);
  return total;
}

uint64_t text_hash(const std::string& text) { return content_hash(text.data(), DType::u8, std::ssize(text), 0); }

std::string hash_text(uint64_t hash) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(hash));
  return text;
}

uint64_t parse_hash(const std::string& text) {
  uint64_t hash = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), hash, 16);
  SG_CHECK(error == std::errc() && end == text.data() + text.size() && text.size() == 16, "'", text,
           "' is no hash of sixteen hexadecimal digits");
  return hash;
}

}  // namespace shardgrad::train
