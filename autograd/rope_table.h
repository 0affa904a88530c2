#pragma once
// The angles of rotary position embedding, for rope() of ops.h.

#include <cstdint>
#include <optional>

#include <shardgrad/core/tensor.h>

namespace shardgrad {

/// How a model goes on beyond the positions that it was trained on: rotations slower than original_positions /
/// low_freq_factor positions a turn become `factor` times slower, those faster than original_positions /
/// high_freq_factor stay, those between are a blend. Hugging Face's rope_type "llama3", with its names.
struct Llama3Scaling {
  double factor = 8, low_freq_factor = 1, high_freq_factor = 4;
  int64_t original_positions = 8192;
};

struct RopeOptions {
  double theta = 10000;
  std::optional<Llama3Scaling> scaling = {};
};

/// (positions, head_dim): row p has cos(p · f) for the frequencies f = theta^(-2i / head_dim), i < head_dim / 2, and
/// then sin(p · f). Made in f64 and rounded once to the dtype, f32 or f64. Throws Error(input) for an odd head_dim, and
/// for options that give no frequencies.
Tensor rope_table(int64_t positions, int64_t head_dim, const RopeOptions& options = {}, TensorOptions tensor = {});

}  // namespace shardgrad
