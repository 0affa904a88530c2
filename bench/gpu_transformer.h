#pragma once
// A GPT-2 of 124 million parameters and a batch of 8 samples of 1024 tokens, as their users train it; --tiny: a small
// one.

#include <memory>

#include <shardgrad/fsdp/fully_shard.h>
#include <shardgrad/nn/gpt2.h>
#include <shardgrad/optim/adam.h>

namespace shardgrad::bench {

/// AdamW, and the norm of the gradients clipped to 1.
class Gpt2Training {
 public:
  /// `products`: what autocast multiplies in. With a group the model is sharded over it as `config` says.
  Gpt2Training(const nn::Gpt2Options& options, int64_t rows, std::optional<DType> products,
               dist::ProcessGroup* group = nullptr, const fsdp::Config& config = {});
  Tensor step();
  int64_t tokens() const { return ids_.numel(); }

 private:
  nn::Child<nn::Gpt2> model_;
  std::shared_ptr<fsdp::Sharded> sharded_;
  std::unique_ptr<optim::AdamW> optimizer_;
  std::optional<DType> products_;
  Tensor ids_, labels_;
  uint64_t steps_ = 0;
};

nn::Gpt2Options small_gpt2();
/// The one that is measured, and its samples.
nn::Gpt2Options measured_gpt2();
int64_t measured_samples();

/// The rows of its operations at their sizes and of one step.
void transformers(Device device);

}  // namespace shardgrad::bench
