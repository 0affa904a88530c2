#pragma once
// Weights of any program, for a model to begin with.

#include <memory>
#include <string>

#include <shardgrad/train/checkpoint/weights.h>

namespace shardgrad::train {

/// Of a run or one of its checkpoints (used_checkpoint) the file that holds its weights, when it is what was saved;
/// what else `path` is stays. A note for the user goes to standard error. Of one rank: while the run goes on it has
/// another one next time. Throws Error(input) where nothing is saved, or is damaged.
std::string weights_of(const std::string& path);

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

/// Throws Error(input) unless load_model would take it for this model, which need not have values yet; it sees names,
/// shapes and dtypes. Of one rank.
void check_model(const std::string& path, nn::Module& model);
void check_model(const Weights& weights, nn::Module& model);

/// Throws Error(input) on every rank, naming a tensor, where ranks find other values under this path, as machines may
/// that each have a file of that name: every rank reads its own part of the model. Files of which the file system says
/// the same everywhere are one; others are read whole, once for each of them. For a model that check_model takes. A
/// collective.
void check_same_weights(const std::string& path, nn::Module& model, dist::ProcessGroup& world);

}  // namespace shardgrad::train
