// The processes of a launcher.

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>

#include <shardgrad/core/error.h>
#include <shardgrad/dist/os/children.h>

namespace shardgrad::dist {
namespace {

// Somebody who may have no further process tries to start one; root may always.
[[noreturn]] void start_one_beyond_the_limit() {
  rlimit none{0, 0};
  if (setrlimit(RLIMIT_NPROC, &none) != 0 || setresuid(65534, 65534, 65534) != 0) _exit(1);
  try {
    Children children([](int) { return true; });
    children.start({"true"}, {}, SIGKILL);
  } catch (const Error& e) {
    std::fprintf(stderr, "%s", e.what());
    _exit(int(e.kind()));
  }
  _exit(0);
}

TEST(Children, WhatIsToBeDoneWhereTheSystemStartsNoFurtherProcess) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to become a user who has no process yet";
  EXPECT_EXIT(start_one_beyond_the_limit(), ::testing::ExitedWithCode(int(ErrorKind::missing)),
              "a process cannot be started: .*; use fewer ranks, or raise the limit .ulimit -u");
}

// What asked the ranks to end while the last of them did, and would end this process.
TEST(Children, ASignalThatComesTooLateEndsNothingAfterThem) {
  for (int number : {SIGUSR1, SIGHUP, SIGTERM, SIGINT}) {
    auto late = [&] {
      std::signal(number, SIG_DFL);
      {
        Children children([](int) { return true; });
        raise(number);
      }
      std::_Exit(0);
    };
    EXPECT_EXIT(late(), ::testing::ExitedWithCode(0), "") << number;
  }
}

}  // namespace
}  // namespace shardgrad::dist
