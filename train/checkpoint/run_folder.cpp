#include <shardgrad/train/checkpoint/run_folder.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <iostream>
#include <limits>
#include <vector>

#include <shardgrad/train/checkpoint/manifest.h>
#include <shardgrad/train/checkpoint/safetensors.h>
#include <shardgrad/train/files.h>
#include <shardgrad/train/read_file.h>

namespace shardgrad::train {
namespace {

namespace fs = std::filesystem;
constexpr std::string_view kPrefix = "step-", kUnfinished = ".tmp";

// Of "step-120" 120; of another name, such as "step-0120", nothing.
std::optional<int64_t> step_of(std::string_view name) {
  if (!name.starts_with(kPrefix)) return {};
  int64_t step = -1;
  std::from_chars(name.begin() + kPrefix.size(), name.end(), step);
  return step >= 0 && step_folder(step) == name ? std::optional(step) : std::nullopt;
}

// "step-120.tmp", "step-120.tmp-3f09a1b2"
bool is_unfinished(std::string_view name) {
  size_t at = name.find(kUnfinished);
  if (at == std::string_view::npos || !step_of(name.substr(0, at))) return false;
  std::string_view number = name.substr(at + kUnfinished.size());
  bool hexadecimal = std::ranges::all_of(number.substr(std::min<size_t>(1, number.size())),
                                         [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
  return number.empty() || (number[0] == '-' && hexadecimal);
}

bool holds_only_a_checkpoint(const fs::path& folder) {
  if (fs::symlink_status(folder).type() != fs::file_type::directory) return false;
  return std::ranges::all_of(fs::directory_iterator(folder), [](const fs::directory_entry& entry) {
    std::string name = entry.path().filename();
    return name == kModelFile || name == kOptimizerFile || name == kManifestFile;
  });
}

std::vector<fs::path> folders_in(const std::string& run, bool (*wanted)(std::string_view name)) {
  std::vector<fs::path> found;
  SG_CHECK(fs::is_directory(run), "'", run, "' is no folder of a run");
  for (const fs::directory_entry& entry : fs::directory_iterator(run))
    if (wanted(entry.path().filename().string()) && fs::symlink_status(entry).type() == fs::file_type::directory)
      found.push_back(entry.path());
  return found;
}

// The steps of the checkpoints, the newest first.
std::vector<int64_t> steps_in(const std::string& run) {
  std::vector<int64_t> steps;
  for (const fs::path& path : folders_in(run, [](std::string_view name) { return step_of(name).has_value(); }))
    steps.push_back(*step_of(path.filename().string()));
  std::ranges::sort(steps, std::greater());
  return steps;
}

// Unless it holds something else, too. A line on why it could not, empty if it could.
std::string remove_folder(const fs::path& folder) {
  if (!holds_only_a_checkpoint(folder)) return "";
  std::error_code error;
  fs::remove_all(folder, error);
  return error ? concat("\n'", folder.string(), "' could not be removed: ", error.message()) : "";
}

// Its files are there, of the lengths that they say they have.
bool is_whole(const std::string& folder) {
  try {
    read_manifest(folder);
    SafetensorsFile(folder + "/" + kModelFile, SafetensorsFile::Access::read);
    SafetensorsFile(folder + "/" + kOptimizerFile, SafetensorsFile::Access::read);
    return true;
  } catch (const Error&) {
    return false;
  }
}

// The name in `latest` or `best`.
std::string named_in(const std::string& path) {
  std::string name = read_file(path, kNote);
  name.resize(std::min(name.find('\n'), name.size()));
  std::ranges::replace_if(
      name, [](char c) { return c >= 0 && c < ' '; }, '?');  // it is shown
  return name;
}

std::string best_in(const std::string& run) { return fs::exists(run + "/best") ? named_in(run + "/best") : ""; }

Last newest_whole(const std::string& run, const std::string& why, bool was_one) {
  std::vector<int64_t> steps = steps_in(run);
  for (int64_t step : steps)
    if (std::string folder = run + "/" + step_folder(step); is_whole(folder))
      return {folder, concat("'", run, "/latest' ", why, "; goes on from '", folder, "', the newest that is whole")};
  SG_CHECK(steps.empty() && !was_one, "'", run, "/latest' ", why, ", and none of the ", steps.size(),
           " checkpoints beside it is whole; set another name, or remove latest and them to begin anew");
  return {};
}

std::string remove_old(const std::string& run, int64_t step, Keep keep) {
  std::string best = best_in(run), note;
  int64_t kept = 0;
  for (int64_t other : steps_in(run)) {
    bool stays = other == step || (other < step && kept < keep.count) || step_folder(other) == best;
    kept += other <= step;
    fs::path folder = run + "/" + step_folder(other);
    if (stays || !holds_only_a_checkpoint(folder)) continue;
    if (other > step) note += concat("\nremoved '", folder.string(), "', from which the run did not go on");
    note += remove_folder(folder);
  }
  return note;
}

void check_own(const std::string& folder) {
  SG_CHECK(!fs::exists(folder) || holds_only_a_checkpoint(folder), "'", folder,
           "' holds other files than a checkpoint's, and the run will save one of that name; move it away");
}

}  // namespace

std::string step_folder(int64_t step) { return concat(kPrefix, step); }

// What `latest` names, and whether that is there. A run that goes on may name another one and remove the one before
// while this is read.
static std::pair<std::string, bool> named_latest(const std::string& run) {
  for (std::string before;;) {
    std::string name = named_in(run + "/latest");
    SG_CHECK(
        step_of(name), "'", run, "/latest' says '", shortened(name),
        "', expected the name of a folder step-N; write that of a checkpoint beside it into the file, or remove it");
    bool is_there = fs::exists(run + "/" + name);
    if (is_there || name == before) return {name, is_there};
    before = name;
  }
}

Last last_checkpoint(const std::string& run) {
  if (!fs::exists(run)) return {};
  if (!fs::exists(run + "/latest")) return newest_whole(run, "is missing", false);
  auto [name, is_there] = named_latest(run);
  if (!is_there) return newest_whole(run, concat("names '", name, "', which is not there"), true);
  return {run + "/" + name, ""};
}

// "runs/a/step-120/": its path and its name.
static fs::path without_slash(const std::string& folder) {
  fs::path path = fs::path(folder).lexically_normal();
  return path.has_filename() ? path : path.parent_path();
}

static bool is_checkpoint(const fs::path& path) {
  std::error_code unknown;
  return fs::exists(path / kManifestFile, unknown) ||
         (step_of(path.filename().string()) && fs::is_directory(path, unknown));
}

std::string named_checkpoint(const std::string& folder) {
  fs::path path = without_slash(folder);
  std::string name = path.filename(), run = path.has_parent_path() ? path.parent_path().string() : ".";
  std::error_code unknown;
  bool of_run = fs::exists(run + "/config.json", unknown), by_file = name == "best" || name == "latest";
  if (fs::is_directory(path, unknown) || !of_run || !(by_file || step_of(name))) return folder;
  std::string named = by_file && fs::exists(path, unknown) ? named_in(path) : name, all;
  if (by_file && step_of(named) && fs::is_directory(run + "/" + named, unknown)) return run + "/" + named;
  for (int64_t step : steps_in(run)) all += concat(all.empty() ? "" : ", ", step_folder(step));
  fail("'", run, "' has no checkpoint '", shortened(named), "'; ", all.empty() ? "nothing is saved there" : "it has ",
       all, name == "best" ? "; the best one is kept with keep_best" : "");
}

std::string run_of(const std::string& folder) {
  std::string path = named_checkpoint(folder);
  return is_checkpoint(without_slash(path)) ? fs::weakly_canonical(path).parent_path().string() : path;
}

Last used_checkpoint(const std::string& folder) {
  std::string named = named_checkpoint(folder);
  if (fs::path path = without_slash(named); is_checkpoint(path)) return {path.string(), ""};
  Last last = last_checkpoint(named);
  SG_CHECK(last.folder, "nothing is saved in '", folder, "'");
  return last;
}

std::string UsedCheckpoint::named() {
  Last used = used_checkpoint(from_);
  if (!used.note.empty() && used.note != std::exchange(said_, used.note)) std::cerr << used.note << std::endl;
  return *used.folder;
}

void check_free(const std::string& run, int64_t step) {
  std::string folder = run + "/" + step_folder(step);
  bool is_last = fs::exists(run + "/latest") && named_in(run + "/latest") == step_folder(step) && fs::exists(folder);
  SG_CHECK(!is_last, "'", folder, "' is saved already");
  check_own(folder);
}

void check_free_after(const std::string& run, int64_t step) {
  for (int64_t later : steps_in(run))
    if (later > step) check_own(run + "/" + step_folder(later));
}

// A file system without links goes without.
std::string link_model(const std::string& run, const std::string& folder) {
  std::string link = concat(run, "/", kModelFile), model = concat(folder, "/", kModelFile);
  std::error_code ignored;
  if (fs::exists(link, ignored) && !fs::is_symlink(link, ignored))
    return concat("'", link, "' is no link to the newest model: somebody put it there");
  if (fs::read_symlink(link, ignored) == model) return "";
  fs::remove(link + ".tmp", ignored);
  fs::create_symlink(model, link + ".tmp", ignored);
  if (!ignored) fs::rename(link + ".tmp", link, ignored);
  return "";
}

void check_keep(Keep keep) {
  SG_CHECK(keep.count >= 1, "keep is ", keep.count,
           ", expected 1 or more: how many checkpoints stay, with the one that is saved");
}

std::string commit_checkpoint(const std::string& run, const std::string& unfinished, int64_t step, Keep keep) {
  check_keep(keep);
  std::string name = step_folder(step), note;
  sync_path(unfinished);
  if (!keep.is_best && best_in(run) == name && fs::remove(run + "/best"))
    note = concat("\nremoved '", run, "/best', for the ", name, " that it named is replaced");
  if (holds_only_a_checkpoint(run + "/" + name)) fs::remove_all(run + "/" + name);  // `latest` names another one
  fs::rename(unfinished, run + "/" + name);
  sync_path(run);
  if (keep.is_best) replace_file(run + "/best", name + "\n");
  replace_file(run + "/latest", name + "\n");
  if (std::string line = link_model(run, name); !line.empty()) note += "\n" + line;
  sync_path(run);
  note += remove_old(run, step, keep);
  remove_unfinished(run);
  return note.substr(note.empty() ? 0 : 1);
}

std::string find_best(const std::string& run, int64_t step, double score) {
  std::string name = step_folder(step), named = best_in(run);
  if (!is_whole(run + "/" + named)) named.clear();
  if (named == name) return "";
  if (is_whole(run + "/" + name)) {
    replace_file(run + "/best", name + "\n");
    return concat("best names ", name, ", whose score of ", score, " is the best so far");
  }
  return concat("the best score so far, ", score, " after step ", step,
                ", is not among the whole checkpoints any more; until one is better, best ",
                named.empty() ? "has none" : "names " + named);
}

void remove_unfinished(const std::string& run) {
  for (const fs::path& path : folders_in(run, is_unfinished)) remove_folder(path);
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(run))
    if (entry.path().filename().string().starts_with(kSeen)) fs::remove(entry.path(), ignored);
}

void check_room(const std::string& run, int64_t bytes, int64_t count) {
  std::string path = run + "/.room";
  std::error_code unknown;
  int64_t times = std::max<int64_t>(1, count - std::ssize(steps_in(run))), most = std::numeric_limits<int64_t>::max();
  int64_t more = bytes > most / times ? most : bytes * times;
  fs::space_info space = fs::space(run, unknown);
  try {
    check_space(path, 0);
    SG_CHECK(unknown || space.available >= uintmax_t(more), "its disk has ", space.available, " left");
    check_space(path, more);
  } catch (const Error& error) {
    fail("'", run, "' cannot take ", more,
         " bytes more, the checkpoints that are kept of this run and the next one: ", error.what(),
         "; free some, keep fewer, or set runs to a folder that can");
  }
}

}  // namespace shardgrad::train
