#pragma once
// Environment variables that choose among a few words (docs/environment.md).

#include <array>
#include <string>
#include <string_view>

namespace shardgrad {

/// A variable, and what it may hold beside nothing.
struct EnvironmentChoice {
  const char* variable;
  std::array<std::string_view, 5> words;  ///< the last ones may be empty
};
/// A variable that may be 0 or 1.
constexpr EnvironmentChoice environment_switch(const char* variable) { return {variable, {"0", "1"}}; }

/// Makes every operation on a GPU wait for its end (docs/cuda.md).
inline constexpr EnvironmentChoice kCheckChoice = environment_switch("SHARDGRAD_CHECK");

/// Why a variable may not hold `text`, naming its words; empty when it may: it is one of them, or empty.
std::string refused(const EnvironmentChoice& choice, std::string_view text);
/// What the variable says: one of its words, or nothing when it is unset or empty. Throws Error(input) for any other
/// value: one that is misspelt is not taken for unset.
std::string_view environment_choice(const EnvironmentChoice& choice);
/// Whether a switch is on.
inline bool environment_flag(const EnvironmentChoice& choice) { return environment_choice(choice) == "1"; }

}  // namespace shardgrad
