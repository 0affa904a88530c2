// Who is let in where a job's ranks meet, and where they can be reached.

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <future>
#include <thread>

#include <shardgrad/core/context.h>
#include <shardgrad/core/error.h>
#include <shardgrad/dist/bootstrap/reception.h>
#include <shardgrad/dist/bootstrap/tcp_bootstrap.h>
#include <shardgrad/dist/os/peer.h>

namespace shardgrad::dist {
namespace {

using namespace std::chrono_literals;

const std::string kToken = "a token of the job's own";

bool contains(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

int state_of(const Socket& socket) {
  tcp_info info{};
  socklen_t bytes = sizeof(info);
  getsockopt(socket.descriptor(), IPPROTO_TCP, TCP_INFO, &info, &bytes);
  return info.tcpi_state;
}

/// A host of `count` on this machine, and guests that call it from other threads.
struct Meeting {
  explicit Meeting(int count, const std::string& token = kToken, const std::string& host = "127.0.0.1")
      : listeners(listen_on(host, 0)),
        port(port_of(listeners[0])),
        reception(std::move(listeners), token, count, "machine-0") {}

  /// What a guest hears: "in", or why not.
  std::string call(Guest guest, const std::string& token = kToken) {
    auto answer = std::async(std::launch::async, [=, this] {
      std::string reason;
      try {
        Socket socket = call_host(
            "127.0.0.1", port, guest, token, [] {}, reason);
        return socket ? keep(std::move(socket)) : reason;
      } catch (const Error& error) {
        return std::string(error.what());
      }
    });
    while (answer.wait_for(0s) != std::future_status::ready) reception.look();
    return answer.get();
  }
  std::string keep(Socket socket) {
    in.push_back(std::move(socket));
    return "in";
  }

  std::vector<Socket> listeners;
  int port;
  Reception reception;
  std::vector<Socket> in;
};

// Nobody watches ranks before they have a context: what they send each other has a limit.
TEST(TcpBootstrap, ARankThatIsSilentAfterTheMeetingIsNamed) {
  int port = port_of(listen_on("127.0.0.1", 0)[0]);
  std::promise<void> over;
  auto silent = std::async(std::launch::async, [&, wait = over.get_future()] {
    auto bootstrap = make_tcp_bootstrap({2, 3, "127.0.0.1", port, kToken, 10s});
    bootstrap->barrier();
    wait.wait();
  });
  auto told = [&](int rank) {
    return std::async(std::launch::async, [=] {
      try {
        auto bootstrap = make_tcp_bootstrap({rank, 3, "127.0.0.1", port, kToken, 500ms + (rank ? 10s : 0s)});
        bootstrap->barrier();
        bootstrap->barrier();
        return std::string("met");
      } catch (const Error& error) {
        return std::string(error.what());
      }
    });
  };
  auto zero = told(0), one = told(1);
  std::string sentence = "rank 2 has come and then been silent for 0 s, before its first heartbeat";
  EXPECT_TRUE(contains(zero.get(), sentence));
  EXPECT_TRUE(contains(one.get(), sentence)) << "rank 0 tells the others";
  over.set_value();
  silent.get();
}

TEST(TcpBootstrap, OnceARankHasAContextItsMonitorAloneJudgesWhoIsSilent) {
  int port = port_of(listen_on("127.0.0.1", 0)[0]);
  auto meet = [&](int rank, std::chrono::milliseconds before) {
    return std::async(std::launch::async, [=] {
      auto bootstrap = make_tcp_bootstrap({rank, 2, "127.0.0.1", port, kToken, rank ? 10s : 1s});
      Context context({.rank = rank, .world_size = 2});
      std::this_thread::sleep_for(before);
      bootstrap->barrier();
    });
  };
  auto zero = meet(0, 0s), one = meet(1, 2s);
  EXPECT_NO_THROW(zero.get());
  EXPECT_NO_THROW(one.get());
}

TEST(TcpBootstrap, ARank0ThatIsSilentAfterItLetARankInIsNamed) {
  Meeting meeting(3);
  auto guest = std::async(std::launch::async, [&] {
    try {
      make_tcp_bootstrap({1, 3, "127.0.0.1", meeting.port, kToken, 1s});
      return std::string("met");
    } catch (const Error& error) {
      return std::string(error.what());
    }
  });
  while (meeting.reception.missing().size() == 2 && guest.wait_for(0s) != std::future_status::ready)
    meeting.reception.look();
  EXPECT_EQ(guest.wait_for(20s), std::future_status::ready) << "it waits without an end";
  meeting.reception.guests().clear();
  std::string heard = guest.get();
  EXPECT_TRUE(contains(heard, "it has let this rank in, and is silent since")) << heard;
}

TEST(Reception, WhoDoesNotKnowTheTokenIsNotLetInAndEndsNothing) {
  for (auto [theirs, ours] : {std::pair{std::string("another token, also long"), kToken}, {"", kToken}, {kToken, ""}}) {
    Meeting meeting(2, ours);
    std::string heard = meeting.call({1, 2, "machine-1"}, theirs);
    EXPECT_TRUE(contains(heard, "was not given this process's SHARDGRAD_JOB_TOKEN")) << heard;
    EXPECT_EQ(meeting.reception.missing(), std::vector<int>{1});
    EXPECT_TRUE(contains(meeting.reception.turned_away(), "127.0.0.1:")) << meeting.reception.turned_away();
    EXPECT_TRUE(contains(meeting.reception.turned_away(), "was not given rank 0's SHARDGRAD_JOB_TOKEN"));
    EXPECT_EQ(meeting.call({1, 2, "machine-1"}, ours), "in");
    EXPECT_TRUE(meeting.reception.missing().empty());
    EXPECT_EQ(meeting.reception.machines(), (std::vector<std::string>{"machine-0", "machine-1"}));
  }
}

TEST(Reception, TheTokenIsNeverSent) {
  std::vector<Socket> listeners = listen_on("127.0.0.1", 0);
  int port = port_of(listeners[0]);
  Socket heard;
  std::string reason, bytes;
  auto guest = std::async(std::launch::async, [&] {
    call_host(
        "127.0.0.1", port, {1, 2, "machine-1"}, kToken, [] {}, reason);
  });
  while (!(heard = accept_from(listeners[0], reason))) wait_readable(listeners[0]);
  std::string challenge = "shardgrad-tcp-4" + std::string(17, '\0');
  heard.write_some(challenge);
  while (bytes.size() < 284 && heard.read_some(bytes, 284)) wait_readable(heard);
  heard = Socket();
  guest.get();
  EXPECT_EQ(bytes.size(), 284u);
  EXPECT_TRUE(contains(bytes, "machine-1"));
  for (size_t i = 0; i + 6 <= kToken.size(); ++i) EXPECT_FALSE(contains(bytes, kToken.substr(i, 6)));
}

TEST(Reception, GuestsThatContradictTheHostAreToldSoAndTheOthersStillMeet) {
  Meeting meeting(3);
  EXPECT_EQ(meeting.call({1, 3, "a"}), "in");
  for (auto [guest, why] : {std::pair{Guest{2, 7, "b"}, "rank 0 was started with WORLD_SIZE=3, rank 2 on b with"},
                            {Guest{1, 3, "b"}, "two processes have RANK=1: on a and on b"},
                            {Guest{0, 3, "b"}, "two processes have RANK=0: on machine-0 and on b"},
                            {Guest{-9000, 3, "b"}, "it has RANK=-9000, which WORLD_SIZE=3 does not allow"},
                            {Guest{100000000, 3, "b"}, "it has RANK=100000000, which WORLD_SIZE=3"}}) {
    EXPECT_TRUE(contains(meeting.call(guest), why)) << why;
    EXPECT_TRUE(contains(meeting.reception.turned_away(), why)) << meeting.reception.turned_away();
  }
  EXPECT_EQ(meeting.call({2, 3, "c"}), "in");
  EXPECT_TRUE(meeting.reception.missing().empty());
}

TEST(Reception, WhatAStrangerSaysCannotWriteOnATerminal) {
  Meeting meeting(2);
  std::string heard = meeting.call({1, 3, "\x1b[2J\nshardgrad: all is well"});
  EXPECT_TRUE(contains(heard, "?[2J?shardgrad")) << heard;
}

// Its hello and its end lie in the host's kernel before the host looks: somebody between them passes on what they say,
// and waits until the end of his side has been acknowledged.
TEST(Reception, AGuestThatHasGoneBeforeItIsHeardIsNotLetIn) {
  Meeting meeting(2);
  std::vector<Socket> between = listen_on("127.0.0.1", 0);
  std::string reason, challenge, hello;
  auto guest = std::async(std::launch::async, [port = port_of(between[0])] {
    std::string why;
    return bool(call_host(
        "127.0.0.1", port, {1, 2, "a"}, kToken, [] {}, why));
  });
  Socket to_guest, to_host = connect_to("127.0.0.1", meeting.port, 1s, reason);
  while (!(to_guest = accept_from(between[0], reason))) wait_readable(between[0]);
  while (challenge.size() < 32 && to_host.read_some(challenge, 32 - challenge.size())) meeting.reception.look();
  to_guest.write_some(challenge);
  while (hello.size() < 304 && to_guest.read_some(hello, 304 - hello.size())) wait_readable(to_guest);
  to_host.write_some(hello);
  shutdown(to_host.descriptor(), SHUT_WR);
  while (state_of(to_host) == TCP_FIN_WAIT1) std::this_thread::sleep_for(1ms);
  meeting.reception.look();
  EXPECT_EQ(meeting.reception.missing(), std::vector<int>{1});
  to_guest = Socket();
  EXPECT_FALSE(guest.get()) << "it was not answered";
  EXPECT_EQ(meeting.call({1, 2, "b"}), "in");
}

TEST(Reception, AGuestThatCameAndWentMayComeAgain) {
  Meeting meeting(3);
  EXPECT_EQ(meeting.call({1, 3, "a"}), "in");
  meeting.in.clear();
  EXPECT_EQ(meeting.call({1, 3, "b"}), "in");
  EXPECT_EQ(meeting.reception.machines()[1], "b");
}

TEST(Reception, WithoutATokenOnlyProcessesOfOneUserMeetWithinAMachine) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to be another user";
  for (const std::string& token : {std::string(), kToken}) {
    Meeting meeting(2, token);
    pid_t other = fork();
    if (other == 0) {
      std::string reason;
      if (setuid(65534) != 0) _exit(3);
      try {
        _exit(call_host(
                  "127.0.0.1", meeting.port, {1, 2, "b"}, token, [] {}, reason)
                  ? 0
                  : 1);
      } catch (const Error& error) {
        _exit(contains(error.what(), "its user is another one (65534)") ? 2 : 1);
      }
    }
    int status = 0;
    while (waitpid(other, &status, WNOHANG) == 0) meeting.reception.look();
    EXPECT_EQ(WEXITSTATUS(status), token.empty() ? 2 : 0);
    EXPECT_EQ(meeting.reception.missing().empty(), !token.empty());
    if (!token.empty()) continue;
    EXPECT_EQ(meeting.call({1, 2, "b"}, token), "in") << "of the host's own user";
  }
}

TEST(Reception, WithoutATokenAGuestLeavesTheHostOfAnotherUser) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to be another user";
  Meeting meeting(2, "");
  pid_t host = fork();
  if (host == 0) {
    if (setuid(65534) != 0) _exit(3);
    try {
      while (true) meeting.reception.look();
    } catch (...) {
      _exit(4);
    }
  }
  std::string reason;
  Socket met = call_host(
      "127.0.0.1", meeting.port, {1, 2, "b"}, "", [] {}, reason);
  kill(host, SIGKILL);
  waitpid(host, nullptr, 0);
  EXPECT_FALSE(met);
  EXPECT_TRUE(contains(reason, "its user is another one (65534)")) << reason;
}

TEST(Reception, WithoutATokenTheUsersOwnProcessesMeetWhereTheHostListensOnEveryAddress) {
  Meeting meeting(2, "", "");
  EXPECT_EQ(meeting.call({1, 2, "b"}, ""), "in") << "the host's end may stand among those of IPv6";
}

TEST(Reception, StrangersGetNoProofOfTheToken) {
  Meeting meeting(2);
  std::string reason, bytes, hello = "shardgrad-tcp-4" + std::string(289, '\0');
  Socket stranger = connect_to("127.0.0.1", meeting.port, 1s, reason);
  ASSERT_TRUE(stranger) << reason;
  stranger.write_some(hello);
  for (auto end = std::chrono::steady_clock::now() + 10s;
       bytes.size() < 68 && std::chrono::steady_clock::now() < end;) {
    meeting.reception.look();
    stranger.read_some(bytes, 68 - bytes.size());
  }
  ASSERT_EQ(bytes.size(), 68u) << "a challenge and an answer";
  EXPECT_EQ(bytes.substr(32, 32), std::string(32, '\0'));
}

TEST(Reception, SilentStrangersTakeUpOnlySoManyConnections) {
  Meeting meeting(2);
  std::string reason;
  std::vector<Socket> strangers;
  for (int n = 0; n < 300; ++n) strangers.push_back(connect_to("127.0.0.1", meeting.port, 1s, reason));
  for (int n = 0; n < 8; ++n) meeting.reception.look();
  auto dropped = std::ranges::count_if(strangers, [](const Socket& stranger) {
    std::string bytes;
    return stranger.read_some(bytes, 33) && !stranger.read_some(bytes, 1);
  });
  EXPECT_EQ(dropped, 99) << "the oldest; room is for the missing guest and 200 more";
  EXPECT_EQ(meeting.call({1, 2, "b"}), "in");
}

TEST(Reception, AConnectionForWhichThereIsNoDescriptorIsNamedAndTakenLater) {
  Meeting meeting(2);
  std::string reason;
  Socket stranger = connect_to("127.0.0.1", meeting.port, 1s, reason);
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  rlimit none{0, before.rlim_max};
  setrlimit(RLIMIT_NOFILE, &none);
  meeting.reception.look();
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_TRUE(contains(meeting.reception.turned_away(), "Too many open files (raise ulimit -n)"))
      << meeting.reception.turned_away();
  EXPECT_EQ(meeting.call({1, 2, "a"}), "in");
}

TEST(Reception, MakesRoomForAConnectionPerRank) {
  rlimit before{}, after{};
  getrlimit(RLIMIT_NOFILE, &before);
  rlimit low{100, before.rlim_max};
  setrlimit(RLIMIT_NOFILE, &low);
  Reception reception({}, kToken, 300, "a");
  getrlimit(RLIMIT_NOFILE, &after);
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_GE(after.rlim_cur, std::min<rlim_t>(300, before.rlim_max));
}

// In a process of its own, since a hard limit that was lowered stays so.
TEST(Reception, AHardLimitThatHasNoRoomForAllRanksIsNamedWithTheRemedy) {
  int said[2];
  ASSERT_EQ(pipe(said), 0);
  pid_t host = fork();
  if (host == 0) {
    rlimit low{100, 100};
    setrlimit(RLIMIT_NOFILE, &low);
    std::string heard = "nothing";
    try {
      Reception reception({}, kToken, 4096, "a");
    } catch (const Error& error) {
      heard = concat(int(error.kind()), ' ', error.what());
    }
    _exit(write(said[1], heard.data(), heard.size()) < 0);
  }
  close(said[1]);
  char text[1000];
  std::string heard(text, size_t(std::max<ssize_t>(0, read(said[0], text, sizeof text))));
  close(said[0]);
  waitpid(host, nullptr, 0);
  EXPECT_TRUE(heard.starts_with(std::to_string(int(ErrorKind::missing)))) << heard;
  for (const char* part : {"rank 0 has a connection to each of 4095 others",
                           "this process may have 100 (its hard limit", "Raise it", "or start the ranks by mpirun"})
    EXPECT_TRUE(contains(heard, part)) << heard;
}

TEST(Reception, AGuestOfAnotherVersionIsNamedByBoth) {
  Meeting meeting(2);
  std::string reason, magic = "shardgrad-tcp-5" + std::string(1, '\0');
  Socket newer = connect_to("127.0.0.1", meeting.port, 1s, reason);
  newer.write_some(magic);
  for (int i = 0; i < 200 && meeting.reception.turned_away().empty(); ++i) meeting.reception.look();
  EXPECT_TRUE(contains(meeting.reception.turned_away(),
                       "it is of another version of this library (shardgrad-tcp-5, not shardgrad-tcp-4)"))
      << meeting.reception.turned_away();

  std::vector<Socket> older = listen_on("127.0.0.1", 0);
  auto guest = std::async(std::launch::async, [port = port_of(older[0])] {
    try {
      make_tcp_bootstrap({1, 2, "127.0.0.1", port, kToken, 10s});
      return std::string("met");
    } catch (const Error& error) {
      return std::string(error.what());
    }
  });
  Socket heard;
  while (!(heard = accept_from(older[0], reason))) wait_readable(older[0]);
  std::string challenge = "shardgrad-tcp-3" + std::string(17, '\0'), bytes;
  heard.write_some(challenge);
  std::string sentence = guest.get();
  EXPECT_TRUE(contains(sentence, " is of another version of this library (shardgrad-tcp-3, not shardgrad-tcp-4)"))
      << sentence;
  heard.read_some(bytes, 100);
  EXPECT_EQ(bytes, "shardgrad-tcp-4" + std::string(1, '\0')) << "so that the host can say it, too";
}

TEST(Sockets, ListenOnlyWhereTheHostsNameSays) {
  std::string reason;
  auto reached_at = [&](const std::string& address, const std::vector<Socket>& listeners) {
    return bool(connect_to(address, port_of(listeners[0]), 1s, reason));
  };
  std::vector<Socket> one = listen_on("127.0.0.1", 0), every = listen_on("", 0), local = listen_on("localhost", 0);
  EXPECT_TRUE(reached_at("127.0.0.1", one));
  EXPECT_FALSE(reached_at("127.0.0.2", one));
  EXPECT_TRUE(reached_at("127.0.0.2", every));
  EXPECT_TRUE(reached_at("localhost", local));
  EXPECT_FALSE(reached_at("127.0.0.2", local));
  for (const Socket& listener : local) EXPECT_TRUE(is_loopback(listener));
}

TEST(Sockets, AConnectionToItselfIsNobodyWhoListens) {
  int port = port_of(listen_on("127.0.0.1", 0)[0]);  // of those that connections get, and nobody listens any more
  std::string reason;
  for (auto end = std::chrono::steady_clock::now() + 1s; std::chrono::steady_clock::now() < end;)
    for (int near : {port, port ^ 1})  // Linux gives connections even ports where it can, and listeners odd ones
      ASSERT_FALSE(connect_to("127.0.0.1", near, 1s, reason));
  EXPECT_TRUE(contains(reason, "refused")) << reason;
}

TEST(Sockets, ListenEverywhereWhereTheHostsNameMeansNothingHere) {
  std::string reason;
  std::vector<Socket> elsewhere = listen_on("198.51.100.77", 0);  // an address for documents, nobody's
  EXPECT_TRUE(connect_to("127.0.0.2", port_of(elsewhere[0]), 1s, reason)) << reason;
  char name[256] = {};
  gethostname(name, sizeof(name) - 1);
  for (const Socket& listener : listen_on(name, 0)) EXPECT_FALSE(is_loopback(listener)) << "Debian has it at 127.0.1.1";
}

TEST(TcpBootstrap, SomethingSilentOnThePortIsNotWaitedForLongerThanTheLimit) {
  std::vector<Socket> silent = listen_on("127.0.0.1", 0);
  auto begin = std::chrono::steady_clock::now();
  try {
    make_tcp_bootstrap({1, 2, "127.0.0.1", port_of(silent[0]), "", 500ms});
    FAIL() << "it met nobody";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::rank_failed);
    EXPECT_TRUE(contains(error.what(), "rank 0 did not answer at 127.0.0.1:")) << error.what();
    EXPECT_TRUE(contains(error.what(), "what listens there does not speak as rank 0 of a job does")) << error.what();
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 4s);
}

// Its host takes in who has come while it waits for another, and then computes.
TEST(ReceptionSlow, AGuestThatSpokeWhenNobodyLookedIsHeard) {
  Meeting meeting(2);
  std::string reason;
  Socket socket = connect_to("127.0.0.1", meeting.port, 1s, reason);
  ASSERT_TRUE(socket) << reason;
  meeting.reception.look(0ms);
  auto guest = std::async(std::launch::async, [&] {
    return introduce(
        std::move(socket), "rank 0", {1, 2, "machine-1"}, kToken, [] {}, reason, 60s);
  });
  std::this_thread::sleep_for(6s);
  for (int i = 0; i < 3; ++i) meeting.reception.look(0ms);
  EXPECT_TRUE(meeting.reception.missing().empty());
  EXPECT_TRUE(guest.get()) << reason;
}

}  // namespace
}  // namespace shardgrad::dist
