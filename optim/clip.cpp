#include <shardgrad/optim/clip.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <mutex>

#include <shardgrad/autograd/launch.h>
#include <shardgrad/autograd/node.h>
#include <shardgrad/autograd/ops.h>
#include <shardgrad/autograd/part.h>
#include <shardgrad/kernels/workspace.h>

namespace shardgrad::optim {
namespace {

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

// How gradients of such sizes are joined.
struct Tree {
  std::vector<int64_t> blocks;  // of each gradient
  Device device;
  NormLeaves leaves;
  JoinList list;
};

std::shared_ptr<const Tree> make_tree(const std::vector<int64_t>& blocks, Device device) {
  std::vector<NormLeaves::PartOf> parts;
  for (int64_t count : blocks) parts.push_back({{0, count}, count});
  NormLeaves leaves(std::move(parts));
  Joins joins(leaves.count());
  std::vector<int64_t> powers;
  for (size_t i = 0; i < blocks.size(); ++i) {
    std::vector<int64_t> whole = leaves.nodes(i, joins);
    powers.push_back(whole.empty() ? joins.nothing() : whole[0]);
  }
  int64_t root = joins.tree(std::move(powers));
  TagScope owner(Category::other);
  JoinList list = joins.finish({&root, 1}, device);
  return std::make_shared<Tree>(Tree{blocks, device, std::move(leaves), std::move(list)});
}

// Those of a rank's last norms, the last one last: a list comes from the host, for which a step would wait and which no
// captured one may.
class Trees {
 public:
  std::shared_ptr<const Tree> of(const std::vector<int64_t>& blocks, Device device) {
    std::lock_guard lock(mutex_);
    auto fits = [&](const auto& tree) { return tree->blocks == blocks && tree->device == device; };
    auto found = std::ranges::find_if(last_, fits);
    if (found != last_.end()) return *std::rotate(found, found + 1, last_.end());
    auto tree = make_tree(blocks, device);
    if (last_.size() == kMost) last_.erase(last_.begin());
    return last_.emplace_back(std::move(tree));
  }

 private:
  static constexpr size_t kMost = 256;  // a norm of each layer
  std::mutex mutex_;
  std::vector<std::shared_ptr<const Tree>> last_;
};

Tensor power_of(std::span<const Tensor> grads, double p) {
  SG_CHECK(p >= 1, "gradient norm: p = ", p, " is not possible; use 1, 2, 3, … or infinity");
  std::vector<int64_t> blocks;
  for (const Tensor& grad : grads) blocks.push_back(block_count(grad.numel()));
  Device device = grads.empty() ? context().default_device() : grads[0].device();
  std::shared_ptr<const Tree> tree = context().slot<Trees>().of(blocks, device);
  TagScope owner(Category::workspace);
  Tensor values = empty({tree->list.total}, {DType::f64, device});
  tree->leaves.launch(grads, values, p);
  tree->list.run(values, p);
  return tree->list.results(values, 1);
}

double norm_of(std::span<const Tensor> grads, double p) { return root_of(number_of(power_of(grads, p)), p); }

int64_t finish(std::span<const Blocks> subtrees, std::span<const int64_t> values, Blocks node, Joins& joins) {
  auto found = std::ranges::lower_bound(subtrees, node);
  if (found != subtrees.end() && *found == node) return values[size_t(found - subtrees.begin())];
  int64_t half = 1;
  SG_ASSERT(node.end - node.begin > 1, "no value for block ", node.begin, " of a norm");
  while (2 * half < node.end - node.begin) half *= 2;
  int64_t left = finish(subtrees, values, {node.begin, node.begin + half}, joins);
  return joins.join(left, finish(subtrees, values, {node.begin + half, node.end}, joins));
}

}  // namespace

void NormLaunches::add(const Tensor& y, const Tensor& x, int64_t width) {
  SG_CHECK(is_floating(x.dtype()), "gradient norm: needs a floating dtype, got ", x);
  bool fits = ranges_.empty() || (first_.device() == x.device() && first_.dtype() == x.dtype());
  if (!fits || ranges_.size() == kernels::kNormsTogether) queue();
  if (ranges_.empty()) first_ = x;
  ranges_.push_back({y.out(), x.in(), width});
}

void NormLaunches::queue() {
  if (ranges_.empty()) return;
  auto ranges = std::make_shared<std::vector<kernels::NormRange>>(std::exchange(ranges_, {}));
  launch(kernels::norm_powers, first_, kernels::NormRanges(std::move(ranges)), p_);
}

// Nodes where whole ones lie, single blocks before and after them.
std::vector<NormLeaves::Run> NormLeaves::runs_of(const PartOf& part) {
  constexpr int64_t node = kernels::kNormNode / kNormBlock;
  auto [begin, end] = part.blocks;
  int64_t first = (begin + node - 1) / node * node, last = end == part.count ? end : end / node * node;
  std::vector<Run> runs{{part.blocks, 1}};
  if (first < last) runs = {{{begin, first}, 1}, {{first, last}, node}, {{last, end}, 1}};
  std::erase_if(runs, [](const Run& run) { return run.blocks.begin == run.blocks.end; });
  return runs;
}

NormLeaves::NormLeaves(std::vector<PartOf> parts) : parts_(std::move(parts)) {
  for (const PartOf& part : parts_) {
    begins_.push_back(begins_.back());
    for (const Run& run : runs_.emplace_back(runs_of(part))) begins_.back() += run.count();
  }
}

// Each subtree is made of whole leaves of one width.
std::vector<int64_t> NormLeaves::nodes(size_t part, Joins& joins) const {
  std::vector<int64_t> found;
  int64_t at = begins_[part];
  const Run* run = runs_[part].data();
  for (Blocks node : subtrees(parts_[part].blocks, parts_[part].count)) {
    while (run->blocks.end <= node.begin) ++run;
    std::vector<int64_t> leaves(size_t((node.end - node.begin + run->width - 1) / run->width));
    for (int64_t& leaf : leaves) leaf = at++;
    found.push_back(joins.tree(std::move(leaves)));
  }
  return found;
}

void NormLeaves::launch(std::span<const Tensor> grads, const Tensor& values, double p) const {
  NormLaunches launches(p);
  std::vector<std::pair<Tensor, Tensor>> elsewhere;
  for (size_t part = 0; part < parts_.size(); ++part) {
    Tensor mine = values.rows(begins_[part], begins_[part + 1]);
    if (Device device = grads[part].device(); device != values.device()) {
      Tensor there = empty(mine.shape(), {DType::f64, device});
      elsewhere.emplace_back(std::exchange(mine, there), there);
    }
    Tensor flat = grads[part].view({grads[part].numel()});
    int64_t at = 0, first = parts_[part].blocks.begin;
    for (const Run& run : runs_[part]) {
      int64_t begin = (run.blocks.begin - first) * kNormBlock, end = (run.blocks.end - first) * kNormBlock;
      Tensor x = flat.rows(begin, std::min(end, flat.numel()));
      launches.add(mine.rows(at, at + run.count()), x, run.width * kNormBlock);
      at += run.count();
    }
  }
  launches.queue();
  for (auto& [mine, there] : elsewhere) copy_into(mine, there.to(mine.device()));
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

int64_t finish_tree(std::span<const Blocks> subtrees, std::span<const int64_t> values, int64_t count, Joins& joins) {
  return count == 0 ? joins.nothing() : finish(subtrees, values, {0, count}, joins);
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

Tensor grad_power(std::span<const NamedParameter> parameters) {
  return power_of(gradients(parameters, "grad_power"), 2);
}

Tensor clip_scale(const Tensor& power, double max_norm) {
  SG_CHECK(power.numel() == 1 && power.dtype() == DType::f64, "clip_scale: power is ", power.dtype(), " ",
           power.shape(), "; it must be one number of f64, as grad_power gives it");
  SG_CHECK(std::isfinite(max_norm) && max_norm > 0, "clip_scale: max_norm = ", max_norm, " is not possible");
  TagScope owner(Category::workspace);
  Tensor scale = empty({1}, {DType::f64, power.device()});
  launch(kernels::clip_scale, scale, out(scale), power, max_norm);
  return scale;
}

double number_of(const Tensor& value) { return value.device() == kMeta ? 0 : value.item(); }

}  // namespace shardgrad::optim
