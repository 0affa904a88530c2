#include <shardgrad/train/kept_tokenizer.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include <shardgrad/core/error.h>
#include <shardgrad/core/rng.h>
#include <shardgrad/train/checkpoint/run_folder.h>
#include <shardgrad/train/files.h>
#include <shardgrad/train/read_file.h>
#include <shardgrad/train/text.h>

namespace shardgrad::train {

namespace fs = std::filesystem;

// Which of its tokens begin and end a text, a tokenizer.json does not say.
static void keep_ends(const std::string& path, const text::Tokenizer& tokenizer) {
  nlohmann::ordered_json ends{{"tokenizer_class", "PreTrainedTokenizerFast"}};  // to transformers: the file as it is
  if (tokenizer.bos()) ends["bos_token"] = tokenizer.token(*tokenizer.bos()).bytes;
  if (tokenizer.eos()) ends["eos_token"] = tokenizer.token(*tokenizer.eos()).bytes;
  constexpr auto kReplace = nlohmann::json::error_handler_t::replace;  // a name may be no UTF-8
  if (ends.size() > 1) replace_file(path, ends.dump(1, ' ', false, kReplace) + "\n");
}

void keep_tokenizer(const std::string& run, const text::Tokenizer& tokenizer) {
  std::string path = run + "/" + kTokenizerFile, now = tokenizer.json();
  std::error_code unknown;
  if (fs::exists(path, unknown)) {
    if (read_file(path, kTokenizerText) == now) return;
    SG_CHECK(!last_checkpoint(run).folder, "'", run, "' was trained with another tokenizer than data.tokenizer, '",
             tokenizer.name(), "'; go on with data.tokenizer=", path, ", or begin a run of another name");
  }
  keep_ends(run + "/" + text::kTokenizerConfigFile, tokenizer);
  replace_file(path, now);
}

std::shared_ptr<const text::Tokenizer> kept_tokenizer(const std::string& run) {
  std::error_code unknown;
  std::string folder = run_of(run);
  if (fs::exists(folder + "/" + kTokenizerFile, unknown)) return text::load_tokenizer(folder);
  fail("no tokenizer is kept in '", run, "': it was not trained on texts (data.tokenizer)");
}

std::string mark_of(const text::Tokenizer& tokenizer) {
  return format("%lld ids, %016llx", static_cast<long long>(tokenizer.vocab_size()),
                static_cast<unsigned long long>(stream_of(tokenizer.json())));
}

}  // namespace shardgrad::train
