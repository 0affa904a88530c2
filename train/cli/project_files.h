#pragma once
// The project that `shardgrad new` writes; the build fills it in (cmake/project_files.cmake).

#include <span>

namespace shardgrad::cli {

struct ProjectFile {
  const char *name, *text;
};
std::span<const ProjectFile> project_files();

}  // namespace shardgrad::cli
