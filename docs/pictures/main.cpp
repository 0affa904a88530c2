// Draws the pictures of README and docs.
//
//     draw_pictures --write FOLDER     writes them
//     draw_pictures --check FOLDER     fails where one is not what it would write, or is none of them

#include <cstdio>
#include <fstream>
#include <sstream>

#include <shardgrad/core/error.h>

#include "docs/pictures/drawings.h"

namespace {

namespace fs = std::filesystem;

std::string text_of(const fs::path& file) {
  std::ostringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

bool is_as_drawn(const fs::path& file, const std::string& drawn) {
  if (text_of(file) == drawn) return true;
  std::printf("%s is not what this program draws; look at what changed, and draw it with --write\n", file.c_str());
  return false;
}

bool is_one(const fs::path& file, const drawings::Pictures& pictures) {
  if (file.extension() != ".svg" || pictures.contains(file.stem().string())) return true;
  std::printf("%s is none of this program's pictures\n", file.c_str());
  return false;
}

bool work(const std::string& option, const fs::path& folder) {
  drawings::Pictures pictures;
  drawings::draw_memory(pictures), drawings::draw_schedule(pictures), drawings::draw_route(pictures);
  drawings::draw_rooms(pictures, folder.parent_path() / "architecture.md");
  bool right = true;
  for (const auto& [name, drawn] : pictures) {
    fs::path file = folder / (name + ".svg");
    if (option == "--write") std::ofstream(file) << drawn;
    right = is_as_drawn(file, drawn) && right;
  }
  for (const auto& entry : fs::directory_iterator(folder)) right = is_one(entry.path(), pictures) && right;
  return right;
}

}  // namespace

int main(int count, char** words) try {
  std::string option = count == 3 ? words[1] : "";
  if (option != "--write" && option != "--check") return std::puts("draw_pictures --write|--check FOLDER"), 2;
  return work(option, words[2]) ? 0 : 1;
} catch (const shardgrad::Error& error) {
  return std::printf("draw_pictures: %s\n", error.what()), 1;
}
