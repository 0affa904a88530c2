#pragma once
// The norm of all gradients together, and its bound. The sum of |x|^p (the maximum of |x| for p = inf) is a fixed
// binary tree in f64: over the elements of blocks of 32, over the blocks of each parameter, over the parameters in the
// order of their names. A tree over five blocks, an odd last one carried up:
//
//     ((0 + 1) + (2 + 3)) + 4
//
// A rank that holds blocks 1 to 4 knows the subtrees 1, (2 + 3) and 4; whoever gets them and 0 finishes the same tree.
// So the norm has the same bits however the parameters are cut.
//
//     double norm = optim::clip_grad_norm(model->named_parameters(), 1.0);

#include <cstdint>
#include <span>
#include <vector>

#include <shardgrad/autograd/parameter.h>
#include <shardgrad/kernels/ops.h>

namespace shardgrad::optim {

using kernels::kNormBlock;

/// The p-norm of all gradients of `parameters`; those without one count as 0. Throws Error(input) for p below 1, for a
/// sharded gradient, and for a part of a larger parameter.
double grad_norm(std::span<const NamedParameter> parameters, double p = 2);
/// Multiplies all gradients so that their norm is at most `max_norm`, and returns the norm they had.
/// Throws Error(input) for a norm that is not finite.
double clip_grad_norm(std::span<const NamedParameter> parameters, double max_norm, double p = 2);
/// Throws Error(input) for a part of a larger parameter: ranks that hold other parts would get other norms.
void check_norm_of_whole(const char* call, const std::string& name, const Shape& shape, const Part& part);
/// What to multiply gradients of norm `norm` with: min(1, max_norm / (norm + 1e-6)). Throws Error(input) for a norm
/// that is not finite.
double clip_factor(double norm, double max_norm);

// --- the tree, for gradients that are spread over ranks ------------------------------------------------------------

/// Joins neighbours 2i and 2i + 1, an odd last one carried up, until one is left; 0 for none.
double tree_join(std::vector<double> parts, double p);
/// The p-th root of a joined value.
double root_of(double power, double p);

/// Blocks [begin, end) of one parameter.
struct Blocks {
  int64_t begin, end;
  auto operator<=>(const Blocks&) const = default;
};
/// The fewest whole subtrees of the tree over `count` blocks that make up `part`, in order.
std::vector<Blocks> subtrees(Blocks part, int64_t count);
/// What a rank holds of a parameter's gradient: the elements of `blocks`, of a tree over `count`.
struct GradPart {
  Tensor grad;
  Blocks blocks;
  int64_t count;
};
/// For each part, the joined |x|^p of subtrees(blocks, count); max |x| for p = inf, where not-a-number wins. Joined
/// where the gradients are; the host waits once for each of their devices. Throws Error(input) for p below 1.
std::vector<std::vector<double>> subtree_powers(std::span<const GradPart> parts, double p);
/// The joined value of the tree over `count` blocks, from the values of subtrees that cover it.
double finish_tree(std::span<const Blocks> subtrees, std::span<const double> values, int64_t count, double p);

}  // namespace shardgrad::optim
