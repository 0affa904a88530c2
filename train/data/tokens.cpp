#include <shardgrad/train/data/tokens.h>

#include <algorithm>
#include <cmath>

#include <shardgrad/core/rng.h>
#include <shardgrad/train/data/split.h>
#include <shardgrad/train/data/token_file.h>

namespace shardgrad::data {
namespace {

// Samples [first, first + count) of a file.
class TokenDataset : public Dataset {
 public:
  TokenDataset(std::shared_ptr<const TokenFile> tokens, int64_t length, int64_t first, int64_t count,
               int64_t vocabulary)
      : tokens_(std::move(tokens)),
        length_(length),
        first_(first),
        count_(count),
        scan_(tokens_->scan(first * length, (first + count) * length + 1, vocabulary)) {}
  int64_t size() const override { return count_; }
  std::vector<Field> fields() const override { return {{{length_}, DType::i64}, {{length_}, DType::i64}}; }
  void read(std::span<const int64_t> indices, std::span<void* const> to) const override {
    std::vector<int64_t> ids(size_t(length_) + 1);
    auto *inputs = static_cast<int64_t*>(to[0]), *targets = static_cast<int64_t*>(to[1]);
    for (int64_t index : indices) {
      tokens_->read((first_ + index) * length_, ids);
      inputs = std::copy(ids.begin(), ids.end() - 1, inputs);
      targets = std::copy(ids.begin() + 1, ids.end(), targets);
    }
    tokens_->file().check_unchanged();
  }
  uint64_t fingerprint() const override { return stream_of(concat(scan_.checksum, ' ', length_)); }
  int64_t largest() const { return scan_.largest; }

 private:
  std::shared_ptr<const TokenFile> tokens_;
  int64_t length_, first_, count_;
  TokenFile::Scan scan_;
};

int64_t samples_of(const TokenFile& tokens, int64_t length) { return (tokens.size() - 1) / length; }

void check_options(const TokenOptions& options) {
  constexpr int64_t kLongest = int64_t(1) << 30;
  SG_CHECK(options.length >= 1 && options.length <= kLongest, "length is ", options.length, "; a sample has from 1 to ",
           kLongest, " tokens");
  SG_CHECK(options.vocabulary >= 0, "vocabulary is ", options.vocabulary, "; it counts the ids");
  if (options.test.empty()) check_test_share(options.test_share);
}

}  // namespace

TokenData read_tokens(const TokenOptions& options) {
  check_options(options);
  auto open = [&](const std::string& path, int64_t least) {
    auto tokens = std::make_shared<const TokenFile>(path, options.token_bytes);
    SG_CHECK(samples_of(*tokens, options.length) >= least, "'", path, "' has ", tokens->size(), " tokens; ", least,
             least == 1 ? " sample" : " samples", " of length ", options.length, " and the token after take ",
             least * options.length + 1);
    return tokens;
  };
  auto part = [&](std::shared_ptr<const TokenFile> tokens, int64_t first, int64_t end) {
    return std::make_shared<TokenDataset>(std::move(tokens), options.length, first, end - first, options.vocabulary);
  };
  auto train_file = open(options.train, options.test.empty() ? 2 : 1), test_file = train_file;
  int64_t all = samples_of(*train_file, options.length), first = 0, train_end = all, end = all;
  if (options.test.empty()) {
    first = train_end = all - std::clamp<int64_t>(std::llround(options.test_share * double(all)), 1, all - 1);
  } else {
    test_file = open(options.test, 1);
    end = samples_of(*test_file, options.length);
  }
  auto train = part(train_file, 0, train_end), test = part(test_file, first, end);
  int64_t found = std::max(train->largest(), test->largest()) + 1;
  return {{train, test}, options.vocabulary > 0 ? options.vocabulary : found};
}

}  // namespace shardgrad::data
