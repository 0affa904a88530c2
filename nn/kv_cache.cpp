#include <shardgrad/nn/kv_cache.h>

#include <shardgrad/core/context.h>

namespace shardgrad::nn {

KvCache::KvCache(int64_t positions, Tensor starts) : positions_(positions), starts_(std::move(starts)) {
  SG_CHECK(positions > 0, "a cache of ", positions, " positions cannot be; it must have at least 1");
}

Tensor KvCache::attend(int64_t layer, const Tensor& qkv, const AttentionOptions& options) {
  int64_t kv_heads = options.kv_heads > 0 ? options.kv_heads : options.heads;
  int64_t depth = qkv.size(-1) / (options.heads + 2 * kv_heads);
  if (layer >= std::ssize(layers_)) layers_.resize(size_t(layer) + 1);
  Layer& of = layers_[size_t(layer)];
  if (!of.keys.defined()) {
    TagScope owner(Category::kv_cache);
    Shape shape{qkv.size(0), kv_heads, positions_, depth};
    of.keys = empty(shape, {qkv.dtype(), qkv.device()});
    of.values = empty(shape, {qkv.dtype(), qkv.device()});
  }
  return attention_cached(qkv, of.keys, of.values, length_, starts_, options);
}

}  // namespace shardgrad::nn
