#pragma once
// Environment variables that choose among a few words (docs/environment.md).

#include <initializer_list>
#include <string_view>

namespace shardgrad {

/// What the variable says: one of `choices`, or nothing when it is unset or empty. Throws Error(input), naming the
/// variable and the choices, for any other value: one that is misspelt is not taken for unset.
std::string_view environment_choice(const char* variable, std::initializer_list<std::string_view> choices);

/// Whether a variable that may be 0 or 1 is 1.
inline bool environment_flag(const char* variable) { return environment_choice(variable, {"0", "1"}) == "1"; }

}  // namespace shardgrad
