#pragma once
// The norm of all gradients together, and the factor that bounds it. The sum of squares is a fixed binary tree in f64:
// over the elements of blocks of 32, over the blocks of each parameter, over the parameters in the order of their
// names. Shards begin at blocks, so a sum over ranks can follow the same tree.
//
//     double norm = optim::grad_norm(model->named_parameters());
//     optimizer.step(optim::clip_factor(norm, 1.0));

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include <shardgrad/autograd/parameter.h>

namespace shardgrad::optim {

inline constexpr int64_t kNormBlock = 32;  ///< elements

/// The sum of squares of each block of a floating tensor (waits for its device).
std::vector<double> block_squares(const Tensor& tensor);
/// Adds neighbours 2i and 2i + 1, an odd last one carried up, until one is left; 0 for none.
double tree_sum(std::vector<double> parts);

/// The Euclidean norm of all gradients of `parameters`; those without one count as 0. `reduce`, if given, turns this
/// rank's sum of squares into the sum over all ranks. Throws Error(input) for a sharded gradient.
double grad_norm(std::span<const NamedParameter> parameters, const std::function<double(double)>& reduce = {});
/// What to multiply gradients of norm `norm` with so that it is at most `max_norm`: min(1, max_norm / (norm + 1e-6)).
/// Throws Error(input) for a norm that is not finite.
double clip_factor(double norm, double max_norm);

}  // namespace shardgrad::optim
