#pragma once

#include <cstdint>
#include <optional>

#include <shardgrad/core/tensor.h>

namespace shardgrad::train {

/// The place of the first of `values` that is NaN or infinite. None where all are numbers, and of integers. On the cpu.
std::optional<int64_t> first_not_finite(const Tensor& values);

}  // namespace shardgrad::train
