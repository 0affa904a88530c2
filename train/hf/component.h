#pragma once
// Hugging Face's models as what a configuration names.

#include <string>
#include <vector>

#include <shardgrad/train/hf/config.h>
#include <shardgrad/train/options.h>
#include <shardgrad/train/settings.h>

namespace shardgrad::train::hf {

/// The options of the model `gpt2` or `llama`. Throws Error(input) for another one, which such a folder cannot hold.
ModelOptions options_of(const Component& model);

/// What the key model.from among the settings sets, as settings that stand before these and so give way to them:
/// model.name and the model's options as the folder's config.json has them, and init_from. What is wrong with the
/// folder is added to `faults`.
std::vector<Setting> settings_of_folder(const std::vector<Setting>& given, std::vector<std::string>& faults);

}  // namespace shardgrad::train::hf
