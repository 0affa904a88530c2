#include <shardgrad/train/hf/tensor_files.h>

#include <filesystem>
#include <set>

#include <shardgrad/core/error.h>
#include <shardgrad/train/files.h>
#include <shardgrad/train/hf/keys.h>
#include <shardgrad/train/hf/layout.h>

namespace shardgrad::train::hf {
namespace {

bool exists(const std::string& path) {
  std::error_code unknown;
  return std::filesystem::exists(path, unknown);
}

// The file of each tensor, as the index says.
std::map<std::string, std::string> read_index(const std::string& path) {
  std::map<std::string, std::string> files = Keys(path, kTensorIndex).texts_below("weight_map");
  SG_CHECK(!files.empty(), path, ": it has no weight_map, which says in which file a tensor is");
  for (const auto& [name, file] : files)
    SG_CHECK(!file.empty() && file.find('/') == std::string::npos, path, ": '", shortened(name), "' is in '",
             shortened(file), "', which is no name of a file in that folder");
  return files;
}

}  // namespace

TensorFiles::TensorFiles(const std::string& folder) {
  std::string file = folder + "/" + kTensorFile, index = folder + "/" + kIndexFile;
  if (exists(file)) {
    open(file);
    return;
  }
  SG_CHECK(exists(index), "'", folder, "' has neither ", kTensorFile, " nor ", kIndexFile,
           exists(folder + "/pytorch_model.bin")
               ? "; pytorch_model.bin cannot be read: save the model with transformers "
                 "and safe_serialization=True"
               : "");
  std::map<std::string, std::string> map = read_index(index);
  std::set<std::string> names;
  for (const auto& [tensor, name] : map) names.insert(name);
  for (const std::string& name : names) open(folder + "/" + name);
  for (const auto& [tensor, name] : map) {
    auto place = places_.find(bare_name(tensor));
    bool there = place != places_.end() && place->second.file->path() == folder + "/" + name;
    SG_CHECK(there, index, ": '", shortened(tensor), "' is in '", name, "', which has no such tensor");
  }
}

void TensorFiles::open(const std::string& path) {
  const SafetensorsFile& file =
      *files_.emplace_back(std::make_unique<SafetensorsFile>(path, SafetensorsFile::Access::read));
  auto add = [&](const std::string& name) {
    auto [place, added] = places_.try_emplace(bare_name(name), Place{&file, name});
    SG_CHECK(added, "'", path, "': tensor '", shortened(name), "' is in '", place->second.file->path(), "', too");
  };
  for (const auto& [name, entry] : file.tensors()) add(name);
  for (const auto& [name, why] : file.unreadable()) add(name);
}

}  // namespace shardgrad::train::hf
