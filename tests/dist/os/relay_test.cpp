// What a child writes reaches this process's standard output, or it is known that it did not.

#include <shardgrad/dist/os/relay.h>

#include <fcntl.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>

#include <shardgrad/core/error.h>
#include <tests/dist/child.h>

namespace shardgrad::dist::testing {
namespace {

// Standard output is this file for as long as the object lives.
class StandardOutput {
 public:
  explicit StandardOutput(const char* path, int flags = O_WRONLY | O_CREAT | O_TRUNC)
      : StandardOutput(open(path, flags, 0600)) {}
  explicit StandardOutput(int file) {
    std::fflush(stdout);
    dup2(file, STDOUT_FILENO);
    close(file);
  }
  ~StandardOutput() {
    dup2(before_, STDOUT_FILENO);
    close(before_);
  }

 private:
  int before_ = dup(STDOUT_FILENO);
};

// Passes a child's words on; whether they were all written.
bool relayed(const std::string& text) {
  Relay relay;
  Child child([&] {
    for (size_t done = 0; done < text.size();) {
      ssize_t put = write(relay.input(), text.data() + done, text.size() - done);
      if (put < 0) _exit(1);
      done += size_t(put);
    }
  });
  int status = 1;
  waitpid(child.pid(), &status, 0);
  EXPECT_EQ(status, 0) << "a child is never kept from writing";
  return relay.finish();
}

TEST(Relay, PassesOnAllThatAChildWrites) {
  std::string path = concat(::testing::TempDir(), "relayed-", getpid()), text;
  for (int i = 0; i < 100'000; ++i) text += std::to_string(i);
  {
    StandardOutput file(path.c_str());
    EXPECT_TRUE(relayed(text));
  }
  std::ifstream file(path);
  EXPECT_TRUE(std::string(std::istreambuf_iterator<char>(file), {}) == text);
  std::remove(path.c_str());
}

// A terminal or a pipe that somebody made non-blocking: a write takes what there is room for.
TEST(Relay, PassesOnAllToAPipeThatTakesItInPieces) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  fcntl(ends[1], F_SETFL, O_NONBLOCK);
  fcntl(ends[1], F_SETPIPE_SZ, 4096);
  std::string text, received;
  for (int i = 0; i < 20'000; ++i) text += std::to_string(i);
  std::thread reader([&] {
    char part[1000];
    for (ssize_t got; (got = read(ends[0], part, sizeof(part))) > 0;) received.append(part, size_t(got));
  });
  {
    StandardOutput pieces(ends[1]);
    EXPECT_TRUE(relayed(text));
  }
  reader.join();
  close(ends[0]);
  EXPECT_TRUE(received == text);
}

// One that holds the pipe open and never stops to write.
TEST(Relay, DoesNotListenForEverToAProcessThatIsLeftOver) {
  StandardOutput file("/dev/null");
  Relay relay;
  Child left_over([&] {
    for (;;) {
      if (write(relay.input(), "more\n", 5) < 0) _exit(0);
      usleep(1000);
    }
  });
  usleep(20'000);
  EXPECT_TRUE(relay.finish());
}

TEST(Relay, DoesNotWaitForAProcessThatIsLeftOver) {
  Relay relay;
  Child left([] { sleep(10); });  // holds the pipe open
  auto begin = std::chrono::steady_clock::now();
  EXPECT_TRUE(relay.finish());
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
}

TEST(Relay, KnowsWhatWasLost) {
  std::string text(1 << 20, 'x');
  {
    StandardOutput full("/dev/full", O_WRONLY);
    EXPECT_FALSE(relayed(text));
    EXPECT_TRUE(relayed("")) << "who says nothing loses nothing";
  }
  StandardOutput closed("/dev/null", O_RDONLY);
  EXPECT_FALSE(relayed(text));
}

}  // namespace
}  // namespace shardgrad::dist::testing
