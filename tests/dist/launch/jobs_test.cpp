// Whole jobs whose ranks are forked by launch_local.

#include <tests/dist/launch/job_cases.h>

#include <sched.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include <csignal>
#include <cstring>

#include <shardgrad/dist/bootstrap/bootstrap.h>
#include <shardgrad/dist/launch/launch.h>
#include <shardgrad/dist/launch/launch_local.h>
#include <source_folder.h>

namespace shardgrad::dist::testing {
namespace {

std::string local(int n) { return concat(program("dist_probe"), " --local ", n); }

class LocalJobs : public ::testing::TestWithParam<JobCase> {};
TEST_P(LocalJobs, EndInTimeWithTheFirstCauseLast) { check_job(local(3), GetParam()); }
INSTANTIATE_TEST_SUITE_P(I45, LocalJobs, ::testing::ValuesIn(kJobCases), [](const auto& info) {
  std::string name = info.param.name;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

TEST(LocalJob, AnyNumberOfRanksFindsEachOther) {
  for (int n = 1; n <= 6; ++n) {
    Ran ran = run_program(concat(local(n), " suite"));
    EXPECT_EQ(ran.code, 0) << n << " ranks: " << ran.output;
  }
}

TEST(LocalJob, StartsAgainAtOnceAfterAKill) {
  EXPECT_EQ(run_program(local(2) + " kill").code, 4);
  EXPECT_EQ(run_program(local(2) + " good").code, 0);
}

TEST(LocalJob, LeavesNoNameInDevShmThatCouldStay) {
  Ran ran = run_program(local(2) + " names");
  EXPECT_EQ(ran.output, "names left: 0\nnames left: 0\n");
}

TEST(LocalJob, WorkThatIsQueuedWhenTheBodyEndsMayUseMemoryThatTheRanksShare) {
  Ran well = run_program("PROBE_DEVICE=acc " + local(2) + " leave-work-behind");
  EXPECT_EQ(well.code, 0) << well.output;
  Ran badly = run_program("PROBE_DEVICE=acc " + local(2) + " leave-work-behind-and-throw");
  EXPECT_EQ(badly.code, 2) << badly.output;
  EXPECT_EQ(badly.last_line(), "shardgrad: rank 1 failed: label 11 of sample 5");
}

TEST(LocalJob, ARankThatIsKilledBeforeOrAfterTheJobIsNamed) {
  for (const JobCase& expected : kLaunchCases) check_job(local(3), expected);
}

TEST(LocalJob, ARankThatStopsBeforeItBeginsIsNamedAndEndsTheJob) {
  check_job(
      "SHARDGRAD_RENDEZVOUS_SECONDS=2 " + local(3),
      {"stop-at-start", 4, ") has not begun and has done nothing for 2 s (stopped by a signal); the other ranks"});
  Ran slow = run_program("SHARDGRAD_RENDEZVOUS_SECONDS=1 " + local(2) + " slow-start");
  EXPECT_EQ(slow.output, "ten steps done\n") << "one that computes may take its time";
}

TEST(LocalJob, RanksThatAllLeaveInTheMiddleWithoutAWordHaveFailed) {
  Ran ran = run_program(local(3) + " exit-all");
  EXPECT_EQ(ran.code, 4);
  EXPECT_NE(ran.last_line().find("died: exited with code 0"), std::string::npos) << ran.output;
}

TEST(LocalJob, ARankThatLeavesWellBeforeItHasBegunIsNamed) {
  ::testing::internal::CaptureStderr();
  std::string good = program("dist_probe") + " good";
  EXPECT_EQ(launch_local(3, {"sh", "-c", "[ $SHARDGRAD_RANK != 1 ] || exit 0; exec " + good}), 4);
  std::string words = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(words.find("rank 1 (pid "), std::string::npos) << words;
  EXPECT_NE(words.find("has ended before it had begun; the other ranks wait for it"), std::string::npos) << words;
}

TEST(LocalJob, ASecondOneInItsProcessesIsRefusedAndWritesIntoNothing) {
  std::string path = ::testing::TempDir() + concat("precious-", getpid()), precious(1 << 20, 'p');
  std::ofstream(path) << precious;
  Ran ran = run_program(concat("PROBE_SECOND_JOB='", path, "' ", local(2), " good"));
  EXPECT_EQ(ran.code, 2) << ran.output;
  EXPECT_NE(ran.output.find("which is not the memory of a job here"), std::string::npos) << ran.output;
  std::ifstream file(path);
  EXPECT_TRUE(std::string(std::istreambuf_iterator<char>(file), {}) == precious);
  std::filesystem::remove(path);
}

TEST(LocalJob, ARequestToSaveThatComesAfterItHasEndedDoesNoHarm) {
  Ran ran = run_program("PROBE_ASKED_LATE=1 " + local(2) + " good");
  EXPECT_EQ(ran.code, 0) << ran.output;
}

TEST(LocalJob, AThreadThatWasThereBeforeTakesNoSignalFromIt) {
  Ran ran = ask_to_stop("PROBE_THREAD=1 " + local(2), "INT");
  EXPECT_EQ(ran.code, 75) << ran.output;
}

TEST(LocalJobSlow, ARankThatComputesWithoutAnEndEndsWhenItIsToldTo) {
  std::string probe = program("dist_probe"), wait = " compute 2>&1 & pid=$!; sleep 1; kill -TERM $pid; wait $pid";
  Ran told = run_program(probe + wait);
  EXPECT_EQ(told.code, 128 + SIGTERM) << told.output;
  EXPECT_LT(told.seconds, 15);
  EXPECT_NE(told.output.find("was told to end (SIGTERM)"), std::string::npos) << told.output;
  // A shell ignores SIGINT for what it starts in the background.
  Ran twice = run_program("setsid env --default-signal=INT " + probe +
                          " compute 2>&1 & pid=$!; sleep 1; kill -INT $pid; sleep 1; kill -INT $pid; wait $pid");
  EXPECT_NE(twice.code, 0);
  EXPECT_LT(twice.seconds, 15);
}

TEST(LocalJob, ThreadsThatCannotBeStartedAreOneSentence) {
  Ran ran = run_program(program("dist_probe") + " too-many-threads");
  EXPECT_EQ(ran.code, 3) << ran.output;
  EXPECT_NE(ran.output.find("cannot start a thread: Resource temporarily unavailable. The limits of this process or "
                            "container on threads"),
            std::string::npos)
      << ran.output;
}

TEST(LocalJob, EndsWithItsLauncher) {
  std::string token = concat("token-launcher-", getpid());
  EXPECT_EQ(run_program(concat(local(3), " kill-launcher ", token)).code, 128 + SIGKILL);
  EXPECT_TRUE(all_gone(token));
}

TEST(LocalJob, ARequestToEndThatComesBeforeTheRanksHaveBegunIsNotLost) { expect_early_requests_are_kept(local(2)); }

TEST(LocalJob, PassesSignalsOnAsARequestToSaveAndEnd) {
  std::signal(SIGHUP, SIG_DFL);  // which a job takes from its parents where it is ignored, as under nohup
  for (const char* signal : {"INT", "TERM", "HUP", "USR1"}) {
    Ran ran = ask_to_stop(local(2), signal);
    EXPECT_EQ(ran.code, 75) << signal << ": " << ran.output;
  }
}

// At most four CPUs of those that this process may run on, for taskset.
std::pair<int, std::string> some_cpus() {
  cpu_set_t set;
  sched_getaffinity(0, sizeof(set), &set);
  int count = 0;
  std::string list;
  for (size_t cpu = 0; cpu < CPU_SETSIZE && count < 4; ++cpu)
    if (CPU_ISSET(cpu, &set)) list += concat(count++ ? "," : "", cpu);
  return {count, list};
}

TEST(LocalJob, RanksDivideTheCpusThatTheyHaveInCommonUnlessTheyHaveMoreThreads) {
  auto [cpus, list] = some_cpus();
  auto cpus_of = [&, list = list](int ranks, int threads) {
    return run_program(concat("OMP_NUM_THREADS=", threads, " taskset -c ", list, " ", local(ranks), " cpus")).output;
  };
  for (int ranks = 2; ranks <= cpus; ++ranks)
    EXPECT_EQ(cpus_of(ranks, 1), concat(cpus, " CPUs, at most 1 ranks on one\n"));
  EXPECT_EQ(cpus_of(2, cpus), concat(cpus, " CPUs, at most 2 ranks on one\n"));
  EXPECT_EQ(cpus_of(cpus + 1, 1), concat(cpus, " CPUs, at most ", cpus + 1, " ranks on one\n"));
}

TEST(LocalJob, ARankHasAThreadForEachOfItsCpusUnlessToldOtherwise) {
  auto [cpus, list] = some_cpus();
  for (int ranks : {1, 2, cpus + 1}) {
    Ran ran = run_program(concat("env -u OMP_NUM_THREADS taskset -c ", list, " ", local(ranks), " place"));
    EXPECT_NE(ran.output.find(concat(", ", std::max(1, cpus / ranks), " threads\n")), std::string::npos) << ran.output;
  }
}

TEST(LocalJob, ARankAloneNeedsNoLauncher) {
  Ran ran = run_program(program("dist_probe") + " place");
  EXPECT_EQ(ran.code, 0);
  EXPECT_NE(ran.output.find("rank 0 of 1 by single over single"), std::string::npos) << ran.output;
}

TEST(LocalJob, ProcessesThatDoNotFindEachOtherAreRefusedWithTheLineToType) {
  // A launcher of another MPI, or none that this build understands.
  Ran ran = run_program("PMI_SIZE=4 PMI_RANK=0 " + program("dist_probe") + " place");
  EXPECT_EQ(ran.code, 2) << ran.output;
  EXPECT_NE(ran.output.find("shardgrad launch -n 4"), std::string::npos) << ran.output;
}

TEST(LocalJob, AWorldOfOneInASlurmJobOfSeveralTasksIsRefusedWithTheLineToType) {
  Ran ran = run_program("SLURM_NTASKS=4 " + program("dist_probe") + " place");
  EXPECT_EQ(ran.code, 2) << ran.output;
  EXPECT_NE(ran.output.find("mpirun -n 4 …, or: srun --mpi=pmix …"), std::string::npos) << ran.output;
  EXPECT_EQ(run_program("SLURM_NTASKS=1 " + program("dist_probe") + " place").code, 0);
  EXPECT_EQ(run_program("SLURM_NTASKS=4 " + local(2) + " place").code, 0) << "started together by launch";
}

TEST(LocalJob, NoRanksAreRefused) {
  try {
    launch(0, {"true"}, {.by = "local"});
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "launch: 0 ranks are not possible");
  }
}

TEST(LocalJob, AFileThatCannotBeExecutedIsNoProgram) {
  std::string path = std::string(kSourceFolder) + "/README.md";
  try {
    launch(2, {path}, {.by = "local"});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.what(), "launch: there is no program '" + path + "'");
  }
}

TEST(LocalJob, FewerThreadsThanNoneAreRefused) {
  try {
    launch(2, {"true"}, {.by = "local", .threads = -3});
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "launch: -3 threads are not possible; 0 shares the cores");
  }
}

TEST(LocalJob, LeavesTheSignalsOfItsLauncherAsTheyWere) {
  sigset_t before, after;
  pthread_sigmask(SIG_SETMASK, nullptr, &before);
  launch(2, {"true"}, {.by = "local"});
  pthread_sigmask(SIG_SETMASK, nullptr, &after);
  for (int number : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGTSTP, SIGCONT, SIGCHLD})
    EXPECT_EQ(sigismember(&after, number), sigismember(&before, number)) << strsignal(number);
}

TEST(LocalJob, AHeapThatDoesNotFitIsRefusedWithTheRemedy) {
  Ran ran = run_program(local(2) + " tiny-heap");
  EXPECT_EQ(ran.code, 3);
  EXPECT_NE(ran.last_line().find("the ranks cannot share memory: "), std::string::npos) << ran.output;
  EXPECT_NE(ran.last_line().find("start them with mpirun"), std::string::npos) << ran.output;
}

TEST(LocalJob, AGroupThatCannotBeIsRefused) {
  Ran ran = run_program("SHARDGRAD_GROUP=mpi " + local(2) + " place");
  EXPECT_EQ(ran.code, 2);
  EXPECT_NE(ran.output.find("needs ranks started by mpirun"), std::string::npos) << ran.output;
  EXPECT_EQ(run_program("SHARDGRAD_GROUP=carrier_pigeon " + local(2) + " place").code, 2);
}

TEST(LocalJob, OfOneRankSaysWhatWentWrongLikeOneOfMany) {
  Ran refused = run_program("SHARDGRAD_GROUP=carrier_pigeon " + local(1) + " place");
  EXPECT_NE(refused.last_line().find("there is no group of kind 'carrier_pigeon'"), std::string::npos)
      << refused.output;
  EXPECT_EQ(refused.code, 2);
}

TEST(LocalJobSlow, AStoppedRankIsNamedAndEndsTheJob) {
  check_job(local(3), {"stop", 4, "has stopped: no heartbeat for 8 s (stopped by a signal); it was in all_reduce #6 "});
}

TEST(LocalJobSlow, AShortStopASlowRankAndADebuggerAreHarmless) {
  EXPECT_EQ(run_program(local(3) + " stop-3").output, "ten steps done\n");
  Ran slow = run_program(local(3) + " slow");
  EXPECT_EQ(slow.code, 0);
  EXPECT_NE(slow.output.find("rank 1 computing, last in all_reduce #5"), std::string::npos) << slow.output;
  Ran debugged = run_program(local(3) + " debugged");
  EXPECT_EQ(debugged.code, 0);
  EXPECT_NE(debugged.output.find("is under a debugger"), std::string::npos) << debugged.output;
}

TEST(LocalJobSlow, SuspendingTheWholeJobIsHarmless) {
  Ran ran = run_program(local(2) +
                        " until-asked & pid=$!; sleep 0.7; kill -TSTP $pid; sleep 10; kill -CONT $pid; "
                        "sleep 1; kill -TERM $pid; wait $pid");
  EXPECT_EQ(ran.code, 75) << ran.output;
}

TEST(LocalJobSlow, CountsAbove2To31Bytes) { EXPECT_EQ(run_program(local(2) + " large").code, 0); }

}  // namespace
}  // namespace shardgrad::dist::testing
