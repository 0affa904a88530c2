#pragma once
// GPT-2 (Radford et al. 2019), as Hugging Face's GPT2LMHeadModel computes it. A token's way: wte + wpe, then through
// the blocks x + attn(ln_1(x)) and x + mlp(ln_2(x)), then ln_f and the head. Parameters:
//
//     wte.weight (vocabulary, C)                  wpe.weight (n_positions, C)
//     h.0.ln_1.weight, .bias (C)                  h.0.ln_2.weight, .bias (C)
//     h.0.attn.c_attn.weight (3C, C), .bias       h.0.attn.c_proj.weight (C, C), .bias
//     h.0.mlp.c_fc.weight (n_inner, C), .bias     h.0.mlp.c_proj.weight (C, n_inner), .bias
//     ln_f.weight, .bias (C)                      lm_head.weight: wte.weight, where tied
//
// Hugging Face's weights in h are (in, out): to be transposed.

#include <shardgrad/nn/containers.h>
#include <shardgrad/nn/dropout.h>
#include <shardgrad/nn/embedding.h>
#include <shardgrad/nn/language_model.h>
#include <shardgrad/nn/linear.h>
#include <shardgrad/nn/normalization.h>

namespace shardgrad::nn {

/// With Hugging Face's names. The defaults, but for dropout, are GPT-2 of 124,439,808 parameters.
struct Gpt2Options {
  int64_t vocab_size = 50257, n_positions = 1024, n_embd = 768, n_layer = 12, n_head = 12;
  int64_t n_inner = 0;  ///< width between the two products of mlp; 0: 4 n_embd
  double layer_norm_epsilon = 1e-5;
  double embd_pdrop = 0, attn_pdrop = 0, resid_pdrop = 0;  ///< dropout in training
  bool tie_word_embeddings = true;
  int64_t vocab_multiple = 1;  ///< as LanguageModel::Sizes
};

class Gpt2Attention : public Module {
 public:
  explicit Gpt2Attention(const Gpt2Options& options);
  /// x: (B, T, C) → (B, T, C)
  Tensor forward(const Tensor& x, const TextPlace& place);

  Child<Linear> c_attn, c_proj;
  Child<Dropout> resid_dropout;

 private:
  int64_t heads_;
  double dropout_;
};

class Gpt2Mlp : public Module {
 public:
  explicit Gpt2Mlp(const Gpt2Options& options);
  Tensor forward(const Tensor& x) { return dropout(c_proj(c_fc(x))); }

  Child<Linear> c_fc, c_proj;  ///< c_fc: with gelu in its tanh form
  Child<Dropout> dropout;
};

class Gpt2Block : public Module {
 public:
  explicit Gpt2Block(const Gpt2Options& options);
  /// x: (B, T, C) → (B, T, C)
  Tensor forward(const Tensor& x, const TextPlace& place);

  Child<LayerNorm> ln_1;
  Child<Gpt2Attention> attn;
  Child<LayerNorm> ln_2;
  Child<Gpt2Mlp> mlp;
};

class Gpt2 : public LanguageModel {
 public:
  /// Throws Error(input) for sizes that do not go together.
  explicit Gpt2(const Gpt2Options& options = {});
  const Gpt2Options& options() const { return options_; }

  Child<Embedding> wte, wpe;
  Child<Dropout> drop;
  Child<ModuleList<Gpt2Block>> h;
  Child<LayerNorm> ln_f;
  Child<LanguageHead> lm_head;

 protected:
  Tensor features(const Tensor& ids, TextPlace place) override;
  const Child<LanguageHead>& head() const override { return lm_head; }

 private:
  Gpt2Options options_;
};

}  // namespace shardgrad::nn
