// Every kernel of faulty.cu is reported with block, thread and line.

#include <gmock/gmock.h>

#include "tests/sim/simulated.h"

namespace shardgrad::test {
namespace {

using ::testing::HasSubstr;

class FaultyKernel : public ::testing::TestWithParam<Faulty> {};

TEST_P(FaultyKernel, IsReported) {
  const Faulty& faulty = GetParam();
  sim::Operands operands;
  Operand<float> x(4096, 1.0f), y(4096);
  y.values.assign(4096, 0.0f);
  const float* from = x.in(operands);
  float* to = y.out(operands);
  std::string fault = fault_of([&] { faulty.run(to, from); });
  std::string begin = std::string("simulator: ") + faulty.kernel + ", block (0, 0, 0), thread " + faulty.thread + ": ";
  EXPECT_THAT(fault, ::testing::StartsWith(begin));
  EXPECT_THAT(fault, HasSubstr(faulty.says));
  EXPECT_THAT(fault, ::testing::EndsWith(' ' + fault_line("faulty.cu", faulty.kernel)));
}
INSTANTIATE_TEST_SUITE_P(All, FaultyKernel, ::testing::ValuesIn(faulty_kernels()),
                         [](const auto& one) { return std::string(one.param.kernel); });

}  // namespace
}  // namespace shardgrad::test
