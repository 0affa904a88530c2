#pragma once
#include <shardgrad/core/device.h>

namespace shardgrad::bench {

/// The rows of a GPT-2 of 124 million parameters: its operations at their sizes, one step, and where its time goes.
void transformers(Device device);

}  // namespace shardgrad::bench
