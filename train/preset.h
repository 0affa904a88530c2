#pragma once
// The key `preset`: defaults that belong together.

#include <vector>

#include <shardgrad/train/settings.h>

namespace shardgrad::train {

/// What the preset among the settings sets, as settings that stand before these and so give way to them. `memory`:
/// strategy zero3 with no unit gathered ahead. `speed`: strategy zero2, whose parameters stay from forward to backward.
/// On every device but cpu both compute in bf16 (fsdp.param_dtype), unless autocast is given, and `memory` has shards,
/// gradients and the optimizer in host memory, unless the strategy that is given has no shards apart.
std::vector<Setting> settings_of_preset(const std::vector<Setting>& given);

}  // namespace shardgrad::train
