#pragma once
// GPT-2 and LLaMA that are small, and have odd sizes. Tests change the options that they are about.

#include <shardgrad/nn/gpt2.h>
#include <shardgrad/nn/llama.h>

namespace shardgrad::test {

inline nn::Gpt2Options small_gpt2(double dropout = 0) {
  return {.vocab_size = 50,
          .n_positions = 16,
          .n_embd = 24,
          .n_layer = 2,
          .n_head = 3,
          .embd_pdrop = dropout,
          .attn_pdrop = dropout,
          .resid_pdrop = dropout};
}

inline nn::LlamaOptions small_llama(double dropout = 0) {
  return {.vocab_size = 50,
          .max_position_embeddings = 16,
          .hidden_size = 24,
          .intermediate_size = 40,
          .num_hidden_layers = 2,
          .num_attention_heads = 4,
          .num_key_value_heads = 2,
          .head_dim = 8,
          .attention_dropout = dropout};
}

}  // namespace shardgrad::test
