#pragma once
// LLaMA (Touvron et al. 2023), as Hugging Face's LlamaForCausalLM computes it. A token's way: embed_tokens, then
// through the layers x + self_attn(input_layernorm(x)) and x + mlp(post_attention_layernorm(x)), then norm and the
// head; its place is in the rotation of queries and keys. Parameters, for H heads and G kv heads of head_dim d:
//
//     embed_tokens.weight (vocabulary, C)
//     layers.0.input_layernorm.weight (C)          layers.0.post_attention_layernorm.weight (C)
//     layers.0.self_attn.qkv.weight ((H + 2G) d, C): q_proj, k_proj and v_proj, one under the other
//     layers.0.self_attn.o_proj.weight (C, H d)
//     layers.0.mlp.gate_up.weight (2F, C): gate_proj and up_proj, one under the other
//     layers.0.mlp.down_proj.weight (C, F)
//     norm.weight (C)                              lm_head.weight (vocabulary, C), or embed_tokens.weight, where tied

#include <mutex>

#include <shardgrad/autograd/rope_table.h>
#include <shardgrad/nn/containers.h>
#include <shardgrad/nn/embedding.h>
#include <shardgrad/nn/language_model.h>
#include <shardgrad/nn/linear.h>
#include <shardgrad/nn/normalization.h>

namespace shardgrad::nn {

/// With Hugging Face's names.
struct LlamaOptions {
  int64_t vocab_size = 32000, max_position_embeddings = 2048, hidden_size = 4096, intermediate_size = 11008;
  int64_t num_hidden_layers = 32, num_attention_heads = 32;
  int64_t num_key_value_heads = 0;  ///< each for as many neighbouring heads; 0: num_attention_heads
  int64_t head_dim = 0;             ///< 0: hidden_size / num_attention_heads
  double rms_norm_eps = 1e-6;
  RopeOptions rope = {};
  double attention_dropout = 0;  ///< in training
  bool tie_word_embeddings = false;
  int64_t vocab_multiple = 1;  ///< as LanguageModel::Sizes

  int64_t kv_heads() const { return num_key_value_heads > 0 ? num_key_value_heads : num_attention_heads; }
  int64_t depth() const { return head_dim > 0 ? head_dim : hidden_size / num_attention_heads; }
};

class LlamaAttention : public Module {
 public:
  explicit LlamaAttention(const LlamaOptions& options);
  /// x: (B, T, C) → (B, T, C)
  Tensor forward(const Tensor& x, const TextPlace& place);

  Child<Linear> qkv, o_proj;

 private:
  int64_t heads_, kv_heads_;
  double dropout_;
};

class LlamaMlp : public Module {
 public:
  explicit LlamaMlp(const LlamaOptions& options);
  Tensor forward(const Tensor& x) { return down_proj(swiglu(gate_up(x))); }

  Child<Linear> gate_up, down_proj;
};

class LlamaBlock : public Module {
 public:
  explicit LlamaBlock(const LlamaOptions& options);
  /// x: (B, T, C) → (B, T, C)
  Tensor forward(const Tensor& x, const TextPlace& place);

  Child<RMSNorm> input_layernorm;
  Child<LlamaAttention> self_attn;
  Child<RMSNorm> post_attention_layernorm;
  Child<LlamaMlp> mlp;
};

class Llama : public LanguageModel {
 public:
  /// Throws Error(input) for sizes that do not go together.
  explicit Llama(const LlamaOptions& options = {});
  const LlamaOptions& options() const { return options_; }

  Child<Embedding> embed_tokens;
  Child<ModuleList<LlamaBlock>> layers;
  Child<RMSNorm> norm;
  Child<LanguageHead> lm_head;

 protected:
  Tensor features(const Tensor& ids, TextPlace place) override;
  const Child<LanguageHead>& head() const override { return lm_head; }

 private:
  Tensor table_of(int64_t positions, const Tensor& x);
  LlamaOptions options_;
  std::mutex table_mutex_;
  Tensor rope_table_;  // of as many positions as were needed until now, or more
};

}  // namespace shardgrad::nn
