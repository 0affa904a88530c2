// Whole jobs whose ranks find each other by TCP.

#include <tests/dist/job_cases.h>

#include <algorithm>

#include <shardgrad/dist/sockets.h>

namespace shardgrad::dist::testing {
namespace {

std::string tcp(int n) { return concat(program("dist_probe"), " --tcp ", n); }

int free_port() { return port_of(listen_on(0)); }

/// The output of these processes, each "RANK WORLD_SIZE" with perhaps more variables, that meet on one port.
Ran meet(const std::vector<std::string>& who, int seconds = 20) {
  std::string command =
      concat("(MASTER_ADDR=127.0.0.1 SHARDGRAD_RENDEZVOUS_SECONDS=", seconds, " MASTER_PORT=", free_port(), "; ");
  command += "export MASTER_ADDR MASTER_PORT SHARDGRAD_RENDEZVOUS_SECONDS; ";
  for (const std::string& one : who) {
    size_t space = one.find(' ');
    command += concat("RANK=", one.substr(0, space), " WORLD_SIZE=", one.substr(space + 1), " ", program("dist_probe"),
                      " place & jobs=\"$jobs $!\"; ");
  }
  return run_program(command + "code=0; for job in $jobs; do wait $job || code=$?; done; exit $code)");
}

class TcpJobs : public ::testing::TestWithParam<JobCase> {};
TEST_P(TcpJobs, EndInTimeWithTheFirstCauseLast) { check_job(tcp(3), GetParam()); }
INSTANTIATE_TEST_SUITE_P(I45, TcpJobs, ::testing::ValuesIn(kJobCases), [](const auto& info) {
  std::string name = info.param.name;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

TEST(TcpJob, AnyNumberOfRanksFindsEachOther) {
  for (int n : {1, 2, 6}) {
    Ran ran = run_program(concat(tcp(n), " suite"));
    EXPECT_EQ(ran.code, 0) << n << " ranks: " << ran.output;
  }
}

TEST(TcpJob, RanksOfOneMachineShareItsMemory) {
  Ran ran = run_program(tcp(2) + " place");
  EXPECT_NE(ran.output.find("rank 1 of 2 by tcp over shared_memory"), std::string::npos) << ran.output;
}

TEST(TcpJob, RanksThatDoNotComeAreNamedByThoseThatDid) {
  Ran ran = meet({"0 4", "2 4"}, 4);
  EXPECT_EQ(ran.code, 4) << ran.output;
  size_t first = ran.output.find("after 4 s, ranks 1, 3 of 4 did not come to 127.0.0.1:");
  ASSERT_NE(first, std::string::npos) << ran.output;
  EXPECT_NE(ran.output.find("ranks 1, 3 of 4", first + 20), std::string::npos) << "both say so: " << ran.output;
  EXPECT_LT(ran.seconds, 12);
}

TEST(TcpJob, ARank0ThatDoesNotAnswerIsNamed) {
  Ran ran = meet({"1 2"}, 1);
  EXPECT_EQ(ran.code, 4) << ran.output;
  EXPECT_NE(ran.output.find("rank 1 of 2: rank 0 did not answer at 127.0.0.1:"), std::string::npos) << ran.output;
  EXPECT_NE(ran.output.find("Connection refused"), std::string::npos) << ran.output;
}

TEST(TcpJob, ProcessesThatContradictEachOtherAreRefused) {
  Ran twice = meet({"0 3", "1 3", "1 3"});
  EXPECT_NE(twice.output.find("two processes have RANK=1"), std::string::npos) << twice.output;
  Ran sizes = meet({"0 2", "1 3"});
  EXPECT_NE(sizes.output.find("rank 0 was started with WORLD_SIZE=2, rank 1 on "), std::string::npos) << sizes.output;
  for (const Ran& ran : {twice, sizes}) {
    EXPECT_EQ(ran.code, 2) << ran.output;
    EXPECT_LT(ran.seconds, 6) << "at once: " << ran.output;
  }
}

TEST(TcpJob, VariablesThatAreMissingOrNoNumbersAreNamed) {
  auto refusal = [](const std::string& variables) {
    Ran ran = run_program(variables + " " + program("dist_probe") + " place");
    EXPECT_EQ(ran.code, 2) << ran.output;
    return ran.output;
  };
  EXPECT_NE(refusal("RANK=1").find("RANK is set, but not WORLD_SIZE, MASTER_ADDR, MASTER_PORT"), std::string::npos);
  std::string all = "MASTER_ADDR=localhost MASTER_PORT=29500 ";
  EXPECT_NE(refusal(all + "RANK=two WORLD_SIZE=4").find("RANK is 'two'"), std::string::npos);
  EXPECT_NE(refusal(all + "RANK=4 WORLD_SIZE=4").find("RANK is '4'; it must be a number from 0 to 3"),
            std::string::npos);
}

TEST(TcpJob, StrangersOnThePortDoNotDisturb) {
  int port = free_port();
  std::string common = concat("WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT=", port, " ");
  std::string stranger = concat("bash -c 'exec 3<>/dev/tcp/localhost/", port, "; echo GET / HTTP/1.0 >&3; sleep 1'");
  Ran ran = run_program(concat("(", common, "RANK=0 ", program("dist_probe"), " place & sleep 0.3; ", stranger, " & ",
                               "sleep 0.3; ", common, "RANK=1 ", program("dist_probe"), " place; wait)"));
  EXPECT_NE(ran.output.find("rank 1 of 2 by tcp"), std::string::npos) << ran.output;
}

TEST(TcpJob, CtrlCEndsTheWaitForRanks) {
  Ran ran = run_program(concat("RANK=0 WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT=", free_port(),
                               " timeout -s INT 3 ", program("dist_probe"), " place"));
  EXPECT_LT(ran.seconds, 10);
  EXPECT_NE(ran.output.find("interrupted by a signal while waiting for the other ranks"), std::string::npos)
      << ran.output;
}

}  // namespace
}  // namespace shardgrad::dist::testing
