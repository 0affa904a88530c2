// Every kernel of faulty.cu and faulty_words.cu is reported with block, thread and line, and none of tricky.cu is.

#include <gmock/gmock.h>

#include <bit>

#include <shardgrad/core/poison.h>

#include "tests/sim/simulated.h"

namespace shardgrad::test {
namespace {

using ::testing::HasSubstr;

void expect_report(const Faulty& faulty, const std::string& source) {
  sim::Operands operands;
  Operand<float> x(4096, 1.0f), y(4096);
  y.values.assign(4096, 0.0f);
  const float* from = x.in(operands);
  float* to = y.out(operands);
  std::string fault = fault_of([&] { faulty.run(to, from); });
  std::string begin = concat("simulator: ", faulty.kernel, ", block ", faulty.block, ", thread ", faulty.thread, ": ");
  EXPECT_THAT(fault, ::testing::StartsWith(begin));
  EXPECT_THAT(fault, HasSubstr(faulty.says));
  EXPECT_THAT(fault + ',', HasSubstr(", at " + fault_line(source, faulty.kernel) + ','));
}
const auto name_of = [](const auto& one) { return std::string(one.param.kernel); };

class FaultyKernel : public ::testing::TestWithParam<Faulty> {};
TEST_P(FaultyKernel, IsReported) {
#ifdef __clang__
  if (GetParam().kernel == std::string("an_odd_row_of_vectors_kernel"))
    GTEST_SKIP() << "clang checks no alignment here";
#endif
  expect_report(GetParam(), "faulty.cu");
}
INSTANTIATE_TEST_SUITE_P(All, FaultyKernel, ::testing::ValuesIn(faulty_kernels()), name_of);

class FaultyWord : public ::testing::TestWithParam<Faulty> {};
TEST_P(FaultyWord, IsReported) { expect_report(GetParam(), "faulty_words.cu"); }
INSTANTIATE_TEST_SUITE_P(All, FaultyWord, ::testing::ValuesIn(faulty_words()), name_of);

TEST(FaultyKernels, AreAsManyAsPromised) {
  EXPECT_GE(faulty_kernels().size() + faulty_words().size(), 24u);
  EXPECT_GE(tricky_kernels().size(), 20u);
}

class TrickyKernel : public ::testing::TestWithParam<Tricky> {};

TEST_P(TrickyKernel, IsLeftAlone) {
  sim::Operands operands;
  Operand<float> x(4096, 1.0f), y(4096);
  y.values.assign(4096, 0.0f);
  const float* from = x.in(operands);
  float* to = y.out(operands);
  EXPECT_EQ(fault_of([&] { GetParam().run(to, from); }), "no fault");
  EXPECT_EQ(y.values[5], GetParam().fifth);
}
INSTANTIATE_TEST_SUITE_P(All, TrickyKernel, ::testing::ValuesIn(tricky_kernels()),
                         [](const auto& one) { return std::string(one.param.name); });

TEST(BitsOfAnUnsetLocal, MayStandInIntegers) {
  sim::Operands operands;
  Operand<int> x(32), y(32);
  x.values.assign(32, -16843010);
  EXPECT_EQ(fault_of([&] { run_copied(y.out(operands), x.in(operands)); }), "no fault");
  EXPECT_EQ(y.values, x.values);
}

TEST(BitsOfAnUnsetLocal, AreThoseOfTheKernelsCompiler) {
  struct Case {
    uint32_t bits;
    bool gcc, clang;
  };
  for (auto [bits, gcc, clang] :
       {Case{0xfefefefe, true, false}, Case{0xffffffff, false, true}, Case{0x7fffffff, false, false}})
    for (bool by_clang : {false, true}) {
      sim::Operands operands;
      Operand<float> x(32), y(32);
      x.values[9] = std::bit_cast<float>(bits);
      std::string fault = fault_of([&] { run_copied(y.out(operands), x.in(operands), by_clang); });
      bool reported = fault.find("at byte 36 what a local variable holds that nobody has set") != std::string::npos;
      EXPECT_EQ(reported, by_clang ? clang : gcc) << std::hex << bits << ", " << by_clang << ": " << fault;
    }
}

class BoundedKernel : public ::testing::Test {
 protected:
  sim::Operands operands;
  Operand<float> y{4096};
};

TEST_F(BoundedKernel, TakesNoMoreThreadsThanItSays) {
#if !defined(__x86_64__) || defined(__clang__)
  GTEST_SKIP() << "only gcc on x86-64 keeps __launch_bounds__";
#endif
  y.out(operands);
  for (int bound : {96, 256}) {
    run_bounded(y.values.data(), bound, bound);
    try {
      run_bounded(y.values.data(), bound, bound + 32);
      FAIL() << "no fault";
    } catch (const Error& error) {
      EXPECT_EQ(error.what(), concat("bounded_kernel<", bound, ">: a block of ", bound + 32,
                                     " x 1 x 1 threads; the kernel's __launch_bounds__ allow ", bound));
    }
  }
}

class UnwrittenOutput : public ::testing::TestWithParam<DType> {
 protected:
  std::string doubled(int64_t count, int written, bool in_part = false) {
    poison_bytes(y.data(), y.size());
    DType dtype = GetParam();
    OutView out{y.data(), Shape{count}, dtype, 0, true};
    return fault_of([&] { run_doubled(out, View{x.data(), Shape{count}, dtype, true}, written, in_part); });
  }
  std::vector<char> x = std::vector<char>(512), y = std::vector<char>(512);
};

TEST_P(UnwrittenOutput, IsReportedWithItsFirstElement) {
  for (int count : {8, 9}) {
    EXPECT_EQ(doubled(count, count), "no fault");
    EXPECT_THAT(doubled(count, count - 1), HasSubstr(concat("element ", count - 1, " of an output of ", count)));
  }
  std::string fault = doubled(64, 4);
  EXPECT_THAT(fault, ::testing::StartsWith("simulator: doubled, whose last kernel is doubled_kernel"));
  EXPECT_THAT(fault, ::testing::EndsWith(", leaves element 4 of an output of 64 unwritten"));
  EXPECT_EQ(doubled(64, 4, true), "no fault");
  EXPECT_EQ(doubled(64, 0),
            "simulator: doubled, which launches no kernel, leaves element 0 of an output of 64 unwritten");
}
INSTANTIATE_TEST_SUITE_P(Of, UnwrittenOutput, ::testing::Values(DType::f32, DType::f64, DType::bf16, DType::i32),
                         [](const auto& one) { return std::string(shardgrad::name_of(one.param)); });

}  // namespace
}  // namespace shardgrad::test
