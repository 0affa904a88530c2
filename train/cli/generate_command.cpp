#include <fstream>
#include <iostream>

#include <shardgrad/train/checkpoint/run_folder.h>
#include <shardgrad/train/cli/program.h>
#include <shardgrad/train/generate_run.h>
#include <shardgrad/train/hf/config.h>
#include <shardgrad/train/kept_tokenizer.h>
#include <shardgrad/train/read_file.h>

namespace shardgrad::cli {
namespace {

// A line each.
std::vector<std::string> prompts_in(const std::string& path) {
  std::string text = train::read_file(path, train::kPrompts);
  std::vector<std::string> lines;
  for (size_t begin = 0; begin < text.size();) {
    size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back(text.substr(begin, end - begin));
    if (lines.back().ends_with('\r')) lines.back().pop_back();
    begin = end + 1;
  }
  SG_CHECK(!lines.empty(), "'", path, "' has no prompts; it must have a line for each");
  return lines;
}

}  // namespace

int generate_command(const TextOptions& options) {
  train::TextRequest request{.prompts = options.prompts, .options = options.how};
  if (!options.file.empty()) request.prompts = prompts_in(options.file);
  if (options.dtype != "as saved") request.dtype = options.dtype == "bf16" ? DType::bf16 : DType::f16;
  RunOptions run = options.run;
  if (train::hf::is_model_folder(options.from)) {
    run.overrides.insert(run.overrides.begin(), {"model.from=" + options.from, "task.name=next_token"});
  } else {
    run.config = train::run_of(options.from) + "/config.json";
  }
  return run_job(run, [&](const train::Config& config, dist::Job& job) {
    train::generate_run(config, options.from, job.world(), request, std::cout, std::cerr);
    return 0;
  });
}

}  // namespace shardgrad::cli
