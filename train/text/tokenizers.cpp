#include <shardgrad/train/text/tokenizers.h>

#include <array>

#include <shardgrad/core/error.h>
#include <shardgrad/train/text/bpe_file.h>

namespace shardgrad::text {
namespace {

std::vector<Token> byte_tokens() {
  std::vector<Token> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.push_back({std::string(1, char(byte)), true, false});
  return tokens;
}

class ByteTokenizer : public Tokenizer {
 public:
  ByteTokenizer() : Tokenizer("bytes", byte_tokens()) {}
  using Tokenizer::encode;
  void encode(std::string_view text, EncodeOptions, const Take& take) const override {
    std::array<uint32_t, 1024> ids;
    while (!text.empty()) {
      std::string_view part = text.substr(0, ids.size());
      for (size_t i = 0; i < part.size(); ++i) ids[i] = uint8_t(part[i]);
      take(std::span(ids).first(part.size()));
      text.remove_prefix(part.size());
    }
  }
  std::string json() const override {
    NewBpe bpe{.tokens = {}, .cuts = false};
    for (int byte = 0; byte < 256; ++byte) bpe.tokens.emplace_back(1, char(byte));
    return bpe_json(bpe);
  }
};

class BpeTokenizer : public Tokenizer {
 public:
  BpeTokenizer(std::string name, std::string json, BpeFile file)
      : Tokenizer(std::move(name), std::move(file.tokens)),
        json_(std::move(json)),
        bpe_(std::move(file.model)),
        steps_(std::move(file.steps)),
        added_(std::move(file.added)),
        before_(std::move(file.before)),
        after_(std::move(file.after)) {}
  void say_ends(const std::string& begins, const std::string& ends);
  using Tokenizer::encode;
  void encode(std::string_view text, EncodeOptions options, const Take& take) const override {
    Bpe::Encoder encoder(bpe_);
    if (options.add_special) take(before_);
    added_.cut(
        text, options.parse_special,
        [&](std::string_view piece) { cut(piece, steps_, [&](std::string_view word) { take(encoder.encode(word)); }); },
        [&](uint32_t id) {
          take({&id, 1});
        });
    if (options.add_special) take(after_);
  }
  std::string json() const override { return json_; }

 private:
  std::string json_;
  Bpe bpe_;
  CutSteps steps_;
  AddedTokens added_;
  std::vector<uint32_t> before_, after_;
};

// Where a file says nothing of it, these names do.
void BpeTokenizer::say_ends(const std::string& begins, const std::string& ends) {
  auto special = [&](const std::string& name) {
    std::optional<int64_t> id = name.empty() ? std::nullopt : find(name);
    return id && token(*id).special ? id : std::nullopt;
  };
  bos_ = special(begins);
  eos_ = special(ends);
  if (!bos_ && !before_.empty()) bos_ = before_[0];
  for (const char* name : {"<|endoftext|>", "<|end_of_text|>", "</s>"})
    if (!eos_) eos_ = special(name);
}

}  // namespace

std::shared_ptr<const Tokenizer> byte_tokenizer() { return std::make_shared<ByteTokenizer>(); }

std::shared_ptr<const Tokenizer> bpe_tokenizer(std::string name, std::string json, const std::string& begins,
                                               const std::string& ends) {
  BpeFile file = parse_bpe(json);
  auto tokenizer = std::make_shared<BpeTokenizer>(std::move(name), std::move(json), std::move(file));
  tokenizer->say_ends(begins, ends);
  return tokenizer;
}

}  // namespace shardgrad::text
