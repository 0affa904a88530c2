#pragma once
// Settings that are possible one by one and mean nothing, or no good, together.

#include <string>
#include <vector>

#include <shardgrad/train/config.h>
#include <shardgrad/train/settings.h>

namespace shardgrad::train {

/// To what a key means nothing beside the other settings, and what to do; empty for one that has an effect.
std::string why_idle(const Config& config, const std::string& key);

/// Whether other settings mean something, or are needed, by what this key says.
bool chooses(const std::string& key);

/// Adds a line to `faults` for each of `settings` that would silently do nothing in `config`, and for each that only
/// fails together with others.
void check_together(const Config& config, const std::vector<Setting>& settings, std::vector<std::string>& faults);

}  // namespace shardgrad::train
