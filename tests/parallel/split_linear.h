#pragma once
// A column-parallel and a row-parallel Linear (Megatron-LM, arXiv 1909.08053) in a few lines each.

#include <cmath>

#include <shardgrad/autograd/ops.h>
#include <shardgrad/nn/nn.h>
#include <shardgrad/parallel/collectives.h>

namespace shardgrad::parallel::testing {

/// What of `extent` indices a rank has; of 5 on 2 ranks the first has 2, the second 3.
struct Range {
  int64_t begin, size;
  Range(int64_t extent, const dist::ProcessGroup& group)
      : begin(extent * group.rank() / group.size()), size(extent * (group.rank() + 1) / group.size() - begin) {}
};

inline nn::Init weight_init() { return nn::init::kaiming_uniform(std::sqrt(5.0)); }

/// Holds some of the outputs. x is replicated, the result is split along the last dimension.
struct ColumnParallelLinear : nn::Module {
  dist::ProcessGroup* group;
  Tensor weight, bias;
  ColumnParallelLinear(int64_t in, int64_t out, dist::ProcessGroup& model) : group(&model) {
    Range mine(out, model);
    double bound = 1 / std::sqrt(double(in));
    weight = param("weight", {mine.size, in}, weight_init(), {0, mine.begin, out});
    bias = param("bias", {mine.size}, nn::init::uniform(-bound, bound), {0, mine.begin, out});
  }
  Tensor forward(const Tensor& x) { return linear(copy_to_group(x, *group), weight, bias); }
};

/// Holds some of the inputs. x is split along the last dimension, the result is replicated.
struct RowParallelLinear : nn::Module {
  dist::ProcessGroup* group;
  Tensor weight, bias;
  RowParallelLinear(int64_t in, int64_t out, dist::ProcessGroup& model) : group(&model) {
    Range mine(in, model);
    double bound = 1 / std::sqrt(double(in));
    weight = param("weight", {out, mine.size}, weight_init(), {1, mine.begin, in});
    bias = param("bias", {out}, nn::init::uniform(-bound, bound));
  }
  Tensor forward(const Tensor& x) { return reduce_from_group(linear(x, weight, Tensor()), *group) + bias; }
};

}  // namespace shardgrad::parallel::testing
