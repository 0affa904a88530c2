#include <shardgrad/train/data/tokens.h>

#include <shardgrad/core/error.h>
#include <shardgrad/train/data/token_file.h>
#include <shardgrad/train/data/token_windows.h>

namespace shardgrad::data {

Splits read_tokens(const TokenOptions& options) {
  WindowOptions windows{options.length, options.test_share, options.vocabulary};
  if (!options.tokenizer.empty()) windows.tokenizer = text::load_tokenizer(options.tokenizer);
  std::shared_ptr<const TokenSource> test;
  if (!options.test.empty()) test = open_tokens(options.test, options.token_bytes);
  return cut_windows(open_tokens(options.train, options.token_bytes), test, windows);
}

}  // namespace shardgrad::data
