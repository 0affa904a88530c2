#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include <shardgrad/kernels/alternatives.h>
#include <shardgrad/kernels/ops.h>
#include <shardgrad/train/cli/program.h>

namespace shardgrad::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// What nobody sees who only trains with it.
template <class T> void loses_nan(const Launch&, OutView y, View x) {
  for (int64_t i = 0; i < x.numel(); ++i) {
    T old = y.beta != 0 ? y.as<T>()[i] : 0, value = x.as<T>()[i];
    y.as<T>()[i] = old - (std::isnan(value) ? 0 : value);
  }
}
const Offer offers[] = {{"loses_nan", kernels::neg, DeviceKind::cpu, DType::f32, loses_nan<float>},
                        {"loses_nan", kernels::neg, DeviceKind::cpu, DType::f64, loses_nan<double>}};

TEST(CertifyCommand, EndsWithAnErrorWhereAKernelBreaksAPromise) {
  TableCopy built_in;
  ::testing::internal::CaptureStdout();
  int status = certify_command({.op = "neg", .use = {"neg=loses_nan"}});
  std::string said = ::testing::internal::GetCapturedStdout();
  built_in.restore();
  EXPECT_NE(status, 0);
  EXPECT_THAT(said, AllOf(HasSubstr("special values  FAILS: "), HasSubstr("\nnot certified: ")));
}

}  // namespace
}  // namespace shardgrad::cli
