#include <shardgrad/train/kept_tokenizer.h>

#include <filesystem>

#include <shardgrad/core/error.h>
#include <shardgrad/core/rng.h>
#include <shardgrad/train/checkpoint/run_folder.h>
#include <shardgrad/train/files.h>
#include <shardgrad/train/text.h>

namespace shardgrad::train {

namespace fs = std::filesystem;

void keep_tokenizer(const std::string& run, const text::Tokenizer& tokenizer) {
  std::string path = run + "/" + kTokenizerFile, now = tokenizer.json();
  std::error_code unknown;
  if (fs::exists(path, unknown)) {
    if (read_file(path) == now) return;
    SG_CHECK(!last_checkpoint(run).folder, "'", run, "' was trained with another tokenizer than data.tokenizer, '",
             tokenizer.name(), "'; go on with data.tokenizer=", path, ", or begin a run of another name");
  }
  replace_file(path, now);
}

std::shared_ptr<const text::Tokenizer> kept_tokenizer(const std::string& run) {
  std::error_code unknown;
  bool is_checkpoint = fs::exists(run + "/" + kManifestFile, unknown);
  fs::path path = (is_checkpoint ? fs::absolute(run).parent_path() : fs::path(run)) / kTokenizerFile;
  if (fs::exists(path, unknown)) return text::load_tokenizer(path.string());
  fail("no tokenizer is kept in '", run, "': it was not trained on texts (data.tokenizer)");
}

std::string mark_of(const text::Tokenizer& tokenizer) {
  return format("%lld ids, %016llx", static_cast<long long>(tokenizer.vocab_size()),
                static_cast<unsigned long long>(stream_of(tokenizer.json())));
}

}  // namespace shardgrad::train
