#pragma once
// Reading the library's own JSON files, which somebody may have damaged or made to do harm.

#include <nlohmann/json.hpp>
#include <string>

#include <shardgrad/core/error.h>
#include <shardgrad/train/read_file.h>

namespace shardgrad::train {

/// The value of a JSON text of no more than eight levels. Of anything else, such as a damaged file that would become a
/// tree of any depth, a value that is_discarded().
nlohmann::ordered_json parse_shallow(const std::string& text);

/// The object in one of the library's own files. Throws Error(input) that says what is wrong with a damaged one:
/// "'a/run.json' is damaged: it is empty".
nlohmann::ordered_json read_object(const std::string& path, const FileKind& kind);
/// What the library of JSON says of a value that is missing or of another kind, without its number.
std::string in_words(const std::exception& error);

/// A whole number. Throws Error(input) for anything else, such as 1e300, which a conversion would take.
int64_t whole(const nlohmann::ordered_json& value);

}  // namespace shardgrad::train
