// Whole jobs whose ranks find each other by TCP.

#include <tests/dist/launch/job_cases.h>

#include <algorithm>

#include <shardgrad/dist/os/sockets.h>

namespace shardgrad::dist::testing {
namespace {

std::string tcp(int n) { return concat(program("dist_probe"), " --tcp ", n); }

int free_port() { return port_of(listen_on("localhost", 0)[0]); }

/// The output of these processes, each "RANK WORLD_SIZE" after more variables if need be, that meet on one port. All
/// but rank 0 come one after the other.
Ran meet(const std::vector<std::string>& who, int seconds = 20, const std::string& scenario = "place") {
  std::string command =
      concat("(MASTER_ADDR=127.0.0.1 SHARDGRAD_RENDEZVOUS_SECONDS=", seconds, " MASTER_PORT=", free_port(), "; ");
  command += "export MASTER_ADDR MASTER_PORT SHARDGRAD_RENDEZVOUS_SECONDS; ";
  for (const std::string& one : who) {
    size_t size = one.rfind(' ') + 1, rank = one.find_last_of(' ', size - 2) + 1;
    command += concat(one.substr(0, rank), "RANK=", one.substr(rank, size - 1 - rank), " WORLD_SIZE=", one.substr(size),
                      " ", program("dist_probe"), " ", scenario, " & jobs=\"$jobs $!\"; ");
    if (who.size() > 2) command += "sleep 0.3; ";
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

// Machines that are pretended on this one. Ranks are dealt out to them in turn.
std::string machines(int m, int n) { return concat("PROBE_TCP_MACHINES=", m, " ", tcp(n)); }

TEST(TcpJobOnSeveralMachines, RunsTheWholeSuite) {
  for (auto [m, n] : {std::pair(2, 4), {3, 5}, {4, 4}}) {
    Ran ran = run_program(machines(m, n) + " suite");
    EXPECT_EQ(ran.code, 0) << ran.output;
    EXPECT_NE(ran.output.find("suite over two_level"), std::string::npos) << ran.output;
  }
}

TEST(TcpJobOnSeveralMachines, RanksShareTheMemoryOfTheirMachine) {
  Ran ran = run_program(machines(2, 3) + " place");
  for (const char* place : {"rank 2 of 3 by tcp over two_level", "rank 1 is rank 1 of 2 on machine 0",
                            "rank 2 is rank 0 of 1 on machine 1"})
    EXPECT_NE(ran.output.find(place), std::string::npos) << place << ":\n" << ran.output;
  EXPECT_EQ(run_program("SHARDGRAD_GROUP=mpi " + machines(2, 2) + " place").code, 2) << "nobody started MPI";
}

// So that rows of hybrid lie within machines, and sums send no more than they must, whoever deals the ranks out.
TEST(TcpJobOnSeveralMachines, RanksAreNumberedMachineByMachine) {
  Ran ran = run_program(machines(2, 5) + " place");
  EXPECT_EQ(ran.code, 0) << ran.output;
  for (const char* place : {"rank 0 is rank 0 of 3 on machine 0", "rank 1 is rank 1 of 3 on machine 0",
                            "rank 2 is rank 2 of 3 on machine 0", "rank 3 is rank 0 of 2 on machine 1",
                            "rank 4 is rank 1 of 2 on machine 1",
                            "ranks are numbered machine by machine, and those of a machine in the order of their RANK"})
    EXPECT_NE(ran.output.find(place), std::string::npos) << place << ":\n" << ran.output;
  Ran as_they_are = run_program(machines(3, 3) + " place");
  EXPECT_EQ(as_they_are.output.find("numbered machine by machine"), std::string::npos) << as_they_are.output;
}

TEST(TcpJobOnSeveralMachines, EndInTimeWithTheFirstCauseLast) {
  for (const JobCase& expected : kJobCases)
    for (const char* name : {"good", "refuse", "leave-unfinished", "diverge", "leave"})
      if (expected.name == std::string(name)) check_job(machines(2, 3), expected);
  for (const char* name : {"kill", "exit"})  // of rank 1, alone on its machine, which alone could know the signal
    check_job(machines(3, 3), {name, 4, "on another machine died: killed, crashed, or left without a word"});
}

TEST(TcpJob, RanksThatDoNotComeAreNamedByThoseThatDid) {
  Ran ran = meet({"0 4", "2 4"}, 4);
  EXPECT_EQ(ran.code, 4) << ran.output;
  size_t first = ran.output.find("after 4 s, ranks 1 and 3 of 4 did not come to 127.0.0.1:");
  ASSERT_NE(first, std::string::npos) << ran.output;
  EXPECT_NE(ran.output.find("ranks 1 and 3 of 4", first + 20), std::string::npos) << "both say so: " << ran.output;
  EXPECT_LT(ran.seconds, 12);
}

TEST(TcpJob, ARank0ThatDoesNotAnswerIsNamed) {
  Ran ran = meet({"1 2"}, 1);
  EXPECT_EQ(ran.code, 4) << ran.output;
  EXPECT_NE(ran.output.find("rank 1 of 2: rank 0 did not answer at 127.0.0.1:"), std::string::npos) << ran.output;
  EXPECT_NE(ran.output.find("Connection refused"), std::string::npos) << ran.output;
}

TEST(TcpJob, ProcessesThatContradictRank0AreTurnedAwayAndEndNothing) {
  Ran twice = meet({"0 3", "1 3", "1 3"}, 2);
  EXPECT_NE(twice.output.find("two processes have RANK=1"), std::string::npos) << twice.output;
  size_t limit = twice.output.find("after 2 s, rank 2 of 3 did not come to 127.0.0.1:");
  ASSERT_NE(limit, std::string::npos) << twice.output;
  EXPECT_NE(twice.output.find("; turned away: 127.0.0.1:", limit), std::string::npos) << twice.output;

  Ran sizes = meet({"0 2", "1 3", "1 2"});
  EXPECT_NE(sizes.output.find("rank 0 was started with WORLD_SIZE=2, rank 1 on "), std::string::npos) << sizes.output;
  EXPECT_NE(sizes.output.find("rank 1 of 2 by tcp"), std::string::npos) << "the right one still came: " << sizes.output;
  EXPECT_EQ(sizes.code, 2) << "the wrong one's own: " << sizes.output;
}

TEST(TcpJob, RanksWithTheTokenMeetAndOthersAreTurnedAway) {
  const std::string token = "SHARDGRAD_JOB_TOKEN=0123456789abcdef ", other = "SHARDGRAD_JOB_TOKEN=0123456789abcdee ";
  Ran ran = meet({token + "0 2", other + "1 2", "1 2", "sleep 3; " + token + "1 2"});  // the others have come by then
  EXPECT_NE(ran.output.find("rank 1 of 2 by tcp"), std::string::npos) << ran.output;
  EXPECT_NE(ran.output.find("shardgrad: rank 0 turns away 127.0.0.1:"), std::string::npos) << ran.output;
  EXPECT_NE(ran.output.find("was not given this process's SHARDGRAD_JOB_TOKEN"), std::string::npos) << ran.output;
  EXPECT_EQ(ran.code, 2) << ran.output;
  EXPECT_NE(meet({"SHARDGRAD_JOB_TOKEN=short 0 2"}).output.find("SHARDGRAD_JOB_TOKEN has 5 characters"),
            std::string::npos);
}

TEST(TcpJob, ARankThatListensBeyondItsMachineWithoutATokenSaysSo) {
  auto warned = [](const std::string& variables) {
    Ran ran = run_program(concat("RANK=0 WORLD_SIZE=2 MASTER_PORT=", free_port(), " ", variables,
                                 " timeout -s INT 0.5 ", program("dist_probe"), " place"));
    return ran.output.find("give every rank the same SHARDGRAD_JOB_TOKEN") != std::string::npos;
  };
  EXPECT_TRUE(warned("MASTER_ADDR=198.51.100.77"));
  EXPECT_FALSE(warned("MASTER_ADDR=198.51.100.77 SHARDGRAD_JOB_TOKEN=0123456789abcdef"));
  EXPECT_FALSE(warned("MASTER_ADDR=localhost"));
}

// The program has no handler of its own around run_job: an exception that left it would end it by a signal.
TEST(TcpJob, ARankThatLeavesRightAfterTheMeetingIsACauseLikeAnyOther) {
  Ran ran = meet({"0 2", "1 2"}, 20, "meet-and-leave");
  EXPECT_EQ(ran.code, 4) << ran.output;
  EXPECT_NE(ran.output.find("shardgrad: rank 1 has left the job"), std::string::npos) << ran.output;
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

TEST(TcpJob, CtrlCEndsTheWaitForRank0) {
  Ran ran = run_program(concat("RANK=1 WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT=", free_port(),
                               " timeout -s INT 3 ", program("dist_probe"), " place"));
  EXPECT_LT(ran.seconds, 10);
  EXPECT_NE(ran.output.find("interrupted by a signal while waiting for the other ranks"), std::string::npos)
      << ran.output;
}

}  // namespace
}  // namespace shardgrad::dist::testing
