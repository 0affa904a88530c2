#include <shardgrad/nn/gpt2.h>

namespace shardgrad::nn {
namespace {

LanguageModel::Sizes sizes_of(const Gpt2Options& o) {
  SG_CHECK(o.n_embd > 0 && o.n_layer > 0 && o.n_head > 0 && o.n_inner >= 0 && o.n_embd % o.n_head == 0, "gpt2: n_embd ",
           o.n_embd, ", n_layer ", o.n_layer, ", n_head ", o.n_head, " and n_inner ", o.n_inner,
           " do not go together; n_embd must be a multiple of n_head, and all at least 1 (n_inner 0: 4 n_embd)");
  return {o.vocab_size, o.n_positions, o.vocab_multiple};
}

// The place of each token in its row, i64: (T), or (B, T) where rows begin at `starts`. Padding is at 0.
Tensor positions_of(const Tensor& ids, const TextPlace& place) {
  int64_t samples = ids.size(0), first = place.first(), end = first + ids.size(1);
  Tensor places_of_row = arange(ids.size(1), {DType::i64, ids.device()});
  if (first > 0) places_of_row = places_of_row + double(first);
  if (!place.starts.defined()) return places_of_row;
  return clamp(places_of_row - reshape(place.starts, {samples, 1}), 0, double(end));
}

}  // namespace

Gpt2Attention::Gpt2Attention(const Gpt2Options& o)
    : c_attn(child<Linear>("c_attn", o.n_embd, 3 * o.n_embd, true, Activation::none, usual_init())),
      c_proj(child<Linear>("c_proj", o.n_embd, o.n_embd, true, Activation::none, residual_init(o.n_layer))),
      resid_dropout(child<Dropout>("resid_dropout", o.resid_pdrop)),
      heads_(o.n_head),
      dropout_(o.attn_pdrop) {}

Tensor Gpt2Attention::forward(const Tensor& x, const TextPlace& place) {
  AttentionOptions how{.heads = heads_, .dropout = training() ? dropout_ : 0};
  Tensor y = attend(c_attn(x), place, how, full_name());  // of (B, T, 3C)
  return resid_dropout(c_proj(y));
}

Gpt2Mlp::Gpt2Mlp(const Gpt2Options& o) {
  int64_t inner = o.n_inner > 0 ? o.n_inner : 4 * o.n_embd;
  c_fc = child<Linear>("c_fc", o.n_embd, inner, true, Activation::gelu_tanh, usual_init());
  c_proj = child<Linear>("c_proj", inner, o.n_embd, true, Activation::none, residual_init(o.n_layer));
  dropout = child<Dropout>("dropout", o.resid_pdrop);
}

Gpt2Block::Gpt2Block(const Gpt2Options& o)
    : ln_1(child<LayerNorm>("ln_1", o.n_embd, o.layer_norm_epsilon)),
      attn(child<Gpt2Attention>("attn", o)),
      ln_2(child<LayerNorm>("ln_2", o.n_embd, o.layer_norm_epsilon)),
      mlp(child<Gpt2Mlp>("mlp", o)) {}

Tensor Gpt2Block::forward(const Tensor& x, const TextPlace& place) {
  AddNormResult attended = add_and_norm(ln_2, x, attn(ln_1(x), place));
  return attended.sum + mlp(attended.y);
}

Gpt2::Gpt2(const Gpt2Options& o) : LanguageModel(sizes_of(o)), options_(o) {
  Init usual = usual_init().weight;
  wte = child<Embedding>("wte", padded_vocabulary(), o.n_embd, usual, std::nullopt, o.vocab_size);
  wpe = child<Embedding>("wpe", o.n_positions, o.n_embd, usual);
  drop = child<Dropout>("drop", o.embd_pdrop);
  h = child<ModuleList<Gpt2Block>>("h");
  for (int64_t i = 0; i < o.n_layer; ++i) h->add(o);
  ln_f = child<LayerNorm>("ln_f", o.n_embd, o.layer_norm_epsilon);
  lm_head = child<LanguageHead>("lm_head", o.vocab_size, padded_vocabulary(), o.n_embd, usual);
  if (o.tie_word_embeddings) tie(wte->weight, lm_head->weight);
}

Tensor Gpt2::features(const Tensor& ids, TextPlace place) {
  Tensor x = drop(wte(ids) + wpe(positions_of(ids, place)));  // (B, T, C)
  for (const Child<Gpt2Block>& block : *h) {
    x = block(x, place);
    ++place.layer;
  }
  return ln_f(x);
}

}  // namespace shardgrad::nn
