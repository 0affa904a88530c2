#include <shardgrad/train/data/token_windows.h>

#include <algorithm>
#include <cmath>

#include <shardgrad/core/rng.h>
#include <shardgrad/train/data/data_file.h>
#include <shardgrad/train/data/split.h>

namespace shardgrad::data {
namespace {

// Samples [first, first + count) of a source.
class TokenDataset : public Dataset {
 public:
  TokenDataset(std::shared_ptr<const TokenSource> tokens, int64_t length, int64_t first, int64_t count,
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
    tokens_->check_unchanged();
  }
  uint64_t fingerprint() const override { return stream_of(concat(scan_.checksum, ' ', length_)); }
  int64_t largest() const { return scan_.largest; }

 private:
  std::shared_ptr<const TokenSource> tokens_;
  int64_t length_, first_, count_;
  TokenSource::Scan scan_;
};

int64_t samples_of(const TokenSource& tokens, int64_t length) { return (tokens.size() - 1) / length; }

void check_length(const TokenSource& tokens, int64_t length, int64_t least) {
  SG_CHECK(samples_of(tokens, length) >= least, tokens.name(), " has ", tokens.size(), " tokens; ", least,
           least == 1 ? " sample" : " samples", " of length ", length, " and the token after take ",
           least * length + 1);
}

void check_options(const WindowOptions& options, bool splits) {
  constexpr int64_t kLongest = int64_t(1) << 30;
  SG_CHECK(options.length >= 1 && options.length <= kLongest, "length is ", options.length, "; a sample has from 1 to ",
           kLongest, " tokens");
  SG_CHECK(options.vocabulary >= 0, "vocabulary is ", options.vocabulary, "; it counts the ids");
  if (splits) check_test_share(options.test_share);
}

// How many bytes of text a token of [begin, end) stands for, on average.
double bytes_per_token(const TokenSource& tokens, int64_t begin, int64_t end, const text::Tokenizer& tokenizer) {
  std::vector<int64_t> sizes;
  for (int64_t id = 0; id < tokenizer.vocab_size(); ++id) sizes.push_back(tokenizer.bytes_of_text(id));
  std::vector<int64_t> ids;
  int64_t bytes = 0;
  for (int64_t at = begin; at < end; at += std::ssize(ids)) {
    ids.resize(size_t(std::min(end - at, kBlock)));
    tokens.read(at, ids);
    for (int64_t id : ids) bytes += sizes[size_t(id)];
  }
  return double(bytes) / double(end - begin);
}

}  // namespace

Splits cut_windows(std::shared_ptr<const TokenSource> train, std::shared_ptr<const TokenSource> test,
                   const WindowOptions& options) {
  check_options(options, !test);
  int64_t vocabulary = options.vocabulary, known = options.tokenizer ? options.tokenizer->vocab_size() : 0;
  if (vocabulary == 0) vocabulary = known;
  int64_t below = known > 0 ? std::min(vocabulary, known) : vocabulary;
  check_length(*train, options.length, test ? 1 : 2);
  if (test) check_length(*test, options.length, 1);
  auto part = [&](std::shared_ptr<const TokenSource> tokens, int64_t first, int64_t end) {
    return std::make_shared<TokenDataset>(std::move(tokens), options.length, first, end - first, below);
  };
  int64_t all = samples_of(*train, options.length), first = 0, train_end = all;
  if (!test) first = train_end = all - std::clamp<int64_t>(std::llround(options.test_share * double(all)), 1, all - 1);
  auto of_test = test ? test : train;
  int64_t end = samples_of(*of_test, options.length);
  auto train_part = part(train, 0, train_end), test_part = part(of_test, first, end);
  if (vocabulary == 0) vocabulary = std::max(train_part->largest(), test_part->largest()) + 1;
  Splits splits{train_part, test_part, vocabulary};
  splits.tokenizer = options.tokenizer;
  if (options.tokenizer)
    splits.bytes_per_token =
        bytes_per_token(*of_test, first * options.length + 1, end * options.length + 1, *options.tokenizer);
  return splits;
}

}  // namespace shardgrad::data
