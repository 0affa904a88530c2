#pragma once
// What begins a backward pass, and what may be asked while one runs. autograd/node.h includes this.

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <span>
#include <vector>

#include <shardgrad/autograd/region.h>
#include <shardgrad/core/tensor.h>

namespace shardgrad {

/// Backpropagates from several tensors at once, each with its gradient (undefined: 1, for one element only).
/// Throws Error(input) when a graph was already consumed, a shape does not fit, nothing requires grad, or another
/// thread's backward is at a tensor of this one. A gradient that somebody still holds is added to in a copy.
void backward(std::span<const Tensor> roots, std::span<const Tensor> grads = {}, bool retain_graph = false);
/// The gradients of the outputs' sum, each times its gradient (undefined: 1, for one element only), for each of
/// `inputs`: tensors that require grad, computed or leaves. Nothing is added to leaves. Undefined for an input that the
/// outputs do not depend on. Throws Error(input) as backward, where it would have to pass by a parameter that
/// fully_shard owns, and for one of nn::DataParallel's.
std::vector<Tensor> grad(std::span<const Tensor> outputs, std::span<const Tensor> inputs,
                         std::span<const Tensor> grads = {}, bool retain_graph = false);
std::vector<Tensor> grad(const Tensor& output, std::initializer_list<Tensor> inputs, bool retain_graph = false);
/// Inside backward: runs `callback` when the pass has finished. Throws outside.
void on_backward_end(std::function<void()> callback);
/// Inside backward: runs `callback` when the pass has failed; what it throws is dropped. Throws outside.
void on_backward_failed(std::function<void()> callback);
/// Inside backward: holds `rebuilt` until the pass has finished or failed, and empties it then. Throws outside.
void keep_until_pass_ends(Ref<RebuiltValues> rebuilt);
/// True while the calling thread runs backward.
bool in_backward();
/// The running pass's number, which no other pass of this context has. Throws outside backward.
uint64_t backward_pass();

}  // namespace shardgrad
