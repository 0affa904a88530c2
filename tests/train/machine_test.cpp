// What doctor finds on the machine that runs it; machines that are pretended are in doctor_test.cpp.

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <shardgrad/train/doctor/machine.h>

namespace shardgrad::train::doctor {
namespace {

// Exit status 0 where it is so in a process with this limit.
int status_under(__rlimit_resource_t resource, rlim_t bytes, bool (*is_so)(const Machine&)) {
  pid_t child = fork();
  if (child == 0) {
    rlimit most{.rlim_cur = bytes, .rlim_max = bytes};
    setrlimit(resource, &most);
    _exit(is_so(this_machine(2)) ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  return status;
}

TEST(ThisMachine, SharedMemoryIsTried) {
  EXPECT_EQ(status_under(RLIMIT_FSIZE, RLIM_INFINITY, [](const Machine& m) { return m.heap_fault.empty(); }), 0);
  EXPECT_EQ(status_under(RLIMIT_FSIZE, 1 << 20, [](const Machine& m) { return !m.heap_fault.empty(); }), 0);
}

}  // namespace
}  // namespace shardgrad::train::doctor
