#include <shardgrad/train/report/run_files.h>

#include <filesystem>
#include <sstream>

#include <shardgrad/core/error.h>
#include <shardgrad/train/about.h>
#include <shardgrad/train/checkpoint/run_folder.h>
#include <shardgrad/train/files.h>
#include <shardgrad/train/metrics_line.h>
#include <shardgrad/train/read_file.h>
#include <shardgrad/train/shallow_json.h>

namespace shardgrad::train {
namespace {

using Json = RunFiles::Json;

// Where `name` is there, `read` is called with its path. Otherwise, or where it is damaged, a note says so.
template <class Read> void read_if_there(RunFiles& files, const char* name, const char* why_not, const Read& read) {
  std::string path = files.folder + "/" + name;
  if (!std::filesystem::exists(path)) {
    if (*why_not) files.notes.push_back(concat(name, " is not there: ", why_not));
    return;
  }
  try {
    read(path);
  } catch (const Error& error) {
    files.notes.push_back(error.what());
  }
}

// The last line of a run that was killed may be there in part.
void read_metrics(RunFiles& files, const std::string& path) {
  std::istringstream text(read_file(path, kMetrics));
  int64_t damaged = 0;
  for (std::string line; std::getline(text, line);) {
    Json read = parse_shallow(line);
    if (read.is_object() && read.contains("step") && read["step"].is_number_integer())
      files.metrics.push_back(std::move(read));
    else if (text.peek() != EOF)
      ++damaged;
  }
  if (damaged > 0) files.notes.push_back(damaged_lines(path, damaged));
}

}  // namespace

RunFiles read_run(const std::string& folder) {
  RunFiles files{.folder = folder};
  SG_CHECK(std::filesystem::is_directory(folder), "there is no folder '", folder, "'");
  SG_CHECK(std::filesystem::exists(folder + "/config.json"), "'", folder,
           "' is no folder of a run: it has no config.json");
  files.config = read_object(folder + "/config.json", kRecord);
  auto object = [](Json& into) { return [&into](const std::string& path) { into = read_object(path, kRecord); }; };
  read_if_there(files, kAboutFile, "the run did not come to its first step", object(files.about));
  read_if_there(files, "ledger.json", "the run has not ended as it should, or still trains", object(files.ledger));
  read_if_there(files, "metrics.jsonl", "",  // which its part of the page says
                [&](const std::string& path) { read_metrics(files, path); });
  read_if_there(files, "trace.json", "the run has not come to its trace_steps, or has none",
                [&](const std::string& path) { files.trace = read_trace(path); });
  try {
    if (Last last = last_checkpoint(folder); last.folder) files.checkpoint = read_manifest(*last.folder);
  } catch (const Error&) {  // what that means for training is not for this page
    files.notes.push_back("the last checkpoint cannot be read: it is damaged, or was removed");
  }
  return files;
}

}  // namespace shardgrad::train
