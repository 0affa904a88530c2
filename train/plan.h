#pragma once
// `shardgrad plan`: what the training step of a configuration will need, before anything is trained.

#include <string>
#include <vector>

#include <shardgrad/fsdp/plan.h>
#include <shardgrad/train/config.h>
#include <shardgrad/train/data/dataset.h>

namespace shardgrad::train {

/// The plan of the rank with the most samples, each of `fields`, from two steps of `ranks` virtual ranks on `device`:
/// meta predicts, any other measures. `group` is how the ranks communicate (dist::VirtualOptions): with
/// "shared_memory", device cpu gathers without memory. Throws Error(input) for a sharding that cannot work, and a task
/// that does not fit the fields.
fsdp::Plan plan(const Config& config, const std::vector<data::Field>& fields, int ranks, Device device,
                const std::string& group = "");

}  // namespace shardgrad::train
