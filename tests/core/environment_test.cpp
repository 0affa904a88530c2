// Variables that choose among a few words.

#include <shardgrad/core/environment.h>

#include <cstdlib>

#include <gtest/gtest.h>

#include <shardgrad/core/error.h>

namespace shardgrad {
namespace {

constexpr const char* kName = "CHOICE_OF_THIS_TEST";
constexpr EnvironmentChoice kSwitch = environment_switch(kName);

// What is chosen, or why it is refused, when the variable holds `value`.
std::string chosen(const char* value) {
  value ? setenv(kName, value, 1) : unsetenv(kName);
  try {
    return std::string(environment_choice({kName, {"one", "two"}}));
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::input);
    return error.what();
  }
}

TEST(EnvironmentChoice, IsOneOfTheWordsOrNothing) {
  EXPECT_EQ(chosen("two"), "two");
  EXPECT_EQ(chosen(nullptr), "");
  EXPECT_EQ(chosen(""), "");
}

TEST(EnvironmentChoice, AnyOtherWordIsRefusedWithTheList) {
  for (const char* other : {"three", "One", "one ", "1"})
    EXPECT_EQ(chosen(other), concat(kName, " is '", other, "'; choose one, two, or unset it"));
}

TEST(EnvironmentChoice, AFlagIs0Or1) {
  setenv(kName, "1", 1);
  EXPECT_TRUE(environment_flag(kSwitch));
  setenv(kName, "0", 1);
  EXPECT_FALSE(environment_flag(kSwitch));
  setenv(kName, "yes", 1);
  EXPECT_THROW(environment_flag(kSwitch), Error);
}

}  // namespace
}  // namespace shardgrad
