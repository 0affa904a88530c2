#pragma once
// Reading the library's own JSON files, which somebody may have damaged or made to do harm.

#include <nlohmann/json.hpp>
#include <string>

#include <shardgrad/core/error.h>

namespace shardgrad::train {

/// The value of a JSON text of no more than eight levels. Of anything else, such as a damaged file that would become a
/// tree of any depth, a value that is_discarded().
nlohmann::ordered_json parse_shallow(const std::string& text);

/// A whole number. Throws Error(input) for anything else, such as 1e300, which a conversion would take.
int64_t whole(const nlohmann::ordered_json& value);

}  // namespace shardgrad::train
