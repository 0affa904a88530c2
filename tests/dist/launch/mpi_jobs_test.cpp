// Whole jobs whose ranks are started by mpirun, bare or by launch.

#include <tests/dist/launch/job_cases.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include <shardgrad/core/context.h>
#include <shardgrad/dist/launch/launch.h>

namespace shardgrad::dist::testing {
namespace {

std::string launched(int n) { return concat(program("dist_probe"), " --launch ", n); }

// Debian 13's Open MPI warns of machines with IPv4 and IPv6 where it may use their network.
std::string bare(int n) {
  return concat(
      "OMPI_MCA_btl_tcp_if_include=lo OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun --oversubscribe "
      "--bind-to none -n ",
      n, " ", program("dist_probe"));
}

class MpiJobs : public ::testing::TestWithParam<JobCase> {};
TEST_P(MpiJobs, EndInTimeWithTheFirstCauseLast) { check_job(launched(3), GetParam()); }
INSTANTIATE_TEST_SUITE_P(I45, MpiJobs, ::testing::ValuesIn(kJobCases), [](const auto& info) {
  std::string name = info.param.name;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

// mpirun's own exit code wins where it kills the job itself, and its own words may follow ours.
TEST(BareMpirun, OurLastLineNamesTheFirstCause) {
  for (const char* name : {"throw", "kill", "diverge"}) {
    std::string token = concat("token-bare-", name, getpid());
    Ran ran = run_program(concat(bare(3), " ", name, " ", token));
    EXPECT_NE(ran.code, 0);
    EXPECT_LT(ran.seconds, 12) << ran.output;
    EXPECT_TRUE(all_gone(token)) << ran.output;
    size_t ours = ran.output.rfind("shardgrad: ");
    ASSERT_NE(ours, std::string::npos) << ran.output;
    EXPECT_NE(ran.output.substr(ours, ran.output.find('\n', ours) - ours).find("rank 1"), std::string::npos)
        << ran.output;
    EXPECT_EQ(ran.output.find("shardgrad: "), ours) << "said once: " << ran.output;
  }
  EXPECT_EQ(run_program(bare(3) + " good").code, 0) << "a job may follow at once";
}

TEST(BareMpirun, AFaultWhileTheRanksMakeTheirGroupHasItsOwnCode) {
  Ran ran = run_program("PROBE_DEVICE_OF_RANK_1=cuda " + bare(3) + " good");
  EXPECT_EQ(ran.code, 3) << ran.output;
  EXPECT_EQ(ran.output.find("MPI_Cancel"), std::string::npos) << ran.output;
}

TEST(BareMpirun, ASecondJobInItsProcessesIsRefused) {
  Ran ran = run_program("PROBE_SECOND_JOB=/dev/null " + bare(2) + " good");
  EXPECT_NE(ran.code, 0);
  EXPECT_NE(ran.output.find("MPI has been ended in this process, by a job before this one"), std::string::npos)
      << ran.output;
}

TEST(MpiJob, WhatTheProgramHasWrittenToItsFilesIsThereWhenTheJobFails) {
  std::string path = ::testing::TempDir() + concat("losses-", getpid());
  EXPECT_EQ(run_program(concat("PROBE_FILE='", path, "' ", launched(2), " write-and-fail")).code, 2);
  std::ifstream file(path);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), "0.25\n");
  std::filesystem::remove(path);
}

TEST(MpiJob, AThreadThatWasThereBeforeTakesNoSignalFromIt) {
  Ran ran = ask_to_stop("PROBE_THREAD=1 " + launched(2), "INT");
  EXPECT_EQ(ran.code, 75) << ran.output;
}

// What only one rank lacks, before the ranks have met.
TEST(MpiJob, AFaultOfOneRankBeforeTheJobIsSaidByThatRank) {
  Ran ran = run_program(concat(bare(1), " good : -n 1 env SHARDGRAD_JOB_FD=9 ", program("dist_probe"), " good"));
  EXPECT_EQ(ran.code, 2) << ran.output;
  EXPECT_NE(ran.output.find("shardgrad: rank 1: SHARDGRAD_JOB_FD is set but SHARDGRAD_WORLD_SIZE is not"),
            std::string::npos)
      << ran.output;
  EXPECT_LT(ran.seconds, 15);
}

TEST(BareMpirun, RanksEndWhenItIsKilled) {
  std::string token = concat("token-mpirun-", getpid());
  EXPECT_NE(run_program(concat(bare(3), " kill-launcher ", token)).code, 0);
  EXPECT_TRUE(all_gone(token, 11));  // Open MPI 5 itself takes 3 s
}

TEST(BareMpirun, LeavesNoNameWhenItIsKilledWhileMpiEnds) {
  std::string token = concat("token-at-the-end-", getpid());
  std::string written = ::testing::TempDir() + token;
  Ran ran = run_program(concat("PROBE_NAMES='", written, "' ", bare(3), " kill-launcher-at-the-end ", token));
  EXPECT_EQ(ran.code, 128 + SIGKILL) << ran.output;
  EXPECT_TRUE(all_gone(token, 11));
  std::ifstream lines(written);
  int names = 0;
  for (std::string name; std::getline(lines, name); ++names) EXPECT_FALSE(std::filesystem::exists(name)) << name;
  EXPECT_EQ(names, 3) << ran.output;
  std::filesystem::remove(written);
}

TEST(MpiJob, ProcessesOfSrunWithoutMpiAreRefusedWithTheLineToType) {
  Ran ran = run_program("SLURM_STEP_NUM_TASKS=4 SLURM_PROCID=0 " + program("dist_probe") + " place");
  EXPECT_EQ(ran.code, 2) << ran.output;
  EXPECT_NE(ran.last_line().find("start them with: srun --mpi=pmix …"), std::string::npos) << ran.output;
}

TEST(MpiJob, TheGroupIsOfTheKindThatTheEnvironmentAsksFor) {
  for (std::string kind : {"shared_memory", "mpi"}) {
    Ran ran = run_program(concat("SHARDGRAD_GROUP=", kind, " ", bare(2), " place"));
    EXPECT_NE(ran.output.find("rank 1 of 2 by mpi over " + kind), std::string::npos) << ran.output;
  }
}

TEST(MpiJob, ARankThatIsKilledBeforeOrAfterTheJobIsNamed) {
  for (const JobCase& expected : kLaunchCases) check_job(launched(3), expected);
}

TEST(MpiJob, ARankThatStopsBeforeItBeginsIsNamedAndEndsTheJob) {
  check_job(
      "SHARDGRAD_RENDEZVOUS_SECONDS=2 " + launched(3),
      {"stop-at-start", 4, ") has not begun and has done nothing for 2 s (stopped by a signal); the other ranks"});
}

TEST(MpiJob, WhatMpirunLacksIsSaidWithTheRemedy) {
  Ran folder = run_program("TMPDIR=/proc " + launched(2) + " good");
  EXPECT_NE(folder.last_line().find("it must be able to write to '/proc' (TMPDIR)"), std::string::npos)
      << folder.output;
  EXPECT_NE(folder.last_line().find("launch --by local"), std::string::npos) << folder.output;
  if (run_program("unshare --net true").code != 0) GTEST_SKIP() << "needs root, for a network without loopback";
  Ran network = run_program("unshare --net " + launched(2) + " good");
  EXPECT_NE(network.last_line().find("it needs the loopback interface"), std::string::npos) << network.output;
  EXPECT_NE(network.last_line().find("launch --by local"), std::string::npos) << network.output;
}

TEST(MpiJob, WithoutSharedMemoryIsTheSame) {
  for (const char* name : {"suite", "kill", "diverge", "leave", "leave-unfinished"}) {
    const JobCase& expected = *std::ranges::find_if(kJobCases, [&](auto& c) { return c.name == std::string(name); });
    check_job("SHARDGRAD_GROUP=mpi " + launched(3), expected);
  }
}

TEST(MpiJob, LeavesNoNameInDevShmThatCouldStay) {
  Ran ran = run_program(bare(2) + " names");
  EXPECT_EQ(ran.output, "names left: 0\nnames left: 0\n");
}

TEST(MpiJob, AHeapThatDoesNotFitIsOneLineAndMpi) {
  Ran ran = run_program(bare(2) + " tiny-heap");
  EXPECT_EQ(ran.code, 0);
  // mpirun passes the two outputs on in any order.
  EXPECT_NE(ran.output.find("shardgrad: MPI connects the ranks; those of a machine cannot share memory: "),
            std::string::npos)
      << ran.output;
  EXPECT_NE(ran.output.find("rank 1 of 2 by mpi over mpi"), std::string::npos) << ran.output;
}

TEST(MpiJob, ARequestToEndThatComesBeforeTheRanksHaveBegunIsNotLost) { expect_early_requests_are_kept(launched(2)); }

TEST(MpiJob, PassesSignalsOnAsARequestToSaveAndEnd) {
  std::signal(SIGHUP, SIG_DFL);  // which a job takes from its parents where it is ignored, as under nohup
  for (const char* signal : {"INT", "TERM", "HUP"}) {
    Ran ran = ask_to_stop(launched(2), signal);
    EXPECT_EQ(ran.code, 75) << signal << ": " << ran.output;
  }
}

// Machines that are pretended on this one: their control pages are connected by TCP (dist/watch/page_link.h).
class JobOnSeveralMachines : public ::testing::Test {
 protected:
  void SetUp() override {
    if (run_program("unshare --uts true").code != 0) GTEST_SKIP() << "needs root, to pretend several machines";
  }
  static std::string machines(int m, int n) { return concat("PROBE_MACHINES=", m, " ", launched(n)); }
};

TEST_F(JobOnSeveralMachines, FindTheirRanksWithoutHelp) {
  Ran ran = run_program(machines(2, 4) + " place");
  EXPECT_EQ(ran.code, 0);
  EXPECT_NE(ran.output.find("rank 3 is rank 1 of 2 on machine 1"), std::string::npos) << ran.output;
  EXPECT_NE(ran.output.find("rank 0 of 4 by mpi over two_level"), std::string::npos) << ran.output;
  EXPECT_EQ(ran.output.find("cannot watch over each other"), std::string::npos) << ran.output;
}

// By SHARDGRAD_MACHINE, which needs no root; ranks are dealt out in turn, as mpirun --map-by node does.
std::string dealt_in_turn(int n, const std::string& arguments) {
  std::string command = bare(1).substr(0, bare(1).find(" -n "));
  for (int rank = 0; rank < n; ++rank)
    command += concat(rank == 0 ? "" : " :", " -n 1 -x SHARDGRAD_MACHINE=", rank % 2, " ", program("dist_probe"), " ",
                      arguments);
  return command;
}

TEST(JobByTwoLevels, RunsTheWholeSuite) {
  Ran ran = run_program(dealt_in_turn(4, "suite"));
  EXPECT_EQ(ran.code, 0) << ran.output;
}

TEST(JobByTwoLevels, RanksAreNumberedMachineByMachine) {
  Ran ran = run_program(dealt_in_turn(5, "place"));
  EXPECT_EQ(ran.code, 0) << ran.output;
  for (const char* place : {"rank 0 of 5 by mpi over two_level", "rank 2 is rank 2 of 3 on machine 0",
                            "rank 3 is rank 0 of 2 on machine 1"})
    EXPECT_NE(ran.output.find(place), std::string::npos) << place << ":\n" << ran.output;
  EXPECT_NE(ran.output.find("sums over the ranks send 2 times the bytes between machines"), std::string::npos)
      << ran.output;
}

TEST(JobByTwoLevels, OnOneMachineIsSharedMemory) {
  Ran ran = run_program("SHARDGRAD_GROUP=two_level " + bare(2) + " place");
  EXPECT_NE(ran.output.find("rank 1 of 2 by mpi over shared_memory"), std::string::npos) << ran.output;
}

TEST(JobByTwoLevels, WhereAMachinesRanksCannotShareMemoryMpiConnectsAll) {
  Ran ran = run_program(dealt_in_turn(4, "tiny-heap"));
  EXPECT_EQ(ran.code, 0) << ran.output;
  EXPECT_NE(ran.output.find("MPI connects the ranks; those of a machine cannot share memory: "), std::string::npos)
      << ran.output;
  EXPECT_NE(ran.output.find("rank 3 of 4 by mpi over mpi"), std::string::npos) << ran.output;
  Ran insists = run_program("SHARDGRAD_GROUP=two_level " + dealt_in_turn(4, "tiny-heap"));
  EXPECT_NE(insists.output.find("the ranks of a machine cannot share memory: "), std::string::npos) << insists.output;
  EXPECT_EQ(insists.output.find("over mpi"), std::string::npos) << insists.output;
}

TEST_F(JobOnSeveralMachines, AreToldWhyTheyCannotShareMemory) {
  Ran ran = run_program("SHARDGRAD_GROUP=shared_memory " + machines(2, 2) + " place");
  EXPECT_EQ(ran.code, 2);
  EXPECT_NE(ran.last_line().find("the ranks cannot share memory: they are on several machines, which SHARDGRAD_GROUP"),
            std::string::npos)
      << ran.output;
}

TEST_F(JobOnSeveralMachines, EndInTimeWithTheFirstCauseLast) {
  for (const JobCase& expected : kJobCases)
    for (const char* name : {"good", "throw", "kill", "diverge"})
      if (expected.name == std::string(name)) {
        check_job("SHARDGRAD_GROUP=mpi " + machines(3, 3), expected);
        check_job(machines(2, 3), expected);
      }
}

TEST(Launch, GivesRanksTheThreadsThatTheEnvironmentAsksFor) {
  auto has = [](const std::vector<std::string>& command, const std::string& word) {
    return std::ranges::find(command, word) != command.end();
  };
  const char* before = std::getenv("OMP_NUM_THREADS");
  std::string kept = before ? before : "";
  setenv("OMP_NUM_THREADS", "7", 1);
  EXPECT_TRUE(has(mpirun_command(2, {"prog"}), "OMP_NUM_THREADS=7"));
  EXPECT_TRUE(has(mpirun_command(2, {"prog"}, {.threads = 3}), "OMP_NUM_THREADS=3"));
  before ? setenv("OMP_NUM_THREADS", kept.c_str(), 1) : unsetenv("OMP_NUM_THREADS");
}

// mpirun does not say so.
TEST(Launch, OutputThatReachesNobodyIsAFailure) {
  Ran ran = run_program(concat("{ ", launched(2), " good > /dev/full; }"));
  EXPECT_EQ(ran.code, 2) << ran.output;
  EXPECT_TRUE(ran.last_line().starts_with("shardgrad: standard output could not be written")) << ran.output;
  Ran failed = run_program(concat("{ ", launched(3), " throw > /dev/full; }"));
  EXPECT_EQ(failed.code, 4) << failed.output;
  EXPECT_TRUE(failed.last_line().starts_with("shardgrad: rank 1 failed: ")) << "the cause is last: " << failed.output;
}

TEST(Launch, PrintsTheLineThatStartsTheRanks) {
  std::vector<std::string> command = mpirun_command(64, {"prog", "train"}, {.by = "mpi", .threads = 3});
  auto has = [&](const std::string& word) { return std::ranges::find(command, word) != command.end(); };
  EXPECT_EQ(command[0], "mpirun");
  EXPECT_EQ(command[2], "64");
  EXPECT_EQ(has("--allow-run-as-root"), geteuid() == 0);
  EXPECT_TRUE(has("--oversubscribe") && has("--bind-to") && has("none") && has("OMP_NUM_THREADS=3"));
  EXPECT_EQ(command.back(), "train");
  for (int n : {1, 2}) {
    command = mpirun_command(n, {"prog"}, {.by = "mpi"});
    EXPECT_TRUE(has(concat("OMP_NUM_THREADS=", std::max(1, usable_cores() / n)))) << "the cores, divided";
  }
  Ran ran = run_program(launched(2) + " place");
  EXPECT_TRUE(ran.output.starts_with("mpirun -n 2 ")) << ran.output;
}

using JobOnSeveralMachinesSlow = JobOnSeveralMachines;

TEST_F(JobOnSeveralMachinesSlow, EndInTimeWithTheFirstCauseLast) {
  for (int m : {2, 3})
    for (const JobCase& expected : kJobCases) {
      SCOPED_TRACE(concat(m, " machines, ", expected.name));
      check_job(machines(m, 3), expected);
    }
}

TEST_F(JobOnSeveralMachinesSlow, AStoppedRankIsNamedAndEndsTheJob) {
  check_job(machines(3, 3), {"stop", 4, "; last heard of in all_reduce #6 "});
}

TEST_F(JobOnSeveralMachinesSlow, AShortStopASlowRankAndADebuggerAreHarmless) {
  EXPECT_NE(run_program(machines(3, 3) + " stop-3").output.find("ten steps done\n"), std::string::npos);
  Ran slow = run_program(machines(3, 3) + " slow");
  EXPECT_EQ(slow.code, 0);
  EXPECT_NE(slow.output.find("rank 1 computing, last in all_reduce #5"), std::string::npos) << slow.output;
}

TEST(MpiJobSlow, AStoppedRankIsNamedAndEndsTheJob) {
  check_job(launched(3),
            {"stop", 4, "has stopped: no heartbeat for 8 s (stopped by a signal); it was in all_reduce #6 "});
  EXPECT_EQ(run_program(launched(3) + " stop-3").code, 0);
}

TEST(MpiJobSlow, SuspendingTheWholeJobIsHarmless) {
  Ran ran = run_program(launched(2) +
                        " until-asked & pid=$!; sleep 2; kill -TSTP $pid; sleep 10; kill -CONT $pid; "
                        "sleep 1; kill -TERM $pid; wait $pid");
  EXPECT_EQ(ran.code, 75) << ran.output;
}

TEST(MpiJobSlow, CountsAbove2To31Bytes) { EXPECT_EQ(run_program("SHARDGRAD_GROUP=mpi " + bare(2) + " large").code, 0); }

}  // namespace
}  // namespace shardgrad::dist::testing
