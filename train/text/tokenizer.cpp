#include <shardgrad/train/text/tokenizer.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include <shardgrad/core/error.h>
#include <shardgrad/train/read_file.h>
#include <shardgrad/train/text/tokenizers.h>

namespace shardgrad::text {

std::vector<int64_t> Tokenizer::encode(std::string_view text, EncodeOptions options) const {
  std::vector<int64_t> all;
  encode(text, options, [&](std::span<const uint32_t> ids) { all.insert(all.end(), ids.begin(), ids.end()); });
  return all;
}

const Token& Tokenizer::token(int64_t id) const {
  SG_CHECK(has(id), "token ", id, " is not in the vocabulary of '", name_, "', whose ids are below ", vocab_size());
  return tokens_[size_t(id)];
}

std::string Tokenizer::decode(std::span<const int64_t> ids, bool skip_special) const {
  std::string text;
  for (int64_t id : ids)
    if (const Token& here = token(id); !here.special || !skip_special) text += here.bytes;
  return text;
}

int64_t Tokenizer::bytes_of_text(int64_t id) const {
  const Token& token = tokens_.at(size_t(id));
  return token.special ? 0 : std::ssize(token.bytes);
}

std::optional<int64_t> Tokenizer::find(std::string_view bytes) const {
  auto found = std::ranges::find_if(tokens_, [&](const Token& token) { return token.exists && token.bytes == bytes; });
  return found == tokens_.end() ? std::nullopt : std::optional<int64_t>(found - tokens_.begin());
}

namespace {

using Json = nlohmann::json;

// A name, or an object with the name and how it is looked for.
std::string special_name(const Json& config, const char* key) {
  auto found = config.find(key);
  if (found == config.end()) return "";
  const Json& name = found->is_object() && found->contains("content") ? found->at("content") : *found;
  return name.is_string() ? name.get<std::string>() : "";
}

struct Ends {
  std::string begins, ends;
};

Ends read_ends(const std::string& path) {
  std::error_code unknown;
  if (!std::filesystem::exists(path, unknown)) return {};
  Json config = Json::parse(train::read_file(path, train::kTokenizerText), nullptr, false);
  SG_CHECK(config.is_object(), "'", path, "' is no JSON object, which says where texts begin and end");
  return {special_name(config, "bos_token"), special_name(config, "eos_token")};
}

}  // namespace

std::shared_ptr<const Tokenizer> load_tokenizer(const std::string& path) {
  if (path == "bytes") return byte_tokenizer();
  std::error_code unknown;
  bool folder = std::filesystem::is_directory(path, unknown);
  std::string file = folder ? path + "/" + kTokenizerFile : path;
  Ends ends = folder ? read_ends(path + "/" + kTokenizerConfigFile) : Ends{};
  std::string json = train::read_file(file, train::kTokenizerText);
  try {
    return bpe_tokenizer(file, std::move(json), ends.begins, ends.ends);
  } catch (const Error& error) {
    throw Error(error.kind(), concat("cannot read '", file, "' as a tokenizer: ", error.what()));
  }
}

}  // namespace shardgrad::text
