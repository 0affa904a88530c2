#pragma once
// What whole jobs must do, well or badly, however their ranks were started.

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <string>
#include <vector>

#include <shardgrad/core/error.h>
#include <tests/dist/run_program.h>

namespace shardgrad::dist::testing {

/// A scenario of dist_probe, the exit code it must have, and what its last line must hold.
struct JobCase {
  const char* name;
  int code;
  const char* last_line;
};

inline const std::vector<JobCase> kJobCases = {
    {"good", 0, "ten steps done"},
    {"suite", 0, "suite over "},
    {"bad-option", 2, "shardgrad: unknown option 'lrr'; did you mean 'lr'?"},
    {"refuse", 2, "shardgrad: rank 1 failed: label 11 of sample 5"},
    {"refuse-in-two-lines", 2, "  sample 5"},
    {"throw", 4, "shardgrad: rank 1 failed: label 11 of sample 5"},
    {"leave-unfinished", 2, "shardgrad: rank 1 failed: label 11 of sample 5"},
    {"kill", 4, "killed by signal 9"},
    {"crash", 4, "killed by signal 4"},
    {"exit", 4, "shardgrad: rank 1 (pid "},
    {"diverge", 4, "rank 1 in barrier #6 of unit 'norm' in step"},
    {"leave", 4, "rank 1 finished with its program"},
    {"write-too-much", 2, "rank 1 failed: cannot write: File too large"},
};

/// What only a launcher sees: ranks that are killed before they have met, or after the job has ended.
inline const std::vector<JobCase> kLaunchCases = {
    {"kill-at-start", 4, "shardgrad: rank 1 (pid "},
    {"kill-at-the-end", 4, "died: killed by signal 9 (Killed)"},
};

/// Runs one rank-count-3 job by `launcher` (a command up to the program) and checks all it promises.
inline void check_job(const std::string& launcher, const JobCase& expected) {
  static int count = 0;
  std::string token = concat("token-", getpid(), "-", ++count);
  Ran ran = run_program(concat(launcher, " ", expected.name, " ", token));
  EXPECT_EQ(ran.code, expected.code) << ran.output;
  EXPECT_NE(ran.last_line().find(expected.last_line), std::string::npos) << ran.output;
  EXPECT_LT(ran.seconds, 12) << ran.output;
  EXPECT_TRUE(all_gone(token));
}

/// Starts the scenario until-asked by `launcher`, and sends `signal` to it once the ranks run.
inline Ran ask_to_stop(const std::string& launcher, const char* signal) {
  std::string said = (std::filesystem::temp_directory_path() / concat("said-", getpid())).string();
  Ran ran = run_program(concat(": >'", said, "'; ", launcher, " until-asked >'", said, "' 2>&1 & pid=$!; i=0; ",
                               "until grep -q running '", said, "' || [ $((i += 1)) = 600 ]; do sleep 0.05; done; ",
                               "kill -", signal, " $pid; wait $pid; code=$?; cat '", said, "'; exit $code"));
  std::filesystem::remove(said);
  return ran;
}

/// The same, before its ranks may have begun: the signal comes `delay` after the launcher has.
inline Ran ask_to_stop_after(const std::string& launcher, double delay) {
  return run_program(concat(launcher, " until-asked & pid=$!; sleep ", delay, "; kill -TERM $pid; wait $pid"));
}

/// At first nobody listens: the launcher keeps a request to end until the ranks do.
inline void expect_early_requests_are_kept(const std::string& launcher) {
  for (double delay : {0.02, 0.05, 0.1, 0.2}) {
    Ran ran = ask_to_stop_after(launcher, delay);
    bool before_the_launcher = ran.code == 128 + SIGTERM && ran.output.find("asking the ranks") == std::string::npos;
    EXPECT_TRUE(ran.code == 75 || before_the_launcher) << delay << " s: " << ran.code << ' ' << ran.output;
    EXPECT_EQ(ran.output.find("signal 10"), std::string::npos) << ran.output;
  }
}

}  // namespace shardgrad::dist::testing
