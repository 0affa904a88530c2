// Kernels that once ran on one thread however large they were ask for several.

#include <thread>

#include <built_with.h>
#include <tests/kernels/kernel_case.h>
#include <tests/threads_asked.h>

namespace shardgrad::test {
namespace {

// How many threads a kernel that may have 4 asks for.
template <class... Operands, class... Args>
unsigned threads_of(Slot<Operands...>& slot, DType dtype, const Args&... args) {
  forget_threads();
  kernel_of(slot, dtype)(4, args...);
  return most_threads_asked;
}

class CpuThreads : public ::testing::Test {
 protected:
  void SetUp() override {
    Buffer x({1 << 18}, DType::f32), y({1 << 18}, DType::f32);
    if (threads_of(kernels::neg, DType::f32, y.out(), x.in()) > 1) return;
    if (kBuiltWithGnuOpenMP && std::thread::hardware_concurrency() > 1)
      FAIL() << "neg may have 4 threads and asks for one, or nothing is seen of what it asks for";
    GTEST_SKIP() << "no OpenMP, or not GNU's, or one core";
  }
};

TEST_F(CpuThreads, ABroadcastOverManySmallGridsIsDivided) {
  Buffer x({4096, 1, 64}, DType::f32), bias({1, 2, 64}, DType::f32), y({4096, 2, 64}, DType::f32);
  EXPECT_EQ(threads_of(kernels::add, DType::f32, y.out(), x.in(), bias.in()), 4u);
}

TEST_F(CpuThreads, ACatAlongTheFirstDimensionIsDivided) {
  Buffer whole({2, 1 << 17}, DType::f32), part({1, 1 << 17}, DType::f32);
  EXPECT_EQ(threads_of(kernels::paste, DType::f32, whole.out(), part.in(), 0, int64_t(1)), 4u);
  EXPECT_EQ(threads_of(kernels::narrow, DType::f32, part.out(), whole.in(), 0, int64_t(1)), 4u);
}

}  // namespace
}  // namespace shardgrad::test
