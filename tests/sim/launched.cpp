// Part of test_kernels: after a run on the simulator, every kernel of the library must have been launched.

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <string>
#include <string_view>

#include <shardgrad/kernels/sim/launch.h>

#include <source_folder.h>

namespace shardgrad::test {
namespace {

// The names of the kernels that a text declares. Comments of their own lines count for nothing.
std::set<std::string> kernels_in(const std::string& text) {
  static const std::regex comment(R"((^|\n)//[^\n]*)");
  static const std::regex declaration(R"(__global__\s+void\s+(?:__launch_bounds__\([^)]*\)\s+)?(\w+)\()");
  std::string code = std::regex_replace(text, comment, "$1");
  std::set<std::string> names;
  for (std::sregex_iterator found(code.begin(), code.end(), declaration), end; found != end; ++found)
    names.insert((*found)[1]);
  return names;
}

TEST(LaunchedKernels, AreFoundHoweverTheyAreDeclared) {
  std::string text = R"(// __global__ void of_a_comment(int n)
template <class T> __global__ void plain(T* y) {}
__global__ void __launch_bounds__(64) bounded(float* y) {}
template <int D>
__launch_bounds__(kThreads, D > 64 ? 2 : 3) __global__
    void bounded_before(int n) {}
__global__ void
__launch_bounds__(kThreads, 2) over_three_lines(int n) {}
)";
  EXPECT_EQ(kernels_in(text), (std::set<std::string>{"plain", "bounded", "bounded_before", "over_three_lines"}));
}

// Those of the source: a template that nothing instantiates has no record.
std::set<std::string> declared_kernels() {
  std::set<std::string> names;
  for (const auto& file : std::filesystem::directory_iterator(std::filesystem::path(kSourceFolder) / "kernels/cuda")) {
    if (file.path().filename() == "add_elementwise.h")
      continue;  // for files outside: repo.outside_project launches them
    std::ifstream source(file.path());
    names.merge(kernels_in({std::istreambuf_iterator<char>(source), {}}));
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
