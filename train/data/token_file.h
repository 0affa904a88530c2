#pragma once
// One file of tokens; tokens.h has the formats.

#include <string>

#include <shardgrad/train/data/data_file.h>

namespace shardgrad::data {

class TokenFile {
 public:
  /// Throws Error(input), as read_tokens, for what is no such file. `token_bytes` is that of a file without a header.
  TokenFile(std::string path, int token_bytes);

  const DataFile& file() const { return file_; }
  const std::string& path() const { return file_.path(); }
  int64_t size() const { return count_; }
  /// Tokens [begin, begin + ids.size()).
  void read(int64_t begin, std::span<int64_t> ids) const;
  struct Scan {
    int64_t largest = 0;
    uint64_t checksum = 0;  ///< differs where the tokens do
  };
  /// Of tokens [begin, end), each of which must be below `vocabulary` unless that is 0.
  Scan scan(int64_t begin, int64_t end, int64_t vocabulary) const;

 private:
  void read_header();
  void widen(const std::byte* from, std::span<int64_t> ids) const;

  DataFile file_;
  int64_t bytes_, begin_ = 0, count_ = 0;
};

}  // namespace shardgrad::data
