#pragma once
// Which tensors of a Hugging Face folder a model's parameters are made of.

#include <map>
#include <string>
#include <vector>

#include <shardgrad/train/hf/config.h>

namespace shardgrad::train::hf {

/// The head of a model, also of the folder.
inline constexpr const char* kHead = "lm_head.weight";

/// A tensor of the folder.
struct Part {
  std::string name;  ///< as a causal language model is saved: "transformer.h.0.attn.c_attn.weight"
  Shape shape;
  bool transposed = false;  ///< it is (in, out), as GPT-2's Conv1D has its weights; ours is (out, in)
  bool is_table = false;    ///< of the vocabulary: the model's may have more rows, which are padding

  /// Its rows and columns as the parameter has them.
  Shape own_shape() const { return transposed ? Shape{shape[1], shape[0]} : shape; }
};

/// By the parameter's name: the parts that it has one under the other.
using Layout = std::map<std::string, std::vector<Part>>;

Layout layout_of(const ModelOptions& options);

/// A name without the leading "transformer." or "model.", which the bare model is saved without.
std::string bare_name(const std::string& name);

/// Whether a tensor of the folder is none of the model's parameters though an older transformers has saved it: a mask
/// of attention, or the frequencies of rotations.
bool is_left_over(const std::string& name);

}  // namespace shardgrad::train::hf
