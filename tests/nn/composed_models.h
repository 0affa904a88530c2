#pragma once
// GPT-2 and LLaMA of operations on whole matrices: scores of T² elements, a mask that is added, softmax. Slow, and for
// reading beside the models of nn/, which must give the same.

#include <cmath>
#include <numbers>

#include <shardgrad/nn/gpt2.h>
#include <shardgrad/nn/llama.h>

namespace shardgrad::test {

/// What a model has: its parameters, or copies of them that record gradients, by name.
using Weights = nn::StateDict;

// (B, T, count · d) → (B, count, T, d)
inline Tensor into_heads(const Tensor& x, int64_t count) {
  return permute(reshape(x, {x.size(0), x.size(1), count, x.size(2) / count}), {0, 2, 1, 3});
}

// 0 where a token sees another one, else so much that its weight is 0: (T, T).
inline Tensor causal_mask(int64_t places, const Tensor& like) {
  std::vector<double> mask;
  for (int64_t i = 0; i < places; ++i)
    for (int64_t j = 0; j < places; ++j) mask.push_back(j <= i ? 0 : -1e30);
  return from_vector(mask, {places, places}).to(like.dtype());
}

/// q (B, H, T, d), k and v (B, H, T, d) → (B, T, H · d)
inline Tensor attend_composed(const Tensor& q, const Tensor& k, const Tensor& v) {
  int64_t samples = q.size(0), heads = q.size(1), places = q.size(2), depth = q.size(3);
  Tensor scores = matmul(q, k, false, true) * (1 / std::sqrt(double(depth)));
  Tensor weights = softmax(scores + causal_mask(places, q));
  return reshape(permute(matmul(weights, v), {0, 2, 1, 3}), {samples, places, heads * depth});
}

/// -Σ log softmax(logits)[label] / count over the first `classes` columns.
inline Tensor loss_composed(const Tensor& logits, const Tensor& labels, double count) {
  Tensor rows = reshape(logits, {labels.numel(), logits.size(-1)});
  return sum(gather(log_softmax(rows), 1, reshape(labels, {labels.numel(), 1}))) * (-1 / count);
}

inline Tensor gpt2_composed(const Weights& w, const nn::Gpt2Options& o, const Tensor& ids) {
  auto product = [&](const Tensor& x, const std::string& name) {
    return matmul(x, w.at(name + ".weight"), false, true) + w.at(name + ".bias");
  };
  auto norm = [&](const Tensor& x, const std::string& name) {
    Tensor centred = x - mean(x, -1, true), variance = mean(centred * centred, -1, true);
    return centred * pow(variance + o.layer_norm_epsilon, -0.5) * w.at(name + ".weight") + w.at(name + ".bias");
  };
  Tensor x = embedding(w.at("wte.weight"), ids) + embedding(w.at("wpe.weight"), arange(ids.size(1), DType::i64));
  for (int64_t i = 0; i < o.n_layer; ++i) {
    std::string block = "h." + std::to_string(i);
    Tensor qkv = product(norm(x, block + ".ln_1"), block + ".attn.c_attn");
    auto part = [&](int64_t p) { return into_heads(slice(qkv, 2, p * o.n_embd, (p + 1) * o.n_embd), o.n_head); };
    x = x + product(attend_composed(part(0), part(1), part(2)), block + ".attn.c_proj");
    x = x + product(gelu(product(norm(x, block + ".ln_2"), block + ".mlp.c_fc"), true), block + ".mlp.c_proj");
  }
  return matmul(norm(x, "ln_f"), w.at("lm_head.weight"), false, true);
}

// x (B, heads, T, d): pairs (i, i + d/2) rotated by the place times theta^(-2i/d).
inline Tensor rotate_composed(const Tensor& x, double theta) {
  int64_t places = x.size(2), half = x.size(3) / 2;
  std::vector<double> cosines, sines;
  for (int64_t p = 0; p < places; ++p)
    for (int64_t i = 0; i < half; ++i) {
      double angle = double(p) * std::pow(theta, -double(i) / double(half));
      cosines.push_back(std::cos(angle)), sines.push_back(std::sin(angle));
    }
  Tensor c = from_vector(cosines, {places, half}).to(x.dtype()), s = from_vector(sines, {places, half}).to(x.dtype());
  Tensor a = slice(x, 3, 0, half), b = slice(x, 3, half, 2 * half);
  return cat(std::vector<Tensor>{a * c - b * s, b * c + a * s}, 3);
}

// (B, G, T, d) → (B, heads, T, d): each for as many neighbours as any other.
inline Tensor for_heads(const Tensor& x, int64_t heads) {
  int64_t samples = x.size(0), groups = x.size(1), places = x.size(2), depth = x.size(3);
  Tensor each = reshape(x, {samples, groups, 1, places, depth});
  return reshape(expand(each, {samples, groups, heads / groups, places, depth}), {samples, heads, places, depth});
}

inline Tensor llama_composed(const Weights& w, const nn::LlamaOptions& o, const Tensor& ids) {
  auto product = [&](const Tensor& x, const std::string& name) {
    return matmul(x, w.at(name + ".weight"), false, true);
  };
  auto norm = [&](const Tensor& x, const std::string& name) {
    return x * pow(mean(x * x, -1, true) + o.rms_norm_eps, -0.5) * w.at(name + ".weight");
  };
  int64_t heads = o.num_attention_heads, groups = o.kv_heads(), depth = o.depth(), wide = o.intermediate_size;
  Tensor x = embedding(w.at("embed_tokens.weight"), ids);
  for (int64_t i = 0; i < o.num_hidden_layers; ++i) {
    std::string layer = "layers." + std::to_string(i);
    Tensor qkv = product(norm(x, layer + ".input_layernorm"), layer + ".self_attn.qkv");
    auto part = [&](int64_t first, int64_t count) {
      return into_heads(slice(qkv, 2, first * depth, (first + count) * depth), count);
    };
    Tensor q = rotate_composed(part(0, heads), o.rope.theta);
    Tensor k = for_heads(rotate_composed(part(heads, groups), o.rope.theta), heads);
    Tensor v = for_heads(part(heads + groups, groups), heads);
    x = x + product(attend_composed(q, k, v), layer + ".self_attn.o_proj");
    Tensor both = product(norm(x, layer + ".post_attention_layernorm"), layer + ".mlp.gate_up");
    x = x + product(silu(slice(both, 2, 0, wide)) * slice(both, 2, wide, 2 * wide), layer + ".mlp.down_proj");
  }
  return matmul(norm(x, "norm"), w.at("lm_head.weight"), false, true);
}

}  // namespace shardgrad::test
