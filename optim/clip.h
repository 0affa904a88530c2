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
#include <shardgrad/optim/joins.h>

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

// --- without waiting -------------------------------------------------------------------------------------------------

/// The square of grad_norm(parameters): f64, one, where the gradients are.
Tensor grad_power(std::span<const NamedParameter> parameters);
/// The factor of a norm whose square a kernel has left in `power` (f64, one): min(1, max_norm / (norm + 1e-6)), or 1
/// where that is not finite, which nobody is told; for Optimizer::step. On power's device, and the host does not wait
/// for it. Of gradients that are still scaled (optim/grad_scaler.h) `max_norm` is max_norm * scaler.factor().
Tensor clip_scale(const Tensor& power, double max_norm);
/// A number of f64 that a kernel has left, for which the host waits; 0 on device meta.
double number_of(const Tensor& value);
/// The p-th root of a joined value.
double root_of(double power, double p);

// --- the tree, for gradients that are spread over ranks ------------------------------------------------------------

/// Blocks [begin, end) of one parameter.
struct Blocks {
  int64_t begin, end;
  auto operator<=>(const Blocks&) const = default;
};
/// The fewest whole subtrees of the tree over `count` blocks that make up `part`, in order.
std::vector<Blocks> subtrees(Blocks part, int64_t count);
/// The root of the tree over `count` blocks, from the values of subtrees that cover it; nothing for no blocks.
int64_t finish_tree(std::span<const Blocks> subtrees, std::span<const int64_t> values, int64_t count, Joins& joins);

/// Ranges of gradients whose powers are wanted: as few launches of kernels::norm_powers as they take.
class NormLaunches {
 public:
  explicit NormLaunches(double p) : p_(p) {}
  /// y (f64): a value for each `width` elements of x, on its device. Both stay until queue().
  void add(const Tensor& y, const Tensor& x, int64_t width);
  /// Launches what is not launched yet.
  void queue();

 private:
  double p_;
  Tensor first_;
  std::vector<kernels::NormRange> ranges_;
};

/// What a rank holds of gradients, as leaves of their trees: single blocks, and the nodes of 1024 that lie whole in a
/// part. Kernels write a value for each, max |x| for p = inf, and a list of joins goes on from there.
class NormLeaves {
 public:
  /// `blocks` of a tree over `count`.
  struct PartOf {
    Blocks blocks;
    int64_t count;
  };
  explicit NormLeaves(std::vector<PartOf> parts);
  /// Of all parts, which lie one after the other: the first values of a norm.
  int64_t count() const { return begins_.back(); }
  /// The values of subtrees(blocks, count) of a part.
  std::vector<int64_t> nodes(size_t part, Joins& joins) const;
  /// Queues the kernels that write all leaves to `values` (f64). grads: the elements of each part's blocks, on any
  /// device.
  void launch(std::span<const Tensor> grads, const Tensor& values, double p) const;

 private:
  /// Neighbours: each `width` blocks, the last of a parameter may have fewer.
  struct Run {
    Blocks blocks;
    int64_t width;
    int64_t count() const { return (blocks.end - blocks.begin + width - 1) / width; }
  };
  static std::vector<Run> runs_of(const PartOf& part);
  std::vector<PartOf> parts_;
  std::vector<std::vector<Run>> runs_;  // of each part
  std::vector<int64_t> begins_{0};      // of each part's leaves, and the end
};

}  // namespace shardgrad::optim
