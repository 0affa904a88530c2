#include <shardgrad/optim/clip.h>

#include <algorithm>
#include <cmath>

#include <shardgrad/autograd/launch.h>
#include <shardgrad/autograd/node.h>
#include <shardgrad/autograd/part.h>
#include <shardgrad/kernels/workspace.h>

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
    check_norm_of_whole(call, parameter.name, parameter.tensor.shape(), parameter.part);
    SG_CHECK(!leaf_of(parameter.tensor).sink(), "optim::", call, ": the gradient of '", parameter.name,
             "' is spread over the ranks; call fsdp::", call, " with what fully_shard returned");
    if (Tensor grad = parameter.tensor.grad(); grad.defined()) found.push_back(grad);
  }
  return found;
}

int64_t block_count(int64_t numel) { return (numel + kNormBlock - 1) / kNormBlock; }

double norm_of(std::span<const Tensor> grads, double p) {
  std::vector<GradPart> parts;
  for (const Tensor& grad : grads) parts.push_back({grad, {0, block_count(grad.numel())}, block_count(grad.numel())});
  std::vector<double> powers;
  for (const std::vector<double>& whole : subtree_powers(parts, p)) powers.push_back(whole.empty() ? 0 : whole[0]);
  return root_of(tree_join(std::move(powers), p), p);
}

/// Neighbouring leaves of a tree that a kernel joins: each `width` blocks, the last of a parameter may have fewer.
struct Run {
  Blocks blocks;
  int64_t width;
};

// Nodes where whole ones lie, single blocks before and after them.
std::vector<Run> leaves_of(Blocks part, int64_t count) {
  constexpr int64_t node = kernels::kNormNode / kNormBlock;
  int64_t first = (part.begin + node - 1) / node * node, last = part.end == count ? count : part.end / node * node;
  std::vector<Run> runs{{part, 1}};
  if (first < last) runs = {{{part.begin, first}, 1}, {{first, last}, node}, {{last, part.end}, 1}};
  std::erase_if(runs, [](const Run& run) { return run.blocks.begin == run.blocks.end; });
  return runs;
}

int64_t leaf_count(std::span<const Run> runs) {
  int64_t total = 0;
  for (const Run& run : runs) total += (run.blocks.end - run.blocks.begin + run.width - 1) / run.width;
  return total;
}

// Queues the kernels that write one value for each leaf of the part.
void launch_leaves(const GradPart& part, std::span<const Run> runs, const Tensor& values, double p) {
  int64_t at = 0;
  for (const Run& run : runs) {
    int64_t begin = (run.blocks.begin - part.blocks.begin) * kNormBlock, count = leaf_count({&run, 1});
    int64_t end = std::min((run.blocks.end - part.blocks.begin) * kNormBlock, part.grad.numel());
    Tensor x = part.grad.view({part.grad.numel()}).rows(begin, end);
    launch(kernels::norm_powers, x, out(values.rows(at, at + count)), x, p, run.width * kNormBlock);
    at += count;
  }
}

// The leaves' values of all parts on the device, in order, with one copy to the host.
std::vector<double> leaves_on(Device device, std::span<const GradPart> parts, std::span<const std::vector<Run>> runs,
                              double p) {
  int64_t total = 0, at = 0;
  for (size_t i = 0; i < parts.size(); ++i)
    if (parts[i].grad.device() == device) total += leaf_count(runs[i]);
  if (device == kMeta) return std::vector<double>(size_t(total));
  TagScope owner(Category::workspace);
  Tensor values = empty({total}, {DType::f64, device});
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].grad.device() != device) continue;
    int64_t leaves = leaf_count(runs[i]);
    launch_leaves(parts[i], runs[i], values.rows(at, at + leaves), p);
    at += leaves;
  }
  return values.to_vector<double>();
}

// The subtrees' values from those of the leaves, in order: each is made of whole leaves of one width.
std::vector<double> join_leaves(const GradPart& part, std::span<const Run> runs, std::span<const double> values,
                                double p) {
  std::vector<double> joined;
  size_t at = 0, run = 0;
  for (Blocks node : subtrees(part.blocks, part.count)) {
    while (runs[run].blocks.end <= node.begin) ++run;
    auto count = size_t((node.end - node.begin + runs[run].width - 1) / runs[run].width);
    joined.push_back(tree_join({values.begin() + std::ptrdiff_t(at), values.begin() + std::ptrdiff_t(at + count)}, p));
    at += count;
  }
  return joined;
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

std::vector<std::vector<double>> subtree_powers(std::span<const GradPart> parts, double p) {
  SG_CHECK(p >= 1, "gradient norm: p = ", p, " is not possible; use 1, 2, 3, … or infinity");
  std::vector<std::vector<Run>> runs;
  std::vector<Device> devices;
  for (const GradPart& part : parts) {
    SG_CHECK(is_floating(part.grad.dtype()), "gradient norm: needs a floating dtype, got ", part.grad);
    runs.push_back(leaves_of(part.blocks, part.count));
    if (std::ranges::find(devices, part.grad.device()) == devices.end()) devices.push_back(part.grad.device());
  }
  std::vector<std::vector<double>> joined(parts.size());
  for (Device device : devices) {
    std::vector<double> leaves = leaves_on(device, parts, runs, p);
    std::span<const double> left(leaves);
    for (size_t i = 0; i < parts.size(); ++i) {
      if (parts[i].grad.device() != device) continue;
      joined[i] = join_leaves(parts[i], runs[i], left, p);
      left = left.subspan(size_t(leaf_count(runs[i])));
    }
  }
  return joined;
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

void check_norm_of_whole(const char* call, const std::string& name, const Shape& shape, const Part& part) {
  SG_CHECK(is_whole(shape, part), call, ": '", name,
           "' is a part of a larger parameter, and ranks with other parts of ",
           "it would get another norm; join the ranks' sums of squares, those of whole parameters once, and give ",
           "step() the factor");
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
