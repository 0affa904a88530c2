#include <shardgrad/train/data/text_data.h>

#include <shardgrad/core/error.h>
#include <shardgrad/train/data/data_file.h>
#include <shardgrad/train/data/token_windows.h>

namespace shardgrad::data {

static std::shared_ptr<const TokenSource> encode_files(const std::vector<std::string>& paths,
                                                       const text::Tokenizer& tokenizer, bool parse_special) {
  std::string name = concat("'", paths.at(0), "'");
  if (paths.size() > 1) name += concat(" and ", paths.size() - 1, " more");
  auto tokens = std::make_shared<TokensInMemory>(name, tokenizer.vocab_size());
  for (const std::string& path : paths) {
    std::string text = read_whole(path);
    SG_CHECK(!text.empty(), "'", path, "' is empty; it must hold a text");
    if (auto end = tokenizer.eos(); end && tokens->size() > 0) {
      auto id = uint32_t(*end);
      tokens->add({&id, 1});
    }
    tokenizer.encode(text, {.parse_special = parse_special}, [&](std::span<const uint32_t> ids) { tokens->add(ids); });
  }
  tokens->finish();
  return tokens;
}

Splits read_text(const TextOptions& options) {
  WindowOptions windows{options.length, options.test_share};
  windows.tokenizer = text::load_tokenizer(options.tokenizer);
  std::shared_ptr<const TokenSource> test;
  if (!options.test.empty()) test = encode_files(options.test, *windows.tokenizer, options.parse_special);
  return cut_windows(encode_files(options.path, *windows.tokenizer, options.parse_special), test, windows);
}

}  // namespace shardgrad::data
