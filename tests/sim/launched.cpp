// Part of test_kernels: after a run on the simulator, every kernel of the library must have been launched.

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <string_view>

#include <shardgrad/kernels/sim/launch.h>

#include <source_folder.h>

namespace shardgrad::test {
namespace {

// The names of the kernels in the source: a template that nothing instantiates has no record.
std::set<std::string> declared_kernels() {
  std::set<std::string> names;
  std::regex declaration(R"(__global__ void (\w+)\()");
  for (const auto& file : std::filesystem::directory_iterator(std::filesystem::path(kSourceFolder) / "kernels/cuda")) {
    if (file.path().filename() == "add_elementwise.h")
      continue;  // for files outside: repo.outside_project launches them
    std::ifstream source(file.path());
    std::smatch match;
    for (std::string line; std::getline(source, line);)
      if (line.find("//") != 0 && std::regex_search(line, match, declaration)) names.insert(match[1]);
  }
  return names;
}

class EveryKernelWasLaunched : public ::testing::Environment {
  void TearDown() override {
    const char* device = std::getenv("SHARDGRAD_TEST_DEVICE");
    if (!device || std::string_view(device) != "sim") return;
    int kernels = 0;
    std::set<std::string> never = declared_kernels();
    EXPECT_GT(never.size(), 20u);
    never.erase(
        "function_kernel");  // of add_elementwise.h, for files outside the tree: repo.outside_project launches it
    for (const sim::KernelRecord* kernel = sim::KernelRecord::first(); kernel; kernel = kernel->next(), ++kernels) {
      EXPECT_GT(kernel->launches(), 0u) << kernel->name() << " was never launched; a test must call it";
      never.erase(kernel->name().substr(0, kernel->name().find('<')));
    }
    EXPECT_GT(kernels, 100);
    EXPECT_TRUE(never.empty()) << *never.begin() << " is in the source, but nothing launches it";
  }
};

const auto* const registered = ::testing::AddGlobalTestEnvironment(new EveryKernelWasLaunched);

}  // namespace
}  // namespace shardgrad::test
