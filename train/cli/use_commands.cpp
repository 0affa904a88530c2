// Commands on what was trained.

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

namespace shardgrad::cli {

int eval_command(const UseOptions& options) {
  return run_job(options.run, [&](const train::Config& config, dist::Job& job) {
    train::evaluate_run(config, options.folder, job.world(), std::cout);
    return 0;
  });
}

int predict_command(const UseOptions& options) {
  return run_job(options.run, [&](const train::Config& config, dist::Job& job) {
    int64_t rows = train::predict_run(config, options.folder, job.world(), options.input, options.output);
    std::cout << "predicted " << rows << " rows: " << options.output << std::endl;
    return 0;
  });
}

int export_command(const UseOptions& options) {
  train::Config config = train::read_config(options.run.config, options.run.overrides, *options.run.registry);
  train::export_run(config, options.folder, options.output);
  std::cout << "wrote " << options.output << std::endl;
  return 0;
}

int hash_command(const std::string& folder) {
  train::Last last = train::last_checkpoint(folder);
  SG_CHECK(last.folder, "nothing is saved in '", folder, "'");
  if (!last.note.empty()) std::cerr << last.note << std::endl;
  train::Manifest manifest = train::verify_checkpoint(*last.folder);
  std::cout << "step " << manifest.reached.step << ", hash " << manifest.hash() << std::endl;
  return 0;
}

// What a file says of itself, where a terminal would take signs for orders.
static std::string printable(const std::string& text) {
  std::string safe;
  for (char c : text)
    safe += uint8_t(c) >= ' ' && c != '\x7f' ? std::string(1, c) : train::format("\\x%02x", unsigned(uint8_t(c)));
  return safe;
}

int inspect_command(const std::string& path) {
  train::SafetensorsFile file(path, train::SafetensorsFile::Access::read);
  int64_t count = 0, bytes = 0;
  for (const auto& [name, entry] : file.tensors()) {
    std::cout << printable(name) << "  " << entry.spec.dtype << " " << entry.spec.shape << "\n";
    count += entry.spec.shape.numel();
    bytes += entry.spec.shape.numel() * int64_t(size_of(entry.spec.dtype));
  }
  for (const auto& [name, why] : file.unreadable())
    std::cout << printable(name) << "  cannot be read here: " << printable(why) << "\n";
  std::cout << file.tensors().size() + file.unreadable().size() << " tensors, " << count << " elements, "
            << train::format_bytes(bytes) << "\n";
  for (const auto& [key, text] : file.metadata()) std::cout << printable(key) << ": " << printable(text) << "\n";
  std::cout << std::flush;
  return 0;
}

int report_command(const std::string& folder, const std::string& output) {
  std::string path = output.empty() ? (std::filesystem::path(folder) / "report.html").string() : output;
  train::replace_file(path, train::page(train::read_run(folder)));
  std::cout << "wrote " << path << std::endl;
  return 0;
}

}  // namespace shardgrad::cli
