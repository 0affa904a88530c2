#pragma once
// Settings by the names that Tango, Lightning and PyTorch have for them. They become settings of our keys before
// anything else is looked at, so what is printed and saved has our names only.

#include <optional>
#include <string>
#include <vector>

#include <shardgrad/train/settings.h>

namespace shardgrad::train {

/// Settings of a file and those of the command line, which come after them, as settings of our keys. Adds a line to
/// `faults` for a value that the other name does not have, for a key that is given by two names in the file or on the
/// command line (with both places), and for what has no key here, or none any more (with what to do).
struct OurSettings {
  std::vector<Setting> settings;
  /// The number of ranks, of `gpus` or `devices`, which is no setting: with key, value and place as written.
  std::optional<Setting> ranks;
};
OurSettings in_our_names(const std::vector<Setting>& of_file, const std::vector<Setting>& of_command_line,
                         std::vector<std::string>& faults);

/// The other names, for hints.
std::vector<std::string> alias_names();
/// A Markdown table of them, with a line before it.
std::string alias_table();

}  // namespace shardgrad::train
