#include <shardgrad/optim/clip.h>

#include <algorithm>
#include <cmath>

#include <shardgrad/autograd/launch.h>
#include <shardgrad/autograd/node.h>

namespace shardgrad::optim {
namespace {

double join(double a, double b, double p) {
  if (!std::isinf(p)) return a + b;
  return b > a || std::isnan(b) ? b : a;
}

// Each gradient of `parameters` in the order of their names, refusing sharded ones for `call`.
std::vector<Tensor> gradients(std::span<const NamedParameter> parameters, const char* call) {
  std::vector<NamedParameter> sorted(parameters.begin(), parameters.end());
  std::ranges::sort(sorted, {}, &NamedParameter::name);
  std::vector<Tensor> found;
  for (const NamedParameter& parameter : sorted) {
    if (!parameter.tensor.requires_grad()) continue;
    SG_CHECK(!leaf_of(parameter.tensor).sink(), "optim::", call, ": the gradient of '", parameter.name,
             "' is spread over the ranks; call fsdp::", call, " with what fully_shard returned");
    if (Tensor grad = parameter.tensor.grad(); grad.defined()) found.push_back(grad);
  }
  return found;
}

double norm_of(std::span<const Tensor> grads, double p) {
  std::vector<double> powers;
  for (const Tensor& grad : grads) powers.push_back(tree_join(block_powers(grad, p), p));
  return root_of(tree_join(std::move(powers), p), p);
}

double finish(std::span<const Blocks> subtrees, std::span<const double> values, Blocks node, double p) {
  auto found = std::ranges::lower_bound(subtrees, node);
  if (found != subtrees.end() && *found == node) return values[size_t(found - subtrees.begin())];
  int64_t half = 1;
  SG_ASSERT(node.end - node.begin > 1, "no value for block ", node.begin, " of a norm");
  while (2 * half < node.end - node.begin) half *= 2;
  double left = finish(subtrees, values, {node.begin, node.begin + half}, p);
  return join(left, finish(subtrees, values, {node.begin + half, node.end}, p), p);
}

}  // namespace

std::vector<double> block_powers(const Tensor& tensor, double p) {
  SG_CHECK(is_floating(tensor.dtype()), "gradient norm: needs a floating dtype, got ", tensor);
  SG_CHECK(p >= 1, "gradient norm: p = ", p, " is not possible; use 1, 2, 3, … or infinity");
  TagScope owner(Category::workspace);
  int64_t count = (tensor.numel() + kNormBlock - 1) / kNormBlock;
  if (tensor.device() == kMeta) return std::vector<double>(size_t(count));
  Tensor powers = empty({count}, {DType::f64, tensor.device()});
  launch(kernels::block_powers, tensor, out(powers), tensor, p);
  return powers.to_vector<double>();
}

double tree_join(std::vector<double> parts, double p) {
  if (parts.empty()) return 0;
  while (parts.size() > 1) {
    size_t pairs = parts.size() / 2, odd = parts.size() % 2;
    for (size_t i = 0; i < pairs; ++i) parts[i] = join(parts[2 * i], parts[2 * i + 1], p);
    if (odd) parts[pairs] = parts.back();
    parts.resize(pairs + odd);
  }
  return parts[0];
}

double root_of(double power, double p) {
  if (p == 1 || std::isinf(p)) return power;
  return p == 2 ? std::sqrt(power) : std::pow(power, 1 / p);
}

std::vector<Blocks> subtrees(Blocks part, int64_t count) {
  std::vector<Blocks> found;
  for (int64_t begin = part.begin; begin < part.end;) {
    int64_t width = 1, end = begin + 1;
    while (begin % (2 * width) == 0 && end < count && std::min(begin + 2 * width, count) <= part.end) {
      width *= 2;
      end = std::min(begin + width, count);
    }
    found.push_back({begin, end});
    begin = end;
  }
  return found;
}

double finish_tree(std::span<const Blocks> subtrees, std::span<const double> values, int64_t count, double p) {
  return count == 0 ? 0 : finish(subtrees, values, {0, count}, p);
}

double grad_norm(std::span<const NamedParameter> parameters, double p) {
  return norm_of(gradients(parameters, "grad_norm"), p);
}

double clip_grad_norm(std::span<const NamedParameter> parameters, double max_norm, double p) {
  std::vector<Tensor> grads = gradients(parameters, "clip_grad_norm");
  double norm = norm_of(grads, p), factor = clip_factor(norm, max_norm);
  for (const Tensor& grad : grads)
    if (factor < 1) launch(kernels::affine, grad, out(grad), grad, factor, 0.0);
  return norm;
}

double clip_factor(double norm, double max_norm) {
  SG_CHECK(std::isfinite(norm), "clip_factor: the gradient norm is ", norm,
           "; a gradient overflowed or is not a number");
  SG_CHECK(std::isfinite(max_norm) && max_norm > 0, "clip_factor: max_norm = ", max_norm, " is not possible");
  return std::min(1.0, max_norm / (norm + 1e-6));
}

}  // namespace shardgrad::optim
