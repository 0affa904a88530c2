#pragma once
// Tango's constructor of a model whose modules are wrapped, as it stands in a file in the place of the model:
//
//     "model": {
//       "type": "fairscale::with_wrapped_modules",
//       "model": {"type": "simple_regression_model"},
//       "modules_to_wrap": ["blocks\\.[0-9]+", "regression_head"],
//       "fsdp_config": {"move_params_to_cpu": true},
//       "activation_checkpointing": true
//     }

#include <string>
#include <vector>

#include <shardgrad/train/settings.h>

namespace shardgrad::train {

/// The same as the model's own settings, `fsdp.wrap_regex` where there is an fsdp_config, and `model.recompute_regex`
/// where activation_checkpointing is true. Other settings are as they were. Adds a line to `faults` for what is
/// missing.
std::vector<Setting> without_wrapped_modules(std::vector<Setting> settings, std::vector<std::string>& faults);

}  // namespace shardgrad::train
