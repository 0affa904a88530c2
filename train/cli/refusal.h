#pragma once
// What is said of a command line that cannot be followed.

#include <CLI/CLI.hpp>
#include <string>

namespace shardgrad::cli {

/// One sentence, with the nearest command, option or key where a word is none.
std::string refusal(const CLI::App* app, const CLI::Error& error);

/// The command that a word may be meant for; empty when none is near.
std::string nearest_command(const CLI::App& app, const std::string& word);
/// "; did you mean 'train'?", or nothing for an empty text.
std::string did_you_mean(const std::string& meant);

}  // namespace shardgrad::cli
