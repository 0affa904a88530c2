// What the host pays for a model of many parameters.

#include <gtest/gtest.h>

#include <ctime>

#include "tests/fsdp/training.h"

namespace shardgrad::fsdp::testing {
namespace {

struct ManyParameters : nn::Module {
  explicit ManyParameters(int count) {
    for (int i = 0; i < count; ++i) param("p" + std::to_string(i), {1}, nn::init::zeros());
  }
  Tensor forward(const Tensor& x) { return x; }
};

// The fastest of some calls, in seconds of this thread.
double seconds_of_zero_grad(int count) {
  double best = 1e9;
  dist::run_ranks(1, [&](dist::ProcessGroup& group) {
    auto model = nn::make<ManyParameters>(count);
    fully_shard(*model, group);
    optim::SGD optimizer(model->named_parameters(), {.lr = 0.1});
    for (int i = 0; i < 5; ++i) {
      timespec begin, end;
      clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
      optimizer.zero_grad();
      clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
      best = std::min(best, double(end.tv_sec - begin.tv_sec) + 1e-9 * double(end.tv_nsec - begin.tv_nsec));
    }
  });
  return best;
}

// Sixteen times the parameters of a unit: sixteen times the cost, not 256 times.
TEST(Cost, ZeroGradPaysTheSameForEveryParameterOfAUnit) {
  EXPECT_LT(seconds_of_zero_grad(4096), 64 * seconds_of_zero_grad(256));
}

}  // namespace
}  // namespace shardgrad::fsdp::testing
