#include <shardgrad/train/export_run.h>

#include <filesystem>
#include <iostream>

#include <shardgrad/core/error.h>
#include <shardgrad/train/checkpoint/checkpoint.h>
#include <shardgrad/train/hf/component.h>
#include <shardgrad/train/hf/export.h>

namespace shardgrad::train {

void export_run(const Config& config, const std::string& run, const std::string& to) {
  hf::ModelOptions options = hf::options_of(config.model);
  Last last = last_checkpoint(run);
  SG_CHECK(last.folder, "nothing is saved in '", run, "'");
  if (!last.note.empty()) std::cerr << last.note << std::endl;
  verify_checkpoint(*last.folder);
  hf::ExportSource source{*last.folder + "/" + kModelFile, run};
  std::error_code unknown;
  bool began_with_folder = hf::is_model_folder(config.init_from);
  if (began_with_folder && !std::filesystem::exists(run + "/tokenizer.json", unknown)) {
    source.tokenizer = config.init_from;
    source.tokens = hf::read_token_ids(config.init_from);
  }
  hf::export_folder(options, source, to);
}

}  // namespace shardgrad::train
