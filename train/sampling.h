#pragma once
// Which token follows, from the numbers that a model gives for each.

#include <cstdint>
#include <span>

namespace shardgrad::train {

struct SamplingOptions {
  double temperature = 1;  ///< divides the logits; 0: always the largest one (greedy)
  int64_t top_k = 0;       ///< only so many of the largest are drawn from; 0: all
  double top_p = 1;        ///< only the largest are drawn from, as few as have together at least this probability
  uint64_t seed = 0;
};

/// Throws Error(input), naming option and value, for a temperature below 0, a top_k below 0, and a top_p outside (0,
/// 1].
void check_sampling(const SamplingOptions& options);

/// Draws a token with the probability softmax(logits / temperature) has for it among those that top_k, then top_p
/// leave, as transformers' `generate` does. Of equal logits the lower token counts as larger, so top_k leaves exactly
/// so many, and top_k 1 is greedy. The draw is a function of (seed, sample, position) and the logits alone: the
/// position is that of the token drawn in its text. -inf is never drawn. Throws Error(input) for logits of which one is
/// NaN or +inf, or all are -inf.
int64_t sample_token(std::span<const float> logits, const SamplingOptions& options, int64_t sample, int64_t position);

}  // namespace shardgrad::train
