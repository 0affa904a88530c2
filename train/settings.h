#pragma once
// Settings as they were written, each with its place, so that a refusal can point at it: the values of a JSON file with
// nested objects as dotted keys, and the key=value pairs of a command line.

#include <string>
#include <vector>

#include <shardgrad/train/read_file.h>

namespace shardgrad::train {

struct Setting {
  std::string key;    ///< "optimizer.lr"
  std::string json;   ///< the value as JSON text
  std::string place;  ///< "configs/a.json:7" or "--set optimizer.lr=0.1"
};

/// The settings of a JSON file of a kind, which may have comments (// and /* */). What is wrong with it (unreadable,
/// not JSON, nested deeper than settings are, a key given twice, a number too large) is added to `faults`, each with
/// file and line.
std::vector<Setting> read_settings(const std::string& path, std::vector<std::string>& faults,
                                   const FileKind& kind = kConfiguration);

/// The setting of "key=value". A value that is not JSON is taken as a string.
Setting parse_setting(const std::string& text, std::vector<std::string>& faults);

}  // namespace shardgrad::train
