#pragma once
// Attention on tensor cores: bf16 and f16, heads of up to 128 elements, a multiple of 16. Scores never leave the chip,
// as in FlashAttention-2 (arXiv 2307.08691): a block has 64 queries of a head (in backward, for keys and values, 64
// keys) and meets the others 64 at a time. All of these give false, having queued nothing, for what they do not take;
// the plain kernels take it then.
//
// Products are of 16-bit numbers, summed in f32: weights, and in backward their slopes, are rounded to 16 bits before
// they are multiplied with values. What is not finite in a value (in backward: in what a weight or slope is multiplied
// with) makes NaN of the elements that see it, and of no other.

#include <shardgrad/kernels/cuda/launch.h>

namespace shardgrad::SG_DEVICE {

bool attention_by_tiles(const Launch& how, OutView y, OutView lse, View qkv, View starts, kernels::AttentionArgs args);
bool attention_backward_by_tiles(const Launch& how, OutView dqkv, View dy, View qkv, View y, View lse, View starts,
                                 kernels::AttentionArgs args);
/// Its half for keys and values, for what tiles take: means has Σ dy · y of each query.
void attention_keys_by_tiles(const Launch& how, OutView dqkv, View dy, View qkv, View lse, float* means, View starts,
                             kernels::AttentionArgs args);
bool attention_cached_by_tiles(const Launch& how, OutView y, View qkv, View keys, View values, View starts,
                               kernels::CachedAttentionArgs args);

/// Calls visit.operator()<T, D>() where tiles take heads of `depth` elements; D is depth or more.
template <class Visitor> bool dispatch_tiles(DType dtype, int64_t depth, double scale, Visitor&& visit) {
  if (depth % 16 != 0 || depth == 0 || depth > 128 || !(scale > 0)) return false;
  auto with = [&]<class T>() {
    if (depth <= 32)
      visit.template operator()<T, 32>();
    else if (depth <= 64)
      visit.template operator()<T, 64>();
    else
      visit.template operator()<T, 128>();
    return true;
  };
  if (dtype == DType::bf16) return with.template operator()<bf16>();
  return dtype == DType::f16 && with.template operator()<f16>();
}

/// Whether operands begin at multiples of so many bytes; rows are a multiple of 32 bytes long.
inline bool lie_at(size_t bytes, std::initializer_list<const void*> operands) {
  return std::ranges::all_of(operands,
                             [=](const void* data) { return reinterpret_cast<uintptr_t>(data) % bytes == 0; });
}

}  // namespace shardgrad::SG_DEVICE
