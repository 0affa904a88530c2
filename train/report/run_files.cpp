#include <shardgrad/train/report/run_files.h>

#include <filesystem>
#include <sstream>

#include <shardgrad/core/error.h>
#include <shardgrad/train/about.h>
#include <shardgrad/train/checkpoint/run_folder.h>
#include <shardgrad/train/files.h>
#include <shardgrad/train/read_file.h>
#include <shardgrad/train/shallow_json.h>

namespace shardgrad::train {
namespace {

using Json = RunFiles::Json;

// Null where there is no such file, and then a note of what that means.
Json object_if_there(RunFiles& files, const char* name, const char* why_not) {
  std::string path = files.folder + "/" + name;
  if (std::filesystem::exists(path)) return read_object(path, kRecord);
  files.notes.push_back(concat(name, " is not there: ", why_not));
  return nullptr;
}

std::vector<Json> metrics_in(const std::string& path) {
  std::vector<Json> lines;
  std::istringstream text(read_file(path, kMetrics));
  for (std::string line; std::getline(text, line);) {
    lines.push_back(parse_shallow(line));
    bool whole = lines.back().is_object() && lines.back().contains("step");
    SG_CHECK(whole || text.peek() == EOF, "'", path, "' is damaged in line ", lines.size());
    if (!whole) lines.pop_back();
  }
  return lines;
}

}  // namespace

RunFiles read_run(const std::string& folder) {
  RunFiles files{.folder = folder};
  SG_CHECK(std::filesystem::is_directory(folder), "there is no folder '", folder, "'");
  SG_CHECK(std::filesystem::exists(folder + "/config.json"), "'", folder,
           "' is no folder of a run: it has no config.json");
  files.config = read_object(folder + "/config.json", kRecord);
  files.about = object_if_there(files, kAboutFile, "the run did not come to its first step");
  files.ledger = object_if_there(files, "ledger.json", "the run has not ended as it should, or still trains");
  if (std::filesystem::exists(folder + "/metrics.jsonl")) files.metrics = metrics_in(folder + "/metrics.jsonl");
  if (std::filesystem::exists(folder + "/trace.json"))
    files.trace = read_trace(folder + "/trace.json");
  else
    files.notes.push_back("trace.json is not there: the run has not come to its trace_steps, or has none");
  try {
    if (Last last = last_checkpoint(folder); last.folder) files.checkpoint = read_manifest(*last.folder);
  } catch (const Error&) {  // what that means for training is not for this page
    files.notes.push_back("the last checkpoint cannot be read: it is damaged, or was removed");
  }
  return files;
}

}  // namespace shardgrad::train
