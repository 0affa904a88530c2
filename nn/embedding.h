#pragma once

#include <optional>

#include <shardgrad/autograd/ops.h>
#include <shardgrad/nn/module.h>

namespace shardgrad::nn {

/// Looks rows up: ids (any shape, i64) → ids.shape + [features]. weight: (count, features), drawn from N(0, 1) unless
/// told otherwise. Ids are below `rows`, where that is not 0: the rows from there on are padding.
class Embedding : public Module {
 public:
  Tensor weight;

  /// `padding`, negative from the end: a row that counts as zeros whatever it holds, and has no gradient.
  Embedding(int64_t count, int64_t features, const Init& init = init::normal(), std::optional<int64_t> padding = {},
            int64_t rows = 0)
      : weight(param("weight", {count, features}, init)), padding_(padding), rows_(rows) {
    SG_CHECK(!padding || (*padding >= -count && *padding < count), "Embedding: there is no row ", padding.value_or(0),
             " of ", count, " that could be padding");
    if (padding && *padding < 0) *padding_ += count;
  }
  Tensor forward(const Tensor& ids) {
    Tensor found = embedding(weight, ids, rows_);
    return padding_ ? masked_fill(found, unsqueeze(ids == double(*padding_), -1), 0) : found;
  }

 private:
  std::optional<int64_t> padding_;
  int64_t rows_;
};

}  // namespace shardgrad::nn
