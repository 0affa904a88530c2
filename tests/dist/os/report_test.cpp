// The file by which ranks tell their launcher how far the job is: it never goes back, however many write at once.

#include <shardgrad/dist/os/report.h>

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include <shardgrad/core/error.h>
#include <tests/dist/child.h>

namespace shardgrad::dist::testing {
namespace {

class Reports : public ::testing::Test {
 protected:
  Reports() { std::ofstream file(path_); }
  ~Reports() override { std::filesystem::remove(path_); }
  Report read() const { return read_report(path_); }
  std::string path_ = concat(::testing::TempDir(), "report-", getpid());
};

TEST_F(Reports, SayWhoIsHereUntilAllHaveMet) {
  std::ofstream(path_) << std::string(4096, '\0');  // as the launcher makes it
  EXPECT_FALSE(read().anybody_here() || read().started() || read().has_cause());
  report_here(path_, 1);
  report_here(path_, 12);
  EXPECT_TRUE(read().anybody_here() && read().here(1) && read().here(12));
  EXPECT_FALSE(read().here(2) || read().started());
  report_met(path_);
  EXPECT_TRUE(read().started());
  report_here(path_, 3);  // late
  EXPECT_TRUE(read().started() && !read().anybody_here());
}

TEST_F(Reports, KeepTheFirstCause) {
  report_here(path_, 0);
  EXPECT_TRUE(report_cause(path_, 137, "shardgrad: rank 2 died"));
  EXPECT_TRUE(report_cause(path_, 4, "shardgrad: nobody answers"));
  report_met(path_);
  report_here(path_, 1);
  EXPECT_EQ(read().text, "137 shardgrad: rank 2 died\n");
  EXPECT_TRUE(read().has_cause() && !read().started());
}

TEST_F(Reports, AreWholeForWhoeverReadsWhileManyProcessesWrite) {
  std::vector<Child> writers;
  for (int rank = 0; rank < 4; ++rank)
    writers.emplace_back([this, rank] {
      for (int i = 0; i < 200; ++i) report_here(path_, rank * 1000 + i);
      if (rank == 3) report_cause(path_, 100 + rank, "shardgrad: the cause");
    });
  std::string last;
  for (Report now = read(); !now.has_cause(); now = read()) {
    ASSERT_TRUE(now.text.empty() || now.text.ends_with('\n')) << now.text;
    ASSERT_TRUE(now.text.starts_with(last)) << "a line is lost";
    last = now.text;
  }
  EXPECT_EQ(read().text, "103 shardgrad: the cause\n");
}

TEST(Report, ThatCannotBeWrittenIsSaidToBeSo) {
  EXPECT_FALSE(report_cause("/proc/none/report", 4, "shardgrad: x"));
  EXPECT_EQ(read_report("/proc/none/report").text, "");
}

}  // namespace
}  // namespace shardgrad::dist::testing
