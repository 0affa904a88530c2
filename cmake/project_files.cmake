# The files that `shardgrad new` writes are those of a project that the tests build and train (repo.newcomers_hour).
set(folder ${PROJECT_SOURCE_DIR}/tests/repo/outside_project/own_model)
set(files "")
foreach(name README.md CMakeLists.txt main.cpp config.json data.csv)
  file(READ ${folder}/${name} text)
  string(APPEND files "    {\"${name}\", R\"-----(${text})-----\"},\n")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${folder}/${name})
endforeach()
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/project_files.cpp @ONLY CONTENT "#include <shardgrad/train/cli/project_files.h>

namespace shardgrad::cli {
static constexpr ProjectFile kFiles[] = {
${files}};
std::span<const ProjectFile> project_files() { return kFiles; }
}  // namespace shardgrad::cli
")
target_sources(shardgrad PRIVATE ${PROJECT_BINARY_DIR}/project_files.cpp)
