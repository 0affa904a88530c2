#include <shardgrad/train/data/token_source.h>
#include <zlib.h>

#include <algorithm>
#include <cstring>

#include <shardgrad/core/context.h>
#include <shardgrad/train/data/data_file.h>
#include <shardgrad/train/data/dataset.h>

namespace shardgrad::data {
namespace {

template <class T> void widen_each(const std::byte* from, std::span<int64_t> ids) {
  for (size_t i = 0; i < ids.size(); ++i) {
    T id;
    std::memcpy(&id, from + i * sizeof id, sizeof id);
    ids[i] = int64_t(id);
  }
}

template <class T> void narrow_each(std::span<const uint32_t> ids, std::vector<std::byte>& to) {
  for (uint32_t id : ids) {
    auto narrow = T(id);
    const auto* bytes = reinterpret_cast<const std::byte*>(&narrow);
    to.insert(to.end(), bytes, bytes + sizeof narrow);
  }
}

}  // namespace

int64_t TokenSource::size_of(Element element) {
  switch (element) {
    case Element::u8:
      return 1;
    case Element::u16:
      return 2;
    case Element::i64:
      return 8;
    default:
      return 4;
  }
}

void TokenSource::widen(const std::byte* from, std::span<int64_t> ids) const {
  switch (element_) {
    case Element::u8:
      return widen_each<uint8_t>(from, ids);
    case Element::u16:
      return widen_each<uint16_t>(from, ids);
    case Element::u32:
      return widen_each<uint32_t>(from, ids);
    case Element::i32:
      return widen_each<int32_t>(from, ids);
    case Element::i64:
      return widen_each<int64_t>(from, ids);
  }
}

void TokenSource::read(int64_t begin, std::span<int64_t> ids) const {
  int64_t each = size_of(element_);
  std::vector<std::byte> bytes(ids.size() * size_t(each));
  read_bytes(bytes.data(), begin * each, std::ssize(bytes));
  widen(bytes.data(), ids);
}

TokenSource::Scan TokenSource::scan(int64_t begin, int64_t end, int64_t vocabulary) const {
  Scan result;
  uLong sum = crc32(0, nullptr, 0);
  int64_t each = size_of(element_);
  std::vector<std::byte> bytes;
  std::vector<int64_t> ids;
  for (int64_t at = begin; at < end; at += std::ssize(ids)) {
    ids.resize(size_t(std::min(end - at, kBlock / each)));
    bytes.resize(ids.size() * size_t(each));
    read_bytes(bytes.data(), at * each, std::ssize(bytes));
    sum = crc32_z(sum, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size());
    widen(bytes.data(), ids);
    auto [smallest, largest] = std::ranges::minmax_element(ids);
    SG_CHECK(*smallest >= 0, name(), ": token ", at + (smallest - ids.begin()), " is ", *smallest,
             "; the numbers of tokens are 0 or more");
    SG_CHECK(vocabulary == 0 || *largest < vocabulary, name(), ": token ", at + (largest - ids.begin()), " is ",
             *largest, ", and the vocabulary has ", vocabulary, " ids; set vocabulary as the tokenizer has it");
    SG_CHECK(*largest < kMostLabels, name(), ": token ", at + (largest - ids.begin()), " is ", *largest,
             ", which is larger than any vocabulary");
    result.largest = std::max(result.largest, *largest);
  }
  result.checksum = sum;
  return result;
}

TokensInMemory::TokensInMemory(std::string name, int64_t vocabulary) : name_(std::move(name)) {
  element_ = vocabulary <= 1 << 16 ? Element::u16 : Element::u32;
}

void TokensInMemory::add(std::span<const uint32_t> ids) {
  element_ == Element::u16 ? narrow_each<uint16_t>(ids, coming_) : narrow_each<uint32_t>(ids, coming_);
  count_ += std::ssize(ids);
}

void TokensInMemory::finish() {
  TagScope tag(Category::data);
  bytes_ = empty({std::ssize(coming_)}, {DType::u8, kCpu}, "TokensInMemory");
  std::memcpy(bytes_.out().data, coming_.data(), coming_.size());
  coming_ = {};
}

void TokensInMemory::read_bytes(void* to, int64_t begin, int64_t count) const {
  SG_ASSERT(begin >= 0 && begin + count <= bytes_.numel(), "bytes ", begin, " + ", count, " of ", name_);
  std::memcpy(to, static_cast<const std::byte*>(bytes_.in().data) + begin, size_t(count));
}

}  // namespace shardgrad::data
