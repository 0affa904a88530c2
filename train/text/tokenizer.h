#pragma once
// Text as the numbers of its tokens, and back:
//
//     std::shared_ptr<const text::Tokenizer> tokenizer = text::load_tokenizer("smollm2/tokenizer.json");
//     std::vector<int64_t> ids = tokenizer->encode("In the beginning");      {504, 260, 5376}
//     tokenizer->decode(ids);                                                "In the beginning"
//
// A text is bytes, mostly UTF-8: whatever they are, what is decoded is what was encoded. Tokenizers do not change, and
// any number of threads may use one.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace shardgrad::text {

struct EncodeOptions {
  /// Special tokens that stand in the text, such as <|endoftext|>, are those tokens. Otherwise they are letters, as in
  /// a text that anybody may have written.
  bool parse_special = false;
  /// With what the tokenizer puts before and after a text, such as a beginning-of-text token. Nothing for most.
  bool add_special = false;
};

/// One entry of a vocabulary.
struct Token {
  std::string bytes;     ///< that it stands for; the name of a special one
  bool exists = false;   ///< false: the vocabulary has a hole here
  bool special = false;  ///< stands for no letters
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  /// As a refusal names it: "bytes", or the path of the file it was read from.
  const std::string& name() const { return name_; }
  /// Every id is below.
  int64_t vocab_size() const { return std::ssize(tokens_); }

  std::vector<int64_t> encode(std::string_view text, EncodeOptions options = {}) const;
  /// The same for long texts: `take` gets the ids in order, a few at a time.
  using Take = std::function<void(std::span<const uint32_t> ids)>;
  virtual void encode(std::string_view text, EncodeOptions options, const Take& take) const = 0;

  /// The text that ids stand for. Its last character may be cut where ids end: utf8.h has a stream that waits for the
  /// rest. Throws Error(input) for an id that the vocabulary has not.
  std::string decode(std::span<const int64_t> ids, bool skip_special = true) const;
  /// What an id stands for. Throws as decode.
  const Token& token(int64_t id) const;
  /// Whether the vocabulary has an id.
  bool has(int64_t id) const { return id >= 0 && id < vocab_size() && tokens_[size_t(id)].exists; }
  /// How many bytes of a text an id stands for: none, for a special one or a hole of the vocabulary.
  int64_t bytes_of_text(int64_t id) const;
  /// The id of a token by its bytes; of a special one, by its name.
  std::optional<int64_t> find(std::string_view bytes) const;

  /// Where a text begins and where it ends, if the tokenizer has such tokens and says which they are.
  std::optional<int64_t> bos() const { return bos_; }
  std::optional<int64_t> eos() const { return eos_; }

  /// As the text of a tokenizer.json, from which load_tokenizer and PyPI's `tokenizers` make the same tokenizer.
  virtual std::string json() const = 0;

 protected:
  Tokenizer(std::string name, std::vector<Token> tokens) : name_(std::move(name)), tokens_(std::move(tokens)) {}
  std::optional<int64_t> bos_, eos_;

 private:
  std::string name_;
  std::vector<Token> tokens_;
};

/// What a folder holds: the tokenizer, and where texts begin and end ("bos_token", "eos_token").
inline constexpr const char *kTokenizerFile = "tokenizer.json", *kTokenizerConfigFile = "tokenizer_config.json";

/// "bytes", whose 256 ids are the bytes themselves; a tokenizer.json of Hugging Face; or a folder that holds one, whose
/// tokenizer_config.json, if there is one, says where texts begin and end. Throws Error(input), with the path, for what
/// cannot be read and for what would be encoded otherwise than there, by its name: bpe_file.h tells what is known.
std::shared_ptr<const Tokenizer> load_tokenizer(const std::string& path);

}  // namespace shardgrad::text
