// Commands on what was trained.

#include <algorithm>
#include <filesystem>
#include <iostream>

#include <shardgrad/train/checkpoint/checkpoint.h>
#include <shardgrad/train/cli/program.h>
#include <shardgrad/train/evaluate_run.h>
#include <shardgrad/train/export_run.h>
#include <shardgrad/train/files.h>
#include <shardgrad/train/predict_run.h>
#include <shardgrad/train/report/page.h>
#include <shardgrad/train/run_report.h>
#include <shardgrad/train/text.h>
#include <shardgrad/train/waiting_line.h>

namespace shardgrad::cli {

static RunOptions of_run(const UseOptions& options) {
  RunOptions run = options.run;
  run.config = train::run_of(options.folder) + "/config.json";
  return run;
}

int eval_command(const UseOptions& options) {
  return run_job(of_run(options), [&](const train::Config& config, dist::Job& job) {
    train::evaluate_run(config, options.folder, job.world(), std::cout, find_terminal(job));
    return 0;
  });
}

int predict_command(const UseOptions& options) {
  return run_job(of_run(options), [&](const train::Config& config, dist::Job& job) {
    std::optional<train::WaitingLine> waiting(std::in_place, "predicting", std::cout, find_terminal(job));
    auto [rows, step] = train::predict_run(config, options.folder, job.world(), options.input, options.output);
    waiting.reset();
    std::cout << "predicted " << rows << " rows with step " << step << ": " << options.output << std::endl;
    return 0;
  });
}

int export_command(const UseOptions& options) {
  train::Config config = train::read_config(of_run(options).config, options.run.overrides, *options.run.registry);
  std::optional<DType> dtype;
  for (DType each : {DType::f32, DType::bf16, DType::f16})
    if (options.dtype == name_of(each)) dtype = each;
  auto [step, dtypes] = train::export_run(config, options.folder, options.output, dtype);
  std::cout << "wrote step " << step << " to " << options.output << " in " << dtypes.written << std::endl;
  if (dtypes.too_narrow)
    std::cout << "what the run began with was in " << *dtypes.too_narrow << ", which would round what it has learnt; "
              << "--dtype " << *dtypes.too_narrow << " does that" << std::endl;
  return 0;
}

int hash_command(const std::string& folder) {
  train::Manifest manifest = train::verify_used_checkpoint(folder).manifest;
  std::cout << "step " << manifest.reached.step << ", hash " << manifest.hash() << std::endl;
  return 0;
}

int inspect_command(const std::string& path) {
  train::SafetensorsFile file(path, train::SafetensorsFile::Access::read);
  int64_t count = 0, bytes = 0;
  for (const auto& [name, entry] : file.tensors()) {
    std::cout << train::printable(name) << "  " << entry.spec.dtype << " " << entry.spec.shape << "\n";
    count += entry.spec.shape.numel();
    bytes += entry.spec.shape.numel() * int64_t(size_of(entry.spec.dtype));
  }
  for (const auto& [name, why] : file.unreadable())
    std::cout << train::printable(name) << "  cannot be read here: " << train::printable(why) << "\n";
  std::cout << file.tensors().size() + file.unreadable().size() << " tensors, " << count << " elements, "
            << train::format_bytes(bytes) << "\n";
  for (const auto& [key, text] : file.metadata())
    std::cout << train::printable(key) << ": " << train::printable(text) << "\n";
  std::cout << std::flush;
  return 0;
}

// In a run's folder a page would be read as what it took the place of.
static void check_no_file_of_run(const std::string& folder, const std::string& output) {
  namespace fs = std::filesystem;
  fs::path place = fs::weakly_canonical(fs::absolute(output).parent_path()), run = fs::weakly_canonical(folder);
  bool inside = std::ranges::mismatch(run, place).in1 == run.end();
  SG_CHECK(!inside || output.ends_with(".html"), "'", output,
           "' is in the folder of the run, whose files are its own; ",
           "name a file that ends in .html, or one elsewhere");
}

int report_command(const std::string& folder, const std::string& output) {
  std::string path = output.empty() ? (std::filesystem::path(folder) / "report.html").string() : output;
  check_no_file_of_run(folder, path);
  std::string page = train::page(train::read_run(folder));
  try {
    train::replace_file(path, page);
  } catch (const Error& error) {
    throw Error(error.kind(), concat(error.what(), output.empty() ? "; --output FILE writes it elsewhere" : ""));
  }
  std::cout << "wrote " << path << std::endl;
  return 0;
}

}  // namespace shardgrad::cli
