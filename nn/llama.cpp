#include <shardgrad/nn/llama.h>

#include <algorithm>
#include <bit>

#include <shardgrad/autograd/node.h>
#include <shardgrad/core/context.h>

namespace shardgrad::nn {
namespace {

LanguageModel::Sizes sizes_of(const LlamaOptions& o) {
  bool positive = o.hidden_size > 0 && o.intermediate_size > 0 && o.num_hidden_layers > 0 && o.num_attention_heads > 0;
  SG_CHECK(positive && o.num_key_value_heads >= 0 && o.num_attention_heads % o.kv_heads() == 0, "llama: hidden_size ",
           o.hidden_size, ", intermediate_size ", o.intermediate_size, ", num_hidden_layers ", o.num_hidden_layers,
           ", num_attention_heads ", o.num_attention_heads, " and num_key_value_heads ", o.num_key_value_heads,
           " do not go together; heads must be a multiple of kv heads, and all at least 1 (kv heads 0: as many)");
  SG_CHECK(o.head_dim > 0 || (o.head_dim == 0 && o.hidden_size % o.num_attention_heads == 0), "llama: head_dim ",
           o.head_dim, " cannot be; 0 is hidden_size ", o.hidden_size, " / num_attention_heads ", o.num_attention_heads,
           ", where that is whole");
  SG_CHECK(o.depth() % 2 == 0, "llama: heads of head_dim ", o.depth(), " cannot be rotated by pairs; it must be even");
  return {o.vocab_size, o.max_position_embeddings, o.vocab_multiple};
}

}  // namespace

LlamaAttention::LlamaAttention(const LlamaOptions& o)
    : heads_(o.num_attention_heads), kv_heads_(o.kv_heads()), dropout_(o.attention_dropout) {
  int64_t rows = (heads_ + 2 * kv_heads_) * o.depth();
  qkv = child<Linear>("qkv", o.hidden_size, rows, false, Activation::none, usual_init());
  o_proj = child<Linear>("o_proj", heads_ * o.depth(), o.hidden_size, false, Activation::none,
                         residual_init(o.num_hidden_layers));
}

Tensor LlamaAttention::forward(const Tensor& x, const TextPlace& place) {
  Tensor rotated =
      rope(qkv(x), place.rope_table, heads_, kv_heads_, place.starts, place.first());  // (B, T, (H + 2G) d)
  AttentionOptions how{.heads = heads_, .kv_heads = kv_heads_, .dropout = training() ? dropout_ : 0};
  return o_proj(attend(rotated, place, how, full_name()));
}

LlamaMlp::LlamaMlp(const LlamaOptions& o) {
  gate_up = child<Linear>("gate_up", o.hidden_size, 2 * o.intermediate_size, false, Activation::none, usual_init());
  down_proj = child<Linear>("down_proj", o.intermediate_size, o.hidden_size, false, Activation::none,
                            residual_init(o.num_hidden_layers));
}

LlamaBlock::LlamaBlock(const LlamaOptions& o)
    : input_layernorm(child<RMSNorm>("input_layernorm", o.hidden_size, o.rms_norm_eps)),
      self_attn(child<LlamaAttention>("self_attn", o)),
      post_attention_layernorm(child<RMSNorm>("post_attention_layernorm", o.hidden_size, o.rms_norm_eps)),
      mlp(child<LlamaMlp>("mlp", o)) {}

Tensor LlamaBlock::forward(const Tensor& x, const TextPlace& place) {
  AddNormResult attended = add_and_norm(post_attention_layernorm, x, self_attn(input_layernorm(x), place));
  return attended.sum + mlp(attended.y);
}

Llama::Llama(const LlamaOptions& o) : LanguageModel(sizes_of(o)), options_(o) {
  Init usual = usual_init().weight;
  embed_tokens =
      child<Embedding>("embed_tokens", padded_vocabulary(), o.hidden_size, usual, std::nullopt, o.vocab_size);
  layers = child<ModuleList<LlamaBlock>>("layers");
  for (int64_t i = 0; i < o.num_hidden_layers; ++i) layers->add(o);
  norm = child<RMSNorm>("norm", o.hidden_size, o.rms_norm_eps);
  lm_head = child<LanguageHead>("lm_head", o.vocab_size, padded_vocabulary(), o.hidden_size, usual);
  if (o.tie_word_embeddings) tie(embed_tokens->weight, lm_head->weight);
}

// It is not state: whoever has the options can make it. Threads that call the model at once share it.
Tensor Llama::table_of(int64_t positions, const Tensor& x) {
  std::lock_guard lock(table_mutex_);
  DType dtype = x.dtype() == DType::f64 ? DType::f64 : DType::f32;
  bool fits = rope_table_.defined() && rope_table_.dtype() == dtype && rope_table_.device() == x.device();
  positions = std::min(positions, max_positions());
  if (fits && rope_table_.size(0) >= positions) return rope_table_;
  TagScope owner(Category::other);
  int64_t rows = std::min(max_positions(), int64_t(std::bit_ceil(uint64_t(positions))));
  return rope_table_ = rope_table(rows, options_.depth(), options_.rope, {dtype, x.device()});
}

Tensor Llama::features(const Tensor& ids, TextPlace place) {
  Tensor x = embed_tokens(ids);  // (B, T, C)
  int64_t end = place.first() + ids.size(1);
  if (place.cache) end = std::max(end, place.cache->positions());  // a text grows into what it has
  place.rope_table = table_of(end, x);
  for (const Child<LlamaBlock>& layer : *layers) {
    x = layer(x, place);
    ++place.layer;
  }
  return norm(x);
}

}  // namespace shardgrad::nn
