// What environment variables say of kernels is read once in a process: each case is one of its own.

#include <shardgrad/kernels/choices.h>

#include <cstdlib>
#include <vector>

#include <gtest/gtest.h>

#include <shardgrad/core/context.h>
#include <shardgrad/kernels/ops.h>

namespace shardgrad::test {
namespace {

// Ends with the exit code of what it throws.
template <class Call> void say(const Call& call) {
  try {
    Context context;
    call();
    std::exit(0);
  } catch (const Error& error) {
    std::fputs(error.what(), stderr);
    std::exit(int(error.kind()));
  }
}

void sum_on_four_threads() {
  std::vector<float> x(1 << 20), y(1);
  View from{x.data(), {1 << 20}, DType::f32, true};
  kernels::sum_to.find(DeviceKind::cpu, DType::f32)(Launch{4}, {y.data(), {1}, DType::f32, 0, true}, from);
}

void multiply() {
  std::vector<float> a(256 * 256), c(256 * 256);  // so large that a library may make it
  View from{a.data(), {256, 256}, DType::f32, true};
  OutView to{c.data(), {256, 256}, DType::f32, 0, true};
  kernels::matmul.find(DeviceKind::cpu, DType::f32)(Launch{1}, to, {}, from, from, {}, {});
}

class CpuChoices : public ::testing::Test {
 protected:
  CpuChoices() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }  // the program starts anew
  ~CpuChoices() override {
    unsetenv("SHARDGRAD_ISA");
    unsetenv("SHARDGRAD_GEMM");
    unsetenv("SHARDGRAD_TF32");
  }
};

TEST_F(CpuChoices, AnUnknownInstructionSetIsRefusedByTheFirstKernelAndNotByLoadingTheLibrary) {
  setenv("SHARDGRAD_ISA", "avx3", 1);
  const char* said = "SHARDGRAD_ISA is 'avx3'; choose plain, avx2, avx512, or unset it";
  EXPECT_EXIT(say(sum_on_four_threads), ::testing::ExitedWithCode(2), said);
  EXPECT_EXIT(say(multiply), ::testing::ExitedWithCode(2), said);
  EXPECT_EXIT(say(check_kernel_choices), ::testing::ExitedWithCode(2), said);
}

TEST_F(CpuChoices, UnknownProductsAreRefusedByTheFirstProduct) {
  setenv("SHARDGRAD_GEMM", "onednn", 1);
  const char* said = "SHARDGRAD_GEMM is 'onednn'; choose own, timed, or unset it";
  EXPECT_EXIT(say(multiply), ::testing::ExitedWithCode(2), said);
  EXPECT_EXIT(say(check_kernel_choices), ::testing::ExitedWithCode(2), said);
}

TEST_F(CpuChoices, Tf32IsAFlag) {
  setenv("SHARDGRAD_TF32", "yes", 1);
  EXPECT_EXIT(say(check_kernel_choices), ::testing::ExitedWithCode(2), "SHARDGRAD_TF32 is 'yes'; choose 0, 1, or");
}

}  // namespace
}  // namespace shardgrad::test
