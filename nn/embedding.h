#pragma once

#include <shardgrad/autograd/ops.h>
#include <shardgrad/nn/module.h>

namespace shardgrad::nn {

/// Looks rows up: ids (any shape, i64) → ids.shape + [features]. weight: (count, features), drawn from N(0, 1) unless
/// told otherwise.
class Embedding : public Module {
 public:
  Tensor weight;

  Embedding(int64_t count, int64_t features, const Init& init = init::normal())
      : weight(param("weight", {count, features}, init)) {}
  Tensor forward(const Tensor& ids) { return embedding(weight, ids); }
};

}  // namespace shardgrad::nn
