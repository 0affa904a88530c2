// Messages, and the paths and words between ranks that are made as they are.

#include <shardgrad/core/error.h>

#include <gtest/gtest.h>

#include <locale>

namespace shardgrad {
namespace {

struct Grouped : std::numpunct<char> {
  char do_thousands_sep() const override { return ','; }
  char do_decimal_point() const override { return ';'; }
  std::string do_grouping() const override { return "\3"; }
};

TEST(Concat, WritesNumbersAsInCWhateverTheProgramsLocale) {
  std::locale before = std::locale::global(std::locale(std::locale::classic(), new Grouped));
  std::string text = concat("/proc/", 7929, "/fd/", 1234567, " ", 0.5);
  std::locale::global(before);
  EXPECT_EQ(text, "/proc/7929/fd/1234567 0.5");
}

}  // namespace
}  // namespace shardgrad
