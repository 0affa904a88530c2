#pragma once
// One file of tokens; tokens.h has the formats.

#include <memory>
#include <string>

#include <shardgrad/train/data/data_file.h>
#include <shardgrad/train/data/npy_file.h>
#include <shardgrad/train/data/token_source.h>

namespace shardgrad::data {

class TokenFile : public TokenSource {
 public:
  /// Throws Error(input), as read_tokens, for what is no such file. `token_bytes` is that of a file without a header.
  TokenFile(std::string path, int token_bytes);

  std::string name() const override { return "'" + file_.path() + "'"; }
  void check_unchanged() const override { file_.check_unchanged(); }

 private:
  void read_header();
  void read_bytes(void* to, int64_t begin, int64_t count) const override { file_.read(to, begin_ + begin, count); }

  DataFile file_;
  int64_t begin_ = 0;
};

/// An array of one dimension.
class NpyTokens : public TokenSource {
 public:
  explicit NpyTokens(std::string path);

  std::string name() const override { return "'" + file_.path() + "'"; }
  void check_unchanged() const override { file_.file().check_unchanged(); }

 private:
  void read_bytes(void* to, int64_t begin, int64_t count) const override {
    file_.file().read(to, file_.row_begin(0) + begin, count);
  }

  NpyFile file_;
};

/// A file of one of these kinds, by its name.
std::shared_ptr<const TokenSource> open_tokens(const std::string& path, int token_bytes);

/// What llm.c writes before `count` tokens of 4 bytes each.
std::string llmc_header(int64_t count);

}  // namespace shardgrad::data
