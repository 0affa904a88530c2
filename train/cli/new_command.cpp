#include <filesystem>
#include <iostream>

#include <shardgrad/core/error.h>
#include <shardgrad/train/cli/program.h>
#include <shardgrad/train/cli/project_files.h>
#include <shardgrad/train/files.h>

namespace shardgrad::cli {
namespace {

// What somebody has in a folder is not to be mixed with ours.
void make_empty_folder(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  SG_CHECK(!error, "new: cannot make the folder '", folder.string(), "': ", error.message());
  bool empty = std::filesystem::directory_iterator(folder, error) == std::filesystem::directory_iterator();
  SG_CHECK(!error, "new: cannot read the folder '", folder.string(), "': ", error.message());
  SG_CHECK(empty, "new: the folder '", folder.string(), "' is not empty; name one that is, or that does not exist");
}

}  // namespace

int new_command(const std::string& folder) {
  make_empty_folder(folder);
  std::string names;
  try {
    for (const ProjectFile& file : project_files()) {
      train::write_file(std::filesystem::path(folder) / file.name, file.text);
      names += concat(names.empty() ? "" : ", ", file.name);
    }
  } catch (const Error&) {  // so that the same line works where there is room again
    std::error_code ignored;
    for (const ProjectFile& file : project_files())
      std::filesystem::remove(std::filesystem::path(folder) / file.name, ignored);
    throw;
  }
  std::cout << "wrote " << names << " to '" << folder << "'; the README there has the commands\n";
  return 0;
}

}  // namespace shardgrad::cli
