// Meetings of thousands of ranks on this machine.

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>

#include <shardgrad/core/error.h>
#include <shardgrad/dist/bootstrap/reception.h>
#include <shardgrad/dist/bootstrap/tcp_bootstrap.h>

namespace shardgrad::dist::many_ranks {
namespace {

using namespace std::chrono_literals;

const std::string kToken = "a token of the job's own";

/// The limit on descriptors is as after login, and as it was afterwards.
struct UsualLimit {
  UsualLimit() {
    getrlimit(RLIMIT_NOFILE, &before);
    rlimit usual{256, before.rlim_max};
    setrlimit(RLIMIT_NOFILE, &usual);
  }
  ~UsualLimit() { setrlimit(RLIMIT_NOFILE, &before); }
  rlimit before{};
};

// What each rank does: meets the others, says something, and hears what all have said.
void take_part(int rank, int ranks, int port) {
  auto bootstrap = make_tcp_bootstrap({rank, ranks, "127.0.0.1", port, kToken, 300s});
  std::vector<std::string> all = bootstrap->exchange(concat("I am ", rank));
  for (int r = 0; r < ranks; ++r) SG_CHECK(all[size_t(r)] == concat("I am ", r), "rank ", r, " is ", all[size_t(r)]);
  bootstrap->barrier();
}

// None of them does more than that, so that as many fit into a machine.
TEST(TcpBootstrapSlow, TwoThousandProcessesMeet) {
  constexpr int kRanks = 2000;
  UsualLimit limit;
  if (limit.before.rlim_max < kRanks + 300)
    GTEST_SKIP() << "needs " << kRanks + 300 << " descriptors, of " << limit.before.rlim_max;
  int port = port_of(listen_on("127.0.0.1", 0)[0]);
  std::vector<pid_t> ranks;
  for (int rank = 0; rank < kRanks; ++rank) {
    pid_t pid = fork();
    if (pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);  // none outlives the test
      int code = 1;
      try {
        take_part(rank, kRanks, port);
        code = 0;
      } catch (const Error& error) {
        std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
      }
      _exit(code);
    }
    ASSERT_GT(pid, 0) << "after " << rank;
    ranks.push_back(pid);
  }
  int well = 0;
  for (pid_t pid : ranks) {
    int status = 0;
    waitpid(pid, &status, 0);
    well += status == 0;
  }
  EXPECT_EQ(well, kRanks);
}

// The guests are in one process, which only holds their connections.
TEST(ReceptionSlow, FourThousandAndNinetySixRanksAreLetIn) {
  constexpr int kRanks = 4096;
  UsualLimit limit;
  if (limit.before.rlim_max < kRanks + 300)
    GTEST_SKIP() << "needs " << kRanks + 300 << " descriptors, of " << limit.before.rlim_max;
  std::vector<Socket> listeners = listen_on("127.0.0.1", 0);
  int port = port_of(listeners[0]), over[2];
  ASSERT_EQ(pipe(over), 0);
  pid_t guests = fork();
  if (guests == 0) {
    setrlimit(RLIMIT_NOFILE, &limit.before);
    std::vector<Socket> in;
    std::string reason;
    for (int rank = 1; rank < kRanks; ++rank)
      in.push_back(call_host(
          "127.0.0.1", port, {rank, kRanks, "here"}, kToken, [] {}, reason));
    char none;
    close(over[1]);
    _exit(read(over[0], &none, 1) != 0);
  }
  Reception reception(std::move(listeners), kToken, kRanks, "here");
  for (auto end = std::chrono::steady_clock::now() + 300s;
       !reception.missing().empty() && std::chrono::steady_clock::now() < end;)
    reception.look();
  EXPECT_TRUE(reception.missing().empty()) << reception.missing().size() << " are missing" << reception.turned_away();
  close(over[0]);
  close(over[1]);
  waitpid(guests, nullptr, 0);
}

}  // namespace
}  // namespace shardgrad::dist::many_ranks
