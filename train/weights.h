#pragma once
// Weights of any program, for a model to begin with.

#include <memory>
#include <string>

#include <shardgrad/train/checkpoint/weights.h>

namespace shardgrad::train {

/// A safetensors file, or a folder in Hugging Face's form (docs/hugging-face.md). Throws Error(input), with the path
/// and the reason, for what is neither, is damaged, or holds another model than its config.json tells of.
std::unique_ptr<Weights> open_weights(const std::string& path);

/// A collective. Fills parameters and buffers from what open_weights opens, of the same names and shapes; a floating
/// dtype is converted. Throws Error(input) on every rank listing what does not fit, having changed nothing, and for a
/// parameter with a number that is not finite.
void load_model(const std::string& path, nn::Module& model, fsdp::Sharded& sharded);

/// The same for a model that is not sharded, in this process alone. Where a file cannot be read halfway, the values of
/// the rest are undefined.
void load_model(const std::string& path, nn::Module& model);

/// Throws Error(input) unless load_model would take it for this model, which need not have values yet; of the numbers
/// it sees the first only. Of one rank.
/// Returns a number that differs where the tensors' first elements do.
uint64_t check_model(const std::string& path, nn::Module& model);

}  // namespace shardgrad::train
