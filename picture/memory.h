#pragma once
// Bytes over time, stacked by owner: whose memory it was, and whether the peak was what the plan had said.

#include <map>
#include <optional>
#include <string>
#include <vector>

#include <shardgrad/core/ledger_history.h>
#include <shardgrad/picture/frame.h>

namespace shardgrad::picture {

/// How many bytes each owner had, from each moment on, up to the next.
struct BytesOverTime {
  std::vector<double> moments;  ///< in order
  struct Owner {
    std::string name;
    std::vector<int64_t> bytes;  ///< one for each moment
  };
  std::vector<Owner> owners;
};

/// What a ledger's history says, by category. `by_order`: the moments are the numbers of the changes, 0 before the
/// first, instead of seconds: the same on every machine, and no change is too short to be seen.
BytesOverTime bytes_over_time(const std::map<Category::Kind, int64_t>& before, std::vector<LedgerChange> changes,
                              bool by_order = false);

struct Memory {
  Caption caption;
  BytesOverTime bytes;
  bool by_order = false;                  ///< what the moments are; seconds are drawn from the first on
  std::optional<int64_t> predicted = {};  ///< the plan's peak
  std::vector<Mark> marks = {};           ///< "forward", "backward", …
  int64_t room = 0;                       ///< the axis reaches so far at least, where pictures are compared
};

/// Owners that are always there are below those that come and go; of more than eight the smallest are one. Throws
/// Error(input) where an owner has not one number for each moment.
std::string draw(const Memory& memory);

/// The same step in several ways, side by side on one axis, each as wide as the others. A case is called what its
/// caption says, and its marks are lines without names, which `marks` of the whole tells of. Those that are too many
/// for the picture are left out, and it says so.
struct Memories {
  Caption caption;
  std::vector<Memory> cases;
  std::string marks = {};  ///< such as "Dotted: backward begins, the step begins."
};
std::string draw(const Memories& memories);

}  // namespace shardgrad::picture
