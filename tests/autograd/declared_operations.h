#pragma once
// The operations that users call, by the headers that declare them.

#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <string>

#include <shardgrad/kernels/elementwise.h>

#include <source_folder.h>

namespace shardgrad::test {

inline std::set<std::string> declared_operations() {
  std::regex declaration(
      R"(^(?:Tensor|Truth|ValuesAndIndex|BatchNormResult|AddNormResult|std::vector<Tensor>|void) (\w+)\()");
  std::set<std::string> names;
  std::smatch match;
  for (const char* file : {"ops.h", "ops/creation.h", "ops/functions.h", "ops/layout.h", "ops/reductions.h",
                           "ops/convolution.h", "ops/losses.h"}) {
    std::ifstream header(std::filesystem::path(kSourceFolder) / "autograd" / file);
    for (std::string line; std::getline(header, line);)
      if (std::regex_search(line, match, declaration)) names.insert(match[1]);
  }
#define SG_NAME(name, ...) names.insert(#name);
  SG_UNARIES(SG_NAME, SG_NO_ROW, SG_NO_ROW)
  SG_RELATIONS(SG_NAME)
#undef SG_NAME
  return names;
}

}  // namespace shardgrad::test
