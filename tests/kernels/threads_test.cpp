// Kernels that once ran on one thread however large they were ask for several.

#include <dlfcn.h>

#include <tests/kernels/kernel_case.h>

// What the compiler makes of a parallel loop calls this (GNU's OpenMP); the program's definition comes before the
// library's, and passes the call on.
static unsigned most_threads = 0;
extern "C" void GOMP_parallel(void (*body)(void*), void* data, unsigned threads, unsigned flags) {
  static auto next =
      reinterpret_cast<void (*)(void (*)(void*), void*, unsigned, unsigned)>(dlsym(RTLD_NEXT, "GOMP_parallel"));
  most_threads = std::max(most_threads, threads);
  next(body, data, threads, flags);
}

namespace shardgrad::test {
namespace {

// How many threads a kernel that may have 4 asks for.
template <class... Operands, class... Args>
unsigned threads_of(Slot<Operands...>& slot, DType dtype, const Args&... args) {
  most_threads = 1;
  kernel_of(slot, dtype)(4, args...);
  return most_threads;
}

class CpuThreads : public ::testing::Test {
 protected:
  void SetUp() override {
    Buffer x({1 << 18}, DType::f32), y({1 << 18}, DType::f32);
    if (threads_of(kernels::neg, DType::f32, y.out(), x.in()) == 1) GTEST_SKIP() << "no OpenMP, or not GNU's";
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
