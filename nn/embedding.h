#pragma once

#include <shardgrad/autograd/ops.h>
#include <shardgrad/nn/module.h>

namespace shardgrad::nn {

/// Looks rows up: ids (any shape, i64) → ids.shape + [features]. weight: (count, features), drawn from N(0, 1) unless
/// told otherwise. Ids are below `rows`, where that is not 0: the rows from there on are padding.
class Embedding : public Module {
 public:
  Tensor weight;

  Embedding(int64_t count, int64_t features, const Init& init = init::normal(), int64_t rows = 0)
      : weight(param("weight", {count, features}, init)), rows_(rows) {}
  Tensor forward(const Tensor& ids) { return embedding(weight, ids, rows_); }

 private:
  int64_t rows_;
};

}  // namespace shardgrad::nn
