#pragma once
// The names that Tango, Lightning and PyTorch have for keys of ours (aliases.h).

#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

namespace shardgrad::train {

using AliasJson = nlohmann::ordered_json;

/// What a value is called elsewhere, and here; null is no setting.
using Values = std::vector<std::pair<AliasJson, AliasJson>>;

struct Alias {
  const char* name;
  const char* key;
  Values values{};      ///< empty: the same as here
  bool others = false;  ///< beside `values`, those that are the same as here
  const char* note = "";
};

/// All of them. A word that fits two equally well is meant for the first.
const std::vector<Alias>& aliases();

}  // namespace shardgrad::train
