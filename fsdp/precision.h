#pragma once
// Where a model meets the dtypes of a Config: its buffers, once, and the inputs of its units, at every call. Parameters
// and gradients are converted where they are gathered and reduced (flat_param.h, flat_grad.h).

#include <shardgrad/fsdp/setup/config.h>

namespace shardgrad::fsdp {

/// Gives the floating buffers of `root` and below their values and buffer_dtype; does nothing when that is unset.
void convert_buffers(nn::Module& root, const Config& config);
/// From now on the floating inputs of the module's calls are converted to `dtype`, differentiably.
void convert_inputs(nn::Module& module, DType dtype);
/// Likewise the results.
void convert_outputs(nn::Module& module, DType dtype);

}  // namespace shardgrad::fsdp
