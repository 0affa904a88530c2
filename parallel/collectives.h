#pragma once
// Collectives that autograd knows. Two conventions are in use, and each function says which it follows:
//
// Sums over ranks: every rank has a loss of its own, and what is trained is the sum of them all. The gradient of a
// collective is then another collective:
//
//     forward          all_gather       reduce_scatter   all_reduce   all_to_all   broadcast
//     gradient         reduce_scatter   all_gather       all_reduce   all_to_all   sum, on the root
//
// Replicated: all ranks of a group compute the same thing after a point, so the gradient is the same on each of them
// and must not be added up again. That is tensor parallelism (Megatron-LM, arXiv 1909.08053, figure 3): a
// column-parallel product begins with its f, copy_to_group, a row-parallel product ends with its g, reduce_from_group:
//
//     x ── copy_to_group ── x · A[:, mine] ── relu ── · B[mine, :] ── reduce_from_group ── y
//
// with one all_reduce in forward, and one in backward.
//
// All ranks of the group call them in the same order; backward keeps that order, since it visits newer operations
// first. So autograd records an operation on all of them or on none: ranks that differ in whether x requires a gradient
// are refused where their tensors meet, as are those that differ in its shape, in a dimension, or in whether the
// result is a sum or replicated, in backward too. Backward after the group is gone is refused. On one rank nothing is
// sent.

#include <shardgrad/core/tensor.h>
#include <shardgrad/dist/group/process_group.h>

namespace shardgrad::parallel {

/// The ranks' tensors end to end along `dim`, in rank order; the extent there grows by the group's size. Sums.
Tensor all_gather(const Tensor& x, dist::ProcessGroup& group, int dim = 0);
/// This rank's part along `dim` of the sum of the ranks' tensors. Throws where the extent does not divide. Sums.
Tensor reduce_scatter(const Tensor& x, dist::ProcessGroup& group, int dim = 0);
/// The sum of the ranks' tensors, on every rank. Sums.
Tensor all_reduce(const Tensor& x, dist::ProcessGroup& group);
/// Cuts x along `split_dim`, sends part r to rank r, and joins what comes along `cat_dim`, in rank order. Sums.
///     2 ranks, x (4 tokens, 6 heads), split_dim 1, cat_dim 0: (8 tokens, 3 heads)
Tensor all_to_all(const Tensor& x, dist::ProcessGroup& group, int split_dim = 0, int cat_dim = 0);
/// root's tensor on every rank. The others' tensors say shape, dtype and whether they require a gradient, all as
/// root's, and get a gradient of 0. Sums.
Tensor broadcast(const Tensor& x, dist::ProcessGroup& group, int root = 0);

/// x itself; its gradient is the sum of the ranks' gradients. Megatron's f: the same x goes into different parts.
Tensor copy_to_group(const Tensor& x, dist::ProcessGroup& group);
/// The sum of the ranks' tensors; its gradient goes to each of them as it is. Megatron's g: parts of one result.
Tensor reduce_from_group(const Tensor& x, dist::ProcessGroup& group);
/// all_gather whose result is replicated: each rank's gradient is its own part of the gradient, not summed.
Tensor gather_from_group(const Tensor& x, dist::ProcessGroup& group, int dim = 0);
/// This rank's part along `dim` of a replicated x; its gradient is gathered, for x is the same everywhere.
Tensor scatter_to_group(const Tensor& x, dist::ProcessGroup& group, int dim = 0);

/// The largest of the ranks' elements, at each place; NaN where one is NaN. Not differentiable. Takes memory of
/// size() times x: meant for small tensors, such as the row maxima of a softmax over split columns.
Tensor max_over(const Tensor& x, dist::ProcessGroup& group);

}  // namespace shardgrad::parallel
