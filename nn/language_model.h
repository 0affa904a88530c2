#pragma once
// What causal language models have in common: tokens go in, and out comes either a number for each token that could
// follow, or the loss.
//
//     auto model = nn::make<nn::Gpt2>(nn::Gpt2Options{.n_embd = 192, .n_layer = 6, .n_head = 6});
//     Tensor logits = model(ids);                                                     // (B, T, vocab_size)
//     Tensor loss = model(ids, nn::TextCall{.labels = next, .loss = {.count = n}});   // no logits are kept for it
//     nn::Child<nn::LanguageModel> any = model;                                       // whichever it is
//
// Both go through the call of the model, so hooks, and with them sharding, see both.
//
// Parameters have the names of Hugging Face's models, without the leading "transformer." or "model.", and are (out,
// in). What is read by one product is one parameter: c_attn has it in GPT-2; LLaMA's q_proj, k_proj and v_proj are
// `qkv`, one under the other, and gate_proj and up_proj are `gate_up`. `lm_head.weight` is a second name of the table
// where they are tied.

#include <tuple>

#include <shardgrad/autograd/ops.h>
#include <shardgrad/nn/kv_cache.h>
#include <shardgrad/nn/linear.h>

namespace shardgrad::nn {

/// What a call of a language model gets beside the tokens.
struct TextCall {
  /// The token that follows each one, i64 (B, T): the call gives the loss. Undefined: the call gives logits.
  Tensor labels = {};
  /// `count` is that of the labels of the whole batch, over all ranks; `classes` is the model's own.
  LinearCrossEntropyOptions loss = {};
  /// i64 (B), or undefined: a row's tokens begin at starts[b], and what is before it is padding. Positions count from
  /// there.
  Tensor starts = {};
  /// The tokens follow those that it has, with its `starts`, and are in it afterwards. No labels, nothing is recorded.
  KvCache* cache = nullptr;
  bool last_only = false;  ///< logits of each row's last token alone, (B, 1, vocab_size)
};

/// What attention knows of a call, the same in every block.
struct TextPlace {
  Tensor starts = {};  ///< as in TextCall, or the cache's
  KvCache* cache = nullptr;
  int64_t layer = 0;       ///< of the cache
  Tensor rope_table = {};  ///< rope()'s of LLaMA, the model's own

  int64_t first() const { return cache ? cache->length() : 0; }  ///< tokens of a row before this call
};
/// For autograd/traverse.h. Without the table: what a unit gets may be converted to 16 bits, and this not.
inline auto tensors_of(TextPlace& place) { return std::tie(place.starts); }
inline auto tensors_of(const TextPlace& place) { return std::tie(place.starts); }
/// attention() of this call's rows, and of those in the cache where there is one.
Tensor attend(const Tensor& qkv, const TextPlace& place, const AttentionOptions& options, std::string_view name);

/// The last product of a language model, with the loss where that is wanted. weight: (width, features), of which the
/// rows from vocab_size on are padding: no call sees them.
class LanguageHead : public Module {
 public:
  Tensor weight;

  LanguageHead(int64_t vocab_size, int64_t width, int64_t features, const Init& init)
      : weight(param("weight", {width, features}, init)), vocab_size_(vocab_size) {}
  /// x (…, features) → logits (…, vocab_size).
  Tensor forward(const Tensor& x);
  /// The loss of x (…, features): one element. labels: i64, one for each row of x.
  Tensor forward(const Tensor& x, const Tensor& labels, const LinearCrossEntropyOptions& options);

 private:
  int64_t vocab_size_;
};

class LanguageModel : public Module {
 public:
  struct Sizes {
    int64_t vocab_size, max_positions;
    int64_t vocab_multiple = 1;  ///< the table's rows are padded to a multiple of it, which products may like better
  };

  /// ids: i64 (B, T) → logits (B, T, vocab_size), or with labels the loss: one element, f32 (f64 for f64). Throws
  /// Error(input) for more than max_positions tokens in a row, and for an id that is not in the vocabulary: at once
  /// on the CPU, elsewhere, where ids are not waited for, at the next wait.
  Tensor forward(const Tensor& ids, const TextCall& call = {});

  int64_t vocab_size() const { return sizes_.vocab_size; }
  /// The most tokens in a row.
  int64_t max_positions() const { return sizes_.max_positions; }

 protected:
  /// Throws Error(input) for sizes below 1.
  explicit LanguageModel(const Sizes& sizes);
  /// Rows of the table.
  int64_t padded_vocabulary() const;
  /// What the head reads, (B, T, features). Called by forward, with ids that are in the vocabulary.
  virtual Tensor features(const Tensor& ids, TextPlace place) = 0;
  virtual const Child<LanguageHead>& head() const = 0;

 private:
  void check(const Tensor& ids, const TextCall& call) const;
  Sizes sizes_;
};

/// The recipe of GPT-2: weights from N(0, 0.02²); those of products whose results are added to what goes on through
/// `layers` blocks of two are narrower by √(2 layers). Biases are 0.
LinearInit usual_init();
LinearInit residual_init(int64_t layers);

}  // namespace shardgrad::nn
