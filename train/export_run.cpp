#include <shardgrad/train/export_run.h>

#include <filesystem>

#include <shardgrad/core/error.h>
#include <shardgrad/train/checkpoint/checkpoint.h>
#include <shardgrad/train/files.h>
#include <shardgrad/train/hf/component.h>
#include <shardgrad/train/hf/export.h>
#include <shardgrad/train/kept_tokenizer.h>
#include <shardgrad/train/read_file.h>

namespace shardgrad::train {

// The files of a Hugging Face folder say more than the one that a run keeps: where texts end, how chats are written.
static bool has_tokenizer_of(const std::string& run, const std::string& folder) {
  std::string kept = run + "/" + kTokenizerFile;
  std::error_code unknown;
  if (!std::filesystem::exists(kept, unknown)) return true;
  try {
    return text::load_tokenizer(folder)->json() == read_file(kept, kTokenizerText);
  } catch (const Error&) {
    return false;  // it has none, or one that no run can have been trained with
  }
}

// As the tokenizer that the run keeps says it.
static hf::TokenIds ends_of(const std::string& run) {
  hf::TokenIds tokens;
  std::error_code unknown;
  if (!std::filesystem::exists(run + "/" + kTokenizerFile, unknown)) return tokens;
  auto tokenizer = kept_tokenizer(run);
  if (tokenizer->bos()) tokens["bos_token_id"] = std::to_string(*tokenizer->bos());
  if (tokenizer->eos()) tokens["eos_token_id"] = std::to_string(*tokenizer->eos());
  return tokens;
}

ExportedRun export_run(const Config& config, const std::string& from, const std::string& to,
                       std::optional<DType> dtype) {
  hf::ModelOptions options = hf::options_of(config.model);
  std::string run = run_of(from);  // while it is there
  Verified used = verify_used_checkpoint(from);
  hf::ExportSource source{used.model, run, ends_of(run), dtype};
  if (hf::is_model_folder(config.init_from)) {
    source.began = config.init_from;
    if (has_tokenizer_of(run, config.init_from)) {
      source.tokenizer = config.init_from;
      source.tokens = hf::read_token_ids(config.init_from);
    }
  }
  return {used.manifest.reached.step, hf::export_folder(options, source, to)};
}

}  // namespace shardgrad::train
