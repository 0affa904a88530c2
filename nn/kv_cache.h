#pragma once
// The keys and values of the tokens that a language model has read, so that the next token costs one row of each
// product, not all rows again:
//
//     nn::KvCache cache(prompt.size(1) + 100);
//     NoGrad no_grad;
//     Tensor logits = model(prompt, nn::TextCall{.cache = &cache});   // (B, T, vocabulary)
//     logits = model(next, nn::TextCall{.cache = &cache});            // next: (B, 1)
//
// Rows of different length end together: those that are shorter begin at `starts`, behind padding.

#include <vector>

#include <shardgrad/autograd/ops.h>
#include <shardgrad/core/ledger.h>

namespace shardgrad::Category {
inline constexpr Kind kv_cache = named<"kv_cache">;
}

namespace shardgrad::nn {

class KvCache {
 public:
  /// For `positions` tokens of a row, padding included. starts: i64 (B), or undefined for 0. Layers get their memory
  /// when they are first called, of the dtype that they compute in.
  explicit KvCache(int64_t positions, Tensor starts = Tensor());

  /// Attention of rows that follow those that layer number `layer` has seen, as attention_cached(). Every layer is to
  /// be called once before advance(). Throws Error(input) when the cache is full.
  Tensor attend(int64_t layer, const Tensor& qkv, const AttentionOptions& options);
  /// So many tokens of a row have been through all layers.
  void advance(int64_t tokens) { length_ += tokens; }

  int64_t positions() const { return positions_; }
  /// Tokens of a row that have been read, padding included.
  int64_t length() const { return length_; }
  const Tensor& starts() const { return starts_; }
  /// Bytes that a cache takes in the ledger, as `kv_cache`.
  static int64_t bytes(int64_t layers, int64_t samples, int64_t kv_heads, int64_t positions, int64_t head_dim,
                       DType dtype) {
    return 2 * layers * samples * kv_heads * positions * head_dim * int64_t(size_of(dtype));
  }

 private:
  struct Layer {
    Tensor keys, values;  // (B, kv_heads, positions, head_dim)
  };
  int64_t positions_, length_ = 0;
  Tensor starts_;
  std::vector<Layer> layers_;
};

}  // namespace shardgrad::nn
