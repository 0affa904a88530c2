// Part of test_kernels: after a run on the simulator, every kernel of the library must have been launched.

#include <gtest/gtest.h>

#include <cstdlib>
#include <string_view>

#include <shardgrad/kernels/sim/launch.h>

namespace shardgrad::test {
namespace {

class EveryKernelWasLaunched : public ::testing::Environment {
  void TearDown() override {
    const char* device = std::getenv("SHARDGRAD_TEST_DEVICE");
    if (!device || std::string_view(device) != "sim") return;
    int kernels = 0;
    for (const sim::KernelRecord* kernel = sim::KernelRecord::first(); kernel; kernel = kernel->next(), ++kernels)
      EXPECT_GT(kernel->launches(), 0u) << kernel->name() << " was never launched; a test must call it";
    EXPECT_GT(kernels, 100);
  }
};

const auto* const registered = ::testing::AddGlobalTestEnvironment(new EveryKernelWasLaunched);

}  // namespace
}  // namespace shardgrad::test
