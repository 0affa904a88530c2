// Runs the tests on every rank. Rank 0 prints; the others only what fails. The job fails when any rank's tests do.

#include <shardgrad/dist/launch/job.h>
#include <tests/mpi/world.h>

namespace shardgrad::testing {

static dist::ProcessGroup* group = nullptr;

dist::ProcessGroup& world() { return *group; }

// gtest's printer for ranks other than 0.
class FailuresOnly : public ::testing::EmptyTestEventListener {
  void OnTestPartResult(const ::testing::TestPartResult& result) override {
    if (!result.failed()) return;
    std::string text = concat("rank ", group->rank(), ": ", result.file_name() ? result.file_name() : "", ":",
                              result.line_number(), ": ", result.summary(), "\n");
    std::fputs(text.c_str(), stderr);
  }
};

static int run_tests(dist::Job& job) {
  group = &job.world();
  if (group->rank() != 0) {
    auto& listeners = ::testing::UnitTest::GetInstance()->listeners();
    delete listeners.Release(listeners.default_result_printer());
    listeners.Append(new FailuresOnly);
  }
  int failed = RUN_ALL_TESTS();
  Tensor sum = from_vector<int32_t>({failed}, {1});
  group->all_reduce(sum).host_wait();
  return sum.item() > 0 ? 1 : 0;
}

}  // namespace shardgrad::testing

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return shardgrad::dist::run_job(shardgrad::testing::run_tests);
}
