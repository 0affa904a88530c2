#pragma once
// The numbers of a text's tokens, one after the other, wherever they lie.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <shardgrad/core/tensor.h>

namespace shardgrad::data {

class TokenSource {
 public:
  virtual ~TokenSource() = default;
  /// As a refusal names it: the path in quotes.
  virtual std::string name() const = 0;
  int64_t size() const { return count_; }
  /// Tokens [begin, begin + ids.size()), from any thread.
  void read(int64_t begin, std::span<int64_t> ids) const;
  struct Scan {
    int64_t largest = 0;
    uint64_t checksum = 0;  ///< differs where the tokens do
  };
  /// Of tokens [begin, end), each of which must be 0 or more, and below `vocabulary` unless that is 0.
  Scan scan(int64_t begin, int64_t end, int64_t vocabulary) const;
  /// Throws Error(input) when the tokens are not what they were.
  virtual void check_unchanged() const {}

 protected:
  enum class Element { u8, u16, u32, i32, i64 };
  static int64_t size_of(Element element);
  /// Bytes [begin, begin + count) of the tokens.
  virtual void read_bytes(void* to, int64_t begin, int64_t count) const = 0;

  Element element_ = Element::u16;
  int64_t count_ = 0;

 private:
  void widen(const std::byte* from, std::span<int64_t> ids) const;
};

/// Tokens in memory, which is of category data: two bytes each for a vocabulary of up to 65,536, else four.
class TokensInMemory : public TokenSource {
 public:
  TokensInMemory(std::string name, int64_t vocabulary);
  void add(std::span<const uint32_t> ids);
  /// After the last one: from now on they can be read.
  void finish();
  std::string name() const override { return name_; }

 private:
  void read_bytes(void* to, int64_t begin, int64_t count) const override;

  std::string name_;
  std::vector<std::byte> coming_;
  Tensor bytes_;
};

}  // namespace shardgrad::data
