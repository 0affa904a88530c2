#pragma once
// What an examination has found, and how it is shown.

#include <string>
#include <vector>

namespace shardgrad::train::doctor {

enum class State {
  ok,
  note,    ///< training goes on, in another way or slower than one may think
  problem  ///< training is refused, or fails, in a way of starting it that this build has
};

struct Finding {
  std::string group;  ///< what was looked at, one word
  State state = State::ok;
  std::string what;
  std::string remedy = {};  ///< what to do about it; every problem has one
};
using Findings = std::vector<Finding>;

/// Of a sentence whose remedy stands behind its last semicolon, as those of errors have it; `otherwise` where there is
/// none.
Finding told(const std::string& group, State state, const std::string& sentence, const std::string& otherwise = "");

bool has_problem(const Findings& findings);

/// A line for each finding, in their order, under a title and above a sum: the state, the group (once for neighbours),
/// what was found, and below it the remedy. No line is longer than `columns` (40 at least).
std::string screen(const std::string& title, const Findings& findings, int columns);

}  // namespace shardgrad::train::doctor
