#pragma once
// What somebody meant who wrote a word that is none of ours.

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace shardgrad::train {

/// How far `word` is from `choice`, where it may be meant for it: by few slips of the pen for its length (a letter
/// that is wrong, missing or too many, or two exchanged), or because one begins with the other.
std::optional<size_t> distance(std::string_view word, std::string_view choice);

/// The nearest of `choices`; empty when none is near.
std::string nearest(std::string_view word, std::span<const std::string> choices);

}  // namespace shardgrad::train
